//! Decompression of BGZF blocks on several threads, in the order of the file.
//!
//! Flows in: the file, positioned at a block. Flows out: pending text buffers, each for about [`TEXT_BUFFER_BYTES`] of
//! text, in the order of the file; a thread fills each of them. Also flows out: the kind of data after the last block.
//! This module neither seeks nor writes.

use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use libdeflater::Decompressor;

use super::access_point::AccessPointKind;
use super::block::{self, EOF_BLOCK, FIXED_HEADER_BYTES, MAX_BLOCK_BYTES};
use super::error::InputError;
use super::gzip::{self, NextSection};
use super::peek_reader::PeekReader;
use super::read_ahead::{ExpectedFormat, InflatedText, ReadAheadMessage, TEXT_BUFFER_BYTES, TextSender, take_buffer};

/// Maximum blocks of one job, which limits the work for a job if the file has many empty blocks.
const MAX_JOB_BLOCKS: usize = 1024;

/// A block within the compressed bytes of an [`InflateJob`]: its lengths and its offset.
struct JobBlock {
    compressed_bytes: usize,
    text_bytes: usize,
    /// Offset of the block in the file.
    offset: u64,
}

/// A unit of work for a thread: the compressed blocks that fill one text buffer.
#[derive(Default)]
struct InflateJob {
    compressed: Vec<u8>,
    blocks: Vec<JobBlock>,
    text_bytes: usize,
}

/// The sending end of the queue of jobs to the threads. Each job comes with the sender for its decompressed text.
type JobSender = Sender<(InflateJob, Sender<InflatedText>)>;

impl InflateJob {
    /// Sends the collected blocks to a decompression thread, and the receiver of their text to the consumer.
    fn send(&mut self, jobs: &JobSender, sender: &mut TextSender) -> Result<(), InputError> {
        // Do not send a job without blocks. A job of empty blocks is sent, so that these are checked for damage.
        if self.blocks.is_empty() {
            return Ok(());
        }
        let (result_sender, result_receiver) = bounded(1);
        sender.add_text_bytes(self.text_bytes);
        sender.send_message(ReadAheadMessage::PendingText(result_receiver))?;
        jobs.send((std::mem::take(self), result_sender)).map_err(|_| InputError::ThreadLost)
    }

    fn inflate(&self, decompressor: &mut Decompressor, mut text: Vec<u8>) -> InflatedText {
        let (mut compressed, mut filled) = (self.compressed.as_slice(), 0);
        for block in &self.blocks {
            let (bytes, rest) = compressed.split_at(block.compressed_bytes);
            if !block::inflate_block(decompressor, bytes, &mut text[filled..filled + block.text_bytes]) {
                text.truncate(filled);
                let detail = "BGZF block with invalid data, checksum or length".to_owned();
                return InflatedText { text, error: Some(InputError::Corrupt { offset: block.offset, detail }) };
            }
            (compressed, filled) = (rest, filled + block.text_bytes);
        }
        InflatedText { text, error: None }
    }
}

/// Buffers the next block completely and returns its length in bytes, or `None` if the next bytes are not a BGZF block.
pub(super) fn peek_block(source: &mut PeekReader) -> Result<Option<usize>, InputError> {
    let offset = source.offset();
    let mut needed = FIXED_HEADER_BYTES;
    loop {
        let ahead = source.peek(needed)?;
        if ahead.len() < needed {
            // Data that starts like a gzip member but ends within the header is a truncated block.
            let cut_short = ahead.starts_with(&gzip::GZIP_MAGIC);
            return if cut_short {
                Err(InputError::Truncated { offset: offset + ahead.len() as u64 })
            } else {
                Ok(None)
            };
        }
        match block::parse_block_length(ahead) {
            Ok(Some(bytes)) if bytes <= ahead.len() => return Ok(Some(bytes)),
            Ok(Some(bytes)) | Err(bytes) => needed = bytes,
            Ok(None) => return Ok(None),
        }
    }
}

/// Decompresses blocks up to the end of the file, or up to a gzip member that is not a BGZF block. In the second case
/// the result is [`NextSection::Member`].
pub(super) fn inflate_blocks(
    source: &mut PeekReader,
    sender: &mut TextSender,
    threads: usize,
    expected_format: ExpectedFormat,
) -> Result<NextSection, InputError> {
    let (jobs, queue) = bounded(2 * threads);
    // `move`, because the job sender must be dropped before the scope waits for its threads: they end when that sender
    // is dropped.
    thread::scope(move |scope| {
        for _ in 0..threads {
            let (queue, spares) = (queue.clone(), sender.recycled_buffers());
            let work = move || run_inflate_jobs(&queue, &spares);
            thread::Builder::new()
                .name("bgzf-inflate".to_owned())
                .spawn_scoped(scope, work)
                .map_err(InputError::ThreadSpawn)?;
        }
        // Drop this receiver of jobs. Otherwise, sending a job would not fail after all threads have ended.
        drop(queue);
        read_blocks(source, sender, &jobs, expected_format)
    })
}

fn read_blocks(
    source: &mut PeekReader,
    sender: &mut TextSender,
    jobs: &JobSender,
    expected_format: ExpectedFormat,
) -> Result<NextSection, InputError> {
    let mut job = InflateJob::default();
    let mut ends_with_eof_block = false;
    let result = loop {
        match read_block(source, &mut job, expected_format, sender) {
            Ok(Some(is_eof_block)) => ends_with_eof_block = is_eof_block,
            Ok(None) => match peek_section_after_blocks(source, expected_format) {
                Ok(NextSection::EndOfFile) if !ends_with_eof_block && !expected_format.is_lenient_text() => {
                    break Err(InputError::MissingEof { offset: source.offset() });
                }
                next => break next,
            },
            Err(error) => break Err(error),
        }
        if job.text_bytes + MAX_BLOCK_BYTES > TEXT_BUFFER_BYTES || job.blocks.len() >= MAX_JOB_BLOCKS {
            job.send(jobs, sender)?;
        }
    };
    // Send the text before an error first, so that the consumer attributes the error to the right record.
    job.send(jobs, sender)?;
    result
}

/// Detects the data that follows the last block.
fn peek_section_after_blocks(
    source: &mut PeekReader,
    expected_format: ExpectedFormat,
) -> Result<NextSection, InputError> {
    if expected_format == ExpectedFormat::Bgzf {
        let offset = source.offset();
        return if source.peek(1)?.is_empty() {
            Ok(NextSection::EndOfFile)
        } else {
            Err(InputError::NotCompressed { offset })
        };
    }
    gzip::peek_next_section(source)
}

/// Adds the next block to the job and returns whether it is an end-of-file block, or `None` if the next bytes are not a
/// block.
fn read_block(
    source: &mut PeekReader,
    job: &mut InflateJob,
    expected_format: ExpectedFormat,
    sender: &mut TextSender,
) -> Result<Option<bool>, InputError> {
    let offset = source.offset();
    let Some(compressed_bytes) = peek_block(source)? else { return Ok(None) };
    if job.blocks.is_empty() && sender.is_access_point_due() {
        sender.send_access_point(offset, AccessPointKind::BgzfBlock, Vec::new())?;
    }
    let block = &source.peek(compressed_bytes)?[..compressed_bytes];
    let Some(text_bytes) = block::parse_data_length(block) else {
        return Err(InputError::Corrupt { offset, detail: "BGZF block of more than 64 KiB of data".to_owned() });
    };
    // Some programs end a text file with another form of empty block than [`EOF_BLOCK`], so any empty block is accepted
    // for text.
    let is_eof_block = if expected_format == ExpectedFormat::Bgzf { block == EOF_BLOCK } else { text_bytes == 0 };
    job.compressed.extend_from_slice(block);
    job.blocks.push(JobBlock { compressed_bytes, text_bytes, offset });
    job.text_bytes += text_bytes;
    source.consume(compressed_bytes);
    Ok(Some(is_eof_block))
}

/// Decompresses jobs until the queue of jobs closes.
fn run_inflate_jobs(queue: &Receiver<(InflateJob, Sender<InflatedText>)>, recycled_buffers: &Receiver<Vec<u8>>) {
    let mut decompressor = Decompressor::new();
    for (job, result_sender) in queue {
        let inflated = job.inflate(&mut decompressor, take_buffer(recycled_buffers, job.text_bytes));
        // If the consumer has dropped its reader, sending fails and the text is not needed. The queue of jobs then
        // closes, too.
        drop(result_sender.send(inflated));
    }
}
