//! Verification of a BAM without a manifest: the whole file is read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use godwit_formats::bam::{self, BamFile, RecordBuffer};
use godwit_formats::binning_index::{IndexReadError, IndexSummary, index_paths};
use godwit_io::bgzf::BgzfError;
use godwit_io::random_access::LocalFile;
use godwit_model::{RawRecord, SortKey, flags};

use super::{FileCheck, Verifier, VerifyOutcome};
use crate::error::{AlignmentsError, PipelineError};
use godwit_model::ErrorKind;

/// Size of the records that are read at a time, bytes.
const READ_BYTES: usize = 8 << 20;

/// Numbers of records, in the categories for which a BAM index contains counts.
#[derive(Default)]
struct BamRecordCounts {
    /// Numbers of mapped and of unmapped records on each contig.
    contigs: Vec<(u64, u64)>,
    without_contig: u64,
    records: u64,
}

impl Verifier<'_> {
    /// Verifies a BAM that is not listed in a manifest.
    pub(super) fn verify_bam(&self, path: &Path) -> Result<FileCheck, PipelineError> {
        let outcome = match self.read_all_records(path) {
            Ok((counts, Ok(()))) => match compare_with_indexes(path, &counts)? {
                Ok(indexed) => VerifyOutcome::Sound { records: counts.records, indexed },
                Err(problem) => VerifyOutcome::Corrupt { problem },
            },
            Ok((_, Err(problem))) => VerifyOutcome::Corrupt { problem },
            Err(error) if error.kind() == ErrorKind::Input => VerifyOutcome::Corrupt { problem: last_cause(&error) },
            Err(error) => return Err(error),
        };
        Ok(FileCheck { path: path.to_owned(), outcome })
    }

    /// Reads and counts all records. The inner error describes a record that violates the sort order that the header
    /// states.
    fn read_all_records(&self, path: &Path) -> Result<(BamRecordCounts, Result<(), String>), PipelineError> {
        let failed = |error: bam::BamError| PipelineError::alignments(path, AlignmentsError::Bam(error));
        let is_named_bam = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bam"));
        let mut reader = bam::Reader::open(path, self.threads).map_err(|error| match error {
            // The file may be sound in another format.
            bam::BamError::NotBam { .. }
            | bam::BamError::Bgzf(
                BgzfError::NotBgzf { .. } | BgzfError::Empty { .. } | BgzfError::Unsupported { .. },
            ) if !is_named_bam => PipelineError::Options {
                problem: format!("{} has no manifest and is not a BAM file, so it cannot be verified", path.display()),
            },
            error => failed(error),
        })?;
        let sorted = reader.header().lines().next().is_some_and(|line| {
            line.starts_with(b"@HD\t") && line.split(|byte| *byte == b'\t').any(|field| field == b"SO:coordinate")
        });
        let mut counts =
            BamRecordCounts { contigs: vec![(0, 0); reader.genome().contigs().len()], ..BamRecordCounts::default() };
        let (mut chunk, mut last) = (RecordBuffer::default(), SortKey::MIN);
        while reader.read_records(&mut chunk, READ_BYTES).map_err(failed)? {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            for record in chunk.records().map(RawRecord::from_trusted_bytes) {
                counts.add(record);
                // Compare positions only, because other tools do not sort records at the same position by strand.
                let key = SortKey::new(record.contig(), record.position(), false);
                if sorted && key < last {
                    let problem =
                        format!("record {} is not in coordinate order, which the header declares", counts.records);
                    return Ok((counts, Err(problem)));
                }
                last = key;
            }
        }
        Ok((counts, Ok(())))
    }
}

impl BamRecordCounts {
    fn add(&mut self, record: RawRecord) {
        self.records += 1;
        match usize::try_from(record.contig()).ok().and_then(|contig| self.contigs.get_mut(contig)) {
            Some((mapped, _)) if record.flag() & flags::UNMAPPED == 0 => *mapped += 1,
            Some((_, unmapped)) => *unmapped += 1,
            None => self.without_contig += 1,
        }
    }
}

/// Compares the file with all of its indexes, because programs differ in which one they use. Returns true if there is
/// an index, false if there is none, or an inner error with the first difference.
fn compare_with_indexes(path: &Path, counts: &BamRecordCounts) -> Result<Result<bool, String>, PipelineError> {
    let mut is_indexed = false;
    for index in index_paths(path, &["bai", "csi"]).filter(|index| index.is_file()) {
        if let Some(problem) = compare_with_index(path, &index, counts)? {
            return Ok(Err(problem));
        }
        is_indexed = true;
    }
    Ok(Ok(is_indexed))
}

/// Returns the difference between the file and an index: in the record counts, or in the offsets of the records.
/// Returns `None` if they agree.
fn compare_with_index(path: &Path, index: &Path, counts: &BamRecordCounts) -> Result<Option<String>, PipelineError> {
    let name = index.display();
    let summary = match IndexSummary::read(index, counts.contigs.len()) {
        Ok(summary) => summary,
        Err(IndexReadError::OtherContigs { indexed, expected, .. }) => {
            return Ok(Some(format!("its index {name} has {indexed} contigs, but its header has {expected}")));
        }
        Err(IndexReadError::Bgzf(BgzfError::Io { source, .. })) => {
            return Err(PipelineError::File { action: "read", path: index.to_owned(), source });
        }
        Err(error) => return Ok(Some(format!("its index cannot be used: {error}"))),
    };
    let bytes = std::fs::metadata(path).map_err(PipelineError::file("read", path))?.len();
    if summary.last_compressed_offset > bytes {
        let last = summary.last_compressed_offset;
        return Ok(Some(format!(
            "its index {name} points to byte {last}, but the file has {bytes} bytes: it is truncated"
        )));
    }
    let differs = |problem: String| format!("its index {name} does not match it: {problem}; create the index again");
    if let Some(problem) = count_difference(&summary, counts) {
        return Ok(Some(differs(problem)));
    }
    // The counts of two files may be equal, and some programs write none.
    let failed = |error: bam::BamError| PipelineError::alignments(path, AlignmentsError::Bam(error));
    let source = LocalFile::open(path).map_err(PipelineError::file("read", path))?;
    let file = BamFile::open(Arc::new(source)).map_err(failed)?;
    let mismatch = file.find_index_mismatch(&summary.contig_chunks, usize::MAX).map_err(failed)?;
    Ok(mismatch.map(|mismatch| differs(mismatch.to_string())))
}

/// Returns the difference between the record counts of an index and those of the file. Returns `None` if they agree,
/// or if the program that wrote the index does not store counts.
fn count_difference(summary: &IndexSummary, counts: &BamRecordCounts) -> Option<String> {
    if summary.contig_counts.iter().all(Option::is_none) && summary.unplaced_records.is_none() {
        return None;
    }
    let of_contigs = summary.contig_counts.iter().flatten().flat_map(|(mapped, unmapped)| [*mapped, *unmapped]);
    let indexed = of_contigs.chain(summary.unplaced_records).fold(0, u64::saturating_add);
    let same = summary.contig_counts.iter().map(|contig| contig.unwrap_or_default()).eq(counts.contigs.iter().copied())
        && summary.unplaced_records.is_none_or(|records| records == counts.without_contig);
    let found = counts.records;
    (!same).then(|| format!("{indexed} records in the index, {found} in the file, compared by contig"))
}

/// Returns the message of the innermost cause of an error, which is the most specific message.
fn last_cause(error: &PipelineError) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
