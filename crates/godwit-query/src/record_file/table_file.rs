//! Writes rows as a Parquet file, with the metadata of the dataset from which they come if they have its columns.

use std::io;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use godwit_columnar::{ColumnarError, PageCompression, TableParquetWriter};

use super::{FileWriter, RowFailure};
use crate::error::StatementError;

/// A Parquet file that is being written.
pub(super) struct TableFile {
    schema: SchemaRef,
    writer: TableParquetWriter<FileWriter>,
}

impl TableFile {
    /// Creates a file of rows with this schema. If the columns are those of `source`, the file gets its metadata, such as
    /// the SAM header, so that it is a dataset of the same kind.
    pub(super) fn create(
        source: Option<&SchemaRef>,
        schema: &SchemaRef,
        out: FileWriter,
    ) -> Result<Self, StatementError> {
        let metadata = source.filter(|source| has_same_columns(source, schema)).map(|source| source.metadata().clone());
        let schema = Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata.unwrap_or_default()));
        let writer = TableParquetWriter::new(schema.clone(), PageCompression::Zstd, out);
        let writer = writer.map_err(|error| StatementError::Output { problem: error.to_string() })?;
        Ok(Self { schema, writer })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), RowFailure> {
        let batch = RecordBatch::try_new(self.schema.clone(), batch.columns().to_vec());
        let batch = batch.map_err(|error| RowFailure::Rows(error.to_string()))?;
        self.writer.write(&batch).map_err(|error| RowFailure::Write(io_error(error)))
    }

    pub(super) fn finish(self) -> Result<FileWriter, RowFailure> {
        self.writer.finish().map_err(|error| RowFailure::Write(io_error(error)))
    }
}

fn io_error(error: ColumnarError) -> io::Error {
    io::Error::other(error)
}

fn has_same_columns(a: &Schema, b: &Schema) -> bool {
    let names = |schema: &Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    names(a) == names(b)
}
