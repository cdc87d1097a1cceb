//! A file that a single writer writes from start to end. It has the same temporary names as files that are received
//! block by block.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use godwit_files::{create_directories, is_file_at_path, parent_directory};

use super::{FileReceiver, create_part_file, open_journal};
use crate::copy_protocol::ReceiverState;
use crate::error::TransferError;
use crate::file_listing::Entry;
use crate::journal::Journal;
use godwit_transfer_session::partial_paths::{PART_SUFFIX, partial_path};

/// A file that is being written. If it is dropped before it is committed, its data are removed.
pub(crate) struct AtomicIncomingFile {
    target_path: PathBuf,
    entry: Entry,
    part_path: PathBuf,
    file: File,
    /// The journal, whose lock keeps other copies from writing the file. It lists no blocks.
    journal: Option<Journal>,
}

impl FileReceiver {
    /// Starts to write a file. Returns `None` if the file or blocks of it already exist.
    ///
    /// # Errors
    /// [`TransferError::Busy`] if another copy writes the file, [`TransferError::Io`] if it cannot be created,
    /// [`TransferError::Rejected`] if its path is invalid.
    pub(crate) fn start_atomic_file(&self, entry: &Entry) -> Result<Option<AtomicIncomingFile>, TransferError> {
        if !entry.is_file() || self.receiver_state(entry)? != ReceiverState::Absent {
            return Ok(None);
        }
        let target_path = self.target_path(entry)?;
        let parent = parent_directory(&target_path);
        create_directories(parent).map_err(TransferError::io_error("create", parent))?;
        if fs::metadata(&target_path).is_ok_and(|found| !found.is_file()) {
            return Ok(None);
        }
        let ((journal, found), _) = open_journal(&target_path, false, &self.has_ended, Journal::open)?;
        // Another copy may have received blocks meanwhile.
        if found.is_some_and(|(_, known)| known.iter().any(Option::is_some)) {
            return Ok(None);
        }
        let part_path = partial_path(&target_path, PART_SUFFIX);
        let file = create_part_file(&part_path)?;
        Ok(Some(AtomicIncomingFile { target_path, entry: entry.clone(), part_path, file, journal: Some(journal) }))
    }
}

impl AtomicIncomingFile {
    /// Returns the open file to which the caller writes.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path that the file gets when it is committed.
    pub(crate) fn target_path(&self) -> &Path {
        &self.target_path
    }

    /// Syncs the file to disk and renames it to its final path.
    ///
    /// # Errors
    /// [`TransferError::Io`] if the file cannot be synced or renamed, [`TransferError::Busy`] if another copy has taken
    /// it over.
    pub(crate) fn commit(mut self, inbox: &FileReceiver) -> Result<(), TransferError> {
        inbox.commit_file(&self.target_path, &self.entry, &self.file, &self.part_path)?;
        self.journal.take().map_or(Ok(()), Journal::remove)
    }
}

impl Drop for AtomicIncomingFile {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // If the files cannot be removed, the next attempt overwrites them. A copy that has taken the file over may
            // have created another partial file.
            if is_file_at_path(&self.file, &self.part_path).is_ok_and(|is_own| is_own) {
                let _ = fs::remove_file(&self.part_path);
            }
            let _ = journal.remove();
        }
    }
}
