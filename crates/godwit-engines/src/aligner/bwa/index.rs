//! Is the index of a reference there, whole, and made from it?

use std::path::{Path, PathBuf};

use godwit_model::{Contig, Genome, GenomeError};

use super::comparison::PackedBases;
use super::fasta::{self, Piece};
use super::layout::{self, Layout, beside};

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
    #[error("the index is not whole: {}: {problem}; make it again with godwit index", .file.display())]
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
    /// The reference is no FASTA file.
    #[error("the reference {} is not a FASTA file: {problem}", .path.display())]
    Fasta {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
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

    pub(super) fn fasta(path: &Path, problem: &'static str) -> Self {
        Self::Fasta { path: path.to_owned(), problem }
    }
}

/// The state of the index files alone: there and fitting each other. The reference itself is not read, so that
/// [`IndexState::Current`] here means only that bwa will load them.
///
/// # Errors
/// [`IndexError`] when a file cannot be read or two contigs share a name.
pub fn index_layout(reference: &Path) -> Result<IndexState, IndexError> {
    Ok(match read_layout(reference)? {
        Ok(layout) => IndexState::Current { genome: layout.genome },
        Err(state) => state,
    })
}

/// The state of the index of `reference`, a FASTA file, plain or gzip: as [`index_layout`], and names, lengths and every
/// base are those of the reference.
///
/// # Errors
/// [`IndexError`] when a file cannot be read, the reference is no FASTA file or two contigs share a name.
pub fn index_state(reference: &Path) -> Result<IndexState, IndexError> {
    std::fs::File::open(reference).map_err(|source| IndexError::read(reference, source))?;
    let layout = match read_layout(reference)? {
        Ok(layout) => layout,
        Err(state) => return Ok(state),
    };
    match compare(reference, &layout) {
        Ok(()) => Ok(IndexState::Current { genome: layout.genome }),
        Err(Stop::Different(reason)) => Ok(IndexState::Stale { reason }),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The layout of a whole index, or the state of one that is not.
fn read_layout(reference: &Path) -> Result<Result<Layout, IndexState>, IndexError> {
    let files = layout::missing(reference);
    if !files.is_empty() {
        return Ok(Err(IndexState::Missing { files }));
    }
    Ok(layout::read(reference)?.map_err(|reason| IndexState::Stale { reason }))
}

/// Why a comparison ended early.
enum Stop {
    Different(StaleReason),
    Failed(IndexError),
}

impl From<IndexError> for Stop {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

/// A contig of the reference that is being read.
struct Current<'a> {
    contig: &'a Contig,
    /// Bases read so far.
    bases: u64,
}

impl Current<'_> {
    fn check_length(&self) -> Result<(), Stop> {
        let indexed = u64::from(self.contig.length);
        if self.bases == indexed {
            return Ok(());
        }
        let contig = self.contig.name.clone();
        Err(Stop::Different(StaleReason::Length { contig, reference: self.bases, indexed }))
    }
}

fn compare(reference: &Path, layout: &Layout) -> Result<(), Stop> {
    let contigs = layout.genome.contigs();
    let mut packed = PackedBases::open(&beside(reference, ".pac"), layout)?;
    let mut index = 0;
    let mut current: Option<Current> = None;
    fasta::read(reference, |piece| match piece {
        Piece::Name(name) => {
            if let Some(last) = &current {
                last.check_length()?;
            }
            let contig = contigs.get(index).filter(|contig| contig.name.as_bytes() == name);
            let Some(contig) = contig else {
                return Err(other_contig(index, Some(String::from_utf8_lossy(name).into_owned()), contigs));
            };
            current = Some(Current { contig, bases: 0 });
            index += 1;
            Ok(())
        }
        Piece::Bases(bases) => {
            let Some(current) = &mut current else { return Ok(()) };
            // Bases beyond the contig's end would be compared with the next contig: only count them.
            let left = (u64::from(current.contig.length) - current.bases.min(current.contig.length.into())) as usize;
            let difference = packed.first_difference(&bases[..bases.len().min(left)])?;
            if let Some(offset) = difference {
                let position_1based = current.bases + offset as u64 + 1;
                let contig = current.contig.name.clone();
                return Err(Stop::Different(StaleReason::Base { contig, position_1based }));
            }
            current.bases += bases.len() as u64;
            Ok(())
        }
    })?;
    if let Some(last) = &current {
        last.check_length()?;
    }
    if index < contigs.len() { Err(other_contig(index, None, contigs)) } else { Ok(()) }
}

fn other_contig(index: usize, reference: Option<String>, contigs: &[Contig]) -> Stop {
    let indexed = contigs.get(index).map(|contig| contig.name.clone());
    Stop::Different(StaleReason::Contig { index, reference, indexed })
}
