//! A node that searches: starts workers, and carries frames between them and the head.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use arrow_buffer::Buffer;
use godwit_exchange::{ExchangeError, Gift, Node, NodeId, Order, Report, Ticket, bytes_batch};
use godwit_search::{Ending, Said, WorkerProcess};

use super::SearchWork;
use crate::error::PipelineError;
use crate::node::{Input, NodeOptions, hear, next_input, nonsense};

/// What the queries are, to be compared with what other machines see.
pub(super) fn checksum(queries: &Path) -> Result<String, PipelineError> {
    let mut hasher = blake3::Hasher::new();
    let read = std::fs::File::open(queries).and_then(|mut file| std::io::copy(&mut file, &mut hasher));
    read.map_err(PipelineError::file("read", queries))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// What both threads of a node see.
struct SearchNode<'n> {
    link: &'n Node,
    id: NodeId,
    program: std::path::PathBuf,
    work: &'n SearchWork,
    /// By number and start.
    workers: Mutex<HashMap<(usize, u64), WorkerProcess>>,
}

/// Searches until the head says that all is done.
///
/// # Errors
/// [`PipelineError`]; the search goes on without this node.
pub(crate) fn take_part(
    link: &Node,
    id: NodeId,
    work: &SearchWork,
    options: &NodeOptions,
    cancelled: &AtomicBool,
) -> Result<(), PipelineError> {
    let (program, engine) = work.engine.find()?;
    let queries = checksum(&work.engine.query)?;
    link.say(Report::ReadyToSearch { workers: work.workers.unwrap_or(options.threads), engine, queries })?;
    let node = SearchNode { link, id, program, work, workers: Mutex::default() };
    let (orders, inputs) = mpsc::channel();
    let (speaker, said) = mpsc::channel();
    std::thread::scope(|scope| {
        let failures = orders.clone();
        scope.spawn(move || hear(link, &orders));
        let carrying = &node;
        scope.spawn(move || {
            if let Err(error) = carrying.carry(&said) {
                // Where the leading thread is gone, the node has ended already.
                let _ = failures.send(Input::Failed(error));
            }
        });
        let led = node.lead(&inputs, &speaker, cancelled);
        node.workers().clear();
        // The other thread ends when the last worker has.
        drop(speaker);
        link.leave();
        led
    })
}

impl SearchNode<'_> {
    fn workers(&self) -> std::sync::MutexGuard<'_, HashMap<(usize, u64), WorkerProcess>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes orders until the last one.
    fn lead(
        &self,
        inputs: &Receiver<Input>,
        speaker: &Sender<Said>,
        cancelled: &AtomicBool,
    ) -> Result<(), PipelineError> {
        loop {
            let order = match next_input(inputs, cancelled)? {
                Input::Failed(error) => return Err(error),
                Input::Order(order) => order?,
            };
            match order {
                Order::Finish => return Ok(()),
                Order::Refused { why } => return Err(ExchangeError::Refused { why }.into()),
                Order::StartWorker { worker, attempt } => self.start(worker, attempt, speaker)?,
                Order::AskWorker { worker, attempt, frame } => self.ask(worker, attempt, frame)?,
                Order::EndWorker { worker, attempt } => drop(self.workers().remove(&(worker, attempt))),
                other => return Err(nonsense(&other)),
            }
        }
    }

    fn start(&self, worker: usize, attempt: u64, speaker: &Sender<Said>) -> Result<(), PipelineError> {
        let speaker = speaker.clone();
        let heard = move |frame| speaker.send(Said { worker, attempt, frame }).is_ok();
        // One that ends at once is looked for when it is there.
        let mut workers = self.workers();
        let error = match WorkerProcess::start(self.work.engine.command(&self.program), heard, false) {
            Ok(process) => {
                workers.insert((worker, attempt), process);
                return Ok(());
            }
            Err(error) => error,
        };
        drop(workers);
        let how = format!("could not be started: {error}");
        self.tell_end(worker, attempt, Ending { how, last_words: "none".to_owned() })
    }

    fn ask(&self, worker: usize, attempt: u64, frame: u64) -> Result<(), PipelineError> {
        // It is fetched even where the worker has ended: the head holds it until then.
        let mut incoming = self.link.get(&Ticket::Frame { frame })?;
        let mut bytes = Vec::new();
        while let Some((batch, _)) = incoming.next_batch()? {
            bytes.extend_from_slice(bytes_batch::bytes(&batch));
        }
        if let Some(process) = self.workers().get_mut(&(worker, attempt)) {
            process.ask(&bytes);
        }
        Ok(())
    }

    /// Carries what workers say to the head, until there are none any more.
    fn carry(&self, said: &Receiver<Said>) -> Result<(), PipelineError> {
        while let Ok(Said { worker, attempt, frame }) = said.recv() {
            match frame {
                Some(frame) => {
                    self.link.give(self.id, Gift::Frame { worker, attempt }, vec![Buffer::from_vec(frame)])?;
                }
                None => {
                    let process = self.workers().remove(&(worker, attempt));
                    if let Some(process) = process {
                        self.tell_end(worker, attempt, process.end())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn tell_end(&self, worker: usize, attempt: u64, ending: Ending) -> Result<(), PipelineError> {
        let Ending { how, last_words } = ending;
        Ok(self.link.say(Report::WorkerEnded { worker, attempt, how, last_words })?)
    }
}
