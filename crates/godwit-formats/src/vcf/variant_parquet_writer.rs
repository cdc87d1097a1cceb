//! Parquet files of variants, in any order: no column is declared as sorted.

use std::io::Write;

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::error::VcfError;
use super::variant_layout::VariantLayout;

/// Rows of a row group, the minimum that readers without page indexes fetch.
const MAX_ROW_GROUP_ROWS: usize = 32_768;
/// Bytes of a row group's columns; cohorts reach this limit first.
const MAX_ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows of a page, the minimum that readers with page indexes fetch.
const PAGE_ROWS: usize = 4096;
/// Columns by which queries skip row groups and pages.
const COLUMNS_WITH_STATISTICS: [&str; 5] = ["contig", "contig_id", "position", "end_position", "quality"];

/// A writer of one Parquet file. Dropping it leaves a file that every reader rejects as incomplete.
pub struct VariantParquetWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> VariantParquetWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// [`VcfError::Parquet`].
    pub fn new(layout: &VariantLayout, out: W) -> Result<Self, VcfError> {
        // Without the Arrow schema in Base64, which would repeat the header.
        let options =
            ArrowWriterOptions::new().with_properties(writer_properties(layout)).with_skip_arrow_metadata(true);
        Ok(Self { writer: ArrowWriter::try_new_with_options(out, layout.schema.clone(), options)? })
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// [`VcfError::Parquet`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), VcfError> {
        Ok(self.writer.write(batch)?)
    }

    /// Ends the file and returns the inner writer.
    ///
    /// # Errors
    /// [`VcfError::Parquet`].
    pub fn finish(self) -> Result<W, VcfError> {
        Ok(self.writer.into_inner()?)
    }
}

fn writer_properties(layout: &VariantLayout) -> WriterProperties {
    let metadata = layout.schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let mut metadata: Vec<KeyValue> = metadata.collect();
    metadata.sort_by(|a, b| a.key.cmp(&b.key));
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("godwit {}", env!("CARGO_PKG_VERSION")))
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_max_row_group_row_count(Some(MAX_ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(MAX_ROW_GROUP_BYTES))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(metadata));
    for name in COLUMNS_WITH_STATISTICS {
        properties = properties.set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Page);
    }
    properties.build()
}
