//! Sources of copied bases: the concatenated sequences of a reference, followed by the sequence itself.
//!
//! Positions in a packed file refer to the reference it was packed with. The reference of the reader may have the same
//! sequences in another order, so positions are mapped by sequence.

use super::bases::{Bases, BitVector};

/// A sequence of the reference: `[start, start + bases)` in the packed file, and from `local_start` in the bases of the
/// reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContigMapping {
    pub(super) start: usize,
    pub(super) bases: usize,
    pub(super) local_start: usize,
}

/// The bases that can be copied from.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopySpace<'r> {
    /// The available sequences, by start.
    pub(super) contigs: &'r [ContigMapping],
    /// Number of bases of the packer's reference: higher positions are those of the sequence itself.
    pub(super) self_start: usize,
    pub(super) bases: &'r Bases,
    pub(super) soft_mask: Option<&'r BitVector>,
}

impl CopySpace<'_> {
    /// Returns the reference sequence that contains a position.
    pub(super) fn contig_at(&self, position: usize) -> Option<ContigMapping> {
        let at = self.contigs.partition_point(|contig| contig.start <= position).checked_sub(1)?;
        let contig = self.contigs[at];
        (position - contig.start < contig.bases).then_some(contig)
    }
}

/// A position to copy from, and the strand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StrandedPosition {
    /// Forward: the next base. Reverse: one more than the next base, which is complemented.
    pub(super) position: usize,
    pub(super) reverse: bool,
}

/// A position within its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopySource {
    pub(super) position: StrandedPosition,
    /// The sequence, `[low, high)`. For the sequence itself `high` is the end of all positions.
    low: usize,
    high: usize,
    /// Offset that is added to a position, wrapping, to find the base.
    to_local: usize,
    pub(super) is_self: bool,
}

impl CopySource {
    /// Returns the source at a position; `None` if there are no bases. `written` counts the bases of the sequence itself so
    /// far.
    pub(super) fn from_position(position: StrandedPosition, space: &CopySpace, written: usize) -> Option<Self> {
        let next = position.position.checked_sub(usize::from(position.reverse))?;
        if let Some(own) = next.checked_sub(space.self_start) {
            let high = space.self_start.checked_add(1 << 40)?;
            let source = Self {
                position,
                low: space.self_start,
                high,
                to_local: space.self_start.wrapping_neg(),
                is_self: true,
            };
            return (own < written).then_some(source);
        }
        let contig = space.contig_at(next)?;
        let (low, high) = (contig.start, contig.start + contig.bases);
        Some(Self { position, low, high, to_local: contig.local_start.wrapping_sub(contig.start), is_self: false })
    }

    /// Returns the number of bases to the end of the sequence.
    pub(super) fn remaining_bases(&self) -> usize {
        if self.position.reverse { self.position.position - self.low } else { self.high - self.position.position }
    }

    /// Returns the number of bases since the start of the sequence.
    pub(super) fn preceding_bases(&self) -> usize {
        if self.position.reverse { self.high - self.position.position } else { self.position.position - self.low }
    }

    /// Returns the position in the bases of the reader.
    pub(super) fn local_position(&self) -> usize {
        self.position.position.wrapping_add(self.to_local)
    }

    /// Returns the source this many bases further, which must exist.
    #[must_use]
    pub(super) fn advanced_by(mut self, bases: usize) -> Self {
        match self.position.reverse {
            true => self.position.position -= bases,
            false => self.position.position += bases,
        }
        self
    }

    /// Returns the source this many bases back, which must exist.
    #[must_use]
    pub(super) fn moved_back_by(mut self, bases: usize) -> Self {
        match self.position.reverse {
            true => self.position.position += bases,
            false => self.position.position -= bases,
        }
        self
    }
}

/// An interval copied from the reference: `bases` from `target_start` on equal those from `local_position` on, or in reverse
/// those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopiedInterval {
    pub(super) target_start: u32,
    pub(super) bases: u32,
    pub(super) local_position: usize,
    pub(super) reverse: bool,
}
