//! A cluster worker of a search: starts search workers as child processes, and forwards message frames between them and
//! the head.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use arrow_buffer::Buffer;
use godwit_exchange::{
    Command, DownloadTicket, ExchangeError, WorkerEndpoint, WorkerEvent, WorkerId, WorkerUpload, bytes_batch,
};
use godwit_search::{WorkerExit, WorkerFrame, WorkerProcess};

use super::SearchTask;
use crate::cluster::{
    WorkerInput, WorkerOptions, forward_commands, receive_input, run_reporting_failure, unexpected_command,
};
use crate::error::PipelineError;

/// Returns the BLAKE3 of the query file, by which the head verifies that all hosts read the same queries.
pub(super) fn query_checksum(queries: &Path) -> Result<String, PipelineError> {
    let mut hasher = blake3::Hasher::new();
    let read = std::fs::File::open(queries).and_then(|mut file| std::io::copy(&mut file, &mut hasher));
    read.map_err(PipelineError::file("read", queries))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// State that two threads of a cluster worker share: one executes commands, and one forwards replies of search workers.
struct SearchWorkerHost<'n> {
    connection: &'n WorkerEndpoint,
    id: WorkerId,
    program: std::path::PathBuf,
    task: &'n SearchTask,
    /// Running search workers, by number and attempt.
    search_workers: Mutex<HashMap<(usize, u64), WorkerProcess>>,
}

/// Runs search workers until the head reports the end of the search.
///
/// # Errors
/// [`PipelineError`] if this cluster worker fails; the search continues without it.
pub(crate) fn run_search_worker(
    connection: &WorkerEndpoint,
    id: WorkerId,
    task: &SearchTask,
    options: &WorkerOptions,
    cancelled: &AtomicBool,
) -> Result<(), PipelineError> {
    let (program, engine) = task.engine.find_worker_program()?;
    let queries_checksum = query_checksum(&task.engine.query_path)?;
    connection.send_event(WorkerEvent::ReadyToSearch {
        search_workers: task.search_workers.unwrap_or(options.threads),
        engine,
        queries_checksum,
    })?;
    let node = SearchWorkerHost { connection, id, program, task, search_workers: Mutex::default() };
    let (orders, inputs) = mpsc::channel();
    let (frame_sender, frames) = mpsc::channel();
    std::thread::scope(|scope| {
        let failures = orders.clone();
        scope.spawn(move || forward_commands(connection, &orders));
        let carrying = &node;
        scope.spawn(move || run_reporting_failure(&failures, || carrying.forward_replies(&frames)));
        let led = node.process_commands(&inputs, &frame_sender, cancelled);
        node.lock_workers().clear();
        // The thread that forwards replies ends when the last search worker has ended.
        drop(frame_sender);
        connection.stop_waiting_for_commands();
        led
    })
}

impl SearchWorkerHost<'_> {
    fn lock_workers(&self) -> std::sync::MutexGuard<'_, HashMap<(usize, u64), WorkerProcess>> {
        self.search_workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes the commands of the head until [`Command::Finish`].
    fn process_commands(
        &self,
        inputs: &Receiver<WorkerInput>,
        frame_sender: &Sender<WorkerFrame>,
        cancelled: &AtomicBool,
    ) -> Result<(), PipelineError> {
        loop {
            let order = match receive_input(inputs, cancelled)? {
                WorkerInput::Failed(error) => return Err(error),
                WorkerInput::Command(order) => order?,
            };
            match order {
                Command::Finish => return Ok(()),
                Command::RejectWorker { reason } => return Err(ExchangeError::WorkerRejected { reason }.into()),
                Command::StartSearchWorker { search_worker, attempt } => {
                    self.start_search_worker(search_worker, attempt, frame_sender)?
                }
                Command::SendSearchFrame { search_worker: worker, attempt, frame } => {
                    self.send_frame(worker, attempt, frame)?
                }
                Command::StopSearchWorker { search_worker: worker, attempt } => {
                    drop(self.lock_workers().remove(&(worker, attempt)))
                }
                other => return Err(unexpected_command(&other)),
            }
        }
    }

    fn start_search_worker(
        &self,
        worker: usize,
        attempt: u64,
        frame_sender: &Sender<WorkerFrame>,
    ) -> Result<(), PipelineError> {
        let frame_sender = frame_sender.clone();
        let on_frame = move |frame| frame_sender.send(WorkerFrame { worker, attempt, frame }).is_ok();
        // Hold the lock until the process is in the map, because the process may end at once.
        let mut workers = self.lock_workers();
        let error = match WorkerProcess::start(self.task.engine.worker_command(&self.program), on_frame, false) {
            Ok(process) => {
                workers.insert((worker, attempt), process);
                return Ok(());
            }
            Err(error) => error,
        };
        drop(workers);
        let description = format!("could not be started: {error}");
        self.report_worker_end(worker, attempt, WorkerExit { description, stderr_tail: "none".to_owned() })
    }

    fn send_frame(&self, worker: usize, attempt: u64, frame: u64) -> Result<(), PipelineError> {
        // Download the frame even if the search worker has ended: the head keeps each frame until it is downloaded.
        let mut incoming = self.connection.download_from_head(&DownloadTicket::SearchFrame { frame })?;
        let mut bytes = Vec::new();
        while let Some((batch, _)) = incoming.next_batch()? {
            bytes.extend_from_slice(bytes_batch::batch_as_bytes(&batch));
        }
        if let Some(process) = self.lock_workers().get_mut(&(worker, attempt)) {
            process.send_frame(&bytes);
        }
        Ok(())
    }

    /// Forwards frames of search workers to the head, until all search workers have ended.
    fn forward_replies(&self, frames: &Receiver<WorkerFrame>) -> Result<(), PipelineError> {
        while let Ok(WorkerFrame { worker: search_worker, attempt, frame }) = frames.recv() {
            match frame {
                Some(frame) => {
                    self.connection.upload(
                        self.id,
                        WorkerUpload::SearchFrame { search_worker, attempt },
                        vec![Buffer::from_vec(frame)],
                    )?;
                }
                None => {
                    let process = self.lock_workers().remove(&(search_worker, attempt));
                    if let Some(process) = process {
                        self.report_worker_end(search_worker, attempt, process.wait_for_exit())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn report_worker_end(&self, search_worker: usize, attempt: u64, ending: WorkerExit) -> Result<(), PipelineError> {
        let WorkerExit { description: exit_status, stderr_tail } = ending;
        Ok(self.connection.send_event(WorkerEvent::SearchWorkerExited {
            search_worker,
            attempt,
            exit_status,
            stderr_tail,
        })?)
    }
}
