//! Joining of two mates into a pair, with the rules of Picard 3.4.0 `MarkDuplicates.buildSortedReadEndLists`.

use godwit_model::{EndSignature, Orientation, PairSignature, end_flags, pair_flags};

use super::DuplicateMode;
use super::sort_items::EndItem;

/// The error if more reads of one read group share a name than Picard can join.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("two reads with the same name have their mate on contig {mate_contig} (0-based index)")]
pub struct RepeatedNameError {
    /// The read that is second in coordinate order.
    pub end: EndSignature,
    /// Contig index of the mates of both reads.
    pub mate_contig: i32,
}

/// Joins two ends into a pair. `earlier` precedes `later` in the coordinate-sorted file.
pub(super) fn join_mates(earlier: &EndSignature, later: &EndSignature) -> PairSignature {
    let (earlier_reverse, later_reverse) = (earlier.is_reverse(), later.is_reverse());
    // The detection of optical duplicates compares the strands in sequencing order, read 1 first.
    let optical_orientation = if later.flags & end_flags::FIRST != 0 {
        Orientation::from_strands(later_reverse, earlier_reverse)
    } else {
        Orientation::from_strands(earlier_reverse, later_reverse)
    };
    let later_trails = (later.contig, later.five_prime) >= (earlier.contig, earlier.five_prime);
    let (one, two) = if later_trails { (earlier, later) } else { (later, earlier) };
    let mut flags = (optical_orientation as u16) << pair_flags::OPTICAL_SHIFT;
    for (bit, set) in [
        (pair_flags::REVERSE1, one.is_reverse()),
        (pair_flags::REVERSE2, two.is_reverse()),
        (pair_flags::FIRST1, one.flags & end_flags::FIRST != 0),
        (pair_flags::FIRST2, two.flags & end_flags::FIRST != 0),
        (pair_flags::INPUT_ORDER, earlier.flags & end_flags::INPUT_ORDER != 0),
    ] {
        flags |= if set { bit } else { 0 };
    }
    PairSignature {
        name: earlier.name,
        record1: one.record,
        record2: two.record,
        contig1: one.contig,
        five_prime1: one.five_prime,
        position1: one.position,
        contig2: two.contig,
        five_prime2: two.five_prime,
        position2: two.position,
        library: earlier.library,
        read_group: earlier.read_group,
        location: earlier.location,
        score1: one.score,
        score2: two.score,
        flags,
    }
}

/// Splits a pair into its two ends, which equal the ends before [`join_mates`]. Each mate must name the contig of the
/// other.
pub(super) fn split_pair(pair: &PairSignature) -> [EndSignature; 2] {
    let end = |two: bool| {
        let (reverse, first) =
            if two { (pair_flags::REVERSE2, pair_flags::FIRST2) } else { (pair_flags::REVERSE1, pair_flags::FIRST1) };
        let mut flags = end_flags::MATE_MAPPED;
        flags |= if pair.flags & reverse != 0 { end_flags::REVERSE } else { 0 };
        flags |= if pair.flags & first != 0 { end_flags::FIRST } else { 0 };
        flags |= if pair.flags & pair_flags::INPUT_ORDER != 0 { end_flags::INPUT_ORDER } else { 0 };
        let pick = |a, b| if two { b } else { a };
        EndSignature {
            name: pair.name,
            record: if two { pair.record2 } else { pair.record1 },
            contig: pick(pair.contig1, pair.contig2),
            five_prime: pick(pair.five_prime1, pair.five_prime2),
            position: pick(pair.position1, pair.position2),
            mate_contig: pick(pair.contig2, pair.contig1),
            library: pair.library,
            read_group: pair.read_group,
            location: pair.location,
            score: if two { pair.score2 } else { pair.score1 },
            flags,
            padding: 0,
        }
    };
    [end(false), end(true)]
}

/// Joins all reads with one name and read group, in file order, in the same way as Picard's map of pending mates. A
/// read is joined to the pending read whose mate contig is the contig of this read. Without such a read, it becomes
/// pending under its own mate contig.
///
/// `has_paired_reads` returns whether a contig has any read with a mapped mate, of any name. `emit` is called with each
/// pair and the later of its ends.
///
/// # Errors
/// [`RepeatedNameError`] if two pending reads have the same mate contig and a later read is on that contig. Without a
/// later read, both reads stay unpaired, because `CoordinateSortedPairInfoMap` of htsjdk detects two entries only when
/// it reads their contig. With [`DuplicateMode::Query`], the second read silently replaces the first
/// (`MemoryBasedReadEndsForMarkDuplicatesMap`).
pub(super) fn join_ends_of_name<E: EndItem>(
    ends: &mut [E],
    mode: DuplicateMode,
    has_paired_reads: impl Fn(i32) -> bool,
    mut emit: impl FnMut(E::Pair, &E),
) -> Result<(), RepeatedNameError> {
    ends.sort_unstable_by_key(|end| end.signature().file_order());
    let mut waiting: Vec<E> = Vec::new();
    for item in ends.iter() {
        let end = item.signature();
        if let Some(at) = waiting.iter().position(|other| other.signature().mate_contig == end.contig) {
            emit(E::join(&waiting.swap_remove(at), item), item);
            continue;
        }
        let same_contig = waiting.iter().position(|other| other.signature().mate_contig == end.mate_contig);
        match (mode, same_contig) {
            (DuplicateMode::Query, Some(at)) => waiting[at] = *item,
            // The contig of the mate has already been processed, so a pending entry would never be looked up.
            (DuplicateMode::Coordinate, _) if end.mate_contig < end.contig => {}
            (DuplicateMode::Coordinate, Some(_)) if has_paired_reads(end.mate_contig) => {
                return Err(RepeatedNameError { end: *end, mate_contig: end.mate_contig });
            }
            _ => waiting.push(*item),
        }
    }
    Ok(())
}
