//! A deterministic generator of inputs, which mutates seed files.

/// Bytes that have a special meaning in one of the formats, for insertion into inputs.
const SPECIAL_BYTES: &[u8] = b"\0\x01\x7f\x80\xff\n\r\t @+>*=-:/!~IN\x1f\x8b";
/// Maximum size of an input, bytes.
const MAX_BYTES: usize = 1 << 16;

/// A generator of inputs for fuzz targets.
#[derive(Clone, Debug)]
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// Creates a generator. Generators with the same `number` return the same inputs.
    pub fn new(number: u64) -> Self {
        Self { state: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0bad_5eed }
    }

    /// Returns the next random number of the generator SplitMix64 (doi:10.1145/2660193.2660195).
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn next_below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit.max(1) as u64) as usize
    }

    /// Returns a randomly chosen seed with one to eight random mutations.
    pub fn next_input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds.get(self.next_below(seeds.len())).cloned().unwrap_or_default();
        for _ in 0..1 + self.next_below(8) {
            self.mutate(&mut bytes, seeds);
        }
        bytes.truncate(MAX_BYTES);
        bytes
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.next_below(bytes.len());
        let end = (at + 1 + self.next_below(40)).min(bytes.len());
        match self.next_below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.next_below(8),
            1 if !bytes.is_empty() => bytes[at] = SPECIAL_BYTES[self.next_below(SPECIAL_BYTES.len())],
            2 => bytes.insert(at.min(bytes.len()), SPECIAL_BYTES[self.next_below(SPECIAL_BYTES.len())]),
            3 if at < end => drop(bytes.drain(at..end)),
            4 if at < end => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy).for_each(drop);
            }
            5 => bytes.truncate(at),
            6 if bytes.len() >= at + 4 => {
                let number = [0, 1, -1, i32::MAX, i32::MIN, 255, 65_536, 1 << 29][self.next_below(8)];
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            _ => {
                let other = seeds.get(self.next_below(seeds.len())).map(Vec::as_slice).unwrap_or_default();
                let from = self.next_below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from.min(other.len())..]);
            }
        }
    }
}
