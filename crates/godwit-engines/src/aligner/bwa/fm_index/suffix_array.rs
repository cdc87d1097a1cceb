//! Computes the suffix array at every second, eighth or thirty-second row from the samples in bwa's `.sa` file (every
//! thirty-second row).
//!
//! From each row that bwa sampled, a walk follows the text backwards, one base per step, to the next sampled row. A
//! walk has 32 steps on average, and all walks together visit each row once. Each step reads a random cache line of the
//! transform. A thread therefore advances many walks in turn, so that the processor fetches their cache lines in
//! parallel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use godwit_kernels::threads::for_each_index;

use super::bwt::Bwt;
use super::indexed_text::IndexedText;
use super::memory_hints::{prefetch, use_huge_pages};
use super::{SampleStride, sample_count};

/// Number of rows between two samples in bwa's `.sa` file (`bwa index` 0.7.17, `bwa_idx_build`).
pub(super) const BWA_STRIDE: u64 = 32;
/// Size of the header before the samples in the `.sa` file, bytes. The file does not contain the sample of row 0.
pub(super) const SA_HEADER_BYTES: u64 = 56;
/// Number of walks that a thread advances in turn: more than the number of cache lines that a processor fetches at a
/// time.
const WALKS_PER_THREAD: usize = 32;
/// Number of samples per read of the `.sa` file, 512 KiB.
const SAMPLES_PER_READ: u64 = 64 << 10;

/// Text positions of the suffixes of the sampled rows. Each position has five bytes, as in the file of bwa-mem2.
pub(super) struct SampledSuffixArray {
    low: Vec<AtomicU32>,
    high: Vec<AtomicU8>,
    stride: SampleStride,
}

/// A reader of the samples in bwa's `.sa` file.
pub(super) struct BwaSuffixArray<'a> {
    file: &'a File,
    rows: u64,
}

/// A walk backwards through the text: its current row, and the text position of the suffix of that row.
#[derive(Clone, Copy)]
struct Walk {
    row: u64,
    position: u64,
}

/// An error of computing the samples, because of which the walks stopped early.
pub(super) enum WalkError {
    /// The `.sa` file cannot be read.
    Read(io::Error),
    /// A base of the transform differs from the base of the text.
    TextMismatch,
    /// A walk from one sample does not end at the position of another sample.
    SampleMismatch,
}

impl From<io::Error> for WalkError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl<'a> BwaSuffixArray<'a> {
    /// Creates a reader of the `.sa` file. `rows`: number of rows of the transform.
    pub(super) fn new(file: &'a File, rows: u64) -> Self {
        Self { file, rows }
    }

    /// Returns the number of chunks of all samples.
    fn chunk_count(&self) -> usize {
        self.rows.div_ceil(BWA_STRIDE).div_ceil(SAMPLES_PER_READ) as usize
    }

    /// Reads the samples of a chunk and returns a new walk for each of them.
    fn read_walks(&self, chunk: usize) -> io::Result<Vec<Walk>> {
        let first = chunk as u64 * SAMPLES_PER_READ;
        let count = self.rows.div_ceil(BWA_STRIDE).saturating_sub(first).min(SAMPLES_PER_READ);
        let not_in_file = u64::from(first == 0);
        let mut bytes = vec![0; 8 * (count - not_in_file) as usize];
        self.file.read_exact_at(&mut bytes, SA_HEADER_BYTES + 8 * (first + not_in_file).saturating_sub(1))?;
        let read = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        // Row 0 is the suffix that contains only the sentinel, at the last position of the text.
        let positions = (0..not_in_file).map(|_| self.rows - 1).chain(read);
        Ok(positions.zip(first..).map(|(position, index)| Walk { row: index * BWA_STRIDE, position }).collect())
    }
}

impl SampledSuffixArray {
    /// Computes the samples for a stride of at most 32, on `threads` threads.
    ///
    /// # Errors
    /// [`WalkError`]. On success, the walks visited every row, and each walk ended at the position of bwa's next
    /// sample.
    pub(super) fn resample(
        transform: &Bwt,
        text: &IndexedText,
        bwa: &BwaSuffixArray<'_>,
        stride: SampleStride,
        threads: usize,
    ) -> Result<Self, WalkError> {
        let count = sample_count(transform.rows(), stride) as usize;
        let mut array = Self { low: Vec::with_capacity(count), high: Vec::with_capacity(count), stride };
        use_huge_pages(&mut array.low);
        array.low.resize_with(count, AtomicU32::default);
        array.high.resize_with(count, AtomicU8::default);
        array.store_position(Walk { row: 0, position: transform.rows() - 1 });
        let walk_chunk =
            |(): &mut (), chunk: usize| array.walk_to_next_samples(transform, text, bwa.read_walks(chunk)?);
        let steps = for_each_index(threads, bwa.chunk_count(), || (), walk_chunk)?;
        if steps.iter().sum::<u64>() != transform.rows() - 1 {
            return Err(WalkError::SampleMismatch);
        }
        array.verify_samples(bwa)?;
        Ok(array)
    }

    /// Walks from each of `starts` to the next sampled row of bwa. Returns the total number of steps.
    fn walk_to_next_samples(&self, transform: &Bwt, text: &IndexedText, starts: Vec<Walk>) -> Result<u64, WalkError> {
        // The suffix of the sentinel row is the whole text, so a walk ends there: no base precedes it.
        let last_row = transform.sentinel_row();
        let mut starts = starts.into_iter().filter(|walk| walk.row != last_row);
        let mut walks: Vec<Walk> = starts.by_ref().take(WALKS_PER_THREAD).collect();
        let mut steps = 0;
        while !walks.is_empty() {
            steps += walks.len() as u64;
            let mut one_has_ended = false;
            for walk in &mut walks {
                // The element of `low` was prefetched in the previous round. The positions of bwa's samples are stored
                // when a walk ends.
                if self.is_sampled(walk.row) && walk.row % BWA_STRIDE != 0 {
                    self.store_position(*walk);
                }
                let (row, base) = transform.lf_mapping(walk.row);
                let position = walk.position.wrapping_sub(1);
                if text.base(position) != Some(base) {
                    return Err(WalkError::TextMismatch);
                }
                *walk = Walk { row, position };
                if row % BWA_STRIDE == 0 || row == last_row {
                    if self.is_sampled(row) {
                        self.store_position(*walk);
                    }
                    let next = starts.next();
                    one_has_ended |= next.is_none();
                    *walk = next.unwrap_or(Walk { row: last_row, position: 0 });
                    text.prefetch(walk.position.wrapping_sub(1));
                } else if self.is_sampled(row) {
                    prefetch(&self.low, row / self.stride.rows());
                }
                transform.prefetch(walk.row);
            }
            if one_has_ended {
                walks.retain(|walk| walk.row != last_row);
            }
        }
        Ok(steps)
    }

    fn is_sampled(&self, row: u64) -> bool {
        row & (self.stride.rows() - 1) == 0
    }

    fn store_position(&self, walk: Walk) {
        let index = (walk.row / self.stride.rows()) as usize;
        self.low[index].store(walk.position as u32, Ordering::Relaxed);
        // The initial value of the highest byte is 0. For positions below 4 billion, skip the write and the access to
        // its cache line.
        let high = (walk.position >> 32) as u8;
        if high != 0 {
            self.high[index].store(high, Ordering::Relaxed);
        }
    }

    /// Checks that the stored position of each row sampled by bwa, at which a walk ended, equals bwa's sample.
    fn verify_samples(&self, bwa: &BwaSuffixArray<'_>) -> Result<(), WalkError> {
        for chunk in 0..bwa.chunk_count() {
            for walk in bwa.read_walks(chunk)? {
                let index = (walk.row / self.stride.rows()) as usize;
                let [low, high] = [walk.position & 0xffff_ffff, walk.position >> 32];
                let stored_low = u64::from(self.low[index].load(Ordering::Relaxed));
                let stored_high = u64::from(self.high[index].load(Ordering::Relaxed));
                if (low, high) != (stored_low, stored_high) {
                    return Err(WalkError::SampleMismatch);
                }
            }
        }
        Ok(())
    }

    /// Writes the highest byte of every sample, and then the lower four bytes of every sample.
    pub(super) fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        for high in self.high.chunks(1 << 16) {
            bytes.clear();
            bytes.extend(high.iter().map(|high| high.load(Ordering::Relaxed)));
            out.write_all(&bytes)?;
        }
        for low in self.low.chunks(1 << 14) {
            bytes.clear();
            bytes.extend(low.iter().flat_map(|low| low.load(Ordering::Relaxed).to_le_bytes()));
            out.write_all(&bytes)?;
        }
        Ok(())
    }
}
