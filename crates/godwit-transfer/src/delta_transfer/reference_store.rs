//! The references of one end, found by their sequences. They are loaded on the first request and kept while they are used.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::delta::{DeltaError, KmerIndex, Reference, ReferenceCachePolicy};
use crate::error::TransferError;

/// FASTA files for packing and unpacking genomes.
#[derive(Debug)]
pub struct ReferenceStore {
    paths: Vec<PathBuf>,
    threads: usize,
    cache_policy: ReferenceCachePolicy,
    entries: Mutex<HashMap<PathBuf, ReferenceEntry>>,
}

/// A known reference and the stamp of its file.
#[derive(Debug)]
struct ReferenceEntry {
    stamp: (u64, i64, i64),
    digest: String,
    sequences: Arc<HashSet<String>>,
    reference: Weak<LoadedReference>,
}

/// A loaded reference.
#[derive(Debug)]
pub(crate) struct LoadedReference {
    pub(crate) reference: Reference,
    threads: usize,
    kmer_index: OnceLock<KmerIndex>,
}

impl LoadedReference {
    /// Returns the index of its k-mers, which only packing needs.
    pub(crate) fn kmer_index(&self) -> Result<&KmerIndex, DeltaError> {
        if let Some(anchors) = self.kmer_index.get() {
            return Ok(anchors);
        }
        let anchors = self.reference.kmer_index(self.threads)?;
        Ok(self.kmer_index.get_or_init(|| anchors))
    }

    /// Returns its digest.
    pub(crate) fn digest(&self) -> String {
        self.reference.digest().to_string()
    }

    /// Returns the identities of its sequences, as they are sent to the other end.
    pub(crate) fn sequence_identities(&self) -> Vec<String> {
        self.reference.contigs().iter().map(crate::delta::ReferenceContig::identity).collect()
    }
}

fn file_stamp(path: &Path) -> Result<(u64, i64, i64), TransferError> {
    let found = fs::metadata(path).map_err(TransferError::io_error("read", path))?;
    Ok((found.len(), found.mtime(), found.mtime_nsec()))
}

impl ReferenceStore {
    /// Returns a store of these files, none of which is loaded. Each is loaded with `threads` threads.
    pub fn new(paths: Vec<PathBuf>, threads: usize) -> Self {
        Self {
            paths,
            threads: threads.max(1),
            cache_policy: ReferenceCachePolicy::BesideFasta,
            entries: Mutex::default(),
        }
    }

    /// Returns a store that writes no cache files.
    pub fn without_cache_files(paths: Vec<PathBuf>, threads: usize) -> Self {
        Self { cache_policy: ReferenceCachePolicy::Disabled, ..Self::new(paths, threads) }
    }

    /// Returns the number of threads for packing and unpacking.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the paths of the files.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn lock_entries(&self) -> MutexGuard<'_, HashMap<PathBuf, ReferenceEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads one of the files.
    ///
    /// # Errors
    /// [`TransferError::Io`] or [`TransferError::Delta`] if it cannot be read or is not a FASTA file of bases.
    pub(crate) fn load_reference(&self, path: &Path) -> Result<Arc<LoadedReference>, TransferError> {
        let stamp = file_stamp(path)?;
        // Concurrent requests share the loaded reference.
        let mut known = self.lock_entries();
        let fresh = known.get(path).filter(|known| known.stamp == stamp);
        if let Some(loaded) = fresh.and_then(|known| known.reference.upgrade()) {
            return Ok(loaded);
        }
        let failed = |source| TransferError::Delta { location: path.display().to_string(), source };
        let reference = Reference::open(path, self.cache_policy, self.threads).map_err(failed)?;
        let loaded = Arc::new(LoadedReference { reference, threads: self.threads, kmer_index: OnceLock::new() });
        let sequences = Arc::new(loaded.sequence_identities().into_iter().collect());
        let entry = ReferenceEntry { stamp, digest: loaded.digest(), sequences, reference: Arc::downgrade(&loaded) };
        known.insert(path.to_owned(), entry);
        Ok(loaded)
    }

    /// Returns digest and sequences of one of the files; loads it if they are unknown.
    fn digest_and_sequences(&self, path: &Path) -> Result<(String, Arc<HashSet<String>>), TransferError> {
        let stamp = file_stamp(path)?;
        let found = |known: &ReferenceEntry| (known.digest.clone(), known.sequences.clone());
        if let Some(known) = self.lock_entries().get(path).filter(|known| known.stamp == stamp) {
            return Ok(found(known));
        }
        let _loaded = self.load_reference(path)?;
        self.lock_entries()
            .get(path)
            .map(found)
            .ok_or_else(|| TransferError::Internal { problem: "a reference is lost".to_owned() })
    }

    /// Returns the digest of a reference that matches one of these sequences at the other end: this end can unpack what the
    /// other end packs or, with `packs_here`, the reverse.
    ///
    /// # Errors
    /// As [`ReferenceStore::load_reference`].
    pub(crate) fn matching_digest(
        &self,
        sequences: &[String],
        packs_here: bool,
    ) -> Result<Option<String>, TransferError> {
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

    /// Returns the reference with this digest, if it is in the store.
    ///
    /// # Errors
    /// As [`ReferenceStore::load_reference`].
    pub(crate) fn find_by_digest(&self, digest: &str) -> Result<Option<Arc<LoadedReference>>, TransferError> {
        for path in &self.paths {
            if self.digest_and_sequences(path)?.0 == digest {
                return self.load_reference(path).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the reference with this digest.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if there is none; otherwise as [`ReferenceStore::load_reference`].
    pub(crate) fn require_by_digest(&self, digest: &str) -> Result<Arc<LoadedReference>, TransferError> {
        let none = || TransferError::rejected(format!("no reference here has the digest {digest}"));
        self.find_by_digest(digest)?.ok_or_else(none)
    }
}
