//! What can be wrong with a statement.

use datafusion::error::DataFusionError;
use godwit_flight::DatasetError;

use crate::messages;

/// Why a statement has no rows to give.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It is no SQL, or names what is not there.
    #[error("{problem}")]
    Statement {
        /// What is wrong.
        problem: String,
    },
    /// It names a table that does not exist.
    #[error("there is no table {name:?}{known}")]
    NoTable {
        /// The name.
        name: String,
        /// The nearest name, and those that exist; empty where they are not known.
        known: String,
    },
    /// It is SQL that is not run here.
    #[error("{what} is not run here: the data are only read; ask with SELECT")]
    Refused {
        /// Its kind.
        what: String,
    },
    /// It needs more than it may have.
    #[error(
        "the statement needs more memory than it may have: {problem}; ask for fewer rows or columns, or raise --memory"
    )]
    Memory {
        /// Which part of it.
        problem: String,
    },
    /// A dataset.
    #[error(transparent)]
    Dataset(DatasetError),
    /// Rows could not be computed from the data.
    #[error("the statement failed: {problem}")]
    Execution {
        /// Why.
        problem: String,
    },
    /// Rows could not be written.
    #[error("the rows cannot be written: {problem}")]
    Output {
        /// Why not.
        problem: String,
    },
}

impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> Self {
        if let Some(found) = dataset_error_of(&error) {
            return Self::Dataset(again(found));
        }
        match error.find_root() {
            DataFusionError::SchemaError(error, _) => Self::Statement { problem: messages::of_schema(error) },
            DataFusionError::SQL(error, _) => Self::Statement { problem: messages::of_parser(error) },
            DataFusionError::Plan(text) => match messages::missing_table(text) {
                Some(name) => Self::NoTable { name: name.to_owned(), known: String::new() },
                None => Self::Statement { problem: messages::of_plan(text) },
            },
            DataFusionError::NotImplemented(text) => {
                Self::Statement { problem: format!("this is not supported: {}", messages::in_words(text)) }
            }
            DataFusionError::ResourcesExhausted(text) => Self::Memory { problem: messages::in_words(text) },
            DataFusionError::ArrowError(error, _) => Self::Execution { problem: messages::of_arrow(error) },
            DataFusionError::Internal(text) => {
                Self::Execution { problem: format!("the SQL engine has a fault: {}", messages::in_words(text)) }
            }
            root => Self::Execution { problem: messages::in_words(&root.strip_backtrace()) },
        }
    }
}

/// The error of a dataset among the causes of another: tables and stores of objects say what is wrong as such.
fn dataset_error_of(error: &DataFusionError) -> Option<&DatasetError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// The error once more: the engine gives a view of it only.
fn again(error: &DatasetError) -> DatasetError {
    let text = || godwit_model::with_causes(error).into();
    match error {
        DatasetError::NotFound { name } => DatasetError::NotFound { name: name.clone() },
        DatasetError::Refused { problem } => DatasetError::Refused { problem: problem.clone() },
        DatasetError::Forbidden { problem } => DatasetError::Forbidden { problem: problem.clone() },
        DatasetError::AlreadyThere { name } => DatasetError::AlreadyThere { name: name.clone() },
        DatasetError::Changed { name } => DatasetError::Changed { name: name.clone() },
        DatasetError::Data(_) => DatasetError::Data(text()),
        DatasetError::Remote(_) => DatasetError::Remote(text()),
        DatasetError::Machine(_) => DatasetError::Machine(text()),
    }
}
