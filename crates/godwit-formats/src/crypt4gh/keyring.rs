//! The keys that this process opens files with. They are set once, by the program, before any file is opened: as which authorities are
//! trusted, that is not for each reader of a file to know.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::MAGIC;
use super::decrypted::Decrypted;
use super::keys::SecretKey;
use crate::random_access::{LocalFile, RandomAccess};

static KEYS: OnceLock<Vec<SecretKey>> = OnceLock::new();

/// Opens encrypted files with these keys from now on. Only the first call counts; it returns whether it was that.
pub fn use_keys(keys: Vec<SecretKey>) -> bool {
    KEYS.set(keys).is_ok()
}

/// Whether there are keys.
pub fn has_keys() -> bool {
    KEYS.get().is_some_and(|keys| !keys.is_empty())
}

/// What is in an encrypted file, by the keys of this process.
///
/// # Errors
/// As [`Decrypted::open`].
pub fn open(source: Arc<dyn RandomAccess>) -> io::Result<Arc<dyn RandomAccess>> {
    Ok(Arc::new(Decrypted::open(source, KEYS.get().map_or(&[], Vec::as_slice))?))
}

/// What is in a file of this machine, where it is a regular file that begins as encrypted ones do.
pub(crate) fn opened_if_encrypted(path: &Path, file: &std::fs::File) -> io::Result<Option<Arc<dyn RandomAccess>>> {
    use std::os::unix::fs::FileExt as _;
    let mut start = [0; MAGIC.len()];
    if !file.metadata()?.is_file() || file.read_at(&mut start, 0)? < start.len() || start != *MAGIC {
        return Ok(None);
    }
    open(Arc::new(LocalFile::open(path)?)).map(Some)
}
