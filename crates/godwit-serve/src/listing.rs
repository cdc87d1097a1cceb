//! Lists the datasets below a directory, and the entries that look like datasets but cannot be served.
//!
//! An entry that cannot be served does not stop the listing. Examples are an unreadable directory, a symbolic link to a
//! missing file or to one of its own parent directories, a FIFO with the name of a dataset, and a name that is not
//! UTF-8.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Maximum depth of nested directories that are listed.
pub(crate) const MAX_DEPTH: usize = 32;

/// An entry below the root that looks like a dataset or directory but is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedEntry {
    /// Path of the entry.
    pub path: PathBuf,
    /// Reason why the entry is not served.
    pub reason: String,
}

/// The entries that were found so far.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Names of the datasets, which are paths below the root.
    pub(crate) names: Vec<String>,
    /// Entries that look like datasets or directories but are not served.
    pub(crate) skipped: Vec<SkippedEntry>,
}

/// The decision which entries are datasets.
pub(crate) trait EntryClassifier {
    /// Returns `None` if a file with this name is not a dataset. Otherwise returns whether a directory with this name
    /// may also be a dataset.
    fn classify_name(&self, name: &str) -> Option<bool>;

    /// Returns the name of the dataset for a directory that is a dataset itself, in addition to its entries; `None` for
    /// other directories.
    fn directory_dataset_name(&self, directory: &Path) -> Option<String>;
}

/// A directory that still has to be listed.
struct PendingDirectory {
    path: PathBuf,
    /// Prefix for the dataset names of the entries of this directory.
    prefix: String,
    /// Device and inode numbers of the parent directories, to detect cycles.
    ancestors: Vec<(u64, u64)>,
}

impl Listing {
    /// Adds the datasets below a directory to the listing.
    ///
    /// # Errors
    /// The I/O error if the directory `root` itself cannot be read.
    pub(crate) fn walk(&mut self, root: &Path, prefix: String, entries: &dyn EntryClassifier) -> io::Result<()> {
        let found = fs::metadata(root)?;
        fs::read_dir(root)?;
        let mut directories =
            vec![PendingDirectory { path: root.to_owned(), prefix, ancestors: vec![device_and_inode(&found)] }];
        while let Some(directory) = directories.pop() {
            let listed = match fs::read_dir(&directory.path) {
                Ok(listed) => listed,
                Err(error) => {
                    self.add_skipped(&directory.path, error.to_string());
                    continue;
                }
            };
            self.names.extend(
                entries.directory_dataset_name(&directory.path).map(|name| format!("{}{name}", directory.prefix)),
            );
            for entry in listed {
                match entry {
                    Ok(entry) => directories.extend(self.add_entry(&directory, &entry.path(), entries)),
                    Err(error) => self.add_skipped(&directory.path, error.to_string()),
                }
            }
        }
        Ok(())
    }

    fn add_skipped(&mut self, path: &Path, reason: impl Into<String>) {
        self.skipped.push(SkippedEntry { path: path.to_owned(), reason: reason.into() });
    }

    /// Adds an entry to the listing. If the entry is a directory that must be listed, returns it instead.
    fn add_entry(
        &mut self,
        within: &PendingDirectory,
        path: &Path,
        entries: &dyn EntryClassifier,
    ) -> Option<PendingDirectory> {
        let file_name = path.file_name()?;
        let shown = file_name.to_string_lossy();
        if shown.starts_with('.') {
            return None;
        }
        let dataset = entries.classify_name(&shown);
        let found = match fs::metadata(path) {
            Ok(found) => found,
            // The entry was removed after the directory was read. A dangling symbolic link, in contrast, has metadata
            // of its own.
            Err(_) if fs::symlink_metadata(path).is_err() => return None,
            Err(error) => {
                if dataset.is_some() || error.kind() != io::ErrorKind::NotFound {
                    self.add_skipped(path, error.to_string());
                }
                return None;
            }
        };
        let Some(name) = file_name.to_str() else {
            if dataset.is_some() || found.is_dir() {
                self.add_skipped(path, "its name is not UTF-8");
            }
            return None;
        };
        let whole = format!("{}{name}", within.prefix);
        match dataset {
            Some(may_be_directory) if found.is_file() || (found.is_dir() && may_be_directory) => self.names.push(whole),
            _ if found.is_dir() => return self.pending_directory(within, path, whole, &found),
            Some(_) => self.add_skipped(path, "it is neither a file nor a directory"),
            None => {}
        }
        None
    }

    fn pending_directory(
        &mut self,
        within: &PendingDirectory,
        path: &Path,
        name: String,
        found: &Metadata,
    ) -> Option<PendingDirectory> {
        let own = device_and_inode(found);
        if within.ancestors.contains(&own) {
            self.add_skipped(path, "it is a symbolic link to a directory that contains the link");
            return None;
        }
        if within.ancestors.len() > MAX_DEPTH {
            self.add_skipped(path, format!("it is more than {MAX_DEPTH} directories below the root"));
            return None;
        }
        let ancestors = within.ancestors.iter().copied().chain([own]).collect();
        Some(PendingDirectory { path: path.to_owned(), prefix: name + "/", ancestors })
    }
}

fn device_and_inode(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Beds;

    impl EntryClassifier for Beds {
        fn classify_name(&self, name: &str) -> Option<bool> {
            name.ends_with(".bed").then_some(false)
        }

        fn directory_dataset_name(&self, _directory: &Path) -> Option<String> {
            None
        }
    }

    #[test]
    fn entries_that_cannot_be_served_are_named_and_keep_no_other_from_being_listed() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        for name in ["a/b/x.bed", "y.bed", "notes.txt", ".hidden.bed"] {
            fs::write(path(name), "").unwrap();
        }
        symlink("..", path("a/b/up")).unwrap();
        symlink("nowhere", path("gone.bed")).unwrap();
        symlink("nowhere", path("gone.txt")).unwrap();
        symlink("self", path("self")).unwrap();
        let odd = root.path().join(std::ffi::OsStr::from_bytes(b"\xff.bed"));
        fs::write(&odd, "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("s.bed")).unwrap();
        let mut listing = Listing::default();
        listing.walk(root.path(), String::new(), &Beds).unwrap();
        listing.names.sort();
        assert_eq!(listing.names, ["a/b/x.bed", "y.bed"]);
        let mut skipped: Vec<PathBuf> = listing.skipped.into_iter().map(|entry| entry.path).collect();
        skipped.sort();
        assert_eq!(skipped, [path("a/b/up"), path("gone.bed"), path("s.bed"), path("self"), odd]);
        assert!(Listing::default().walk(&path("none"), String::new(), &Beds).is_err());
    }
}
