//! The fields of a FASTQ record as ranges of the text, the bytes allowed in each field, and the fast parser.

use std::ops::Range;

use memchr::{memchr, memchr2};

use super::text_window::TextPosition;
use crate::unaligned::trim_read_number;

/// Maximum bytes of a read name. BAM stores the length of the name with a closing zero in one byte (SAMv1 §1.4:
/// `[!-?A-~]{1,254}`).
pub(super) const MAX_NAME_BYTES: usize = 254;

/// The fields of a record as ranges of the text window.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordLayout {
    /// Name without a trailing `/digit`.
    pub(super) name: Range<usize>,
    /// Comment; empty if the title has none.
    pub(super) comment: Range<usize>,
    /// Bases of the read.
    pub(super) sequence: Range<usize>,
    /// Qualities, one for each base; `None` for FASTA and for reads without bases.
    pub(super) quality: Option<Range<usize>>,
    /// True if sequence and qualities have several lines, and are therefore ranges of the joined lines instead of the
    /// window.
    pub(super) wrapped: bool,
    /// Position in the window at which the next record starts.
    pub(super) next_record: TextPosition,
}

/// Parses the record at the start of the window if it has four lines, all of them are buffered, and every byte is
/// valid. Otherwise returns `None`. The slow parser of [`super::record_reader`] then parses the record or returns its
/// error.
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
    // Do not search for the end of the qualities: it follows from the number of bases, and the qualities contain no
    // line feed.
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

/// Returns the start of the line after a `+` line. Returns `None` if the line contains something other than `+` and the
/// title.
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

/// Splits a title, given without its first character, into the name and the comment.
///
/// The split is that of bwa 0.7.17. The name ends at the first `isspace` character, and the comment starts after this
/// single character (kseq.h, `kseq_read`). A name of more than two bytes loses a last `/digit` (bwa.c, `trim_readno`).
/// Vertical tab and form feed also end a name, but only the slow parser handles them.
pub(super) fn parse_title(window: &[u8], title: Range<usize>) -> (Range<usize>, Range<usize>) {
    let text = &window[title.clone()];
    let name_bytes = memchr2(b' ', b'\t', text).unwrap_or(text.len());
    split_title(window, title, name_bytes)
}

/// Splits a title like [`parse_title`]; `name_bytes` is the length of the name before a `/digit` is removed.
pub(super) fn split_title(window: &[u8], title: Range<usize>, name_bytes: usize) -> (Range<usize>, Range<usize>) {
    let name_end = title.start + name_bytes;
    let comment = (name_end + 1).min(title.end)..title.end;
    let trimmed = trim_read_number(&window[title.start..name_end]).len();
    (title.start..title.start + trimmed, comment)
}

/// Returns whether `passes` returns true for every byte. There is no branch per byte, so that the compiler can use
/// vector instructions.
#[inline]
pub(super) fn all_bytes(bytes: &[u8], passes: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(0, |failed, &byte| failed | u8::from(!passes(byte))) == 0
}

/// Returns whether a byte is a letter, `.` or `*`. bwa takes all of these except ACGTacgt as N. A `-` is rejected,
/// because bwa 0.7.17 prints a NUL byte for it (code 5 of its table of bases), which truncates its SAM line.
#[inline]
pub(super) fn is_base(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b'.') | (byte == b'*')
}

/// Returns whether a byte is in `!` to `~`, the range that read names and Phred+33 qualities allow.
#[inline]
pub(super) fn is_printable(byte: u8) -> bool {
    byte.wrapping_sub(b'!') < 94
}

/// Returns whether a byte is allowed in a comment: a tab, or any byte that is not a control character. bwa with `-C`
/// copies comments into SAM unchanged.
#[inline]
pub(super) fn is_comment(byte: u8) -> bool {
    ((byte >= b' ') & (byte != 0x7f)) | (byte == b'\t')
}
