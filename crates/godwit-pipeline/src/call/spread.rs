//! Regions over nodes: the head hands them out and keeps what comes back.
//!
//! Which regions there are and what a caller is shown was decided before, as for one process. Who calls which is decided by
//! [`Leases`]: the most expensive ones first, those of a lost node again, those that take long a second time, and the first
//! to come back counts. A silent node is known by its connection, so leases themselves do not run out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_buffer::MutableBuffer;
use godwit_exchange::{Gift, Item, NodeId, Order, Report, Shelf, Ticket};
use godwit_fleet::Leases;
use godwit_fleet::leases::{Answer, Attempt, Commit, ItemId, Terms};
use serde_json::Value;

use super::attempts::ATTEMPTS;
use super::kept::{CallRun, Effort};
use super::node::{CallWork, RegionJob};
use super::work::{CalledRegion, Tally};
use super::{Budget, CallJob, Called, plan};
use crate::error::PipelineError;
use crate::fingerprint::FingerprintKey;
use crate::journal::Fact;
use crate::node::NodeWork;
use crate::spread::{Crew, News, Spread};

/// How often nodes that wait are looked at again where nothing happens.
const DEAL_AGAIN: Duration = Duration::from_millis(100);
/// What takes this many times the mean is given to a second node that has nothing else to do; as blocks are.
const STRAGGLER_FACTOR: f64 = 3.0;
/// What takes less is not slow: starting a caller alone may take as long.
const STRAGGLER_AT_LEAST: Duration = Duration::from_secs(1);

/// Nodes of a run that calls download nothing.
struct EmptyShelf;

impl Shelf for EmptyShelf {
    fn open(&self, _: &Ticket) -> io::Result<Item> {
        Err(io::Error::new(io::ErrorKind::NotFound, "there is nothing to download"))
    }
}

/// A region that is to be called.
struct DealtRegion {
    /// Its place in the grid.
    index: usize,
    /// How often it was handed out.
    issue: u32,
    failures: u32,
    failed_on: Option<NodeId>,
}

/// Regions on their way to nodes and back.
struct Dealing<'r> {
    job: &'r CallJob<'r>,
    run: &'r CallRun,
    crew: Crew<'r>,
    leases: Leases,
    attempt: Attempt,
    started: Instant,
    /// By number of their item: the most expensive first.
    dealt: Vec<DealtRegion>,
    /// Nodes that may call, and how many more regions each has room for.
    wants: BTreeMap<NodeId, usize>,
    /// Callers of all nodes that came.
    callers: usize,
    tally: Tally,
    /// Regions that were called by now, and the time that took in all.
    done: (u32, f64),
}

/// Has all regions called that are not kept yet.
///
/// # Errors
/// [`PipelineError`]; what was done is kept.
pub(super) fn call_on_nodes(job: &CallJob, spread: &Spread, run: &CallRun) -> Result<Called, PipelineError> {
    let tally = Tally::new(run, job.regions.len());
    let left = tally.left(&plan::order(&job.regions));
    if left.is_empty() {
        return Ok(Called { kept: tally.complete()?, workers: 0, nodes: Vec::new(), lost_nodes: Some(0) });
    }
    let between = run.for_nodes().map_err(PipelineError::file("make the run directory of", &job.options.out))?;
    let work = NodeWork::Call(work(job, spread, &between)?);
    let crew = Crew::open(spread, &between, Arc::new(EmptyShelf), &work, job.observer, job.cancelled)?;
    let mut leases = Leases::new(Terms { lease: Duration::MAX, straggler_after: Duration::MAX });
    leases.add(left.len() as u64);
    leases.close();
    let dealt = |index| DealtRegion { index, issue: 0, failures: 0, failed_on: None };
    let mut dealing = Dealing {
        job,
        run,
        crew,
        leases,
        attempt: Attempt(spread.attempt),
        started: Instant::now(),
        dealt: left.into_iter().map(dealt).collect(),
        wants: BTreeMap::new(),
        callers: 0,
        tally,
        done: (0, 0.0),
    };
    let dealt = dealing.run();
    // Whatever ended it, nodes have nothing that anybody could go on with.
    dealing.crew.finish();
    dealt?;
    let Dealing { crew, tally, callers, .. } = dealing;
    // One that lost the head for a while is named twice.
    let mut told = BTreeSet::new();
    let nodes = crew.names().iter().filter(|name| told.insert(*name)).cloned().collect();
    Ok(Called { kept: tally.complete()?, workers: callers, nodes, lost_nodes: Some(crew.lost()) })
}

fn work(job: &CallJob, spread: &Spread, between: &Path) -> Result<CallWork, PipelineError> {
    let options = job.options;
    Ok(CallWork {
        // As they were given, for callers write them into headers: launchers start nodes in the head's working directory.
        reference: options.reference.clone(),
        reads: job.reads.paths(),
        normal: job.reads.normal().map(|normal| normal.reads.to_owned()),
        caller: options.caller.text().to_owned(),
        caller_args: options.caller_args.clone(),
        budget: Budget { shared_by: if spread.one_machine { spread.nodes } else { 1 }, ..Budget::of(options) },
        scratch: std::path::absolute(between).map_err(PipelineError::file("find", between))?,
        program: options.program.clone(),
    })
}

/// A node's name among leases: its number is never used again.
fn worker(node: NodeId) -> String {
    node.0.to_string()
}

impl Dealing<'_> {
    /// Hands out regions until all are called.
    fn run(&mut self) -> Result<(), PipelineError> {
        let mut dealt_at = Instant::now();
        let mut changed = true;
        while !self.leases.is_finished() {
            if changed || dealt_at.elapsed() > DEAL_AGAIN {
                self.deal()?;
                dealt_at = Instant::now();
            }
            let news = self.crew.next()?;
            changed = news.is_some();
            match news {
                Some(News::Lost(node)) => self.lose(node),
                Some(News::Said(node, Report::ReadyToCall { callers, facts })) => self.ready(node, callers, facts)?,
                Some(News::Said(node, Report::Wants)) => {
                    let _ = self.wants.get_mut(&node).map(|wants| *wants += 1);
                }
                Some(News::Said(node, Report::CallFailed { item, message })) => {
                    self.failed(node, ItemId(item), &message)?;
                }
                Some(News::Gave(node, Gift::Region { item, records, seconds }, pieces)) => {
                    self.take(node, ItemId(item), (records, seconds), pieces)?;
                }
                Some(News::Said(node, report)) => return Err(self.crew.wrong(node, format!("{report:?}"))),
                Some(News::Gave(node, gift, _)) => return Err(self.crew.wrong(node, format!("{gift:?}"))),
                None => {}
            }
        }
        self.crew.compare_with_work(self.dealt.len(), "regions", "call");
        Ok(())
    }

    /// Gives each node that has room a region, and again, until nobody takes one.
    fn deal(&mut self) -> Result<(), PipelineError> {
        let mut asking: Vec<NodeId> =
            self.wants.iter().filter(|(_, wants)| **wants > 0).map(|(node, _)| *node).collect();
        while !asking.is_empty() {
            let mut still = Vec::new();
            for node in asking {
                if self.deal_one(node)? {
                    still.push(node);
                }
            }
            asking = still;
        }
        Ok(())
    }

    /// Gives a node a region. Returns whether it takes another one.
    fn deal_one(&mut self, node: NodeId) -> Result<bool, PipelineError> {
        let alone = self.wants.len() == 1;
        let suits = |item: ItemId| {
            alone || self.dealt.get(item.0 as usize).is_some_and(|region| region.failed_on != Some(node))
        };
        let answer = self.leases.ask_for(&worker(node), self.attempt, suits, self.started.elapsed());
        let Answer::Work { item, issue, .. } = answer else { return Ok(false) };
        let dealt = &mut self.dealt[item.0 as usize];
        dealt.issue = issue;
        let planned = &self.job.regions[dealt.index];
        let job = RegionJob { region: planned.region.clone(), ploidy: planned.ploidy };
        let job = serde_json::to_value(job).map_err(|error| PipelineError::Options { problem: error.to_string() })?;
        self.crew.order(node, &Order::Call { item: item.0, job });
        let wants = self.wants.entry(node).or_default();
        *wants = wants.saturating_sub(1);
        Ok(*wants > 0)
    }

    fn lose(&mut self, node: NodeId) {
        self.wants.remove(&node);
        self.leases.leave(&worker(node));
    }

    /// A node has looked at what it would call from. It may call where that is what the head saw.
    fn ready(&mut self, node: NodeId, callers: usize, facts: Value) -> Result<(), PipelineError> {
        let facts: Vec<Fact> =
            serde_json::from_value(facts).map_err(|error| self.crew.wrong(node, error.to_string()))?;
        match facts.iter().find_map(|fact| difference(fact, &self.job.facts)) {
            Some(why) => self.crew.refuse(node, why),
            None => {
                self.wants.insert(node, 0);
                self.callers += callers;
            }
        }
        Ok(())
    }

    /// A caller failed. Its region is tried again, where there is another node there.
    fn failed(&mut self, node: NodeId, item: ItemId, message: &str) -> Result<(), PipelineError> {
        // Where another node was faster, or the node was given up, nobody minds.
        if !self.leases.give_back(&worker(node), self.attempt, item, self.started.elapsed()) {
            return Ok(());
        }
        let dealt = &mut self.dealt[item.0 as usize];
        dealt.failures += 1;
        dealt.failed_on = Some(node);
        let region = self.job.regions[dealt.index].name.clone();
        let (attempts, node) = (dealt.failures, self.crew.name_of(node).to_owned());
        if attempts == ATTEMPTS {
            return Err(PipelineError::RegionOnNode { region, attempts, node, message: message.to_owned() });
        }
        let message = format!("calling {region} failed on {node} and is tried again: {message}");
        self.crew.warn(message.replace('\n', " | "));
        Ok(())
    }

    /// Keeps what a node called, if it is the first to do so.
    fn take(
        &mut self,
        node: NodeId,
        item: ItemId,
        (records, seconds): (u64, f64),
        pieces: Vec<MutableBuffer>,
    ) -> Result<(), PipelineError> {
        let [header, lines] = pieces.as_slice() else {
            return Err(self.crew.wrong(node, "a region came without its data".to_owned()));
        };
        match self.leases.commit(&worker(node), self.attempt, item, self.started.elapsed()) {
            Commit::First { others } => {
                let others = others.iter().filter_map(|other| other.parse().ok());
                others.for_each(|other| self.crew.order(NodeId(other), &Order::Leave { item: item.0 }));
            }
            Commit::Late | Commit::Fenced { .. } | Commit::NeverIssued => return Ok(()),
        }
        let DealtRegion { index, issue, .. } = self.dealt[item.0 as usize];
        let called = CalledRegion { header: header.to_vec(), lines: lines.to_vec(), records, seconds };
        let effort = Effort { attempts: issue, node: Some(self.crew.name_of(node).to_owned()) };
        let kept = self.run.keep(index, called, effort);
        let kept = kept.map_err(PipelineError::file("keep what was called for", &self.job.options.out))?;
        self.tally.take(index, kept, self.job.observer);
        self.done = (self.done.0 + 1, self.done.1 + seconds);
        let long = STRAGGLER_FACTOR * self.done.1 / f64::from(self.done.0);
        let long = Duration::try_from_secs_f64(long).unwrap_or(Duration::MAX);
        self.leases.set_straggler_after(long.max(STRAGGLER_AT_LEAST));
        Ok(())
    }
}

/// Why a node that saw this is none of the run.
fn difference(theirs: &Fact, ours: &[Fact]) -> Option<String> {
    let Fact { name, value } = theirs;
    let own = ours.iter().find(|fact| fact.name == *name).map_or("", |fact| &fact.value);
    if own == value {
        return None;
    }
    let remedy = if FingerprintKey::CallerVersion.is_of(theirs) {
        "install one version everywhere"
    } else {
        "all nodes have to see the same files, none of which may change while it runs"
    };
    Some(format!("{name}: there {value}, on the head {own}; {remedy}"))
}
