//! Bytes that can be read anywhere: a file here, or an object elsewhere.
//!
//! Flows in: offsets. Flows out: bytes. What they mean is not known here; nothing is cached.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
