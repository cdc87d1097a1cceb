//! A directory of files that is published as a whole: a Parquet or Arrow data set.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use godwit_process::TemporaryPath;

use super::{lock_exclusively, temporary_name};

/// A directory under a temporary name beside its final path. Dropping it unpublished removes it with its content.
pub struct AtomicDirectory {
    path: PathBuf,
    temporary_path: PathBuf,
    /// Path of the replaced directory until everything is published.
    backup_path: PathBuf,
    /// Locks the directory against other jobs while it is open.
    lock: File,
    published: bool,
    /// Removes the temporary directory on a stop by a signal.
    _temporary: TemporaryPath,
}

/// Returns the name of a replaced directory until everything is published.
pub fn backup_name(path: &Path) -> String {
    format!(".{}.godwit-old", path.file_name().unwrap_or_default().to_string_lossy())
}

impl AtomicDirectory {
    /// Creates an empty directory that will be published as `path`; until then it has a temporary name beside it.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::ResourceBusy`] if another job writes the same directory,
    /// [`io::ErrorKind::AlreadyExists`] if the name belongs to something that is not such a directory.
    pub fn create(path: &Path) -> io::Result<Self> {
        check_replaceable(path)?;
        let temporary_path = path.with_file_name(temporary_name(path));
        fs::DirBuilder::new().recursive(true).mode(0o777).create(&temporary_path)?;
        let lock = File::open(&temporary_path)?;
        lock_exclusively(&lock, &temporary_path, "another godwit writes this directory; wait for it to end")?;
        // Files of a job that was killed.
        for entry in fs::read_dir(&temporary_path)? {
            fs::remove_file(entry?.path())?;
        }
        let backup_path = path.with_file_name(backup_name(path));
        let temporary = TemporaryPath::new(&temporary_path);
        Ok(Self { path: path.to_owned(), temporary_path, backup_path, lock, published: false, _temporary: temporary })
    }

    /// Creates a file in the directory.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(self.temporary_path.join(name))
    }

    /// Returns the temporary path, where other processes may write to it.
    pub fn temporary_path(&self) -> &Path {
        &self.temporary_path
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the temporary paths of its files, sorted.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.temporary_path)? {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    }

    /// Returns the size of all its files, bytes.
    pub fn bytes(&self) -> u64 {
        let entries = fs::read_dir(if self.published { &self.path } else { &self.temporary_path });
        entries.into_iter().flatten().filter_map(|entry| entry.ok()?.metadata().ok()).map(|found| found.len()).sum()
    }

    /// Makes the list of files durable and renames the directory. A replaced one is kept until
    /// [`AtomicDirectory::remove_backup`].
    pub(super) fn publish(&mut self) -> io::Result<()> {
        self.lock.sync_all()?;
        remove_directory(&self.backup_path)?;
        if self.path.exists() {
            fs::rename(&self.path, &self.backup_path)?;
        }
        fs::rename(&self.temporary_path, &self.path).inspect_err(|_| {
            // Best effort: the failed rename is reported.
            let _ = fs::rename(&self.backup_path, &self.path);
        })?;
        self.published = true;
        Ok(())
    }

    /// Undoes [`AtomicDirectory::publish`].
    pub(super) fn unpublish(&mut self) {
        // Best effort: the failure that led here is reported.
        let _ = fs::rename(&self.path, &self.temporary_path);
        let _ = fs::rename(&self.backup_path, &self.path);
        self.published = false;
    }

    /// Removes the replaced directory.
    pub(super) fn remove_backup(&self) -> io::Result<()> {
        remove_directory(&self.backup_path)
    }
}

impl Drop for AtomicDirectory {
    fn drop(&mut self) {
        if !self.published {
            // Best effort: the error that led here is reported already.
            let _ = fs::remove_dir_all(&self.temporary_path);
        }
    }
}

/// Checks that a directory at `path` looks like the output of an earlier job: only that may be replaced.
fn check_replaceable(path: &Path) -> io::Result<()> {
    let refused = |problem| Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.is_dir() => return refused("a file has this name; move it away".to_owned()),
        Ok(_) => {}
    }
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if !name.to_string_lossy().starts_with("part-") {
            return refused(format!("it holds {}, which godwit did not write; move it away", name.display()));
        }
    }
    Ok(())
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::atomic_files::AtomicFileSet;

    fn staged(path: &Path, files: &[&str]) -> AtomicDirectory {
        let directory = AtomicDirectory::create(path).unwrap();
        files.iter().for_each(|name| directory.create_file(name).unwrap().write_all(b"x").unwrap());
        directory
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_earlier_directory_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        for files in [&["part-0", "part-1"][..], &["part-0"]] {
            let mut all = AtomicFileSet::default();
            all.add_directory(staged(&path, files));
            all.publish().unwrap();
            assert_eq!(names(&path), files);
            assert_eq!(names(directory.path()), ["a.parquet"]);
        }
    }

    #[test]
    fn a_file_that_cannot_take_its_name_leaves_the_earlier_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        let mut first = AtomicFileSet::default();
        first.add_directory(staged(&path, &["part-0", "part-1"]));
        first.publish().unwrap();
        let mut second = AtomicFileSet::default();
        second.add_directory(staged(&path, &["part-0"]));
        second.write_file(&directory.path().join("b"), b"two").unwrap();
        fs::create_dir(directory.path().join("b")).unwrap();
        assert!(second.publish().is_err());
        assert_eq!(names(&path), ["part-0", "part-1"]);
        assert_eq!(names(directory.path()), ["a.parquet", "b"]);
    }

    #[test]
    fn a_directory_with_files_of_others_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        let refused = AtomicDirectory::create(&path).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::AlreadyExists));
    }

    #[test]
    fn two_runs_cannot_write_one_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        let first = staged(&path, &["part-0"]);
        let second = AtomicDirectory::create(&path).err().map(|error| error.kind());
        assert_eq!(second, Some(io::ErrorKind::ResourceBusy));
        drop(first);
        assert!(names(directory.path()).is_empty());
    }
}
