//! Calls variants in regions of a BAM while the BAM is written.
//!
//! Partitions are written into the BAM in the order of the genome, so the start of the file is readable long before its
//! end. A region can be called when the readable start contains all reads that a caller may read for the region. The
//! caller then opens a hard link to the growing file, with an index of the readable parts beside it. No reads are
//! copied, and the caller does not read beyond the index. The calls are stored like those of [`call`](super::call).
//! When the BAM is published, `call` calls the remaining regions, including those whose caller failed here, and
//! assembles the VCF.
//!
//! Callers and the writers of the BAM share the threads of the job ([`ThreadBudget`]).

mod thread_budget;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use godwit_engines::caller::{Caller, MAX_LOOKAHEAD_BASES};
use godwit_files::AtomicSet;
use godwit_formats::binning_index::{IndexBuilder, IndexFormat};
use godwit_model::{Genome, SortKey};
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::partitioned_file::PartExtent;
use godwit_pipeline::reduce::{BamTail, UnfinishedBam};
use godwit_pipeline::scanned_reference::ScannedReference;
use godwit_pipeline::scratch::{ScratchDirectory, create_private_directory, unique_name};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::call_inputs::GridInput;
use super::checkpoint::{CallDirectoryState, CallJobDirectory, RegionAttempts};
use super::fingerprint::{files_fingerprint, unwritten_reads_fingerprint};
use super::job_outputs::{check_output_available, create_directories, warn_dropped_regions};
use super::region_calling::{RegionCaller, RegionProgress};
use super::region_plan::{self, PlannedRegion};
use super::targets::Targets;
use super::{CallOptions, CallerSlots, find_caller, fingerprint};
use thread_budget::ThreadBudget;

/// Longest wait between checks of the cancel flag.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Variant calling in regions of a BAM that is still being written.
pub struct ConcurrentCalling<'r> {
    options: &'r CallOptions,
    caller: Box<dyn Caller>,
    caller_slots: CallerSlots,
    reference: Arc<ScannedReference>,
    targets: Option<Targets>,
    /// True if equal reads are always aligned to equal records.
    is_deterministic: bool,
    /// The job directory, until the writing of the BAM starts.
    pending_directory: Mutex<Option<CallJobDirectory>>,
    state: OnceLock<CallingState>,
    schedule: Mutex<CallingSchedule>,
    /// Condition variable, signalled when a region is ready, a thread is free, or calling stops.
    schedule_changed: Condvar,
    called_regions: AtomicUsize,
    /// Bases before and after a piece of a region that the caller also reads.
    padding_bases: u32,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
}

/// The state after the writing of the BAM has started.
struct CallingState {
    job_directory: CallJobDirectory,
    genome: Genome,
    regions: Vec<PlannedRegion>,
    /// Indexes of the regions without a checkpoint, in the order of the genome.
    remaining_regions: Vec<usize>,
    progress: Mutex<RegionProgress>,
    /// Smallest sort key of each partition.
    partition_starts: Vec<SortKey>,
    /// Directory of the scratch files of callers.
    scratch: ScratchDirectory,
    bam_prefix: Mutex<BamPrefix>,
}

/// The readable prefix of the BAM.
struct BamPrefix {
    temporary_path: PathBuf,
    path: PathBuf,
    /// Directory of snapshots, and the number of snapshots that were created.
    snapshot_directory: (PathBuf, usize),
    /// BAM indexes of partitions that are not yet in the readable prefix.
    pending_indexes: BTreeMap<usize, IndexBuilder>,
    /// BAM index of the readable prefix.
    index: IndexBuilder,
    /// Number of parts of the file that the index covers, including the header as the first part.
    indexed_parts: usize,
    /// Snapshot of the current prefix, if a caller has needed it.
    snapshot: Option<Arc<BamSnapshot>>,
}

/// A hard link to the growing BAM, with an index beside it. Dropping this value removes both files.
struct BamSnapshot {
    directory: PathBuf,
    bam: PathBuf,
}

impl Drop for BamSnapshot {
    fn drop(&mut self) {
        // Ignore an error here: the whole job directory is removed later.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The progress of writing and calling, and the threads for both.
struct CallingSchedule {
    thread_budget: ThreadBudget,
    /// Number of partitions in the readable prefix.
    written_partitions: usize,
    /// Number of entries of `remaining_regions` whose calling has started.
    started_regions: usize,
    is_stopped: bool,
}

/// A guard that stops calling when the writing of the BAM ends, also after an error.
pub struct StopCallingGuard<'l, 'r>(pub &'l ConcurrentCalling<'r>);

impl Drop for StopCallingGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A caller whose options, reference and regions were checked.
pub struct CallerSetup {
    caller: Box<dyn Caller>,
    caller_slots: CallerSlots,
    reference: Arc<ScannedReference>,
    targets: Option<Targets>,
}

/// Checks the caller, its memory, the reference, the regions and their ploidies, for which no reads are needed. Writes no
/// files.
///
/// # Errors
/// [`PipelineError`] for the caller, memory, reference, regions or ploidies.
pub fn check_caller(options: &CallOptions) -> Result<CallerSetup, PipelineError> {
    let (caller, caller_slots) = find_caller(options)?;
    let no_headers = std::iter::empty();
    let reference =
        ScannedReference::scan_for_headers(&options.reference, options.scanned_reference.as_ref(), no_headers)?;
    reference.check_caller_support(&options.reference, &*caller)?;
    let genome = reference.genome(&options.reference)?;
    let targets = Targets::read(&options.regions, &genome)?;
    // The contigs of the reads are those of the reference, to which they will be aligned.
    let to_plan = GridInput { genome: &genome, path: &options.reference, inputs: None };
    region_plan::plan_regions(options, &*caller, &to_plan, &reference, targets.as_ref())?;
    Ok(CallerSetup { caller, caller_slots, reference, targets })
}

impl<'r> ConcurrentCalling<'r> {
    /// Checks the options with [`check_caller`], and locks the output. Returns `None` if no region can be called
    /// before the BAM is complete. `is_deterministic` is true if equal reads are always aligned to equal records.
    ///
    /// # Errors
    /// The errors of [`check_caller`]; [`PipelineError`] if the output cannot be written.
    pub fn open(
        options: &'r CallOptions,
        is_deterministic: bool,
        observer: &'r dyn Observer,
        cancelled: &'r AtomicBool,
    ) -> Result<Option<Self>, PipelineError> {
        let CallerSetup { caller, caller_slots, reference, targets } = check_caller(options)?;
        let capabilities = caller.capabilities();
        reference.write_indexes(&options.reference, capabilities.needs_dictionary)?;
        check_output_available(&options.out)?;
        if !capabilities.depends_on_region_only {
            return Ok(None);
        }
        let fingerprint = fingerprint::call_fingerprint(options, &*caller, &reference, targets.as_ref());
        create_directories(&options.out, options.temp.as_deref())?;
        // If the job directory is not open, the stopped job had completed its VCF except for the rename, so no region
        // is left to call.
        let CallDirectoryState::Open(run) = CallJobDirectory::open(&options.out, &fingerprint, options.resume)? else {
            return Ok(None);
        };
        if !options.resume {
            warn_dropped_regions(&run, "--resume keeps them", observer);
        }
        let thread_budget = ThreadBudget::new(options.threads, options.caller_threads, caller_slots.count);
        Ok(Some(Self {
            options,
            caller,
            caller_slots,
            reference,
            targets,
            is_deterministic,
            pending_directory: Mutex::new(Some(*run)),
            state: OnceLock::new(),
            schedule: Mutex::new(CallingSchedule {
                thread_budget,
                written_partitions: 0,
                started_regions: 0,
                is_stopped: false,
            }),
            schedule_changed: Condvar::new(),
            called_regions: AtomicUsize::new(0),
            padding_bases: region_plan::grid_options(options, &capabilities).padding_bases,
            observer,
            cancelled,
        }))
    }

    /// Returns the maximum number of concurrent callers.
    pub fn caller_slots(&self) -> usize {
        self.caller_slots.count
    }

    /// Returns the scanned reference.
    pub fn reference(&self) -> &Arc<ScannedReference> {
        &self.reference
    }

    /// Stops calling. Calls that are running still end normally.
    fn stop(&self) {
        self.schedule.lock().is_stopped = true;
        self.schedule_changed.notify_all();
    }

    /// Releases the lock of the output. Returns the number of regions that this process called.
    pub fn close(self) -> usize {
        let begun = self.state.into_inner();
        let run = match begun {
            Some(CallingState { job_directory, .. }) => Some(job_directory),
            None => self.pending_directory.into_inner(),
        };
        run.filter(|run| !run.has_checkpoints()).into_iter().for_each(CallJobDirectory::remove);
        self.called_regions.into_inner()
    }

    /// Calls regions as soon as they are readable, until the BAM is complete. Several threads run this function.
    pub fn call_regions(&self) {
        while let Some((begun, index)) = self.next_region() {
            let called = self.call_region(begun, index);
            self.schedule.lock().thread_budget.end_call();
            self.schedule_changed.notify_all();
            if let Err(error) = called {
                self.stop_after_error(&error);
            }
        }
    }

    /// Stops calling after an error. `call` calls the remaining regions when the BAM is complete.
    fn stop_after_error(&self, error: &PipelineError) {
        let first = !std::mem::replace(&mut self.schedule.lock().is_stopped, true);
        self.schedule_changed.notify_all();
        if first && !self.cancelled.load(Ordering::Relaxed) {
            let reason = godwit_model::message_with_causes(error).replace('\n', " | ");
            let message = format!(
                "calling during the alignment stopped: {reason}; the remaining regions are called when the BAM is \
                 complete"
            );
            self.observer.event(&Event::Warning { message });
        }
    }

    /// Waits until a region is readable and threads are free. Returns the region with the state, or `None` when calling
    /// stops.
    fn next_region(&self) -> Option<(&CallingState, usize)> {
        let mut schedule = self.schedule.lock();
        loop {
            if schedule.is_stopped || self.cancelled.load(Ordering::Relaxed) {
                return None;
            }
            if let Some((begun, index)) = self.ready_region(&schedule)
                && schedule.thread_budget.begin_call()
            {
                schedule.started_regions += 1;
                return Some((begun, index));
            }
            self.wait_for_change(&mut schedule);
        }
    }

    /// Waits for a change of the schedule. The wait ends after a timeout, because a change of the cancel flag is not
    /// signalled.
    fn wait_for_change(&self, schedule: &mut MutexGuard<'_, CallingSchedule>) {
        self.schedule_changed.wait_for(schedule, CANCEL_CHECK_INTERVAL);
    }

    /// Returns the next region, if all reads that a caller needs for this region are readable.
    fn ready_region(&self, schedule: &CallingSchedule) -> Option<(&CallingState, usize)> {
        let begun = self.state.get().filter(|_| !schedule.is_stopped)?;
        let index = *begun.remaining_regions.get(schedule.started_regions)?;
        let lacking = begun.partition_starts.get(schedule.written_partitions).copied().unwrap_or(SortKey::UNPLACED);
        begun.regions[index].is_readable_before(lacking).then_some((begun, index))
    }

    fn call_region(&self, begun: &CallingState, index: usize) -> Result<(), PipelineError> {
        let failed = |error| PipelineError::file("call from", &self.options.out)(error);
        let link = begun.bam_prefix.lock().snapshot(&begun.genome).map_err(failed)?;
        let on = RegionCaller {
            caller: &*self.caller,
            reference: &self.options.reference,
            reads: std::slice::from_ref(&link.bam),
            normal: None,
            genome: &begun.genome,
            threads_per_caller: self.options.caller_threads,
            memory_per_caller: self.caller_slots.memory_per_caller_bytes,
            stall_rule: self.options.stall_rule,
            padding_bases: self.padding_bases,
        };
        let stop = || self.cancelled.load(Ordering::Relaxed);
        let region = &begun.regions[index];
        let called = on.call_once(region, &begun.scratch.path().join(index.to_string()), &stop)?;
        let kept =
            begun.job_directory.save_region(index, called, RegionAttempts { attempts: 1, ..RegionAttempts::default() });
        let kept = kept.map_err(PipelineError::file("store the calls in", begun.scratch.path()))?;
        self.called_regions.fetch_add(1, Ordering::Relaxed);
        begun.progress.lock().add_region(index, kept, self.observer);
        Ok(())
    }
}

impl PlannedRegion {
    /// Returns whether all reads that a caller may read for the region have sort keys below `key`.
    fn is_readable_before(&self, key: SortKey) -> bool {
        let last = self.region.padded_targets.last();
        last.is_some_and(|last| {
            let beyond = last.end.saturating_add(MAX_LOOKAHEAD_BASES).min(i32::MAX as u32 - 1);
            SortKey::new(last.contig.0 as i32, beyond as i32, true) < key
        })
    }
}

impl BamTail for ConcurrentCalling<'_> {
    fn start(&self, bam: &UnfinishedBam) -> Result<(), PipelineError> {
        let opened = self.pending_directory.lock().take();
        let Some(mut job_directory) = opened else { return Ok(()) };
        let failed = |error| PipelineError::file("use the job directory of", &self.options.out)(error);
        let identity = if self.is_deterministic { bam.records_fingerprint.clone() } else { unique_name() };
        job_directory.set_reads_fingerprint(&unwritten_reads_fingerprint(&identity)).map_err(failed)?;
        if self.options.resume {
            warn_dropped_regions(&job_directory, "they are the results of other reads", self.observer);
        }
        if !job_directory.finished_regions.is_empty() {
            self.observer.event(&Event::CallResumed { regions: job_directory.finished_regions.len() });
        }
        let to_plan = GridInput { genome: bam.genome, path: bam.final_path, inputs: None };
        let regions =
            region_plan::plan_regions(self.options, &*self.caller, &to_plan, &self.reference, self.targets.as_ref())?;
        let region_progress = RegionProgress::new(&job_directory, regions.len());
        let all: Vec<usize> = (0..regions.len()).collect();
        let growing = BamPrefix {
            temporary_path: std::path::absolute(bam.temporary_path).map_err(failed)?,
            path: bam.final_path.to_owned(),
            snapshot_directory: (job_directory.create_reads_directory().map_err(failed)?, 0),
            pending_indexes: BTreeMap::new(),
            index: IndexBuilder::new(bam.genome),
            indexed_parts: 0,
            snapshot: None,
        };
        let begun = CallingState {
            scratch: job_directory.create_scratch_directory(self.options.temp.as_deref()).map_err(failed)?,
            genome: bam.genome.clone(),
            remaining_regions: region_progress.remaining_regions(&all),
            progress: Mutex::new(region_progress),
            partition_starts: bam.partition_starts.clone(),
            bam_prefix: Mutex::new(growing),
            regions,
            job_directory,
        };
        let mut schedule = self.schedule.lock();
        schedule.thread_budget.set_unwritten_partitions(bam.partition_starts.len());
        // Do not start calling if a read group has no sample, because callers would derive the sample name from the
        // path of the unfinished file.
        schedule.is_stopped |= !every_read_group_has_sample(bam);
        let _ = self.state.set(begun);
        drop(schedule);
        self.schedule_changed.notify_all();
        Ok(())
    }

    fn acquire_write_slot(&self) {
        let mut schedule = self.schedule.lock();
        loop {
            let is_ready = self.ready_region(&schedule).is_some() && !self.cancelled.load(Ordering::Relaxed);
            if schedule.thread_budget.begin_partition(is_ready) {
                return;
            }
            self.wait_for_change(&mut schedule);
        }
    }

    fn release_write_slot(&self) {
        self.schedule.lock().thread_budget.end_partition();
        self.schedule_changed.notify_all();
    }

    fn add_partition_index(&self, partition: usize, index: &IndexBuilder) {
        let Some(begun) = self.state.get() else { return };
        let mut growing = begun.bam_prefix.lock();
        growing.pending_indexes.insert(partition, index.clone());
    }

    fn set_readable_parts(&self, parts: &[PartExtent]) {
        let Some(begun) = self.state.get() else { return };
        let grown = begun.bam_prefix.lock().add_parts(parts);
        match grown {
            Ok(parts) => {
                let mut schedule = self.schedule.lock();
                schedule.written_partitions = schedule.written_partitions.max(parts.saturating_sub(1));
                drop(schedule);
                self.schedule_changed.notify_all();
            }
            Err(error) => self.stop_after_error(&PipelineError::file("index", &self.options.out)(error)),
        }
    }

    fn finish(&self, staged: &AtomicSet) -> Result<(), PipelineError> {
        let Some(begun) = self.state.get() else { return Ok(()) };
        let (bam, index) = begun.bam_prefix.lock().output_paths(&begun.genome);
        let temporary_path_of =
            |path: &Path| staged.files().iter().find(|file| file.path() == path).map(|file| file.temporary_path());
        // Keep called regions only if the output has a BAM with an index, because a later `call` reuses them only with
        // this BAM.
        let (Some(bam), Some(index)) = (temporary_path_of(&bam), temporary_path_of(&index)) else { return Ok(()) };
        let fingerprint = files_fingerprint(std::iter::once((bam, index)), "none")?;
        let failed = PipelineError::file("write the journal of", &self.options.out);
        begun.job_directory.add_reads_fingerprint(&fingerprint).map_err(failed)
    }
}

/// Returns whether the header has read groups and each of them names a sample.
fn every_read_group_has_sample(bam: &UnfinishedBam) -> bool {
    let groups = bam.header.read_groups().unwrap_or_default();
    !groups.is_empty() && groups.iter().all(|group| group.sample.is_some())
}

impl BamPrefix {
    /// Returns the final paths of the BAM and its index.
    fn output_paths(&self, genome: &Genome) -> (PathBuf, PathBuf) {
        let ending = IndexFormat::for_genome(genome).extension();
        (self.path.clone(), PathBuf::from(format!("{}.{ending}", self.path.display())))
    }

    /// Adds newly readable parts to the index of the prefix. Returns the number of readable parts.
    fn add_parts(&mut self, parts: &[PartExtent]) -> io::Result<usize> {
        for (at, part) in parts.iter().enumerate().skip(self.indexed_parts) {
            // Part 0 is the header of the BAM.
            if let Some(partition) = at.checked_sub(1) {
                let missing = || io::Error::other(format!("partition {partition} has no index"));
                let index = self.pending_indexes.remove(&partition).ok_or_else(missing)?;
                let before =
                    std::mem::replace(&mut self.index, IndexBuilder::merge(Vec::new()).map_err(io::Error::other)?);
                let whole = IndexBuilder::merge(vec![(before, 0), (index, part.offset)]);
                self.index = whole.map_err(io::Error::other)?;
            }
            self.indexed_parts = at + 1;
            self.snapshot = None;
        }
        Ok(self.indexed_parts)
    }

    /// Returns a snapshot of the readable prefix for callers. Creates a new one if the prefix has grown.
    fn snapshot(&mut self, genome: &Genome) -> io::Result<Arc<BamSnapshot>> {
        if let Some(link) = &self.snapshot {
            return Ok(link.clone());
        }
        let (links, count) = &mut self.snapshot_directory;
        *count += 1;
        let directory = links.join(count.to_string());
        create_private_directory(&directory)?;
        let bam = directory.join(self.path.file_name().unwrap_or_default());
        let format = IndexFormat::for_genome(genome);
        let link = Arc::new(BamSnapshot { directory, bam });
        fs::hard_link(&self.temporary_path, &link.bam)?;
        let mut index = Vec::new();
        self.index.write(format, genome, &mut index)?;
        fs::write(format!("{}.{}", link.bam.display(), format.extension()), index)?;
        self.snapshot = Some(link.clone());
        Ok(link)
    }
}
