//! The operations of the file system on inodes and open files, without the kernel.
//!
//! A file that is open for reading returns the bytes of one version. A file that is written is a [`StagedFile`] until
//! its last handle is closed: all handles of this mount see its content at once, and the storage receives it as a whole,
//! by [`FileTree::flush`] when a program closes or syncs the file. A file that is removed or replaced while it is open
//! is copied to a scratch file before, so that its handles keep their content.

mod directories;
mod extended_attributes;
mod names;
mod uploads;
mod versions;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use godwit_transfer::StorageSpace;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::inode_table::InodeTable;
use crate::staged_file::StagedFile;
use crate::storage::{Attributes, Storage, StorageError, StoredFile};
pub(crate) use directories::OpenDirectory;
use uploads::RunningUploads;

/// Time for which the kernel may use names and attributes without a further call. Changes of other clients become
/// visible after this time.
pub(crate) const ATTRIBUTE_LIFETIME: Duration = Duration::from_secs(1);
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
    directories: Mutex<HashMap<u64, Arc<OpenDirectory>>>,
    next_handle: AtomicU64,
    /// The inodes whose scratch files are being created, so that each gets only one.
    staging_inodes: Mutex<HashSet<u64>>,
    staging_ended: Condvar,
    /// Locked for writing while this mount changes the name or time of files, which ends the version that handles read.
    /// The value is the number of changes. No file is uploaded or copied while it is locked.
    version_changes: RwLock<u64>,
    uploads: RunningUploads,
}

/// The access for which a program opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Writing, or reading and writing.
    Write,
    /// As [`Access::Write`], and the file is emptied.
    Truncate,
}

/// An open file handle.
struct OpenFile {
    inode: u64,
    access: Access,
    /// The version that was opened for reading; `None` if the file had staged content.
    stored: Mutex<Option<Arc<dyn StoredFile>>>,
    /// True if content was changed by this handle since its last flush.
    has_written: AtomicBool,
}

/// A file handle that was opened.
pub(crate) struct OpenedFile {
    pub(crate) handle: u64,
    /// True if pages of an earlier open are still valid.
    pub(crate) keeps_cache: bool,
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
            uploads: RunningUploads::default(),
        }
    }

    /// Writes an error that a program cannot describe to its user to the log.
    pub(crate) fn log_error(&self, error: &StorageError) {
        if matches!(error.errno, libc::EIO | libc::ETIMEDOUT | libc::ENOSPC | libc::EDQUOT | libc::ESTALE) {
            (self.log)(&error.message);
        }
    }

    fn path(&self, inode: u64) -> Result<PathBuf, StorageError> {
        self.inodes.lock().get(inode).and_then(|inode| inode.path.clone()).ok_or_else(stale)
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
        self.inodes.lock().get(inode).and_then(|inode| inode.staged.clone())
    }

    fn staged_at(&self, path: &Path) -> Option<Arc<StagedFile>> {
        self.inodes.lock().at_path(path).and_then(|inode| inode.staged.clone())
    }

    /// Returns the inode number and the attributes of an entry, and counts a lookup.
    pub(crate) fn look_up(&self, parent: u64, name: &OsStr) -> Result<(u64, Attributes), StorageError> {
        let path = self.child_path(parent, name)?;
        self.outdate_listings(&path, Instant::now());
        let attributes = match self.staged_at(&path) {
            Some(staged) => staged.attributes()?,
            None if self.storage.accepts_name(name) => self.storage.attributes(&path)?,
            None => return Err(StorageError::new(libc::ENOENT, &path)),
        };
        // These attributes may be newer than those of a listing that has begun meanwhile.
        self.outdate_listings(&path, Instant::now());
        Ok((self.inodes.lock().look_up(&path), attributes))
    }

    /// Removes lookups of an inode.
    pub(crate) fn forget(&self, inode: u64, lookups: u64) {
        self.inodes.lock().forget(inode, lookups);
    }

    /// Returns the attributes of an inode.
    pub(crate) fn attributes(&self, inode: u64) -> Result<Attributes, StorageError> {
        self.outdate_listings_of(inode);
        match self.staged(inode) {
            Some(staged) => staged.attributes(),
            None => self.storage.attributes(&self.path(inode)?),
        }
    }

    /// Sets size, permissions and modification time of an inode; `None` keeps them. Without a handle, a new size is
    /// stored when the call returns, because no later call of the program does it.
    ///
    /// # Errors
    /// `ESTALE` for a new size if the handle reads another version of the file.
    pub(crate) fn set_attributes(
        &self,
        inode: u64,
        handle: Option<u64>,
        size_bytes: Option<u64>,
        mode: Option<u32>,
        modified: Option<SystemTime>,
    ) -> Result<Attributes, StorageError> {
        if let Some(size_bytes) = size_bytes {
            self.set_size(inode, handle, size_bytes)?;
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

    fn set_size(&self, inode: u64, handle: Option<u64>, size_bytes: u64) -> Result<(), StorageError> {
        let writer = handle.map(|handle| self.handle(handle)).transpose()?;
        // The kernel closes handles later than programs do. Without this handle, the end of another one could drop the
        // content after its size was changed and before it is stored.
        self.count_handle(inode)?;
        let resized = self.staged_content(inode, size_bytes > 0, writer.as_deref()).and_then(|staged| {
            if let Some(open) = &writer {
                open.check_base(&staged)?;
                open.has_written.store(true, Ordering::Relaxed);
            }
            staged.set_size(size_bytes)
        });
        let stored = resized.and_then(|()| if writer.is_some() { Ok(()) } else { self.flush_inode(inode) });
        self.end_handle(inode);
        stored
    }

    /// Counts a handle of an inode. Its staged content is kept until [`Self::end_handle`].
    fn count_handle(&self, inode: u64) -> Result<(), StorageError> {
        self.inodes.lock().get_mut(inode).ok_or_else(stale)?.open_handles += 1;
        Ok(())
    }

    /// Ends a handle that was counted, and drops the staged content of the inode if this was the last one.
    fn end_handle(&self, inode: u64) {
        if let Some(inode) = self.inodes.lock().get_mut(inode) {
            inode.open_handles = inode.open_handles.saturating_sub(1);
        }
        self.drop_staged(inode);
    }

    /// Opens a file.
    pub(crate) fn open(&self, inode: u64, access: Access) -> Result<OpenedFile, StorageError> {
        // Staged content is kept while an inode has handles, so count the handle before the stored file is opened.
        self.count_handle(inode)?;
        let handle = self.add_handle(inode, access);
        let opened = match access {
            Access::Truncate => self.empty(inode, handle).map(|()| false),
            Access::Read | Access::Write => self.open_stored(inode, handle),
        };
        match opened {
            Ok(keeps_cache) => Ok(OpenedFile { handle, keeps_cache }),
            Err(error) => {
                self.release(handle);
                Err(error)
            }
        }
    }

    fn empty(&self, inode: u64, handle: u64) -> Result<(), StorageError> {
        self.staged_content(inode, false, None)?.set_size(0)?;
        self.handle(handle)?.has_written.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Opens the stored file of a handle, unless the inode has staged content. Returns true if pages of an earlier open
    /// are still valid.
    fn open_stored(&self, number: u64, handle: u64) -> Result<bool, StorageError> {
        if self.staged(number).is_some() {
            return Ok(true);
        }
        self.outdate_listings_of(number);
        let _unchanged = self.lock_versions();
        let stored = self.storage.open(&self.path(number)?)?;
        let attributes = stored.attributes();
        *self.handle(handle)?.stored.lock() = Some(stored);
        let mut inodes = self.inodes.lock();
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
        access: Access,
    ) -> Result<(u64, Attributes, OpenedFile), StorageError> {
        let path = self.new_path(parent, name)?;
        if self.look_up_exists(&path)? {
            // The kernel did not know the file, for example because another client has created it.
            return match is_exclusive {
                true => Err(StorageError::new(libc::EEXIST, &path)),
                false => self.open_existing(parent, name, access),
            };
        }
        let staged = Arc::new(StagedFile::create(&self.scratch_directory, mode, is_exclusive)?);
        let attributes = staged.attributes()?;
        self.outdate_listings(&path, Instant::now());
        let inode = {
            let mut inodes = self.inodes.lock();
            // Another client may have removed a file of this path that is open. Its handles do not use the new file.
            inodes.detach(&path);
            let number = inodes.look_up(&path);
            if let Some(inode) = inodes.get_mut(number) {
                inode.staged = Some(staged);
                inode.open_handles += 1;
            }
            number
        };
        let handle = self.add_handle(inode, access);
        self.handle(handle)?.has_written.store(true, Ordering::Relaxed);
        Ok((inode, attributes, OpenedFile { handle, keeps_cache: false }))
    }

    fn open_existing(
        &self,
        parent: u64,
        name: &OsStr,
        access: Access,
    ) -> Result<(u64, Attributes, OpenedFile), StorageError> {
        let (inode, attributes) = self.look_up(parent, name)?;
        let opened = self.open(inode, access).inspect_err(|_| self.forget(inode, 1))?;
        let size_bytes = if access == Access::Truncate { 0 } else { attributes.size_bytes };
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
    fn add_handle(&self, inode: u64, access: Access) -> u64 {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let open = OpenFile { inode, access, stored: Mutex::default(), has_written: AtomicBool::new(false) };
        self.handles.lock().insert(handle, Arc::new(open));
        handle
    }

    fn handle(&self, handle: u64) -> Result<Arc<OpenFile>, StorageError> {
        let unknown = || StorageError { errno: libc::EBADF, message: "the file is not open".to_owned() };
        self.handles.lock().get(&handle).cloned().ok_or_else(unknown)
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
        // It is set before and after, because a flush in between stores the content without these bytes.
        open.has_written.store(true, Ordering::Relaxed);
        staged.write_at(data, offset)?;
        open.has_written.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the staged content of an inode. If there is none, creates it: a copy of the stored file, or an empty file
    /// with its attributes if `keeps_bytes` is false. A handle that writes requires its own version of the file.
    fn staged_content(
        &self,
        number: u64,
        keeps_bytes: bool,
        writer: Option<&OpenFile>,
    ) -> Result<Arc<StagedFile>, StorageError> {
        let mut staging = self.staging_inodes.lock();
        while staging.contains(&number) {
            self.staging_ended.wait(&mut staging);
        }
        if let Some(staged) = self.staged(number) {
            return Ok(staged);
        }
        staging.insert(number);
        drop(staging);
        let staged = self.create_staged(number, keeps_bytes, writer);
        self.staging_inodes.lock().remove(&number);
        self.staging_ended.notify_all();
        staged
    }

    fn create_staged(
        &self,
        number: u64,
        keeps_bytes: bool,
        writer: Option<&OpenFile>,
    ) -> Result<Arc<StagedFile>, StorageError> {
        let check_writer = |attributes: &Attributes| match writer.is_none_or(|open| open.accepts(attributes)) {
            true => Ok(()),
            false => Err(stale()),
        };
        if !keeps_bytes {
            let _unchanged = self.lock_versions();
            let attributes = self.storage.attributes(&self.path(number)?)?;
            check_writer(&attributes)?;
            return self.set_staged(number, StagedFile::emptied(&attributes, &self.scratch_directory)?);
        }
        loop {
            let (stored, changes) = {
                let changes = self.lock_versions();
                (self.storage.open(&self.path(number)?)?, *changes)
            };
            check_writer(&stored.attributes())?;
            // A large file is copied for minutes, during which this mount may change the names and times of files.
            let copied = StagedFile::copy_of(&*stored, &self.scratch_directory);
            let changes_now = self.lock_versions();
            match copied {
                Err(error) if error.errno == libc::ESTALE && *changes_now != changes => {}
                copied => {
                    let staged = copied?;
                    let is_present = *changes_now == changes
                        || is_same_version(&self.storage.attributes(&self.path(number)?)?, &stored.attributes());
                    if is_present {
                        return self.set_staged(number, staged);
                    }
                }
            }
        }
    }

    fn set_staged(&self, number: u64, staged: StagedFile) -> Result<Arc<StagedFile>, StorageError> {
        let staged = Arc::new(staged);
        self.inodes.lock().get_mut(number).ok_or_else(stale)?.staged = Some(staged.clone());
        Ok(staged)
    }

    /// Stores what a program has written before it closes a handle. A handle that only reads stores nothing: another
    /// program may have written a part of new content.
    pub(crate) fn close(&self, handle: u64) -> Result<(), StorageError> {
        if self.handle(handle)?.access == Access::Read { Ok(()) } else { self.flush(handle) }
    }

    /// Stores the content of an open file, if it was changed. When this call returns, it is on disk.
    pub(crate) fn flush(&self, handle: u64) -> Result<(), StorageError> {
        let open = self.handle(handle)?;
        let has_written = open.has_written.swap(false, Ordering::Relaxed);
        self.flush_inode(open.inode).inspect_err(|_| {
            open.has_written.fetch_or(has_written, Ordering::Relaxed);
        })
    }

    fn flush_inode(&self, inode: u64) -> Result<(), StorageError> {
        // Content that is being stored is changed until that ends. Unchanged content may be locked by a rename.
        let Some(staged) = self.staged(inode).filter(|staged| staged.is_changed()) else { return Ok(()) };
        let content = staged.lock_content();
        // A file that was removed has no path.
        match self.uploads.begin_upload(|| self.path(inode).ok()) {
            Some(upload) => staged.store(&content, &*self.storage, &upload.path),
            None => Ok(()),
        }
    }

    /// Stores the content of all files that were changed and are still open, when the mount has ended.
    pub(crate) fn store_changes(&self) {
        let changed = self.inodes.lock().changed();
        for (inode, path) in changed {
            if let Err(error) = self.flush_inode(inode) {
                (self.log)(&format!("changes of {} were lost: {error}", path.display()));
            }
        }
    }

    /// Reports whether an open file has content that is not stored, so that closing it takes the time of an upload.
    pub(crate) fn is_changed(&self, handle: u64) -> bool {
        let staged = self.handle(handle).ok().and_then(|open| self.staged(open.inode));
        staged.is_some_and(|staged| staged.is_changed())
    }

    /// Reports whether a write waits until the content of the file is copied from the storage, or stored.
    pub(crate) fn is_write_slow(&self, handle: u64) -> bool {
        let staged = self.handle(handle).ok().and_then(|open| self.staged(open.inode));
        staged.is_none_or(|staged| staged.is_locked())
    }

    /// Reports whether any open file has content that is not stored.
    pub(crate) fn has_unstored_changes(&self) -> bool {
        !self.inodes.lock().changed().is_empty()
    }

    /// Closes a file handle.
    pub(crate) fn release(&self, handle: u64) {
        let Some(open) = self.handles.lock().remove(&handle) else { return };
        // Pages of a memory map are written after the program has closed the file. The kernel releases a handle later than
        // programs close it, when another handle may have written a part of new content.
        let is_last = self.inodes.lock().get(open.inode).is_some_and(|inode| inode.open_handles == 1);
        if (is_last || open.has_written.load(Ordering::Relaxed))
            && let Err(error) = self.flush_inode(open.inode)
        {
            (self.log)(&format!("changes were lost: {error}"));
        }
        self.end_handle(open.inode);
    }

    /// Drops the staged content of an inode that no handle uses.
    fn drop_staged(&self, number: u64) {
        // A listing may have begun before the content was stored.
        if self.staged(number).is_some() {
            self.outdate_listings_of(number);
        }
        let mut inodes = self.inodes.lock();
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

    /// Returns size and free space.
    pub(crate) fn space(&self) -> Result<StorageSpace, StorageError> {
        self.storage.space()
    }
}

#[cfg(test)]
mod tests;
