//! An output file that has a temporary name until it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use godwit_process::{TemporaryItem, TemporaryPath};

use crate::locked_file::{LockedFile, is_locked};
use crate::paths::{parent_directory, sync_directory};

const BUSY_MESSAGE: &str = "another godwit process is writing this file; wait until it has ended";

/// A file with a temporary name in the directory of its final path. If it is dropped before it is published, or a signal
/// stops the process, it is removed.
///
/// # Examples
///
/// ```
/// use std::io::Write;
///
/// use godwit_files::AtomicFile;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("calls.vcf");
/// let mut file = AtomicFile::create(&path)?;
/// file.write_all(b"##fileformat=VCFv4.3\n")?;
/// assert!(!path.exists());
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"##fileformat=VCFv4.3\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary_path: PathBuf,
    file: LockedFile,
    pub(crate) published: bool,
    /// True if the file stays under its temporary name when this value is dropped, for a later process that resumes it.
    pub(crate) keep_on_drop: bool,
    /// Guard that removes the file if a signal stops the process; `None` for a resumable file.
    temporary_guard: Option<TemporaryPath>,
}

impl AtomicFile {
    /// Creates an empty file that will be published as `path`; until then it has a temporary name in the same
    /// directory. Only one process at a time can write a file of this path.
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

    /// Creates an empty file like [`AtomicFile::create`], but with a temporary name that no other process uses, and with
    /// the permissions `mode`, which the umask restricts. Several processes may write the same file; it gets the content
    /// of the last one that commits.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::IsADirectory`] if a directory has the name.
    pub fn create_unique(path: &Path, mode: u32) -> io::Result<Self> {
        check_no_directory(path)?;
        let open = |path: &Path| OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path);
        let mut builder = tempfile::Builder::new();
        builder.prefix(".godwit-").suffix(".part");
        let created = TemporaryItem::create(|| builder.make_in(parent_directory(path), open))?;
        let (file, temporary) = created.into_parts();
        let (file, temporary_path) = file.keep().map_err(|error| error.error)?;
        // No other process opens this name, so the file works without a lock, which some file systems do not offer.
        let (path, file) = (path.to_owned(), LockedFile(file));
        Ok(Self { path, temporary_path, file, published: false, keep_on_drop: false, temporary_guard: Some(temporary) })
    }

    fn open_or_create(path: &Path, keep_on_drop: bool) -> io::Result<Self> {
        check_no_directory(path)?;
        let temporary_path = path.with_file_name(temporary_name(path));
        let open = || -> io::Result<LockedFile> {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&temporary_path)?;
            LockedFile::lock_at(file, &temporary_path, BUSY_MESSAGE)
        };
        let (file, temporary_guard) = if keep_on_drop {
            (open()?, None)
        } else {
            let (file, temporary) = TemporaryPath::create(&temporary_path, open)?;
            (file, Some(temporary))
        };
        Ok(Self { path: path.to_owned(), temporary_path, file, published: false, keep_on_drop, temporary_guard })
    }

    /// Creates an empty file that will be published as `path` together with this one. It stays when it is dropped if
    /// this one does.
    ///
    /// # Errors
    /// The errors of [`AtomicFile::create`].
    pub fn create_companion(&self, path: &Path) -> io::Result<Self> {
        let companion = Self::open_or_create(path, self.keep_on_drop)?;
        companion.file.set_len(0)?;
        Ok(companion)
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

    /// Changes the final path to another one in the same directory.
    pub fn set_path(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Keeps the file under its temporary name when it is dropped, or when a signal stops the process.
    pub(crate) fn keep_on_drop(&mut self) {
        self.keep_on_drop = true;
        drop(self.temporary_guard.take());
    }

    /// Renames the file to its final name, and makes content and name durable. Replaces an existing file.
    ///
    /// # Errors
    /// The I/O error of the file system. If the content could not be made durable, or the file could not be renamed, it is
    /// removed. If only the directory could not be made durable, the file has its final name.
    pub fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        let path = self.path.clone();
        self.commit_unsynced()?;
        sync_directory(parent_directory(&path))
    }

    /// Renames the file to its final name. After a crash of the host, the file may be missing or incomplete. For files
    /// that are verified when they are read, or that can be created again.
    ///
    /// # Errors
    /// The I/O error of the file system. If the file could not be renamed, it is removed.
    pub fn commit_unsynced(mut self) -> io::Result<()> {
        fs::rename(&self.temporary_path, &self.path)?;
        self.published = true;
        Ok(())
    }

    /// Removes the file, even if it would stay when it is dropped.
    pub fn discard(mut self) {
        self.keep_on_drop = false;
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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

/// Returns the temporary name that the file at `path` has until it is published.
pub fn temporary_name(path: &Path) -> String {
    format!(".{}.godwit-part", path.file_name().unwrap_or_default().to_string_lossy())
}

fn check_no_directory(path: &Path) -> io::Result<()> {
    match path.is_dir() {
        true => Err(io::Error::new(io::ErrorKind::IsADirectory, "a directory has this name")),
        false => Ok(()),
    }
}

/// Checks whether [`AtomicFile::create`] would fail because of the name, without creating a file.
///
/// # Errors
/// The errors of [`AtomicFile::create`].
pub fn check_available(path: &Path) -> io::Result<()> {
    check_no_directory(path)?;
    match is_locked(&path.with_file_name(temporary_name(path))) {
        true => Err(io::Error::new(io::ErrorKind::ResourceBusy, BUSY_MESSAGE)),
        false => Ok(()),
    }
}

/// Makes a file that another program wrote durable, and renames it to `path`.
///
/// # Errors
/// The I/O error of the file system. If the file could not be renamed, it keeps its name.
pub fn rename_durably(temporary_path: &Path, path: &Path) -> io::Result<()> {
    File::open(temporary_path)?.sync_all()?;
    fs::rename(temporary_path, path)?;
    sync_directory(parent_directory(path))
}

/// Writes a small file under a temporary name, flushes it to disk, and renames it to `path`.
///
/// # Errors
/// The errors of [`AtomicFile::create`] and [`AtomicFile::commit`].
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
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
    fn the_last_of_two_unique_files_wins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let create = |bytes: &[u8]| {
            let mut file = AtomicFile::create_unique(&path, 0o600).unwrap();
            file.write_all(bytes).unwrap();
            file
        };
        let (first, second) = (create(b"first"), create(b"second"));
        second.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        first.commit_unsynced().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        drop(create(b"third"));
        assert_eq!(names(directory.path()), ["a"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_in_the_way_is_noticed_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let kind = |created: io::Result<AtomicFile>| created.err().map(|error| error.kind());
        let expected = Some(io::ErrorKind::IsADirectory);
        assert_eq!(kind(AtomicFile::create(directory.path())), expected);
        assert_eq!(kind(AtomicFile::create_unique(directory.path(), 0o600)), expected);
    }

    #[test]
    fn a_directory_that_is_missing_or_not_writable_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let kind = |path: &Path| {
            [AtomicFile::create(path), AtomicFile::create_unique(path, 0o600)]
                .map(|created| created.err().map(|error| error.kind()))
        };
        let missing = directory.path().join("missing/a");
        assert_eq!(kind(&missing), [Some(io::ErrorKind::NotFound); 2]);
        // No process can create a file here, not even with the privileges of root.
        assert!(kind(Path::new("/proc/self/a")).iter().all(Option::is_some));
    }

    #[test]
    fn a_resumable_file_stays_until_it_is_committed_or_discarded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let mut file = AtomicFile::open_resumable(&path).unwrap();
        file.write_all(b"one").unwrap();
        drop(file);
        assert_eq!(names(directory.path()), [temporary_name(&path)]);
        let file = AtomicFile::open_resumable(&path).unwrap();
        assert_eq!(file.file().metadata().unwrap().len(), 3);
        drop(file.create_companion(&directory.path().join("b")).unwrap());
        assert_eq!(names(directory.path()).len(), 2);
        file.commit().unwrap();
        AtomicFile::open_resumable(&directory.path().join("b")).unwrap().discard();
        assert_eq!(names(directory.path()), ["a"]);
    }
}
