//! Another individual of a genome, from a seed: what packing is tested and measured with.
//!
//! Rates are those between two human haplotypes: a substitution in a thousand bases, two of three of them transitions, and eight
//! times fewer insertions and deletions, mostly of one base; besides a few long ones, duplications, and inversions. Three of four short
//! insertions repeat what is before them (Messer and Arndt 2007, doi:10.1093/molbev/msm035); long ones are a copy of another place as
//! often as not, as mobile elements are.

use std::io::{self, BufRead, Write};

/// What is changed, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mutations {
    /// The seed: the same one makes the same changes.
    pub seed: u64,
    /// Substitutions for each base.
    pub substitutions: f64,
    /// Short insertions and deletions for each base.
    pub indels: f64,
    /// Insertions, deletions and duplications of 50 to 6,000 bases, for each base.
    pub structural: f64,
    /// Inversions of 500 to 20,000 bases, for each base.
    pub inversions: f64,
}

impl Mutations {
    /// Rates between two human haplotypes.
    pub fn human(seed: u64) -> Self {
        Self { seed, substitutions: 1e-3, indels: 1.25e-4, structural: 3e-6, inversions: 1e-7 }
    }

    /// No change at all.
    pub fn none(seed: u64) -> Self {
        Self { seed, substitutions: 0.0, indels: 0.0, structural: 0.0, inversions: 0.0 }
    }
}

/// A generator of numbers: SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether something that happens this often happens.
    fn happens(&mut self, rate: f64) -> bool {
        (self.next() >> 11) as f64 * (0.5_f64).powi(53) < rate
    }

    fn base(&mut self) -> u8 {
        b"ACGT"[self.below(4) as usize]
    }

    /// A length in a range, short ones more often: each of its sizes as likely as any of twice that.
    fn length(&mut self, least: u64, most: u64) -> usize {
        let doublings = (most / least).max(1).ilog2() + 1;
        let low = least << self.below(doublings.into());
        (low + self.below(low)).min(most) as usize
    }
}

/// Reads FASTA lines and writes them with sequences changed, lines as long as the first of each sequence. Letters that are no
/// bases stay, and so does the case: what comes in takes that of the base before.
///
/// # Errors
/// Those of both ends.
pub fn mutate(input: &mut dyn BufRead, output: &mut dyn Write, mutations: &Mutations) -> io::Result<()> {
    let mut numbers = Numbers(mutations.seed);
    let mut sequence = Vec::new();
    let mut width = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let is_end = input.read_until(b'\n', &mut line)? == 0;
        if is_end || line.first() == Some(&b'>') {
            let changed = changed(&sequence, mutations, &mut numbers);
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

/// A sequence with changes.
fn changed(sequence: &[u8], mutations: &Mutations, numbers: &mut Numbers) -> Vec<u8> {
    let mut out = Vec::with_capacity(sequence.len() + sequence.len() / 64);
    let all = mutations.substitutions + mutations.indels + mutations.structural + mutations.inversions;
    let mut at = 0;
    while at < sequence.len() {
        let letter = sequence[at];
        if !b"ACGTacgt".contains(&letter) || !numbers.happens(all) {
            out.push(letter);
            at += 1;
            continue;
        }
        let lower = letter.is_ascii_lowercase();
        let kind = numbers.below(1 << 53) as f64 * (0.5_f64).powi(53) * all;
        let kind = [mutations.substitutions, mutations.indels, mutations.structural]
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
                out.push(substitute(letter.to_ascii_uppercase(), numbers));
                at += 1;
            }
            Some(1) => {
                let bases = if numbers.below(2) == 0 { 1 } else { numbers.length(1, 24) };
                match numbers.below(2) {
                    0 => at += bases.min(rest),
                    _ if numbers.below(4) < 3 && from >= bases => out.extend_from_within(from - bases..),
                    _ => (0..bases).for_each(|_| out.push(numbers.base())),
                }
            }
            Some(_) => {
                let bases = numbers.length(50, 6_000).min(rest);
                match numbers.below(3) {
                    0 => at += bases,
                    1 if numbers.below(2) == 0 => {
                        let start = numbers.below((sequence.len() - bases) as u64 + 1) as usize;
                        out.extend_from_slice(&sequence[start..start + bases]);
                    }
                    1 => (0..bases).for_each(|_| out.push(numbers.base())),
                    // A second copy of what follows.
                    _ => out.extend_from_slice(&sequence[at..at + bases]),
                }
                continue_case(&mut out[from..], lower);
                continue;
            }
            None => {
                let bases = numbers.length(500, 20_000).min(rest);
                out.extend(sequence[at..at + bases].iter().rev().map(|letter| complement(*letter)));
                at += bases;
                continue;
            }
        }
        continue_case(&mut out[from..], lower);
    }
    out
}

fn continue_case(letters: &mut [u8], lower: bool) {
    if lower {
        letters.make_ascii_lowercase();
    }
}

/// Another base: two times of three the one that is chemically alike.
fn substitute(base: u8, numbers: &mut Numbers) -> u8 {
    let alike = match base {
        b'A' => b'G',
        b'G' => b'A',
        b'C' => b'T',
        _ => b'C',
    };
    if numbers.below(3) < 2 {
        return alike;
    }
    loop {
        let other = numbers.base();
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
