//! The states of the files of a dataset, by which changes are recognized.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use godwit_dataset::DatasetError;
use xxhash_rust::xxh3::xxh3_64;

/// The state of a file when it was last examined.
#[derive(Clone, Debug)]
pub(crate) struct FileSnapshot {
    pub(crate) path: PathBuf,
    /// Size of the file in bytes.
    pub(crate) bytes: u64,
    /// Time of the last modification; `None` if it cannot be compared with the modification time of another file.
    pub(crate) modified: Option<SystemTime>,
    /// Bytes that differ between any two states of the file.
    pub(crate) fingerprint: Vec<u8>,
    /// ETag of the object in this state; `None` for local files.
    pub(crate) etag: Option<String>,
}

/// The state of all files of a dataset when they were last examined.
#[derive(Clone, Debug)]
pub(crate) struct DatasetSnapshot {
    pub(crate) path: PathBuf,
    /// The file of the dataset. For a directory: all files directly in it, sorted by name.
    pub(crate) files: Vec<FileSnapshot>,
    /// True if the dataset is a directory.
    pub(crate) is_directory: bool,
    /// The index file beside the data file; `None` if there is none.
    pub(crate) index: Option<FileSnapshot>,
    /// Hash of the states of all these files.
    pub(crate) version: u64,
}

impl DatasetSnapshot {
    /// Creates a snapshot from the states of the files and of the index. `state`: state of the directory itself, or
    /// empty.
    pub(crate) fn new(path: &Path, files: Vec<FileSnapshot>, index: Option<FileSnapshot>, state: &[u8]) -> Self {
        let mut bytes = state.to_vec();
        for file in files.iter().chain(&index) {
            bytes.extend_from_slice(&file.fingerprint);
        }
        let is_directory = files.first().is_none_or(|first| first.path != path);
        Self { path: path.to_owned(), files, is_directory, index, version: xxh3_64(&bytes) }
    }

    /// Returns the total size of the data files in bytes.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the only file of a dataset that is not a directory.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] if the dataset is a directory.
    pub(crate) fn single_file(&self) -> Result<&FileSnapshot, DatasetError> {
        let none = || DatasetError::NotFound { name: self.path.display().to_string() };
        self.files.first().filter(|_| !self.is_directory).ok_or_else(none)
    }
}
