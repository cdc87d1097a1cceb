//! Is the index of a reference there, whole, and made from it?

use std::path::{Path, PathBuf};

use godwit_formats::fasta::{self, FastaError};
use godwit_model::{Genome, GenomeError};

use super::comparison::PackedBases;
use super::layout::{self, IndexKind, Layout};

/// State of an index.
#[derive(Debug)]
pub enum IndexState {
    /// There, whole, and made from the reference beside it.
    Current {
        /// Its contigs, with alternates marked as bwa marks them.
        genome: Genome,
    },
    /// Not there, or not all of it.
    Missing {
        /// The files that are not there.
        files: Vec<PathBuf>,
    },
    /// There, but not the index of this reference.
    Stale {
        /// How it differs.
        reason: StaleReason,
    },
}

/// How an index differs from its reference, or its files from each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleReason {
    /// A file does not fit the others.
    #[error("the index file {} cannot be used: {problem}; make it again with godwit index", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The reference has another contig, or one more or less.
    #[error("the reference does not match its index: contig {} is {} in the reference but {} in the index; \
             make it again with godwit index", .index + 1, named(.reference), named(.indexed))]
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
        /// The contig.
        contig: String,
        /// Bases in the reference.
        reference: u64,
        /// Bases in the index.
        indexed: u64,
    },
    /// A contig has another base.
    #[error(
        "the reference does not match its index: contig {contig} differs at position {position_1based}; \
             make it again with godwit index"
    )]
    Base {
        /// The contig.
        contig: String,
        /// 1-based position of the first difference.
        position_1based: u64,
    },
}

fn named(contig: &Option<String>) -> &str {
    contig.as_deref().unwrap_or("missing")
}

/// Why the state of an index cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A file cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The reference is no clean FASTA file.
    #[error(transparent)]
    Fasta(#[from] FastaError),
    /// The contigs of the reference make no genome.
    #[error("the reference {} cannot be used", .path.display())]
    Genome {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: GenomeError,
    },
}

impl IndexError {
    pub(super) fn read(path: &Path, source: std::io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}

/// The state of the index files alone: there and fitting each other. The reference itself is not read, so that
/// [`IndexState::Current`] here means only that the aligner will load them.
///
/// # Errors
/// [`IndexError`] when a file cannot be read or two contigs share a name.
pub fn index_layout(reference: &Path, kind: IndexKind) -> Result<IndexState, IndexError> {
    Ok(match read_layout(reference, kind)? {
        Ok(layout) => IndexState::Current { genome: layout.genome },
        Err(state) => state,
    })
}

/// The state of the index of `reference`, a FASTA file, plain or gzip: as [`index_layout`], and names, lengths and every
/// base are those of the reference.
///
/// # Errors
/// [`IndexError`] when a file cannot be read, the reference is no clean FASTA file or two contigs share a name.
pub fn index_state(reference: &Path, kind: IndexKind) -> Result<IndexState, IndexError> {
    std::fs::File::open(reference).map_err(|source| IndexError::read(reference, source))?;
    let layout = match read_layout(reference, kind)? {
        Ok(layout) => layout,
        Err(state) => return Ok(state),
    };
    Ok(match first_difference(reference, &layout)? {
        None => IndexState::Current { genome: layout.genome },
        Some(reason) => IndexState::Stale { reason },
    })
}

/// The layout of a whole index, or the state of one that is not.
fn read_layout(reference: &Path, kind: IndexKind) -> Result<Result<Layout, IndexState>, IndexError> {
    let files = layout::missing(reference, kind);
    if !files.is_empty() {
        return Ok(Err(IndexState::Missing { files }));
    }
    Ok(layout::read(reference, kind)?.map_err(|reason| IndexState::Stale { reason }))
}

/// How the reference differs from its index; `None` where it does not.
fn first_difference(reference: &Path, layout: &Layout) -> Result<Option<StaleReason>, IndexError> {
    let mut packed = PackedBases::open(&reference.with_added_extension("pac"), layout)?;
    let mut fasta = fasta::Reader::open(reference, 1)?;
    for (index, contig) in layout.genome.contigs().iter().enumerate() {
        let name = fasta.next_contig()?;
        if name.as_ref() != Some(&contig.name) {
            return Ok(Some(StaleReason::Contig { index, reference: name, indexed: Some(contig.name.clone()) }));
        }
        let indexed = u64::from(contig.length);
        let mut bases = 0;
        while let Some(run) = fasta.next_bases()? {
            // Bases beyond the contig's end would be compared with the next contig: only count them.
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
