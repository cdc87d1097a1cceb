//! Simulation of genomes and of reads whose true origin is known, for `godwit demo`, the benchmarks and the tests.
//!
//! Input: options, and optionally a reference FASTA that replaces the simulated genome. Output: a FASTA
//! ([`write_genome`]), the variants of a diploid sample as VCF ([`Sample::write_vcf`]), and FASTQ files for each lane
//! ([`write_reads`]). [`write_reads`] also writes a table with the origin of each template and the template that it
//! duplicates. Equal options always give equal bytes. Each template is computed from the seed and its own number only,
//! so that a simulation needs memory only for the genome.
//!
//! It does *not* model library chemistry, GC bias or coverage. It produces the cases that an aligner and a duplicate
//! marker must handle: repeats, indels, pairs that overlap, reads that continue into the adapter, chimeras, split
//! reads, mates that do not align, PCR duplicates on other tiles, and optical duplicates near each other.
//!
//! ```no_run
//! use godwit_simulate::{GenomeOptions, ReadOptions, Sample, SampleOptions, write_genome, write_reads};
//! use std::path::Path;
//! # fn main() -> Result<(), godwit_simulate::SimulateError> {
//! let assembly = write_genome(&GenomeOptions::default(), Path::new("demo.fa"))?;
//! let sample = Sample::draw(&assembly, &SampleOptions::default());
//! sample.write_vcf(&assembly, Path::new("demo.truth.vcf"))?;
//! let written = write_reads(&assembly, &sample, &ReadOptions::default(), Path::new("demo"))?;
//! println!("{} pairs in {} lanes", written.pairs, written.lanes.len());
//! # Ok(())
//! # }
//! ```

use std::io;
use std::path::PathBuf;

mod assembly;
mod assembly_contig;
mod atomic_text_file;
mod quality;
mod read_options;
mod read_pairs;
mod repeats;
mod rng;
mod sample;
mod template;
#[cfg(test)]
mod tests;

pub use assembly::{Assembly, ContigOptions, GenomeOptions, write_genome};
pub use assembly_contig::AssemblyContig;
pub use quality::QualityProfile;
pub use read_options::ReadOptions;
pub use read_pairs::{SimulatedReadFiles, read_file_paths, write_reads};
pub use sample::{Sample, SampleOptions, Variant};
pub use template::DuplicateKind;

use godwit_formats::fasta::FastaError;
use godwit_io::bgzf::BgzfError;

/// An error of a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A file could not be read.
    #[error("cannot read {}; check the path and its permissions", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}; check free space and permissions of its directory", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file is not valid FASTA.
    #[error(transparent)]
    NotFasta(FastaError),
    /// A genome without contigs, from which no reads can be drawn.
    #[error("the genome has no contig; give at least one")]
    EmptyGenome,
    /// A contig that is longer than the maximum position in SAM.
    #[error("contig {contig} is longer than 2^31 - 1 bases, the maximum of SAM; split it")]
    ContigTooLong {
        /// Name of the contig.
        contig: String,
    },
    /// An option whose value is outside its range.
    #[error("{option} is {value}; it must be {allowed}")]
    Option {
        /// Name of the field in the options.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// The allowed values, for the error message.
        allowed: &'static str,
    },
    /// No contig has a region without N that is long enough for the requested templates.
    #[error(
        "found no position without N for a template of about {insert_mean} bases; use longer contigs or shorter \
         templates"
    )]
    NoPosition {
        /// Requested mean template length, bases.
        insert_mean: u32,
    },
}

impl SimulateError {
    /// Converts an error of the FASTA reader: [`Self::Read`] if the file cannot be read, or else [`Self::NotFasta`].
    fn fasta(error: FastaError) -> Self {
        match error {
            FastaError::Bgzf(BgzfError::Io { path, source, .. }) => Self::Read { path, source },
            other => Self::NotFasta(other),
        }
    }
}
