//! Checks an index of bwa-mem3 and loads it.
//!
//! The library exits the process if a file is missing, and may access memory outside its tables if a file is damaged.
//! Therefore the files are checked against each other first. Two other properties of the library need a workaround. It
//! uses an index in shared memory if only the file name matches, and it marks alternate contigs if an `.alt` file
//! exists. To prevent either, it loads the index through symbolic links in a temporary directory.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use godwit_engines::aligner::bwa::{IndexKind, IndexState, index_files_state};
use godwit_mem::{Error, LoadOptions};
use godwit_model::{Contig, Genome};

use crate::library::LoadedIndex;

/// Extensions of the index files that the library reads. It derives the bases of both strands from `.pac`.
const INDEX_EXTENSIONS: [&str; 5] = ["amb", "ann", "pac", "bwt.2bit.64", "alt"];

/// Checks and loads an index. Returns the index and its contigs.
///
/// # Errors
/// [`Error::LoadIndex`] if the index is missing, out of date or damaged; [`Error::Usage`] if its path is invalid.
pub fn load_checked_index(options: &LoadOptions<'_>) -> Result<(LoadedIndex, Genome), Error> {
    let load_error = |problem: String| Error::LoadIndex { reference: options.reference.to_owned(), problem };
    let genome = match index_files_state(options.reference, IndexKind::BwaMem3) {
        Ok(IndexState::Current { genome }) => genome,
        Ok(IndexState::Missing { files }) => {
            let file = files.first().map_or(options.reference, PathBuf::as_path);
            return Err(load_error(format!("{} is missing; run godwit index", file.display())));
        }
        Ok(IndexState::Stale { reason }) => return Err(load_error(reason.to_string())),
        Err(error) => return Err(load_error(error.to_string())),
    };
    let prefix = options.c_prefix()?;
    let has_alternates = genome.contigs().iter().any(|contig| contig.alternate);
    let needs_links = LoadedIndex::is_in_shared_memory(&prefix) || (options.ignore_alternates && has_alternates);
    if !needs_links {
        return Ok((LoadedIndex::load(&prefix, options.threads).map_err(load_error)?, genome));
    }
    let links = link_index_files(options)
        .map_err(|error| load_error(format!("cannot create symbolic links to its files: {error}")))?;
    let prefix = links.path().join(links.path().file_name().unwrap_or_default());
    let prefix = CString::new(prefix.as_os_str().as_bytes()).map_err(|error| load_error(error.to_string()))?;
    let index = LoadedIndex::load(&prefix, options.threads).map_err(load_error)?;
    let contigs = genome.contigs().iter().map(|contig| {
        let alternate = contig.alternate && !options.ignore_alternates;
        Contig { alternate, ..contig.clone() }
    });
    Ok((index, Genome::new(contigs.collect())?))
}

/// Creates a temporary directory with symbolic links to the index files. The links are named after the directory, so
/// that no index in shared memory has this name.
fn link_index_files(options: &LoadOptions<'_>) -> std::io::Result<tempfile::TempDir> {
    let directory = tempfile::Builder::new().prefix("godwit-index-").tempdir()?;
    let prefix = directory.path().join(directory.path().file_name().unwrap_or_default());
    for extension in INDEX_EXTENSIONS {
        let file = std::path::absolute(options.reference.with_added_extension(extension))?;
        let wanted = extension != "alt" || !options.ignore_alternates;
        if wanted && Path::is_file(&file) {
            symlink(&file, prefix.with_added_extension(extension))?;
        }
    }
    Ok(directory)
}
