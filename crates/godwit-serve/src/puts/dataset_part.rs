//! A file of a dataset while it is written: in memory as long as the memory budget suffices, otherwise on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory budget of temporary datasets, and the directory for files that exceed it.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    free_bytes: AtomicU64,
    spill_directory: PathBuf,
}

impl MemoryBudget {
    pub(super) fn new(bytes: u64, spill_directory: PathBuf) -> Self {
        Self { free_bytes: AtomicU64::new(bytes), spill_directory }
    }

    fn reserve(&self, bytes: u64) -> bool {
        let taken = |left: u64| left.checked_sub(bytes);
        self.free_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    fn release(&self, bytes: u64) {
        self.free_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes that are not reserved.
    #[cfg(test)]
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }
}

/// A file of a dataset that is being written. If it is dropped before [`Self::keep`], the file is removed and its memory
/// is released.
pub(super) struct PutPart {
    file: File,
    path: PathBuf,
    memory_budget: Option<Arc<MemoryBudget>>,
    /// Number of bytes that this file has reserved from the memory budget.
    reserved_bytes: u64,
    /// Path of the file on disk; `None` while the file fits into the memory budget.
    spill_path: Option<PathBuf>,
    is_committed: bool,
}

fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

impl PutPart {
    pub(super) fn create(path: PathBuf, memory_budget: Option<Arc<MemoryBudget>>) -> io::Result<Self> {
        Ok(Self {
            file: create_private_file(&path)?,
            path,
            memory_budget,
            reserved_bytes: 0,
            spill_path: None,
            is_committed: false,
        })
    }

    /// Copies the file from memory to disk, continues writing there, and releases its memory.
    fn spill(&mut self, memory: &MemoryBudget) -> io::Result<()> {
        let unique = self.path.parent().and_then(Path::file_name).unwrap_or_default();
        let path = memory.spill_directory.join(unique);
        let mut spilled = create_private_file(&path)?;
        self.spill_path = Some(path);
        io::copy(&mut File::open(&self.path)?, &mut spilled)?;
        self.file = spilled;
        fs::remove_file(&self.path)?;
        memory.release(std::mem::take(&mut self.reserved_bytes));
        Ok(())
    }

    /// Syncs a durable file to disk. A temporary file is not synced, because it need not survive the server.
    pub(super) fn make_durable(&mut self) -> io::Result<()> {
        self.file.flush()?;
        if self.memory_budget.is_none() { self.file.sync_all() } else { Ok(()) }
    }

    /// Moves the file to its final path. For a file that was moved to disk, creates a symbolic link there instead. The
    /// file does not belong to the dataset before the list of parts contains it; then the caller calls [`Self::keep`].
    pub(super) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        if let Some(spilled) = &self.spill_path {
            symlink(spilled, path)?;
        } else {
            fs::rename(&self.path, path)?;
        }
        self.path = path.to_owned();
        Ok(())
    }

    /// Leaves the file and its memory to the dataset, whose list of parts contains the file.
    pub(super) fn keep(mut self) {
        self.is_committed = true;
    }
}

impl Write for PutPart {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.spill_path.is_none()
            && let Some(memory) = self.memory_budget.clone()
        {
            if memory.reserve(bytes.len() as u64) {
                self.reserved_bytes += bytes.len() as u64;
            } else {
                self.spill(&memory)?;
            }
        }
        // Write all bytes, not only some of them, because memory was reserved for all.
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PutPart {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        self.memory_budget.as_ref().inspect(|memory| memory.release(self.reserved_bytes));
        // Ignore errors: the file is not in the list of parts, so readers ignore it.
        let _ = self.spill_path.as_ref().map(fs::remove_file);
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes a part of a dataset and releases its memory. Readers that have already opened the file can still read it.
/// Errors of the removal are ignored.
pub(super) fn remove_part(path: &Path, memory: Option<&MemoryBudget>) {
    if let (Some(memory), Ok(found)) = (memory, fs::symlink_metadata(path)) {
        if found.is_file() {
            memory.release(found.len());
        } else if let Ok(spilled) = fs::read_link(path) {
            let _ = fs::remove_file(spilled);
        }
    }
    let _ = fs::remove_file(path);
}
