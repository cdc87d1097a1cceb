//! Copies in simulated worlds: the session of a transfer, unchanged, between ends that lose connections, damage and
//! lose blocks, stall, go away for a minute, and are stopped and begun again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use godwit_transfer::ranges::RangeSet;
use godwit_transfer::session::{
    Action, Event, FileId, FileWork, RequestId, Session, SessionOptions, Sources, Span, StreamId,
};
use godwit_transfer::tree::{BLOCK_BYTES, block_count};

use crate::random::Random;

/// Simulated time after which a copy that goes on is taken for one that hangs.
const LONGEST: Duration = Duration::from_secs(20_000);

/// What came of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOutcome {
    /// Blocks of all files.
    pub blocks: u64,
    /// Blocks that were sent more than once, for whatever reason.
    pub sent_again: u64,
    /// Blocks that came damaged.
    pub damaged: u64,
    /// Connections that broke.
    pub lost: u64,
    /// Connections that were closed because they were too many.
    pub closed: u64,
    /// Times that another number of connections was wanted.
    pub changes: u64,
    /// Files that were gone.
    pub gone: usize,
    /// Processes that it took.
    pub processes: u32,
}

/// What comes to pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Connected {
        stream: StreamId,
        attempt: u32,
    },
    Broken {
        stream: StreamId,
        attempt: u32,
    },
    Sent {
        stream: StreamId,
        attempt: u32,
        request: RequestId,
    },
    Proved {
        file: FileId,
        source: u32,
    },
    /// From now on so many connections are to be asked for blocks.
    Wanted {
        streams: u32,
    },
    Tick,
}

struct Request {
    left: Vec<(FileId, u64)>,
}

struct World {
    random: Random,
    now: Duration,
    coming: BinaryHeap<Reverse<(Duration, u64, Happening)>>,
    order: u64,
    attempts: Vec<u32>,
    requests: BTreeMap<(StreamId, RequestId), Request>,
    /// Blocks that are written.
    written: Vec<RangeSet>,
    sizes: Vec<u64>,
    gone: BTreeSet<FileId>,
    named: BTreeSet<FileId>,
    damage_percent: u64,
    break_percent: u64,
    outage: Option<(Duration, Duration)>,
    /// A source that ends for good, and when.
    ending: Option<(u32, Duration)>,
    /// Where each stream is connected to.
    connected: Vec<u32>,
    ms_per_block: u64,
    outcome: CopyOutcome,
    /// Blocks a stream may have in flight; what of them is sent again after a break is no fault.
    in_flight: u64,
}

impl World {
    fn at(&mut self, wait_ms: u64, happening: Happening) {
        self.order += 1;
        self.coming.push(Reverse((self.now + Duration::from_millis(wait_ms), self.order, happening)));
    }

    fn is_out(&self) -> bool {
        self.outage.is_some_and(|(from, to)| self.now >= from && self.now < to)
    }

    fn has_ended(&self, stream: StreamId) -> bool {
        self.ending.is_some_and(|(source, at)| self.connected[stream as usize] == source && self.now >= at)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Open { stream, source } => {
                self.connected[stream as usize] = source;
                self.attempts[stream as usize] += 1;
                let attempt = self.attempts[stream as usize];
                let broken = self.is_out() || self.has_ended(stream) || self.random.chance(self.break_percent);
                let wait = 20 + self.random.below(100);
                self.at(
                    if broken { 1000 } else { wait },
                    match broken {
                        true => Happening::Broken { stream, attempt },
                        false => Happening::Connected { stream, attempt },
                    },
                );
            }
            Action::Close { stream } => {
                self.attempts[stream as usize] += 1;
                self.outcome.closed += 1;
                self.requests.retain(|(of, _), _| *of != stream);
            }
            Action::Ask { stream, request, spans, ahead: _ } => {
                let blocks = |span: &Span| (span.start..span.end).map(|block| (span.file, block)).collect::<Vec<_>>();
                let mut left: Vec<_> = spans.iter().flat_map(blocks).collect();
                left.reverse();
                self.requests.insert((stream, request), Request { left });
                let attempt = self.attempts[stream as usize];
                let wait = 40 + self.random.below(40);
                self.at(wait, Happening::Sent { stream, attempt, request });
            }
            Action::Finish { file, sources } => {
                let wait = 40 + self.random.below(40);
                let ended = |source| self.ending.is_some_and(|(ending, at)| source == ending && self.now >= at);
                let source = sources.iter().find(|source| !ended(*source)).unwrap_or_default();
                self.at(wait, Happening::Proved { file, source });
            }
            Action::Refuse { .. } | Action::Done | Action::GiveUp | Action::Stop => {}
        }
    }

    /// What the session hears of a happening.
    fn event(&mut self, happening: Happening) -> Option<Event> {
        match happening {
            Happening::Tick => Some(Event::Tick),
            Happening::Wanted { streams } => {
                self.outcome.changes += 1;
                Some(Event::Streams { wanted: streams })
            }
            Happening::Connected { stream, attempt } => {
                (self.attempts[stream as usize] == attempt).then_some(Event::Opened { stream })
            }
            Happening::Broken { stream, attempt } => (self.attempts[stream as usize] == attempt).then(|| {
                self.outcome.lost += 1;
                self.requests.retain(|(of, _), _| *of != stream);
                Event::Lost { stream }
            }),
            Happening::Proved { file, source } => {
                // The disk of the receiver loses a block now and then.
                if self.random.chance(3) {
                    let block = self.random.below(block_count(self.sizes[file as usize]));
                    self.written[file as usize].remove(block, block + 1);
                    return Some(Event::Disproved { file, blocks: RangeSet::of(block, block + 1), source });
                }
                self.named.insert(file);
                Some(Event::Finished { file })
            }
            Happening::Sent { stream, attempt, request } => self.sent(stream, attempt, request),
        }
    }

    /// The next block of a request.
    fn sent(&mut self, stream: StreamId, attempt: u32, request: RequestId) -> Option<Event> {
        if self.attempts[stream as usize] != attempt {
            return None;
        }
        if self.is_out() || self.has_ended(stream) || self.random.below(2000) < self.break_percent {
            self.attempts[stream as usize] += 1;
            let attempt = self.attempts[stream as usize];
            self.at(5, Happening::Broken { stream, attempt });
            return None;
        }
        let Some((file, block)) = self.requests.get_mut(&(stream, request)).and_then(|request| request.left.pop())
        else {
            self.requests.remove(&(stream, request));
            return Some(Event::Ended { stream, request });
        };
        let wait = 1 + self.random.below(self.ms_per_block);
        self.at(wait, Happening::Sent { stream, attempt, request });
        if self.gone.contains(&file) {
            return Some(Event::Unavailable { file, source: self.connected[stream as usize] });
        }
        if self.random.chance(self.damage_percent) {
            self.outcome.damaged += 1;
            return Some(Event::Damaged { stream, file, block });
        }
        // What is left out is asked for again when the request has ended.
        if self.random.chance(1) {
            return None;
        }
        let written = &mut self.written[file as usize];
        if written.contains(block) {
            self.outcome.sent_again += 1;
        }
        written.insert(block, block + 1);
        if block_count(self.sizes[file as usize]) == 1 {
            self.named.insert(file);
        }
        Some(Event::Arrived { stream, file, block })
    }

    /// A process from its start to its end; true when all is done, false when it was killed.
    fn process(&mut self, options: &SessionOptions, killed_at: Option<Duration>) -> Result<bool, String> {
        self.coming.clear();
        self.requests.clear();
        self.attempts = vec![0; options.streams as usize];
        self.connected = vec![0; options.streams as usize];
        for _ in 0..self.random.below(5) {
            let streams = 1 + self.random.below(u64::from(options.streams)) as u32;
            let wait = self.random.below(3000);
            self.at(wait, Happening::Wanted { streams });
        }
        let work = self.sizes.iter().zip(&self.written).zip(0..).map(|((size, written), file)| {
            let named = self.named.contains(&file);
            let size_bytes = if named { 0 } else { *size };
            let missing = if named { RangeSet::default() } else { written.gaps(block_count(*size)) };
            FileWork { size_bytes, missing, sources: (1..options.sources).fold(Sources::only(0), Sources::and) }
        });
        let (mut session, actions) = Session::new(work.collect(), options.clone(), self.now);
        let mut actions = actions;
        loop {
            for action in actions {
                match action {
                    Action::Done => return Ok(true),
                    Action::GiveUp => return Err("gave up though the path was there".to_owned()),
                    action => self.act(action),
                }
            }
            if killed_at.is_some_and(|at| self.now >= at) {
                return Ok(false);
            }
            if let Some(wake) = session.wake_at() {
                let wait = wake.saturating_sub(self.now).as_millis() as u64 + 1;
                self.at(wait, Happening::Tick);
            }
            let Some(Reverse((at, _, happening))) = self.coming.pop() else { return Err("nothing more comes".into()) };
            self.now = self.now.max(at);
            if self.now > LONGEST {
                return Err("it does not end".to_owned());
            }
            actions = match self.event(happening) {
                Some(event) => session.handle(self.now, event),
                None => Vec::new(),
            };
        }
    }

    fn check(&self) -> Result<(), String> {
        for (file, size) in (0..).zip(&self.sizes) {
            let whole = self.written[file as usize].count() == block_count(*size);
            let is_gone = self.gone.contains(&file);
            let is_done = whole && self.named.contains(&file);
            if !is_done && !is_gone {
                return Err(format!("file {file} of {size} bytes is not whole: {:?}", self.written[file as usize]));
            }
        }
        // Whatever is sent twice was in flight on a connection that broke or was closed, or was asked of two, as one stalled or came late:
        // so does one that is too many and has no more to do than what it was asked for.
        let ended = self.outcome.lost + self.outcome.closed + self.outcome.changes + u64::from(self.outcome.processes);
        let allowed = self.in_flight * ended + self.outcome.blocks / 50;
        if self.outcome.sent_again > allowed {
            return Err(format!("{} blocks came twice, {allowed} may", self.outcome.sent_again));
        }
        Ok(())
    }
}

/// A copy in the world of a seed.
///
/// # Errors
/// What went wrong, with the seed.
pub fn copy(seed: u64) -> Result<CopyOutcome, String> {
    let mut random = Random::new(seed ^ 0xc0_91e5);
    let files = 1 + random.below(30);
    let sizes: Vec<u64> = (0..files)
        .map(|_| match random.below(4) {
            0 => random.below(BLOCK_BYTES),
            1 => 0,
            _ => random.below(60 * BLOCK_BYTES),
        })
        .collect();
    let gone = if random.chance(10) { BTreeSet::from([random.below(files) as FileId]) } else { BTreeSet::new() };
    let streams = 1 + random.below(24) as u32;
    let sources = 1 + random.below(3) as u32;
    let options = SessionOptions { streams, sources, ..SessionOptions::default() };
    let kills = random.below(4) as u32;
    let outage = random.chance(30).then(|| {
        let from = Duration::from_millis(random.below(5000));
        (from, from + Duration::from_secs(60))
    });
    // Whether a source that ended had a file that is gone elsewhere is never known: such a copy waits for it.
    let ending = (sources > 1 && gone.is_empty() && random.chance(30)).then(|| {
        let ending = random.below(u64::from(sources)) as u32;
        (ending, Duration::from_millis(random.below(5000)))
    });
    let mut world = World {
        now: Duration::ZERO,
        coming: BinaryHeap::new(),
        order: 0,
        attempts: Vec::new(),
        requests: BTreeMap::new(),
        written: vec![RangeSet::default(); sizes.len()],
        outcome: CopyOutcome { blocks: sizes.iter().map(|size| block_count(*size)).sum(), ..CopyOutcome::default() },
        in_flight: u64::from(streams),
        sizes,
        gone,
        named: BTreeSet::new(),
        damage_percent: random.below(4),
        break_percent: random.below(30),
        outage,
        ending,
        connected: Vec::new(),
        ms_per_block: 1 + random.below(200),
        random,
    };
    let failed = |problem: String| format!("seed {seed}: {problem}");
    for process in 0..=kills {
        world.outcome.processes += 1;
        let killed_at = (process < kills).then(|| world.now + Duration::from_millis(world.random.below(8000)));
        if world.process(&options, killed_at).map_err(failed)? {
            break;
        }
    }
    world.outcome.gone = world.gone.len();
    world.check().map_err(failed)?;
    Ok(world.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_end_whole_in_worlds_with_faults() {
        for seed in 0..300 {
            copy(seed).unwrap();
        }
        assert_eq!(copy(7), copy(7), "a seed is one world");
    }
}
