//! Changes of names: directories, removals and renames.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::FileTree;
use crate::staged_file::StagedFile;
use crate::storage::{Attributes, StorageError};

/// Reports whether two paths have the same staged content.
fn is_same_content(one: Option<&Arc<StagedFile>>, other: Option<&Arc<StagedFile>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

impl FileTree {
    /// Creates a directory.
    pub(crate) fn create_directory(
        &self,
        parent: u64,
        name: &OsStr,
        mode: u32,
    ) -> Result<(u64, Attributes), StorageError> {
        let path = self.new_path(parent, name)?;
        self.storage.create_directory(&path, mode)?;
        self.look_up(parent, name)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, parent: u64, name: &OsStr) -> Result<(), StorageError> {
        let path = self.child_path(parent, name)?;
        if self.inodes.lock().staged_in(&path).next().is_some() {
            return Err(StorageError::new(libc::ENOTEMPTY, &path));
        }
        self.storage.remove_directory(&path)?;
        self.outdate_listings(&path, Instant::now());
        self.inodes.lock().detach(&path);
        Ok(())
    }

    /// Removes a file. Its open handles keep their content.
    pub(crate) fn remove_file(&self, parent: u64, name: &OsStr) -> Result<(), StorageError> {
        let path = self.child_path(parent, name)?;
        let was_created = self.keep_content(&path)?;
        let staged = self.staged_at(&path);
        let _content = staged.as_ref().map(|staged| staged.lock_content());
        match self.storage.remove_file(&path) {
            // The file was created through this mount and was not stored yet.
            Err(error) if error.errno == libc::ENOENT && was_created => {}
            removed => removed?,
        }
        self.outdate_listings(&path, Instant::now());
        self.inodes.lock().detach(&path);
        Ok(())
    }

    /// Copies the content of an open file to a scratch file before the file is removed or replaced. Returns true if the
    /// file has staged content.
    fn keep_content(&self, path: &Path) -> Result<bool, StorageError> {
        match self.open_number(path) {
            Some(number) => self.staged_content(number, true, None).map(|_| true),
            None => Ok(false),
        }
    }

    /// Returns the number of an inode that has open handles.
    fn open_number(&self, path: &Path) -> Option<u64> {
        let inodes = self.inodes.lock();
        inodes.number_of(path).filter(|number| inodes.get(*number).is_some_and(|inode| inode.open_handles > 0))
    }

    /// Gives an entry another name. With `replace`, a file of the new name is replaced. Waits until the files of a directory
    /// that are being uploaded are stored.
    pub(crate) fn rename(
        &self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        replace: bool,
    ) -> Result<(), StorageError> {
        let find_paths =
            || Ok::<_, StorageError>((self.child_path(parent, name)?, self.new_path(new_parent, new_name)?));
        loop {
            let (from, to) = find_paths()?;
            if from == to {
                return match self.look_up_exists(&from)? {
                    true => Ok(()),
                    false => Err(StorageError::new(libc::ENOENT, &from)),
                };
            }
            if self.try_rename(&from, &to, replace, find_paths)? {
                return Ok(());
            }
        }
    }

    /// Renames an entry. Returns false if meanwhile a program has opened the file that is replaced, begun or ended to write
    /// one of the files, or renamed one of the directories that contain them: `find_paths` then returns other paths.
    fn try_rename(
        &self,
        from: &Path,
        to: &Path,
        replace: bool,
        find_paths: impl Fn() -> Result<(PathBuf, PathBuf), StorageError>,
    ) -> Result<bool, StorageError> {
        self.keep_content(to)?;
        // Nothing is stored at either path meanwhile. Two renames lock in the same order, that of the paths.
        let (moved_file, replaced_file) = (self.staged_at(from), self.staged_at(to));
        let lock_replaced = || replaced_file.as_ref().map(|staged| staged.lock_content());
        let early = if to < from { lock_replaced() } else { None };
        let moved_content = moved_file.as_ref().map(|staged| (staged, staged.lock_content()));
        let _replaced_content = early.or_else(|| if from < to { lock_replaced() } else { None });
        // A file that is being written is stored under its old name before, so that the storage can rename it. Other
        // files are opened and renamed during this upload.
        if let Some((staged, content)) = &moved_content {
            let is_unmoved = || is_same_content(self.staged_at(from).as_ref(), Some(*staged));
            let Some(upload) = self.uploads.begin_upload(|| is_unmoved().then(|| from.to_owned())) else {
                return Ok(false);
            };
            staged.store(content, &*self.storage, &upload.path)?;
        }
        self.keep_content(to)?;
        let _rename = self.uploads.begin_rename(from);
        // No other rename changes a path from here on.
        let _change = self.lock_version_changes();
        let (present_from, present_to) = find_paths()?;
        if (present_from.as_path(), present_to.as_path()) != (from, to)
            || !is_same_content(self.staged_at(from).as_ref(), moved_file.as_ref())
            || !is_same_content(self.staged_at(to).as_ref(), replaced_file.as_ref())
            || (replaced_file.is_none() && self.open_number(to).is_some())
        {
            return Ok(false);
        }
        if !replace && self.look_up_exists(to)? {
            return Err(StorageError::new(libc::EEXIST, to));
        }
        // A directory at the new name may contain files that are not stored yet.
        if self.inodes.lock().staged_in(to).next().is_some() {
            return Err(StorageError::new(libc::ENOTEMPTY, to));
        }
        self.storage.rename(from, to, replace)?;
        for path in [from, to] {
            self.outdate_listings(path, Instant::now());
        }
        let mut inodes = self.inodes.lock();
        let moved = inodes.number_of(from);
        inodes.rename(from, to);
        // A rename changes the version of a file.
        if let Some(inode) = moved.and_then(|number| inodes.get_mut(number)) {
            inode.cached_version = None;
        }
        Ok(true)
    }
}
