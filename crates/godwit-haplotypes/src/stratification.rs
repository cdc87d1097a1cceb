//! Strata of the genome: named sets of regions, such as repeats or segmental duplications, for counts by stratum.
//!
//! Flows in: a file of two columns separated by tabs, the name of a stratum and the path of its BED file relative to the
//! file, as hap.py and the stratification sets of the GA4GH have it. Flows out: the strata that contain a variant.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use godwit_formats::intervals::IntervalError;

use crate::error::HaplotypeError;
use crate::regions::{Regions, is_overlapped};

/// Name of the stratum of all variants, as in the tables of hap.py.
pub(crate) const ALL_VARIANTS: &str = "*";

/// A named set of regions.
#[derive(Debug)]
struct Stratum {
    name: String,
    regions: Regions,
}

/// The strata of a comparison, in the order of their file.
#[derive(Debug, Default)]
pub(crate) struct Stratification {
    strata: Vec<Stratum>,
}

/// The regions of each stratum on one contig.
pub(crate) struct ContigStrata<'s> {
    strata: Vec<&'s [(i32, i32)]>,
}

impl Stratification {
    /// Reads the file of the names and paths, and all BED files. A BED file may have no regions.
    ///
    /// # Errors
    /// [`HaplotypeError::Stratification`] if the file cannot be read, [`HaplotypeError::StratificationLine`] for an
    /// invalid line, [`HaplotypeError::Bed`] for an invalid BED file.
    pub(crate) fn read(path: &Path) -> Result<Self, HaplotypeError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| HaplotypeError::Stratification { path: path.to_owned(), source })?;
        let entries = parse_entries(&text).map_err(|(line, problem)| HaplotypeError::StratificationLine {
            path: path.to_owned(),
            line,
            problem,
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let read = |(name, bed): (String, PathBuf)| match Regions::read_bed(&directory.join(bed)) {
            Ok(regions) => Ok(Stratum { name, regions }),
            Err(HaplotypeError::Bed(IntervalError::Empty { .. })) => Ok(Stratum { name, regions: Regions::default() }),
            Err(error) => Err(error),
        };
        Ok(Self { strata: entries.into_iter().map(read).collect::<Result<_, _>>()? })
    }

    /// Returns the names of the strata; the first one is that of all variants.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        [ALL_VARIANTS].into_iter().chain(self.strata.iter().map(|stratum| stratum.name.as_str()))
    }

    /// Returns whether a stratum has a region on the contig.
    pub(crate) fn has_contig(&self, contig: &str) -> bool {
        self.strata.iter().any(|stratum| stratum.regions.has_contig(contig))
    }

    /// Returns the regions of all strata on a contig.
    pub(crate) fn on_contig(&self, contig: &str) -> ContigStrata<'_> {
        ContigStrata { strata: self.strata.iter().map(|stratum| stratum.regions.on_contig(contig)).collect() }
    }
}

impl ContigStrata<'_> {
    /// Returns the number of strata, with that of all variants.
    pub(crate) fn count(&self) -> usize {
        self.strata.len() + 1
    }

    /// Returns the numbers of the strata that an interval overlaps; 0 is the stratum of all variants.
    pub(crate) fn overlapped(&self, start: i32, end: i32) -> impl Iterator<Item = usize> {
        let strata = self.strata.iter().enumerate().filter(move |(_, regions)| is_overlapped(regions, start, end));
        [0].into_iter().chain(strata.map(|(index, _)| index + 1))
    }
}

/// Returns the names and paths of the file, or the 1-based number of an invalid line with its problem.
fn parse_entries(text: &str) -> Result<Vec<(String, PathBuf)>, (usize, String)> {
    let mut names = HashSet::from([ALL_VARIANTS]);
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let columns: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [name, path] = columns[..] else {
            let problem = "it must have two columns separated by a tab: a name and the path of a BED file";
            return Err((index + 1, problem.to_owned()));
        };
        if name.is_empty() || path.is_empty() {
            return Err((index + 1, "it has an empty column".to_owned()));
        }
        if !names.insert(name) {
            return Err((index + 1, format!("the name {name:?} is used already; rename the stratum")));
        }
        entries.push((name.to_owned(), PathBuf::from(path)));
    }
    if entries.is_empty() { Err((1, "the file names no strata".to_owned())) } else { Ok(entries) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_stratum_and_its_file() {
        let entries = parse_entries("# set\n\nrepeats\tbeds/a.bed.gz\nGC 0-25\t/b.bed\r\n").unwrap();
        let expected = [("repeats", "beds/a.bed.gz"), ("GC 0-25", "/b.bed")];
        assert_eq!(entries, expected.map(|(name, path)| (name.to_owned(), PathBuf::from(path))));
        for (text, line) in [("a b.bed\n", 1), ("a\tb\nc\td\te\n", 2), ("a\tb\na\tc\n", 2), ("*\tb\n", 1), ("#\n", 1)] {
            assert_eq!(parse_entries(text).map_err(|(line, _)| line), Err(line), "{text}");
        }
    }

    #[test]
    fn a_variant_belongs_to_the_strata_that_its_interval_overlaps() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("a.bed", "c1\t10\t20\nc1\t15\t30\n");
        write("b.bed", "c1\t29\t40\nc2\t0\t5\n");
        write("empty.bed", "");
        write("strata.tsv", "a\ta.bed\nb\tb.bed\nnone\tempty.bed\n");
        let strata = Stratification::read(&directory.path().join("strata.tsv")).unwrap();
        assert_eq!(strata.names().collect::<Vec<_>>(), ["*", "a", "b", "none"]);
        let of = |contig: &str, start, end| strata.on_contig(contig).overlapped(start, end).collect::<Vec<_>>();
        assert_eq!((of("c1", 9, 10), of("c1", 9, 11), of("c1", 29, 30)), (vec![0], vec![0, 1], vec![0, 1, 2]));
        // An insertion covers no reference bases. It overlaps a stratum only if its position is inside.
        assert_eq!((of("c1", 10, 10), of("c1", 11, 11), of("c1", 30, 30)), (vec![0], vec![0, 1], vec![0, 2]));
        assert_eq!((of("c2", 4, 5), of("c3", 4, 5)), (vec![0, 2], vec![0]));
        assert!(strata.has_contig("c2") && !strata.has_contig("c3"));
    }
}
