//! The files below the root of an export: from handles and names to open files.
//!
//! Every path is resolved from the root by openat2(2) without symbolic links, so that no path leaves the root, also while
//! another process changes directories.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_transfer_session::partial_paths::is_partial_path;
use godwit_transfer_session::path_text::path_to_text;
use nfs3_types::nfs3::{ftype3, nfsstat3};
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, chmod, fchmod, openat2, statx,
};
use rustix::process::geteuid;

use crate::attributes::{served_type, status};
use crate::file_handle::{FileHandle, directory_hash};
use crate::keyed_lock::KeyedLock;

/// Largest size of a name, bytes (`NAME_MAX` of Linux).
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Maximum number of handles with cached paths, about 200 bytes each.
const MAX_CACHED_PATHS: usize = 100_000;
/// Prefix of the names that clients give to files which are removed while they are open ("silly rename"). Such files are
/// not listed, but can be used by name.
const OPEN_FILE_PREFIX: &[u8] = b".nfs";
/// Number of entries of each searched directory for which the listed inode number is compared with that of the file.
const MAX_COMPARED_ENTRIES: usize = 8;
/// Maximum number of attempts to open a file whose mode does not permit it, because other servers of the pool may restore
/// the mode at any moment.
const MAX_OPEN_ATTEMPTS: usize = 10;
/// Bits of the mode that a process needs to read and write a file of its user.
pub(crate) const SERVER_FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Flags by which a path is resolved. Other file systems that are mounted below the root are not served, because handles
/// do not distinguish the files of several file systems.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// A file, directory or symbolic link below the root.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) handle: FileHandle,
    /// Path below the root; empty for the root.
    pub(crate) path: PathBuf,
    /// A descriptor opened with `O_PATH`, which refers to the file even if it is renamed.
    pub(crate) descriptor: OwnedFd,
    pub(crate) found: Statx,
}

impl Node {
    pub(crate) fn is_directory(&self) -> bool {
        self.file_type() == Some(ftype3::NF3DIR)
    }

    pub(crate) fn file_type(&self) -> Option<ftype3> {
        served_type(&self.found)
    }

    /// Reports whether the mode of the file has all of these bits.
    pub(crate) fn has_mode(&self, bits: Mode) -> bool {
        Mode::from_raw_mode(self.found.stx_mode.into()).contains(bits)
    }
}

/// An entry of a directory, as the directory stores it.
#[derive(Clone, Debug)]
pub(crate) struct ListedEntry {
    pub(crate) name: OsString,
    pub(crate) inode: u64,
    pub(crate) file_type: FileType,
}

/// The root of an export.
#[derive(Debug)]
pub(crate) struct ExportRoot {
    descriptor: OwnedFd,
    /// Paths at which the files of handles were last found. They are only hints, which are verified.
    paths: Mutex<HashMap<FileHandle, PathBuf>>,
    /// True if a directory was seen that lists other inode numbers than its files have.
    lists_other_inodes: AtomicBool,
    /// Held while the mode of a file with the inode number is changed, so that a mode which is changed for a moment is
    /// restored.
    mode_changes: KeyedLock<u64>,
}

/// Reports whether a name is hidden in listings: names that begin with a dot, which include files of incomplete copies.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// Reports whether a client may use a name that it knows.
fn is_usable(name: &OsStr) -> bool {
    !is_hidden(name)
        || (name.as_bytes().starts_with(OPEN_FILE_PREFIX) && !is_partial_path(&path_to_text(Path::new(name))))
}

/// Returns the name of an entry as the file system expects it.
///
/// # Errors
/// `NAMETOOLONG` if the name has more than 255 bytes, `INVAL` if no file can have it.
pub(crate) fn parse_name(bytes: &[u8]) -> Result<&OsStr, nfsstat3> {
    match bytes {
        _ if bytes.len() > MAX_NAME_BYTES => Err(nfsstat3::NFS3ERR_NAMETOOLONG),
        b"" => Err(nfsstat3::NFS3ERR_INVAL),
        _ if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(nfsstat3::NFS3ERR_INVAL),
        _ => Ok(OsStr::from_bytes(bytes)),
    }
}

/// Returns a name that a client may give to an entry.
///
/// # Errors
/// Those of [`parse_name`]; `INVAL` for the names of the directory itself and of the one above; `PERM` if the name is
/// hidden.
pub(crate) fn parse_new_name(bytes: &[u8]) -> Result<&OsStr, nfsstat3> {
    let name = parse_name(bytes)?;
    if matches!(bytes, b"." | b"..") {
        return Err(nfsstat3::NFS3ERR_INVAL);
    }
    if is_usable(name) { Ok(name) } else { Err(nfsstat3::NFS3ERR_PERM) }
}

/// Returns the attributes of an open file.
pub(crate) fn inspect(descriptor: impl AsFd) -> Result<Statx, nfsstat3> {
    statx(descriptor, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME).map_err(status)
}

/// Returns `None` for the errors of a path at which no file of the export is any more.
fn if_present<T>(result: Result<T, nfsstat3>) -> Result<Option<T>, nfsstat3> {
    match result {
        Ok(value) => Ok(Some(value)),
        // `INVAL` and `XDEV`: the path has a symbolic link or leads to another file system.
        Err(
            nfsstat3::NFS3ERR_NOENT
            | nfsstat3::NFS3ERR_NOTDIR
            | nfsstat3::NFS3ERR_INVAL
            | nfsstat3::NFS3ERR_XDEV
            | nfsstat3::NFS3ERR_STALE,
        ) => Ok(None),
        Err(status) => Err(status),
    }
}

/// Returns `None` also for the errors of a path that is hidden from the server.
fn if_accessible<T>(result: Result<T, nfsstat3>) -> Result<Option<T>, nfsstat3> {
    match result {
        Err(nfsstat3::NFS3ERR_ACCES) => Ok(None),
        result => if_present(result),
    }
}

impl ExportRoot {
    /// Opens the root.
    ///
    /// # Errors
    /// The I/O error if the directory cannot be opened, or if the system has no openat2(2).
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(root, flags, Mode::empty())?;
        openat2(&descriptor, ".", flags, Mode::empty(), RESOLVE)?;
        let (paths, mode_changes) = (Mutex::default(), KeyedLock::new(usize::MAX));
        Ok(Self { descriptor, paths, lists_other_inodes: AtomicBool::new(false), mode_changes })
    }

    /// Opens a path below the root; the empty path is the root.
    fn open_path(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, nfsstat3> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat2(&self.descriptor, path, flags, Mode::empty(), RESOLVE).map_err(status)
    }

    /// Returns the root.
    pub(crate) fn root_node(&self) -> Result<Node, nfsstat3> {
        let descriptor = self.open_path(Path::new(""), OFlags::PATH)?;
        let found = inspect(&descriptor)?;
        Ok(Node { handle: FileHandle::root(), path: PathBuf::new(), descriptor, found })
    }

    /// Returns an entry of a directory.
    ///
    /// # Errors
    /// `NOENT` if the entry does not exist or is hidden; `NAMETOOLONG` if it is too deep below the root for a handle.
    pub(crate) fn child(&self, directory: &Node, name: &OsStr) -> Result<Node, nfsstat3> {
        if !directory.is_directory() {
            return Err(nfsstat3::NFS3ERR_NOTDIR);
        }
        if !is_usable(name) {
            return Err(nfsstat3::NFS3ERR_NOENT);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat2(&directory.descriptor, name, flags, Mode::empty(), RESOLVE);
        let descriptor = opened.map_err(|error| match status(error) {
            nfsstat3::NFS3ERR_XDEV => nfsstat3::NFS3ERR_NOENT,
            status => status,
        })?;
        let found = inspect(&descriptor)?;
        if served_type(&found).is_none() {
            return Err(nfsstat3::NFS3ERR_NOENT);
        }
        let handle = directory.handle.child(directory.found.stx_ino, &found).ok_or(nfsstat3::NFS3ERR_NAMETOOLONG)?;
        let path = directory.path.join(name);
        self.remember(&handle, &path);
        Ok(Node { handle, path, descriptor, found })
    }

    /// Returns the node at a path below the root.
    ///
    /// # Errors
    /// Those of [`Self::child`]; `INVAL` if the path contains `..`.
    pub(crate) fn node_at(&self, path: &Path) -> Result<Node, nfsstat3> {
        let mut node = self.root_node()?;
        for component in path.components() {
            match component {
                Component::Normal(name) => node = self.child(&node, parse_name(name.as_bytes())?)?,
                Component::RootDir | Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => return Err(nfsstat3::NFS3ERR_INVAL),
            }
        }
        Ok(node)
    }

    /// Returns the file of a handle.
    ///
    /// # Errors
    /// `BADHANDLE` if the bytes are not a handle, `STALE` if the file does not exist any more.
    pub(crate) fn resolve(&self, bytes: &[u8]) -> Result<Node, nfsstat3> {
        let handle = FileHandle::from_bytes(bytes).ok_or(nfsstat3::NFS3ERR_BADHANDLE)?;
        if handle.is_root() {
            return self.root_node();
        }
        let cached = self.paths.lock().get(&handle).cloned();
        if let Some(path) = cached
            && let Some(node) = self.open_if_matching(&handle, path)?
        {
            return Ok(node);
        }
        // Some file systems list other inode numbers than they report for a file, so that files must be inspected.
        for is_inspecting in [false, true] {
            if is_inspecting && !self.lists_other_inodes.load(Ordering::Relaxed) {
                break;
            }
            if let Some(node) = self.search(&handle, Path::new(""), 0, is_inspecting)? {
                self.remember(&handle, &node.path);
                return Ok(node);
            }
        }
        self.paths.lock().remove(&handle);
        Err(nfsstat3::NFS3ERR_STALE)
    }

    /// Returns the file at a path if it is that of the handle.
    ///
    /// # Errors
    /// Those of the file system, such as a lack of descriptors, which do not show that it is another file.
    fn open_if_matching(&self, handle: &FileHandle, path: PathBuf) -> Result<Option<Node>, nfsstat3> {
        let opened = self.open_path(&path, OFlags::PATH).and_then(|descriptor| Ok((inspect(&descriptor)?, descriptor)));
        let Some((found, descriptor)) = if_present(opened)? else { return Ok(None) };
        let is_match = served_type(&found).is_some() && handle.matches(&found);
        Ok(is_match.then(|| Node { handle: handle.clone(), path, descriptor, found }))
    }

    /// Compares the inode number of a file with the one that its directory lists.
    fn compare_inode(&self, path: &Path, listed: u64) -> Result<(), nfsstat3> {
        if !self.lists_other_inodes.load(Ordering::Relaxed)
            && self.inspect_path(path)?.is_some_and(|found| found.stx_ino != listed)
        {
            self.lists_other_inodes.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Searches the file of a handle in a directory, `level` directories below the root.
    fn search(
        &self,
        handle: &FileHandle,
        directory: &Path,
        level: usize,
        is_inspecting: bool,
    ) -> Result<Option<Node>, nfsstat3> {
        let Some(listed) = if_accessible(self.list(directory))? else { return Ok(None) };
        // The listing is closed before the directories are searched, so that a search has one open directory.
        let mut directories = Vec::new();
        for (number, entry) in listed.enumerate() {
            let Some(entry) = if_accessible(entry)? else { break };
            let path = directory.join(&entry.name);
            if number < MAX_COMPARED_ENTRIES {
                self.compare_inode(&path, entry.inode)?;
            }
            let inode = match is_inspecting {
                true => self.inspect_path(&path)?.map(|found| found.stx_ino),
                false => Some(entry.inode),
            };
            let Some(inode) = inode else { continue };
            match handle.parents.get(level) {
                None if inode == handle.inode => {
                    if let Some(node) = self.open_if_matching(handle, path)? {
                        return Ok(Some(node));
                    }
                }
                Some(hash) if entry.may_be_directory() && *hash == directory_hash(inode) => directories.push(path),
                _ => {}
            }
        }
        for directory in directories {
            if let Some(node) = self.search(handle, &directory, level + 1, is_inspecting)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Returns the attributes of the file at a path, if there is one.
    fn inspect_path(&self, path: &Path) -> Result<Option<Statx>, nfsstat3> {
        if_accessible(self.open_path(path, OFlags::PATH).and_then(inspect))
    }

    /// Returns the usable entries of a directory, in any order, as they are read: a directory may have millions.
    ///
    /// # Errors
    /// Those of the file system, also for each entry.
    pub(crate) fn list(
        &self,
        directory: &Path,
    ) -> Result<impl Iterator<Item = Result<ListedEntry, nfsstat3>> + use<>, nfsstat3> {
        let descriptor = self.open_path(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let entries = Dir::new(descriptor).map_err(status)?.map(|entry| -> Result<ListedEntry, nfsstat3> {
            let entry = entry.map_err(status)?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            Ok(ListedEntry { name, inode: entry.ino(), file_type: entry.file_type() })
        });
        Ok(entries.filter(|entry| !matches!(entry, Ok(entry) if !is_usable(&entry.name))))
    }

    /// Opens a file or directory for reading, writing or syncing, whatever its mode is if it belongs to the user of the
    /// server.
    ///
    /// # Errors
    /// `STALE` if the path has got another file at this moment; those of the file system.
    pub(crate) fn open_node(&self, node: &Node, flags: OFlags) -> Result<File, nfsstat3> {
        // Opening a pipe would wait without the flag, if another process replaced the file by one.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let descriptor = match self.open_path(&node.path, flags) {
            Err(nfsstat3::NFS3ERR_ACCES) if node.file_type() == Some(ftype3::NF3REG) => {
                self.open_as_owner(node, flags)?
            }
            opened => opened?,
        };
        let found = inspect(&descriptor)?;
        let is_same = (found.stx_ino, found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
            == (node.found.stx_ino, node.found.stx_btime.tv_sec, node.found.stx_btime.tv_nsec);
        if is_same { Ok(File::from(descriptor)) } else { Err(nfsstat3::NFS3ERR_STALE) }
    }

    /// Opens a file of the user of the server whose mode does not permit it. A program that has created a file may write it
    /// whatever its mode is, but NFSv3 has no open files: the server opens the file for each call. A process without the
    /// rights of root can do so only by a change of the mode, which lasts for a moment.
    ///
    /// Other servers of the pool may change and restore the mode at the same time. So the mode is changed only if it does
    /// not permit the access already, restored only if it is still the changed one, and the file is opened again if
    /// another server has restored the mode too early.
    ///
    /// # Errors
    /// `ACCES` if the file belongs to another user, or if its mode is not the reason; those of the file system.
    fn open_as_owner(&self, node: &Node, flags: OFlags) -> Result<OwnedFd, nfsstat3> {
        let _lock = self.mode_changes.lock(node.found.stx_ino);
        if node.found.stx_uid != geteuid().as_raw() {
            return Err(nfsstat3::NFS3ERR_ACCES);
        }
        let current_mode = || inspect(&node.descriptor).map(|found| Mode::from_raw_mode(found.stx_mode.into()));
        // A descriptor of `O_PATH` has no fchmod(2).
        let place = format!("/proc/self/fd/{}", node.descriptor.as_raw_fd());
        let set_mode = |mode| chmod(&place, mode).map_err(status);
        for _ in 0..MAX_OPEN_ATTEMPTS {
            let mode = current_mode()?;
            let changed_mode = mode | SERVER_FILE_MODE;
            if changed_mode != mode {
                set_mode(changed_mode)?;
            }
            let opened = self.open_path(&node.path, flags);
            if changed_mode != mode && current_mode()? == changed_mode {
                set_mode(mode)?;
            }
            if !matches!(opened, Err(nfsstat3::NFS3ERR_ACCES)) {
                return opened;
            }
        }
        Err(nfsstat3::NFS3ERR_ACCES)
    }

    /// Sets the mode of an open file or directory.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn set_mode(&self, file: &File, mode: Mode) -> Result<(), nfsstat3> {
        let _lock = self.mode_changes.lock(inspect(file)?.stx_ino);
        fchmod(file, mode).map_err(status)
    }

    /// Returns the size and free space of the file system of the root.
    pub(crate) fn space(&self) -> Result<rustix::fs::StatVfs, nfsstat3> {
        let directory = self.open_path(Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::fstatvfs(directory).map_err(status)
    }

    /// Remembers the path of a handle.
    pub(crate) fn remember(&self, handle: &FileHandle, path: &Path) {
        let mut paths = self.paths.lock();
        if paths.get(handle).is_some_and(|known| known == path) {
            return;
        }
        if paths.len() >= MAX_CACHED_PATHS {
            paths.clear();
        }
        paths.insert(handle.clone(), path.to_owned());
    }

    /// Changes the remembered paths of the files below a directory that has got another path.
    pub(crate) fn remember_move(&self, old: &Path, new: &Path) {
        for path in self.paths.lock().values_mut() {
            if let Ok(rest) = path.strip_prefix(old)
                && !rest.as_os_str().is_empty()
            {
                *path = new.join(rest);
            }
        }
    }

    /// Forgets all paths, as a restart of the server does.
    #[cfg(test)]
    fn forget(&self) {
        self.paths.lock().clear();
    }
}

impl ListedEntry {
    /// Reports whether the entry is a directory, as far as the directory stores it.
    pub(crate) fn may_be_directory(&self) -> bool {
        matches!(self.file_type, FileType::Directory | FileType::Unknown)
    }

    /// Reports whether the entry is of a type that is served, as far as the directory stores it.
    pub(crate) fn may_be_served(&self) -> bool {
        self.may_be_directory() || matches!(self.file_type, FileType::RegularFile | FileType::Symlink)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn deep_root() -> (tempfile::TempDir, ExportRoot) {
        let directory = tempfile::tempdir().expect("it succeeds");
        for other in 0..40 {
            fs::create_dir_all(directory.path().join(format!("a/other{other}/c"))).expect("it succeeds");
        }
        fs::create_dir_all(directory.path().join("a/b/c")).expect("it succeeds");
        fs::write(directory.path().join("a/b/c/f"), "f").expect("it succeeds");
        let root = ExportRoot::open(directory.path()).expect("it succeeds");
        (directory, root)
    }

    fn path_of(root: &ExportRoot, handle: &[u8]) -> Result<PathBuf, nfsstat3> {
        root.resolve(handle).map(|node| node.path)
    }

    #[test]
    fn a_server_that_has_not_seen_a_handle_finds_its_file() {
        let (directory, root) = deep_root();
        let handle = root.node_at(Path::new("a/b/c/f")).unwrap().handle.to_bytes();
        assert_eq!(path_of(&root, &handle), Ok("a/b/c/f".into()));
        for server in [ExportRoot::open(directory.path()).unwrap(), {
            root.forget();
            root
        }] {
            assert_eq!(path_of(&server, &handle), Ok("a/b/c/f".into()));
            assert!(
                server.search(&FileHandle::from_bytes(&handle).unwrap(), Path::new(""), 0, true).unwrap().is_some()
            );
        }
    }

    #[test]
    fn handles_survive_renames_within_a_directory_and_of_directories() {
        let (directory, root) = deep_root();
        let handle = root.node_at(Path::new("a/b/c/f")).unwrap().handle.to_bytes();
        fs::rename(directory.path().join("a/b/c/f"), directory.path().join("a/b/c/g")).unwrap();
        assert_eq!(path_of(&root, &handle), Ok("a/b/c/g".into()));
        fs::rename(directory.path().join("a/b"), directory.path().join("a/d")).unwrap();
        root.forget();
        assert_eq!(path_of(&root, &handle), Ok("a/d/c/g".into()));
    }

    #[test]
    fn handles_of_removed_and_replaced_files_are_stale() {
        let (directory, root) = deep_root();
        let file = directory.path().join("a/b/c/f");
        let handle = root.node_at(Path::new("a/b/c/f")).unwrap().handle.to_bytes();
        fs::write(directory.path().join("new"), "new").unwrap();
        fs::rename(directory.path().join("new"), &file).unwrap();
        assert_eq!(path_of(&root, &handle), Err(nfsstat3::NFS3ERR_STALE));
        // The inode number may be used again; the creation time then differs.
        let handle = root.node_at(Path::new("a/b/c/f")).unwrap().handle.to_bytes();
        fs::remove_file(&file).unwrap();
        fs::write(&file, "another").unwrap();
        assert_eq!(path_of(&root, &handle), Err(nfsstat3::NFS3ERR_STALE));
        assert_eq!(path_of(&root, b"nonsense"), Err(nfsstat3::NFS3ERR_BADHANDLE));
    }

    #[test]
    fn invented_handles_of_special_files_are_stale_and_do_not_cause_inspections() {
        let (directory, root) = deep_root();
        rustix::fs::mknodat(rustix::fs::CWD, directory.path().join("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let found = root.inspect_path(Path::new("pipe")).unwrap().unwrap();
        let handle = FileHandle::root().child(0, &found).unwrap();
        assert_eq!(path_of(&root, &handle.to_bytes()), Err(nfsstat3::NFS3ERR_STALE));
        assert!(!root.lists_other_inodes.load(Ordering::Relaxed));
    }

    #[test]
    fn a_cached_path_that_a_symbolic_link_has_replaced_is_searched_again() {
        let (directory, root) = deep_root();
        let handle = root.node_at(Path::new("a/b/c/f")).unwrap().handle.to_bytes();
        fs::rename(directory.path().join("a/b"), directory.path().join("a/d")).unwrap();
        symlink("d", directory.path().join("a/b")).unwrap();
        assert_eq!(path_of(&root, &handle), Ok("a/d/c/f".into()));
    }

    #[test]
    fn no_path_leaves_the_root_and_hidden_entries_are_not_found() {
        let (directory, root) = deep_root();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        symlink(outside.path(), directory.path().join("link")).unwrap();
        for name in [".godwit", ".x.godwit-part", ".f.godwit-journal"] {
            fs::write(directory.path().join(name), "hidden").unwrap();
            assert_eq!(root.node_at(Path::new(name)).map(|node| node.path), Err(nfsstat3::NFS3ERR_NOENT), "{name}");
            assert_eq!(parse_new_name(name.as_bytes()), Err(nfsstat3::NFS3ERR_PERM), "{name}");
        }
        assert_eq!(root.node_at(Path::new("link")).unwrap().file_type(), Some(ftype3::NF3LNK));
        for path in ["link/secret", "../secret", "a/../../secret"] {
            assert!(root.node_at(Path::new(path)).is_err(), "{path}");
        }
        assert!(root.open_path(&Path::new("..").join(outside.path()), OFlags::RDONLY).is_err());
        assert_eq!(parse_new_name(b".nfs0001"), Ok(OsStr::new(".nfs0001")));
        assert_eq!(parse_new_name(b"x.godwit-part"), Ok(OsStr::new("x.godwit-part")));
        assert_eq!(parse_new_name(b"."), Err(nfsstat3::NFS3ERR_INVAL));
        assert_eq!(parse_name(b"a/b"), Err(nfsstat3::NFS3ERR_INVAL));
        assert_eq!(parse_name(&[b'x'; 256]), Err(nfsstat3::NFS3ERR_NAMETOOLONG));
    }

    #[test]
    fn directories_deeper_than_a_handle_can_express_are_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let deep: PathBuf = (0..=crate::file_handle::MAX_DEPTH).map(|level| format!("d{level}")).collect();
        fs::create_dir_all(directory.path().join(&deep)).unwrap();
        let root = ExportRoot::open(directory.path()).unwrap();
        let deepest = root.node_at(&deep).unwrap();
        root.forget();
        assert_eq!(path_of(&root, &deepest.handle.to_bytes()), Ok(deep.clone()));
        fs::write(directory.path().join(&deep).join("f"), "f").unwrap();
        assert_eq!(root.child(&deepest, OsStr::new("f")).map(|node| node.path), Err(nfsstat3::NFS3ERR_NAMETOOLONG));
    }
}
