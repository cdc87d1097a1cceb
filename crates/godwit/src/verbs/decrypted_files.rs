//! Temporary decrypted copies of encrypted reads. Variant callers open files themselves, so they need decrypted files.
//! The copies are beside the output, in a directory that only this user can access, until the callers have exited.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_call::is_call_running;
use godwit_cli::failure::Failure;
use godwit_io::crypt4gh::{self, FILE_SUFFIX};
use godwit_io::random_access::LocalFile;
use godwit_model::ErrorKind;
use godwit_model::message_with_causes;

/// Size in bytes of the buffer for decrypting a file.
const BUFFER_BYTES: usize = 1 << 20;
/// Extensions of the indexes of reads and variants, which are appended to the name of the data file.
pub(super) const INDEX_EXTENSIONS: [&str; 4] = ["bai", "csi", "crai", "tbi"];

/// Temporary decrypted files. Dropping this value removes them.
pub(super) struct DecryptedFiles {
    output: PathBuf,
    directory: PathBuf,
    file_count: usize,
}

impl Drop for DecryptedFiles {
    fn drop(&mut self) {
        // If this process is killed, the files remain until the next call with the same output.
        if self.file_count > 0 {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

impl DecryptedFiles {
    /// Creates an empty set of files, which will be in a directory beside the output `out`.
    pub(super) fn beside_output(out: &Path) -> Self {
        let name = out.file_name().unwrap_or_default().to_string_lossy();
        let directory = out.with_file_name(format!(".{name}.clear"));
        Self { output: out.to_owned(), directory, file_count: 0 }
    }

    /// Returns whether [`Self::decrypted_path`] would decrypt a file. The file may not exist.
    pub(super) fn is_encrypted(given: &Path) -> bool {
        let encrypted = if given.is_dir() { encrypted_reads_in(given) } else { Ok(given.to_owned()) };
        encrypted.is_ok_and(|path| path.to_string_lossy().ends_with(FILE_SUFFIX))
    }

    /// Decrypts a file, copies its index, and returns the path of the decrypted file. If `given` is an output directory
    /// of `align`, decrypts the encrypted reads in it. If `given` is not encrypted, returns it unchanged.
    pub(super) fn decrypted_path(&mut self, given: &Path) -> Result<PathBuf, Failure> {
        let failed = |path: &Path, error: &io::Error| {
            let kind = if error.kind() == io::ErrorKind::InvalidData { ErrorKind::Input } else { ErrorKind::Machine };
            Failure::new(kind, format!("cannot decrypt {}: {}", path.display(), message_with_causes(error)))
        };
        let encrypted = if given.is_dir() {
            encrypted_reads_in(given).map_err(|error| failed(given, &error))?
        } else {
            given.to_owned()
        };
        let name = encrypted.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(FILE_SUFFIX) else { return Ok(given.to_owned()) };
        if self.file_count == 0 {
            if is_call_running(&self.output) {
                let problem =
                    format!("{} is being written by another process; wait for it, or stop it", self.output.display());
                return Err(Failure::new(ErrorKind::Machine, problem));
            }
            let _ = fs::remove_dir_all(&self.directory);
        }
        // Use a directory for each file, because two input files may have the same name.
        let directory = self.directory.join(self.file_count.to_string());
        self.file_count += 1;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| failed(&directory, &error))?;
        let clear = directory.join(name);
        decrypt_file(&encrypted, &clear).map_err(|error| failed(&encrypted, &error))?;
        let plain = encrypted.with_file_name(name);
        for (of, extension) in
            [&encrypted, &plain].into_iter().flat_map(|of| INDEX_EXTENSIONS.map(|extension| (of, extension)))
        {
            let (index, there) = (of.with_added_extension(extension), clear.with_added_extension(extension));
            if index.is_file() && !there.exists() {
                fs::copy(&index, &there).map_err(|error| failed(&index, &error))?;
            }
        }
        Ok(clear)
    }
}

/// Returns the path of the encrypted reads in a directory. If the directory contains unencrypted reads, or not exactly
/// one encrypted file, returns the path of the directory itself.
fn encrypted_reads_in(directory: &Path) -> io::Result<PathBuf> {
    let paths = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let ends = |path: &PathBuf, ending: &str| path.to_str().is_some_and(|name| name.ends_with(ending));
    let mut encrypted = Vec::new();
    for format in [".bam", ".cram"] {
        if paths.iter().any(|path| ends(path, format)) {
            return Ok(directory.to_owned());
        }
        encrypted.extend(paths.iter().filter(|path| ends(path, &format!("{format}{FILE_SUFFIX}"))));
    }
    Ok(match &encrypted[..] {
        [one] => (*one).clone(),
        _ => directory.to_owned(),
    })
}

fn decrypt_file(from: &Path, to: &Path) -> io::Result<()> {
    let source = crypt4gh::open_with_process_keys(Arc::new(LocalFile::open(from)?))?;
    let mut out: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let (mut buffer, mut at) = (vec![0; BUFFER_BYTES], 0);
    while at < source.byte_len() {
        let count = source.read_at(&mut buffer, at)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.write_all(&buffer[..count])?;
        at += count as u64;
    }
    Ok(())
}
