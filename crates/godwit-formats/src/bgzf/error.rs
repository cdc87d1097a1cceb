//! Errors of compressed files.

use std::io;
use std::path::{Path, PathBuf};

use crate::crypt4gh::Crypt4ghError;

/// A reason why a possibly compressed file cannot be read. Offsets are bytes of the compressed file.
#[derive(Debug, thiserror::Error)]
pub enum BgzfError {
    /// Opening or reading failed.
    #[error("cannot read {} at byte {offset}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Offset of the read.
        offset: u64,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The file does not start with a BGZF block.
    #[error("{} is not BGZF-compressed", path.display())]
    NotBgzf {
        /// The file.
        path: PathBuf,
    },
    /// The compression is not supported.
    #[error("{} is {format} data; give plain text, gzip or BGZF", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Name of the format.
        format: &'static str,
    },
    /// The file ends within a block or gzip member.
    #[error("{} is truncated: its compressed data is cut short at byte {offset}; fetch or make it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length of the file.
        offset: u64,
    },
    /// The file is empty.
    #[error("{} is empty; fetch or make it again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The empty block that ends every whole file is missing.
    #[error("{} is truncated: it has no end-of-file block after byte {offset}; fetch or make it again", path.display())]
    MissingEof {
        /// The file.
        path: PathBuf,
        /// Length of the file.
        offset: u64,
    },
    /// Compressed data, its checksum or length are wrong, or other bytes follow it.
    #[error("{} is damaged at byte {offset}: {detail}; fetch or make the file again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Start of the block, else the position up to which gzip data was decoded.
        offset: u64,
        /// The problem.
        detail: String,
    },
    /// The file has changed since a resume point in it was recorded.
    #[error("{} has changed since it was read before", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The file is encrypted and cannot be decrypted.
    #[error("cannot decrypt {}", path.display())]
    Encrypted {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Crypt4ghError,
    },
    /// A thread could not be started, or ended without a result.
    #[error("a thread that decompresses {} could not do its work", path.display())]
    Thread {
        /// The file.
        path: PathBuf,
    },
}

/// An error in the bytes of a file, before its record is known.
#[derive(Debug)]
pub(crate) enum InputError {
    Open(io::Error),
    Read {
        offset: u64,
        source: io::Error,
    },
    ThreadSpawn(io::Error),
    Unsupported {
        format: &'static str,
    },
    Truncated {
        offset: u64,
    },
    Corrupt {
        offset: u64,
        detail: String,
    },
    /// Bytes at the offset are not compressed data.
    NotCompressed {
        offset: u64,
    },
    MissingEof {
        offset: u64,
    },
    /// The bytes before the resume point have changed.
    Changed,
    /// The file is encrypted and cannot be decrypted.
    Encrypted(Crypt4ghError),
    /// A thread ended without a result, or the reader is used after another error.
    ThreadLost,
    /// The reader was dropped; never shown.
    Stopped,
}

impl InputError {
    /// Converts a failed read: the error of the system, or that of the decryption.
    pub(super) fn from_read_error(offset: u64, source: io::Error) -> Self {
        match source.downcast() {
            Ok(error) => Self::Encrypted(error),
            Err(source) => Self::Read { offset, source },
        }
    }

    /// Reports whether the content of the file is wrong.
    pub(super) fn is_content_error(&self) -> bool {
        matches!(
            self,
            Self::Truncated { .. } | Self::Corrupt { .. } | Self::NotCompressed { .. } | Self::MissingEof { .. }
        )
    }

    /// Returns the error with the path of the file.
    pub(super) fn into_bgzf_error(self, path: &Path) -> BgzfError {
        let path = path.to_owned();
        match self {
            Self::Open(source) => BgzfError::Io { path, offset: 0, source },
            Self::Read { offset, source } => BgzfError::Io { path, offset, source },
            Self::Unsupported { format } => BgzfError::Unsupported { path, format },
            Self::Truncated { offset } => BgzfError::Truncated { path, offset },
            Self::Corrupt { offset, detail } => BgzfError::Corrupt { path, offset, detail },
            Self::NotCompressed { offset: 0 } => BgzfError::NotBgzf { path },
            Self::NotCompressed { offset } => {
                BgzfError::Corrupt { path, offset, detail: "something else follows the compressed data".to_owned() }
            }
            Self::MissingEof { offset: 0 } => BgzfError::Empty { path },
            Self::MissingEof { offset } => BgzfError::MissingEof { path, offset },
            Self::Changed => BgzfError::Changed { path },
            Self::Encrypted(source) => BgzfError::Encrypted { path, source },
            Self::ThreadSpawn(_) | Self::ThreadLost | Self::Stopped => BgzfError::Thread { path },
        }
    }
}
