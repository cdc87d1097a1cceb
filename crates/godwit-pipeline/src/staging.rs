//! Outputs that take their names together, when all of them are whole.
//!
//! Each file is written aside, made durable and locked, so that two runs never write one file. Publishing renames all of
//! them one after the other with nothing in between; where a rename fails, those before it are taken back.

mod directory;
mod encrypted;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use godwit_process::TemporaryPath;

pub use directory::{StagedDirectory, replaced_name};

const BUSY: &str = "another godwit writes this file; wait for it to end";

/// Directories and files waiting for their names, in the order in which they will get them.
#[derive(Default)]
pub struct Staged {
    directories: Vec<StagedDirectory>,
    files: Vec<StagedFile>,
}

/// A file beside its final place. Dropping it unpublished removes it.
pub struct StagedFile {
    path: PathBuf,
    aside: PathBuf,
    file: File,
    published: bool,
    /// It stays aside when it is dropped, for a later process to go on with.
    kept: bool,
    /// Until it is published or kept.
    temporary: Option<TemporaryPath>,
}

impl StagedFile {
    /// An empty file that will be `path`; until then it lies beside it under another name.
    ///
    /// # Errors
    /// What the file system reports; [`io::ErrorKind::ResourceBusy`] while another run writes the same file,
    /// [`io::ErrorKind::IsADirectory`] where a directory has the name.
    pub fn create(path: &Path) -> io::Result<Self> {
        let staged = Self::open(path, false)?;
        staged.file.set_len(0)?;
        Ok(staged)
    }

    /// A file that will be `path`, with what an earlier process left of it. It stays when it is dropped.
    ///
    /// # Errors
    /// As for [`StagedFile::create`].
    pub fn keep(path: &Path) -> io::Result<Self> {
        Self::open(path, true)
    }

    fn open(path: &Path, kept: bool) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "a directory has this name"));
        }
        let aside = path.with_file_name(aside_name(path));
        let open = || -> io::Result<File> {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&aside)?;
            hold(&file, &aside, BUSY)?;
            Ok(file)
        };
        let (file, temporary) = if kept {
            (open()?, None)
        } else {
            let (file, temporary) = TemporaryPath::create(&aside, open)?;
            (file, Some(temporary))
        };
        Ok(Self { path: path.to_owned(), aside, file, published: false, kept, temporary })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The name it has until then, where another program may write to it.
    pub fn aside(&self) -> &Path {
        &self.aside
    }

    /// The name it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.published && !self.kept {
            // Best effort: the error that led here is being reported already.
            let _ = fs::remove_file(&self.aside);
        }
    }
}

/// Locks what was opened at `aside` against other runs; `busy` says that one has it.
fn hold(opened: &File, aside: &Path, busy: &'static str) -> io::Result<()> {
    let busy = || io::Error::new(io::ErrorKind::ResourceBusy, busy);
    match opened.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(busy()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // The other run may have published or removed what was opened, between opening and locking.
    let (ours, named) = (opened.metadata()?, fs::metadata(aside));
    match named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
        true => Ok(()),
        false => Err(busy()),
    }
}

/// Whether a relative path leads to something below the directory that it is relative to.
pub fn is_within(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// What a file is called until it gets its name.
pub fn aside_name(path: &Path) -> String {
    format!(".{}.godwit-part", path.file_name().unwrap_or_default().to_string_lossy())
}

impl Staged {
    /// Adds a file that is whole and durable.
    pub fn add(&mut self, file: StagedFile) {
        self.files.push(file);
    }

    /// Adds all of `others`.
    pub fn append(&mut self, mut others: Self) {
        self.directories.append(&mut others.directories);
        self.files.append(&mut others.files);
    }

    /// Adds a directory whose files are whole and durable.
    pub fn add_directory(&mut self, directory: StagedDirectory) {
        self.directories.push(directory);
    }

    /// Writes a small file.
    ///
    /// # Errors
    /// Those of [`StagedFile::create`], and what the file system reports.
    pub fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let staged = StagedFile::create(path)?;
        (&staged.file).write_all(bytes)?;
        staged.file.sync_all()?;
        self.files.push(staged);
        Ok(())
    }

    /// Name and size of each directory and file.
    pub fn sizes(&self) -> impl Iterator<Item = (&Path, u64)> {
        let directories = self.directories.iter().map(|staged| (staged.path(), staged.bytes()));
        let size = |staged: &StagedFile| staged.file.metadata().map_or(0, |found| found.len());
        directories.chain(self.files.iter().map(move |staged| (staged.path.as_path(), size(staged))))
    }

    /// The files, in the order in which they will get their names.
    pub fn files(&self) -> &[StagedFile] {
        &self.files
    }

    /// From here on the files stay aside where they cannot get their names, for a later process to give them.
    pub fn keep(&mut self) {
        for staged in &mut self.files {
            staged.kept = true;
            drop(staged.temporary.take());
        }
    }

    /// The directories.
    pub fn directories(&self) -> &[StagedDirectory] {
        &self.directories
    }

    /// Gives every directory and file its name. What had it before is replaced.
    ///
    /// # Errors
    /// What the file system reports; then none of these files has its name.
    pub fn publish(mut self) -> Result<(), (PathBuf, io::Error)> {
        for at in 0..self.directories.len() {
            if let Err(error) = self.directories[at].publish() {
                self.directories[..at].iter_mut().for_each(StagedDirectory::take_back);
                return Err((self.directories[at].path().to_owned(), error));
            }
        }
        for at in 0..self.files.len() {
            let renamed = fs::rename(&self.files[at].aside, &self.files[at].path);
            if let Err(error) = renamed {
                for published in &self.files[..at] {
                    // Best effort: the rename that failed is what is reported.
                    let _ = match published.kept {
                        true => fs::rename(&published.path, &published.aside),
                        false => fs::remove_file(&published.path),
                    };
                }
                self.directories.iter_mut().for_each(StagedDirectory::take_back);
                return Err((self.files[at].path.clone(), error));
            }
            self.files[at].published = true;
        }
        for directory in &self.directories {
            directory.forget_replaced().map_err(|error| (directory.path().to_owned(), error))?;
        }
        let paths = self.files.iter().map(StagedFile::path).chain(self.directories.iter().map(StagedDirectory::path));
        let directories = paths.filter_map(Path::parent);
        for directory in directories.collect::<std::collections::BTreeSet<_>>() {
            sync_directory(directory).map_err(|error| (directory.to_owned(), error))?;
        }
        Ok(())
    }
}

/// Makes the names in a directory durable.
///
/// # Errors
/// What the file system reports.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

/// Whether [`StagedFile::create`] would find the name taken, without making anything.
///
/// # Errors
/// As there.
pub fn check_available(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "a directory has this name"));
    }
    match is_held(&path.with_file_name(aside_name(path))) {
        true => Err(io::Error::new(io::ErrorKind::ResourceBusy, BUSY)),
        false => Ok(()),
    }
}

/// Whether another process has locked a file.
pub fn is_held(path: &Path) -> bool {
    matches!(File::open(path).map(|file| file.try_lock_shared()), Ok(Err(TryLockError::WouldBlock)))
}

/// Writes one small file aside and renames it when it is whole and durable.
///
/// # Errors
/// What the file system reports.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut staged = Staged::default();
    staged.write(path, bytes)?;
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
        let mut staged = Staged::default();
        staged.write(&directory.path().join("a"), b"one").unwrap();
        staged.write(&directory.path().join("b"), b"two").unwrap();
        assert!(names(directory.path()).iter().all(|name| name.starts_with('.')));
        staged.publish().unwrap();
        assert_eq!(names(directory.path()), ["a", "b"]);
    }

    #[test]
    fn a_rename_that_fails_takes_back_those_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut staged = Staged::default();
        staged.write(&directory.path().join("a"), b"one").unwrap();
        staged.write(&directory.path().join("b"), b"two").unwrap();
        fs::create_dir(directory.path().join("b")).unwrap();
        let (path, _) = staged.publish().unwrap_err();
        assert!(path.ends_with("b"));
        assert_eq!(names(directory.path()), ["b"]);
    }

    #[test]
    fn two_runs_cannot_write_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let first = StagedFile::create(&path).unwrap();
        let second = StagedFile::create(&path).err().map(|error| error.kind());
        assert_eq!(second, Some(io::ErrorKind::ResourceBusy));
        assert!(check_available(&path).is_err());
        drop(first);
        assert!(check_available(&path).is_ok() && names(directory.path()).is_empty());
        assert!(StagedFile::create(&path).is_ok());
    }

    #[test]
    fn a_directory_in_the_way_is_noticed_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let refused = StagedFile::create(directory.path()).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::IsADirectory));
    }
}
