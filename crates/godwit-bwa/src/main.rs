//! `bwa mem` for godwit: loads an index once, reads blocks of reads from stdin and writes aligned records and duplicate
//! signatures to stdout, both as Arrow streams (`godwit_engines::aligner::stream_metadata`). Started by `godwit align`.

mod bwa_library;

use std::process::ExitCode;

fn main() -> ExitCode {
    godwit_mem::run_program::<bwa_library::BwaLibrary>()
}
