//! The partial file of a file of several blocks, which an interrupted copy leaves; and the lock of a name, which every
//! copy takes before it replaces a file, writes one of several blocks, creates a link or removes a partial file.
//!
//! The lock is that of the journal. The journal describes one partial file: the file whose inode number it records.
//! If the partial file was removed or replaced since, no block of the journal is accepted without its hash.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_transfer_session::blake3_tree::{BlockHash, block_byte_range, block_count, hash_block};
use godwit_transfer_session::partial_paths::{JOURNAL_SUFFIX, PART_SUFFIX, partial_path};
use godwit_transfer_session::ranges::RangeSet;

use crate::copy_protocol::ReceiverState;
use crate::error::TransferError;
use crate::file_listing::Entry;
use crate::journal::{BlockHashes, Journal, JournalHeader, OpenedJournal};

/// Time for which a copy waits for a writer of a whole file that has locked its name: an earlier session of the same
/// client may still be syncing the file to disk.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two attempts to lock a name.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A file of several blocks that is being received.
#[derive(Debug)]
pub(super) struct PartialFile {
    pub(super) file: Arc<File>,
    pub(super) journal: Journal,
    /// The header of the journal for the version of the file that is being received.
    pub(super) header: JournalHeader,
    pub(super) block_hashes: BlockHashes,
}

fn present_blocks(known: &BlockHashes) -> RangeSet {
    let mut blocks = RangeSet::default();
    for (block, hash) in (0..).zip(known) {
        if hash.is_some() {
            blocks.insert(block, block + 1);
        }
    }
    blocks
}

/// Returns the version and the recorded blocks of the partial file of `target`, without locking it; `None` if there is
/// none.
pub(super) fn recorded_blocks(target: &Path) -> Option<(u64, RangeSet)> {
    let part = fs::symlink_metadata(partial_path(target, PART_SUFFIX)).ok().filter(Metadata::is_file)?;
    let (header, mut known) = Journal::read_unlocked(&partial_path(target, JOURNAL_SUFFIX))?;
    discard_truncated_blocks(&mut known, header.size_bytes, part.len());
    Some((header.version, present_blocks(&known)))
}

/// Removes a partial file or a journal, if it exists.
pub(super) fn remove_part_file(path: &Path) -> Result<(), TransferError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(TransferError::io_error("remove", path)),
    }
}

/// Creates an empty partial file. An existing file is unlinked, not truncated: a copy that has lost the lock may still
/// write to it.
pub(super) fn create_part_file(path: &Path) -> Result<File, TransferError> {
    remove_part_file(path)?;
    let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    created.map_err(TransferError::io_error("write", path))
}

/// Opens the partial file at `path`; returns `None` if there is no file. A link is not followed.
fn open_part_file(path: &Path) -> Result<Option<File>, TransferError> {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(TransferError::io_error("write", path)),
    }
}

/// Opens the journal of `target` by `open`, which locks it. Waits for a writer of a whole file. If `take_over` is true,
/// takes the journal over from a process that has lost its client. Also returns whether it was taken over.
///
/// # Errors
/// [`TransferError::Busy`] if another copy is writing the file, [`TransferError::Io`] if the journal cannot be opened.
pub(super) fn open_journal(
    target: &Path,
    take_over: bool,
    ended: &AtomicBool,
    open: impl Fn(&Path) -> Result<OpenedJournal, TransferError>,
) -> Result<(OpenedJournal, bool), TransferError> {
    let path = partial_path(target, JOURNAL_SUFFIX);
    let started = Instant::now();
    loop {
        let (opened, is_taken_over) = match open(&path) {
            Err(TransferError::Busy { .. }) if take_over => (Journal::take_over(&path), true),
            opened => (opened, false),
        };
        let Err(TransferError::Busy { .. }) = opened else {
            return opened.map(|opened| (opened, is_taken_over));
        };
        // A locked journal without a header is that of a writer of a whole file, which usually ends soon.
        let waits = started.elapsed() < LOCK_TIMEOUT && !ended.load(Ordering::Relaxed);
        if !waits || Journal::read_unlocked(&path).is_some() {
            return Err(TransferError::busy(target));
        }
        std::thread::sleep(LOCK_RETRY_INTERVAL);
    }
}

/// Locks the name of an entry that is written as a whole, and removes the record of the blocks that an earlier copy
/// left. The caller removes the returned journal. Returns `None` if the file system has no locks.
///
/// # Errors
/// The errors of [`open_journal`].
pub(super) fn lock_name(target: &Path, take_over: bool, ended: &AtomicBool) -> Result<Option<Journal>, TransferError> {
    match open_journal(target, take_over, ended, |path| Ok((Journal::open_empty(path)?, None))) {
        Err(TransferError::Io { source, .. })
            if matches!(source.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOLCK)) =>
        {
            remove_part_file(&partial_path(target, JOURNAL_SUFFIX)).map(|()| None)
        }
        opened => opened.map(|((journal, _), _)| Some(journal)),
    }
}

/// Reports whether there is a partial file or a journal of `target`.
pub(super) fn has_partial_file(target: &Path) -> bool {
    [JOURNAL_SUFFIX, PART_SUFFIX].iter().any(|suffix| fs::symlink_metadata(partial_path(target, suffix)).is_ok())
}

/// Removes the partial file and the journal that an interrupted copy left for a name, if there are any.
///
/// # Errors
/// The errors of [`lock_name`]; [`TransferError::Io`] if a file cannot be removed.
pub(super) fn discard_partial_file(target: &Path, ended: &AtomicBool) -> Result<(), TransferError> {
    if !has_partial_file(target) {
        return Ok(());
    }
    let journal = lock_name(target, false, ended)?;
    remove_part_file(&partial_path(target, PART_SUFFIX))?;
    journal.map_or(Ok(()), Journal::remove)
}

/// Opens the partial file and the journal of a file of several blocks; creates them unless an earlier copy left both.
pub(super) fn open_partial_file(
    target: &Path,
    entry: &Entry,
    take_over: bool,
    ended: &AtomicBool,
) -> Result<(ReceiverState, PartialFile), TransferError> {
    let part_path = partial_path(target, PART_SUFFIX);
    let ((mut journal, found), is_taken_over) = open_journal(target, take_over, ended, Journal::open)?;
    // The other process may still write blocks of another version to the old partial file, or rename it; so use a new
    // file.
    let found = found.filter(|(before, _)| !is_taken_over || before.version == entry.version);
    let existing = if found.is_some() { open_part_file(&part_path)? } else { None };
    // Blocks of a partial file that does not exist any more are lost.
    let found = found.filter(|_| existing.is_some());
    let part = match existing {
        Some(part) => part,
        None => create_part_file(&part_path)?,
    };
    let metadata = part.metadata().map_err(TransferError::io_error("inspect", &part_path))?;
    let header = JournalHeader::new(entry.size_bytes, entry.version, metadata.ino());
    let blocks = block_count(entry.size_bytes) as usize;
    // If the journal already has the header of this version of the file, do not write it again.
    let mut goes_on = !is_taken_over && found.as_ref().is_some_and(|(before, _)| *before == header);
    let (is_stale, block_hashes) = match found {
        Some((before, mut known)) => {
            let is_stale = before.version != entry.version || before.size_bytes != entry.size_bytes;
            // The size of the file has changed, so the last block of the earlier version is not valid.
            known.resize(blocks, None);
            if before.is_from_this_boot() && before.part_inode == header.part_inode {
                // Rewrite the journal without the discarded blocks: the file may grow again before they are received.
                goes_on &= !discard_truncated_blocks(&mut known, before.size_bytes, metadata.len());
            } else {
                rehash_blocks(&part, &mut known, before.size_bytes, ended)?;
            }
            (is_stale, known)
        }
        None => (false, vec![None; blocks]),
    };
    let present = present_blocks(&block_hashes);
    let is_stale = is_stale && !present.is_empty();
    if !is_stale && !goes_on {
        journal.rewrite(&header, &block_hashes)?;
    }
    let have = match (present.is_empty(), is_stale) {
        (true, _) => ReceiverState::Absent,
        (false, true) => ReceiverState::Stale(present),
        (false, false) => ReceiverState::Partial(present),
    };
    Ok((have, PartialFile { file: Arc::new(part), journal, header, block_hashes }))
}

/// Discards the blocks that end beyond the end of a partial file of `part_bytes` bytes. Returns true if there are any.
fn discard_truncated_blocks(known: &mut [Option<BlockHash>], size_bytes: u64, part_bytes: u64) -> bool {
    let mut is_truncated = false;
    for (block, hash) in (0..).zip(known) {
        if hash.is_some() && block_byte_range(block, size_bytes).1 > part_bytes {
            *hash = None;
            is_truncated = true;
        }
    }
    is_truncated
}

/// Discards blocks whose bytes do not match their hashes: the host crashed before they were on disk, or the partial
/// file may be another one.
fn rehash_blocks(
    part: &File,
    known: &mut BlockHashes,
    size_bytes: u64,
    ended: &AtomicBool,
) -> Result<(), TransferError> {
    let mut data = Vec::new();
    for (block, hash) in (0..).zip(known) {
        if ended.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        let Some(expected) = hash else { continue };
        let (start, end) = block_byte_range(block, size_bytes);
        data.resize(end.saturating_sub(start) as usize, 0);
        let is_there =
            part.read_exact_at(&mut data, start).is_ok() && hash_block(&data, block, size_bytes) == *expected;
        if !is_there {
            *hash = None;
        }
    }
    Ok(())
}

/// Sets the mode of a file that is up to date to that of the source. The target of a link is not changed, and a file
/// whose mode this user cannot change keeps it.
pub(super) fn update_mode(target: &Path, entry: &Entry, found: &Metadata) -> Result<(), TransferError> {
    let mode = entry.mode & 0o777;
    if found.mode() & 0o777 == mode {
        return Ok(());
    }
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(target);
    match opened.and_then(|file| file.set_permissions(Permissions::from_mode(mode))) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EACCES | libc::EPERM | libc::EROFS)) => {
            Ok(())
        }
        changed => changed.map_err(TransferError::io_error("change", target)),
    }
}
