//! The collector of blocks, which sorts each block into a run and passes its signatures to duplicate marking.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow_array::BinaryArray;
use godwit_kernels::markdup::{BlockDetails, BlockSignatures, DuplicateMarker, DuplicateMarkerOptions, DuplicateMarks};
use godwit_model::{BlockId, Genome, PartitionPlan, RecordId, SortKey};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::picard::PicardMetricsRequest;
use super::recalibration::RecalibrationOptions;
use crate::error::PipelineError;
use crate::job_directory::{BlockSummary, JobDirectory};
use crate::marking::{DuplicatePolicy, MarkingOptions};
use crate::memory::MemoryPlan;
use crate::python_step::PythonStep;
use crate::read_groups::ReadGroups;
use crate::runs::{FinishedRuns, RunStore, RunTable, SortedBlock};
use crate::scratch::SpillFile;

/// Options for writing records. A cluster run sends them to its workers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WritingOptions {
    /// The treatment of duplicates.
    pub duplicates: DuplicatePolicy,
    /// Options of duplicate marking.
    pub marking: MarkingOptions,
    /// `None` if no metrics are requested. The inner option is the reference with which bases are compared.
    pub metrics: Option<Option<PathBuf>>,
    /// The requested metrics of Picard, which need a reference in `metrics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picard_metrics: Option<PicardMetricsRequest>,
    /// The Python step that processes records before they are written; `None` if the job has no Python step.
    #[serde(default)]
    #[serde(rename = "step")]
    pub python_step: Option<PythonStep>,
    /// Recalibration of base qualities; `None` to keep the qualities of the reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibration: Option<RecalibrationOptions>,
}

/// Options of the reduce phase.
#[derive(Clone, Debug)]
pub struct ReduceOptions {
    /// Options for writing records.
    pub writing: WritingOptions,
    /// Maximum distance between two clusters on the flow cell that count as optical duplicates, pixels.
    pub optical_distance: i32,
    /// Options of duplicate marking, in the form of a command line.
    pub marking_command_line: String,
    /// Number of partitions into which the genome is divided.
    pub partitions: u32,
    /// Number of threads that decide duplicates and write.
    pub threads: usize,
    /// The division of the memory limit.
    pub memory: MemoryPlan,
    /// Directory of the scratch files.
    pub temp: PathBuf,
}

/// A collector that sorts blocks into runs and passes their signatures to duplicate marking. The first block, which
/// determines the partitions, must be added alone. Afterwards, several threads may add blocks at the same time.
pub struct Collector {
    options: ReduceOptions,
    store: OnceLock<RunStore>,
    marker: Option<Mutex<DuplicateMarker>>,
    read_groups: ReadGroups,
    spill: Arc<SpillFile>,
    records: AtomicU64,
    /// Job directory in which checkpoints for a later process are stored; `None` if the job cannot be resumed.
    job_directory: Option<Arc<JobDirectory>>,
}

/// A block whose records are stored on workers of a cluster run.
pub struct RemoteBlock {
    /// Number of records in the block.
    pub records: u64,
    /// Signatures of the records.
    pub signatures: BlockSignatures,
    /// Templates and barcodes, for duplicate marking.
    pub details: BlockDetails,
    /// Table of the frames of the sorted run.
    pub table: RunTable,
}

impl RemoteBlock {
    /// Reports whether all signatures and details refer to records of this block.
    fn is_sound(&self, id: BlockId, options: &WritingOptions) -> bool {
        let has = |record: RecordId| record.block() == id && u64::from(record.index()) < self.records;
        let BlockSignatures { pairs, ends, .. } = &self.signatures;
        let records =
            pairs.iter().flat_map(|pair| [pair.record1, pair.record2]).chain(ends.iter().map(|end| end.record));
        options.marking.matches_details(&self.details, self.records) && records.into_iter().all(has)
    }
}

/// The runs and duplicate marks after the last block.
pub(super) struct CollectedRuns {
    pub(super) runs: Option<FinishedRuns>,
    pub(super) marking: Option<DuplicateMarks>,
    pub(super) read_groups: ReadGroups,
    pub(super) spill: Arc<SpillFile>,
    pub(super) records: u64,
    pub(super) options: ReduceOptions,
    pub(super) deciding_seconds: f64,
    pub(super) job_directory: Option<Arc<JobDirectory>>,
}

impl Collector {
    /// Creates a collector. If the job directory contains blocks of an earlier process, they are added. Duplicate
    /// marking stops when `cancelled` is set.
    ///
    /// # Errors
    /// A [`PipelineError`] if scratch files cannot be created or the job directory cannot be read.
    pub fn new(
        options: ReduceOptions,
        read_groups: &ReadGroups,
        cancelled: &Arc<AtomicBool>,
        job_directory: Option<Arc<JobDirectory>>,
    ) -> Result<Self, PipelineError> {
        let spill = SpillFile::create(&options.temp, cancelled.clone())
            .map_err(PipelineError::file("create scratch space in", &options.temp))?;
        let spill = Arc::new(spill);
        let marker = (options.writing.duplicates != DuplicatePolicy::None).then(|| {
            let WritingOptions { duplicates, marking, .. } = &options.writing;
            let marker_options = DuplicateMarkerOptions {
                libraries: read_groups.libraries().to_vec(),
                header_libraries: read_groups.header_libraries(),
                optical_distance: options.optical_distance,
                mode: marking.mode,
                uses_barcodes: marking.barcodes.has_any(),
                report_optical: marking.separates_optical(*duplicates),
                report_sets: marking.tag_set_members,
                memory_bytes: options.memory.marker_bytes,
                threads: options.threads,
            };
            Mutex::new(DuplicateMarker::new(marker_options, spill.clone()))
        });
        let read_groups = read_groups.clone();
        let (store, records) = (OnceLock::new(), AtomicU64::new(0));
        let mut collector = Self { options, store, marker, read_groups, spill, records, job_directory };
        collector.restore_blocks()?;
        Ok(collector)
    }

    /// Adds the finished blocks of the job directory.
    fn restore_blocks(&mut self) -> Result<(), PipelineError> {
        let failed = |error| PipelineError::file("read the job directory beside", &self.options.temp)(error);
        let Some(run) = &self.job_directory else { return Ok(()) };
        let Some(plan) = run.partition_plan() else { return Ok(()) };
        let store = RunStore::new(plan.clone(), self.options.memory.resident_bytes, run.blocks_file().clone(), true);
        for block in run.block_checkpoints() {
            let block = block.map_err(failed)?;
            if !store.restore(block.id, &block.table) {
                let misfit = std::io::Error::other(
                    "a stored block does not match its job; run the command again without --resume",
                );
                return Err(failed(misfit));
            }
            if let Some(marker) = &mut self.marker {
                let marking = self.options.writing.marking;
                let details = match marking.needs_details() {
                    // Workers store the records of a cluster run, so the details are in the checkpoint.
                    true if run.cluster_run().is_some() => block.details,
                    true => marking.block_details(&[store.read_back(block.id).map_err(failed)?])?,
                    false => BlockDetails::default(),
                };
                if !marking.matches_details(&details, block.records) {
                    let misfit = std::io::Error::other(
                        "a stored block does not match its job; run the command again without --resume",
                    );
                    return Err(failed(misfit));
                }
                let marker = marker.get_mut();
                marker.add_block(block.id, &block.signatures, details).map_err(failed)?;
            }
            *self.records.get_mut() += block.records;
        }
        self.store = OnceLock::from(store);
        Ok(())
    }

    /// Adds a block. `chunks`: packed records in the order of the aligner. `keys`: the sort key of each record.
    /// `signatures`: the duplicate signatures of the records.
    ///
    /// # Errors
    /// A [`PipelineError`] if a scratch file fails or a barcode is invalid.
    pub fn add_block(
        &self,
        id: BlockId,
        chunks: Vec<BinaryArray>,
        keys: &[SortKey],
        signatures: &BlockSignatures,
    ) -> Result<(), PipelineError> {
        let scratch = |error| PipelineError::file("use scratch space in", &self.options.temp)(error);
        if let Some(marker) = &self.marker {
            let details = self.options.writing.marking.block_details(&chunks)?;
            let mut marker = marker.lock();
            marker.add_block(id, signatures, details).map_err(scratch)?;
        }
        let sorted = SortedBlock::new(chunks, keys);
        let (records, longest_bases) = (sorted.records() as u64, sorted.longest_bases());
        self.records.fetch_add(records, Ordering::Relaxed);
        let store = self.store.get_or_init(|| {
            let plan = sorted.plan(self.options.partitions);
            let spill = self.job_directory.as_ref().map_or(&self.spill, |run| run.blocks_file()).clone();
            RunStore::new(plan, self.options.memory.resident_bytes, spill, self.job_directory.is_some())
        });
        let appender = self.job_directory.as_ref().map(|run| run.append_block());
        let table = store.add_block(id, sorted).map_err(scratch)?;
        match (appender, table) {
            (Some(block), Some(table)) => {
                let finished = BlockSummary { id, records, longest_bases };
                block.finish(&finished, signatures, None, &table, store.plan()).map_err(scratch)
            }
            _ => Ok(()),
        }
    }

    /// Adds a block whose records are stored on workers, and stores its signatures and frame table in the job
    /// directory. All blocks must be divided by the same plan. Returns false if the data of the block are inconsistent.
    ///
    /// # Errors
    /// A [`PipelineError`] if a scratch file fails.
    pub fn add_remote_block(
        &self,
        id: BlockId,
        block: RemoteBlock,
        plan: &PartitionPlan,
    ) -> Result<bool, PipelineError> {
        let scratch = |error| PipelineError::file("use scratch space in", &self.options.temp)(error);
        let new = || RunStore::new(plan.clone(), 0, self.spill.clone(), true);
        if !block.is_sound(id, &self.options.writing) || !self.store.get_or_init(new).restore(id, &block.table) {
            return Ok(false);
        }
        let RemoteBlock { records, signatures, details, table } = block;
        if let Some(run) = &self.job_directory {
            let finished = BlockSummary { id, records, longest_bases: u32::MAX };
            let kept = run.append_block().finish(&finished, &signatures, Some(&details), &table, plan);
            kept.map_err(scratch)?;
        }
        if let Some(marker) = &self.marker {
            let mut marker = marker.lock();
            marker.add_block(id, &signatures, details).map_err(scratch)?;
        }
        self.records.fetch_add(records, Ordering::Relaxed);
        Ok(true)
    }

    /// Returns the number of records added so far.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Ends the input and decides which records are duplicates.
    pub(super) fn finish(self, genome: &Genome) -> Result<CollectedRuns, PipelineError> {
        let started = Instant::now();
        let marker = self.marker.map(|marker| marker.into_inner());
        let marking = marker
            .map(DuplicateMarker::finish)
            .transpose()
            .map_err(|error| PipelineError::from_marking(error, self.options.temp.clone(), genome))?;
        Ok(CollectedRuns {
            runs: self.store.into_inner().map(RunStore::finish),
            marking,
            read_groups: self.read_groups,
            spill: self.spill,
            records: self.records.into_inner(),
            options: self.options,
            deciding_seconds: started.elapsed().as_secs_f64(),
            job_directory: self.job_directory,
        })
    }
}
