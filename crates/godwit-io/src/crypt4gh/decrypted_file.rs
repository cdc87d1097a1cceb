//! Random access to the decrypted content of an encrypted file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ring::aead::LessSafeKey;

use super::error::Crypt4ghError;
use super::header::Header;
use super::keys::SecretKey;
use super::{NONCE_BYTES, SEGMENT_BYTES, SEGMENT_OVERHEAD_BYTES, cipher_for_key, open_in_place};
use crate::random_access::RandomAccess;

const SEALED_SEGMENT_BYTES: usize = SEGMENT_BYTES + SEGMENT_OVERHEAD_BYTES;
/// Maximum number of segments per read of the encrypted file.
const MAX_SEGMENTS_PER_READ: u64 = 16;

/// The decrypted content of an encrypted file. Bytes of a segment are returned only after the whole segment was
/// authenticated.
pub struct DecryptedFile {
    source: Arc<dyn RandomAccess>,
    ciphers: Vec<LessSafeKey>,
    /// Offset of the first segment in the encrypted file.
    segments_offset: u64,
    /// Total bytes of decrypted data in all segments.
    data_bytes: u64,
    /// Ranges of the decrypted data that the edit list makes visible; the whole data if the file has no edit list.
    visible_ranges: Vec<VisibleRange>,
    /// Total bytes of the visible ranges.
    visible_bytes: u64,
    /// Number and decrypted data of the segment of which only a part was returned last. The next read often needs the
    /// following bytes.
    last_segment: Mutex<Option<(u64, Vec<u8>)>>,
}

/// A range of the decrypted data that is visible.
#[derive(Clone, Copy, Debug)]
struct VisibleRange {
    /// Offset of the range in the visible content.
    offset: u64,
    /// Offset of the range in the decrypted data.
    data_offset: u64,
    bytes: u64,
}

impl std::fmt::Debug for DecryptedFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("DecryptedFile")
            .field("source", &self.source)
            .field("visible_bytes", &self.visible_bytes)
            .finish()
    }
}

impl DecryptedFile {
    /// Opens an encrypted file. Of the given secret keys, those that decrypt packets of its header are used.
    ///
    /// # Errors
    /// The errors of the operating system, or [`Crypt4ghError`] inside an error of kind `InvalidData`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::File;
    /// use std::io::Write;
    /// use std::sync::Arc;
    ///
    /// use godwit_io::crypt4gh::{DecryptedFile, Encryptor, SecretKey};
    /// use godwit_io::random_access::{LocalFile, RandomAccess};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let (key_path, path) = (directory.path().join("key.sec"), directory.path().join("reads.fq.c4gh"));
    /// # let kind = "CRYPT4GH PRIVATE KEY";
    /// # let key = "YzRnaC12MQAEbm9uZQAEbm9uZQAgAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    /// # std::fs::write(&key_path, format!("-----BEGIN {kind}-----\n{key}\n-----END {kind}-----\n"))?;
    /// let secret = SecretKey::read(&key_path, None)?;
    /// let mut encryptor = Encryptor::new(File::create(&path)?, &[secret.public_key()])?;
    /// encryptor.write_all(b"@r1\nACGT\n+\nIIII\n")?;
    /// encryptor.finish()?;
    ///
    /// let file = DecryptedFile::open(Arc::new(LocalFile::open(&path)?), &[secret])?;
    /// assert_eq!(file.byte_len(), 16);
    /// let mut bases = [0; 4];
    /// file.read_at(&mut bases, 4)?;
    /// assert_eq!(&bases, b"ACGT");
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(source: Arc<dyn RandomAccess>, secrets: &[SecretKey]) -> io::Result<Self> {
        let header = Header::read(&*source, secrets)?;
        let sealed_bytes = source.byte_len().saturating_sub(header.data_offset);
        let (whole, rest) = (sealed_bytes / SEALED_SEGMENT_BYTES as u64, sealed_bytes % SEALED_SEGMENT_BYTES as u64);
        if (1..=SEGMENT_OVERHEAD_BYTES as u64).contains(&rest) {
            return Err(Crypt4ghError::Truncated { offset: source.byte_len() }.into());
        }
        let data_bytes = whole * SEGMENT_BYTES as u64 + rest.saturating_sub(SEGMENT_OVERHEAD_BYTES as u64);
        let visible_ranges = match &header.edit_list {
            Some(edits) => {
                visible_ranges(edits, data_bytes).ok_or(Crypt4ghError::Truncated { offset: source.byte_len() })?
            }
            None => vec![VisibleRange { offset: 0, data_offset: 0, bytes: data_bytes }],
        };
        let visible_bytes = visible_ranges.last().map_or(0, |last| last.offset + last.bytes);
        let ciphers = header.data_keys.iter().map(cipher_for_key).collect();
        Ok(Self {
            source,
            ciphers,
            segments_offset: header.data_offset,
            data_bytes,
            visible_ranges,
            visible_bytes,
            last_segment: Mutex::default(),
        })
    }

    /// Fills `space` with decrypted data from `offset` on. The range must lie within the data.
    fn read_data(&self, mut space: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !space.is_empty() {
            let first = offset / SEGMENT_BYTES as u64;
            let within = (offset % SEGMENT_BYTES as u64) as usize;
            if let Some(count) = self.copy_from_last_segment(first, within, space) {
                space = &mut space[count..];
                offset += count as u64;
                continue;
            }
            let end = (offset + space.len() as u64).div_ceil(SEGMENT_BYTES as u64);
            let mut sealed = self.read_sealed_segments(first, end.min(first + MAX_SEGMENTS_PER_READ))?;
            for (segment, sealed) in (first..).zip(sealed.chunks_mut(SEALED_SEGMENT_BYTES)) {
                let data = self.open_segment(segment, sealed)?;
                let from = (offset - segment * SEGMENT_BYTES as u64) as usize;
                let count = (data.len() - from).min(space.len());
                space[..count].copy_from_slice(&data[from..from + count]);
                space = &mut std::mem::take(&mut space)[count..];
                offset += count as u64;
                if from + count < data.len() {
                    *self.last_segment.lock() = Some((segment, data.to_vec()));
                }
            }
        }
        Ok(())
    }

    /// Copies bytes from the cached segment if it is segment `segment`, and returns their number.
    fn copy_from_last_segment(&self, segment: u64, from: usize, space: &mut [u8]) -> Option<usize> {
        let last = self.last_segment.lock();
        let (_, data) = last.as_ref().filter(|(number, _)| *number == segment)?;
        let count = data.len().checked_sub(from)?.min(space.len());
        space[..count].copy_from_slice(&data[from..from + count]);
        Some(count)
    }

    /// Reads the encrypted segments from number `first` up to, but without, number `end`.
    fn read_sealed_segments(&self, first: u64, end: u64) -> io::Result<Vec<u8>> {
        let segment_offset = |segment: u64| {
            let whole = segment.min(self.data_bytes / SEGMENT_BYTES as u64) * SEALED_SEGMENT_BYTES as u64;
            let rest = self.data_bytes % SEGMENT_BYTES as u64;
            let has_rest = segment * SEGMENT_BYTES as u64 > self.data_bytes && rest > 0;
            self.segments_offset + whole + if has_rest { rest + SEGMENT_OVERHEAD_BYTES as u64 } else { 0 }
        };
        let (from, until) = (segment_offset(first), segment_offset(end));
        let mut sealed = vec![0; (until - from) as usize];
        let count = self.source.read_at(&mut sealed, from)?;
        if count < sealed.len() {
            return Err(Crypt4ghError::Truncated { offset: from + count as u64 }.into());
        }
        Ok(sealed)
    }

    fn open_segment<'s>(&self, segment: u64, sealed: &'s mut [u8]) -> io::Result<&'s [u8]> {
        let changed = || Crypt4ghError::DamagedSegment {
            segment,
            offset: self.segments_offset + segment * SEALED_SEGMENT_BYTES as u64,
        };
        let length = match &self.ciphers[..] {
            [key] => open_in_place(key, sealed).map(|data| data.len()),
            // Decrypt a copy, because decryption in place with the wrong key destroys the segment.
            keys => keys.iter().find_map(|key| {
                let mut tried = sealed.to_vec();
                let length = open_in_place(key, &mut tried)?.len();
                sealed.copy_from_slice(&tried);
                Some(length)
            }),
        };
        let length = length.ok_or_else(changed)?;
        Ok(&sealed[NONCE_BYTES..NONCE_BYTES + length])
    }
}

impl RandomAccess for DecryptedFile {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn byte_len(&self) -> u64 {
        self.visible_bytes
    }

    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        let first = self.visible_ranges.partition_point(|shown| shown.offset + shown.bytes <= offset);
        for shown in &self.visible_ranges[first..] {
            let within = (offset + filled as u64).saturating_sub(shown.offset);
            let count = usize::try_from(shown.bytes - within).unwrap_or(usize::MAX).min(space.len() - filled);
            self.read_data(&mut space[filled..filled + count], shown.data_offset + within)?;
            filled += count;
            if filled == space.len() {
                break;
            }
        }
        Ok(filled)
    }

    fn is_decrypted(&self) -> bool {
        true
    }

    fn preferred_read_bytes(&self) -> usize {
        self.source.preferred_read_bytes().max(4 * SEGMENT_BYTES)
    }
}

/// Returns the ranges of the data that an edit list makes visible, or `None` if the list needs more data than the
/// segments contain. The numbers of the list alternate between bytes to skip and bytes to show. If the last number is a
/// skip, all data after it is visible; otherwise none (§3.2.2).
fn visible_ranges(edits: &[u64], data_bytes: u64) -> Option<Vec<VisibleRange>> {
    let (mut ranges, mut offset, mut data_offset) = (Vec::new(), 0, 0_u64);
    for edit in edits.chunks(2) {
        data_offset = data_offset.checked_add(edit[0]).filter(|from| *from <= data_bytes)?;
        let bytes = edit.get(1).copied().unwrap_or(data_bytes - data_offset);
        let end = data_offset.checked_add(bytes).filter(|behind| *behind <= data_bytes)?;
        if bytes > 0 {
            ranges.push(VisibleRange { offset, data_offset, bytes });
        }
        offset += bytes;
        data_offset = end;
    }
    Some(ranges)
}
