//! Offsets of reports in the output file. Each offset is the sum of the sizes of all earlier reports.

/// The offsets of consecutive pieces of a file, whose sizes become known in any order.
#[derive(Debug, Default)]
pub(crate) struct OutputOffsets {
    /// Offsets of the leading pieces up to, and including, the first piece whose size is unknown.
    offsets: Vec<u64>,
    sizes: Vec<Option<u64>>,
}

impl OutputOffsets {
    /// Creates offsets for a file whose first piece starts at the byte `start`.
    pub(crate) fn starting_at(start: u64) -> Self {
        Self { offsets: vec![start], sizes: Vec::new() }
    }

    /// Sets the size of a piece, bytes. If a worker produces a piece again, its size must be the same.
    pub(crate) fn set_size(&mut self, piece: usize, bytes: u64) {
        if self.sizes.len() <= piece {
            self.sizes.resize(piece + 1, None);
        }
        self.sizes[piece] = Some(bytes);
        while let Some(Some(size)) = self.sizes.get(self.offsets.len() - 1) {
            let end = self.offsets[self.offsets.len() - 1] + size;
            self.offsets.push(end);
        }
    }

    /// Returns the offset of a piece, or `None` until the sizes of all earlier pieces are known.
    pub(crate) fn piece_offset(&self, piece: usize) -> Option<u64> {
        self.offsets.get(piece).copied()
    }

    /// Returns the offset of the first piece whose size is unknown.
    pub(crate) fn known_end(&self) -> u64 {
        self.offsets[self.offsets.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_lie_side_by_side_whatever_order_they_come_in(
            sizes in prop::collection::vec(0_u64..1000, 0..20), start in 0_u64..100, seed in any::<u64>()
        ) {
            let mut order: Vec<usize> = (0..sizes.len()).collect();
            order.sort_by_key(|piece| (*piece as u64 + 1).wrapping_mul(seed | 1));
            let mut layout = OutputOffsets::starting_at(start);
            for piece in order {
                layout.set_size(piece, sizes[piece]);
            }
            let mut expected = start;
            for (piece, size) in sizes.iter().enumerate() {
                prop_assert_eq!(layout.piece_offset(piece), Some(expected));
                expected += size;
            }
            prop_assert_eq!(layout.known_end(), expected);
        }
    }

    #[test]
    fn a_piece_has_no_offset_before_all_that_precede_it_are_known() {
        let mut layout = OutputOffsets::starting_at(10);
        layout.set_size(1, 5);
        assert_eq!((layout.piece_offset(0), layout.piece_offset(1), layout.known_end()), (Some(10), None, 10));
        layout.set_size(0, 7);
        assert_eq!((layout.piece_offset(1), layout.piece_offset(2), layout.known_end()), (Some(17), Some(22), 22));
    }
}
