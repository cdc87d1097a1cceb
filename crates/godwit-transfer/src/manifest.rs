//! What is to be copied: files and directories below a place, as their file system tells of them.

use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use crate::error::TransferError;
use crate::names::{path_of, shown, text_of};

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
    /// Target of a link that is copied as a link. Its size, times and version are 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
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
            link: None,
        }
    }

    /// A link that is copied as a link.
    fn of_link(path: String, target: String) -> Self {
        let (mode, modified_s, modified_ns, version) = (0o777, 0, 0, 0);
        Self { path, directory: false, size_bytes: 0, mode, modified_s, modified_ns, version, link: Some(target) }
    }

    /// Returns whether it is a file: neither a directory nor a link that is copied as one.
    pub fn is_file(&self) -> bool {
        !self.directory && self.link.is_none()
    }

    /// Whether size and time of writing are the same: then the files count as the same, as for rsync.
    pub fn looks_like(&self, found: &Metadata) -> bool {
        self.is_file()
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

/// Treatment of symbolic links by a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Links {
    /// Copies what they lead to.
    #[default]
    Follow,
    /// Copies them as links, where they lead to something within what is copied.
    Keep,
    /// Leaves them out.
    Skip,
}

/// The entries below a path.
#[derive(Debug, Default)]
pub struct Listing {
    /// Files, directories, and links that are kept, in the order of their paths; directories come before what is in them.
    pub entries: Vec<Entry>,
    /// Entries that cannot be copied.
    pub failures: Vec<EntryFailure>,
    /// Paths of links that are skipped.
    pub skipped_links: Vec<String>,
}

/// An entry that is not copied.
#[derive(Debug)]
pub struct EntryFailure {
    /// As in [`Entry`].
    pub path: String,
    /// The reason.
    pub why: TransferError,
}

/// One entry, as it was found.
pub(crate) enum WalkItem {
    Entry(Entry),
    Failure(EntryFailure),
    SkippedLink(String),
}

/// Lists a file, or all below a directory. A place that is a link itself is followed. Unfinished files of other copies are left out.
///
/// # Errors
/// [`TransferError::NotFound`], [`TransferError::File`], and [`TransferError::Unsupported`] where the place itself is not there, cannot be read, or is neither a
/// file nor a directory.
pub fn list(place: &Path, links: Links) -> Result<Listing, TransferError> {
    let mut listing = Listing::default();
    for found in walk(place, links) {
        match found? {
            WalkItem::Entry(entry) => listing.entries.push(entry),
            // A directory whose metadata cannot be read cannot be listed either.
            WalkItem::Failure(failure) if listing.failures.last().is_some_and(|last| last.path == failure.path) => {}
            WalkItem::Failure(failure) => listing.failures.push(failure),
            WalkItem::SkippedLink(path) => listing.skipped_links.push(path),
        }
    }
    Ok(listing)
}

/// As [`list`], one after the other.
pub(crate) fn walk(place: &Path, links: Links) -> impl Iterator<Item = Result<WalkItem, TransferError>> {
    let walk = WalkDir::new(place).follow_links(links == Links::Follow).sort_by_file_name().into_iter();
    walk.filter_map(move |found| match found {
        Ok(found) => found_of(&found, place, links).transpose(),
        Err(error) => Some(cannot_walk(error, place)),
    })
}

/// The path of what is below a place, as text.
fn text_below(path: &Path, place: &Path) -> String {
    text_of(path.strip_prefix(place).unwrap_or(path))
}

fn found_of(found: &walkdir::DirEntry, place: &Path, links: Links) -> Result<Option<WalkItem>, TransferError> {
    let path = text_below(found.path(), place);
    if is_unfinished(&path) {
        return Ok(None);
    }
    let is_place = found.depth() == 0;
    let metadata = match found.metadata() {
        // A link that is not followed, but for the place itself.
        Ok(metadata) if metadata.is_symlink() && !is_place => return Ok(Some(link(path, found.path(), links))),
        Ok(metadata) if metadata.is_symlink() => {
            std::fs::metadata(place).map_err(TransferError::file("list", place))?
        }
        Ok(metadata) => metadata,
        Err(error) => return cannot_walk(error, place).map(Some),
    };
    if metadata.is_file() || metadata.is_dir() {
        return Ok(Some(WalkItem::Entry(Entry::of(path, &metadata))));
    }
    let problem = format!("{} is {}; --exclude it", shown(&text_of(found.path())), kind_of(&metadata));
    let why = TransferError::Unsupported { problem };
    if is_place { Err(why) } else { Ok(Some(WalkItem::Failure(EntryFailure { path, why }))) }
}

fn link(path: String, place: &Path, links: Links) -> WalkItem {
    if links == Links::Skip {
        return WalkItem::SkippedLink(path);
    }
    match std::fs::read_link(place) {
        Ok(target) => WalkItem::Entry(Entry::of_link(path, text_of(&target))),
        Err(source) => WalkItem::Failure(EntryFailure { path, why: TransferError::file("read", place)(source) }),
    }
}

/// Returns the name of the kind of a special file.
fn kind_of(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_fifo() => "a named pipe, not a file",
        () if kind.is_socket() => "a socket, not a file",
        () if kind.is_block_device() || kind.is_char_device() => "a device, not a file",
        () => "neither a file nor a directory",
    }
}

/// Reports what cannot be listed: as left out, or as an error where that is the place itself.
fn cannot_walk(error: walkdir::Error, place: &Path) -> Result<WalkItem, TransferError> {
    // Where only a part of a directory was read, it is not known which directory that is.
    let path = error.path().unwrap_or(place).to_owned();
    let is_place = error.depth() == 0;
    let is_link = !is_place && std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
    let unsupported = |why: &str| TransferError::Unsupported { problem: format!("{} {why}", shown(&text_of(&path))) };
    let why = match error.into_io_error() {
        None => unsupported("is a link to a directory that it is in"),
        Some(source) if is_link && source.kind() == ErrorKind::NotFound => unsupported("is a link to nothing"),
        Some(source) if is_link && source.raw_os_error() == Some(libc::ELOOP) => unsupported("is a link to itself"),
        Some(source) if source.kind() == ErrorKind::NotFound => {
            TransferError::NotFound { place: shown(&text_of(&path)) }
        }
        Some(source) => TransferError::File { doing: "list", path: path.clone(), source },
    };
    match is_place {
        true => Err(why),
        false => Ok(WalkItem::Failure(EntryFailure { path: text_below(&path, place), why })),
    }
}

/// A path that a stranger named, below a directory: without `..`, without hidden parts, never absolute.
///
/// # Errors
/// [`TransferError::Refused`].
pub fn below(directory: &Path, path: &str) -> Result<PathBuf, TransferError> {
    let is_plain = |part: Component| matches!(part, Component::Normal(part) if !part.as_bytes().starts_with(b"."));
    let path = path.trim_matches('/');
    let found = path_of(path).filter(|found| found.components().all(is_plain));
    let refused = || TransferError::refused(format!("{:?} is not a path below the server's root", shown(path)));
    let found = found.ok_or_else(refused)?;
    Ok(if path.is_empty() { directory.to_owned() } else { directory.join(found) })
}

/// Opens a file for reading; with what its file system tells of it.
///
/// # Errors
/// [`TransferError::NotFound`], [`TransferError::File`]; [`TransferError::Refused`] for what is neither a file nor a directory, for which nothing waits.
pub(crate) fn open_for_reading(path: &Path) -> Result<(File, Metadata), TransferError> {
    // A named pipe would be waited for until something writes to it.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|source| match source.kind() {
        ErrorKind::NotFound => TransferError::NotFound { place: shown(&text_of(path)) },
        _ => TransferError::File { doing: "read", path: path.to_owned(), source },
    })?;
    let metadata = file.metadata().map_err(TransferError::file("read", path))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(TransferError::refused(format!("{} is {}", shown(&text_of(path)), kind_of(&metadata))));
    }
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
        for bad in ["..", "a/../../b", "./.ssh", ".ssh/id", "a/.hidden", "a\0b", "a/\x002e", "\x00ff\x002f.."] {
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
        let entries = list(directory.path(), Links::Follow).unwrap().entries;
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["", "a", "b", "b/c"]);
        assert!(entries[0].directory && entries[1].size_bytes == 1);
        let alone = list(&directory.path().join("a"), Links::Follow).unwrap().entries;
        assert_eq!((alone.len(), alone[0].path.as_str()), (1, ""));
        assert!(matches!(list(&directory.path().join("none"), Links::Follow), Err(TransferError::NotFound { .. })));
    }
}
