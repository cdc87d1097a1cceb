//! The data of a gzip member, decompressed from its start or from between two of its deflate blocks.
//!
//! Deflate blocks begin at any bit, and zlib-rs takes bytes. It stops between blocks but does not report the bit. Of the
//! eight possible ones only the right one leads to the text that in fact follows; [`find_pending_bits`] tries them. To
//! begin at a bit, [`alignment_blocks`] prepends blocks without text, with as many bits as are missing to a whole byte. So
//! stored blocks, which begin at whole bytes of the file, keep their alignment.

use zlib_rs::crc32::crc32;
use zlib_rs::{Inflate, InflateFlush, Status};

use super::access_point::{DeflateState, WINDOW_BYTES};

/// The largest window, which is enough for every member.
const WINDOW_BITS: u8 = 15;
/// Bytes of compressed data used to try a bit position. A stored block is shorter.
pub(super) const TRIAL_BYTES: usize = 96 << 10;
/// Bytes of text compared in the first trial.
const FIRST_TRIAL_TEXT_BYTES: usize = 4 << 10;
/// Minimum bytes of text for a meaningful comparison.
const MIN_EXPECTED_TEXT_BYTES: usize = 512;
/// Maximum bytes of text in a stored block (RFC 1951 §3.2.4).
const MAX_STORED_BLOCK_BYTES: usize = (1 << 16) - 1;

/// A raw decompressor of one member: it computes checksum and length itself.
pub(super) struct MemberInflater {
    inflate: Inflate,
    crc: u32,
    /// Bytes of text, modulo 2^32.
    text_bytes: u32,
    /// Bytes of text that later blocks can refer back to.
    available_window_bytes: u64,
    last_byte: u8,
    /// Blocks to decompress before the next input.
    alignment_blocks: Vec<u8>,
}

/// The result of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InflateProgress {
    pub(super) consumed: usize,
    pub(super) produced: usize,
    /// True if the data of the member ends there.
    pub(super) is_member_end: bool,
    /// True if a deflate block ends there, with data and room left. Set only where the call was to stop at block ends.
    pub(super) is_block_end: bool,
    /// The problem in the data behind the text produced.
    pub(super) error: Option<&'static str>,
}

impl MemberInflater {
    /// Creates a decompressor for a member, behind its header.
    pub(super) fn new() -> Self {
        let inflate = Inflate::new(false, WINDOW_BITS);
        Self { inflate, crc: 0, text_bytes: 0, available_window_bytes: 0, last_byte: 0, alignment_blocks: Vec::new() }
    }

    /// Creates a decompressor that starts between blocks. `window` is the text before.
    pub(super) fn from_state(state: &DeflateState, window: &[u8]) -> Option<Self> {
        let mut inflate = Inflate::new(false, WINDOW_BITS);
        inflate.set_dictionary(window).ok()?;
        let DeflateState { pending_bits, last_byte, crc, member_text_bytes } = *state;
        let available_window_bytes = window.len() as u64;
        Some(Self {
            inflate,
            crc,
            text_bytes: member_text_bytes,
            available_window_bytes,
            last_byte,
            alignment_blocks: alignment_blocks(pending_bits, last_byte),
        })
    }

    /// Decompresses `ahead` until it or the room is used up, or to the end of a block.
    pub(super) fn inflate(&mut self, ahead: &[u8], space: &mut [u8], stop_at_block_end: bool) -> InflateProgress {
        if !self.alignment_blocks.is_empty() {
            let lead_in = std::mem::take(&mut self.alignment_blocks);
            let InflateProgress { error, .. } = self.call_inflate(&lead_in, space, InflateFlush::NoFlush);
            if error.is_some() {
                return InflateProgress { error, ..InflateProgress::default() };
            }
        }
        let flush = if stop_at_block_end { InflateFlush::Block } else { InflateFlush::NoFlush };
        let mut step = self.call_inflate(ahead, space, flush);
        if let Some(last) = ahead[..step.consumed].last() {
            self.last_byte = *last;
        }
        self.crc = crc32(self.crc, &space[..step.produced]);
        self.text_bytes = self.text_bytes.wrapping_add(step.produced as u32);
        self.available_window_bytes += step.produced as u64;
        // It stops because data or room is used up, or between blocks.
        let has_more = step.consumed < ahead.len() && step.produced < space.len();
        step.is_block_end = stop_at_block_end && has_more && !step.is_member_end && step.error.is_none();
        step
    }

    fn call_inflate(&mut self, ahead: &[u8], space: &mut [u8], flush: InflateFlush) -> InflateProgress {
        let (total_in, total_out) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(ahead, space, flush);
        // Both are bounded by the lengths of the slices.
        let consumed = (self.inflate.total_in() - total_in) as usize;
        let produced = (self.inflate.total_out() - total_out) as usize;
        let error = status.is_err().then(|| self.inflate.error_message().unwrap_or("invalid compressed data"));
        InflateProgress {
            consumed,
            produced,
            is_member_end: status == Ok(Status::StreamEnd),
            is_block_end: false,
            error,
        }
    }

    /// Returns the state between two blocks, with `pending_bits` 0; [`find_pending_bits`] finds those.
    pub(super) fn state(&self) -> DeflateState {
        DeflateState { pending_bits: 0, last_byte: self.last_byte, crc: self.crc, member_text_bytes: self.text_bytes }
    }

    /// Returns the bytes of text before it that later blocks may refer back to.
    pub(super) fn window_bytes(&self) -> usize {
        self.available_window_bytes.min(WINDOW_BYTES as u64) as usize
    }

    /// Returns the CRC32 and length that the trailer should have.
    pub(super) fn trailer(&self) -> (u32, u32) {
        (self.crc, self.text_bytes)
    }
}

/// Returns the number of bits of the last byte that belong to the next block; `None` where it cannot be determined. `ahead`
/// are the next bytes of the file, `window` is the text before and `truth` the text that `ahead` in fact gives.
pub(super) fn find_pending_bits(state: DeflateState, window: &[u8], ahead: &[u8], truth: &[u8]) -> Option<u8> {
    if truth.len() < MIN_EXPECTED_TEXT_BYTES {
        return None;
    }
    let mut trial = Inflate::new(false, WINDOW_BITS);
    let mut space = Vec::new();
    let mut decodes_to = |bits: u8, expected_text: &[u8]| {
        trial.reset(false);
        space.resize(expected_text.len(), 0);
        let lead_in = alignment_blocks(bits, state.last_byte);
        trial.set_dictionary(window).is_ok()
            && trial.decompress(&lead_in, &mut space, InflateFlush::NoFlush).is_ok()
            && trial.total_out() == 0
            && trial.decompress(ahead, &mut space, InflateFlush::NoFlush).is_ok()
            && space == expected_text
    };
    let first_trial = &truth[..truth.len().min(FIRST_TRIAL_TEXT_BYTES)];
    let mut candidates: Vec<u8> = (0..8).filter(|bits| decodes_to(*bits, first_trial)).collect();
    if let [only] = candidates[..] {
        return Some(only);
    }
    // Before a stored block several numbers may fit: bits up to the next whole byte mean nothing. They differ in whether
    // the block is the last, which shows only in the text behind it; from there on they are equivalent.
    if truth.len() <= MAX_STORED_BLOCK_BYTES {
        return None;
    }
    candidates.retain(|bits| decodes_to(*bits, truth));
    candidates.first().copied()
}

/// Returns deflate blocks without any text, the last byte of which is completed by the highest `bits` of `last_byte`.
fn alignment_blocks(bits: u8, last_byte: u8) -> Vec<u8> {
    if bits == 0 {
        return Vec::new();
    }
    let missing = 8 - usize::from(bits);
    let mut out = BitWriter::default();
    // One block has 3 bits more than whole bytes, the other 2: their combinations give all numbers.
    let odd = missing % 2;
    if odd == 1 {
        out.push_empty_dynamic_block();
    }
    for _ in 0..(missing + 8 - 3 * odd) % 8 / 2 {
        out.push_empty_fixed_block();
    }
    debug_assert_eq!(out.count % 8, missing);
    out.push_bits(u32::from(last_byte >> missing), usize::from(bits));
    out.bytes
}

/// A writer of bits, the lowest of each byte first (RFC 1951 §3.1.1).
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl BitWriter {
    /// Appends the lowest bits of a value, the lowest first.
    fn push_bits(&mut self, value: u32, count: usize) {
        for bit in 0..count {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let set = (value >> bit & 1) as u8;
            if let Some(last) = self.bytes.last_mut() {
                *last |= set << (self.count % 8);
            }
            self.count += 1;
        }
    }

    /// Appends an empty block of fixed codes (RFC 1951 §3.2.6): 10 bits.
    fn push_empty_fixed_block(&mut self) {
        self.push_bits(0b01 << 1, 3);
        self.push_bits(0, 7);
    }

    /// Appends an empty block of dynamic codes (RFC 1951 §3.2.7): 91 bits.
    fn push_empty_dynamic_block(&mut self) {
        self.push_bits(0b10 << 1, 3);
        // 257 lengths of literals, 1 of distances, and 18 of the codes in which these lengths are written.
        self.push_bits(0, 5);
        self.push_bits(0, 5);
        self.push_bits(18 - 4, 4);
        // In their order 18 is the third and 1 the last: a bit each, 0 for 1 and 1 for 18.
        for index in 0..18 {
            self.push_bits(u32::from(index == 2 || index == 17), 3);
        }
        // No code for literals 0 to 254: 138 times, and 117 times (11 and more are counted in 7 bits).
        for zeros in [138, 117] {
            self.push_bits(1, 1);
            self.push_bits(zeros - 11, 7);
        }
        // A bit each for literal 255 and the end, and for a distance.
        self.push_bits(0, 3);
        // The end.
        self.push_bits(1, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_blocks_have_no_text_and_end_at_any_bit() {
        let text = b"text behind the lead-in, text behind the lead-in";
        let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut data = vec![0; compressor.deflate_compress_bound(text.len())];
        let bytes = compressor.deflate_compress(text, &mut data).unwrap();
        for pending_bits in 0..8u8 {
            // The data, shifted so that its first bits share a byte with others.
            let mut moved = BitWriter::default();
            moved.push_bits(0x55, (8 - usize::from(pending_bits)) % 8);
            data[..bytes].iter().for_each(|byte| moved.push_bits(u32::from(*byte), 8));
            let (last_byte, ahead) =
                if pending_bits == 0 { (0, &moved.bytes[..]) } else { (moved.bytes[0], &moved.bytes[1..]) };
            let at = DeflateState { pending_bits, last_byte, crc: 0, member_text_bytes: 0 };
            let mut member = MemberInflater::from_state(&at, b"").unwrap();
            let mut space = [0; 100];
            let step = member.inflate(ahead, &mut space, false);
            assert!(step.is_member_end, "{pending_bits} bits: {step:?}");
            assert_eq!(&space[..step.produced], text, "{pending_bits} bits");
            assert_eq!(member.trailer(), (libdeflater::crc32(text), text.len() as u32));
        }
    }
}
