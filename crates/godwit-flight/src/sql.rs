//! Flight SQL (Arrow Flight SQL 1.x, `FlightSql.proto`): its commands, answered by whoever knows SQL.
//!
//! [`SqlEngine`] runs statements. What clients ask about the server itself, and about its tables, is answered here from the
//! catalog. Updates, transactions and plans of other makes are refused in words.

mod metadata;
mod server_info;
mod statements;

use std::pin::Pin;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use godwit_model::Region;
use tonic::Status;

use crate::dataset::{Catalog, Dataset, Touched};
use crate::gate::Caller;
use crate::metrics::StatementWorkers;
use crate::server::Download;

pub use metadata::{SQL_CATALOG, SQL_SCHEMA, server_info_batch, server_info_schema};
pub(crate) use metadata::{metadata_batch, metadata_schema};
pub(crate) use statements::{Statements, random_bytes};

/// A future that may go to another thread.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'a>>;

/// What is known of a statement before it is run.
#[derive(Clone, Debug)]
pub struct Description {
    /// Columns of its rows.
    pub schema: SchemaRef,
    /// Its parameters in order, by name and type.
    pub parameters: SchemaRef,
}

/// A statement that runs.
pub struct Ran {
    /// Its rows.
    pub download: Download,
    /// The datasets that it reads, where there are rules about them.
    pub touched: Vec<Touched>,
}

/// A statement that asks for rows of one dataset as they are, or for their number: there is nothing to compute.
#[derive(Debug)]
pub struct PlainRead {
    /// The name of the dataset.
    pub name: String,
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    /// What is wanted of the rows.
    pub columns: PlainColumns,
    /// Only rows that overlap one of these; `None`: all.
    pub regions: Option<Vec<Region>>,
}

/// What is wanted of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainColumns {
    /// Columns, each once, by their 0-based index in the schema of the dataset.
    These(Vec<usize>),
    /// How many there are, as one row whose column has this name. Where all rows are wanted, [`Dataset::rows`] says it.
    Count(String),
}

/// Columns as clients of SQL are told them: without metadata, any of which may be null. What is computed without data may say
/// less, and clients compare what comes with what they were told.
pub fn told_columns(schema: &Schema) -> SchemaRef {
    let fields = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true).with_metadata(Default::default()));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows with the columns that clients were told.
///
/// # Errors
/// Where the columns are others: a bug in godwit.
pub fn told_batch(told: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, Status> {
    let rows = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(told.clone(), columns, &rows)
        .map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
}

/// Runs SQL.
pub trait SqlEngine: Send + Sync + 'static {
    /// Says what a statement would give.
    fn describe(&self, caller: &Caller, sql: String) -> Pending<'_, Description>;

    /// The processes that run statements, where there are any.
    fn workers(&self) -> Option<StatementWorkers> {
        None
    }

    /// The dataset that a statement without parameters asks for, where it asks for nothing else and what it reads may be read
    /// without limits of a statement. It may look at files.
    fn plain_read(&self, _catalog: Arc<dyn Catalog>, _sql: &str) -> Option<PlainRead> {
        None
    }

    /// Runs a statement, with a row of values for its parameters where it has any. Dropping the answer ends it.
    fn run(&self, caller: &Caller, sql: String, parameters: Option<RecordBatch>) -> Pending<'_, Ran>;
}
