//! The head of a cluster run that calls variants: assigns regions and stores their calls.
//!
//! Regions and the input of callers are planned first, as in a job without workers. [`Leases`] assigns regions to
//! workers, the most expensive ones first. Regions of a lost worker are assigned again. Slow regions are also assigned
//! to a second worker; the first result counts. A closed connection shows that a worker is lost, so leases do not
//! expire.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_buffer::MutableBuffer;
use godwit_cluster::{ClusterOptions, NoDownloads, WorkerPool, WorkerPoolEvent};
use godwit_fleet::leases::{CommitResult, ItemId, Lease};
use godwit_fleet::{Leases, WorkerId};
use godwit_model::ErrorKind;
use godwit_pipeline::FingerprintEntry;
use godwit_pipeline::PipelineError;
use godwit_pipeline::fingerprint::FingerprintKey;
use godwit_pipeline::observer::warning_sink;

use super::checkpoint::{CallJobDirectory, RegionAttempts};
use super::cluster_messages::{CallCommand, CallEvent, CallMessages, CallTask, CalledRegion};
use super::region_calling::{RegionCalls, RegionProgress};
use super::retry::MAX_ATTEMPTS;
use super::{CallJob, CalledRegions, CallerBudget, region_plan};

/// Interval at which the head looks for regions to assign to idle workers, even without an event.
const ASSIGN_INTERVAL: Duration = Duration::from_millis(100);
/// A region that takes more than this multiple of the mean time is also assigned to a second, idle worker.
const STRAGGLER_FACTOR: f64 = 3.0;
/// Minimum time before a region is assigned to a second worker: only starting a caller may take this long.
const MIN_STRAGGLER_DURATION: Duration = Duration::from_secs(1);

/// A region to be called.
struct RegionAssignment {
    /// 0-based index of the region in the grid.
    grid_index: usize,
    /// Number of assignments of the region to workers.
    times_assigned: u32,
    failures: u32,
    failed_on: Option<WorkerId>,
}

/// A dispatcher that assigns regions to workers and collects their calls.
struct RegionDispatcher<'r> {
    job: &'r CallJob<'r>,
    job_directory: &'r CallJobDirectory,
    worker_pool: WorkerPool<'r, CallMessages>,
    leases: Leases,
    started_at: Instant,
    /// Regions by the item number of their lease, the most expensive region first.
    assignments: Vec<RegionAssignment>,
    /// For each accepted worker, the number of further regions that this worker has requested.
    free_slots: BTreeMap<WorkerId, usize>,
    /// Number of concurrent callers, summed over all workers that joined.
    total_callers: usize,
    progress: RegionProgress,
    /// Number of regions whose calls this head has received, and their total calling time, seconds.
    completed: (u32, f64),
}

/// Calls all regions without a checkpoint on workers.
///
/// # Errors
/// [`PipelineError`] if calling fails; finished regions keep their checkpoints.
pub(super) fn call_on_workers(
    job: &CallJob,
    cluster: &ClusterOptions,
    job_directory: &CallJobDirectory,
) -> Result<CalledRegions, PipelineError> {
    let progress = RegionProgress::new(job_directory, job.regions.len());
    let left = progress.remaining_regions(&region_plan::order_by_cost(&job.regions));
    if left.is_empty() {
        return Ok(CalledRegions {
            checkpoints: progress.into_checkpoints()?,
            concurrent_callers: 0,
            worker_names: Vec::new(),
            lost_workers: Some(0),
        });
    }
    let between = job_directory
        .create_workers_directory()
        .map_err(PipelineError::file("create the job directory of", &job.options.out))?;
    let (task, warnings) = (call_task(job, cluster, &between)?, warning_sink(job.observer));
    let worker_pool = WorkerPool::open(cluster, &between, Arc::new(NoDownloads), task, warnings, job.cancelled)?;
    let mut leases = Leases::new(Duration::MAX);
    leases.add_items(left.len() as u64);
    leases.close();
    let new_assignment = |grid_index| RegionAssignment { grid_index, times_assigned: 0, failures: 0, failed_on: None };
    let mut dispatcher = RegionDispatcher {
        job,
        job_directory,
        worker_pool,
        leases,
        started_at: Instant::now(),
        assignments: left.into_iter().map(new_assignment).collect(),
        free_slots: BTreeMap::new(),
        total_callers: 0,
        progress,
        completed: (0, 0.0),
    };
    let outcome = dispatcher.run();
    // Workers end after a failure too, because they hold no results that a later head could use.
    dispatcher.worker_pool.finish();
    outcome?;
    let RegionDispatcher { worker_pool, progress, total_callers, .. } = dispatcher;
    // A worker that lost its connection and joined again is in the list twice.
    let mut listed_names = BTreeSet::new();
    let worker_names = worker_pool.worker_names().iter().filter(|name| listed_names.insert(*name)).cloned().collect();
    Ok(CalledRegions {
        checkpoints: progress.into_checkpoints()?,
        concurrent_callers: total_callers,
        worker_names,
        lost_workers: Some(worker_pool.lost_workers()),
    })
}

fn call_task(job: &CallJob, cluster: &ClusterOptions, between: &Path) -> Result<CallTask, PipelineError> {
    let options = job.options;
    Ok(CallTask {
        // Paths stay as the user gave them, because callers write them into VCF headers. Launchers start workers in the
        // working directory of the head.
        reference: options.reference.clone(),
        reads: job.reads.paths(),
        normal: job.reads.normal().map(|normal| normal.reads.to_owned()),
        caller: options.caller.option_value().to_owned(),
        caller_args: options.caller_args.clone(),
        budget: CallerBudget {
            host_processes: if cluster.single_host { cluster.workers } else { 1 },
            ..CallerBudget::from_options(options)
        },
        stall_rule: options.stall_rule,
        padding_bases: region_plan::grid_options(options, &job.caller.capabilities()).padding_bases,
        scratch: std::path::absolute(between).map_err(PipelineError::file("find", between))?,
        godwit_program: options.godwit_program.clone(),
    })
}

impl RegionDispatcher<'_> {
    /// Assigns regions to workers until all regions are called.
    fn run(&mut self) -> Result<(), PipelineError> {
        let mut dealt_at = Instant::now();
        let mut changed = true;
        while !self.leases.is_finished() {
            if changed || dealt_at.elapsed() > ASSIGN_INTERVAL {
                self.assign_regions();
                dealt_at = Instant::now();
            }
            let event = self.worker_pool.next_event()?;
            changed = event.is_some();
            match event {
                Some(WorkerPoolEvent::Lost(worker)) => self.remove_worker(worker),
                Some(WorkerPoolEvent::Event(worker, CallEvent::Ready { callers, fingerprint })) => {
                    self.add_worker(worker, callers, &fingerprint);
                }
                Some(WorkerPoolEvent::Event(worker, CallEvent::WorkRequested)) => {
                    let _ = self.free_slots.get_mut(&worker).map(|wants| *wants += 1);
                }
                Some(WorkerPoolEvent::Event(worker, CallEvent::CallFailed { item, message, kind })) => {
                    self.handle_failure(worker, item, message, kind)?;
                }
                Some(WorkerPoolEvent::Upload(worker, called, pieces)) => {
                    self.commit_region(worker, &called, &pieces)?
                }
                None => {}
            }
        }
        self.worker_pool.warn_if_idle(self.assignments.len(), "regions", "call");
        Ok(())
    }

    /// Assigns regions to the workers that have requested any, one worker after the other, until none of them can take
    /// another region.
    fn assign_regions(&mut self) {
        let mut asking: Vec<WorkerId> =
            self.free_slots.iter().filter(|(_, wants)| **wants > 0).map(|(worker, _)| *worker).collect();
        while !asking.is_empty() {
            let mut still = Vec::new();
            for worker in asking {
                if self.assign_region(worker) {
                    still.push(worker);
                }
            }
            asking = still;
        }
    }

    /// Assigns a region to a worker. Returns whether the worker may take another region.
    fn assign_region(&mut self, worker: WorkerId) -> bool {
        let alone = self.free_slots.len() == 1;
        let suits = |item: ItemId| {
            alone || self.assignments.get(item.0 as usize).is_some_and(|region| region.failed_on != Some(worker))
        };
        let lease = self.leases.request_suitable_item(worker, suits, self.started_at.elapsed());
        let Some(Lease { item, lease_count }) = lease else { return false };
        let assignment = &mut self.assignments[item.0 as usize];
        assignment.times_assigned = lease_count;
        let planned = &self.job.regions[assignment.grid_index];
        let (region, ploidy) = (Box::new(planned.region.clone()), planned.ploidy);
        self.worker_pool.send_command(worker, &CallCommand::CallRegion { item, region, ploidy });
        let wants = self.free_slots.entry(worker).or_default();
        *wants = wants.saturating_sub(1);
        *wants > 0
    }

    fn remove_worker(&mut self, worker: WorkerId) {
        self.free_slots.remove(&worker);
        self.leases.remove_worker(worker);
    }

    /// Accepts a worker that has inspected its inputs, if their fingerprint is that of the head. Otherwise rejects the
    /// worker.
    fn add_worker(&mut self, worker: WorkerId, callers: usize, fingerprint: &[FingerprintEntry]) {
        match fingerprint.iter().find_map(|fact| fingerprint_difference(fact, &self.job.fingerprint)) {
            Some(why) => self.worker_pool.reject_worker(worker, why),
            None => {
                self.free_slots.insert(worker, 0);
                self.total_callers += callers;
            }
        }
    }

    /// Retries the region of a failed caller, on another worker if there is one. Fails after the last attempt.
    fn handle_failure(
        &mut self,
        worker: WorkerId,
        item: ItemId,
        message: String,
        kind: ErrorKind,
    ) -> Result<(), PipelineError> {
        // The region is not leased to this worker any more: another worker was faster, or this worker was regarded as
        // lost.
        if !self.leases.return_item(worker, item) {
            return Ok(());
        }
        let assignment = &mut self.assignments[item.0 as usize];
        assignment.failures += 1;
        assignment.failed_on = Some(worker);
        let region = self.job.regions[assignment.grid_index].label.clone();
        let (attempts, worker) = (assignment.failures, self.worker_pool.worker_name(worker).to_owned());
        if attempts == MAX_ATTEMPTS {
            return Err(PipelineError::RegionFailedOnWorker { region, attempts, worker, message, kind });
        }
        let message = format!("calling {region} failed on {worker} and is retried: {message}");
        self.worker_pool.warn(message.replace('\n', " | "));
        Ok(())
    }

    /// Stores the calls of a region, if this worker is the first to return them.
    fn commit_region(
        &mut self,
        worker: WorkerId,
        called: &CalledRegion,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError> {
        let CalledRegion { item, records, seconds, stalls } = called.clone();
        let [header, lines] = pieces else {
            let problem = "the worker sent a region without header and records".to_owned();
            return Err(self.worker_pool.protocol_error(worker, problem).into());
        };
        let CommitResult::First { other_workers } = self.leases.commit_item(worker, item) else { return Ok(()) };
        for other in other_workers {
            self.worker_pool.send_command(other, &CallCommand::CancelRegion { item });
        }
        let RegionAssignment { grid_index, times_assigned, .. } = self.assignments[item.0 as usize];
        let called = RegionCalls { header: header.to_vec(), lines: lines.to_vec(), records, seconds, stalls };
        let worker = Some(self.worker_pool.worker_name(worker).to_owned());
        let effort = RegionAttempts { attempts: times_assigned, worker, ..RegionAttempts::default() };
        let kept = self.job_directory.save_region(grid_index, called, effort);
        let kept = kept.map_err(PipelineError::file("store the calls for", &self.job.options.out))?;
        self.progress.add_region(grid_index, kept, self.job.observer);
        self.completed = (self.completed.0 + 1, self.completed.1 + seconds);
        let long = STRAGGLER_FACTOR * self.completed.1 / f64::from(self.completed.0);
        let long = Duration::try_from_secs_f64(long).unwrap_or(Duration::MAX);
        self.leases.set_straggler_age(long.max(MIN_STRAGGLER_DURATION));
        Ok(())
    }
}

/// Returns the reason to reject a worker with this fingerprint entry; `None` if the head has the same entry.
fn fingerprint_difference(theirs: &FingerprintEntry, ours: &[FingerprintEntry]) -> Option<String> {
    let FingerprintEntry { name, value } = theirs;
    let own = ours.iter().find(|fact| fact.name == *name).map_or("", |fact| &fact.value);
    if own == value {
        return None;
    }
    let remedy = if FingerprintKey::CallerVersion.is_of(theirs) {
        "install the same version on all hosts"
    } else {
        "all hosts must have the same files, which may not change during the job"
    };
    Some(format!("{name}: {value} on the worker, {own} on the head; {remedy}"))
}
