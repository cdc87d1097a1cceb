//! Errors of reading Parquet files.

use std::io;
use std::path::PathBuf;

use arrow_schema::ArrowError;
use godwit_model::schema::UnknownVersion;
use parquet::errors::ParquetError;

/// A reason why Parquet files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ParquetReadError {
    /// A file cannot be opened or read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error in opening or reading the file.
        #[source]
        source: io::Error,
    },
    /// A file is damaged, truncated, or not Parquet.
    #[error("{} is damaged, or not a Parquet file", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// The reason why the metadata cannot be read.
        #[source]
        source: ParquetError,
    },
    /// The columns of a file have a version that this godwit does not know.
    #[error("{} has {version}", path.display())]
    Version {
        /// Path of the file.
        path: PathBuf,
        /// The version of the file, and the version that this godwit reads.
        version: UnknownVersion,
    },
    /// The metadata of the file is valid, but its rows cannot be decoded.
    #[error("{} is damaged", path.display())]
    Rows {
        /// Path of the file.
        path: PathBuf,
        /// The reason why the rows cannot be decoded.
        #[source]
        source: ArrowError,
    },
    /// Two files that should form one table have different columns.
    #[error("{} has other columns than {}", path.display(), first.display())]
    Columns {
        /// Path of the file.
        path: PathBuf,
        /// Path of the first file of the table.
        first: PathBuf,
    },
}
