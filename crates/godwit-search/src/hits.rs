//! Writes the table of hits: a Parquet or Arrow IPC file with one row for each printed alignment.
//!
//! Input: rows from the owners of queries, by piece of the output (a slice or batch of queries), in any order. Output:
//! a table in the order of the pieces, under a temporary name until it is complete. Rows that arrive before the rows of
//! an earlier piece wait in a log on disk, not in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int32Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use godwit_columnar::{ColumnarError, TableFileWriter, TableFormat};
use godwit_files::{AtomicFile, Spill};
use godwit_model::schema::hit_columns;

use crate::SearchError;
use crate::search_checkpoint::FileExtent;
use crate::worker_protocol::{FieldReader, HitRow};

/// Separator between the fields of a row from a worker: a control character that does not occur in FASTA files.
const FIELD_SEPARATOR: char = '\x1f';
/// The string that BLAST+ prints for a missing value.
const MISSING_VALUE: &str = "N/A";
/// Number of rows in each Arrow record batch of the table; the last batch may have fewer.
const BATCH_ROWS: usize = 64 << 10;

/// Returns the names, as in `-outfmt`, of the fields that workers print for each row of the table, separated by spaces.
pub(crate) fn row_field_names() -> String {
    hit_columns::TABLE_FIELDS.map(|(name, _)| name).join(" ")
}

/// Returns the format of a table by the extension of its path.
///
/// # Errors
/// [`SearchError::Unsupported`] if the extension is neither `.parquet` nor `.arrow`.
pub(crate) fn table_format(path: &Path) -> Result<TableFormat, SearchError> {
    TableFormat::from_path(path).ok_or_else(|| SearchError::Unsupported {
        option: format!("--hits {}", path.display()),
        problem: "use the extension .parquet or .arrow",
    })
}

/// A table of hits that is being written.
pub(crate) struct HitsFile {
    file: AtomicFile,
    table: TableFileWriter<BufWriter<File>>,
    columns: HitColumns,
    log: RowLog,
    /// Number of the piece whose rows are written next.
    next_piece: u64,
    rows: u64,
}

impl HitsFile {
    /// Creates the table file under a temporary name beside `path`.
    pub(crate) fn create(path: &Path, log: RowLog, program: &str, engine: &str) -> Result<Self, SearchError> {
        let format = table_format(path)?;
        let failed = |source| SearchError::File { action: "write", path: path.to_owned(), source };
        let atomic_file = AtomicFile::create(path).map_err(failed)?;
        let file = atomic_file.file().try_clone().map_err(failed)?;
        let keys = [
            (hit_columns::VERSION_KEY, hit_columns::VERSION),
            (hit_columns::PROGRAM_KEY, program),
            (hit_columns::ENGINE_KEY, engine),
        ];
        let metadata = keys.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let schema = Arc::new(Schema::new_with_metadata(hit_columns::hits().fields().clone(), metadata));
        let table = TableFileWriter::new(format, schema.clone(), BufWriter::new(file))?;
        Ok(Self { file: atomic_file, table, columns: HitColumns::new(schema), log, next_piece: 0, rows: 0 })
    }

    /// Adds the rows of a piece and returns their extent in the log. Returns `None` if the rows of this piece were
    /// added before, because a worker that repeats a piece produces equal rows.
    pub(crate) fn add_rows(&mut self, piece: u64, rows: &[u8]) -> Result<Option<FileExtent>, SearchError> {
        if piece < self.next_piece || self.log.pending_rows.contains_key(&piece) {
            return Ok(None);
        }
        let kept = self.log.append_rows(piece, rows)?;
        self.write_ready_rows()?;
        Ok(Some(kept))
    }

    /// Adds the rows of a piece that the stopped search stored at this extent of the log.
    pub(crate) fn restore_rows(&mut self, piece: u64, rows: FileExtent) -> Result<(), SearchError> {
        self.log.pending_rows.insert(piece, (rows.offset, rows.bytes));
        self.write_ready_rows()
    }

    /// Writes the rows of the next pieces in order, up to the first piece whose rows have not arrived.
    fn write_ready_rows(&mut self) -> Result<(), SearchError> {
        while let Some(rows) = self.log.take_rows(self.next_piece)? {
            self.next_piece += 1;
            let mut fields = FieldReader::new(&rows);
            while !fields.is_empty() {
                let row = fields.read_hit_row().and_then(|row| self.columns.push_row(row));
                row.ok_or_else(|| SearchError::Protocol { problem: "a row of hits cannot be read".into() })?;
                self.rows += 1;
                if self.columns.rows >= BATCH_ROWS {
                    self.table.write(&self.columns.take_batch()?)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the remaining rows and closes the file, which still has its temporary name.
    pub(crate) fn finish(mut self) -> Result<UncommittedHits, SearchError> {
        if !self.log.pending_rows.is_empty() {
            return Err(SearchError::Protocol { problem: "rows of hits are missing".into() });
        }
        if self.columns.rows > 0 {
            self.table.write(&self.columns.take_batch()?)?;
        }
        let mut out = self.table.finish()?;
        let failed = |source| SearchError::File { action: "write", path: self.file.path().to_owned(), source };
        out.flush().map_err(failed)?;
        Ok(UncommittedHits { file: self.file, rows: self.rows })
    }
}

/// A complete table of hits that still has its temporary name.
pub(crate) struct UncommittedHits {
    file: AtomicFile,
    pub(crate) rows: u64,
}

impl UncommittedHits {
    /// Renames the table to its final name.
    pub(crate) fn commit(self) -> Result<(), SearchError> {
        let path = self.file.path().to_owned();
        self.file.commit().map_err(|source| SearchError::File { action: "write", path, source })
    }
}

/// A log on disk of the rows of all pieces; the rows of a piece wait in it until all earlier pieces are written.
pub(crate) struct RowLog {
    file: Spill,
    path: PathBuf,
    /// Offset and size in bytes in the log of the rows of each piece that is not yet in the table.
    pending_rows: BTreeMap<u64, (u64, u64)>,
}

impl RowLog {
    /// Creates a log as an unnamed file in the directory `scratch`; the system removes it when it is closed.
    pub(crate) fn create_unnamed(scratch: &Path) -> Result<Self, SearchError> {
        let path = scratch.to_owned();
        let wrong = |source| SearchError::File { action: "make a scratch file in", path: path.clone(), source };
        let file = Spill::create(scratch).map_err(wrong)?;
        Ok(Self { file, path, pending_rows: BTreeMap::new() })
    }

    /// Opens or creates the log in a checkpoint directory; new rows are appended to it.
    pub(crate) fn open_named(path: &Path) -> Result<Self, SearchError> {
        let wrong = |source| SearchError::File { action: "write", path: path.to_owned(), source };
        let file = Spill::open(path).map_err(wrong)?;
        Ok(Self { file, path: path.to_owned(), pending_rows: BTreeMap::new() })
    }

    fn append_rows(&mut self, piece: u64, rows: &[u8]) -> Result<FileExtent, SearchError> {
        let offset = self.file.append(rows).map_err(|source| self.file_error("write", source))?;
        let kept = FileExtent { offset, bytes: rows.len() as u64, checksum: libdeflater::crc32(rows) };
        self.pending_rows.insert(piece, (kept.offset, kept.bytes));
        Ok(kept)
    }

    fn take_rows(&mut self, piece: u64) -> Result<Option<Vec<u8>>, SearchError> {
        let Some((offset, length)) = self.pending_rows.remove(&piece) else { return Ok(None) };
        let mut rows = vec![0; length as usize];
        self.file.read_at(offset, &mut rows).map_err(|source| self.file_error("read", source))?;
        Ok(Some(rows))
    }

    fn file_error(&self, action: &'static str, source: std::io::Error) -> SearchError {
        SearchError::File { action, path: self.path.clone(), source }
    }
}

/// The columns of the Arrow record batch that is being filled.
struct HitColumns {
    schema: SchemaRef,
    queries: Int64Builder,
    fields: Vec<(&'static str, HitColumn)>,
    rows: usize,
}

enum HitColumn {
    Int32(Int32Builder),
    Float64(Float64Builder),
    Utf8(StringBuilder),
}

impl HitColumns {
    fn new(schema: SchemaRef) -> Self {
        let fields = hit_columns::TABLE_FIELDS.map(|(name, data_type)| {
            let column = match data_type {
                DataType::Int32 => HitColumn::Int32(Int32Builder::new()),
                DataType::Float64 => HitColumn::Float64(Float64Builder::new()),
                _ => HitColumn::Utf8(StringBuilder::new()),
            };
            (name, column)
        });
        Self { schema, queries: Int64Builder::new(), fields: fields.into(), rows: 0 }
    }

    /// Appends a row; returns `None` if the number of fields is wrong or a field cannot be parsed.
    fn push_row(&mut self, row: HitRow) -> Option<()> {
        let mut printed = row.printed.split(FIELD_SEPARATOR);
        self.queries.append_value(i64::try_from(row.query).ok()?);
        for (name, column) in &mut self.fields {
            let value = Some(printed.next()?).filter(|value| *value != MISSING_VALUE);
            match column {
                HitColumn::Int32(numbers) => numbers.append_option(value.map(str::parse).transpose().ok()?),
                HitColumn::Float64(numbers) => numbers.append_value(match *name {
                    "evalue" => row.evalue,
                    "bitscore" => row.bitscore,
                    _ => value?.parse().ok()?,
                }),
                HitColumn::Utf8(texts) => texts.append_option(value),
            }
        }
        self.rows += 1;
        printed.next().is_none().then_some(())
    }

    fn take_batch(&mut self) -> Result<RecordBatch, SearchError> {
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(self.queries.finish())];
        arrays.extend(self.fields.iter_mut().map(|(_, column)| -> ArrayRef {
            match column {
                HitColumn::Int32(numbers) => Arc::new(numbers.finish()),
                HitColumn::Float64(numbers) => Arc::new(numbers.finish()),
                HitColumn::Utf8(texts) => Arc::new(texts.finish()),
            }
        }));
        self.rows = 0;
        Ok(RecordBatch::try_new(self.schema.clone(), arrays).map_err(ColumnarError::Columns)?)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;

    use super::*;
    use crate::worker_protocol::ProtocolFrame;

    fn body(request: ProtocolFrame) -> Vec<u8> {
        request.into_body()
    }

    fn row(query: u64, name: &str) -> Vec<u8> {
        let values = hit_columns::TABLE_FIELDS.map(|(field, data_type)| match (field, data_type) {
            ("qaccver", _) => name.to_owned(),
            ("staxid", _) => MISSING_VALUE.to_owned(),
            (_, DataType::Utf8) => "text, with \"quotes\"".to_owned(),
            _ => "7".to_owned(),
        });
        body(
            ProtocolFrame::new(b' ')
                .with_u64(query)
                .with_u64(1e-200_f64.to_bits())
                .with_u64(51.25_f64.to_bits())
                .with_text(values.join("\x1f").as_bytes()),
        )
    }

    #[test]
    fn rows_are_in_the_order_of_their_pieces_whatever_order_these_come_in() {
        let directory = tempfile::tempdir().expect("scratch");
        let path = directory.path().join("hits.arrow");
        let log = RowLog::create_unnamed(directory.path()).expect("a log");
        let mut file = HitsFile::create(&path, log, "blastp", "BLAST 2").expect("a file");
        for (piece, names) in [(2, ["e", "f"]), (0, ["a", "b"]), (2, ["x", "y"]), (1, ["c", "d"]), (0, ["x", "y"])] {
            file.add_rows(piece, &names.map(|name| row(piece, name)).concat()).expect("rows");
        }
        assert!(!path.exists());
        let whole = file.finish().expect("all pieces are there");
        assert_eq!(whole.rows, 6);
        whole.commit().expect("it can be named");
        let file = File::open(&path).expect("it has its name");
        let read = arrow_ipc::reader::FileReader::try_new(file, None).expect("an Arrow file");
        assert_eq!(read.schema().metadata()[hit_columns::PROGRAM_KEY], "blastp");
        let mut names = Vec::new();
        for batch in read {
            let batch = batch.expect("a batch");
            assert_eq!(batch.column_by_name("staxid").expect("a column").null_count(), batch.num_rows());
            let column = batch.column_by_name("qaccver").expect("a column").as_string::<i32>().clone();
            names.extend(column.iter().flatten().map(str::to_owned));
        }
        assert_eq!(names.concat(), "abcdef");
    }

    #[test]
    fn rows_that_are_none_and_pieces_that_are_missing_are_errors() {
        let directory = tempfile::tempdir().expect("scratch");
        let create = || {
            let log = RowLog::create_unnamed(directory.path()).expect("a log");
            HitsFile::create(&directory.path().join("hits.parquet"), log, "blastp", "BLAST 2").expect("a file")
        };
        let cut = &row(0, "a")[..40];
        assert!(matches!(create().add_rows(0, cut), Err(SearchError::Protocol { .. })));
        let few = body(ProtocolFrame::new(b' ').with_u64(0).with_u64(0).with_u64(0).with_text(b"a\x1fb"));
        assert!(matches!(create().add_rows(0, &few), Err(SearchError::Protocol { .. })));
        let mut file = create();
        file.add_rows(1, &row(0, "a")).expect("rows");
        assert!(matches!(file.finish(), Err(SearchError::Protocol { .. })));
        assert!(matches!(table_format("hits.tsv".as_ref()), Err(SearchError::Unsupported { .. })));
    }
}
