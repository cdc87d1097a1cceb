//! Lanes to blocks: reads files and feeds the aligner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_engines::aligner::{BlockHeader, BlockWriter};
use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
use godwit_model::BlockId;

use super::lanes::{Lane, OpenLane};
use super::{AlignOptions, SharedProgress};
use crate::error::PipelineError;
use crate::read_groups::Membership;
use crate::staging::Staged;

/// One lane and what its reads belong to.
pub(super) struct FeedLane {
    pub(super) lane: Lane,
    pub(super) read_group: Option<String>,
    pub(super) membership: Membership,
}

/// Feeds all lanes, one after the other; the files of the next lane are read ahead meanwhile.
pub(super) struct Feeder<'o> {
    pub(super) lanes: Vec<FeedLane>,
    pub(super) lane_options: LaneOptions,
    pub(super) writer: BlockWriter,
    pub(super) options: &'o AlignOptions,
}

/// What was fed.
#[derive(Default)]
pub(super) struct FeedReport {
    pub(super) reads: u64,
    /// Bytes of input files.
    pub(super) bytes: u64,
    /// Records that came back.
    pub(super) records: u64,
    pub(super) seconds: f64,
    /// Reports of what the reads came through.
    pub(super) reports: Staged,
}

impl Feeder<'_> {
    /// Feeds everything and closes the aligner's input.
    pub(super) fn run(
        mut self,
        progress: &SharedProgress,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<FeedReport, PipelineError> {
        let started = Instant::now();
        let mut lanes = std::mem::take(&mut self.lanes);
        let total = input_bytes(&lanes);
        progress.bytes_total.store(total, Ordering::Relaxed);
        let mut report = FeedReport::default();
        let mut next = self.open(&mut lanes, 0, cancelled)?;
        for index in 0..lanes.len() {
            let Some(OpenLane { reader, trimming }) = next.take() else { break };
            next = self.open(&mut lanes, index + 1, cancelled)?;
            let fed = self.feed_lane(index as u16, &lanes[index], reader, &mut report, progress, cancelled);
            match trimming {
                Some(trimming) => trimming.finish(fed, &mut report.reports)?,
                None => fed?,
            }
        }
        self.writer.finish()?;
        report.seconds = started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Opens a lane, if there is one of that index.
    fn open(
        &self,
        lanes: &mut [FeedLane],
        index: usize,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Option<OpenLane>, PipelineError> {
        let lane = lanes.get_mut(index);
        lane.map(|lane| lane.lane.open(index, &self.lane_options, self.options, cancelled)).transpose()
    }

    fn feed_lane(
        &mut self,
        index: u16,
        lane: &FeedLane,
        mut reader: LaneReader,
        report: &mut FeedReport,
        progress: &SharedProgress,
        cancelled: &AtomicBool,
    ) -> Result<(), PipelineError> {
        let mut id = BlockId { lane: index, ordinal: 0 };
        let (mut first_ordinal, mut open, paired) = (0, false, reader.is_paired());
        let bytes_before = report.bytes;
        while let Some(event) = reader.next()? {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            match event {
                LaneEvent::Reads(batch) => {
                    if !open {
                        self.writer.start_block(&lane.block_header(id, first_ordinal, paired))?;
                        open = true;
                    }
                    self.writer.write(&batch)?;
                }
                LaneEvent::BlockEnd { reads, .. } => {
                    self.writer.end_block()?;
                    open = false;
                    first_ordinal += reads;
                    report.reads += reads;
                    id.ordinal += 1;
                    if id.ordinal == BlockId::MAX_BLOCKS {
                        return Err(PipelineError::Options {
                            problem: "a lane has too many blocks; raise --block-bases".into(),
                        });
                    }
                }
            }
            report.bytes = bytes_before + reader.compressed_bytes_read();
            progress.reads_fed.store(report.reads, Ordering::Relaxed);
            progress.bytes_read.store(report.bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl FeedLane {
    fn block_header(&self, id: BlockId, first_ordinal: u64, paired: bool) -> BlockHeader {
        BlockHeader {
            id,
            first_ordinal,
            paired,
            read_group: self.read_group.clone(),
            read_group_index: self.membership.read_group,
            library_index: self.membership.library,
        }
    }
}

/// Size of all input files, 0 where one of them is a pipe.
fn input_bytes(lanes: &[FeedLane]) -> u64 {
    let sizes = lanes.iter().flat_map(|lane| &lane.lane.files).map(std::fs::metadata);
    sizes.map(|meta| meta.ok().filter(|meta| meta.is_file()).map(|meta| meta.len())).sum::<Option<u64>>().unwrap_or(0)
}
