//! The versions of files that handles read and write.
//!
//! All handles of an inode share the pages of the kernel. A handle whose file was replaced by another client while it
//! was open gets `ESTALE` once the pages, or the staged content, are those of another version.

use std::path::Path;
use std::sync::Arc;

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::{FileTree, OpenFile, is_same_version, stale};
use crate::staged_file::StagedFile;
use crate::storage::{Attributes, StorageError, StoredFile};

impl OpenFile {
    /// Reports whether a version is the one that was opened. A handle that was opened with staged content has no version
    /// of its own.
    pub(super) fn accepts(&self, version: &Attributes) -> bool {
        self.stored.lock().as_ref().is_none_or(|stored| is_same_version(&stored.attributes(), version))
    }

    /// Returns `ESTALE` if the staged content is based on another version than the one that was opened.
    pub(super) fn check_base(&self, staged: &StagedFile) -> Result<(), StorageError> {
        if staged.base().is_none_or(|base| self.accepts(base)) { Ok(()) } else { Err(stale()) }
    }
}

impl FileTree {
    /// Returns the staged content of a handle.
    ///
    /// # Errors
    /// `ESTALE` if the handle reads another version than the one that was staged.
    pub(super) fn staged_of(&self, open: &OpenFile) -> Result<Option<Arc<StagedFile>>, StorageError> {
        let staged = self.staged(open.inode);
        staged.as_ref().map_or(Ok(()), |staged| open.check_base(staged))?;
        Ok(staged)
    }

    /// Returns the stored file of a handle.
    ///
    /// # Errors
    /// `ESTALE` if the kernel has pages of another version.
    pub(super) fn stored_of(&self, open: &OpenFile) -> Result<Arc<dyn StoredFile>, StorageError> {
        if let Some(stored) = self.cached_stored(open)? {
            return Ok(stored);
        }
        // This mount may be changing the time of the file.
        let _unchanged = self.lock_versions();
        self.cached_stored(open)?.ok_or_else(stale)
    }

    /// Returns the stored file of a handle; `None` if the kernel has pages of another version.
    fn cached_stored(&self, open: &OpenFile) -> Result<Option<Arc<dyn StoredFile>>, StorageError> {
        let stored = open.stored.lock().clone().ok_or_else(stale)?;
        let cached = self.inodes.lock().get(open.inode).and_then(|inode| inode.cached);
        Ok(cached.is_none_or(|cached| is_same_version(&cached, &stored.attributes())).then_some(stored))
    }

    /// Opens the stored file again for the handles of an inode whose modification time this mount has changed, because
    /// the time is part of the version that a handle reads.
    pub(super) fn reopen_handles(&self, inode: u64, path: &Path, before: &Attributes) -> Result<(), StorageError> {
        let is_affected = |open: &&Arc<OpenFile>| {
            let stored = open.stored.lock();
            open.inode == inode && stored.as_ref().is_some_and(|stored| is_same_version(&stored.attributes(), before))
        };
        let affected: Vec<_> = self.handles.lock().values().filter(is_affected).cloned().collect();
        if !affected.is_empty() {
            let stored = self.storage.open(path)?;
            if let Some(cached) = self.inodes.lock().get_mut(inode).and_then(|inode| inode.cached.as_mut())
                && is_same_version(cached, before)
            {
                *cached = stored.attributes();
            }
            affected.iter().for_each(|open| *open.stored.lock() = Some(stored.clone()));
        }
        Ok(())
    }

    /// Waits until this mount has finished changes of names and times, and delays further ones. Returns the number of
    /// changes until now.
    pub(super) fn lock_versions(&self) -> RwLockReadGuard<'_, u64> {
        self.version_changes.read()
    }

    /// Locks names and times for a change, and counts it.
    pub(super) fn lock_version_changes(&self) -> RwLockWriteGuard<'_, u64> {
        let mut changes = self.version_changes.write();
        *changes += 1;
        changes
    }

    /// Opens a file again that this mount has renamed while it is open. Returns `None` if the file at the present path
    /// is another version.
    pub(super) fn reopen(&self, open: &OpenFile) -> Option<Arc<dyn StoredFile>> {
        let before = open.stored.lock().clone()?;
        let stored = self.storage.open(&self.path(open.inode).ok()?).ok()?;
        if !is_same_version(&stored.attributes(), &before.attributes()) {
            return None;
        }
        *open.stored.lock() = Some(stored.clone());
        Some(stored)
    }
}
