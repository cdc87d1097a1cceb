//! What can be wrong with a BGZF file.

use std::io;
use std::path::PathBuf;

/// Why a BGZF file cannot be read. Offsets are bytes of the compressed file.
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
    /// The file ends within a block.
    #[error("{} is truncated: the block at byte {offset} is cut short; fetch or make the file again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Start of the block.
        offset: u64,
    },
    /// The empty block that ends every whole file is missing.
    #[error("{} is truncated: it has no end-of-file block after byte {offset}; fetch or make it again", path.display())]
    MissingEof {
        /// The file.
        path: PathBuf,
        /// Length of the file.
        offset: u64,
    },
    /// A block's header, checksum, length or compressed data are wrong.
    #[error("{} is damaged at byte {offset}: {detail}; fetch or make the file again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Start of the block.
        offset: u64,
        /// What is wrong.
        detail: &'static str,
    },
    /// A thread could not be started, or ended without a result.
    #[error("a thread that decompresses {} could not do its work", path.display())]
    Thread {
        /// The file.
        path: PathBuf,
    },
}
