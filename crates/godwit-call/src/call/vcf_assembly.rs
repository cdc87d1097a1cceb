//! Assembles one VCF from the calls of all regions: a merged header, the records in the order of the genome, and an
//! index.

use std::collections::HashSet;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use godwit_files::{AtomicFile, AtomicSet};
use godwit_formats::binning_index::TabixBuilder;
use godwit_formats::vcf::lines::{Header, Reader, Record};
use godwit_io::bgzf;
use godwit_model::Genome;
use godwit_pipeline::PipelineError;

use super::checkpoint::{CallJobDirectory, RegionCheckpoint};
use super::region_plan::PlannedRegion;

/// Compression level of the VCF: the default of bgzip, because variants are written once and stored for years.
const VCF_COMPRESSION_LEVEL: u8 = 6;

/// A VCF that is assembled from the calls of regions.
pub(super) struct VcfAssembly<'a> {
    pub(super) out: &'a Path,
    pub(super) genome: &'a Genome,
    pub(super) regions: &'a [PlannedRegion],
    pub(super) checkpoints: &'a [RegionCheckpoint],
    pub(super) job_directory: &'a CallJobDirectory,
    /// Header lines about the origin of the records.
    pub(super) provenance: Vec<String>,
}

impl VcfAssembly<'_> {
    /// Writes the VCF and its index under temporary names, and flushes both to disk. Returns the number of records.
    ///
    /// # Errors
    /// [`PipelineError::CallerOutput`] if headers or records of two regions are inconsistent, [`PipelineError::File`]
    /// if a file cannot be written.
    pub(super) fn write_vcf_and_index(&self, staged: &mut AtomicSet) -> Result<u64, PipelineError> {
        let failed = |error| PipelineError::file("write", self.out)(error);
        let header = self.merge_headers()?;
        let vcf = AtomicFile::create(self.out).map_err(failed)?;
        let mut writer = bgzf::Writer::new(BufWriter::with_capacity(1 << 20, vcf.file()), VCF_COMPRESSION_LEVEL);
        writer.write_bytes(&header.text()).map_err(failed)?;
        let mut index = TabixBuilder::new(self.genome);
        let mut records = 0;
        for (region, kept) in self.regions.iter().zip(self.checkpoints) {
            let lines = self.job_directory.read_range(kept.lines).map_err(failed)?;
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                let wrong = |problem: String| PipelineError::CallerOutput { region: region.label.clone(), problem };
                let record = line.strip_suffix(b"\n").and_then(Record::from_line);
                let contig =
                    record.as_ref().and_then(|record| self.genome.contig(self.genome.contig_id(record.contig)?));
                let (Some(record), Some(contig)) = (record, contig) else {
                    return Err(wrong("is damaged on disk; run the command again without --resume".into()));
                };
                let place = writer.write_record(&[line]).map_err(failed)?;
                index
                    .push(contig, record.start as i32, i32::try_from(record.end).unwrap_or(i32::MAX), place)
                    .map_err(|error| wrong(format!("cannot be indexed: {error}")))?;
                records += 1;
            }
        }
        let (buffer, _) = writer.finish_file().map_err(failed)?;
        buffer.into_inner().map_err(|error| failed(error.into_error()))?;
        staged.add(vcf).map_err(failed)?;
        let index_path = PathBuf::from(format!("{}.{}", self.out.display(), index.extension()));
        let mut bytes = Vec::new();
        index
            .write(&mut bytes)
            .and_then(|()| staged.write_file(&index_path, &bytes))
            .map_err(PipelineError::file("write", &index_path))?;
        Ok(records)
    }

    /// Merges the VCF headers of all regions, with each line once, and adds the lines about the origin of the records.
    fn merge_headers(&self) -> Result<Header, PipelineError> {
        let (mut whole, mut seen) = (None::<Header>, HashSet::new());
        for (region, kept) in self.regions.iter().zip(self.checkpoints) {
            if !seen.insert(kept.header) {
                continue;
            }
            let wrong = |error: godwit_formats::vcf::lines::VcfLinesError| PipelineError::CallerOutput {
                region: region.label.clone(),
                problem: error.to_string(),
            };
            let text = self.job_directory.read_range(kept.header).map_err(PipelineError::file("read", self.out))?;
            // The caller stalled in all of the region.
            if text.is_empty() {
                continue;
            }
            let header = Reader::new(&text[..]).map_err(wrong)?.header().clone();
            match &mut whole {
                Some(whole) => whole.merge(&header).map_err(wrong)?,
                None => whole = Some(header),
            }
        }
        let stalled = || PipelineError::CallerOutput {
            region: self.regions.first().map_or_else(String::new, |region| region.label.clone()),
            problem:
                "is missing, as for all other regions: the caller stalled in them. Give --stall-after a longer time"
                    .to_owned(),
        };
        let mut whole = whole.ok_or_else(stalled)?;
        if !whole.has_kind("contig") {
            for contig in self.genome.contigs() {
                whole.push_line(format!("##contig=<ID={},length={}>", contig.name, contig.length).into_bytes());
            }
        }
        self.provenance.iter().for_each(|line| whole.push_line(line.clone().into_bytes()));
        Ok(whole)
    }
}

/// Writes a JSON file under a temporary name and adds it to the files that are published together.
pub(crate) fn add_json_file(
    staged: &mut AtomicSet,
    path: &Path,
    value: &impl serde::Serialize,
) -> Result<(), PipelineError> {
    let text = serde_json::to_vec_pretty(value).map_err(io::Error::other);
    text.and_then(|text| staged.write_file(path, &text)).map_err(PipelineError::file("write", path))
}
