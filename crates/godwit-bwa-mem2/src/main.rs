//! bwa-mem2 for godwit: loads an index once, takes blocks of reads on stdin, answers with aligned records and duplicate
//! signatures on stdout, both as Arrow streams (`godwit_engines::aligner::protocol`). Started by `godwit align`.

#[cfg(target_arch = "x86_64")]
mod mem2;

use std::process::ExitCode;

#[cfg(target_arch = "x86_64")]
fn main() -> ExitCode {
    godwit_mem::run_program::<mem2::Mem2>()
}

/// bwa-mem2 is written for the instructions of x86-64.
#[cfg(not(target_arch = "x86_64"))]
fn main() -> ExitCode {
    eprintln!(
        "godwit-bwa-mem2: error: bwa-mem2 runs on x86-64 processors only; use --aligner bwa, which gives the same"
    );
    ExitCode::FAILURE
}
