//! A directory of this host as storage.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use godwit_files::{parent_directory, set_attributes, sync_directory};
use godwit_transfer::StorageSpace;
use godwit_transfer::file_listing::Entry;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::storage::{Attributes, DirectoryEntry, Storage, StorageError, StoredFile, WriteOptions};

/// A directory of this host.
#[derive(Debug)]
pub struct LocalStorage {
    root: PathBuf,
}

struct LocalFile {
    path: PathBuf,
    file: File,
    attributes: Attributes,
}

impl LocalStorage {
    /// Returns the files below a directory.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::path::Path;
    ///
    /// use godwit_mount::{LocalStorage, Storage as _};
    ///
    /// let root = tempfile::tempdir()?;
    /// std::fs::write(root.path().join("a.bam"), "BAM")?;
    /// let storage = LocalStorage::new(root.path());
    /// assert_eq!(storage.open(Path::new("a.bam"))?.read_at(1, 10)?, &b"AM"[..]);
    /// assert_eq!(storage.attributes(Path::new("b.bam")).unwrap_err().errno, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }
}

fn attributes_of(found: &Metadata) -> Attributes {
    let entry = Entry::from_metadata(String::new(), found);
    Attributes {
        is_directory: entry.is_directory,
        size_bytes: entry.size_bytes,
        mode: entry.mode,
        modified: found.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        version: entry.version,
    }
}

/// Returns up to `size_bytes` bytes of a file from an offset; fewer only at its end.
pub(crate) fn read_up_to(file: &File, offset: u64, size_bytes: usize) -> io::Result<Bytes> {
    let mut data = vec![0; size_bytes];
    let mut filled = 0;
    while filled < size_bytes {
        match file.read_at(&mut data[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    data.truncate(filled);
    Ok(data.into())
}

impl Storage for LocalStorage {
    fn list(&self, directory: &Path) -> Result<Vec<DirectoryEntry>, StorageError> {
        let mut entries = Vec::new();
        let place = self.resolve(directory);
        for found in fs::read_dir(&place).map_err(StorageError::from_io(directory))? {
            let found = found.map_err(StorageError::from_io(directory))?;
            // An entry without metadata was removed at this moment, or is a link without a target.
            if let Ok(metadata) = fs::metadata(found.path()) {
                entries.push(DirectoryEntry { name: found.file_name(), attributes: attributes_of(&metadata) });
            }
        }
        Ok(entries)
    }

    fn attributes(&self, path: &Path) -> Result<Attributes, StorageError> {
        Ok(attributes_of(&fs::metadata(self.resolve(path)).map_err(StorageError::from_io(path))?))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>, StorageError> {
        let file = File::open(self.resolve(path)).map_err(StorageError::from_io(path))?;
        let attributes = attributes_of(&file.metadata().map_err(StorageError::from_io(path))?);
        match attributes.is_directory {
            true => Err(StorageError::new(libc::EISDIR, path)),
            false => Ok(Arc::new(LocalFile { path: path.to_owned(), file, attributes })),
        }
    }

    fn write_file(&self, path: &Path, local: &Path, options: &WriteOptions) -> Result<(), StorageError> {
        let target = self.resolve(path);
        let write = || {
            let mut source = File::open(local)?;
            let mut copy = tempfile::Builder::new().prefix(".godwit-").tempfile_in(parent_directory(&target))?;
            io::copy(&mut source, copy.as_file_mut())?;
            set_attributes(copy.path(), Some(options.mode), Some(options.modified))?;
            copy.as_file().sync_all()?;
            match options.is_exclusive {
                true => copy.persist_noclobber(&target),
                false => copy.persist(&target),
            }
            .map_err(|error| error.error)?;
            sync_directory(parent_directory(&target))
        };
        write().map_err(StorageError::from_io(path))
    }

    fn create_directory(&self, path: &Path, mode: u32) -> Result<(), StorageError> {
        let made = DirBuilder::new().mode(mode & 0o777).create(self.resolve(path));
        made.map_err(StorageError::from_io(path))
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        fs::remove_file(self.resolve(path)).map_err(StorageError::from_io(path))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), StorageError> {
        fs::remove_dir(self.resolve(path)).map_err(StorageError::from_io(path))
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<(), StorageError> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = renameat_with(CWD, self.resolve(from), CWD, self.resolve(to), flags);
        renamed.map_err(|error| StorageError::from_io(from)(error.into()))
    }

    fn set_attributes(&self, path: &Path, mode: Option<u32>, modified: Option<SystemTime>) -> Result<(), StorageError> {
        let set = set_attributes(&self.resolve(path), mode, modified);
        set.map_err(StorageError::from_io(path))
    }

    fn space(&self) -> Result<StorageSpace, StorageError> {
        StorageSpace::of_directory(&self.root).map_err(StorageError::from_io(&self.root))
    }

    fn digest(&self, path: &Path) -> Result<String, StorageError> {
        let digest = || -> io::Result<String> {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(File::open(self.resolve(path))?)?;
            Ok(hasher.finalize().to_hex().to_string())
        };
        digest().map_err(StorageError::from_io(path))
    }

    fn accepts_name(&self, _name: &OsStr) -> bool {
        true
    }
}

impl StoredFile for LocalFile {
    fn read_at(&self, offset: u64, size_bytes: usize) -> Result<Bytes, StorageError> {
        read_up_to(&self.file, offset, size_bytes).map_err(StorageError::from_io(&self.path))
    }

    fn attributes(&self) -> Attributes {
        self.attributes
    }
}
