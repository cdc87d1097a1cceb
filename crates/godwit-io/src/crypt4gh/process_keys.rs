//! The secret keys with which this process opens encrypted files. The program sets them once, before it opens any file,
//! so that readers of files need no argument for the keys. Trusted certificate authorities are usually configured in
//! the same way.

use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::MAGIC;
use super::decrypted_file::DecryptedFile;
use super::error::KeyError;
use super::keys::SecretKey;
use crate::random_access::{LocalFile, RandomAccess};

/// Environment variable with the passphrase of secret keys, if no file contains it. The program `crypt4gh` uses the
/// same variable.
const PASSPHRASE_VARIABLE: &str = "C4GH_PASSPHRASE";

static PROCESS_KEYS: OnceLock<Vec<SecretKey>> = OnceLock::new();

/// Reads the secret keys with which this process opens encrypted files. `passphrase` is the file with the passphrase of
/// encrypted keys; `None`: the environment variable `C4GH_PASSPHRASE`. Only the first call sets the keys.
///
/// # Errors
/// [`KeyError`] if a file cannot be read, is not a key, or the passphrase is wrong.
pub fn load_process_keys(keys: &[PathBuf], passphrase: Option<&Path>) -> Result<(), KeyError> {
    let passphrase = match passphrase {
        Some(path) => {
            let failed = |source| KeyError::Read { path: path.to_owned(), source };
            let mut passphrase = std::fs::read(path).map_err(failed)?;
            let kept = passphrase.trim_ascii_end().len();
            passphrase.truncate(kept);
            Some(passphrase)
        }
        None => std::env::var_os(PASSPHRASE_VARIABLE).map(std::ffi::OsString::into_vec),
    };
    let read = |path: &PathBuf| SecretKey::read(path, passphrase.as_deref());
    let keys = keys.iter().map(read).collect::<Result<_, _>>()?;
    // Ignore the result: it is an error if the keys are set already.
    let _ = PROCESS_KEYS.set(keys);
    Ok(())
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
