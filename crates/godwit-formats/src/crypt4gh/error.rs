//! Errors of encrypted files and keys.

use std::io;
use std::path::PathBuf;

/// A reason why an encrypted file cannot be read; within an [`io::Error`] of kind `InvalidData` where bytes were requested.
#[derive(Debug, thiserror::Error)]
pub enum Crypt4ghError {
    /// The file does not begin as Crypt4GH does.
    #[error("it is not encrypted by Crypt4GH")]
    NotEncrypted,
    /// The version of the format is not supported.
    #[error("it is Crypt4GH of version {version}; version 1 is read")]
    Version {
        /// The version.
        version: u32,
    },
    /// The header is truncated or invalid.
    #[error("its Crypt4GH header is damaged: {problem}")]
    Header {
        /// The problem.
        problem: &'static str,
    },
    /// No key is available.
    #[error("it is encrypted by Crypt4GH; say with --c4gh-key which key opens it")]
    NoKey,
    /// None of the keys decrypts the header.
    #[error("it is encrypted for others: no --c4gh-key opens it")]
    NoMatchingKey,
    /// A segment was changed, or belongs to another file.
    #[error(
        "segment {segment} of its encrypted data was changed or damaged (at byte {offset}); fetch or make the file again"
    )]
    DamagedSegment {
        /// 0-based number of the segment.
        segment: u64,
        /// Offset of the segment in the encrypted file.
        offset: u64,
    },
    /// The file ends within a segment, or before data that the edit list needs.
    #[error("it is truncated: its encrypted data ends at byte {offset} within a segment; fetch or make it again")]
    Truncated {
        /// Bytes of the encrypted file.
        offset: u64,
    },
}

impl From<Crypt4ghError> for io::Error {
    fn from(error: Crypt4ghError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// A reason why a key cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The file is not a Crypt4GH key.
    #[error("{} is no {expected} key of Crypt4GH; `crypt4gh-keygen` makes one", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// The expected kind: `secret` or `public`.
        expected: &'static str,
    },
    /// The key is locked by a method that is not supported.
    #[error("{} is locked by {method}; lock it anew by scrypt, with `crypt4gh-keygen --relock`", path.display())]
    Method {
        /// The file.
        path: PathBuf,
        /// The method.
        method: String,
    },
    /// The key is locked, and no passphrase is available.
    #[error("{} is locked; give its passphrase with --c4gh-passphrase FILE or in the variable C4GH_PASSPHRASE", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The passphrase is wrong, or the file is damaged.
    #[error("the passphrase does not unlock {}", path.display())]
    Passphrase {
        /// The file.
        path: PathBuf,
    },
}
