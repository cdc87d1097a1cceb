//! An adaptive binary range coder, and its probability models of bits and numbers.
//!
//! The coder is that of LZMA: a cached byte and a count of pending 0xFF bytes handle carries. The bounds use
//! probabilities of 16 bits. The first byte would always be 0 and is not written. Zero bytes at the end are not written
//! either, because the decoder reads zeros after the end of its input.

/// Precision of the probability in a [`BitModel`], bits.
const PROBABILITY_BITS: u32 = 24;
/// If the range is below this value, it is extended by one byte.
const MIN_RANGE: u32 = 1 << 24;
/// Number of observations after which the learning rate stays constant, so that a model adapts to changes along a
/// genome.
const MAX_OBSERVATIONS: u16 = 400;
/// Fraction by which an observation moves the probability, times 2^16, by the number of earlier observations.
const LEARNING_RATES: [u32; MAX_OBSERVATIONS as usize + 1] = {
    let mut rates = [0; MAX_OBSERVATIONS as usize + 1];
    let mut seen = 0;
    while seen <= MAX_OBSERVATIONS as usize {
        rates[seen] = (1 << 16) / (seen as u32 + 2);
        seen += 1;
    }
    rates
};

/// A model of a bit: the probability that it is 0, which adapts to the bits seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct BitModel {
    zero_probability: u32,
    observations: u16,
}

impl Default for BitModel {
    fn default() -> Self {
        Self { zero_probability: 1 << (PROBABILITY_BITS - 1), observations: 0 }
    }
}

impl BitModel {
    fn zero_probability_16(self) -> u32 {
        (self.zero_probability >> (PROBABILITY_BITS - 16)).clamp(1, 0xFFFF)
    }

    fn update(&mut self, bit: bool) {
        let rate = u64::from(LEARNING_RATES[usize::from(self.observations)]);
        if bit {
            self.zero_probability -= ((u64::from(self.zero_probability) * rate) >> 16) as u32;
        } else {
            self.zero_probability += ((u64::from((1 << PROBABILITY_BITS) - self.zero_probability) * rate) >> 16) as u32;
        }
        self.observations = (self.observations + 1).min(MAX_OBSERVATIONS);
    }
}

/// An encoder or decoder of bits. [`RangeEncoder`] writes the given bits and returns them; [`RangeDecoder`] ignores the
/// given bits and returns those that it reads. So the same code encodes and decodes.
pub(super) trait RangeCoder {
    /// Encodes or decodes a bit with an adaptive model.
    fn code_bit(&mut self, bit: bool, model: &mut BitModel) -> bool;

    /// Encodes or decodes the lowest `bits` bits of a number, highest first, each with probability 1/2.
    fn code_uniform_bits(&mut self, value: u64, bits: u32) -> u64;

    /// Encodes or decodes the lowest `bits` bits of a number, highest first. Each bit has a model that depends on the
    /// higher bits; `tree` has `2^bits` models.
    fn code_bit_tree(&mut self, value: usize, bits: u32, tree: &mut [BitModel]) -> usize {
        let mut node = 1;
        for shift in (0..bits).rev() {
            let bit = self.code_bit(value >> shift & 1 == 1, &mut tree[node]);
            node = node << 1 | usize::from(bit);
        }
        node - (1 << bits)
    }
}

/// An encoder of bits, which collects the encoded bytes.
#[derive(Debug)]
pub(super) struct RangeEncoder {
    low: u64,
    range: u32,
    cache: u8,
    /// Number of bytes that a carry may still change: the cached byte and the 0xFF bytes after it.
    pending: u64,
    bytes: Vec<u8>,
}

impl RangeEncoder {
    pub(super) fn new() -> Self {
        Self { low: 0, range: u32::MAX, cache: 0, pending: 1, bytes: Vec::new() }
    }

    fn shift_out_byte(&mut self) {
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

    fn normalize(&mut self) {
        while self.range < MIN_RANGE {
            self.range <<= 8;
            self.shift_out_byte();
        }
    }

    /// Returns the shortest byte sequence from which a decoder restores the bits.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let last = self.low + u64::from(self.range) - 1;
        // Of all equivalent values, choose the one with the most zeros at its end.
        let zeros = (0..=32).rev().find(|zeros| last >> zeros << zeros >= self.low).unwrap_or(0);
        self.low = last >> zeros << zeros;
        for _ in 0..5 {
            self.shift_out_byte();
        }
        self.bytes.remove(0);
        let used = self.bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.bytes.truncate(used);
        self.bytes
    }
}

impl RangeCoder for RangeEncoder {
    fn code_bit(&mut self, bit: bool, model: &mut BitModel) -> bool {
        let bound = ((u64::from(self.range) * u64::from(model.zero_probability_16())) >> 16) as u32;
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.update(bit);
        self.normalize();
        bit
    }

    fn code_uniform_bits(&mut self, value: u64, bits: u32) -> u64 {
        for shift in (0..bits).rev() {
            self.range >>= 1;
            if value >> shift & 1 == 1 {
                self.low += u64::from(self.range);
            }
            self.normalize();
        }
        value
    }
}

/// A decoder of bits. After the end of its input it returns arbitrary bits, not an error.
#[derive(Debug)]
pub(super) struct RangeDecoder<'b> {
    code: u32,
    range: u32,
    bytes: std::slice::Iter<'b, u8>,
}

impl<'b> RangeDecoder<'b> {
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

    fn normalize(&mut self) {
        while self.range < MIN_RANGE {
            self.range <<= 8;
            self.code = self.code << 8 | self.next_byte();
        }
    }
}

impl RangeCoder for RangeDecoder<'_> {
    fn code_bit(&mut self, _: bool, model: &mut BitModel) -> bool {
        let bound = ((u64::from(self.range) * u64::from(model.zero_probability_16())) >> 16) as u32;
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.update(bit);
        self.normalize();
        bit
    }

    fn code_uniform_bits(&mut self, _: u64, bits: u32) -> u64 {
        (0..bits).fold(0, |value, _| {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            self.normalize();
            value << 1 | u64::from(bit)
        })
    }
}

/// Number of bits after the leading bit of a number that have adaptive models.
const MODELLED_BITS: u32 = 3;

/// A model of numbers, for distributions in which small or similar numbers are frequent. The bit count and the three
/// bits after the leading one have adaptive models; lower bits are uniform.
#[derive(Clone, Debug)]
pub(super) struct NumberModel {
    bit_count_models: [BitModel; 64],
    leading_bit_models: [[BitModel; 1 << MODELLED_BITS]; 64],
}

impl Default for NumberModel {
    fn default() -> Self {
        Self {
            bit_count_models: [BitModel::default(); 64],
            leading_bit_models: [[BitModel::default(); 1 << MODELLED_BITS]; 64],
        }
    }
}

impl NumberModel {
    /// Encodes or decodes a number below 2^62.
    pub(super) fn code_number(&mut self, coder: &mut impl RangeCoder, value: u64) -> u64 {
        let raised = value + 1;
        let bits = coder.code_bit_tree(raised.ilog2() as usize, 6, &mut self.bit_count_models) as u32;
        // The encoder writes at most this number. In a damaged file, a larger number may be decoded.
        let bits = bits.min(62);
        let modelled = bits.min(MODELLED_BITS);
        let below = bits - modelled;
        let upper = (raised >> below) as usize & ((1 << modelled) - 1);
        let upper = coder.code_bit_tree(upper, modelled, &mut self.leading_bit_models[bits as usize]) as u64;
        let lower = coder.code_uniform_bits(raised & ((1 << below) - 1), below);
        ((1 << modelled | upper) << below | lower) - 1
    }
}

/// Converts a signed to an unsigned number with the sign in the lowest bit, so that small numbers of either sign stay
/// small.
pub(super) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Converts an unsigned number back; the inverse of [`zigzag`].
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
        let mut encoder = RangeEncoder::new();
        let mut model = NumberModel::default();
        for number in &numbers {
            model.code_number(&mut encoder, *number);
            encoder.code_uniform_bits(*number & 31, 5);
        }
        let bytes = encoder.finish();
        let mut decoder = RangeDecoder::new(&bytes);
        let mut model = NumberModel::default();
        for number in &numbers {
            assert_eq!(model.code_number(&mut decoder, 0), *number);
            assert_eq!(decoder.code_uniform_bits(0, 5), *number & 31);
        }
    }

    #[test]
    fn what_is_always_the_same_takes_next_to_nothing() {
        let mut encoder = RangeEncoder::new();
        let mut model = BitModel::default();
        (0..1_000_000).for_each(|_| assert!(encoder.code_bit(true, &mut model)));
        assert!(encoder.finish().len() < 400);
        assert!(RangeEncoder::new().finish().is_empty());
    }

    #[test]
    fn signs_are_kept() {
        for value in [0, 1, -1, 7, -8, i64::from(i32::MIN), 1 << 40] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
