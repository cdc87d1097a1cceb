//! Errors of the conversion of records to columns.

use arrow_schema::ArrowError;

/// A reason why records cannot become columns, or columns a file.
#[derive(Debug, thiserror::Error)]
pub enum ColumnarError {
    /// A text column has a value that is not UTF-8.
    #[error("{subject} is not UTF-8 text, which columns need; write BAM or CRAM, or mend the input")]
    NotUtf8 {
        /// The header, or the position of a read name.
        subject: String,
    },
    /// The header's contigs or read groups are invalid.
    #[error(transparent)]
    Header(#[from] crate::sam::HeaderError),
    /// A batch does not fit its schema: a bug.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[source] ArrowError),
    /// An Arrow file could not be written.
    #[error("the Arrow writer failed")]
    Arrow(#[source] ArrowError),
    /// A Parquet file could not be written.
    #[error("the Parquet writer failed")]
    Parquet(#[from] parquet::errors::ParquetError),
}
