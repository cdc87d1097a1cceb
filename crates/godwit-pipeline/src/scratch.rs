//! Scratch space: spill files without a name, gone when the run ends however it ends, and named ones that a later process
//! goes on with.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_kernels::sort::Spill;
use godwit_process::TemporaryPath;

use crate::error::named;

/// A file that only grows, written and read from any thread.
pub struct SpillFile {
    file: File,
    /// The directory, or the file where it has a name: for messages.
    place: PathBuf,
    end: AtomicU64,
    /// Set when nobody waits for the outcome any more.
    abandoned: Arc<AtomicBool>,
    /// Of what was appended since it was last taken; only where it is asked for.
    digest: Option<Mutex<blake3::Hasher>>,
}

impl SpillFile {
    /// A spill file on the file system of `directory`, which must exist. It has no name, so that nothing is left behind
    /// by a kill. `abandoned` tells those who sort in it to give up.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create(directory: &Path, abandoned: Arc<AtomicBool>) -> io::Result<Self> {
        let file = unnamed(directory)?;
        Ok(Self { file, place: directory.to_owned(), end: AtomicU64::new(0), abandoned, digest: None })
    }

    /// A spill file that stays when the process ends: made, or opened with what is in it. Appended bytes are digested.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn keep(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let end = AtomicU64::new(file.metadata()?.len());
        let place = path.to_owned();
        Ok(Self { file, place, end, abandoned: Arc::default(), digest: Some(Mutex::default()) })
    }

    /// As [`SpillFile::keep`], but for those who check what they find by other means.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn reopen(path: &Path, abandoned: Arc<AtomicBool>) -> io::Result<Self> {
        Ok(Self { abandoned, digest: None, ..Self::keep(path)? })
    }

    /// Drops everything from `end` on.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn truncate(&self, end: u64) -> io::Result<()> {
        self.end.store(end, Ordering::Relaxed);
        self.named(self.file.set_len(end))
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn sync(&self) -> io::Result<()> {
        self.named(self.file.sync_data())
    }

    /// BLAKE3 of what was appended since it was last taken. Means something only where one thread appends at a time.
    pub fn take_digest(&self) -> blake3::Hash {
        let Some(digest) = &self.digest else { return blake3::hash(&[]) };
        std::mem::take(&mut *digest.lock().unwrap_or_else(PoisonError::into_inner)).finalize()
    }

    /// Takes room for bytes that are written later; returns where. What is never written reads as zeros.
    pub fn reserve(&self, bytes: u64) -> u64 {
        self.end.fetch_add(bytes, Ordering::Relaxed)
    }

    /// Writes into room that was taken.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.named(self.file.write_all_at(bytes, offset))
    }

    /// Code that uses a spill file works on other files too, so errors name this one.
    fn named<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.map_err(named("use scratch space in", &self.place))
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}

impl Spill for SpillFile {
    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let offset = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.named(self.file.write_all_at(bytes, offset))?;
        if let Some(digest) = &self.digest {
            digest.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
        }
        Ok(offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.named(self.file.read_exact_at(bytes, offset))
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// A file on the file system of `directory`, which must exist. It has no name, so that nothing is left behind by a kill.
///
/// # Errors
/// The I/O error of the file system.
pub fn unnamed(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".godwit-spill-{}", unique()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Makes a directory and those above it, only for this user: genomes are private. One that is there stays as it is.
///
/// # Errors
/// The I/O error of the file system.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A private directory for files of this process. Dropping it removes it and what it holds, and so does a stop by a signal.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    _temporary: TemporaryPath,
}

impl ScratchDirectory {
    /// Creates the directory and those above it.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let temporary = TemporaryPath::new(&path);
        create_private_directory(&path)?;
        // Programs that run elsewhere are given paths within it.
        let path = path.canonicalize()?;
        Ok(Self { path, _temporary: temporary })
    }

    /// Its path, absolute and without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // Best effort: its name is hidden, and no other run uses it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A name no other process or thread of this machine uses.
pub fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
