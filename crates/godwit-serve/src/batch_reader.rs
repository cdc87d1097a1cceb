//! Functions for reading batches that the datasets of all file formats use.

use arrow_array::RecordBatch;
use godwit_dataset::{BatchReader, DatasetError, ScanPart};

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
