//! Marking by template, as Picard 3.4.0 does it on input grouped by name.
//!
//! Picard's second pass over the file walks three sorted lists of template starts (duplicates, optical duplicates, members
//! of sets) and looks at the next entry of a list at most once a record. Where a list names a template twice (two pairs of
//! one name, in two read groups; two fragments of one name) it falls behind and misses entries. What follows gives the
//! outcome of that walk (`MarkDuplicates.doWork`, `nextIndexIfNeeded`) without walking the records.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use godwit_model::{PairSignature, RecordId};

use super::marker::Marking;
use super::sets::DuplicateSets;
use super::templates::Templates;
use super::verdicts::Verdicts;
use crate::sort::{ExternalSorter, Sortable, Spill};

/// A pair of a set: where its template starts, and the set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
struct Member {
    start: u64,
    /// Sets come in Picard's order: by the library that came first in the file.
    library: u32,
    set: u32,
}

impl Sortable for Member {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// Picard's lists in the making.
pub(super) struct TemplateLists {
    pub(super) templates: Templates,
    /// For each library its place in the order in which they appear in the input.
    library_order: Vec<u32>,
    duplicates: ExternalSorter<u64>,
    optical: ExternalSorter<u64>,
    members: ExternalSorter<Member>,
}

impl TemplateLists {
    /// `first_records`: for each library its first mapped primary record.
    pub(super) fn new(
        templates: Templates,
        first_records: &[Option<RecordId>],
        memory_bytes: usize,
        spill: &Arc<dyn Spill>,
    ) -> Self {
        let before = |a: &Option<RecordId>| first_records.iter().filter(|b| b.is_some() && *b < a).count() as u32;
        Self {
            templates,
            library_order: first_records.iter().map(before).collect(),
            duplicates: ExternalSorter::new(memory_bytes / 4, spill.clone()),
            optical: ExternalSorter::new(memory_bytes / 4, spill.clone()),
            members: ExternalSorter::new(memory_bytes / 2, spill.clone()),
        }
    }

    /// Starts of the templates of a pair: one, but for mates that are not neighbours.
    fn starts(&self, pair: &PairSignature) -> impl Iterator<Item = u64> + use<> {
        let [one, two] = [pair.record1, pair.record2].map(|record| self.templates.start(record));
        std::iter::once(one).chain((two != one).then_some(two))
    }

    pub(super) fn duplicate_pair(&mut self, pair: &PairSignature, optical: bool) -> io::Result<()> {
        for start in self.starts(pair) {
            self.duplicates.extend(&[start])?;
            if optical {
                self.optical.extend(&[start])?;
            }
        }
        Ok(())
    }

    pub(super) fn duplicate_fragment(&mut self, record: RecordId) -> io::Result<()> {
        self.duplicates.extend(&[self.templates.start(record)])
    }

    pub(super) fn member(&mut self, pair: &PairSignature, set: u32) -> io::Result<()> {
        let library = self.library_order[usize::from(pair.library)];
        for start in self.starts(pair) {
            self.members.extend(&[Member { start, library, set }])?;
        }
        Ok(())
    }

    /// Marks what Picard's second pass would.
    pub(super) fn replay(self, marking: &mut Marking) -> io::Result<()> {
        let templates = &self.templates;
        // The record at which Picard next looks for the next entry.
        let mut due = 0;
        let duplicates = self.duplicates.finish()?;
        let mut entries = duplicates.iter()?;
        while let Some(start) = entries.next()? {
            if start < due {
                due += 1;
                continue;
            }
            due = templates.end(start);
            (start..due).for_each(|number| marking.duplicates.mark(templates.record(number)));
        }
        if let Some(optical) = &mut marking.optical {
            replay_optical(templates, self.optical, &marking.duplicates, |records| {
                records.for_each(|number| optical.mark(templates.record(number)));
            })?;
        }
        if let Some(sets) = &mut marking.sets {
            replay_members(templates, self.members, sets)?;
            sets.number(|record| templates.start(record));
        }
        Ok(())
    }
}

/// The list of optical duplicates moves on only where the name is not that of the last duplicate.
fn replay_optical(
    templates: &Templates,
    optical: ExternalSorter<u64>,
    duplicates: &Verdicts,
    mut mark: impl FnMut(Range<u64>),
) -> io::Result<()> {
    let optical = optical.finish()?;
    let mut entries = optical.iter()?;
    let is_duplicate = |number: u64| duplicates.contains(templates.record(number));
    let mut due = 0;
    while let Some(start) = entries.next()? {
        if start >= due {
            due = if is_duplicate(start) { templates.end(start) } else { start + 1 };
            mark(start..due);
        } else if templates.is_start(due) && is_duplicate(due) {
            // Behind its first record, a duplicate's template takes whatever entry is left over for its own.
            let end = templates.end(due);
            mark(due + 1..end);
            due = end;
        } else {
            due += 1;
        }
    }
    Ok(())
}

/// A template belongs to a set only where its first record is mapped and primary.
fn replay_members(templates: &Templates, members: ExternalSorter<Member>, sets: &mut DuplicateSets) -> io::Result<()> {
    let members = members.finish()?;
    let mut entries = members.iter()?;
    let mut due = 0;
    while let Some(Member { start, set, .. }) = entries.next()? {
        if start < due {
            due += 1;
        } else if templates.starts_with_primary(start) {
            due = templates.end(start);
            (start..due).for_each(|number| sets.join(templates.record(number), set));
        } else {
            due = start + 1;
        }
    }
    Ok(())
}
