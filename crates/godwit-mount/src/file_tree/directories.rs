//! Open directories, and the attributes of their entries.
//!
//! A program that appends to a file writes at the end that the kernel knows. So a listing never gives the kernel
//! attributes that are older than those that it has: an entry that was inspected or changed through this mount after its
//! listing began is inspected again.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{ATTRIBUTE_LIFETIME, FileTree};
use crate::staged_file::StagedFile;
use crate::storage::{Attributes, DirectoryEntry, StorageError};

/// Largest number of names of outdated entries that an open directory stores, about 80 bytes each. If there are more, each
/// entry is inspected again: a program that keeps a directory open may change any number of files in it.
const MAX_OUTDATED_ENTRIES: usize = 10_000;

/// An open directory with the entries that it had when it was opened.
pub(crate) struct OpenDirectory {
    inode: u64,
    /// Time at which the listing began.
    listed_since: Instant,
    listing: OnceLock<Listing>,
    /// Entries of which the kernel may have newer attributes than the listing.
    outdated_entries: Mutex<OutdatedEntries>,
}

/// Entries of a listing whose attributes are not used.
enum OutdatedEntries {
    Some(HashSet<OsString>),
    All,
}

impl OutdatedEntries {
    fn insert(&mut self, name: &OsStr) {
        let Self::Some(names) = self else { return };
        names.insert(name.to_owned());
        if names.len() > MAX_OUTDATED_ENTRIES {
            *self = Self::All;
        }
    }

    fn contains(&self, name: &OsStr) -> bool {
        match self {
            Self::Some(names) => names.contains(name),
            Self::All => true,
        }
    }
}

impl Default for OutdatedEntries {
    fn default() -> Self {
        Self::Some(HashSet::new())
    }
}

struct Listing {
    entries: Vec<DirectoryEntry>,
    ended: Instant,
}

impl OpenDirectory {
    /// Returns the entries, in an order that does not change.
    pub(crate) fn entries(&self) -> &[DirectoryEntry] {
        self.listing.get().map_or(&[], |listing| &listing.entries)
    }

    /// Returns the time for which the kernel may still use the attributes of the listing.
    fn remaining_lifetime(&self) -> Duration {
        ATTRIBUTE_LIFETIME.saturating_sub(self.listing.get().map_or(Duration::MAX, |listing| listing.ended.elapsed()))
    }
}

impl FileTree {
    /// Opens a directory with its present entries.
    pub(crate) fn open_directory(&self, inode: u64) -> Result<u64, StorageError> {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.list_directory(inode, handle, None).inspect_err(|_| self.release_directory(handle))?;
        Ok(handle)
    }

    /// Lists a directory. Changes of its entries are recorded in the directory of `handle` from the beginning. The order
    /// of the entries of an earlier listing is kept.
    fn list_directory(
        &self,
        inode: u64,
        handle: u64,
        earlier: Option<&OpenDirectory>,
    ) -> Result<Arc<OpenDirectory>, StorageError> {
        let path = self.path(inode)?;
        let (listing, outdated_entries) = (OnceLock::new(), Mutex::default());
        let directory = Arc::new(OpenDirectory { inode, listed_since: Instant::now(), listing, outdated_entries });
        self.directories.lock().insert(handle, directory.clone());
        let mut entries = self.storage.list(&path)?;
        let staged: Vec<(OsString, Arc<StagedFile>)> = {
            let inodes = self.inodes.lock();
            let named =
                |(path, staged): (&Path, &Arc<StagedFile>)| Some((path.file_name()?.to_owned(), staged.clone()));
            inodes.staged_in(&path).filter_map(named).collect()
        };
        for (name, staged) in staged {
            let attributes = staged.attributes()?;
            match entries.iter_mut().find(|entry| entry.name == name) {
                Some(entry) => entry.attributes = attributes,
                None => entries.push(DirectoryEntry { name, attributes }),
            }
        }
        if let Some(earlier) = earlier {
            let found: HashMap<OsString, Attributes> =
                entries.into_iter().map(|entry| (entry.name, entry.attributes)).collect();
            entries = earlier.entries().to_vec();
            for entry in &mut entries {
                match found.get(&entry.name) {
                    Some(attributes) => entry.attributes = *attributes,
                    None => directory.outdated_entries.lock().insert(&entry.name),
                }
            }
        }
        directory.listing.get_or_init(|| Listing { entries, ended: Instant::now() });
        Ok(directory)
    }

    /// Returns an open directory.
    pub(crate) fn directory(&self, handle: u64) -> Result<Arc<OpenDirectory>, StorageError> {
        let unknown = || StorageError { errno: libc::EBADF, message: "the directory is not open".to_owned() };
        self.directories.lock().get(&handle).cloned().ok_or_else(unknown)
    }

    /// Returns an open directory whose attributes the kernel may use; lists it again if its listing is too old.
    pub(crate) fn directory_with_attributes(&self, handle: u64) -> Result<Arc<OpenDirectory>, StorageError> {
        let directory = self.directory(handle)?;
        if !directory.remaining_lifetime().is_zero() {
            return Ok(directory);
        }
        let new_handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let listed = self.list_directory(directory.inode, new_handle, Some(&directory));
        let mut directories = self.directories.lock();
        directories.remove(&new_handle);
        let listed = listed?;
        directories.insert(handle, listed.clone());
        Ok(listed)
    }

    /// Closes a directory.
    pub(crate) fn release_directory(&self, handle: u64) {
        self.directories.lock().remove(&handle);
    }

    /// Returns the inode number of an entry of an open directory, its attributes, and their lifetime, and counts a
    /// lookup. `None`: the entry was removed.
    pub(crate) fn look_up_listed(
        &self,
        directory: &OpenDirectory,
        entry: &DirectoryEntry,
    ) -> Result<Option<(u64, Attributes, Duration)>, StorageError> {
        let path = self.path(directory.inode)?.join(&entry.name);
        let listed = {
            let mut inodes = self.inodes.lock();
            let is_staged = inodes.at_path(&path).is_some_and(|inode| inode.staged.is_some());
            let is_outdated = is_staged || directory.outdated_entries.lock().contains(&entry.name);
            (!is_outdated).then(|| inodes.look_up(&path))
        };
        if let Some(inode) = listed {
            self.outdate_listings(&path, directory.listed_since);
            return Ok(Some((inode, entry.attributes, directory.remaining_lifetime())));
        }
        match self.look_up(directory.inode, &entry.name) {
            Err(error) if error.errno == libc::ENOENT => Ok(None),
            found => found.map(|(inode, attributes)| Some((inode, attributes, ATTRIBUTE_LIFETIME))),
        }
    }

    /// Records that an inode is inspected or was changed now.
    pub(super) fn outdate_listings_of(&self, inode: u64) {
        if let Ok(path) = self.path(inode) {
            self.outdate_listings(&path, Instant::now());
        }
    }

    /// Records that the kernel receives attributes of an entry which are newer than those of the listings that began
    /// before `inspected_at`.
    pub(super) fn outdate_listings(&self, path: &Path, inspected_at: Instant) {
        if self.directories.lock().is_empty() {
            return;
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        let Some(parent) = self.inodes.lock().number_of(parent) else { return };
        for directory in self.directories.lock().values() {
            if directory.inode == parent && directory.listed_since < inspected_at {
                directory.outdated_entries.lock().insert(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_outdated_entries_are_limited_and_beyond_the_limit_all_are_outdated() {
        let mut outdated = OutdatedEntries::default();
        for number in 0..MAX_OUTDATED_ENTRIES {
            outdated.insert(number.to_string().as_ref());
        }
        assert!(outdated.contains("7".as_ref()) && !outdated.contains("other".as_ref()));
        outdated.insert("one too many".as_ref());
        assert!(outdated.contains("other".as_ref()) && matches!(outdated, OutdatedEntries::All));
    }
}
