//! Decision of duplicate sets from sorted signatures.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io;

use godwit_model::{EndSignature, PairSignature, RecordId, end_flags};

use super::duplicate_sets::DuplicateSets;
use super::duplication_metrics::{LibraryMetrics, SetSizes};
use super::optical::optical_duplicates;
use super::record_set::RecordSet;
use super::sort_items::{EndItem, PairItem};
use super::template_lists::TemplateLists;
use crate::sort::{Sortable, SortedItems, SortedItemsIter};

/// The order is that of pairs in Picard (`ReadEndsMDComparator`). Of the pairs with the highest score in a set, the
/// first in this order is not a duplicate.
impl Sortable for PairSignature {
    fn order(&self, other: &Self) -> Ordering {
        let place = |p: &Self| (p.library, p.contig1, p.five_prime1);
        let rest = |p: &Self| (p.orientation(), p.contig2, p.five_prime2, p.location);
        place(self)
            .cmp(&place(other))
            .then_with(|| rest(self).cmp(&rest(other)))
            .then_with(|| self.file_order().cmp(&other.file_order()))
    }
}

/// A fragment: a mapped read without a mapped mate. Fragments sort in the order of Picard.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct Fragment<E>(pub(super) E);

impl<E: EndItem> Sortable for Fragment<E> {
    fn order(&self, other: &Self) -> Ordering {
        let place = |end: &EndSignature| (end.location, end.file_order());
        let key = self.0.position_key().order(&other.0.position_key());
        key.then_with(|| place(self.0.signature()).cmp(&place(other.0.signature())))
    }
}

/// A read whose mate has not been found yet. These reads sort by name, then in file order.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct PendingEnd<E>(pub(super) E);

impl<E: EndItem> Sortable for PendingEnd<E> {
    fn order(&self, other: &Self) -> Ordering {
        let place = |end: &EndSignature| (end.name, end.file_order());
        place(self.0.signature()).cmp(&place(other.0.signature()))
    }
}

/// Returns the key of an end, an integer that sorts by library, contig, 5' position and strand.
pub(super) fn end_key(library: u16, contig: i32, five_prime: i32, reverse: bool) -> u128 {
    // The sign bit is flipped so that negative 5' positions (clips that extend before the start of the contig) sort
    // first.
    let position = (five_prime as u32) ^ 0x8000_0000;
    u128::from(library) << 65 | u128::from(contig as u32) << 33 | u128::from(position) << 1 | u128::from(reverse)
}

/// Returns whether two pairs are duplicates of each other.
fn are_duplicates<P: PairItem>(one: &P, other: &P) -> bool {
    let (a, b) = (one.signature(), other.signature());
    (a.five_prime1, a.five_prime2, a.contig1, a.contig2, a.library)
        == (b.five_prime1, b.five_prime2, b.contig1, b.contig2, b.library)
        && a.orientation() == b.orientation()
        && one.barcodes() == other.barcodes()
}

/// Returns the index of the first item with the highest score.
fn index_of_best_score(scores: impl Iterator<Item = i16>) -> usize {
    let mut best = None;
    for (index, score) in scores.enumerate() {
        if best.is_none_or(|(_, highest)| score > highest) {
            best = Some((index, score));
        }
    }
    best.map_or(0, |(index, _)| index)
}

/// The records whose mates belong to another library, with the library index of the record. The library of such a pair
/// is that of its earlier end. Picard joins mates by the concatenation of read group and name, so `g1` and `x` match
/// `g` and `1x`.
pub(super) type CrossLibraryMates = HashMap<RecordId, u16>;

/// A collector of duplicates, which also counts the duplicates of each library.
pub(super) struct DuplicateDecider<'m> {
    pub(super) cross_library_mates: &'m CrossLibraryMates,
    pub(super) libraries: &'m mut [LibraryMetrics],
    pub(super) set_sizes: &'m mut SetSizes,
    pub(super) duplicates: &'m mut RecordSet,
    pub(super) optical_distance: i32,
    /// Set that receives the records that are optical duplicates, if requested.
    pub(super) optical: Option<&'m mut RecordSet>,
    /// Collection that receives the member records of each duplicate set, if requested.
    pub(super) sets: Option<&'m mut DuplicateSets>,
    /// Lists that receive the duplicates instead of `duplicates`, in the mode [`super::DuplicateMode::Query`].
    pub(super) template_lists: Option<&'m mut TemplateLists>,
}

impl DuplicateDecider<'_> {
    /// Decides which pairs are duplicates. Pairs in `pairs` whose name is in `superseded_names` are skipped, because
    /// `rejoined_pairs` replaces these pairs.
    pub(super) fn decide_pairs<P: PairItem>(
        &mut self,
        pairs: &SortedItems<P>,
        superseded_names: &HashSet<[u64; 2]>,
        rejoined_pairs: &SortedItems<P>,
    ) -> io::Result<()> {
        let mut merged = PairMerge::new(pairs, superseded_names, rejoined_pairs)?;
        let mut set: Vec<P> = Vec::new();
        while let Some(pair) = merged.next()? {
            if set.first().is_some_and(|first| !are_duplicates(first, &pair)) {
                self.decide_pair_set(&set)?;
                set.clear();
            }
            set.push(pair);
        }
        self.decide_pair_set(&set)
    }

    fn decide_pair_set<P: PairItem>(&mut self, set: &[P]) -> io::Result<()> {
        if set.len() < 2 {
            if set.len() == 1 {
                self.set_sizes.count(1, 0);
            }
            return Ok(());
        }
        let keeper = index_of_best_score(set.iter().map(|pair| pair.signature().score()));
        let mut is_optical = vec![false; if self.optical.is_some() { set.len() } else { 0 }];
        let mut note = |index: usize| is_optical[index] = true;
        let on_optical: Option<&mut dyn FnMut(usize)> = if self.optical.is_some() { Some(&mut note) } else { None };
        let optical = optical_duplicates(set, keeper, self.optical_distance, on_optical);
        self.set_sizes.count(set.len() as u64, optical);
        self.libraries[usize::from(set[0].signature().library)].optical_pairs += optical;
        for (index, pair) in set.iter().enumerate() {
            if index != keeper {
                self.mark_pair(pair, is_optical.get(index).copied().unwrap_or(false))?;
            }
        }
        if let Some(sets) = &mut self.sets {
            let number = sets.add(set[keeper].signature().record1, set.len());
            for pair in set {
                match &mut self.template_lists {
                    Some(lists) => lists.add_set_member(pair.signature(), number)?,
                    None => [pair.signature().record1, pair.signature().record2]
                        .into_iter()
                        .for_each(|record| sets.add_member(record, number)),
                }
            }
        }
        Ok(())
    }

    fn mark_pair<P: PairItem>(&mut self, pair: &P, is_optical: bool) -> io::Result<()> {
        if let Some(lists) = &mut self.template_lists {
            return lists.add_duplicate_pair(pair.signature(), is_optical);
        }
        let signature = pair.signature();
        for record in [signature.record1, signature.record2] {
            self.mark_paired_duplicate(record, signature.library);
            if is_optical && let Some(optical) = &mut self.optical {
                optical.insert(record);
            }
        }
        Ok(())
    }

    fn mark_paired_duplicate(&mut self, record: RecordId, pair_library: u16) {
        let foreign = if self.cross_library_mates.is_empty() { None } else { self.cross_library_mates.get(&record) };
        self.libraries[usize::from(*foreign.unwrap_or(&pair_library))].paired_duplicates += 1;
        self.duplicates.insert(record);
    }

    /// Decides which fragments are duplicates. `paired_ends` holds the keys of all reads with a mapped mate.
    pub(super) fn decide_fragments<E: EndItem>(
        &mut self,
        fragments: &SortedItems<Fragment<E>>,
        paired_ends: &SortedItems<E::Key>,
    ) -> io::Result<()> {
        let mut fragments = fragments.iter()?;
        let mut paired_ends = paired_ends.iter()?;
        let mut paired_end = paired_ends.next()?;
        let mut set: Vec<E> = Vec::new();
        let mut next = fragments.next()?;
        while let Some(Fragment(first)) = next {
            let key = first.position_key();
            set.clear();
            while let Some(Fragment(end)) = next.filter(|Fragment(end)| end.position_key() == key) {
                set.push(end);
                next = fragments.next()?;
            }
            while paired_end.is_some_and(|end| end < key) {
                paired_end = paired_ends.next()?;
            }
            self.decide_fragment_set(&set, paired_end == Some(key))?;
        }
        Ok(())
    }

    /// Decides a set of fragments with equal keys. If a pair has an end with the same key, all fragments are
    /// duplicates. Otherwise, all fragments except the best are duplicates.
    fn decide_fragment_set<E: EndItem>(&mut self, set: &[E], pair_at_same_end: bool) -> io::Result<()> {
        let keeper = if pair_at_same_end {
            None
        } else {
            Some(index_of_best_score(set.iter().map(|end| end.signature().score)))
        };
        for (index, item) in set.iter().enumerate() {
            if Some(index) == keeper {
                continue;
            }
            let end = item.signature();
            if let Some(lists) = &mut self.template_lists {
                lists.add_duplicate_fragment(end.record)?;
                continue;
            }
            let metrics = &mut self.libraries[usize::from(end.library)];
            if end.flags & end_flags::MATE_MAPPED != 0 {
                metrics.paired_duplicates += 1;
            } else {
                metrics.unpaired_duplicates += 1;
            }
            self.duplicates.insert(end.record);
        }
        Ok(())
    }
}

/// A merge of the sorted `pairs` and the sorted `rejoined_pairs`.
struct PairMerge<'s, P> {
    pairs: SortedItemsIter<'s, P>,
    superseded_names: &'s HashSet<[u64; 2]>,
    rejoined_pairs: SortedItemsIter<'s, P>,
    next_pair: Option<P>,
    next_rejoined: Option<P>,
}

impl<'s, P: PairItem> PairMerge<'s, P> {
    fn new(
        pairs: &'s SortedItems<P>,
        superseded_names: &'s HashSet<[u64; 2]>,
        joined_anew: &'s SortedItems<P>,
    ) -> io::Result<Self> {
        let (pairs, mut rejoined_pairs) = (pairs.iter()?, joined_anew.iter()?);
        let next_rejoined = rejoined_pairs.next()?;
        let mut merge = Self { pairs, superseded_names, rejoined_pairs, next_pair: None, next_rejoined };
        merge.advance_pairs()?;
        Ok(merge)
    }

    fn advance_pairs(&mut self) -> io::Result<()> {
        loop {
            self.next_pair = self.pairs.next()?;
            let skip = !self.superseded_names.is_empty()
                && self.next_pair.as_ref().is_some_and(|pair| self.superseded_names.contains(&pair.signature().name));
            if !skip {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> io::Result<Option<P>> {
        let from_joined = match (&self.next_pair, &self.next_rejoined) {
            (Some(pair), Some(joined)) => joined.order(pair).is_lt(),
            (None, Some(_)) => true,
            _ => false,
        };
        if from_joined {
            let next = self.rejoined_pairs.next()?;
            return Ok(std::mem::replace(&mut self.next_rejoined, next));
        }
        let pair = self.next_pair;
        if pair.is_some() {
            self.advance_pairs()?;
        }
        Ok(pair)
    }
}
