//! A worker of a cluster run that calls variants: requests regions from the head, runs the caller on them, and uploads
//! the records that start in each region.
//!
//! The worker inspects reads, index and reference as the head did, and reports their fingerprint to the head before its
//! first request. It runs the caller once for each assigned region. The head decides whether and on which worker a
//! failed region is retried.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use arrow_buffer::Buffer;
use godwit_engines::caller::CallerChoice;
use godwit_exchange::{Command, ExchangeError, WorkerEndpoint, WorkerEvent, WorkerId, WorkerUpload};
use godwit_formats::message_with_causes;
use godwit_model::region_grid::CallingRegion;
use godwit_model::{Genome, Interval};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call_inputs::CallInputs;
use super::region_calling::{RegionCaller, RegionCalls};
use super::region_plan::PlannedRegion;
use super::retry::is_item_failure;
use super::scanned_reference::ScannedReference;
use super::{CALLER_MEMORY, CallerBudget, CallerSlots, fingerprint};
use crate::cluster::{
    WorkerInput, WorkerOptions, forward_commands, host_name, malformed_command, receive_input, run_reporting_failure,
    unexpected_command,
};
use crate::error::PipelineError;
use crate::scratch::{ScratchDirectory, unique_name};

/// The task of a worker that calls variants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallTask {
    pub(super) reference: PathBuf,
    /// Input files, without that of the normal sample.
    pub(super) reads: Vec<PathBuf>,
    pub(super) normal: Option<PathBuf>,
    /// Value of `--caller`.
    pub(super) caller: String,
    pub(super) caller_args: String,
    pub(super) budget: CallerBudget,
    /// Directory for scratch files on workers that were started without a scratch directory of their own.
    pub(super) scratch: PathBuf,
    /// The godwit program, which decodes CRAM in a process of its own.
    #[serde(rename = "program")]
    pub(super) godwit_program: PathBuf,
}

/// A region that the head assigns to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RegionTask {
    pub(super) region: CallingRegion,
    pub(super) ploidy: Option<u8>,
}

impl RegionTask {
    fn from_json(job: Value, genome: &Genome) -> Result<PlannedRegion, PipelineError> {
        let Self { region, ploidy } =
            serde_json::from_value(job).map_err(|error| malformed_command(error.to_string()))?;
        let known =
            |spans: &[Interval]| !spans.is_empty() && spans.iter().all(|span| genome.contig(span.contig).is_some());
        match known(&region.targets) && known(&region.padded_targets) {
            true => Ok(PlannedRegion::new(region, genome, ploidy, 0.0)),
            false => Err(malformed_command("a region is on an unknown contig".into())),
        }
    }
}

/// Creates a directory for the scratch files of callers.
fn create_scratch_directory(work: &CallTask, temp: Option<&Path>) -> Result<ScratchDirectory, PipelineError> {
    let path =
        temp.unwrap_or(&work.scratch).join(format!(".godwit-call-{}-{}", alphanumeric_host_name(), unique_name()));
    ScratchDirectory::create(&path).map_err(PipelineError::file("use scratch space in", path))
}

/// Returns the letters and digits of the host name, which distinguish directories of several hosts.
fn alphanumeric_host_name() -> String {
    host_name().chars().filter(char::is_ascii_alphanumeric).collect()
}

/// The state that the threads of a worker share.
struct CallWorker<'n> {
    connection: &'n WorkerEndpoint,
    id: WorkerId,
    region_caller: RegionCaller<'n>,
    scratch: &'n Path,
    /// Item numbers of the regions that another worker finished first.
    cancelled_items: Mutex<BTreeSet<u64>>,
    is_finished: AtomicBool,
    cancelled: &'n AtomicBool,
}

/// Calls regions until the head reports that all regions are called.
///
/// # Errors
/// [`PipelineError`] if this worker fails; the job continues without it.
pub(crate) fn run_call_worker(
    connection: &WorkerEndpoint,
    id: WorkerId,
    work: &CallTask,
    options: &WorkerOptions,
    cancelled: &AtomicBool,
) -> Result<(), PipelineError> {
    let caller = work.caller.parse::<CallerChoice>()?.find_caller(&work.caller_args)?;
    let budget = CallerBudget { threads: options.threads, ..work.budget };
    let workers = CallerSlots::new(&budget, caller.capabilities().memory_bytes, (caller.name(), CALLER_MEMORY))?;
    let reads = CallInputs::open(&work.reads, work.normal.as_deref(), &work.godwit_program, &*caller)?;
    let reference = ScannedReference::scan(&work.reference)?;
    let mut fingerprint = fingerprint::worker_fingerprint(&*caller, &reference);
    fingerprint.extend(fingerprint::reads_fingerprint(&reads)?);
    let fingerprint = serde_json::to_value(fingerprint);
    let fingerprint = fingerprint.map_err(|error| PipelineError::Options { problem: error.to_string() })?;
    let scratch = create_scratch_directory(work, options.temp.as_deref())?;
    connection.send_event(WorkerEvent::ReadyToCall { callers: workers.count, job_identity: fingerprint })?;
    let paths = reads.paths();
    let region_caller = RegionCaller {
        caller: &*caller,
        reference: &work.reference,
        reads: &paths,
        normal: reads.normal(),
        genome: reads.genome(),
        threads_per_caller: work.budget.threads_per_caller,
        memory_per_caller: workers.memory_per_caller_bytes,
    };
    let (cancelled_items, is_finished) = Default::default();
    let node =
        CallWorker { connection, id, region_caller, scratch: scratch.path(), cancelled_items, is_finished, cancelled };
    node.run(workers.count)
}

impl CallWorker<'_> {
    fn run(&self, workers: usize) -> Result<(), PipelineError> {
        let (sender, inputs) = mpsc::channel();
        let (to_workers, tasks) = mpsc::channel();
        let tasks = Mutex::new(tasks);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (sender, tasks) = (sender.clone(), &tasks);
                scope.spawn(move || run_reporting_failure(&sender, || self.call_assigned_regions(tasks)));
            }
            scope.spawn(move || forward_commands(self.connection, &sender));
            let led = self.process_commands(&inputs, &to_workers);
            self.is_finished.store(true, Ordering::Relaxed);
            drop(to_workers);
            self.connection.stop_waiting_for_commands();
            led
        })
    }

    /// Executes the commands of the head until [`Command::Finish`].
    fn process_commands(
        &self,
        inputs: &Receiver<WorkerInput>,
        to_workers: &Sender<(u64, PlannedRegion)>,
    ) -> Result<(), PipelineError> {
        loop {
            let order = match receive_input(inputs, self.cancelled)? {
                WorkerInput::Failed(error) => return Err(error),
                WorkerInput::Command(order) => order?,
            };
            match order {
                Command::Finish => return Ok(()),
                Command::RejectWorker { reason } => return Err(ExchangeError::WorkerRejected { reason }.into()),
                Command::CallRegion { item, job } => {
                    // Sending fails only if the calling threads have ended; their error is then the next input.
                    let _ = to_workers.send((item, RegionTask::from_json(job, self.region_caller.genome)?));
                }
                Command::CancelRegion { item } => drop(self.lock_cancelled_items().insert(item)),
                other => return Err(unexpected_command(&other)),
            }
        }
    }

    /// Requests regions from the head and calls them, one after the other.
    fn call_assigned_regions(&self, tasks: &Mutex<Receiver<(u64, PlannedRegion)>>) -> Result<(), PipelineError> {
        loop {
            self.connection.send_event(WorkerEvent::WorkRequested)?;
            let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((item, region)) = task else { return Ok(()) };
            let ends = || self.is_finished.load(Ordering::Relaxed) || self.cancelled.load(Ordering::Relaxed);
            let stop = || ends() || self.lock_cancelled_items().contains(&item);
            match self.region_caller.call_once(&region, &self.scratch.join(item.to_string()), &stop) {
                Ok(RegionCalls { header, lines, records, seconds }) => {
                    let pieces = [header, lines].map(Buffer::from_vec).to_vec();
                    self.connection.upload(self.id, WorkerUpload::CalledRegion { item, records, seconds }, pieces)?;
                }
                Err(_) if ends() => return Ok(()),
                Err(_) if stop() => {}
                Err(PipelineError::Engine(error)) if is_item_failure(&error) => {
                    self.connection
                        .send_event(WorkerEvent::CallFailed { item, message: message_with_causes(&error) })?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn lock_cancelled_items(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.cancelled_items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
