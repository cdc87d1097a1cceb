//! Errors by oxidation of guanine: the metrics of Picard 3.4.0 `CollectOxoGMetrics` with its default options.

use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;

use godwit_formats::sam::ReadGroup;
use godwit_kernels::qc::{Alignment, ReferenceBases};
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use crate::base_codes::{A_CODE, C_CODE, G_CODE, T_CODE};
use crate::count_scope::CountScope;
use crate::error::MetricsError;
use crate::java_hash::hash_set_order;
use crate::metrics_text::{MetricsText, join_numbers};
use crate::phred::QUALITY_LETTER_OFFSET;
use crate::wgs::MAX_FINISHED_POSITIONS;

/// Minimum mapping quality of a read that counts.
const MIN_MAPPING_QUALITY: u8 = 30;
/// Minimum quality of a base that counts, by the original qualities where there are any.
const MIN_BASE_QUALITY: u8 = 20;
/// Insert sizes that count, bases.
const INSERT_SIZES: RangeInclusive<u32> = 60..=600;
/// Maximum number of libraries: one bit each.
const MAX_LIBRARIES: usize = 64;
/// The contexts in the order of the rows, which is that of a Java `HashMap`.
const CONTEXTS: [&str; 16] =
    ["CCA", "ACC", "CCC", "GCA", "TCT", "ACG", "CCG", "GCC", "GCG", "ACT", "TCA", "CCT", "TCC", "GCT", "TCG", "ACA"];
/// Smallest error rate that is reported.
const MIN_ERROR_RATE: f64 = 1e-10;

/// Number of kinds of sites: no site, then C and G in each of 16 contexts.
const SITES: usize = 33;
/// Number of kinds of bases at a site.
const BASE_KINDS: usize = 4;
/// The kind of the reference base.
const REFERENCE_KIND: u8 = 0;
/// The kind of the base that oxidation shows: A at C, T at G.
const ALTERNATE_KIND: u8 = 1;
/// The kind of other bases, and of those of low quality.
const OTHER_KIND: u8 = 2;
/// The kind of site of each three neighbouring codes: 0, or 1 + its context for C and 17 + its context for G.
const SITE_OF_CODES: [u8; 1 << 12] = {
    let mut sites = [0; 1 << 12];
    let mut codes = 0;
    while codes < 1 << 12 {
        let (before, base, after) = ((codes >> 8) as u8, (codes >> 4 & 15) as u8, (codes & 15) as u8);
        let (left, right) = if base == G_CODE { (complement(after), complement(before)) } else { (before, after) };
        if (base == C_CODE || base == G_CODE) && left.count_ones() == 1 && right.count_ones() == 1 {
            let context = left.trailing_zeros() as u8 * 4 + right.trailing_zeros() as u8;
            sites[codes] = 1 + context + if base == G_CODE { 16 } else { 0 };
        }
        codes += 1;
    }
    sites
};
/// The kind of each base, by the kind of the site and the code of the base. Bases that are at no site count nowhere; they
/// have different kinds, so that their counts do not wait for each other.
const KIND_OF_BASE: [[u8; 16]; SITES] = {
    let mut kinds = [[OTHER_KIND; 16]; SITES];
    let mut site = 1;
    while site < SITES {
        let (reference, alternate) = if site < 17 { (C_CODE, A_CODE) } else { (G_CODE, T_CODE) };
        kinds[site][reference as usize] = REFERENCE_KIND;
        kinds[site][alternate as usize] = ALTERNATE_KIND;
        site += 1;
    }
    kinds[0][A_CODE as usize] = 0;
    kinds[0][C_CODE as usize] = 1;
    kinds[0][T_CODE as usize] = 3;
    kinds
};

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

/// The counts of a library by kind of site.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LibraryCounts {
    /// Number of positions of each kind.
    positions: Vec<u64>,
    /// Number of bases by kind of site and of base; first of reads that show oxidation at G, then of those at C.
    bases: [Vec<u64>; 2],
}

impl Default for LibraryCounts {
    fn default() -> Self {
        Self { positions: vec![0; SITES], bases: [(); 2].map(|()| vec![0; SITES * BASE_KINDS]) }
    }
}

impl LibraryCounts {
    fn merge(&mut self, other: &Self) {
        let add = |(mine, theirs): (&mut u64, &u64)| *mine += theirs;
        self.positions.iter_mut().zip(&other.positions).for_each(add);
        self.bases.iter_mut().flatten().zip(other.bases.iter().flatten()).for_each(add);
    }

    /// Returns the counts of a context, which is the codes of both neighbours of the C.
    fn context_counts(&self, context: usize) -> ContextCounts {
        let mut counts = ContextCounts::default();
        for (is_guanine, by_base) in counts.by_base.iter_mut().enumerate() {
            let site = 1 + context + 16 * is_guanine;
            counts.sites += self.positions[site];
            for (shows_at_c, bases) in self.bases.iter().enumerate() {
                let is_oxidized = usize::from(is_guanine != shows_at_c);
                by_base.reference[is_oxidized] += bases[site * BASE_KINDS];
                by_base.alternate[is_oxidized] += bases[site * BASE_KINDS + 1];
            }
        }
        counts
    }
}

/// The counts of all libraries. Records must come in the order of their coordinates.
#[derive(Clone, Debug)]
pub(crate) struct Oxidation {
    samples: String,
    libraries: Vec<String>,
    /// Index of the library of each read group, by its identifier.
    library_of_group: HashMap<Vec<u8>, usize>,
    /// Counts by library.
    counts: Vec<LibraryCounts>,
    contig: i32,
    /// 0-based position of the first entry of `window`.
    window_start: u32,
    window: Vec<Position>,
}

/// A position of the reference.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Libraries with a base here, one bit each.
    seen: u64,
    /// Kind of the site.
    site: u8,
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
            counts: vec![LibraryCounts::default(); libraries.len()],
            libraries,
            contig: -1,
            window_start: 0,
            window: Vec::new(),
        })
    }

    /// Counts the bases of a record within `scope`.
    ///
    /// # Errors
    /// [`MetricsError::NoReadGroup`] if a counted record has no read group of the header; the errors of `reference`.
    pub(crate) fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        scope: CountScope,
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
        let group = alignment.tags.read_group.and_then(|group| self.library_of_group.get(group)).copied();
        let Some(library) = group else {
            return Err(MetricsError::NoReadGroup { read: String::from_utf8_lossy(record.name()).into_owned() });
        };
        let start = record.position().max(0) as u32;
        let end = start + alignment.reference_bases as u32;
        self.advance(record.contig(), start, end, reference)?;
        self.add_bases(record, alignment, scope, library);
        Ok(())
    }

    fn add_bases(&mut self, record: RawRecord, alignment: &Alignment, scope: CountScope, library: usize) {
        let flag = alignment.flag;
        // The base as the sequencer read it is G or T if the reference has G and a first read is forward.
        let shows_at_c = (flag & flags::REVERSE != 0) != (flag & flags::LAST != 0);
        let start = record.position().max(0) as u32;
        let original_qualities = alignment.tags.original_qualities;
        let qualities = original_qualities.unwrap_or(record.qualities());
        let letter_offset = if original_qualities.is_some() { QUALITY_LETTER_OFFSET } else { 0 };
        let min_quality = MIN_BASE_QUALITY + letter_offset;
        let first_window_position = (start - self.window_start) as usize;
        let LibraryCounts { positions, bases } = &mut self.counts[library];
        let numbers = &mut bases[usize::from(shows_at_c)];
        for block in alignment.blocks {
            let counted = scope.clip_block(start, block);
            let (read_start, window_start) =
                (block.read_start + counted.start, first_window_position + block.reference_offset + counted.start);
            let codes = alignment.codes.get(read_start..).unwrap_or_default();
            let qualities = qualities.get(read_start..).unwrap_or_default();
            let window = self.window.get_mut(window_start..).unwrap_or_default();
            let read = codes.iter().zip(qualities).take(counted.len());
            // Few branches: it cannot be predicted which bases are C or G.
            for ((code, quality), position) in read.zip(window) {
                let site = usize::from(position.site);
                let kind = KIND_OF_BASE[site][usize::from(code & 15)];
                let kind = if *quality < min_quality { OTHER_KIND } else { kind };
                numbers[site * BASE_KINDS + usize::from(kind)] += 1;
                // Most positions were seen in an earlier read.
                if (kind < OTHER_KIND) & (site > 0) & (position.seen >> library & 1 == 0) {
                    positions[site] += 1;
                    position.seen |= 1 << library;
                }
            }
        }
    }

    /// Moves the window so that it contains `[start, end)`, and reads the sites of its new positions.
    fn advance<R: ReferenceBases>(&mut self, contig: i32, start: u32, end: u32, reference: &mut R) -> io::Result<()> {
        let finished = (start.saturating_sub(self.window_start) as usize).min(self.window.len());
        if contig != self.contig || finished == self.window.len() {
            self.window.clear();
            (self.contig, self.window_start) = (contig, start);
        } else if finished >= MAX_FINISHED_POSITIONS {
            self.window.drain(..finished);
            self.window_start += finished as u32;
        }
        let first = self.window_start + self.window.len() as u32;
        if first < end {
            // The first base of a contig has no neighbour before it, and the last one none after it, so they are not sites.
            let codes = reference.codes(contig, first.saturating_sub(1), end + 1)?;
            let skipped = usize::from(first == 0);
            let sites = codes.array_windows().map(|[left, base, right]| {
                let codes = usize::from(*left) << 8 | usize::from(*base) << 4 | usize::from(*right);
                SITE_OF_CODES[codes & (SITE_OF_CODES.len() - 1)]
            });
            self.window.extend(std::iter::repeat_n(0, skipped).chain(sites).map(|site| Position { seen: 0, site }));
            self.window.resize((end - self.window_start) as usize, Position::default());
        }
        Ok(())
    }

    /// Forgets all positions. The next record may have any position.
    pub(crate) fn finish_contig(&mut self) {
        self.window.clear();
        self.contig = -1;
    }

    /// Returns counts of no records for the same read groups.
    pub(crate) fn without_counts(&self) -> Self {
        Self {
            samples: self.samples.clone(),
            libraries: self.libraries.clone(),
            library_of_group: self.library_of_group.clone(),
            counts: vec![LibraryCounts::default(); self.libraries.len()],
            contig: -1,
            window_start: 0,
            window: Vec::new(),
        }
    }

    /// Returns the counts by library.
    pub(crate) fn into_counts(self) -> Vec<LibraryCounts> {
        self.counts
    }

    /// Adds the counts of other positions.
    pub(crate) fn add_counts(&mut self, other: &[LibraryCounts]) {
        self.counts.iter_mut().zip(other).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// Returns the text of the metrics file.
    pub(crate) fn to_text(&self, comment: &str) -> String {
        let mut rows = Vec::new();
        for context in CONTEXTS {
            let letters = context.as_bytes();
            let [before, after] = [letters[0], letters[2]].map(|letter| code_of(letter).trailing_zeros() as usize);
            for (library, counts) in self.libraries.iter().zip(&self.counts) {
                let cells = counts.context_counts(before * 4 + after).cells();
                rows.push(format!("{}\t{library}\t{context}\t{cells}", self.samples));
            }
        }
        MetricsText::new(comment)
            .with_rows("picard.analysis.CollectOxoGMetrics$CpcgMetrics", COLUMNS, &rows)
            .finish_without_histogram()
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

/// Returns the complement of a 4-bit code.
const fn complement(code: u8) -> u8 {
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
    use crate::base_codes::N_CODE;

    #[test]
    fn contexts_are_those_of_the_strand_of_the_c() {
        let site = |codes: [u8; 3]| SITE_OF_CODES[codes.iter().fold(0, |all, code| all << 4 | usize::from(*code))];
        // ACG: C with A before and G after. Its reverse complement is CGT.
        assert_eq!(site([A_CODE, C_CODE, G_CODE]), 1 + 2);
        assert_eq!(site([C_CODE, G_CODE, T_CODE]), 17 + 2);
        assert_eq!(site([A_CODE, A_CODE, G_CODE]), 0);
        assert_eq!(site([N_CODE, C_CODE, G_CODE]), 0);
    }
}
