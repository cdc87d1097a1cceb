//! A locked file that is unlocked when its owner drops it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// An open file, or directory, that this process has locked exclusively (`flock`). Dropping the value unlocks it.
///
/// Closing the file would not suffice: a child process that another thread is starting has inherited the file, and holds
/// its lock until it runs its own program.
///
/// # Examples
///
/// ```
/// use std::fs::File;
/// use std::io::ErrorKind;
///
/// use godwit_files::LockedFile;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("journal");
/// let lock = |file| LockedFile::lock_at(file, &path, "another process writes it");
/// let locked = lock(File::create(&path)?)?;
/// assert_eq!(lock(File::open(&path)?).err().map(|error| error.kind()), Some(ErrorKind::ResourceBusy));
///
/// let _inherited = locked.try_clone()?;
/// drop(locked);
/// assert!(lock(File::open(&path)?).is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    /// False for a file that this process has not locked.
    is_locked: bool,
}

impl LockedFile {
    /// Locks the file that was opened at `path`, without waiting. Between opening and locking, an earlier holder of the
    /// lock may have renamed or removed the file; then the file counts as locked.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] with the message `busy` if another process, or another open file of this process,
    /// has locked it; the I/O error of the file system if the file cannot be locked.
    pub fn lock_at(file: File, path: &Path, busy: &'static str) -> io::Result<Self> {
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, busy);
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => busy(),
            TryLockError::Error(error) => error,
        })?;
        let locked = Self { file, is_locked: true };
        if is_file_at_path(&locked, path)? { Ok(locked) } else { Err(busy()) }
    }

    /// Wraps a file that this process has not locked. Dropping the value unlocks nothing: standard output may have a
    /// lock of the process that passed it.
    pub(crate) fn without_lock(file: File) -> Self {
        Self { file, is_locked: false }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if self.is_locked {
            // Ignore the error: closing the file follows.
            let _ = self.file.unlock();
        }
    }
}

/// Returns whether `path` names this open file, which another process may have renamed, replaced or removed.
///
/// # Errors
/// The I/O error of the file system if the open file cannot be inspected.
pub fn is_file_at_path(file: &File, path: &Path) -> io::Result<bool> {
    let (ours, named) = (file.metadata()?, fs::metadata(path));
    Ok(named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())))
}

/// Returns whether another process has locked a file.
pub fn is_locked(path: &Path) -> bool {
    matches!(File::open(path).map(|file| file.try_lock_shared()), Ok(Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_another_owner_stays() {
        let open = tempfile::NamedTempFile::new().unwrap();
        open.as_file().lock().unwrap();
        drop(LockedFile::without_lock(open.as_file().try_clone().unwrap()));
        assert!(is_locked(open.path()));
    }
}
