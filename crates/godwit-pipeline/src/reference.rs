//! The reference and its index.

mod fm_index;

use std::path::{Path, PathBuf};

use godwit_engines::EngineError;
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::aligner::bwa::{self, IndexKind, IndexState, index_state};
use godwit_engines::aligner::minimap2::Minimap2;
use godwit_formats::fasta;
use godwit_model::Genome;

use crate::call::write_gzi;
use crate::error::PipelineError;
use crate::observer::{Event, Observer};
use crate::staging::write_whole;

/// The contigs of a reference whose index for bwa or bwa-mem3 is there and belongs to it.
///
/// # Errors
/// [`PipelineError::Missing`], [`PipelineError::StaleIndex`] and [`PipelineError::Index`].
pub fn current_index(reference: &Path, kind: IndexKind) -> Result<Genome, PipelineError> {
    refuse_absent(reference, state_of(reference, kind)?)
}

/// The contigs of an index that is there.
///
/// # Errors
/// [`PipelineError::Missing`] and [`PipelineError::StaleIndex`].
pub(crate) fn refuse_absent(reference: &Path, state: IndexState) -> Result<Genome, PipelineError> {
    match state {
        IndexState::Current { genome } => Ok(genome),
        IndexState::Missing { files } => {
            let path = files.first().map_or(reference, PathBuf::as_path).to_owned();
            let remedy = format!("run `godwit index {}`", reference.display());
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

/// Checks that bases of a reference can be read at any place, as metrics, CRAM and callers do.
///
/// # Errors
/// [`PipelineError::Missing`], [`PipelineError::Fasta`].
pub(crate) fn check_access(reference: &Path) -> Result<(), PipelineError> {
    must_exist(reference)?;
    fasta::check_access(reference).map_err(|source| PipelineError::Fasta { path: reference.to_owned(), source })
}

fn state_of(reference: &Path, kind: IndexKind) -> Result<IndexState, PipelineError> {
    must_exist(reference)?;
    index_state(reference, kind).map_err(|source| PipelineError::Index { reference: reference.to_owned(), source })
}

/// Options of [`build_index`].
pub struct IndexOptions<'a> {
    /// The reference, FASTA.
    pub reference: &'a Path,
    /// The aligner. `auto`: bwa and bwa-mem3.
    pub aligner: &'a AlignerChoice,
    /// Options of minimap2, whose index depends on its preset.
    pub arguments: &'a [String],
    /// Bytes of memory that the index of bwa-mem3 may take when it is loaded.
    pub memory_bytes: Option<u64>,
    /// Threads, at least 1.
    pub threads: usize,
}

/// Makes everything the aligner and other tools need beside a reference: the aligner's index, the `.fai`, and the `.gzi` of
/// a reference that is compressed with bgzip. Returns whether anything had to be made.
///
/// # Errors
/// [`PipelineError`]; a file has its name only when it is whole.
pub fn build_index(options: &IndexOptions<'_>, observer: &dyn Observer) -> Result<bool, PipelineError> {
    let reference = options.reference;
    observer.event(&Event::Stage { name: "checking the reference" });
    let has_samples = matches!(options.aligner, AlignerChoice::Auto | AlignerChoice::BwaMem3 | AlignerChoice::BwaMem2);
    if options.memory_bytes.is_some() && !has_samples {
        let problem =
            format!("--index-memory is for the index of bwa-mem3, not for that of {}", options.aligner.name());
        return Err(PipelineError::Options { problem });
    }
    match options.aligner {
        AlignerChoice::Auto | AlignerChoice::BwaMem3 | AlignerChoice::BwaMem2 => build_all(options, observer),
        AlignerChoice::Bwa => build_own(reference, IndexKind::Bwa, observer),
        AlignerChoice::Minimap2 => build_minimap2_index(reference, options.arguments, options.threads, observer),
        AlignerChoice::Template(template) => {
            let problem = format!(
                "godwit does not know how {} makes its index; make it with its own tool beside {}",
                template.name(),
                reference.display()
            );
            Err(PipelineError::Options { problem })
        }
    }
}

/// The indexes of bwa and bwa-mem3.
fn build_all(options: &IndexOptions<'_>, observer: &dyn Observer) -> Result<bool, PipelineError> {
    let reference = options.reference;
    must_exist(reference)?;
    let stride = options.memory_bytes.map(|bytes| fm_index::stride_within(reference, bytes)).transpose()?;
    let bwa_built = build_own(reference, IndexKind::Bwa, observer)?;
    let converted = fm_index::build(reference, stride, options.threads, observer)?;
    Ok(bwa_built || converted)
}

/// The index that one of godwit's programs makes.
fn build_own(reference: &Path, kind: IndexKind, observer: &dyn Observer) -> Result<bool, PipelineError> {
    let current = matches!(state_of(reference, kind)?, IndexState::Current { .. });
    let fai_written = write_fai(reference)?;
    if !current {
        make_own(reference, kind, observer)?;
    }
    Ok(fai_written || !current)
}

/// As [`build_own`], whatever is there.
fn make_own(reference: &Path, kind: IndexKind, observer: &dyn Observer) -> Result<(), PipelineError> {
    observer.event(&Event::Stage { name: "indexing" });
    bwa::build_index(reference, kind, None)?;
    current_index(reference, kind)?;
    Ok(())
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

/// Writes `REF.fa.fai`, and `REF.fa.gz.gzi` for BGZF, unless they say the same already.
fn write_fai(reference: &Path) -> Result<bool, PipelineError> {
    let failed = |source| PipelineError::Fasta { path: reference.to_owned(), source };
    let blocks = fasta::block_table(reference).map_err(failed)?;
    let contigs = fasta::index(reference).map_err(failed)?;
    let gzi_written = match blocks {
        Some(blocks) => write_gzi(&blocks, &reference.with_added_extension("gzi"))?,
        None => false,
    };
    let path = reference.with_added_extension("fai");
    let mut text = Vec::new();
    fasta::write_fai(&contigs, &mut text).map_err(PipelineError::file("write", &path))?;
    if std::fs::read(&path).is_ok_and(|present| present == text) {
        return Ok(gzi_written);
    }
    write_whole(&path, &text).map_err(PipelineError::file("write", &path))?;
    Ok(true)
}
