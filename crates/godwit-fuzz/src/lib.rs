//! Fuzz targets: one function for each parser of untrusted data.
//!
//! A target parses arbitrary bytes as a job would. It panics if the parser panics, or if the output of the parser
//! violates a guarantee. It does not check which inputs the parser rejects. A fuzzer runs the targets through `fuzz/`,
//! which is not part of the workspace. In addition, every test run executes `tests/seeds.rs`, which runs the targets
//! with seeds that a [`Mutator`] has changed.

mod aligner_streams;
mod alignment_files;
mod cram;
mod indexes;
mod input_files;
mod job_files;
mod mutator;
mod network_calls;
mod packed_genomes;
mod read_files;
mod table_files;
mod text_files;
mod variant_files;

use std::sync::Once;

pub use cram::{cram_file, cram_reference};
pub use mutator::Mutator;

/// A fuzz target, which panics if it finds a bug.
pub type Target = fn(&[u8]);

/// Name and function of every target. The files in `fuzz/fuzz_targets` and the directories in `fuzz/seeds` have the
/// same names.
pub const TARGETS: [(&str, Target); 22] = [
    ("fastq", read_files::fastq),
    ("fastq_packed", read_files::fastq_packed),
    ("unaligned", read_files::unaligned),
    ("sam", alignment_files::sam),
    ("bam", alignment_files::bam),
    ("bam_file", alignment_files::bam_file),
    ("fasta", text_files::fasta),
    ("pipe", aligner_streams::pipe),
    ("cram", cram::cram),
    ("index", indexes::index),
    ("reference_index", indexes::reference_index),
    ("manifest", job_files::manifest),
    ("journal", job_files::journal),
    ("vcf", variant_files::vcf),
    ("bed", variant_files::bed_and_gff),
    ("bbi", variant_files::bbi),
    ("chain", variant_files::chain),
    ("vcf_lines", text_files::vcf_lines),
    ("arrow", table_files::arrow),
    ("csv", table_files::csv),
    ("packed", packed_genomes::packed),
    ("nfs", network_calls::nfs),
];

/// Runs the target `name` with the input `bytes`.
///
/// # Panics
/// If no target has this name, or if the target finds a bug.
pub fn run_target(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, body) = target.unwrap_or_else(|| panic!("there is no target {name}"));
    silence_caught_panics();
    body(bytes);
}

/// Disables the panic hook for panics that godwit catches. Readers convert panics of the Arrow and Parquet decoders to
/// errors. Such a panic is not a bug, but the hook of a fuzzer would exit the process. A panic that a reader does not
/// catch is a bug.
fn silence_caught_panics() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !godwit_model::panics::is_catching_panics() {
                before(panic);
            }
        }));
    });
}
