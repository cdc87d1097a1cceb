//! Inode numbers of the kernel, and the paths that they stand for.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::staged_file::StagedFile;
use crate::storage::Attributes;

/// Inode number of the mounted directory.
pub(crate) const ROOT_INODE: u64 = 1;

/// A file or directory that the kernel knows.
#[derive(Default)]
pub(crate) struct Inode {
    /// Path below the mounted directory; `None` once the file was removed or replaced through this mount.
    pub(crate) path: Option<PathBuf>,
    /// Number of lookups that the kernel has not forgotten.
    lookups: u64,
    /// Number of open file handles.
    pub(crate) open_handles: u32,
    /// Content that replaces the stored file while the file is open.
    pub(crate) staged: Option<Arc<StagedFile>>,
    /// Attributes of the stored version whose pages the kernel may have.
    pub(crate) cached: Option<Attributes>,
    /// Number of that version, unless a rename has changed it.
    pub(crate) cached_version: Option<u64>,
}

/// The inodes of a mount.
pub(crate) struct InodeTable {
    inodes: HashMap<u64, Inode>,
    by_path: HashMap<PathBuf, u64>,
    next: u64,
}

impl InodeTable {
    /// Returns a table with the mounted directory.
    pub(crate) fn new() -> Self {
        let root = Inode { path: Some(PathBuf::new()), lookups: 1, ..Inode::default() };
        let by_path = HashMap::from([(PathBuf::new(), ROOT_INODE)]);
        Self { inodes: HashMap::from([(ROOT_INODE, root)]), by_path, next: ROOT_INODE + 1 }
    }

    /// Returns the inode number of a path and counts a lookup.
    pub(crate) fn look_up(&mut self, path: &Path) -> u64 {
        let number = match self.by_path.get(path) {
            Some(number) => *number,
            None => {
                let number = self.next;
                self.next += 1;
                self.by_path.insert(path.to_owned(), number);
                self.inodes.insert(number, Inode { path: Some(path.to_owned()), ..Inode::default() });
                number
            }
        };
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.lookups += 1;
        }
        number
    }

    /// Returns an inode.
    pub(crate) fn get(&self, number: u64) -> Option<&Inode> {
        self.inodes.get(&number)
    }

    /// Returns an inode.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Inode> {
        self.inodes.get_mut(&number)
    }

    /// Returns the inode number of a path, if the kernel knows it.
    pub(crate) fn number_of(&self, path: &Path) -> Option<u64> {
        self.by_path.get(path).copied()
    }

    /// Returns the inode of a path, if the kernel knows it.
    pub(crate) fn at_path(&self, path: &Path) -> Option<&Inode> {
        self.inodes.get(self.by_path.get(path)?)
    }

    /// Returns the staged files of a directory, by path.
    pub(crate) fn staged_in<'t>(&'t self, directory: &Path) -> impl Iterator<Item = (&'t Path, &'t Arc<StagedFile>)> {
        self.inodes.values().filter_map(move |inode| {
            let path = inode.path.as_deref().filter(|path| path.parent() == Some(directory))?;
            Some((path, inode.staged.as_ref()?))
        })
    }

    /// Returns the inodes that have a path and staged content that is not stored.
    pub(crate) fn changed(&self) -> Vec<(u64, PathBuf)> {
        let changed = |(number, inode): (&u64, &Inode)| {
            let is_changed = inode.staged.as_ref().is_some_and(|staged| staged.is_changed());
            Some((*number, inode.path.clone().filter(|_| is_changed)?))
        };
        self.inodes.iter().filter_map(changed).collect()
    }

    /// Removes lookups of the kernel. An inode without lookups and open handles is removed.
    pub(crate) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(inode) = self.inodes.get_mut(&number) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        self.remove_unused(number);
    }

    /// Removes an inode that neither the kernel nor a handle uses.
    pub(crate) fn remove_unused(&mut self, number: u64) {
        let is_unused = |inode: &Inode| number != ROOT_INODE && inode.lookups == 0 && inode.open_handles == 0;
        if self.inodes.get(&number).is_some_and(is_unused)
            && let Some(Inode { path: Some(path), .. }) = self.inodes.remove(&number)
        {
            self.by_path.remove(&path);
        }
    }

    /// Takes the path from an inode, because the file was removed or replaced.
    pub(crate) fn detach(&mut self, path: &Path) {
        if let Some(inode) = self.by_path.remove(path).and_then(|number| self.inodes.get_mut(&number)) {
            inode.path = None;
        }
    }

    /// Gives an inode, and all inodes below it, another path. An inode at the new path loses its path.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) {
        if from == to {
            return;
        }
        self.detach(to);
        let below = |path: &Path| {
            path.strip_prefix(from).ok().map(|rest| match rest.as_os_str().is_empty() {
                true => to.to_owned(),
                false => to.join(rest),
            })
        };
        let moved: Vec<(PathBuf, PathBuf, u64)> =
            self.by_path.iter().filter_map(|(path, number)| Some((path.clone(), below(path)?, *number))).collect();
        for (old, _, _) in &moved {
            self.by_path.remove(old);
        }
        for (_, new, number) in moved {
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.path = Some(new.clone());
            }
            self.by_path.insert(new, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_takes_its_files_along_and_a_replaced_file_has_no_path() {
        let mut table = InodeTable::new();
        let (file, other) = (table.look_up("d/e/f".as_ref()), table.look_up("dd/f".as_ref()));
        table.rename("d".as_ref(), "n".as_ref());
        let path = |table: &InodeTable, number| table.get(number).unwrap().path.clone();
        assert_eq!(path(&table, file), Some("n/e/f".into()));
        assert_eq!(path(&table, other), Some("dd/f".into()));
        assert_eq!(table.number_of("n/e/f".as_ref()), Some(file));
        table.rename("dd/f".as_ref(), "n/e/f".as_ref());
        assert_eq!((path(&table, file), path(&table, other)), (None, Some("n/e/f".into())));
        table.forget(other, 1);
        assert!(table.get(other).is_none() && table.number_of("n/e/f".as_ref()).is_none());
    }
}
