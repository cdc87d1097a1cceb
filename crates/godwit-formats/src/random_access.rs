//! Bytes that can be read anywhere: a file here, or an object elsewhere.
//!
//! Flows in: offsets. Flows out: bytes. What they mean is not known here; nothing is cached.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something of known length that can be read at any offset, by many at once.
pub trait RandomAccess: Debug + Send + Sync {
    /// Its name, for messages.
    fn path(&self) -> &Path;

    /// Its length, bytes.
    fn bytes(&self) -> u64;

    /// Reads from an offset on; fewer bytes than there is space for only at the end.
    ///
    /// # Errors
    /// The operating system's, or the network's.
    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether these are not the bytes of the file, but what they were encrypted from.
    fn is_decrypted(&self) -> bool {
        false
    }

    /// Bytes to ask for at least where all of it is read, front to back: more than a few where asking takes long.
    fn bytes_at_a_time(&self) -> usize {
        0
    }
}

/// A regular file of this machine.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl LocalFile {
    /// Opens a file.
    ///
    /// # Errors
    /// The operating system's; what is no regular file, such as a pipe, is `InvalidInput`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        Ok(Self { path: path.to_owned(), file, bytes: metadata.len() })
    }
}

impl RandomAccess for LocalFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
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

/// All of it, from front to back.
#[derive(Debug)]
pub(crate) struct FrontToBack {
    source: Arc<dyn RandomAccess>,
    /// Where the next bytes are.
    offset: u64,
    /// Bytes at hand: `ahead[ahead_start..]`, those before `offset`.
    ahead: Vec<u8>,
    ahead_start: usize,
}

impl FrontToBack {
    pub(crate) fn new(source: Arc<dyn RandomAccess>) -> Self {
        Self { source, offset: 0, ahead: Vec::new(), ahead_start: 0 }
    }

    /// Its length, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    pub(crate) fn is_decrypted(&self) -> bool {
        self.source.is_decrypted()
    }
}

impl Read for FrontToBack {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let at_a_time = self.source.bytes_at_a_time();
        if self.ahead_start == self.ahead.len() {
            if space.len() >= at_a_time {
                let count = self.source.read_at(space, self.offset)?;
                self.offset += count as u64;
                return Ok(count);
            }
            self.ahead_start = 0;
            self.ahead.resize(at_a_time, 0);
            let read = self.source.read_at(&mut self.ahead, self.offset);
            self.ahead.truncate(*read.as_ref().unwrap_or(&0));
            self.offset += read? as u64;
        }
        let ahead = &self.ahead[self.ahead_start..];
        let count = ahead.len().min(space.len());
        space[..count].copy_from_slice(&ahead[..count]);
        self.ahead_start += count;
        Ok(count)
    }
}

impl Seek for FrontToBack {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Start(offset) = to else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "only places from the start are gone to"));
        };
        self.ahead.clear();
        self.ahead_start = 0;
        self.offset = offset;
        Ok(offset)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Bytes, and which of them were asked for.
    #[derive(Debug)]
    struct Asked(Vec<u8>, usize, Mutex<Vec<(u64, usize)>>);

    impl RandomAccess for Asked {
        fn path(&self) -> &Path {
            Path::new("asked")
        }

        fn bytes(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
            self.2.lock().unwrap().push((offset, space.len()));
            let rest = &self.0[(offset as usize).min(self.0.len())..];
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn bytes_at_a_time(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn all_of_it_comes_in_few_questions_from_wherever_it_is_gone_to() {
        let bytes: Vec<u8> = (0..100).collect();
        for (at_a_time, questions) in [(40, vec![(0, 40), (40, 40), (80, 40), (100, 40)]), (0, vec![(0, 7); 0])] {
            let asked = Arc::new(Asked(bytes.clone(), at_a_time, Mutex::default()));
            let mut reader = FrontToBack::new(asked.clone());
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
                assert_eq!(*asked.2.lock().unwrap(), questions);
            }
            reader.seek(SeekFrom::Start(90)).unwrap();
            found.clear();
            reader.read_to_end(&mut found).unwrap();
            assert_eq!(found, bytes[90..]);
        }
    }
}
