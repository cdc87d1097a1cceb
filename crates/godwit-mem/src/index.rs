//! Indexing: the index files beside a reference, whole or not at all.
//!
//! The library ends the process on any error, so the work is done by a second copy of this program into a folder of its own,
//! which goes away whatever happens; whole files are then renamed into place.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::Error;
use crate::{IndexBuilder, MemLibrary};

/// Name of the hidden sub-command of the second copy.
pub const PART: &str = "index-part";

/// Makes the index of a reference.
///
/// # Errors
/// [`Error::File`], [`Error::Index`].
pub fn build<L: MemLibrary>(reference: &Path, builder: &IndexBuilder) -> Result<(), Error> {
    let file_error = |action, path: &Path, source| Error::File { action, path: path.to_owned(), source };
    std::fs::File::open(reference).map_err(|source| file_error("read", reference, source))?;
    let folder = reference.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let aside = tempfile::Builder::new().prefix(".godwit-index-").tempdir_in(folder);
    let aside = aside.map_err(|source| file_error("write to", folder, source))?;
    let prefix = aside.path().join("index");
    let program = std::env::current_exe().map_err(|source| file_error("start", Path::new(L::PROGRAM), source))?;
    // A signal ends the second copy; this one lives on to remove the folder.
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::default());
        registered.map_err(|source| file_error("handle signals of", Path::new(L::PROGRAM), source))?;
    }
    let status = Command::new(&program).arg(PART).arg(reference).arg(&prefix).status();
    let status = status.map_err(|source| file_error("start", &program, source))?;
    if !status.success() {
        return Err(Error::Index { engine: L::ENGINE, reference: reference.to_owned(), ending: status.to_string() });
    }
    // The file that makes the others an index goes first and comes last.
    if let Some(extension) = builder.extensions.last() {
        let last = reference.with_added_extension(extension);
        match std::fs::remove_file(&last) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(file_error("replace", &last, source));
            }
            _ => {}
        }
    }
    for extension in builder.extensions {
        let target = reference.with_added_extension(extension);
        let made = prefix.with_added_extension(extension);
        let synced = std::fs::File::open(&made).and_then(|file| file.sync_all());
        synced.and_then(|()| std::fs::rename(&made, &target)).map_err(|source| file_error("write", &target, source))?;
    }
    Ok(())
}

/// What the second copy does.
///
/// # Errors
/// [`Error::Usage`] for a path with a NUL, [`Error::Index`].
pub fn build_part<L: MemLibrary>(reference: &Path, prefix: &Path, builder: &IndexBuilder) -> Result<(), Error> {
    let (Some(fasta), Some(c_prefix)) = (crate::c_path(reference), crate::c_path(prefix)) else {
        return Err(Error::Usage { message: format!("{} is not a path", reference.display()) });
    };
    let failed = |status| Error::Index {
        engine: L::ENGINE,
        reference: reference.to_owned(),
        ending: format!("status {status}"),
    };
    (builder.build)(&fasta, &c_prefix).map_err(failed)
}
