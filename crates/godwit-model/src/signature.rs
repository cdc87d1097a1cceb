//! Signatures: the data of a read or a pair that duplicate marking needs. They are small enough to sort and to send to
//! another process.
//!
//! A signature is computed while both mates of a template are in memory. Duplicates are decided later from the
//! signatures alone, as Picard 3.4.0 does with `ReadEndsForMarkDuplicates`. Signatures are structs of fixed size
//! without pointers, so an external sort moves them as bytes.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::{RecordId, SortKey};

/// The value of `read_group` for a read without a read group, or with a read group that is not in the header.
pub const NO_READ_GROUP: u16 = u16::MAX;

/// Bits of [`EndSignature::flags`].
pub mod end_flags {
    /// The read is on the reverse strand.
    pub const REVERSE: u16 = 0x1;
    /// The read has FLAG 0x40 (first segment of the template).
    pub const FIRST: u16 = 0x2;
    /// The read has FLAG 0x1 but not 0x8: its mate is mapped.
    pub const MATE_MAPPED: u16 = 0x4;
    /// The output file keeps the order of the input and is not sorted by coordinate. `position` then holds the index of
    /// the read in its template.
    pub const INPUT_ORDER: u16 = 0x8;
}

/// Bits of [`PairSignature::flags`].
pub mod pair_flags {
    /// End 1 is on the reverse strand.
    pub const REVERSE1: u16 = 0x1;
    /// End 2 is on the reverse strand.
    pub const REVERSE2: u16 = 0x2;
    /// End 1 has FLAG 0x40 (first segment of the template).
    pub const FIRST1: u16 = 0x4;
    /// End 2 has FLAG 0x40 (first segment of the template).
    pub const FIRST2: u16 = 0x8;
    /// Bit index of the lowest of the three bits that hold the orientation for optical duplicates.
    pub const OPTICAL_SHIFT: u16 = 4;
    /// The same as [`end_flags::INPUT_ORDER`](super::end_flags::INPUT_ORDER), for both ends.
    pub const INPUT_ORDER: u16 = 0x80;
}

/// The strands of a read or of both reads of a pair. Values and order are those of Picard 3.4.0 `ReadEnds`; the order
/// breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Orientation {
    /// One forward read.
    F = 0,
    /// One reverse read.
    R = 1,
    /// Both reads forward.
    FF = 2,
    /// The first read forward, the second reverse.
    FR = 3,
    /// Both reads reverse.
    RR = 4,
    /// The first read reverse, the second forward.
    RF = 5,
}

impl Orientation {
    /// Returns the orientation of a pair from the strands of its ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::Orientation;
    ///
    /// assert_eq!(Orientation::from_strands(false, true), Orientation::FR);
    /// assert_eq!(Orientation::from_strands(true, true), Orientation::RR);
    /// ```
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

/// The location of a read on the flow cell, parsed from the read name. Coordinates keep only their low 16 bits, as in
/// Picard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct ReadLocation {
    /// Tile number; -1 if the location is not known.
    pub tile: i16,
    /// Column of the pixel.
    pub x: i16,
    /// Row of the pixel.
    pub y: i16,
}

impl ReadLocation {
    /// The location of a read whose name does not contain a location.
    pub const NONE: Self = Self { tile: -1, x: -1, y: -1 };

    /// Returns whether the location is known (`hasLocation` of Picard).
    #[inline]
    pub fn is_known(self) -> bool {
        self.tile != -1
    }
}

/// The signature of a primary mapped read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct EndSignature {
    /// 128-bit hash of the read group and the read name. Records with equal hashes are mates.
    pub name: [u64; 2],
    /// Id of the alignment record of the read.
    pub record: RecordId,
    /// Contig index of the read.
    pub contig: i32,
    /// 0-based unclipped 5' position of the read.
    pub five_prime: i32,
    /// 0-based POS. If [`end_flags::INPUT_ORDER`] is set: number of records of the same template that precede this
    /// record.
    pub position: i32,
    /// Contig index of the mate, or -1 if the read does not have a mapped mate.
    pub mate_contig: i32,
    /// Index of the library of the read.
    pub library: u16,
    /// Index of the read group in the header; [`NO_READ_GROUP`] if the read does not have a read group.
    pub read_group: u16,
    /// Location of the read on the flow cell.
    pub location: ReadLocation,
    /// Picard's duplicate score of the read.
    pub score: i16,
    /// Bits of [`end_flags`].
    pub flags: u16,
    /// Padding, always 0: the struct must not contain uninitialized bytes.
    pub padding: u16,
}

/// The signature of two mapped mates. End 1 is the mate with the smaller (contig, 5' position); if these are equal, the
/// first mate in coordinate order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PairSignature {
    /// 128-bit hash of the read group and the read name.
    pub name: [u64; 2],
    /// Id of the record of end 1.
    pub record1: RecordId,
    /// Id of the record of end 2.
    pub record2: RecordId,
    /// Contig index of end 1.
    pub contig1: i32,
    /// 0-based unclipped 5' position of end 1.
    pub five_prime1: i32,
    /// 0-based POS of end 1. If [`pair_flags::INPUT_ORDER`] is set: the index in the template, as in
    /// [`EndSignature::position`].
    pub position1: i32,
    /// Contig index of end 2.
    pub contig2: i32,
    /// 0-based unclipped 5' position of end 2.
    pub five_prime2: i32,
    /// 0-based POS of end 2. If [`pair_flags::INPUT_ORDER`] is set: the index in the template, as in
    /// [`EndSignature::position`].
    pub position2: i32,
    /// Index of the library of the read.
    pub library: u16,
    /// Index of the read group in the header; [`NO_READ_GROUP`] if the read does not have a read group.
    pub read_group: u16,
    /// Location of the read on the flow cell.
    pub location: ReadLocation,
    /// Picard's duplicate score of end 1.
    pub score1: i16,
    /// Picard's duplicate score of end 2.
    pub score2: i16,
    /// Bits of [`pair_flags`].
    pub flags: u16,
}

/// The record counts of a library that Picard collects before duplicate marking
/// (`DuplicationMetrics.addReadToLibraryMetrics`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicateCounts {
    /// Number of mapped primary reads without a mapped mate.
    pub unpaired_reads: u64,
    /// Number of mapped primary reads with a mapped mate; twice the number of pairs.
    pub paired_reads: u64,
    /// Number of secondary and supplementary records.
    pub not_primary: u64,
    /// Number of unmapped records.
    pub unmapped: u64,
}

impl DuplicateCounts {
    /// Adds the counts of `other` to these counts.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::DuplicateCounts;
    ///
    /// let mut counts = DuplicateCounts { paired_reads: 200, unmapped: 3, ..DuplicateCounts::default() };
    /// counts.add(&DuplicateCounts { paired_reads: 100, not_primary: 1, ..DuplicateCounts::default() });
    /// assert_eq!(counts, DuplicateCounts { unpaired_reads: 0, paired_reads: 300, not_primary: 1, unmapped: 3 });
    /// ```
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

    /// Returns whether the read has a mapped mate on a contig (`isPaired` of Picard).
    #[inline]
    pub fn is_paired(&self) -> bool {
        self.flags & end_flags::MATE_MAPPED != 0 && self.mate_contig != -1
    }

    /// Returns the key that orders reads as the output file does: the sort key, then the input order. If
    /// [`end_flags::INPUT_ORDER`] is set, only the input order counts.
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

    /// Returns the strands of end 1 and end 2. If both ends have the same 5' position, RF is returned as FR, because in
    /// this case the order of the ends depends only on the order of the file.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytemuck::Zeroable;
    /// use godwit_model::{Orientation, PairSignature, pair_flags};
    ///
    /// let mut pair = PairSignature { five_prime1: 999, five_prime2: 1_298, ..PairSignature::zeroed() };
    /// pair.flags = pair_flags::REVERSE2;
    /// assert_eq!(pair.orientation(), Orientation::FR);
    /// pair.flags = pair_flags::REVERSE1;
    /// assert_eq!(pair.orientation(), Orientation::RF);
    /// ```
    #[inline]
    pub fn orientation(&self) -> Orientation {
        let orientation = Orientation::from_strands(self.is_reverse1(), self.is_reverse2());
        let same_place = (self.contig1, self.five_prime1) == (self.contig2, self.five_prime2);
        if same_place && orientation == Orientation::RF { Orientation::FR } else { orientation }
    }

    /// Returns the strands in sequencing order (read 1, read 2), which the detection of optical duplicates compares.
    #[inline]
    pub fn optical_orientation(&self) -> u16 {
        self.flags >> pair_flags::OPTICAL_SHIFT & 0x7
    }

    /// Returns the last tie breaker between pairs: the order of both ends in the coordinate-sorted file. If
    /// [`pair_flags::INPUT_ORDER`] is set: the positions of both templates in the input, then the later end.
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

    /// Returns whether end 1 precedes end 2 in the output file.
    #[inline]
    pub fn is_end1_first(&self) -> bool {
        if self.flags & pair_flags::INPUT_ORDER == 0 {
            let [end1, end2, _] = self.file_order();
            end1 <= end2
        } else {
            self.record1 <= self.record2
        }
    }

    /// Returns the duplicate score of the pair as Picard computes it: a 16-bit sum.
    #[inline]
    pub fn score(&self) -> i16 {
        self.score1.wrapping_add(self.score2)
    }
}
