//! A directory of files that is published as a whole: a Parquet or Arrow data set.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use godwit_process::TemporaryPath;

use crate::atomic_file::temporary_name;
use crate::locked_file::LockedFile;

/// A directory with a temporary name beside its final path. If it is dropped before it is published, it is removed with
/// its content.
#[derive(Debug)]
pub struct AtomicDirectory {
    path: PathBuf,
    temporary_path: PathBuf,
    /// Path to which an existing directory of the final name is moved, until all outputs of the job are published.
    backup_path: PathBuf,
    /// Handle of the directory, whose lock excludes other jobs while it is open.
    lock: LockedFile,
    published: bool,
    /// Guard that removes the temporary directory if a signal stops the process.
    _temporary: TemporaryPath,
}

/// Returns the name to which an existing directory at `path` is moved, until all outputs of the job are published.
pub fn backup_name(path: &Path) -> String {
    format!(".{}.godwit-old", path.file_name().unwrap_or_default().to_string_lossy())
}

impl AtomicDirectory {
    /// Creates an empty directory that will be published as `path`; until then it has a temporary name beside it.
    ///
    /// # Errors
    /// The I/O error of the file system; [`io::ErrorKind::ResourceBusy`] if another job writes the same directory,
    /// [`io::ErrorKind::AlreadyExists`] if `path` is a file, or a directory with files that godwit did not write.
    pub fn create(path: &Path) -> io::Result<Self> {
        check_replaceable(path)?;
        let temporary_path = path.with_file_name(temporary_name(path));
        fs::DirBuilder::new().recursive(true).mode(0o777).create(&temporary_path)?;
        let lock = LockedFile::lock_at(
            File::open(&temporary_path)?,
            &temporary_path,
            "another godwit process is writing this directory; wait until it has ended",
        )?;
        // Remove the files that a killed job left.
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

    /// Returns the temporary path of the directory, into which other processes may write files.
    pub fn temporary_path(&self) -> &Path {
        &self.temporary_path
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the temporary paths of the files in the directory, sorted.
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

    /// Returns the total size of the files in the directory, bytes.
    pub fn bytes(&self) -> u64 {
        let entries = fs::read_dir(if self.published { &self.path } else { &self.temporary_path });
        entries.into_iter().flatten().filter_map(|entry| entry.ok()?.metadata().ok()).map(|found| found.len()).sum()
    }

    /// Flushes the directory to disk and renames it to its final name. An existing directory of that name is kept under
    /// another name until [`AtomicDirectory::remove_backup`].
    pub(crate) fn publish(&mut self) -> io::Result<()> {
        self.lock.sync_all()?;
        remove_directory(&self.backup_path)?;
        if self.path.exists() {
            fs::rename(&self.path, &self.backup_path)?;
        }
        fs::rename(&self.temporary_path, &self.path).inspect_err(|_| {
            // Ignore an error here: the function returns the error of the failed rename.
            let _ = fs::rename(&self.backup_path, &self.path);
        })?;
        self.published = true;
        Ok(())
    }

    /// Undoes [`AtomicDirectory::publish`].
    pub(crate) fn unpublish(&mut self) {
        // Ignore errors here: the failure that requires the undo is already reported.
        let _ = fs::rename(&self.path, &self.temporary_path);
        let _ = fs::rename(&self.backup_path, &self.path);
        self.published = false;
    }

    /// Removes the earlier directory that this one replaced.
    pub(crate) fn remove_backup(&self) -> io::Result<()> {
        remove_directory(&self.backup_path)
    }
}

impl Drop for AtomicDirectory {
    fn drop(&mut self) {
        if !self.published {
            // Ignore an error here: the failure that caused the drop is already reported.
            let _ = fs::remove_dir_all(&self.temporary_path);
        }
    }
}

/// Rejects a file or directory at `path`, except a directory that looks like the output of an earlier job.
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
            return refused(format!("it contains {}, which was not written by godwit; move it away", name.display()));
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
    use crate::atomic_set::AtomicSet;

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
            let mut all = AtomicSet::default();
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
        let mut first = AtomicSet::default();
        first.add_directory(staged(&path, &["part-0", "part-1"]));
        first.publish().unwrap();
        let mut second = AtomicSet::default();
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
