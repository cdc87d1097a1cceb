//! The head of a run over many nodes: reads the input, hands out blocks, decides duplicates, puts the file together.
//!
//! What to do next is decided by [`godwit_exchange::Ledger`]; here it is carried out. Records never come here: only
//! signatures, the tables of slices, and what parts add up to.

mod gathering;
mod reads;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_engines::aligner::{Hello, Identity};
use godwit_exchange::{
    Action, Event as LedgerEvent, Head, Incoming, Keys, Ledger, LedgerOptions, NodeId, Order, Orders, Report,
};
use godwit_fleet::{FleetError, Rendezvous, Token};
use godwit_model::{BlockId, PartitionPlan};
use serde::Serialize;
use serde_json::Value;

use super::header::LaneGroups;
use super::{AlignOptions, PlannedLanes};
use crate::error::{Blame, PipelineError};
use crate::journal::OverNodes;
use crate::node::{AlignWork, KeepAt, LaneWork};
use crate::observer::{Event, Observer};
use crate::run_directory::RunDirectory;
use crate::runs::Shares;

use reads::ReadsSpool;
pub(super) use stage::SpreadJob;

/// How long the head waits for something to happen before it looks at the clock.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long a run goes on without any node.
const WITHOUT_NODES: Duration = Duration::from_secs(60);
/// How often nodes are looked at that were started and did not come.
const LOOK_AT_LAUNCHED: Duration = Duration::from_millis(200);
/// How long nodes have to hear the last order.
const GRACE: Duration = Duration::from_secs(2);

/// How often the head asks whether its job was started again.
const ASK_FOR_LATER: Duration = Duration::from_secs(2);
/// Shares for each node at the start: where one is lost, several take over.
const SHARES_PER_NODE: usize = 4;
/// Digits of names that nothing else may have.
const NAME_DIGITS: usize = 16;

/// How a run is spread over nodes.
pub struct Spread<'l> {
    /// Number of nodes that are started; more may come, and some may go.
    pub nodes: u32,
    /// Addresses of this machine that nodes come to, best first: where there is one the head listens there alone.
    pub addresses: Vec<IpAddr>,
    /// The directory where nodes find it, where the launcher has one that they know already.
    pub meeting: Option<PathBuf>,
    /// The start of the job that this is; nodes of earlier ones are turned away.
    pub attempt: u64,
    /// Whether all nodes are on one machine.
    pub one_machine: bool,
    /// Starts them.
    pub launch: &'l dyn Launch,
}

/// Starts nodes.
pub trait Launch: Sync {
    /// Starts all nodes, which find the run in this directory.
    ///
    /// # Errors
    /// [`PipelineError`].
    fn start(&self, meeting: &Path) -> Result<(), PipelineError>;

    /// What nodes said last that have ended since this was asked before, each with its number.
    fn gone(&self) -> Vec<String>;

    /// Whether none of them can come any more.
    fn ended(&self) -> bool;

    /// Stops those that still run, after they had time to end by themselves.
    fn stop(&self);

    /// The number of a later start of this very job, where there is one: this one has to end.
    fn later_start(&self) -> Option<u64>;
}

impl Spread<'_> {
    /// What the run is known by, if it starts now.
    pub(super) fn over_nodes(&self) -> Result<OverNodes, PipelineError> {
        Ok(OverNodes { run: fresh_name()?, shares: (SHARES_PER_NODE * self.nodes as usize) as u16 })
    }
}

/// A name that nothing else has.
fn fresh_name() -> Result<String, PipelineError> {
    Ok(Token::random()?.reveal()[..NAME_DIGITS].to_owned())
}

/// What the exchange between nodes took.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExchangeReport {
    /// Names of the nodes that were part of the run.
    pub nodes: Vec<String>,
    /// Nodes that were lost on the way.
    pub lost_nodes: usize,
    /// Blocks given to a node, those given again included.
    pub alignments: u64,
    /// Blocks of the run.
    pub blocks: u64,
    /// Those of them that nodes had when this head began, from one before it.
    pub kept_blocks: u64,
    /// Slices that went from node to node, bytes.
    pub fetched_bytes: u64,
    /// Time spent fetching, seconds, over all nodes.
    pub fetching_seconds: f64,
    /// Bytes that came to the head: signatures, tables, reports of parts.
    pub head_bytes: u64,
    /// Time from the last aligned block until every slice was where it belongs, seconds: what alignment did not hide.
    pub exposed_seconds: f64,
}

/// A node as the head sees it.
struct Peer {
    name: String,
    orders: Orders,
    /// Where others fetch from, once it is ready.
    address: Option<SocketAddr>,
}

/// The head, listening.
pub(super) struct HeadOfRun<'r> {
    head: Option<Head>,
    /// Where nodes find it, and what it said there.
    meeting: PathBuf,
    rendezvous: Rendezvous,
    run: &'r RunDirectory,
    spool: Arc<ReadsSpool>,
    spread: &'r Spread<'r>,
    ledger: Ledger,
    peers: BTreeMap<NodeId, Peer>,
    observer: &'r dyn Observer,
    cancelled: &'r Arc<AtomicBool>,
    started: Instant,
    /// Since when there has been no node.
    alone_since: Instant,
    last_words: Option<String>,
    /// When nodes were looked at that were started.
    looked_at: Instant,
    work: AlignWork,
    hello: Option<Hello>,
    actions: Vec<Action>,
    /// What the reads of each block are, as far as they were read.
    contents: BTreeMap<BlockId, String>,
    /// Nodes that have said all they have from before.
    recalled: BTreeSet<NodeId>,
    /// When it last asked whether its job was started again.
    asked: Instant,
    /// What nodes that come later have to be told too.
    plan: Option<Order>,
    decided: Option<Order>,
    report: ExchangeReport,
}

/// Refuses what nodes cannot do.
///
/// # Errors
/// [`PipelineError::Options`].
pub(super) fn check(options: &AlignOptions) -> Result<(), PipelineError> {
    let problem = if options.aligner.identity() == Identity::SingleStream {
        format!(
            "{} cannot be spread over nodes: nothing is known of what it keeps from read to read, so that one process has to \
             see a lane from end to end; leave out --on, or use bwa, bwa-mem2 or minimap2",
            options.aligner.name()
        )
    } else {
        return Ok(());
    };
    Err(PipelineError::Options { problem })
}

impl<'r> HeadOfRun<'r> {
    /// Listens, tells where, and starts the nodes.
    pub(super) fn open(
        spread: &'r Spread<'r>,
        options: &AlignOptions,
        lanes: &PlannedLanes,
        run: &'r RunDirectory,
        observer: &'r dyn Observer,
        cancelled: &'r Arc<AtomicBool>,
    ) -> Result<Self, PipelineError> {
        let between = run.for_nodes().map_err(PipelineError::file("make the run directory in", &options.out))?;
        let meeting = spread.meeting.clone().unwrap_or_else(|| between.clone());
        let scratch = options.job.temp.as_ref().unwrap_or(&options.out);
        let reads = run.for_reads(options.job.temp.as_deref());
        let reads = reads.map_err(PipelineError::file("use scratch space in", scratch))?;
        let spool = Arc::new(ReadsSpool::new(reads, lanes.read_once()));
        let absolute = |path: &Path| std::path::absolute(path).map_err(PipelineError::file("find", path));
        Keys::make(&meeting)?;
        let address = match spread.addresses[..] {
            [only] => only,
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        let mut rendezvous = Rendezvous::at(SocketAddr::new(address, 0), spread.attempt)?;
        rendezvous.addresses.clone_from(&spread.addresses);
        let keys = Keys::of_run(rendezvous.token.reveal(), &meeting)?;
        let head = Head::open(SocketAddr::new(address, 0), keys.server, spool.clone())?;
        rendezvous.port = head.address().port();
        rendezvous.publish(&meeting)?;
        let work = AlignWork {
            reference: absolute(&options.reference)?,
            aligner: options.aligner.text().to_owned(),
            arguments: options.aligner_args.clone(),
            lanes: (0..lanes.planned.len()).map(|lane| lane_work(&lanes.groups, lane)).collect(),
            sample: options.sample.clone(),
            marking: options.job.marking,
            partitions: options.job.partitions,
            share_index: spread.one_machine && spread.nodes > 1,
            keep: Self::keep_at(run)?,
        };
        spread.launch.start(&absolute(&meeting)?)?;
        Ok(Self {
            head: Some(head),
            meeting,
            rendezvous,
            run,
            spool,
            spread,
            ledger: Ledger::new(LedgerOptions::default()),
            peers: BTreeMap::new(),
            observer,
            cancelled,
            started: Instant::now(),
            alone_since: Instant::now(),
            last_words: None,
            looked_at: Instant::now(),
            work,
            hello: None,
            actions: Vec::new(),
            contents: run.finished_blocks().map(|block| (block.id, block.content.clone())).collect(),
            recalled: BTreeSet::new(),
            asked: Instant::now(),
            plan: Self::kept_plan(run),
            decided: None,
            report: ExchangeReport::default(),
        })
    }

    fn keep_at(run: &RunDirectory) -> Result<KeepAt, PipelineError> {
        let (name, otherwise) = run.for_slices();
        let otherwise = std::path::absolute(&otherwise).map_err(PipelineError::file("find", &otherwise))?;
        let of_run = run.over_nodes().map(|over| over.run.clone());
        Ok(KeepAt { run: of_run.unwrap_or_default(), head: fresh_name()?, name, otherwise })
    }

    /// How an earlier head had the genome cut.
    fn kept_plan(run: &RunDirectory) -> Option<Order> {
        let (plan, over) = run.plan().zip(run.over_nodes())?;
        Some(plan_order(plan, over))
    }

    /// Where reads are on their way to nodes.
    pub(super) fn spool(&self) -> Arc<ReadsSpool> {
        self.spool.clone()
    }

    /// Waits for the first node, whose aligner says what it aligns to.
    pub(super) fn first_hello(&mut self) -> Result<Hello, PipelineError> {
        loop {
            if let Some(hello) = &self.hello {
                return Ok(hello.clone());
            }
            // Nothing but joining and leaving can happen before there are blocks.
            self.next()?;
        }
    }

    /// Waits a little for something that a node does; what concerns its being there is dealt with.
    fn next(&mut self) -> Result<Option<Incoming>, PipelineError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        self.check_current(ASK_FOR_LATER)?;
        let incoming = self.head.as_mut().and_then(|head| head.next(LOOK_AGAIN));
        self.check_alone()?;
        match incoming {
            Some(Incoming::Joined { node, version, name, orders }) => self.join(node, version, name, orders)?,
            Some(Incoming::Lost(node, why)) => self.lose(node, why),
            Some(Incoming::Said(node, Report::Ready { address, writers, engine_version, sq_lines })) => {
                self.ready(
                    node,
                    address,
                    writers,
                    Hello::new(env!("CARGO_PKG_VERSION").into(), engine_version, sq_lines),
                )?;
            }
            Some(Incoming::Said(node, Report::Failed { message, everywhere })) => {
                self.failed(node, message, everywhere)?
            }
            Some(Incoming::Said(node, Report::Wants)) => self.tell(LedgerEvent::Wants(node)),
            other => return Ok(other),
        }
        Ok(None)
    }

    /// Ends this head where its job was started again: two would write the same files.
    fn check_current(&mut self, every: Duration) -> Result<(), PipelineError> {
        if self.asked.elapsed() < every {
            return Ok(());
        }
        self.asked = Instant::now();
        match self.spread.launch.later_start() {
            Some(current) => Err(FleetError::Superseded { own: self.spread.attempt, current }.into()),
            None => Ok(()),
        }
    }

    fn check_alone(&mut self) -> Result<(), PipelineError> {
        // Those that came are heard of when they are lost.
        if self.report.nodes.len() < self.spread.nodes as usize && self.looked_at.elapsed() > LOOK_AT_LAUNCHED {
            self.looked_at = Instant::now();
            for last in self.spread.launch.gone() {
                self.warn(format!("{last}; the run goes on without it where there are others"));
                self.says_last(last);
            }
        }
        if !self.peers.is_empty() {
            self.alone_since = Instant::now();
            return Ok(());
        }
        if !self.spread.launch.ended() && self.alone_since.elapsed() < WITHOUT_NODES {
            return Ok(());
        }
        let gone = self.spread.launch.gone();
        gone.into_iter().for_each(|last| self.says_last(last));
        Err(PipelineError::NoNodes { last: self.last_words.take().unwrap_or_else(|| "none came".to_owned()) })
    }

    /// The first loss is what others follow from.
    fn says_last(&mut self, last: String) {
        self.last_words.get_or_insert(last);
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Tells the ledger; what is to be done waits in `actions`.
    fn tell(&mut self, event: LedgerEvent) {
        let now = self.now();
        let actions = self.ledger.on(event, now);
        self.actions.extend(actions);
    }

    /// Lets the ledger know that time goes by.
    fn tick(&mut self) {
        let now = self.now();
        let actions = self.ledger.tick(now);
        self.actions.extend(actions);
    }

    /// Takes a report that is not about the node itself.
    fn said(&mut self, node: NodeId, report: Report) {
        match report {
            Report::Fetched { block, seconds, bytes } => {
                self.report.fetched_bytes += bytes;
                self.report.fetching_seconds += seconds;
                self.tell(LedgerEvent::Fetched(node, block));
            }
            Report::FetchFailed { block, why } => {
                self.warn(format!("{} could not fetch {}: {why}", self.name_of(node), named(block)));
                self.tell(LedgerEvent::FetchFailed(node, block));
            }
            Report::Holds { block, content, shares } => self.holds(node, block, &content, shares),
            Report::Recalled => drop(self.recalled.insert(node)),
            // The genome is cut already, or it was dealt with.
            Report::Cut { .. } | Report::Ready { .. } | Report::Wants | Report::Failed { .. } => {}
        }
    }

    /// Carries out what is not peculiar to a stage.
    fn carry_out(&mut self, action: &Action, first: Option<BlockId>, spool: &ReadsSpool) {
        match action {
            Action::Align(node, block) => {
                self.report.alignments += 1;
                let cuts = self.plan.is_none() && first == Some(*block);
                self.order(*node, &Order::Align { block: *block, content: self.content_of(*block), cuts });
            }
            Action::Fetch { node, block, shares, from } => match self.address_of(*from) {
                Some(address) => {
                    let (content, shares) = (self.content_of(*block), shares.clone());
                    self.order(*node, &Order::Fetch { block: *block, content, shares, address });
                }
                None => self.tell(LedgerEvent::FetchFailed(*node, *block)),
            },
            Action::Release(block) => spool.release(*block),
            // Each stage does its own.
            Action::Refeed(_)
            | Action::Decide
            | Action::Write(..)
            | Action::Place(..)
            | Action::Differs(_)
            | Action::Finish => {}
        }
    }

    fn order(&self, node: NodeId, order: &Order) {
        // Who does not listen any more is about to be lost.
        let _ = self.peers.get(&node).map(|peer| peer.orders.give(order));
    }

    /// Says where there was not enough to do.
    fn compare_with_nodes(&self, blocks: usize) {
        let nodes = self.spread.nodes as usize;
        if blocks < nodes {
            self.warn(format!("{blocks} blocks for {nodes} nodes: some had nothing to align; ask for fewer nodes"));
        }
    }

    fn tell_all(&self, order: &Order) {
        self.peers.keys().for_each(|node| self.order(*node, order));
    }

    fn warn(&self, message: String) {
        self.observer.event(&Event::Warning { message });
    }

    fn join(&mut self, node: NodeId, version: String, name: String, orders: Orders) -> Result<(), PipelineError> {
        let own = env!("CARGO_PKG_VERSION");
        if version != own {
            let why = format!("it is godwit {version}, the head is {own}; install one version everywhere");
            self.warn(format!("{name} was refused: {why}"));
            orders.give(&Order::Refused { why: why.clone() });
            self.says_last(format!("{name}: {why}"));
            return Ok(());
        }
        let job =
            serde_json::to_value(&self.work).map_err(|error| PipelineError::Options { problem: error.to_string() })?;
        orders.give(&Order::Welcome { node, job });
        self.report.nodes.push(name.clone());
        self.peers.insert(node, Peer { name, orders, address: None });
        Ok(())
    }

    fn ready(
        &mut self,
        node: NodeId,
        address: SocketAddr,
        writers: usize,
        hello: Result<Hello, godwit_engines::aligner::protocol::ProtocolError>,
    ) -> Result<(), PipelineError> {
        let hello = hello.map_err(|error| self.wrong(node, error.to_string()))?;
        let Some(peer) = self.peers.get_mut(&node) else { return Ok(()) };
        peer.address = Some(address);
        match &self.hello {
            Some(first) if *first != hello => {
                let why = "its aligner has another version or other contigs than that of the first node".to_owned();
                peer.orders.give(&Order::Refused { why });
                self.peers.remove(&node);
            }
            first => {
                if first.is_none() {
                    self.hello = Some(hello);
                }
                for order in self.plan.iter().chain(&self.decided) {
                    peer.orders.give(order);
                }
                self.tell(LedgerEvent::Joined { node, writers });
            }
        }
        Ok(())
    }

    fn lose(&mut self, node: NodeId, why: String) {
        let Some(peer) = self.peers.remove(&node) else { return };
        self.report.lost_nodes += 1;
        self.warn(format!("lost {}: {why}; others go on with its work", peer.name));
        self.says_last(format!("{}: {why}", peer.name));
        self.tell(LedgerEvent::Lost(node));
    }

    fn failed(&mut self, node: NodeId, message: String, everywhere: Option<Value>) -> Result<(), PipelineError> {
        let name = self.peers.get(&node).map_or_else(String::new, |peer| peer.name.clone());
        if let Some(blame) = everywhere {
            let blame = serde_json::from_value(blame).unwrap_or(Blame::Engine);
            return Err(PipelineError::Node { node: name, message, blame });
        }
        self.last_words = Some(format!("{name}: {message}"));
        self.lose(node, message);
        Ok(())
    }

    /// Lets the nodes go.
    fn finish(&mut self) {
        for peer in self.peers.values() {
            peer.orders.give(&Order::Finish);
        }
        let until = Instant::now() + GRACE;
        while !self.peers.is_empty() && Instant::now() < until {
            if let Some(Incoming::Lost(node, _)) = self.head.as_mut().and_then(|head| head.next(LOOK_AGAIN)) {
                self.peers.remove(&node);
            }
        }
        self.spread.launch.stop();
    }

    /// A block is fed: its reads are known.
    fn fed(&mut self, block: BlockId) {
        if let Some(content) = self.run.content_of(block) {
            self.contents.insert(block, content);
        }
        self.tell(LedgerEvent::Fed(block));
    }

    fn content_of(&self, block: BlockId) -> String {
        self.contents.get(&block).cloned().unwrap_or_default()
    }

    /// A node said something that is not what it should be.
    fn wrong(&self, node: NodeId, message: String) -> PipelineError {
        PipelineError::Node { node: self.name_of(node).to_owned(), message, blame: Blame::Engine }
    }

    fn name_of(&self, node: NodeId) -> &str {
        self.peers.get(&node).map_or("a node that is gone", |peer| &peer.name)
    }

    fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        self.peers.get(&node).and_then(|peer| peer.address)
    }
}

impl Drop for HeadOfRun<'_> {
    fn drop(&mut self) {
        if !self.run.has_work() {
            // Nobody will go on with anything: nodes need not keep what they have.
            self.finish();
        }
        // Nodes see the connection end, and that nobody is there to come back to.
        self.rendezvous.withdraw(&self.meeting);
        if let Some(head) = self.head.take() {
            head.close(Duration::from_millis(100));
        }
        self.spread.launch.stop();
    }
}

/// What nodes have to know of how the genome is cut.
fn plan_order(plan: &PartitionPlan, over: &OverNodes) -> Order {
    let shares = Shares::new(plan.clone(), usize::from(over.shares)).shares() as u16;
    Order::Plan { starts: plan.starts().to_vec(), shares }
}

/// A block as messages name it.
fn named(block: BlockId) -> String {
    format!("block {} of lane {}", block.ordinal + 1, block.lane + 1)
}

fn lane_work(groups: &LaneGroups, lane: usize) -> LaneWork {
    LaneWork { read_group: groups.line(lane).to_owned(), read_group_id: groups.id(lane).to_owned() }
}
