//! SQL statements of other processes: the protocol with the program `godwit-sql`, which runs them, and their rows.
//!
//! [`ProcessSqlEngine`] runs statements in processes of `godwit-sql`, for a server or for one user; it starts them with
//! [`StatementProcessOptions`] and sends each a [`StatementRequest`]. Statements that only read one dataset need no such
//! process: [`Rows::read_direct_scan`] reads their rows. [`RemoteRows`] are the rows of a statement that a server runs,
//! [`ScoredRows`] adds the scores of an external service to rows, and [`RowWriter`] writes rows in the formats of
//! `godwit query`. A [`CopyStatement`] writes the rows of a query to a [`RecordFile`]: BAM, VCF, BCF, BED or Parquet. This
//! crate does not plan statements: the engine is `godwit_sql`.

mod copy_statement;
mod dataset_lookup;
mod direct_scan;
mod error;
mod process_engine;
mod process_options;
mod record_file;
mod remote_rows;
mod row_writer;
mod rows;
mod scoring_client;
mod statement_parameters;
mod statement_request;
mod unfinished_jobs;

pub use copy_statement::{CopyStatement, RecordFormat, statement_tables};
pub use dataset_lookup::find_dataset;
pub use direct_scan::REGION_FUNCTION;
pub use error::StatementError;
pub use process_engine::{ProcessSqlEngine, StatementLimits};
pub use process_options::StatementProcessOptions;
pub use record_file::{RecordFile, RecordHeader};
pub use remote_rows::RemoteRows;
pub use row_writer::{RowFormat, RowWriter};
pub use rows::{Rows, without_metadata};
pub use scoring_client::{ModelDescription, ModelName, ScoreError, ScoredRows, without_traceback};
pub use statement_parameters::{ParameterError, StatementParameters, value_of_text};
pub use statement_request::{
    READY_LINE, StatementRequest, fraction_to_bytes, schema_from_bytes, schema_to_bytes, statement_transport_options,
};
pub use unfinished_jobs::PipelineJobs;
