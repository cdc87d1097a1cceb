//! Simulated sequencing: writes FASTQ files for each lane and a table with the true origin of each template.
//!
//! Input: a genome, a sample of this genome, and options. Output: `PREFIX_L001_R1.fastq[.gz]`,
//! `PREFIX_L001_R2.fastq[.gz]` and so on for each lane, in the order of template numbers, and `PREFIX.truth.tsv` with a
//! line for each template in the same order:
//!
//! | column | |
//! |---|---|
//! | `name` | as in the FASTQ files |
//! | `contig`, `position_1based` | leftmost reference base of its fragment; `*`, 0 for a pair of random reads |
//! | `duplicate` | `none`, `pcr` or `optical` |
//! | `first` | name of the first template of the same molecule; its own if `none` |
//! | `kind` | `ordinary`, `chimeric_pair`, `split_read`, `junk_mate` or `junk_pair` |

use std::path::{Path, PathBuf};

use super::SimulateError;
use super::assembly::Assembly;
use super::atomic_text_file::AtomicTextFile;
use super::quality::QualityModel;
use super::read_options::{ADAPTERS, ReadOptions};
use super::rng::{PURPOSE_SEQUENCING, Rng, complement};
use super::sample::Sample;
use super::template::{DuplicateKind, FlowCellPosition, MAX_LANE_PAIRS, Molecule, MoleculeKind, Templates};

/// Maximum read length, bases. It is longer than that of any Illumina sequencer.
const MAX_READ_BASES: u32 = 1000;

/// Checks that all options are in range.
fn check_options(options: &ReadOptions) -> Result<(), SimulateError> {
    let duplicates = options.pcr_duplicate_fraction + options.optical_duplicate_fraction;
    let odd = options.chimeric_fraction + options.junk_fraction;
    let fractions = [
        options.pcr_duplicate_fraction,
        options.optical_duplicate_fraction,
        options.chimeric_fraction,
        options.junk_fraction,
    ];
    let room = MAX_LANE_PAIRS * u64::from(options.lanes);
    let rules = [
        ((1..=8).contains(&options.lanes), "lanes", options.lanes.to_string(), "between 1 and 8"),
        (options.pairs <= room, "pairs", options.pairs.to_string(), "at most 467,140,608 for each lane"),
        (
            (30..=MAX_READ_BASES).contains(&options.read_bases),
            "read_bases",
            options.read_bases.to_string(),
            "between 30 and 1000",
        ),
        (
            options.insert_mean >= options.read_bases,
            "insert_mean",
            options.insert_mean.to_string(),
            "at least read_bases",
        ),
        (fractions.iter().all(|share| *share >= 0.0), "a fraction", format!("{fractions:?}"), "at least 0"),
        (duplicates <= 0.9, "the fraction of duplicates", duplicates.to_string(), "at most 0.9"),
        (odd <= 1.0, "the fraction of chimeras and random reads", odd.to_string(), "at most 1"),
    ];
    match rules.into_iter().find(|(good, ..)| !good) {
        Some((_, option, value, allowed)) => Err(SimulateError::Option { option, value, allowed }),
        None => Ok(()),
    }
}

/// The files and counts that a simulation has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedReadFiles {
    /// Paths of the FASTQ files of each lane: read 1, then read 2.
    pub lanes: Vec<[PathBuf; 2]>,
    /// Path of the table of templates.
    pub truth: PathBuf,
    /// Number of read pairs in all lanes together.
    pub pairs: u64,
    /// Number of templates that are PCR duplicates.
    pub pcr_duplicates: u64,
    /// Number of templates that are optical duplicates.
    pub optical_duplicates: u64,
}

/// Returns the paths of the files that [`write_reads`] writes: the table of templates, and the FASTQ files of each lane.
///
/// # Errors
/// [`SimulateError::Option`] if an option is out of range.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use godwit_simulate::{ReadOptions, read_file_paths};
///
/// # fn main() -> Result<(), godwit_simulate::SimulateError> {
/// let options = ReadOptions { lanes: 1, gzip: false, ..ReadOptions::default() };
/// let paths = read_file_paths(&options, Path::new("demo"))?;
/// assert!(paths.iter().map(|path| path.display().to_string()).eq([
///     "demo.truth.tsv",
///     "demo_L001_R1.fastq",
///     "demo_L001_R2.fastq",
/// ]));
/// # Ok(())
/// # }
/// ```
pub fn read_file_paths(options: &ReadOptions, prefix: &Path) -> Result<Vec<PathBuf>, SimulateError> {
    check_options(options)?;
    let reads = (1..=options.lanes).flat_map(|lane| [1, 2].map(|read| fastq_path(options, prefix, lane, read)));
    Ok(std::iter::once(with_suffix(prefix, ".truth.tsv")).chain(reads).collect())
}

/// Returns the path of the FASTQ file of a lane with the first or second reads of the pairs; `read` is 1 or 2.
fn fastq_path(options: &ReadOptions, prefix: &Path, lane: u32, read: u32) -> PathBuf {
    let extension = if options.gzip { "fastq.gz" } else { "fastq" };
    with_suffix(prefix, &format!("_L{lane:03}_R{read}.{extension}"))
}

/// Appends a suffix to the last component of a path.
fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    PathBuf::from(path)
}

/// Sequences a sample: writes the FASTQ files and the table of templates. The module documentation describes the names
/// of the files.
///
/// # Errors
/// [`SimulateError::Option`] if an option is out of range, [`SimulateError::NoPosition`] if no contig is long enough
/// for the templates, and [`SimulateError::Write`] if a file cannot be written.
pub fn write_reads(
    assembly: &Assembly,
    sample: &Sample,
    options: &ReadOptions,
    prefix: &Path,
) -> Result<SimulatedReadFiles, SimulateError> {
    check_options(options)?;
    let open = |lane: u32, read: u32| AtomicTextFile::create(&fastq_path(options, prefix, lane, read), options.gzip);
    let mut lanes =
        (1..=options.lanes).map(|lane| Ok([open(lane, 1)?, open(lane, 2)?])).collect::<Result<Vec<_>, _>>()?;
    let mut truth = AtomicTextFile::create(&with_suffix(prefix, ".truth.tsv"), false)?;
    truth.text.extend_from_slice(b"name\tcontig\tposition_1based\tduplicate\tfirst\tkind\n");

    let templates = Templates::new(assembly, sample, options);
    let mut sequencer = Sequencer::new(&templates, options);
    let (mut pcr_duplicates, mut optical_duplicates) = (0, 0);
    for number in 0..options.pairs {
        let (kind, _) = templates.origin(number);
        match kind {
            DuplicateKind::None => {}
            DuplicateKind::Pcr => pcr_duplicates += 1,
            DuplicateKind::Optical => optical_duplicates += 1,
        }
        let first = templates.first_of_molecule(number);
        let molecule = templates.molecule(first)?;
        let place = templates.flow_cell_position(number);
        sequencer.write_pair(&molecule, &place, number, &mut lanes[place.lane as usize])?;
        push_truth(&mut truth.text, assembly, &molecule, kind, &place, &templates.flow_cell_position(first));
        truth.flush_if_full()?;
    }
    let commit = |[first, second]: [AtomicTextFile; 2]| Ok([first.commit()?, second.commit()?]);
    let lanes = lanes.into_iter().map(commit).collect::<Result<_, SimulateError>>()?;
    Ok(SimulatedReadFiles { lanes, truth: truth.commit()?, pairs: options.pairs, pcr_duplicates, optical_duplicates })
}

/// A simulated sequencer that converts molecules to FASTQ text, with reusable buffers.
struct Sequencer<'a> {
    templates: &'a Templates<'a>,
    model: QualityModel,
    read_bases: usize,
    seed: u64,
    left: Vec<u8>,
    right: Vec<u8>,
    qualities: Vec<u8>,
}

impl<'a> Sequencer<'a> {
    fn new(templates: &'a Templates<'a>, options: &ReadOptions) -> Self {
        let read_bases = options.read_bases as usize;
        let model = QualityModel::new(options.qualities, read_bases);
        let (left, right, qualities) = (Vec::new(), Vec::new(), Vec::new());
        Self { templates, model, read_bases, seed: options.seed, left, right, qualities }
    }

    /// Writes both reads of a molecule, as template `number`, to the files of the lane.
    fn write_pair(
        &mut self,
        molecule: &Molecule,
        place: &FlowCellPosition,
        number: u64,
        files: &mut [AtomicTextFile; 2],
    ) -> Result<(), SimulateError> {
        self.fill_ends(molecule);
        let mut rng = Rng::new(self.seed, PURPOSE_SEQUENCING, number);
        let ends = if molecule.read1_from_right_end {
            [&mut self.right, &mut self.left]
        } else {
            [&mut self.left, &mut self.right]
        };
        for (index, (bases, file)) in ends.into_iter().zip(files).enumerate() {
            bases.extend_from_slice(ADAPTERS[index]);
            bases.truncate(self.read_bases);
            let junk =
                molecule.kind == MoleculeKind::JunkPair || (molecule.kind == MoleculeKind::JunkMate && index == 1);
            if junk {
                bases.clear();
                bases.extend((0..self.read_bases).map(|_| rng.base()));
            }
            self.qualities.clear();
            self.model.add_errors_and_qualities(index == 1, bases, &mut self.qualities, &mut rng);
            file.text.push(b'@');
            push_name(&mut file.text, place);
            file.text.push(b'\n');
            file.text.extend_from_slice(bases);
            file.text.extend_from_slice(b"\n+\n");
            file.text.extend_from_slice(&self.qualities);
            file.text.push(b'\n');
            file.flush_if_full()?;
        }
        Ok(())
    }

    /// Copies the bases at both ends of the fragment to `left` and `right`, at most one read length each.
    fn fill_ends(&mut self, molecule: &Molecule) {
        self.left.clear();
        self.templates.append_fragment_bases(&molecule.fragment, &mut self.left);
        let seen = self.left.len().min(self.read_bases);
        self.right.clear();
        self.right.extend(self.left[self.left.len() - seen..].iter().rev().map(|&base| complement(base)));
        self.left.truncate(seen);
        let (first_end, second_end) = if molecule.read1_from_right_end {
            (&mut self.right, &mut self.left)
        } else {
            (&mut self.left, &mut self.right)
        };
        let (odd_end, keep) = match molecule.kind {
            MoleculeKind::SplitRead => (first_end, seen / 2),
            MoleculeKind::ChimericPair => (second_end, 0),
            _ => return,
        };
        odd_end.truncate(keep);
        self.templates.append_fragment_bases(&molecule.second_fragment, odd_end);
    }
}

/// Appends the name of a cluster in the format of Illumina: instrument, run, flow cell, lane (1-based), tile, x, y.
fn push_name(text: &mut Vec<u8>, place: &FlowCellPosition) {
    text.extend_from_slice(b"GWT:1:FC1");
    for number in [place.lane + 1, place.tile, place.x, place.y] {
        text.push(b':');
        push_number(text, number);
    }
}

/// Appends a number in decimal. `write!` is slower: it would take a third of the time of a simulation.
fn push_number(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[first..]);
}

/// Appends a line to the table of templates.
fn push_truth(
    text: &mut Vec<u8>,
    assembly: &Assembly,
    molecule: &Molecule,
    kind: DuplicateKind,
    place: &FlowCellPosition,
    first: &FlowCellPosition,
) {
    push_name(text, place);
    text.push(b'\t');
    if molecule.kind == MoleculeKind::JunkPair {
        text.extend_from_slice(b"*\t0\t");
    } else {
        text.extend_from_slice(assembly.contigs()[molecule.fragment.contig].name.as_bytes());
        text.push(b'\t');
        // Positions in the table are 1-based.
        push_number(text, u64::from(molecule.fragment.start) + 1);
        text.push(b'\t');
    }
    text.extend_from_slice(kind.name().as_bytes());
    text.push(b'\t');
    push_name(text, first);
    text.push(b'\t');
    text.extend_from_slice(molecule.kind.name().as_bytes());
    text.push(b'\n');
}
