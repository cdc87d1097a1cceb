//! A file that one writer writes from start to end, under the temporary names of block-wise copies.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::partial_paths::partial_path;
use super::{FileReceiver, open_part_file};
use crate::copy_protocol::ReceiverState;
use crate::error::TransferError;
use crate::file_listing::{Entry, JOURNAL_SUFFIX, PART_SUFFIX};
use crate::journal::Journal;
use crate::location::parent_directory;

/// A file that is being written. Dropping it removes the data unless it was committed.
pub(crate) struct AtomicIncomingFile {
    target_path: PathBuf,
    entry: Entry,
    part_path: PathBuf,
    file: File,
    /// Its lock excludes other copies. It has no blocks.
    journal: Option<Journal>,
}

impl FileReceiver {
    /// Starts to write a file; `None` if it or blocks of it exist.
    ///
    /// # Errors
    /// [`TransferError::Busy`] if another copy writes it, [`TransferError::Io`], [`TransferError::Rejected`] for an invalid
    /// path.
    pub(crate) fn start_atomic_file(&self, entry: &Entry) -> Result<Option<AtomicIncomingFile>, TransferError> {
        if !entry.is_file() || self.receiver_state(entry)? != ReceiverState::Absent {
            return Ok(None);
        }
        let target_path = self.target_path(entry)?;
        let parent = parent_directory(&target_path);
        fs::create_dir_all(parent).map_err(TransferError::io_error("make", parent))?;
        if target_path.is_dir() {
            return Ok(None);
        }
        let (journal, found) = Journal::open(&partial_path(&target_path, JOURNAL_SUFFIX))?;
        // Another copy may have been faster.
        if found.is_some_and(|(_, known)| known.iter().any(Option::is_some)) {
            return Ok(None);
        }
        let part_path = partial_path(&target_path, PART_SUFFIX);
        let file = open_part_file(&part_path, true)?;
        Ok(Some(AtomicIncomingFile { target_path, entry: entry.clone(), part_path, file, journal: Some(journal) }))
    }
}

impl AtomicIncomingFile {
    /// Returns the file to write to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the final path.
    pub(crate) fn target_path(&self) -> &Path {
        &self.target_path
    }

    /// Makes the file durable and renames it.
    ///
    /// # Errors
    /// [`TransferError::Io`] if that fails.
    pub(crate) fn commit(mut self, inbox: &FileReceiver) -> Result<(), TransferError> {
        inbox.commit_file(&self.target_path, &self.entry, &self.file, &self.part_path)?;
        self.journal.take().map_or(Ok(()), Journal::remove)
    }
}

impl Drop for AtomicIncomingFile {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // The next attempt overwrites what cannot be removed.
            let _ = fs::remove_file(&self.part_path);
            let _ = journal.remove();
        }
    }
}
