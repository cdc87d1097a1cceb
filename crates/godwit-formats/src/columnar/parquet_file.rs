//! Parquet files whose region reads are cheap: small row groups in genome order, with statistics and page indexes.

use std::io::Write;

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves};
use parquet::basic::Encoding;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::error::ColumnarError;
use super::layout::ColumnLayout;
use super::packed_column::{Effort, PackedColumn, Packer};

/// Rows of a row group: 3 to 4 MB of short reads, the least that readers without page indexes (pyarrow, DuckDB) fetch.
const ROW_GROUP_ROWS: usize = 32_768;
/// Bytes of its packed columns, before compression, that long reads reach first.
const ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows of a page, the least that readers with page indexes fetch.
const PAGE_ROWS: usize = 4096;
/// Numbers that are differences of few bits: positions in genome order, and what is nearly the same in every row. Dictionaries
/// of them would be as small, but every value would be looked up.
const DELTA_COLUMNS: [&str; 11] = [
    "flags",
    "contig_id",
    "position",
    "end_position",
    "mapping_quality",
    "mate_position",
    "template_length",
    "tag_NM",
    "tag_AS",
    "tag_XS",
    "tag_MQ",
];
/// Columns that queries leave out row groups and pages by.
const COLUMNS_WITH_STATISTICS: [&str; 4] = ["contig", "contig_id", "position", "end_position"];
/// Columns whose values hardly repeat, which zstd sees to. The others are dictionaries with bit-packed runs, or differences:
/// a few bits per row.
const PACKED_COLUMNS: [(&str, Effort); 8] = [
    ("name", Effort::Repeats),
    ("bases", Effort::Repeats),
    ("qualities", Effort::Letters),
    ("tag_MD", Effort::Repeats),
    ("tag_MC", Effort::Repeats),
    ("tag_SA", Effort::Repeats),
    ("tag_XA", Effort::Repeats),
    ("other_tags", Effort::Repeats),
];

/// One Parquet file in the making. Dropping it leaves a file that no reader takes for whole.
pub struct ParquetPart<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: ArrowRowGroupWriterFactory,
    packer: Packer,
    row_group: Option<RowGroup>,
}

/// A row group in the making.
struct RowGroup {
    columns: Vec<Column>,
    rows: usize,
    packed_bytes: usize,
}

enum Column {
    Encoded(Box<ArrowColumnWriter>),
    Packed(PackedColumn),
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
        let writer = ArrowWriter::try_new_with_options(out, layout.schema.clone(), options)?;
        let (writer, columns) = writer.into_serialized_writer()?;
        Ok(Self { writer, columns, packer: Packer::new()?, row_group: None })
    }

    /// Appends a batch: a page of each column that is packed.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        let full =
            |group: &RowGroup| group.rows + batch.num_rows() > ROW_GROUP_ROWS || group.packed_bytes >= ROW_GROUP_BYTES;
        if self.row_group.as_ref().is_some_and(full) {
            self.end_row_group()?;
        }
        let group = match self.row_group.take() {
            Some(group) => group,
            None => self.start_row_group()?,
        };
        let group = self.row_group.insert(group);
        group.rows += batch.num_rows();
        let schema = batch.schema();
        for ((column, field), array) in group.columns.iter_mut().zip(schema.fields()).zip(batch.columns()) {
            match column {
                Column::Packed(column) => group.packed_bytes += column.write(array, &mut self.packer)?,
                Column::Encoded(column) => {
                    for leaf in compute_leaves(field, array)? {
                        column.write(&leaf)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn start_row_group(&self) -> Result<RowGroup, ColumnarError> {
        let encoded = self.columns.create_column_writers(self.writer.flushed_row_groups().len())?;
        let descriptors = self.writer.schema_descr().columns();
        let columns = encoded.into_iter().zip(descriptors).map(|(writer, descriptor)| {
            let packed = PACKED_COLUMNS.iter().find(|(name, _)| *name == descriptor.name());
            match packed {
                Some((_, effort)) => Column::Packed(PackedColumn::new(descriptor.clone(), *effort)),
                None => Column::Encoded(Box::new(writer)),
            }
        });
        Ok(RowGroup { columns: columns.collect(), rows: 0, packed_bytes: 0 })
    }

    fn end_row_group(&mut self) -> Result<(), ColumnarError> {
        let Some(group) = self.row_group.take() else { return Ok(()) };
        let mut out = self.writer.next_row_group()?;
        for column in group.columns {
            match column {
                Column::Encoded(column) => column.close()?.append_to_row_group(&mut out)?,
                Column::Packed(column) => {
                    let (bytes, result) = column.close()?;
                    out.append_column(&bytes, result)?;
                }
            }
        }
        out.close()?;
        Ok(())
    }

    /// Ends the file and returns what it was written to.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn finish(mut self) -> Result<W, ColumnarError> {
        self.end_row_group()?;
        Ok(self.writer.into_inner()?)
    }
}

fn properties(layout: &ColumnLayout) -> WriterProperties {
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
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(metadata))
        .set_sorting_columns(Some(vec![sorted_by("contig_id"), sorted_by("position")]));
    for name in DELTA_COLUMNS {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
    }
    for name in COLUMNS_WITH_STATISTICS {
        properties = properties.set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Page);
    }
    properties.build()
}
