//! The paths in play, in the order in which the search takes them.

use std::cmp::Ordering;
use std::collections::hash_map;

use super::haplotype_states::{HaplotypeStates, IntegerMap, StateId};
use super::path::Path;
use crate::comparison_options::Preference;

/// Number of children of an entry of a heap. With four, an entry moves through half as many levels as with two.
const CHILDREN: usize = 4;

/// The states of a path, by which it is compared, and its slot in the group.
#[derive(Clone, Copy, Debug)]
struct Entry<const H: usize> {
    states: [[StateId; H]; 2],
    slot: u32,
}

/// Number of paths above which the memory of a group is released when the group is empty.
const MAX_KEPT_PATHS: usize = 4096;

/// The paths with one state of the first haplotype of the calls. A group has its own memory, so that a path is near to
/// those that are taken with it.
#[derive(Debug)]
struct Group<const H: usize> {
    first_state: StateId,
    paths: Vec<Path<H>>,
    free: Vec<u32>,
    /// Slot of the path with each combination of states.
    slots: IntegerMap<[[StateId; H]; 2], u32>,
    /// Entries in descending order.
    sorted: Vec<Entry<H>>,
    /// Entries that were added after the others were sorted, as a heap.
    added: Vec<Entry<H>>,
}

impl<const H: usize> Group<H> {
    fn new(first_state: StateId) -> Self {
        Self {
            first_state,
            paths: Vec::new(),
            free: Vec::new(),
            slots: IntegerMap::default(),
            sorted: Vec::new(),
            added: Vec::new(),
        }
    }

    /// Adds a path. If the group has a path with the same haplotypes, the better of the two stays. Returns whether the
    /// number of paths has increased.
    fn insert(&mut self, path: Path<H>, preference: Preference, states: &HaplotypeStates) -> bool {
        let vacant = match self.slots.entry(path.states) {
            hash_map::Entry::Vacant(vacant) => vacant,
            hash_map::Entry::Occupied(slot) => {
                let other = &mut self.paths[*slot.get() as usize];
                if path.is_better_than(other, preference) {
                    *other = path;
                }
                return false;
            }
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.paths[slot as usize] = path;
                slot
            }
            None => {
                self.paths.push(path);
                (self.paths.len() - 1) as u32
            }
        };
        vacant.insert(slot);
        push(&mut self.added, Entry { states: path.states, slot }, is_less_entry(states));
        true
    }

    /// Returns the least entry.
    fn first(&self, states: &HaplotypeStates) -> Option<&Entry<H>> {
        match (self.sorted.last(), self.added.first()) {
            (Some(sorted), Some(added)) => Some(if is_less_entry(states)(added, sorted) { added } else { sorted }),
            (sorted, added) => sorted.or(added),
        }
    }

    /// Removes the least path. Sorts the entries if none are sorted: most are added before the first is taken.
    fn pop(&mut self, states: &HaplotypeStates) -> Option<Path<H>> {
        if self.sorted.is_empty() && self.added.len() > 1 {
            std::mem::swap(&mut self.sorted, &mut self.added);
            self.sorted.sort_unstable_by(|a, b| compare(&b.states, &a.states, states));
        }
        let is_added = match (self.sorted.last(), self.added.first()) {
            (Some(sorted), Some(added)) => is_less_entry(states)(added, sorted),
            (sorted, _) => sorted.is_none(),
        };
        let first = if is_added { pop(&mut self.added, is_less_entry(states)) } else { self.sorted.pop() }?;
        self.slots.remove(&first.states);
        self.free.push(first.slot);
        Some(self.paths[first.slot as usize])
    }

    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Prepares an empty group for another first state.
    fn reset(&mut self, first_state: StateId) {
        if self.paths.capacity() > MAX_KEPT_PATHS {
            *self = Self::new(first_state);
        }
        self.first_state = first_state;
        self.paths.clear();
        self.free.clear();
    }
}

/// A set of paths with different haplotypes. The least path is taken first.
///
/// The first state decides most comparisons, and few states are in play at once. So the set is a heap of groups with
/// equal first states. Entries contain the states, so that comparisons do not load the paths.
#[derive(Debug)]
pub(super) struct PathSet<const H: usize> {
    groups: Vec<Group<H>>,
    free_groups: Vec<u32>,
    /// Groups that are not empty, as a heap by their first states.
    group_heap: Vec<u32>,
    group_numbers: IntegerMap<StateId, u32>,
    /// Number of paths of all groups.
    count: usize,
}

impl<const H: usize> PathSet<H> {
    pub(super) fn new() -> Self {
        Self {
            groups: Vec::new(),
            free_groups: Vec::new(),
            group_heap: Vec::new(),
            group_numbers: IntegerMap::default(),
            count: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Calls `visit` with every path.
    pub(super) fn for_each_mut(&mut self, mut visit: impl FnMut(&mut Path<H>)) {
        for group in &mut self.groups {
            let entries = group.sorted.iter().chain(&group.added);
            entries.for_each(|entry| visit(&mut group.paths[entry.slot as usize]));
        }
    }

    /// Updates the index after the numbers of states have changed.
    pub(super) fn index_again(&mut self) {
        self.group_numbers.clear();
        for number in &self.group_heap {
            let group = &mut self.groups[*number as usize];
            group.slots.clear();
            for entry in group.sorted.iter_mut().chain(&mut group.added) {
                entry.states = group.paths[entry.slot as usize].states;
                group.first_state = entry.states[0][0];
                group.slots.insert(entry.states, entry.slot);
            }
            self.group_numbers.insert(group.first_state, *number);
        }
    }

    /// Returns whether a path is less than all paths of the set.
    pub(super) fn is_before_all(&self, path: &Path<H>, states: &HaplotypeStates) -> bool {
        let first = self.group_heap.first().and_then(|number| self.groups[*number as usize].first(states));
        first.is_none_or(|first| compare(&path.states, &first.states, states).is_lt())
    }

    /// Adds a path. If the set has a path with the same haplotypes, the better of the two stays.
    pub(super) fn insert(&mut self, path: Path<H>, preference: Preference, states: &HaplotypeStates) {
        let number = self.group_number(path.states[0][0], states);
        self.count += usize::from(self.groups[number as usize].insert(path, preference, states));
    }

    /// Returns the group of a first state. Adds the group if it does not exist.
    fn group_number(&mut self, first_state: StateId, states: &HaplotypeStates) -> u32 {
        if let Some(number) = self.group_numbers.get(&first_state) {
            return *number;
        }
        let number = match self.free_groups.pop() {
            Some(number) => {
                self.groups[number as usize].reset(first_state);
                number
            }
            None => {
                self.groups.push(Group::new(first_state));
                (self.groups.len() - 1) as u32
            }
        };
        self.group_numbers.insert(first_state, number);
        push(&mut self.group_heap, number, is_less_group(&self.groups, states));
        number
    }

    /// Removes the least path.
    pub(super) fn pop(&mut self, states: &HaplotypeStates) -> Option<Path<H>> {
        let number = self.group_heap.first().copied()?;
        let group = &mut self.groups[number as usize];
        let first = group.pop(states)?;
        self.count -= 1;
        if group.is_empty() {
            self.group_numbers.remove(&group.first_state);
            self.free_groups.push(number);
            pop(&mut self.group_heap, is_less_group(&self.groups, states));
        }
        Some(first)
    }
}

fn is_less_entry<const H: usize>(states: &HaplotypeStates) -> impl Fn(&Entry<H>, &Entry<H>) -> bool {
    |a, b| compare(&a.states, &b.states, states).is_lt()
}

fn is_less_group<const H: usize>(groups: &[Group<H>], states: &HaplotypeStates) -> impl Fn(&u32, &u32) -> bool {
    |a, b| {
        let first_state = |number: &u32| groups[*number as usize].first_state;
        states.compare(first_state(a), first_state(b)).is_lt()
    }
}

/// Adds an item to a heap whose root is the least item.
fn push<T: Copy>(heap: &mut Vec<T>, item: T, is_less: impl Fn(&T, &T) -> bool) {
    let mut at = heap.len();
    heap.push(item);
    while at > 0 {
        let parent = (at - 1) / CHILDREN;
        if !is_less(&item, &heap[parent]) {
            break;
        }
        heap[at] = heap[parent];
        at = parent;
    }
    heap[at] = item;
}

/// Removes the least item of a heap.
fn pop<T: Copy>(heap: &mut Vec<T>, is_less: impl Fn(&T, &T) -> bool) -> Option<T> {
    let last = heap.pop()?;
    let Some(first) = heap.first().copied() else { return Some(last) };
    let mut at = 0;
    loop {
        let first_child = CHILDREN * at + 1;
        let last_child = heap.len().min(first_child + CHILDREN);
        let mut least = first_child;
        for child in first_child + 1..last_child {
            if is_less(&heap[child], &heap[least]) {
                least = child;
            }
        }
        if first_child >= heap.len() || !is_less(&heap[least], &last) {
            break;
        }
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = last;
    Some(first)
}

/// Compares the states of two paths: the haplotypes of the calls, then those of the truth.
fn compare<const H: usize>(a: &[[StateId; H]; 2], b: &[[StateId; H]; 2], states: &HaplotypeStates) -> Ordering {
    for (a, b) in a.as_flattened().iter().zip(b.as_flattened()) {
        if a != b {
            // The order never treats two different states as equal.
            return states.compare(*a, *b);
        }
    }
    Ordering::Equal
}
