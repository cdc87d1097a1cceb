//! Signatures: the data of a read or a pair that duplicate marking needs, small enough to sort and send.
//!
//! They are written while both mates are together; duplicates are decided later without the records (Picard 3.4.0
//! `ReadEndsForMarkDuplicates`). Plain fixed-size structs, so that an external sort moves them as bytes.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::{RecordId, SortKey};

/// `read_group` of a read without a read group, or with one that is not in the header.
pub const NO_READ_GROUP: u16 = u16::MAX;

/// Bits of [`EndSignature::flags`].
pub mod end_flags {
    /// The read is on the reverse strand.
    pub const REVERSE: u16 = 0x1;
    /// FLAG 0x40.
    pub const FIRST: u16 = 0x2;
    /// FLAG 0x1 without 0x8: the read has a mapped mate.
    pub const MATE_MAPPED: u16 = 0x4;
    /// The file order is that of the input, not of coordinates; `position` holds the read's index in its template.
    pub const INPUT_ORDER: u16 = 0x8;
}

/// Bits of [`PairSignature::flags`].
pub mod pair_flags {
    /// End 1 is on the reverse strand.
    pub const REVERSE1: u16 = 0x1;
    /// End 2 is on the reverse strand.
    pub const REVERSE2: u16 = 0x2;
    /// End 1 has FLAG 0x40.
    pub const FIRST1: u16 = 0x4;
    /// End 2 has FLAG 0x40.
    pub const FIRST2: u16 = 0x8;
    /// Index of the lowest of the three bits that hold the orientation for optical duplicates.
    pub const OPTICAL_SHIFT: u16 = 4;
    /// As [`end_flags::INPUT_ORDER`](super::end_flags::INPUT_ORDER), for both ends.
    pub const INPUT_ORDER: u16 = 0x80;
}

/// Strands of a read or a pair, numbered as in Picard 3.4.0 `ReadEnds`, whose order breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Orientation {
    /// One forward read.
    F = 0,
    /// One reverse read.
    R = 1,
    /// Both forward.
    FF = 2,
    /// Forward, then reverse.
    FR = 3,
    /// Both reverse.
    RR = 4,
    /// Reverse, then forward.
    RF = 5,
}

impl Orientation {
    /// Returns the orientation of a pair from the strands of its ends.
    #[inline]
    pub fn from_strands(reverse1: bool, reverse2: bool) -> Self {
        match (reverse1, reverse2) {
            (false, false) => Self::FF,
            (false, true) => Self::FR,
            (true, true) => Self::RR,
            (true, false) => Self::RF,
        }
    }
}

/// The location of a read on the flow cell, from its name. Coordinates keep their low 16 bits, as Picard's do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct ReadLocation {
    /// Tile, -1 for none.
    pub tile: i16,
    /// Pixel column.
    pub x: i16,
    /// Pixel row.
    pub y: i16,
}

impl ReadLocation {
    /// The location of a read whose name contains none.
    pub const NONE: Self = Self { tile: -1, x: -1, y: -1 };

    /// Reports whether the location is known: Picard's `hasLocation`.
    #[inline]
    pub fn is_known(self) -> bool {
        self.tile != -1
    }
}

/// The signature of a primary mapped read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct EndSignature {
    /// 128-bit hash of read group and name, by which mates are joined.
    pub name: [u64; 2],
    /// Id of the record.
    pub record: RecordId,
    /// Contig index.
    pub contig: i32,
    /// 0-based unclipped 5' position.
    pub five_prime: i32,
    /// 0-based POS; with [`end_flags::INPUT_ORDER`] the number of records of its template before it.
    pub position: i32,
    /// The mate's contig index if it has a mapped mate, else -1.
    pub mate_contig: i32,
    /// Index of the library.
    pub library: u16,
    /// Index of the read group in the header, [`NO_READ_GROUP`] for none.
    pub read_group: u16,
    /// Location on the flow cell.
    pub location: ReadLocation,
    /// Picard's duplicate score of the read.
    pub score: i16,
    /// Bits of [`end_flags`].
    pub flags: u16,
    /// Always 0.
    pub padding: u16,
}

/// The signature of two mapped mates. End 1 has the smaller (contig, 5' position), or is first in coordinate order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PairSignature {
    /// 128-bit hash of read group and name.
    pub name: [u64; 2],
    /// Id of the record of end 1.
    pub record1: RecordId,
    /// Id of the record of end 2.
    pub record2: RecordId,
    /// Contig index of end 1.
    pub contig1: i32,
    /// 0-based unclipped 5' position of end 1.
    pub five_prime1: i32,
    /// 0-based POS of end 1, or its index in its template as in [`EndSignature::position`].
    pub position1: i32,
    /// Contig index of end 2.
    pub contig2: i32,
    /// 0-based unclipped 5' position of end 2.
    pub five_prime2: i32,
    /// 0-based POS of end 2, or its index in its template.
    pub position2: i32,
    /// Index of the library.
    pub library: u16,
    /// Index of the read group in the header, [`NO_READ_GROUP`] for none.
    pub read_group: u16,
    /// Location on the flow cell.
    pub location: ReadLocation,
    /// Picard's duplicate score of end 1.
    pub score1: i16,
    /// Picard's duplicate score of end 2.
    pub score2: i16,
    /// Bits of [`pair_flags`].
    pub flags: u16,
}

/// The number of records of a library, as Picard counts them before marking (`DuplicationMetrics.addReadToLibraryMetrics`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicateCounts {
    /// Number of mapped primary reads without a mapped mate.
    pub unpaired_reads: u64,
    /// Number of mapped primary reads with a mapped mate: twice the pairs.
    pub paired_reads: u64,
    /// Number of secondary and supplementary records.
    pub not_primary: u64,
    /// Number of unmapped records.
    pub unmapped: u64,
}

impl DuplicateCounts {
    /// Adds other counts to these.
    pub fn add(&mut self, other: &Self) {
        self.unpaired_reads += other.unpaired_reads;
        self.paired_reads += other.paired_reads;
        self.not_primary += other.not_primary;
        self.unmapped += other.unmapped;
    }
}

const _: () = assert!(size_of::<EndSignature>() == 56 && size_of::<PairSignature>() == 72);

impl EndSignature {
    /// Reports whether the read is on the reverse strand.
    #[inline]
    pub fn is_reverse(&self) -> bool {
        self.flags & end_flags::REVERSE != 0
    }

    /// Reports whether the read has a mapped mate on a contig: Picard's `isPaired`.
    #[inline]
    pub fn is_paired(&self) -> bool {
        self.flags & end_flags::MATE_MAPPED != 0 && self.mate_contig != -1
    }

    /// Returns the order in the coordinate-sorted file: sort key, then order of the input. With [`end_flags::INPUT_ORDER`]
    /// only the latter.
    #[inline]
    pub fn file_order(&self) -> (SortKey, RecordId) {
        let by_input = self.flags & end_flags::INPUT_ORDER != 0;
        let key = SortKey::new(self.contig, self.position, self.is_reverse());
        (if by_input { SortKey::MIN } else { key }, self.record)
    }
}

impl PairSignature {
    /// Reports whether end 1 is on the reverse strand.
    #[inline]
    pub fn is_reverse1(&self) -> bool {
        self.flags & pair_flags::REVERSE1 != 0
    }

    /// Reports whether end 2 is on the reverse strand.
    #[inline]
    pub fn is_reverse2(&self) -> bool {
        self.flags & pair_flags::REVERSE2 != 0
    }

    /// Returns the strands of end 1 and end 2. If both ends have the same position, reverse-forward counts as
    /// forward-reverse, because the order of the ends would depend on the order of the file.
    #[inline]
    pub fn orientation(&self) -> Orientation {
        let orientation = Orientation::from_strands(self.is_reverse1(), self.is_reverse2());
        let same_place = (self.contig1, self.five_prime1) == (self.contig2, self.five_prime2);
        if same_place && orientation == Orientation::RF { Orientation::FR } else { orientation }
    }

    /// Returns the strands in sequencing order (read 1, read 2), used for optical duplicates.
    #[inline]
    pub fn optical_orientation(&self) -> u16 {
        self.flags >> pair_flags::OPTICAL_SHIFT & 0x7
    }

    /// Returns the last tie breaker between pairs: the order of both ends in the coordinate-sorted file. With
    /// [`pair_flags::INPUT_ORDER`] it is the starts of their templates in the input, then the later end.
    #[inline]
    pub fn file_order(&self) -> [(SortKey, RecordId); 3] {
        if self.flags & pair_flags::INPUT_ORDER == 0 {
            let end1 = SortKey::new(self.contig1, self.position1, self.is_reverse1());
            let end2 = SortKey::new(self.contig2, self.position2, self.is_reverse2());
            return [(end1, self.record1), (end2, self.record2), (SortKey::MIN, RecordId(0))];
        }
        let template1 = RecordId(self.record1.0.wrapping_sub(self.position1 as u64));
        let template2 = RecordId(self.record2.0.wrapping_sub(self.position2 as u64));
        [template1, template2, self.record1.max(self.record2)].map(|record| (SortKey::MIN, record))
    }

    /// Reports whether end 1 is before end 2 in the file.
    #[inline]
    pub fn is_end1_first(&self) -> bool {
        if self.flags & pair_flags::INPUT_ORDER == 0 {
            let [end1, end2, _] = self.file_order();
            end1 <= end2
        } else {
            self.record1 <= self.record2
        }
    }

    /// Returns Picard's score of the pair: a 16-bit sum.
    #[inline]
    pub fn score(&self) -> i16 {
        self.score1.wrapping_add(self.score2)
    }
}
