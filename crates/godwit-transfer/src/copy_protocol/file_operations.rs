//! Messages of the actions that a mounted server needs beside those of copies: one directory, one entry, parts of
//! blocks, changes of names and attributes, and free space.

use std::io;
use std::path::Path;

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

use super::FileVersion;

/// Action that lists one directory, without the directories below it.
pub(crate) const DIRECTORY_ACTION: &str = "directory";
/// Action that returns the entry of one path.
pub(crate) const ENTRY_ACTION: &str = "entry";
/// Action that returns a part of a block of a file; see [`BytesRequest`].
pub(crate) const BYTES_ACTION: &str = "bytes";
/// Action that changes names or attributes; see [`FileChange`].
pub(crate) const CHANGE_ACTION: &str = "change";
/// Action that returns the size and the free space of the storage.
pub(crate) const SPACE_ACTION: &str = "space";
/// Command for the upload of one file, which replaces the file at its path; see [`StoreCommand`].
pub(crate) const STORE_COMMAND: &str = "store ";
/// Metadata of the last message of an upload of one file. The client sends it when all its blocks are written.
pub(crate) const STORE_COMMIT: &[u8] = b"commit";

/// The command that starts the upload of one file.
///
/// Each attempt to store a file has its own temporary file, whose name only this attempt and its client know. A client
/// that has lost the connection names its earlier attempts in the next one. The server removes their temporary files, so
/// that a server that was suspended cannot give the path to an old version when it continues.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoreCommand {
    pub(crate) path: String,
    /// Random identifier of this attempt.
    pub(crate) attempt: String,
    /// Earlier attempts to store the path whose outcome the client does not know.
    pub(crate) earlier_attempts: Vec<String>,
    pub(crate) size_bytes: u64,
    /// Permissions: the lowest nine bits of the mode.
    pub(crate) mode: u32,
    /// Modification time, seconds since 1970 and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// True if the path must not exist.
    #[serde(rename = "exclusive")]
    pub(crate) is_exclusive: bool,
}

/// A response of the server to a [`StoreCommand`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreReport {
    /// Hashes, hexadecimal and concatenated, of the next blocks (in order from block 0) that the server has from an
    /// earlier attempt. The client sends the blocks again whose hashes differ.
    Present(String),
    /// The server accepts blocks.
    Ready,
    /// Number of blocks of a batch that are written.
    Written(u64),
    /// The file is complete, on disk, and at its path.
    Stored,
}

/// A request about one path below the root of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PathRequest {
    pub(crate) path: String,
}

/// A request for bytes of a file, at most as many as a block has. The server answers with two messages: the BLAKE3 of
/// the bytes, and the bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BytesRequest {
    pub(crate) path: String,
    pub(crate) version: FileVersion,
    /// Offset of the first byte, 0-based.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) size_bytes: u64,
}

/// A change of a name or of attributes below the root of a server. Paths have `/` between components.
///
/// `version` is the [`Entry::version`](crate::file_listing::Entry::version) of the entry for which the change is meant.
/// The server rejects the change if the entry has another version, so that a server that was suspended does not carry
/// out an old request later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// Creates a directory.
    CreateDirectory {
        /// Path of the new directory.
        path: String,
        /// Permissions: the lowest nine bits of the mode.
        mode: u32,
    },
    /// Removes a file.
    RemoveFile {
        /// Path of the file.
        path: String,
        /// Version of the file.
        version: u64,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// Path of the directory.
        path: String,
        /// Version of the directory.
        version: u64,
    },
    /// Gives a file or directory another path.
    Rename {
        /// Present path.
        path: String,
        /// Version of the entry at the present path.
        version: u64,
        /// New path.
        destination: String,
        /// True if a file at the new path is replaced.
        replace: bool,
    },
    /// Sets permissions and modification time.
    SetAttributes {
        /// Path of the file or directory.
        path: String,
        /// Version of the file or directory.
        version: u64,
        /// Permissions, the lowest nine bits of the mode; `None` keeps them.
        mode: Option<u32>,
        /// Modification time, seconds since 1970 and nanoseconds; `None` keeps it.
        modified: Option<(i64, u32)>,
    },
}

impl FileChange {
    /// Returns the path of the entry that is changed.
    pub fn path(&self) -> &str {
        match self {
            Self::CreateDirectory { path, .. }
            | Self::RemoveFile { path, .. }
            | Self::RemoveDirectory { path, .. }
            | Self::Rename { path, .. }
            | Self::SetAttributes { path, .. } => path,
        }
    }
}

/// Size and free space of the storage of a server or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSpace {
    /// Size of the file system, bytes.
    pub total_bytes: u64,
    /// Free space, bytes.
    pub free_bytes: u64,
    /// Free space that this user may use, bytes.
    pub available_bytes: u64,
    /// Number of files that the file system can hold.
    pub total_files: u64,
    /// Number of files that can still be created.
    pub free_files: u64,
}

impl StorageSpace {
    /// Returns size and free space of the file system that contains a directory.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn of_directory(directory: &Path) -> io::Result<Self> {
        let found = statvfs(directory)?;
        Ok(Self {
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            free_bytes: found.f_bfree.saturating_mul(found.f_frsize),
            available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            total_files: found.f_files,
            free_files: found.f_ffree,
        })
    }
}
