//! The driver of a transfer session: carries out the actions that the session requests, and passes events to it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_flight::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::file_verification::{FileVerification, HashPrefetch, HashSource};
use super::stream_task::{BlockRequest, Direction, RequestRanges, StreamEvent, StreamEventSender, StreamTask};
use super::{CopyOperation, PendingConnections};
use crate::abort_on_drop::AbortOnDropTask;
use crate::block_reader::{BlockHashCache, SourceRange};
use crate::copy_plan::CopyItem;
use crate::copy_protocol::{FileVersion, ReadRange};
use crate::error::TransferError;
use crate::file_listing::EntryFailure;
use crate::path_text::{escape_for_display, escape_invalid_bytes};
use crate::server_errors::is_unknown_session;
use crate::tcp_tuning::{SendOptions, connection_tcp_info};
use godwit_transfer_session::blake3_tree::{BlockHash, block_byte_range, file_hash};
use godwit_transfer_session::concurrency_controller::ConcurrencyController;
use godwit_transfer_session::copy_events::{CopyEvent, CopySummary};
use godwit_transfer_session::{
    BlockRange, FileId, FileWork, RequestId, SessionAction, SessionEvent, SessionOptions, SourceSet, StreamId,
    TransferSession,
};

/// Interval at which the driver reports progress and checks for cancellation.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Duration over which the reported throughput is measured.
const PROGRESS_RATE_WINDOW: Duration = Duration::from_secs(3);

/// The driver's state of a connection.
#[derive(Default)]
struct StreamSlot {
    attempt: u32,
    /// 0-based index of the source to which the connection goes.
    source: u32,
    requests: Option<mpsc::UnboundedSender<BlockRequest>>,
    client: Option<Client>,
    /// Bytes that the connection had transferred at the last measurement.
    transferred_bytes: u64,
    /// The task that serves the connection; dropping it closes the connection.
    task: Option<AbortOnDropTask<()>>,
}

impl StreamSlot {
    /// Closes the connection. Events that its task has already sent are discarded.
    fn close(&mut self) {
        self.attempt += 1;
        (self.requests, self.client, self.task) = (None, None, None);
    }
}

/// The driver of a transfer session, with the state of all connections and verifications.
pub(super) struct SessionDriver<'r, 'c> {
    copy: &'r CopyOperation<'c>,
    direction: Direction,
    block_hashes: Arc<BlockHashCache>,
    send_options: SendOptions,
    summary: CopySummary,
    pending_connections: PendingConnections,
    event_sender: StreamEventSender,
    events: mpsc::UnboundedReceiver<StreamEvent>,
    slots: Vec<StreamSlot>,
    /// Tasks that verify files. They are aborted when the driver is dropped.
    verifications: JoinSet<()>,
    /// Number of connections over which blocks are requested.
    stream_count: u32,
    failures: Vec<EntryFailure>,
    /// For each file, the latest reason why a source no longer has it.
    unavailability_errors: HashMap<FileId, TransferError>,
    last_failure: Option<TransferError>,
    /// The first error that prevents further writes.
    write_failure: Option<TransferError>,
    started: Instant,
    received_bytes: u64,
    /// Bytes transferred over all connections, including those of incomplete blocks.
    transferred_bytes: u64,
    /// The controller of the number of connections; `None` if the number is fixed.
    concurrency: Option<ConcurrencyController>,
    /// Requests for block hashes that were sent before the file was complete, by file.
    hash_prefetches: HashMap<FileId, HashPrefetch>,
    /// Files that failed verification; their blocks are requested again without caches of relays.
    distrusted_files: HashSet<FileId>,
    /// Times and received bytes of the last seconds, from which the throughput is computed.
    rate_samples: std::collections::VecDeque<(Instant, u64)>,
}

impl<'r, 'c> SessionDriver<'r, 'c> {
    pub(super) fn new(
        copy: &'r CopyOperation<'c>,
        direction: Direction,
        block_hashes: Arc<BlockHashCache>,
        send_options: SendOptions,
        summary: CopySummary,
        pending_connections: PendingConnections,
        concurrency: Option<ConcurrencyController>,
    ) -> Self {
        let (event_sender, events) = mpsc::unbounded_channel();
        Self {
            copy,
            direction,
            block_hashes,
            send_options,
            summary,
            pending_connections,
            event_sender,
            events,
            slots: Vec::new(),
            verifications: JoinSet::new(),
            stream_count: 0,
            failures: Vec::new(),
            unavailability_errors: HashMap::new(),
            last_failure: None,
            write_failure: None,
            started: Instant::now(),
            received_bytes: 0,
            transferred_bytes: 0,
            concurrency,
            hash_prefetches: HashMap::new(),
            distrusted_files: HashSet::new(),
            rate_samples: std::collections::VecDeque::new(),
        }
    }

    /// Returns the summary, the direction with the current upload session, and the entries that could not be copied.
    pub(super) fn into_result(self) -> (CopySummary, Direction, Vec<EntryFailure>) {
        (self.summary, self.direction, self.failures)
    }

    /// Runs the transfer session until it has ended.
    pub(super) async fn run_session(
        &mut self,
        work: Vec<FileWork>,
        options: SessionOptions,
        cancelled: &AtomicBool,
    ) -> Result<(), TransferError> {
        self.stream_count = options.streams.max(1);
        let patience = options.idle_timeout;
        let (mut session, mut actions) = TransferSession::new(work, options, self.started.elapsed());
        let mut reported_at = Instant::now();
        loop {
            for action in std::mem::take(&mut actions) {
                match action {
                    SessionAction::Done => {
                        self.report_progress();
                        return Ok(());
                    }
                    SessionAction::FailWithTimeout => {
                        let source = self.last_failure.take().map(Box::new);
                        return Err(TransferError::Timeout { seconds: patience.as_secs(), source });
                    }
                    SessionAction::StopAfterWriteFailure => {
                        let silent = TransferError::Timeout { seconds: patience.as_secs(), source: None };
                        return Err(self.write_failure.take().unwrap_or(silent));
                    }
                    action => self.perform_action(action, &session),
                }
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            let wake = session.next_wakeup().map_or(PROGRESS_INTERVAL, |at| at.saturating_sub(self.started.elapsed()));
            let note = tokio::time::timeout(wake.min(PROGRESS_INTERVAL), self.events.recv()).await;
            if reported_at.elapsed() >= PROGRESS_INTERVAL {
                reported_at = Instant::now();
                self.report_progress();
                if let Some(count) = self.next_stream_count() {
                    actions.extend(
                        session.handle_event(self.started.elapsed(), SessionEvent::StreamCountChanged { count }),
                    );
                }
            }
            let event = match note {
                Ok(Some(note)) => match self.session_event_of(note).await? {
                    Some(event) => event,
                    None => continue,
                },
                _ => SessionEvent::Tick,
            };
            actions.extend(session.handle_event(self.started.elapsed(), event));
        }
    }

    /// Converts the event of a stream task to an event of the session; returns `None` for events that the session does
    /// not use.
    async fn session_event_of(&mut self, note: StreamEvent) -> Result<Option<SessionEvent>, TransferError> {
        Ok(match note {
            StreamEvent::SessionEvent(event) => {
                self.count_event(&event);
                if let SessionEvent::VerificationFailed { file, .. } | SessionEvent::BlockDamaged { file, .. } = &event
                {
                    self.distrusted_files.insert(*file);
                }
                Some(event)
            }
            StreamEvent::AttemptSessionEvent { attempt, event } => {
                let (SessionEvent::StreamOpened { stream } | SessionEvent::RequestEnded { stream, .. }) = &event else {
                    return Ok(Some(event));
                };
                (self.slots[*stream as usize].attempt == attempt).then_some(event)
            }
            StreamEvent::ConnectionLost { stream, attempt, error } => {
                self.last_failure = Some(error.into());
                self.close_lost_stream(stream, attempt)
            }
            StreamEvent::WriteFailed { stream, attempt, request, error: why } => {
                // Only the first error is reported to the user.
                self.write_failure.get_or_insert(why);
                let request = request.filter(|_| self.slots[stream as usize].attempt == attempt);
                Some(SessionEvent::WriteFailed { stream, request })
            }
            StreamEvent::SessionLost { stream, attempt, session } => {
                self.restart_upload_session(&session).await?;
                self.close_lost_stream(stream, attempt)
            }
            StreamEvent::TokenLost { stream, attempt } => {
                self.renew_relay_token(stream).await?;
                self.close_lost_stream(stream, attempt)
            }
            StreamEvent::FileUnavailable { file, source, error: why } => {
                let origin = self.copy.plan.items.get(file as usize).map(|item| item.source_path.as_str());
                self.unavailability_errors
                    .insert(file, why.into_error(&escape_for_display(origin.unwrap_or_default())));
                Some(SessionEvent::FileUnavailable { file, source })
            }
            StreamEvent::FileFailed { file, source, error: why } => {
                self.unavailability_errors.insert(file, why);
                Some(SessionEvent::FileUnavailable { file, source })
            }
            StreamEvent::Fatal(error) => return Err(error),
            StreamEvent::VerifyAgain { file, session } => {
                self.restart_upload_session(&session).await?;
                self.start_verification(file, SourceSet::only(0));
                None
            }
            StreamEvent::Connected { stream, client } => {
                let slot = &mut self.slots[stream as usize];
                (slot.client, slot.transferred_bytes) = (Some(client), 0);
                None
            }
            StreamEvent::FileVerified { file, hashes } => {
                self.report_copied(file, &hashes);
                Some(SessionEvent::FileFinished { file })
            }
        })
    }

    fn close_lost_stream(&mut self, stream: StreamId, attempt: u32) -> Option<SessionEvent> {
        let slot = &mut self.slots[stream as usize];
        // Each request of a connection reports the loss of the connection; only the first report counts.
        if slot.attempt != attempt {
            return None;
        }
        slot.close();
        Some(SessionEvent::StreamLost { stream })
    }

    /// Starts a new upload session if the server was restarted and no longer has the session `lost`.
    async fn restart_upload_session(&mut self, lost: &str) -> Result<(), TransferError> {
        let Direction::Upload { session, .. } = &mut self.direction else { return Ok(()) };
        if session != lost {
            return Ok(());
        }
        let entries: Vec<_> = self.copy.plan.items.iter().map(|item| item.entry.clone()).collect();
        let (begun, _) = self.copy.control.begin_files(&self.copy.destination_path, &entries, false).await?;
        *session = begun;
        self.copy.request_relay_write_token(session).await
    }

    /// Requests a new delegation token for the relay if a server was restarted and rejects the old token.
    async fn renew_relay_token(&mut self, stream: StreamId) -> Result<(), TransferError> {
        let source = self.slots.get(stream as usize).map_or(0, |slot| slot.source);
        let Direction::Upload { session, .. } = &self.direction else {
            return self.copy.renew_relay_read_token(source).await;
        };
        let session = session.clone();
        match self.copy.request_relay_write_token(&session).await {
            Err(TransferError::Flight(error)) if is_unknown_session(&error) => {
                self.restart_upload_session(&session).await
            }
            granted => granted,
        }
    }

    fn perform_action(&mut self, action: SessionAction, session: &TransferSession) {
        match action {
            SessionAction::OpenStream { stream, source } => self.open_stream(stream, source),
            SessionAction::CloseStream { stream } => {
                if let Some(slot) = self.slots.get_mut(stream as usize) {
                    slot.close();
                }
            }
            SessionAction::RequestBlocks { stream, request, is_prefetched, ranges } => {
                self.send_request(stream, request, is_prefetched, &ranges);
                self.prefetch_hashes(&ranges, session);
            }
            SessionAction::VerifyFile { file, sources } => {
                self.route_calls_over_idle_streams(sources, session);
                self.start_verification(file, sources);
            }
            SessionAction::FailFile { file } => self.record_failed_file(file),
            SessionAction::Done | SessionAction::FailWithTimeout | SessionAction::StopAfterWriteFailure => {}
        }
    }

    fn record_failed_file(&mut self, file: FileId) {
        let CopyItem { entry, source_path } = &self.copy.plan.items[file as usize];
        let damaged = TransferError::Damaged { location: escape_for_display(source_path) };
        let error = self.unavailability_errors.remove(&file).unwrap_or(damaged);
        self.failures.push(EntryFailure { path: entry.path.clone(), error });
        self.summary.files = self.summary.files.saturating_sub(1);
        self.summary.bytes = self.summary.bytes.saturating_sub(entry.size_bytes);
    }

    fn open_stream(&mut self, stream_id: StreamId, source: u32) {
        let (request_sender, requests) = mpsc::unbounded_channel();
        if self.slots.len() <= stream_id as usize {
            self.slots.resize_with(stream_id as usize + 1, StreamSlot::default);
        }
        let slot = &mut self.slots[stream_id as usize];
        (slot.requests, slot.source, slot.client) = (Some(request_sender), source, None);
        if slot.task.take().is_some() {
            // The stream now has a connection to another source, so events of its earlier connection are discarded.
            slot.attempt += 1;
        }
        let first = slot.attempt == 0;
        let relay_target = self.copy.relay_route.as_ref().map(|relay| relay.relay_target(source));
        let control = self.copy.data_server(source).clone();
        let ready = if first && stream_id == 0 { control.current_client() } else { None };
        let connecting = if first { self.pending_connections.remove(&stream_id) } else { None };
        let connect = async move {
            match (connecting, ready) {
                (Some(connecting), _) => match connecting.await {
                    Ok(outcome) => outcome,
                    Err(_) => Ok(control.open_connection().await?.into()),
                },
                (None, Some(client)) => Ok(client.into()),
                (None, None) => Ok(control.open_connection().await?.into()),
            }
        };
        let (attempt, events, send_options) = (slot.attempt, self.event_sender.clone(), self.send_options);
        let worker = StreamTask { stream_id, attempt, source, relay_target, events, send_options };
        let task = AbortOnDropTask::spawn(worker.run(connect, self.direction.clone(), requests));
        self.slots[stream_id as usize].task = Some(task);
    }

    fn send_request(&mut self, stream: StreamId, request_id: RequestId, is_prefetched: bool, spans: &[BlockRange]) {
        let slot = &self.slots[stream as usize];
        let is_distrusted = |span: &BlockRange| self.distrusted_files.contains(&span.file);
        let ranges = match self.direction {
            Direction::Download { .. } => {
                let range = |span| read_range(span, self.copy, slot.source, is_distrusted(span));
                RequestRanges::Remote(spans.iter().filter_map(range).collect())
            }
            Direction::Upload { .. } => {
                let range = |span| source_range(span, &self.copy.plan.items, is_distrusted(span));
                RequestRanges::Local(spans.iter().map(range).collect())
            }
        };
        if let Some(request_sender) = &slot.requests {
            // Sending fails if the stream task has just ended. Ignore this error, because the task also reports its end
            // as an event.
            let _ = request_sender.send(BlockRequest { request_id, is_prefetched, ranges });
        }
    }

    /// Requests the block hashes of files whose last blocks have just been requested. Verification then does not wait
    /// another round trip.
    fn prefetch_hashes(&mut self, spans: &[BlockRange], session: &TransferSession) {
        if !matches!(self.direction, Direction::Download { .. }) {
            return;
        }
        for span in spans {
            if let Some(sources) = session.fully_requested_sources(span.file)
                && !self.hash_prefetches.contains_key(&span.file)
            {
                self.route_calls_over_idle_streams(sources, session);
                let prefetch =
                    HashPrefetch::start(self.hash_sources(span.file, sources), self.copy.options.idle_timeout);
                self.hash_prefetches.insert(span.file, prefetch);
            }
        }
    }

    /// Routes calls to the sources over the connections with the least outstanding data, so that responses do not wait
    /// behind blocks.
    fn route_calls_over_idle_streams(&self, sources: SourceSet, session: &TransferSession) {
        if self.copy.relay_route.is_some() {
            return;
        }
        for source in sources.iter() {
            let Some(stream) = session.soonest_idle_stream(self.started.elapsed(), source) else { continue };
            let control = self.copy.source_server(source);
            // After a move to another pool member, a stream may still be connected to the previous member.
            let client = self.slots.get(stream as usize).and_then(|slot| slot.client.clone());
            if let Some(client) = client.filter(|_| !control.has_moved()) {
                control.use_client(client);
            }
        }
    }

    fn hash_sources(&self, file: FileId, sources: SourceSet) -> Vec<HashSource> {
        let provers = sources.iter().filter_map(|source| {
            let (path, version) = self.copy.source_file(source, file)?;
            Some(HashSource {
                source,
                control: self.copy.source_server(source).clone(),
                path: path.to_owned(),
                version,
            })
        });
        provers.collect()
    }

    /// Starts a task that verifies a file against one of these sources.
    fn start_verification(&mut self, file: FileId, sources: SourceSet) {
        let item = self.copy.plan.items[file as usize].clone();
        let (direction, block_hashes) = (self.direction.clone(), self.block_hashes.clone());
        let (hash_sources, retry_timeout) = (self.hash_sources(file, sources), self.copy.options.idle_timeout);
        let hash_prefetch = self.hash_prefetches.remove(&file);
        let proof =
            FileVerification { hash_sources, retry_timeout, direction, block_hashes, item, file, hash_prefetch };
        let notes = self.event_sender.clone();
        while self.verifications.try_join_next().is_some() {}
        self.verifications.spawn(async move {
            let _ = notes.send(proof.into_stream_event().await);
        });
    }

    fn count_event(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::BlockWritten { file, block, .. } => {
                let size_bytes = self.copy.plan.items.get(*file as usize).map_or(0, |item| item.entry.size_bytes);
                let (start, end) = block_byte_range(*block, size_bytes);
                self.received_bytes += end.saturating_sub(start);
            }
            SessionEvent::BlockDamaged { .. } => self.summary.damaged_blocks += 1,
            _ => {}
        }
    }

    fn report_copied(&self, file: FileId, hashes: &[BlockHash]) {
        let entry = &self.copy.plan.items[file as usize].entry;
        let blake3 = file_hash(hashes, entry.size_bytes).to_hex().to_string();
        let (path, bytes) = (escape_invalid_bytes(&entry.path), entry.size_bytes);
        self.copy.observer.on_event(&CopyEvent::Copied { path, bytes, blake3 });
    }

    /// Returns the number of connections that the controller selects, if it changes.
    fn next_stream_count(&mut self) -> Option<u32> {
        let left = self.summary.bytes.saturating_sub(self.summary.resumed_bytes + self.received_bytes);
        let moved = self.slots.iter_mut().filter_map(|slot| {
            let info = connection_tcp_info(slot.client.as_ref()?.socket_handle())?;
            let bytes = info.received_bytes + info.acknowledged_bytes;
            Some(bytes - std::mem::replace(&mut slot.transferred_bytes, bytes).min(bytes))
        });
        self.transferred_bytes += moved.sum::<u64>();
        let wanted = self.concurrency.as_mut()?.update(self.started.elapsed(), self.transferred_bytes, left)?;
        self.stream_count = wanted;
        Some(wanted)
    }

    fn report_progress(&mut self) {
        let now = Instant::now();
        self.rate_samples.push_back((now, self.received_bytes));
        while self.rate_samples.len() > 2
            && self.rate_samples.front().is_some_and(|mark| now - mark.0 > PROGRESS_RATE_WINDOW)
        {
            self.rate_samples.pop_front();
        }
        let (since, before) = self.rate_samples.front().copied().unwrap_or((self.started, 0));
        let elapsed = (now - since).as_secs_f64();
        let rate = if elapsed > 0.0 { (self.received_bytes - before) as f64 / elapsed } else { 0.0 };
        let bytes = (self.summary.resumed_bytes + self.received_bytes).min(self.summary.bytes);
        let left = self.summary.bytes - bytes;
        let retransmits =
            self.slots.iter().filter_map(|slot| connection_tcp_info(slot.client.as_ref()?.socket_handle()));
        self.copy.observer.on_event(&CopyEvent::Progress {
            bytes,
            total_bytes: self.summary.bytes,
            bytes_per_s: rate as u64,
            eta_s: (rate >= 1.0).then(|| (left as f64 / rate) as u64),
            retransmits: retransmits.map(|info| u64::from(info.retransmits)).sum(),
            damaged: self.summary.damaged_blocks,
            streams: self.stream_count,
        });
    }
}

fn read_range(span: &BlockRange, copy: &CopyOperation<'_>, source: u32, bypass_cache: bool) -> Option<ReadRange> {
    let (path, version) = copy.source_file(source, span.file)?;
    Some(ReadRange {
        file: span.file,
        path: path.to_owned(),
        version: FileVersion::ServerVersion(version),
        start: span.start,
        end: span.end,
        bypass_cache,
    })
}

fn source_range(span: &BlockRange, items: &[CopyItem], bypass_cache: bool) -> SourceRange {
    let item = &items[span.file as usize];
    SourceRange {
        file: span.file,
        path: item.local_path(),
        version: item.entry.version,
        blocks: (span.start, span.end),
        bypass_cache,
    }
}
