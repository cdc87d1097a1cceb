//! Normalizes alleles with `bcftools norm`.
//!
//! The input of bcftools is not the user's records, but one numbered site for each allele. Therefore, fields of the
//! callers cannot make bcftools fail, and genotypes do not pass through bcftools.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_engines::EngineError;
use godwit_engines::normalizer::bcftools::{Normalizer, reference_mismatch};
use godwit_formats::vcf::Reader;
use godwit_io::bgzf;
use godwit_model::message_with_causes;
use godwit_pipeline::PipelineError;

use super::ContigNames;
use super::call_set::CallSet;
use super::indexed_reference::IndexedReference;

/// Name of the output of bcftools in messages.
const OUTPUT_NAME: &str = "the output of bcftools norm";
/// Maximum time to wait until bcftools exits after reading its output has failed.
const BCFTOOLS_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Records read between two checks of the cancel flag.
const CANCEL_CHECK_RECORDS: usize = 4096;

/// Returns the alleles of `set` in normalized form, sorted and without repetition, and the version of bcftools.
pub(super) fn normalize(
    set: CallSet,
    contigs: &ContigNames,
    reference: Option<&IndexedReference>,
    cancelled: &AtomicBool,
) -> Result<(CallSet, String), PipelineError> {
    if let Some(reference) = reference {
        reference.check_contigs(&set, contigs)?;
    }
    let Normalizer { input, output, child } = Normalizer::start(reference.map(IndexedReference::path))?;
    let (read, ended, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_sites(&set, contigs, input));
        let read = read_sites(&set, contigs, output, cancelled);
        // If reading failed, the output pipe is closed, so bcftools exits or is killed. The writing thread then ends as
        // well.
        let ended = if read.is_ok() { child.handle.wait() } else { child.handle.wait_or_kill(BCFTOOLS_EXIT_TIMEOUT) };
        (read, ended, writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    if cancelled.load(Ordering::Relaxed) {
        return Err(PipelineError::Interrupted);
    }
    ended.map_err(|error| classify_failure(error, &set, reference))?;
    written.map_err(PipelineError::file("write to", "bcftools"))?;
    let mut normalized = read.map_err(|problem| child.output_error(problem))?;
    normalized.merge();
    Ok((normalized, child.version.clone()))
}

/// Converts a failure of bcftools. If bases of the calls and the reference differ, the error names these two files.
fn classify_failure(error: EngineError, set: &CallSet, reference: Option<&IndexedReference>) -> PipelineError {
    match (reference_mismatch(&error), reference) {
        (Some(place), Some(reference)) => {
            let problem = format!(
                "the REF alleles of {} differ from the reference {} at {place}; give the reference of the variants",
                set.path().display(),
                reference.original_path().display()
            );
            PipelineError::Incomparable { problem }
        }
        _ => error.into(),
    }
}

fn write_sites(set: &CallSet, contigs: &ContigNames, input: ChildStdin) -> io::Result<()> {
    let mut out = BufWriter::new(input);
    out.write_all(b"##fileformat=VCFv4.2\n")?;
    for contig in set.contigs() {
        writeln!(out, "##contig=<ID={}>", contigs.name(contig))?;
    }
    out.write_all(b"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")?;
    for (index, allele) in set.alleles().iter().enumerate() {
        let (reference, alternate) = set.bases(allele);
        let pos_1based = i64::from(allele.position) + 1;
        write!(out, "{}\t{pos_1based}\t{index}\t", contigs.name(allele.contig))?;
        out.write_all(reference)?;
        out.write_all(b"\t")?;
        out.write_all(alternate)?;
        out.write_all(b"\t.\t.\t.\n")?;
    }
    out.flush()
}

/// Reads the normalized alleles from the output of bcftools. The error is a text about the problem with this output.
fn read_sites(set: &CallSet, contigs: &ContigNames, output: File, cancelled: &AtomicBool) -> Result<CallSet, String> {
    let input =
        bgzf::Reader::from_file(Path::new(OUTPUT_NAME), output, 1).map_err(|error| message_with_causes(&error))?;
    let mut reader = Reader::new(input).map_err(|error| message_with_causes(&error))?;
    let mut normalized = set.without_alleles();
    let mut back = vec![false; set.alleles().len()];
    let mut sites: usize = 0;
    while let Some(record) = reader.next_record().map_err(|error| message_with_causes(&error))? {
        if sites.is_multiple_of(CANCEL_CHECK_RECORDS) && cancelled.load(Ordering::Relaxed) {
            return Err("bcftools norm exited before it had read its whole input".to_owned());
        }
        sites += 1;
        let index = record.identifiers.parse::<usize>().ok();
        let alternate = record.alternates().next();
        let known = index.and_then(|index| Some((index, set.alleles().get(index)?)));
        let known = known.filter(|(_, allele)| contigs.name(allele.contig) == record.contig);
        let (Some((index, allele)), Some(alternate)) = (known, alternate) else {
            return Err(format!("the record in line {} of its output is not one of the input sites", record.line));
        };
        back[index] = true;
        let mut moved = *allele;
        moved.position = record.position;
        normalized.push_allele(&moved, record.reference, alternate);
    }
    match back.iter().filter(|back| !**back).count() {
        0 => Ok(normalized),
        missing => Err(format!("{missing} of {} input sites are missing in the output of bcftools norm", back.len())),
    }
}
