//! The fields of a record as ranges of the text, the bytes allowed in them, and the fast parser.

use std::ops::Range;

use memchr::{memchr, memchr2};

use super::text_window::TextPosition;

/// Maximum bytes of a read name: BAM stores its length with a closing zero in one byte (SAMv1 §1.4: `[!-?A-~]{1,254}`).
pub(super) const MAX_NAME_BYTES: usize = 254;

/// Fields of a record as ranges of the window.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordLayout {
    /// Name without `/digit`.
    pub(super) name: Range<usize>,
    /// Comment; empty for none.
    pub(super) comment: Range<usize>,
    /// Bases.
    pub(super) sequence: Range<usize>,
    /// Qualities, as many as bases; `None` for FASTA and where there are no bases.
    pub(super) quality: Option<Range<usize>>,
    /// True if sequence and quality are ranges of the joined lines instead.
    pub(super) wrapped: bool,
    /// Start of the next record.
    pub(super) next_record: TextPosition,
}

/// Parses the record at the start of the window if it has four lines, all of them buffered, and every byte is valid.
/// Returns `None` for every other record; the slow path of [`super::record_reader`] parses those and reports errors.
pub(super) fn parse_four_line_record(window: &[u8]) -> Option<RecordLayout> {
    if window.first() != Some(&b'@') {
        return None;
    }
    let title_end = memchr(b'\n', window)?;
    let sequence_start = title_end + 1;
    let sequence_end = sequence_start + memchr(b'\n', &window[sequence_start..])?;
    let plus_start = sequence_end + 1;
    let quality_start = skip_plus_line(window, plus_start, &window[1..title_end])?;

    let (name, comment) = parse_title(window, 1..trim_carriage_return(window, 1..title_end).end);
    let sequence = trim_carriage_return(window, sequence_start..sequence_end);
    let quality = quality_start..quality_start + sequence.len();
    // No search for the end of the qualities: it must be at the position given by their number, and they hold no line feed.
    let next = match window.get(quality.end..)? {
        [b'\n', ..] => quality.end + 1,
        [b'\r', b'\n', ..] => quality.end + 2,
        _ => return None,
    };
    let named = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
    let valid = named
        && !sequence.is_empty()
        && all_bytes(&window[name.clone()], is_printable)
        && all_bytes(&window[comment.clone()], is_comment)
        && all_bytes(&window[sequence.clone()], is_base)
        && all_bytes(&window[quality.clone()], is_printable);
    let next_record = TextPosition { offset: next, lines: 4 };
    valid.then_some(RecordLayout { name, comment, sequence, quality: Some(quality), wrapped: false, next_record })
}

/// Returns the start of the line after a `+` line; `None` unless that is empty or repeats the title.
fn skip_plus_line(window: &[u8], start: usize, title: &[u8]) -> Option<usize> {
    if window.get(start..)?.starts_with(b"+\n") {
        return Some(start + 2);
    }
    let end = start + memchr(b'\n', &window[start..])?;
    let repeated = window[start..end].strip_prefix(b"+")?;
    (repeated == b"\r" || repeated == title).then_some(end + 1)
}

fn trim_carriage_return(window: &[u8], line: Range<usize>) -> Range<usize> {
    line.start..line.end - usize::from(window[line.clone()].ends_with(b"\r"))
}

/// Splits a title, given without its first character, into name and comment.
///
/// As bwa 0.7.17 does: the name ends at the first `isspace` character, the comment starts after that single one (kseq.h,
/// `kseq_read`), and a name of more than two bytes loses a last `/digit` (bwa.c, `trim_readno`). Vertical tab and form
/// feed, which also end a name, are handled only by the slow path.
pub(super) fn parse_title(window: &[u8], title: Range<usize>) -> (Range<usize>, Range<usize>) {
    let text = &window[title.clone()];
    let name_bytes = memchr2(b' ', b'\t', text).unwrap_or(text.len());
    split_title(window, title, name_bytes)
}

/// Splits a title as [`parse_title`], with a known length of the name before trimming.
pub(super) fn split_title(window: &[u8], title: Range<usize>, name_bytes: usize) -> (Range<usize>, Range<usize>) {
    let name_end = title.start + name_bytes;
    let comment = (name_end + 1).min(title.end)..title.end;
    let trimmed = trim_read_number(&window[title.start..name_end]).len();
    (title.start..title.start + trimmed, comment)
}

/// Returns a name of more than two bytes without a last `/digit` (bwa 0.7.17 bwa.c, `trim_readno`).
#[inline]
pub(crate) fn trim_read_number(name: &[u8]) -> &[u8] {
    match name {
        [_, .., b'/', digit] if digit.is_ascii_digit() => &name[..name.len() - 2],
        _ => name,
    }
}

/// Reports whether every byte passes, without a branch per byte, so that it compiles to vector code.
#[inline]
pub(super) fn all_bytes(bytes: &[u8], passes: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(0, |failed, &byte| failed | u8::from(!passes(byte))) == 0
}

/// Reports whether a byte is a letter, `.` or `*`, which bwa takes as N as it does all letters but ACGTacgt. A `-` is
/// rejected: bwa 0.7.17 prints a NUL for it (code 5 of its table of bases), which truncates its SAM line.
#[inline]
pub(super) fn is_base(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b'.') | (byte == b'*')
}

/// Reports whether a byte is `!` to `~`: names, and qualities as Phred+33.
#[inline]
pub(super) fn is_printable(byte: u8) -> bool {
    byte.wrapping_sub(b'!') < 94
}

/// Reports whether a byte is the tab or not a control character: bwa's `-C` copies comments into SAM unchanged.
#[inline]
pub(super) fn is_comment(byte: u8) -> bool {
    ((byte >= b' ') & (byte != 0x7f)) | (byte == b'\t')
}
