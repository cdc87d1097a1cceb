//! Lines of text, of a length that is bounded.

use memchr::memchr;

use super::{BgzfError, Unpacked};

/// What stood ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextLine {
    /// A line.
    Line,
    /// A line that is longer than it may be, cut short.
    TooLong,
    /// The end of the text.
    End,
}

/// Replaces `line` by the next one, without its line feed, which the last one may lack.
///
/// # Errors
/// [`BgzfError`] about what lies ahead.
pub(crate) fn next_line(
    input: &mut impl Unpacked,
    line: &mut Vec<u8>,
    most_bytes: usize,
) -> Result<NextLine, BgzfError> {
    line.clear();
    let mut found = NextLine::End;
    loop {
        let data = input.data()?;
        if data.is_empty() {
            return Ok(found);
        }
        found = NextLine::Line;
        let end = memchr(b'\n', data);
        line.extend_from_slice(&data[..end.unwrap_or(data.len())]);
        let consumed = end.map_or(data.len(), |end| end + 1);
        input.consume(consumed);
        if line.len() > most_bytes {
            return Ok(NextLine::TooLong);
        }
        if end.is_some() {
            return Ok(found);
        }
    }
}
