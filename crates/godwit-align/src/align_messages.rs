//! The messages that the head of an alignment and its workers exchange.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use arrow_buffer::{Buffer, MutableBuffer};
use bytemuck::{AnyBitPattern, NoUninit};
use godwit_cluster::JobMessages;
use godwit_exchange::{PerFile, ShardId};
use godwit_kernels::markdup::{BlockDetails, BlockTemplates};
use godwit_model::{BlockId, DuplicateCounts, EndSignature, PairSignature, SortKey};
use godwit_pipeline::partitioned_file::PartEdges;
use godwit_pipeline::python_step::PythonStep;
use godwit_pipeline::reduce::{OutputPaths, WritingOptions};
use godwit_pipeline::runs::{RunTable, SplitPartition};
use godwit_pipeline::{MarkingOptions, PipelineError};
use serde::{Deserialize, Serialize};

/// Maximum number of duplicate marks in a record batch; a mark takes 8 or 16 bytes before compression.
pub(crate) const MAX_MARKS_PER_BATCH: usize = 1 << 17;
/// Level of zstd for duplicate marks. Higher levels do not make them smaller.
const MARK_COMPRESSION_LEVEL: i32 = 1;

/// The task of workers that align.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AlignTask {
    pub(crate) reference: PathBuf,
    pub(crate) aligner: String,
    pub(crate) arguments: Vec<String>,
    /// Maximum size of a block, bases.
    pub(crate) block_bases: u64,
    /// Read groups of the lanes.
    pub(crate) lanes: Vec<LaneTask>,
    /// Name of the sample.
    pub(crate) sample: String,
    /// Options of duplicate marking.
    pub(crate) marking: MarkingOptions,
    /// Number of partitions of the genome.
    pub(crate) partitions: u32,
    /// Number of workers on the host of this worker, each of which loads an index. If there are several, they should
    /// share the index.
    #[serde(rename = "processes_of_host")]
    pub(crate) host_processes: u64,
    /// The Python step, which processes records before they are written.
    #[serde(default)]
    #[serde(rename = "step")]
    pub(crate) python_step: Option<PythonStep>,
    /// Location of the slices that are stored for a later head of the job.
    #[serde(rename = "keep")]
    pub(crate) checkpoint_location: CheckpointLocation,
}

/// The read group of a lane, for aligners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaneTask {
    /// `@RG` line of the read group.
    pub(crate) read_group: String,
    /// `ID` in this `@RG` line.
    pub(crate) read_group_id: String,
}

/// The location of the checkpoints of the workers of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckpointLocation {
    /// Identifier of the cluster run, the same for all of its heads.
    #[serde(rename = "run")]
    pub(crate) cluster_run_id: String,
    /// Identifier of this head.
    #[serde(rename = "head")]
    pub(crate) head_id: String,
    /// Name of the checkpoint directory in the scratch space of a worker.
    #[serde(rename = "name")]
    pub(crate) directory_name: String,
    /// Parent of the checkpoint directory for workers without scratch space of their own.
    #[serde(rename = "otherwise")]
    pub(crate) default_root: PathBuf,
}

impl CheckpointLocation {
    /// Returns the checkpoint directory of a worker. `temp`: the scratch space of the worker.
    pub(crate) fn root(&self, temp: Option<&Path>) -> PathBuf {
        temp.unwrap_or(&self.default_root).join(&self.directory_name)
    }
}

/// The messages of an alignment.
pub(crate) enum AlignMessages {}

impl JobMessages for AlignMessages {
    const NAME: &'static str = "align";
    type Task = AlignTask;
    type Command = AlignCommand;
    type Event = AlignEvent;
    type Upload = AlignUpload;
    type Ticket = AlignTicket;
}

/// A command from the head to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum AlignCommand {
    /// Align a block. The worker downloads the reads from the head.
    AlignBlock {
        block: BlockId,
        /// Checksum of the reads of the block. The worker stores the slices of the block under this checksum.
        reads_checksum: String,
        /// True if the worker computes the partitions of the genome from this block.
        decides_partitions: bool,
    },
    /// Use these partitions of the genome and this number of shards.
    SetPartitions(GenomePlan),
    /// Adopt the slices that workers of an earlier head left in directories that no running worker has taken over. The
    /// worker reports the adopted slices as its own.
    AdoptSlices(GenomePlan),
    /// Fetch slices of a block from another worker.
    FetchSlices(FetchTask),
    /// The head has decided which records are duplicates. The worker downloads the duplicate marks from the head.
    DuplicatesDecided(Box<WriteTask>),
    /// Compute the ranks of records in a part. The worker downloads the list of records from the head.
    RankRecords {
        /// 0-based index of the part of the output.
        part: usize,
        /// Locations of the sorted records of the part.
        records: Box<SplitPartition>,
    },
    /// Count the base qualities of a part, for recalibration.
    CountBases {
        /// 0-based index of the part of the output.
        part: usize,
    },
    /// The base qualities of all parts are counted. The worker downloads the report from the head.
    BasesCounted,
    /// Write a part to the worker's own storage.
    WritePart {
        /// 0-based index of the part of the output.
        part: usize,
    },
    /// Copy a written part from the worker's own storage to the output files.
    PlacePart {
        /// 0-based index of the part of the output.
        part: usize,
        /// Offset of the first byte of the part in each output file.
        offset: PerFile<u64>,
    },
}

/// The partitions of the genome, and the shards into which they are grouped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GenomePlan {
    /// Smallest sort key of each partition, as in `PartitionPlan::starts`.
    pub(crate) starts: Vec<SortKey>,
    /// Number of shards into which the partitions are grouped.
    pub(crate) shard_count: u16,
}

/// Slices of a block to be fetched from another worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FetchTask {
    pub(crate) block: BlockId,
    /// BLAKE3 of the reads of the block.
    pub(crate) reads_checksum: String,
    /// Shards of the slices.
    pub(crate) shards: Vec<ShardId>,
    /// Address of the worker that stores the slices.
    pub(crate) address: SocketAddr,
}

/// An event that a worker reports to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum AlignEvent {
    /// The aligner of the worker is running, and other workers can download slices from the worker.
    Ready(ReadyWorker),
    /// The worker has room for one more block.
    WorkRequested,
    /// The worker has computed the partitions of the genome from the first block.
    GenomePartitioned {
        /// Smallest sort key of each partition, as in `PartitionPlan::starts`.
        starts: Vec<SortKey>,
    },
    /// The worker has fetched the slices of a block that the head assigned.
    SlicesFetched {
        block: BlockId,
        /// Duration of the fetch, seconds.
        seconds: f64,
        /// Number of bytes that were fetched.
        bytes: u64,
    },
    /// The worker could not fetch the slices of a block.
    SliceFetchFailed {
        block: BlockId,
        /// Error message of the failed fetch.
        reason: String,
    },
    /// The worker stores slices of a block that an earlier worker process left in its directory.
    SlicesHeld {
        block: BlockId,
        /// Checksum of the reads of the block, as the earlier head sent it with the command to align the block.
        reads_checksum: String,
        /// Shards of the slices.
        shards: Vec<ShardId>,
    },
    /// The worker has reported all slices that earlier worker processes left in its directory.
    AllSlicesReported,
}

/// The capacity and the aligner of a worker that is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadyWorker {
    /// Address from which other workers download slices.
    pub(crate) address: SocketAddr,
    /// Number of parts of the output that the worker can write concurrently.
    pub(crate) writers: usize,
    /// Version of the aligner's output. Aligners with equal versions return identical records; it must be equal on all
    /// workers.
    pub(crate) engine_version: String,
    /// Name of the aligner that the worker runs. Workers of a run may use different aligners if they return identical
    /// records.
    pub(crate) aligner: String,
    /// Version of the aligner that the worker runs.
    pub(crate) aligner_version: String,
    /// `@SQ` lines of the contigs, as the aligner prints them.
    pub(crate) sq_lines: String,
}

/// The description of data that a worker uploads to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "upload", rename_all = "snake_case")]
pub(crate) enum AlignUpload {
    /// A block was aligned, and the worker stores its slices. Data: [`BlockUpload::to_pieces`].
    AlignedBlock(AlignedBlockInfo),
    /// The ranks of records in a part were computed. Data: the requested records that are in the part, each with its
    /// 0-based rank in the part.
    RankedPart {
        /// 0-based index of the part of the output.
        part: usize,
        /// Number of alignment records of the part.
        records: u64,
    },
    /// The base qualities of a part were counted. Data: the report of the counts, in GATK's format.
    CountedPart {
        /// 0-based index of the part of the output.
        part: usize,
    },
    /// A part was written to the worker's own storage. Data: the worker's report about the part, as JSON.
    WrittenPart {
        /// 0-based index of the part of the output.
        part: usize,
        /// Size of the part in each output file, bytes.
        bytes: PerFile<u64>,
        /// True if the part was restored from a checkpoint that was written for an earlier head.
        from_checkpoint: bool,
    },
    /// A part was copied to the output files. Data: [`edges_to_pieces`]. The head writes these bytes.
    PlacedPart {
        /// 0-based index of the part of the output.
        part: usize,
        /// Offset of the first byte of the part in each output file.
        offset: PerFile<u64>,
        /// Size of the part in each output file, bytes.
        bytes: PerFile<u64>,
    },
}

/// The counts of an aligned block.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct AlignedBlockInfo {
    pub(crate) block: BlockId,
    /// Number of reads of the block.
    pub(crate) reads: u64,
    /// Number of alignment records of the block.
    pub(crate) records: u64,
    /// Record counts for the duplication metrics.
    pub(crate) counts: DuplicateCounts,
}

/// A ticket that identifies a download.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ticket", rename_all = "snake_case")]
pub(crate) enum AlignTicket {
    /// The reads of a block; the head offers them.
    Reads { block: BlockId },
    /// The best record of each duplicate set, whose rank workers compute; the head offers this list.
    Representatives,
    /// The duplicate marks of all records; the head offers them.
    Duplicates,
    /// The report of the base qualities of all parts, for recalibration; the head offers it.
    RecalibrationReport,
    /// Slices of a block; the worker that stores them offers them.
    Slices {
        block: BlockId,
        /// Shards of the slices.
        shards: Vec<ShardId>,
    },
}

/// Returns plain items as a piece of an upload.
pub(crate) fn to_buffer<T: bytemuck::Pod>(items: &[T]) -> Buffer {
    Buffer::from(bytemuck::cast_slice::<T, u8>(items))
}

/// Compresses plain items for a download by all workers, at most [`MAX_MARKS_PER_BATCH`]. The bits of duplicates shrink
/// to about a third, because few records are duplicates, and mates have equal bits.
pub(crate) fn compress_marks<T: NoUninit>(items: &[T]) -> Vec<u8> {
    let bytes = bytemuck::cast_slice::<T, u8>(items);
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    zstd_safe::compress(&mut frame, bytes, MARK_COMPRESSION_LEVEL).expect("the buffer has room for any frame");
    frame.shrink_to_fit();
    frame
}

/// Appends the items of a frame of [`compress_marks`] to `items`.
///
/// # Errors
/// [`PipelineError`] if the frame is damaged or contains more than [`MAX_MARKS_PER_BATCH`] items.
pub(crate) fn decompress_marks<T: AnyBitPattern>(frame: &[u8], items: &mut Vec<T>) -> Result<(), PipelineError> {
    let mut bytes: Vec<u8> = Vec::with_capacity(MAX_MARKS_PER_BATCH * size_of::<T>());
    zstd_safe::decompress(&mut bytes, frame).map_err(|code| {
        PipelineError::malformed_command(format!("damaged duplicate marks: {}", zstd_safe::get_error_name(code)))
    })?;
    // The bytes need not be aligned for the items.
    items.extend(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>));
    Ok(())
}

/// Returns the bytes of a part in shared pages as the pieces of an upload.
pub(crate) fn edges_to_pieces(edges: PerFile<PartEdges>) -> Vec<Buffer> {
    let PerFile { bam, cram } = edges;
    [bam.first, bam.last, cram.first, cram.last].map(Buffer::from_vec).to_vec()
}

/// Parses the pieces of [`edges_to_pieces`]; returns `None` if their number is wrong.
pub(crate) fn edges_from_pieces(pieces: &[MutableBuffer]) -> Option<PerFile<PartEdges>> {
    let [bam_first, bam_last, cram_first, cram_last] = pieces else { return None };
    let edges = |first: &MutableBuffer, last: &MutableBuffer| PartEdges { first: first.to_vec(), last: last.to_vec() };
    Some(PerFile { bam: edges(bam_first, bam_last), cram: edges(cram_first, cram_last) })
}

/// The results of a block that a worker uploads with an [`AlignUpload::AlignedBlock`].
pub(crate) struct BlockUpload {
    pub(crate) pairs: Vec<PairSignature>,
    pub(crate) ends: Vec<EndSignature>,
    pub(crate) table: RunTable,
    pub(crate) details: BlockDetails,
}

impl BlockUpload {
    /// Returns the results as the pieces of an upload: pair and end signatures, the table of the slices' frames, and
    /// the templates and barcodes of the records.
    pub(crate) fn to_pieces(&self) -> Vec<Buffer> {
        let templates = Buffer::from_vec(self.details.templates.to_bytes());
        let barcodes = to_buffer(&self.details.barcodes);
        vec![to_buffer(&self.pairs), to_buffer(&self.ends), to_buffer(&self.table.0), templates, barcodes]
    }

    /// Parses the pieces of [`Self::to_pieces`]; returns `None` if they are invalid.
    pub(crate) fn from_pieces(pieces: &[MutableBuffer]) -> Option<Self> {
        let [pairs, ends, table, templates, barcodes] = pieces else { return None };
        let pairs = bytemuck::try_cast_slice(pairs.as_slice()).ok()?.to_vec();
        let ends = bytemuck::try_cast_slice(ends.as_slice()).ok()?.to_vec();
        let templates = BlockTemplates::from_bytes(templates.as_slice())?;
        let barcodes = bytemuck::try_cast_slice(barcodes.as_slice()).ok()?.to_vec();
        let details = BlockDetails { templates, barcodes };
        Some(Self { pairs, ends, table: RunTable(table.as_slice().to_vec()), details })
    }
}

/// The task of workers that write the output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WriteTask {
    /// Header of the output file, as SAM text.
    pub(crate) header: String,
    /// Paths of the output files.
    #[serde(rename = "places")]
    pub(crate) output_paths: OutputPaths,
    /// Options of the output records, such as duplicate marking.
    pub(crate) writing: WritingOptions,
    pub(crate) reference: PathBuf,
    /// Name of the sample.
    pub(crate) sample: String,
    /// All parts of the output, in their order in the file.
    pub(crate) parts: Vec<SplitPartition>,
}

/// The metadata of a downloaded batch of duplicate marks: the kind of its items.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VerdictHeader {
    /// Bits for the records of a block: set for the representatives of duplicate sets.
    Representatives(BlockId),
    /// Bits for the records of a block: set for duplicates.
    Duplicates(BlockId),
    /// Bits for the records of a block: set for optical duplicates.
    Optical(BlockId),
    /// The records of a block that are members of duplicate sets.
    Members(BlockId),
    /// All duplicate sets.
    Sets,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_marks_come_back_and_damaged_ones_are_an_error() {
        let words: Vec<u64> = (0..MAX_MARKS_PER_BATCH as u64).map(|word| 3 << (word * word % 61)).collect();
        let frame = compress_marks(&words);
        assert!(frame.len() < words.len() * 4);
        let mut marks: Vec<u64> = vec![1];
        decompress_marks(&frame, &mut marks).unwrap();
        assert!(marks[0] == 1 && marks[1..] == words);
        assert!(decompress_marks(&frame[..frame.len() / 2], &mut marks).is_err());
        let too_many = compress_marks(&[words, vec![0]].concat());
        assert!(decompress_marks(&too_many, &mut marks).is_err());
    }
}
