//! Mates that overlap, whose shared bases count once: the rule of mosdepth 0.3.3 (`coverage` in `mosdepth.nim`).
//!
//! The first mate waits under a hash of its name until the second comes. Mates on either side of a partition's border are
//! left over on both sides and joined when the partitions are merged.

use std::collections::HashMap;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// A stretch of a contig, 0-based, half-open.
pub(super) type Stretch = (u32, u32);

/// A read that overlaps its mate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mate {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Its CIGAR is one operation.
    simple: bool,
    /// Aligned stretches, those that touch joined.
    stretches: Vec<Stretch>,
}

impl Mate {
    /// Stretches where both lie, in order.
    ///
    /// Between two reads of one operation each, mosdepth takes from the start of the second to the end of the first, even
    /// where the second ends before (seen with 100M and 30M inside it).
    pub(super) fn shared(&self, second: &Self) -> Vec<Stretch> {
        if self.simple && second.simple {
            return if second.start < self.end { vec![(second.start, self.end)] } else { Vec::new() };
        }
        let mut shared = Vec::new();
        for (start, end) in &self.stretches {
            let pieces = second.stretches.iter().map(|(from, to)| (*start.max(from), *end.min(to)));
            shared.extend(pieces.filter(|(from, to)| from < to));
        }
        shared.sort_unstable();
        shared
    }
}

/// First mates that wait for the second, within one contig.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlaps {
    waiting: HashMap<u128, Mate>,
    /// Second mates whose first may be in an earlier partition.
    unmet: Vec<(u128, Mate)>,
}

/// What a partition could not join.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Unjoined {
    pub(super) waiting: Vec<(u128, Mate)>,
    pub(super) unmet: Vec<(u128, Mate)>,
}

impl Overlaps {
    /// Takes a counted record of proper pairs; returns the stretches that it shares with a mate seen before. `first`:
    /// start of the first record of this partition and contig.
    pub(super) fn take(
        &mut self,
        record: RawRecord,
        flag: u16,
        stretches: &[Stretch],
        end: u32,
        first: u32,
    ) -> Vec<Stretch> {
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
            simple: record.cigar_operations() == 1,
            stretches: stretches.to_vec(),
        };
        if before && (start < mate_start || (start == mate_start && !self.waiting.contains_key(&key))) {
            // Where mates start together across a border, the second is found to be one when partitions are merged.
            self.waiting.insert(key, mate());
            return Vec::new();
        }
        match self.waiting.remove(&key) {
            Some(earlier) => earlier.shared(&mate()),
            None => {
                if record.contig() == record.mate_contig() && i64::from(mate_start) < i64::from(first) {
                    self.unmet.push((key, mate()));
                }
                Vec::new()
            }
        }
    }

    /// Ends the contig.
    pub(super) fn finish(&mut self) -> Unjoined {
        let mut waiting: Vec<_> = self.waiting.drain().collect();
        waiting.sort_unstable_by_key(|(key, mate)| (mate.start, *key));
        Unjoined { waiting, unmet: std::mem::take(&mut self.unmet) }
    }
}
