//! The search itself: takes the least path, branches on variants, steps along the reference, and keeps the best path.

use std::sync::atomic::{AtomicBool, Ordering};

use super::haplotype_states::HaplotypeStates;
use super::history::{History, NodeId};
use super::path::{HalfPath, Path, PathProgress};
use super::path_set::PathSet;
use super::side::SearchSide;
use super::{CALLS, TRUTH};
use crate::alleles::{AlleleTable, Template};
use crate::comparison_options::SearchRules;

/// Number of haplotype states above which unused states are removed at positions with only one path.
const COLLECTED_STATES: usize = 1 << 16;
/// Number of haplotype states above which unused states are removed at any position.
const MAX_STATES: usize = 1 << 22;
/// Number of steps between two checks of the cancel flag.
const CANCEL_CHECK_STEPS: u64 = 1 << 16;

/// The inputs of a search on one segment of a contig.
#[derive(Debug)]
pub(crate) struct SearchInput<'i> {
    pub(crate) template: &'i Template,
    pub(crate) alleles: &'i AlleleTable,
    /// Both sides; the index is [`CALLS`] or [`TRUTH`].
    pub(crate) sides: [&'i SearchSide; 2],
    pub(crate) rules: &'i SearchRules,
    /// The path at the end of the previous segment.
    pub(crate) progress: PathProgress,
    /// 0-based end of the segment, after which all further variants start; `None` for the end of the contig.
    pub(crate) end: Option<i32>,
    pub(crate) cancelled: &'i AtomicBool,
}

/// A variant that the best path includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IncludedVariant {
    /// Index of the variant in its set.
    pub(crate) variant: u32,
    /// True if the alleles are on the haplotypes in the order of the record.
    pub(crate) is_original: bool,
}

/// One side of the best path: indexes of variants in the order of the search.
#[derive(Debug, Default)]
pub(crate) struct SideOfPath {
    pub(crate) included: Vec<IncludedVariant>,
    pub(crate) excluded: Vec<u32>,
}

/// An interval that was too complex: its variants are neither included nor excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooComplex {
    /// 1-based first and last position, as vcfeval reports them.
    pub(crate) start_1based: i32,
    pub(crate) end_1based: i32,
    pub(crate) paths: usize,
    pub(crate) iterations: u64,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct BestPath {
    pub(crate) sides: [SideOfPath; 2],
    /// Positions at which the path was in sync when it branched; on the last segment, also its end.
    pub(crate) sync_points: Vec<i32>,
    pub(crate) too_complex: Vec<TooComplex>,
    /// The largest number of paths that the search stored at a time.
    pub(crate) most_paths: usize,
    /// The path at the end of the segment.
    pub(crate) progress: PathProgress,
}

/// Why a search has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchError {
    /// The caller cancelled the search.
    Cancelled,
    /// No path reaches the end of the contig.
    NoPath,
    /// At the end of the segment, several paths are in play, or the only one is not in sync. The segment must be longer.
    NotInSync,
}

/// Finds the best path. The orientations of both sides must have the same number of haplotypes, 1 to 4.
///
/// # Errors
/// [`SearchError::Cancelled`] if the flag is set, [`SearchError::NotInSync`] if the segment cannot end where it does.
pub(crate) fn find_best_path(input: &SearchInput, haplotypes: usize) -> Result<BestPath, SearchError> {
    match haplotypes {
        1 => Search::<1>::new(input).run(),
        2 => Search::<2>::new(input).run(),
        3 => Search::<3>::new(input).run(),
        _ => Search::<4>::new(input).run(),
    }
}

struct Search<'i, const H: usize> {
    input: &'i SearchInput<'i>,
    states: HaplotypeStates<'i>,
    history: History,
    paths: PathSet<H>,
    best: Option<Path<H>>,
    /// The path that was in play alone most recently, as it was when it branched.
    alone: Option<Path<H>>,
    /// Position of the path that was in play alone most recently.
    alone_position: i32,
    /// Furthest start of a variant on which a path branched.
    furthest_start: i32,
    /// Steps since only one path was in play.
    iterations: u64,
    /// Largest number of paths since only one path was in play.
    most_paths: usize,
    result: BestPath,
}

impl<'i, const H: usize> Search<'i, H> {
    fn new(input: &'i SearchInput<'i>) -> Self {
        Self {
            input,
            states: HaplotypeStates::new(input.template, input.alleles),
            history: History::new(),
            paths: PathSet::new(),
            best: None,
            alone: None,
            alone_position: 0,
            furthest_start: 0,
            iterations: 0,
            most_paths: 0,
            result: BestPath::default(),
        }
    }

    fn run(mut self) -> Result<BestPath, SearchError> {
        let progress = self.input.progress;
        let start = self.states.start(progress.position);
        self.paths.insert(Path::new(start, &progress), self.input.rules.preference, &self.states);
        let mut steps = 0_u64;
        // If a path sorts before all paths of the set, process it next without inserting it into the set.
        let mut next: Option<Path<H>> = None;
        while let Some(mut head) = next.take().or_else(|| self.paths.pop(&self.states)) {
            steps += 1;
            if steps.is_multiple_of(CANCEL_CHECK_STEPS) && self.input.cancelled.load(Ordering::Relaxed) {
                return Err(SearchError::Cancelled);
            }
            self.collect_garbage(&mut head);
            let is_alone = self.count_paths(&mut head);
            if self.is_at_end(&head) {
                let is_only = is_alone && head.is_in_sync(&self.states) && self.has_passed_all(&head);
                return if is_only { Ok(self.into_result(&head)) } else { Err(SearchError::NotInSync) };
            }
            if self.branch(&mut head, CALLS) || self.branch(&mut head, TRUTH) {
                if is_alone {
                    self.alone = Some(head);
                }
                continue;
            }
            head.step(&mut self.states);
            if head.is_in_sync(&self.states) {
                if self.input.rules.drops_no_ops && head.is_no_op() {
                    continue;
                }
                self.skip_to_next_variant(&mut head);
            }
            if !head.matches(&self.states) {
                continue;
            }
            if head.is_finished() {
                self.finish(head);
            } else if self.paths.is_before_all(&head, &self.states) {
                next = Some(head);
            } else {
                self.paths.insert(head, self.input.rules.preference, &self.states);
            }
        }
        let best = self.best.ok_or(SearchError::NoPath)?;
        Ok(self.into_result(&best))
    }

    /// Counts paths and steps, and applies the limits. Returns whether `head` is the only path in play.
    fn count_paths(&mut self, head: &mut Path<H>) -> bool {
        self.most_paths = self.most_paths.max(self.paths.len() + 1);
        self.iterations += 1;
        let rules = self.input.rules;
        if self.paths.is_empty() {
            let position = head.position(CALLS, &self.states);
            self.result.most_paths = self.result.most_paths.max(self.most_paths);
            (self.most_paths, self.iterations) = (0, 0);
            self.alone_position = position;
            return true;
        }
        if self.paths.len() <= rules.max_paths && self.iterations <= rules.max_iterations {
            return false;
        }
        self.result.too_complex.push(TooComplex {
            start_1based: self.alone_position + 1,
            end_1based: self.furthest_start + 2,
            paths: self.paths.len(),
            iterations: self.iterations,
        });
        self.paths.clear();
        self.iterations = 0;
        if let Some(alone) = self.alone {
            *head = alone;
        }
        self.skip_variants(head, CALLS);
        self.skip_variants(head, TRUTH);
        true
    }

    /// Returns whether a side of a path has passed its variants and reached the end of the segment, where a variant of
    /// the next segment may be due.
    fn is_at_end(&self, head: &Path<H>) -> bool {
        let Some(end) = self.input.end else { return false };
        let is_due = |side: usize| self.has_passed(head, side) && head.is_variant_due(side, end, &self.states);
        is_due(CALLS) || is_due(TRUTH)
    }

    fn has_passed(&self, head: &Path<H>, side: usize) -> bool {
        (head.sides[side].variant + 1) as usize == self.input.sides[side].starts.len()
    }

    fn has_passed_all(&self, head: &Path<H>) -> bool {
        self.has_passed(head, CALLS) && self.has_passed(head, TRUTH)
    }

    /// Passes over the variants of a side that start at or before the furthest start.
    fn skip_variants(&mut self, head: &mut Path<H>, side: usize) {
        let position = self.furthest_start + 1;
        let passed = self.input.sides[side].starts.partition_point(|start| *start < position);
        head.sides[side].variant = passed as i32 - 1;
        let last = self.input.template.base_count() - 1;
        head.move_forward(side, position.min(last), &mut self.states);
    }

    /// Replaces a path by its branches on the next variant of a side, if that variant is due.
    fn branch(&mut self, head: &mut Path<H>, side: usize) -> bool {
        let variants = self.input.sides[side];
        let index = head.sides[side].variant + 1;
        let Some(start) = variants.starts.get(index as usize).copied() else { return false };
        if !head.is_variant_due(side, start, &self.states) {
            return false;
        }
        self.furthest_start = self.furthest_start.max(start);
        let end = variants.ends[index as usize];
        let mut child = *head;
        if head.is_in_sync(&self.states) {
            let position = self.states.position(head.states[CALLS][0]);
            head.sides.iter_mut().for_each(|half| half.included_since_sync = 0);
            child = *head;
            if head.last_sync_point != Some(position) {
                child.sync_points = self.history.push(head.sync_points, position.cast_unsigned());
                child.last_sync_point = Some(position);
            }
        }
        child.sides[side].pass_variant(index, end);
        let preference = self.input.rules.preference;
        let mut exclude = child;
        exclude.sides[side].excluded = self.history.push(child.sides[side].excluded, index as u32);
        self.paths.insert(exclude, preference, &self.states);
        for orientation in variants.orientations.of(index as usize) {
            if !head.sides[side].accepts(start, &orientation, self.input.alleles) {
                continue;
            }
            let mut include = child;
            include.include(side, end, &orientation, self.input.alleles, &mut self.states);
            let value = (index as u32) << 1 | u32::from(orientation.is_original);
            include.sides[side].included = self.history.push(child.sides[side].included, value);
            self.paths.insert(include, preference, &self.states);
        }
        true
    }

    /// Moves a path that is in sync to one base before the next variant of either side, or the end of the segment.
    fn skip_to_next_variant(&mut self, head: &mut Path<H>) {
        let last = self.input.template.base_count() - 1;
        let end = self.input.end.unwrap_or(last);
        let next_start = |side: usize| {
            let next = (head.sides[side].variant + 1) as usize;
            self.input.sides[side].starts.get(next).copied().unwrap_or(end)
        };
        let position = next_start(CALLS).min(next_start(TRUTH)).min(last) - 1;
        if position > self.states.position(head.states[CALLS][0]) {
            head.move_forward(CALLS, position, &mut self.states);
            head.move_forward(TRUTH, position, &mut self.states);
        }
    }

    fn finish(&mut self, mut head: Path<H>) {
        if self.input.rules.drops_no_ops && head.is_no_op() {
            return;
        }
        let position = head.position(CALLS, &self.states);
        head.sync_points = self.history.push(head.sync_points, position.cast_unsigned());
        head.last_sync_point = Some(position);
        let is_best = |best: &Path<H>| !best.is_better_than(&head, self.input.rules.preference);
        if self.best.as_ref().is_none_or(is_best) {
            self.best = Some(head);
        }
    }

    /// Removes the states and the nodes of lists that no path needs.
    fn collect_garbage(&mut self, head: &mut Path<H>) {
        let is_alone = self.paths.is_empty();
        if self.states.len() > MAX_STATES || (is_alone && self.states.len() > COLLECTED_STATES) {
            let (paths, alone) = (&mut self.paths, &mut self.alone);
            self.states.retain(&mut |visit| {
                let mut visit_path =
                    |path: &mut Path<H>| path.states.as_flattened_mut().iter_mut().for_each(&mut *visit);
                visit_path(head);
                alone.iter_mut().for_each(&mut visit_path);
                paths.for_each_mut(&mut visit_path);
            });
            self.paths.index_again();
        }
        if self.history.is_collection_due() {
            let (paths, alone, best) = (&mut self.paths, &mut self.alone, &mut self.best);
            self.history.collect(&mut |visit| {
                let mut visit_path = |path: &mut Path<H>| visit_lists(path, visit);
                visit_path(head);
                alone.iter_mut().chain(best.iter_mut()).for_each(&mut visit_path);
                paths.for_each_mut(&mut visit_path);
            });
        }
    }

    fn into_result(self, best: &Path<H>) -> BestPath {
        let Self { history, mut result, input, states, .. } = self;
        result.progress = best.progress(&states);
        let side = |half: &HalfPath<H>, side: &SearchSide| SideOfPath {
            included: history
                .values(half.included)
                .into_iter()
                .map(|value| IncludedVariant {
                    variant: side.variants[(value >> 1) as usize],
                    is_original: value & 1 == 1,
                })
                .collect(),
            excluded: history.values(half.excluded).into_iter().map(|index| side.variants[index as usize]).collect(),
        };
        result.sides = [CALLS, TRUTH].map(|index| side(&best.sides[index], input.sides[index]));
        result.sync_points = history.values(best.sync_points).into_iter().map(u32::cast_signed).collect();
        result
    }
}

fn visit_lists<const H: usize>(path: &mut Path<H>, visit: &mut dyn FnMut(&mut NodeId)) {
    visit(&mut path.sync_points);
    for half in &mut path.sides {
        visit(&mut half.included);
        visit(&mut half.excluded);
    }
}
