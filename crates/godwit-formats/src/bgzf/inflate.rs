//! Blocks decompressed by several threads, in the order of the file.
//!
//! Flows in: the file, standing at a block. Flows out: one pending chunk per about [`CHUNK_BYTES`] of text, in the order
//! of the file, filled by a worker; and what stands behind the last block. Random access and writing are not done here.

use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use libdeflater::Decompressor;

use super::block::{self, EOF_BLOCK, FIXED_HEADER_BYTES, MAX_BLOCK_BYTES};
use super::error::Fault;
use super::gzip::{self, Next};
use super::point::Coding;
use super::read_ahead::{Accept, CHUNK_BYTES, Chunks, Inflated, Piece, fresh_chunk};
use super::source::Source;

/// Most blocks of one job, so that a file of empty blocks is passed over in steps of bounded size.
const MAX_JOB_BLOCKS: usize = 1024;

/// A block within the compressed bytes of a [`Job`].
struct Block {
    compressed_bytes: usize,
    text_bytes: usize,
    /// Where the block starts in the file.
    offset: u64,
}

/// Blocks of one chunk.
#[derive(Default)]
struct Job {
    compressed: Vec<u8>,
    blocks: Vec<Block>,
    text_bytes: usize,
}

/// Jobs on their way to the workers, each with the place for its answer.
type Jobs = Sender<(Job, Sender<Inflated>)>;

impl Job {
    /// Hands what is collected to a worker, and the promise of its text to the reader.
    fn dispatch(&mut self, jobs: &Jobs, chunks: &mut Chunks) -> Result<(), Fault> {
        // Empty text tells the reader nothing, but an empty block that is damaged is still a damaged file.
        if self.blocks.is_empty() {
            return Ok(());
        }
        let (answer, promise) = bounded(1);
        chunks.count(self.text_bytes);
        chunks.send(Piece::Pending(promise))?;
        jobs.send((std::mem::take(self), answer)).map_err(|_| Fault::Lost)
    }

    fn inflate(&self, decompressor: &mut Decompressor, mut text: Vec<u8>) -> Inflated {
        let (mut compressed, mut filled) = (self.compressed.as_slice(), 0);
        for block in &self.blocks {
            let (bytes, rest) = compressed.split_at(block.compressed_bytes);
            if !block::inflate(decompressor, bytes, &mut text[filled..filled + block.text_bytes]) {
                text.truncate(filled);
                let detail = "BGZF block with invalid data, checksum or length".to_owned();
                return Inflated { text, fault: Some(Fault::Corrupt { offset: block.offset, detail }) };
            }
            (compressed, filled) = (rest, filled + block.text_bytes);
        }
        Inflated { text, fault: None }
    }
}

/// Bytes of the block ahead, which then can be looked at as a whole; `None` where none stands there.
pub(super) fn block_ahead(source: &mut Source) -> Result<Option<usize>, Fault> {
    let offset = source.offset();
    let mut needed = FIXED_HEADER_BYTES;
    loop {
        let ahead = source.peek(needed)?;
        if ahead.len() < needed {
            // What starts like a gzip member but ends within its header is a block cut short.
            let cut_short = ahead.starts_with(&gzip::MAGIC);
            return if cut_short { Err(Fault::Truncated { offset: offset + ahead.len() as u64 }) } else { Ok(None) };
        }
        match block::block_bytes(ahead) {
            Ok(Some(bytes)) if bytes <= ahead.len() => return Ok(Some(bytes)),
            Ok(Some(bytes)) | Err(bytes) => needed = bytes,
            Ok(None) => return Ok(None),
        }
    }
}

/// Decompresses blocks up to the end of the file, or to a gzip member that is no block: [`Next::Member`].
pub(super) fn inflate_blocks(
    source: &mut Source,
    chunks: &mut Chunks,
    threads: usize,
    accept: Accept,
) -> Result<Next, Fault> {
    let (jobs, queue) = bounded(2 * threads);
    // `move`: the sender must go before the scope waits for its threads, which end when it does.
    thread::scope(move |scope| {
        for _ in 0..threads {
            let (queue, spares) = (queue.clone(), chunks.spares());
            let work = move || work(&queue, &spares);
            thread::Builder::new().name("bgzf-inflate".to_owned()).spawn_scoped(scope, work).map_err(Fault::Thread)?;
        }
        // Kept, it would hide that all workers are gone.
        drop(queue);
        read_blocks(source, chunks, &jobs, accept)
    })
}

fn read_blocks(source: &mut Source, chunks: &mut Chunks, jobs: &Jobs, accept: Accept) -> Result<Next, Fault> {
    let mut job = Job::default();
    let mut ends_with_eof_block = false;
    let result = loop {
        match read_block(source, &mut job, accept, chunks) {
            Ok(Some(is_eof_block)) => ends_with_eof_block = is_eof_block,
            Ok(None) => match behind(source, accept) {
                Ok(Next::End) if !ends_with_eof_block && !accept.is_lenient() => {
                    break Err(Fault::MissingEof { offset: source.offset() });
                }
                next => break next,
            },
            Err(fault) => break Err(fault),
        }
        if job.text_bytes + MAX_BLOCK_BYTES > CHUNK_BYTES || job.blocks.len() >= MAX_JOB_BLOCKS {
            job.dispatch(jobs, chunks)?;
        }
    };
    // Text before a fault goes first, so that the fault is blamed on the right record.
    job.dispatch(jobs, chunks)?;
    result
}

/// What stands where there is no further block.
fn behind(source: &mut Source, accept: Accept) -> Result<Next, Fault> {
    if accept == Accept::Bgzf {
        let offset = source.offset();
        return if source.peek(1)?.is_empty() { Ok(Next::End) } else { Err(Fault::Garbage { offset }) };
    }
    gzip::next(source)
}

/// Adds the block ahead to the job and tells whether it may end a file; `None` where no block stands ahead.
fn read_block(source: &mut Source, job: &mut Job, accept: Accept, chunks: &mut Chunks) -> Result<Option<bool>, Fault> {
    let offset = source.offset();
    let Some(compressed_bytes) = block_ahead(source)? else { return Ok(None) };
    if job.blocks.is_empty() && chunks.is_point_due() {
        chunks.point(offset, Coding::Block, Vec::new())?;
    }
    let block = &source.peek(compressed_bytes)?[..compressed_bytes];
    let Some(text_bytes) = block::data_bytes(block) else {
        return Err(Fault::Corrupt { offset, detail: "BGZF block of more than 64 KiB of data".to_owned() });
    };
    // Text is taken from any writer, and some end it with an empty block of their own making.
    let is_eof_block = if accept == Accept::Bgzf { block == EOF_BLOCK } else { text_bytes == 0 };
    job.compressed.extend_from_slice(block);
    job.blocks.push(Block { compressed_bytes, text_bytes, offset });
    job.text_bytes += text_bytes;
    source.consume(compressed_bytes);
    Ok(Some(is_eof_block))
}

/// Decompresses jobs until there are no more.
fn work(queue: &Receiver<(Job, Sender<Inflated>)>, spares: &Receiver<Vec<u8>>) {
    let mut decompressor = Decompressor::new();
    for (job, answer) in queue {
        let inflated = job.inflate(&mut decompressor, fresh_chunk(spares, job.text_bytes));
        // A reader that is gone wants no text; the jobs end by themselves.
        drop(answer.send(inflated));
    }
}
