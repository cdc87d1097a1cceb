//! Verification of a BAM against the segments in its manifest, on all threads.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use flate2::read::MultiGzDecoder;
use godwit_kernels::threads::for_each_index;

use super::Verifier;
use crate::manifest::{ManifestFile, Segment};

/// Size of the read buffers, bytes.
const READ_BYTES: usize = 256 << 10;

impl Verifier<'_> {
    /// Returns the first problem of a file with segments: a gap between segments, a wrong checksum or a wrong number of
    /// records. Returns `None` if the file matches its manifest.
    pub(super) fn verify_segments(&self, file: &File, entry: &ManifestFile) -> io::Result<Option<String>> {
        let mut at = 0;
        for segment in &entry.segments {
            let end = segment.offset.checked_add(segment.bytes).filter(|end| *end <= entry.bytes);
            match end {
                Some(end) if segment.offset == at => at = end,
                _ => return Ok(Some(format!("its manifest has no checksum for the bytes from offset {at}"))),
            }
        }
        if at != entry.bytes {
            return Ok(Some(format!("its manifest has no checksum for the bytes from offset {at}")));
        }
        let total = entry.segments.iter().try_fold(0u64, |total, segment| total.checked_add(segment.records));
        if entry.records.is_some_and(|records| Some(records) != total) {
            return Ok(Some("the numbers of records in its manifest contradict each other".to_owned()));
        }
        let check = |(): &mut (), index: usize| {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
            }
            check_segment(file, &entry.segments[index])
        };
        let problems = for_each_index(self.threads, entry.segments.len(), || (), check)?;
        Ok(problems.into_iter().flatten().next())
    }
}

/// Returns the problem of a segment, or `None` if the segment matches its entry in the manifest.
fn check_segment(file: &File, segment: &Segment) -> io::Result<Option<String>> {
    let (first, last) = (segment.offset, segment.offset + segment.bytes);
    let segment_reader = HashingReader { file, offset: first, end: last, hasher: blake3::Hasher::new() };
    let mut segment_reader = io::BufReader::with_capacity(READ_BYTES, segment_reader);
    // The segment at offset 0 is the BAM header, which contains no records.
    let records = if segment.offset == 0 { Ok(segment.records) } else { count_records(&mut segment_reader) };
    io::copy(&mut segment_reader, &mut io::sink())?;
    let found = segment_reader.into_inner().hasher.finalize();
    if found.to_hex().as_str() != segment.blake3 {
        return Ok(Some(format!("its checksum differs from that in its manifest between bytes {first} and {last}")));
    }
    // The checksum is right, so the bytes are those that godwit wrote. If the count differs, the manifest is wrong.
    Ok(match records {
        Ok(records) if records == segment.records => None,
        Ok(records) => {
            let expected = segment.records;
            Some(format!(
                "it has {records} records between bytes {first} and {last} instead of {expected} as in its manifest"
            ))
        }
        Err(error) => Some(format!("it cannot be decompressed between bytes {first} and {last}: {error}")),
    })
}

/// Counts the BAM records in complete BGZF blocks.
fn count_records(segment_reader: &mut impl io::BufRead) -> io::Result<u64> {
    let mut data = io::BufReader::with_capacity(READ_BYTES, MultiGzDecoder::new(segment_reader));
    let (mut records, mut size) = (0, [0; 4]);
    while !io::BufRead::fill_buf(&mut data)?.is_empty() {
        data.read_exact(&mut size)?;
        let bytes = u64::from(u32::from_le_bytes(size));
        if io::copy(&mut data.by_ref().take(bytes), &mut io::sink())? < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        records += 1;
    }
    Ok(records)
}

/// A reader of a byte range of a file that computes the BLAKE3 of the bytes.
struct HashingReader<'f> {
    file: &'f File,
    offset: u64,
    end: u64,
    hasher: blake3::Hasher,
}

impl Read for HashingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min((self.end - self.offset) as usize);
        let count = self.file.read_at(&mut buffer[..most], self.offset)?;
        self.hasher.update(&buffer[..count]);
        self.offset += count as u64;
        Ok(count)
    }
}
