//! The server's ends: genomes that a client downloads, or uploads, as what differs from a reference.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use godwit_flight::{Answers, Chunk, Download, Status, Upload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::landing::{Landed, Landing};
use super::pieces::{PIECES_AHEAD, Piece, SCHEMA};
use super::references::{Loaded, References};
use super::source::Packing;
use crate::error::TransferError;
use crate::inbox::{CopyInbox, wait_for_ended_copies};
use crate::protocol::{PackedRequest, ReferenceRequest, UnpackCommand, json};
use crate::service::blocking;

/// Genomes that a server packs or unpacks at a time, others wait: each takes some segments of 32 MiB for each thread.
const AT_A_TIME: usize = 2;
/// How long a reference is held after its last use: it takes seconds to read, and the next file of the same copy comes at once.
const LINGER: Duration = Duration::from_secs(60);

/// What a server packs and unpacks by.
#[derive(Debug)]
pub(crate) struct Genomes {
    references: Arc<References>,
    at_a_time: Arc<Semaphore>,
}

/// Tells a thread that nobody wants its work any more.
pub(crate) struct Stop(pub(crate) Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Genomes {
    /// By these references.
    pub(crate) fn new(references: Arc<References>) -> Self {
        Self { references, at_a_time: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// The references.
    pub(crate) fn references(&self) -> &Arc<References> {
        &self.references
    }

    /// Digest of a reference that goes with the caller's.
    pub(crate) fn matching(&self, request: &ReferenceRequest) -> Result<Vec<Bytes>, TransferError> {
        Ok(vec![json(&self.references.matching(&request.sequences, !request.packs)?)?.into()])
    }

    async fn load(&self, digest: String) -> Result<(Arc<Loaded>, OwnedSemaphorePermit), TransferError> {
        let permit = self.at_a_time.clone().acquire_owned().await;
        let permit = permit.map_err(|error| TransferError::Bug { problem: error.to_string() })?;
        let references = self.references.clone();
        let loaded = blocking(move || references.by_digest(&digest)).await?;
        let lingering = loaded.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LINGER).await;
            drop(lingering);
        });
        Ok((loaded, permit))
    }

    /// Sends a file.
    pub(crate) async fn send(&self, path: PathBuf, request: PackedRequest) -> Result<Download, TransferError> {
        let (loaded, permit) = self.load(request.reference).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let threads = self.references.threads();
        let packing =
            Packing { path, version: request.version, loaded, threads, stop: stop.clone(), done_bytes: Arc::default() };
        let (sender, receiver) = mpsc::channel::<Result<Piece, TransferError>>(PIECES_AHEAD);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            if let Err(error) = packing.run(&mut |piece| sender.blocking_send(Ok(piece)).is_ok()) {
                // Who does not want it any more is told nothing.
                let _ = sender.blocking_send(Err(error));
            }
        });
        let batches = stream::unfold((receiver, Stop(stop)), |(mut receiver, stop)| async move {
            let piece = receiver.recv().await?;
            let item = piece.and_then(|piece| piece.to_batch()).map_err(Status::from);
            Some((item.map(|(batch, said)| (batch, Bytes::from(said))), (receiver, stop)))
        });
        Ok(Download { schema: SCHEMA.clone(), batches: Box::pin(batches) })
    }

    /// Takes a file; the answer says what became of it.
    pub(crate) async fn take(
        &self,
        inbox: CopyInbox,
        command: UnpackCommand,
        first: Option<Chunk>,
        upload: Upload,
    ) -> Result<Answers, TransferError> {
        let (loaded, permit) = self.load(command.reference).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let (threads, entry) = (self.references.threads(), command.entry);
        let shared = inbox.share();
        let landing = Landing { inbox: shared, entry, loaded, threads, stop: stop.clone(), done_bytes: Arc::default() };
        let answer = async move {
            let (_inbox, _stop) = (inbox, Stop(stop));
            let landed = take(landing, permit, first, upload).await?;
            Ok(Bytes::from(json(&landed)?))
        };
        Ok(Box::pin(stream::once(answer)))
    }
}

async fn take(
    landing: Landing,
    permit: OwnedSemaphorePermit,
    first: Option<Chunk>,
    mut upload: Upload,
) -> Result<Landed, Status> {
    let (sender, mut receiver) = mpsc::channel(PIECES_AHEAD);
    let unpacking = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        wait_for_ended_copies();
        landing.run(&mut receiver)
    });
    let mut next = first;
    let came = loop {
        let chunk = match next.take() {
            Some(chunk) => chunk,
            None => match upload.next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break Ok(()),
                Err(status) => break Err(status),
            },
        };
        // What is said without a batch opens the upload.
        let Some(batch) = chunk.batch else { continue };
        let piece = Piece::of(&batch, &chunk.app_metadata)?;
        let is_last = piece.last.is_some();
        // Why no more is taken is told by who takes it.
        if sender.send(piece).await.is_err() || is_last {
            break Ok(());
        }
    };
    drop(sender);
    let landed = unpacking.await.unwrap_or_else(|error| Err(TransferError::Bug { problem: error.to_string() }));
    match (landed, came) {
        (Err(TransferError::Interrupted), Err(status)) => Err(status),
        (landed, _) => Ok(landed?),
    }
}
