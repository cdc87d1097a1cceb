//! The text of a file as a window that advances record by record.

use std::ops::Range;
use std::path::{Path, PathBuf};

use memchr::memchr;

use super::MAX_RECORD_BYTES;
use super::error::{FastqError, RecordLocation};
use crate::bgzf::{AccessPointMode, ExpectedFormat, ReadAhead, ResumePoint};

/// Decompressed text from the start of the current record on.
#[derive(Debug)]
pub(super) struct TextWindow {
    path: PathBuf,
    input: ReadAhead,
    buffer: Vec<u8>,
    window_start: usize,
    /// Lines before the window.
    lines_before: u64,
    /// Bytes of text before the window, counted from the first that the input returned.
    consumed_bytes: u64,
    ended: bool,
    /// [`MAX_RECORD_BYTES`], except in tests.
    pub(super) max_record_bytes: usize,
}

/// A position in the window: `offset` bytes and `lines` lines after its start.
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

    /// Sets the number of lines before the window.
    pub(super) fn set_lines_before(&mut self, lines: u64) {
        self.lines_before = lines;
    }

    /// Returns the resume point of the text at the cursor, and the lines before it.
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

    /// Returns the bytes of the file up to the start of the window: buffered bytes do not count.
    pub(super) fn compressed_bytes_consumed(&self) -> u64 {
        let range = self.input.compressed_range();
        let fraction = self.window_start as f64 / self.buffer.len().max(1) as f64;
        range.start + ((range.end - range.start) as f64 * fraction) as u64
    }

    /// Returns the buffered text, from the start of the current record on.
    pub(super) fn window(&self) -> &[u8] {
        &self.buffer[self.window_start..]
    }

    /// Moves the start of the window to the cursor.
    pub(super) fn consume(&mut self, cursor: TextPosition) {
        self.window_start += cursor.offset;
        self.consumed_bytes += cursor.offset as u64;
        self.lines_before += cursor.lines;
    }

    /// Returns the line at the cursor, without its line end (`
    /// ` or `\r
    /// `), as a range of the window; `None` at the end of the text. The cursor moves past it. `records` counts the complete
    /// records before the window, for errors.
    ///
    /// bwa 0.7.17 (kseq.h, `ks_getuntil2`) keeps a carriage return that is all of a line or of a comment, and then prints
    /// broken SAM lines; here it is removed.
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

    /// Extends the window by a text buffer; returns `false` at the end of the text.
    pub(super) fn refill(&mut self, records: u64) -> Result<bool, FastqError> {
        if self.ended {
            return Ok(false);
        }
        if self.window().len() > self.max_record_bytes {
            let (location, limit_bytes) = (self.location(0, records), self.max_record_bytes);
            return Err(FastqError::RecordTooLong { location, limit_bytes });
        }
        let chunk = self.input.next().map_err(|error| FastqError::from_input_error(records, &self.path, error))?;
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

    /// Returns the location of the line `lines` lines after the start of the window, in the record after `records` complete
    /// ones.
    pub(super) fn location(&self, lines: u64, records: u64) -> RecordLocation {
        RecordLocation { file: self.path.clone(), record: records + 1, line: self.lines_before + lines + 1 }
    }
}
