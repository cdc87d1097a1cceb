//! References for delta compression: their sequences with two bits per base, their digests, and cache files of both
//! beside the FASTA file.
//!
//! A sequence is identified by its refget digest (GA4GH refget v2: SHA-512 of the upper-case letters, truncated to 24
//! bytes, in base64url). A reference is identified by the digest of its sequences in order (GA4GH seqcol, attribute
//! `sequences`). Sequence names do not change the digests.

mod cache_files;
mod fasta_import;

use std::path::{Path, PathBuf};

use godwit_files::FileStamp;

use super::bases::{Bases, BitVector, NonAcgtInterval};
use super::error::DeltaError;
use super::kmer_index::{KmerIndex, check_reference_size};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

/// Size of a digest, bytes.
pub(super) const DIGEST_BYTES: usize = 24;

/// The digest of a sequence or a reference: the first 24 bytes of a SHA-512.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_delta::{Reference, ReferenceCachePolicy};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("reference.fa");
/// std::fs::write(&path, ">chr1\nACGT\n")?;
/// let reference = Reference::open(&path, ReferenceCachePolicy::Disabled, 1)?;
/// // The refget digest of the sequence ACGT
/// assert_eq!(reference.contigs()[0].digest.to_string(), "aKF498dAxcJAqme6QYQ7EZ07-fiw8Kw2");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub(super) [u8; DIGEST_BYTES]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub(super) fn compute(bytes: &[u8]) -> Self {
        Self::truncate(ring::digest::digest(&ring::digest::SHA512, bytes).as_ref())
    }

    fn truncate(digest: &[u8]) -> Self {
        let mut first = [0; DIGEST_BYTES];
        first.copy_from_slice(&digest[..DIGEST_BYTES]);
        Self(first)
    }
}

/// Formats the digest as base64url (RFC 4648 §5). Padding is not needed for 24 bytes.
impl std::fmt::Display for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(&BASE64_URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// A sequence of a reference, such as a chromosome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceContig {
    /// The title of the FASTA record up to the first white space.
    pub name: String,
    /// Number of bases of all preceding sequences.
    pub start: u64,
    /// Number of bases of this sequence.
    pub bases: u64,
    /// The refget digest; with the prefix `SQ.` it is the GA4GH identifier.
    pub digest: Digest,
    /// XXH3 of the bits that mark lower-case letters (soft mask); 0 if no letter is lower case.
    pub(super) case_checksum: u64,
}

impl ReferenceContig {
    /// Returns the properties that must be equal at the packing and the unpacking end: the digest and the checksum of
    /// the soft mask.
    pub(crate) fn identity(&self) -> String {
        format!("{}.{:x}", self.digest, self.case_checksum)
    }

    /// Returns the range `[start, end)` of this sequence among the concatenated bases of all sequences.
    pub(super) fn base_range(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.bases) as usize
    }
}

/// Use of the cache files of a reference.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_delta::{Reference, ReferenceCachePolicy};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("reference.fa");
/// std::fs::write(&path, ">chr1\nACGT\n")?;
/// let cache_file = directory.path().join("reference.fa.gwp-bases");
///
/// Reference::open(&path, ReferenceCachePolicy::Disabled, 1)?;
/// assert!(!cache_file.exists());
/// Reference::open(&path, ReferenceCachePolicy::BesideFasta, 1)?;
/// assert!(cache_file.exists());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceCachePolicy {
    /// Cache files are beside the FASTA file: `REF.fa.gwp-bases` and `REF.fa.gwp-anchors`. They are not written if the
    /// directory is not writable.
    BesideFasta,
    /// No cache files are written, and existing ones are ignored.
    Disabled,
}

/// The sequences of a reference, in memory.
#[derive(Debug)]
pub struct Reference {
    pub(super) path: PathBuf,
    pub(super) contigs: Vec<ReferenceContig>,
    pub(super) digest: Digest,
    /// The concatenated bases of all sequences; A for letters other than ACGT.
    pub(super) bases: Bases,
    /// A bit for each letter, set for lower case; `None` if all letters are upper case.
    pub(super) soft_mask: Option<BitVector>,
    pub(super) non_acgt: Vec<NonAcgtInterval>,
    cache_policy: ReferenceCachePolicy,
    /// XXH3 of the bases, by which the cache file of the k-mer index is recognized.
    checksum: u64,
}

impl Reference {
    /// Reads the sequences of a FASTA file (plain, gzip or BGZF). Uses the cache file instead if it matches the FASTA
    /// file. Ignores errors that occur while the cache file is written.
    ///
    /// # Errors
    /// [`DeltaError::Reference`] if the file is not valid FASTA, [`DeltaError::Io`] if it cannot be read,
    /// [`DeltaError::ReferenceTooLarge`] if it has too many bases, [`DeltaError::Thread`] if a thread cannot be
    /// started.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_delta::{DeltaError, Reference, ReferenceCachePolicy};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("reference.fa");
    /// std::fs::write(&path, ">chr1 first\nACGTAC\nGT\n>chrM\nNNAC\n")?;
    /// let reference = Reference::open(&path, ReferenceCachePolicy::Disabled, 1)?;
    /// let contigs: Vec<_> = reference.contigs().iter().map(|contig| (contig.name.as_str(), contig.bases)).collect();
    /// assert_eq!(contigs, [("chr1", 8), ("chrM", 4)]);
    /// assert_eq!(reference.bases(), 12);
    ///
    /// std::fs::write(&path, "chr1\tACGTACGT\n")?;
    /// let error = Reference::open(&path, ReferenceCachePolicy::Disabled, 1).unwrap_err();
    /// assert!(matches!(error, DeltaError::Reference(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(path: &Path, cache_policy: ReferenceCachePolicy, threads: usize) -> Result<Self, DeltaError> {
        if cache_policy == ReferenceCachePolicy::BesideFasta
            && let Some(kept) = cache_files::read_cached_reference(path, threads)
        {
            return Ok(kept);
        }
        let stamp = FileStamp::read(path).map_err(DeltaError::io_error(path))?;
        let mut reference = fasta_import::read_fasta(path, threads)?;
        check_reference_size(reference.bases.count() as u64)?;
        reference.cache_policy = cache_policy;
        if cache_policy == ReferenceCachePolicy::BesideFasta {
            // Ignore the error: without the cache file, the next run reads the FASTA file again.
            let _ = cache_files::write_cached_reference(&reference, stamp);
        }
        Ok(reference)
    }

    /// Returns the index of the k-mers of the reference. Reads it from the cache file if that matches the sequences.
    ///
    /// # Errors
    /// Currently never fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_delta::{Reference, ReferenceCachePolicy};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("reference.fa");
    /// std::fs::write(&path, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// let reference = Reference::open(&path, ReferenceCachePolicy::Disabled, 1)?;
    /// let index = reference.kmer_index(1)?;
    /// assert!(index.memory_bytes() > 0);
    /// // The number of threads does not change the index.
    /// assert_eq!(index, reference.kmer_index(4)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kmer_index(&self, threads: usize) -> Result<KmerIndex, DeltaError> {
        if self.cache_policy == ReferenceCachePolicy::BesideFasta
            && let Some(kept) = cache_files::read_cached_kmer_index(self, threads)
        {
            return Ok(kept);
        }
        let anchors = KmerIndex::build(&self.bases, &self.non_acgt, threads);
        if self.cache_policy == ReferenceCachePolicy::BesideFasta {
            let _ = cache_files::write_cached_kmer_index(self, &anchors);
        }
        Ok(anchors)
    }

    /// Returns the digest of all sequences in their order.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_delta::{DeltaError, Digest, Reference, ReferenceCachePolicy};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("reference.fa");
    /// let digest = |text: &str| -> Result<Digest, Box<dyn std::error::Error>> {
    ///     std::fs::write(&path, text)?;
    ///     Ok(Reference::open(&path, ReferenceCachePolicy::Disabled, 1)?.digest())
    /// };
    /// // Names, case and line lengths do not change the digest.
    /// assert_eq!(digest(">chr1\nACGTAC\n")?, digest(">1\nacgt\nac\n")?);
    /// assert_ne!(digest(">chr1\nACGTAC\n")?, digest(">chr1\nACGTAA\n")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the sequences in the order of the file.
    pub fn contigs(&self) -> &[ReferenceContig] {
        &self.contigs
    }

    /// Returns the path of the FASTA file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the total number of bases of all sequences.
    pub fn bases(&self) -> u64 {
        self.bases.count() as u64
    }

    /// Returns the index of the sequence that contains the base at a 0-based position in the concatenated bases.
    pub(super) fn contig_index_at(&self, base: usize) -> usize {
        self.contigs.partition_point(|contig| contig.start as usize <= base) - 1
    }
}

/// Returns the digest of a list of sequences in order (GA4GH seqcol v1, attribute `sequences`: canonical JSON of the
/// identifiers).
fn sequence_collection_digest(contigs: &[ReferenceContig]) -> Digest {
    let names: Vec<String> = contigs.iter().map(|contig| format!("\"SQ.{}\"", contig.digest)).collect();
    Digest::compute(format!("[{}]", names.join(",")).as_bytes())
}

#[cfg(test)]
mod tests;
