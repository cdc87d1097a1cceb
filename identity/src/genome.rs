//! A synthetic genome whose repeats give an aligner several choices: interspersed families of several ages, segmental
//! duplications, satellites, microsatellites, runs of N, and alternate contigs.
//!
//! In: a [`GenomeSpec`]. Out: contigs, and the files `ref.fa` and `ref.fa.alt`. Equal specifications give equal files. Repeats are
//! lower-case letters in the file, as RepeatMasker writes them; a few letters are IUPAC codes for several bases.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::random::{Purpose, Random, reverse_complement};

mod repeats;

use repeats::Families;

/// The number of bases of a contig that is shorter than every seed and nearly every read.
const SHORT_CONTIG_BASES: usize = 40;
/// The relative lengths of the primary contigs.
const CONTIG_WEIGHTS: [usize; 7] = [8, 6, 5, 4, 3, 2, 1];
/// The fraction of the genome that segmental duplications overwrite.
const DUPLICATED_SHARE: f64 = 0.06;
/// The fraction of each contig that is an array of satellites.
const SATELLITE_SHARE: f64 = 0.04;
/// The number of bases in a line of the FASTA file.
const LINE_BASES: usize = 60;
/// IUPAC letters that stand for two or three bases.
const IUPAC: &[u8] = b"RYSWKMBDHV";

/// Size and seed of a genome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenomeSpec {
    /// The number of bases of the primary contigs; alternate contigs are added to them.
    pub bases: usize,
    /// The seed of all random choices.
    pub seed: u64,
}

/// A contig and its bases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contig {
    /// The name, without a comment.
    pub name: String,
    /// The bases. Upper-case letters are unique sequence, lower-case letters belong to repeats.
    pub bases: Vec<u8>,
    /// The name of the primary contig of which this is an alternate haplotype, and the 1-based position there.
    pub alternate_of: Option<(String, usize)>,
}

/// The number of bases that repeats of each kind cover in the primary contigs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepeatBases {
    /// Copies of interspersed families.
    pub interspersed: usize,
    /// Targets of segmental duplications.
    pub duplicated: usize,
    /// Arrays of satellites.
    pub satellite: usize,
    /// Repeats of units of 1 to 6 bases, and tandem copies of local sequence.
    pub microsatellite: usize,
    /// Runs of N.
    pub unknown: usize,
}

/// The kind of sequence that a base belongs to while a contig is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unique,
    Interspersed,
    Duplicated,
    Satellite,
    Microsatellite,
    Unknown,
}

/// A contig while it is built, with the kind of sequence of each base.
#[derive(Default)]
struct Draft {
    bases: Vec<u8>,
    kinds: Vec<Kind>,
}

impl Draft {
    fn append(&mut self, bases: &[u8], kind: Kind) {
        self.bases.extend_from_slice(bases);
        self.kinds.resize(self.bases.len(), kind);
    }

    /// Replaces the bases from `start` on, at most up to the end of the contig.
    fn overwrite(&mut self, start: usize, bases: &[u8], kind: Kind) {
        let end = (start + bases.len()).min(self.bases.len());
        self.bases[start..end].copy_from_slice(&bases[..end - start]);
        self.kinds[start..end].fill(kind);
    }

    fn truncate(&mut self, length: usize) {
        self.bases.truncate(length);
        self.kinds.truncate(length);
    }
}

/// Contigs in the order of the file.
#[derive(Clone, Debug)]
pub struct Genome {
    /// Primary contigs, then alternate ones.
    pub contigs: Vec<Contig>,
    /// The bases of each kind of repeat.
    pub repeats: RepeatBases,
}

/// Generates the genome of `spec`.
pub fn generate(spec: GenomeSpec) -> Genome {
    let mut random = Random::stream(spec.seed, Purpose::Genome, spec.bases as u64);
    let families = Families::new(&mut random);
    let weights: usize = CONTIG_WEIGHTS.iter().sum();
    let mut drafts: Vec<Draft> = CONTIG_WEIGHTS
        .iter()
        .enumerate()
        .map(|(index, weight)| primary_contig(&mut random, &families, index, spec.bases * weight / weights))
        .collect();
    duplicate_segments(&mut random, &mut drafts, spec.bases);
    add_iupac_letters(&mut random, &mut drafts);
    let repeats = count(&drafts);
    let mut contigs: Vec<Contig> = drafts
        .into_iter()
        .enumerate()
        .map(|(index, draft)| Contig { name: format!("chr{}", index + 1), bases: masked(draft), alternate_of: None })
        .collect();
    let alternates = alternate_contigs(&mut random, &contigs);
    let short = random.bases(SHORT_CONTIG_BASES, 0.5);
    contigs.push(Contig { name: "chrShort".to_owned(), bases: short, alternate_of: None });
    contigs.extend(alternates);
    Genome { contigs, repeats }
}

/// Returns unique sequence with a repeat after each piece, an array of satellites in the middle, and runs of N.
fn primary_contig(random: &mut Random, families: &Families, index: usize, length: usize) -> Draft {
    let mut draft = Draft::default();
    // The first contig starts without N, because aligners had defects at the first bases of the genome.
    if index % 2 == 1 {
        draft.append(&vec![b'N'; random.between(100, 1000)], Kind::Unknown);
        draft.append(&b"CCCTAA".repeat(random.between(20, 100)), Kind::Microsatellite);
    }
    let mut gc_share: f64 = 0.42;
    while draft.bases.len() < length {
        gc_share = (gc_share + 0.03 * random.normal()).clamp(0.33, 0.6);
        let bases = random.between(100, 2000);
        draft.append(&random.bases(bases, gc_share), Kind::Unique);
        match random.below(100) {
            0..60 => draft.append(&families.short_copy(random), Kind::Interspersed),
            60..90 => draft.append(&families.long_copy(random), Kind::Interspersed),
            90..97 => draft.append(&repeats::microsatellite(random), Kind::Microsatellite),
            97..99 => {
                let unit_bases = random.between(50, 500).min(draft.bases.len());
                let unit = draft.bases[draft.bases.len() - unit_bases..].to_vec();
                for _ in 0..random.between(1, 4) {
                    draft.append(&random.mutated(&unit, 0.02), Kind::Microsatellite);
                }
            }
            _ => draft.append(&vec![b'N'; random.between(1, 300)], Kind::Unknown),
        }
    }
    draft.truncate(length);
    let array = repeats::satellite_array(random, (length as f64 * SATELLITE_SHARE) as usize);
    draft.overwrite(length / 2, &array, Kind::Satellite);
    draft.overwrite(length / 2 + array.len(), &vec![b'N'; length / 200], Kind::Unknown);
    draft
}

/// Overwrites parts of contigs with mutated copies of other parts, on either strand.
fn duplicate_segments(random: &mut Random, drafts: &mut [Draft], genome_bases: usize) {
    let mut left = (genome_bases as f64 * DUPLICATED_SHARE) as usize;
    while left > 0 {
        let (source, target) = (random.below(drafts.len()), random.below(drafts.len()));
        let room = drafts[source].bases.len().min(drafts[target].bases.len()) / 6;
        let length = random.between(10_000, 300_000).min(room).min(left.max(1000));
        if length == 0 {
            return;
        }
        let from = random.below(drafts[source].bases.len() - length);
        let divergence = 0.01 + 0.09 * random.unit();
        let mut copy = random.mutated(&drafts[source].bases[from..from + length], divergence);
        if random.chance(0.5) {
            copy = reverse_complement(&copy);
        }
        let to = random.below(drafts[target].bases.len() - length);
        drafts[target].overwrite(to, &copy, Kind::Duplicated);
        left = left.saturating_sub(length);
    }
}

/// Replaces about one base in 100,000 by a code for several bases; bwa draws a base for each when it makes the index.
fn add_iupac_letters(random: &mut Random, drafts: &mut [Draft]) {
    for draft in drafts {
        for _ in 0..draft.bases.len() / 100_000 + 1 {
            let at = random.below(draft.bases.len());
            if draft.kinds[at] != Kind::Unknown {
                draft.bases[at] = *random.pick(IUPAC);
            }
        }
    }
}

fn count(drafts: &[Draft]) -> RepeatBases {
    let mut repeats = RepeatBases::default();
    for kind in drafts.iter().flat_map(|draft| &draft.kinds) {
        match kind {
            Kind::Unique => {}
            Kind::Interspersed => repeats.interspersed += 1,
            Kind::Duplicated => repeats.duplicated += 1,
            Kind::Satellite => repeats.satellite += 1,
            Kind::Microsatellite => repeats.microsatellite += 1,
            Kind::Unknown => repeats.unknown += 1,
        }
    }
    repeats
}

fn masked(mut draft: Draft) -> Vec<u8> {
    for (base, kind) in draft.bases.iter_mut().zip(&draft.kinds) {
        if !matches!(kind, Kind::Unique | Kind::Unknown) {
            base.make_ascii_lowercase();
        }
    }
    draft.bases
}

/// Returns alternate haplotypes of parts of the primary contigs. Each has an insertion.
fn alternate_contigs(random: &mut Random, primary: &[Contig]) -> Vec<Contig> {
    let total: usize = primary.iter().map(|contig| contig.bases.len()).sum();
    let number = (2 + total / 10_000_000).min(40);
    (0..number)
        .map(|index| {
            let contig = random.pick(primary);
            let length = random.between(20_000, 150_000).min(contig.bases.len() / 3);
            let start = random.below(contig.bases.len() - length);
            let divergence = 0.002 + 0.02 * random.unit();
            let source = contig.bases[start..start + length].to_ascii_uppercase();
            let mut bases = random.mutated(&source, divergence);
            let inserted = random.between(50, 2000);
            let at = random.below(bases.len());
            bases.splice(at..at, random.bases(inserted, 0.45));
            let name = format!("{}_alt{}", contig.name, index + 1);
            Contig { name, bases, alternate_of: Some((contig.name.clone(), start + 1)) }
        })
        .collect()
}

/// Writes the FASTA file of `spec` and its `.alt` file to `directory` if they do not exist. Returns the path of the
/// FASTA file.
///
/// # Errors
/// [`Error::File`] when a file cannot be written.
pub fn write_once(spec: GenomeSpec, directory: &Path) -> Result<PathBuf> {
    let path = directory.join("ref.fa");
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
    let genome = generate(spec);
    let alternates = directory.join("ref.fa.alt");
    fs::write(&alternates, alternates_text(&genome)).map_err(Error::file("write", &alternates))?;
    let partial = directory.join("ref.fa.partial");
    write_fasta(&genome, &partial).map_err(Error::file("write", &partial))?;
    fs::rename(&partial, &path).map_err(Error::file("rename", &partial))?;
    Ok(path)
}

fn write_fasta(genome: &Genome, path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for contig in &genome.contigs {
        writeln!(file, ">{} synthetic contig of {} bases", contig.name, contig.bases.len())?;
        for line in contig.bases.chunks(LINE_BASES) {
            file.write_all(line)?;
            file.write_all(b"\n")?;
        }
    }
    file.into_inner()?.sync_all()
}

/// Returns the lines of `.alt`, in the form of the file that bwakit has for GRCh38.
fn alternates_text(genome: &Genome) -> String {
    let lines = genome.contigs.iter().filter_map(|contig| {
        let (name, start_1based) = contig.alternate_of.as_ref()?;
        let bases = contig.bases.len();
        Some(format!("{}\t0\t{name}\t{start_1based}\t60\t{bases}M\t*\t0\t0\t*\t*\n", contig.name))
    });
    lines.collect()
}

/// Reads the contigs of a FASTA file that [`write_once`] wrote, in upper case.
///
/// # Errors
/// [`Error::File`] when it cannot be read; [`Error::Input`] when it holds no sequence.
pub fn read_contigs(path: &Path) -> Result<Vec<Vec<u8>>> {
    let file = File::open(path).map_err(Error::file("open", path))?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    let (mut contigs, mut line): (Vec<Vec<u8>>, Vec<u8>) = (Vec::new(), Vec::new());
    while file.read_until(b'\n', &mut line).map_err(Error::file("read", path))? > 0 {
        match (line.first(), contigs.last_mut()) {
            (Some(b'>'), _) => contigs.push(Vec::new()),
            (_, Some(contig)) => contig.extend(line.trim_ascii_end().iter().map(u8::to_ascii_uppercase)),
            _ => {}
        }
        line.clear();
    }
    if contigs.iter().all(Vec::is_empty) {
        return Err(Error::Input { path: path.to_owned(), problem: "the file holds no sequence".to_owned() });
    }
    Ok(contigs)
}

#[cfg(test)]
mod tests;
