//! Conversion of a VCF file to a single Parquet or Arrow file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use godwit_columnar::{ArrowFileWriter, TableFormat, VariantParquetWriter};
use godwit_files::{AtomicFile, AtomicSet};
use godwit_formats::vcf::{Reader, VariantBatchBuilder, VariantLayout};
use godwit_pipeline::PipelineError;
use godwit_pipeline::job_report::check_inputs_remain;

/// Writes the records of a VCF file as columns ([`godwit_model::schema::variant_columns`]) to one file, in the same
/// order. The extension of `out` selects Parquet or Arrow. Returns the number of records.
///
/// # Errors
/// [`PipelineError::Options`] if the extension of `out` is unknown, or if `out` and `vcf` are the same file.
/// [`PipelineError::Vcf`], [`PipelineError::Columns`], [`PipelineError::File`] or [`PipelineError::Interrupted`] if the
/// conversion fails. In all cases, `out` is not written.
pub fn write_variants(vcf: &Path, out: &Path, threads: usize, cancelled: &AtomicBool) -> Result<u64, PipelineError> {
    let Some(format) = TableFormat::from_path(out) else {
        let problem = format!("the extension of {} selects no format; use .parquet or .arrow", out.display());
        return Err(PipelineError::Options { problem });
    };
    check_inputs_remain([vcf], &[out.to_owned()])?;
    let mut staged = AtomicSet::default();
    let records = add_variant_table(vcf, out, format, threads, cancelled, &mut staged)?;
    staged.publish().map_err(|(path, source)| PipelineError::File { action: "write", path, source })?;
    Ok(records)
}

/// Converts a VCF like [`write_variants`], but adds the file to a set that the caller publishes.
pub(crate) fn add_variant_table(
    vcf: &Path,
    out: &Path,
    format: TableFormat,
    threads: usize,
    cancelled: &AtomicBool,
    staged: &mut AtomicSet,
) -> Result<u64, PipelineError> {
    let mut reader = Reader::open(vcf, threads)?;
    let layout = VariantLayout::new(reader.header())?;
    let file = AtomicFile::create(out).map_err(PipelineError::file("write", out))?;
    let mut writer = VariantTableWriter::new(format, &layout, file.file())?;
    let mut columns = VariantBatchBuilder::new(&layout);
    let mut records = 0;
    while let Some(record) = reader.next_record()? {
        if let Err(problem) = columns.push(&record) {
            return Err(reader.record_error(problem).into());
        }
        records += 1;
        if columns.is_full() {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            writer.write(&columns.take_batch()?)?;
        }
    }
    if columns.row_count() > 0 {
        writer.write(&columns.take_batch()?)?;
    }
    writer.finish(out)?;
    staged.add(file).map_err(PipelineError::file("write", out))?;
    Ok(records)
}

/// A writer for the Parquet or Arrow file, which is not yet complete.
enum VariantTableWriter<'f> {
    Parquet(Box<VariantParquetWriter<BufWriter<&'f File>>>),
    Arrow(Box<ArrowFileWriter<BufWriter<&'f File>>>),
}

impl<'f> VariantTableWriter<'f> {
    fn new(format: TableFormat, layout: &VariantLayout, file: &'f File) -> Result<Self, PipelineError> {
        let out = BufWriter::new(file);
        Ok(match format {
            TableFormat::Parquet => {
                Self::Parquet(Box::new(VariantParquetWriter::new(layout, out).map_err(PipelineError::Columns)?))
            }
            TableFormat::Arrow => Self::Arrow(Box::new(
                ArrowFileWriter::with_schema(&layout.schema, out).map_err(PipelineError::Columns)?,
            )),
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), PipelineError> {
        match self {
            Self::Parquet(file) => file.write(batch).map_err(PipelineError::Columns),
            Self::Arrow(file) => file.write(batch).map_err(PipelineError::Columns),
        }
    }

    fn finish(self, path: &Path) -> Result<(), PipelineError> {
        let mut out = match self {
            Self::Parquet(file) => file.finish().map_err(PipelineError::Columns)?,
            Self::Arrow(file) => file.finish().map_err(PipelineError::Columns)?,
        };
        out.flush().map_err(PipelineError::file("write", path))
    }
}
