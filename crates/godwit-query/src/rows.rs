//! The rows of a statement, and the rows of a direct scan, which this process reads itself.

use std::pin::Pin;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use godwit_dataset::{Dataset, DatasetError, Scan, ScanPart};
use godwit_flight::{DirectScan, DirectScanColumns, StatementResult, Status, dataset_status};
use godwit_model::panics::catch_panic;
use tokio::sync::mpsc;

use crate::error::StatementError;

/// Maximum number of batches that are queued for each thread that reads a direct scan.
const MAX_QUEUED_BATCHES: usize = 2;

/// The rows of a statement, which are computed or read while they are requested.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int32Array, RecordBatch};
/// use godwit_query::Rows;
///
/// let positions: ArrayRef = Arc::new(Int32Array::from(vec![100, 200]));
/// let batch = RecordBatch::try_from_iter([("position", positions)])?;
/// let mut rows = Rows::new(batch.schema(), futures_util::stream::iter([Ok(batch.clone())]));
/// assert_eq!(rows.schema().field(0).name(), "position");
/// assert_eq!(rows.next().await?, Some(batch));
/// assert_eq!(rows.next().await?, None);
/// # Ok(())
/// # }
/// ```
pub struct Rows {
    schema: SchemaRef,
    batches: Pin<Box<dyn Stream<Item = Result<RecordBatch, Status>> + Send>>,
}

impl Rows {
    /// Creates rows from a stream of batches with this schema.
    pub fn new(schema: SchemaRef, batches: impl Stream<Item = Result<RecordBatch, Status>> + Send + 'static) -> Self {
        Self { schema, batches: Box::pin(batches) }
    }

    /// Returns the schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the next batch; `None` at the end.
    ///
    /// # Errors
    /// [`StatementError::Failed`] if computing or reading the rows fails.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, StatementError> {
        Ok(self.batches.next().await.transpose()?)
    }

    /// Reads the rows of a direct scan with up to `threads` threads. The rows of different parts of the dataset may be
    /// in any order.
    ///
    /// # Errors
    /// [`StatementError::Failed`] if the dataset cannot be read.
    pub fn read_direct_scan(scan: DirectScan, threads: usize) -> Result<Self, StatementError> {
        let DirectScan { dataset, columns, regions, .. } = scan;
        let columns = match columns {
            DirectScanColumns::Projection(columns) => columns,
            DirectScanColumns::Count(name) => return count_rows(dataset, regions, &name, threads),
        };
        let mut ascending = columns.clone();
        ascending.sort_unstable();
        let order = columns.iter().map(|column| ascending.binary_search(column).unwrap_or_default());
        let order: Vec<usize> = order.collect();
        let schema = Arc::new(without_metadata(&dataset.schema()).project(&columns).map_err(internal_error)?);
        let output = schema.clone();
        let batches = read_parts(dataset, Scan { columns: Some(ascending), regions }, threads)?;
        let batches = batches.map(move |batch| {
            let batch = batch?;
            let columns = order.iter().map(|&index| batch.column(index).clone()).collect();
            let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(output.clone(), columns, &rows).map_err(internal_error)
        });
        Ok(Self::new(schema, batches))
    }
}

impl From<StatementResult> for Rows {
    fn from(result: StatementResult) -> Self {
        Self::new(result.download.schema, result.download.batches.map_ok(|(batch, _)| batch))
    }
}

/// Returns a schema without its metadata, such as a SAM header, which would be sent with every response.
///
/// # Examples
///
/// ```
/// use arrow_schema::Schema;
/// use godwit_query::without_metadata;
///
/// let schema = Schema::empty().with_metadata([("sample".to_owned(), "NA12878".to_owned())].into());
/// assert!(without_metadata(&schema).metadata().is_empty());
/// ```
pub fn without_metadata(schema: &Schema) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().clone()))
}

/// Returns the number of rows as one row. If it is not known in advance, counts the rows while they are read.
fn count_rows(
    dataset: Arc<dyn Dataset>,
    regions: Option<Vec<godwit_model::Region>>,
    name: &str,
    threads: usize,
) -> Result<Rows, StatementError> {
    let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, false)]));
    let known = dataset.rows().filter(|_| regions.is_none());
    let batches = match known {
        Some(_) => None,
        None => Some(read_parts(dataset, Scan { columns: Some(Vec::new()), regions }, threads)?),
    };
    let output = schema.clone();
    let count = async move {
        let count = match batches {
            Some(batches) => batches.try_fold(0, async |rows, batch| Ok(rows + batch.num_rows() as u64)).await?,
            None => known.unwrap_or_default(),
        };
        let column = Int64Array::from(vec![count as i64]);
        RecordBatch::try_new(output, vec![Arc::new(column)]).map_err(internal_error)
    };
    Ok(Rows::new(schema, stream::once(count)))
}

/// Starts up to `threads` threads that read the parts of a scan, and returns their batches as they are read.
fn read_parts(
    dataset: Arc<dyn Dataset>,
    scan: Scan,
    threads: usize,
) -> Result<impl Stream<Item = Result<RecordBatch, Status>> + Send + use<>, StatementError> {
    let parts = dataset.parts(&scan, threads.max(1)).map_err(dataset_status)?;
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_BATCHES * threads.max(1));
    for part in parts {
        let (dataset, scan, sender) = (dataset.clone(), scan.clone(), sender.clone());
        tokio::task::spawn_blocking(move || {
            // The end of the channel is the end of the rows, so a panic must not close it without an error.
            let outcome = catch_panic(|| send_part(&*dataset, &scan, &part, &sender));
            let failure = match outcome {
                Some(Ok(())) => return,
                Some(Err(error)) => dataset_status(error),
                None => Status::internal("a bug in godwit: a thread that reads the dataset panicked"),
            };
            // Ignore the result: sending fails only if the receiver does not need the rows any more.
            let _ = sender.blocking_send(Err(failure));
        });
    }
    Ok(stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) }))
}

fn send_part(
    dataset: &dyn Dataset,
    scan: &Scan,
    part: &ScanPart,
    sender: &mpsc::Sender<Result<RecordBatch, Status>>,
) -> Result<(), DatasetError> {
    for batch in dataset.read(scan, part)? {
        if sender.blocking_send(Ok(batch?)).is_err() {
            break;
        }
    }
    Ok(())
}

fn internal_error(error: ArrowError) -> Status {
    Status::internal(format!("a bug in godwit: {error}"))
}
