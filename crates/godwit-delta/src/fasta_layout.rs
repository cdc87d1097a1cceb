//! The layout of a FASTA text: the titles, and the lengths of the lines between them.
//!
//! A piece of text is split into titles, the concatenated residues, and the lengths of the lines, most of which are
//! equal. A piece may start inside a line of residues. Any text can be split and restored byte by byte; whether it is
//! really FASTA shows only in the residues.

use godwit_io::varint::{VarintReader, append_varint};
use memchr::memchr;

/// Line length that represents a record with all residues on one line.
const UNBOUNDED_LINE_BASES: u64 = 0;

/// Records of at least this size are long: their titles and line ends are negligible. Bytes.
const LONG_RECORD_BYTES: usize = 10_000;

/// Consecutive lines of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LineGroup {
    /// Twice the number of residues of a line, plus one if the line ends with CR LF.
    width_code: u64,
    line_count: u64,
}

/// The lines of a record, without its title.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RecordLines {
    residue_count: u64,
    line_groups: Vec<LineGroup>,
}

/// Titles and line lengths of a piece of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FastaLayout {
    /// Titles without `>`, each followed by a line feed.
    titles: Vec<u8>,
    /// The lines before the first title, then those after each title.
    records: Vec<RecordLines>,
    /// True if the last line does not end with a line feed.
    lacks_final_newline: bool,
}

/// A record of a piece of text: the residues before the first title, or a title and the residues after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayoutRecord<'l> {
    /// Title without `>` and line feed; `None` for residues whose title is in an earlier piece.
    pub(super) title: Option<&'l [u8]>,
    pub(super) residue_count: u64,
}

/// Splits a piece of text into its layout and its residues, which are appended to `residues`. `starts_inside_line` is
/// true if the piece starts inside a line of residues.
pub(super) fn split_text(text: &[u8], starts_inside_line: bool, residues: &mut Vec<u8>) -> FastaLayout {
    let mut layout = FastaLayout { records: vec![RecordLines::default()], ..FastaLayout::default() };
    let mut rest = text;
    let mut within = starts_inside_line;
    while !rest.is_empty() {
        let end = memchr(b'\n', rest);
        let line = &rest[..end.unwrap_or(rest.len())];
        layout.lacks_final_newline = end.is_none();
        rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
        if line.first() == Some(&b'>') && !within {
            layout.titles.extend_from_slice(&line[1..]);
            layout.titles.push(b'\n');
            layout.records.push(RecordLines::default());
        } else {
            let (line, crlf) = match line.strip_suffix(b"\r") {
                Some(line) if end.is_some() => (line, 1),
                _ => (line, 0),
            };
            residues.extend_from_slice(line);
            let body = layout.records.last_mut().expect("there is one from the start");
            body.residue_count += line.len() as u64;
            let width_code = line.len() as u64 * 2 + crlf;
            match body.line_groups.last_mut() {
                Some(run) if run.width_code == width_code => run.line_count += 1,
                _ => body.line_groups.push(LineGroup { width_code, line_count: 1 }),
            }
        }
        within = false;
    }
    layout
}

impl RecordLines {
    /// Returns the lines of a record with `residue_count` residues, in which all lines except the last have the length
    /// of `width_code`.
    fn from_width_code(residue_count: u64, width_code: u64) -> Self {
        let (width, crlf) = (width_code / 2, width_code & 1);
        let mut line_groups = Vec::new();
        if width == UNBOUNDED_LINE_BASES {
            line_groups.extend(
                (residue_count > 0).then_some(LineGroup { width_code: residue_count * 2 + crlf, line_count: 1 }),
            );
        } else {
            let (full, rest) = (residue_count / width, residue_count % width);
            line_groups.extend((full > 0).then_some(LineGroup { width_code, line_count: full }));
            line_groups.extend((rest > 0).then_some(LineGroup { width_code: rest * 2 + crlf, line_count: 1 }));
        }
        Self { residue_count, line_groups }
    }

    /// Returns the width code of the lines if all lines except the last have the same length.
    fn width_code(&self) -> Option<u64> {
        let first = self.line_groups.first()?;
        let unbounded = first.width_code & 1;
        let codes =
            [(self.line_groups.len() == 1 && first.line_count == 1).then_some(unbounded), Some(first.width_code)];
        codes.into_iter().flatten().find(|code| Self::from_width_code(self.residue_count, *code) == *self)
    }
}

impl FastaLayout {
    /// Returns the records of the piece in order.
    pub(super) fn records(&self) -> impl Iterator<Item = LayoutRecord<'_>> {
        let titles = self.titles.split_inclusive(|byte| *byte == b'\n').map(|title| &title[..title.len() - 1]);
        let titles = std::iter::once(None).chain(titles.map(Some));
        titles.zip(&self.records).map(|(title, body)| LayoutRecord { title, residue_count: body.residue_count })
    }

    /// Returns the number of residues of all records; `None` if it overflows.
    pub(super) fn residue_count(&self) -> Option<u64> {
        self.records.iter().try_fold(0_u64, |sum, body| sum.checked_add(body.residue_count))
    }

    /// Reports whether a text of `text_bytes` bytes has so few titles and line groups that compressing their repeats
    /// saves nothing.
    pub(super) fn has_few_lines(&self, text_bytes: usize) -> bool {
        let runs: usize = self.records.iter().map(|body| 1 + body.line_groups.len()).sum();
        runs * LONG_RECORD_BYTES < text_bytes + LONG_RECORD_BYTES * 4
    }

    /// Reports whether the last line does not end with a line feed.
    pub(super) fn lacks_final_newline(&self) -> bool {
        self.lacks_final_newline
    }

    /// Returns the titles without `>`, each followed by a line feed.
    pub(super) fn titles(&self) -> &[u8] {
        &self.titles
    }

    /// Encodes the line lengths. [`FastaLayout::decode`] is the inverse.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        append_varint(&mut out, (self.records.len() as u64 - 1) << 1 | u64::from(self.lacks_final_newline));
        let mut current = UNBOUNDED_LINE_BASES;
        for body in &self.records {
            if *body == RecordLines::from_width_code(body.residue_count, current) {
                append_varint(&mut out, body.residue_count << 2);
                continue;
            }
            if let Some(code) = body.width_code() {
                append_varint(&mut out, body.residue_count << 2 | 1);
                append_varint(&mut out, code);
                current = code;
                continue;
            }
            append_varint(&mut out, body.residue_count << 2 | 2);
            append_varint(&mut out, body.line_groups.len() as u64);
            for run in &body.line_groups {
                append_varint(&mut out, run.width_code);
                append_varint(&mut out, run.line_count);
            }
        }
        out
    }

    /// Decodes the output of [`FastaLayout::encode`]. Returns `None` if it is invalid, does not match `titles`, or
    /// describes more than `max_bytes` bytes of text.
    pub(super) fn decode(lines: &[u8], titles: Vec<u8>, max_bytes: u64) -> Option<Self> {
        let mut cursor = VarintReader::new(lines);
        let head = cursor.read_varint()?;
        let titled = memchr::memchr_iter(b'\n', &titles).count() as u64;
        let whole = titles.last().is_none_or(|last| *last == b'\n');
        if head >> 1 != titled || !whole {
            return None;
        }
        let mut layout = Self { titles, records: Vec::new(), lacks_final_newline: head & 1 == 1 };
        let mut current = UNBOUNDED_LINE_BASES;
        let mut residues = 0_u64;
        for _ in 0..=titled {
            let head = cursor.read_varint()?;
            let count = head >> 2;
            residues = residues.checked_add(count).filter(|residues| *residues <= max_bytes)?;
            layout.records.push(match head & 3 {
                0 => RecordLines::from_width_code(count, current),
                1 => {
                    current = cursor.read_varint()?;
                    RecordLines::from_width_code(count, current)
                }
                2 => Self::decode_line_groups(&mut cursor, count)?,
                _ => return None,
            });
        }
        let bytes = layout.text_bytes()?;
        (cursor.is_empty() && bytes <= max_bytes).then_some(layout)
    }

    fn decode_line_groups(cursor: &mut VarintReader, residue_count: u64) -> Option<RecordLines> {
        let count = cursor.read_varint()?;
        let mut line_groups = Vec::new();
        let mut sum = 0_u64;
        for _ in 0..count {
            let run = LineGroup { width_code: cursor.read_varint()?, line_count: cursor.read_varint()? };
            sum = sum.checked_add((run.width_code / 2).checked_mul(run.line_count)?)?;
            line_groups.push(run);
        }
        (sum == residue_count).then_some(RecordLines { residue_count, line_groups })
    }

    /// Returns the size of the piece of text, bytes; `None` if it overflows.
    fn text_bytes(&self) -> Option<u64> {
        let mut bytes = self.titles.len() as u64 + self.records.len() as u64 - 1;
        for run in self.records.iter().flat_map(|body| &body.line_groups) {
            let line = run.width_code / 2 + 1 + (run.width_code & 1);
            bytes = bytes.checked_add(line.checked_mul(run.line_count)?)?;
        }
        bytes.checked_sub(u64::from(self.lacks_final_newline))
    }

    /// Restores the piece of text; `None` if the number of `residues` does not match the layout.
    pub(super) fn join_text(&self, residues: &[u8]) -> Option<Vec<u8>> {
        let bytes = self.text_bytes()?;
        let mut text = Vec::with_capacity(bytes as usize + 1);
        self.for_each_piece(residues, |some| {
            text.extend_from_slice(some);
            true
        })?;
        text.truncate(bytes as usize);
        Some(text)
    }

    /// Reports whether this layout and these residues give exactly `text`.
    pub(super) fn matches_text(&self, residues: &[u8], text: &[u8]) -> bool {
        let mut rest = text;
        let equal = self.for_each_piece(residues, |some| match rest.strip_prefix(some) {
            Some(behind) => {
                rest = behind;
                true
            }
            // Process the last line if it does not end with a line feed.
            None => some.strip_suffix(b"\n") == Some(std::mem::take(&mut rest)),
        });
        equal.is_some() && rest.is_empty() && self.text_bytes() == Some(text.len() as u64)
    }

    /// Passes the text in slices to `put`; a line feed follows the last line in any case. Returns `None` if the number
    /// of `residues` does not match or `put` returns false.
    fn for_each_piece(&self, residues: &[u8], mut put: impl FnMut(&[u8]) -> bool) -> Option<()> {
        if self.residue_count()? != residues.len() as u64 {
            return None;
        }
        let mut rest = residues;
        let titles = self.titles.split_inclusive(|byte| *byte == b'\n');
        for (at, (title, body)) in std::iter::once(&[][..]).chain(titles).zip(&self.records).enumerate() {
            if at > 0 && !(put(b">") && put(title)) {
                return None;
            }
            for run in &body.line_groups {
                let end: &[u8] = if run.width_code & 1 == 1 { b"\r\n" } else { b"\n" };
                let width = (run.width_code / 2) as usize;
                let (lines, others) = rest.split_at_checked(width.checked_mul(run.line_count as usize)?)?;
                rest = others;
                for line in 0..run.line_count as usize {
                    if !(put(&lines[line * width..(line + 1) * width]) && put(end)) {
                        return None;
                    }
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &[u8], inside: bool) -> FastaLayout {
        let mut residues = Vec::new();
        let layout = split_text(text, inside, &mut residues);
        assert_eq!(layout.join_text(&residues).as_deref(), Some(text), "{:?}", String::from_utf8_lossy(text));
        assert!(layout.matches_text(&residues, text), "{:?}", String::from_utf8_lossy(text));
        assert!(!layout.matches_text(&residues, &[text, b"A"].concat()));
        assert!(text.is_empty() || !layout.matches_text(&residues, &text[..text.len() - 1]));
        let lines = layout.encode();
        let again = FastaLayout::decode(&lines, layout.titles.clone(), text.len() as u64);
        assert_eq!(again.as_ref(), Some(&layout), "{:?}", String::from_utf8_lossy(text));
        layout
    }

    #[test]
    fn any_lines_come_back() {
        let texts: [&[u8]; 16] = [
            b"",
            b"\n",
            b"\r\n",
            b">",
            b">a",
            b">a\n",
            b">a\r\nACGT\r\nAC\r\n",
            b">a\nACGT\nACGT\nAC\n>b\nACGT\nA",
            b"ACGT\nAC\n\nACGTA\n",
            b">a\nACGT\n\n\n\n>b\n>c\nAC\nACG\n",
            b">a\nACGT\r",
            b">a\n\r\n\r\nA\rC\n",
            b">a\nACGT\nACGT\r\nACGT\n",
            b"@q\nACGT\n+\nIIII\n",
            b">>a\n>\n",
            b"\0\xFF\n\n",
        ];
        for text in texts {
            round_trip(text, false);
            round_trip(text, true);
        }
    }

    #[test]
    fn even_lines_take_a_few_bytes() {
        let sequence = [&[b'A'; 60][..], b"\n"].concat().repeat(1000);
        let layout = round_trip(&[b">a\n", &sequence[..], b">b\n", &sequence[..], b"ACG\n"].concat(), false);
        assert!(layout.encode().len() <= 10, "{:?}", layout.encode());
        let records: Vec<_> = layout.records().map(|record| (record.title, record.residue_count)).collect();
        assert_eq!(records, [(None, 0), (Some(&b"a"[..]), 60_000), (Some(b"b"), 60_003)]);
    }
}
