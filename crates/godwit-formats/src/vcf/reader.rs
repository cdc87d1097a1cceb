//! VCF files from front to back.

use std::path::{Path, PathBuf};

use memchr::memchr;

use super::error::VcfError;
use super::header::{Header, HeaderLines};
use super::record::Record;
use crate::bgzf::{self, Unpacked};

/// Longest line taken: 60 bytes for each of two million samples.
const MAX_LINE_BYTES: usize = 128 << 20;
/// Longest header taken: half a million contigs. What is made of it takes ten times the memory.
const MAX_HEADER_BYTES: usize = 32 << 20;
/// What every VCF file starts with (VCFv4.4 §1.4.1).
const START: &[u8] = b"##fileformat=VCF";

/// Reads a VCF file, plain, gzip or BGZF, told apart by content.
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
    /// Its 1-based number.
    number: u64,
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
        if start.starts_with(b"BCF") {
            return Err(VcfError::Bcf { path });
        }
        if !start.starts_with(START) {
            return Err(VcfError::NotVcf { path });
        }
        let mut reader = Self { input, path, header: Header::default(), line: Vec::new(), number: 0 };
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

    /// The header, and what is read, standing behind the record that was read last.
    pub(super) fn into_parts(self) -> (Header, I) {
        (self.header, self.input)
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
        let Self { input, path, header, line, number } = self;
        match read_line(input, path, line, number)? {
            None => Ok(None),
            Some(text) => match Record::parse(text, *number, header) {
                Ok(record) => Ok(Some(record)),
                Err(problem) => Err(VcfError::Record { path: path.clone(), line: *number, problem }),
            },
        }
    }

    /// An error about the record that was read last.
    pub fn record_error(&self, problem: String) -> VcfError {
        VcfError::Record { path: self.path.clone(), line: self.number, problem }
    }

    fn next_line(&mut self) -> Result<Option<&str>, VcfError> {
        read_line(&mut self.input, &self.path, &mut self.line, &mut self.number)
    }

    fn too_long(&self, what: &'static str, limit_bytes: usize) -> VcfError {
        VcfError::TooLong { path: self.path.clone(), line: self.number, what, limit_mib: limit_bytes >> 20 }
    }
}

/// The next line without its end, which the last one may lack.
pub(super) fn read_line<'l>(
    input: &mut impl Unpacked,
    path: &Path,
    line: &'l mut Vec<u8>,
    number: &mut u64,
) -> Result<Option<&'l str>, VcfError> {
    line.clear();
    let mut ended = false;
    let mut any = false;
    while !ended {
        let data = input.data()?;
        if data.is_empty() {
            break;
        }
        any = true;
        let end = memchr(b'\n', data);
        let take = end.unwrap_or(data.len());
        if line.len() + take > MAX_LINE_BYTES {
            let limit_mib = MAX_LINE_BYTES >> 20;
            return Err(VcfError::TooLong { path: path.to_owned(), line: *number + 1, what: "the line", limit_mib });
        }
        line.extend_from_slice(&data[..take]);
        ended = end.is_some();
        input.consume(take + usize::from(ended));
    }
    if !any {
        return Ok(None);
    }
    *number += 1;
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    match std::str::from_utf8(line) {
        Ok(text) => Ok(Some(text)),
        Err(_) => {
            let problem = "it is not UTF-8 text; convert the file, as with iconv".to_owned();
            Err(VcfError::Record { path: path.to_owned(), line: *number, problem })
        }
    }
}
