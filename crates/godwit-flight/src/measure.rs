//! Measurements of `godwit bench flight`: data of a known shape, a [`DataPlane`] that sends, receives and echoes them, and
//! transfers over several connections at once.
//!
//! All batches of a [`Workload`] are distinct and made before the clock starts, so that caches do not help either end and
//! only the transfer is timed: from the first request to the last decoded byte. Batches over [`BATCH_SPLIT_BYTES`] are split
//! before sending. Module `bare_stream` moves the same bytes without Flight, for comparison.

mod bare_stream;
pub mod shuffle;
mod statement_timing;
mod transfer;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::Schema;
use bytes::Bytes;
use tonic::Status;

pub use self::bare_stream::{BareStreamServer, receive_bare_streams};
pub use self::statement_timing::{StatementTiming, run_statements};
pub use self::transfer::{TransferStats, download, exchange, prepare_workload, upload};

use crate::auth::Principal;
use crate::batch_split::{BATCH_SPLIT_BYTES, split_batch};
use crate::server::{DataPlane, Download, ExchangeStream, PutResultStream, Upload};
use crate::transport::Address;

/// Approximate bytes per row of the `alignments` shape.
const ALIGNMENT_ROW_BYTES: usize = 350;

/// The shape of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// This many columns of eight bytes, without nulls.
    Fixed {
        /// Number of columns.
        columns: usize,
    },
    /// Aligned reads: numbers, names with nulls, and packed BAM records.
    Alignments,
}

/// The shape and size of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    /// Shape of the rows.
    pub shape: Shape,
    /// Rows of each batch.
    pub rows_per_batch: usize,
    /// Least bytes of all batches together.
    pub bytes: usize,
}

impl fmt::Display for Workload {
    /// Writes the form that tickets have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shape {
            Shape::Fixed { columns } => write!(f, "fixed/{columns}/")?,
            Shape::Alignments => write!(f, "alignments/0/")?,
        }
        write!(f, "{}/{}", self.rows_per_batch, self.bytes)
    }
}

impl FromStr for Workload {
    type Err = Status;

    fn from_str(text: &str) -> Result<Self, Status> {
        let wrong = || Status::not_found(format!("no workload {text}"));
        let [shape, columns, rows_per_batch, bytes] =
            text.split('/').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let shape = match shape {
            "fixed" => Shape::Fixed { columns: number(columns)?.clamp(1, 1024) },
            "alignments" => Shape::Alignments,
            _ => return Err(wrong()),
        };
        let (rows_per_batch, bytes) = (number(rows_per_batch)?.clamp(1, 1 << 24), number(bytes)?.min(1 << 36));
        Ok(Self { shape, rows_per_batch, bytes })
    }
}

impl Workload {
    fn row_bytes(&self) -> usize {
        match self.shape {
            Shape::Fixed { columns } => 8 * columns,
            Shape::Alignments => ALIGNMENT_ROW_BYTES,
        }
    }

    /// Makes all batches.
    pub fn batches(&self) -> Vec<RecordBatch> {
        let count = self.bytes.div_ceil(self.row_bytes() * self.rows_per_batch).max(1);
        let mut draw = XorShift64(0x9e37_79b9_7f4a_7c15);
        (0..count).map(|_| self.batch(&mut draw)).collect()
    }

    fn batch(&self, draw: &mut XorShift64) -> RecordBatch {
        let rows = self.rows_per_batch;
        let columns: Vec<(String, ArrayRef, bool)> = match self.shape {
            Shape::Fixed { columns } => {
                let column = |index| -> (String, ArrayRef, bool) {
                    let values = Int64Array::from_iter_values((0..rows).map(|_| draw.next() as i64));
                    (format!("column{index}"), Arc::new(values), false)
                };
                (0..columns).map(column).collect()
            }
            Shape::Alignments => {
                let positions = Int32Array::from_iter_values((0..rows).map(|_| draw.next() as i32 & 0xff_ffff));
                let names = (0..rows).map(|row| (row % 16 != 5).then(|| format!("A00:1:FLOW:{:016x}", draw.next())));
                let names: StringArray = names.collect();
                let lengths = OffsetBuffer::from_lengths((0..rows).map(|_| 300 + (draw.next() % 32) as usize));
                let bytes = lengths.last().map_or(0, |last| *last as usize);
                let words = Buffer::from_iter((0..bytes.div_ceil(8)).map(|_| draw.next()));
                let offsets = OffsetBuffer::new(ScalarBuffer::from(lengths.to_vec()));
                let records = BinaryArray::new(offsets, words.slice_with_length(0, bytes), None);
                vec![
                    ("position".into(), Arc::new(positions), false),
                    ("name".into(), Arc::new(names), true),
                    ("record".into(), Arc::new(records), false),
                ]
            }
        };
        RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
    }
}

/// A pseudorandom number generator (xorshift64, Marsaglia 2003).
struct XorShift64(u64);

impl XorShift64 {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The ticket that requests the address of bare streams, and its key in the metadata of the returned schema.
const BARE_STREAMS_TICKET: &str = "stream";

/// A data plane that sends workloads by ticket, counts uploads, and echoes exchanges.
#[derive(Clone, Default)]
pub struct WorkloadDataPlane {
    workload_batches: Arc<Mutex<HashMap<Workload, Arc<Vec<RecordBatch>>>>>,
    bare_stream_address: Option<Address>,
}

impl WorkloadDataPlane {
    /// Adds the address of a server of bare streams with the same workloads.
    pub fn with_bare_streams(self, at: Address) -> Self {
        Self { bare_stream_address: Some(at), ..self }
    }

    /// Returns the batches of a workload, made once; only those of the last workload are kept.
    async fn batches(&self, workload: Workload) -> Result<Arc<Vec<RecordBatch>>, Status> {
        let made = self.workload_batches.clone();
        // Making them takes seconds, during which pings must be answered.
        let making = tokio::task::spawn_blocking(move || {
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            if !made.contains_key(&workload) {
                made.clear();
            }
            made.entry(workload).or_insert_with(|| Arc::new(workload.batches())).clone()
        });
        making.await.map_err(|_| Status::internal("the batches could not be made"))
    }
}

/// Returns every n-th batch from the i-th on, split.
fn batches_of_stream(
    batches: Arc<Vec<RecordBatch>>,
    from: usize,
    step: usize,
) -> impl Iterator<Item = RecordBatch> + Send {
    (from..batches.len()).step_by(step).flat_map(move |index| split_batch(&batches[index], BATCH_SPLIT_BYTES))
}

impl DataPlane for WorkloadDataPlane {
    /// Sends a workload. Tickets are `WORKLOAD/STREAM/STREAMS`; with `0/0`, the batches are made and none is sent.
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        let text = String::from_utf8_lossy(&ticket).into_owned();
        let wrong = || Status::not_found(format!("no measurement {text}"));
        if text == BARE_STREAMS_TICKET {
            let address = self.bare_stream_address.as_ref().ok_or_else(wrong)?.to_string();
            let metadata = HashMap::from([(BARE_STREAMS_TICKET.to_owned(), address)]);
            let schema = Arc::new(Schema::empty().with_metadata(metadata));
            return Ok(Download { schema, batches: Box::pin(futures_util::stream::empty()) });
        }
        let (workload, stream, streams) = parse_stream_ticket(&text)?;
        let batches = self.batches(workload).await?;
        let schema = batches.first().ok_or_else(wrong)?.schema();
        let (from, step) = if streams == 0 { (batches.len(), 1) } else { (stream, streams) };
        let items = batches_of_stream(batches, from, step).map(|batch| Ok((batch, Bytes::new())));
        Ok(Download { schema, batches: Box::pin(futures_util::stream::iter(items)) })
    }

    /// Counts the rows, and sends the number once, at the end.
    async fn upload(&self, _: Principal, mut upload: Upload) -> Result<PutResultStream, Status> {
        let mut rows = 0;
        while let Some(chunk) = upload.next().await? {
            rows += chunk.batch.map_or(0, |batch| batch.num_rows());
        }
        Ok(Box::pin(futures_util::stream::iter([Ok(Bytes::from(rows.to_string()))])))
    }

    /// Echoes everything.
    async fn exchange(&self, _: Principal, upload: Upload) -> Result<ExchangeStream, Status> {
        Ok(Box::pin(futures_util::stream::try_unfold(upload, |mut upload| async move {
            Ok(upload.next().await?.map(|chunk| (chunk, upload)))
        })))
    }
}

/// Parses `WORKLOAD/STREAM/STREAMS`: every STREAMS-th batch, from the STREAM-th on.
fn parse_stream_ticket(text: &str) -> Result<(Workload, usize, usize), Status> {
    let wrong = || Status::not_found(format!("no measurement {text}"));
    let (rest, streams) = text.rsplit_once('/').ok_or_else(wrong)?;
    let (workload, stream) = rest.rsplit_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.parse().map_err(|_| wrong());
    Ok((workload.parse()?, number(stream)?, number(streams)?))
}
