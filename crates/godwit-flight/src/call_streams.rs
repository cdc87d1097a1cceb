//! The streams and futures that calls consist of: batches of a download, results of an upload.

use std::pin::Pin;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_core::Stream;
use tonic::Status;

use crate::codec::FlightStreamChunk;

/// A record batch and the application metadata (`app_metadata`) that is sent with it.
pub type BatchItem = (RecordBatch, Bytes);

/// The schema and the batches that a server sends in response to `DoGet`.
pub struct Download {
    /// Schema of all batches.
    pub schema: SchemaRef,
    /// The batches in the order in which they are sent, or the error that ends the download.
    pub batches: Pin<Box<dyn Stream<Item = Result<BatchItem, Status>> + Send>>,
}

/// Results of an upload, which the server sends to the client as they are produced. The call ends when this stream
/// ends.
pub type PutResultStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// The batches and metadata that the server sends in an exchange. All batches have the schema of the first one;
/// messages with metadata only may precede it.
pub type ExchangeStream = Pin<Box<dyn Stream<Item = Result<FlightStreamChunk, Status>> + Send>>;

/// A boxed future of a result or a status, which may be sent to another thread.
pub type StatusFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'a>>;
