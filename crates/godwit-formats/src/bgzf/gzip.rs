//! Gzip members (RFC 1952), read strictly: every checksum, every length, and nothing between or after members but the
//! zero padding that gzip itself tolerates.

use zlib_rs::crc32::crc32;

use super::access_point::{AccessPointKind, DeflateState};
use super::error::InputError;
use super::member_inflater::{self, InflateProgress, MemberInflater};
use super::peek_reader::PeekReader;
use super::read_ahead::TextSender;

/// First bytes of a member.
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The only compression method defined (RFC 1952 §2.3.1, CM).
const CM_DEFLATE: u8 = 8;
/// Flags of a header (RFC 1952 §2.3.1, FLG).
const FLAG_HCRC: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const RESERVED_FLAGS: u8 = 0b1110_0000;

/// The data after a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextSection {
    /// Another member.
    Member,
    /// Nothing, or zeros up to the end of the file.
    EndOfFile,
}

/// Decompresses members up to the end of the file; the source is at the first.
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

/// Decompresses as [`inflate_members`], from within a member.
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

/// Detects what follows a member.
pub(super) fn peek_next_section(source: &mut PeekReader) -> Result<NextSection, InputError> {
    let ahead = source.peek(MAGIC.len())?;
    if ahead.starts_with(&MAGIC) {
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

/// Skips the header of a member (RFC 1952 §2.3).
fn skip_header(source: &mut PeekReader) -> Result<(), InputError> {
    let mut header = HeaderSkipper { source, crc: 0 };
    let [_, _, method, flags] = header.take_bytes()?;
    if method != CM_DEFLATE {
        return Err(corrupt_error(header.source, "unknown compression method"));
    }
    if flags & RESERVED_FLAGS != 0 {
        return Err(corrupt_error(header.source, "unknown header flags set"));
    }
    // Modification time, extra flags, system.
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

/// A header that is being skipped.
struct HeaderSkipper<'s> {
    source: &'s mut PeekReader,
    /// CRC32 of the bytes skipped.
    crc: u32,
}

impl HeaderSkipper<'_> {
    fn take_bytes<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], InputError> {
        let bytes = take_bytes(self.source)?;
        self.crc = crc32(self.crc, &bytes);
        Ok(bytes)
    }
}

/// Consumes bytes; fails where the file has fewer.
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

/// Returns the error of a file that ends too early.
fn truncated_error(source: &mut PeekReader) -> InputError {
    let left = source.peek(1).map_or(0, <[u8]>::len);
    InputError::Truncated { offset: source.offset() + left as u64 }
}

/// Decompresses the data of a member, and verifies its trailer.
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

/// Consumes the input of a step; sends the text it produced before a possible error.
fn apply_progress(step: InflateProgress, source: &mut PeekReader, sender: &mut TextSender) -> Result<(), InputError> {
    source.consume(step.consumed);
    sender.advance(step.produced)?;
    step.error.map_or(Ok(()), |error| Err(corrupt_error(source, error)))
}

/// Continues behind a deflate block, and records an access point there if the bit at which the next one begins can be
/// determined.
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
