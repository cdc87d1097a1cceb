//! The source of the bytes of a Parquet file for its decoder: a local file, or ranges fetched from a remote file.
//!
//! A decoder reads one page at a time, and for a remote file it would wait for the network at each page. Flows in:
//! ranges of bytes that the decoder will need. Ranges that are close to each other are fetched with one request; bytes
//! outside all ranges are fetched on demand.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use godwit_io::random_access::RandomAccess;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::parquet_error::ParquetReadError;

/// Maximum bytes between two ranges that are fetched with one request. Fetching so many unneeded bytes costs less than
/// another request.
const MAX_GAP_BYTES: u64 = 256 << 10;
/// Bytes per request for data that was not prefetched.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// The bytes of a Parquet file that a decoder reads.
#[derive(Debug)]
pub(super) enum ParquetSource {
    File(File),
    Prefetched(PrefetchedObject),
}

impl ParquetSource {
    /// Converts an error of the decoder into an error of the file: either its content is invalid, or reading it failed.
    pub(super) fn read_error(&self, path: &Path, error: ParquetError) -> ParquetReadError {
        let path = path.to_owned();
        match error {
            ParquetError::External(source) => match source.downcast::<io::Error>() {
                Ok(source) if matches!(self, Self::Prefetched(_)) => ParquetReadError::Io { path, source: *source },
                Ok(source) => ParquetReadError::Damaged { path, source: ParquetError::External(source) },
                Err(source) => ParquetReadError::Damaged { path, source: ParquetError::External(source) },
            },
            source => ParquetReadError::Damaged { path, source },
        }
    }
}

impl Length for ParquetSource {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Prefetched(fetched) => fetched.object.byte_len(),
        }
    }
}

impl ChunkReader for ParquetSource {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(match self {
            Self::File(file) => Box::new(file.get_read(start)?),
            Self::Prefetched(fetched) => match fetched.prefetched_from(start) {
                Some(bytes) => Box::new(io::Cursor::new(bytes)),
                None => {
                    let rest = ObjectReader { object: fetched.object.clone(), offset: start };
                    Box::new(BufReader::with_capacity(READ_BUFFER_BYTES, rest))
                }
            },
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        match self {
            Self::File(file) => file.get_bytes(start, length),
            Self::Prefetched(fetched) => fetched.read_range(start, length),
        }
    }
}

/// A remote file of which some ranges have been fetched into memory.
#[derive(Debug)]
pub(super) struct PrefetchedObject {
    object: Arc<dyn RandomAccess>,
    /// Offset and bytes of each fetched range, in ascending order.
    ranges: Vec<(u64, bytes::Bytes)>,
}

impl PrefetchedObject {
    /// Fetches the given ranges of a remote file.
    ///
    /// # Errors
    /// The errors of reading the remote file.
    pub(super) fn new(object: Arc<dyn RandomAccess>, ranges: impl IntoIterator<Item = Range<u64>>) -> io::Result<Self> {
        let fetched: io::Result<Vec<_>> = merge_ranges(ranges, object.byte_len())
            .into_iter()
            .map(|range| {
                Ok((range.start, read_object_range(&*object, range.start, (range.end - range.start) as usize)?))
            })
            .collect();
        Ok(Self { ranges: fetched?, object })
    }

    /// Returns the fetched bytes from offset `start` to the end of their range, or `None` if the byte at `start` was
    /// not fetched.
    fn prefetched_from(&self, start: u64) -> Option<bytes::Bytes> {
        let before = self.ranges.partition_point(|(first, _)| *first <= start).checked_sub(1)?;
        let (first, bytes) = &self.ranges[before];
        let within = usize::try_from(start - first).ok().filter(|within| *within < bytes.len())?;
        Some(bytes.slice(within..))
    }

    fn read_range(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        if let Some(bytes) = self.prefetched_from(start).filter(|bytes| bytes.len() >= length) {
            return Ok(bytes.slice(..length));
        }
        let is_there = start.checked_add(length as u64).is_some_and(|end| end <= self.object.byte_len());
        // Check the length before allocating memory for it, because a damaged file may claim any length.
        let bytes = if is_there { read_object_range(&*self.object, start, length)? } else { bytes::Bytes::new() };
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!("the file ends before byte {start} + {length}")));
        }
        Ok(bytes)
    }
}

fn read_object_range(object: &dyn RandomAccess, start: u64, length: usize) -> io::Result<bytes::Bytes> {
    let mut space = vec![0; length];
    let count = object.read_at(&mut space, start)?;
    space.truncate(count);
    Ok(space.into())
}

/// Returns the parts of the ranges within the file, in ascending order. Ranges that are close to each other are merged.
fn merge_ranges(ranges: impl IntoIterator<Item = Range<u64>>, file_bytes: u64) -> Vec<Range<u64>> {
    let within = ranges.into_iter().map(|range| range.start.min(file_bytes)..range.end.min(file_bytes));
    let mut ranges: Vec<Range<u64>> = within.filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let close = next.start <= range.end.saturating_add(MAX_GAP_BYTES);
        if close {
            range.end = range.end.max(next.end);
        }
        close
    });
    ranges
}

/// A sequential reader of a remote file from an offset on.
struct ObjectReader {
    object: Arc<dyn RandomAccess>,
    offset: u64,
}

impl Read for ObjectReader {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let count = self.object.read_at(space, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use godwit_io::random_access::LocalFile;

    use super::*;

    #[test]
    fn ranges_that_are_close_are_fetched_as_one_and_none_behind_the_end() {
        let (gap, far) = (MAX_GAP_BYTES, 10 * MAX_GAP_BYTES);
        assert_eq!(merge_ranges([far..far + 5, 0..3, gap..gap + 2], far + 2), [0..gap + 2, far..far + 2]);
        assert!(merge_ranges([7..7, 9..12], 5).is_empty());
    }

    #[test]
    fn what_is_here_and_what_is_not_are_the_bytes_of_the_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let all: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&all).unwrap();
        let object = Arc::new(LocalFile::open(file.path()).unwrap());
        let bytes = ParquetSource::Prefetched(PrefetchedObject::new(object, std::iter::once(100..300)).unwrap());
        assert_eq!(Length::len(&bytes), 200_000);
        for (start, length) in [(100, 200), (150, 10), (150, 1000), (0, 50), (199_990, 10)] {
            let found = bytes.get_bytes(start as u64, length).unwrap();
            assert_eq!(found, all[start..start + length], "{start} {length}");
            let mut found = vec![0; length.min(100)];
            bytes.get_read(start as u64).unwrap().read_exact(&mut found).unwrap();
            assert_eq!(found, all[start..start + found.len()], "{start} {length}");
        }
        assert!(bytes.get_bytes(199_990, 11).is_err());
        assert!(bytes.get_bytes(u64::MAX, 11).is_err());
    }
}
