//! Signatures as they are sorted: alone, which is what nearly every run has, or with the barcodes of their reads.

use std::cmp::Ordering;

use bytemuck::{Pod, Zeroable};
use godwit_model::{EndSignature, PairSignature, end_flags};

use super::barcodes::Barcodes;
use super::decide::end_key;
use super::join::{ends_of, join};
use crate::sort::Sortable;

/// A read's signature.
pub(super) trait End: Pod + Send + Sync {
    /// What two ends join to.
    type Pair: Pair<End = Self>;
    /// Where fragments and ends of pairs meet.
    type Key: Sortable + Ord;

    /// `barcodes`: those of the block's records, by index.
    fn new(end: EndSignature, barcodes: &[Barcodes]) -> Self;
    fn signature(&self) -> &EndSignature;
    fn key(&self) -> Self::Key;
    /// `earlier` comes first in the file.
    fn join(earlier: &Self, later: &Self) -> Self::Pair;
}

/// A pair's signature.
pub(super) trait Pair: Sortable {
    type End: End;

    /// `barcodes`: those of the block's records, by index.
    fn new(pair: PairSignature, barcodes: &[Barcodes]) -> Self;
    fn signature(&self) -> &PairSignature;
    /// The same for all pairs where barcodes are not looked at.
    fn barcodes(&self) -> Barcodes;
    /// As they were before they were joined.
    fn ends(&self) -> [Self::End; 2];
    fn keys(&self) -> [<Self::End as End>::Key; 2];
}

impl End for EndSignature {
    type Pair = PairSignature;
    type Key = u128;

    fn new(end: EndSignature, _: &[Barcodes]) -> Self {
        end
    }

    fn signature(&self) -> &EndSignature {
        self
    }

    fn key(&self) -> u128 {
        end_key(self.library, self.contig, self.five_prime, self.is_reverse())
    }

    fn join(earlier: &Self, later: &Self) -> PairSignature {
        join(earlier, later)
    }
}

impl Pair for PairSignature {
    type End = EndSignature;

    fn new(pair: PairSignature, _: &[Barcodes]) -> Self {
        pair
    }

    fn signature(&self) -> &PairSignature {
        self
    }

    fn barcodes(&self) -> Barcodes {
        Barcodes::default()
    }

    fn ends(&self) -> [EndSignature; 2] {
        ends_of(self)
    }

    fn keys(&self) -> [u128; 2] {
        [
            end_key(self.library, self.contig1, self.five_prime1, self.is_reverse1()),
            end_key(self.library, self.contig2, self.five_prime2, self.is_reverse2()),
        ]
    }
}

/// A read with its own barcodes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BarcodedEnd {
    end: EndSignature,
    barcodes: Barcodes,
    padding: u32,
}

/// A pair with the barcodes of end 1 and end 2.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BarcodedPair {
    pair: PairSignature,
    ends: [Barcodes; 2],
}

/// The key of an end, and its barcodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BarcodedKey {
    key: u128,
    barcodes: Barcodes,
    padding: u32,
}

impl Sortable for BarcodedKey {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl End for BarcodedEnd {
    type Pair = BarcodedPair;
    type Key = BarcodedKey;

    fn new(end: EndSignature, barcodes: &[Barcodes]) -> Self {
        Self { end, barcodes: barcodes[end.record.index() as usize], padding: 0 }
    }

    fn signature(&self) -> &EndSignature {
        &self.end
    }

    fn key(&self) -> BarcodedKey {
        BarcodedKey { key: self.end.key(), barcodes: self.barcodes, padding: 0 }
    }

    fn join(earlier: &Self, later: &Self) -> BarcodedPair {
        let pair = join(&earlier.end, &later.end);
        let mut ends = [earlier.barcodes, later.barcodes];
        if pair.record1 != earlier.end.record {
            ends.reverse();
        }
        BarcodedPair { pair, ends }
    }
}

impl Sortable for BarcodedPair {
    fn order(&self, other: &Self) -> Ordering {
        let place = |item: &Self| (item.pair.library, item.barcodes());
        place(self).cmp(&place(other)).then_with(|| self.pair.order(&other.pair))
    }
}

impl Pair for BarcodedPair {
    type End = BarcodedEnd;

    fn new(pair: PairSignature, barcodes: &[Barcodes]) -> Self {
        let [end1, end2] = [pair.record1, pair.record2].map(|record| barcodes[record.index() as usize]);
        Self { pair, ends: [end1, end2] }
    }

    fn signature(&self) -> &PairSignature {
        &self.pair
    }

    /// What the end that came first says, with the other's own barcode put in its place (`buildSortedReadEndLists`).
    fn barcodes(&self) -> Barcodes {
        let [end1, end2] = ends_of(&self.pair);
        let (earlier, later, later_end) = if self.pair.end1_came_first() {
            (self.ends[0], self.ends[1], end2)
        } else {
            (self.ends[1], self.ends[0], end1)
        };
        if later_end.flags & end_flags::FIRST != 0 {
            Barcodes { read1: later.read1, ..earlier }
        } else {
            Barcodes { read2: later.read2, ..earlier }
        }
    }

    fn ends(&self) -> [BarcodedEnd; 2] {
        let [end1, end2] = ends_of(&self.pair);
        [
            BarcodedEnd { end: end1, barcodes: self.ends[0], padding: 0 },
            BarcodedEnd { end: end2, barcodes: self.ends[1], padding: 0 },
        ]
    }

    fn keys(&self) -> [BarcodedKey; 2] {
        self.ends().map(|end| end.key())
    }
}
