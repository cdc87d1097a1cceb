//! Reads the input files of lanes, cuts their reads into blocks, and feeds the blocks to an aligner or to the spool of
//! a cluster run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow_array::RecordBatch;
use godwit_engines::aligner::{BlockHeader, BlockWriter};
use godwit_files::AtomicSet;
use godwit_formats::fastq::{FastqError, LaneEvent, LaneOptions, LaneReader};
use godwit_model::BlockId;
use godwit_pipeline::PipelineError;
use godwit_pipeline::job_directory::{BlockStart, JobDirectory};
use godwit_pipeline::read_groups::ReadGroupIndexes;

use super::fingerprint::ReadsHasher;
use super::lanes::{Lane, OpenLane};
use super::{AlignOptions, FeedProgress};

/// One lane and the read group of its reads.
pub(super) struct FeedLane {
    pub(super) lane: Lane,
    pub(super) read_group: Option<String>,
    pub(super) read_group_indexes: ReadGroupIndexes,
}

/// A receiver of blocks of reads, one after the other: an aligner process, or the spool of a cluster run.
pub(super) trait BlockSink {
    /// Starts a block. May wait until there is room for it.
    fn start_block(&mut self, header: &BlockHeader) -> Result<(), PipelineError>;

    /// Appends reads to the block.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), PipelineError>;

    /// Ends the block.
    fn end_block(&mut self) -> Result<(), PipelineError>;

    /// Returns whether the sink also accepts a block that was aligned before the job resumed. In a cluster run, the
    /// records of such a block may be lost.
    fn accepts_finished_block(&self, _block: BlockId) -> bool {
        false
    }

    /// Returns whether a block has to be read. `finished` is true if it was aligned before the job resumed.
    fn needs_block(&self, block: BlockId, finished: bool) -> bool {
        !finished || self.accepts_finished_block(block)
    }

    /// Returns whether the sink has received all blocks that it needs.
    fn is_complete(&self) -> bool {
        false
    }

    /// Closes the sink after the last block.
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

/// A feeder of all lanes, one after the other, which reads ahead in the files of the next lane.
pub(super) struct Feeder<'r, W> {
    /// The lanes, with their 0-based numbers.
    pub(super) lanes: Vec<(usize, FeedLane)>,
    pub(super) lane_options: LaneOptions,
    pub(super) sink: W,
    pub(super) options: &'r AlignOptions,
    /// Directory of the reports of fastp.
    pub(super) trim_directory: &'r Path,
    /// Job directory with the blocks that need not be aligned again.
    pub(super) job_directory: &'r JobDirectory,
    /// Totals of the earlier aligner processes of this job.
    pub(super) previous_report: FeedReport,
}

/// Totals over all reads that were fed to the sink.
#[derive(Default)]
pub(super) struct FeedReport {
    pub(super) reads: u64,
    /// Reads in blocks that an earlier process aligned.
    pub(super) resumed_reads: u64,
    /// Blocks that an earlier process aligned.
    pub(super) resumed_blocks: usize,
    /// For each input file that was read to its end: BLAKE3 of its bytes on disk, which may be compressed.
    pub(super) checksums: HashMap<PathBuf, String>,
    /// For each input file that was not read from its start: the offset of the first byte that was read.
    pub(super) start_offsets: HashMap<PathBuf, u64>,
    /// Bytes read from input files, which may be compressed.
    pub(super) bytes: u64,
    /// Records that the aligner returned.
    pub(super) records: u64,
    pub(super) seconds: f64,
    /// Report files of fastp.
    pub(super) trim_reports: AtomicSet,
}

impl<W: BlockSink> Feeder<'_, W> {
    /// Feeds all lanes and closes the sink.
    pub(super) fn run(
        mut self,
        progress: &FeedProgress,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<FeedReport, PipelineError> {
        let started = Instant::now();
        let mut lanes = std::mem::take(&mut self.lanes);
        let mut report = std::mem::take(&mut self.previous_report);
        let mut next = self.open_lane(&mut lanes, 0, cancelled)?;
        for at in 0..lanes.len() {
            let Some(open) = next.take().filter(|_| !self.sink.is_complete()) else { break };
            next = self.open_lane(&mut lanes, at + 1, cancelled)?;
            let (index, lane) = &mut lanes[at];
            let OpenLane { reader, trimmer, start } = self.verify_prefix(open, *index, lane, cancelled)?;
            let fed = self.feed_lane(*index as u16, lane, (reader, start), &mut report, progress, cancelled);
            match trimmer {
                Some(trimming) => trimming.finish(fed, &mut report.trim_reports)?,
                None => fed?,
            }
        }
        self.sink.finish()?;
        report.seconds += started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Opens lane `at` of `lanes`, if it exists. Reading starts at the last known position that is not after any block
    /// that has to be read.
    fn open_lane(
        &self,
        lanes: &mut [(usize, FeedLane)],
        at: usize,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Option<OpenLane>, PipelineError> {
        let Some((index, lane)) = lanes.get_mut(at) else { return Ok(None) };
        let start = self.resume_start(*index as u16)?;
        lane.lane.open(&self.trim_reports(*index), start, &self.lane_options, self.options, cancelled).map(Some)
    }

    /// Returns the path of the reports of fastp on a lane, without the extension.
    fn trim_reports(&self, lane: usize) -> PathBuf {
        let lane = if self.options.lanes.len() > 1 { format!(".L{}", lane + 1) } else { String::new() };
        self.trim_directory.join(format!("{}{lane}.fastp", self.options.sample))
    }

    /// Returns the start of a block at which reading a lane can begin, so that only blocks that are not needed are
    /// skipped; `None` if the lane has to be read from its first block.
    fn resume_start(&self, lane: u16) -> Result<Option<BlockStart>, PipelineError> {
        let block = |ordinal| BlockId { lane, ordinal };
        let find = |last| {
            self.job_directory.latest_block_start(block(last)).map_err(PipelineError::file("read", &self.options.out))
        };
        let Some(latest) = find(BlockId::MAX_BLOCKS)? else { return Ok(None) };
        let needed = |id: &BlockId| self.sink.needs_block(*id, self.job_directory.finished_block(*id).is_some());
        let start = match (0..latest.id.ordinal).map(block).find(needed) {
            Some(first) => find(first.ordinal)?,
            None => Some(latest),
        };
        Ok(start)
    }

    /// Verifies that the files of a lane are unchanged before the position at which reading starts. If they have
    /// changed, the lane is read from its first block, and each block is compared with the aligned one.
    fn verify_prefix(
        &self,
        mut open: OpenLane,
        index: usize,
        lane: &mut FeedLane,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<OpenLane, PipelineError> {
        match open.start.is_some().then(|| open.reader.wait_for_text()) {
            None | Some(Ok(())) => Ok(open),
            Some(Err(FastqError::Changed { .. })) => {
                lane.lane.open(&self.trim_reports(index), None, &self.lane_options, self.options, cancelled)
            }
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Counts the blocks before `start` as resumed. Returns the block at which reading starts and the number of reads
    /// before it.
    fn count_skipped_blocks(
        &self,
        lane: &FeedLane,
        start: Option<BlockStart>,
        index: u16,
        report: &mut FeedReport,
    ) -> (BlockId, u64) {
        let first = BlockId { lane: index, ordinal: 0 };
        let Some(BlockStart { id, first_ordinal, file_positions }) = start else { return (first, 0) };
        let offsets = file_positions.iter().map(|place| place.resume_point.access_point.offset);
        report.start_offsets.extend(lane.lane.files.iter().cloned().zip(offsets));
        report.reads += first_ordinal;
        for ordinal in 0..id.ordinal {
            if let Some(block) = self.job_directory.finished_block(BlockId { ordinal, ..id }) {
                report.resumed_reads += block.reads;
                report.resumed_blocks += 1;
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
        progress: &FeedProgress,
        cancelled: &AtomicBool,
    ) -> Result<(), PipelineError> {
        let (mut id, mut first_ordinal) = self.count_skipped_blocks(lane, start, index, report);
        let (mut open, paired) = (false, reader.is_paired());
        let (bytes_before, mut content) = (report.bytes, ReadsHasher::default());
        while let Some(event) = reader.next()? {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            match event {
                LaneEvent::Reads(batch) => {
                    content.update(&batch);
                    if self.job_directory.finished_block(id).is_some() && !self.sink.accepts_finished_block(id) {
                        continue;
                    }
                    if !open {
                        self.sink.start_block(&lane.block_header(id, first_ordinal, paired))?;
                        open = true;
                    }
                    self.sink.write(&batch)?;
                }
                LaneEvent::BlockEnd { reads, .. } => {
                    if self.job_directory.finished_block(id).is_none() {
                        // Store the end of the block before the sink receives the block completely: after that, the
                        // aligner can return its records.
                        let end = bytes_before + reader.compressed_bytes_returned();
                        progress.block_end_bytes.lock().push_back(end);
                    }
                    self.end_block(id, reads, content.finish(), report)?;
                    // The output of fastp has to be read to its end, even if the sink needs no further blocks.
                    if self.sink.is_complete() && self.options.reads.trim.is_none() {
                        return Ok(());
                    }
                    open = false;
                    first_ordinal += reads;
                    report.reads += reads;
                    id = next_block_id(id)?;
                    self.record_block_start(id, first_ordinal, &mut reader)?;
                }
            }
            report.bytes = bytes_before + reader.compressed_bytes_read();
        }
        // Trimmed reads come from the pipes of fastp, so their checksums are not those of the input files.
        if self.options.reads.trim.is_none() {
            let files = lane.lane.files.iter().cloned().zip(reader.checksums());
            report.checksums.extend(files.filter_map(|(file, checksum)| Some((file, checksum?))));
        }
        Ok(())
    }

    /// Records the positions in the input files at which a later process can start to read block `id`.
    fn record_block_start(
        &self,
        id: BlockId,
        first_ordinal: u64,
        reader: &mut LaneReader,
    ) -> Result<(), PipelineError> {
        let Some(places) = reader.resume_points() else { return Ok(()) };
        let noted = self.job_directory.record_block_start(id, first_ordinal, places);
        noted.map_err(PipelineError::file("write the journal in", &self.options.out))
    }

    /// Ends the current block. If the block was aligned before the job resumed, verifies that its reads are unchanged.
    fn end_block(
        &mut self,
        id: BlockId,
        reads: u64,
        content: String,
        report: &mut FeedReport,
    ) -> Result<(), PipelineError> {
        match self.job_directory.finished_block(id) {
            Some(block) if (block.reads, &block.reads_checksum) == (reads, &content) => {
                report.resumed_reads += reads;
                report.resumed_blocks += 1;
                if self.sink.accepts_finished_block(id) {
                    self.sink.end_block()?;
                }
            }
            Some(_) => {
                let (block, lane) = (id.ordinal + 1, id.lane + 1);
                return Err(reads_changed_error(format!(
                    "reads in block {block} of lane {lane} that differ from the aligned reads"
                )));
            }
            None => {
                if !self.job_directory.record_reads(id, reads, content) {
                    return Err(reads_differ_error(id));
                }
                self.sink.end_block()?;
            }
        }
        Ok(())
    }
}

/// Returns the block after `id`.
fn next_block_id(id: BlockId) -> Result<BlockId, PipelineError> {
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
            read_group_index: self.read_group_indexes.read_group,
            library_index: self.read_group_indexes.library,
        }
    }
}

/// Rejects input files that contain fewer blocks than were aligned before the job resumed.
pub(super) fn check_resumed_blocks(fed: &FeedReport, job_directory: &JobDirectory) -> Result<(), PipelineError> {
    match fed.resumed_blocks < job_directory.finished_counts().0 {
        true => Err(reads_changed_error("fewer reads than the stopped job has aligned".to_owned())),
        false => Ok(()),
    }
}

/// Returns the error for files that differ from those at the start of the job.
fn reads_changed_error(difference: String) -> PipelineError {
    let problem =
        format!("cannot resume: the files have {difference}; give the same files, or omit --resume to start over");
    PipelineError::Options { problem }
}

/// Returns the error for a block that has other reads, or does not exist, when its file is read again.
pub(super) fn reads_differ_error(id: BlockId) -> PipelineError {
    let (block, lane) = (id.ordinal + 1, id.lane + 1);
    let problem = format!(
        "the files of reads changed during the job: the reads of block {block} of lane {lane} differ when they are \
         read again; give files that do not change, and omit --resume to start over"
    );
    PipelineError::Options { problem }
}

/// Returns the size of all input files, bytes; 0 if one of them is a pipe or if fastp trims the reads.
pub(super) fn total_input_bytes(lanes: &[FeedLane], options: &AlignOptions) -> u64 {
    if options.reads.trim.is_some() {
        return 0;
    }
    let sizes = lanes.iter().flat_map(|lane| &lane.lane.files).map(std::fs::metadata);
    sizes.map(|meta| meta.ok().filter(|meta| meta.is_file()).map(|meta| meta.len())).sum::<Option<u64>>().unwrap_or(0)
}
