//! The head's end of the network.
//!
//! One thread of the head waits at an inbox for what nodes say, hand over, and for those that are lost. A node is lost
//! when the connection it reports on breaks or falls silent; what it says or hands over later is not taken.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_buffer::MutableBuffer;
use bytes::Bytes;
use godwit_flight::{
    Access, Address, Answers, Caller, DataPlane, Download, Routes, Server, ServerTls, Status, Tuning, Upload,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::bytes_batch;
use crate::error::ExchangeError;
use crate::ledger::NodeId;
use crate::protocol::{Gift, Opening, Order, Report};
use crate::shelf::{Received, Shelf, download};

/// Messages that wait for the head; whoever has more to say waits.
const INBOX: usize = 16;
/// Orders on their way to one node. The ledger gives a node a few things at a time.
const ORDERS: usize = 4096;
/// Most bytes of a gift: signatures of a block of a hundred million reads.
const GIFT_LIMIT_BYTES: u64 = 16 << 30;

/// Something that a node did.
pub enum Incoming {
    /// It wants to be part of the run.
    Joined {
        /// Who it is from now on.
        node: NodeId,
        /// Version of its program.
        version: String,
        /// Name for messages.
        name: String,
        /// For telling it what to do.
        orders: Orders,
    },
    /// It says something.
    Said(NodeId, Report),
    /// It hands something over.
    Gave(NodeId, Gift, Vec<MutableBuffer>),
    /// It is gone.
    Lost(NodeId, String),
}

/// For telling a node what to do.
pub struct Orders(mpsc::Sender<Result<Bytes, Status>>);

impl Orders {
    /// Tells it. False where it does not listen any more.
    pub fn give(&self, order: &Order) -> bool {
        let text = serde_json::to_vec(order).expect("orders are plain data");
        self.0.try_send(Ok(text.into())).is_ok()
    }
}

/// The network of a head.
pub struct Head {
    address: SocketAddr,
    inbox: mpsc::Receiver<Incoming>,
    runtime: Runtime,
}

impl Head {
    /// Listens at an address, port 0 for any.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn open(address: SocketAddr, access: Access<ServerTls>, shelf: Arc<impl Shelf>) -> Result<Self, ExchangeError> {
        let runtime = runtime()?;
        let (sender, inbox) = mpsc::channel(INBOX);
        let plane = Plane { shelf, inbox: sender, next: AtomicU32::new(0), nodes: Arc::default() };
        let address = Address::Tcp(address);
        let server = Server::bind(&address, plane, Routes::default(), access, Tuning::default());
        let server = runtime.block_on(server)?;
        let Address::Tcp(address) = *server.address() else { unreachable!("it was asked for TCP") };
        runtime.spawn(server.serve());
        Ok(Self { address, inbox, runtime })
    }

    /// Where nodes find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next thing that a node did; `None` where nothing happens for that long.
    pub fn next(&mut self, wait: std::time::Duration) -> Option<Incoming> {
        let inbox = &mut self.inbox;
        self.runtime.block_on(async { tokio::time::timeout(wait, inbox.recv()).await.ok().flatten() })
    }

    /// Ends the network after what was told has had time to arrive.
    pub fn close(self, grace: std::time::Duration) {
        self.runtime.shutdown_timeout(grace);
    }
}

/// Threads for the network: what they do is mostly waiting.
pub(crate) fn runtime() -> Result<Runtime, ExchangeError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("exchange").enable_all().build().map_err(ExchangeError::Start)
}

struct Plane<S> {
    shelf: Arc<S>,
    inbox: mpsc::Sender<Incoming>,
    next: AtomicU32,
    /// Nodes that live.
    nodes: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl<S: Shelf> DataPlane for Plane<S> {
    async fn download(&self, _: Caller, ticket: Bytes) -> Result<Download, Status> {
        download(&self.shelf, &ticket).await
    }

    async fn upload(&self, _: Caller, mut upload: Upload) -> Result<Answers, Status> {
        let Some(first) = upload.next().await? else { return Err(Status::invalid_argument("the upload is empty")) };
        let opening = serde_json::from_slice(&first.app_metadata);
        match opening.map_err(|error| Status::invalid_argument(error.to_string()))? {
            Opening::Join { version, name } => self.join(upload, version, name).await,
            Opening::Gift { node, gift, pieces } => {
                let data = gather(&mut upload, &pieces, first.batch.as_ref()).await?;
                if !self.nodes.lock().unwrap_or_else(PoisonError::into_inner).contains(&node) {
                    return Err(Status::failed_precondition("the node was given up"));
                }
                self.tell(Incoming::Gave(node, gift, data)).await?;
                Ok(Box::pin(Received(mpsc::channel(1).1)))
            }
        }
    }
}

impl<S: Shelf> Plane<S> {
    async fn tell(&self, incoming: Incoming) -> Result<(), Status> {
        self.inbox.send(incoming).await.map_err(|_| Status::unavailable("the run has ended"))
    }

    async fn join(&self, mut upload: Upload, version: String, name: String) -> Result<Answers, Status> {
        let node = NodeId(self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, orders) = mpsc::channel(ORDERS);
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
        self.tell(Incoming::Joined { node, version, name, orders: Orders(sender) }).await?;
        let (inbox, nodes) = (self.inbox.clone(), self.nodes.clone());
        tokio::spawn(async move {
            let why = loop {
                let report = match upload.next().await {
                    Ok(Some(message)) => serde_json::from_slice(&message.app_metadata),
                    Ok(None) => break "it left".to_owned(),
                    Err(status) => break status.message().to_owned(),
                };
                let said = match report {
                    Ok(report) => Incoming::Said(node, report),
                    Err(error) => break format!("it said something that cannot be understood: {error}"),
                };
                if inbox.send(said).await.is_err() {
                    return;
                }
            };
            nodes.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
            // Where the run has ended nobody is missed.
            let _ = inbox.send(Incoming::Lost(node, why)).await;
        });
        Ok(Box::pin(Received(orders)))
    }
}

/// Takes the pieces of a gift, each in aligned memory of its own.
async fn gather(
    upload: &mut Upload,
    pieces: &[u64],
    first: Option<&arrow_array::RecordBatch>,
) -> Result<Vec<MutableBuffer>, Status> {
    if pieces.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes)).is_none_or(|sum| sum > GIFT_LIMIT_BYTES) {
        return Err(Status::resource_exhausted("the gift is too large"));
    }
    let mut data: Vec<MutableBuffer> =
        pieces.iter().map(|bytes| MutableBuffer::with_capacity(*bytes as usize)).collect();
    let mut at = 0;
    let mut take = |bytes: &[u8]| -> Result<(), Status> {
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
    first.map_or(Ok(()), |batch| take(bytes_batch::bytes(batch)))?;
    while let Some(message) = upload.next().await? {
        message.batch.as_ref().map_or(Ok(()), |batch| take(bytes_batch::bytes(batch)))?;
    }
    let whole = data.iter().zip(pieces).all(|(piece, bytes)| piece.len() as u64 == *bytes);
    if whole { Ok(data) } else { Err(Status::invalid_argument("less came than was said")) }
}
