//! Delta copies, before all other files are copied: genomes that are absent from the destination are sent as
//! differences from a reference that both ends have.
//!
//! The ordinary copy then finds these genomes complete at the destination. It copies all other files, and the genomes
//! for which the delta copy failed. Only a timeout or a cancellation during a delta copy ends the whole copy.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_delta::{LoadedReference, ReferenceStore};
use godwit_flight::{Client, FlightDescriptor, FlightError};
use tokio::sync::mpsc;

use super::CopyOperation;
use super::session_driver::PROGRESS_INTERVAL;
use crate::blocking::run_blocking;
use crate::copy_plan::CopyItem;
use crate::copy_protocol::{
    DELTA_TICKET, DELTA_UPLOAD_COMMAND, DeltaDownloadRequest, DeltaUploadCommand, ReceiverState, encode_message,
    from_json,
};
use crate::delta_transfer::delta_message::{DELTA_SCHEMA, DeltaMessage, MESSAGE_QUEUE_LENGTH};
use crate::delta_transfer::delta_receiver::{DeltaOutcome, DeltaReceiver};
use crate::delta_transfer::delta_sender::DeltaSender;
use crate::delta_transfer::delta_service::CancelOnDrop;
use crate::delta_transfer::may_be_genome;
use crate::error::TransferError;
use crate::file_listing::Entry;
use crate::file_receiver::{CopyReceiver, FileReceiver, wait_for_ended_copies};
use crate::path_text::{escape_for_display, escape_invalid_bytes};
use crate::server_errors::{error_from_status, is_transient};
use crate::tcp_tuning::{self, SendOptions};
use godwit_transfer_session::copy_events::CopyEvent;

/// Delay between two attempts to copy a genome.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Counts of the genomes that were copied with delta compression.
#[derive(Debug, Default)]
pub(super) struct DeltaSummary {
    /// Paths, below the destination, of the files that were copied with delta compression.
    pub(super) copied_paths: HashSet<String>,
    /// Size of the files that were copied with delta compression, bytes.
    pub(super) bytes: u64,
    /// Bytes sent over the network for the files with delta compression.
    pub(super) sent_bytes: u64,
}

/// A reference that both the client and the server have.
struct SharedReference {
    reference: Arc<LoadedReference>,
    /// Digest of the matching reference at the server, which may differ from the digest of the local reference.
    server_digest: String,
}

/// The reason why the delta copy of a genome failed.
enum DeltaCopyError {
    /// The connection or the server failed; the delta copy may be retried.
    Connection(FlightError),
    /// Any error other than of the connection; the delta copy is not retried.
    Local(TransferError),
}

impl From<FlightError> for DeltaCopyError {
    fn from(error: FlightError) -> Self {
        Self::Connection(error)
    }
}

impl From<TransferError> for DeltaCopyError {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Flight(error) => Self::Connection(error),
            error => Self::Local(error),
        }
    }
}

impl CopyOperation<'_> {
    /// Copies the files that are genomes, with delta compression.
    ///
    /// # Errors
    /// [`TransferError::Io`] or [`TransferError::Delta`] if a local reference cannot be read, [`TransferError::Flight`]
    /// if the server cannot be reached, [`TransferError::Timeout`] if a genome times out,
    /// [`TransferError::Interrupted`] if the copy was cancelled.
    pub(super) async fn copy_genomes(
        &self,
        references: &Arc<ReferenceStore>,
        cancelled: &AtomicBool,
    ) -> Result<DeltaSummary, TransferError> {
        let mut packed = DeltaSummary::default();
        let genomes = self.candidate_genomes().await?;
        if genomes.is_empty() {
            return Ok(packed);
        }
        let Some(shared) = self.find_shared_reference(references).await? else { return Ok(packed) };
        let (mut client, mut left) = (None, BTreeMap::<String, Vec<String>>::new());
        for item in genomes {
            match self.copy_genome(&item, &shared, references.threads(), &mut client, cancelled).await {
                Ok((DeltaOutcome::Completed { blake3 }, sent_bytes)) => {
                    let (path, bytes) = (item.entry.path.clone(), item.entry.size_bytes);
                    packed.bytes += bytes;
                    packed.sent_bytes += sent_bytes;
                    packed.copied_paths.insert(path.clone());
                    let path = escape_invalid_bytes(&path);
                    self.observer.on_event(&CopyEvent::DeltaCopied { path: path.clone(), bytes, sent_bytes });
                    self.observer.on_event(&CopyEvent::Copied { path, bytes, blake3 });
                }
                Ok((DeltaOutcome::Unsuitable { reason }, _)) => {
                    left.entry(reason).or_default().push(escape_for_display(&item.source_path))
                }
                // Another copy has completed the file since the listing.
                Ok((DeltaOutcome::AlreadyPresent, _)) => {}
                Err(error @ (TransferError::Interrupted | TransferError::Timeout { .. })) => return Err(error),
                Err(error) => left
                    .entry(godwit_model::message_with_causes(&error))
                    .or_default()
                    .push(escape_for_display(&item.source_path)),
            }
        }
        for (why, files) in left {
            let others = if files.len() > 1 { format!(" and {} more", files.len() - 1) } else { String::new() };
            self.warn(format!("{}{others}: copied without delta compression: {why}", files[0]));
        }
        Ok(packed)
    }

    fn warn(&self, message: String) {
        self.observer.on_event(&CopyEvent::Warning { message });
    }

    /// Returns the files that are absent from the destination and may be genomes, by name and size.
    async fn candidate_genomes(&self) -> Result<Vec<CopyItem>, TransferError> {
        let wanted = |item: &&CopyItem| {
            let is_plain = !item.entry.is_file() || self.expected_checksums.contains_key(&item.entry.path);
            !is_plain && may_be_genome(&item.source_path, item.entry.size_bytes)
        };
        let items: Vec<CopyItem> = self.plan.items.iter().filter(wanted).cloned().collect();
        let entries: Vec<Entry> = items.iter().map(|item| item.entry.clone()).collect();
        let have: Vec<Result<ReceiverState, TransferError>> = match self.is_download {
            _ if items.is_empty() => Vec::new(),
            true => {
                let inbox = FileReceiver::new(&self.destination_directory(), self.options.reject_hidden);
                run_blocking(move || Ok(entries.iter().map(|entry| inbox.receiver_state(entry)).collect())).await?
            }
            false => self.control.begin_files(&self.destination_path, &entries, true).await?.1,
        };
        // If the server did not report the state of a file, the ordinary copy handles the file and reports the error.
        let nothing = |(item, have)| matches!(have, Ok(ReceiverState::Absent)).then_some(item);
        Ok(items.into_iter().zip(have).filter_map(nothing).collect())
    }

    /// Returns the first reference that the client and the server both have; warns if there is none.
    async fn find_shared_reference(
        &self,
        references: &Arc<ReferenceStore>,
    ) -> Result<Option<SharedReference>, TransferError> {
        for path in references.paths() {
            let (references, path) = (references.clone(), path.clone());
            let reference = run_blocking(move || Ok(references.load_reference(&path)?)).await?;
            match self.control.matching_reference(reference.sequence_identities(), !self.is_download).await {
                Ok(Some(server_digest)) => return Ok(Some(SharedReference { reference, server_digest })),
                Ok(None) => {}
                Err(error @ TransferError::Flight(_)) => return Err(error),
                Err(error) => {
                    let why = godwit_model::message_with_causes(&error);
                    self.warn(format!(
                        "{}: genomes are sent without delta compression: {why}",
                        self.control.server_uri()
                    ));
                    return Ok(None);
                }
            }
        }
        let server = self.control.server_uri();
        self.warn(match references.paths() {
            [] => "--reference is not given: genomes are copied without delta compression".to_owned(),
            [only] => format!(
                "{server} has no reference with the sequences of {}: genomes are sent without delta compression; add \
                 it there with `godwit serve --reference`",
                only.display()
            ),
            [first, rest @ ..] => format!(
                "{server} has no reference with the sequences of {} or the {} others: genomes are sent without delta \
                 compression",
                first.display(),
                rest.len()
            ),
        });
        Ok(None)
    }

    /// Copies a genome with delta compression; retries if the connection fails. Returns the outcome and the bytes sent.
    async fn copy_genome(
        &self,
        item: &CopyItem,
        shared: &SharedReference,
        threads: usize,
        client: &mut Option<Client>,
        cancelled: &AtomicBool,
    ) -> Result<(DeltaOutcome, u64), TransferError> {
        let mut heard_at = Instant::now();
        loop {
            let done_bytes = Arc::new(AtomicU64::new(0));
            let attempt = async {
                let client = match client.take() {
                    Some(client) => client,
                    None => self.control.open_connection().await?,
                };
                let sent = match self.is_download {
                    true => self.download_delta(&client, item, shared, threads, done_bytes.clone()).await,
                    false => self.upload_delta(&client, item, shared, threads, done_bytes.clone()).await,
                };
                sent.map(|sent| (sent, client))
            };
            let outcome = self.run_with_progress(attempt, item, &done_bytes, cancelled).await?;
            match outcome {
                Ok((sent, kept)) => {
                    *client = Some(kept);
                    return Ok(sent);
                }
                Err(DeltaCopyError::Local(error)) => return Err(error),
                Err(DeltaCopyError::Connection(error)) if is_transient(&error) => {
                    if done_bytes.load(Ordering::Relaxed) > 0 {
                        heard_at = Instant::now();
                    }
                    if heard_at.elapsed() >= self.options.idle_timeout {
                        let source = Some(Box::new(error.into()));
                        return Err(TransferError::Timeout { seconds: self.options.idle_timeout.as_secs(), source });
                    }
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(DeltaCopyError::Connection(error)) => return Err(error_from_status(error)),
            }
        }
    }

    /// Reports progress while `work` runs; stops `work` if the copy is cancelled.
    async fn run_with_progress<T>(
        &self,
        work: impl Future<Output = T>,
        item: &CopyItem,
        done_bytes: &AtomicU64,
        cancelled: &AtomicBool,
    ) -> Result<T, TransferError> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                    if cancelled.load(Ordering::Relaxed) {
                        return Err(TransferError::Interrupted);
                    }
                    let (path, total_bytes) = (escape_invalid_bytes(&item.entry.path), item.entry.size_bytes);
                    self.observer.on_event(&CopyEvent::DeltaProgress { path, bytes: done_bytes.load(Ordering::Relaxed), total_bytes });
                }
            }
        }
    }

    /// Returns the send options of a copy that uses a single connection.
    fn single_stream_options(&self) -> SendOptions {
        let bytes_per_s = self.options.bits_per_s.map(|bits| (bits / 8).max(1));
        SendOptions { mode: self.options.mode, bytes_per_s, compress: false }
    }

    async fn download_delta(
        &self,
        client: &Client,
        item: &CopyItem,
        shared: &SharedReference,
        threads: usize,
        processed_bytes: Arc<AtomicU64>,
    ) -> Result<(DeltaOutcome, u64), DeltaCopyError> {
        let (path, version) = (item.source_path.clone(), item.entry.version);
        let request = DeltaDownloadRequest {
            path,
            version,
            reference: shared.server_digest.clone(),
            send_options: self.single_stream_options(),
        };
        let mut batches = client.download(encode_message(DELTA_TICKET, &request)?).await?;
        let owner = CopyReceiver::new(FileReceiver::new(&self.destination_directory(), self.options.reject_hidden));
        let receiver = owner.share_receiver();
        let (stop, entry) = (Arc::new(AtomicBool::new(false)), item.entry.clone());
        let landing = DeltaReceiver {
            receiver,
            entry,
            reference: shared.reference.clone(),
            threads,
            cancelled: stop.clone(),
            processed_bytes,
        };
        let _stop = CancelOnDrop(stop);
        let (sender, mut receiver) = mpsc::channel(MESSAGE_QUEUE_LENGTH);
        let unpacking = tokio::task::spawn_blocking(move || {
            wait_for_ended_copies();
            landing.receive_file(&mut receiver)
        });
        let mut sent_bytes = 0;
        let came = loop {
            let (batch, app_metadata) = match batches.next().await {
                Ok(Some(item)) => item,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let piece = DeltaMessage::from_batch(&batch, &app_metadata)?;
            sent_bytes += (piece.packed.len() + piece.block_specs.len()) as u64;
            // Sending failed because the receiving thread has stopped; its result contains the reason.
            if sender.send(piece).await.is_err() {
                break Ok(());
            }
        };
        drop(sender);
        match (join_result(unpacking.await), came) {
            (Err(TransferError::Interrupted), Err(error)) => Err(error.into()),
            (landed, _) => Ok((landed?, sent_bytes)),
        }
    }

    async fn upload_delta(
        &self,
        client: &Client,
        item: &CopyItem,
        shared: &SharedReference,
        threads: usize,
        processed_bytes: Arc<AtomicU64>,
    ) -> Result<(DeltaOutcome, u64), DeltaCopyError> {
        tcp_tuning::apply_send_options(client.socket_handle(), self.single_stream_options());
        let (base_path, entry) = (self.destination_path.clone(), item.entry.clone());
        let command = encode_message(
            DELTA_UPLOAD_COMMAND,
            &DeltaUploadCommand { base_path, entry, reference: shared.server_digest.clone() },
        )?;
        let (mut sender, answers) = client.upload(&FlightDescriptor::new_cmd(command), &DELTA_SCHEMA)?;
        // Send an empty message first: the server opens its response stream only after the first request.
        sender.send_metadata(&[]).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let (path, version, reference) = (item.local_path(), item.entry.version, shared.reference.clone());
        let packing = DeltaSender { path, version, reference, threads, cancelled: stop.clone(), processed_bytes };
        let _stop = CancelOnDrop(stop);
        let (pieces, mut receiver) = mpsc::channel::<DeltaMessage>(MESSAGE_QUEUE_LENGTH);
        let packing =
            tokio::task::spawn_blocking(move || packing.send_file(&mut |piece| pieces.blocking_send(piece).is_ok()));
        let sending = async {
            let mut sent_bytes = 0;
            while let Some(piece) = receiver.recv().await {
                sent_bytes += (piece.packed.len() + piece.block_specs.len()) as u64;
                let (batch, app_metadata) = piece.to_batch()?;
                sender.send(&batch, &app_metadata).await?;
            }
            join_result(packing.await)?;
            sender.finish().await?;
            Ok::<u64, DeltaCopyError>(sent_bytes)
        };
        let hearing = async {
            let mut answers = answers.await?;
            let answer = answers
                .next()
                .await?
                .ok_or(FlightError::Malformed { problem: "the server closed the delta copy without a response" })?;
            Ok::<DeltaOutcome, DeltaCopyError>(from_json(&answer)?)
        };
        tokio::pin!(sending, hearing);
        tokio::select! {
            landed = &mut hearing => Ok((landed?, 0)),
            sent = &mut sending => match sent {
                Ok(sent_bytes) => Ok((hearing.await?, sent_bytes)),
                Err(failed @ DeltaCopyError::Local(_)) => Err(failed),
                // If the server stopped the upload, its response states the reason.
                Err(failed @ DeltaCopyError::Connection(_)) => match hearing.await {
                    Ok(landed) => Ok((landed, 0)),
                    Err(DeltaCopyError::Connection(FlightError::Malformed { .. })) => Err(failed),
                    Err(told) => Err(told),
                },
            },
        }
    }
}

fn join_result<T>(work: Result<Result<T, TransferError>, tokio::task::JoinError>) -> Result<T, TransferError> {
    work.unwrap_or_else(|error| Err(TransferError::Internal { problem: error.to_string() }))
}
