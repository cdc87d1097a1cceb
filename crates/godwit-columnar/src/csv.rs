//! A reader of CSV and TSV files with a header line as Arrow record batches.
//!
//! Flows in: CSV or TSV text, plain, gzip or BGZF. Flows out: record batches. The first values of a column decide its
//! type: whole numbers, numbers, booleans (true or false), otherwise text. A later value of another type is an error
//! that names its line; the value is not converted.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_csv::reader::{Decoder, Format};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use godwit_io::bgzf::{BgzfError, Reader, open_text_source};
use godwit_io::random_access::RandomAccess;

/// Maximum number of rows from which the types of columns are inferred.
const MAX_INFERENCE_ROWS: usize = 1000;
/// Maximum bytes of text from which the types of columns are inferred.
const MAX_INFERENCE_BYTES: usize = 1 << 20;
/// Maximum rows of a record batch.
const MAX_BATCH_ROWS: usize = 2048;
/// Maximum bytes of text of a record batch. Without a limit, a quote that is never closed would fill the memory.
const MAX_BATCH_BYTES: usize = 128 << 20;
/// Maximum number of columns, because each column needs memory in every batch.
const MAX_COLUMNS: usize = 1 << 16;

/// A reason why a CSV or TSV file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// The file cannot be read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The line of column names is invalid.
    #[error("{}, line 1: {problem}", .path.display())]
    ColumnNames {
        /// Path of the CSV or TSV file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// A value has another type than the first values of its column.
    #[error(
        "{}, {line}: {value:?} in column {column:?} does not have the type of the first values ({expected}); put \
        quotes around all of them to read them as text", .path.display()
    )]
    Value {
        /// Path of the CSV or TSV file.
        path: PathBuf,
        /// Number of the line that contains the value.
        line: LineNumber,
        /// Name of the column.
        column: String,
        /// The value, truncated if it is long.
        value: String,
        /// The type that the first values of the column have.
        expected: &'static str,
    },
    /// A row of the file is not valid CSV.
    #[error("{}: {problem}", .path.display())]
    Row {
        /// Path of the CSV or TSV file.
        path: PathBuf,
        /// Description of the problem and its position, from the CSV parser.
        problem: String,
    },
    /// The columns of a batch do not fit its schema, which is a bug in godwit.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[from] ArrowError),
}

/// 1-based number of a line for an error message. The number is exact, or a lower bound if an earlier row of the batch
/// may have several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineNumber {
    number: u64,
    /// True if every row of the batch was a single line, so that the number is exact.
    is_exact: bool,
}

impl std::fmt::Display for LineNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", if self.is_exact { "line" } else { "at or after line" }, self.number)
    }
}

/// A CSV or TSV file whose columns have been determined, but whose rows have not been read.
#[derive(Clone, Debug)]
pub struct CsvFile {
    source: Arc<dyn RandomAccess>,
    delimiter: u8,
    schema: SchemaRef,
}

impl CsvFile {
    /// Reads the column names from the first line, and infers the types of the columns from the first rows.
    ///
    /// # Errors
    /// [`CsvError`] if the file cannot be read, or its column names or first rows are invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use arrow_schema::DataType;
    /// use godwit_columnar::csv::CsvFile;
    /// use godwit_io::random_access::LocalFile;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("samples.csv");
    /// std::fs::write(&path, "sample,depth,is_case\nNA12878,31.5,true\n")?;
    /// let table = CsvFile::open(Arc::new(LocalFile::open(&path)?), b',')?;
    /// assert_eq!(table.schema().field(0).data_type(), &DataType::Utf8);
    /// assert_eq!(table.schema().field(1).data_type(), &DataType::Float64);
    /// assert_eq!(table.schema().field(2).data_type(), &DataType::Boolean);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(source: Arc<dyn RandomAccess>, delimiter: u8) -> Result<Self, CsvError> {
        let path = source.path();
        let mut input = open_text_source(&source, 1)?;
        let mut inference_text = Vec::new();
        while inference_text.len() < MAX_INFERENCE_BYTES {
            let data = input.data()?;
            if data.is_empty() {
                break;
            }
            let take = data.len().min(MAX_INFERENCE_BYTES - inference_text.len());
            inference_text.extend_from_slice(&data[..take]);
            input.consume(take);
        }
        let names_error = |problem: String| CsvError::ColumnNames { path: path.to_owned(), problem };
        if inference_text.len() == MAX_INFERENCE_BYTES {
            let Some(end) = memchr::memrchr(b'\n', &inference_text) else {
                return Err(names_error("it is longer than 1 MiB; is it a table?".to_owned()));
            };
            inference_text.truncate(end + 1);
        }
        // The rows used for inference may end within a quoted value.
        let format = Format::default().with_header(true).with_delimiter(delimiter).with_truncated_rows(true);
        let inferred = format.infer_schema(&inference_text[..], Some(MAX_INFERENCE_ROWS));
        let (inferred, _) =
            inferred.map_err(|error| CsvError::Row { path: path.to_owned(), problem: arrow_error_text(&error) })?;
        let fields = inferred.fields();
        let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        let duplicate = names.windows(2).find(|pair| pair[0] == pair[1]);
        match (fields.len(), duplicate) {
            (0, _) => return Err(names_error("its column names are missing".to_owned())),
            (count, _) if count > MAX_COLUMNS => {
                return Err(names_error(format!("it has {count} columns, more than 65536")));
            }
            (_, Some(pair)) => {
                return Err(names_error(format!("two columns have the name {:?}; rename one", excerpt(pair[0]))));
            }
            _ => {}
        }
        let kind = |field: &Field| match field.data_type() {
            DataType::Boolean | DataType::Int64 | DataType::Float64 => field.data_type().clone(),
            _ => DataType::Utf8,
        };
        let fields: Vec<Field> = fields.iter().map(|field| Field::new(field.name(), kind(field), true)).collect();
        Ok(Self { schema: Arc::new(Schema::new(fields)), delimiter, source })
    }

    /// Returns the schema with all columns of the file.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Starts reading the rows. `columns` are ascending indexes of the columns to read; `None` means all columns.
    ///
    /// # Errors
    /// [`CsvError::Bgzf`] if reading cannot start.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use arrow_array::cast::AsArray;
    /// use arrow_array::types::Int64Type;
    /// use godwit_columnar::csv::CsvFile;
    /// use godwit_io::random_access::LocalFile;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("samples.tsv");
    /// std::fs::write(&path, "sample\treads\nNA12878\t1200\nNA12891\t900\n")?;
    /// let table = CsvFile::open(Arc::new(LocalFile::open(&path)?), b'\t')?;
    /// let mut batches = table.batches(Some(&[1]))?;
    /// let batch = batches.next_batch()?.unwrap();
    /// assert_eq!(batch["reads"].as_primitive::<Int64Type>().value(1), 900);
    /// assert!(batches.next_batch()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn batches(&self, columns: Option<&[usize]>) -> Result<CsvBatches, CsvError> {
        let texts = self.schema.fields().iter().map(|field| Field::new(field.name(), DataType::Utf8, true));
        let mut builder = arrow_csv::ReaderBuilder::new(Arc::new(Schema::new(texts.collect::<Vec<_>>())));
        builder = builder.with_header(true).with_delimiter(self.delimiter).with_batch_size(MAX_BATCH_ROWS);
        let mut schema = self.schema.clone();
        if let Some(columns) = columns {
            builder = builder.with_projection(columns.to_vec());
            schema = Arc::new(schema.project(columns)?);
        }
        let input = open_text_source(&self.source, 1)?;
        Ok(CsvBatches { input, schema, decoder: builder.build_decoder(), lines_read: 0 })
    }
}

/// An iterator over the rows of a file as record batches.
#[derive(Debug)]
pub struct CsvBatches {
    input: Reader,
    /// Schema of the columns to be read.
    schema: SchemaRef,
    decoder: Decoder,
    /// Number of lines of the file that have been consumed.
    lines_read: u64,
}

impl CsvBatches {
    /// Returns the next rows as a batch, or `None` at the end of the file.
    ///
    /// # Errors
    /// [`CsvError`] if the file cannot be read, or a row or a value is invalid.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, CsvError> {
        // The decoder skips the header line together with the first rows.
        let first_line = self.lines_read.max(1) + 1;
        let mut bytes = 0;
        let path = self.input.path().to_owned();
        let row_error = |problem| CsvError::Row { path: path.clone(), problem };
        loop {
            let data = self.input.data()?;
            let taken = self.decoder.decode(data).map_err(|error| row_error(arrow_error_text(&error)))?;
            self.lines_read += memchr::memchr_iter(b'\n', &data[..taken]).count() as u64;
            bytes += taken;
            self.input.consume(taken);
            if taken == 0 || self.decoder.capacity() == 0 {
                break;
            }
            if bytes > MAX_BATCH_BYTES {
                let problem = format!("the row at line {first_line} or a later one does not end; is a quote missing?");
                return Err(row_error(problem));
            }
        }
        let Some(texts) = self.decoder.flush().map_err(|error| row_error(arrow_error_text(&error)))? else {
            return Ok(None);
        };
        let is_exact = self.lines_read.saturating_sub(first_line - 1).abs_diff(texts.num_rows() as u64) <= 1;
        let line = LineNumber { number: first_line, is_exact };
        let columns: Result<Vec<ArrayRef>, CsvError> = texts
            .columns()
            .iter()
            .zip(self.schema.fields())
            .map(|(texts, field)| self.parse_column(texts, field, line))
            .collect();
        let rows = RecordBatchOptions::new().with_row_count(Some(texts.num_rows()));
        Ok(Some(RecordBatch::try_new_with_options(self.schema.clone(), columns?, &rows)?))
    }

    fn parse_column(&self, texts: &ArrayRef, field: &Field, line: LineNumber) -> Result<ArrayRef, CsvError> {
        let values: &StringArray = texts.as_string();
        let value_error = |row: usize, expected| CsvError::Value {
            path: self.input.path().to_owned(),
            line: LineNumber { number: line.number + row as u64, ..line },
            column: excerpt(field.name()),
            value: excerpt(values.value(row)),
            expected,
        };
        let texts_of_rows = || (0..values.len()).map(|row| (row, values.is_valid(row).then(|| values.value(row))));
        let whole = |(row, text): (usize, Option<&str>)| {
            text.map(|text| text.parse().map_err(|_| value_error(row, "whole number"))).transpose()
        };
        let number = |(row, text): (usize, Option<&str>)| {
            text.map(|text| text.parse().map_err(|_| value_error(row, "number"))).transpose()
        };
        let is_true = |(row, text): (usize, Option<&str>)| {
            text.map(|text| parse_bool(text).ok_or_else(|| value_error(row, "true or false"))).transpose()
        };
        Ok(match field.data_type() {
            DataType::Int64 => Arc::new(texts_of_rows().map(whole).collect::<Result<Int64Array, CsvError>>()?),
            DataType::Float64 => Arc::new(texts_of_rows().map(number).collect::<Result<Float64Array, CsvError>>()?),
            DataType::Boolean => Arc::new(texts_of_rows().map(is_true).collect::<Result<BooleanArray, CsvError>>()?),
            _ => texts.clone(),
        })
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    [("true", true), ("false", false)].into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word)).map(|(_, is)| is)
}

/// Returns the first characters of a text, for error messages.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Returns the error message of the CSV parser without the prefix that arrow adds.
fn arrow_error_text(error: &ArrowError) -> String {
    match error {
        ArrowError::CsvError(problem) | ArrowError::ParseError(problem) => problem.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Float64Type, Int64Type};
    use godwit_io::random_access::LocalFile;

    use super::*;

    fn read(text: &str, columns: Option<&[usize]>) -> Result<Vec<RecordBatch>, CsvError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        std::fs::write(&path, text).unwrap();
        let mut rows = CsvFile::open(Arc::new(LocalFile::open(&path).unwrap()), b',')?.batches(columns)?;
        std::iter::from_fn(|| rows.next_batch().transpose()).collect()
    }

    #[test]
    fn columns_are_what_their_first_values_are() {
        let text = "n,x,b,t,d\r\n1,2.5,true,a,2024-01-01\r\n,3,FALSE,\"b,\nc\",\r\n-7,,,,x";
        let batches = read(text, None).unwrap();
        let batch = &batches[0];
        assert_eq!(batch.num_rows(), 3);
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), None, Some(-7)]);
        assert_eq!(batch.column(1).as_primitive::<Float64Type>().value(1), 3.0);
        assert!(!batch.column(2).as_boolean().value(1));
        assert_eq!(batch.column(3).as_string::<i32>().value(1), "b,\nc");
        assert_eq!(batch.column(4).as_string::<i32>().value(2), "x");
        let some = read(text, Some(&[1, 3])).unwrap();
        assert_eq!(some[0], batch.project(&[1, 3]).unwrap());
        assert!(read("a,b\n", None).unwrap().is_empty());
        assert_eq!(read("a,b\n1,2\n", Some(&[])).unwrap()[0].num_rows(), 1);
    }

    #[test]
    fn what_does_not_fit_is_named_by_line() {
        let many = |last: &str| format!("n,t\n{}{last}\n", "1,a\n".repeat(5000));
        for (text, expected) in [
            ("a,a\n1,2\n".to_owned(), "line 1: two columns"),
            (String::new(), "line 1: its column names"),
            (many("x,b"), "line 5002: \"x\" in column \"n\" does not have the type of the first values (whole number)"),
            (many("1,b,c"), "line 5002"),
            (many("1"), "line 5002"),
        ] {
            let found = read(&text, None).map(|_| ()).unwrap_err().to_string();
            assert!(found.contains("a.csv") && found.contains(expected), "{found}");
        }
        let message = read(&format!("n,t\n{}\"1\n2\",b\n", "1,\"a\nb\"\n".repeat(3000)), None).unwrap_err().to_string();
        assert!(message.contains("at or after line"), "{message}");
    }
}
