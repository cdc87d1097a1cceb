//! Counts of bases and errors by read group, reported quality, cycle and context.

use crate::covariates::{CONTEXTS, CYCLE_KEYS};
use crate::read_groups::RecalibrationGroups;
use crate::{MAX_QUALITY, QUALITIES};

/// Index of the counts of bases that have no context.
pub(crate) const NO_CONTEXT: usize = CONTEXTS;

/// The counts of one combination of covariates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorCounts {
    /// Number of bases.
    pub(crate) observations: u64,
    /// Number of bases that differ from the reference.
    pub(crate) errors: u64,
}

impl ErrorCounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.observations += other.observations;
        self.errors += other.errors;
    }
}

/// The counts of the bases of one read group with one reported quality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QualityCounts {
    /// Counts by context; the last are those of bases without a context.
    pub(crate) contexts: [ErrorCounts; CONTEXTS + 1],
    /// Counts by cycle key. Each base is counted once, so their sum is the number of bases of this quality.
    pub(crate) cycles: Box<[ErrorCounts]>,
}

impl Default for QualityCounts {
    fn default() -> Self {
        let cycles = vec![ErrorCounts::default(); CYCLE_KEYS].into_boxed_slice();
        Self { contexts: Default::default(), cycles }
    }
}

impl QualityCounts {
    pub(crate) fn total(&self) -> ErrorCounts {
        let mut total = ErrorCounts::default();
        self.cycles.iter().for_each(|counts| total.add(*counts));
        total
    }

    fn add(&mut self, other: &Self) {
        self.contexts.iter_mut().zip(&other.contexts).for_each(|(sum, counts)| sum.add(*counts));
        self.cycles.iter_mut().zip(&other.cycles).for_each(|(sum, counts)| sum.add(*counts));
    }
}

/// The counts of one read group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    /// Name of the read group in reports.
    pub(crate) name: String,
    qualities: Vec<Option<Box<QualityCounts>>>,
}

impl GroupCounts {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), qualities: vec![None; QUALITIES] }
    }

    /// Returns the counts of a quality, which is at most 93.
    #[inline]
    pub(crate) fn quality_mut(&mut self, quality: u8) -> &mut QualityCounts {
        self.qualities[usize::from(quality)].get_or_insert_default()
    }

    /// Returns the counted qualities in ascending order, with their counts.
    pub(crate) fn qualities(&self) -> impl Iterator<Item = (u8, &QualityCounts)> {
        (0..=MAX_QUALITY).zip(&self.qualities).filter_map(|(quality, counts)| Some((quality, counts.as_deref()?)))
    }
}

/// The counts from which the qualities of bases are estimated. A read group takes 16 KiB for each quality that occurs.
///
/// # Examples
///
/// ```
/// use godwit_recalibrate::{RecalibrationCounts, RecalibrationGroups};
///
/// let groups = RecalibrationGroups::new([("lane1", Some("FC1.1")), ("lane2", None)]);
/// let counts = RecalibrationCounts::new(&groups);
/// assert_eq!(counts.observations(), 0);
/// assert!(counts.to_report().starts_with("#:GATKReport.v1.1:5\n"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecalibrationCounts {
    pub(crate) groups: Vec<GroupCounts>,
}

impl RecalibrationCounts {
    /// Creates counts of 0 for all read groups.
    pub fn new(groups: &RecalibrationGroups) -> Self {
        Self { groups: groups.names().iter().map(|name| GroupCounts::new(name)).collect() }
    }

    /// Returns the number of counted bases.
    pub fn observations(&self) -> u64 {
        let groups = self.groups.iter().flat_map(GroupCounts::qualities);
        groups.map(|(_, counts)| counts.total().observations).sum()
    }

    /// Adds the counts of other reads. Read groups are joined by their names in reports.
    pub fn merge(&mut self, other: &Self) {
        for group in &other.groups {
            let sum = self.group_mut(&group.name);
            for (quality, counts) in group.qualities() {
                sum.quality_mut(quality).add(counts);
            }
        }
    }

    /// Returns the counts of a read group, which is added if it is new.
    pub(crate) fn group_mut(&mut self, name: &str) -> &mut GroupCounts {
        let found = self.groups.iter().position(|group| group.name == name);
        let at = found.unwrap_or_else(|| {
            self.groups.push(GroupCounts::new(name));
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }

    /// Returns the read groups that have counts, sorted by name.
    pub(crate) fn counted_groups(&self) -> Vec<&GroupCounts> {
        let mut groups: Vec<_> = self.groups.iter().filter(|group| group.qualities().next().is_some()).collect();
        groups.sort_by(|one, other| one.name.cmp(&other.name));
        groups
    }
}
