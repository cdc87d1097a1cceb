//! Random access to the bytes of a local file or a remote object.
//!
//! Flows in: offsets. Flows out: bytes. This module neither interprets nor caches the bytes.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file or object of known length, which several threads can read at any offset.
pub trait RandomAccess: Debug + Send + Sync {
    /// Returns the path or name that error messages show.
    fn path(&self) -> &Path;

    /// Returns the length in bytes.
    fn byte_len(&self) -> u64;

    /// Reads bytes from `offset` on into `space` and returns their number. The number is less than the length of
    /// `space` only at the end of the file.
    ///
    /// # Errors
    /// Errors of the operating system or the network.
    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns whether the file is encrypted and these bytes are its decrypted content.
    fn is_decrypted(&self) -> bool {
        false
    }

    /// Returns the minimum number of bytes that one request of a sequential read should fetch. The number is large for
    /// sources with slow requests, such as remote objects.
    fn preferred_read_bytes(&self) -> usize {
        0
    }
}

/// A regular file on this host.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    byte_len: u64,
}

impl LocalFile {
    /// Opens a regular file.
    ///
    /// # Errors
    /// The errors of the operating system; `InvalidInput` if `path` is not a regular file, for example a pipe.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::random_access::{LocalFile, RandomAccess};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.fa");
    /// std::fs::write(&path, ">chr1\nACGTAC\n")?;
    /// let file = LocalFile::open(&path)?;
    /// let mut bases = [0; 4];
    /// assert_eq!(file.read_at(&mut bases, 8)?, 4);
    /// assert_eq!(&bases, b"GTAC");
    /// assert_eq!(file.byte_len(), 13);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(Self { path: path.to_owned(), file, byte_len: metadata.len() })
    }
}

impl RandomAccess for LocalFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn byte_len(&self) -> u64 {
        self.byte_len
    }

    fn read_at(&self, mut space: &mut [u8], mut offset: u64) -> io::Result<usize> {
        let wanted = space.len();
        while !space.is_empty() {
            match self.file.read_at(space, offset) {
                Ok(0) => break,
                Ok(count) => {
                    space = &mut space[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(wanted - space.len())
    }
}

/// A reader of a random-access source from start to end.
#[derive(Debug)]
pub(crate) struct SequentialReader {
    source: Arc<dyn RandomAccess>,
    /// Offset of the next byte to request from the source.
    offset: u64,
    /// A buffer of bytes before `offset`, of which the bytes from `buffer_start` on are not returned yet.
    buffer: Vec<u8>,
    buffer_start: usize,
}

impl SequentialReader {
    pub(crate) fn new(source: Arc<dyn RandomAccess>) -> Self {
        Self { source, offset: 0, buffer: Vec::new(), buffer_start: 0 }
    }

    /// Returns the length in bytes.
    pub(crate) fn byte_len(&self) -> u64 {
        self.source.byte_len()
    }

    pub(crate) fn is_decrypted(&self) -> bool {
        self.source.is_decrypted()
    }
}

impl Read for SequentialReader {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let at_a_time = self.source.preferred_read_bytes();
        if self.buffer_start == self.buffer.len() {
            if space.len() >= at_a_time {
                let count = self.source.read_at(space, self.offset)?;
                self.offset += count as u64;
                return Ok(count);
            }
            self.buffer_start = 0;
            self.buffer.resize(at_a_time, 0);
            let read = self.source.read_at(&mut self.buffer, self.offset);
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            self.offset += read? as u64;
        }
        let ahead = &self.buffer[self.buffer_start..];
        let count = ahead.len().min(space.len());
        space[..count].copy_from_slice(&ahead[..count]);
        self.buffer_start += count;
        Ok(count)
    }
}

impl Seek for SequentialReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Start(offset) = to else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "seeking is supported only from the start"));
        };
        self.buffer.clear();
        self.buffer_start = 0;
        self.offset = offset;
        Ok(offset)
    }
}

#[cfg(test)]
mod tests {

    use parking_lot::Mutex;

    use super::*;

    /// A source in memory that records the offset and length of each request.
    #[derive(Debug)]
    struct RequestRecorder(Vec<u8>, usize, Mutex<Vec<(u64, usize)>>);

    impl RandomAccess for RequestRecorder {
        fn path(&self) -> &Path {
            Path::new("asked")
        }

        fn byte_len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
            self.2.lock().push((offset, space.len()));
            let rest = &self.0[(offset as usize).min(self.0.len())..];
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn preferred_read_bytes(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn a_sequential_reader_reads_all_in_few_requests_from_any_offset() {
        let bytes: Vec<u8> = (0..100).collect();
        for (at_a_time, questions) in [(40, vec![(0, 40), (40, 40), (80, 40), (100, 40)]), (0, vec![(0, 7); 0])] {
            let recorder = Arc::new(RequestRecorder(bytes.clone(), at_a_time, Mutex::default()));
            let mut reader = SequentialReader::new(recorder.clone());
            let mut found = Vec::new();
            let mut space = [0; 7];
            loop {
                match reader.read(&mut space).unwrap() {
                    0 => break,
                    count => found.extend_from_slice(&space[..count]),
                }
            }
            assert_eq!(found, bytes);
            if !questions.is_empty() {
                assert_eq!(*recorder.2.lock(), questions);
            }
            reader.seek(SeekFrom::Start(90)).unwrap();
            found.clear();
            reader.read_to_end(&mut found).unwrap();
            assert_eq!(found, bytes[90..]);
        }
    }
}
