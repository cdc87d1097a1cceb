//! A small diploid genome with all features that make alignments ambiguous.
//!
//! Input: a seed. Output: contigs (with repeat families, an exact segmental duplication, tandem repeats, runs of N,
//! soft-masked and ambiguous bases, and a contig shorter than a read) and two haplotypes that differ from them. Reads of
//! repeats get MAPQ 0 and are placed by a hash of the read's ordinal, so a wrong ordinal changes the output.

use std::path::Path;

use crate::random::Random;

/// Names and sizes of the contigs, in bases.
const CONTIGS: [(&str, usize); 5] =
    [("chr1", 150_000), ("chr2", 80_000), ("chr3", 30_000), ("chrM", 6_000), ("tiny", 64)];
/// The alternate contig copies this range of chr1, 0-based half-open.
const ALT_CONTIG_RANGE: std::ops::Range<usize> = 40_000..46_000;

/// A contig of the genome.
#[derive(Clone, Debug)]
pub struct Contig {
    /// The name.
    pub name: String,
    /// The bases, as in the FASTA file.
    pub bases: Vec<u8>,
}

/// A diploid genome: contigs and two mutated copies of each.
#[derive(Clone, Debug)]
pub struct SmallGenome {
    /// The reference sequences.
    pub contigs: Vec<Contig>,
    /// The haplotypes that reads are drawn from, two per contig, in the order of the contigs.
    pub haplotypes: Vec<Vec<u8>>,
    /// Lines of the `.alt` file, if the genome has an alternate contig.
    pub alt: Option<String>,
}

impl SmallGenome {
    /// Generates the genome of `seed`, with or without an alternate contig.
    pub fn new(seed: u64, alternate: bool) -> Self {
        let mut random = Random::new(seed);
        let mut contigs: Vec<Contig> = CONTIGS
            .iter()
            .map(|(name, bases)| Contig { name: (*name).to_owned(), bases: random.bases(*bases) })
            .collect();
        insert_repeats(&mut contigs, &mut random);
        let haplotypes = contigs.iter().flat_map(|contig| [(), ()].map(|()| &contig.bases)).collect::<Vec<_>>();
        let mut haplotypes: Vec<Vec<u8>> =
            haplotypes.into_iter().map(|bases| mutate(bases, 1e-3, 1e-4, &mut random)).collect();
        add_reference_artifacts(&mut contigs[0].bases);
        let mut alt = None;
        if alternate {
            let bases = mutate(&contigs[0].bases[ALT_CONTIG_RANGE], 0.01, 0.0, &mut random);
            alt = Some(format!(
                "chr1_alt\t0\tchr1\t{}\t60\t{}M\t*\t0\t0\t*\t*\n",
                ALT_CONTIG_RANGE.start + 1,
                bases.len()
            ));
            haplotypes.extend([bases.clone(), bases.clone()]);
            contigs.push(Contig { name: "chr1_alt".to_owned(), bases });
        }
        Self { contigs, haplotypes, alt }
    }

    /// Writes `ref.fa`, and `ref.fa.alt` if the genome has an alternate contig, into `directory`.
    ///
    /// # Panics
    /// When writing fails.
    pub fn write(&self, directory: &Path) {
        let mut text = Vec::new();
        for contig in &self.contigs {
            text.extend_from_slice(format!(">{} made from a seed\n", contig.name).as_bytes());
            for line in contig.bases.chunks(70) {
                text.extend_from_slice(line);
                text.push(b'\n');
            }
        }
        std::fs::write(directory.join("ref.fa"), text).expect("the reference can be written");
        if let Some(alt) = &self.alt {
            std::fs::write(directory.join("ref.fa.alt"), alt).expect("the list of alternate contigs can be written");
        }
    }
}

fn insert_repeats(contigs: &mut [Contig], random: &mut Random) {
    for _ in 0..10 {
        let bases = 200 + random.below(1300);
        let element = random.bases(bases);
        for _ in 0..3 + random.below(6) {
            let target = random.below(3);
            let divergence = *random.pick(&[0.0, 0.0, 0.005, 0.03]);
            let mut copy = mutate(&element, divergence, 0.0, random);
            if random.chance(0.5) {
                copy = reverse_complement(&copy);
            }
            let start = random.below(contigs[target].bases.len() - copy.len());
            contigs[target].bases[start..start + copy.len()].copy_from_slice(&copy);
        }
    }
    let duplicated = contigs[0].bases[100_000..105_000].to_vec();
    contigs[1].bases[30_000..35_000].copy_from_slice(&duplicated);
    let unit = random.bases(7);
    for (place, base) in contigs[2].bases[5_000..6_000].iter_mut().enumerate() {
        *base = unit[place % unit.len()];
    }
}

/// Adds features that only the reference has and not the haplotypes: gaps, single N and ambiguous bases, and
/// soft-masked intervals.
fn add_reference_artifacts(bases: &mut [u8]) {
    bases[60_000..60_700].fill(b'N');
    for (place, code) in [(1_000, b'N'), (20_500, b'R'), (20_510, b'Y'), (90_000, b'K')] {
        bases[place] = code;
    }
    bases[70_000..72_000].make_ascii_lowercase();
}

/// Returns a copy with single-base changes and short insertions and deletions at the given rates per base.
pub fn mutate(bases: &[u8], substitutions: f64, indels: f64, random: &mut Random) -> Vec<u8> {
    let mut copy = Vec::with_capacity(bases.len() + 16);
    let mut place = 0;
    while place < bases.len() {
        if random.chance(indels) {
            let length = 1 + random.below(8);
            if random.chance(0.5) {
                copy.extend(random.bases(length));
            } else {
                place += length;
                continue;
            }
        }
        copy.push(if random.chance(substitutions) { *random.pick(b"ACGT") } else { bases[place] });
        place += 1;
    }
    copy
}

/// Returns the reverse complement; letters that are not bases are unchanged.
pub fn reverse_complement(bases: &[u8]) -> Vec<u8> {
    let complement = |base: &u8| match base {
        b'A' => b'T',
        b'C' => b'G',
        b'G' => b'C',
        b'T' => b'A',
        other => *other,
    };
    bases.iter().rev().map(complement).collect()
}
