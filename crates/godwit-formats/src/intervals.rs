//! A reader of BED and GFF files as Arrow record batches, with names, scores and the other fields of a line as columns.
//!
//! Flows in: BED (UCSC, 3 to 12 columns), GFF3 or GTF text; plain, gzip or BGZF. Flows out: record batches with
//! 0-based, half-open positions for both formats. The attributes of GFF remain one text column, because their content
//! differs between the programs that write such files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bgzf::{BgzfError, LineStatus, Reader, next_line, open_text};
use arrow_array::builder::{Float64Builder, Int32Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

/// Maximum bytes of a line of the file.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Maximum rows of a record batch.
const BATCH_ROWS: usize = 8192;

/// The format of a file of intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalFormat {
    /// The format BED.
    Bed,
    /// The format GFF3 or GTF.
    Gff,
}

/// A reason why a file is not valid BED or GFF.
#[derive(Debug, thiserror::Error)]
pub enum IntervalError {
    /// The file cannot be read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// A line of the file is not a valid line of its format.
    #[error("{}, line {line}: {problem}", .path.display())]
    Line {
        /// Path of the BED or GFF file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// Description of the problem.
        problem: &'static str,
    },
    /// The columns of a batch do not fit its schema, which is a bug in godwit.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[from] ArrowError),
}

impl IntervalFormat {
    /// Returns the schema of the record batches. The columns for BED are `contig`, `position`, `end_position`, `name`,
    /// `score`, `strand`, and `other_columns`, which holds the unparsed fields after the sixth with their tabs. The
    /// columns for GFF are `contig`, `source`, `type`, `position`, `end_position`, `score`, `strand`, `phase`,
    /// `attributes`. A missing value, or `.`, is null.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_formats::intervals::IntervalFormat;
    ///
    /// let schema = IntervalFormat::Gff.schema();
    /// let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    /// assert_eq!(names[..5], ["contig", "source", "type", "position", "end_position"]);
    /// ```
    pub fn schema(self) -> SchemaRef {
        let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
        let position_field = |name: &str| Field::new(name, DataType::Int32, false);
        let score = Field::new("score", DataType::Float64, true);
        Arc::new(Schema::new(match self {
            Self::Bed => vec![
                text("contig", false),
                position_field("position"),
                position_field("end_position"),
                text("name", true),
                score,
                text("strand", true),
                text("other_columns", true),
            ],
            Self::Gff => vec![
                text("contig", false),
                text("source", true),
                text("type", true),
                position_field("position"),
                position_field("end_position"),
                score,
                text("strand", true),
                Field::new("phase", DataType::Int32, true),
                text("attributes", true),
            ],
        }))
    }
}

/// The interval of a line of a BED or GFF file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval<'l> {
    /// Name of the contig.
    pub contig: &'l str,
    /// 0-based position of the first base.
    pub start: i32,
    /// 0-based position after the last base.
    pub end: i32,
    line: &'l str,
}

/// A reader of BED and GFF files that returns record batches.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_array::cast::AsArray;
/// use arrow_array::types::Float64Type;
/// use godwit_formats::intervals::{IntervalFormat, IntervalReader};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("exons.bed");
/// std::fs::write(&path, "chr20\t999\t2000\texon1\t7.5\t+\n")?;
/// let mut reader = IntervalReader::open(&path, IntervalFormat::Bed)?;
/// let batch = reader.next_batch(|_| true)?.unwrap();
/// assert_eq!(batch["name"].as_string::<i32>().value(0), "exon1");
/// assert_eq!(batch["score"].as_primitive::<Float64Type>().value(0), 7.5);
/// assert!(reader.next_batch(|_| true)?.is_none());
/// # Ok(())
/// # }
/// ```
pub struct IntervalReader {
    input: Reader,
    format: IntervalFormat,
    line: Vec<u8>,
    line_number: u64,
    ended: bool,
}

impl IntervalReader {
    /// Opens a BED or GFF file.
    ///
    /// # Errors
    /// [`IntervalError::Bgzf`] if the file cannot be opened.
    pub fn open(path: &Path, format: IntervalFormat) -> Result<Self, IntervalError> {
        Ok(Self::new(open_text(path, 1)?, format))
    }

    /// Creates a reader of an open file from which nothing has been consumed.
    pub fn new(input: Reader, format: IntervalFormat) -> Self {
        Self { input, format, line: Vec::new(), line_number: 0, ended: false }
    }

    /// Returns a batch of the next lines for which `predicate` is true, or `None` at the end of the file.
    ///
    /// # Errors
    /// [`IntervalError`] if the file cannot be read or a line is invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use arrow_array::cast::AsArray;
    /// use arrow_array::types::Int32Type;
    /// use godwit_formats::intervals::{IntervalFormat, IntervalReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("genes.gff3");
    /// let genes = "chr19\t.\tgene\t1\t9\t.\t+\t.\tID=g1\nchr20\t.\tgene\t1000\t2000\t.\t-\t.\tID=g2\n";
    /// std::fs::write(&path, genes)?;
    /// let mut reader = IntervalReader::open(&path, IntervalFormat::Gff)?;
    /// let batch = reader.next_batch(|interval| interval.contig == "chr20")?.unwrap();
    /// assert_eq!(batch.num_rows(), 1);
    /// assert_eq!(batch["position"].as_primitive::<Int32Type>().value(0), 999);
    /// assert_eq!(batch["attributes"].as_string::<i32>().value(0), "ID=g2");
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_batch(&mut self, predicate: impl Fn(&Interval) -> bool) -> Result<Option<RecordBatch>, IntervalError> {
        let mut columns = IntervalBatchBuilder::default();
        while columns.row_count < BATCH_ROWS && self.read_line()? {
            let line_error =
                |problem| IntervalError::Line { path: self.input.path().to_owned(), line: self.line_number, problem };
            let text = std::str::from_utf8(&self.line).map_err(|_| line_error("it is not UTF-8 text"))?;
            if let Some(interval) = parse_line(text, self.format).map_err(line_error)?
                && predicate(&interval)
            {
                columns.push(&interval, self.format);
            }
        }
        if columns.row_count == 0 {
            return Ok(None);
        }
        Ok(Some(RecordBatch::try_new(self.format.schema(), columns.finish(self.format))?))
    }

    /// Reads the next line. Returns false at the end of the file, or at the `##FASTA` line that ends the intervals of a
    /// GFF file.
    fn read_line(&mut self) -> Result<bool, IntervalError> {
        if self.ended {
            return Ok(false);
        }
        let found = next_line(&mut self.input, &mut self.line, MAX_LINE_BYTES)?;
        self.line_number += 1;
        if found == LineStatus::TooLong {
            let (path, line) = (self.input.path().to_owned(), self.line_number);
            return Err(IntervalError::Line { path, line, problem: "it is longer than 16 MiB" });
        }
        let is_fasta = self.format == IntervalFormat::Gff && self.line.starts_with(b"##FASTA");
        self.ended = found == LineStatus::End || is_fasta;
        Ok(!self.ended)
    }
}

/// Returns the interval of a line, or `None` if the line is blank, a comment, or a `track` or `browser` line.
fn parse_line(line: &str, format: IntervalFormat) -> Result<Option<Interval<'_>>, &'static str> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let is_for_browsers = ["track ", "browser "].iter().any(|word| line.starts_with(word)) || line == "track";
    if line.is_empty() || line.starts_with('#') || is_for_browsers {
        return Ok(None);
    }
    let mut fields = line.split('\t');
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i32>().ok()).filter(|number| *number >= 0);
    let contig = fields.next().unwrap_or_default();
    let (start, end) = match format {
        IntervalFormat::Bed => match (number(fields.next()), number(fields.next())) {
            (Some(start), Some(end)) => (start, end),
            _ => return Err("a contig, a start and an end are expected, separated by tabs"),
        },
        IntervalFormat::Gff => {
            let (first_1based, last) = (number(fields.nth(2)), number(fields.next()));
            match (first_1based.and_then(|first| first.checked_sub(1)), last) {
                (Some(start), Some(end)) if start >= 0 => (start, end),
                _ => return Err("nine fields separated by tabs are expected; the fourth and fifth are numbers from 1"),
            }
        }
    };
    if contig.is_empty() {
        return Err("it has no contig");
    }
    if start > end {
        return Err("its start is after its end");
    }
    Ok(Some(Interval { contig, start, end, line }))
}

#[derive(Default)]
struct IntervalBatchBuilder {
    row_count: usize,
    contig: StringBuilder,
    start: Int32Builder,
    end: Int32Builder,
    name: StringBuilder,
    source: StringBuilder,
    feature_type: StringBuilder,
    score: Float64Builder,
    strand: StringBuilder,
    phase: Int32Builder,
    last_column: StringBuilder,
}

impl IntervalBatchBuilder {
    fn push(&mut self, interval: &Interval, format: IntervalFormat) {
        self.row_count += 1;
        self.contig.append_value(interval.contig);
        self.start.append_value(interval.start);
        self.end.append_value(interval.end);
        let present = |text: Option<&'_ str>| text.filter(|text| !text.is_empty() && *text != ".").map(str::to_owned);
        match format {
            IntervalFormat::Bed => {
                let mut fields = interval.line.splitn(7, '\t').skip(3);
                self.name.append_option(present(fields.next()));
                self.score.append_option(present(fields.next()).and_then(|text| text.parse().ok()));
                self.strand.append_option(present(fields.next()));
                self.last_column.append_option(fields.next().filter(|rest| !rest.is_empty()));
            }
            IntervalFormat::Gff => {
                let mut fields = interval.line.splitn(9, '\t').skip(1);
                self.source.append_option(present(fields.next()));
                self.feature_type.append_option(present(fields.next()));
                let mut fields = fields.skip(2);
                self.score.append_option(present(fields.next()).and_then(|text| text.parse().ok()));
                self.strand.append_option(present(fields.next()));
                self.phase.append_option(present(fields.next()).and_then(|text| text.parse().ok()));
                self.last_column.append_option(present(fields.next()));
            }
        }
    }

    fn finish(&mut self, format: IntervalFormat) -> Vec<ArrayRef> {
        let contig: ArrayRef = Arc::new(self.contig.finish());
        let positions: [ArrayRef; 2] = [Arc::new(self.start.finish()), Arc::new(self.end.finish())];
        let score: ArrayRef = Arc::new(self.score.finish());
        let (strand, rest): (ArrayRef, ArrayRef) =
            (Arc::new(self.strand.finish()), Arc::new(self.last_column.finish()));
        let [start, end] = positions;
        match format {
            IntervalFormat::Bed => vec![contig, start, end, Arc::new(self.name.finish()), score, strand, rest],
            IntervalFormat::Gff => {
                let (source, kind) = (Arc::new(self.source.finish()), Arc::new(self.feature_type.finish()));
                vec![contig, source, kind, start, end, score, strand, Arc::new(self.phase.finish()), rest]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;

    use super::*;

    fn read(text: &str, format: IntervalFormat) -> Result<Option<RecordBatch>, IntervalError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, text).unwrap();
        IntervalReader::open(&path, format)?.next_batch(|_| true)
    }

    #[test]
    fn positions_of_both_formats_are_zero_based_and_half_open() {
        let bed = "track name=x\nchr1\t0\t10\tn\t5.5\t+\t1\t2\r\n\n# c\nchr2\t7\t7\n";
        let batch = read(bed, IntervalFormat::Bed).unwrap().unwrap();
        assert_eq!(batch.column(1).as_primitive::<Int32Type>().values()[..], [0, 7]);
        assert_eq!(batch.column(6).as_string::<i32>().value(0), "1\t2");
        assert_eq!(batch.column(3).null_count(), 1);
        let gff = "##gff-version 3\nchr1\tx\tgene\t1\t10\t.\t-\t.\tID=a;N=b\n##FASTA\n>chr1\nACGT\n";
        let batch = read(gff, IntervalFormat::Gff).unwrap().unwrap();
        assert_eq!(batch.num_rows(), 1);
        assert_eq!(
            (
                batch.column(3).as_primitive::<Int32Type>().value(0),
                batch.column(4).as_primitive::<Int32Type>().value(0)
            ),
            (0, 10)
        );
        assert_eq!(batch.column(8).as_string::<i32>().value(0), "ID=a;N=b");
        assert!(read("# nothing\n", IntervalFormat::Bed).unwrap().is_none());
    }

    #[test]
    fn what_is_neither_is_named_by_line() {
        for (text, format, expected) in [
            ("chr1\t5\n", IntervalFormat::Bed, "line 1: a contig"),
            ("chr1\t0\t1\nchr1\t9\t5\n", IntervalFormat::Bed, "line 2: its start"),
            ("chr1\tx\tgene\t0\t10\t.\t-\t.\tID=a\n", IntervalFormat::Gff, "line 1: nine fields"),
            ("chr1\tx\n", IntervalFormat::Gff, "line 1: nine fields"),
        ] {
            let found = read(text, format).unwrap_err().to_string();
            assert!(found.contains(expected), "{text:?}: {found}");
        }
    }
}
