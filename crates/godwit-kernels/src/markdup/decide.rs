//! Deciding duplicate sets from sorted signatures.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io;

use godwit_model::{EndSignature, PairSignature, RecordId, end_flags};

use super::metrics::{LibraryMetrics, SetSizes};
use super::optical::count_optical_duplicates;
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
            .then_with(|| self.file_order1().cmp(&other.file_order1()))
            .then_with(|| self.file_order2().cmp(&other.file_order2()))
    }
}

/// A true fragment: a mapped read without a mapped mate, in Picard's order of fragments.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct Fragment(pub(super) EndSignature);

impl Fragment {
    /// Where fragments and ends of pairs meet: library, contig, 5' position and strand.
    fn end_key(&self) -> u128 {
        end_key(self.0.library, self.0.contig, self.0.five_prime, self.0.is_reverse())
    }
}

impl Sortable for Fragment {
    fn order(&self, other: &Self) -> Ordering {
        (self.end_key(), self.0.location, self.0.file_order()).cmp(&(
            other.end_key(),
            other.0.location,
            other.0.file_order(),
        ))
    }
}

/// A read that waits for its mate, grouped by name.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct Waiting(pub(super) EndSignature);

impl Sortable for Waiting {
    fn order(&self, other: &Self) -> Ordering {
        (self.0.name, self.0.file_order()).cmp(&(other.0.name, other.0.file_order()))
    }
}

/// One end as an integer that sorts by library, contig, 5' position and strand.
pub(super) fn end_key(library: u16, contig: i32, five_prime: i32, reverse: bool) -> u128 {
    // Flipping the sign bit makes negative 5' positions (clips before the contig's start) sort first.
    let position = (five_prime as u32) ^ 0x8000_0000;
    u128::from(library) << 65 | u128::from(contig as u32) << 33 | u128::from(position) << 1 | u128::from(reverse)
}

/// Whether two pairs are duplicates of one another.
fn same_set(a: &PairSignature, b: &PairSignature) -> bool {
    (a.five_prime1, a.five_prime2, a.contig1, a.contig2, a.library)
        == (b.five_prime1, b.five_prime2, b.contig1, b.contig2, b.library)
        && a.orientation() == b.orientation()
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
}

impl Decider<'_> {
    /// Decides all pairs; those whose name is in `superseded` are left out (they were joined anew).
    pub(super) fn decide_pairs(
        &mut self,
        pairs: &Sorted<PairSignature>,
        superseded: &HashSet<[u64; 2]>,
        joined_anew: &Sorted<PairSignature>,
    ) -> io::Result<()> {
        let mut merged = PairMerge::new(pairs, superseded, joined_anew)?;
        let mut set: Vec<PairSignature> = Vec::new();
        while let Some(pair) = merged.next()? {
            if set.first().is_some_and(|first| !same_set(first, &pair)) {
                self.decide_pair_set(&set);
                set.clear();
            }
            set.push(pair);
        }
        self.decide_pair_set(&set);
        Ok(())
    }

    fn decide_pair_set(&mut self, set: &[PairSignature]) {
        if set.len() < 2 {
            if set.len() == 1 {
                self.set_sizes.count(1, 0);
            }
            return;
        }
        let keeper = best(set.iter().map(PairSignature::score));
        let optical = count_optical_duplicates(set, keeper, self.optical_distance);
        self.set_sizes.count(set.len() as u64, optical);
        self.libraries[usize::from(set[0].library)].optical_pairs += optical;
        for (index, pair) in set.iter().enumerate() {
            if index != keeper {
                self.mark_mate(pair.record1, pair.library);
                self.mark_mate(pair.record2, pair.library);
            }
        }
    }

    fn mark_mate(&mut self, record: RecordId, pair_library: u16) {
        let foreign = if self.foreign_libraries.is_empty() { None } else { self.foreign_libraries.get(&record) };
        self.libraries[usize::from(*foreign.unwrap_or(&pair_library))].paired_duplicates += 1;
        self.verdicts.mark(record);
    }

    /// Decides all fragments; `paired_ends` are the [`end_key`]s of reads with a mapped mate.
    pub(super) fn decide_fragments(
        &mut self,
        fragments: &Sorted<Fragment>,
        paired_ends: &Sorted<u128>,
    ) -> io::Result<()> {
        let mut fragments = fragments.iter()?;
        let mut paired_ends = paired_ends.iter()?;
        let mut paired_end = paired_ends.next()?;
        let mut set: Vec<Fragment> = Vec::new();
        let mut next = fragments.next()?;
        while let Some(first) = next {
            let key = first.end_key();
            set.clear();
            while let Some(fragment) = next.filter(|fragment| fragment.end_key() == key) {
                set.push(fragment);
                next = fragments.next()?;
            }
            while paired_end.is_some_and(|end| end < key) {
                paired_end = paired_ends.next()?;
            }
            self.decide_fragment_set(&set, paired_end == Some(key));
        }
        Ok(())
    }

    /// A pair at the same end makes every fragment a duplicate; else all but the best are.
    fn decide_fragment_set(&mut self, set: &[Fragment], beside_pair: bool) {
        let keeper = if beside_pair { None } else { Some(best(set.iter().map(|fragment| fragment.0.score))) };
        for (index, Fragment(end)) in set.iter().enumerate() {
            if Some(index) == keeper {
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
    }
}

/// Two sorted sequences of pairs as one.
struct PairMerge<'s> {
    pairs: SortedIter<'s, PairSignature>,
    superseded: &'s HashSet<[u64; 2]>,
    joined_anew: SortedIter<'s, PairSignature>,
    next_pair: Option<PairSignature>,
    next_joined: Option<PairSignature>,
}

impl<'s> PairMerge<'s> {
    fn new(
        pairs: &'s Sorted<PairSignature>,
        superseded: &'s HashSet<[u64; 2]>,
        joined_anew: &'s Sorted<PairSignature>,
    ) -> io::Result<Self> {
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
                && self.next_pair.as_ref().is_some_and(|pair| self.superseded.contains(&pair.name));
            if !skip {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> io::Result<Option<PairSignature>> {
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
