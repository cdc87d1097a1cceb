//! Lanes to blocks: reads files and feeds the aligner.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use arrow_array::RecordBatch;
use godwit_engines::aligner::{BlockHeader, BlockWriter};
use godwit_formats::fastq::{FastqError, LaneEvent, LaneOptions, LaneReader};
use godwit_model::BlockId;

use super::identity::ReadsHasher;
use super::lanes::{Lane, OpenLane};
use super::{AlignOptions, SharedProgress};
use crate::error::PipelineError;
use crate::read_groups::Membership;
use crate::run_directory::{BlockStart, RunDirectory};
use crate::staging::Staged;

/// One lane and what its reads belong to.
pub(super) struct FeedLane {
    pub(super) lane: Lane,
    pub(super) read_group: Option<String>,
    pub(super) membership: Membership,
}

/// Where blocks of reads go, one after the other.
pub(super) trait BlockSink {
    /// Starts a block. May wait until there is room for it.
    fn start_block(&mut self, header: &BlockHeader) -> Result<(), PipelineError>;

    /// Takes reads of the block.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), PipelineError>;

    /// Ends the block.
    fn end_block(&mut self) -> Result<(), PipelineError>;

    /// Whether it takes a block that was aligned before: what came of it may be gone.
    fn takes_again(&self, _block: BlockId) -> bool {
        false
    }

    /// Whether a block has to be read, which is finished or not.
    fn needs(&self, block: BlockId, finished: bool) -> bool {
        !finished || self.takes_again(block)
    }

    /// Whether it has everything it wants.
    fn has_all(&self) -> bool {
        false
    }

    /// There are no more blocks.
    fn finish(self) -> Result<(), PipelineError>;
}

impl BlockSink for BlockWriter {
    fn start_block(&mut self, header: &BlockHeader) -> Result<(), PipelineError> {
        Ok(Self::start_block(self, header)?)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), PipelineError> {
        Ok(Self::write(self, batch)?)
    }

    fn end_block(&mut self) -> Result<(), PipelineError> {
        Ok(Self::end_block(self)?)
    }

    fn finish(self) -> Result<(), PipelineError> {
        Ok(Self::finish(self)?)
    }
}

/// Feeds all lanes, one after the other; the files of the next lane are read ahead meanwhile.
pub(super) struct Feeder<'r, W> {
    /// With their numbers.
    pub(super) lanes: Vec<(usize, FeedLane)>,
    pub(super) lane_options: LaneOptions,
    pub(super) writer: W,
    pub(super) options: &'r AlignOptions,
    /// Blocks that need not be aligned again.
    pub(super) run: &'r RunDirectory,
    /// What was fed to earlier processes of the aligner.
    pub(super) before: FeedReport,
}

/// What was fed.
#[derive(Default)]
pub(super) struct FeedReport {
    pub(super) reads: u64,
    /// Those of blocks that an earlier process aligned.
    pub(super) reads_before: u64,
    /// Blocks that an earlier process aligned.
    pub(super) blocks_before: usize,
    /// BLAKE3 of each file that was read to its end, as it is on disk.
    pub(super) checksums: HashMap<PathBuf, String>,
    /// Byte of a file from which on it was decompressed, where that was not its start.
    pub(super) read_from: HashMap<PathBuf, u64>,
    /// Bytes of input files.
    pub(super) bytes: u64,
    /// Records that came back.
    pub(super) records: u64,
    pub(super) seconds: f64,
    /// Reports of what the reads came through.
    pub(super) reports: Staged,
}

impl<W: BlockSink> Feeder<'_, W> {
    /// Feeds everything and closes the aligner's input.
    pub(super) fn run(
        mut self,
        progress: &SharedProgress,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<FeedReport, PipelineError> {
        let started = Instant::now();
        let mut lanes = std::mem::take(&mut self.lanes);
        let mut report = std::mem::take(&mut self.before);
        let mut next = self.open(&mut lanes, 0, cancelled)?;
        for at in 0..lanes.len() {
            let Some(open) = next.take().filter(|_| !self.writer.has_all()) else { break };
            next = self.open(&mut lanes, at + 1, cancelled)?;
            let (index, lane) = &mut lanes[at];
            let OpenLane { reader, trimming, start } = self.compared(open, *index, lane, cancelled)?;
            let fed = self.feed_lane(*index as u16, lane, (reader, start), &mut report, progress, cancelled);
            match trimming {
                Some(trimming) => trimming.finish(fed, &mut report.reports)?,
                None => fed?,
            }
        }
        self.writer.finish()?;
        report.seconds += started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Opens a lane, if there is one there, at the last known start before all blocks that have to be read.
    fn open(
        &self,
        lanes: &mut [(usize, FeedLane)],
        at: usize,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Option<OpenLane>, PipelineError> {
        let Some((index, lane)) = lanes.get_mut(at) else { return Ok(None) };
        let start = self.start_of(*index as u16)?;
        lane.lane.open(*index, start, &self.lane_options, self.options, cancelled).map(Some)
    }

    /// Where reading a lane can begin, so that only blocks are left out that nobody needs.
    fn start_of(&self, lane: u16) -> Result<Option<BlockStart>, PipelineError> {
        let block = |ordinal| BlockId { lane, ordinal };
        let find = |last| self.run.block_start(block(last)).map_err(PipelineError::file("read", &self.options.out));
        let Some(latest) = find(BlockId::MAX_BLOCKS)? else { return Ok(None) };
        let needed = |id: &BlockId| self.writer.needs(*id, self.run.finished_block(*id).is_some());
        let start = match (0..latest.id.ordinal).map(block).find(needed) {
            Some(first) => find(first.ordinal)?,
            None => Some(latest),
        };
        Ok(start)
    }

    /// A lane whose files before its start are what they were; otherwise it is read from its first block on, and each block
    /// compared.
    fn compared(
        &self,
        mut open: OpenLane,
        index: usize,
        lane: &mut FeedLane,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<OpenLane, PipelineError> {
        match open.start.is_some().then(|| open.reader.begin()) {
            None | Some(Ok(())) => Ok(open),
            Some(Err(FastqError::Changed { .. })) => {
                lane.lane.open(index, None, &self.lane_options, self.options, cancelled)
            }
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Counts the blocks before a start as compared. Returns the start, or that of the lane.
    fn begin(&self, lane: &FeedLane, start: Option<BlockStart>, index: u16, report: &mut FeedReport) -> (BlockId, u64) {
        let first = BlockId { lane: index, ordinal: 0 };
        let Some(BlockStart { id, first_ordinal, places }) = start else { return (first, 0) };
        let offsets = places.iter().map(|place| place.start.point.offset);
        report.read_from.extend(lane.lane.files.iter().cloned().zip(offsets));
        report.reads += first_ordinal;
        for ordinal in 0..id.ordinal {
            if let Some(block) = self.run.finished_block(BlockId { ordinal, ..id }) {
                report.reads_before += block.reads;
                report.blocks_before += 1;
            }
        }
        (id, first_ordinal)
    }

    fn feed_lane(
        &mut self,
        index: u16,
        lane: &FeedLane,
        (mut reader, start): (LaneReader, Option<BlockStart>),
        report: &mut FeedReport,
        progress: &SharedProgress,
        cancelled: &AtomicBool,
    ) -> Result<(), PipelineError> {
        let (mut id, mut first_ordinal) = self.begin(lane, start, index, report);
        let (mut open, paired) = (false, reader.is_paired());
        let (bytes_before, mut content) = (report.bytes, ReadsHasher::default());
        while let Some(event) = reader.next()? {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            match event {
                LaneEvent::Reads(batch) => {
                    content.update(&batch);
                    if self.run.finished_block(id).is_some() && !self.writer.takes_again(id) {
                        continue;
                    }
                    if !open {
                        self.writer.start_block(&lane.block_header(id, first_ordinal, paired))?;
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
                    // Reads that come through a program have to come to their end.
                    if self.writer.has_all() && self.options.reads.trim.is_none() {
                        return Ok(());
                    }
                    open = false;
                    first_ordinal += reads;
                    report.reads += reads;
                    id = next_block(id)?;
                    self.note_start(id, first_ordinal, &mut reader)?;
                }
            }
            report.bytes = bytes_before + reader.compressed_bytes_read();
        }
        // What is trimmed is read from pipes, not from the files.
        if self.options.reads.trim.is_none() {
            let files = lane.lane.files.iter().cloned().zip(reader.checksums());
            report.checksums.extend(files.filter_map(|(file, checksum)| Some((file, checksum?))));
        }
        Ok(())
    }

    /// Notes where a later process can begin.
    fn note_start(&self, id: BlockId, first_ordinal: u64, reader: &mut LaneReader) -> Result<(), PipelineError> {
        let Some(places) = reader.places() else { return Ok(()) };
        let noted = self.run.note_block_start(id, first_ordinal, places);
        noted.map_err(PipelineError::file("write the journal in", &self.options.out))
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
                if self.writer.takes_again(id) {
                    self.writer.end_block()?;
                }
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

/// The block behind one.
fn next_block(id: BlockId) -> Result<BlockId, PipelineError> {
    let ordinal = id.ordinal + 1;
    if ordinal == BlockId::MAX_BLOCKS {
        return Err(PipelineError::Options { problem: "a lane has too many blocks; raise --block-bases".into() });
    }
    Ok(BlockId { ordinal, ..id })
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

/// Refuses files that hold less than what was aligned of them before.
pub(super) fn check_kept(fed: &FeedReport, run: &RunDirectory) -> Result<(), PipelineError> {
    match fed.blocks_before < run.finished().0 {
        true => Err(other_reads("fewer blocks than were aligned".to_owned())),
        false => Ok(()),
    }
}

/// The files are not those that the run began with.
fn other_reads(difference: String) -> PipelineError {
    let problem =
        format!("cannot resume: the files have {difference}; give the same files, or leave out --resume to start over");
    PipelineError::Options { problem }
}

/// Size of all input files; 0 where one of them is a pipe, or a trimmer reads them.
pub(super) fn input_bytes(lanes: &[FeedLane], options: &AlignOptions) -> u64 {
    if options.reads.trim.is_some() {
        return 0;
    }
    let sizes = lanes.iter().flat_map(|lane| &lane.lane.files).map(std::fs::metadata);
    sizes.map(|meta| meta.ok().filter(|meta| meta.is_file()).map(|meta| meta.len())).sum::<Option<u64>>().unwrap_or(0)
}
