//! The network endpoint of the head of a run.
//!
//! One thread of the head receives all events, uploads and losses of workers from one queue. A worker is lost if the
//! connection that carries its events breaks or is silent for too long. Later events and uploads of a lost worker are
//! rejected.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_buffer::MutableBuffer;
use bytes::Bytes;
use godwit_dataset::Principal;
use godwit_fleet::WorkerId;
use godwit_flight::{
    Address, ConnectionSecurity, DataPlane, Download, PutResultStream, Routes, Server, ServerTls, Status,
    TransportOptions, Upload,
};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::bytes_batch;
use crate::download_source::{DownloadSource, ReceiverStream, serve_download};
use crate::error::ConnectionError;
use crate::messages::{HeadMessage, JobMessages, NamedTask, UploadHeader, WorkerMessage};

/// Maximum number of events that wait for the head. If the queue is full, the tasks that receive from workers wait.
const EVENT_QUEUE_LENGTH: usize = 16;
/// Maximum number of commands that wait to be sent to one worker. A job may issue a command for each of its 65,536
/// partitions at once. Memory is allocated for waiting commands only.
const COMMAND_QUEUE_LENGTH: usize = 1 << 20;
/// Maximum size of an upload, bytes: the signatures of a block of 100 million reads.
const MAX_UPLOAD_BYTES: u64 = 16 << 30;

/// An event that the head receives.
pub enum HeadEvent<J: JobMessages> {
    /// A worker asks to join the run.
    WorkerJoined {
        /// Id of the worker in this run.
        worker: WorkerId,
        /// Version of the worker's program.
        version: String,
        /// Name of the worker in messages for users.
        name: String,
        /// Sender of commands to the worker.
        commands: CommandSender<J>,
    },
    /// A worker reported an event.
    Reported(WorkerId, J::Event),
    /// A worker reported that it has failed and exits.
    WorkerFailed {
        /// The worker.
        worker: WorkerId,
        /// Error message of the worker.
        message: String,
        /// Exit code of godwit for the failure, if every other worker would fail in the same way.
        fatal_exit_code: Option<i32>,
    },
    /// A worker uploaded data: the description, and the data as one or more byte buffers.
    Uploaded(WorkerId, J::Upload, Vec<MutableBuffer>),
    /// A worker is lost. The text is the reason.
    WorkerLost(WorkerId, String),
}

/// A sender of commands to one worker.
pub struct CommandSender<J> {
    messages: mpsc::Sender<Result<Bytes, Status>>,
    job: PhantomData<fn(J)>,
}

impl<J: JobMessages> CommandSender<J> {
    /// Queues a command for the worker. Returns false if the worker is disconnected or its queue is full, or if the
    /// command contains a path that is not UTF-8.
    pub fn send(&self, command: &J::Command) -> bool {
        self.send_message(&HeadMessage::<(), _>::Command { command })
    }

    /// Accepts the worker and sends it the task, in the same way as [`Self::send`].
    pub fn accept(&self, worker: WorkerId, task: &J::Task) -> bool {
        self.send_message(&HeadMessage::<_, ()>::AcceptWorker { worker, task: NamedTask { job_name: J::NAME, task } })
    }

    /// Rejects the worker.
    pub(crate) fn reject(&self, reason: String) {
        self.send_message(&HeadMessage::<(), ()>::RejectWorker { reason });
    }

    /// Notifies the worker that the run has finished.
    pub fn finish(&self) {
        self.send_message(&HeadMessage::<(), ()>::Finish);
    }

    fn send_message(&self, message: &impl Serialize) -> bool {
        serde_json::to_vec(message).is_ok_and(|text| self.messages.try_send(Ok(text.into())).is_ok())
    }
}

/// The network endpoint of a head: a Flight server for workers, and the queue of their events.
pub struct HeadEndpoint<J: JobMessages> {
    address: SocketAddr,
    events: mpsc::Receiver<HeadEvent<J>>,
    runtime: Runtime,
}

impl<J: JobMessages> HeadEndpoint<J> {
    /// Starts the server at an address. Port 0 selects any free port.
    ///
    /// # Errors
    /// [`ConnectionError::StartNetwork`] if threads cannot be started; [`ConnectionError::Flight`] if the address cannot be
    /// bound.
    pub fn listen(
        address: SocketAddr,
        access: ConnectionSecurity<ServerTls>,
        source: Arc<impl DownloadSource<Ticket = J::Ticket>>,
    ) -> Result<Self, ConnectionError> {
        let runtime = start_runtime()?;
        let (sender, events) = mpsc::channel(EVENT_QUEUE_LENGTH);
        let plane = HeadService {
            source,
            events: sender,
            next_worker_id: AtomicU32::new(0),
            connected_workers: Arc::default(),
        };
        let address = Address::Tcp(address);
        let server = Server::bind(&address, plane, Routes::default(), access, TransportOptions::default());
        let server = runtime.block_on(server)?;
        let Address::Tcp(address) = *server.address() else { unreachable!("the server was started on TCP") };
        runtime.spawn(server.serve());
        Ok(Self { address, events, runtime })
    }

    /// Returns the address to which workers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next event, or `None` if no event is received within `wait`.
    pub fn next_event(&mut self, wait: std::time::Duration) -> Option<HeadEvent<J>> {
        let inbox = &mut self.events;
        self.runtime.block_on(async { tokio::time::timeout(wait, inbox.recv()).await.ok().flatten() })
    }

    /// Stops the server. Waits up to `grace` for commands that are still being sent.
    pub fn close(self, grace: std::time::Duration) {
        self.runtime.shutdown_timeout(grace);
    }
}

/// Starts the threads that serve the network. Two threads are enough, because they mostly wait.
pub(crate) fn start_runtime() -> Result<Runtime, ConnectionError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("exchange").enable_all().build().map_err(ConnectionError::StartNetwork)
}

struct HeadService<S, J: JobMessages> {
    source: Arc<S>,
    events: mpsc::Sender<HeadEvent<J>>,
    next_worker_id: AtomicU32,
    /// Ids of the workers that are connected now.
    connected_workers: Arc<Mutex<BTreeSet<WorkerId>>>,
}

impl<S: DownloadSource, J: JobMessages> DataPlane for HeadService<S, J> {
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        serve_download(&self.source, &ticket).await
    }

    async fn upload(&self, _: Principal, mut batches: Upload) -> Result<PutResultStream, Status> {
        let Some(first) = batches.next().await? else { return Err(Status::invalid_argument("the upload is empty")) };
        let opening = serde_json::from_slice(&first.app_metadata);
        match opening.map_err(|error| Status::invalid_argument(error.to_string()))? {
            UploadHeader::Join { version, name } => self.accept_worker(batches, version, name).await,
            UploadHeader::Data { worker, description, piece_bytes } => {
                let data = collect_pieces(&mut batches, &piece_bytes, first.batch.as_ref()).await?;
                if !self.connected_workers.lock().contains(&worker) {
                    return Err(Status::failed_precondition(
                        "the head closed the connection of this worker, which was lost",
                    ));
                }
                self.send_event(HeadEvent::Uploaded(worker, description, data)).await?;
                Ok(Box::pin(ReceiverStream(mpsc::channel(1).1)))
            }
        }
    }
}

impl<S: DownloadSource, J: JobMessages> HeadService<S, J> {
    async fn send_event(&self, incoming: HeadEvent<J>) -> Result<(), Status> {
        self.events.send(incoming).await.map_err(|_| Status::unavailable("the run has ended"))
    }

    async fn accept_worker(
        &self,
        mut upload: Upload,
        version: String,
        name: String,
    ) -> Result<PutResultStream, Status> {
        let worker = WorkerId(self.next_worker_id.fetch_add(1, Ordering::Relaxed));
        let (sender, orders) = mpsc::channel(COMMAND_QUEUE_LENGTH);
        self.connected_workers.lock().insert(worker);
        let commands = CommandSender { messages: sender, job: PhantomData };
        self.send_event(HeadEvent::WorkerJoined { worker, version, name, commands }).await?;
        let (inbox, nodes) = (self.events.clone(), self.connected_workers.clone());
        tokio::spawn(async move {
            let reason = loop {
                let report = match upload.next().await {
                    Ok(Some(message)) => serde_json::from_slice(&message.app_metadata),
                    Ok(None) => break "it disconnected".to_owned(),
                    Err(status) => break status.message().to_owned(),
                };
                let event: HeadEvent<J> = match report {
                    Ok(WorkerMessage::Event { event }) => HeadEvent::Reported(worker, event),
                    Ok(WorkerMessage::Failed { message, fatal_exit_code }) => {
                        HeadEvent::WorkerFailed { worker, message, fatal_exit_code }
                    }
                    Err(error) => break format!("invalid message: {error}"),
                };
                if inbox.send(event).await.is_err() {
                    return;
                }
            };
            nodes.lock().remove(&worker);
            // Sending fails only if the run has ended.
            let _ = inbox.send(HeadEvent::WorkerLost(worker, reason)).await;
        });
        Ok(Box::pin(ReceiverStream(orders)))
    }
}

/// Receives the data of an upload. Each announced piece is stored in an aligned buffer of its own.
async fn collect_pieces(
    upload: &mut Upload,
    pieces: &[u64],
    first: Option<&arrow_array::RecordBatch>,
) -> Result<Vec<MutableBuffer>, Status> {
    if pieces.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes)).is_none_or(|sum| sum > MAX_UPLOAD_BYTES) {
        return Err(Status::resource_exhausted("the upload is too large"));
    }
    let mut data: Vec<MutableBuffer> =
        pieces.iter().map(|bytes| MutableBuffer::with_capacity(*bytes as usize)).collect();
    let mut at = 0;
    let mut append = |bytes: &[u8]| -> Result<(), Status> {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let Some(piece) = data.get_mut(at) else {
                return Err(Status::invalid_argument("the upload is longer than announced"));
            };
            let some = bytes.len().min(pieces[at] as usize - piece.len());
            piece.extend_from_slice(&bytes[..some]);
            bytes = &bytes[some..];
            at += usize::from(piece.len() as u64 == pieces[at]);
        }
        Ok(())
    };
    first.map_or(Ok(()), |batch| append(bytes_batch::batch_as_bytes(batch)))?;
    while let Some(message) = upload.next().await? {
        message.batch.as_ref().map_or(Ok(()), |batch| append(bytes_batch::batch_as_bytes(batch)))?;
    }
    let all_complete = data.iter().zip(pieces).all(|(piece, bytes)| piece.len() as u64 == *bytes);
    if all_complete { Ok(data) } else { Err(Status::invalid_argument("the upload is shorter than announced")) }
}
