//! Places of records in the sorted file before it is written: a duplicate set is named by the place of its best record,
//! which may come long after the first that bears the name. Costs one more merge of all runs.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use godwit_kernels::markdup::Verdicts;
use godwit_kernels::sort::LoserTree;
use godwit_model::RecordId;

use crate::runs::{FinishedRuns, SplitPartition};

/// Records of a partition that are wanted, with their places in it, and the number of its records.
type Places = (Vec<(RecordId, u64)>, u64);

/// The 0-based places of the wanted records, by record.
pub(super) fn rank(
    runs: &FinishedRuns,
    partitions: &[SplitPartition],
    wanted: &Verdicts,
    threads: usize,
    cancelled: &AtomicBool,
) -> io::Result<Vec<(RecordId, u64)>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Places)>> = Mutex::new(Vec::with_capacity(partitions.len()));
    let worker = || -> io::Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(split) = partitions.get(at) else { return Ok(()) };
            let places = places(runs, split, wanted, cancelled)?;
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, places));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, _)| *at);
    let (mut ranks, mut before) = (Vec::new(), 0);
    for (_, (places, records)) in done {
        ranks.extend(places.into_iter().map(|(record, place)| (record, before + place)));
        before += records;
    }
    ranks.sort_unstable();
    Ok(ranks)
}

fn places(
    runs: &FinishedRuns,
    split: &SplitPartition,
    wanted: &Verdicts,
    cancelled: &AtomicBool,
) -> io::Result<Places> {
    let mut cursors = runs.cursors(split)?;
    let bits: Vec<&[u64]> = cursors.iter().map(|cursor| wanted.of_block(cursor.block())).collect();
    let mut tree = LoserTree::new(cursors.iter().map(|cursor| Some(cursor.key())).collect());
    let (mut places, mut place) = (Vec::new(), 0u64);
    while let Some(source) = tree.winner() {
        if place.is_multiple_of(1 << 16) && cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        let cursor = &mut cursors[source];
        let order = cursor.entry().order;
        if Verdicts::is_set(bits[source], order) {
            places.push((cursor.block().record(order), place));
        }
        place += 1;
        let next = cursor.advance()?.then(|| cursor.key());
        tree.advance(next);
    }
    Ok((places, place))
}
