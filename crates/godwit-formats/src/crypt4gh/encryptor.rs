//! Bytes on their way into an encrypted file.

use std::io::{self, Write};

use ring::aead::LessSafeKey;

use super::header::written;
use super::keys::PublicKey;
use super::{OVERHEAD_BYTES, SEGMENT_BYTES, cipher, seal};

/// Encrypts what is written for some readers. [`Encryptor::finish`] writes the last segment: without it the end is missing.
pub struct Encryptor<W> {
    out: W,
    key: LessSafeKey,
    data: Vec<u8>,
    sealed: Vec<u8>,
}

impl<W: Write> Encryptor<W> {
    /// Writes the header for some readers, at least one, under a key of its own.
    ///
    /// # Errors
    /// What writing says; `InvalidInput` for a public key that is none.
    pub fn new(mut out: W, readers: &[PublicKey]) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        out.write_all(&written(&key, readers)?)?;
        let sealed = Vec::with_capacity(SEGMENT_BYTES + OVERHEAD_BYTES);
        Ok(Self { out, key: cipher(&key), data: Vec::with_capacity(SEGMENT_BYTES), sealed })
    }

    /// Writes what is left, and gives back what was written to.
    ///
    /// # Errors
    /// What writing says.
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
        seal(&self.key, &self.data, &mut self.sealed)?;
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

    /// Whole segments only: a short one would end the file.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
