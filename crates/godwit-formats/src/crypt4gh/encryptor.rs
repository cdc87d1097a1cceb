//! A writer of encrypted files.

use std::io::{self, Write};

use ring::aead::LessSafeKey;

use super::header::encode_header;
use super::keys::PublicKey;
use super::{SEGMENT_BYTES, SEGMENT_OVERHEAD_BYTES, cipher_for_key, seal};

/// A writer that encrypts for some recipients. [`Encryptor::finish`] writes the last segment: without it the file lacks its
/// end.
pub struct Encryptor<W> {
    out: W,
    cipher: LessSafeKey,
    data: Vec<u8>,
    sealed: Vec<u8>,
}

impl<W: Write> Encryptor<W> {
    /// Writes the header for some recipients, at least one, with a new data key.
    ///
    /// # Errors
    /// Those of `out`; `InvalidInput` for an invalid public key.
    pub fn new(mut out: W, readers: &[PublicKey]) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        out.write_all(&encode_header(&key, readers)?)?;
        let sealed = Vec::with_capacity(SEGMENT_BYTES + SEGMENT_OVERHEAD_BYTES);
        Ok(Self { out, cipher: cipher_for_key(&key), data: Vec::with_capacity(SEGMENT_BYTES), sealed })
    }

    /// Writes the last segment, and returns the inner writer.
    ///
    /// # Errors
    /// Those of `out`.
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

    /// Flushes whole segments only: a short one would end the file.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
