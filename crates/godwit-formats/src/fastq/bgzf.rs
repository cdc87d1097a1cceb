//! BGZF (SAMv1 §4.1): gzip members of at most 64 KiB of text that carry their own compressed size, so that several
//! threads decompress one file.
//!
//! Flows in: the file, standing at its first block. Flows out: one pending chunk per about [`CHUNK_BYTES`] of text, in
//! the order of the file, filled by a worker. Random access and writing are not done here.

use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use libdeflater::Decompressor;

use super::error::Fault;
use super::gzip::{self, Next};
use super::input::{CHUNK_BYTES, Chunks, Inflated, Piece, fresh_chunk};
use super::source::Source;

/// Bytes of a gzip header up to its extra field.
const FIXED_HEADER_BYTES: usize = 12;
/// CRC32 and length of the text, which end a gzip member.
const TRAILER_BYTES: usize = 8;
/// Most text that a block may hold (SAMv1 §4.1).
const MAX_TEXT_BYTES: usize = 1 << 16;
/// Most blocks of one chunk, so that a file of empty blocks is passed over in steps of bounded size.
const MAX_BUNDLE_BLOCKS: usize = 1024;

/// A block to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Compressed bytes, header to trailer.
    block_bytes: usize,
}

/// A block within the compressed bytes of a [`Bundle`].
struct Block {
    compressed_bytes: usize,
    text_bytes: usize,
    /// Where the block starts in the file.
    offset: u64,
}

/// Blocks of one chunk.
struct Bundle {
    compressed: Vec<u8>,
    blocks: Vec<Block>,
    text_bytes: usize,
    result: Sender<Inflated>,
}

/// The header of the gzip member ahead if it is a BGZF block.
pub(super) fn header(source: &mut Source) -> Result<Option<Header>, Fault> {
    let ahead = source.peek(FIXED_HEADER_BYTES)?;
    // RFC 1952 §2.3: magic, deflate, FEXTRA among the flags.
    if ahead.len() < FIXED_HEADER_BYTES || !ahead.starts_with(&gzip::MAGIC) || ahead[2] != 8 || ahead[3] & 4 == 0 {
        return Ok(None);
    }
    let extra_bytes = usize::from(u16::from_le_bytes([ahead[10], ahead[11]]));
    let ahead = source.peek(FIXED_HEADER_BYTES + extra_bytes)?;
    let mut extra = ahead.get(FIXED_HEADER_BYTES..FIXED_HEADER_BYTES + extra_bytes).unwrap_or_default();
    while let [id1, id2, low, high, rest @ ..] = extra {
        let field_bytes = usize::from(u16::from_le_bytes([*low, *high]));
        if (*id1, *id2, field_bytes) == (b'B', b'C', 2) && rest.len() >= 2 {
            return Ok(Some(Header { block_bytes: usize::from(u16::from_le_bytes([rest[0], rest[1]])) + 1 }));
        }
        extra = rest.get(field_bytes..).unwrap_or_default();
    }
    Ok(None)
}

/// Decompresses blocks up to the end of the file, or to a gzip member that is no block: [`Next::Member`].
pub(super) fn inflate_blocks(
    source: &mut Source,
    chunks: &mut Chunks,
    threads: usize,
    lenient: bool,
) -> Result<Next, Fault> {
    let (bundles, queue) = bounded(2 * threads);
    // `move`: the sender must go before the scope waits for its threads, which end when it does.
    thread::scope(move |scope| {
        for _ in 0..threads {
            let (queue, spares) = (queue.clone(), chunks.spares());
            let work = move || work(&queue, &spares);
            thread::Builder::new().name("fastq-bgzf".to_owned()).spawn_scoped(scope, work).map_err(Fault::Thread)?;
        }
        // Kept, it would hide that all workers are gone.
        drop(queue);
        read_blocks(source, chunks, &bundles, lenient)
    })
}

/// Blocks collected for the next bundle.
#[derive(Default)]
struct Pending {
    compressed: Vec<u8>,
    blocks: Vec<Block>,
    text_bytes: usize,
}

impl Pending {
    /// Hands what is collected to a worker, and the promise of its text to the reader.
    fn dispatch(&mut self, bundles: &Sender<Bundle>, chunks: &mut Chunks) -> Result<(), Fault> {
        let Self { compressed, blocks, text_bytes } = std::mem::take(self);
        // Empty text tells the reader nothing, but an empty block that is damaged is still a damaged file.
        if blocks.is_empty() {
            return Ok(());
        }
        let (result, receiver) = bounded(1);
        chunks.send(Piece::Pending(receiver))?;
        bundles.send(Bundle { compressed, blocks, text_bytes, result }).map_err(|_| Fault::Lost)
    }
}

fn read_blocks(
    source: &mut Source,
    chunks: &mut Chunks,
    bundles: &Sender<Bundle>,
    lenient: bool,
) -> Result<Next, Fault> {
    let mut pending = Pending::default();
    let mut ends_with_eof_block = false;
    let result = loop {
        match read_block(source, &mut pending) {
            Ok(Some(text_bytes)) => ends_with_eof_block = text_bytes == 0,
            Ok(None) => match gzip::next(source) {
                Ok(Next::End) if !ends_with_eof_block && !lenient => break Err(Fault::MissingEof),
                next => break next,
            },
            Err(fault) => break Err(fault),
        }
        if pending.text_bytes + MAX_TEXT_BYTES > CHUNK_BYTES || pending.blocks.len() >= MAX_BUNDLE_BLOCKS {
            pending.dispatch(bundles, chunks)?;
        }
    };
    // Text before a fault goes first, so that the fault is blamed on the right record.
    pending.dispatch(bundles, chunks)?;
    result
}

/// Adds the block ahead to the next bundle and returns its length as text; `None` where no block stands ahead.
fn read_block(source: &mut Source, pending: &mut Pending) -> Result<Option<usize>, Fault> {
    let offset = source.offset();
    let Some(Header { block_bytes }) = header(source)? else {
        // What starts like a gzip member but ends within the fixed header is a block cut short.
        let ahead = source.peek(FIXED_HEADER_BYTES)?;
        let cut_short = ahead.starts_with(&gzip::MAGIC) && ahead.len() < FIXED_HEADER_BYTES;
        return if cut_short { Err(Fault::Truncated { offset: offset + ahead.len() as u64 }) } else { Ok(None) };
    };
    let ahead = source.peek(block_bytes)?;
    let Some(block) = ahead.get(..block_bytes) else {
        return Err(Fault::Truncated { offset: offset + ahead.len() as u64 });
    };
    let corrupt = |detail: &str| Fault::Corrupt { offset, detail: detail.to_owned() };
    let Some((_, trailer)) = block.split_last_chunk::<4>().filter(|_| block_bytes > FIXED_HEADER_BYTES + TRAILER_BYTES)
    else {
        return Err(corrupt("BGZF block shorter than its header"));
    };
    let text_bytes = u32::from_le_bytes(*trailer) as usize;
    if text_bytes > MAX_TEXT_BYTES {
        return Err(corrupt("BGZF block of more than 64 KiB of text"));
    }
    pending.compressed.extend_from_slice(block);
    pending.blocks.push(Block { compressed_bytes: block_bytes, text_bytes, offset });
    pending.text_bytes += text_bytes;
    source.consume(block_bytes);
    Ok(Some(text_bytes))
}

/// Decompresses bundles until there are no more.
fn work(queue: &Receiver<Bundle>, spares: &Receiver<Vec<u8>>) {
    let mut decompressor = Decompressor::new();
    for bundle in queue {
        let inflated = inflate_bundle(&mut decompressor, &bundle, fresh_chunk(spares, bundle.text_bytes));
        // A reader that is gone wants no text; the bundles end by themselves.
        drop(bundle.result.send(inflated));
    }
}

fn inflate_bundle(decompressor: &mut Decompressor, bundle: &Bundle, mut text: Vec<u8>) -> Inflated {
    let (mut compressed, mut filled) = (bundle.compressed.as_slice(), 0);
    for block in &bundle.blocks {
        let (bytes, rest) = compressed.split_at(block.compressed_bytes);
        // libdeflate checks the header, the checksum and the length; less text than the trailer of the block says means
        // that the compressed data ended early and something else follows it.
        let count = decompressor.gzip_decompress(bytes, &mut text[filled..filled + block.text_bytes]);
        if count.ok() != Some(block.text_bytes) {
            text.truncate(filled);
            let detail = "BGZF block with invalid data, checksum or length".to_owned();
            return Inflated { text, fault: Some(Fault::Corrupt { offset: block.offset, detail }) };
        }
        (compressed, filled) = (rest, filled + block.text_bytes);
    }
    Inflated { text, fault: None }
}
