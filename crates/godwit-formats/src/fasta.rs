//! FASTA references: bases of each contig as a stream, and the `.fai` index.
//!
//! Flows in: a FASTA file, plain, gzip or BGZF. Flows out: names and runs of bases in the order of the file
//! ([`Reader`]), and [`FaiRecord`]s. Where samtools drops or repairs (contigs without bases, names used twice, other
//! bytes than letters), this refuses, because an aligner's index would count contigs differently. [`Windows`] reads
//! bases at any place, of plain text and of BGZF.

mod error;
mod reader;
mod windows;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

pub use error::FastaError;
pub use reader::Reader;
pub use windows::Windows;

use crate::bgzf::{self, BgzfText, BlockTable};
use crate::random_access::{LocalFile, RandomAccess};

/// One line of a `.fai` file: where a contig's bases lie in the text of a FASTA file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaiRecord {
    /// The title up to the first white space.
    pub name: String,
    /// Bases of the contig.
    pub bases: u64,
    /// Offset of its first base in the (uncompressed) file.
    pub offset: u64,
    /// Bases of each line but the last.
    pub line_bases: u64,
    /// Bytes of each line but the last, line end included.
    pub line_bytes: u64,
}

impl FaiRecord {
    /// Offset in the text of a base, 0-based; `None` where the contig has no lines.
    fn place(&self, base: u64) -> Option<u64> {
        let line = base.checked_div(self.line_bases)?;
        Some(self.offset + line * self.line_bytes + base % self.line_bases)
    }

    /// Whether a file can have such a contig: a line end has up to two bytes, and no offset is beyond all files.
    fn is_possible(&self) -> bool {
        let line_ends = self.line_bytes.checked_sub(self.line_bases).is_some_and(|bytes| bytes <= 2);
        // Twice: one byte of line end for each base, and more than any base is away from the first.
        let last = self.bases.checked_mul(3).and_then(|bytes| bytes.checked_add(self.offset));
        line_ends && (self.line_bases > 0 || self.bases == 0) && last.is_some_and(|last| i64::try_from(last).is_ok())
    }
}

/// The `.fai` of a FASTA file, in one pass.
///
/// # Errors
/// [`FastaError`]; [`FastaError::Compressed`] for gzip that is not BGZF, where offsets in the text are of no use.
pub fn index(path: &Path) -> Result<Vec<FaiRecord>, FastaError> {
    check_access(path)?;
    index_with(path, |_| true)
}

/// Checks that bases of a FASTA file can be read at any place: that it is plain text or BGZF. Reads only its first bytes.
///
/// # Errors
/// [`FastaError::Compressed`] for gzip that is not BGZF, [`FastaError::Bgzf`] where the file cannot be read.
pub fn check_access(path: &Path) -> Result<(), FastaError> {
    is_bgzf(path).map(drop)
}

/// The table of the blocks of a FASTA file that is BGZF; `None` for plain text.
///
/// # Errors
/// Those of [`check_access`], and [`FastaError::Bgzf`] for damaged blocks.
pub fn block_table(path: &Path) -> Result<Option<BlockTable>, FastaError> {
    match is_bgzf(path)? {
        Some(source) => Ok(Some(BlockTable::read(&source)?)),
        None => Ok(None),
    }
}

/// The text of a FASTA file, plain or BGZF, for reading at any offset.
///
/// # Errors
/// Those of [`block_table`].
pub fn open_text(path: &Path) -> Result<Arc<dyn RandomAccess>, FastaError> {
    match is_bgzf(path)? {
        Some(source) => {
            let blocks = Arc::new(BlockTable::read(&source)?);
            Ok(Arc::new(BgzfText::new(source, blocks)))
        }
        None => Ok(Arc::new(LocalFile::open(path).map_err(FastaError::opening(path))?)),
    }
}

/// The file, opened, where it is BGZF.
fn is_bgzf(path: &Path) -> Result<Option<Arc<dyn RandomAccess>>, FastaError> {
    let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(path).map_err(FastaError::opening(path))?);
    let mut magic = [0; 2];
    let count = source.read_at(&mut magic, 0).map_err(FastaError::opening(path))?;
    if magic[..count] != [0x1f, 0x8b] {
        return Ok(None);
    }
    match bgzf::starts_with_block(&source)? {
        true => Ok(Some(source)),
        false => Err(FastaError::Compressed { path: path.to_owned() }),
    }
}

/// What is met while a file is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexEvent<'b> {
    /// A contig starts.
    Start,
    /// Some of its bases.
    Bases(&'b [u8]),
    /// It ends.
    End,
}

/// The `.fai` of a FASTA file, whose offsets are those of its text, for someone who wants to see the bases go by. Stops
/// early where `see` says false.
///
/// # Errors
/// [`FastaError`].
pub fn index_with(path: &Path, mut see: impl FnMut(IndexEvent) -> bool) -> Result<Vec<FaiRecord>, FastaError> {
    let mut reader = Reader::open(path, 1)?;
    reader.require_even_lines();
    while reader.next_contig()?.is_some() {
        if !see(IndexEvent::Start) {
            break;
        }
        while let Some(bases) = reader.next_bases()? {
            see(IndexEvent::Bases(bases));
        }
        see(IndexEvent::End);
    }
    Ok(reader.into_contigs())
}

/// Writes the lines of a `.fai` file as `samtools faidx` does.
///
/// # Errors
/// Those of `out`.
pub fn write_fai(records: &[FaiRecord], mut out: impl Write) -> io::Result<()> {
    for FaiRecord { name, bases, offset, line_bases, line_bytes } in records {
        writeln!(out, "{name}\t{bases}\t{offset}\t{line_bases}\t{line_bytes}")?;
    }
    Ok(())
}

/// Reads the lines of a `.fai` file; `None` where one is something else, or of no file that there can be.
pub fn parse_fai(text: &str) -> Option<Vec<FaiRecord>> {
    let record = |line: &str| {
        let mut fields = line.split('\t');
        let name = fields.next()?.to_owned();
        let mut number = || fields.next()?.parse().ok();
        let (bases, offset, line_bases, line_bytes) = (number()?, number()?, number()?, number()?);
        let record = FaiRecord { name, bases, offset, line_bases, line_bytes };
        Some(record).filter(|record| fields.next().is_none() && record.is_possible())
    };
    text.lines().map(record).collect()
}
