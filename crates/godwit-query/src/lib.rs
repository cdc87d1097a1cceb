//! SQL over the datasets of a [`Catalog`](godwit_flight::Catalog), by DataFusion.
//!
//! Flows in: a statement. Flows out: batches. Tables are datasets by name; `reads('x.bam')` and `variants('x.vcf.gz')` name
//! them too, several as one where the name is a pattern. Conditions on positions become a lookup in an index, and only the
//! columns that a statement names are decoded. Interval joins have a plan of their own. A service can score rows. Only
//! queries run: files, settings and the network are out of reach.

mod contig_source;
mod coverage;
mod dataset_table;
mod direct_scan;
mod engine;
mod error;
mod error_messages;
mod flight_sql;
mod functions;
mod interval_functions;
mod interval_index;
mod interval_join;
mod interval_join_rule;
mod process_engine;
mod region_pushdown;
mod remote_rows;
mod row_writer;
mod scan;
mod scoring_client;
mod statement_server;
mod table_functions;

pub use engine::{QueryEngine, QueryResources, Rows};
pub use error::QueryError;
pub use process_engine::{ProcessSqlEngine, StatementLimits};
pub use remote_rows::RemoteRows;
pub use row_writer::{RowFormat, RowWriter};
pub use scoring_client::{ModelDescription, ModelName, ScoreError, ScoredRows, without_traceback};
pub use statement_server::serve_statements;
