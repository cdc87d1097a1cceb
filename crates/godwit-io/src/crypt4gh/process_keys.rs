//! The secret keys with which this process opens encrypted files. The program sets them once, before it opens any file,
//! so that readers of files need no argument for the keys. Trusted certificate authorities are usually configured in
//! the same way.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::MAGIC;
use super::decrypted_file::DecryptedFile;
use super::keys::SecretKey;
use crate::random_access::{LocalFile, RandomAccess};

static PROCESS_KEYS: OnceLock<Vec<SecretKey>> = OnceLock::new();

/// Sets the secret keys with which this process opens encrypted files. Returns true on the first call; further calls
/// have no effect.
pub fn set_process_keys(keys: Vec<SecretKey>) -> bool {
    PROCESS_KEYS.set(keys).is_ok()
}

/// Returns whether the process has a secret key.
pub fn has_process_keys() -> bool {
    PROCESS_KEYS.get().is_some_and(|keys| !keys.is_empty())
}

/// Opens the decrypted content of an encrypted file with the keys of this process.
///
/// # Errors
/// The errors of [`DecryptedFile::open`].
pub fn open_with_process_keys(source: Arc<dyn RandomAccess>) -> io::Result<Arc<dyn RandomAccess>> {
    Ok(Arc::new(DecryptedFile::open(source, PROCESS_KEYS.get().map_or(&[], Vec::as_slice))?))
}

/// Opens the decrypted content of a local file. Returns `None` if it is not a regular file that begins with the magic
/// bytes of an encrypted file.
pub(crate) fn open_if_encrypted(path: &Path, file: &std::fs::File) -> io::Result<Option<Arc<dyn RandomAccess>>> {
    use std::os::unix::fs::FileExt as _;
    let mut start = [0; MAGIC.len()];
    if !file.metadata()?.is_file() || file.read_at(&mut start, 0)? < start.len() || start != *MAGIC {
        return Ok(None);
    }
    open_with_process_keys(Arc::new(LocalFile::open(path)?)).map(Some)
}
