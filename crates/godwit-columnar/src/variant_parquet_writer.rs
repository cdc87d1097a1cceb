//! A writer of Parquet files of variants. The records may have any order, because no column is declared as sorted.

use std::io::Write;

use arrow_array::RecordBatch;
use godwit_formats::vcf::VariantLayout;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::error::ColumnarError;

/// Maximum rows of a row group. Readers that do not use page indexes read at least a whole row group.
const MAX_ROW_GROUP_ROWS: usize = 32_768;
/// Maximum bytes of a row group. Files of cohorts reach this limit before the limit of rows.
const MAX_ROW_GROUP_BYTES: usize = 64 << 20;
/// Maximum rows of a page. Readers that use page indexes read at least a whole page.
const PAGE_ROWS: usize = 4096;
/// Columns with statistics, by which queries skip row groups and pages.
const COLUMNS_WITH_STATISTICS: [&str; 5] = ["contig", "contig_id", "position", "end_position", "quality"];

/// A writer of one Parquet file. If the writer is dropped before [`VariantParquetWriter::finish`], every reader rejects
/// the file as incomplete.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::fs::File;
///
/// use godwit_columnar::{ParquetFiles, VariantParquetWriter};
/// use godwit_formats::vcf::{Reader, VariantBatchBuilder, VariantLayout};
///
/// # let directory = tempfile::tempdir()?;
/// # let (vcf, parquet) = (directory.path().join("a.vcf"), directory.path().join("a.parquet"));
/// let header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
/// std::fs::write(&vcf, format!("{header}chr20\t1000\trs1\tA\tC\t50\tPASS\t.\n"))?;
/// let mut reader = Reader::open(&vcf, 1)?;
/// let layout = VariantLayout::new(reader.header())?;
/// let mut builder = VariantBatchBuilder::new(&layout);
/// builder.push(&reader.next_record()?.unwrap())?;
///
/// let mut writer = VariantParquetWriter::new(&layout, File::create(&parquet)?)?;
/// writer.write(&builder.take_batch()?)?;
/// writer.finish()?;
/// assert_eq!(ParquetFiles::open(&[parquet])?.row_count(), 1);
/// # Ok(())
/// # }
/// ```
pub struct VariantParquetWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> VariantParquetWriter<W> {
    /// Creates a writer and starts the Parquet file.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if the Parquet writer fails.
    pub fn new(layout: &VariantLayout, out: W) -> Result<Self, ColumnarError> {
        // Do not store the Arrow schema as Base64 text, because it would contain the VCF header a second time.
        let options =
            ArrowWriterOptions::new().with_properties(writer_properties(layout)).with_skip_arrow_metadata(true);
        Ok(Self { writer: ArrowWriter::try_new_with_options(out, layout.schema.clone(), options)? })
    }

    /// Writes a record batch.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if the Parquet writer fails.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        Ok(self.writer.write(batch)?)
    }

    /// Completes the file and returns the inner writer.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if the Parquet writer fails.
    pub fn finish(self) -> Result<W, ColumnarError> {
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
