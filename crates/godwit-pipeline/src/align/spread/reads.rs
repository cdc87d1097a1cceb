//! Reads on their way from the files to the nodes: each block is a scratch file until two nodes hold what came of it; to the
//! end of the run where reads come through pipes, which nobody can read again.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use godwit_engines::aligner::BlockHeader;
use godwit_engines::stream::{StreamReader, StreamWriter};
use godwit_exchange::{Item, Shelf, Ticket, bytes_batch};
use godwit_kernels::markdup::{Marking, Verdicts};
use godwit_model::{BlockId, schema};

use super::super::feed::BlockSink;
use crate::error::PipelineError;
use crate::node::VerdictHeader;

/// Bytes written to a scratch file at a time.
const WRITE_BYTES: usize = 1 << 20;
/// Verdicts in a batch, of 8 or 16 bytes each.
const VERDICTS: usize = 1 << 17;

/// What the head hands out: reads, and later the verdicts.
pub(in crate::align) struct ReadsSpool {
    directory: PathBuf,
    /// Lanes that can be read but once: their blocks are kept to the end.
    kept: BTreeSet<u16>,
    representatives: OnceLock<Verdicts>,
    verdicts: OnceLock<Marking>,
    /// Blocks that wait for a node.
    waiting: Mutex<usize>,
    taken: Condvar,
}

impl ReadsSpool {
    /// Blocks go to files in that directory.
    pub(in crate::align) fn new(directory: PathBuf, kept: BTreeSet<u16>) -> Self {
        let (representatives, verdicts) = (OnceLock::new(), OnceLock::new());
        Self { directory, kept, representatives, verdicts, waiting: Mutex::default(), taken: Condvar::new() }
    }

    /// Whether the reads of a block that stays are here by now.
    pub(super) fn has(&self, block: BlockId) -> bool {
        self.path(block).exists()
    }

    fn path(&self, block: BlockId) -> PathBuf {
        self.directory.join(format!("reads-{}-{}", block.lane, block.ordinal))
    }

    /// Forgets the reads of a block, unless they cannot be had again.
    pub(super) fn release(&self, block: BlockId) {
        if !self.keeps(block) {
            // Whoever still reads them keeps them.
            let _ = fs::remove_file(self.path(block));
        }
    }

    /// Whether the reads of a block are here to the end.
    pub(super) fn keeps(&self, block: BlockId) -> bool {
        self.kept.contains(&block.lane)
    }

    /// Says how many blocks wait for a node, so that no more are read ahead than need be.
    pub(super) fn set_waiting(&self, blocks: usize) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = blocks;
        self.taken.notify_all();
    }

    /// Waits until fewer than `most` blocks wait for a node.
    fn wait_for_room(&self, most: usize, cancelled: &AtomicBool) -> Result<(), PipelineError> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while *waiting >= most {
            if cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            let woken = self.taken.wait_timeout(waiting, Duration::from_millis(100));
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *waiting += 1;
        Ok(())
    }

    /// From here on it can be had which records are looked for.
    pub(super) fn set_representatives(&self, representatives: Verdicts) {
        let _ = self.representatives.set(representatives);
    }

    /// From here on the verdicts can be had.
    pub(super) fn set_verdicts(&self, marking: Marking) {
        let _ = self.verdicts.set(marking);
    }

    fn representative_batches(&self) -> io::Result<Vec<Told>> {
        let representatives = self.representatives.get().ok_or(io::ErrorKind::NotFound)?;
        let mut batches = Vec::new();
        for (block, words) in representatives.blocks() {
            tell(&mut batches, VerdictHeader::Representatives(block), words)?;
        }
        Ok(batches)
    }

    fn verdict_batches(&self) -> io::Result<Vec<Told>> {
        let Marking { duplicates, optical, sets, .. } = self.verdicts.get().ok_or(io::ErrorKind::NotFound)?;
        let mut batches = Vec::new();
        for (block, words) in duplicates.blocks() {
            tell(&mut batches, VerdictHeader::Duplicates(block), words)?;
        }
        for (block, words) in optical.iter().flat_map(Verdicts::blocks) {
            tell(&mut batches, VerdictHeader::Optical(block), words)?;
        }
        if let Some(sets) = sets {
            tell(&mut batches, VerdictHeader::Sets, sets.sets())?;
            for (block, members) in sets.blocks() {
                tell(&mut batches, VerdictHeader::Members(block), members)?;
            }
        }
        Ok(batches)
    }
}

/// A batch on its way to a node, and what is said beside it.
type Told = io::Result<(RecordBatch, Bytes)>;

/// Appends plain items, cut into batches.
fn tell<T: bytemuck::NoUninit>(batches: &mut Vec<Told>, header: VerdictHeader, items: &[T]) -> io::Result<()> {
    let header = Bytes::from(serde_json::to_vec(&header)?);
    for items in items.chunks(VERDICTS) {
        let bytes = bytemuck::cast_slice::<T, u8>(items).to_vec();
        batches.push(Ok((bytes_batch::of_bytes(bytes), header.clone())));
    }
    Ok(())
}

impl Drop for ReadsSpool {
    fn drop(&mut self) {
        // What is left is removed by the next run into the same directory.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Shelf for ReadsSpool {
    fn open(&self, ticket: &Ticket) -> io::Result<Item> {
        match ticket {
            Ticket::Reads { block } => {
                let mut stream =
                    StreamReader::new(BufReader::with_capacity(WRITE_BYTES, File::open(self.path(*block))?));
                let schema = stream.next_stream().map_err(io::Error::other)?;
                let schema = schema.ok_or(io::ErrorKind::UnexpectedEof)?;
                let batches = std::iter::from_fn(move || stream.next_batch().map_err(io::Error::other).transpose());
                Ok(Item { schema, batches: Box::new(batches.map(|batch| Ok((batch?, Bytes::new())))) })
            }
            Ticket::Representatives | Ticket::Verdicts => {
                let batches = match ticket {
                    Ticket::Representatives => self.representative_batches()?,
                    _ => self.verdict_batches()?,
                };
                Ok(Item { schema: bytes_batch::schema(), batches: Box::new(batches.into_iter()) })
            }
            Ticket::Slices { .. } | Ticket::Frame { .. } => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the head of a run that aligns keeps blocks alone"))
            }
        }
    }
}

/// What the feeding thread tells the head.
pub(super) enum Fed {
    Block(BlockId),
}

/// Blocks that have to be aligned.
pub(in crate::align) enum Wanted {
    /// All but those that nodes have from before.
    AllBut(BTreeSet<BlockId>),
    /// Those that nobody has any more, each once.
    Only(BTreeSet<BlockId>),
}

/// Writes blocks to the spool.
pub(in crate::align) struct SpoolSink<'s> {
    pub(super) spool: &'s ReadsSpool,
    pub(super) fed: Sender<Fed>,
    pub(super) cancelled: &'s AtomicBool,
    /// Blocks that may wait for a node.
    pub(super) ahead: usize,
    /// Which blocks it is about.
    pub(super) wanted: Wanted,
    pub(super) open: Option<(BlockId, StreamWriter<BufWriter<File>>)>,
}

impl SpoolSink<'_> {
    fn failed(&self) -> impl FnOnce(io::Error) -> PipelineError + use<> {
        PipelineError::file("use scratch space in", self.spool.directory.clone())
    }
}

impl BlockSink for SpoolSink<'_> {
    fn start_block(&mut self, header: &BlockHeader) -> Result<(), PipelineError> {
        match &self.wanted {
            Wanted::Only(blocks) if !blocks.contains(&header.id) => return Ok(()),
            Wanted::Only(_) => {}
            Wanted::AllBut(_) => self.spool.wait_for_room(self.ahead, self.cancelled)?,
        }
        let path = self.spool.path(header.id);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = BufWriter::with_capacity(WRITE_BYTES, file.map_err(self.failed())?);
        let stream = StreamWriter::start(file, &schema::reads(), header.to_metadata()).map_err(self.failed())?;
        self.open = Some((header.id, stream));
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), PipelineError> {
        let failed = self.failed();
        self.open.as_mut().map_or(Ok(()), |(_, stream)| stream.write(batch)).map_err(failed)
    }

    fn end_block(&mut self) -> Result<(), PipelineError> {
        let Some((block, stream)) = self.open.take() else { return Ok(()) };
        stream.finish().map_err(self.failed())?;
        if let Wanted::Only(blocks) = &mut self.wanted {
            blocks.remove(&block);
        }
        // Where the head is gone, nobody needs them.
        let _ = self.fed.send(Fed::Block(block));
        Ok(())
    }

    fn takes_again(&self, block: BlockId) -> bool {
        match &self.wanted {
            Wanted::AllBut(blocks) => !blocks.contains(&block),
            Wanted::Only(blocks) => blocks.contains(&block),
        }
    }

    fn needs(&self, block: BlockId, finished: bool) -> bool {
        match &self.wanted {
            Wanted::AllBut(_) => !finished || self.takes_again(block),
            Wanted::Only(blocks) => blocks.contains(&block),
        }
    }

    fn has_all(&self) -> bool {
        matches!(&self.wanted, Wanted::Only(blocks) if blocks.is_empty())
    }

    fn finish(self) -> Result<(), PipelineError> {
        Ok(())
    }
}
