//! The reference with temporary index files for bcftools.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_formats::fasta;
use godwit_io::bgzf::BlockTable;
use godwit_pipeline::PipelineError;
use godwit_pipeline::scratch::{ScratchDirectory, unique_name};

use super::ContigNames;
use super::call_set::CallSet;

/// A link to a FASTA file in a scratch directory, with its `.fai` and `.gzi` beside the link. Otherwise bcftools would
/// write an index beside the user's file, or use an index that belongs to another file.
#[derive(Debug)]
pub(super) struct IndexedReference {
    original: PathBuf,
    _directory: ScratchDirectory,
    path: PathBuf,
    contigs: HashSet<String>,
}

impl IndexedReference {
    /// Reads a whole FASTA file, uncompressed or BGZF, and writes its index files into a scratch directory.
    pub(super) fn open(original: &Path, temp: Option<&Path>, cancelled: &AtomicBool) -> Result<Self, PipelineError> {
        let failed = |source| PipelineError::Fasta { path: original.to_owned(), source };
        let blocks = fasta::read_block_table(original).map_err(failed)?;
        let records = fasta::build_fai_with(original, |_| !cancelled.load(Ordering::Relaxed)).map_err(failed)?;
        if cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        let directory =
            temp.map_or_else(std::env::temp_dir, Path::to_owned).join(format!(".godwit-compare-{}", unique_name()));
        let failed = |source| PipelineError::file("use", &directory)(source);
        let scratch = ScratchDirectory::create(&directory).map_err(failed)?;
        let path = scratch.path().join("reference.fa");
        let contigs = records.iter().map(|record| record.name.clone()).collect();
        let reference = Self { original: original.to_owned(), _directory: scratch, path, contigs };
        reference.write_links_and_indexes(&records, blocks.as_ref()).map_err(failed)?;
        Ok(reference)
    }

    fn write_links_and_indexes(&self, records: &[fasta::FaiRecord], blocks: Option<&BlockTable>) -> io::Result<()> {
        let original = std::path::absolute(&self.original)?;
        symlink(&original, &self.path)?;
        if let Some(blocks) = blocks {
            let mut gzi = Vec::new();
            blocks.write_gzi(&mut gzi)?;
            fs::write(self.path.with_added_extension("gzi"), gzi)?;
        }
        let mut fai = Vec::new();
        fasta::write_fai(records, &mut fai)?;
        fs::write(self.path.with_added_extension("fai"), fai)
    }

    /// Returns the path of the link, which bcftools reads.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the reference from the command line.
    pub(super) fn original_path(&self) -> &Path {
        &self.original
    }

    /// Rejects a call set with alleles on a contig that the reference does not have.
    pub(super) fn check_contigs(&self, set: &CallSet, contigs: &ContigNames) -> Result<(), PipelineError> {
        let missing = set.contigs().into_iter().map(|id| contigs.name(id)).find(|name| !self.contigs.contains(*name));
        let Some(name) = missing else { return Ok(()) };
        let problem = format!(
            "{} has variants on contig {name:?}, which is not in the reference {}; give the reference of the variants",
            set.path().display(),
            self.original.display()
        );
        Err(PipelineError::Incomparable { problem })
    }
}
