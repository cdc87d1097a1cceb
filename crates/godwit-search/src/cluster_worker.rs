//! A cluster worker of a search: starts search workers as child processes, and forwards message frames between them and
//! the head.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};

use arrow_buffer::Buffer;
use godwit_cluster::{ConnectionError, WorkerInputs, WorkerOptions, WorkerSession, bytes_batch};
use parking_lot::Mutex;

use crate::cluster_messages::{
    FrameTicket, SearchEvent, SearchMessages, SearchProcess, SearchTask, SearchWorkerCommand,
};
use crate::error::{SearchError, file_error};
use crate::read_ahead::ReadAhead;
use crate::worker_backend::WorkerFrame;
use crate::worker_process::{WorkerExit, WorkerProcess};

/// The endpoint of a cluster worker that searches.
type WorkerEndpoint<'n> = godwit_cluster::WorkerEndpoint<'n, SearchMessages>;

/// Returns the BLAKE3 of the query file, by which the head verifies that all hosts read the same queries.
pub(crate) fn query_checksum(queries: &Path) -> Result<String, SearchError> {
    let mut hasher = blake3::Hasher::new();
    let read = std::fs::File::open(queries).and_then(|mut file| std::io::copy(&mut file, &mut hasher));
    read.map_err(file_error("read", queries))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// State that two threads of a cluster worker share: one executes commands, and one forwards replies of search workers.
struct SearchWorkerHost<'n> {
    connection: WorkerEndpoint<'n>,
    program: std::path::PathBuf,
    task: &'n SearchTask,
    /// Running search workers.
    search_workers: Mutex<HashMap<SearchProcess, WorkerProcess>>,
}

/// Runs search workers until the head reports the end of the search.
///
/// # Errors
/// [`SearchError`] if this cluster worker fails; the search continues without it.
pub fn run_cluster_worker<T>(
    session: &WorkerSession<T>,
    task: &SearchTask,
    options: &WorkerOptions,
    cancelled: &AtomicBool,
) -> Result<(), SearchError> {
    let (program, engine) = task.engine.find_worker_program()?;
    let queries_checksum = query_checksum(&task.engine.query_path)?;
    let connection = session.endpoint::<SearchMessages>();
    let search_workers = task.search_workers.unwrap_or(options.threads);
    connection.send_event(SearchEvent::Ready { search_workers, engine, queries_checksum })?;
    let node = SearchWorkerHost { connection, program, task, search_workers: Mutex::default() };
    let (sender, inputs) = WorkerInputs::new();
    let (frame_sender, frames) = mpsc::channel();
    let read_ahead = ReadAhead::start();
    std::thread::scope(|scope| {
        let failures = sender.clone();
        scope.spawn(move || sender.forward_commands(connection));
        let carrying = &node;
        scope.spawn(move || failures.run(|| carrying.forward_replies(&frames)));
        let led = inputs.process_commands(cancelled, |command| match command {
            SearchWorkerCommand::Start { process } => node.start_search_worker(process, &frame_sender),
            SearchWorkerCommand::SendFrame { process, frame } => Ok(node.send_frame(process, frame)?),
            SearchWorkerCommand::Stop { process } => {
                drop(node.search_workers.lock().remove(&process));
                Ok(())
            }
            SearchWorkerCommand::ReadAhead { extents } => {
                read_ahead.request(extents);
                Ok(())
            }
        });
        node.search_workers.lock().clear();
        // The thread that forwards replies ends when the last search worker has ended.
        drop(frame_sender);
        connection.stop_waiting_for_commands();
        led
    })
}

impl SearchWorkerHost<'_> {
    fn start_search_worker(
        &self,
        process: SearchProcess,
        frame_sender: &Sender<WorkerFrame>,
    ) -> Result<(), SearchError> {
        let SearchProcess { search_worker: worker, attempt } = process;
        let frame_sender = frame_sender.clone();
        let on_frame = move |frame| frame_sender.send(WorkerFrame { worker, attempt, frame }).is_ok();
        // Hold the lock until the process is in the map, because the process may end at once.
        let mut workers = self.search_workers.lock();
        let error = match WorkerProcess::start(self.task.engine.worker_command(&self.program), on_frame, None) {
            Ok(child) => {
                workers.insert(process, child);
                return Ok(());
            }
            Err(error) => error,
        };
        drop(workers);
        let description = format!("could not be started: {error}");
        let exit = WorkerExit { description, stderr_tail: "none".to_owned() };
        Ok(self.connection.send_event(SearchEvent::Exited { process, exit })?)
    }

    fn send_frame(&self, process: SearchProcess, frame: u64) -> Result<(), ConnectionError> {
        // Download the frame even if the search worker has ended: the head keeps each frame until it is downloaded.
        let mut incoming = self.connection.download_from_head(&FrameTicket { frame })?;
        let mut bytes = Vec::new();
        while let Some((batch, _)) = incoming.next_batch()? {
            bytes.extend_from_slice(bytes_batch::batch_as_bytes(&batch));
        }
        if let Some(child) = self.search_workers.lock().get_mut(&process) {
            child.send_frame(&bytes);
        }
        Ok(())
    }

    /// Forwards frames of search workers to the head, until all search workers have ended.
    fn forward_replies(&self, frames: &Receiver<WorkerFrame>) -> Result<(), SearchError> {
        while let Ok(WorkerFrame { worker: search_worker, attempt, frame }) = frames.recv() {
            let process = SearchProcess { search_worker, attempt };
            match frame {
                Some(frame) => self.connection.upload(process, vec![Buffer::from_vec(frame)])?,
                None => {
                    let child = self.search_workers.lock().remove(&process);
                    if let Some(child) = child {
                        let exit = child.wait_for_exit();
                        self.connection.send_event(SearchEvent::Exited { process, exit })?;
                    }
                }
            }
        }
        Ok(())
    }
}
