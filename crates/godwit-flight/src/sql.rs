//! Commands of Flight SQL (Arrow Flight SQL 1.x, `FlightSql.proto`), which an SQL engine runs.
//!
//! [`SqlEngine`] runs SQL statements. This module answers requests for metadata about the server and its tables from
//! the catalog. It rejects updates, transactions and Substrait plans with an error message.

mod metadata;
mod prepared_statements;
mod server_info;
mod statement_progress;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use godwit_dataset::{Catalog, Dataset, DatasetAccess, Principal};
use godwit_model::Region;
use tonic::Status;

use crate::call_streams::{Download, StatusFuture};
use crate::metrics::StatementWorkers;

pub use metadata::{SQL_CATALOG, SQL_SCHEMA, server_info_batch, server_info_schema};
pub(crate) use metadata::{metadata_batch, metadata_schema};
pub(crate) use prepared_statements::PreparedStatements;
pub use statement_progress::StatementProgress;

/// The schemas of a statement, which are known before the statement runs.
#[derive(Clone, Debug)]
pub struct StatementDescription {
    /// Schema of the rows that the statement returns.
    pub schema: SchemaRef,
    /// Name and type of each parameter of the statement, in order.
    pub parameters: SchemaRef,
}

/// A running statement, whose rows can be read.
pub struct StatementResult {
    /// The rows that the statement returns.
    pub download: Download,
    /// The datasets that the statement reads, each with the access rule that allowed it; empty without access rules.
    pub datasets: Vec<DatasetAccess>,
}

/// A statement that returns unchanged rows of one dataset, or their number. It can be answered without the SQL engine.
#[derive(Debug)]
pub struct DirectScan {
    /// The name of the dataset.
    pub name: String,
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    /// The columns that the statement returns.
    pub columns: DirectScanColumns,
    /// Genomic regions: only rows that overlap one of them are returned. `None`: all rows.
    pub regions: Option<Vec<Region>>,
}

/// The columns that a direct scan returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectScanColumns {
    /// Columns of the dataset by their 0-based index in its schema; no column occurs twice.
    Projection(Vec<usize>),
    /// The number of rows, returned as one row with one column of this name. If there are no regions, the number is
    /// [`Dataset::rows`].
    Count(String),
}

/// Returns the schema that is sent to SQL clients: without metadata, and with all columns nullable. Clients compare the
/// received schema with the one sent before, but metadata and nullability can differ between planning and execution.
///
/// # Examples
///
/// ```
/// use arrow_schema::{DataType, Field, Schema};
/// use godwit_flight::advertised_schema;
///
/// let schema = Schema::new(vec![Field::new("position", DataType::Int32, false)]);
/// let schema = schema.with_metadata([("sample".to_owned(), "NA12878".to_owned())].into());
/// let advertised = advertised_schema(&schema);
/// assert!(advertised.field(0).is_nullable());
/// assert!(advertised.metadata().is_empty());
/// ```
pub fn advertised_schema(schema: &Schema) -> SchemaRef {
    let fields = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true).with_metadata(Default::default()));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Creates a batch with the schema that was sent to the client before.
///
/// # Errors
/// An internal error if the types of the columns differ from the schema, which is a bug in godwit.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int32Array};
/// use arrow_schema::{DataType, Field, Schema};
/// use godwit_flight::{advertised_batch, advertised_schema};
///
/// let advertised = advertised_schema(&Schema::new(vec![Field::new("position", DataType::Int32, false)]));
/// let positions: ArrayRef = Arc::new(Int32Array::from(vec![100, 200]));
/// let batch = advertised_batch(&advertised, vec![positions], 2)?;
/// assert_eq!((batch.num_rows(), batch.schema()), (2, advertised.clone()));
/// assert!(advertised_batch(&advertised, Vec::new(), 2).is_err());
/// # Ok(())
/// # }
/// ```
pub fn advertised_batch(advertised: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, Status> {
    let rows = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(advertised.clone(), columns, &rows)
        .map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
}

/// An engine that runs SQL statements for a server.
pub trait SqlEngine: Send + Sync + 'static {
    /// Returns the schemas of the rows and of the parameters of a statement without running it. With the values of the
    /// parameters, the schema of the rows is the one that [`SqlEngine::execute`] returns for these values.
    fn describe_statement(
        &self,
        principal: &Principal,
        sql: String,
        parameters: Option<RecordBatch>,
    ) -> StatusFuture<'_, StatementDescription>;

    /// Returns the numbers of worker processes; `None` if the engine runs statements in the server process.
    fn statement_workers(&self) -> Option<StatementWorkers> {
        None
    }

    /// Returns the direct scan that is equivalent to a statement without parameters; `None` if there is none. A direct
    /// scan is not subject to the resource limits of statements. This function may block on file access.
    fn direct_scan(&self, _catalog: Arc<dyn Catalog>, _sql: &str) -> Option<DirectScan> {
        None
    }

    /// Runs a statement. If the statement has parameters, `parameters` contains one row with their values. The engine
    /// provides the progress of the statement to `progress`. Dropping the result cancels the statement.
    fn execute(
        &self,
        principal: &Principal,
        sql: String,
        parameters: Option<RecordBatch>,
        progress: StatementProgress,
    ) -> StatusFuture<'_, StatementResult>;
}
