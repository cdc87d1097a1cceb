//! Measurements for `godwit bench shuffle`: every worker holds one slice of data for each worker. All workers download
//! their slices from all other workers at the same time.
//!
//! As in a cluster run (`docs/decisions/0008-pull-based-shuffle.md`), the receiver downloads slices by `DoGet`, in
//! messages of a given size. The sender computes a checksum over name and bytes when it creates a slice, and sends the
//! checksum with the last message. The receiver fails if the checksum differs. The caller of this module starts the
//! workers.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use futures_core::Stream;
use godwit_dataset::Principal;
use godwit_flight::measure::XorShift64;
use godwit_flight::{
    BatchItem, Client, DataPlane, Download, FlightError, PutResultStream, Status, TransportOptions, Upload,
};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Maximum number of received messages per slice that wait to be added to the checksum.
const QUEUE_MESSAGES: usize = 16;
/// Maximum size of a requested slice, bytes.
const MAX_SLICE_BYTES: u64 = 1 << 36;
/// Maximum size of a message, bytes. The length of a gRPC message, including the framing of Flight, has 32 bits.
pub const MAX_MESSAGE_BYTES: u64 = (1 << 32) - (1 << 16);

/// The content of a ticket `shuffle/RECEIVER/SLICE_BYTES/MESSAGE_BYTES`, which names a slice and the message size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRequest {
    /// 0-based index of the receiving worker.
    pub receiver: u32,
    /// Size of the slice, bytes; at least 1.
    pub slice_bytes: u64,
    /// Size of each message, bytes; at most [`MAX_MESSAGE_BYTES`]. 0: the sender only creates the slice and sends no
    /// data.
    pub message_bytes: u64,
}

impl SliceRequest {
    fn to_ticket(self) -> String {
        format!("shuffle/{}/{}/{}", self.receiver, self.slice_bytes, self.message_bytes)
    }

    fn parse(ticket: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(ticket).ok()?.strip_prefix("shuffle/")?.split('/');
        let request = Self {
            receiver: words.next()?.parse().ok()?,
            slice_bytes: words.next()?.parse().ok().filter(|bytes| (1..=MAX_SLICE_BYTES).contains(bytes))?,
            message_bytes: words.next()?.parse().ok().filter(|bytes| *bytes <= MAX_MESSAGE_BYTES)?,
        };
        words.next().is_none().then_some(request)
    }

    fn hasher(&self) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{}/{}/", self.receiver, self.slice_bytes).as_bytes());
        hasher
    }
}

/// Returns the default transport options, but without a limit of the message size.
pub fn transport_options() -> TransportOptions {
    TransportOptions { message_limit_bytes: u32::MAX.into(), ..TransportOptions::default() }
}

struct Slice {
    bytes: Buffer,
    checksum: blake3::Hash,
}

impl Slice {
    fn generate(sender: u32, wanted: SliceRequest) -> Self {
        let mut draw = XorShift64(0x9e37_79b9_7f4a_7c15 ^ (u64::from(sender) << 32 | u64::from(wanted.receiver)) << 8);
        let words = Buffer::from_iter((0..wanted.slice_bytes.div_ceil(8)).map(|_| draw.next_number()));
        let bytes = words.slice_with_length(0, wanted.slice_bytes as usize);
        let mut hasher = wanted.hasher();
        hasher.update(&bytes);
        Self { bytes, checksum: hasher.finalize() }
    }
}

/// The slices that a worker sends. All have the same size; a request for another size replaces them.
#[derive(Clone, Default)]
pub struct SliceSource {
    sender: u32,
    slices: Arc<Mutex<HashMap<u32, Arc<Slice>>>>,
}

impl SliceSource {
    /// Creates the slice source of the worker with index `sender`, without slices.
    pub fn new(sender: u32) -> Self {
        Self { sender, slices: Arc::default() }
    }

    /// Replaces all slices by new ones for the first `takers` workers. Blocks until the slices are created.
    pub fn generate(&self, takers: u32, slice_bytes: u64) {
        self.slices.lock().clear();
        for receiver in 0..takers {
            self.get_or_generate(SliceRequest { receiver, slice_bytes, message_bytes: 0 });
        }
    }

    /// Returns a slice; creates the slice if it does not exist.
    fn get_or_generate(&self, request: SliceRequest) -> Arc<Slice> {
        // Hold the lock while the slice is created, so that no slice is created twice.
        let mut held = self.slices.lock();
        held.retain(|_, slice| slice.bytes.len() as u64 == request.slice_bytes);
        held.entry(request.receiver).or_insert_with(|| Arc::new(Slice::generate(self.sender, request))).clone()
    }
}

fn slice_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("bytes", DataType::UInt8, false)]))
}

/// A stream of the messages of a slice, which share the memory of the slice.
struct SliceMessages {
    slice: Arc<Slice>,
    schema: SchemaRef,
    offset_bytes: usize,
    message_bytes: usize,
}

impl Stream for SliceMessages {
    type Item = Result<BatchItem, Status>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let left = self.slice.bytes.len() - self.offset_bytes;
        let bytes = left.min(self.message_bytes);
        if bytes == 0 {
            return std::task::Poll::Ready(None);
        }
        let values = ScalarBuffer::new(self.slice.bytes.clone(), self.offset_bytes, bytes);
        self.offset_bytes += bytes;
        let app_metadata = if bytes == left { self.slice.checksum.as_bytes().to_vec() } else { Vec::new() };
        let batch = RecordBatch::try_new(self.schema.clone(), vec![Arc::new(UInt8Array::new(values, None))]);
        let item = batch.map(|batch| (batch, app_metadata.into())).map_err(|error| Status::internal(error.to_string()));
        std::task::Poll::Ready(Some(item))
    }
}

impl DataPlane for SliceSource {
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        let wrong = || Status::not_found(format!("invalid slice ticket {}", String::from_utf8_lossy(&ticket)));
        let request = SliceRequest::parse(&ticket).ok_or_else(wrong)?;
        let slices = self.clone();
        let made = tokio::task::spawn_blocking(move || slices.get_or_generate(request)).await;
        let slice = made.map_err(|_| Status::internal("the slice could not be made"))?;
        let message_bytes = request.message_bytes as usize;
        let messages = SliceMessages { slice, schema: slice_schema(), offset_bytes: 0, message_bytes };
        Ok(Download { schema: slice_schema(), batches: Box::pin(messages) })
    }

    async fn upload(&self, _: Principal, _: Upload) -> Result<PutResultStream, Status> {
        Err(Status::unimplemented("DoPut is not supported by this server"))
    }
}

/// The receiving side of the download of a slice.
struct SliceReader {
    batches: godwit_flight::Batches,
    peer: String,
    checksum: Bytes,
}

impl SliceReader {
    async fn open(client: &Client, request: SliceRequest) -> Result<Self, FlightError> {
        let batches = client.download(request.to_ticket()).await?;
        Ok(Self { batches, peer: client.peer().to_owned(), checksum: Bytes::new() })
    }

    async fn next(&mut self) -> Result<Option<Buffer>, FlightError> {
        let Some((batch, app_metadata)) = self.batches.next().await? else { return Ok(None) };
        self.checksum = app_metadata;
        let column = batch.columns().first().and_then(|column| column.as_any().downcast_ref::<UInt8Array>());
        let column = column.ok_or(FlightError::Malformed { problem: "the message is not part of a slice" })?;
        Ok(Some(column.values().inner().clone()))
    }
}

/// A completely received slice whose checksum is not verified.
pub struct ReceivedSlice {
    request: SliceRequest,
    peer: String,
    messages: Vec<Buffer>,
    checksum: Bytes,
}

impl ReceivedSlice {
    /// Returns the size of the slice, bytes.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.len() as u64).sum()
    }

    /// Computes the checksum of the slice and compares it with the received checksum.
    fn verify(&self) -> Result<(), FlightError> {
        let mut hasher = self.request.hasher();
        for message in &self.messages {
            hasher.update(message);
        }
        verify_checksum(&self.peer, &hasher, &self.checksum)
    }
}

fn verify_checksum(peer: &str, hasher: &blake3::Hasher, expected: &[u8]) -> Result<(), FlightError> {
    // The checksum includes name, length and order of the bytes, so it also detects missing, swapped and misdirected
    // messages.
    match hasher.finalize().as_bytes()[..] == *expected {
        true => Ok(()),
        false => Err(FlightError::Checksum { peer: peer.to_owned() }),
    }
}

/// One worker of a shuffle, with its slices and connections to all other workers.
pub struct ShuffleWorker {
    /// The slices that this worker sends.
    pub slices: SliceSource,
    /// Connections to the other workers.
    pub peers: Vec<Client>,
}

impl ShuffleWorker {
    /// Requests that every other worker creates its slices, so that the measured transfer does not include this time.
    ///
    /// # Errors
    /// [`FlightError`] if a worker rejects the request or its connection fails.
    pub async fn prepare_slices(&self, wanted: SliceRequest) -> Result<(), FlightError> {
        let request = SliceRequest { message_bytes: 0, ..wanted };
        let mut tasks = JoinSet::new();
        for client in &self.peers {
            let client = client.clone();
            tasks.spawn(async move {
                let mut nothing = SliceReader::open(&client, request).await?;
                while nothing.next().await?.is_some() {}
                Ok(())
            });
        }
        join_all(tasks).await.map(drop)
    }

    /// Downloads the slices for this worker from all other workers at once. Includes the slice that this worker holds
    /// for itself, without a transfer.
    ///
    /// # Errors
    /// [`FlightError`] if a worker rejects the request or its connection fails.
    pub async fn fetch_slices(&self, request: SliceRequest) -> Result<Vec<ReceivedSlice>, FlightError> {
        let mut tasks = JoinSet::new();
        for client in &self.peers {
            let client = client.clone();
            tasks.spawn(async move {
                let mut incoming = SliceReader::open(&client, request).await?;
                let mut messages = Vec::new();
                while let Some(message) = incoming.next().await? {
                    messages.push(message);
                }
                Ok(ReceivedSlice { request, peer: incoming.peer, messages, checksum: incoming.checksum })
            });
        }
        let mut arrived = join_all(tasks).await?;
        arrived.push(self.own_slice(request));
        Ok(arrived)
    }

    fn own_slice(&self, request: SliceRequest) -> ReceivedSlice {
        let slice = self.slices.get_or_generate(request);
        let checksum = Bytes::copy_from_slice(slice.checksum.as_bytes());
        ReceivedSlice { request, peer: "this worker".into(), messages: vec![slice.bytes.clone()], checksum }
    }

    /// Downloads the slices for this worker, and verifies messages while others arrive. Returns the number of bytes
    /// received from other workers.
    ///
    /// # Errors
    /// [`FlightError::Checksum`] if the checksum of a slice differs; other variants if a connection fails.
    pub async fn fetch_and_verify(&self, request: SliceRequest) -> Result<u64, FlightError> {
        let mut tasks = JoinSet::new();
        let own = self.own_slice(request);
        tasks.spawn_blocking(move || own.verify().map(|()| 0));
        for client in &self.peers {
            let client = client.clone();
            tasks.spawn(async move {
                let mut incoming = SliceReader::open(&client, request).await?;
                let (sender, mut receiver) = mpsc::channel::<Buffer>(QUEUE_MESSAGES);
                let hashing = tokio::task::spawn_blocking(move || {
                    let mut hasher = request.hasher();
                    while let Some(message) = receiver.blocking_recv() {
                        hasher.update(&message);
                    }
                    hasher
                });
                let mut bytes = 0;
                while let Some(message) = incoming.next().await? {
                    bytes += message.len() as u64;
                    // Ignore the result: sending cannot fail, because the receiver of this channel exists until the
                    // sender is dropped.
                    let _ = sender.send(message).await;
                }
                drop(sender);
                let hasher = hashing.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
                verify_checksum(&incoming.peer, &hasher, &incoming.checksum).map(|()| bytes)
            });
        }
        Ok(join_all(tasks).await?.iter().sum())
    }
}

/// Verifies the checksums of received slices in parallel.
///
/// # Errors
/// [`FlightError::Checksum`] if the checksum of a slice differs.
pub async fn verify_slices(arrived: Vec<ReceivedSlice>) -> Result<(), FlightError> {
    let mut tasks = JoinSet::new();
    for slice in arrived {
        tasks.spawn_blocking(move || slice.verify());
    }
    join_all(tasks).await.map(drop)
}

async fn join_all<T: 'static>(mut tasks: JoinSet<Result<T, FlightError>>) -> Result<Vec<T>, FlightError> {
    let mut results = Vec::new();
    while let Some(done) = tasks.join_next().await {
        results.push(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?);
    }
    Ok(results)
}

#[cfg(test)]
mod tests;
