//! Hidden directories in which datasets are written before clients can see them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use godwit_process::TemporaryItem;

/// Name of the directory below the root that contains all staging directories. It is hidden and on the same file
/// system.
const STAGING_DIRECTORY_NAME: &str = ".godwit-puts";

/// The directory that contains all staging directories.
#[derive(Debug)]
pub(super) struct StagingArea {
    directory: PathBuf,
}

/// A staging directory of one write. Dropping it removes the directory and its content.
#[derive(Debug)]
pub(super) struct StagingDirectory {
    directory: TemporaryItem<tempfile::TempDir>,
    /// Lock on the directory while it is in use. The directory of a killed server is not locked, which identifies it.
    _lock: File,
}

impl StagingArea {
    /// Creates the parent of the staging directories below `root`, and removes staging directories of killed servers.
    pub(super) fn open_below(root: &Path) -> io::Result<Self> {
        let asides = Self { directory: root.join(STAGING_DIRECTORY_NAME) };
        fs::create_dir_all(&asides.directory)?;
        let _lock = asides.lock()?;
        for entry in fs::read_dir(&asides.directory)?.flatten() {
            let path = entry.path();
            let is_left = path.is_dir() && File::open(&path).is_ok_and(|held| held.try_lock().is_ok());
            if is_left {
                fs::remove_dir_all(&path)?;
            }
        }
        Ok(asides)
    }

    /// Locks the staging area, to exclude other threads and processes.
    pub(super) fn lock(&self) -> io::Result<File> {
        let path = self.directory.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.lock()?;
        Ok(file)
    }

    pub(super) fn create(&self) -> io::Result<StagingDirectory> {
        // While this lock is held, another process cannot remove the new directory before it is locked.
        let _lock = self.lock()?;
        self.create_locked()
    }

    /// Creates a staging directory in the same way as [`StagingArea::create`]. The caller must hold the lock of the
    /// area.
    pub(super) fn create_locked(&self) -> io::Result<StagingDirectory> {
        let directory =
            TemporaryItem::create(|| tempfile::Builder::new().prefix("").rand_bytes(12).tempdir_in(&self.directory))?;
        let lock = File::open(directory.path())?;
        lock.lock()?;
        Ok(StagingDirectory { directory, _lock: lock })
    }
}

impl StagingDirectory {
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the name of the staging directory, which is unique.
    pub(super) fn unique_name(&self) -> String {
        self.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
