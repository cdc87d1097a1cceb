//! Counting of the bases of reads (GATK 4.6.2.0, `BaseRecalibrationEngine`).

use godwit_kernels::qc::ReferenceBases;
use godwit_model::RawRecord;

use crate::clipped_read::ClippedRead;
use crate::counts::{ErrorCounts, RecalibrationCounts};
use crate::covariates::{MAX_CYCLE, OTHER_BASE, ReadCovariates, unpack_bases};
use crate::error::ReadError;
use crate::known_sites::{KnownSites, SiteSearch};
use crate::read_filter::{is_counted, is_well_formed};
use crate::read_groups::RecalibrationGroups;
use crate::{MAX_QUALITY, MIN_USABLE_QUALITY};

/// The 4-bit code of a base, indexed by its base code. No reference base has the code 0 of other bases.
const PACKED_CODES: [u8; 5] = [1, 2, 4, 8, 0];

/// The class in which a base is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BaseState {
    Match,
    Mismatch,
    /// The base is at a known site, and is not counted.
    Excluded,
}

/// A counter of the bases of reads. It is fast if the reads are in coordinate order, but the counts do not depend on the
/// order.
#[derive(Debug)]
pub struct ReadCounter<'s> {
    groups: &'s RecalibrationGroups,
    contig_lengths: &'s [u32],
    sites: SiteSearch<'s>,
    counts: RecalibrationCounts,
    /// Base codes of the current read.
    codes: Vec<u8>,
    /// Qualities of the current read that are taken from the tag OQ.
    original_qualities: Vec<u8>,
    /// States of the remaining bases of the current read.
    states: Vec<BaseState>,
    use_original_qualities: bool,
}

/// Returns the name of a read as text.
pub(crate) fn read_name(record: RawRecord) -> String {
    String::from_utf8_lossy(record.name()).into_owned()
}

/// Returns the index of the read group of a read, in [`RecalibrationGroups::names`].
pub(crate) fn read_group_index(record: RawRecord, groups: &RecalibrationGroups) -> Result<usize, ReadError> {
    let id = record.read_group().unwrap_or_default();
    groups.index(id).ok_or_else(|| ReadError::UnknownReadGroup {
        name: read_name(record),
        group: String::from_utf8_lossy(id).into_owned(),
    })
}

/// Checks that each base of a read has a cycle.
pub(crate) fn check_length(record: RawRecord) -> Result<(), ReadError> {
    match record.sequence_length() {
        bases if bases > MAX_CYCLE => Err(ReadError::TooLong { name: read_name(record), bases, max: MAX_CYCLE }),
        _ => Ok(()),
    }
}

/// Returns the qualities in the tag OQ of a read; `None` if the tag is absent or empty.
pub(crate) fn original_qualities(record: RawRecord) -> Result<Option<impl Iterator<Item = u8>>, ReadError> {
    let Some((b'Z', text)) = record.tag(*b"OQ") else { return Ok(None) };
    let is_valid = text.len() == record.sequence_length() && text.iter().all(|letter| (b'!'..=b'~').contains(letter));
    match (text.is_empty(), is_valid) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(text.iter().map(|letter| letter - b'!'))),
        (false, false) => Err(ReadError::InvalidOriginalQualities { name: read_name(record) }),
    }
}

impl<'s> ReadCounter<'s> {
    /// Creates a counter without counts. `groups`: the read groups of the header. `contig_lengths`: bases of each
    /// contig. `use_original_qualities`: true to count the qualities in the tag `OQ` of the reads that have it.
    pub fn new(
        groups: &'s RecalibrationGroups,
        contig_lengths: &'s [u32],
        sites: &'s KnownSites,
        use_original_qualities: bool,
    ) -> Self {
        Self {
            groups,
            contig_lengths,
            sites: SiteSearch::new(sites),
            counts: RecalibrationCounts::new(groups),
            codes: Vec::new(),
            original_qualities: Vec::new(),
            states: Vec::new(),
            use_original_qualities,
        }
    }

    /// Returns the counts of all reads.
    pub fn into_counts(self) -> RecalibrationCounts {
        self.counts
    }

    /// Counts the bases of a read with FLAG `flag`. Reads that GATK filters are ignored.
    ///
    /// # Errors
    /// [`ReadError`] for a read that GATK cannot count either, or if the reference cannot be read.
    pub fn add(&mut self, record: RawRecord, flag: u16, reference: &mut impl ReferenceBases) -> Result<(), ReadError> {
        if !is_counted(record, flag) || !is_well_formed(record, flag, self.contig_lengths) {
            return Ok(());
        }
        let group = read_group_index(record, self.groups)?;
        check_length(record)?;
        let clipped =
            ClippedRead::new(record, flag).map_err(|_| ReadError::InvalidCigar { name: read_name(record) })?;
        let Some(read) = clipped else { return Ok(()) };
        unpack_bases(record.packed_bases(), record.sequence_length(), &mut self.codes);
        self.codes.truncate(read.to);
        self.compare_with_reference(record, &read, reference)?;
        self.mask_known_sites(record.contig() as usize, &read);
        self.count_bases(record, flag, group, &read)
    }

    /// Sets the states of the bases of the read to match or mismatch.
    fn compare_with_reference(
        &mut self,
        record: RawRecord,
        read: &ClippedRead,
        reference: &mut impl ReferenceBases,
    ) -> Result<(), ReadError> {
        let mut codes = reference.codes(record.contig(), read.start, read.end()).map_err(ReadError::Reference)?;
        if codes.len() < (read.end() - read.start) as usize {
            return Err(ReadError::BeyondContig { name: read_name(record) });
        }
        let mut bases = &self.codes[read.from..];
        self.states.clear();
        for operation in &read.cigar {
            let length = operation.bases() as usize;
            match (operation.consumes_read(), operation.consumes_reference()) {
                (true, true) => {
                    let pairs = bases[..length].iter().zip(&codes[..length]);
                    let state = |(base, code): (&u8, &u8)| match PACKED_CODES[usize::from(*base)] == *code {
                        true => BaseState::Match,
                        false => BaseState::Mismatch,
                    };
                    self.states.extend(pairs.map(state));
                    (bases, codes) = (&bases[length..], &codes[length..]);
                }
                (true, false) => {
                    self.states.resize(self.states.len() + length, BaseState::Match);
                    bases = &bases[length..];
                }
                (false, true) => codes = &codes[length..],
                (false, false) => {}
            }
        }
        Ok(())
    }

    /// Excludes the bases at known sites. If a site starts in a deletion of the read, the base before the deletion is
    /// excluded too, and if it ends there, the base after it. A site that extends beyond an end of the read excludes
    /// all bases up to that end.
    fn mask_known_sites(&mut self, contig: usize, read: &ClippedRead) {
        let states = &mut self.states;
        self.sites.overlapping(contig, read.start, read.end(), |site| {
            let first = match read.base_at(i64::from(site.start)) {
                Some((base, in_deletion)) => base.saturating_sub(usize::from(in_deletion)),
                None => 0,
            };
            let end = read.base_at(i64::from(site.end) - 1).map_or(states.len(), |(base, _)| base + 1);
            let end = end.min(states.len());
            states[first.min(end)..end].fill(BaseState::Excluded);
        });
    }

    fn count_bases(&mut self, record: RawRecord, flag: u16, group: usize, read: &ClippedRead) -> Result<(), ReadError> {
        let mut qualities = record.qualities();
        if self.use_original_qualities
            && let Some(original) = original_qualities(record)?
        {
            self.original_qualities.clear();
            self.original_qualities.extend(original);
            qualities = &self.original_qualities;
        }
        let (codes, qualities) = (&self.codes[read.from..], &qualities[read.from..read.to]);
        let covariates = ReadCovariates::new(codes, qualities, flag);
        let counts = &mut self.counts.groups[group];
        for (at, (state, quality)) in self.states.iter().zip(qualities).enumerate() {
            if *quality < MIN_USABLE_QUALITY || codes[at] == OTHER_BASE || *state == BaseState::Excluded {
                continue;
            }
            if *quality > MAX_QUALITY {
                return Err(ReadError::QualityTooHigh { name: read_name(record), quality: *quality });
            }
            let counted = ErrorCounts { observations: 1, errors: u64::from(*state == BaseState::Mismatch) };
            let counts = counts.quality_mut(*quality);
            counts.contexts[covariates.context(at)].add(counted);
            counts.cycles[covariates.cycle_key(at)].add(counted);
        }
        Ok(())
    }
}
