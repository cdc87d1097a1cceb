//! The interface to the files that are mounted. All calls block.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use std::{fmt, io};

use bytes::Bytes;
use godwit_transfer::StorageSpace;

/// Files below one directory. Paths are relative to it; the empty path is the directory itself.
pub trait Storage: Send + Sync + 'static {
    /// Returns the entries of a directory, in any order, without `.` and `..`.
    ///
    /// # Errors
    /// `ENOENT` if the directory does not exist.
    fn list(&self, directory: &Path) -> Result<Vec<DirectoryEntry>, StorageError>;

    /// Returns the attributes of a file or directory.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist.
    fn attributes(&self, path: &Path) -> Result<Attributes, StorageError>;

    /// Opens a file in its present version.
    ///
    /// # Errors
    /// `ENOENT` if the file does not exist, `EACCES` if it may not be read, `EISDIR` if it is a directory.
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>, StorageError>;

    /// Stores the content of a local file at a path. The file appears there complete or not at all, and is on disk when
    /// the call returns.
    ///
    /// # Errors
    /// `EEXIST` if `is_exclusive` is set and a file is at the path; `ENOSPC`, `EDQUOT`, `EACCES` and others of the
    /// storage.
    fn write_file(&self, path: &Path, local: &Path, options: &WriteOptions) -> Result<(), StorageError>;

    /// Creates a directory.
    ///
    /// # Errors
    /// `EEXIST` if the path exists.
    fn create_directory(&self, path: &Path, mode: u32) -> Result<(), StorageError>;

    /// Removes a file.
    ///
    /// # Errors
    /// `ENOENT` if the file does not exist.
    fn remove_file(&self, path: &Path) -> Result<(), StorageError>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY` if the directory contains files.
    fn remove_directory(&self, path: &Path) -> Result<(), StorageError>;

    /// Gives a file or directory another path. With `replace`, a file at the new path is replaced.
    ///
    /// # Errors
    /// `EEXIST` if the new path exists and is not replaced.
    fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<(), StorageError>;

    /// Sets permissions and modification time; `None` keeps them.
    ///
    /// # Errors
    /// `ENOENT` if the path does not exist.
    fn set_attributes(&self, path: &Path, mode: Option<u32>, modified: Option<SystemTime>) -> Result<(), StorageError>;

    /// Returns size and free space.
    ///
    /// # Errors
    /// Those of the storage.
    fn space(&self) -> Result<StorageSpace, StorageError>;

    /// Returns the BLAKE3 of a file in hexadecimal digits, for which the complete file is read.
    ///
    /// # Errors
    /// As for [`Self::open`].
    fn digest(&self, path: &Path) -> Result<String, StorageError>;

    /// Reports whether a file may have this name.
    fn accepts_name(&self, name: &OsStr) -> bool;
}

/// An open file, which always returns the bytes of one version of the file.
pub trait StoredFile: Send + Sync {
    /// Returns up to `size_bytes` bytes from a 0-based offset; fewer only at the end of the file.
    ///
    /// # Errors
    /// `ESTALE` if the file was replaced or removed since it was opened.
    fn read_at(&self, offset: u64, size_bytes: usize) -> Result<Bytes, StorageError>;

    /// Returns the attributes of the version that is open.
    fn attributes(&self) -> Attributes;
}

/// Options of [`Storage::write_file`].
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Permissions of the stored file: the lowest nine bits of the mode.
    pub mode: u32,
    /// Modification time of the stored file.
    pub modified: SystemTime,
    /// True if no file may be at the path.
    pub is_exclusive: bool,
}

/// Attributes of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// True for a directory.
    pub is_directory: bool,
    /// Size of the file, bytes; 0 for a directory.
    pub size_bytes: u64,
    /// Permissions: the lowest nine bits of the mode.
    pub mode: u32,
    /// Modification time.
    pub modified: SystemTime,
    /// A number that differs whenever the content may have changed.
    pub version: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Name within the directory.
    pub name: OsString,
    /// Attributes of the file or directory.
    pub attributes: Attributes,
}

/// An error of a storage: the error number that a program receives, and a message for the log of the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageError {
    /// The error number (errno(3)).
    pub errno: i32,
    /// The path, the problem and the remedy, for users.
    pub message: String,
}

impl StorageError {
    /// Returns an error of a path that has no further cause.
    pub fn new(errno: i32, path: &Path) -> Self {
        Self { errno, message: format!("{}: {}", path.display(), io::Error::from_raw_os_error(errno)) }
    }

    /// Returns a function that converts the I/O error of a path.
    pub fn from_io(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            message: format!("{}: {error}", path.display()),
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for StorageError {}
