//! A worker of a cluster run that calls variants: requests regions from the head, runs the caller on them, and uploads
//! the records that start in each region.
//!
//! The worker inspects reads, index and reference as the head did, and reports their fingerprint to the head before its
//! first request. It runs the caller once for each assigned region. The head decides whether and on which worker a
//! failed region is retried.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_buffer::Buffer;
use crossbeam_channel::Receiver;
use godwit_cluster::{WorkerInputs, WorkerOptions, WorkerSession, host_name};
use godwit_engines::caller::CallerChoice;
use godwit_fleet::leases::ItemId;
use godwit_model::message_with_causes;
use godwit_model::region_grid::CallingRegion;
use godwit_model::{Genome, Interval};
use godwit_pipeline::PipelineError;
use godwit_pipeline::scanned_reference::ScannedReference;
use godwit_pipeline::scratch::{ScratchDirectory, unique_name};
use parking_lot::Mutex;

use super::call_inputs::CallInputs;
use super::cluster_messages::{CallCommand, CallEvent, CallMessages, CallTask, CalledRegion};
use super::local_scratch::scratch_parent;
use super::region_calling::{RegionCaller, RegionCalls};
use super::region_plan::PlannedRegion;
use super::retry::is_item_failure;
use super::{CallerBudget, CallerSlots, fingerprint};

/// Returns the region of a command with the contigs of `genome`.
fn planned_region(region: CallingRegion, ploidy: Option<u8>, genome: &Genome) -> Result<PlannedRegion, PipelineError> {
    let known = |spans: &[Interval]| !spans.is_empty() && spans.iter().all(|span| genome.contig(span.contig).is_some());
    match known(&region.targets) && known(&region.padded_targets) {
        true => Ok(PlannedRegion::new(region, genome, ploidy, 0.0)),
        false => Err(PipelineError::malformed_command("a region is on an unknown contig")),
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

/// The endpoint of a worker that calls variants.
type WorkerEndpoint<'n> = godwit_cluster::WorkerEndpoint<'n, CallMessages>;

/// The state that the threads of a worker share.
struct CallWorker<'n> {
    connection: WorkerEndpoint<'n>,
    region_caller: RegionCaller<'n>,
    scratch: &'n Path,
    /// Item numbers of the regions that another worker finished first.
    cancelled_items: Mutex<BTreeSet<ItemId>>,
    is_finished: AtomicBool,
    cancelled: &'n AtomicBool,
}

/// Calls regions until the head reports that all regions are called.
///
/// # Errors
/// [`PipelineError`] if this worker fails; the job continues without it.
pub fn run_call_worker<T>(
    session: &WorkerSession<T>,
    work: &CallTask,
    options: &WorkerOptions,
    cancelled: &AtomicBool,
) -> Result<(), PipelineError> {
    let caller = work.caller.parse::<CallerChoice>()?.find_caller(&work.caller_args)?;
    let budget = CallerBudget { threads: options.threads, ..work.budget };
    let caller_slots = CallerSlots::for_caller(&budget, &*caller)?;
    let reads = CallInputs::open(&work.reads, work.normal.as_deref(), &work.godwit_program, &*caller)?;
    let reference = ScannedReference::scan(&work.reference)?;
    let mut fingerprint = fingerprint::worker_fingerprint(&*caller, &reference);
    fingerprint.extend(fingerprint::reads_fingerprint(&reads)?);
    let temp = scratch_parent(options.temp.as_deref(), &work.scratch, &caller.capabilities());
    let scratch = create_scratch_directory(work, temp.as_deref())?;
    let connection = session.endpoint::<CallMessages>();
    connection.send_event(CallEvent::Ready { callers: caller_slots.count, fingerprint })?;
    let paths = reads.paths();
    let region_caller = RegionCaller {
        caller: &*caller,
        reference: &work.reference,
        reads: &paths,
        normal: reads.normal(),
        genome: reads.genome(),
        threads_per_caller: work.budget.threads_per_caller,
        memory_per_caller: caller_slots.memory_per_caller_bytes,
        stall_rule: work.stall_rule,
        padding_bases: work.padding_bases,
    };
    let (cancelled_items, is_finished) = Default::default();
    let worker =
        CallWorker { connection, region_caller, scratch: scratch.path(), cancelled_items, is_finished, cancelled };
    worker.run(caller_slots.count)
}

impl CallWorker<'_> {
    /// Calls regions on `callers` threads, each of which runs one caller at a time.
    fn run(&self, callers: usize) -> Result<(), PipelineError> {
        let (sender, inputs) = WorkerInputs::new();
        let (to_callers, tasks) = crossbeam_channel::unbounded();
        std::thread::scope(|scope| {
            for _ in 0..callers {
                let (sender, tasks) = (sender.clone(), &tasks);
                scope.spawn(move || sender.run(|| self.call_assigned_regions(tasks)));
            }
            scope.spawn(move || sender.forward_commands(self.connection));
            let led = inputs.process_commands(self.cancelled, |command| {
                match command {
                    CallCommand::CallRegion { item, region, ploidy } => {
                        // Sending fails only if the calling threads have ended; their error is then the next input.
                        let _ = to_callers.send((item, planned_region(*region, ploidy, self.region_caller.genome)?));
                    }
                    CallCommand::CancelRegion { item } => drop(self.cancelled_items.lock().insert(item)),
                }
                Ok(())
            });
            self.is_finished.store(true, Ordering::Relaxed);
            drop(to_callers);
            self.connection.stop_waiting_for_commands();
            led
        })
    }

    /// Requests regions from the head and calls them, one after the other.
    fn call_assigned_regions(&self, tasks: &Receiver<(ItemId, PlannedRegion)>) -> Result<(), PipelineError> {
        loop {
            self.connection.send_event(CallEvent::WorkRequested)?;
            let Ok((item, region)) = tasks.recv() else { return Ok(()) };
            let ends = || self.is_finished.load(Ordering::Relaxed) || self.cancelled.load(Ordering::Relaxed);
            let stop = || ends() || self.cancelled_items.lock().contains(&item);
            match self.region_caller.call_once(&region, &self.scratch.join(item.0.to_string()), &stop) {
                Ok(RegionCalls { header, lines, records, seconds, stalls }) => {
                    let pieces = [header, lines].map(Buffer::from_vec).to_vec();
                    self.connection.upload(CalledRegion { item, records, seconds, stalls }, pieces)?;
                }
                Err(_) if ends() => return Ok(()),
                Err(_) if stop() => {}
                Err(PipelineError::Engine(error)) if is_item_failure(&error) => {
                    let (message, kind) = (message_with_causes(&error), PipelineError::kind_of_item_failure(&error));
                    self.connection.send_event(CallEvent::CallFailed { item, message, kind })?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
