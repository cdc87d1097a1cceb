//! Simulated copies: the session of a transfer, unchanged, between ends that lose connections, damage and lose blocks,
//! stall, are unreachable for a minute, and are killed and restarted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, block_count};
use godwit_transfer_session::ranges::RangeSet;
use godwit_transfer_session::{
    BlockRange, FileId, FileWork, RequestId, SessionAction, SessionEvent, SessionOptions, SourceSet, StreamId,
    TransferSession,
};

use crate::random::Random;

/// The simulated time after which a copy counts as hanging.
const MAX_SIMULATED_TIME: Duration = Duration::from_secs(20_000);
/// The number of blocks of a late connection that an idle connection requests at a time.
const DUPLICATE_REQUEST_BLOCKS: u64 = 2;

/// The statistics of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOutcome {
    /// The number of blocks of all files.
    pub blocks: u64,
    /// The number of blocks that were sent more than once, for any reason.
    pub resent_blocks: u64,
    /// The number of blocks that arrived damaged.
    pub damaged_blocks: u64,
    /// The number of connections that broke.
    pub broken_connections: u64,
    /// The number of connections that were closed because there were too many.
    pub closed_connections: u64,
    /// The number of times that the requested number of connections changed.
    pub connection_count_changes: u64,
    /// The number of files that did not exist at the source.
    pub missing_files: usize,
    /// The number of processes that it took.
    pub process_starts: u32,
}

/// An event at a simulated time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    Connected {
        stream: StreamId,
        attempt: u32,
    },
    ConnectionBroken {
        stream: StreamId,
        attempt: u32,
    },
    BlockSent {
        stream: StreamId,
        attempt: u32,
        request: RequestId,
    },
    FileProved {
        file: FileId,
        source: u32,
    },
    /// A change of the number of connections that blocks are requested on.
    StreamsChanged {
        streams: u32,
    },
    Tick,
}

struct Request {
    remaining_blocks: Vec<(FileId, u64)>,
}

struct CopySimulation {
    random: Random,
    now: Duration,
    event_queue: BinaryHeap<Reverse<(Duration, u64, SimulatedEvent)>>,
    next_sequence: u64,
    attempts: Vec<u32>,
    requests: BTreeMap<(StreamId, RequestId), Request>,
    /// The written blocks of each file.
    written_blocks: Vec<RangeSet>,
    sizes: Vec<u64>,
    missing_files: BTreeSet<FileId>,
    finished_files: BTreeSet<FileId>,
    damage_percent: u64,
    connection_loss_percent: u64,
    outage: Option<(Duration, Duration)>,
    /// The source that ends for good, and the time.
    source_end: Option<(u32, Duration)>,
    /// The source of each stream.
    stream_sources: Vec<u32>,
    ms_per_block: u64,
    outcome: CopyOutcome,
    /// The number of blocks that a stream may have in flight; sending them again after a lost connection is not an error.
    in_flight: u64,
}

impl CopySimulation {
    fn schedule_after(&mut self, wait_ms: u64, happening: SimulatedEvent) {
        self.next_sequence += 1;
        self.event_queue.push(Reverse((self.now + Duration::from_millis(wait_ms), self.next_sequence, happening)));
    }

    fn is_in_outage(&self) -> bool {
        self.outage.is_some_and(|(from, to)| self.now >= from && self.now < to)
    }

    fn has_ended(&self, stream: StreamId) -> bool {
        self.source_end.is_some_and(|(source, at)| self.stream_sources[stream as usize] == source && self.now >= at)
    }

    fn apply_action(&mut self, action: SessionAction) {
        match action {
            SessionAction::OpenStream { stream, source } => {
                self.stream_sources[stream as usize] = source;
                self.attempts[stream as usize] += 1;
                let attempt = self.attempts[stream as usize];
                let broken = self.is_in_outage()
                    || self.has_ended(stream)
                    || self.random.chance_percent(self.connection_loss_percent);
                let wait = 20 + self.random.below(100);
                self.schedule_after(
                    if broken { 1000 } else { wait },
                    match broken {
                        true => SimulatedEvent::ConnectionBroken { stream, attempt },
                        false => SimulatedEvent::Connected { stream, attempt },
                    },
                );
            }
            SessionAction::CloseStream { stream } => {
                self.attempts[stream as usize] += 1;
                self.outcome.closed_connections += 1;
                self.requests.retain(|(of, _), _| *of != stream);
            }
            SessionAction::RequestBlocks { stream, request, ranges, is_prefetched: _ } => {
                let blocks =
                    |span: &BlockRange| (span.start..span.end).map(|block| (span.file, block)).collect::<Vec<_>>();
                let mut remaining_blocks: Vec<_> = ranges.iter().flat_map(blocks).collect();
                remaining_blocks.reverse();
                self.requests.insert((stream, request), Request { remaining_blocks });
                let attempt = self.attempts[stream as usize];
                let wait = 40 + self.random.below(40);
                self.schedule_after(wait, SimulatedEvent::BlockSent { stream, attempt, request });
            }
            SessionAction::VerifyFile { file, sources } => {
                let wait = 40 + self.random.below(40);
                let ended = |source| self.source_end.is_some_and(|(ending, at)| source == ending && self.now >= at);
                let source = sources.iter().find(|source| !ended(*source)).unwrap_or_default();
                self.schedule_after(wait, SimulatedEvent::FileProved { file, source });
            }
            SessionAction::FailFile { .. }
            | SessionAction::Done
            | SessionAction::FailWithTimeout
            | SessionAction::StopAfterWriteFailure => {}
        }
    }

    /// Applies a simulated event, and returns the session's event for it.
    fn session_event_of(&mut self, happening: SimulatedEvent) -> Option<SessionEvent> {
        match happening {
            SimulatedEvent::Tick => Some(SessionEvent::Tick),
            SimulatedEvent::StreamsChanged { streams } => {
                self.outcome.connection_count_changes += 1;
                Some(SessionEvent::StreamCountChanged { count: streams })
            }
            SimulatedEvent::Connected { stream, attempt } => {
                (self.attempts[stream as usize] == attempt).then_some(SessionEvent::StreamOpened { stream })
            }
            SimulatedEvent::ConnectionBroken { stream, attempt } => {
                (self.attempts[stream as usize] == attempt).then(|| {
                    self.outcome.broken_connections += 1;
                    self.requests.retain(|(of, _), _| *of != stream);
                    SessionEvent::StreamLost { stream }
                })
            }
            SimulatedEvent::FileProved { file, source } => {
                // With a probability of 3 %, the disk of the receiver loses a block.
                if self.random.chance_percent(3) {
                    let block = self.random.below(block_count(self.sizes[file as usize]));
                    self.written_blocks[file as usize].remove(block, block + 1);
                    return Some(SessionEvent::VerificationFailed {
                        file,
                        blocks: RangeSet::from_range(block, block + 1),
                        source,
                    });
                }
                self.finished_files.insert(file);
                Some(SessionEvent::FileFinished { file })
            }
            SimulatedEvent::BlockSent { stream, attempt, request } => self.send_next_block(stream, attempt, request),
        }
    }

    /// Sends the next block of a request.
    fn send_next_block(&mut self, stream: StreamId, attempt: u32, request: RequestId) -> Option<SessionEvent> {
        if self.attempts[stream as usize] != attempt {
            return None;
        }
        if self.is_in_outage() || self.has_ended(stream) || self.random.below(2000) < self.connection_loss_percent {
            self.attempts[stream as usize] += 1;
            let attempt = self.attempts[stream as usize];
            self.schedule_after(5, SimulatedEvent::ConnectionBroken { stream, attempt });
            return None;
        }
        let Some((file, block)) =
            self.requests.get_mut(&(stream, request)).and_then(|request| request.remaining_blocks.pop())
        else {
            self.requests.remove(&(stream, request));
            return Some(SessionEvent::RequestEnded { stream, request });
        };
        let wait = 1 + self.random.below(self.ms_per_block);
        self.schedule_after(wait, SimulatedEvent::BlockSent { stream, attempt, request });
        if self.missing_files.contains(&file) {
            return Some(SessionEvent::FileUnavailable { file, source: self.stream_sources[stream as usize] });
        }
        if self.random.chance_percent(self.damage_percent) {
            self.outcome.damaged_blocks += 1;
            return Some(SessionEvent::BlockDamaged { stream, file, block });
        }
        // With a probability of 1 %, the sender omits the block. The session must request it again after the end of the
        // request.
        if self.random.chance_percent(1) {
            return None;
        }
        let written = &mut self.written_blocks[file as usize];
        if written.contains(block) {
            self.outcome.resent_blocks += 1;
        }
        written.insert(block, block + 1);
        if block_count(self.sizes[file as usize]) == 1 {
            self.finished_files.insert(file);
        }
        Some(SessionEvent::BlockWritten { stream, file, block })
    }

    /// Runs a process to its end. Returns true when the copy is complete, false when the process was killed.
    fn run_process(&mut self, options: &SessionOptions, killed_at: Option<Duration>) -> Result<bool, String> {
        self.event_queue.clear();
        self.requests.clear();
        self.attempts = vec![0; options.streams as usize];
        self.stream_sources = vec![0; options.streams as usize];
        for _ in 0..self.random.below(5) {
            let streams = 1 + self.random.below(u64::from(options.streams)) as u32;
            let wait = self.random.below(3000);
            self.schedule_after(wait, SimulatedEvent::StreamsChanged { streams });
        }
        let work = self.sizes.iter().zip(&self.written_blocks).zip(0..).map(|((size, written), file)| {
            let named = self.finished_files.contains(&file);
            let size_bytes = if named { 0 } else { *size };
            let missing = if named { RangeSet::default() } else { written.gaps(block_count(*size)) };
            FileWork {
                size_bytes,
                missing,
                sources: (1..options.sources).fold(SourceSet::only(0), SourceSet::with_source),
            }
        });
        let (mut session, actions) = TransferSession::new(work.collect(), options.clone(), self.now);
        let mut actions = actions;
        loop {
            for action in actions {
                match action {
                    SessionAction::Done => return Ok(true),
                    SessionAction::FailWithTimeout => return Err("gave up though the path was there".to_owned()),
                    action => self.apply_action(action),
                }
            }
            if killed_at.is_some_and(|at| self.now >= at) {
                return Ok(false);
            }
            if let Some(wake) = session.next_wakeup() {
                let wait = wake.saturating_sub(self.now).as_millis() as u64 + 1;
                self.schedule_after(wait, SimulatedEvent::Tick);
            }
            let Some(Reverse((at, _, happening))) = self.event_queue.pop() else {
                return Err("nothing more comes".into());
            };
            self.now = self.now.max(at);
            if self.now > MAX_SIMULATED_TIME {
                return Err("it does not end".to_owned());
            }
            actions = match self.session_event_of(happening) {
                Some(event) => session.handle_event(self.now, event),
                None => Vec::new(),
            };
        }
    }

    fn check_invariants(&self) -> Result<(), String> {
        for (file, size) in (0..).zip(&self.sizes) {
            let whole = self.written_blocks[file as usize].count() == block_count(*size);
            let is_gone = self.missing_files.contains(&file);
            let is_done = whole && self.finished_files.contains(&file);
            if !is_done && !is_gone {
                return Err(format!(
                    "file {file} of {size} bytes is incomplete: {:?}",
                    self.written_blocks[file as usize]
                ));
            }
        }
        // Limit the blocks that are sent twice. Such a block was in flight on a connection that broke or was closed, or
        // it was requested on two connections because one was stalled or late. At the end of a process, each idle
        // connection requests the last blocks of a late one.
        let ended = self.outcome.broken_connections
            + self.outcome.closed_connections
            + self.outcome.connection_count_changes
            + u64::from(self.outcome.process_starts);
        let at_the_end = DUPLICATE_REQUEST_BLOCKS * self.in_flight * u64::from(self.outcome.process_starts);
        let allowed = self.in_flight * ended + at_the_end + self.outcome.blocks / 50;
        if self.outcome.resent_blocks > allowed {
            let resent = self.outcome.resent_blocks;
            return Err(format!("{resent} blocks were sent twice, the limit is {allowed}: {:?}", self.outcome));
        }
        Ok(())
    }
}

/// Simulates the copy of a seed.
///
/// # Errors
/// The violated rule, with the seed.
pub fn simulate_copy(seed: u64) -> Result<CopyOutcome, String> {
    let mut random = Random::new(seed ^ 0xc0_91e5);
    let files = 1 + random.below(30);
    let sizes: Vec<u64> = (0..files)
        .map(|_| match random.below(4) {
            0 => random.below(BLOCK_BYTES),
            1 => 0,
            _ => random.below(60 * BLOCK_BYTES),
        })
        .collect();
    let missing_files =
        if random.chance_percent(10) { BTreeSet::from([random.below(files) as FileId]) } else { BTreeSet::new() };
    let streams = 1 + random.below(24) as u32;
    let sources = 1 + random.below(3) as u32;
    let options = SessionOptions { streams, sources, ..SessionOptions::default() };
    let kills = random.below(4) as u32;
    let outage = random.chance_percent(30).then(|| {
        let from = Duration::from_millis(random.below(5000));
        (from, from + Duration::from_secs(60))
    });
    // Do not combine missing files with a source that ends: the session cannot find out whether another source has the
    // file, and waits for the ended source.
    let source_end = (sources > 1 && missing_files.is_empty() && random.chance_percent(30)).then(|| {
        let ending = random.below(u64::from(sources)) as u32;
        (ending, Duration::from_millis(random.below(5000)))
    });
    let mut world = CopySimulation {
        now: Duration::ZERO,
        event_queue: BinaryHeap::new(),
        next_sequence: 0,
        attempts: Vec::new(),
        requests: BTreeMap::new(),
        written_blocks: vec![RangeSet::default(); sizes.len()],
        outcome: CopyOutcome { blocks: sizes.iter().map(|size| block_count(*size)).sum(), ..CopyOutcome::default() },
        in_flight: u64::from(streams),
        sizes,
        missing_files,
        finished_files: BTreeSet::new(),
        damage_percent: random.below(4),
        connection_loss_percent: random.below(30),
        outage,
        source_end,
        stream_sources: Vec::new(),
        ms_per_block: 1 + random.below(200),
        random,
    };
    let failed = |problem: String| format!("seed {seed}: {problem}");
    for process in 0..=kills {
        world.outcome.process_starts += 1;
        let killed_at = (process < kills).then(|| world.now + Duration::from_millis(world.random.below(8000)));
        if world.run_process(&options, killed_at).map_err(failed)? {
            break;
        }
    }
    world.outcome.missing_files = world.missing_files.len();
    world.check_invariants().map_err(failed)?;
    Ok(world.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_end_whole_in_worlds_with_faults() {
        for seed in 0..300 {
            simulate_copy(seed).unwrap();
        }
        assert_eq!(simulate_copy(7), simulate_copy(7), "a seed is one world");
    }
}
