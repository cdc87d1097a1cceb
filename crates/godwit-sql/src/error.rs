//! Errors of SQL statements.

use datafusion::error::DataFusionError;
use godwit_dataset::DatasetError;

use crate::error_messages;

/// An error while a statement is parsed, planned or run.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use godwit_dataset::{Catalog, Dataset, DatasetError};
/// # use godwit_sql::{QueryEngine, QueryResources};
/// use godwit_sql::QueryError;
///
/// # #[derive(Debug)]
/// # struct NoDatasets;
/// # impl Catalog for NoDatasets {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(Vec::new())
/// #     }
/// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Err(DatasetError::NotFound { name: name.to_owned() })
/// #     }
/// # }
/// # let limits = QueryResources { memory_bytes: 64 << 20, threads: 1, scratch_directory: None };
/// # let engine = QueryEngine::new(Arc::new(NoDatasets), &limits)?;
/// let dropped = engine.query("DROP TABLE genes").await;
/// assert!(matches!(dropped, Err(QueryError::NotAQuery { .. })));
/// let two_statements = engine.query("SELECT 1; SELECT 2").await;
/// assert!(matches!(two_statements, Err(QueryError::InvalidStatement { .. })));
/// let missing = engine.query("SELECT name FROM genes").await;
/// assert!(matches!(missing, Err(QueryError::TableNotFound { name, .. }) if name == "genes"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The statement is not valid SQL, or it names a column or function that does not exist.
    #[error("{problem}")]
    InvalidStatement {
        /// Description of the error.
        problem: String,
    },
    /// The statement names a table that does not exist.
    #[error("there is no table {name:?}{hint}")]
    TableNotFound {
        /// Name of the table.
        name: String,
        /// Text for the error message with the most similar table name and the existing names; empty if these are not
        /// known.
        hint: String,
    },
    /// The statement is valid SQL but not a query.
    #[error("{statement} is not supported: the data are read-only; send a SELECT")]
    NotAQuery {
        /// Kind of the statement.
        statement: String,
    },
    /// The statement exceeds its memory limit.
    #[error("the statement exceeds its memory limit: {problem}; select fewer rows or columns, or raise --memory")]
    MemoryLimit {
        /// Description of the operator that exceeded the limit.
        problem: String,
    },
    /// A dataset could not be opened or read.
    #[error(transparent)]
    Dataset(DatasetError),
    /// The statement failed while its rows were computed.
    #[error("the statement failed: {problem}")]
    Execution {
        /// Description of the error.
        problem: String,
    },
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> Self {
        if let Some(found) = find_dataset_error(&error) {
            return Self::Dataset(clone_dataset_error(found));
        }
        match error.find_root() {
            DataFusionError::SchemaError(error, _) => {
                Self::InvalidStatement { problem: error_messages::schema_error_message(error) }
            }
            DataFusionError::SQL(error, _) => {
                Self::InvalidStatement { problem: error_messages::parser_error_message(error) }
            }
            DataFusionError::Plan(text) => match error_messages::missing_table_name(text) {
                Some(name) => Self::TableNotFound { name: name.to_owned(), hint: String::new() },
                None => Self::InvalidStatement { problem: error_messages::plan_error_message(text) },
            },
            DataFusionError::NotImplemented(text) => {
                Self::InvalidStatement { problem: error_messages::unsupported_message(text) }
            }
            DataFusionError::ResourcesExhausted(text) => {
                Self::MemoryLimit { problem: error_messages::user_message(text) }
            }
            DataFusionError::ArrowError(error, _) => {
                Self::Execution { problem: error_messages::arrow_error_message(error) }
            }
            DataFusionError::Internal(text) => Self::Execution {
                problem: format!("the SQL engine has a fault: {}", error_messages::user_message(text)),
            },
            root => Self::Execution { problem: error_messages::user_message(&root.strip_backtrace()) },
        }
    }
}

/// Finds a dataset error among the causes of a DataFusion error. Tables and object stores wrap dataset errors.
fn find_dataset_error(error: &DataFusionError) -> Option<&DatasetError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// Copies a dataset error, because DataFusion gives access to a reference only.
fn clone_dataset_error(error: &DatasetError) -> DatasetError {
    let text = || godwit_model::message_with_causes(error).into();
    match error {
        DatasetError::NotFound { name } => DatasetError::NotFound { name: name.clone() },
        DatasetError::InvalidRequest { problem } => DatasetError::InvalidRequest { problem: problem.clone() },
        DatasetError::Forbidden { problem } => DatasetError::Forbidden { problem: problem.clone() },
        DatasetError::AlreadyExists { name } => DatasetError::AlreadyExists { name: name.clone() },
        DatasetError::Changed { name } => DatasetError::Changed { name: name.clone() },
        DatasetError::Data(_) => DatasetError::Data(text()),
        DatasetError::Remote(_) => DatasetError::Remote(text()),
        DatasetError::Local(_) => DatasetError::Local(text()),
    }
}
