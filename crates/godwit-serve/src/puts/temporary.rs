//! Where datasets are that end with their server.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use godwit_flight::DatasetError;

use super::cannot_write;

/// A directory that a stop of the server by a signal removes.
type ListedDirectory = godwit_process::Temporary<tempfile::TempDir>;

/// A file system that is in memory, where the system has one (Linux: `shm_open(3)`).
const MEMORY: &str = "/dev/shm";
const PREFIX: &str = "godwit-temporary-";

/// Directories of one server, in memory and on disk. Dropping it removes them.
///
/// A server that is killed leaves them; the next one of the same user removes them.
#[derive(Debug)]
pub struct Temporary {
    memory: ListedDirectory,
    spill: ListedDirectory,
    /// Locked as long as the server is.
    _locks: [File; 2],
}

impl Temporary {
    /// Makes them; what does not fit into memory goes below `scratch`.
    ///
    /// # Errors
    /// [`DatasetError::Machine`].
    pub fn new(scratch: &Path) -> Result<Self, DatasetError> {
        let in_memory = if Path::new(MEMORY).is_dir() { Path::new(MEMORY) } else { scratch };
        let (memory, memory_lock) = make(in_memory).map_err(|source| cannot_write(in_memory, source))?;
        let (spill, spill_lock) = make(scratch).map_err(|source| cannot_write(scratch, source))?;
        Ok(Self { memory, spill, _locks: [memory_lock, spill_lock] })
    }

    /// Where temporary datasets are read.
    pub fn directory(&self) -> &Path {
        self.memory.path()
    }

    pub(crate) fn spill(&self) -> PathBuf {
        self.spill.path().to_owned()
    }
}

/// A directory and its lock; others that nobody holds any more are removed.
fn make(below: &Path) -> io::Result<(ListedDirectory, File)> {
    let (made, lock) = loop {
        let made = ListedDirectory::create(|| tempfile::Builder::new().prefix(PREFIX).tempdir_in(below))?;
        let lock = File::open(made.path())?;
        lock.lock()?;
        // Between the two, another server may have taken it for one that was left.
        if made.path().exists() {
            break (made, lock);
        }
    };
    let user = fs::metadata(made.path())?.uid();
    for entry in fs::read_dir(below)?.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if !ours {
            continue;
        }
        let Ok(held) = File::open(entry.path()) else { continue };
        if held.try_lock().is_ok() {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok((made, lock))
}
