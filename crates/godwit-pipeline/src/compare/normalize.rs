//! Alleles through `bcftools norm`.
//!
//! What goes in is not the user's records but sites made of their alleles, numbered: fields of callers cannot trip the
//! program up, and genotypes stay here.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_engines::EngineError;
use godwit_engines::normalizer::bcftools::{Normalizer, reference_mismatch};
use godwit_formats::bgzf;
use godwit_formats::vcf::Reader;
use godwit_formats::with_causes;

use super::ContigNames;
use super::call_set::CallSet;
use super::reference::IndexedReference;
use crate::error::PipelineError;

/// What stands for the program's output in messages.
const OUTPUT_NAME: &str = "the output of bcftools norm";
/// How long the program may take to end once its output is of no use.
const PATIENCE: Duration = Duration::from_secs(2);
/// Records read between looks at whether to go on.
const CANCEL_EVERY: usize = 4096;

/// The same alleles in their one form, sorted and each once, and the version of bcftools.
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
        // Where reading failed, nobody takes its output any more, so that it ends or has to be ended; the writer then ends too.
        let ended = if read.is_ok() { child.handle.wait() } else { child.handle.end_within(PATIENCE) };
        (read, ended, writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    if cancelled.load(Ordering::Relaxed) {
        return Err(PipelineError::Interrupted);
    }
    ended.map_err(|error| explain(error, &set, reference))?;
    written.map_err(PipelineError::file("write to", "bcftools"))?;
    let mut normalized = read.map_err(|problem| child.wrong_output(problem))?;
    normalized.merge();
    Ok((normalized, child.version.clone()))
}

/// The program's death, as the user's reference or calls where it was about those.
fn explain(error: EngineError, set: &CallSet, reference: Option<&IndexedReference>) -> PipelineError {
    match (reference_mismatch(&error), reference) {
        (Some(place), Some(reference)) => {
            let problem = format!(
                "{} does not belong to {}: at {place}; give the reference that it was made with",
                set.path().display(),
                reference.name().display()
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

/// What comes back, or what is wrong with it.
fn read_sites(set: &CallSet, contigs: &ContigNames, output: File, cancelled: &AtomicBool) -> Result<CallSet, String> {
    let input = bgzf::Reader::from_file(Path::new(OUTPUT_NAME), output, 1).map_err(|error| with_causes(&error))?;
    let mut reader = Reader::new(input).map_err(|error| with_causes(&error))?;
    let mut normalized = set.emptied();
    let mut back = vec![false; set.alleles().len()];
    let mut sites: usize = 0;
    while let Some(record) = reader.next_record().map_err(|error| with_causes(&error))? {
        if sites.is_multiple_of(CANCEL_EVERY) && cancelled.load(Ordering::Relaxed) {
            return Err("it was not read to its end".to_owned());
        }
        sites += 1;
        let index = record.identifiers.parse::<usize>().ok();
        let alternate = record.alternates().next();
        let known = index.and_then(|index| Some((index, set.alleles().get(index)?)));
        let known = known.filter(|(_, allele)| contigs.name(allele.contig) == record.contig);
        let (Some((index, allele)), Some(alternate)) = (known, alternate) else {
            return Err(format!("line {} of its output is none of the sites that it was given", record.line));
        };
        back[index] = true;
        let mut moved = *allele;
        moved.position = record.position;
        normalized.push(&moved, record.reference, alternate);
    }
    match back.iter().filter(|back| !**back).count() {
        0 => Ok(normalized),
        missing => Err(format!("{missing} of {} sites that it was given did not come back", back.len())),
    }
}
