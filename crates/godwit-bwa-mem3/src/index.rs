//! Loading an index that was checked.
//!
//! The library ends the process for a file that is missing and may read outside its tables for one that is damaged, so the
//! files are compared with each other first. It also takes an index from shared memory by its file name alone, and marks
//! alternate contigs wherever an `.alt` file lies beside the index; where either is not wanted, it is given links to the files
//! in a directory of their own.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use godwit_engines::aligner::bwa::{IndexKind, IndexState, index_layout};
use godwit_mem::{Error, LoadOptions};
use godwit_model::{Contig, Genome};

use crate::library::LoadedIndex;

/// Files that the library reads. It makes the bases of both strands of `.pac`.
const FILES: [&str; 5] = ["amb", "ann", "pac", "bwt.2bit.64", "alt"];

/// Loads the index, and returns its contigs.
///
/// # Errors
/// [`Error::Load`] and [`Error::Usage`].
pub fn load(options: &LoadOptions<'_>) -> Result<(LoadedIndex, Genome), Error> {
    let wrong = |problem: String| Error::Load { reference: options.reference.to_owned(), problem };
    let genome = match index_layout(options.reference, IndexKind::BwaMem3) {
        Ok(IndexState::Current { genome }) => genome,
        Ok(IndexState::Missing { files }) => {
            let file = files.first().map_or(options.reference, PathBuf::as_path);
            return Err(wrong(format!("{} is missing; run godwit index", file.display())));
        }
        Ok(IndexState::Stale { reason }) => return Err(wrong(reason.to_string())),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let prefix = options.c_prefix()?;
    let has_alternates = genome.contigs().iter().any(|contig| contig.alternate);
    let needs_links = LoadedIndex::is_staged(&prefix) || (options.ignore_alternates && has_alternates);
    if !needs_links {
        return Ok((LoadedIndex::load(&prefix, options.threads).map_err(wrong)?, genome));
    }
    let links = links(options).map_err(|error| wrong(format!("cannot link its files: {error}")))?;
    let prefix = links.path().join(links.path().file_name().unwrap_or_default());
    let prefix = CString::new(prefix.as_os_str().as_bytes()).map_err(|error| wrong(error.to_string()))?;
    let index = LoadedIndex::load(&prefix, options.threads).map_err(wrong)?;
    let contigs = genome.contigs().iter().map(|contig| {
        let alternate = contig.alternate && !options.ignore_alternates;
        Contig { alternate, ..contig.clone() }
    });
    Ok((index, Genome::new(contigs.collect())?))
}

/// A directory with links to the files, which have the name of the directory.
fn links(options: &LoadOptions<'_>) -> std::io::Result<tempfile::TempDir> {
    let directory = tempfile::Builder::new().prefix("godwit-index-").tempdir()?;
    let prefix = directory.path().join(directory.path().file_name().unwrap_or_default());
    for extension in FILES {
        let file = std::path::absolute(options.reference.with_added_extension(extension))?;
        let wanted = extension != "alt" || !options.ignore_alternates;
        if wanted && Path::is_file(&file) {
            symlink(&file, prefix.with_added_extension(extension))?;
        }
    }
    Ok(directory)
}
