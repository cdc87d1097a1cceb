//! `godwit node`: the worker process of a cluster run, which a launcher starts.

use std::time::Duration;

use godwit_pipeline::{WorkerOptions, run_worker};

use crate::cli::WorkerArgs;
use crate::failure::Failure;
use crate::interruption;

/// Maximum time for which a worker waits for the head of the job. The head may first have to read the reference from a
/// slow disk.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs this process as a worker until the job has finished.
pub fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let options = WorkerOptions {
        rendezvous_directory: args.meeting.clone(),
        attempt: args.attempt,
        threads: args.threads.map_or_else(available_cores, |threads| threads as usize),
        temp: args.temp.clone(),
        join_timeout: HEAD_TIMEOUT,
    };
    Ok(run_worker(&options, &interruption::flag())?)
}

/// Returns the number of cores that this process may use.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
