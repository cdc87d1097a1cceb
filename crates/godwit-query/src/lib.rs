//! SQL over the datasets of a [`Catalog`](godwit_flight::Catalog), by DataFusion.
//!
//! Flows in: a statement. Flows out: batches. Tables are datasets by name; `reads('x.bam')` and `variants('x.vcf.gz')` name them
//! too, several as one where the name is a pattern. What a statement says of places becomes a lookup in an index, and only the
//! columns it names are decoded. Joins of intervals are planned as such. Rows may go by a service that scores them. Nothing but queries is run: files, settings and the network are out of reach.

mod bounds;
mod contig_source;
mod coverage;
mod engine;
mod error;
mod functions;
mod interval_functions;
mod interval_join;
mod intervals;
mod isolated;
mod messages;
mod overlap_rule;
mod plain;
mod print;
mod remote;
mod scan;
mod scored;
mod served;
mod table;
mod table_functions;
mod worker;

pub use engine::{Engine, Limits, Rows};
pub use error::QueryError;
pub use isolated::{Isolated, StatementLimits};
pub use print::{Printer, RowFormat};
pub use remote::RemoteRows;
pub use scored::{ModelDescription, ModelName, ScoreError, ScoredRows, without_traceback};
pub use worker::serve_statements;
