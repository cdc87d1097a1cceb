//! Alignments with a given unclipped 5' end: CIGAR strings with clips of both kinds on both ends, and their positions.

use super::{Contig, FivePrimeEnd};
use crate::random::Random;

/// A mapped read: position, strand, CIGAR and number of bases.
#[derive(Clone, Debug)]
pub(super) struct Alignment {
    pub(super) contig: usize,
    pub(super) pos_1based: i64,
    pub(super) reverse: bool,
    pub(super) cigar: String,
    pub(super) read_bases: usize,
}

#[derive(Debug, Default)]
struct Cigar {
    text: String,
    leading_clip: i64,
    trailing_clip: i64,
    reference_bases: i64,
    read_bases: i64,
}

impl Cigar {
    fn push(&mut self, length: i64, operation: char) {
        if length == 0 {
            return;
        }
        self.text.push_str(&format!("{length}{operation}"));
        if matches!(operation, 'M' | 'I' | 'S' | '=' | 'X') {
            self.read_bases += length;
        }
        if matches!(operation, 'M' | 'D' | 'N' | '=' | 'X') {
            self.reference_bases += length;
        }
    }
}

/// Draws an alignment of about `core_bases` whose unclipped 5' end is that of `anchor`, or one that is moved because it
/// would not fit on its contig.
pub(super) fn alignment_with_five_prime_end(
    anchor: FivePrimeEnd,
    reverse: bool,
    core_bases: i64,
    contigs: &[Contig],
    random: &mut Random,
) -> Alignment {
    let contig = &contigs[anchor.contig];
    let mut attempt = 0;
    loop {
        let cigar = random_cigar(core_bases, random);
        let mut pos_1based = if reverse {
            anchor.position_1based - cigar.trailing_clip - cigar.reference_bases + 1
        } else {
            anchor.position_1based + cigar.leading_clip
        };
        attempt += 1;
        let fits = |start: i64| start >= 1 && start + cigar.reference_bases - 1 <= contig.bases;
        if attempt > 20 {
            pos_1based = pos_1based.clamp(1, (contig.bases - cigar.reference_bases + 1).max(1));
        }
        if fits(pos_1based) {
            let read_bases = cigar.read_bases as usize;
            return Alignment { contig: anchor.contig, pos_1based, reverse, cigar: cigar.text, read_bases };
        }
    }
}

fn random_cigar(core_bases: i64, random: &mut Random) -> Cigar {
    let mut cigar = Cigar::default();
    let (hard, soft) = random_clip(random);
    cigar.push(hard, 'H');
    cigar.push(soft, 'S');
    cigar.leading_clip = hard + soft;
    push_aligned_operations(&mut cigar, core_bases, random);
    let (hard, soft) = random_clip(random);
    cigar.push(soft, 'S');
    cigar.push(hard, 'H');
    cigar.trailing_clip = hard + soft;
    cigar
}

fn random_clip(random: &mut Random) -> (i64, i64) {
    let length = random.between(1, 12);
    match random.below(20) {
        0..11 => (0, 0),
        11..16 => (0, length),
        16..18 => (length, 0),
        _ => (random.between(1, 5), length),
    }
}

fn push_aligned_operations(cigar: &mut Cigar, bases: i64, random: &mut Random) {
    match random.below(40) {
        0..26 => cigar.push(bases, 'M'),
        // Generate a CIGAR without aligned bases: all bases of the read are inserted or clipped.
        26 => cigar.push(bases, 'I'),
        27 => {
            cigar.push(bases / 2, '=');
            cigar.push(1, 'X');
            cigar.push(bases / 2, '=');
        }
        _ => {
            cigar.push(bases / 2, 'M');
            for _ in 0..1 + random.below(2) {
                let operation = *random.pick(&['I', 'D', 'D', 'N', 'P', 'X']);
                let length = if operation == 'N' { 80 } else { random.between(1, 4) };
                cigar.push(length, operation);
                cigar.push(bases / 4, 'M');
            }
        }
    }
}
