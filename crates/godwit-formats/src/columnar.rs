//! Alignments as columns ([`godwit_model::schema::columnar`]), and the Parquet and Arrow files that hold them.
//!
//! Flows in: packed records in coordinate order. Flows out: record batches ([`Columns`]) and whole files, one per
//! partition ([`ParquetPart`], [`ArrowPart`]). Nothing of a record is lost but the index bin, which readers recompute.
//! Parquet of any origin is read by row groups ([`ParquetFiles`]), Arrow IPC batch by batch ([`ArrowFile`]). Another process reads columns where they lie in a
//! [`TableStream`]; what it changed is made records again by a [`RowEncoder`].

mod arrow_file;
mod arrow_reader;
mod builder;
mod error;
mod layout;
mod packed_column;
mod parquet_file;
mod parquet_ranges;
mod parquet_reader;
mod records;
mod table_file;
mod table_stream;
mod table_writer;
mod tags;
mod text;

#[cfg(test)]
mod tests;

pub use arrow_file::ArrowPart;
pub use arrow_reader::{ArrowBatches, ArrowFile, ArrowReadError};
pub use builder::Columns;
pub use error::ColumnarError;
pub use layout::ColumnLayout;
pub use parquet_file::ParquetPart;
pub use parquet_reader::{ParquetBatches, ParquetFiles, ParquetReadError};
pub use records::{RowEncoder, RowError, Rows};
pub use table_file::{TableFile, TableFormat};
pub use table_stream::TableStream;
pub use table_writer::{Packing, ParquetTable};
