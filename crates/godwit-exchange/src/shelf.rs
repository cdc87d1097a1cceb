//! What a process hands out: a shelf of downloads, and the server in front of it.

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

use crate::protocol::Ticket;

/// Batches that are read ahead of the network.
const READ_AHEAD: usize = 2;

/// Something to download.
pub struct Item {
    /// Schema of its batches; its metadata travels along.
    pub schema: SchemaRef,
    /// Batches with what is said beside them. Reading one may take its time.
    pub batches: Box<dyn Iterator<Item = io::Result<(RecordBatch, Bytes)>> + Send>,
}

/// What there is to download.
pub trait Shelf: Send + Sync + 'static {
    /// Opens what a ticket stands for. May take its time.
    ///
    /// # Errors
    /// What the file system reports; [`io::ErrorKind::NotFound`] where there is no such thing.
    fn open(&self, ticket: &Ticket) -> io::Result<Item>;
}

/// A channel as a stream.
pub(crate) struct Received<T>(pub(crate) mpsc::Receiver<T>);

impl<T> Stream for Received<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}

fn status(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::NotFound => Status::not_found(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
}

/// Opens a download and reads it on a thread that may wait for the disk.
pub(crate) async fn download<S: Shelf>(shelf: &Arc<S>, ticket: &[u8]) -> Result<Download, Status> {
    let ticket: Ticket =
        serde_json::from_slice(ticket).map_err(|_| Status::invalid_argument("the ticket cannot be read"))?;
    let shelf = shelf.clone();
    let opened = tokio::task::spawn_blocking(move || shelf.open(&ticket)).await;
    let item = opened.map_err(|error| Status::internal(error.to_string()))?.map_err(|error| status(&error))?;
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    tokio::task::spawn_blocking(move || {
        for batch in item.batches {
            // Nobody waits for the rest where the other end is gone.
            if sender.blocking_send(batch.map_err(|error| status(&error))).is_err() {
                return;
            }
        }
    });
    Ok(Download { schema: item.schema, batches: Box::pin(Received(receiver)) })
}
