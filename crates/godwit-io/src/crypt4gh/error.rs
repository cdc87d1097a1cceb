//! Errors in reading encrypted files and key files.

use std::io;
use std::path::PathBuf;

/// A reason why an encrypted file cannot be read. Functions that read bytes return it inside an [`io::Error`] of kind
/// `InvalidData`.
#[derive(Debug, thiserror::Error)]
pub enum Crypt4ghError {
    /// The file does not begin with the magic bytes of Crypt4GH.
    #[error("it is not encrypted with Crypt4GH")]
    NotEncrypted,
    /// The version of the Crypt4GH format is not supported.
    #[error("it is Crypt4GH version {version}; only version 1 is supported")]
    Version {
        /// The version number in the file.
        version: u32,
    },
    /// The header of the encrypted file is truncated or invalid.
    #[error("its Crypt4GH header is damaged: {problem}")]
    Header {
        /// Description of the problem.
        problem: &'static str,
    },
    /// The process has no secret key.
    #[error("it is encrypted with Crypt4GH; pass its key with --c4gh-key")]
    NoKey,
    /// None of the secret keys decrypts the header.
    #[error("it is encrypted for other keys: no --c4gh-key decrypts it")]
    NoMatchingKey,
    /// A segment was changed or damaged, or belongs to another file.
    #[error(
        "segment {segment} of its encrypted data was changed or damaged (at byte {offset}); fetch or create the file again"
    )]
    DamagedSegment {
        /// 0-based number of the segment.
        segment: u64,
        /// Offset of the segment in the encrypted file.
        offset: u64,
    },
    /// The file ends within a segment, or before the data to which the edit list refers.
    #[error("it is truncated: its encrypted data ends at byte {offset} within a segment; fetch or create it again")]
    Truncated {
        /// Length of the encrypted file in bytes.
        offset: u64,
    },
}

impl From<Crypt4ghError> for io::Error {
    fn from(error: Crypt4ghError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// A reason why a key file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the key file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file is not a Crypt4GH key file of the expected kind.
    #[error("{} is not a {expected} key of Crypt4GH; create one with `crypt4gh-keygen`", path.display())]
    NotAKey {
        /// Path of the key file.
        path: PathBuf,
        /// The expected kind of key: `secret` or `public`.
        expected: &'static str,
    },
    /// The secret key is encrypted with a method that is not supported.
    #[error("{} is locked by {method}; lock it with scrypt by `crypt4gh-keygen --relock`", path.display())]
    Method {
        /// Path of the key file.
        path: PathBuf,
        /// Name of the method.
        method: String,
    },
    /// The secret key is encrypted, and no passphrase is available.
    #[error(
        "{} is locked; pass its passphrase with --c4gh-passphrase FILE or in the variable C4GH_PASSPHRASE",
        path.display()
    )]
    Locked {
        /// Path of the key file.
        path: PathBuf,
    },
    /// The passphrase is wrong, or the key file is damaged.
    #[error("the passphrase does not unlock {}", path.display())]
    Passphrase {
        /// Path of the key file.
        path: PathBuf,
    },
}
