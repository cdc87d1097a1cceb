//! An output file that has a temporary name until it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use godwit_process::{TemporaryItem, TemporaryPath};

use crate::locked_file::{LockedFile, is_locked};
use crate::output_target::{OutputTarget, directory_error, open_stream};
use crate::paths::{parent_directory, sync_directory};

const BUSY_MESSAGE: &str = "another godwit process is writing this file; wait until it has ended";

/// A file with a temporary name in the directory of its final path. If it is dropped before it is published, or a signal
/// stops the process, it is removed.
///
/// If the final path is a symbolic link, the file replaces the link: files of a job are published, resumed and removed
/// by their names in the directory of the job, and may have indexes beside them. Only [`AtomicFile::create_unique`], for
/// a single output, keeps the link and replaces the file that it names; the temporary file is beside that file. Devices,
/// pipes and sockets are not replaced, also if a link names them ([`OutputTarget`]).
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
    /// Path that is replaced: `path`, or the file that the symbolic link at `path` names.
    target: PathBuf,
    /// Path of the file until it is published; for a stream, its path.
    temporary_path: PathBuf,
    /// True if bytes are written directly to a device, pipe or socket, which is neither renamed nor removed.
    is_stream: bool,
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
    /// [`io::ErrorKind::IsADirectory`] if a directory has the name, [`io::ErrorKind::InvalidInput`] if a device, pipe or
    /// socket has it.
    pub fn create(path: &Path) -> io::Result<Self> {
        OutputTarget::check_file(path)?;
        let staged = Self::open_or_create(path, false)?;
        staged.file.set_len(0)?;
        Ok(staged)
    }

    /// Creates an empty file like [`AtomicFile::create`], but replaces anything except a directory: also a device, and a
    /// symbolic link, whatever it names. For directories in which others may create links.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::ResourceBusy`] if another job writes the same file,
    /// [`io::ErrorKind::IsADirectory`] if a directory has the name.
    pub fn create_replacing_link(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            return Err(directory_error());
        }
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
        OutputTarget::check_file(path)?;
        Self::open_or_create(path, true)
    }

    /// Creates an empty file like [`AtomicFile::create`], but with a temporary name that no other process uses, and with
    /// the permissions `mode`, which the umask restricts. Several processes may write the same file; it gets the content
    /// of the last one that commits. If the path is a symbolic link, the link stays, and the file that it names is
    /// replaced. If a device, pipe or socket has the name, bytes are written to it directly.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::IsADirectory`] if a directory has the name.
    pub fn create_unique(path: &Path, mode: u32) -> io::Result<Self> {
        let OutputTarget::File(target) = OutputTarget::resolve(path)? else { return Self::open_stream(path) };
        let open = |path: &Path| OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path);
        let mut builder = tempfile::Builder::new();
        builder.prefix(".godwit-").suffix(".part");
        let created = TemporaryItem::create(|| builder.make_in(parent_directory(&target), open))?;
        let (file, temporary) = created.into_parts();
        let (file, temporary_path) = file.keep().map_err(|error| error.error)?;
        // No other process opens this name, so the file works without a lock, which some file systems do not offer.
        Ok(Self {
            path: path.to_owned(),
            target,
            temporary_path,
            is_stream: false,
            file: LockedFile::without_lock(file),
            published: false,
            keep_on_drop: false,
            temporary_guard: Some(temporary),
        })
    }

    /// Opens a device, pipe or socket for writing.
    fn open_stream(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            target: path.to_owned(),
            temporary_path: path.to_owned(),
            is_stream: true,
            file: LockedFile::without_lock(open_stream(path)?),
            published: false,
            keep_on_drop: false,
            temporary_guard: None,
        })
    }

    fn open_or_create(path: &Path, keep_on_drop: bool) -> io::Result<Self> {
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
        let (path, target) = (path.to_owned(), path.to_owned());
        let (is_stream, published) = (false, false);
        Ok(Self { path, target, temporary_path, is_stream, file, published, keep_on_drop, temporary_guard })
    }

    /// Creates an empty file that will be published as `path` together with this one. It stays when it is dropped if
    /// this one does.
    ///
    /// # Errors
    /// The errors of [`AtomicFile::create`].
    pub fn create_companion(&self, path: &Path) -> io::Result<Self> {
        OutputTarget::check_file(path)?;
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

    /// Returns the final path, as it was passed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path that is replaced: the final path, or the file that a symbolic link at it names.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Changes the final path to another one in the same directory.
    pub fn set_path(&mut self, path: PathBuf) {
        self.target.clone_from(&path);
        self.path = path;
    }

    /// Keeps the file under its temporary name when it is dropped, or when a signal stops the process.
    pub(crate) fn keep_on_drop(&mut self) {
        self.keep_on_drop = true;
        drop(self.temporary_guard.take());
    }

    /// Renames the file to its final name, and makes content and name durable. Replaces an existing file. Of a stream,
    /// only the content is made durable, if it is on a disk.
    ///
    /// # Errors
    /// The I/O error of the file system. If the content could not be made durable, or the file could not be renamed, it is
    /// removed. If only the directory could not be made durable, the file has its final name.
    pub fn commit(self) -> io::Result<()> {
        use io::ErrorKind::{InvalidInput, ReadOnlyFilesystem};
        match self.file.sync_all() {
            // Pipes, sockets and devices such as /dev/null have nothing to flush: fsync(2), EINVAL and EROFS.
            Err(error) if self.is_stream && matches!(error.kind(), InvalidInput | ReadOnlyFilesystem) => return Ok(()),
            flushed => flushed?,
        }
        if self.is_stream {
            return Ok(());
        }
        let target = self.target.clone();
        self.commit_unsynced()?;
        sync_directory(parent_directory(&target))
    }

    /// Renames the file to its final name. After a crash of the host, the file may be missing or incomplete. For files
    /// that are verified when they are read, or that can be created again.
    ///
    /// # Errors
    /// The I/O error of the file system. If the file could not be renamed, it is removed.
    pub fn commit_unsynced(mut self) -> io::Result<()> {
        if !self.is_stream {
            fs::rename(&self.temporary_path, &self.target)?;
        }
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
        if !self.published && !self.keep_on_drop && !self.is_stream {
            // Ignore an error here: the failure that caused the drop is already reported.
            let _ = fs::remove_file(&self.temporary_path);
        }
    }
}

/// Returns the temporary name that the file at `path` has until it is published.
pub fn temporary_name(path: &Path) -> String {
    format!(".{}.godwit-part", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Checks whether [`AtomicFile::create`] would fail because of the name, without creating a file.
///
/// # Errors
/// The errors of [`AtomicFile::create`].
pub fn check_available(path: &Path) -> io::Result<()> {
    OutputTarget::check_file(path)?;
    match is_locked(&path.with_file_name(temporary_name(path))) {
        true => Err(io::Error::new(io::ErrorKind::ResourceBusy, BUSY_MESSAGE)),
        false => Ok(()),
    }
}

/// Makes a file that another program wrote durable, and renames it to `path`, which it replaces even if it is a link or
/// a device ([`OutputTarget::resolve`] returns the path of a file).
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

    /// Creates a directory with the empty directory `store` and the link `link` to a missing file in it.
    fn directory_with_link() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (store, link) = (directory.path().join("store"), directory.path().join("link"));
        fs::create_dir(&store).unwrap();
        std::os::unix::fs::symlink("store/file", &link).unwrap();
        (directory, store, link)
    }

    #[test]
    fn a_link_to_a_single_output_stays_and_the_file_that_it_names_is_replaced() {
        let (directory, store, link) = directory_with_link();
        for content in ["first", "second"] {
            let mut file = AtomicFile::create_unique(&link, 0o600).unwrap();
            assert_eq!(parent_directory(file.temporary_path()), store);
            assert_eq!(file.path(), link);
            file.write_all(content.as_bytes()).unwrap();
            file.commit().unwrap();
            assert_eq!(fs::read_to_string(store.join("file")).unwrap(), content);
            assert!(link.is_symlink());
        }
        drop(AtomicFile::create_unique(&link, 0o600).unwrap());
        assert_eq!(names(directory.path()), ["link", "store"]);
        assert_eq!(names(&store), ["file"]);
    }

    #[test]
    fn a_file_of_a_job_replaces_a_link() {
        let companion: fn(&Path) -> io::Result<AtomicFile> =
            |path| AtomicFile::create(&path.with_file_name("a"))?.create_companion(path);
        for create in [AtomicFile::create, AtomicFile::open_resumable, AtomicFile::create_replacing_link, companion] {
            let (directory, store, link) = directory_with_link();
            let file = create(&link).unwrap();
            assert_eq!(file.temporary_path(), directory.path().join(temporary_name(&link)));
            file.commit().unwrap();
            assert!(!link.is_symlink() && link.is_file());
            assert!(names(&store).is_empty());
        }
    }

    #[test]
    fn only_a_directory_is_not_replaced_where_others_may_create_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        for named in ["/dev/null", "/", "list"] {
            std::os::unix::fs::symlink(named, &path).unwrap();
            assert!(AtomicFile::create(&path).is_err(), "{named}");
            AtomicFile::create_replacing_link(&path).unwrap().commit().unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{named}");
            fs::remove_file(&path).unwrap();
        }
        let kind = AtomicFile::create_replacing_link(directory.path()).err().map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::IsADirectory));
    }

    #[test]
    fn a_stream_is_written_directly_or_rejected_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (open, link) = (tempfile::tempfile().unwrap(), directory.path().join("link"));
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&open);
        std::os::unix::fs::symlink(format!("/proc/self/fd/{descriptor}"), &link).unwrap();
        let kind = AtomicFile::create(&link).err().map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::InvalidInput));
        assert!(check_available(&link).is_err());
        let mut file = AtomicFile::create_unique(&link, 0o600).unwrap();
        file.write_all(b"text").unwrap();
        file.commit().unwrap();
        drop(AtomicFile::create_unique(&link, 0o600).unwrap());
        assert!(link.is_symlink() && open.metadata().unwrap().len() == 4);
        let mut device = AtomicFile::create_unique(Path::new("/dev/null"), 0o600).unwrap();
        assert!(device.is_stream);
        device.write_all(b"text").unwrap();
        device.commit().unwrap();
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
