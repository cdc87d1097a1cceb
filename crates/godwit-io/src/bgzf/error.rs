//! Errors in reading compressed files.

use std::io;
use std::path::{Path, PathBuf};

use crate::crypt4gh::Crypt4ghError;

/// A reason why a file, compressed or not, cannot be read. Offsets are byte offsets in the file on disk, before
/// decompression.
#[derive(Debug, thiserror::Error)]
pub enum BgzfError {
    /// The operating system failed to open or read the file.
    #[error("cannot read {}{}", path.display(), position_text(*offset))]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Byte offset at which the read began.
        offset: u64,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file does not start with a BGZF block.
    #[error("{} is not BGZF-compressed", path.display())]
    NotBgzf {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file has a compression format that is not supported.
    #[error("{} is {format} data; use plain text, gzip or BGZF", path.display())]
    Unsupported {
        /// Path of the file.
        path: PathBuf,
        /// Name of the compression format.
        format: &'static str,
    },
    /// The file ends within a block or gzip member.
    #[error("{} is truncated: its compressed data ends at byte {offset}; fetch or create it again", path.display())]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Length of the file in bytes.
        offset: u64,
    },
    /// The file is empty.
    #[error("{} is empty; fetch or create it again", path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// The end-of-file block, which ends every complete BGZF file, is missing.
    #[error("{} is truncated: it has no end-of-file block after byte {offset}; fetch or create it again", path.display())]
    MissingEof {
        /// Path of the file.
        path: PathBuf,
        /// Length of the file in bytes.
        offset: u64,
    },
    /// The compressed data, its checksum or its length is wrong, or bytes that are not compressed data follow.
    #[error("{} is damaged at byte {offset}: {detail}; fetch or create the file again", path.display())]
    Corrupt {
        /// Path of the file.
        path: PathBuf,
        /// For BGZF, the byte offset of the damaged block; for gzip, the byte offset up to which data was decompressed.
        offset: u64,
        /// Description of the damage.
        detail: String,
    },
    /// The file has changed since the resume point from which it is read was recorded.
    #[error("{} has changed since it was read before", path.display())]
    Changed {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is encrypted with Crypt4GH and cannot be decrypted.
    #[error("cannot decrypt {}", path.display())]
    Encrypted {
        /// Path of the file.
        path: PathBuf,
        /// The reason why decryption failed.
        #[source]
        source: Crypt4ghError,
    },
    /// A decompression thread could not be started, or ended without a result.
    #[error("a thread that decompresses {} failed", path.display())]
    Thread {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Formats an offset for the message of a failed read; nothing at the start, where most files fail that cannot be opened.
fn position_text(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at byte {offset}") }
}

/// An error in the bytes of a file, without the path of the file and the record that the caller was reading.
#[derive(Debug)]
pub enum InputError {
    /// The file cannot be opened.
    Open(io::Error),
    /// The file cannot be read.
    Read {
        /// Offset in the compressed file, bytes.
        offset: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A decompression thread cannot be started.
    ThreadSpawn(io::Error),
    /// The file is compressed in a format that is not supported.
    Unsupported {
        /// Name of the format.
        format: &'static str,
    },
    /// The file ends within compressed data.
    Truncated {
        /// Offset of the end in the compressed file, bytes.
        offset: u64,
    },
    /// The compressed data is damaged.
    Corrupt {
        /// Offset of the damage in the compressed file, bytes.
        offset: u64,
        /// The defect that was found.
        detail: String,
    },
    /// The bytes at `offset` are not compressed data.
    NotCompressed {
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// The file does not end with the BGZF end-of-file block.
    MissingEof {
        /// Length of the file, bytes.
        offset: u64,
    },
    /// The bytes of the file before the resume point have changed.
    Changed,
    /// The file is encrypted with Crypt4GH and cannot be decrypted.
    Encrypted(Crypt4ghError),
    /// A decompression thread ended without a result, or the reader is used again after an error.
    ThreadLost,
    /// The reader was dropped, and its threads stop. Users never see this error.
    Stopped,
}

impl InputError {
    /// Converts the error of a failed read: a decryption error that `source` wraps becomes [`Self::Encrypted`], any
    /// other [`Self::Read`].
    pub(super) fn from_read_error(offset: u64, source: io::Error) -> Self {
        match source.downcast() {
            Ok(error) => Self::Encrypted(error),
            Err(source) => Self::Read { offset, source },
        }
    }

    /// Returns whether the content of the file is wrong, in contrast to a failed read.
    pub(super) fn is_content_error(&self) -> bool {
        matches!(
            self,
            Self::Truncated { .. } | Self::Corrupt { .. } | Self::NotCompressed { .. } | Self::MissingEof { .. }
        )
    }

    /// Converts the error into a [`BgzfError`] with the path of the file.
    pub(super) fn into_bgzf_error(self, path: &Path) -> BgzfError {
        let path = path.to_owned();
        match self {
            Self::Open(source) => BgzfError::Io { path, offset: 0, source },
            Self::Read { offset, source } => BgzfError::Io { path, offset, source },
            Self::Unsupported { format } => BgzfError::Unsupported { path, format },
            Self::Truncated { offset } => BgzfError::Truncated { path, offset },
            Self::Corrupt { offset, detail } => BgzfError::Corrupt { path, offset, detail },
            Self::NotCompressed { offset: 0 } => BgzfError::NotBgzf { path },
            Self::NotCompressed { offset } => BgzfError::Corrupt {
                path,
                offset,
                detail: "data that is not compressed follows the compressed data".to_owned(),
            },
            Self::MissingEof { offset: 0 } => BgzfError::Empty { path },
            Self::MissingEof { offset } => BgzfError::MissingEof { path, offset },
            Self::Changed => BgzfError::Changed { path },
            Self::Encrypted(source) => BgzfError::Encrypted { path, source },
            Self::ThreadSpawn(_) | Self::ThreadLost | Self::Stopped => BgzfError::Thread { path },
        }
    }
}
