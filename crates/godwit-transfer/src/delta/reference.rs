//! References: sequences with two bits per base, digests, and a cache of both beside the FASTA file.
//!
//! A sequence is identified by its refget digest (GA4GH refget v2: SHA-512 of the upper-case letters, truncated to 24 bytes,
//! in base64url), a reference by the digest of its sequences in order (GA4GH seqcol, attribute `sequences`). Names do not
//! matter.

mod cache_files;
mod fasta_import;

use std::path::{Path, PathBuf};

use super::bases::{Bases, BitVector, NonAcgtInterval};
use super::error::DeltaError;
use super::kmer_index::{KmerIndex, check_reference_size};

/// Size of a digest, bytes.
pub(super) const DIGEST_BYTES: usize = 24;

/// A digest: the first 24 bytes of a SHA-512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub(super) [u8; DIGEST_BYTES]);

impl Digest {
    /// Returns the digest of the bytes.
    pub(super) fn compute(bytes: &[u8]) -> Self {
        Self::truncate(ring::digest::digest(&ring::digest::SHA512, bytes).as_ref())
    }

    fn truncate(digest: &[u8]) -> Self {
        let mut first = [0; DIGEST_BYTES];
        first.copy_from_slice(&digest[..DIGEST_BYTES]);
        Self(first)
    }
}

/// Formats as base64url (RFC 4648 §5) without padding, which 24 bytes do not need.
impl std::fmt::Display for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(&godwit_flight::encode_base64_url(&self.0))
    }
}

/// A sequence of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceContig {
    /// The title up to the first white space.
    pub name: String,
    /// Number of bases of all sequences before it.
    pub start: u64,
    /// Number of its bases.
    pub bases: u64,
    /// The refget digest; with the prefix `SQ.` it is the GA4GH identifier.
    pub digest: Digest,
    /// XXH3 of the soft mask; 0 if no letter is lower case.
    pub(super) case_checksum: u64,
}

impl ReferenceContig {
    /// Returns what must be equal at the unpacking end: the digest and the checksum of the soft mask.
    pub(crate) fn identity(&self) -> String {
        format!("{}.{:x}", self.digest, self.case_checksum)
    }

    /// Returns its range among the bases of all sequences, `[start, end)`.
    pub(super) fn base_range(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.bases) as usize
    }
}

/// The location of the cache files of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceCachePolicy {
    /// Beside the FASTA file, if that directory is writable: `REF.fa.gwp-bases`, `REF.fa.gwp-anchors`.
    BesideFasta,
    /// Nowhere; existing cache files are ignored.
    Disabled,
}

/// The sequences of a reference.
#[derive(Debug)]
pub struct Reference {
    pub(super) path: PathBuf,
    pub(super) contigs: Vec<ReferenceContig>,
    pub(super) digest: Digest,
    /// The bases of all sequences; A for letters other than ACGT.
    pub(super) bases: Bases,
    /// Set for lower-case letters; `None` if all are upper case.
    pub(super) soft_mask: Option<BitVector>,
    pub(super) non_acgt: Vec<NonAcgtInterval>,
    cache_policy: ReferenceCachePolicy,
    /// XXH3 of the bases, which identifies the k-mer index.
    checksum: u64,
}

impl Reference {
    /// Reads the sequences of a FASTA file (plain, gzip or BGZF), or its cache file if that is valid for the present file. A
    /// cache file that cannot be written is not an error.
    ///
    /// # Errors
    /// [`DeltaError::Reference`] if the file is not valid FASTA, [`DeltaError::Io`] if it cannot be read,
    /// [`DeltaError::ReferenceTooLarge`], [`DeltaError::Thread`].
    pub fn open(path: &Path, cache_policy: ReferenceCachePolicy, threads: usize) -> Result<Self, DeltaError> {
        if cache_policy == ReferenceCachePolicy::BesideFasta
            && let Some(kept) = cache_files::read_cached_reference(path, threads)
        {
            return Ok(kept);
        }
        let stamp = cache_files::FileStamp::from_path(path).map_err(DeltaError::io_error(path))?;
        let mut reference = fasta_import::read_fasta(path, threads)?;
        check_reference_size(reference.bases.count() as u64)?;
        reference.cache_policy = cache_policy;
        if cache_policy == ReferenceCachePolicy::BesideFasta {
            // An unwritable directory only makes the next run slower.
            let _ = cache_files::write_cached_reference(&reference, stamp);
        }
        Ok(reference)
    }

    /// Returns the index of its k-mers, from the cache file if that is valid for these sequences.
    ///
    /// # Errors
    /// None at present.
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

    /// Returns the digest of all sequences in order.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the sequences, in the order of the file.
    pub fn contigs(&self) -> &[ReferenceContig] {
        &self.contigs
    }

    /// Returns the path of the FASTA file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bases of all sequences.
    pub fn bases(&self) -> u64 {
        self.bases.count() as u64
    }

    /// Returns the index of the sequence that contains a base.
    pub(super) fn contig_index_at(&self, base: usize) -> usize {
        self.contigs.partition_point(|contig| contig.start as usize <= base) - 1
    }
}

/// Returns the digest of sequences in order (GA4GH seqcol v1, attribute `sequences`: canonical JSON of the identifiers).
fn sequence_collection_digest(contigs: &[ReferenceContig]) -> Digest {
    let names: Vec<String> = contigs.iter().map(|contig| format!("\"SQ.{}\"", contig.digest)).collect();
    Digest::compute(format!("[{}]", names.join(",")).as_bytes())
}

#[cfg(test)]
mod tests;
