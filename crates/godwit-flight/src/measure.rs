//! What `godwit bench flight` measures with: data of a known shape, a [`DataPlane`] that hands it out and takes it, and
//! transfers of it over several connections at once.
//!
//! All batches of a [`Workload`] are distinct and made before the clock starts, so that neither end can win by its caches
//! and nothing but the transfer is timed. What is timed is from the first request to the last byte decoded.

pub mod shuffle;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_flight::FlightDescriptor;
use bytes::Bytes;
use futures_core::Stream;
use tonic::Status;

use crate::client::Client;
use crate::error::FlightError;
use crate::server::{Answers, DataPlane, Download, Item, Upload};

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

/// Hands out workloads by ticket, and takes uploads to count them.
#[derive(Default)]
pub struct Measuring {
    made: Mutex<HashMap<Workload, Arc<Vec<RecordBatch>>>>,
}

impl Measuring {
    /// The batches of a workload, made once; those of the last one are kept.
    fn batches(&self, workload: Workload) -> Arc<Vec<RecordBatch>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.contains_key(&workload) {
            made.clear();
        }
        made.entry(workload).or_insert_with(|| Arc::new(workload.batches())).clone()
    }
}

/// Every n-th batch, from the i-th on.
struct Share {
    batches: Arc<Vec<RecordBatch>>,
    next: usize,
    step: usize,
}

impl Stream for Share {
    type Item = Result<Item, Status>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let batch = self.batches.get(self.next).cloned();
        self.next += self.step;
        std::task::Poll::Ready(batch.map(|batch| Ok((batch, Bytes::new()))))
    }
}

impl DataPlane for Measuring {
    /// Tickets are `WORKLOAD/STREAM/STREAMS`; with `0/0`, the batches are made and none is sent.
    async fn download(&self, ticket: Bytes) -> Result<Download, Status> {
        let text = String::from_utf8_lossy(&ticket).into_owned();
        let wrong = || Status::not_found(format!("no measurement {text}"));
        let (rest, streams) = text.rsplit_once('/').ok_or_else(wrong)?;
        let (workload, stream) = rest.rsplit_once('/').ok_or_else(wrong)?;
        let step: usize = streams.parse().map_err(|_| wrong())?;
        let batches = self.batches(workload.parse()?);
        let schema = batches.first().ok_or_else(wrong)?.schema();
        let next = if step == 0 { usize::MAX / 2 } else { stream.parse().map_err(|_| wrong())? };
        Ok(Download { schema, batches: Box::pin(Share { batches, next, step }) })
    }

    /// Answers once, at the end: the rows.
    async fn upload(&self, mut upload: Upload) -> Result<Answers, Status> {
        let mut rows = 0;
        while let Some(uploaded) = upload.next().await? {
            rows += uploaded.batch.map_or(0, |batch| batch.num_rows());
        }
        Ok(Box::pin(Once(Some(Bytes::from(rows.to_string())))))
    }
}

struct Once(Option<Bytes>);

impl Stream for Once {
    type Item = Result<Bytes, Status>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.take().map(Ok))
    }
}

/// What a transfer came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transferred {
    /// Rows that arrived.
    pub rows: u64,
    /// Bytes of their buffers.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

/// Has the server make the batches of a workload, so that no download waits for it.
///
/// # Errors
/// [`FlightError`].
pub async fn prepare(client: &Client, workload: Workload) -> Result<(), FlightError> {
    let mut prepared = client.download(format!("{workload}/0/0")).await?;
    while prepared.next().await?.is_some() {}
    Ok(())
}

/// Downloads the workload over all clients at once, a share each.
///
/// # Errors
/// [`FlightError`].
pub async fn download(clients: &[Client], workload: Workload) -> Result<Transferred, FlightError> {
    let started = Instant::now();
    let streams = clients.len();
    let mut tasks = tokio::task::JoinSet::new();
    for (stream, client) in clients.iter().cloned().enumerate() {
        tasks.spawn(async move {
            let mut batches = client.download(format!("{workload}/{stream}/{streams}")).await?;
            let mut transferred = Transferred::default();
            while let Some((batch, _)) = batches.next().await? {
                transferred.add(&batch);
            }
            Ok::<_, FlightError>(transferred)
        });
    }
    let mut total = join(tasks).await?;
    total.duration = started.elapsed();
    Ok(total)
}

/// Uploads batches of one schema over all clients at once, a share each.
///
/// # Errors
/// [`FlightError`].
pub async fn upload(clients: &[Client], batches: &Arc<Vec<RecordBatch>>) -> Result<Transferred, FlightError> {
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (stream, client) in clients.iter().cloned().enumerate() {
        let (batches, streams) = (batches.clone(), clients.len());
        tasks.spawn(async move {
            let descriptor = FlightDescriptor::new_path(vec!["bench".into()]);
            let (mut sender, answers) = client.upload(&descriptor, &batches[0].schema())?;
            let sending = async {
                let mut transferred = Transferred::default();
                for batch in batches.iter().skip(stream).step_by(streams) {
                    sender.send(batch, &[]).await?;
                    transferred.add(batch);
                }
                sender.finish().await?;
                Ok::<_, FlightError>(transferred)
            };
            let taking = async {
                let mut answers = answers.await?;
                while answers.next().await?.is_some() {}
                Ok::<_, FlightError>(())
            };
            let (sent, taken) = tokio::join!(sending, taking);
            taken.and(sent)
        });
    }
    let mut total = join(tasks).await?;
    total.duration = started.elapsed();
    Ok(total)
}

async fn join(mut tasks: tokio::task::JoinSet<Result<Transferred, FlightError>>) -> Result<Transferred, FlightError> {
    let mut total = Transferred::default();
    while let Some(done) = tasks.join_next().await {
        let part = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        total.rows += part.rows;
        total.bytes += part.bytes;
    }
    Ok(total)
}

impl Transferred {
    fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        let bytes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default());
        self.bytes += bytes.sum::<usize>() as u64;
    }
}
