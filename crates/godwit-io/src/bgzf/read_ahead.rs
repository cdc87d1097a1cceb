//! Files that separate threads read and decompress ahead of the consumer, into a bounded queue of text buffers.
//!
//! Flows in: a file. Flows out: its uncompressed text, in order, in buffers of about [`TEXT_BUFFER_BYTES`], then the
//! end of the file or an error. While the queue is full, the threads wait for the consumer.

mod decompression;

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

use self::decompression::{decompress_file, decompress_from_resume_point};
use super::access_point::{
    AccessPoint, AccessPointKind, AccessPointMode, AccessPointSpacing, ResumePoint, WINDOW_BYTES,
};
use super::error::InputError;
use super::peek_reader::{Input, PeekReader, ReadAheadState};

/// Maximum bytes of text in one buffer.
pub(super) const TEXT_BUFFER_BYTES: usize = 1 << 20;
/// Buffers per file that are decompressed ahead of the consumer. For BGZF, two buffers per thread if that is more.
const READ_AHEAD_BUFFERS: usize = 4;

/// The path that means standard input. The inherited file descriptor is read instead of opening this path, because
/// opening fails for sockets and for pipes of another user.
pub const STDIN_PATH: &str = "/dev/stdin";
/// Interval at which a reader that waits for data checks its cancel flag.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// First bytes of a BAM file, uncompressed (SAMv1 §4.2).
const BAM_MAGIC: &[u8] = b"BAM\x01";

/// First bytes and names of formats that are not supported, but occur as `.fastq.<extension>`.
const UNSUPPORTED_MAGICS: [(&[u8], &str); 5] = [
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"PK\x03\x04", "zip"),
    // Encrypted files are decrypted with random access, which a pipe does not have. Users can pipe through `crypt4gh
    // decrypt` instead.
    (b"crypt4gh", "Crypt4GH (from a pipe)"),
];

/// The formats that the caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedFormat {
    /// Only BGZF blocks, of which the last is the end-of-file block.
    Bgzf,
    /// Plain text, gzip, BGZF, or BGZF blocks followed by other gzip members; detected from the content.
    Text {
        /// True if BGZF is accepted even if its last block is not empty.
        lenient: bool,
    },
    /// BAM, for which [`ExpectedFormat::Bgzf`] then holds, or any other file, for which [`ExpectedFormat::Text`] then
    /// holds.
    Any {
        /// True if BGZF text is accepted even if its last block is not empty.
        lenient: bool,
    },
}

impl ExpectedFormat {
    pub(super) fn is_lenient_text(self) -> bool {
        self == Self::Text { lenient: true }
    }
}

/// A message from the read-ahead thread to the reader.
#[derive(Debug)]
pub(super) enum ReadAheadMessage {
    /// The next buffer of text.
    Text(Vec<u8>),
    /// The channel from which the next buffer of text is received after a BGZF thread has decompressed it.
    PendingText(Receiver<InflatedText>),
    /// An access point at the start of the next text.
    AccessPoint(Box<AccessPoint>),
    /// Reading or decompressing failed after the text sent before.
    Error(InputError),
    /// The file is complete, and its text ends here.
    EndOfFile,
}

/// Decompressed text, and the error after it if decompression failed.
#[derive(Debug)]
pub(super) struct InflatedText {
    pub(super) text: Vec<u8>,
    pub(super) error: Option<InputError>,
}

/// The consumer's end of the queue of text buffers of a file.
#[derive(Debug)]
pub struct ReadAhead {
    /// Queue of messages from the read-ahead thread, each with the file offset up to which input was consumed. `None`
    /// after the end of the text, and during drop.
    messages: Option<Receiver<(ReadAheadMessage, u64)>>,
    /// Byte range in the file on disk of the text returned last.
    compressed_range: Range<u64>,
    /// An error to return by the next call, after the text that was already returned.
    error: Option<InputError>,
    /// Text that the consumer has put back, to be returned again.
    unread_text: Option<Vec<u8>>,
    /// A flag that another thread sets to cancel waiting for text.
    cancel_flag: Option<Arc<AtomicBool>>,
    /// Bytes of text still to be discarded before the first text is returned.
    skip_bytes: u64,
    /// Bytes of text in the file before the first text that is returned.
    text_offset: u64,
    /// Recorded access points, oldest first. Those that are older than needed for the last requested resume point have
    /// been removed.
    access_points: VecDeque<AccessPoint>,
    recycle_sender: Sender<Vec<u8>>,
    shared: Arc<ReadAheadState>,
    compressed_bytes_total: Option<u64>,
    /// True if the file is encrypted and the text is its decrypted content.
    is_decrypted: bool,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Opens a file and starts the thread that reads it. If the file is BGZF, `threads` further threads (at least one)
    /// decompress it.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be opened, if it is encrypted and cannot be decrypted, or if the thread cannot be
    /// started.
    pub fn open(
        path: &Path,
        threads: usize,
        expected_format: ExpectedFormat,
        access_points: AccessPointMode,
    ) -> Result<Self, InputError> {
        let file = open_file_or_stdin(path).map_err(InputError::Open)?;
        Self::from_input(Input::open_decrypted(path, file)?, threads, expected_format, access_points)
    }

    /// Starts reading an open input, as [`ReadAhead::open`] does for a path.
    pub(super) fn from_input(
        file: Input,
        threads: usize,
        expected_format: ExpectedFormat,
        access_points: AccessPointMode,
    ) -> Result<Self, InputError> {
        let threads = threads.max(1);
        let is_decrypted = file.is_decrypted();
        let compressed_bytes_total = file.byte_len().map_err(InputError::Open)?;
        let ahead = READ_AHEAD_BUFFERS.max(2 * threads);
        let (sender, messages) = bounded(ahead);
        let (recycle_sender, recycled_buffers) = bounded(ahead);
        let shared = Arc::new(ReadAheadState::default());
        let mut source = PeekReader::new(file, Arc::clone(&shared));
        // A pipe cannot be read a second time, so access points in it would be useless.
        let (spacing, start) = match access_points {
            AccessPointMode::Enabled(spacing, start) if compressed_bytes_total.is_some() => {
                (Some(spacing), start.cloned())
            }
            AccessPointMode::Enabled(..) | AccessPointMode::Disabled => (None, None),
        };
        let (skip_bytes, text_bytes, offset) = start
            .as_ref()
            .map_or((0, 0, 0), |start| (start.skip_bytes, start.access_point.text_bytes, start.access_point.offset));
        let mut text_sender = TextSender::new(sender, recycled_buffers, Arc::clone(&shared));
        text_sender.recorder = spacing.map(|spacing| AccessPointRecorder::new(spacing, start.as_ref()));
        text_sender.text_bytes = text_bytes;
        let points = start.iter().map(|start| start.access_point.clone()).collect();
        let produce = move || {
            let result = match start {
                Some(start) => {
                    decompress_from_resume_point(&start, &mut source, &mut text_sender, threads, expected_format)
                }
                None => decompress_file(&mut source, &mut text_sender, threads, expected_format),
            };
            text_sender.send_end(result);
        };
        let thread =
            thread::Builder::new().name("read-ahead".to_owned()).spawn(produce).map_err(InputError::ThreadSpawn)?;
        Ok(Self {
            messages: Some(messages),
            compressed_range: offset..offset,
            error: None,
            unread_text: None,
            cancel_flag: None,
            skip_bytes,
            text_offset: text_bytes + skip_bytes,
            access_points: points,
            recycle_sender,
            shared,
            compressed_bytes_total,
            is_decrypted,
            thread: Some(thread),
        })
    }

    /// Creates a reader that returns these texts, without a file and a thread.
    pub fn from_texts(chunks: Vec<Vec<u8>>) -> Self {
        let (sender, pieces) = bounded(chunks.len() + 1);
        for piece in chunks.into_iter().map(ReadAheadMessage::Text).chain([ReadAheadMessage::EndOfFile]) {
            assert!(sender.send((piece, 0)).is_ok(), "the queue has room for all pieces");
        }
        let (recycle_sender, _) = bounded(0);
        Self {
            messages: Some(pieces),
            compressed_range: 0..0,
            error: None,
            unread_text: None,
            cancel_flag: None,
            skip_bytes: 0,
            text_offset: 0,
            access_points: VecDeque::new(),
            recycle_sender,
            shared: Arc::default(),
            compressed_bytes_total: None,
            is_decrypted: false,
            thread: None,
        }
    }

    /// Returns the next buffer of text, which is never empty, or `None` at the end of a complete file.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be read, or its compressed data is damaged or truncated. The text before the damage
    /// is returned first.
    pub fn next_text(&mut self) -> Result<Option<Vec<u8>>, InputError> {
        if let Some(text) = self.unread_text.take() {
            return Ok(Some(text));
        }
        while self.messages.is_some() {
            let (mut text, error) = self.receive_text();
            if error.is_some() {
                self.error = error;
                self.messages = None;
            }
            if self.skip_bytes > 0 {
                let skipped = text.len().min(usize::try_from(self.skip_bytes).unwrap_or(usize::MAX));
                self.skip_bytes -= skipped as u64;
                text.drain(..skipped);
                let ended = self.messages.is_none() && self.skip_bytes > 0;
                if ended && self.error.as_ref().is_none_or(InputError::is_content_error) {
                    // The skipped text could be read when the resume point was recorded, so an early end means that the
                    // file has changed.
                    self.error = Some(InputError::Changed);
                }
            }
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        match self.error.take() {
            None => Ok(None),
            Some(error) => {
                // A later call must fail too, instead of returning `None` as at the end of the file.
                self.error = Some(InputError::ThreadLost);
                Err(error)
            }
        }
    }

    /// Receives the next text, which may be empty, and the error that follows it, if any. Drops the queue at the end of
    /// the file.
    fn receive_text(&mut self) -> (Vec<u8>, Option<InputError>) {
        let Some(pieces) = &self.messages else { return (Vec::new(), None) };
        let received = receive_or_cancel(pieces, self.cancel_flag.as_deref()).map(|(piece, end)| {
            self.compressed_range = self.compressed_range.end..end;
            piece
        });
        match received {
            Ok(ReadAheadMessage::Text(text)) => (text, None),
            Ok(ReadAheadMessage::PendingText(result)) => match result.recv() {
                Ok(InflatedText { text, error }) => (text, error),
                Err(_) => (Vec::new(), Some(InputError::ThreadLost)),
            },
            Ok(ReadAheadMessage::AccessPoint(point)) => {
                self.access_points.push_back(*point);
                (Vec::new(), None)
            }
            Ok(ReadAheadMessage::Error(error)) => (Vec::new(), Some(error)),
            Ok(ReadAheadMessage::EndOfFile) => {
                self.messages = None;
                (Vec::new(), None)
            }
            Err(_) => (Vec::new(), Some(InputError::ThreadLost)),
        }
    }

    /// Returns the resume point from which the text after the first `text_bytes_read` bytes that this reader returned
    /// can be read again. Returns `None` if no access point precedes that position. Access points that later positions
    /// do not need are dropped, so positions must ascend.
    pub fn resume_point_at(&mut self, text_bytes_read: u64) -> Option<ResumePoint> {
        let text_bytes = self.text_offset + text_bytes_read;
        while self.access_points.get(1).is_some_and(|next| next.text_bytes <= text_bytes) {
            self.access_points.pop_front();
        }
        let access_point = self.access_points.front().filter(|point| point.text_bytes <= text_bytes)?.clone();
        let skip_bytes = text_bytes - access_point.text_bytes;
        let hasher = self.shared.hasher();
        Some(ResumePoint {
            access_point,
            skip_bytes,
            hashed_bytes: hasher.count(),
            blake3: hasher.finalize().to_hex().to_string(),
        })
    }

    /// Puts back text that was not used, so that the next call returns it again. At most one text can be put back at a
    /// time.
    pub(super) fn unread(&mut self, text: Vec<u8>) {
        debug_assert!(self.unread_text.is_none());
        self.unread_text = (!text.is_empty()).then_some(text);
    }

    /// Puts back an error of [`ReadAhead::next`], so that the next call returns it again.
    pub(super) fn unread_error(&mut self, error: InputError) {
        self.error = Some(error);
    }

    /// Sets a flag that cancels waiting: after another thread has set the flag, [`ReadAhead::next`] fails instead of
    /// waiting for text.
    pub(super) fn set_cancel_flag(&mut self, cancelled: Arc<AtomicBool>) {
        self.cancel_flag = Some(cancelled);
    }

    /// Returns a used buffer to the threads, so that they do not have to allocate another.
    pub fn recycle(&self, chunk: Vec<u8>) {
        // Drop a buffer that has grown because of a very large record. Also drop the buffer if the channel is full or
        // no thread receives from it.
        if chunk.capacity() <= 2 * TEXT_BUFFER_BYTES {
            drop(self.recycle_sender.try_send(chunk));
        }
    }

    /// Returns the number of compressed bytes read from disk so far.
    pub fn compressed_bytes_read(&self) -> u64 {
        self.shared.compressed_bytes_read.load(Ordering::Relaxed)
    }

    /// Returns the byte range in the file on disk of the text returned last. After the end of the text, both ends of
    /// the range are the end of the file.
    pub fn compressed_range(&self) -> Range<u64> {
        if self.messages.is_none() {
            self.compressed_range.end..self.compressed_range.end
        } else {
            self.compressed_range.clone()
        }
    }

    /// Returns whether the file is not compressed, so that offsets in the text are offsets in the file. The result is
    /// valid after the first text, or the end of the file, was returned.
    pub(super) fn is_plain(&self) -> bool {
        !self.shared.compressed.load(Ordering::Relaxed)
    }

    /// Returns the BLAKE3 hash of the file as it is on disk, in hexadecimal digits; `None` before the end of the file
    /// has been read.
    pub fn checksum(&self) -> Option<String> {
        self.shared.checksum.get().map(|hash| hash.to_hex().to_string())
    }

    /// Returns whether the file may contain only BGZF blocks. The result is valid after the first text, or the end of
    /// the file, was returned.
    pub(super) fn is_bgzf(&self) -> bool {
        self.shared.bgzf.load(Ordering::Relaxed)
    }

    /// Returns whether the file is encrypted and the text is its decrypted content.
    pub(super) fn is_decrypted(&self) -> bool {
        self.is_decrypted
    }

    /// Returns the length of the file on disk in bytes, or `None` for a pipe.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        self.compressed_bytes_total
    }
}

/// Opens a file, or standard input if `path` is [`STDIN_PATH`].
fn open_file_or_stdin(path: &Path) -> io::Result<File> {
    if path == Path::new(STDIN_PATH) {
        return io::stdin().as_fd().try_clone_to_owned().map(File::from);
    }
    File::open(path)
}

/// Receives the next message. After the cancel flag was set, fails as if the sending thread were lost.
fn receive_or_cancel<T>(pieces: &Receiver<T>, cancelled: Option<&AtomicBool>) -> Result<T, RecvError> {
    let Some(cancelled) = cancelled else { return pieces.recv() };
    loop {
        match pieces.recv_timeout(CANCEL_POLL_INTERVAL) {
            Ok(piece) => return Ok(piece),
            Err(RecvTimeoutError::Timeout) if !cancelled.load(Ordering::Relaxed) => {}
            Err(_) => return Err(RecvError),
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Dropping the receiver wakes a thread that waits for room in the queue.
        self.messages = None;
        // Join the thread only if it reads a regular file, because such a read returns soon. A read from a pipe may
        // wait for a long time, so that thread is left to end by itself.
        if let (Some(thread), Some(_)) = (self.thread.take(), self.compressed_bytes_total) {
            // A panic of the thread was already reported to the consumer as a lost thread.
            drop(thread.join());
        }
    }
}

/// The read-ahead thread's end of the queue: sends text and receives used buffers.
#[derive(Debug)]
pub(super) struct TextSender {
    messages: Sender<(ReadAheadMessage, u64)>,
    recycled_buffers: Receiver<Vec<u8>>,
    shared: Arc<ReadAheadState>,
    buffer: Vec<u8>,
    filled_bytes: usize,
    /// Bytes of text from the start of the file to the end of the filled bytes of the buffer.
    text_bytes: u64,
    /// State for recording access points; `None` if none are recorded.
    recorder: Option<AccessPointRecorder>,
}

/// The state that the next access point needs: where it may be, and the text before it.
#[derive(Debug)]
struct AccessPointRecorder {
    spacing: AccessPointSpacing,
    /// Minimum text offset of the next access point.
    next_text_offset: u64,
    /// The last text before the current buffer, at most [`WINDOW_BYTES`].
    window: Vec<u8>,
}

impl AccessPointRecorder {
    fn new(spacing: AccessPointSpacing, start: Option<&ResumePoint>) -> Self {
        let next_text_offset = spacing.next_text_offset(start.map_or(0, |start| start.access_point.text_bytes));
        Self {
            spacing,
            next_text_offset,
            window: start.map(|start| start.access_point.window.clone()).unwrap_or_default(),
        }
    }

    /// Appends the text of a finished buffer to the window, and keeps only the last [`WINDOW_BYTES`].
    fn update_window(&mut self, text: &[u8]) {
        let text = &text[text.len().saturating_sub(WINDOW_BYTES)..];
        let surplus = (self.window.len() + text.len()).saturating_sub(WINDOW_BYTES);
        self.window.drain(..surplus);
        self.window.extend_from_slice(text);
    }
}

impl TextSender {
    fn new(
        messages: Sender<(ReadAheadMessage, u64)>,
        recycled_buffers: Receiver<Vec<u8>>,
        shared: Arc<ReadAheadState>,
    ) -> Self {
        Self { messages, recycled_buffers, shared, buffer: Vec::new(), filled_bytes: 0, text_bytes: 0, recorder: None }
    }

    /// Returns the free space of the buffer, to be filled with the next text; the slice is never empty.
    pub(super) fn unfilled_buffer(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = take_buffer(&self.recycled_buffers, TEXT_BUFFER_BYTES);
        }
        &mut self.buffer[self.filled_bytes..]
    }

    /// Records that `bytes` bytes of [`TextSender::unfilled_buffer`] were filled, and sends the buffer if it is full.
    pub(super) fn advance(&mut self, bytes: usize) -> Result<(), InputError> {
        self.filled_bytes += bytes;
        self.add_text_bytes(bytes);
        if self.filled_bytes == self.buffer.len() { self.flush() } else { Ok(()) }
    }

    /// Sends the filled bytes of the buffer to the consumer, if any.
    pub(super) fn flush(&mut self) -> Result<(), InputError> {
        if self.filled_bytes == 0 {
            return Ok(());
        }
        let mut chunk = std::mem::take(&mut self.buffer);
        chunk.truncate(std::mem::take(&mut self.filled_bytes));
        if let Some(recorder) = &mut self.recorder {
            recorder.update_window(&chunk);
        }
        self.send_message(ReadAheadMessage::Text(chunk))
    }

    /// Counts text that another thread decompresses, and that therefore does not go through
    /// [`TextSender::unfilled_buffer`].
    pub(super) fn add_text_bytes(&mut self, text_bytes: usize) {
        self.text_bytes += text_bytes as u64;
    }

    /// Returns whether an access point should be recorded at the next possible position.
    pub(super) fn is_access_point_due(&self) -> bool {
        self.recorder.as_ref().is_some_and(|notes| self.text_bytes >= notes.next_text_offset)
    }

    /// Sends the buffered text, then an access point at its end.
    pub(super) fn send_access_point(
        &mut self,
        offset: u64,
        kind: AccessPointKind,
        window: Vec<u8>,
    ) -> Result<(), InputError> {
        self.flush()?;
        let text_bytes = self.text_bytes;
        if let Some(recorder) = &mut self.recorder {
            recorder.next_text_offset = recorder.spacing.next_text_offset(text_bytes);
        }
        self.send_message(ReadAheadMessage::AccessPoint(Box::new(AccessPoint { text_bytes, offset, kind, window })))
    }

    /// Moves the minimum offset of the next access point forward, because none can be recorded here.
    pub(super) fn postpone_access_point(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.next_text_offset = self.text_bytes + recorder.spacing.min_bytes;
        }
    }

    /// Returns the last text before this position, at most `bytes` bytes. The buffer must have been flushed.
    pub(super) fn window(&self, bytes: usize) -> Vec<u8> {
        let window = self.recorder.as_ref().map_or(&[][..], |notes| &notes.window);
        window[window.len() - window.len().min(bytes)..].to_vec()
    }

    /// Sends a message to the consumer, after all messages sent before.
    pub(super) fn send_message(&mut self, message: ReadAheadMessage) -> Result<(), InputError> {
        let end = self.shared.consumed_bytes.load(Ordering::Relaxed);
        self.messages.send((message, end)).map_err(|_| InputError::Stopped)
    }

    /// Returns a receiver of the buffers that the consumer has returned.
    pub(super) fn recycled_buffers(&self) -> Receiver<Vec<u8>> {
        self.recycled_buffers.clone()
    }

    fn send_end(&mut self, result: Result<(), InputError>) {
        // Send the text before an error first, so that the consumer attributes the error to the right record. If the
        // consumer has dropped its reader, sending fails, which is not an error.
        let end = match result {
            Ok(()) => ReadAheadMessage::EndOfFile,
            Err(error) => ReadAheadMessage::Error(error),
        };
        drop(self.flush().and_then(|()| self.send_message(end)));
    }
}

/// Returns a recycled or new buffer of `bytes` bytes; its content is arbitrary.
pub(super) fn take_buffer(recycled_buffers: &Receiver<Vec<u8>>, bytes: usize) -> Vec<u8> {
    let mut chunk = recycled_buffers.try_recv().unwrap_or_default();
    chunk.resize(bytes, 0);
    chunk
}
