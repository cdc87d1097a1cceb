//! `godwit-bwa index`: the five index files beside a reference, whole or not at all.
//!
//! bwa's library ends the process on any error, so the work is done by a second copy of this program into a folder of its own,
//! which goes away whatever happens; whole files are then renamed into place.

use std::path::Path;
use std::process::Command;

use godwit_engines::aligner::bwa::INDEX_EXTENSIONS;

use crate::bwa;
use crate::error::Error;

/// Name of the hidden sub-command of the second copy.
pub const PART: &str = "index-part";
/// The file whose presence makes the others an index: renamed last, and taken away first when an index is replaced.
const LAST: &str = ".bwt";

/// Makes the index of a reference.
///
/// # Errors
/// [`Error::File`], [`Error::Index`].
pub fn build(reference: &Path) -> Result<(), Error> {
    let file_error = |action, path: &Path, source| Error::File { action, path: path.to_owned(), source };
    std::fs::File::open(reference).map_err(|source| file_error("read", reference, source))?;
    let folder = reference.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let aside = tempfile::Builder::new().prefix(".godwit-index-").tempdir_in(folder);
    let aside = aside.map_err(|source| file_error("write to", folder, source))?;
    let prefix = aside.path().join("index");
    let program = std::env::current_exe().map_err(|source| file_error("start", Path::new("godwit-bwa"), source))?;
    let status = Command::new(&program).arg(PART).arg(reference).arg(&prefix).status();
    let status = status.map_err(|source| file_error("start", &program, source))?;
    if !status.success() {
        return Err(Error::Index { reference: reference.to_owned(), ending: status.to_string() });
    }
    let last = beside(reference, LAST);
    match std::fs::remove_file(&last) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(file_error("replace", &last, source));
        }
        _ => {}
    }
    let others = INDEX_EXTENSIONS.into_iter().filter(|extension| *extension != LAST);
    for extension in others.chain([LAST]) {
        let target = beside(reference, extension);
        let made = beside(&prefix, extension);
        let synced = std::fs::File::open(&made).and_then(|file| file.sync_all());
        synced.and_then(|()| std::fs::rename(&made, &target)).map_err(|source| file_error("write", &target, source))?;
    }
    Ok(())
}

/// What the second copy does.
///
/// # Errors
/// [`Error::Usage`] for a path with a NUL, [`Error::Index`].
pub fn build_part(reference: &Path, prefix: &Path) -> Result<(), Error> {
    let (Some(fasta), Some(c_prefix)) = (bwa::c_path(reference), bwa::c_path(prefix)) else {
        return Err(Error::Usage { message: format!("{} is not a path", reference.display()) });
    };
    let failed = |status| Error::Index { reference: reference.to_owned(), ending: format!("status {status}") };
    bwa::build_index(&fasta, &c_prefix).map_err(failed)
}

fn beside(path: &Path, extension: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(extension);
    name.into()
}
