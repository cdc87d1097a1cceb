//! Repeats over random sequence, which make reads ambiguous and indels hard to place.

use super::assembly::AssemblyContig;
use super::rng::{Rng, complement};

/// Families of dispersed repeats: length of the unit in bases, and divergence of its copies. The first two resemble Alu and
/// L1 fragments. The last has identical copies longer than a template, so that its reads get mapping quality 0.
const REPEAT_FAMILIES: [(usize, f64); 4] = [(300, 0.10), (1_200, 0.03), (500, 0.01), (1_500, 0.0)];
/// Probability that a copy is tandem. Tandem copies have a fifth of the bases of dispersed ones and so cover a quarter.
const TANDEM_CHANCE: f64 = 0.62;
/// Probability that a base of a tandem copy differs from its unit.
const TANDEM_DIVERGENCE: f64 = 0.01;

/// Writes repeats over the contigs until they cover this fraction of all bases (overlaps count twice).
pub(super) fn add_repeats(contigs: &mut [AssemblyContig], fraction: f64, rng: &mut Rng) {
    let families =
        REPEAT_FAMILIES.map(|(bases, divergence)| ((0..bases).map(|_| rng.base()).collect::<Vec<_>>(), divergence));
    for contig in contigs {
        let budget = (contig.bases.len() as f64 * fraction) as usize;
        let mut covered = 0;
        while covered < budget {
            let (copy, is_identical) = if rng.chance(TANDEM_CHANCE) {
                (tandem_copy(rng), false)
            } else {
                let (unit, divergence) = &families[rng.below(REPEAT_FAMILIES.len() as u64) as usize];
                (dispersed_copy(unit, *divergence, rng), *divergence == 0.0)
            };
            // A contig that is too short for this copy gets a piece of it.
            let bases = copy.len().min(contig.bases.len()).min(budget - covered);
            let start = rng.below((contig.bases.len() - bases + 1) as u64) as usize;
            contig.bases[start..start + bases].copy_from_slice(&copy[..bases]);
            if is_identical {
                contig.identical_copies.push((start as u32, (start + bases) as u32));
            }
            covered += bases;
        }
    }
}

/// Returns a tandem repeat of a unit of 1 to 60 bases, 20 to 340 bases in total.
fn tandem_copy(rng: &mut Rng) -> Vec<u8> {
    // Short units are more frequent.
    let longest = 1 + rng.below(60);
    let unit_bases = 1 + rng.below(longest);
    let unit: Vec<_> = (0..unit_bases).map(|_| rng.base()).collect();
    let bases = 20 + rng.below(320) as usize;
    unit.iter().cycle().take(bases).map(|&base| diverge(base, TANDEM_DIVERGENCE, rng)).collect()
}

/// Returns a copy of a family's unit on either strand.
fn dispersed_copy(unit: &[u8], divergence: f64, rng: &mut Rng) -> Vec<u8> {
    let reverse = rng.chance(0.5);
    let mut copy: Vec<_> = unit.iter().map(|&base| diverge(base, divergence, rng)).collect();
    if reverse {
        copy.reverse();
        copy.iter_mut().for_each(|base| *base = complement(*base));
    }
    copy
}

fn diverge(base: u8, divergence: f64, rng: &mut Rng) -> u8 {
    if divergence > 0.0 && rng.chance(divergence) { rng.other_base(base) } else { base }
}
