//! Carries out what the session decides, and tells it what happened.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_flight::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::climb::Climb;
use super::proof::{Foretold, Proof, Prover};
use super::{Connecting, Copy, CopyEvent, CopySummary};
use crate::control::lost_session;
use crate::error::TransferError;
use crate::manifest::EntryFailure;
use crate::names::{printable, shown};
use crate::plan::Item;
use crate::protocol::{FileState, ReadSpan};
use crate::session::{Action, Event, FileId, FileWork, RequestId, Session, SessionOptions, Sources, Span, StreamId};
use crate::source::{Hashes, SourceSpan};
use crate::streams::{Asked, Direction, Note, Notes, Spans, Stream};
use crate::task::Task;
use crate::tree::{BlockHash, block_span, root};
use crate::tune::{Manner, info};

/// How often it is told how far the copy is, and looked whether it is to end.
pub(super) const TELL_INTERVAL: Duration = Duration::from_millis(250);
/// Over how long the rate is taken.
const RATE_INTERVAL: Duration = Duration::from_secs(3);

/// A connection as the runner knows it.
#[derive(Default)]
struct Slot {
    attempt: u32,
    /// Where it is connected to.
    source: u32,
    asks: Option<mpsc::UnboundedSender<Asked>>,
    client: Option<Client>,
    /// What went over it when it was last looked at.
    moved_bytes: u64,
    /// The task that works on it, which ends with it.
    task: Option<Task<()>>,
}

impl Slot {
    /// What its connection still tells is of nobody.
    fn close(&mut self) {
        self.attempt += 1;
        (self.asks, self.client, self.task) = (None, None, None);
    }
}

/// See the module.
pub(super) struct Runner<'r, 'c> {
    copy: &'r Copy<'c>,
    direction: Direction,
    hashes: Arc<Hashes>,
    manner: Manner,
    summary: CopySummary,
    connecting: Connecting,
    notes: Notes,
    heard: mpsc::UnboundedReceiver<Note>,
    slots: Vec<Slot>,
    /// Proofs of files that are under way. They end with the copy.
    proofs: JoinSet<()>,
    /// How many of them are asked for blocks.
    streams: u32,
    failures: Vec<EntryFailure>,
    /// Why a source does not have a file any more.
    unavailable: HashMap<FileId, TransferError>,
    last_failure: Option<TransferError>,
    /// Why nothing more is written.
    unwritable: Option<TransferError>,
    started: Instant,
    arrived_bytes: u64,
    /// What went over connections, blocks that are not whole among it.
    moved_bytes: u64,
    /// Where the number of connections is ours to choose.
    climb: Option<Climb>,
    /// What files are proved by, asked for ahead.
    foretold: HashMap<FileId, Foretold>,
    /// Files of which blocks came that the source knows nothing of.
    distrusted: HashSet<FileId>,
    /// Times and bytes, for the rate.
    marks: std::collections::VecDeque<(Instant, u64)>,
}

impl<'r, 'c> Runner<'r, 'c> {
    pub(super) fn new(
        copy: &'r Copy<'c>,
        direction: Direction,
        hashes: Arc<Hashes>,
        manner: Manner,
        summary: CopySummary,
        connecting: Connecting,
        climb: Option<Climb>,
    ) -> Self {
        let (notes, heard) = mpsc::unbounded_channel();
        Self {
            copy,
            direction,
            hashes,
            manner,
            summary,
            connecting,
            notes,
            heard,
            slots: Vec::new(),
            proofs: JoinSet::new(),
            streams: 0,
            failures: Vec::new(),
            unavailable: HashMap::new(),
            last_failure: None,
            unwritable: None,
            started: Instant::now(),
            arrived_bytes: 0,
            moved_bytes: 0,
            climb,
            foretold: HashMap::new(),
            distrusted: HashSet::new(),
            marks: std::collections::VecDeque::new(),
        }
    }

    /// The work done, the destination of the files, and the entries that could not be copied.
    pub(super) fn finished(self) -> (CopySummary, Direction, Vec<EntryFailure>) {
        (self.summary, self.direction, self.failures)
    }

    /// Runs the session to its end.
    pub(super) async fn run(
        &mut self,
        work: Vec<FileWork>,
        options: SessionOptions,
        cancelled: &AtomicBool,
    ) -> Result<(), TransferError> {
        self.streams = options.streams.max(1);
        let patience = options.patience;
        let (mut session, mut actions) = Session::new(work, options, self.started.elapsed());
        let mut told_at = Instant::now();
        loop {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Done => {
                        self.tell_progress();
                        return Ok(());
                    }
                    Action::GiveUp => {
                        let source = self.last_failure.take().map(Box::new);
                        return Err(TransferError::Silent { seconds: patience.as_secs(), source });
                    }
                    Action::Stop => {
                        let silent = TransferError::Silent { seconds: patience.as_secs(), source: None };
                        return Err(self.unwritable.take().unwrap_or(silent));
                    }
                    action => self.perform(action, &session),
                }
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            let wake = session.wake_at().map_or(TELL_INTERVAL, |at| at.saturating_sub(self.started.elapsed()));
            let note = tokio::time::timeout(wake.min(TELL_INTERVAL), self.heard.recv()).await;
            if told_at.elapsed() >= TELL_INTERVAL {
                told_at = Instant::now();
                self.tell_progress();
                if let Some(wanted) = self.streams_wanted() {
                    actions.extend(session.handle(self.started.elapsed(), Event::Streams { wanted }));
                }
            }
            let event = match note {
                Ok(Some(note)) => match self.event_of(note).await? {
                    Some(event) => event,
                    None => continue,
                },
                _ => Event::Tick,
            };
            actions.extend(session.handle(self.started.elapsed(), event));
        }
    }

    /// What a note says to the session.
    async fn event_of(&mut self, note: Note) -> Result<Option<Event>, TransferError> {
        Ok(match note {
            Note::Event(event) => {
                self.count(&event);
                if let Event::Disproved { file, .. } = &event {
                    self.distrusted.insert(*file);
                }
                Some(event)
            }
            Note::OfStream { attempt, event } => {
                let (Event::Opened { stream } | Event::Ended { stream, .. }) = &event else { return Ok(Some(event)) };
                (self.slots[*stream as usize].attempt == attempt).then_some(event)
            }
            Note::Lost { stream, attempt, why } => {
                self.last_failure = Some(why.into());
                self.lost(stream, attempt)
            }
            Note::Unwritable { stream, attempt, request, why } => {
                // The first of them is told.
                self.unwritable.get_or_insert(why);
                let request = request.filter(|_| self.slots[stream as usize].attempt == attempt);
                Some(Event::Unwritable { stream, request })
            }
            Note::SessionLost { stream, attempt, session } => {
                self.begin_again(&session).await?;
                self.lost(stream, attempt)
            }
            Note::GrantLost { stream, attempt } => {
                self.grant_again(stream).await?;
                self.lost(stream, attempt)
            }
            Note::Trouble { file, source, why } => {
                let origin = self.copy.plan.items.get(file as usize).map(|item| item.origin.as_str());
                self.unavailable.insert(file, why.into_error(&shown(origin.unwrap_or_default())));
                Some(Event::Unavailable { file, source })
            }
            Note::Failed { file, source, why } => {
                self.unavailable.insert(file, why);
                Some(Event::Unavailable { file, source })
            }
            Note::Fatal(error) => return Err(error),
            Note::ProveAgain { file, session } => {
                self.begin_again(&session).await?;
                self.finish(file, Sources::only(0));
                None
            }
            Note::Connected { stream, client } => {
                let slot = &mut self.slots[stream as usize];
                (slot.client, slot.moved_bytes) = (Some(client), 0);
                None
            }
            Note::Proved { file, hashes } => {
                self.tell_copied(file, &hashes);
                Some(Event::Finished { file })
            }
        })
    }

    fn lost(&mut self, stream: StreamId, attempt: u32) -> Option<Event> {
        let slot = &mut self.slots[stream as usize];
        // Several requests of one connection tell of its end.
        if slot.attempt != attempt {
            return None;
        }
        slot.close();
        Some(Event::Lost { stream })
    }

    /// A server that was started anew is told of all files again.
    async fn begin_again(&mut self, lost: &str) -> Result<(), TransferError> {
        let Direction::Upload { session, .. } = &mut self.direction else { return Ok(()) };
        if session != lost {
            return Ok(());
        }
        let entries: Vec<_> = self.copy.plan.items.iter().map(|item| item.entry.clone()).collect();
        let (begun, _) = self.copy.control.begin(&self.copy.base, &entries, false).await?;
        *session = begun;
        self.copy.let_relay_write(session).await
    }

    /// A server that was started anew is asked again to let a relay do its work.
    async fn grant_again(&mut self, stream: StreamId) -> Result<(), TransferError> {
        let source = self.slots.get(stream as usize).map_or(0, |slot| slot.source);
        let Direction::Upload { session, .. } = &self.direction else { return self.copy.let_relay_read(source).await };
        let session = session.clone();
        match self.copy.let_relay_write(&session).await {
            Err(TransferError::Flight(error)) if lost_session(&error) => self.begin_again(&session).await,
            granted => granted,
        }
    }

    fn perform(&mut self, action: Action, session: &Session) {
        match action {
            Action::Open { stream, source } => self.open(stream, source),
            Action::Close { stream } => {
                if let Some(slot) = self.slots.get_mut(stream as usize) {
                    slot.close();
                }
            }
            Action::Ask { stream, request, ahead, spans } => {
                self.ask(stream, request, ahead, &spans);
                self.foretell(&spans, session);
            }
            Action::Finish { file, sources } => {
                self.call_over_the_soonest(sources, session);
                self.finish(file, sources);
            }
            Action::Refuse { file } => self.leave_out(file),
            Action::Done | Action::GiveUp | Action::Stop => {}
        }
    }

    fn leave_out(&mut self, file: FileId) {
        let Item { entry, origin } = &self.copy.plan.items[file as usize];
        let damaged = TransferError::Damaged { place: shown(origin) };
        let why = self.unavailable.remove(&file).unwrap_or(damaged);
        self.failures.push(EntryFailure { path: entry.path.clone(), why });
        self.summary.files = self.summary.files.saturating_sub(1);
        self.summary.bytes = self.summary.bytes.saturating_sub(entry.size_bytes);
    }

    fn open(&mut self, stream: StreamId, source: u32) {
        let (asks, asked) = mpsc::unbounded_channel();
        if self.slots.len() <= stream as usize {
            self.slots.resize_with(stream as usize + 1, Slot::default);
        }
        let slot = &mut self.slots[stream as usize];
        (slot.asks, slot.source, slot.client) = (Some(asks), source, None);
        if slot.task.take().is_some() {
            // A stream that goes to another source: what its connection before still tells is of nobody.
            slot.attempt += 1;
        }
        let first = slot.attempt == 0;
        let through = self.copy.relay.as_ref().map(|relay| relay.through(source));
        let control = self.copy.way_to(source).clone();
        let ready = if first && stream == 0 { control.current() } else { None };
        let connecting = if first { self.connecting.remove(&stream) } else { None };
        let connect = async move {
            match (connecting, ready) {
                (Some(connecting), _) => match connecting.await {
                    Ok(outcome) => outcome,
                    Err(_) => Ok(control.another().await?.into()),
                },
                (None, Some(client)) => Ok(client.into()),
                (None, None) => Ok(control.another().await?.into()),
            }
        };
        let (attempt, notes, manner) = (slot.attempt, self.notes.clone(), self.manner);
        let worker = Stream { stream, attempt, source, through, notes, manner };
        let task = Task::spawn(worker.run(connect, self.direction.clone(), asked));
        self.slots[stream as usize].task = Some(task);
    }

    fn ask(&mut self, stream: StreamId, request: RequestId, ahead: bool, spans: &[Span]) {
        let slot = &self.slots[stream as usize];
        let spans = match self.direction {
            Direction::Download { .. } => {
                let asked = spans.iter().filter_map(|span| read_span(span, self.copy, slot.source));
                let asked = asked.map(|span| ReadSpan { fresh: self.distrusted.contains(&span.file), ..span });
                Spans::There(asked.collect())
            }
            Direction::Upload { .. } => {
                Spans::Here(spans.iter().map(|span| source_span(span, &self.copy.plan.items)).collect())
            }
        };
        if let Some(asks) = &slot.asks {
            // A stream that has just ended tells so itself.
            let _ = asks.send(Asked { request, ahead, spans });
        }
    }

    /// Asks for the hashes of files whose last blocks were asked for, so that nobody waits a round trip for them at the end.
    fn foretell(&mut self, spans: &[Span], session: &Session) {
        if !matches!(self.direction, Direction::Download { .. }) {
            return;
        }
        for span in spans {
            if let Some(sources) = session.asked_for(span.file)
                && !self.foretold.contains_key(&span.file)
            {
                self.call_over_the_soonest(sources, session);
                let asked = Foretold::ask(self.provers(span.file, sources), self.copy.options.patience);
                self.foretold.insert(span.file, asked);
            }
        }
    }

    /// Has questions to sources asked over connections over which no blocks are under way that the answer would have to wait for.
    fn call_over_the_soonest(&self, sources: Sources, session: &Session) {
        if self.copy.relay.is_some() {
            return;
        }
        for source in sources.iter() {
            let Some(stream) = session.soonest(self.started.elapsed(), source) else { continue };
            let control = self.copy.control_of(source);
            // A stream may still be at the server before.
            let client = self.slots.get(stream as usize).and_then(|slot| slot.client.clone());
            if let Some(client) = client.filter(|_| !control.has_moved()) {
                control.call_over(client);
            }
        }
    }

    fn provers(&self, file: FileId, sources: Sources) -> Vec<Prover> {
        let provers = sources.iter().filter_map(|source| {
            let (path, version) = self.copy.origin_of(source, file)?;
            Some(Prover { source, control: self.copy.control_of(source).clone(), path: path.to_owned(), version })
        });
        provers.collect()
    }

    /// Has a file proved by one of its sources.
    fn finish(&mut self, file: FileId, sources: Sources) {
        let item = self.copy.plan.items[file as usize].clone();
        let (direction, hashes) = (self.direction.clone(), self.hashes.clone());
        let (provers, patience) = (self.provers(file, sources), self.copy.options.patience);
        let foretold = self.foretold.remove(&file);
        let proof = Proof { provers, patience, direction, hashes, item, file, foretold };
        let notes = self.notes.clone();
        while self.proofs.try_join_next().is_some() {}
        self.proofs.spawn(async move {
            let _ = notes.send(proof.note().await);
        });
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::Arrived { file, block, .. } => {
                let size_bytes = self.copy.plan.items.get(*file as usize).map_or(0, |item| item.entry.size_bytes);
                let (start, end) = block_span(*block, size_bytes);
                self.arrived_bytes += end.saturating_sub(start);
            }
            Event::Damaged { .. } => self.summary.damaged += 1,
            _ => {}
        }
    }

    fn tell_copied(&self, file: FileId, hashes: &[BlockHash]) {
        let entry = &self.copy.plan.items[file as usize].entry;
        let blake3 = root(hashes, entry.size_bytes).to_hex().to_string();
        let (path, bytes) = (printable(&entry.path), entry.size_bytes);
        self.copy.observer.event(&CopyEvent::Copied { path, bytes, blake3 });
    }

    /// How many connections there are to be from now on, where that changes.
    fn streams_wanted(&mut self) -> Option<u32> {
        let left = self.summary.bytes.saturating_sub(self.summary.kept_bytes + self.arrived_bytes);
        let moved = self.slots.iter_mut().filter_map(|slot| {
            let info = info(slot.client.as_ref()?.wire())?;
            let bytes = info.received_bytes + info.acknowledged_bytes;
            Some(bytes - std::mem::replace(&mut slot.moved_bytes, bytes).min(bytes))
        });
        self.moved_bytes += moved.sum::<u64>();
        let wanted = self.climb.as_mut()?.look(self.started.elapsed(), self.moved_bytes, left)?;
        self.streams = wanted;
        Some(wanted)
    }

    fn tell_progress(&mut self) {
        let now = Instant::now();
        self.marks.push_back((now, self.arrived_bytes));
        while self.marks.len() > 2 && self.marks.front().is_some_and(|mark| now - mark.0 > RATE_INTERVAL) {
            self.marks.pop_front();
        }
        let (since, before) = self.marks.front().copied().unwrap_or((self.started, 0));
        let elapsed = (now - since).as_secs_f64();
        let rate = if elapsed > 0.0 { (self.arrived_bytes - before) as f64 / elapsed } else { 0.0 };
        let bytes = (self.summary.kept_bytes + self.arrived_bytes).min(self.summary.bytes);
        let left = self.summary.bytes - bytes;
        let retransmits = self.slots.iter().filter_map(|slot| info(slot.client.as_ref()?.wire()));
        self.copy.observer.event(&CopyEvent::Copying {
            bytes,
            of: self.summary.bytes,
            bytes_per_s: rate as u64,
            eta_s: (rate >= 1.0).then(|| (left as f64 / rate) as u64),
            retransmits: retransmits.map(|info| u64::from(info.retransmits)).sum(),
            damaged: self.summary.damaged,
            streams: self.streams,
        });
    }
}

fn read_span(span: &Span, copy: &Copy<'_>, source: u32) -> Option<ReadSpan> {
    let (path, version) = copy.origin_of(source, span.file)?;
    Some(ReadSpan {
        file: span.file,
        path: path.to_owned(),
        state: FileState::Version(version),
        start: span.start,
        end: span.end,
        fresh: false,
    })
}

fn source_span(span: &Span, items: &[Item]) -> SourceSpan {
    let item = &items[span.file as usize];
    SourceSpan { file: span.file, path: item.path(), version: item.entry.version, blocks: (span.start, span.end) }
}
