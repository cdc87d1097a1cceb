//! Writing of the outputs: first the records in all formats, on all threads, then counts and metrics.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use godwit_columnar::ColumnarError;
use godwit_cram::CramError;
use godwit_files::{AtomicFile, AtomicSet};
use godwit_formats::binning_index::ContigCounts;
use godwit_formats::sam::Header;
use godwit_kernels::flagstat::Flagstat;
use godwit_kernels::markdup::{DuplicateMode, DuplicateSets, DuplicationMetrics, RecordSet};
use godwit_kernels::threads::for_each_index;
use godwit_metrics::MetricsError;
use godwit_model::{Genome, RecordId};
use godwit_recalibrate::{ReadError, Recalibrator};
use parking_lot::Mutex;

use super::bam_tail::{BamTail, UnfinishedBam, WriteSlot};
use super::collector::{CollectedRuns, Collector};
use super::file_completion::FinishedFiles;
use super::outputs::{OutputFiles, Outputs};
use super::partition::{NumberedPartition, PartitionContext, PartitionSummary, write_partition};
use super::qc::{Qc, QcJob, QcThread};
use super::ranks::{file_ranks, rank_wanted_records};
use super::recalibration::{REPORT_SUFFIX, recalibrate_runs};
use super::sink::{ColumnFiles, PartitionedOutputs};
use super::step_partition::PythonStepJob;
use crate::error::{PipelineError, PythonStepError};
use crate::job_directory::JobDirectory;
use crate::journal::FingerprintEntry;
use crate::manifest::{self, Manifest, ManifestFile, Segment};
use crate::observer::{Event, Observer};
use crate::partitioned_file::{PartWriter, PartitionedFile};
use crate::runs::{FinishedRuns, SplitPartition};

/// Written outputs that are not published yet.
pub struct UnpublishedOutputs {
    /// The output files, which have temporary names.
    pub files: AtomicSet,
    /// Number of duplicates that were removed.
    pub removed_duplicates: u64,
    /// Number of records that the Python step dropped.
    pub dropped_by_step: u64,
    /// Number of records that were written.
    pub records: u64,
    /// Number of duplicate records, whether written or removed.
    pub duplicates: u64,
    /// Size of the record files in all formats, bytes.
    pub written_bytes: u64,
    /// Segments of the BAM after its header; empty if no BAM was requested.
    pub segments: Vec<Segment>,
    /// Wall time of duplicate marking, seconds.
    pub deciding_seconds: f64,
    /// Wall time of writing all outputs, seconds.
    pub writing_seconds: f64,
    /// Bytes written to scratch files.
    pub spilled_bytes: u64,
    /// Number of partitions that an earlier process wrote.
    pub resumed_partitions: usize,
    /// Record counts by FLAG, as in samtools flagstat.
    pub flagstat: Flagstat,
    /// Duplicate metrics; `None` if duplicates were not marked.
    pub duplicate_metrics: Option<DuplicationMetrics>,
    /// Quality metrics; `None` if they were not requested.
    pub qc: Option<Qc>,
    /// Paths of requested files of Picard's metrics that this job does not write. Older files with these names are removed
    /// when the outputs are published.
    pub unwritten_metrics: Vec<PathBuf>,
}

impl UnpublishedOutputs {
    /// Returns the manifest of these files for the job `verb`. `bam`: path of the BAM, whose entry has segments.
    ///
    /// # Errors
    /// The I/O error of the file system, with the path of the file.
    pub fn to_manifest(
        &self,
        verb: &str,
        fingerprint: &[FingerprintEntry],
        bam: &Path,
    ) -> Result<Manifest, (PathBuf, io::Error)> {
        let describe = |file: &AtomicFile| {
            let described = match file.path() == bam {
                true => manifest::segmented_entry(file, &self.segments, self.records),
                false => manifest::checksummed_entry(file),
            };
            described.map_err(|error| (file.path().to_owned(), error))
        };
        let mut files: Vec<ManifestFile> = self.files.files().iter().map(describe).collect::<Result<_, _>>()?;
        for directory in self.files.directories() {
            let entries = manifest::directory_entries(directory);
            files.extend(entries.map_err(|error| (directory.path().to_owned(), error))?);
        }
        Ok(Manifest {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: verb.into(),
            fingerprint: fingerprint.to_vec(),
            records: self.records,
            duplicates: self.duplicates,
            removed_duplicates: self.removed_duplicates,
            files,
        })
    }
}

impl Collector {
    /// Ends the input, marks duplicates and writes all outputs to temporary files. `opened`: the files for records.
    ///
    /// # Errors
    /// A [`PipelineError`] if duplicate marking fails or a file cannot be written; [`PipelineError::Interrupted`] if
    /// the job is cancelled.
    pub fn write(
        self,
        header: &Header,
        genome: &Genome,
        outputs: &Outputs,
        mut opened: OutputFiles,
        monitor: JobMonitor,
    ) -> Result<UnpublishedOutputs, PipelineError> {
        let JobMonitor { bam_tail: follower, observer, cancelled } = monitor;
        let mut decided = self.decide(genome, observer)?;
        observer.event(&Event::Stage { name: "writing" });
        let started_at = Instant::now();
        number_sets(&mut decided, cancelled).map_err(|error| writing_error(error, &outputs.stem))?;
        let recalibration = recalibrate_runs(&decided, header, genome, monitor, &outputs.stem)?;
        let MarkedRuns { collected, partitions } = &decided;
        let (reference, picard) = (opened.reference.clone(), opened.picard.take());
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
        let qc = QcJob::new(&collected.options.writing, genome, reference, picard);
        let resumed_partitions = &AtomicUsize::new(0);
        let summaries = match &collected.runs {
            Some(runs) => {
                let (targets, qc) = (&targets, qc.as_ref());
                let step_job = step.as_ref();
                let recalibrator = recalibration.as_ref().map(|recalibration| &recalibration.recalibrator);
                PartitionJob {
                    collected,
                    runs,
                    partitions,
                    outputs: targets,
                    genome,
                    qc,
                    step_job,
                    recalibrator,
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
            recalibration_report: recalibration.map(|recalibration| recalibration.report),
            started_at,
        };
        written.into_outputs(collected, targets, genome, outputs, monitor)
    }

    /// Ends the input and decides which records are duplicates.
    ///
    /// # Errors
    /// A [`PipelineError`] if a scratch file fails; [`PipelineError::Interrupted`] if the job is cancelled.
    pub fn decide(self, genome: &Genome, observer: &dyn Observer) -> Result<MarkedRuns, PipelineError> {
        observer.event(&Event::Stage { name: "deciding duplicates" });
        let collected = self.finish(genome)?;
        let partitions = collected.runs.as_ref().map(FinishedRuns::partitions).unwrap_or_default();
        Ok(MarkedRuns { collected, partitions })
    }
}

/// The observer and the cancel flag of a job that writes outputs, and a reader of the unfinished BAM.
#[derive(Clone, Copy)]
pub struct JobMonitor<'w> {
    /// Reader of the BAM while it is being written, for example a variant caller; `None` if there is none.
    pub bam_tail: Option<&'w dyn BamTail>,
    /// Receiver of progress events.
    pub observer: &'w dyn Observer,
    /// Cancel flag of the job.
    pub cancelled: &'w AtomicBool,
}

/// Sorted runs and their duplicate marks, before the outputs are written.
pub struct MarkedRuns {
    pub(super) collected: CollectedRuns,
    pub(super) partitions: Vec<SplitPartition>,
}

/// The result of writing all partitions.
pub(super) struct PartitionResults {
    /// Summary of each partition, in the order of the partitions.
    pub(super) summaries: Vec<PartitionSummary>,
    pub(super) qc: Option<QcJob>,
    /// Number of partitions that an earlier process wrote.
    pub(super) resumed_partitions: usize,
    /// Report of the recalibration; `None` if base qualities were not changed.
    pub(super) recalibration_report: Option<String>,
    /// Time at which writing of the outputs started.
    pub(super) started_at: Instant,
}

impl PartitionResults {
    /// Checks that no records are missing, finishes the record files and writes indexes, counts and metrics.
    pub(super) fn into_outputs(
        self,
        collected: &CollectedRuns,
        targets: PartitionedOutputs,
        genome: &Genome,
        outputs: &Outputs,
        monitor: JobMonitor,
    ) -> Result<UnpublishedOutputs, PipelineError> {
        let Self { summaries, qc, resumed_partitions, recalibration_report, started_at } = self;
        let totals = Totals::sum(&summaries);
        let expected = collected.records - totals.removed_duplicates - totals.dropped_by_step;
        if totals.flagstat.records() != expected {
            return Err(PipelineError::CountMismatch { items: "records", expected, actual: totals.flagstat.records() });
        }
        let mut sealed = FinishedFiles::default();
        let metrics = duplicate_metrics(collected, &summaries);
        write_counts(collected, metrics.as_ref(), &totals, genome, outputs, &mut sealed.files)?;
        if let Some(report) = recalibration_report {
            let path = outputs.path_with_suffix(REPORT_SUFFIX);
            sealed.files.write_file(&path, report.as_bytes()).map_err(PipelineError::file("write", &path))?;
        }
        let threads = collected.options.threads;
        let (mut qc, picard) = qc.map(|qc| qc.finish(genome)).unzip();
        let mut picard = picard.flatten();
        let mut picard_files = Vec::new();
        if let Some(qc) = &qc {
            qc.write(&mut sealed.files, outputs)?;
        }
        if let Some(picard) = picard.take_if(|picard| !picard.needs_bam()) {
            picard_files = picard.write(&mut sealed.files, outputs, threads, monitor)?;
        }
        targets.finish_files(summaries, genome, outputs, &mut sealed)?;
        if let Some(picard) = picard {
            picard_files = picard.write(&mut sealed.files, outputs, threads, monitor)?;
        }
        let request = collected.options.writing.picard_metrics.as_ref();
        let unwritten_metrics = request.map_or(Vec::new(), |request| request.unwritten_paths(&picard_files, outputs));
        qc.iter_mut().for_each(|qc| qc.picard_files = std::mem::take(&mut picard_files));
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
            unwritten_metrics,
        })
    }
}

pub(super) fn create_outputs(collected: &CollectedRuns, opened: OutputFiles) -> PartitionedOutputs<'_> {
    let files = usize::from(opened.bam.is_some()) + usize::from(opened.cram.is_some());
    let waiting = collected.options.memory.waiting_bytes / files.max(1);
    let job_directory = collected.job_directory.as_deref().filter(|_| opened.is_bam_alone());
    let parts = |file| match job_directory {
        // A job that can be resumed stores waiting parts in the job directory, not in memory.
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

/// The writing of all partitions, on all threads.
struct PartitionJob<'j> {
    collected: &'j CollectedRuns,
    runs: &'j FinishedRuns,
    partitions: &'j [SplitPartition],
    outputs: &'j PartitionedOutputs<'j>,
    genome: &'j Genome,
    qc: Option<&'j QcJob>,
    step_job: Option<&'j PythonStepJob>,
    recalibrator: Option<&'j Recalibrator>,
    monitor: JobMonitor<'j>,
    /// Number of partitions that an earlier process wrote.
    resumed_partitions: &'j AtomicUsize,
}

impl PartitionJob<'_> {
    fn run(&self, path: &Path) -> Result<Vec<PartitionSummary>, PipelineError> {
        let done = Mutex::new(0);
        let JobMonitor { bam_tail, observer, cancelled } = self.monitor;
        for_each_index(
            self.threads(),
            self.partitions.len(),
            || self.qc.map(QcJob::new_thread),
            |qc, at| {
                let _turn = WriteSlot::acquire(bam_tail);
                if cancelled.load(Ordering::Relaxed) {
                    return Err(PipelineError::Interrupted);
                }
                let written = self.write_or_restore(at, &self.partitions[at], qc.as_mut());
                let (summary, kept) = written.map_err(|error| writing_error(error, path))?;
                self.resumed_partitions.fetch_add(usize::from(kept), Ordering::Relaxed);
                let mut done = done.lock();
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

    /// Writes a partition, or restores it from the checkpoint of an earlier process. Returns its summary, and true if
    /// it was restored.
    fn write_or_restore(
        &self,
        index: usize,
        split: &SplitPartition,
        mut qc: Option<&mut QcThread>,
    ) -> io::Result<(PartitionSummary, bool)> {
        let Self { step_job, recalibrator, .. } = *self;
        let known = PartitionContext {
            step_job,
            recalibrator,
            ..PartitionContext::new(self.collected, self.runs, self.genome)
        };
        let part = NumberedPartition { index, split };
        let kept = self.restore_partition(index)?;
        let was_kept = kept.is_some();
        let summary = match kept {
            // Checkpoints do not contain metrics. Count the records of a restored partition again, but do not write
            // them.
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
            qc.end_partition(index)?;
        }
        if let (Some(follower), Some(file)) = (self.monitor.bam_tail, &self.outputs.bam) {
            follower.set_readable_parts(&file.written_prefix());
        }
        Ok((summary, was_kept))
    }

    /// Stores the checkpoint of a partition, if the job can be resumed, and finishes the parts in all files.
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

    /// Returns the job directory and the BAM for checkpoints of partitions; `None` unless BAM is the only output.
    fn checkpoint_target(&self) -> Option<(&JobDirectory, &PartitionedFile<'_>)> {
        self.outputs.job_directory.zip(self.outputs.bam.as_ref())
    }

    /// Restores a partition that an earlier process wrote into the BAM. Returns `None` if there is no valid checkpoint.
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

/// Returns the number of threads for merging. It is lower than requested if the merges and sinks would exceed the
/// memory that sorting has freed.
pub(super) fn merging_threads(
    collected: &CollectedRuns,
    runs: &FinishedRuns,
    partitions: &[SplitPartition],
    sink_bytes: usize,
) -> usize {
    let most = partitions.iter().map(|split| runs.merge_bytes(split)).max().unwrap_or(0);
    let merges = collected.options.memory.merge_bytes / (most + sink_bytes).max(1);
    collected.options.threads.min(merges).max(1)
}

/// Numbers the duplicate sets by the rank of their best record in the sorted output, if numbers are requested.
fn number_sets(decided: &mut MarkedRuns, cancelled: &AtomicBool) -> io::Result<()> {
    let MarkedRuns { collected, partitions } = &*decided;
    let (Some(wanted), Some(runs)) = (decided.representatives(), &collected.runs) else { return Ok(()) };
    let threads = merging_threads(collected, runs, partitions, 0);
    let rank_partition = |(): &mut (), at: usize| rank_wanted_records(runs, &partitions[at], &wanted, cancelled);
    let found = for_each_index(threads, partitions.len(), || (), rank_partition)?;
    decided.number_sets(&file_ranks(found));
    Ok(())
}

impl MarkedRuns {
    /// Returns the best record of each duplicate set, whose rank becomes the number of the set; `None` if numbers are
    /// not requested.
    pub fn representatives(&self) -> Option<RecordSet> {
        let by_coordinate = self.collected.options.writing.marking.mode == DuplicateMode::Coordinate;
        let sets = self.collected.marking.as_ref().and_then(|marking| marking.sets.as_ref());
        sets.filter(|_| by_coordinate).map(DuplicateSets::representatives)
    }

    /// Numbers the duplicate sets by the ranks of their best records. `ranks` is sorted by record.
    pub fn number_sets(&mut self, ranks: &[(RecordId, u64)]) {
        if let Some(sets) = self.collected.marking.as_mut().and_then(|marking| marking.sets.as_mut()) {
            sets.set_indices(|record| ranks.binary_search_by_key(&record, |(id, _)| *id).map_or(0, |at| ranks[at].1));
        }
    }
}

/// Returns the duplicate metrics, including the numbers of duplicates that were counted while records were written.
fn duplicate_metrics(collected: &CollectedRuns, summaries: &[PartitionSummary]) -> Option<DuplicationMetrics> {
    let mut metrics = collected.marking.as_ref()?.metrics.clone();
    for (index, library) in collected.read_groups.libraries().iter().enumerate() {
        let library_counts = || summaries.iter().filter_map(|summary| summary.duplicates_by_library.as_ref());
        if library_counts().next().is_some() {
            let [unpaired, paired] = [0, 1].map(|kind| library_counts().map(|counts| counts[index][kind]).sum());
            metrics.set_duplicates(library, unpaired, paired);
        }
    }
    Some(metrics)
}

/// Counts summed over all partitions.
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

/// Converts an error of writing. Interruptions, errors of a format and errors of a Python step have their own variants;
/// other errors become [`PipelineError::File`].
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
    let error = match error.downcast::<ReadError>() {
        Ok(read) => return PipelineError::Recalibration(read),
        Err(error) => error,
    };
    let error = match error.downcast::<MetricsError>() {
        Ok(metrics) => return metrics.into(),
        Err(error) => error,
    };
    match error.downcast::<CramError>() {
        Ok(cram) => PipelineError::Cram(cram),
        // If the error itself names a file, that path is used instead of `path`.
        Err(error) => PipelineError::file("write", path)(error),
    }
}

/// Writes the files with counts and metrics.
fn write_counts(
    collected: &CollectedRuns,
    metrics: Option<&DuplicationMetrics>,
    totals: &Totals,
    genome: &Genome,
    outputs: &Outputs,
    staged: &mut AtomicSet,
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
