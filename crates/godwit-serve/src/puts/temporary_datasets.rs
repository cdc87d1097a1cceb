//! The directories of temporary datasets, which are removed when the server exits.

use std::path::{Path, PathBuf};

use godwit_dataset::DatasetError;
use godwit_process::LockedDirectory;

use super::cannot_write;

/// Mount point of the in-memory file system of Linux (`shm_open(3)`). Other systems may not have one.
const MEMORY_FILE_SYSTEM: &str = "/dev/shm";
const DIRECTORY_PREFIX: &str = "godwit-temporary-";

/// The directories of the temporary datasets of one server, one in memory and one on disk. Dropping this value removes
/// them.
///
/// A server that is killed cannot remove its directories. The next server of the same user removes them.
#[derive(Debug)]
pub struct TemporaryDatasets {
    memory_directory: LockedDirectory,
    spill_directory: LockedDirectory,
}

impl TemporaryDatasets {
    /// Creates the directories. Files that do not fit into memory are stored below `scratch`.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if one of the directories cannot be created.
    pub fn new(scratch: &Path) -> Result<Self, DatasetError> {
        let in_memory = if Path::new(MEMORY_FILE_SYSTEM).is_dir() { Path::new(MEMORY_FILE_SYSTEM) } else { scratch };
        let create = |parent: &Path| {
            LockedDirectory::create(parent, DIRECTORY_PREFIX).map_err(|source| cannot_write(parent, source))
        };
        Ok(Self { memory_directory: create(in_memory)?, spill_directory: create(scratch)? })
    }

    /// Returns the path of the directory that contains the temporary datasets.
    pub fn directory(&self) -> &Path {
        self.memory_directory.path()
    }

    pub(crate) fn spill_path(&self) -> PathBuf {
        self.spill_directory.path().to_owned()
    }
}
