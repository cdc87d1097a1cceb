//! The storage that contains the files of datasets: a local directory or a bucket.
//!
//! [`FileStore`] takes a snapshot of the files of a dataset and of its index, and opens these files for reading at any
//! offset.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_dataset::DatasetError;
use godwit_files::FileStamp;
use godwit_formats::binning_index::index_paths;
use godwit_io::bgzf::{Reader, open_text_source};
use godwit_io::crypt4gh::{self, FILE_SUFFIX};
use godwit_io::random_access::{LocalFile, RandomAccess};

use crate::bucket::Bucket;
use crate::file_snapshot::{DatasetSnapshot, FileSnapshot};
use crate::read_error::{FileReadError, dataset_error, file_read_error};

/// Maximum size of a text file that is read completely, such as a list of files, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// The storage that contains the files of datasets.
#[derive(Clone, Debug)]
pub(crate) enum FileStore {
    /// The local file system.
    Local,
    /// An S3 bucket, whose objects are the files.
    Bucket(Arc<Bucket>),
}

impl FileStore {
    /// Returns whether the files are in the local file system.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local)
    }

    /// Returns a snapshot of a file and of the first of its possible indexes that exists; `None` if the file does not
    /// exist. If `or_directory` is true, `path` may also be a directory.
    ///
    /// # Errors
    /// [`DatasetError`] if the file or directory cannot be examined.
    pub(crate) fn snapshot(
        &self,
        path: &Path,
        index_endings: &[&str],
        or_directory: bool,
    ) -> Result<Option<DatasetSnapshot>, DatasetError> {
        let indexes: Vec<PathBuf> = index_paths(path, index_endings).collect();
        match self {
            Self::Local => local_snapshot(path, &indexes, or_directory),
            Self::Bucket(bucket) => bucket.snapshot(path, &indexes, or_directory),
        }
    }

    /// Opens a file for random access, and decrypts it if it is encrypted.
    ///
    /// # Errors
    /// [`DatasetError`] if the file cannot be opened or decrypted.
    pub(crate) fn open(&self, file: &FileSnapshot) -> Result<Arc<dyn RandomAccess>, DatasetError> {
        let source: Arc<dyn RandomAccess> = match self {
            Self::Local => Arc::new(LocalFile::open(&file.path).map_err(|source| file_read_error(&file.path, source))?),
            Self::Bucket(bucket) => Arc::new(bucket.open_object(file)?),
        };
        if !is_encrypted(&file.path) {
            return Ok(source);
        }
        crypt4gh::open_with_process_keys(source)
            .map_err(|source| dataset_error(FileReadError { path: file.path.clone(), source }))
    }

    /// Opens a text file for sequential reading, and decompresses it if it is compressed.
    ///
    /// # Errors
    /// [`DatasetError`] if the file cannot be opened.
    pub(crate) fn open_text(&self, file: &FileSnapshot) -> Result<Reader, DatasetError> {
        open_text_source(&self.open(file)?, 1).map_err(dataset_error)
    }

    /// Reads a small text file into memory.
    ///
    /// # Errors
    /// [`DatasetError`] if the file cannot be read or is not UTF-8.
    pub(crate) fn read_text(&self, file: &FileSnapshot) -> Result<String, DatasetError> {
        let source = self.open(file)?;
        let mut bytes = vec![0; usize::try_from(source.byte_len()).unwrap_or(usize::MAX).min(MAX_TEXT_BYTES)];
        let count = source.read_at(&mut bytes, 0).map_err(dataset_error)?;
        bytes.truncate(count);
        String::from_utf8(bytes).map_err(|error| DatasetError::Data(error.into()))
    }

    /// Returns the URL by which a DataFusion reader opens a file; `None` for a local file, which it opens by its path.
    pub(crate) fn engine_url(&self, file: &FileSnapshot) -> Option<String> {
        match self {
            Self::Local => None,
            Self::Bucket(bucket) => bucket.pinned_url(file),
        }
    }
}

/// Returns whether the name of a file has the suffix of encrypted files (Crypt4GH).
fn is_encrypted(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    let ending = name.len().checked_sub(FILE_SUFFIX.len()).map(|at| &name[at..]);
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(FILE_SUFFIX.as_bytes()))
}

fn local_file_snapshot(path: &Path, metadata: &Metadata) -> FileSnapshot {
    FileSnapshot {
        path: path.to_owned(),
        bytes: metadata.len(),
        modified: metadata.modified().ok(),
        fingerprint: fingerprint_of(metadata),
        etag: None,
    }
}

/// Returns a fingerprint of the state of a file: its inode, modification time and size.
fn fingerprint_of(metadata: &Metadata) -> Vec<u8> {
    let stamp = FileStamp::from_metadata(metadata);
    let numbers = [stamp.inode as i64, stamp.modified_s, stamp.modified_ns, stamp.bytes as i64];
    numbers.into_iter().flat_map(i64::to_le_bytes).collect()
}

fn local_snapshot(
    path: &Path,
    indexes: &[PathBuf],
    or_directory: bool,
) -> Result<Option<DatasetSnapshot>, DatasetError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_read_error(path, error)),
    };
    if metadata.is_file() {
        let file_at = |path: &PathBuf| {
            fs::metadata(path).ok().filter(Metadata::is_file).map(|found| local_file_snapshot(path, &found))
        };
        let index = indexes.iter().find_map(file_at);
        return Ok(Some(DatasetSnapshot::new(path, vec![local_file_snapshot(path, &metadata)], index, &[])));
    }
    if !metadata.is_dir() || !or_directory {
        return Ok(None);
    }
    let entries = fs::read_dir(path).map_err(|source| file_read_error(path, source))?;
    let seen = entries.flatten().filter_map(|entry| {
        let found = fs::metadata(entry.path()).ok()?;
        Some(local_file_snapshot(&entry.path(), &found))
    });
    let mut files: Vec<FileSnapshot> = seen.collect();
    files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(Some(DatasetSnapshot::new(path, files, None, &fingerprint_of(&metadata))))
}
