//! Scratch space: one spill file without a name, gone when the run ends however it ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_kernels::sort::Spill;

/// A file that only grows, written and read from any thread. It has no name, so that nothing is left behind by a kill.
pub struct SpillFile {
    file: File,
    end: AtomicU64,
}

impl SpillFile {
    /// A spill file on the file system of `directory`, which must exist.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn create(directory: &Path) -> io::Result<Self> {
        let path = directory.join(format!(".godwit-spill-{}", unique()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        fs::remove_file(&path)?;
        Ok(Self { file, end: AtomicU64::new(0) })
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}

impl Spill for SpillFile {
    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let offset = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, offset)?;
        Ok(offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }
}

/// Makes a directory and those above it, only for this user: genomes are private. One that is there stays as it is.
///
/// # Errors
/// What the file system reports.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A name no other process or thread of this machine uses.
fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
