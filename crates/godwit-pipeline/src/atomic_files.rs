//! Output files that are published together, when all of them are complete.
//!
//! Each file is written under a temporary name, flushed to disk, and locked, so that two jobs never write the same
//! file. Publishing renames all files one after the other. If one rename fails, the earlier renames are undone.

mod atomic_directory;
mod encryption;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use godwit_process::{LockedFile, TemporaryPath};

pub use atomic_directory::{AtomicDirectory, backup_name};

const BUSY_MESSAGE: &str = "another godwit process is writing this file; wait until it has ended";

/// Directories and files to be published, in the order in which they are renamed.
#[derive(Default)]
pub struct AtomicFileSet {
    directories: Vec<AtomicDirectory>,
    files: Vec<AtomicFile>,
}

/// A file with a temporary name in the directory of its final path. If it is dropped before it is published, it is
/// removed.
pub struct AtomicFile {
    path: PathBuf,
    temporary_path: PathBuf,
    file: LockedFile,
    published: bool,
    /// True if the file stays under its temporary name when this value is dropped, for a later process that resumes it.
    keep_on_drop: bool,
    /// Guard that removes the file if a signal stops the process; `None` for a resumable file.
    temporary_guard: Option<TemporaryPath>,
}

impl AtomicFile {
    /// Creates an empty file that will be published as `path`; until then it has a temporary name in the same
    /// directory.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::ResourceBusy`] if another job writes the same file,
    /// [`io::ErrorKind::IsADirectory`] if a directory has the name.
    pub fn create(path: &Path) -> io::Result<Self> {
        let staged = Self::open_or_create(path, false)?;
        staged.file.set_len(0)?;
        Ok(staged)
    }

    /// Opens a file that will be published as `path`, with the bytes that an earlier process wrote. If it is dropped
    /// before it is published, it stays under its temporary name.
    ///
    /// # Errors
    /// The errors of [`AtomicFile::create`].
    pub fn open_resumable(path: &Path) -> io::Result<Self> {
        Self::open_or_create(path, true)
    }

    fn open_or_create(path: &Path, keep_on_drop: bool) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "a directory has this name"));
        }
        let temporary_path = path.with_file_name(temporary_name(path));
        let open = || -> io::Result<LockedFile> {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&temporary_path)?;
            lock_exclusively(file, &temporary_path, BUSY_MESSAGE)
        };
        let (file, temporary_guard) = if keep_on_drop {
            (open()?, None)
        } else {
            let (file, temporary) = TemporaryPath::create(&temporary_path, open)?;
            (file, Some(temporary))
        };
        Ok(Self { path: path.to_owned(), temporary_path, file, published: false, keep_on_drop, temporary_guard })
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the temporary path, to which another program may write the content.
    pub fn temporary_path(&self) -> &Path {
        &self.temporary_path
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.published && !self.keep_on_drop {
            // Ignore an error here: the failure that caused the drop is already reported.
            let _ = fs::remove_file(&self.temporary_path);
        }
    }
}

/// Locks the file opened at `temporary_path` against other jobs. `busy` is the error message if another job has locked
/// the file.
fn lock_exclusively(opened: File, temporary_path: &Path, busy: &'static str) -> io::Result<LockedFile> {
    let busy = || io::Error::new(io::ErrorKind::ResourceBusy, busy);
    let locked = LockedFile::try_lock(opened).map_err(|error| match error {
        TryLockError::WouldBlock => busy(),
        TryLockError::Error(error) => error,
    })?;
    // Between opening and locking, another job may have published or removed the file: check that the path still names
    // it.
    let (ours, named) = (locked.metadata()?, fs::metadata(temporary_path));
    match named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
        true => Ok(locked),
        false => Err(busy()),
    }
}

/// Returns whether a relative path stays below its base directory.
pub fn is_relative_descendant(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Returns the temporary name that the file at `path` has until it is published.
pub fn temporary_name(path: &Path) -> String {
    format!(".{}.godwit-part", path.file_name().unwrap_or_default().to_string_lossy())
}

impl AtomicFileSet {
    /// Adds a file that is complete and flushed to disk.
    pub fn add(&mut self, file: AtomicFile) {
        self.files.push(file);
    }

    /// Adds all directories and files of `others`.
    pub fn append(&mut self, mut others: Self) {
        self.directories.append(&mut others.directories);
        self.files.append(&mut others.files);
    }

    /// Adds a directory whose files are complete and flushed to disk.
    pub fn add_directory(&mut self, directory: AtomicDirectory) {
        self.directories.push(directory);
    }

    /// Writes a small file and adds it to the set.
    ///
    /// # Errors
    /// The errors of [`AtomicFile::create`], and the I/O error of the file system.
    pub fn write_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let staged = AtomicFile::create(path)?;
        staged.file().write_all(bytes)?;
        staged.file.sync_all()?;
        self.files.push(staged);
        Ok(())
    }

    /// Returns path and size in bytes of each directory and file.
    pub fn sizes(&self) -> impl Iterator<Item = (&Path, u64)> {
        let directories = self.directories.iter().map(|staged| (staged.path(), staged.bytes()));
        let size = |staged: &AtomicFile| staged.file.metadata().map_or(0, |found| found.len());
        directories.chain(self.files.iter().map(move |staged| (staged.path.as_path(), size(staged))))
    }

    /// Returns the files, in the order in which they are renamed.
    pub fn files(&self) -> &[AtomicFile] {
        &self.files
    }

    /// Keeps the temporary files even if publishing fails, so that a later process can rename them.
    pub fn keep_on_drop(&mut self) {
        for staged in &mut self.files {
            staged.keep_on_drop = true;
            drop(staged.temporary_guard.take());
        }
    }

    /// Returns the directories, in the order in which they are renamed.
    pub fn directories(&self) -> &[AtomicDirectory] {
        &self.directories
    }

    /// Renames every directory and file to its final name. Replaces existing directories and files of these names.
    ///
    /// # Errors
    /// The path and its I/O error. If a rename failed, none of these files has its final name.
    pub fn publish(mut self) -> Result<(), (PathBuf, io::Error)> {
        for at in 0..self.directories.len() {
            if let Err(error) = self.directories[at].publish() {
                self.directories[..at].iter_mut().for_each(AtomicDirectory::unpublish);
                return Err((self.directories[at].path().to_owned(), error));
            }
        }
        for at in 0..self.files.len() {
            let renamed = fs::rename(&self.files[at].temporary_path, &self.files[at].path);
            if let Err(error) = renamed {
                for published in &self.files[..at] {
                    // Ignore an error here: the function returns the error of the failed rename.
                    let _ = match published.keep_on_drop {
                        true => fs::rename(&published.path, &published.temporary_path),
                        false => fs::remove_file(&published.path),
                    };
                }
                self.directories.iter_mut().for_each(AtomicDirectory::unpublish);
                return Err((self.files[at].path.clone(), error));
            }
            self.files[at].published = true;
        }
        for directory in &self.directories {
            directory.remove_backup().map_err(|error| (directory.path().to_owned(), error))?;
        }
        let paths = self.files.iter().map(AtomicFile::path).chain(self.directories.iter().map(AtomicDirectory::path));
        let directories = paths.filter_map(Path::parent);
        for directory in directories.collect::<std::collections::BTreeSet<_>>() {
            sync_directory(directory).map_err(|error| (directory.to_owned(), error))?;
        }
        Ok(())
    }
}

/// Flushes a directory to disk, so that the names of its files survive a crash.
///
/// # Errors
/// The I/O error of the file system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

/// Checks whether [`AtomicFile::create`] would fail because of the name, without creating a file.
///
/// # Errors
/// The errors of [`AtomicFile::create`].
pub fn check_available(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "a directory has this name"));
    }
    match is_locked(&path.with_file_name(temporary_name(path))) {
        true => Err(io::Error::new(io::ErrorKind::ResourceBusy, BUSY_MESSAGE)),
        false => Ok(()),
    }
}

/// Returns whether another process has locked a file.
pub fn is_locked(path: &Path) -> bool {
    matches!(File::open(path).map(|file| file.try_lock_shared()), Ok(Err(TryLockError::WouldBlock)))
}

/// Writes a small file under a temporary name, flushes it to disk, and renames it to `path`.
///
/// # Errors
/// The I/O error of the file system.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut staged = AtomicFileSet::default();
    staged.write_file(path, bytes)?;
    staged.publish().map_err(|(_, error)| error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_take_their_names_together() {
        let directory = tempfile::tempdir().unwrap();
        let mut staged = AtomicFileSet::default();
        staged.write_file(&directory.path().join("a"), b"one").unwrap();
        staged.write_file(&directory.path().join("b"), b"two").unwrap();
        assert!(names(directory.path()).iter().all(|name| name.starts_with('.')));
        staged.publish().unwrap();
        assert_eq!(names(directory.path()), ["a", "b"]);
    }

    #[test]
    fn a_rename_that_fails_takes_back_those_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut staged = AtomicFileSet::default();
        staged.write_file(&directory.path().join("a"), b"one").unwrap();
        staged.write_file(&directory.path().join("b"), b"two").unwrap();
        fs::create_dir(directory.path().join("b")).unwrap();
        let (path, _) = staged.publish().unwrap_err();
        assert!(path.ends_with("b"));
        assert_eq!(names(directory.path()), ["b"]);
    }

    #[test]
    fn two_runs_cannot_write_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let first = AtomicFile::create(&path).unwrap();
        let second = AtomicFile::create(&path).err().map(|error| error.kind());
        assert_eq!(second, Some(io::ErrorKind::ResourceBusy));
        assert!(check_available(&path).is_err());
        drop(first);
        assert!(check_available(&path).is_ok() && names(directory.path()).is_empty());
        assert!(AtomicFile::create(&path).is_ok());
    }

    #[test]
    fn a_directory_in_the_way_is_noticed_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let refused = AtomicFile::create(directory.path()).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::IsADirectory));
    }
}
