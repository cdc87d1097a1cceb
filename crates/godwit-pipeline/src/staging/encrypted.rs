//! Files that are encrypted before they get their names.

use std::io::{self, BufWriter, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use godwit_formats::crypt4gh::{Encryptor, PublicKey, encrypted_name};

use super::{Staged, StagedFile};
use crate::PipelineError;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

impl Staged {
    /// Encrypts some of the files for some readers, where there are any. What is of one of them, its name with another ending behind, goes
    /// along under the new name, as it is: an index tells how many reads are where, and nothing of a read.
    ///
    /// # Errors
    /// [`PipelineError::File`].
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
                let encrypted = encrypted(file, readers).map_err(failed(&file.path))?;
                let mut plain = std::mem::replace(file, encrypted);
                // It is not gone on with: what is whole is the other one.
                plain.kept = false;
            } else if let Some((of, extension)) = beside(&file.path, paths) {
                file.path = encrypted_name(of).with_added_extension(extension);
                beside_them.push(at);
            }
        }
        // Readers look whether an index is older than its file.
        let now = SystemTime::now();
        for file in beside_them.into_iter().map(|at| &self.files[at]) {
            let touched = file.file.set_modified(now).and_then(|()| file.file.sync_all());
            touched.map_err(failed(&file.path))?;
        }
        Ok(())
    }
}

/// Which of some files a file is beside, and what its name has behind that one's.
fn beside<'p>(path: &Path, of: &'p [PathBuf]) -> Option<(&'p PathBuf, String)> {
    let name = path.to_str()?;
    of.iter().find_map(|of| {
        let extension = name.strip_prefix(of.to_str()?)?.strip_prefix('.')?;
        Some((of, extension.to_owned()))
    })
}

/// The same bytes, encrypted, whole and durable.
fn encrypted(plain: &StagedFile, readers: &[PublicKey]) -> io::Result<StagedFile> {
    let staged = match plain.kept {
        true => StagedFile::keep(&encrypted_name(&plain.path))?,
        false => StagedFile::create(&encrypted_name(&plain.path))?,
    };
    staged.file.set_len(0)?;
    let mut from = &plain.file;
    from.seek(SeekFrom::Start(0))?;
    let mut encryptor = Encryptor::new(BufWriter::with_capacity(READ_BYTES, &staged.file), readers)?;
    let mut from = io::BufReader::with_capacity(READ_BYTES, from);
    io::copy(&mut from, &mut encryptor)?;
    drop(encryptor.finish()?);
    staged.file.sync_all()?;
    Ok(staged)
}
