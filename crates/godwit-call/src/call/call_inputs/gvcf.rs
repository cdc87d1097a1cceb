//! GVCFs as inputs of a caller.

use std::io::BufReader;
use std::path::Path;

use godwit_formats::binning_index::DataDensity;
use godwit_formats::sam;
use godwit_formats::vcf::lines::{Header, Reader};
use godwit_io::bgzf;
use godwit_model::{Contig, Genome};
use godwit_pipeline::PipelineError;

use super::{AlignedReads, find_index};

/// Start of a header line that every GVCF has. The line declares the allele `<NON_REF>`, which represents all alleles
/// that are not listed (GATK, "GVCF - Genomic Variant Call Format").
const NON_REF_ALT_LINE: &[u8] = b"##ALT=<ID=NON_REF,";

/// Opens a GVCF with its index. Every base of the genome has a record in a GVCF, so intervals of equal length have
/// equal costs.
///
/// # Errors
/// [`PipelineError::Missing`] for the file or its index, [`PipelineError::Corrupt`] for a file that is not a bgzipped
/// GVCF.
pub(super) fn open(path: &Path) -> Result<AlignedReads, PipelineError> {
    if !path.is_file() {
        let remedy = "check the path".to_owned();
        return Err(PipelineError::Missing { description: "the GVCF", path: path.to_owned(), remedy });
    }
    let wrong = |problem: String| PipelineError::Corrupt { path: path.to_owned(), problem };
    let compressed = bgzf::Reader::open(path, 1).map_err(|error| wrong(error.to_string()))?;
    let reader = Reader::new(BufReader::new(compressed)).map_err(|error| wrong(error.to_string()))?;
    let header = reader.header();
    if !header.lines().any(|line| line.starts_with(NON_REF_ALT_LINE)) {
        let remedy = "create one with `godwit call --caller gatk --caller-args '-ERC GVCF'`";
        return Err(wrong(format!("it is a VCF but not a GVCF; {remedy}")));
    }
    let contigs = parse_contigs(header).ok_or_else(|| wrong("a ##contig line lacks its ID or length".to_owned()))?;
    let genome = Genome::new(contigs).map_err(|error| wrong(error.to_string()))?;
    let samples: Vec<String> = header.samples().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    if samples.is_empty() {
        return Err(wrong("it has no sample".to_owned()));
    }
    let index = find_index(path, &["tbi", "csi"], "tabix -p vcf")?;
    Ok(AlignedReads {
        path: path.to_owned(),
        index,
        genome,
        data_distribution: DataDensity::default(),
        header: sam::Header::default(),
        samples,
    })
}

fn parse_contigs(header: &Header) -> Option<Vec<Contig>> {
    let lines = header.lines().filter_map(|line| line.strip_prefix(b"##contig=<"));
    let contig = |line: &[u8]| {
        let text = std::str::from_utf8(line.strip_suffix(b">")?).ok()?;
        let field = |name: &str| text.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let length = field("length")?.parse().ok()?;
        Some(Contig { name: field("ID")?.to_owned(), length, alternate: false })
    };
    lines.map(contig).collect()
}
