//! Errors of reading the files of datasets, as errors of datasets.

use std::io;
use std::path::{Path, PathBuf};

use godwit_dataset::DatasetError;
use godwit_model::is_system_failure;

use crate::bucket::find_remote_error;

/// An error of reading a file, with the path of the file.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub(crate) struct FileReadError {
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: io::Error,
}

/// Returns the error that a local file cannot be read.
pub(crate) fn file_read_error(path: &Path, source: io::Error) -> DatasetError {
    DatasetError::Local(Box::new(FileReadError { path: path.to_owned(), source }))
}

/// Converts the error of a reader to a [`DatasetError`], by its cause: the object store, this host, or the data.
pub(crate) fn dataset_error<E: std::error::Error + Send + Sync + 'static>(error: E) -> DatasetError {
    match find_remote_error(&error) {
        Some(remote) => remote.into(),
        None if is_system_failure(&error) => DatasetError::Local(error.into()),
        None => DatasetError::Data(error.into()),
    }
}
