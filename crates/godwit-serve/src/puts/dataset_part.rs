//! A file of a dataset while it is written: in memory while the budget lasts, else on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory budget of temporary datasets, and the directory of files that exceed it.
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
}

/// A file that is being written. Dropping it before [`Self::move_to`] discards it.
pub(super) struct PutPart {
    file: File,
    path: PathBuf,
    memory_budget: Option<Arc<MemoryBudget>>,
    /// Bytes reserved from the memory budget.
    reserved_bytes: u64,
    /// Path on disk, if the file did not fit into memory.
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

    /// Continues the file on disk.
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

    /// Syncs a durable file to disk; a temporary one need not survive the server.
    pub(super) fn make_durable(&mut self) -> io::Result<()> {
        self.file.flush()?;
        if self.memory_budget.is_none() { self.file.sync_all() } else { Ok(()) }
    }

    /// Moves the file to its final path; a spilled file is linked there.
    pub(super) fn move_to(mut self, path: &Path) -> io::Result<()> {
        if let Some(spilled) = &self.spill_path {
            symlink(spilled, path)?;
        } else {
            fs::rename(&self.path, path)?;
        }
        self.is_committed = true;
        Ok(())
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
        // All bytes, because all were reserved.
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
        // The file itself is removed with its directory.
        self.memory_budget.as_ref().inspect(|memory| memory.release(self.reserved_bytes));
        let _ = self.spill_path.as_ref().map(fs::remove_file);
    }
}

/// Removes a part of a dataset, and releases its memory. Open readers can still read it; errors of the removal are ignored.
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
