//! References of one end, by their sequences. They are read when they are first asked for, and held while they are used.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::delta::{Anchors, DeltaError, Keep, Reference};
use crate::error::TransferError;

/// FASTA files that genomes are packed by, and unpacked.
#[derive(Debug)]
pub struct References {
    paths: Vec<PathBuf>,
    threads: usize,
    keep: Keep,
    known: Mutex<HashMap<PathBuf, Known>>,
}

/// A reference as it was when it was looked at.
#[derive(Debug)]
struct Known {
    stamp: (u64, i64, i64),
    digest: String,
    sequences: Arc<HashSet<String>>,
    loaded: Weak<Loaded>,
}

/// A reference in memory.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) reference: Reference,
    threads: usize,
    anchors: OnceLock<Anchors>,
}

impl Loaded {
    /// Where its k-mers are; only who packs has a use for them.
    pub(crate) fn anchors(&self) -> Result<&Anchors, DeltaError> {
        if let Some(anchors) = self.anchors.get() {
            return Ok(anchors);
        }
        let anchors = self.reference.anchors(self.threads)?;
        Ok(self.anchors.get_or_init(|| anchors))
    }

    /// Its digest.
    pub(crate) fn digest(&self) -> String {
        self.reference.digest().to_string()
    }

    /// Its sequences as the other end is told of them.
    pub(crate) fn sequences(&self) -> Vec<String> {
        self.reference.contigs().iter().map(crate::delta::ReferenceContig::identity).collect()
    }
}

fn stamp_of(path: &Path) -> Result<(u64, i64, i64), TransferError> {
    let found = fs::metadata(path).map_err(TransferError::file("read", path))?;
    Ok((found.len(), found.mtime(), found.mtime_nsec()))
}

impl References {
    /// Of these files, none of which is read yet. `threads` work on each.
    pub fn new(paths: Vec<PathBuf>, threads: usize) -> Self {
        Self { paths, threads: threads.max(1), keep: Keep::Beside, known: Mutex::default() }
    }

    /// The same, but nothing is kept beside them.
    pub fn unkept(paths: Vec<PathBuf>, threads: usize) -> Self {
        Self { keep: Keep::Nowhere, ..Self::new(paths, threads) }
    }

    /// Threads that pack or unpack.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The files.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the files, read.
    ///
    /// # Errors
    /// Where it cannot be read, or is no FASTA file of bases.
    pub(crate) fn load(&self, path: &Path) -> Result<Arc<Loaded>, TransferError> {
        let stamp = stamp_of(path)?;
        // Who asks meanwhile wants the same one.
        let mut known = self.known();
        let fresh = known.get(path).filter(|known| known.stamp == stamp);
        if let Some(loaded) = fresh.and_then(|known| known.loaded.upgrade()) {
            return Ok(loaded);
        }
        let failed = |source| TransferError::Packing { place: path.display().to_string(), source };
        let reference = Reference::open(path, self.keep, self.threads).map_err(failed)?;
        let loaded = Arc::new(Loaded { reference, threads: self.threads, anchors: OnceLock::new() });
        let sequences = Arc::new(loaded.sequences().into_iter().collect());
        let entry = Known { stamp, digest: loaded.digest(), sequences, loaded: Arc::downgrade(&loaded) };
        known.insert(path.to_owned(), entry);
        Ok(loaded)
    }

    /// Digest and sequences of one of the files, which is read where they are not known.
    fn looked_at(&self, path: &Path) -> Result<(String, Arc<HashSet<String>>), TransferError> {
        let stamp = stamp_of(path)?;
        let found = |known: &Known| (known.digest.clone(), known.sequences.clone());
        if let Some(known) = self.known().get(path).filter(|known| known.stamp == stamp) {
            return Ok(found(known));
        }
        let _loaded = self.load(path)?;
        self.known()
            .get(path)
            .map(found)
            .ok_or_else(|| TransferError::Bug { problem: "a reference is lost".to_owned() })
    }

    /// Digest of a reference here that goes with one elsewhere of these sequences: what is packed there is unpacked here, or, with `packs_here`,
    /// the other way round.
    ///
    /// # Errors
    /// As [`References::load`].
    pub(crate) fn matching(&self, sequences: &[String], packs_here: bool) -> Result<Option<String>, TransferError> {
        let there: HashSet<&String> = sequences.iter().collect();
        for path in &self.paths {
            let (digest, here) = self.looked_at(path)?;
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

    /// The reference of a digest, where it is one of these.
    ///
    /// # Errors
    /// As [`References::load`].
    pub(crate) fn find(&self, digest: &str) -> Result<Option<Arc<Loaded>>, TransferError> {
        for path in &self.paths {
            if self.looked_at(path)?.0 == digest {
                return self.load(path).map(Some);
            }
        }
        Ok(None)
    }

    /// The reference of a digest.
    ///
    /// # Errors
    /// [`TransferError::Refused`] where there is none; as [`References::load`].
    pub(crate) fn by_digest(&self, digest: &str) -> Result<Arc<Loaded>, TransferError> {
        let none = || TransferError::refused(format!("no reference here has the digest {digest}"));
        self.find(digest)?.ok_or_else(none)
    }
}
