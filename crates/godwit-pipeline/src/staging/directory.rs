//! A directory of files that takes its name as a whole: a Parquet or Arrow data set.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use godwit_process::TemporaryPath;

use super::{aside_name, hold};

/// A directory beside its final place. Dropping it unpublished removes it and what it holds.
pub struct StagedDirectory {
    path: PathBuf,
    aside: PathBuf,
    /// Where what had the name before waits until everything is published.
    replaced: PathBuf,
    /// Keeps other runs away for as long as it is open.
    lock: File,
    published: bool,
    /// For as long as it lies aside.
    _temporary: TemporaryPath,
}

/// What an earlier directory is called while another one takes its name.
pub fn replaced_name(path: &Path) -> String {
    format!(".{}.godwit-old", path.file_name().unwrap_or_default().to_string_lossy())
}

impl StagedDirectory {
    /// An empty directory that will be `path`; until then it lies beside it under another name.
    ///
    /// # Errors
    /// What the file system reports; [`io::ErrorKind::ResourceBusy`] while another run writes the same directory,
    /// [`io::ErrorKind::AlreadyExists`] where something has the name that is not such a directory.
    pub fn create(path: &Path) -> io::Result<Self> {
        refuse_foreign(path)?;
        let aside = path.with_file_name(aside_name(path));
        fs::DirBuilder::new().recursive(true).mode(0o777).create(&aside)?;
        let lock = File::open(&aside)?;
        hold(&lock, &aside, "another godwit writes this directory; wait for it to end")?;
        // A run that was killed left its files.
        for entry in fs::read_dir(&aside)? {
            fs::remove_file(entry?.path())?;
        }
        let replaced = path.with_file_name(replaced_name(path));
        let temporary = TemporaryPath::new(&aside);
        Ok(Self { path: path.to_owned(), aside, replaced, lock, published: false, _temporary: temporary })
    }

    /// A new file in the directory.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(self.aside.join(name))
    }

    /// The name it has until then, where other processes may write to it.
    pub fn aside(&self) -> &Path {
        &self.aside
    }

    /// The name it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Paths of its files where they lie until it has its name, sorted.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.aside)? {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    }

    /// Bytes of all files in it.
    pub fn bytes(&self) -> u64 {
        let entries = fs::read_dir(if self.published { &self.path } else { &self.aside });
        entries.into_iter().flatten().filter_map(|entry| entry.ok()?.metadata().ok()).map(|found| found.len()).sum()
    }

    /// Makes the list of files durable and gives the directory its name. What had it before is kept until
    /// [`StagedDirectory::forget_replaced`].
    pub(super) fn publish(&mut self) -> io::Result<()> {
        self.lock.sync_all()?;
        remove_directory(&self.replaced)?;
        if self.path.exists() {
            fs::rename(&self.path, &self.replaced)?;
        }
        fs::rename(&self.aside, &self.path).inspect_err(|_| {
            // Best effort: the rename that failed is what is reported.
            let _ = fs::rename(&self.replaced, &self.path);
        })?;
        self.published = true;
        Ok(())
    }

    /// Undoes [`StagedDirectory::publish`].
    pub(super) fn take_back(&mut self) {
        // Best effort: the failure that led here is what is reported.
        let _ = fs::rename(&self.path, &self.aside);
        let _ = fs::rename(&self.replaced, &self.path);
        self.published = false;
    }

    /// Removes what had the name before.
    pub(super) fn forget_replaced(&self) -> io::Result<()> {
        remove_directory(&self.replaced)
    }
}

impl Drop for StagedDirectory {
    fn drop(&mut self) {
        if !self.published {
            // Best effort: the error that led here is being reported already.
            let _ = fs::remove_dir_all(&self.aside);
        }
    }
}

/// Only what looks like an earlier run's directory may be replaced.
fn refuse_foreign(path: &Path) -> io::Result<()> {
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
    use crate::staging::Staged;

    fn staged(path: &Path, files: &[&str]) -> StagedDirectory {
        let directory = StagedDirectory::create(path).unwrap();
        files.iter().for_each(|name| directory.file(name).unwrap().write_all(b"x").unwrap());
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
            let mut all = Staged::default();
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
        let mut first = Staged::default();
        first.add_directory(staged(&path, &["part-0", "part-1"]));
        first.publish().unwrap();
        let mut second = Staged::default();
        second.add_directory(staged(&path, &["part-0"]));
        second.write(&directory.path().join("b"), b"two").unwrap();
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
        let refused = StagedDirectory::create(&path).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::AlreadyExists));
    }

    #[test]
    fn two_runs_cannot_write_one_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        let first = staged(&path, &["part-0"]);
        let second = StagedDirectory::create(&path).err().map(|error| error.kind());
        assert_eq!(second, Some(io::ErrorKind::ResourceBusy));
        drop(first);
        assert!(names(directory.path()).is_empty());
    }
}
