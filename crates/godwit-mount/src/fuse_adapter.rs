//! Answers the calls of the kernel from a [`FileTree`].
//!
//! Locks of files (flock, fcntl) are not passed on by the kernel, which manages them within one mount.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};

use crate::file_tree::{ATTRIBUTE_LIFETIME, Access, FileTree, MAX_NAME_BYTES, OpenedFile};
use crate::slow_calls::SlowCalls;
use crate::storage::{Attributes, StorageError};

/// Largest read and write of the kernel, bytes. This is one block of a stored file, so that a read that the kernel
/// makes in advance is answered from one block without copying.
const MAX_REQUEST_BYTES: u32 = 1 << 18;
/// Number of reads that the kernel sends in advance.
const MAX_BACKGROUND_REQUESTS: u16 = 64;
/// Preferred size of reads and writes, bytes.
const PREFERRED_BLOCK_BYTES: u32 = 1 << 18;
/// Size of a block in statfs, bytes.
const SPACE_BLOCK_BYTES: u32 = 4096;
/// Inode number in listings whose entries were not looked up. Programs only test that it is not 0.
const UNKNOWN_INODE: INodeNo = INodeNo(u64::MAX);
/// The entries of each directory for itself and its parent.
const DOTS: [&str; 2] = [".", ".."];
/// Attributes of an entry of which only the type is used.
const DIRECTORY_ATTRIBUTES: Attributes =
    Attributes { is_directory: true, size_bytes: 0, mode: 0o777, modified: SystemTime::UNIX_EPOCH, version: 0 };
/// Inode numbers are not used again.
const GENERATION: Generation = Generation(0);

/// A [`FileTree`] as the kernel sees it.
#[derive(Clone)]
pub(crate) struct FuseAdapter {
    pub(crate) tree: Arc<FileTree>,
    pub(crate) slow_calls: SlowCalls,
    /// Owner of all files.
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl FuseAdapter {
    fn file_attributes(&self, inode: u64, attributes: &Attributes) -> FileAttr {
        let Attributes { is_directory, size_bytes, mode, modified, .. } = *attributes;
        FileAttr {
            ino: INodeNo(inode),
            size: size_bytes,
            blocks: size_bytes.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind: file_type(is_directory),
            perm: (mode & 0o777) as u16,
            nlink: if is_directory { 2 } else { 1 },
            uid: self.user,
            gid: self.group,
            rdev: 0,
            blksize: PREFERRED_BLOCK_BYTES,
            flags: 0,
        }
    }

    /// Converts an error to its number, and writes it to the log if programs cannot describe it to their users.
    fn error(&self, error: &StorageError) -> Errno {
        self.tree.log_error(error);
        Errno::from_i32(error.errno)
    }

    fn reply_entry(&self, found: Result<(u64, Attributes), StorageError>, reply: ReplyEntry) {
        match found {
            Ok((inode, attributes)) => {
                reply.entry(&ATTRIBUTE_LIFETIME, &self.file_attributes(inode, &attributes), GENERATION);
            }
            Err(error) => reply.error(self.error(&error)),
        }
    }

    fn reply_attributes(&self, inode: INodeNo, found: Result<Attributes, StorageError>, reply: ReplyAttr) {
        match found {
            Ok(attributes) => reply.attr(&ATTRIBUTE_LIFETIME, &self.file_attributes(inode.0, &attributes)),
            Err(error) => reply.error(self.error(&error)),
        }
    }

    fn reply_empty(&self, outcome: Result<(), StorageError>, reply: ReplyEmpty) {
        match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.error(&error)),
        }
    }

    fn reply_written(&self, handle: FileHandle, offset: u64, data: &[u8], reply: ReplyWrite) {
        match self.tree.write(handle.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(self.error(&error)),
        }
    }

    /// Answers a call from a thread of its own if it may take the time of an upload.
    fn answer(&self, is_slow: bool, call: impl FnOnce(&Self) + Send + 'static) {
        match is_slow {
            true => {
                let adapter = self.clone();
                self.slow_calls.run(move || call(&adapter));
            }
            false => call(self),
        }
    }

    fn reply_opened(&self, opened: Result<OpenedFile, StorageError>, reply: ReplyOpen) {
        match opened {
            Ok(opened) => reply.opened(FileHandle(opened.handle), cache_flags(opened.keeps_cache)),
            Err(error) => reply.error(self.error(&error)),
        }
    }

    fn reply_created(&self, created: Result<(u64, Attributes, OpenedFile), StorageError>, reply: ReplyCreate) {
        match created {
            Ok((inode, attributes, opened)) => reply.created(
                &ATTRIBUTE_LIFETIME,
                &self.file_attributes(inode, &attributes),
                GENERATION,
                FileHandle(opened.handle),
                cache_flags(opened.keeps_cache),
            ),
            Err(error) => reply.error(self.error(&error)),
        }
    }

    /// Answers with a value, or with its size if the program has asked for the size.
    fn reply_value(&self, value: Result<Option<Vec<u8>>, StorageError>, size_bytes: u32, reply: ReplyXattr) {
        match value {
            Ok(Some(value)) if size_bytes == 0 => reply.size(value.len() as u32),
            Ok(Some(value)) if value.len() > size_bytes as usize => reply.error(Errno::ERANGE),
            Ok(Some(value)) => reply.data(&value),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(self.error(&error)),
        }
    }
}

fn file_type(is_directory: bool) -> FileType {
    if is_directory { FileType::Directory } else { FileType::RegularFile }
}

fn access(flags: i32) -> Access {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Access::Read,
        _ if flags & libc::O_TRUNC != 0 => Access::Truncate,
        _ => Access::Write,
    }
}

fn cache_flags(keeps_cache: bool) -> FopenFlags {
    if keeps_cache { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
}

impl Filesystem for FuseAdapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // Entries of a directory come with their attributes if the program inspects them.
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            // Modes have no set-user-id bits, so a write has none to remove.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        for capability in wanted {
            // A kernel without the capability makes other calls, which are answered, too.
            let _ = config.add_capabilities(capability);
        }
        let unsupported = |_| io::Error::from_raw_os_error(libc::EPROTO);
        config.set_max_write(MAX_REQUEST_BYTES).map_err(unsupported)?;
        config.set_max_background(MAX_BACKGROUND_REQUESTS).map_err(|_| io::Error::from_raw_os_error(libc::EPROTO))?;
        Ok(())
    }

    fn destroy(&mut self) {
        // The connection to the kernel may end before the kernel has closed all files, for example by umount --force.
        self.tree.store_changes();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(self.tree.look_up(parent.0, name), reply);
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        self.tree.forget(inode.0, lookups);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attributes(inode, self.tree.attributes(inode.0), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size_bytes: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if user.is_some_and(|user| user != self.user) || group.is_some_and(|group| group != self.group) {
            return reply.error(Errno::EPERM);
        }
        let modified = modified.map(|modified| match modified {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        });
        let (mode, handle) = (mode.map(|mode| mode & 0o777), handle.map(|handle| handle.0));
        self.answer(size_bytes.is_some(), move |adapter| {
            let changed = adapter.tree.set_attributes(inode.0, handle, size_bytes, mode, modified);
            adapter.reply_attributes(inode, changed, reply);
        });
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.reply_entry(self.tree.create_directory(parent.0, name, mode & !umask & 0o777), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.answer(true, move |adapter| adapter.reply_empty(adapter.tree.remove_file(parent.0, &name), reply));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.reply_empty(self.tree.remove_directory(parent.0, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.answer(true, move |adapter| {
            let renamed = adapter.tree.rename((parent.0, &name), (new_parent.0, &new_name), flags.is_empty());
            adapter.reply_empty(renamed, reply);
        });
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let access = access(flags.0);
        self.answer(access == Access::Truncate, move |adapter| {
            adapter.reply_opened(adapter.tree.open(inode.0, access), reply);
        });
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (mode, is_exclusive) = (mode & !umask & 0o777, flags & libc::O_EXCL != 0);
        let (access, name) = (access(flags), name.to_owned());
        self.answer(access == Access::Truncate, move |adapter| {
            adapter.reply_created(adapter.tree.create(parent.0, &name, mode, is_exclusive, access), reply);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size_bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.tree.read(handle.0, offset, size_bytes as usize) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(self.error(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.tree.is_write_slow(handle.0) {
            let data = data.to_vec();
            self.answer(true, move |adapter| adapter.reply_written(handle, offset, &data, reply));
        } else {
            self.reply_written(handle, offset, data, reply);
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.answer(self.tree.is_changed(handle.0), move |adapter| {
            adapter.reply_empty(adapter.tree.close(handle.0), reply);
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer(self.tree.is_changed(handle.0), move |adapter| {
            adapter.reply_empty(adapter.tree.flush(handle.0), reply);
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.answer(self.tree.is_changed(handle.0), move |adapter| {
            adapter.tree.release(handle.0);
            reply.ok();
        });
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.tree.open_directory(inode.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(self.error(&error)),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let directory = match self.tree.directory(handle.0) {
            Ok(directory) => directory,
            Err(error) => return reply.error(self.error(&error)),
        };
        let dots = DOTS.map(|name| (inode, true, OsStr::new(name)));
        let found = directory.entries().iter();
        let found = found.map(|entry| (UNKNOWN_INODE, entry.attributes.is_directory, entry.name.as_os_str()));
        for (next, (inode, is_directory, name)) in (1..).zip(dots.into_iter().chain(found)).skip(offset as usize) {
            if reply.add(inode, next, file_type(is_directory), name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(&self, _: &Request, inode: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let directory = match self.tree.directory_with_attributes(handle.0) {
            Ok(directory) => directory,
            Err(error) => return reply.error(self.error(&error)),
        };
        // The kernel uses only the type of these two.
        let own = self.file_attributes(inode.0, &DIRECTORY_ATTRIBUTES);
        for (next, name) in (1..).zip(DOTS).skip(offset as usize) {
            if reply.add(inode, next, name, &Duration::ZERO, &own, GENERATION) {
                return reply.ok();
            }
        }
        let first = (offset as usize).saturating_sub(DOTS.len());
        let mut is_empty = offset >= DOTS.len() as u64;
        for (position, entry) in directory.entries().iter().enumerate().skip(first) {
            let (inode, attributes, lifetime) = match self.tree.look_up_listed(&directory, entry) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) if is_empty => return reply.error(self.error(&error)),
                // The next call reports it.
                Err(_) => break,
            };
            let attributes = self.file_attributes(inode, &attributes);
            let next = (position + DOTS.len() + 1) as u64;
            if reply.add(INodeNo(inode), next, &entry.name, &lifetime, &attributes, GENERATION) {
                self.tree.forget(inode, 1);
                break;
            }
            is_empty = false;
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.tree.release_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Changes of names are on disk when their call returns.
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.tree.space() {
            Ok(space) => {
                let blocks = |bytes: u64| bytes / u64::from(SPACE_BLOCK_BYTES);
                reply.statfs(
                    blocks(space.total_bytes),
                    blocks(space.free_bytes),
                    blocks(space.available_bytes),
                    space.total_files,
                    space.free_files,
                    SPACE_BLOCK_BYTES,
                    MAX_NAME_BYTES as u32,
                    SPACE_BLOCK_BYTES,
                );
            }
            Err(error) => reply.error(self.error(&error)),
        }
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size_bytes: u32, reply: ReplyXattr) {
        self.reply_value(self.tree.attribute_value(inode.0, name), size_bytes, reply);
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size_bytes: u32, reply: ReplyXattr) {
        let names = self.tree.attribute_names(inode.0).map(|names| {
            Some(names.iter().flat_map(|name| OsStr::new(name).as_bytes().iter().chain(&[0])).copied().collect())
        });
        self.reply_value(names, size_bytes, reply);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn access(&self, _: &Request, inode: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        self.reply_empty(self.tree.attributes(inode.0).map(drop), reply);
    }
}
