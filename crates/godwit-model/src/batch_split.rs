//! Splits large record batches into smaller ones for sending.
//!
//! Client and server keep each batch in memory as a whole, and a batch of many megabytes exceeds the CPU caches.
//! [`split_batch`] therefore creates smaller batches, which share the memory of the large batch.

use arrow_array::{Array, RecordBatch};

/// Every piece except the last has a multiple of this number of rows. The null bitmap of each piece then starts at a
/// byte boundary, and Arrow can send it without a copy.
const ROW_ALIGNMENT: usize = 64;

/// Splits a batch into pieces of about `piece_bytes`, in order. A batch of up to 1.5 times `piece_bytes` is not split.
/// The size of a piece is estimated from the average size of a row, including dictionaries.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int64Array, RecordBatch};
/// use godwit_model::split_batch;
///
/// let positions: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
/// let batch = RecordBatch::try_from_iter([("position", positions)])?;
/// let rows: Vec<usize> = split_batch(&batch, 2048).map(|piece| piece.num_rows()).collect();
/// assert_eq!(rows, [256, 256, 256, 232]);
/// # Ok(())
/// # }
/// ```
pub fn split_batch(batch: &RecordBatch, piece_bytes: usize) -> impl Iterator<Item = RecordBatch> + Send + use<> {
    let (batch, rows) = (batch.clone(), batch.num_rows());
    let bytes = batch_bytes(&batch);
    let whole = bytes <= piece_bytes + piece_bytes / 2;
    let fitting = (rows as u128 * piece_bytes as u128 / bytes.max(1) as u128) as usize;
    let step = if whole { rows.max(1) } else { fitting.next_multiple_of(ROW_ALIGNMENT).max(ROW_ALIGNMENT) };
    let pieces = rows.div_ceil(step).max(1);
    (0..pieces).map(move |piece| {
        let from = piece * step;
        batch.slice(from, step.min(rows - from))
    })
}

/// Returns the size of the Arrow buffers of a batch, bytes. Of a slice, only the rows of the slice count.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    let bytes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default());
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use proptest::prelude::*;

    use super::*;

    fn batch(rows: usize) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let names = (0..rows).map(|row| (row % 5 != 2).then(|| format!("read {row}")));
        let names: ArrayRef = Arc::new(StringArray::from_iter(names));
        RecordBatch::try_from_iter_with_nullable([("number", numbers, false), ("name", names, true)]).unwrap()
    }

    proptest! {
        #[test]
        fn pieces_share_the_memory_of_the_batch(rows in 0usize..3000, from in 0usize..100, piece_bytes in 0usize..40_000) {
            let whole = batch(rows + from).slice(from, rows);
            let pieces: Vec<RecordBatch> = split_batch(&whole, piece_bytes).collect();
            let mut at = 0;
            for piece in &pieces {
                prop_assert_eq!(piece, &whole.slice(at, piece.num_rows()));
                let lies = |batch: &RecordBatch| batch.column(0).to_data().buffers()[0].as_ptr();
                prop_assert_eq!(lies(piece).wrapping_sub(lies(&whole) as usize) as usize, 8 * at);
                at += piece.num_rows();
            }
            prop_assert_eq!(at, rows);
            let uneven = pieces.iter().rev().skip(1).any(|piece| piece.num_rows() % ROW_ALIGNMENT != 0);
            prop_assert!(!pieces.is_empty() && !uneven);
        }
    }

    #[test]
    fn small_batches_stay_whole_and_large_ones_come_in_pieces_of_the_wanted_bytes() {
        assert_eq!(split_batch(&batch(10_000), 2 << 20).count(), 1);
        let pieces: Vec<usize> = split_batch(&batch(100_000), 100_000).map(|piece| batch_bytes(&piece)).collect();
        assert!(pieces.len() > 15 && pieces.iter().all(|bytes| *bytes < 120_000), "{pieces:?}");
    }
}
