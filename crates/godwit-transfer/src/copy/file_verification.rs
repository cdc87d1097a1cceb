//! The verification of a copied file: the block hashes of a source are compared with those of the destination.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stream_task::{Direction, StreamEvent};
use crate::abort_on_drop::AbortOnDropTask;
use crate::block_reader::BlockHashCache;
use crate::blocking::run_blocking;
use crate::control_client::{ControlClient, RETRY_DELAY};
use crate::copy_plan::CopyItem;
use crate::error::TransferError;
use crate::server_errors::{error_from_status, is_transient, is_unknown_session};
use godwit_transfer_session::blake3_tree::BlockHash;
use godwit_transfer_session::ranges::RangeSet;
use godwit_transfer_session::{FileId, SessionEvent};

/// The outcome of the verification of a file.
enum VerificationOutcome {
    /// Blocks that differ between source and destination, the hashes of all blocks, and the 0-based index of the
    /// source.
    Compared(RangeSet, Vec<BlockHash>, u32),
    /// The source with this index does not have the file, or this version of the file, any more.
    SourceGone(u32, TransferError),
    /// The server does not have the upload session of this name any more.
    SessionLost(String),
}

/// A source from which the block hashes of a file can be requested.
pub(super) struct HashSource {
    /// 0-based index of the source.
    pub(super) source: u32,
    pub(super) control: Arc<ControlClient>,
    /// Path of the file at the source.
    pub(super) path: String,
    pub(super) version: u64,
}

/// The verification of a file, with everything that it needs to run as a task.
pub(super) struct FileVerification {
    /// Sources from which the block hashes can be requested; at least one.
    pub(super) hash_sources: Vec<HashSource>,
    /// Longest time for retries if none of the sources responds.
    pub(super) retry_timeout: Duration,
    pub(super) direction: Direction,
    pub(super) block_hashes: Arc<BlockHashCache>,
    pub(super) item: CopyItem,
    pub(super) file: FileId,
    /// The running request for the block hashes, if it was sent before the last blocks arrived; otherwise `None`.
    pub(super) hash_prefetch: Option<HashPrefetch>,
}

/// The response of a source: its index, and the hashes of all blocks or the reason why it does not have the file.
type HashResponse = (u32, Result<Vec<BlockHash>, TransferError>);

/// A request for the block hashes of a file that is sent before its last blocks arrive. Dropping it cancels the
/// request.
pub(super) struct HashPrefetch(AbortOnDropTask<Result<HashResponse, TransferError>>);

impl HashPrefetch {
    /// Requests the block hashes of the file version that is being copied. The hashes stay valid for that version.
    pub(super) fn start(provers: Vec<HashSource>, retry_timeout: Duration) -> Self {
        Self(AbortOnDropTask::spawn(async move { fetch_block_hashes(&provers, retry_timeout).await }))
    }
}

impl FileVerification {
    /// Verifies the file and returns the event that reports the outcome.
    pub(super) async fn into_stream_event(mut self) -> StreamEvent {
        let file = self.file;
        match self.verify().await {
            Ok(VerificationOutcome::SessionLost(session)) => StreamEvent::VerifyAgain { file, session },
            Ok(VerificationOutcome::Compared(wrong, hashes, _)) if wrong.is_empty() => {
                StreamEvent::FileVerified { file, hashes }
            }
            Ok(VerificationOutcome::Compared(blocks, _, source)) => {
                StreamEvent::SessionEvent(SessionEvent::VerificationFailed { file, blocks, source })
            }
            Ok(VerificationOutcome::SourceGone(source, error)) => StreamEvent::FileFailed { file, source, error },
            // After this event, the session requests the hashes from another source, if there is one.
            Err(why) if why.concerns_one_file() => StreamEvent::FileFailed {
                file,
                source: self.hash_sources.first().map_or(0, |prover| prover.source),
                error: why,
            },
            Err(error) => StreamEvent::Fatal(error),
        }
    }

    async fn verify(&mut self) -> Result<VerificationOutcome, TransferError> {
        let foretold = match &mut self.hash_prefetch {
            Some(HashPrefetch(asked)) => asked.await.ok(),
            None => None,
        };
        match &self.direction {
            Direction::Download { receiver } => {
                let response = match foretold {
                    Some(Ok(said @ (_, Ok(_)))) => said,
                    _ => fetch_block_hashes(&self.hash_sources, self.retry_timeout).await?,
                };
                let (source, tree) = match response {
                    (source, Ok(tree)) => (source, tree),
                    (source, Err(gone)) => return Ok(VerificationOutcome::SourceGone(source, gone)),
                };
                let (inbox, file) = (receiver.clone(), self.file);
                run_blocking(move || {
                    Ok(VerificationOutcome::Compared(inbox.verify_file(file, &tree, false)?, tree, source))
                })
                .await
            }
            Direction::Upload { session, .. } => {
                let (hashes, path, version) =
                    (self.block_hashes.clone(), self.item.local_path(), self.item.entry.version);
                let tree = run_blocking(move || hashes.block_hashes(&path, version)).await?;
                let Some(prover) = self.hash_sources.first() else { return Err(no_source_error()) };
                match prover.control.finish_file(session, self.file, &tree, false).await {
                    Ok(wrong) => Ok(VerificationOutcome::Compared(wrong, tree, 0)),
                    // The server has no session of this name any more, because it was restarted.
                    Err(error) if is_unknown_session(&error) => Ok(VerificationOutcome::SessionLost(session.clone())),
                    Err(error) => Err(error_from_status(error)),
                }
            }
        }
    }
}

/// Returns the hashes of all blocks from the first source that responds, or the reason why that source lacks the file.
async fn fetch_block_hashes(provers: &[HashSource], retry_timeout: Duration) -> Result<HashResponse, TransferError> {
    let started = Instant::now();
    loop {
        let mut failure = no_source_error();
        for HashSource { source, control, path, version } in provers {
            match control.block_hashes(path, *version).await {
                Ok(Some(tree)) => return Ok((*source, Ok(tree))),
                Ok(None) => return Ok((*source, Err(TransferError::SourceChanged { location: path.clone() }))),
                Err(TransferError::Flight(error)) if is_transient(&error) => failure = error.into(),
                Err(error) if provers.len() > 1 => return Ok((*source, Err(error))),
                Err(error) => return Err(error),
            }
        }
        if started.elapsed() >= retry_timeout {
            return Err(failure);
        }
        // In a long outage, the calls fail at once.
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

fn no_source_error() -> TransferError {
    TransferError::Internal { problem: "a file to verify has no source".to_owned() }
}
