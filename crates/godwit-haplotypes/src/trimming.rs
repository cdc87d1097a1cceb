//! Trimming of alleles to the bases that differ from the reference, so that variants may overlap in equal bases.

use crate::alleles::Allele;
use crate::variants::{Variant, VariantSet};

/// Trims the alternate alleles of all variants, in their order, and removes the reference alleles.
///
/// The left side is trimmed first, unless the right side resolves at least as many overlaps with neighbours.
pub(crate) fn trim_alleles(set: &mut VariantSet) {
    let count = set.variants.len();
    let (mut first_overlap, mut after_overlaps) = (0, 0);
    for index in 0..count {
        let current = set.variants[index];
        while after_overlaps < count && (after_overlaps <= index || current.overlaps(&set.variants[after_overlaps])) {
            after_overlaps += 1;
        }
        while first_overlap < index && !current.overlaps(&set.variants[first_overlap]) {
            first_overlap += 1;
        }
        let is_alone = first_overlap == index && after_overlaps == index + 1;
        let (leading, trailing) = if is_alone { (0, 0) } else { trimmable_bases(set, &current) };
        let mut is_left_first = true;
        if leading > 0 && trailing > 0 {
            let (mut left, mut right) = (0, 0);
            for other in (first_overlap..after_overlaps).filter(|other| *other != index) {
                let other = set.variants[other];
                let (left_overlap, right_overlap) = (other.end - current.start, current.end - other.start);
                left += u32::from(left_overlap > 0 && left_overlap <= leading);
                right += u32::from(right_overlap > 0 && right_overlap < trailing);
            }
            is_left_first = left > right;
        }
        trim_variant(set, index, is_left_first);
    }
}

/// Returns the largest numbers of leading and trailing bases that an alternate has in common with the reference.
fn trimmable_bases(set: &VariantSet, variant: &Variant) -> (i32, i32) {
    let Some(reference) = set.slots[variant.slot(0)] else { return (0, 0) };
    let reference = reference.bases(&set.bases);
    let mut most = (0, 0);
    for allele in alternates(set, variant) {
        let bases = allele.bases(&set.bases);
        most.0 = most.0.max(common_prefix(reference, bases) as i32);
        most.1 = most.1.max(common_suffix(reference, bases) as i32);
    }
    most
}

fn alternates<'s>(set: &'s VariantSet, variant: &Variant) -> impl Iterator<Item = &'s Allele> {
    let slots = &set.slots[variant.slot(1)..variant.slot(variant.allele_count as i32)];
    slots.iter().flatten().filter(|allele| !set.is_unknown(allele))
}

fn trim_variant(set: &mut VariantSet, index: usize, is_left_first: bool) {
    let variant = set.variants[index];
    let Some(reference) = set.slots[variant.slot(0)].take() else { return };
    for slot in variant.slot(1)..variant.slot(variant.allele_count as i32) {
        let Some(allele) = set.slots[slot].filter(|allele| !set.is_unknown(allele)) else { continue };
        let (reference, bases) = (reference.bases(&set.bases), allele.bases(&set.bases));
        let (leading, trailing) = if is_left_first {
            let leading = common_prefix(reference, bases);
            (leading, common_suffix(&reference[leading..], &bases[leading..]))
        } else {
            let trailing = common_suffix(reference, bases);
            let before = |bases: &[u8]| bases.len() - trailing;
            (common_prefix(&reference[..before(reference)], &bases[..before(bases)]), trailing)
        };
        set.slots[slot] = Some(Allele {
            start: allele.start + leading as i32,
            end: allele.end - trailing as i32,
            first_base: allele.first_base + leading as u32,
            base_count: allele.base_count - (leading + trailing) as u32,
        });
    }
    let (start, end) = set.bounds(variant.first_slot, variant.allele_count);
    (set.variants[index].start, set.variants[index].end) = (start, end);
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}
