//! Scratch files of reads that workers download, one file per block. The file of a block is removed when two workers
//! hold its slices. Reads of pipes stay until the end of the job, because a pipe cannot be read again.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use godwit_cluster::{DownloadBatches, DownloadSource, bytes_batch};
use godwit_engines::aligner::BlockHeader;
use godwit_engines::stream::{StreamReader, StreamWriter};
use godwit_kernels::markdup::{DuplicateMarks, RecordSet};
use godwit_model::{BlockId, schema};
use godwit_pipeline::PipelineError;
use parking_lot::{Condvar, Mutex};

use super::super::feed::{BlockSink, reads_differ_error};
use crate::align_messages::{AlignTicket, MAX_MARKS_PER_BATCH, VerdictHeader, compress_marks};

/// Size of the write buffer of a scratch file, bytes.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of the report of base qualities in a record batch.
const REPORT_BYTES_PER_BATCH: usize = 1 << 20;

/// The data that workers can download from the head: reads of blocks, and later the duplicate marks.
pub(in crate::align) struct ReadsSpool {
    directory: PathBuf,
    /// 0-based numbers of the lanes that can be read only once; their blocks stay until the end of the job.
    retained_lanes: BTreeSet<u16>,
    representatives: OnceLock<Vec<BatchWithHeader>>,
    verdicts: OnceLock<Vec<BatchWithHeader>>,
    recalibration_report: OnceLock<String>,
    /// Number of blocks that are not assigned to a worker yet.
    waiting_blocks: Mutex<usize>,
    block_taken: Condvar,
}

impl ReadsSpool {
    /// Returns a spool that keeps blocks as files in `directory`.
    pub(in crate::align) fn new(directory: PathBuf, retained_lanes: BTreeSet<u16>) -> Self {
        let (representatives, verdicts) = (OnceLock::new(), OnceLock::new());
        Self {
            directory,
            retained_lanes,
            representatives,
            verdicts,
            recalibration_report: OnceLock::new(),
            waiting_blocks: Mutex::default(),
            block_taken: Condvar::new(),
        }
    }

    /// Returns whether the file of a block exists in the spool.
    pub(super) fn has_block(&self, block: BlockId) -> bool {
        self.path(block).exists()
    }

    fn path(&self, block: BlockId) -> PathBuf {
        self.directory.join(format!("reads-{}-{}", block.lane, block.ordinal))
    }

    /// Returns the path of the file of a block while it is written. A worker must not download an incomplete file.
    fn incomplete_path(&self, block: BlockId) -> PathBuf {
        self.path(block).with_extension("incomplete")
    }

    /// Removes the file of a block, unless its reads come from a lane that can be read only once.
    pub(super) fn remove_block(&self, block: BlockId) {
        if !self.retains_block(block) {
            // A download that has already opened the file can still read it to its end.
            let _ = fs::remove_file(self.path(block));
        }
    }

    /// Returns whether the reads of a block stay in the spool until the end of the job.
    pub(super) fn retains_block(&self, block: BlockId) -> bool {
        self.retained_lanes.contains(&block.lane)
    }

    /// Sets the number of blocks that are not assigned to a worker yet. The feeding thread stops reading when this
    /// number reaches its maximum.
    pub(super) fn set_waiting_blocks(&self, blocks: usize) {
        *self.waiting_blocks.lock() = blocks;
        self.block_taken.notify_all();
    }

    /// Waits until fewer than `most` blocks wait for a worker, then counts one more block.
    fn wait_for_room(&self, most: usize, cancelled: &AtomicBool) -> Result<(), PipelineError> {
        let mut waiting = self.waiting_blocks.lock();
        while *waiting >= most {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            self.block_taken.wait_for(&mut waiting, Duration::from_millis(100));
        }
        *waiting += 1;
        Ok(())
    }

    /// Makes a list of records available for download; workers search the ranks of these records in the sorted file.
    pub(super) fn set_representatives(&self, representatives: &RecordSet) {
        let mut batches = Vec::new();
        for (block, words) in representatives.blocks() {
            push_batches(&mut batches, VerdictHeader::Representatives(block), words);
        }
        let _ = self.representatives.set(batches);
    }

    /// Makes the duplicate marks available for download. They are compressed once for all workers.
    pub(super) fn set_verdicts(&self, marking: &DuplicateMarks) {
        let DuplicateMarks { duplicates, optical, sets, .. } = marking;
        let mut batches = Vec::new();
        for (block, words) in duplicates.blocks() {
            push_batches(&mut batches, VerdictHeader::Duplicates(block), words);
        }
        for (block, words) in optical.iter().flat_map(RecordSet::blocks) {
            push_batches(&mut batches, VerdictHeader::Optical(block), words);
        }
        if let Some(sets) = sets {
            push_batches(&mut batches, VerdictHeader::Sets, sets.sets());
            for (block, members) in sets.blocks() {
                push_batches(&mut batches, VerdictHeader::Members(block), members);
            }
        }
        let _ = self.verdicts.set(batches);
    }

    /// Makes the report of base qualities available for download.
    pub(super) fn set_recalibration_report(&self, report: String) {
        let _ = self.recalibration_report.set(report);
    }

    fn recalibration_report_batches(&self) -> io::Result<Vec<BatchWithHeader>> {
        let report = self.recalibration_report.get().ok_or(io::ErrorKind::NotFound)?;
        let pieces = report.as_bytes().chunks(REPORT_BYTES_PER_BATCH);
        Ok(pieces.map(|piece| (bytes_batch::batch_from_bytes(piece.to_vec()), Bytes::new())).collect())
    }
}

/// A record batch that workers download, and the header of the message that contains it.
type BatchWithHeader = (RecordBatch, Bytes);

/// Appends `items` as compressed bytes, in batches of at most [`MAX_MARKS_PER_BATCH`] items.
fn push_batches<T: bytemuck::NoUninit>(batches: &mut Vec<BatchWithHeader>, header: VerdictHeader, items: &[T]) {
    let header = Bytes::from(serde_json::to_vec(&header).expect("a block id can be written as JSON"));
    let frames = items.chunks(MAX_MARKS_PER_BATCH).map(compress_marks);
    batches.extend(frames.map(|frame| (bytes_batch::batch_from_bytes(frame), header.clone())));
}

/// Returns a download of batches of bytes.
fn downloaded_bytes(batches: Vec<BatchWithHeader>) -> DownloadBatches {
    DownloadBatches { schema: bytes_batch::schema(), batches: Box::new(batches.into_iter().map(Ok)) }
}

impl Drop for ReadsSpool {
    fn drop(&mut self) {
        // Files that cannot be removed here are removed by the next job in the same directory.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl DownloadSource for ReadsSpool {
    type Ticket = AlignTicket;

    fn open(&self, ticket: &AlignTicket) -> io::Result<DownloadBatches> {
        match ticket {
            AlignTicket::Reads { block } => {
                let mut stream =
                    StreamReader::new(BufReader::with_capacity(WRITE_BYTES, File::open(self.path(*block))?));
                let schema = stream.next_stream().map_err(io::Error::other)?;
                let schema = schema.ok_or(io::ErrorKind::UnexpectedEof)?;
                let batches = std::iter::from_fn(move || stream.next_batch().map_err(io::Error::other).transpose());
                Ok(DownloadBatches { schema, batches: Box::new(batches.map(|batch| Ok((batch?, Bytes::new())))) })
            }
            AlignTicket::Representatives => {
                Ok(downloaded_bytes(self.representatives.get().ok_or(io::ErrorKind::NotFound)?.clone()))
            }
            AlignTicket::Duplicates => {
                Ok(downloaded_bytes(self.verdicts.get().ok_or(io::ErrorKind::NotFound)?.clone()))
            }
            AlignTicket::RecalibrationReport => Ok(downloaded_bytes(self.recalibration_report_batches()?)),
            AlignTicket::Slices { .. } => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the head of an alignment offers only blocks for download"))
            }
        }
    }
}

/// An event that the feeding thread sends to the head.
pub(super) enum FeedEvent {
    BlockWritten(BlockId),
}

/// The blocks that the feeding thread writes to the spool.
pub(in crate::align) enum BlockSelection {
    /// All blocks except these, whose slices workers already hold.
    AllExcept(BTreeSet<BlockId>),
    /// Only these blocks, of which no worker holds the slices any more. A block is removed from the set when it is
    /// written.
    Only(BTreeSet<BlockId>),
}

/// A sink that writes blocks to the spool.
pub(in crate::align) struct SpoolSink<'s> {
    pub(super) spool: &'s ReadsSpool,
    pub(super) events: Sender<FeedEvent>,
    pub(super) cancelled: &'s AtomicBool,
    /// The sink waits while this many blocks are not assigned to a worker.
    pub(super) max_waiting_blocks: usize,
    /// Blocks that this sink writes.
    pub(super) selection: BlockSelection,
    pub(super) open_block: Option<(BlockId, StreamWriter<BufWriter<File>>)>,
}

impl SpoolSink<'_> {
    fn scratch_error(&self) -> impl FnOnce(io::Error) -> PipelineError + use<> {
        PipelineError::file("use scratch space in", self.spool.directory.clone())
    }
}

impl BlockSink for SpoolSink<'_> {
    fn start_block(&mut self, header: &BlockHeader) -> Result<(), PipelineError> {
        match &self.selection {
            BlockSelection::Only(blocks) if !blocks.contains(&header.id) => return Ok(()),
            BlockSelection::Only(_) => {}
            BlockSelection::AllExcept(_) => self.spool.wait_for_room(self.max_waiting_blocks, self.cancelled)?,
        }
        let path = self.spool.incomplete_path(header.id);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = BufWriter::with_capacity(WRITE_BYTES, file.map_err(self.scratch_error())?);
        let stream =
            StreamWriter::start(file, &schema::pipe_reads(), header.to_metadata()).map_err(self.scratch_error())?;
        self.open_block = Some((header.id, stream));
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), PipelineError> {
        let failed = self.scratch_error();
        self.open_block.as_mut().map_or(Ok(()), |(_, stream)| stream.write(batch)).map_err(failed)
    }

    fn end_block(&mut self) -> Result<(), PipelineError> {
        let Some((block, stream)) = self.open_block.take() else { return Ok(()) };
        let renamed =
            stream.finish().and_then(|_| fs::rename(self.spool.incomplete_path(block), self.spool.path(block)));
        renamed.map_err(self.scratch_error())?;
        if let BlockSelection::Only(blocks) = &mut self.selection {
            blocks.remove(&block);
        }
        // Sending fails only if the head has ended, which then does not need the event.
        let _ = self.events.send(FeedEvent::BlockWritten(block));
        Ok(())
    }

    fn accepts_finished_block(&self, block: BlockId) -> bool {
        match &self.selection {
            BlockSelection::AllExcept(blocks) => !blocks.contains(&block),
            BlockSelection::Only(blocks) => blocks.contains(&block),
        }
    }

    fn needs_block(&self, block: BlockId, finished: bool) -> bool {
        match &self.selection {
            BlockSelection::AllExcept(_) => !finished || self.accepts_finished_block(block),
            BlockSelection::Only(blocks) => blocks.contains(&block),
        }
    }

    fn is_complete(&self) -> bool {
        matches!(&self.selection, BlockSelection::Only(blocks) if blocks.is_empty())
    }

    fn finish(self) -> Result<(), PipelineError> {
        match self.selection {
            // Return an error if the files do not contain the block any more, because the head would otherwise wait for
            // it forever.
            BlockSelection::Only(missing) => missing.first().map_or(Ok(()), |block| Err(reads_differ_error(*block))),
            BlockSelection::AllExcept(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_can_be_downloaded_only_when_all_its_reads_are_in_the_spool() {
        let directory = tempfile::tempdir().unwrap();
        let spool = ReadsSpool::new(directory.path().to_owned(), BTreeSet::new());
        let (events, received) = std::sync::mpsc::channel();
        let cancelled = AtomicBool::new(false);
        let selection = BlockSelection::AllExcept(BTreeSet::new());
        let mut sink = SpoolSink {
            spool: &spool,
            events,
            cancelled: &cancelled,
            max_waiting_blocks: 1,
            selection,
            open_block: None,
        };
        let block = BlockId { lane: 0, ordinal: 3 };
        let header = BlockHeader {
            id: block,
            first_ordinal: 0,
            paired: false,
            read_group: None,
            read_group_index: 0,
            library_index: 0,
        };
        sink.start_block(&header).unwrap();
        sink.write(&RecordBatch::new_empty(schema::pipe_reads())).unwrap();
        assert!(!spool.has_block(block) && received.try_recv().is_err());
        sink.end_block().unwrap();
        assert!(spool.has_block(block) && received.try_recv().is_ok());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_block_that_the_files_do_not_contain_any_more_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let spool = ReadsSpool::new(directory.path().to_owned(), BTreeSet::new());
        let (events, _received) = std::sync::mpsc::channel();
        let cancelled = AtomicBool::new(false);
        let finish = |selection| {
            let (spool, cancelled, events) = (&spool, &cancelled, events.clone());
            SpoolSink { spool, events, cancelled, max_waiting_blocks: 0, selection, open_block: None }.finish()
        };
        let block = BlockId { lane: 0, ordinal: 6 };
        assert!(finish(BlockSelection::Only(BTreeSet::new())).is_ok());
        assert!(finish(BlockSelection::AllExcept(BTreeSet::from([block]))).is_ok());
        let error = finish(BlockSelection::Only(BTreeSet::from([block]))).unwrap_err().to_string();
        assert!(error.contains("block 7 of lane 1"), "{error}");
    }
}
