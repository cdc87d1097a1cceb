//! The reference and its index.

use std::path::{Path, PathBuf};

use godwit_engines::EngineError;
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::aligner::bwa::{self, IndexKind, IndexState, index_state};
use godwit_engines::aligner::minimap2::Minimap2;
use godwit_formats::fasta::{self, FastaError};
use godwit_model::Genome;

use crate::error::PipelineError;
use crate::observer::{Event, Observer};
use crate::staging::write_whole;

/// The contigs of a reference whose index for bwa or bwa-mem3 is there and belongs to it.
///
/// # Errors
/// [`PipelineError::Missing`], [`PipelineError::StaleIndex`] and [`PipelineError::Index`].
pub fn current_index(reference: &Path, kind: IndexKind) -> Result<Genome, PipelineError> {
    refuse_absent(reference, kind, state_of(reference, kind)?)
}

/// The contigs of an index that is there.
///
/// # Errors
/// [`PipelineError::Missing`] and [`PipelineError::StaleIndex`].
pub(crate) fn refuse_absent(reference: &Path, kind: IndexKind, state: IndexState) -> Result<Genome, PipelineError> {
    match state {
        IndexState::Current { genome } => Ok(genome),
        IndexState::Missing { files } => {
            let path = files.first().map_or(reference, PathBuf::as_path).to_owned();
            let aligner = if kind == IndexKind::Bwa { "" } else { " --aligner bwa-mem3" };
            let remedy = format!("run `godwit index {}{aligner}`", reference.display());
            Err(PipelineError::Missing { what: "the index file", path, remedy })
        }
        IndexState::Stale { reason } => Err(PipelineError::StaleIndex { reference: reference.to_owned(), reason }),
    }
}

/// Whether the reference is there.
///
/// # Errors
/// [`PipelineError::Missing`].
fn must_exist(reference: &Path) -> Result<(), PipelineError> {
    if !reference.exists() {
        let remedy = "check its path".to_owned();
        return Err(PipelineError::Missing { what: "the reference", path: reference.to_owned(), remedy });
    }
    Ok(())
}

fn state_of(reference: &Path, kind: IndexKind) -> Result<IndexState, PipelineError> {
    must_exist(reference)?;
    index_state(reference, kind).map_err(|source| PipelineError::Index { reference: reference.to_owned(), source })
}

/// Makes everything the aligner and other tools need beside a reference: the aligner's index and the `.fai` of plain
/// FASTA. Returns whether anything had to be made.
///
/// `arguments`: options of minimap2, whose index depends on its preset.
///
/// # Errors
/// [`PipelineError`]; a file has its name only when it is whole.
pub fn build_index(
    reference: &Path,
    aligner: &AlignerChoice,
    arguments: &[String],
    threads: usize,
    observer: &dyn Observer,
) -> Result<bool, PipelineError> {
    observer.event(&Event::Stage { name: "checking the reference" });
    let kind = match aligner {
        AlignerChoice::Auto | AlignerChoice::Bwa => IndexKind::Bwa,
        AlignerChoice::BwaMem3 | AlignerChoice::BwaMem2 => IndexKind::BwaMem3,
        AlignerChoice::Minimap2 => return build_minimap2_index(reference, arguments, threads, observer),
        AlignerChoice::Template(template) => {
            let problem = format!(
                "godwit does not know how {} makes its index; make it with its own tool beside {}",
                template.name(),
                reference.display()
            );
            return Err(PipelineError::Options { problem });
        }
    };
    let current = matches!(state_of(reference, kind)?, IndexState::Current { .. });
    let fai_written = write_fai(reference)?;
    if !current {
        observer.event(&Event::Stage { name: "indexing" });
        bwa::build_index(reference, kind, None)?;
        current_index(reference, kind)?;
    }
    Ok(fai_written || !current)
}

fn build_minimap2_index(
    reference: &Path,
    arguments: &[String],
    threads: usize,
    observer: &dyn Observer,
) -> Result<bool, PipelineError> {
    must_exist(reference)?;
    let minimap2 = Minimap2::find(arguments)?;
    let current = match minimap2.check_index(reference) {
        Ok(_) => true,
        Err(EngineError::MissingIndex { .. } | EngineError::WrongIndex { .. }) => false,
        Err(error) => return Err(error.into()),
    };
    let fai_written = write_fai(reference)?;
    if !current {
        observer.event(&Event::Stage { name: "indexing" });
        minimap2.build_index(reference, threads)?;
        minimap2.check_index(reference)?;
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
    let path = reference.with_added_extension("fai");
    let mut text = Vec::new();
    fasta::write_fai(&contigs, &mut text).map_err(PipelineError::file("write", &path))?;
    if std::fs::read(&path).is_ok_and(|present| present == text) {
        return Ok(false);
    }
    write_whole(&path, &text).map_err(PipelineError::file("write", &path))?;
    Ok(true)
}
