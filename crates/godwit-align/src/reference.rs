//! The reference and its index: checks for all jobs, and the subcommand `index`.

mod fm_index;

use std::path::{Path, PathBuf};

use godwit_engines::EngineError;
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::aligner::bwa::{self, IndexKind, IndexState, index_state};
use godwit_engines::aligner::minimap2::Minimap2;
use godwit_files::write_atomically;
use godwit_formats::fasta::{self, FastaError};
use godwit_model::{Contig, Genome};
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::scanned_reference::write_gzi;

/// Returns the contigs of a reference. Checks that its index for bwa or bwa-mem3 exists and belongs to it.
///
/// # Errors
/// [`PipelineError::Missing`], [`PipelineError::StaleIndex`], [`PipelineError::Index`] or [`PipelineError::Fasta`].
pub fn current_index(reference: &Path, kind: IndexKind) -> Result<Genome, PipelineError> {
    require_current_index(reference, read_index_state(reference, kind)?)
}

/// Returns the contigs of an index that is current.
///
/// # Errors
/// [`PipelineError::Missing`] if there is no index, [`PipelineError::StaleIndex`] if the index does not belong to the
/// reference, and [`PipelineError::Fasta`] if SAM does not permit the name of a contig.
pub(crate) fn require_current_index(reference: &Path, state: IndexState) -> Result<Genome, PipelineError> {
    match state {
        IndexState::Current { genome } => {
            check_contig_names(reference, genome.contigs().iter().map(|contig| contig.name.as_str()))?;
            Ok(genome)
        }
        IndexState::Missing { files } => {
            let path = files.first().map_or(reference, PathBuf::as_path).to_owned();
            let remedy = format!("run `godwit index {}`", reference.display());
            Err(PipelineError::Missing { description: "the index file", path, remedy })
        }
        IndexState::Stale { reason } => Err(PipelineError::StaleIndex { reference: reference.to_owned(), reason }),
    }
}

/// Rejects contigs whose names SAM does not permit. Their records could not be distinguished from others: mapped reads of
/// a contig `*` look like unmapped ones.
///
/// # Errors
/// [`PipelineError::Fasta`] with the first of these contigs.
pub(crate) fn check_contig_names<'n>(
    reference: &Path,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<(), PipelineError> {
    let invalid = names.into_iter().enumerate().find(|(_, name)| !Contig::is_valid_name(name));
    let Some((at, name)) = invalid else { return Ok(()) };
    let (path, name) = (reference.to_owned(), name.to_owned());
    let source = FastaError::NotSamName { path: path.clone(), number: at + 1, name };
    Err(PipelineError::Fasta { path, source })
}

/// Checks that the reference file exists.
///
/// # Errors
/// [`PipelineError::Missing`] if the file does not exist.
fn require_file(reference: &Path) -> Result<(), PipelineError> {
    if !reference.exists() {
        let remedy = "check its path".to_owned();
        return Err(PipelineError::Missing { description: "the reference", path: reference.to_owned(), remedy });
    }
    Ok(())
}

/// Checks that the bases of a reference can be read at any position. Metrics, CRAM and variant callers require this.
///
/// # Errors
/// [`PipelineError::Missing`] or [`PipelineError::Fasta`].
pub(crate) fn check_access(reference: &Path) -> Result<(), PipelineError> {
    require_file(reference)?;
    fasta::check_random_access(reference).map_err(|source| PipelineError::Fasta { path: reference.to_owned(), source })
}

fn read_index_state(reference: &Path, kind: IndexKind) -> Result<IndexState, PipelineError> {
    require_file(reference)?;
    index_state(reference, kind).map_err(|source| PipelineError::Index { reference: reference.to_owned(), source })
}

/// Options of [`build_index`].
pub struct IndexOptions<'a> {
    /// Path of the reference in FASTA.
    pub reference: &'a Path,
    /// The aligner for which the index is built; `auto` builds the indexes of bwa and bwa-mem3.
    pub aligner: &'a AlignerChoice,
    /// Options of minimap2, whose index depends on the preset.
    pub arguments: &'a [String],
    /// Maximum memory of the index of bwa-mem3 after loading, bytes.
    pub memory_bytes: Option<u64>,
    /// Number of threads, at least 1.
    pub threads: usize,
}

/// Writes the files that an aligner and other tools need in the directory of a reference: the index of the aligner, the
/// `.fai`, and the `.gzi` if the reference is BGZF. Returns true if at least one file was written.
///
/// # Errors
/// A [`PipelineError`]. Incomplete files are never published.
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
        AlignerChoice::Auto | AlignerChoice::BwaMem3 | AlignerChoice::BwaMem2 => build_bwa_indexes(options, observer),
        AlignerChoice::Bwa => build_bundled_index(reference, IndexKind::Bwa, observer),
        AlignerChoice::Minimap2 => build_minimap2_index(reference, options.arguments, options.threads, observer),
        AlignerChoice::Template(template) => {
            let problem = format!(
                "godwit cannot build the index of {}; build it with its own tool beside {}",
                template.program_name(),
                reference.display()
            );
            Err(PipelineError::Options { problem })
        }
    }
}

/// Builds the indexes of bwa and bwa-mem3, unless they are current. Returns true if an index was built.
fn build_bwa_indexes(options: &IndexOptions<'_>, observer: &dyn Observer) -> Result<bool, PipelineError> {
    let reference = options.reference;
    require_file(reference)?;
    let stride = options.memory_bytes.map(|bytes| fm_index::smallest_stride_within(reference, bytes)).transpose()?;
    let bwa_built = build_bundled_index(reference, IndexKind::Bwa, observer)?;
    let converted = fm_index::build_bwa_mem3_index(reference, stride, options.threads, observer)?;
    Ok(bwa_built || converted)
}

/// Builds an index with an indexer that is part of godwit, unless the index is current. Returns true if it was built.
fn build_bundled_index(reference: &Path, kind: IndexKind, observer: &dyn Observer) -> Result<bool, PipelineError> {
    let current = matches!(read_index_state(reference, kind)?, IndexState::Current { .. });
    let fai_written = write_fai_and_gzi(reference)?;
    if !current {
        rebuild_bundled_index(reference, kind, observer)?;
    }
    Ok(fai_written || !current)
}

/// Builds an index like [`build_bundled_index`], even if the present one seems to be current.
fn rebuild_bundled_index(reference: &Path, kind: IndexKind, observer: &dyn Observer) -> Result<(), PipelineError> {
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
    require_file(reference)?;
    let minimap2 = Minimap2::find_installed(arguments)?;
    let current = match minimap2.check_index(reference) {
        Ok(_) => true,
        Err(EngineError::MissingIndex { .. } | EngineError::WrongIndex { .. }) => false,
        Err(error) => return Err(error.into()),
    };
    let fai_written = write_fai_and_gzi(reference)?;
    if !current {
        observer.event(&Event::Stage { name: "indexing" });
        minimap2.build_index(reference, threads)?;
        minimap2.check_index(reference)?;
    }
    Ok(fai_written || !current)
}

/// Writes `REF.fa.fai` and, for BGZF, `REF.fa.gz.gzi`, unless they are current. Before, rejects names of contigs that SAM
/// does not permit. Returns true if a file was written.
fn write_fai_and_gzi(reference: &Path) -> Result<bool, PipelineError> {
    let failed = |source| PipelineError::Fasta { path: reference.to_owned(), source };
    let blocks = fasta::read_block_table(reference).map_err(failed)?;
    let contigs = fasta::build_fai(reference).map_err(failed)?;
    check_contig_names(reference, contigs.iter().map(|contig| contig.name.as_str()))?;
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
    write_atomically(&path, &text).map_err(PipelineError::file("write", &path))?;
    Ok(true)
}
