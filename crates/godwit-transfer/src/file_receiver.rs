//! The writing end of a copy: files are received block by block, and have temporary names until they are complete.
//!
//! A file of one block is written, synced to disk and named when the block arrives. A file of several blocks has a
//! journal beside it, and is renamed after its blocks were compared with the hashes of the source. Only blocks that
//! match their hashes are written. The lock of the journal keeps other copies from writing a file of the same path; a new
//! file of one block needs no lock.

mod atomic_incoming_file;
mod operations;
mod partial_file;
mod symbolic_links;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, FileTimes, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_array::RecordBatch;
use godwit_files::{create_directories, is_file_at_path, parent_directory, sync_directory};
use godwit_transfer_session::blake3_tree::{BlockHash, block_byte_range, block_count};
use godwit_transfer_session::ranges::RangeSet;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, CWD, fstatfs, linkat};

use crate::checksum_lists::ExpectedChecksums;
use crate::copy_protocol::{BlockBatch, BlockReport, FileError, IncomingBlock, ReceiverState};
use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure, resolve_below_root};
use crate::journal::Journal;
use crate::path_text::{escape_for_display, path_to_text, text_to_path};
use crate::unix_time::time_from_unix;
use crate::write_back;
pub(crate) use atomic_incoming_file::AtomicIncomingFile;
use godwit_transfer_session::partial_paths::{PART_SUFFIX, is_partial_path, partial_path};
pub(crate) use operations::{CopyReceiver, wait_for_ended_copies};
use partial_file::{
    PartialFile, create_part_file, discard_partial_file, has_partial_file, lock_name, open_journal, open_partial_file,
    recorded_blocks, remove_part_file, update_mode,
};

/// A receiver of the files of a copy, which are below one path.
#[derive(Debug)]
pub(crate) struct FileReceiver {
    base_path: PathBuf,
    /// True if names that begin with a dot are rejected.
    rejects_hidden: bool,
    incoming_files: Mutex<Vec<Option<Arc<IncomingFile>>>>,
    /// Received directories, whose modes and modification times are set at the end of the copy.
    directories: Mutex<Vec<(PathBuf, Entry)>>,
    /// Received links, which are created at the end of the copy.
    links: Mutex<Vec<(PathBuf, Entry)>>,
    /// Directories in which entries were created or renamed; they are synced to disk at the end of the copy.
    changed_directories: Mutex<BTreeSet<PathBuf>>,
    /// Expected checksums, by path below the base. A file is verified before it gets its final name.
    expected_checksums: HashMap<String, ExpectedChecksums>,
    /// True after the end of the copy: no further operation may start.
    has_ended: AtomicBool,
    /// Lock of the running operations: each operation holds it for reading, and the end of the copy locks it for
    /// writing to wait for all operations.
    operation_lock: RwLock<()>,
}

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct IncomingFile {
    target_path: PathBuf,
    entry: Entry,
    /// True if the file is taken over from a process that has lost its client and may have locked the journal.
    take_over: bool,
    state: Mutex<IncomingFileState>,
    /// Locked for reading while a block is written, and for writing to wait for these writes.
    write_lock: RwLock<()>,
}

/// The outcome of writing a batch of received blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockOutcomes {
    /// File number and 0-based block index of each block that was written.
    pub(crate) written: Vec<(u32, u64)>,
    /// File number and 0-based block index of each block that was received damaged.
    pub(crate) damaged: Vec<(u32, u64)>,
    /// Number and error of each file that cannot be written.
    pub(crate) rejected_files: Vec<(u32, TransferError)>,
}

impl From<BlockOutcomes> for BlockReport {
    fn from(written: BlockOutcomes) -> Self {
        let rejected_files =
            written.rejected_files.iter().map(|(file, why)| (*file, FileError::from_error(why))).collect();
        Self { written: written.written, damaged: written.damaged, rejected_files }
    }
}

#[derive(Debug)]
enum IncomingFileState {
    /// A file of one block that is not received yet, or a file that is up to date.
    SingleBlock,
    /// A file of several blocks, some of which may be received.
    Partial(Box<PartialFile>),
    /// Another copy has taken over the partial file.
    TakenOver,
    Complete,
}

impl IncomingFile {
    /// Reports whether the file has several blocks and its journal is open.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(*self.state.lock(), IncomingFileState::Partial(_))
    }

    /// Releases the file, so that another copy can receive it. After the return, this copy does not write to the file
    /// any more, and the journal is unlocked.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock();
        if !matches!(*state, IncomingFileState::Partial(_)) {
            return;
        }
        let open = std::mem::replace(&mut *state, IncomingFileState::TakenOver);
        drop(state);
        let _alone = self.write_lock.write();
        drop(open);
    }
}

impl FileReceiver {
    /// Returns a receiver of the files below `base`, or of a single file at `base`.
    pub(crate) fn new(base: &Path, rejects_hidden: bool) -> Self {
        let base_path = base.to_owned();
        Self {
            base_path,
            rejects_hidden,
            incoming_files: Mutex::default(),
            directories: Mutex::default(),
            links: Mutex::default(),
            changed_directories: Mutex::default(),
            expected_checksums: HashMap::new(),
            has_ended: AtomicBool::new(false),
            operation_lock: RwLock::default(),
        }
    }

    /// Adds the expected checksums, by path below the base.
    pub(crate) fn with_checksums(self, expected_checksums: HashMap<String, ExpectedChecksums>) -> Self {
        Self { expected_checksums, ..self }
    }

    /// Compares a file that is already at the destination with its expected checksum, if there is one.
    fn verify_existing(&self, entry: &Entry, target: &Path) -> Result<(), TransferError> {
        let Some(sum) = self.expected_checksums.get(&entry.path) else { return Ok(()) };
        let file = File::open(target).map_err(TransferError::io_error("read", target))?;
        sum.verify_file(&file, target).map_err(|error| match error {
            TransferError::ChecksumMismatch { problem } => TransferError::ChecksumMismatch {
                problem: format!("{problem}; this file existed before the copy: remove it and copy it again"),
            },
            error => error,
        })
    }

    fn target_path(&self, entry: &Entry) -> Result<PathBuf, TransferError> {
        if entry.path.is_empty() { Ok(self.base_path.clone()) } else { self.resolve_path(&entry.path) }
    }

    fn resolve_path(&self, path: &str) -> Result<PathBuf, TransferError> {
        let found = resolve_below(&self.base_path, path)?;
        if self.rejects_hidden { resolve_below_root(&self.base_path, path) } else { Ok(found) }
    }

    /// Returns the state of an entry at the destination without changing anything.
    pub(crate) fn receiver_state(&self, entry: &Entry) -> Result<ReceiverState, TransferError> {
        let target = self.target_path(entry)?;
        if let Some(link) = &entry.link_target {
            return self.link_state(&target, entry, link);
        }
        match fs::metadata(&target) {
            Ok(found) if entry.is_directory && found.is_dir() => return Ok(ReceiverState::Complete),
            Ok(found) if entry.has_same_size_and_time(&found) => return Ok(ReceiverState::Complete),
            _ => {}
        }
        if entry.is_directory || block_count(entry.size_bytes) == 1 {
            return Ok(ReceiverState::Absent);
        }
        Ok(match recorded_blocks(&target) {
            Some((version, blocks)) if version == entry.version => ReceiverState::Partial(blocks),
            Some((_, blocks)) => ReceiverState::Stale(blocks),
            None => ReceiverState::Absent,
        })
    }

    /// Starts to receive a file, to which blocks refer as number `file`; or creates a directory. Returns the state at
    /// the destination.
    pub(crate) fn start_file(&self, file: u32, entry: Entry) -> Result<ReceiverState, TransferError> {
        self.start_or_take_over_file(file, entry, false)
    }

    /// Starts an entry as [`Self::start_file`] does. If `take_over` is true and another process has locked the journal
    /// of the file, takes over the file, because that process has lost its client.
    pub(crate) fn start_or_take_over_file(
        &self,
        file: u32,
        entry: Entry,
        take_over: bool,
    ) -> Result<ReceiverState, TransferError> {
        let _operation = self.start_operation()?;
        let target_path = self.target_path(&entry)?;
        if entry.is_directory {
            create_directories(&target_path).map_err(TransferError::io_error("create", &target_path))?;
            self.directories.lock().push((target_path.clone(), entry));
            return Ok(ReceiverState::Complete);
        }
        if let Some(link) = entry.link_target.clone() {
            return self.start_link(target_path, entry, &link);
        }
        let parent = parent_directory(&target_path);
        // Most directories already exist, and checking that is cheaper than trying to create them.
        if !parent.is_dir() {
            create_directories(parent).map_err(TransferError::io_error("create", parent))?;
        }
        let (have, state) = match fs::metadata(&target_path) {
            Ok(found) if !found.is_file() => return Err(conflict_error(&target_path, &found, "file")),
            Ok(found) if entry.has_same_size_and_time(&found) => {
                self.verify_existing(&entry, &target_path)?;
                update_mode(&target_path, &entry, &found)?;
                (ReceiverState::Complete, IncomingFileState::SingleBlock)
            }
            _ if block_count(entry.size_bytes) == 1 => (ReceiverState::Absent, IncomingFileState::SingleBlock),
            _ => {
                let (have, partial) = open_partial_file(&target_path, &entry, take_over, &self.has_ended)?;
                (have, IncomingFileState::Partial(Box::new(partial)))
            }
        };
        let mut files = self.incoming_files.lock();
        if files.len() <= file as usize {
            files.resize(file as usize + 1, None);
        }
        files[file as usize] = Some(Arc::new(IncomingFile {
            target_path,
            entry,
            take_over,
            state: Mutex::new(state),
            write_lock: RwLock::default(),
        }));
        Ok(have)
    }

    /// Returns the started file with this number.
    pub(crate) fn incoming_file(&self, file: u32) -> Option<Arc<IncomingFile>> {
        self.incoming_files.lock().get(file as usize).cloned().flatten()
    }

    /// Writes the blocks of a batch. The returned outcome lists blocks that are damaged and files that cannot be
    /// written.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if the batch does not contain file blocks; [`TransferError::Io`] if this host cannot
    /// write any file; [`TransferError::Interrupted`] if the copy has ended.
    pub(crate) fn write_batch(&self, batch: &RecordBatch) -> Result<BlockOutcomes, TransferError> {
        let _operation = self.start_operation()?;
        let mut answer = BlockOutcomes::default();
        for came in BlockBatch::from_batch(batch)?.iter() {
            let (file, block) = (came.file, came.block_index);
            let Some(incoming) = self.incoming_file(file) else {
                let problem = format!("the other end sent a block of file {file} before the start of this file");
                answer.rejected_files.push((file, TransferError::rejected(problem)));
                continue;
            };
            match self.write_block(&incoming, &came) {
                Ok(true) => answer.written.push((file, block)),
                Ok(false) => answer.damaged.push((file, block)),
                Err(error) if error.concerns_one_file() => answer.rejected_files.push((file, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(answer)
    }

    /// Verifies and writes a block; returns false if the block is damaged.
    fn write_block(&self, incoming: &IncomingFile, came: &IncomingBlock<'_>) -> Result<bool, TransferError> {
        let _writing = incoming.write_lock.read();
        let size_bytes = incoming.entry.size_bytes;
        if came.block_index >= block_count(size_bytes) {
            return Ok(false);
        }
        let (start, end) = block_byte_range(came.block_index, size_bytes);
        let Some((data, hash)) = came.verify(size_bytes).filter(|(data, _)| data.len() as u64 == end - start) else {
            return Ok(false);
        };
        let part = match &*incoming.state.lock() {
            IncomingFileState::SingleBlock => None,
            IncomingFileState::Partial(open) => Some(open.file.clone()),
            IncomingFileState::TakenOver => {
                return Err(TransferError::busy(&incoming.target_path));
            }
            IncomingFileState::Complete => return Ok(true),
        };
        let Some(part) = part else {
            return self.write_single_block_file(incoming, &data).map(|()| true);
        };
        part.write_all_at(&data, start).map_err(TransferError::io_error("write", &incoming.target_path))?;
        write_back::start_write_back(&part, start, end);
        match &mut *incoming.state.lock() {
            IncomingFileState::Partial(open) => {
                open.journal.append(came.block_index, Some(&hash))?;
                open.block_hashes[came.block_index as usize] = Some(hash);
            }
            IncomingFileState::TakenOver => {
                return Err(TransferError::busy(&incoming.target_path));
            }
            IncomingFileState::SingleBlock | IncomingFileState::Complete => {}
        }
        Ok(true)
    }

    /// Writes the only block of a file and commits the file. Unless the file is new, it is written under a temporary name;
    /// its name is locked meanwhile, and blocks that an earlier copy left of the file are discarded.
    fn write_single_block_file(&self, incoming: &IncomingFile, data: &[u8]) -> Result<(), TransferError> {
        let mut state = incoming.state.lock();
        if matches!(*state, IncomingFileState::Complete) {
            return Ok(());
        }
        if self.create_new_file(incoming, data)? {
            *state = IncomingFileState::Complete;
            return Ok(());
        }
        let journal = lock_name(&incoming.target_path, incoming.take_over, &self.has_ended)?;
        let part = partial_path(&incoming.target_path, PART_SUFFIX);
        let committed = create_part_file(&part).and_then(|file| {
            file.write_all_at(data, 0).map_err(TransferError::io_error("write", &part))?;
            let committed = self.commit_file(&incoming.target_path, &incoming.entry, &file, &part);
            let is_mismatch = matches!(committed, Err(TransferError::ChecksumMismatch { .. }));
            // Remove the partial file, unless another copy has taken over the name.
            if is_mismatch && is_file_at_path(&file, &part).is_ok_and(|is_own| is_own) {
                let _ = fs::remove_file(&part);
            }
            committed
        });
        let unlocked = journal.map_or(Ok(()), Journal::remove);
        committed?;
        *state = IncomingFileState::Complete;
        unlocked
    }

    /// Creates a file of one block, if it is new. Returns false if the file must be written under a temporary name.
    fn create_new_file(&self, incoming: &IncomingFile, data: &[u8]) -> Result<bool, TransferError> {
        let IncomingFile { target_path, entry, .. } = incoming;
        let is_new = fs::symlink_metadata(target_path).is_err() && !has_partial_file(target_path);
        if !is_new || self.expected_checksums.contains_key(&entry.path) {
            return Ok(false);
        }
        match self.link_unnamed_file(target_path, entry, data) {
            Ok(()) => Ok(true),
            // Another copy has created the file meanwhile, maybe from a later version of the source.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_same = fs::metadata(target_path).is_ok_and(|found| entry.has_same_size_and_time(&found));
                if is_same { Ok(true) } else { Err(TransferError::busy(target_path)) }
            }
            // The attempt with a temporary name succeeds or reports the reason.
            Err(_) => Ok(false),
        }
    }

    /// Writes an unnamed file (`O_TMPFILE`), which gets its name when it is complete and synced to disk. It needs no lock,
    /// because the link replaces nothing: creating and removing a journal takes longer than writing a small file.
    ///
    /// # Errors
    /// The I/O error of the file system, which may not support unnamed files; [`io::ErrorKind::AlreadyExists`] if the
    /// file exists; [`io::ErrorKind::Unsupported`] on btrfs.
    fn link_unnamed_file(&self, target: &Path, entry: &Entry, data: &[u8]) -> io::Result<()> {
        let parent = parent_directory(target);
        let file = OpenOptions::new().write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(parent)?;
        // On btrfs (Linux 6), syncing a file without a name has no effect (`btrfs_log_inode_parent`): after a power
        // failure the file would be empty.
        if fstatfs(&file)?.f_type == libc::BTRFS_SUPER_MAGIC {
            return Err(io::ErrorKind::Unsupported.into());
        }
        file.write_all_at(data, 0)?;
        apply_mode_and_time(&file, entry)?;
        file.sync_all()?;
        linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, target, AtFlags::SYMLINK_FOLLOW)?;
        self.changed_directories.lock().insert(parent.to_owned());
        Ok(())
    }

    /// Compares the complete file at `part` with its expected checksum, sets its mode and time, syncs it to disk and
    /// renames it.
    fn commit_file(&self, target: &Path, entry: &Entry, file: &File, part: &Path) -> Result<(), TransferError> {
        if let Some(sum) = self.expected_checksums.get(&entry.path) {
            sum.verify_file(file, target)?;
        }
        apply_mode_and_time(file, entry)
            .and_then(|()| file.sync_all())
            .map_err(TransferError::io_error("write", part))?;
        // Another server with the same directory may have taken over the partial file, so `part` may now be another
        // file.
        if !is_file_at_path(file, part).map_err(TransferError::io_error("inspect", part))? {
            if !parent_directory(target).exists() {
                let removed =
                    std::io::Error::new(std::io::ErrorKind::NotFound, "its directory was removed during the copy");
                return Err(TransferError::io_error("write", target)(removed));
            }
            let is_named = is_file_at_path(file, target).map_err(TransferError::io_error("inspect", target))?;
            return if is_named { Ok(()) } else { Err(TransferError::busy(target)) };
        }
        fs::rename(part, target).map_err(TransferError::io_error("rename", target))?;
        self.changed_directories.lock().insert(parent_directory(target).to_owned());
        Ok(())
    }

    /// Compares the blocks of a file with the hashes of its source. If all are equal, the file is committed. Otherwise
    /// the blocks that differ are discarded and returned. If `discard_stale_only` is true, only discards the differing
    /// blocks of an earlier version and does not commit the file.
    pub(crate) fn verify_file(
        &self,
        file: u32,
        hashes: &[BlockHash],
        discard_stale_only: bool,
    ) -> Result<RangeSet, TransferError> {
        let _operation = self.start_operation()?;
        let unknown = || TransferError::rejected(format!("the other end ended file {file} before its start"));
        let incoming = self.incoming_file(file).ok_or_else(unknown)?;
        let entry = &incoming.entry;
        let mut state = incoming.state.lock();
        let open = match &mut *state {
            IncomingFileState::Partial(open) => open,
            IncomingFileState::TakenOver => {
                return Err(TransferError::busy(&incoming.target_path));
            }
            IncomingFileState::SingleBlock | IncomingFileState::Complete => return Ok(RangeSet::default()),
        };
        if hashes.len() as u64 != block_count(entry.size_bytes) {
            return Err(TransferError::SourceChanged { location: incoming.target_path.display().to_string() });
        }
        let mut wrong = RangeSet::default();
        for (block, hash) in (0..).zip(hashes) {
            let known = open.block_hashes[block as usize];
            if known != Some(*hash) && (known.is_some() || !discard_stale_only) {
                wrong.insert(block, block + 1);
                open.block_hashes[block as usize] = None;
                if !discard_stale_only {
                    open.journal.append(block, None)?;
                }
            }
        }
        if discard_stale_only {
            let PartialFile { journal, header, block_hashes, .. } = &mut **open;
            journal.rewrite(header, block_hashes)?;
            return Ok(wrong);
        }
        if wrong.is_empty() {
            let part = partial_path(&incoming.target_path, PART_SUFFIX);
            open.file.set_len(entry.size_bytes).map_err(TransferError::io_error("write", &part))?;
            self.commit_file(&incoming.target_path, entry, &open.file, &part)?;
            if let IncomingFileState::Partial(open) = std::mem::replace(&mut *state, IncomingFileState::Complete) {
                open.journal.remove()?;
            }
        }
        Ok(wrong)
    }

    /// Completes the copy: creates links, sets modes and times of directories, and syncs changed directories to disk.
    /// Returns the entries that failed.
    ///
    /// # Errors
    /// [`TransferError::Io`] if a failure affects more than one entry; [`TransferError::Interrupted`] if the copy has
    /// ended.
    pub(crate) fn finish(&self) -> Result<Vec<EntryFailure>, TransferError> {
        let _operation = self.start_operation()?;
        let mut failures = self.create_links();
        let mut directories = std::mem::take(&mut *self.directories.lock());
        // A change inside a directory changes the time of that directory, so the deepest directories come first.
        directories.sort_by(|one, other| other.0.cmp(&one.0));
        for (place, entry) in directories {
            let set = File::open(&place).and_then(|directory| apply_mode_and_time(&directory, &entry));
            if let Err(error) = set.map_err(TransferError::io_error("change", &place)) {
                failures.push(EntryFailure { path: entry.path, error });
            }
        }
        for place in std::mem::take(&mut *self.changed_directories.lock()) {
            if let Err(why) = sync_directory(&place).map_err(TransferError::io_error("write", &place)) {
                let path = path_to_text(place.strip_prefix(&self.base_path).unwrap_or(&place));
                failures.push(EntryFailure { path, error: why });
            }
        }
        match failures.iter().position(|failure| !failure.error.concerns_one_file()) {
            Some(first) => Err(failures.swap_remove(first).error),
            None => Ok(failures),
        }
    }

    /// Removes a file or an empty directory that the source does not have, and what an interrupted copy left for its name.
    pub(crate) fn remove_path(&self, path: &str) -> Result<(), TransferError> {
        let _operation = self.start_operation()?;
        let target = self.resolve_path(path)?;
        match discard_partial_file(&target, &self.has_ended) {
            // Another copy is writing the file, or its client was killed. The removal does not affect its partial file.
            Err(TransferError::Busy { .. }) => {}
            discarded => discarded?,
        }
        let removed =
            if target.is_dir() && !target.is_symlink() { fs::remove_dir(&target) } else { fs::remove_file(&target) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(TransferError::io_error("remove", &target)),
        }
    }
}

/// Resolves a path, received from the other end, below a local directory. Hidden components are allowed.
fn resolve_below(directory: &Path, path: &str) -> Result<PathBuf, TransferError> {
    let is_plain = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let below = text_to_path(path).filter(|_| is_plain && !is_partial_path(path));
    let refused = || {
        TransferError::rejected(format!("{:?} is not a path below {}", escape_for_display(path), directory.display()))
    };
    Ok(directory.join(below.ok_or_else(refused)?))
}

/// Returns the error for an entry at the destination that is not of the kind of the source.
fn conflict_error(place: &Path, found: &Metadata, source_kind: &str) -> TransferError {
    let kind = if found.is_dir() { io::ErrorKind::IsADirectory } else { io::ErrorKind::Other };
    let found = if found.is_dir() { "directory" } else { "device, pipe or socket" };
    let problem =
        format!("the destination has a {found} of this name, but the source has a {source_kind}; move it away");
    TransferError::io_error("write", place)(io::Error::new(kind, problem))
}

/// Sets the mode and modification time of a file to those of the source.
fn apply_mode_and_time(file: &File, entry: &Entry) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(entry.mode & 0o777))?;
    file.set_times(FileTimes::new().set_modified(time_from_unix(entry.modified_s, entry.modified_ns)))
}

#[cfg(test)]
mod tests;
