//! Each parser of outside bytes as a function of bytes.
//!
//! A target takes whatever it is given, reads it as a run would, and returns. It fails by a panic: that of the parser, or
//! its own where what came out breaks a promise. What is refused and how is not its business. A fuzzer drives targets
//! through `fuzz/`, which is no part of the workspace; `tests/seeds.rs` drives them with seeds that a [`Mutator`] changed on every run of
//! the tests, so that they never rot.

mod alignments;
mod cram;
mod file;
mod files_of_a_run;
mod indexes;
mod mutate;
mod packed;
mod pipe;
mod reads;
mod tables;
mod text;
mod variants;

use std::sync::Once;

pub use cram::{cram_file, cram_reference};
pub use mutate::Mutator;

/// A target: it returns, or it has failed.
pub type Target = fn(&[u8]);

/// Name and body of every target. The names are those of `fuzz/fuzz_targets` and `fuzz/seeds`.
pub const TARGETS: [(&str, Target); 19] = [
    ("fastq", reads::fastq),
    ("fastq_packed", reads::fastq_packed),
    ("unaligned", reads::unaligned),
    ("sam", alignments::sam),
    ("bam", alignments::bam),
    ("bam_file", alignments::bam_file),
    ("fasta", text::fasta),
    ("pipe", pipe::pipe),
    ("cram", cram::cram),
    ("index", indexes::index),
    ("reference_index", indexes::reference_index),
    ("manifest", files_of_a_run::manifest),
    ("journal", files_of_a_run::journal),
    ("vcf", variants::vcf),
    ("bed", variants::regions),
    ("vcf_lines", text::vcf_lines),
    ("arrow", tables::arrow),
    ("csv", tables::csv),
    ("packed", packed::packed),
];

/// Runs a target.
///
/// # Panics
/// When there is none of that name, or it fails.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, body) = target.unwrap_or_else(|| panic!("there is no target {name}"));
    quiet_where_panics_are_caught();
    body(bytes);
}

/// Readers turn panics of the decoders of Arrow and Parquet into errors; they are neither news nor, under a fuzzer whose hook ends the
/// process, failures. A panic that gets out of a reader still is one.
fn quiet_where_panics_are_caught() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !godwit_model::panics::is_caught() {
                before(panic);
            }
        }));
    });
}
