//! What is to be copied: files and directories below a place, as their file system tells of them.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use crate::error::TransferError;

/// What names of our own unfinished files end with; they are never listed.
pub(crate) const PART_ENDING: &str = ".godwit-part";
/// The same, for their journals.
pub(crate) const JOURNAL_ENDING: &str = ".godwit-journal";

/// The same, behind that, for a journal that is begun anew.
pub(crate) const NEW_ENDING: &str = "-new";

/// Whether a path is one of our own unfinished files.
pub(crate) fn is_unfinished(path: &str) -> bool {
    path.ends_with(PART_ENDING) || path.strip_suffix(NEW_ENDING).unwrap_or(path).ends_with(JOURNAL_ENDING)
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path below the place that was listed, with `/` between its parts; empty for the place itself.
    pub path: String,
    /// Whether it is a directory.
    pub directory: bool,
    /// Bytes; 0 for directories.
    pub size_bytes: u64,
    /// Permissions, the lowest nine bits of the mode.
    pub mode: u32,
    /// When it was last written: seconds since 1970.
    pub modified_s: i64,
    /// And nanoseconds.
    pub modified_ns: u32,
    /// Another number whenever its content may be another: made of inode, size, and times of data and inode.
    pub version: u64,
}

impl Entry {
    /// What the file system tells of a file or directory.
    pub fn of(path: String, found: &Metadata) -> Self {
        let directory = found.is_dir();
        Self {
            path,
            directory,
            size_bytes: if directory { 0 } else { found.len() },
            mode: found.mode() & 0o777,
            modified_s: found.mtime(),
            modified_ns: u32::try_from(found.mtime_nsec()).unwrap_or_default(),
            version: version_of(found),
        }
    }

    /// Whether size and time of writing are the same: then the files count as the same, as for rsync.
    pub fn looks_like(&self, found: &Metadata) -> bool {
        !self.directory
            && found.is_file()
            && self.size_bytes == found.len()
            && self.modified_s == found.mtime()
            && i64::from(self.modified_ns) == found.mtime_nsec()
    }
}

/// A number for the state of a file.
pub(crate) fn version_of(found: &Metadata) -> u64 {
    let numbers =
        [found.ino() as i64, found.len() as i64, found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    let mut hasher = blake3::Hasher::new();
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    hasher.finalize().as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Lists a file, or all below a directory, in the order of their paths; directories come before what is in them. Links are
/// followed. Unfinished files of other copies are left out.
///
/// # Errors
/// [`TransferError::NotFound`], [`TransferError::File`], and [`TransferError::Refused`] for names that are not UTF-8, for what is
/// neither file nor directory, and for links in a circle.
pub fn list(place: &Path) -> Result<Vec<Entry>, TransferError> {
    walk(place).collect()
}

/// As [`list`], one after the other.
pub(crate) fn walk(place: &Path) -> impl Iterator<Item = Result<Entry, TransferError>> {
    let walk = WalkDir::new(place).follow_links(true).sort_by_file_name().into_iter();
    walk.filter_map(move |found| entry_of(found, place).transpose())
}

fn entry_of(found: Result<walkdir::DirEntry, walkdir::Error>, place: &Path) -> Result<Option<Entry>, TransferError> {
    let not_found = || TransferError::NotFound { place: place.display().to_string() };
    let found = found.map_err(|error| cannot_walk(error, place))?;
    let metadata = found.metadata().map_err(|error| cannot_walk(error, place))?;
    let below = found.path().strip_prefix(place).map_err(|_| not_found())?;
    let Some(path) = below.to_str() else {
        let path = found.path().display();
        return Err(TransferError::refused(format!("{path}: names of files must be UTF-8 to be copied")));
    };
    if is_unfinished(path) {
        return Ok(None);
    }
    if !metadata.is_file() && !metadata.is_dir() {
        let path = found.path().display();
        return Err(TransferError::refused(format!("{path} is neither a file nor a directory; --exclude it")));
    }
    Ok(Some(Entry::of(path.to_owned(), &metadata)))
}

fn cannot_walk(error: walkdir::Error, place: &Path) -> TransferError {
    let path = error.path().unwrap_or(place).to_owned();
    match error.into_io_error() {
        Some(source) if source.kind() == std::io::ErrorKind::NotFound => {
            TransferError::NotFound { place: path.display().to_string() }
        }
        Some(source) => TransferError::File { doing: "list", path, source },
        None => TransferError::refused(format!("{} is a link to a directory that it is in", path.display())),
    }
}

/// A path that a stranger named, below a directory: without `..`, without hidden parts, never absolute.
///
/// # Errors
/// [`TransferError::Refused`].
pub fn below(directory: &Path, path: &str) -> Result<PathBuf, TransferError> {
    let plain = |part: Component| matches!(part, Component::Normal(part) if !part.as_encoded_bytes().starts_with(b"."));
    let path = path.trim_matches('/');
    if path.contains('\0') || !Path::new(path).components().all(plain) {
        return Err(TransferError::refused(format!("{path:?} is not a path below the server's root")));
    }
    Ok(if path.is_empty() { directory.to_owned() } else { directory.join(path) })
}

/// A file opened for reading, and what its file system tells of it.
pub(crate) fn open_for_reading(path: &Path) -> Result<(File, Metadata), TransferError> {
    let file = File::open(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => TransferError::NotFound { place: path.display().to_string() },
        _ => TransferError::File { doing: "read", path: path.to_owned(), source },
    })?;
    let metadata = file.metadata().map_err(TransferError::file("read", path))?;
    Ok((file, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_stranger_stays_below_the_root() {
        let root = Path::new("/data");
        assert_eq!(below(root, "a/b.bam").unwrap(), Path::new("/data/a/b.bam"));
        assert_eq!(below(root, "/a/").unwrap(), Path::new("/data/a"));
        assert_eq!(below(root, "").unwrap(), Path::new("/data"));
        for bad in ["..", "a/../../b", "./.ssh", ".ssh/id", "a/.hidden", "a\0b"] {
            assert!(below(root, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_our_own_parts_are_not_listed() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("b")).unwrap();
        for name in ["b/c", "a", ".x.godwit-part", ".x.godwit-journal", ".x.godwit-journal-new"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        let entries = list(directory.path()).unwrap();
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["", "a", "b", "b/c"]);
        assert!(entries[0].directory && entries[1].size_bytes == 1);
        let alone = list(&directory.path().join("a")).unwrap();
        assert_eq!((alone.len(), alone[0].path.as_str()), (1, ""));
        assert!(matches!(list(&directory.path().join("none")), Err(TransferError::NotFound { .. })));
    }
}
