//! Duplicate marking by template, with the results of Picard 3.4.0 for query-grouped input.
//!
//! In its second pass over the file, Picard walks three sorted lists of template starts (duplicates, optical
//! duplicates, members of sets). For each record, Picard advances each list by at most one entry. If a list contains a
//! template twice, the walk falls behind and misses entries. This happens with two pairs of one name in two read
//! groups, or with two fragments of one name. This module computes the result of that walk (`MarkDuplicates.doWork`,
//! `nextIndexIfNeeded`) without the records.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use godwit_model::{PairSignature, RecordId};

use super::duplicate_sets::DuplicateSets;
use super::marker::DuplicateMarks;
use super::record_set::RecordSet;
use super::templates::Templates;
use crate::sort::{ExternalSorter, Sortable, Spill};

/// An entry of the list of set members: the template start of a pair, and the duplicate set of the pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
struct TemplateMember {
    start: u64,
    /// Rank of the pair's library by its first record in the input. Picard orders sets by this rank.
    library: u32,
    set: u32,
}

impl Sortable for TemplateMember {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// The three lists of Picard's second pass while they are filled.
pub(super) struct TemplateLists {
    pub(super) templates: Templates,
    /// For each library, its rank in the order of first appearance in the input.
    library_order: Vec<u32>,
    duplicates: ExternalSorter<u64>,
    optical: ExternalSorter<u64>,
    members: ExternalSorter<TemplateMember>,
}

impl TemplateLists {
    /// Creates empty lists. `first_records` holds the first mapped primary record of each library.
    pub(super) fn new(
        templates: Templates,
        first_records: &[Option<RecordId>],
        memory_bytes: usize,
        threads: usize,
        spill: &Arc<dyn Spill>,
    ) -> Self {
        let before = |a: &Option<RecordId>| first_records.iter().filter(|b| b.is_some() && *b < a).count() as u32;
        Self {
            templates,
            library_order: first_records.iter().map(before).collect(),
            duplicates: ExternalSorter::new(memory_bytes / 4, threads, spill.clone()),
            optical: ExternalSorter::new(memory_bytes / 4, threads, spill.clone()),
            members: ExternalSorter::new(memory_bytes / 2, threads, spill.clone()),
        }
    }

    /// Returns the template starts of a pair: one start, or two if the mates are in different templates.
    fn template_starts(&self, pair: &PairSignature) -> impl Iterator<Item = u64> + use<> {
        let [one, two] = [pair.record1, pair.record2].map(|record| self.templates.template_start(record));
        std::iter::once(one).chain((two != one).then_some(two))
    }

    pub(super) fn add_duplicate_pair(&mut self, pair: &PairSignature, optical: bool) -> io::Result<()> {
        for start in self.template_starts(pair) {
            self.duplicates.extend(&[start])?;
            if optical {
                self.optical.extend(&[start])?;
            }
        }
        Ok(())
    }

    pub(super) fn add_duplicate_fragment(&mut self, record: RecordId) -> io::Result<()> {
        self.duplicates.extend(&[self.templates.template_start(record)])
    }

    pub(super) fn add_set_member(&mut self, pair: &PairSignature, set: u32) -> io::Result<()> {
        let library = self.library_order[usize::from(pair.library)];
        for start in self.template_starts(pair) {
            self.members.extend(&[TemplateMember { start, library, set }])?;
        }
        Ok(())
    }

    /// Marks the records that the second pass of Picard would mark.
    pub(super) fn replay_second_pass(self, marking: &mut DuplicateMarks) -> io::Result<()> {
        let templates = &self.templates;
        // Number of the record at which Picard compares the next entry of the list.
        let mut due = 0;
        let duplicates = self.duplicates.finish()?;
        let mut entries = duplicates.iter()?;
        while let Some(start) = entries.next()? {
            if start < due {
                due += 1;
                continue;
            }
            due = templates.template_end(start);
            (start..due).for_each(|number| marking.duplicates.insert(templates.record_id(number)));
        }
        if let Some(optical) = &mut marking.optical {
            replay_optical(templates, self.optical, &marking.duplicates, |records| {
                records.for_each(|number| optical.insert(templates.record_id(number)));
            })?;
        }
        if let Some(sets) = &mut marking.sets {
            replay_members(templates, self.members, sets)?;
            sets.set_indices(|record| templates.template_start(record));
        }
        Ok(())
    }
}

/// Marks optical duplicates. Picard advances their list only if the read name differs from the name of the last
/// duplicate.
fn replay_optical(
    templates: &Templates,
    optical: ExternalSorter<u64>,
    duplicates: &RecordSet,
    mut mark: impl FnMut(Range<u64>),
) -> io::Result<()> {
    let optical = optical.finish()?;
    let mut entries = optical.iter()?;
    let is_duplicate = |number: u64| duplicates.contains(templates.record_id(number));
    let mut due = 0;
    while let Some(start) = entries.next()? {
        if start >= due {
            due = if is_duplicate(start) { templates.template_end(start) } else { start + 1 };
            mark(start..due);
        } else if templates.is_template_start(due) && is_duplicate(due) {
            // After the first record of a duplicate template, Picard applies any remaining entry to this template.
            let end = templates.template_end(due);
            mark(due + 1..end);
            due = end;
        } else {
            due += 1;
        }
    }
    Ok(())
}

/// Assigns templates to duplicate sets. A template is assigned only if its first record is mapped and primary.
fn replay_members(
    templates: &Templates,
    members: ExternalSorter<TemplateMember>,
    sets: &mut DuplicateSets,
) -> io::Result<()> {
    let members = members.finish()?;
    let mut entries = members.iter()?;
    let mut due = 0;
    while let Some(TemplateMember { start, set, .. }) = entries.next()? {
        if start < due {
            due += 1;
        } else if templates.starts_with_primary(start) {
            due = templates.template_end(start);
            (start..due).for_each(|number| sets.add_member(templates.record_id(number), set));
        } else {
            due = start + 1;
        }
    }
    Ok(())
}
