//! Lanes to blocks: reads files and feeds the aligner.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_engines::aligner::{BlockHeader, BlockWriter};
use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
use godwit_model::BlockId;

use super::SharedProgress;
use crate::error::PipelineError;
use crate::read_groups::Membership;

/// One lane and what its reads belong to.
pub(super) struct FeedLane {
    pub(super) files: Vec<PathBuf>,
    pub(super) read_group: Option<String>,
    pub(super) membership: Membership,
}

/// Feeds all lanes, one after the other; the files of the next lane are read ahead meanwhile.
pub(super) struct Feeder {
    /// With their numbers.
    pub(super) lanes: Vec<(usize, FeedLane)>,
    pub(super) lane_options: LaneOptions,
    pub(super) writer: BlockWriter,
    /// What was fed to earlier processes.
    pub(super) before: FeedReport,
}

/// What was fed.
#[derive(Clone, Copy, Default)]
pub(super) struct FeedReport {
    pub(super) reads: u64,
    /// Bytes of input files.
    pub(super) bytes: u64,
    /// Records that came back.
    pub(super) records: u64,
    pub(super) seconds: f64,
}

impl Feeder {
    /// Feeds everything and closes the aligner's input.
    pub(super) fn run(
        mut self,
        progress: &SharedProgress,
        cancelled: &AtomicBool,
    ) -> Result<FeedReport, PipelineError> {
        let started = Instant::now();
        let lanes = std::mem::take(&mut self.lanes);
        let mut report = self.before;
        let mut next = lanes.first().map(|(_, lane)| LaneReader::open(&lane.files, &self.lane_options)).transpose()?;
        for (at, (index, lane)) in lanes.iter().enumerate() {
            let Some(reader) = next.take() else { break };
            let following = lanes.get(at + 1);
            next = following.map(|(_, lane)| LaneReader::open(&lane.files, &self.lane_options)).transpose()?;
            self.feed_lane(*index as u16, lane, reader, &mut report, progress, cancelled)?;
        }
        self.writer.finish()?;
        report.seconds += started.elapsed().as_secs_f64();
        Ok(report)
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
        let (mut first_ordinal, mut open) = (0, false);
        let bytes_before = report.bytes;
        while let Some(event) = reader.next()? {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            match event {
                LaneEvent::Reads(batch) => {
                    if !open {
                        self.writer.start_block(&lane.block_header(id, first_ordinal))?;
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
    fn block_header(&self, id: BlockId, first_ordinal: u64) -> BlockHeader {
        BlockHeader {
            id,
            first_ordinal,
            paired: self.files.len() == 2,
            read_group: self.read_group.clone(),
            read_group_index: self.membership.read_group,
            library_index: self.membership.library,
        }
    }
}

/// Size of all input files, 0 where one of them is a pipe.
pub(super) fn input_bytes(lanes: &[FeedLane]) -> u64 {
    let sizes = lanes.iter().flat_map(|lane| &lane.files).map(std::fs::metadata);
    sizes.map(|meta| meta.ok().filter(|meta| meta.is_file()).map(|meta| meta.len())).sum::<Option<u64>>().unwrap_or(0)
}
