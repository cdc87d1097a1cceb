//! `bwa mem` for godwit: loads an index once, takes blocks of reads on stdin, answers with aligned records and duplicate
//! signatures on stdout, both as Arrow streams (`godwit_engines::aligner::protocol`). Started by `godwit align`.

mod bwa;

use std::process::ExitCode;

fn main() -> ExitCode {
    godwit_mem::run_program::<bwa::Bwa>()
}
