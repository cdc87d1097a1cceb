//! How long decisions take: a run in which everything asked for is done at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use godwit_exchange::{Action, Event, Ledger, LedgerOptions, NodeId};
use godwit_model::BlockId;

/// What was decided, and how long that took.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Events that the ledger took.
    pub events: u64,
    /// Time in the ledger.
    pub deciding: Duration,
    /// The longest time for one event.
    pub longest: Duration,
}

/// Has so many blocks aligned by so many nodes.
///
/// # Panics
/// When the ledger does not come to its end.
pub fn speed(blocks: u32, nodes: u32) -> Speed {
    let mut ledger = Ledger::new(LedgerOptions::default());
    let mut speed = Speed { events: 0, deciding: Duration::ZERO, longest: Duration::ZERO };
    let mut tell = |event| {
        let started = Instant::now();
        let actions = ledger.on(event, Duration::from_millis(speed.events));
        let took = started.elapsed();
        speed.events += 1;
        speed.deciding += took;
        speed.longest = speed.longest.max(took);
        actions
    };
    let mut waiting = VecDeque::new();
    (0..nodes).for_each(|node| waiting.extend(tell(Event::Joined { node: NodeId(node), writers: 2 })));
    waiting.extend(tell(Event::Planned { shares: (4 * nodes) as u16 }));
    (0..nodes).for_each(|node| waiting.extend(tell(Event::Wants(NodeId(node)))));
    let mut decided = false;
    for ordinal in 0..=blocks {
        let next = if ordinal < blocks { Event::Fed(BlockId { lane: 0, ordinal }) } else { Event::FeedEnded };
        waiting.extend(tell(next));
        while let Some(action) = waiting.pop_front() {
            match action {
                Action::Align(node, block) => {
                    waiting.extend(tell(Event::Aligned(node, block)));
                    waiting.extend(tell(Event::Wants(node)));
                }
                Action::Fetch { node, block, .. } => waiting.extend(tell(Event::Fetched(node, block))),
                Action::Decide => decided = true,
                _ => {}
            }
        }
    }
    assert!(decided, "all blocks were aligned, but not all are finished");
    speed
}
