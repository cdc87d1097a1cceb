//! Parts on a node: made of its slices, kept in its spill, then put into the files.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_buffer::Buffer;
use bytemuck::{AnyBitPattern, NoUninit};
use godwit_engines::aligner::Hello;
use godwit_exchange::{Gift, PerFile, Ticket, bytes_batch};
use godwit_formats::sam::Header;
use godwit_kernels::markdup::{DuplicateSet, DuplicateSets, Marking, SetMember, Verdicts};
use godwit_model::BlockId;
use serde::{Deserialize, Serialize};

use super::{Shared, buffer_of, malformed};
use crate::error::PipelineError;
use crate::read_groups::ReadGroups;
use crate::reduce::{
    DuplicatePolicy, MadePart, PartMaker, PartMakerOptions, PartPlaces, Places, RankedPart, WritingOptions, places,
};
use crate::runs::SplitPartition;

/// What nodes have to know to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WriteJob {
    /// The header of the file, SAM text.
    pub(crate) header: String,
    /// What is written.
    pub(crate) places: Places,
    /// What becomes of records.
    pub(crate) writing: WritingOptions,
    pub(crate) reference: PathBuf,
    /// The sample.
    pub(crate) sample: String,
    /// All parts, in the order of the file.
    pub(crate) parts: Vec<SplitPartition>,
}

/// What is said beside verdicts: what they are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VerdictHeader {
    /// Bits of a block: the records that lead a duplicate set.
    Representatives(BlockId),
    /// Bits of a block: duplicates.
    Duplicates(BlockId),
    /// Bits of a block: optical duplicates.
    Optical(BlockId),
    /// Members of duplicate sets in a block.
    Members(BlockId),
    /// Duplicate sets.
    Sets,
}

/// What a writing thread is told.
pub(super) enum Task {
    /// Find the places of records in a part.
    Rank(usize, Box<SplitPartition>),
    /// Make a part.
    Write(usize),
    /// Put it into the files.
    Place(usize, PerFile),
}

/// What the writing threads share.
#[derive(Default)]
pub(super) struct Writing<'s> {
    /// The records that are looked for, once they were asked for.
    wanted: Mutex<Option<Arc<Verdicts>>>,
    /// Once duplicates are decided.
    maker: OnceLock<Maker<'s>>,
}

/// All that writing takes.
struct Maker<'s> {
    maker: PartMaker<'s>,
    parts: Vec<SplitPartition>,
    /// What parts are made of and how: a checksum. `None` where parts are more than what waits for its place in the BAM.
    made_of: Option<String>,
    made: Mutex<HashMap<usize, (PartPlaces, PerFile)>>,
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
    writing: &Writing<'s>,
) -> Result<(), PipelineError> {
    let Some(store) = shared.store.get() else { return Ok(()) };
    let mut made_of = blake3::Hasher::new();
    made_of.update(&serde_json::to_vec(&job).map_err(|error| malformed(error.to_string()))?);
    let is_bam_alone = job.places == Places { bam: job.places.bam.clone(), ..Places::default() };
    let header = Header::parse(job.header.as_bytes()).map_err(|error| malformed(error.to_string()))?;
    let read_groups = header.read_groups().map_err(|error| malformed(error.to_string()))?;
    let options = PartMakerOptions {
        read_groups: ReadGroups::new(&read_groups)?,
        genome: hello.genome.clone(),
        places: job.places,
        header,
        reference: job.reference,
        scratch: shared.scratch.clone(),
        parts: job.parts.len(),
        sample: job.sample,
        marking: marking(shared, &job.writing, &mut made_of)?,
        writing: job.writing,
    };
    let made_of = is_bam_alone.then(|| made_of.finalize().to_hex().to_string());
    let made = Maker { maker: PartMaker::new(store, options)?, parts: job.parts, made_of, made: Mutex::default() };
    let _ = writing.maker.set(made);
    Ok(())
}

/// Which records are duplicates, where they are looked for. What is told of them goes into the hash.
fn marking(
    shared: &Shared,
    writing: &WritingOptions,
    hasher: &mut blake3::Hasher,
) -> Result<Option<Marking>, PipelineError> {
    if writing.duplicates == DuplicatePolicy::None {
        return Ok(None);
    }
    let told = told(shared, &Ticket::Verdicts)?;
    told.hash(hasher);
    let Told { duplicates, optical, members, sets, .. } = told;
    let tells_optical = writing.marking.tells_optical(writing.duplicates);
    Ok(Some(Marking {
        duplicates: Verdicts::from_blocks(duplicates),
        optical: tells_optical.then(|| Verdicts::from_blocks(optical)),
        sets: writing.marking.tag_set_members.then(|| DuplicateSets::from_blocks(sets, members)),
        ..Marking::default()
    }))
}

/// What the head tells of records, by block.
#[derive(Default)]
struct Told {
    representatives: HashMap<BlockId, Vec<u64>>,
    duplicates: HashMap<BlockId, Vec<u64>>,
    optical: HashMap<BlockId, Vec<u64>>,
    members: HashMap<BlockId, Vec<SetMember>>,
    sets: Vec<DuplicateSet>,
}

impl Told {
    /// Puts all of it into a hash.
    fn hash(&self, hasher: &mut blake3::Hasher) {
        hash_blocks(&self.duplicates, hasher);
        hash_blocks(&self.optical, hasher);
        hash_blocks(&self.members, hasher);
        hasher.update(bytemuck::cast_slice(&self.sets));
    }
}

fn hash_blocks<T: NoUninit>(blocks: &HashMap<BlockId, Vec<T>>, hasher: &mut blake3::Hasher) {
    for (block, items) in blocks.iter().collect::<BTreeMap<_, _>>() {
        hasher.update(&[&block.lane.to_le_bytes()[..], &block.ordinal.to_le_bytes()[..]].concat());
        hasher.update(bytemuck::cast_slice(items));
    }
    hasher.update(b"|");
}

fn told(shared: &Shared, ticket: &Ticket) -> Result<Told, PipelineError> {
    let mut incoming = shared.link.get(ticket)?;
    let mut told = Told::default();
    while let Some((batch, header)) = incoming.next_batch()? {
        let header = serde_json::from_slice(&header).map_err(|error| malformed(error.to_string()))?;
        let bytes = bytes_batch::bytes(&batch);
        match header {
            VerdictHeader::Representatives(block) => append(told.representatives.entry(block).or_default(), bytes),
            VerdictHeader::Duplicates(block) => append(told.duplicates.entry(block).or_default(), bytes),
            VerdictHeader::Optical(block) => append(told.optical.entry(block).or_default(), bytes),
            VerdictHeader::Members(block) => append(told.members.entry(block).or_default(), bytes),
            VerdictHeader::Sets => append(&mut told.sets, bytes),
        }
    }
    Ok(told)
}

/// Appends plain items from their bytes, wherever these lie in memory.
fn append<T: AnyBitPattern>(items: &mut Vec<T>, bytes: &[u8]) {
    items.extend(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>));
}

/// Finds the places of the records that the head looks for in a part.
fn rank(shared: &Shared, writing: &Writing, split: &SplitPartition) -> Result<RankedPart, PipelineError> {
    let Some(store) = shared.store.get() else { return Err(malformed("there is nothing to count yet".into())) };
    let wanted = {
        let mut wanted = writing.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        match &*wanted {
            Some(wanted) => wanted.clone(),
            None => {
                let told = told(shared, &Ticket::Representatives)?.representatives;
                wanted.insert(Arc::new(Verdicts::from_blocks(told))).clone()
            }
        }
    };
    places(&store.runs(split), split, &wanted, shared.cancelled).map_err(|error| shared.scratch_failed(error))
}

/// Makes parts and puts them into the files.
pub(super) fn write(shared: &Shared, writing: &Writing, tasks: &Mutex<Receiver<Task>>) -> Result<(), PipelineError> {
    loop {
        let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return Ok(()) };
        let maker = || writing.maker.get().ok_or_else(|| malformed("there is nothing to write yet".into()));
        let (gift, pieces) = match task {
            Task::Rank(part, split) => {
                let RankedPart { found, records } = rank(shared, writing, &split)?;
                let found: Vec<[u64; 2]> = found.into_iter().map(|(record, place)| [record.0, place]).collect();
                (Gift::Ranked { part, records }, vec![buffer_of(&found)])
            }
            Task::Write(part) => {
                let maker = maker()?;
                let split = maker.parts.get(part).ok_or_else(|| malformed(format!("there is no part {part}")))?;
                let (made, kept) = maker.make(shared, part, split)?;
                let places = (made.places, made.bytes);
                maker.made.lock().unwrap_or_else(PoisonError::into_inner).insert(part, places);
                (Gift::Part { part, bytes: made.bytes, kept }, vec![Buffer::from_vec(made.report)])
            }
            Task::Place(part, offset) => {
                let maker = maker()?;
                let made = maker.made.lock().unwrap_or_else(PoisonError::into_inner).get(&part).cloned();
                let (places, bytes) = made.ok_or_else(|| malformed(format!("part {part} was not made here")))?;
                let edges = maker.maker.place(&places, offset)?;
                let pieces = edges.into_iter().flat_map(|edges| [edges.first, edges.last]);
                (Gift::Placed { part, offset, bytes }, pieces.map(Buffer::from_vec).collect())
            }
        };
        shared.link.give(shared.id, gift, pieces)?;
    }
}
