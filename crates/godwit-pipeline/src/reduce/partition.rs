//! Writing of one partition: merges the runs, sets the duplicate flag, counts records and passes every record to all
//! sinks.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_formats::binning_index::ContigCounts;
use godwit_kernels::flagstat::Flagstat;
use godwit_kernels::markdup::{DuplicateMarks, DuplicateMode, RecordSet, SetMember};
use godwit_kernels::sort::LoserTree;
use godwit_model::{Genome, RawRecord, flags};
use godwit_recalibrate::{Recalibrator, RecordBuffers};
use serde::{Deserialize, Serialize};

use super::annotate::{Annotator, DuplicateStatus};
use super::collector::{CollectedRuns, WritingOptions};
use super::qc::QcThread;
use super::sink::{PartSink, SinkReports};
use super::step_partition::PythonStepJob;
use crate::marking::DuplicatePolicy;
use crate::partitioned_file::PartWriter;
use crate::read_groups::ReadGroups;
use crate::runs::{Cursor, FinishedRuns, SplitPartition};

/// Number of records between two checks of the cancel flag.
const CANCEL_CHECK_RECORDS: u32 = 1 << 16;

/// The counts of a partition and the reports of its sinks.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct PartitionSummary {
    pub(super) flagstat: Flagstat,
    pub(super) contigs: ContigCounts,
    /// Number of duplicates that were removed.
    #[serde(rename = "removed")]
    pub(super) removed_duplicates: u64,
    /// Number of records that the Python step dropped.
    #[serde(default)]
    #[serde(rename = "dropped")]
    pub(super) dropped_by_step: u64,
    /// Numbers of duplicates in each library; `None` if duplicate marking itself counts them.
    #[serde(rename = "tally")]
    pub(super) duplicates_by_library: Option<LibraryDuplicateCounts>,
    /// Reports of the sinks, for example the index of the partition.
    #[serde(rename = "parts")]
    pub(super) sink_reports: SinkReports,
}

/// Numbers of mapped primary records that are duplicates, by the index of their library: first without, then with a
/// mapped mate. Used if whole templates are marked, because then only the written records show the numbers.
pub(super) type LibraryDuplicateCounts = Vec<[u64; 2]>;

/// Data of the job that all partitions need.
#[derive(Clone, Copy)]
pub(super) struct PartitionContext<'c> {
    pub(super) runs: &'c FinishedRuns,
    pub(super) marking: Option<&'c DuplicateMarks>,
    pub(super) read_groups: &'c ReadGroups,
    pub(super) options: &'c WritingOptions,
    pub(super) genome: &'c Genome,
    /// The Python step that processes records before they are written.
    pub(super) step_job: Option<&'c PythonStepJob>,
    /// Changes the base qualities of records that are written; `None` to keep them.
    pub(super) recalibrator: Option<&'c Recalibrator>,
}

impl<'c> PartitionContext<'c> {
    /// Creates the context of a job that does not change records.
    pub(super) fn new(collected: &'c CollectedRuns, runs: &'c FinishedRuns, genome: &'c Genome) -> Self {
        let CollectedRuns { marking, read_groups, options, .. } = collected;
        let (marking, options) = (marking.as_ref(), &options.writing);
        Self { runs, marking, read_groups, options, genome, step_job: None, recalibrator: None }
    }
}

/// A partition with its 0-based number in the file.
#[derive(Clone, Copy)]
pub(super) struct NumberedPartition<'p> {
    pub(super) index: usize,
    pub(super) split: &'p SplitPartition,
}

/// The duplicate status of each record of one run.
struct RunDuplicateStatuses<'c> {
    duplicates: &'c [u64],
    optical: &'c [u64],
    members: &'c [SetMember],
}

impl<'c> RunDuplicateStatuses<'c> {
    fn new(marking: Option<&'c DuplicateMarks>, cursor: &Cursor) -> Self {
        let block = cursor.block();
        let optical = marking.and_then(|marking| marking.optical.as_ref());
        let sets = marking.and_then(|marking| marking.sets.as_ref());
        Self {
            duplicates: marking.map_or(&[], |marking| marking.duplicates.block_bits(block)),
            optical: optical.map_or(&[], |optical| optical.block_bits(block)),
            members: sets.map_or(&[], |sets| sets.block_members(block)),
        }
    }

    #[inline]
    fn status(&self, marking: Option<&'c DuplicateMarks>, order: u32) -> DuplicateStatus<'c> {
        let duplicate = RecordSet::is_set(self.duplicates, order);
        if self.optical.is_empty() && self.members.is_empty() {
            return DuplicateStatus { duplicate, ..DuplicateStatus::default() };
        }
        let sets = marking.and_then(|marking| marking.sets.as_ref());
        let set = sets.and_then(|sets| sets.set_of_record(self.members, order));
        DuplicateStatus { duplicate, optical: RecordSet::is_set(self.optical, order), set }
    }
}

/// Writes the records of a partition to all sinks and completes the sinks. Returns the summary and the part writers,
/// which the caller finishes.
pub(super) fn write_partition<'t>(
    known: PartitionContext,
    part: NumberedPartition,
    mut qc: Option<&mut QcThread>,
    sinks: Vec<PartSink<'t>>,
    cancelled: &AtomicBool,
) -> io::Result<(PartitionSummary, Vec<PartWriter<'t>>)> {
    if let Some(qc) = &mut qc {
        qc.start_partition(part.split);
    }
    let recalibration = known.recalibrator.map(|recalibrator| (recalibrator, RecordBuffers::default()));
    let mut out = RecordWriter { sinks, qc, recalibration, summary: PartitionSummary::default() };
    let marker = match known.step_job {
        Some(step) => step.write_partition(known, part, &mut out, cancelled)?,
        None => {
            let mut marker = RecordMarker::new(known);
            merge_runs(known, part.split, cancelled, |record, judgement| match marker.mark(record, judgement) {
                Some((record, flag)) => out.write(record, flag),
                None => Ok(()),
            })?;
            marker
        }
    };
    out.commit(marker)
}

/// Passes the records of a partition to `each` in sorted order, with the duplicate status of each record.
pub(super) fn merge_runs(
    known: PartitionContext,
    split: &SplitPartition,
    cancelled: &AtomicBool,
    mut each: impl FnMut(RawRecord, DuplicateStatus) -> io::Result<()>,
) -> io::Result<()> {
    let mut cursors = known.runs.cursors(split)?;
    let marking = known.marking;
    let judgements: Vec<RunDuplicateStatuses> =
        cursors.iter().map(|cursor| RunDuplicateStatuses::new(marking, cursor)).collect();
    let mut tree = LoserTree::new(cursors.iter().map(|cursor| Some(cursor.key())).collect());
    let mut records = 0u32;
    while let Some(source) = tree.winner() {
        records = records.wrapping_add(1);
        if records.is_multiple_of(CANCEL_CHECK_RECORDS) && cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let cursor: &mut Cursor = &mut cursors[source];
        let entry = cursor.entry();
        each(entry.record, judgements[source].status(marking, entry.order))?;
        let next = cursor.advance()?.then(|| cursor.key());
        tree.advance(next);
    }
    Ok(())
}

/// A marker that sets the duplicate flag and tags of records, and counts duplicates.
pub(super) struct RecordMarker<'c> {
    policy: DuplicatePolicy,
    annotator: Option<Annotator<'c>>,
    read_groups: &'c ReadGroups,
    removed_duplicates: u64,
    duplicates_by_library: Option<LibraryDuplicateCounts>,
}

impl<'c> RecordMarker<'c> {
    pub(super) fn new(known: PartitionContext<'c>) -> Self {
        let PartitionContext { options, read_groups, .. } = known;
        let counts = options.marking.mode == DuplicateMode::Query;
        Self {
            policy: options.duplicates,
            annotator: Annotator::new(options.marking, known.genome),
            read_groups,
            removed_duplicates: 0,
            duplicates_by_library: counts.then(|| vec![[0; 2]; read_groups.libraries().len()]),
        }
    }

    /// Returns the record with its new tags, and its new FLAG. Returns `None` for a duplicate that is removed.
    #[inline]
    pub(super) fn mark<'r>(
        &'r mut self,
        record: RawRecord<'r>,
        judgement: DuplicateStatus,
    ) -> Option<(RawRecord<'r>, u16)> {
        let flag = match self.policy {
            DuplicatePolicy::None => record.flag(),
            _ if judgement.duplicate => record.flag() | flags::DUPLICATE,
            _ => record.flag() & !flags::DUPLICATE,
        };
        if judgement.duplicate
            && let Some(library_counts) = &mut self.duplicates_by_library
        {
            count_duplicate(record, self.read_groups, library_counts);
        }
        let removed = match self.policy {
            DuplicatePolicy::Remove => judgement.duplicate,
            DuplicatePolicy::RemoveOptical => judgement.optical,
            DuplicatePolicy::Mark | DuplicatePolicy::None => false,
        };
        if removed {
            self.removed_duplicates += 1;
            return None;
        }
        let record = match &mut self.annotator {
            Some(annotator) => annotator.annotate(record, judgement),
            None => record,
        };
        Some((record, flag))
    }
}

/// A writer that passes records to all sinks and counts the records.
pub(super) struct RecordWriter<'t, 'w, 'j> {
    sinks: Vec<PartSink<'t>>,
    qc: Option<&'w mut QcThread<'j>>,
    recalibration: Option<(&'w Recalibrator, RecordBuffers)>,
    summary: PartitionSummary,
}

impl<'t> RecordWriter<'t, '_, '_> {
    #[inline]
    pub(super) fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        let record = match &mut self.recalibration {
            Some((recalibrator, buffers)) => {
                recalibrator.recalibrate(record, flag, buffers).map_err(io::Error::other)?
            }
            None => record,
        };
        self.sinks.iter_mut().try_for_each(|sink| sink.write(record, flag))?;
        self.summary.contigs.count_record(record.contig(), flag & flags::UNMAPPED == 0);
        self.summary.flagstat.add(record, flag);
        match &mut self.qc {
            Some(qc) => qc.add(record, flag),
            None => Ok(()),
        }
    }

    /// Adds to the number of records that the Python step dropped.
    pub(super) fn drop_records(&mut self, count: u64) {
        self.summary.dropped_by_step += count;
    }

    fn commit(mut self, marker: RecordMarker) -> io::Result<(PartitionSummary, Vec<PartWriter<'t>>)> {
        let mut parts = Vec::new();
        for sink in self.sinks {
            parts.extend(sink.commit(&mut self.summary.sink_reports)?);
        }
        self.summary.removed_duplicates = marker.removed_duplicates;
        self.summary.duplicates_by_library = marker.duplicates_by_library;
        Ok((self.summary, parts))
    }
}

/// Counts a duplicate in the same way as `DuplicationMetrics.addDuplicateReadToMetrics` of Picard 3.4.0.
fn count_duplicate(record: RawRecord, read_groups: &ReadGroups, library_counts: &mut LibraryDuplicateCounts) {
    let flag = record.flag();
    if flag & (flags::UNMAPPED | flags::NOT_PRIMARY) == 0 {
        let with_mate = flag & flags::PAIRED != 0 && flag & flags::MATE_UNMAPPED == 0;
        let library = read_groups.indexes_of(record.read_group()).library;
        library_counts[usize::from(library)][usize::from(with_mate)] += 1;
    }
}
