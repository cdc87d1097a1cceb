//! The VCF files of a comparison: files, output directories of `align --call` or `call`, and files on servers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use godwit_cli::cli::CompareArgs;
use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use godwit_process::TemporaryItem;
use godwit_workflow::RemoteFiles as _;
use tempfile::TempDir;

use crate::interruption;
use crate::verbs::remote_file_transfer::RemoteFileTransfer;
use crate::verbs::scratch_directory;

/// The paths of the VCF files. Dropping this value removes the downloaded ones.
pub(super) struct InputFiles {
    pub(super) calls: PathBuf,
    pub(super) truth: PathBuf,
    pub(super) baseline: Option<PathBuf>,
    _downloads: Vec<TemporaryItem<TempDir>>,
}

impl InputFiles {
    /// Finds the files in directories, and downloads those on servers.
    pub(super) fn open(args: &CompareArgs) -> Result<Self, Failure> {
        let mut downloads = Vec::new();
        let mut open = |given: &Path| -> Result<PathBuf, Failure> {
            let Some(address) = given.to_str().filter(|text| text.contains("://")) else {
                return if given.is_dir() { vcf_in(given) } else { Ok(given.to_owned()) };
            };
            let (directory, path) = download(address, args)?;
            downloads.push(directory);
            Ok(path)
        };
        let (calls, truth) = (open(&args.calls)?, open(&args.truth)?);
        let baseline = args.baseline.as_deref().map(open).transpose()?;
        Ok(Self { calls, truth, baseline, _downloads: downloads })
    }
}

/// Downloads a file into a temporary directory of its own.
fn download(address: &str, args: &CompareArgs) -> Result<(TemporaryItem<TempDir>, PathBuf), Failure> {
    let transfer = RemoteFileTransfer::new(args.access.clone(), args.common.json, args.common.thread_count());
    transfer.check_source(address).map_err(|problem| Failure::new(ErrorKind::Usage, problem))?;
    let scratch = scratch_directory(&args.common);
    let create = || tempfile::Builder::new().prefix("godwit-compare-").tempdir_in(&scratch);
    let directory = TemporaryItem::create(create).map_err(|error| {
        let problem = format!("cannot create a directory in {}: {error}; name another with --temp", scratch.display());
        Failure::new(ErrorKind::Machine, problem)
    })?;
    let name = address.trim_end_matches('/').rsplit('/').next().unwrap_or(address);
    let path = directory.path().join(name);
    transfer.fetch_file(address, &path, &interruption::flag())?;
    Ok((directory, path))
}

/// Returns the VCF file in an output directory.
fn vcf_in(directory: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| {
        let problem = format!("cannot list {}: {error}", directory.display());
        Failure::new(ErrorKind::Machine, problem)
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".vcf.gz") && !name.ends_with(".g.vcf.gz") && !name.starts_with('.') {
            found.push((name, path));
        }
    }
    found.sort();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    match &found[..] {
        [(_, path)] => Ok(path.clone()),
        [] => {
            let problem = format!("{} has no file whose name ends in .vcf.gz; name a VCF file", directory.display());
            Err(Failure::new(ErrorKind::Usage, problem))
        }
        _ => {
            let problem = format!("{} has several VCF files: {}; name one", directory.display(), names.join(", "));
            Err(Failure::new(ErrorKind::Usage, problem))
        }
    }
}
