//! An encrypted file as what is in it, at any offset.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ring::aead::LessSafeKey;

use super::error::Crypt4ghError;
use super::header::Header;
use super::keys::SecretKey;
use super::{NONCE_BYTES, OVERHEAD_BYTES, SEGMENT_BYTES, cipher, opened};
use crate::random_access::RandomAccess;

const SEALED_BYTES: usize = SEGMENT_BYTES + OVERHEAD_BYTES;
/// Segments that are read at a time, at most.
const SEGMENTS_AT_A_TIME: u64 = 16;

/// What is in an encrypted file. Nothing of a segment is shown before all of it has been found to be what was written.
pub struct Decrypted {
    source: Arc<dyn RandomAccess>,
    keys: Vec<LessSafeKey>,
    /// Where the segments begin.
    start: u64,
    /// Bytes of data in them.
    data_bytes: u64,
    /// What is shown of the data.
    shown: Vec<Shown>,
    /// Bytes that are shown.
    bytes: u64,
    /// The segment that was shown in part last, since its rest is often wanted next.
    last: Mutex<Option<(u64, Vec<u8>)>>,
}

/// A stretch of the data that is shown.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// Where it is shown.
    at: u64,
    /// Where it is in the data.
    from: u64,
    bytes: u64,
}

impl std::fmt::Debug for Decrypted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Decrypted").field("source", &self.source).field("bytes", &self.bytes).finish()
    }
}

impl Decrypted {
    /// Opens a file with whichever of some keys it was encrypted for.
    ///
    /// # Errors
    /// The operating system's, or [`Crypt4ghError`] within an error of kind `InvalidData`.
    pub fn open(source: Arc<dyn RandomAccess>, secrets: &[SecretKey]) -> io::Result<Self> {
        let header = Header::read(&*source, secrets)?;
        let sealed_bytes = source.bytes().saturating_sub(header.bytes);
        let (whole, rest) = (sealed_bytes / SEALED_BYTES as u64, sealed_bytes % SEALED_BYTES as u64);
        if (1..=OVERHEAD_BYTES as u64).contains(&rest) {
            return Err(Crypt4ghError::Truncated { offset: source.bytes() }.into());
        }
        let data_bytes = whole * SEGMENT_BYTES as u64 + rest.saturating_sub(OVERHEAD_BYTES as u64);
        let shown = match &header.edits {
            Some(edits) => shown(edits, data_bytes).ok_or(Crypt4ghError::Truncated { offset: source.bytes() })?,
            None => vec![Shown { at: 0, from: 0, bytes: data_bytes }],
        };
        let bytes = shown.last().map_or(0, |last| last.at + last.bytes);
        let keys = header.keys.iter().map(cipher).collect();
        Ok(Self { source, keys, start: header.bytes, data_bytes, shown, bytes, last: Mutex::default() })
    }

    /// Reads data from an offset on, which is within it.
    fn read_data(&self, mut space: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !space.is_empty() {
            let first = offset / SEGMENT_BYTES as u64;
            let within = (offset % SEGMENT_BYTES as u64) as usize;
            if let Some(count) = self.take_from_last(first, within, space) {
                space = &mut space[count..];
                offset += count as u64;
                continue;
            }
            let end = (offset + space.len() as u64).div_ceil(SEGMENT_BYTES as u64);
            let mut sealed = self.sealed(first, end.min(first + SEGMENTS_AT_A_TIME))?;
            for (segment, sealed) in (first..).zip(sealed.chunks_mut(SEALED_BYTES)) {
                let data = self.open_segment(segment, sealed)?;
                let from = (offset - segment * SEGMENT_BYTES as u64) as usize;
                let count = (data.len() - from).min(space.len());
                space[..count].copy_from_slice(&data[from..from + count]);
                space = &mut std::mem::take(&mut space)[count..];
                offset += count as u64;
                if from + count < data.len() {
                    *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((segment, data.to_vec()));
                }
            }
        }
        Ok(())
    }

    /// Copies from the segment that is at hand, where it is that one.
    fn take_from_last(&self, segment: u64, from: usize, space: &mut [u8]) -> Option<usize> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, data) = last.as_ref().filter(|(number, _)| *number == segment)?;
        let count = data.len().checked_sub(from)?.min(space.len());
        space[..count].copy_from_slice(&data[from..from + count]);
        Some(count)
    }

    /// Segments as they are in the file.
    fn sealed(&self, first: u64, end: u64) -> io::Result<Vec<u8>> {
        let place = |segment: u64| {
            let whole = segment.min(self.data_bytes / SEGMENT_BYTES as u64) * SEALED_BYTES as u64;
            let rest = self.data_bytes % SEGMENT_BYTES as u64;
            let has_rest = segment * SEGMENT_BYTES as u64 > self.data_bytes && rest > 0;
            self.start + whole + if has_rest { rest + OVERHEAD_BYTES as u64 } else { 0 }
        };
        let (from, until) = (place(first), place(end));
        let mut sealed = vec![0; (until - from) as usize];
        let count = self.source.read_at(&mut sealed, from)?;
        if count < sealed.len() {
            return Err(Crypt4ghError::Truncated { offset: from + count as u64 }.into());
        }
        Ok(sealed)
    }

    fn open_segment<'s>(&self, segment: u64, sealed: &'s mut [u8]) -> io::Result<&'s [u8]> {
        let changed = || Crypt4ghError::Changed { segment, offset: self.start + segment * SEALED_BYTES as u64 };
        let length = match &self.keys[..] {
            [key] => opened(key, sealed).map(|data| data.len()),
            // Opening in place spoils what is not of the key.
            keys => keys.iter().find_map(|key| {
                let mut tried = sealed.to_vec();
                let length = opened(key, &mut tried)?.len();
                sealed.copy_from_slice(&tried);
                Some(length)
            }),
        };
        let length = length.ok_or_else(changed)?;
        Ok(&sealed[NONCE_BYTES..NONCE_BYTES + length])
    }
}

impl RandomAccess for Decrypted {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        let first = self.shown.partition_point(|shown| shown.at + shown.bytes <= offset);
        for shown in &self.shown[first..] {
            let within = (offset + filled as u64).saturating_sub(shown.at);
            let count = usize::try_from(shown.bytes - within).unwrap_or(usize::MAX).min(space.len() - filled);
            self.read_data(&mut space[filled..filled + count], shown.from + within)?;
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

    fn bytes_at_a_time(&self) -> usize {
        self.source.bytes_at_a_time().max(4 * SEGMENT_BYTES)
    }
}

/// What a list of edits shows of data: it leaves bytes out and shows bytes, in turns; behind a last number that leaves out comes all the
/// rest, behind one that shows nothing (§3.2.2). `None` where it needs more data than there is.
fn shown(edits: &[u64], data_bytes: u64) -> Option<Vec<Shown>> {
    let (mut stretches, mut at, mut from) = (Vec::new(), 0, 0_u64);
    for turn in edits.chunks(2) {
        from = from.checked_add(turn[0]).filter(|from| *from <= data_bytes)?;
        let bytes = turn.get(1).copied().unwrap_or(data_bytes - from);
        let behind = from.checked_add(bytes).filter(|behind| *behind <= data_bytes)?;
        if bytes > 0 {
            stretches.push(Shown { at, from, bytes });
        }
        at += bytes;
        from = behind;
    }
    Some(stretches)
}
