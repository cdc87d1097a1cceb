//! Messages between the head of a run and its workers. Small messages use one connection per worker, as JSON beside empty
//! batches; data use others.

use std::net::SocketAddr;

use godwit_model::{BlockId, DuplicateCounts, SortKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::shuffle_scheduler::{BytesPerFile, ShardId, WorkerId};

/// An event that a worker reports to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum WorkerEvent {
    /// Its aligner runs, and others can fetch from it.
    Ready {
        /// Address from which others fetch.
        address: SocketAddr,
        /// Parts that it writes at a time.
        writers: usize,
        /// Version of the records of the aligner; equal on all workers.
        engine_version: String,
        /// Name of the aligner that it runs: workers may have several that give the same records.
        #[serde(default)]
        aligner: String,
        /// Version of that aligner.
        #[serde(default)]
        aligner_version: String,
        /// Contigs, as the aligner prints them.
        sq_lines: String,
    },
    /// Its variant caller was found; the fields describe its capacity and its inputs.
    ReadyToCall {
        /// Regions that it calls at a time.
        callers: usize,
        /// Values that must be equal on all workers, defined by the job.
        #[serde(rename = "facts")]
        job_identity: Value,
    },
    /// Its search engine was found; the fields describe its capacity and its inputs.
    ReadyToSearch {
        /// Search workers that it has room for.
        #[serde(rename = "workers")]
        search_workers: usize,
        /// The engine and its version.
        engine: String,
        /// Checksum of the queries.
        #[serde(rename = "queries")]
        queries_checksum: String,
    },
    /// A search worker exited.
    #[serde(rename = "worker_ended")]
    SearchWorkerExited {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker.
        attempt: u64,
        /// Its exit status.
        #[serde(rename = "how")]
        exit_status: String,
        /// Its last output on stderr.
        #[serde(rename = "last_words")]
        stderr_tail: String,
    },
    /// It has room for one more block, or region.
    #[serde(rename = "wants")]
    WorkRequested,
    /// Its variant caller failed on a region.
    CallFailed {
        /// Number of the item of work.
        item: u64,
        /// The failure, with the command and its last output.
        message: String,
    },
    /// The partitions of the genome by the first block: the smallest key of each.
    #[serde(rename = "cut")]
    GenomePartitioned {
        /// Starts as in `PartitionPlan::starts`.
        starts: Vec<SortKey>,
    },
    /// It has fetched its slices of a block.
    #[serde(rename = "fetched")]
    SlicesFetched {
        /// The block.
        block: BlockId,
        /// Duration of the fetch.
        seconds: f64,
        /// Bytes that were fetched.
        bytes: u64,
    },
    /// It could not fetch these slices.
    #[serde(rename = "fetch_failed")]
    SliceFetchFailed {
        /// The block.
        block: BlockId,
        /// The reason.
        #[serde(rename = "why")]
        reason: String,
    },
    /// It holds slices of a block from before it joined.
    #[serde(rename = "holds")]
    SlicesHeld {
        /// The block.
        block: BlockId,
        /// Checksum of the block's reads, as the head that had it aligned reported it.
        #[serde(rename = "content")]
        reads_checksum: String,
        /// The slices.
        #[serde(rename = "shares")]
        shards: Vec<ShardId>,
    },
    /// It has reported all slices from before.
    #[serde(rename = "recalled")]
    AllSlicesReported,
    /// It cannot continue.
    Failed {
        /// The failure, its place, and what to do.
        message: String,
        /// The kind of failure, defined by the job, where others would fail in the same way, so that the run has to end.
        #[serde(rename = "everywhere")]
        fatal_kind: Option<Value>,
    },
}

/// An upload of a worker to the head, with data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "gift", rename_all = "snake_case")]
pub enum WorkerUpload {
    /// An aligned block, whose slices the worker keeps. Data: pairs, ends, the table of frames, and further results about
    /// its records.
    #[serde(rename = "block")]
    AlignedBlock {
        /// The block.
        block: BlockId,
        /// Number of reads.
        reads: u64,
        /// Number of records.
        records: u64,
        /// Counts of the duplicate metrics.
        counts: DuplicateCounts,
    },
    /// A part whose records were counted. Data: the requested records, each with its position in the part.
    #[serde(rename = "ranked")]
    RankedPart {
        /// 0-based index of the part.
        part: usize,
        /// Number of records.
        records: u64,
    },
    /// A part that the worker has written and keeps. Data: its summary.
    #[serde(rename = "part")]
    WrittenPart {
        /// 0-based index of the part.
        part: usize,
        /// Size, bytes.
        bytes: BytesPerFile,
        /// True if it was made for an earlier head.
        #[serde(rename = "kept")]
        from_checkpoint: bool,
    },
    /// A part that is in the files. Data: for each file the bytes that are still to be written before it and behind it.
    #[serde(rename = "placed")]
    PlacedPart {
        /// 0-based index of the part.
        part: usize,
        /// Offset of its first byte.
        offset: BytesPerFile,
        /// Size, bytes.
        bytes: BytesPerFile,
    },
    /// A called region. Data: the header of its VCF, and the lines of the records that it owns.
    #[serde(rename = "region")]
    CalledRegion {
        /// Number of the item of work.
        item: u64,
        /// Number of records.
        records: u64,
        /// Wall time of the variant caller.
        seconds: f64,
    },
    /// A frame from a search worker; the frame is the data.
    #[serde(rename = "frame")]
    SearchFrame {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker.
        attempt: u64,
    },
}

/// A command of the head to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Command {
    /// The worker is accepted.
    #[serde(rename = "welcome")]
    AcceptWorker {
        /// Its id.
        #[serde(rename = "node")]
        worker: WorkerId,
        /// The work to do, defined by the job.
        job: Value,
    },
    /// The worker is rejected.
    #[serde(rename = "refused")]
    RejectWorker {
        /// The reason.
        #[serde(rename = "why")]
        reason: String,
    },
    /// Align a block; its reads are a download.
    #[serde(rename = "align")]
    AlignBlock {
        /// The block.
        block: BlockId,
        /// Checksum of its reads, under which slices of it are stored.
        #[serde(rename = "content")]
        reads_checksum: String,
        /// True if it decides the partitions of the genome.
        #[serde(rename = "cuts")]
        decides_partitions: bool,
    },
    /// The partitions of the genome and the number of shards.
    #[serde(rename = "plan")]
    SetPartitions {
        /// Starts as in `PartitionPlan::starts`.
        starts: Vec<SortKey>,
        /// Number of shards.
        #[serde(rename = "shares")]
        shard_count: u16,
    },
    /// Adopt the slices that workers of an earlier head left in this worker's directory, and report them as its own.
    #[serde(rename = "inherit")]
    AdoptSlices {
        /// The partitions of the genome, as in [`Command::SetPartitions`].
        starts: Vec<SortKey>,
        /// Number of shards.
        #[serde(rename = "shares")]
        shard_count: u16,
    },
    /// Fetch slices.
    #[serde(rename = "fetch")]
    FetchSlices {
        /// The block.
        block: BlockId,
        /// Checksum of its reads.
        #[serde(rename = "content")]
        reads_checksum: String,
        /// The slices.
        #[serde(rename = "shares")]
        shards: Vec<ShardId>,
        /// Address of the worker that holds them.
        address: SocketAddr,
    },
    /// Duplicates are decided; the marks are a download.
    #[serde(rename = "decided")]
    DuplicatesDecided {
        /// Further inputs for writing, defined by the job.
        job: Value,
    },
    /// Find the positions of records in a part; the records are a download.
    #[serde(rename = "rank")]
    RankRecords {
        /// 0-based index of the part.
        part: usize,
        /// The sources of the part, defined by the job.
        job: Value,
    },
    /// Write a part.
    #[serde(rename = "write")]
    WritePart {
        /// 0-based index of the part.
        part: usize,
    },
    /// Place a part in the files.
    #[serde(rename = "place")]
    PlacePart {
        /// 0-based index of the part.
        part: usize,
        /// Offset of its first byte.
        offset: BytesPerFile,
    },
    /// Call a region.
    #[serde(rename = "call")]
    CallRegion {
        /// Number of the item of work.
        item: u64,
        /// The region, defined by the job.
        job: Value,
    },
    /// Cancel a region: another worker was faster.
    #[serde(rename = "leave")]
    CancelRegion {
        /// Number of the item of work.
        item: u64,
    },
    /// Start a search worker.
    #[serde(rename = "start_worker")]
    StartSearchWorker {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker.
        attempt: u64,
    },
    /// Send a frame to a search worker; the frame is a download.
    #[serde(rename = "ask_worker")]
    SendSearchFrame {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker.
        attempt: u64,
        /// Number of the frame.
        frame: u64,
    },
    /// Stop a search worker.
    #[serde(rename = "end_worker")]
    StopSearchWorker {
        /// 0-based index of the search worker.
        #[serde(rename = "worker")]
        search_worker: usize,
        /// Attempt number of the search worker.
        attempt: u64,
    },
    /// The run has finished.
    Finish,
}

/// A ticket of a download.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ticket", rename_all = "snake_case")]
pub enum DownloadTicket {
    /// The reads of a block, from the head.
    Reads {
        /// The block.
        block: BlockId,
    },
    /// The records that lead a duplicate set, from the head.
    Representatives,
    /// The records that are duplicates, from the head.
    #[serde(rename = "verdicts")]
    Duplicates,
    /// A frame for a search worker, from the head.
    #[serde(rename = "frame")]
    SearchFrame {
        /// Number of the frame.
        frame: u64,
    },
    /// Slices, from a worker.
    Slices {
        /// The block.
        block: BlockId,
        /// The slices.
        #[serde(rename = "shares")]
        shards: Vec<ShardId>,
    },
}

/// The first message of an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "upload", rename_all = "snake_case")]
pub(crate) enum UploadHeader {
    /// A worker joins: it reports events and receives commands until the upload ends.
    Join {
        /// Version of the worker's program.
        version: String,
        /// Name of its host and process, for messages.
        name: String,
    },
    /// Data.
    #[serde(rename = "gift")]
    Data {
        /// The worker that sends.
        #[serde(rename = "node")]
        worker: WorkerId,
        /// The kind of data.
        #[serde(rename = "gift")]
        upload: WorkerUpload,
        /// Size of each piece, bytes.
        #[serde(rename = "pieces")]
        piece_bytes: Vec<u64>,
    },
}
