//! Writing the outputs: every format by all threads at once, then what goes beside them.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use godwit_cram::CramError;
use godwit_formats::columnar::ColumnarError;
use godwit_formats::index::ContigCounts;
use godwit_formats::sam::Header;
use godwit_kernels::flagstat::Flagstat;
use godwit_kernels::markdup::{DuplicateMode, DuplicateSets, Metrics, Verdicts};
use godwit_model::{Genome, RecordId};
use serde::{Deserialize, Serialize};

use super::by_partition::by_partition;
use super::collector::{Collected, Collector};
use super::follow::{BegunBam, Follower, Turn};
use super::outputs::{Opened, Outputs};
use super::partition::{Known, Part, PartitionSummary, write_partition};
use super::qc::{Qc, QcJob, QcWorker};
use super::ranks::{places, ranks};
use super::seal::Sealed;
use super::sink::{ColumnFiles, Targets};
use super::stepped::StepJob;
use crate::error::PipelineError;
use crate::observer::{Event, Observer};
use crate::partitioned_file::{PartWriter, PartitionedFile};
use crate::run_directory::RunDirectory;
use crate::runs::{FinishedRuns, SplitPartition};
use crate::staging::Staged;
use crate::step::StepError;

/// A stretch of the BAM that was compressed by itself, for checking the file in parallel.
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

/// What was written; the files still lack their names.
pub struct Reduced {
    /// The files.
    pub staged: Staged,
    /// Duplicates left out.
    pub removed: u64,
    /// Records that a step left out.
    pub dropped: u64,
    /// Records written.
    pub records: u64,
    /// Records that are duplicates, written or left out.
    pub duplicates: u64,
    /// Bytes of the records in all formats.
    pub written_bytes: u64,
    /// Stretches of the BAM behind its header; none where no BAM was asked for.
    pub segments: Vec<Segment>,
    /// Time to decide duplicates, seconds.
    pub deciding_seconds: f64,
    /// Time to write everything, seconds.
    pub writing_seconds: f64,
    /// Bytes that went to scratch space.
    pub spilled_bytes: u64,
    /// Partitions that an earlier process wrote.
    pub kept_partitions: usize,
    /// Counts by FLAG.
    pub flagstat: Flagstat,
    /// What marking found, unless it was not asked for.
    pub duplication: Option<Metrics>,
    /// Metrics, when they were asked for.
    pub qc: Option<Qc>,
}

impl Collector {
    /// Ends the input, decides duplicates and writes everything into files that still lack their names. `opened`: those for
    /// the records.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn write(
        self,
        header: &Header,
        genome: &Genome,
        outputs: &Outputs,
        opened: Opened,
        watched: Watched,
    ) -> Result<Reduced, PipelineError> {
        let Watched { follower, observer, cancelled } = watched;
        let mut decided = self.decide(genome, observer)?;
        observer.event(&Event::Stage { name: "writing" });
        let started = Instant::now();
        number_sets(&mut decided, cancelled).map_err(|error| writing_failed(error, &outputs.stem))?;
        let Decided { collected, partitions } = &decided;
        let reference = opened.reference.clone();
        let targets = targets(collected, opened);
        let step = StepJob::of(collected, &targets, header, partitions.len(), outputs)?;
        targets.write_headers(header).map_err(|error| writing_failed(error, &outputs.stem))?;
        let follower = follower.filter(|_| targets.bam.is_some());
        if let (Some(follower), Some(file)) = (follower, &targets.bam) {
            let (aside, path) = (file.staged().aside(), file.staged().path());
            let starts = partitions.iter().map(|split| split.from).collect();
            let identity = collected.run.as_ref().map_or(String::new(), |run| run.records_identity());
            follower.begin(&BegunBam { header, genome, aside, path, starts, identity })?;
        }
        let qc = QcJob::new(&collected.options.writing, genome, reference);
        let kept = &AtomicUsize::new(0);
        let summaries = match &collected.runs {
            Some(runs) => {
                let (targets, qc) = (&targets, qc.as_ref());
                let step = step.as_ref();
                PartitionJob { collected, runs, partitions, targets, genome, qc, step, watched, kept }
                    .run(&outputs.stem)?
            }
            None => Vec::new(),
        };
        let written = Written { summaries, qc, kept: kept.load(Ordering::Relaxed), started };
        written.complete(collected, targets, genome, outputs)
    }

    /// Ends the input and decides duplicates.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn decide(self, genome: &Genome, observer: &dyn Observer) -> Result<Decided, PipelineError> {
        observer.event(&Event::Stage { name: "deciding duplicates" });
        let collected = self.finish(genome)?;
        let partitions = collected.runs.as_ref().map(FinishedRuns::partitions).unwrap_or_default();
        Ok(Decided { collected, partitions })
    }
}

/// Who watches a file that is written.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'w> {
    /// Who works on the BAM meanwhile.
    pub(crate) follower: Option<&'w dyn Follower>,
    /// Who is told.
    pub(crate) observer: &'w dyn Observer,
    /// Stops it.
    pub(crate) cancelled: &'w AtomicBool,
}

/// Duplicates are decided, nothing is written.
pub(crate) struct Decided {
    pub(super) collected: Collected,
    pub(super) partitions: Vec<SplitPartition>,
}

/// All partitions are written.
pub(super) struct Written {
    /// Of each partition, in order.
    pub(super) summaries: Vec<PartitionSummary>,
    pub(super) qc: Option<QcJob>,
    /// Partitions that an earlier process wrote.
    pub(super) kept: usize,
    /// When writing began.
    pub(super) started: Instant,
}

impl Written {
    /// Checks that nothing is missing, ends the files and adds what goes beside them.
    pub(super) fn complete(
        self,
        collected: &Collected,
        targets: Targets,
        genome: &Genome,
        outputs: &Outputs,
    ) -> Result<Reduced, PipelineError> {
        let Self { summaries, qc, kept, started } = self;
        let totals = Totals::add_up(&summaries);
        let expected = collected.records - totals.removed - totals.dropped;
        if totals.flagstat.records() != expected {
            return Err(PipelineError::Lost { what: "records", taken: expected, written: totals.flagstat.records() });
        }
        let mut sealed = Sealed::default();
        let metrics = metrics(collected, &summaries);
        write_counts(collected, metrics.as_ref(), &totals, genome, outputs, &mut sealed.staged)?;
        let qc = qc.map(|qc| qc.finish(genome));
        if let Some(qc) = &qc {
            qc.write(&mut sealed.staged, outputs)?;
        }
        targets.seal(summaries, genome, outputs, &mut sealed)?;
        Ok(Reduced {
            staged: sealed.staged,
            removed: totals.removed,
            dropped: totals.dropped,
            records: totals.flagstat.records(),
            duplicates: totals.flagstat.duplicates() + totals.removed,
            written_bytes: sealed.bytes,
            segments: sealed.segments,
            deciding_seconds: collected.deciding_seconds,
            writing_seconds: started.elapsed().as_secs_f64(),
            spilled_bytes: collected.spill.bytes()
                + collected.run.as_ref().map_or(0, |run| run.blocks().bytes() + run.parts().bytes()),
            kept_partitions: kept,
            flagstat: totals.flagstat,
            duplication: metrics,
            qc,
        })
    }
}

pub(super) fn targets(collected: &Collected, opened: Opened) -> Targets<'_> {
    let files = usize::from(opened.bam.is_some()) + usize::from(opened.cram.is_some());
    let waiting = collected.options.memory.waiting_bytes / files.max(1);
    let run = collected.run.as_deref().filter(|_| opened.is_bam_alone());
    let parts = |file| match run {
        // What waits for its turn is kept, not held in memory.
        Some(run) => PartitionedFile::new(file, run.parts(), 0),
        None => PartitionedFile::new(file, &collected.spill, waiting),
    };
    Targets {
        run,
        bam: opened.bam.map(parts),
        cram: opened.cram.map(parts).zip(opened.encoder),
        columns: opened.columns,
        parquet: opened.parquet.map(ColumnFiles::Own),
        arrow: opened.arrow.map(ColumnFiles::Own),
        step: opened.step.map(ColumnFiles::Own),
    }
}

/// The partitions, written by all threads.
struct PartitionJob<'j> {
    collected: &'j Collected,
    runs: &'j FinishedRuns,
    partitions: &'j [SplitPartition],
    targets: &'j Targets<'j>,
    genome: &'j Genome,
    qc: Option<&'j QcJob>,
    step: Option<&'j StepJob>,
    watched: Watched<'j>,
    /// Partitions that an earlier process wrote.
    kept: &'j AtomicUsize,
}

impl PartitionJob<'_> {
    fn run(&self, path: &Path) -> Result<Vec<PartitionSummary>, PipelineError> {
        let done = Mutex::new(0);
        let Watched { follower, observer, cancelled } = self.watched;
        by_partition(
            self.partitions,
            self.threads(),
            || self.qc.map(QcJob::worker),
            |qc, at, split| {
                let _turn = Turn::take(follower);
                if cancelled.load(Ordering::Relaxed) {
                    return Err(PipelineError::Interrupted);
                }
                let written = self.write_one(at, split, qc.as_mut());
                let (summary, kept) = written.map_err(|error| writing_failed(error, path))?;
                self.kept.fetch_add(usize::from(kept), Ordering::Relaxed);
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                *done += 1;
                if !kept {
                    observer.event(&Event::Written { partitions: *done, of: self.partitions.len() });
                }
                Ok(summary)
            },
        )
    }

    fn threads(&self) -> usize {
        let tables = self.step.map_or(0, StepJob::thread_bytes);
        merging_threads(self.collected, self.runs, self.partitions, self.targets.sink_bytes() + tables)
    }

    /// Writes a partition, unless it was kept; says which.
    fn write_one(
        &self,
        at: usize,
        split: &SplitPartition,
        mut qc: Option<&mut QcWorker>,
    ) -> io::Result<(PartitionSummary, bool)> {
        let known = Known::new(self.collected, self.runs, self.genome, self.step);
        let part = Part { at, split };
        let kept = self.kept(at)?;
        let was_kept = kept.is_some();
        let summary = match kept {
            // Metrics are not kept: the records are looked at again, and go nowhere.
            Some(summary) if qc.is_some() => {
                write_partition(known, part, qc.as_deref_mut(), Vec::new(), self.watched.cancelled)?;
                summary
            }
            Some(summary) => summary,
            None => {
                let sinks = self.targets.sinks(at, self.genome)?;
                let (summary, parts) = write_partition(known, part, qc.as_deref_mut(), sinks, self.watched.cancelled)?;
                self.hand_on(at, &summary, parts)?;
                summary
            }
        };
        if let Some(qc) = qc {
            qc.end_partition(at);
        }
        if let (Some(follower), Some(file)) = (self.watched.follower, &self.targets.bam) {
            follower.landed(&file.landed());
        }
        Ok((summary, was_kept))
    }

    /// Lets the next part of each file have its turn, after this one is kept where it may be needed again.
    fn hand_on(&self, at: usize, summary: &PartitionSummary, mut parts: Vec<PartWriter>) -> io::Result<()> {
        if let (Some((run, file)), [part]) = (self.keeping(), &mut parts[..]) {
            run.keep_partition(at, part.seal()?, file.staged(), &serde_json::to_vec(summary)?)?;
        }
        self.tell_made(at, summary);
        parts.into_iter().try_for_each(PartWriter::finish)
    }

    fn tell_made(&self, at: usize, summary: &PartitionSummary) {
        if let (Some(follower), Some(bam)) = (self.watched.follower, &summary.parts.bam) {
            follower.made(at, &bam.index);
        }
    }

    /// Where partitions are kept: with BAM alone.
    fn keeping(&self) -> Option<(&RunDirectory, &PartitionedFile<'_>)> {
        self.targets.run.zip(self.targets.bam.as_ref())
    }

    /// A partition that an earlier process wrote, put where it belongs.
    fn kept(&self, at: usize) -> io::Result<Option<PartitionSummary>> {
        let Some((run, file)) = self.keeping() else { return Ok(None) };
        let Some((place, summary, checksum)) = run.kept_partition(at, file.staged())? else { return Ok(None) };
        let summary: PartitionSummary = serde_json::from_slice(&summary)?;
        if summary.parts.bam.as_ref().is_none_or(|bam| bam.checksum != checksum) {
            return Ok(None);
        }
        self.tell_made(at, &summary);
        file.restore(at + 1, &place)?;
        Ok(Some(summary))
    }
}

/// Threads, fewer where merges and sinks of so many would exceed the memory of the runs they replace.
fn merging_threads(
    collected: &Collected,
    runs: &FinishedRuns,
    partitions: &[SplitPartition],
    sink_bytes: usize,
) -> usize {
    let most = partitions.iter().map(|split| runs.merge_bytes(split)).max().unwrap_or(0);
    let merges = collected.options.memory.merge_bytes / (most + sink_bytes).max(1);
    collected.options.threads.min(merges).max(1)
}

/// Finds the place of every duplicate set's best record in the sorted file, where it is asked for.
fn number_sets(decided: &mut Decided, cancelled: &AtomicBool) -> io::Result<()> {
    let Decided { collected, partitions } = &*decided;
    let (Some(wanted), Some(runs)) = (decided.representatives(), &collected.runs) else { return Ok(()) };
    let threads = merging_threads(collected, runs, partitions, 0);
    let found = by_partition(partitions, threads, || (), |(), _, split| places(runs, split, &wanted, cancelled))?;
    decided.number_sets(&ranks(found));
    Ok(())
}

impl Decided {
    /// The records whose places in the sorted file name duplicate sets, where [`Decided::number_sets`] wants them.
    pub(crate) fn representatives(&self) -> Option<Verdicts> {
        let by_coordinate = self.collected.options.writing.marking.mode == DuplicateMode::Coordinate;
        let sets = self.collected.marking.as_ref().and_then(|marking| marking.sets.as_ref());
        sets.filter(|_| by_coordinate).map(DuplicateSets::representatives)
    }

    /// Names duplicate sets by the places of their representatives, which are in the order of the records.
    pub(crate) fn number_sets(&mut self, ranks: &[(RecordId, u64)]) {
        if let Some(sets) = self.collected.marking.as_mut().and_then(|marking| marking.sets.as_mut()) {
            sets.number(|record| ranks.binary_search_by_key(&record, |(id, _)| *id).map_or(0, |at| ranks[at].1));
        }
    }
}

/// The duplicate metrics, with the duplicates that were counted among the records.
fn metrics(collected: &Collected, summaries: &[PartitionSummary]) -> Option<Metrics> {
    let mut metrics = collected.marking.as_ref()?.metrics.clone();
    for (index, library) in collected.read_groups.libraries().iter().enumerate() {
        let tallies = || summaries.iter().filter_map(|summary| summary.tally.as_ref());
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
    removed: u64,
    dropped: u64,
}

impl Totals {
    fn add_up(summaries: &[PartitionSummary]) -> Self {
        let mut totals = Self::default();
        for summary in summaries {
            totals.flagstat.merge(&summary.flagstat);
            totals.contigs.merge(&summary.contigs);
            totals.removed += summary.removed;
            totals.dropped += summary.dropped;
        }
        totals
    }
}

/// An interruption is no failure of the file, nor are records that a format cannot hold, nor a step.
pub(super) fn writing_failed(error: io::Error, path: &Path) -> PipelineError {
    if error.kind() == io::ErrorKind::Interrupted {
        return PipelineError::Interrupted;
    }
    let error = match error.downcast::<ColumnarError>() {
        Ok(columns) => return PipelineError::Columns(columns),
        Err(error) => error,
    };
    let error = match error.downcast::<StepError>() {
        Ok(step) => return PipelineError::Step(step),
        Err(error) => error,
    };
    match error.downcast::<CramError>() {
        Ok(cram) => PipelineError::Cram(cram),
        // It may say itself which other file it is about.
        Err(error) => PipelineError::file("write", path)(error),
    }
}

/// Writes the counts and metrics.
fn write_counts(
    collected: &Collected,
    metrics: Option<&Metrics>,
    totals: &Totals,
    genome: &Genome,
    outputs: &Outputs,
    staged: &mut Staged,
) -> Result<(), PipelineError> {
    let mut write = |suffix: &str, text: &str| {
        let path = outputs.beside(suffix);
        staged.write(&path, text.as_bytes()).map_err(PipelineError::file("write", &path))
    };
    write(".flagstat.txt", &totals.flagstat.to_string())?;
    write(".idxstats.txt", &totals.contigs.idxstats(genome))?;
    if let Some(metrics) = metrics {
        let (origin, command) = (outputs.picard_comment("MarkDuplicates"), &collected.options.marking_command_line);
        write(".duplicates.txt", &metrics.to_text(&[format!("{origin} {command}")]))?;
    }
    Ok(())
}
