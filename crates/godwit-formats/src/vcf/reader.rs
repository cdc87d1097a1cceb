//! VCF and BCF files from front to back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bcf::{self, Decoder};
use super::error::VcfError;
use super::header::{Header, HeaderLines};
use super::record::{NO_TEXT, Record};
use crate::bgzf::{self, NextLine, Unpacked, next_line};

/// Longest line taken: 60 bytes for each of two million samples.
pub(super) const MAX_LINE_BYTES: usize = 128 << 20;
/// Longest header taken: half a million contigs. What is made of it takes ten times the memory.
pub(super) const MAX_HEADER_BYTES: usize = 32 << 20;
/// What every VCF file starts with (VCFv4.4 §1.4.1).
const START: &[u8] = b"##fileformat=VCF";

/// Reads a VCF file, plain, gzip or BGZF, or a BCF file, told apart by content.
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
    path: PathBuf,
    header: Header,
    /// The line being read.
    line: Vec<u8>,
    /// Its 1-based number; of BCF, that of the record.
    number: u64,
    /// `None` where it is text.
    decoder: Option<Decoder>,
}

impl Reader {
    /// Opens a file and reads its header. BGZF is decompressed on that many threads of its own.
    ///
    /// # Errors
    /// [`VcfError`].
    pub fn open(path: &Path, threads: usize) -> Result<Self, VcfError> {
        Self::new(bgzf::open_text(path, threads)?)
    }
}

impl<I: Unpacked> Reader<I> {
    /// Reads the header of what is open already.
    ///
    /// # Errors
    /// [`VcfError`].
    pub fn new(mut input: I) -> Result<Self, VcfError> {
        let path = input.path().to_owned();
        let start = input.data()?;
        if start.starts_with(bcf::START) {
            let (header, dictionaries) = bcf::read_header(&mut input)?;
            let decoder = Some(Decoder::new(Arc::new(dictionaries)));
            return Ok(Self { input, path, header, line: Vec::new(), number: 0, decoder });
        }
        if start.is_empty() {
            return Err(VcfError::Empty { path });
        }
        if !start.starts_with(START) {
            return Err(VcfError::NotVcf { path });
        }
        let mut reader = Self { input, path, header: Header::default(), line: Vec::new(), number: 0, decoder: None };
        let mut header = HeaderLines::default();
        while !header.is_complete() {
            let number = reader.number + 1;
            let header_error =
                |path: &Path, problem: String| VcfError::Header { path: path.to_owned(), line: number, problem };
            let Some(line) = reader.next_line()? else {
                let problem =
                    "the file ends before the line that starts with #CHROM; fetch or make it again".to_owned();
                return Err(header_error(&reader.path, problem));
            };
            let too_long = header.bytes() + line.len() > MAX_HEADER_BYTES;
            let pushed = header.push_line(line);
            if too_long {
                return Err(reader.too_long("the header", MAX_HEADER_BYTES));
            }
            pushed.map_err(|problem| header_error(&reader.path, problem))?;
        }
        reader.header = header.finish();
        Ok(reader)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The header, how records are decoded, and what is read, standing behind the record that was read last.
    pub(super) fn into_parts(self) -> (Header, Option<Decoder>, I) {
        (self.header, self.decoder, self.input)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next record; `None` at the end of a whole file.
    ///
    /// # Errors
    /// [`VcfError`].
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, VcfError> {
        let Some(end) = self.advance()? else { return Ok(None) };
        match Record::parse(&self.line, self.number, &self.header, end) {
            Ok(record) => Ok(Some(record)),
            Err(problem) => Err(wrong_record(self.decoder.is_some(), &self.path, self.number, problem)),
        }
    }

    /// An error about the record that was read last.
    pub fn record_error(&self, problem: String) -> VcfError {
        wrong_record(self.decoder.is_some(), &self.path, self.number, problem)
    }

    /// Reads the line of a record into place, and where BCF says that it ends; `None` at the end of the file.
    fn advance(&mut self) -> Result<Option<Option<i32>>, VcfError> {
        let Some(decoder) = &mut self.decoder else {
            let more = read_record_line(&mut self.input, &self.path, &mut self.line, &mut self.number)?;
            return Ok(more.then_some(None));
        };
        let found = decoder.next_line(&mut self.input, &mut self.line)?;
        self.number += 1;
        let found = found.map_err(|problem| wrong_record(true, &self.path, self.number, problem))?;
        Ok(found.map(|found| found.end_position))
    }

    fn next_line(&mut self) -> Result<Option<&str>, VcfError> {
        if !read_line(&mut self.input, &self.path, &mut self.line, &mut self.number)? {
            return Ok(None);
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| self.record_error(NO_TEXT.to_owned()))?;
        Ok(Some(text))
    }

    fn too_long(&self, what: &'static str, limit_bytes: usize) -> VcfError {
        VcfError::TooLong { path: self.path.clone(), line: self.number, what, limit_mib: limit_bytes >> 20 }
    }
}

fn wrong_record(is_binary: bool, path: &Path, number: u64, problem: String) -> VcfError {
    let path = path.to_owned();
    if is_binary {
        VcfError::BinaryRecord { path, record: number, problem }
    } else {
        VcfError::Record { path, line: number, problem }
    }
}

/// Reads the line of the next record: blank lines and comments are passed over. False where there is none.
pub(super) fn read_record_line(
    input: &mut impl Unpacked,
    path: &Path,
    line: &mut Vec<u8>,
    number: &mut u64,
) -> Result<bool, VcfError> {
    while read_line(input, path, line, number)? {
        if !matches!(line[..], [] | [b'#', ..]) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the next line without its end, which the last one may lack; false where there is none.
pub(super) fn read_line(
    input: &mut impl Unpacked,
    path: &Path,
    line: &mut Vec<u8>,
    number: &mut u64,
) -> Result<bool, VcfError> {
    match next_line(input, line, MAX_LINE_BYTES)? {
        NextLine::Line => {}
        NextLine::End => return Ok(false),
        NextLine::TooLong => {
            let limit_mib = MAX_LINE_BYTES >> 20;
            return Err(VcfError::TooLong { path: path.to_owned(), line: *number + 1, what: "the line", limit_mib });
        }
    }
    *number += 1;
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(true)
}
