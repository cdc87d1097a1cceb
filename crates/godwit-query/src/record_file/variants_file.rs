//! Writes rows with the columns of variants as a VCF file that is compressed as BGZF, or as a BCF file.

use std::collections::HashMap;
use std::io;

use arrow_array::RecordBatch;
use godwit_formats::binning_index::{IndexBuilder, TabixBuilder};
use godwit_formats::vcf::{BcfEncoder, Header, Record, VariantRowEncoder, VariantRows};
use godwit_io::bgzf;
use godwit_model::schema::variant_columns::DERIVED_COLUMNS;
use godwit_model::{Contig, Genome};

use super::record_header::VariantsHeader;
use super::{FileIndex, FileWriter, ORDER_CLAUSE, RowFailure, columns_by_name, finish_bgzf};

/// Length of a contig whose header line has none: the greatest that a `.tbi` index can store.
const UNKNOWN_CONTIG_BASES: u32 = (1 << 29) - 1;

/// A VCF or BCF file that is being written.
pub(super) struct VariantsFile<'h> {
    header: &'h VariantsHeader,
    encoder: VariantRowEncoder<'h>,
    /// The contigs of the header by their names, and others as their records appear.
    contigs: HashMap<String, Contig>,
    genome: Genome,
    format: VariantFormat,
    writer: bgzf::Writer<FileWriter>,
}

enum VariantFormat {
    Vcf { index: TabixBuilder },
    Bcf { encoder: Box<BcfEncoder>, index: IndexBuilder, bytes: Vec<u8> },
}

impl<'h> VariantsFile<'h> {
    pub(super) fn create(header: &'h VariantsHeader, is_bcf: bool, out: FileWriter) -> io::Result<Self> {
        let genome = header_genome(&header.header)?;
        let mut writer = bgzf::Writer::new(out, bgzf::Writer::<FileWriter>::DEFAULT_LEVEL);
        let format = match is_bcf {
            true => {
                let encoder = Box::new(BcfEncoder::new(&header.header));
                writer.write_bytes(&encoder.header_bytes())?;
                VariantFormat::Bcf { encoder, index: IndexBuilder::new(&genome), bytes: Vec::new() }
            }
            false => {
                writer.write_bytes(header.header.text().as_bytes())?;
                VariantFormat::Vcf { index: TabixBuilder::new(&genome) }
            }
        };
        writer.flush_block()?;
        let contigs = genome.contigs().iter().map(|contig| (contig.name.clone(), contig.clone())).collect();
        let encoder = VariantRowEncoder::new(&header.layout);
        Ok(Self { header, encoder, contigs, genome, format, writer })
    }

    /// Writes the rows of a batch; `first_row` is the number of rows before it.
    pub(super) fn write(&mut self, batch: &RecordBatch, first_row: u64) -> Result<(), RowFailure> {
        let VariantsHeader { header, layout } = self.header;
        let batch = columns_by_name(batch, &layout.schema, &DERIVED_COLUMNS).map_err(RowFailure::Rows)?;
        let rows = VariantRows::from_batch(layout, &batch).map_err(RowFailure::Rows)?;
        for row in 0..batch.num_rows() {
            let number = first_row + row as u64;
            let row_failure = |problem: String| RowFailure::of_row(number, problem);
            let line = self.encoder.encode(&rows, row).map_err(row_failure)?;
            let record = Record::from_line(line, header).map_err(row_failure)?;
            let (start, end) = (record.position, record.end_position());
            let pushed = match &mut self.format {
                VariantFormat::Vcf { index } => {
                    let offsets = self.writer.write_record(&[line.as_bytes(), b"\n"])?;
                    let contig = self.contigs.entry(record.contig.to_owned()).or_insert_with(|| Contig {
                        name: record.contig.to_owned(),
                        length: UNKNOWN_CONTIG_BASES,
                        alternate: false,
                    });
                    index.push(contig, start, end, offsets)
                }
                VariantFormat::Bcf { encoder, index, bytes } => {
                    bytes.clear();
                    encoder.encode(&record, bytes).map_err(row_failure)?;
                    let offsets = self.writer.write_record(&[bytes])?;
                    let contig = encoder.contig_number(record.contig).and_then(|number| i32::try_from(number).ok());
                    index.push(contig.unwrap_or(-1), start, end, true, offsets)
                }
            };
            pushed.map_err(|error| {
                row_failure(format!("{}:{} cannot be indexed: {error}; add {ORDER_CLAUSE}", record.contig, start + 1))
            })?;
        }
        Ok(())
    }

    /// Completes the file; returns it with its index.
    pub(super) fn finish(self) -> Result<(FileWriter, Option<FileIndex>), RowFailure> {
        let out = finish_bgzf(self.writer)?;
        let mut bytes = Vec::new();
        let extension = match self.format {
            VariantFormat::Vcf { index } => {
                index.write(&mut bytes)?;
                index.extension()
            }
            VariantFormat::Bcf { index, .. } => {
                index.write_csi(&self.genome, &mut bytes)?;
                "csi"
            }
        };
        Ok((out, Some((extension, bytes))))
    }
}

/// Returns the contigs of a VCF header, whose lines need not have a length (VCFv4.4 §1.4.7).
fn header_genome(header: &Header) -> io::Result<Genome> {
    let contig = |contig: &godwit_formats::vcf::HeaderContig| Contig {
        name: contig.name.clone(),
        length: contig.length.and_then(|bases| u32::try_from(bases).ok()).unwrap_or(UNKNOWN_CONTIG_BASES),
        alternate: false,
    };
    Genome::new(header.contigs().iter().map(contig).collect()).map_err(io::Error::other)
}
