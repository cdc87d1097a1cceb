//! A reader of the records of one file: strict FASTQ, or FASTA as bwa reads it.
//!
//! [`parse_four_line_record`] parses records of four lines. The slow parser in this module parses all other records,
//! and alone decides about the meaning and the errors of unusual records. These are records with several lines of
//! sequence, FASTA, reads without bases, a last line without a line feed, and records that extend over two text
//! buffers.

use std::ops::Range;
use std::path::Path;

use godwit_io::bgzf;

use super::FastqResumePoint;
use super::error::{FastqError, RecordLocation, name_excerpt};
use super::record_layout::{
    self, MAX_NAME_BYTES, RecordLayout, is_base, is_comment, is_printable, parse_four_line_record,
};
use super::text_window::{TextPosition, TextWindow};

/// A read in the form that the aligner receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) name: &'a [u8],
    pub(super) comment: Option<&'a [u8]>,
    pub(super) sequence: &'a [u8],
    /// Qualities; `None` for FASTA and for reads without bases, as in bwa.
    pub(super) quality: Option<&'a [u8]>,
}

/// A reader of the records of a FASTQ or FASTA file.
#[derive(Debug)]
pub(super) struct RecordReader {
    text: TextWindow,
    lenient: bool,
    /// First byte of the title lines; `None` before the first record.
    marker: Option<u8>,
    layout: RecordLayout,
    /// Joined lines of a sequence that has several lines.
    sequence: Vec<u8>,
    /// Joined lines of the qualities of such a record.
    quality: Vec<u8>,
    record_count: u64,
}

impl RecordReader {
    /// Opens a file. If the file is BGZF, `threads` threads decompress it.
    pub(super) fn open(path: &Path, threads: usize, lenient: bool) -> Result<Self, FastqError> {
        Ok(Self::new(TextWindow::open(path, threads, lenient)?, lenient))
    }

    /// Creates a reader of the records of an open file.
    pub(super) fn from_bgzf(input: bgzf::Reader, lenient: bool) -> Self {
        let (path, input) = input.into_read_ahead();
        Self::new(TextWindow::new(&path, input), lenient)
    }

    pub(super) fn new(text: TextWindow, lenient: bool) -> Self {
        let layout = RecordLayout::default();
        Self { text, lenient, marker: None, layout, sequence: Vec::new(), quality: Vec::new(), record_count: 0 }
    }

    /// Creates a reader of the records of an open file that resumes at a resume point of an earlier reader.
    pub(super) fn from_resume_point(input: bgzf::Reader, lenient: bool, resume_point: &FastqResumePoint) -> Self {
        let mut records = Self::from_bgzf(input, lenient);
        records.text.set_lines_before(resume_point.lines);
        Self { marker: Some(resume_point.marker), record_count: resume_point.records, ..records }
    }

    /// Waits until the first text has been decompressed or the file has ended.
    pub(super) fn wait_for_text(&mut self) -> Result<(), FastqError> {
        if self.text.window().is_empty() {
            self.text.refill(self.record_count)?;
        }
        Ok(())
    }

    /// Returns the resume point of the record after the current one. Returns `None` before the first record, and if
    /// reading cannot be resumed.
    pub(super) fn next_resume_point(&mut self) -> Option<FastqResumePoint> {
        let marker = self.marker?;
        let (resume_point, lines) = self.text.resume_point_at(self.layout.next_record)?;
        Some(FastqResumePoint { resume_point, lines, records: self.record_count, marker })
    }

    /// Advances to the next record; returns `false` at the end of the file.
    pub(super) fn advance(&mut self) -> Result<bool, FastqError> {
        let last = std::mem::take(&mut self.layout);
        self.text.consume(last.next_record);
        let four_line_record =
            if self.marker == Some(b'@') { parse_four_line_record(self.text.window()) } else { None };
        self.layout = match four_line_record {
            Some(layout) => layout,
            None => match self.parse_record()? {
                Some(layout) => layout,
                None if self.record_count == 0 => return Err(FastqError::Empty { file: self.file().to_path_buf() }),
                None => return Ok(false),
            },
        };
        self.record_count += 1;
        Ok(true)
    }

    /// Returns the current record; valid after [`RecordReader::advance`] returned `true`.
    pub(super) fn record(&self) -> Record<'_> {
        let (window, layout) = (self.text.window(), &self.layout);
        let comment = &window[layout.comment.clone()];
        let (sequence, quality) =
            if layout.wrapped { (&self.sequence[..], &self.quality[..]) } else { (window, window) };
        Record {
            name: &window[layout.name.clone()],
            comment: (!comment.is_empty()).then_some(comment),
            sequence: &sequence[layout.sequence.clone()],
            quality: layout.quality.clone().map(|range| &quality[range]),
        }
    }

    /// Returns the path of the file as the caller passed it.
    pub(super) fn file(&self) -> &Path {
        self.text.path()
    }

    /// Returns the number of records read so far, including the current record.
    pub(super) fn record_count(&self) -> u64 {
        self.record_count
    }

    pub(super) fn checksum(&self) -> Option<String> {
        self.text.input().checksum()
    }

    /// Returns the location of the current record. Call this only for errors, because the location is computed on each
    /// call.
    pub(super) fn record_location(&self) -> RecordLocation {
        self.text.location(0, self.record_count - 1)
    }

    pub(super) fn compressed_bytes_read(&self) -> u64 {
        self.text.input().compressed_bytes_read()
    }

    pub(super) fn compressed_bytes_consumed(&self) -> u64 {
        self.text.compressed_bytes_consumed()
    }

    pub(super) fn compressed_bytes_total(&self) -> Option<u64> {
        self.text.input().compressed_bytes_total()
    }

    /// Parses the record at the start of the window; returns `None` at the end of the text.
    fn parse_record(&mut self) -> Result<Option<RecordLayout>, FastqError> {
        // Check this before the search for a line end, because a file that is not FASTQ may contain no line ends.
        if self.text.window().is_empty() && !self.text.refill(self.record_count)? {
            return Ok(None);
        }
        let found = self.text.window()[0];
        if matches!(found, b'\n' | b'\r') {
            if self.only_blank_lines_follow(TextPosition::default())? {
                return Ok(None);
            }
            return Err(FastqError::BlankLine { location: self.location(0) });
        }
        let expected = self.marker.unwrap_or(if found == b'>' { b'>' } else { b'@' });
        if found != expected {
            return Err(FastqError::NoTitle { location: self.location(0), expected, found });
        }
        self.marker = Some(expected);
        let mut cursor = TextPosition::default();
        let title = self.next_line(&mut cursor)?.unwrap_or_default();
        let mut layout = self.parse_title_line(title.clone())?;
        if expected == b'@' {
            self.parse_fastq_lines(&mut layout, title, &mut cursor)?;
        } else {
            self.parse_fasta_lines(&mut layout, &mut cursor)?;
        }
        layout.next_record = cursor;
        Ok(Some(layout))
    }

    /// Parses a title line and checks the name and the comment.
    fn parse_title_line(&self, line: Range<usize>) -> Result<RecordLayout, FastqError> {
        let window = self.text.window();
        let title = line.start + 1..line.end;
        // The white-space characters of `isspace()` in C, except the line feed, which ends the line.
        let space = |&byte: &u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r');
        let name_bytes = window[title.clone()].iter().position(space).unwrap_or(title.len());
        let (name, comment) = record_layout::split_title(window, title, name_bytes);
        let (name_text, comment_text) = (&window[name.clone()], &window[comment.clone()]);
        let location = || self.location(0);
        if name.is_empty() {
            return Err(FastqError::NoName { location: location() });
        }
        if let Some(&found) = name_text.iter().find(|&&byte| !is_printable(byte)) {
            return Err(FastqError::InvalidName { location: location(), found });
        }
        if name.len() > MAX_NAME_BYTES {
            let name_bytes = name.len();
            return Err(FastqError::NameTooLong { location: location(), name_bytes, name: name_excerpt(name_text) });
        }
        if let Some(&found) = comment_text.iter().find(|&&byte| !is_comment(byte)) {
            return Err(FastqError::InvalidComment { location: location(), name: name_excerpt(name_text), found });
        }
        Ok(RecordLayout { name, comment, ..RecordLayout::default() })
    }

    /// Parses the lines after the title of a FASTQ record.
    fn parse_fastq_lines(
        &mut self,
        layout: &mut RecordLayout,
        title: Range<usize>,
        cursor: &mut TextPosition,
    ) -> Result<(), FastqError> {
        let sequence_line = cursor.lines;
        let plus = self.parse_sequence_lines(layout, cursor)?;
        self.check_bases(layout, sequence_line)?;
        let window = self.text.window();
        let repeated = &window[plus.start + 1..plus.end];
        if !repeated.is_empty() && repeated != &window[title.start + 1..title.end] && !self.lenient {
            let location = self.location(cursor.lines - 1);
            return Err(FastqError::PlusLineDiffers { location, name: self.name_excerpt(layout) });
        }
        let quality_line = cursor.lines;
        self.parse_quality_lines(layout, cursor)?;
        if let Some(quality) = layout.quality.clone() {
            let text = if layout.wrapped { &self.quality[quality] } else { &self.text.window()[quality] };
            if let Some(at) = text.iter().position(|&byte| !is_printable(byte)) {
                let (location, name) = (self.location(quality_line), self.name_excerpt(layout));
                return Err(FastqError::InvalidQuality { location, name, quality: at + 1, found: text[at] });
            }
        }
        Ok(())
    }

    /// Parses the lines of a sequence up to the `+` line, and returns the range of the `+` line.
    fn parse_sequence_lines(
        &mut self,
        layout: &mut RecordLayout,
        cursor: &mut TextPosition,
    ) -> Result<Range<usize>, FastqError> {
        let (mut lines, mut blank) = (0_usize, None);
        layout.sequence = cursor.offset..cursor.offset;
        loop {
            let number = cursor.lines;
            let Some(line) = self.next_line(cursor)? else {
                let missing = if lines == 0 && blank.is_none() { "sequence" } else { "'+' line" };
                return Err(FastqError::TruncatedRecord { location: self.location(number), missing });
            };
            match self.text.window()[line.clone()].first().copied() {
                Some(b'+') => return Ok(line),
                Some(b'@' | b'>') => return Err(FastqError::MissingPlus { location: self.location(number) }),
                // A single empty line is the sequence of a read without bases.
                None if lines == 0 && blank.is_none() => blank = Some(number),
                None => return Err(FastqError::BlankLine { location: self.location(blank.unwrap_or(number)) }),
                Some(_) => match blank {
                    Some(number) => return Err(FastqError::BlankLine { location: self.location(number) }),
                    None => self.add_sequence_line(layout, line, &mut lines),
                },
            }
        }
    }

    /// Adds a line to the sequence. A sequence of one line is a range of the window; from the second line on, the lines
    /// are joined in a buffer.
    fn add_sequence_line(&mut self, layout: &mut RecordLayout, line: Range<usize>, lines: &mut usize) {
        let window = self.text.window();
        *lines += 1;
        if *lines == 1 {
            layout.sequence = line;
            return;
        }
        if *lines == 2 {
            self.sequence.clear();
            self.sequence.extend_from_slice(&window[layout.sequence.clone()]);
        }
        self.sequence.extend_from_slice(&window[line]);
        layout.sequence = 0..self.sequence.len();
        layout.wrapped = true;
    }

    /// Parses the lines of the qualities: as many lines as are needed for the length of the sequence, as in bwa.
    ///
    /// If the sequence has one line and the first quality line is too short, the following lines may be more qualities
    /// or the next record. They count as qualities only if the total length is exactly right, and a title, an empty
    /// line or the end of the text follows.
    fn parse_quality_lines(&mut self, layout: &mut RecordLayout, cursor: &mut TextPosition) -> Result<(), FastqError> {
        let (bases, first_line) = (layout.sequence.len(), cursor.lines);
        let line = self.next_line(cursor)?;
        if line.is_none() && bases > 0 {
            return Err(FastqError::TruncatedRecord { location: self.location(first_line), missing: "qualities" });
        }
        let mut quality = line.unwrap_or_default();
        let mut qualities = quality.len();
        if layout.wrapped || (1..bases).contains(&qualities) {
            let joined = self.join_quality_lines(quality, bases, cursor)?;
            let is_complete = joined == bases && (layout.wrapped || self.title_or_end_follows(*cursor)?);
            if is_complete || layout.wrapped {
                qualities = joined;
            }
            quality = 0..joined;
            if !layout.wrapped {
                // Sequence and qualities must either both be joined lines or both be ranges of the window.
                self.add_sequence_line(layout, cursor.offset..cursor.offset, &mut 1);
            }
        }
        if qualities != bases {
            let (location, name) = (self.location(first_line), self.name_excerpt(layout));
            return Err(FastqError::LengthMismatch { location, name, bases, qualities });
        }
        layout.quality = (bases > 0).then_some(quality);
        Ok(())
    }

    /// Appends further lines to the first line of the qualities until there are `bases` qualities, and returns their
    /// number. An empty line or the end of the text also ends the qualities.
    fn join_quality_lines(
        &mut self,
        first: Range<usize>,
        bases: usize,
        cursor: &mut TextPosition,
    ) -> Result<usize, FastqError> {
        let ended = first.is_empty();
        self.quality.clear();
        self.quality.extend_from_slice(&self.text.window()[first]);
        while self.quality.len() < bases && !ended {
            match self.next_line(cursor)? {
                Some(line) if !line.is_empty() => self.quality.extend_from_slice(&self.text.window()[line]),
                _ => break,
            }
        }
        Ok(self.quality.len())
    }

    /// Parses the sequence of a FASTA record: all lines up to the next title or the end of the text.
    fn parse_fasta_lines(&mut self, layout: &mut RecordLayout, cursor: &mut TextPosition) -> Result<(), FastqError> {
        let (first_line, mut lines) = (cursor.lines, 0);
        loop {
            let before = *cursor;
            let Some(line) = self.next_line(cursor)? else { break };
            match self.text.window()[line.clone()].first().copied() {
                Some(b'>' | b'@') => {
                    *cursor = before;
                    break;
                }
                Some(_) => self.add_sequence_line(layout, line, &mut lines),
                None if self.only_blank_lines_follow(*cursor)? => {}
                // An empty line is the sequence of a read without bases if the next title follows it.
                None if lines == 0 && self.title_follows(*cursor)? => {}
                None => return Err(FastqError::BlankLine { location: self.location(before.lines) }),
            }
        }
        self.check_bases(layout, first_line)
    }

    fn check_bases(&self, layout: &RecordLayout, line: u64) -> Result<(), FastqError> {
        let text = if layout.wrapped { self.sequence.as_slice() } else { self.text.window() };
        let sequence = &text[layout.sequence.clone()];
        let Some(at) = sequence.iter().position(|&byte| !is_base(byte)) else { return Ok(()) };
        let (location, name) = (self.location(line), self.name_excerpt(layout));
        Err(FastqError::InvalidBase { location, name, base: at + 1, found: sequence[at] })
    }

    /// Returns whether only empty lines follow the cursor.
    fn only_blank_lines_follow(&mut self, mut cursor: TextPosition) -> Result<bool, FastqError> {
        while let Some(line) = self.next_line(&mut cursor)? {
            if !line.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn title_or_end_follows(&mut self, mut cursor: TextPosition) -> Result<bool, FastqError> {
        let Some(line) = self.next_line(&mut cursor)? else { return Ok(true) };
        Ok(line.is_empty() || self.text.window()[line].starts_with(b"@"))
    }

    fn title_follows(&mut self, mut cursor: TextPosition) -> Result<bool, FastqError> {
        let Some(line) = self.next_line(&mut cursor)? else { return Ok(false) };
        Ok(self.text.window()[line].starts_with(b">"))
    }

    fn next_line(&mut self, cursor: &mut TextPosition) -> Result<Option<Range<usize>>, FastqError> {
        self.text.next_line(cursor, self.record_count)
    }

    fn location(&self, lines: u64) -> RecordLocation {
        self.text.location(lines, self.record_count)
    }

    fn name_excerpt(&self, layout: &RecordLayout) -> String {
        name_excerpt(&self.text.window()[layout.name.clone()])
    }
}
