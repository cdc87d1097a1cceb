//! The keys with which this process opens files. The program sets them once, before it opens any file: like trusted
//! certificate authorities, they are not an argument of every reader.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::MAGIC;
use super::decrypted_file::DecryptedFile;
use super::keys::SecretKey;
use crate::random_access::{LocalFile, RandomAccess};

static PROCESS_KEYS: OnceLock<Vec<SecretKey>> = OnceLock::new();

/// Sets the keys with which encrypted files are opened. Only the first call has an effect and returns true.
pub fn set_process_keys(keys: Vec<SecretKey>) -> bool {
    PROCESS_KEYS.set(keys).is_ok()
}

/// Reports whether keys are set.
pub fn has_process_keys() -> bool {
    PROCESS_KEYS.get().is_some_and(|keys| !keys.is_empty())
}

/// Opens the content of an encrypted file with the keys of this process.
///
/// # Errors
/// As [`DecryptedFile::open`].
pub fn open_with_process_keys(source: Arc<dyn RandomAccess>) -> io::Result<Arc<dyn RandomAccess>> {
    Ok(Arc::new(DecryptedFile::open(source, PROCESS_KEYS.get().map_or(&[], Vec::as_slice))?))
}

/// Opens the content of a local file; returns `None` where it is not a regular file with the magic bytes of an encrypted
/// one.
pub(crate) fn open_if_encrypted(path: &Path, file: &std::fs::File) -> io::Result<Option<Arc<dyn RandomAccess>>> {
    use std::os::unix::fs::FileExt as _;
    let mut start = [0; MAGIC.len()];
    if !file.metadata()?.is_file() || file.read_at(&mut start, 0)? < start.len() || start != *MAGIC {
        return Ok(None);
    }
    open_with_process_keys(Arc::new(LocalFile::open(path)?)).map(Some)
}
