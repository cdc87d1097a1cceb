//! Text of BGZF files and, beside it, how their blocks are made: read here, and made again there.
//!
//! What is said of blocks is a row of entries, integers as LEB128: 2 × bytes of text + k. k = 0: level, and number of blocks of this kind;
//! k = 1: bytes of a block that is kept as it is, and these bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;

use godwit_formats::bgzf::{BlockMaker, MAX_BLOCK_DATA, Making, block_length};

use crate::delta::{Cursor, put_varint};

/// Most bytes of a block, compressed or not.
const MAX_BLOCK_BYTES: usize = 1 << 16;
/// Compressed bytes that threads work on at a time.
const GROUP_BYTES: usize = 2 << 20;
/// The same to begin with: enough to see whether blocks can be made again.
const FIRST_BYTES: usize = 128 << 10;
/// Blocks that threads make at a time.
const GROUP_BLOCKS: usize = 128;
/// The share of a file that may be kept as it is, one in so many bytes: what is kept is sent beside its text.
const MOST_KEPT: u64 = 8;

/// What is said of blocks and not sent yet, or not made yet. One thread's.
pub(super) type Shared<T> = Rc<RefCell<T>>;

/// Why a file is better sent as it is.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct Unsuited {
    pub(super) why: &'static str,
}

fn unsuited(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, Unsuited { why })
}

/// The text of a BGZF file.
pub(super) struct TextReader<R> {
    raw: R,
    makers: Vec<BlockMaker>,
    /// Compressed bytes that are not taken apart.
    left: Vec<u8>,
    text: Vec<u8>,
    at: usize,
    making: Shared<Vec<u8>>,
    wanted_bytes: usize,
    kept_bytes: u64,
    taken_bytes: u64,
}

impl<R: Read> TextReader<R> {
    /// Of a file from its beginning. How blocks are made is in `making` before their text is read.
    pub(super) fn new(raw: R, threads: usize, making: Shared<Vec<u8>>) -> Self {
        let makers = (0..threads.max(1)).map(|_| BlockMaker::default()).collect();
        let (left, text) = (Vec::new(), Vec::new());
        Self { raw, makers, left, text, at: 0, making, wanted_bytes: FIRST_BYTES, kept_bytes: 0, taken_bytes: 0 }
    }

    /// Takes some blocks apart; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let is_first = self.wanted_bytes == FIRST_BYTES;
        let missing = self.wanted_bytes.saturating_sub(self.left.len());
        let read = Read::take(&mut self.raw, missing as u64).read_to_end(&mut self.left)?;
        if self.left.is_empty() {
            return Ok(false);
        }
        let lengths = whole_blocks(&self.left)?;
        if lengths.is_empty() && read < missing {
            return Err(unsuited("its last block is cut short"));
        }
        let taken: usize = lengths.iter().sum();
        let rest = self.left.split_off(taken);
        let blocks = std::mem::replace(&mut self.left, rest);
        (self.text, self.at) = (Vec::new(), 0);
        let made =
            take_apart(&mut self.makers, &blocks, &lengths).ok_or_else(|| unsuited("a block of it is damaged"))?;
        let mut entries = Entries::default();
        for (text, makings) in made {
            self.text.extend_from_slice(&text);
            for (text_bytes, making) in makings {
                // The empty block at the end is always kept.
                self.kept_bytes += match &making {
                    Making::Kept(block) if text_bytes > 0 => block.len() as u64,
                    _ => 0,
                };
                entries.add(text_bytes, making);
            }
        }
        self.making.borrow_mut().extend(entries.finish());
        self.taken_bytes += taken as u64;
        if self.kept_bytes * MOST_KEPT > self.taken_bytes {
            return Err(unsuited(
                "what compressed it does it otherwise than is done here, so that it would come back as another file",
            ));
        }
        if is_first && self.text.first() != Some(&b'>') {
            return Err(unsuited("it is no FASTA"));
        }
        self.wanted_bytes = GROUP_BYTES;
        Ok(true)
    }
}

impl<R: Read> Read for TextReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.text.len() {
            if !self.fill()? {
                return Ok(0);
            }
        }
        let count = out.len().min(self.text.len() - self.at);
        out[..count].copy_from_slice(&self.text[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Lengths of the blocks at the start of `bytes` that are whole.
fn whole_blocks(bytes: &[u8]) -> io::Result<Vec<usize>> {
    let (mut lengths, mut at) = (Vec::new(), 0);
    while let Ok(length) = block_length(&bytes[at..]) {
        let length = length.ok_or_else(|| {
            unsuited("it is gzip, whose bytes cannot be made again; bgzip makes files of which they can")
        })?;
        if at + length > bytes.len() {
            break;
        }
        lengths.push(length);
        at += length;
    }
    Ok(lengths)
}

/// Texts of some blocks each, and how these are made. `None` where one is damaged.
type Apart = Vec<(Vec<u8>, Vec<(usize, Making)>)>;

fn take_apart(makers: &mut [BlockMaker], bytes: &[u8], lengths: &[usize]) -> Option<Apart> {
    let share = lengths.len().div_ceil(makers.len()).max(1);
    let mut rest = bytes;
    std::thread::scope(|scope| {
        let working: Vec<_> = lengths
            .chunks(share)
            .zip(makers)
            .map(|(lengths, maker)| {
                let mut blocks;
                (blocks, rest) = rest.split_at(lengths.iter().sum());
                scope.spawn(move || {
                    let (mut text, mut makings) = (Vec::new(), Vec::new());
                    for length in lengths {
                        let (block, behind) = blocks.split_at(*length);
                        blocks = behind;
                        let before = text.len();
                        let making = maker.take_apart(block, &mut text)?;
                        makings.push((text.len() - before, making));
                    }
                    Some((text, makings))
                })
            })
            .collect();
        working.into_iter().map(|work| work.join().expect("taking a block apart does not panic")).collect()
    })
}

/// Entries about blocks, those of one kind together.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    /// Bytes of text, level, and how many there are of them.
    run: Option<(usize, u8, u64)>,
}

impl Entries {
    fn add(&mut self, text_bytes: usize, making: Making) {
        match (making, &mut self.run) {
            (Making::Level(level), Some((text, known, count))) if (*text, *known) == (text_bytes, level) => *count += 1,
            (Making::Level(level), _) => {
                self.end_run();
                self.run = Some((text_bytes, level, 1));
            }
            (Making::Kept(block), _) => {
                self.end_run();
                put_varint(&mut self.bytes, 2 * text_bytes as u64 + 1);
                put_varint(&mut self.bytes, block.len() as u64);
                self.bytes.extend(block);
            }
        }
    }

    fn end_run(&mut self) {
        if let Some((text_bytes, level, count)) = self.run.take() {
            for number in [2 * text_bytes as u64, level.into(), count] {
                put_varint(&mut self.bytes, number);
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.end_run();
        self.bytes
    }
}

/// Blocks of one kind that are to be made: bytes of text of each, how, and how many.
#[derive(Debug)]
pub(super) struct ToMake {
    text_bytes: usize,
    making: Making,
    count: u64,
}

/// Reads entries about blocks; `None` where they are none.
pub(super) fn read_entries(bytes: &[u8], blocks: &mut VecDeque<ToMake>) -> Option<()> {
    let mut cursor = Cursor::new(bytes);
    while !cursor.is_empty() {
        let first = cursor.varint()?;
        let text_bytes = usize::try_from(first / 2).ok().filter(|bytes| *bytes <= MAX_BLOCK_BYTES)?;
        let (making, count) = if first % 2 == 0 {
            let level =
                u8::try_from(cursor.varint()?).ok().filter(|level| *level <= 12 && text_bytes <= MAX_BLOCK_DATA)?;
            (Making::Level(level), cursor.varint()?)
        } else {
            let block_bytes = usize::try_from(cursor.varint()?).ok().filter(|bytes| *bytes <= MAX_BLOCK_BYTES)?;
            (Making::Kept(cursor.bytes(block_bytes)?.to_vec()), 1)
        };
        blocks.push_back(ToMake { text_bytes, making, count });
    }
    Some(())
}

/// Makes blocks of the text that is written to it.
pub(super) struct BlockWriter<W> {
    out: W,
    makers: Vec<BlockMaker>,
    blocks: Shared<VecDeque<ToMake>>,
    text: Vec<u8>,
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what is said of its blocks does not fit its text")
}

impl<W: Write> BlockWriter<W> {
    /// Makes what is in `blocks` before its text is written.
    pub(super) fn new(out: W, threads: usize, blocks: Shared<VecDeque<ToMake>>) -> Self {
        let makers = (0..threads.max(1)).map(|_| BlockMaker::default()).collect();
        Self { out, makers, blocks, text: Vec::new() }
    }

    /// Makes the last blocks; what it was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        while self.make()? {}
        if self.text.is_empty() && self.blocks.borrow().is_empty() { Ok(self.out) } else { Err(damaged()) }
    }

    /// Makes some blocks whose text is there; false where there are none.
    fn make(&mut self) -> io::Result<bool> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        while group.len() < GROUP_BLOCKS {
            let mut blocks = self.blocks.borrow_mut();
            let Some(next) = blocks.front_mut() else { break };
            if next.count == 0 {
                blocks.pop_front();
                continue;
            }
            if bytes + next.text_bytes > self.text.len() {
                break;
            }
            next.count -= 1;
            bytes += next.text_bytes;
            group.push((next.text_bytes, next.making.clone()));
        }
        if group.is_empty() {
            return Ok(false);
        }
        for made in make_all(&mut self.makers, &self.text[..bytes], &group) {
            self.out.write_all(&made)?;
        }
        self.text.drain(..bytes);
        Ok(true)
    }
}

impl<W: Write> Write for BlockWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What blocks are is said before their text comes, so that no more than a group of it waits.
        let taken = bytes.len().min(GROUP_BLOCKS * MAX_BLOCK_BYTES);
        self.text.extend_from_slice(&bytes[..taken]);
        while self.text.len() >= GROUP_BLOCKS * MAX_BLOCK_BYTES {
            if !self.make()? {
                return Err(damaged());
            }
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn make_all(makers: &mut [BlockMaker], text: &[u8], group: &[(usize, Making)]) -> Vec<Vec<u8>> {
    let share = group.len().div_ceil(makers.len()).max(1);
    let mut rest = text;
    std::thread::scope(|scope| {
        let working: Vec<_> = group
            .chunks(share)
            .zip(makers)
            .map(|(some, maker)| {
                let mut text;
                (text, rest) = rest.split_at(some.iter().map(|(bytes, _)| bytes).sum());
                scope.spawn(move || {
                    let mut made = Vec::new();
                    for (bytes, making) in some {
                        let (data, behind) = text.split_at(*bytes);
                        text = behind;
                        maker.make(data, making, &mut made);
                    }
                    made
                })
            })
            .collect();
        working.into_iter().map(|work| work.join().expect("making a block does not panic")).collect()
    })
}
