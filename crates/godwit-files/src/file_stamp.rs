//! Size, modification time and inode of a file.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Size, modification time and inode of a file. If they differ, the file was changed or replaced.
///
/// # Examples
///
/// ```
/// use godwit_files::FileStamp;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("tokens");
/// std::fs::write(&path, "one")?;
/// let stamp = FileStamp::read(&path)?;
/// assert_eq!(FileStamp::read(&path)?, stamp);
///
/// std::fs::write(&path, "one and two")?;
/// assert_ne!(FileStamp::read(&path)?, stamp);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Modification time, seconds since 1970.
    pub modified_s: i64,
    /// Nanoseconds of the modification time, from 0 to 999,999,999.
    pub modified_ns: i64,
    /// Inode number.
    pub inode: u64,
}

impl FileStamp {
    /// Reads the stamp of the file at `path`. If the path is a symbolic link, the stamp is that of its target.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn read(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|found| Self::from_metadata(&found))
    }

    /// Returns the stamp in the metadata of a file.
    pub fn from_metadata(found: &Metadata) -> Self {
        let (modified_s, modified_ns) = (found.mtime(), found.mtime_nsec());
        Self { bytes: found.len(), modified_s, modified_ns, inode: found.ino() }
    }

    /// Returns whether size and modification time are equal. Unlike `==`, this holds for an unchanged file on a file
    /// system that gives a file another inode number each time it is looked up, as sshfs and S3 mounts do.
    pub fn has_same_size_and_time(&self, other: &Self) -> bool {
        let of = |stamp: &Self| (stamp.bytes, stamp.modified_s, stamp.modified_ns);
        of(self) == of(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_inode_is_another_stamp_with_the_same_size_and_time() {
        let stamp = FileStamp { bytes: 3, modified_s: 5, modified_ns: 7, inode: 11 };
        let other = FileStamp { inode: 12, ..stamp };
        assert!(stamp != other && stamp.has_same_size_and_time(&other));
        assert!(!stamp.has_same_size_and_time(&FileStamp { modified_ns: 8, ..stamp }));
        assert!(!stamp.has_same_size_and_time(&FileStamp { bytes: 4, ..stamp }));
    }
}
