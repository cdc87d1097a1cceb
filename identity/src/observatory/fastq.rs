//! FASTQ files of the templates of a round, some of them as placeholders.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::reduction::{Placeholders, Subset};
use crate::scenario::Scenario;
use crate::simulator::{ReadSimulator, Template};

/// The letter before the number of a template in its name.
const NAME_PREFIX: char = 't';

/// Returns the number of the template that a record belongs to.
pub(super) fn template_number(name: &str) -> Option<u64> {
    name.strip_prefix(NAME_PREFIX)?.parse().ok()
}

/// Writes all templates of a scenario.
pub(super) fn write_all(simulator: &ReadSimulator<'_>, scenario: &Scenario, directory: &Path) -> Result<Vec<PathBuf>> {
    write_subset(simulator, scenario, &Subset::all(scenario.templates), directory).map(|(paths, _)| paths)
}

/// Writes the templates of a subset to one file, or to one file for each mate. Returns the paths and the number of
/// bases.
pub(super) fn write_subset(
    simulator: &ReadSimulator<'_>,
    scenario: &Scenario,
    subset: &Subset,
    directory: &Path,
) -> Result<(Vec<PathBuf>, u64)> {
    let mates = if scenario.paired { 2 } else { 1 };
    let paths: Vec<PathBuf> = (1..=mates).map(|mate| directory.join(format!("reads_{mate}.fq"))).collect();
    let open = |path: &PathBuf| File::create(path).map(|file| BufWriter::with_capacity(1 << 18, file));
    let mut files =
        paths.iter().map(|path| open(path).map_err(Error::file("create", path))).collect::<Result<Vec<_>>>()?;
    let (mut bases, mut kept) = (0, subset.kept.iter().peekable());
    for index in 0..subset.total {
        let is_kept = kept.next_if_eq(&&index).is_some();
        if !is_kept && subset.placeholders == Placeholders::None {
            continue;
        }
        let template = simulator.template(index);
        let template = if is_kept { template } else { placeholder(template, subset.placeholders) };
        bases += template.bases();
        for ((read, file), path) in template.reads.iter().zip(&mut files).zip(&paths) {
            let barcode = ["ACGT", "GGCC", "TTAA"][(index % 3) as usize];
            let mut write = || -> std::io::Result<()> {
                writeln!(file, "@{NAME_PREFIX}{index} BC:Z:{barcode}")?;
                for line in [&read.bases[..], b"+", &read.qualities] {
                    file.write_all(line)?;
                    file.write_all(b"\n")?;
                }
                Ok(())
            };
            write().map_err(Error::file("write", path))?;
        }
    }
    for (file, path) in files.iter_mut().zip(&paths) {
        file.flush().map_err(Error::file("write", path))?;
    }
    Ok((paths, bases))
}

fn placeholder(mut template: Template, form: Placeholders) -> Template {
    for read in &mut template.reads {
        let bases = if form == Placeholders::OneBase { 1 } else { read.bases.len() };
        read.bases = vec![b'N'; bases];
        read.qualities = vec![b'#'; bases];
    }
    template
}

/// Cuts the templates of a scenario into blocks as bwa does: reads are added until a block has `block_bases` bases and an even number of
/// reads.
pub(super) fn blocks(simulator: &ReadSimulator<'_>, scenario: &Scenario) -> Vec<Range<u64>> {
    cut((0..scenario.templates).map(|index| simulator.template(index).bases()), scenario.paired, scenario.block_bases)
}

fn cut(template_bases: impl Iterator<Item = u64>, paired: bool, block_bases: u64) -> Vec<Range<u64>> {
    let (mut blocks, mut start, mut end, mut sum) = (Vec::new(), 0, 0, 0);
    for bases in template_bases {
        end += 1;
        sum += bases;
        if sum >= block_bases && (paired || (end - start) % 2 == 0) {
            blocks.push(start..end);
            (start, sum) = (end, 0);
        }
    }
    if end > start {
        blocks.push(start..end);
    }
    blocks
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;
    use crate::qualities::QualitySource;
    use crate::scenario::ReadLengths;

    #[test]
    fn blocks_end_where_their_bases_suffice_and_their_reads_are_even() {
        assert_eq!(cut([10; 7].into_iter(), true, 30), [0..3, 3..6, 6..7]);
        assert_eq!(cut([10; 9].into_iter(), false, 30), [0..4, 4..8, 8..9]);
        assert_eq!(cut([].into_iter(), false, 30), []);
    }

    #[test]
    fn placeholders_keep_ordinals_and_bases_and_kept_templates_keep_their_reads() {
        let contigs = [b"ACGTTGCATGCAAGTC".repeat(100)];
        let lengths = ReadLengths::Fixed(50);
        let scenario =
            Scenario { paired: true, read_lengths: lengths, oddity_share: 0.0, ..Scenario::draw(1, 0, 1000) };
        let simulator = ReadSimulator::new(&contigs, &scenario, &QualitySource::Model);
        let directory = std::env::temp_dir().join(format!("godwit-identity-fastq-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let text = |placeholders, total| {
            let subset = Subset { kept: vec![3, 5], total, placeholders };
            let (paths, bases) = write_subset(&simulator, &scenario, &subset, &directory).unwrap();
            (std::fs::read_to_string(&paths[1]).unwrap(), bases)
        };
        let (same, same_bases) = text(Placeholders::SameBases, 8);
        let (short, short_bases) = text(Placeholders::OneBase, 6);
        let (none, none_bases) = text(Placeholders::None, 6);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!((same_bases, short_bases, none_bases), (800, 208, 200));
        let kept = String::from_utf8(simulator.template(5).reads[1].bases.clone()).unwrap();
        assert_eq!(same.lines().nth(4 * 5 + 1), Some(kept.as_str()));
        assert_eq!(short.lines().nth(4 * 5 + 1), Some(kept.as_str()));
        assert_eq!(none.lines().nth(4 + 1), Some(kept.as_str()));
        assert_eq!(same.lines().nth(4 * 6 + 1), Some("N".repeat(50).as_str()));
        assert_eq!(template_number(none.lines().next().unwrap()[1..].split(' ').next().unwrap()), Some(3));
    }
}
