//! Simulated genomes and reads with a known truth, for `godwit demo`, the benchmarks and the tests.
//!
//! In: options, or a reference FASTA to take the place of a simulated genome. Out: a FASTA ([`write_genome`]), the variants of
//! a diploid sample of it as VCF ([`Sample::write_vcf`]), and FASTQ files by lane with a table of where each template came
//! from and which one it is a duplicate of ([`write_reads`]). The same options always give the same bytes: every template is a
//! function of the seed and its own number, so nothing has to be remembered and a run needs memory for the genome only.
//!
//! It does *not* model library chemistry, GC bias or coverage; it makes the cases an aligner and a duplicate marker must get
//! right: repeats, indels, pairs that overlap or read through into the adapter, chimeras, split reads, mates that do not
//! align, PCR duplicates on other tiles and optical ones next door.
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
mod output;
mod quality;
mod reads;
mod repeats;
mod rng;
mod sample;
mod template;
#[cfg(test)]
mod tests;

pub use assembly::{Assembly, AssemblyContig, ContigOptions, GenomeOptions, write_genome};
pub use quality::QualityProfile;
pub use reads::{ReadOptions, ReadsWritten, write_reads};
pub use sample::{Sample, SampleOptions, Variant};
pub use template::DuplicateKind;

use godwit_formats::bgzf::BgzfError;
use godwit_formats::fasta::FastaError;

/// Why a simulation could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A file could not be read.
    #[error("cannot read {}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}; check free space and permissions of its directory", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file is no clean FASTA.
    #[error(transparent)]
    NotFasta(FastaError),
    /// A genome without a contig.
    #[error("the genome has no contig; give at least one")]
    EmptyGenome,
    /// A contig longer than SAM can place reads on.
    #[error("contig {contig} is longer than 2^31 - 1 bases, which SAM cannot place reads on; split it")]
    ContigTooLong {
        /// Its name.
        contig: String,
    },
    /// An option out of its range.
    #[error("{option} is {given}; it must be {allowed}")]
    Option {
        /// Name of the field.
        option: &'static str,
        /// The value that was given.
        given: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// No contig is long enough for the templates asked for.
    #[error(
        "found no place without N for a template of about {insert_mean} bases; use longer contigs or shorter templates"
    )]
    NoPlace {
        /// Mean template length asked for, bases.
        insert_mean: u32,
    },
}

impl SimulateError {
    /// Tells a file that cannot be read from one that says nothing sensible.
    fn fasta(error: FastaError) -> Self {
        match error {
            FastaError::Bgzf(BgzfError::Io { path, source, .. }) => Self::Read { path, source },
            other => Self::NotFasta(other),
        }
    }
}
