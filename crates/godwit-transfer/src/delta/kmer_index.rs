//! An index of sampled k-mers of a reference, which suggests positions to copy from.
//!
//! Of all canonical 24-mers, those with a hash in one eighth of all values are sampled. So a sequence and its reference have
//! the same samples, independent of context. The table has buckets of four positions with one hash byte each, so that an
//! absent k-mer is known by one access. Positions are candidates until bases are compared.

use std::ops::Range;

use super::bases::{Bases, NonAcgtInterval, WORD_BASES};
use super::error::DeltaError;

/// Bases per k-mer.
pub(super) const KMER_BASES: usize = 24;
const KMER_MASK: u64 = (1 << (2 * KMER_BASES)) - 1;
/// Positions per bucket.
const BUCKET_ENTRIES: usize = 4;
/// Bases per sampled k-mer, on average.
const KMER_SAMPLING_BASES: usize = 8;
/// Bases that a thread scans before the results are inserted into the table.
const SCAN_BASES_PER_THREAD: usize = 1 << 24;
/// Buckets of a part of the table that one thread fills, as a power of two: 2.6 MB, which fit into caches.
const PART_BITS: u32 = 17;
const PART_BUCKETS: usize = 1 << PART_BITS;
/// K-mers inserted together, so that memory latencies overlap.
const INSERT_BATCH_ENTRIES: usize = 64;

/// The current k-mer and its reverse complement, updated base by base.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RollingKmer {
    forward: u64,
    reverse: u64,
    /// Bases since the last other letter.
    valid_bases: usize,
}

impl RollingKmer {
    /// Restarts after a letter other than ACGT.
    pub(super) fn reset(&mut self) {
        self.valid_bases = 0;
    }

    /// Adds a base; returns the hash of the k-mer that ends there, if it is sampled.
    #[inline]
    pub(super) fn push(&mut self, code: u8) -> Option<u64> {
        let (product, is_kept) = self.push_base(code);
        is_kept.then(|| kmer_hash(product))
    }

    /// Adds a base; returns the input of the hash, and whether the k-mer is sampled. One in eight is, which is unpredictable,
    /// so loops over many bases should not branch on each.
    #[inline]
    fn push_base(&mut self, code: u8) -> (u64, bool) {
        self.forward = (self.forward << 2 | u64::from(code)) & KMER_MASK;
        self.reverse = self.reverse >> 2 | u64::from(code ^ 2) << (2 * KMER_BASES - 2);
        self.valid_bases += 1;
        let product = self.forward.min(self.reverse).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The upper bits of a product depend on all bits of the factor.
        (product, (product >> 61 == 0) & (self.valid_bases >= KMER_BASES))
    }
}

fn kmer_hash(product: u64) -> u64 {
    (product ^ product >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// Positions of sampled k-mers of a reference.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KmerIndex {
    /// One hash byte for each position of a bucket; 0 if empty.
    fingerprints: Vec<u32>,
    /// Positions in the reference, divided by `2^shift`.
    positions: Vec<[u32; BUCKET_ENTRIES]>,
    shift: u32,
}

impl KmerIndex {
    /// Builds the table of a reference. The number of threads does not change it.
    pub(super) fn build(bases: &Bases, non_acgt: &[NonAcgtInterval], threads: usize) -> Self {
        let buckets = (bases.count() / KMER_SAMPLING_BASES * 10 / 7 / BUCKET_ENTRIES + 1).min(u32::MAX as usize);
        let shift = (usize::BITS - bases.count().leading_zeros()).saturating_sub(32);
        let mut anchors = Self { fingerprints: vec![0; buckets], positions: vec![[0; BUCKET_ENTRIES]; buckets], shift };
        let threads = threads.max(1);
        let round = SCAN_BASES_PER_THREAD * threads;
        for start in (0..bases.count()).step_by(round) {
            let range_starts = (start..(start + round).min(bases.count())).step_by(SCAN_BASES_PER_THREAD);
            let scans: Vec<Vec<Vec<IndexEntry>>> = std::thread::scope(|scope| {
                let scan = |start: usize| {
                    let range = start..(start + SCAN_BASES_PER_THREAD).min(bases.count());
                    scope.spawn(move || scan_kmers(bases, non_acgt, range, buckets, shift))
                };
                let running: Vec<_> = range_starts.map(scan).collect();
                running.into_iter().map(|scan| scan.join().expect("scanning bases does not panic")).collect()
            });
            let scans = &scans;
            std::thread::scope(|scope| {
                let parts =
                    anchors.fingerprints.chunks_mut(PART_BUCKETS).zip(anchors.positions.chunks_mut(PART_BUCKETS));
                let mut parts: Vec<_> = parts.enumerate().collect();
                let share = parts.len().div_ceil(threads);
                while !parts.is_empty() {
                    let some = parts.split_off(parts.len().saturating_sub(share));
                    scope.spawn(move || {
                        for (at, (fingerprints, positions)) in some {
                            let mut filler = BucketFiller { fingerprints, positions };
                            scans.iter().for_each(|parts| filler.insert_entries(&parts[at]));
                        }
                    });
                }
            });
        }
        anchors
    }

    /// Takes the parts that [`KmerIndex::table`] returned for a reference of that many bases; `None` if they are invalid.
    pub(super) fn from_table(
        fingerprints: Vec<u32>,
        positions: Vec<[u32; BUCKET_ENTRIES]>,
        shift: u32,
        bases: usize,
    ) -> Option<Self> {
        let fits = !fingerprints.is_empty() && fingerprints.len() == positions.len() && shift < 16;
        let inside = || positions.iter().flatten().all(|place| (*place as usize) << shift <= bases);
        (fits && inside()).then_some(Self { fingerprints, positions, shift })
    }

    /// Returns the parts of the table.
    pub(super) fn table(&self) -> (&[u32], &[[u32; BUCKET_ENTRIES]], u32) {
        (&self.fingerprints, &self.positions, self.shift)
    }

    /// Returns the size in memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.fingerprints.len() * (size_of::<u32>() + size_of::<[u32; BUCKET_ENTRIES]>())
    }

    /// Calls `visit` with each position of the reference where the k-mer of that hash may start.
    pub(super) fn for_each_candidate(&self, hash: u64, mut visit: impl FnMut(usize)) {
        let bucket = bucket_index(hash, self.fingerprints.len());
        let marks = self.fingerprints[bucket].to_le_bytes();
        let mark = fingerprint(hash);
        for (way, known) in marks.into_iter().enumerate() {
            if known == mark {
                let place = (self.positions[bucket][way] as usize) << self.shift;
                (place..place + (1 << self.shift)).for_each(&mut visit);
            }
        }
    }
}

fn bucket_index(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

fn fingerprint(hash: u64) -> u8 {
    hash as u8 | 1
}

/// A k-mer to insert, in one word to save memory: the position divided by `2^shift` in the upper half, the bucket within its
/// part of the table in the lowest bits, and the fingerprint above that.
#[derive(Clone, Copy, Debug)]
struct IndexEntry(u64);

impl IndexEntry {
    fn new(bucket: usize, mark: u8, place: usize, shift: u32) -> Self {
        let within = bucket & (PART_BUCKETS - 1);
        Self(((place >> shift) as u64) << 32 | u64::from(mark) << PART_BITS | within as u64)
    }

    fn bucket(self) -> usize {
        self.0 as usize & (PART_BUCKETS - 1)
    }

    fn fingerprint(self) -> u8 {
        (self.0 >> PART_BITS) as u8
    }

    fn position(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Returns the sampled k-mers that end in a range, in order, for each part of the table.
fn scan_kmers(
    bases: &Bases,
    non_acgt: &[NonAcgtInterval],
    range: Range<usize>,
    buckets: usize,
    shift: u32,
) -> Vec<Vec<IndexEntry>> {
    let parts = buckets.div_ceil(PART_BUCKETS);
    let expected = range.len() / KMER_SAMPLING_BASES / parts;
    let mut entries: Vec<Vec<IndexEntry>> = (0..parts).map(|_| Vec::with_capacity(expected + expected / 8)).collect();
    let mut roller = RollingKmer::default();
    // An entry that is not sampled is overwritten by the next, or stays after the sampled ones.
    let mut kept = [(0, 0); WORD_BASES + 1];
    let mut at = range.start.saturating_sub(KMER_BASES - 1);
    let first = non_acgt.partition_point(|run| run.end <= at);
    let runs = non_acgt[first..].iter().take_while(|run| run.start < range.end).map(|run| (run.start, run.end));
    for (start, next) in runs.chain([(range.end, range.end)]) {
        while at < start {
            let word = bases.window(at);
            let stop = (at + WORD_BASES).min(start);
            let mut count = 0;
            for place in at..stop {
                let (product, is_kept) = roller.push_base((word >> (2 * (place - at))) as u8 & 3);
                kept[count] = (product, place);
                count += usize::from(is_kept);
            }
            for (product, place) in &kept[..count] {
                let hash = kmer_hash(*product);
                let bucket = bucket_index(hash, buckets);
                entries[bucket >> PART_BITS].push(IndexEntry::new(
                    bucket,
                    fingerprint(hash),
                    place + 1 - KMER_BASES,
                    shift,
                ));
            }
            at = stop;
        }
        roller.reset();
        at = at.max(next);
    }
    entries
}

const ONE_IN_EACH_BYTE: u32 = 0x0101_0101;

/// Returns the upper bit of each byte that is 0.
fn zero_bytes(word: u32) -> u32 {
    let low = ONE_IN_EACH_BYTE * 0x7F;
    !(((word & low) + low) | word | low)
}

/// The filler of a part of the buckets.
struct BucketFiller<'a> {
    fingerprints: &'a mut [u32],
    positions: &'a mut [[u32; BUCKET_ENTRIES]],
}

impl BucketFiller<'_> {
    fn insert_entries(&mut self, entries: &[IndexEntry]) {
        for batch in entries.chunks(INSERT_BATCH_ENTRIES) {
            // Independent loads: all are issued before the first result is needed.
            let touch = |sum: u32, entry: &IndexEntry| {
                let bucket = entry.bucket();
                self.fingerprints[bucket] ^ self.positions[bucket][0] ^ sum
            };
            std::hint::black_box(batch.iter().fold(0, touch));
            for entry in batch {
                let (bucket, mark) = (entry.bucket(), u32::from(entry.fingerprint()));
                let marks = self.fingerprints[bucket];
                let (empty, same) = (zero_bytes(marks), zero_bytes(marks ^ (ONE_IN_EACH_BYTE * mark)));
                // A repeated k-mer has two positions.
                if empty != 0 && same & same.wrapping_sub(1) == 0 {
                    let way = empty.trailing_zeros() / 8;
                    self.fingerprints[bucket] = marks | mark << (8 * way);
                    self.positions[bucket][way as usize] = entry.position();
                }
            }
        }
    }
}

/// Positions of sampled k-mers in the earlier part of the sequence itself, one for each.
#[derive(Debug)]
pub(super) struct SelfKmerIndex {
    /// Position plus one; 0 if empty.
    positions: Vec<u32>,
}

impl SelfKmerIndex {
    /// Returns a table for a sequence of that many bases.
    pub(super) fn new(bases: usize) -> Self {
        Self { positions: vec![0; (bases / KMER_SAMPLING_BASES + 1).next_power_of_two()] }
    }

    /// Returns a position of a k-mer with that hash, or of another in the same slot.
    pub(super) fn get(&self, hash: u64) -> Option<usize> {
        self.positions[self.slot(hash)].checked_sub(1).map(|place| place as usize)
    }

    /// Stores the position of a k-mer of that hash.
    pub(super) fn set(&mut self, hash: u64, place: usize) {
        let slot = self.slot(hash);
        self.positions[slot] = place as u32 + 1;
    }

    fn slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.positions.len() - 1)
    }
}

/// Rejects references whose positions do not fit 32 bits at a granularity of 2^15.
pub(super) fn check_reference_size(bases: u64) -> Result<(), DeltaError> {
    match bases < 1 << 46 {
        true => Ok(()),
        false => Err(DeltaError::ReferenceTooLarge { bases }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bases::LetterSplitter;
    use super::*;

    fn random_bases(count: usize) -> Bases {
        let mut state = 7_u64;
        let mut splitter = LetterSplitter::default();
        for _ in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            splitter.push_letters(&[b"ACGT"[(state >> 40) as usize % 4]]);
        }
        splitter.finish().0
    }

    #[test]
    fn nearly_all_sampled_kmers_are_found() {
        let bases = random_bases(100_000);
        let anchors = KmerIndex::build(&bases, &[], 1);
        assert_eq!(anchors, KmerIndex::build(&bases, &[], 3), "threads change nothing");
        let (mut kept, mut found) = (0, 0);
        let mut roller = RollingKmer::default();
        for end in 1..=bases.count() {
            let Some(hash) = roller.push(bases.get(end - 1)) else { continue };
            kept += 1;
            anchors.for_each_candidate(hash, |place| found += usize::from(place + KMER_BASES == end));
        }
        assert!((11_000..14_000).contains(&kept), "{kept} of 100,000");
        assert!(found * 100 > kept * 90, "{found} of {kept}");
    }

    #[test]
    fn a_k_mer_and_its_reverse_complement_have_one_hash() {
        let bases = random_bases(1000);
        let mut roller = RollingKmer::default();
        let forward: Vec<_> = (0..1000).filter_map(|at| roller.push(bases.get(at))).collect();
        let mut roller = RollingKmer::default();
        let mut reverse: Vec<_> = (0..1000).rev().filter_map(|at| roller.push(bases.get(at) ^ 2)).collect();
        reverse.reverse();
        assert_eq!(forward, reverse);
    }
}
