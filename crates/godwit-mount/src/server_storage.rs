//! The files of a server or pool as storage, through the client of `godwit-transfer`.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use godwit_flight::{ErrorReason, FlightError};
use godwit_transfer::file_listing::Entry;
use godwit_transfer::location::RemoteLocation;
use godwit_transfer::path_text::{path_to_text, text_to_path};
use godwit_transfer::unix_time::{time_from_unix, unix_time};
use godwit_transfer::{Credentials, FileChange, RemoteFiles, StorageSpace, StoreOptions, TransferError};
use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, block_count};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};

use crate::block_cache::{BlockCache, FileVersionKey};
use crate::file_tree::MountLog;
use crate::read_ahead::{ReadAhead, ReadPlan};
use crate::storage::{Attributes, DirectoryEntry, Storage, StorageError, StoredFile, WriteOptions};

/// Largest number of blocks that one call requests: 4 MiB. A longer range is requested by several calls at a time, which
/// use several connections.
const MAX_REQUEST_BLOCKS: u64 = 16;

/// Options of [`ServerStorage`].
#[derive(Clone, Debug)]
pub struct ServerStorageOptions {
    /// Size of the cache of blocks in memory, bytes.
    pub cache_bytes: u64,
    /// Longest time for which calls are repeated while no server answers.
    pub wait_timeout: Duration,
    /// Number of threads that receive and verify blocks.
    pub threads: usize,
}

/// The files of a server or pool.
pub struct ServerStorage {
    inner: Arc<SharedState>,
    /// The threads that run the calls; `None` once the storage is dropped.
    runtime: Option<Runtime>,
    /// Set when the mount ends, which stops uploads.
    cancelled: Arc<AtomicBool>,
}

struct SharedState {
    files: RemoteFiles,
    cache: BlockCache,
    runtime: Handle,
    /// Number of open files that are read as streams.
    stream_count: AtomicU64,
}

/// Blocks that a task has claimed. Those that the task has not received when it ends, also by a panic, fail, so that
/// their readers do not wait forever.
struct ClaimedBlocks {
    shared: Arc<SharedState>,
    key: Arc<FileVersionKey>,
    /// The blocks that were not received.
    blocks: Range<u64>,
    /// The block whose readers receive the error.
    reported: Option<u64>,
    error: StorageError,
}

impl ClaimedBlocks {
    fn receive(&mut self, block: u64, data: Bytes) {
        self.shared.cache.insert(&self.key, block, data);
        self.blocks.start = block + 1;
    }

    fn set_error(&mut self, error: &TransferError) {
        self.error = read_error(&self.key.path, error);
    }
}

impl Drop for ClaimedBlocks {
    fn drop(&mut self) {
        self.shared.cache.fail(&self.key, self.blocks.clone(), self.reported, &self.error);
    }
}

/// A version of a file of a server.
struct ServerFile {
    shared: Arc<SharedState>,
    key: Arc<FileVersionKey>,
    path_text: String,
    entry: Entry,
    read_ahead: Mutex<ReadAhead>,
}

impl ServerStorage {
    /// Returns the files below a location. `log` receives a message when the server or pool does not answer, and one when
    /// it answers again.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if the credentials do not contain the pool, or contain an invalid certificate;
    /// [`TransferError::Internal`] if no threads can be started.
    pub fn new(
        location: RemoteLocation,
        credentials: &Credentials,
        options: &ServerStorageOptions,
        cancelled: Arc<AtomicBool>,
        log: MountLog,
    ) -> Result<Self, TransferError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(options.threads).enable_all().build();
        let runtime = runtime.map_err(|error| TransferError::Internal { problem: error.to_string() })?;
        let files = RemoteFiles::new(location, credentials, options.wait_timeout, log)?;
        let cache = BlockCache::new((options.cache_bytes / BLOCK_BYTES) as usize);
        let (runtime_handle, stream_count) = (runtime.handle().clone(), AtomicU64::new(0));
        let inner = Arc::new(SharedState { files, cache, runtime: runtime_handle, stream_count });
        Ok(Self { inner, runtime: Some(runtime), cancelled })
    }

    /// Checks that the location is a directory that may be read. Returns true if the server accepts changes.
    ///
    /// # Errors
    /// [`TransferError`] of the first call: the server does not answer, or rejects the token; the location does not
    /// exist, or is a file.
    pub fn check(&self) -> Result<bool, TransferError> {
        let files = &self.inner.files;
        self.inner.runtime.block_on(async {
            if !files.entry("").await?.is_directory {
                let problem = "the location is a file; name the directory that contains it".to_owned();
                return Err(TransferError::Rejected { problem });
            }
            files.is_writable().await
        })
    }

    fn run<T>(&self, path: &Path, call: impl Future<Output = Result<T, TransferError>>) -> Result<T, StorageError> {
        self.inner.runtime.block_on(call).map_err(|error| storage_error(path, &error))
    }

    fn entry(&self, path: &Path) -> Result<Entry, StorageError> {
        self.run(path, self.inner.files.entry(&path_to_text(path)))
    }

    fn change(&self, path: &Path, change: FileChange) -> Result<(), StorageError> {
        self.run(path, self.inner.files.change(&change))
    }
}

impl Drop for ServerStorage {
    fn drop(&mut self) {
        // Do not wait for calls whose results are no longer needed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn attributes_of(entry: &Entry) -> Attributes {
    Attributes {
        is_directory: entry.is_directory,
        size_bytes: entry.size_bytes,
        mode: entry.mode,
        modified: time_from_unix(entry.modified_s, entry.modified_ns),
        version: entry.version,
    }
}

/// Converts an error of a server to the error number of POSIX that describes it.
fn storage_error(path: &Path, error: &TransferError) -> StorageError {
    let errno = match error {
        TransferError::NotFound { .. } => libc::ENOENT,
        TransferError::Rejected { .. } => libc::EACCES,
        TransferError::Unsupported { .. } => libc::EOPNOTSUPP,
        TransferError::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        TransferError::SourceChanged { .. } => libc::ESTALE,
        TransferError::Busy { .. } => libc::EBUSY,
        TransferError::RemoteFailure { reason, .. } => reason.map_or(libc::EIO, reason_errno),
        TransferError::Timeout { .. } => libc::ETIMEDOUT,
        TransferError::Flight(
            FlightError::Connect { .. }
            | FlightError::Connection { .. }
            | FlightError::Io { .. }
            | FlightError::MissingStatus { .. },
        ) => libc::ETIMEDOUT,
        TransferError::Interrupted => libc::EINTR,
        TransferError::PartialFailure { first_failure, .. } => return storage_error(path, first_failure),
        _ => libc::EIO,
    };
    StorageError { errno, message: format!("{}: {}", path.display(), godwit_model::message_with_causes(error)) }
}

/// Converts the error of a read of an open file, which existed when it was opened.
fn read_error(path: &Path, error: &TransferError) -> StorageError {
    let error = storage_error(path, error);
    match error.errno {
        libc::ENOENT => StorageError { errno: libc::ESTALE, ..error },
        _ => error,
    }
}

fn reason_errno(reason: ErrorReason) -> i32 {
    match reason {
        ErrorReason::StorageFull => libc::ENOSPC,
        ErrorReason::QuotaExceeded => libc::EDQUOT,
        ErrorReason::FileExists => libc::EEXIST,
        ErrorReason::DirectoryNotEmpty => libc::ENOTEMPTY,
        ErrorReason::NotADirectory => libc::ENOTDIR,
        ErrorReason::IsADirectory => libc::EISDIR,
        ErrorReason::InvalidFileName => libc::ENAMETOOLONG,
        ErrorReason::CrossesDevices => libc::EXDEV,
        ErrorReason::FileTooLarge => libc::EFBIG,
        ErrorReason::ReadOnlyStorage => libc::EROFS,
        ErrorReason::StorageAccessDenied => libc::EACCES,
        _ => libc::EIO,
    }
}

impl Storage for ServerStorage {
    fn list(&self, directory: &Path) -> Result<Vec<DirectoryEntry>, StorageError> {
        let entries = self.run(directory, self.inner.files.list_directory(&path_to_text(directory)))?;
        let named = entries.iter().filter_map(|entry| {
            let name = text_to_path(&entry.path)?.into_os_string();
            Some(DirectoryEntry { name, attributes: attributes_of(entry) })
        });
        Ok(named.collect())
    }

    fn attributes(&self, path: &Path) -> Result<Attributes, StorageError> {
        self.entry(path).map(|entry| attributes_of(&entry))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>, StorageError> {
        let entry = self.entry(path)?;
        if entry.is_directory {
            return Err(StorageError::new(libc::EISDIR, path));
        }
        let (size_bytes, modified) = (entry.size_bytes, time_from_unix(entry.modified_s, entry.modified_ns));
        let key = Arc::new(FileVersionKey { path: path.to_owned(), size_bytes, modified, version: entry.version });
        let (shared, path_text) = (self.inner.clone(), path_to_text(path));
        let file = Arc::new(ServerFile { shared, key, path_text, entry, read_ahead: Mutex::default() });
        // Request the first block now: a file that may not be read is rejected here, not by the first read.
        if file.entry.size_bytes > 0 {
            file.block(0)?;
        }
        Ok(file)
    }

    fn write_file(&self, path: &Path, local: &Path, options: &WriteOptions) -> Result<(), StorageError> {
        let text = path_to_text(path);
        let &WriteOptions { mode, modified, is_exclusive } = options;
        let options = StoreOptions { mode, modified: unix_time(modified), is_exclusive };
        self.run(path, self.inner.files.write_file(&text, local, &options, &self.cancelled))
    }

    fn create_directory(&self, path: &Path, mode: u32) -> Result<(), StorageError> {
        self.change(path, FileChange::CreateDirectory { path: path_to_text(path), mode })
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path, FileChange::RemoveFile { path: path_to_text(path), version: 0 })
    }

    fn remove_directory(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path, FileChange::RemoveDirectory { path: path_to_text(path), version: 0 })
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<(), StorageError> {
        let (path, destination) = (path_to_text(from), path_to_text(to));
        self.change(from, FileChange::Rename { path, version: 0, destination, replace })
    }

    fn set_attributes(&self, path: &Path, mode: Option<u32>, modified: Option<SystemTime>) -> Result<(), StorageError> {
        let modified = modified.map(unix_time);
        self.change(path, FileChange::SetAttributes { path: path_to_text(path), version: 0, mode, modified })
    }

    fn space(&self) -> Result<StorageSpace, StorageError> {
        self.run(Path::new(""), self.inner.files.storage_space())
    }

    fn digest(&self, path: &Path) -> Result<String, StorageError> {
        let text = path_to_text(path);
        let digest = self.run(path, async {
            let entry = self.inner.files.entry(&text).await?;
            self.inner.files.digest(&text, &entry).await
        });
        digest?.ok_or_else(|| StorageError::new(libc::ESTALE, path))
    }

    fn accepts_name(&self, name: &OsStr) -> bool {
        // Servers neither list nor accept names that begin with a dot.
        !name.as_bytes().starts_with(b".")
    }
}

impl ServerFile {
    /// Records a read of bytes, which are in `blocks`. The windows of all streams take at most half of the cache.
    fn record_read(&self, bytes: Range<u64>, blocks: Range<u64>) -> ReadPlan {
        let streams = &self.shared.stream_count;
        let max_window = self.shared.cache.max_blocks() / (2 * streams.load(Ordering::Relaxed).max(1));
        let mut read_ahead = self.read_ahead.lock();
        let was_streaming = read_ahead.is_streaming();
        let plan = read_ahead.record_read(bytes, blocks, block_count(self.entry.size_bytes), max_window);
        match (was_streaming, read_ahead.is_streaming()) {
            (false, true) => streams.fetch_add(1, Ordering::Relaxed),
            (true, false) => streams.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        plan
    }

    /// Returns a block; requests it if it is absent.
    fn block(&self, block: u64) -> Result<Bytes, StorageError> {
        loop {
            if let Some(data) = self.shared.cache.wait_for(&self.key, block)? {
                return Ok(data);
            }
            self.request(block..block + 1, Some(block));
        }
    }

    /// Requests the absent blocks of a range. If the request fails, the readers of block `reported` receive the error.
    fn request(&self, blocks: Range<u64>, reported: Option<u64>) {
        let claimed = self.shared.cache.claim(&self.key, blocks);
        for start in claimed.clone().step_by(MAX_REQUEST_BLOCKS as usize) {
            self.request_claimed(start..claimed.end.min(start + MAX_REQUEST_BLOCKS), reported);
        }
    }

    fn request_claimed(&self, claimed: Range<u64>, reported: Option<u64>) {
        let (shared, key, entry) = (self.shared.clone(), self.key.clone(), self.entry.clone());
        let (path, range) = (self.path_text.clone(), claimed.clone());
        let error = StorageError::new(libc::EIO, &key.path);
        let mut claimed = ClaimedBlocks { shared: shared.clone(), key, blocks: claimed, reported, error };
        self.shared.runtime.spawn(async move {
            let received = |block, data| claimed.receive(block, data);
            let outcome = shared.files.read_blocks(&path, &entry, range, received).await;
            if let Err(error) = outcome {
                claimed.set_error(&error);
            }
        });
    }

    /// Returns bytes that are not in the cache.
    fn read_bytes(&self, bytes: Range<u64>) -> Result<Bytes, StorageError> {
        let read = self.shared.files.read_bytes(&self.path_text, &self.entry, bytes);
        self.shared.runtime.block_on(read).map_err(|error| read_error(&self.key.path, &error))
    }
}

impl Drop for ServerFile {
    fn drop(&mut self) {
        if self.read_ahead.lock().is_streaming() {
            self.shared.stream_count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl StoredFile for ServerFile {
    fn read_at(&self, offset: u64, size_bytes: usize) -> Result<Bytes, StorageError> {
        let end = offset.saturating_add(size_bytes as u64).min(self.entry.size_bytes);
        if offset >= end {
            return Ok(Bytes::new());
        }
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let is_one_block = blocks.end - blocks.start == 1;
        let plan = self.record_read(offset..end, blocks.clone());
        match plan {
            ReadPlan::Bytes if is_one_block && self.shared.cache.is_absent(&self.key, blocks.start) => {
                return self.read_bytes(offset..end);
            }
            ReadPlan::Stream(ahead) if !ahead.is_empty() => self.request(ahead, None),
            _ => {}
        }
        let part = |block: u64| -> Result<Bytes, StorageError> {
            let bytes = self.block(block)?;
            let first = offset.saturating_sub(block * BLOCK_BYTES) as usize;
            let last = ((end - block * BLOCK_BYTES) as usize).min(bytes.len());
            Ok(bytes.slice(first.min(last)..last))
        };
        if is_one_block {
            return part(blocks.start);
        }
        let mut data = Vec::with_capacity((end - offset) as usize);
        for block in blocks {
            data.extend_from_slice(&part(block)?);
        }
        Ok(data.into())
    }

    fn attributes(&self) -> Attributes {
        attributes_of(&self.entry)
    }
}
