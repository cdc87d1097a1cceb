//! An adaptive binary range coder and the models that numbers go through.
//!
//! The coder is that of LZMA (carry by a cache byte and a count of pending 0xFF) with probabilities of 16 bits. The first byte,
//! which is always 0, is not written, nor are zeros at the end: a decoder reads zeros beyond it.

/// Bits of a probability within a model.
const PRECISION: u32 = 24;
/// Below this the range is widened by a byte.
const TOP: u32 = 1 << 24;
/// Observations after which a model no longer slows down: it follows what changes along a genome.
const MAX_SEEN: u16 = 400;
/// `2^16 / (seen + 2)`, the share by which a probability moves.
const RATES: [u32; MAX_SEEN as usize + 1] = {
    let mut rates = [0; MAX_SEEN as usize + 1];
    let mut seen = 0;
    while seen <= MAX_SEEN as usize {
        rates[seen] = (1 << 16) / (seen as u32 + 2);
        seen += 1;
    }
    rates
};

/// How likely a bit is 0, learned from those before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bit {
    zero: u32,
    seen: u16,
}

impl Default for Bit {
    fn default() -> Self {
        Self { zero: 1 << (PRECISION - 1), seen: 0 }
    }
}

impl Bit {
    fn zero_share(self) -> u32 {
        (self.zero >> (PRECISION - 16)).clamp(1, 0xFFFF)
    }

    fn learn(&mut self, bit: bool) {
        let rate = u64::from(RATES[usize::from(self.seen)]);
        if bit {
            self.zero -= ((u64::from(self.zero) * rate) >> 16) as u32;
        } else {
            self.zero += ((u64::from((1 << PRECISION) - self.zero) * rate) >> 16) as u32;
        }
        self.seen = (self.seen + 1).min(MAX_SEEN);
    }
}

/// What codes bits: an [`Encoder`] writes those it is given, a [`Decoder`] returns those that were written. Models are
/// written once, for both.
pub(super) trait Coder {
    /// Codes a bit. A decoder does not look at `bit`.
    fn bit(&mut self, bit: bool, model: &mut Bit) -> bool;

    /// Codes the lowest `bits` of a number, all equally likely, uppermost first.
    fn plain(&mut self, value: u64, bits: u32) -> u64;

    /// Codes the lowest `bits` of a number, uppermost first, each by those above it. `tree` has `2^bits` models.
    fn tree(&mut self, value: usize, bits: u32, tree: &mut [Bit]) -> usize {
        let mut node = 1;
        for shift in (0..bits).rev() {
            let bit = self.bit(value >> shift & 1 == 1, &mut tree[node]);
            node = node << 1 | usize::from(bit);
        }
        node - (1 << bits)
    }
}

/// Writes bits.
#[derive(Debug)]
pub(super) struct Encoder {
    low: u64,
    range: u32,
    cache: u8,
    /// Bytes that a carry may still change: the cache and 0xFF after it.
    pending: u64,
    bytes: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self { low: 0, range: u32::MAX, cache: 0, pending: 1, bytes: Vec::new() }
    }

    fn shift(&mut self) {
        if self.low < 0xFF00_0000 || self.low > 0xFFFF_FFFF {
            let carry = (self.low >> 32) as u8;
            self.bytes.push(self.cache.wrapping_add(carry));
            for _ in 1..self.pending {
                self.bytes.push(0xFF_u8.wrapping_add(carry));
            }
            self.pending = 0;
            self.cache = (self.low >> 24) as u8;
        }
        self.pending += 1;
        self.low = self.low << 8 & 0xFFFF_FFFF;
    }

    fn widen(&mut self) {
        while self.range < TOP {
            self.range <<= 8;
            self.shift();
        }
    }

    /// All bytes, as few as tell a decoder what was coded.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let last = self.low + u64::from(self.range) - 1;
        // Of all values that mean the same, the one with most zeros at its end.
        let zeros = (0..=32).rev().find(|zeros| last >> zeros << zeros >= self.low).unwrap_or(0);
        self.low = last >> zeros << zeros;
        for _ in 0..5 {
            self.shift();
        }
        self.bytes.remove(0);
        let used = self.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.bytes.truncate(used);
        self.bytes
    }
}

impl Coder for Encoder {
    fn bit(&mut self, bit: bool, model: &mut Bit) -> bool {
        let bound = ((u64::from(self.range) * u64::from(model.zero_share())) >> 16) as u32;
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.learn(bit);
        self.widen();
        bit
    }

    fn plain(&mut self, value: u64, bits: u32) -> u64 {
        for shift in (0..bits).rev() {
            self.range >>= 1;
            if value >> shift & 1 == 1 {
                self.low += u64::from(self.range);
            }
            self.widen();
        }
        value
    }
}

/// Reads bits. Beyond the end of what was written it reads something, never nothing.
#[derive(Debug)]
pub(super) struct Decoder<'b> {
    code: u32,
    range: u32,
    bytes: std::slice::Iter<'b, u8>,
}

impl<'b> Decoder<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        let mut decoder = Self { code: 0, range: u32::MAX, bytes: bytes.iter() };
        for _ in 0..4 {
            decoder.code = decoder.code << 8 | decoder.next_byte();
        }
        decoder
    }

    fn next_byte(&mut self) -> u32 {
        self.bytes.next().copied().unwrap_or(0).into()
    }

    fn widen(&mut self) {
        while self.range < TOP {
            self.range <<= 8;
            self.code = self.code << 8 | self.next_byte();
        }
    }
}

impl Coder for Decoder<'_> {
    fn bit(&mut self, _: bool, model: &mut Bit) -> bool {
        let bound = ((u64::from(self.range) * u64::from(model.zero_share())) >> 16) as u32;
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.learn(bit);
        self.widen();
        bit
    }

    fn plain(&mut self, _: u64, bits: u32) -> u64 {
        (0..bits).fold(0, |value, _| {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            self.widen();
            value << 1 | u64::from(bit)
        })
    }
}

/// Leading bits of a number that are modelled, after the first.
const MODELLED: u32 = 3;

/// A model of numbers of any size, good where small ones and neighbours are alike: how many bits a number has, the upper three
/// after its first, and the rest plain.
#[derive(Clone, Debug)]
pub(super) struct Number {
    bits: [Bit; 64],
    upper: [[Bit; 1 << MODELLED]; 64],
}

impl Default for Number {
    fn default() -> Self {
        Self { bits: [Bit::default(); 64], upper: [[Bit::default(); 1 << MODELLED]; 64] }
    }
}

impl Number {
    /// Codes a number below 2^62.
    pub(super) fn code(&mut self, coder: &mut impl Coder, value: u64) -> u64 {
        let raised = value + 1;
        let bits = coder.tree(raised.ilog2() as usize, 6, &mut self.bits) as u32;
        // No encoder says more; a file that does means some number.
        let bits = bits.min(62);
        let modelled = bits.min(MODELLED);
        let below = bits - modelled;
        let upper = (raised >> below) as usize & ((1 << modelled) - 1);
        let upper = coder.tree(upper, modelled, &mut self.upper[bits as usize]) as u64;
        let lower = coder.plain(raised & ((1 << below) - 1), below);
        ((1 << modelled | upper) << below | lower) - 1
    }
}

/// A number with its sign in the lowest bit, so that small ones of either sign are small.
pub(super) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The number that [`zigzag`] was given.
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers: Vec<u64> = (0..5_000_u64)
            .map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (at % 60 + 3))
            .chain([0, (1 << 61)])
            .collect();
        let mut encoder = Encoder::new();
        let mut model = Number::default();
        for number in &numbers {
            model.code(&mut encoder, *number);
            encoder.plain(*number & 31, 5);
        }
        let bytes = encoder.finish();
        let mut decoder = Decoder::new(&bytes);
        let mut model = Number::default();
        for number in &numbers {
            assert_eq!(model.code(&mut decoder, 0), *number);
            assert_eq!(decoder.plain(0, 5), *number & 31);
        }
    }

    #[test]
    fn what_is_always_the_same_takes_next_to_nothing() {
        let mut encoder = Encoder::new();
        let mut model = Bit::default();
        (0..1_000_000).for_each(|_| assert!(encoder.bit(true, &mut model)));
        assert!(encoder.finish().len() < 400);
        assert!(Encoder::new().finish().is_empty());
    }

    #[test]
    fn signs_are_kept() {
        for value in [0, 1, -1, 7, -8, i64::from(i32::MIN), 1 << 40] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
