//! Writes rows with the columns of alignments as a BAM file.

use std::io;

use arrow_array::RecordBatch;
use godwit_columnar::{AlignmentRows, RowEncoder, RowError};
use godwit_formats::bam;
use godwit_formats::binning_index::{IndexBuilder, IndexFormat};
use godwit_io::bgzf;
use godwit_model::flags;
use godwit_model::schema::alignment_columns;

use super::read_order::ReadOrder;
use super::record_header::ReadsHeader;
use super::{FileIndex, FileWriter, RowFailure, columns_by_name, finish_bgzf};

/// Columns that follow from other columns.
const DERIVED_COLUMNS: [&str; 1] = ["end_position"];

/// A BAM file that is being written.
pub(super) struct ReadsFile<'h> {
    header: &'h ReadsHeader,
    encoder: RowEncoder<'h>,
    order: ReadOrder,
    index: IndexBuilder,
    /// Number of records with the flag of a duplicate.
    duplicate_count: u64,
    writer: bgzf::Writer<FileWriter>,
}

impl<'h> ReadsFile<'h> {
    /// Writes the header, to which this program and the command line are added.
    pub(super) fn create(source: &'h ReadsHeader, command: &str, out: FileWriter) -> io::Result<Self> {
        let mut header = source.header.clone();
        header.add_program("godwit", &[("VN", env!("CARGO_PKG_VERSION")), ("CL", command)]);
        let mut bytes = Vec::new();
        bam::encode_header(&header, &mut bytes).map_err(io::Error::other)?;
        let mut writer = bgzf::Writer::new(out, bgzf::Writer::<FileWriter>::DEFAULT_LEVEL);
        writer.write_bytes(&bytes)?;
        writer.flush_block()?;
        Ok(Self {
            header: source,
            encoder: RowEncoder::new(&source.genome, source.read_groups.iter().map(String::as_str)),
            order: ReadOrder::from_header(&header),
            index: IndexBuilder::new(&source.genome),
            duplicate_count: 0,
            writer,
        })
    }

    /// Writes the rows of a batch; `first_row` is the number of rows before it.
    pub(super) fn write(&mut self, batch: &RecordBatch, first_row: u64) -> Result<(), RowFailure> {
        let expected = alignment_columns::alignments_without_dictionaries();
        let batch = columns_by_name(batch, &expected, &DERIVED_COLUMNS).map_err(RowFailure::Rows)?;
        // The derived column is not read, but must not have nulls.
        let batch = fill_end_positions(&batch).map_err(RowFailure::Rows)?;
        let rows = AlignmentRows::from_batch(&batch).map_err(|error| RowFailure::Rows(error.to_string()))?;
        for row in 0..batch.num_rows() {
            let number = first_row + row as u64;
            let record =
                self.encoder.encode(&rows, row).map_err(|error: RowError| RowFailure::of_row(number, error))?;
            self.order.check(record, &self.header.genome).map_err(|problem| RowFailure::of_row(number, problem))?;
            let flag = record.flag();
            self.duplicate_count += u64::from(flag & flags::DUPLICATE != 0);
            let bytes = record.bytes();
            let offsets = self.writer.write_record(&[&(bytes.len() as u32).to_le_bytes(), bytes])?;
            if self.order.is_coordinate() {
                let is_mapped = flag & flags::UNMAPPED == 0;
                let end = record.end_position(flag);
                self.index
                    .push(record.contig(), record.position(), end, is_mapped, offsets)
                    .map_err(|error| RowFailure::of_row(number, error))?;
            }
        }
        Ok(())
    }

    pub(super) fn duplicate_count(&self) -> u64 {
        self.duplicate_count
    }

    /// Completes the file; returns it with its index, if the records are sorted by coordinate.
    pub(super) fn finish(self) -> Result<(FileWriter, Option<FileIndex>), RowFailure> {
        let out = finish_bgzf(self.writer)?;
        if !self.order.is_coordinate() {
            return Ok((out, None));
        }
        let genome = &self.header.genome;
        let format = IndexFormat::for_genome(genome);
        let mut bytes = Vec::new();
        self.index.write(format, genome, &mut bytes)?;
        Ok((out, Some((format.extension(), bytes))))
    }
}

/// Replaces the column `end_position`, which records do not store, by the positions.
fn fill_end_positions(batch: &RecordBatch) -> Result<RecordBatch, String> {
    let schema = batch.schema();
    let index = |name: &str| schema.index_of(name).map_err(|error| error.to_string());
    let mut columns = batch.columns().to_vec();
    columns[index("end_position")?] = columns[index("position")?].clone();
    RecordBatch::try_new(schema, columns).map_err(|error| error.to_string())
}
