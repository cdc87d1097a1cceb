//! Blocks that a relay keeps: on disk, by their hashes, up to so many bytes, those that were used last.
//!
//! `blocks/` holds the bytes of blocks under their hashes, which they are compared with whenever they leave. `origins/` holds, for each
//! state of a file at a server, the hashes of its blocks as that server sent them: 40 bytes a block, hash and check. `new/` holds what
//! is being written. Nothing here says who may have a block: that is asked of the server that it is of, by whoever reads from here.
//!
//! The order of use outlives the process as the times of files. A cache that cannot write is as good as empty, which is told.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::recency::{Name, Recency};
use crate::error::TransferError;
use crate::protocol::FileState;
use crate::tree::{BLOCK_BYTES, BlockHash, hash_block};

/// The least that a cache may have: what a few clients have under way at a time has room in it.
pub const RELAY_CACHE_LEAST_BYTES: u64 = 256 << 20;
/// Files in the cache, at most: each takes some 200 bytes of memory.
const FILES: usize = 1 << 20;
/// Bytes that are known of a block of a file: its hash, and the first bytes of the hash of that and its place.
const RECORD_BYTES: usize = blake3::OUT_LEN + 8;
/// Blocks of a file that are kept, from its beginning on: 1 PiB of it.
pub(super) const BLOCKS_OF_A_FILE: u64 = 1 << 32;
/// That nothing can be written is told once in so long.
const TELL_INTERVAL: Duration = Duration::from_secs(60);

/// A state of a file at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin(BlockHash);

impl Origin {
    /// Of a path in one state at a server, which is written in one way only.
    pub(super) fn of(server: &str, path: &str, state: &FileState) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("godwit 2026-11 origins of blocks");
        // Blocks of another version of this program may be of another length.
        hasher.update(&BLOCK_BYTES.to_le_bytes());
        for part in [server.as_bytes(), path.trim_matches('/').as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        match state {
            FileState::Version(version) => hasher.update(b"v").update(&version.to_le_bytes()),
            FileState::Written { size_bytes, modified_s, modified_ns } => hasher
                .update(b"w")
                .update(&size_bytes.to_le_bytes())
                .update(&modified_s.to_le_bytes())
                .update(&modified_ns.to_le_bytes()),
        };
        Self(*hasher.finalize().as_bytes())
    }

    fn record(&self, block: u64, hash: &BlockHash) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..blake3::OUT_LEN].copy_from_slice(hash);
        let check = blake3::Hasher::new().update(&self.0).update(&block.to_le_bytes()).update(hash).finalize();
        record[blake3::OUT_LEN..].copy_from_slice(&check.as_bytes()[..8]);
        record
    }

    fn hash_in(&self, block: u64, record: &[u8]) -> Option<BlockHash> {
        let hash: BlockHash = *record.first_chunk()?;
        (self.record(block, &hash) == *record).then_some(hash)
    }
}

/// Blocks on disk, for a server that sends on what others send.
#[derive(Debug)]
pub struct RelayCache {
    directory: PathBuf,
    /// Keeps other processes away.
    _lock: File,
    /// Names of files change only while it is held.
    recency: Mutex<Recency>,
    writes: AtomicU64,
    told: Mutex<Option<Instant>>,
    tell: fn(&str),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether bytes are what a hash says of them as that block of a file.
pub(super) fn is_block(data: &[u8], block: u64, hash: &BlockHash) -> bool {
    let bytes = data.len() as u64;
    // What is no block has no hash.
    let may_be = bytes <= BLOCK_BYTES && (bytes > 0 || block == 0);
    let of_several = || (block > 0 || bytes == BLOCK_BYTES) && hash_block(data, block, u64::MAX) == *hash;
    may_be && (of_several() || block == 0 && hash_block(data, 0, bytes) == *hash)
}

impl RelayCache {
    /// The cache in a directory, which is made where it is not there. `tell` is told when it cannot be written.
    ///
    /// # Errors
    /// [`TransferError::File`]; [`TransferError::Busy`] where another server has it; [`TransferError::Refused`] where it may hold next to nothing.
    pub fn open(directory: &Path, limit_bytes: u64, tell: fn(&str)) -> Result<Self, TransferError> {
        if limit_bytes < RELAY_CACHE_LEAST_BYTES {
            let least = RELAY_CACHE_LEAST_BYTES >> 20;
            return Err(TransferError::refused(format!("a relay's cache has {least}M at least")));
        }
        for part in ["", "blocks", "origins", "new"] {
            let path = directory.join(part);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(TransferError::file("make", &path))?;
        }
        let path = directory.join("lock");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let held = opened.map_err(TransferError::file("open", &path))?;
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let problem = format!("{} is the cache of another server; name another directory", directory.display());
                return Err(TransferError::refused(problem));
            }
            Err(TryLockError::Error(source)) => return Err(TransferError::File { doing: "lock", path, source }),
        }
        let found = Self {
            directory: directory.to_owned(),
            _lock: held,
            recency: Mutex::new(Recency::new(limit_bytes, FILES)),
            writes: AtomicU64::new(0),
            told: Mutex::default(),
            tell,
        };
        found.look()?;
        Ok(found)
    }

    /// Finds what an earlier process left, the oldest first.
    fn look(&self) -> Result<(), TransferError> {
        let mut found: Vec<(SystemTime, Name, u64)> = Vec::new();
        let new = self.directory.join("new");
        for (path, _) in files_in(&new)? {
            fs::remove_file(&path).map_err(TransferError::file("remove", &path))?;
        }
        for (part, name) in [("blocks", Name::Block as fn(BlockHash) -> Name), ("origins", Name::Origin)] {
            let part = self.directory.join(part);
            for shelf in fs::read_dir(&part).map_err(TransferError::file("list", &part))? {
                let shelf = shelf.map_err(TransferError::file("list", &part))?.path();
                for (path, metadata) in files_in(&shelf)? {
                    let digits = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                    let Ok(hash) = blake3::Hash::from_hex(digits) else { continue };
                    let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push((used, name(*hash.as_bytes()), weight_of(&metadata)));
                }
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let mut recency = lock(&self.recency);
        for (_, name, bytes) in found {
            // Where the limit is less than it was, the oldest go.
            let gone = recency.reserve(bytes);
            recency.add(name, bytes);
            self.unlink(&gone);
        }
        Ok(())
    }

    fn path_of(&self, name: Name) -> PathBuf {
        let (part, hash) = match name {
            Name::Block(hash) => ("blocks", hash),
            Name::Origin(hash) => ("origins", hash),
        };
        let digits = blake3::Hash::from_bytes(hash).to_hex();
        self.directory.join(part).join(&digits[..2]).join(digits.as_str())
    }

    fn unlink(&self, names: &[Name]) {
        for name in names {
            // What is not there needs no removing; what cannot be removed is found again by the next process.
            let _ = fs::remove_file(self.path_of(*name));
        }
    }

    fn forget(&self, name: Name) {
        let mut recency = lock(&self.recency);
        recency.remove(name);
        self.unlink(&[name]);
    }

    fn trouble(&self, error: &io::Error) {
        let mut told = lock(&self.told);
        if told.is_none_or(|told| told.elapsed() >= TELL_INTERVAL) {
            *told = Some(Instant::now());
            let directory = self.directory.display();
            (self.tell)(&format!("{directory} cannot be written ({error}); blocks are sent on and not kept"));
        }
    }

    /// The hash of a block of a file, where it is known. That is what it was when somebody read it: the server says whether it still has that
    /// state.
    pub(super) fn hash_of(&self, origin: &Origin, block: u64) -> Option<BlockHash> {
        let name = Name::Origin(origin.0);
        if !lock(&self.recency).touch(name) {
            return None;
        }
        let file = File::open(self.path_of(name)).ok()?;
        let _ = file.set_modified(SystemTime::now());
        let mut record = [0; RECORD_BYTES];
        file.read_exact_at(&mut record, block.checked_mul(RECORD_BYTES as u64)?).ok()?;
        origin.hash_in(block, &record)
    }

    /// Whether a block is there, as far as is known without reading it.
    pub(super) fn has(&self, hash: &BlockHash) -> bool {
        lock(&self.recency).touch(Name::Block(*hash))
    }

    /// The bytes of a block, which are what its hash says. One that is damaged is removed.
    pub(super) fn read(&self, block: u64, hash: &BlockHash) -> Option<Vec<u8>> {
        let name = Name::Block(*hash);
        if !lock(&self.recency).touch(name) {
            return None;
        }
        let mut data = Vec::new();
        let read = File::open(self.path_of(name)).and_then(|file| {
            let _ = file.set_modified(SystemTime::now());
            file.take(BLOCK_BYTES + 1).read_to_end(&mut data)
        });
        if read.is_ok() && is_block(&data, block, hash) {
            return Some(data);
        }
        self.forget(name);
        None
    }

    /// Keeps a block that was verified, of a file in one state; false where it could not be kept.
    pub(super) fn keep(&self, origin: &Origin, block: u64, data: &[u8], hash: &BlockHash) -> bool {
        if block >= BLOCKS_OF_A_FILE {
            return false;
        }
        let kept = self.keep_bytes(data, hash).and_then(|()| self.learn(origin, block, hash));
        kept.inspect_err(|error| self.trouble(error)).is_ok()
    }

    fn keep_bytes(&self, data: &[u8], hash: &BlockHash) -> io::Result<()> {
        let (name, bytes) = (Name::Block(*hash), data.len() as u64);
        {
            let mut recency = lock(&self.recency);
            if recency.touch(name) {
                return Ok(());
            }
            let gone = recency.reserve(bytes);
            self.unlink(&gone);
        }
        let aside = self.directory.join("new").join(self.writes.fetch_add(1, Ordering::Relaxed).to_string());
        let path = self.path_of(name);
        let written = create(&aside).and_then(|mut file| file.write_all(data)).and_then(|()| make_shelf(&path));
        let mut recency = lock(&self.recency);
        match written.and_then(|()| fs::rename(&aside, &path)) {
            Ok(()) => recency.add(name, bytes),
            Err(error) => {
                recency.give_back(bytes);
                let _ = fs::remove_file(&aside);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records which block it is of a file.
    fn learn(&self, origin: &Origin, block: u64, hash: &BlockHash) -> io::Result<()> {
        let name = Name::Origin(origin.0);
        let path = self.path_of(name);
        make_shelf(&path)?;
        let mut recency = lock(&self.recency);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        let before = weight_of(&file.metadata()?);
        let written = file.write_all_at(&origin.record(block, hash), block * RECORD_BYTES as u64);
        let after = file.metadata().map_or(before, |metadata| weight_of(&metadata));
        if !recency.touch(name) || before != after {
            recency.remove(name);
            let gone = recency.reserve(after);
            recency.add(name, after);
            self.unlink(&gone);
        }
        written
    }

    /// Bytes of all that is kept.
    #[cfg(test)]
    fn bytes(&self) -> u64 {
        lock(&self.recency).bytes()
    }
}

/// What a file takes on its disk, bytes: not its length, of which parts may be holes.
fn weight_of(metadata: &fs::Metadata) -> u64 {
    metadata.blocks() * 512
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// The directory that a file is to be in.
fn make_shelf(path: &Path) -> io::Result<()> {
    let Some(shelf) = path.parent() else { return Ok(()) };
    match DirBuilder::new().mode(0o700).create(shelf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn files_in(directory: &Path) -> Result<Vec<(PathBuf, fs::Metadata)>, TransferError> {
    let mut files = Vec::new();
    let listed = fs::read_dir(directory).map_err(TransferError::file("list", directory))?;
    for entry in listed {
        let entry = entry.map_err(TransferError::file("list", directory))?;
        let metadata = entry.metadata().map_err(TransferError::file("list", directory))?;
        if metadata.is_file() {
            files.push((entry.path(), metadata));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
