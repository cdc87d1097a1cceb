//! The paths in play, in the order in which the search takes them.

use std::cmp::Ordering;

use super::haplotype_states::{HaplotypeStates, IntegerMap, StateId};
use super::path::Path;
use crate::options::Preference;

/// A set of paths with different haplotypes. The least path is taken first: a binary heap of slots, and the slot of
/// each combination of haplotype states.
#[derive(Debug)]
pub(super) struct PathSet<const H: usize> {
    paths: Vec<Path<H>>,
    free: Vec<u32>,
    heap: Vec<u32>,
    slots: IntegerMap<[[StateId; H]; 2], u32>,
}

impl<const H: usize> PathSet<H> {
    pub(super) fn new() -> Self {
        Self { paths: Vec::new(), free: Vec::new(), heap: Vec::new(), slots: IntegerMap::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.paths.clear();
        self.free.clear();
        self.heap.clear();
        self.slots.clear();
    }

    /// Calls `visit` with every path.
    pub(super) fn for_each_mut(&mut self, mut visit: impl FnMut(&mut Path<H>)) {
        self.heap.iter().for_each(|slot| visit(&mut self.paths[*slot as usize]));
    }

    /// Updates the index after the numbers of states have changed.
    pub(super) fn index_again(&mut self) {
        self.slots = self.heap.iter().map(|slot| (self.paths[*slot as usize].states, *slot)).collect();
    }

    /// Returns whether a path is less than all paths of the set.
    pub(super) fn is_before_all(&self, path: &Path<H>, states: &HaplotypeStates) -> bool {
        self.heap.first().is_none_or(|slot| compare(path, &self.paths[*slot as usize], states).is_lt())
    }

    /// Adds a path. If the set has a path with the same haplotypes, the better of the two stays.
    pub(super) fn insert(&mut self, path: Path<H>, preference: Preference, states: &HaplotypeStates) {
        if let Some(slot) = self.slots.get(&path.states) {
            let other = &mut self.paths[*slot as usize];
            if path.is_better_than(other, preference) {
                *other = path;
            }
            return;
        }
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
        self.slots.insert(path.states, slot);
        self.heap.push(slot);
        let mut at = self.heap.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.compare_slots(slot, self.heap[parent], states).is_ge() {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = slot;
    }

    /// Removes the least path.
    pub(super) fn pop(&mut self, states: &HaplotypeStates) -> Option<Path<H>> {
        let first = *self.heap.first()?;
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.sift_down(last, states);
        }
        self.free.push(first);
        let path = self.paths[first as usize];
        self.slots.remove(&path.states);
        Some(path)
    }

    fn sift_down(&mut self, slot: u32, states: &HaplotypeStates) {
        let (count, mut at) = (self.heap.len(), 0);
        while 2 * at + 1 < count {
            let mut child = 2 * at + 1;
            if child + 1 < count && self.compare_slots(self.heap[child + 1], self.heap[child], states).is_lt() {
                child += 1;
            }
            if self.compare_slots(slot, self.heap[child], states).is_le() {
                break;
            }
            self.heap[at] = self.heap[child];
            at = child;
        }
        self.heap[at] = slot;
    }

    fn compare_slots(&self, a: u32, b: u32, states: &HaplotypeStates) -> Ordering {
        compare(&self.paths[a as usize], &self.paths[b as usize], states)
    }
}

fn compare<const H: usize>(a: &Path<H>, b: &Path<H>, states: &HaplotypeStates) -> Ordering {
    let pairs = a.states.as_flattened().iter().zip(b.states.as_flattened());
    pairs.fold(Ordering::Equal, |order, (a, b)| order.then_with(|| states.compare(*a, *b)))
}
