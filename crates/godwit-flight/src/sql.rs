//! Flight SQL (Arrow Flight SQL 1.x, `FlightSql.proto`): its commands, answered by whoever knows SQL.
//!
//! [`SqlEngine`] runs statements. What clients ask about the server itself, and about its tables, is answered here from the
//! catalog. Updates, transactions and plans of other makes are refused in words.

mod metadata;
mod server_info;
mod statements;

use std::pin::Pin;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use tonic::Status;

use crate::dataset::Touched;
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

/// Runs SQL.
pub trait SqlEngine: Send + Sync + 'static {
    /// Says what a statement would give.
    fn describe(&self, caller: &Caller, sql: String) -> Pending<'_, Description>;

    /// The processes that run statements, where there are any.
    fn workers(&self) -> Option<StatementWorkers> {
        None
    }

    /// Runs a statement, with a row of values for its parameters where it has any. Dropping the answer ends it.
    fn run(&self, caller: &Caller, sql: String, parameters: Option<RecordBatch>) -> Pending<'_, Ran>;
}
