//! Detection of overlapping mates, whose shared bases count only once in the depth: the rule of mosdepth 0.3.3
//! (`coverage` in `mosdepth.nim`).
//!
//! The first mate is stored under a hash of its name until the second mate is read. If a partition border is between
//! the mates, each partition returns its mate, and the mates are matched when the partitions are merged.

use std::collections::HashMap;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// A range of positions on a contig, 0-based and half-open.
pub(super) type PositionRange = (u32, u32);

/// A read that overlaps its mate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mate {
    pub(super) start: u32,
    pub(super) end: u32,
    /// True if the CIGAR of the read has only one operation.
    #[serde(rename = "simple")]
    is_single_operation: bool,
    /// Ranges that the read covers with aligned bases; adjacent ranges are merged.
    #[serde(rename = "stretches")]
    aligned_ranges: Vec<PositionRange>,
}

impl Mate {
    /// Returns the ranges that both mates cover, in ascending order.
    ///
    /// If the CIGARs of both reads have one operation, mosdepth uses the range from the start of the second read to the
    /// end of the first. It does so even if the second read ends earlier (observed with 100M and 30M inside it).
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

/// The mates on the current contig that have not been matched.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingMates {
    first_mates: HashMap<u128, Mate>,
    /// Second mates whose first mate may be in an earlier partition, with the hashes of their names.
    second_mates: Vec<(u128, Mate)>,
}

/// The mates of a partition whose other mate is not in the same partition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct UnmatchedMates {
    #[serde(rename = "waiting")]
    pub(super) first_mates: Vec<(u128, Mate)>,
    #[serde(rename = "unmet")]
    pub(super) second_mates: Vec<(u128, Mate)>,
}

impl PendingMates {
    /// Matches a record of a proper pair with its mate. Returns the ranges that both mates cover if the mate was read
    /// before. `first` is the start of the first record in this partition and contig.
    pub(super) fn match_record(
        &mut self,
        record: RawRecord,
        flag: u16,
        aligned_ranges: &[PositionRange],
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
            aligned_ranges: aligned_ranges.to_vec(),
        };
        if before && (start < mate_start || (start == mate_start && !self.first_mates.contains_key(&key))) {
            // If two mates start at the same position on both sides of a partition border, the second mate is stored
            // here, too. The merge of partitions detects this case.
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

    /// Ends the contig and returns the mates that were not matched.
    pub(super) fn finish(&mut self) -> UnmatchedMates {
        let mut first_mates: Vec<_> = self.first_mates.drain().collect();
        first_mates.sort_unstable_by_key(|(key, mate)| (mate.start, *key));
        UnmatchedMates { first_mates, second_mates: std::mem::take(&mut self.second_mates) }
    }
}
