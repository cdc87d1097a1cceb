//! The paths in play, in the order in which the search takes them.

use std::cmp::Ordering;
use std::collections::hash_map;

use super::haplotype_states::{HaplotypeStates, IntegerMap, StateId};
use super::path::Path;
use crate::comparison_options::Preference;

/// Number of children of an entry of a heap. With four, an entry moves through half as many levels as with two.
const CHILDREN: usize = 4;

/// The states of a path, by which it is compared, and its slot.
#[derive(Clone, Copy, Debug)]
struct Entry<const H: usize> {
    states: [[StateId; H]; 2],
    slot: u32,
}

/// The paths with one state of the first haplotype of the calls, as a heap.
#[derive(Debug)]
struct Group<const H: usize> {
    first_state: StateId,
    heap: Vec<Entry<H>>,
}

/// A set of paths with different haplotypes. The least path is taken first.
///
/// The first state decides most comparisons, and few states are in play at once. So the set is a heap of groups with
/// equal first states, each of them a small heap of entries. Entries contain the states, so that comparisons do not load
/// the paths.
#[derive(Debug)]
pub(super) struct PathSet<const H: usize> {
    paths: Vec<Path<H>>,
    free: Vec<u32>,
    groups: Vec<Group<H>>,
    free_groups: Vec<u32>,
    /// Groups that are not empty, as a heap by their first states.
    group_heap: Vec<u32>,
    group_numbers: IntegerMap<StateId, u32>,
    /// Slot of the path with each combination of states.
    slots: IntegerMap<[[StateId; H]; 2], u32>,
}

impl<const H: usize> PathSet<H> {
    pub(super) fn new() -> Self {
        Self {
            paths: Vec::new(),
            free: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            group_heap: Vec::new(),
            group_numbers: IntegerMap::default(),
            slots: IntegerMap::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Calls `visit` with every path.
    pub(super) fn for_each_mut(&mut self, mut visit: impl FnMut(&mut Path<H>)) {
        let entries = self.groups.iter().flat_map(|group| &group.heap);
        entries.for_each(|entry| visit(&mut self.paths[entry.slot as usize]));
    }

    /// Updates the index after the numbers of states have changed.
    pub(super) fn index_again(&mut self) {
        self.slots.clear();
        self.group_numbers.clear();
        for number in &self.group_heap {
            let group = &mut self.groups[*number as usize];
            for entry in &mut group.heap {
                entry.states = self.paths[entry.slot as usize].states;
                group.first_state = entry.states[0][0];
                self.slots.insert(entry.states, entry.slot);
            }
            self.group_numbers.insert(group.first_state, *number);
        }
    }

    /// Returns whether a path is less than all paths of the set.
    pub(super) fn is_before_all(&self, path: &Path<H>, states: &HaplotypeStates) -> bool {
        let first = self.group_heap.first().and_then(|number| self.groups[*number as usize].heap.first());
        first.is_none_or(|first| compare(&path.states, &first.states, states).is_lt())
    }

    /// Adds a path. If the set has a path with the same haplotypes, the better of the two stays.
    pub(super) fn insert(&mut self, path: Path<H>, preference: Preference, states: &HaplotypeStates) {
        let vacant = match self.slots.entry(path.states) {
            hash_map::Entry::Vacant(vacant) => vacant,
            hash_map::Entry::Occupied(slot) => {
                let other = &mut self.paths[*slot.get() as usize];
                if path.is_better_than(other, preference) {
                    *other = path;
                }
                return;
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
        let number = self.group_number(path.states[0][0], states);
        let is_less = |a: &Entry<H>, b: &Entry<H>| compare(&a.states, &b.states, states).is_lt();
        push(&mut self.groups[number as usize].heap, Entry { states: path.states, slot }, is_less);
    }

    /// Returns the group of a first state. Adds the group if it does not exist.
    fn group_number(&mut self, first_state: StateId, states: &HaplotypeStates) -> u32 {
        if let Some(number) = self.group_numbers.get(&first_state) {
            return *number;
        }
        let number = match self.free_groups.pop() {
            Some(number) => {
                self.groups[number as usize].first_state = first_state;
                number
            }
            None => {
                self.groups.push(Group { first_state, heap: Vec::new() });
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
        let is_less = |a: &Entry<H>, b: &Entry<H>| compare(&a.states, &b.states, states).is_lt();
        let first = pop(&mut group.heap, is_less)?;
        if group.heap.is_empty() {
            self.group_numbers.remove(&group.first_state);
            self.free_groups.push(number);
            pop(&mut self.group_heap, is_less_group(&self.groups, states));
        }
        self.free.push(first.slot);
        self.slots.remove(&first.states);
        Some(self.paths[first.slot as usize])
    }
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
