//! `godwit decode-cram`: the process that other verbs start to decode CRAM files.

use std::io::{BufWriter, ErrorKind};

use godwit_cli::cli::DecodeCramArgs;
use godwit_cli::failure::{Exit, Failure};
use godwit_cram::{DecodeRequest, run_decoder};

/// Decodes a CRAM file and writes the records to stdout. It is not a failure if the parent process closes stdout early.
pub fn run(args: &DecodeCramArgs) -> Result<(), Failure> {
    let request = DecodeRequest {
        path: args.input.clone(),
        reference: args.reference.clone().zip(args.temp.clone()),
        threads: args.threads as usize,
    };
    match run_decoder(&request, &mut BufWriter::new(std::io::stdout().lock())) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Machine,
            format!("cannot write to stdout: {error}; other verbs of godwit start this verb, which is not for users"),
        )),
        _ => Ok(()),
    }
}
