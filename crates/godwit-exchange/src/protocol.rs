//! What the head of a run and its nodes say to each other. Small things go over one connection per node, as JSON beside
//! empty batches; data goes over others.

use std::net::SocketAddr;

use godwit_model::{BlockId, DuplicateCounts, SortKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ledger::{NodeId, PerFile, Share};

/// What a node says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// Its aligner runs, and others can fetch from it.
    Ready {
        /// Where others fetch from.
        address: SocketAddr,
        /// Parts it writes at a time.
        writers: usize,
        /// Version of the records of the aligner; equal on all workers.
        engine_version: String,
        /// Name of the aligner that it runs: nodes may have several that give the same records.
        #[serde(default)]
        aligner: String,
        /// Version of that aligner.
        #[serde(default)]
        aligner_version: String,
        /// Contigs, as the aligner prints them.
        sq_lines: String,
    },
    /// Its caller was found, and this is what it would call from.
    ReadyToCall {
        /// Regions that it calls at a time.
        callers: usize,
        /// What has to be the same on all nodes, in the words of the job.
        facts: Value,
    },
    /// Its search engine was found, and this is what it would search.
    ReadyToSearch {
        /// Workers that it has room for.
        workers: usize,
        /// The engine and its version.
        engine: String,
        /// Checksum of the queries.
        queries: String,
    },
    /// A worker of a search has ended.
    WorkerEnded {
        /// Its number.
        worker: usize,
        /// Which start of it.
        attempt: u64,
        /// How.
        how: String,
        /// What it said last.
        last_words: String,
    },
    /// It has room for one more block, or region.
    Wants,
    /// Its caller failed on a region.
    CallFailed {
        /// Number of the item of work.
        item: u64,
        /// How, with the command and its last words.
        message: String,
    },
    /// How the first block cuts the genome: the smallest key of each partition.
    Cut {
        /// As `PartitionPlan::starts` has them.
        starts: Vec<SortKey>,
    },
    /// It has what it was to fetch of a block.
    Fetched {
        /// The block.
        block: BlockId,
        /// How long that took.
        seconds: f64,
        /// How many bytes that were.
        bytes: u64,
    },
    /// It could not fetch that.
    FetchFailed {
        /// The block.
        block: BlockId,
        /// Why.
        why: String,
    },
    /// It has slices of a block from before it joined.
    Holds {
        /// The block.
        block: BlockId,
        /// What its reads were, as the head that had it aligned said.
        content: String,
        /// Which slices.
        shares: Vec<Share>,
    },
    /// It has said all that it has from before.
    Recalled,
    /// It cannot go on.
    Failed {
        /// What, where and what to do.
        message: String,
        /// Where others would fail likewise, so that the run has to end: what kind of failure it is, in the words of the job.
        everywhere: Option<Value>,
    },
}

/// What a node hands over, with data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "gift", rename_all = "snake_case")]
pub enum Gift {
    /// An aligned block, whose slices it keeps. Data: pairs, ends, the table of frames, and what else there is to know of
    /// its records.
    Block {
        /// The block.
        block: BlockId,
        /// Reads that went in.
        reads: u64,
        /// Records that came out.
        records: u64,
        /// These as the duplicate metrics count them.
        counts: DuplicateCounts,
    },
    /// A part that was counted through. Data: records that were looked for, each with its place in the part.
    Ranked {
        /// Its place among all.
        part: usize,
        /// Its records.
        records: u64,
    },
    /// A part that it keeps. Data: what there is to say about it.
    Part {
        /// Its place among all.
        part: usize,
        /// Number of bytes.
        bytes: PerFile,
        /// Whether it was made for an earlier head.
        kept: bool,
    },
    /// A part that is in the files. Data: for each file what is left to be put before it, and behind it.
    Placed {
        /// Its place among all.
        part: usize,
        /// First bytes.
        offset: PerFile,
        /// Number of bytes.
        bytes: PerFile,
    },
    /// A region that was called. Data: the header of its VCF, and the lines of the records that it owns.
    Region {
        /// Number of the item of work.
        item: u64,
        /// Its records.
        records: u64,
        /// Wall time of the caller.
        seconds: f64,
    },
    /// What a worker of a search says: a frame of its protocol is the data.
    Frame {
        /// Its number.
        worker: usize,
        /// Which start of it.
        attempt: u64,
    },
}

/// What the head tells a node to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// The node is part of the run.
    Welcome {
        /// Who it is.
        node: NodeId,
        /// What is to be done, in the words of the job.
        job: Value,
    },
    /// It is not.
    Refused {
        /// Why.
        why: String,
    },
    /// Align a block; its reads are a download.
    Align {
        /// Which.
        block: BlockId,
        /// What its reads are: a checksum that slices of it are kept under.
        content: String,
        /// Whether it decides how the genome is cut.
        cuts: bool,
    },
    /// How the genome is cut and dealt out.
    Plan {
        /// As `PartitionPlan::starts` has them.
        starts: Vec<SortKey>,
        /// Number of shares.
        shares: u16,
    },
    /// Take over what nodes of an earlier head left where this one keeps its own, and say so as of its own.
    Inherit {
        /// How the genome is cut, as in [`Order::Plan`].
        starts: Vec<SortKey>,
        /// Number of shares.
        shares: u16,
    },
    /// Fetch slices.
    Fetch {
        /// Of which block.
        block: BlockId,
        /// What its reads are.
        content: String,
        /// Which.
        shares: Vec<Share>,
        /// From where.
        address: SocketAddr,
    },
    /// Duplicates are decided; which ones is a download.
    Decided {
        /// What else writing takes, in the words of the job.
        job: Value,
    },
    /// Find the places of records in a part; which records is a download.
    Rank {
        /// Its place among all.
        part: usize,
        /// What it is made of, in the words of the job.
        job: Value,
    },
    /// Make a part.
    Write {
        /// Its place among all.
        part: usize,
    },
    /// Put a part into the files.
    Place {
        /// Its place among all.
        part: usize,
        /// First bytes.
        offset: PerFile,
    },
    /// Call a region.
    Call {
        /// Number of the item of work.
        item: u64,
        /// What it is, in the words of the job.
        job: Value,
    },
    /// Leave a region: another node was faster.
    Leave {
        /// Number of the item of work.
        item: u64,
    },
    /// Start a worker of a search.
    StartWorker {
        /// Its number.
        worker: usize,
        /// Which start of it.
        attempt: u64,
    },
    /// Hand a frame to a worker of a search; the frame is a download.
    AskWorker {
        /// Its number.
        worker: usize,
        /// Which start of it.
        attempt: u64,
        /// Number of the frame.
        frame: u64,
    },
    /// End a worker of a search.
    EndWorker {
        /// Its number.
        worker: usize,
        /// Which start of it.
        attempt: u64,
    },
    /// All is done.
    Finish,
}

/// What can be downloaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ticket", rename_all = "snake_case")]
pub enum Ticket {
    /// The reads of a block, from the head.
    Reads {
        /// Which.
        block: BlockId,
    },
    /// Which records lead a duplicate set, from the head.
    Representatives,
    /// Which records are duplicates, from the head.
    Verdicts,
    /// What a worker of a search is asked, from the head.
    Frame {
        /// Its number among all.
        frame: u64,
    },
    /// Slices, from a node.
    Slices {
        /// Of which block.
        block: BlockId,
        /// Which.
        shares: Vec<Share>,
    },
}

/// How an upload begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "upload", rename_all = "snake_case")]
pub(crate) enum Opening {
    /// A node reports, and is given orders, until it ends.
    Join {
        /// Of the node's program.
        version: String,
        /// Name of its machine and its process, for messages.
        name: String,
    },
    /// Data.
    Gift {
        /// From whom.
        node: NodeId,
        /// What it is.
        gift: Gift,
        /// Bytes of each of its pieces.
        pieces: Vec<u64>,
    },
}
