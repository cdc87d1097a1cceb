//! A BGZF file from its first block to its last, decompressed on several threads in order.
//!
//! One thread reads the file and cuts it into jobs of whole blocks, workers decompress, the caller receives chunks in
//! the order of the file. Queues are bounded: a reader that is not asked stands still with about two jobs per worker.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use libdeflater::Decompressor;

use super::block::{EOF_BLOCK, block_bytes, inflate};
use super::error::BgzfError;

/// Compressed bytes at which a job ends: some twenty blocks, so that handing over costs little.
const JOB_BYTES: usize = 256 << 10;
/// Most blocks of a job, so that a file of empty blocks is passed over in bounded steps.
const JOB_BLOCKS: usize = 64;
/// Bytes asked of the file at once.
const READ_BYTES: usize = 1 << 20;

/// Whole blocks, with the offsets in the file where they start.
#[derive(Debug, Default)]
struct Job {
    compressed: Vec<u8>,
    blocks: Vec<(u64, usize)>,
}

/// Data of a job, with the offset in the file of its first block.
#[derive(Debug)]
struct Chunk {
    data: Vec<u8>,
    offset: u64,
}

type Inflated = Result<Chunk, BgzfError>;

/// What the reading thread sends on, in order.
enum Piece {
    /// A job whose worker answers here.
    Pending(Receiver<Inflated>),
    /// The file ended; whether its last block was the end-of-file block, and its length.
    End { eof_block: bool, file_bytes: u64 },
    /// It cannot be read on.
    Failed(BgzfError),
}

/// Reads the data of a BGZF file that nobody vouched for: sizes and checksums of every block are checked.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    pieces: Receiver<Piece>,
    /// Buffers on their way back to the workers: fresh memory costs a page fault every 4 KiB.
    spares: Sender<Vec<u8>>,
    chunk: Chunk,
    position: usize,
    end: Option<(bool, u64)>,
    failed: bool,
}

impl Reader {
    /// Opens a file and starts to read ahead with that many decompressing threads, at least one.
    ///
    /// # Errors
    /// [`BgzfError::Io`], [`BgzfError::Thread`]. What is wrong inside the file comes from reading.
    pub fn open(path: &Path, threads: usize) -> Result<Self, BgzfError> {
        let opened = File::open(path);
        let file = opened.map_err(|source| BgzfError::Io { path: path.to_owned(), offset: 0, source })?;
        Self::new(file, path, threads)
    }

    /// Reads from something opened before; `path` names it in errors.
    ///
    /// # Errors
    /// [`BgzfError::Thread`].
    pub fn new(input: impl Read + Send + 'static, path: &Path, threads: usize) -> Result<Self, BgzfError> {
        let threads = threads.max(1);
        let (piece_sender, pieces) = bounded(2 * threads);
        let (job_sender, jobs) = bounded::<(Job, Sender<Inflated>)>(threads);
        let (spares, spares_back) = bounded(2 * threads);
        let spawn =
            |name: &str, work: Box<dyn FnOnce() + Send>| match thread::Builder::new().name(name.into()).spawn(work) {
                Ok(_) => Ok(()),
                Err(_) => Err(BgzfError::Thread { path: path.to_owned() }),
            };
        // The threads are not joined: they end when the queues do, or with the pipe that they wait for.
        for _ in 0..threads {
            let (jobs, spares, path) = (jobs.clone(), spares_back.clone(), path.to_owned());
            spawn("bgzf-inflate", Box::new(move || work(&jobs, &spares, &path)))?;
        }
        let splitter = Splitter::new(Box::new(input), path.to_owned());
        spawn("bgzf-read", Box::new(move || splitter.run(&piece_sender, &job_sender)))?;
        let chunk = Chunk { data: Vec::new(), offset: 0 };
        Ok(Self { path: path.to_owned(), pieces, spares, chunk, position: 0, end: None, failed: false })
    }

    /// Whether the last block of the file was the end-of-file block. Known, and not `None`, after the end was reached.
    pub fn saw_eof_block(&self) -> Option<bool> {
        self.end.map(|(eof_block, _)| eof_block)
    }

    /// The file that is read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset in the compressed file near which the data came from that was read last: good enough for messages.
    pub fn compressed_offset(&self) -> u64 {
        self.end.map_or(self.chunk.offset, |(_, file_bytes)| file_bytes)
    }

    /// Data not consumed yet; empty only at the end of the file.
    ///
    /// # Errors
    /// [`BgzfError`] about the blocks ahead; after one there is no more data.
    pub fn data(&mut self) -> Result<&[u8], BgzfError> {
        while self.position == self.chunk.data.len() && self.end.is_none() && !self.failed {
            self.receive().inspect_err(|_| self.failed = true)?;
        }
        Ok(&self.chunk.data[self.position..])
    }

    /// Passes over data that [`Reader::data`] returned.
    pub fn consume(&mut self, bytes: usize) {
        self.position = (self.position + bytes).min(self.chunk.data.len());
    }

    /// Appends that many bytes to `out`, or as many as there are. Returns their number.
    ///
    /// # Errors
    /// As [`Reader::data`].
    pub fn append_to(&mut self, out: &mut Vec<u8>, bytes: usize) -> Result<usize, BgzfError> {
        let mut missing = bytes;
        while missing > 0 {
            let data = self.data()?;
            if data.is_empty() {
                break;
            }
            let take = data.len().min(missing);
            out.extend_from_slice(&data[..take]);
            self.consume(take);
            missing -= take;
        }
        Ok(bytes - missing)
    }

    /// [`BgzfError::MissingEof`] unless the file ended with its end-of-file block.
    ///
    /// # Errors
    /// That one. Before the end was reached, it counts as missing.
    pub fn require_eof_block(&self) -> Result<(), BgzfError> {
        match self.end {
            Some((true, _)) => Ok(()),
            _ => Err(BgzfError::MissingEof { path: self.path.clone(), offset: self.compressed_offset() }),
        }
    }

    fn receive(&mut self) -> Result<(), BgzfError> {
        let lost = || BgzfError::Thread { path: self.path.clone() };
        match self.pieces.recv().map_err(|_| lost())? {
            Piece::Pending(result) => {
                let chunk = result.recv().map_err(|_| lost())??;
                let spare = std::mem::replace(&mut self.chunk, chunk);
                // A full queue has spares enough.
                drop(self.spares.try_send(spare.data));
                self.position = 0;
            }
            Piece::End { eof_block, file_bytes } => self.end = Some((eof_block, file_bytes)),
            Piece::Failed(error) => return Err(error),
        }
        Ok(())
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let data = self.data().map_err(io::Error::other)?;
        let take = data.len().min(buffer.len());
        buffer[..take].copy_from_slice(&data[..take]);
        self.consume(take);
        Ok(take)
    }
}

/// Decompresses jobs until there are no more.
fn work(jobs: &Receiver<(Job, Sender<Inflated>)>, spares: &Receiver<Vec<u8>>, path: &Path) {
    let mut decompressor = Decompressor::new();
    for (job, answer) in jobs {
        // A reader that was dropped wants no answer; the jobs end by themselves.
        let spare = spares.try_recv().unwrap_or_default();
        drop(answer.send(inflate_job(&mut decompressor, &job, spare, path)));
    }
}

fn inflate_job(decompressor: &mut Decompressor, job: &Job, mut data: Vec<u8>, path: &Path) -> Inflated {
    data.clear();
    let mut compressed = job.compressed.as_slice();
    for (offset, bytes) in &job.blocks {
        let (block, rest) = compressed.split_at(*bytes);
        let corrupt = |detail| BgzfError::Corrupt { path: path.to_owned(), offset: *offset, detail };
        inflate(decompressor, block, &mut data).map_err(corrupt)?;
        compressed = rest;
    }
    Ok(Chunk { data, offset: job.blocks.first().map_or(0, |(offset, _)| *offset) })
}

/// Cuts the file into jobs.
struct Splitter {
    input: Box<dyn Read + Send>,
    path: PathBuf,
    /// Bytes read and not handed on: `buffer[start..]`.
    buffer: Vec<u8>,
    start: usize,
    /// Offset in the file of `buffer[start]`.
    offset: u64,
}

impl Splitter {
    fn new(input: Box<dyn Read + Send>, path: PathBuf) -> Self {
        Self { input, path, buffer: Vec::new(), start: 0, offset: 0 }
    }

    fn run(mut self, pieces: &Sender<Piece>, jobs: &Sender<(Job, Sender<Inflated>)>) {
        let mut eof_block = false;
        loop {
            let mut job = Job::default();
            let more = self.fill(&mut job, &mut eof_block);
            if !job.blocks.is_empty() {
                let (answer, result) = bounded(1);
                // A failed send means that the reader was dropped.
                if pieces.send(Piece::Pending(result)).is_err() || jobs.send((job, answer)).is_err() {
                    return;
                }
            }
            let last = match more {
                Ok(true) => continue,
                Ok(false) => Piece::End { eof_block, file_bytes: self.offset },
                Err(error) => Piece::Failed(error),
            };
            drop(pieces.send(last));
            return;
        }
    }

    /// Collects blocks; false at the end of the file.
    fn fill(&mut self, job: &mut Job, eof_block: &mut bool) -> Result<bool, BgzfError> {
        while job.compressed.len() < JOB_BYTES && job.blocks.len() < JOB_BLOCKS {
            let Some(bytes) = self.next_block_bytes()? else { return Ok(false) };
            let block = &self.buffer[self.start..self.start + bytes];
            *eof_block = block == EOF_BLOCK;
            job.compressed.extend_from_slice(block);
            job.blocks.push((self.offset, bytes));
            self.start += bytes;
            self.offset += bytes as u64;
        }
        Ok(true)
    }

    /// Bytes of the next block, which then lies in the buffer as a whole; `None` at the end of the file.
    fn next_block_bytes(&mut self) -> Result<Option<usize>, BgzfError> {
        let mut needed = 1;
        loop {
            let have = self.read_ahead(needed)?;
            if have == 0 {
                return Ok(None);
            }
            if have < needed {
                return Err(match self.offset {
                    0 if !self.buffer.starts_with(&[0x1f, 0x8b]) => BgzfError::NotBgzf { path: self.path.clone() },
                    offset => BgzfError::Truncated { path: self.path.clone(), offset },
                });
            }
            match block_bytes(&self.buffer[self.start..]) {
                Ok(Some(bytes)) if bytes <= have => return Ok(Some(bytes)),
                Ok(Some(bytes)) | Err(bytes) => needed = bytes,
                Ok(None) if self.offset == 0 => return Err(BgzfError::NotBgzf { path: self.path.clone() }),
                Ok(None) => {
                    let detail = "no block starts where one should";
                    return Err(BgzfError::Corrupt { path: self.path.clone(), offset: self.offset, detail });
                }
            }
        }
    }

    /// Reads until that many bytes lie ahead, or the file ends. Returns the bytes ahead.
    fn read_ahead(&mut self, needed: usize) -> Result<usize, BgzfError> {
        while self.buffer.len() - self.start < needed {
            self.buffer.drain(..self.start);
            self.start = 0;
            let read = self.input.by_ref().take(READ_BYTES as u64).read_to_end(&mut self.buffer);
            let offset = self.offset + self.buffer.len() as u64;
            if read.map_err(|source| BgzfError::Io { path: self.path.clone(), offset, source })? == 0 {
                break;
            }
        }
        Ok(self.buffer.len() - self.start)
    }
}
