//! Simulation of base qualities that resemble those of Illumina sequencers, also in how well they compress, and of the
//! sequencing errors that these qualities predict.
//!
//! Input: the true bases of a read. Output: base qualities, and the bases with random errors whose rates are given by
//! the qualities.

use super::rng::{Rng, substitute};

/// Offset of base qualities in FASTQ text (Phred+33).
const PHRED_OFFSET: u8 = 33;
/// Quality of a base that the sequencer could not call (N).
const NO_CALL_QUALITY: u8 = 2;
/// Fraction of reads whose last bases are not called.
const LOST_TAIL_SHARE: f64 = 0.005;

/// The set of quality values that a sequencer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QualityProfile {
    /// All values from 2 to 41, as HiSeq and MiSeq write them. This is the hardest case for compression.
    Full,
    /// The four values 2, 12, 23 and 37, as NovaSeq writes them.
    Binned,
}

/// A model of base qualities and sequencing errors for reads of a fixed length.
pub(super) struct QualityModel {
    profile: QualityProfile,
    /// For each cycle, the fraction of the total quality loss of a read that has occurred by then, in units of 1/256.
    loss_by_cycle: Vec<u32>,
    /// Threshold for each quality. A base is wrong if 32 random bits are below the threshold.
    error_threshold: [u32; 42],
    /// Amount by which the quality of a base is below the maximum, indexed by 8 random bits. Mostly zero, sometimes
    /// large.
    drop_by_bits: [u8; 256],
}

impl QualityModel {
    pub(super) fn new(profile: QualityProfile, read_bases: usize) -> Self {
        let loss_by_cycle =
            (0..read_bases).map(|cycle| (256 * cycle * cycle / (read_bases * read_bases)) as u32).collect();
        let error_threshold =
            std::array::from_fn(|quality| (10f64.powf(-(quality as f64) / 10.0) * 4_294_967_295.0) as u32);
        let drop_by_bits = std::array::from_fn(|bits| match bits {
            0..150 => 0,
            150..195 => 1 + (bits % 2) as u8,
            195..230 => 3 + (bits % 4) as u8,
            230..250 => 7 + (bits % 9) as u8,
            _ => 16 + (bits % 16) as u8,
        });
        Self { profile, loss_by_cycle, error_threshold, drop_by_bits }
    }

    /// Adds sequencing errors to `bases` and appends their qualities as FASTQ text.
    pub(super) fn add_errors_and_qualities(
        &self,
        second_read: bool,
        bases: &mut [u8],
        text: &mut Vec<u8>,
        rng: &mut Rng,
    ) {
        // Amount by which the quality falls until the last cycle of the read: small for most reads, larger for second
        // reads.
        let lost = match rng.bits() & 0xFF {
            kind @ 0..180 => 2 + kind as u32 % 6,
            kind @ 180..244 => 8 + kind as u32 % 12,
            kind => 20 + kind as u32 % 16,
        } + if second_read { 3 } else { 0 };
        let tail_start = if rng.chance(LOST_TAIL_SHARE) {
            bases.len() - (rng.below(20) as usize).min(bases.len())
        } else {
            bases.len()
        };
        let mut dip = 0;
        for (cycle, base) in bases.iter_mut().enumerate() {
            let bits = rng.bits();
            // Neighbouring qualities are correlated: only in about half of the cycles, a new value is drawn.
            if bits >> 32 & 1 == 0 {
                dip = u32::from(self.drop_by_bits[(bits >> 40 & 0xFF) as usize]);
            }
            let ceiling = MAX_QUALITY_BY_CYCLE.get(cycle).copied().unwrap_or(41);
            let fall = dip + ((lost * self.loss_by_cycle.get(cycle).copied().unwrap_or(256)) >> 8);
            let mut quality = ceiling.saturating_sub(fall).max(3) as u8;
            if cycle >= tail_start || bits >> 48 == 0 {
                quality = NO_CALL_QUALITY;
            }
            if self.profile == QualityProfile::Binned {
                quality = novaseq_bin(quality);
            }
            if quality == NO_CALL_QUALITY || *base == b'N' {
                (*base, quality) = (b'N', NO_CALL_QUALITY);
            } else if (bits as u32) < self.error_threshold[usize::from(quality)] {
                *base = substitute(*base, (bits >> 33 & 0x7F) as u8);
            }
            text.push(quality + PHRED_OFFSET);
        }
    }
}

/// Maximum quality in the first cycles. In all later cycles, it is 41.
const MAX_QUALITY_BY_CYCLE: [u32; 13] = [34, 34, 34, 37, 37, 37, 37, 37, 39, 39, 39, 39, 39];

/// Returns the quality value with which NovaSeq represents this quality.
fn novaseq_bin(quality: u8) -> u8 {
    match quality {
        0..=2 => 2,
        3..15 => 12,
        15..30 => 23,
        _ => 37,
    }
}
