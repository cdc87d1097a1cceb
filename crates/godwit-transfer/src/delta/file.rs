//! A packed genome that many read regions of, with the reference it is unpacked by.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::DeltaError;
use super::region::{PackedGenome, PackedSequence};
use crate::error::TransferError;
use crate::genomes::references::{Loaded, References};

/// A packed file whose heads were read.
#[derive(Debug)]
pub struct PackedFile {
    path: PathBuf,
    /// What it was packed with; `None` where nothing was copied from it.
    loaded: Option<Arc<Loaded>>,
    sequences: Vec<PackedSequence>,
}

impl PackedFile {
    /// Opens a packed file, and looks for its reference among some, which is then held.
    ///
    /// # Errors
    /// [`TransferError::Packing`]: with [`DeltaError::NoReference`] where it is not among them, and as for
    /// [`PackedGenome::open`].
    pub fn open(path: &Path, references: &References) -> Result<Self, TransferError> {
        let failed = |source| TransferError::Packing { place: path.display().to_string(), source };
        let sequences_by = |loaded: Option<&Loaded>| {
            let genome = PackedGenome::open(path, loaded.map(|loaded| &loaded.reference))?;
            Ok::<_, DeltaError>(genome.sequences().to_vec())
        };
        let (loaded, sequences) = match sequences_by(None) {
            Err(DeltaError::NoReference { wanted }) => {
                let none = || failed(DeltaError::NoReference { wanted: wanted.clone() });
                let loaded = references.find(&wanted)?.ok_or_else(none)?;
                let sequences = sequences_by(Some(&loaded)).map_err(failed)?;
                (Some(loaded), sequences)
            }
            sequences => (None, sequences.map_err(failed)?),
        };
        Ok(Self { path: path.to_owned(), loaded, sequences })
    }

    /// Its sequences, in the order of the FASTA file.
    pub fn sequences(&self) -> &[PackedSequence] {
        &self.sequences
    }

    /// Letters `[start, end)` of a sequence, 0-based, as far as it has them. Chunks of up to 32 MiB that hold them are decoded, and no others.
    ///
    /// # Errors
    /// As for [`PackedGenome::open`]; [`DeltaError::NoSuchContig`].
    pub fn letters(&self, sequence: &str, start: u64, end: u64) -> Result<Vec<u8>, DeltaError> {
        let reference = self.loaded.as_ref().map(|loaded| &loaded.reference);
        PackedGenome::open(&self.path, reference)?.letters(sequence, start, end)
    }
}
