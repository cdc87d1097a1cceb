//! The server of delta copies: serves downloads and uploads of genomes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use godwit_delta::{LoadedReference, ReferenceStore};
use godwit_flight::{Download, FlightStreamChunk, PutResultStream, Status, Upload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::delta_message::{DELTA_SCHEMA, DeltaMessage, MESSAGE_QUEUE_LENGTH};
use super::delta_receiver::{DeltaOutcome, DeltaReceiver};
use super::delta_sender::DeltaSender;
use crate::blocking::run_blocking;
use crate::copy_protocol::{DeltaDownloadRequest, DeltaUploadCommand, ReferenceRequest, to_json};
use crate::error::TransferError;
use crate::file_receiver::{CopyReceiver, wait_for_ended_copies};

/// Number of genomes that a server packs or unpacks at the same time; further requests wait. Memory: some segments of
/// up to 32 MiB for each thread of a genome.
const MAX_CONCURRENT_GENOMES: usize = 2;
/// Time for which a reference stays loaded after its last use. Loading takes seconds, and the client often requests the
/// next genome immediately.
const REFERENCE_CACHE_DURATION: Duration = Duration::from_secs(60);

/// The references of a server, and permits that limit the number of genomes in progress.
#[derive(Debug)]
pub(crate) struct DeltaService {
    references: Arc<ReferenceStore>,
    permits: Arc<Semaphore>,
}

/// A handle that sets the cancellation flag of a thread when it is dropped.
pub(crate) struct CancelOnDrop(pub(crate) Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl DeltaService {
    /// Returns a service that packs and unpacks genomes against these references.
    pub(crate) fn new(references: Arc<ReferenceStore>) -> Self {
        Self { references, permits: Arc::new(Semaphore::new(MAX_CONCURRENT_GENOMES)) }
    }

    /// Returns the references of the server.
    pub(crate) fn references(&self) -> &Arc<ReferenceStore> {
        &self.references
    }

    /// Returns the digest of a reference that matches the client's reference, as JSON; null if there is none.
    pub(crate) fn matching_reference(&self, request: &ReferenceRequest) -> Result<Vec<Bytes>, TransferError> {
        Ok(vec![to_json(&self.references.matching_digest(&request.sequences, !request.client_packs)?)?.into()])
    }

    async fn load_reference(
        &self,
        digest: String,
    ) -> Result<(Arc<LoadedReference>, OwnedSemaphorePermit), TransferError> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|error| TransferError::Internal { problem: error.to_string() })?;
        let references = self.references.clone();
        let loaded = run_blocking(move || {
            let none = || TransferError::rejected(format!("this server has no reference with the digest {digest}"));
            references.find_by_digest(&digest)?.ok_or_else(none)
        })
        .await?;
        let lingering = loaded.clone();
        tokio::spawn(async move {
            tokio::time::sleep(REFERENCE_CACHE_DURATION).await;
            drop(lingering);
        });
        Ok((loaded, permit))
    }

    /// Packs a file and sends it to the client.
    pub(crate) async fn serve_download(
        &self,
        path: PathBuf,
        request: DeltaDownloadRequest,
    ) -> Result<Download, TransferError> {
        let (reference, permit) = self.load_reference(request.reference).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let threads = self.references.threads();
        let packing = DeltaSender {
            path,
            version: request.version,
            reference,
            threads,
            cancelled: stop.clone(),
            processed_bytes: Arc::default(),
        };
        let (sender, receiver) = mpsc::channel::<Result<DeltaMessage, TransferError>>(MESSAGE_QUEUE_LENGTH);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            if let Err(error) = packing.send_file(&mut |piece| sender.blocking_send(Ok(piece)).is_ok()) {
                // Sending fails if the client has closed the connection; the error message is then not needed.
                let _ = sender.blocking_send(Err(error));
            }
        });
        let batches = stream::unfold((receiver, CancelOnDrop(stop)), |(mut receiver, stop)| async move {
            let piece = receiver.recv().await?;
            let item = piece.and_then(|piece| piece.to_batch()).map_err(Status::from);
            Some((item.map(|(batch, app_metadata)| (batch, Bytes::from(app_metadata))), (receiver, stop)))
        });
        Ok(Download { schema: DELTA_SCHEMA.clone(), batches: Box::pin(batches) })
    }

    /// Receives a file from the client and unpacks it; the response is the outcome.
    pub(crate) async fn serve_upload(
        &self,
        inbox: CopyReceiver,
        command: DeltaUploadCommand,
        first: Option<FlightStreamChunk>,
        upload: Upload,
    ) -> Result<PutResultStream, TransferError> {
        let (reference, permit) = self.load_reference(command.reference).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let (threads, entry) = (self.references.threads(), command.entry);
        let shared = inbox.share_receiver();
        let landing = DeltaReceiver {
            receiver: shared,
            entry,
            reference,
            threads,
            cancelled: stop.clone(),
            processed_bytes: Arc::default(),
        };
        let answer = async move {
            let (_inbox, _stop) = (inbox, CancelOnDrop(stop));
            let landed = receive_upload(landing, permit, first, upload).await?;
            Ok(Bytes::from(to_json(&landed)?))
        };
        Ok(Box::pin(stream::once(answer)))
    }
}

async fn receive_upload(
    landing: DeltaReceiver,
    permit: OwnedSemaphorePermit,
    first: Option<FlightStreamChunk>,
    mut upload: Upload,
) -> Result<DeltaOutcome, Status> {
    let (sender, mut receiver) = mpsc::channel(MESSAGE_QUEUE_LENGTH);
    let unpacking = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        wait_for_ended_copies();
        landing.receive_file(&mut receiver)
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
        // The first message, which starts the upload, has no batch.
        let Some(batch) = chunk.batch else { continue };
        let piece = DeltaMessage::from_batch(&batch, &chunk.app_metadata)?;
        let is_last = piece.trailer.is_some();
        // Sending failed because the receiving thread has stopped; its result contains the reason.
        if sender.send(piece).await.is_err() || is_last {
            break Ok(());
        }
    };
    drop(sender);
    let landed = unpacking.await.unwrap_or_else(|error| Err(TransferError::Internal { problem: error.to_string() }));
    match (landed, came) {
        (Err(TransferError::Interrupted), Err(status)) => Err(status),
        (landed, _) => Ok(landed?),
    }
}
