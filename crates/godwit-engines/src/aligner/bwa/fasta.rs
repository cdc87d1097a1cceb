//! Streams a FASTA file, plain or gzip: names and runs of bases, nothing held whole.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use memchr::memchr;

use super::index::IndexError;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// First bytes of a gzip member (RFC 1952 §2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What a FASTA file is made of.
pub(super) enum Piece<'a> {
    /// A contig starts; its name up to the first white space.
    Name(&'a [u8]),
    /// More bases of it, as in the file.
    Bases(&'a [u8]),
}

/// Passes the pieces of a file to `take` in order until it says stop by an error of its own.
///
/// As in bwa every byte of a sequence line is a base, but for line ends (LF or CRLF).
pub(super) fn read<E: From<IndexError>>(path: &Path, mut take: impl FnMut(Piece) -> Result<(), E>) -> Result<(), E> {
    let failed = |source| IndexError::read(path, source);
    let mut source = open(path).map_err(failed)?;
    let mut line = Line::Start;
    let mut header = Vec::new();
    let mut seen_name = false;
    loop {
        let buffer = source.fill_buf().map_err(failed)?;
        if buffer.is_empty() {
            break;
        }
        let newline = memchr(b'\n', buffer);
        let text = &buffer[..newline.unwrap_or(buffer.len())];
        if let (Line::Start, Some(first)) = (line, text.first()) {
            line = match first {
                b'>' => Line::Header,
                b'@' | b'+' => return Err(IndexError::fasta(path, "a line starts like FASTQ").into()),
                _ if !seen_name => return Err(IndexError::fasta(path, "it does not start with >").into()),
                _ => Line::Bases { held_return: false },
            };
        }
        match &mut line {
            Line::Start => {}
            Line::Header => header.extend_from_slice(text),
            Line::Bases { held_return } => {
                // A CR counts as a base unless the line ends right behind it, which the next buffer may tell.
                if *held_return && !text.is_empty() {
                    take(Piece::Bases(b"\r"))?;
                }
                *held_return = text.last() == Some(&b'\r');
                let bases = text.strip_suffix(b"\r").unwrap_or(text);
                take(Piece::Bases(bases))?;
            }
        }
        if newline.is_some() {
            if matches!(line, Line::Header) {
                take(Piece::Name(name(&header)))?;
                header.clear();
                seen_name = true;
            }
            line = Line::Start;
        }
        let consumed = newline.map_or(buffer.len(), |newline| newline + 1);
        source.consume(consumed);
    }
    if matches!(line, Line::Header) {
        take(Piece::Name(name(&header)))?;
        seen_name = true;
    }
    if seen_name { Ok(()) } else { Err(IndexError::fasta(path, "it is empty").into()) }
}

/// The line the next byte belongs to.
#[derive(Clone, Copy)]
enum Line {
    Start,
    Header,
    Bases { held_return: bool },
}

fn name(header: &[u8]) -> &[u8] {
    let text = header.strip_prefix(b">").unwrap_or(header);
    text.split(u8::is_ascii_whitespace).next().unwrap_or_default()
}

fn open(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    if file.fill_buf()?.starts_with(&GZIP_MAGIC) {
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(file))));
    }
    Ok(Box::new(file))
}

/// Reads at most what is there; for the other file of a comparison.
pub(super) fn read_full(source: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
