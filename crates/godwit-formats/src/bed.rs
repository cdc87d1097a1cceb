//! BED files: intervals of contigs, 0-based and half-open as everywhere in godwit. Columns after the third are ignored.

use std::path::{Path, PathBuf};

use godwit_model::Region;

use crate::bgzf::{BgzfError, LineStatus, Reader, next_line, open_text};

/// Maximum bytes of a line.
const MAX_LINE_BYTES: usize = 1 << 20;

/// A line of a BED file: `[start, end)` of a contig, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BedInterval {
    /// The contig.
    pub contig: String,
    /// First base, 0-based.
    pub start: u32,
    /// One past the last base; at most [`Region::OPEN_END`].
    pub end: u32,
    /// 1-based number of its line in the file.
    pub line: u64,
}

/// A reason why a file is not valid BED.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The file cannot be read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// A line is invalid.
    #[error("{}, line {line}: {problem}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// The problem.
        problem: String,
    },
    /// No line holds an interval.
    #[error("{} has no regions", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a BED file, plain, gzip or BGZF, and returns its intervals in their order.
///
/// # Errors
/// [`BedError`].
pub fn read(path: &Path) -> Result<Vec<BedInterval>, BedError> {
    read_from(open_text(path, 1)?)
}

/// Reads a BED file as [`read`] does, from an open reader.
///
/// # Errors
/// [`BedError`].
pub fn read_from(mut input: Reader) -> Result<Vec<BedInterval>, BedError> {
    let path = input.path().to_owned();
    let (mut intervals, mut text, mut line) = (Vec::new(), Vec::new(), 0);
    loop {
        let found = next_line(&mut input, &mut text, MAX_LINE_BYTES)?;
        line += 1;
        let line_error = |problem: &str| BedError::Line { path: path.clone(), line, problem: problem.to_owned() };
        match found {
            LineStatus::End => break,
            LineStatus::TooLong => return Err(line_error("it is longer than 1 MiB; is it BED?")),
            LineStatus::Line => {}
        }
        let found = std::str::from_utf8(&text).map_err(|_| line_error("it is no text"))?;
        intervals.extend(parse_line(found, line).map_err(line_error)?);
    }
    if intervals.is_empty() { Err(BedError::Empty { path }) } else { Ok(intervals) }
}

/// Returns the interval of a line; `None` for a comment, a blank line, or a `track` or `browser` line.
fn parse_line(text: &str, line: u64) -> Result<Option<BedInterval>, &'static str> {
    let mut fields = text.split_ascii_whitespace();
    let Some(contig) = fields.next().filter(|first| !first.starts_with('#') && !matches!(*first, "track" | "browser"))
    else {
        return Ok(None);
    };
    // Ends such as 4294967295 stand for the end of the contig.
    let mut number = || Some(fields.next()?.parse::<u64>().ok()?.min(u64::from(Region::OPEN_END)) as u32);
    let (Some(start), Some(end)) = (number(), number()) else {
        return Err("a contig, a start and an end are expected, separated by tabs");
    };
    if start > end {
        return Err("its start is behind its end");
    }
    Ok(Some(BedInterval { contig: contig.to_owned(), start, end, line }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<BedInterval>, BedError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.bed");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn regions_are_read_and_the_rest_is_passed_over() {
        let text = "track name=x\n#c\nchr1\t0\t10\tname\t5\r\n\nchr2 7 7\nchr1\t5\t6";
        let regions = read_text(text).unwrap();
        let shown = |region: &BedInterval| (region.contig.clone(), region.start, region.end, region.line);
        let expected = [("chr1", 0, 10, 3), ("chr2", 7, 7, 5), ("chr1", 5, 6, 6)];
        let expected = expected.map(|(contig, start, end, line)| (contig.to_owned(), start, end, line));
        assert_eq!(regions.iter().map(shown).collect::<Vec<_>>(), expected);
        let beyond = read_text("chr1\t5\t4294967296\n").unwrap();
        assert_eq!(beyond[0].end, Region::OPEN_END);
    }

    #[test]
    fn what_is_no_bed_is_named_by_line() {
        for (text, expected) in [
            ("chr1\t5\n", "line 1: a contig"),
            ("chr1\t0\t1\nchr1\t-1\t5\n", "line 2: a contig"),
            ("chr1\t9\t5\n", "start is behind"),
            ("# nothing\n", "has no regions"),
            ("", "has no regions"),
        ] {
            let found = read_text(text).unwrap_err().to_string();
            assert!(found.contains(expected), "{text:?}: {found}");
        }
    }
}
