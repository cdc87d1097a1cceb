//! Where each report goes in the one file: an exclusive scan of sizes that become known in any order.

/// Pieces of a file, in order, whose sizes become known in any order.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Offsets of the first pieces, as far as they are known, and of what follows them.
    offsets: Vec<u64>,
    sizes: Vec<Option<u64>>,
}

impl Layout {
    /// A file whose first piece begins at that byte.
    pub(crate) fn from(start: u64) -> Self {
        Self { offsets: vec![start], sizes: Vec::new() }
    }

    /// Sets the size of a piece. One that was made again has the size it had.
    pub(crate) fn set(&mut self, piece: usize, bytes: u64) {
        if self.sizes.len() <= piece {
            self.sizes.resize(piece + 1, None);
        }
        self.sizes[piece] = Some(bytes);
        while let Some(Some(size)) = self.sizes.get(self.offsets.len() - 1) {
            let end = self.offsets[self.offsets.len() - 1] + size;
            self.offsets.push(end);
        }
    }

    /// Where a piece begins, once all before it are known.
    pub(crate) fn offset(&self, piece: usize) -> Option<u64> {
        self.offsets.get(piece).copied()
    }

    /// Where the pieces end that are known from the first on.
    pub(crate) fn end(&self) -> u64 {
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
            let mut layout = Layout::from(start);
            for piece in order {
                layout.set(piece, sizes[piece]);
            }
            let mut expected = start;
            for (piece, size) in sizes.iter().enumerate() {
                prop_assert_eq!(layout.offset(piece), Some(expected));
                expected += size;
            }
            prop_assert_eq!(layout.end(), expected);
        }
    }

    #[test]
    fn a_piece_has_no_place_before_all_that_precede_it_are_known() {
        let mut layout = Layout::from(10);
        layout.set(1, 5);
        assert_eq!((layout.offset(0), layout.offset(1), layout.end()), (Some(10), None, 10));
        layout.set(0, 7);
        assert_eq!((layout.offset(1), layout.offset(2), layout.end()), (Some(17), Some(22), 22));
    }
}
