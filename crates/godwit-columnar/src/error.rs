//! Errors in converting records into columns and writing columns to files.

use arrow_schema::ArrowError;

/// A reason why records cannot be converted into columns, or columns cannot be written to a file.
#[derive(Debug, thiserror::Error)]
pub enum ColumnarError {
    /// A value of a text column is not UTF-8.
    #[error("{subject} is not UTF-8 text, which columns require; write BAM or CRAM, or correct the input")]
    NotUtf8 {
        /// Name of the invalid text: the header, or a read name with its position.
        subject: String,
    },
    /// The contigs or the read groups of the SAM header are invalid.
    #[error(transparent)]
    Header(#[from] godwit_formats::sam::HeaderError),
    /// The columns of a batch do not fit its schema, which is a bug in godwit.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[source] ArrowError),
    /// An Arrow IPC file or stream could not be written.
    #[error("the Arrow writer failed")]
    Arrow(#[source] ArrowError),
    /// A Parquet file could not be written.
    #[error("the Parquet writer failed")]
    Parquet(#[from] parquet::errors::ParquetError),
}
