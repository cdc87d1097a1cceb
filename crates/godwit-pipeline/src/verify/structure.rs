//! A BAM without a manifest, read from end to end.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use godwit_formats::bam::{self, RecordChunk};
use godwit_formats::index::{IndexReadError, IndexSummary};
use godwit_model::{RawRecord, SortKey, flags};

use super::{Check, Verdict, Work};
use crate::error::{AlignmentsError, Blame, PipelineError};

/// Bytes of records looked at together.
const CHUNK_BYTES: usize = 8 << 20;

/// Records as an index counts them.
#[derive(Default)]
struct Counts {
    /// Mapped and unmapped records of each contig.
    contigs: Vec<(u64, u64)>,
    without_contig: u64,
    records: u64,
}

impl Work<'_> {
    /// A file that no manifest names.
    pub(super) fn alone(&self, path: &Path) -> Result<Check, PipelineError> {
        let verdict = match self.walk(path) {
            Ok((counts, Ok(()))) => match against_index(path, &counts)? {
                Ok(indexed) => Verdict::Sound { records: counts.records, indexed },
                Err(problem) => Verdict::Corrupt { problem },
            },
            Ok((_, Err(problem))) => Verdict::Corrupt { problem },
            Err(error) if error.blame() == Blame::Input => Verdict::Corrupt { problem: with_cause(&error) },
            Err(error) => return Err(error),
        };
        Ok(Check { path: path.to_owned(), verdict })
    }

    /// Reads every record; the inner error is a file that is not in the order it claims.
    fn walk(&self, path: &Path) -> Result<(Counts, Result<(), String>), PipelineError> {
        let failed = |error: bam::BamError| PipelineError::alignments(path, AlignmentsError::Bam(error));
        let mut reader = bam::Reader::open(path, self.threads).map_err(|error| match error {
            bam::BamError::NotBam { .. } => PipelineError::Options {
                problem: format!("{} has no manifest and is no BAM: nothing is known to check it by", path.display()),
            },
            error => failed(error),
        })?;
        let sorted = reader.header().lines().next().is_some_and(|line| {
            line.starts_with(b"@HD\t") && line.split(|byte| *byte == b'\t').any(|field| field == b"SO:coordinate")
        });
        let mut counts = Counts { contigs: vec![(0, 0); reader.genome().contigs().len()], ..Counts::default() };
        let (mut chunk, mut last) = (RecordChunk::default(), SortKey::FIRST);
        while reader.read_chunk(&mut chunk, CHUNK_BYTES).map_err(failed)? {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            for record in chunk.records().map(RawRecord::trusted) {
                counts.add(record);
                // Other tools do not order strands at one position.
                let key = SortKey::new(record.contig(), record.position(), false);
                if sorted && key < last {
                    let problem = format!("record {} is out of the order that its header claims", counts.records);
                    return Ok((counts, Err(problem)));
                }
                last = key;
            }
        }
        Ok((counts, Ok(())))
    }
}

impl Counts {
    fn add(&mut self, record: RawRecord) {
        self.records += 1;
        match usize::try_from(record.contig()).ok().and_then(|contig| self.contigs.get_mut(contig)) {
            Some((mapped, _)) if record.flag() & flags::UNMAPPED == 0 => *mapped += 1,
            Some((_, unmapped)) => *unmapped += 1,
            None => self.without_contig += 1,
        }
    }
}

/// Compares with the index beside the file: whether there is one, or how it disagrees.
fn against_index(path: &Path, counts: &Counts) -> Result<Result<bool, String>, PipelineError> {
    let Some(index_path) = index_of(path) else { return Ok(Ok(false)) };
    let name = index_path.display();
    let summary = match IndexSummary::read(&index_path, counts.contigs.len()) {
        Ok(summary) => summary,
        Err(IndexReadError::OtherContigs { indexed, expected, .. }) => {
            return Ok(Err(format!("its index {name} is for {indexed} contigs, but it has {expected}")));
        }
        Err(IndexReadError::Bgzf(godwit_formats::bgzf::BgzfError::Io { source, .. })) => {
            return Err(PipelineError::File { action: "read", path: index_path, source });
        }
        Err(error) => return Ok(Err(format!("its index cannot be used: {error}"))),
    };
    let bytes = std::fs::metadata(path).map_err(PipelineError::file("read", path))?.len();
    if summary.last_offset > bytes {
        let last = summary.last_offset;
        return Ok(Err(format!("its index {name} points to byte {last}, but it has {bytes}: it is cut short")));
    }
    // An index that counts nothing at all was made by a tool that does not.
    if summary.contigs.iter().all(Option::is_none) && summary.without_contig.is_none() {
        return Ok(Ok(true));
    }
    let of_contigs = summary.contigs.iter().flatten().flat_map(|(mapped, unmapped)| [*mapped, *unmapped]);
    let indexed = of_contigs.chain(summary.without_contig).fold(0, u64::saturating_add);
    let same = summary.contigs.iter().map(|contig| contig.unwrap_or_default()).eq(counts.contigs.iter().copied())
        && summary.without_contig.is_none_or(|records| records == counts.without_contig);
    if !same {
        let found = counts.records;
        return Ok(Err(format!("its index {name} counts {indexed} records, but it has {found}, or on other contigs")));
    }
    Ok(Ok(true))
}

/// `NAME.bam.bai`, `NAME.bam.csi` or `NAME.bai`, whichever is there.
fn index_of(path: &Path) -> Option<PathBuf> {
    let names = [path.with_added_extension("bai"), path.with_added_extension("csi"), path.with_extension("bai")];
    names.into_iter().find(|index| index.is_file())
}

/// An error with its last cause, which says what is wrong.
fn with_cause(error: &PipelineError) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
