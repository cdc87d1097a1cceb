//! Writing the outputs: the BAM by all threads at once, then what goes beside it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use godwit_formats::index::{IndexBuilder, IndexFormat};
use godwit_formats::sam::Header;
use godwit_formats::{bam, bgzf};
use godwit_kernels::flagstat::Flagstat;
use godwit_kernels::markdup::{DuplicateMode, Metrics};
use godwit_model::Genome;
use serde::{Deserialize, Serialize};

use super::collector::{Collected, Collector};
use super::partition::{COMPRESSION_LEVEL, Known, PartitionSummary, UNCOMPRESSED, write_partition};
use super::qc::{self, Qc, QcJob, QcWorker};
use super::ranks::rank;
use crate::error::PipelineError;
use crate::manifest;
use crate::observer::{Event, Observer};
use crate::partitioned_file::{PartExtent, PartitionedFile};
use crate::runs::{FinishedRuns, SplitPartition};
use crate::staging::{Staged, StagedFile, aside_name};

/// Names of the outputs, all in one directory.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// The BAM, `STEM.bam`.
    pub bam: PathBuf,
    /// What `.duplicates.txt`, `.flagstat.txt` and `.idxstats.txt` are put behind.
    pub stem: PathBuf,
}

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
    /// Duplicates left out of the BAM.
    pub removed: u64,
    /// Records in the BAM.
    pub records: u64,
    /// Records that are duplicates, in the BAM or left out.
    pub duplicates: u64,
    /// Bytes of the BAM.
    pub bam_bytes: u64,
    /// Stretches of the BAM behind its header.
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

impl Outputs {
    /// What all of them may be called while they lie aside.
    pub(crate) fn aside_names(&self) -> Vec<String> {
        let bam = [".bam", ".bam.bai", ".bam.csi", ".flagstat.txt", ".idxstats.txt", ".duplicates.txt"];
        let beside = bam.iter().chain(&qc::SUFFIXES).chain(&[manifest::SUFFIX]).map(|suffix| self.beside(suffix));
        let reports = ["run.json", "report.html"].map(|name| self.bam.with_file_name(name));
        beside.chain(reports).map(|path| aside_name(&path)).collect()
    }

    /// The stem followed by a suffix.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// The comment in a metrics file that says whose numbers these are and of which file: MultiQC takes the name of the
    /// sample from it.
    pub(crate) fn picard_comment(&self, tool: &str) -> String {
        let name = self.bam.file_name().unwrap_or_default().to_string_lossy();
        // MultiQC would take a part of the name for the whole.
        let input = if name.contains(char::is_whitespace) { String::new() } else { format!(" --INPUT {name}") };
        format!("godwit {}, the numbers of Picard {tool}{input}", env!("CARGO_PKG_VERSION"))
    }
}

impl Collector {
    /// Ends the input, decides duplicates and writes everything into files that still lack their names. `bam`: the one
    /// for the records.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub fn write(
        self,
        header: &Header,
        genome: &Genome,
        outputs: &Outputs,
        bam: StagedFile,
        observer: &dyn Observer,
        cancelled: &AtomicBool,
    ) -> Result<Reduced, PipelineError> {
        observer.event(&Event::Stage { name: "deciding duplicates" });
        let mut collected = self.finish(genome)?;
        observer.event(&Event::Stage { name: "writing" });
        let started = Instant::now();
        let writing = |error| PipelineError::file("write", &outputs.bam)(error);
        let partitions = collected.runs.as_ref().map(FinishedRuns::partitions).unwrap_or_default();
        number_sets(&mut collected, &partitions, cancelled).map_err(|error| writing_failed(error, &outputs.bam))?;
        let collected = &collected;
        let file = match &collected.run {
            // What waits for its turn is kept, not held in memory.
            Some(run) => PartitionedFile::new(bam, run.parts(), 0),
            None => PartitionedFile::new(bam, &collected.spill, collected.options.memory.waiting_bytes),
        };
        write_header(&file, header).map_err(writing)?;
        let qc = QcJob::new(&collected.options, genome)?;
        let (partitions, kept) = (&partitions[..], &AtomicUsize::new(0));
        let summaries = match &collected.runs {
            Some(runs) => {
                let (file, qc) = (&file, qc.as_ref());
                PartitionJob { collected, runs, partitions, file, genome, qc, observer, cancelled, kept }
                    .run(&outputs.bam)?
            }
            None => Vec::new(),
        };
        let extents = file.seal(partitions.len() + 1, &bgzf::EOF_BLOCK).map_err(writing)?;
        let totals = Totals::add_up(&summaries);
        let expected = collected.records - totals.removed;
        if totals.flagstat.records() != expected {
            return Err(PipelineError::Lost { what: "records", taken: expected, written: totals.flagstat.records() });
        }
        let metrics = metrics(collected, &summaries);
        let segments = segments(&summaries, &extents[1..]);
        let index = merge_index(summaries, &extents[1..]).map_err(writing)?;
        let mut staged = write_beside(collected, metrics.as_ref(), &index, &totals.flagstat, genome, outputs)?;
        let qc = qc.map(|qc| qc.finish(genome));
        if let Some(qc) = &qc {
            qc.write(&mut staged, outputs)?;
        }
        staged.add(file.into_staged());
        let last = extents[extents.len() - 1];
        Ok(Reduced {
            staged,
            removed: totals.removed,
            records: totals.flagstat.records(),
            duplicates: totals.flagstat.duplicates() + totals.removed,
            bam_bytes: last.offset + last.bytes + bgzf::EOF_BLOCK.len() as u64,
            segments,
            kept_partitions: kept.load(Ordering::Relaxed),
            deciding_seconds: collected.deciding_seconds,
            writing_seconds: started.elapsed().as_secs_f64(),
            spilled_bytes: collected.spill.bytes()
                + collected.run.as_ref().map_or(0, |run| run.blocks().bytes() + run.parts().bytes()),
            flagstat: totals.flagstat,
            duplication: metrics,
            qc,
        })
    }
}

/// Part 0 of the file: the header in blocks of its own.
fn write_header(file: &PartitionedFile, header: &Header) -> std::io::Result<()> {
    let mut plain = Vec::new();
    bam::encode_header(header, &mut plain).map_err(std::io::Error::other)?;
    let mut writer = bgzf::Writer::new(file.part(0), 6);
    writer.write_bytes(&plain)?;
    writer.finish_blocks()?.0.finish()
}

/// The partitions, written by all threads.
struct PartitionJob<'j> {
    collected: &'j Collected,
    runs: &'j FinishedRuns,
    partitions: &'j [SplitPartition],
    file: &'j PartitionedFile<'j>,
    genome: &'j Genome,
    qc: Option<&'j QcJob>,
    observer: &'j dyn Observer,
    cancelled: &'j AtomicBool,
    /// Partitions that an earlier process wrote.
    kept: &'j AtomicUsize,
}

impl PartitionJob<'_> {
    fn run(&self, path: &Path) -> Result<Vec<PartitionSummary>, PipelineError> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(self.partitions.len()));
        let worker = || -> Result<(), PipelineError> {
            let mut qc = self.qc.map(QcJob::worker);
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(split) = self.partitions.get(at) else { return Ok(()) };
                if self.cancelled.load(Ordering::Relaxed) {
                    return Err(PipelineError::Interrupted);
                }
                let written = self.write_one(at, split, qc.as_mut());
                let written = written.inspect_err(|_| next.store(usize::MAX / 2, Ordering::Relaxed));
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                let (summary, kept) = written.map_err(|error| writing_failed(error, path))?;
                done.push((at, summary));
                self.kept.fetch_add(usize::from(kept), Ordering::Relaxed);
                if !kept {
                    self.observer.event(&Event::Written { partitions: done.len(), of: self.partitions.len() });
                }
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
        merging_threads(self.collected, self.runs, self.partitions)
    }

    /// Writes a partition, unless it was kept; says which.
    fn write_one(
        &self,
        at: usize,
        split: &SplitPartition,
        mut qc: Option<&mut QcWorker>,
    ) -> std::io::Result<(PartitionSummary, bool)> {
        let known = Known { runs: self.runs, collected: self.collected, genome: self.genome };
        let kept = self.kept(at)?;
        let was_kept = kept.is_some();
        let summary = match kept {
            // Metrics are not kept: the records are looked at again, and go nowhere.
            Some(summary) if qc.is_some() => {
                write_partition(known, split, qc.as_deref_mut(), std::io::sink(), UNCOMPRESSED, self.cancelled)?;
                summary
            }
            Some(summary) => summary,
            None => self.write_anew(at, split, known, qc.as_deref_mut())?,
        };
        if let Some(qc) = qc {
            qc.end_partition(at);
        }
        Ok((summary, was_kept))
    }

    fn write_anew(
        &self,
        at: usize,
        split: &SplitPartition,
        known: Known,
        qc: Option<&mut QcWorker>,
    ) -> std::io::Result<PartitionSummary> {
        let part = self.file.part(at + 1);
        let (summary, mut part) = write_partition(known, split, qc, part, COMPRESSION_LEVEL, self.cancelled)?;
        if let Some(run) = &self.collected.run {
            run.keep_partition(at, part.seal()?, self.file.staged(), &serde_json::to_vec(&summary)?)?;
        }
        part.finish()?;
        Ok(summary)
    }

    /// A partition that an earlier process wrote, put where it belongs.
    fn kept(&self, at: usize) -> std::io::Result<Option<PartitionSummary>> {
        let Some(run) = &self.collected.run else { return Ok(None) };
        let Some((place, summary, checksum)) = run.kept_partition(at, self.file.staged())? else { return Ok(None) };
        let summary: PartitionSummary = serde_json::from_slice(&summary)?;
        if summary.checksum != checksum {
            return Ok(None);
        }
        self.file.restore(at + 1, &place)?;
        Ok(Some(summary))
    }
}

/// Threads, fewer where the merges of so many would exceed the memory of the runs they replace.
fn merging_threads(collected: &Collected, runs: &FinishedRuns, partitions: &[SplitPartition]) -> usize {
    let most = partitions.iter().map(|split| runs.merge_bytes(split)).max().unwrap_or(0);
    let merges = collected.options.memory.merge_bytes / most.max(1);
    collected.options.threads.min(merges).max(1)
}

/// Finds the place of every duplicate set's best record in the sorted file, where it is asked for.
fn number_sets(
    collected: &mut Collected,
    partitions: &[SplitPartition],
    cancelled: &AtomicBool,
) -> std::io::Result<()> {
    let by_coordinate = collected.options.marking.mode == DuplicateMode::Coordinate;
    let sets = collected.marking.as_ref().and_then(|marking| marking.sets.as_ref()).filter(|_| by_coordinate);
    let (Some(sets), Some(runs)) = (sets, &collected.runs) else { return Ok(()) };
    let threads = merging_threads(collected, runs, partitions);
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
    removed: u64,
}

impl Totals {
    fn add_up(summaries: &[PartitionSummary]) -> Self {
        let mut totals = Self::default();
        for summary in summaries {
            totals.flagstat.merge(&summary.flagstat);
            totals.removed += summary.removed;
        }
        totals
    }
}

/// An interruption is no failure of the file.
fn writing_failed(error: std::io::Error, path: &Path) -> PipelineError {
    match error.kind() {
        std::io::ErrorKind::Interrupted => PipelineError::Interrupted,
        _ => PipelineError::file("write", path)(error),
    }
}

fn segments(summaries: &[PartitionSummary], extents: &[PartExtent]) -> Vec<Segment> {
    let pairs = summaries.iter().zip(extents);
    pairs
        .map(|(summary, extent)| Segment {
            offset: extent.offset,
            bytes: extent.bytes,
            records: summary.flagstat.records(),
            blake3: summary.checksum.clone(),
        })
        .collect()
}

fn merge_index(summaries: Vec<PartitionSummary>, extents: &[PartExtent]) -> std::io::Result<IndexBuilder> {
    let parts = summaries.into_iter().zip(extents).map(|(summary, extent)| (summary.index, extent.offset)).collect();
    IndexBuilder::merge(parts).map_err(std::io::Error::other)
}

/// Writes everything but the BAM, which comes last because it is what others wait for.
fn write_beside(
    collected: &Collected,
    metrics: Option<&Metrics>,
    index: &IndexBuilder,
    flagstat: &Flagstat,
    genome: &Genome,
    outputs: &Outputs,
) -> Result<Staged, PipelineError> {
    let mut staged = Staged::default();
    let mut write =
        |path: PathBuf, bytes: &[u8]| staged.write(&path, bytes).map_err(PipelineError::file("write", &path));
    let format = IndexFormat::for_genome(genome);
    let mut index_path = outputs.bam.clone().into_os_string();
    index_path.push(format!(".{}", format.extension()));
    let mut bytes = Vec::new();
    index.write(format, genome, &mut bytes).map_err(PipelineError::file("write", &index_path))?;
    write(index_path.into(), &bytes)?;
    write(outputs.beside(".flagstat.txt"), flagstat.to_string().as_bytes())?;
    write(outputs.beside(".idxstats.txt"), index.idxstats(genome).as_bytes())?;
    if let Some(metrics) = metrics {
        let (origin, command) = (outputs.picard_comment("MarkDuplicates"), &collected.options.marking_command_line);
        let text = metrics.to_text(&[format!("{origin} {command}")]);
        write(outputs.beside(".duplicates.txt"), text.as_bytes())?;
    }
    Ok(staged)
}
