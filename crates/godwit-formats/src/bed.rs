//! BED files: stretches of contigs, 0-based and half-open as inside. Columns after the third are not looked at.

use std::path::{Path, PathBuf};

use godwit_model::Region;

use crate::bgzf::{BgzfError, NextLine, Reader, next_line, open_text};

/// Longest line taken.
const MAX_LINE_BYTES: usize = 1 << 20;

/// A line of a BED file: `[start, end)` of a contig that is known by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BedRegion {
    /// The contig.
    pub contig: String,
    /// First base, 0-based.
    pub start: u32,
    /// One past the last base; at most [`Region::OPEN_END`].
    pub end: u32,
    /// 1-based number of its line in the file.
    pub line: u64,
}

/// Why a file is no BED.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The file, or its compression.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// A line.
    #[error("{}, line {line}: {problem}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no line with a region.
    #[error("{} has no regions", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a BED file, plain, gzip or BGZF: its regions in their order.
///
/// # Errors
/// [`BedError`].
pub fn read(path: &Path) -> Result<Vec<BedRegion>, BedError> {
    read_from(open_text(path, 1)?)
}

/// As [`read`], from what is open already.
///
/// # Errors
/// [`BedError`].
pub fn read_from(mut input: Reader) -> Result<Vec<BedRegion>, BedError> {
    let path = input.path().to_owned();
    let (mut regions, mut text, mut line) = (Vec::new(), Vec::new(), 0);
    loop {
        let found = next_line(&mut input, &mut text, MAX_LINE_BYTES)?;
        line += 1;
        let wrong = |problem: &str| BedError::Line { path: path.clone(), line, problem: problem.to_owned() };
        match found {
            NextLine::End => break,
            NextLine::TooLong => return Err(wrong("it is longer than 1 MiB; is it BED?")),
            NextLine::Line => {}
        }
        let found = std::str::from_utf8(&text).map_err(|_| wrong("it is no text"))?;
        regions.extend(parse(found, line).map_err(wrong)?);
    }
    if regions.is_empty() { Err(BedError::Empty { path }) } else { Ok(regions) }
}

/// The region of a line; none for a comment, a blank line or what is for browsers.
fn parse(text: &str, line: u64) -> Result<Option<BedRegion>, &'static str> {
    let mut fields = text.split_ascii_whitespace();
    let Some(contig) = fields.next().filter(|first| !first.starts_with('#') && !matches!(*first, "track" | "browser"))
    else {
        return Ok(None);
    };
    // Ends such as 4294967295 stand for that of the contig, whatever it is.
    let mut number = || Some(fields.next()?.parse::<u64>().ok()?.min(u64::from(Region::OPEN_END)) as u32);
    let (Some(start), Some(end)) = (number(), number()) else {
        return Err("a contig, a start and an end are expected, separated by tabs");
    };
    if start > end {
        return Err("its start is behind its end");
    }
    Ok(Some(BedRegion { contig: contig.to_owned(), start, end, line }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<BedRegion>, BedError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.bed");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn regions_are_read_and_the_rest_is_passed_over() {
        let text = "track name=x\n#c\nchr1\t0\t10\tname\t5\r\n\nchr2 7 7\nchr1\t5\t6";
        let regions = parsed(text).unwrap();
        let shown = |region: &BedRegion| (region.contig.clone(), region.start, region.end, region.line);
        let expected = [("chr1", 0, 10, 3), ("chr2", 7, 7, 5), ("chr1", 5, 6, 6)];
        let expected = expected.map(|(contig, start, end, line)| (contig.to_owned(), start, end, line));
        assert_eq!(regions.iter().map(shown).collect::<Vec<_>>(), expected);
        let beyond = parsed("chr1\t5\t4294967296\n").unwrap();
        assert_eq!(beyond[0].end, Region::OPEN_END);
    }

    #[test]
    fn what_is_no_bed_is_named_by_line() {
        for (text, said) in [
            ("chr1\t5\n", "line 1: a contig"),
            ("chr1\t0\t1\nchr1\t-1\t5\n", "line 2: a contig"),
            ("chr1\t9\t5\n", "start is behind"),
            ("# nothing\n", "has no regions"),
            ("", "has no regions"),
        ] {
            let found = parsed(text).unwrap_err().to_string();
            assert!(found.contains(said), "{text:?}: {found}");
        }
    }
}
