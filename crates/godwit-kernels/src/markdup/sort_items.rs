//! The items that duplicate marking sorts: signatures without barcodes, as in nearly every job, or with the barcodes of
//! the reads.

use std::cmp::Ordering;

use bytemuck::{Pod, Zeroable};
use godwit_model::{EndSignature, PairSignature, end_flags};

use super::barcodes::Barcodes;
use super::duplicate_decider::end_key;
use super::mate_join::{join_mates, split_pair};
use crate::sort::Sortable;

/// A sort item with the signature of one read.
pub(super) trait EndItem: Pod + Send + Sync {
    /// The sort item of the pair that two of these ends form.
    type Pair: PairItem<End = Self>;
    /// The key by which fragments are compared with the ends of pairs.
    type Key: PositionKey;

    /// Creates an item. `barcodes` holds the barcodes of all records of the block, by record index.
    fn new(end: EndSignature, barcodes: &[Barcodes]) -> Self;
    fn signature(&self) -> &EndSignature;
    fn position_key(&self) -> Self::Key;
    /// Joins two ends into a pair. `earlier` precedes `later` in the file.
    fn join(earlier: &Self, later: &Self) -> Self::Pair;
}

/// A key by which fragments are compared with the ends of pairs.
pub(super) trait PositionKey: Sortable + Ord {
    /// Returns the key without barcodes, as [`end_key`] returns it.
    fn position(&self) -> u128;
}

impl PositionKey for u128 {
    fn position(&self) -> u128 {
        *self
    }
}

/// A sort item with the signature of one pair.
pub(super) trait PairItem: Sortable {
    type End: EndItem;

    /// Creates an item. `barcodes` holds the barcodes of all records of the block, by record index.
    fn new(pair: PairSignature, barcodes: &[Barcodes]) -> Self;
    fn signature(&self) -> &PairSignature;
    /// Returns the barcodes of the pair, or a constant if barcodes are not used.
    fn barcodes(&self) -> Barcodes;
    /// Returns the two ends of the pair as they were before the join.
    fn ends(&self) -> [Self::End; 2];
    fn position_keys(&self) -> [<Self::End as EndItem>::Key; 2];
    /// Compares the parts of two pairs that sort first. They are equal for pairs that are duplicates of each other.
    fn place_order(&self, other: &Self) -> Ordering;
}

impl EndItem for EndSignature {
    type Pair = PairSignature;
    type Key = u128;

    fn new(end: EndSignature, _: &[Barcodes]) -> Self {
        end
    }

    fn signature(&self) -> &EndSignature {
        self
    }

    fn position_key(&self) -> u128 {
        end_key(self.library, self.contig, self.five_prime, self.is_reverse())
    }

    fn join(earlier: &Self, later: &Self) -> PairSignature {
        join_mates(earlier, later)
    }
}

impl PairItem for PairSignature {
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
        split_pair(self)
    }

    fn position_keys(&self) -> [u128; 2] {
        [
            end_key(self.library, self.contig1, self.five_prime1, self.is_reverse1()),
            end_key(self.library, self.contig2, self.five_prime2, self.is_reverse2()),
        ]
    }

    #[inline]
    fn place_order(&self, other: &Self) -> Ordering {
        // One comparison of integers is faster than several of fields.
        let place = |p: &Self| end_key(p.library, p.contig1, p.five_prime1, false);
        place(self).cmp(&place(other))
    }
}

/// The signature of a read and its barcodes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BarcodedEnd {
    signature: EndSignature,
    barcodes: Barcodes,
    padding: u32,
}

/// The signature of a pair and the barcodes of end 1 and end 2.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BarcodedPair {
    signature: PairSignature,
    end_barcodes: [Barcodes; 2],
}

/// The position key of an end, and its barcodes.
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

impl PositionKey for BarcodedKey {
    fn position(&self) -> u128 {
        self.key
    }
}

impl EndItem for BarcodedEnd {
    type Pair = BarcodedPair;
    type Key = BarcodedKey;

    fn new(signature: EndSignature, barcodes: &[Barcodes]) -> Self {
        Self { signature, barcodes: barcodes[signature.record.index() as usize], padding: 0 }
    }

    fn signature(&self) -> &EndSignature {
        &self.signature
    }

    fn position_key(&self) -> BarcodedKey {
        BarcodedKey { key: self.signature.position_key(), barcodes: self.barcodes, padding: 0 }
    }

    fn join(earlier: &Self, later: &Self) -> BarcodedPair {
        let signature = join_mates(&earlier.signature, &later.signature);
        let mut end_barcodes = [earlier.barcodes, later.barcodes];
        if signature.record1 != earlier.signature.record {
            end_barcodes.reverse();
        }
        BarcodedPair { signature, end_barcodes }
    }
}

impl Sortable for BarcodedPair {
    fn order(&self, other: &Self) -> Ordering {
        self.barcode_order(other).then_with(|| self.signature.order(&other.signature))
    }
}

impl BarcodedPair {
    fn barcode_order(&self, other: &Self) -> Ordering {
        let place = |item: &Self| (item.signature.library, item.barcodes());
        place(self).cmp(&place(other))
    }
}

impl PairItem for BarcodedPair {
    type End = BarcodedEnd;

    fn new(signature: PairSignature, barcodes: &[Barcodes]) -> Self {
        let [end1, end2] = [signature.record1, signature.record2].map(|record| barcodes[record.index() as usize]);
        Self { signature, end_barcodes: [end1, end2] }
    }

    fn signature(&self) -> &PairSignature {
        &self.signature
    }

    /// Returns the barcodes of the earlier end; the field of the later read is taken from the later end
    /// (`buildSortedReadEndLists`).
    fn barcodes(&self) -> Barcodes {
        let [end1, end2] = split_pair(&self.signature);
        let (earlier, later, later_end) = if self.signature.is_end1_first() {
            (self.end_barcodes[0], self.end_barcodes[1], end2)
        } else {
            (self.end_barcodes[1], self.end_barcodes[0], end1)
        };
        if later_end.flags & end_flags::FIRST != 0 {
            Barcodes { read1: later.read1, ..earlier }
        } else {
            Barcodes { read2: later.read2, ..earlier }
        }
    }

    fn ends(&self) -> [BarcodedEnd; 2] {
        let [end1, end2] = split_pair(&self.signature);
        [
            BarcodedEnd { signature: end1, barcodes: self.end_barcodes[0], padding: 0 },
            BarcodedEnd { signature: end2, barcodes: self.end_barcodes[1], padding: 0 },
        ]
    }

    fn position_keys(&self) -> [BarcodedKey; 2] {
        self.ends().map(|end| end.position_key())
    }
    fn place_order(&self, other: &Self) -> Ordering {
        self.barcode_order(other).then_with(|| self.signature.place_order(&other.signature))
    }
}
