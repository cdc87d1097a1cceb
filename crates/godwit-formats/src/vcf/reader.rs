//! A sequential reader of VCF and BCF files.

use std::path::Path;
use std::sync::Arc;

use godwit_io::bgzf::{self, BgzfBufRead, LineStatus, next_line};

use super::MAX_LINE_BYTES;
use super::bcf::{self, RecordDecoder};
use super::error::VcfError;
use super::header::{Header, HeaderBuilder};
use super::record::{NOT_UTF8_PROBLEM, Record};

/// Maximum bytes of a header, which allows half a million contigs. The parsed header takes ten times this memory.
pub(super) const MAX_HEADER_BYTES: usize = 32 << 20;
/// First bytes of every VCF file (VCFv4.4 §1.4.1).
const VCF_MAGIC: &[u8] = b"##fileformat=VCF";

/// A reader of a VCF file (plain, gzip or BGZF) or a BCF file; the format is detected from the content.
///
/// # Examples
///
/// ```
/// use godwit_formats::vcf::Reader;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.vcf");
/// let header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tNA12878\n";
/// std::fs::write(&path, format!("{header}chr1\t10\t.\tA\tC,AT\t50\tPASS\tDP=7\tGT\t1/2\n"))?;
/// let mut reader = Reader::open(&path, 1)?;
/// assert_eq!(reader.header().samples(), ["NA12878"]);
/// while let Some(record) = reader.next_record()? {
///     assert_eq!((record.contig, record.position), ("chr1", 9));
///     assert_eq!(record.alternates().collect::<Vec<_>>(), ["C", "AT"]);
///     assert!(record.genotype(0).is_some_and(|genotype| genotype.alleles().eq([Some(1), Some(2)])));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<I = bgzf::Reader> {
    input: I,
    header: Header,
    /// VCF text of the current line.
    line: Vec<u8>,
    /// 1-based number of the current line of VCF, or of the current record of BCF.
    record_number: u64,
    /// Decoder of BCF records; `None` for VCF.
    decoder: Option<RecordDecoder>,
}

impl Reader {
    /// Opens a VCF or BCF file and reads its header. BGZF is decompressed on `threads` threads.
    ///
    /// # Errors
    /// [`VcfError`] if the file cannot be read, or its header is invalid.
    pub fn open(path: &Path, threads: usize) -> Result<Self, VcfError> {
        Self::new(bgzf::open_text(path, threads)?)
    }
}

impl<I: BgzfBufRead> Reader<I> {
    /// Creates a reader of an open input and reads the header.
    ///
    /// # Errors
    /// [`VcfError`] if the file cannot be read, or its header is invalid.
    pub fn new(mut input: I) -> Result<Self, VcfError> {
        let start = input.data()?;
        if start.starts_with(bcf::BCF_MAGIC) {
            let (header, dictionaries) = bcf::read_header(&mut input)?;
            let decoder = Some(RecordDecoder::new(Arc::new(dictionaries)));
            return Ok(Self { input, header, line: Vec::new(), record_number: 0, decoder });
        }
        if start.is_empty() {
            return Err(VcfError::Empty { path: input.path().to_owned() });
        }
        if !start.starts_with(VCF_MAGIC) {
            return Err(VcfError::NotVcf { path: input.path().to_owned() });
        }
        let mut reader = Self { input, header: Header::default(), line: Vec::new(), record_number: 0, decoder: None };
        let mut header = HeaderBuilder::default();
        while !header.is_complete() {
            let number = reader.record_number + 1;
            let header_error =
                |path: &Path, problem: String| VcfError::Header { path: path.to_owned(), line: number, problem };
            let Some(line) = reader.read_header_line()? else {
                let problem =
                    "the file ends before the line that starts with #CHROM; fetch or create it again".to_owned();
                return Err(header_error(reader.path(), problem));
            };
            let too_long = header.text_bytes() + line.len() > MAX_HEADER_BYTES;
            let pushed = header.push_line(line);
            if too_long {
                return Err(reader.too_long_error("the header", MAX_HEADER_BYTES));
            }
            pushed.map_err(|problem| header_error(reader.path(), problem))?;
        }
        reader.header = header.finish();
        Ok(reader)
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the header, the decoder of BCF records, and the input, which is positioned after the record that was
    /// read last.
    pub(super) fn into_parts(self) -> (Header, Option<RecordDecoder>, I) {
        (self.header, self.decoder, self.input)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.input.path()
    }

    /// Returns the next record, or `None` at the end of a complete file.
    ///
    /// # Errors
    /// [`VcfError`] if the file cannot be read, or the record is invalid.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, VcfError> {
        let Some(end) = self.read_next()? else { return Ok(None) };
        match Record::parse(&self.line, self.record_number, &self.header, end) {
            Ok(record) => Ok(Some(record)),
            Err(problem) => Err(self.record_error(problem)),
        }
    }

    /// Reads the next record, and returns its line without the line end. A record of BCF is converted to a line of VCF.
    /// The columns are not checked.
    ///
    /// # Errors
    /// [`VcfError`] if the file cannot be read, or a record of BCF is invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::vcf::Reader;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.vcf");
    /// let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
    /// std::fs::write(&path, format!("##fileformat=VCFv4.2\n{columns}\nchr1\t5\t.\tA\tG\t.\t.\t.\n"))?;
    /// let mut reader = Reader::open(&path, 1)?;
    /// assert_eq!(reader.next_line()?, Some(&b"chr1\t5\t.\tA\tG\t.\t.\t."[..]));
    /// assert_eq!(reader.next_line()?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, VcfError> {
        Ok(self.read_next()?.map(|_| &self.line[..]))
    }

    /// Returns an error about the record that was read last, with a description of the problem.
    pub fn record_error(&self, problem: String) -> VcfError {
        numbered_record_error(self.decoder.is_some(), self.path(), self.record_number, problem)
    }

    /// Reads the line of the next record. Returns the end position that BCF stores for the record, or `None` at the end
    /// of the file.
    fn read_next(&mut self) -> Result<Option<Option<i32>>, VcfError> {
        let Some(decoder) = &mut self.decoder else {
            let more = read_record_line(&mut self.input, &mut self.line, &mut self.record_number)?;
            return Ok(more.then_some(None));
        };
        let found = decoder.decode_next(&mut self.input, &mut self.line)?;
        self.record_number += 1;
        let found =
            found.map_err(|problem| numbered_record_error(true, self.input.path(), self.record_number, problem))?;
        Ok(found.map(|found| found.end_position))
    }

    fn read_header_line(&mut self) -> Result<Option<&str>, VcfError> {
        if !read_line(&mut self.input, &mut self.line, &mut self.record_number)? {
            return Ok(None);
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| self.record_error(NOT_UTF8_PROBLEM.to_owned()))?;
        Ok(Some(text))
    }

    fn too_long_error(&self, subject: &'static str, limit_bytes: usize) -> VcfError {
        let (path, limit_mib) = (self.path().to_owned(), limit_bytes >> 20);
        VcfError::TooLong { path, line: self.record_number, subject, limit_mib }
    }
}

fn numbered_record_error(is_binary: bool, path: &Path, number: u64, problem: String) -> VcfError {
    let path = path.to_owned();
    if is_binary {
        VcfError::BinaryRecord { path, record: number, problem }
    } else {
        VcfError::Record { path, line: number, problem }
    }
}

/// Reads the line of the next VCF record, skipping blank lines and comments. Returns false at the end of the file.
pub(super) fn read_record_line(
    input: &mut impl BgzfBufRead,
    line: &mut Vec<u8>,
    number: &mut u64,
) -> Result<bool, VcfError> {
    while read_line(input, line, number)? {
        if !matches!(line[..], [] | [b'#', ..]) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the next line without its line end, which the last line may lack. Returns false at the end of the file.
pub(super) fn read_line(input: &mut impl BgzfBufRead, line: &mut Vec<u8>, number: &mut u64) -> Result<bool, VcfError> {
    match next_line(input, line, MAX_LINE_BYTES)? {
        LineStatus::Line => {}
        LineStatus::End => return Ok(false),
        LineStatus::TooLong => {
            let (path, limit_mib) = (input.path().to_owned(), MAX_LINE_BYTES >> 20);
            return Err(VcfError::TooLong { path, line: *number + 1, subject: "the line", limit_mib });
        }
    }
    *number += 1;
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(true)
}
