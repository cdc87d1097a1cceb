//! Writing and reading of the binary header of BAM (SAMv1 §4.2, `magic` to `l_ref`).

use std::path::Path;

use godwit_io::bgzf::BgzfBufRead;
use godwit_model::Genome;

use super::MAGIC;
use super::error::BamError;
use crate::sam::{FileHeaderError, Header, HeaderError};

/// Appends the bytes of a BAM file before its records: the magic number, the header text, and the binary list of the
/// contigs of the `@SQ` lines.
///
/// # Errors
/// [`HeaderError`] if the `@SQ` lines are not a valid genome.
///
/// # Examples
///
/// ```
/// use godwit_formats::{bam::encode_header, sam::Header};
/// let mut bytes = Vec::new();
/// encode_header(&Header::parse(b"@SQ\tSN:a\tLN:9\n")?, &mut bytes)?;
/// assert_eq!(bytes, b"BAM\x01\x0e\0\0\0@SQ\tSN:a\tLN:9\n\x01\0\0\0\x02\0\0\0a\0\x09\0\0\0");
/// # Ok::<(), godwit_formats::sam::HeaderError>(())
/// ```
pub fn encode_header(header: &Header, out: &mut Vec<u8>) -> Result<(), HeaderError> {
    let genome = header.genome()?;
    let text = header.text();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&text);
    out.extend_from_slice(&(genome.contigs().len() as u32).to_le_bytes());
    for contig in genome.contigs() {
        out.extend_from_slice(&(contig.name.len() as u32 + 1).to_le_bytes());
        out.extend_from_slice(contig.name.as_bytes());
        out.push(0);
        out.extend_from_slice(&contig.length.to_le_bytes());
    }
    Ok(())
}

/// Reads the header and the contigs from the start of a BAM file. If all `@SQ` lines, or the last of them, are missing
/// in the header text, they are created from the binary list of contigs.
///
/// # Errors
/// [`BamError`] if the file cannot be read or its header is invalid.
pub(super) fn read_header(input: &mut impl BgzfBufRead) -> Result<(Header, Genome), BamError> {
    let path = input.path().to_owned();
    HeaderReader { input, path: &path }.read_header()
}

/// A reader of the binary header of a BAM file.
struct HeaderReader<'a, I> {
    input: &'a mut I,
    path: &'a Path,
}

impl<I: BgzfBufRead> HeaderReader<'_, I> {
    fn read_header(mut self) -> Result<(Header, Genome), BamError> {
        let mut magic = Vec::new();
        self.input.append_to(&mut magic, MAGIC.len())?;
        if magic != MAGIC {
            return Err(BamError::NotBam { path: self.path.to_owned() });
        }
        let text_bytes = self.read_length("its text has an impossible length", 0)?;
        let text = self.read_bytes(text_bytes)?;
        // Some programs pad the header text with NUL bytes, so the text ends before the first NUL (htslib 1.16
        // `sam_hdr_sanitise`).
        let text_end = memchr::memchr(0, &text).unwrap_or(text.len());
        let path = self.path;
        let header_file_error = |source| FileHeaderError { path: path.to_owned(), source };
        let mut header = Header::parse(&text[..text_end]).map_err(header_file_error)?;
        let mut genome = header.genome().map_err(header_file_error)?;
        let contigs = self.read_length("it has an impossible number of contigs", 0)?;
        for index in 0..contigs.max(genome.contigs().len()) {
            let binary_contig = if index < contigs { Some(self.read_contig()?) } else { None };
            let same = match (&binary_contig, genome.contigs().get(index)) {
                (Some((name, bases)), None) => {
                    let line = [b"@SQ\tSN:", name.as_slice(), format!("\tLN:{bases}").as_bytes()].concat();
                    header.push_line(&line).map_err(header_file_error)?;
                    true
                }
                (Some((name, bases)), Some(contig)) => name == contig.name.as_bytes() && *bases == contig.length,
                (None, _) => false,
            };
            if !same {
                return Err(BamError::ContigLists { path: self.path.to_owned(), contig: index + 1 });
            }
        }
        if contigs > genome.contigs().len() {
            genome = header.genome().map_err(header_file_error)?;
        }
        Ok((header, genome))
    }

    /// Reads a contig of the binary list: its name, without the NUL byte at its end, and its length.
    fn read_contig(&mut self) -> Result<(Vec<u8>, u32), BamError> {
        let name_bytes = self.read_length("a contig's name has an impossible length", 1)?;
        let mut name = self.read_bytes(name_bytes)?;
        if name.pop() != Some(0) {
            return Err(self.header_error("a contig's name does not end with NUL"));
        }
        let bases = self.read_length("a contig has an impossible length", 0)?;
        Ok((name, bases as u32))
    }

    /// Reads a 32-bit length; fails with `detail` if it is less than `minimum`.
    fn read_length(&mut self, detail: &'static str, minimum: i32) -> Result<usize, BamError> {
        let bytes = self.read_bytes(4)?;
        let length = bytes.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
        length
            .filter(|length| *length >= minimum)
            .map(|length| length as usize)
            .ok_or_else(|| self.header_error(detail))
    }

    /// Reads `count` bytes of the header. The buffer grows with the bytes read, not with the length that the file
    /// claims.
    fn read_bytes(&mut self, count: usize) -> Result<Vec<u8>, BamError> {
        let mut bytes = Vec::new();
        if self.input.append_to(&mut bytes, count)? < count {
            return Err(BamError::TruncatedHeader { path: self.path.to_owned() });
        }
        Ok(bytes)
    }

    fn header_error(&self, detail: &'static str) -> BamError {
        BamError::BinaryHeader { path: self.path.to_owned(), detail }
    }
}
