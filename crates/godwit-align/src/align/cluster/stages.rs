//! The two stages of a cluster run. In the first, workers align blocks, until every slice is at the worker that owns
//! its shard. In the second, workers write parts, until all parts are in the output file.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use arrow_buffer::MutableBuffer;
use godwit_cluster::WorkerPoolEvent;
use godwit_exchange::{ShardId, ShuffleAction, ShuffleEvent, WorkerId};
use godwit_kernels::markdup::BlockSignatures;
use godwit_model::{BlockId, DuplicateCounts, PartitionPlan, SortKey};
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::Event;
use godwit_pipeline::reduce::{
    Collector, JobMonitor, MarkedRuns, OutputFiles, RemoteBlock, UnpublishedOutputs, file_ranks,
};
use godwit_pipeline::runs::ShardPlan;
use godwit_pipeline::scratch::{ScratchDirectory, unique_name};

use super::super::feed::{FeedLane, FeedReport, Feeder, check_resumed_blocks};
use super::super::{AlignContext, AlignResult, lanes};
use super::part_stages::{CountStage, PartStage, RankStage, WriteStage};
use super::reads_spool::{BlockSelection, FeedEvent, ReadsSpool, SpoolSink};
use super::{AlignHead, block_label, genome_plan};
use crate::align_messages::{
    AlignCommand, AlignEvent, AlignMessages, AlignUpload, AlignedBlockInfo, BlockUpload, WriteTask,
};

/// Number of blocks that the head reads in advance, in addition to one block for each worker.
const MAX_PREFETCHED_BLOCKS: usize = 2;

/// An alignment in a cluster run: all state except the [`AlignHead`].
pub(in crate::align) struct ClusterAlignJob<'r> {
    pub(in crate::align) context: AlignContext<'r>,
    pub(in crate::align) spool: &'r ReadsSpool,
}

/// The stage in which workers align blocks, until every slice is at the worker that owns its shard.
struct AlignStage<'s, 'r> {
    job: &'s ClusterAlignJob<'r>,
    collector: &'s Collector,
    feed_events: Receiver<FeedEvent>,
    feed_event_sender: mpsc::Sender<FeedEvent>,
    /// Flag that stops the threads that read the input.
    stop_feeding: &'s Arc<AtomicBool>,
    /// The first block, which decides the partitions of the genome.
    first_block: Option<BlockId>,
    /// Blocks of which the head has the duplicate signatures.
    collected_blocks: BTreeSet<BlockId>,
    reads: u64,
    plan: Option<PartitionPlan>,
    last_aligned_at: Instant,
}

/// The threads that read the input again for blocks of which no worker holds the slices any more. Meanwhile the thread
/// of the head handles workers and cancellation.
struct Refeeder<'scope, 's, 'r> {
    job: &'s ClusterAlignJob<'r>,
    feed_event_sender: mpsc::Sender<FeedEvent>,
    /// Flag that stops the threads.
    stop: &'s Arc<AtomicBool>,
    threads: Vec<ScopedJoinHandle<'scope, Result<(), PipelineError>>>,
}

impl<'scope, 's: 'scope, 'r> Refeeder<'scope, 's, 'r> {
    fn new(
        job: &'s ClusterAlignJob<'r>,
        feed_event_sender: mpsc::Sender<FeedEvent>,
        stop: &'s Arc<AtomicBool>,
    ) -> Self {
        Self { job, feed_event_sender, stop, threads: Vec::new() }
    }

    /// Starts a thread that reads the given blocks again.
    fn spawn(&mut self, scope: &'scope Scope<'scope, '_>, blocks: BTreeSet<BlockId>) {
        let (job, sender, stop) = (self.job, self.feed_event_sender.clone(), self.stop);
        self.threads.push(scope.spawn(move || job.refeed_blocks(blocks, sender, stop)));
    }

    /// Returns the error of a failed thread, because the job cannot finish without the blocks of this thread.
    fn check_threads(&mut self) -> Result<(), PipelineError> {
        for ended in self.threads.extract_if(.., |thread| thread.is_finished()) {
            ended.join().unwrap_or_else(|panic| {
                // The scope waits for all threads before it reports the panic, and some of them wait for room in the
                // spool.
                self.stop.store(true, Ordering::Relaxed);
                std::panic::resume_unwind(panic)
            })?;
        }
        Ok(())
    }
}

impl ClusterAlignJob<'_> {
    /// Aligns on the workers, decides duplicates, and writes on the workers.
    pub(in crate::align) fn run(
        &self,
        mut head: AlignHead,
        feed_lanes: Vec<FeedLane>,
        collector: Collector,
        opened: OutputFiles,
    ) -> Result<AlignResult, PipelineError> {
        let (feed_report, plan) = self.align(&mut head, feed_lanes, &collector)?;
        let aligned_at = Instant::now();
        let mut decided = collector.decide(self.context.genome, self.context.observer)?;
        let outputs = self.write(&mut head, &mut decided, plan, opened)?;
        head.worker_pool.check_current()?;
        head.worker_pool.finish();
        Ok(AlignResult { feed_report, outputs, aligned_at, exchange: Some(head.take_report()) })
    }

    fn align(
        &self,
        head: &mut AlignHead,
        feed_lanes: Vec<FeedLane>,
        collector: &Collector,
    ) -> Result<(FeedReport, Option<PartitionPlan>), PipelineError> {
        let workers = head.worker_pool.expected_workers();
        let mut held = head.collect_held_blocks()?;
        // Blocks of a pipe go into the spool even if workers hold them: if these workers are lost, the pipe cannot be
        // read again.
        held.retain(|block| !self.spool.retains_block(*block));
        let job_directory = self.context.job_directory;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, feed_events) = mpsc::channel();
        let mut aligning = AlignStage {
            job: self,
            collector,
            feed_events,
            feed_event_sender: sender.clone(),
            stop_feeding: &stop,
            first_block: None,
            collected_blocks: job_directory.finished_blocks().map(|block| block.id).collect(),
            reads: 0,
            plan: job_directory.partition_plan().cloned(),
            last_aligned_at: Instant::now(),
        };
        std::thread::scope(|scope| {
            let lanes = feed_lanes.into_iter().enumerate().collect();
            let feeding = scope.spawn(|| {
                let (spool, cancelled) = (self.spool, &*stop);
                let selection = BlockSelection::AllExcept(held);
                let sink = SpoolSink {
                    spool,
                    events: sender,
                    cancelled,
                    max_waiting_blocks: workers + MAX_PREFETCHED_BLOCKS,
                    selection,
                    open_block: None,
                };
                self.feed(lanes, sink, &self.context.options.out, &stop)
            });
            let outcome = aligning.run(head, scope, feeding);
            stop.store(true, Ordering::Relaxed);
            let mut fed = outcome?;
            check_resumed_blocks(&fed, job_directory)?;
            fed.resumed_blocks = head.exchange_report.resumed_blocks as usize;
            let due = fed.reads - fed.resumed_reads;
            if aligning.reads != due {
                return Err(PipelineError::CountMismatch { items: "reads", expected: due, actual: aligning.reads });
            }
            fed.records = collector.records();
            Ok((fed, aligning.plan))
        })
    }

    fn feed(
        &self,
        lanes: Vec<(usize, FeedLane)>,
        sink: SpoolSink,
        trim_directory: &Path,
        stop: &Arc<AtomicBool>,
    ) -> Result<FeedReport, PipelineError> {
        let AlignContext { options, job_directory, progress, .. } = self.context;
        let lane_options = options.lane_options();
        let previous_report = FeedReport::default();
        Feeder { lanes, lane_options, sink, options, trim_directory, job_directory, previous_report }
            .run(progress, stop)
    }

    /// Reads the input again for blocks of which no worker holds the slices any more.
    fn refeed_blocks(
        &self,
        blocks: BTreeSet<BlockId>,
        sender: mpsc::Sender<FeedEvent>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), PipelineError> {
        let planned = lanes::plan_lanes(self.context.options, stop)?;
        let lanes = self.context.groups.feed_lanes(planned, self.context.read_groups).into_iter().enumerate().collect();
        let workers_directory = self.context.job_directory.create_workers_directory();
        let workers_directory = workers_directory.map_err(PipelineError::file("create", &self.context.options.out))?;
        // The reports of fastp are those of the first pass, which may still hold their names.
        let trim_directory = workers_directory.join(unique_name());
        let trim_directory =
            ScratchDirectory::create(&trim_directory).map_err(PipelineError::file("create", &trim_directory))?;
        let selection = BlockSelection::Only(blocks);
        let sink = SpoolSink {
            spool: self.spool,
            events: sender,
            cancelled: stop,
            max_waiting_blocks: 0,
            selection,
            open_block: None,
        };
        self.feed(lanes, sink, trim_directory.path(), stop).map(drop)
    }

    /// Makes a block of a read-once lane available to workers, if its reads are in the spool. Otherwise the block
    /// becomes available when it is read for the first time.
    fn offer_retained_block(&self, head: &mut AlignHead, block: BlockId) {
        if self.spool.has_block(block) {
            head.record_fed_block(block);
        }
    }

    fn write(
        &self,
        head: &mut AlignHead,
        decided: &mut MarkedRuns,
        plan: Option<PartitionPlan>,
        opened: OutputFiles,
    ) -> Result<UnpublishedOutputs, PipelineError> {
        let AlignContext { header, genome, outputs, observer, cancelled, .. } = self.context;
        observer.event(&Event::Stage { name: "writing" });
        let shares = plan.map(|plan| ShardPlan::new(plan, head.scheduler.owners().len()));
        let of_share = |partition: usize| shares.as_ref().map_or(0, |shares| shares.shard_of(partition)) as u16;
        let shares: Vec<ShardId> = decided.parts().iter().map(|split| ShardId(of_share(split.partition))).collect();
        if let Some(representatives) = decided.representatives() {
            self.spool.set_representatives(&representatives);
            let mut ranking = RankStage::new(decided.parts().to_vec());
            self.run_part_stage(head, &mut ranking, shares.clone())?;
            decided.number_sets(&file_ranks(ranking.ranked_parts.into_values().collect()));
        }
        self.spool.set_verdicts(&decided.take_verdicts().unwrap_or_default());
        let decided = &*decided;
        let assembler = decided.start_assembly(header, genome, outputs, opened)?;
        let task = WriteTask {
            header: String::from_utf8_lossy(&header.text()).into_owned(),
            output_paths: assembler.output_paths().map_err(PipelineError::file("find", &outputs.stem))?,
            writing: decided.writing_options().clone(),
            reference: head.reference.clone(),
            sample: head.sample.clone(),
            parts: decided.parts().to_vec(),
        };
        let command = AlignCommand::DuplicatesDecided(Box::new(task.clone()));
        head.worker_pool.check_command(&command)?;
        head.worker_pool.broadcast_command(&command);
        head.write_task = Some(task);
        let recalibration_report = match decided.writing_options().recalibration {
            Some(_) => Some(self.count_bases(head, shares.clone())?),
            None => None,
        };
        let mut writing =
            WriteStage { observer, assembler, placed_parts: 0, resumed_parts: 0, part_count: decided.parts().len() };
        self.run_part_stage(head, &mut writing, shares)?;
        let resumed_partitions = writing.resumed_parts;
        let monitor = JobMonitor { bam_tail: None, observer, cancelled };
        let reduced = writing.assembler.finish(genome, outputs, recalibration_report, monitor)?;
        Ok(UnpublishedOutputs { resumed_partitions, ..reduced })
    }

    /// Has workers count the base qualities of all parts, adds up the counts, and offers their report to the workers.
    /// Returns the report.
    fn count_bases(&self, head: &mut AlignHead, shares: Vec<ShardId>) -> Result<String, PipelineError> {
        self.context.observer.event(&Event::Stage { name: "counting qualities" });
        let mut counting = CountStage::default();
        self.run_part_stage(head, &mut counting, shares)?;
        let report = counting.counts.to_report();
        self.spool.set_recalibration_report(report.clone());
        head.worker_pool.broadcast_command(&AlignCommand::BasesCounted);
        head.bases_are_counted = true;
        Ok(report)
    }

    /// Runs a stage on every part of the output.
    fn run_part_stage(
        &self,
        head: &mut AlignHead,
        work: &mut impl PartStage,
        shares: Vec<ShardId>,
    ) -> Result<(), PipelineError> {
        let stop = Arc::new(AtomicBool::new(false));
        std::thread::scope(|scope| {
            let outcome = self.run_part_stage_in_scope(head, work, shares, (scope, &stop));
            stop.store(true, Ordering::Relaxed);
            outcome
        })
    }

    /// Runs a stage on every part of the output, with threads in `scope` that stop when the flag is set.
    fn run_part_stage_in_scope<'scope, 's: 'scope>(
        &'s self,
        head: &mut AlignHead,
        work: &mut impl PartStage,
        shares: Vec<ShardId>,
        (scope, stop): (&'scope Scope<'scope, '_>, &'s Arc<AtomicBool>),
    ) -> Result<(), PipelineError> {
        let (sender, fed) = mpsc::channel();
        let mut refeeder = Refeeder::new(self, sender, stop);
        head.apply_event(ShuffleEvent::DuplicatesDecided(shares));
        let mut finished = false;
        loop {
            let mut again = BTreeSet::new();
            for action in std::mem::take(&mut head.pending_actions) {
                match action {
                    ShuffleAction::FinishJob => finished = true,
                    ShuffleAction::WritePart(worker, part) => work.assign_part(head, worker, part)?,
                    ShuffleAction::PlacePart(worker, part, offset) => work.assign_placement(head, worker, part, offset),
                    ShuffleAction::ReportSizeMismatch(_) => {
                        return Err(PipelineError::CountMismatch {
                            items: "parts with the same size on both workers",
                            expected: 1,
                            actual: 0,
                        });
                    }
                    ShuffleAction::ReloadReads(block) if self.spool.retains_block(block) => {
                        self.offer_retained_block(head, block)
                    }
                    ShuffleAction::ReloadReads(block) => drop(again.insert(block)),
                    action => head.execute_action(&action, None, self.spool),
                }
            }
            if finished {
                return Ok(());
            }
            if !again.is_empty() {
                // Align these blocks again, because all workers that held them were lost.
                refeeder.spawn(scope, again);
            }
            refeeder.check_threads()?;
            while let Ok(FeedEvent::BlockWritten(block)) = fed.try_recv() {
                head.record_fed_block(block);
            }
            match head.next_event()? {
                Some(WorkerPoolEvent::Event(worker, report)) => head.handle_event(worker, report),
                Some(WorkerPoolEvent::Upload(worker, upload, pieces)) => {
                    head.exchange_report.head_bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
                    match upload {
                        AlignUpload::AlignedBlock(AlignedBlockInfo { block, .. }) => {
                            head.apply_event(ShuffleEvent::BlockAligned(worker, block))
                        }
                        upload => work.take_upload(head, worker, upload, &pieces)?,
                    }
                }
                // `next_event` has already handled workers that were lost.
                Some(WorkerPoolEvent::Lost(_)) | None => {}
            }
            head.tick();
        }
    }
}

impl<'s> AlignStage<'s, '_> {
    fn run<'scope>(
        &mut self,
        head: &mut AlignHead,
        scope: &'scope Scope<'scope, '_>,
        feeding: ScopedJoinHandle<'scope, Result<FeedReport, PipelineError>>,
    ) -> Result<FeedReport, PipelineError>
    where
        's: 'scope,
    {
        let mut feeding = Some(feeding);
        let mut refeeder = Refeeder::new(self.job, self.feed_event_sender.clone(), self.stop_feeding);
        let mut report = None;
        loop {
            if let Some(ended) = feeding.take_if(|feeding| feeding.is_finished()) {
                let fed = ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                report = Some(fed.map_err(|error| error.or_interrupted(head.cancelled))?);
                self.drain_feed_events(head);
                head.apply_event(ShuffleEvent::InputEnded);
            }
            self.drain_feed_events(head);
            refeeder.check_threads()?;
            let incoming = head.next_event()?;
            if let Some(incoming) = incoming {
                self.handle_event(head, incoming)?;
            }
            head.tick();
            self.job.spool.set_waiting_blocks(head.scheduler.waiting_block_count());
            let mut again = BTreeSet::new();
            for action in std::mem::take(&mut head.pending_actions) {
                match action {
                    ShuffleAction::DecideDuplicates => {
                        head.worker_pool.warn_if_idle(self.collected_blocks.len(), "blocks", "align");
                        head.exchange_report.exposed_seconds = self.last_aligned_at.elapsed().as_secs_f64();
                        head.exchange_report.blocks = self.collected_blocks.len() as u64;
                        return Ok(report.unwrap_or_default());
                    }
                    ShuffleAction::ReloadReads(block) if self.job.spool.retains_block(block) => {
                        self.job.offer_retained_block(head, block)
                    }
                    ShuffleAction::ReloadReads(block) => drop(again.insert(block)),
                    action => head.execute_action(&action, self.first_block, self.job.spool),
                }
            }
            if !again.is_empty() {
                refeeder.spawn(scope, again);
            }
        }
    }

    fn drain_feed_events(&mut self, head: &mut AlignHead) {
        while let Ok(FeedEvent::BlockWritten(block)) = self.feed_events.try_recv() {
            self.first_block = Some(self.first_block.map_or(block, |first| first.min(block)));
            head.record_fed_block(block);
        }
    }

    fn handle_event(
        &mut self,
        head: &mut AlignHead,
        incoming: WorkerPoolEvent<AlignMessages>,
    ) -> Result<(), PipelineError> {
        match incoming {
            WorkerPoolEvent::Event(_, AlignEvent::GenomePartitioned { starts }) if self.plan.is_none() => {
                self.set_plan(head, starts)?
            }
            WorkerPoolEvent::Event(worker, report) => head.handle_event(worker, report),
            WorkerPoolEvent::Upload(worker, AlignUpload::AlignedBlock(info), pieces) => {
                self.collect_block(head, worker, info, &pieces)?;
            }
            // The head has not requested parts yet, and `next_event` has already handled workers that were lost.
            WorkerPoolEvent::Upload(..) | WorkerPoolEvent::Lost(_) => {}
        }
        Ok(())
    }

    fn set_plan(&mut self, head: &mut AlignHead, starts: Vec<SortKey>) -> Result<(), PipelineError> {
        let plan = PartitionPlan::from_starts(starts);
        let plan = plan.ok_or_else(|| PipelineError::Options { problem: "a worker sent invalid partitions".into() })?;
        let Some(over) = self.job.context.job_directory.cluster_run() else { return Ok(()) };
        let sharded = genome_plan(&plan, over);
        head.worker_pool.broadcast_command(&AlignCommand::SetPartitions(sharded.clone()));
        head.apply_event(ShuffleEvent::GenomeSharded { shard_count: sharded.shard_count });
        head.genome_plan = Some(sharded);
        self.plan = Some(plan);
        Ok(())
    }

    fn collect_block(
        &mut self,
        head: &mut AlignHead,
        worker: WorkerId,
        AlignedBlockInfo { block, reads, records, counts }: AlignedBlockInfo,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError> {
        let Some(plan) = self.plan.as_ref().filter(|_| head.scheduler.is_leased(worker, block)) else { return Ok(()) };
        head.exchange_report.head_bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        if self.collected_blocks.insert(block) {
            let malformed = || {
                head.worker_pool
                    .protocol_error(worker, format!("its message about {} cannot be decoded", block_label(block)))
            };
            let BlockUpload { pairs, ends, table, details } = BlockUpload::from_pieces(pieces).ok_or_else(malformed)?;
            let library =
                self.job.context.lane_libraries.get(usize::from(block.lane)).copied().ok_or_else(malformed)?;
            let mut by_library = vec![DuplicateCounts::default(); usize::from(library) + 1];
            by_library[usize::from(library)] = counts;
            let signatures = BlockSignatures { pairs, ends, counts: by_library };
            let elsewhere = RemoteBlock { records, signatures, details, table };
            if !self.collector.add_remote_block(block, elsewhere, plan)? {
                return Err(malformed().into());
            }
            self.reads += reads;
            self.last_aligned_at = Instant::now();
            let fraction = self.job.context.progress.fraction_after_block();
            let (lane, block) = (block.lane, block.ordinal);
            self.job.context.observer.event(&Event::Aligned { lane, block, reads: self.reads, fraction });
        }
        head.apply_event(ShuffleEvent::BlockAligned(worker, block));
        Ok(())
    }
}
