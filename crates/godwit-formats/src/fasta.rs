//! FASTA references: a sequential reader of the bases of each contig, and the `.fai` index.
//!
//! Flows in: a FASTA file, plain, gzip or BGZF. Flows out: contig names and runs of bases in the order of the file
//! ([`Reader`]), and [`FaiRecord`]s. samtools drops or repairs contigs without bases, names used twice, and bytes other
//! than letters. This module returns an error instead, because the index of an aligner would count contigs differently.
//! [`IndexedReader`] reads bases at any position of a plain or BGZF file.

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

use godwit_io::bgzf::{self, BgzfText, BlockTable};
use godwit_io::random_access::{LocalFile, RandomAccess};

/// One record (line) of a `.fai` index: the layout of the bases of a contig in the text of a FASTA file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaiRecord {
    /// The contig name: the title line from `>` to the first white space.
    pub name: String,
    /// Number of bases of the contig.
    pub bases: u64,
    /// Offset of the first base of the contig in the uncompressed text, in bytes.
    pub offset: u64,
    /// Number of bases of each line of the contig except the last.
    pub line_bases: u64,
    /// Number of bytes of each line of the contig except the last, including the line end.
    pub line_bytes: u64,
}

impl FaiRecord {
    /// Returns the offset in the text of the base at 0-based position `base`, or `None` if the contig has no lines.
    fn base_offset(&self, base: u64) -> Option<u64> {
        let line = base.checked_div(self.line_bases)?;
        Some(self.offset + line * self.line_bytes + base % self.line_bases)
    }

    /// Returns whether the numbers are possible for a contig of a file: a line end has up to two bytes, and no offset
    /// exceeds `i64::MAX`.
    fn is_valid(&self) -> bool {
        let line_ends = self.line_bytes.checked_sub(self.line_bases).is_some_and(|bytes| bytes <= 2);
        // A base takes at most three bytes: its own byte and a line end of two bytes.
        let last = self.bases.checked_mul(3).and_then(|bytes| bytes.checked_add(self.offset));
        line_ends && (self.line_bases > 0 || self.bases == 0) && last.is_some_and(|last| i64::try_from(last).is_ok())
    }
}

/// Reads a FASTA file once and returns its `.fai` records, one for each contig.
///
/// # Errors
/// [`FastaError`]. [`FastaError::Compressed`] if the file is gzip but not BGZF, because offsets in the text are of no
/// use then.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::fasta::{FaiRecord, build_fai};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.fa");
/// std::fs::write(&path, ">chr1 first\nACGT\nAC\n>chr2\nTT\n")?;
/// let records = build_fai(&path)?;
/// let chr1 = FaiRecord { name: "chr1".to_owned(), bases: 6, offset: 12, line_bases: 4, line_bytes: 5 };
/// assert_eq!(records[0], chr1);
/// assert_eq!(records[1].offset, 26);
/// # Ok(())
/// # }
/// ```
pub fn build_fai(path: &Path) -> Result<Vec<FaiRecord>, FastaError> {
    check_random_access(path)?;
    build_fai_with(path, |_| true)
}

/// Checks from the first bytes of a FASTA file that it is plain text or BGZF, so that bases can be read at any
/// position.
///
/// # Errors
/// [`FastaError::Compressed`] if the file is gzip but not BGZF, [`FastaError::Bgzf`] if it cannot be read.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::fs::File;
/// use std::io::Write;
///
/// use godwit_formats::fasta::{FastaError, check_random_access};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.fa.gz");
/// let mut file = flate2::write::GzEncoder::new(File::create(&path)?, flate2::Compression::fast());
/// file.write_all(b">chr1\nACGT\n")?;
/// file.finish()?;
/// assert!(matches!(check_random_access(&path), Err(FastaError::Compressed { .. })));
/// # Ok(())
/// # }
/// ```
pub fn check_random_access(path: &Path) -> Result<(), FastaError> {
    open_if_bgzf(path).map(drop)
}

/// Reads the block table of a BGZF-compressed FASTA file; returns `None` if the file is plain text.
///
/// # Errors
/// The errors of [`check_random_access`], and [`FastaError::Bgzf`] if a block is damaged.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_io::bgzf;
/// use godwit_formats::fasta::read_block_table;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.fa");
/// std::fs::write(&path, ">chr1\nACGT\n")?;
/// assert_eq!(read_block_table(&path)?, None);
///
/// let mut file = bgzf::Writer::new(std::fs::File::create(&path)?, 6);
/// file.write_bytes(b">chr1\nACGT\n")?;
/// file.finish_file()?;
/// let table = read_block_table(&path)?.unwrap();
/// assert_eq!(table.virtual_offset(6), Some(6));
/// # Ok(())
/// # }
/// ```
pub fn read_block_table(path: &Path) -> Result<Option<BlockTable>, FastaError> {
    match open_if_bgzf(path)? {
        Some(source) => Ok(Some(BlockTable::read(&source)?)),
        None => Ok(None),
    }
}

/// Opens the uncompressed text of a plain or BGZF FASTA file for reading at any offset.
///
/// # Errors
/// The errors of [`read_block_table`].
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::fasta;
/// use godwit_io::bgzf;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.fa.gz");
/// let mut file = bgzf::Writer::new(std::fs::File::create(&path)?, 6);
/// file.write_bytes(b">chr1\nACGTAC\n")?;
/// file.finish_file()?;
/// let text = fasta::open_text(&path)?;
/// let mut bases = [0; 4];
/// assert_eq!(text.read_at(&mut bases, 8)?, 4);
/// assert_eq!(&bases, b"GTAC");
/// # Ok(())
/// # }
/// ```
pub fn open_text(path: &Path) -> Result<Arc<dyn RandomAccess>, FastaError> {
    match open_if_bgzf(path)? {
        Some(source) => {
            let blocks = Arc::new(BlockTable::read(&source)?);
            Ok(Arc::new(BgzfText::new(source, blocks)))
        }
        None => Ok(Arc::new(LocalFile::open(path).map_err(FastaError::open_error(path))?)),
    }
}

/// Opens the file; returns `None` if it is plain text.
fn open_if_bgzf(path: &Path) -> Result<Option<Arc<dyn RandomAccess>>, FastaError> {
    let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(path).map_err(FastaError::open_error(path))?);
    let mut magic = [0; bgzf::GZIP_MAGIC.len()];
    let count = source.read_at(&mut magic, 0).map_err(FastaError::open_error(path))?;
    if magic[..count] != bgzf::GZIP_MAGIC {
        return Ok(None);
    }
    match bgzf::starts_with_block(&source)? {
        true => Ok(Some(source)),
        false => Err(FastaError::Compressed { path: path.to_owned() }),
    }
}

/// An event reported while [`build_fai_with`] reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaiEvent<'b> {
    /// The next contig starts.
    ContigStart,
    /// The next bases of the contig.
    Bases(&'b [u8]),
    /// The current contig ends.
    ContigEnd,
}

/// Returns the `.fai` records of a FASTA file, with offsets in the uncompressed text. Calls `on_event` for each contig
/// and for runs of its bases. Stops before the next contig if `on_event` returns false for its start.
///
/// # Errors
/// [`FastaError`] if the file cannot be read, is not valid FASTA, or cannot be indexed.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::fasta::{FaiEvent, build_fai_with};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.fa");
/// std::fs::write(&path, ">chr1\nACGN\nGC\n")?;
/// let mut gc_bases = 0;
/// let records = build_fai_with(&path, |event| {
///     if let FaiEvent::Bases(bases) = event {
///         gc_bases += bases.iter().filter(|base| b"CG".contains(base)).count();
///     }
///     true
/// })?;
/// assert_eq!((records[0].bases, gc_bases), (6, 4));
/// # Ok(())
/// # }
/// ```
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
/// The errors of writing to `out`.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::fasta::{FaiRecord, write_fai};
///
/// let chr_m = FaiRecord { name: "chrM".to_owned(), bases: 16_569, offset: 6, line_bases: 70, line_bytes: 71 };
/// let mut text = Vec::new();
/// write_fai(&[chr_m], &mut text)?;
/// assert_eq!(text, b"chrM\t16569\t6\t70\t71\n");
/// # Ok(())
/// # }
/// ```
pub fn write_fai(records: &[FaiRecord], mut out: impl Write) -> io::Result<()> {
    for FaiRecord { name, bases, offset, line_bases, line_bytes } in records {
        writeln!(out, "{name}\t{bases}\t{offset}\t{line_bases}\t{line_bytes}")?;
    }
    Ok(())
}

/// Parses the text of a `.fai` file. Returns `None` if a line is not a `.fai` record, or describes a file that cannot
/// exist.
///
/// # Examples
///
/// ```
/// use godwit_formats::fasta::parse_fai;
///
/// let records = parse_fai("chrM\t16569\t6\t70\t71\n").unwrap();
/// assert_eq!((records[0].name.as_str(), records[0].bases), ("chrM", 16_569));
/// // A line cannot have more bases than bytes.
/// assert_eq!(parse_fai("chrM\t16569\t6\t71\t70\n"), None);
/// ```
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
