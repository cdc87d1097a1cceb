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
use godwit_kernels::markdup::{DuplicateMode, Metrics};
use godwit_model::Genome;
use serde::Serialize;

use super::collector::{Collected, Collector};
use super::outputs::{Opened, Outputs};
use super::partition::{Known, PartitionSummary, write_partition};
use super::ranks::rank;
use super::seal::Sealed;
use super::sink::Targets;
use crate::error::PipelineError;
use crate::observer::{Event, Observer};
use crate::partitioned_file::PartitionedFile;
use crate::runs::{FinishedRuns, SplitPartition};
use crate::staging::Staged;

/// A stretch of the BAM that was compressed by itself, for checking the file in parallel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
}

impl Collector {
    /// Ends the input, decides duplicates and writes everything into files that still lack their names. `opened`: those for
    /// the records.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub fn write(
        self,
        header: &Header,
        genome: &Genome,
        outputs: &Outputs,
        opened: Opened,
        observer: &dyn Observer,
        cancelled: &AtomicBool,
    ) -> Result<Reduced, PipelineError> {
        observer.event(&Event::Stage { name: "deciding duplicates" });
        let mut collected = self.finish(genome)?;
        observer.event(&Event::Stage { name: "writing" });
        let started = Instant::now();
        let partitions = collected.runs.as_ref().map(FinishedRuns::partitions).unwrap_or_default();
        number_sets(&mut collected, &partitions, cancelled).map_err(|error| writing_failed(error, &outputs.stem))?;
        let collected = &collected;
        let targets = targets(collected, opened);
        targets.write_headers(header).map_err(|error| writing_failed(error, &outputs.stem))?;
        let summaries = match &collected.runs {
            Some(runs) => {
                let job = PartitionJob {
                    collected,
                    runs,
                    partitions: &partitions,
                    targets: &targets,
                    genome,
                    observer,
                    cancelled,
                };
                job.run(&outputs.stem)?
            }
            None => Vec::new(),
        };
        let totals = Totals::add_up(&summaries);
        let expected = collected.records - totals.removed;
        if totals.flagstat.records() != expected {
            return Err(PipelineError::Lost { what: "records", taken: expected, written: totals.flagstat.records() });
        }
        let mut sealed = Sealed::default();
        let metrics = metrics(collected, &summaries);
        write_counts(collected, metrics.as_ref(), &totals, genome, outputs, &mut sealed.staged)?;
        targets.seal(summaries, genome, outputs, &mut sealed)?;
        Ok(Reduced {
            staged: sealed.staged,
            removed: totals.removed,
            records: totals.flagstat.records(),
            duplicates: totals.flagstat.duplicates() + totals.removed,
            written_bytes: sealed.bytes,
            segments: sealed.segments,
            deciding_seconds: collected.deciding_seconds,
            writing_seconds: started.elapsed().as_secs_f64(),
            spilled_bytes: collected.spill.bytes(),
        })
    }
}

fn targets(collected: &Collected, opened: Opened) -> Targets<'_> {
    let files = usize::from(opened.bam.is_some()) + usize::from(opened.cram.is_some());
    let waiting = collected.options.memory.waiting_bytes / files.max(1);
    let parts = |file| PartitionedFile::new(file, &collected.spill, waiting);
    Targets {
        bam: opened.bam.map(parts),
        cram: opened.cram.map(parts).zip(opened.encoder),
        columns: opened.columns,
        parquet: opened.parquet,
        arrow: opened.arrow,
    }
}

/// The partitions, written by all threads.
struct PartitionJob<'j> {
    collected: &'j Collected,
    runs: &'j FinishedRuns,
    partitions: &'j [SplitPartition],
    targets: &'j Targets<'j>,
    genome: &'j Genome,
    observer: &'j dyn Observer,
    cancelled: &'j AtomicBool,
}

impl PartitionJob<'_> {
    fn run(&self, path: &Path) -> Result<Vec<PartitionSummary>, PipelineError> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(self.partitions.len()));
        let worker = || -> Result<(), PipelineError> {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(split) = self.partitions.get(at) else { return Ok(()) };
                if self.cancelled.load(Ordering::Relaxed) {
                    return Err(PipelineError::Interrupted);
                }
                let written = self.write_one(at, split);
                let summary = written.inspect_err(|_| next.store(usize::MAX / 2, Ordering::Relaxed));
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.push((at, summary.map_err(|error| writing_failed(error, path))?));
                self.observer.event(&Event::Written { partitions: done.len(), of: self.partitions.len() });
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads()).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(at, _)| *at);
        Ok(done.into_iter().map(|(_, summary)| summary).collect())
    }

    fn threads(&self) -> usize {
        merging_threads(self.collected, self.runs, self.partitions, self.targets.sink_bytes())
    }

    fn write_one(&self, at: usize, split: &SplitPartition) -> io::Result<PartitionSummary> {
        let known = Known { runs: self.runs, collected: self.collected, genome: self.genome };
        write_partition(known, split, self.targets.sinks(at, self.genome)?, self.cancelled)
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
fn number_sets(collected: &mut Collected, partitions: &[SplitPartition], cancelled: &AtomicBool) -> io::Result<()> {
    let by_coordinate = collected.options.marking.mode == DuplicateMode::Coordinate;
    let sets = collected.marking.as_ref().and_then(|marking| marking.sets.as_ref()).filter(|_| by_coordinate);
    let (Some(sets), Some(runs)) = (sets, &collected.runs) else { return Ok(()) };
    let threads = merging_threads(collected, runs, partitions, 0);
    let ranks = rank(runs, partitions, &sets.representatives(), threads, cancelled)?;
    if let Some(sets) = collected.marking.as_mut().and_then(|marking| marking.sets.as_mut()) {
        sets.number(|record| ranks.binary_search_by_key(&record, |(id, _)| *id).map_or(0, |at| ranks[at].1));
    }
    Ok(())
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
}

impl Totals {
    fn add_up(summaries: &[PartitionSummary]) -> Self {
        let mut totals = Self::default();
        for summary in summaries {
            totals.flagstat.merge(&summary.flagstat);
            totals.contigs.merge(&summary.contigs);
            totals.removed += summary.removed;
        }
        totals
    }
}

/// An interruption is no failure of the file, nor are records that a format cannot hold.
pub(super) fn writing_failed(error: io::Error, path: &Path) -> PipelineError {
    if error.kind() == io::ErrorKind::Interrupted {
        return PipelineError::Interrupted;
    }
    let error = match error.downcast::<ColumnarError>() {
        Ok(columns) => return PipelineError::Columns(columns),
        Err(error) => error,
    };
    match error.downcast::<CramError>() {
        Ok(cram) => PipelineError::Cram(cram),
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
        let version = env!("CARGO_PKG_VERSION");
        let comment = format!("godwit {version} {}", collected.options.marking_command_line);
        write(".duplicates.txt", &metrics.to_text(&[comment]))?;
    }
    Ok(())
}
