//! The head of a run over many nodes: reads the input, hands out blocks, decides duplicates, puts the file together.
//!
//! What to do next is decided by [`godwit_exchange::Ledger`]; here it is carried out. Records never come here: only
//! signatures, the tables of slices, and what parts add up to.

mod gathering;
mod reads;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use godwit_engines::aligner::{Hello, Identity};
use godwit_exchange::{Action, Event as LedgerEvent, Ledger, LedgerOptions, NodeId, Order, Report};
use godwit_fleet::Token;
use godwit_model::{BlockId, PartitionPlan};
use serde::Serialize;

use super::header::LaneGroups;
use super::{AlignOptions, PlannedLanes};
use crate::error::PipelineError;
use crate::journal::OverNodes;
use crate::node::{AlignWork, KeepAt, LaneWork, NodeWork};
use crate::observer::Observer;
use crate::run_directory::RunDirectory;
use crate::runs::Shares;
use crate::spread::{Crew, News, Spread};

use reads::ReadsSpool;
pub(super) use stage::SpreadJob;

/// Shares for each node at the start: where one is lost, several take over.
const SHARES_PER_NODE: usize = 4;
/// Digits of names that nothing else may have.
const NAME_DIGITS: usize = 16;

/// What a run over nodes is known by, if it starts now.
pub(super) fn over_nodes(spread: &Spread) -> Result<OverNodes, PipelineError> {
    Ok(OverNodes { run: fresh_name()?, shares: (SHARES_PER_NODE * spread.nodes as usize) as u16 })
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
    /// The aligner of each node, with its version.
    pub aligners: BTreeMap<String, String>,
    /// Names and versions of these aligners, each once.
    #[serde(skip)]
    distinct_aligners: BTreeSet<(String, String)>,
    /// Nodes that were lost on the way.
    pub lost_nodes: usize,
    /// Blocks given to a node, those given again included.
    pub alignments: u64,
    /// Of these, those given to a second node because the first one took long.
    pub stragglers: u64,
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

impl ExchangeReport {
    /// Names and versions of all aligners of the workers, each once.
    pub(super) fn distinct_aligners(&self) -> Vec<(String, String)> {
        self.distinct_aligners.iter().cloned().collect()
    }
}

/// The head, listening.
pub(super) struct HeadOfRun<'r> {
    crew: Crew<'r>,
    run: &'r RunDirectory,
    spool: Arc<ReadsSpool>,
    ledger: Ledger,
    /// Where others fetch from those that are ready.
    addresses: BTreeMap<NodeId, SocketAddr>,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    started: Instant,
    work: AlignWork,
    hello: Option<Hello>,
    actions: Vec<Action>,
    /// What the reads of each block are, as far as they were read.
    contents: BTreeMap<BlockId, String>,
    /// Nodes that have said all they have from before.
    recalled: BTreeSet<NodeId>,
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
             see a lane from end to end; leave out --on, or use bwa, bwa-mem3 or minimap2",
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
        let scratch = options.job.temp.as_ref().unwrap_or(&options.out);
        let reads = run.for_reads(options.job.temp.as_deref());
        let reads = reads.map_err(PipelineError::file("use scratch space in", scratch))?;
        let spool = Arc::new(ReadsSpool::new(reads, lanes.read_once()));
        let reference = &options.reference;
        let work = AlignWork {
            reference: std::path::absolute(reference).map_err(PipelineError::file("find", reference))?,
            aligner: options.aligner.text().to_owned(),
            arguments: options.aligner_args.clone(),
            block_bases: options.block_bases,
            lanes: (0..lanes.planned.len()).map(|lane| lane_work(&lanes.groups, lane)).collect(),
            sample: options.sample.clone(),
            marking: options.job.marking,
            partitions: options.job.partitions,
            processes_of_host: if spread.one_machine { u64::from(spread.nodes) } else { 1 },
            step: lanes.step.clone(),
            keep: Self::keep_at(run)?,
        };
        let told = NodeWork::Align(work.clone());
        Ok(Self {
            crew: Crew::open(spread, &between, spool.clone(), &told, observer, cancelled)?,
            run,
            spool,
            ledger: Ledger::new(LedgerOptions::default()),
            addresses: BTreeMap::new(),
            observer,
            cancelled,
            started: Instant::now(),
            work,
            hello: None,
            actions: Vec::new(),
            contents: run.finished_blocks().map(|block| (block.id, block.content.clone())).collect(),
            recalled: BTreeSet::new(),
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
    fn next(&mut self) -> Result<Option<News>, PipelineError> {
        match self.crew.next()? {
            Some(News::Lost(node)) => self.tell(LedgerEvent::Lost(node)),
            Some(News::Said(
                node,
                Report::Ready { address, writers, engine_version, aligner, aligner_version, sq_lines },
            )) => {
                let hello = Hello::new(env!("CARGO_PKG_VERSION").into(), engine_version, sq_lines);
                self.ready(node, (address, writers), (aligner, aligner_version), hello)?;
            }
            Some(News::Said(node, Report::Wants)) => self.tell(LedgerEvent::Wants(node)),
            other => return Ok(other),
        }
        Ok(None)
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
                self.crew.warn(format!("{} could not fetch {}: {why}", self.crew.name_of(node), named(block)));
                self.tell(LedgerEvent::FetchFailed(node, block));
            }
            Report::Holds { block, content, shares } => self.holds(node, block, &content, shares),
            Report::Recalled => drop(self.recalled.insert(node)),
            // The genome is cut already, it was dealt with, or it is about other work.
            Report::Cut { .. }
            | Report::Ready { .. }
            | Report::ReadyToCall { .. }
            | Report::Wants
            | Report::CallFailed { .. }
            | Report::ReadyToSearch { .. }
            | Report::WorkerEnded { .. }
            | Report::Failed { .. } => {}
        }
    }

    /// Carries out what is not peculiar to a stage.
    fn carry_out(&mut self, action: &Action, first: Option<BlockId>, spool: &ReadsSpool) {
        match action {
            Action::Align(node, block) => {
                self.report.alignments += 1;
                let cuts = self.plan.is_none() && first == Some(*block);
                self.crew.order(*node, &Order::Align { block: *block, content: self.content_of(*block), cuts });
            }
            Action::Fetch { node, block, shares, from } => match self.addresses.get(from).copied() {
                Some(address) if self.crew.has(*from) => {
                    let (content, shares) = (self.content_of(*block), shares.clone());
                    self.crew.order(*node, &Order::Fetch { block: *block, content, shares, address });
                }
                _ => self.tell(LedgerEvent::FetchFailed(*node, *block)),
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

    fn ready(
        &mut self,
        node: NodeId,
        (address, writers): (SocketAddr, usize),
        (aligner, version): (String, String),
        hello: Result<Hello, godwit_engines::aligner::protocol::ProtocolError>,
    ) -> Result<(), PipelineError> {
        let hello = hello.map_err(|error| self.crew.wrong(node, error.to_string()))?;
        if self.hello.as_ref().is_some_and(|first| *first != hello) {
            let why = "its aligner has another version or other contigs than that of the first node".to_owned();
            self.crew.refuse(node, why);
            return Ok(());
        }
        self.addresses.insert(node, address);
        self.report.aligners.insert(self.crew.name_of(node).to_string(), format!("{aligner} {version}"));
        self.report.distinct_aligners.insert((aligner, version));
        self.hello.get_or_insert(hello);
        for order in self.plan.iter().chain(&self.decided) {
            self.crew.order(node, order);
        }
        self.tell(LedgerEvent::Joined { node, writers });
        Ok(())
    }

    /// What the exchange took, so far.
    fn take_report(&mut self) -> ExchangeReport {
        let (nodes, lost_nodes) = (self.crew.names().to_vec(), self.crew.lost());
        ExchangeReport { nodes, lost_nodes, stragglers: self.ledger.stragglers(), ..std::mem::take(&mut self.report) }
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
}

impl Drop for HeadOfRun<'_> {
    fn drop(&mut self) {
        if !self.run.has_work() {
            // Nobody will go on with anything: nodes need not keep what they have.
            self.crew.finish();
        }
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
