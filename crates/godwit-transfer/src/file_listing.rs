//! Listings of files and directories below a path, with their metadata.

use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use crate::error::TransferError;
use crate::path_text::{escape_for_display, path_to_text, text_to_path};
use godwit_transfer_session::partial_paths::is_partial_path;

/// A file, directory or symbolic link that is listed or copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path below the listed path, with `/` between components; empty for the listed path itself.
    pub path: String,
    /// True if the entry is a directory.
    #[serde(rename = "directory")]
    pub is_directory: bool,
    /// Size of the file, bytes; 0 for directories and for links that are copied as links.
    pub size_bytes: u64,
    /// Permissions: the lowest nine bits of the mode.
    pub mode: u32,
    /// Modification time, seconds since 1970.
    pub modified_s: i64,
    /// Nanoseconds of the modification time.
    pub modified_ns: u32,
    /// Hash of inode number, size, modification time and change time. It differs whenever the content may have changed.
    pub version: u64,
    /// Target of a symbolic link that is copied as a link; its size, times and version are 0. `None` for all other
    /// entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "link")]
    pub link_target: Option<String>,
}

impl Entry {
    /// Returns the entry of a file or directory.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs;
    ///
    /// use godwit_transfer::file_listing::Entry;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("calls.vcf");
    /// fs::write(&path, "##fileformat=VCFv4.3\n")?;
    /// let entry = Entry::from_metadata("run7/calls.vcf".to_owned(), &fs::metadata(&path)?);
    /// assert_eq!((entry.path.as_str(), entry.size_bytes), ("run7/calls.vcf", 21));
    /// assert!(entry.is_file() && !entry.is_directory);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_metadata(path: String, found: &Metadata) -> Self {
        let is_directory = found.is_dir();
        Self {
            path,
            is_directory,
            size_bytes: if is_directory { 0 } else { found.len() },
            mode: found.mode() & 0o777,
            modified_s: found.mtime(),
            modified_ns: u32::try_from(found.mtime_nsec()).unwrap_or_default(),
            version: file_version(found),
            link_target: None,
        }
    }

    /// Returns the entry of a link that is copied as a link.
    fn symbolic_link(path: String, target: String) -> Self {
        let (mode, modified_s, modified_ns, version) = (0o777, 0, 0, 0);
        Self {
            path,
            is_directory: false,
            size_bytes: 0,
            mode,
            modified_s,
            modified_ns,
            version,
            link_target: Some(target),
        }
    }

    /// Reports whether the entry is a file: neither a directory nor a link that is copied as a link.
    pub fn is_file(&self) -> bool {
        !self.is_directory && self.link_target.is_none()
    }

    /// Reports whether a local file has the same size and modification time as the entry. Such a file is up to date, as
    /// for rsync.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs;
    ///
    /// use godwit_transfer::file_listing::Entry;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("calls.vcf");
    /// fs::write(&path, "##fileformat=VCFv4.3\n")?;
    /// let entry = Entry::from_metadata("calls.vcf".to_owned(), &fs::metadata(&path)?);
    /// assert!(entry.has_same_size_and_time(&fs::metadata(&path)?));
    ///
    /// fs::write(&path, "##fileformat=VCFv4.3\n##contig=<ID=chr1>\n")?;
    /// assert!(!entry.has_same_size_and_time(&fs::metadata(&path)?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn has_same_size_and_time(&self, found: &Metadata) -> bool {
        self.is_file()
            && found.is_file()
            && self.size_bytes == found.len()
            && self.modified_s == found.mtime()
            && i64::from(self.modified_ns) == found.mtime_nsec()
    }
}

/// Returns the version of a file; see [`Entry::version`].
pub(crate) fn file_version(found: &Metadata) -> u64 {
    let numbers =
        [found.ino() as i64, found.len() as i64, found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    let mut hasher = blake3::Hasher::new();
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    hasher.finalize().as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Treatment of symbolic links by a copy.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::os::unix::fs::symlink;
///
/// use godwit_transfer::LinkPolicy;
/// use godwit_transfer::file_listing::list_entries;
///
/// let directory = tempfile::tempdir()?;
/// std::fs::write(directory.path().join("a.bam"), "BAM")?;
/// symlink("a.bam", directory.path().join("latest.bam"))?;
///
/// let followed = list_entries(directory.path(), LinkPolicy::Follow)?;
/// assert_eq!(followed.entries[2].size_bytes, 3);
/// let preserved = list_entries(directory.path(), LinkPolicy::Preserve)?;
/// assert_eq!(preserved.entries[2].link_target.as_deref(), Some("a.bam"));
/// let skipped = list_entries(directory.path(), LinkPolicy::Skip)?;
/// assert_eq!(skipped.skipped_links, ["latest.bam"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkPolicy {
    /// Copies the files and directories to which links point.
    #[default]
    Follow,
    /// Copies links as links; fails for links whose targets are outside the copied tree.
    #[serde(rename = "keep")]
    Preserve,
    /// Skips links and lists them as skipped.
    Skip,
}

/// The entries below a path.
#[derive(Debug, Default)]
pub struct Listing {
    /// Files, directories, and links to be copied, ordered by path. A directory precedes its contents.
    pub entries: Vec<Entry>,
    /// Entries that cannot be listed or copied, with their errors.
    pub failures: Vec<EntryFailure>,
    /// Paths of links that are skipped because of the link policy.
    pub skipped_links: Vec<String>,
}

/// An entry that could not be copied.
#[derive(Debug)]
pub struct EntryFailure {
    /// Path of the entry; see [`Entry::path`].
    pub path: String,
    /// The reason why the entry could not be copied.
    pub error: TransferError,
}

/// The result of a walk through a directory.
pub(crate) enum WalkItem {
    Entry(Entry),
    Failure(EntryFailure),
    SkippedLink(String),
}

/// Lists a file, or a directory and everything below it. `place` itself may be a link and is followed. Partial files
/// and journals of copies are omitted.
///
/// # Errors
/// [`TransferError::NotFound`] if `place` does not exist, [`TransferError::Io`] if it cannot be read,
/// [`TransferError::Unsupported`] if it is neither a file nor a directory. Problems below `place` are reported in the
/// listing.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::fs;
///
/// use godwit_transfer::file_listing::list_entries;
/// use godwit_transfer::{LinkPolicy, TransferError};
///
/// let directory = tempfile::tempdir()?;
/// fs::create_dir(directory.path().join("run7"))?;
/// fs::write(directory.path().join("run7/a.bam"), "BAM")?;
/// let listing = list_entries(directory.path(), LinkPolicy::Follow)?;
/// let paths: Vec<&str> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
/// assert_eq!(paths, ["", "run7", "run7/a.bam"]);
///
/// let absent = list_entries(&directory.path().join("run8"), LinkPolicy::Follow);
/// assert!(matches!(absent, Err(TransferError::NotFound { .. })));
/// # Ok(())
/// # }
/// ```
pub fn list_entries(place: &Path, links: LinkPolicy) -> Result<Listing, TransferError> {
    let mut listing = Listing::default();
    for found in walk_entries(place, links) {
        match found? {
            WalkItem::Entry(entry) => listing.entries.push(entry),
            // If the metadata of a directory cannot be read, listing the directory fails too; report only the first
            // failure.
            WalkItem::Failure(failure) if listing.failures.last().is_some_and(|last| last.path == failure.path) => {}
            WalkItem::Failure(failure) => listing.failures.push(failure),
            WalkItem::SkippedLink(path) => listing.skipped_links.push(path),
        }
    }
    Ok(listing)
}

/// Lists entries as [`list_entries`] does, but returns them one at a time.
pub(crate) fn walk_entries(place: &Path, links: LinkPolicy) -> impl Iterator<Item = Result<WalkItem, TransferError>> {
    let walk = WalkDir::new(place).follow_links(links == LinkPolicy::Follow).sort_by_file_name().into_iter();
    walk.filter_map(move |found| match found {
        Ok(found) => walk_item(&found, place, links).transpose(),
        Err(error) => Some(walk_failure(error, place)),
    })
}

/// Returns the path relative to `place`, as text.
fn relative_path_text(path: &Path, place: &Path) -> String {
    path_to_text(path.strip_prefix(place).unwrap_or(path))
}

fn walk_item(found: &walkdir::DirEntry, place: &Path, links: LinkPolicy) -> Result<Option<WalkItem>, TransferError> {
    let path = relative_path_text(found.path(), place);
    if is_partial_path(&path) {
        return Ok(None);
    }
    let is_place = found.depth() == 0;
    let metadata = match found.metadata() {
        // The entry is a symbolic link below `place` that the policy does not follow. A link at `place` itself is
        // always followed.
        Ok(metadata) if metadata.is_symlink() && !is_place => return Ok(Some(link_item(path, found.path(), links))),
        Ok(metadata) if metadata.is_symlink() => {
            std::fs::metadata(place).map_err(TransferError::io_error("list", place))?
        }
        Ok(metadata) => metadata,
        Err(error) => return walk_failure(error, place).map(Some),
    };
    if metadata.is_file() || metadata.is_dir() {
        return Ok(Some(WalkItem::Entry(Entry::from_metadata(path, &metadata))));
    }
    let problem = format!(
        "{} is {}; --exclude it",
        escape_for_display(&path_to_text(found.path())),
        special_file_kind(&metadata)
    );
    let error = TransferError::Unsupported { problem };
    if is_place { Err(error) } else { Ok(Some(WalkItem::Failure(EntryFailure { path, error }))) }
}

fn link_item(path: String, place: &Path, links: LinkPolicy) -> WalkItem {
    if links == LinkPolicy::Skip {
        return WalkItem::SkippedLink(path);
    }
    match std::fs::read_link(place) {
        Ok(target) => WalkItem::Entry(Entry::symbolic_link(path, path_to_text(&target))),
        Err(source) => WalkItem::Failure(EntryFailure { path, error: TransferError::io_error("read", place)(source) }),
    }
}

/// Returns a description of a special file, such as a named pipe, for error messages.
fn special_file_kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_fifo() => "a named pipe, not a file",
        () if kind.is_socket() => "a socket, not a file",
        () if kind.is_block_device() || kind.is_char_device() => "a device, not a file",
        () => "neither a file nor a directory",
    }
}

/// Returns the failure of an entry below `place`, or an error if `place` itself cannot be read.
fn walk_failure(error: walkdir::Error, place: &Path) -> Result<WalkItem, TransferError> {
    // An error that occurs while a directory is read may have no path; then use the path of the directory.
    let path = error.path().unwrap_or(place).to_owned();
    let is_place = error.depth() == 0;
    let is_link = !is_place && std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
    let unsupported = |why: &str| TransferError::Unsupported {
        problem: format!("{} {why}", escape_for_display(&path_to_text(&path))),
    };
    let error = match error.into_io_error() {
        None => unsupported("is a symbolic link to a directory that contains the link"),
        Some(source) if is_link && source.kind() == ErrorKind::NotFound => {
            unsupported("is a symbolic link to a file that does not exist")
        }
        Some(source) if is_link && source.raw_os_error() == Some(libc::ELOOP) => {
            unsupported("is a symbolic link to itself")
        }
        Some(source) if source.kind() == ErrorKind::NotFound => {
            TransferError::NotFound { location: escape_for_display(&path_to_text(&path)) }
        }
        Some(source) => TransferError::Io { operation: "list", path: path.clone(), source },
    };
    match is_place {
        true => Err(error),
        false => Ok(WalkItem::Failure(EntryFailure { path: relative_path_text(&path, place), error })),
    }
}

/// Resolves an untrusted relative path below a directory. The path must not contain `..` or hidden components.
///
/// # Errors
/// [`TransferError::Rejected`] if the path has such components or is invalid.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::path::Path;
///
/// use godwit_transfer::TransferError;
/// use godwit_transfer::file_listing::resolve_below_root;
///
/// let root = Path::new("/data");
/// assert_eq!(resolve_below_root(root, "run7/a.bam")?, Path::new("/data/run7/a.bam"));
/// for path in ["../etc/passwd", "run7/../../etc", ".ssh/id_ed25519"] {
///     assert!(matches!(resolve_below_root(root, path), Err(TransferError::Rejected { .. })));
/// }
/// # Ok(())
/// # }
/// ```
pub fn resolve_below_root(directory: &Path, path: &str) -> Result<PathBuf, TransferError> {
    let is_plain = |part: Component| matches!(part, Component::Normal(part) if !part.as_bytes().starts_with(b"."));
    let path = path.trim_matches('/');
    let found = text_to_path(path).filter(|found| found.components().all(is_plain));
    let refused =
        || TransferError::rejected(format!("{:?} is not a path below the server's root", escape_for_display(path)));
    let found = found.ok_or_else(refused)?;
    Ok(if path.is_empty() { directory.to_owned() } else { directory.join(found) })
}

/// Opens a file or directory for reading; returns the open file and its metadata.
///
/// # Errors
/// [`TransferError::NotFound`] if the path does not exist, [`TransferError::Io`] if it cannot be opened,
/// [`TransferError::Rejected`] if it is a special file such as a named pipe. The call does not block on special files.
pub(crate) fn open_for_reading(path: &Path) -> Result<(File, Metadata), TransferError> {
    // Without `O_NONBLOCK`, opening a named pipe would block until another process opens it for writing.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|source| match source.kind() {
        ErrorKind::NotFound => TransferError::NotFound { location: escape_for_display(&path_to_text(path)) },
        _ => TransferError::Io { operation: "read", path: path.to_owned(), source },
    })?;
    let metadata = file.metadata().map_err(TransferError::io_error("read", path))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(TransferError::rejected(format!(
            "{} is {}",
            escape_for_display(&path_to_text(path)),
            special_file_kind(&metadata)
        )));
    }
    Ok((file, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_a_client_stays_below_the_root() {
        let root = Path::new("/data");
        assert_eq!(resolve_below_root(root, "a/b.bam").unwrap(), Path::new("/data/a/b.bam"));
        assert_eq!(resolve_below_root(root, "/a/").unwrap(), Path::new("/data/a"));
        assert_eq!(resolve_below_root(root, "").unwrap(), Path::new("/data"));
        for bad in ["..", "a/../../b", "./.ssh", ".ssh/id", "a/.hidden", "a\0b", "a/\x002e", "\x00ff\x002f.."] {
            assert!(resolve_below_root(root, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_our_own_parts_are_not_listed() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("b")).unwrap();
        for name in ["b/c", "a", "b/x.godwit-part", ".x.godwit-part", ".x.godwit-journal", ".x.godwit-journal-new"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        let entries = list_entries(directory.path(), LinkPolicy::Follow).unwrap().entries;
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        // A name without a dot at its beginning is that of a file of a user.
        assert_eq!(paths, ["", "a", "b", "b/c", "b/x.godwit-part"]);
        assert!(entries[0].is_directory && entries[1].size_bytes == 1);
        let alone = list_entries(&directory.path().join("a"), LinkPolicy::Follow).unwrap().entries;
        assert_eq!((alone.len(), alone[0].path.as_str()), (1, ""));
        assert!(matches!(
            list_entries(&directory.path().join("none"), LinkPolicy::Follow),
            Err(TransferError::NotFound { .. })
        ));
    }
}
