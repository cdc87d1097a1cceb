//! Scratch files of jobs whose data do not fit into memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A private scratch file. Any thread may append bytes and read them at any offset.
///
/// # Examples
///
/// ```
/// use godwit_files::Spill;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let spill = Spill::create(directory.path())?;
/// spill.append(b"first")?;
/// let offset = spill.append(b"second")?;
/// let mut bytes = [0; 6];
/// spill.read_at(offset, &mut bytes)?;
/// assert_eq!(&bytes, b"second");
/// assert_eq!(std::fs::read_dir(directory.path())?.count(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Spill {
    file: File,
    end: AtomicU64,
}

impl Spill {
    /// Creates an unnamed file on the file system of `directory`, which must exist. The file disappears when it is
    /// closed, even if the process is killed.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create(directory: &Path) -> io::Result<Self> {
        Ok(Self { file: create_unnamed_file(directory)?, end: AtomicU64::new(0) })
    }

    /// Opens or creates a file at `path`, which remains when the process ends. New bytes are appended to it.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let end = AtomicU64::new(file.metadata()?.len());
        Ok(Self { file, end })
    }

    /// Returns the size of the file including reserved space, bytes.
    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Appends bytes and returns their offset.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let offset = self.reserve(bytes.len() as u64);
        self.write_at(offset, bytes)?;
        Ok(offset)
    }

    /// Reserves space for bytes that are written later, and returns the offset of the space. Reserved bytes that are
    /// not yet written read as zeros.
    pub fn reserve(&self, bytes: u64) -> u64 {
        self.end.fetch_add(bytes, Ordering::Relaxed)
    }

    /// Writes bytes into reserved space.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Reads the bytes at an offset.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::UnexpectedEof`] if the file has fewer bytes.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Removes all bytes from offset `end` on.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn truncate(&self, end: u64) -> io::Result<()> {
        self.end.store(end, Ordering::Relaxed);
        self.file.set_len(end)
    }

    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Creates an unnamed file for reading and writing on the file system of `directory`, which must exist. The file
/// disappears when it is closed, even if the process is killed.
///
/// # Errors
/// The I/O error of the file system.
pub fn create_unnamed_file(directory: &Path) -> io::Result<File> {
    tempfile::tempfile_in(directory)
}
