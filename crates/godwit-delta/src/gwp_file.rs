//! A packed genome, together with its reference, from which many threads can read regions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{DeltaError, DeltaFileError};
use super::gwp_reader::{GwpReader, GwpSequence};
use super::reference_store::{LoadedReference, ReferenceStore};

/// A packed file whose headers were parsed once. Each read opens the file again.
#[derive(Debug)]
pub struct GwpFile {
    path: PathBuf,
    /// The reference of the file; `None` if the file copies nothing from a reference.
    reference: Option<Arc<LoadedReference>>,
    sequences: Vec<GwpSequence>,
}

impl GwpFile {
    /// Opens a packed file and loads the reference with which it was packed, which must be one of `references`.
    ///
    /// # Errors
    /// [`DeltaError::MissingReference`] if the reference is not one of `references`, or
    /// an error of [`GwpReader::open`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::fs::File;
    /// # use std::sync::atomic::AtomicBool;
    /// # use godwit_delta::{PackOptions, Reference, ReferenceCachePolicy, pack};
    /// use godwit_delta::{GwpFile, ReferenceStore};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let fasta = directory.path().join("reference.fa");
    /// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
    /// # let anchors = reference.kmer_index(1)?;
    /// # let path = directory.path().join("sample1.gwp");
    /// # let genome = b">chr1\nACGTTGCATTAGACCAGTTGACCTTTGACCAGAT\n";
    /// # let (mut file, options, cancelled) = (File::create(&path)?, PackOptions::default(), AtomicBool::new(false));
    /// # pack(&mut &genome[..], &mut file, &reference, &anchors, &options, &cancelled)?;
    /// // `sample1.gwp` has the sequence ACGTTGCATTAG..
    /// let references = ReferenceStore::without_cache_files(vec![fasta], 1);
    /// let genome = GwpFile::open(&path, &references)?;
    /// assert_eq!(genome.sequences()[0].name, "chr1");
    /// assert_eq!(genome.letters("chr1", 4, 10)?, b"TGCATT");
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(path: &Path, references: &ReferenceStore) -> Result<Self, DeltaFileError> {
        let failed = |source| DeltaFileError { path: path.to_owned(), source };
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

    /// Returns the sequences of the genome, in the order of the FASTA file.
    pub fn sequences(&self) -> &[GwpSequence] {
        &self.sequences
    }

    /// Returns the letters `[start, end)` of a sequence, 0-based, at most up to the end of the sequence. Decodes only
    /// the chunks that contain these letters, at most 32 MiB of text each.
    ///
    /// # Errors
    /// The errors of [`GwpReader::open`]; [`DeltaError::ContigNotFound`] if the genome lacks the sequence.
    pub fn letters(&self, sequence: &str, start: u64, end: u64) -> Result<Vec<u8>, DeltaError> {
        let reference = self.reference.as_ref().map(|loaded| &loaded.reference);
        GwpReader::open(&self.path, reference)?.letters(sequence, start, end)
    }
}
