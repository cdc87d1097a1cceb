//! Conversion of alignments into columns ([`godwit_model::schema::alignment_columns`]), and Parquet and Arrow files of
//! such columns; Parquet files of variants ([`VariantParquetWriter`]); CSV files ([`csv`]), bigWig and
//! bigBed files ([`bbi`]) and chain files ([`chain`]) as batches.
//!
//! Flows in: packed records in coordinate order. Flows out: record batches ([`AlignmentBatchBuilder`]) and complete
//! files, one per partition ([`AlignmentParquetWriter`], [`ArrowFileWriter`]). The columns contain all of a record
//! except the index bin, which readers compute again. This crate also reads files of any origin: Parquet by row groups
//! ([`ParquetFiles`]), Arrow IPC batch by batch ([`ArrowFile`]). An [`AlignmentStreamWriter`] writes columns for
//! another process, which maps them into its memory and may return changed rows. A [`RowEncoder`] converts such rows
//! back into records.

mod alignment_layout;
mod alignment_parquet_writer;
mod alignment_stream_writer;
mod arrow_file_writer;
mod arrow_reader;
mod batch_builder;
pub mod bbi;
mod bytes_builder;
pub mod chain;
mod column_chunk_writer;
pub mod csv;
mod error;
mod parquet_error;
mod parquet_reader;
mod parquet_source;
mod row_encoder;
mod table_file_writer;
mod table_parquet_writer;
mod tag_columns;
mod variant_parquet_writer;

#[cfg(test)]
mod tests;

pub use alignment_layout::AlignmentLayout;
pub use alignment_parquet_writer::AlignmentParquetWriter;
pub use alignment_stream_writer::AlignmentStreamWriter;
pub use arrow_file_writer::ArrowFileWriter;
pub use arrow_reader::{ArrowBatches, ArrowFile, ArrowReadError};
pub use batch_builder::AlignmentBatchBuilder;
pub use error::ColumnarError;
pub use parquet_error::ParquetReadError;
pub use parquet_reader::{ParquetBatches, ParquetFiles};
pub use row_encoder::{AlignmentRows, RowEncoder, RowError};
pub use table_file_writer::{TableFileWriter, TableFormat};
pub use table_parquet_writer::{PageCompression, TableParquetWriter};
pub use variant_parquet_writer::VariantParquetWriter;
