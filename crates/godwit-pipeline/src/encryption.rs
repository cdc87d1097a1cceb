//! Encryption of files before they are published.

use std::io::{self, BufWriter, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use godwit_files::{AtomicFile, AtomicSet};
use godwit_io::crypt4gh::{Encryptor, PublicKey, encrypted_path};

use crate::PipelineError;

/// Size of the read buffer and of the write buffer, bytes.
const READ_BYTES: usize = 1 << 20;

/// Encrypts the files of `set` at `paths` with the public keys `readers`; does nothing without keys. A sidecar file such
/// as an index has the name of one of these files and a further extension. Its name follows the new name of that file,
/// but it is not encrypted: an index contains positions and counts, but no reads.
///
/// # Errors
/// [`PipelineError::File`] if a file cannot be encrypted.
pub fn encrypt_files(set: &mut AtomicSet, paths: &[PathBuf], readers: &[PublicKey]) -> Result<(), PipelineError> {
    if readers.is_empty() {
        return Ok(());
    }
    let mut sidecars = Vec::new();
    for (at, file) in set.files_mut().iter_mut().enumerate() {
        if paths.iter().any(|path| path == file.path()) {
            let encrypted = encrypt_file(file, readers).map_err(PipelineError::file("encrypt", file.path()))?;
            // Remove the plain file even if it is resumable: a later process resumes with the encrypted file.
            std::mem::replace(file, encrypted).discard();
        } else if let Some((of, extension)) = sidecar_extension(file.path(), paths) {
            file.set_path(encrypted_path(of).with_added_extension(extension));
            sidecars.push(at);
        }
    }
    // Update the modification times, because programs check whether an index is older than its file.
    let now = SystemTime::now();
    for file in sidecars.into_iter().map(|at| &set.files()[at]) {
        let touched = file.file().set_modified(now).and_then(|()| file.file().sync_all());
        touched.map_err(PipelineError::file("encrypt", file.path()))?;
    }
    Ok(())
}

/// Returns the file among `of` to which the sidecar file at `path` belongs, and the additional extension of the
/// sidecar.
fn sidecar_extension<'p>(path: &Path, of: &'p [PathBuf]) -> Option<(&'p PathBuf, String)> {
    let name = path.to_str()?;
    of.iter().find_map(|of| {
        let extension = name.strip_prefix(of.to_str()?)?.strip_prefix('.')?;
        Some((of, extension.to_owned()))
    })
}

/// Encrypts a file; the returned file is complete and flushed to disk.
fn encrypt_file(plain: &AtomicFile, readers: &[PublicKey]) -> io::Result<AtomicFile> {
    let staged = plain.create_companion(&encrypted_path(plain.path()))?;
    let mut from = plain.file();
    from.seek(SeekFrom::Start(0))?;
    let mut encryptor = Encryptor::new(BufWriter::with_capacity(READ_BYTES, staged.file()), readers)?;
    let mut from = io::BufReader::with_capacity(READ_BYTES, from);
    io::copy(&mut from, &mut encryptor)?;
    drop(encryptor.finish()?);
    staged.file().sync_all()?;
    Ok(staged)
}
