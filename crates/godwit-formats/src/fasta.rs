//! FASTA references: bases of each contig as a stream, and the `.fai` index.
//!
//! Flows in: a FASTA file, plain, gzip or BGZF. Flows out: names and runs of bases in the order of the file
//! ([`Reader`]), and [`FaiRecord`]s. Where samtools drops or repairs (contigs without bases, names used twice, other
//! bytes than letters), this refuses, because an aligner's index would count contigs differently. [`Windows`] reads
//! stretches of a plain file in between.

mod error;
mod reader;
mod windows;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::Path;

pub use error::FastaError;
pub use reader::Reader;
pub use windows::Windows;

/// One line of a `.fai` file: where a contig's bases lie in a plain FASTA file.
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
    /// Whether a file can have such a contig: a line end has up to two bytes, and no offset is beyond all files.
    fn is_possible(&self) -> bool {
        let line_ends = self.line_bytes.checked_sub(self.line_bases).is_some_and(|bytes| bytes <= 2);
        // Twice: one byte of line end for each base, and more than any base is away from the first.
        let last = self.bases.checked_mul(3).and_then(|bytes| bytes.checked_add(self.offset));
        line_ends && (self.line_bases > 0 || self.bases == 0) && last.is_some_and(|last| i64::try_from(last).is_ok())
    }
}

/// The `.fai` of a plain FASTA file, in one pass.
///
/// # Errors
/// [`FastaError`]; [`FastaError::Compressed`] for a compressed file, whose offsets would be of no use.
pub fn index(path: &Path) -> Result<Vec<FaiRecord>, FastaError> {
    let mut is_plain = true;
    let records = index_with(path, |event| {
        if let IndexEvent::Start { compressed: true } = event {
            is_plain = false;
        }
        is_plain
    })?;
    if is_plain { Ok(records) } else { Err(FastaError::Compressed { path: path.to_owned() }) }
}

/// What is met while a file is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexEvent<'b> {
    /// A contig starts.
    Start {
        /// Whether the file is compressed.
        compressed: bool,
    },
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
        if !see(IndexEvent::Start { compressed: !reader.is_plain() }) {
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
