//! Crypt4GH (GA4GH, version 1.0): encrypted files of any content, for the holders of given keys.
//!
//! Flows in: an encrypted file and secret keys, or bytes and public keys. Flows out: the bytes at any offset
//! ([`DecryptedFile`]), or an encrypted file ([`Encryptor`]). A header holds the data key once for each recipient,
//! encrypted by X25519 and ChaCha20-Poly1305. The data follow in segments of 64 KiB, each encrypted and authenticated by
//! itself, so that each can be read alone. Data edit lists, which restrict a file to parts of its data, are applied.
//!
//! The format binds segments neither to their position nor to their number: a file truncated between two of them, or two
//! swapped segments, can be detected only by the content. OpenSSH keys, and keys locked by bcrypt, are not supported.

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
pub use process_keys::{has_process_keys, open_with_process_keys, set_process_keys};

/// Suffix of the name of an encrypted file.
pub const FILE_SUFFIX: &str = ".c4gh";

/// Returns the name of a file after encryption.
pub fn encrypted_path(path: &Path) -> PathBuf {
    path.with_added_extension(&FILE_SUFFIX[1..])
}

/// First bytes of an encrypted file.
pub(crate) const MAGIC: &[u8; 8] = b"crypt4gh";

/// Bytes of data in a segment; the last may have fewer.
const SEGMENT_BYTES: usize = 64 << 10;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// Bytes of a segment beside its data.
const SEGMENT_OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// Returns the ChaCha20-Poly1305 key of these bytes.
fn cipher_for_key(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key);
    LessSafeKey::new(key.expect("a key of ChaCha20 has 32 bytes"))
}

/// Decrypts nonce, data and tag in place; returns `None` where they are of another key, or were changed.
fn open_in_place<'s>(key: &LessSafeKey, sealed: &'s mut [u8]) -> Option<&'s mut [u8]> {
    let (nonce, sealed) = sealed.split_first_chunk_mut::<NONCE_BYTES>()?;
    key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), sealed).ok()
}

/// Appends sealed data, behind a nonce of its own.
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
