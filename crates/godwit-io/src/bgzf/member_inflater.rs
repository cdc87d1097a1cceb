//! Decompression of the data of a gzip member, from its start or from a position between two of its deflate blocks.
//!
//! A deflate block may begin at any bit, but zlib-rs reads whole bytes. It can stop between two blocks, but does not
//! report the bit at which it stopped. [`find_pending_bits`] tries all eight bits; only the right bit gives the text
//! that follows in the file. To begin decompression at a bit, [`alignment_blocks`] creates empty blocks that fill the
//! bits of the byte before that bit. Stored blocks, whose data begins at a whole byte of the file, therefore keep their
//! alignment.

use zlib_rs::crc32::crc32;
use zlib_rs::{Inflate, InflateFlush, Status};

use super::access_point::{DeflateState, WINDOW_BYTES};

/// The largest window size of deflate (as power of two), which is sufficient for every member.
const WINDOW_BITS: u8 = 15;
/// Compressed bytes that are decompressed to try a bit position. A stored block is shorter than this.
pub(super) const TRIAL_BYTES: usize = 96 << 10;
/// Bytes of text that are compared in the first trial of a bit position.
const FIRST_TRIAL_TEXT_BYTES: usize = 4 << 10;
/// Minimum bytes of text that must be available to determine a bit position.
const MIN_EXPECTED_TEXT_BYTES: usize = 512;
/// Maximum bytes of text in a stored block (RFC 1951 §3.2.4).
const MAX_STORED_BLOCK_BYTES: usize = (1 << 16) - 1;

/// A decompressor of the data of one gzip member, without header and trailer. It computes the checksum and the length
/// of the text.
pub(super) struct MemberInflater {
    inflate: Inflate,
    crc: u32,
    /// Bytes of text decompressed so far, modulo 2^32.
    text_bytes: u32,
    /// Bytes of decompressed text to which later blocks can refer.
    available_window_bytes: u64,
    last_byte: u8,
    /// Empty deflate blocks that are decompressed before the first input, to start at the right bit.
    alignment_blocks: Vec<u8>,
}

/// The result of one call of the decompressor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InflateProgress {
    pub(super) consumed: usize,
    pub(super) produced: usize,
    /// True if the data of the member ends after the consumed bytes.
    pub(super) is_member_end: bool,
    /// True if a deflate block ends after the consumed bytes, while both input and free space are left. Always false if
    /// the caller did not ask to stop at the end of a block.
    pub(super) is_block_end: bool,
    /// The error in the compressed data after the text produced, if any.
    pub(super) error: Option<&'static str>,
}

impl MemberInflater {
    /// Creates a decompressor for a member. Its input starts after the header of the member.
    pub(super) fn new() -> Self {
        let inflate = Inflate::new(false, WINDOW_BITS);
        Self { inflate, crc: 0, text_bytes: 0, available_window_bytes: 0, last_byte: 0, alignment_blocks: Vec::new() }
    }

    /// Creates a decompressor that starts between two blocks. `window` is the last text before that position.
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

    /// Decompresses `ahead` into `space` until the input or the space is used up. If `stop_at_block_end`, also stops at
    /// the end of a deflate block.
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
        // The decompressor stops when input or space is used up. If both are left, it has stopped between two blocks.
        let has_more = step.consumed < ahead.len() && step.produced < space.len();
        step.is_block_end = stop_at_block_end && has_more && !step.is_member_end && step.error.is_none();
        step
    }

    fn call_inflate(&mut self, ahead: &[u8], space: &mut [u8], flush: InflateFlush) -> InflateProgress {
        let (total_in, total_out) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(ahead, space, flush);
        // Both differences are at most the lengths of the slices, so they fit into `usize`.
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

    /// Returns the decoder state between two blocks, with `pending_bits` set to 0. [`find_pending_bits`] determines
    /// that number.
    pub(super) fn state(&self) -> DeflateState {
        DeflateState { pending_bits: 0, last_byte: self.last_byte, crc: self.crc, member_text_bytes: self.text_bytes }
    }

    /// Returns the number of bytes before the current position to which later blocks may refer.
    pub(super) fn window_bytes(&self) -> usize {
        self.available_window_bytes.min(WINDOW_BYTES as u64) as usize
    }

    /// Returns the CRC32 and length of the decompressed text, with which the trailer of the member must agree.
    pub(super) fn trailer(&self) -> (u32, u32) {
        (self.crc, self.text_bytes)
    }
}

/// Returns the number of bits of the last consumed byte that belong to the next block, or `None` if it cannot be
/// determined. `ahead` are the next bytes of the file, `window` is the text before them, and `truth` is the text to
/// which `ahead` is known to decompress.
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
    // Before a stored block, several numbers of bits may fit, because the bits up to the next whole byte have no
    // meaning. The candidates can differ in whether the stored block is the last block, which only the text after it
    // shows. Candidates that give the same text there are equivalent.
    if truth.len() <= MAX_STORED_BLOCK_BYTES {
        return None;
    }
    candidates.retain(|bits| decodes_to(*bits, truth));
    candidates.first().copied()
}

/// Returns empty deflate blocks whose bits, followed by the highest `bits` bits of `last_byte`, end at a whole byte.
fn alignment_blocks(bits: u8, last_byte: u8) -> Vec<u8> {
    if bits == 0 {
        return Vec::new();
    }
    let missing = 8 - usize::from(bits);
    let mut out = BitWriter::default();
    // The empty dynamic block has 3 bits more than a multiple of 8, and the empty fixed block has 2 bits more.
    // Combinations of both give any number of bits modulo 8.
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

/// A writer of bits that fills each byte from its lowest bit (RFC 1951 §3.1.1).
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl BitWriter {
    /// Appends the lowest `count` bits of `value`, beginning with the lowest.
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

    /// Appends an empty block with fixed Huffman codes (RFC 1951 §3.2.6), which has 10 bits.
    fn push_empty_fixed_block(&mut self) {
        self.push_bits(0b01 << 1, 3);
        self.push_bits(0, 7);
    }

    /// Appends an empty block with dynamic Huffman codes (RFC 1951 §3.2.7), which has 91 bits.
    fn push_empty_dynamic_block(&mut self) {
        self.push_bits(0b10 << 1, 3);
        // Three counts of code lengths: 257 for literals, 1 for distances, and 18 for the codes in which these lengths
        // are written.
        self.push_bits(0, 5);
        self.push_bits(0, 5);
        self.push_bits(18 - 4, 4);
        // In the order of RFC 1951, symbol 18 is third and symbol 1 is last. Both get a code of one bit: 0 for symbol 1
        // and 1 for symbol 18.
        for index in 0..18 {
            self.push_bits(u32::from(index == 2 || index == 17), 3);
        }
        // Literals 0 to 254 have no code: runs of 138 and 117 zero lengths. Each run is written as its length minus 11,
        // in 7 bits.
        for zeros in [138, 117] {
            self.push_bits(1, 1);
            self.push_bits(zeros - 11, 7);
        }
        // Literal 255, the end-of-block symbol and one distance get a code of one bit each.
        self.push_bits(0, 3);
        // Write the end-of-block symbol.
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
            // Shift the data so that its first bits share a byte with the last bits of an earlier block.
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
