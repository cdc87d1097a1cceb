//! Lines of text with bounded length.

use memchr::memchr;

use super::{BgzfBufRead, BgzfError};

/// The result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineStatus {
    /// A line.
    Line,
    /// A line above the limit, truncated.
    TooLong,
    /// The end of the text.
    End,
}

/// Replaces `line` by the next one, without its line feed, which the last one may lack.
///
/// # Errors
/// [`BgzfError`] about the data ahead.
pub(crate) fn next_line(
    input: &mut impl BgzfBufRead,
    line: &mut Vec<u8>,
    max_bytes: usize,
) -> Result<LineStatus, BgzfError> {
    line.clear();
    let mut found = LineStatus::End;
    loop {
        let data = input.data()?;
        if data.is_empty() {
            return Ok(found);
        }
        found = LineStatus::Line;
        let end = memchr(b'\n', data);
        line.extend_from_slice(&data[..end.unwrap_or(data.len())]);
        let consumed = end.map_or(data.len(), |end| end + 1);
        input.consume(consumed);
        if line.len() > max_bytes {
            return Ok(LineStatus::TooLong);
        }
        if end.is_some() {
            return Ok(found);
        }
    }
}
