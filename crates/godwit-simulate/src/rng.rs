//! Random numbers for simulations: xoshiro256++ seeded by splitmix64 (Blackman and Vigna, doi:10.1145/3460772). Not
//! suitable for cryptography.
//!
//! Each purpose and each template number has its own generator, so that template 7 can be computed without computing
//! the templates before it.

/// Purpose of the numbers of the genome.
pub(super) const PURPOSE_GENOME: u64 = 1;
/// Purpose of the numbers of the variants of a sample.
pub(super) const PURPOSE_SAMPLE: u64 = 2;
/// Purpose of the numbers of a molecule.
pub(super) const PURPOSE_MOLECULE: u64 = 3;
/// Purpose of the numbers that choose the template which a duplicate copies.
pub(super) const PURPOSE_ORIGIN: u64 = 4;
/// Purpose of the numbers of a position on the flow cell.
pub(super) const PURPOSE_SLOT: u64 = 5;
/// Purpose of the numbers of the errors and qualities of a read pair.
pub(super) const PURPOSE_SEQUENCING: u64 = 6;

/// A deterministic random number generator.
pub(super) struct Rng([u64; 4]);

/// Advances the state of splitmix64 by one step and returns the next number.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// Creates the generator for a purpose and a number under a seed. Different arguments give unrelated sequences.
    pub(super) fn new(seed: u64, purpose: u64, number: u64) -> Self {
        let mut state = seed;
        state = split_mix(&mut state) ^ purpose;
        state = split_mix(&mut state) ^ number;
        Self(std::array::from_fn(|_| split_mix(&mut state)))
    }

    /// Returns 64 random bits.
    #[inline]
    pub(super) fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a random number in `[0, bound)`; 0 if `bound` is 0. The bias is less than `bound` / 2^64.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a random number in `[0, 1)` with a resolution of 53 bits.
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with the given probability.
    #[inline]
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns a random number with mean 0 and standard deviation 1, as the sum of twelve uniform numbers minus 6. No
    /// logarithm is computed, so the result is the same on every machine. Values are between -6 and 6.
    pub(super) fn normal(&mut self) -> f64 {
        let sum: u64 = (0..3)
            .map(|_| {
                let bits = self.bits();
                (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48)
            })
            .sum();
        (sum as f64 + 6.0) / 65536.0 - 6.0
    }

    /// Returns a random base, one of `ACGT`.
    #[inline]
    pub(super) fn base(&mut self) -> u8 {
        b"ACGT"[(self.bits() >> 62) as usize]
    }

    /// Returns a random base that differs from `base`.
    pub(super) fn other_base(&mut self, base: u8) -> u8 {
        substitute(base, self.below(3) as u8)
    }
}

/// Returns one of the three bases other than `base`, selected by `choice`.
#[inline]
pub(super) fn substitute(base: u8, choice: u8) -> u8 {
    let others: &[u8; 3] = match base {
        b'A' => b"CGT",
        b'C' => b"AGT",
        b'G' => b"ACT",
        _ => b"ACG",
    };
    others[usize::from(choice % 3)]
}

/// Returns the complementary base; N for letters other than `ACGT`.
#[inline]
pub(super) fn complement(base: u8) -> u8 {
    match base {
        b'A' => b'T',
        b'C' => b'G',
        b'G' => b'C',
        b'T' => b'A',
        _ => b'N',
    }
}
