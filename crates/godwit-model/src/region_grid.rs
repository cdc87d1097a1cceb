//! The fixed grid of calling regions: parts of the genome in which variants are called independently.
//!
//! The input is a list of contigs with their targets and assembly gaps. The output is a list of calling regions in
//! genome order that together own every target position exactly once. Cuts depend only on this input, not on reads,
//! threads, workers or time.
//!
//! A variant record belongs to the region in which it starts. A variant caller also receives the reads in the padding
//! around a region. Therefore it finds the same variants near a border as without the border.

use serde::{Deserialize, Serialize};

use crate::{ContigId, Interval};

/// Options for cutting contigs into calling regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridOptions {
    /// Maximum number of target bases of a region, not counting assembly gaps; at least 1.
    pub max_region_bases: u32,
    /// Number of bases on either side of the owned positions of a region that a variant caller also processes.
    pub padding_bases: u32,
}

/// A contig that is cut into calling regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridContig {
    /// Id of the contig.
    pub id: ContigId,
    /// Length of the contig, bases.
    pub bases: u32,
    /// Targets, `[start, end)`, 0-based, in any order; targets may overlap. `None` stands for the whole contig.
    pub targets: Option<Vec<(u32, u32)>>,
    /// Assembly gaps (intervals of N), `[start, end)`, 0-based, ascending.
    pub assembly_gaps: Vec<(u32, u32)>,
    /// 0-based positions at which the contig must be cut, in ascending order.
    pub required_cuts: Vec<u32>,
}

/// A unit of variant calling: a part of a contig, or several small contigs as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallingRegion {
    /// The intervals that the region owns, in ascending order and disjoint.
    pub targets: Vec<Interval>,
    /// The intervals that a variant caller processes: the targets with padding, in ascending order and disjoint.
    #[serde(rename = "stretches")]
    pub padded_targets: Vec<Interval>,
}

impl CallingRegion {
    /// Returns two intervals: from the first to the last owned position on the first contig, and the same for the last
    /// contig. Usually both are the same contig. Positions in between that the region does not own are included.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::region_grid::CallingRegion;
    /// use godwit_model::{ContigId, Interval};
    ///
    /// let interval = |start, end| Interval { contig: ContigId(0), start, end };
    /// let targets = vec![interval(100, 200), interval(400, 500)];
    /// let region = CallingRegion { padded_targets: targets.clone(), targets };
    /// assert_eq!(region.bounding_intervals(), [interval(100, 500), interval(100, 500)]);
    /// assert_eq!(region.bases(), 200);
    /// ```
    pub fn bounding_intervals(&self) -> [Interval; 2] {
        let (first, last) = (self.targets[0], self.targets[self.targets.len() - 1]);
        let on = |contig: ContigId| self.targets.iter().filter(move |target| target.contig == contig);
        [
            Interval { end: on(first.contig).next_back().map_or(first.end, |target| target.end), ..first },
            Interval { start: on(last.contig).next().map_or(last.start, |target| target.start), ..last },
        ]
    }

    /// Returns whether the region owns a variant record that starts at this 0-based position.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::region_grid::CallingRegion;
    /// use godwit_model::{ContigId, Interval};
    ///
    /// let interval = |start, end| Interval { contig: ContigId(0), start, end };
    /// let region = CallingRegion { targets: vec![interval(100, 200)], padded_targets: vec![interval(50, 250)] };
    /// assert!(region.owns_position(ContigId(0), 100));
    /// assert!(!region.owns_position(ContigId(0), 200));
    /// ```
    pub fn owns_position(&self, contig: ContigId, position: u32) -> bool {
        let next = self.targets.partition_point(|target| (target.contig, target.end) <= (contig, position));
        self.targets.get(next).is_some_and(|target| target.contig == contig && target.start <= position)
    }

    /// Appends the intervals of another region, which must be on later contigs.
    pub fn extend(&mut self, other: Self) {
        self.targets.extend(other.targets);
        self.padded_targets.extend(other.padded_targets);
    }

    /// Cuts the region into two whose numbers of bases differ by one at most, each with `padding_bases` bases around its
    /// targets within the padding of this region. `None` if a half would have fewer than `min_bases` bases, or none.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::region_grid::CallingRegion;
    /// use godwit_model::{ContigId, Interval};
    ///
    /// let interval = |start, end| Interval { contig: ContigId(0), start, end };
    /// let region = CallingRegion { targets: vec![interval(100, 200)], padded_targets: vec![interval(80, 220)] };
    /// let halves = region.halves(50, 20).expect("it has 100 bases");
    /// assert_eq!(halves[0].targets, [interval(100, 150)]);
    /// assert_eq!(halves[0].padded_targets, [interval(80, 170)]);
    /// assert_eq!(halves[1].padded_targets, [interval(130, 220)]);
    /// assert_eq!(region.halves(51, 20), None);
    /// ```
    pub fn halves(&self, min_bases: u32, padding_bases: u32) -> Option<[Self; 2]> {
        let mut left_bases = self.bases() / 2;
        if left_bases < u64::from(min_bases.max(1)) {
            return None;
        }
        let mut halves = [Vec::new(), Vec::new()];
        for target in &self.targets {
            let taken = u64::from(target.bases()).min(left_bases);
            left_bases -= taken;
            let cut = target.start + taken as u32;
            let parts = [Interval { end: cut, ..*target }, Interval { start: cut, ..*target }];
            halves
                .iter_mut()
                .zip(parts)
                .filter(|(_, part)| part.start < part.end)
                .for_each(|(half, part)| half.push(part));
        }
        Some(halves.map(|targets| Self { padded_targets: self.padded(&targets, padding_bases), targets }))
    }

    /// Returns intervals with padding, within the padding of the region.
    fn padded(&self, targets: &[Interval], padding_bases: u32) -> Vec<Interval> {
        let within = |whole: &Interval| {
            let padded = targets.iter().filter(|target| target.contig == whole.contig).map(|target| {
                let (start, end) =
                    (target.start.saturating_sub(padding_bases), target.end.saturating_add(padding_bases));
                (start.max(whole.start), end.min(whole.end))
            });
            let contig = whole.contig;
            merge_overlapping(padded.collect()).into_iter().map(move |(start, end)| Interval { contig, start, end })
        };
        self.padded_targets.iter().flat_map(within).collect()
    }

    /// Returns the number of bases that the region owns.
    pub fn bases(&self) -> u64 {
        self.targets.iter().map(|target| u64::from(target.bases())).sum()
    }
}

/// Cuts a contig into calling regions. If possible, a cut is in an assembly gap or between two targets. The last such
/// gap before the region reaches `max_region_bases` is used, if the region has at least half of `max_region_bases` there.
///
/// # Examples
///
/// ```
/// use godwit_model::region_grid::{GridContig, GridOptions, cut_contig};
/// use godwit_model::{ContigId, Interval};
///
/// let (id, bases) = (ContigId(0), 2_500_000);
/// let contig = GridContig { id, bases, targets: None, assembly_gaps: Vec::new(), required_cuts: Vec::new() };
/// let regions = cut_contig(&contig, GridOptions { max_region_bases: 1_000_000, padding_bases: 500 });
/// assert_eq!(regions.len(), 3);
/// assert_eq!(regions[1].targets, [Interval { contig: id, start: 1_000_000, end: 2_000_000 }]);
/// assert_eq!(regions[1].padded_targets, [Interval { contig: id, start: 999_500, end: 2_000_500 }]);
/// ```
pub fn cut_contig(contig: &GridContig, options: GridOptions) -> Vec<CallingRegion> {
    let targets = match &contig.targets {
        Some(targets) => {
            merge_overlapping(targets.iter().map(|(start, end)| (*start, (*end).min(contig.bases))).collect())
        }
        None => merge_overlapping(vec![(0, contig.bases)]),
    };
    let cuts = cut_positions(&targets, contig, options.max_region_bases.max(1));
    let edges: Vec<u32> = [0].into_iter().chain(cuts).chain([contig.bases]).collect();
    let region = |edge: &[u32]| {
        let within = |(start, end): &(u32, u32)| ((*start).max(edge[0]), (*end).min(edge[1]));
        let owned: Vec<(u32, u32)> = targets.iter().map(within).filter(|(start, end)| start < end).collect();
        let padding = options.padding_bases;
        let padded = owned
            .iter()
            .map(|(start, end)| (start.saturating_sub(padding), end.saturating_add(padding).min(contig.bases)));
        let spans = |ranges: Vec<(u32, u32)>| {
            ranges.into_iter().map(|(start, end)| Interval { contig: contig.id, start, end }).collect::<Vec<_>>()
        };
        let region =
            CallingRegion { padded_targets: spans(merge_overlapping(padded.collect())), targets: spans(owned) };
        Some(region).filter(|region| !region.targets.is_empty())
    };
    edges.windows(2).filter_map(region).collect()
}

/// Sorts intervals, merges overlapping ones, and drops empty ones.
fn merge_overlapping(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.retain(|(start, end)| start < end);
    ranges.sort_unstable();
    let mut whole: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match whole.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => whole.push((start, end)),
        }
    }
    whole
}

/// Subtracts `gaps` from intervals. Both lists are in ascending order.
fn subtract_gaps(ranges: &[(u32, u32)], gaps: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let (mut left, mut next) = (Vec::new(), 0);
    for (start, end) in ranges {
        let mut from = *start;
        while gaps.get(next).is_some_and(|(_, gap_end)| gap_end <= start) {
            next += 1;
        }
        for (gap_start, gap_end) in gaps[next..].iter().take_while(|(gap_start, _)| gap_start < end) {
            left.push((from, *gap_start));
            from = *gap_end;
        }
        left.push((from, *end));
    }
    left.retain(|(start, end)| start < end);
    left
}

/// A position at which a region may end, and the number of bases that the region would have.
struct CutCandidate {
    position: u32,
    region_bases: u64,
}

fn cut_positions(targets: &[(u32, u32)], contig: &GridContig, max_region_bases: u32) -> Vec<u32> {
    let max_bases = u64::from(max_region_bases);
    let mut cuts = Vec::new();
    let edges: Vec<u32> = [0].into_iter().chain(contig.required_cuts.iter().copied()).chain([contig.bases]).collect();
    for edge in edges.windows(2) {
        if edge[0] > 0 {
            cuts.push(edge[0]);
        }
        let within: Vec<(u32, u32)> = targets
            .iter()
            .map(|(start, end)| ((*start).max(edge[0]), (*end).min(edge[1])))
            .filter(|(start, end)| start < end)
            .collect();
        let (mut region_bases, mut gap, mut last_end) = (0, None::<CutCandidate>, None);
        for (mut start, end) in subtract_gaps(&within, &contig.assembly_gaps) {
            if let Some(last_end) = last_end.filter(|_| region_bases >= max_bases.div_ceil(2)) {
                gap = Some(CutCandidate { position: last_end + (start - last_end) / 2, region_bases });
            }
            while region_bases + u64::from(end - start) > max_bases {
                match gap.take() {
                    Some(CutCandidate { position, region_bases: before }) => {
                        cuts.push(position);
                        region_bases -= before;
                    }
                    None => {
                        start += (max_bases - region_bases) as u32;
                        cuts.push(start);
                        region_bases = 0;
                    }
                }
            }
            region_bases += u64::from(end - start);
            last_end = Some(end);
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contig(bases: u32, gaps: &[(u32, u32)]) -> GridContig {
        GridContig { id: ContigId(3), bases, targets: None, assembly_gaps: gaps.to_vec(), required_cuts: Vec::new() }
    }

    fn outer_bounds(region: &CallingRegion) -> (u32, u32) {
        let [first, last] = region.bounding_intervals();
        (first.start, last.end)
    }

    fn all_outer_bounds(contig: &GridContig, max_region_bases: u32) -> Vec<(u32, u32)> {
        let regions = cut_contig(contig, GridOptions { max_region_bases, padding_bases: 10 });
        regions.iter().map(outer_bounds).collect()
    }

    #[test]
    fn without_gaps_windows_follow_each_other() {
        assert_eq!(all_outer_bounds(&contig(250, &[]), 100), [(0, 100), (100, 200), (200, 250)]);
        assert_eq!(all_outer_bounds(&contig(200, &[]), 100), [(0, 100), (100, 200)]);
        assert_eq!(all_outer_bounds(&contig(99, &[]), 100), [(0, 99)]);
        assert_eq!(all_outer_bounds(&contig(0, &[]), 100), []);
    }

    #[test]
    fn cuts_fall_in_the_last_gap_that_leaves_at_least_half_a_window() {
        assert_eq!(
            all_outer_bounds(&contig(300, &[(60, 80), (90, 94)]), 100),
            [(0, 92), (92, 194), (194, 294), (294, 300)]
        );
        // The gap is too far from the end of the window to end the region at it.
        assert_eq!(all_outer_bounds(&contig(300, &[(30, 40)]), 100), [(0, 110), (110, 210), (210, 300)]);
        // Bases of assembly gaps do not count towards the size of a region, wherever the gap is.
        assert_eq!(all_outer_bounds(&contig(1100, &[(0, 500), (550, 1050)]), 100), [(0, 1100)]);
        assert_eq!(all_outer_bounds(&contig(50, &[(0, 50)]), 100), [(0, 50)]);
    }

    #[test]
    fn targets_are_joined_and_cut_between() {
        let targets = Some(vec![(50, 80), (10, 20), (15, 30), (75, 90), (200, 400), (390, 9_000)]);
        let regions = cut_contig(
            &GridContig { targets, ..contig(500, &[]) },
            GridOptions { max_region_bases: 90, padding_bases: 10 },
        );
        let spans = |spans: &[Interval]| spans.iter().map(|span| (span.start, span.end)).collect::<Vec<_>>();
        assert_eq!(spans(&regions[0].targets), [(10, 30), (50, 90)]);
        assert_eq!(spans(&regions[0].padded_targets), [(0, 100)]);
        assert_eq!(spans(&regions[1].targets), [(200, 290)]);
        assert_eq!(spans(&regions[1].padded_targets), [(190, 300)]);
        assert_eq!(outer_bounds(regions.last().unwrap()).1, 500);
        let owns = |position| regions[0].owns_position(ContigId(3), position);
        assert!(owns(10) && owns(89) && !owns(30) && !owns(90));
        assert!(
            cut_contig(
                &GridContig { targets: Some(Vec::new()), ..contig(500, &[]) },
                GridOptions { max_region_bases: 90, padding_bases: 10 }
            )
            .is_empty()
        );
    }

    #[test]
    fn borders_are_cuts_and_start_a_new_window() {
        let contig = GridContig { required_cuts: vec![30, 250], ..contig(300, &[]) };
        assert_eq!(all_outer_bounds(&contig, 100), [(0, 30), (30, 130), (130, 230), (230, 250), (250, 300)]);
    }

    #[test]
    fn regions_of_several_contigs_own_what_their_parts_own() {
        let part = |id: u32, targets: &[(u32, u32)]| {
            let contig = GridContig { id: ContigId(id), targets: Some(targets.to_vec()), ..contig(500, &[]) };
            cut_contig(&contig, GridOptions { max_region_bases: 1000, padding_bases: 10 }).remove(0)
        };
        let mut region = part(3, &[(20, 40), (100, 150)]);
        region.extend(part(4, &[(0, 30)]));
        region.extend(part(7, &[(60, 70), (200, 300)]));
        let span = |contig, start, end| Interval { contig: ContigId(contig), start, end };
        assert_eq!(region.bounding_intervals(), [span(3, 20, 150), span(7, 60, 300)]);
        assert_eq!(region.bases(), 210);
        for (contig, position, owned) in [
            (3, 19, false),
            (3, 20, true),
            (3, 149, true),
            (3, 150, false),
            (4, 0, true),
            (4, 30, false),
            (5, 10, false),
            (7, 65, true),
            (7, 100, false),
            (7, 299, true),
            (8, 0, false),
        ] {
            assert_eq!(region.owns_position(ContigId(contig), position), owned, "{contig}:{position}");
        }
    }

    #[test]
    fn the_halves_of_a_region_own_its_positions() {
        let span = |contig, start, end| Interval { contig: ContigId(contig), start, end };
        let region = CallingRegion {
            targets: vec![span(0, 10, 20), span(0, 30, 71), span(1, 5, 9)],
            padded_targets: vec![span(0, 5, 76), span(1, 0, 12)],
        };
        let [left, right] = region.halves(1, 5).unwrap();
        assert_eq!(left.targets, [span(0, 10, 20), span(0, 30, 47)]);
        assert_eq!(left.padded_targets, [span(0, 5, 52)]);
        assert_eq!(right.targets, [span(0, 47, 71), span(1, 5, 9)]);
        assert_eq!(right.padded_targets, [span(0, 42, 76), span(1, 0, 12)]);
        let single = CallingRegion { targets: vec![span(0, 3, 4)], padded_targets: vec![span(0, 0, 9)] };
        assert_eq!(single.halves(0, 5), None);
    }

    fn arbitrary_ranges() -> impl Strategy<Value = Vec<(u32, u32)>> {
        prop::collection::vec((0..2000u32, 0..300u32), 0..12)
            .prop_map(|ranges| ranges.into_iter().map(|(start, bases)| (start, start + bases)).collect())
    }

    proptest! {
        #[test]
        fn every_position_to_be_called_has_one_owner(
            bases in 0..2000u32,
            targets in prop::option::of(arbitrary_ranges()),
            gaps in arbitrary_ranges(),
            borders in prop::collection::btree_set(1..2000u32, 0..4),
            max_region_bases in 1..400u32,
            padding_bases in 0..50u32,
        ) {
            let required_cuts = borders.into_iter().filter(|border| *border < bases).collect();
            let contig = GridContig { targets, assembly_gaps: merge_overlapping(gaps), required_cuts, ..contig(bases, &[]) };
            let regions = cut_contig(&contig, GridOptions { max_region_bases, padding_bases });
            for position in 0..2500 {
                let is_targeted = position < bases
                    && contig.targets.as_ref().is_none_or(|targets| targets.iter().any(|(s, e)| (*s..*e).contains(&position)));
                let owners: Vec<&CallingRegion> = regions.iter().filter(|region| region.owns_position(ContigId(3), position)).collect();
                prop_assert_eq!(owners.len(), usize::from(is_targeted));
                for region in owners {
                    let shown = |at: u32| region.padded_targets.iter().any(|target| (target.start..target.end).contains(&at));
                    prop_assert!(shown(position) && shown(position.saturating_sub(padding_bases)));
                    prop_assert!(shown((position + padding_bases).min(bases - 1)));
                }
            }
            prop_assert!(regions.windows(2).all(|pair| outer_bounds(&pair[0]).1 <= outer_bounds(&pair[1]).0));
            let solid = |region: &CallingRegion| {
                let owned: Vec<(u32, u32)> = region.targets.iter().map(|target| (target.start, target.end)).collect();
                subtract_gaps(&owned, &contig.assembly_gaps).iter().map(|(start, end)| end - start).sum::<u32>()
            };
            prop_assert!(regions.iter().all(|region| solid(region) <= max_region_bases));
        }
    }
}
