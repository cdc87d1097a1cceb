//! The server of copies: lists and sends the files below a root directory, and receives files if that is permitted.
//!
//! Tickets are not trusted: every call checks the paths and compares the versions of the files. So a restart of the
//! server loses only the upload sessions, and the files of these have journals.

mod file_operations;
mod file_store;
mod list_action;
mod upload_sessions;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use godwit_dataset::{Authorizer, FileAccess, FileAuthorization, Principal};
use godwit_delta::ReferenceStore;
use godwit_flight::{
    Download, FileInfo, FileService, FlightStreamChunk, PutResultStream, SocketHandle, Status, StatusFuture, Upload,
};
use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, block_count};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::block_reader::{BlockHashCache, BlockReader, SourceRange, block_schema};
use crate::blocking::run_blocking;
use crate::copy_protocol::{
    BEGIN_ACTION, BLOCK_HASHES_ACTION, BeginRequest, BeginResponse, BlockHashesRequest, BlockReport, DELTA_TICKET,
    DELTA_UPLOAD_COMMAND, DeltaDownloadRequest, DeltaUploadCommand, END_ACTION, EndRequest, EntryFailureMessage,
    FETCH_ACTION, FETCH_EVENTS_ACTION, FINISH_ACTION, FileError, FileVersion, FinishRequest, FinishResponse,
    INFO_COMMAND, InfoRequest, LIST_ACTION, ListRequest, PREFETCH_TICKET, PrefetchRange, PrefetchRequest, READ_TICKET,
    READ_TOKEN_ACTION, REFERENCE_ACTION, RELAY_TICKET, RELAY_WRITE_COMMAND, ReadRange, ReadRequest, ReceiverState,
    STORE_COMMAND, WRITE_COMMAND, WRITE_TOKEN_ACTION, WriteCommand, action_name, encode_message, from_json,
    hashes_from_text, strip_message_prefix, to_json,
};
use crate::delegation_tokens::{DelegationKey, authorize_read, authorize_unrestricted, authorize_write};
use crate::delta_transfer::delta_service::DeltaService;
use crate::error::TransferError;
use crate::fetch::{EventBuffer, run_fetch};
use crate::fetch_request::FetchRequest;
use crate::file_listing::{
    Entry, EntryFailure, LinkPolicy, WalkItem, open_for_reading, resolve_below_root, walk_entries,
};
use crate::file_receiver::{CopyReceiver, FileReceiver, wait_for_ended_copies};
use crate::path_text::{escape_for_display, text_to_path};
use crate::prefetch_plan::PrefetchPlan;
use crate::relay::{Relay, RelayCache};
use crate::tcp_tuning::{self, SendOptions};
use list_action::{is_hidden_path, join_paths};
use upload_sessions::{UploadSession, UploadSessions};

/// Number of batches that may wait between the thread that reads the disk and the connection.
const BATCH_QUEUE_LENGTH: usize = 2;
/// Largest number of block hashes in a message, 32 bytes each.
const MAX_HASHES_PER_MESSAGE: usize = 1 << 15;

/// Largest number of connections that share a prefetch; it limits how many entries the server lists for it.
const MAX_PREFETCH_STREAMS: u32 = 256;

/// Default number of bytes per endpoint. They fill a long path, but a file still has endpoints for several servers.
const DEFAULT_ENDPOINT_BYTES: u64 = 64 << 20;
/// Largest number of endpoints that are returned for a file.
const MAX_ENDPOINTS: u64 = 4096;

/// Options of the file service.
#[derive(Debug, Default)]
pub struct FileServiceOptions {
    /// True if clients may write files.
    pub writable: bool,
    /// PEM file of the certificate authorities trusted for fetches from other servers; `None` for those of the system.
    pub ca_certificates: Option<PathBuf>,
    /// True if the server relays blocks between clients and other servers.
    pub relay_enabled: bool,
    /// The cache of relayed blocks; `None` disables caching.
    pub relay_cache: Option<Arc<RelayCache>>,
    /// URIs (Arrow Flight) of other servers with the same files, which are reported to clients.
    pub mirror_uris: Vec<String>,
    /// FASTA files against which genomes are packed and unpacked.
    pub references: Vec<PathBuf>,
    /// Number of threads that pack or unpack one genome.
    pub threads: usize,
    /// The authorizer of reads and writes. With `None`, every authenticated principal may access all files.
    pub rules: Option<Arc<dyn Authorizer>>,
}

/// A service that clients use to copy files from and to a directory.
#[derive(Debug)]
pub struct DirectoryFileService {
    inner: Arc<FileServiceState>,
}

#[derive(Debug)]
struct FileServiceState {
    root: PathBuf,
    options: FileServiceOptions,
    relay: Relay,
    delegation_key: DelegationKey,
    block_hashes: Arc<BlockHashCache>,
    delta_service: DeltaService,
    sessions: UploadSessions,
    /// Events of running fetches from other servers, by principal and name of the fetch.
    running_fetches: Mutex<HashMap<(String, String), Weak<EventBuffer>>>,
}

impl DirectoryFileService {
    /// Returns a service for the files below `root`.
    ///
    /// # Errors
    /// `INTERNAL` if the operating system provides no random numbers.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_dataset::Principal;
    /// use godwit_flight::FileService as _;
    /// use godwit_transfer::{DirectoryFileService, FileServiceOptions};
    ///
    /// let root = tempfile::tempdir()?;
    /// std::fs::write(root.path().join("a.bam"), "BAM")?;
    /// let service = DirectoryFileService::new(root.path().to_owned(), FileServiceOptions::default());
    /// let info = service.file_info(Principal::default(), r#"godwit.files.info {"path": "a.bam"}"#.into()).await?;
    /// assert_eq!((info.bytes, info.tickets.len()), (3, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(root: PathBuf, options: FileServiceOptions) -> Self {
        let references = ReferenceStore::new(options.references.clone(), options.threads);
        let inner = FileServiceState {
            root,
            relay: Relay::new(options.ca_certificates.clone(), options.relay_cache.clone()),
            options,
            delegation_key: DelegationKey::random(),
            block_hashes: Arc::default(),
            delta_service: DeltaService::new(Arc::new(references)),
            sessions: UploadSessions::default(),
            running_fetches: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl FileServiceState {
    fn run_action(&self, principal: &Principal, kind: &str, body: &[u8]) -> Result<Vec<Bytes>, TransferError> {
        if kind == action_name(LIST_ACTION) {
            let request: ListRequest = from_json(body)?;
            authorize_read(principal, &request.path)?;
            return self.list_readable_entries(principal, &request);
        }
        if kind == action_name(BLOCK_HASHES_ACTION) {
            let request: BlockHashesRequest = from_json(body)?;
            self.authorize_read(principal, &request.path)?;
            let hashes =
                self.block_hashes.block_hashes(&resolve_below_root(&self.root, &request.path)?, request.version)?;
            return Ok(hashes.chunks(MAX_HASHES_PER_MESSAGE).map(|some| Bytes::from(some.concat())).collect());
        }
        if let Some(answer) = self.run_file_operation(principal, kind, body) {
            return answer;
        }
        if kind == action_name(REFERENCE_ACTION) {
            return self.delta_service.matching_reference(&from_json(body)?);
        }
        // A principal with a delegation token may neither write to this server nor issue tokens.
        authorize_unrestricted(principal)?;
        if kind == action_name(READ_TOKEN_ACTION) {
            let request: ListRequest = from_json(body)?;
            resolve_below_root(&self.root, &request.path)?;
            // The server that accepts the token authorizes the call for the principal that requested the token.
            return Ok(vec![to_json(&self.delegation_key.issue_read_token(principal, &request.path)?)?.into()]);
        }
        if kind == action_name(WRITE_TOKEN_ACTION) {
            let request: WriteCommand = from_json(body)?;
            self.sessions.find_session(principal, &request.session)?;
            return Ok(vec![to_json(&self.delegation_key.issue_write_token(principal, &request.session)?)?.into()]);
        }
        if kind == action_name(FETCH_EVENTS_ACTION) {
            let key = (principal.name().to_owned(), from_json(body)?);
            let happened = self.running_fetches.lock().get(&key).and_then(Weak::upgrade);
            return Ok(vec![to_json(&happened.map_or_else(Vec::new, |happened| happened.drain()))?.into()]);
        }
        if kind == action_name(BEGIN_ACTION) {
            return self.begin_files(principal, from_json(body)?);
        }
        if kind == action_name(FINISH_ACTION) {
            let request: FinishRequest = from_json(body)?;
            let wrong = || TransferError::rejected("invalid block hashes");
            let hashes = hashes_from_text(&request.hashes).ok_or_else(wrong)?;
            let proof = FinishResponse {
                mismatched_blocks: self.sessions.find_session(principal, &request.session)?.receiver.verify_file(
                    request.file,
                    &hashes,
                    request.discard_stale_only,
                )?,
            };
            return Ok(vec![to_json(&proof)?.into()]);
        }
        if kind == action_name(END_ACTION) {
            return self.end_session(principal, &from_json(body)?);
        }
        Err(TransferError::rejected(format!(
            "this server does not support {kind}; install the same version of godwit at both ends"
        )))
    }

    /// Rejects a principal whose token scope or whose rules do not permit reading the original bytes of a file.
    fn authorize_read(&self, principal: &Principal, path: &str) -> Result<(), TransferError> {
        authorize_read(principal, path)?;
        self.authorize_by_rules(principal, path, FileAccess::Read)
    }

    fn authorize_by_rules(&self, principal: &Principal, path: &str, wanted: FileAccess) -> Result<(), TransferError> {
        match self.options.rules.as_ref().map(|rules| rules.authorize_file(principal, path, wanted)) {
            None => Ok(()),
            Some(FileAuthorization::Allowed(rule)) => {
                principal.accesses().add(path, &rule);
                Ok(())
            }
            // The error does not reveal whether the file exists.
            Some(FileAuthorization::Hidden) if matches!(wanted, FileAccess::Write) => {
                let name = principal.name();
                let problem = format!("no rule permits {name} to write {path}; ask the administrator of the rules");
                Err(TransferError::rejected(problem))
            }
            Some(FileAuthorization::Hidden) => Err(TransferError::NotFound { location: path.to_owned() }),
            Some(FileAuthorization::Denied { problem }) => Err(TransferError::rejected(problem)),
        }
    }

    /// Rejects a principal that may not write this entry below `base`.
    fn authorize_entry(&self, principal: &Principal, base: &str, entry: &Entry) -> Result<(), TransferError> {
        self.authorize_by_rules(principal, &join_paths(base, &entry.path), FileAccess::Write)?;
        // The rules permit access to the path of a link, but reading it would return its target.
        if self.options.rules.is_some() && entry.link_target.is_some() {
            let problem = format!(
                "{} is a link, and this server authorizes files by rules; --links follow copies the target of the link",
                escape_for_display(&entry.path)
            );
            return Err(TransferError::Unsupported { problem });
        }
        Ok(())
    }

    fn begin_files(&self, principal: &Principal, request: BeginRequest) -> Result<Vec<Bytes>, TransferError> {
        self.check_writable()?;
        let base = resolve_below_root(&self.root, &request.base_path)?;
        let checked = request.entries.iter().map(|entry| self.authorize_entry(principal, &request.base_path, entry));
        let checked: Vec<Result<(), TransferError>> = checked.collect();
        // If the client did not request errors for each entry, the failure of one file fails the whole request.
        let answer = |is_base: bool, begun: Result<ReceiverState, TransferError>| match begun {
            Err(why) if request.per_entry_errors && !is_base && why.concerns_one_file() => {
                Ok(ReceiverState::Rejected(FileError::from_entry_error(&why)))
            }
            begun => begun,
        };
        let checked = match request.per_entry_errors {
            true => checked,
            false => checked.into_iter().map(|checked| checked.map(Ok)).collect::<Result<Vec<_>, _>>()?,
        };
        let entries = request.entries.into_iter().zip(checked);
        if request.dry_run {
            let inbox = FileReceiver::new(&base, true);
            let have = entries.map(|(entry, checked)| {
                answer(entry.path.is_empty(), checked.and_then(|()| inbox.receiver_state(&entry)))
            });
            let receiver_states = have.collect::<Result<_, _>>()?;
            return Ok(vec![
                to_json(&BeginResponse { session: String::new(), receiver_states, per_entry_errors: true })?.into(),
            ]);
        }
        let (name, session) = match request.session {
            Some(name) => (name.clone(), self.sessions.find_session(principal, &name)?),
            None => self.sessions.start_session(principal, &request.base_path, FileReceiver::new(&base, true)),
        };
        wait_for_ended_copies();
        let beginning = session.start_lock.lock();
        let have = (request.first_file..).zip(entries).map(|(file, (entry, checked))| {
            let is_base = entry.path.is_empty();
            let target = if is_base { Ok(base.clone()) } else { resolve_below_root(&base, &entry.path) };
            let begun = checked
                .and(target)
                .and_then(|target| self.sessions.start_file(&session, (file, entry), target, request.take_over));
            answer(is_base, begun)
        });
        let have = have.collect::<Result<_, _>>()?;
        drop(beginning);
        Ok(vec![to_json(&BeginResponse { session: name, receiver_states: have, per_entry_errors: true })?.into()])
    }

    /// Ends an upload session: removes extraneous entries, and sets modes and times of directories.
    fn end_session(&self, principal: &Principal, request: &EndRequest) -> Result<Vec<Bytes>, TransferError> {
        let session = self.sessions.find_session(principal, &request.session)?;
        let mut failures = Vec::new();
        for path in &request.paths_to_remove {
            let checked = self.authorize_by_rules(principal, &join_paths(&session.base_path, path), FileAccess::Write);
            match checked.and_then(|()| session.receiver.remove_path(path)) {
                Err(error) if request.per_entry_errors && error.concerns_one_file() => {
                    failures.push(EntryFailure { path: path.clone(), error });
                }
                removed => removed?,
            }
        }
        failures.extend(session.receiver.finish()?);
        self.sessions.remove_session(&request.session);
        if let Some(first) = failures.pop_if(|_| !request.per_entry_errors) {
            return Err(first.error);
        }
        Ok(vec![to_json(&failures.iter().map(EntryFailureMessage::from_failure).collect::<Vec<_>>())?.into()])
    }

    fn authorize_relay(&self, principal: &Principal) -> Result<(), TransferError> {
        authorize_unrestricted(principal)?;
        let problem = "this server does not relay copies to other servers; start it with --relay to permit that";
        if self.options.relay_enabled { Ok(()) } else { Err(TransferError::rejected(problem)) }
    }

    fn check_writable(&self) -> Result<(), TransferError> {
        let problem = "this server does not accept files; start it with --writable to permit that";
        if self.options.writable { Ok(()) } else { Err(TransferError::rejected(problem)) }
    }

    /// Returns the endpoints of a file; each has a range of its blocks.
    fn file_info(&self, principal: &Principal, command: &Bytes) -> Result<FileInfo, TransferError> {
        let unknown = || TransferError::rejected("GetFlightInfo with this command is not supported for files");
        let request: InfoRequest = from_json(strip_message_prefix(command, INFO_COMMAND).ok_or_else(unknown)?)?;
        self.authorize_read(principal, &request.path)?;
        let (_, found) = open_for_reading(&resolve_below_root(&self.root, &request.path)?)?;
        if !found.is_file() {
            return Err(TransferError::rejected(format!("{} is a directory; name a file", request.path)));
        }
        let entry = Entry::from_metadata(String::new(), &found);
        let (blocks, modified_ns) = (block_count(entry.size_bytes), entry.modified_ns);
        let piece = request.endpoint_bytes.unwrap_or(DEFAULT_ENDPOINT_BYTES).div_ceil(BLOCK_BYTES);
        let piece = piece.clamp(blocks.div_ceil(MAX_ENDPOINTS).max(1), blocks.max(1));
        let version =
            FileVersion::SizeAndTime { size_bytes: entry.size_bytes, modified_s: entry.modified_s, modified_ns };
        let tickets = (0..blocks).step_by(piece as usize).map(|start| {
            let end = (start + piece).min(blocks);
            let ranges =
                vec![ReadRange { file: 0, path: request.path.clone(), version, start, end, bypass_cache: false }];
            Ok(encode_message(READ_TICKET, &ReadRequest { ranges, send_options: SendOptions::default() })?.into())
        });
        let tickets = tickets.collect::<Result<_, TransferError>>()?;
        Ok(FileInfo {
            schema: block_schema(),
            tickets,
            other_locations: self.options.mirror_uris.clone(),
            bytes: entry.size_bytes,
        })
    }

    /// Authorizes a requested range of blocks and resolves its path below the root.
    fn resolve_range(&self, principal: &Principal, span: ReadRange) -> Result<SourceRange, TransferError> {
        self.authorize_read(principal, &span.path)?;
        let path = resolve_below_root(&self.root, &span.path)?;
        let version = match span.version {
            FileVersion::ServerVersion(version) => version,
            FileVersion::SizeAndTime { size_bytes, modified_s, modified_ns } => {
                let found = Entry::from_metadata(String::new(), &open_for_reading(&path)?.1);
                if (found.size_bytes, found.modified_s, found.modified_ns) != (size_bytes, modified_s, modified_ns) {
                    return Err(TransferError::SourceChanged { location: span.path });
                }
                found.version
            }
        };
        let blocks = (span.start, span.end);
        Ok(SourceRange { file: span.file, path, version, blocks, bypass_cache: span.bypass_cache })
    }

    /// Returns a connection's share of the first blocks of a file, or of a directory if the server has no rules.
    fn prefetch_ranges(
        &self,
        principal: &Principal,
        request: &PrefetchRequest,
    ) -> Result<Vec<SourceRange>, TransferError> {
        // With rules, only a principal that may read the path can find out whether it exists.
        self.authorize_read(principal, &request.path)?;
        let (path, streams) =
            (resolve_below_root(&self.root, &request.path)?, request.streams.min(MAX_PREFETCH_STREAMS));
        let most = PrefetchPlan::for_directory(streams).max_entries();
        let listed = walk_entries(&path, LinkPolicy::Follow).filter_map(|found| match found {
            Ok(WalkItem::Entry(entry)) => (!is_hidden_path(&entry.path)).then_some(Ok(entry)),
            Ok(WalkItem::Failure(_) | WalkItem::SkippedLink(_)) => None,
            Err(error) => Some(Err(error)),
        });
        let entries: Vec<Entry> = listed.take(most).collect::<Result<_, _>>()?;
        let is_file = matches!(&entries[..], [only] if only.is_file());
        if self.options.rules.is_some() && !is_file {
            return Ok(Vec::new());
        }
        let spans = PrefetchPlan::for_entries(&entries, streams)
            .stream_ranges(&entries, request.stream)
            .into_iter()
            .map(|span| {
                let entry = &entries[span.file as usize];
                let below = text_to_path(&entry.path).unwrap_or_default();
                let path = if entry.path.is_empty() { path.clone() } else { path.join(below) };
                let blocks = (span.start, span.end);
                SourceRange { file: span.file, path, version: entry.version, blocks, bypass_cache: false }
            });
        Ok(spans.collect())
    }

    async fn run_fetch(&self, principal: &Principal, body: &[u8]) -> Result<Vec<Bytes>, TransferError> {
        authorize_unrestricted(principal)?;
        self.check_writable()?;
        if self.options.rules.is_some() {
            // The other server chooses the names of the files, so writes cannot be authorized before the fetch.
            let problem =
                "this server authorizes writes by rules and does not fetch files itself; copy by way of this host";
            return Err(TransferError::rejected(problem));
        }
        let request: FetchRequest = from_json(body)?;
        let key = (principal.name().to_owned(), request.copy_id.clone());
        let happened = Arc::new(EventBuffer::default());
        {
            let mut fetching = self.running_fetches.lock();
            fetching.retain(|_, happened| happened.strong_count() > 0);
            fetching.insert(key, Arc::downgrade(&happened));
        }
        let authority = self.options.ca_certificates.clone();
        let references = self.delta_service.references();
        let (summary, failures) =
            run_fetch(request, |path| resolve_below_root(&self.root, path), authority, references, &happened).await?;
        let failures: Vec<EntryFailureMessage> = failures.iter().map(EntryFailureMessage::from_failure).collect();
        Ok(vec![to_json(&summary)?.into(), to_json(&failures)?.into()])
    }
}

/// Converts the range to its form in messages to the client.
fn to_prefetch_range(span: &SourceRange) -> PrefetchRange {
    PrefetchRange { file: span.file, version: span.version, start: span.blocks.0, end: span.blocks.1 }
}

impl FileService for DirectoryFileService {
    fn run_action(&self, principal: Principal, action: String, body: Bytes) -> StatusFuture<'_, Vec<Bytes>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            if action == crate::copy_protocol::action_name(FETCH_ACTION) {
                return Ok(inner.run_fetch(&principal, &body).await?);
            }
            Ok(run_blocking(move || inner.run_action(&principal, &action, &body)).await?)
        })
    }

    fn authenticate_scoped_token(&self, token: &[u8]) -> Option<Principal> {
        self.inner.delegation_key.authenticate(token)
    }

    fn file_info(&self, principal: Principal, command: Bytes) -> StatusFuture<'_, FileInfo> {
        let inner = self.inner.clone();
        Box::pin(async move { Ok(run_blocking(move || inner.file_info(&principal, &command)).await?) })
    }

    fn download(&self, principal: Principal, ticket: Bytes) -> StatusFuture<'_, Download> {
        let inner = self.inner.clone();
        let wire = SocketHandle::of_call(&principal);
        Box::pin(async move {
            if let Some(request) = strip_message_prefix(&ticket, RELAY_TICKET) {
                inner.authorize_relay(&principal)?;
                let request = from_json(request)?;
                return Ok(inner.relay.relay_download(&principal, request).await?);
            }
            if let Some(request) = strip_message_prefix(&ticket, DELTA_TICKET) {
                let request: DeltaDownloadRequest = from_json(request)?;
                inner.authorize_read(&principal, &request.path)?;
                let path = resolve_below_root(&inner.root, &request.path)?;
                tcp_tuning::apply_send_options(&wire, request.send_options);
                return Ok(inner.delta_service.serve_download(path, request).await?);
            }
            if let Some(request) = strip_message_prefix(&ticket, PREFETCH_TICKET) {
                let request: PrefetchRequest = from_json(request)?;
                tcp_tuning::apply_send_options(&wire, request.send_options);
                let (finder, compress) = (inner.clone(), request.send_options.compress);
                let found = run_blocking(move || finder.prefetch_ranges(&principal, &request)).await?;
                let prefetched: Vec<_> = found.iter().map(to_prefetch_range).collect();
                let reader = BlockReader::new(found, inner.block_hashes.clone(), compress);
                let mut sent = stream_blocks(reader, wire);
                let first =
                    stream::iter([Ok((RecordBatch::new_empty(block_schema()), Bytes::from(to_json(&prefetched)?)))]);
                sent.batches = Box::pin(first.chain(sent.batches));
                return Ok(sent);
            }
            let unknown = || Status::invalid_argument("DoGet with this ticket is not supported for files");
            let request: ReadRequest = from_json(strip_message_prefix(&ticket, READ_TICKET).ok_or_else(unknown)?)?;
            let spans = request.ranges.into_iter().map(|span| inner.resolve_range(&principal, span));
            let spans = spans.collect::<Result<Vec<_>, TransferError>>()?;
            tcp_tuning::apply_send_options(&wire, request.send_options);
            let reader = BlockReader::new(spans, inner.block_hashes.clone(), request.send_options.compress);
            Ok(stream_blocks(reader, wire))
        })
    }

    fn upload(
        &self,
        principal: Principal,
        command: Bytes,
        first: Option<FlightStreamChunk>,
        upload: Upload,
    ) -> StatusFuture<'_, PutResultStream> {
        let inner = self.inner.clone();
        Box::pin(async move {
            if let Some(command) = strip_message_prefix(&command, DELTA_UPLOAD_COMMAND) {
                authorize_unrestricted(&principal)?;
                inner.check_writable()?;
                let command: DeltaUploadCommand = from_json(command)?;
                inner.authorize_by_rules(
                    &principal,
                    &join_paths(&command.base_path, &command.entry.path),
                    FileAccess::Write,
                )?;
                let inbox =
                    CopyReceiver::new(FileReceiver::new(&resolve_below_root(&inner.root, &command.base_path)?, true));
                return Ok(inner.delta_service.serve_upload(inbox, command, first, upload).await?);
            }
            if let Some(command) = strip_message_prefix(&command, STORE_COMMAND) {
                return Ok(inner.store_file(principal, from_json(command)?, first, upload).await?);
            }
            if let Some(command) = strip_message_prefix(&command, RELAY_WRITE_COMMAND) {
                inner.authorize_relay(&principal)?;
                return Ok(inner.relay.relay_upload(&principal, from_json(command)?, first, upload).await?);
            }
            let unknown = || Status::invalid_argument("DoPut with this descriptor is not supported for files");
            let command: WriteCommand = from_json(strip_message_prefix(&command, WRITE_COMMAND).ok_or_else(unknown)?)?;
            authorize_write(&principal, &command.session)?;
            let taking = inner.sessions.find_session(&principal, &command.session)?;
            Ok(stream_block_reports(taking, first, upload))
        })
    }
}

/// Returns a download of blocks, which a separate thread reads as fast as the client receives them. Requests over one
/// connection are answered one after another: if they were parallel, more blocks would be incomplete when the
/// connection is lost.
fn stream_blocks(reader: BlockReader, wire: SocketHandle) -> Download {
    let (sender, receiver) = mpsc::channel(BATCH_QUEUE_LENGTH);
    tokio::task::spawn_blocking(move || {
        for read in reader {
            let item = read.map_err(Status::from).and_then(|(batch, unreadable)| {
                if unreadable.is_empty() {
                    return Ok((batch, Bytes::new()));
                }
                let rejected_files = unreadable.iter().map(|(file, why)| (*file, FileError::from_error(why))).collect();
                let report = BlockReport { rejected_files, ..BlockReport::default() };
                Ok((batch, Bytes::from(to_json(&report)?)))
            });
            let failed = item.is_err();
            // Sending fails if the client has closed the connection.
            if sender.blocking_send(item).is_err() || failed {
                break;
            }
        }
    });
    let batches = stream::unfold((receiver, wire, None), |(mut receiver, wire, turn)| async move {
        let turn = match turn {
            None => wire.lock_send().await,
            held => held,
        };
        receiver.recv().await.map(|item| (item, (receiver, wire, turn)))
    });
    Download { schema: block_schema(), batches: Box::pin(batches) }
}

/// Returns a stream with one report for each batch of an upload.
fn stream_block_reports(
    taking: Arc<UploadSession>,
    first: Option<FlightStreamChunk>,
    upload: Upload,
) -> PutResultStream {
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
            // The first message, which starts the upload, has no batch.
            let Some(batch) = chunk.batch else { continue };
            let keeper = taking.clone();
            let taken = run_blocking(move || {
                keeper.mark_used();
                keeper.receiver.write_batch(&batch)
            });
            let answer = Bytes::from(to_json(&BlockReport::from(taken.await?))?);
            return Ok(Some((answer, (None, upload, taking))));
        }
    });
    Box::pin(answers)
}
