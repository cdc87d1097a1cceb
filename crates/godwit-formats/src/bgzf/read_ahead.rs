//! A file that separate threads read and decompress ahead of its reader, into a bounded queue of text buffers.
//!
//! Flows in: a file. Flows out: its text, in order, in buffers of about [`TEXT_BUFFER_BYTES`], then its end or its error. A
//! full queue blocks the threads until the reader catches up.

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

/// Bytes of text in one buffer.
pub(super) const TEXT_BUFFER_BYTES: usize = 1 << 20;
/// Buffers decompressed ahead of the reader, per file; with BGZF two per thread where that is more.
const READ_AHEAD_BUFFERS: usize = 4;

/// The name of standard input. It is read through the inherited descriptor, so that sockets and pipes of another user work
/// too.
pub const STDIN_PATH: &str = "/dev/stdin";
/// Interval at which a waiting reader checks its cancel flag.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// First bytes of a BAM file, uncompressed (SAMv1 §4.2).
const BAM_MAGIC: &[u8] = b"BAM\x01";

/// First bytes of formats that occur as `.fastq.something` and that are not supported.
const UNSUPPORTED_MAGICS: [(&[u8], &str); 5] = [
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"PK\x03\x04", "zip"),
    // A file is decrypted at any offset, a pipe is not: users can pipe through `crypt4gh decrypt`.
    (b"crypt4gh", "crypt4gh, from a pipe,"),
];

/// The formats that a file may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedFormat {
    /// BGZF and nothing else, ended by its end-of-file block.
    Bgzf,
    /// Plain text, gzip or BGZF, and blocks followed by other gzip members, detected by content.
    Text {
        /// Accept BGZF without an empty last block.
        lenient: bool,
    },
    /// BAM as [`ExpectedFormat::Bgzf`], everything else as [`ExpectedFormat::Text`].
    Any {
        /// As for text.
        lenient: bool,
    },
}

impl ExpectedFormat {
    pub(super) fn is_lenient_text(self) -> bool {
        self == Self::Text { lenient: true }
    }
}

/// A message from a thread to the reader.
#[derive(Debug)]
pub(super) enum ReadAheadMessage {
    /// The next text.
    Text(Vec<u8>),
    /// The next text, once a BGZF thread has decompressed it.
    PendingText(Receiver<InflatedText>),
    /// The next text can be read again from this point.
    AccessPoint(Box<AccessPoint>),
    /// The text ends with an error.
    Error(InputError),
    /// The file is whole and ends here.
    EndOfFile,
}

/// Text, and the error that ended it, if any.
#[derive(Debug)]
pub(super) struct InflatedText {
    pub(super) text: Vec<u8>,
    pub(super) error: Option<InputError>,
}

/// The reader's side of a file.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// `None` once the text ended, and during drop.
    messages: Option<Receiver<(ReadAheadMessage, u64)>>,
    /// Byte range in the file of the text returned last.
    compressed_range: Range<u64>,
    /// Error to return after the text already returned.
    error: Option<InputError>,
    /// Text that was returned and unread.
    unread_text: Option<Vec<u8>>,
    /// Flag set by another thread to cancel waiting.
    cancel_flag: Option<Arc<AtomicBool>>,
    /// Bytes of text to skip before the first that is returned.
    skip_bytes: u64,
    /// Bytes of text before the first that is returned.
    text_offset: u64,
    /// Access points not yet used, oldest first, except the newest before the position requested last.
    access_points: VecDeque<AccessPoint>,
    recycle_sender: Sender<Vec<u8>>,
    shared: Arc<ReadAheadState>,
    compressed_bytes_total: Option<u64>,
    /// True if the text is the content of an encrypted file.
    is_decrypted: bool,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Opens a file and starts its thread; `threads` more, at least one, decompress if it is BGZF.
    pub(crate) fn open(
        path: &Path,
        threads: usize,
        expected_format: ExpectedFormat,
        access_points: AccessPointMode,
    ) -> Result<Self, InputError> {
        let file = open_file_or_stdin(path).map_err(InputError::Open)?;
        Self::from_input(Input::open_decrypted(path, file)?, threads, expected_format, access_points)
    }

    /// Reads an open input as [`ReadAhead::open`] does.
    pub(crate) fn from_input(
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
        // Input that cannot be read again needs no access points.
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

    /// Creates a file that yields these texts, without a thread.
    #[cfg(test)]
    pub(crate) fn from_texts(chunks: Vec<Vec<u8>>) -> Self {
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

    /// Returns the next text, never empty; `None` at the end of a whole file.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, InputError> {
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
                    // All of this was complete when the resume point was recorded.
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
                // A later call must not mistake the missing message for the end.
                self.error = Some(InputError::ThreadLost);
                Err(error)
            }
        }
    }

    /// Receives text, which may be empty, and the error that ends it, if any. At the end of the file the queue is dropped.
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

    /// Returns the resume point of the text after the first `text_bytes_read` bytes returned here; `None` where no access
    /// point precedes it. Access points before an earlier result are dropped.
    pub(crate) fn resume_point_at(&mut self, text_bytes_read: u64) -> Option<ResumePoint> {
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

    /// Puts back unused text; it is returned again. No other text may have been put back meanwhile.
    pub(super) fn unread(&mut self, text: Vec<u8>) {
        debug_assert!(self.unread_text.is_none());
        self.unread_text = (!text.is_empty()).then_some(text);
    }

    /// Puts back the error of [`ReadAhead::next`]; it is returned again.
    pub(super) fn unread_error(&mut self, error: InputError) {
        self.error = Some(error);
    }

    /// Makes [`ReadAhead::next`] fail once the flag is set, instead of waiting on.
    pub(super) fn set_cancel_flag(&mut self, cancelled: Arc<AtomicBool>) {
        self.cancel_flag = Some(cancelled);
    }

    /// Recycles a buffer, so that the next one needs no fresh memory.
    pub(crate) fn recycle(&self, chunk: Vec<u8>) {
        // A buffer that grew around a giant record is dropped, and so is one that no thread can receive.
        if chunk.capacity() <= 2 * TEXT_BUFFER_BYTES {
            drop(self.recycle_sender.try_send(chunk));
        }
    }

    /// Returns the bytes read from disk so far.
    pub(crate) fn compressed_bytes_read(&self) -> u64 {
        self.shared.compressed_bytes_read.load(Ordering::Relaxed)
    }

    /// Returns the byte range in the file of the text returned last; both the end of the file once the text ended.
    pub(crate) fn compressed_range(&self) -> Range<u64> {
        if self.messages.is_none() {
            self.compressed_range.end..self.compressed_range.end
        } else {
            self.compressed_range.clone()
        }
    }

    /// Reports whether the file is not compressed, so that offsets in the text are offsets in the file. Valid once text, or
    /// the end, was returned.
    pub(super) fn is_plain(&self) -> bool {
        !self.shared.compressed.load(Ordering::Relaxed)
    }

    /// Returns the BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read.
    pub(crate) fn checksum(&self) -> Option<String> {
        self.shared.checksum.get().map(|hash| hash.to_hex().to_string())
    }

    /// Reports whether the file must be BGZF to its end. Valid when [`ReadAhead::is_plain`] is.
    pub(super) fn is_bgzf(&self) -> bool {
        self.shared.bgzf.load(Ordering::Relaxed)
    }

    /// Reports whether the text is the content of an encrypted file.
    pub(super) fn is_decrypted(&self) -> bool {
        self.is_decrypted
    }

    /// Returns the bytes of the file on disk; `None` for a pipe.
    pub(crate) fn compressed_bytes_total(&self) -> Option<u64> {
        self.compressed_bytes_total
    }
}

/// Opens a file, or standard input under its name.
fn open_file_or_stdin(path: &Path) -> io::Result<File> {
    if path == Path::new(STDIN_PATH) {
        return io::stdin().as_fd().try_clone_to_owned().map(File::from);
    }
    File::open(path)
}

/// Receives the next message; fails as for a lost thread once the flag is set.
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
        // A thread blocked on sending then finds the queue closed.
        self.messages = None;
        // A read from a regular file returns soon; one from a pipe may not, so that thread ends with its pipe.
        if let (Some(thread), Some(_)) = (self.thread.take(), self.compressed_bytes_total) {
            // A panic was already reported as a lost thread.
            drop(thread.join());
        }
    }
}

/// The thread's side: it receives text and sends buffers.
#[derive(Debug)]
pub(super) struct TextSender {
    messages: Sender<(ReadAheadMessage, u64)>,
    recycled_buffers: Receiver<Vec<u8>>,
    shared: Arc<ReadAheadState>,
    buffer: Vec<u8>,
    filled_bytes: usize,
    /// Bytes of text up to the end of the buffer.
    text_bytes: u64,
    /// State for recording access points.
    recorder: Option<AccessPointRecorder>,
}

/// State from which access points are made.
#[derive(Debug)]
struct AccessPointRecorder {
    spacing: AccessPointSpacing,
    /// Minimum bytes of text before the next access point.
    next_text_offset: u64,
    /// The last text before the buffer.
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

    /// Stores the end of the text before the next buffer.
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

    /// Returns the buffer for the next text; never empty.
    pub(super) fn unfilled_buffer(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = take_buffer(&self.recycled_buffers, TEXT_BUFFER_BYTES);
        }
        &mut self.buffer[self.filled_bytes..]
    }

    /// Records how many bytes of [`TextSender::unfilled_buffer`] were written.
    pub(super) fn advance(&mut self, bytes: usize) -> Result<(), InputError> {
        self.filled_bytes += bytes;
        self.add_text_bytes(bytes);
        if self.filled_bytes == self.buffer.len() { self.flush() } else { Ok(()) }
    }

    /// Sends the text in the buffer.
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

    /// Counts text that does not go through [`TextSender::unfilled_buffer`].
    pub(super) fn add_text_bytes(&mut self, text_bytes: usize) {
        self.text_bytes += text_bytes as u64;
    }

    /// Reports whether an access point should be recorded at the next opportunity.
    pub(super) fn is_access_point_due(&self) -> bool {
        self.recorder.as_ref().is_some_and(|notes| self.text_bytes >= notes.next_text_offset)
    }

    /// Sends an access point behind all text so far.
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

    /// Skips an access point that could not be made.
    pub(super) fn postpone_access_point(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.next_text_offset = self.text_bytes + recorder.spacing.min_bytes;
        }
    }

    /// Returns the last bytes of text, at most `bytes`; everything was flushed.
    pub(super) fn window(&self, bytes: usize) -> Vec<u8> {
        let window = self.recorder.as_ref().map_or(&[][..], |notes| &notes.window);
        window[window.len() - window.len().min(bytes)..].to_vec()
    }

    /// Sends a message behind everything flushed before.
    pub(super) fn send_message(&mut self, message: ReadAheadMessage) -> Result<(), InputError> {
        let end = self.shared.consumed_bytes.load(Ordering::Relaxed);
        self.messages.send((message, end)).map_err(|_| InputError::Stopped)
    }

    /// Returns the receiver of recycled buffers.
    pub(super) fn recycled_buffers(&self) -> Receiver<Vec<u8>> {
        self.recycled_buffers.clone()
    }

    fn send_end(&mut self, result: Result<(), InputError>) {
        // Text before an error is sent first, so that the error names the right record. A dropped reader needs neither.
        let end = match result {
            Ok(()) => ReadAheadMessage::EndOfFile,
            Err(error) => ReadAheadMessage::Error(error),
        };
        drop(self.flush().and_then(|()| self.send_message(end)));
    }
}

/// Returns a buffer of `bytes` bytes, of arbitrary content.
pub(super) fn take_buffer(recycled_buffers: &Receiver<Vec<u8>>, bytes: usize) -> Vec<u8> {
    let mut chunk = recycled_buffers.try_recv().unwrap_or_default();
    chunk.resize(bytes, 0);
    chunk
}
