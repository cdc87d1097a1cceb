//! The parameters and the statistics of a simulated run.

use std::time::Duration;

use crate::random::Random;

/// The faults of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The number of workers that lose power, at random moments.
    pub worker_crashes: u32,
    /// The number of workers that are disconnected and rejoin, under a new id and with their slices.
    pub network_cuts: u32,
    /// The number of workers at a tenth of the speed.
    pub slow_workers: u32,
    /// The percentage of fetches that fail.
    pub failing_fetch_percent: u64,
    /// The number of workers that join late.
    pub late_workers: u32,
    /// The number of times that the head dies, and all workers with it; their scratch stays for the next workers.
    pub head_deaths: u32,
    /// The percentage of workers whose scratch is lost when the head restarts.
    pub lost_scratch_percent: u64,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of workers at the start.
    pub workers: u32,
    /// The number of blocks of reads.
    pub blocks: u32,
    /// The number of shards of the genome.
    pub shares: u16,
    /// The number of parts per shard.
    pub parts_per_share: u32,
    /// The number of times that all parts are written, in sequence.
    pub rounds: u32,
    /// The faults.
    pub faults: Faults,
}

impl Scenario {
    /// Draws a scenario from a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let workers = 1 + random.below(9) as u32;
        let faults = Faults {
            worker_crashes: random.below(u64::from(workers)) as u32,
            network_cuts: random.below(3) as u32,
            slow_workers: random.below(2) as u32,
            failing_fetch_percent: if random.chance_percent(30) { random.below(40) } else { 0 },
            late_workers: random.below(3) as u32,
            head_deaths: if random.chance_percent(40) { 1 + random.below(3) as u32 } else { 0 },
            lost_scratch_percent: if random.chance_percent(50) { random.below(60) } else { 0 },
        };
        Self {
            seed,
            workers,
            blocks: random.below(60) as u32,
            shares: 1 + random.below(24) as u16,
            parts_per_share: 1 + random.below(4) as u32,
            rounds: 1 + random.below(2) as u32,
            faults,
        }
    }
}

/// The statistics of a finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The simulated duration.
    pub simulated_time: Duration,
    /// The number of alignments of blocks, repeated ones included.
    pub alignments: u32,
    /// The number of slices sent between workers.
    pub fetched_slices: u64,
    /// The number of workers that were lost while the head lived.
    pub lost_workers: u32,
    /// The number of times that the head died before the run ended.
    pub head_deaths: u32,
    /// The number of events that the scheduler handled.
    pub events: u64,
}
