//! The lines of a FASTA text: where titles and line ends are among its residues.
//!
//! A piece of text is titles, residues in one row, and how long lines are, which is mostly the same for all. A piece may start
//! inside a line of residues. Text of any kind can be taken apart and comes back byte by byte; whether that is of use shows in
//! the residues.

use memchr::memchr;

use super::varint::{Cursor, put_varint};

/// Length of a line that never ends.
const UNBOUNDED: u64 = 0;

/// Bytes of records that are long: titles and ends of lines are next to nothing beside them.
const LONG_RECORD: usize = 10_000;

/// Lines of one length, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Twice the residues of a line, and one more where it ends with CR LF.
    code: u64,
    lines: u64,
}

/// The residues between two titles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Body {
    residues: u64,
    runs: Vec<Run>,
}

/// How a piece of text is made of titles and residues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Titles without `>`, each ended by a line feed.
    titles: Vec<u8>,
    /// Lines before the first title, and after each.
    bodies: Vec<Body>,
    /// Whether the last line has no end.
    open: bool,
}

/// Residues before the first title of a piece, or those of a sequence whose title is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'l> {
    /// The title, without `>` and line feed; `None` for what continues the sequence of an earlier piece.
    pub(super) title: Option<&'l [u8]>,
    pub(super) residues: u64,
}

/// Takes text apart. `inside` says that it starts inside a line of residues. The residues, in one row, are appended to
/// `residues`.
pub(super) fn parse(text: &[u8], inside: bool, residues: &mut Vec<u8>) -> Layout {
    let mut layout = Layout { bodies: vec![Body::default()], ..Layout::default() };
    let mut rest = text;
    let mut within = inside;
    while !rest.is_empty() {
        let end = memchr(b'\n', rest);
        let line = &rest[..end.unwrap_or(rest.len())];
        layout.open = end.is_none();
        rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
        if line.first() == Some(&b'>') && !within {
            layout.titles.extend_from_slice(&line[1..]);
            layout.titles.push(b'\n');
            layout.bodies.push(Body::default());
        } else {
            let (line, crlf) = match line.strip_suffix(b"\r") {
                Some(line) if end.is_some() => (line, 1),
                _ => (line, 0),
            };
            residues.extend_from_slice(line);
            let body = layout.bodies.last_mut().expect("there is one from the start");
            body.residues += line.len() as u64;
            let code = line.len() as u64 * 2 + crlf;
            match body.runs.last_mut() {
                Some(run) if run.code == code => run.lines += 1,
                _ => body.runs.push(Run { code, lines: 1 }),
            }
        }
        within = false;
    }
    layout
}

impl Body {
    /// The lines of that many residues where all but the last have the length that `code` says.
    fn regular(residues: u64, code: u64) -> Self {
        let (width, crlf) = (code / 2, code & 1);
        let mut runs = Vec::new();
        if width == UNBOUNDED {
            runs.extend((residues > 0).then_some(Run { code: residues * 2 + crlf, lines: 1 }));
        } else {
            let (full, rest) = (residues / width, residues % width);
            runs.extend((full > 0).then_some(Run { code, lines: full }));
            runs.extend((rest > 0).then_some(Run { code: rest * 2 + crlf, lines: 1 }));
        }
        Self { residues, runs }
    }

    /// The code by which it is regular, where there is one.
    fn code(&self) -> Option<u64> {
        let first = self.runs.first()?;
        let unbounded = first.code & 1;
        let codes = [(self.runs.len() == 1 && first.lines == 1).then_some(unbounded), Some(first.code)];
        codes.into_iter().flatten().find(|code| Self::regular(self.residues, *code) == *self)
    }
}

impl Layout {
    /// Titles with their residues, in order.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let titles = self.titles.split_inclusive(|byte| *byte == b'\n').map(|title| &title[..title.len() - 1]);
        let titles = std::iter::once(None).chain(titles.map(Some));
        titles.zip(&self.bodies).map(|(title, body)| Record { title, residues: body.residues })
    }

    /// Residues of all bodies.
    pub(super) fn residues(&self) -> Option<u64> {
        self.bodies.iter().try_fold(0_u64, |sum, body| sum.checked_add(body.residues))
    }

    /// Whether titles and lines are few for that many bytes of text, so that nothing is gained by what they repeat.
    pub(super) fn is_plain(&self, text_bytes: usize) -> bool {
        let runs: usize = self.bodies.iter().map(|body| 1 + body.runs.len()).sum();
        runs * LONG_RECORD < text_bytes + LONG_RECORD * 4
    }

    /// Whether the last line has no end.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The titles.
    pub(super) fn titles(&self) -> &[u8] {
        &self.titles
    }

    /// The lines, as [`Layout::decode`] reads them.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, (self.bodies.len() as u64 - 1) << 1 | u64::from(self.open));
        let mut current = UNBOUNDED;
        for body in &self.bodies {
            if *body == Body::regular(body.residues, current) {
                put_varint(&mut out, body.residues << 2);
                continue;
            }
            if let Some(code) = body.code() {
                put_varint(&mut out, body.residues << 2 | 1);
                put_varint(&mut out, code);
                current = code;
                continue;
            }
            put_varint(&mut out, body.residues << 2 | 2);
            put_varint(&mut out, body.runs.len() as u64);
            for run in &body.runs {
                put_varint(&mut out, run.code);
                put_varint(&mut out, run.lines);
            }
        }
        out
    }

    /// Reads what [`Layout::encode`] wrote, and fails where that is no layout with these titles, or one of more than
    /// `max_bytes` of text.
    pub(super) fn decode(lines: &[u8], titles: Vec<u8>, max_bytes: u64) -> Option<Self> {
        let mut cursor = Cursor::new(lines);
        let head = cursor.varint()?;
        let titled = memchr::memchr_iter(b'\n', &titles).count() as u64;
        let whole = titles.last().is_none_or(|last| *last == b'\n');
        if head >> 1 != titled || !whole {
            return None;
        }
        let mut layout = Self { titles, bodies: Vec::new(), open: head & 1 == 1 };
        let mut current = UNBOUNDED;
        let mut residues = 0_u64;
        for _ in 0..=titled {
            let head = cursor.varint()?;
            let count = head >> 2;
            residues = residues.checked_add(count).filter(|residues| *residues <= max_bytes)?;
            layout.bodies.push(match head & 3 {
                0 => Body::regular(count, current),
                1 => {
                    current = cursor.varint()?;
                    Body::regular(count, current)
                }
                2 => Self::decode_runs(&mut cursor, count)?,
                _ => return None,
            });
        }
        let bytes = layout.text_bytes()?;
        (cursor.is_empty() && bytes <= max_bytes).then_some(layout)
    }

    fn decode_runs(cursor: &mut Cursor, residues: u64) -> Option<Body> {
        let count = cursor.varint()?;
        let mut runs = Vec::new();
        let mut sum = 0_u64;
        for _ in 0..count {
            let run = Run { code: cursor.varint()?, lines: cursor.varint()? };
            sum = sum.checked_add((run.code / 2).checked_mul(run.lines)?)?;
            runs.push(run);
        }
        (sum == residues).then_some(Body { residues, runs })
    }

    /// Bytes of the text.
    fn text_bytes(&self) -> Option<u64> {
        let mut bytes = self.titles.len() as u64 + self.bodies.len() as u64 - 1;
        for run in self.bodies.iter().flat_map(|body| &body.runs) {
            let line = run.code / 2 + 1 + (run.code & 1);
            bytes = bytes.checked_add(line.checked_mul(run.lines)?)?;
        }
        bytes.checked_sub(u64::from(self.open))
    }

    /// Puts the text together again; `None` where `residues` are not as many as there should be.
    pub(super) fn write(&self, residues: &[u8]) -> Option<Vec<u8>> {
        let bytes = self.text_bytes()?;
        let mut text = Vec::with_capacity(bytes as usize + 1);
        self.emit(residues, |some| {
            text.extend_from_slice(some);
            true
        })?;
        text.truncate(bytes as usize);
        Some(text)
    }

    /// Whether this is the layout of a text with these residues.
    pub(super) fn is_of(&self, residues: &[u8], text: &[u8]) -> bool {
        let mut rest = text;
        let equal = self.emit(residues, |some| match rest.strip_prefix(some) {
            Some(behind) => {
                rest = behind;
                true
            }
            // The end of the last line, where that has none.
            None => some.strip_suffix(b"\n") == Some(std::mem::take(&mut rest)),
        });
        equal.is_some() && rest.is_empty() && self.text_bytes() == Some(text.len() as u64)
    }

    /// Hands out the text in pieces, its last line always ended; `None` where `residues` are not as many as there should be, or
    /// `put` says false.
    fn emit(&self, residues: &[u8], mut put: impl FnMut(&[u8]) -> bool) -> Option<()> {
        if self.residues()? != residues.len() as u64 {
            return None;
        }
        let mut rest = residues;
        let titles = self.titles.split_inclusive(|byte| *byte == b'\n');
        for (at, (title, body)) in std::iter::once(&[][..]).chain(titles).zip(&self.bodies).enumerate() {
            if at > 0 && !(put(b">") && put(title)) {
                return None;
            }
            for run in &body.runs {
                let end: &[u8] = if run.code & 1 == 1 { b"\r\n" } else { b"\n" };
                let width = (run.code / 2) as usize;
                let (lines, others) = rest.split_at_checked(width.checked_mul(run.lines as usize)?)?;
                rest = others;
                for line in 0..run.lines as usize {
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

    fn there_and_back(text: &[u8], inside: bool) -> Layout {
        let mut residues = Vec::new();
        let layout = parse(text, inside, &mut residues);
        assert_eq!(layout.write(&residues).as_deref(), Some(text), "{:?}", String::from_utf8_lossy(text));
        assert!(layout.is_of(&residues, text), "{:?}", String::from_utf8_lossy(text));
        assert!(!layout.is_of(&residues, &[text, b"A"].concat()));
        assert!(text.is_empty() || !layout.is_of(&residues, &text[..text.len() - 1]));
        let lines = layout.encode();
        let again = Layout::decode(&lines, layout.titles.clone(), text.len() as u64);
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
            there_and_back(text, false);
            there_and_back(text, true);
        }
    }

    #[test]
    fn even_lines_take_a_few_bytes() {
        let sequence = [&[b'A'; 60][..], b"\n"].concat().repeat(1000);
        let layout = there_and_back(&[b">a\n", &sequence[..], b">b\n", &sequence[..], b"ACG\n"].concat(), false);
        assert!(layout.encode().len() <= 10, "{:?}", layout.encode());
        let records: Vec<_> = layout.records().map(|record| (record.title, record.residues)).collect();
        assert_eq!(records, [(None, 0), (Some(&b"a"[..]), 60_000), (Some(b"b"), 60_003)]);
    }
}
