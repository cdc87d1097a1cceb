//! Deciding duplicate sets from sorted signatures.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io;

use godwit_model::{EndSignature, PairSignature, RecordId, end_flags};

use super::item::{End, Pair};
use super::metrics::{LibraryMetrics, SetSizes};
use super::optical::optical_duplicates;
use super::query::TemplateLists;
use super::sets::DuplicateSets;
use super::verdicts::Verdicts;
use crate::sort::{Sortable, Sorted, SortedIter};

/// Sets are decided in Picard's order of pairs (`ReadEndsMDComparator`): the first of the best is kept.
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

/// A true fragment: a mapped read without a mapped mate, in Picard's order of fragments.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct Fragment<E>(pub(super) E);

impl<E: End> Sortable for Fragment<E> {
    fn order(&self, other: &Self) -> Ordering {
        let place = |end: &EndSignature| (end.location, end.file_order());
        let key = self.0.key().order(&other.0.key());
        key.then_with(|| place(self.0.signature()).cmp(&place(other.0.signature())))
    }
}

/// A read that waits for its mate, grouped by name.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct Waiting<E>(pub(super) E);

impl<E: End> Sortable for Waiting<E> {
    fn order(&self, other: &Self) -> Ordering {
        let place = |end: &EndSignature| (end.name, end.file_order());
        place(self.0.signature()).cmp(&place(other.0.signature()))
    }
}

/// One end as an integer that sorts by library, contig, 5' position and strand.
pub(super) fn end_key(library: u16, contig: i32, five_prime: i32, reverse: bool) -> u128 {
    // Flipping the sign bit makes negative 5' positions (clips before the contig's start) sort first.
    let position = (five_prime as u32) ^ 0x8000_0000;
    u128::from(library) << 65 | u128::from(contig as u32) << 33 | u128::from(position) << 1 | u128::from(reverse)
}

/// Whether two pairs are duplicates of one another.
fn same_set<P: Pair>(one: &P, other: &P) -> bool {
    let (a, b) = (one.signature(), other.signature());
    (a.five_prime1, a.five_prime2, a.contig1, a.contig2, a.library)
        == (b.five_prime1, b.five_prime2, b.contig1, b.contig2, b.library)
        && a.orientation() == b.orientation()
        && one.barcodes() == other.barcodes()
}

/// Index of the first item with the strictly greatest score.
fn best(scores: impl Iterator<Item = i16>) -> usize {
    let mut best = None;
    for (index, score) in scores.enumerate() {
        if best.is_none_or(|(_, highest)| score > highest) {
            best = Some((index, score));
        }
    }
    best.map_or(0, |(index, _)| index)
}

/// Records that were joined to a mate of another library, which gives the pair its library, with their own. Picard joins
/// by read group and name put together, so `g1` and `x` meet `g` and `1x`.
pub(super) type ForeignLibraries = HashMap<RecordId, u16>;

/// Receives verdicts and counts them per library.
pub(super) struct Decider<'m> {
    pub(super) foreign_libraries: &'m ForeignLibraries,
    pub(super) libraries: &'m mut [LibraryMetrics],
    pub(super) set_sizes: &'m mut SetSizes,
    pub(super) verdicts: &'m mut Verdicts,
    pub(super) optical_distance: i32,
    /// Which pairs are optical duplicates, where that is asked for.
    pub(super) optical: Option<&'m mut Verdicts>,
    /// Which records are in which set, where that is asked for.
    pub(super) sets: Option<&'m mut DuplicateSets>,
    /// Where duplicates are marked by template, they go there instead of into `verdicts`.
    pub(super) lists: Option<&'m mut TemplateLists>,
}

impl Decider<'_> {
    /// Decides all pairs; those whose name is in `superseded` are left out (they were joined anew).
    pub(super) fn decide_pairs<P: Pair>(
        &mut self,
        pairs: &Sorted<P>,
        superseded: &HashSet<[u64; 2]>,
        joined_anew: &Sorted<P>,
    ) -> io::Result<()> {
        let mut merged = PairMerge::new(pairs, superseded, joined_anew)?;
        let mut set: Vec<P> = Vec::new();
        while let Some(pair) = merged.next()? {
            if set.first().is_some_and(|first| !same_set(first, &pair)) {
                self.decide_pair_set(&set)?;
                set.clear();
            }
            set.push(pair);
        }
        self.decide_pair_set(&set)
    }

    fn decide_pair_set<P: Pair>(&mut self, set: &[P]) -> io::Result<()> {
        if set.len() < 2 {
            if set.len() == 1 {
                self.set_sizes.count(1, 0);
            }
            return Ok(());
        }
        let keeper = best(set.iter().map(|pair| pair.signature().score()));
        let mut is_optical = vec![false; if self.optical.is_some() { set.len() } else { 0 }];
        let mut note = |index: usize| is_optical[index] = true;
        let each: Option<&mut dyn FnMut(usize)> = if self.optical.is_some() { Some(&mut note) } else { None };
        let optical = optical_duplicates(set, keeper, self.optical_distance, each);
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
                match &mut self.lists {
                    Some(lists) => lists.member(pair.signature(), number)?,
                    None => [pair.signature().record1, pair.signature().record2]
                        .into_iter()
                        .for_each(|record| sets.join(record, number)),
                }
            }
        }
        Ok(())
    }

    fn mark_pair<P: Pair>(&mut self, pair: &P, is_optical: bool) -> io::Result<()> {
        if let Some(lists) = &mut self.lists {
            return lists.duplicate_pair(pair.signature(), is_optical);
        }
        let signature = pair.signature();
        for record in [signature.record1, signature.record2] {
            self.mark_mate(record, signature.library);
            if is_optical && let Some(optical) = &mut self.optical {
                optical.mark(record);
            }
        }
        Ok(())
    }

    fn mark_mate(&mut self, record: RecordId, pair_library: u16) {
        let foreign = if self.foreign_libraries.is_empty() { None } else { self.foreign_libraries.get(&record) };
        self.libraries[usize::from(*foreign.unwrap_or(&pair_library))].paired_duplicates += 1;
        self.verdicts.mark(record);
    }

    /// Decides all fragments; `paired_ends` are the keys of reads with a mapped mate.
    pub(super) fn decide_fragments<E: End>(
        &mut self,
        fragments: &Sorted<Fragment<E>>,
        paired_ends: &Sorted<E::Key>,
    ) -> io::Result<()> {
        let mut fragments = fragments.iter()?;
        let mut paired_ends = paired_ends.iter()?;
        let mut paired_end = paired_ends.next()?;
        let mut set: Vec<E> = Vec::new();
        let mut next = fragments.next()?;
        while let Some(Fragment(first)) = next {
            let key = first.key();
            set.clear();
            while let Some(Fragment(end)) = next.filter(|Fragment(end)| end.key() == key) {
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

    /// A pair at the same end makes every fragment a duplicate; else all but the best are.
    fn decide_fragment_set<E: End>(&mut self, set: &[E], beside_pair: bool) -> io::Result<()> {
        let keeper = if beside_pair { None } else { Some(best(set.iter().map(|end| end.signature().score))) };
        for (index, item) in set.iter().enumerate() {
            if Some(index) == keeper {
                continue;
            }
            let end = item.signature();
            if let Some(lists) = &mut self.lists {
                lists.duplicate_fragment(end.record)?;
                continue;
            }
            let metrics = &mut self.libraries[usize::from(end.library)];
            if end.flags & end_flags::MATE_MAPPED != 0 {
                metrics.paired_duplicates += 1;
            } else {
                metrics.unpaired_duplicates += 1;
            }
            self.verdicts.mark(end.record);
        }
        Ok(())
    }
}

/// Two sorted sequences of pairs as one.
struct PairMerge<'s, P> {
    pairs: SortedIter<'s, P>,
    superseded: &'s HashSet<[u64; 2]>,
    joined_anew: SortedIter<'s, P>,
    next_pair: Option<P>,
    next_joined: Option<P>,
}

impl<'s, P: Pair> PairMerge<'s, P> {
    fn new(pairs: &'s Sorted<P>, superseded: &'s HashSet<[u64; 2]>, joined_anew: &'s Sorted<P>) -> io::Result<Self> {
        let (pairs, mut joined_anew) = (pairs.iter()?, joined_anew.iter()?);
        let next_joined = joined_anew.next()?;
        let mut merge = Self { pairs, superseded, joined_anew, next_pair: None, next_joined };
        merge.advance_pairs()?;
        Ok(merge)
    }

    fn advance_pairs(&mut self) -> io::Result<()> {
        loop {
            self.next_pair = self.pairs.next()?;
            let skip = !self.superseded.is_empty()
                && self.next_pair.as_ref().is_some_and(|pair| self.superseded.contains(&pair.signature().name));
            if !skip {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> io::Result<Option<P>> {
        let from_joined = match (&self.next_pair, &self.next_joined) {
            (Some(pair), Some(joined)) => joined.order(pair).is_lt(),
            (None, Some(_)) => true,
            _ => false,
        };
        if from_joined {
            let next = self.joined_anew.next()?;
            return Ok(std::mem::replace(&mut self.next_joined, next));
        }
        let pair = self.next_pair;
        if pair.is_some() {
            self.advance_pairs()?;
        }
        Ok(pair)
    }
}
