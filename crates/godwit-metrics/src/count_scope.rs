//! The part of a record that is counted when the positions of a record belong to different counts.

use std::ops::Range;

use godwit_kernels::qc::AlignmentBlock;

/// The positions of a contig whose bases are counted, and whether a record itself is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountScope {
    /// First counted position, 0-based.
    pub(crate) start: u32,
    /// Position after the last counted position, 0-based.
    pub(crate) end: u32,
    /// True if the numbers of records, and of bases that a filter for records removes, are counted.
    pub(crate) counts_record: bool,
}

impl CountScope {
    /// Everything is counted.
    pub(crate) const ALL: Self = Self { start: 0, end: u32::MAX, counts_record: true };

    /// Returns the counted bases of a block as a range within the block. `start`: 0-based position of the record.
    #[inline]
    pub(crate) fn clip_block(self, start: u32, block: &AlignmentBlock) -> Range<usize> {
        let first = start as usize + block.reference_offset;
        let end = (self.end as usize).saturating_sub(first).min(block.bases);
        (self.start as usize).saturating_sub(first).min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_clipped_to_the_scope() {
        let block = AlignmentBlock { read_start: 7, reference_offset: 10, bases: 20 };
        let scope = |start, end| CountScope { start, end, counts_record: false };
        assert_eq!(CountScope::ALL.clip_block(100, &block), 0..20);
        assert_eq!(scope(115, 120).clip_block(100, &block), 5..10);
        assert_eq!(scope(0, 50).clip_block(100, &block), 0..0);
        assert!(scope(200, 300).clip_block(100, &block).is_empty());
    }
}
