//! Directories of the datasets that are removed when their server exits.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use godwit_flight::DatasetError;

use super::cannot_write;

/// A directory that is removed also if a signal stops the server.
type TemporaryDirectory = godwit_process::TemporaryItem<tempfile::TempDir>;

/// An in-memory file system, on systems that have one (Linux: `shm_open(3)`).
const MEMORY_FILE_SYSTEM: &str = "/dev/shm";
const DIRECTORY_PREFIX: &str = "godwit-temporary-";

/// The directories of temporary datasets of one server, in memory and on disk. Dropping it removes them.
///
/// A server that is killed leaves them; the next server of the same user removes them.
#[derive(Debug)]
pub struct TemporaryDatasets {
    memory_directory: TemporaryDirectory,
    spill_directory: TemporaryDirectory,
    /// Locked for the life of the server.
    _locks: [File; 2],
}

impl TemporaryDatasets {
    /// Creates the directories; files that do not fit into memory are stored below `scratch`.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if a directory cannot be created.
    pub fn new(scratch: &Path) -> Result<Self, DatasetError> {
        let in_memory = if Path::new(MEMORY_FILE_SYSTEM).is_dir() { Path::new(MEMORY_FILE_SYSTEM) } else { scratch };
        let (memory_directory, memory_lock) =
            create_locked_directory(in_memory).map_err(|source| cannot_write(in_memory, source))?;
        let (spill_directory, spill_lock) =
            create_locked_directory(scratch).map_err(|source| cannot_write(scratch, source))?;
        Ok(Self { memory_directory, spill_directory, _locks: [memory_lock, spill_lock] })
    }

    /// Returns the directory that temporary datasets are read from.
    pub fn directory(&self) -> &Path {
        self.memory_directory.path()
    }

    pub(crate) fn spill_path(&self) -> PathBuf {
        self.spill_directory.path().to_owned()
    }
}

/// Creates a directory and locks it; removes directories that no process has locked.
fn create_locked_directory(below: &Path) -> io::Result<(TemporaryDirectory, File)> {
    let (made, lock) = loop {
        let made = TemporaryDirectory::create(|| tempfile::Builder::new().prefix(DIRECTORY_PREFIX).tempdir_in(below))?;
        let lock = File::open(made.path())?;
        lock.lock()?;
        // Before the lock, another server may have removed it as abandoned.
        if made.path().exists() {
            break (made, lock);
        }
    };
    let user = fs::metadata(made.path())?.uid();
    for entry in fs::read_dir(below)?.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(DIRECTORY_PREFIX)
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if !ours {
            continue;
        }
        let Ok(held) = File::open(entry.path()) else { continue };
        if held.try_lock().is_ok() {
            // Errors are ignored: a directory that cannot be removed does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok((made, lock))
}
