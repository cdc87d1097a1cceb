//! The downloads that a process offers, and the server in front of them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_core::Stream;
use godwit_flight::{Download, Status};
use tokio::sync::mpsc;

use crate::worker_messages::DownloadTicket;

/// Batches that are read ahead of the network.
const READ_AHEAD_BATCHES: usize = 2;

/// A download.
pub struct DownloadBatches {
    /// Schema of its batches; its metadata is sent too.
    pub schema: SchemaRef,
    /// Batches with their application metadata. Reading one may block.
    pub batches: Box<dyn Iterator<Item = io::Result<(RecordBatch, Bytes)>> + Send>,
}

/// A source of downloads.
pub trait DownloadSource: Send + Sync + 'static {
    /// Opens the download of a ticket. May block.
    ///
    /// # Errors
    /// The error of the file system; [`io::ErrorKind::NotFound`] where the download does not exist.
    fn open(&self, ticket: &DownloadTicket) -> io::Result<DownloadBatches>;
}

/// A channel as a stream.
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

/// Opens a download and reads it on a thread that may block on the disk.
pub(crate) async fn serve_download<S: DownloadSource>(source: &Arc<S>, ticket: &[u8]) -> Result<Download, Status> {
    let ticket: DownloadTicket =
        serde_json::from_slice(ticket).map_err(|_| Status::invalid_argument("the ticket cannot be read"))?;
    let shelf = source.clone();
    let opened = tokio::task::spawn_blocking(move || shelf.open(&ticket)).await;
    let item =
        opened.map_err(|error| Status::internal(error.to_string()))?.map_err(|error| status_from_io_error(&error))?;
    let (sender, receiver) = mpsc::channel(READ_AHEAD_BATCHES);
    tokio::task::spawn_blocking(move || {
        for batch in item.batches {
            // The client has disconnected: the rest is not needed.
            if sender.blocking_send(batch.map_err(|error| status_from_io_error(&error))).is_err() {
                return;
            }
        }
    });
    Ok(Download { schema: item.schema, batches: Box::pin(ReceiverStream(receiver)) })
}
