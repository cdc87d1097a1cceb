//! A search over nodes: workers are processes of nodes, and what they are asked and say goes over the network.
//!
//! Which worker does what, and what becomes of one that is lost, is the business of `godwit-search`, as on one machine. Here its
//! workers are given seats on nodes. A node that is lost takes its workers along; they are started anew on others, and what they
//! had is done again. Their reports go from nodes into the file themselves; hits go to the head, and from there to owners.

pub(crate) mod node;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_exchange::{Gift, Item, NodeId, Order, Report, Shelf, Ticket, bytes_batch};
use godwit_search::{Ending, Engine, Place, Said, Search, SearchError, SearchOptions, Step, Summary};
use serde::{Deserialize, Serialize};

use crate::error::PipelineError;
use crate::node::NodeWork;
use crate::observer::Observer;
use crate::scratch::{ScratchDirectory, unique};
use crate::spread::{Crew, News, Spread};

/// How long nodes that were started are waited for once one is ready. Others may come later, and take the place of lost ones.
const FOR_OTHERS: Duration = Duration::from_secs(20);

/// What nodes have to know to search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SearchWork {
    engine: Engine,
    /// Workers of each node; `None`: as many as it has threads.
    workers: Option<usize>,
}

/// Searches over nodes, and writes the output. `query` is a file that all nodes see; `workers`: those of each node, where that is
/// not the number of its threads. `step` hears how far it is.
///
/// # Errors
/// [`SearchError`]; where nodes are the trouble, [`SearchError::Place`] of a [`PipelineError`].
pub fn search_on_nodes(
    options: &SearchOptions,
    query: &Path,
    workers: Option<usize>,
    spread: &Spread,
    (observer, cancelled): (&dyn Observer, &AtomicBool),
    step: &dyn Fn(Step),
) -> Result<Summary, SearchError> {
    let meeting = meeting_directory(options.command.out.as_deref()).map_err(of_nodes)?;
    let query = std::path::absolute(query).map_err(|source| SearchError::File {
        action: "find",
        path: query.to_owned(),
        source,
    })?;
    let hash = node::checksum(&query).map_err(of_nodes)?;
    let work = NodeWork::Search(SearchWork { engine: options.command.engine(query.clone()), workers });
    let shelf = Arc::new(FrameShelf::default());
    let crew = Crew::open(spread, meeting.path(), shelf.clone(), &work, observer, cancelled).map_err(of_nodes)?;
    let place = NodePlace::gather(crew, shelf, hash).map_err(of_nodes)?;
    Search::open(options, &query, Box::new(place), cancelled)?.run(step)
}

fn of_nodes(error: PipelineError) -> SearchError {
    SearchError::Place(Box::new(error))
}

/// The directory beside the output through which workers find the head.
fn meeting_directory(out: Option<&Path>) -> Result<ScratchDirectory, PipelineError> {
    let out = out.unwrap_or(Path::new("search"));
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = out.with_file_name(format!(".{name}.{}-{}.godwit-nodes", std::process::id(), unique()));
    ScratchDirectory::create(&path).map_err(PipelineError::file("make the directory where nodes meet,", path))
}

/// What workers are asked, until their node has fetched it.
#[derive(Default)]
struct FrameShelf(Mutex<HashMap<u64, Vec<u8>>>);

impl FrameShelf {
    fn frames(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf for FrameShelf {
    fn open(&self, ticket: &Ticket) -> io::Result<Item> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no such frame");
        let Ticket::Frame { frame } = ticket else { return Err(missing()) };
        let bytes = self.frames().remove(frame).ok_or_else(missing)?;
        let batches = bytes_batch::cut(vec![Buffer::from_vec(bytes)]).map(|batch| Ok((batch, Bytes::new())));
        Ok(Item { schema: bytes_batch::schema(), batches: Box::new(batches) })
    }
}

/// Where a worker is.
#[derive(Default)]
struct Seat {
    /// `None`: on no node, because there is none at the moment.
    node: Option<NodeId>,
    attempt: u64,
    /// What it is to be asked once it is on a node.
    waiting: Vec<Vec<u8>>,
    /// Frames on their way to it.
    sent: Vec<u64>,
    ending: Option<Ending>,
}

/// Workers on nodes.
struct NodePlace<'r> {
    crew: Crew<'r>,
    shelf: Arc<FrameShelf>,
    /// Number of the next frame.
    next_frame: u64,
    /// Nodes that search, and how many workers each has room for.
    nodes: BTreeMap<NodeId, usize>,
    seats: Vec<Seat>,
    engine: Option<String>,
    /// Checksum of the queries.
    queries: String,
    /// What is to be told of workers.
    told: VecDeque<Said>,
}

impl<'r> NodePlace<'r> {
    /// Waits for the nodes.
    fn gather(crew: Crew<'r>, shelf: Arc<FrameShelf>, queries: String) -> Result<Self, PipelineError> {
        let (nodes, seats, told) = Default::default();
        let mut place = Self { crew, shelf, next_frame: 0, nodes, seats, engine: None, queries, told };
        let mut first = None;
        while place.nodes.len() < place.crew.started() {
            if !place.nodes.is_empty() && first.get_or_insert_with(Instant::now).elapsed() > FOR_OTHERS {
                place.crew.warn(format!(
                    "searching with {} of {} nodes; others that come take the place of lost ones",
                    place.nodes.len(),
                    place.crew.started()
                ));
                break;
            }
            place.look()?;
        }
        let count = place.nodes.values().sum();
        place.seats = (0..count).map(|_| Seat::default()).collect();
        Ok(place)
    }

    /// Looks whether something happened, for a moment.
    fn look(&mut self) -> Result<(), PipelineError> {
        match self.crew.next()? {
            None => {}
            Some(News::Lost(node)) => self.lose(node),
            Some(News::Said(node, Report::ReadyToSearch { workers, engine, queries })) => {
                self.admit(node, workers, engine, &queries);
            }
            Some(News::Said(_, Report::WorkerEnded { worker, attempt, how, last_words })) => {
                if let Some(seat) = self.seats.get_mut(worker).filter(|seat| seat.attempt == attempt) {
                    seat.ending = Some(Ending { how, last_words });
                    self.told.push_back(Said { worker, attempt, frame: None });
                }
            }
            Some(News::Gave(_, Gift::Frame { worker, attempt }, pieces)) => {
                if let Some(seat) = self.seats.get_mut(worker).filter(|seat| seat.attempt == attempt) {
                    // It has all that it was asked before.
                    seat.sent.clear();
                    let frame = pieces.first().map(|piece| piece.to_vec());
                    self.told.push_back(Said { worker, attempt, frame: Some(frame.unwrap_or_default()) });
                }
            }
            Some(News::Said(node, report)) => return Err(self.crew.wrong(node, format!("{report:?}"))),
            Some(News::Gave(node, gift, _)) => return Err(self.crew.wrong(node, format!("{gift:?}"))),
        }
        Ok(())
    }

    /// A node may search where it has what others have. Those who wait for a node are started there.
    fn admit(&mut self, node: NodeId, workers: usize, engine: String, queries: &str) {
        let own = self.engine.get_or_insert_with(|| engine.clone());
        if *own != engine {
            let why = format!("its engine is {engine}, that of others {own}; install one version everywhere");
            return self.crew.refuse(node, why);
        }
        if queries != self.queries {
            let why = "it sees other queries than the head; all nodes have to see the same files".to_owned();
            return self.crew.refuse(node, why);
        }
        self.nodes.insert(node, workers);
        let homeless: Vec<usize> = (0..self.seats.len()).filter(|seat| self.seats[*seat].node.is_none()).collect();
        for worker in homeless {
            // What is lost was told of, and its next start is what waits.
            if self.seats[worker].ending.is_none() {
                self.seat(worker);
            }
        }
    }

    fn lose(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        for (worker, seat) in self.seats.iter_mut().enumerate() {
            if seat.node == Some(node) {
                seat.node = None;
                let mut frames = self.shelf.frames();
                seat.sent.drain(..).for_each(|frame| drop(frames.remove(&frame)));
                let how = "was lost with its node".to_owned();
                seat.ending = Some(Ending { how, last_words: "none".to_owned() });
                self.told.push_back(Said { worker, attempt: seat.attempt, frame: None });
            }
        }
    }

    /// Starts a worker on the node that has the most room, if there is any.
    fn seat(&mut self, worker: usize) {
        let taken = |node: NodeId| self.seats.iter().filter(|seat| seat.node == Some(node)).count();
        let load = |node: NodeId, room: usize| taken(node) as f64 / room.max(1) as f64;
        let nodes = self.nodes.iter().map(|(node, room)| (*node, load(*node, *room)));
        let Some((node, _)) = nodes.min_by(|left, right| left.1.total_cmp(&right.1)) else { return };
        let seat = &mut self.seats[worker];
        seat.node = Some(node);
        let (attempt, waiting) = (seat.attempt, std::mem::take(&mut seat.waiting));
        self.crew.order(node, &Order::StartWorker { worker, attempt });
        waiting.into_iter().for_each(|frame| self.send(worker, node, frame));
    }

    fn send(&mut self, worker: usize, node: NodeId, bytes: Vec<u8>) {
        let frame = self.next_frame;
        self.next_frame += 1;
        self.shelf.frames().insert(frame, bytes);
        let seat = &mut self.seats[worker];
        seat.sent.push(frame);
        self.crew.order(node, &Order::AskWorker { worker, attempt: seat.attempt, frame });
    }
}

impl Place for NodePlace<'_> {
    fn workers(&self) -> usize {
        self.seats.len()
    }

    fn engine(&self) -> String {
        self.engine.clone().unwrap_or_default()
    }

    fn is_spread(&self) -> bool {
        true
    }

    fn start(&mut self, worker: usize, attempt: u64) -> Result<(), SearchError> {
        self.seats[worker] = Seat { attempt, ..Seat::default() };
        self.seat(worker);
        Ok(())
    }

    fn ask(&mut self, worker: usize, frame: Vec<u8>) {
        match self.seats[worker].node {
            Some(node) => self.send(worker, node, frame),
            None => self.seats[worker].waiting.push(frame),
        }
    }

    fn hear(&mut self) -> Result<Option<Said>, SearchError> {
        if self.told.is_empty() {
            self.look().map_err(of_nodes)?;
        }
        Ok(self.told.pop_front())
    }

    fn end(&mut self, worker: usize) -> Ending {
        let lost = || Ending { how: "is lost".into(), last_words: "none".into() };
        self.seats[worker].ending.take().unwrap_or_else(lost)
    }

    fn kill(&mut self, worker: usize) {
        // What it was asked stays on the shelf, for its node is about to fetch it.
        let seat = &mut self.seats[worker];
        seat.waiting.clear();
        if let Some(node) = seat.node.take() {
            self.crew.order(node, &Order::EndWorker { worker, attempt: seat.attempt });
        }
    }

    fn nodes(&self) -> (u32, u32) {
        (self.crew.names().len() as u32, self.crew.lost() as u32)
    }
}

impl Drop for NodePlace<'_> {
    fn drop(&mut self) {
        // Whatever ended the search, nodes have nothing that anybody could go on with.
        self.crew.finish();
    }
}
