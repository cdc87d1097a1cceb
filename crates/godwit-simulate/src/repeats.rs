//! Repeats in a simulated genome. They make reads ambiguous and the positions of indels uncertain.

use super::assembly_contig::AssemblyContig;
use super::rng::{Rng, complement};

/// Families of dispersed repeats: length of the unit in bases, and fraction of bases in which copies differ from it.
/// The first two resemble fragments of Alu and L1. Copies of the last are identical and longer than a template, so that
/// their reads have mapping quality 0.
const REPEAT_FAMILIES: [(usize, f64); 4] = [(300, 0.10), (1_200, 0.03), (500, 0.01), (1_500, 0.0)];
/// Probability that a repeat is tandem. Tandem repeats are on average a fifth as long as copies of dispersed repeats,
/// so they make up a quarter of the repeated bases.
const TANDEM_CHANCE: f64 = 0.62;
/// Probability that a base of a tandem repeat differs from the repeated unit.
const TANDEM_DIVERGENCE: f64 = 0.01;

/// Writes repeats into the contigs until they cover the given fraction of all bases. Bases of overlapping repeats count
/// twice.
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
            // If the contig is shorter than the copy, only a piece of the copy is written.
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

/// Returns a tandem repeat with a total length of 20 to 340 bases. The repeated unit has 1 to 60 bases.
fn tandem_copy(rng: &mut Rng) -> Vec<u8> {
    // Short repeat units are more frequent than long ones.
    let longest = 1 + rng.below(60);
    let unit_bases = 1 + rng.below(longest);
    let unit: Vec<_> = (0..unit_bases).map(|_| rng.base()).collect();
    let bases = 20 + rng.below(320) as usize;
    unit.iter().cycle().take(bases).map(|&base| diverge(base, TANDEM_DIVERGENCE, rng)).collect()
}

/// Returns a copy of the unit of a family, on a random strand and with random differences.
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
