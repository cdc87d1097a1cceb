//! Recalibration of the qualities of records (GATK 4.6.2.0, `BQSRReadTransformer`).

use godwit_model::RawRecord;
use serde::{Deserialize, Serialize};

use crate::counts::{ErrorCounts, GroupCounts, NO_CONTEXT, QualityCounts, RecalibrationCounts};
use crate::covariates::{CYCLE_KEYS, ReadCovariates, unpack_bases};
use crate::empirical_quality::empirical_quality;
use crate::error::ReadError;
use crate::quantizer::{QualityMap, level_count, quantize, static_map};
use crate::read_counter::{check_length, original_qualities, read_group_index};
use crate::read_filter::is_well_formed;
use crate::read_groups::RecalibrationGroups;
use crate::recalibration_report::{GroupTotal, QUANTIZING_LEVELS, empirical_histogram};
use crate::{MAX_QUALITY, MIN_USABLE_QUALITY, QUALITIES};

/// The options of ApplyBQSR that change qualities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QualityOptions {
    /// Qualities (Phred) to which recalibrated qualities are rounded; empty for no rounding.
    pub static_levels: Vec<u8>,
    /// Number of different qualities to which recalibrated qualities are reduced; `None` for no reduction.
    pub quantizing_levels: Option<usize>,
    /// True to store the previous qualities in the tag `OQ`, unless a record has this tag.
    pub emit_original: bool,
    /// True to count and change the qualities in the tag `OQ`, where a record has this tag.
    pub use_original: bool,
}

/// The estimated qualities of a read group.
#[derive(Debug)]
struct GroupEstimates {
    /// Estimate for qualities that were not counted.
    default: i16,
    qualities: Vec<Option<Box<QualityEstimates>>>,
}

/// The estimated quality of bases with one reported quality, and its changes by context and cycle.
#[derive(Debug)]
struct QualityEstimates {
    estimate: i16,
    contexts: [i16; NO_CONTEXT + 1],
    cycles: [i16; CYCLE_KEYS],
}

impl QualityEstimates {
    fn new(counts: &QualityCounts, group_estimate: u8) -> Self {
        let estimate = empirical_quality(counts.total(), f64::from(group_estimate));
        let change = |counts: &ErrorCounts| match counts.observations {
            0 => 0,
            _ => i16::from(empirical_quality(*counts, f64::from(estimate))) - i16::from(estimate),
        };
        let mut contexts = [0; NO_CONTEXT + 1];
        contexts.iter_mut().zip(&counts.contexts[..NO_CONTEXT]).for_each(|(to, counts)| *to = change(counts));
        let mut cycles = [0; CYCLE_KEYS];
        cycles.iter_mut().zip(&counts.cycles).for_each(|(to, counts)| *to = change(counts));
        Self { estimate: i16::from(estimate), contexts, cycles }
    }
}

impl GroupEstimates {
    /// Estimates the qualities of a read group; `None` if it has no counts.
    fn new(group: &GroupCounts) -> Option<Self> {
        let total = GroupTotal::new(group)?;
        let estimate = empirical_quality(total.counts, total.reported_quality);
        let mut qualities: Vec<_> = (0..QUALITIES).map(|_| None).collect();
        for (quality, counts) in group.qualities() {
            qualities[usize::from(quality)] = Some(Box::new(QualityEstimates::new(counts, estimate)));
        }
        Some(Self { default: i16::from(estimate), qualities })
    }
}

/// Changes the qualities of records by the counts of all reads.
#[derive(Debug)]
pub struct Recalibrator {
    groups: RecalibrationGroups,
    contig_lengths: Vec<u32>,
    /// Estimates of each read group; `None` for a group without counts.
    estimates: Vec<Option<GroupEstimates>>,
    /// The quality that replaces each recalibrated quality.
    levels: QualityMap,
    options: QualityOptions,
}

/// Buffers for one record, which each thread reuses.
#[derive(Debug, Default)]
pub struct RecordBuffers {
    record: Vec<u8>,
    codes: Vec<u8>,
    qualities: Vec<u8>,
}

impl Recalibrator {
    /// Estimates all qualities. `groups`: the read groups of the header; `contig_lengths`: bases of each contig.
    pub fn new(
        counts: &RecalibrationCounts,
        groups: &RecalibrationGroups,
        contig_lengths: Vec<u32>,
        options: QualityOptions,
    ) -> Self {
        let estimates = groups.names().iter().map(|name| {
            let group = counts.groups.iter().find(|group| group.name == *name)?;
            GroupEstimates::new(group)
        });
        Self {
            estimates: estimates.collect(),
            groups: groups.clone(),
            contig_lengths,
            levels: final_levels(counts, &options),
            options,
        }
    }

    /// Returns the record with recalibrated qualities; its other bytes are unchanged, except for a new tag `OQ`. Records
    /// that GATK drops are returned unchanged: those without a read group, bases or qualities, and those whose CIGAR is
    /// invalid or skips a region. If no base of the read group was counted, qualities are only rounded to levels.
    ///
    /// # Errors
    /// [`ReadError`] for a read of more than 500 bases, or whose read group is not in the header.
    pub fn recalibrate<'r>(
        &self,
        record: RawRecord<'r>,
        flag: u16,
        buffers: &'r mut RecordBuffers,
    ) -> Result<RawRecord<'r>, ReadError> {
        if !is_well_formed(record, flag, &self.contig_lengths) {
            return Ok(record);
        }
        let group = read_group_index(record, &self.groups)?;
        check_length(record)?;
        let RecordBuffers { record: changed, codes, qualities } = buffers;
        qualities.clear();
        let original = if self.options.use_original { original_qualities(record)? } else { None };
        match original {
            Some(original) => qualities.extend(original),
            None => qualities.extend_from_slice(record.qualities()),
        }
        let bytes = record.bytes();
        changed.clear();
        changed.extend_from_slice(bytes);
        let start = bytes.len() - record.tag_bytes().len() - qualities.len();
        if self.options.emit_original && record.tag(*b"OQ").is_none() {
            changed.extend_from_slice(b"OQZ");
            changed.extend(qualities.iter().map(|quality| quality + b'!'));
            changed.push(0);
        }
        let out = &mut changed[start..start + qualities.len()];
        match &self.estimates[group] {
            Some(estimates) => {
                unpack_bases(record.packed_bases(), qualities.len(), codes);
                let covariates = ReadCovariates::new(codes, qualities, flag);
                self.change_qualities(estimates, &covariates, qualities, out);
            }
            None => {
                for (out, quality) in out.iter_mut().zip(qualities) {
                    *out = self.levels[usize::from((*quality).min(MAX_QUALITY))];
                }
            }
        }
        Ok(RawRecord::from_trusted_bytes(changed))
    }

    fn change_qualities(
        &self,
        estimates: &GroupEstimates,
        covariates: &ReadCovariates,
        qualities: &[u8],
        out: &mut [u8],
    ) {
        for (at, (out, quality)) in out.iter_mut().zip(qualities).enumerate() {
            if *quality < MIN_USABLE_QUALITY {
                *out = *quality;
                continue;
            }
            let counted = estimates.qualities.get(usize::from(*quality)).and_then(Option::as_deref);
            let raw = counted.map_or(estimates.default, |estimates| {
                let changes = estimates.contexts[covariates.context(at)] + estimates.cycles[covariates.cycle_key(at)];
                estimates.estimate + changes
            });
            *out = self.levels[usize::from(raw.clamp(1, i16::from(MAX_QUALITY)) as u8)];
        }
    }
}

/// Returns the quality that replaces each recalibrated quality.
fn final_levels(counts: &RecalibrationCounts, options: &QualityOptions) -> QualityMap {
    let histogram = empirical_histogram(counts);
    let of_report = quantize(&histogram, QUANTIZING_LEVELS);
    let mut levels = match options.quantizing_levels {
        // GATK leaves the highest quality as the report maps it.
        None => {
            let mut levels: QualityMap = std::array::from_fn(|quality| quality as u8);
            levels[usize::from(MAX_QUALITY)] = of_report[usize::from(MAX_QUALITY)];
            levels
        }
        Some(count) if count == level_count(&of_report) => of_report,
        Some(count) => quantize(&histogram, count),
    };
    if !options.static_levels.is_empty() {
        let nearest = static_map(&options.static_levels);
        levels.iter_mut().for_each(|level| *level = nearest[usize::from(*level)]);
    }
    levels
}
