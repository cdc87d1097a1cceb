//! Hidden directories in which datasets are written before they are visible.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use godwit_process::TemporaryItem;

/// Below the root: hidden, and on the same file system.
const STAGING_DIRECTORY_NAME: &str = ".godwit-puts";

/// The parent directory of all staging directories.
#[derive(Debug)]
pub(super) struct StagingArea {
    directory: PathBuf,
}

/// A staging directory. Dropping it removes its contents.
#[derive(Debug)]
pub(super) struct StagingDirectory {
    directory: TemporaryItem<tempfile::TempDir>,
    /// Locked while the directory is in use, so that directories of killed servers can be recognized.
    _lock: File,
}

impl StagingArea {
    /// Creates the area, and removes staging directories of killed servers.
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

    /// Locks the area against changes by other threads and processes.
    pub(super) fn lock(&self) -> io::Result<File> {
        let path = self.directory.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.lock()?;
        Ok(file)
    }

    pub(super) fn create(&self) -> io::Result<StagingDirectory> {
        // Under the lock no cleanup can run between creating the directory and locking it.
        let _lock = self.lock()?;
        self.create_locked()
    }

    /// As [`StagingArea::create`], for a caller that holds the lock.
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

    /// Returns the name of the directory, which is unique.
    pub(super) fn unique_name(&self) -> String {
        self.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
