use super::*;

fn sizes(bam: u64, cram: u64) -> PerFile<u64> {
    PerFile { bam, cram }
}

const SECOND: Duration = Duration::from_secs(1);

fn block(ordinal: u32) -> BlockId {
    BlockId { lane: 0, ordinal }
}

/// A scheduler, and a clock that advances only when a test sets it.
struct SchedulerFixture {
    ledger: ShuffleScheduler,
    now: Duration,
}

impl SchedulerFixture {
    /// Creates a scheduler with joined workers and available blocks. The input has ended.
    fn new(nodes: u32, blocks: u32) -> Self {
        let mut run = Self { ledger: ShuffleScheduler::new(ShuffleOptions::default()), now: Duration::ZERO };
        for node in 0..nodes {
            run.handle(ShuffleEvent::WorkerJoined { worker: WorkerId(node), writers: 1 });
        }
        (0..blocks).for_each(|ordinal| drop(run.handle(ShuffleEvent::BlockAvailable(block(ordinal)))));
        run.handle(ShuffleEvent::InputEnded);
        run
    }

    fn handle(&mut self, event: ShuffleEvent) -> Vec<ShuffleAction> {
        self.ledger.handle_event(event, self.now)
    }

    fn request_work(&mut self, node: u32) -> Vec<ShuffleAction> {
        self.handle(ShuffleEvent::WorkRequested(WorkerId(node)))
    }

    /// Reports that a worker has aligned a block, and completes all fetches that follow. Returns the other actions.
    fn align_and_fetch(&mut self, node: u32, ordinal: u32) -> Vec<ShuffleAction> {
        let mut left = self.handle(ShuffleEvent::BlockAligned(WorkerId(node), block(ordinal)));
        let mut others = Vec::new();
        while let Some(action) = left.pop() {
            match action {
                ShuffleAction::FetchSlices { worker, block, .. } => {
                    left.extend(self.handle(ShuffleEvent::SlicesFetched(worker, block)))
                }
                other => others.push(other),
            }
        }
        others
    }
}

#[test]
fn before_the_genome_is_sharded_every_worker_has_one_block() {
    let mut run = SchedulerFixture::new(2, 5);
    assert_eq!(run.request_work(0), [ShuffleAction::AlignBlock(WorkerId(0), block(0))]);
    assert_eq!(run.request_work(1), [ShuffleAction::AlignBlock(WorkerId(1), block(1))]);
    assert_eq!(run.request_work(1), []);
    // If the worker of the first block is lost, that block is assigned at once, because all other blocks depend on it.
    assert_eq!(run.handle(ShuffleEvent::WorkerLost(WorkerId(0))), [ShuffleAction::AlignBlock(WorkerId(1), block(0))]);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 4 });
    assert_eq!(run.request_work(1), [ShuffleAction::AlignBlock(WorkerId(1), block(2))]);
    assert_eq!(run.request_work(1), [], "three blocks at most");
}

#[test]
fn owners_fetch_their_slices_and_others_keep_a_second_copy() {
    let mut run = SchedulerFixture::new(2, 1);
    run.request_work(0);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 4 });
    assert_eq!(run.ledger.owners(), [Some(WorkerId(0)), Some(WorkerId(0)), Some(WorkerId(1)), Some(WorkerId(1))]);
    let shards = (0..4).map(ShardId).collect();
    let all = ShuffleAction::FetchSlices { worker: WorkerId(1), block: block(0), shards, from: WorkerId(0) };
    assert_eq!(run.handle(ShuffleEvent::BlockAligned(WorkerId(0), block(0))), [all]);
    assert_eq!(
        run.handle(ShuffleEvent::SlicesFetched(WorkerId(1), block(0))),
        [ShuffleAction::ReleaseReads(block(0)), ShuffleAction::DecideDuplicates]
    );
}

#[test]
fn one_worker_alone_needs_no_copies() {
    let mut run = SchedulerFixture::new(1, 1);
    run.request_work(0);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 4 });
    assert_eq!(
        run.handle(ShuffleEvent::BlockAligned(WorkerId(0), block(0))),
        [ShuffleAction::ReleaseReads(block(0)), ShuffleAction::DecideDuplicates]
    );
}

#[test]
fn later_events_of_a_lost_worker_are_ignored() {
    let mut run = SchedulerFixture::new(2, 2);
    run.request_work(0);
    run.request_work(1);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 2 });
    run.handle(ShuffleEvent::WorkerLost(WorkerId(1)));
    assert_eq!(run.handle(ShuffleEvent::BlockAligned(WorkerId(1), block(1))), []);
    assert_eq!(run.ledger.aligned_block_count(), 0);
    // The lost worker joins again under another id.
    run.handle(ShuffleEvent::WorkerJoined { worker: WorkerId(2), writers: 1 });
    assert_eq!(run.request_work(2), [ShuffleAction::AlignBlock(WorkerId(2), block(1))]);
}

#[test]
fn a_block_that_takes_too_long_is_leased_to_an_idle_worker_too() {
    let mut run = SchedulerFixture::new(2, 2);
    run.request_work(0);
    run.request_work(1);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 2 });
    run.now += SECOND;
    run.align_and_fetch(0, 0);
    assert_eq!(run.request_work(0), [], "it may still come");
    run.now += 3 * SECOND;
    assert_eq!(run.ledger.handle_time(run.now), [ShuffleAction::AlignBlock(WorkerId(0), block(1))]);
    assert!(run.align_and_fetch(0, 1).contains(&ShuffleAction::DecideDuplicates));
    // The late result of the first worker is not needed any more and does no harm.
    assert!(!run.align_and_fetch(1, 1).contains(&ShuffleAction::DecideDuplicates));
}

#[test]
fn a_fetch_that_failed_is_tried_again_after_a_while() {
    let mut run = SchedulerFixture::new(2, 1);
    run.request_work(0);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 2 });
    run.handle(ShuffleEvent::BlockAligned(WorkerId(0), block(0)));
    assert_eq!(run.handle(ShuffleEvent::SliceFetchFailed(WorkerId(1), block(0))), []);
    let again = run.ledger.handle_time(ShuffleOptions::default().fetch_retry_delay);
    assert!(matches!(again[..], [ShuffleAction::FetchSlices { worker: WorkerId(1), .. }]), "{again:?}");
}

#[test]
fn parts_are_placed_when_all_before_them_are_written() {
    let mut run = SchedulerFixture::new(2, 1);
    run.request_work(0);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 2 });
    assert!(run.align_and_fetch(0, 0).contains(&ShuffleAction::DecideDuplicates));
    let (first, second) = (WorkerId(0), WorkerId(1));
    let given = run.handle(ShuffleEvent::DuplicatesDecided(vec![ShardId(0), ShardId(0), ShardId(1)]));
    assert_eq!(given, [ShuffleAction::WritePart(first, 0), ShuffleAction::WritePart(second, 2)], "one at a time");
    assert_eq!(run.handle(ShuffleEvent::PartWritten(second, 2, sizes(30, 3))), [], "its offset is not known yet");
    let given = run.handle(ShuffleEvent::PartWritten(first, 0, sizes(10, 5)));
    assert_eq!(given, [ShuffleAction::WritePart(first, 1), ShuffleAction::PlacePart(first, 0, sizes(0, 0))]);
    let given = run.handle(ShuffleEvent::PartWritten(first, 1, sizes(20, 2)));
    assert_eq!(
        given,
        [ShuffleAction::PlacePart(first, 1, sizes(10, 5)), ShuffleAction::PlacePart(second, 2, sizes(30, 7))]
    );
    // The owner of part 2 is lost before the part is copied to the files: another worker writes it for the same offset.
    let given = run.handle(ShuffleEvent::WorkerLost(second));
    assert_eq!(given, [ShuffleAction::WritePart(first, 2)]);
    run.handle(ShuffleEvent::PartPlaced(first, 0));
    run.handle(ShuffleEvent::PartPlaced(first, 1));
    assert_eq!(
        run.handle(ShuffleEvent::PartWritten(first, 2, sizes(30, 3))),
        [ShuffleAction::PlacePart(first, 2, sizes(30, 7))]
    );
    assert_eq!(run.handle(ShuffleEvent::PartPlaced(first, 2)), [ShuffleAction::FinishJob]);
}

#[test]
fn a_part_of_another_size_is_reported() {
    let mut run = SchedulerFixture::new(1, 1);
    run.request_work(0);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 1 });
    run.align_and_fetch(0, 0);
    run.handle(ShuffleEvent::DuplicatesDecided(vec![ShardId(0)]));
    run.handle(ShuffleEvent::PartWritten(WorkerId(0), 0, sizes(10, 0)));
    run.handle(ShuffleEvent::WorkerJoined { worker: WorkerId(1), writers: 1 });
    run.handle(ShuffleEvent::WorkerLost(WorkerId(0)));
    // No worker holds the slice any more.
    assert_eq!(run.request_work(1), []);
    assert_eq!(run.handle(ShuffleEvent::BlockAvailable(block(0))), [ShuffleAction::AlignBlock(WorkerId(1), block(0))]);
    assert_eq!(
        run.handle(ShuffleEvent::BlockAligned(WorkerId(1), block(0))),
        [ShuffleAction::ReleaseReads(block(0)), ShuffleAction::WritePart(WorkerId(1), 0)]
    );
    let told = run.handle(ShuffleEvent::PartWritten(WorkerId(1), 0, sizes(11, 0)));
    assert!(told.contains(&ShuffleAction::ReportSizeMismatch(0)), "{told:?}");
}

#[test]
fn parts_can_be_written_again_also_by_workers_that_lacked_their_slices() {
    let mut run = SchedulerFixture::new(2, 1);
    run.request_work(0);
    run.handle(ShuffleEvent::GenomeSharded { shard_count: 2 });
    assert!(run.align_and_fetch(0, 0).contains(&ShuffleAction::DecideDuplicates));
    let write = |run: &mut SchedulerFixture, node: u32, part: usize| {
        run.handle(ShuffleEvent::PartWritten(WorkerId(node), part, sizes(0, 0)));
        run.handle(ShuffleEvent::PartPlaced(WorkerId(node), part))
    };
    run.handle(ShuffleEvent::DuplicatesDecided(vec![ShardId(0), ShardId(1)]));
    write(&mut run, 0, 0);
    assert_eq!(write(&mut run, 1, 1), [ShuffleAction::FinishJob]);
    // While no part has to be written, no worker fetches the slices of the shards of the lost worker.
    run.handle(ShuffleEvent::WorkerJoined { worker: WorkerId(2), writers: 1 });
    assert_eq!(run.handle(ShuffleEvent::WorkerLost(WorkerId(0))), []);
    let given = run.handle(ShuffleEvent::DuplicatesDecided(vec![ShardId(0), ShardId(1)]));
    let fetch = ShuffleAction::FetchSlices {
        worker: WorkerId(2),
        block: block(0),
        shards: vec![ShardId(0)],
        from: WorkerId(1),
    };
    assert_eq!(given, [fetch, ShuffleAction::WritePart(WorkerId(1), 1)]);
    assert_eq!(
        run.handle(ShuffleEvent::SlicesFetched(WorkerId(2), block(0))),
        [ShuffleAction::WritePart(WorkerId(2), 0)]
    );
    write(&mut run, 2, 0);
    assert_eq!(write(&mut run, 1, 1), [ShuffleAction::FinishJob]);
}

#[test]
fn an_empty_input_finishes() {
    let mut run = SchedulerFixture::new(1, 0);
    assert_eq!(run.ledger.handle_time(SECOND), [], "it was told when the feed ended");
    assert_eq!(run.handle(ShuffleEvent::DuplicatesDecided(Vec::new())), [ShuffleAction::FinishJob]);
}

fn shares(count: u16) -> Vec<ShardId> {
    (0..count).map(ShardId).collect()
}

/// Creates the scheduler of a new head after an earlier head failed. Two workers have joined and reported held slices
/// before the genome is cut.
fn resumed_scheduler(held: &[(u32, u32, Vec<ShardId>)]) -> (SchedulerFixture, Vec<ShuffleAction>) {
    let mut run = SchedulerFixture { ledger: ShuffleScheduler::new(ShuffleOptions::default()), now: Duration::ZERO };
    for node in 0..2 {
        run.handle(ShuffleEvent::WorkerJoined { worker: WorkerId(node), writers: 1 });
    }
    for (node, ordinal, shares) in held {
        run.handle(ShuffleEvent::SlicesHeld(WorkerId(*node), block(*ordinal), shares.clone()));
    }
    let actions = run.handle(ShuffleEvent::GenomeSharded { shard_count: 4 });
    (run, actions)
}

#[test]
fn slices_held_by_two_workers_are_neither_aligned_nor_fetched_again() {
    let (mut run, actions) =
        resumed_scheduler(&[(0, 0, shares(4)), (1, 0, shares(4)), (0, 1, shares(4)), (1, 1, shares(4))]);
    assert_eq!(actions, []);
    assert!(run.ledger.is_block_aligned(block(0)) && run.ledger.is_block_aligned(block(1)));
    assert_eq!(run.handle(ShuffleEvent::InputEnded), [ShuffleAction::DecideDuplicates]);
}

#[test]
fn shards_go_to_the_workers_that_hold_the_most_of_them() {
    // Worker 0 aligned both blocks. Worker 1 aligned no block, but holds the slices of the first two shards.
    let own = vec![ShardId(0), ShardId(1)];
    let (run, actions) = resumed_scheduler(&[(0, 0, shares(4)), (0, 1, shares(4)), (1, 0, own.clone()), (1, 1, own)]);
    let (zero, one) = (Some(WorkerId(0)), Some(WorkerId(1)));
    assert_eq!(run.ledger.owners(), [zero, zero, one, one], "ties go to the first, which has its part then");
    // Worker 1 fetches copies of the last two shards, because it owns them.
    let fetches = actions
        .iter()
        .filter(|action| matches!(action, ShuffleAction::FetchSlices { worker: WorkerId(1), .. }))
        .count();
    assert_eq!(fetches, 2, "{actions:?}");
}

#[test]
fn a_block_held_in_part_is_aligned_when_its_reads_are_available_and_one_reported_late_is_not() {
    let (mut run, _) = resumed_scheduler(&[(0, 0, vec![ShardId(0), ShardId(1)])]);
    assert!(!run.ledger.is_block_aligned(block(0)));
    run.request_work(0);
    assert_eq!(run.handle(ShuffleEvent::BlockAvailable(block(0))), [ShuffleAction::AlignBlock(WorkerId(0), block(0))]);
    run.handle(ShuffleEvent::BlockAvailable(block(1)));
    assert_eq!(run.ledger.waiting_block_count(), 1);
    run.handle(ShuffleEvent::WorkerJoined { worker: WorkerId(7), writers: 1 });
    run.handle(ShuffleEvent::SlicesHeld(WorkerId(7), block(1), shares(4)));
    assert_eq!(run.ledger.waiting_block_count(), 0);
    assert!(run.ledger.is_block_aligned(block(1)));
}

#[test]
fn reads_of_a_held_block_are_requested_when_its_last_holder_is_lost() {
    let (mut run, _) = resumed_scheduler(&[(0, 0, shares(4))]);
    run.handle(ShuffleEvent::InputEnded);
    let actions = run.handle(ShuffleEvent::WorkerLost(WorkerId(0)));
    assert!(actions.contains(&ShuffleAction::ReloadReads(block(0))), "{actions:?}");
}
