//! Blocks decompressed by several threads, in the order of the file.
//!
//! Flows in: the file, positioned at a block. Flows out: one pending text buffer per about [`TEXT_BUFFER_BYTES`] of text,
//! in the order of the file, filled by a thread; and the kind of data behind the last block. This module neither seeks nor
//! writes.

use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use libdeflater::Decompressor;

use super::access_point::AccessPointKind;
use super::block::{self, EOF_BLOCK, FIXED_HEADER_BYTES, MAX_BLOCK_BYTES};
use super::error::InputError;
use super::gzip::{self, NextSection};
use super::peek_reader::PeekReader;
use super::read_ahead::{ExpectedFormat, InflatedText, ReadAheadMessage, TEXT_BUFFER_BYTES, TextSender, take_buffer};

/// Maximum blocks of one job: it bounds the steps through a file of empty blocks.
const MAX_JOB_BLOCKS: usize = 1024;

/// A block within the compressed bytes of an [`InflateJob`].
struct JobBlock {
    compressed_bytes: usize,
    text_bytes: usize,
    /// Offset of the block in the file.
    offset: u64,
}

/// The blocks of one text buffer.
#[derive(Default)]
struct InflateJob {
    compressed: Vec<u8>,
    blocks: Vec<JobBlock>,
    text_bytes: usize,
}

/// Jobs on their way to the threads, each with the channel for its result.
type JobSender = Sender<(InflateJob, Sender<InflatedText>)>;

impl InflateJob {
    /// Sends the collected blocks to a thread, and the receiver of its text to the reader.
    fn send(&mut self, jobs: &JobSender, sender: &mut TextSender) -> Result<(), InputError> {
        // Empty text is not sent, but an empty block is still checked for damage.
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

/// Returns the bytes of the block ahead, which then is buffered as a whole; `None` where the next bytes are not a block.
pub(super) fn peek_block(source: &mut PeekReader) -> Result<Option<usize>, InputError> {
    let offset = source.offset();
    let mut needed = FIXED_HEADER_BYTES;
    loop {
        let ahead = source.peek(needed)?;
        if ahead.len() < needed {
            // Data that starts like a gzip member but ends within its header is a truncated block.
            let cut_short = ahead.starts_with(&gzip::MAGIC);
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

/// Decompresses blocks up to the end of the file, or to a gzip member that is not a block: [`NextSection::Member`].
pub(super) fn inflate_blocks(
    source: &mut PeekReader,
    sender: &mut TextSender,
    threads: usize,
    expected_format: ExpectedFormat,
) -> Result<NextSection, InputError> {
    let (jobs, queue) = bounded(2 * threads);
    // `move`: the sender must be dropped before the scope waits for its threads, which end when it is.
    thread::scope(move |scope| {
        for _ in 0..threads {
            let (queue, spares) = (queue.clone(), sender.recycled_buffers());
            let work = move || run_inflate_jobs(&queue, &spares);
            thread::Builder::new()
                .name("bgzf-inflate".to_owned())
                .spawn_scoped(scope, work)
                .map_err(InputError::ThreadSpawn)?;
        }
        // If it stayed open here, it would hide that all threads have ended.
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
    // Text before an error is sent first, so that the error names the right record.
    job.send(jobs, sender)?;
    result
}

/// Detects what follows the last block.
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

/// Adds the block ahead to the job and returns whether it may end a file; `None` where the next bytes are not a block.
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
    // Text is accepted from any writer, and some end it with an empty block of another form.
    let is_eof_block = if expected_format == ExpectedFormat::Bgzf { block == EOF_BLOCK } else { text_bytes == 0 };
    job.compressed.extend_from_slice(block);
    job.blocks.push(JobBlock { compressed_bytes, text_bytes, offset });
    job.text_bytes += text_bytes;
    source.consume(compressed_bytes);
    Ok(Some(is_eof_block))
}

/// Decompresses jobs until the queue closes.
fn run_inflate_jobs(queue: &Receiver<(InflateJob, Sender<InflatedText>)>, recycled_buffers: &Receiver<Vec<u8>>) {
    let mut decompressor = Decompressor::new();
    for (job, result_sender) in queue {
        let inflated = job.inflate(&mut decompressor, take_buffer(recycled_buffers, job.text_bytes));
        // A dropped reader needs no text; the jobs end by themselves.
        drop(result_sender.send(inflated));
    }
}
