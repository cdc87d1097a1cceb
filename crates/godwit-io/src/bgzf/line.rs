//! Reading of text lines with a limit on their length.

use memchr::memchr;

use super::{BgzfBufRead, BgzfError};

/// The result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStatus {
    /// A complete line was read.
    Line,
    /// The line is longer than the limit; only its start was read.
    TooLong,
    /// The text has ended, and no line was read.
    End,
}

/// Reads the next line of `input` into `line`, without its line feed. The last line of a file may lack the line feed.
///
/// # Errors
/// [`BgzfError`] if the next data of the file cannot be read or decompressed.
pub fn next_line(input: &mut impl BgzfBufRead, line: &mut Vec<u8>, max_bytes: usize) -> Result<LineStatus, BgzfError> {
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
