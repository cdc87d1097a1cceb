//! The references of a client or server, found by their sequences. A reference is loaded on the first request and stays
//! in memory while it is used.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use godwit_files::FileStamp;
use parking_lot::Mutex;

use super::error::{DeltaError, DeltaFileError};
use super::kmer_index::KmerIndex;
use super::reference::{Reference, ReferenceCachePolicy, ReferenceContig};

/// The FASTA files against which genomes are packed and unpacked.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::fs::File;
/// # use std::sync::atomic::AtomicBool;
/// # use godwit_delta::{PackOptions, Reference, ReferenceCachePolicy, pack};
/// use godwit_delta::{DeltaError, DeltaFileError, GwpFile, ReferenceStore};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("reference.fa");
/// # let mut bytes = vec![0; 20_000];
/// # blake3::Hasher::new().finalize_xof().fill(&mut bytes);
/// # let bases: String = bytes.iter().map(|byte| char::from(b"ACGT"[usize::from(byte % 4)])).collect();
/// # let text = format!(">chr1\n{bases}\n");
/// # std::fs::write(&path, &text)?;
/// # let reference = Reference::open(&path, ReferenceCachePolicy::Disabled, 1)?;
/// # let (anchors, options) = (reference.kmer_index(1)?, PackOptions::default());
/// # let packed = directory.path().join("sample1.gwp");
/// # let mut file = File::create(&packed)?;
/// # pack(&mut text.as_bytes(), &mut file, &reference, &anchors, &options, &AtomicBool::new(false))?;
/// // `sample1.gwp` was packed against `reference.fa`.
/// let empty = GwpFile::open(&packed, &ReferenceStore::without_cache_files(Vec::new(), 1));
/// assert!(matches!(empty, Err(DeltaFileError { source: DeltaError::MissingReference { .. }, .. })));
///
/// let references = ReferenceStore::without_cache_files(vec![path], 1);
/// assert_eq!(GwpFile::open(&packed, &references)?.sequences()[0].residue_count, 20_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReferenceStore {
    paths: Vec<PathBuf>,
    threads: usize,
    cache_policy: ReferenceCachePolicy,
    entries: Mutex<HashMap<PathBuf, ReferenceEntry>>,
}

/// Digest and sequences of a reference, valid while the stamp of its file is the same.
#[derive(Debug)]
struct ReferenceEntry {
    stamp: FileStamp,
    digest: String,
    sequences: Arc<HashSet<String>>,
    reference: Weak<LoadedReference>,
}

/// A reference in memory, with its k-mer index once that is requested.
#[derive(Debug)]
pub struct LoadedReference {
    /// The reference.
    pub reference: Reference,
    threads: usize,
    kmer_index: OnceLock<KmerIndex>,
}

impl LoadedReference {
    /// Returns the index of the k-mers of the reference; builds it on the first call. Unpacking does not need it.
    ///
    /// # Errors
    /// The errors of [`Reference::kmer_index`].
    pub fn kmer_index(&self) -> Result<&KmerIndex, DeltaError> {
        if let Some(anchors) = self.kmer_index.get() {
            return Ok(anchors);
        }
        let anchors = self.reference.kmer_index(self.threads)?;
        Ok(self.kmer_index.get_or_init(|| anchors))
    }

    /// Returns the digest of the reference.
    pub fn digest(&self) -> String {
        self.reference.digest().to_string()
    }

    /// Returns the identities of the sequences of the reference, by which the other end finds a matching reference.
    pub fn sequence_identities(&self) -> Vec<String> {
        self.reference.contigs().iter().map(ReferenceContig::identity).collect()
    }
}

fn file_stamp(path: &Path) -> Result<FileStamp, DeltaFileError> {
    let failed = |source| DeltaFileError { path: path.to_owned(), source };
    FileStamp::read(path).map_err(DeltaError::io_error(path)).map_err(failed)
}

impl ReferenceStore {
    /// Returns a store of these FASTA files, which are loaded later, each with `threads` threads.
    pub fn new(paths: Vec<PathBuf>, threads: usize) -> Self {
        Self {
            paths,
            threads: threads.max(1),
            cache_policy: ReferenceCachePolicy::BesideFasta,
            entries: Mutex::default(),
        }
    }

    /// Returns a store that neither reads nor writes cache files of references.
    pub fn without_cache_files(paths: Vec<PathBuf>, threads: usize) -> Self {
        Self { cache_policy: ReferenceCachePolicy::Disabled, ..Self::new(paths, threads) }
    }

    /// Returns the number of threads with which a genome is packed or unpacked.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the paths of the FASTA files.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Loads one of the FASTA files, or returns it if it is already loaded.
    ///
    /// # Errors
    /// [`DeltaError::Io`] if the file cannot be read, and the errors of [`Reference::open`].
    pub fn load_reference(&self, path: &Path) -> Result<Arc<LoadedReference>, DeltaFileError> {
        let stamp = file_stamp(path)?;
        // Hold the lock during loading, so that concurrent requests for the same reference load it once.
        let mut known = self.entries.lock();
        let fresh = known.get(path).filter(|known| known.stamp == stamp);
        if let Some(loaded) = fresh.and_then(|known| known.reference.upgrade()) {
            return Ok(loaded);
        }
        let failed = |source| DeltaFileError { path: path.to_owned(), source };
        let reference = Reference::open(path, self.cache_policy, self.threads).map_err(failed)?;
        let loaded = Arc::new(LoadedReference { reference, threads: self.threads, kmer_index: OnceLock::new() });
        let sequences = Arc::new(loaded.sequence_identities().into_iter().collect());
        let entry = ReferenceEntry { stamp, digest: loaded.digest(), sequences, reference: Arc::downgrade(&loaded) };
        known.insert(path.to_owned(), entry);
        Ok(loaded)
    }

    /// Returns the digest and the sequence identities of one of the files; loads the file if they are unknown.
    fn digest_and_sequences(&self, path: &Path) -> Result<(String, Arc<HashSet<String>>), DeltaFileError> {
        let stamp = file_stamp(path)?;
        if let Some(known) = self.entries.lock().get(path).filter(|known| known.stamp == stamp) {
            return Ok((known.digest.clone(), known.sequences.clone()));
        }
        let loaded = self.load_reference(path)?;
        Ok((loaded.digest(), Arc::new(loaded.sequence_identities().into_iter().collect())))
    }

    /// Finds a reference of this end that matches a reference of the other end with these sequences: the unpacking end
    /// must have all sequences of the packing end. `packs_here` is true if this end packs. Returns the digest, or
    /// `None` if there is no match.
    ///
    /// # Errors
    /// The errors of [`ReferenceStore::load_reference`].
    pub fn matching_digest(&self, sequences: &[String], packs_here: bool) -> Result<Option<String>, DeltaFileError> {
        let there: HashSet<&String> = sequences.iter().collect();
        for path in &self.paths {
            let (digest, here) = self.digest_and_sequences(path)?;
            let fits = match packs_here {
                true => here.iter().all(|sequence| there.contains(sequence)),
                false => there.iter().all(|sequence| here.contains(*sequence)),
            };
            if fits && !here.is_empty() && !there.is_empty() {
                return Ok(Some(digest));
            }
        }
        Ok(None)
    }

    /// Returns the reference with this digest; `None` if it is not in the store.
    ///
    /// # Errors
    /// The errors of [`ReferenceStore::load_reference`].
    pub fn find_by_digest(&self, digest: &str) -> Result<Option<Arc<LoadedReference>>, DeltaFileError> {
        for path in &self.paths {
            if self.digest_and_sequences(path)?.0 == digest {
                return self.load_reference(path).map(Some);
            }
        }
        Ok(None)
    }
}
