//! A file that a program writes: a scratch file of this host until it is stored.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tempfile::NamedTempFile;

use crate::local_storage::read_up_to;
use crate::storage::{Attributes, Storage, StorageError, StoredFile, WriteOptions};

/// Number of bytes that are read at a time when a stored file is copied to a scratch file.
const COPY_BYTES: usize = 1 << 20;

/// The content of a file that is being written, or that was removed while it is open.
pub(crate) struct StagedFile {
    scratch: NamedTempFile,
    /// Attributes of the stored version that the content is based on; `None` for a new file.
    base: Option<Attributes>,
    /// Held while the content changes or is stored.
    content_lock: Mutex<()>,
    state: Mutex<StagedState>,
}

struct StagedState {
    /// True if the content differs from the stored file.
    is_changed: bool,
    /// True if the file must not exist when it is stored for the first time (`O_EXCL`).
    is_exclusive: bool,
    mode: u32,
    /// Modification time that a program has set since the last write.
    modified: Option<SystemTime>,
}

impl StagedFile {
    /// Returns a new, empty file that is stored even if nothing is written to it.
    pub(crate) fn create(scratch_directory: &Path, mode: u32, is_exclusive: bool) -> Result<Self, StorageError> {
        Self::with_state(
            scratch_directory,
            None,
            StagedState { is_changed: true, is_exclusive, mode: mode & 0o777, modified: None },
        )
    }

    /// Returns an empty file that replaces the content of a stored file.
    pub(crate) fn emptied(stored: &Attributes, scratch_directory: &Path) -> Result<Self, StorageError> {
        let state = StagedState { is_changed: true, is_exclusive: false, mode: stored.mode, modified: None };
        Self::with_state(scratch_directory, Some(*stored), state)
    }

    /// Returns an unchanged copy of a stored file.
    pub(crate) fn copy_of(stored: &dyn StoredFile, scratch_directory: &Path) -> Result<Self, StorageError> {
        let base = stored.attributes();
        let Attributes { mode, modified, size_bytes, .. } = base;
        let state = StagedState { is_changed: false, is_exclusive: false, mode, modified: Some(modified) };
        let staged = Self::with_state(scratch_directory, Some(base), state)?;
        let mut offset = 0;
        while offset < size_bytes {
            let data = stored.read_at(offset, COPY_BYTES)?;
            if data.is_empty() {
                break;
            }
            staged.file().write_all_at(&data, offset).map_err(staged.scratch_error())?;
            offset += data.len() as u64;
        }
        Ok(staged)
    }

    fn with_state(
        scratch_directory: &Path,
        base: Option<Attributes>,
        state: StagedState,
    ) -> Result<Self, StorageError> {
        // The mode of the scratch file is 0600, so other users of this host cannot read it.
        let scratch = tempfile::Builder::new().prefix("staged-").tempfile_in(scratch_directory);
        let scratch = scratch.map_err(StorageError::from_io(scratch_directory))?;
        Ok(Self { scratch, base, content_lock: Mutex::default(), state: Mutex::new(state) })
    }

    /// Returns the attributes of the stored version that the content is based on; `None` for a new file.
    pub(crate) fn base(&self) -> Option<&Attributes> {
        self.base.as_ref()
    }

    fn file(&self) -> &File {
        self.scratch.as_file()
    }

    /// Locks the content: nothing is written or stored until the guard is dropped.
    pub(crate) fn lock_content(&self) -> MutexGuard<'_, ()> {
        self.content_lock.lock()
    }

    /// Reports whether the content is being changed or stored.
    pub(crate) fn is_locked(&self) -> bool {
        self.content_lock.is_locked()
    }

    fn mark_changed(&self) {
        let mut state = self.state.lock();
        (state.is_changed, state.modified) = (true, None);
    }

    fn scratch_error(&self) -> impl FnOnce(io::Error) -> StorageError + use<> {
        StorageError::from_io(self.scratch.path())
    }

    /// Returns up to `size_bytes` bytes from an offset; fewer only at the end of the file.
    pub(crate) fn read_at(&self, offset: u64, size_bytes: usize) -> Result<Bytes, StorageError> {
        read_up_to(self.file(), offset, size_bytes).map_err(self.scratch_error())
    }

    /// Writes bytes at an offset.
    pub(crate) fn write_at(&self, data: &[u8], offset: u64) -> Result<(), StorageError> {
        let _content = self.lock_content();
        self.file().write_all_at(data, offset).map_err(self.scratch_error())?;
        self.mark_changed();
        Ok(())
    }

    /// Sets the size of the file; new bytes are 0.
    pub(crate) fn set_size(&self, size_bytes: u64) -> Result<(), StorageError> {
        let _content = self.lock_content();
        self.file().set_len(size_bytes).map_err(self.scratch_error())?;
        self.mark_changed();
        Ok(())
    }

    /// Sets permissions and modification time; `None` keeps them. The caller sets those of the stored file.
    pub(crate) fn set_attributes(&self, mode: Option<u32>, modified: Option<SystemTime>) {
        let mut state = self.state.lock();
        state.mode = mode.map_or(state.mode, |mode| mode & 0o777);
        state.modified = modified.or(state.modified);
    }

    /// Reports whether the content differs from the stored file.
    pub(crate) fn is_changed(&self) -> bool {
        self.state.lock().is_changed
    }

    /// Returns the attributes of the content.
    pub(crate) fn attributes(&self) -> Result<Attributes, StorageError> {
        let state = self.state.lock();
        let found = self.file().metadata().map_err(self.scratch_error())?;
        let written = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Attributes {
            is_directory: false,
            size_bytes: found.len(),
            mode: state.mode,
            modified: state.modified.unwrap_or(written),
            version: 0,
        })
    }

    /// Stores the content at a path, if it has changed. The caller has locked it: writes, renames and removals wait until it
    /// is stored.
    pub(crate) fn store(
        &self,
        _content: &MutexGuard<'_, ()>,
        storage: &dyn Storage,
        path: &Path,
    ) -> Result<(), StorageError> {
        let (is_changed, is_exclusive, mode, modified) = {
            let state = self.state.lock();
            (state.is_changed, state.is_exclusive, state.mode, state.modified)
        };
        if !is_changed {
            return Ok(());
        }
        // The time of the file system has steps of milliseconds. The exact time distinguishes versions of one size.
        let modified = modified.unwrap_or_else(SystemTime::now);
        storage.write_file(path, self.scratch.path(), &WriteOptions { mode, modified, is_exclusive })?;
        let mut state = self.state.lock();
        (state.is_changed, state.is_exclusive) = (false, false);
        let (mode_now, modified_now) = (state.mode, *state.modified.get_or_insert(modified));
        drop(state);
        // The attributes may have been set while the content was being stored.
        match (mode_now, modified_now) == (mode, modified) {
            true => Ok(()),
            false => storage.set_attributes(path, Some(mode_now), Some(modified_now)),
        }
    }
}
