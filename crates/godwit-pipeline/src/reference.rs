//! The reference and its index.

use std::path::{Path, PathBuf};

use godwit_engines::aligner::bwa::{self, IndexState, index_state};
use godwit_formats::fasta::{self, FastaError};
use godwit_model::Genome;

use crate::error::PipelineError;
use crate::observer::{Event, Observer};
use crate::staging::write_whole;

/// The contigs of a reference whose index is there and belongs to it.
///
/// # Errors
/// [`PipelineError::Missing`], [`PipelineError::StaleIndex`] and [`PipelineError::Index`].
pub fn current_index(reference: &Path) -> Result<Genome, PipelineError> {
    match state_of(reference)? {
        IndexState::Current { genome } => Ok(genome),
        IndexState::Missing { files } => {
            let path = files.first().map_or(reference, PathBuf::as_path).to_owned();
            let remedy = format!("run `godwit index {}`", reference.display());
            Err(PipelineError::Missing { what: "the index file", path, remedy })
        }
        IndexState::Stale { reason } => Err(PipelineError::StaleIndex { reference: reference.to_owned(), reason }),
    }
}

fn state_of(reference: &Path) -> Result<IndexState, PipelineError> {
    if !reference.exists() {
        let remedy = "check its path".to_owned();
        return Err(PipelineError::Missing { what: "the reference", path: reference.to_owned(), remedy });
    }
    index_state(reference).map_err(|source| PipelineError::Index { reference: reference.to_owned(), source })
}

/// Makes everything the aligner and other tools need beside a reference: bwa's index and the `.fai` of plain FASTA.
/// Returns whether anything had to be made.
///
/// # Errors
/// [`PipelineError`]; a file has its name only when it is whole.
pub fn build_index(reference: &Path, observer: &dyn Observer) -> Result<bool, PipelineError> {
    observer.event(&Event::Stage { name: "checking the reference" });
    let current = matches!(state_of(reference)?, IndexState::Current { .. });
    let fai_written = write_fai(reference)?;
    if !current {
        observer.event(&Event::Stage { name: "indexing" });
        bwa::build_index(reference, None)?;
        current_index(reference)?;
    }
    Ok(fai_written || !current)
}

/// Writes `REF.fa.fai` unless it says the same already. Compressed FASTA has none.
fn write_fai(reference: &Path) -> Result<bool, PipelineError> {
    let failed = |source| PipelineError::Fasta { path: reference.to_owned(), source };
    let contigs = match fasta::index(reference) {
        Ok(contigs) => contigs,
        Err(FastaError::Compressed { .. }) => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    let mut path = reference.to_owned().into_os_string();
    path.push(".fai");
    let path = PathBuf::from(path);
    let mut text = Vec::new();
    fasta::write_fai(&contigs, &mut text).map_err(PipelineError::file("write", &path))?;
    if std::fs::read(&path).is_ok_and(|present| present == text) {
        return Ok(false);
    }
    write_whole(&path, &text).map_err(PipelineError::file("write", &path))?;
    Ok(true)
}
