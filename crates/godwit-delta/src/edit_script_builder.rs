//! Construction of an edit script: the builder compares the target sequence with the reference from one position on,
//! and searches for another position if the two sequences diverge.
//!
//! Bases are compared 32 at a time. If a base differs, the builder chooses the cheapest edit: a substitution, a short
//! insertion or deletion, or, if nothing nearby matches, a jump to the best position with the same k-mer. Such
//! positions are in the reference or in the earlier bases of the target itself, on either strand. Letters other than
//! ACGT match every base. Any script makes the correct sequence, so a wrong choice only costs bytes.

use std::ops::Range;

use super::bases::{Bases, NonAcgtInterval, WORD_BASES, difference_bits, reverse_complement};
use super::copy_source::{CopySource, CopySpace, StrandedPosition};
use super::edit_script::{Edit, EditStep};
use super::kmer_index::{KMER_BASES, KmerIndex, RollingKmer, SelfKmerIndex};

/// Longest insertion or deletion that the builder finds by trying each length.
const MAX_INDEL_BASES: usize = 80;
/// Number of equal bases that must follow an insertion or deletion.
const MIN_MATCH_BASES_AFTER_INDEL: usize = 8;
/// Number of bases over which edits are compared.
const COMPARED_BASES: usize = 128;
/// Approximate cost of a substitution, bits; this includes encoding its distance from the previous edit.
const SUBSTITUTION_COST_BITS: usize = 14;
/// If more than this number of bases differ within [`COMPARED_BASES`], the builder searches for another source.
const MAX_SOURCE_DIFFERENCES: usize = COMPARED_BASES / 3;
/// Number of bases over which candidates for a jump are compared.
const CANDIDATE_COMPARED_BASES: usize = 512;
/// Number of bases after the first candidate for a jump in which further candidates are searched.
const CANDIDATE_SEARCH_BASES: usize = 192;
/// Number of substitutions within [`DENSE_SUBSTITUTION_BASES`] that start a search for a more similar copy of a repeat.
const DENSE_SUBSTITUTION_COUNT: usize = 4;
const DENSE_SUBSTITUTION_BASES: usize = 160;
/// Smallest distance between two searches for a more similar copy of a repeat, bases.
const REPEAT_CHECK_INTERVAL_BASES: usize = 2000;

/// Builds the edit script of a target sequence.
pub(super) struct EditScriptBuilder<'a> {
    space: CopySpace<'a>,
    kmer_index: &'a KmerIndex,
    /// The target sequence. Letters other than ACGT are replaced by the bases that the script copies over them.
    target: Bases,
    non_acgt: &'a [NonAcgtInterval],
    /// Number of intervals in `non_acgt` that end at or before the current position.
    passed_non_acgt: usize,
    self_index: SelfKmerIndex,
    /// Current position: the number of target bases that the script already produces.
    position: usize,
    source: Option<CopySource>,
    /// Number of bases copied since the last edit.
    copied_bases: usize,
    steps: Vec<EditStep>,
    /// Number of inserted bases that must be encoded; letters other than ACGT do not count.
    inserted_bases: usize,
    /// Target positions after the last four substitutions.
    recent_substitution_ends: [usize; DENSE_SUBSTITUTION_COUNT],
    last_repeat_check: usize,
}

/// An edit script and the target sequence that it makes.
pub(super) struct EditScript {
    pub(super) steps: Vec<EditStep>,
    pub(super) target: Bases,
    /// Number of inserted bases that must be encoded, without letters other than ACGT.
    pub(super) inserted_bases: usize,
}

/// A source whose bases match the target sequence from `position` on.
#[derive(Clone, Copy)]
struct Candidate {
    position: usize,
    source: CopySource,
}

impl<'a> EditScriptBuilder<'a> {
    pub(super) fn new(
        space: CopySpace<'a>,
        kmer_index: &'a KmerIndex,
        target: Bases,
        non_acgt: &'a [NonAcgtInterval],
    ) -> Self {
        let self_index = SelfKmerIndex::new(target.count());
        Self {
            space,
            kmer_index,
            target,
            non_acgt,
            passed_non_acgt: 0,
            self_index,
            position: 0,
            source: None,
            copied_bases: 0,
            steps: Vec::new(),
            inserted_bases: 0,
            recent_substitution_ends: [0; DENSE_SUBSTITUTION_COUNT],
            last_repeat_check: 0,
        }
    }

    /// Builds the edit script.
    pub(super) fn build(mut self) -> EditScript {
        while self.position < self.target.count() {
            match self.source {
                Some(source) => self.copy_from_source(source),
                None => self.search_source(),
            }
        }
        EditScript { steps: self.steps, target: self.target, inserted_bases: self.inserted_bases }
    }

    fn target_end(&self) -> usize {
        self.target.count()
    }

    /// Returns the next 32 bases that a source provides.
    fn next_bases(&self, source: CopySource) -> u64 {
        let bases = if source.is_self { &self.target } else { self.space.bases };
        match source.position.reverse {
            true => reverse_complement(bases.window_before(source.local_position())),
            false => bases.window(source.local_position()),
        }
    }

    /// Returns the 32 bases before a source. The highest bits contain the nearest base.
    fn previous_bases(&self, source: CopySource) -> u64 {
        let bases = if source.is_self { &self.target } else { self.space.bases };
        match source.position.reverse {
            true => reverse_complement(bases.window(source.local_position())),
            false => bases.window_before(source.local_position()),
        }
    }

    /// Returns how many bases can be compared: the smaller of the remaining bases of the target from `at` and of the
    /// source.
    fn comparable_bases(&self, at: usize, source: CopySource) -> usize {
        source.remaining_bases().min(self.target_end() - at)
    }

    /// Returns the number of equal bases of the target from `at` on and the source, at most `limit`.
    fn count_equal_bases(&self, at: usize, source: CopySource, limit: usize) -> usize {
        let limit = limit.min(self.comparable_bases(at, source));
        let mut equal = 0;
        while equal < limit {
            let different = difference_bits(self.target.window(at + equal), self.next_bases(source.advanced_by(equal)));
            if different != 0 {
                return (equal + different.trailing_zeros() as usize / 2).min(limit);
            }
            equal += WORD_BASES;
        }
        limit
    }

    /// Returns the number of differing bases within `horizon` bases; stops counting at `enough`. Target bases beyond
    /// the end of the source count as half a difference each.
    fn count_differences(&self, at: usize, source: CopySource, horizon: usize, enough: usize) -> usize {
        let room = self.comparable_bases(at, source).min(horizon);
        let missing = horizon.min(self.target_end() - at) - room;
        let mut differing = missing / 2;
        let mut done = 0;
        while done < room && differing < enough {
            let different = difference_bits(self.target.window(at + done), self.next_bases(source.advanced_by(done)));
            let counted = room - done;
            let different = if counted < WORD_BASES { different & ((1 << (2 * counted)) - 1) } else { different };
            differing += different.count_ones() as usize;
            done += WORD_BASES;
        }
        differing
    }

    fn copy_from_source(&mut self, source: CopySource) {
        let equal = self.count_equal_bases(self.position, source, usize::MAX);
        self.position += equal;
        self.copied_bases += equal;
        let source = source.advanced_by(equal);
        self.source = Some(source);
        if self.position == self.target_end() {
            return;
        }
        match self.non_acgt_at_position() {
            Some(run) if source.remaining_bases() > 0 => self.copy_over_non_acgt(source, run),
            _ => self.resolve_difference(source),
        }
    }

    /// Returns the interval of letters other than ACGT that contains the current position, if any.
    fn non_acgt_at_position(&mut self) -> Option<Range<usize>> {
        let others = &self.non_acgt[self.passed_non_acgt..];
        self.passed_non_acgt += others.iter().take_while(|run| run.end <= self.position).count();
        let run = self.non_acgt.get(self.passed_non_acgt)?;
        (run.start <= self.position).then_some(run.start..run.end)
    }

    /// Copies the bases of the source over letters other than ACGT; the value of these bases does not matter.
    fn copy_over_non_acgt(&mut self, source: CopySource, run: Range<usize>) {
        let bases = (run.end - self.position).min(source.remaining_bases());
        for done in 0..bases {
            let code = self.next_bases(source.advanced_by(done)) as u8 & 3;
            self.target.set(self.position + done, code);
        }
        self.position += bases;
        self.copied_bases += bases;
        self.source = Some(source.advanced_by(bases));
    }

    /// Chooses an edit at the current position, where the target differs from the source.
    fn resolve_difference(&mut self, source: CopySource) {
        if source.remaining_bases() > 1 && self.position + 1 < self.target_end() {
            let behind = source.advanced_by(1);
            let equal = self.count_equal_bases(self.position + 1, behind, WORD_BASES - 1);
            if equal == self.comparable_bases(self.position + 1, behind).min(WORD_BASES - 1)
                && !self.has_dense_substitutions()
            {
                return self.push_substitution(source);
            }
        }
        let (shift, differing) = self.best_indel(source);
        if differing > MAX_SOURCE_DIFFERENCES || self.has_dense_substitutions() {
            self.last_repeat_check = self.position;
            let found = self.best_candidate(
                self.position..(self.position + CANDIDATE_COMPARED_BASES).min(self.target_end()),
                Some(source),
            );
            let found = found.filter(|found| self.is_better_source(*found, source, shift));
            if found.is_some() || (differing > MAX_SOURCE_DIFFERENCES && shift.is_none()) {
                return self.switch_or_insert_rest(source, found);
            }
        }
        match shift {
            Some(shift) if shift > 0 => self.push_insertion(shift as usize),
            Some(shift) => self.push_deletion(source, shift.unsigned_abs()),
            None if source.remaining_bases() > 0 => self.push_substitution(source),
            None => self.switch_or_insert_rest(source, None),
        }
    }

    /// Reports whether there were so many recent substitutions that another copy of a repeat may match better. Returns
    /// false if such a search was done within the last bases.
    fn has_dense_substitutions(&self) -> bool {
        self.recent_substitution_ends[0] > 0
            && self.position - self.recent_substitution_ends[0] < DENSE_SUBSTITUTION_BASES
            && self.position - self.last_repeat_check > REPEAT_CHECK_INTERVAL_BASES
    }

    /// Returns the cheapest edit and the number of differing bases after it. The edit is the length of an insertion
    /// (positive) or of a deletion (negative), or `None` for a substitution.
    fn best_indel(&self, source: CopySource) -> (Option<isize>, usize) {
        let mut best = (None, COMPARED_BASES);
        let mut least = usize::MAX;
        if source.remaining_bases() > 1 && self.position + 1 < self.target_end() {
            let differing =
                self.count_differences(self.position + 1, source.advanced_by(1), COMPARED_BASES, COMPARED_BASES);
            (best, least) = ((None, differing), (differing + 1) * SUBSTITUTION_COST_BITS);
        }
        for size in 1..=MAX_INDEL_BASES as isize {
            for shift in [size, -size] {
                let (at, source) = match self.after_indel(source, shift) {
                    Some((at, source)) if self.matches_from(at, source) => (at, source),
                    _ => continue,
                };
                let bits = SUBSTITUTION_COST_BITS + if shift > 0 { 4 + 2 * size as usize } else { 6 };
                let Some(enough) = least.checked_sub(bits) else { continue };
                let enough = enough / SUBSTITUTION_COST_BITS;
                let differing = self.count_differences(at, source, COMPARED_BASES, enough);
                let cost = bits + differing * SUBSTITUTION_COST_BITS;
                if cost < least {
                    (best, least) = ((Some(shift), differing), cost);
                }
            }
        }
        best
    }

    /// Returns the target position and the source after an insertion (`shift` > 0) or a deletion (`shift` < 0), if
    /// possible.
    fn after_indel(&self, source: CopySource, shift: isize) -> Option<(usize, CopySource)> {
        let bases = shift.unsigned_abs();
        if shift > 0 {
            return (self.position + bases < self.target_end() && source.remaining_bases() > 0)
                .then(|| (self.position + bases, source));
        }
        if bases >= source.remaining_bases() {
            return None;
        }
        let source = source.advanced_by(bases);
        // Bases of the target itself can only be copied after they are written.
        (!source.is_self || source.local_position() < self.position).then_some((self.position, source))
    }

    /// Reports whether the next few bases of target and source are equal.
    fn matches_from(&self, at: usize, source: CopySource) -> bool {
        let room = self.comparable_bases(at, source);
        let first = difference_bits(self.target.window(at), self.next_bases(source)).trailing_zeros() as usize / 2;
        room > 0 && first >= room.min(MIN_MATCH_BASES_AFTER_INDEL)
    }

    /// Reports whether a jump to a candidate is better than staying with the source after the edit `shift`.
    fn is_better_source(&self, found: Candidate, source: CopySource, shift: Option<isize>) -> bool {
        let stay = match shift {
            Some(shift) => self.after_indel(source, shift),
            None => (source.remaining_bases() > 1 && self.position + 1 < self.target_end())
                .then(|| (self.position + 1, source.advanced_by(1))),
        };
        let Some((at, stay)) = stay else { return true };
        let staying = self.count_differences(at, stay, CANDIDATE_COMPARED_BASES, CANDIDATE_COMPARED_BASES);
        let leaving =
            self.count_differences(found.position, found.source, CANDIDATE_COMPARED_BASES, CANDIDATE_COMPARED_BASES);
        leaving + 6 + (found.position - self.position) / 8 < staying
    }

    /// Searches for a source between the current position and the end of the target; inserts all remaining bases if
    /// there is none.
    fn search_source(&mut self) {
        match self.best_candidate(self.position..self.target_end(), None) {
            Some(found) => self.switch_source(None, found),
            None => self.push_insertion(self.target_end() - self.position),
        }
    }

    /// Jumps to the given candidate or, without one, to the best candidate before the end of the target. If there is
    /// none, inserts all remaining bases.
    fn switch_or_insert_rest(&mut self, source: CopySource, found: Option<Candidate>) {
        match found.or_else(|| self.best_candidate(self.position..self.target_end(), Some(source))) {
            Some(found) => self.switch_source(Some(source), found),
            None => self.push_insertion(self.target_end() - self.position),
        }
    }

    fn switch_source(&mut self, source: Option<CopySource>, found: Candidate) {
        let Candidate { position, source: arrival } = self.extend_backwards(found);
        if position > self.position {
            self.push_insertion(position - self.position);
        }
        let onward = source.filter(|source| {
            let (from, to) = (source.position, arrival.position);
            let ahead = match from.reverse {
                true => from.position.checked_sub(to.position),
                false => to.position.checked_sub(from.position),
            };
            from.reverse == to.reverse && ahead.is_some_and(|ahead| ahead < source.remaining_bases())
        });
        match onward {
            Some(source) => {
                let deleted = source.position.position.abs_diff(arrival.position.position);
                if deleted > 0 {
                    self.push_edit(Edit::Delete(deleted as u64));
                }
            }
            None => self.push_edit(Edit::Jump(arrival.position)),
        }
        self.source = Some(arrival);
        self.recent_substitution_ends = [0; DENSE_SUBSTITUTION_COUNT];
    }

    /// Extends a candidate to the left over equal bases and single differing bases.
    fn extend_backwards(&self, found: Candidate) -> Candidate {
        let Candidate { mut position, mut source } = found;
        loop {
            let limit = (position - self.position).min(source.preceding_bases());
            let different = difference_bits(self.target.window_before(position), self.previous_bases(source));
            let equal = (different.leading_zeros() as usize / 2).min(limit);
            (position, source) = (position - equal, source.moved_back_by(equal));
            if equal == WORD_BASES {
                continue;
            }
            if equal == limit {
                break;
            }
            // A single differing base becomes a substitution if at least 12 bases before it are equal.
            let limit = limit - equal;
            let behind =
                (difference_bits(self.target.window_before(position - 1), self.previous_bases(source.moved_back_by(1)))
                    .leading_zeros() as usize
                    / 2)
                .min(limit - 1);
            if behind < 12 {
                break;
            }
            (position, source) = (position - 1 - behind, source.moved_back_by(1 + behind));
        }
        // The target itself can only be copied from bases that are already written.
        match source.is_self && source.local_position() > position {
            true => found,
            false => Candidate { position, source },
        }
    }

    /// Searches the target range for k-mers that occur elsewhere; returns the best of the first candidates. `from` is
    /// the source before the jump.
    fn best_candidate(&mut self, range: Range<usize>, from: Option<CopySource>) -> Option<Candidate> {
        let mut roller = RollingKmer::default();
        let mut best: Option<(Candidate, usize)> = None;
        let mut end = range.end;
        let mut at = range.start;
        let mut run = self.non_acgt.partition_point(|run| run.end <= at);
        while at < end {
            if let Some(other) = self.non_acgt.get(run).filter(|other| other.start <= at) {
                roller.reset();
                at = other.end;
                run += 1;
                continue;
            }
            at += 1;
            let Some(hash) = roller.push(self.target.get(at - 1)) else { continue };
            let start = at - KMER_BASES;
            for found in self.kmer_candidates(hash, start) {
                let score = self.score_candidate(found, best.map_or(start, |(best, _)| best.position), from);
                if best.is_none_or(|(_, most)| score > most) {
                    best = Some((found, score));
                }
                end = end.min(start + CANDIDATE_SEARCH_BASES);
            }
            if best.is_some_and(|(_, score)| score >= 2 * CANDIDATE_COMPARED_BASES) {
                break;
            }
        }
        best.map(|(found, _)| found)
    }

    /// Returns candidates that contain the k-mer of the target at `start`, in the reference and in the earlier target.
    fn kmer_candidates(&mut self, hash: u64, start: usize) -> impl Iterator<Item = Candidate> + use<> {
        let mut places = [None; 8];
        let mut count = 0;
        let word = self.target.window(start) & ((1 << (2 * KMER_BASES)) - 1);
        let reverse = reverse_complement(word << (64 - 2 * KMER_BASES)) & ((1 << (2 * KMER_BASES)) - 1);
        let mut take = |bases: &Bases, local: usize, to_position: usize, is_own: bool| {
            if local + KMER_BASES > bases.count() || count == places.len() {
                return;
            }
            let known = bases.window(local) & ((1 << (2 * KMER_BASES)) - 1);
            let position = local + to_position;
            let place = match (known == word, known == reverse) {
                (true, _) => StrandedPosition { position, reverse: false },
                (_, true) => StrandedPosition { position: position + KMER_BASES, reverse: true },
                _ => return,
            };
            let written = if is_own { start } else { 0 };
            let source = CopySource::from_position(place, &self.space, written);
            // Accept a source only if the whole k-mer is in one sequence.
            if let Some(source) = source.filter(|source| source.remaining_bases() >= KMER_BASES) {
                places[count] = Some(Candidate { position: start, source });
                count += 1;
            }
        };
        self.kmer_index.for_each_candidate(hash, |local| take(self.space.bases, local, 0, false));
        let known = self.self_index.get(hash).filter(|own| own + KMER_BASES <= start);
        if let Some(own) = known {
            take(&self.target, own, self.space.self_start, true);
        }
        let has_own = places.iter().flatten().any(|found| found.source.is_self);
        if !has_own {
            self.self_index.set(hash, start);
        }
        places.into_iter().flatten()
    }

    /// Returns the score of a candidate. A higher score is better; at `2 * CANDIDATE_COMPARED_BASES` the search stops.
    fn score_candidate(&self, found: Candidate, first: usize, from: Option<CopySource>) -> usize {
        let differing =
            self.count_differences(found.position, found.source, CANDIDATE_COMPARED_BASES, CANDIDATE_COMPARED_BASES);
        let late = (found.position.saturating_sub(first)) / 4;
        // Of equally good candidates, one that is nearby on the same strand is preferred.
        let near = from.is_some_and(|from| {
            from.position.reverse == found.source.position.reverse
                && from.position.position.abs_diff(found.source.position.position) < 1 << 20
        });
        let good = (2 * (CANDIDATE_COMPARED_BASES - differing)).saturating_sub(late);
        good + usize::from(near)
    }

    fn push_substitution(&mut self, source: CopySource) {
        let change = (self.target.window(self.position) ^ self.next_bases(source)) as u8 & 3;
        self.push_edit(Edit::Substitute(change));
        self.position += 1;
        self.source = Some(source.advanced_by(1));
        self.recent_substitution_ends.rotate_left(1);
        self.recent_substitution_ends[DENSE_SUBSTITUTION_COUNT - 1] = self.position;
    }

    fn push_insertion(&mut self, bases: usize) {
        self.push_edit(Edit::Insert(bases as u64));
        let range = self.position..self.position + bases;
        let behind = self.non_acgt.partition_point(|run| run.end <= range.start);
        let unknown = self.non_acgt[behind..].iter().take_while(|run| run.start < range.end);
        let unknown: usize = unknown.map(|run| run.end.min(range.end) - run.start.max(range.start)).sum();
        self.position += bases;
        self.inserted_bases += bases - unknown;
    }

    fn push_deletion(&mut self, source: CopySource, bases: usize) {
        self.push_edit(Edit::Delete(bases as u64));
        self.source = Some(source.advanced_by(bases));
    }

    fn push_edit(&mut self, edit: Edit) {
        self.steps.push(EditStep { copied_bases: self.copied_bases as u64, edit });
        self.copied_bases = 0;
    }
}
