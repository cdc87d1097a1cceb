//! Large batches in pieces that travel well.
//!
//! A batch of many megabytes falls out of the processor's caches between the ends' copies of it and is held whole at either
//! end. [`cut`] makes pieces of it that share its memory.

use arrow_array::{Array, RecordBatch};

/// What a piece should have: the best of a sweep on loopback.
pub const PIECE_BYTES: usize = 2 << 20;
/// Rows of a piece are a multiple of this, so that the bits of its nulls begin with a byte and need not be shifted.
const ROWS_TOGETHER: usize = 64;

/// The batch in pieces of about `piece_bytes`, in order; a batch of up to 1.5 times that stays whole. Rows are taken to
/// have about the same length; dictionaries count with every piece.
pub fn cut(batch: &RecordBatch, piece_bytes: usize) -> impl Iterator<Item = RecordBatch> + Send + use<> {
    let (batch, rows) = (batch.clone(), batch.num_rows());
    let bytes = data_bytes(&batch);
    let whole = bytes <= piece_bytes + piece_bytes / 2;
    let fitting = (rows as u128 * piece_bytes as u128 / bytes.max(1) as u128) as usize;
    let step = if whole { rows.max(1) } else { fitting.next_multiple_of(ROWS_TOGETHER).max(ROWS_TOGETHER) };
    let pieces = rows.div_ceil(step).max(1);
    (0..pieces).map(move |piece| {
        let from = piece * step;
        batch.slice(from, step.min(rows - from))
    })
}

/// Bytes of the buffers that hold a batch's rows.
pub(crate) fn data_bytes(batch: &RecordBatch) -> usize {
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
        fn pieces_are_the_batch_where_it_lies(rows in 0usize..3000, from in 0usize..100, piece_bytes in 0usize..40_000) {
            let whole = batch(rows + from).slice(from, rows);
            let pieces: Vec<RecordBatch> = cut(&whole, piece_bytes).collect();
            let mut at = 0;
            for piece in &pieces {
                prop_assert_eq!(piece, &whole.slice(at, piece.num_rows()));
                let lies = |batch: &RecordBatch| batch.column(0).to_data().buffers()[0].as_ptr();
                prop_assert_eq!(lies(piece).wrapping_sub(lies(&whole) as usize) as usize, 8 * at);
                at += piece.num_rows();
            }
            prop_assert_eq!(at, rows);
            let uneven = pieces.iter().rev().skip(1).any(|piece| piece.num_rows() % ROWS_TOGETHER != 0);
            prop_assert!(!pieces.is_empty() && !uneven);
        }
    }

    #[test]
    fn small_batches_stay_whole_and_large_ones_come_in_pieces_of_the_wanted_bytes() {
        assert_eq!(cut(&batch(10_000), PIECE_BYTES).count(), 1);
        let pieces: Vec<usize> = cut(&batch(100_000), 100_000).map(|piece| data_bytes(&piece)).collect();
        assert!(pieces.len() > 15 && pieces.iter().all(|bytes| *bytes < 120_000), "{pieces:?}");
    }
}
