//! A file that is read and decompressed ahead of its reader, on threads of its own, into a bounded queue of chunks.
//!
//! Flows in: a file. Flows out: its text, in order, in chunks of about [`CHUNK_BYTES`], then its end or what is wrong
//! with it. A full queue stops the threads until the reader catches up.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, Sender, bounded};
use libdeflater::Decompressor;

use super::block;
use super::error::Fault;
use super::gzip;
use super::inflate::{block_ahead, inflate_blocks};
use super::point::{Coding, Point, Points, Spacing, Start, WINDOW_BYTES};
use super::source::{Input, Shared, Source};

/// Bytes of text in one chunk.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Chunks decompressed ahead of the reader, per file; with BGZF two per thread where that is more.
const CHUNKS_AHEAD: usize = 4;

/// The name of standard input. It is read through the descriptor that the process was given, so that sockets and pipes
/// of another user work too.
pub const STDIN: &str = "/dev/stdin";
/// How often a reader that waits looks whether it still should.
const PATIENCE: Duration = Duration::from_millis(50);
/// First bytes of a BAM file, uncompressed (SAMv1 §4.2).
const BAM_MAGIC: &[u8] = b"BAM\x01";

/// First bytes of formats that people name `.fastq.something` and that are not read here.
const UNSUPPORTED: [(&[u8], &str); 5] = [
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"PK\x03\x04", "zip"),
    // A file is decrypted at any of its places, a pipe is not: `crypt4gh decrypt` can be in front of it.
    (b"crypt4gh", "crypt4gh, from a pipe,"),
];

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
    /// BAM as [`Accept::Bgzf`], everything else as [`Accept::Text`].
    Any {
        /// As for text.
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
    /// The next text can be had from there another time.
    Point(Box<Point>),
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
    /// Text that was handed out and given back.
    returned: Option<Vec<u8>>,
    /// Set from outside when nobody should wait any longer.
    cancelled: Option<Arc<AtomicBool>>,
    /// Bytes of text to be passed over before any is handed out.
    skip_bytes: u64,
    /// Bytes of text before the first that is handed out.
    text_start: u64,
    /// Points that were handed over and not asked for, oldest first, but for the newest before what was asked for last.
    points: VecDeque<Point>,
    spare: Sender<Vec<u8>>,
    shared: Arc<Shared>,
    bytes_total: Option<u64>,
    /// Whether it is not the file itself that is read, but what is in it.
    is_decrypted: bool,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Opens a file and starts its thread; `threads` more, at least one, decompress if it is BGZF.
    pub(crate) fn open(path: &Path, threads: usize, accept: Accept, points: Points) -> Result<Self, Fault> {
        let file = open(path).map_err(Fault::Open)?;
        Self::start(Input::of(path, file)?, threads, accept, points)
    }

    /// As [`ReadAhead::open`] for what is open already.
    pub(crate) fn start(file: Input, threads: usize, accept: Accept, points: Points) -> Result<Self, Fault> {
        let threads = threads.max(1);
        let is_decrypted = file.is_decrypted();
        let bytes_total = file.bytes().map_err(Fault::Open)?;
        let ahead = CHUNKS_AHEAD.max(2 * threads);
        let (sender, pieces) = bounded(ahead);
        let (spare, spares) = bounded(ahead);
        let shared = Arc::new(Shared::default());
        let mut source = Source::new(file, Arc::clone(&shared));
        // What cannot be read again needs no points.
        let (spacing, start) = match points {
            Points::Noted(spacing, start) if bytes_total.is_some() => (Some(spacing), start.cloned()),
            Points::Noted(..) | Points::Unused => (None, None),
        };
        let (skip_bytes, text_bytes, offset) =
            start.as_ref().map_or((0, 0, 0), |start| (start.skip_bytes, start.point.text_bytes, start.point.offset));
        let mut chunks = Chunks::new(sender, spares, Arc::clone(&shared));
        chunks.notes = spacing.map(|spacing| Notes::after(spacing, start.as_ref()));
        chunks.text_bytes = text_bytes;
        let points = start.iter().map(|start| start.point.clone()).collect();
        let produce = move || {
            let result = match start {
                Some(start) => produce_from(&start, &mut source, &mut chunks, threads, accept),
                None => produce(&mut source, &mut chunks, threads, accept),
            };
            chunks.close(result);
        };
        let thread = thread::Builder::new().name("read-ahead".to_owned()).spawn(produce).map_err(Fault::Thread)?;
        Ok(Self {
            pieces: Some(pieces),
            span: offset..offset,
            fault: None,
            returned: None,
            cancelled: None,
            skip_bytes,
            text_start: text_bytes + skip_bytes,
            points,
            spare,
            shared,
            bytes_total,
            is_decrypted,
            thread: Some(thread),
        })
    }

    /// A file that yields these chunks, without a thread.
    #[cfg(test)]
    pub(crate) fn from_chunks(chunks: Vec<Vec<u8>>) -> Self {
        let (sender, pieces) = bounded(chunks.len() + 1);
        for piece in chunks.into_iter().map(Piece::Text).chain([Piece::End]) {
            assert!(sender.send((piece, 0)).is_ok(), "the queue has room for all pieces");
        }
        let (spare, _) = bounded(0);
        Self {
            pieces: Some(pieces),
            span: 0..0,
            fault: None,
            returned: None,
            cancelled: None,
            skip_bytes: 0,
            text_start: 0,
            points: VecDeque::new(),
            spare,
            shared: Arc::default(),
            bytes_total: None,
            is_decrypted: false,
            thread: None,
        }
    }

    /// The next text, never empty; `None` at the end of a whole file.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(text) = self.returned.take() {
            return Ok(Some(text));
        }
        while self.pieces.is_some() {
            let (mut text, fault) = self.receive();
            if fault.is_some() {
                self.fault = fault;
                self.pieces = None;
            }
            if self.skip_bytes > 0 {
                let skipped = text.len().min(usize::try_from(self.skip_bytes).unwrap_or(usize::MAX));
                self.skip_bytes -= skipped as u64;
                text.drain(..skipped);
                let ended = self.pieces.is_none() && self.skip_bytes > 0;
                if ended && self.fault.as_ref().is_none_or(Fault::is_of_content) {
                    // All of this was there and whole when the start was noted.
                    self.fault = Some(Fault::Changed);
                }
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

    /// Takes a piece, whose text may be empty, and what comes instead of further ones. At the end of the file nobody waits
    /// for pieces any more.
    fn receive(&mut self) -> (Vec<u8>, Option<Fault>) {
        let Some(pieces) = &self.pieces else { return (Vec::new(), None) };
        let received = receive(pieces, self.cancelled.as_deref()).map(|(piece, end)| {
            self.span = self.span.end..end;
            piece
        });
        match received {
            Ok(Piece::Text(text)) => (text, None),
            Ok(Piece::Pending(result)) => match result.recv() {
                Ok(Inflated { text, fault }) => (text, fault),
                Err(_) => (Vec::new(), Some(Fault::Lost)),
            },
            Ok(Piece::Point(point)) => {
                self.points.push_back(*point);
                (Vec::new(), None)
            }
            Ok(Piece::Fault(fault)) => (Vec::new(), Some(fault)),
            Ok(Piece::End) => {
                self.pieces = None;
                (Vec::new(), None)
            }
            Err(_) => (Vec::new(), Some(Fault::Lost)),
        }
    }

    /// Where to begin another time, so that the text after the first `handed_out` bytes that were handed out here comes
    /// first; `None` where no point lies before. Points before an earlier answer are forgotten.
    pub(crate) fn start_after(&mut self, handed_out: u64) -> Option<Start> {
        let text_bytes = self.text_start + handed_out;
        while self.points.get(1).is_some_and(|next| next.text_bytes <= text_bytes) {
            self.points.pop_front();
        }
        let point = self.points.front().filter(|point| point.text_bytes <= text_bytes)?.clone();
        let skip_bytes = text_bytes - point.text_bytes;
        let hasher = self.shared.hasher();
        Some(Start { point, skip_bytes, hashed_bytes: hasher.count(), hash: hasher.finalize().to_hex().to_string() })
    }

    /// Gives text back that was not used; it comes again. Nothing else may have been given back meanwhile.
    pub(super) fn give_back(&mut self, text: Vec<u8>) {
        debug_assert!(self.returned.is_none());
        self.returned = (!text.is_empty()).then_some(text);
    }

    /// Gives back what [`ReadAhead::next`] failed with; it comes again.
    pub(super) fn give_back_fault(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Lets [`ReadAhead::next`] wait only as long as the flag is not set; then it fails.
    pub(super) fn cancel_with(&mut self, cancelled: Arc<AtomicBool>) {
        self.cancelled = Some(cancelled);
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

    /// Whether the file has to be BGZF to its end. Known when [`ReadAhead::is_plain`] is.
    pub(super) fn is_bgzf(&self) -> bool {
        self.shared.bgzf.load(Ordering::Relaxed)
    }

    /// Whether it is not the file itself that is read, but what is in it.
    pub(super) fn is_decrypted(&self) -> bool {
        self.is_decrypted
    }

    /// Bytes of the file on disk; `None` for a pipe.
    pub(crate) fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }
}

/// Opens a file, or standard input under its name.
fn open(path: &Path) -> io::Result<File> {
    if path == Path::new(STDIN) {
        return io::stdin().as_fd().try_clone_to_owned().map(File::from);
    }
    File::open(path)
}

/// The next piece; as if the thread were lost once the flag is set.
fn receive<T>(pieces: &Receiver<T>, cancelled: Option<&AtomicBool>) -> Result<T, RecvError> {
    let Some(cancelled) = cancelled else { return pieces.recv() };
    loop {
        match pieces.recv_timeout(PATIENCE) {
            Ok(piece) => return Ok(piece),
            Err(RecvTimeoutError::Timeout) if !cancelled.load(Ordering::Relaxed) => {}
            Err(_) => return Err(RecvError),
        }
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
    /// Bytes of text up to the end of the chunk.
    text_bytes: u64,
    /// Where points are noted.
    notes: Option<Notes>,
}

/// What points are made of.
#[derive(Debug)]
struct Notes {
    spacing: Spacing,
    /// Bytes of text before the next point, at least.
    due: u64,
    /// The last text before the chunk.
    window: Vec<u8>,
}

impl Notes {
    fn after(spacing: Spacing, start: Option<&Start>) -> Self {
        let due = spacing.after(start.map_or(0, |start| start.point.text_bytes));
        Self { spacing, due, window: start.map(|start| start.point.window.clone()).unwrap_or_default() }
    }

    /// Remembers the end of what was before the next chunk.
    fn slide(&mut self, text: &[u8]) {
        let text = &text[text.len().saturating_sub(WINDOW_BYTES)..];
        let surplus = (self.window.len() + text.len()).saturating_sub(WINDOW_BYTES);
        self.window.drain(..surplus);
        self.window.extend_from_slice(text);
    }
}

impl Chunks {
    fn new(pieces: Sender<(Piece, u64)>, spares: Receiver<Vec<u8>>, shared: Arc<Shared>) -> Self {
        Self { pieces, spares, shared, chunk: Vec::new(), filled: 0, text_bytes: 0, notes: None }
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
        self.count(bytes);
        if self.filled == self.chunk.len() { self.flush() } else { Ok(()) }
    }

    /// Hands over what is there.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        if self.filled == 0 {
            return Ok(());
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.truncate(std::mem::take(&mut self.filled));
        if let Some(notes) = &mut self.notes {
            notes.slide(&chunk);
        }
        self.send(Piece::Text(chunk))
    }

    /// Counts text that does not go through [`Chunks::space`].
    pub(super) fn count(&mut self, text_bytes: usize) {
        self.text_bytes += text_bytes as u64;
    }

    /// Whether there should be a point as soon as there can be one.
    pub(super) fn is_point_due(&self) -> bool {
        self.notes.as_ref().is_some_and(|notes| self.text_bytes >= notes.due)
    }

    /// Tells the reader of a point behind all text so far.
    pub(super) fn point(&mut self, offset: u64, coding: Coding, window: Vec<u8>) -> Result<(), Fault> {
        self.flush()?;
        let text_bytes = self.text_bytes;
        if let Some(notes) = &mut self.notes {
            notes.due = notes.spacing.after(text_bytes);
        }
        self.send(Piece::Point(Box::new(Point { text_bytes, offset, coding, window })))
    }

    /// Leaves a point out that could not be made.
    pub(super) fn put_point_off(&mut self) {
        if let Some(notes) = &mut self.notes {
            notes.due = self.text_bytes + notes.spacing.least;
        }
    }

    /// The last bytes of text, that many or as many as there are; everything was flushed.
    pub(super) fn window(&self, bytes: usize) -> Vec<u8> {
        let window = self.notes.as_ref().map_or(&[][..], |notes| &notes.window);
        window[window.len() - window.len().min(bytes)..].to_vec()
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
    let accept = match accept {
        Accept::Any { .. } if starts_bam(source)? => Accept::Bgzf,
        Accept::Any { lenient } => Accept::Text { lenient },
        accept => accept,
    };
    if accept == Accept::Bgzf {
        chunks.notes = None;
        source.mark_compressed();
        source.mark_bgzf();
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
    inflate(source, chunks, threads, accept)
}

/// Decompresses BGZF blocks as far as there are any, and gzip members from there on.
fn inflate(source: &mut Source, chunks: &mut Chunks, threads: usize, accept: Accept) -> Result<(), Fault> {
    if block_ahead(source)?.is_some() && inflate_blocks(source, chunks, threads, accept)? == gzip::Next::End {
        return Ok(());
    }
    gzip::inflate_members(source, chunks)
}

/// Decompresses what follows a point.
fn produce_from(
    start: &Start,
    source: &mut Source,
    chunks: &mut Chunks,
    threads: usize,
    accept: Accept,
) -> Result<(), Fault> {
    let accept =
        Accept::Text { lenient: matches!(accept, Accept::Text { lenient: true } | Accept::Any { lenient: true }) };
    source.go_to(start)?;
    let Point { coding, window, .. } = &start.point;
    if *coding != Coding::Plain {
        source.mark_compressed();
    }
    match coding {
        Coding::Plain => copy(source, chunks),
        Coding::Block => inflate(source, chunks, threads, accept),
        Coding::Member => gzip::inflate_members(source, chunks),
        Coding::Deflate(within) => gzip::inflate_from(within, window, source, chunks),
    }
}

/// Whether a BGZF block stands ahead whose data starts as BAM does.
fn starts_bam(source: &mut Source) -> Result<bool, Fault> {
    if !source.peek(gzip::MAGIC.len())?.starts_with(&gzip::MAGIC) {
        return Ok(false);
    }
    let Some(block_bytes) = block_ahead(source)? else { return Ok(false) };
    let block = &source.peek(block_bytes)?[..block_bytes];
    let mut text = vec![0; block::data_bytes(block).unwrap_or_default()];
    Ok(block::inflate(&mut Decompressor::new(), block, &mut text) && text.starts_with(BAM_MAGIC))
}

fn copy(source: &mut Source, chunks: &mut Chunks) -> Result<(), Fault> {
    loop {
        if chunks.is_point_due() {
            chunks.point(source.offset(), Coding::Plain, Vec::new())?;
        }
        match source.read(chunks.space())? {
            0 => return Ok(()),
            count => chunks.advance(count)?,
        }
    }
}
