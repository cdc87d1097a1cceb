//! A locked file that is unlocked when its owner drops it.

use std::fs::{File, TryLockError};
use std::ops::{Deref, DerefMut};

/// An open file, or directory, that this process has locked exclusively (`flock`). Dropping the value unlocks it.
///
/// Closing the file would not suffice: a child process that another thread is starting has inherited the file, and holds
/// its lock until it runs its own program.
///
/// # Examples
///
/// ```
/// use std::fs::{File, TryLockError};
///
/// use godwit_process::LockedFile;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("journal");
/// let locked = LockedFile::try_lock(File::create(&path)?)?;
/// assert!(matches!(LockedFile::try_lock(File::open(&path)?), Err(TryLockError::WouldBlock)));
///
/// let _inherited = locked.try_clone()?;
/// drop(locked);
/// assert!(LockedFile::try_lock(File::open(&path)?).is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks an open file without waiting.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another process, or another open file of this process, has locked it;
    /// [`TryLockError::Error`] if the file cannot be locked.
    pub fn try_lock(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Ignore the error: closing the file follows.
        let _ = self.0.unlock();
    }
}
