//! Errors of SQL statements.

use datafusion::error::DataFusionError;
use godwit_flight::DatasetError;

use crate::error_messages;

/// An error of a statement.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The text is not SQL, or names something that does not exist.
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
        /// The most similar name, and the existing names; empty if they are not known.
        hint: String,
    },
    /// The statement is valid SQL but not a query.
    #[error("{statement} is not run here: the data are only read; ask with SELECT")]
    NotAQuery {
        /// Kind of the statement.
        statement: String,
    },
    /// The statement exceeds its memory limit.
    #[error(
        "the statement needs more memory than it may have: {problem}; ask for fewer rows or columns, or raise --memory"
    )]
    MemoryLimit {
        /// The operator that exceeded it.
        problem: String,
    },
    /// An error of a dataset.
    #[error(transparent)]
    Dataset(DatasetError),
    /// Rows could not be computed from the data.
    #[error("the statement failed: {problem}")]
    Execution {
        /// Description of the error.
        problem: String,
    },
    /// Rows could not be written.
    #[error("the rows cannot be written: {problem}")]
    Output {
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
            DataFusionError::NotImplemented(text) => Self::InvalidStatement {
                problem: format!("this is not supported: {}", error_messages::user_message(text)),
            },
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

/// Finds the error of a dataset among the causes of another error: tables and object stores wrap it.
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

/// Copies an error, because DataFusion only lends it.
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
