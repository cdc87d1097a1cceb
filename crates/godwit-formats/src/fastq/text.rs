//! The text of a file as a window that slides over it record by record.

use std::ops::Range;
use std::path::{Path, PathBuf};

use memchr::memchr;

use super::MAX_RECORD_BYTES;
use super::error::{FastqError, Place};
use crate::bgzf::{Accept, Points, ReadAhead, Start};

/// Decompressed text from the start of the current record on.
#[derive(Debug)]
pub(super) struct Text {
    path: PathBuf,
    input: ReadAhead,
    buffer: Vec<u8>,
    start: usize,
    /// Lines before the window.
    lines: u64,
    /// Bytes before the window, of what was handed out.
    passed_bytes: u64,
    ended: bool,
    /// [`MAX_RECORD_BYTES`], but for tests.
    pub(super) limit_bytes: usize,
}

/// A place in the window: `at` bytes and `lines` lines after its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    pub(super) at: usize,
    pub(super) lines: u64,
}

impl Text {
    pub(super) fn open(path: &Path, threads: usize, lenient: bool) -> Result<Self, FastqError> {
        let input = ReadAhead::open(path, threads, Accept::Text { lenient }, Points::Unused);
        Ok(Self::new(path, input.map_err(|fault| FastqError::after(0, path, fault))?))
    }

    pub(super) fn new(path: &Path, input: ReadAhead) -> Self {
        Self {
            path: path.to_path_buf(),
            input,
            buffer: Vec::new(),
            start: 0,
            lines: 0,
            passed_bytes: 0,
            ended: false,
            limit_bytes: MAX_RECORD_BYTES,
        }
    }

    /// As if there had been that many lines before.
    pub(super) fn count_from(&mut self, lines: u64) {
        self.lines = lines;
    }

    /// Where to begin another time to have the text at the cursor first, and the lines before it.
    pub(super) fn start_at(&mut self, cursor: Cursor) -> Option<(Start, u64)> {
        let start = self.input.start_after(self.passed_bytes + cursor.at as u64)?;
        Some((start, self.lines + cursor.lines))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn input(&self) -> &ReadAhead {
        &self.input
    }

    /// Bytes of the file up to the start of the window: what is buffered does not count.
    pub(super) fn bytes_passed(&self) -> u64 {
        let span = self.input.span();
        let share = self.start as f64 / self.buffer.len().max(1) as f64;
        span.start + ((span.end - span.start) as f64 * share) as u64
    }

    /// What is at hand, from the start of the current record on.
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Moves the start of the window to the cursor.
    pub(super) fn consume(&mut self, cursor: Cursor) {
        self.start += cursor.at;
        self.passed_bytes += cursor.at as u64;
        self.lines += cursor.lines;
    }

    /// The line at the cursor, without its line end (`\n` or `\r\n`), as a range of the window; `None` at the end of the
    /// text. The cursor moves past it. `records` counts the whole records before the window, for errors.
    ///
    /// bwa 0.7.17 (kseq.h, `ks_getuntil2`) keeps a carriage return that is all of a line or of a comment, and prints
    /// broken SAM lines then; here it is none.
    pub(super) fn line(&mut self, cursor: &mut Cursor, records: u64) -> Result<Option<Range<usize>>, FastqError> {
        let start = cursor.at;
        let mut searched = start;
        let (mut end, next) = loop {
            if let Some(found) = memchr(b'\n', &self.window()[searched..]) {
                break (searched + found, searched + found + 1);
            }
            searched = self.window().len();
            if !self.refill(records)? {
                if searched == start {
                    return Ok(None);
                }
                break (searched, searched);
            }
        };
        if end > start && self.window()[end - 1] == b'\r' {
            end -= 1;
        }
        *cursor = Cursor { at: next, lines: cursor.lines + 1 };
        Ok(Some(start..end))
    }

    /// Makes the window longer by a chunk; `false` at the end of the text.
    pub(super) fn refill(&mut self, records: u64) -> Result<bool, FastqError> {
        if self.ended {
            return Ok(false);
        }
        if self.window().len() > self.limit_bytes {
            let (place, limit_bytes) = (self.place(0, records), self.limit_bytes);
            return Err(FastqError::RecordTooLong { place, limit_bytes });
        }
        let chunk = self.input.next().map_err(|fault| FastqError::after(records, &self.path, fault))?;
        let Some(chunk) = chunk else {
            self.ended = true;
            return Ok(false);
        };
        if self.window().is_empty() {
            self.input.recycle(std::mem::replace(&mut self.buffer, chunk));
        } else {
            self.buffer.drain(..self.start);
            self.buffer.extend_from_slice(&chunk);
            self.input.recycle(chunk);
        }
        self.start = 0;
        Ok(true)
    }

    /// The line that many lines after the start of the window, in the record after `records` whole ones.
    pub(super) fn place(&self, lines: u64, records: u64) -> Place {
        Place { file: self.path.clone(), record: records + 1, line: self.lines + lines + 1 }
    }
}
