//! Files of a server or pool for programs that access them one by one: entries, ranges of blocks, parts of blocks, whole
//! files to write, and changes of names. Copies of many files are in [`crate::copy`].
//!
//! Every call is repeated at another pool member, or at the server when it is back, if the connection fails. Received
//! blocks are verified. A read continues with the first block that has not arrived.

mod file_store;

pub use file_store::StoreOptions;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use godwit_flight::{Client, Code, FlightError};
use godwit_transfer_session::blake3_tree::{block_count, file_hash};
use parking_lot::Mutex;

use crate::control_client::ControlClient;
use crate::copy_protocol::{
    BYTES_ACTION, BlockBatch, BlockReport, BytesRequest, CHANGE_ACTION, DIRECTORY_ACTION, ENTRY_ACTION, FileChange,
    FileVersion, PathRequest, READ_TICKET, ReadRange, ReadRequest, SPACE_ACTION, StorageSpace, encode_message,
    from_json, to_json,
};
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::file_listing::Entry;
use crate::location::RemoteLocation;
use crate::path_text::escape_for_display;
use crate::server_errors::error_from_status;
use crate::server_outage::{OutageLog, ServerOutage};
use crate::tcp_tuning::SendOptions;

/// Number of connections. In a pool, each has a lease of its own, so that the policy of the pool spreads them over its
/// members.
const CONNECTIONS: usize = 4;
/// Delay before a read is repeated.
const READ_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Number of times that the same block may arrive damaged.
const MAX_DAMAGED_BLOCKS: u32 = 8;
/// Number of attempts of a change if another client changes the same entry at the same time.
const MAX_CHANGE_ATTEMPTS: u32 = 3;

/// The files below a path of a server or pool. All paths of the methods are relative to that path.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_dataset::{Catalog, Dataset, DatasetError};
/// # use godwit_flight::{Address, ConnectionSecurity, DatasetService, DatasetServiceOptions, Server, TransportOptions};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use godwit_transfer::location::Location;
/// use godwit_transfer::{Credentials, RemoteFiles};
/// # use godwit_transfer::{DirectoryFileService, FileServiceOptions};
///
/// # #[derive(Debug)]
/// # struct NoDatasets;
/// # impl Catalog for NoDatasets {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(Vec::new())
/// #     }
/// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Err(DatasetError::NotFound { name: name.to_owned() })
/// #     }
/// # }
/// # let root = tempfile::tempdir()?;
/// # std::fs::write(root.path().join("a.bam"), "abc")?;
/// # let files = Arc::new(DirectoryFileService::new(root.path().to_owned(), FileServiceOptions::default()));
/// # let options = DatasetServiceOptions::default();
/// # let service = DatasetService::with_files(Arc::new(NoDatasets), None, Some(files), options);
/// # let (routes, security) = (service.routes(), ConnectionSecurity::default());
/// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
/// # let server = Server::bind(&any_port, service, routes, security, TransportOptions::default()).await?;
/// # let Address::Tcp(address) = *server.address() else { unreachable!() };
/// # tokio::spawn(server.serve());
/// let Location::Remote(location) = Location::parse(&format!("grpc+tcp://{address}/"))? else { unreachable!() };
/// let log = Arc::new(|message: &str| eprintln!("{message}"));
/// let files = RemoteFiles::new(location, &Credentials::default(), Duration::from_secs(10), log)?;
/// assert_eq!(files.list_directory("").await?[0].path, "a.bam");
/// let entry = files.entry("a.bam").await?;
/// let mut bytes = Vec::new();
/// files.read_blocks("a.bam", &entry, 0..1, |_block, data| bytes.extend(data)).await?;
/// assert_eq!(bytes, b"abc");
/// assert_eq!(files.read_bytes("a.bam", &entry, 1..3).await?, &b"bc"[..]);
/// # Ok(())
/// # }
/// ```
pub struct RemoteFiles {
    location: RemoteLocation,
    connections: Vec<Connection>,
    /// Number of reads until now.
    read_count: AtomicUsize,
    /// Attempts to store a path whose outcome is not known, by path; see [`StoreCommand`].
    open_attempts: Mutex<HashMap<String, Vec<String>>>,
}

/// A connection, and the number of its running calls.
struct Connection {
    control: ControlClient,
    running_calls: AtomicUsize,
}

/// A running call of a connection.
struct RunningCall<'c>(&'c Connection);

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.0.running_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RemoteFiles {
    /// Returns the files below a location. Connections are opened by the first calls. `wait_timeout` is the longest
    /// time for which calls are repeated while no server answers; later calls then fail after one attempt, until a server
    /// answers again. `log` receives a message when the server or pool has not answered for some seconds, and one when it
    /// answers again.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if the credentials do not contain the pool, or contain an invalid certificate.
    pub fn new(
        location: RemoteLocation,
        credentials: &Credentials,
        wait_timeout: Duration,
        log: OutageLog,
    ) -> Result<Self, TransferError> {
        let outage = Arc::new(ServerOutage::new(location.server_uri(), log));
        let connections = (0..CONNECTIONS).map(|_| {
            let control = ControlClient::new(&location, credentials, wait_timeout)?.with_outage(outage.clone());
            control.set_stream_count(CONNECTIONS as u32);
            Ok(Connection { control, running_calls: AtomicUsize::new(0) })
        });
        let connections = connections.collect::<Result<_, TransferError>>()?;
        Ok(Self { location, connections, read_count: AtomicUsize::new(0), open_attempts: Mutex::default() })
    }

    /// Returns the path below the root of the server.
    fn server_path(&self, path: &str) -> String {
        match (self.location.path.trim_matches('/'), path) {
            (base, "") => base.to_owned(),
            ("", path) => path.to_owned(),
            (base, path) => format!("{base}/{path}"),
        }
    }

    /// Selects the connection with the fewest running calls; of several, always the same one. Members of a pool may have
    /// cached names and attributes of their shared directory, and one member knows its own changes.
    fn start_call(&self) -> RunningCall<'_> {
        self.start_call_from(0)
    }

    /// Selects a connection for content of a file: of those with the fewest running calls, the next one in turn.
    fn start_read(&self) -> RunningCall<'_> {
        self.start_call_from(self.read_count.fetch_add(1, Ordering::Relaxed) % self.connections.len())
    }

    fn start_call_from(&self, first: usize) -> RunningCall<'_> {
        let (later, sooner) = self.connections.split_at(first);
        let running = |connection: &&Connection| connection.running_calls.load(Ordering::Relaxed);
        let chosen = sooner.iter().chain(later).min_by_key(running).expect("there are connections");
        chosen.running_calls.fetch_add(1, Ordering::Relaxed);
        RunningCall(chosen)
    }

    /// Calls an action about a path.
    async fn call(&self, kind: &str, path: &str) -> Result<Vec<Bytes>, TransferError> {
        let path = self.server_path(path);
        let body = to_json(&PathRequest { path: path.clone() })?;
        let call = self.start_call();
        let (answer, _) = call.0.control.call_action_counting_attempts(kind, body).await;
        answer.map_err(|error| call_error(&path, error))
    }

    /// Returns the entries of a directory, ordered by name; the path of an entry is its name.
    ///
    /// # Errors
    /// [`TransferError::NotFound`] if the directory does not exist or may not be seen; [`TransferError::RemoteFailure`]
    /// if the server cannot read it.
    pub async fn list_directory(&self, path: &str) -> Result<Vec<Entry>, TransferError> {
        let messages = self.call(DIRECTORY_ACTION, path).await?;
        let mut entries = Vec::new();
        for message in &messages {
            entries.extend(from_json::<Vec<Entry>>(message)?);
        }
        Ok(entries)
    }

    /// Returns the entry of a file or directory; its path is empty.
    ///
    /// # Errors
    /// The same errors as [`Self::list_directory`].
    pub async fn entry(&self, path: &str) -> Result<Entry, TransferError> {
        let messages = self.call(ENTRY_ACTION, path).await?;
        from_json(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// Returns size and free space of the storage.
    ///
    /// # Errors
    /// [`TransferError::Flight`] if no server answers.
    pub async fn storage_space(&self) -> Result<StorageSpace, TransferError> {
        let messages = self.call(SPACE_ACTION, "").await?;
        from_json(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// Reports whether the server accepts changes.
    ///
    /// # Errors
    /// [`TransferError::Flight`] if no server answers.
    pub async fn is_writable(&self) -> Result<bool, TransferError> {
        let call = self.start_call();
        match call.0.control.supports_per_entry_errors(&self.server_path("")).await {
            Ok(_) => Ok(true),
            Err(TransferError::Rejected { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the BLAKE3 of a file in hexadecimal digits; the server reads the complete file for it. `None` if the
    /// file has another version by now.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if the file may not be read.
    pub async fn digest(&self, path: &str, entry: &Entry) -> Result<Option<String>, TransferError> {
        let call = self.start_call();
        let hashes = call.0.control.block_hashes(&self.server_path(path), entry.version).await?;
        let hashes = hashes.filter(|hashes| hashes.len() as u64 == block_count(entry.size_bytes));
        Ok(hashes.map(|hashes| file_hash(&hashes, entry.size_bytes).to_hex().to_string()))
    }

    /// Changes a name or attributes; paths are relative to the location. An entry is changed in the version that
    /// it has when this method is called, so the field `version` of the change is not used.
    ///
    /// # Errors
    /// [`TransferError::NotFound`] if the path does not exist; [`TransferError::Rejected`] if the change is not
    /// permitted; [`TransferError::RemoteFailure`] with a reason if the storage of the server rejects the change.
    pub async fn change(&self, change: &FileChange) -> Result<(), TransferError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.change_once(change).await {
                Err(TransferError::SourceChanged { .. }) if attempts < MAX_CHANGE_ATTEMPTS => {}
                outcome => return outcome,
            }
        }
    }

    async fn change_once(&self, change: &FileChange) -> Result<(), TransferError> {
        let (request, before) = self.prepare_change(change).await?;
        let call = self.start_call();
        let (answer, attempts) = call.0.control.call_action_counting_attempts(CHANGE_ACTION, to_json(&request)?).await;
        drop(call);
        match answer.map_err(|error| call_error(change.path(), error)) {
            Err(error) if attempts > 1 => self.outcome_of_repeated_change(change, before, error).await,
            answer => answer.map(drop),
        }
    }

    /// Returns the request of a change, with the version of the entry, and the entry itself.
    async fn prepare_change(&self, change: &FileChange) -> Result<(FileChange, Option<Entry>), TransferError> {
        let entry = match change {
            FileChange::CreateDirectory { .. } => None,
            _ => Some(self.entry(change.path()).await?),
        };
        let (path, version) = (self.server_path(change.path()), entry.as_ref().map_or(0, |entry| entry.version));
        let request = match change {
            FileChange::CreateDirectory { mode, .. } => FileChange::CreateDirectory { path, mode: *mode },
            FileChange::RemoveDirectory { .. } => FileChange::RemoveDirectory { path, version },
            FileChange::RemoveFile { .. } => FileChange::RemoveFile { path, version },
            FileChange::SetAttributes { mode, modified, .. } => {
                FileChange::SetAttributes { path, version, mode: *mode, modified: *modified }
            }
            FileChange::Rename { destination, replace, .. } => {
                let destination = self.server_path(destination);
                FileChange::Rename { path, version, destination, replace: *replace }
            }
        };
        Ok((request, entry))
    }

    /// Returns the outcome of a change whose last attempt has failed. An earlier attempt, whose answer was lost with the
    /// connection, may have carried it out.
    async fn outcome_of_repeated_change(
        &self,
        change: &FileChange,
        before: Option<Entry>,
        error: TransferError,
    ) -> Result<(), TransferError> {
        let is_done = match (change, &error, before) {
            (FileChange::RemoveFile { .. } | FileChange::RemoveDirectory { .. }, TransferError::NotFound { .. }, _) => {
                true
            }
            (FileChange::CreateDirectory { .. }, TransferError::RemoteFailure { reason: Some(reason), .. }, _) => {
                *reason == godwit_flight::ErrorReason::FileExists
            }
            (FileChange::Rename { destination, .. }, TransferError::NotFound { .. }, Some(before)) => {
                self.has_entry(destination, &before).await?
            }
            // A file that another client has created meanwhile is neither removed nor renamed.
            (
                FileChange::RemoveFile { path, .. }
                | FileChange::RemoveDirectory { path, .. }
                | FileChange::Rename { path, .. },
                TransferError::SourceChanged { location },
                Some(before),
            ) => match (self.has_entry(path, &before).await?, change) {
                // Only attributes have changed, or this server counts versions in another way.
                (true, _) => false,
                (false, FileChange::RemoveFile { .. }) => true,
                (false, _) => return Err(TransferError::Busy { location: location.clone() }),
            },
            _ => false,
        };
        if is_done { Ok(()) } else { Err(error) }
    }

    /// Reports whether a path has an entry with the size, time and type of a known one; a rename does not change them.
    async fn has_entry(&self, path: &str, known: &Entry) -> Result<bool, TransferError> {
        let identity = |entry: &Entry| (entry.size_bytes, entry.modified_s, entry.modified_ns, entry.is_directory);
        match self.entry(path).await {
            Err(TransferError::NotFound { .. }) => Ok(false),
            found => Ok(identity(&found?) == identity(known)),
        }
    }

    /// Returns bytes `[start, end)` of the version of a file with the size and modification time of `entry`, at most as
    /// many as a block has. This is faster than [`Self::read_blocks`] for a small part of a block.
    ///
    /// # Errors
    /// The same errors as [`Self::read_blocks`].
    pub async fn read_bytes(&self, path: &str, entry: &Entry, bytes: Range<u64>) -> Result<Bytes, TransferError> {
        let (path, size_bytes) = (self.server_path(path), bytes.end.saturating_sub(bytes.start));
        let version = version_of(entry);
        let body = to_json(&BytesRequest { path: path.clone(), version, offset: bytes.start, size_bytes })?;
        for _ in 0..MAX_DAMAGED_BLOCKS {
            let call = self.start_read();
            let (answer, _) = call.0.control.call_action_counting_attempts(BYTES_ACTION, body.clone()).await;
            let messages = answer.map_err(|error| call_error(&path, error))?;
            if let [hash, data] = &messages[..]
                && data.len() as u64 == size_bytes
                && hash[..] == blake3::hash(data).as_bytes()[..]
            {
                return Ok(data.clone());
            }
        }
        Err(TransferError::Damaged { location: path })
    }

    /// Reads blocks `[start, end)` (0-based, [`BLOCK_BYTES`](crate::blake3_tree::BLOCK_BYTES)) of the version of a file
    /// with the size and modification time of `entry`, and passes each verified block with its index to `on_block`, in order.
    ///
    /// # Errors
    /// [`TransferError::SourceChanged`] if the file has another version by now; [`TransferError::NotFound`] and
    /// [`TransferError::Rejected`] if the file may not be read; [`TransferError::Damaged`] if a block arrives damaged
    /// on every attempt; [`TransferError::Flight`] if no server answers.
    pub async fn read_blocks(
        &self,
        path: &str,
        entry: &Entry,
        blocks: Range<u64>,
        mut on_block: impl FnMut(u64, Bytes) + Send,
    ) -> Result<(), TransferError> {
        let mut progress =
            ReadProgress { path: self.server_path(path), entry, next: blocks.start, end: blocks.end, damaged: 0 };
        let mut last_progress = (Instant::now(), progress.next);
        while progress.next < progress.end {
            let call = self.start_read();
            let control = &call.0.control;
            let outcome = match control.connected_client().await {
                Ok(client) => progress.read_from(&client, &mut on_block).await,
                Err(error) => Err(error.into()),
            };
            if progress.next > last_progress.1 {
                last_progress = (Instant::now(), progress.next);
                control.record_answer();
            }
            let error = match outcome {
                Ok(()) => continue,
                Err(TransferError::Flight(error)) => error,
                Err(error) => return Err(error),
            };
            if !control.is_retried(&error, last_progress.0) {
                return Err(call_error(path, error));
            }
            control.disconnect();
            tokio::time::sleep(READ_RETRY_DELAY).await;
        }
        Ok(())
    }
}

/// Returns the version of an entry that is the same at all members of a pool.
fn version_of(entry: &Entry) -> FileVersion {
    let Entry { size_bytes, modified_s, modified_ns, .. } = *entry;
    FileVersion::SizeAndTime { size_bytes, modified_s, modified_ns }
}

/// The progress of a read.
struct ReadProgress<'e> {
    /// Path below the root of the server.
    path: String,
    entry: &'e Entry,
    /// The next block to be received, and the end of the range.
    next: u64,
    end: u64,
    /// Number of times that the next block has arrived damaged.
    damaged: u32,
}

impl ReadProgress<'_> {
    async fn read_from(
        &mut self,
        client: &Client,
        on_block: &mut (impl FnMut(u64, Bytes) + Send),
    ) -> Result<(), TransferError> {
        let range = ReadRange {
            file: 0,
            path: self.path.clone(),
            version: version_of(self.entry),
            start: self.next,
            end: self.end,
            bypass_cache: self.damaged > 0,
        };
        let request = ReadRequest { ranges: vec![range], send_options: SendOptions::default() };
        let mut batches = client.download(encode_message(READ_TICKET, &request)?).await?;
        while let Some((batch, metadata)) = batches.next().await? {
            for block in BlockBatch::from_batch(&batch)?.iter() {
                let verified =
                    (block.block_index == self.next).then(|| block.verified_bytes(self.entry.size_bytes)).flatten();
                let Some(data) = verified else {
                    self.damaged += 1;
                    if self.damaged >= MAX_DAMAGED_BLOCKS {
                        return Err(TransferError::Damaged { location: self.path.clone() });
                    }
                    return Ok(());
                };
                on_block(self.next, data);
                (self.next, self.damaged) = (self.next + 1, 0);
            }
            if !metadata.is_empty() {
                let report: BlockReport = from_json(&metadata)?;
                if let Some((_, why)) = report.rejected_files.into_iter().next() {
                    return Err(why.into_error(&self.path));
                }
            }
        }
        match self.next == self.end {
            true => Ok(()),
            false => Err(TransferError::SourceChanged { location: self.path.clone() }),
        }
    }
}

/// Converts the error of a call about a path. Unlike in a copy, whose messages name several paths, the kind of the error
/// is kept.
fn call_error(path: &str, error: FlightError) -> TransferError {
    let FlightError::Status { status, .. } = &error else { return error.into() };
    let location = escape_for_display(path);
    match status.code() {
        Code::NotFound => TransferError::NotFound { location },
        Code::FailedPrecondition => TransferError::SourceChanged { location },
        Code::Aborted => TransferError::Busy { location },
        _ => error_from_status(error),
    }
}
