//! A writer of files encrypted with Crypt4GH.

use std::io::{self, Write};

use ring::aead::LessSafeKey;

use super::header::encode_header;
use super::keys::PublicKey;
use super::{SEGMENT_BYTES, SEGMENT_OVERHEAD_BYTES, cipher_for_key, seal};

/// A writer that encrypts a file for given recipients. Without [`Encryptor::finish`], which writes the last segment,
/// the end of the file is missing.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Write;
///
/// use godwit_io::crypt4gh::{Encryptor, SecretKey};
///
/// # let directory = tempfile::tempdir()?;
/// # let key_path = directory.path().join("key.sec");
/// # let kind = "CRYPT4GH PRIVATE KEY";
/// # let key = "YzRnaC12MQAEbm9uZQAEbm9uZQAgAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// # std::fs::write(&key_path, format!("-----BEGIN {kind}-----\n{key}\n-----END {kind}-----\n"))?;
/// let secret = SecretKey::read(&key_path, None)?;
/// let mut encryptor = Encryptor::new(Vec::new(), &[secret.public_key()])?;
/// encryptor.write_all(b"@r1\nACGT\n+\nIIII\n")?;
/// let bytes = encryptor.finish()?;
/// assert!(bytes.starts_with(b"crypt4gh"));
/// # Ok(())
/// # }
/// ```
pub struct Encryptor<W> {
    out: W,
    cipher: LessSafeKey,
    data: Vec<u8>,
    sealed: Vec<u8>,
}

impl<W: Write> Encryptor<W> {
    /// Creates a data key and writes the header for the given recipients, of which there must be at least one.
    ///
    /// # Errors
    /// The errors of writing to `out`; `InvalidInput` if a public key is invalid.
    pub fn new(mut out: W, readers: &[PublicKey]) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        out.write_all(&encode_header(&key, readers)?)?;
        let sealed = Vec::with_capacity(SEGMENT_BYTES + SEGMENT_OVERHEAD_BYTES);
        Ok(Self { out, cipher: cipher_for_key(&key), data: Vec::with_capacity(SEGMENT_BYTES), sealed })
    }

    /// Encrypts and writes the last segment, and returns the inner writer.
    ///
    /// # Errors
    /// The errors of writing to `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.write_segment()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_segment(&mut self) -> io::Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        self.sealed.clear();
        seal(&self.cipher, &self.data, &mut self.sealed)?;
        self.data.clear();
        self.out.write_all(&self.sealed)
    }
}

impl<W: Write> Write for Encryptor<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(SEGMENT_BYTES - self.data.len());
        self.data.extend_from_slice(&bytes[..count]);
        if self.data.len() == SEGMENT_BYTES {
            self.write_segment()?;
        }
        Ok(count)
    }

    /// Flushes only complete segments, because a shorter segment may only be the last of a file.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
