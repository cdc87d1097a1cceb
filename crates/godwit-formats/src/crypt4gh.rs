//! Crypt4GH (GA4GH, version 1.0): files for those who have a key, of any content.
//!
//! Flows in: an encrypted file and secret keys, or bytes and public keys. Flows out: the bytes at any offset ([`Decrypted`]), or an
//! encrypted file ([`Encryptor`]). A header has the key of the data once for each who may read it, encrypted by X25519 and
//! ChaCha20-Poly1305; the data follow in segments of 64 KiB, each encrypted and authenticated by itself, so that any of them is read
//! alone. Lists of edits, by which a file shows parts of its data, are followed.
//!
//! The format binds segments neither to their places nor to their number: that a file was cut between two of them, or that two changed
//! places, is seen only by who knows its content. Keys of OpenSSH, and keys locked by bcrypt, are not read.

mod decrypted;
mod encryptor;
mod error;
mod header;
mod keyring;
mod keys;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

pub use decrypted::Decrypted;
pub use encryptor::Encryptor;
pub use error::{Crypt4ghError, KeyError};
pub(crate) use keyring::opened_if_encrypted;
pub use keyring::{has_keys, open, use_keys};
pub use keys::{PublicKey, SecretKey};

/// What the name of an encrypted file ends in.
pub const ENDING: &str = ".c4gh";

/// What a file is called once it is encrypted.
pub fn encrypted_name(path: &Path) -> PathBuf {
    path.with_added_extension(&ENDING[1..])
}

/// First bytes of an encrypted file.
pub(crate) const MAGIC: &[u8; 8] = b"crypt4gh";

/// Bytes of data in a segment; the last may have fewer.
const SEGMENT_BYTES: usize = 64 << 10;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// What a segment has beside its data.
const OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// A key of ChaCha20-Poly1305.
fn cipher(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key);
    LessSafeKey::new(key.expect("a key of ChaCha20 has 32 bytes"))
}

/// Opens nonce, data and tag where they lie; `None` where they are not of this key, or not what was written.
fn opened<'s>(key: &LessSafeKey, sealed: &'s mut [u8]) -> Option<&'s mut [u8]> {
    let (nonce, sealed) = sealed.split_first_chunk_mut::<NONCE_BYTES>()?;
    key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), sealed).ok()
}

/// Appends data, sealed behind a nonce of its own.
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
