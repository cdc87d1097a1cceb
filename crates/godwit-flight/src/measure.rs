//! Measurements for `godwit bench flight`: generated test data ([`Workload`]), a [`DataPlane`] that sends, receives and
//! echoes test data, and timed transfers over several connections at once.
//!
//! All batches of a [`Workload`] are created before the measurement starts, and all are different, so that CPU caches
//! do not make the transfer faster. The measured time ends when the last byte is decoded. Large batches are split before
//! sending. For comparison, module `bare_stream` transfers the same bytes without Flight.

mod bare_stream;
mod transfer;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::Schema;
use bytes::Bytes;
use godwit_dataset::Principal;
use godwit_model::split_batch;
use parking_lot::Mutex;
use tonic::Status;

pub use self::bare_stream::{BareStreamServer, receive_bare_streams};
pub use self::transfer::{TransferStats, download, exchange, prepare_workload, upload};

use crate::call_streams::{Download, ExchangeStream, PutResultStream};
use crate::server::{DataPlane, Upload};
use crate::transport::Address;

/// Target size of a piece of a batch, bytes. Of several sizes measured on loopback, this one gave the highest throughput.
const BATCH_SPLIT_BYTES: usize = 2 << 20;
/// Approximate size of a row of [`Shape::Alignments`], bytes.
const ALIGNMENT_ROW_BYTES: usize = 350;

/// The columns of the generated rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Columns of 64-bit integers without nulls.
    Fixed {
        /// Number of columns.
        columns: usize,
    },
    /// Aligned reads with number columns, names that may be null, and encoded BAM records.
    Alignments,
}

/// The shape and size of generated test data.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_flight::measure::{Shape, Workload};
///
/// let workload: Workload = "fixed/4/65536/1000000".parse()?;
/// let shape = Shape::Fixed { columns: 4 };
/// assert_eq!(workload, Workload { shape, rows_per_batch: 65_536, bytes: 1_000_000 });
/// assert_eq!(workload.to_string(), "fixed/4/65536/1000000");
/// assert!("fixed/4".parse::<Workload>().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    /// The columns of each row.
    pub shape: Shape,
    /// Number of rows in each batch.
    pub rows_per_batch: usize,
    /// Minimum size of all batches together, bytes.
    pub bytes: usize,
}

impl fmt::Display for Workload {
    /// Writes the workload in the form that tickets contain, such as `fixed/4/65536/1000000`.
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
        let wrong = || Status::not_found(format!("invalid workload {text}"));
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

    /// Creates all batches of the workload.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_flight::measure::{Shape, Workload};
    ///
    /// let workload = Workload { shape: Shape::Fixed { columns: 2 }, rows_per_batch: 100, bytes: 4000 };
    /// let batches = workload.batches();
    /// assert_eq!(batches.len(), 3);
    /// assert!(batches.iter().all(|batch| (batch.num_columns(), batch.num_rows()) == (2, 100)));
    /// ```
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
                    let values = Int64Array::from_iter_values((0..rows).map(|_| draw.next_number() as i64));
                    (format!("column{index}"), Arc::new(values), false)
                };
                (0..columns).map(column).collect()
            }
            Shape::Alignments => {
                let positions = Int32Array::from_iter_values((0..rows).map(|_| draw.next_number() as i32 & 0xff_ffff));
                let names =
                    (0..rows).map(|row| (row % 16 != 5).then(|| format!("A00:1:FLOW:{:016x}", draw.next_number())));
                let names: StringArray = names.collect();
                let lengths = OffsetBuffer::from_lengths((0..rows).map(|_| 300 + (draw.next_number() % 32) as usize));
                let bytes = lengths.last().map_or(0, |last| *last as usize);
                let words = Buffer::from_iter((0..bytes.div_ceil(8)).map(|_| draw.next_number()));
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
pub struct XorShift64(
    /// The state, which is never 0.
    pub u64,
);

impl XorShift64 {
    /// Returns the next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The ticket that requests the address of the server for bare streams. The metadata of the returned schema contains
/// the address under the same key.
const BARE_STREAMS_TICKET: &str = "stream";

/// A data plane that sends the workload that a ticket names, counts the rows of uploads, and echoes exchanges.
#[derive(Clone, Default)]
pub struct WorkloadDataPlane {
    workload_batches: Arc<Mutex<HashMap<Workload, Arc<Vec<RecordBatch>>>>>,
    bare_stream_address: Option<Address>,
}

impl WorkloadDataPlane {
    /// Sets the address of a server that sends the same workloads as bare streams, without Flight.
    pub fn with_bare_streams(self, at: Address) -> Self {
        Self { bare_stream_address: Some(at), ..self }
    }

    /// Returns the batches of a workload. The batches of the last workload are cached.
    async fn batches(&self, workload: Workload) -> Result<Arc<Vec<RecordBatch>>, Status> {
        let made = self.workload_batches.clone();
        // Creating the batches takes seconds. The runtime must answer HTTP/2 pings during this time.
        let making = tokio::task::spawn_blocking(move || {
            let mut made = made.lock();
            if !made.contains_key(&workload) {
                made.clear();
            }
            made.entry(workload).or_insert_with(|| Arc::new(workload.batches())).clone()
        });
        making.await.map_err(|_| Status::internal("the batches could not be made"))
    }
}

/// Returns the batches that one of several parallel streams transfers, split into pieces for sending.
fn batches_of_stream(
    batches: Arc<Vec<RecordBatch>>,
    from: usize,
    step: usize,
) -> impl Iterator<Item = RecordBatch> + Send {
    (from..batches.len()).step_by(step).flat_map(move |index| split_batch(&batches[index], BATCH_SPLIT_BYTES))
}

impl DataPlane for WorkloadDataPlane {
    /// Sends the batches of a workload. A ticket is `WORKLOAD/STREAM/STREAMS`. With `0/0` for STREAM and STREAMS, the
    /// server creates the batches but sends none.
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        let text = String::from_utf8_lossy(&ticket).into_owned();
        let wrong = || Status::not_found(format!("invalid ticket {text}"));
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

    /// Counts the rows of an upload and sends their number as the only result, at the end.
    async fn upload(&self, _: Principal, mut upload: Upload) -> Result<PutResultStream, Status> {
        let mut rows = 0;
        while let Some(chunk) = upload.next().await? {
            rows += chunk.batch.map_or(0, |batch| batch.num_rows());
        }
        Ok(Box::pin(futures_util::stream::iter([Ok(Bytes::from(rows.to_string()))])))
    }

    /// Sends every received batch and its metadata back to the client.
    async fn exchange(&self, _: Principal, upload: Upload) -> Result<ExchangeStream, Status> {
        Ok(Box::pin(futures_util::stream::try_unfold(upload, |mut upload| async move {
            Ok(upload.next().await?.map(|chunk| (chunk, upload)))
        })))
    }
}

/// Parses a ticket `WORKLOAD/STREAM/STREAMS`, which requests every STREAMS-th batch, starting with batch STREAM
/// (0-based).
fn parse_stream_ticket(text: &str) -> Result<(Workload, usize, usize), Status> {
    let wrong = || Status::not_found(format!("invalid ticket {text}"));
    let (rest, streams) = text.rsplit_once('/').ok_or_else(wrong)?;
    let (workload, stream) = rest.rsplit_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.parse().map_err(|_| wrong());
    Ok((workload.parse()?, number(stream)?, number(streams)?))
}
