//! `godwit node`: the worker process that launchers start.

use std::time::Duration;

use godwit_pipeline::{WorkerOptions, run_worker};

use crate::cli::WorkerArgs;
use crate::failure::Failure;
use crate::interruption;

/// Longest wait for the head of a job: it may first have to read its reference from a slow disk.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs as a worker until the job is done.
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
