//! Where bases are copied from: the sequences of a reference, in one row, and behind them the sequence itself.
//!
//! Positions in a packed file are those of the reference it was packed with. Who unpacks may have the same sequences in another
//! order, so positions are looked up by sequence.

use super::bases::{Bases, Bits};

/// A sequence of the reference, `[start, start + bases)` in the packed file and from `local` on where its bases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contig {
    pub(super) start: usize,
    pub(super) bases: usize,
    pub(super) local: usize,
}

/// All that can be copied from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space<'r> {
    /// Sequences that are at hand, by start.
    pub(super) contigs: &'r [Contig],
    /// Bases of the reference that was packed with: positions from there on are those of the sequence itself.
    pub(super) own: usize,
    pub(super) bases: &'r Bases,
    pub(super) lower: Option<&'r Bits>,
}

impl Space<'_> {
    /// The reference sequence that holds a position.
    pub(super) fn contig(&self, position: usize) -> Option<Contig> {
        let at = self.contigs.partition_point(|contig| contig.start <= position).checked_sub(1)?;
        let contig = self.contigs[at];
        (position - contig.start < contig.bases).then_some(contig)
    }
}

/// A place to copy from, and which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Forward the next base, in reverse one more than the next base, which is complemented.
    pub(super) position: usize,
    pub(super) reverse: bool,
}

/// A place within its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) place: Place,
    /// The sequence: `[low, high)`. For the sequence itself `high` is where positions end.
    low: usize,
    high: usize,
    /// What has to be added to a position, wrapping, to find the base.
    to_local: usize,
    pub(super) is_own: bool,
}

impl Source {
    /// The source at a place; `None` where there is nothing to copy. `written` bases of the sequence itself are there.
    pub(super) fn at(place: Place, space: &Space, written: usize) -> Option<Self> {
        let next = place.position.checked_sub(usize::from(place.reverse))?;
        if let Some(own) = next.checked_sub(space.own) {
            let high = space.own.checked_add(1 << 40)?;
            let source = Self { place, low: space.own, high, to_local: space.own.wrapping_neg(), is_own: true };
            return (own < written).then_some(source);
        }
        let contig = space.contig(next)?;
        let (low, high) = (contig.start, contig.start + contig.bases);
        Some(Self { place, low, high, to_local: contig.local.wrapping_sub(contig.start), is_own: false })
    }

    /// Bases until the sequence ends.
    pub(super) fn room(&self) -> usize {
        if self.place.reverse { self.place.position - self.low } else { self.high - self.place.position }
    }

    /// Bases behind, to where the sequence began.
    pub(super) fn room_behind(&self) -> usize {
        if self.place.reverse { self.high - self.place.position } else { self.place.position - self.low }
    }

    /// Where the place is in the bases at hand.
    pub(super) fn local(&self) -> usize {
        self.place.position.wrapping_add(self.to_local)
    }

    /// This many bases on, which must be there.
    #[must_use]
    pub(super) fn moved(mut self, bases: usize) -> Self {
        match self.place.reverse {
            true => self.place.position -= bases,
            false => self.place.position += bases,
        }
        self
    }

    /// This many bases back, which must be there.
    #[must_use]
    pub(super) fn moved_back(mut self, bases: usize) -> Self {
        match self.place.reverse {
            true => self.place.position += bases,
            false => self.place.position -= bases,
        }
        self
    }
}

/// A stretch that was copied from the reference: `bases` from `to` on are those at `local`, in reverse those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) to: u32,
    pub(super) bases: u32,
    pub(super) local: usize,
    pub(super) reverse: bool,
}
