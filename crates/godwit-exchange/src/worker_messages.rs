//! Messages between the head of a run and its workers. Small messages of a worker use one connection, as JSON in the
//! metadata of empty batches. Data use other connections.

use std::net::SocketAddr;

use godwit_model::{BlockId, DuplicateCounts, SortKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::shuffle_scheduler::{BytesPerFile, ShardId, WorkerId};

/// An event that a worker reports to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum WorkerEvent {
    /// The aligner of the worker is running, and other workers can download slices from the worker.
    Ready {
        /// Address from which other workers download slices.
        address: SocketAddr,
        /// Number of parts of the output that the worker can write concurrently.
        writers: usize,
        /// Version of the aligner's output. Aligners with equal versions return identical records; it must be equal on
        /// all workers.
        engine_version: String,
        /// Name of the aligner that the worker runs. Workers of a run may use different aligners if they return
        /// identical records.
        #[serde(default)]
        aligner: String,
        /// Version of the aligner that the worker runs.
        #[serde(default)]
        aligner_version: String,
        /// `@SQ` lines of the contigs, as the aligner prints them.
        sq_lines: String,
    },
    /// The worker has found its variant caller and can call regions. The fields describe its capacity and inputs.
    ReadyToCall {
        /// Number of regions that the worker calls concurrently.
        callers: usize,
        /// Values, defined by the job, that must be equal on all workers.
        #[serde(rename = "facts")]
        job_identity: Value,
    },
    /// The worker has found its search engine and can start search workers. The fields describe its capacity and
    /// inputs.
    ReadyToSearch {
        /// Maximum number of search workers that the worker runs concurrently.
        #[serde(rename = "workers")]
        search_workers: usize,
        /// Name and version of the search engine.
        engine: String,
        /// Checksum of the query sequences.
        #[serde(rename = "queries")]
        queries_checksum: String,
    },
    /// A search worker process has exited.
    #[serde(rename = "worker_ended")]
    SearchWorkerExited {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker; a restarted search worker has another number.
        attempt: u64,
        /// Exit status of the search worker.
        #[serde(rename = "how")]
        exit_status: String,
        /// Last output of the search worker on stderr.
        #[serde(rename = "last_words")]
        stderr_tail: String,
    },
    /// The worker has room for one more block or calling region.
    #[serde(rename = "wants")]
    WorkRequested,
    /// The variant caller of the worker failed on a region.
    CallFailed {
        /// Number of the work item that the region is.
        item: u64,
        /// Error message, with the command of the variant caller and its last output.
        message: String,
    },
    /// The worker has computed the partitions of the genome from the first block.
    #[serde(rename = "cut")]
    GenomePartitioned {
        /// Smallest sort key of each partition, as in `PartitionPlan::starts`.
        starts: Vec<SortKey>,
    },
    /// The worker has fetched the slices of a block that the head assigned.
    #[serde(rename = "fetched")]
    SlicesFetched {
        /// Id of the block.
        block: BlockId,
        /// Duration of the fetch, seconds.
        seconds: f64,
        /// Number of bytes that were fetched.
        bytes: u64,
    },
    /// The worker could not fetch the slices of a block.
    #[serde(rename = "fetch_failed")]
    SliceFetchFailed {
        /// Id of the block.
        block: BlockId,
        /// Error message of the failed fetch.
        #[serde(rename = "why")]
        reason: String,
    },
    /// The worker stores slices of a block that an earlier worker process left in its directory.
    #[serde(rename = "holds")]
    SlicesHeld {
        /// Id of the block.
        block: BlockId,
        /// Checksum of the reads of the block, as the earlier head sent it with the command to align the block.
        #[serde(rename = "content")]
        reads_checksum: String,
        /// Shards of the slices.
        #[serde(rename = "shares")]
        shards: Vec<ShardId>,
    },
    /// The worker has reported all slices that earlier worker processes left in its directory.
    #[serde(rename = "recalled")]
    AllSlicesReported,
    /// The worker has failed and exits.
    Failed {
        /// Error message: the failure, where it occurred, and what to do.
        message: String,
        /// The kind of failure, defined by the job, if it would occur on every worker in the same way; the run then
        /// ends. `None` if other workers can continue.
        #[serde(rename = "everywhere")]
        fatal_kind: Option<Value>,
    },
}

/// An upload of data from a worker to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "gift", rename_all = "snake_case")]
pub enum WorkerUpload {
    /// A block was aligned, and the worker stores its slices. Data: pair and end signatures, the table of the slices'
    /// frames, and further results about the records.
    #[serde(rename = "block")]
    AlignedBlock {
        /// Id of the block.
        block: BlockId,
        /// Number of reads of the block.
        reads: u64,
        /// Number of alignment records of the block.
        records: u64,
        /// Record counts for the duplication metrics.
        counts: DuplicateCounts,
    },
    /// The ranks of records in a part were computed. Data: the requested records that are in the part, each with its
    /// 0-based rank in the part.
    #[serde(rename = "ranked")]
    RankedPart {
        /// 0-based index of the part of the output.
        part: usize,
        /// Number of alignment records of the block.
        records: u64,
    },
    /// A part was written to the worker's own storage. Data: the worker's report about the part, as JSON.
    #[serde(rename = "part")]
    WrittenPart {
        /// 0-based index of the part of the output.
        part: usize,
        /// Size of the part in each output file, bytes.
        bytes: BytesPerFile,
        /// True if the part was restored from a checkpoint that was written for an earlier head.
        #[serde(rename = "kept")]
        from_checkpoint: bool,
    },
    /// A part was copied to the output files. Data: for each file, the first and last bytes of the part that share a
    /// page with other parts. The head writes these bytes.
    #[serde(rename = "placed")]
    PlacedPart {
        /// 0-based index of the part of the output.
        part: usize,
        /// Offset of the first byte of the part in each output file.
        offset: BytesPerFile,
        /// Size of the part in each output file, bytes.
        bytes: BytesPerFile,
    },
    /// A region was called. Data: the VCF header, and the lines of the variant records that the region owns.
    #[serde(rename = "region")]
    CalledRegion {
        /// Number of the work item that the region is.
        item: u64,
        /// Number of alignment records of the block.
        records: u64,
        /// Wall time of the variant caller, seconds.
        seconds: f64,
    },
    /// A frame (message) from a search worker to the head. Data: the frame.
    #[serde(rename = "frame")]
    SearchFrame {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker; a restarted search worker has another number.
        attempt: u64,
    },
}

/// A command from the head to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Command {
    /// The head accepts the worker.
    #[serde(rename = "welcome")]
    AcceptWorker {
        /// Id of the worker in this run.
        #[serde(rename = "node")]
        worker: WorkerId,
        /// Description of the work, defined by the job.
        job: Value,
    },
    /// The head rejects the worker.
    #[serde(rename = "refused")]
    RejectWorker {
        /// The reason for the rejection.
        #[serde(rename = "why")]
        reason: String,
    },
    /// Align a block. The worker downloads the reads from the head.
    #[serde(rename = "align")]
    AlignBlock {
        /// Id of the block.
        block: BlockId,
        /// Checksum of the reads of the block. The worker stores the slices of the block under this checksum.
        #[serde(rename = "content")]
        reads_checksum: String,
        /// True if the worker computes the partitions of the genome from this block.
        #[serde(rename = "cuts")]
        decides_partitions: bool,
    },
    /// Use these partitions of the genome and this number of shards.
    #[serde(rename = "plan")]
    SetPartitions {
        /// Smallest sort key of each partition, as in `PartitionPlan::starts`.
        starts: Vec<SortKey>,
        /// Number of shards into which the partitions are grouped.
        #[serde(rename = "shares")]
        shard_count: u16,
    },
    /// Adopt the slices that workers of an earlier head left in directories that no running worker has taken over. The
    /// worker reports the adopted slices as its own.
    #[serde(rename = "inherit")]
    AdoptSlices {
        /// Smallest sort key of each partition, as in [`Command::SetPartitions`].
        starts: Vec<SortKey>,
        /// Number of shards into which the partitions are grouped.
        #[serde(rename = "shares")]
        shard_count: u16,
    },
    /// Fetch slices of a block from another worker.
    #[serde(rename = "fetch")]
    FetchSlices {
        /// Id of the block.
        block: BlockId,
        /// Checksum of the reads of the block.
        #[serde(rename = "content")]
        reads_checksum: String,
        /// Shards of the slices.
        #[serde(rename = "shares")]
        shards: Vec<ShardId>,
        /// Address of the worker that stores the slices.
        address: SocketAddr,
    },
    /// The head has decided which records are duplicates. The worker downloads the duplicate marks from the head.
    #[serde(rename = "decided")]
    DuplicatesDecided {
        /// Further inputs for writing the output, defined by the job.
        job: Value,
    },
    /// Compute the ranks of records in a part. The worker downloads the list of records from the head.
    #[serde(rename = "rank")]
    RankRecords {
        /// 0-based index of the part of the output.
        part: usize,
        /// Locations of the sorted records of the part, defined by the job.
        job: Value,
    },
    /// Write a part to the worker's own storage.
    #[serde(rename = "write")]
    WritePart {
        /// 0-based index of the part of the output.
        part: usize,
    },
    /// Copy a written part from the worker's own storage to the output files.
    #[serde(rename = "place")]
    PlacePart {
        /// 0-based index of the part of the output.
        part: usize,
        /// Offset of the first byte of the part in each output file.
        offset: BytesPerFile,
    },
    /// Call variants in a region.
    #[serde(rename = "call")]
    CallRegion {
        /// Number of the work item that the region is.
        item: u64,
        /// Description of the region, defined by the job.
        job: Value,
    },
    /// Cancel the calling of a region, because another worker has already returned the result.
    #[serde(rename = "leave")]
    CancelRegion {
        /// Number of the work item that the region is.
        item: u64,
    },
    /// Start a search worker.
    #[serde(rename = "start_worker")]
    StartSearchWorker {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker; a restarted search worker has another number.
        attempt: u64,
    },
    /// Send a frame (message) to a search worker. The worker downloads the frame from the head.
    #[serde(rename = "ask_worker")]
    SendSearchFrame {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker; a restarted search worker has another number.
        attempt: u64,
        /// Number of the frame, which identifies its download.
        frame: u64,
    },
    /// Stop a search worker.
    #[serde(rename = "end_worker")]
    StopSearchWorker {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker; a restarted search worker has another number.
        attempt: u64,
    },
    /// The run has finished; the worker exits.
    Finish,
}

/// A ticket that identifies a download.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ticket", rename_all = "snake_case")]
pub enum DownloadTicket {
    /// The reads of a block; the head offers them.
    Reads {
        /// Id of the block.
        block: BlockId,
    },
    /// The best record of each duplicate set, whose rank workers compute; the head offers this list.
    Representatives,
    /// The duplicate marks of all records; the head offers them.
    #[serde(rename = "verdicts")]
    Duplicates,
    /// A frame for a search worker; the head offers it.
    #[serde(rename = "frame")]
    SearchFrame {
        /// Number of the frame, which identifies its download.
        frame: u64,
    },
    /// Slices of a block; the worker that stores them offers them.
    Slices {
        /// Id of the block.
        block: BlockId,
        /// Shards of the slices.
        #[serde(rename = "shares")]
        shards: Vec<ShardId>,
    },
}

/// The first message of an upload stream from a worker to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "upload", rename_all = "snake_case")]
pub(crate) enum UploadHeader {
    /// A worker joins the run. Until the stream ends, the worker sends events, and the head responds with commands.
    Join {
        /// Version of the worker's program.
        version: String,
        /// Name of the worker's host and process, for messages to users.
        name: String,
    },
    /// Data of a worker that has joined.
    #[serde(rename = "gift")]
    Data {
        /// The worker that sends the data.
        #[serde(rename = "node")]
        worker: WorkerId,
        /// Kind of the data, with its description.
        #[serde(rename = "gift")]
        upload: WorkerUpload,
        /// Size of each piece of the data, bytes.
        #[serde(rename = "pieces")]
        piece_bytes: Vec<u64>,
    },
}
