//! Text files that may be plain, gzip or BGZF.

use std::fs::File;
use std::io::{self, Chain, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::Reader;
use super::block::block_bytes;
use super::error::BgzfError;

/// Bytes that tell plain text, gzip and BGZF apart: more than the header of any usual writer.
const SNIFFED_BYTES: u64 = 512;

/// The text of a file, decompressed on the way.
pub enum TextReader {
    /// Not compressed.
    Plain(Chain<Cursor<Vec<u8>>, File>),
    /// One or more gzip members.
    Gzip(Box<MultiGzDecoder<Chain<Cursor<Vec<u8>>, File>>>),
    /// BGZF. The text ends with an error where the file lacks its end-of-file block.
    Bgzf(Reader),
}

/// Opens a text file, telling its compression by content. BGZF is decompressed on that many threads of its own.
///
/// # Errors
/// [`BgzfError::Io`], [`BgzfError::Thread`].
pub fn open_text(path: &Path, threads: usize) -> Result<TextReader, BgzfError> {
    let failed = |source| BgzfError::Io { path: path.to_owned(), offset: 0, source };
    let mut file = File::open(path).map_err(failed)?;
    let mut head = Vec::new();
    file.by_ref().take(SNIFFED_BYTES).read_to_end(&mut head).map_err(failed)?;
    let (gzip, bgzf) = (head.starts_with(&[0x1f, 0x8b]), matches!(block_bytes(&head), Ok(Some(_))));
    let input = Cursor::new(head).chain(file);
    Ok(match (bgzf, gzip) {
        (true, _) => TextReader::Bgzf(Reader::new(input, path, threads)?),
        (false, true) => TextReader::Gzip(Box::new(MultiGzDecoder::new(input))),
        (false, false) => TextReader::Plain(input),
    })
}

impl TextReader {
    /// Whether the file is not compressed, so that offsets in the text are offsets in the file.
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

impl Read for TextReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.read(buffer),
            Self::Gzip(input) => input.read(buffer),
            Self::Bgzf(input) => {
                let bytes = input.read(buffer)?;
                if bytes == 0 && !buffer.is_empty() {
                    input.require_eof_block().map_err(io::Error::other)?;
                }
                Ok(bytes)
            }
        }
    }
}

impl std::fmt::Debug for TextReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextReader").field("plain", &self.is_plain()).finish_non_exhaustive()
    }
}
