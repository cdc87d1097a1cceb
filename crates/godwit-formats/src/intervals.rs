//! A reader of BED and GFF files, as intervals, or as Arrow record batches with names, scores and the other fields of a
//! line as columns.
//!
//! Flows in: BED (UCSC, 3 to 12 columns), GFF3 or GTF text; plain, gzip or BGZF. Flows out: intervals or record batches
//! with 0-based, half-open positions for both formats. White space separates the first three columns of BED. Tabs
//! separate the others if the line contains any, as UCSC recommends, so that names may contain spaces. The attributes of
//! GFF remain one text column, because their content differs between the programs that write such files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int32Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use godwit_io::bgzf::{Reader, open_text};
use godwit_model::Region;

use crate::text_lines::{TextLineError, TextLineReader};

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
    /// The file cannot be read, or a line is not a valid line of its format.
    #[error(transparent)]
    Lines(#[from] TextLineError),
    /// The file contains no interval.
    #[error("{} has no intervals", .path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
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

/// An interval `[start, end)` of a contig from one line of a BED file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BedInterval {
    /// Name of the contig.
    pub contig: String,
    /// 0-based position of the first base.
    pub start: u32,
    /// 0-based position after the last base; at most [`Region::OPEN_END`], which means the end of the contig.
    pub end: u32,
    /// 1-based number of the line of this interval in the file.
    pub line: u64,
}

/// Reads a plain, gzip or BGZF BED file, and returns its intervals in the order of the file.
///
/// # Errors
/// [`IntervalError`] if the file cannot be read, a line is invalid, or there is no interval.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::intervals::{BedInterval, read_bed};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("targets.bed");
/// std::fs::write(&path, "track name=targets\nchr20\t999\t2000\texon1\n")?;
/// let intervals = read_bed(&path)?;
/// assert_eq!(intervals, [BedInterval { contig: "chr20".to_owned(), start: 999, end: 2000, line: 2 }]);
/// # Ok(())
/// # }
/// ```
pub fn read_bed(path: &Path) -> Result<Vec<BedInterval>, IntervalError> {
    read_bed_from(open_text(path, 1).map_err(TextLineError::from)?)
}

/// Reads a BED file from an open reader, as [`read_bed`] does from a path.
///
/// # Errors
/// [`IntervalError`] if the file cannot be read, a line is invalid, or there is no interval.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_io::bgzf;
/// use godwit_formats::intervals::read_bed_from;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("targets.bed.gz");
/// let mut file = bgzf::Writer::new(std::fs::File::create(&path)?, 6);
/// file.write_bytes(b"chr20\t999\t2000\nchrM\t0\t16569\n")?;
/// file.finish_file()?;
/// let intervals = read_bed_from(bgzf::open_text(&path, 1)?)?;
/// assert_eq!((intervals[1].contig.as_str(), intervals[1].end), ("chrM", 16_569));
/// # Ok(())
/// # }
/// ```
pub fn read_bed_from(input: Reader) -> Result<Vec<BedInterval>, IntervalError> {
    let mut reader = IntervalReader::new(input, IntervalFormat::Bed);
    let mut intervals = Vec::new();
    while reader.read_line()? {
        if let Some(Interval { contig, start, end, .. }) = reader.parse_interval()? {
            let (contig, line) = (contig.to_owned(), reader.lines.line_number());
            intervals.push(BedInterval { contig, start: start as u32, end: end as u32, line });
        }
    }
    if intervals.is_empty() {
        return Err(IntervalError::Empty { path: reader.lines.path().to_owned() });
    }
    Ok(intervals)
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
    lines: TextLineReader,
    format: IntervalFormat,
    ended: bool,
}

impl IntervalReader {
    /// Opens a BED or GFF file.
    ///
    /// # Errors
    /// [`IntervalError::Lines`] if the file cannot be opened.
    pub fn open(path: &Path, format: IntervalFormat) -> Result<Self, IntervalError> {
        Ok(Self::new(open_text(path, 1).map_err(TextLineError::from)?, format))
    }

    /// Creates a reader of an open file from which nothing has been consumed.
    pub fn new(input: Reader, format: IntervalFormat) -> Self {
        Self { lines: TextLineReader::new(input), format, ended: false }
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
            if let Some(interval) = self.parse_interval()?
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
        let found = self.lines.read_line()?;
        let is_fasta = self.format == IntervalFormat::Gff && self.lines.bytes().starts_with(b"##FASTA");
        self.ended = !found || is_fasta;
        Ok(!self.ended)
    }

    /// Returns the interval of the line that was read last; `None` if it has none.
    fn parse_interval(&self) -> Result<Option<Interval<'_>>, IntervalError> {
        let parsed = parse_line(self.lines.text()?, self.format);
        Ok(parsed.map_err(|problem| self.lines.error(problem))?)
    }
}

/// Returns the interval of a line, or `None` if the line is blank, a comment, or a `track` or `browser` line.
fn parse_line(line: &str, format: IntervalFormat) -> Result<Option<Interval<'_>>, &'static str> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let (word, rest) = split_word(line);
    if word.is_empty() || word.starts_with('#') || matches!(word, "track" | "browser") {
        return Ok(None);
    }
    let (contig, start, end) = match format {
        IntervalFormat::Bed => {
            // Limit the number, because some files use ends such as 4294967295 for the end of the contig.
            let number = |text: &str| Some(text.parse::<u64>().ok()?.min(u64::from(Region::OPEN_END)) as i32);
            let (start, rest) = split_word(rest);
            match (number(start), number(split_word(rest).0)) {
                (Some(start), Some(end)) => (word, start, end),
                _ => return Err("a contig, a start and an end are expected, separated by tabs"),
            }
        }
        IntervalFormat::Gff => {
            let number = |text: Option<&str>| text?.parse::<i32>().ok();
            let mut fields = line.split('\t');
            let contig = fields.next().unwrap_or_default();
            match (number(fields.nth(2)), number(fields.next())) {
                (Some(first_1based), Some(end)) if first_1based >= 1 => (contig, first_1based - 1, end),
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

/// Returns the first word of a text, and the text after it, which starts with white space.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_ascii_start();
    text.split_at(text.bytes().position(|byte| byte.is_ascii_whitespace()).unwrap_or(text.len()))
}

/// Returns the first field after the first tab, and the text after that field.
fn split_field_after_tab(text: &str) -> (&str, &str) {
    let text = text.split_once('\t').map_or("", |(_, after)| after);
    text.split_at(text.find('\t').unwrap_or(text.len()))
}

/// Returns a field of a line, or `None` if it is missing.
fn present(field: &str) -> Option<&str> {
    Some(field).filter(|field| !field.is_empty() && *field != ".")
}

/// The columns of a batch of intervals that is not complete yet.
///
/// # Examples
///
/// ```
/// use godwit_formats::intervals::{IntervalBatchBuilder, IntervalFormat};
///
/// let mut columns = IntervalBatchBuilder::default();
/// columns.push_bed("chr20", 999, 2000, "\texon1\t7.5\t+", true);
/// assert_eq!((columns.row_count(), columns.finish_bed().len()), (1, IntervalFormat::Bed.schema().fields().len()));
/// ```
#[derive(Debug, Default)]
pub struct IntervalBatchBuilder {
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
    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    fn push_interval(&mut self, contig: &str, start: i32, end: i32) {
        self.row_count += 1;
        self.contig.append_value(contig);
        self.start.append_value(start);
        self.end.append_value(end);
    }

    /// Appends a line of BED with 0-based, half-open positions. `fields` is its text after the third field, which starts
    /// with white space if it is not empty; `is_tabbed`: only tabs separate these fields.
    pub fn push_bed(&mut self, contig: &str, start: i32, end: i32, fields: &str, is_tabbed: bool) {
        self.push_interval(contig, start, end);
        let mut rest = fields;
        let mut next = || {
            let (field, after) = if is_tabbed { split_field_after_tab(rest) } else { split_word(rest) };
            rest = after;
            present(field)
        };
        self.name.append_option(next());
        self.score.append_option(next().and_then(|text| text.parse().ok()));
        self.strand.append_option(next());
        self.last_column.append_option(rest.get(1..).filter(|rest| !rest.is_empty()));
    }

    fn push(&mut self, interval: &Interval, format: IntervalFormat) {
        match format {
            IntervalFormat::Bed => {
                let fields = (0..3).fold(interval.line, |rest, _| split_word(rest).1);
                let is_tabbed = interval.line.contains('\t');
                self.push_bed(interval.contig, interval.start, interval.end, fields, is_tabbed);
            }
            IntervalFormat::Gff => {
                self.push_interval(interval.contig, interval.start, interval.end);
                let mut fields = interval.line.splitn(9, '\t').skip(1);
                let mut next = |skipped: usize| fields.nth(skipped).and_then(present);
                self.source.append_option(next(0));
                self.feature_type.append_option(next(0));
                self.score.append_option(next(2).and_then(|text| text.parse().ok()));
                self.strand.append_option(next(0));
                self.phase.append_option(next(0).and_then(|text| text.parse().ok()));
                self.last_column.append_option(next(0));
            }
        }
    }

    /// Returns the columns, in the order of [`IntervalFormat::schema`] for BED.
    pub fn finish_bed(mut self) -> Vec<ArrayRef> {
        self.finish(IntervalFormat::Bed)
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
    use arrow_array::types::{Float64Type, Int32Type};

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
    fn other_columns_are_separated_by_tabs_or_else_by_spaces() {
        let bed = "chr1 \t 0 10\tmy exon\t7\t-\tx y\nchr1  20   30 n  1.5 + 20  30\nchr1\t40\t4294967295\n";
        let batch = read(bed, IntervalFormat::Bed).unwrap().unwrap();
        let texts = |column: usize| batch.column(column).as_string::<i32>().iter().collect::<Vec<_>>();
        assert_eq!(batch.column(2).as_primitive::<Int32Type>().values()[..], [10, 30, i32::MAX]);
        assert_eq!(texts(3), [Some("my exon"), Some("n"), None]);
        assert_eq!(batch.column(4).as_primitive::<Float64Type>().values()[..2], [7.0, 1.5]);
        assert_eq!(texts(5), [Some("-"), Some("+"), None]);
        assert_eq!(texts(6), [Some("x y"), Some("20  30"), None]);
    }

    fn read_intervals(text: &str) -> Result<Vec<BedInterval>, IntervalError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.bed");
        std::fs::write(&path, text).unwrap();
        read_bed(&path)
    }

    #[test]
    fn regions_are_read_and_the_rest_is_passed_over() {
        let text = "track name=x\n#c\nchr1\t0\t10\tname\t5\r\n\nchr2 7 7\nchr1\t5\t6";
        let regions = read_intervals(text).unwrap();
        let shown = |region: &BedInterval| (region.contig.clone(), region.start, region.end, region.line);
        let expected = [("chr1", 0, 10, 3), ("chr2", 7, 7, 5), ("chr1", 5, 6, 6)];
        let expected = expected.map(|(contig, start, end, line)| (contig.to_owned(), start, end, line));
        assert_eq!(regions.iter().map(shown).collect::<Vec<_>>(), expected);
        let beyond = read_intervals("chr1\t5\t4294967296\n").unwrap();
        assert_eq!(beyond[0].end, Region::OPEN_END);
    }

    #[test]
    fn what_is_no_bed_is_named_by_line() {
        for (text, expected) in [
            ("chr1\t5\n", "line 1: a contig"),
            ("chr1\t0\t1\nchr1\t-1\t5\n", "line 2: a contig"),
            ("chr1\t9\t5\n", "start is after"),
            ("# nothing\n", "has no intervals"),
            ("", "has no intervals"),
        ] {
            let found = read_intervals(text).unwrap_err().to_string();
            assert!(found.contains(expected), "{text:?}: {found}");
        }
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
