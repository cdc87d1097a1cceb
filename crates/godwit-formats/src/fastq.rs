//! A reader of the FASTQ files of one lane, which returns Arrow record batches divided into blocks.
//!
//! Flows in: one file (single-end, or interleaved: each read followed by its mate) or two files (mates in the same
//! order). Each file is plain text, gzip or BGZF, detected from its content. Alternatively, a SAM or BAM file of reads
//! ([`crate::unaligned`]). Flows out: [`LaneEvent`]s. These are record batches of [`godwit_model::schema::pipe_reads`] in
//! the order of the input, with mates interleaved, and after the last batch of each block a [`LaneEvent::BlockEnd`].
//! Blocks have the same limits as the batches of `bwa mem -K` (0.7.17, `bseq_read`). A read or a pair is added to the
//! block, and the block ends when it has at least [`LaneOptions::block_bases`] bases and an even number of reads.
//!
//! Names, comments and qualities are those that bwa passes to its aligner. The name ends at the first white space and
//! loses a trailing `/digit`; the comment is the remaining part of the line. A carriage return before the line feed is
//! ignored. FASTA records and reads without bases have no qualities. In some cases bwa stops silently, or uses damaged
//! text as if it were complete. In these cases this reader returns an error that names the file and the record.
//!
//! The threads of [`godwit_io::bgzf`] decompress each file ahead of this reader. This module does not trim adapters, and
//! supports only the quality encoding Phred+33.

mod batch_builder;
mod error;
mod record_layout;
mod record_reader;
mod text_window;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use arrow_array::RecordBatch;
use godwit_io::bgzf;
use serde::{Deserialize, Serialize};

use self::batch_builder::ReadBatchBuilder;
pub use self::error::{FastqError, RecordLocation};
use self::record_reader::{Record, RecordReader};
use crate::unaligned::{self, Read};

/// Maximum bytes of one record, from the title to the qualities. It limits the memory used for files that are not
/// FASTQ, and is low enough that two such records fit the 32-bit offsets of a batch.
pub const MAX_RECORD_BYTES: usize = 512 << 20;

/// Options for reading a lane.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("reads.fq");
/// std::fs::write(&path, "@r1\nACGT\n+\nIIII\n".repeat(5))?;
/// let options = LaneOptions { block_bases: 8, ..LaneOptions::default() };
/// let mut lane = LaneReader::open(&[path], &options)?;
/// let mut blocks = Vec::new();
/// while let Some(event) = lane.next()? {
///     if let LaneEvent::BlockEnd { reads, bases } = event {
///         blocks.push((reads, bases));
///     }
/// }
/// assert_eq!(blocks, [(2, 8), (2, 8), (1, 4)]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// Number of bases, of both mates, at which a block ends: the option `-K` of bwa.
    pub block_bases: u64,
    /// Number of bytes of names, comments, sequences and qualities at which a batch ends. Values above
    /// [`MAX_RECORD_BYTES`] count as that limit.
    pub batch_bytes: usize,
    /// Number of threads that decompress BGZF. The files of the lane share them evenly, with at least one thread each.
    /// Plain text and gzip always use one thread per file.
    pub decompress_threads: usize,
    /// True if two deviations are accepted: a BGZF file without an empty last block, and a `+` line whose title differs
    /// from that of the record.
    pub lenient: bool,
}

impl Default for LaneOptions {
    /// Returns blocks of 100 million bases, batches of 4 MiB, two threads, and no accepted deviations.
    fn default() -> Self {
        Self { block_bases: 100_000_000, batch_bytes: 4 << 20, decompress_threads: 2, lenient: false }
    }
}

/// The open input files of a lane.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each lane that is open")]
pub enum LaneInput {
    /// A FASTQ or FASTA file with single-end reads.
    Single(bgzf::Reader),
    /// Two FASTQ or FASTA files: one with the reads 1, one with the reads 2.
    Pair(bgzf::Reader, bgzf::Reader),
    /// A FASTQ or FASTA file in which each read 1 is followed by its read 2.
    Interleaved(bgzf::Reader),
    /// A SAM, BAM or CRAM file; the FLAG of its first record decides whether the reads are paired.
    Unaligned(Box<unaligned::Reader>),
}

/// A batch of reads or the end of a block, returned in the order of the files of a lane.
#[derive(Clone, Debug, PartialEq)]
pub enum LaneEvent {
    /// Reads of the current block with the schema [`godwit_model::schema::pipe_reads`], at least one row. The mates of a
    /// pair are the rows 2i and 2i+1 of one batch.
    Reads(RecordBatch),
    /// The current block is complete. A block is never empty.
    BlockEnd {
        /// Number of reads of the block; both mates of a pair are counted.
        reads: u64,
        /// Number of bases of the block.
        bases: u64,
    },
}

/// A position in a file of reads at which a block starts, with the counts needed to resume reading there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastqResumePoint {
    /// Position in the text of the file at which reading begins.
    #[serde(rename = "start")]
    pub resume_point: bgzf::ResumePoint,
    /// Number of lines before the position.
    pub lines: u64,
    /// Number of records before the position.
    pub records: u64,
    /// First byte of the title lines of the file: `@` or `>`.
    pub marker: u8,
}

impl FastqResumePoint {
    /// Returns whether the numbers are possible for a resume point. A resume point that was read from a journal may
    /// hold any numbers.
    pub fn is_valid(&self) -> bool {
        // A record has at least one line, and a line at least one byte.
        let counted = self.records <= self.lines && self.lines <= self.resume_point.text_offset();
        self.resume_point.is_valid() && counted && matches!(self.marker, b'@' | b'>')
    }
}

/// A reader of the files of one lane. Dropping the reader stops its threads; a thread that waits for data from a pipe
/// ends only when the pipe is closed.
///
/// # Examples
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

/// The source of the reads of a lane.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for a lane, and every read goes through it")]
enum LaneSource {
    Single(RecordReader),
    Pair(RecordReader, RecordReader),
    Interleaved(RecordReader),
    Unaligned(Box<unaligned::Reader>),
}

impl LaneReader {
    /// Opens one file (single-end) or two files (read 1, read 2), and starts the threads that read them.
    ///
    /// # Errors
    /// [`FastqError::FileCount`] if there are not one or two files, [`FastqError::Open`] if a file cannot be opened,
    /// [`FastqError::Thread`] if a thread cannot be started. Errors in the content are returned by
    /// [`LaneReader::next`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use arrow_array::cast::AsArray;
    /// use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let files = [directory.path().join("1.fq"), directory.path().join("2.fq")];
    /// std::fs::write(&files[0], "@r1/1\nACGT\n+\nIIII\n")?;
    /// std::fs::write(&files[1], "@r1/2\nTTGA\n+\nIIII\n")?;
    /// let mut lane = LaneReader::open(&files, &LaneOptions::default())?;
    /// assert!(lane.is_paired());
    /// let Some(LaneEvent::Reads(batch)) = lane.next()? else { panic!("the lane has a pair") };
    /// assert_eq!(batch["name"].as_binary::<i32>().value(1), b"r1");
    /// assert_eq!(batch["sequence"].as_binary::<i32>().value(1), b"TTGA");
    /// # Ok(())
    /// # }
    /// ```
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

    /// Creates a reader of open input files.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::bgzf;
    /// use godwit_formats::fastq::{LaneEvent, LaneInput, LaneOptions, LaneReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("reads.fq");
    /// std::fs::write(&path, "@r1\nACGT\n+\nIIII\n@r1\nTTGA\n+\nIIII\n")?;
    /// let input = LaneInput::Interleaved(bgzf::open_text(&path, 1)?);
    /// let mut lane = LaneReader::new(input, &LaneOptions::default());
    /// assert!(lane.is_paired());
    /// let Some(LaneEvent::Reads(batch)) = lane.next()? else { panic!("the lane has a pair") };
    /// assert_eq!(batch.num_rows(), 2);
    /// # Ok(())
    /// # }
    /// ```
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

    /// Creates a reader of open input files that resumes at positions returned by [`LaneReader::resume_points`], one
    /// for each file. Returns `None` if the number of positions differs from that of the files, or the input is not
    /// FASTQ or FASTA. Blocks have the same limits as if the reader had read all text before. If a file has changed,
    /// the first read fails with [`FastqError::Changed`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::bgzf::{AccessPoint, AccessPointKind, Reader, ResumePoint};
    /// use godwit_formats::fastq::{FastqResumePoint, LaneEvent, LaneInput, LaneOptions, LaneReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("reads.fq");
    /// std::fs::write(&path, "@r1\nACGT\n+\nIIII\n@r2\nGG\n+\nII\n")?;
    /// // The second record begins at byte 16.
    /// let access_point = AccessPoint { text_bytes: 0, offset: 0, kind: AccessPointKind::Plain, window: Vec::new() };
    /// let blake3 = blake3::hash(b"@r1\nACGT\n+\nIIII\n").to_hex().to_string();
    /// let resume_point = ResumePoint { access_point, skip_bytes: 16, hashed_bytes: 16, blake3 };
    /// let input = LaneInput::Single(Reader::open_resumable(&path, 1, false, Some(&resume_point))?);
    /// let start = FastqResumePoint { resume_point, lines: 4, records: 1, marker: b'@' };
    /// let mut lane = LaneReader::from_resume_points(input, &[start], &LaneOptions::default()).unwrap();
    /// assert!(matches!(lane.next()?, Some(LaneEvent::Reads(_))));
    /// assert_eq!(lane.next()?, Some(LaneEvent::BlockEnd { reads: 1, bases: 2 }));
    /// # Ok(())
    /// # }
    /// ```
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

    /// Waits until the first text of every file has been decompressed, without returning reads.
    ///
    /// # Errors
    /// [`FastqError::Changed`] if a file does not agree with its resume point given to
    /// [`LaneReader::from_resume_points`]; otherwise the errors of [`LaneReader::next`].
    pub fn wait_for_text(&mut self) -> Result<(), FastqError> {
        match &mut self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => records.wait_for_text(),
            LaneSource::Pair(first, second) => first.wait_for_text().and_then(|()| second.wait_for_text()),
            LaneSource::Unaligned(_) => Ok(()),
        }
    }

    /// Returns for each file the position at which the next block starts. Must be called after a
    /// [`LaneEvent::BlockEnd`], for files opened by [`bgzf::Reader::open_resumable`]. Returns `None` if reading of one
    /// of the files cannot be resumed.
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

    /// Returns whether the reads are paired, with mates adjacent.
    pub fn is_paired(&self) -> bool {
        match &self.source {
            LaneSource::Single(_) => false,
            LaneSource::Pair(..) | LaneSource::Interleaved(_) => true,
            LaneSource::Unaligned(reader) => reader.is_paired(),
        }
    }

    /// Returns the next batch or the end of a block; `None` after the last block, and after an error.
    ///
    /// # Errors
    /// Any variant of [`FastqError`] about the content of the files. Reads before the damaged record may have been
    /// returned already. The damaged record and the end of its block are never returned.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::fastq::{FastqError, LaneOptions, LaneReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("reads.fq");
    /// std::fs::write(&path, "@r1\nACGT\n+\nIII\n")?;
    /// let mut lane = LaneReader::open(&[path], &LaneOptions::default())?;
    /// let error = lane.next().unwrap_err();
    /// assert!(matches!(error, FastqError::LengthMismatch { bases: 4, qualities: 3, .. }));
    /// assert_eq!(lane.next()?, None);
    /// # Ok(())
    /// # }
    /// ```
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

    /// Returns the BLAKE3 hash of each file as it is on disk, in hexadecimal digits; `None` for a file that was not
    /// read to its end.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::fastq::{LaneOptions, LaneReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("reads.fq");
    /// let text = "@r1\nACGT\n+\nIIII\n";
    /// std::fs::write(&path, text)?;
    /// let mut lane = LaneReader::open(&[path], &LaneOptions::default())?;
    /// while lane.next()?.is_some() {}
    /// assert_eq!(lane.checksums(), [Some(blake3::hash(text.as_bytes()).to_hex().to_string())]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn checksums(&self) -> Vec<Option<String>> {
        match &self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => vec![records.checksum()],
            LaneSource::Pair(first, second) => vec![first.checksum(), second.checksum()],
            LaneSource::Unaligned(reader) => vec![reader.checksum()],
        }
    }

    /// Returns the number of bytes read from the files so far, counted as on disk. The threads read ahead, so these are
    /// more bytes than the returned reads take.
    pub fn compressed_bytes_read(&self) -> u64 {
        match &self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => records.compressed_bytes_read(),
            LaneSource::Pair(first, second) => first.compressed_bytes_read() + second.compressed_bytes_read(),
            LaneSource::Unaligned(reader) => reader.compressed_bytes_read(),
        }
    }

    /// Returns the number of bytes of the files on disk up to the reads returned so far; the position within a text
    /// buffer is estimated. At the end it is the total length of the files.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::fastq::{LaneOptions, LaneReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("reads.fq");
    /// std::fs::write(&path, "@r1\nACGT\n+\nIIII\n")?;
    /// let mut lane = LaneReader::open(&[path], &LaneOptions::default())?;
    /// while lane.next()?.is_some() {}
    /// assert_eq!(lane.compressed_bytes_returned(), 16);
    /// assert_eq!(lane.compressed_bytes_total(), Some(16));
    /// # Ok(())
    /// # }
    /// ```
    pub fn compressed_bytes_returned(&self) -> u64 {
        match &self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => records.compressed_bytes_consumed(),
            LaneSource::Pair(first, second) => first.compressed_bytes_consumed() + second.compressed_bytes_consumed(),
            LaneSource::Unaligned(reader) => reader.compressed_bytes_consumed(),
        }
    }

    /// Returns the total length of the files on disk in bytes, or `None` if one of them is a pipe.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        match &self.source {
            LaneSource::Single(records) | LaneSource::Interleaved(records) => records.compressed_bytes_total(),
            LaneSource::Pair(first, second) => Some(first.compressed_bytes_total()? + second.compressed_bytes_total()?),
            LaneSource::Unaligned(reader) => reader.compressed_bytes_total(),
        }
    }

    /// Appends reads to the batch until the batch is full, the block is complete, or the input ends.
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
            // End the block as bwa does after each read or pair (0.7.17 bwa.c, bseq_read): `if (size >= chunk_size &&
            // (n&1) == 0) break;`
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

    /// Appends one template (a read or a pair) to the batch; returns `false` at the end of the input.
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

/// Advances both files of a pair to their next records; returns `false` if both files have ended.
fn advance_both(first: &mut RecordReader, second: &mut RecordReader) -> Result<bool, FastqError> {
    match (first.advance()?, second.advance()?) {
        (true, true) => Ok(true),
        (false, false) => Ok(false),
        (true, false) => Err(FastqError::unequal_counts(second, first)),
        (false, true) => Err(FastqError::unequal_counts(first, second)),
    }
}

/// Advances to the mate of the read that was appended last to `columns`, and returns the mate.
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
