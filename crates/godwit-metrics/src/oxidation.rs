//! Errors by oxidation of guanine: the metrics of Picard 3.4.0 `CollectOxoGMetrics` with its default options.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use godwit_formats::sam::ReadGroup;
use godwit_kernels::qc::{Alignment, RecordTags, ReferenceBases};
use godwit_model::{RawRecord, flags};

use crate::error::MetricsError;
use crate::java_hash::hash_set_order;
use crate::metrics_text::{MetricsText, join_numbers};

/// Minimum mapping quality of a read that counts.
const MIN_MAPPING_QUALITY: u8 = 30;
/// Minimum quality of a base that counts, by the original qualities where there are any.
const MIN_BASE_QUALITY: u8 = 20;
/// Offset of a quality letter in the tag `OQ`.
const QUALITY_LETTER_OFFSET: u8 = 33;
/// Insert sizes that count, bases.
const INSERT_SIZES: RangeInclusive<u32> = 60..=600;
/// Maximum number of libraries: one bit each.
const MAX_LIBRARIES: usize = 64;
/// Number of finished positions that are removed from the window together.
const MAX_FINISHED_POSITIONS: usize = 1 << 14;
/// 4-bit codes of the bases (SAMv1 §4.2.3).
const A_CODE: u8 = 1;
const C_CODE: u8 = 2;
const G_CODE: u8 = 4;
const T_CODE: u8 = 8;
/// The contexts in the order of the rows, which is that of a Java `HashMap`.
const CONTEXTS: [&str; 16] =
    ["CCA", "ACC", "CCC", "GCA", "TCT", "ACG", "CCG", "GCC", "GCG", "ACT", "TCA", "CCT", "TCC", "GCT", "TCG", "ACA"];
/// Smallest error rate that is reported.
const MIN_ERROR_RATE: f64 = 1e-10;

/// Numbers of bases at sites of one context, whose reference base is C or G.
#[derive(Clone, Copy, Debug, Default)]
struct SiteCounts {
    /// Reference bases: as they would be without oxidation, and as oxidation would show them.
    reference: [u64; 2],
    /// Bases A at C and T at G, likewise.
    alternate: [u64; 2],
}

/// The counts of a library in one context.
#[derive(Clone, Copy, Debug, Default)]
struct ContextCounts {
    sites: u64,
    /// Counts at the reference base C, and at G.
    by_base: [SiteCounts; 2],
}

/// The counts of all libraries. Records must come in the order of their coordinates.
#[derive(Clone, Debug)]
pub(crate) struct Oxidation {
    samples: String,
    libraries: Vec<String>,
    /// Index of the library of each read group, by its identifier.
    library_of_group: HashMap<Vec<u8>, usize>,
    /// Counts by library, then by context: the codes of both neighbours of the C.
    counts: Vec<[ContextCounts; 16]>,
    contig: i32,
    /// 0-based position of the first entry of `window`.
    window_start: u32,
    /// Libraries with a base at each position, one bit each.
    window: Vec<u64>,
}

impl Oxidation {
    /// # Errors
    /// [`MetricsError::ReadGroups`] if there are no read groups, or more than 64 libraries.
    pub(crate) fn new(read_groups: &[ReadGroup]) -> Result<Self, MetricsError> {
        let sample = |group: &ReadGroup| group.sample.clone().unwrap_or_else(|| "UnknownSample".into());
        let library = |group: &ReadGroup| group.library.clone().unwrap_or_else(|| "UnknownLibrary".into());
        let samples: Vec<String> = read_groups.iter().map(sample).collect();
        let group_libraries: Vec<String> = read_groups.iter().map(library).collect();
        let libraries = hash_set_order(group_libraries.iter().map(String::as_str));
        if libraries.is_empty() || libraries.len() > MAX_LIBRARIES {
            let problem = match libraries.len() {
                0 => "OxoG needs a read group (@RG) in the header of the BAM".to_owned(),
                found => format!("OxoG takes at most {MAX_LIBRARIES} libraries; the BAM has {found}"),
            };
            return Err(MetricsError::ReadGroups { problem });
        }
        let index = |library: &String| libraries.iter().position(|known| known == library).unwrap_or(0);
        let groups = read_groups.iter().zip(&group_libraries);
        Ok(Self {
            samples: hash_set_order(samples.iter().map(String::as_str)).join(","),
            library_of_group: groups.map(|(group, library)| (group.id.clone().into_bytes(), index(library))).collect(),
            counts: vec![[ContextCounts::default(); 16]; libraries.len()],
            libraries,
            contig: -1,
            window_start: 0,
            window: Vec::new(),
        })
    }

    /// Counts a record.
    ///
    /// # Errors
    /// [`MetricsError::NoReadGroup`] if a counted record has no read group of the header; the errors of `reference`.
    pub(crate) fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        tags: &RecordTags,
        reference: &mut R,
    ) -> Result<(), MetricsError> {
        let excluded = flags::UNMAPPED | flags::SECONDARY | flags::DUPLICATE;
        let flag = alignment.flag;
        if flag & excluded != 0
            || flag & flags::PAIRED == 0
            || record.mapping_quality() < MIN_MAPPING_QUALITY
            || !INSERT_SIZES.contains(&record.template_length().unsigned_abs())
            || record.contig() < 0
            || alignment.reference_bases == 0
        {
            return Ok(());
        }
        let group = record.read_group().and_then(|group| self.library_of_group.get(group)).copied();
        let Some(library) = group else {
            return Err(MetricsError::NoReadGroup { read: String::from_utf8_lossy(record.name()).into_owned() });
        };
        let start = record.position().max(0) as u32;
        let end = start + alignment.reference_bases as u32;
        self.advance(record.contig(), start, end);
        let from = start.saturating_sub(1);
        let bases = reference.codes(record.contig(), from, end + 1)?;
        self.add_bases(record, alignment, tags, library, ReferenceBlock { from, bases });
        Ok(())
    }

    fn add_bases(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        tags: &RecordTags,
        library: usize,
        reference: ReferenceBlock,
    ) {
        let flag = alignment.flag;
        let is_second = flag & flags::LAST != 0;
        let reverse = flag & flags::REVERSE != 0;
        let start = record.position().max(0) as u32;
        let qualities = tags.original_qualities.unwrap_or(record.qualities());
        let letter_offset = if tags.original_qualities.is_some() { QUALITY_LETTER_OFFSET } else { 0 };
        let min_quality = MIN_BASE_QUALITY + letter_offset;
        let first_window_position = (start - self.window_start) as usize;
        let counts = &mut self.counts[library];
        for block in alignment.blocks {
            let codes = alignment.codes.get(block.read_start..).unwrap_or_default();
            let qualities = qualities.get(block.read_start..).unwrap_or_default();
            let window = &mut self.window[first_window_position + block.reference_offset..];
            let read = codes.iter().zip(qualities).take(block.bases);
            for (at, ((code, quality), seen)) in read.zip(window).enumerate() {
                if *quality < min_quality {
                    continue;
                }
                let position = start + (block.reference_offset + at) as u32;
                let Some((reference_base, context)) = reference.context(position) else { continue };
                let is_guanine = reference_base == G_CODE;
                let is_reference = *code == reference_base;
                let is_alternate = *code == if is_guanine { T_CODE } else { A_CODE };
                if !(is_reference || is_alternate) {
                    continue;
                }
                // The base as the sequencer read it is G or T if the reference has G and the read is forward, or C and
                // the read is reverse.
                let is_oxidized = (is_guanine != reverse) != is_second;
                let counts = &mut counts[context];
                let by_base = &mut counts.by_base[usize::from(is_guanine)];
                let numbers = if is_reference { &mut by_base.reference } else { &mut by_base.alternate };
                numbers[usize::from(is_oxidized)] += 1;
                counts.sites += u64::from(*seen >> library & 1 == 0);
                *seen |= 1 << library;
            }
        }
    }

    /// Moves the window so that it contains `[start, end)`.
    fn advance(&mut self, contig: i32, start: u32, end: u32) {
        let finished = (start.saturating_sub(self.window_start) as usize).min(self.window.len());
        if contig != self.contig || finished == self.window.len() {
            self.window.clear();
            (self.contig, self.window_start) = (contig, start);
        } else if finished >= MAX_FINISHED_POSITIONS {
            self.window.drain(..finished);
            self.window_start += finished as u32;
        }
        let needed = (end - self.window_start) as usize;
        if self.window.len() < needed {
            self.window.resize(needed, 0);
        }
    }

    /// Returns the text of the metrics file.
    pub(crate) fn text(&self, comment: &str) -> String {
        let mut rows = Vec::new();
        for context in CONTEXTS {
            let letters = context.as_bytes();
            let index = context_index(code_of(letters[0]), code_of(letters[2])).unwrap_or(0);
            for (library, counts) in self.libraries.iter().zip(&self.counts) {
                rows.push(format!("{}\t{library}\t{context}\t{}", self.samples, counts[index].cells()));
            }
        }
        MetricsText::new(comment).with_rows("picard.analysis.CollectOxoGMetrics$CpcgMetrics", COLUMNS, &rows).finish(
            "",
            "",
            &[],
        )
    }
}

/// Names of the columns.
const COLUMNS: &str = "SAMPLE_ALIAS\tLIBRARY\tCONTEXT\tTOTAL_SITES\tTOTAL_BASES\tREF_NONOXO_BASES\tREF_OXO_BASES\t\
    REF_TOTAL_BASES\tALT_NONOXO_BASES\tALT_OXO_BASES\tOXIDATION_ERROR_RATE\tOXIDATION_Q\tC_REF_REF_BASES\t\
    G_REF_REF_BASES\tC_REF_ALT_BASES\tG_REF_ALT_BASES\tC_REF_OXO_ERROR_RATE\tC_REF_OXO_Q\tG_REF_OXO_ERROR_RATE\t\
    G_REF_OXO_Q";

impl ContextCounts {
    fn cells(&self) -> String {
        let [c, g] = &self.by_base;
        let sum = |counts: &[u64; 2]| counts.iter().sum::<u64>();
        let (reference, alternate) = ([sum(&c.reference), sum(&g.reference)], [sum(&c.alternate), sum(&g.alternate)]);
        let all = sum(&reference) + sum(&alternate);
        let reference_kinds = [0, 1].map(|kind| c.reference[kind] + g.reference[kind]);
        let alternate_kinds = [0, 1].map(|kind| c.alternate[kind] + g.alternate[kind]);
        let excess = alternate_kinds[1].saturating_sub(alternate_kinds[0]).max(1);
        let error_rate = excess as f64 / all as f64;
        let rate = |at: usize| alternate[at] as f64 / (alternate[at] + reference[at]) as f64;
        // A site without bases has the rate NaN, which stays NaN as in Java.
        let at_least = |rate: f64| if rate.is_nan() { rate } else { rate.max(MIN_ERROR_RATE) };
        let (c_rate, g_rate) = (at_least(rate(0) - rate(1)), at_least(rate(1) - rate(0)));
        let quality = |rate: f64| -10.0 * rate.log10();
        let counts = [self.sites, all, reference_kinds[0], reference_kinds[1], sum(&reference)];
        let mut values: Vec<f64> = counts.into_iter().chain(alternate_kinds).map(|count| count as f64).collect();
        values.extend([error_rate, quality(error_rate)]);
        values.extend([reference[0], reference[1], alternate[0], alternate[1]].map(|count| count as f64));
        values.extend([c_rate, quality(c_rate), g_rate, quality(g_rate)]);
        join_numbers(&values)
    }
}

/// Bases of the reference around a read.
struct ReferenceBlock<'b> {
    /// 0-based position of the first base.
    from: u32,
    /// 4-bit codes.
    bases: &'b [u8],
}

impl ReferenceBlock<'_> {
    /// Returns the code of a C or G at a position, and the index of its context on the strand of the C; `None` for other
    /// bases, and if a neighbour is not a base.
    fn context(&self, position: u32) -> Option<(u8, usize)> {
        let at = (position - self.from) as usize;
        let [before, base, after] = self.bases.get(at.checked_sub(1)?..at + 2)? else { return None };
        match *base {
            C_CODE => Some((C_CODE, context_index(*before, *after)?)),
            G_CODE => Some((G_CODE, context_index(complement(*after), complement(*before))?)),
            _ => None,
        }
    }
}

fn context_index(before: u8, after: u8) -> Option<usize> {
    // A code of one base has one bit set, whose number is the index of the base.
    let index = |code: u8| (code.count_ones() == 1).then(|| code.trailing_zeros() as usize);
    Some(index(before)? * 4 + index(after)?)
}

/// Returns the complement of a 4-bit code.
fn complement(code: u8) -> u8 {
    code.reverse_bits() >> 4
}

fn code_of(letter: u8) -> u8 {
    match letter {
        b'A' => A_CODE,
        b'C' => C_CODE,
        b'G' => G_CODE,
        _ => T_CODE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_those_of_the_strand_of_the_c() {
        // ACG: C with A before and G after. Its reverse complement is CGT.
        let forward = ReferenceBlock { from: 10, bases: &[A_CODE, C_CODE, G_CODE, T_CODE] };
        assert_eq!(forward.context(11), Some((C_CODE, 2)));
        assert_eq!(forward.context(12), Some((G_CODE, 2)));
        assert_eq!((forward.context(10), forward.context(13)), (None, None));
        let unknown = ReferenceBlock { from: 0, bases: &[15, C_CODE, G_CODE] };
        assert_eq!(unknown.context(1), None);
    }
}
