//! Options of simulated reads.

use super::quality::QualityProfile;

/// Adapter sequences, with which a read continues after the end of a short fragment (Illumina TruSeq, document
/// 1000000002694).
pub(super) const ADAPTERS: [&[u8]; 2] = [b"AGATCGGAAGAGCACACGTCTGAACTCCAGTCA", b"AGATCGGAAGAGCGTCGTGTAGGGAAAGAGTGT"];

/// Options of simulated reads.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadOptions {
    /// Number of read pairs in all lanes together.
    pub pairs: u64,
    /// Length of each read, 30 to 1000 bases.
    pub read_bases: u32,
    /// Mean template length, bases; at least `read_bases`.
    pub insert_mean: u32,
    /// Standard deviation of the template length, bases.
    pub insert_sd: u32,
    /// Fraction of templates that are PCR duplicates of an earlier template.
    pub pcr_duplicate_fraction: f64,
    /// Fraction of templates that are optical duplicates of an earlier template. The sum of both duplicate fractions is
    /// at most 0.9.
    pub optical_duplicate_fraction: f64,
    /// Fraction of molecules that combine two origins (chimeras). In half of them, each read has its own origin; in the
    /// other half, the origin changes within a read.
    pub chimeric_fraction: f64,
    /// Fraction of molecules with random bases. In half of them, only read 2 is random; in the other half, both reads
    /// are. The sum with `chimeric_fraction` is at most 1.
    pub junk_fraction: f64,
    /// Number of lanes, 1 to 8. Each lane has its own files. Consecutive templates are in different lanes, but an
    /// optical duplicate is in the lane of the template that it copies.
    pub lanes: u32,
    /// The set of base qualities that the reads have.
    pub qualities: QualityProfile,
    /// True to write `.fastq.gz`, compressed at level 1; false to write `.fastq`.
    pub gzip: bool,
    /// Seed of the random numbers. The same seed gives the same reads.
    pub seed: u64,
}

impl Default for ReadOptions {
    /// Returns options for 100,000 pairs of 2 x 148 bases in one lane, of which 12 % are duplicates.
    fn default() -> Self {
        Self {
            pairs: 100_000,
            read_bases: 148,
            insert_mean: 380,
            insert_sd: 80,
            pcr_duplicate_fraction: 0.10,
            optical_duplicate_fraction: 0.02,
            chimeric_fraction: 0.004,
            junk_fraction: 0.004,
            lanes: 1,
            qualities: QualityProfile::Full,
            gzip: false,
            seed: 1,
        }
    }
}

impl ReadOptions {
    /// Returns the minimum template length, bases. With it, a read that continues past the end of the template ends
    /// within the adapter.
    pub(super) fn shortest_insert(&self) -> usize {
        (self.read_bases as usize).saturating_sub(ADAPTERS[0].len()).max(20)
    }
}
