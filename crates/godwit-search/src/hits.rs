//! Hits as columns: what owners of queries say of the alignments they print, as one Parquet or Arrow file.
//!
//! In: rows of pieces of the output, in any order. Out: a table in the order of the pieces, written aside until it is whole. Rows wait in
//! a log on disk, so that memory does not grow with them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int32Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use godwit_formats::columnar::{ColumnarError, TableFile, TableFormat};
use godwit_model::schema::hits;

use crate::SearchError;
use crate::aside::Aside;
use crate::journal::Kept;
use crate::protocol::Fields;

/// What separates the fields of a row, and is in none: a control character that no line of FASTA has.
const SEPARATOR: char = '\x1f';
/// What BLAST+ prints for what there is not.
const ABSENT: &str = "N/A";
/// Rows of a batch, all but the last.
const ROWS: usize = 64 << 10;

/// The fields that workers are asked for, as `-outfmt` names them.
pub(crate) fn fields() -> String {
    hits::TABLE_FIELDS.map(|(name, _)| name).join(" ")
}

/// The format that such a file has.
///
/// # Errors
/// [`SearchError::Unsupported`] where its name says none.
pub(crate) fn format_of(path: &Path) -> Result<TableFormat, SearchError> {
    TableFormat::of(path).ok_or_else(|| SearchError::Unsupported {
        option: format!("--hits {}", path.display()),
        problem: "name the format by its ending, .parquet or .arrow",
    })
}

/// A table of hits in the making.
pub(crate) struct HitsFile {
    aside: Aside,
    table: TableFile<BufWriter<File>>,
    columns: Columns,
    log: RowLog,
    /// The piece that is written next.
    next: u64,
    rows: u64,
}

impl HitsFile {
    /// Starts the file, beside its place.
    pub(crate) fn create(path: &Path, log: RowLog, program: &str, engine: &str) -> Result<Self, SearchError> {
        let format = format_of(path)?;
        let aside = Aside::create(Some(path), Path::new("."), Some("hits"))?;
        let file = File::options().write(true).open(aside.path());
        let file = file.map_err(|source| SearchError::File { action: "write", path: path.to_owned(), source })?;
        let keys = [(hits::VERSION_KEY, hits::VERSION), (hits::PROGRAM_KEY, program), (hits::ENGINE_KEY, engine)];
        let metadata = keys.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let schema = Arc::new(Schema::new_with_metadata(hits::hits().fields().clone(), metadata));
        let table = TableFile::new(format, schema.clone(), BufWriter::new(file))?;
        Ok(Self { aside, table, columns: Columns::new(schema), log, next: 0, rows: 0 })
    }

    /// Takes the rows of a piece, and says where they are in the log. Those of a piece that was made again are the same, and left out.
    pub(crate) fn put(&mut self, piece: u64, rows: &[u8]) -> Result<Option<Kept>, SearchError> {
        if piece < self.next || self.log.places.contains_key(&piece) {
            return Ok(None);
        }
        let kept = self.log.append(piece, rows)?;
        self.advance()?;
        Ok(Some(kept))
    }

    /// Takes the rows of a piece that are in the log, from an earlier search.
    pub(crate) fn restore(&mut self, piece: u64, rows: Kept) -> Result<(), SearchError> {
        self.log.places.insert(piece, (rows.offset, rows.bytes));
        self.advance()
    }

    /// Writes what is next, as far as it is there.
    fn advance(&mut self) -> Result<(), SearchError> {
        while let Some(rows) = self.log.take(self.next)? {
            self.next += 1;
            let mut fields = Fields::new(&rows);
            while !fields.is_empty() {
                let row = fields.row().and_then(|row| self.columns.push(row));
                row.ok_or_else(|| SearchError::Protocol { problem: "a row of hits cannot be read".into() })?;
                self.rows += 1;
                if self.columns.rows >= ROWS {
                    self.table.write(&self.columns.take()?)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the file, which waits for its name.
    pub(crate) fn finish(mut self) -> Result<WholeHits, SearchError> {
        if !self.log.places.is_empty() {
            return Err(SearchError::Protocol { problem: "rows of hits are missing before others".into() });
        }
        if self.columns.rows > 0 {
            self.table.write(&self.columns.take()?)?;
        }
        let mut out = self.table.finish()?;
        let bytes = out.flush().and_then(|()| out.get_ref().metadata()).map(|metadata| metadata.len());
        let wrong = |source| SearchError::File { action: "write", path: self.aside.path().to_owned(), source };
        let bytes = bytes.map_err(wrong)?;
        Ok(WholeHits { aside: self.aside, bytes, rows: self.rows })
    }
}

/// A whole table that has no name yet.
pub(crate) struct WholeHits {
    aside: Aside,
    bytes: u64,
    pub(crate) rows: u64,
}

impl WholeHits {
    /// Gives it its name.
    pub(crate) fn commit(self) -> Result<(), SearchError> {
        self.aside.commit(self.bytes)
    }
}

/// Rows on disk until it is their turn.
pub(crate) struct RowLog {
    file: File,
    path: PathBuf,
    end: u64,
    /// Of pieces that wait: offset and bytes.
    places: BTreeMap<u64, (u64, u64)>,
}

impl RowLog {
    /// A log without a name, in that directory.
    pub(crate) fn unnamed(scratch: &Path) -> Result<Self, SearchError> {
        let path = scratch.to_owned();
        let wrong = |source| SearchError::File { action: "make a scratch file in", path: path.clone(), source };
        let file = tempfile::tempfile_in(scratch).map_err(wrong)?;
        Ok(Self { file, path, end: 0, places: BTreeMap::new() })
    }

    /// A log that is kept, and goes on where it ends.
    pub(crate) fn named(path: &Path) -> Result<Self, SearchError> {
        let wrong = |source| SearchError::File { action: "write", path: path.to_owned(), source };
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(wrong)?;
        let end = file.metadata().map_err(wrong)?.len();
        Ok(Self { file, path: path.to_owned(), end, places: BTreeMap::new() })
    }

    fn append(&mut self, piece: u64, rows: &[u8]) -> Result<Kept, SearchError> {
        self.file.write_all_at(rows, self.end).map_err(|source| self.wrong("write", source))?;
        let kept = Kept { offset: self.end, bytes: rows.len() as u64, checksum: libdeflater::crc32(rows) };
        self.places.insert(piece, (kept.offset, kept.bytes));
        self.end += kept.bytes;
        Ok(kept)
    }

    fn take(&mut self, piece: u64) -> Result<Option<Vec<u8>>, SearchError> {
        let Some((offset, length)) = self.places.remove(&piece) else { return Ok(None) };
        let mut rows = vec![0; length as usize];
        self.file.read_exact_at(&mut rows, offset).map_err(|source| self.wrong("read", source))?;
        Ok(Some(rows))
    }

    fn wrong(&self, action: &'static str, source: std::io::Error) -> SearchError {
        SearchError::File { action, path: self.path.clone(), source }
    }
}

/// What a worker says of an alignment.
pub(crate) struct Row {
    /// Place of the query among all, from 0.
    pub(crate) query: u64,
    /// Not rounded.
    pub(crate) evalue: f64,
    pub(crate) bitscore: f64,
    /// The fields as they are printed.
    pub(crate) printed: String,
}

/// A batch in the making.
struct Columns {
    schema: SchemaRef,
    queries: Int64Builder,
    fields: Vec<(&'static str, Column)>,
    rows: usize,
}

enum Column {
    Number(Int32Builder),
    Real(Float64Builder),
    Text(StringBuilder),
}

impl Columns {
    fn new(schema: SchemaRef) -> Self {
        let fields = hits::TABLE_FIELDS.map(|(name, data_type)| {
            let column = match data_type {
                DataType::Int32 => Column::Number(Int32Builder::new()),
                DataType::Float64 => Column::Real(Float64Builder::new()),
                _ => Column::Text(StringBuilder::new()),
            };
            (name, column)
        });
        Self { schema, queries: Int64Builder::new(), fields: fields.into(), rows: 0 }
    }

    /// Appends a row; `None` where it is no row of these fields.
    fn push(&mut self, row: Row) -> Option<()> {
        let mut printed = row.printed.split(SEPARATOR);
        self.queries.append_value(i64::try_from(row.query).ok()?);
        for (name, column) in &mut self.fields {
            let value = Some(printed.next()?).filter(|value| *value != ABSENT);
            match column {
                Column::Number(numbers) => numbers.append_option(value.map(str::parse).transpose().ok()?),
                Column::Real(numbers) => numbers.append_value(match *name {
                    "evalue" => row.evalue,
                    "bitscore" => row.bitscore,
                    _ => value?.parse().ok()?,
                }),
                Column::Text(texts) => texts.append_option(value),
            }
        }
        self.rows += 1;
        printed.next().is_none().then_some(())
    }

    fn take(&mut self) -> Result<RecordBatch, SearchError> {
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(self.queries.finish())];
        arrays.extend(self.fields.iter_mut().map(|(_, column)| -> ArrayRef {
            match column {
                Column::Number(numbers) => Arc::new(numbers.finish()),
                Column::Real(numbers) => Arc::new(numbers.finish()),
                Column::Text(texts) => Arc::new(texts.finish()),
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
    use crate::protocol::Request;

    fn body(request: Request) -> Vec<u8> {
        request.body()
    }

    fn row(query: u64, name: &str) -> Vec<u8> {
        let values = hits::TABLE_FIELDS.map(|(field, data_type)| match (field, data_type) {
            ("qaccver", _) => name.to_owned(),
            ("staxid", _) => ABSENT.to_owned(),
            (_, DataType::Utf8) => "text, with \"quotes\"".to_owned(),
            _ => "7".to_owned(),
        });
        body(
            Request::new(b' ')
                .u64(query)
                .u64(1e-200_f64.to_bits())
                .u64(51.25_f64.to_bits())
                .text(values.join("\x1f").as_bytes()),
        )
    }

    #[test]
    fn rows_are_in_the_order_of_their_pieces_whatever_order_these_come_in() {
        let directory = tempfile::tempdir().expect("scratch");
        let path = directory.path().join("hits.arrow");
        let log = RowLog::unnamed(directory.path()).expect("a log");
        let mut file = HitsFile::create(&path, log, "blastp", "BLAST 2").expect("a file");
        for (piece, names) in [(2, ["e", "f"]), (0, ["a", "b"]), (2, ["x", "y"]), (1, ["c", "d"]), (0, ["x", "y"])] {
            file.put(piece, &names.map(|name| row(piece, name)).concat()).expect("rows");
        }
        assert!(!path.exists());
        let whole = file.finish().expect("all pieces are there");
        assert_eq!(whole.rows, 6);
        whole.commit().expect("it can be named");
        let file = File::open(&path).expect("it has its name");
        let read = arrow_ipc::reader::FileReader::try_new(file, None).expect("an Arrow file");
        assert_eq!(read.schema().metadata()[hits::PROGRAM_KEY], "blastp");
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
            let log = RowLog::unnamed(directory.path()).expect("a log");
            HitsFile::create(&directory.path().join("hits.parquet"), log, "blastp", "BLAST 2").expect("a file")
        };
        let cut = &row(0, "a")[..40];
        assert!(matches!(create().put(0, cut), Err(SearchError::Protocol { .. })));
        let few = body(Request::new(b' ').u64(0).u64(0).u64(0).text(b"a\x1fb"));
        assert!(matches!(create().put(0, &few), Err(SearchError::Protocol { .. })));
        let mut file = create();
        file.put(1, &row(0, "a")).expect("rows");
        assert!(matches!(file.finish(), Err(SearchError::Protocol { .. })));
        assert!(matches!(format_of("hits.tsv".as_ref()), Err(SearchError::Unsupported { .. })));
    }
}
