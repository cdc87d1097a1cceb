//! A worker of a cluster run. The head assigns the task: variant [calling](crate::call::cluster_worker), sequence
//! [searching](crate::cluster_search::cluster_worker), or alignment.
//!
//! An alignment worker downloads blocks of reads from the head, aligns them, and stores the records as slices. A slice
//! contains the records of one block in one shard of the genome. The worker fetches the slices of its own shards from
//! other workers, and writes its parts into the shared output file. One thread receives commands and passes them to
//! other threads: one feeds the aligner, one collects its records, one sorts and packs them, a few fetch, a few write.
//! Any failure ends the worker; the head continues without this worker.

mod align_threads;
mod block_aligner;
mod checkpoint;
mod slice_source;
mod write_threads;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use godwit_engines::aligner::AlignerInfo;
use godwit_exchange::{
    ClusterCredentials, Command, DownloadTicket, ExchangeError, FlightError, ShardId, WorkerEndpoint, WorkerEvent,
    WorkerId, bytes_batch,
};
use godwit_fleet::address::AddressChoice;
use godwit_fleet::{Rendezvous, Token};
use godwit_formats::message_with_causes;
use godwit_model::{BlockId, PartitionPlan, SortKey};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::align_messages::AlignTask;
use crate::call;
use crate::cluster::{
    WorkKind, WorkerInput, WorkerOptions, WorkerTask, forward_commands, host_name, malformed_command, receive_input,
    run_reporting_failure, unexpected_command,
};
use crate::cluster_search;
use crate::error::{ErrorKind, PipelineError};
use crate::runs::{ShardPlan, SliceLocation, SliceStore};
use crate::scratch::SpillFile;

use block_aligner::BlockAligner;
use checkpoint::WorkerCheckpoints;
pub(crate) use slice_source::SliceHeader;
use slice_source::SliceSource;
use write_threads::WriteState;

/// Number of threads that fetch slices; each of them fetches the slices of one block at a time.
const FETCH_THREADS: usize = 3;

/// Time for which a worker tries to reconnect to a lost head.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two attempts to reconnect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// State that all threads of a worker share.
struct WorkerContext<'n> {
    connection: &'n WorkerEndpoint,
    id: WorkerId,
    spill: Arc<SpillFile>,
    checkpoints: &'n WorkerCheckpoints,
    /// For each block that is being aligned, the BLAKE3 of its reads.
    reads_checksums: Mutex<HashMap<BlockId, String>>,
    scratch: PathBuf,
    slice_store: OnceLock<Arc<SliceStore>>,
    /// The block that decides the partitions of the genome, if this worker aligns it.
    planning_block: Mutex<Option<BlockId>>,
    input_sender: Mutex<Sender<WorkerInput>>,
    cancelled: &'n Arc<AtomicBool>,
}

impl WorkerContext<'_> {
    /// Runs the closure of a thread. If the closure fails, the worker stops.
    fn run_thread(&self, work: impl FnOnce() -> Result<(), PipelineError>) {
        let inputs = self.input_sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        run_reporting_failure(&inputs, work);
    }

    fn set_planning_block(&self, block: BlockId) {
        *self.planning_block.lock().unwrap_or_else(PoisonError::into_inner) = Some(block);
    }

    fn is_planning_block(&self, block: BlockId) -> bool {
        *self.planning_block.lock().unwrap_or_else(PoisonError::into_inner) == Some(block)
    }

    fn set_reads_checksum(&self, block: BlockId, content: String) {
        self.reads_checksums.lock().unwrap_or_else(PoisonError::into_inner).insert(block, content);
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

/// Runs a worker until the job is finished. If the connection to the head is lost, the worker reconnects as a new
/// worker and keeps its slices. It does not connect to a later head, because a later head starts workers of its own,
/// which wait for these slices. The launcher of this worker may also be about to stop it.
///
/// # Errors
/// [`PipelineError`] if this worker fails; the job continues without it.
pub fn run_worker(options: &WorkerOptions, cancelled: &Arc<AtomicBool>) -> Result<(), PipelineError> {
    let (mut head, mut lost_since) = (None, None::<Instant>);
    loop {
        let started = Instant::now();
        let error = match run_worker_session(options, &mut head, cancelled) {
            Err(PipelineError::Exchange(error)) => error,
            ended => return ended,
        };
        // If the last session with a head was long, start the timeout for reconnecting again.
        if started.elapsed() > RECONNECT_TIMEOUT {
            lost_since = None;
        }
        let is_over = !Rendezvous::file_path(&options.rendezvous_directory).exists() || is_head_gone(&error);
        if is_over || lost_since.get_or_insert(started).elapsed() > RECONNECT_TIMEOUT {
            return Err(PipelineError::Exchange(error));
        }
        std::thread::sleep(RECONNECT_INTERVAL);
    }
}

/// Returns whether the head has exited (its host refuses connections) or has rejected the worker.
fn is_head_gone(error: &ExchangeError) -> bool {
    match error {
        ExchangeError::Flight(FlightError::Connect { source, .. }) => {
            source.kind() == std::io::ErrorKind::ConnectionRefused
        }
        ExchangeError::WorkerRejected { .. } => true,
        _ => false,
    }
}

/// Connects to the head and works until the connection or the job ends. `head` is the token of the first head to which
/// this process connected, once it is known.
fn run_worker_session(
    options: &WorkerOptions,
    head: &mut Option<Token>,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), PipelineError> {
    let is_cancelled = || cancelled.load(Ordering::Relaxed);
    let found = Rendezvous::wait(&options.rendezvous_directory, options.attempt, options.join_timeout, is_cancelled)?;
    if *head.get_or_insert_with(|| found.token.clone()) != found.token {
        return Err(ExchangeError::WorkerRejected {
            reason: "another head with its own workers has taken over the job".to_owned(),
        }
        .into());
    }
    let keys = ClusterCredentials::load(found.token.reveal(), &options.rendezvous_directory)?;
    let name = format!("{}, process {}", host_name(), std::process::id());
    let (head, link) = connect_to_head(&found, &keys, &name)?;
    let (id, job) = match link.next_command()? {
        Command::AcceptWorker { worker, job } => (worker, job),
        Command::RejectWorker { reason } => return Err(ExchangeError::WorkerRejected { reason }.into()),
        other => return Err(unexpected_command(&other)),
    };
    let task = parse_json::<WorkerTask<Value>>(job);
    let result = task.and_then(|WorkerTask { work, task }| match work {
        WorkKind::Align => run_align_worker(&link, id, &parse_json(task)?, head, options, cancelled),
        WorkKind::Call => call::cluster_worker::run_call_worker(&link, id, &parse_json(task)?, options, cancelled),
        WorkKind::Search => {
            cluster_search::cluster_worker::run_search_worker(&link, id, &parse_json(task)?, options, cancelled)
        }
    });
    if let Err(error) = &result
        && !matches!(error, PipelineError::Exchange(_))
    {
        let fatal_kind = error.affects_all_workers().then(|| serde_json::json!(error.kind()));
        let message = message_with_causes(error);
        // Ignore an error here: the head also notices that the connection closes.
        let _ = link.send_event(WorkerEvent::Failed { message, fatal_kind });
        std::thread::sleep(Duration::from_millis(200));
    }
    result
}

fn parse_json<T: DeserializeOwned>(json: Value) -> Result<T, PipelineError> {
    serde_json::from_value(json).map_err(|error| malformed_command(error.to_string()))
}

/// Opens the checkpoints of an alignment worker, and executes the commands of the head.
fn run_align_worker(
    link: &WorkerEndpoint,
    id: WorkerId,
    job: &AlignTask,
    head: SocketAddr,
    options: &WorkerOptions,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), PipelineError> {
    let scratch = options.temp.clone().unwrap_or_else(|| job.checkpoint_location.default_root.clone());
    let failed = PipelineError::file("use scratch space in", &scratch);
    let kept = WorkerCheckpoints::open(&job.checkpoint_location, options.temp.as_deref(), cancelled).map_err(failed)?;
    let led = serve_head(link, (id, head), job, &kept, scratch, options, cancelled);
    // Remove the checkpoints after success, and after a failure of this host such as a full disk. After other failures,
    // another process may resume from them.
    match &led {
        Err(error) if error.kind() != ErrorKind::Machine => {}
        _ => kept.remove(),
    }
    led
}

/// Starts the aligner, and executes the commands of the head until the job is finished or the connection is lost.
fn serve_head(
    connection: &WorkerEndpoint,
    (id, head): (WorkerId, SocketAddr),
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
    let (sender, inputs) = mpsc::channel();
    let inputs_of_orders = sender.clone();
    let shared = WorkerContext {
        connection,
        id,
        spill: checkpoints.spill().clone(),
        checkpoints,
        reads_checksums: Mutex::default(),
        scratch,
        slice_store: OnceLock::new(),
        planning_block: Mutex::default(),
        input_sender: Mutex::new(sender),
        cancelled,
    };
    let slice_source = Arc::new(SliceSource::default());
    let own = AddressChoice::RouteTo(head.ip().to_string()).resolve()?;
    let address = connection.serve_downloads(own, slice_source.clone())?;
    let (name, version) = aligner.name_and_version();
    connection.send_event(WorkerEvent::Ready {
        address,
        writers: options.threads,
        engine_version: aligner.emulated_version().to_owned(),
        aligner: name,
        aligner_version: version,
        sq_lines: hello.sq_lines.clone(),
    })?;
    process_commands(&shared, aligner, &hello, &slice_source, job, options, (inputs_of_orders, inputs))
}

/// Connects to the first address of the head that answers, and joins the job.
fn connect_to_head(
    found: &Rendezvous,
    keys: &ClusterCredentials,
    name: &str,
) -> Result<(SocketAddr, WorkerEndpoint), PipelineError> {
    let mut last = malformed_command("the head has no address".into());
    for address in &found.addresses {
        let head = SocketAddr::new(*address, found.port);
        match WorkerEndpoint::join(head, keys.clone(), env!("CARGO_PKG_VERSION"), name) {
            Ok(link) => return Ok((head, link)),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Starts the threads of an alignment worker, and passes the commands of the head to them until the last command.
fn process_commands(
    shared: &WorkerContext,
    aligner: BlockAligner,
    hello: &AlignerInfo,
    slice_source: &SliceSource,
    job: &AlignTask,
    options: &WorkerOptions,
    (inputs_of_orders, inputs): (Sender<WorkerInput>, Receiver<WorkerInput>),
) -> Result<(), PipelineError> {
    let (feeding, reader, stop) = aligner.split();
    let (to_feed, feed) = mpsc::channel();
    let (to_pack, pack) = mpsc::channel();
    let (to_fetch, fetch) = mpsc::channel();
    let (to_write, write) = mpsc::channel();
    let fetch = Mutex::new(fetch);
    let write = Mutex::new(write);
    let writing = WriteState::default();
    std::thread::scope(|scope| {
        scope.spawn(move || forward_commands(shared.connection, &inputs_of_orders));
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
        let led = (|| loop {
            // Sending to a thread fails only if the thread has ended; the reason is then the next input.
            match receive_input(&inputs, shared.cancelled)? {
                WorkerInput::Failed(error) => return Err(error),
                WorkerInput::Command(order) => match order? {
                    Command::Finish => return Ok(()),
                    Command::AlignBlock { block, reads_checksum, decides_partitions } => {
                        shared.set_reads_checksum(block, reads_checksum);
                        let _ = to_feed.send((block, decides_partitions));
                    }
                    Command::SetPartitions { starts, shard_count } => {
                        set_partition_plan(shared, slice_source, starts, shard_count)?;
                        drop(to_pack.send(align_threads::PackInput::PlanKnown));
                    }
                    Command::AdoptSlices { starts, shard_count: shares } => adopt_slices(shared, &starts, shares)?,
                    Command::FetchSlices { block, reads_checksum: content, shards, address: peer_address } => {
                        drop(to_fetch.send(FetchTask { block, reads_checksum: content, shards, peer_address }));
                    }
                    Command::DuplicatesDecided { job } => {
                        let job = serde_json::from_value(job).map_err(|error| malformed_command(error.to_string()))?;
                        write_threads::prepare_writing(shared, job, hello, &writing)?;
                    }
                    Command::RankRecords { part, job } => {
                        let split =
                            serde_json::from_value(job).map_err(|error| malformed_command(error.to_string()))?;
                        drop(to_write.send(write_threads::PartTask::Rank(part, split)));
                    }
                    Command::WritePart { part } => drop(to_write.send(write_threads::PartTask::Build(part))),
                    Command::PlacePart { part, offset } => {
                        drop(to_write.send(write_threads::PartTask::CopyToFiles(part, offset)))
                    }
                    Command::RejectWorker { reason } => return Err(ExchangeError::WorkerRejected { reason }.into()),
                    other => return Err(unexpected_command(&other)),
                },
            }
        })();
        // Drop the senders, so that the threads end, and end the aligner.
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
    starts: Vec<SortKey>,
    shares: u16,
) -> Result<(), PipelineError> {
    if shared.slice_store.get().is_some() {
        return Ok(());
    }
    let plan = PartitionPlan::from_starts(starts.clone())
        .ok_or_else(|| malformed_command("the command contains invalid partitions".into()))?;
    let store = Arc::new(SliceStore::new(ShardPlan::new(plan, usize::from(shares)), shared.spill.clone()));
    let recalled =
        shared.checkpoints.restore_slices(&starts, shares, &store).map_err(|error| shared.scratch_error(error))?;
    slice_source.set_store(store.clone());
    let _ = shared.slice_store.set(store);
    report_held_slices(shared, recalled)
}

/// Adopts slices of earlier workers whose directories no running worker has taken over, and reports them to the head.
fn adopt_slices(shared: &WorkerContext, starts: &[SortKey], shares: u16) -> Result<(), PipelineError> {
    let Some(store) = shared.slice_store.get() else {
        return Err(malformed_command("the head sent the command for slices before the partitions".into()));
    };
    let inherited = shared.checkpoints.adopt_slices((starts, shares), shared.id.0 as usize, store);
    report_held_slices(shared, inherited.map_err(|error| shared.scratch_error(error))?)
}

fn report_held_slices(shared: &WorkerContext, held: Vec<(BlockId, String, Vec<ShardId>)>) -> Result<(), PipelineError> {
    for (block, reads_checksum, shards) in held {
        shared.connection.send_event(WorkerEvent::SlicesHeld { block, reads_checksum, shards })?;
    }
    Ok(shared.connection.send_event(WorkerEvent::AllSlicesReported)?)
}

/// A task to fetch slices from another worker.
struct FetchTask {
    block: BlockId,
    /// BLAKE3 of the reads of the block.
    reads_checksum: String,
    shards: Vec<ShardId>,
    /// Address of the worker that holds these slices.
    peer_address: SocketAddr,
}

/// Fetches slices from other workers, one task after the other.
fn fetch_slices(shared: &WorkerContext, orders: &Mutex<Receiver<FetchTask>>) -> Result<(), PipelineError> {
    loop {
        let order = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(order) = order else { return Ok(()) };
        let (block, started) = (order.block, Instant::now());
        let report = match fetch_block(shared, order) {
            Ok(bytes) => WorkerEvent::SlicesFetched { block, seconds: started.elapsed().as_secs_f64(), bytes },
            // The other worker may be lost: the head can name another worker that holds the slices.
            Err(PipelineError::Exchange(error)) => {
                WorkerEvent::SliceFetchFailed { block, reason: message_with_causes(&*error) }
            }
            Err(error) => return Err(error),
        };
        shared.connection.send_event(report)?;
    }
}

/// Fetches slices of one block from another worker. Returns their size in bytes.
fn fetch_block(shared: &WorkerContext, order: FetchTask) -> Result<u64, PipelineError> {
    let FetchTask { block, reads_checksum, shards, peer_address } = order;
    let Some(store) = shared.slice_store.get() else {
        return Err(malformed_command("the head sent the command for slices before the partitions".into()));
    };
    let ticket = DownloadTicket::Slices { block, shards: shards.clone() };
    let mut incoming = shared.connection.download_from_worker(peer_address, &ticket)?;
    let mut bytes_in_all = 0;
    for share in shards.iter().copied() {
        let broken =
            || ExchangeError::InvalidMessage { peer: "a worker", problem: "a slice is damaged or incomplete".into() };
        let Some((table, header)) = incoming.next_batch()? else { return Err(broken().into()) };
        let header: SliceHeader = serde_json::from_slice(&header).map_err(|_| broken())?;
        let table = crate::runs::RunTable(bytes_batch::batch_as_bytes(&table).to_vec());
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

/// Returns the bytes of plain items, to be sent to the head.
fn to_buffer<T: bytemuck::Pod>(items: &[T]) -> Buffer {
    Buffer::from(bytemuck::cast_slice::<T, u8>(items))
}
