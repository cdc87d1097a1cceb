//! Functions for reading batches that the datasets of all file formats use.

use arrow_array::RecordBatch;
use godwit_flight::{BatchReader, DatasetError, ScanPart};
use godwit_formats::is_system_failure;

use crate::bucket::find_remote_error;

/// Converts the error of a reader to a [`DatasetError`], by its cause: the object store, this host, or the data.
pub(crate) fn dataset_error<E: std::error::Error + Send + Sync + 'static>(error: E) -> DatasetError {
    match find_remote_error(&error) {
        Some(remote) => remote.into(),
        None if is_system_failure(&error) => DatasetError::Local(error.into()),
        None => DatasetError::Data(error.into()),
    }
}

/// Returns an iterator over the batches that `fill` returns, until `fill` returns `None` or an error.
pub(crate) fn fused_reader(
    mut fill: impl FnMut() -> Result<Option<RecordBatch>, DatasetError> + Send + 'static,
) -> BatchReader {
    let mut is_over = false;
    Box::new(std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let filled = fill().transpose();
        is_over = !matches!(filled, Some(Ok(_)));
        filled
    }))
}

/// Returns one part for the whole file, for formats that cannot be split.
pub(crate) fn single_part() -> Vec<ScanPart> {
    vec![ScanPart { ranges: vec![(0, u64::MAX)] }]
}
