//! `godwit decode-cram`: the process that other verbs start to decode CRAM files.

use std::io::{self, BufWriter};

use godwit_cli::cli::DecodeCramArgs;
use godwit_cli::failure::Failure;
use godwit_cram::{DecodeRequest, run_decoder};
use godwit_model::ErrorKind;

/// Decodes a CRAM file and writes the records to stdout. It is not a failure if the parent process closes stdout early.
pub fn run(args: &DecodeCramArgs) -> Result<(), Failure> {
    let request = DecodeRequest {
        path: args.input.clone(),
        reference: args.reference.clone().zip(args.temp.clone()),
        threads: args.threads as usize,
    };
    match run_decoder(&request, &mut BufWriter::new(io::stdout().lock())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            ErrorKind::Machine,
            format!("cannot write to stdout: {error}; other verbs of godwit start this verb, which is not for users"),
        )),
        _ => Ok(()),
    }
}
