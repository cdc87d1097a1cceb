//! The variants of one side in the order of the search.

use crate::alleles::AlleleRank;
use crate::orientations::{OrientationRule, Orientations};
use crate::variants::VariantSet;

/// The variants of one side, sorted by start and end, with their orientations.
#[derive(Debug)]
pub(crate) struct SearchSide {
    /// Indexes of the variants in their set.
    pub(crate) variants: Vec<u32>,
    pub(super) starts: Vec<i32>,
    pub(super) ends: Vec<i32>,
    pub(super) orientations: Orientations,
}

impl SearchSide {
    /// Sorts the variants `order` of a set, and enumerates their orientations.
    pub(crate) fn new(set: &VariantSet, ranks: &[AlleleRank], mut order: Vec<u32>, rule: OrientationRule) -> Self {
        let key = |index: &u32| {
            let variant = &set.variants[*index as usize];
            (variant.start, variant.end)
        };
        order.sort_by_key(key);
        Self {
            starts: order.iter().map(|index| key(index).0).collect(),
            ends: order.iter().map(|index| key(index).1).collect(),
            orientations: Orientations::new(set, ranks, &order, rule),
            variants: order,
        }
    }
}
