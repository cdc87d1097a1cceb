//! Storing a local file at a path of a server or pool; see [`StoreCommand`] for how servers that are lost and come back
//! are kept from damaging it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_auth::random_id;
use godwit_flight::{Answered, BatchSender, Client, FlightDescriptor, FlightError};
use godwit_transfer_session::blake3_tree::block_count;
use godwit_transfer_session::ranges::RangeSet;
use tokio::sync::mpsc;

use super::{MAX_DAMAGED_BLOCKS, READ_RETRY_DELAY, RemoteFiles, call_error};
use crate::block_reader::{BlockHashCache, BlockReader, SourceRange};
use crate::blocking::run_blocking;
use crate::copy_protocol::{
    BLOCK_SCHEMA, STORE_COMMAND, STORE_COMMIT, StoreCommand, StoreReport, encode_message, from_json, hashes_from_text,
};
use crate::error::TransferError;
use crate::file_listing::Entry;

/// Number of batches that may wait between the thread that reads the file and the connection.
const BATCH_QUEUE_LENGTH: usize = 2;

/// Options of [`RemoteFiles::write_file`].
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Permissions of the stored file: the lowest nine bits of the mode.
    pub mode: u32,
    /// Modification time of the stored file: seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
    /// True if no file may be at the path.
    pub is_exclusive: bool,
}

/// A local file that is being stored.
struct OutgoingStore {
    local: PathBuf,
    entry: Entry,
    hashes: Arc<BlockHashCache>,
    /// Largest number of blocks that a server has had.
    most_written: u64,
}

impl RemoteFiles {
    /// Stores a local file, which must not change meanwhile, at a path of the server. The file replaces the one at the
    /// path when it is complete and on disk. The upload continues at another pool member if one is lost.
    ///
    /// # Errors
    /// [`TransferError::NotFound`] if the directory does not exist; [`TransferError::Rejected`] if the principal may not
    /// write the file; [`TransferError::RemoteFailure`] with a reason if the storage of the server rejects the file;
    /// [`TransferError::Flight`] if no server answers; [`TransferError::Interrupted`] if `cancelled` is set.
    pub async fn write_file(
        &self,
        path: &str,
        local: &Path,
        options: &StoreOptions,
        cancelled: &AtomicBool,
    ) -> Result<(), TransferError> {
        let found =
            File::open(local).and_then(|file| file.metadata()).map_err(TransferError::io_error("read", local))?;
        let entry = Entry::from_metadata(String::new(), &found);
        let mut command = StoreCommand {
            path: self.server_path(path),
            attempt: String::new(),
            earlier_attempts: self.take_open_attempts(path),
            size_bytes: entry.size_bytes,
            mode: options.mode,
            modified: options.modified,
            is_exclusive: options.is_exclusive,
        };
        let mut store = OutgoingStore { local: local.to_owned(), entry, hashes: Arc::default(), most_written: 0 };
        let outcome = self.write_file_at_any_server(path, &mut store, &mut command, cancelled).await;
        if outcome.is_err() {
            let mut open = self.open_attempts.lock();
            open.insert(path.to_owned(), command.earlier_attempts);
        }
        outcome
    }

    fn take_open_attempts(&self, path: &str) -> Vec<String> {
        self.open_attempts.lock().remove(path).unwrap_or_default()
    }

    async fn write_file_at_any_server(
        &self,
        path: &str,
        store: &mut OutgoingStore,
        command: &mut StoreCommand,
        cancelled: &AtomicBool,
    ) -> Result<(), TransferError> {
        let (mut last_progress, mut damaged) = ((Instant::now(), 0), 0);
        loop {
            if cancelled.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            let call = self.start_call();
            let control = &call.0.control;
            let outcome = match control.connected_client().await {
                Ok(client) => {
                    command.attempt = random_id();
                    let outcome = store.send(&client, command).await;
                    // Until the outcome is known, a server may still carry out this attempt.
                    command.earlier_attempts.push(std::mem::take(&mut command.attempt));
                    outcome
                }
                Err(error) => Err(error.into()),
            };
            let error = match outcome {
                Err(TransferError::Flight(error)) => error,
                outcome => {
                    if outcome.is_ok() {
                        control.record_answer();
                    }
                    return outcome;
                }
            };
            if store.most_written > last_progress.1 {
                last_progress = (Instant::now(), store.most_written);
                control.record_answer();
            }
            damaged += u32::from(is_damaged(&error));
            let is_repeated = match is_damaged(&error) {
                true => damaged < MAX_DAMAGED_BLOCKS && last_progress.0.elapsed() < control.retry_timeout(),
                false => control.is_retried(&error, last_progress.0),
            };
            if !is_repeated {
                return Err(call_error(path, error));
            }
            match is_damaged(&error) {
                // The hashes may be those of other bytes.
                true => store.hashes = Arc::default(),
                false => control.disconnect(),
            }
            drop(call);
            tokio::time::sleep(READ_RETRY_DELAY).await;
        }
    }
}

fn is_damaged(error: &FlightError) -> bool {
    matches!(error, FlightError::Status { status, .. } if status.code() == godwit_flight::Code::DataLoss)
}

impl OutgoingStore {
    /// Sends the file to one server; returns when the server has stored it.
    async fn send(&mut self, client: &Client, command: &StoreCommand) -> Result<(), TransferError> {
        let descriptor = FlightDescriptor::new_cmd(encode_message(STORE_COMMAND, command)?);
        let (mut sender, reports) = client.upload(&descriptor, &BLOCK_SCHEMA)?;
        // The server opens its response stream after the first message. If a call ends early, sending fails, and the
        // reports state the reason.
        let _ = sender.send_metadata(&[]).await;
        let mut reports = reports.await?;
        let blocks = if command.size_bytes == 0 { 0 } else { block_count(command.size_bytes) };
        let (mut missing, mut next) = (RangeSet::from_range(0, blocks), 0);
        loop {
            match next_report(&mut reports).await? {
                StoreReport::Present(hashes) => next = self.remove_present(&mut missing, next, &hashes).await?,
                StoreReport::Ready => break,
                StoreReport::Stored => return Ok(()),
                StoreReport::Written(_) => return Err(unexpected_report()),
            }
        }
        let (present, wanted) = (blocks - missing.count(), missing.count());
        let sending = self.send_blocks(sender, missing);
        let receiving = async {
            let mut written = 0;
            while written < wanted {
                match next_report(&mut reports).await {
                    Ok(StoreReport::Written(count)) => written += count,
                    Ok(_) => return (written, Err(unexpected_report())),
                    Err(error) => return (written, Err(error)),
                }
            }
            (written, Ok(()))
        };
        let (sent, (written, received)) = tokio::join!(sending, receiving);
        self.most_written = self.most_written.max(present + written);
        let sent = match sent {
            Err(error @ TransferError::Flight(_)) => Err(error),
            sent => Ok(sent?),
        };
        received?;
        let _ = sent?.send_metadata(STORE_COMMIT).await;
        match next_report(&mut reports).await? {
            StoreReport::Stored => Ok(()),
            _ => Err(unexpected_report()),
        }
    }

    /// Removes the blocks from `missing` whose hashes are equal to those of the server, from block `next` on. Returns
    /// the first block after them.
    async fn remove_present(&self, missing: &mut RangeSet, next: u64, hashes: &str) -> Result<u64, TransferError> {
        let found = hashes_from_text(hashes).ok_or_else(unexpected_report)?;
        let (cache, local, version) = (self.hashes.clone(), self.local.clone(), self.entry.version);
        let own = run_blocking(move || cache.block_hashes(&local, version)).await?;
        for (block, hash) in (next..).zip(&found) {
            if own.get(block as usize) == Some(hash) {
                missing.remove(block, block + 1);
            }
        }
        Ok(next + found.len() as u64)
    }

    /// Sends the missing blocks, and returns the sender. If the call ends, the reports of the server state the reason.
    async fn send_blocks(&self, mut sender: BatchSender, missing: RangeSet) -> Result<BatchSender, TransferError> {
        let version = self.entry.version;
        let range = |blocks| SourceRange { file: 0, path: self.local.clone(), version, blocks, bypass_cache: false };
        let reader = BlockReader::new(missing.iter().map(range).collect(), self.hashes.clone(), false);
        let (ready, mut batches) = mpsc::channel(BATCH_QUEUE_LENGTH);
        tokio::task::spawn_blocking(move || {
            for read in reader {
                if ready.blocking_send(read).is_err() {
                    break;
                }
            }
        });
        while let Some(read) = batches.recv().await {
            let (batch, unreadable) = read?;
            if let Some((_, error)) = unreadable.into_iter().next() {
                return Err(error);
            }
            sender.send(&batch, &[]).await?;
        }
        Ok(sender)
    }
}

async fn next_report(reports: &mut Answered) -> Result<StoreReport, TransferError> {
    match reports.next().await? {
        Some(report) => from_json(&report),
        None => Err(FlightError::Malformed { problem: "the upload ended before it was complete" }.into()),
    }
}

fn unexpected_report() -> TransferError {
    FlightError::Malformed { problem: "unexpected report about a file that is stored" }.into()
}
