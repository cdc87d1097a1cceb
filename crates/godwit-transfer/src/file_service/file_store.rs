//! The server's side of [`StoreCommand`]: one file is received under a temporary name of its own, and replaces the file
//! at its path when it is complete and on disk.
//!
//! Several servers may serve the same directory, and one of them may be suspended at any moment and continue later. So
//! two attempts never write to the same file, and removing the temporary file of an attempt ends that attempt: its
//! rename fails.

use std::collections::VecDeque;
use std::fs::{self, File, FileTimes, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures_util::stream;
use godwit_dataset::{FileAccess, Principal};
use godwit_flight::{FlightStreamChunk, PutResultStream, Upload};
use godwit_transfer_session::blake3_tree::{block_byte_range, block_count, hash_block};
use godwit_transfer_session::ranges::RangeSet;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::file_operations::{access_error, sync_parent};
use super::{FileServiceState, MAX_HASHES_PER_MESSAGE};
use crate::blocking::run_blocking;
use crate::copy_protocol::{BlockBatch, STORE_COMMIT, StoreCommand, StoreReport, hashes_to_text, to_json};
use crate::delegation_tokens::authorize_unrestricted;
use crate::error::TransferError;
use crate::unix_time::time_from_unix;
use godwit_transfer_session::partial_paths::PART_SUFFIX;

/// Number of hexadecimal digits of the identifier of an attempt.
const ATTEMPT_DIGITS: usize = 2 * blake3::OUT_LEN;

/// A file that is being stored. Its temporary file is removed if it is dropped before it is stored.
#[derive(Debug)]
struct IncomingStore {
    command: StoreCommand,
    target: PathBuf,
    part: PathBuf,
    file: File,
    /// The blocks that are written.
    blocks: RangeSet,
    is_stored: bool,
}

impl FileServiceState {
    /// Starts to receive a file. The returned stream has the reports for the client.
    pub(super) async fn store_file(
        self: Arc<Self>,
        principal: Principal,
        command: StoreCommand,
        first: Option<FlightStreamChunk>,
        upload: Upload,
    ) -> Result<PutResultStream, TransferError> {
        let started = run_blocking(move || {
            authorize_unrestricted(&principal)?;
            self.check_writable()?;
            self.authorize_by_rules(&principal, &command.path, FileAccess::Write)?;
            let target = self.resolve_changed(&command.path)?;
            IncomingStore::start(command, target)
        });
        let (store, reports) = started.await?;
        Ok(stream_reports(store, reports, first, upload))
    }
}

impl IncomingStore {
    /// Ends the earlier attempts and creates the temporary file of this one, with the blocks that an earlier attempt
    /// has received. Returns the first reports to the client, and the file unless it is stored already.
    fn start(command: StoreCommand, target: PathBuf) -> Result<(Option<Self>, VecDeque<StoreReport>), TransferError> {
        let part = part_path(&target, &command.attempt)?;
        let (mut received, mut may_be_stored) = (None, false);
        for attempt in &command.earlier_attempts {
            let earlier = part_path(&target, attempt)?;
            let opened = File::open(&earlier).ok();
            match fs::remove_file(&earlier) {
                Ok(()) => received = received.or(opened),
                // That attempt had not started, has failed, or has stored the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => may_be_stored = true,
                Err(error) => return Err(access_error("remove", &earlier, &command.path)(error)),
            }
        }
        match fs::metadata(&target) {
            Ok(found) if found.is_dir() => return Err(existing_error(io::ErrorKind::IsADirectory, &target)),
            Ok(found) if command.is_exclusive => {
                // The times of files that a client stores differ, so this is the file of the earlier attempt.
                if !(may_be_stored && is_same_file(&command, &found)) {
                    return Err(existing_error(io::ErrorKind::AlreadyExists, &target));
                }
                File::open(&target)
                    .and_then(|file| file.sync_all())
                    .map_err(TransferError::io_error("write", &target))?;
                sync_parent(&target)?;
                return Ok((None, VecDeque::from([StoreReport::Stored])));
            }
            _ => {}
        }
        let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&part);
        let file = created.map_err(access_error("create", &part, &command.path))?;
        let mut store = Self { command, target, part, file, blocks: RangeSet::default(), is_stored: false };
        let mut reports = match received {
            Some(received) => store.copy_blocks(&received)?,
            None => VecDeque::new(),
        };
        reports.push_back(StoreReport::Ready);
        Ok((Some(store), reports))
    }

    /// Copies the blocks of an earlier attempt, and returns their hashes. The client compares them with its own, so
    /// blocks that the earlier attempt had not written do no harm.
    fn copy_blocks(&mut self, received: &File) -> Result<VecDeque<StoreReport>, TransferError> {
        let (size_bytes, mut hashes, mut data) = (self.command.size_bytes, Vec::new(), Vec::new());
        let received_bytes = received.metadata().map_err(TransferError::io_error("read", &self.part))?.len();
        for block in 0..block_count(size_bytes) {
            let (start, end) = block_byte_range(block, size_bytes);
            if end > received_bytes || start == end {
                break;
            }
            data.resize((end - start) as usize, 0);
            received.read_exact_at(&mut data, start).map_err(TransferError::io_error("read", &self.part))?;
            self.file.write_all_at(&data, start).map_err(TransferError::io_error("write", &self.part))?;
            hashes.push(hash_block(&data, block, size_bytes));
        }
        self.blocks.insert(0, hashes.len() as u64);
        Ok(hashes.chunks(MAX_HASHES_PER_MESSAGE).map(|some| StoreReport::Present(hashes_to_text(some))).collect())
    }

    /// Writes the blocks of a batch; returns their number.
    fn write_batch(&mut self, batch: &RecordBatch) -> Result<u64, TransferError> {
        let (size_bytes, mut count) = (self.command.size_bytes, 0);
        let damaged = || TransferError::Damaged { location: self.command.path.clone() };
        for block in BlockBatch::from_batch(batch)?.iter() {
            if block.block_index >= block_count(size_bytes) {
                return Err(damaged());
            }
            let (start, end) = block_byte_range(block.block_index, size_bytes);
            let verified = block.verify(size_bytes).filter(|(data, _)| data.len() as u64 == end - start);
            let (data, _) = verified.ok_or_else(damaged)?;
            self.file.write_all_at(&data, start).map_err(TransferError::io_error("write", &self.part))?;
            self.blocks.insert(block.block_index, block.block_index + 1);
            count += 1;
        }
        Ok(count)
    }

    /// Gives the complete file its mode, time and path; when it returns, the file is on disk.
    fn commit(&mut self) -> Result<(), TransferError> {
        let StoreCommand { size_bytes, mode, modified: (seconds, nanoseconds), is_exclusive, path, .. } = &self.command;
        if *size_bytes > 0 && self.blocks.count() != block_count(*size_bytes) {
            return Err(TransferError::rejected("the client ended a file before it had sent all its blocks"));
        }
        let times = FileTimes::new().set_modified(time_from_unix(*seconds, *nanoseconds));
        let complete = || {
            self.file.set_len(*size_bytes)?;
            self.file.set_permissions(Permissions::from_mode(mode & 0o777))?;
            self.file.set_times(times)?;
            self.file.sync_all()
        };
        complete().map_err(TransferError::io_error("write", &self.part))?;
        let flags = if *is_exclusive { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        match renameat_with(CWD, &self.part, CWD, &self.target, flags).map_err(io::Error::from) {
            // The client has started another attempt, at this server or at another one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(TransferError::Busy { location: path.clone() });
            }
            renamed => renamed.map_err(TransferError::io_error("rename", &self.target))?,
        }
        self.is_stored = true;
        sync_parent(&self.target)
    }
}

impl Drop for IncomingStore {
    fn drop(&mut self) {
        if !self.is_stored {
            // Another attempt may have removed it.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Returns the path of the temporary file of an attempt.
fn part_path(target: &Path, attempt: &str) -> Result<PathBuf, TransferError> {
    match attempt.len() == ATTEMPT_DIGITS && attempt.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(target.with_file_name(format!(".{attempt}{PART_SUFFIX}"))),
        false => Err(TransferError::rejected("invalid identifier of an attempt to store a file")),
    }
}

fn is_same_file(command: &StoreCommand, found: &Metadata) -> bool {
    let (seconds, nanoseconds) = command.modified;
    found.is_file()
        && found.len() == command.size_bytes
        && (found.mtime(), found.mtime_nsec()) == (seconds, i64::from(nanoseconds))
}

fn existing_error(kind: io::ErrorKind, target: &Path) -> TransferError {
    TransferError::io_error("write", target)(kind.into())
}

/// Returns a stream with the given reports, one report for each batch of an upload, and one for the commit.
fn stream_reports(
    store: Option<IncomingStore>,
    reports: VecDeque<StoreReport>,
    first: Option<FlightStreamChunk>,
    upload: Upload,
) -> PutResultStream {
    let state = (store, reports, first, upload);
    Box::pin(stream::try_unfold(state, |(mut store, mut reports, mut next, mut upload)| async move {
        loop {
            if let Some(report) = reports.pop_front() {
                return Ok(Some((Bytes::from(to_json(&report)?), (store, reports, next, upload))));
            }
            let Some(mut incoming) = store.take() else { return Ok(None) };
            let chunk = match next.take() {
                Some(chunk) => Some(chunk),
                None => upload.next().await?,
            };
            let Some(chunk) = chunk else { return Ok(None) };
            let written = run_blocking(move || {
                let report = match &chunk.batch {
                    Some(batch) => Some(StoreReport::Written(incoming.write_batch(batch)?)),
                    None if chunk.app_metadata == STORE_COMMIT => {
                        incoming.commit()?;
                        Some(StoreReport::Stored)
                    }
                    // The first message, which starts the upload, is empty.
                    None => None,
                };
                Ok((incoming, report))
            });
            let (incoming, report) = written.await?;
            store = (!incoming.is_stored).then_some(incoming);
            reports.extend(report);
        }
    }))
}

#[cfg(test)]
mod tests;
