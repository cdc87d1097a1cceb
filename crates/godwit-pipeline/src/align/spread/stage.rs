//! The two stages of a run over nodes: blocks until every slice is where it belongs, then parts until all are in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use arrow_buffer::MutableBuffer;
use godwit_exchange::{Action, Event as LedgerEvent, FILES, Gift, NodeId, Order, PerFile, Report, Share};
use godwit_kernels::markdup::BlockSignatures;
use godwit_model::{BlockId, DuplicateCounts, PartitionPlan, RecordId, SortKey};

use super::super::feed::{FeedLane, FeedReport, Feeder, check_kept};
use super::super::{Given, SharedProgress, Worked, lanes};
use super::gathering::shares_of;
use super::reads::{Fed, ReadsSpool, SpoolSink, Wanted};
use super::{HeadOfRun, named, plan_order};
use crate::error::PipelineError;
use crate::node::{BlockPieces, WriteJob};
use crate::observer::{Event, Observer};
use crate::partitioned_file::{PartEdges, PartExtent};
use crate::reduce::{BlockElsewhere, Collector, Decided, Gathering, Opened, RankedPart, Reduced, ranks};
use crate::runs::{Shares, SplitPartition};
use crate::spread::{News, for_nodes};

/// Blocks that are read ahead beyond one for each node.
const BLOCKS_AHEAD: usize = 2;

/// What a run over nodes takes besides its head.
pub(in crate::align) struct SpreadJob<'r> {
    pub(in crate::align) given: Given<'r>,
    pub(in crate::align) spool: &'r ReadsSpool,
    /// Index of the library of each lane.
    pub(in crate::align) lane_libraries: Vec<u16>,
    pub(in crate::align) progress: SharedProgress,
}

/// Blocks until every slice is where it belongs.
struct Aligning<'s, 'r> {
    job: &'s SpreadJob<'r>,
    collector: &'s Collector,
    fed: Receiver<Fed>,
    sender: mpsc::Sender<Fed>,
    /// Ends the threads that read the input.
    stop: &'s Arc<AtomicBool>,
    /// The first block, which decides how the genome is cut.
    first: Option<BlockId>,
    /// Blocks whose signatures are in.
    taken: BTreeSet<BlockId>,
    reads: u64,
    plan: Option<PartitionPlan>,
    last_aligned: Instant,
    refeeds: &'s Mutex<Vec<PipelineError>>,
}

impl SpreadJob<'_> {
    /// Runs to the end.
    pub(in crate::align) fn run(
        &self,
        mut head: HeadOfRun,
        feed_lanes: Vec<FeedLane>,
        collector: Collector,
        opened: Opened,
    ) -> Result<Worked, PipelineError> {
        let (fed, plan) = self.align(&mut head, feed_lanes, &collector)?;
        let aligned = Instant::now();
        let mut decided = collector.decide(self.given.genome, self.given.observer)?;
        let reduced = self.write(&mut head, &mut decided, plan, opened)?;
        head.crew.check_current()?;
        head.crew.finish();
        Ok(Worked { fed, reduced, aligned, exchange: Some(head.take_report()) })
    }

    fn align(
        &self,
        head: &mut HeadOfRun,
        feed_lanes: Vec<FeedLane>,
        collector: &Collector,
    ) -> Result<(FeedReport, Option<PartitionPlan>), PipelineError> {
        let nodes = head.crew.started();
        let mut held = head.gather()?;
        // What comes through a pipe is spooled again, because it cannot be read again when nodes are lost.
        held.retain(|block| !self.spool.keeps(*block));
        let run = self.given.run;
        let stop = Arc::new(AtomicBool::new(false));
        let refeeds = Mutex::new(Vec::new());
        let (sender, fed) = mpsc::channel();
        let mut aligning = Aligning {
            job: self,
            collector,
            fed,
            sender: sender.clone(),
            stop: &stop,
            first: None,
            taken: run.finished_blocks().map(|block| block.id).collect(),
            reads: 0,
            plan: run.plan().cloned(),
            last_aligned: Instant::now(),
            refeeds: &refeeds,
        };
        std::thread::scope(|scope| {
            let lanes = feed_lanes.into_iter().enumerate().collect();
            let feeding = scope.spawn(|| {
                let (spool, cancelled) = (self.spool, &*stop);
                let wanted = Wanted::AllBut(held);
                let sink = SpoolSink { spool, fed: sender, cancelled, ahead: nodes + BLOCKS_AHEAD, wanted, open: None };
                self.feed(lanes, sink, &stop)
            });
            let outcome = aligning.run(head, scope, feeding);
            stop.store(true, Ordering::Relaxed);
            let mut fed = outcome?;
            check_kept(&fed, run)?;
            fed.blocks_before = head.report.kept_blocks as usize;
            let due = fed.reads - fed.reads_before;
            if aligning.reads != due {
                return Err(PipelineError::Lost { what: "reads", taken: due, written: aligning.reads });
            }
            fed.records = collector.records();
            Ok((fed, aligning.plan))
        })
    }

    fn feed(
        &self,
        lanes: Vec<(usize, FeedLane)>,
        writer: SpoolSink,
        stop: &Arc<AtomicBool>,
    ) -> Result<FeedReport, PipelineError> {
        let Given { options, run, .. } = self.given;
        let lane_options = options.lane_options();
        Feeder { lanes, lane_options, writer, options, run, before: FeedReport::default() }.run(&self.progress, stop)
    }

    /// Reads the input again for blocks that no node has any more.
    fn feed_again(
        &self,
        blocks: BTreeSet<BlockId>,
        sender: mpsc::Sender<Fed>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), PipelineError> {
        let planned = lanes::plan(self.given.options, stop)?;
        let lanes = self.given.groups.feed_lanes(planned, self.given.read_groups).into_iter().enumerate().collect();
        let wanted = Wanted::Only(blocks);
        let sink = SpoolSink { spool: self.spool, fed: sender, cancelled: stop, ahead: 0, wanted, open: None };
        self.feed(lanes, sink, stop).map(drop)
    }

    /// Hands out a block of a lane that can be read but once; where it has not been read yet, that is done when it has.
    fn offer_kept(&self, head: &mut HeadOfRun, block: BlockId) {
        if self.spool.has(block) {
            head.fed(block);
        }
    }

    fn write(
        &self,
        head: &mut HeadOfRun,
        decided: &mut Decided,
        plan: Option<PartitionPlan>,
        opened: Opened,
    ) -> Result<Reduced, PipelineError> {
        let Given { header, genome, outputs, observer, .. } = self.given;
        observer.event(&Event::Stage { name: "writing" });
        let shares = plan.map(|plan| Shares::new(plan, head.ledger.owners().len()));
        let of_share = |partition: usize| shares.as_ref().map_or(0, |shares| shares.share_of(partition)) as u16;
        let shares: Vec<Share> = decided.parts().iter().map(|split| Share(of_share(split.partition))).collect();
        if let Some(representatives) = decided.representatives() {
            self.spool.set_representatives(representatives);
            let mut ranking = Ranking { parts: decided.parts().to_vec(), ranked: BTreeMap::new() };
            self.parts(head, &mut ranking, shares.clone())?;
            decided.number_sets(&ranks(ranking.ranked.into_values().collect()));
        }
        self.spool.set_verdicts(decided.take_verdicts().unwrap_or_default());
        let decided = &*decided;
        let gathering = decided.gather(header, genome, outputs, opened)?;
        let job = WriteJob {
            header: String::from_utf8_lossy(&header.text()).into_owned(),
            places: gathering.places().map_err(PipelineError::file("find", &outputs.stem))?,
            writing: decided.writing().clone(),
            reference: head.work.reference.clone(),
            sample: head.work.sample.clone(),
            parts: decided.parts().to_vec(),
        };
        let job = for_nodes(&job)?;
        let orders = Order::Decided { job };
        head.crew.tell_all(&orders);
        head.decided = Some(orders);
        let mut writing = Writing { observer, gathering, placed: 0, kept: 0, parts: decided.parts().len() };
        self.parts(head, &mut writing, shares)?;
        let kept_partitions = writing.kept;
        let reduced = writing.gathering.complete(genome, outputs)?;
        Ok(Reduced { kept_partitions, ..reduced })
    }

    /// Has something done with every part.
    fn parts(&self, head: &mut HeadOfRun, work: &mut impl PartWork, shares: Vec<Share>) -> Result<(), PipelineError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, fed) = mpsc::channel();
        head.tell(LedgerEvent::Decided(shares));
        let mut finished = false;
        loop {
            let mut again = BTreeSet::new();
            for action in std::mem::take(&mut head.actions) {
                match action {
                    Action::Finish => finished = true,
                    Action::Write(node, part) => work.write(head, node, part)?,
                    Action::Place(node, part, offset) => work.place(head, node, part, offset),
                    Action::Differs(_) => {
                        return Err(PipelineError::Lost { what: "parts of one size", taken: 1, written: 0 });
                    }
                    Action::Refeed(block) if self.spool.keeps(block) => self.offer_kept(head, block),
                    Action::Refeed(block) => drop(again.insert(block)),
                    action => head.carry_out(&action, None, self.spool),
                }
            }
            if finished {
                return Ok(());
            }
            if !again.is_empty() {
                // Two nodes were lost at once, so late that nothing else goes on meanwhile.
                self.feed_again(again, sender.clone(), &stop)?;
            }
            while let Ok(Fed::Block(block)) = fed.try_recv() {
                head.fed(block);
            }
            match head.next()? {
                Some(News::Said(node, report)) => head.said(node, report),
                Some(News::Gave(node, gift, pieces)) => {
                    head.report.head_bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
                    match gift {
                        Gift::Block { block, .. } => head.tell(LedgerEvent::Aligned(node, block)),
                        gift => work.take(head, node, gift, &pieces)?,
                    }
                }
                // Joining and leaving is dealt with.
                Some(News::Lost(_)) | None => {}
            }
            head.tick();
        }
    }
}

/// What is done with every part.
trait PartWork {
    /// Lets a node do it.
    fn write(&mut self, head: &mut HeadOfRun, node: NodeId, part: usize) -> Result<(), PipelineError>;

    /// Lets a node put what it made into the files.
    fn place(&mut self, head: &mut HeadOfRun, node: NodeId, part: usize, offset: PerFile);

    /// Takes what came of it.
    fn take(
        &mut self,
        head: &mut HeadOfRun,
        node: NodeId,
        gift: Gift,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError>;
}

impl<'s> Aligning<'s, '_> {
    fn run<'scope>(
        &mut self,
        head: &mut HeadOfRun,
        scope: &'scope Scope<'scope, '_>,
        feeding: ScopedJoinHandle<'scope, Result<FeedReport, PipelineError>>,
    ) -> Result<FeedReport, PipelineError>
    where
        's: 'scope,
    {
        let mut feeding = Some(feeding);
        let mut report = None;
        loop {
            if let Some(ended) = feeding.take_if(|feeding| feeding.is_finished()) {
                let fed = ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                report = Some(fed.map_err(|error| error.unless_cancelled(head.cancelled))?);
                self.take_fed(head);
                head.tell(LedgerEvent::FeedEnded);
            }
            self.take_fed(head);
            if let Some(error) = self.refeeds.lock().unwrap_or_else(PoisonError::into_inner).pop() {
                return Err(error);
            }
            let incoming = head.next()?;
            if let Some(incoming) = incoming {
                self.take(head, incoming)?;
            }
            head.tick();
            self.job.spool.set_waiting(head.ledger.waiting_blocks());
            let mut again = BTreeSet::new();
            for action in std::mem::take(&mut head.actions) {
                match action {
                    Action::Decide => {
                        head.crew.compare_with_work(self.taken.len(), "blocks", "align");
                        head.report.exposed_seconds = self.last_aligned.elapsed().as_secs_f64();
                        head.report.blocks = self.taken.len() as u64;
                        return Ok(report.unwrap_or_default());
                    }
                    Action::Refeed(block) if self.job.spool.keeps(block) => self.job.offer_kept(head, block),
                    Action::Refeed(block) => drop(again.insert(block)),
                    action => head.carry_out(&action, self.first, self.job.spool),
                }
            }
            if !again.is_empty() {
                self.feed_again(scope, again);
            }
        }
    }

    fn take_fed(&mut self, head: &mut HeadOfRun) {
        while let Ok(Fed::Block(block)) = self.fed.try_recv() {
            self.first = Some(self.first.map_or(block, |first| first.min(block)));
            head.fed(block);
        }
    }

    fn feed_again<'scope>(&self, scope: &'scope Scope<'scope, '_>, blocks: BTreeSet<BlockId>)
    where
        's: 'scope,
    {
        let (job, sender, stop, refeeds) = (self.job, self.sender.clone(), self.stop, self.refeeds);
        scope.spawn(move || {
            if let Err(error) = job.feed_again(blocks, sender, stop) {
                refeeds.lock().unwrap_or_else(PoisonError::into_inner).push(error);
            }
        });
    }

    fn take(&mut self, head: &mut HeadOfRun, incoming: News) -> Result<(), PipelineError> {
        match incoming {
            News::Said(_, Report::Cut { starts }) if self.plan.is_none() => self.cut(head, starts)?,
            News::Said(node, report) => head.said(node, report),
            News::Gave(node, Gift::Block { block, reads, records, counts }, pieces) => {
                self.take_block(head, node, (block, reads, records, counts), &pieces)?;
            }
            // Parts are not asked for yet; joining and leaving is dealt with.
            News::Gave(..) | News::Lost(_) => {}
        }
        Ok(())
    }

    fn cut(&mut self, head: &mut HeadOfRun, starts: Vec<SortKey>) -> Result<(), PipelineError> {
        let plan = PartitionPlan::from_starts(starts);
        let plan =
            plan.ok_or_else(|| PipelineError::Options { problem: "a node cut the genome in a wrong way".into() })?;
        let Some(over) = self.job.given.run.over_nodes() else { return Ok(()) };
        let order = plan_order(&plan, over);
        head.crew.tell_all(&order);
        head.tell(LedgerEvent::Planned { shares: shares_of(&order) });
        head.plan = Some(order);
        self.plan = Some(plan);
        Ok(())
    }

    fn take_block(
        &mut self,
        head: &mut HeadOfRun,
        node: NodeId,
        (block, reads, records, counts): (BlockId, u64, u64, DuplicateCounts),
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError> {
        let Some(plan) = self.plan.as_ref().filter(|_| head.ledger.is_leased(node, block)) else { return Ok(()) };
        head.report.head_bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        if self.taken.insert(block) {
            let malformed = || head.crew.wrong(node, format!("what it says of {} cannot be read", named(block)));
            let BlockPieces { pairs, ends, table, details } = BlockPieces::from_bytes(pieces).ok_or_else(malformed)?;
            let library = self.job.lane_libraries.get(usize::from(block.lane)).copied().ok_or_else(malformed)?;
            let mut by_library = vec![DuplicateCounts::default(); usize::from(library) + 1];
            by_library[usize::from(library)] = counts;
            let signatures = BlockSignatures { pairs, ends, counts: by_library };
            let elsewhere = BlockElsewhere { records, signatures, details, table };
            if !self.collector.add_block_elsewhere(block, elsewhere, plan)? {
                return Err(malformed());
            }
            self.reads += reads;
            self.last_aligned = Instant::now();
            let fraction = self.job.progress.fraction_after_block();
            let (lane, block) = (block.lane, block.ordinal);
            self.job.given.observer.event(&Event::Aligned { lane, block, reads: self.reads, fraction });
        }
        head.tell(LedgerEvent::Aligned(node, block));
        Ok(())
    }
}

/// Parts until all are in the file.
struct Writing<'c> {
    observer: &'c dyn Observer,
    gathering: Gathering<'c>,
    placed: usize,
    /// Parts that were made for an earlier head.
    kept: usize,
    parts: usize,
}

impl PartWork for Writing<'_> {
    fn write(&mut self, head: &mut HeadOfRun, node: NodeId, part: usize) -> Result<(), PipelineError> {
        head.crew.order(node, &Order::Write { part });
        Ok(())
    }

    fn place(&mut self, head: &mut HeadOfRun, node: NodeId, part: usize, offset: PerFile) {
        let header_bytes = self.gathering.header_bytes();
        let offset = std::array::from_fn(|file| offset[file] + header_bytes[file]);
        head.crew.order(node, &Order::Place { part, offset });
    }

    fn take(
        &mut self,
        head: &mut HeadOfRun,
        node: NodeId,
        gift: Gift,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError> {
        match (gift, pieces) {
            (Gift::Part { part, bytes, kept }, [report]) => {
                self.kept += usize::from(kept);
                self.gathering.take_report(part, report)?;
                head.tell(LedgerEvent::Written(node, part, bytes));
            }
            (Gift::Placed { part, offset, bytes }, edges) if edges.len() == 2 * FILES => {
                let piece = |at: usize| edges[at].to_vec();
                let edges = std::array::from_fn(|file| PartEdges { first: piece(2 * file), last: piece(2 * file + 1) });
                let extents = std::array::from_fn(|file| PartExtent { offset: offset[file], bytes: bytes[file] });
                self.gathering.take_placed(part, extents, &edges)?;
                self.placed += 1;
                self.observer.event(&Event::Written { partitions: self.placed, of: self.parts });
                head.tell(LedgerEvent::Placed(node, part));
            }
            (gift, _) => return Err(head.crew.wrong(node, format!("{gift:?} came without its data"))),
        }
        Ok(())
    }
}

/// Places of records, part by part.
struct Ranking {
    parts: Vec<SplitPartition>,
    ranked: BTreeMap<usize, RankedPart>,
}

impl PartWork for Ranking {
    fn write(&mut self, head: &mut HeadOfRun, node: NodeId, part: usize) -> Result<(), PipelineError> {
        let job = for_nodes(&self.parts.get(part))?;
        head.crew.order(node, &Order::Rank { part, job });
        Ok(())
    }

    fn place(&mut self, head: &mut HeadOfRun, node: NodeId, part: usize, _: PerFile) {
        // There is nothing to be put anywhere.
        head.tell(LedgerEvent::Placed(node, part));
    }

    fn take(
        &mut self,
        head: &mut HeadOfRun,
        node: NodeId,
        gift: Gift,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError> {
        let (Gift::Ranked { part, records }, [found]) = (&gift, pieces) else {
            return Err(head.crew.wrong(node, format!("{gift:?} came without its data")));
        };
        let found = found.as_slice().chunks_exact(size_of::<[u64; 2]>()).map(bytemuck::pod_read_unaligned::<[u64; 2]>);
        let found = found.map(|[record, place]| (RecordId(record), place)).collect();
        self.ranked.insert(*part, RankedPart { found, records: *records });
        head.tell(LedgerEvent::Written(node, *part, PerFile::default()));
        Ok(())
    }
}
