//! FASTQ files of one lane in, Arrow batches cut into blocks out.
//!
//! Flows in: one file (single-end, or interleaved: each read followed by its mate) or two (mates in step), each plain
//! text, gzip or BGZF, told apart by content; or a SAM or BAM file of reads ([`crate::unaligned`]).
//! Flows out: [`LaneEvent`]s. Record batches of [`godwit_model::schema::reads`] in the order of the input, mates
//! interleaved, and after the last batch of each block a [`LaneEvent::BlockEnd`]. Blocks are cut as `bwa mem -K`
//! (0.7.17, `bseq_read`) cuts its batches: a read or a pair is appended, its bases are added, and the block ends when it
//! has at least [`LaneOptions::block_bases`] bases and an even number of reads.
//!
//! Names, comments and qualities are what bwa hands to its aligner: the name ends at the first white space and loses a
//! trailing `/digit`, the comment is the rest of the line, a carriage return before the line feed is no part of a
//! line, FASTA records and reads without bases have no qualities. Where bwa stops in silence or reads damaged text as
//! if it were whole, this reader refuses and names the file and the record.
//!
//! Each file is decompressed ahead, as [`crate::bgzf`] does it. This module does not cut adapters and does not judge
//! quality encodings other than Phred+33.

mod columns;
mod error;
mod layout;
mod record;
mod text;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

use self::columns::ReadColumns;
pub use self::error::{FastqError, Place};
pub(crate) use self::layout::trimmed_name;
use self::record::{Record, Records};
use crate::bgzf;
use crate::unaligned::{self, Read};

/// Most bytes of one record, title to qualities. It bounds memory on files that are no FASTQ at all, and two of them fit
/// the 32-bit offsets of a batch.
pub const MAX_RECORD_BYTES: usize = 512 << 20;

/// How a lane is read.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// Bases at which a block ends, both mates counted: bwa's `-K`.
    pub block_bases: u64,
    /// Bytes of names, comments, sequences and qualities at which a batch ends; at most [`MAX_RECORD_BYTES`] count.
    pub batch_bytes: usize,
    /// Threads that decompress BGZF, shared evenly by the files of the lane, at least one each. Plain text and gzip take
    /// one thread per file whatever stands here.
    pub decompress_threads: usize,
    /// Accept a BGZF file without its empty last block, and `+` lines whose title is not that of the record. Nothing else
    /// is relaxed.
    pub lenient: bool,
}

impl Default for LaneOptions {
    /// Blocks of 100 Mb, batches of 4 MiB, two threads, strict.
    fn default() -> Self {
        Self { block_bases: 100_000_000, batch_bytes: 4 << 20, decompress_threads: 2, lenient: false }
    }
}

/// What is open to be read as a lane.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each lane that is open")]
pub enum LaneInput {
    /// FASTQ or FASTA of single-end reads.
    Single(bgzf::Reader),
    /// FASTQ or FASTA of read 1, and of read 2.
    Pair(bgzf::Reader, bgzf::Reader),
    /// FASTQ or FASTA where each read 1 is followed by its read 2.
    Interleaved(bgzf::Reader),
    /// SAM, BAM or CRAM, whose FLAG says what a read is.
    Unaligned(Box<unaligned::Reader>),
}

/// What a lane yields, in the order of its files.
#[derive(Clone, Debug, PartialEq)]
pub enum LaneEvent {
    /// Reads of the current block: schema [`godwit_model::schema::reads`], at least one row; with two files mates are
    /// rows 2i and 2i+1 of the same batch.
    Reads(RecordBatch),
    /// The current block is whole. Blocks are never empty.
    BlockEnd {
        /// Reads of the block, mates counted singly.
        reads: u64,
        /// Bases of the block.
        bases: u64,
    },
}

/// Where in a file of reads a block starts, and what is to be known to go on there as if all before had been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlace {
    /// Where reading begins.
    pub start: bgzf::Start,
    /// Lines before.
    pub lines: u64,
    /// Records before.
    pub records: u64,
    /// First byte of titles: `@` or `>`.
    pub marker: u8,
}

impl FilePlace {
    /// Whether its numbers can be those of a place: what is read of a journal may be anything.
    pub fn is_sound(&self) -> bool {
        // A record has a line at least, and a line a byte.
        let counted = self.records <= self.lines && self.lines <= self.start.text_bytes();
        self.start.is_sound() && counted && matches!(self.marker, b'@' | b'>')
    }
}

/// Reads the files of one lane. Dropping it stops its threads; a thread that waits for a pipe ends with the pipe.
///
/// ```
/// use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
/// # let directory = tempfile::tempdir()?;
/// # let file = directory.path().join("reads.fq");
/// std::fs::write(&file, "@a/1 BC:Z:ACGT\nACGT\n+\nIIII\n@b\nGG\n+\nII\n")?;
/// let mut lane = LaneReader::open(&[file], &LaneOptions::default())?;
/// let Some(LaneEvent::Reads(batch)) = lane.next()? else { panic!("reads come first") };
/// assert_eq!(batch.num_rows(), 2);
/// assert_eq!(lane.next()?, Some(LaneEvent::BlockEnd { reads: 2, bases: 6 }));
/// assert_eq!(lane.next()?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LaneReader {
    source: Source,
    columns: ReadColumns,
    block_bases: u64,
    batch_bytes: usize,
    reads: u64,
    bases: u64,
    block_end: Option<LaneEvent>,
    finished: bool,
}

/// Where the reads of a lane come from.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for a lane, and every read goes through it")]
enum Source {
    Single(Records),
    Pair(Records, Records),
    Interleaved(Records),
    Unaligned(Box<unaligned::Reader>),
}

impl LaneReader {
    /// Opens one file (single-end) or two (read 1, read 2) and starts to read ahead.
    ///
    /// # Errors
    /// [`FastqError::FileCount`], [`FastqError::Open`], [`FastqError::Thread`]. What is wrong inside a file comes from
    /// [`LaneReader::next`].
    pub fn open(files: &[PathBuf], options: &LaneOptions) -> Result<Self, FastqError> {
        let threads = options.decompress_threads.div_ceil(files.len().max(1)).max(1);
        let open = |file: &PathBuf| Records::open(file, threads, options.lenient);
        let source = match files {
            [single] => Source::Single(open(single)?),
            [first, second] => Source::Pair(open(first)?, open(second)?),
            _ => return Err(FastqError::FileCount { count: files.len() }),
        };
        Ok(Self::start(source, options))
    }

    /// Reads what is open.
    pub fn new(input: LaneInput, options: &LaneOptions) -> Self {
        let records = |input| Records::of(input, options.lenient);
        let source = match input {
            LaneInput::Single(input) => Source::Single(records(input)),
            LaneInput::Pair(first, second) => Source::Pair(records(first), records(second)),
            LaneInput::Interleaved(input) => Source::Interleaved(records(input)),
            LaneInput::Unaligned(reader) => Source::Unaligned(reader),
        };
        Self::start(source, options)
    }

    /// Reads what is open at places that [`LaneReader::places`] told, one for each file; `None` where they are not as many,
    /// or it is no FASTQ. Blocks are cut as if all before had been read here. A file that is not as it was is
    /// [`FastqError::Changed`], before anything else.
    pub fn from_places(input: LaneInput, places: &[FilePlace], options: &LaneOptions) -> Option<Self> {
        let records = |input, place| Records::from_place(input, options.lenient, place);
        let source = match (input, places) {
            (LaneInput::Single(input), [place]) => Source::Single(records(input, place)),
            (LaneInput::Pair(first, second), [place1, place2]) => {
                Source::Pair(records(first, place1), records(second, place2))
            }
            (LaneInput::Interleaved(input), [place]) => Source::Interleaved(records(input, place)),
            _ => return None,
        };
        Some(Self::start(source, options))
    }

    /// Waits until there is something of every file; nothing is handed out yet.
    ///
    /// # Errors
    /// [`FastqError::Changed`] where a place of [`LaneReader::from_places`] does not do; else as [`LaneReader::next`].
    pub fn begin(&mut self) -> Result<(), FastqError> {
        match &mut self.source {
            Source::Single(records) | Source::Interleaved(records) => records.begin(),
            Source::Pair(first, second) => first.begin().and_then(|()| second.begin()),
            Source::Unaligned(_) => Ok(()),
        }
    }

    /// After a [`LaneEvent::BlockEnd`]: where the next block starts in each file, for files that were opened by
    /// [`bgzf::Reader::open_noting`]; `None` where one of them cannot be entered there.
    pub fn places(&mut self) -> Option<Vec<FilePlace>> {
        match &mut self.source {
            Source::Single(records) | Source::Interleaved(records) => Some(vec![records.next_place()?]),
            Source::Pair(first, second) => Some(vec![first.next_place()?, second.next_place()?]),
            Source::Unaligned(_) => None,
        }
    }

    fn start(source: Source, options: &LaneOptions) -> Self {
        Self {
            source,
            columns: ReadColumns::new(),
            block_bases: options.block_bases,
            batch_bytes: options.batch_bytes.min(MAX_RECORD_BYTES),
            reads: 0,
            bases: 0,
            block_end: None,
            finished: false,
        }
    }

    /// Whether reads come as pairs, mates next to each other.
    pub fn is_paired(&self) -> bool {
        match &self.source {
            Source::Single(_) => false,
            Source::Pair(..) | Source::Interleaved(_) => true,
            Source::Unaligned(reader) => reader.is_paired(),
        }
    }

    /// The next batch or end of block; `None` after the last block, and after an error.
    ///
    /// # Errors
    /// Everything that [`FastqError`] says about the content of files. Reads before the damage may already have been
    /// returned, the damaged record never is, nor is the end of its block.
    #[expect(clippy::should_implement_trait, reason = "fallible: callers use `while let Some(..) = lane.next()?`")]
    pub fn next(&mut self) -> Result<Option<LaneEvent>, FastqError> {
        if let Some(end) = self.block_end.take() {
            return Ok(Some(end));
        }
        if self.finished {
            return Ok(None);
        }
        let event = self.fill();
        self.finished |= event.is_err();
        event
    }

    /// BLAKE3 of each file as it is on disk, hexadecimal; `None` for one whose end was not read yet.
    pub fn checksums(&self) -> Vec<Option<String>> {
        match &self.source {
            Source::Single(records) | Source::Interleaved(records) => vec![records.checksum()],
            Source::Pair(first, second) => vec![first.checksum(), second.checksum()],
            Source::Unaligned(reader) => vec![reader.checksum()],
        }
    }

    /// Bytes taken from the files so far, as they are on disk. Runs ahead of the reads returned by what is buffered.
    pub fn compressed_bytes_read(&self) -> u64 {
        match &self.source {
            Source::Single(records) | Source::Interleaved(records) => records.bytes_read(),
            Source::Pair(first, second) => first.bytes_read() + second.bytes_read(),
            Source::Unaligned(reader) => reader.compressed_bytes_read(),
        }
    }

    /// Bytes of the files up to the reads returned so far, estimated within a chunk of text; all of them at the end.
    pub fn compressed_bytes_returned(&self) -> u64 {
        match &self.source {
            Source::Single(records) | Source::Interleaved(records) => records.bytes_passed(),
            Source::Pair(first, second) => first.bytes_passed() + second.bytes_passed(),
            Source::Unaligned(reader) => reader.compressed_bytes_consumed(),
        }
    }

    /// Bytes of the files on disk; `None` where one is a pipe.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        match &self.source {
            Source::Single(records) | Source::Interleaved(records) => records.bytes_total(),
            Source::Pair(first, second) => Some(first.bytes_total()? + second.bytes_total()?),
            Source::Unaligned(reader) => reader.compressed_bytes_total(),
        }
    }

    /// Appends reads until a batch is full, a block is whole or the input ends.
    fn fill(&mut self) -> Result<Option<LaneEvent>, FastqError> {
        loop {
            if !self.append()? {
                self.finished = true;
                let end = self.end_block();
                if self.columns.is_empty() {
                    return Ok(end);
                }
                self.block_end = end;
                break;
            }
            // bwa 0.7.17 bwa.c, bseq_read: `if (size >= chunk_size && (n&1) == 0) break;` after each read or pair.
            if self.bases >= self.block_bases && self.reads.is_multiple_of(2) {
                self.block_end = self.end_block();
                break;
            }
            if self.columns.bytes() >= self.batch_bytes {
                break;
            }
        }
        Ok(Some(LaneEvent::Reads(self.columns.take())))
    }

    fn end_block(&mut self) -> Option<LaneEvent> {
        let (reads, bases) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.bases));
        (reads > 0).then_some(LaneEvent::BlockEnd { reads, bases })
    }

    /// Appends one read or one pair; `false` at the end of the input.
    fn append(&mut self) -> Result<bool, FastqError> {
        let columns = &mut self.columns;
        self.reads += match &mut self.source {
            Source::Single(records) => {
                if !records.advance()? {
                    return Ok(false);
                }
                self.bases += columns.push(&records.record());
                1
            }
            Source::Pair(first, second) => {
                if !advance_both(first, second)? {
                    return Ok(false);
                }
                let (read1, read2) = (first.record(), second.record());
                if read1.name != read2.name {
                    return Err(FastqError::mates_out_of_step(first, second));
                }
                self.bases += columns.push(&read1) + columns.push(&read2);
                2
            }
            Source::Interleaved(records) => {
                if !records.advance()? {
                    return Ok(false);
                }
                self.bases += columns.push(&records.record());
                self.bases += columns.push(&advance_to_mate(records, columns)?);
                2
            }
            Source::Unaligned(reader) => {
                let mut bases = 0;
                let reads = reader.next_template(|read| bases += columns.push(&Record::from(read)))?;
                self.bases += bases;
                if reads == 0 {
                    return Ok(false);
                }
                reads
            }
        };
        Ok(true)
    }
}

impl<'a> From<&'a Read> for Record<'a> {
    fn from(read: &'a Read) -> Self {
        Self {
            name: &read.name,
            comment: (!read.comment.is_empty()).then_some(&read.comment),
            sequence: &read.sequence,
            quality: (!read.sequence.is_empty()).then_some(&read.quality),
        }
    }
}

/// Steps to the next records of two files; `false` where both end.
fn advance_both(first: &mut Records, second: &mut Records) -> Result<bool, FastqError> {
    match (first.advance()?, second.advance()?) {
        (true, true) => Ok(true),
        (false, false) => Ok(false),
        (true, false) => Err(FastqError::unequal_counts(second, first)),
        (false, true) => Err(FastqError::unequal_counts(first, second)),
    }
}

/// Steps to the mate of the read that was put into the columns last.
fn advance_to_mate<'r>(records: &'r mut Records, columns: &ReadColumns) -> Result<Record<'r>, FastqError> {
    if !records.advance()? {
        return Err(FastqError::interleaved_odd(records, columns.last_name()));
    }
    let mate = records.record();
    if mate.name == columns.last_name() {
        return Ok(mate);
    }
    Err(FastqError::interleaved_out_of_step(records, columns.last_name()))
}
