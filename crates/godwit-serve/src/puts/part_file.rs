//! One file of a dataset while it is written: on disk, or in memory as long as there is room.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that temporary datasets may take, and the directory they go to when it is used up.
#[derive(Debug)]
pub(super) struct Memory {
    left_bytes: AtomicU64,
    spill: PathBuf,
}

impl Memory {
    pub(super) fn new(bytes: u64, spill: PathBuf) -> Self {
        Self { left_bytes: AtomicU64::new(bytes), spill }
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = |left: u64| left.checked_sub(bytes);
        self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.left_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The file. Dropping it before it is moved forgets it.
pub(super) struct PartFile {
    file: File,
    path: PathBuf,
    memory: Option<Arc<Memory>>,
    /// Bytes in memory.
    taken_bytes: u64,
    /// Where it is on disk, if it did not fit into memory.
    spilled: Option<PathBuf>,
    is_moved: bool,
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

impl PartFile {
    pub(super) fn create(path: PathBuf, memory: Option<Arc<Memory>>) -> io::Result<Self> {
        Ok(Self { file: create(&path)?, path, memory, taken_bytes: 0, spilled: None, is_moved: false })
    }

    /// Goes on on disk.
    fn spill(&mut self, memory: &Memory) -> io::Result<()> {
        let unique = self.path.parent().and_then(Path::file_name).unwrap_or_default();
        let path = memory.spill.join(unique);
        let mut spilled = create(&path)?;
        self.spilled = Some(path);
        io::copy(&mut File::open(&self.path)?, &mut spilled)?;
        self.file = spilled;
        fs::remove_file(&self.path)?;
        memory.give_back(std::mem::take(&mut self.taken_bytes));
        Ok(())
    }

    /// Waits until a disk has it; what is in memory, or gone with the server, need not last.
    pub(super) fn make_durable(&mut self) -> io::Result<()> {
        self.file.flush()?;
        if self.memory.is_none() { self.file.sync_all() } else { Ok(()) }
    }

    /// Gives it its name, by which what is on disk is found, too.
    pub(super) fn move_to(mut self, path: &Path) -> io::Result<()> {
        if let Some(spilled) = &self.spilled {
            symlink(spilled, path)?;
        } else {
            fs::rename(&self.path, path)?;
        }
        self.is_moved = true;
        Ok(())
    }
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.spilled.is_none()
            && let Some(memory) = self.memory.clone()
        {
            if memory.take(bytes.len() as u64) {
                self.taken_bytes += bytes.len() as u64;
            } else {
                self.spill(&memory)?;
            }
        }
        // All of them: what was taken is what is written.
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if self.is_moved {
            return;
        }
        // The file itself goes with its directory.
        self.memory.as_ref().inspect(|memory| memory.give_back(self.taken_bytes));
        let _ = self.spilled.as_ref().map(fs::remove_file);
    }
}

/// Removes a part of a dataset, and gives back the memory it took. Whoever reads it goes on; what cannot be removed is in nobody's way.
pub(super) fn forget_part(path: &Path, memory: Option<&Memory>) {
    if let (Some(memory), Ok(found)) = (memory, fs::symlink_metadata(path)) {
        if found.is_file() {
            memory.give_back(found.len());
        } else if let Ok(spilled) = fs::read_link(path) {
            let _ = fs::remove_file(spilled);
        }
    }
    let _ = fs::remove_file(path);
}
