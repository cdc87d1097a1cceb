//! Calls regions on several threads. For each region, runs the caller, checks its output, and stores the records that
//! start in the region.

use std::cell::Cell;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use godwit_engines::caller::{Caller, CallerInvocation, NormalReads};
use godwit_engines::{EngineError, ProcessPipeline};
use godwit_formats::vcf::lines::{Reader, Record};
use godwit_io::bgzf;
use godwit_model::{ContigId, Genome, message_with_causes};
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, Observer, rounded_seconds};
use parking_lot::Mutex;

use super::checkpoint::{CallJobDirectory, RegionAttempts, RegionCheckpoint};
use super::item_threads::ItemThreads;
use super::region_plan::PlannedRegion;
use super::retry::{AttemptResult, WorkLabel, run_once, run_with_retry};
use super::stall::{RegionStall, StallOutcome, StallRule};

/// The caller, its input files and its limits, which are the same for all regions.
pub(super) struct RegionCaller<'r> {
    pub(super) caller: &'r dyn Caller,
    pub(super) reference: &'r Path,
    pub(super) reads: &'r [PathBuf],
    pub(super) normal: Option<NormalReads<'r>>,
    pub(super) genome: &'r Genome,
    pub(super) threads_per_caller: usize,
    pub(super) memory_per_caller: u64,
    /// When a caller stalls in a region; `None` if it may take any time.
    pub(super) stall_rule: Option<StallRule>,
    /// Bases before and after a piece of a region that the caller also reads.
    pub(super) padding_bases: u32,
}

/// The inputs that all calling threads of a job without workers share.
pub(super) struct LocalCalling<'r> {
    pub(super) region_caller: RegionCaller<'r>,
    pub(super) regions: &'r [PlannedRegion],
    pub(super) job_directory: &'r CallJobDirectory,
    pub(super) scratch: &'r Path,
    pub(super) observer: &'r dyn Observer,
    pub(super) cancelled: &'r AtomicBool,
}

/// The checked output of a caller for one region: the VCF header, and the records that start in the region.
#[derive(Default)]
pub(super) struct RegionCalls {
    pub(super) header: Vec<u8>,
    pub(super) lines: Vec<u8>,
    pub(super) records: u64,
    /// Wall time of the caller, seconds.
    pub(super) seconds: f64,
    /// The region or its pieces, where the caller stalled. Without a piece that was called, the header is empty.
    pub(super) stalls: Vec<RegionStall>,
}

/// The checkpoints of the regions that are finished so far.
pub(super) struct RegionProgress {
    checkpoints: Vec<Option<RegionCheckpoint>>,
    finished_regions: usize,
    records: u64,
}

impl RegionProgress {
    /// Returns the progress of a job with `regions` regions, including the checkpoints of an earlier process.
    pub(super) fn new(job_directory: &CallJobDirectory, regions: usize) -> Self {
        let mut checkpoints: Vec<Option<RegionCheckpoint>> = vec![None; regions];
        for (index, region) in &job_directory.finished_regions {
            if let Some(place) = checkpoints.get_mut(*index) {
                *place = Some(region.clone());
            }
        }
        let records = checkpoints.iter().flatten().map(|region| region.records).sum();
        Self { finished_regions: checkpoints.iter().flatten().count(), records, checkpoints }
    }

    /// Returns the indexes in `order` whose regions have no checkpoint yet.
    pub(super) fn remaining_regions(&self, order: &[usize]) -> Vec<usize> {
        order.iter().copied().filter(|index| self.checkpoints[*index].is_none()).collect()
    }

    /// Adds the checkpoint of a region and reports the progress.
    pub(super) fn add_region(&mut self, index: usize, region: RegionCheckpoint, observer: &dyn Observer) {
        (self.finished_regions, self.records) = (self.finished_regions + 1, self.records + region.records);
        for stall in &region.effort.stalls {
            observer.event(&Event::Warning { message: stall.message() });
        }
        self.checkpoints[index] = Some(region);
        observer.event(&Event::Called {
            regions: self.finished_regions,
            total: self.checkpoints.len(),
            records: self.records,
        });
    }

    /// Returns the checkpoints of all regions.
    ///
    /// # Errors
    /// [`PipelineError::CountMismatch`] if the checkpoint of a region is missing.
    pub(super) fn into_checkpoints(self) -> Result<Vec<RegionCheckpoint>, PipelineError> {
        let (expected, actual) = (self.checkpoints.len() as u64, self.finished_regions as u64);
        let kept: Option<Vec<RegionCheckpoint>> = self.checkpoints.into_iter().collect();
        kept.ok_or(PipelineError::CountMismatch { items: "regions", expected, actual })
    }
}

impl LocalCalling<'_> {
    /// Calls the regions without a checkpoint, in `order`, on `threads` threads; returns the checkpoints of all
    /// regions.
    ///
    /// # Errors
    /// [`PipelineError::RegionFailed`] after the second failure of a region, [`PipelineError::Interrupted`] if the job
    /// is cancelled, [`PipelineError::File`] if calls cannot be stored.
    pub(super) fn call_regions(&self, order: &[usize], threads: usize) -> Result<Vec<RegionCheckpoint>, PipelineError> {
        let progress = RegionProgress::new(self.job_directory, self.regions.len());
        let left = progress.remaining_regions(order);
        let (progress, next) = (Mutex::new(progress), AtomicUsize::new(0));
        let item_threads = ItemThreads::new(self.cancelled);
        item_threads.run(threads.clamp(1, left.len().max(1)), |_| {
            let Some(index) = left.get(next.fetch_add(1, Ordering::Relaxed)).copied() else { return Ok(false) };
            let region = self.call_region(index, &|| item_threads.should_stop()).map_err(|error| (index, error))?;
            progress.lock().add_region(index, region, self.observer);
            Ok(true)
        })?;
        let progress = progress.into_inner();
        progress.into_checkpoints().map_err(|error| error.or_interrupted(self.cancelled))
    }

    /// Calls one region, with one retry after a failure, and stores its calls.
    fn call_region(&self, index: usize, stop: &impl Fn() -> bool) -> Result<RegionCheckpoint, PipelineError> {
        let region = &self.regions[index];
        let directory = self.scratch.join(index.to_string());
        let named = WorkLabel { action: "calling", item: &region.label };
        let attempt = || self.region_caller.run_caller(region, &directory, stop);
        let AttemptResult { value, seconds, attempts } =
            run_with_retry(named, &directory, self.observer, stop, attempt)?;
        let kept = self.job_directory.save_region(
            index,
            RegionCalls { seconds, ..value },
            RegionAttempts { attempts, ..RegionAttempts::default() },
        );
        kept.map_err(PipelineError::file("store the calls in", self.scratch))
    }
}

impl RegionCaller<'_> {
    /// Runs the caller once on a region. Creates `directory` for its files, and keeps this directory only after a
    /// failure.
    ///
    /// # Errors
    /// [`PipelineError::Engine`] if the caller fails or `stop` returns true, [`PipelineError::File`] if the directory
    /// cannot be created.
    pub(super) fn call_once(
        &self,
        region: &PlannedRegion,
        directory: &Path,
        stop: &impl Fn() -> bool,
    ) -> Result<RegionCalls, PipelineError> {
        let (called, seconds) = run_once(directory, || self.run_caller(region, directory, stop))?;
        Ok(RegionCalls { seconds, ..called })
    }

    /// Runs the caller on a region, or on pieces of the region where the caller stalls.
    fn run_caller(
        &self,
        region: &PlannedRegion,
        directory: &Path,
        stop: &impl Fn() -> bool,
    ) -> Result<RegionCalls, EngineError> {
        let mut calls = RegionCalls::default();
        self.call_piece(region, directory, stop, &mut calls)?;
        Ok(calls)
    }

    /// Runs the caller on a region, or on a piece of one, and adds the records to `calls`. If the caller stalls, adds those
    /// of both halves.
    fn call_piece(
        &self,
        piece: &PlannedRegion,
        directory: &Path,
        stop: &impl Fn() -> bool,
        calls: &mut RegionCalls,
    ) -> Result<(), EngineError> {
        let (started, is_stalled) = (Instant::now(), Cell::new(false));
        let stop_stalled = || {
            is_stalled.set(is_stalled.get() || self.stall_rule.is_some_and(|rule| started.elapsed() > rule.time_limit));
            stop() || is_stalled.get()
        };
        match self.run_program(piece, directory, &stop_stalled) {
            Ok(found) => {
                calls.append(found);
                return Ok(());
            }
            Err(error) if stop() || !is_stalled.get() => return Err(error),
            Err(_) => {}
        }
        let min_bases = self.stall_rule.map_or(0, |rule| rule.min_piece_bases);
        let halves = piece.halves(min_bases, self.padding_bases, self.genome);
        calls.stalls.push(RegionStall {
            region: piece.label.clone(),
            seconds: rounded_seconds(started.elapsed()),
            outcome: if halves.is_some() { StallOutcome::Cut } else { StallOutcome::SetApart },
        });
        for (number, half) in halves.iter().flatten().enumerate() {
            let directory = directory.join(number.to_string());
            fs::create_dir(&directory).map_err(|source| EngineError::Io {
                program: directory.clone(),
                action: "create",
                source,
            })?;
            self.call_piece(half, &directory, stop, calls)?;
            // Ignore the error: the directory of the region is removed later.
            let _ = fs::remove_dir_all(directory);
        }
        Ok(())
    }

    fn run_program(
        &self,
        region: &PlannedRegion,
        directory: &Path,
        stop: &impl Fn() -> bool,
    ) -> Result<RegionCalls, EngineError> {
        let output = directory.join("out.vcf");
        let work = CallerInvocation {
            reference: self.reference,
            reads: self.reads,
            normal_reads: self.normal,
            regions: &region.intervals,
            ploidy: region.ploidy,
            directory,
            output: &output,
            threads: self.threads_per_caller,
            memory_bytes: self.memory_per_caller,
        };
        if let Some(before) = self.caller.prepare(&work)? {
            before.wait(stop)?;
        }
        let chain = self.caller.start(&work)?;
        chain.wait(stop)?;
        let normal = self.normal.map(|normal| normal.reads);
        chain.check_inputs_were_read(self.reads.iter().map(PathBuf::as_path).chain(normal))?;
        self.owned_records(region, &output, &chain)
    }

    /// Checks every line of a caller's output, and returns the records that start in the region.
    fn owned_records(
        &self,
        region: &PlannedRegion,
        output: &Path,
        chain: &ProcessPipeline,
    ) -> Result<RegionCalls, EngineError> {
        let wrong =
            |error: &dyn std::error::Error| chain.output_error(format!("its output {}", message_with_causes(error)));
        if !output.is_file() {
            return Err(chain.output_error("it exited without an error, but wrote no VCF".to_owned()));
        }
        let input = bgzf::open_text(output, 1).map_err(|error| wrong(&error))?;
        let mut reader = Reader::new(BufReader::new(input)).map_err(|error| wrong(&error))?;
        let (mut lines, mut records, mut last) = (Vec::new(), 0, None);
        while let Some(record) = reader.next_record().map_err(|error| wrong(&error))? {
            match self.owned_position(region, &record, last) {
                Ok(None) => {}
                Ok(position) => {
                    last = position;
                    lines.extend_from_slice(record.line);
                    lines.push(b'\n');
                    records += 1;
                }
                Err(problem) => return Err(wrong(&reader.record_error(problem))),
            }
        }
        let mut header = reader.header().clone();
        header.remove_volatile();
        Ok(RegionCalls { header: header.text(), lines, records, ..RegionCalls::default() })
    }

    /// Returns the contig and the 0-based start of a record that starts in `region`, and `None` for a record that another
    /// region owns. `last`: those of the previous record in the region.
    ///
    /// # Errors
    /// A text about the problem, if the record is not within a contig or not in order.
    fn owned_position(
        &self,
        region: &PlannedRegion,
        record: &Record<'_>,
        last: Option<(ContigId, i64)>,
    ) -> Result<Option<(ContigId, i64)>, &'static str> {
        let Some(id) = self.genome.contig_id(record.contig) else { return Err("its contig is not in the reads") };
        if record.start >= i64::from(self.genome.contigs()[id.0 as usize].length) {
            return Err("it starts after the end of its contig");
        }
        // A record at the telomere (POS 0) belongs to the first base.
        if !region.region.owns_position(id, record.start.max(0) as u32) {
            return Ok(None);
        }
        let position = (id, record.start);
        match last {
            Some(last) if position < last => Err("it starts before the previous record"),
            _ => Ok(Some(position)),
        }
    }
}

impl RegionCalls {
    /// Appends the calls of the next piece of the region.
    fn append(&mut self, piece: Self) {
        if self.header.is_empty() {
            self.header = piece.header;
        }
        if self.lines.is_empty() {
            self.lines = piece.lines;
        } else {
            self.lines.extend_from_slice(&piece.lines);
        }
        self.records += piece.records;
    }
}
