//! A copy from beginning to end: what is to be copied, what is there, the session and its connections, and the end of it.

pub(crate) mod ahead;
mod checks;
mod climb;
pub(crate) mod connecting;
mod ending;
mod events;
mod packed;
mod proof;
mod runner;
mod sources;
mod through;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::ahead::Shares;
use crate::control::{Control, Credentials, told};
use crate::error::TransferError;
use crate::genomes::references::References;
use crate::inbox::{CopyInbox, Inbox, wait_for_ended_copies};
use crate::manifest::{Entry, EntryFailure, Links};
use crate::names::{path_of, printable, shown, text_of};
use crate::place::Place;
use crate::plan::{Item, Naming, Plan, naming_of, server_of};
use crate::protocol::Have;
use crate::ranges::RangeSet;
use crate::select::Selection;
use crate::service::blocking;
use crate::session::{FileWork, SessionOptions, Sources, Span};
use crate::source::Hashes;
use crate::streams::Direction;
use crate::sums::{Sum, Sums};
use crate::third_party;
use crate::tree::{block_count, block_span};
use crate::tune::{self, CopyMode, Manner};
use ahead::Guess;
use checks::{check_has_no_list, check_has_no_relay, check_is_plain, check_is_possible, check_pools};
use climb::Climb;
use connecting::{Connecting, Early, connect_more};
pub(crate) use ending::CopyOutcome;
pub use events::{CopyEvent, CopyObserver, CopySummary, PlannedAction};
use packed::Packed;
use runner::Runner;
use sources::Mirror;
use through::RelayWay;

/// How files are copied.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// To others on the way.
    pub mode: CopyMode,
    /// Bits a second, at most.
    pub bits_per_s: Option<u64>,
    /// Connections; `None` for what the path needs.
    pub streams: Option<u32>,
    /// What becomes of data on the way.
    pub compress: Compression,
    /// Only files that fit one of these; all where there are none.
    pub include: Vec<String>,
    /// No file or directory that fits one of these.
    pub exclude: Vec<String>,
    /// Removes at the destination what the source does not have.
    pub sync: bool,
    /// Only tells what would be done.
    pub dry_run: bool,
    /// How long nothing may arrive before the copy ends.
    pub patience: Duration,
    /// Refuses names that begin with a dot.
    pub strict: bool,
    /// Other servers that have what the only source has.
    pub also_from: Vec<Place>,
    /// A server in between that blocks come through.
    pub relay: Option<Place>,
    /// Lists of checksums that files have to have.
    pub check: Vec<PathBuf>,
    /// The treatment of symbolic links at the source.
    pub links: Links,
}

/// What becomes of data on the way.
#[derive(Clone, Debug)]
pub enum Compression {
    /// Nothing.
    None,
    /// Blocks are compressed where that makes them smaller.
    Zstd,
    /// Genomes are sent as what differs from one of these references, where the other end has it too; all else as it is.
    Delta(Arc<References>),
}

impl Compression {
    fn is_delta(&self) -> bool {
        matches!(self, Self::Delta(_))
    }

    fn is_zstd(&self) -> bool {
        matches!(self, Self::Zstd)
    }
}

/// A copy that is being prepared.
struct Copy<'c> {
    options: &'c CopyOptions,
    observer: &'c dyn CopyObserver,
    control: Arc<Control>,
    /// Other servers that files are fetched from.
    mirrors: Vec<Mirror>,
    /// Which server they come through, where it is not their own.
    relay: Option<RelayWay>,
    plan: Plan,
    /// The destination: a path here, or below the server's root.
    base: String,
    downloads: bool,
    /// The destination of downloads, once the list of entries is known. It is released with the copy.
    inbox: Option<CopyInbox>,
    /// Checksums that files have to have, by their paths below the destination.
    sums: HashMap<String, Sum>,
    /// What came before it.
    packed: Packed,
    /// Entries that cannot be copied, besides those of the plan.
    failures: Vec<EntryFailure>,
}

/// The work on an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Blocks of it are to be copied.
    Copy,
    /// The file is there.
    Same,
    /// Nothing besides its beginning and its end: it is a directory or a link, or it cannot be copied.
    Nothing,
}

/// Copies files from this machine to a server, from a server to this machine, or has a server fetch them from another. What is there from an earlier run that was stopped is
/// kept; every block is verified before it is written; no file has its name before it is whole. A file that cannot be copied keeps no other from being copied.
///
/// # Errors
/// [`TransferError::Some`] where some files could not be copied, of which [`CopyEvent::NotCopied`] tells; what is wrong with it where there is one file only. Any
/// other [`TransferError`] ends the copy; what has arrived by then is kept.
pub async fn copy(
    sources: &[Place],
    destination: &Place,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
    cancelled: &AtomicBool,
) -> Result<CopySummary, TransferError> {
    let outcome = copy_each(sources, destination, credentials, options, observer, cancelled).await?;
    outcome.report(observer)
}

/// As [`copy`]; what could not be copied is in the answer.
pub(crate) async fn copy_each(
    sources: &[Place],
    destination: &Place,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
    cancelled: &AtomicBool,
) -> Result<CopyOutcome, TransferError> {
    let started = Instant::now();
    let selection = Selection::new(&options.include, &options.exclude)?;
    let downloads = matches!(destination, Place::Here(_));
    check_pools(sources, destination, options)?;
    if let Place::There(remote) = destination
        && sources.iter().any(|source| matches!(source, Place::There(_)))
    {
        check_is_plain(options)?;
        check_has_no_list(options)?;
        check_has_no_relay(options)?;
        let (mut summary, failures) = third_party::delegate(sources, remote, credentials, options, observer).await?;
        summary.seconds = started.elapsed().as_secs_f64();
        return Ok(CopyOutcome { summary, failures });
    }
    check_is_possible(sources, downloads, options)?;
    let sums = Sums::read(&options.check)?;
    let naming = naming_of(sources, destination);
    let Found { place, control, mut mirrors, early } =
        connect(sources, destination, naming, credentials, options, observer).await?;
    let sources = place.as_ref().map_or(sources, std::slice::from_ref);
    let rtt = control.rtt();
    // From each server comes something.
    let streams = weight_of(options, rtt, observer).max(1 + mirrors.len() as u32);
    let relay = match &options.relay {
        Some(relay) => {
            let way = RelayWay::connect(relay, credentials, options.patience).await?;
            if downloads {
                way.let_read(sources, &control, &mirrors).await?;
            }
            Some(way)
        }
        None => None,
    };
    let (early, guess) = early.of(streams, rtt);
    let connecting = connect_more(streams, &control, &mirrors, relay.as_ref(), early);
    let plan = Plan::of(sources, Some(&control), &selection, naming, options.links).await?;
    let base = base_of(destination);
    if let Some(Place::There(lead)) = sources.first().filter(|_| !mirrors.is_empty()) {
        for mirror in &mut mirrors {
            mirror.look(&plan.items, lead.path.trim_matches('/'), options.links).await?;
        }
    }
    let sums = if options.check.is_empty() { HashMap::new() } else { sums_of(&plan, &sums, observer)? };
    let (packed, inbox, failures) = (Packed::default(), None, Vec::new());
    let mut copy =
        Copy { options, observer, control, mirrors, relay, plan, base, downloads, inbox, sums, packed, failures };
    if !downloads {
        copy.prepare_upload().await?;
    }
    if let (Compression::Delta(references), false) = (&options.compress, options.dry_run) {
        copy.packed = copy.send_packed(references, cancelled).await?;
    }
    let mut summary = match copy.plan.items.is_empty() {
        true => CopySummary::default(),
        false => copy.run(streams, rtt, connecting, guess, cancelled).await?,
    };
    copy.add_packed(&mut summary);
    summary.skipped_links = copy.plan.skipped_links.len();
    summary.seconds = started.elapsed().as_secs_f64();
    let failures = std::mem::take(&mut copy.plan.failures).into_iter().chain(copy.failures).collect();
    Ok(CopyOutcome { summary, failures })
}

/// Connections that a copy may have in its mode; that it has fewer than somebody wanted is told.
fn weight_of(options: &CopyOptions, rtt: Duration, observer: &dyn CopyObserver) -> u32 {
    let weight = tune::streams(options.mode, options.streams, rtt);
    if let Some(wanted) = options.streams.filter(|wanted| *wanted > weight) {
        let message = format!(
            "{wanted} streams would weigh more than two ordinary flows: {weight} are used; --mode fast uses all"
        );
        observer.event(&CopyEvent::Warning { message });
    }
    weight
}

/// The destination as text: a path here, or below the server's root.
fn base_of(destination: &Place) -> String {
    match destination {
        Place::Here(path) => text_of(path),
        Place::There(remote) => remote.path.trim_matches('/').to_owned(),
    }
}

/// Checksums by the paths of files below the destination; files without one are told.
fn sums_of(plan: &Plan, sums: &Sums, observer: &dyn CopyObserver) -> Result<HashMap<String, Sum>, TransferError> {
    let files: Vec<&Item> = plan.items.iter().filter(|item| item.entry.is_file()).collect();
    let found = sums.of(&files.iter().map(|item| item.origin.as_str()).collect::<Vec<_>>())?;
    let without = found.iter().filter(|sum| sum.is_none()).count();
    if let Some((item, _)) = files.iter().zip(&found).find(|(_, sum)| sum.is_none()) {
        let others = if without > 1 { format!(" and {} more", without - 1) } else { String::new() };
        let message = format!("no checksum is listed for {}{others}", shown(&item.origin));
        observer.event(&CopyEvent::Warning { message });
    }
    Ok(files.iter().zip(found).filter_map(|(item, sum)| Some((item.entry.path.clone(), sum?))).collect())
}

/// Servers of a copy.
struct Found {
    /// The source, where one of several was chosen.
    place: Option<Place>,
    control: Arc<Control>,
    mirrors: Vec<Mirror>,
    early: Early,
}

/// Connects to the servers of a copy.
async fn connect(
    sources: &[Place],
    destination: &Place,
    naming: Naming,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
) -> Result<Found, TransferError> {
    if matches!(destination, Place::There(_)) {
        check_is_plain(options)?;
    }
    if options.also_from.is_empty() {
        let places: Vec<&Place> = sources.iter().chain([destination]).collect();
        let control = server_of(&places, credentials, options.patience)?;
        let control = control.ok_or_else(|| TransferError::refused("nothing is to be copied"))?;
        if options.mode == CopyMode::Fast {
            control.share(tune::streams(options.mode, options.streams, tune::FAR));
        }
        let mut early = Early::begin(&control, options, Guess::of(sources, destination, naming, options));
        control.open().await?;
        early.first(&control, control.rtt());
        return Ok(Found { place: None, control, mirrors: Vec::new(), early });
    }
    let (place, control, mirrors) =
        sources::find(sources, naming == Naming::Below, credentials, options, observer).await?;
    Ok(Found { place: Some(place), control, mirrors, early: Early::default() })
}

impl Copy<'_> {
    async fn run(
        &mut self,
        streams: u32,
        rtt: Duration,
        connecting: Connecting,
        guess: Option<Guess>,
        cancelled: &AtomicBool,
    ) -> Result<CopySummary, TransferError> {
        let entries: Vec<Entry> = self.plan.items.iter().map(|item| item.entry.clone()).collect();
        let surplus = if self.options.sync { self.surplus().await? } else { Vec::new() };
        let (direction, have) = self.begin(&entries).await?;
        if self.options.dry_run {
            return Ok(self.tell_plan(have, &surplus));
        }
        let hashes = match &direction {
            Direction::Upload { hashes, .. } => hashes.clone(),
            Direction::Download { .. } => Arc::default(),
        };
        let (mut work, mut links) = (Vec::new(), 0);
        for (file, (entry, have)) in (0..).zip(entries.iter().zip(have)) {
            links += usize::from(entry.link.is_some() && matches!(have, Ok(Have::Nothing)));
            let wanted = match have {
                Ok(have) => self.wanted(file, have, &direction, &hashes).await,
                Err(why) => Err(why),
            };
            let (state, missing) = match wanted {
                Err(why) if why.is_of_one_file() => {
                    self.failures.push(EntryFailure { path: entry.path.clone(), why });
                    (Work::Nothing, RangeSet::default())
                }
                wanted => wanted?,
            };
            work.push((FileWork { size_bytes: entry.size_bytes, missing, sources: self.sources_of(file) }, state));
        }
        let mut summary = self.tell_start(&entries, &work, streams, rtt);
        summary.files += links;
        let sources = 1 + self.mirrors.len() as u32;
        let ahead = self.ahead(guess.as_ref(), &entries, &work);
        let patience = self.options.patience;
        let horizon = (2 * rtt).max(tune::LEAST_HORIZON);
        let options = SessionOptions { streams, sources, ahead, horizon, patience, ..SessionOptions::default() };
        let manner = Manner {
            mode: self.options.mode,
            bytes_per_s: self.options.bits_per_s.map(|bits| (bits / 8 / u64::from(streams.max(1))).max(1)),
            compress: self.options.compress.is_zstd(),
        };
        // With several sources each has connections of its own; a limit is shared among those that there are.
        let climbs = self.options.mode == CopyMode::Fast && self.options.streams.is_none() && !tune::is_near(rtt);
        let climb = (climbs && manner.bytes_per_s.is_none() && sources == 1).then(|| Climb::new(streams, rtt));
        let mut runner = Runner::new(self, direction, hashes, manner, summary, connecting, climb);
        let work = work.into_iter().map(|(work, state)| match state {
            Work::Copy => work,
            // Nothing is missing of it.
            Work::Same | Work::Nothing => FileWork { size_bytes: 0, ..work },
        });
        let outcome = runner.run(work.collect(), options, cancelled).await;
        let (summary, direction, failures) = runner.finished();
        outcome?;
        self.failures.extend(failures);
        self.end(direction, surplus, summary).await
    }

    /// What each connection was asked for ahead, where all of it is to be copied.
    fn ahead(&self, guess: Option<&Guess>, entries: &[Entry], work: &[(FileWork, Work)]) -> Vec<Vec<Span>> {
        let Some(guess) = guess else { return Vec::new() };
        let is_missing = |(work, state): &(FileWork, Work)| {
            *state == Work::Copy && work.missing == RangeSet::of(0, block_count(work.size_bytes))
        };
        let shares = Shares::of(entries, guess.streams());
        let spans: Vec<_> = (0..guess.streams()).map(|stream| shares.spans(entries, stream)).collect();
        let all = spans.iter().flatten().all(|span| work.get(span.file as usize).is_some_and(is_missing));
        if all { spans } else { Vec::new() }
    }

    /// The server of a source, 0-based.
    fn control_of(&self, source: u32) -> &Arc<Control> {
        let mirror = source.checked_sub(1).and_then(|mirror| self.mirrors.get(mirror as usize));
        mirror.map_or(&self.control, |mirror| &mirror.control)
    }

    /// The server that blocks of a source come from.
    fn way_to(&self, source: u32) -> &Arc<Control> {
        self.relay.as_ref().map_or_else(|| self.control_of(source), |relay| &relay.control)
    }

    /// Path and state of a file at a source.
    fn origin_of(&self, source: u32, file: u32) -> Option<(&str, u64)> {
        if source > 0 {
            return self.mirrors.get(source as usize - 1)?.origin(file);
        }
        self.plan.items.get(file as usize).map(|item| (item.origin.as_str(), item.entry.version))
    }

    /// Sources that have a file.
    fn sources_of(&self, file: u32) -> Sources {
        let others = (1..).zip(&self.mirrors).filter(|(_, mirror)| mirror.origin(file).is_some());
        others.fold(Sources::only(0), |sources, (source, _)| sources.and(source))
    }

    /// State of each file at the destination, or the reason why it cannot be written there.
    async fn begin(
        &mut self,
        entries: &[Entry],
    ) -> Result<(Direction, Vec<Result<Have, TransferError>>), TransferError> {
        let dry_run = self.options.dry_run;
        if !self.downloads {
            let (session, have) = self.control.begin(&self.base, entries, dry_run).await?;
            if !dry_run {
                self.let_relay_write(&session).await?;
            }
            return Ok((Direction::Upload { hashes: Arc::new(Hashes::default()), session }, have));
        }
        let inbox = Inbox::new(&self.directory(), self.options.strict).expecting(self.sums.clone());
        let inbox = self.inbox.insert(CopyInbox::new(inbox)).share();
        let (keeper, entries) = (inbox.clone(), entries.to_vec());
        let have = blocking(move || {
            wait_for_ended_copies();
            let begun = (0..).zip(entries).map(|(file, entry)| {
                let is_base = entry.path.is_empty();
                let have = if dry_run { keeper.look(&entry) } else { keeper.begin(file, entry) };
                match have {
                    Err(why) if is_base || !why.is_of_one_file() => Err(why),
                    have => Ok(have),
                }
            });
            begun.collect::<Result<Vec<_>, _>>()
        });
        Ok((Direction::Download { inbox }, have.await?))
    }

    /// The destination, where that is on this machine.
    fn directory(&self) -> PathBuf {
        path_of(&self.base).unwrap_or_else(|| PathBuf::from(&self.base))
    }

    /// Returns the work on a file and its missing blocks.
    async fn wanted(
        &self,
        file: u32,
        have: Have,
        direction: &Direction,
        hashes: &Arc<Hashes>,
    ) -> Result<(Work, RangeSet), TransferError> {
        let Item { entry, origin } = &self.plan.items[file as usize];
        let missing = match have {
            _ if !entry.is_file() => return Ok((Work::Nothing, RangeSet::default())),
            Have::All => return Ok((Work::Same, RangeSet::default())),
            Have::Refused(why) => return Err(why.into_error(&shown(origin))),
            Have::Nothing => RangeSet::of(0, block_count(entry.size_bytes)),
            Have::Part(blocks) => blocks.gaps(block_count(entry.size_bytes)),
            Have::Stale(blocks) => self.still_missing(file, blocks, direction, hashes).await?,
        };
        Ok((Work::Copy, missing))
    }

    /// Blocks to be fetched of a file of which an earlier state is there.
    async fn still_missing(
        &self,
        file: u32,
        there: RangeSet,
        direction: &Direction,
        hashes: &Arc<Hashes>,
    ) -> Result<RangeSet, TransferError> {
        let item = &self.plan.items[file as usize];
        let Item { entry, origin } = item;
        let changed = || TransferError::Changed { place: shown(origin) };
        let wrong = match direction {
            Direction::Download { inbox } => {
                let tree = self.control.tree(origin, entry.version).await?.ok_or_else(changed)?;
                inbox.prove(file, &tree, true)?
            }
            Direction::Upload { session, .. } => {
                let (hashes, path, version) = (hashes.clone(), item.path(), entry.version);
                let tree = blocking(move || hashes.all(&path, version)).await?;
                self.control.finish(session, file, &tree, true).await.map_err(told)?
            }
        };
        let mut kept = there;
        for (start, end) in wrong.iter() {
            kept.remove(start, end);
        }
        Ok(kept.gaps(block_count(entry.size_bytes)))
    }

    fn tell_plan(&mut self, have: Vec<Result<Have, TransferError>>, surplus: &[String]) -> CopySummary {
        let mut summary = CopySummary::default();
        for (item, have) in self.plan.items.iter().zip(have) {
            let what = match have {
                Err(why) => {
                    self.failures.push(EntryFailure { path: item.entry.path.clone(), why });
                    continue;
                }
                Ok(Have::All) => {
                    summary.same += usize::from(!item.entry.directory);
                    continue;
                }
                Ok(_) if item.entry.directory => PlannedAction::Make,
                Ok(Have::Nothing | Have::Refused(_)) => PlannedAction::Copy,
                Ok(Have::Part(_) | Have::Stale(_)) => PlannedAction::Resume,
            };
            let (path, bytes) = (printable(&item.entry.path), item.entry.size_bytes);
            self.observer.event(&CopyEvent::Would { what, path, bytes });
        }
        for path in surplus {
            let path = printable(path);
            self.observer.event(&CopyEvent::Would { what: PlannedAction::Remove, path, bytes: 0 });
        }
        summary
    }

    fn tell_start(&self, entries: &[Entry], work: &[(FileWork, Work)], streams: u32, rtt: Duration) -> CopySummary {
        let mut summary = CopySummary::default();
        let mut total = 0;
        for (entry, (work, state)) in entries.iter().zip(work) {
            if *state != Work::Copy {
                let is_same = *state == Work::Same && !self.packed.landed.contains(&entry.path);
                summary.same += usize::from(is_same);
                continue;
            }
            summary.files += 1;
            total += entry.size_bytes;
            let missing = work
                .missing
                .iter()
                .map(|(start, end)| block_span(end - 1, entry.size_bytes).1 - block_span(start, entry.size_bytes).0);
            summary.kept_bytes += entry.size_bytes - missing.sum::<u64>();
        }
        self.observer.event(&CopyEvent::Started {
            files: summary.files,
            same: summary.same,
            bytes: total,
            kept_bytes: summary.kept_bytes,
            streams,
            servers: 1 + self.mirrors.len(),
            rtt_ms: rtt.as_secs_f64() * 1e3,
        });
        summary.bytes = total;
        summary
    }

    /// Counts and tells what came as what differs from a reference.
    fn add_packed(&self, summary: &mut CopySummary) {
        let Packed { landed, bytes, sent_bytes } = &self.packed;
        let (files, bytes, sent_bytes) = (landed.len(), *bytes, *sent_bytes);
        summary.files += files;
        summary.bytes += bytes;
        (summary.packed_files, summary.packed_bytes, summary.packed_sent_bytes) = (files, bytes, sent_bytes);
        if files > 0 {
            let saved_bytes = bytes.saturating_sub(sent_bytes);
            self.observer.event(&CopyEvent::Saved { files, bytes, sent_bytes, saved_bytes });
        }
    }
}
