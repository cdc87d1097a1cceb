//! Encryption of files before they are published.

use std::io::{self, BufWriter, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use godwit_io::crypt4gh::{Encryptor, PublicKey, encrypted_path};

use super::{AtomicFile, AtomicFileSet};
use crate::PipelineError;

/// Size of the read buffer and of the write buffer, bytes.
const READ_BYTES: usize = 1 << 20;

impl AtomicFileSet {
    /// Encrypts the files at `paths` with the public keys `readers`; does nothing without keys. A sidecar file such as
    /// an index has the name of one of these files and a further extension. Its name follows the new name of that file,
    /// but it is not encrypted: an index contains positions and counts, but no reads.
    ///
    /// # Errors
    /// [`PipelineError::File`] if a file cannot be encrypted.
    pub fn encrypt(&mut self, paths: &[PathBuf], readers: &[PublicKey]) -> Result<(), PipelineError> {
        if readers.is_empty() {
            return Ok(());
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| PipelineError::File { action: "encrypt", path, source }
        };
        let mut beside_them = Vec::new();
        for (at, file) in self.files.iter_mut().enumerate() {
            if paths.contains(&file.path) {
                let encrypted = encrypt_file(file, readers).map_err(failed(&file.path))?;
                let mut plain = std::mem::replace(file, encrypted);
                // Remove the plain file when it is dropped: a later process resumes with the encrypted file.
                plain.keep_on_drop = false;
            } else if let Some((of, extension)) = sidecar_extension(&file.path, paths) {
                file.path = encrypted_path(of).with_added_extension(extension);
                beside_them.push(at);
            }
        }
        // Update the modification times, because programs check whether an index is older than its file.
        let now = SystemTime::now();
        for file in beside_them.into_iter().map(|at| &self.files[at]) {
            let touched = file.file.set_modified(now).and_then(|()| file.file.sync_all());
            touched.map_err(failed(&file.path))?;
        }
        Ok(())
    }
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
    let staged = match plain.keep_on_drop {
        true => AtomicFile::open_resumable(&encrypted_path(&plain.path))?,
        false => AtomicFile::create(&encrypted_path(&plain.path))?,
    };
    staged.file.set_len(0)?;
    let mut from = plain.file();
    from.seek(SeekFrom::Start(0))?;
    let mut encryptor = Encryptor::new(BufWriter::with_capacity(READ_BYTES, staged.file()), readers)?;
    let mut from = io::BufReader::with_capacity(READ_BYTES, from);
    io::copy(&mut from, &mut encryptor)?;
    drop(encryptor.finish()?);
    staged.file.sync_all()?;
    Ok(staged)
}
