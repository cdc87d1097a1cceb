//! An append-only file that only one process writes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::locked_file::{LockedFile, is_file_at_path};

/// Error message if another process has locked the journal.
pub const BUSY_MESSAGE: &str = "another godwit process is using this file; wait until it has ended";

/// An open and locked append-only file. An append that fails leaves no bytes, so that the next one continues after the
/// last complete append.
#[derive(Debug)]
pub struct JournalFile {
    file: LockedFile,
    path: PathBuf,
    /// Size of the complete appends, bytes.
    end: u64,
    /// True if bytes of a failed append may follow `end`.
    has_torn_end: bool,
}

impl JournalFile {
    /// Opens or creates the file at `path` with access for this user only, and locks it. Appends continue at its end.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::ResourceBusy`] if another process has locked it.
    pub fn open(path: &Path) -> io::Result<Self> {
        // In append mode, a second writer on a file system whose locks do not reach other hosts destroys no bytes, and
        // files that only permit appends can be opened.
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let file = LockedFile::lock_at(file, path, BUSY_MESSAGE)?;
        let end = file.metadata()?.len();
        Ok(Self { file, path: path.to_owned(), end, has_torn_end: false })
    }

    /// Returns the open file, for reading.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the complete appends, bytes.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Removes all bytes from offset `end` on. Appends continue there.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn truncate(&mut self, end: u64) -> io::Result<()> {
        // Space that is reserved after the end is lost if the size is set, so set it only if it changes.
        if self.file.metadata()?.len() != end {
            self.file.set_len(end)?;
        }
        self.end = end;
        Ok(())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The I/O error of the file system. The bytes that were written are removed, now or before the next append.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.has_torn_end {
            self.file.set_len(self.end)?;
            self.has_torn_end = false;
        }
        match self.file.write_all_at(bytes, self.end) {
            Ok(()) => {
                self.end += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.has_torn_end = self.file.set_len(self.end).is_err();
                Err(error)
            }
        }
    }

    /// Appends bytes and makes them durable.
    ///
    /// # Errors
    /// The errors of [`JournalFile::append`]. If the bytes cannot be made durable, they are removed as well.
    pub fn append_durably(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.end;
        self.append(bytes)?;
        self.sync().inspect_err(|_| {
            self.end = before;
            self.has_torn_end = self.file.set_len(before).is_err();
        })
    }

    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Renames the file, and replaces an existing file of that name.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn rename(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path = path.to_owned();
        Ok(())
    }

    /// Returns whether the path still names this file, and not one with which another process has replaced it.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn is_at_path(&self) -> io::Result<bool> {
        is_file_at_path(&self.file, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_append_leaves_no_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = JournalFile::open(&path).unwrap();
        journal.append(b"one\n").unwrap();
        // A file that is open for reading only fails every write.
        let writable = std::mem::replace(&mut *journal.file, File::open(&path).unwrap());
        assert!(journal.append(b"two\n").is_err() && journal.append_durably(b"two\n").is_err());
        assert!(journal.has_torn_end);
        // The bytes of the append that failed are in the file, and the file is writable again.
        *journal.file = writable;
        journal.file.write_all_at(b"tw", 4).unwrap();
        journal.append_durably(b"3\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\n3\n");
        assert_eq!(journal.bytes(), 6);
    }

    #[test]
    fn bytes_of_a_writer_that_the_lock_does_not_stop_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = JournalFile::open(&path).unwrap();
        journal.append(b"one\n").unwrap();
        // A process on another host, where the lock has no effect.
        fs::write(&path, "one\nother\n").unwrap();
        journal.append(b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\nother\ntwo\n");
    }

    #[test]
    fn a_replaced_journal_is_not_at_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let [path, new] = ["journal", "journal-new"].map(|name| directory.path().join(name));
        let first = JournalFile::open(&path).unwrap();
        let mut second = JournalFile::open(&new).unwrap();
        second.rename(&path).unwrap();
        assert!(!first.is_at_path().unwrap() && second.is_at_path().unwrap());
        drop(first);
        assert_eq!(JournalFile::open(&path).err().unwrap().kind(), io::ErrorKind::ResourceBusy);
    }
}
