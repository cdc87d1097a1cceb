//! Crypt4GH (GA4GH, version 1.0): files of any content, encrypted for the owners of given keys.
//!
//! Flows in: an encrypted file and secret keys, or bytes and public keys. Flows out: decrypted bytes at any offset
//! ([`DecryptedFile`]), or an encrypted file ([`Encryptor`]). The file header contains the data key once for each
//! recipient, encrypted with X25519 and ChaCha20-Poly1305. The data follows in segments of 64 KiB. Each segment is
//! encrypted and authenticated separately, so that it can be read without the others. If the header has a data edit
//! list, which restricts a file to some ranges of its data, it is applied.
//!
//! The format does not authenticate the position and the number of segments. If a file was truncated between two
//! segments, or segments were swapped, only the content can show it. OpenSSH keys, and keys locked with bcrypt, are not
//! supported.

mod decrypted_file;
mod encryptor;
mod error;
mod header;
mod keys;
mod process_keys;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

pub use decrypted_file::DecryptedFile;
pub use encryptor::Encryptor;
pub use error::{Crypt4ghError, KeyError};
pub use keys::{PublicKey, SecretKey};
pub(crate) use process_keys::open_if_encrypted;
pub use process_keys::{has_process_keys, load_process_keys, open_with_process_keys};

/// File name suffix of encrypted files.
pub const FILE_SUFFIX: &str = ".c4gh";

/// Returns the path of a file after encryption: the path with [`FILE_SUFFIX`] appended.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use godwit_io::crypt4gh::encrypted_path;
///
/// assert_eq!(encrypted_path(Path::new("sample.bam")), Path::new("sample.bam.c4gh"));
/// ```
pub fn encrypted_path(path: &Path) -> PathBuf {
    path.with_added_extension(&FILE_SUFFIX[1..])
}

/// First bytes of an encrypted file.
pub(crate) const MAGIC: &[u8; 8] = b"crypt4gh";

/// Bytes of data in a segment; the last segment of a file may have fewer.
const SEGMENT_BYTES: usize = 64 << 10;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// Bytes of an encrypted segment in addition to its data: nonce and authentication tag.
const SEGMENT_OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// Returns the ChaCha20-Poly1305 cipher for a key of 32 bytes.
fn cipher_for_key(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key);
    LessSafeKey::new(key.expect("a key of ChaCha20 has 32 bytes"))
}

/// Decrypts `sealed`, which consists of nonce, encrypted data and tag, in place. Returns the data, or `None` if it was
/// encrypted with another key or was changed.
fn open_in_place<'s>(key: &LessSafeKey, sealed: &'s mut [u8]) -> Option<&'s mut [u8]> {
    let (nonce, sealed) = sealed.split_first_chunk_mut::<NONCE_BYTES>()?;
    key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), sealed).ok()
}

/// Encrypts data with a new random nonce, and appends nonce, encrypted data and tag to `out`.
fn seal(key: &LessSafeKey, data: &[u8], out: &mut Vec<u8>) -> Result<(), std::io::Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
    out.extend_from_slice(&nonce);
    let start = out.len();
    out.extend_from_slice(data);
    let tag = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut out[start..]);
    let tag = tag.map_err(|_| std::io::Error::other("ChaCha20-Poly1305 seals no more than 256 GB at a time"))?;
    out.extend_from_slice(tag.as_ref());
    Ok(())
}
