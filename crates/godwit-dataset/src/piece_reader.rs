//! Reading a part of a scan by several threads, in the order of its rows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use std::vec::IntoIter;

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender};

use crate::dataset::{BatchReader, Dataset, DatasetError, Scan, ScanPart};

/// Number of pieces of a stream that are read in advance. A client that receives one stream can hardly receive more.
const PIECES_AHEAD: usize = 2;
/// Maximum number of batches of a piece that are read in advance.
const MAX_BATCHES_AHEAD: usize = 8;
/// Maximum number of pieces that are read in advance in this process. Other streams are read on the threads of their
/// callers, so that thousands of slow clients need no memory for batches.
const MAX_PIECES_AHEAD: usize = 32;
/// Longest time for which the oldest batch of a piece waits when no more batches may be read. The batches are then dropped,
/// so that clients that stop do not hold all pieces.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Number of pieces of a stream that are read on the thread of its caller after its batches have waited for too long.
const PIECES_AFTER_WAIT: u32 = 16;

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
    let source = Source { dataset: dataset.clone(), scan: scan.clone() };
    Ok(Box::new(PieceReader {
        source,
        pieces: pieces.into_iter(),
        ahead: VecDeque::new(),
        current: Box::new(std::iter::empty()),
        was_late: Arc::default(),
        pieces_alone: 0,
    }))
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

/// A batch that a thread sends to the caller of a stream, or an error; `None` after the last one of a piece.
type Message = Option<Result<RecordBatch, DatasetError>>;

/// The dataset of a stream, and the columns and rows that a client requests.
#[derive(Clone)]
struct Source {
    dataset: Arc<dyn Dataset>,
    scan: Scan,
}

impl Source {
    /// Reads a piece. An error of [`Dataset::read`] is the only item.
    fn read(&self, piece: &ScanPart) -> BatchReader {
        self.dataset.read(&self.scan, piece).unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
    }

    /// Reads a piece, some batches in advance, and sends its batches and `None` after them. Ends early, without `None`,
    /// if a batch has waited for `max_wait`, and then sets `was_late`.
    fn send(&self, piece: &ScanPart, sender: &Sender<Message>, was_late: &AtomicBool, max_wait: Duration) {
        let mut batches = self.read(piece);
        let mut ahead = VecDeque::from([batches.next()]);
        while let Some(message) = ahead.pop_front() {
            let may_read = ahead.len() < MAX_BATCHES_AHEAD && ahead.back().unwrap_or(&message).is_some();
            let timeout = if may_read { Duration::ZERO } else { max_wait };
            match sender.send_timeout(message, timeout) {
                Ok(()) => {}
                Err(SendTimeoutError::Timeout(message)) if may_read => ahead.push_front(message),
                Err(SendTimeoutError::Timeout(_)) => return was_late.store(true, Ordering::Relaxed),
                Err(SendTimeoutError::Disconnected(_)) => return,
            }
            if may_read {
                ahead.push_back(batches.next());
            }
        }
    }
}

/// An iterator over the batches of pieces.
struct PieceReader {
    source: Source,
    /// The pieces that are neither in `ahead` nor have been read.
    pieces: IntoIter<ScanPart>,
    /// The next pieces, in order.
    ahead: VecDeque<BatchReader>,
    /// The remaining batches of the current piece.
    current: BatchReader,
    /// Whether a batch that was read in advance has waited for too long since the last piece began.
    was_late: Arc<AtomicBool>,
    /// Number of the next pieces for which no thread is started.
    pieces_alone: u32,
}

impl PieceReader {
    /// Starts threads for the next pieces, as far as the limits permit it.
    fn read_ahead(&mut self) {
        if self.was_late.swap(false, Ordering::Relaxed) {
            self.pieces_alone = PIECES_AFTER_WAIT;
        }
        while self.ahead.len() < PIECES_AHEAD
            && self.pieces_alone == 0
            && let Some(piece) = self.pieces.as_slice().first()
            && let Some(permit) = AheadPermit::try_acquire()
        {
            let (sender, receiver) = crossbeam_channel::bounded(0);
            let piece_ahead = PieceAhead { source: self.source.clone(), piece: piece.clone(), receiver, used: 0 };
            let (source, piece, was_late) = (self.source.clone(), piece.clone(), self.was_late.clone());
            let thread = std::thread::Builder::new().name("piece".to_owned());
            let started = thread.spawn(move || {
                let _permit = permit;
                source.send(&piece, &sender, &was_late, MAX_WAIT);
            });
            // If no thread can be started, the caller reads the piece.
            if started.is_err() {
                return;
            }
            self.pieces.next();
            self.ahead.push_back(Box::new(piece_ahead.batches()));
        }
    }

    /// Returns the batches of the next piece; `None` after the last one.
    fn next_piece(&mut self) -> Option<BatchReader> {
        self.read_ahead();
        let Some(batches) = self.ahead.pop_front() else {
            self.pieces_alone = self.pieces_alone.saturating_sub(1);
            return self.pieces.next().map(|piece| self.source.read(&piece));
        };
        self.read_ahead();
        Some(batches)
    }
}

/// A piece that a thread reads in advance.
struct PieceAhead {
    source: Source,
    piece: ScanPart,
    receiver: Receiver<Message>,
    /// Number of batches that were received.
    used: usize,
}

impl PieceAhead {
    /// Returns the batches of the piece. If the thread has ended before the last one, the rest is read by the caller.
    fn batches(mut self) -> impl Iterator<Item = Result<RecordBatch, DatasetError>> + Send {
        let mut rest: Option<BatchReader> = None;
        std::iter::from_fn(move || {
            if let Some(rest) = &mut rest {
                return rest.next();
            }
            let Ok(message) = self.receiver.recv() else {
                return rest.insert(self.read_rest()).next();
            };
            self.used += 1;
            message
        })
        .fuse()
    }

    /// Reads the piece again, and returns the batches after those that were received. If the dataset has fewer, or one of
    /// them cannot be read any more, an error is the only item.
    fn read_rest(&self) -> BatchReader {
        let mut batches = self.source.read(&self.piece);
        for _ in 0..self.used {
            let error = match batches.next() {
                Some(Ok(_)) => continue,
                Some(Err(error)) => error,
                None => DatasetError::Data("the dataset has changed while it was read; request it again".into()),
            };
            return Box::new(std::iter::once(Err(error)));
        }
        batches
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
                None => self.current = self.next_piece()?,
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
            let (schema, (start, end)) = (self.schema(), part.ranges[0]);
            // Later pieces are read in less time.
            std::thread::sleep(Duration::from_micros(100 * (3 - start % 4)));
            if self.damaged == Some(start) {
                return Err(DatasetError::Data("damaged".into()));
            }
            Ok(Box::new((start..end).map(move |number| {
                let numbers = Int64Array::from(vec![number as i64]);
                Ok(RecordBatch::try_new(schema.clone(), vec![Arc::new(numbers)]).unwrap())
            })))
        }
    }

    fn number(batch: &RecordBatch) -> i64 {
        batch.column(0).as_primitive::<Int64Type>().value(0)
    }

    fn read(damaged: Option<u64>) -> Vec<Result<i64, DatasetError>> {
        let dataset: Arc<dyn Dataset> = Arc::new(Numbers { damaged });
        let part = &dataset.parts(&Scan::default(), 1).unwrap()[0];
        let batches = read_pieces(&dataset, &Scan::default(), part).unwrap();
        batches.map(|batch| batch.map(|batch| number(&batch))).collect()
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

    /// Reads a piece of 40 batches of which the caller receives one in time. `damaged` is that of the second reading.
    fn read_late(damaged: Option<u64>) -> Vec<Result<i64, String>> {
        let source = |damaged| Source { dataset: Arc::new(Numbers { damaged }), scan: Scan::default() };
        let (piece, was_late) = (ScanPart { ranges: vec![(0, 40)] }, AtomicBool::new(false));
        let (sender, receiver) = crossbeam_channel::bounded(0);
        let first = std::thread::scope(|scope| {
            let thread = scope.spawn(|| source(None).send(&piece, &sender, &was_late, Duration::from_millis(1)));
            let first = receiver.recv().unwrap().unwrap().unwrap();
            thread.join().unwrap();
            number(&first)
        });
        drop(sender);
        assert!(first == 0 && was_late.into_inner());
        let rest = PieceAhead { source: source(damaged), piece, receiver, used: 1 }.batches();
        rest.map(|batch| batch.map(|batch| number(&batch)).map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn a_late_caller_reads_the_rest_of_a_piece() {
        assert_eq!(read_late(None), (1..40).map(Ok).collect::<Vec<_>>());
    }

    #[test]
    fn a_piece_that_cannot_be_read_again_is_an_error() {
        assert_eq!(read_late(Some(0)), [Err("damaged".to_owned())]);
    }
}
