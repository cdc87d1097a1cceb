//! Parts on a node: made of its slices, kept in its spill, then put into the file.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, OnceLock, PoisonError};

use arrow_buffer::Buffer;
use godwit_engines::aligner::Hello;
use godwit_exchange::{Gift, Ticket, bytes_batch};
use godwit_formats::sam::Header;
use godwit_kernels::markdup::Verdicts;
use godwit_model::BlockId;
use serde::{Deserialize, Serialize};

use super::{NodeOptions, Shared, malformed};
use crate::error::PipelineError;
use crate::marking::MarkingOptions;
use crate::memory::MemoryPlan;
use crate::partitioned_file::PartPlace;
use crate::read_groups::ReadGroups;
use crate::reduce::{DuplicatePolicy, MadePart, PartMaker, PartMakerOptions, Places, ReduceOptions};
use crate::runs::SplitPartition;

/// What nodes have to know to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WriteJob {
    /// The header of the file, SAM text.
    pub(crate) header: String,
    /// What is written.
    pub(crate) places: Places,
    pub(crate) duplicates: DuplicatePolicy,
    pub(crate) marking: MarkingOptions,
    pub(crate) metrics: bool,
    pub(crate) reference: PathBuf,
    /// All parts, in the order of the file.
    pub(crate) parts: Vec<SplitPartition>,
}

/// What is said beside the verdicts of a block.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct VerdictHeader {
    pub(crate) block: BlockId,
    /// Whether they are about optical duplicates.
    pub(crate) optical: bool,
}

/// What a writing thread is told.
pub(super) enum Task {
    /// Make a part.
    Write(usize),
    /// Put it into the file.
    Place(usize, u64),
}

/// All that writing takes.
pub(super) struct Maker<'s> {
    maker: PartMaker<'s>,
    parts: Vec<SplitPartition>,
    /// What parts are made of and how: a checksum. `None` where parts are more than what waits for its place in the BAM.
    made_of: Option<String>,
    made: Mutex<HashMap<usize, (PartPlace, u64)>>,
}

impl Maker<'_> {
    /// Makes a part, or finds it made for an earlier head; says which.
    fn make(&self, shared: &Shared, part: usize, split: &SplitPartition) -> Result<(MadePart, bool), PipelineError> {
        let failed = |error| shared.scratch_failed(error);
        let kept = self.made_of.as_ref().map(|made_of| shared.kept.part(made_of, part));
        if let Some(kept) = kept.transpose().map_err(failed)?.flatten() {
            return Ok((kept, true));
        }
        let made = self.maker.make(part, split, shared.cancelled)?;
        let noted = self.made_of.as_ref().map(|made_of| shared.kept.note_part(made_of, part, &made));
        noted.transpose().map_err(failed)?;
        Ok((made, false))
    }
}

/// Gets ready to write.
pub(super) fn prepare<'s>(
    shared: &'s Shared,
    job: WriteJob,
    hello: &Hello,
    options: &NodeOptions,
    maker: &OnceLock<Maker<'s>>,
) -> Result<(), PipelineError> {
    let Some(store) = shared.store.get() else { return Ok(()) };
    let mut made_of = blake3::Hasher::new();
    made_of.update(&serde_json::to_vec(&job).map_err(|error| malformed(error.to_string()))?);
    let is_bam_alone = job.places == Places { bam: job.places.bam.clone(), ..Places::default() };
    let header = Header::parse(job.header.as_bytes()).map_err(|error| malformed(error.to_string()))?;
    let read_groups = header.read_groups().map_err(|error| malformed(error.to_string()))?;
    let (duplicates, optical) = verdicts(shared, &mut made_of)?;
    let marks = job.duplicates != DuplicatePolicy::None;
    let reduce = ReduceOptions {
        duplicates: job.duplicates,
        optical_distance: 0,
        marking: job.marking,
        marking_command_line: String::new(),
        partitions: 0,
        threads: options.threads,
        memory: MemoryPlan::for_align(None, 0)?,
        temp: shared.scratch.clone(),
        metrics: job.metrics.then_some(Some(job.reference)),
    };
    let options = PartMakerOptions {
        reduce,
        read_groups: ReadGroups::new(&read_groups)?,
        genome: hello.genome.clone(),
        places: job.places,
        header,
        duplicates: marks.then_some(duplicates),
        optical: job.marking.tells_optical(job.duplicates).then_some(optical),
    };
    let made_of = is_bam_alone.then(|| made_of.finalize().to_hex().to_string());
    let made = Maker { maker: PartMaker::new(store, options)?, parts: job.parts, made_of, made: Mutex::default() };
    let _ = maker.set(made);
    Ok(())
}

/// The duplicates of all blocks, and the optical ones.
fn verdicts(shared: &Shared, hasher: &mut blake3::Hasher) -> Result<(Verdicts, Verdicts), PipelineError> {
    let mut incoming = shared.link.get(&Ticket::Verdicts)?;
    let mut blocks: [HashMap<BlockId, Vec<u64>>; 2] = Default::default();
    while let Some((batch, header)) = incoming.next_batch()? {
        let header: VerdictHeader = serde_json::from_slice(&header).map_err(|error| malformed(error.to_string()))?;
        let words = bytes_batch::bytes(&batch).chunks_exact(8);
        let words = words.filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)));
        blocks[usize::from(header.optical)].entry(header.block).or_default().extend(words);
    }
    for of_kind in &blocks {
        for (block, words) in of_kind.iter().collect::<BTreeMap<_, _>>() {
            hasher.update(&[&block.lane.to_le_bytes()[..], &block.ordinal.to_le_bytes()[..]].concat());
            hasher.update(bytemuck::cast_slice(words));
        }
        hasher.update(b"|");
    }
    let [duplicates, optical] = blocks.map(Verdicts::from_blocks);
    Ok((duplicates, optical))
}

/// Makes parts and puts them into the file.
pub(super) fn write(
    shared: &Shared,
    maker: &OnceLock<Maker>,
    tasks: &Mutex<Receiver<Task>>,
) -> Result<(), PipelineError> {
    loop {
        let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return Ok(()) };
        let Some(maker) = maker.get() else { return Err(malformed("there is nothing to write yet".into())) };
        let (gift, pieces) = match task {
            Task::Write(part) => {
                let split = maker.parts.get(part).ok_or_else(|| malformed(format!("there is no part {part}")))?;
                let (made, kept) = maker.make(shared, part, split)?;
                let place = (made.place, made.bytes);
                maker.made.lock().unwrap_or_else(PoisonError::into_inner).insert(part, place);
                (Gift::Part { part, bytes: made.bytes, kept }, vec![Buffer::from_vec(made.report)])
            }
            Task::Place(part, offset) => {
                let made = maker.made.lock().unwrap_or_else(PoisonError::into_inner).get(&part).cloned();
                let (place, bytes) = made.ok_or_else(|| malformed(format!("part {part} was not made here")))?;
                let edges = maker.maker.place(&place, offset)?;
                let pieces = vec![Buffer::from_vec(edges.first), Buffer::from_vec(edges.last)];
                (Gift::Placed { part, offset, bytes }, pieces)
            }
        };
        shared.link.give(shared.id, gift, pieces)?;
    }
}
