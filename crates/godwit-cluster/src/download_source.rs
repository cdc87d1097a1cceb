//! Downloads that the head or a worker offers to other processes, and the service that sends these downloads.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_core::Stream;
use godwit_flight::{Download, Status};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::messages::NoTicket;

/// Number of batches that are read from disk before the network can send them.
const READ_AHEAD_BATCHES: usize = 2;

/// An open download: the batches that are sent to the client, and their schema.
pub struct DownloadBatches {
    /// Schema of the batches. Its metadata is sent, too.
    pub schema: SchemaRef,
    /// The batches, each with the application metadata of its Flight message. Reading a batch may block.
    pub batches: Box<dyn Iterator<Item = io::Result<(RecordBatch, Bytes)>> + Send>,
}

/// A source of the downloads that a process offers.
pub trait DownloadSource: Send + Sync + 'static {
    /// The identification of a download.
    type Ticket: DeserializeOwned + Send + 'static;

    /// Opens the download that a ticket identifies. This call may block on the disk.
    ///
    /// # Errors
    /// The error of the file system, or [`io::ErrorKind::NotFound`] if the download does not exist.
    fn open(&self, ticket: &Self::Ticket) -> io::Result<DownloadBatches>;
}

/// The download source of a job without downloads.
pub struct NoDownloads;

impl DownloadSource for NoDownloads {
    type Ticket = NoTicket;

    fn open(&self, ticket: &NoTicket) -> io::Result<DownloadBatches> {
        match *ticket {}
    }
}

/// The receiving end of a channel as an asynchronous stream.
pub(crate) struct ReceiverStream<T>(pub(crate) mpsc::Receiver<T>);

impl<T> Stream for ReceiverStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}

fn status_from_io_error(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::NotFound => Status::not_found(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
}

/// Opens a download and sends its batches. A blocking thread reads the batches, because reads may wait for the disk.
pub(crate) async fn serve_download<S: DownloadSource>(source: &Arc<S>, ticket: &[u8]) -> Result<Download, Status> {
    let ticket: S::Ticket =
        serde_json::from_slice(ticket).map_err(|_| Status::invalid_argument("the ticket cannot be parsed"))?;
    let opener = source.clone();
    let opened = tokio::task::spawn_blocking(move || opener.open(&ticket)).await;
    let item =
        opened.map_err(|error| Status::internal(error.to_string()))?.map_err(|error| status_from_io_error(&error))?;
    let (sender, receiver) = mpsc::channel(READ_AHEAD_BATCHES);
    tokio::task::spawn_blocking(move || {
        for batch in item.batches {
            // Sending fails if the client has disconnected; the remaining batches are then not needed.
            if sender.blocking_send(batch.map_err(|error| status_from_io_error(&error))).is_err() {
                return;
            }
        }
    });
    Ok(Download { schema: item.schema, batches: Box::pin(ReceiverStream(receiver)) })
}
