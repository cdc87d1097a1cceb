//! File handles that every pool member computes alike.
//!
//! A handle has the inode number and a hash of the creation time of a file, and hashes of the inode numbers of the
//! directories above it. The inode number identifies the file, the creation time distinguishes it from a later file with
//! the same number, and the hashes lead to it from the root: a server that has not seen the handle before searches only
//! the directories whose hashes match. unfs3 (`backend_unix.c`, `fh.c`) uses
//! similar handles.
//!
//! A handle grants nothing: it is resolved to a path below the root, and each call is authorized for that path. So it
//! needs no secret.

use nfs3_types::nfs3::{NFS3_FHSIZE, nfs_fh3};
use nfs3_types::xdr_codec::Opaque;
use rustix::fs::{Statx, StatxFlags};
use xxhash_rust::xxh3::xxh3_64;

/// First byte of handles of this format.
const FORMAT: u8 = 1;
/// Size of a handle without the hashes of directories, bytes.
const FIXED_BYTES: usize = 13;
/// Size of the hash of a directory, bytes.
const HASH_BYTES: usize = 2;
/// Largest number of directories between the root and a file.
pub(crate) const MAX_DEPTH: usize = (NFS3_FHSIZE - FIXED_BYTES) / HASH_BYTES;
/// Inode number in the handle of the root; no file has it.
const ROOT_INODE: u64 = 0;

/// A handle of a file, a directory or a symbolic link below the root of an export.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// Inode number; 0 for the root.
    pub(crate) inode: u64,
    /// Hash of the creation time; 0 if the file system does not store it.
    birth: u32,
    /// Hashes of the directories that contain the file, beginning below the root.
    pub(crate) parents: Vec<u16>,
}

/// Returns the hash of a directory in the handles of the files below it.
pub(crate) fn directory_hash(inode: u64) -> u16 {
    xxh3_64(&inode.to_le_bytes()) as u16
}

/// Returns the hash of the creation time of a file; 0 if it is unknown.
fn birth_hash(found: &Statx) -> u32 {
    if found.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&found.stx_btime.tv_sec.to_le_bytes());
    bytes[8..].copy_from_slice(&found.stx_btime.tv_nsec.to_le_bytes());
    (xxh3_64(&bytes) as u32).max(1)
}

impl FileHandle {
    /// Returns the handle of the root of an export.
    pub fn root() -> Self {
        Self { inode: ROOT_INODE, birth: 0, parents: Vec::new() }
    }

    /// Reports whether this is the handle of the root.
    pub fn is_root(&self) -> bool {
        self.inode == ROOT_INODE
    }

    /// Returns the handle of an entry of the directory with this handle and inode number; `None` if the directory is too
    /// deep below the root.
    pub(crate) fn child(&self, directory_inode: u64, found: &Statx) -> Option<Self> {
        let mut parents = self.parents.clone();
        if !self.is_root() {
            parents.push(directory_hash(directory_inode));
        }
        (parents.len() <= MAX_DEPTH).then(|| Self { inode: found.stx_ino, birth: birth_hash(found), parents })
    }

    /// Reports whether this is the handle of the file with these attributes. If one of the pool members cannot read
    /// creation times, the inode number alone decides.
    pub(crate) fn matches(&self, found: &Statx) -> bool {
        let birth = birth_hash(found);
        self.inode == found.stx_ino && (self.birth == birth || self.birth == 0 || birth == 0)
    }

    /// Encodes the handle.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_nfs::FileHandle;
    ///
    /// let bytes = FileHandle::root().to_bytes();
    /// assert_eq!(FileHandle::from_bytes(&bytes), Some(FileHandle::root()));
    /// assert_eq!(FileHandle::from_bytes(&bytes[1..]), None);
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.inode.to_le_bytes());
        bytes.extend(self.birth.to_le_bytes());
        bytes.extend(self.parents.iter().flat_map(|hash| hash.to_le_bytes()));
        bytes
    }

    /// Decodes a handle; returns `None` if the bytes are not those of a handle.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (fixed, parents) = bytes.split_at_checked(FIXED_BYTES)?;
        if fixed[0] != FORMAT || parents.len() % HASH_BYTES != 0 || parents.len() / HASH_BYTES > MAX_DEPTH {
            return None;
        }
        let inode = u64::from_le_bytes(fixed[1..9].try_into().ok()?);
        let birth = u32::from_le_bytes(fixed[9..].try_into().ok()?);
        let parents = parents.chunks_exact(HASH_BYTES).map(|hash| u16::from_le_bytes([hash[0], hash[1]])).collect();
        Some(Self { inode, birth, parents })
    }

    /// Returns the handle as clients receive it.
    pub(crate) fn to_nfs(&self) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned(self.to_bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_survive_encoding_up_to_the_largest_depth() {
        let handle = FileHandle { inode: u64::MAX, birth: 7, parents: vec![9; MAX_DEPTH] };
        let bytes = handle.to_bytes();
        assert!(bytes.len() <= NFS3_FHSIZE, "{}", bytes.len());
        assert_eq!(FileHandle::from_bytes(&bytes), Some(handle));
        for wrong in [&[][..], &[FORMAT; FIXED_BYTES + 1], &[2; FIXED_BYTES], &[FORMAT; 65]] {
            assert_eq!(FileHandle::from_bytes(wrong), None);
        }
    }
}
