//! The states of one haplotype while its alleles are played on the reference, numbered so that equal states have one
//! number, with the state that follows each of them.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::ForEach;
use crate::alleles::{AlleleRank, AlleleTable, NO_ALLELE, Template};

/// Number of a state in [`HaplotypeStates`].
pub(super) type StateId = u32;

/// The next state is not known yet.
const UNKNOWN: StateId = u32::MAX;
/// Place in an allele of a haplotype that is on the reference.
const ON_REFERENCE: i32 = -1;
/// Number of the empty queue.
const EMPTY_QUEUE: u32 = 0;

/// The key of a state: position on the reference, the allele that is played now or next, the place in it, and the
/// number of the queue of alleles after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    position: i32,
    allele: AlleleRank,
    place: i32,
    queue: u32,
}

#[derive(Clone, Copy, Debug)]
struct State {
    key: Key,
    base: u8,
    wants_bases: bool,
    next: StateId,
}

/// A hasher for short keys of integers that the search computes itself.
#[derive(Default)]
pub(super) struct IntegerHasher(u64);

impl Hasher for IntegerHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_i32(&mut self, number: i32) {
        self.write_u64(u64::from(number.cast_unsigned()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

pub(super) type IntegerMap<K, V> = HashMap<K, V, BuildHasherDefault<IntegerHasher>>;

/// The states that the haplotypes of all paths have reached.
#[derive(Debug)]
pub(super) struct HaplotypeStates<'c> {
    template: &'c Template,
    alleles: &'c AlleleTable,
    states: Vec<State>,
    /// The order of each state: position, allele, place, and the number of the queue, 32 bits each. Apart from the
    /// states, so that more of them are in the cache while paths are sorted.
    ranks: Vec<u128>,
    numbers: IntegerMap<Key, StateId>,
    queues: Vec<Box<[AlleleRank]>>,
    queue_numbers: HashMap<Box<[AlleleRank]>, u32>,
    added: IntegerMap<(StateId, AlleleRank), StateId>,
}

impl<'c> HaplotypeStates<'c> {
    pub(super) fn new(template: &'c Template, alleles: &'c AlleleTable) -> Self {
        let mut states = Self {
            template,
            alleles,
            states: Vec::new(),
            ranks: Vec::new(),
            numbers: IntegerMap::default(),
            queues: Vec::new(),
            queue_numbers: HashMap::new(),
            added: IntegerMap::default(),
        };
        states.queue_number(Vec::new());
        states
    }

    /// Returns the number of states.
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns the state on the reference at a position; -1 is before the first base.
    pub(super) fn start(&mut self, position: i32) -> StateId {
        self.state(Key { position, allele: NO_ALLELE, place: ON_REFERENCE, queue: EMPTY_QUEUE })
    }

    /// Removes all states but `kept`, and updates their numbers.
    pub(super) fn retain(&mut self, kept: &mut ForEach<StateId>) {
        let mut fresh = Self::new(self.template, self.alleles);
        kept(&mut |state| {
            let mut key = self.states[*state as usize].key;
            key.queue = fresh.queue_number(self.queues[key.queue as usize].to_vec());
            *state = fresh.state(key);
        });
        *self = fresh;
    }

    fn queue_number(&mut self, queue: Vec<AlleleRank>) -> u32 {
        if let Some(number) = self.queue_numbers.get(queue.as_slice()) {
            return *number;
        }
        let number = self.queues.len() as u32;
        self.queues.push(queue.clone().into_boxed_slice());
        self.queue_numbers.insert(queue.into_boxed_slice(), number);
        number
    }

    fn state(&mut self, key: Key) -> StateId {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let base = match key.place {
            ON_REFERENCE => self.template.base(key.position),
            place => self.alleles.base(key.allele, place),
        };
        let number = self.states.len() as StateId;
        self.states.push(State { key, base, wants_bases: self.wants_bases(key), next: UNKNOWN });
        self.ranks.push(rank(key));
        self.numbers.insert(key, number);
        number
    }

    fn wants_bases(&self, key: Key) -> bool {
        if key.allele == NO_ALLELE {
            return true;
        }
        let base_count = |allele: AlleleRank| self.alleles.allele(allele).base_count;
        let is_inside = key.place != ON_REFERENCE && key.place + 1 < base_count(key.allele) as i32;
        !is_inside && self.queues[key.queue as usize].iter().all(|allele| base_count(*allele) == 0)
    }

    fn key(&self, state: StateId) -> Key {
        self.states[state as usize].key
    }

    /// Returns the position on the reference.
    pub(super) fn position(&self, state: StateId) -> i32 {
        self.states[state as usize].key.position
    }

    /// Returns whether the haplotype is on the reference, not within an allele.
    pub(super) fn is_on_reference(&self, state: StateId) -> bool {
        self.states[state as usize].key.place == ON_REFERENCE
    }

    /// Returns the code of the current base.
    pub(super) fn base(&self, state: StateId) -> u8 {
        self.states[state as usize].base
    }

    /// Returns whether the haplotype has no bases left in its alleles, so that a later allele may follow at once.
    pub(super) fn wants_future_bases(&self, state: StateId) -> bool {
        self.states[state as usize].wants_bases
    }

    /// Returns whether the reference has a base after the position.
    pub(super) fn has_next(&self, state: StateId) -> bool {
        self.position(state) < self.template.base_count() - 1
    }

    /// Returns the state with an allele after those that are to be played. An allele without effect is not added.
    pub(super) fn add(&mut self, state: StateId, allele: AlleleRank) -> StateId {
        if let Some(found) = self.added.get(&(state, allele)) {
            return *found;
        }
        let mut key = self.key(state);
        if key.allele == NO_ALLELE {
            key.allele = allele;
        } else {
            let mut queue = self.queues[key.queue as usize].to_vec();
            queue.push(allele);
            key.queue = self.queue_number(queue);
        }
        let found = self.state(key);
        self.added.insert((state, allele), found);
        found
    }

    /// Returns the state after the next base.
    pub(super) fn next(&mut self, state: StateId) -> StateId {
        let next = self.states[state as usize].next;
        if next != UNKNOWN {
            return next;
        }
        let next = self.advance(self.key(state));
        self.states[state as usize].next = next;
        next
    }

    /// Returns the state at a position further along the reference. An allele that is played now is dropped with those
    /// after it.
    pub(super) fn move_forward(&mut self, state: StateId, position: i32) -> StateId {
        let mut key = self.key(state);
        if key.place != ON_REFERENCE {
            (key.allele, key.place, key.queue) = (NO_ALLELE, ON_REFERENCE, EMPTY_QUEUE);
        }
        key.position = position - 1;
        self.advance(key)
    }

    fn advance(&mut self, mut key: Key) -> StateId {
        if key.place == ON_REFERENCE {
            key.position += 1;
            if key.allele != NO_ALLELE && self.alleles.allele(key.allele).start == key.position {
                key.place = 0;
            }
        } else {
            key.place += 1;
        }
        // Repeat, because alleles may be adjacent, and because the allele of a deletion has no bases.
        while key.allele != NO_ALLELE {
            let allele = self.alleles.allele(key.allele);
            if key.place != allele.base_count as i32 {
                break;
            }
            (key.position, key.place) = (allele.end, ON_REFERENCE);
            let queue = self.queues[key.queue as usize].clone();
            key.allele = queue.first().copied().unwrap_or(NO_ALLELE);
            if key.allele == NO_ALLELE {
                break;
            }
            key.queue = self.queue_number(queue[1..].to_vec());
            if self.alleles.allele(key.allele).start == key.position {
                key.place = 0;
            } else {
                break;
            }
        }
        self.state(key)
    }

    /// Compares two states in the order of vcfeval: position, allele, place, queue.
    pub(super) fn compare(&self, a: StateId, b: StateId) -> Ordering {
        let (a, b) = (self.ranks[a as usize], self.ranks[b as usize]);
        let queue = |rank: u128| &self.queues[(rank & u128::from(u32::MAX)) as usize];
        (a >> 32).cmp(&(b >> 32)).then_with(|| queue(a).cmp(queue(b)))
    }
}

/// Returns a number with the order of position, allele and place, and the number of the queue. Positions and places
/// start at -1.
fn rank(key: Key) -> u128 {
    let number = |value: i32| u128::from((value + 1).cast_unsigned());
    number(key.position) << 96 | u128::from(key.allele) << 64 | number(key.place) << 32 | u128::from(key.queue)
}
