//! A file that one writer makes from its beginning to its end, under the same names as one that comes in blocks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::{Inbox, beside, create};
use crate::error::TransferError;
use crate::journal::Journal;
use crate::manifest::{Entry, JOURNAL_ENDING, PART_ENDING};
use crate::place::directory_of;
use crate::protocol::Have;

/// A file on its way. What was written is removed with it where it is not named.
pub(crate) struct Whole {
    target: PathBuf,
    entry: Entry,
    part: PathBuf,
    file: File,
    /// Whose lock keeps others away. It has no blocks.
    journal: Option<Journal>,
}

impl Inbox {
    /// Begins to write a file; `None` where it is there already, or blocks of it are.
    ///
    /// # Errors
    /// [`TransferError::Busy`], [`TransferError::File`], [`TransferError::Refused`].
    pub(crate) fn begin_whole(&self, entry: &Entry) -> Result<Option<Whole>, TransferError> {
        if !entry.is_file() || self.look(entry)? != Have::Nothing {
            return Ok(None);
        }
        let target = self.target_of(entry)?;
        let parent = directory_of(&target);
        fs::create_dir_all(parent).map_err(TransferError::file("make", parent))?;
        if target.is_dir() {
            return Ok(None);
        }
        let (journal, found) = Journal::open(&beside(&target, JOURNAL_ENDING))?;
        // Somebody may have been quicker.
        if found.is_some_and(|(_, known)| known.iter().any(Option::is_some)) {
            return Ok(None);
        }
        let part = beside(&target, PART_ENDING);
        let file = create(&part, true)?;
        Ok(Some(Whole { target, entry: entry.clone(), part, file, journal: Some(journal) }))
    }
}

impl Whole {
    /// What is written to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Where it will be.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Makes it durable and gives it its name.
    ///
    /// # Errors
    /// [`TransferError::File`].
    pub(crate) fn name(mut self, inbox: &Inbox) -> Result<(), TransferError> {
        inbox.name(&self.target, &self.entry, &self.file, &self.part)?;
        self.journal.take().map_or(Ok(()), Journal::remove)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // What cannot be removed is written over when it is tried again.
            let _ = fs::remove_file(&self.part);
            let _ = journal.remove();
        }
    }
}
