//! The data of a gzip member, entered at its start or between two of its deflate blocks.
//!
//! Deflate blocks begin at any bit, and zlib-rs takes bytes. It stops between blocks but does not tell at which bit; of
//! the eight there can be, only the right one leads to the text that in fact comes next, which [`Member::bits_before`]
//! tries. To begin at a bit, [`lead_in`] puts blocks without any text before it, as many bits of them as there are missing
//! to a whole byte. So stored blocks, which begin at whole bytes of the file, are where they should be.

use zlib_rs::crc32::crc32;
use zlib_rs::{Inflate, InflateFlush, Status};

use super::point::{WINDOW_BYTES, WithinMember};

/// The largest window, which every member fits.
const WINDOW_BITS: u8 = 15;
/// Bytes of compressed data that a block is tried on. A stored block is shorter.
pub(super) const TRIAL_BYTES: usize = 96 << 10;
/// Bytes of text that have to be right for a first look.
const FIRST_LOOK_BYTES: usize = 4 << 10;
/// Less text than that tells nothing.
const LEAST_TRUTH_BYTES: usize = 512;
/// Most bytes of text in a stored block (RFC 1951 §3.2.4).
const MAX_STORED_BYTES: usize = (1 << 16) - 1;

/// A member being decompressed, raw: its checksum and length are counted here.
pub(super) struct Member {
    inflate: Inflate,
    crc: u32,
    /// Bytes of text, modulo 2^32.
    bytes: u32,
    /// Bytes of text that can be reached back to.
    reach: u64,
    last_byte: u8,
    /// Goes before what comes next.
    lead_in: Vec<u8>,
}

/// What one call did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) consumed: usize,
    pub(super) produced: usize,
    /// The data of the member ends there.
    pub(super) ended: bool,
    /// A deflate block ends there, and data and room are left. Only told where it was asked to stop there.
    pub(super) between_blocks: bool,
    /// What is wrong with the data behind what was produced.
    pub(super) fault: Option<&'static str>,
}

impl Member {
    /// A member that begins behind its header.
    pub(super) fn new() -> Self {
        let inflate = Inflate::new(false, WINDOW_BITS);
        Self { inflate, crc: 0, bytes: 0, reach: 0, last_byte: 0, lead_in: Vec::new() }
    }

    /// A member that is entered between blocks. `window` is the text before.
    pub(super) fn within(at: &WithinMember, window: &[u8]) -> Option<Self> {
        let mut inflate = Inflate::new(false, WINDOW_BITS);
        inflate.set_dictionary(window).ok()?;
        let WithinMember { bits, last_byte, crc, member_bytes } = *at;
        let reach = window.len() as u64;
        Some(Self { inflate, crc, bytes: member_bytes, reach, last_byte, lead_in: lead_in(bits, last_byte) })
    }

    /// Decompresses what is ahead, as far as it and the room go, or to the end of a block.
    pub(super) fn step(&mut self, ahead: &[u8], space: &mut [u8], stop: bool) -> Step {
        if !self.lead_in.is_empty() {
            let lead_in = std::mem::take(&mut self.lead_in);
            let Step { fault, .. } = self.call(&lead_in, space, InflateFlush::NoFlush);
            if fault.is_some() {
                return Step { fault, ..Step::default() };
            }
        }
        let flush = if stop { InflateFlush::Block } else { InflateFlush::NoFlush };
        let mut step = self.call(ahead, space, flush);
        if let Some(last) = ahead[..step.consumed].last() {
            self.last_byte = *last;
        }
        self.crc = crc32(self.crc, &space[..step.produced]);
        self.bytes = self.bytes.wrapping_add(step.produced as u32);
        self.reach += step.produced as u64;
        // It stops for want of data, for want of room, or between blocks.
        let has_more = step.consumed < ahead.len() && step.produced < space.len();
        step.between_blocks = stop && has_more && !step.ended && step.fault.is_none();
        step
    }

    fn call(&mut self, ahead: &[u8], space: &mut [u8], flush: InflateFlush) -> Step {
        let (total_in, total_out) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(ahead, space, flush);
        // Both are bounded by the lengths of the slices.
        let consumed = (self.inflate.total_in() - total_in) as usize;
        let produced = (self.inflate.total_out() - total_out) as usize;
        let fault = status.is_err().then(|| self.inflate.error_message().unwrap_or("invalid compressed data"));
        Step { consumed, produced, ended: status == Ok(Status::StreamEnd), between_blocks: false, fault }
    }

    /// Where it is, between two blocks; `bits` as [`bits_before`] finds them.
    pub(super) fn place(&self) -> WithinMember {
        WithinMember { bits: 0, last_byte: self.last_byte, crc: self.crc, member_bytes: self.bytes }
    }

    /// Bytes of text before it that what follows may reach back to.
    pub(super) fn window_bytes(&self) -> usize {
        self.reach.min(WINDOW_BYTES as u64) as usize
    }

    /// CRC32 and length that the trailer should have.
    pub(super) fn trailer(&self) -> (u32, u32) {
        (self.crc, self.bytes)
    }
}

/// How many bits of the last byte belong to the block that follows; `None` where that cannot be told. `ahead` is what
/// follows of the file, `window` the text before and `truth` the text that `ahead` in fact gives.
pub(super) fn bits_before(at: WithinMember, window: &[u8], ahead: &[u8], truth: &[u8]) -> Option<u8> {
    if truth.len() < LEAST_TRUTH_BYTES {
        return None;
    }
    let mut trial = Inflate::new(false, WINDOW_BITS);
    let mut space = Vec::new();
    let mut leads_to = |bits: u8, truth: &[u8]| {
        trial.reset(false);
        space.resize(truth.len(), 0);
        let lead_in = lead_in(bits, at.last_byte);
        trial.set_dictionary(window).is_ok()
            && trial.decompress(&lead_in, &mut space, InflateFlush::NoFlush).is_ok()
            && trial.total_out() == 0
            && trial.decompress(ahead, &mut space, InflateFlush::NoFlush).is_ok()
            && space == truth
    };
    let first_look = &truth[..truth.len().min(FIRST_LOOK_BYTES)];
    let mut candidates: Vec<u8> = (0..8).filter(|bits| leads_to(*bits, first_look)).collect();
    if let [only] = candidates[..] {
        return Some(only);
    }
    // Before a stored block several may do: bits up to the next whole byte mean nothing. They differ in whether the block
    // is the last, which shows where the text goes on behind it; from there on there is no difference between them.
    if truth.len() <= MAX_STORED_BYTES {
        return None;
    }
    candidates.retain(|bits| leads_to(*bits, truth));
    candidates.first().copied()
}

/// Deflate blocks without any text, the last byte of which is filled up by the highest `bits` of `last_byte`.
fn lead_in(bits: u8, last_byte: u8) -> Vec<u8> {
    if bits == 0 {
        return Vec::new();
    }
    let missing = 8 - usize::from(bits);
    let mut out = Bits::default();
    // One block has 3 bits more than whole bytes, the other 2: together they make all numbers.
    let odd = missing % 2;
    if odd == 1 {
        out.empty_dynamic_block();
    }
    for _ in 0..(missing + 8 - 3 * odd) % 8 / 2 {
        out.empty_fixed_block();
    }
    debug_assert_eq!(out.count % 8, missing);
    out.push(u32::from(last_byte >> missing), usize::from(bits));
    out.bytes
}

/// Bits, the lowest of each byte first (RFC 1951 §3.1.1).
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    /// Appends the lowest bits of a value, the lowest first.
    fn push(&mut self, value: u32, count: usize) {
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

    /// A block of fixed codes (RFC 1951 §3.2.6) that is its end at once: 10 bits.
    fn empty_fixed_block(&mut self) {
        self.push(0b01 << 1, 3);
        self.push(0, 7);
    }

    /// A block of codes of its own (RFC 1951 §3.2.7) that is its end at once: 91 bits.
    fn empty_dynamic_block(&mut self) {
        self.push(0b10 << 1, 3);
        // 257 lengths of literals, 1 of distances, and 18 of the codes that these lengths are written in.
        self.push(0, 5);
        self.push(0, 5);
        self.push(18 - 4, 4);
        // In their order 18 is the third and 1 the last: a bit each, 0 for 1 and 1 for 18.
        for place in 0..18 {
            self.push(u32::from(place == 2 || place == 17), 3);
        }
        // No code for literals 0 to 254: 138 times, and 117 times (11 and more are counted in 7 bits).
        for zeros in [138, 117] {
            self.push(1, 1);
            self.push(zeros - 11, 7);
        }
        // A bit each for literal 255 and the end, and for a distance.
        self.push(0, 3);
        // The end.
        self.push(1, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_in_has_no_text_and_ends_at_any_bit() {
        let text = b"text behind the lead-in, text behind the lead-in";
        let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut data = vec![0; compressor.deflate_compress_bound(text.len())];
        let bytes = compressor.deflate_compress(text, &mut data).unwrap();
        for bits in 0..8u8 {
            // The data, moved up so that its first bits share a byte with others.
            let mut moved = Bits::default();
            moved.push(0x55, (8 - usize::from(bits)) % 8);
            data[..bytes].iter().for_each(|byte| moved.push(u32::from(*byte), 8));
            let (last_byte, ahead) =
                if bits == 0 { (0, &moved.bytes[..]) } else { (moved.bytes[0], &moved.bytes[1..]) };
            let at = WithinMember { bits, last_byte, crc: 0, member_bytes: 0 };
            let mut member = Member::within(&at, b"").unwrap();
            let mut space = [0; 100];
            let step = member.step(ahead, &mut space, false);
            assert!(step.ended, "{bits} bits: {step:?}");
            assert_eq!(&space[..step.produced], text, "{bits} bits");
            assert_eq!(member.trailer(), (libdeflater::crc32(text), text.len() as u32));
        }
    }
}
