//! Files against their manifest; a BAM without one by itself.
//!
//! With a manifest every byte is compared by checksum, and records are counted where there are any, segment by segment
//! on all threads. Without one a BAM is read from end to end: blocks, end mark, every record, the order it claims, and
//! its index. That finds damage, but not a file whose end was cut off with care, unless an index counts the records.

mod segments;
mod structure;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_formats::with_causes;

use crate::error::PipelineError;
use crate::manifest::{Manifest, ManifestFile, SUFFIX, checksum};

/// What was found about one file.
#[derive(Debug)]
pub struct Check {
    /// The file.
    pub path: PathBuf,
    /// What is known of it.
    pub verdict: Verdict,
}

/// The outcome for a file.
#[derive(Debug)]
pub enum Verdict {
    /// It is what its manifest says.
    Matches {
        /// Records in it, where it holds any.
        records: Option<u64>,
    },
    /// It has no manifest, and nothing is wrong with it by itself.
    Sound {
        /// Records in it.
        records: u64,
        /// Whether an index was there, and agrees.
        indexed: bool,
    },
    /// It is not what it should be.
    Corrupt {
        /// What is wrong.
        problem: String,
    },
    /// A manifest names it, and it is not there.
    Missing,
    /// It is there, and this machine cannot read it.
    Unreadable {
        /// The I/O error of the system.
        problem: String,
    },
}

/// Checks a file, the files of a manifest, or everything that the manifests in a directory name. Of several files, one that cannot be
/// checked does not keep the others from being checked.
///
/// # Errors
/// [`PipelineError::Missing`] where there is nothing at `path` or nothing to check in it, [`PipelineError::File`] where
/// something cannot be read, [`PipelineError::Options`] for a file that has no manifest and is no BAM.
pub fn verify(path: &Path, threads: usize, cancelled: &AtomicBool) -> Result<Vec<Check>, PipelineError> {
    let found = fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound if path.symlink_metadata().is_err() => named_only(path),
        _ => PipelineError::File { action: "read", path: path.to_owned(), source },
    });
    let work = Work { threads, cancelled };
    match found {
        Ok(found) if found.is_dir() => work.directory(path),
        Ok(_) if name_of(path).ends_with(SUFFIX) => work.manifest(path),
        Ok(_) => match manifest_of(path)? {
            Some((manifest, at)) => {
                let entry = manifest.files[at].clone();
                Ok(vec![work.file(path.to_owned(), &entry)?])
            }
            None => Ok(vec![work.alone(path)?]),
        },
        Err(error) => Err(error),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A path where nothing is.
fn named_only(path: &Path) -> PipelineError {
    let remedy = match manifest_of(path) {
        Ok(Some(_)) => "a manifest beside it names it: it was removed, or not copied along",
        _ => "check the path",
    };
    PipelineError::Missing { what: "the file", path: path.to_owned(), remedy: remedy.to_owned() }
}

/// The manifests in a directory, by name.
fn manifests_in(directory: &Path) -> Result<Vec<PathBuf>, PipelineError> {
    let failed = |error| PipelineError::file("read", directory)(error);
    let mut manifests = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if name_of(&path).ends_with(SUFFIX) && !name_of(&path).starts_with('.') {
            manifests.push(path);
        }
    }
    manifests.sort();
    Ok(manifests)
}

fn read_manifest(path: &Path) -> Result<Manifest, PipelineError> {
    let manifest = Manifest::read(path).map_err(PipelineError::file("read", path))?;
    manifest.ok_or_else(|| PipelineError::Corrupt { path: path.to_owned(), problem: "it is no manifest".into() })
}

/// The manifest beside a file that names it, and where.
fn manifest_of(path: &Path) -> Result<Option<(Manifest, usize)>, PipelineError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Ok(None);
    }
    for candidate in manifests_in(directory)? {
        let manifest = read_manifest(&candidate)?;
        if let Some(at) = manifest.files.iter().position(|file| file.name == name_of(path)) {
            return Ok(Some((manifest, at)));
        }
    }
    Ok(None)
}

/// The verdict on one of several files whose check failed.
///
/// # Errors
/// [`PipelineError::Interrupted`]: no further file is checked.
fn verdict_of(path: PathBuf, error: PipelineError) -> Result<Check, PipelineError> {
    let verdict = match error {
        PipelineError::Interrupted => return Err(error),
        PipelineError::Corrupt { problem, .. } => Verdict::Corrupt { problem },
        PipelineError::File { source, .. } => Verdict::Unreadable { problem: source.to_string() },
        error => Verdict::Unreadable { problem: with_causes(&error) },
    };
    Ok(Check { path, verdict })
}

struct Work<'w> {
    threads: usize,
    cancelled: &'w AtomicBool,
}

impl Work<'_> {
    fn directory(&self, path: &Path) -> Result<Vec<Check>, PipelineError> {
        let (mut checks, mut named) = (Vec::new(), Vec::new());
        for manifest in manifests_in(path)? {
            let found = match self.manifest(&manifest) {
                Ok(found) => found,
                Err(error) => vec![verdict_of(manifest, error)?],
            };
            named.extend(found.iter().map(|check| check.path.clone()));
            checks.extend(found);
        }
        let failed = |error| PipelineError::file("read", path)(error);
        let entries = fs::read_dir(path).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let mut unnamed: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        unnamed.retain(|path| {
            path.extension().is_some_and(|extension| extension == "bam")
                && !name_of(path).starts_with('.')
                && !named.contains(path)
        });
        unnamed.sort();
        for bam in unnamed {
            let check = self.alone(&bam);
            checks.push(check.or_else(|error| verdict_of(bam, error))?);
        }
        if checks.is_empty() {
            let remedy = "name the directory that godwit wrote to, or a file".to_owned();
            return Err(PipelineError::Missing { what: "a manifest in", path: path.to_owned(), remedy });
        }
        Ok(checks)
    }

    fn manifest(&self, path: &Path) -> Result<Vec<Check>, PipelineError> {
        let manifest = read_manifest(path)?;
        let check = |entry: &ManifestFile| {
            let path = path.with_file_name(&entry.name);
            self.file(path.clone(), entry).or_else(|error| verdict_of(path, error))
        };
        manifest.files.iter().map(check).collect()
    }

    /// A file against its entry.
    fn file(&self, path: PathBuf, entry: &ManifestFile) -> Result<Check, PipelineError> {
        let failed = |error| PipelineError::file("read", &path)(error);
        let found = match fs::metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Check { path, verdict: Verdict::Missing });
            }
            Err(error) => return Err(failed(error)),
        };
        if !found.is_file() {
            // A pipe would be waited for.
            let problem = "it is no regular file, but its manifest says so".to_owned();
            return Ok(Check { path, verdict: Verdict::Corrupt { problem } });
        }
        let (file, bytes) = (fs::File::open(&path).map_err(failed)?, found.len());
        let problem = if bytes != entry.bytes {
            Some(format!("it has {bytes} bytes, but its manifest says {}", entry.bytes))
        } else if let Some(expected) = &entry.blake3 {
            let found = checksum(&file, 0, bytes).map_err(failed)?;
            (found != *expected).then(|| "its content is not what its manifest says: the checksum differs".to_owned())
        } else {
            self.segments(&file, entry).map_err(|error| match error.kind() {
                io::ErrorKind::Interrupted => PipelineError::Interrupted,
                _ => failed(error),
            })?
        };
        let verdict = match problem {
            Some(problem) => Verdict::Corrupt { problem },
            None => Verdict::Matches { records: entry.records },
        };
        Ok(Check { path, verdict })
    }
}
