//! What can be wrong with an encrypted file or a key.

use std::io;
use std::path::PathBuf;

/// Why an encrypted file is not read. Within an [`io::Error`] of kind `InvalidData`, where bytes were asked for.
#[derive(Debug, thiserror::Error)]
pub enum Crypt4ghError {
    /// It does not begin as Crypt4GH does.
    #[error("it is not encrypted by Crypt4GH")]
    NotEncrypted,
    /// Another version of the format.
    #[error("it is Crypt4GH of version {version}; version 1 is read")]
    Version {
        /// The version.
        version: u32,
    },
    /// The header is cut short, or says what cannot be.
    #[error("its Crypt4GH header is damaged: {problem}")]
    Header {
        /// What is wrong.
        problem: &'static str,
    },
    /// No key was given.
    #[error("it is encrypted by Crypt4GH; say with --c4gh-key which key opens it")]
    NoKey,
    /// None of the keys opens it.
    #[error("it is encrypted for others: no --c4gh-key opens it")]
    ForOthers,
    /// A segment is not what was written, or not of this file.
    #[error(
        "segment {segment} of its encrypted data was changed or damaged (at byte {offset}); fetch or make the file again"
    )]
    Changed {
        /// Number of the segment, from 0.
        segment: u64,
        /// Where it begins in the encrypted file.
        offset: u64,
    },
    /// It ends within a segment, or where edits need more.
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

/// Why a key is not read.
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
    /// It is no key of Crypt4GH.
    #[error("{} is no {wanted} key of Crypt4GH; `crypt4gh-keygen` makes one", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// What should be in it: `secret` or `public`.
        wanted: &'static str,
    },
    /// It is locked in a way that is not known here.
    #[error("{} is locked by {method}; lock it anew by scrypt, with `crypt4gh-keygen --relock`", path.display())]
    Method {
        /// The file.
        path: PathBuf,
        /// How.
        method: String,
    },
    /// It is locked, and there is no passphrase.
    #[error("{} is locked; give its passphrase with --c4gh-passphrase FILE or in the variable C4GH_PASSPHRASE", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The passphrase is another one, or the file is damaged.
    #[error("the passphrase does not unlock {}", path.display())]
    Passphrase {
        /// The file.
        path: PathBuf,
    },
}
