//! The head of a cluster run: reads the input, assigns blocks to workers, decides duplicates, and assembles the output
//! file.
//!
//! [`godwit_exchange::ShuffleScheduler`] decides the next actions, and this module executes them. Records are never
//! sent to the head. It receives only duplicate signatures, the tables of slices, and reports about written parts of
//! the output.

mod head_resume;
mod part_stages;
mod reads_spool;
mod stages;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use godwit_cluster::{ClusterOptions, WorkerPool, WorkerPoolEvent};
use godwit_engines::aligner::{AlignerInfo, BlockDependence};
use godwit_exchange::{ShuffleAction, ShuffleEvent, ShuffleOptions, ShuffleScheduler, WorkerId};
use godwit_fleet::Token;
use godwit_model::{BlockId, PartitionPlan};
use godwit_pipeline::job_directory::JobDirectory;
use godwit_pipeline::job_report::ExchangeReport;
use godwit_pipeline::observer::{Observer, warning_sink};
use godwit_pipeline::runs::ShardPlan;
use godwit_pipeline::{ClusterRun, PipelineError};

use super::header::LaneReadGroups;
use super::{AlignInput, AlignOptions};
use crate::align_messages::{
    AlignCommand, AlignEvent, AlignMessages, AlignTask, CheckpointLocation, FetchTask, GenomePlan, LaneTask,
    ReadyWorker, WriteTask,
};
use reads_spool::ReadsSpool;
pub(super) use stages::ClusterAlignJob;

/// Number of shards per worker at the start of a job. With several shards each, the shards of a lost worker can be
/// divided among several other workers.
const SHARDS_PER_WORKER: usize = 4;
/// Number of hexadecimal digits in a random name.
const NAME_HEX_DIGITS: usize = 16;

/// Creates the identity of a new cluster run.
pub(super) fn new_cluster_run(cluster: &ClusterOptions) -> Result<ClusterRun, PipelineError> {
    Ok(ClusterRun { id: random_name()?, shards: (SHARDS_PER_WORKER * cluster.workers as usize) as u16 })
}

/// Returns a random, unique name.
fn random_name() -> Result<String, PipelineError> {
    Ok(Token::random()?.reveal()[..NAME_HEX_DIGITS].to_owned())
}

/// The head of an alignment, which listens for workers.
pub(super) struct AlignHead<'r> {
    worker_pool: WorkerPool<'r, AlignMessages>,
    job_directory: &'r JobDirectory,
    spool: Arc<ReadsSpool>,
    scheduler: ShuffleScheduler,
    /// For each worker that is ready: the address from which other workers fetch its slices.
    addresses: BTreeMap<WorkerId, SocketAddr>,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    started_at: Instant,
    reference: PathBuf,
    /// Name of the sample.
    sample: String,
    hello: Option<AlignerInfo>,
    pending_actions: Vec<ShuffleAction>,
    /// For each block that this head or an earlier one has read: the checksum of its reads.
    reads_checksums: BTreeMap<BlockId, String>,
    /// Workers that have reported all slices of an earlier head that they hold.
    recalled_workers: BTreeSet<WorkerId>,
    /// The partitions of the genome. Like `write_task`, they are also sent to each worker that joins later.
    genome_plan: Option<GenomePlan>,
    write_task: Option<WriteTask>,
    /// True if workers can download the report of base qualities.
    bases_are_counted: bool,
    exchange_report: ExchangeReport,
}

/// Rejects options that a cluster run does not support.
///
/// # Errors
/// [`PipelineError::Options`] for an aligner whose records depend on block borders.
pub(super) fn check_cluster_support(options: &AlignOptions) -> Result<(), PipelineError> {
    let problem = if options.aligner.block_dependence() == BlockDependence::Dependent {
        format!(
            "{} does not support --on: its records may depend on earlier reads, so that one process has to align a \
             lane from its first read to its last; omit --on, or use bwa, bwa-mem3 or minimap2",
            options.aligner.name()
        )
    } else {
        return Ok(());
    };
    Err(PipelineError::Options { problem })
}

impl<'r> AlignHead<'r> {
    /// Starts to listen for workers, publishes the address of the head, and starts the worker processes.
    pub(super) fn open(
        cluster: &'r ClusterOptions<'r>,
        options: &AlignOptions,
        lanes: &AlignInput,
        job_directory: &'r JobDirectory,
        observer: &'r dyn Observer,
        cancelled: &'r Arc<AtomicBool>,
    ) -> Result<Self, PipelineError> {
        let between = job_directory
            .create_workers_directory()
            .map_err(PipelineError::file("create the job directory in", &options.out))?;
        let scratch = options.job.temp.as_ref().unwrap_or(&options.out);
        let reads = job_directory.create_reads_directory(options.job.temp.as_deref());
        let reads = reads.map_err(PipelineError::file("use scratch space in", scratch))?;
        let spool = Arc::new(ReadsSpool::new(reads, lanes.read_once_lanes()));
        let reference = &options.reference;
        let reference = std::path::absolute(reference).map_err(PipelineError::file("find", reference))?;
        let task = AlignTask {
            reference: reference.clone(),
            aligner: options.aligner.option_value().to_owned(),
            arguments: options.aligner_args.clone(),
            block_bases: options.block_bases,
            lanes: (0..lanes.lanes.len()).map(|lane| lane_task(&lanes.groups, lane)).collect(),
            sample: options.sample.clone(),
            marking: options.job.marking,
            partitions: options.job.partitions,
            host_processes: if cluster.single_host { u64::from(cluster.workers) } else { 1 },
            python_step: lanes.python_step.clone(),
            checkpoint_location: Self::checkpoint_location(job_directory)?,
        };
        let warnings = warning_sink(observer);
        Ok(Self {
            worker_pool: WorkerPool::open(cluster, &between, spool.clone(), task, warnings, cancelled)?,
            job_directory,
            spool,
            scheduler: ShuffleScheduler::new(ShuffleOptions::default()),
            addresses: BTreeMap::new(),
            observer,
            cancelled,
            started_at: Instant::now(),
            reference,
            sample: options.sample.clone(),
            hello: None,
            pending_actions: Vec::new(),
            reads_checksums: job_directory
                .finished_blocks()
                .map(|block| (block.id, block.reads_checksum.clone()))
                .collect(),
            recalled_workers: BTreeSet::new(),
            genome_plan: Self::resumed_genome_plan(job_directory),
            write_task: None,
            bases_are_counted: false,
            exchange_report: ExchangeReport::default(),
        })
    }

    fn checkpoint_location(job_directory: &JobDirectory) -> Result<CheckpointLocation, PipelineError> {
        let (directory_name, otherwise) = job_directory.worker_slices_location();
        let default_root = std::path::absolute(&otherwise).map_err(PipelineError::file("find", &otherwise))?;
        let of_run = job_directory.cluster_run().map(|over| over.id.clone());
        Ok(CheckpointLocation {
            cluster_run_id: of_run.unwrap_or_default(),
            head_id: random_name()?,
            directory_name,
            default_root,
        })
    }

    /// Returns the partitions that an earlier head decided; `None` if there are none.
    fn resumed_genome_plan(job_directory: &JobDirectory) -> Option<GenomePlan> {
        let (plan, over) = job_directory.partition_plan().zip(job_directory.cluster_run())?;
        Some(genome_plan(plan, over))
    }

    /// Returns the spool of reads, from which workers fetch blocks.
    pub(super) fn spool(&self) -> Arc<ReadsSpool> {
        self.spool.clone()
    }

    /// Waits until the first worker is ready, and returns its aligner's version and reference contigs.
    pub(super) fn wait_for_first_hello(&mut self) -> Result<AlignerInfo, PipelineError> {
        loop {
            if let Some(hello) = &self.hello {
                return Ok(hello.clone());
            }
            // No block is available yet, so workers can only join, request work, or be lost.
            self.next_event()?;
        }
    }

    /// Waits briefly for an event from a worker. Handles workers that become ready, request work, or are lost, and
    /// returns any other event.
    fn next_event(&mut self) -> Result<Option<WorkerPoolEvent<AlignMessages>>, PipelineError> {
        match self.worker_pool.next_event()? {
            Some(WorkerPoolEvent::Lost(worker)) => self.apply_event(ShuffleEvent::WorkerLost(worker)),
            Some(WorkerPoolEvent::Event(worker, AlignEvent::Ready(ready))) => self.add_worker(worker, ready)?,
            Some(WorkerPoolEvent::Event(worker, AlignEvent::WorkRequested)) => {
                self.apply_event(ShuffleEvent::WorkRequested(worker))
            }
            other => return Ok(other),
        }
        Ok(None)
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Passes an event to the scheduler; the resulting actions wait in `pending_actions`.
    fn apply_event(&mut self, event: ShuffleEvent) {
        let now = self.now();
        let actions = self.scheduler.handle_event(event, now);
        self.pending_actions.extend(actions);
    }

    /// Advances the scheduler's clock.
    fn tick(&mut self) {
        let now = self.now();
        let actions = self.scheduler.handle_time(now);
        self.pending_actions.extend(actions);
    }

    /// Handles events about the slices that a worker has fetched, failed to fetch, or holds. Ignores other events.
    fn handle_event(&mut self, worker: WorkerId, report: AlignEvent) {
        match report {
            AlignEvent::SlicesFetched { block, seconds, bytes } => {
                self.exchange_report.fetched_bytes += bytes;
                self.exchange_report.fetching_seconds += seconds;
                self.apply_event(ShuffleEvent::SlicesFetched(worker, block));
            }
            AlignEvent::SliceFetchFailed { block, reason } => {
                self.worker_pool.warn(format!(
                    "{} could not fetch {}: {reason}",
                    self.worker_pool.worker_name(worker),
                    block_label(block)
                ));
                self.apply_event(ShuffleEvent::SliceFetchFailed(worker, block));
            }
            AlignEvent::SlicesHeld { block, reads_checksum, shards } => {
                self.add_held_slices(worker, block, &reads_checksum, shards)
            }
            AlignEvent::AllSlicesReported => drop(self.recalled_workers.insert(worker)),
            // Ignored: the partitions are decided already, or `next_event` has handled the event.
            AlignEvent::GenomePartitioned { .. } | AlignEvent::Ready(_) | AlignEvent::WorkRequested => {}
        }
    }

    /// Executes an action of the scheduler that does not depend on the stage.
    fn execute_action(&mut self, action: &ShuffleAction, first: Option<BlockId>, spool: &ReadsSpool) {
        match action {
            ShuffleAction::AlignBlock(worker, block) => {
                self.exchange_report.alignments += 1;
                let decides_partitions = self.genome_plan.is_none() && first == Some(*block);
                self.worker_pool.send_command(
                    *worker,
                    &AlignCommand::AlignBlock {
                        block: *block,
                        reads_checksum: self.reads_checksum(*block),
                        decides_partitions,
                    },
                );
            }
            ShuffleAction::FetchSlices { worker, block, shards: shares, from } => {
                match self.addresses.get(from).copied() {
                    Some(address) if self.worker_pool.is_connected(*from) => {
                        let (reads_checksum, shards) = (self.reads_checksum(*block), shares.clone());
                        let fetch = FetchTask { block: *block, reads_checksum, shards, address };
                        self.worker_pool.send_command(*worker, &AlignCommand::FetchSlices(fetch));
                    }
                    _ => self.apply_event(ShuffleEvent::SliceFetchFailed(*worker, *block)),
                }
            }
            ShuffleAction::ReleaseReads(block) => spool.remove_block(*block),
            // The stages of the run execute these actions themselves.
            ShuffleAction::ReloadReads(_)
            | ShuffleAction::DecideDuplicates
            | ShuffleAction::WritePart(..)
            | ShuffleAction::PlacePart(..)
            | ShuffleAction::ReportSizeMismatch(_)
            | ShuffleAction::FinishJob => {}
        }
    }

    fn add_worker(&mut self, worker: WorkerId, ready: ReadyWorker) -> Result<(), PipelineError> {
        let ReadyWorker { address, writers, engine_version, aligner, aligner_version: version, sq_lines } = ready;
        let hello = AlignerInfo::new(env!("CARGO_PKG_VERSION").into(), engine_version, sq_lines);
        let hello = hello.map_err(|error| self.worker_pool.protocol_error(worker, error.to_string()))?;
        if self.hello.as_ref().is_some_and(|first| *first != hello) {
            let why = "the version or the contigs of its aligner differ from those of the first worker".to_owned();
            self.worker_pool.reject_worker(worker, why);
            return Ok(());
        }
        self.addresses.insert(worker, address);
        self.exchange_report
            .aligners
            .insert(self.worker_pool.worker_name(worker).to_string(), format!("{aligner} {version}"));
        self.exchange_report.distinct_aligners.insert((aligner, version));
        self.hello.get_or_insert(hello);
        if let Some(plan) = &self.genome_plan {
            self.worker_pool.send_command(worker, &AlignCommand::SetPartitions(plan.clone()));
        }
        if let Some(task) = &self.write_task {
            self.worker_pool.send_command(worker, &AlignCommand::DuplicatesDecided(Box::new(task.clone())));
        }
        if self.bases_are_counted {
            self.worker_pool.send_command(worker, &AlignCommand::BasesCounted);
        }
        self.apply_event(ShuffleEvent::WorkerJoined { worker, writers });
        Ok(())
    }

    /// Returns the statistics of the exchange so far, and resets them.
    fn take_report(&mut self) -> ExchangeReport {
        let (workers, lost_workers) = (self.worker_pool.worker_names().to_vec(), self.worker_pool.lost_workers());
        ExchangeReport {
            workers,
            lost_workers,
            stragglers: self.scheduler.straggler_count(),
            ..std::mem::take(&mut self.exchange_report)
        }
    }

    /// Stores the checksum of a block's reads, and notifies the scheduler that the block can be assigned.
    fn record_fed_block(&mut self, block: BlockId) {
        if let Some(content) = self.job_directory.reads_checksum(block) {
            self.reads_checksums.insert(block, content);
        }
        self.apply_event(ShuffleEvent::BlockAvailable(block));
    }

    fn reads_checksum(&self, block: BlockId) -> String {
        self.reads_checksums.get(&block).cloned().unwrap_or_default()
    }
}

impl Drop for AlignHead<'_> {
    fn drop(&mut self) {
        if !self.job_directory.has_checkpoints() {
            // No later head will resume this job, so workers do not need to keep their slices.
            self.worker_pool.finish();
        }
    }
}

/// Returns the partitions of the genome with the number of shards.
fn genome_plan(plan: &PartitionPlan, over: &ClusterRun) -> GenomePlan {
    let shard_count = ShardPlan::new(plan.clone(), usize::from(over.shards)).count() as u16;
    GenomePlan { starts: plan.starts().to_vec(), shard_count }
}

/// Returns the name of a block in messages.
fn block_label(block: BlockId) -> String {
    format!("block {} of lane {}", block.ordinal + 1, block.lane + 1)
}

fn lane_task(groups: &LaneReadGroups, lane: usize) -> LaneTask {
    LaneTask {
        read_group: groups.read_group_line(lane).to_owned(),
        read_group_id: groups.read_group_id(lane).to_owned(),
    }
}
