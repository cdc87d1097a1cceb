//! References: their sequences at two bits a base, their digests, and both kept beside the FASTA file.
//!
//! A sequence is known by its refget digest (GA4GH refget v2: SHA-512 of the upper-case letters, cut to 24 bytes, in base64url),
//! a reference by that of all its sequences in their order (GA4GH seqcol, attribute `sequences`). Names say nothing.

mod cache;
mod read;

use std::path::{Path, PathBuf};

use super::anchors::{Anchors, check_size};
use super::bases::{Bases, Bits, OtherRun};
use super::error::DeltaError;

/// Bytes of a digest.
pub(super) const DIGEST_BYTES: usize = 24;

/// A digest: the first 24 bytes of a SHA-512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub(super) [u8; DIGEST_BYTES]);

impl Digest {
    /// Of those bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self::cut(ring::digest::digest(&ring::digest::SHA512, bytes).as_ref())
    }

    fn cut(digest: &[u8]) -> Self {
        let mut first = [0; DIGEST_BYTES];
        first.copy_from_slice(&digest[..DIGEST_BYTES]);
        Self(first)
    }
}

/// base64url (RFC 4648 §5) without padding, which 24 bytes do not need.
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
    /// Bases of all sequences before it.
    pub start: u64,
    /// Its bases.
    pub bases: u64,
    /// Its refget digest; with `SQ.` before it, its GA4GH identifier.
    pub digest: Digest,
    /// Names which of its letters are lower case; 0 where none is.
    pub(super) case_checksum: u64,
}

impl ReferenceContig {
    /// What has to be the same where something packed by it is unpacked: its digest, and which of its letters are lower case.
    pub(crate) fn identity(&self) -> String {
        format!("{}.{:x}", self.digest, self.case_checksum)
    }

    /// Its place among the bases of all sequences, `[start, end)`.
    pub(super) fn span(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.bases) as usize
    }
}

/// Where what was computed of a reference is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Beside the FASTA file where that directory can be written to: `REF.fa.gwp-bases`, `REF.fa.gwp-anchors`.
    Beside,
    /// Nowhere, and what lies there is not looked at.
    Nowhere,
}

/// The sequences of a reference.
#[derive(Debug)]
pub struct Reference {
    pub(super) path: PathBuf,
    pub(super) contigs: Vec<ReferenceContig>,
    pub(super) digest: Digest,
    /// The bases of all sequences; A where there is none.
    pub(super) bases: Bases,
    /// Set where letters are lower case; nothing where all are upper.
    pub(super) lower: Option<Bits>,
    pub(super) others: Vec<OtherRun>,
    keep: Keep,
    /// Names what is kept beside it: other contents have another.
    checksum: u64,
}

impl Reference {
    /// The sequences of a FASTA file, plain, gzip or BGZF, from what was kept where that is of this file as it is now.
    /// What cannot be kept is no failure.
    ///
    /// # Errors
    /// [`DeltaError::Reference`], [`DeltaError::Io`], [`DeltaError::TooLarge`].
    pub fn open(path: &Path, keep: Keep, threads: usize) -> Result<Self, DeltaError> {
        if keep == Keep::Beside
            && let Some(kept) = cache::read_bases(path, threads)
        {
            return Ok(kept);
        }
        let stamp = cache::Stamp::of(path).map_err(DeltaError::at(path))?;
        let mut reference = read::read(path, threads)?;
        check_size(reference.bases.count() as u64)?;
        reference.keep = keep;
        if keep == Keep::Beside {
            // A directory that cannot be written to makes the next run slower, and this one no worse.
            let _ = cache::write_bases(&reference, stamp);
        }
        Ok(reference)
    }

    /// Where its k-mers are, from what was kept where that is of these sequences.
    ///
    /// # Errors
    /// None but those of the machine.
    pub fn anchors(&self, threads: usize) -> Result<Anchors, DeltaError> {
        if self.keep == Keep::Beside
            && let Some(kept) = cache::read_anchors(self, threads)
        {
            return Ok(kept);
        }
        let anchors = Anchors::build(&self.bases, &self.others, threads);
        if self.keep == Keep::Beside {
            let _ = cache::write_anchors(self, &anchors);
        }
        Ok(anchors)
    }

    /// The digest of all sequences in their order.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The sequences, in the order of the file.
    pub fn contigs(&self) -> &[ReferenceContig] {
        &self.contigs
    }

    /// The FASTA file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bases of all sequences.
    pub fn bases(&self) -> u64 {
        self.bases.count() as u64
    }

    /// Which sequence a base is of.
    pub(super) fn contig_at(&self, base: usize) -> usize {
        self.contigs.partition_point(|contig| contig.start as usize <= base) - 1
    }
}

/// The digest of sequences in their order (GA4GH seqcol v1, attribute `sequences`: canonical JSON of the identifiers).
fn digest_of_all(contigs: &[ReferenceContig]) -> Digest {
    let names: Vec<String> = contigs.iter().map(|contig| format!("\"SQ.{}\"", contig.digest)).collect();
    Digest::of(format!("[{}]", names.join(",")).as_bytes())
}

#[cfg(test)]
mod tests;
