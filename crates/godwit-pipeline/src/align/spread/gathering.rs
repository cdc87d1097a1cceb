//! What nodes have from before, when a run goes on after its head was lost: the blocks of which all slices are somewhere need
//! not be aligned again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use godwit_exchange::{Event as LedgerEvent, NodeId, Order, Share};
use godwit_model::BlockId;

use super::HeadOfRun;
use crate::error::PipelineError;
use crate::observer::Event;
use crate::spread::News;

/// How long to wait for nodes that have not come, once one is ready. Those that have come are waited for until they have said
/// what they have: reading it takes a minute for a hundred gigabytes, aligning that again takes hours.
const FOR_OTHERS: Duration = Duration::from_secs(20);

/// Shares of an order that tells how the genome is cut.
pub(super) fn shares_of(order: &Order) -> u16 {
    match order {
        Order::Plan { shares, .. } => *shares,
        _ => 0,
    }
}

impl HeadOfRun<'_> {
    /// Waits for what nodes have of the blocks that an earlier head had aligned. Returns the blocks that need not be read.
    pub(super) fn gather(&mut self) -> Result<BTreeSet<BlockId>, PipelineError> {
        let Some(Order::Plan { starts, shares }) = self.plan.clone() else { return Ok(BTreeSet::new()) };
        self.wait_for_all()?;
        // There may be fewer of them now, and what the others had may lie where these find it.
        self.recalled.clear();
        self.crew.tell_all(&Order::Inherit { starts, shares });
        self.wait_for_all()?;
        self.tell(LedgerEvent::Planned { shares });
        let blocks = self.run.finished_blocks().map(|block| block.id);
        let held: BTreeSet<BlockId> = blocks.filter(|block| self.ledger.has_aligned(*block)).collect();
        let lost = self.run.finished().0 - held.len();
        if lost > 0 {
            self.crew.warn(format!("{lost} blocks that were aligned are on no node any more, and are aligned again"));
        }
        self.observer.event(&Event::Resumed { blocks: held.len(), partitions: 0 });
        self.report.kept_blocks = held.len() as u64;
        Ok(held)
    }

    /// Waits until all nodes are there and have said what they have.
    fn wait_for_all(&mut self) -> Result<(), PipelineError> {
        let since = Instant::now();
        loop {
            let there = self.crew.members().len();
            let all_said = there > 0 && self.crew.members().all(|node| self.recalled.contains(&node));
            let all_came = there >= self.crew.started() || since.elapsed() > FOR_OTHERS;
            if all_said && all_came {
                return Ok(());
            }
            if let Some(News::Said(node, report)) = self.next()? {
                self.said(node, report);
            }
        }
    }

    /// A node has slices of a block from before it joined. They count where they are of the reads that the run is about, and
    /// where the rest of what the block gave is here.
    pub(super) fn holds(&mut self, node: NodeId, block: BlockId, content: &str, shares: Vec<Share>) {
        let is_known = self.run.is_kept(block) && self.contents.get(&block).is_some_and(|known| known == content);
        if is_known && !shares.is_empty() {
            self.tell(LedgerEvent::Held(node, block, shares));
        }
    }
}
