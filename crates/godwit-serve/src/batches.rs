//! What all files have in common on their way to batches.

use arrow_array::RecordBatch;
use godwit_flight::{BatchReader, DatasetError, Part};
use godwit_formats::is_system_failure;

use crate::bucket::remote_cause;

/// An error of a reader, by whose fault it is.
pub(crate) fn blamed<E: std::error::Error + Send + Sync + 'static>(error: E) -> DatasetError {
    match remote_cause(&error) {
        Some(remote) => remote.into(),
        None if is_system_failure(&error) => DatasetError::Machine(error.into()),
        None => DatasetError::Data(error.into()),
    }
}

/// Batches that `fill` makes, until it has no more or fails: then it is not asked again.
pub(crate) fn until_done(
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

/// The one part of a file that is not cut.
pub(crate) fn one_part() -> Vec<Part> {
    vec![Part { stretches: vec![(0, u64::MAX)] }]
}
