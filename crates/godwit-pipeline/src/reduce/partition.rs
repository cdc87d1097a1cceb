//! One partition: merge its runs, set the duplicate flag, count, and hand every record to all sinks.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_formats::index::ContigCounts;
use godwit_kernels::flagstat::Flagstat;
use godwit_kernels::markdup::{DuplicateMode, Marking, SetMember, Verdicts};
use godwit_kernels::sort::LoserTree;
use godwit_model::{Genome, RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::DuplicatePolicy;
use super::annotate::{Annotator, Judgement};
use super::collector::{Collected, WritingOptions};
use super::qc::QcWorker;
use super::sink::{PartReport, PartSink};
use super::stepped::StepJob;
use crate::partitioned_file::PartWriter;
use crate::read_groups::ReadGroups;
use crate::runs::{Cursor, FinishedRuns, SplitPartition};

/// Records written between two looks at whether the run was stopped.
const RECORDS_BETWEEN_CHECKS: u32 = 1 << 16;

/// What a partition adds up to.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct PartitionSummary {
    pub(super) flagstat: Flagstat,
    pub(super) contigs: ContigCounts,
    /// Duplicates left out.
    pub(super) removed: u64,
    /// Records that a step left out.
    #[serde(default)]
    pub(super) dropped: u64,
    /// Duplicates by library, where they are counted here.
    pub(super) tally: Option<DuplicateTally>,
    /// What the sinks say.
    pub(super) parts: PartReport,
}

/// Mapped primary records that are duplicates, by index of their library: without and with a mapped mate. Where templates
/// are marked, only the records themselves tell.
pub(super) type DuplicateTally = Vec<[u64; 2]>;

/// What is known when partitions are written.
#[derive(Clone, Copy)]
pub(super) struct Known<'c> {
    pub(super) runs: &'c FinishedRuns,
    pub(super) marking: Option<&'c Marking>,
    pub(super) read_groups: &'c ReadGroups,
    pub(super) options: &'c WritingOptions,
    pub(super) genome: &'c Genome,
    /// What looks at records before they are written.
    pub(super) step: Option<&'c StepJob>,
}

impl<'c> Known<'c> {
    pub(super) fn new(
        collected: &'c Collected,
        runs: &'c FinishedRuns,
        genome: &'c Genome,
        step: Option<&'c StepJob>,
    ) -> Self {
        let Collected { marking, read_groups, options, .. } = collected;
        Self { runs, marking: marking.as_ref(), read_groups, options: &options.writing, genome, step }
    }
}

/// A partition and its place among those of the file, from 0.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) at: usize,
    pub(super) split: &'p SplitPartition,
}

/// The judgements on the records of one run.
struct RunJudgements<'c> {
    duplicates: &'c [u64],
    optical: &'c [u64],
    members: &'c [SetMember],
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

/// Writes the partition's records to all sinks and commits them. Returns the parts whose turn is not handed on yet.
pub(super) fn write_partition<'t>(
    known: Known,
    part: Part,
    qc: Option<&mut QcWorker>,
    sinks: Vec<PartSink<'t>>,
    cancelled: &AtomicBool,
) -> io::Result<(PartitionSummary, Vec<PartWriter<'t>>)> {
    let mut out = RecordWriter { sinks, qc, summary: PartitionSummary::default() };
    let marker = match known.step {
        Some(step) => step.write(known, part, &mut out, cancelled)?,
        None => {
            let mut marker = RecordMarker::new(known);
            merge(known, part.split, cancelled, |record, judgement| match marker.mark(record, judgement) {
                Some((record, flag)) => out.write(record, flag),
                None => Ok(()),
            })?;
            marker
        }
    };
    out.commit(marker)
}

/// Hands out the records of a partition in order, with what is judged of them.
pub(super) fn merge(
    known: Known,
    split: &SplitPartition,
    cancelled: &AtomicBool,
    mut each: impl FnMut(RawRecord, Judgement) -> io::Result<()>,
) -> io::Result<()> {
    let mut cursors = known.runs.cursors(split)?;
    let marking = known.marking;
    let judgements: Vec<RunJudgements> = cursors.iter().map(|cursor| RunJudgements::new(marking, cursor)).collect();
    let mut tree = LoserTree::new(cursors.iter().map(|cursor| Some(cursor.key())).collect());
    let mut records = 0u32;
    while let Some(source) = tree.winner() {
        records = records.wrapping_add(1);
        if records.is_multiple_of(RECORDS_BETWEEN_CHECKS) && cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let cursor: &mut Cursor = &mut cursors[source];
        let entry = cursor.entry();
        each(entry.record, judgements[source].of(marking, entry.order))?;
        let next = cursor.advance()?.then(|| cursor.key());
        tree.advance(next);
    }
    Ok(())
}

/// Marks records one after the other, and counts what is counted before they are written.
pub(super) struct RecordMarker<'c> {
    policy: DuplicatePolicy,
    annotator: Option<Annotator<'c>>,
    read_groups: &'c ReadGroups,
    removed: u64,
    tally: Option<DuplicateTally>,
}

impl<'c> RecordMarker<'c> {
    pub(super) fn new(known: Known<'c>) -> Self {
        let Known { options, read_groups, .. } = known;
        let counts = options.marking.mode == DuplicateMode::Query;
        Self {
            policy: options.duplicates,
            annotator: Annotator::new(options.marking, known.genome),
            read_groups,
            removed: 0,
            tally: counts.then(|| vec![[0; 2]; read_groups.libraries().len()]),
        }
    }

    /// The record with its tags, and its FLAG; `None` where it is left out as a duplicate.
    #[inline]
    pub(super) fn mark<'r>(&'r mut self, record: RawRecord<'r>, judgement: Judgement) -> Option<(RawRecord<'r>, u16)> {
        let flag = match self.policy {
            DuplicatePolicy::None => record.flag(),
            _ if judgement.duplicate => record.flag() | flags::DUPLICATE,
            _ => record.flag() & !flags::DUPLICATE,
        };
        if judgement.duplicate
            && let Some(tally) = &mut self.tally
        {
            count(record, self.read_groups, tally);
        }
        let removed = match self.policy {
            DuplicatePolicy::Remove => judgement.duplicate,
            DuplicatePolicy::RemoveOptical => judgement.optical,
            DuplicatePolicy::Mark | DuplicatePolicy::None => false,
        };
        if removed {
            self.removed += 1;
            return None;
        }
        let record = match &mut self.annotator {
            Some(annotator) => annotator.annotate(record, judgement),
            None => record,
        };
        Some((record, flag))
    }
}

/// Hands records to all sinks, and counts them.
pub(super) struct RecordWriter<'t, 'w, 'j> {
    sinks: Vec<PartSink<'t>>,
    qc: Option<&'w mut QcWorker<'j>>,
    summary: PartitionSummary,
}

impl<'t> RecordWriter<'t, '_, '_> {
    #[inline]
    pub(super) fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        self.sinks.iter_mut().try_for_each(|sink| sink.write(record, flag))?;
        self.summary.contigs.add(record.contig(), flag & flags::UNMAPPED == 0);
        self.summary.flagstat.add(record, flag);
        match &mut self.qc {
            Some(qc) => qc.add(record, flag),
            None => Ok(()),
        }
    }

    /// Takes note of records that a step left out.
    pub(super) fn drop_records(&mut self, count: u64) {
        self.summary.dropped += count;
    }

    fn commit(mut self, marker: RecordMarker) -> io::Result<(PartitionSummary, Vec<PartWriter<'t>>)> {
        let mut parts = Vec::new();
        for sink in self.sinks {
            parts.extend(sink.commit(&mut self.summary.parts)?);
        }
        self.summary.removed = marker.removed;
        self.summary.tally = marker.tally;
        Ok((self.summary, parts))
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
