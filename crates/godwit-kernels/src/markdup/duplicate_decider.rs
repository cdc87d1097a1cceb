//! Decision of duplicate sets from sorted signatures.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io;

use godwit_model::{EndSignature, PairSignature, RecordId, end_flags};

use super::duplicate_sets::DuplicateSets;
use super::duplication_metrics::{LibraryMetrics, SetSizes};
use super::optical::optical_duplicates;
use super::paired_ends::PairedEnds;
use super::record_set::SharedRecordSet;
use super::sort_items::{EndItem, PairItem};
use super::template_lists::TemplateLists;
use crate::sort::{RangeBorders, Sortable, SortedItems, SortedItemsIter};

/// The order is that of pairs in Picard (`ReadEndsMDComparator`). Of the pairs with the highest score in a set, the
/// first in this order is not a duplicate.
impl Sortable for PairSignature {
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        self.place_order(other).then_with(|| order_at_place(self, other))
    }
}

/// Compares two pairs whose first ends are at the same place. Not inlined, because it is seldom called.
#[inline(never)]
fn order_at_place(one: &PairSignature, other: &PairSignature) -> Ordering {
    let rest = |p: &PairSignature| (p.orientation(), p.contig2, p.five_prime2, p.location);
    rest(one).cmp(&rest(other)).then_with(|| one.file_order().cmp(&other.file_order()))
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
    // Sign bits are flipped so that negative numbers sort first. The 5' position is negative if clips extend before the
    // start of the contig.
    let [contig, position] = [contig, five_prime].map(|number| number as u32 ^ 0x8000_0000);
    u128::from(library) << 65 | u128::from(contig) << 33 | u128::from(position) << 1 | u128::from(reverse)
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

/// The sorted signatures of pairs and fragments, from which duplicates are decided.
pub(super) struct SortedSignatures<E: EndItem> {
    pub(super) pairs: SortedItems<E::Pair>,
    /// Names of the pairs in `pairs` that `rejoined_pairs` replaces.
    pub(super) superseded_names: HashSet<[u64; 2]>,
    pub(super) rejoined_pairs: SortedItems<E::Pair>,
    pub(super) fragments: SortedItems<Fragment<E>>,
}

/// The inputs and outputs that the deciders of all ranges of signatures share.
pub(super) struct DecidingContext<'m> {
    pub(super) cross_library_mates: &'m CrossLibraryMates,
    pub(super) libraries: usize,
    pub(super) optical_distance: i32,
    /// Set that receives the records that are duplicates.
    pub(super) duplicates: &'m SharedRecordSet,
    /// Set that receives the records that are optical duplicates, if requested.
    pub(super) optical: Option<&'m SharedRecordSet>,
    /// True if the member records of each duplicate set are requested.
    pub(super) report_sets: bool,
}

/// The numbers of duplicates and the duplicate sets of a range of signatures.
pub(super) struct DecidedRange {
    /// For each library: the numbers of duplicates, without the other fields.
    pub(super) libraries: Vec<LibraryMetrics>,
    pub(super) set_sizes: SetSizes,
    pub(super) sets: Option<DuplicateSets>,
}

impl DecidedRange {
    pub(super) fn new(context: &DecidingContext) -> Self {
        Self {
            libraries: vec![LibraryMetrics::default(); context.libraries],
            set_sizes: SetSizes::default(),
            sets: context.report_sets.then(DuplicateSets::default),
        }
    }

    /// Appends the results of the next range.
    pub(super) fn append(&mut self, next: Self) {
        self.libraries.iter_mut().zip(&next.libraries).for_each(|(library, next)| library.add_duplicates(next));
        self.set_sizes.add(next.set_sizes);
        if let (Some(sets), Some(next)) = (&mut self.sets, next.sets) {
            sets.append(next);
        }
    }
}

/// A collector of duplicates in a range of signatures, which also counts the duplicates of each library.
pub(super) struct DuplicateDecider<'m> {
    pub(super) context: &'m DecidingContext<'m>,
    pub(super) decided: DecidedRange,
    /// Lists that receive the duplicates instead of the record sets, in the mode [`super::DuplicateMode::Query`].
    pub(super) template_lists: Option<&'m mut TemplateLists>,
}

impl<'m> DuplicateDecider<'m> {
    pub(super) fn new(context: &'m DecidingContext<'m>, template_lists: Option<&'m mut TemplateLists>) -> Self {
        Self { context, decided: DecidedRange::new(context), template_lists }
    }

    /// Decides which pairs of a range are duplicates. Adds the ends of pairs that were not rejoined to `paired_ends`.
    pub(super) fn decide_pairs<E: EndItem>(
        &mut self,
        signatures: &SortedSignatures<E>,
        borders: &RangeBorders<E::Pair>,
        range: usize,
        paired_ends: &PairedEnds<E::Key>,
    ) -> io::Result<()> {
        let mut merged = PairMerge::new(signatures, borders, range)?;
        let mut ends = paired_ends.batch();
        let mut set: Vec<E::Pair> = Vec::new();
        while let Some((pair, is_rejoined)) = merged.next()? {
            // The ends of rejoined pairs have been added already, each with its own library.
            if !is_rejoined {
                for key in pair.position_keys() {
                    ends.push(key)?;
                }
            }
            if set.first().is_some_and(|first| !are_duplicates(first, &pair)) {
                self.decide_pair_set(&set)?;
                set.clear();
            }
            set.push(pair);
        }
        ends.flush()?;
        self.decide_pair_set(&set)
    }

    fn decide_pair_set<P: PairItem>(&mut self, set: &[P]) -> io::Result<()> {
        if set.len() < 2 {
            if set.len() == 1 {
                self.decided.set_sizes.count(1, 0);
            }
            return Ok(());
        }
        let keeper = index_of_best_score(set.iter().map(|pair| pair.signature().score()));
        let reports_optical = self.context.optical.is_some();
        let mut is_optical = vec![false; if reports_optical { set.len() } else { 0 }];
        let mut note = |index: usize| is_optical[index] = true;
        let on_optical: Option<&mut dyn FnMut(usize)> = if reports_optical { Some(&mut note) } else { None };
        let optical = optical_duplicates(set, keeper, self.context.optical_distance, on_optical);
        self.decided.set_sizes.count(set.len() as u64, optical);
        self.decided.libraries[usize::from(set[0].signature().library)].optical_pairs += optical;
        for (index, pair) in set.iter().enumerate() {
            if index != keeper {
                self.mark_pair(pair, is_optical.get(index).copied().unwrap_or(false))?;
            }
        }
        if let Some(sets) = &mut self.decided.sets {
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
            if is_optical && let Some(optical) = self.context.optical {
                optical.insert(record);
            }
        }
        Ok(())
    }

    fn mark_paired_duplicate(&mut self, record: RecordId, pair_library: u16) {
        let mates = self.context.cross_library_mates;
        let foreign = if mates.is_empty() { None } else { mates.get(&record) };
        self.decided.libraries[usize::from(*foreign.unwrap_or(&pair_library))].paired_duplicates += 1;
        self.context.duplicates.insert(record);
    }

    /// Decides which fragments of a range are duplicates.
    pub(super) fn decide_fragments<E: EndItem>(
        &mut self,
        fragments: &SortedItems<Fragment<E>>,
        paired_ends: &SortedItems<E::Key>,
        borders: &RangeBorders<E::Key>,
        range: usize,
    ) -> io::Result<()> {
        let is_before = |Fragment(end): &Fragment<E>, border: &E::Key| end.position_key() < *border;
        let mut fragments = fragments.range(borders, range, is_before)?;
        let mut paired_ends = paired_ends.range(borders, range, |end, border| end < border)?;
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
            let metrics = &mut self.decided.libraries[usize::from(end.library)];
            if end.flags & end_flags::MATE_MAPPED != 0 {
                metrics.paired_duplicates += 1;
            } else {
                metrics.unpaired_duplicates += 1;
            }
            self.context.duplicates.insert(end.record);
        }
        Ok(())
    }
}

/// A merge of a range of the sorted `pairs` and of the sorted `rejoined_pairs`.
struct PairMerge<'s, P> {
    pairs: SortedItemsIter<'s, P>,
    superseded_names: &'s HashSet<[u64; 2]>,
    rejoined_pairs: SortedItemsIter<'s, P>,
    next_pair: Option<P>,
    next_rejoined: Option<P>,
}

impl<'s, P: PairItem> PairMerge<'s, P> {
    fn new<E: EndItem<Pair = P>>(
        signatures: &'s SortedSignatures<E>,
        borders: &RangeBorders<P>,
        range: usize,
    ) -> io::Result<Self> {
        let is_before = |pair: &P, border: &P| pair.place_order(border).is_lt();
        let pairs = signatures.pairs.range(borders, range, is_before)?;
        let mut rejoined_pairs = signatures.rejoined_pairs.range(borders, range, is_before)?;
        let superseded_names = &signatures.superseded_names;
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

    /// Returns the next pair, and whether it is one of the rejoined pairs.
    fn next(&mut self) -> io::Result<Option<(P, bool)>> {
        let from_joined = match (&self.next_pair, &self.next_rejoined) {
            (Some(pair), Some(joined)) => joined.order(pair).is_lt(),
            (None, Some(_)) => true,
            _ => false,
        };
        if from_joined {
            let next = self.rejoined_pairs.next()?;
            return Ok(std::mem::replace(&mut self.next_rejoined, next).map(|pair| (pair, true)));
        }
        let pair = self.next_pair;
        if pair.is_some() {
            self.advance_pairs()?;
        }
        Ok(pair.map(|pair| (pair, false)))
    }
}
