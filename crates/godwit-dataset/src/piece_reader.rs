//! Reading a part of a scan by several threads, in the order of its rows.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::vec::IntoIter;

use arrow_array::RecordBatch;

use crate::dataset::{BatchReader, Dataset, DatasetError, Scan, ScanPart};

/// Number of pieces of a stream that are read in advance. A client that receives one stream can hardly receive more.
const PIECES_AHEAD: usize = 2;
/// Maximum number of batches of a piece that are read in advance. The batches after them are read when they are needed.
const MAX_BATCHES_AHEAD: usize = 8;
/// Maximum number of pieces that are read in advance in this process. Other streams are read on the threads of their
/// callers, so that thousands of slow clients need no memory for batches.
const MAX_PIECES_AHEAD: usize = 32;

/// Number of pieces that are read in advance, or have been read and not been used.
static PIECE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Reads a part of a scan, as [`Dataset::read`] does. If the dataset divides the part into pieces
/// ([`Dataset::pieces`]), threads read the next pieces while the caller uses the batches of the current one.
///
/// # Errors
/// Those of [`Dataset::read`].
pub fn read_pieces(dataset: &Arc<dyn Dataset>, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
    let pieces = dataset.pieces(part);
    if pieces.len() < 2 {
        return dataset.read(scan, part);
    }
    let (dataset, scan, pieces) = (dataset.clone(), scan.clone(), pieces.into_iter());
    Ok(Box::new(PieceReader { dataset, scan, pieces, ahead: VecDeque::new(), current: Box::new(std::iter::empty()) }))
}

/// A permission to read a piece in advance.
struct AheadPermit;

impl AheadPermit {
    /// Returns a permission; `None` if there are [`MAX_PIECES_AHEAD`].
    fn try_acquire() -> Option<Self> {
        let count = PIECE_COUNT.fetch_add(1, Ordering::Relaxed);
        let permit = Self;
        (count < MAX_PIECES_AHEAD).then_some(permit)
    }
}

impl Drop for AheadPermit {
    fn drop(&mut self) {
        PIECE_COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A piece of which a thread reads the first batches; the thread returns all batches.
type PieceAhead = JoinHandle<Result<BatchReader, DatasetError>>;

/// An iterator over the batches of pieces.
struct PieceReader {
    dataset: Arc<dyn Dataset>,
    scan: Scan,
    /// The pieces that are neither in `ahead` nor have been read.
    pieces: IntoIter<ScanPart>,
    /// The next pieces, in order.
    ahead: VecDeque<PieceAhead>,
    /// The remaining batches of the current piece.
    current: BatchReader,
}

impl PieceReader {
    /// Starts threads for the next pieces, as far as the limits permit it.
    fn read_ahead(&mut self) {
        while self.ahead.len() < PIECES_AHEAD
            && let Some(piece) = self.pieces.as_slice().first()
            && let Some(permit) = AheadPermit::try_acquire()
        {
            let (dataset, scan, piece) = (self.dataset.clone(), self.scan.clone(), piece.clone());
            let thread = std::thread::Builder::new().name("piece".to_owned());
            let started = thread.spawn(move || read_first_batches(&*dataset, &scan, &piece, permit));
            // If no thread can be started, the caller reads the piece.
            let Ok(thread) = started else { return };
            self.pieces.next();
            self.ahead.push_back(thread);
        }
    }

    /// Returns the batches of the next piece; `None` after the last one.
    fn next_piece(&mut self) -> Option<Result<BatchReader, DatasetError>> {
        self.read_ahead();
        let Some(thread) = self.ahead.pop_front() else {
            return self.pieces.next().map(|piece| self.dataset.read(&self.scan, &piece));
        };
        let batches = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        self.read_ahead();
        Some(batches)
    }
}

/// Reads the first batches of a piece. Returns all its batches.
fn read_first_batches(
    dataset: &dyn Dataset,
    scan: &Scan,
    piece: &ScanPart,
    permit: AheadPermit,
) -> Result<BatchReader, DatasetError> {
    let mut rest = dataset.read(scan, piece)?;
    let first: Vec<_> = rest.by_ref().take(MAX_BATCHES_AHEAD).collect();
    let first = FirstBatches { batches: first.into_iter(), _permit: permit };
    Ok(Box::new(first.chain(rest)))
}

/// The batches that were read in advance. The permission ends when they have been used.
struct FirstBatches {
    batches: IntoIter<Result<RecordBatch, DatasetError>>,
    _permit: AheadPermit,
}

impl Iterator for FirstBatches {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

impl Iterator for PieceReader {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.current.next() {
                Some(Ok(batch)) => return Some(Ok(batch)),
                Some(Err(error)) => {
                    // The rows end at the first error.
                    self.pieces = Vec::new().into_iter();
                    self.ahead.clear();
                    self.current = Box::new(std::iter::empty());
                    return Some(Err(error));
                }
                None => self.current = self.next_piece()?.unwrap_or_else(|error| Box::new(std::iter::once(Err(error)))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::Int64Type;
    use arrow_schema::{DataType, Field, Schema, SchemaRef};

    use super::*;
    use crate::dataset::DatasetKind;

    /// A table whose rows are the numbers of its ranges. [`Dataset::read`] fails for the number `damaged`.
    #[derive(Debug)]
    struct Numbers {
        damaged: Option<u64>,
    }

    impl Dataset for Numbers {
        fn kind(&self) -> DatasetKind {
            DatasetKind::Table
        }

        fn schema(&self) -> SchemaRef {
            Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, false)]))
        }

        fn bytes(&self) -> u64 {
            0
        }

        fn version(&self) -> u64 {
            1
        }

        fn has_regions(&self) -> bool {
            false
        }

        fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
            Ok(vec![ScanPart { ranges: vec![(0, 100)] }])
        }

        fn pieces(&self, part: &ScanPart) -> Vec<ScanPart> {
            let numbers = part.ranges.iter().flat_map(|range| range.0..range.1);
            numbers.map(|number| ScanPart { ranges: vec![(number, number + 1)] }).collect()
        }

        fn read(&self, _: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
            let (schema, number) = (self.schema(), part.ranges[0].0);
            // Later pieces are read in less time.
            std::thread::sleep(std::time::Duration::from_micros(100 * (3 - number % 4)));
            if self.damaged == Some(number) {
                return Err(DatasetError::Data("damaged".into()));
            }
            let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![number as i64]))]);
            Ok(Box::new(std::iter::once(Ok(batch.unwrap()))))
        }
    }

    fn read(damaged: Option<u64>) -> Vec<Result<i64, DatasetError>> {
        let dataset: Arc<dyn Dataset> = Arc::new(Numbers { damaged });
        let part = &dataset.parts(&Scan::default(), 1).unwrap()[0];
        let batches = read_pieces(&dataset, &Scan::default(), part).unwrap();
        batches.map(|batch| batch.map(|batch| batch.column(0).as_primitive::<Int64Type>().value(0))).collect()
    }

    #[test]
    fn rows_are_in_the_order_of_the_pieces() {
        let rows: Result<Vec<_>, _> = read(None).into_iter().collect();
        assert_eq!(rows.unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_rows_end_at_the_first_error() {
        let mut rows = read(Some(7));
        assert_eq!(rows.pop().unwrap().unwrap_err().to_string(), "damaged");
        assert_eq!(rows.into_iter().map(Result::unwrap).collect::<Vec<_>>(), (0..7).collect::<Vec<_>>());
    }
}
