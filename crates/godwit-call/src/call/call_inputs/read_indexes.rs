//! Checks that the indexes beside a file of reads belong to it. A caller that uses the index of another file may find
//! no reads and report no error.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_cram::IndexEntry;
use godwit_formats::bam::BamFile;
use godwit_formats::binning_index::{IndexReadError, IndexSummary, index_paths};
use godwit_io::bgzf;
use godwit_io::random_access::LocalFile;
use godwit_pipeline::{AlignmentsError, PipelineError};

/// Extensions of the indexes of a BAM, in the order in which they are used.
pub(super) const BAM_INDEX_EXTENSIONS: [&str; 2] = ["bai", "csi"];
/// Maximum number of contigs of a BAM, or of slices of a CRAM, at which an index is compared with its file. Each costs
/// up to two reads of 64 KiB for each file and worker. The offsets in the index of another file are wrong almost
/// everywhere, so a few suffice, also for genomes of 100,000 scaffolds.
const MAX_COMPARED_PLACES: usize = 10;

/// Checks all indexes beside a BAM, because callers differ in which one they use: htslib 1.16 prefers `.csi`, GATK
/// `.bai`.
///
/// # Errors
/// [`PipelineError::Corrupt`] for an index that is damaged or belongs to another file; [`PipelineError::File`] or
/// [`PipelineError::Alignments`] if a file cannot be read.
pub(super) fn check_bam_indexes(path: &Path) -> Result<(), PipelineError> {
    let failed = |error| PipelineError::alignments(path, AlignmentsError::Bam(error));
    let source = LocalFile::open(path).map_err(PipelineError::file("read", path))?;
    let bam = BamFile::open(Arc::new(source)).map_err(failed)?;
    let contigs = bam.genome().contigs().len();
    for index in index_paths(path, &BAM_INDEX_EXTENSIONS).filter(|index| index.is_file()) {
        let summary = IndexSummary::read(&index, contigs).map_err(|error| index_read_error(path, &index, error))?;
        let mismatch = bam.find_index_mismatch(&summary.contig_chunks, MAX_COMPARED_PLACES).map_err(failed)?;
        if let Some(mismatch) = mismatch {
            return Err(other_index_error(path, &index, &mismatch.to_string()));
        }
    }
    Ok(())
}

/// Checks the index of a CRAM.
///
/// # Errors
/// The errors of [`check_bam_indexes`].
pub(super) fn check_cram_index(path: &Path, index: &Path) -> Result<(), PipelineError> {
    let input = bgzf::open_text(index, 1).map_err(|error| index_read_error(path, index, error.into()))?;
    let text = std::io::read_to_string(input).map_err(PipelineError::file("read", index))?;
    let entries = IndexEntry::parse_all(&text).map_err(|error| other_index_error(path, index, &error.to_string()))?;
    let mismatch = File::open(path)
        .and_then(|cram| godwit_cram::find_index_mismatch(&cram, &entries, MAX_COMPARED_PLACES))
        .map_err(PipelineError::file("read", path))?;
    mismatch.map_or(Ok(()), |mismatch| Err(other_index_error(path, index, &mismatch.to_string())))
}

/// Returns the error for an index that cannot be read.
pub(super) fn index_read_error(path: &Path, index: &Path, error: IndexReadError) -> PipelineError {
    match error {
        IndexReadError::Bgzf(bgzf::BgzfError::Io { source, .. }) => {
            PipelineError::File { action: "read", path: index.to_owned(), source }
        }
        error => PipelineError::Corrupt {
            path: index.to_owned(),
            problem: format!("{error}; create it again with `samtools index {}`", path.display()),
        },
    }
}

fn other_index_error(path: &Path, index: &Path, problem: &str) -> PipelineError {
    let reads = path.display();
    let problem = format!(
        "it is not the index of {reads}, or {reads} is damaged: {problem}; remove it, and create it again with \
         `samtools index {reads}`"
    );
    PipelineError::Corrupt { path: PathBuf::from(index), problem }
}
