//! How a sequence comes from a reference: the script that makes it, found by following one place of the reference and looking for
//! another where the two part.
//!
//! Along a place bases are compared 32 at a time. Where one differs, what costs least goes on: a substitution, a short insertion
//! or deletion, or, where nothing near fits, the best of the places that k-mers point at, in the reference or in what was seen of
//! the sequence itself, on either strand. What is no base fits everything. Nothing here has to be right: a script makes its
//! sequence whatever it is, and is at worst longer than need be.

use std::ops::Range;

use super::anchors::{Anchors, K, OwnAnchors, Roller};
use super::bases::{Bases, OtherRun, WORD_BASES, differences, reverse_complement};
use super::place::{Place, Source, Space};
use super::script::{Edit, Step};

/// Longest insertion or deletion that is looked for base by base.
const MAX_SHIFT: usize = 80;
/// Bases that have to be equal behind them.
const SHIFT_EQUAL: usize = 8;
/// Bases by which places are compared.
const HORIZON: usize = 128;
/// About the bits that a substitution takes, its distance from the last one included.
const SUBSTITUTE_BITS: usize = 14;
/// Differences on the horizon beyond which a place is no longer followed, where another is found.
const LOST: usize = HORIZON / 3;
/// Bases by which candidates of k-mers are compared.
const FAR_HORIZON: usize = 512;
/// Bases behind a first candidate in which others are looked for.
const CANDIDATE_BASES: usize = 192;
/// Substitutions within [`DENSE_BASES`] that make it look whether another copy of a repeat fits better.
const DENSE: usize = 4;
const DENSE_BASES: usize = 160;
/// Bases between two such looks.
const LOOK_EVERY: usize = 2000;

/// What is looked for in what.
pub(super) struct Aligner<'a> {
    space: Space<'a>,
    anchors: &'a Anchors,
    /// The sequence. Where no base is, bases are filled in as they are copied.
    target: Bases,
    others: &'a [OtherRun],
    /// Those that are behind.
    others_behind: usize,
    own: OwnAnchors,
    /// Bases done.
    at: usize,
    source: Option<Source>,
    /// Bases copied since the last step.
    copied: usize,
    steps: Vec<Step>,
    /// Bases inserted, whose codes are written.
    inserted: usize,
    /// Ends of the last substitutions.
    recent: [usize; DENSE],
    looked_at: usize,
}

/// A script, and the sequence it makes.
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
    pub(super) target: Bases,
    /// Bases whose codes are written.
    pub(super) inserted: usize,
}

/// A place that fits a sequence from some base on.
#[derive(Clone, Copy)]
struct Candidate {
    at: usize,
    source: Source,
}

impl<'a> Aligner<'a> {
    pub(super) fn new(space: Space<'a>, anchors: &'a Anchors, target: Bases, others: &'a [OtherRun]) -> Self {
        let own = OwnAnchors::new(target.count());
        Self {
            space,
            anchors,
            target,
            others,
            others_behind: 0,
            own,
            at: 0,
            source: None,
            copied: 0,
            steps: Vec::new(),
            inserted: 0,
            recent: [0; DENSE],
            looked_at: 0,
        }
    }

    /// The script.
    pub(super) fn run(mut self) -> Script {
        while self.at < self.target.count() {
            match self.source {
                Some(source) => self.follow(source),
                None => self.search(),
            }
        }
        Script { steps: self.steps, target: self.target, inserted: self.inserted }
    }

    fn end(&self) -> usize {
        self.target.count()
    }

    /// The next 32 bases of a source.
    fn ahead(&self, source: Source) -> u64 {
        let bases = if source.is_own { &self.target } else { self.space.bases };
        match source.place.reverse {
            true => reverse_complement(bases.window_before(source.local())),
            false => bases.window(source.local()),
        }
    }

    /// The 32 bases before a source, the nearest uppermost.
    fn behind(&self, source: Source) -> u64 {
        let bases = if source.is_own { &self.target } else { self.space.bases };
        match source.place.reverse {
            true => reverse_complement(bases.window(source.local())),
            false => bases.window_before(source.local()),
        }
    }

    /// How far the sequence and a source can be compared.
    fn room(&self, at: usize, source: Source) -> usize {
        source.room().min(self.end() - at)
    }

    /// Bases from there on that are equal, at most `limit`.
    fn equal(&self, at: usize, source: Source, limit: usize) -> usize {
        let limit = limit.min(self.room(at, source));
        let mut equal = 0;
        while equal < limit {
            let different = differences(self.target.window(at + equal), self.ahead(source.moved(equal)));
            if different != 0 {
                return (equal + different.trailing_zeros() as usize / 2).min(limit);
            }
            equal += WORD_BASES;
        }
        limit
    }

    /// Bases that differ within a horizon; those beyond the end of either count half.
    fn differing(&self, at: usize, source: Source, horizon: usize, enough: usize) -> usize {
        let room = self.room(at, source).min(horizon);
        let missing = horizon.min(self.end() - at) - room;
        let mut differing = missing / 2;
        let mut done = 0;
        while done < room && differing < enough {
            let different = differences(self.target.window(at + done), self.ahead(source.moved(done)));
            let counted = room - done;
            let different = if counted < WORD_BASES { different & ((1 << (2 * counted)) - 1) } else { different };
            differing += different.count_ones() as usize;
            done += WORD_BASES;
        }
        differing
    }

    fn follow(&mut self, source: Source) {
        let equal = self.equal(self.at, source, usize::MAX);
        self.at += equal;
        self.copied += equal;
        let source = source.moved(equal);
        self.source = Some(source);
        if self.at == self.end() {
            return;
        }
        match self.other_here() {
            Some(run) if source.room() > 0 => self.copy_unknown(source, run),
            _ => self.part(source),
        }
    }

    /// The run of others at the next base.
    fn other_here(&mut self) -> Option<Range<usize>> {
        let others = &self.others[self.others_behind..];
        self.others_behind += others.iter().take_while(|run| run.end <= self.at).count();
        let run = self.others.get(self.others_behind)?;
        (run.start <= self.at).then_some(run.start..run.end)
    }

    /// Whatever a source has there stands for what is no base.
    fn copy_unknown(&mut self, source: Source, run: Range<usize>) {
        let bases = (run.end - self.at).min(source.room());
        for done in 0..bases {
            let code = self.ahead(source.moved(done)) as u8 & 3;
            self.target.set(self.at + done, code);
        }
        self.at += bases;
        self.copied += bases;
        self.source = Some(source.moved(bases));
    }

    /// Goes on where the next base is another than that of the source.
    fn part(&mut self, source: Source) {
        if source.room() > 1 && self.at + 1 < self.end() {
            let behind = source.moved(1);
            let equal = self.equal(self.at + 1, behind, WORD_BASES - 1);
            if equal == self.room(self.at + 1, behind).min(WORD_BASES - 1) && !self.is_dense() {
                return self.substitute(source);
            }
        }
        let (shift, differing) = self.best_shift(source);
        if differing > LOST || self.is_dense() {
            self.looked_at = self.at;
            let found = self.candidate(self.at..(self.at + FAR_HORIZON).min(self.end()), Some(source));
            let found = found.filter(|found| self.fits_better(*found, source, shift));
            if found.is_some() || (differing > LOST && shift.is_none()) {
                return self.go_on(source, found);
            }
        }
        match shift {
            Some(shift) if shift > 0 => self.insert(shift as usize),
            Some(shift) => self.delete(source, shift.unsigned_abs()),
            None if source.room() > 0 => self.substitute(source),
            None => self.go_on(source, None),
        }
    }

    /// Whether there were so many substitutions of late that another copy may fit better, and nobody looked.
    fn is_dense(&self) -> bool {
        self.recent[0] > 0 && self.at - self.recent[0] < DENSE_BASES && self.at - self.looked_at > LOOK_EVERY
    }

    /// The insertion (positive) or deletion (negative) that costs least, `None` where a substitution does; and the bases that
    /// differ behind it.
    fn best_shift(&self, source: Source) -> (Option<isize>, usize) {
        let mut best = (None, HORIZON);
        let mut least = usize::MAX;
        if source.room() > 1 && self.at + 1 < self.end() {
            let differing = self.differing(self.at + 1, source.moved(1), HORIZON, HORIZON);
            (best, least) = ((None, differing), (differing + 1) * SUBSTITUTE_BITS);
        }
        for size in 1..=MAX_SHIFT as isize {
            for shift in [size, -size] {
                let (at, source) = match self.shifted(source, shift) {
                    Some((at, source)) if self.begins_equal(at, source) => (at, source),
                    _ => continue,
                };
                let bits = SUBSTITUTE_BITS + if shift > 0 { 4 + 2 * size as usize } else { 6 };
                let Some(enough) = least.checked_sub(bits) else { continue };
                let enough = enough / SUBSTITUTE_BITS;
                let differing = self.differing(at, source, HORIZON, enough);
                let cost = bits + differing * SUBSTITUTE_BITS;
                if cost < least {
                    (best, least) = ((Some(shift), differing), cost);
                }
            }
        }
        best
    }

    /// Base and source behind an insertion or deletion.
    fn shifted(&self, source: Source, shift: isize) -> Option<(usize, Source)> {
        let bases = shift.unsigned_abs();
        if shift > 0 {
            return (self.at + bases < self.end() && source.room() > 0).then(|| (self.at + bases, source));
        }
        if bases >= source.room() {
            return None;
        }
        let source = source.moved(bases);
        // What is written later cannot be copied.
        (!source.is_own || source.local() < self.at).then_some((self.at, source))
    }

    /// Whether the next few bases are equal.
    fn begins_equal(&self, at: usize, source: Source) -> bool {
        let room = self.room(at, source);
        let first = differences(self.target.window(at), self.ahead(source)).trailing_zeros() as usize / 2;
        room > 0 && first >= room.min(SHIFT_EQUAL)
    }

    /// Whether a candidate is worth leaving a source for, after what would go on there.
    fn fits_better(&self, found: Candidate, source: Source, shift: Option<isize>) -> bool {
        let stay = match shift {
            Some(shift) => self.shifted(source, shift),
            None => (source.room() > 1 && self.at + 1 < self.end()).then(|| (self.at + 1, source.moved(1))),
        };
        let Some((at, stay)) = stay else { return true };
        let staying = self.differing(at, stay, FAR_HORIZON, FAR_HORIZON);
        let leaving = self.differing(found.at, found.source, FAR_HORIZON, FAR_HORIZON);
        leaving + 6 + (found.at - self.at) / 8 < staying
    }

    /// Nothing to follow: looks for anything from here to the end.
    fn search(&mut self) {
        match self.candidate(self.at..self.end(), None) {
            Some(found) => self.leave_for(None, found),
            None => self.insert(self.end() - self.at),
        }
    }

    /// Leaves a source for a candidate, or for whatever is found next.
    fn go_on(&mut self, source: Source, found: Option<Candidate>) {
        match found.or_else(|| self.candidate(self.at..self.end(), Some(source))) {
            Some(found) => self.leave_for(Some(source), found),
            None => self.insert(self.end() - self.at),
        }
    }

    fn leave_for(&mut self, source: Option<Source>, found: Candidate) {
        let Candidate { at, source: arrival } = self.drawn_back(found);
        if at > self.at {
            self.insert(at - self.at);
        }
        let onward = source.filter(|source| {
            let (from, to) = (source.place, arrival.place);
            let ahead = match from.reverse {
                true => from.position.checked_sub(to.position),
                false => to.position.checked_sub(from.position),
            };
            from.reverse == to.reverse && ahead.is_some_and(|ahead| ahead < source.room())
        });
        match onward {
            Some(source) => {
                let deleted = source.place.position.abs_diff(arrival.place.position);
                if deleted > 0 {
                    self.push(Edit::Delete(deleted as u64));
                }
            }
            None => self.push(Edit::Jump(arrival.place)),
        }
        self.source = Some(arrival);
        self.recent = [0; DENSE];
    }

    /// The same place as early as it fits, single differences passed over.
    fn drawn_back(&self, found: Candidate) -> Candidate {
        let Candidate { mut at, mut source } = found;
        loop {
            let limit = (at - self.at).min(source.room_behind());
            let different = differences(self.target.window_before(at), self.behind(source));
            let equal = (different.leading_zeros() as usize / 2).min(limit);
            (at, source) = (at - equal, source.moved_back(equal));
            if equal == WORD_BASES {
                continue;
            }
            if equal == limit {
                break;
            }
            // One base differs; those behind it have to be equal for it to be a substitution.
            let limit = limit - equal;
            let behind = (differences(self.target.window_before(at - 1), self.behind(source.moved_back(1)))
                .leading_zeros() as usize
                / 2)
            .min(limit - 1);
            if behind < 12 {
                break;
            }
            (at, source) = (at - 1 - behind, source.moved_back(1 + behind));
        }
        // A copy of itself needs something that is written.
        match source.is_own && source.local() > at {
            true => found,
            false => Candidate { at, source },
        }
    }

    /// The best of the first places that k-mers in a stretch point at.
    fn candidate(&mut self, stretch: Range<usize>, from: Option<Source>) -> Option<Candidate> {
        let mut roller = Roller::default();
        let mut best: Option<(Candidate, usize)> = None;
        let mut end = stretch.end;
        let mut at = stretch.start;
        let mut run = self.others.partition_point(|run| run.end <= at);
        while at < end {
            if let Some(other) = self.others.get(run).filter(|other| other.start <= at) {
                roller.reset();
                at = other.end;
                run += 1;
                continue;
            }
            at += 1;
            let Some(hash) = roller.push(self.target.get(at - 1)) else { continue };
            let start = at - K;
            for found in self.places_of(hash, start) {
                let score = self.score(found, best.map_or(start, |(best, _)| best.at), from);
                if best.is_none_or(|(_, most)| score > most) {
                    best = Some((found, score));
                }
                end = end.min(start + CANDIDATE_BASES);
            }
            if best.is_some_and(|(_, score)| score >= 2 * FAR_HORIZON) {
                break;
            }
        }
        best.map(|(found, _)| found)
    }

    /// Places where the k-mer that starts there really is.
    fn places_of(&mut self, hash: u64, start: usize) -> impl Iterator<Item = Candidate> + use<> {
        let mut places = [None; 8];
        let mut count = 0;
        let word = self.target.window(start) & ((1 << (2 * K)) - 1);
        let reverse = reverse_complement(word << (64 - 2 * K)) & ((1 << (2 * K)) - 1);
        let mut take = |bases: &Bases, local: usize, to_position: usize, is_own: bool| {
            if local + K > bases.count() || count == places.len() {
                return;
            }
            let known = bases.window(local) & ((1 << (2 * K)) - 1);
            let position = local + to_position;
            let place = match (known == word, known == reverse) {
                (true, _) => Place { position, reverse: false },
                (_, true) => Place { position: position + K, reverse: true },
                _ => return,
            };
            let written = if is_own { start } else { 0 };
            let source = Source::at(place, &self.space, written);
            // The whole k-mer is in one sequence.
            if let Some(source) = source.filter(|source| source.room() >= K) {
                places[count] = Some(Candidate { at: start, source });
                count += 1;
            }
        };
        self.anchors.candidates(hash, |local| take(self.space.bases, local, 0, false));
        let known = self.own.get(hash).filter(|own| own + K <= start);
        if let Some(own) = known {
            take(&self.target, own, self.space.own, true);
        }
        let has_own = places.iter().flatten().any(|found| found.source.is_own);
        if !has_own {
            self.own.set(hash, start);
        }
        places.into_iter().flatten()
    }

    /// How good a candidate is, the more the better; from `2 * FAR_HORIZON` on good enough.
    fn score(&self, found: Candidate, first: usize, from: Option<Source>) -> usize {
        let differing = self.differing(found.at, found.source, FAR_HORIZON, FAR_HORIZON);
        let late = (found.at.saturating_sub(first)) / 4;
        // Of equals, what lies ahead in the same direction comes first.
        let near = from.is_some_and(|from| {
            from.place.reverse == found.source.place.reverse
                && from.place.position.abs_diff(found.source.place.position) < 1 << 20
        });
        let good = (2 * (FAR_HORIZON - differing)).saturating_sub(late);
        good + usize::from(near)
    }

    fn substitute(&mut self, source: Source) {
        let change = (self.target.window(self.at) ^ self.ahead(source)) as u8 & 3;
        self.push(Edit::Substitute(change));
        self.at += 1;
        self.source = Some(source.moved(1));
        self.recent.rotate_left(1);
        self.recent[DENSE - 1] = self.at;
    }

    fn insert(&mut self, bases: usize) {
        self.push(Edit::Insert(bases as u64));
        let stretch = self.at..self.at + bases;
        let behind = self.others.partition_point(|run| run.end <= stretch.start);
        let unknown = self.others[behind..].iter().take_while(|run| run.start < stretch.end);
        let unknown: usize = unknown.map(|run| run.end.min(stretch.end) - run.start.max(stretch.start)).sum();
        self.at += bases;
        self.inserted += bases - unknown;
    }

    fn delete(&mut self, source: Source, bases: usize) {
        self.push(Edit::Delete(bases as u64));
        self.source = Some(source.moved(bases));
    }

    fn push(&mut self, edit: Edit) {
        self.steps.push(Step { copied: self.copied as u64, edit });
        self.copied = 0;
    }
}
