//! Lanes to blocks: reads files and feeds the aligner.

use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_engines::aligner::{BlockHeader, BlockWriter};
use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
use godwit_model::BlockId;

use super::SharedProgress;
use super::identity::ReadsHasher;
use crate::error::PipelineError;
use crate::read_groups::Membership;
use crate::run_directory::RunDirectory;

/// One lane and what its reads belong to.
pub(super) struct FeedLane {
    pub(super) files: Vec<PathBuf>,
    pub(super) read_group: Option<String>,
    pub(super) membership: Membership,
}

/// Feeds all lanes, one after the other; the files of the next lane are read ahead meanwhile.
pub(super) struct Feeder<'r> {
    pub(super) lanes: Vec<FeedLane>,
    pub(super) lane_options: LaneOptions,
    pub(super) writer: BlockWriter,
    /// Blocks that need not be aligned again.
    pub(super) run: &'r RunDirectory,
}

/// What was fed.
#[derive(Default)]
pub(super) struct FeedReport {
    pub(super) reads: u64,
    /// Those of blocks that an earlier process aligned.
    pub(super) reads_before: u64,
    /// Blocks that an earlier process aligned.
    pub(super) blocks_before: usize,
    /// BLAKE3 of each file, lane by lane.
    pub(super) checksums: Vec<Option<String>>,
    /// Bytes of input files.
    pub(super) bytes: u64,
    /// Records that came back.
    pub(super) records: u64,
    pub(super) seconds: f64,
}

impl Feeder<'_> {
    /// Feeds everything and closes the aligner's input.
    pub(super) fn run(
        mut self,
        progress: &SharedProgress,
        cancelled: &AtomicBool,
    ) -> Result<FeedReport, PipelineError> {
        let started = Instant::now();
        let lanes = std::mem::take(&mut self.lanes);
        let total = input_bytes(&lanes);
        progress.bytes_total.store(total, Ordering::Relaxed);
        let mut report = FeedReport::default();
        let mut next = lanes.first().map(|lane| LaneReader::open(&lane.files, &self.lane_options)).transpose()?;
        for (index, lane) in lanes.iter().enumerate() {
            let Some(reader) = next.take() else { break };
            let following = lanes.get(index + 1);
            next = following.map(|lane| LaneReader::open(&lane.files, &self.lane_options)).transpose()?;
            self.feed_lane(index as u16, lane, reader, &mut report, progress, cancelled)?;
        }
        if report.blocks_before < self.run.finished().0 {
            return Err(other_reads("fewer blocks than were aligned".to_owned()));
        }
        self.writer.finish()?;
        report.seconds = started.elapsed().as_secs_f64();
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
        let (bytes_before, mut content) = (report.bytes, ReadsHasher::default());
        while let Some(event) = reader.next()? {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            match event {
                LaneEvent::Reads(batch) => {
                    content.update(&batch);
                    if self.run.finished_block(id).is_some() {
                        continue;
                    }
                    if !open {
                        self.writer.start_block(&lane.block_header(id, first_ordinal))?;
                        open = true;
                    }
                    self.writer.write(&batch)?;
                }
                LaneEvent::BlockEnd { reads, .. } => {
                    if self.run.finished_block(id).is_none() {
                        // Before the block can come back.
                        let end = bytes_before + reader.compressed_bytes_returned();
                        progress.block_ends.lock().unwrap_or_else(PoisonError::into_inner).push_back(end);
                    }
                    self.end_block(id, reads, content.finish(), report)?;
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
        }
        report.checksums.extend(reader.checksums());
        Ok(())
    }

    /// Ends a block that is aligned now, or checks that one aligned before had the same reads.
    fn end_block(
        &mut self,
        id: BlockId,
        reads: u64,
        content: String,
        report: &mut FeedReport,
    ) -> Result<(), PipelineError> {
        match self.run.finished_block(id) {
            Some(block) if (block.reads, &block.content) == (reads, &content) => {
                report.reads_before += reads;
                report.blocks_before += 1;
            }
            Some(_) => {
                let (block, lane) = (id.ordinal + 1, id.lane + 1);
                return Err(other_reads(format!("other reads in block {block} of lane {lane} than were aligned")));
            }
            None => {
                self.run.note_reads(id, reads, content);
                self.writer.end_block()?;
            }
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

/// The files are not those that the run began with.
fn other_reads(difference: String) -> PipelineError {
    let problem =
        format!("cannot resume: the files have {difference}; give the same files, or leave out --resume to start over");
    PipelineError::Options { problem }
}

/// Size of all input files, 0 where one of them is a pipe.
fn input_bytes(lanes: &[FeedLane]) -> u64 {
    let sizes = lanes.iter().flat_map(|lane| &lane.files).map(std::fs::metadata);
    sizes.map(|meta| meta.ok().filter(|meta| meta.is_file()).map(|meta| meta.len())).sum::<Option<u64>>().unwrap_or(0)
}
