//! The theoretical sensitivity for heterozygous SNPs of Picard 3.4.0 (`TheoreticalSensitivity.hetSNPSensitivity`): a
//! simulation of base qualities with the random numbers of `java.util.Random`.

use crate::phred::phred_score;

/// Number of simulated reads at each depth.
const SAMPLES: usize = 10_000;
/// Log odds above which a variant counts as called.
const LOG_ODDS_THRESHOLD: f64 = 3.0;
/// Number of draws after which Picard gives a quality of 0.
const MAX_DRAWS: u32 = 600;
const RANDOM_SEED: u64 = 51;
/// Maximum depth that is simulated.
const MAX_DEPTH: usize = 1_000;

/// Multiplier, increment and modulus of `java.util.Random`.
const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const STATE_MASK: u64 = (1 << 48) - 1;
/// Number of trials that are computed together, so that one does not wait for the other.
const LANES: usize = 8;
/// Numbers of 32 bits that a trial takes: two for each double.
const NUMBERS_PER_TRIAL: u32 = 4;

/// Returns multiplier and increment of `steps` steps of the generator.
const fn jump(steps: u32) -> (u64, u64) {
    let (mut multiplier, mut increment, mut step) = (1u64, 0u64, 0);
    while step < steps {
        multiplier = multiplier.wrapping_mul(MULTIPLIER) & STATE_MASK;
        increment = (increment.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)) & STATE_MASK;
        step += 1;
    }
    (multiplier, increment)
}

const fn step(state: u64) -> u64 {
    (state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)) & STATE_MASK
}

/// Returns the double that the generator returns after `state`, and its next state.
fn next_double(state: u64) -> (f64, u64) {
    let (first, second) = (step(state), step(step(state)));
    let bits = ((first >> 22) << 27) + (second >> 21);
    (bits as f64 * (1.0 / (1u64 << 53) as f64), second)
}

/// Random draws of qualities with the probabilities of a distribution, by stochastic acceptance. The results equal those
/// of Picard's `RouletteWheel`.
struct QualityWheel {
    /// Probabilities relative to that of the most frequent quality; `None` if there are no qualities.
    probabilities: Option<Vec<f64>>,
    /// States before the next `LANES` trials.
    states: [u64; LANES],
    /// Outcomes of these trials: the drawn quality, or -1.
    outcomes: [i32; LANES],
    next: usize,
}

impl QualityWheel {
    fn new(qualities: &[u64]) -> Self {
        let total = qualities.iter().sum::<u64>() as f64;
        let weights: Vec<f64> = qualities.iter().map(|count| *count as f64 / total).collect();
        let most = weights.iter().copied().fold(0.0, f64::max);
        let probabilities = (most > 0.0).then(|| weights.iter().map(|weight| weight / most).collect());
        let mut states = [(RANDOM_SEED ^ MULTIPLIER) & STATE_MASK; LANES];
        for lane in 1..LANES {
            states[lane] = (0..NUMBERS_PER_TRIAL).fold(states[lane - 1], |state, _| step(state));
        }
        Self { probabilities, states, outcomes: [0; LANES], next: LANES }
    }

    fn draw(&mut self) -> u32 {
        let Some(probabilities) = &self.probabilities else { return 0 };
        for _ in 0..MAX_DRAWS {
            if self.next == LANES {
                const ALL_LANES: (u64, u64) = jump(NUMBERS_PER_TRIAL * LANES as u32);
                for (state, outcome) in self.states.iter_mut().zip(&mut self.outcomes) {
                    let (place, middle) = next_double(*state);
                    let quality = (probabilities.len() as f64 * place) as usize;
                    let (chance, _) = next_double(middle);
                    *outcome = if chance < probabilities[quality] { quality as i32 } else { -1 };
                    *state = state.wrapping_mul(ALL_LANES.0).wrapping_add(ALL_LANES.1) & STATE_MASK;
                }
                self.next = 0;
            }
            let outcome = self.outcomes[self.next];
            self.next += 1;
            if outcome >= 0 {
                return outcome as u32;
            }
        }
        0
    }
}

/// Returns the sensitivity (0 to 1), and its Phred-scaled quality.
///
/// `depths`: the number of positions by depth. `qualities`: the number of bases by quality.
pub(crate) fn het_snp_sensitivity(depths: &[u64], qualities: &[u64]) -> (f64, i32) {
    let positions = depths.iter().sum::<u64>() as f64;
    let limit = depths.len().min(MAX_DEPTH + 1);
    let called = called_fractions(limit, qualities);
    let mut alternate: Vec<f64> = Vec::new();
    let mut sensitivity = 0.0;
    for depth in 0..limit {
        alternate = next_alternate_depths(&alternate, depth);
        let fraction = depths[depth] as f64 / positions;
        for (alternate_depth, probability) in alternate.iter().enumerate() {
            sensitivity += fraction * probability * called[alternate_depth][depth];
        }
    }
    (sensitivity, phred_score(1.0 - sensitivity))
}

/// Returns for each number of alternate bases, and each depth, the fraction of the samples whose sum of qualities reaches
/// the threshold of the depth.
fn called_fractions(limit: usize, qualities: &[u64]) -> Vec<Vec<f64>> {
    let mut wheel = QualityWheel::new(qualities);
    let mut sums = vec![vec![0u32; SAMPLES]; limit];
    for sample in 0..SAMPLES {
        let mut sum = 0;
        for by_number in &mut sums {
            by_number[sample] = sum;
            sum += wheel.draw();
        }
    }
    let thresholds: Vec<f64> =
        (0..limit).map(|depth| 10.0 * (depth as f64 * 2f64.log10() + LOG_ODDS_THRESHOLD)).collect();
    let fractions = |mut sums: Vec<u32>| {
        sums.sort_unstable();
        let mut below = 0;
        let reaching = |threshold: &f64| {
            while below < SAMPLES && *threshold > f64::from(sums[below]) {
                below += 1;
            }
            (SAMPLES - below) as f64 / SAMPLES as f64
        };
        thresholds.iter().map(reaching).collect()
    };
    sums.into_iter().map(fractions).collect()
}

/// Returns the probabilities of 0 to `depth` alternate bases at a heterozygous site. `previous`: those of the depth
/// before.
fn next_alternate_depths(previous: &[f64], depth: usize) -> Vec<f64> {
    let end = 0.5f64.powi(depth as i32);
    let mut row = vec![end];
    row.extend((1..depth).map(|number| depth as f64 * 0.5 / number as f64 * previous[number - 1]));
    if depth > 0 {
        row.push(end);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_java() {
        // new java.util.Random(51).nextDouble(), twice.
        let (first, state) = next_double((RANDOM_SEED ^ MULTIPLIER) & STATE_MASK);
        let (second, _) = next_double(state);
        assert!(first != second && (0.0..1.0).contains(&first));
        // Jumps and single steps reach the same state.
        let (multiplier, increment) = jump(32);
        let stepped = (0..32).fold(7, |state, _| step(state));
        assert_eq!(7u64.wrapping_mul(multiplier).wrapping_add(increment) & STATE_MASK, stepped);
    }

    #[test]
    fn without_bases_nothing_is_found() {
        assert!(het_snp_sensitivity(&[0, 0], &[0; 127]).0.is_nan());
        assert_eq!(het_snp_sensitivity(&[10, 0], &[0; 127]).0, 0.0);
    }
}
