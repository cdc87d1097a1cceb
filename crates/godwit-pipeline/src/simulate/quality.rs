//! Base qualities that look and compress like an Illumina machine's, and the sequencing errors they announce.
//!
//! In: the true bases of a read. Out: its qualities, and the bases with errors drawn from them.

use super::rng::{Rng, substitute};

/// Offset of qualities in FASTQ text.
const PHRED_OFFSET: u8 = 33;
/// The quality of a base that was not called.
const NOT_CALLED: u8 = 2;
/// Share of reads that end in a run of bases that were not called.
const LOST_TAIL_SHARE: f64 = 0.005;

/// The set of quality values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QualityProfile {
    /// All values from 2 to 41, as HiSeq and MiSeq write them: the hard case for compression.
    Full,
    /// 2, 12, 23 and 37, as NovaSeq writes them.
    Binned,
}

/// Draws qualities and errors for reads of one length.
pub(super) struct QualityModel {
    profile: QualityProfile,
    /// How much of a read's loss has set in by each cycle, out of 256.
    loss: Vec<u32>,
    /// A base is wrong when 32 random bits are below the threshold of its quality.
    error_threshold: [u32; 42],
    /// How far below the ceiling a base falls, by 8 random bits: mostly not at all, sometimes far.
    dip: [u8; 256],
}

impl QualityModel {
    pub(super) fn new(profile: QualityProfile, read_bases: usize) -> Self {
        let loss = (0..read_bases).map(|cycle| (256 * cycle * cycle / (read_bases * read_bases)) as u32).collect();
        let error_threshold =
            std::array::from_fn(|quality| (10f64.powf(-(quality as f64) / 10.0) * 4_294_967_295.0) as u32);
        let dip = std::array::from_fn(|bits| match bits {
            0..150 => 0,
            150..195 => 1 + (bits % 2) as u8,
            195..230 => 3 + (bits % 4) as u8,
            230..250 => 7 + (bits % 9) as u8,
            _ => 16 + (bits % 16) as u8,
        });
        Self { profile, loss, error_threshold, dip }
    }

    /// Changes `bases` where the machine errs and appends their qualities as FASTQ text.
    pub(super) fn sequence(&self, second_read: bool, bases: &mut [u8], text: &mut Vec<u8>, rng: &mut Rng) {
        // How many quality points the read has lost by its last cycle: little for most, second reads some more.
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
            // Neighbours resemble each other: only about one cycle in two draws anew.
            if bits >> 32 & 1 == 0 {
                dip = u32::from(self.dip[(bits >> 40 & 0xFF) as usize]);
            }
            let ceiling = CEILING.get(cycle).copied().unwrap_or(41);
            let fall = dip + ((lost * self.loss.get(cycle).copied().unwrap_or(256)) >> 8);
            let mut quality = ceiling.saturating_sub(fall).max(3) as u8;
            if cycle >= tail_start || bits >> 48 == 0 {
                quality = NOT_CALLED;
            }
            if self.profile == QualityProfile::Binned {
                quality = bin(quality);
            }
            if quality == NOT_CALLED || *base == b'N' {
                (*base, quality) = (b'N', NOT_CALLED);
            } else if (bits as u32) < self.error_threshold[usize::from(quality)] {
                *base = substitute(*base, (bits >> 33 & 0x7F) as u8);
            }
            text.push(quality + PHRED_OFFSET);
        }
    }
}

/// Best quality of the first cycles; 41 from there on.
const CEILING: [u32; 13] = [34, 34, 34, 37, 37, 37, 37, 37, 39, 39, 39, 39, 39];

/// The NovaSeq bin of a quality.
fn bin(quality: u8) -> u8 {
    match quality {
        0..=2 => 2,
        3..15 => 12,
        15..30 => 23,
        _ => 37,
    }
}
