//! A pass over all slices of a BAM, on several threads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use godwit_formats::bam::RecordBuffer;
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, rounded_seconds};
use parking_lot::Mutex;

use super::bam_slicer::{BamSlice, BamSlicer, SliceTarget};
use super::gatk_engine::GatkSlice;
use super::{RecalibrateJob, SliceEngine, WholeTable};
use crate::call::checkpoint::{RegionAttempts, RegionCheckpoint};
use crate::call::item_threads::ItemThreads;
use crate::call::region_calling::RegionCalls;
use crate::call::retry::{AttemptResult, WorkLabel, run_with_retry};

/// Number of passes over each slice.
const PASSES: usize = 2;

/// The work of a pass.
#[derive(Clone, Copy)]
pub(super) enum Pass<'p> {
    /// Base qualities are counted.
    Count,
    /// Base qualities are changed by the counts of the whole file.
    Change(&'p WholeTable),
}

impl Pass<'_> {
    /// Returns the 0-based number of the pass.
    fn index(self) -> usize {
        usize::from(matches!(self, Self::Change(_)))
    }
}

/// A pass over all slices that is in progress.
struct SlicePass<'j> {
    job: &'j RecalibrateJob<'j>,
    pass: Pass<'j>,
    scratch: &'j Path,
    slicer: Mutex<BamSlicer>,
    checkpoints: Mutex<Vec<RegionCheckpoint>>,
    finished_slices: AtomicUsize,
    finished_records: AtomicU64,
    threads: ItemThreads<'j>,
}

impl RecalibrateJob<'_> {
    /// Returns the number of slices that are processed at the same time.
    pub(super) fn concurrent_slices(&self) -> usize {
        match &self.engine {
            SliceEngine::Own(_) => self.options.threads,
            SliceEngine::Gatk(gatk) => gatk.processes(),
        }
    }

    /// Runs a pass over all slices on several threads. Returns the checkpoints in the order of the slices in the file.
    pub(super) fn run_pass(&self, pass: Pass, scratch: &Path) -> Result<Vec<RegionCheckpoint>, PipelineError> {
        let threads = self.concurrent_slices();
        let step = SlicePass {
            job: self,
            pass,
            scratch,
            slicer: Mutex::new(BamSlicer::open(&self.reads.path, threads, self.slice_records)?),
            checkpoints: Mutex::default(),
            finished_slices: AtomicUsize::new(0),
            finished_records: AtomicU64::new(0),
            threads: ItemThreads::new(self.cancelled),
        };
        let outcome = step.threads.run(threads, |thread| step.process_next_slice(thread));
        (0..threads).for_each(|thread| drop(std::fs::remove_file(step.slice_path(thread))));
        outcome?;
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        Ok(step.checkpoints.into_inner())
    }
}

impl SlicePass<'_> {
    /// Returns the path of the file with the reads of the current slice of a thread.
    fn slice_path(&self, thread: usize) -> PathBuf {
        self.scratch.join(format!("slice-{thread}.bam"))
    }

    /// Returns the index of the checkpoint of a slice in this pass.
    fn checkpoint_index(&self, slice: usize) -> usize {
        slice * PASSES + self.pass.index()
    }

    /// Processes the next slice, or takes its checkpoint. Returns false if no slice is left. An error contains the index
    /// of the slice.
    fn process_next_slice(&self, thread: usize) -> Result<bool, (usize, PipelineError)> {
        let path = self.slice_path(thread);
        let mut records = Vec::new();
        let finished = |index: usize| self.job.job_directory.finished_regions.get(&self.checkpoint_index(index));
        let next = {
            let mut slicer = self.slicer.lock();
            slicer.next_slice(|index| match (&self.job.engine, finished(index)) {
                (_, Some(_)) => SliceTarget::Skip,
                (SliceEngine::Own(_), None) => SliceTarget::Memory(&mut records),
                (SliceEngine::Gatk(_), None) => SliceTarget::File(&path),
            })
        };
        // If reading the input failed, errors of earlier slices take precedence.
        let Some(slice) = next.map_err(|error| (usize::MAX, error))? else { return Ok(false) };
        let kept = match finished(slice.index) {
            Some(kept) => kept.clone(),
            None => self.process_slice(slice, &path, &records).map_err(|error| (slice.index, error))?,
        };
        self.record_slice(slice, kept);
        Ok(true)
    }

    /// Processes a slice, whose records are in the file `path` or in `records`, and stores its checkpoint.
    fn process_slice(
        &self,
        slice: BamSlice,
        path: &Path,
        records: &[RecordBuffer],
    ) -> Result<RegionCheckpoint, PipelineError> {
        let job = self.job;
        let stop = || self.threads.should_stop();
        let result = match &job.engine {
            SliceEngine::Own(own) => {
                let started = Instant::now();
                let value = own.process(self.pass, records, &job.reads.genome, &stop)?;
                AttemptResult { value, seconds: rounded_seconds(started.elapsed()), attempts: 1 }
            }
            SliceEngine::Gatk(gatk) => {
                let directory = self.scratch.join(slice.index.to_string());
                let (genome, records) = (&job.reads.genome, slice.records);
                let work = GatkSlice { options: job.options, genome, reads: path, records, directory: &directory };
                let named = WorkLabel { action: "recalibrating", item: &slice.label() };
                run_with_retry(named, &directory, job.observer, &stop, || gatk.process(self.pass, work, &stop))?
            }
        };
        let AttemptResult { value, seconds, attempts } = result;
        let done = RegionCalls { lines: value, records: slice.records, seconds, ..RegionCalls::default() };
        let kept = job.job_directory.save_region(
            self.checkpoint_index(slice.index),
            done,
            RegionAttempts { attempts, ..RegionAttempts::default() },
        );
        kept.map_err(PipelineError::file("store the checkpoint in", self.scratch))
    }

    fn record_slice(&self, slice: BamSlice, kept: RegionCheckpoint) {
        let records = self.finished_records.fetch_add(slice.records, Ordering::Relaxed) + slice.records;
        let slices = self.finished_slices.fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = self.checkpoints.lock();
        if all.len() <= slice.index {
            all.resize_with(slice.index + 1, RegionCheckpoint::default);
        }
        all[slice.index] = kept;
        self.job.observer.event(&Event::Recalibrated { pass: self.pass.index() as u8 + 1, slices, records });
    }
}
