//! A writer of Parquet files of alignments from which regions can be read at low cost. The row groups are small and in
//! genome order, with statistics and page indexes.

use std::io::Write;

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves};
use parquet::basic::Encoding;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::alignment_layout::AlignmentLayout;
use super::column_chunk_writer::{ColumnChunkWriter, PageCompressor, ZstdStrategy};
use super::error::ColumnarError;

/// Maximum rows of a row group: 3 to 4 MB of short reads. Readers that do not use page indexes (pyarrow, DuckDB) read
/// at least a whole row group.
const MAX_ROW_GROUP_ROWS: usize = 32_768;
/// Maximum bytes, before compression, of the byte array columns of a row group. Files of long reads reach this limit
/// before the limit of rows.
const MAX_ROW_GROUP_BYTES: usize = 64 << 20;
/// Maximum rows of a page. Readers that use page indexes read at least a whole page.
const PAGE_ROWS: usize = 4096;
/// Integer columns that are stored as differences between rows, because the differences have few bits. They hold
/// positions in genome order, or values that are nearly equal in all rows. Dictionaries would be as small, but would
/// need a lookup per value.
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
/// Columns with statistics, by which queries skip row groups and pages.
const COLUMNS_WITH_STATISTICS: [&str; 4] = ["contig", "contig_id", "position", "end_position"];
/// Byte array columns whose values rarely repeat, and which zstd compresses. All other columns are dictionaries with
/// bit-packed runs, or differences, which take a few bits per row without zstd.
const BYTE_ARRAY_COLUMNS: [(&str, ZstdStrategy); 8] = [
    ("name", ZstdStrategy::Matches),
    ("bases", ZstdStrategy::Matches),
    ("qualities", ZstdStrategy::HuffmanOnly),
    ("tag_MD", ZstdStrategy::Matches),
    ("tag_MC", ZstdStrategy::Matches),
    ("tag_SA", ZstdStrategy::Matches),
    ("tag_XA", ZstdStrategy::Matches),
    ("other_tags", ZstdStrategy::Matches),
];

/// A writer of one Parquet file of alignments. If the writer is dropped before [`AlignmentParquetWriter::finish`],
/// every reader rejects the file as incomplete.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_formats::sam::{Header, LineEncoder};
/// # use godwit_model::RawRecord;
/// use std::fs::File;
///
/// use godwit_columnar::{AlignmentBatchBuilder, AlignmentLayout, AlignmentParquetWriter, ParquetFiles};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.parquet");
/// # let header = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n")?;
/// # let mut bytes = Vec::new();
/// # let line = b"r1\t16\tchr1\t7\t60\t3M1S\t*\t0\t0\tACGT\tIIII\tNM:i:1";
/// # LineEncoder::new(&header.genome()?).encode(line, &mut bytes)?;
/// # let record = RawRecord::from_bytes(&bytes, 1)?;
/// # let layout = AlignmentLayout::new(&header)?;
/// let mut builder = AlignmentBatchBuilder::new(&layout);
/// builder.push(record, record.flag());
/// let mut writer = AlignmentParquetWriter::new(&layout, File::create(&path)?)?;
/// writer.write(&builder.take_batch()?)?;
/// writer.finish()?;
///
/// let files = ParquetFiles::open(&[path])?;
/// assert_eq!(files.row_count(), 1);
/// assert_eq!(files.schema().fields().len(), layout.schema.fields().len());
/// # Ok(())
/// # }
/// ```
pub struct AlignmentParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    row_group_factory: ArrowRowGroupWriterFactory,
    page_compressor: PageCompressor,
    row_group: Option<RowGroupWriter>,
}

/// The row group that is currently being written.
struct RowGroupWriter {
    columns: Vec<ColumnWriter>,
    row_count: usize,
    byte_array_bytes: usize,
}

enum ColumnWriter {
    Arrow(Box<ArrowColumnWriter>),
    ByteArray(ColumnChunkWriter),
}

impl<W: Write + Send> AlignmentParquetWriter<W> {
    /// Creates a writer and starts the Parquet file.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if the Parquet writer fails.
    pub fn new(layout: &AlignmentLayout, out: W) -> Result<Self, ColumnarError> {
        // Do not store the Arrow schema as Base64 text in addition to the schema of Parquet. Readers would take the
        // metadata from the Arrow schema, and the header would be in every file twice. Without it, readers return names
        // as text instead of dictionaries.
        let options =
            ArrowWriterOptions::new().with_properties(writer_properties(layout)).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(out, layout.schema.clone(), options)?;
        let (writer, row_group_factory) = writer.into_serialized_writer()?;
        Ok(Self { writer, row_group_factory, page_compressor: PageCompressor::new()?, row_group: None })
    }

    /// Writes a record batch, which becomes a page of each byte array column.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if the Parquet writer fails.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        let full = |group: &RowGroupWriter| {
            group.row_count + batch.num_rows() > MAX_ROW_GROUP_ROWS || group.byte_array_bytes >= MAX_ROW_GROUP_BYTES
        };
        if self.row_group.as_ref().is_some_and(full) {
            self.end_row_group()?;
        }
        let group = match self.row_group.take() {
            Some(group) => group,
            None => self.start_row_group()?,
        };
        let group = self.row_group.insert(group);
        group.row_count += batch.num_rows();
        let schema = batch.schema();
        for ((column, field), array) in group.columns.iter_mut().zip(schema.fields()).zip(batch.columns()) {
            match column {
                ColumnWriter::ByteArray(column) => {
                    group.byte_array_bytes += column.write(array, &mut self.page_compressor)?
                }
                ColumnWriter::Arrow(column) => {
                    for leaf in compute_leaves(field, array)? {
                        column.write(&leaf)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn start_row_group(&self) -> Result<RowGroupWriter, ColumnarError> {
        let encoded = self.row_group_factory.create_column_writers(self.writer.flushed_row_groups().len())?;
        let descriptors = self.writer.schema_descr().columns();
        let columns = encoded.into_iter().zip(descriptors).map(|(writer, descriptor)| {
            let packed = BYTE_ARRAY_COLUMNS.iter().find(|(name, _)| *name == descriptor.name());
            match packed {
                Some((_, effort)) => ColumnWriter::ByteArray(ColumnChunkWriter::new(descriptor.clone(), *effort)),
                None => ColumnWriter::Arrow(Box::new(writer)),
            }
        });
        Ok(RowGroupWriter { columns: columns.collect(), row_count: 0, byte_array_bytes: 0 })
    }

    fn end_row_group(&mut self) -> Result<(), ColumnarError> {
        let Some(group) = self.row_group.take() else { return Ok(()) };
        let mut out = self.writer.next_row_group()?;
        for column in group.columns {
            match column {
                ColumnWriter::Arrow(column) => column.close()?.append_to_row_group(&mut out)?,
                ColumnWriter::ByteArray(column) => {
                    let (bytes, result) = column.close()?;
                    out.append_column(&bytes, result)?;
                }
            }
        }
        out.close()?;
        Ok(())
    }

    /// Completes the file and returns the inner writer.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if the Parquet writer fails.
    pub fn finish(mut self) -> Result<W, ColumnarError> {
        self.end_row_group()?;
        Ok(self.writer.into_inner()?)
    }
}

fn writer_properties(layout: &AlignmentLayout) -> WriterProperties {
    let metadata =
        layout.metadata().into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned())).collect();
    let column = |name: &str| layout.schema.index_of(name).expect("the schema has its own columns") as i32;
    let sorted_by = |name| SortingColumn { column_idx: column(name), descending: false, nulls_first: false };
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("godwit {}", env!("CARGO_PKG_VERSION")))
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_max_row_group_row_count(Some(MAX_ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(MAX_ROW_GROUP_BYTES))
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

#[cfg(test)]
mod tests {
    use godwit_model::schema::alignment_columns::alignments;

    use super::*;

    /// Columns whose values repeat. The Parquet writer stores them as dictionaries without zstd.
    const DICTIONARY_COLUMNS: [&str; 5] = ["contig", "cigar", "mate_contig", "read_group", "tag_layout"];

    #[test]
    fn every_column_has_one_encoding() {
        let byte_arrays = BYTE_ARRAY_COLUMNS.map(|(name, _)| name);
        let mut encoded: Vec<&str> = [&DELTA_COLUMNS[..], &byte_arrays, &DICTIONARY_COLUMNS].concat();
        encoded.sort_unstable();
        let schema = alignments();
        let mut names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        assert_eq!(encoded, names);
        assert!(COLUMNS_WITH_STATISTICS.iter().all(|name| names.contains(name)));
    }
}
