//! `godwit decode-cram`: the process that other verbs start to read CRAM.

use std::io::{BufWriter, ErrorKind};

use godwit_pipeline::{DecodeRequest, run_decoder};

use crate::cli::DecodeCramArgs;
use crate::failure::{Exit, Failure};

/// Decodes to stdout. A closed stdout is not a failure.
pub fn run(args: &DecodeCramArgs) -> Result<(), Failure> {
    let request = DecodeRequest {
        path: args.input.clone(),
        reference: args.reference.clone().zip(args.temp.clone()),
        threads: args.threads as usize,
    };
    match run_decoder(&request, &mut BufWriter::new(std::io::stdout().lock())) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Machine, format!("cannot write to stdout: {error}; start another verb instead")))
        }
        _ => Ok(()),
    }
}
