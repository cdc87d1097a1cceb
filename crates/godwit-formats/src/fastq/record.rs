//! The records of one file: strict FASTQ, or FASTA as bwa reads it.
//!
//! Four-line records are found by [`four_lines`]. Everything else goes the careful way here, which alone decides what an
//! odd record means and which error it is: wrapped records, FASTA, reads without bases, the last line without a line
//! feed, records across two chunks.

use std::ops::Range;
use std::path::Path;

use super::FilePlace;
use super::error::{FastqError, Place, shown_name};
use super::layout::{self, Layout, MAX_NAME_BYTES, four_lines, is_base, is_comment, is_printable};
use super::text::{Cursor, Text};
use crate::bgzf;

/// A read as it is handed to the aligner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) name: &'a [u8],
    pub(super) comment: Option<&'a [u8]>,
    pub(super) sequence: &'a [u8],
    /// `None` for FASTA and where there are no bases: bwa has no qualities then either.
    pub(super) quality: Option<&'a [u8]>,
}

/// The records of a file, one at a time.
#[derive(Debug)]
pub(super) struct Records {
    text: Text,
    lenient: bool,
    /// What titles start with, once the first record said.
    marker: Option<u8>,
    layout: Layout,
    /// Lines of a wrapped sequence, joined.
    sequence: Vec<u8>,
    /// Lines of its qualities, joined.
    quality: Vec<u8>,
    records: u64,
}

impl Records {
    /// Opens a file; `threads` of it decompress if it is BGZF.
    pub(super) fn open(path: &Path, threads: usize, lenient: bool) -> Result<Self, FastqError> {
        Ok(Self::new(Text::open(path, threads, lenient)?, lenient))
    }

    /// The records of a file that is open.
    pub(super) fn of(input: bgzf::Reader, lenient: bool) -> Self {
        let (path, input) = input.into_read_ahead();
        Self::new(Text::new(&path, input), lenient)
    }

    pub(super) fn new(text: Text, lenient: bool) -> Self {
        let layout = Layout::default();
        Self { text, lenient, marker: None, layout, sequence: Vec::new(), quality: Vec::new(), records: 0 }
    }

    /// The records of a file that is open where an earlier reader told to begin.
    pub(super) fn from_place(input: bgzf::Reader, lenient: bool, place: &FilePlace) -> Self {
        let mut records = Self::of(input, lenient);
        records.text.count_from(place.lines);
        Self { marker: Some(place.marker), records: place.records, ..records }
    }

    /// Waits until there is text, or the end of it.
    pub(super) fn begin(&mut self) -> Result<(), FastqError> {
        if self.text.window().is_empty() {
            self.text.refill(self.records)?;
        }
        Ok(())
    }

    /// Where the record after the current one starts; `None` before the first record, and where reading cannot begin
    /// another time.
    pub(super) fn next_place(&mut self) -> Option<FilePlace> {
        let marker = self.marker?;
        let (start, lines) = self.text.start_at(self.layout.next)?;
        Some(FilePlace { start, lines, records: self.records, marker })
    }

    /// Steps to the next record; `false` at the end of the file.
    pub(super) fn advance(&mut self) -> Result<bool, FastqError> {
        let last = std::mem::take(&mut self.layout);
        self.text.consume(last.next);
        let quick = if self.marker == Some(b'@') { four_lines(self.text.window()) } else { None };
        self.layout = match quick {
            Some(layout) => layout,
            None => match self.careful()? {
                Some(layout) => layout,
                None if self.records == 0 => return Err(FastqError::Empty { file: self.file().to_path_buf() }),
                None => return Ok(false),
            },
        };
        self.records += 1;
        Ok(true)
    }

    /// The current record, after [`Records::advance`] said that there is one.
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

    /// The file as it was named.
    pub(super) fn file(&self) -> &Path {
        self.text.path()
    }

    /// Records so far, the current one included.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn checksum(&self) -> Option<String> {
        self.text.input().checksum()
    }

    /// Where the current record starts. Costs nothing until something is wrong.
    pub(super) fn here(&self) -> Place {
        self.text.place(0, self.records - 1)
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.text.input().bytes_read()
    }

    pub(super) fn bytes_passed(&self) -> u64 {
        self.text.bytes_passed()
    }

    pub(super) fn bytes_total(&self) -> Option<u64> {
        self.text.input().bytes_total()
    }

    /// Lays out the record at the start of the window; `None` at the end of the text.
    fn careful(&mut self) -> Result<Option<Layout>, FastqError> {
        // Looked at before a line is searched for: what is no FASTQ at all may have no lines.
        if self.text.window().is_empty() && !self.text.refill(self.records)? {
            return Ok(None);
        }
        let found = self.text.window()[0];
        if matches!(found, b'\n' | b'\r') {
            if self.only_blank_lines(Cursor::default())? {
                return Ok(None);
            }
            return Err(FastqError::BlankLine { place: self.place(0) });
        }
        let expected = self.marker.unwrap_or(if found == b'>' { b'>' } else { b'@' });
        if found != expected {
            return Err(FastqError::NoTitle { place: self.place(0), expected, found });
        }
        self.marker = Some(expected);
        let mut cursor = Cursor::default();
        let title = self.line(&mut cursor)?.unwrap_or_default();
        let mut layout = self.title(title.clone())?;
        if expected == b'@' {
            self.fastq(&mut layout, title, &mut cursor)?;
        } else {
            self.fasta(&mut layout, &mut cursor)?;
        }
        layout.next = cursor;
        Ok(Some(layout))
    }

    /// Lays out a title line and checks name and comment.
    fn title(&self, line: Range<usize>) -> Result<Layout, FastqError> {
        let window = self.text.window();
        let title = line.start + 1..line.end;
        // isspace() of C but the line feed, which ends the line.
        let space = |&byte: &u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r');
        let name_bytes = window[title.clone()].iter().position(space).unwrap_or(title.len());
        let (name, comment) = layout::split_title(window, title, name_bytes);
        let (name_text, comment_text) = (&window[name.clone()], &window[comment.clone()]);
        let place = || self.place(0);
        if name.is_empty() {
            return Err(FastqError::NoName { place: place() });
        }
        if let Some(&found) = name_text.iter().find(|&&byte| !is_printable(byte)) {
            return Err(FastqError::InvalidName { place: place(), found });
        }
        if name.len() > MAX_NAME_BYTES {
            let name_bytes = name.len();
            return Err(FastqError::NameTooLong { place: place(), name_bytes, name: shown_name(name_text) });
        }
        if let Some(&found) = comment_text.iter().find(|&&byte| !is_comment(byte)) {
            return Err(FastqError::InvalidComment { place: place(), name: shown_name(name_text), found });
        }
        Ok(Layout { name, comment, ..Layout::default() })
    }

    /// Lays out what follows the title of a FASTQ record.
    fn fastq(&mut self, layout: &mut Layout, title: Range<usize>, cursor: &mut Cursor) -> Result<(), FastqError> {
        let sequence_line = cursor.lines;
        let plus = self.sequence_lines(layout, cursor)?;
        self.check_bases(layout, sequence_line)?;
        let window = self.text.window();
        let repeated = &window[plus.start + 1..plus.end];
        if !repeated.is_empty() && repeated != &window[title.start + 1..title.end] && !self.lenient {
            let place = self.place(cursor.lines - 1);
            return Err(FastqError::PlusLineDiffers { place, name: self.name(layout) });
        }
        let quality_line = cursor.lines;
        self.quality_lines(layout, cursor)?;
        if let Some(quality) = layout.quality.clone() {
            let text = if layout.wrapped { &self.quality[quality] } else { &self.text.window()[quality] };
            if let Some(at) = text.iter().position(|&byte| !is_printable(byte)) {
                let (place, name) = (self.place(quality_line), self.name(layout));
                return Err(FastqError::InvalidQuality { place, name, quality: at + 1, found: text[at] });
            }
        }
        Ok(())
    }

    /// Lays out the lines of a sequence up to the `+` line, which is returned.
    fn sequence_lines(&mut self, layout: &mut Layout, cursor: &mut Cursor) -> Result<Range<usize>, FastqError> {
        let (mut lines, mut blank) = (0_usize, None);
        layout.sequence = cursor.at..cursor.at;
        loop {
            let number = cursor.lines;
            let Some(line) = self.line(cursor)? else {
                let missing = if lines == 0 && blank.is_none() { "sequence" } else { "'+' line" };
                return Err(FastqError::TruncatedRecord { place: self.place(number), missing });
            };
            match self.text.window()[line.clone()].first().copied() {
                Some(b'+') => return Ok(line),
                Some(b'@' | b'>') => return Err(FastqError::MissingPlus { place: self.place(number) }),
                // One empty line is the sequence of a read without bases, if nothing else is.
                None if lines == 0 && blank.is_none() => blank = Some(number),
                None => return Err(FastqError::BlankLine { place: self.place(blank.unwrap_or(number)) }),
                Some(_) => match blank {
                    Some(number) => return Err(FastqError::BlankLine { place: self.place(number) }),
                    None => self.add_sequence_line(layout, line, &mut lines),
                },
            }
        }
    }

    /// Adds a line to the sequence, in place while there is one, joined from the second on.
    fn add_sequence_line(&mut self, layout: &mut Layout, line: Range<usize>, lines: &mut usize) {
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

    /// Lays out the qualities: as many lines as the length of the sequence takes, as bwa reads them.
    ///
    /// After a sequence of one line, further lines may just as well be the next record, taken for the missing end of these
    /// qualities. They are taken for that unless they come out even and a title, or nothing, follows.
    fn quality_lines(&mut self, layout: &mut Layout, cursor: &mut Cursor) -> Result<(), FastqError> {
        let (bases, first_line) = (layout.sequence.len(), cursor.lines);
        let line = self.line(cursor)?;
        if line.is_none() && bases > 0 {
            return Err(FastqError::TruncatedRecord { place: self.place(first_line), missing: "qualities" });
        }
        let mut quality = line.unwrap_or_default();
        let mut qualities = quality.len();
        if layout.wrapped || (1..bases).contains(&qualities) {
            let joined = self.join_quality_lines(quality, bases, cursor)?;
            let even = joined == bases && (layout.wrapped || self.title_or_end_follows(*cursor)?);
            if even || layout.wrapped {
                qualities = joined;
            }
            quality = 0..joined;
            if !layout.wrapped {
                // Both are joined lines, or neither is.
                self.add_sequence_line(layout, cursor.at..cursor.at, &mut 1);
            }
        }
        if qualities != bases {
            let (place, name) = (self.place(first_line), self.name(layout));
            return Err(FastqError::LengthMismatch { place, name, bases, qualities });
        }
        layout.quality = (bases > 0).then_some(quality);
        Ok(())
    }

    /// Joins lines to the first one of the qualities until there are `bases`, and returns how many there are. An empty line
    /// or the end of the text ends them too.
    fn join_quality_lines(
        &mut self,
        first: Range<usize>,
        bases: usize,
        cursor: &mut Cursor,
    ) -> Result<usize, FastqError> {
        let ended = first.is_empty();
        self.quality.clear();
        self.quality.extend_from_slice(&self.text.window()[first]);
        while self.quality.len() < bases && !ended {
            match self.line(cursor)? {
                Some(line) if !line.is_empty() => self.quality.extend_from_slice(&self.text.window()[line]),
                _ => break,
            }
        }
        Ok(self.quality.len())
    }

    /// Lays out the sequence of a FASTA record: the lines up to the next title or the end.
    fn fasta(&mut self, layout: &mut Layout, cursor: &mut Cursor) -> Result<(), FastqError> {
        let (first_line, mut lines) = (cursor.lines, 0);
        loop {
            let before = *cursor;
            let Some(line) = self.line(cursor)? else { break };
            match self.text.window()[line.clone()].first().copied() {
                Some(b'>' | b'@') => {
                    *cursor = before;
                    break;
                }
                Some(_) => self.add_sequence_line(layout, line, &mut lines),
                None if self.only_blank_lines(*cursor)? => {}
                // An empty line is the sequence of a read without bases, if the next title follows.
                None if lines == 0 && self.title_follows(*cursor)? => {}
                None => return Err(FastqError::BlankLine { place: self.place(before.lines) }),
            }
        }
        self.check_bases(layout, first_line)
    }

    fn check_bases(&self, layout: &Layout, line: u64) -> Result<(), FastqError> {
        let text = if layout.wrapped { self.sequence.as_slice() } else { self.text.window() };
        let sequence = &text[layout.sequence.clone()];
        let Some(at) = sequence.iter().position(|&byte| !is_base(byte)) else { return Ok(()) };
        let (place, name) = (self.place(line), self.name(layout));
        Err(FastqError::InvalidBase { place, name, base: at + 1, found: sequence[at] })
    }

    /// Whether nothing but empty lines stands from the cursor to the end.
    fn only_blank_lines(&mut self, mut cursor: Cursor) -> Result<bool, FastqError> {
        while let Some(line) = self.line(&mut cursor)? {
            if !line.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn title_or_end_follows(&mut self, mut cursor: Cursor) -> Result<bool, FastqError> {
        let Some(line) = self.line(&mut cursor)? else { return Ok(true) };
        Ok(line.is_empty() || self.text.window()[line].starts_with(b"@"))
    }

    fn title_follows(&mut self, mut cursor: Cursor) -> Result<bool, FastqError> {
        let Some(line) = self.line(&mut cursor)? else { return Ok(false) };
        Ok(self.text.window()[line].starts_with(b">"))
    }

    fn line(&mut self, cursor: &mut Cursor) -> Result<Option<Range<usize>>, FastqError> {
        self.text.line(cursor, self.records)
    }

    fn place(&self, lines: u64) -> Place {
        self.text.place(lines, self.records)
    }

    fn name(&self, layout: &Layout) -> String {
        shown_name(&self.text.window()[layout.name.clone()])
    }
}
