//! Output files that are published together, when all of them are complete.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::atomic_directory::AtomicDirectory;
use crate::atomic_file::AtomicFile;
use crate::paths::{parent_directory, sync_directory};

/// Directories and files to be published, in the order in which they are renamed. If one rename fails, the earlier
/// renames are undone.
///
/// # Examples
///
/// ```
/// use godwit_files::AtomicSet;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let mut set = AtomicSet::default();
/// set.write_file(&directory.path().join("calls.vcf.gz"), b"records")?;
/// set.write_file(&directory.path().join("calls.vcf.gz.tbi"), b"index")?;
/// set.publish().map_err(|(_, error)| error)?;
/// assert_eq!(std::fs::read_dir(directory.path())?.count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct AtomicSet {
    directories: Vec<AtomicDirectory>,
    files: Vec<AtomicFile>,
}

impl AtomicSet {
    /// Adds a complete file, and flushes it to disk.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn add(&mut self, file: AtomicFile) -> io::Result<()> {
        file.file().sync_all()?;
        self.files.push(file);
        Ok(())
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
        let mut staged = AtomicFile::create(path)?;
        staged.write_all(bytes)?;
        self.add(staged)
    }

    /// Returns path and size in bytes of each directory and file.
    pub fn sizes(&self) -> impl Iterator<Item = (&Path, u64)> {
        let directories = self.directories.iter().map(|staged| (staged.path(), staged.bytes()));
        let size = |staged: &AtomicFile| staged.file().metadata().map_or(0, |found| found.len());
        directories.chain(self.files.iter().map(move |staged| (staged.path(), size(staged))))
    }

    /// Returns the files, in the order in which they are renamed.
    pub fn files(&self) -> &[AtomicFile] {
        &self.files
    }

    /// Returns the files, in the order in which they are renamed, for changes.
    pub fn files_mut(&mut self) -> &mut [AtomicFile] {
        &mut self.files
    }

    /// Returns the directories, in the order in which they are renamed.
    pub fn directories(&self) -> &[AtomicDirectory] {
        &self.directories
    }

    /// Makes the temporary names of the files durable, and keeps the files even if publishing fails. Returns the
    /// temporary and the final name of each file, relative to `directory`, with which a later process can publish them
    /// ([`finish_publishing`]).
    ///
    /// # Errors
    /// The I/O error of the file system; an error of kind [`io::ErrorKind::Other`] if a file is not below `directory`,
    /// or its name is not UTF-8.
    pub fn prepare_publishing(&mut self, directory: &Path) -> io::Result<Vec<(String, String)>> {
        let below = |path: &Path| {
            let name = match parent_directory(path) == directory {
                true => Path::new(path.file_name().unwrap_or_default()),
                false => path.strip_prefix(directory).map_err(io::Error::other)?,
            };
            name.to_str().map(str::to_owned).ok_or_else(|| io::Error::other("a file name is not UTF-8"))
        };
        let names = self.files.iter().map(|file| Ok((below(file.temporary_path())?, below(file.path())?)));
        let names = names.collect::<io::Result<_>>()?;
        sync_directory(directory)?;
        self.files.iter_mut().for_each(AtomicFile::keep_on_drop);
        Ok(names)
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
            if let Err(error) = fs::rename(self.files[at].temporary_path(), self.files[at].target()) {
                for published in &self.files[..at] {
                    // Ignore an error here: the function returns the error of the failed rename.
                    let _ = match published.keep_on_drop {
                        true => fs::rename(published.target(), published.temporary_path()),
                        false => fs::remove_file(published.target()),
                    };
                }
                self.directories.iter_mut().for_each(AtomicDirectory::unpublish);
                return Err((self.files[at].path().to_owned(), error));
            }
            self.files[at].published = true;
        }
        for directory in &self.directories {
            directory.remove_backup().map_err(|error| (directory.path().to_owned(), error))?;
        }
        let paths = self.files.iter().map(AtomicFile::target).chain(self.directories.iter().map(AtomicDirectory::path));
        for directory in paths.filter_map(Path::parent).collect::<BTreeSet<_>>() {
            sync_directory(directory).map_err(|error| (directory.to_owned(), error))?;
        }
        Ok(())
    }
}

/// Renames the files that an earlier process was about to publish below `directory`. `names` are those that
/// [`AtomicSet::prepare_publishing`] returned. Files that are already renamed are skipped.
///
/// # Errors
/// The I/O error of the file system.
pub fn finish_publishing(directory: &Path, names: &[(String, String)]) -> io::Result<()> {
    for (temporary, name) in names {
        match fs::rename(directory.join(temporary), directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    sync_directory(directory)
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

    fn set_of_two(directory: &Path) -> AtomicSet {
        let mut staged = AtomicSet::default();
        staged.write_file(&directory.join("a"), b"one").unwrap();
        staged.write_file(&directory.join("b"), b"two").unwrap();
        staged
    }

    #[test]
    fn files_take_their_names_together() {
        let directory = tempfile::tempdir().unwrap();
        let staged = set_of_two(directory.path());
        assert!(names(directory.path()).iter().all(|name| name.starts_with('.')));
        staged.publish().unwrap();
        assert_eq!(names(directory.path()), ["a", "b"]);
    }

    #[test]
    fn a_rename_that_fails_takes_back_those_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let staged = set_of_two(directory.path());
        fs::create_dir(directory.path().join("b")).unwrap();
        let (path, _) = staged.publish().unwrap_err();
        assert!(path.ends_with("b"));
        assert_eq!(names(directory.path()), ["b"]);
    }

    #[test]
    fn a_later_process_replaces_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (out, store) = (directory.path().join("out"), directory.path().join("store"));
        fs::create_dir(&out).unwrap();
        fs::create_dir(&store).unwrap();
        std::os::unix::fs::symlink("../store/a", out.join("a")).unwrap();
        let mut staged = set_of_two(&out);
        let prepared = staged.prepare_publishing(&out).unwrap();
        drop(staged);
        assert_eq!(names(&out), [".a.godwit-part", ".b.godwit-part", "a"]);
        finish_publishing(&out, &prepared).unwrap();
        assert_eq!(names(&out), ["a", "b"]);
        assert!(names(&store).is_empty());
        assert!(!out.join("a").is_symlink() && fs::read(out.join("a")).unwrap() == b"one");
    }

    #[test]
    fn a_later_process_publishes_what_was_prepared() {
        let directory = tempfile::tempdir().unwrap();
        let mut staged = set_of_two(directory.path());
        let prepared = staged.prepare_publishing(directory.path()).unwrap();
        drop(staged);
        // The earlier process has renamed the first file.
        finish_publishing(directory.path(), &prepared[..1]).unwrap();
        assert_eq!(names(directory.path()), [".b.godwit-part", "a"]);
        finish_publishing(directory.path(), &prepared).unwrap();
        assert_eq!(names(directory.path()), ["a", "b"]);
    }
}
