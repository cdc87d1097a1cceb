//! The time of the scheduler's decisions: a run in which every action completes at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use godwit_exchange::{ShuffleAction, ShuffleEvent, ShuffleOptions, ShuffleScheduler, WorkerId};
use godwit_model::BlockId;

/// The number of events and the time that they took.
#[derive(Clone, Copy, Debug)]
pub struct LedgerTimings {
    /// The number of events that the scheduler handled.
    pub events: u64,
    /// The total time in the scheduler.
    pub total_time: Duration,
    /// The longest time for one event.
    pub longest_event_time: Duration,
}

/// Runs the scheduler on `blocks` blocks and `nodes` workers.
///
/// # Panics
/// When the run does not end.
pub fn time_ledger(blocks: u32, nodes: u32) -> LedgerTimings {
    let mut ledger = ShuffleScheduler::new(ShuffleOptions::default());
    let mut speed = LedgerTimings { events: 0, total_time: Duration::ZERO, longest_event_time: Duration::ZERO };
    let mut tell = |event| {
        let started = Instant::now();
        let actions = ledger.handle_event(event, Duration::from_millis(speed.events));
        let took = started.elapsed();
        speed.events += 1;
        speed.total_time += took;
        speed.longest_event_time = speed.longest_event_time.max(took);
        actions
    };
    let mut waiting = VecDeque::new();
    (0..nodes).for_each(|node| waiting.extend(tell(ShuffleEvent::WorkerJoined { worker: WorkerId(node), writers: 2 })));
    waiting.extend(tell(ShuffleEvent::GenomeSharded { shard_count: (4 * nodes) as u16 }));
    (0..nodes).for_each(|node| waiting.extend(tell(ShuffleEvent::WorkRequested(WorkerId(node)))));
    let mut decided = false;
    for ordinal in 0..=blocks {
        let next = if ordinal < blocks {
            ShuffleEvent::BlockAvailable(BlockId { lane: 0, ordinal })
        } else {
            ShuffleEvent::InputEnded
        };
        waiting.extend(tell(next));
        while let Some(action) = waiting.pop_front() {
            match action {
                ShuffleAction::AlignBlock(node, block) => {
                    waiting.extend(tell(ShuffleEvent::BlockAligned(node, block)));
                    waiting.extend(tell(ShuffleEvent::WorkRequested(node)));
                }
                ShuffleAction::FetchSlices { worker, block, .. } => {
                    waiting.extend(tell(ShuffleEvent::SlicesFetched(worker, block)))
                }
                ShuffleAction::DecideDuplicates => decided = true,
                _ => {}
            }
        }
    }
    assert!(decided, "all blocks were aligned, but not all are finished");
    speed
}
