//! The block cache of a relay. It stores blocks on disk by their hashes, and removes the least recently used ones if it
//! exceeds its size limit.
//!
//! The directory `blocks/` contains blocks, named by their hashes, which are verified on every read. `origins/`
//! contains a file for each version of a file at a server, with the hashes of its blocks as that server sent them: 40
//! bytes per block, for hash and checksum. `new/` contains files that are being written. The cache does not check
//! permissions: before its users send a block, they ask the server of the block whether the client may read it.
//!
//! The modification times of the files record the order of use across restarts. If the cache cannot be written, it acts
//! as an empty one and warns.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use godwit_files::LockedFile;
use parking_lot::Mutex;

use crate::copy_protocol::FileVersion;
use crate::error::TransferError;
use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, BlockHash, hash_block};
use godwit_transfer_session::lru::{CacheKey, LruIndex};

/// Smallest size limit of a cache, bytes. It is enough for the blocks in flight of a few clients.
pub const RELAY_CACHE_MIN_BYTES: u64 = 256 << 20;
/// Largest number of files in the cache. Memory: some 200 bytes per file.
const MAX_FILES: usize = 1 << 20;
/// Size of the record of a block in `origins/`, bytes: the hash of the block, and a checksum of eight bytes over
/// origin, block index and hash.
const RECORD_BYTES: usize = blake3::OUT_LEN + 8;
/// Number of blocks from the start of a file that can be cached: 1 PiB.
pub(super) const MAX_BLOCKS_PER_FILE: u64 = 1 << 32;
/// Shortest time between two warnings that the cache cannot be written.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The identifier of a version of a file at a server: a hash of server, path and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin(BlockHash);

impl Origin {
    /// Returns the identifier of a version of the file `path` at a server. `server` must be the canonical URI.
    pub(super) fn new(server: &str, path: &str, state: &FileVersion) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("godwit 2026-11 origins of blocks");
        // Include the block size, because it may differ in another version of godwit.
        hasher.update(&BLOCK_BYTES.to_le_bytes());
        for part in [server.as_bytes(), path.trim_matches('/').as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        match state {
            FileVersion::ServerVersion(version) => hasher.update(b"v").update(&version.to_le_bytes()),
            FileVersion::SizeAndTime { size_bytes, modified_s, modified_ns } => hasher
                .update(b"w")
                .update(&size_bytes.to_le_bytes())
                .update(&modified_s.to_le_bytes())
                .update(&modified_ns.to_le_bytes()),
        };
        Self(*hasher.finalize().as_bytes())
    }

    fn encode_record(&self, block: u64, hash: &BlockHash) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..blake3::OUT_LEN].copy_from_slice(hash);
        let check = blake3::Hasher::new().update(&self.0).update(&block.to_le_bytes()).update(hash).finalize();
        record[blake3::OUT_LEN..].copy_from_slice(&check.as_bytes()[..8]);
        record
    }

    fn decode_record(&self, block: u64, record: &[u8]) -> Option<BlockHash> {
        let hash: BlockHash = *record.first_chunk()?;
        (self.encode_record(block, &hash) == *record).then_some(hash)
    }
}

/// The block cache of a relay.
#[derive(Debug)]
pub struct RelayCache {
    directory: PathBuf,
    /// The lock that keeps other processes from using the directory.
    _lock: LockedFile,
    /// Index of the files by recency of use. Files are renamed and removed only while this mutex is locked.
    lru: Mutex<LruIndex>,
    write_count: AtomicU64,
    last_warning: Mutex<Option<Instant>>,
    warn: fn(&str),
}

/// Reports whether the data match a hash as the block with this index of a file, whatever the size of the file.
pub(super) fn matches_block_hash(data: &[u8], block: u64, hash: &BlockHash) -> bool {
    let bytes = data.len() as u64;
    // Data that cannot be a block have no hash: more than a block, or none at an index above 0.
    let may_be = bytes <= BLOCK_BYTES && (bytes > 0 || block == 0);
    let of_several = || (block > 0 || bytes == BLOCK_BYTES) && hash_block(data, block, u64::MAX) == *hash;
    may_be && (of_several() || block == 0 && hash_block(data, 0, bytes) == *hash)
}

impl RelayCache {
    /// Opens the cache in a directory, which is created if it does not exist. `warn` is called with a message if the
    /// cache cannot be written later.
    ///
    /// # Errors
    /// [`TransferError::Io`] if the directory cannot be read or written; [`TransferError::Rejected`] if another server
    /// uses the directory, or if the limit is below [`RELAY_CACHE_MIN_BYTES`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_transfer::{RELAY_CACHE_MIN_BYTES, RelayCache, TransferError};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let warn = |message: &str| eprintln!("{message}");
    /// let cache = RelayCache::open(directory.path(), RELAY_CACHE_MIN_BYTES, warn)?;
    /// assert!(directory.path().join("blocks").is_dir());
    ///
    /// // The directory is locked as long as the cache is open.
    /// let second = RelayCache::open(directory.path(), RELAY_CACHE_MIN_BYTES, warn);
    /// assert!(matches!(second, Err(TransferError::Rejected { .. })));
    /// drop(cache);
    /// assert!(RelayCache::open(directory.path(), RELAY_CACHE_MIN_BYTES, warn).is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(directory: &Path, limit_bytes: u64, warn: fn(&str)) -> Result<Self, TransferError> {
        if limit_bytes < RELAY_CACHE_MIN_BYTES {
            let least = RELAY_CACHE_MIN_BYTES >> 20;
            return Err(TransferError::rejected(format!("the cache of a relay must have at least {least}M")));
        }
        for part in ["", "blocks", "origins", "new"] {
            let path = directory.join(part);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(TransferError::io_error("create", &path))?;
        }
        let path = directory.join("lock");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let opened = opened.map_err(TransferError::io_error("open", &path))?;
        let held = LockedFile::lock_at(opened, &path, "it is in use").map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                let problem =
                    format!("{} is in use as the cache of another server; name another directory", directory.display());
                TransferError::rejected(problem)
            }
            _ => TransferError::io_error("lock", &path)(error),
        })?;
        let found = Self {
            directory: directory.to_owned(),
            _lock: held,
            lru: Mutex::new(LruIndex::new(limit_bytes, MAX_FILES)),
            write_count: AtomicU64::new(0),
            last_warning: Mutex::default(),
            warn,
        };
        found.load_existing()?;
        Ok(found)
    }

    /// Adds the files that an earlier process left to the index, the least recently used first.
    fn load_existing(&self) -> Result<(), TransferError> {
        let mut found: Vec<(SystemTime, CacheKey, u64)> = Vec::new();
        let new = self.directory.join("new");
        for (path, _) in list_files(&new)? {
            fs::remove_file(&path).map_err(TransferError::io_error("remove", &path))?;
        }
        for (part, name) in [("blocks", CacheKey::Block as fn(BlockHash) -> CacheKey), ("origins", CacheKey::Origin)] {
            let part = self.directory.join(part);
            for directory in fs::read_dir(&part).map_err(TransferError::io_error("list", &part))? {
                let directory = directory.map_err(TransferError::io_error("list", &part))?.path();
                for (path, metadata) in list_files(&directory)? {
                    let digits = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                    let Ok(hash) = blake3::Hash::from_hex(digits) else { continue };
                    let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push((used, name(*hash.as_bytes()), disk_bytes(&metadata)));
                }
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let mut recency = self.lru.lock();
        for (_, name, bytes) in found {
            // If the limit is smaller than before, the least recently used files are removed.
            let gone = recency.reserve_space(bytes);
            recency.insert(name, bytes);
            self.remove_files(&gone);
        }
        Ok(())
    }

    fn file_path(&self, name: CacheKey) -> PathBuf {
        let (part, hash) = match name {
            CacheKey::Block(hash) => ("blocks", hash),
            CacheKey::Origin(hash) => ("origins", hash),
        };
        let digits = blake3::Hash::from_bytes(hash).to_hex();
        self.directory.join(part).join(&digits[..2]).join(digits.as_str())
    }

    fn remove_files(&self, names: &[CacheKey]) {
        for name in names {
            // Ignore errors: if the file does not exist, its removal is not necessary, and if it remains, the next
            // process adds it to its index.
            let _ = fs::remove_file(self.file_path(*name));
        }
    }

    fn remove_entry(&self, name: CacheKey) {
        let mut recency = self.lru.lock();
        recency.remove(name);
        self.remove_files(&[name]);
    }

    fn warn_unwritable(&self, error: &io::Error) {
        let mut last_warning = self.last_warning.lock();
        if last_warning.is_none_or(|warned_at| warned_at.elapsed() >= WARNING_INTERVAL) {
            *last_warning = Some(Instant::now());
            let directory = self.directory.display();
            (self.warn)(&format!("cannot write to {directory} ({error}); blocks are relayed without the cache"));
        }
    }

    /// Returns the hash of a block of a file version if an earlier request has stored it. Only the upstream server can
    /// decide whether the version is current.
    pub(super) fn block_hash(&self, origin: &Origin, block: u64) -> Option<BlockHash> {
        let name = CacheKey::Origin(origin.0);
        if !self.lru.lock().mark_used(name) {
            return None;
        }
        let file = File::open(self.file_path(name)).ok()?;
        let _ = file.set_modified(SystemTime::now());
        let mut record = [0; RECORD_BYTES];
        file.read_exact_at(&mut record, block.checked_mul(RECORD_BYTES as u64)?).ok()?;
        origin.decode_record(block, &record)
    }

    /// Reports whether a block is in the cache, without reading it; marks it as used.
    pub(super) fn contains_block(&self, hash: &BlockHash) -> bool {
        self.lru.lock().mark_used(CacheKey::Block(*hash))
    }

    /// Returns the block with this hash if it is in the cache. A damaged block is removed.
    pub(super) fn read_block(&self, block: u64, hash: &BlockHash) -> Option<Vec<u8>> {
        let name = CacheKey::Block(*hash);
        if !self.lru.lock().mark_used(name) {
            return None;
        }
        let mut data = Vec::new();
        let read = File::open(self.file_path(name)).and_then(|file| {
            let _ = file.set_modified(SystemTime::now());
            file.take(BLOCK_BYTES + 1).read_to_end(&mut data)
        });
        if read.is_ok() && matches_block_hash(&data, block, hash) {
            return Some(data);
        }
        self.remove_entry(name);
        None
    }

    /// Stores a verified block, and its hash for this file version; returns false if that fails.
    pub(super) fn store_block(&self, origin: &Origin, block: u64, data: &[u8], hash: &BlockHash) -> bool {
        if block >= MAX_BLOCKS_PER_FILE {
            return false;
        }
        let kept = self.store_bytes(data, hash).and_then(|()| self.store_origin_record(origin, block, hash));
        kept.inspect_err(|error| self.warn_unwritable(error)).is_ok()
    }

    fn store_bytes(&self, data: &[u8], hash: &BlockHash) -> io::Result<()> {
        let (name, bytes) = (CacheKey::Block(*hash), data.len() as u64);
        {
            let mut recency = self.lru.lock();
            if recency.mark_used(name) {
                return Ok(());
            }
            let gone = recency.reserve_space(bytes);
            self.remove_files(&gone);
        }
        let temporary_path =
            self.directory.join("new").join(self.write_count.fetch_add(1, Ordering::Relaxed).to_string());
        let path = self.file_path(name);
        let written = create_file(&temporary_path)
            .and_then(|mut file| file.write_all(data))
            .and_then(|()| create_parent_directory(&path));
        let mut recency = self.lru.lock();
        match written.and_then(|()| fs::rename(&temporary_path, &path)) {
            Ok(()) => recency.insert(name, bytes),
            Err(error) => {
                recency.release_space(bytes);
                let _ = fs::remove_file(&temporary_path);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stores the hash of a block of a file version in `origins/`.
    fn store_origin_record(&self, origin: &Origin, block: u64, hash: &BlockHash) -> io::Result<()> {
        let name = CacheKey::Origin(origin.0);
        let path = self.file_path(name);
        create_parent_directory(&path)?;
        let mut recency = self.lru.lock();
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        let before = disk_bytes(&file.metadata()?);
        let written = file.write_all_at(&origin.encode_record(block, hash), block * RECORD_BYTES as u64);
        let after = file.metadata().map_or(before, |metadata| disk_bytes(&metadata));
        if !recency.mark_used(name) || before != after {
            recency.remove(name);
            let gone = recency.reserve_space(after);
            recency.insert(name, after);
            self.remove_files(&gone);
        }
        written
    }

    /// Returns the size of all cached files on disk, bytes.
    #[cfg(test)]
    fn used_bytes(&self) -> u64 {
        self.lru.lock().used_bytes()
    }
}

/// Returns the number of bytes that a file takes on disk. If the file has holes, this is less than its length.
fn disk_bytes(metadata: &fs::Metadata) -> u64 {
    metadata.blocks() * 512
}

fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Creates the directory that contains a file.
fn create_parent_directory(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    match DirBuilder::new().mode(0o700).create(parent) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn list_files(directory: &Path) -> Result<Vec<(PathBuf, fs::Metadata)>, TransferError> {
    let mut files = Vec::new();
    let listed = fs::read_dir(directory).map_err(TransferError::io_error("list", directory))?;
    for entry in listed {
        let entry = entry.map_err(TransferError::io_error("list", directory))?;
        let metadata = entry.metadata().map_err(TransferError::io_error("list", directory))?;
        if metadata.is_file() {
            files.push((entry.path(), metadata));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
