//! Bytes of Parquet files for their decoder: those of a file, or those that were fetched of something elsewhere.
//!
//! A decoder asks for a page at a time, which over a network is a wait for each. Flows in: ranges that will be wanted. Those that lie close
//! together are fetched as one; what was not foreseen is fetched when it is asked for.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::ParquetReadError;
use crate::random_access::RandomAccess;

/// Bytes between two ranges that are fetched along: sooner done than another question.
const GAP_BYTES: u64 = 256 << 10;
/// Bytes that are fetched at a time where nobody foresaw them.
const UNFORESEEN_BYTES: usize = 64 << 10;

/// What a decoder reads.
#[derive(Debug)]
pub(super) enum Bytes {
    File(File),
    Fetched(Fetched),
}

impl Bytes {
    /// An error of the decoder: of what it read, or of the way there.
    pub(super) fn blamed(&self, path: &Path, error: ParquetError) -> ParquetReadError {
        let path = path.to_owned();
        match error {
            ParquetError::External(source) => match source.downcast::<io::Error>() {
                Ok(source) if matches!(self, Self::Fetched(_)) => ParquetReadError::Io { path, source: *source },
                Ok(source) => ParquetReadError::Damaged { path, source: ParquetError::External(source) },
                Err(source) => ParquetReadError::Damaged { path, source: ParquetError::External(source) },
            },
            source => ParquetReadError::Damaged { path, source },
        }
    }
}

impl Length for Bytes {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Fetched(fetched) => fetched.object.bytes(),
        }
    }
}

impl ChunkReader for Bytes {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(match self {
            Self::File(file) => Box::new(file.get_read(start)?),
            Self::Fetched(fetched) => match fetched.at_hand(start) {
                Some(bytes) => Box::new(io::Cursor::new(bytes)),
                None => {
                    let rest = Rest { object: fetched.object.clone(), offset: start };
                    Box::new(BufReader::with_capacity(UNFORESEEN_BYTES, rest))
                }
            },
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        match self {
            Self::File(file) => file.get_bytes(start, length),
            Self::Fetched(fetched) => fetched.bytes(start, length),
        }
    }
}

/// Something elsewhere, of which some bytes are here.
#[derive(Debug)]
pub(super) struct Fetched {
    object: Arc<dyn RandomAccess>,
    /// Where they begin, and the bytes; ascending.
    here: Vec<(u64, bytes::Bytes)>,
}

impl Fetched {
    /// Fetches some ranges.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn new(object: Arc<dyn RandomAccess>, ranges: impl IntoIterator<Item = Range<u64>>) -> io::Result<Self> {
        let here: io::Result<Vec<_>> = joined(ranges, object.bytes())
            .into_iter()
            .map(|range| Ok((range.start, read(&*object, range.start, (range.end - range.start) as usize)?)))
            .collect();
        Ok(Self { here: here?, object })
    }

    /// What is here from a place on.
    fn at_hand(&self, start: u64) -> Option<bytes::Bytes> {
        let before = self.here.partition_point(|(first, _)| *first <= start).checked_sub(1)?;
        let (first, bytes) = &self.here[before];
        let within = usize::try_from(start - first).ok().filter(|within| *within < bytes.len())?;
        Some(bytes.slice(within..))
    }

    fn bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        if let Some(bytes) = self.at_hand(start).filter(|bytes| bytes.len() >= length) {
            return Ok(bytes.slice(..length));
        }
        let is_there = start.checked_add(length as u64).is_some_and(|end| end <= self.object.bytes());
        // Memory is not taken for what a damaged file says to have.
        let bytes = if is_there { read(&*self.object, start, length)? } else { bytes::Bytes::new() };
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!("{length} bytes from byte {start} on are not there")));
        }
        Ok(bytes)
    }
}

fn read(object: &dyn RandomAccess, start: u64, length: usize) -> io::Result<bytes::Bytes> {
    let mut space = vec![0; length];
    let count = object.read_at(&mut space, start)?;
    space.truncate(count);
    Ok(space.into())
}

/// Ranges within a file in order, those that lie close together as one.
fn joined(ranges: impl IntoIterator<Item = Range<u64>>, file_bytes: u64) -> Vec<Range<u64>> {
    let within = ranges.into_iter().map(|range| range.start.min(file_bytes)..range.end.min(file_bytes));
    let mut ranges: Vec<Range<u64>> = within.filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let close = next.start <= range.end.saturating_add(GAP_BYTES);
        if close {
            range.end = range.end.max(next.end);
        }
        close
    });
    ranges
}

/// What follows a place.
struct Rest {
    object: Arc<dyn RandomAccess>,
    offset: u64,
}

impl Read for Rest {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let count = self.object.read_at(space, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::random_access::LocalFile;

    #[test]
    fn ranges_that_are_close_are_fetched_as_one_and_none_behind_the_end() {
        let (gap, far) = (GAP_BYTES, 10 * GAP_BYTES);
        assert_eq!(joined([far..far + 5, 0..3, gap..gap + 2], far + 2), [0..gap + 2, far..far + 2]);
        assert!(joined([7..7, 9..12], 5).is_empty());
    }

    #[test]
    fn what_is_here_and_what_is_not_are_the_bytes_of_the_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let all: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&all).unwrap();
        let object = Arc::new(LocalFile::open(file.path()).unwrap());
        let bytes = Bytes::Fetched(Fetched::new(object, std::iter::once(100..300)).unwrap());
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
