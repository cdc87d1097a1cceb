//! `godwit node`: what a launcher starts on each node.

use std::time::Duration;

use godwit_pipeline::{NodeOptions, work};

use crate::cli::NodeArgs;
use crate::failure::Failure;
use crate::interruption;

/// How long the head of a run may take to be there: its reference may have to come from a slow disk first.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Works for a run until it is done.
pub fn run(args: &NodeArgs) -> Result<(), Failure> {
    let options = NodeOptions {
        meeting: args.meeting.clone(),
        attempt: args.attempt,
        threads: args.threads.map_or_else(cores, |threads| threads as usize),
        temp: args.temp.clone(),
        wait: PATIENCE,
    };
    Ok(work(&options, &interruption::flag())?)
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
