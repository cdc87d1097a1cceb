//! The genome from which reads are drawn. It is simulated or read from a FASTA file.

use std::path::Path;

use godwit_formats::fasta::Reader;

use super::SimulateError;
use super::assembly_contig::AssemblyContig;
use super::atomic_text_file::AtomicTextFile;
use super::repeats;
use super::rng::{PURPOSE_GENOME, Rng};

/// Number of bases per line in FASTA files that are written.
const LINE_BASES: usize = 60;

/// Options of a simulated contig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContigOptions {
    /// Name of the contig, without white space.
    pub name: String,
    /// Length of the contig including the gap, 1 to 2^31 - 1 bases.
    pub bases: u32,
    /// Length of the gap of N in the middle of the contig, bases; at most `bases`.
    pub gap_bases: u32,
}

impl ContigOptions {
    /// Returns options for a contig without a gap.
    pub fn new(name: &str, bases: u32) -> Self {
        Self { name: name.to_owned(), bases, gap_bases: 0 }
    }
}

/// Options of a simulated genome.
#[derive(Clone, Debug, PartialEq)]
pub struct GenomeOptions {
    /// Options of the contigs, in the order of the genome.
    pub contigs: Vec<ContigOptions>,
    /// Fraction of the bases that repeats cover, 0 to 0.9. A quarter of the repeats is tandem; all others are copies of
    /// a few families. Some copies are identical, so that their reads have no unique position.
    pub repeat_fraction: f64,
    /// Seed of the random numbers. The same seed gives the same genome.
    pub seed: u64,
}

impl Default for GenomeOptions {
    /// Returns options for a genome of 680 kb in five contigs. One contig has a gap, and one is shorter than a read.
    fn default() -> Self {
        let mut contigs: Vec<_> =
            [("chr1", 300_000), ("chr2", 200_000), ("chr3", 120_000), ("chr4", 60_000), ("tiny", 80)]
                .map(|(name, bases)| ContigOptions::new(name, bases))
                .into();
        contigs[1].gap_bases = 2_000;
        Self { contigs, repeat_fraction: 0.12, seed: 1 }
    }
}

/// All contigs of a genome with their sequences, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    contigs: Vec<AssemblyContig>,
}

/// Simulates a genome and writes it to `fasta`.
///
/// # Errors
/// [`SimulateError::Option`] or [`SimulateError::EmptyGenome`] for invalid options; [`SimulateError::Write`] if the
/// file cannot be written.
pub fn write_genome(options: &GenomeOptions, fasta: &Path) -> Result<Assembly, SimulateError> {
    let assembly = Assembly::simulate(options)?;
    assembly.write_fasta(fasta)?;
    Ok(assembly)
}

impl Assembly {
    /// Simulates a genome: first random bases, then repeats over them, then gaps.
    ///
    /// # Errors
    /// [`SimulateError::Option`], [`SimulateError::ContigTooLong`] or [`SimulateError::EmptyGenome`] for invalid
    /// options.
    pub fn simulate(options: &GenomeOptions) -> Result<Self, SimulateError> {
        if !(0.0..=0.9).contains(&options.repeat_fraction) {
            let value = options.repeat_fraction.to_string();
            return Err(SimulateError::Option { option: "repeat_fraction", value, allowed: "between 0 and 0.9" });
        }
        if options.contigs.iter().any(|plan| plan.bases == 0) {
            return Err(SimulateError::Option { option: "bases", value: "0".to_owned(), allowed: "1 or more" });
        }
        let mut rng = Rng::new(options.seed, PURPOSE_GENOME, 0);
        let mut contigs: Vec<_> = options
            .contigs
            .iter()
            .map(|plan| AssemblyContig {
                name: plan.name.clone(),
                bases: (0..plan.bases).map(|_| rng.base()).collect(),
                identical_copies: Vec::new(),
            })
            .collect();
        repeats::add_repeats(&mut contigs, options.repeat_fraction, &mut rng);
        for (contig, plan) in contigs.iter_mut().zip(&options.contigs) {
            let gap_bases = plan.gap_bases.min(plan.bases) as usize;
            let start = (contig.bases.len() - gap_bases) / 2;
            contig.bases[start..start + gap_bases].fill(b'N');
        }
        Self::new(contigs)
    }

    /// Reads a FASTA file, which may be plain, gzip or BGZF. Converts lower case to upper case, and all letters other
    /// than `ACGT` to N.
    ///
    /// # Errors
    /// [`SimulateError::Read`], [`SimulateError::NotFasta`] or [`SimulateError::ContigTooLong`].
    pub fn read_fasta(path: &Path) -> Result<Self, SimulateError> {
        let mut fasta = Reader::open(path, 1).map_err(SimulateError::fasta)?;
        let mut contigs = Vec::new();
        while let Some(name) = fasta.next_contig().map_err(SimulateError::fasta)? {
            let mut bases = Vec::new();
            while let Some(run) = fasta.next_bases().map_err(SimulateError::fasta)? {
                bases.extend(run.iter().map(|base| match base.to_ascii_uppercase() {
                    base @ (b'A' | b'C' | b'G' | b'T') => base,
                    _ => b'N',
                }));
            }
            contigs.push(AssemblyContig { name, bases, identical_copies: Vec::new() });
        }
        Self::new(contigs)
    }

    fn new(contigs: Vec<AssemblyContig>) -> Result<Self, SimulateError> {
        if let Some(contig) = contigs.iter().find(|contig| contig.bases.len() > i32::MAX as usize) {
            return Err(SimulateError::ContigTooLong { contig: contig.name.clone() });
        }
        if contigs.is_empty() {
            return Err(SimulateError::EmptyGenome);
        }
        Ok(Self { contigs })
    }

    /// Returns the contigs in the order of the genome.
    pub fn contigs(&self) -> &[AssemblyContig] {
        &self.contigs
    }

    /// Returns the total number of bases of all contigs.
    pub fn bases(&self) -> u64 {
        self.contigs.iter().map(|contig| contig.bases.len() as u64).sum()
    }

    /// Writes a BED file of all intervals of the genome that are not identical copies of another interval.
    ///
    /// # Errors
    /// [`SimulateError::Write`] if the file cannot be written.
    pub fn write_unique_bed(&self, path: &Path) -> Result<(), SimulateError> {
        let mut bed = AtomicTextFile::create(path, false)?;
        for contig in &self.contigs {
            let mut copies = contig.identical_copies.clone();
            copies.push((contig.bases.len() as u32, u32::MAX));
            copies.sort_unstable();
            let mut from = 0;
            for (start, end) in copies {
                if from < start {
                    bed.text.extend_from_slice(format!("{}\t{from}\t{start}\n", contig.name).as_bytes());
                }
                from = from.max(end);
            }
            bed.flush_if_full()?;
        }
        bed.commit().map(drop)
    }

    /// Writes the sequences as FASTA, 60 bases per line.
    ///
    /// # Errors
    /// [`SimulateError::Write`] if the file cannot be written.
    pub(crate) fn write_fasta(&self, path: &Path) -> Result<(), SimulateError> {
        let mut fasta = AtomicTextFile::create(path, false)?;
        for contig in &self.contigs {
            fasta.text.extend_from_slice(b">");
            fasta.text.extend_from_slice(contig.name.as_bytes());
            fasta.text.push(b'\n');
            for line in contig.bases.chunks(LINE_BASES) {
                fasta.text.extend_from_slice(line);
                fasta.text.push(b'\n');
                fasta.flush_if_full()?;
            }
        }
        fasta.commit().map(drop)
    }
}
