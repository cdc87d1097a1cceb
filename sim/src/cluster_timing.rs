//! How long a run of `godwit align` over many workers takes: the scheduler, unchanged, with the time that each action
//! takes on processors, networks and storage.
//!
//! A resource (the network card of a host in one direction, the aligner of a worker) processes one request at a time, in
//! the order of the requests. The simulation has no faults and no random numbers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use godwit_exchange::{PerFile, ShardId, ShuffleAction, ShuffleEvent, ShuffleOptions, ShuffleScheduler, WorkerId};
use godwit_model::BlockId;
use serde::{Deserialize, Serialize};

/// Shards of the genome per worker, as in a run of `godwit align`.
const SHARDS_PER_WORKER: u32 = 4;
/// Parts that a worker writes concurrently.
const WRITERS: usize = 2;
/// The interval at which the scheduler receives the time.
const TICK_INTERVAL: f64 = 0.2;

/// The hosts, the work, and what the work costs. Seconds are CPU seconds of one thread, sizes are bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterCosts {
    /// Number of workers, at least one.
    pub workers: u32,
    /// Threads of a worker, and of the head.
    pub threads: f64,
    /// Number of read pairs.
    pub pairs: f64,
    /// Number of read pairs of a block.
    pub pairs_per_block: f64,
    /// Throughput of the network of a host in each direction, bytes per second.
    pub network_rate: f64,
    /// Throughput of the shared storage, bytes per second.
    pub storage_rate: f64,
    /// Delay of a message between two hosts, seconds.
    pub latency: f64,
    /// Seconds in which the head reads, checks and hashes a million pairs of FASTQ.
    pub read_seconds: f64,
    /// Seconds of the aligner for a million pairs, over all threads.
    pub align_seconds: f64,
    /// Seconds for sorting and packing a million aligned pairs, over all threads.
    pub sort_seconds: f64,
    /// Seconds in which the head decides the duplicates of a million pairs, over all threads.
    pub decide_seconds: f64,
    /// Seconds for merging and compressing a million pairs of the output, over all threads.
    pub write_seconds: f64,
    /// Size of the reads of a pair, as the head sends them.
    pub read_bytes: f64,
    /// Size of the duplicate signatures of a pair, which a worker sends to the head.
    pub signature_bytes: f64,
    /// Size of the packed records of a pair.
    pub slice_bytes: f64,
    /// Size of the compressed duplicate marks of a pair, which each worker downloads for all pairs.
    pub mark_bytes: f64,
    /// Size of a pair in the BAM.
    pub output_bytes: f64,
}

/// The prediction of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ClusterTiming {
    /// Time at which all blocks are aligned and have two copies, seconds.
    pub aligned_seconds: f64,
    /// Time at which all workers have the duplicate marks, seconds.
    pub decided_seconds: f64,
    /// Time at which all parts are in the output, seconds.
    pub total_seconds: f64,
    /// Seconds in which the network card of the head sends.
    pub head_send_seconds: f64,
    /// Seconds in which the network card of the head receives.
    pub head_receive_seconds: f64,
    /// Seconds in which the head reads input.
    pub head_read_seconds: f64,
    /// Seconds of the scheduler, measured on the machine of the simulation.
    pub scheduler_seconds: f64,
    /// Seconds in which the storage receives output.
    pub storage_seconds: f64,
    /// Seconds in which a worker aligns, mean.
    pub mean_align_seconds: f64,
    /// Bytes that workers send to each other.
    pub shuffled_bytes: f64,
    /// Bytes of duplicate signatures that the head holds.
    pub head_signature_bytes: f64,
    /// Number of events that the scheduler handled.
    pub events: u64,
}

/// An event at a simulated time.
#[derive(Clone, Debug)]
enum TimedEvent {
    Tick,
    Reported(ShuffleEvent),
    MarksSent,
}

/// The time at which each resource of a worker is free, seconds.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerTimes {
    receives: f64,
    sends: f64,
    aligns: f64,
    writers: [f64; WRITERS],
    align_seconds: f64,
}

/// Reserves a resource that is free at a time, for some seconds. Returns the time at which the request is done.
fn reserve(free_at: &mut f64, now: f64, seconds: f64) -> f64 {
    *free_at = free_at.max(now) + seconds;
    *free_at
}

struct TimedRun {
    costs: ClusterCosts,
    ledger: ShuffleScheduler,
    now: f64,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    /// Events of the queue by their number.
    events: Vec<Option<TimedEvent>>,
    workers: Vec<WorkerTimes>,
    head_sends: f64,
    head_receives: f64,
    storage: f64,
    parts: usize,
    timing: ClusterTiming,
    finished: bool,
}

/// Predicts the time of a run.
///
/// # Panics
/// If the scheduler stops before the run has ended.
pub fn predict_cluster_run(costs: &ClusterCosts) -> ClusterTiming {
    let mut run = TimedRun {
        costs: *costs,
        ledger: ShuffleScheduler::new(ShuffleOptions::default()),
        now: 0.0,
        queue: BinaryHeap::new(),
        events: Vec::new(),
        workers: vec![WorkerTimes::default(); costs.workers as usize],
        head_sends: 0.0,
        head_receives: 0.0,
        storage: 0.0,
        parts: (SHARDS_PER_WORKER * costs.workers) as usize,
        timing: ClusterTiming::default(),
        finished: false,
    };
    run.start();
    while !run.finished {
        let Reverse((at, number)) = run.queue.pop().expect("the run ended before its output was complete");
        run.now = at.as_secs_f64();
        let event = run.events[number as usize].take().expect("an event occurs once");
        run.apply_event(event);
    }
    run.timing.total_seconds = run.now;
    let aligned: f64 = run.workers.iter().map(|worker| worker.align_seconds).sum();
    run.timing.mean_align_seconds = aligned / f64::from(costs.workers);
    run.timing
}

impl TimedRun {
    fn start(&mut self) {
        for worker in (0..self.costs.workers).map(WorkerId) {
            self.schedule(0.0, TimedEvent::Reported(ShuffleEvent::WorkerJoined { worker, writers: WRITERS }));
            let places = ShuffleOptions::default().max_blocks_per_worker;
            (0..places).for_each(|_| self.schedule(0.0, TimedEvent::Reported(ShuffleEvent::WorkRequested(worker))));
        }
        let shard_count = (SHARDS_PER_WORKER * self.costs.workers) as u16;
        self.schedule(0.0, TimedEvent::Reported(ShuffleEvent::GenomeSharded { shard_count }));
        let blocks = (self.costs.pairs / self.costs.pairs_per_block).ceil() as u32;
        let seconds_per_block = self.costs.read_seconds * self.costs.pairs_per_block / 1e6;
        for ordinal in 0..blocks {
            let block = BlockId { lane: 0, ordinal };
            let at = seconds_per_block * f64::from(ordinal + 1);
            self.schedule(at, TimedEvent::Reported(ShuffleEvent::BlockAvailable(block)));
        }
        self.timing.head_read_seconds = seconds_per_block * f64::from(blocks);
        self.schedule(self.timing.head_read_seconds, TimedEvent::Reported(ShuffleEvent::InputEnded));
        self.schedule(TICK_INTERVAL, TimedEvent::Tick);
    }

    fn schedule(&mut self, at: f64, event: TimedEvent) {
        self.queue.push(Reverse((Duration::from_secs_f64(at), self.events.len() as u64)));
        self.events.push(Some(event));
    }

    fn apply_event(&mut self, event: TimedEvent) {
        let started = Instant::now();
        let actions = match event {
            TimedEvent::Tick => {
                self.schedule(self.now + TICK_INTERVAL, TimedEvent::Tick);
                self.ledger.handle_time(Duration::from_secs_f64(self.now))
            }
            TimedEvent::Reported(event) => {
                self.timing.events += 1;
                self.ledger.handle_event(event, Duration::from_secs_f64(self.now))
            }
            TimedEvent::MarksSent => {
                self.timing.decided_seconds = self.now;
                let shards = (0..self.parts).map(|part| ShardId(part as u16)).collect();
                self.ledger.handle_event(ShuffleEvent::DuplicatesDecided(shards), Duration::from_secs_f64(self.now))
            }
        };
        self.timing.scheduler_seconds += started.elapsed().as_secs_f64();
        actions.into_iter().for_each(|action| self.start_action(action));
    }

    fn start_action(&mut self, action: ShuffleAction) {
        match action {
            ShuffleAction::AlignBlock(worker, block) => self.align_block(worker, block),
            ShuffleAction::FetchSlices { worker, block, shards, from } => {
                self.fetch_slices(worker, block, shards.len(), from);
            }
            ShuffleAction::DecideDuplicates => self.decide_duplicates(),
            ShuffleAction::WritePart(worker, part) => self.write_part(worker, part),
            ShuffleAction::PlacePart(worker, part, _) => self.place_part(worker, part),
            ShuffleAction::FinishJob => self.finished = true,
            ShuffleAction::ReleaseReads(_) => {}
            ShuffleAction::ReloadReads(_) | ShuffleAction::ReportSizeMismatch(_) => {
                unreachable!("no worker of this simulation is lost")
            }
        }
    }

    fn network_seconds(&self, bytes: f64) -> f64 {
        bytes / self.costs.network_rate
    }

    /// The worker downloads the reads from the head, aligns and sorts them, and uploads their signatures.
    fn align_block(&mut self, worker: WorkerId, block: BlockId) {
        let (costs, pairs) = (self.costs, self.costs.pairs_per_block);
        let sending = self.network_seconds(pairs * costs.read_bytes);
        let uploading = self.network_seconds(pairs * costs.signature_bytes);
        self.timing.head_send_seconds += sending;
        self.timing.head_receive_seconds += uploading;
        self.timing.head_signature_bytes += pairs * costs.signature_bytes;
        let times = &mut self.workers[worker.0 as usize];
        let sent = reserve(&mut self.head_sends, self.now + costs.latency, sending);
        let received = reserve(&mut times.receives, self.now + costs.latency, sending).max(sent);
        let aligning = pairs / 1e6 * (costs.align_seconds + costs.sort_seconds) / costs.threads;
        times.align_seconds += aligning;
        let aligned = reserve(&mut times.aligns, received, aligning);
        let uploaded = reserve(&mut times.sends, aligned, uploading);
        let done = reserve(&mut self.head_receives, aligned, uploading).max(uploaded) + costs.latency;
        self.schedule(done, TimedEvent::Reported(ShuffleEvent::BlockAligned(worker, block)));
        self.schedule(aligned, TimedEvent::Reported(ShuffleEvent::WorkRequested(worker)));
    }

    fn fetch_slices(&mut self, worker: WorkerId, block: BlockId, shards: usize, from: WorkerId) {
        let bytes = self.costs.pairs_per_block * self.costs.slice_bytes * shards as f64 / self.parts as f64;
        self.timing.shuffled_bytes += bytes;
        let seconds = self.network_seconds(bytes);
        // The command, the request and the report each travel once.
        let start = self.now + 2.0 * self.costs.latency;
        let sent = reserve(&mut self.workers[from.0 as usize].sends, start, seconds);
        let received = reserve(&mut self.workers[worker.0 as usize].receives, start, seconds).max(sent);
        let done = received + self.costs.latency;
        self.schedule(done, TimedEvent::Reported(ShuffleEvent::SlicesFetched(worker, block)));
    }

    /// The head decides, and every worker downloads the marks of all pairs.
    fn decide_duplicates(&mut self) {
        self.timing.aligned_seconds = self.now;
        let decided = self.now + self.costs.pairs / 1e6 * self.costs.decide_seconds / self.costs.threads;
        let sending = self.network_seconds(self.costs.pairs * self.costs.mark_bytes) * f64::from(self.costs.workers);
        self.timing.head_send_seconds += sending;
        let sent = reserve(&mut self.head_sends, decided, sending);
        self.schedule(sent + self.costs.latency, TimedEvent::MarksSent);
    }

    fn write_part(&mut self, worker: WorkerId, part: usize) {
        let pairs = self.costs.pairs / self.parts as f64;
        let seconds = pairs / 1e6 * self.costs.write_seconds / (self.costs.threads / WRITERS as f64);
        let writers = &mut self.workers[worker.0 as usize].writers;
        let earliest = writers.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("a worker has writers");
        let done = reserve(earliest, self.now + self.costs.latency, seconds);
        let bytes = PerFile { bam: (pairs * self.costs.output_bytes) as u64, cram: 0 };
        self.schedule(done, TimedEvent::Reported(ShuffleEvent::PartWritten(worker, part, bytes)));
    }

    fn place_part(&mut self, worker: WorkerId, part: usize) {
        let bytes = self.costs.pairs / self.parts as f64 * self.costs.output_bytes;
        let storing = bytes / self.costs.storage_rate;
        self.timing.storage_seconds += storing;
        let start = self.now + self.costs.latency;
        let sending = self.network_seconds(bytes);
        let sent = reserve(&mut self.workers[worker.0 as usize].sends, start, sending);
        let stored = reserve(&mut self.storage, start, storing).max(sent);
        self.schedule(stored, TimedEvent::Reported(ShuffleEvent::PartPlaced(worker, part)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(workers: u32) -> ClusterCosts {
        ClusterCosts {
            workers,
            threads: 10.0,
            pairs: 100e6,
            pairs_per_block: 1e6,
            network_rate: 1e9,
            storage_rate: 1e10,
            latency: 0.001,
            read_seconds: 0.5,
            align_seconds: 100.0,
            sort_seconds: 0.0,
            decide_seconds: 0.1,
            write_seconds: 4.0,
            read_bytes: 600.0,
            signature_bytes: 72.0,
            slice_bytes: 400.0,
            mark_bytes: 0.25,
            output_bytes: 200.0,
        }
    }

    #[test]
    fn one_worker_aligns_all_and_fetches_nothing() {
        let timing = predict_cluster_run(&costs(1));
        // 100 million pairs in 100 s each per million on 10 threads.
        assert!((timing.aligned_seconds - 1000.0).abs() < 10.0, "{timing:?}");
        assert!(timing.shuffled_bytes == 0.0 && timing.total_seconds > timing.decided_seconds, "{timing:?}");
    }

    #[test]
    fn ten_workers_take_a_tenth_and_fetch_every_slice_once() {
        let fast = ClusterCosts { network_rate: 1e11, read_seconds: 0.001, ..costs(10) };
        let timing = predict_cluster_run(&fast);
        // A worker aligns 10 blocks of 10 s. Blocks are assigned before the worker is free, so that one may get two more.
        assert!(timing.aligned_seconds > 100.0 && timing.aligned_seconds < 121.0, "{timing:?}");
        assert!((timing.shuffled_bytes - 40e9).abs() < 1e9, "{timing:?}");
    }

    #[test]
    fn the_head_decides_on_all_its_threads() {
        let slow = ClusterCosts { decide_seconds: 2.0, mark_bytes: 0.0, ..costs(10) };
        let timing = predict_cluster_run(&slow);
        // 100 million pairs in 2 s each per million on 10 threads.
        let deciding = timing.decided_seconds - timing.aligned_seconds;
        assert!((deciding - 20.0).abs() < 0.1, "{timing:?}");
    }

    #[test]
    fn the_reads_of_many_workers_wait_for_the_network_of_the_head() {
        let slow = ClusterCosts { network_rate: 1e8, ..costs(100) };
        let timing = predict_cluster_run(&slow);
        // 100 million pairs of 600 bytes at 100 MB/s.
        assert!(timing.aligned_seconds > 600.0 && timing.head_send_seconds > 600.0, "{timing:?}");
    }
}
