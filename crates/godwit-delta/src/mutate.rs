//! Simulates another individual: mutates the sequences of a genome reproducibly from a seed, for tests and measurements
//! of packing.
//!
//! The rates are those between two human haplotypes. There is one substitution per 1000 bases; two of three are
//! transitions. Insertions and deletions are one eighth as frequent and mostly of one base; a few are long, or are
//! duplications or inversions. Three of four short insertions repeat the preceding bases (Messer and Arndt 2007,
//! doi:10.1093/molbev/msm035). Half of the long insertions are copies from another position, like mobile elements.

use std::io::{self, BufRead, Write};

/// Rates of the mutations, and the seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MutationRates {
    /// Seed of the random numbers. The same seed gives the same mutations.
    pub seed: u64,
    /// Number of substitutions per base.
    pub substitution_rate: f64,
    /// Number of short insertions and deletions per base.
    pub indel_rate: f64,
    /// Number of insertions, deletions and duplications of 50 to 6,000 bases, per base.
    pub structural_variant_rate: f64,
    /// Number of inversions of 500 to 20,000 bases, per base.
    pub inversion_rate: f64,
}

impl MutationRates {
    /// Returns the rates between two human haplotypes.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_delta::MutationRates;
    ///
    /// let rates = MutationRates { indel_rate: 0.0, ..MutationRates::human(7) };
    /// assert_eq!((rates.seed, rates.substitution_rate), (7, 0.001));
    /// ```
    pub fn human(seed: u64) -> Self {
        Self { seed, substitution_rate: 1e-3, indel_rate: 1.25e-4, structural_variant_rate: 3e-6, inversion_rate: 1e-7 }
    }

    /// Returns rates of zero: the sequences stay unchanged.
    pub fn none(seed: u64) -> Self {
        Self { seed, substitution_rate: 0.0, indel_rate: 0.0, structural_variant_rate: 0.0, inversion_rate: 0.0 }
    }
}

/// A SplitMix64 pseudo-random number generator.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn next_below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns true with the probability `rate`.
    fn occurs_with_probability(&mut self, rate: f64) -> bool {
        (self.next() >> 11) as f64 * (0.5_f64).powi(53) < rate
    }

    fn next_base(&mut self) -> u8 {
        b"ACGT"[self.next_below(4) as usize]
    }

    /// Returns a random length from `least` to `most`. Each doubling of the length is equally likely, so short lengths
    /// are more frequent.
    fn next_length(&mut self, least: u64, most: u64) -> usize {
        let doublings = (most / least).max(1).ilog2() + 1;
        let low = least << self.next_below(doublings.into());
        (low + self.next_below(low)).min(most) as usize
    }
}

/// Reads FASTA and writes it with mutated sequences. The output lines of a sequence are as long as its longest input
/// line. Letters other than ACGT are unchanged. Inserted letters get the case of the letter at the mutated position.
///
/// # Errors
/// Returns the I/O error of the input or output.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_delta::{MutationRates, mutate_fasta};
///
/// let fasta = b">chr1\nACGTACGT\nACGT\n";
/// let mut same = Vec::new();
/// mutate_fasta(&mut &fasta[..], &mut same, &MutationRates::none(7))?;
/// assert_eq!(same, fasta);
///
/// let mut other = Vec::new();
/// let every_base = MutationRates { substitution_rate: 1.0, ..MutationRates::none(7) };
/// mutate_fasta(&mut &fasta[..], &mut other, &every_base)?;
/// assert!(other.starts_with(b">chr1\n") && other.len() == fasta.len());
/// assert!(other != fasta);
/// # Ok(())
/// # }
/// ```
pub fn mutate_fasta(input: &mut dyn BufRead, output: &mut dyn Write, mutations: &MutationRates) -> io::Result<()> {
    let mut numbers = SplitMix64(mutations.seed);
    let mut sequence = Vec::new();
    let mut width = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let is_end = input.read_until(b'\n', &mut line)? == 0;
        if is_end || line.first() == Some(&b'>') {
            let changed = mutate_sequence(&sequence, mutations, &mut numbers);
            for some in changed.chunks(width.max(1)) {
                output.write_all(some)?;
                output.write_all(b"\n")?;
            }
            (width, sequence) = (0, Vec::new());
            output.write_all(&line)?;
            if is_end {
                return output.flush();
            }
            continue;
        }
        let letters = line.trim_ascii_end();
        width = width.max(letters.len());
        sequence.extend_from_slice(letters);
    }
}

/// Returns a mutated copy of a sequence.
fn mutate_sequence(sequence: &[u8], mutations: &MutationRates, numbers: &mut SplitMix64) -> Vec<u8> {
    let mut out = Vec::with_capacity(sequence.len() + sequence.len() / 64);
    let all = mutations.substitution_rate
        + mutations.indel_rate
        + mutations.structural_variant_rate
        + mutations.inversion_rate;
    let mut at = 0;
    while at < sequence.len() {
        let letter = sequence[at];
        if !b"ACGTacgt".contains(&letter) || !numbers.occurs_with_probability(all) {
            out.push(letter);
            at += 1;
            continue;
        }
        let lower = letter.is_ascii_lowercase();
        let kind = numbers.next_below(1 << 53) as f64 * (0.5_f64).powi(53) * all;
        let kind = [mutations.substitution_rate, mutations.indel_rate, mutations.structural_variant_rate]
            .iter()
            .scan(0.0, |sum, rate| {
                *sum += rate;
                Some(*sum)
            })
            .position(|sum| kind < sum);
        let from = out.len();
        let rest = sequence.len() - at;
        match kind {
            Some(0) => {
                out.push(substitute_base(letter.to_ascii_uppercase(), numbers));
                at += 1;
            }
            Some(1) => {
                let bases = if numbers.next_below(2) == 0 { 1 } else { numbers.next_length(1, 24) };
                match numbers.next_below(2) {
                    0 => at += bases.min(rest),
                    _ if numbers.next_below(4) < 3 && from >= bases => out.extend_from_within(from - bases..),
                    _ => (0..bases).for_each(|_| out.push(numbers.next_base())),
                }
            }
            Some(_) => {
                let bases = numbers.next_length(50, 6_000).min(rest);
                match numbers.next_below(3) {
                    0 => at += bases,
                    1 if numbers.next_below(2) == 0 => {
                        let start = numbers.next_below((sequence.len() - bases) as u64 + 1) as usize;
                        out.extend_from_slice(&sequence[start..start + bases]);
                    }
                    1 => (0..bases).for_each(|_| out.push(numbers.next_base())),
                    // A tandem duplication: the following bases are written twice.
                    _ => out.extend_from_slice(&sequence[at..at + bases]),
                }
                apply_case(&mut out[from..], lower);
                continue;
            }
            None => {
                let bases = numbers.next_length(500, 20_000).min(rest);
                out.extend(sequence[at..at + bases].iter().rev().map(|letter| complement(*letter)));
                at += bases;
                continue;
            }
        }
        apply_case(&mut out[from..], lower);
    }
    out
}

fn apply_case(letters: &mut [u8], lower: bool) {
    if lower {
        letters.make_ascii_lowercase();
    }
}

/// Returns a base other than `base`. The probability of the transition (A and G, or C and T) is two thirds.
fn substitute_base(base: u8, numbers: &mut SplitMix64) -> u8 {
    let alike = match base {
        b'A' => b'G',
        b'G' => b'A',
        b'C' => b'T',
        _ => b'C',
    };
    if numbers.next_below(3) < 2 {
        return alike;
    }
    loop {
        let other = numbers.next_base();
        if other != base && other != alike {
            return other;
        }
    }
}

fn complement(letter: u8) -> u8 {
    match letter {
        b'A' => b'T',
        b'C' => b'G',
        b'G' => b'C',
        b'T' => b'A',
        b'a' => b't',
        b'c' => b'g',
        b'g' => b'c',
        b't' => b'a',
        other => other,
    }
}
