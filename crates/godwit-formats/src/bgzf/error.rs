//! What can be wrong with a compressed file.

use std::io;
use std::path::{Path, PathBuf};

use crate::crypt4gh::Crypt4ghError;

/// Why a file that may be compressed cannot be read. Offsets are bytes of the compressed file.
#[derive(Debug, thiserror::Error)]
pub enum BgzfError {
    /// Opening or reading failed.
    #[error("cannot read {} at byte {offset}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Where.
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
    /// Compressed in a way that is not read here.
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
    /// A file without a byte.
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
    /// Compressed data, its checksum or length are wrong, or something else follows it.
    #[error("{} is damaged at byte {offset}: {detail}; fetch or make the file again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where: start of the block, else as far as gzip data was decoded.
        offset: u64,
        /// What is wrong.
        detail: String,
    },
    /// The file is not what it was when a place in it was noted to begin at.
    #[error("{} has changed since it was read before", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// It is encrypted, and is not opened.
    #[error("cannot decrypt {}", path.display())]
    Encrypted {
        /// The file.
        path: PathBuf,
        /// Why.
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

/// What stops the bytes of a file, before it is known which record that is in.
#[derive(Debug)]
pub(crate) enum Fault {
    Open(io::Error),
    Read {
        offset: u64,
        source: io::Error,
    },
    Thread(io::Error),
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
    /// Something that is not compressed stands here.
    Garbage {
        offset: u64,
    },
    MissingEof {
        offset: u64,
    },
    /// What lies before the start is not what it was.
    Changed,
    /// It is encrypted, and is not opened.
    Encrypted(Crypt4ghError),
    /// A thread ended without a word, or the reader goes on after another fault.
    Lost,
    /// Nobody reads any more; never shown.
    Stopped,
}

impl Fault {
    /// The fault where a file is not read: the system's, or that of what it is encrypted by.
    pub(super) fn of_reading(offset: u64, source: io::Error) -> Self {
        match source.downcast() {
            Ok(error) => Self::Encrypted(error),
            Err(source) => Self::Read { offset, source },
        }
    }

    /// Whether it is the content of the file that is wrong.
    pub(super) fn is_of_content(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Corrupt { .. } | Self::Garbage { .. } | Self::MissingEof { .. })
    }

    /// The error for a fault in that file.
    pub(super) fn into_error(self, path: &Path) -> BgzfError {
        let path = path.to_owned();
        match self {
            Self::Open(source) => BgzfError::Io { path, offset: 0, source },
            Self::Read { offset, source } => BgzfError::Io { path, offset, source },
            Self::Unsupported { format } => BgzfError::Unsupported { path, format },
            Self::Truncated { offset } => BgzfError::Truncated { path, offset },
            Self::Corrupt { offset, detail } => BgzfError::Corrupt { path, offset, detail },
            Self::Garbage { offset: 0 } => BgzfError::NotBgzf { path },
            Self::Garbage { offset } => {
                BgzfError::Corrupt { path, offset, detail: "something else follows the compressed data".to_owned() }
            }
            Self::MissingEof { offset: 0 } => BgzfError::Empty { path },
            Self::MissingEof { offset } => BgzfError::MissingEof { path, offset },
            Self::Changed => BgzfError::Changed { path },
            Self::Encrypted(source) => BgzfError::Encrypted { path, source },
            Self::Thread(_) | Self::Lost | Self::Stopped => BgzfError::Thread { path },
        }
    }
}
