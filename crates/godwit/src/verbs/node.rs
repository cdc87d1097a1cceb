//! `godwit node`: what a launcher starts on each node.

use std::time::Duration;

use godwit_pipeline::{NodeOptions, work};

use super::cancel_on_signal;
use crate::cli::NodeArgs;
use crate::failure::Failure;

/// Works for a run until it is done.
pub fn run(args: &NodeArgs) -> Result<(), Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let options = NodeOptions {
        rendezvous: args.rendezvous.clone(),
        threads: args.threads.map_or_else(cores, |threads| threads as usize),
        temp: args.temp.clone(),
        wait: Duration::from_secs(args.wait),
    };
    Ok(work(&options, &cancel_on_signal()?)?)
}
