//! A node that calls: asks the head for regions, runs the caller on them, and hands over the records that count.
//!
//! It looks at reads, index and reference as the head did, and tells what it saw, before it asks for anything. A caller is
//! started once for each order; whether and where a region is tried again is decided by the head.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use arrow_buffer::Buffer;
use godwit_engines::caller::CallerChoice;
use godwit_exchange::{ExchangeError, Gift, Node, NodeId, Order, Report};
use godwit_formats::with_causes;
use godwit_model::region_grid::CallingRegion;
use godwit_model::{Genome, Span};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempts::is_of_piece;
use super::plan::PlannedRegion;
use super::reads::CallInputs;
use super::reference::ScannedReference;
use super::work::{CalledRegion, RegionCaller};
use super::{Budget, CALLER_MEMORY, Workers, identity};
use crate::error::PipelineError;
use crate::node::{Input, NodeOptions, hear, malformed, next_input, nonsense};
use crate::scratch::{ScratchDirectory, unique};

/// What nodes have to know to call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallWork {
    pub(super) reference: PathBuf,
    /// Without that of the normal.
    pub(super) reads: Vec<PathBuf>,
    pub(super) normal: Option<PathBuf>,
    /// As `--caller` takes it.
    pub(super) caller: String,
    pub(super) caller_args: String,
    pub(super) budget: Budget,
    /// Where callers write on nodes without scratch space of their own.
    pub(super) scratch: PathBuf,
    /// The godwit program, which decodes CRAM in a process of its own.
    pub(super) program: PathBuf,
}

/// A region on its way to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RegionJob {
    pub(super) region: CallingRegion,
    pub(super) ploidy: Option<u8>,
}

impl RegionJob {
    fn planned(job: Value, genome: &Genome) -> Result<PlannedRegion, PipelineError> {
        let Self { region, ploidy } = serde_json::from_value(job).map_err(|error| malformed(error.to_string()))?;
        let known = |spans: &[Span]| !spans.is_empty() && spans.iter().all(|span| genome.contig(span.contig).is_some());
        match known(&region.targets) && known(&region.stretches) {
            true => Ok(PlannedRegion::new(region, genome, ploidy, 0.0)),
            false => Err(malformed("a region is on no contig".into())),
        }
    }
}

/// A directory for what callers write.
fn call_scratch(work: &CallWork, temp: Option<&Path>) -> Result<ScratchDirectory, PipelineError> {
    let path = temp.unwrap_or(&work.scratch).join(format!(".godwit-call-{}-{}", machine_word(), unique()));
    ScratchDirectory::create(&path).map_err(PipelineError::file("use scratch space in", path))
}

/// Tells directories of several machines apart.
fn machine_word() -> String {
    crate::node::machine_name().chars().filter(char::is_ascii_alphanumeric).collect()
}

/// What the threads of a node see.
struct CallNode<'n> {
    link: &'n Node,
    id: NodeId,
    on: RegionCaller<'n>,
    scratch: &'n Path,
    /// Items that another node was faster with.
    left: Mutex<BTreeSet<u64>>,
    over: AtomicBool,
    cancelled: &'n AtomicBool,
}

/// Calls regions until the head says that all is done.
///
/// # Errors
/// [`PipelineError`]; the run goes on without this node.
pub(crate) fn take_part(
    link: &Node,
    id: NodeId,
    work: &CallWork,
    options: &NodeOptions,
    cancelled: &AtomicBool,
) -> Result<(), PipelineError> {
    let caller = work.caller.parse::<CallerChoice>()?.find(&work.caller_args)?;
    let budget = Budget { threads: options.threads, ..work.budget };
    let workers = Workers::new(&budget, caller.habits().memory_bytes, (caller.name(), CALLER_MEMORY))?;
    let reads = CallInputs::open(&work.reads, work.normal.as_deref(), &work.program, &*caller)?;
    let reference = ScannedReference::scan(&work.reference)?;
    let mut facts = identity::of_machine(&*caller, &reference);
    facts.extend(identity::of_reads(&reads)?);
    let facts = serde_json::to_value(facts);
    let facts = facts.map_err(|error| PipelineError::Options { problem: error.to_string() })?;
    let scratch = call_scratch(work, options.temp.as_deref())?;
    link.say(Report::ReadyToCall { callers: workers.count, facts })?;
    let paths = reads.paths();
    let on = RegionCaller {
        caller: &*caller,
        reference: &work.reference,
        reads: &paths,
        normal: reads.normal(),
        genome: reads.genome(),
        threads_per_caller: work.budget.threads_each,
        memory_per_caller: workers.memory_per_caller,
    };
    let (left, over) = Default::default();
    let node = CallNode { link, id, on, scratch: scratch.path(), left, over, cancelled };
    node.run(workers.count)
}

impl CallNode<'_> {
    fn run(&self, workers: usize) -> Result<(), PipelineError> {
        let (sender, inputs) = mpsc::channel();
        let (to_workers, tasks) = mpsc::channel();
        let tasks = Mutex::new(tasks);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (sender, tasks) = (sender.clone(), &tasks);
                scope.spawn(move || {
                    if let Err(error) = self.work(tasks) {
                        // Where the leading thread is gone, the node has ended already.
                        let _ = sender.send(Input::Failed(error));
                    }
                });
            }
            scope.spawn(move || hear(self.link, &sender));
            let led = self.lead(&inputs, &to_workers);
            self.over.store(true, Ordering::Relaxed);
            drop(to_workers);
            self.link.leave();
            led
        })
    }

    /// Takes orders until the last one.
    fn lead(&self, inputs: &Receiver<Input>, to_workers: &Sender<(u64, PlannedRegion)>) -> Result<(), PipelineError> {
        loop {
            let order = match next_input(inputs, self.cancelled)? {
                Input::Failed(error) => return Err(error),
                Input::Order(order) => order?,
            };
            match order {
                Order::Finish => return Ok(()),
                Order::Refused { why } => return Err(ExchangeError::Refused { why }.into()),
                Order::Call { item, job } => {
                    // Workers that are gone have said why; that comes next.
                    let _ = to_workers.send((item, RegionJob::planned(job, self.on.genome)?));
                }
                Order::Leave { item } => drop(self.left().insert(item)),
                other => return Err(nonsense(&other)),
            }
        }
    }

    /// Asks for regions and calls them, one after the other.
    fn work(&self, tasks: &Mutex<Receiver<(u64, PlannedRegion)>>) -> Result<(), PipelineError> {
        loop {
            self.link.say(Report::Wants)?;
            let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((item, region)) = task else { return Ok(()) };
            let ends = || self.over.load(Ordering::Relaxed) || self.cancelled.load(Ordering::Relaxed);
            let stop = || ends() || self.left().contains(&item);
            match self.on.call(&region, &self.scratch.join(item.to_string()), &stop) {
                Ok(CalledRegion { header, lines, records, seconds }) => {
                    let pieces = [header, lines].map(Buffer::from_vec).to_vec();
                    self.link.give(self.id, Gift::Region { item, records, seconds }, pieces)?;
                }
                Err(_) if ends() => return Ok(()),
                Err(_) if stop() => {}
                Err(PipelineError::Engine(error)) if is_of_piece(&error) => {
                    self.link.say(Report::CallFailed { item, message: with_causes(&error) })?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn left(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
