//! Gzip members (RFC 1952), read strictly: every checksum, every length, and nothing between or after members but the
//! zero padding that gzip itself tolerates.

use zlib_rs::crc32::crc32;

use super::deflate::{self, Member, Step};
use super::error::Fault;
use super::point::{Coding, WithinMember};
use super::read_ahead::Chunks;
use super::source::Source;

/// First bytes of a member.
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The only compression there is (RFC 1952 §2.3.1, CM).
const DEFLATE: u8 = 8;
/// Flags of a header (RFC 1952 §2.3.1, FLG).
const HAS_CRC: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;

/// What stands after a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another member.
    Member,
    /// Nothing, or zeros up to the end of the file.
    End,
}

/// Decompresses members up to the end of the file; the source stands at the first.
pub(super) fn inflate_members(source: &mut Source, chunks: &mut Chunks) -> Result<(), Fault> {
    loop {
        if chunks.is_point_due() {
            chunks.point(source.offset(), Coding::Member, Vec::new())?;
        }
        pass_header(source)?;
        inflate_member(Member::new(), source, chunks)?;
        if next(source)? == Next::End {
            return Ok(());
        }
    }
}

/// As [`inflate_members`], from within a member.
pub(super) fn inflate_from(
    at: &WithinMember,
    window: &[u8],
    source: &mut Source,
    chunks: &mut Chunks,
) -> Result<(), Fault> {
    inflate_member(Member::within(at, window).ok_or(Fault::Changed)?, source, chunks)?;
    match next(source)? {
        Next::Member => inflate_members(source, chunks),
        Next::End => Ok(()),
    }
}

/// Looks at what stands after a member.
pub(super) fn next(source: &mut Source) -> Result<Next, Fault> {
    let ahead = source.peek(MAGIC.len())?;
    if ahead.starts_with(&MAGIC) {
        return Ok(Next::Member);
    }
    loop {
        let ahead = source.peek(1)?;
        if ahead.is_empty() {
            return Ok(Next::End);
        }
        let zeros = ahead.iter().take_while(|&&byte| byte == 0).count();
        let whole = zeros == ahead.len();
        source.consume(zeros);
        if !whole {
            return Err(Fault::Garbage { offset: source.offset() });
        }
    }
}

fn corrupt(source: &Source, detail: &str) -> Fault {
    Fault::Corrupt { offset: source.offset(), detail: detail.to_owned() }
}

/// Passes over the header of a member (RFC 1952 §2.3).
fn pass_header(source: &mut Source) -> Result<(), Fault> {
    let mut header = Header { source, crc: 0 };
    let [_, _, method, flags] = header.take()?;
    if method != DEFLATE {
        return Err(corrupt(header.source, "unknown compression method"));
    }
    if flags & RESERVED != 0 {
        return Err(corrupt(header.source, "unknown header flags set"));
    }
    // Modification time, extra flags, system.
    header.take::<6>()?;
    if flags & HAS_EXTRA != 0 {
        for _ in 0..u16::from_le_bytes(header.take()?) {
            header.take::<1>()?;
        }
    }
    for text in [HAS_NAME, HAS_COMMENT] {
        while flags & text != 0 && header.take()? != [0] {}
    }
    let crc = header.crc;
    if flags & HAS_CRC != 0 && u16::from_le_bytes(header.take()?) != crc as u16 {
        return Err(corrupt(header.source, "header crc mismatch"));
    }
    Ok(())
}

/// A header being passed over.
struct Header<'s> {
    source: &'s mut Source,
    /// CRC32 of what was passed over.
    crc: u32,
}

impl Header<'_> {
    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Fault> {
        let bytes = take(self.source)?;
        self.crc = crc32(self.crc, &bytes);
        Ok(bytes)
    }
}

/// Some bytes, all of which must be there.
fn take<const BYTES: usize>(source: &mut Source) -> Result<[u8; BYTES], Fault> {
    let ahead = source.peek(BYTES)?;
    match ahead.first_chunk() {
        Some(bytes) => {
            let bytes = *bytes;
            source.consume(BYTES);
            Ok(bytes)
        }
        None => Err(truncated(source)),
    }
}

/// The file ends where something else should be.
fn truncated(source: &mut Source) -> Fault {
    let left = source.peek(1).map_or(0, <[u8]>::len);
    Fault::Truncated { offset: source.offset() + left as u64 }
}

/// Decompresses the data of a member, and compares its trailer.
fn inflate_member(mut member: Member, source: &mut Source, chunks: &mut Chunks) -> Result<(), Fault> {
    let mut ended = false;
    while !ended {
        let stop = chunks.is_point_due();
        let ahead = source.peek(1)?;
        let at_end = ahead.is_empty();
        let mut step = member.step(ahead, chunks.space(), stop);
        take_step(step, source, chunks)?;
        if step.between_blocks {
            step = point_between_blocks(&mut member, source, chunks)?;
        }
        ended = step.ended;
        if !ended && step.consumed + step.produced == 0 {
            return Err(if at_end { truncated(source) } else { corrupt(source, "the decoder makes no progress") });
        }
    }
    let (crc, bytes) = member.trailer();
    if u32::from_le_bytes(take(source)?) != crc {
        return Err(corrupt(source, "incorrect data check"));
    }
    if u32::from_le_bytes(take(source)?) != bytes {
        return Err(corrupt(source, "incorrect length check"));
    }
    Ok(())
}

/// Passes over what was decompressed; what was produced goes on its way before a fault does.
fn take_step(step: Step, source: &mut Source, chunks: &mut Chunks) -> Result<(), Fault> {
    source.consume(step.consumed);
    chunks.advance(step.produced)?;
    step.fault.map_or(Ok(()), |fault| Err(corrupt(source, fault)))
}

/// Goes on behind a deflate block, and notes a point there if it can be told at which bit the next one begins.
fn point_between_blocks(member: &mut Member, source: &mut Source, chunks: &mut Chunks) -> Result<Step, Fault> {
    chunks.flush()?;
    let mut within = member.place();
    let ahead = source.peek(deflate::TRIAL_BYTES)?;
    let ahead = ahead[..ahead.len().min(deflate::TRIAL_BYTES)].to_vec();
    let window = chunks.window(member.window_bytes());
    let step = member.step(&ahead, chunks.space(), false);
    let truth = &chunks.space()[..step.produced];
    match deflate::bits_before(within, &window, &ahead, truth) {
        Some(bits) => {
            within.bits = bits;
            chunks.point(source.offset(), Coding::Deflate(within), window)?;
        }
        None => chunks.put_point_off(),
    }
    take_step(step, source, chunks)?;
    Ok(step)
}
