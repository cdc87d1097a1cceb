//! Places of records in the sorted file before it is written: a duplicate set is named by the place of its best record,
//! which may come long after the first that bears the name. Costs one more merge of all runs.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_kernels::markdup::Verdicts;
use godwit_kernels::sort::LoserTree;
use godwit_model::RecordId;

use crate::runs::{FinishedRuns, SplitPartition};

/// What is found in one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankedPart {
    /// Records that are wanted, with their 0-based places in the partition.
    pub(crate) found: Vec<(RecordId, u64)>,
    /// Number of its records.
    pub(crate) records: u64,
}

/// The 0-based places of records in the file, by record, from those in its partitions.
pub(crate) fn ranks(partitions: Vec<RankedPart>) -> Vec<(RecordId, u64)> {
    let (mut ranks, mut before) = (Vec::new(), 0);
    for RankedPart { found, records } in partitions {
        ranks.extend(found.into_iter().map(|(record, place)| (record, before + place)));
        before += records;
    }
    ranks.sort_unstable();
    ranks
}

/// Finds the wanted records of a partition.
///
/// # Errors
/// What the spill reports; [`io::ErrorKind::Interrupted`] once `cancelled` is set.
pub(crate) fn places(
    runs: &FinishedRuns,
    split: &SplitPartition,
    wanted: &Verdicts,
    cancelled: &AtomicBool,
) -> io::Result<RankedPart> {
    let mut cursors = runs.cursors(split)?;
    let bits: Vec<&[u64]> = cursors.iter().map(|cursor| wanted.of_block(cursor.block())).collect();
    let mut tree = LoserTree::new(cursors.iter().map(|cursor| Some(cursor.key())).collect());
    let (mut found, mut place) = (Vec::new(), 0u64);
    while let Some(source) = tree.winner() {
        if place.is_multiple_of(1 << 16) && cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let cursor = &mut cursors[source];
        let order = cursor.entry().order;
        if Verdicts::is_set(bits[source], order) {
            found.push((cursor.block().record(order), place));
        }
        place += 1;
        let next = cursor.advance()?.then(|| cursor.key());
        tree.advance(next);
    }
    Ok(RankedPart { found, records: place })
}
