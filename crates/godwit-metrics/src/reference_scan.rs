//! Counts over all bases of the reference: windows by GC content, and bases that are not N.

use std::io;

use godwit_kernels::qc::{ReferenceBases, count_byte_pairs};

use crate::base_codes::{C_CODE, G_CODE, N_CODE};

/// Length of a window, bases (`SCAN_WINDOW_SIZE` of Picard).
pub(crate) const WINDOW_BASES: u32 = 100;
/// Number of possible GC contents of a window.
pub(crate) const GC_BINS: usize = 101;
/// Maximum number of N in a window that is counted.
const MAX_WINDOW_NO_CALLS: u32 = 4;
/// Bases per request to the reference.
const CHUNK_BASES: u32 = 1 << 16;

/// Counts over the bases of some contigs. The counts of different contigs are merged by addition.
#[derive(Clone, Debug)]
pub struct ReferenceCounts {
    /// Number of windows of 100 bases by their number of G and C (0 to 100). As in Picard, the windows start at the
    /// 0-based positions 1 to `length` - 101, and those with more than four N are not counted.
    pub windows_by_gc: [u64; GC_BINS],
    /// Number of bases that are not N.
    pub called_bases: u64,
}

impl Default for ReferenceCounts {
    fn default() -> Self {
        Self { windows_by_gc: [0; GC_BINS], called_bases: 0 }
    }
}

/// Counts of one base: G or C, and N.
fn base_counts(code: u8) -> (u32, u32) {
    (u32::from(code == C_CODE || code == G_CODE), u32::from(code == N_CODE))
}

impl ReferenceCounts {
    /// Counts a contig of `length` bases.
    ///
    /// # Errors
    /// The errors of `reference`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::qc::ReferenceBases;
    /// use godwit_metrics::ReferenceCounts;
    ///
    /// struct OneContig(Vec<u8>);
    ///
    /// impl ReferenceBases for OneContig {
    ///     fn codes(&mut self, _: i32, start: u32, end: u32) -> std::io::Result<&[u8]> {
    ///         Ok(&self.0[start as usize..self.0.len().min(end as usize)])
    ///     }
    /// }
    ///
    /// // 60 A and 60 C: windows start at the positions 1 to 19.
    /// let mut reference = OneContig([[1; 60], [2; 60]].concat());
    /// let mut counts = ReferenceCounts::default();
    /// counts.add_contig(&mut reference, 0, 120)?;
    /// assert_eq!(counts.called_bases, 120);
    /// assert_eq!((counts.windows_by_gc[40], counts.windows_by_gc[41], counts.windows_by_gc[59]), (0, 1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_contig<R: ReferenceBases>(&mut self, reference: &mut R, contig: i32, length: u32) -> io::Result<()> {
        let last_window = length.saturating_sub(WINDOW_BASES);
        let (mut start, mut gc, mut no_calls) = (0, 0, 0);
        while start < length {
            let end = length.min(start + CHUNK_BASES);
            // The window that ends before the chunk is needed to remove its first base.
            let from = start.saturating_sub(WINDOW_BASES);
            let codes = reference.codes(contig, from, end)?;
            let first = (start - from) as usize;
            for (at, code) in codes.iter().enumerate().skip(first) {
                let position = from + at as u32;
                let (base_gc, base_no_calls) = base_counts(*code);
                self.called_bases += u64::from(1 - base_no_calls);
                (gc, no_calls) = (gc + base_gc, no_calls + base_no_calls);
                if position >= WINDOW_BASES {
                    let (old_gc, old_no_calls) = base_counts(codes[at - WINDOW_BASES as usize]);
                    (gc, no_calls) = (gc - old_gc, no_calls - old_no_calls);
                    // The window starts at `position - 99`, which is at least 1.
                    let is_counted = position + 1 - WINDOW_BASES < last_window && no_calls <= MAX_WINDOW_NO_CALLS;
                    self.windows_by_gc[gc as usize] += u64::from(is_counted);
                }
            }
            start = end;
        }
        Ok(())
    }

    /// Adds the counts of other contigs.
    pub fn merge(&mut self, other: &Self) {
        self.called_bases += other.called_bases;
        self.windows_by_gc.iter_mut().zip(&other.windows_by_gc).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Returns the GC content of the window that starts at a 0-based position, or `None` if it has too many N. As in Picard
/// (`GcBiasUtils.calculateAllGcs`), the content of windows at the ends of a contig is 0.
///
/// # Errors
/// The errors of `reference`.
pub(crate) fn window_gc<R: ReferenceBases>(
    reference: &mut R,
    contig: i32,
    length: u32,
    start: u32,
) -> io::Result<Option<usize>> {
    if start == 0 || start >= length.saturating_sub(WINDOW_BASES) {
        return Ok(Some(0));
    }
    Ok(gc_of_codes(reference.codes(contig, start, start + WINDOW_BASES)?))
}

/// As [`window_gc`], of the codes of a window. The function is not generic, so that this crate compiles it.
fn gc_of_codes(codes: &[u8]) -> Option<usize> {
    let no_calls = count_byte_pairs(codes, codes, |code, _| code == N_CODE);
    let gc = count_byte_pairs(codes, codes, |code, _| code == C_CODE || code == G_CODE);
    (no_calls <= u64::from(MAX_WINDOW_NO_CALLS)).then_some(gc as usize)
}
