//! A window of the decompressed text of a file, which advances record by record.

use std::ops::Range;
use std::path::{Path, PathBuf};

use godwit_io::bgzf::{AccessPointMode, ExpectedFormat, ReadAhead, ResumePoint};
use memchr::memchr;

use super::MAX_RECORD_BYTES;
use super::error::{FastqError, RecordLocation};

/// The decompressed text of a file from the start of the current record on.
#[derive(Debug)]
pub(super) struct TextWindow {
    path: PathBuf,
    input: ReadAhead,
    buffer: Vec<u8>,
    window_start: usize,
    /// Number of lines of the file before the window.
    lines_before: u64,
    /// Number of bytes of text before the window, counted from the first byte that `input` returned.
    consumed_bytes: u64,
    ended: bool,
    /// Maximum bytes of a record: [`MAX_RECORD_BYTES`], or less in tests.
    pub(super) max_record_bytes: usize,
}

/// A position in the window, given by the bytes and the lines between the start of the window and the position.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextPosition {
    pub(super) offset: usize,
    pub(super) lines: u64,
}

impl TextWindow {
    pub(super) fn open(path: &Path, threads: usize, lenient: bool) -> Result<Self, FastqError> {
        let input = ReadAhead::open(path, threads, ExpectedFormat::Text { lenient }, AccessPointMode::Disabled);
        Ok(Self::new(path, input.map_err(|error| FastqError::from_input_error(0, path, error))?))
    }

    pub(super) fn new(path: &Path, input: ReadAhead) -> Self {
        Self {
            path: path.to_path_buf(),
            input,
            buffer: Vec::new(),
            window_start: 0,
            lines_before: 0,
            consumed_bytes: 0,
            ended: false,
            max_record_bytes: MAX_RECORD_BYTES,
        }
    }

    /// Sets the number of lines of the file before the window.
    pub(super) fn set_lines_before(&mut self, lines: u64) {
        self.lines_before = lines;
    }

    /// Returns the resume point of the text at the cursor, and the number of lines of the file before the cursor.
    pub(super) fn resume_point_at(&mut self, cursor: TextPosition) -> Option<(ResumePoint, u64)> {
        let start = self.input.resume_point_at(self.consumed_bytes + cursor.offset as u64)?;
        Some((start, self.lines_before + cursor.lines))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn input(&self) -> &ReadAhead {
        &self.input
    }

    /// Returns the estimated number of bytes of the file on disk up to the start of the window. Buffered text after it
    /// does not count.
    pub(super) fn compressed_bytes_consumed(&self) -> u64 {
        let range = self.input.compressed_range();
        let fraction = self.window_start as f64 / self.buffer.len().max(1) as f64;
        range.start + ((range.end - range.start) as f64 * fraction) as u64
    }

    /// Returns the buffered text, from the start of the current record on.
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.window_start..]
    }

    /// Advances the start of the window to the cursor.
    pub(super) fn consume(&mut self, cursor: TextPosition) {
        self.window_start += cursor.offset;
        self.consumed_bytes += cursor.offset as u64;
        self.lines_before += cursor.lines;
    }

    /// Returns the line at the cursor as a range of the window, without its line end (`\n` or `\r\n`), or `None` at the
    /// end of the text. The cursor advances past the line. `records` is the number of complete records before the
    /// window, for error messages.
    ///
    /// If a carriage return is the only character of a line or of a comment, bwa 0.7.17 keeps it (kseq.h,
    /// `ks_getuntil2`) and prints broken SAM lines. This function removes it.
    pub(super) fn next_line(
        &mut self,
        cursor: &mut TextPosition,
        records: u64,
    ) -> Result<Option<Range<usize>>, FastqError> {
        let start = cursor.offset;
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
        *cursor = TextPosition { offset: next, lines: cursor.lines + 1 };
        Ok(Some(start..end))
    }

    /// Appends the next text buffer to the window; returns `false` at the end of the text.
    pub(super) fn refill(&mut self, records: u64) -> Result<bool, FastqError> {
        if self.ended {
            return Ok(false);
        }
        if self.window().len() > self.max_record_bytes {
            let (location, limit_bytes) = (self.location(0, records), self.max_record_bytes);
            return Err(FastqError::RecordTooLong { location, limit_bytes });
        }
        let chunk = self.input.next_text().map_err(|error| FastqError::from_input_error(records, &self.path, error))?;
        let Some(chunk) = chunk else {
            self.ended = true;
            return Ok(false);
        };
        if self.window().is_empty() {
            self.input.recycle(std::mem::replace(&mut self.buffer, chunk));
        } else {
            self.buffer.drain(..self.window_start);
            self.buffer.extend_from_slice(&chunk);
            self.input.recycle(chunk);
        }
        self.window_start = 0;
        Ok(true)
    }

    /// Returns the location of the line that is `lines` lines after the start of the window. `records` is the number of
    /// complete records before.
    pub(super) fn location(&self, lines: u64, records: u64) -> RecordLocation {
        RecordLocation { file: self.path.clone(), record: records + 1, line: self.lines_before + lines + 1 }
    }
}
