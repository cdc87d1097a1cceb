//! Decompression of gzip members (RFC 1952). Every checksum and every length is verified. After a member, only another
//! member or the zero padding that gzip tolerates at the end of the file is accepted.

use zlib_rs::crc32::crc32;

use super::access_point::{AccessPointKind, DeflateState};
use super::error::InputError;
use super::member_inflater::{self, InflateProgress, MemberInflater};
use super::peek_reader::PeekReader;
use super::read_ahead::TextSender;

/// First bytes of every gzip member, and so of every gzip and BGZF file (RFC 1952 §2.3.1).
pub const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The compression method (CM) deflate, the only one that RFC 1952 §2.3.1 defines.
const CM_DEFLATE: u8 = 8;
/// Bits of the flag byte (FLG) of a gzip header (RFC 1952 §2.3.1).
const FLAG_HCRC: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const RESERVED_FLAGS: u8 = 0b1110_0000;

/// The data that follows a gzip member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextSection {
    /// Another gzip member.
    Member,
    /// The end of the file, possibly after zero padding.
    EndOfFile,
}

/// Decompresses gzip members up to the end of the file. `source` must be at the start of a member.
pub(super) fn inflate_members(source: &mut PeekReader, sender: &mut TextSender) -> Result<(), InputError> {
    loop {
        if sender.is_access_point_due() {
            sender.send_access_point(source.offset(), AccessPointKind::GzipMember, Vec::new())?;
        }
        skip_header(source)?;
        inflate_member(MemberInflater::new(), source, sender)?;
        if peek_next_section(source)? == NextSection::EndOfFile {
            return Ok(());
        }
    }
}

/// Decompresses gzip members up to the end of the file. The first is decompressed from a position within it, described
/// by `state` and `window`.
pub(super) fn inflate_from_state(
    state: &DeflateState,
    window: &[u8],
    source: &mut PeekReader,
    sender: &mut TextSender,
) -> Result<(), InputError> {
    inflate_member(MemberInflater::from_state(state, window).ok_or(InputError::Changed)?, source, sender)?;
    match peek_next_section(source)? {
        NextSection::Member => inflate_members(source, sender),
        NextSection::EndOfFile => Ok(()),
    }
}

/// Detects the data that follows a gzip member, and skips zero padding.
pub(super) fn peek_next_section(source: &mut PeekReader) -> Result<NextSection, InputError> {
    let ahead = source.peek(GZIP_MAGIC.len())?;
    if ahead.starts_with(&GZIP_MAGIC) {
        return Ok(NextSection::Member);
    }
    loop {
        let ahead = source.peek(1)?;
        if ahead.is_empty() {
            return Ok(NextSection::EndOfFile);
        }
        let zeros = ahead.iter().take_while(|&&byte| byte == 0).count();
        let whole = zeros == ahead.len();
        source.consume(zeros);
        if !whole {
            return Err(InputError::NotCompressed { offset: source.offset() });
        }
    }
}

fn corrupt_error(source: &PeekReader, detail: &str) -> InputError {
    InputError::Corrupt { offset: source.offset(), detail: detail.to_owned() }
}

/// Skips and verifies the header of a gzip member (RFC 1952 §2.3).
fn skip_header(source: &mut PeekReader) -> Result<(), InputError> {
    let mut header = HeaderSkipper { source, crc: 0 };
    let [_, _, method, flags] = header.take_bytes()?;
    if method != CM_DEFLATE {
        return Err(corrupt_error(header.source, "unknown compression method"));
    }
    if flags & RESERVED_FLAGS != 0 {
        return Err(corrupt_error(header.source, "unknown header flags set"));
    }
    // Skip the modification time, the extra flags and the operating system.
    header.take_bytes::<6>()?;
    if flags & FLAG_EXTRA != 0 {
        for _ in 0..u16::from_le_bytes(header.take_bytes()?) {
            header.take_bytes::<1>()?;
        }
    }
    for text in [FLAG_NAME, FLAG_COMMENT] {
        while flags & text != 0 && header.take_bytes()? != [0] {}
    }
    let crc = header.crc;
    if flags & FLAG_HCRC != 0 && u16::from_le_bytes(header.take_bytes()?) != crc as u16 {
        return Err(corrupt_error(header.source, "header crc mismatch"));
    }
    Ok(())
}

/// A gzip header of which bytes are skipped and included in a checksum.
struct HeaderSkipper<'s> {
    source: &'s mut PeekReader,
    /// CRC32 of the header bytes skipped so far.
    crc: u32,
}

impl HeaderSkipper<'_> {
    fn take_bytes<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], InputError> {
        let bytes = take_bytes(self.source)?;
        self.crc = crc32(self.crc, &bytes);
        Ok(bytes)
    }
}

/// Consumes and returns the next `BYTES` bytes; fails if the file has fewer.
fn take_bytes<const BYTES: usize>(source: &mut PeekReader) -> Result<[u8; BYTES], InputError> {
    let ahead = source.peek(BYTES)?;
    match ahead.first_chunk() {
        Some(bytes) => {
            let bytes = *bytes;
            source.consume(BYTES);
            Ok(bytes)
        }
        None => Err(truncated_error(source)),
    }
}

/// Returns the error for a file that ends within a gzip member.
fn truncated_error(source: &mut PeekReader) -> InputError {
    let left = source.peek(1).map_or(0, <[u8]>::len);
    InputError::Truncated { offset: source.offset() + left as u64 }
}

/// Decompresses the remaining data of a gzip member, and verifies the checksum and length in its trailer.
fn inflate_member(
    mut member: MemberInflater,
    source: &mut PeekReader,
    sender: &mut TextSender,
) -> Result<(), InputError> {
    let mut ended = false;
    while !ended {
        let stop = sender.is_access_point_due();
        let ahead = source.peek(1)?;
        let at_end = ahead.is_empty();
        let mut step = member.inflate(ahead, sender.unfilled_buffer(), stop);
        apply_progress(step, source, sender)?;
        if step.is_block_end {
            step = send_block_access_point(&mut member, source, sender)?;
        }
        ended = step.is_member_end;
        if !ended && step.consumed + step.produced == 0 {
            return Err(if at_end {
                truncated_error(source)
            } else {
                corrupt_error(source, "the decoder makes no progress")
            });
        }
    }
    let (crc, bytes) = member.trailer();
    if u32::from_le_bytes(take_bytes(source)?) != crc {
        return Err(corrupt_error(source, "incorrect data check"));
    }
    if u32::from_le_bytes(take_bytes(source)?) != bytes {
        return Err(corrupt_error(source, "incorrect length check"));
    }
    Ok(())
}

/// Consumes the compressed bytes that a decompression step used, and sends the text that it produced. Only then returns
/// the error of the step, if any.
fn apply_progress(step: InflateProgress, source: &mut PeekReader, sender: &mut TextSender) -> Result<(), InputError> {
    source.consume(step.consumed);
    sender.advance(step.produced)?;
    step.error.map_or(Ok(()), |error| Err(corrupt_error(source, error)))
}

/// Decompresses the data after a deflate block. Records an access point at the end of the block, if the bit at which
/// the next block begins can be determined.
fn send_block_access_point(
    member: &mut MemberInflater,
    source: &mut PeekReader,
    sender: &mut TextSender,
) -> Result<InflateProgress, InputError> {
    sender.flush()?;
    let mut state = member.state();
    let ahead = source.peek(member_inflater::TRIAL_BYTES)?;
    let ahead = ahead[..ahead.len().min(member_inflater::TRIAL_BYTES)].to_vec();
    let window = sender.window(member.window_bytes());
    let step = member.inflate(&ahead, sender.unfilled_buffer(), false);
    let expected_text = &sender.unfilled_buffer()[..step.produced];
    match member_inflater::find_pending_bits(state, &window, &ahead, expected_text) {
        Some(bits) => {
            state.pending_bits = bits;
            sender.send_access_point(source.offset(), AccessPointKind::DeflateBlock(state), window)?;
        }
        None => sender.postpone_access_point(),
    }
    apply_progress(step, source, sender)?;
    Ok(step)
}
