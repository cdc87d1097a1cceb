//! The verification of a received file against the block hashes of one of its sources.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abort_on_drop::AbortOnDropTask;
use crate::blake3_tree::BlockHash;
use crate::block_reader::BlockHashCache;
use crate::control_client::{ControlClient, error_from_status, is_transient, is_unknown_session};
use crate::copy_plan::CopyItem;
use crate::error::TransferError;
use crate::file_service::run_blocking;
use crate::ranges::RangeSet;
use crate::stream_task::{Direction, StreamEvent};
use crate::transfer_session::{FileId, SessionEvent};

/// The outcome of a verification.
enum VerificationOutcome {
    /// Blocks that differ from a source, the hashes of all blocks, and the source.
    Compared(RangeSet, Vec<BlockHash>, u32),
    /// A source does not have the file any more.
    SourceGone(u32, TransferError),
    /// The server does not know the upload session any more.
    SessionLost(String),
}

/// A source that provides the hashes of a file.
pub(super) struct HashSource {
    /// 0-based index of the source.
    pub(super) source: u32,
    pub(super) control: Arc<ControlClient>,
    /// Path and version of the file there.
    pub(super) path: String,
    pub(super) version: u64,
}

/// The verification of a file.
pub(super) struct FileVerification {
    /// Sources with the hashes; at least one.
    pub(super) hash_sources: Vec<HashSource>,
    /// Time for retries if no source responds.
    pub(super) retry_timeout: Duration,
    pub(super) direction: Direction,
    pub(super) block_hashes: Arc<BlockHashCache>,
    pub(super) item: CopyItem,
    pub(super) file: FileId,
    /// Hashes that were requested while the last blocks were on their way.
    pub(super) hash_prefetch: Option<HashPrefetch>,
}

/// The response of a source: the hashes of all blocks, or why it does not have the file.
type HashResponse = (u32, Result<Vec<BlockHash>, TransferError>);

/// A request for the hashes of a file in advance. Dropping it cancels the request.
pub(super) struct HashPrefetch(AbortOnDropTask<Result<HashResponse, TransferError>>);

impl HashPrefetch {
    /// Requests the hashes of the version that is being fetched; they stay valid for that version.
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
            // The session requests another source next, until none is left.
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
                    // The server was restarted.
                    Err(error) if is_unknown_session(&error) => Ok(VerificationOutcome::SessionLost(session.clone())),
                    Err(error) => Err(error_from_status(error)),
                }
            }
        }
    }
}

/// Returns the hashes of all blocks from the first source that responds, or why it does not have the file.
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
    }
}

fn no_source_error() -> TransferError {
    TransferError::Internal { problem: "a file without a source is to be proved".to_owned() }
}
