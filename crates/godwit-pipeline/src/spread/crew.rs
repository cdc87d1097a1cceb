//! The nodes of a run as its head sees them: they come, say things, and go. What they do meanwhile is not decided here.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_buffer::MutableBuffer;
use godwit_exchange::{Gift, Head, Incoming, Keys, NodeId, Order, Orders, Report, Shelf};
use godwit_fleet::Rendezvous;
use serde_json::Value;

use super::Spread;
use crate::error::{Blame, PipelineError};
use crate::node::NodeWork;
use crate::observer::{Event, Observer};

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

/// Something that concerns the work of a run.
pub(crate) enum News {
    /// A node is gone.
    Lost(NodeId),
    /// A node says something.
    Said(NodeId, Report),
    /// A node hands something over.
    Gave(NodeId, Gift, Vec<MutableBuffer>),
}

/// A node that is there.
struct Member {
    name: String,
    orders: Orders,
}

/// The nodes of a run. Where it is dropped, they find the head gone.
pub(crate) struct Crew<'r> {
    head: Option<Head>,
    /// Where nodes find it, and what it said there.
    meeting: PathBuf,
    rendezvous: Rendezvous,
    spread: &'r Spread<'r>,
    /// What nodes are told when they come.
    job: Value,
    members: BTreeMap<NodeId, Member>,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    /// Since when there has been no node.
    alone_since: Instant,
    last_words: Option<String>,
    /// When nodes were looked at that were started.
    looked_at: Instant,
    /// When it was last asked whether the job was started again.
    asked: Instant,
    names: Vec<String>,
    lost: usize,
}

impl<'r> Crew<'r> {
    /// Listens, tells where, and starts the nodes. `between`: where nodes find the run, unless their launcher has told them
    /// another place. `shelf`: what they can download.
    pub(crate) fn open(
        spread: &'r Spread<'r>,
        between: &Path,
        shelf: Arc<impl Shelf>,
        work: &NodeWork,
        observer: &'r dyn Observer,
        cancelled: &'r AtomicBool,
    ) -> Result<Self, PipelineError> {
        let meeting = spread.meeting.clone().unwrap_or_else(|| between.to_owned());
        Keys::make(&meeting)?;
        let address = match spread.addresses[..] {
            [only] => only,
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        let mut rendezvous = Rendezvous::at(SocketAddr::new(address, 0), spread.attempt)?;
        rendezvous.addresses.clone_from(&spread.addresses);
        let keys = Keys::of_run(rendezvous.token.reveal(), &meeting)?;
        let head = Head::open(SocketAddr::new(address, 0), keys.server, shelf)?;
        rendezvous.port = head.address().port();
        rendezvous.publish(&meeting)?;
        let job = super::for_nodes(work)?;
        spread.launch.start(&std::path::absolute(&meeting).map_err(PipelineError::file("find", &meeting))?)?;
        Ok(Self {
            head: Some(head),
            meeting,
            rendezvous,
            spread,
            job,
            members: BTreeMap::new(),
            observer,
            cancelled,
            alone_since: Instant::now(),
            last_words: None,
            looked_at: Instant::now(),
            asked: Instant::now(),
            names: Vec::new(),
            lost: 0,
        })
    }

    /// Waits a little for something that a node does. Coming and going is dealt with.
    ///
    /// # Errors
    /// [`PipelineError::Interrupted`]; [`PipelineError::NoNodes`] where none is left; [`PipelineError::Node`] for what is wrong
    /// on all of them; [`godwit_fleet::FleetError::Superseded`].
    pub(crate) fn next(&mut self) -> Result<Option<News>, PipelineError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        if self.asked.elapsed() >= ASK_FOR_LATER {
            self.asked = Instant::now();
            self.check_current()?;
        }
        let incoming = self.head.as_mut().and_then(|head| head.next(LOOK_AGAIN));
        self.check_alone()?;
        Ok(match incoming {
            Some(Incoming::Joined { node, version, name, orders }) => {
                self.join(node, version, name, orders);
                None
            }
            Some(Incoming::Lost(node, why)) => self.lose(node, &why),
            Some(Incoming::Said(node, Report::Failed { message, everywhere })) => {
                self.failed(node, message, everywhere)?
            }
            // Who was turned away may not have heard of it yet.
            Some(Incoming::Said(node, report)) => self.has(node).then_some(News::Said(node, report)),
            Some(Incoming::Gave(node, gift, pieces)) => self.has(node).then_some(News::Gave(node, gift, pieces)),
            None => None,
        })
    }

    /// Ends this head where its job was started again.
    ///
    /// # Errors
    /// [`godwit_fleet::FleetError::Superseded`].
    pub(crate) fn check_current(&self) -> Result<(), PipelineError> {
        self.spread.check_current()
    }

    fn check_alone(&mut self) -> Result<(), PipelineError> {
        // Those that came are heard of when they are lost.
        if self.names.len() < self.spread.nodes as usize && self.looked_at.elapsed() > LOOK_AT_LAUNCHED {
            self.looked_at = Instant::now();
            for last in self.spread.launch.gone() {
                self.warn(format!("{last}; the run goes on without it where there are others"));
                self.says_last(last);
            }
        }
        if !self.members.is_empty() {
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

    fn join(&mut self, node: NodeId, version: String, name: String, orders: Orders) {
        self.members.insert(node, Member { name: name.clone(), orders });
        let own = env!("CARGO_PKG_VERSION");
        if version != own {
            let why = format!("it is godwit {version}, the head is {own}; install one version everywhere");
            return self.refuse(node, why);
        }
        self.order(node, &Order::Welcome { node, job: self.job.clone() });
        self.names.push(name);
    }

    /// Turns a node away. Nothing more is heard of it.
    pub(crate) fn refuse(&mut self, node: NodeId, why: String) {
        let Some(Member { name, orders }) = self.members.remove(&node) else { return };
        self.warn(format!("{name} was refused: {why}"));
        self.says_last(format!("{name}: {why}"));
        orders.give(&Order::Refused { why });
    }

    fn lose(&mut self, node: NodeId, why: &str) -> Option<News> {
        let member = self.members.remove(&node)?;
        self.lost += 1;
        self.warn(format!("lost {}: {why}; others go on with its work", member.name));
        self.says_last(format!("{}: {why}", member.name));
        Some(News::Lost(node))
    }

    fn failed(
        &mut self,
        node: NodeId,
        message: String,
        everywhere: Option<Value>,
    ) -> Result<Option<News>, PipelineError> {
        let Some(Member { name, .. }) = self.members.get(&node) else { return Ok(None) };
        if let Some(blame) = everywhere {
            let blame = serde_json::from_value(blame).unwrap_or(Blame::Engine);
            return Err(PipelineError::Node { node: name.clone(), message, blame });
        }
        self.last_words = Some(format!("{name}: {message}"));
        Ok(self.lose(node, &message))
    }

    /// Tells a node what to do.
    pub(crate) fn order(&self, node: NodeId, order: &Order) {
        // Who does not listen any more is about to be lost.
        let _ = self.members.get(&node).map(|member| member.orders.give(order));
    }

    /// Tells all of them.
    pub(crate) fn tell_all(&self, order: &Order) {
        self.members.keys().for_each(|node| self.order(*node, order));
    }

    /// Tells the user.
    pub(crate) fn warn(&self, message: String) {
        self.observer.event(&Event::Warning { message });
    }

    /// A node said something that is not what it should be.
    pub(crate) fn wrong(&self, node: NodeId, message: String) -> PipelineError {
        PipelineError::Node { node: self.name_of(node).to_owned(), message, blame: Blame::Engine }
    }

    /// Machine and process of a node.
    pub(crate) fn name_of(&self, node: NodeId) -> &str {
        self.members.get(&node).map_or("a node that is gone", |member| &member.name)
    }

    /// Whether a node is there.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
    }

    /// The nodes that are there.
    pub(crate) fn members(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.members.keys().copied()
    }

    /// How many were started.
    pub(crate) fn started(&self) -> usize {
        self.spread.nodes as usize
    }

    /// Says where there was not enough to do.
    pub(crate) fn compare_with_work(&self, count: usize, what: &str, verb: &str) {
        let nodes = self.started();
        if count < nodes {
            self.warn(format!("{count} {what} for {nodes} nodes: some had nothing to {verb}; ask for fewer nodes"));
        }
    }

    /// Names of those that were part of the run.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// How many were lost on the way.
    pub(crate) fn lost(&self) -> usize {
        self.lost
    }

    /// Lets the nodes go.
    pub(crate) fn finish(&mut self) {
        self.tell_all(&Order::Finish);
        let until = Instant::now() + GRACE;
        while !self.members.is_empty() && Instant::now() < until {
            if let Some(Incoming::Lost(node, _)) = self.head.as_mut().and_then(|head| head.next(LOOK_AGAIN)) {
                self.members.remove(&node);
            }
        }
        self.spread.launch.stop();
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        // Nodes see the connection end, and that nobody is there to come back to.
        self.rendezvous.withdraw(&self.meeting);
        if let Some(head) = self.head.take() {
            head.close(Duration::from_millis(100));
        }
        self.spread.launch.stop();
    }
}
