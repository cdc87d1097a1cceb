//! Simulated genomes and reads with a known truth, for `godwit demo`, the benchmarks and the tests.
//!
//! In: options, or a reference FASTA instead of a simulated genome. Out: a FASTA ([`write_genome`]), the variants of a
//! diploid sample as VCF ([`Sample::write_vcf`]), and FASTQ files by lane with a table of the origin of each template and of
//! the template that it duplicates ([`write_reads`]). The same options always give the same bytes. Every template is a
//! function of the seed and its own number, so a simulation needs memory for the genome only.
//!
//! It does *not* model library chemistry, GC bias or coverage. It produces the cases that an aligner and a duplicate marker
//! must handle: repeats, indels, pairs that overlap or read through into the adapter, chimeras, split reads, mates that do
//! not align, PCR duplicates on other tiles and optical duplicates nearby.
//!
//! ```no_run
//! use godwit_pipeline::simulate::{GenomeOptions, ReadOptions, Sample, SampleOptions, write_genome, write_reads};
//! use std::path::Path;
//! # fn main() -> Result<(), godwit_pipeline::simulate::SimulateError> {
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
mod atomic_text_file;
mod quality;
mod read_pairs;
mod repeats;
mod rng;
mod sample;
mod template;
#[cfg(test)]
mod tests;

pub use assembly::{Assembly, AssemblyContig, ContigOptions, GenomeOptions, write_genome};
pub use quality::QualityProfile;
pub use read_pairs::{ReadOptions, ReadsWritten, write_reads};
pub use sample::{Sample, SampleOptions, Variant};
pub use template::DuplicateKind;

use godwit_formats::bgzf::BgzfError;
use godwit_formats::fasta::FastaError;

/// An error of a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A file could not be read.
    #[error("cannot read {}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}; check free space and permissions of its directory", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A file is not valid FASTA.
    #[error(transparent)]
    NotFasta(FastaError),
    /// A genome without contigs.
    #[error("the genome has no contig; give at least one")]
    EmptyGenome,
    /// A contig longer than the positions of SAM allow.
    #[error("contig {contig} is longer than 2^31 - 1 bases, which SAM cannot place reads on; split it")]
    ContigTooLong {
        /// Name of the contig.
        contig: String,
    },
    /// An option out of its range.
    #[error("{option} is {value}; it must be {allowed}")]
    Option {
        /// Name of the field.
        option: &'static str,
        /// The given value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// No contig is long enough for the requested templates.
    #[error(
        "found no place without N for a template of about {insert_mean} bases; use longer contigs or shorter templates"
    )]
    NoPosition {
        /// Requested mean template length, bases.
        insert_mean: u32,
    },
}

impl SimulateError {
    /// Separates a file that cannot be read from one that is not valid FASTA.
    fn fasta(error: FastaError) -> Self {
        match error {
            FastaError::Bgzf(BgzfError::Io { path, source, .. }) => Self::Read { path, source },
            other => Self::NotFasta(other),
        }
    }
}
