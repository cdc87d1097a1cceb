//! A reader of BED files, whose intervals are 0-based and half-open as everywhere in godwit. Columns after the third
//! are ignored.

use std::path::{Path, PathBuf};

use godwit_model::Region;

use crate::bgzf::{BgzfError, LineStatus, Reader, next_line, open_text};

/// Maximum bytes of a line of the file.
const MAX_LINE_BYTES: usize = 1 << 20;

/// An interval `[start, end)` of a contig from one line of a BED file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BedInterval {
    /// Name of the contig.
    pub contig: String,
    /// 0-based position of the first base.
    pub start: u32,
    /// 0-based position after the last base; at most [`Region::OPEN_END`], which means the end of the contig.
    pub end: u32,
    /// 1-based number of the line of this interval in the file.
    pub line: u64,
}

/// A reason why a file is not valid BED.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The file cannot be read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// A line of the file is not a valid BED line.
    #[error("{}, line {line}: {problem}", .path.display())]
    Line {
        /// Path of the BED file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// Description of the problem.
        problem: String,
    },
    /// The file contains no interval.
    #[error("{} has no intervals", .path.display())]
    Empty {
        /// Path of the BED file.
        path: PathBuf,
    },
}

/// Reads a plain, gzip or BGZF BED file, and returns its intervals in the order of the file.
///
/// # Errors
/// [`BedError`] if the file cannot be read, a line is invalid, or there is no interval.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::bed::{self, BedInterval};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("targets.bed");
/// std::fs::write(&path, "track name=targets\nchr20\t999\t2000\texon1\n")?;
/// let intervals = bed::read(&path)?;
/// assert_eq!(intervals, [BedInterval { contig: "chr20".to_owned(), start: 999, end: 2000, line: 2 }]);
/// # Ok(())
/// # }
/// ```
pub fn read(path: &Path) -> Result<Vec<BedInterval>, BedError> {
    read_from(open_text(path, 1)?)
}

/// Reads a BED file from an open reader, as [`read`] does from a path.
///
/// # Errors
/// [`BedError`] if the file cannot be read, a line is invalid, or there is no interval.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::{bed, bgzf};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("targets.bed.gz");
/// let mut file = bgzf::Writer::new(std::fs::File::create(&path)?, 6);
/// file.write_bytes(b"chr20\t999\t2000\nchrM\t0\t16569\n")?;
/// file.finish_file()?;
/// let intervals = bed::read_from(bgzf::open_text(&path, 1)?)?;
/// assert_eq!((intervals[1].contig.as_str(), intervals[1].end), ("chrM", 16_569));
/// # Ok(())
/// # }
/// ```
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
        let found = std::str::from_utf8(&text).map_err(|_| line_error("it is not text"))?;
        intervals.extend(parse_line(found, line).map_err(line_error)?);
    }
    if intervals.is_empty() { Err(BedError::Empty { path }) } else { Ok(intervals) }
}

/// Returns the interval of a line, or `None` if the line is blank, a comment, or a `track` or `browser` line.
fn parse_line(text: &str, line: u64) -> Result<Option<BedInterval>, &'static str> {
    let mut fields = text.split_ascii_whitespace();
    let Some(contig) = fields.next().filter(|first| !first.starts_with('#') && !matches!(*first, "track" | "browser"))
    else {
        return Ok(None);
    };
    // Limit the number, because some files use ends such as 4294967295 for the end of the contig.
    let mut number = || Some(fields.next()?.parse::<u64>().ok()?.min(u64::from(Region::OPEN_END)) as u32);
    let (Some(start), Some(end)) = (number(), number()) else {
        return Err("a contig, a start and an end are expected, separated by tabs");
    };
    if start > end {
        return Err("its start is after its end");
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
            ("chr1\t9\t5\n", "start is after"),
            ("# nothing\n", "has no intervals"),
            ("", "has no intervals"),
        ] {
            let found = read_text(text).unwrap_err().to_string();
            assert!(found.contains(expected), "{text:?}: {found}");
        }
    }
}
