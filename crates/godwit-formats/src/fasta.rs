//! FASTA references: bases of each contig as a stream, and the `.fai` index.
//!
//! Flows in: a FASTA file, plain, gzip or BGZF. Flows out: names and runs of bases in the order of the file ([`Reader`]),
//! and [`FaiRecord`]s. Where samtools drops or repairs (contigs without bases, names used twice, other bytes than letters),
//! this module fails, because an aligner's index would count contigs differently. [`IndexedReader`] reads bases at any
//! position, of plain text and of BGZF.

mod error;
mod indexed_reader;
mod reader;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

pub use error::FastaError;
pub use indexed_reader::IndexedReader;
pub use reader::Reader;

use crate::bgzf::{self, BgzfText, BlockTable};
use crate::random_access::{LocalFile, RandomAccess};

/// One line of a `.fai` file: the layout of a contig's bases in the text of a FASTA file.
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
    /// Returns the offset in the text of a base, 0-based; `None` where the contig has no lines.
    fn base_offset(&self, base: u64) -> Option<u64> {
        let line = base.checked_div(self.line_bases)?;
        Some(self.offset + line * self.line_bytes + base % self.line_bases)
    }

    /// Reports whether a file can have such a contig: a line end has up to two bytes, and no offset exceeds `i64::MAX`.
    fn is_valid(&self) -> bool {
        let line_ends = self.line_bytes.checked_sub(self.line_bases).is_some_and(|bytes| bytes <= 2);
        // At most three bytes a base: the base and two bytes of line end.
        let last = self.bases.checked_mul(3).and_then(|bytes| bytes.checked_add(self.offset));
        line_ends && (self.line_bases > 0 || self.bases == 0) && last.is_some_and(|last| i64::try_from(last).is_ok())
    }
}

/// Returns the `.fai` records of a FASTA file, in one pass.
///
/// # Errors
/// [`FastaError`]; [`FastaError::Compressed`] for gzip that is not BGZF, where offsets in the text are of no use.
pub fn build_fai(path: &Path) -> Result<Vec<FaiRecord>, FastaError> {
    check_random_access(path)?;
    build_fai_with(path, |_| true)
}

/// Checks that bases of a FASTA file can be read at any position: that it is plain text or BGZF. Reads only its first
/// bytes.
///
/// # Errors
/// [`FastaError::Compressed`] for gzip that is not BGZF, [`FastaError::Bgzf`] where the file cannot be read.
pub fn check_random_access(path: &Path) -> Result<(), FastaError> {
    open_if_bgzf(path).map(drop)
}

/// Reads the table of the blocks of a FASTA file in BGZF; returns `None` for plain text.
///
/// # Errors
/// Those of [`check_random_access`], and [`FastaError::Bgzf`] for damaged blocks.
pub fn read_block_table(path: &Path) -> Result<Option<BlockTable>, FastaError> {
    match open_if_bgzf(path)? {
        Some(source) => Ok(Some(BlockTable::read(&source)?)),
        None => Ok(None),
    }
}

/// Opens the text of a FASTA file, plain or BGZF, for reading at any offset.
///
/// # Errors
/// Those of [`read_block_table`].
pub fn open_text(path: &Path) -> Result<Arc<dyn RandomAccess>, FastaError> {
    match open_if_bgzf(path)? {
        Some(source) => {
            let blocks = Arc::new(BlockTable::read(&source)?);
            Ok(Arc::new(BgzfText::new(source, blocks)))
        }
        None => Ok(Arc::new(LocalFile::open(path).map_err(FastaError::open_error(path))?)),
    }
}

/// Opens the file; returns `None` where it is not BGZF.
fn open_if_bgzf(path: &Path) -> Result<Option<Arc<dyn RandomAccess>>, FastaError> {
    let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(path).map_err(FastaError::open_error(path))?);
    let mut magic = [0; 2];
    let count = source.read_at(&mut magic, 0).map_err(FastaError::open_error(path))?;
    if magic[..count] != [0x1f, 0x8b] {
        return Ok(None);
    }
    match bgzf::starts_with_block(&source)? {
        true => Ok(Some(source)),
        false => Err(FastaError::Compressed { path: path.to_owned() }),
    }
}

/// An event while a file is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaiEvent<'b> {
    /// A contig starts.
    ContigStart,
    /// Bases of the contig.
    Bases(&'b [u8]),
    /// The contig ends.
    ContigEnd,
}

/// Returns the `.fai` records of a FASTA file, whose offsets are those of its text, and calls `on_event` for its contigs
/// and bases. Stops early where `on_event` returns false.
///
/// # Errors
/// [`FastaError`].
pub fn build_fai_with(path: &Path, mut on_event: impl FnMut(FaiEvent) -> bool) -> Result<Vec<FaiRecord>, FastaError> {
    let mut reader = Reader::open(path, 1)?;
    reader.require_even_lines();
    while reader.next_contig()?.is_some() {
        if !on_event(FaiEvent::ContigStart) {
            break;
        }
        while let Some(bases) = reader.next_bases()? {
            on_event(FaiEvent::Bases(bases));
        }
        on_event(FaiEvent::ContigEnd);
    }
    Ok(reader.into_fai_records())
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

/// Parses the lines of a `.fai` file; returns `None` where one is something else, or describes a file that cannot exist.
pub fn parse_fai(text: &str) -> Option<Vec<FaiRecord>> {
    let record = |line: &str| {
        let mut fields = line.split('\t');
        let name = fields.next()?.to_owned();
        let mut number = || fields.next()?.parse().ok();
        let (bases, offset, line_bases, line_bytes) = (number()?, number()?, number()?, number()?);
        let record = FaiRecord { name, bases, offset, line_bases, line_bytes };
        Some(record).filter(|record| fields.next().is_none() && record.is_valid())
    };
    text.lines().map(record).collect()
}
