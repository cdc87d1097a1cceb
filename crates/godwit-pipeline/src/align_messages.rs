//! The tasks and uploads that the head of an alignment and its workers exchange.

use std::path::{Path, PathBuf};

use godwit_kernels::markdup::{BlockDetails, BlockTemplates};
use godwit_model::{BlockId, EndSignature, PairSignature};
use serde::{Deserialize, Serialize};

use crate::marking::MarkingOptions;
use crate::python_step::PythonStep;
use crate::reduce::{OutputPaths, WritingOptions};
use crate::runs::{RunTable, SplitPartition};

/// The task of workers that align.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AlignTask {
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

/// The results of a block that a worker uploads with a
/// [`WorkerUpload::AlignedBlock`](godwit_exchange::WorkerUpload::AlignedBlock).
pub(crate) struct BlockUpload {
    pub(crate) pairs: Vec<PairSignature>,
    pub(crate) ends: Vec<EndSignature>,
    pub(crate) table: RunTable,
    pub(crate) details: BlockDetails,
}

impl BlockUpload {
    /// Parses the uploaded pieces; returns `None` if they are invalid.
    pub(crate) fn from_bytes(pieces: &[arrow_buffer::MutableBuffer]) -> Option<Self> {
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
