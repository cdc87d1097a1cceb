//! Where the fields of a record stand in the text, which bytes they may hold, and the fast way to find them.

use std::ops::Range;

use memchr::{memchr, memchr2};

use super::text::Cursor;

/// Most bytes of a read name: BAM stores its length with a closing zero in one byte (SAMv1 §1.4: `[!-?A-~]{1,254}`).
pub(super) const MAX_NAME_BYTES: usize = 254;

/// Fields of a record as ranges of the window.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Name without `/digit`.
    pub(super) name: Range<usize>,
    /// Comment; empty for none.
    pub(super) comment: Range<usize>,
    /// Bases.
    pub(super) sequence: Range<usize>,
    /// Qualities, as many as bases; `None` for FASTA and where there are no bases.
    pub(super) quality: Option<Range<usize>>,
    /// Sequence and quality are ranges of the joined lines instead.
    pub(super) wrapped: bool,
    /// The start of the next record.
    pub(super) next: Cursor,
}

/// Lays out the record at the start of the window if it has four lines, all of them at hand, and every byte of it is as
/// it should be. `None` leaves everything else, and all that is wrong, to the careful way.
pub(super) fn four_lines(window: &[u8]) -> Option<Layout> {
    if window.first() != Some(&b'@') {
        return None;
    }
    let title_end = memchr(b'\n', window)?;
    let sequence_start = title_end + 1;
    let sequence_end = sequence_start + memchr(b'\n', &window[sequence_start..])?;
    let plus_start = sequence_end + 1;
    let quality_start = after_plus(window, plus_start, &window[1..title_end])?;

    let (name, comment) = title(window, 1..without_carriage_return(window, 1..title_end).end);
    let sequence = without_carriage_return(window, sequence_start..sequence_end);
    let quality = quality_start..quality_start + sequence.len();
    // No search for the end of the qualities: it must be where their number says, and they hold no line feed.
    let next = match window.get(quality.end..)? {
        [b'\n', ..] => quality.end + 1,
        [b'\r', b'\n', ..] => quality.end + 2,
        _ => return None,
    };
    let named = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
    let valid = named
        && !sequence.is_empty()
        && all(&window[name.clone()], is_printable)
        && all(&window[comment.clone()], is_comment)
        && all(&window[sequence.clone()], is_base)
        && all(&window[quality.clone()], is_printable);
    let next = Cursor { at: next, lines: 4 };
    valid.then_some(Layout { name, comment, sequence, quality: Some(quality), wrapped: false, next })
}

/// Where the line after a `+` line starts that repeats nothing, or the title.
fn after_plus(window: &[u8], start: usize, title: &[u8]) -> Option<usize> {
    if window.get(start..)?.starts_with(b"+\n") {
        return Some(start + 2);
    }
    let end = start + memchr(b'\n', &window[start..])?;
    let repeated = window[start..end].strip_prefix(b"+")?;
    (repeated == b"\r" || repeated == title).then_some(end + 1)
}

fn without_carriage_return(window: &[u8], line: Range<usize>) -> Range<usize> {
    line.start..line.end - usize::from(window[line.clone()].ends_with(b"\r"))
}

/// Splits a title, given without its first character, into name and comment.
///
/// As bwa 0.7.17 does: the name ends at the first `isspace` character, the comment starts after that single one
/// (kseq.h, `kseq_read`), and a name of more than two bytes loses a last `/digit` (bwa.c, `trim_readno`). Vertical tab and
/// form feed, which end a name too, are found by the careful way alone.
pub(super) fn title(window: &[u8], title: Range<usize>) -> (Range<usize>, Range<usize>) {
    let text = &window[title.clone()];
    let name_bytes = memchr2(b' ', b'\t', text).unwrap_or(text.len());
    split_title(window, title, name_bytes)
}

/// As [`title`], where the length of the name before trimming is known.
pub(super) fn split_title(window: &[u8], title: Range<usize>, name_bytes: usize) -> (Range<usize>, Range<usize>) {
    let name_end = title.start + name_bytes;
    let comment = (name_end + 1).min(title.end)..title.end;
    let trimmed = trimmed_name(&window[title.start..name_end]).len();
    (title.start..title.start + trimmed, comment)
}

/// A name of more than two bytes without a last `/digit` (bwa 0.7.17 bwa.c, `trim_readno`).
#[inline]
pub(crate) fn trimmed_name(name: &[u8]) -> &[u8] {
    match name {
        [_, .., b'/', digit] if digit.is_ascii_digit() => &name[..name.len() - 2],
        _ => name,
    }
}

/// Whether every byte passes, without a branch per byte, so that it compiles to vector code.
#[inline]
pub(super) fn all(bytes: &[u8], passes: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(0, |failed, &byte| failed | u8::from(!passes(byte))) == 0
}

/// Letters, and `.` and `*`, which bwa takes as N as it does all letters but ACGTacgt. A `-` is none: bwa 0.7.17 prints
/// a NUL for it (code 5 of its table of bases), which cuts its SAM line short.
#[inline]
pub(super) fn is_base(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b'.') | (byte == b'*')
}

/// `!` to `~`: names, and qualities as Phred+33.
#[inline]
pub(super) fn is_printable(byte: u8) -> bool {
    byte.wrapping_sub(b'!') < 94
}

/// Anything but control characters, the tab excepted: bwa's `-C` copies comments into SAM as they are.
#[inline]
pub(super) fn is_comment(byte: u8) -> bool {
    ((byte >= b' ') & (byte != 0x7f)) | (byte == b'\t')
}
