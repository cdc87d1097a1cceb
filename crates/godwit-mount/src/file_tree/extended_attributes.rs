//! Extended attributes of files: the digest of the content, and the name as a dataset.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::FileTree;
use crate::storage::StorageError;

/// Extended attribute with the BLAKE3 of a file, hexadecimal.
pub(crate) const DIGEST_ATTRIBUTE: &str = "user.godwit.blake3";
/// Extended attribute with the name of a file as a dataset of its server.
pub(crate) const DATASET_ATTRIBUTE: &str = "user.godwit.dataset";

impl FileTree {
    /// Returns the names of the extended attributes of an inode.
    pub(crate) fn attribute_names(&self, inode: u64) -> Result<&'static [&'static str], StorageError> {
        match self.attributes(inode)?.is_directory {
            true => Ok(&[]),
            false => Ok(&[DIGEST_ATTRIBUTE, DATASET_ATTRIBUTE]),
        }
    }

    /// Returns the value of an extended attribute; `None` if the inode does not have it. Content that is not stored yet
    /// has no digest.
    pub(crate) fn attribute_value(&self, inode: u64, name: &OsStr) -> Result<Option<Vec<u8>>, StorageError> {
        let is = |known: &str| name.as_bytes() == known.as_bytes();
        if !(is(DIGEST_ATTRIBUTE) || is(DATASET_ATTRIBUTE)) || self.attributes(inode)?.is_directory {
            return Ok(None);
        }
        let path = self.path(inode)?;
        if is(DATASET_ATTRIBUTE) {
            return Ok(Some(self.dataset_prefix.join(path).into_os_string().as_encoded_bytes().to_vec()));
        }
        match self.staged(inode).is_some_and(|staged| staged.is_changed()) {
            true => Ok(None),
            false => self.storage.digest(&path).map(|digest| Some(digest.into_bytes())),
        }
    }
}
