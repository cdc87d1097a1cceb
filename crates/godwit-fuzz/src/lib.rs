//! The parsers of untrusted bytes, each as a function of bytes.
//!
//! A target parses any bytes as a job would, and returns. It fails by a panic: that of the parser, or its own for output
//! that violates a guarantee. It does not check which inputs are rejected. A fuzzer runs targets through `fuzz/`, which is
//! not part of the workspace; `tests/seeds.rs` runs them with seeds that a [`Mutator`] changed on every run of the tests, so
//! that they stay working.

mod aligner_streams;
mod alignment_files;
mod cram;
mod indexes;
mod input_files;
mod job_files;
mod mutator;
mod packed_genomes;
mod read_files;
mod table_files;
mod text_files;
mod variant_files;

use std::sync::Once;

pub use cram::{cram_file, cram_reference};
pub use mutator::Mutator;

/// A target: it fails by a panic.
pub type Target = fn(&[u8]);

/// Name and body of every target. The names are those of `fuzz/fuzz_targets` and `fuzz/seeds`.
pub const TARGETS: [(&str, Target); 19] = [
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
    ("vcf_lines", text_files::vcf_lines),
    ("arrow", table_files::arrow),
    ("csv", table_files::csv),
    ("packed", packed_genomes::packed),
];

/// Runs a target.
///
/// # Panics
/// If no target has that name, or it fails.
pub fn run_target(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, body) = target.unwrap_or_else(|| panic!("there is no target {name}"));
    silence_caught_panics();
    body(bytes);
}

/// Silences caught panics: readers turn panics of the decoders of Arrow and Parquet into errors. They are not failures, even
/// under a fuzzer whose hook ends the process. A panic that leaves a reader is a failure.
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
