//! `godwit bench`: what this network and this machine give.

mod flight;

use crate::cli::BenchVerb;
use crate::failure::Failure;

/// Runs a benchmark.
pub fn run(verb: &BenchVerb) -> Result<(), Failure> {
    match verb {
        BenchVerb::Flight(args) => flight::run(args),
    }
}
