//! What keeps records out of columns.

use arrow_schema::ArrowError;

/// Why records cannot become columns, or columns a file.
#[derive(Debug, thiserror::Error)]
pub enum ColumnarError {
    /// Columns of text hold UTF-8.
    #[error("{what} is not UTF-8 text, which columns need; write BAM or CRAM, or mend the input")]
    NotUtf8 {
        /// What: the header, or read names near a place.
        what: String,
    },
    /// The header's contigs or read groups.
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
