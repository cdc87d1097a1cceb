//! bwa-mem3 for godwit: loads an index once, takes blocks of reads on stdin, answers with aligned records and duplicate
//! signatures on stdout, both as Arrow streams (`godwit_engines::aligner::protocol`). Started by `godwit align`.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod index;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod library;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod mem3;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod options;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod records;

use std::process::ExitCode;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn main() -> ExitCode {
    godwit_mem::run_program::<mem3::Mem3>()
}

/// The library has no code for other processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn main() -> ExitCode {
    eprintln!(
        "godwit-bwa-mem3: error: bwa-mem3 runs on x86-64 and ARM64 processors only; use --aligner bwa, which gives the same \
         records"
    );
    ExitCode::FAILURE
}
