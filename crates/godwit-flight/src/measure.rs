//! What `godwit bench flight` measures with: data of a known shape, a [`DataPlane`] that hands it out, takes it and gives it
//! back, and transfers of it over several connections at once.
//!
//! All batches of a [`Workload`] are distinct and made before the clock starts, so that neither end can win by its caches
//! and nothing but the transfer is timed. What is timed is from the first request to the last byte decoded. Batches over
//! [`PIECE_BYTES`] are cut on their way. Module `stream` moves the same bytes without Flight: the yardstick.

pub mod shuffle;
mod statements;
mod stream;
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

pub use self::statements::{Answered, ask};
pub use self::stream::{BareStreams, stream};
pub use self::transfer::{Transferred, download, exchange, prepare, upload};

use crate::cut::{PIECE_BYTES, cut};
use crate::gate::Caller;
use crate::server::{Answers, Chunks, DataPlane, Download, Upload};
use crate::transport::Address;

/// Bytes per row of the `alignments` shape, about.
const ALIGNMENT_ROW_BYTES: usize = 350;

/// What rows look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// This many columns of eight bytes, without nulls.
    Fixed {
        /// Columns.
        columns: usize,
    },
    /// Aligned reads: numbers, names with nulls, and packed records.
    Alignments,
}

/// How much of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    /// What rows look like.
    pub shape: Shape,
    /// Rows of each batch.
    pub rows_per_batch: usize,
    /// Bytes of all batches, at least.
    pub bytes: usize,
}

impl fmt::Display for Workload {
    /// As tickets have it.
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

    /// All batches.
    pub fn batches(&self) -> Vec<RecordBatch> {
        let count = self.bytes.div_ceil(self.row_bytes() * self.rows_per_batch).max(1);
        let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
        (0..count).map(|_| self.batch(&mut draw)).collect()
    }

    fn batch(&self, draw: &mut Draw) -> RecordBatch {
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

/// Numbers without a pattern (xorshift64, Marsaglia 2003).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// What tells a client where bare streams are: the ticket, and the key in the metadata of the schema it gets.
const BARE_STREAMS: &str = "stream";

/// Hands out workloads by ticket, takes uploads to count them, and gives back what is exchanged.
#[derive(Clone, Default)]
pub struct Measuring {
    made: Arc<Mutex<HashMap<Workload, Arc<Vec<RecordBatch>>>>>,
    bare_streams: Option<Address>,
}

impl Measuring {
    /// With bare streams of the same workloads to be had at an address.
    pub fn with_bare_streams(self, at: Address) -> Self {
        Self { bare_streams: Some(at), ..self }
    }

    /// The batches of a workload, made once; those of the last one are kept.
    async fn batches(&self, workload: Workload) -> Result<Arc<Vec<RecordBatch>>, Status> {
        let made = self.made.clone();
        // Making them takes seconds, in which pings must be answered.
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

/// Every n-th batch from the i-th on, in pieces.
fn share(batches: Arc<Vec<RecordBatch>>, from: usize, step: usize) -> impl Iterator<Item = RecordBatch> + Send {
    (from..batches.len()).step_by(step).flat_map(move |index| cut(&batches[index], PIECE_BYTES))
}

impl DataPlane for Measuring {
    /// Tickets are `WORKLOAD/STREAM/STREAMS`; with `0/0`, the batches are made and none is sent.
    async fn download(&self, _: Caller, ticket: Bytes) -> Result<Download, Status> {
        let text = String::from_utf8_lossy(&ticket).into_owned();
        let wrong = || Status::not_found(format!("no measurement {text}"));
        if text == BARE_STREAMS {
            let address = self.bare_streams.as_ref().ok_or_else(wrong)?.to_string();
            let metadata = HashMap::from([(BARE_STREAMS.to_owned(), address)]);
            let schema = Arc::new(Schema::empty().with_metadata(metadata));
            return Ok(Download { schema, batches: Box::pin(futures_util::stream::empty()) });
        }
        let (workload, stream, streams) = parse_share(&text)?;
        let batches = self.batches(workload).await?;
        let schema = batches.first().ok_or_else(wrong)?.schema();
        let (from, step) = if streams == 0 { (batches.len(), 1) } else { (stream, streams) };
        let items = share(batches, from, step).map(|batch| Ok((batch, Bytes::new())));
        Ok(Download { schema, batches: Box::pin(futures_util::stream::iter(items)) })
    }

    /// Answers once, at the end: the rows.
    async fn upload(&self, _: Caller, mut upload: Upload) -> Result<Answers, Status> {
        let mut rows = 0;
        while let Some(chunk) = upload.next().await? {
            rows += chunk.batch.map_or(0, |batch| batch.num_rows());
        }
        Ok(Box::pin(futures_util::stream::iter([Ok(Bytes::from(rows.to_string()))])))
    }

    /// Gives everything back.
    async fn exchange(&self, _: Caller, taken: Upload) -> Result<Chunks, Status> {
        Ok(Box::pin(futures_util::stream::try_unfold(taken, |mut taken| async move {
            Ok(taken.next().await?.map(|chunk| (chunk, taken)))
        })))
    }
}

/// `WORKLOAD/STREAM/STREAMS`: every STREAMS-th batch, from the STREAM-th on.
fn parse_share(text: &str) -> Result<(Workload, usize, usize), Status> {
    let wrong = || Status::not_found(format!("no measurement {text}"));
    let (rest, streams) = text.rsplit_once('/').ok_or_else(wrong)?;
    let (workload, stream) = rest.rsplit_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.parse().map_err(|_| wrong());
    Ok((workload.parse()?, number(stream)?, number(streams)?))
}
