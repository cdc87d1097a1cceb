//! Scratch files: unnamed spill files, which disappear when the process ends for any reason, and named files, with
//! which a later process resumes the job.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_kernels::sort::Spill;
use godwit_process::TemporaryPath;
use parking_lot::Mutex;

use crate::error::with_file;

/// An append-only file in which any thread may write and read.
pub struct SpillFile {
    file: godwit_files::Spill,
    /// Path of a named file, or the directory of an unnamed one, for error messages.
    path: PathBuf,
    /// Set when the result of the job is no longer needed, so that long operations on the file stop.
    cancelled: Arc<AtomicBool>,
    /// Hash of the bytes that were appended since the hash was last taken; `None` if the hash is not needed.
    digest: Option<Mutex<blake3::Hasher>>,
}

impl SpillFile {
    /// Creates an unnamed spill file on the file system of `directory`, which must exist. The file disappears even if
    /// the process is killed. Sorting in the file stops when `cancelled` is set.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create(directory: &Path, cancelled: Arc<AtomicBool>) -> io::Result<Self> {
        let file = godwit_files::Spill::create(directory)?;
        Ok(Self { file, path: directory.to_owned(), cancelled, digest: None })
    }

    /// Opens or creates a named spill file, which remains when the process ends. Appended bytes are hashed.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn open_resumable(path: &Path) -> io::Result<Self> {
        let file = godwit_files::Spill::open(path)?;
        Ok(Self { file, path: path.to_owned(), cancelled: Arc::default(), digest: Some(Mutex::default()) })
    }

    /// Opens or creates a named spill file like [`SpillFile::open_resumable`], but does not hash appended bytes. For
    /// callers that verify the content in another way.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn open_without_digest(path: &Path, cancelled: Arc<AtomicBool>) -> io::Result<Self> {
        Ok(Self { cancelled, digest: None, ..Self::open_resumable(path)? })
    }

    /// Removes all bytes from offset `end` on.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn truncate(&self, end: u64) -> io::Result<()> {
        self.with_path(self.file.truncate(end))
    }

    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn sync(&self) -> io::Result<()> {
        self.with_path(self.file.sync())
    }

    /// Returns the BLAKE3 of the bytes appended since the last call. The hash is valid only if one thread at a time
    /// appends.
    pub(crate) fn take_digest(&self) -> blake3::Hash {
        let Some(digest) = &self.digest else { return blake3::hash(&[]) };
        std::mem::take(&mut *digest.lock()).finalize()
    }

    /// Reserves space for bytes that are written later, and returns the offset of the space. Reserved bytes that are
    /// not yet written read as zeros.
    pub fn reserve(&self, bytes: u64) -> u64 {
        self.file.reserve(bytes)
    }

    /// Writes bytes into reserved space.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with_path(self.file.write_at(offset, bytes))
    }

    /// Adds the path of this file to an error, because code that uses spill files also uses other files.
    fn with_path<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.map_err(with_file("use scratch space in", &self.path))
    }

    /// Returns the size of the file including reserved space, bytes.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

impl Spill for SpillFile {
    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let offset = self.with_path(self.file.append(bytes))?;
        if let Some(digest) = &self.digest {
            digest.lock().update(bytes);
        }
        Ok(offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.with_path(self.file.read_at(offset, bytes))
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Creates a directory and its parents with access for this user only, because genomes are private. The permissions of
/// an existing directory do not change.
///
/// # Errors
/// The I/O error of the file system.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Returns 16 hexadecimal digits that identify the output path of a job, for names in a scratch directory that many jobs
/// share.
pub fn output_id(out: &Path) -> String {
    let whole = out.canonicalize().unwrap_or_else(|_| out.to_owned());
    blake3::hash(whole.as_os_str().as_bytes()).to_hex()[..16].to_owned()
}

/// A private directory for files of this process. Dropping this value, or stopping the process with a signal, removes
/// the directory and its content.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    _temporary: TemporaryPath,
}

impl ScratchDirectory {
    /// Creates the private directory and its parents.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let temporary = TemporaryPath::new(&path);
        create_private_directory(&path)?;
        // Child processes with other working directories receive paths in this directory, so make the path absolute.
        let path = path.canonicalize()?;
        Ok(Self { path, _temporary: temporary })
    }

    /// Returns the path of the directory, absolute and without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // Errors are ignored: the name of the directory is hidden, and no other process uses the directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns a name that no other process or thread of this host uses.
pub fn unique_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
