//! Repeats: families of interspersed elements, satellites, and microsatellites.

use crate::random::{Random, reverse_complement};

/// The number of bases of the consensus of a short family, without its tail.
const SHORT_BASES: usize = 280;
/// The number of bases of the consensus of a long family.
const LONG_BASES: usize = 6000;
/// The number of bases of a satellite's monomer, as of human alpha satellites.
const MONOMER_BASES: usize = 171;
/// The ages of the short families: the divergence of a copy from the consensus.
const SHORT_AGES: [f64; 8] = [0.01, 0.03, 0.05, 0.08, 0.12, 0.16, 0.20, 0.25];
/// The ages of the long families.
const LONG_AGES: [f64; 6] = [0.01, 0.04, 0.08, 0.14, 0.20, 0.25];
/// The divergence of a subfamily from the ancestor of all families of its kind.
const SUBFAMILY_DIVERGENCE: f64 = 0.06;

/// The consensus sequences of all families, each with its age.
pub(super) struct Families {
    short: Vec<(Vec<u8>, f64)>,
    long: Vec<(Vec<u8>, f64)>,
}

impl Families {
    pub(super) fn new(random: &mut Random) -> Self {
        Self {
            short: subfamilies(random, SHORT_BASES, 0.6, &SHORT_AGES),
            long: subfamilies(random, LONG_BASES, 0.42, &LONG_AGES),
        }
    }

    /// Returns a copy of a short element, whole or truncated, with a tail of A, on either strand.
    pub(super) fn short_copy(&self, random: &mut Random) -> Vec<u8> {
        let (consensus, age) = random.pick(&self.short);
        let start = if random.chance(0.2) { random.below(consensus.len() - 40) } else { 0 };
        let mut source = consensus[start..].to_vec();
        source.extend(vec![b'A'; random.between(8, 30)]);
        copy(random, &source, *age)
    }

    /// Returns a copy of a long element on either strand. Most have lost their 5' end.
    pub(super) fn long_copy(&self, random: &mut Random) -> Vec<u8> {
        let (consensus, age) = random.pick(&self.long);
        let share = random.unit();
        let kept = if random.chance(0.05) { LONG_BASES } else { 100 + (share * share * 4900.0) as usize };
        copy(random, &consensus[LONG_BASES - kept..], *age)
    }
}

fn subfamilies(random: &mut Random, bases: usize, gc_share: f64, ages: &[f64]) -> Vec<(Vec<u8>, f64)> {
    let ancestor = random.bases(bases, gc_share);
    ages.iter()
        .map(|age| {
            let mut consensus = random.mutated(&ancestor, SUBFAMILY_DIVERGENCE);
            consensus.resize_with(bases, || random.base());
            (consensus, *age)
        })
        .collect()
}

fn copy(random: &mut Random, source: &[u8], age: f64) -> Vec<u8> {
    let divergence = age * (0.7 + 0.6 * random.unit());
    let copy = random.mutated(source, divergence);
    if random.chance(0.5) { reverse_complement(&copy) } else { copy }
}

/// Returns an array of satellites of exactly this length: a unit of higher order of several diverged monomers, repeated with few changes.
pub(super) fn satellite_array(random: &mut Random, bases: usize) -> Vec<u8> {
    let monomer = random.bases(MONOMER_BASES, 0.38);
    let monomers = random.between(4, 12);
    let mut unit = Vec::new();
    for _ in 0..monomers {
        let divergence = 0.2 + 0.1 * random.unit();
        unit.extend(random.mutated(&monomer, divergence));
    }
    let mut array = Vec::with_capacity(bases + unit.len());
    while array.len() < bases {
        let divergence = 0.005 + 0.015 * random.unit();
        array.extend(random.mutated(&unit, divergence));
    }
    array.truncate(bases);
    array
}

/// Returns a unit of 1 to 6 bases repeated over 20 to 250 bases, with few changes.
pub(super) fn microsatellite(random: &mut Random) -> Vec<u8> {
    let unit_bases = random.between(1, 6);
    let unit = random.bases(unit_bases, 0.4);
    let length = random.between(20, 250);
    let pure: Vec<u8> = unit.iter().copied().cycle().take(length).collect();
    random.mutated(&pure, 0.02)
}
