//! A generator of random numbers that gives the same numbers on every machine.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// The purpose of a stream of random numbers; streams of different purposes are unrelated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Genome = 1,
    Scenario = 2,
    Template = 3,
    Workers = 4,
}

impl Random {
    /// Returns the generator for a seed, a purpose and a number. Each template has its own generator, so that template
    /// 7 can be drawn without templates 1 to 6.
    pub(crate) fn stream(seed: u64, purpose: Purpose, number: u64) -> Self {
        let mut state = Self(seed);
        state.0 = state.bits() ^ (purpose as u64);
        state.0 = state.bits() ^ number;
        Self(state.bits())
    }

    /// Returns the next 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `[0, end)`; 0 where `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// Returns a number in `[least, most]`.
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Returns a number in `[0, 1)` with 53 random bits.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns one of `items`, which is not empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns a number with mean 0 and standard deviation 1: the sum of twelve uniform numbers, which needs no logarithm, so that all
    /// machines agree on the last bit.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// Returns one of `ACGT`.
    pub(crate) fn base(&mut self) -> u8 {
        b"ACGT"[(self.bits() >> 62) as usize]
    }

    /// Returns one of `ACGT` other than `base`.
    pub(crate) fn other_base(&mut self, base: u8) -> u8 {
        loop {
            let other = self.base();
            if !other.eq_ignore_ascii_case(&base) {
                return other;
            }
        }
    }

    /// Returns bases of which about the fraction `gc_share` is G or C.
    pub(crate) fn bases(&mut self, count: usize, gc_share: f64) -> Vec<u8> {
        let threshold = (gc_share * 65536.0) as u64;
        let mut draw = || {
            let bits = self.bits();
            let strong = bits & 0xffff < threshold;
            match (strong, bits >> 63) {
                (true, 0) => b'G',
                (true, _) => b'C',
                (false, 0) => b'A',
                (false, _) => b'T',
            }
        };
        (0..count).map(|_| draw()).collect()
    }

    /// Returns a copy of `bases` in which about the fraction `share` of them differs: 85 % substitutions, the rest
    /// insertions and deletions of 1 to 6 bases.
    pub(crate) fn mutated(&mut self, bases: &[u8], share: f64) -> Vec<u8> {
        let mut copy = Vec::with_capacity(bases.len() + bases.len() / 50);
        let mut at = 0;
        while at < bases.len() {
            if !self.chance(share) {
                copy.push(bases[at]);
                at += 1;
            } else if self.chance(0.85) {
                copy.push(self.other_base(bases[at]));
                at += 1;
            } else {
                let length = self.between(1, 6);
                if self.chance(0.5) {
                    copy.extend(self.bases(length, 0.5));
                } else {
                    at += length;
                }
            }
        }
        copy
    }
}

/// Returns the reverse complement; letters other than `ACGT` stay as they are.
pub(crate) fn reverse_complement(bases: &[u8]) -> Vec<u8> {
    let complement = |base: &u8| match base {
        b'A' => b'T',
        b'C' => b'G',
        b'G' => b'C',
        b'T' => b'A',
        other => *other,
    };
    bases.iter().rev().map(complement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_different_numbers_are_different_and_repeatable() {
        let draw = |number| Random::stream(5, Purpose::Template, number).bits();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1), Random::stream(5, Purpose::Genome, 1).bits());
    }

    #[test]
    fn a_mutated_copy_differs_in_about_the_share_that_was_asked_for() {
        let mut random = Random::stream(1, Purpose::Genome, 0);
        let bases = random.bases(100_000, 0.5);
        let copy = random.mutated(&bases, 0.1);
        assert!((90_000..110_000).contains(&copy.len()));
        let substituted = random.mutated(&bases[..200], 0.0);
        assert_eq!(substituted, &bases[..200]);
    }

    #[test]
    fn the_reverse_complement_of_the_reverse_complement_is_the_sequence() {
        assert_eq!(reverse_complement(b"AACGN"), b"NCGTT");
        assert_eq!(reverse_complement(&reverse_complement(b"GATTACAN")), b"GATTACAN");
    }
}
