//! Alignments as columns ([`godwit_model::schema::alignment_columns`]), and the Parquet and Arrow files that hold them.
//!
//! Flows in: packed records in coordinate order. Flows out: record batches ([`AlignmentBatchBuilder`]) and whole files, one
//! per partition ([`AlignmentParquetWriter`], [`ArrowFileWriter`]). Columns keep everything of a record but the index bin,
//! which readers recompute. Parquet of any origin is read by row groups ([`ParquetFiles`]), Arrow IPC batch by batch
//! ([`ArrowFile`]). Another process maps the columns of an [`AlignmentStreamWriter`]; a [`RowEncoder`] converts the rows
//! that it changed back to records.

mod alignment_layout;
mod alignment_parquet_writer;
mod alignment_stream_writer;
mod arrow_file_writer;
mod arrow_reader;
mod batch_builder;
mod bytes_builder;
mod column_chunk_writer;
mod error;
mod parquet_reader;
mod parquet_source;
mod row_encoder;
mod table_file_writer;
mod table_parquet_writer;
mod tag_columns;

#[cfg(test)]
mod tests;

pub use alignment_layout::AlignmentLayout;
pub use alignment_parquet_writer::AlignmentParquetWriter;
pub use alignment_stream_writer::AlignmentStreamWriter;
pub use arrow_file_writer::ArrowFileWriter;
pub use arrow_reader::{ArrowBatches, ArrowFile, ArrowReadError};
pub use batch_builder::AlignmentBatchBuilder;
pub use error::ColumnarError;
pub use parquet_reader::{ParquetBatches, ParquetFiles, ParquetReadError};
pub use row_encoder::{AlignmentRows, RowEncoder, RowError};
pub use table_file_writer::{TableFileWriter, TableFormat};
pub use table_parquet_writer::{PageCompression, TableParquetWriter};
