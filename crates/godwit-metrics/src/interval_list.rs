//! Interval lists of Picard: the header of a SAM file, then lines of contig, first and last position (1-based), strand
//! and name.

use std::path::{Path, PathBuf};

use godwit_formats::sam::Header;
use godwit_model::Genome;

/// An interval `[start, end)` of a contig, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContigInterval {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The intervals of an interval list on the contigs of a genome.
#[derive(Clone, Debug)]
pub struct IntervalList {
    /// Name of the file up to its first full stop, which Picard uses as the name of a set of baits or amplicons.
    pub(crate) name: String,
    /// Number of intervals in the file.
    pub(crate) interval_count: u64,
    /// Intervals of each contig in ascending order; those that overlap or touch each other are merged.
    pub(crate) merged: Vec<Vec<ContigInterval>>,
}

/// A reason why an interval list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IntervalListError {
    /// The file cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a valid interval list.
    #[error("{}, line {line}: {problem}", .path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// 1-based number of the line.
        line: usize,
        /// Description of the problem.
        problem: String,
    },
    /// The file lists other contigs than the alignments, or has no intervals.
    #[error("{}: {problem}", .path.display())]
    Mismatch {
        /// Path of the file.
        path: PathBuf,
        /// The difference, and the remedy.
        problem: String,
    },
}

impl IntervalList {
    /// Reads an interval list. Its header must list the contigs of `genome` in the same order.
    ///
    /// # Errors
    /// [`IntervalListError`] if the file cannot be read, a line is invalid, the contigs differ from those of the genome,
    /// or there is no interval.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::Header;
    /// use godwit_metrics::IntervalList;
    ///
    /// let genome = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n")?.genome()?;
    /// let text = "@HD\tVN:1.6\n@SQ\tSN:chr1\tLN:1000\nchr1\t1\t100\t+\texon1\nchr1\t101\t120\t+\texon2\n";
    /// let list = IntervalList::parse("targets.interval_list".as_ref(), text, &genome)?;
    /// assert_eq!(list.territory(), 120);
    /// assert!(IntervalList::parse("a.bed".as_ref(), "chr1\t0\t100\n", &genome).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse(path: &Path, text: &str, genome: &Genome) -> Result<Self, IntervalListError> {
        let header_end = text.lines().take_while(|line| line.starts_with('@')).count();
        let header: String = text.lines().take(header_end).flat_map(|line| [line, "\n"]).collect();
        let mismatch = |problem: String| IntervalListError::Mismatch { path: path.into(), problem };
        let listed = Header::parse(header.as_bytes()).and_then(|header| header.genome());
        let listed = listed.map_err(|error| mismatch(format!("its header is invalid: {error}")))?;
        check_contigs(&listed, genome).map_err(mismatch)?;
        let mut intervals: Vec<Vec<ContigInterval>> = vec![Vec::new(); genome.contigs().len()];
        let mut interval_count = 0;
        for (at, line) in text.lines().enumerate().skip(header_end).filter(|(_, line)| !line.trim().is_empty()) {
            let invalid = |problem: String| IntervalListError::Line { path: path.into(), line: at + 1, problem };
            let (contig, interval) = parse_line(line, genome).map_err(invalid)?;
            intervals[contig].push(interval);
            interval_count += 1;
        }
        if interval_count == 0 {
            return Err(mismatch("it has no intervals".into()));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: name.split('.').next().unwrap_or_default().to_owned(),
            interval_count,
            merged: intervals.into_iter().map(merge_intervals).collect(),
        })
    }

    /// Reads the interval list at a path, as [`IntervalList::parse`].
    ///
    /// # Errors
    /// As [`IntervalList::parse`].
    pub fn open(path: &Path, genome: &Genome) -> Result<Self, IntervalListError> {
        let text = std::fs::read_to_string(path);
        Self::parse(path, &text.map_err(|source| IntervalListError::Read { path: path.into(), source })?, genome)
    }

    /// Returns the number of bases in the intervals; bases in several intervals count once.
    pub fn territory(&self) -> u64 {
        self.merged.iter().flatten().map(|interval| u64::from(interval.end - interval.start)).sum()
    }
}

/// Compares the contigs of an interval list with those of the alignments, and describes the first difference.
fn check_contigs(listed: &Genome, genome: &Genome) -> Result<(), String> {
    let remedy = "; use the interval list of the reference of the BAM";
    if listed.contigs().is_empty() {
        return Err("it has no @SQ lines; an interval list begins with the header of a SAM file (Picard's \
            BedToIntervalList converts BED)"
            .to_owned());
    }
    for (at, contig) in genome.contigs().iter().enumerate() {
        match listed.contigs().get(at) {
            Some(other) if other.name == contig.name && other.length == contig.length => {}
            Some(other) => {
                let (name, length) = (&contig.name, contig.length);
                return Err(format!(
                    "contig number {} is {} with {} bases, but {name} with {length} bases in the BAM{remedy}",
                    at + 1,
                    other.name,
                    other.length
                ));
            }
            None => return Err(format!("it lacks the contig {} of the BAM{remedy}", contig.name)),
        }
    }
    match listed.contigs().get(genome.contigs().len()) {
        Some(other) => Err(format!("it has the contig {}, which the BAM lacks{remedy}", other.name)),
        None => Ok(()),
    }
}

/// Returns the index of the contig and the interval of a line.
fn parse_line(line: &str, genome: &Genome) -> Result<(usize, ContigInterval), String> {
    let mut fields = line.split('\t');
    let (Some(contig), Some(first), Some(last)) = (fields.next(), fields.next(), fields.next()) else {
        return Err("it has fewer than three columns separated by tabs".into());
    };
    let Some(at) = genome.contigs().iter().position(|known| known.name == contig) else {
        return Err(format!("the contig {contig} is not in the header"));
    };
    let length = genome.contigs()[at].length;
    match (first.parse::<u32>(), last.parse::<u32>()) {
        (Ok(first), Ok(last)) if first >= 1 && first <= last && last <= length => {
            Ok((at, ContigInterval { start: first - 1, end: last }))
        }
        (Ok(_), Ok(_)) => Err(format!("{first} to {last} is not an interval of {contig}, which has {length} bases")),
        _ => Err(format!("{first} or {last} is not a position")),
    }
}

fn merge_intervals(mut intervals: Vec<ContigInterval>) -> Vec<ContigInterval> {
    intervals.sort_by_key(|interval| (interval.start, interval.end));
    let mut merged: Vec<ContigInterval> = Vec::new();
    for interval in intervals {
        match merged.last_mut() {
            Some(last) if interval.start <= last.end => last.end = last.end.max(interval.end),
            _ => merged.push(interval),
        }
    }
    merged
}

/// Returns the intervals that overlap `[start, end)` or are less than `distance` bases away. `intervals` are in ascending
/// order and do not overlap.
pub(crate) fn overlapping(intervals: &[ContigInterval], start: u32, end: u32, distance: u32) -> &[ContigInterval] {
    let (from, until) = overlapping_indexes(intervals, start, end, distance);
    &intervals[from..until]
}

/// As [`overlapping`], but returns the indexes `[from, until)` of the intervals.
pub(crate) fn overlapping_indexes(intervals: &[ContigInterval], start: u32, end: u32, distance: u32) -> (usize, usize) {
    if start >= end {
        return (0, 0);
    }
    let from = intervals.partition_point(|interval| interval.end + distance <= start);
    let until = from + intervals[from..].partition_point(|interval| interval.start < end + distance);
    (from, until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_touch_are_merged() {
        let interval = |start, end| ContigInterval { start, end };
        let merged = merge_intervals(vec![interval(50, 60), interval(0, 10), interval(10, 20), interval(55, 58)]);
        assert_eq!(merged, [interval(0, 20), interval(50, 60)]);
        assert_eq!(overlapping(&merged, 20, 50, 0), []);
        assert_eq!(overlapping(&merged, 20, 51, 0), [interval(50, 60)]);
        assert_eq!(overlapping(&merged, 269, 270, 250), [interval(0, 20), interval(50, 60)]);
        assert_eq!(overlapping(&merged, 270, 271, 250), [interval(50, 60)]);
    }
}
