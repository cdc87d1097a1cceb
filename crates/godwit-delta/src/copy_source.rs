//! The source from which an edit script copies bases: the concatenated sequences of a reference, followed by the
//! already written part of the target sequence itself.
//!
//! Positions in a packed file refer to the reference with which it was packed. The reference of the reader may have the
//! same sequences in another order, so positions are converted sequence by sequence.

use super::bases::{Bases, BitVector};

/// A sequence of the reference: positions `[start, start + bases)` in the packed file are the bases from `local_start`
/// on in the local reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContigMapping {
    pub(super) start: usize,
    pub(super) bases: usize,
    pub(super) local_start: usize,
}

/// All bases from which a script may copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopySpace<'r> {
    /// The sequences of the packer's reference that the local reference has, ordered by `start`.
    pub(super) contigs: &'r [ContigMapping],
    /// Number of bases of the packer's reference. Higher positions refer to the target sequence itself.
    pub(super) self_start: usize,
    pub(super) bases: &'r Bases,
    pub(super) soft_mask: Option<&'r BitVector>,
}

impl CopySpace<'_> {
    /// Returns the reference sequence that contains a position of the packed file.
    pub(super) fn contig_at(&self, position: usize) -> Option<ContigMapping> {
        let at = self.contigs.partition_point(|contig| contig.start <= position).checked_sub(1)?;
        let contig = self.contigs[at];
        (position - contig.start < contig.bases).then_some(contig)
    }
}

/// A position from which bases are copied, and the strand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StrandedPosition {
    /// On the forward strand, the position of the next base. On the reverse strand, the position after the next base,
    /// which is complemented.
    pub(super) position: usize,
    pub(super) reverse: bool,
}

/// A position from which bases are copied, with the limits of the sequence that contains the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopySource {
    pub(super) position: StrandedPosition,
    /// The limits of this sequence, `[low, high)`. If bases are copied from the target sequence itself, `high` is
    /// beyond all positions.
    low: usize,
    high: usize,
    /// Offset that is added, wrapping, to a position to get the index of the base in the local bases.
    to_local: usize,
    pub(super) is_self: bool,
}

impl CopySource {
    /// Returns the source at a position; `None` if there are no bases at this position. `written` is the number of
    /// bases of the target sequence that are already written.
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

    /// Returns the number of bases that can be copied until the end of the sequence.
    pub(super) fn remaining_bases(&self) -> usize {
        if self.position.reverse { self.position.position - self.low } else { self.high - self.position.position }
    }

    /// Returns the number of bases between the start of the sequence and this source, in the direction of copying.
    pub(super) fn preceding_bases(&self) -> usize {
        if self.position.reverse { self.high - self.position.position } else { self.position.position - self.low }
    }

    /// Returns the index of the position in the local bases.
    pub(super) fn local_position(&self) -> usize {
        self.position.position.wrapping_add(self.to_local)
    }

    /// Returns the source `bases` bases after this one in the direction of copying; these bases must exist.
    #[must_use]
    pub(super) fn advanced_by(mut self, bases: usize) -> Self {
        match self.position.reverse {
            true => self.position.position -= bases,
            false => self.position.position += bases,
        }
        self
    }

    /// Returns the source `bases` bases before this one in the direction of copying; these bases must exist.
    #[must_use]
    pub(super) fn moved_back_by(mut self, bases: usize) -> Self {
        match self.position.reverse {
            true => self.position.position += bases,
            false => self.position.position -= bases,
        }
        self
    }
}

/// An interval of the target sequence that was copied from the reference. Its `bases` bases from `target_start` on
/// equal those from `local_position` on, or, if `reverse` is true, the reverse complement of those before
/// `local_position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopiedInterval {
    pub(super) target_start: u32,
    pub(super) bases: u32,
    pub(super) local_position: usize,
    pub(super) reverse: bool,
}
