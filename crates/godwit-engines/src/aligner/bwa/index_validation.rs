//! Checks that the index of a reference exists, is complete, and was made from it.

use std::path::{Path, PathBuf};

use godwit_formats::fasta::{self, FastaError};
use godwit_model::{Genome, GenomeError};

use super::comparison::PacReader;
use super::index_files::{self, IndexDescription, IndexKind};

/// The state of an index.
#[derive(Debug)]
pub enum IndexState {
    /// The index exists, is complete, and was made from the reference beside it.
    Current {
        /// Its contigs, with alternates marked as bwa marks them.
        genome: Genome,
    },
    /// Files of the index are missing.
    Missing {
        /// Paths of the missing files.
        files: Vec<PathBuf>,
    },
    /// The index exists but was not made from this reference.
    Stale {
        /// The difference.
        reason: StaleReason,
    },
}

/// A difference between an index and its reference, or between the files of an index.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleReason {
    /// A file does not match the others.
    #[error("the index file {} cannot be used: {problem}; make it again with godwit index", .file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// The defect.
        problem: &'static str,
    },
    /// The reference has another contig, or one more or less.
    #[error("the reference does not match its index: contig {} is {} in the reference but {} in the index; \
             make it again with godwit index", .index + 1, contig_or_missing(.reference), contig_or_missing(.indexed))]
    Contig {
        /// 0-based index of the contig.
        index: usize,
        /// Name in the reference, `None` past its end.
        reference: Option<String>,
        /// Name in the index, `None` past its end.
        indexed: Option<String>,
    },
    /// A contig has another length.
    #[error(
        "the reference does not match its index: contig {contig} has {reference} bases, but {indexed} in the index; \
             make it again with godwit index"
    )]
    Length {
        /// Name of the contig.
        contig: String,
        /// Length in the reference, bases.
        reference: u64,
        /// Length in the index, bases.
        indexed: u64,
    },
    /// A contig has another base.
    #[error(
        "the reference does not match its index: contig {contig} differs at position {position_1based}; \
             make it again with godwit index"
    )]
    Base {
        /// Name of the contig.
        contig: String,
        /// 1-based position of the first difference.
        position_1based: u64,
    },
}

fn contig_or_missing(contig: &Option<String>) -> &str {
    contig.as_deref().unwrap_or("missing")
}

/// An error that prevents the check of an index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A file cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The reference is not a valid FASTA file.
    #[error(transparent)]
    Fasta(#[from] FastaError),
    /// The contigs of the reference are not a valid genome.
    #[error("the reference {} cannot be used", .path.display())]
    Genome {
        /// Path of the file.
        path: PathBuf,
        /// The defect.
        #[source]
        source: GenomeError,
    },
}

impl IndexError {
    pub(super) fn cannot_read(path: &Path, source: std::io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}

/// Returns the state of the index files alone: whether they exist and match each other. The reference itself is not read, so
/// [`IndexState::Current`] here means only that the aligner will load them.
///
/// # Errors
/// [`IndexError`] if a file cannot be read or two contigs share a name.
pub fn index_files_state(reference: &Path, kind: IndexKind) -> Result<IndexState, IndexError> {
    Ok(match read_index_description(reference, kind)? {
        Ok(layout) => IndexState::Current { genome: layout.genome },
        Err(state) => state,
    })
}

/// Returns the state of the index of `reference`, a FASTA file, plain or gzip: as [`index_files_state`], and names, lengths
/// and every base match those of the reference.
///
/// # Errors
/// [`IndexError`] if a file cannot be read, the reference is not a valid FASTA file or two contigs share a name.
pub fn index_state(reference: &Path, kind: IndexKind) -> Result<IndexState, IndexError> {
    std::fs::File::open(reference).map_err(|source| IndexError::cannot_read(reference, source))?;
    let layout = match read_index_description(reference, kind)? {
        Ok(layout) => layout,
        Err(state) => return Ok(state),
    };
    Ok(match first_difference(reference, &layout)? {
        None => IndexState::Current { genome: layout.genome },
        Some(reason) => IndexState::Stale { reason },
    })
}

/// Reads the description from a complete index; the inner error is the state of any other index.
fn read_index_description(
    reference: &Path,
    kind: IndexKind,
) -> Result<Result<IndexDescription, IndexState>, IndexError> {
    let files = index_files::missing_files(reference, kind);
    if !files.is_empty() {
        return Ok(Err(IndexState::Missing { files }));
    }
    Ok(index_files::read(reference, kind)?.map_err(|reason| IndexState::Stale { reason }))
}

/// Returns the first difference between the reference and its index; `None` if there is none.
fn first_difference(reference: &Path, layout: &IndexDescription) -> Result<Option<StaleReason>, IndexError> {
    let mut packed = PacReader::open(&reference.with_added_extension("pac"), layout)?;
    let mut fasta = fasta::Reader::open(reference, 1)?;
    for (index, contig) in layout.genome.contigs().iter().enumerate() {
        let name = fasta.next_contig()?;
        if name.as_ref() != Some(&contig.name) {
            return Ok(Some(StaleReason::Contig { index, reference: name, indexed: Some(contig.name.clone()) }));
        }
        let indexed = u64::from(contig.length);
        let mut bases = 0;
        while let Some(run) = fasta.next_bases()? {
            // Bases beyond the contig's end would be compared with the next contig, so they are only counted.
            let left = usize::try_from(indexed.saturating_sub(bases)).map_or(run.len(), |left| left.min(run.len()));
            if let Some(offset) = packed.first_difference(&run[..left])? {
                let (contig, position_1based) = (contig.name.clone(), bases + offset as u64 + 1);
                return Ok(Some(StaleReason::Base { contig, position_1based }));
            }
            bases += run.len() as u64;
        }
        if bases != indexed {
            return Ok(Some(StaleReason::Length { contig: contig.name.clone(), reference: bases, indexed }));
        }
    }
    let index = layout.genome.contigs().len();
    Ok(fasta.next_contig()?.map(|name| StaleReason::Contig { index, reference: Some(name), indexed: None }))
}
