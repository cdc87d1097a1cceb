//! Reading a part of a scan by several threads, in the order of its rows.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::vec::IntoIter;

use arrow_array::RecordBatch;

use crate::dataset::{BatchReader, Dataset, DatasetError, Scan, ScanPart};

/// Number of pieces that are read at the same time. A client that receives one stream can hardly receive more.
const CONCURRENT_PIECES: usize = 2;

/// Reads a part of a scan, as [`Dataset::read`] does. If the dataset divides the part into pieces
/// ([`Dataset::pieces`]), threads read the next pieces while the caller uses the batches of the current one. No thread
/// waits for a caller that stops in between: at most two pieces are kept for it.
///
/// # Errors
/// Those of [`Dataset::read`].
pub fn read_pieces(dataset: &Arc<dyn Dataset>, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
    let pieces = dataset.pieces(part);
    if pieces.len() < 2 {
        return dataset.read(scan, part);
    }
    let (dataset, scan) = (dataset.clone(), scan.clone());
    let (pieces, batches) = (pieces.into_iter(), Vec::new().into_iter());
    Ok(Box::new(PieceReader { dataset, scan, pieces, running: VecDeque::new(), batches }))
}

/// An iterator over the batches of pieces.
struct PieceReader {
    dataset: Arc<dyn Dataset>,
    scan: Scan,
    /// The pieces that no thread reads yet.
    pieces: IntoIter<ScanPart>,
    /// The threads, in the order of their pieces.
    running: VecDeque<JoinHandle<Result<Vec<RecordBatch>, DatasetError>>>,
    /// The remaining batches of the current piece.
    batches: IntoIter<RecordBatch>,
}

impl PieceReader {
    /// Starts a thread for the next piece, if there is one.
    fn start_next(&mut self) -> Result<(), DatasetError> {
        if let Some(piece) = self.pieces.next() {
            let (dataset, scan) = (self.dataset.clone(), self.scan.clone());
            let builder = std::thread::Builder::new().name("piece".to_owned());
            let thread = builder.spawn(move || dataset.read(&scan, &piece)?.collect());
            self.running.push_back(thread.map_err(|error| DatasetError::Local(error.into()))?);
        }
        Ok(())
    }

    /// Returns the batches of the next piece; `None` after the last one.
    fn next_piece(&mut self) -> Result<Option<Vec<RecordBatch>>, DatasetError> {
        while self.running.len() < CONCURRENT_PIECES && self.pieces.len() > 0 {
            self.start_next()?;
        }
        let Some(thread) = self.running.pop_front() else { return Ok(None) };
        let batches = thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        self.start_next()?;
        Ok(Some(batches))
    }
}

impl Iterator for PieceReader {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.batches.next() {
                return Some(Ok(batch));
            }
            match self.next_piece() {
                Ok(batches) => self.batches = batches?.into_iter(),
                Err(error) => {
                    self.pieces = Vec::new().into_iter();
                    self.running.clear();
                    return Some(Err(error));
                }
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

    /// A table whose rows are the numbers of its ranges. Reading a number of `damaged` fails.
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
