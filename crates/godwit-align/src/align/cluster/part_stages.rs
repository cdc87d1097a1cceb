//! The stages of a cluster run in which workers process every part of the output: ranks of records, base qualities, and
//! the output files.

use std::collections::{BTreeMap, BTreeSet};

use arrow_buffer::MutableBuffer;
use godwit_exchange::{PerFile, ShuffleEvent, WorkerId};
use godwit_model::RecordId;
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::partitioned_file::PartExtent;
use godwit_pipeline::reduce::{OutputAssembler, RankedPart};
use godwit_pipeline::runs::SplitPartition;
use godwit_recalibrate::RecalibrationCounts;

use super::AlignHead;
use crate::align_messages::{AlignCommand, AlignUpload, edges_from_pieces};

/// A stage in which workers process every part of the output.
pub(super) trait PartStage {
    /// Assigns a part to a worker.
    fn assign_part(&mut self, head: &mut AlignHead, worker: WorkerId, part: usize) -> Result<(), PipelineError>;

    /// Commands a worker to copy a part that it has written into the output files, at `offset`. Stages that write no files
    /// have nothing to copy: their parts are placed at once.
    fn assign_placement(&mut self, head: &mut AlignHead, worker: WorkerId, part: usize, _offset: PerFile<u64>) {
        head.apply_event(ShuffleEvent::PartPlaced(worker, part));
    }

    /// Handles the result that a worker uploaded for a part.
    fn take_upload(
        &mut self,
        head: &mut AlignHead,
        worker: WorkerId,
        upload: AlignUpload,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError>;
}

/// The stage in which workers write parts of the output and copy them into the output files.
pub(super) struct WriteStage<'c> {
    pub(super) observer: &'c dyn Observer,
    pub(super) assembler: OutputAssembler<'c>,
    pub(super) placed_parts: usize,
    /// Number of parts that workers had already written for an earlier head.
    pub(super) resumed_parts: usize,
    pub(super) part_count: usize,
}

impl PartStage for WriteStage<'_> {
    fn assign_part(&mut self, head: &mut AlignHead, worker: WorkerId, part: usize) -> Result<(), PipelineError> {
        head.worker_pool.send_command(worker, &AlignCommand::WritePart { part });
        Ok(())
    }

    fn assign_placement(&mut self, head: &mut AlignHead, worker: WorkerId, part: usize, offset: PerFile<u64>) {
        let header_bytes = self.assembler.header_bytes();
        let offset = offset.sum(header_bytes);
        head.worker_pool.send_command(worker, &AlignCommand::PlacePart { part, offset });
    }

    fn take_upload(
        &mut self,
        head: &mut AlignHead,
        worker: WorkerId,
        upload: AlignUpload,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError> {
        match (upload, pieces) {
            (AlignUpload::WrittenPart { part, bytes, from_checkpoint }, [report]) => {
                self.resumed_parts += usize::from(from_checkpoint);
                self.assembler.add_report(part, report)?;
                head.apply_event(ShuffleEvent::PartWritten(worker, part, bytes));
            }
            (AlignUpload::PlacedPart { part, offset, bytes }, pieces) => {
                let malformed =
                    || head.worker_pool.protocol_error(worker, format!("part {part} was placed without data"));
                let edges = edges_from_pieces(pieces).ok_or_else(malformed)?;
                let extents = offset.zip(bytes).map(|(offset, bytes)| PartExtent { offset, bytes });
                self.assembler.add_placed_part(part, extents, edges)?;
                self.placed_parts += 1;
                self.observer.event(&Event::Written { partitions: self.placed_parts, total: self.part_count });
                head.apply_event(ShuffleEvent::PartPlaced(worker, part));
            }
            // Another worker has counted the same part before.
            (AlignUpload::CountedPart { .. }, _) => {}
            (upload, _) => {
                return Err(head.worker_pool.protocol_error(worker, format!("{upload:?} has no data")).into());
            }
        }
        Ok(())
    }
}

/// The stage in which workers find the ranks of records in the sorted file, part by part.
pub(super) struct RankStage {
    parts: Vec<SplitPartition>,
    pub(super) ranked_parts: BTreeMap<usize, RankedPart>,
}

impl RankStage {
    pub(super) fn new(parts: Vec<SplitPartition>) -> Self {
        Self { parts, ranked_parts: BTreeMap::new() }
    }
}

impl PartStage for RankStage {
    fn assign_part(&mut self, head: &mut AlignHead, worker: WorkerId, part: usize) -> Result<(), PipelineError> {
        let records = Box::new(self.parts[part]);
        head.worker_pool.send_command(worker, &AlignCommand::RankRecords { part, records });
        Ok(())
    }

    fn take_upload(
        &mut self,
        head: &mut AlignHead,
        worker: WorkerId,
        upload: AlignUpload,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError> {
        let (AlignUpload::RankedPart { part, records }, [found]) = (&upload, pieces) else {
            return Err(head.worker_pool.protocol_error(worker, format!("{upload:?} has no data")).into());
        };
        let found = found.as_slice().chunks_exact(size_of::<[u64; 2]>()).map(bytemuck::pod_read_unaligned::<[u64; 2]>);
        let ranked_records = found.map(|[record, place]| (RecordId(record), place)).collect();
        self.ranked_parts.insert(*part, RankedPart { ranked_records, records: *records });
        head.apply_event(ShuffleEvent::PartWritten(worker, *part, PerFile::default()));
        Ok(())
    }
}

/// The stage in which workers count the base qualities of each part.
#[derive(Default)]
pub(super) struct CountStage {
    pub(super) counts: RecalibrationCounts,
    counted_parts: BTreeSet<usize>,
}

impl PartStage for CountStage {
    fn assign_part(&mut self, head: &mut AlignHead, worker: WorkerId, part: usize) -> Result<(), PipelineError> {
        head.worker_pool.send_command(worker, &AlignCommand::CountBases { part });
        Ok(())
    }

    fn take_upload(
        &mut self,
        head: &mut AlignHead,
        worker: WorkerId,
        upload: AlignUpload,
        pieces: &[MutableBuffer],
    ) -> Result<(), PipelineError> {
        let (AlignUpload::CountedPart { part }, [report]) = (&upload, pieces) else {
            return Err(head.worker_pool.protocol_error(worker, format!("{upload:?} has no data")).into());
        };
        // A lost worker and its replacement may both count a part.
        if self.counted_parts.insert(*part) {
            let added = self.counts.add_report(&String::from_utf8_lossy(report));
            added.map_err(|error| head.worker_pool.protocol_error(worker, error.to_string()))?;
        }
        head.apply_event(ShuffleEvent::PartWritten(worker, *part, PerFile::default()));
        Ok(())
    }
}
