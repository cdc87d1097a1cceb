//! Writes the outputs: every format on all threads at once, then the files beside them.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use godwit_cram::CramError;
use godwit_formats::binning_index::ContigCounts;
use godwit_formats::columnar::ColumnarError;
use godwit_formats::sam::Header;
use godwit_kernels::flagstat::Flagstat;
use godwit_kernels::markdup::{DuplicateMode, DuplicateSets, DuplicationMetrics, RecordSet};
use godwit_model::{Genome, RecordId};
use serde::{Deserialize, Serialize};

use super::bam_tail::{BamTail, UnfinishedBam, WriteSlot};
use super::collector::{CollectedRuns, Collector};
use super::file_completion::FinishedFiles;
use super::outputs::{OutputFiles, Outputs};
use super::parallel_partitions::for_each_partition;
use super::partition::{NumberedPartition, PartitionContext, PartitionSummary, write_partition};
use super::qc::{Qc, QcJob, QcThread};
use super::ranks::{file_ranks, rank_wanted_records};
use super::sink::{ColumnFiles, PartitionedOutputs};
use super::step_partition::PythonStepJob;
use crate::atomic_files::AtomicFileSet;
use crate::error::PipelineError;
use crate::job_directory::JobDirectory;
use crate::observer::{Event, Observer};
use crate::partitioned_file::{PartWriter, PartitionedFile};
use crate::python_step::PythonStepError;
use crate::runs::{FinishedRuns, SplitPartition};

/// A part of the BAM that was compressed independently, for checking the file in parallel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// BLAKE3 of the bytes, hexadecimal.
    pub blake3: String,
}

/// Written outputs; the files do not have their names yet.
pub struct UnpublishedOutputs {
    /// The files.
    pub files: AtomicFileSet,
    /// Duplicates that were removed.
    pub removed_duplicates: u64,
    /// Records that a Python step dropped.
    pub dropped_by_step: u64,
    /// Records written.
    pub records: u64,
    /// Records that are duplicates, written or removed.
    pub duplicates: u64,
    /// Bytes of the records in all formats.
    pub written_bytes: u64,
    /// Segments of the BAM after its header; empty where no BAM was requested.
    pub segments: Vec<Segment>,
    /// Time to decide duplicates, seconds.
    pub deciding_seconds: f64,
    /// Time to write everything, seconds.
    pub writing_seconds: f64,
    /// Bytes written to scratch space.
    pub spilled_bytes: u64,
    /// Partitions that an earlier process wrote.
    pub resumed_partitions: usize,
    /// Counts by FLAG.
    pub flagstat: Flagstat,
    /// Duplicate metrics, where duplicates are marked.
    pub duplicate_metrics: Option<DuplicationMetrics>,
    /// Metrics, where they were requested.
    pub qc: Option<Qc>,
}

impl Collector {
    /// Ends the input, decides duplicates and writes everything into files that do not have their names yet. `opened`: the
    /// files of the records.
    ///
    /// # Errors
    /// [`PipelineError`] if duplicates cannot be decided, or a file cannot be written; [`PipelineError::Interrupted`].
    pub(crate) fn write(
        self,
        header: &Header,
        genome: &Genome,
        outputs: &Outputs,
        opened: OutputFiles,
        monitor: JobMonitor,
    ) -> Result<UnpublishedOutputs, PipelineError> {
        let JobMonitor { bam_tail: follower, observer, cancelled } = monitor;
        let mut decided = self.decide(genome, observer)?;
        observer.event(&Event::Stage { name: "writing" });
        let started_at = Instant::now();
        number_sets(&mut decided, cancelled).map_err(|error| writing_error(error, &outputs.stem))?;
        let MarkedRuns { collected, partitions } = &decided;
        let reference = opened.reference.clone();
        let targets = create_outputs(collected, opened);
        let step = PythonStepJob::for_outputs(collected, &targets, header, partitions.len(), outputs)?;
        targets.write_headers(header).map_err(|error| writing_error(error, &outputs.stem))?;
        let bam_tail = follower.filter(|_| targets.bam.is_some());
        if let (Some(follower), Some(file)) = (bam_tail, &targets.bam) {
            let (temporary_path, final_path) = (file.atomic_file().temporary_path(), file.atomic_file().path());
            let partition_starts = partitions.iter().map(|split| split.from).collect();
            let records_fingerprint =
                collected.job_directory.as_ref().map_or(String::new(), |run| run.records_fingerprint());
            follower.start(&UnfinishedBam {
                header,
                genome,
                temporary_path,
                final_path,
                partition_starts,
                records_fingerprint,
            })?;
        }
        let qc = QcJob::new(&collected.options.writing, genome, reference);
        let resumed_partitions = &AtomicUsize::new(0);
        let summaries = match &collected.runs {
            Some(runs) => {
                let (targets, qc) = (&targets, qc.as_ref());
                let step_job = step.as_ref();
                PartitionJob {
                    collected,
                    runs,
                    partitions,
                    outputs: targets,
                    genome,
                    qc,
                    step_job,
                    monitor,
                    resumed_partitions,
                }
                .run(&outputs.stem)?
            }
            None => Vec::new(),
        };
        let written = PartitionResults {
            summaries,
            qc,
            resumed_partitions: resumed_partitions.load(Ordering::Relaxed),
            started_at,
        };
        written.into_outputs(collected, targets, genome, outputs)
    }

    /// Ends the input and decides duplicates.
    ///
    /// # Errors
    /// [`PipelineError`] for errors of scratch space; [`PipelineError::Interrupted`].
    pub(crate) fn decide(self, genome: &Genome, observer: &dyn Observer) -> Result<MarkedRuns, PipelineError> {
        observer.event(&Event::Stage { name: "deciding duplicates" });
        let collected = self.finish(genome)?;
        let partitions = collected.runs.as_ref().map(FinishedRuns::partitions).unwrap_or_default();
        Ok(MarkedRuns { collected, partitions })
    }
}

/// Observer, reader and cancel flag of a job that writes.
#[derive(Clone, Copy)]
pub(crate) struct JobMonitor<'w> {
    /// Reader of the BAM while it is written.
    pub(crate) bam_tail: Option<&'w dyn BamTail>,
    /// Receiver of events.
    pub(crate) observer: &'w dyn Observer,
    /// Cancel flag of the job.
    pub(crate) cancelled: &'w AtomicBool,
}

/// Runs whose duplicates are decided, before writing.
pub(crate) struct MarkedRuns {
    pub(super) collected: CollectedRuns,
    pub(super) partitions: Vec<SplitPartition>,
}

/// The result of writing all partitions.
pub(super) struct PartitionResults {
    /// Summary of each partition, in order.
    pub(super) summaries: Vec<PartitionSummary>,
    pub(super) qc: Option<QcJob>,
    /// Partitions that an earlier process wrote.
    pub(super) resumed_partitions: usize,
    /// Time at which writing started.
    pub(super) started_at: Instant,
}

impl PartitionResults {
    /// Checks that nothing is missing, ends the files and adds the files beside them.
    pub(super) fn into_outputs(
        self,
        collected: &CollectedRuns,
        targets: PartitionedOutputs,
        genome: &Genome,
        outputs: &Outputs,
    ) -> Result<UnpublishedOutputs, PipelineError> {
        let Self { summaries, qc, resumed_partitions, started_at } = self;
        let totals = Totals::sum(&summaries);
        let expected = collected.records - totals.removed_duplicates - totals.dropped_by_step;
        if totals.flagstat.records() != expected {
            return Err(PipelineError::CountMismatch { items: "records", expected, actual: totals.flagstat.records() });
        }
        let mut sealed = FinishedFiles::default();
        let metrics = duplicate_metrics(collected, &summaries);
        write_counts(collected, metrics.as_ref(), &totals, genome, outputs, &mut sealed.files)?;
        let qc = qc.map(|qc| qc.finish(genome));
        if let Some(qc) = &qc {
            qc.write(&mut sealed.files, outputs)?;
        }
        targets.finish_files(summaries, genome, outputs, &mut sealed)?;
        Ok(UnpublishedOutputs {
            files: sealed.files,
            removed_duplicates: totals.removed_duplicates,
            dropped_by_step: totals.dropped_by_step,
            records: totals.flagstat.records(),
            duplicates: totals.flagstat.duplicates() + totals.removed_duplicates,
            written_bytes: sealed.bytes,
            segments: sealed.segments,
            deciding_seconds: collected.deciding_seconds,
            writing_seconds: started_at.elapsed().as_secs_f64(),
            spilled_bytes: collected.spill.bytes()
                + collected
                    .job_directory
                    .as_ref()
                    .map_or(0, |run| run.blocks_file().bytes() + run.parts_file().bytes()),
            resumed_partitions,
            flagstat: totals.flagstat,
            duplicate_metrics: metrics,
            qc,
        })
    }
}

pub(super) fn create_outputs(collected: &CollectedRuns, opened: OutputFiles) -> PartitionedOutputs<'_> {
    let files = usize::from(opened.bam.is_some()) + usize::from(opened.cram.is_some());
    let waiting = collected.options.memory.waiting_bytes / files.max(1);
    let job_directory = collected.job_directory.as_deref().filter(|_| opened.is_bam_alone());
    let parts = |file| match job_directory {
        // Parts that wait for their turn go to the job directory, not to memory.
        Some(run) => PartitionedFile::new(file, run.parts_file(), 0),
        None => PartitionedFile::new(file, &collected.spill, waiting),
    };
    PartitionedOutputs {
        job_directory,
        bam: opened.bam.map(parts),
        cram: opened.cram.map(parts).zip(opened.cram_encoder),
        columns: opened.column_layout,
        parquet: opened.parquet.map(ColumnFiles::Local),
        arrow: opened.arrow.map(ColumnFiles::Local),
        step_files: opened.step_directory.map(ColumnFiles::Local),
    }
}

/// The job that writes the partitions, on all threads.
struct PartitionJob<'j> {
    collected: &'j CollectedRuns,
    runs: &'j FinishedRuns,
    partitions: &'j [SplitPartition],
    outputs: &'j PartitionedOutputs<'j>,
    genome: &'j Genome,
    qc: Option<&'j QcJob>,
    step_job: Option<&'j PythonStepJob>,
    monitor: JobMonitor<'j>,
    /// Partitions that an earlier process wrote.
    resumed_partitions: &'j AtomicUsize,
}

impl PartitionJob<'_> {
    fn run(&self, path: &Path) -> Result<Vec<PartitionSummary>, PipelineError> {
        let done = Mutex::new(0);
        let JobMonitor { bam_tail, observer, cancelled } = self.monitor;
        for_each_partition(
            self.partitions,
            self.threads(),
            || self.qc.map(QcJob::new_thread),
            |qc, at, split| {
                let _turn = WriteSlot::acquire(bam_tail);
                if cancelled.load(Ordering::Relaxed) {
                    return Err(PipelineError::Interrupted);
                }
                let written = self.write_or_restore(at, split, qc.as_mut());
                let (summary, kept) = written.map_err(|error| writing_error(error, path))?;
                self.resumed_partitions.fetch_add(usize::from(kept), Ordering::Relaxed);
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                *done += 1;
                if !kept {
                    observer.event(&Event::Written { partitions: *done, total: self.partitions.len() });
                }
                Ok(summary)
            },
        )
    }

    fn threads(&self) -> usize {
        let tables = self.step_job.map_or(0, PythonStepJob::thread_bytes);
        merging_threads(self.collected, self.runs, self.partitions, self.outputs.sink_bytes() + tables)
    }

    /// Writes a partition, or restores it from a checkpoint.
    fn write_or_restore(
        &self,
        index: usize,
        split: &SplitPartition,
        mut qc: Option<&mut QcThread>,
    ) -> io::Result<(PartitionSummary, bool)> {
        let known = PartitionContext::new(self.collected, self.runs, self.genome, self.step_job);
        let part = NumberedPartition { index, split };
        let kept = self.restore_partition(index)?;
        let was_kept = kept.is_some();
        let summary = match kept {
            // Metrics have no checkpoint: the records are counted again, and not written.
            Some(summary) if qc.is_some() => {
                write_partition(known, part, qc.as_deref_mut(), Vec::new(), self.monitor.cancelled)?;
                summary
            }
            Some(summary) => summary,
            None => {
                let sinks = self.outputs.create_sinks(index, self.genome)?;
                let (summary, parts) = write_partition(known, part, qc.as_deref_mut(), sinks, self.monitor.cancelled)?;
                self.finish_parts(index, &summary, parts)?;
                summary
            }
        };
        if let Some(qc) = qc {
            qc.end_partition(index);
        }
        if let (Some(follower), Some(file)) = (self.monitor.bam_tail, &self.outputs.bam) {
            follower.set_readable_parts(&file.written_prefix());
        }
        Ok((summary, was_kept))
    }

    /// Stores a checkpoint of this part where one is used, and then lets the next part of each file follow.
    fn finish_parts(&self, at: usize, summary: &PartitionSummary, mut parts: Vec<PartWriter>) -> io::Result<()> {
        if let (Some((run, file)), [part]) = (self.checkpoint_target(), &mut parts[..]) {
            run.save_partition(at, part.flush_for_checkpoint()?, file.atomic_file(), &serde_json::to_vec(summary)?)?;
        }
        self.add_index_to_tail(at, summary);
        parts.into_iter().try_for_each(PartWriter::finish)
    }

    fn add_index_to_tail(&self, at: usize, summary: &PartitionSummary) {
        if let (Some(follower), Some(bam)) = (self.monitor.bam_tail, &summary.sink_reports.bam) {
            follower.add_partition_index(at, &bam.index);
        }
    }

    /// Returns where checkpoints of partitions are stored: only with BAM alone.
    fn checkpoint_target(&self) -> Option<(&JobDirectory, &PartitionedFile<'_>)> {
        self.outputs.job_directory.zip(self.outputs.bam.as_ref())
    }

    /// Restores into the file a partition that an earlier process wrote.
    fn restore_partition(&self, at: usize) -> io::Result<Option<PartitionSummary>> {
        let Some((run, file)) = self.checkpoint_target() else { return Ok(None) };
        let Some((place, summary, checksum)) = run.restore_partition(at, file.atomic_file())? else { return Ok(None) };
        let summary: PartitionSummary = serde_json::from_slice(&summary)?;
        if summary.sink_reports.bam.as_ref().is_none_or(|bam| bam.checksum != checksum) {
            return Ok(None);
        }
        self.add_index_to_tail(at, &summary);
        file.restore_part(at + 1, &place)?;
        Ok(Some(summary))
    }
}

/// Returns the number of threads: fewer where merges and sinks would exceed the memory of the runs that they replace.
fn merging_threads(
    collected: &CollectedRuns,
    runs: &FinishedRuns,
    partitions: &[SplitPartition],
    sink_bytes: usize,
) -> usize {
    let most = partitions.iter().map(|split| runs.merge_bytes(split)).max().unwrap_or(0);
    let merges = collected.options.memory.merge_bytes / (most + sink_bytes).max(1);
    collected.options.threads.min(merges).max(1)
}

/// Numbers duplicate sets by the rank of their best record in the sorted file, where it is requested.
fn number_sets(decided: &mut MarkedRuns, cancelled: &AtomicBool) -> io::Result<()> {
    let MarkedRuns { collected, partitions } = &*decided;
    let (Some(wanted), Some(runs)) = (decided.representatives(), &collected.runs) else { return Ok(()) };
    let threads = merging_threads(collected, runs, partitions, 0);
    let found = for_each_partition(
        partitions,
        threads,
        || (),
        |(), _, split| rank_wanted_records(runs, split, &wanted, cancelled),
    )?;
    decided.number_sets(&file_ranks(found));
    Ok(())
}

impl MarkedRuns {
    /// Returns the records whose ranks in the sorted file name duplicate sets, where they are requested.
    pub(crate) fn representatives(&self) -> Option<RecordSet> {
        let by_coordinate = self.collected.options.writing.marking.mode == DuplicateMode::Coordinate;
        let sets = self.collected.marking.as_ref().and_then(|marking| marking.sets.as_ref());
        sets.filter(|_| by_coordinate).map(DuplicateSets::representatives)
    }

    /// Names duplicate sets by the ranks of their representatives, which are in the order of the records.
    pub(crate) fn number_sets(&mut self, ranks: &[(RecordId, u64)]) {
        if let Some(sets) = self.collected.marking.as_mut().and_then(|marking| marking.sets.as_mut()) {
            sets.set_indices(|record| ranks.binary_search_by_key(&record, |(id, _)| *id).map_or(0, |at| ranks[at].1));
        }
    }
}

/// Returns the duplicate metrics, with the duplicates that were counted among the records.
fn duplicate_metrics(collected: &CollectedRuns, summaries: &[PartitionSummary]) -> Option<DuplicationMetrics> {
    let mut metrics = collected.marking.as_ref()?.metrics.clone();
    for (index, library) in collected.read_groups.libraries().iter().enumerate() {
        let tallies = || summaries.iter().filter_map(|summary| summary.duplicates_by_library.as_ref());
        if tallies().next().is_some() {
            let [unpaired, paired] = [0, 1].map(|kind| tallies().map(|tally| tally[index][kind]).sum());
            metrics.set_duplicates(library, unpaired, paired);
        }
    }
    Some(metrics)
}

/// Counts over all partitions.
#[derive(Default)]
struct Totals {
    flagstat: Flagstat,
    contigs: ContigCounts,
    removed_duplicates: u64,
    dropped_by_step: u64,
}

impl Totals {
    fn sum(summaries: &[PartitionSummary]) -> Self {
        let mut totals = Self::default();
        for summary in summaries {
            totals.flagstat.merge(&summary.flagstat);
            totals.contigs.merge(&summary.contigs);
            totals.removed_duplicates += summary.removed_duplicates;
            totals.dropped_by_step += summary.dropped_by_step;
        }
        totals
    }
}

/// Returns the error of a write. Interruptions, records that a format cannot hold and Python steps have errors of their own.
pub(super) fn writing_error(error: io::Error, path: &Path) -> PipelineError {
    if error.kind() == io::ErrorKind::Interrupted {
        return PipelineError::Interrupted;
    }
    let error = match error.downcast::<ColumnarError>() {
        Ok(columns) => return PipelineError::Columns(columns),
        Err(error) => error,
    };
    let error = match error.downcast::<PythonStepError>() {
        Ok(step) => return PipelineError::PythonStep(step),
        Err(error) => error,
    };
    match error.downcast::<CramError>() {
        Ok(cram) => PipelineError::Cram(cram),
        // The error may name another file itself.
        Err(error) => PipelineError::file("write", path)(error),
    }
}

/// Writes the counts and metrics.
fn write_counts(
    collected: &CollectedRuns,
    metrics: Option<&DuplicationMetrics>,
    totals: &Totals,
    genome: &Genome,
    outputs: &Outputs,
    staged: &mut AtomicFileSet,
) -> Result<(), PipelineError> {
    let mut write = |suffix: &str, text: &str| {
        let path = outputs.path_with_suffix(suffix);
        staged.write_file(&path, text.as_bytes()).map_err(PipelineError::file("write", &path))
    };
    write(".flagstat.txt", &totals.flagstat.to_string())?;
    write(".idxstats.txt", &totals.contigs.to_idxstats(genome))?;
    if let Some(metrics) = metrics {
        let (origin, command) = (outputs.picard_comment("MarkDuplicates"), &collected.options.marking_command_line);
        write(".duplicates.txt", &metrics.to_text(&[format!("{origin} {command}")]))?;
    }
    Ok(())
}
