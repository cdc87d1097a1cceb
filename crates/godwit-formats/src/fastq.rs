//! FASTQ files of one lane in, Arrow batches cut into blocks out.
//!
//! Flows in: one file (single-end, or interleaved: each read followed by its mate) or two (mates in step), each plain text,
//! gzip or BGZF, detected by content; or a SAM or BAM file of reads ([`crate::unaligned`]).
//! Flows out: [`LaneEvent`]s. Record batches of [`godwit_model::schema::reads`] in the order of the input, mates
//! interleaved, and after the last batch of each block a [`LaneEvent::BlockEnd`]. Blocks are cut as `bwa mem -K`
//! (0.7.17, `bseq_read`) cuts its batches: a read or a pair is appended, its bases are added, and the block ends when it
//! has at least [`LaneOptions::block_bases`] bases and an even number of reads.
//!
//! Names, comments and qualities are those that bwa passes to its aligner: the name ends at the first white space and loses
//! a trailing `/digit`, the comment is the rest of the line, a carriage return before the line feed does not belong to the
//! line, FASTA records and reads without bases have no qualities. Where bwa stops silently or reads damaged text as if it
//! were whole, this reader returns an error with the file and the record.
//!
//! Each file is decompressed ahead by [`crate::bgzf`]. This module does not trim adapters and does not support quality
//! encodings other than Phred+33.

mod batch_builder;
mod error;
mod record_layout;
mod record_reader;
mod text_window;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

use self::batch_builder::ReadBatchBuilder;
pub use self::error::{FastqError, RecordLocation};
pub(crate) use self::record_layout::trim_read_number;
use self::record_reader::{Record, RecordReader};
use crate::bgzf;
use crate::unaligned::{self, Read};

/// Maximum bytes of one record, title to qualities. It bounds memory on files that are not FASTQ, and two of them fit the
/// 32-bit offsets of a batch.
pub const MAX_RECORD_BYTES: usize = 512 << 20;

/// Options for reading a lane.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// Bases at which a block ends, both mates counted: bwa's `-K`.
    pub block_bases: u64,
    /// Bytes of names, comments, sequences and qualities at which a batch ends; at most [`MAX_RECORD_BYTES`] count.
    pub batch_bytes: usize,
    /// Threads that decompress BGZF, shared evenly by the files of the lane, at least one each. Plain text and gzip always
    /// take one thread per file.
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

/// The open input of a lane.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each lane that is open")]
pub enum LaneInput {
    /// FASTQ or FASTA of single-end reads.
    Single(bgzf::Reader),
    /// FASTQ or FASTA of read 1, and of read 2.
    Pair(bgzf::Reader, bgzf::Reader),
    /// FASTQ or FASTA where each read 1 is followed by its read 2.
    Interleaved(bgzf::Reader),
    /// SAM, BAM or CRAM; FLAG decides whether reads are paired.
    Unaligned(Box<unaligned::Reader>),
}

/// An event of a lane, in the order of its files.
#[derive(Clone, Debug, PartialEq)]
pub enum LaneEvent {
    /// Reads of the current block: schema [`godwit_model::schema::reads`], at least one row; mates of two files are rows 2i
    /// and 2i+1 of the same batch.
    Reads(RecordBatch),
    /// The current block is complete. Blocks are never empty.
    BlockEnd {
        /// Reads of the block, mates counted singly.
        reads: u64,
        /// Bases of the block.
        bases: u64,
    },
}

/// The position in a file of reads at which a block starts, and the counts needed to resume there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastqResumePoint {
    /// Position at which reading begins.
    #[serde(rename = "start")]
    pub resume_point: bgzf::ResumePoint,
    /// Lines before it.
    pub lines: u64,
    /// Records before it.
    pub records: u64,
    /// First byte of titles: `@` or `>`.
    pub marker: u8,
}

impl FastqResumePoint {
    /// Reports whether the numbers can be those of a resume point; a journal may hold anything.
    pub fn is_valid(&self) -> bool {
        // A record has at least one line, and a line at least one byte.
        let counted = self.records <= self.lines && self.lines <= self.resume_point.text_offset();
        self.resume_point.is_valid() && counted && matches!(self.marker, b'@' | b'>')
    }
}

/// A reader of the files of one lane. Dropping it stops its threads; a thread that waits for a pipe ends with the pipe.
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
    source: LaneSource,
    builder: ReadBatchBuilder,
    block_bases: u64,
    batch_bytes: usize,
    block_read_count: u64,
    block_base_count: u64,
    pending_block_end: Option<LaneEvent>,
    finished: bool,
}

/// Source of the reads of a lane.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for a lane, and every read goes through it")]
enum LaneSource {
    Single(RecordReader),
    Pair(RecordReader, RecordReader),
    Interleaved(RecordReader),
    Unaligned(Box<unaligned::Reader>),
}

impl LaneReader {
    /// Opens one file (single-end) or two (read 1, read 2) and starts to read ahead.
    ///
    /// # Errors
    /// [`FastqError::FileCount`], [`FastqError::Open`], [`FastqError::Thread`]. [`LaneReader::next`] reports errors inside
    /// a file.
    pub fn open(files: &[PathBuf], options: &LaneOptions) -> Result<Self, FastqError> {
        let threads = options.decompress_threads.div_ceil(files.len().max(1)).max(1);
        let open = |file: &PathBuf| RecordReader::open(file, threads, options.lenient);
        let source = match files {
            [single] => LaneSource::Single(open(single)?),
            [first, second] => LaneSource::Pair(open(first)?, open(second)?),
            _ => return Err(FastqError::FileCount { count: files.len() }),
        };
        Ok(Self::from_source(source, options))
    }

    /// Reads open input.
    pub fn new(input: LaneInput, options: &LaneOptions) -> Self {
        let records = |input| RecordReader::from_bgzf(input, options.lenient);
        let source = match input {
            LaneInput::Single(input) => LaneSource::Single(records(input)),
            LaneInput::Pair(first, second) => LaneSource::Pair(records(first), records(second)),
            LaneInput::Interleaved(input) => LaneSource::Interleaved(records(input)),
            LaneInput::Unaligned(reader) => LaneSource::Unaligned(reader),
        };
        Self::from_source(source, options)
    }

    /// Reads open input at positions that [`LaneReader::resume_points`] returned, one for each file. Returns `None` where
    /// their number differs, or the input is not FASTQ. Blocks are cut as if all text before had been read here. For a file
    /// that has changed, the first read fails with [`FastqError::Changed`].
    pub fn from_resume_points(
        input: LaneInput,
        resume_points: &[FastqResumePoint],
        options: &LaneOptions,
    ) -> Option<Self> {
        let records = |input, place| RecordReader::from_resume_point(input, options.lenient, place);
        let source = match (input, resume_points) {
            (LaneInput::Single(input), [place]) => LaneSource::Single(records(input, place)),
            (LaneInput::Pair(first, second), [place1, place2]) => {
                LaneSource::Pair(records(first, place1), records(second, place2))
            }
            (LaneInput::Interleaved(input), [place]) => LaneSource::Interleaved(records(input, place)),
            _ => return None,
        };
        Some(Self::from_source(source, options))
    }

    /// Waits until text of every file has arrived; returns no reads.
    ///
    /// # Errors
    /// [`FastqError::Changed`] where a resume point of [`LaneReader::from_resume_points`] does not match; else as
    /// [`LaneReader::next`].
    pub fn wait_for_text(&mut self) -> Result<(), FastqError> {
        match &mut self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => records.wait_for_text(),
            LaneSource::Pair(first, second) => first.wait_for_text().and_then(|()| second.wait_for_text()),
            LaneSource::Unaligned(_) => Ok(()),
        }
    }

    /// Returns where the next block starts in each file, after a [`LaneEvent::BlockEnd`], for files opened by
    /// [`bgzf::Reader::open_resumable`]; `None` where reading cannot resume in one of them.
    pub fn resume_points(&mut self) -> Option<Vec<FastqResumePoint>> {
        match &mut self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => Some(vec![records.next_resume_point()?]),
            LaneSource::Pair(first, second) => Some(vec![first.next_resume_point()?, second.next_resume_point()?]),
            LaneSource::Unaligned(_) => None,
        }
    }

    fn from_source(source: LaneSource, options: &LaneOptions) -> Self {
        Self {
            source,
            builder: ReadBatchBuilder::new(),
            block_bases: options.block_bases,
            batch_bytes: options.batch_bytes.min(MAX_RECORD_BYTES),
            block_read_count: 0,
            block_base_count: 0,
            pending_block_end: None,
            finished: false,
        }
    }

    /// Reports whether reads are pairs, mates next to each other.
    pub fn is_paired(&self) -> bool {
        match &self.source {
            LaneSource::Single(_) => false,
            LaneSource::Pair(..) | LaneSource::Interleaved(_) => true,
            LaneSource::Unaligned(reader) => reader.is_paired(),
        }
    }

    /// Returns the next batch or end of block; `None` after the last block, and after an error.
    ///
    /// # Errors
    /// Every variant of [`FastqError`] about the content of files. Reads before the damage may already have been returned.
    /// The damaged record and the end of its block are never returned.
    #[expect(clippy::should_implement_trait, reason = "fallible: callers use `while let Some(..) = lane.next()?`")]
    pub fn next(&mut self) -> Result<Option<LaneEvent>, FastqError> {
        if let Some(end) = self.pending_block_end.take() {
            return Ok(Some(end));
        }
        if self.finished {
            return Ok(None);
        }
        let event = self.fill_batch();
        self.finished |= event.is_err();
        event
    }

    /// Returns the BLAKE3 of each file as it is on disk, hexadecimal; `None` for a file that was not read to its end.
    pub fn checksums(&self) -> Vec<Option<String>> {
        match &self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => vec![records.checksum()],
            LaneSource::Pair(first, second) => vec![first.checksum(), second.checksum()],
            LaneSource::Unaligned(reader) => vec![reader.checksum()],
        }
    }

    /// Returns the bytes read from the files so far, as they are on disk. They exceed the reads returned by what is
    /// buffered.
    pub fn compressed_bytes_read(&self) -> u64 {
        match &self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => records.compressed_bytes_read(),
            LaneSource::Pair(first, second) => first.compressed_bytes_read() + second.compressed_bytes_read(),
            LaneSource::Unaligned(reader) => reader.compressed_bytes_read(),
        }
    }

    /// Returns the bytes of the files up to the reads returned so far, estimated within a text buffer; all of them at the
    /// end.
    pub fn compressed_bytes_returned(&self) -> u64 {
        match &self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => records.compressed_bytes_consumed(),
            LaneSource::Pair(first, second) => first.compressed_bytes_consumed() + second.compressed_bytes_consumed(),
            LaneSource::Unaligned(reader) => reader.compressed_bytes_consumed(),
        }
    }

    /// Returns the bytes of the files on disk; `None` where one is a pipe.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        match &self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => records.compressed_bytes_total(),
            LaneSource::Pair(first, second) => Some(first.compressed_bytes_total()? + second.compressed_bytes_total()?),
            LaneSource::Unaligned(reader) => reader.compressed_bytes_total(),
        }
    }

    /// Appends reads until a batch is full, a block is whole or the input ends.
    fn fill_batch(&mut self) -> Result<Option<LaneEvent>, FastqError> {
        loop {
            if !self.append_template()? {
                self.finished = true;
                let end = self.take_block_end();
                if self.builder.is_empty() {
                    return Ok(end);
                }
                self.pending_block_end = end;
                break;
            }
            // bwa 0.7.17 bwa.c, bseq_read: `if (size >= chunk_size && (n&1) == 0) break;` after each read or pair.
            if self.block_base_count >= self.block_bases && self.block_read_count.is_multiple_of(2) {
                self.pending_block_end = self.take_block_end();
                break;
            }
            if self.builder.value_bytes() >= self.batch_bytes {
                break;
            }
        }
        Ok(Some(LaneEvent::Reads(self.builder.finish())))
    }

    fn take_block_end(&mut self) -> Option<LaneEvent> {
        let (reads, bases) = (std::mem::take(&mut self.block_read_count), std::mem::take(&mut self.block_base_count));
        (reads > 0).then_some(LaneEvent::BlockEnd { reads, bases })
    }

    /// Appends one template (a read or a pair); returns `false` at the end of the input.
    fn append_template(&mut self) -> Result<bool, FastqError> {
        let columns = &mut self.builder;
        self.block_read_count += match &mut self.source {
            LaneSource::Single(records) => {
                if !records.advance()? {
                    return Ok(false);
                }
                self.block_base_count += columns.push(&records.record());
                1
            }
            LaneSource::Pair(first, second) => {
                if !advance_both(first, second)? {
                    return Ok(false);
                }
                let (read1, read2) = (first.record(), second.record());
                if read1.name != read2.name {
                    return Err(FastqError::mates_out_of_step(first, second));
                }
                self.block_base_count += columns.push(&read1) + columns.push(&read2);
                2
            }
            LaneSource::Interleaved(records) => {
                if !records.advance()? {
                    return Ok(false);
                }
                self.block_base_count += columns.push(&records.record());
                self.block_base_count += columns.push(&advance_to_mate(records, columns)?);
                2
            }
            LaneSource::Unaligned(reader) => {
                let mut bases = 0;
                let reads = reader.next_template(|read| bases += columns.push(&Record::from(read)))?;
                self.block_base_count += bases;
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

/// Advances to the next records of two files; returns `false` where both end.
fn advance_both(first: &mut RecordReader, second: &mut RecordReader) -> Result<bool, FastqError> {
    match (first.advance()?, second.advance()?) {
        (true, true) => Ok(true),
        (false, false) => Ok(false),
        (true, false) => Err(FastqError::unequal_counts(second, first)),
        (false, true) => Err(FastqError::unequal_counts(first, second)),
    }
}

/// Advances to the mate of the read that was last appended to the columns.
fn advance_to_mate<'r>(records: &'r mut RecordReader, columns: &ReadBatchBuilder) -> Result<Record<'r>, FastqError> {
    if !records.advance()? {
        return Err(FastqError::interleaved_odd(records, columns.last_name()));
    }
    let mate = records.record();
    if mate.name == columns.last_name() {
        return Ok(mate);
    }
    Err(FastqError::interleaved_out_of_step(records, columns.last_name()))
}
