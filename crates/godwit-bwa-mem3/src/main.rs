//! The aligner program for bwa-mem3, which `godwit align` starts. The program loads an index once. It reads blocks of
//! reads from stdin, and writes aligned records and duplicate signatures to stdout. Input and output are Arrow streams
//! with the metadata of `godwit_engines::aligner::stream_metadata`.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod bwa_mem3;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod index_loader;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod library;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod options;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod records;

use std::process::ExitCode;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn main() -> ExitCode {
    godwit_mem::run_program::<bwa_mem3::BwaMem3Library>()
}

/// Prints an error: bwa-mem3 supports neither this processor nor any other except x86-64 and ARM64.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() -> ExitCode {
    eprintln!(
        "godwit-bwa-mem3: error: bwa-mem3 runs on x86-64 and ARM64 processors only; use --aligner bwa, which gives the same \
         records"
    );
    ExitCode::FAILURE
}
