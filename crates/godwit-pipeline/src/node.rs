//! A node of a run. What it works on, its head tells it: [calling](crate::call::node) regions, [searching](crate::search::node)
//! sequences, or aligning.
//!
//! One that aligns takes blocks that the head gives it, keeps their slices, fetches those it owns from other nodes, and
//! writes its partitions into the one file of the run. One thread takes the head's orders and hands them to those that
//! carry them out: one feeds the aligner, one takes its answers, one sorts and packs, a few fetch, a few write. Whatever
//! fails ends the node; the head goes on without it.

mod aligner;
mod aligning;
mod kept;
mod shelf;
mod writing;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use godwit_engines::aligner::Hello;
use godwit_exchange::{ExchangeError, FlightError, Keys, Node, NodeId, Order, Report, Share, Ticket, bytes_batch};
use godwit_fleet::address::AddressChoice;
use godwit_fleet::{Rendezvous, Token};
use godwit_formats::with_causes;
use godwit_model::{BlockId, PartitionPlan, SortKey};
use serde::{Deserialize, Serialize};

use crate::call::{self, CallWork};
use crate::error::{Blame, PipelineError};
use crate::marking::MarkingOptions;
use crate::runs::{Shares, SlicePlace, SliceStore};
use crate::scratch::SpillFile;
use crate::search::{self, SearchWork};
use crate::step::Step;

use aligner::NodeAligner;
pub(crate) use aligning::BlockPieces;
pub(crate) use kept::KeepAt;
use kept::Kept;
use shelf::NodeShelf;
pub(crate) use shelf::SliceHeader;
use writing::Writing;
pub(crate) use writing::{VerdictHeader, WriteJob};

/// Slices that are fetched at a time, each from another block.
const FETCHERS: usize = 3;

/// How long a node tries to come back to a head that it lost.
const COME_BACK: Duration = Duration::from_secs(60);
/// How long it waits before it tries again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How to be a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The directory where the run tells how to reach it.
    pub meeting: PathBuf,
    /// The start of the job that this process belongs to; one of an earlier start has nothing to do any more.
    pub attempt: u64,
    /// Threads of the aligner, and parts written at a time.
    pub threads: usize,
    /// Where slices go; the directory of the meeting where `None`.
    pub temp: Option<PathBuf>,
    /// How long to wait for the run to be there.
    pub wait: Duration,
}

/// What nodes work on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub(crate) enum NodeWork {
    /// Blocks of reads.
    Align(AlignWork),
    /// Regions.
    Call(CallWork),
    /// Ranges of a database and queries.
    Search(SearchWork),
}

/// What nodes have to know to align.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AlignWork {
    pub(crate) reference: PathBuf,
    pub(crate) aligner: String,
    pub(crate) arguments: Vec<String>,
    /// Bases of a block, at most.
    pub(crate) block_bases: u64,
    /// What reads of each lane belong to.
    pub(crate) lanes: Vec<LaneWork>,
    /// The sample.
    pub(crate) sample: String,
    /// How duplicates are marked.
    pub(crate) marking: MarkingOptions,
    /// Partitions of the genome.
    pub(crate) partitions: u32,
    /// Processes on the machine of this worker that load an index. Several had better share it.
    pub(crate) processes_of_host: u64,
    /// What looks at records before they are written.
    #[serde(default)]
    pub(crate) step: Option<Step>,
    /// Where slices are kept for a later head of the run.
    pub(crate) keep: KeepAt,
}

/// A lane, as aligners have to know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaneWork {
    /// Its `@RG` line.
    pub(crate) read_group: String,
    /// The `ID` in there.
    pub(crate) read_group_id: String,
}

/// Something for the thread that leads a node.
pub(crate) enum Input {
    Order(Result<Order, ExchangeError>),
    Failed(PipelineError),
}

/// What all threads of a node see.
struct Shared<'n> {
    link: &'n Node,
    id: NodeId,
    spill: Arc<SpillFile>,
    kept: &'n Kept,
    /// What the reads of blocks are that are being aligned.
    contents: Mutex<HashMap<BlockId, String>>,
    scratch: PathBuf,
    store: OnceLock<Arc<SliceStore>>,
    /// The block that decides how the genome is cut, where it is here.
    first: Mutex<Option<BlockId>>,
    inputs: Mutex<Sender<Input>>,
    cancelled: &'n Arc<AtomicBool>,
}

impl Shared<'_> {
    /// Runs one of the node's threads; what fails ends the node.
    fn guard(&self, work: impl FnOnce() -> Result<(), PipelineError>) {
        if let Err(error) = work() {
            self.fail(error);
        }
    }

    fn fail(&self, error: PipelineError) {
        // Where the leading thread is gone, the node has ended already.
        let _ = self.inputs.lock().unwrap_or_else(PoisonError::into_inner).send(Input::Failed(error));
    }

    fn set_first(&self, block: BlockId) {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(block);
    }

    fn is_first(&self, block: BlockId) -> bool {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) == Some(block)
    }

    fn set_content(&self, block: BlockId, content: String) {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner).insert(block, content);
    }

    /// Keeps slices of a block that are in the store, for a later head.
    fn keep(&self, block: BlockId, content: &str, shares: impl Iterator<Item = Share>) -> Result<(), PipelineError> {
        let Some(store) = self.store.get() else { return Ok(()) };
        self.kept.note(block, content, shares, store).map_err(|error| self.scratch_failed(error))
    }

    fn scratch_failed(&self, error: std::io::Error) -> PipelineError {
        PipelineError::file("use scratch space in", &self.scratch)(error)
    }
}

/// Works for a run until it is done. Where the head is lost for a while, comes back to it as another node with the slices it
/// has. Not to the next head: that one starts nodes of its own, who wait for what this one holds, and whoever started this
/// one may be about to end it.
///
/// # Errors
/// [`PipelineError`]; the run goes on without this node.
pub fn work(options: &NodeOptions, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError> {
    let (mut head, mut lost_since) = (None, None::<Instant>);
    loop {
        let started = Instant::now();
        let error = match work_once(options, &mut head, cancelled) {
            Err(PipelineError::Exchange(error)) => error,
            ended => return ended,
        };
        // It was there in between.
        if started.elapsed() > COME_BACK {
            lost_since = None;
        }
        let is_over = !Rendezvous::path(&options.meeting).exists() || nobody_listens(&error);
        if is_over || lost_since.get_or_insert(started).elapsed() > COME_BACK {
            return Err(PipelineError::Exchange(error));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Whether the head's machine answered that there is no head.
fn nobody_listens(error: &ExchangeError) -> bool {
    match error {
        ExchangeError::Flight(FlightError::Connect { source, .. }) => {
            source.kind() == std::io::ErrorKind::ConnectionRefused
        }
        ExchangeError::Refused { .. } => true,
        _ => false,
    }
}

/// `head`: the secret of the head that this process works for, once it has found one.
fn work_once(
    options: &NodeOptions,
    head: &mut Option<Token>,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), PipelineError> {
    let is_cancelled = || cancelled.load(Ordering::Relaxed);
    let found = Rendezvous::wait(&options.meeting, options.attempt, options.wait, is_cancelled)?;
    if *head.get_or_insert_with(|| found.token.clone()) != found.token {
        return Err(
            ExchangeError::Refused { why: "another head leads it by now, with nodes of its own".to_owned() }.into()
        );
    }
    let keys = Keys::of_run(found.token.reveal(), &options.meeting)?;
    let name = format!("{}, process {}", machine_name(), std::process::id());
    let (head, link) = join(&found, &keys, &name)?;
    let (id, job) = match link.next_order()? {
        Order::Welcome { node, job } => (node, job),
        Order::Refused { why } => return Err(ExchangeError::Refused { why }.into()),
        other => return Err(nonsense(&other)),
    };
    let work = serde_json::from_value(job).map_err(|error| malformed(error.to_string()));
    let worked = work.and_then(|work| match work {
        NodeWork::Align(work) => take_part(&link, id, &work, head, options, cancelled),
        NodeWork::Call(work) => call::node::take_part(&link, id, &work, options, cancelled),
        NodeWork::Search(work) => search::node::take_part(&link, id, &work, options, cancelled),
    });
    if let Err(error) = &worked
        && !matches!(error, PipelineError::Exchange(_))
    {
        let everywhere = error.is_everywhere().then(|| serde_json::json!(error.blame()));
        let message = with_causes(error);
        // Best effort: the head also sees that the node is gone.
        let _ = link.say(Report::Failed { message, everywhere });
        std::thread::sleep(Duration::from_millis(200));
    }
    worked
}

/// Gets ready, and does what the head says.
fn take_part(
    link: &Node,
    id: NodeId,
    job: &AlignWork,
    head: SocketAddr,
    options: &NodeOptions,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), PipelineError> {
    let scratch = options.temp.clone().unwrap_or_else(|| job.keep.otherwise.clone());
    let failed = PipelineError::file("use scratch space in", &scratch);
    let kept = Kept::open(&job.keep, options.temp.as_deref(), cancelled).map_err(failed)?;
    let led = serve(link, (id, head), job, &kept, scratch, options, cancelled);
    // Whatever else ended it, another process may go on with what is there; but not where this machine's disk is the trouble.
    match &led {
        Err(error) if error.blame() != Blame::Machine => {}
        _ => kept.remove(),
    }
    led
}

/// Works for the head until it is done or lost.
fn serve(
    link: &Node,
    (id, head): (NodeId, SocketAddr),
    job: &AlignWork,
    kept: &Kept,
    scratch: PathBuf,
    options: &NodeOptions,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), PipelineError> {
    if let Some(step) = &job.step {
        step.check_here(cancelled)?;
    }
    let aligner = NodeAligner::start(job, options.threads)?;
    let hello = aligner.hello().clone();
    let (sender, inputs) = mpsc::channel();
    let inputs_of_orders = sender.clone();
    let shared = Shared {
        link,
        id,
        spill: kept.spill().clone(),
        kept,
        contents: Mutex::default(),
        scratch,
        store: OnceLock::new(),
        first: Mutex::default(),
        inputs: Mutex::new(sender),
        cancelled,
    };
    let shelf = Arc::new(NodeShelf::default());
    let own = AddressChoice::RouteTo(head.ip().to_string()).resolve()?;
    let address = link.serve(own, shelf.clone())?;
    let (name, version) = aligner.name_and_version();
    link.say(Report::Ready {
        address,
        writers: options.threads,
        engine_version: aligner.records_version().to_owned(),
        aligner: name,
        aligner_version: version,
        sq_lines: hello.sq_lines.clone(),
    })?;
    lead(&shared, aligner, &hello, &shelf, job, options, (inputs_of_orders, inputs))
}

/// Joins the run at the first of the head's addresses that answers.
fn join(found: &Rendezvous, keys: &Keys, name: &str) -> Result<(SocketAddr, Node), PipelineError> {
    let mut last = malformed("the head has no address".into());
    for address in &found.addresses {
        let head = SocketAddr::new(*address, found.port);
        match Node::join(head, keys.clone(), env!("CARGO_PKG_VERSION"), name) {
            Ok(link) => return Ok((head, link)),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Passes orders on until the last one.
pub(crate) fn hear(link: &Node, inputs: &Sender<Input>) {
    loop {
        let order = link.next_order();
        let last = order.is_err() || matches!(order, Ok(Order::Finish));
        if inputs.send(Input::Order(order)).is_err() || last {
            return;
        }
    }
}

/// Waits for something to do.
pub(crate) fn next_input(inputs: &Receiver<Input>, cancelled: &AtomicBool) -> Result<Input, PipelineError> {
    loop {
        match inputs.recv_timeout(Duration::from_millis(100)) {
            Ok(input) => return Ok(input),
            Err(_) if cancelled.load(Ordering::Relaxed) => return Err(PipelineError::Interrupted),
            Err(_) => {}
        }
    }
}

/// Takes orders until the last one.
fn lead(
    shared: &Shared,
    aligner: NodeAligner,
    hello: &Hello,
    shelf: &NodeShelf,
    job: &AlignWork,
    options: &NodeOptions,
    (inputs_of_orders, inputs): (Sender<Input>, Receiver<Input>),
) -> Result<(), PipelineError> {
    let (feeding, reader, stop) = aligner.split();
    let (to_feed, feed) = mpsc::channel();
    let (to_pack, pack) = mpsc::channel();
    let (to_fetch, fetch) = mpsc::channel();
    let (to_write, write) = mpsc::channel();
    let fetch = Mutex::new(fetch);
    let write = Mutex::new(write);
    let writing = Writing::default();
    std::thread::scope(|scope| {
        scope.spawn(move || hear(shared.link, &inputs_of_orders));
        let packing = to_pack.clone();
        scope.spawn(move || shared.guard(move || aligning::feed(shared, feeding, &packing, &feed)));
        if let Some(reader) = reader {
            let packing = to_pack.clone();
            scope.spawn(move || shared.guard(|| aligning::take(reader, &packing)));
        }
        scope.spawn(move || shared.guard(move || aligning::pack(shared, job, &pack)));
        for _ in 0..FETCHERS {
            scope.spawn(|| shared.guard(|| fetch_slices(shared, &fetch)));
        }
        for _ in 0..options.threads {
            scope.spawn(|| shared.guard(|| writing::write(shared, &writing, &write)));
        }
        let led = (|| loop {
            // A thread that is gone has said why; that comes next.
            match next_input(&inputs, shared.cancelled)? {
                Input::Failed(error) => return Err(error),
                Input::Order(order) => match order? {
                    Order::Finish => return Ok(()),
                    Order::Align { block, content, cuts } => {
                        shared.set_content(block, content);
                        let _ = to_feed.send((block, cuts));
                    }
                    Order::Plan { starts, shares } => {
                        plan(shared, shelf, starts, shares)?;
                        drop(to_pack.send(aligning::Packing::Planned));
                    }
                    Order::Inherit { starts, shares } => inherit(shared, &starts, shares)?,
                    Order::Fetch { block, content, shares, address: from } => {
                        drop(to_fetch.send(Fetch { block, content, shares, from }));
                    }
                    Order::Decided { job } => {
                        let job = serde_json::from_value(job).map_err(|error| malformed(error.to_string()))?;
                        writing::prepare(shared, job, hello, &writing)?;
                    }
                    Order::Rank { part, job } => {
                        let split = serde_json::from_value(job).map_err(|error| malformed(error.to_string()))?;
                        drop(to_write.send(writing::Task::Rank(part, split)));
                    }
                    Order::Write { part } => drop(to_write.send(writing::Task::Write(part))),
                    Order::Place { part, offset } => drop(to_write.send(writing::Task::Place(part, offset))),
                    Order::Refused { why } => return Err(ExchangeError::Refused { why }.into()),
                    other => return Err(nonsense(&other)),
                },
            }
        })();
        // Ends the threads: their channels close, and the aligner's answers end.
        stop.now();
        drop((to_feed, to_pack, to_fetch, to_write));
        shared.link.leave();
        led
    })
}

/// Learns how the genome is cut, and tells what is here from before.
fn plan(shared: &Shared, shelf: &NodeShelf, starts: Vec<SortKey>, shares: u16) -> Result<(), PipelineError> {
    if shared.store.get().is_some() {
        return Ok(());
    }
    let plan = PartitionPlan::from_starts(starts.clone()).ok_or_else(|| malformed("the plan is none".into()))?;
    let store = Arc::new(SliceStore::new(Shares::new(plan, usize::from(shares)), shared.spill.clone()));
    let recalled = shared.kept.recall(&starts, shares, &store).map_err(|error| shared.scratch_failed(error))?;
    shelf.fill(store.clone());
    let _ = shared.store.set(store);
    tell_held(shared, recalled)
}

/// Takes over what others left.
fn inherit(shared: &Shared, starts: &[SortKey], shares: u16) -> Result<(), PipelineError> {
    let Some(store) = shared.store.get() else { return Err(malformed("slices came before the plan".into())) };
    let inherited = shared.kept.inherit((starts, shares), shared.id.0 as usize, store);
    tell_held(shared, inherited.map_err(|error| shared.scratch_failed(error))?)
}

fn tell_held(shared: &Shared, held: Vec<(BlockId, String, Vec<Share>)>) -> Result<(), PipelineError> {
    for (block, content, shares) in held {
        shared.link.say(Report::Holds { block, content, shares })?;
    }
    Ok(shared.link.say(Report::Recalled)?)
}

/// Slices to be fetched.
struct Fetch {
    block: BlockId,
    /// What the reads of the block are.
    content: String,
    shares: Vec<Share>,
    /// Where they are.
    from: SocketAddr,
}

/// Fetches slices, one order after the other.
fn fetch_slices(shared: &Shared, orders: &Mutex<Receiver<Fetch>>) -> Result<(), PipelineError> {
    loop {
        let order = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(order) = order else { return Ok(()) };
        let (block, started) = (order.block, Instant::now());
        let report = match fetch_block(shared, order) {
            Ok(bytes) => Report::Fetched { block, seconds: started.elapsed().as_secs_f64(), bytes },
            // The other node may be gone; the head knows others.
            Err(PipelineError::Exchange(error)) => Report::FetchFailed { block, why: with_causes(&*error) },
            Err(error) => return Err(error),
        };
        shared.link.say(report)?;
    }
}

/// Fetches slices of one block; returns their bytes.
fn fetch_block(shared: &Shared, order: Fetch) -> Result<u64, PipelineError> {
    let Fetch { block, content, shares, from } = order;
    let Some(store) = shared.store.get() else { return Err(malformed("slices came before the plan".into())) };
    let ticket = Ticket::Slices { block, shares: shares.clone() };
    let mut incoming = shared.link.fetch(from, &ticket)?;
    let mut bytes_in_all = 0;
    for share in shares.iter().copied() {
        let broken = || ExchangeError::Malformed { peer: "a node", problem: "a slice is not what it should be".into() };
        let Some((table, header)) = incoming.next_batch()? else { return Err(broken().into()) };
        let header: SliceHeader = serde_json::from_slice(&header).map_err(|_| broken())?;
        let table = crate::runs::RunTable(bytes_batch::bytes(&table).to_vec());
        let offset = shared.spill.reserve(header.bytes);
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        while at < header.bytes {
            let Some((batch, _)) = incoming.next_batch()? else { return Err(broken().into()) };
            let bytes = bytes_batch::bytes(&batch);
            if bytes.len() as u64 > header.bytes - at {
                return Err(broken().into());
            }
            hasher.update(bytes);
            shared.spill.write_at(offset + at, bytes).map_err(|error| shared.scratch_failed(error))?;
            at += bytes.len() as u64;
        }
        let checksum = hasher.finalize();
        let place = SlicePlace { offset, bytes: header.bytes, checksum };
        let fits = checksum.to_hex().as_str() == header.checksum && header.share == share;
        if !fits || !store.add_slice(block, usize::from(share.0), place, &table) {
            return Err(broken().into());
        }
        bytes_in_all += header.bytes;
    }
    shared.keep(block, &content, shares.into_iter())?;
    Ok(bytes_in_all)
}

/// The name of this machine.
pub(crate) fn machine_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    read.map_or_else(|_| "this machine".to_owned(), |name| name.trim().to_owned())
}

/// The head said something that makes no sense.
pub(crate) fn malformed(problem: String) -> PipelineError {
    ExchangeError::Malformed { peer: "the head", problem }.into()
}

/// An order that does not fit the work.
pub(crate) fn nonsense(order: &Order) -> PipelineError {
    malformed(format!("{order:?} is out of place"))
}

/// Plain items as bytes to be sent.
fn buffer_of<T: bytemuck::Pod>(items: &[T]) -> Buffer {
    Buffer::from(bytemuck::cast_slice::<T, u8>(items))
}
