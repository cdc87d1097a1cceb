//! A packed genome for region reads by many threads, with its reference.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::DeltaError;
use super::gwp_reader::{GwpReader, GwpSequence};
use crate::delta_transfer::reference_store::{LoadedReference, ReferenceStore};
use crate::error::TransferError;

/// A packed file with parsed headers.
#[derive(Debug)]
pub struct GwpFile {
    path: PathBuf,
    /// Its reference; `None` if nothing was copied from one.
    reference: Option<Arc<LoadedReference>>,
    sequences: Vec<GwpSequence>,
}

impl GwpFile {
    /// Opens a packed file and loads its reference, which must be one of `references`.
    ///
    /// # Errors
    /// [`TransferError::Delta`]: with [`DeltaError::MissingReference`] if the reference is not among them, and as for
    /// [`GwpReader::open`].
    pub fn open(path: &Path, references: &ReferenceStore) -> Result<Self, TransferError> {
        let failed = |source| TransferError::Delta { location: path.display().to_string(), source };
        let sequences_by = |loaded: Option<&LoadedReference>| {
            let genome = GwpReader::open(path, loaded.map(|loaded| &loaded.reference))?;
            Ok::<_, DeltaError>(genome.sequences().to_vec())
        };
        let (reference, sequences) = match sequences_by(None) {
            Err(DeltaError::MissingReference { expected_digest }) => {
                let none = || failed(DeltaError::MissingReference { expected_digest: expected_digest.clone() });
                let loaded = references.find_by_digest(&expected_digest)?.ok_or_else(none)?;
                let sequences = sequences_by(Some(&loaded)).map_err(failed)?;
                (Some(loaded), sequences)
            }
            sequences => (None, sequences.map_err(failed)?),
        };
        Ok(Self { path: path.to_owned(), reference, sequences })
    }

    /// Returns the sequences, in the order of the FASTA file.
    pub fn sequences(&self) -> &[GwpSequence] {
        &self.sequences
    }

    /// Returns the letters `[start, end)` of a sequence, 0-based, up to its end. Only the chunks with these letters are
    /// decoded, up to 32 MiB each.
    ///
    /// # Errors
    /// As for [`GwpReader::open`]; [`DeltaError::ContigNotFound`].
    pub fn letters(&self, sequence: &str, start: u64, end: u64) -> Result<Vec<u8>, DeltaError> {
        let reference = self.reference.as_ref().map(|loaded| &loaded.reference);
        GwpReader::open(&self.path, reference)?.letters(sequence, start, end)
    }
}
