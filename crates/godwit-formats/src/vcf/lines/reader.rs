//! A reader of VCF text from untrusted programs: the header, then the records.

use std::io::BufRead;

use super::super::MAX_LINE_BYTES;
use super::Header;
use super::error::{VcfLinesError, excerpt};

/// Number of columns before `FORMAT` and the sample columns.
const FIXED_COLUMN_COUNT: usize = 8;

/// A VCF record: the bytes that the variant caller wrote, and the interval of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'l> {
    /// Line of the record, without its line feed.
    pub line: &'l [u8],
    /// Name of the contig (`CHROM`).
    pub contig: &'l str,
    /// 0-based position of the first base; -1 for a record at the telomere (`POS` 0).
    pub start: i64,
    /// 0-based position after the last base of `REF`, or after `INFO/END` if present; greater than `start`.
    pub end: i64,
}

/// A reader of VCF text from untrusted programs, line by line.
///
/// # Examples
///
/// ```
/// use godwit_formats::vcf::lines::Reader;
/// let text = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\nchr1\t10\t.\tAC\tA\t.\t.\t.\n";
/// let mut reader = Reader::new(text.as_bytes())?;
/// assert_eq!(reader.header().samples().count(), 0);
/// let record = reader.next_record()?.ok_or("it has one")?;
/// assert_eq!((record.contig, record.start, record.end), ("chr1", 9, 11));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    column_count: usize,
    line: Vec<u8>,
    /// 1-based number of the line in `line`.
    line_number: u64,
}

impl<R: BufRead> Reader<R> {
    /// Creates a reader and reads the header of the VCF text.
    ///
    /// # Errors
    /// [`VcfLinesError`] if the text cannot be read, or the header is invalid or incomplete.
    pub fn new(input: R) -> Result<Self, VcfLinesError> {
        let mut reader = Self { input, header: Header::default(), column_count: 0, line: Vec::new(), line_number: 0 };
        let mut lines = Vec::new();
        loop {
            if !reader.read_line()? {
                return Err(if reader.line_number == 0 {
                    VcfLinesError::Empty
                } else {
                    VcfLinesError::NoColumns { line: reader.line_number + 1 }
                });
            }
            let line = &reader.line;
            if reader.line_number == 1 && !line.starts_with(b"##fileformat=VCF") {
                return Err(VcfLinesError::NotVcf { text: excerpt(line) });
            }
            if line.starts_with(b"#CHROM\t") {
                break;
            }
            if !line.starts_with(b"##") {
                return Err(VcfLinesError::NoColumns { line: reader.line_number });
            }
            lines.push(line.clone());
        }
        reader.column_count = reader.line.split(|byte| *byte == b'\t').count();
        if reader.column_count < FIXED_COLUMN_COUNT {
            return Err(reader.record_error("a #CHROM line has at least 8 columns"));
        }
        reader.header = Header::new(lines, reader.line.clone());
        Ok(reader)
    }

    /// Returns the header of the VCF text.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the next record, or `None` at the end of the text.
    ///
    /// # Errors
    /// [`VcfLinesError`] if the text cannot be read, or the record is invalid or truncated.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, VcfLinesError> {
        if !self.read_line()? {
            return Ok(None);
        }
        let record = Record::parse(&self.line, self.column_count).map_err(|problem| self.record_error(problem))?;
        Ok(Some(record))
    }

    /// Returns an error about the line that was read last, with a description of the problem.
    pub fn record_error(&self, problem: &'static str) -> VcfLinesError {
        VcfLinesError::Record { line: self.line_number, problem, text: excerpt(&self.line) }
    }

    fn read_line(&mut self) -> Result<bool, VcfLinesError> {
        self.line.clear();
        loop {
            let ahead = self.input.fill_buf()?;
            if ahead.is_empty() {
                if self.line.is_empty() {
                    return Ok(false);
                }
                return Err(VcfLinesError::Truncated { line: self.line_number + 1 });
            }
            let newline = memchr::memchr(b'\n', ahead);
            let bytes = newline.unwrap_or(ahead.len());
            self.line.extend_from_slice(&ahead[..bytes]);
            let ended = newline.is_some();
            self.input.consume(bytes + usize::from(ended));
            if self.line.len() > MAX_LINE_BYTES {
                return Err(VcfLinesError::LineTooLong { line: self.line_number + 1, max_bytes: MAX_LINE_BYTES });
            }
            if ended {
                break;
            }
        }
        // Remove the carriage returns at the end, because lines are written again with a line feed only.
        while self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.line_number += 1;
        Ok(true)
    }
}

impl<'l> Record<'l> {
    /// Parses the line of a record that was validated before; returns `None` if the line is not a valid record.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_formats::vcf::lines::Record;
    ///
    /// let record = Record::from_line(b"chr20\t1000\t.\tN\t<DEL>\t50\tPASS\tEND=1500").unwrap();
    /// assert_eq!((record.contig, record.start, record.end), ("chr20", 999, 1500));
    /// assert_eq!(Record::from_line(b"chr20\t1000"), None);
    /// ```
    pub fn from_line(line: &'l [u8]) -> Option<Self> {
        let columns = line.iter().filter(|byte| **byte == b'\t').count() + 1;
        Self::parse(line, columns).ok()
    }

    /// Parses the fields that determine the interval of a record, and checks `REF`, `ALT`, `QUAL` and `INFO`. `columns`
    /// is the required number of columns.
    fn parse(line: &'l [u8], columns: usize) -> Result<Self, &'static str> {
        if memchr::memchr_iter(b'\t', line).count() + 1 != columns {
            return Err("its number of columns differs from that of the #CHROM line");
        }
        let mut fields = line.split(|byte| *byte == b'\t');
        let mut field = || fields.next().unwrap_or_default();
        let (contig, position, _, reference) = (field(), field(), field(), field());
        let (alternate, quality, _, info) = (field(), field(), field(), field());
        let contig = std::str::from_utf8(contig).ok().filter(|name| !name.is_empty());
        let contig = contig.ok_or("its contig is not a valid name")?;
        let pos_1based = parse_position(position).ok_or("its position is not a number")?;
        if reference.is_empty() || !reference.iter().all(u8::is_ascii_alphabetic) {
            return Err("its reference allele is not a sequence of bases");
        }
        if alternate.is_empty() || info.is_empty() {
            return Err("it has an empty column");
        }
        let is_quality = |text: &str| text == "." || text.parse::<f64>().is_ok();
        if !std::str::from_utf8(quality).is_ok_and(is_quality) {
            return Err("its quality is not a number");
        }
        let start = pos_1based - 1;
        let end = match info_end(info) {
            Some(end) => parse_position(end).ok_or("its END is not a number")?.max(start + 1),
            None => start + reference.len() as i64,
        };
        Ok(Self { line, contig, start, end })
    }
}

/// Parses a whole number from 0 to the maximum position, 2^31 - 1.
fn parse_position(digits: &[u8]) -> Option<i64> {
    let fine = !digits.is_empty() && digits.len() <= 10 && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| fine)?;
    text.parse::<i64>().ok().filter(|number| *number <= i64::from(i32::MAX))
}

/// Returns the value of the key `END` in an `INFO` field.
fn info_end(info: &[u8]) -> Option<&[u8]> {
    info.split(|byte| *byte == b';').find_map(|field| field.strip_prefix(b"END="))
}
