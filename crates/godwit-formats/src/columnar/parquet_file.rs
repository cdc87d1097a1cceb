//! Parquet files whose region reads are cheap: small row groups in genome order, with statistics and page indexes.

use std::io::Write;

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::error::ColumnarError;
use super::layout::ColumnLayout;

/// Rows of a row group: 3 to 4 MB of short reads, the least that readers without page indexes (pyarrow, DuckDB) fetch.
const ROW_GROUP_ROWS: usize = 32_768;
/// Bytes of a row group, before compression, that long reads reach first.
const ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows of a page, the least that readers with page indexes fetch.
const PAGE_ROWS: usize = 4096;
/// Columns that a region query filters by, and their like: few bits per row as differences, which zstd cannot lower.
const DELTA_COLUMNS: [&str; 4] = ["position", "end_position", "mate_position", "template_length"];
/// Columns worth compressing. The others are dictionaries with bit-packed runs or differences: a few bits per row.
const COMPRESSED_COLUMNS: [&str; 10] =
    ["name", "cigar", "bases", "qualities", "tag_MD", "tag_MC", "tag_SA", "tag_XA", "tag_layout", "other_tags"];
/// Columns whose values hardly repeat: a dictionary would be given up, after the work of trying.
const PLAIN_COLUMNS: [&str; 8] = ["name", "bases", "qualities", "tag_MD", "tag_MC", "tag_SA", "tag_XA", "other_tags"];

/// One Parquet file in the making. Dropping it leaves a file that no reader takes for whole.
pub struct ParquetPart<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> ParquetPart<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn new(layout: &ColumnLayout, out: W) -> Result<Self, ColumnarError> {
        // Without the Arrow schema in Base64 beside Parquet's own: readers would take their metadata from there, and the
        // header would be in every file twice. Names then come back as text, not as dictionaries.
        let options = ArrowWriterOptions::new().with_properties(properties(layout)).with_skip_arrow_metadata(true);
        Ok(Self { writer: ArrowWriter::try_new_with_options(out, layout.schema.clone(), options)? })
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        Ok(self.writer.write(batch)?)
    }

    /// Ends the file and returns what it was written to.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn finish(self) -> Result<W, ColumnarError> {
        Ok(self.writer.into_inner()?)
    }
}

fn properties(layout: &ColumnLayout) -> WriterProperties {
    let level = ZstdLevel::default();
    let metadata =
        layout.metadata().into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned())).collect();
    let column = |name: &str| layout.schema.index_of(name).expect("the schema has its own columns") as i32;
    let sorted_by = |name| SortingColumn { column_idx: column(name), descending: false, nulls_first: false };
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("godwit {}", env!("CARGO_PKG_VERSION")))
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_key_value_metadata(Some(metadata))
        .set_sorting_columns(Some(vec![sorted_by("contig_id"), sorted_by("position")]));
    for name in DELTA_COLUMNS {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
    }
    for name in COMPRESSED_COLUMNS {
        properties = properties.set_column_compression(ColumnPath::from(name), Compression::ZSTD(level));
    }
    for name in PLAIN_COLUMNS {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::None);
    }
    properties.build()
}
