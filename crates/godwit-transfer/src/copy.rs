//! A copy from start to end: lists entries, reads the destination's state, runs the session, completes the files.

mod completion;
mod delta_copy;
mod file_verification;
mod mirrors;
mod prefetch;
mod preflight_checks;
mod relay_route;
mod session_driver;
mod speculative_connections;
mod stream_task;
mod third_party_copy;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use godwit_delta::ReferenceStore;

use crate::block_reader::BlockHashCache;
use crate::blocking::run_blocking;
use crate::checksum_lists::{ChecksumLists, ExpectedChecksums};
use crate::control_client::ControlClient;
use crate::copy_plan::{CopyItem, CopyPlan, DestinationNaming, common_server, destination_naming};
use crate::copy_protocol::ReceiverState;
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure, LinkPolicy};
use crate::file_receiver::{CopyReceiver, FileReceiver, wait_for_ended_copies};
use crate::location::Location;
use crate::path_text::{escape_for_display, escape_invalid_bytes, path_to_text, text_to_path};
use crate::prefetch_plan::PrefetchPlan;
use crate::selection::Selection;
use crate::server_errors::error_from_status;
use crate::tcp_tuning::{self, CopyMode, SendOptions};
pub(crate) use completion::CopyOutcome;
use delta_copy::DeltaSummary;
use godwit_transfer_session::blake3_tree::{block_byte_range, block_count};
use godwit_transfer_session::concurrency_controller::ConcurrencyController;
use godwit_transfer_session::copy_events::{CopyEvent, CopyObserver, CopySummary, PlannedAction};
use godwit_transfer_session::ranges::RangeSet;
use godwit_transfer_session::{BlockRange, FileWork, SessionOptions, SourceSet};
use mirrors::Mirror;
use prefetch::Prefetch;
use preflight_checks::{check_endpoints, check_no_checksum_lists, check_no_mirrors, check_no_relay, check_pools};
use relay_route::RelayRoute;
use session_driver::SessionDriver;
use speculative_connections::{PendingConnections, SpeculativeConnections, connect_remaining_streams};
use stream_task::Direction;

/// Options of a copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Behaviour of the copy toward other traffic on the same path.
    pub mode: CopyMode,
    /// Limit of the rate of the whole copy, bits per second; `None` for no limit.
    pub bits_per_s: Option<u64>,
    /// Number of connections; `None` selects the number by the round-trip time.
    pub streams: Option<u32>,
    /// Compression of blocks in transit.
    pub compression: Compression,
    /// Glob patterns of the files to copy; if empty, all files are copied.
    pub include: Vec<String>,
    /// Glob patterns of files and directories that are not copied.
    pub exclude: Vec<String>,
    /// True if entries at the destination that are absent from the source are removed.
    pub sync: bool,
    /// True if the copy only reports its planned actions.
    pub dry_run: bool,
    /// Longest time without received data; after it, the copy fails.
    pub idle_timeout: Duration,
    /// True if a download rejects names that begin with a dot.
    pub reject_hidden: bool,
    /// Further servers that have the files of the source; allowed if there is only one source.
    pub mirrors: Vec<Location>,
    /// The relay: a server that forwards the blocks between this host and the other servers.
    pub relay: Option<Location>,
    /// Paths of checksum lists that the files must match.
    pub checksum_lists: Vec<PathBuf>,
    /// Treatment of symbolic links at the source.
    pub link_policy: LinkPolicy,
}

/// Compression of blocks in transit.
#[derive(Clone, Debug)]
pub enum Compression {
    /// No compression.
    None,
    /// zstd compression of each block that becomes smaller.
    Zstd,
    /// Delta compression of genomes against one of these references, if the server has the same reference. Other files
    /// are sent uncompressed.
    Delta(Arc<ReferenceStore>),
}

impl Compression {
    fn is_delta(&self) -> bool {
        matches!(self, Self::Delta(_))
    }

    fn is_zstd(&self) -> bool {
        matches!(self, Self::Zstd)
    }
}

/// A copy after the listing of its sources and the check of its destination. The next step is to copy the blocks.
struct CopyOperation<'c> {
    options: &'c CopyOptions,
    observer: &'c dyn CopyObserver,
    control: Arc<ControlClient>,
    /// Further servers from which files are fetched.
    mirrors: Vec<Mirror>,
    /// The relay that forwards the blocks; `None` if the copy does not use a relay.
    relay_route: Option<RelayRoute>,
    plan: CopyPlan,
    /// The destination: a path on this host, or a path below the root of the server.
    destination_path: String,
    is_download: bool,
    /// The receiver of a download; `None` until the list of entries is known. Its files are released when the copy
    /// ends.
    receiver: Option<CopyReceiver>,
    /// Checksums that the files must have, by path below the destination.
    expected_checksums: HashMap<String, ExpectedChecksums>,
    /// Counts of the genomes that delta compression has copied before the other files.
    delta_summary: DeltaSummary,
    /// Entries that failed after the plan of the copy was complete.
    failures: Vec<EntryFailure>,
}

/// The remaining work for an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryWork {
    /// Blocks of the file must be copied.
    Copy,
    /// The destination already has the same version of the file.
    UpToDate,
    /// No blocks to copy: the entry is a directory or a link, or it cannot be copied.
    NoData,
}

/// Copies files from this host to a server, from a server to this host, or from one server to another. Blocks that an
/// earlier, interrupted run received are used. Every block is verified before it is written, and a file gets its final
/// name when it is complete. If one file fails, the others are still copied.
///
/// # Errors
/// [`TransferError::PartialFailure`] if some of several files could not be copied; each of them is reported as
/// [`CopyEvent::NotCopied`]. If there is only one file, its error is returned. Any other [`TransferError`] ends the
/// copy; received data stay on disk.
pub async fn copy(
    sources: &[Location],
    destination: &Location,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
    cancelled: &AtomicBool,
) -> Result<CopySummary, TransferError> {
    let outcome = copy_collecting_failures(sources, destination, credentials, options, observer, cancelled).await?;
    outcome.report_failures(observer)
}

/// Connects to the relay that the options name, if any.
async fn connect_relay(credentials: &Credentials, options: &CopyOptions) -> Result<Option<RelayRoute>, TransferError> {
    match &options.relay {
        Some(relay) => RelayRoute::connect(relay, credentials, options.idle_timeout).await.map(Some),
        None => Ok(None),
    }
}

/// Copies as [`copy`] does, but returns the failed entries together with the summary.
pub(crate) async fn copy_collecting_failures(
    sources: &[Location],
    destination: &Location,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
    cancelled: &AtomicBool,
) -> Result<CopyOutcome, TransferError> {
    let started = Instant::now();
    let selection = Selection::new(&options.include, &options.exclude)?;
    let is_download = matches!(destination, Location::Local(_));
    check_pools(sources, destination, options)?;
    if let Location::Remote(remote) = destination
        && sources.iter().any(|source| matches!(source, Location::Remote(_)))
    {
        check_no_mirrors(options)?;
        check_no_checksum_lists(options)?;
        check_no_relay(options)?;
        let (mut summary, failures) =
            third_party_copy::request_third_party_copy(sources, remote, credentials, options, observer).await?;
        summary.seconds = started.elapsed().as_secs_f64();
        return Ok(CopyOutcome { summary, failures });
    }
    check_endpoints(sources, is_download, options)?;
    let sums = ChecksumLists::read(&options.checksum_lists)?;
    let naming = destination_naming(sources, destination);
    let CopyServers { lead_location, control, mut mirrors, speculative: early } =
        connect_servers(sources, destination, naming, credentials, options, observer).await?;
    let sources = lead_location.as_ref().map_or(sources, std::slice::from_ref);
    let rtt = control.rtt();
    // At least one connection is opened to each server.
    let streams = allowed_stream_count(options, rtt, observer).max(1 + mirrors.len() as u32);
    let relay_route = connect_relay(credentials, options).await?;
    if let Some(route) = relay_route.as_ref().filter(|_| is_download) {
        route.request_read_tokens(sources, &control, &mirrors).await?;
    }
    let (pending, prefetch) = early.into_pending(streams, rtt);
    let connecting = connect_remaining_streams(streams, &control, &mirrors, relay_route.as_ref(), pending);
    let plan = CopyPlan::from_sources(sources, Some(&control), &selection, naming, options.link_policy).await?;
    let destination_path = destination_text(destination);
    if let Some(Location::Remote(lead)) = sources.first().filter(|_| !mirrors.is_empty()) {
        for mirror in &mut mirrors {
            mirror.match_files(&plan.items, lead.path.trim_matches('/'), options.link_policy).await?;
        }
    }
    let expected_checksums =
        if options.checksum_lists.is_empty() { HashMap::new() } else { match_checksums(&plan, &sums, observer)? };
    let (delta_summary, receiver, failures) = (DeltaSummary::default(), None, Vec::new());
    let mut copy = CopyOperation {
        options,
        observer,
        control,
        mirrors,
        relay_route,
        plan,
        destination_path,
        is_download,
        receiver,
        expected_checksums,
        delta_summary,
        failures,
    };
    if !is_download {
        copy.prepare_upload().await?;
    }
    if let (Compression::Delta(references), false) = (&options.compression, options.dry_run) {
        copy.delta_summary = copy.copy_genomes(references, cancelled).await?;
    }
    let mut summary = match copy.plan.items.is_empty() {
        true => CopySummary::default(),
        false => copy.copy_files(streams, rtt, connecting, prefetch, cancelled).await?,
    };
    copy.add_delta_counts(&mut summary);
    summary.skipped_links = copy.plan.skipped_links.len();
    summary.seconds = started.elapsed().as_secs_f64();
    let failures = std::mem::take(&mut copy.plan.failures).into_iter().chain(copy.failures).collect();
    Ok(CopyOutcome { summary, failures })
}

/// Returns the number of connections that the copy mode allows; warns if the user requested more.
fn allowed_stream_count(options: &CopyOptions, rtt: Duration, observer: &dyn CopyObserver) -> u32 {
    let weight = tcp_tuning::stream_count(options.mode, options.streams, rtt);
    if let Some(wanted) = options.streams.filter(|wanted| *wanted > weight) {
        let message = format!(
            "{wanted} streams would take more bandwidth than two ordinary flows, so {weight} are used; --mode fast \
             uses all"
        );
        observer.on_event(&CopyEvent::Warning { message });
    }
    weight
}

/// Returns the destination as text: a path on this host, or a path below the root of the server.
fn destination_text(destination: &Location) -> String {
    match destination {
        Location::Local(path) => path_to_text(path),
        Location::Remote(remote) => remote.path.trim_matches('/').to_owned(),
    }
}

/// Returns the expected checksums by path below the destination; warns of files that have no listed checksum.
fn match_checksums(
    plan: &CopyPlan,
    sums: &ChecksumLists,
    observer: &dyn CopyObserver,
) -> Result<HashMap<String, ExpectedChecksums>, TransferError> {
    let files: Vec<&CopyItem> = plan.items.iter().filter(|item| item.entry.is_file()).collect();
    let found = sums.match_files(&files.iter().map(|item| item.source_path.as_str()).collect::<Vec<_>>())?;
    let without = found.iter().filter(|sum| sum.is_none()).count();
    if let Some((item, _)) = files.iter().zip(&found).find(|(_, sum)| sum.is_none()) {
        let others = if without > 1 { format!(" and {} more", without - 1) } else { String::new() };
        let message = format!("no checksum is listed for {}{others}", escape_for_display(&item.source_path));
        observer.on_event(&CopyEvent::Warning { message });
    }
    Ok(files.iter().zip(found).filter_map(|(item, sum)| Some((item.entry.path.clone(), sum?))).collect())
}

/// The connections to the servers of a copy.
struct CopyServers {
    /// The source from which the entries are listed, if the options name mirrors; `None` without mirrors.
    lead_location: Option<Location>,
    control: Arc<ControlClient>,
    mirrors: Vec<Mirror>,
    speculative: SpeculativeConnections,
}

/// Connects to the servers of a copy, and opens connections in advance if there are no mirrors.
async fn connect_servers(
    sources: &[Location],
    destination: &Location,
    naming: DestinationNaming,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
) -> Result<CopyServers, TransferError> {
    if matches!(destination, Location::Remote(_)) {
        check_no_mirrors(options)?;
    }
    if options.mirrors.is_empty() {
        let places: Vec<&Location> = sources.iter().chain([destination]).collect();
        let control = common_server(&places, credentials, options.idle_timeout)?;
        let control = control.ok_or_else(|| TransferError::rejected("no source to copy is given"))?;
        if options.mode == CopyMode::Fast {
            control.set_stream_count(tcp_tuning::stream_count(options.mode, options.streams, tcp_tuning::MAX_RTT));
        }
        let mut speculative =
            SpeculativeConnections::start(&control, options, Prefetch::for_copy(sources, destination, naming, options));
        control.open().await?;
        speculative.add_first_connection(&control, control.rtt());
        return Ok(CopyServers { lead_location: None, control, mirrors: Vec::new(), speculative });
    }
    let (place, control, mirrors) =
        mirrors::connect_mirrors(sources, naming == DestinationNaming::IntoDirectory, credentials, options, observer)
            .await?;
    Ok(CopyServers { lead_location: Some(place), control, mirrors, speculative: SpeculativeConnections::default() })
}

impl CopyOperation<'_> {
    async fn copy_files(
        &mut self,
        streams: u32,
        rtt: Duration,
        connecting: PendingConnections,
        prefetch: Option<Prefetch>,
        cancelled: &AtomicBool,
    ) -> Result<CopySummary, TransferError> {
        let entries: Vec<Entry> = self.plan.items.iter().map(|item| item.entry.clone()).collect();
        let surplus = if self.options.sync { self.extraneous_paths().await? } else { Vec::new() };
        let (direction, have) = self.begin_files(&entries).await?;
        if self.options.dry_run {
            return Ok(self.report_plan(have, &surplus));
        }
        let hashes = match &direction {
            Direction::Upload { block_hashes, .. } => block_hashes.clone(),
            Direction::Download { .. } => Arc::default(),
        };
        let (mut work, mut links) = (Vec::new(), 0);
        for (file, (entry, have)) in (0..).zip(entries.iter().zip(have)) {
            links += usize::from(entry.link_target.is_some() && matches!(have, Ok(ReceiverState::Absent)));
            let wanted = match have {
                Ok(have) => self.missing_blocks(file, have, &direction, &hashes).await,
                Err(why) => Err(why),
            };
            let (state, missing) = match wanted {
                Err(error) if error.concerns_one_file() => {
                    self.failures.push(EntryFailure { path: entry.path.clone(), error });
                    (EntryWork::NoData, RangeSet::default())
                }
                wanted => wanted?,
            };
            work.push((FileWork { size_bytes: entry.size_bytes, missing, sources: self.file_sources(file) }, state));
        }
        let mut summary = self.report_start(&entries, &work, streams, rtt);
        summary.files += links;
        let sources = 1 + self.mirrors.len() as u32;
        let prefetched = self.prefetched_ranges(prefetch.as_ref(), &entries, &work);
        let idle_timeout = self.options.idle_timeout;
        let horizon = (2 * rtt).max(tcp_tuning::MIN_HORIZON);
        let options =
            SessionOptions { streams, sources, prefetched, horizon, idle_timeout, ..SessionOptions::default() };
        let send_options = SendOptions {
            mode: self.options.mode,
            bytes_per_s: self.options.bits_per_s.map(|bits| (bits / 8 / u64::from(streams.max(1))).max(1)),
            compress: self.options.compression.is_zstd(),
        };
        // Do not change the number of connections during the copy if there are several sources, because each source has
        // its own connections, or if the rate is limited.
        let climbs =
            self.options.mode == CopyMode::Fast && self.options.streams.is_none() && !tcp_tuning::is_near_path(rtt);
        let controller = (climbs && send_options.bytes_per_s.is_none() && sources == 1)
            .then(|| ConcurrencyController::new(streams, rtt));
        let mut runner = SessionDriver::new(self, direction, hashes, send_options, summary, connecting, controller);
        let work = work.into_iter().map(|(work, state)| match state {
            EntryWork::Copy => work,
            // No blocks are missing of files that are up to date, directories, links and empty files.
            EntryWork::UpToDate | EntryWork::NoData => FileWork { size_bytes: 0, ..work },
        });
        let outcome = runner.run_session(work.collect(), options, cancelled).await;
        let (summary, direction, failures) = runner.into_result();
        outcome?;
        self.failures.extend(failures);
        self.finish_copy(direction, surplus, summary).await
    }

    /// Returns the prefetched block ranges of each connection, or an empty list unless all prefetched blocks are to be
    /// copied.
    fn prefetched_ranges(
        &self,
        prefetch: Option<&Prefetch>,
        entries: &[Entry],
        work: &[(FileWork, EntryWork)],
    ) -> Vec<Vec<BlockRange>> {
        let Some(guess) = prefetch else { return Vec::new() };
        let is_missing = |(work, state): &(FileWork, EntryWork)| {
            *state == EntryWork::Copy && work.missing == RangeSet::from_range(0, block_count(work.size_bytes))
        };
        let shares = PrefetchPlan::for_entries(entries, guess.streams());
        let spans: Vec<_> = (0..guess.streams()).map(|stream| shares.stream_ranges(entries, stream)).collect();
        let all = spans.iter().flatten().all(|span| work.get(span.file as usize).is_some_and(is_missing));
        if all { spans } else { Vec::new() }
    }

    /// Returns the server of the source with this 0-based index.
    fn source_server(&self, source: u32) -> &Arc<ControlClient> {
        let mirror = source.checked_sub(1).and_then(|mirror| self.mirrors.get(mirror as usize));
        mirror.map_or(&self.control, |mirror| &mirror.control)
    }

    /// Returns the server that sends the blocks of a source: the relay if there is one, else the source itself.
    fn data_server(&self, source: u32) -> &Arc<ControlClient> {
        self.relay_route.as_ref().map_or_else(|| self.source_server(source), |relay| &relay.control)
    }

    /// Returns the path and the version of a file at a source.
    fn source_file(&self, source: u32, file: u32) -> Option<(&str, u64)> {
        if source > 0 {
            return self.mirrors.get(source as usize - 1)?.source_file(file);
        }
        self.plan.items.get(file as usize).map(|item| (item.source_path.as_str(), item.entry.version))
    }

    /// Returns the set of sources that have a file.
    fn file_sources(&self, file: u32) -> SourceSet {
        let others = (1..).zip(&self.mirrors).filter(|(_, mirror)| mirror.source_file(file).is_some());
        others.fold(SourceSet::only(0), |sources, (source, _)| sources.with_source(source))
    }

    /// Starts all files at the destination. Returns the state of each file, or the reason why it cannot be written.
    async fn begin_files(
        &mut self,
        entries: &[Entry],
    ) -> Result<(Direction, Vec<Result<ReceiverState, TransferError>>), TransferError> {
        let dry_run = self.options.dry_run;
        if !self.is_download {
            let (session, have) = self.control.begin_files(&self.destination_path, entries, dry_run).await?;
            if !dry_run {
                self.request_relay_write_token(&session).await?;
            }
            return Ok((Direction::Upload { block_hashes: Arc::new(BlockHashCache::default()), session }, have));
        }
        let inbox = FileReceiver::new(&self.destination_directory(), self.options.reject_hidden)
            .with_checksums(self.expected_checksums.clone());
        let receiver = self.receiver.insert(CopyReceiver::new(inbox)).share_receiver();
        let (keeper, entries) = (receiver.clone(), entries.to_vec());
        let have = run_blocking(move || {
            wait_for_ended_copies();
            let begun = (0..).zip(entries).map(|(file, entry)| {
                let is_base = entry.path.is_empty();
                let have = if dry_run { keeper.receiver_state(&entry) } else { keeper.start_file(file, entry) };
                match have {
                    Err(why) if is_base || !why.concerns_one_file() => Err(why),
                    have => Ok(have),
                }
            });
            begun.collect::<Result<Vec<_>, _>>()
        });
        Ok((Direction::Download { receiver }, have.await?))
    }

    /// Returns the destination as a path; only meaningful if the destination is on this host.
    fn destination_directory(&self) -> PathBuf {
        text_to_path(&self.destination_path).unwrap_or_else(|| PathBuf::from(&self.destination_path))
    }

    /// Returns the remaining work for a file, and its missing blocks.
    async fn missing_blocks(
        &self,
        file: u32,
        have: ReceiverState,
        direction: &Direction,
        hashes: &Arc<BlockHashCache>,
    ) -> Result<(EntryWork, RangeSet), TransferError> {
        let CopyItem { entry, source_path } = &self.plan.items[file as usize];
        let missing = match have {
            _ if !entry.is_file() => return Ok((EntryWork::NoData, RangeSet::default())),
            ReceiverState::Complete => return Ok((EntryWork::UpToDate, RangeSet::default())),
            ReceiverState::Rejected(why) => return Err(why.into_error(&escape_for_display(source_path))),
            ReceiverState::Absent => RangeSet::from_range(0, block_count(entry.size_bytes)),
            ReceiverState::Partial(blocks) => blocks.gaps(block_count(entry.size_bytes)),
            ReceiverState::Stale(blocks) => self.stale_file_missing_blocks(file, blocks, direction, hashes).await?,
        };
        Ok((EntryWork::Copy, missing))
    }

    /// Returns the blocks to fetch of a file of which the destination has blocks of an earlier version.
    async fn stale_file_missing_blocks(
        &self,
        file: u32,
        there: RangeSet,
        direction: &Direction,
        hashes: &Arc<BlockHashCache>,
    ) -> Result<RangeSet, TransferError> {
        let item = &self.plan.items[file as usize];
        let CopyItem { entry, source_path } = item;
        let changed = || TransferError::SourceChanged { location: escape_for_display(source_path) };
        let wrong = match direction {
            Direction::Download { receiver } => {
                let tree = self.control.block_hashes(source_path, entry.version).await?.ok_or_else(changed)?;
                receiver.verify_file(file, &tree, true)?
            }
            Direction::Upload { session, .. } => {
                let (hashes, path, version) = (hashes.clone(), item.local_path(), entry.version);
                let tree = run_blocking(move || hashes.block_hashes(&path, version)).await?;
                self.control.finish_file(session, file, &tree, true).await.map_err(error_from_status)?
            }
        };
        let mut kept = there;
        for (start, end) in wrong.iter() {
            kept.remove(start, end);
        }
        Ok(kept.gaps(block_count(entry.size_bytes)))
    }

    fn report_plan(&mut self, have: Vec<Result<ReceiverState, TransferError>>, surplus: &[String]) -> CopySummary {
        let mut summary = CopySummary::default();
        for (item, have) in self.plan.items.iter().zip(have) {
            let action = match have {
                Err(error) => {
                    self.failures.push(EntryFailure { path: item.entry.path.clone(), error });
                    continue;
                }
                Ok(ReceiverState::Complete) => {
                    summary.up_to_date_files += usize::from(!item.entry.is_directory);
                    continue;
                }
                Ok(_) if item.entry.is_directory => PlannedAction::Make,
                Ok(ReceiverState::Absent | ReceiverState::Rejected(_)) => PlannedAction::Copy,
                Ok(ReceiverState::Partial(_) | ReceiverState::Stale(_)) => PlannedAction::Resume,
            };
            let (path, bytes) = (escape_invalid_bytes(&item.entry.path), item.entry.size_bytes);
            self.observer.on_event(&CopyEvent::DryRunAction { action, path, bytes });
        }
        for path in surplus {
            let path = escape_invalid_bytes(path);
            self.observer.on_event(&CopyEvent::DryRunAction { action: PlannedAction::Remove, path, bytes: 0 });
        }
        summary
    }

    fn report_start(
        &self,
        entries: &[Entry],
        work: &[(FileWork, EntryWork)],
        streams: u32,
        rtt: Duration,
    ) -> CopySummary {
        let mut summary = CopySummary::default();
        let mut total = 0;
        for (entry, (work, state)) in entries.iter().zip(work) {
            if *state != EntryWork::Copy {
                let is_same = *state == EntryWork::UpToDate && !self.delta_summary.copied_paths.contains(&entry.path);
                summary.up_to_date_files += usize::from(is_same);
                continue;
            }
            summary.files += 1;
            total += entry.size_bytes;
            let missing = work.missing.iter().map(|(start, end)| {
                block_byte_range(end - 1, entry.size_bytes).1 - block_byte_range(start, entry.size_bytes).0
            });
            summary.resumed_bytes += entry.size_bytes - missing.sum::<u64>();
        }
        self.observer.on_event(&CopyEvent::Started {
            files: summary.files,
            up_to_date_files: summary.up_to_date_files,
            bytes: total,
            resumed_bytes: summary.resumed_bytes,
            streams,
            servers: 1 + self.mirrors.len(),
            rtt_ms: rtt.as_secs_f64() * 1e3,
        });
        summary.bytes = total;
        summary
    }

    /// Adds the counts of delta copies to the summary and reports the saved bytes.
    fn add_delta_counts(&self, summary: &mut CopySummary) {
        let DeltaSummary { copied_paths, bytes, sent_bytes } = &self.delta_summary;
        let (files, bytes, sent_bytes) = (copied_paths.len(), *bytes, *sent_bytes);
        summary.files += files;
        summary.bytes += bytes;
        (summary.delta_files, summary.delta_bytes, summary.delta_sent_bytes) = (files, bytes, sent_bytes);
        if files > 0 {
            let saved_bytes = bytes.saturating_sub(sent_bytes);
            self.observer.on_event(&CopyEvent::DeltaSavings { files, bytes, sent_bytes, saved_bytes });
        }
    }
}
