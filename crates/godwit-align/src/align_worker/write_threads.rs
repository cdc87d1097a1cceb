//! Writing on a worker. Threads build parts of the output from the worker's slices and store them in its spill file.
//! When the head has decided the positions of the parts, threads copy them into the output files.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use arrow_buffer::Buffer;
use bytemuck::NoUninit;
use crossbeam_channel::Receiver;
use godwit_cluster::bytes_batch;
use godwit_engines::aligner::AlignerInfo;
use godwit_exchange::PerFile;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::{DuplicateMarks, DuplicateSet, DuplicateSets, RecordSet, SetMember};
use godwit_model::BlockId;
use godwit_pipeline::read_groups::ReadGroups;
use godwit_pipeline::reduce::{
    CompressedPart, OutputPaths, PartBuilder, PartBuilderOptions, PartLocations, RankedPart, WritingOptions,
    rank_wanted_records,
};
use godwit_pipeline::runs::SplitPartition;
use godwit_pipeline::{DuplicatePolicy, PipelineError};
use parking_lot::Mutex;

use super::WorkerContext;
use crate::align_messages::{
    AlignTicket, AlignUpload, VerdictHeader, WriteTask, decompress_marks, edges_to_pieces, to_buffer,
};

/// A task of a writing thread.
pub(super) enum PartTask {
    /// Find the ranks of requested records in a part.
    Rank(usize, Box<SplitPartition>),
    /// Count the base qualities of a part.
    Count(usize),
    /// Build a part of the output.
    Build(usize),
    /// Copy a part that was built before into the output files.
    CopyToFiles(usize, PerFile<u64>),
}

/// State that the writing threads share.
#[derive(Default)]
pub(super) struct WriteState<'s> {
    /// The representatives of duplicate sets, once they are downloaded.
    representatives: Mutex<Option<Arc<RecordSet>>>,
    /// Builder of parts; set when the head has decided the duplicates.
    builder: OnceLock<WorkerPartBuilder<'s>>,
}

/// A builder of parts, with the list of all parts and the locations of the parts that are built.
struct WorkerPartBuilder<'s> {
    builder: PartBuilder<'s>,
    parts: Vec<SplitPartition>,
    /// Checksum of the inputs and options of all parts, for checkpoints of parts. `None` if there are outputs other
    /// than the BAM; then parts have no checkpoints.
    input_checksum: Option<String>,
    built_parts: Mutex<HashMap<usize, (PartLocations, PerFile<u64>)>>,
}

impl WorkerPartBuilder<'_> {
    fn split(&self, part: usize) -> Result<&SplitPartition, PipelineError> {
        self.parts.get(part).ok_or_else(|| PipelineError::malformed_command(format!("unknown part {part}")))
    }

    /// Builds a part, or restores it from the checkpoints of an earlier process. Also returns whether the part was
    /// restored.
    fn build_or_restore(
        &self,
        shared: &WorkerContext,
        part: usize,
        split: &SplitPartition,
    ) -> Result<(CompressedPart, bool), PipelineError> {
        let failed = |error| shared.scratch_error(error);
        let kept = self.input_checksum.as_ref().map(|made_of| shared.checkpoints.restore_part(made_of, part));
        if let Some(kept) = kept.transpose().map_err(failed)?.flatten() {
            return Ok((kept, true));
        }
        let made = self.builder.build_part(part, split, shared.cancelled)?;
        let noted = self.input_checksum.as_ref().map(|made_of| shared.checkpoints.record_part(made_of, part, &made));
        noted.transpose().map_err(failed)?;
        Ok((made, false))
    }
}

/// Downloads the duplicate marks and creates the builder of parts.
pub(super) fn prepare_writing<'s>(
    shared: &'s WorkerContext,
    job: WriteTask,
    hello: &AlignerInfo,
    writing: &WriteState<'s>,
) -> Result<(), PipelineError> {
    let Some(store) = shared.slice_store.get() else { return Ok(()) };
    let mut made_of = blake3::Hasher::new();
    made_of.update(&serde_json::to_vec(&job).map_err(|error| PipelineError::malformed_command(error.to_string()))?);
    if let Some(request) = &job.writing.picard_metrics {
        made_of.update(request.fingerprint_text()?.as_bytes());
    }
    let is_bam_alone = job.output_paths == OutputPaths { bam: job.output_paths.bam.clone(), ..OutputPaths::default() };
    let header =
        Header::parse(job.header.as_bytes()).map_err(|error| PipelineError::malformed_command(error.to_string()))?;
    let read_groups = header.read_groups().map_err(|error| PipelineError::malformed_command(error.to_string()))?;
    let options = PartBuilderOptions {
        read_groups: ReadGroups::new(&read_groups)?,
        genome: hello.genome.clone(),
        output_paths: job.output_paths,
        header,
        reference: job.reference,
        scratch: shared.scratch.clone(),
        part_count: job.parts.len(),
        sample: job.sample,
        marking: download_marking(shared, &job.writing, &mut made_of)?,
        writing: job.writing,
    };
    let input_checksum = is_bam_alone.then(|| made_of.finalize().to_hex().to_string());
    let made = WorkerPartBuilder {
        builder: PartBuilder::new(store, options)?,
        parts: job.parts,
        input_checksum,
        built_parts: Mutex::default(),
    };
    let _ = writing.builder.set(made);
    Ok(())
}

/// Downloads the report of the base qualities of all parts, by which the builder changes qualities.
pub(super) fn prepare_recalibration(shared: &WorkerContext, writing: &WriteState) -> Result<(), PipelineError> {
    let Some(maker) = writing.builder.get() else {
        return Err(PipelineError::malformed_command("the head sent base qualities before it sent the duplicates"));
    };
    let mut incoming = shared.connection.download_from_head(&AlignTicket::RecalibrationReport)?;
    let mut report = Vec::new();
    while let Some((batch, _)) = incoming.next_batch()? {
        report.extend_from_slice(bytes_batch::batch_as_bytes(&batch));
    }
    maker.builder.set_recalibration_report(&String::from_utf8_lossy(&report))
}

/// Downloads the duplicate marks, unless the job does not mark duplicates. Adds the marks to `hasher`.
fn download_marking(
    shared: &WorkerContext,
    writing: &WritingOptions,
    hasher: &mut blake3::Hasher,
) -> Result<Option<DuplicateMarks>, PipelineError> {
    if writing.duplicates == DuplicatePolicy::None {
        return Ok(None);
    }
    let verdicts = download_verdicts(shared, &AlignTicket::Duplicates)?;
    verdicts.hash_into(hasher);
    let DownloadedVerdicts { duplicates, optical, members, sets, .. } = verdicts;
    let tells_optical = writing.marking.separates_optical(writing.duplicates);
    Ok(Some(DuplicateMarks {
        duplicates: RecordSet::from_blocks(duplicates),
        optical: tells_optical.then(|| RecordSet::from_blocks(optical)),
        sets: writing.marking.tag_set_members.then(|| DuplicateSets::from_blocks(sets, members)),
        ..DuplicateMarks::default()
    }))
}

/// The duplicate marks that the head has decided, by block.
#[derive(Default)]
struct DownloadedVerdicts {
    representatives: HashMap<BlockId, Vec<u64>>,
    duplicates: HashMap<BlockId, Vec<u64>>,
    optical: HashMap<BlockId, Vec<u64>>,
    members: HashMap<BlockId, Vec<SetMember>>,
    sets: Vec<DuplicateSet>,
}

impl DownloadedVerdicts {
    /// Adds the duplicate marks to a hash.
    fn hash_into(&self, hasher: &mut blake3::Hasher) {
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

fn download_verdicts(shared: &WorkerContext, ticket: &AlignTicket) -> Result<DownloadedVerdicts, PipelineError> {
    let mut incoming = shared.connection.download_from_head(ticket)?;
    let mut verdicts = DownloadedVerdicts::default();
    while let Some((batch, header)) = incoming.next_batch()? {
        let header =
            serde_json::from_slice(&header).map_err(|error| PipelineError::malformed_command(error.to_string()))?;
        let frame = bytes_batch::batch_as_bytes(&batch);
        match header {
            VerdictHeader::Representatives(block) => {
                decompress_marks(frame, verdicts.representatives.entry(block).or_default())
            }
            VerdictHeader::Duplicates(block) => decompress_marks(frame, verdicts.duplicates.entry(block).or_default()),
            VerdictHeader::Optical(block) => decompress_marks(frame, verdicts.optical.entry(block).or_default()),
            VerdictHeader::Members(block) => decompress_marks(frame, verdicts.members.entry(block).or_default()),
            VerdictHeader::Sets => decompress_marks(frame, &mut verdicts.sets),
        }?;
    }
    Ok(verdicts)
}

/// Returns the ranks in a part of those records that the head has requested.
fn rank_part(
    shared: &WorkerContext,
    writing: &WriteState,
    split: &SplitPartition,
) -> Result<RankedPart, PipelineError> {
    let Some(store) = shared.slice_store.get() else {
        return Err(PipelineError::malformed_command("the head requested ranks before it sent the partitions"));
    };
    let wanted = {
        let mut wanted = writing.representatives.lock();
        match &*wanted {
            Some(wanted) => wanted.clone(),
            None => {
                let representatives = download_verdicts(shared, &AlignTicket::Representatives)?.representatives;
                wanted.insert(Arc::new(RecordSet::from_blocks(representatives))).clone()
            }
        }
    };
    rank_wanted_records(&store.runs(split), split, &wanted, shared.cancelled)
        .map_err(|error| shared.scratch_error(error))
}

/// Executes tasks until there are no more: ranks records, builds parts, and copies parts into the output files. Uploads
/// each result to the head.
pub(super) fn run_write_thread(
    shared: &WorkerContext,
    writing: &WriteState,
    tasks: &Receiver<PartTask>,
) -> Result<(), PipelineError> {
    for task in tasks {
        let maker = || {
            writing.builder.get().ok_or_else(|| {
                PipelineError::malformed_command("the head requested parts before it sent the duplicates")
            })
        };
        let (upload, pieces) = match task {
            PartTask::Rank(part, split) => {
                let RankedPart { ranked_records, records } = rank_part(shared, writing, &split)?;
                let found: Vec<[u64; 2]> =
                    ranked_records.into_iter().map(|(record, place)| [record.0, place]).collect();
                (AlignUpload::RankedPart { part, records }, vec![to_buffer(&found)])
            }
            PartTask::Count(part) => {
                let maker = maker()?;
                let report = maker.builder.count_part(maker.split(part)?, shared.cancelled)?;
                (AlignUpload::CountedPart { part }, vec![Buffer::from_vec(report.into_bytes())])
            }
            PartTask::Build(part) => {
                let maker = maker()?;
                let split = maker.split(part)?;
                let (made, from_checkpoint) = maker.build_or_restore(shared, part, split)?;
                let places = (made.locations, made.bytes);
                maker.built_parts.lock().insert(part, places);
                (
                    AlignUpload::WrittenPart { part, bytes: made.bytes, from_checkpoint },
                    vec![Buffer::from_vec(made.report)],
                )
            }
            PartTask::CopyToFiles(part, offset) => {
                let maker = maker()?;
                let made = maker.built_parts.lock().get(&part).cloned();
                let (places, bytes) = made.ok_or_else(|| {
                    PipelineError::malformed_command(format!("this worker did not build part {part}"))
                })?;
                let edges = maker.builder.write_part_to_files(&places, offset)?;
                (AlignUpload::PlacedPart { part, offset, bytes }, edges_to_pieces(edges))
            }
        };
        shared.connection.upload(upload, pieces)?;
    }
    Ok(())
}
