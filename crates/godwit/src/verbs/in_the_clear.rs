//! Encrypted reads for callers, which open files by themselves: decrypted beside the output, where nobody else may enter, while they are at
//! work.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_formats::crypt4gh::{self, ENDING};
use godwit_formats::random_access::LocalFile;
use godwit_formats::with_causes;
use godwit_pipeline::is_call_busy;

use crate::failure::{Exit, Failure};

/// Bytes that are decrypted at a time.
const BYTES_AT_A_TIME: usize = 1 << 20;
/// What the name of an index has behind that of its file.
const INDEX_EXTENSIONS: [&str; 4] = ["bai", "csi", "crai", "tbi"];

/// Files in the clear; they are gone with this.
pub(super) struct InTheClear {
    out: PathBuf,
    directory: PathBuf,
    files: usize,
}

impl Drop for InTheClear {
    fn drop(&mut self) {
        // What a process that was killed left is removed by the next one.
        if self.files > 0 {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

impl InTheClear {
    /// Nothing yet, beside an output.
    pub(super) fn beside(out: &Path) -> Self {
        let name = out.file_name().unwrap_or_default().to_string_lossy();
        let directory = out.with_file_name(format!(".{name}.clear"));
        Self { out: out.to_owned(), directory, files: 0 }
    }

    /// A file that is not encrypted as it is; what is in one that is, by its name, with the index of that beside it. Of a directory that `align` wrote
    /// encrypted reads to, those.
    pub(super) fn file(&mut self, given: &Path) -> Result<PathBuf, Failure> {
        let failed = |path: &Path, error: &io::Error| {
            let exit = if error.kind() == io::ErrorKind::InvalidData { Exit::Input } else { Exit::Machine };
            Failure::new(exit, format!("cannot decrypt {}: {}", path.display(), with_causes(error)))
        };
        let encrypted =
            if given.is_dir() { reads_of(given).map_err(|error| failed(given, &error))? } else { given.to_owned() };
        let name = encrypted.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(ENDING) else { return Ok(given.to_owned()) };
        if self.files == 0 {
            if is_call_busy(&self.out) {
                let problem =
                    format!("{} is being written by another process; wait for it, or end it", self.out.display());
                return Err(Failure::new(Exit::Machine, problem));
            }
            let _ = fs::remove_dir_all(&self.directory);
        }
        // Files of one name may be of several directories.
        let directory = self.directory.join(self.files.to_string());
        self.files += 1;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| failed(&directory, &error))?;
        let clear = directory.join(name);
        decrypt(&encrypted, &clear).map_err(|error| failed(&encrypted, &error))?;
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

/// The one file of encrypted reads in a directory without others; else the directory, as it is.
fn reads_of(directory: &Path) -> io::Result<PathBuf> {
    let paths = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let ends = |path: &PathBuf, ending: &str| path.to_str().is_some_and(|name| name.ends_with(ending));
    let mut encrypted = Vec::new();
    for format in [".bam", ".cram"] {
        if paths.iter().any(|path| ends(path, format)) {
            return Ok(directory.to_owned());
        }
        encrypted.extend(paths.iter().filter(|path| ends(path, &format!("{format}{ENDING}"))));
    }
    Ok(match &encrypted[..] {
        [one] => (*one).clone(),
        _ => directory.to_owned(),
    })
}

fn decrypt(from: &Path, to: &Path) -> io::Result<()> {
    let source = crypt4gh::open(Arc::new(LocalFile::open(from)?))?;
    let mut out: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let (mut buffer, mut at) = (vec![0; BYTES_AT_A_TIME], 0);
    while at < source.bytes() {
        let count = source.read_at(&mut buffer, at)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.write_all(&buffer[..count])?;
        at += count as u64;
    }
    Ok(())
}
