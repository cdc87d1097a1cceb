//! Overlapping mates, whose shared bases count once: the rule of mosdepth 0.3.3 (`coverage` in `mosdepth.nim`).
//!
//! The first mate is stored under a hash of its name until the second is read. Mates on either side of a partition's border
//! remain on both sides and are joined when the partitions are merged.

use std::collections::HashMap;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// A range of positions of a contig, 0-based, half-open.
pub(super) type PositionRange = (u32, u32);

/// A read that overlaps its mate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mate {
    pub(super) start: u32,
    pub(super) end: u32,
    /// True if its CIGAR is one operation.
    #[serde(rename = "simple")]
    is_single_operation: bool,
    /// Aligned ranges, merged where they touch.
    #[serde(rename = "stretches")]
    aligned_ranges: Vec<PositionRange>,
}

impl Mate {
    /// Returns the ranges that both mates cover, in order.
    ///
    /// For two reads of one operation each, mosdepth takes the range from the start of the second to the end of the first,
    /// even if the second ends before (seen with 100M and 30M inside it).
    pub(super) fn shared_ranges(&self, second: &Self) -> Vec<PositionRange> {
        if self.is_single_operation && second.is_single_operation {
            return if second.start < self.end { vec![(second.start, self.end)] } else { Vec::new() };
        }
        let mut shared = Vec::new();
        for (start, end) in &self.aligned_ranges {
            let pieces = second.aligned_ranges.iter().map(|(from, to)| (*start.max(from), *end.min(to)));
            shared.extend(pieces.filter(|(from, to)| from < to));
        }
        shared.sort_unstable();
        shared
    }
}

/// First mates whose second mate was not read yet, within one contig.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingMates {
    first_mates: HashMap<u128, Mate>,
    /// Second mates whose first may be in an earlier partition.
    second_mates: Vec<(u128, Mate)>,
}

/// Mates that have no partner in their partition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct UnmatchedMates {
    #[serde(rename = "waiting")]
    pub(super) first_mates: Vec<(u128, Mate)>,
    #[serde(rename = "unmet")]
    pub(super) second_mates: Vec<(u128, Mate)>,
}

impl PendingMates {
    /// Matches a counted record of a proper pair; returns the ranges that it shares with a mate seen before. `first`: start
    /// of the first record of this partition and contig.
    pub(super) fn match_record(
        &mut self,
        record: RawRecord,
        flag: u16,
        stretches: &[PositionRange],
        end: u32,
        first: u32,
    ) -> Vec<PositionRange> {
        if flag & flags::PROPER_PAIR == 0 || flag & flags::SUPPLEMENTARY != 0 {
            return Vec::new();
        }
        let (start, mate_start) = (record.position(), record.mate_position());
        let before = record.contig() == record.mate_contig() && i64::from(end) > i64::from(mate_start);
        if !before && start < mate_start {
            return Vec::new();
        }
        let key = xxh3_128(record.name());
        let mate = || Mate {
            start: start.max(0) as u32,
            end,
            is_single_operation: record.cigar_operation_count() == 1,
            aligned_ranges: stretches.to_vec(),
        };
        if before && (start < mate_start || (start == mate_start && !self.first_mates.contains_key(&key))) {
            // If mates start at one position across a border, the merge of partitions detects the second one.
            self.first_mates.insert(key, mate());
            return Vec::new();
        }
        match self.first_mates.remove(&key) {
            Some(earlier) => earlier.shared_ranges(&mate()),
            None => {
                if record.contig() == record.mate_contig() && i64::from(mate_start) < i64::from(first) {
                    self.second_mates.push((key, mate()));
                }
                Vec::new()
            }
        }
    }

    /// Ends the contig and returns the remaining mates.
    pub(super) fn finish(&mut self) -> UnmatchedMates {
        let mut first_mates: Vec<_> = self.first_mates.drain().collect();
        first_mates.sort_unstable_by_key(|(key, mate)| (mate.start, *key));
        UnmatchedMates { first_mates, second_mates: std::mem::take(&mut self.second_mates) }
    }
}
