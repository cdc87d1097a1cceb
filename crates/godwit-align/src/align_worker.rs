//! A worker of an alignment.
//!
//! The worker downloads blocks of reads from the head, aligns them, and stores the records as slices. A slice contains
//! the records of one block in one shard of the genome. The worker fetches the slices of its own shards from other
//! workers, and writes its parts into the shared output file. One thread receives commands and passes them to other
//! threads: one feeds the aligner, one collects its records, one sorts and packs them, a few fetch, a few write. Any
//! failure ends the worker; the head continues without this worker.

mod align_threads;
mod block_aligner;
mod checkpoint;
mod slice_source;
mod write_threads;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crossbeam_channel::Receiver;
use godwit_cluster::{ConnectionError, WorkerInputSender, WorkerInputs, WorkerOptions, WorkerSession, bytes_batch};
use godwit_engines::aligner::AlignerInfo;
use godwit_exchange::ShardId;
use godwit_fleet::address::AddressChoice;
use godwit_model::ErrorKind;
use godwit_model::{BlockId, PartitionPlan, message_with_causes};
use godwit_pipeline::PipelineError;
use godwit_pipeline::runs::{RunTable, ShardPlan, SliceLocation, SliceStore};
use godwit_pipeline::scratch::SpillFile;
use parking_lot::Mutex;

use crate::align_messages::{
    AlignCommand, AlignEvent, AlignMessages, AlignTask, AlignTicket, FetchTask, GenomePlan, ReadyWorker,
};
use block_aligner::BlockAligner;
use checkpoint::WorkerCheckpoints;
pub(crate) use slice_source::SliceHeader;
use slice_source::SliceSource;
use write_threads::WriteState;

/// Number of threads that fetch slices; each of them fetches the slices of one block at a time.
const FETCH_THREADS: usize = 3;

/// The endpoint of an alignment worker.
type WorkerEndpoint<'n> = godwit_cluster::WorkerEndpoint<'n, AlignMessages>;
/// The sender of inputs of the main thread.
type InputSender = WorkerInputSender<AlignCommand, PipelineError>;

/// State that all threads of a worker share.
struct WorkerContext<'n> {
    connection: WorkerEndpoint<'n>,
    spill: Arc<SpillFile>,
    checkpoints: &'n WorkerCheckpoints,
    /// For each block that is being aligned, the BLAKE3 of its reads.
    reads_checksums: Mutex<HashMap<BlockId, String>>,
    scratch: PathBuf,
    slice_store: OnceLock<Arc<SliceStore>>,
    /// The block that decides the partitions of the genome, if this worker aligns it.
    planning_block: Mutex<Option<BlockId>>,
    input_sender: InputSender,
    cancelled: &'n Arc<AtomicBool>,
}

impl WorkerContext<'_> {
    /// Runs the closure of a thread. If the closure fails, the worker stops.
    fn run_thread(&self, work: impl FnOnce() -> Result<(), PipelineError>) {
        self.input_sender.run(work);
    }

    fn set_planning_block(&self, block: BlockId) {
        *self.planning_block.lock() = Some(block);
    }

    fn is_planning_block(&self, block: BlockId) -> bool {
        *self.planning_block.lock() == Some(block)
    }

    fn set_reads_checksum(&self, block: BlockId, content: String) {
        self.reads_checksums.lock().insert(block, content);
    }

    /// Records slices of a block in the checkpoints for a later head. The slices are already in the slice store.
    fn checkpoint_slices(
        &self,
        block: BlockId,
        content: &str,
        shares: impl Iterator<Item = ShardId>,
    ) -> Result<(), PipelineError> {
        let Some(store) = self.slice_store.get() else { return Ok(()) };
        self.checkpoints.record_slices(block, content, shares, store).map_err(|error| self.scratch_error(error))
    }

    fn scratch_error(&self, error: std::io::Error) -> PipelineError {
        PipelineError::file("use scratch space in", &self.scratch)(error)
    }
}

/// Runs an alignment worker until the job is finished. If the connection to the head is lost, the worker keeps its
/// slices, so that it can join again. A later head starts workers of its own, which wait for these slices.
///
/// # Errors
/// [`PipelineError`] if this worker fails; the job continues without it.
pub fn run_align_worker<T>(
    session: &WorkerSession<T>,
    task: &AlignTask,
    options: &WorkerOptions,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), PipelineError> {
    let scratch = options.temp.clone().unwrap_or_else(|| task.checkpoint_location.default_root.clone());
    let failed = PipelineError::file("use scratch space in", &scratch);
    let kept =
        WorkerCheckpoints::open(&task.checkpoint_location, options.temp.as_deref(), cancelled).map_err(failed)?;
    let led = serve_head(session, task, &kept, scratch, options, cancelled);
    // Remove the checkpoints after success, and after a failure of this host such as a full disk. After other failures,
    // another process may resume from them.
    match &led {
        Err(error) if error.kind() != ErrorKind::Machine => {}
        _ => kept.remove(),
    }
    led
}

/// Starts the aligner, and executes the commands of the head until the job is finished or the connection is lost.
fn serve_head<T>(
    session: &WorkerSession<T>,
    job: &AlignTask,
    checkpoints: &WorkerCheckpoints,
    scratch: PathBuf,
    options: &WorkerOptions,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), PipelineError> {
    if let Some(step) = &job.python_step {
        step.check_same_module(cancelled)?;
    }
    let aligner = BlockAligner::start(job, options.threads)?;
    let hello = aligner.hello().clone();
    let connection = session.endpoint::<AlignMessages>();
    let (input_sender, inputs) = WorkerInputs::new();
    let shared = WorkerContext {
        connection,
        spill: checkpoints.spill().clone(),
        checkpoints,
        reads_checksums: Mutex::default(),
        scratch,
        slice_store: OnceLock::new(),
        planning_block: Mutex::default(),
        input_sender,
        cancelled,
    };
    let slice_source = Arc::new(SliceSource::default());
    let own = AddressChoice::RouteTo(session.head.ip().to_string()).resolve()?;
    let address = connection.serve_downloads(own, slice_source.clone())?;
    let (name, version) = aligner.name_and_version();
    connection.send_event(AlignEvent::Ready(ReadyWorker {
        address,
        writers: options.threads,
        engine_version: aligner.emulated_version().to_owned(),
        aligner: name,
        aligner_version: version,
        sq_lines: hello.sq_lines.clone(),
    }))?;
    process_commands(&shared, aligner, &hello, &slice_source, job, options, &inputs)
}

/// Starts the threads of an alignment worker, and passes the commands of the head to them until the last command.
fn process_commands(
    shared: &WorkerContext,
    aligner: BlockAligner,
    hello: &AlignerInfo,
    slice_source: &SliceSource,
    job: &AlignTask,
    options: &WorkerOptions,
    inputs: &WorkerInputs<AlignCommand, PipelineError>,
) -> Result<(), PipelineError> {
    let (feeding, reader, stop) = aligner.split();
    let (to_feed, feed) = mpsc::channel();
    let (to_pack, pack) = mpsc::channel();
    let (to_fetch, fetch) = crossbeam_channel::unbounded();
    let (to_write, write) = crossbeam_channel::unbounded();
    let writing = WriteState::default();
    std::thread::scope(|scope| {
        scope.spawn(|| shared.input_sender.forward_commands(shared.connection));
        let packing = to_pack.clone();
        scope.spawn(move || shared.run_thread(move || align_threads::feed_aligner(shared, feeding, &packing, &feed)));
        if let Some(reader) = reader {
            let packing = to_pack.clone();
            scope.spawn(move || shared.run_thread(|| align_threads::collect_aligned(reader, &packing)));
        }
        scope.spawn(move || shared.run_thread(move || align_threads::pack_blocks(shared, job, &pack)));
        for _ in 0..FETCH_THREADS {
            scope.spawn(|| shared.run_thread(|| fetch_slices(shared, &fetch)));
        }
        for _ in 0..options.threads {
            scope.spawn(|| shared.run_thread(|| write_threads::run_write_thread(shared, &writing, &write)));
        }
        // Sending to a thread fails only if the thread has ended; the reason is then the next input.
        let led = inputs.process_commands(shared.cancelled, |command| {
            match command {
                AlignCommand::AlignBlock { block, reads_checksum, decides_partitions } => {
                    shared.set_reads_checksum(block, reads_checksum);
                    let _ = to_feed.send((block, decides_partitions));
                }
                AlignCommand::SetPartitions(plan) => {
                    set_partition_plan(shared, slice_source, &plan)?;
                    drop(to_pack.send(align_threads::PackInput::PlanKnown));
                }
                AlignCommand::AdoptSlices(plan) => adopt_slices(shared, &plan)?,
                AlignCommand::FetchSlices(fetch) => drop(to_fetch.send(fetch)),
                AlignCommand::DuplicatesDecided(task) => {
                    write_threads::prepare_writing(shared, *task, hello, &writing)?
                }
                AlignCommand::RankRecords { part, records } => {
                    drop(to_write.send(write_threads::PartTask::Rank(part, records)));
                }
                AlignCommand::CountBases { part } => drop(to_write.send(write_threads::PartTask::Count(part))),
                AlignCommand::BasesCounted => write_threads::prepare_recalibration(shared, &writing)?,
                AlignCommand::WritePart { part } => drop(to_write.send(write_threads::PartTask::Build(part))),
                AlignCommand::PlacePart { part, offset } => {
                    drop(to_write.send(write_threads::PartTask::CopyToFiles(part, offset)))
                }
            }
            Ok(())
        });
        // Stops the threads: their channels close, and the output of the aligner ends.
        stop.stop();
        drop((to_feed, to_pack, to_fetch, to_write));
        shared.connection.stop_waiting_for_commands();
        led
    })
}

/// Sets the partitions of the genome. Restores slices from the checkpoints of an earlier process, and reports them to
/// the head.
fn set_partition_plan(
    shared: &WorkerContext,
    slice_source: &SliceSource,
    sharded: &GenomePlan,
) -> Result<(), PipelineError> {
    let GenomePlan { starts, shard_count } = sharded;
    if shared.slice_store.get().is_some() {
        return Ok(());
    }
    let plan = PartitionPlan::from_starts(starts.clone())
        .ok_or_else(|| PipelineError::malformed_command("the command contains invalid partitions"))?;
    let store = Arc::new(SliceStore::new(ShardPlan::new(plan, usize::from(*shard_count)), shared.spill.clone()));
    let recalled =
        shared.checkpoints.restore_slices(starts, *shard_count, &store).map_err(|error| shared.scratch_error(error))?;
    slice_source.set_store(store.clone());
    let _ = shared.slice_store.set(store);
    report_held_slices(shared, recalled)
}

/// Adopts slices of earlier workers whose directories no running worker has taken over, and reports them to the head.
fn adopt_slices(shared: &WorkerContext, sharded: &GenomePlan) -> Result<(), PipelineError> {
    let GenomePlan { starts, shard_count } = sharded;
    let Some(store) = shared.slice_store.get() else {
        return Err(PipelineError::malformed_command("the head sent the command for slices before the partitions"));
    };
    let inherited =
        shared.checkpoints.adopt_slices((starts, *shard_count), shared.connection.worker().0 as usize, store);
    report_held_slices(shared, inherited.map_err(|error| shared.scratch_error(error))?)
}

fn report_held_slices(shared: &WorkerContext, held: Vec<(BlockId, String, Vec<ShardId>)>) -> Result<(), PipelineError> {
    for (block, reads_checksum, shards) in held {
        shared.connection.send_event(AlignEvent::SlicesHeld { block, reads_checksum, shards })?;
    }
    Ok(shared.connection.send_event(AlignEvent::AllSlicesReported)?)
}

/// Fetches slices from other workers, one task after the other.
fn fetch_slices(shared: &WorkerContext, orders: &Receiver<FetchTask>) -> Result<(), PipelineError> {
    for order in orders {
        let (block, started) = (order.block, Instant::now());
        let report = match fetch_block(shared, order) {
            Ok(bytes) => AlignEvent::SlicesFetched { block, seconds: started.elapsed().as_secs_f64(), bytes },
            // The other worker may be lost: the head can name another worker that holds the slices.
            Err(PipelineError::Connection(error)) => {
                AlignEvent::SliceFetchFailed { block, reason: message_with_causes(&*error) }
            }
            Err(error) => return Err(error),
        };
        shared.connection.send_event(report)?;
    }
    Ok(())
}

/// Fetches slices of one block from another worker. Returns their size in bytes.
fn fetch_block(shared: &WorkerContext, order: FetchTask) -> Result<u64, PipelineError> {
    let FetchTask { block, reads_checksum, shards, address } = order;
    let Some(store) = shared.slice_store.get() else {
        return Err(PipelineError::malformed_command("the head sent the command for slices before the partitions"));
    };
    let ticket = AlignTicket::Slices { block, shards: shards.clone() };
    let mut incoming = shared.connection.download_from_worker(address, &ticket)?;
    let mut bytes_in_all = 0;
    for share in shards.iter().copied() {
        let broken =
            || ConnectionError::InvalidMessage { peer: "a worker", problem: "a slice is damaged or incomplete".into() };
        let Some((table, header)) = incoming.next_batch()? else { return Err(broken().into()) };
        let header: SliceHeader = serde_json::from_slice(&header).map_err(|_| broken())?;
        let table = RunTable(bytes_batch::batch_as_bytes(&table).to_vec());
        let offset = shared.spill.reserve(header.bytes);
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        while at < header.bytes {
            let Some((batch, _)) = incoming.next_batch()? else { return Err(broken().into()) };
            let bytes = bytes_batch::batch_as_bytes(&batch);
            if bytes.len() as u64 > header.bytes - at {
                return Err(broken().into());
            }
            hasher.update(bytes);
            shared.spill.write_at(offset + at, bytes).map_err(|error| shared.scratch_error(error))?;
            at += bytes.len() as u64;
        }
        let checksum = hasher.finalize();
        let place = SliceLocation { offset, bytes: header.bytes, checksum };
        let fits = checksum.to_hex().as_str() == header.checksum && header.shard == share;
        if !fits || !store.add_slice(block, usize::from(share.0), place, &table) {
            return Err(broken().into());
        }
        bytes_in_all += header.bytes;
    }
    shared.checkpoint_slices(block, &reads_checksum, shards.into_iter())?;
    Ok(bytes_in_all)
}
