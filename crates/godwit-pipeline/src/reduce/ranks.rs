//! Ranks of records in the sorted output, computed before it is written. The number of a duplicate set is the rank of
//! its best record. The rank is needed for the first record of the set, which may precede the best one. Computing ranks
//! takes an additional merge of all runs.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_kernels::markdup::RecordSet;
use godwit_kernels::sort::LoserTree;
use godwit_model::RecordId;

use crate::runs::{FinishedRuns, SplitPartition};

/// The ranks of the requested records in one partition.
#[derive(Clone, Debug, Default)]
pub struct RankedPart {
    /// The requested records, with their 0-based ranks within the partition.
    pub ranked_records: Vec<(RecordId, u64)>,
    /// Number of all records in the partition.
    pub records: u64,
}

/// Returns the 0-based ranks of records in the whole output, sorted by record. `partitions`: the ranks within each
/// partition.
pub fn file_ranks(partitions: Vec<RankedPart>) -> Vec<(RecordId, u64)> {
    let (mut ranks, mut before) = (Vec::new(), 0);
    for RankedPart { ranked_records, records } in partitions {
        ranks.extend(ranked_records.into_iter().map(|(record, place)| (record, before + place)));
        before += records;
    }
    ranks.sort_unstable();
    ranks
}

/// Returns the ranks of the records `wanted` within a partition.
///
/// # Errors
/// The I/O error of the spill file; [`io::ErrorKind::Interrupted`] if `cancelled` is set.
pub fn rank_wanted_records(
    runs: &FinishedRuns,
    split: &SplitPartition,
    wanted: &RecordSet,
    cancelled: &AtomicBool,
) -> io::Result<RankedPart> {
    let mut cursors = runs.cursors(split)?;
    let bits: Vec<&[u64]> = cursors.iter().map(|cursor| wanted.block_bits(cursor.block())).collect();
    let mut tree = LoserTree::new(cursors.iter().map(|cursor| Some(cursor.key())).collect());
    let (mut ranked_records, mut place) = (Vec::new(), 0u64);
    while let Some(source) = tree.winner() {
        if place.is_multiple_of(1 << 16) && cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let cursor = &mut cursors[source];
        let order = cursor.entry().order;
        if RecordSet::is_set(bits[source], order) {
            ranked_records.push((cursor.block().record(order), place));
        }
        place += 1;
        let next = cursor.advance()?.then(|| cursor.key());
        tree.advance(next);
    }
    Ok(RankedPart { ranked_records, records: place })
}
