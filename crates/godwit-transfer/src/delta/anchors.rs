//! Where k-mers are in a reference: how a place that continues a sequence is found.
//!
//! Of all 24-mers, told from their reverse complements by neither, those whose hash ends up in an eighth of all values are
//! kept, so that a sequence and its reference choose the same ones whatever lies around them. The table has buckets of four
//! places, with a byte of the hash for each, so that a k-mer that is nowhere is known by one look. What it says is a guess
//! until bases are compared.

use std::ops::Range;

use super::bases::{Bases, OtherRun, WORD_BASES};
use super::error::DeltaError;

/// Bases of a k-mer.
pub(super) const K: usize = 24;
const MASK: u64 = (1 << (2 * K)) - 1;
/// Places in a bucket.
const WAYS: usize = 4;
/// Bases for one k-mer that is kept, on average.
const SAMPLING: usize = 8;
/// Bases that a thread scans before what it found is put into the table.
const ROUND_BASES: usize = 1 << 24;
/// Buckets of a part of the table that is filled at once, as a power of two: 2.6 MB, which caches hold.
const PART_BITS: u32 = 17;
const PART_BUCKETS: usize = 1 << PART_BITS;
/// K-mers looked up at once, so that waiting for memory overlaps.
const BATCH: usize = 64;

/// The k-mer at hand and its reverse complement, base by base.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Roller {
    forward: u64,
    reverse: u64,
    /// Bases since the last that does not count.
    bases: usize,
}

impl Roller {
    /// Starts over behind something that is no base.
    pub(super) fn reset(&mut self) {
        self.bases = 0;
    }

    /// Takes the next base. The hash of the k-mer that it ends, where that is one of those that are kept.
    #[inline]
    pub(super) fn push(&mut self, code: u8) -> Option<u64> {
        let (product, is_kept) = self.roll(code);
        is_kept.then(|| hash_of(product))
    }

    /// Takes the next base: what the hash is made of, and whether the k-mer is kept. One in eight is, which no processor foresees, so
    /// whoever has many bases does better not to branch on each.
    #[inline]
    fn roll(&mut self, code: u8) -> (u64, bool) {
        self.forward = (self.forward << 2 | u64::from(code)) & MASK;
        self.reverse = self.reverse >> 2 | u64::from(code ^ 2) << (2 * K - 2);
        self.bases += 1;
        let product = self.forward.min(self.reverse).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The upper bits of a product depend on all of the factor.
        (product, (product >> 61 == 0) & (self.bases >= K))
    }
}

fn hash_of(product: u64) -> u64 {
    (product ^ product >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// Places of k-mers of a reference.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Anchors {
    /// A byte for each place of a bucket; 0 where there is none.
    marks: Vec<u32>,
    /// Places in the reference, divided by `2^shift`.
    places: Vec<[u32; WAYS]>,
    shift: u32,
}

impl Anchors {
    /// The table of a reference whose unknown bases are `others`, the same for any number of threads.
    pub(super) fn build(bases: &Bases, others: &[OtherRun], threads: usize) -> Self {
        let buckets = (bases.count() / SAMPLING * 10 / 7 / WAYS + 1).min(u32::MAX as usize);
        let shift = (usize::BITS - bases.count().leading_zeros()).saturating_sub(32);
        let mut anchors = Self { marks: vec![0; buckets], places: vec![[0; WAYS]; buckets], shift };
        let threads = threads.max(1);
        let round = ROUND_BASES * threads;
        for start in (0..bases.count()).step_by(round) {
            let stretches = (start..(start + round).min(bases.count())).step_by(ROUND_BASES);
            let scans: Vec<Vec<Vec<Entry>>> = std::thread::scope(|scope| {
                let scan = |start: usize| {
                    let stretch = start..(start + ROUND_BASES).min(bases.count());
                    scope.spawn(move || scan(bases, others, stretch, buckets, shift))
                };
                let running: Vec<_> = stretches.map(scan).collect();
                running.into_iter().map(|scan| scan.join().expect("scanning bases does not panic")).collect()
            });
            let scans = &scans;
            std::thread::scope(|scope| {
                let parts = anchors.marks.chunks_mut(PART_BUCKETS).zip(anchors.places.chunks_mut(PART_BUCKETS));
                let mut parts: Vec<_> = parts.enumerate().collect();
                let share = parts.len().div_ceil(threads);
                while !parts.is_empty() {
                    let some = parts.split_off(parts.len().saturating_sub(share));
                    scope.spawn(move || {
                        for (at, (marks, places)) in some {
                            let mut filler = Filler { marks, places };
                            scans.iter().for_each(|parts| filler.insert(&parts[at]));
                        }
                    });
                }
            });
        }
        anchors
    }

    /// Takes over a table that [`Anchors::parts`] showed, of a reference of that many bases; `None` where it is no such
    /// table.
    pub(super) fn from_parts(marks: Vec<u32>, places: Vec<[u32; WAYS]>, shift: u32, bases: usize) -> Option<Self> {
        let fits = !marks.is_empty() && marks.len() == places.len() && shift < 16;
        let inside = || places.iter().flatten().all(|place| (*place as usize) << shift <= bases);
        (fits && inside()).then_some(Self { marks, places, shift })
    }

    /// What the table is made of.
    pub(super) fn parts(&self) -> (&[u32], &[[u32; WAYS]], u32) {
        (&self.marks, &self.places, self.shift)
    }

    /// Bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.marks.len() * (size_of::<u32>() + size_of::<[u32; WAYS]>())
    }

    /// Gives `see` every place of the reference where the k-mer of that hash may start.
    pub(super) fn candidates(&self, hash: u64, mut see: impl FnMut(usize)) {
        let bucket = bucket_of(hash, self.marks.len());
        let marks = self.marks[bucket].to_le_bytes();
        let mark = mark_of(hash);
        for (way, known) in marks.into_iter().enumerate() {
            if known == mark {
                let place = (self.places[bucket][way] as usize) << self.shift;
                (place..place + (1 << self.shift)).for_each(&mut see);
            }
        }
    }
}

fn bucket_of(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

fn mark_of(hash: u64) -> u8 {
    hash as u8 | 1
}

/// A k-mer to be put into the table, in one word, because there are many: its place divided by `2^shift` in the upper half, its bucket
/// within its part of the table in the lowest bits, and its mark above that.
#[derive(Clone, Copy, Debug)]
struct Entry(u64);

impl Entry {
    fn new(bucket: usize, mark: u8, place: usize, shift: u32) -> Self {
        let within = bucket & (PART_BUCKETS - 1);
        Self(((place >> shift) as u64) << 32 | u64::from(mark) << PART_BITS | within as u64)
    }

    fn bucket(self) -> usize {
        self.0 as usize & (PART_BUCKETS - 1)
    }

    fn mark(self) -> u8 {
        (self.0 >> PART_BITS) as u8
    }

    fn place(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The k-mers that end in a stretch, in order, for each part of the buckets.
fn scan(bases: &Bases, others: &[OtherRun], stretch: Range<usize>, buckets: usize, shift: u32) -> Vec<Vec<Entry>> {
    let parts = buckets.div_ceil(PART_BUCKETS);
    let expected = stretch.len() / SAMPLING / parts;
    let mut entries: Vec<Vec<Entry>> = (0..parts).map(|_| Vec::with_capacity(expected + expected / 8)).collect();
    let mut roller = Roller::default();
    // The last one of a word that is not kept lies behind all that are.
    let mut kept = [(0, 0); WORD_BASES + 1];
    let mut at = stretch.start.saturating_sub(K - 1);
    let first = others.partition_point(|run| run.end <= at);
    let runs = others[first..].iter().take_while(|run| run.start < stretch.end).map(|run| (run.start, run.end));
    for (start, next) in runs.chain([(stretch.end, stretch.end)]) {
        while at < start {
            let word = bases.window(at);
            let stop = (at + WORD_BASES).min(start);
            let mut count = 0;
            for place in at..stop {
                let (product, is_kept) = roller.roll((word >> (2 * (place - at))) as u8 & 3);
                kept[count] = (product, place);
                count += usize::from(is_kept);
            }
            for (product, place) in &kept[..count] {
                let hash = hash_of(*product);
                let bucket = bucket_of(hash, buckets);
                entries[bucket >> PART_BITS].push(Entry::new(bucket, mark_of(hash), place + 1 - K, shift));
            }
            at = stop;
        }
        roller.reset();
        at = at.max(next);
    }
    entries
}

const EACH_BYTE: u32 = 0x0101_0101;

/// The upper bit of each byte that is 0.
fn zero_bytes(word: u32) -> u32 {
    let low = EACH_BYTE * 0x7F;
    !(((word & low) + low) | word | low)
}

/// Fills some of the buckets.
struct Filler<'a> {
    marks: &'a mut [u32],
    places: &'a mut [[u32; WAYS]],
}

impl Filler<'_> {
    fn insert(&mut self, entries: &[Entry]) {
        for batch in entries.chunks(BATCH) {
            // Loads that wait for nothing: all are on their way before the first is needed.
            let touch = |sum: u32, entry: &Entry| {
                let bucket = entry.bucket();
                self.marks[bucket] ^ self.places[bucket][0] ^ sum
            };
            std::hint::black_box(batch.iter().fold(0, touch));
            for entry in batch {
                let (bucket, mark) = (entry.bucket(), u32::from(entry.mark()));
                let marks = self.marks[bucket];
                let (empty, same) = (zero_bytes(marks), zero_bytes(marks ^ (EACH_BYTE * mark)));
                // Of a k-mer that is repeated, two places are kept.
                if empty != 0 && same & same.wrapping_sub(1) == 0 {
                    let way = empty.trailing_zeros() / 8;
                    self.marks[bucket] = marks | mark << (8 * way);
                    self.places[bucket][way as usize] = entry.place();
                }
            }
        }
    }
}

/// Where k-mers are in what was seen of a sequence itself: one place of each.
#[derive(Debug)]
pub(super) struct OwnAnchors {
    /// One more than the place; 0 where there is none.
    places: Vec<u32>,
}

impl OwnAnchors {
    /// A table for a sequence of that many bases.
    pub(super) fn new(bases: usize) -> Self {
        Self { places: vec![0; (bases / SAMPLING + 1).next_power_of_two()] }
    }

    /// A place of a k-mer of that hash, or of another.
    pub(super) fn get(&self, hash: u64) -> Option<usize> {
        self.places[self.slot(hash)].checked_sub(1).map(|place| place as usize)
    }

    /// Notes the place of a k-mer of that hash.
    pub(super) fn set(&mut self, hash: u64, place: usize) {
        let slot = self.slot(hash);
        self.places[slot] = place as u32 + 1;
    }

    fn slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.places.len() - 1)
    }
}

/// Refuses what positions of 32 bits at most 2^15 apart cannot say.
pub(super) fn check_size(bases: u64) -> Result<(), DeltaError> {
    match bases < 1 << 46 {
        true => Ok(()),
        false => Err(DeltaError::TooLarge { bases }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bases::Splitter;
    use super::*;

    fn bases(count: usize) -> Bases {
        let mut state = 7_u64;
        let mut splitter = Splitter::default();
        for _ in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            splitter.push(&[b"ACGT"[(state >> 40) as usize % 4]]);
        }
        splitter.finish().0
    }

    #[test]
    fn nearly_all_k_mers_that_are_kept_are_found_again() {
        let bases = bases(100_000);
        let anchors = Anchors::build(&bases, &[], 1);
        assert_eq!(anchors, Anchors::build(&bases, &[], 3), "threads change nothing");
        let (mut kept, mut found) = (0, 0);
        let mut roller = Roller::default();
        for end in 1..=bases.count() {
            let Some(hash) = roller.push(bases.get(end - 1)) else { continue };
            kept += 1;
            anchors.candidates(hash, |place| found += usize::from(place + K == end));
        }
        assert!((11_000..14_000).contains(&kept), "{kept} of 100,000");
        assert!(found * 100 > kept * 90, "{found} of {kept}");
    }

    #[test]
    fn a_k_mer_and_its_reverse_complement_have_one_hash() {
        let bases = bases(1000);
        let mut roller = Roller::default();
        let forward: Vec<_> = (0..1000).filter_map(|at| roller.push(bases.get(at))).collect();
        let mut roller = Roller::default();
        let mut reverse: Vec<_> = (0..1000).rev().filter_map(|at| roller.push(bases.get(at) ^ 2)).collect();
        reverse.reverse();
        assert_eq!(forward, reverse);
    }
}
