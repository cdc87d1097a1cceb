//! Taking blocks in.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use arrow_array::BinaryArray;
use godwit_kernels::markdup::{BlockDetails, BlockSignatures, Marker, MarkerOptions, Marking};
use godwit_model::{BlockId, Genome, PartitionPlan, RecordId, SortKey};
use serde::{Deserialize, Serialize};

use super::DuplicatePolicy;
use crate::error::PipelineError;
use crate::marking::MarkingOptions;
use crate::memory::MemoryPlan;
use crate::read_groups::ReadGroups;
use crate::run_directory::{Finished, RunDirectory};
use crate::runs::{FinishedRuns, RunStore, RunTable, SortedBlock};
use crate::scratch::SpillFile;
use crate::step::Step;

/// What becomes of records when they are written, wherever that is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WritingOptions {
    /// What becomes of duplicates.
    pub duplicates: DuplicatePolicy,
    /// How they are marked, beyond that.
    pub marking: MarkingOptions,
    /// Whether metrics are taken, and the reference they compare bases with.
    pub metrics: Option<Option<PathBuf>>,
    /// What looks at records before they are written.
    #[serde(default)]
    pub step: Option<Step>,
}

/// How to reduce.
#[derive(Clone, Debug)]
pub struct ReduceOptions {
    /// What becomes of records.
    pub writing: WritingOptions,
    /// Greatest distance of optical duplicates, pixels.
    pub optical_distance: i32,
    /// How duplicates are marked, as on the command line.
    pub marking_command_line: String,
    /// Partitions of the genome.
    pub partitions: u32,
    /// Threads that write.
    pub threads: usize,
    /// Shares of memory.
    pub memory: MemoryPlan,
    /// Where scratch files go.
    pub temp: PathBuf,
}

/// Sorts blocks into runs and gathers their signatures. Blocks may be added from several threads, but the first one alone:
/// it decides the partitions.
pub struct Collector {
    options: ReduceOptions,
    store: OnceLock<RunStore>,
    marker: Option<Mutex<Marker>>,
    read_groups: ReadGroups,
    spill: Arc<SpillFile>,
    records: AtomicU64,
    /// Where what is finished is kept for a later process.
    run: Option<Arc<RunDirectory>>,
}

/// A block whose records are kept elsewhere.
pub struct BlockElsewhere {
    /// How many they are.
    pub records: u64,
    /// Their signatures.
    pub signatures: BlockSignatures,
    /// What else marking has to know of them.
    pub details: BlockDetails,
    /// Their frames.
    pub table: RunTable,
}

impl BlockElsewhere {
    /// Whether all that is told is about records that there are.
    fn is_sound(&self, id: BlockId, options: &WritingOptions) -> bool {
        let has = |record: RecordId| record.block() == id && u64::from(record.index()) < self.records;
        let BlockSignatures { pairs, ends, .. } = &self.signatures;
        let records =
            pairs.iter().flat_map(|pair| [pair.record1, pair.record2]).chain(ends.iter().map(|end| end.record));
        options.marking.fits(&self.details, self.records) && records.into_iter().all(has)
    }
}

/// Everything that is known when the last block is in.
pub(super) struct Collected {
    pub(super) runs: Option<FinishedRuns>,
    pub(super) marking: Option<Marking>,
    pub(super) read_groups: ReadGroups,
    pub(super) spill: Arc<SpillFile>,
    pub(super) records: u64,
    pub(super) options: ReduceOptions,
    pub(super) deciding_seconds: f64,
    pub(super) run: Option<Arc<RunDirectory>>,
}

impl Collector {
    /// A collector with the blocks of a run that an earlier process began, or an empty one. Duplicates are no longer
    /// decided once `cancelled` is set.
    ///
    /// # Errors
    /// When scratch space cannot be made, or the run directory cannot be read.
    pub fn new(
        options: ReduceOptions,
        read_groups: &ReadGroups,
        cancelled: &Arc<AtomicBool>,
        run: Option<Arc<RunDirectory>>,
    ) -> Result<Self, PipelineError> {
        let spill = SpillFile::create(&options.temp, cancelled.clone())
            .map_err(PipelineError::file("create scratch space in", &options.temp))?;
        let spill = Arc::new(spill);
        let marker = (options.writing.duplicates != DuplicatePolicy::None).then(|| {
            let WritingOptions { duplicates, marking, .. } = &options.writing;
            let marker_options = MarkerOptions {
                libraries: read_groups.libraries().to_vec(),
                header_libraries: read_groups.header_libraries(),
                optical_distance: options.optical_distance,
                mode: marking.mode,
                barcodes: marking.barcodes.is_any(),
                tell_optical: marking.tells_optical(*duplicates),
                tell_sets: marking.tag_set_members,
                memory_bytes: options.memory.marker_bytes,
            };
            Mutex::new(Marker::new(marker_options, spill.clone()))
        });
        let read_groups = read_groups.clone();
        let (store, records) = (OnceLock::new(), AtomicU64::new(0));
        let mut collector = Self { options, store, marker, read_groups, spill, records, run };
        collector.take_over()?;
        Ok(collector)
    }

    /// Takes in the blocks of the run directory.
    fn take_over(&mut self) -> Result<(), PipelineError> {
        let failed = |error| PipelineError::file("read the run directory beside", &self.options.temp)(error);
        let Some(run) = &self.run else { return Ok(()) };
        let Some(plan) = run.plan() else { return Ok(()) };
        let store = RunStore::new(plan.clone(), self.options.memory.resident_bytes, run.blocks().clone(), true);
        for block in run.kept_blocks() {
            let block = block.map_err(failed)?;
            if !store.restore(block.id, &block.table) {
                let misfit = std::io::Error::other("a kept block does not fit its run; run again without --resume");
                return Err(failed(misfit));
            }
            if let Some(marker) = &mut self.marker {
                let marking = self.options.writing.marking;
                let details = match marking.wants_details() {
                    // The records are on nodes.
                    true if run.over_nodes().is_some() => block.details,
                    true => marking.details(&[store.read_back(block.id).map_err(failed)?])?,
                    false => BlockDetails::default(),
                };
                if !marking.fits(&details, block.records) {
                    let misfit = std::io::Error::other("a kept block does not fit its run; run again without --resume");
                    return Err(failed(misfit));
                }
                let marker = marker.get_mut().unwrap_or_else(PoisonError::into_inner);
                marker.add_block(block.id, &block.signatures, details).map_err(failed)?;
            }
            *self.records.get_mut() += block.records;
        }
        self.store = OnceLock::from(store);
        Ok(())
    }

    /// Takes a block: its packed records in the aligner's order, the sort key of each, and their signatures.
    ///
    /// # Errors
    /// When scratch space fails, or a barcode is none.
    pub fn add_block(
        &self,
        id: BlockId,
        chunks: Vec<BinaryArray>,
        keys: &[SortKey],
        signatures: &BlockSignatures,
    ) -> Result<(), PipelineError> {
        let scratch = |error| PipelineError::file("use scratch space in", &self.options.temp)(error);
        if let Some(marker) = &self.marker {
            let details = self.options.writing.marking.details(&chunks)?;
            let mut marker = marker.lock().unwrap_or_else(PoisonError::into_inner);
            marker.add_block(id, signatures, details).map_err(scratch)?;
        }
        let sorted = SortedBlock::new(chunks, keys);
        let (records, longest_bases) = (sorted.records() as u64, sorted.longest_bases());
        self.records.fetch_add(records, Ordering::Relaxed);
        let store = self.store.get_or_init(|| {
            let plan = sorted.plan(self.options.partitions);
            let spill = self.run.as_ref().map_or(&self.spill, |run| run.blocks()).clone();
            RunStore::new(plan, self.options.memory.resident_bytes, spill, self.run.is_some())
        });
        let appender = self.run.as_ref().map(|run| run.append_block());
        let table = store.add_block(id, sorted).map_err(scratch)?;
        match (appender, table) {
            (Some(block), Some(table)) => {
                let finished = Finished { id, records, longest_bases };
                block.finish(&finished, signatures, None, &table, store.plan()).map_err(scratch)
            }
            _ => Ok(()),
        }
    }

    /// Takes a block whose records are kept elsewhere, and has the run directory keep what is told of it. All blocks have to
    /// be cut by the same plan. False where that does not fit together.
    ///
    /// # Errors
    /// When scratch space fails.
    pub fn add_block_elsewhere(
        &self,
        id: BlockId,
        block: BlockElsewhere,
        plan: &PartitionPlan,
    ) -> Result<bool, PipelineError> {
        let scratch = |error| PipelineError::file("use scratch space in", &self.options.temp)(error);
        let new = || RunStore::new(plan.clone(), 0, self.spill.clone(), true);
        if !block.is_sound(id, &self.options.writing) || !self.store.get_or_init(new).restore(id, &block.table) {
            return Ok(false);
        }
        let BlockElsewhere { records, signatures, details, table } = block;
        if let Some(run) = &self.run {
            let finished = Finished { id, records, longest_bases: u32::MAX };
            let kept = run.append_block().finish(&finished, &signatures, Some(&details), &table, plan);
            kept.map_err(scratch)?;
        }
        if let Some(marker) = &self.marker {
            let mut marker = marker.lock().unwrap_or_else(PoisonError::into_inner);
            marker.add_block(id, &signatures, details).map_err(scratch)?;
        }
        self.records.fetch_add(records, Ordering::Relaxed);
        Ok(true)
    }

    /// Records taken in so far.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Ends the input and decides duplicates.
    pub(super) fn finish(self, genome: &Genome) -> Result<Collected, PipelineError> {
        let started = Instant::now();
        let marker = self.marker.map(|marker| marker.into_inner().unwrap_or_else(PoisonError::into_inner));
        let marking = marker
            .map(Marker::finish)
            .transpose()
            .map_err(|error| PipelineError::marking(error, self.options.temp.clone(), genome))?;
        Ok(Collected {
            runs: self.store.into_inner().map(RunStore::finish),
            marking,
            read_groups: self.read_groups,
            spill: self.spill,
            records: self.records.into_inner(),
            options: self.options,
            deciding_seconds: started.elapsed().as_secs_f64(),
            run: self.run,
        })
    }
}
