//! The reference, with an index that bcftools finds beside it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_formats::fasta::{self, IndexEvent};

use super::ContigNames;
use super::call_set::CallSet;
use crate::error::PipelineError;
use crate::scratch::{create_private_directory, unique};

/// A FASTA file under a path of its own, with its `.fai` beside it: bcftools would else write one beside the user's file, or trust one
/// that is of another.
#[derive(Debug)]
pub(super) struct IndexedReference {
    original: PathBuf,
    directory: PathBuf,
    path: PathBuf,
    contigs: HashSet<String>,
}

impl IndexedReference {
    /// Reads a whole FASTA file: plain, or BGZF with a `.gzi` beside it.
    pub(super) fn open(original: &Path, temp: Option<&Path>, cancelled: &AtomicBool) -> Result<Self, PipelineError> {
        let failed = |source| PipelineError::Fasta { path: original.to_owned(), source };
        let mut is_plain = true;
        let records = fasta::index_with(original, |event| {
            if let IndexEvent::Start { compressed } = event {
                is_plain = !compressed;
            }
            !cancelled.load(Ordering::Relaxed)
        })
        .map_err(failed)?;
        if cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        let gzi = original.with_added_extension("gzi");
        if !is_plain && !gzi.exists() {
            let remedy = format!(
                "compress the reference with bgzip and index it with `samtools faidx {}`, or give it uncompressed",
                original.display()
            );
            return Err(PipelineError::Missing { what: "the index", path: gzi, remedy });
        }
        let directory =
            temp.map_or_else(std::env::temp_dir, Path::to_owned).join(format!(".godwit-compare-{}", unique()));
        let path = directory.join("reference.fa");
        let contigs = records.iter().map(|record| record.name.clone()).collect();
        let reference = Self { original: original.to_owned(), directory, path, contigs };
        reference.link(&records, is_plain).map_err(PipelineError::file("use", &reference.directory))?;
        Ok(reference)
    }

    fn link(&self, records: &[fasta::FaiRecord], is_plain: bool) -> io::Result<()> {
        create_private_directory(&self.directory)?;
        let original = std::path::absolute(&self.original)?;
        symlink(&original, &self.path)?;
        if !is_plain {
            symlink(original.with_added_extension("gzi"), self.path.with_added_extension("gzi"))?;
        }
        let mut fai = Vec::new();
        fasta::write_fai(records, &mut fai)?;
        fs::write(self.path.with_added_extension("fai"), fai)
    }

    /// Where bcftools finds it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the user has it.
    pub(super) fn name(&self) -> &Path {
        &self.original
    }

    /// Refuses alleles on contigs that it has not.
    pub(super) fn check_contigs(&self, set: &CallSet, contigs: &ContigNames) -> Result<(), PipelineError> {
        let missing = set.contigs().into_iter().map(|id| contigs.name(id)).find(|name| !self.contigs.contains(*name));
        let Some(name) = missing else { return Ok(()) };
        let problem = format!(
            "{} has variants on {name:?}, a contig that the reference {} has not; give the reference that it was made with",
            set.path().display(),
            self.original.display()
        );
        Err(PipelineError::Incomparable { problem })
    }
}

impl Drop for IndexedReference {
    fn drop(&mut self) {
        // Best effort: nothing but links and an index is lost.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
