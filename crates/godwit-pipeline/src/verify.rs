//! Verification of files against their manifest, and of a BAM without a manifest by its own structure.
//!
//! With a manifest, every byte is verified by checksums, and records are counted in each segment, on all threads.
//! Without a manifest, a BAM is read completely: BGZF blocks, end-of-file marker, all records, the sort order that the
//! header states, and the index: its record counts, and the offsets of the records of each contig. This does not detect
//! a file that was cut between blocks and given an end-of-file marker, unless it has an index.

mod bam_structure;
mod segments;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_files::parent_directory;
use godwit_model::message_with_causes;

use crate::error::PipelineError;
use crate::manifest::{MANIFEST_SUFFIX, Manifest, ManifestFile, manifests_in, range_checksum};

/// The result of verifying a file.
#[derive(Debug)]
pub struct FileCheck {
    /// Path of the file.
    pub path: PathBuf,
    /// The outcome of the verification.
    pub outcome: VerifyOutcome,
}

/// The outcome of verifying a file.
#[derive(Debug)]
pub enum VerifyOutcome {
    /// The file matches its manifest.
    Matches {
        /// Number of records; `None` for a file without records.
        records: Option<u64>,
    },
    /// The file has no manifest, and the file itself has no defect.
    Sound {
        /// Number of records in the file.
        records: u64,
        /// True if the file has an index. The index agrees with the file.
        indexed: bool,
    },
    /// The file is damaged, or differs from its manifest.
    Corrupt {
        /// The problem, for the message to the user.
        problem: String,
    },
    /// A manifest lists the file, but the file does not exist.
    Missing,
    /// The file exists, but this machine cannot read it.
    Unreadable {
        /// The I/O error of the operating system.
        problem: String,
    },
}

/// Verifies a single file, all files of a manifest, or all files of the manifests in a directory. If one of several
/// files cannot be read, the other files are still verified.
///
/// # Errors
/// [`PipelineError::Missing`] if `path` does not exist or is a directory without files to verify.
/// [`PipelineError::File`] if a single file cannot be read. [`PipelineError::Options`] if a file has no manifest, is not
/// a BAM, and is not named like one.
pub fn verify(path: &Path, threads: usize, cancelled: &AtomicBool) -> Result<Vec<FileCheck>, PipelineError> {
    let found = fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound if path.symlink_metadata().is_err() => missing_file_error(path),
        _ => PipelineError::File { action: "read", path: path.to_owned(), source },
    });
    let work = Verifier { threads, cancelled };
    match found {
        Ok(found) if found.is_dir() => work.verify_directory(path),
        Ok(_) if file_name(path).ends_with(MANIFEST_SUFFIX) => work.verify_manifest(path),
        Ok(_) => match find_manifest(path)? {
            Some((manifest, at)) => {
                let entry = manifest.files[at].clone();
                Ok(vec![work.verify_file(path.to_owned(), &entry)?])
            }
            None => Ok(vec![work.verify_bam(path)?]),
        },
        Err(error) => Err(error),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the error for a path that does not exist. It mentions a manifest that lists the file.
fn missing_file_error(path: &Path) -> PipelineError {
    let remedy = match find_manifest(path) {
        Ok(Some(_)) => {
            "a manifest beside it lists this file: the file was removed, or was not copied with the other files"
        }
        _ => "check the path",
    };
    PipelineError::Missing { description: "the file", path: path.to_owned(), remedy: remedy.to_owned() }
}

fn read_manifest(path: &Path) -> Result<Manifest, PipelineError> {
    let manifest = Manifest::read(path).map_err(PipelineError::file("read", path))?;
    manifest.ok_or_else(|| PipelineError::Corrupt {
        path: path.to_owned(),
        problem: "it is not a manifest of godwit".into(),
    })
}

/// Returns the manifest that lists a file and is in the same directory, with the index of the file in the manifest.
/// Returns `None` if there is no such manifest.
fn find_manifest(path: &Path) -> Result<Option<(Manifest, usize)>, PipelineError> {
    let directory = parent_directory(path);
    if !directory.is_dir() {
        return Ok(None);
    }
    for candidate in manifests_in(directory).map_err(PipelineError::file("read", directory))? {
        let manifest = read_manifest(&candidate)?;
        if let Some(at) = manifest.files.iter().position(|file| file.name == file_name(path)) {
            return Ok(Some((manifest, at)));
        }
    }
    Ok(None)
}

/// Returns the outcome for a file whose verification failed, so that the other files are still verified.
///
/// # Errors
/// [`PipelineError::Interrupted`] if the verification was cancelled.
fn outcome_of_error(path: PathBuf, error: PipelineError) -> Result<FileCheck, PipelineError> {
    let outcome = match error {
        PipelineError::Interrupted => return Err(error),
        PipelineError::Corrupt { problem, .. } => VerifyOutcome::Corrupt { problem },
        PipelineError::File { source, .. } => VerifyOutcome::Unreadable { problem: source.to_string() },
        error => VerifyOutcome::Unreadable { problem: message_with_causes(&error) },
    };
    Ok(FileCheck { path, outcome })
}

struct Verifier<'w> {
    threads: usize,
    cancelled: &'w AtomicBool,
}

impl Verifier<'_> {
    fn verify_directory(&self, path: &Path) -> Result<Vec<FileCheck>, PipelineError> {
        let (mut checks, mut named) = (Vec::new(), Vec::new());
        for manifest in manifests_in(path).map_err(PipelineError::file("read", path))? {
            let found = match self.verify_manifest(&manifest) {
                Ok(found) => found,
                Err(error) => vec![outcome_of_error(manifest, error)?],
            };
            named.extend(found.iter().map(|check| check.path.clone()));
            checks.extend(found);
        }
        let failed = |error| PipelineError::file("read", path)(error);
        let entries = fs::read_dir(path).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let mut unnamed: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        unnamed.retain(|path| {
            path.extension().is_some_and(|extension| extension == "bam")
                && !file_name(path).starts_with('.')
                && !named.contains(path)
        });
        unnamed.sort();
        for bam in unnamed {
            let check = self.verify_bam(&bam);
            checks.push(check.or_else(|error| outcome_of_error(bam, error))?);
        }
        if checks.is_empty() {
            let remedy = "give a directory that godwit wrote to, or a file".to_owned();
            return Err(PipelineError::Missing { description: "a manifest in", path: path.to_owned(), remedy });
        }
        Ok(checks)
    }

    fn verify_manifest(&self, path: &Path) -> Result<Vec<FileCheck>, PipelineError> {
        let manifest = read_manifest(path)?;
        let check = |entry: &ManifestFile| {
            let path = path.with_file_name(&entry.name);
            self.verify_file(path.clone(), entry).or_else(|error| outcome_of_error(path, error))
        };
        manifest.files.iter().map(check).collect()
    }

    /// Verifies a file against its entry in the manifest.
    fn verify_file(&self, path: PathBuf, entry: &ManifestFile) -> Result<FileCheck, PipelineError> {
        let failed = |error| PipelineError::file("read", &path)(error);
        let found = match fs::metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(FileCheck { path, outcome: VerifyOutcome::Missing });
            }
            Err(error) => return Err(failed(error)),
        };
        if !found.is_file() {
            // Do not open a path that is not a regular file: opening a pipe would block.
            let problem = "it is not a regular file".to_owned();
            return Ok(FileCheck { path, outcome: VerifyOutcome::Corrupt { problem } });
        }
        let (file, bytes) = (fs::File::open(&path).map_err(failed)?, found.len());
        let problem = if bytes != entry.bytes {
            Some(format!("it has {bytes} bytes instead of {} as in its manifest", entry.bytes))
        } else if let Some(expected) = &entry.blake3 {
            let found = range_checksum(&file, 0, bytes).map_err(failed)?;
            (found != *expected).then(|| "its checksum differs from that in its manifest".to_owned())
        } else {
            self.verify_segments(&file, entry).map_err(|error| match error.kind() {
                io::ErrorKind::Interrupted => PipelineError::Interrupted,
                _ => failed(error),
            })?
        };
        let outcome = match problem {
            Some(problem) => VerifyOutcome::Corrupt { problem },
            None => VerifyOutcome::Matches { records: entry.records },
        };
        Ok(FileCheck { path, outcome })
    }
}
