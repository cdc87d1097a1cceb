//! What `godwit bench shuffle` measures with: every node holds a slice for each node, and fetches its own from all at once.
//!
//! Slices are pulled with `DoGet`, as those of a run over nodes are (`docs/decisions/0008-pull-based-shuffle.md`), and cut into
//! messages of a given size. The checksum of a slice covers its name and all its bytes, is taken when it is made, and comes with
//! its last message; a slice whose bytes do not have it is an error. Who starts nodes, and when, is decided by the caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, RecordBatch, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Status;

use super::Draw;
use crate::client::Client;
use crate::error::FlightError;
use crate::gate::Caller;
use crate::server::{Answers, DataPlane, Download, Item, Upload};
use crate::transport::Tuning;

/// Messages that wait for their checksum while others arrive, per slice.
const QUEUE_MESSAGES: usize = 16;
/// Largest slice that a client may ask for, bytes.
const SLICE_LIMIT_BYTES: u64 = 1 << 36;
/// Largest message, bytes: gRPC counts them in 32 bits, and what frames a message is counted too.
pub const MESSAGE_LIMIT_BYTES: u64 = (1 << 32) - (1 << 16);

/// What names a slice, and how it travels: a ticket is `shuffle/TAKER/SLICE_BYTES/MESSAGE_BYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The node that it is for.
    pub taker: u32,
    /// Bytes of the slice, at least 1.
    pub slice_bytes: u64,
    /// Bytes of a message, at most [`MESSAGE_LIMIT_BYTES`]; 0: the slice is made, where it is not, and not sent.
    pub message_bytes: u64,
}

impl Wanted {
    fn ticket(&self) -> String {
        format!("shuffle/{}/{}/{}", self.taker, self.slice_bytes, self.message_bytes)
    }

    fn parse(ticket: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(ticket).ok()?.strip_prefix("shuffle/")?.split('/');
        let wanted = Self {
            taker: words.next()?.parse().ok()?,
            slice_bytes: words.next()?.parse().ok().filter(|bytes| (1..=SLICE_LIMIT_BYTES).contains(bytes))?,
            message_bytes: words.next()?.parse().ok().filter(|bytes| *bytes <= MESSAGE_LIMIT_BYTES)?,
        };
        words.next().is_none().then_some(wanted)
    }

    fn hasher(&self) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{}/{}/", self.taker, self.slice_bytes).as_bytes());
        hasher
    }
}

/// Sizes and times for connections of a shuffle: the usual ones, with messages of any size.
pub fn tuning() -> Tuning {
    Tuning { message_limit_bytes: u32::MAX.into(), ..Tuning::default() }
}

struct Slice {
    bytes: Buffer,
    checksum: blake3::Hash,
}

impl Slice {
    fn make(giver: u32, wanted: Wanted) -> Self {
        let mut draw = Draw(0x9e37_79b9_7f4a_7c15 ^ (u64::from(giver) << 32 | u64::from(wanted.taker)) << 8);
        let words = Buffer::from_iter((0..wanted.slice_bytes.div_ceil(8)).map(|_| draw.next()));
        let bytes = words.slice_with_length(0, wanted.slice_bytes as usize);
        let mut hasher = wanted.hasher();
        hasher.update(&bytes);
        Self { bytes, checksum: hasher.finalize() }
    }
}

/// The slices that a node holds, all of one length: those of another length make way for new ones.
#[derive(Clone, Default)]
pub struct Slices {
    giver: u32,
    held: Arc<Mutex<HashMap<u32, Arc<Slice>>>>,
}

impl Slices {
    /// Those of a node, none so far.
    pub fn of(giver: u32) -> Self {
        Self { giver, held: Arc::default() }
    }

    /// Makes a slice for each of the first `takers` nodes, in place of all that there were. Takes as long as that takes.
    pub fn make(&self, takers: u32, slice_bytes: u64) {
        self.held().clear();
        for taker in 0..takers {
            self.slice(Wanted { taker, slice_bytes, message_bytes: 0 });
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Slice>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slice, made where it is not there.
    fn slice(&self, wanted: Wanted) -> Arc<Slice> {
        // Held while one is made, so that none is made twice.
        let mut held = self.held();
        held.retain(|_, slice| slice.bytes.len() as u64 == wanted.slice_bytes);
        held.entry(wanted.taker).or_insert_with(|| Arc::new(Slice::make(self.giver, wanted))).clone()
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("bytes", DataType::UInt8, false)]))
}

/// The messages of a slice. They are cut as they are sent; nothing is copied.
struct Messages {
    slice: Arc<Slice>,
    schema: SchemaRef,
    at: usize,
    message_bytes: usize,
}

impl Stream for Messages {
    type Item = Result<Item, Status>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let left = self.slice.bytes.len() - self.at;
        let bytes = left.min(self.message_bytes);
        if bytes == 0 {
            return std::task::Poll::Ready(None);
        }
        let values = ScalarBuffer::new(self.slice.bytes.clone(), self.at, bytes);
        self.at += bytes;
        let said = if bytes == left { self.slice.checksum.as_bytes().to_vec() } else { Vec::new() };
        let batch = RecordBatch::try_new(self.schema.clone(), vec![Arc::new(UInt8Array::new(values, None))]);
        let item = batch.map(|batch| (batch, said.into())).map_err(|error| Status::internal(error.to_string()));
        std::task::Poll::Ready(Some(item))
    }
}

impl DataPlane for Slices {
    async fn download(&self, _: Caller, ticket: Bytes) -> Result<Download, Status> {
        let wrong = || Status::not_found(format!("no slice {}", String::from_utf8_lossy(&ticket)));
        let wanted = Wanted::parse(&ticket).ok_or_else(wrong)?;
        let slices = self.clone();
        let made = tokio::task::spawn_blocking(move || slices.slice(wanted)).await;
        let slice = made.map_err(|_| Status::internal("the slice could not be made"))?;
        let message_bytes = wanted.message_bytes as usize;
        let messages = Messages { slice, schema: schema(), at: 0, message_bytes };
        Ok(Download { schema: schema(), batches: Box::pin(messages) })
    }

    async fn upload(&self, _: Caller, _: Upload) -> Result<Answers, Status> {
        Err(Status::unimplemented("slices are fetched, not brought"))
    }
}

/// A slice on its way in.
struct Incoming {
    batches: crate::client::Batches,
    peer: String,
    checksum: Bytes,
}

impl Incoming {
    async fn open(client: &Client, wanted: Wanted) -> Result<Self, FlightError> {
        let batches = client.download(wanted.ticket()).await?;
        Ok(Self { batches, peer: client.peer().to_owned(), checksum: Bytes::new() })
    }

    async fn next(&mut self) -> Result<Option<Buffer>, FlightError> {
        let Some((batch, said)) = self.batches.next().await? else { return Ok(None) };
        self.checksum = said;
        let column = batch.columns().first().and_then(|column| column.as_any().downcast_ref::<UInt8Array>());
        let column = column.ok_or(FlightError::Malformed { problem: "it is no part of a slice" })?;
        Ok(Some(column.values().inner().clone()))
    }
}

/// A slice as it came, not looked at yet.
pub struct Arrived {
    wanted: Wanted,
    peer: String,
    messages: Vec<Buffer>,
    checksum: Bytes,
}

impl Arrived {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.len() as u64).sum()
    }

    /// Compares it with its checksum.
    fn verify(&self) -> Result<(), FlightError> {
        let mut hasher = self.wanted.hasher();
        for message in &self.messages {
            hasher.update(message);
        }
        compare(&self.peer, &hasher, &self.checksum)
    }
}

fn compare(peer: &str, hasher: &blake3::Hasher, told: &[u8]) -> Result<(), FlightError> {
    // Whole, in order and for this taker: anything else has another checksum.
    match hasher.finalize().as_bytes()[..] == *told {
        true => Ok(()),
        false => Err(FlightError::Checksum { peer: peer.to_owned() }),
    }
}

/// A node's own part in a shuffle: its slices, and connections to all others.
pub struct Node {
    /// What it holds.
    pub slices: Slices,
    /// The others.
    pub peers: Vec<Client>,
}

impl Node {
    /// Has every other node make what it does not have yet, so that no transfer waits for it.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn prepare(&self, wanted: Wanted) -> Result<(), FlightError> {
        let wanted = Wanted { message_bytes: 0, ..wanted };
        let mut tasks = JoinSet::new();
        for client in &self.peers {
            let client = client.clone();
            tasks.spawn(async move {
                let mut nothing = Incoming::open(&client, wanted).await?;
                while nothing.next().await?.is_some() {}
                Ok(())
            });
        }
        all(tasks).await.map(drop)
    }

    /// Fetches this node's slices from all others at once; its own is handed over.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn fetch(&self, wanted: Wanted) -> Result<Vec<Arrived>, FlightError> {
        let mut tasks = JoinSet::new();
        for client in &self.peers {
            let client = client.clone();
            tasks.spawn(async move {
                let mut incoming = Incoming::open(&client, wanted).await?;
                let mut messages = Vec::new();
                while let Some(message) = incoming.next().await? {
                    messages.push(message);
                }
                Ok(Arrived { wanted, peer: incoming.peer, messages, checksum: incoming.checksum })
            });
        }
        let mut arrived = all(tasks).await?;
        arrived.push(self.own(wanted));
        Ok(arrived)
    }

    fn own(&self, wanted: Wanted) -> Arrived {
        let slice = self.slices.slice(wanted);
        let checksum = Bytes::copy_from_slice(slice.checksum.as_bytes());
        Arrived { wanted, peer: "this node".into(), messages: vec![slice.bytes.clone()], checksum }
    }

    /// Fetches and compares with the checksums what came while more comes. Returns the bytes fetched from others.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn fetch_verifying(&self, wanted: Wanted) -> Result<u64, FlightError> {
        let mut tasks = JoinSet::new();
        let own = self.own(wanted);
        tasks.spawn_blocking(move || own.verify().map(|()| 0));
        for client in &self.peers {
            let client = client.clone();
            tasks.spawn(async move {
                let mut incoming = Incoming::open(&client, wanted).await?;
                let (sender, mut receiver) = mpsc::channel::<Buffer>(QUEUE_MESSAGES);
                let hashing = tokio::task::spawn_blocking(move || {
                    let mut hasher = wanted.hasher();
                    while let Some(message) = receiver.blocking_recv() {
                        hasher.update(&message);
                    }
                    hasher
                });
                let mut bytes = 0;
                while let Some(message) = incoming.next().await? {
                    bytes += message.len() as u64;
                    // The other end lives as long as this one.
                    let _ = sender.send(message).await;
                }
                drop(sender);
                let hasher = hashing.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
                compare(&incoming.peer, &hasher, &incoming.checksum).map(|()| bytes)
            });
        }
        Ok(all(tasks).await?.iter().sum())
    }
}

/// Compares slices with their checksums, all at once; the first that differs is the error.
///
/// # Errors
/// [`FlightError::Checksum`].
pub async fn verify(arrived: Vec<Arrived>) -> Result<(), FlightError> {
    let mut tasks = JoinSet::new();
    for slice in arrived {
        tasks.spawn_blocking(move || slice.verify());
    }
    all(tasks).await.map(drop)
}

async fn all<T: 'static>(mut tasks: JoinSet<Result<T, FlightError>>) -> Result<Vec<T>, FlightError> {
    let mut results = Vec::new();
    while let Some(done) = tasks.join_next().await {
        results.push(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_as_they_are_written_and_others_are_not() {
        let wanted = Wanted { taker: 3, slice_bytes: 1000, message_bytes: 64 };
        assert_eq!(Wanted::parse(wanted.ticket().as_bytes()), Some(wanted));
        for wrong in ["", "shuffle/1/2", "shuffle/1/2/3/4", "fixed/4/65536/1/0/1", "shuffle/1/0/3", "shuffle/-1/2/3"] {
            assert_eq!(Wanted::parse(wrong.as_bytes()), None, "{wrong}");
        }
        let over = format!("shuffle/1/{}/1", SLICE_LIMIT_BYTES + 1);
        assert_eq!(Wanted::parse(over.as_bytes()), None);
    }

    #[test]
    fn slices_of_another_length_make_way() {
        let slices = Slices::of(1);
        slices.make(3, 100);
        assert_eq!(slices.held().len(), 3);
        slices.slice(Wanted { taker: 7, slice_bytes: 200, message_bytes: 0 });
        assert_eq!(slices.held().len(), 1);
    }
}
