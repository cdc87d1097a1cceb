//! One partition: merge its runs, set the duplicate flag, compress, index, count.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_formats::bgzf;
use godwit_formats::index::IndexBuilder;
use godwit_kernels::flagstat::Flagstat;
use godwit_kernels::markdup::{DuplicateMode, Marking, Verdicts};
use godwit_kernels::sort::LoserTree;
use godwit_model::{Genome, RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::DuplicatePolicy;
use super::annotate::{Annotator, Judgement};
use super::collector::Collected;
use super::qc::QcWorker;
use crate::read_groups::ReadGroups;
use crate::runs::{Cursor, FinishedRuns, SplitPartition};

/// Compression level of the output: fast, as intermediate files of this size want it.
pub(super) const COMPRESSION_LEVEL: u8 = 1;
/// Compression level of what nobody reads.
pub(super) const UNCOMPRESSED: u8 = 0;
/// Records written between two looks at whether the run was stopped.
const RECORDS_BETWEEN_CHECKS: u32 = 1 << 16;
/// Bytes of a record before its FLAG.
const FLAG_OFFSET: usize = 14;

/// What a partition adds up to.
#[derive(Serialize, Deserialize)]
pub(super) struct PartitionSummary {
    /// Offsets are relative to the partition's start.
    pub(super) index: IndexBuilder,
    pub(super) flagstat: Flagstat,
    /// Duplicates left out.
    pub(super) removed: u64,
    /// Duplicates by library, where they are counted here.
    pub(super) tally: Option<DuplicateTally>,
    /// BLAKE3 of the compressed bytes, hexadecimal.
    pub(super) checksum: String,
}

/// Mapped primary records that are duplicates, by index of their library: without and with a mapped mate. Where templates
/// are marked, only the records themselves tell.
pub(super) type DuplicateTally = Vec<[u64; 2]>;

/// Writes and hashes.
struct Hashing<W> {
    sink: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// What is known when partitions are written.
#[derive(Clone, Copy)]
pub(super) struct Known<'c> {
    pub(super) runs: &'c FinishedRuns,
    pub(super) collected: &'c Collected,
    pub(super) genome: &'c Genome,
}

/// The judgements on the records of one run.
struct RunJudgements<'c> {
    duplicates: &'c [u64],
    optical: &'c [u64],
    members: &'c [(u32, u32)],
}

impl<'c> RunJudgements<'c> {
    fn new(marking: Option<&'c Marking>, cursor: &Cursor) -> Self {
        let block = cursor.block();
        let optical = marking.and_then(|marking| marking.optical.as_ref());
        let sets = marking.and_then(|marking| marking.sets.as_ref());
        Self {
            duplicates: marking.map_or(&[], |marking| marking.duplicates.of_block(block)),
            optical: optical.map_or(&[], |optical| optical.of_block(block)),
            members: sets.map_or(&[], |sets| sets.of_block(block)),
        }
    }

    #[inline]
    fn of(&self, marking: Option<&'c Marking>, order: u32) -> Judgement<'c> {
        let duplicate = Verdicts::is_set(self.duplicates, order);
        if self.optical.is_empty() && self.members.is_empty() {
            return Judgement { duplicate, ..Judgement::default() };
        }
        let sets = marking.and_then(|marking| marking.sets.as_ref());
        let set = sets.and_then(|sets| sets.of(self.members, order));
        Judgement { duplicate, optical: Verdicts::is_set(self.optical, order), set }
    }
}

/// Writes the partition's records to `sink`, compressed at `level`. The sink comes back for the caller to finish.
pub(super) fn write_partition<W: Write>(
    known: Known,
    split: &SplitPartition,
    qc: Option<&mut QcWorker>,
    sink: W,
    level: u8,
    cancelled: &AtomicBool,
) -> io::Result<(PartitionSummary, W)> {
    let mut cursors = known.runs.cursors(split)?;
    let marking = known.collected.marking.as_ref();
    let judgements: Vec<RunJudgements> = cursors.iter().map(|cursor| RunJudgements::new(marking, cursor)).collect();
    let mut tree = LoserTree::new(cursors.iter().map(|cursor| Some(cursor.key())).collect());
    let sink = Hashing { sink, hasher: blake3::Hasher::new() };
    let mut out = RecordWriter::new(known, qc, bgzf::Writer::new(sink, level));
    let mut records = 0u32;
    while let Some(source) = tree.winner() {
        records = records.wrapping_add(1);
        if records.is_multiple_of(RECORDS_BETWEEN_CHECKS) && cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let cursor: &mut Cursor = &mut cursors[source];
        let entry = cursor.entry();
        out.write(entry.record, judgements[source].of(marking, entry.order))?;
        let next = cursor.advance()?.then(|| cursor.key());
        tree.advance(next);
    }
    let (sink, _) = out.bgzf.finish_blocks()?;
    let checksum = sink.hasher.finalize().to_hex().to_string();
    let RecordWriter { index, flagstat, removed, tally, .. } = out;
    let tally = tally.map(|(_, tally)| tally);
    Ok((PartitionSummary { index, flagstat, removed, tally, checksum }, sink.sink))
}

struct RecordWriter<'c, 'w, 'j, W: Write> {
    bgzf: bgzf::Writer<Hashing<W>>,
    index: IndexBuilder,
    qc: Option<&'w mut QcWorker<'j>>,
    flagstat: Flagstat,
    removed: u64,
    policy: DuplicatePolicy,
    annotator: Option<Annotator<'c>>,
    tally: Option<(&'c ReadGroups, DuplicateTally)>,
}

impl<'c, 'w, 'j, W: Write> RecordWriter<'c, 'w, 'j, W> {
    fn new(known: Known<'c>, qc: Option<&'w mut QcWorker<'j>>, bgzf: bgzf::Writer<Hashing<W>>) -> Self {
        let Collected { options, read_groups, .. } = known.collected;
        let counts = options.marking.mode == DuplicateMode::Query;
        Self {
            bgzf,
            index: IndexBuilder::new(known.genome),
            qc,
            flagstat: Flagstat::default(),
            removed: 0,
            policy: options.duplicates,
            annotator: Annotator::new(options.marking, known.genome),
            tally: counts.then(|| (read_groups, vec![[0; 2]; read_groups.libraries().len()])),
        }
    }

    fn write(&mut self, record: RawRecord, judgement: Judgement) -> io::Result<()> {
        let flag = match self.policy {
            DuplicatePolicy::None => record.flag(),
            _ if judgement.duplicate => record.flag() | flags::DUPLICATE,
            _ => record.flag() & !flags::DUPLICATE,
        };
        if judgement.duplicate
            && let Some((read_groups, tally)) = &mut self.tally
        {
            count(record, read_groups, tally);
        }
        let removed = match self.policy {
            DuplicatePolicy::Remove => judgement.duplicate,
            DuplicatePolicy::RemoveOptical => judgement.optical,
            DuplicatePolicy::Mark | DuplicatePolicy::None => false,
        };
        if removed {
            self.removed += 1;
            return Ok(());
        }
        let record = match &mut self.annotator {
            Some(annotator) => annotator.annotate(record, judgement),
            None => record,
        };
        let bytes = record.bytes();
        let length = (bytes.len() as u32).to_le_bytes();
        let place = self.bgzf.write_record(&[
            &length,
            &bytes[..FLAG_OFFSET],
            &flag.to_le_bytes(),
            &bytes[FLAG_OFFSET + 2..],
        ])?;
        let mapped = flag & flags::UNMAPPED == 0;
        // Placed unmapped records count as one base, whatever their CIGAR says (htslib 1.16 `bam_endpos`).
        let span = if mapped { record.reference_bases() as i32 } else { 1 };
        let end = record.position().saturating_add(span);
        self.index.push(record.contig(), record.position(), end, mapped, place).map_err(io::Error::other)?;
        self.flagstat.add(record, flag);
        match &mut self.qc {
            Some(qc) => qc.add(record, flag),
            None => Ok(()),
        }
    }
}

/// Counts a duplicate as `DuplicationMetrics.addDuplicateReadToMetrics` of Picard 3.4.0 does.
fn count(record: RawRecord, read_groups: &ReadGroups, tally: &mut DuplicateTally) {
    let flag = record.flag();
    if flag & (flags::UNMAPPED | flags::NOT_PRIMARY) == 0 {
        let with_mate = flag & flags::PAIRED != 0 && flag & flags::MATE_UNMAPPED == 0;
        let library = read_groups.membership(record.read_group()).library;
        tally[usize::from(library)][usize::from(with_mate)] += 1;
    }
}
