//! An index of sampled k-mers of a reference, which returns candidate positions from which to copy.
//!
//! Of all canonical 24-mers, those whose hash is in one eighth of its range are sampled. So equal sequences have the
//! same samples, whatever surrounds them. The table has buckets of four positions with one hash byte each, so that an
//! absent k-mer costs one memory access. Callers must compare the bases at a candidate position.

use std::ops::Range;

use super::bases::{Bases, NonAcgtInterval, WORD_BASES};
use super::error::DeltaError;

/// Number of bases in a k-mer.
pub(super) const KMER_BASES: usize = 24;
const KMER_MASK: u64 = (1 << (2 * KMER_BASES)) - 1;
/// Number of positions in a bucket.
const BUCKET_ENTRIES: usize = 4;
/// Mean distance between sampled k-mers, bases.
const KMER_SAMPLING_BASES: usize = 8;
/// Number of bases that a thread scans before the k-mers that were found are inserted into the table.
const SCAN_BASES_PER_THREAD: usize = 1 << 24;
/// A single thread fills a part of the table. A part has 2^17 buckets (2.6 MB), which fit into the cache of a
/// processor.
const PART_BITS: u32 = 17;
const PART_BUCKETS: usize = 1 << PART_BITS;
/// Number of k-mers that are inserted together, so that their memory accesses overlap.
const INSERT_BATCH_ENTRIES: usize = 64;

/// The k-mer that ends at the current base, and its reverse complement; both are updated base by base.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RollingKmer {
    forward: u64,
    reverse: u64,
    /// Number of bases since the last letter other than ACGT.
    valid_bases: usize,
}

impl RollingKmer {
    /// Clears the current k-mer, because the next letter is not one of ACGT.
    pub(super) fn reset(&mut self) {
        self.valid_bases = 0;
    }

    /// Appends a base; returns the hash of the k-mer that ends with this base, if that k-mer is sampled.
    #[inline]
    pub(super) fn push(&mut self, code: u8) -> Option<u64> {
        let (product, is_kept) = self.push_base(code);
        is_kept.then(|| kmer_hash(product))
    }

    /// Appends a base; returns the input of [`kmer_hash`], and whether the k-mer is sampled. One k-mer in eight is
    /// sampled at unpredictable positions, so loops over many bases should not branch on the result.
    #[inline]
    fn push_base(&mut self, code: u8) -> (u64, bool) {
        self.forward = (self.forward << 2 | u64::from(code)) & KMER_MASK;
        self.reverse = self.reverse >> 2 | u64::from(code ^ 2) << (2 * KMER_BASES - 2);
        self.valid_bases += 1;
        let product = self.forward.min(self.reverse).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The upper bits of the product depend on all bits of the k-mer.
        (product, (product >> 61 == 0) & (self.valid_bases >= KMER_BASES))
    }
}

fn kmer_hash(product: u64) -> u64 {
    (product ^ product >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// Positions of the sampled k-mers of a reference.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KmerIndex {
    /// One hash byte for each of the four positions of a bucket; 0 if there is no position.
    fingerprints: Vec<u32>,
    /// Positions in the reference divided by `2^shift`, four for each bucket.
    positions: Vec<[u32; BUCKET_ENTRIES]>,
    shift: u32,
}

impl KmerIndex {
    /// Builds the index of a reference. The result does not depend on the number of threads.
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

    /// Creates an index from the arrays that [`KmerIndex::table`] returned, for a reference of `bases` bases; `None` if
    /// they are invalid.
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

    /// Returns the hash bytes, the positions and the shift, which a cache file stores.
    pub(super) fn table(&self) -> (&[u32], &[[u32; BUCKET_ENTRIES]], u32) {
        (&self.fingerprints, &self.positions, self.shift)
    }

    /// Returns the size of the index in memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.fingerprints.len() * (size_of::<u32>() + size_of::<[u32; BUCKET_ENTRIES]>())
    }

    /// Calls `visit` with each position of the reference at which a k-mer with this hash may start.
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

/// A k-mer to insert, packed into one word to save memory. The upper 32 bits are the position divided by `2^shift`. The
/// lowest bits are the bucket within its part of the table, and the hash byte is above them.
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

/// Returns, for each part of the table, the sampled k-mers that end in the range, in order.
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
    // Branch-free filter: each k-mer is stored at `count`, and only sampled ones increment `count`, so the next k-mer
    // overwrites any other.
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

/// Returns a word with the upper bit set of each byte that is 0 in `word`.
fn zero_bytes(word: u32) -> u32 {
    let low = ONE_IN_EACH_BYTE * 0x7F;
    !(((word & low) + low) | word | low)
}

/// Inserts k-mers into one part of the table.
struct BucketFiller<'a> {
    fingerprints: &'a mut [u32],
    positions: &'a mut [[u32; BUCKET_ENTRIES]],
}

impl BucketFiller<'_> {
    fn insert_entries(&mut self, entries: &[IndexEntry]) {
        for batch in entries.chunks(INSERT_BATCH_ENTRIES) {
            // Load all buckets of the batch first: the loads are independent, so their latencies overlap.
            let touch = |sum: u32, entry: &IndexEntry| {
                let bucket = entry.bucket();
                self.fingerprints[bucket] ^ self.positions[bucket][0] ^ sum
            };
            std::hint::black_box(batch.iter().fold(0, touch));
            for entry in batch {
                let (bucket, mark) = (entry.bucket(), u32::from(entry.fingerprint()));
                let marks = self.fingerprints[bucket];
                let (empty, same) = (zero_bytes(marks), zero_bytes(marks ^ (ONE_IN_EACH_BYTE * mark)));
                // At most two positions are stored for a k-mer that occurs several times.
                if empty != 0 && same & same.wrapping_sub(1) == 0 {
                    let way = empty.trailing_zeros() / 8;
                    self.fingerprints[bucket] = marks | mark << (8 * way);
                    self.positions[bucket][way as usize] = entry.position();
                }
            }
        }
    }
}

/// Positions of sampled k-mers in the already processed bases of the target sequence itself, at most one for each
/// k-mer.
#[derive(Debug)]
pub(super) struct SelfKmerIndex {
    /// Position of the k-mer plus one; 0 if there is none.
    positions: Vec<u32>,
}

impl SelfKmerIndex {
    /// Returns an empty index for a target sequence of `bases` bases.
    pub(super) fn new(bases: usize) -> Self {
        Self { positions: vec![0; (bases / KMER_SAMPLING_BASES + 1).next_power_of_two()] }
    }

    /// Returns the position of a k-mer with this hash, or of another k-mer with the same table index.
    pub(super) fn get(&self, hash: u64) -> Option<usize> {
        self.positions[self.slot(hash)].checked_sub(1).map(|place| place as usize)
    }

    /// Stores the position of a k-mer with this hash; replaces the position that was stored at the same table index.
    pub(super) fn set(&mut self, hash: u64, place: usize) {
        let slot = self.slot(hash);
        self.positions[slot] = place as u32 + 1;
    }

    fn slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.positions.len() - 1)
    }
}

/// Rejects references of 2^46 bases or more: their positions, divided by 2^15, would not fit into 32 bits.
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
