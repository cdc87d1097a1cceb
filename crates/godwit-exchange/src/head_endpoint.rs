//! The head's end of the network.
//!
//! One thread of the head receives the events and uploads of workers, and their losses, from one queue. A worker is lost
//! when the connection of its events breaks or falls silent; its later events and uploads are rejected.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_buffer::MutableBuffer;
use bytes::Bytes;
use godwit_flight::{
    Address, ConnectionSecurity, DataPlane, Download, Principal, PutResultStream, Routes, Server, ServerTls, Status,
    TransportOptions, Upload,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::bytes_batch;
use crate::download_source::{DownloadSource, ReceiverStream, serve_download};
use crate::error::ExchangeError;
use crate::shuffle_scheduler::WorkerId;
use crate::worker_messages::{Command, UploadHeader, WorkerEvent, WorkerUpload};

/// Events that wait for the head; further senders wait.
const EVENT_QUEUE_LENGTH: usize = 16;
/// Commands that wait to be sent to one worker. The scheduler issues a few at a time.
const COMMAND_QUEUE_LENGTH: usize = 4096;
/// Largest upload, bytes: signatures of a block of a hundred million reads.
const MAX_UPLOAD_BYTES: u64 = 16 << 30;

/// An event at the head.
pub enum HeadEvent {
    /// A worker joins the run.
    WorkerJoined {
        /// Its id from now on.
        worker: WorkerId,
        /// Version of its program.
        version: String,
        /// Name for messages.
        name: String,
        /// Sends commands to it.
        commands: CommandSender,
    },
    /// A worker reported an event.
    Reported(WorkerId, WorkerEvent),
    /// A worker uploaded data.
    Uploaded(WorkerId, WorkerUpload, Vec<MutableBuffer>),
    /// A worker is lost, for this reason.
    WorkerLost(WorkerId, String),
}

/// Sends commands to one worker.
pub struct CommandSender(mpsc::Sender<Result<Bytes, Status>>);

impl CommandSender {
    /// Sends a command. Returns false where the worker is not connected any more.
    pub fn send(&self, order: &Command) -> bool {
        let text = serde_json::to_vec(order).expect("orders are plain data");
        self.0.try_send(Ok(text.into())).is_ok()
    }
}

/// The network of a head.
pub struct HeadEndpoint {
    address: SocketAddr,
    events: mpsc::Receiver<HeadEvent>,
    runtime: Runtime,
}

impl HeadEndpoint {
    /// Listens at an address; port 0 is any free port.
    ///
    /// # Errors
    /// [`ExchangeError::StartNetwork`]; [`ExchangeError::Flight`] where the address cannot be bound.
    pub fn listen(
        address: SocketAddr,
        access: ConnectionSecurity<ServerTls>,
        source: Arc<impl DownloadSource>,
    ) -> Result<Self, ExchangeError> {
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
        let Address::Tcp(address) = *server.address() else { unreachable!("it was asked for TCP") };
        runtime.spawn(server.serve());
        Ok(Self { address, events, runtime })
    }

    /// Returns the address for workers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next event; `None` where none occurs within `wait`.
    pub fn next_event(&mut self, wait: std::time::Duration) -> Option<HeadEvent> {
        let inbox = &mut self.events;
        self.runtime.block_on(async { tokio::time::timeout(wait, inbox.recv()).await.ok().flatten() })
    }

    /// Closes the network, after time for sent commands to arrive.
    pub fn close(self, grace: std::time::Duration) {
        self.runtime.shutdown_timeout(grace);
    }
}

/// Starts the threads of the network, which mostly wait.
pub(crate) fn start_runtime() -> Result<Runtime, ExchangeError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("exchange").enable_all().build().map_err(ExchangeError::StartNetwork)
}

struct HeadService<S> {
    source: Arc<S>,
    events: mpsc::Sender<HeadEvent>,
    next_worker_id: AtomicU32,
    /// Workers that are connected.
    connected_workers: Arc<Mutex<BTreeSet<WorkerId>>>,
}

impl<S: DownloadSource> DataPlane for HeadService<S> {
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        serve_download(&self.source, &ticket).await
    }

    async fn upload(&self, _: Principal, mut upload: Upload) -> Result<PutResultStream, Status> {
        let Some(first) = upload.next().await? else { return Err(Status::invalid_argument("the upload is empty")) };
        let opening = serde_json::from_slice(&first.app_metadata);
        match opening.map_err(|error| Status::invalid_argument(error.to_string()))? {
            UploadHeader::Join { version, name } => self.accept_worker(upload, version, name).await,
            UploadHeader::Data { worker, upload: gift, piece_bytes } => {
                let data = collect_pieces(&mut upload, &piece_bytes, first.batch.as_ref()).await?;
                if !self.connected_workers.lock().unwrap_or_else(PoisonError::into_inner).contains(&worker) {
                    return Err(Status::failed_precondition("the node was given up"));
                }
                self.send_event(HeadEvent::Uploaded(worker, gift, data)).await?;
                Ok(Box::pin(ReceiverStream(mpsc::channel(1).1)))
            }
        }
    }
}

impl<S: DownloadSource> HeadService<S> {
    async fn send_event(&self, incoming: HeadEvent) -> Result<(), Status> {
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
        self.connected_workers.lock().unwrap_or_else(PoisonError::into_inner).insert(worker);
        self.send_event(HeadEvent::WorkerJoined { worker, version, name, commands: CommandSender(sender) }).await?;
        let (inbox, nodes) = (self.events.clone(), self.connected_workers.clone());
        tokio::spawn(async move {
            let reason = loop {
                let report = match upload.next().await {
                    Ok(Some(message)) => serde_json::from_slice(&message.app_metadata),
                    Ok(None) => break "it left".to_owned(),
                    Err(status) => break status.message().to_owned(),
                };
                let event = match report {
                    Ok(report) => HeadEvent::Reported(worker, report),
                    Err(error) => break format!("it said something that cannot be understood: {error}"),
                };
                if inbox.send(event).await.is_err() {
                    return;
                }
            };
            nodes.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
            // The send fails only where the run has ended.
            let _ = inbox.send(HeadEvent::WorkerLost(worker, reason)).await;
        });
        Ok(Box::pin(ReceiverStream(orders)))
    }
}

/// Collects the pieces of an upload, each in aligned memory of its own.
async fn collect_pieces(
    upload: &mut Upload,
    pieces: &[u64],
    first: Option<&arrow_array::RecordBatch>,
) -> Result<Vec<MutableBuffer>, Status> {
    if pieces.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes)).is_none_or(|sum| sum > MAX_UPLOAD_BYTES) {
        return Err(Status::resource_exhausted("the gift is too large"));
    }
    let mut data: Vec<MutableBuffer> =
        pieces.iter().map(|bytes| MutableBuffer::with_capacity(*bytes as usize)).collect();
    let mut at = 0;
    let mut append = |bytes: &[u8]| -> Result<(), Status> {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let Some(piece) = data.get_mut(at) else { return Err(Status::invalid_argument("more came than was said")) };
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
    if all_complete { Ok(data) } else { Err(Status::invalid_argument("less came than was said")) }
}
