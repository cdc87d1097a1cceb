//! Checks that the index of a reference exists, is complete, and was built from that reference.

use std::path::{Path, PathBuf};

use godwit_formats::fasta::{self, FastaError};
use godwit_model::{Genome, GenomeError};

use super::comparison::PacReader;
use super::index_files::{self, IndexDescription, IndexKind};

/// The state of the index beside a reference.
#[derive(Debug)]
pub enum IndexState {
    /// The index exists, is complete, and was built from the reference beside it.
    Current {
        /// The contigs of the index. Alternate contigs are marked in the same way as bwa marks them.
        genome: Genome,
    },
    /// Files of the index are missing.
    Missing {
        /// Paths of the missing files.
        files: Vec<PathBuf>,
    },
    /// The index exists but was not built from this reference, or its files do not match each other.
    Stale {
        /// The first difference that was found.
        reason: StaleReason,
    },
}

/// A difference between an index and its reference, or between two files of an index.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleReason {
    /// An index file does not match the other index files.
    #[error("the index file {} cannot be used: {problem}; build it again with godwit index", .file.display())]
    File {
        /// Path of the index file.
        file: PathBuf,
        /// Description of the defect.
        problem: &'static str,
    },
    /// The reference and the index differ in the name or the number of contigs.
    #[error("the reference does not match its index: contig {} is {} in the reference but {} in the index; \
             build it again with godwit index", .index + 1, contig_or_missing(.reference), contig_or_missing(.indexed))]
    Contig {
        /// 0-based index of the contig.
        index: usize,
        /// Name of the contig in the reference; `None` if the reference has fewer contigs.
        reference: Option<String>,
        /// Name of the contig in the index; `None` if the index has fewer contigs.
        indexed: Option<String>,
    },
    /// A contig has a different length in the reference and in the index.
    #[error(
        "the reference does not match its index: contig {contig} has {reference} bases, but {indexed} in the index; \
             build it again with godwit index"
    )]
    Length {
        /// Name of the contig.
        contig: String,
        /// Length of the contig in the reference, bases.
        reference: u64,
        /// Length of the contig in the index, bases.
        indexed: u64,
    },
    /// A contig has a different base in the reference and in the index.
    #[error(
        "the reference does not match its index: contig {contig} differs at position {position_1based}; \
             build it again with godwit index"
    )]
    Base {
        /// Name of the contig.
        contig: String,
        /// 1-based position of the first different base in the contig.
        position_1based: u64,
    },
}

fn contig_or_missing(contig: &Option<String>) -> &str {
    contig.as_deref().unwrap_or("missing")
}

/// An error because of which an index cannot be checked or written.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// An index file or the reference cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// An index file cannot be written.
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
    /// The contigs in an index file are not a valid genome, for example because two share a name.
    #[error("the reference {} cannot be used", .path.display())]
    Genome {
        /// Path of the file that contains the contigs.
        path: PathBuf,
        /// Error that describes the defect.
        #[source]
        source: GenomeError,
    },
}

impl IndexError {
    pub(super) fn cannot_read(path: &Path, source: std::io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}

/// Returns the state of the index files without reading the reference: whether they exist and match each other.
/// [`IndexState::Current`] from this function means only that the aligner will load the index.
///
/// # Errors
/// [`IndexError`] if an index file cannot be read or two contigs share a name.
pub fn index_files_state(reference: &Path, kind: IndexKind) -> Result<IndexState, IndexError> {
    Ok(match read_index_description(reference, kind)? {
        Ok(layout) => IndexState::Current { genome: layout.genome },
        Err(state) => state,
    })
}

/// Returns the state of the index of `reference`, a FASTA file, plain or gzip. In addition to [`index_files_state`],
/// compares the contig names, the lengths and every base with the reference.
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

/// Reads the description of the reference from a complete index. For any other index, the inner error is its state.
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
            // The bases of `.pac` after the end of this contig belong to the next one, so excess bases are counted but
            // not compared.
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
