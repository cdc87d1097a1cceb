//! The directories of temporary datasets, which are removed when the server exits.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use godwit_flight::DatasetError;

use super::cannot_write;

/// A directory that is removed when it is dropped, and also if a signal stops the server.
type TemporaryDirectory = godwit_process::TemporaryItem<tempfile::TempDir>;

/// Mount point of the in-memory file system of Linux (`shm_open(3)`). Other systems may not have one.
const MEMORY_FILE_SYSTEM: &str = "/dev/shm";
const DIRECTORY_PREFIX: &str = "godwit-temporary-";

/// The directories of the temporary datasets of one server, one in memory and one on disk. Dropping this value removes
/// them.
///
/// A server that is killed cannot remove its directories. The next server of the same user removes them.
#[derive(Debug)]
pub struct TemporaryDatasets {
    memory_directory: TemporaryDirectory,
    spill_directory: TemporaryDirectory,
    /// Locks on both directories, held while the server runs.
    _locks: [File; 2],
}

impl TemporaryDatasets {
    /// Creates the directories. Files that do not fit into memory are stored below `scratch`.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if one of the directories cannot be created.
    pub fn new(scratch: &Path) -> Result<Self, DatasetError> {
        let in_memory = if Path::new(MEMORY_FILE_SYSTEM).is_dir() { Path::new(MEMORY_FILE_SYSTEM) } else { scratch };
        let (memory_directory, memory_lock) =
            create_locked_directory(in_memory).map_err(|source| cannot_write(in_memory, source))?;
        let (spill_directory, spill_lock) =
            create_locked_directory(scratch).map_err(|source| cannot_write(scratch, source))?;
        Ok(Self { memory_directory, spill_directory, _locks: [memory_lock, spill_lock] })
    }

    /// Returns the path of the directory that contains the temporary datasets.
    pub fn directory(&self) -> &Path {
        self.memory_directory.path()
    }

    pub(crate) fn spill_path(&self) -> PathBuf {
        self.spill_directory.path().to_owned()
    }
}

/// Creates a directory below `below` and locks it. Also removes the directories of servers that have been killed, which
/// are not locked.
fn create_locked_directory(below: &Path) -> io::Result<(TemporaryDirectory, File)> {
    let (made, lock) = loop {
        let made = TemporaryDirectory::create(|| tempfile::Builder::new().prefix(DIRECTORY_PREFIX).tempdir_in(below))?;
        let lock = File::open(made.path())?;
        lock.lock()?;
        // Between creation and lock, another server may have removed the directory, because it was not locked.
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
            // Ignore the error: a directory that cannot be removed does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok((made, lock))
}
