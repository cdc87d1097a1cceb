//! A file that is read and decompressed ahead of its reader, on threads of its own, into a bounded queue of chunks.
//!
//! Flows in: a file. Flows out: its text, in order, in chunks of about [`CHUNK_BYTES`], then its end or what is wrong
//! with it. A full queue stops the threads until the reader catches up.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::error::Fault;
use super::gzip;
use super::inflate::{block_ahead, inflate_blocks};
use super::source::{Shared, Source};

/// Bytes of text in one chunk.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Chunks decompressed ahead of the reader, per file; with BGZF two per thread where that is more.
const CHUNKS_AHEAD: usize = 4;

/// First bytes of formats that people name `.fastq.something` and that are not read here.
const UNSUPPORTED: [(&[u8], &str); 4] =
    [(b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ", "xz"), (b"PK\x03\x04", "zip")];

/// What a file may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    /// BGZF and nothing else, ended by its end-of-file block.
    Bgzf,
    /// Plain text, gzip or BGZF, and blocks followed by other gzip members, all told apart by content.
    Text {
        /// Accept BGZF without an empty last block.
        lenient: bool,
    },
}

impl Accept {
    pub(super) fn is_lenient(self) -> bool {
        self == Self::Text { lenient: true }
    }
}

/// What a thread hands to the reader.
#[derive(Debug)]
pub(super) enum Piece {
    /// The next text.
    Text(Vec<u8>),
    /// The next text once a BGZF thread is done with it.
    Pending(Receiver<Inflated>),
    /// The text goes no further.
    Fault(Fault),
    /// The file is whole and ends here.
    End,
}

/// Text, and what stopped it if something did.
#[derive(Debug)]
pub(super) struct Inflated {
    pub(super) text: Vec<u8>,
    pub(super) fault: Option<Fault>,
}

/// The reader's end of a file.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// `None` once the text ended, and while dropping.
    pieces: Option<Receiver<(Piece, u64)>>,
    /// Where in the file the text handed out last begins and ends.
    span: Range<u64>,
    /// What comes after the text already handed out.
    fault: Option<Fault>,
    spare: Sender<Vec<u8>>,
    shared: Arc<Shared>,
    bytes_total: Option<u64>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Opens a file and starts its thread; `threads` more, at least one, decompress if it is BGZF.
    pub(crate) fn open(path: &Path, threads: usize, accept: Accept) -> Result<Self, Fault> {
        let threads = threads.max(1);
        let file = File::open(path).map_err(Fault::Open)?;
        let metadata = file.metadata().map_err(Fault::Open)?;
        let bytes_total = metadata.is_file().then_some(metadata.len());
        let ahead = CHUNKS_AHEAD.max(2 * threads);
        let (sender, pieces) = bounded(ahead);
        let (spare, spares) = bounded(ahead);
        let shared = Arc::new(Shared::default());
        let mut source = Source::new(file, Arc::clone(&shared));
        let mut chunks = Chunks::new(sender, spares, Arc::clone(&shared));
        let produce = move || {
            let result = produce(&mut source, &mut chunks, threads, accept);
            chunks.close(result);
        };
        let thread = thread::Builder::new().name("read-ahead".to_owned()).spawn(produce).map_err(Fault::Thread)?;
        let pieces = Some(pieces);
        Ok(Self { pieces, span: 0..0, fault: None, spare, shared, bytes_total, thread: Some(thread) })
    }

    /// A file that yields these chunks, without a thread.
    #[cfg(test)]
    pub(crate) fn from_chunks(chunks: Vec<Vec<u8>>) -> Self {
        let (sender, pieces) = bounded(chunks.len() + 1);
        for piece in chunks.into_iter().map(Piece::Text).chain([Piece::End]) {
            assert!(sender.send((piece, 0)).is_ok(), "the queue has room for all pieces");
        }
        let (spare, _) = bounded(0);
        let (pieces, shared) = (Some(pieces), Arc::default());
        Self { pieces, span: 0..0, fault: None, spare, shared, bytes_total: None, thread: None }
    }

    /// The next text, never empty; `None` at the end of a whole file.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        while let Some(pieces) = &self.pieces {
            let received = pieces.recv().map(|(piece, end)| {
                self.span = self.span.end..end;
                piece
            });
            let (text, fault) = match received {
                Ok(Piece::Text(text)) => (text, None),
                Ok(Piece::Pending(result)) => match result.recv() {
                    Ok(Inflated { text, fault }) => (text, fault),
                    Err(_) => (Vec::new(), Some(Fault::Lost)),
                },
                Ok(Piece::Fault(fault)) => (Vec::new(), Some(fault)),
                Ok(Piece::End) => {
                    self.pieces = None;
                    continue;
                }
                Err(_) => (Vec::new(), Some(Fault::Lost)),
            };
            if fault.is_some() {
                self.fault = fault;
                self.pieces = None;
            }
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        match self.fault.take() {
            None => Ok(None),
            Some(fault) => {
                // Who asks again must not take the silence for the end.
                self.fault = Some(Fault::Lost);
                Err(fault)
            }
        }
    }

    /// Gives a chunk back, so that the next one needs no fresh memory.
    pub(crate) fn recycle(&self, chunk: Vec<u8>) {
        // What grew around a giant record is not kept, and where nobody waits for it the chunk is simply freed.
        if chunk.capacity() <= 2 * CHUNK_BYTES {
            drop(self.spare.try_send(chunk));
        }
    }

    /// Bytes read from disk so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.shared.bytes_read.load(Ordering::Relaxed)
    }

    /// Where in the file the text handed out last begins and ends; both the end of the file once there is no more.
    pub(crate) fn span(&self) -> Range<u64> {
        if self.pieces.is_none() { self.span.end..self.span.end } else { self.span.clone() }
    }

    /// Whether the file is not compressed, so that offsets in the text are offsets in the file. Known once text, or the
    /// end, was handed out.
    pub(super) fn is_plain(&self) -> bool {
        !self.shared.compressed.load(Ordering::Relaxed)
    }

    /// BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read.
    pub(crate) fn checksum(&self) -> Option<String> {
        self.shared.checksum.get().map(|hash| hash.to_hex().to_string())
    }

    /// Bytes of the file on disk; `None` for a pipe.
    pub(crate) fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // A thread that waits to hand over a piece finds the queue gone.
        self.pieces = None;
        // A read from a regular file returns soon; one from a pipe may not, so that thread is left to end with it.
        if let (Some(thread), Some(_)) = (self.thread.take(), self.bytes_total) {
            // A panic was already reported as a lost thread.
            drop(thread.join());
        }
    }
}

/// The thread's end: text goes in, chunks go out.
#[derive(Debug)]
pub(super) struct Chunks {
    pieces: Sender<(Piece, u64)>,
    spares: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    chunk: Vec<u8>,
    filled: usize,
}

impl Chunks {
    fn new(pieces: Sender<(Piece, u64)>, spares: Receiver<Vec<u8>>, shared: Arc<Shared>) -> Self {
        Self { pieces, spares, shared, chunk: Vec::new(), filled: 0 }
    }

    /// Where the next text goes; never empty.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.chunk.is_empty() {
            self.chunk = fresh_chunk(&self.spares, CHUNK_BYTES);
        }
        &mut self.chunk[self.filled..]
    }

    /// Says how many bytes of [`Chunks::space`] were written.
    pub(super) fn advance(&mut self, bytes: usize) -> Result<(), Fault> {
        self.filled += bytes;
        if self.filled == self.chunk.len() { self.flush() } else { Ok(()) }
    }

    /// Hands over what is there.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        if self.filled == 0 {
            return Ok(());
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.truncate(std::mem::take(&mut self.filled));
        self.send(Piece::Text(chunk))
    }

    /// Hands over a piece behind everything flushed before.
    pub(super) fn send(&mut self, piece: Piece) -> Result<(), Fault> {
        let end = self.shared.offset.load(Ordering::Relaxed);
        self.pieces.send((piece, end)).map_err(|_| Fault::Stopped)
    }

    /// The chunks that the reader has given back.
    pub(super) fn spares(&self) -> Receiver<Vec<u8>> {
        self.spares.clone()
    }

    fn close(&mut self, result: Result<(), Fault>) {
        // Text before a fault goes first, so that the fault is blamed on the right record. A reader that is gone needs
        // neither.
        let end = match result {
            Ok(()) => Piece::End,
            Err(fault) => Piece::Fault(fault),
        };
        drop(self.flush().and_then(|()| self.send(end)));
    }
}

/// A chunk of that many bytes, of whatever content.
pub(super) fn fresh_chunk(spares: &Receiver<Vec<u8>>, bytes: usize) -> Vec<u8> {
    let mut chunk = spares.try_recv().unwrap_or_default();
    chunk.resize(bytes, 0);
    chunk
}

/// Decompresses a whole file.
fn produce(source: &mut Source, chunks: &mut Chunks, threads: usize, accept: Accept) -> Result<(), Fault> {
    if accept == Accept::Bgzf {
        source.mark_compressed();
        // It ends with the file, or with a fault.
        return inflate_blocks(source, chunks, threads, accept).map(drop);
    }
    let start = source.peek(8)?;
    if let Some(&(_, format)) = UNSUPPORTED.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Err(Fault::Unsupported { format });
    }
    if !start.starts_with(&gzip::MAGIC) {
        return copy(source, chunks);
    }
    source.mark_compressed();
    if block_ahead(source)?.is_some() && inflate_blocks(source, chunks, threads, accept)? == gzip::Next::End {
        return Ok(());
    }
    gzip::inflate_members(source, chunks)
}

fn copy(source: &mut Source, chunks: &mut Chunks) -> Result<(), Fault> {
    loop {
        match source.read(chunks.space())? {
            0 => return Ok(()),
            count => chunks.advance(count)?,
        }
    }
}
