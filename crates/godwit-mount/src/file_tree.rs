//! The operations of the file system on inodes and open files, without the kernel.
//!
//! A file that is open for reading returns the bytes of one version. A file that is written is a [`StagedFile`] until
//! its last handle is closed: all handles of this mount see its content at once, and the storage receives it as a whole,
//! by [`FileTree::flush`] when a program closes or syncs the file. A file that is removed or replaced while it is open
//! is copied to a scratch file before, so that its handles keep their content.

mod extended_attributes;
mod versions;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use bytes::Bytes;
use godwit_transfer::StorageSpace;

use crate::inode_table::InodeTable;
use crate::staged_file::StagedFile;
use crate::storage::{Attributes, DirectoryEntry, Storage, StorageError, StoredFile};

/// Largest size of a file name, bytes (`NAME_MAX` of Linux).
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// Receives messages for the log of a mount.
pub type MountLog = Arc<dyn Fn(&str) + Send + Sync>;

/// The files of a storage, by inode number and file handle.
pub struct FileTree {
    storage: Arc<dyn Storage>,
    scratch_directory: PathBuf,
    /// Path of the mounted directory below the root of the server, which precedes the names of datasets.
    dataset_prefix: PathBuf,
    log: MountLog,
    inodes: Mutex<InodeTable>,
    handles: Mutex<HashMap<u64, Arc<OpenFile>>>,
    directories: Mutex<HashMap<u64, Arc<Vec<DirectoryEntry>>>>,
    next_handle: AtomicU64,
    /// The inodes whose scratch files are being created, so that each gets only one.
    staging_inodes: Mutex<HashSet<u64>>,
    staging_ended: Condvar,
    /// Locked for writing while this mount changes the name or time of files, which ends the version that handles read.
    version_changes: RwLock<()>,
}

/// An open file handle.
struct OpenFile {
    inode: u64,
    /// The version that was opened for reading; `None` if the file had staged content.
    stored: Mutex<Option<Arc<dyn StoredFile>>>,
}

/// A file handle that was opened.
pub(crate) struct OpenedFile {
    pub(crate) handle: u64,
    /// True if pages of an earlier open are still valid.
    pub(crate) keeps_cache: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stale() -> StorageError {
    StorageError { errno: libc::ESTALE, message: "the file was removed or replaced".to_owned() }
}

/// Compares two versions of a file. The field `version` is not compared, because a rename changes it.
fn is_same_version(one: &Attributes, other: &Attributes) -> bool {
    (one.size_bytes, one.modified) == (other.size_bytes, other.modified)
}

impl FileTree {
    /// Returns the files of a storage. Files that are written are below `scratch_directory` until they are stored.
    pub fn new(storage: Arc<dyn Storage>, scratch_directory: &Path, dataset_prefix: &Path, log: MountLog) -> Self {
        Self {
            storage,
            scratch_directory: scratch_directory.to_owned(),
            dataset_prefix: dataset_prefix.to_owned(),
            log,
            inodes: Mutex::new(InodeTable::new()),
            handles: Mutex::default(),
            directories: Mutex::default(),
            next_handle: AtomicU64::new(1),
            staging_inodes: Mutex::default(),
            staging_ended: Condvar::new(),
            version_changes: RwLock::default(),
        }
    }

    /// Writes an error that a program cannot describe to its user to the log.
    pub(crate) fn log_error(&self, error: &StorageError) {
        if matches!(error.errno, libc::EIO | libc::ETIMEDOUT | libc::ENOSPC | libc::EDQUOT | libc::ESTALE) {
            (self.log)(&error.message);
        }
    }

    fn path(&self, inode: u64) -> Result<PathBuf, StorageError> {
        lock(&self.inodes).get(inode).and_then(|inode| inode.path.clone()).ok_or_else(stale)
    }

    fn child_path(&self, parent: u64, name: &OsStr) -> Result<PathBuf, StorageError> {
        let directory = self.path(parent)?;
        match name.as_bytes().len() <= MAX_NAME_BYTES {
            true => Ok(directory.join(name)),
            false => Err(StorageError::new(libc::ENAMETOOLONG, &directory)),
        }
    }

    /// Returns the path of a new entry.
    fn new_path(&self, parent: u64, name: &OsStr) -> Result<PathBuf, StorageError> {
        let path = self.child_path(parent, name)?;
        match self.storage.accepts_name(name) {
            true => Ok(path),
            false => Err(StorageError::new(libc::EPERM, &path)),
        }
    }

    fn staged(&self, inode: u64) -> Option<Arc<StagedFile>> {
        lock(&self.inodes).get(inode).and_then(|inode| inode.staged.clone())
    }

    fn staged_at(&self, path: &Path) -> Option<Arc<StagedFile>> {
        lock(&self.inodes).at_path(path).and_then(|inode| inode.staged.clone())
    }

    /// Returns the inode number and the attributes of an entry, and counts a lookup.
    pub(crate) fn look_up(&self, parent: u64, name: &OsStr) -> Result<(u64, Attributes), StorageError> {
        let path = self.child_path(parent, name)?;
        let attributes = match self.staged_at(&path) {
            Some(staged) => staged.attributes()?,
            None if self.storage.accepts_name(name) => self.storage.attributes(&path)?,
            None => return Err(StorageError::new(libc::ENOENT, &path)),
        };
        Ok((lock(&self.inodes).look_up(&path), attributes))
    }

    /// Removes lookups of an inode.
    pub(crate) fn forget(&self, inode: u64, lookups: u64) {
        lock(&self.inodes).forget(inode, lookups);
    }

    /// Returns the attributes of an inode.
    pub(crate) fn attributes(&self, inode: u64) -> Result<Attributes, StorageError> {
        match self.staged(inode) {
            Some(staged) => staged.attributes(),
            None => self.storage.attributes(&self.path(inode)?),
        }
    }

    /// Sets size, permissions and modification time of an inode; `None` keeps them. Without `by_handle`, a new size is
    /// stored when the call returns, because no later call of the program does it.
    pub(crate) fn set_attributes(
        &self,
        inode: u64,
        by_handle: bool,
        size_bytes: Option<u64>,
        mode: Option<u32>,
        modified: Option<SystemTime>,
    ) -> Result<Attributes, StorageError> {
        if let Some(size_bytes) = size_bytes {
            self.set_size(inode, by_handle, size_bytes)?;
        }
        if mode.is_some() || modified.is_some() {
            let staged = self.staged(inode);
            if let Some(staged) = &staged {
                staged.set_attributes(mode, modified);
            }
            if staged.is_none_or(|staged| !staged.is_changed())
                && let Ok(path) = self.path(inode)
            {
                let _change = modified.map(|_| self.lock_version_changes());
                let before = modified.map(|_| self.storage.attributes(&path)).transpose()?;
                self.storage.set_attributes(&path, mode, modified)?;
                // Handles of staged content do not read the stored file.
                if let Some(before) = before.filter(|_| self.staged(inode).is_none()) {
                    self.reopen_handles(inode, &path, &before)?;
                }
            }
        }
        self.attributes(inode)
    }

    fn set_size(&self, inode: u64, by_handle: bool, size_bytes: u64) -> Result<(), StorageError> {
        // The kernel closes handles later than programs do. Without this handle, the end of another one could drop the
        // content after its size was changed and before it is stored.
        self.count_handle(inode)?;
        let resized = self.staged_content(inode, size_bytes > 0, None).and_then(|staged| staged.set_size(size_bytes));
        let stored = resized.and_then(|()| if by_handle { Ok(()) } else { self.flush_inode(inode) });
        self.end_handle(inode);
        stored
    }

    /// Counts a handle of an inode. Its staged content is kept until [`Self::end_handle`].
    fn count_handle(&self, inode: u64) -> Result<(), StorageError> {
        lock(&self.inodes).get_mut(inode).ok_or_else(stale)?.open_handles += 1;
        Ok(())
    }

    /// Ends a handle that was counted, and drops the staged content of the inode if this was the last one.
    fn end_handle(&self, inode: u64) {
        if let Some(inode) = lock(&self.inodes).get_mut(inode) {
            inode.open_handles = inode.open_handles.saturating_sub(1);
        }
        self.drop_staged(inode);
    }

    /// Opens a file, and empties it if `truncates` is true.
    pub(crate) fn open(&self, inode: u64, truncates: bool) -> Result<OpenedFile, StorageError> {
        // Staged content is kept while an inode has handles, so count the handle before the stored file is opened.
        self.count_handle(inode)?;
        let handle = self.add_handle(inode);
        let opened = match truncates {
            true => self.staged_content(inode, false, None).and_then(|staged| staged.set_size(0)).map(|()| false),
            false => self.open_stored(inode, handle),
        };
        match opened {
            Ok(keeps_cache) => Ok(OpenedFile { handle, keeps_cache }),
            Err(error) => {
                self.release(handle);
                Err(error)
            }
        }
    }

    /// Opens the stored file of a handle, unless the inode has staged content. Returns true if pages of an earlier open
    /// are still valid.
    fn open_stored(&self, number: u64, handle: u64) -> Result<bool, StorageError> {
        if self.staged(number).is_some() {
            return Ok(true);
        }
        let _unchanged = self.lock_versions();
        let stored = self.storage.open(&self.path(number)?)?;
        let attributes = stored.attributes();
        *lock(&self.handle(handle)?.stored) = Some(stored);
        let mut inodes = lock(&self.inodes);
        let inode = inodes.get_mut(number).ok_or_else(stale)?;
        // If the content was staged meanwhile, the kernel has its pages.
        let version = attributes.version;
        inode.cached = Some(attributes);
        Ok(inode.staged.is_some() || inode.cached_version.replace(version) == Some(version))
    }

    /// Creates a file and opens it. It is stored when it is closed.
    pub(crate) fn create(
        &self,
        parent: u64,
        name: &OsStr,
        mode: u32,
        is_exclusive: bool,
        truncates: bool,
    ) -> Result<(u64, Attributes, OpenedFile), StorageError> {
        let path = self.new_path(parent, name)?;
        if self.look_up_exists(&path)? {
            // The kernel did not know the file, for example because another client has created it.
            return match is_exclusive {
                true => Err(StorageError::new(libc::EEXIST, &path)),
                false => self.open_existing(parent, name, truncates),
            };
        }
        let staged = Arc::new(StagedFile::create(&self.scratch_directory, mode, is_exclusive)?);
        let attributes = staged.attributes()?;
        let inode = {
            let mut inodes = lock(&self.inodes);
            // Another client may have removed a file of this path that is open. Its handles do not use the new file.
            inodes.detach(&path);
            let number = inodes.look_up(&path);
            if let Some(inode) = inodes.get_mut(number) {
                inode.staged = Some(staged);
                inode.open_handles += 1;
            }
            number
        };
        Ok((inode, attributes, OpenedFile { handle: self.add_handle(inode), keeps_cache: false }))
    }

    fn open_existing(
        &self,
        parent: u64,
        name: &OsStr,
        truncates: bool,
    ) -> Result<(u64, Attributes, OpenedFile), StorageError> {
        let (inode, attributes) = self.look_up(parent, name)?;
        let opened = self.open(inode, truncates).inspect_err(|_| self.forget(inode, 1))?;
        let size_bytes = if truncates { 0 } else { attributes.size_bytes };
        Ok((inode, Attributes { size_bytes, ..attributes }, opened))
    }

    /// Reports whether a path exists. Errors other than `ENOENT` do not mean that it is free.
    fn look_up_exists(&self, path: &Path) -> Result<bool, StorageError> {
        if self.staged_at(path).is_some() {
            return Ok(true);
        }
        match self.storage.attributes(path) {
            Err(error) if error.errno == libc::ENOENT => Ok(false),
            found => found.map(|_| true),
        }
    }

    /// Returns a new handle of an inode, which the caller has counted.
    fn add_handle(&self, inode: u64) -> u64 {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        lock(&self.handles).insert(handle, Arc::new(OpenFile { inode, stored: Mutex::default() }));
        handle
    }

    fn handle(&self, handle: u64) -> Result<Arc<OpenFile>, StorageError> {
        let unknown = || StorageError { errno: libc::EBADF, message: "the file is not open".to_owned() };
        lock(&self.handles).get(&handle).cloned().ok_or_else(unknown)
    }

    /// Returns up to `size_bytes` bytes from an offset; fewer only at the end of the file.
    pub(crate) fn read(&self, handle: u64, offset: u64, size_bytes: usize) -> Result<Bytes, StorageError> {
        let open = self.handle(handle)?;
        if let Some(staged) = self.staged_of(&open)? {
            return staged.read_at(offset, size_bytes);
        }
        let stored = self.stored_of(&open)?;
        match stored.read_at(offset, size_bytes) {
            Err(error) if error.errno == libc::ESTALE => {
                // Wait until this mount has finished the change of a name or time.
                let _unchanged = self.lock_versions();
                if let Some(staged) = self.staged_of(&open)? {
                    return staged.read_at(offset, size_bytes);
                }
                let moved = self.reopen(&open).ok_or(error)?;
                moved.read_at(offset, size_bytes)
            }
            read => read,
        }
    }

    /// Writes bytes at an offset.
    pub(crate) fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Result<(), StorageError> {
        let open = self.handle(handle)?;
        let staged = self.staged_content(open.inode, true, Some(&open))?;
        open.check_base(&staged)?;
        staged.write_at(data, offset)
    }

    /// Returns the staged content of an inode. If there is none, creates it: a copy of the stored file, or an empty file
    /// with its attributes if `keeps_bytes` is false. A handle that writes requires its own version of the file.
    fn staged_content(
        &self,
        number: u64,
        keeps_bytes: bool,
        writer: Option<&OpenFile>,
    ) -> Result<Arc<StagedFile>, StorageError> {
        let mut staging = lock(&self.staging_inodes);
        while staging.contains(&number) {
            staging = self.staging_ended.wait(staging).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(staged) = self.staged(number) {
            return Ok(staged);
        }
        staging.insert(number);
        drop(staging);
        let staged = self.create_staged(number, keeps_bytes, writer);
        lock(&self.staging_inodes).remove(&number);
        self.staging_ended.notify_all();
        staged
    }

    fn create_staged(
        &self,
        number: u64,
        keeps_bytes: bool,
        writer: Option<&OpenFile>,
    ) -> Result<Arc<StagedFile>, StorageError> {
        let _unchanged = self.lock_versions();
        let path = self.path(number)?;
        let staged = match keeps_bytes {
            true => {
                let stored = self.storage.open(&path)?;
                if writer.is_some_and(|open| !open.accepts(&stored.attributes())) {
                    return Err(stale());
                }
                StagedFile::copy_of(&*stored, &self.scratch_directory)?
            }
            false => StagedFile::emptied(&self.storage.attributes(&path)?, &self.scratch_directory)?,
        };
        let staged = Arc::new(staged);
        lock(&self.inodes).get_mut(number).ok_or_else(stale)?.staged = Some(staged.clone());
        Ok(staged)
    }

    /// Stores the content of an open file, if it was changed. When this call returns, it is on disk.
    pub(crate) fn flush(&self, handle: u64) -> Result<(), StorageError> {
        self.flush_inode(self.handle(handle)?.inode)
    }

    fn flush_inode(&self, inode: u64) -> Result<(), StorageError> {
        match self.staged(inode) {
            Some(staged) => staged.store(&*self.storage, || self.path(inode).ok()),
            None => Ok(()),
        }
    }

    /// Stores the content of all files that were changed and are still open, when the mount has ended.
    pub(crate) fn store_changes(&self) {
        let changed = lock(&self.inodes).changed();
        for (inode, path) in changed {
            if let Err(error) = self.flush_inode(inode) {
                (self.log)(&format!("changes of {} were lost: {error}", path.display()));
            }
        }
    }

    /// Reports whether an open file has content that is not stored.
    pub(crate) fn has_unstored_changes(&self) -> bool {
        !lock(&self.inodes).changed().is_empty()
    }

    /// Closes a file handle.
    pub(crate) fn release(&self, handle: u64) {
        let Some(open) = lock(&self.handles).remove(&handle) else { return };
        // Pages of a memory map are written after the program has closed the file.
        if let Err(error) = self.flush_inode(open.inode) {
            (self.log)(&format!("changes were lost: {error}"));
        }
        self.end_handle(open.inode);
    }

    /// Drops the staged content of an inode that no handle uses.
    fn drop_staged(&self, number: u64) {
        let mut inodes = lock(&self.inodes);
        let dropped = match inodes.get_mut(number) {
            Some(inode) if inode.open_handles == 0 && inode.staged.is_some() => {
                (inode.cached_version, inode.cached) = (None, None);
                inode.staged.take()
            }
            _ => None,
        };
        inodes.remove_unused(number);
        drop(inodes);
        drop(dropped);
    }

    /// Opens a directory with its present entries.
    pub(crate) fn open_directory(&self, inode: u64) -> Result<u64, StorageError> {
        let path = self.path(inode)?;
        let mut entries = self.storage.list(&path)?;
        let staged: Vec<(OsString, Arc<StagedFile>)> = {
            let inodes = lock(&self.inodes);
            let named =
                |(path, staged): (&Path, &Arc<StagedFile>)| Some((path.file_name()?.to_owned(), staged.clone()));
            inodes.staged_in(&path).filter_map(named).collect()
        };
        for (name, staged) in staged {
            let attributes = staged.attributes()?;
            match entries.iter_mut().find(|entry| entry.name == name) {
                Some(entry) => entry.attributes = attributes,
                None => entries.push(DirectoryEntry { name, attributes }),
            }
        }
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        lock(&self.directories).insert(handle, Arc::new(entries));
        Ok(handle)
    }

    /// Returns the entries that a directory had when it was opened.
    pub(crate) fn directory_entries(&self, handle: u64) -> Result<Arc<Vec<DirectoryEntry>>, StorageError> {
        let unknown = || StorageError { errno: libc::EBADF, message: "the directory is not open".to_owned() };
        lock(&self.directories).get(&handle).cloned().ok_or_else(unknown)
    }

    /// Closes a directory.
    pub(crate) fn release_directory(&self, handle: u64) {
        lock(&self.directories).remove(&handle);
    }

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
        if lock(&self.inodes).staged_in(&path).next().is_some() {
            return Err(StorageError::new(libc::ENOTEMPTY, &path));
        }
        self.storage.remove_directory(&path)?;
        lock(&self.inodes).detach(&path);
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
        lock(&self.inodes).detach(&path);
        Ok(())
    }

    /// Copies the content of an open file to a scratch file before the file is removed or replaced. Returns true if the
    /// file has staged content.
    fn keep_content(&self, path: &Path) -> Result<bool, StorageError> {
        let open = {
            let inodes = lock(&self.inodes);
            inodes.number_of(path).filter(|number| inodes.get(*number).is_some_and(|inode| inode.open_handles > 0))
        };
        match open {
            Some(number) => self.staged_content(number, true, None).map(|_| true),
            None => Ok(false),
        }
    }

    /// Gives an entry another name. With `replace`, a file of the new name is replaced.
    pub(crate) fn rename(
        &self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        replace: bool,
    ) -> Result<(), StorageError> {
        let (from, to) = (self.child_path(parent, name)?, self.new_path(new_parent, new_name)?);
        if from == to {
            return match self.look_up_exists(&from)? {
                true => Ok(()),
                false => Err(StorageError::new(libc::ENOENT, &from)),
            };
        }
        self.keep_content(&to)?;
        let _change = self.lock_version_changes();
        // Nothing is stored at either path meanwhile. Two renames lock in the same order, that of the paths.
        let (moved_file, replaced_file) = (self.staged_at(&from), self.staged_at(&to));
        let lock_replaced = || replaced_file.as_ref().map(|staged| staged.lock_content());
        let early = if to < from { lock_replaced() } else { None };
        let moved_content = moved_file.as_ref().map(|staged| (staged, staged.lock_content()));
        let _replaced_content = early.or_else(|| if from < to { lock_replaced() } else { None });
        // A file that is being written is stored under its old name before, so that the storage can rename it.
        if let Some((staged, content)) = &moved_content {
            staged.store_locked(content, &*self.storage, &from)?;
        }
        if !replace && self.look_up_exists(&to)? {
            return Err(StorageError::new(libc::EEXIST, &to));
        }
        self.storage.rename(&from, &to, replace)?;
        let mut inodes = lock(&self.inodes);
        let moved = inodes.number_of(&from);
        inodes.rename(&from, &to);
        // A rename changes the version of a file.
        if let Some(inode) = moved.and_then(|number| inodes.get_mut(number)) {
            inode.cached_version = None;
        }
        Ok(())
    }

    /// Returns size and free space.
    pub(crate) fn space(&self) -> Result<StorageSpace, StorageError> {
        self.storage.space()
    }
}

#[cfg(test)]
mod tests;
