//! A simulated cluster run: head, workers, network, time and faults.

mod scenario;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use godwit_exchange::{PerFile, ShardId, ShuffleAction, ShuffleEvent, ShuffleOptions, ShuffleScheduler, WorkerId};
use godwit_model::BlockId;

use crate::random::Random;
pub use scenario::{Faults, Outcome, Scenario};

/// The simulated time after which a run counts as hanging.
const MAX_SIMULATED_TIME: Duration = Duration::from_secs(10_000);
/// The interval at which the scheduler receives the time.
const TICK_INTERVAL: Duration = Duration::from_millis(200);
/// A silent worker counts as lost after this time.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// An event at a simulated time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    Tick,
    BlockFed(BlockId),
    FeedEnded,
    WorkerJoins,
    /// With the slices that it holds.
    WorkerRejoins(BTreeSet<(BlockId, ShardId)>),
    WorkerCrashes,
    NetworkCut,
    WorkerTimedOut(WorkerId),
    BlockAligned(WorkerId, BlockId),
    SlicesFetched(WorkerId, BlockId, Vec<ShardId>, WorkerId),
    WorkerRequestsBlock(WorkerId),
    PartWritten(WorkerId, usize),
    PartPlaced(WorkerId, usize, PerFile<u64>),
    DuplicatesDecided,
    HeadDies,
    CheckpointsCollected,
}

#[derive(Default)]
struct SimulatedWorker {
    slow: bool,
    slices: BTreeSet<(BlockId, ShardId)>,
    /// Blocks aligned before the genome was divided into shards.
    unpublished_blocks: Vec<BlockId>,
    /// The time at which the aligner is free.
    aligner_free_at: Duration,
    parts_being_written: usize,
}

struct ClusterSimulation {
    scenario: Scenario,
    random: Random,
    ledger: ShuffleScheduler,
    now: Duration,
    event_queue: BinaryHeap<Reverse<(Duration, u64, SimulatedEvent)>>,
    next_sequence: u64,
    /// The running workers, without lost ones.
    workers: BTreeMap<WorkerId, SimulatedWorker>,
    next_worker: u32,
    has_plan: bool,
    is_deciding: bool,
    /// The aligned blocks in the journal, which outlives the head.
    journaled_blocks: BTreeSet<BlockId>,
    /// The slices that workers of an earlier head left in scratch, for the next workers that join.
    kept_slices: Vec<BTreeSet<(BlockId, ShardId)>>,
    /// True while the head waits for the checkpoints of its workers, before it feeds blocks.
    is_collecting_checkpoints: bool,
    fed_blocks: BTreeSet<BlockId>,
    released_blocks: BTreeSet<BlockId>,
    placed_parts: BTreeMap<usize, PerFile<u64>>,
    /// The number of times that all parts were placed.
    finished_rounds: u32,
    finished: bool,
    outcome: Outcome,
}

/// Runs a scenario to its end.
///
/// # Errors
/// The violated rule, and the time.
pub fn run(scenario: Scenario) -> Result<Outcome, String> {
    let mut world = ClusterSimulation::new(scenario);
    while !world.finished {
        let Some(Reverse((at, _, happening))) = world.event_queue.pop() else {
            return Err(world.describe_failure("nothing is left to happen"));
        };
        world.now = at;
        if at > MAX_SIMULATED_TIME {
            return Err(world.describe_failure("the run does not end"));
        }
        world.apply_event(happening)?;
    }
    let expected = usize::from(scenario.shares) * scenario.parts_per_share as usize;
    if scenario.blocks > 0 && world.placed_parts.len() != expected {
        return Err(world.describe_failure("the run ended without all parts"));
    }
    world.outcome.simulated_time = world.now;
    Ok(world.outcome)
}

impl ClusterSimulation {
    fn new(scenario: Scenario) -> Self {
        let mut world = Self {
            scenario,
            random: Random::new(scenario.seed),
            ledger: ShuffleScheduler::new(ShuffleOptions::default()),
            now: Duration::ZERO,
            event_queue: BinaryHeap::new(),
            next_sequence: 0,
            workers: BTreeMap::new(),
            next_worker: 0,
            has_plan: false,
            is_deciding: false,
            journaled_blocks: BTreeSet::new(),
            kept_slices: Vec::new(),
            is_collecting_checkpoints: false,
            fed_blocks: BTreeSet::new(),
            released_blocks: BTreeSet::new(),
            placed_parts: BTreeMap::new(),
            finished_rounds: 0,
            finished: false,
            outcome: Outcome {
                simulated_time: Duration::ZERO,
                alignments: 0,
                fetched_slices: 0,
                lost_workers: 0,
                head_deaths: 0,
                events: 0,
            },
        };
        let span = world.expected_duration_ms();
        (0..scenario.workers).for_each(|_| world.schedule_within(10, 500, SimulatedEvent::WorkerJoins));
        (0..scenario.faults.late_workers).for_each(|_| world.schedule_within(1, span, SimulatedEvent::WorkerJoins));
        (0..scenario.faults.worker_crashes)
            .for_each(|_| world.schedule_within(1, 2 * span, SimulatedEvent::WorkerCrashes));
        (0..scenario.faults.network_cuts).for_each(|_| world.schedule_within(1, 2 * span, SimulatedEvent::NetworkCut));
        if scenario.faults.head_deaths > 0 {
            world.schedule_within(1, 2 * span, SimulatedEvent::HeadDies);
        }
        world.feed_next_block(0);
        world.schedule_within(200, 0, SimulatedEvent::Tick);
        world
    }

    /// Returns the approximate duration of a run, in milliseconds.
    fn expected_duration_ms(&self) -> u64 {
        2_000 + 1_500 * u64::from(self.scenario.blocks) / u64::from(self.scenario.workers)
    }

    fn describe_failure(&self, what: &str) -> String {
        let ledger = &self.ledger;
        let state = format!(
            "{} workers, {} blocks aligned, {} waiting, {} slices missing, {} parts placed",
            ledger.worker_count(),
            ledger.aligned_block_count(),
            ledger.waiting_block_count(),
            ledger.missing_copy_count(),
            self.placed_parts.len()
        );
        format!("seed {}, {:.3} s: {what}; {state} ({:?})", self.scenario.seed, self.now.as_secs_f64(), self.scenario)
    }

    /// Schedules an event `least` to `least + spread` milliseconds from now.
    fn schedule_within(&mut self, least: u64, spread: u64, happening: SimulatedEvent) {
        let delay = Duration::from_millis(least + self.random.below(spread));
        self.schedule_at(self.now + delay, happening);
    }

    fn schedule_at(&mut self, at: Duration, happening: SimulatedEvent) {
        self.next_sequence += 1;
        self.event_queue.push(Reverse((at, self.next_sequence, happening)));
    }

    /// Replaces the head: it dies, and with it all workers and everything in flight. The next head starts from the
    /// journal.
    fn restart_head(&mut self) {
        self.outcome.head_deaths += 1;
        self.event_queue.clear();
        self.ledger = ShuffleScheduler::new(ShuffleOptions::default());
        for node in std::mem::take(&mut self.workers).into_values() {
            if !self.random.chance_percent(self.scenario.faults.lost_scratch_percent) {
                self.kept_slices.push(node.slices);
            }
        }
        self.fed_blocks.clear();
        self.released_blocks.clear();
        self.placed_parts.clear();
        self.is_deciding = false;
        self.has_plan = !self.journaled_blocks.is_empty();
        self.is_collecting_checkpoints = self.has_plan;
        (0..self.scenario.workers).for_each(|_| self.schedule_within(10, 500, SimulatedEvent::WorkerJoins));
        self.schedule_within(200, 0, SimulatedEvent::Tick);
        if self.outcome.head_deaths < self.scenario.faults.head_deaths {
            let span = self.expected_duration_ms();
            self.schedule_within(1, span, SimulatedEvent::HeadDies);
        }
        match self.is_collecting_checkpoints {
            // Choose the time so that some workers join after the head has stopped waiting for them.
            true => self.schedule_within(400, 300, SimulatedEvent::CheckpointsCollected),
            false => self.feed_next_block(0),
        }
    }

    fn id_of(ordinal: u32) -> BlockId {
        BlockId { lane: (ordinal % 3) as u16, ordinal: ordinal / 3 }
    }

    /// Feeds the next block that is not aligned.
    fn feed_next_block(&mut self, ordinal: u32) {
        let mut left = (ordinal..self.scenario.blocks).map(Self::id_of);
        match left.find(|block| !self.fed_blocks.contains(block)) {
            Some(block) => self.schedule_within(20, 100, SimulatedEvent::BlockFed(block)),
            None => self.schedule_within(1, 50, SimulatedEvent::FeedEnded),
        }
    }

    /// Ends the wait for workers: blocks that they hold are not fed.
    fn collect_checkpoints(&mut self) -> Result<(), String> {
        self.is_collecting_checkpoints = false;
        self.report_event(ShuffleEvent::GenomeSharded { shard_count: self.scenario.shares })?;
        let held: Vec<BlockId> =
            self.journaled_blocks.iter().copied().filter(|block| self.ledger.is_block_aligned(*block)).collect();
        self.released_blocks.extend(held.iter().copied());
        self.fed_blocks.extend(held);
        self.feed_next_block(0);
        Ok(())
    }

    fn apply_event(&mut self, happening: SimulatedEvent) -> Result<(), String> {
        match happening {
            SimulatedEvent::Tick => {
                self.schedule_at(self.now + TICK_INTERVAL, SimulatedEvent::Tick);
                let actions = self.ledger.handle_time(self.now);
                self.apply_actions(actions)
            }
            SimulatedEvent::BlockFed(block) => {
                self.released_blocks.remove(&block);
                let first_time = self.fed_blocks.insert(block);
                self.report_event(ShuffleEvent::BlockAvailable(block))?;
                // Read the next block only if this block was fed for the first time.
                if first_time {
                    self.feed_next_block(u32::from(block.lane) + 3 * block.ordinal + 1);
                }
                Ok(())
            }
            SimulatedEvent::HeadDies => {
                self.restart_head();
                Ok(())
            }
            SimulatedEvent::CheckpointsCollected => self.collect_checkpoints(),
            SimulatedEvent::FeedEnded => self.report_event(ShuffleEvent::InputEnded),
            SimulatedEvent::WorkerJoins => {
                let slices = self.kept_slices.pop().unwrap_or_default();
                self.add_worker(slices)
            }
            SimulatedEvent::WorkerRejoins(slices) => self.add_worker(slices),
            SimulatedEvent::WorkerCrashes => self.lose_random_worker(false),
            SimulatedEvent::NetworkCut => self.lose_random_worker(true),
            SimulatedEvent::WorkerTimedOut(node) => {
                self.outcome.lost_workers += 1;
                self.report_event(ShuffleEvent::WorkerLost(node))
            }
            SimulatedEvent::WorkerRequestsBlock(node) if self.workers.contains_key(&node) => {
                self.report_event(ShuffleEvent::WorkRequested(node))
            }
            SimulatedEvent::BlockAligned(node, block) => self.finish_alignment(node, block),
            SimulatedEvent::SlicesFetched(node, block, shares, from) => self.finish_fetch(node, block, shares, from),
            SimulatedEvent::DuplicatesDecided => {
                let (shares, parts) = (self.scenario.shares, self.scenario.parts_per_share);
                let parts = (0..shares).flat_map(|share| (0..parts).map(move |_| ShardId(share)));
                let parts = if self.has_plan { parts.collect() } else { Vec::new() };
                self.report_event(ShuffleEvent::DuplicatesDecided(parts))
            }
            SimulatedEvent::PartWritten(node, part) => {
                let Some(state) = self.workers.get_mut(&node) else { return Ok(()) };
                state.parts_being_written -= 1;
                self.report_event(ShuffleEvent::PartWritten(node, part, Self::part_sizes(part)))
            }
            SimulatedEvent::PartPlaced(node, part, offset) => {
                if !self.workers.contains_key(&node) {
                    return Ok(());
                }
                let before = (0..part).map(Self::part_sizes);
                let expected = before.fold(PerFile::default(), PerFile::sum);
                if offset != expected {
                    return Err(
                        self.describe_failure(&format!("part {part} is placed at {offset:?} instead of {expected:?}"))
                    );
                }
                self.placed_parts.insert(part, offset);
                self.report_event(ShuffleEvent::PartPlaced(node, part))
            }
            SimulatedEvent::WorkerRequestsBlock(_) => Ok(()),
        }
    }

    /// Returns the sizes of a part in two files, which are the same for every worker.
    fn part_sizes(part: usize) -> PerFile<u64> {
        PerFile { bam: 1000 + 37 * part as u64 % 101, cram: 500 + 41 * part as u64 % 97 }
    }

    fn add_worker(&mut self, slices: BTreeSet<(BlockId, ShardId)>) -> Result<(), String> {
        let id = WorkerId(self.next_worker);
        self.next_worker += 1;
        let slow = u64::from(id.0) < u64::from(self.scenario.faults.slow_workers);
        let mut held: BTreeMap<BlockId, Vec<ShardId>> = BTreeMap::new();
        slices.iter().for_each(|(block, share)| held.entry(*block).or_default().push(*share));
        self.workers.insert(id, SimulatedWorker { slow, slices, ..SimulatedWorker::default() });
        self.report_event(ShuffleEvent::WorkerJoined { worker: id, writers: 2 })?;
        // Ignore blocks that are not in the journal, because their workers had not reported them completely.
        for (block, shares) in
            held.into_iter().filter(|(block, _)| self.journaled_blocks.contains(block)).collect::<Vec<_>>()
        {
            self.report_event(ShuffleEvent::SlicesHeld(id, block, shares))?;
        }
        self.report_event(ShuffleEvent::WorkRequested(id))
    }

    /// Takes power or network from a worker. One worker always stays, and a lost worker is not lost again before the head
    /// knows.
    fn lose_random_worker(&mut self, comes_back: bool) -> Result<(), String> {
        let ids: Vec<WorkerId> = self.workers.keys().copied().collect();
        if ids.len() < 2 {
            return Ok(());
        }
        let id = ids[self.random.below(ids.len() as u64) as usize];
        let slices = self.workers.remove(&id).map(|node| node.slices).unwrap_or_default();
        self.schedule_at(self.now + SILENCE_TIMEOUT, SimulatedEvent::WorkerTimedOut(id));
        if comes_back {
            self.schedule_within(6_000, 10_000, SimulatedEvent::WorkerRejoins(slices));
        }
        Ok(())
    }

    fn finish_alignment(&mut self, id: WorkerId, block: BlockId) -> Result<(), String> {
        let first = self.fed_blocks.first() == Some(&block);
        let Some(node) = self.workers.get_mut(&id) else { return Ok(()) };
        if !self.has_plan && !first {
            node.unpublished_blocks.push(block);
            return Ok(());
        }
        if !self.has_plan {
            self.has_plan = true;
            self.report_event(ShuffleEvent::GenomeSharded { shard_count: self.scenario.shares })?;
        }
        self.commit_block(id, block)?;
        let held: Vec<(WorkerId, BlockId)> = self
            .workers
            .iter_mut()
            .flat_map(|(id, node)| std::mem::take(&mut node.unpublished_blocks).into_iter().map(|block| (*id, block)))
            .collect();
        held.into_iter().try_for_each(|(id, block)| self.commit_block(id, block))
    }

    fn commit_block(&mut self, id: WorkerId, block: BlockId) -> Result<(), String> {
        let Some(node) = self.workers.get_mut(&id) else { return Ok(()) };
        node.slices.extend((0..self.scenario.shares).map(|share| (block, ShardId(share))));
        if self.ledger.is_leased(id, block) {
            self.journaled_blocks.insert(block);
        }
        self.report_event(ShuffleEvent::BlockAligned(id, block))
    }

    fn finish_fetch(
        &mut self,
        id: WorkerId,
        block: BlockId,
        shares: Vec<ShardId>,
        from: WorkerId,
    ) -> Result<(), String> {
        let fails = self.random.chance_percent(self.scenario.faults.failing_fetch_percent);
        let there = self.workers.contains_key(&from) && !fails;
        let Some(node) = self.workers.get_mut(&id) else { return Ok(()) };
        if !there {
            return self.report_event(ShuffleEvent::SliceFetchFailed(id, block));
        }
        self.outcome.fetched_slices += shares.len() as u64;
        node.slices.extend(shares.into_iter().map(|share| (block, share)));
        self.report_event(ShuffleEvent::SlicesFetched(id, block))
    }

    fn report_event(&mut self, event: ShuffleEvent) -> Result<(), String> {
        self.outcome.events += 1;
        let actions = self.ledger.handle_event(event, self.now);
        self.apply_actions(actions)
    }

    fn apply_actions(&mut self, actions: Vec<ShuffleAction>) -> Result<(), String> {
        actions.into_iter().try_for_each(|action| self.apply_action(action))
    }

    fn apply_action(&mut self, action: ShuffleAction) -> Result<(), String> {
        match action {
            ShuffleAction::AlignBlock(id, block) => {
                if self.released_blocks.contains(&block) || !self.fed_blocks.contains(&block) {
                    return Err(self.describe_failure(&format!("{block:?} was assigned without its reads")));
                }
                self.outcome.alignments += 1;
                let (now, pace) = (self.now, 500 + self.random.below(1_000));
                let Some(node) = self.workers.get_mut(&id) else { return Ok(()) };
                let pace = Duration::from_millis(if node.slow { 10 * pace } else { pace });
                let start = node.aligner_free_at.max(now);
                node.aligner_free_at = start + pace;
                let done = node.aligner_free_at;
                self.schedule_at(start, SimulatedEvent::WorkerRequestsBlock(id));
                self.schedule_at(done, SimulatedEvent::BlockAligned(id, block));
            }
            ShuffleAction::FetchSlices { worker, block, shards, from } => {
                if worker == from || shards.is_empty() {
                    return Err(self.describe_failure("a node is to fetch from itself, or nothing"));
                }
                let held = |id: &WorkerId| {
                    self.workers
                        .get(id)
                        .is_none_or(|node| shards.iter().all(|share| node.slices.contains(&(block, *share))))
                };
                if !held(&from) {
                    return Err(self.describe_failure(&format!(
                        "slices of {block:?} were requested from {from:?}, which does not hold them"
                    )));
                }
                self.schedule_within(20, 200, SimulatedEvent::SlicesFetched(worker, block, shards, from));
            }
            ShuffleAction::ReleaseReads(block) => drop(self.released_blocks.insert(block)),
            ShuffleAction::ReloadReads(block) => self.schedule_within(100, 1_000, SimulatedEvent::BlockFed(block)),
            ShuffleAction::DecideDuplicates if self.is_deciding => {
                return Err(self.describe_failure("duplicates are decided twice"));
            }
            ShuffleAction::DecideDuplicates => {
                self.is_deciding = true;
                self.schedule_within(100, 500, SimulatedEvent::DuplicatesDecided);
            }
            ShuffleAction::WritePart(id, part) => return self.start_writing_part(id, part),
            ShuffleAction::PlacePart(node, part, offset) => {
                self.schedule_within(10, 50, SimulatedEvent::PartPlaced(node, part, offset))
            }
            ShuffleAction::ReportSizeMismatch(part) => {
                return Err(self.describe_failure(&format!("part {part} has another size")));
            }
            ShuffleAction::FinishJob if self.finished_rounds + 1 < self.scenario.rounds => {
                self.finished_rounds += 1;
                self.placed_parts.clear();
                self.schedule_within(100, 500, SimulatedEvent::DuplicatesDecided);
            }
            ShuffleAction::FinishJob => self.finished = true,
        }
        Ok(())
    }

    fn start_writing_part(&mut self, id: WorkerId, part: usize) -> Result<(), String> {
        let share = ShardId((part / self.scenario.parts_per_share as usize) as u16);
        let Some(node) = self.workers.get_mut(&id) else { return Ok(()) };
        let missing = (0..self.scenario.blocks).map(Self::id_of).find(|block| !node.slices.contains(&(*block, share)));
        node.parts_being_written += 1;
        let too_many = node.parts_being_written > 2;
        if let Some(block) = missing {
            return Err(self.describe_failure(&format!("part {part} was assigned for writing without {block:?}")));
        }
        if too_many {
            return Err(self.describe_failure("a node writes more than it can"));
        }
        self.schedule_within(50, 300, SimulatedEvent::PartWritten(id, part));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every seed is another scenario.
    #[test]
    fn runs_with_faults_end_with_every_part_in_its_place() {
        let failures: Vec<String> = (0..5_000).filter_map(|seed| run(Scenario::of_seed(seed)).err()).collect();
        assert!(failures.is_empty(), "{} failed, the first: {}", failures.len(), failures[0]);
    }

    #[test]
    fn without_faults_nothing_is_aligned_twice() {
        for workers in 1..9 {
            let faults = Faults::default();
            let scenario = Scenario { seed: 7, workers, blocks: 40, shares: 16, parts_per_share: 2, rounds: 1, faults };
            let outcome = run(scenario).unwrap();
            // Allow two alignments more than blocks, because a block of a slow worker may also be assigned to a second
            // worker.
            assert!(outcome.alignments <= 42, "{outcome:?}");
            let copies = if workers > 1 { 40 * 16 } else { 0 };
            assert!(outcome.fetched_slices >= copies && outcome.fetched_slices <= 2 * copies, "{outcome:?}");
        }
    }

    #[test]
    fn losing_the_head_costs_only_what_was_in_flight() {
        let mut died = 0;
        for seed in 0..500 {
            let faults = Faults { head_deaths: 2, ..Faults::default() };
            let scenario = Scenario { seed, workers: 5, blocks: 60, shares: 20, parts_per_share: 1, rounds: 1, faults };
            let outcome = run(scenario).unwrap();
            died += outcome.head_deaths;
            // Each lost worker had at most three blocks, and a block may be assigned to two workers.
            let in_flight = (5 * ShuffleOptions::default().max_blocks_per_worker) as u32;
            assert!(outcome.alignments <= 60 + 2 + outcome.head_deaths * in_flight, "seed {seed}: {outcome:?}");
        }
        assert!(died > 200, "only {died} heads died");
    }

    #[test]
    fn losing_a_worker_costs_only_what_it_had_in_flight() {
        for seed in 0..300 {
            let faults = Faults { worker_crashes: 1, ..Faults::default() };
            let scenario = Scenario { seed, workers: 5, blocks: 60, shares: 20, parts_per_share: 1, rounds: 1, faults };
            let outcome = run(scenario).unwrap();
            // The lost worker had at most three blocks in alignment, and its most recently aligned blocks had no second
            // copies.
            let limits = ShuffleOptions::default();
            let in_flight = (limits.max_blocks_per_worker + limits.max_fetches_per_worker) as u32;
            assert!(outcome.alignments <= 60 + in_flight + 2, "seed {seed}: {outcome:?}");
        }
    }
}
