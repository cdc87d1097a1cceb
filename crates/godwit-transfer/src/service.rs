//! The serving side of copies: files below a root are listed, sent and, where that is allowed, taken.
//!
//! Nothing that a ticket says is taken on trust: paths are looked at, and the state of files is compared, on every call. So nothing is
//! lost when a server starts anew but what was being taken, of which the journals beside the files know.

mod listing;
mod sessions;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use godwit_flight::{
    Answers, Caller, Chunk, Download, FileInfo, FileService, FileUse, FileVerdict, Pending, Rules, Status, Upload, Wire,
};
use tokio::sync::mpsc;

use crate::ahead::Shares;
use crate::error::TransferError;
use crate::genomes::references::References;
use crate::genomes::serving::Genomes;
use crate::grants::{GrantKey, check_reading, check_unlimited, check_writing};
use crate::inbox::{CopyInbox, Inbox, wait_for_ended_copies};
use crate::manifest::{Entry, EntryFailure, Links, WalkItem, below, open_for_reading, walk};
use crate::names::{path_of, shown};
use crate::protocol::{
    AHEAD, AheadRequest, AheadSpan, BEGIN, BeginRequest, Begun, END, EndRequest, FETCH, FINISH, FailureMessage,
    FileState, FinishRequest, GRANT, GRANT_WRITING, HAPPENED, Have, INFO, InfoRequest, LIST, ListRequest, PACKED,
    PackedRequest, Proof, READ, REFERENCE, RELAY, RELAY_WRITE, ReadRequest, ReadSpan, TREE, Taken, TreeRequest,
    Trouble, UNPACK, UnpackCommand, WRITE, WriteCommand, action, behind, hashes_from_text, json, marked, parse,
};
use crate::relay::{Relay, RelayCache};
use crate::source::{BlockReader, Hashes, SourceSpan, schema};
use crate::third_party::{FetchRequest, Happened, fetch};
use crate::tree::{BLOCK_BYTES, block_count};
use crate::tune::{self, Manner};
use listing::{is_hidden, joined};
use sessions::{Session, Sessions};

/// Batches between the disk and the connection.
const BATCHES_AHEAD: usize = 2;
/// Hashes in a message, 32 bytes each.
const HASHES_PER_MESSAGE: usize = 1 << 15;

/// Connections that ask for the first blocks of something ahead, at most: it is listed so far.
const AHEAD_STREAMS: u32 = 256;

/// Bytes of a piece of a file where a client says nothing: enough to fill a long path, little enough to be shared among servers.
const PIECE_BYTES: u64 = 64 << 20;
/// Pieces of a file, at most.
const PIECES: u64 = 4096;

/// What a server does for copies.
#[derive(Debug, Default)]
pub struct FilesOptions {
    /// Whether files may be written.
    pub writable: bool,
    /// PEM file of authorities whose servers are trusted when files are fetched from them; the system's list where there is none.
    pub authority: Option<PathBuf>,
    /// Whether blocks of other servers are sent on to who asks for them, and to other servers those that callers send.
    pub relays: bool,
    /// What is kept of the blocks of other servers.
    pub relay_cache: Option<Arc<RelayCache>>,
    /// Other servers of the same files, as URIs of Arrow Flight; clients are told of them.
    pub also_at: Vec<String>,
    /// FASTA files by which genomes are sent and taken as what differs from them.
    pub references: Vec<PathBuf>,
    /// Threads that pack and unpack a genome.
    pub threads: usize,
    /// Who may have and write which files; `None`: whoever is let in has all.
    pub rules: Option<Arc<dyn Rules>>,
}

/// Files below a directory, for copies.
#[derive(Debug)]
pub struct Files {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    options: FilesOptions,
    relay: Relay,
    grants: GrantKey,
    hashes: Arc<Hashes>,
    genomes: Genomes,
    sessions: Sessions,
    /// What happens to what is being fetched, by who has it fetched and its name.
    fetching: Mutex<HashMap<(String, String), Weak<Happened>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that waits for disks, where it keeps nobody else waiting.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
) -> Result<T, TransferError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(TransferError::Bug { problem: error.to_string() }))
}

impl Files {
    /// Files below `root`.
    ///
    /// # Errors
    /// Where this machine has no random numbers.
    pub fn new(root: PathBuf, options: FilesOptions) -> Result<Self, Status> {
        let references = References::new(options.references.clone(), options.threads);
        let inner = Inner {
            root,
            relay: Relay::new(options.authority.clone(), options.relay_cache.clone()),
            options,
            grants: GrantKey::random()?,
            hashes: Arc::default(),
            genomes: Genomes::new(Arc::new(references)),
            sessions: Sessions::default(),
            fetching: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Inner {
    fn act(&self, caller: &Caller, kind: &str, body: &[u8]) -> Result<Vec<Bytes>, TransferError> {
        if kind == action(LIST) {
            let request: ListRequest = parse(body)?;
            check_reading(caller, &request.path)?;
            return self.list(caller, &request);
        }
        if kind == action(TREE) {
            let request: TreeRequest = parse(body)?;
            self.check_reading(caller, &request.path)?;
            let hashes = self.hashes.all(&below(&self.root, &request.path)?, request.version)?;
            return Ok(hashes.chunks(HASHES_PER_MESSAGE).map(|some| Bytes::from(some.concat())).collect());
        }
        if kind == action(REFERENCE) {
            return self.genomes.matching(&parse(body)?);
        }
        // Whoever was granted reading may neither write nor grant.
        check_unlimited(caller)?;
        if kind == action(GRANT) {
            let request: ListRequest = parse(body)?;
            below(&self.root, &request.path)?;
            // What a grant is shown for is looked at with the name of who granted it.
            return Ok(vec![json(&self.grants.grant(caller, &request.path)?)?.into()]);
        }
        if kind == action(GRANT_WRITING) {
            let request: WriteCommand = parse(body)?;
            self.sessions.find(caller, &request.session)?;
            return Ok(vec![json(&self.grants.grant_writing(caller, &request.session)?)?.into()]);
        }
        if kind == action(HAPPENED) {
            let key = (caller.name().to_owned(), parse(body)?);
            let happened = lock(&self.fetching).get(&key).and_then(Weak::upgrade);
            return Ok(vec![json(&happened.map_or_else(Vec::new, |happened| happened.take()))?.into()]);
        }
        if kind == action(BEGIN) {
            return self.begin(caller, parse(body)?);
        }
        if kind == action(FINISH) {
            let request: FinishRequest = parse(body)?;
            let wrong = || TransferError::refused("the hashes of blocks cannot be read");
            let hashes = hashes_from_text(&request.hashes).ok_or_else(wrong)?;
            let proof = Proof {
                wrong: self.sessions.find(caller, &request.session)?.inbox.prove(
                    request.file,
                    &hashes,
                    request.keep_only,
                )?,
            };
            return Ok(vec![json(&proof)?.into()]);
        }
        if kind == action(END) {
            return self.end(caller, &parse(body)?);
        }
        Err(TransferError::refused(format!("{kind} is not done here; is the other end of another version?")))
    }

    /// Fails where this is not granted, or rules do not let a caller read a file as it is.
    fn check_reading(&self, caller: &Caller, path: &str) -> Result<(), TransferError> {
        check_reading(caller, path)?;
        self.check_rules(caller, path, FileUse::Read)
    }

    fn check_rules(&self, caller: &Caller, path: &str, wanted: FileUse) -> Result<(), TransferError> {
        match self.options.rules.as_ref().map(|rules| rules.file(caller, path, wanted)) {
            None => Ok(()),
            Some(FileVerdict::Allowed(rule)) => {
                caller.touches().add(path, &rule);
                Ok(())
            }
            // Whether there is such a file is not told.
            Some(FileVerdict::Hidden) if matches!(wanted, FileUse::Write) => {
                let who = caller.name();
                let problem = format!("no rule lets {who} write {path}; whoever keeps the rules can say who may");
                Err(TransferError::refused(problem))
            }
            Some(FileVerdict::Hidden) => Err(TransferError::NotFound { place: path.to_owned() }),
            Some(FileVerdict::Refused { problem }) => Err(TransferError::refused(problem)),
        }
    }

    /// Fails where a caller may not write a file, or a link, below a path.
    fn check_entry(&self, caller: &Caller, base: &str, entry: &Entry) -> Result<(), TransferError> {
        self.check_rules(caller, &joined(base, &entry.path), FileUse::Write)?;
        // What a link leads to would be read by the rules about the link.
        if self.options.rules.is_some() && entry.link.is_some() {
            let problem = format!(
                "{} is a link, and this server has rules about files; --links follow copies what it leads to",
                shown(&entry.path)
            );
            return Err(TransferError::Unsupported { problem });
        }
        Ok(())
    }

    fn begin(&self, caller: &Caller, request: BeginRequest) -> Result<Vec<Bytes>, TransferError> {
        self.check_writable()?;
        let base = below(&self.root, &request.base)?;
        let checked = request.entries.iter().map(|entry| self.check_entry(caller, &request.base, entry));
        let checked: Vec<Result<(), TransferError>> = checked.collect();
        // What fails one file fails the request, unless the client asks for each of them.
        let answer = |is_base: bool, begun: Result<Have, TransferError>| match begun {
            Err(why) if request.each && !is_base && why.is_of_one_file() => Ok(Have::Refused(Trouble::of_entry(&why))),
            begun => begun,
        };
        let checked = match request.each {
            true => checked,
            false => checked.into_iter().map(|checked| checked.map(Ok)).collect::<Result<Vec<_>, _>>()?,
        };
        let entries = request.entries.into_iter().zip(checked);
        if request.dry_run {
            let inbox = Inbox::new(&base, true);
            let have = entries
                .map(|(entry, checked)| answer(entry.path.is_empty(), checked.and_then(|()| inbox.look(&entry))));
            let have = have.collect::<Result<_, _>>()?;
            return Ok(vec![json(&Begun { session: String::new(), have, each: true })?.into()]);
        }
        let (name, session) = match request.session {
            Some(name) => (name.clone(), self.sessions.find(caller, &name)?),
            None => self.sessions.begin(caller, &request.base, Inbox::new(&base, true))?,
        };
        wait_for_ended_copies();
        let beginning = lock(&session.beginning);
        let have = (request.first..).zip(entries).map(|(file, (entry, checked))| {
            let is_base = entry.path.is_empty();
            let target = if is_base { Ok(base.clone()) } else { below(&base, &entry.path) };
            let begun = checked
                .and(target)
                .and_then(|target| self.sessions.begin_file(&session, (file, entry), target, request.take_over));
            answer(is_base, begun)
        });
        let have = have.collect::<Result<_, _>>()?;
        drop(beginning);
        Ok(vec![json(&Begun { session: name, have, each: true })?.into()])
    }

    /// Ends a session: what the source does not have is removed, and directories get their modes and times.
    fn end(&self, caller: &Caller, request: &EndRequest) -> Result<Vec<Bytes>, TransferError> {
        let session = self.sessions.find(caller, &request.session)?;
        let mut failures = Vec::new();
        for path in &request.remove {
            let checked = self.check_rules(caller, &joined(&session.base, path), FileUse::Write);
            match checked.and_then(|()| session.inbox.remove(path)) {
                Err(why) if request.each && why.is_of_one_file() => {
                    failures.push(EntryFailure { path: path.clone(), why });
                }
                removed => removed?,
            }
        }
        failures.extend(session.inbox.end()?);
        self.sessions.end(&request.session);
        if let Some(first) = failures.pop_if(|_| !request.each) {
            return Err(first.why);
        }
        Ok(vec![json(&failures.iter().map(FailureMessage::of).collect::<Vec<_>>())?.into()])
    }

    fn check_relaying(&self, caller: &Caller) -> Result<(), TransferError> {
        check_unlimited(caller)?;
        let problem = "this server sends on nothing for others; its --relay option lets it";
        if self.options.relays { Ok(()) } else { Err(TransferError::refused(problem)) }
    }

    fn check_writable(&self) -> Result<(), TransferError> {
        let problem = "this server takes no files; its --writable option lets it";
        if self.options.writable { Ok(()) } else { Err(TransferError::refused(problem)) }
    }

    /// A piece of a file for each of its endpoints.
    fn info(&self, caller: &Caller, command: &Bytes) -> Result<FileInfo, TransferError> {
        let unknown = || TransferError::refused("this command of files is not known here");
        let request: InfoRequest = parse(behind(command, INFO).ok_or_else(unknown)?)?;
        self.check_reading(caller, &request.path)?;
        let (_, found) = open_for_reading(&below(&self.root, &request.path)?)?;
        if !found.is_file() {
            return Err(TransferError::refused(format!("{} is a directory; name a file", request.path)));
        }
        let entry = Entry::of(String::new(), &found);
        let (blocks, modified_ns) = (block_count(entry.size_bytes), entry.modified_ns);
        let piece = request.piece_bytes.unwrap_or(PIECE_BYTES).div_ceil(BLOCK_BYTES);
        let piece = piece.clamp(blocks.div_ceil(PIECES).max(1), blocks.max(1));
        let state = FileState::Written { size_bytes: entry.size_bytes, modified_s: entry.modified_s, modified_ns };
        let tickets = (0..blocks).step_by(piece as usize).map(|start| {
            let end = (start + piece).min(blocks);
            let spans = vec![ReadSpan { file: 0, path: request.path.clone(), state, start, end, fresh: false }];
            Ok(marked(READ, &ReadRequest { spans, manner: Manner::default() })?.into())
        });
        let tickets = tickets.collect::<Result<_, TransferError>>()?;
        Ok(FileInfo { schema: schema(), tickets, also_at: self.options.also_at.clone(), bytes: entry.size_bytes })
    }

    /// Blocks below the root as a request names them.
    fn span_of(&self, caller: &Caller, span: ReadSpan) -> Result<SourceSpan, TransferError> {
        self.check_reading(caller, &span.path)?;
        let path = below(&self.root, &span.path)?;
        let version = match span.state {
            FileState::Version(version) => version,
            FileState::Written { size_bytes, modified_s, modified_ns } => {
                let found = Entry::of(String::new(), &open_for_reading(&path)?.1);
                if (found.size_bytes, found.modified_s, found.modified_ns) != (size_bytes, modified_s, modified_ns) {
                    return Err(TransferError::Changed { place: span.path });
                }
                found.version
            }
        };
        Ok(SourceSpan { file: span.file, path, version, blocks: (span.start, span.end) })
    }

    /// A connection's share of the first blocks of a file, or of what is in a directory where no rules say who sees what of it.
    fn spans_ahead(&self, caller: &Caller, request: &AheadRequest) -> Result<Vec<SourceSpan>, TransferError> {
        // Under rules: only who may have what would be there is told what is.
        self.check_reading(caller, &request.path)?;
        let (path, streams) = (below(&self.root, &request.path)?, request.streams.min(AHEAD_STREAMS));
        let most = Shares::of_directory(streams).entries_at_most();
        let listed = walk(&path, Links::Follow).filter_map(|found| match found {
            Ok(WalkItem::Entry(entry)) => (!is_hidden(&entry.path)).then_some(Ok(entry)),
            Ok(WalkItem::Failure(_) | WalkItem::SkippedLink(_)) => None,
            Err(error) => Some(Err(error)),
        });
        let entries: Vec<Entry> = listed.take(most).collect::<Result<_, _>>()?;
        let is_file = matches!(&entries[..], [only] if only.is_file());
        if self.options.rules.is_some() && !is_file {
            return Ok(Vec::new());
        }
        let spans = Shares::of(&entries, streams).spans(&entries, request.stream).into_iter().map(|span| {
            let entry = &entries[span.file as usize];
            let below = path_of(&entry.path).unwrap_or_default();
            let path = if entry.path.is_empty() { path.clone() } else { path.join(below) };
            SourceSpan { file: span.file, path, version: entry.version, blocks: (span.start, span.end) }
        });
        Ok(spans.collect())
    }

    async fn fetch(&self, caller: &Caller, body: &[u8]) -> Result<Vec<Bytes>, TransferError> {
        check_unlimited(caller)?;
        self.check_writable()?;
        if self.options.rules.is_some() {
            // What is fetched has its names from elsewhere, and who may write which is not known before.
            let problem = "this server has rules about who may write what, and fetches nothing by itself; copy by way of this machine";
            return Err(TransferError::refused(problem));
        }
        let request: FetchRequest = parse(body)?;
        let key = (caller.name().to_owned(), request.name.clone());
        let happened = Arc::new(Happened::default());
        {
            let mut fetching = lock(&self.fetching);
            fetching.retain(|_, happened| happened.strong_count() > 0);
            fetching.insert(key, Arc::downgrade(&happened));
        }
        let authority = self.options.authority.clone();
        let references = self.genomes.references();
        let (summary, failures) =
            fetch(request, |path| below(&self.root, path), authority, references, &happened).await?;
        let failures: Vec<FailureMessage> = failures.iter().map(FailureMessage::of).collect();
        Ok(vec![json(&summary)?.into(), json(&failures)?.into()])
    }
}

/// As it is said to who asked for it ahead.
fn ahead_span(span: &SourceSpan) -> AheadSpan {
    AheadSpan { file: span.file, version: span.version, start: span.blocks.0, end: span.blocks.1 }
}

/// A name that nobody guesses.
pub(crate) fn random_name() -> Result<String, TransferError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| TransferError::Bug { problem: format!("no random numbers: {error}") })?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

impl FileService for Files {
    fn act(&self, caller: Caller, action: String, body: Bytes) -> Pending<'_, Vec<Bytes>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            if action == crate::protocol::action(FETCH) {
                return Ok(inner.fetch(&caller, &body).await?);
            }
            Ok(blocking(move || inner.act(&caller, &action, &body)).await?)
        })
    }

    fn granted(&self, token: &[u8]) -> Option<Caller> {
        self.inner.grants.admit(token)
    }

    fn info(&self, caller: Caller, command: Bytes) -> Pending<'_, FileInfo> {
        let inner = self.inner.clone();
        Box::pin(async move { Ok(blocking(move || inner.info(&caller, &command)).await?) })
    }

    fn send(&self, caller: Caller, ticket: Bytes) -> Pending<'_, Download> {
        let inner = self.inner.clone();
        Box::pin(async move {
            if let Some(request) = behind(&ticket, RELAY) {
                inner.check_relaying(&caller)?;
                let request = parse(request)?;
                return Ok(inner.relay.send(&caller, request).await?);
            }
            if let Some(request) = behind(&ticket, PACKED) {
                let request: PackedRequest = parse(request)?;
                inner.check_reading(&caller, &request.path)?;
                let path = below(&inner.root, &request.path)?;
                tune::steer(caller.wire(), request.manner);
                return Ok(inner.genomes.send(path, request).await?);
            }
            if let Some(request) = behind(&ticket, AHEAD) {
                let request: AheadRequest = parse(request)?;
                tune::steer(caller.wire(), request.manner);
                let (finder, compress, wire) = (inner.clone(), request.manner.compress, caller.wire().clone());
                let found = blocking(move || finder.spans_ahead(&caller, &request)).await?;
                let said: Vec<_> = found.iter().map(ahead_span).collect();
                let reader = BlockReader::new(found, inner.hashes.clone(), compress);
                let mut sent = sent(reader, wire);
                let first = stream::iter([Ok((RecordBatch::new_empty(schema()), Bytes::from(json(&said)?)))]);
                sent.batches = Box::pin(first.chain(sent.batches));
                return Ok(sent);
            }
            let unknown = || Status::invalid_argument("this ticket of files is not known here");
            let request: ReadRequest = parse(behind(&ticket, READ).ok_or_else(unknown)?)?;
            let spans = request.spans.into_iter().map(|span| inner.span_of(&caller, span));
            let spans = spans.collect::<Result<Vec<_>, TransferError>>()?;
            tune::steer(caller.wire(), request.manner);
            let reader = BlockReader::new(spans, inner.hashes.clone(), request.manner.compress);
            Ok(sent(reader, caller.wire().clone()))
        })
    }

    fn take(&self, caller: Caller, command: Bytes, first: Option<Chunk>, upload: Upload) -> Pending<'_, Answers> {
        let inner = self.inner.clone();
        Box::pin(async move {
            if let Some(command) = behind(&command, UNPACK) {
                check_unlimited(&caller)?;
                inner.check_writable()?;
                let command: UnpackCommand = parse(command)?;
                inner.check_rules(&caller, &joined(&command.base, &command.entry.path), FileUse::Write)?;
                let inbox = CopyInbox::new(Inbox::new(&below(&inner.root, &command.base)?, true));
                return Ok(inner.genomes.take(inbox, command, first, upload).await?);
            }
            if let Some(command) = behind(&command, RELAY_WRITE) {
                inner.check_relaying(&caller)?;
                return Ok(inner.relay.take(&caller, parse(command)?, first, upload).await?);
            }
            let unknown = || Status::invalid_argument("this upload of files is not known here");
            let command: WriteCommand = parse(behind(&command, WRITE).ok_or_else(unknown)?)?;
            check_writing(&caller, &command.session)?;
            let taking = inner.sessions.find(&caller, &command.session)?;
            Ok(taken(taking, first, upload))
        })
    }
}

/// Blocks that are read on a thread of their own, as the client takes them. What is asked for over one connection takes turns: of blocks that go
/// side by side, more are not whole when either end is lost.
fn sent(reader: BlockReader, wire: Wire) -> Download {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    tokio::task::spawn_blocking(move || {
        for read in reader {
            let item = read.map_err(Status::from).and_then(|(batch, unreadable)| {
                let refused = unreadable.iter().map(|(file, why)| (*file, Trouble::of(why))).collect();
                let said = Taken { refused, ..Taken::default() };
                let said = if said.refused.is_empty() { Bytes::new() } else { Bytes::from(json(&said)?) };
                Ok((batch, said))
            });
            let failed = item.is_err();
            // Nobody wants more: the client is gone.
            if sender.blocking_send(item).is_err() || failed {
                break;
            }
        }
    });
    let batches = stream::unfold((receiver, wire, None), |(mut receiver, wire, turn)| async move {
        let turn = match turn {
            None => wire.turn().await,
            held => held,
        };
        receiver.recv().await.map(|item| (item, (receiver, wire, turn)))
    });
    Download { schema: schema(), batches: Box::pin(batches) }
}

/// What became of the batches of an upload, one answer for each.
fn taken(taking: Arc<Session>, first: Option<Chunk>, upload: Upload) -> Answers {
    let answers = stream::try_unfold((first, upload, taking), |(first, mut upload, taking)| async move {
        let mut next = first;
        loop {
            let chunk = match next.take() {
                Some(chunk) => chunk,
                None => match upload.next().await? {
                    Some(chunk) => chunk,
                    None => return Ok(None),
                },
            };
            // What is said without a batch opens the upload.
            let Some(batch) = chunk.batch else { continue };
            let keeper = taking.clone();
            let taken = blocking(move || {
                keeper.touch();
                keeper.inbox.take(&batch)
            });
            let answer = Bytes::from(json(&Taken::from(taken.await?))?);
            return Ok(Some((answer, (None, upload, taking))));
        }
    });
    Box::pin(answers)
}
