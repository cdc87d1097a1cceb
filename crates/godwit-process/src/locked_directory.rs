//! Temporary directories that are removed even if the process that created them is killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tempfile::TempDir;

use crate::temporary_paths::TemporaryItem;

/// A temporary directory that is locked as long as this value exists. Dropping the value, or stopping the process with a
/// signal, removes the directory.
///
/// A process that is killed cannot remove its directory. The next process of the same user that creates a directory with
/// the same prefix in the same place removes it, because it is not locked.
///
/// # Examples
///
/// ```
/// use godwit_process::LockedDirectory;
///
/// # fn main() -> std::io::Result<()> {
/// let parent = tempfile::tempdir()?;
/// let directory = LockedDirectory::create(parent.path(), "godwit-example-")?;
/// assert!(directory.path().is_dir());
/// drop(directory);
/// assert!(std::fs::read_dir(parent.path())?.next().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LockedDirectory {
    directory: TemporaryItem<TempDir>,
    /// The open directory, whose lock shows other processes that the directory is in use.
    _lock: File,
}

impl LockedDirectory {
    /// Creates a directory below `parent` whose name begins with `prefix`, and locks it. Also removes the directories of
    /// killed processes. On file systems without locks, the directory is not locked, and none is removed.
    ///
    /// # Errors
    /// The I/O error of the file system if the directory cannot be created.
    pub fn create(parent: &Path, prefix: &str) -> io::Result<Self> {
        let created = loop {
            let directory = TemporaryItem::create(|| tempfile::Builder::new().prefix(prefix).tempdir_in(parent))?;
            // Between creation and lock, another process may have removed the directory, because it was not locked.
            let lock = match File::open(directory.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            // Ignore the error of a file system without locks.
            let _ = lock.lock();
            if directory.path().exists() {
                break Self { directory, _lock: lock };
            }
        };
        // Ignore errors: a directory that cannot be removed does no harm.
        let _ = created.remove_unlocked_siblings(parent, prefix);
        Ok(created)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the directories of the same user with this prefix that no process has locked.
    fn remove_unlocked_siblings(&self, parent: &Path, prefix: &str) -> io::Result<()> {
        let user = fs::metadata(self.path())?.uid();
        for entry in fs::read_dir(parent)?.flatten() {
            let is_ours = entry.file_name().to_string_lossy().starts_with(prefix)
                && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
            if !is_ours {
                continue;
            }
            let Ok(opened) = File::open(entry.path()) else { continue };
            if opened.try_lock().is_ok() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }
}
