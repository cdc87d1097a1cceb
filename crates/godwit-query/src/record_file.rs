//! Writes the rows of a query as a file of records: BAM, VCF, BCF, BED or Parquet, with an index and a manifest.
//!
//! Flows in: batches whose columns are found by their names, and the header of the dataset from which the rows come.
//! Flows out: the file, the index beside it and `FILE.manifest.json`, which all get their names when they are complete.
//! Rows are written in the order in which they arrive. This module does not sort: rows in an order that contradicts the
//! header, or that cannot be indexed, are an error.

mod interval_file;
mod read_order;
mod reads_file;
mod record_header;
mod table_file;
mod variants_file;

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{Field, Schema, SchemaRef};
use godwit_files::{AtomicFile, AtomicSet};
use godwit_flight::Status;
use godwit_io::bgzf;
use godwit_pipeline::FingerprintEntry;
use godwit_pipeline::manifest::{MANIFEST_SUFFIX, Manifest, checksummed_entry};

pub use self::record_header::RecordHeader;
use crate::copy_statement::{CopyStatement, RecordFormat};
use crate::error::StatementError;
use interval_file::IntervalFile;
use reads_file::ReadsFile;
use table_file::TableFile;
use variants_file::VariantsFile;

/// Size of the buffer before the file, bytes.
const WRITE_BYTES: usize = 1 << 20;
/// The statement for the order that BAM, VCF and BCF files usually have.
const ORDER_CLAUSE: &str = "ORDER BY contig_id NULLS LAST, position";

/// The buffered file that a writer of records writes to.
type FileWriter = BufWriter<AtomicFile>;
/// The bytes of an index, and the extension of its file name.
type FileIndex = (&'static str, Vec<u8>);

/// A file of records that is being written. If it is dropped before [`RecordFile::finish`], no file remains.
pub struct RecordFile<'h> {
    path: PathBuf,
    writer: FormatWriter<'h>,
    row_count: u64,
}

enum FormatWriter<'h> {
    Reads(Box<ReadsFile<'h>>),
    Variants(Box<VariantsFile<'h>>),
    Intervals(IntervalFile),
    Table(Box<TableFile>),
}

impl<'h> RecordFile<'h> {
    /// Creates the file of a `COPY` statement, for rows with this schema. `command` is the command line, which a BAM
    /// header records.
    ///
    /// # Errors
    /// [`StatementError::Failed`] if the rows lack a column that the format needs; [`StatementError::Output`] if the file
    /// cannot be created.
    pub fn create(
        copy: &CopyStatement,
        header: &'h RecordHeader,
        schema: &SchemaRef,
        command: &str,
    ) -> Result<Self, StatementError> {
        let file = AtomicFile::create(&copy.path).map_err(|error| write_error(&copy.path, &error))?;
        let out = BufWriter::with_capacity(WRITE_BYTES, file);
        let failed = |error: io::Error| write_error(&copy.path, &error);
        let writer = match header {
            RecordHeader::Reads(header) => {
                FormatWriter::Reads(Box::new(ReadsFile::create(header, command, out).map_err(failed)?))
            }
            RecordHeader::Variants(header) => {
                let is_bcf = copy.format == RecordFormat::Bcf;
                FormatWriter::Variants(Box::new(VariantsFile::create(header, is_bcf, out).map_err(failed)?))
            }
            RecordHeader::Table(source) if copy.format == RecordFormat::Parquet => {
                FormatWriter::Table(Box::new(TableFile::create(source.as_ref(), schema, out)?))
            }
            RecordHeader::Table(_) => FormatWriter::Intervals(IntervalFile::create(schema, out)?),
        };
        let mut created = Self { path: copy.path.clone(), writer, row_count: 0 };
        // Report columns that do not fit before the first rows, even if there are none.
        created.write(&RecordBatch::new_empty(schema.clone()))?;
        Ok(created)
    }

    /// Writes the rows of a batch.
    ///
    /// # Errors
    /// [`StatementError::Failed`] if a column is missing, or a row cannot be a record of this file;
    /// [`StatementError::Output`] if writing fails.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), StatementError> {
        let written = match &mut self.writer {
            FormatWriter::Reads(file) => file.write(batch, self.row_count),
            FormatWriter::Variants(file) => file.write(batch, self.row_count),
            FormatWriter::Intervals(file) => file.write(batch, self.row_count),
            FormatWriter::Table(file) => file.write(batch),
        };
        written.map_err(|error| error.at_path(&self.path))?;
        self.row_count += batch.num_rows() as u64;
        Ok(())
    }

    /// Completes the file, writes its index and its manifest, and gives all of them their names. `statement` is recorded
    /// in the manifest. Returns the number of records.
    ///
    /// # Errors
    /// [`StatementError::Output`] if writing fails.
    pub fn finish(self, statement: &str) -> Result<u64, StatementError> {
        let Self { path, writer, row_count } = self;
        let failed = |error: io::Error| write_error(&path, &error);
        let duplicates = if let FormatWriter::Reads(file) = &writer { file.duplicate_count() } else { 0 };
        let finished = match writer {
            FormatWriter::Reads(file) => file.finish(),
            FormatWriter::Variants(file) => file.finish(),
            FormatWriter::Intervals(file) => file.finish().map(|out| (out, None)),
            FormatWriter::Table(file) => file.finish().map(|out| (out, None)),
        };
        let (mut out, index) = finished.map_err(|error| error.at_path(&path))?;
        out.flush().map_err(failed)?;
        let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        publish(file, index, statement, (row_count, duplicates)).map_err(failed)?;
        Ok(row_count)
    }
}

/// Writes index and manifest of a complete file, and gives all files their names. The file itself is last, because other
/// programs may wait for it. `counts`: the numbers of records, and of duplicates among them.
fn publish(file: AtomicFile, index: Option<FileIndex>, statement: &str, counts: (u64, u64)) -> io::Result<()> {
    let (records, duplicates) = counts;
    let path = file.path().to_owned();
    let mut entries =
        vec![godwit_pipeline::manifest::ManifestFile { records: Some(records), ..checksummed_entry(&file)? }];
    let mut set = AtomicSet::default();
    if let Some((extension, bytes)) = index {
        let mut staged = AtomicFile::create(&path.with_added_extension(extension))?;
        staged.write_all(&bytes)?;
        entries.push(checksummed_entry(&staged)?);
        set.add(staged)?;
    }
    let manifest = Manifest {
        godwit: env!("CARGO_PKG_VERSION").to_owned(),
        verb: "query".to_owned(),
        fingerprint: vec![FingerprintEntry { name: "the statement".to_owned(), value: statement.to_owned() }],
        records,
        duplicates,
        files: entries,
        ..Manifest::default()
    };
    let mut manifest_path = path.into_os_string();
    manifest_path.push(MANIFEST_SUFFIX);
    set.write_file(Path::new(&manifest_path), &serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?)?;
    set.add(file)?;
    set.publish().map_err(|(_, error)| error)
}

/// A reason why rows cannot be written, before the path of the file is added.
#[derive(Debug)]
enum RowFailure {
    /// The rows do not fit the file.
    Rows(String),
    Write(io::Error),
}

impl RowFailure {
    /// Creates the failure of a row; `row` is its 0-based number in the output.
    fn of_row(row: u64, problem: impl std::fmt::Display) -> Self {
        Self::Rows(format!("row {}: {problem}", row + 1))
    }

    fn at_path(self, path: &Path) -> StatementError {
        match self {
            Self::Rows(problem) => {
                Status::invalid_argument(format!("the rows cannot be written to {}: {problem}", path.display())).into()
            }
            Self::Write(error) => write_error(path, &error),
        }
    }
}

impl From<io::Error> for RowFailure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

fn write_error(path: &Path, error: &io::Error) -> StatementError {
    let problem = format!("{}: {error}; check the directory and its space", path.display());
    StatementError::Output { problem }
}

/// Writes the last block of a BGZF file; returns the buffered file.
fn finish_bgzf(writer: bgzf::Writer<FileWriter>) -> io::Result<FileWriter> {
    Ok(writer.finish_file()?.0)
}

/// Returns a batch with the columns of `expected` in its order, found by their names, and converted to its types.
/// Columns in `derived` need not be present; they are filled with nulls.
///
/// # Errors
/// A description of the problem if a column is missing, is not a column of the format, or cannot be converted.
fn columns_by_name(batch: &RecordBatch, expected: &Schema, derived: &[&str]) -> Result<RecordBatch, String> {
    let found = batch.schema();
    let is_known = |name: &str| expected.fields().iter().any(|field| field.name() == name);
    if let Some(other) = found.fields().iter().find(|field| !is_known(field.name())) {
        return Err(format!("the format has no field for column {}; remove the column from SELECT", other.name()));
    }
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for field in expected.fields() {
        let column = match batch.column_by_name(field.name()) {
            Some(column) if column.data_type() == field.data_type() => column.clone(),
            Some(column) => cast(column, field.data_type())
                .map_err(|error| format!("column {} is not of type {}: {error}", field.name(), field.data_type()))?,
            None if derived.contains(&field.name().as_str()) => {
                arrow_array::new_null_array(field.data_type(), batch.num_rows())
            }
            None => return Err(format!("column {} is missing; add it to SELECT, or select *", field.name())),
        };
        // The encoders of rows report nulls that are not allowed, with the name of the column.
        fields.push(Field::new(field.name(), field.data_type().clone(), true));
        columns.push(column);
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &rows).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int32Array, StringArray};
    use arrow_schema::DataType;

    use super::*;

    #[test]
    fn columns_are_found_by_name_and_a_missing_one_is_named() {
        let position: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![7]));
        let contig: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        let batch = RecordBatch::try_from_iter([("position", position), ("contig", contig)]).unwrap();
        let field = |name: &str, data_type| Field::new(name, data_type, false);
        let (contig, position) = (field("contig", DataType::Utf8), field("position", DataType::Int32));
        let schema = |more: &[Field]| Schema::new([&[contig.clone(), position.clone()], more].concat());
        let ordered = columns_by_name(&batch, &schema(&[]), &[]).unwrap();
        let expected: ArrayRef = Arc::new(Int32Array::from(vec![7]));
        assert_eq!((ordered.num_columns(), ordered.column(1)), (2, &expected));
        let error = columns_by_name(&batch, &schema(&[field("cigar", DataType::Utf8)]), &[]).unwrap_err();
        assert!(error.starts_with("column cigar is missing"), "{error}");
        assert!(columns_by_name(&batch, &schema(&[field("cigar", DataType::Utf8)]), &["cigar"]).is_ok());
        let error = columns_by_name(&batch, &Schema::new(vec![contig.clone()]), &[]).unwrap_err();
        assert!(error.contains("no field for column position"), "{error}");
    }
}
