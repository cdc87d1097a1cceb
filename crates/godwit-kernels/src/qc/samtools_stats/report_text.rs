//! Text output of the counts, with the number formats and arithmetic of `samtools stats` 1.16.

use std::fmt::Write;

use super::super::cycle_counts::{CycleCounts, NO_QUALITIES};
use super::super::histogram::Histogram;
use super::{MAX_INSERT_BASES, MAX_PILEUP_READ_BASES, MAX_PILEUP_REFERENCE_BASES, SamtoolsStats};

/// Fraction of the pairs, starting with the smallest insert size, over which mean and standard deviation are computed.
/// The value is a 32-bit float in samtools.
const MAIN_BULK_FRACTION: f32 = 0.99;
/// Maximum depth that has its own line in the coverage distribution.
const MAX_DEPTH: u64 = 1000;

/// A summary of the insert sizes, with each pair counted once.
struct InsertSizeSummary {
    /// Number of inward, outward and other pairs, indexed by insert size.
    by_size: Vec<[u64; 3]>,
    /// Number of insert sizes that are printed, from 0 on.
    printed_sizes: usize,
    mean: f64,
    standard_deviation: f64,
}

impl SamtoolsStats {
    /// Returns the text of the report. `depths` is the number of positions for each depth, without secondary and
    /// unmapped records. `provenance_note` names the program that wrote the report.
    pub fn to_text(&self, cycles: &CycleCounts, depths: Option<&Histogram>, provenance_note: &str) -> String {
        let inserts = self.insert_size_summary();
        let mut text = format!(
            "# The format is that of files that say \"This file was produced by samtools stats\"; {provenance_note}.\n\
             # CHK, Checksum\t[2]Read Names\t[3]Sequences\t[4]Qualities\n\
             # CHK, CRC32 of reads which passed filtering followed by addition (32bit overflow)\n\
             CHK\t{:08x}\t{:08x}\t{:08x}\n",
            self.checksums[0], self.checksums[1], self.checksums[2]
        );
        self.write_reads(&mut text);
        self.write_bases(&mut text, cycles);
        self.write_pairs(&mut text, &inserts);
        self.write_qualities(&mut text, cycles);
        self.write_gc(&mut text);
        write_base_cycles(&mut text, cycles);
        text += "# Insert sizes. Use `grep ^IS | cut -f 2-` to extract this part. The columns are: insert size, pairs total, inward oriented pairs, outward oriented pairs, other pairs\n";
        for (size, counts) in inserts.by_size[..inserts.printed_sizes].iter().enumerate() {
            let [inward, outward, other] = counts;
            write_line(
                &mut text,
                format_args!("IS\t{size}\t{}\t{inward}\t{outward}\t{other}", inward + outward + other),
            );
        }
        self.write_lengths(&mut text);
        self.write_indels(&mut text);
        if self.longest[0] < MAX_PILEUP_READ_BASES
            && self.longest_reference_length < MAX_PILEUP_REFERENCE_BASES
            && let Some(depths) = depths
        {
            write_depths(&mut text, depths);
        }
        text
    }

    fn write_reads(&self, text: &mut String) {
        let numbers = &self.numbers;
        *text += "# Summary Numbers. Use `grep ^SN | cut -f 2-` to extract this part.\n";
        let rows: [(&str, u64, &str); 16] = [
            ("raw total sequences", self.reads(), "\t# excluding supplementary and secondary reads"),
            ("filtered sequences", 0, ""),
            ("sequences", self.reads(), ""),
            ("is sorted", 1, ""),
            ("1st fragments", numbers.first, ""),
            ("last fragments", numbers.last, ""),
            ("reads mapped", self.mapped(), ""),
            (
                "reads mapped and paired",
                numbers.paired_and_mapped,
                "\t# paired-end technology bit set + both mates mapped",
            ),
            ("reads unmapped", numbers.unmapped, ""),
            ("reads properly paired", numbers.properly_paired, "\t# proper-pair bit set"),
            ("reads paired", numbers.paired, "\t# paired-end technology bit set"),
            ("reads duplicated", numbers.duplicates, "\t# PCR or optical duplicate bit set"),
            ("reads MQ0", numbers.mapping_quality_zero, "\t# mapped and MQ=0"),
            ("reads QC failed", numbers.qc_failed, ""),
            ("non-primary alignments", numbers.secondary, ""),
            ("supplementary alignments", numbers.supplementary, ""),
        ];
        rows.iter().for_each(|(name, value, note)| write_line(text, format_args!("SN\t{name}:\t{value}{note}")));
    }

    fn write_bases(&self, text: &mut String, cycles: &CycleCounts) {
        let numbers = &self.numbers;
        let rows: [(&str, u64, &str); 8] = [
            ("total length", numbers.bases, "\t# ignores clipping"),
            ("total first fragment length", numbers.bases_first, "\t# ignores clipping"),
            ("total last fragment length", numbers.bases_last, "\t# ignores clipping"),
            ("bases mapped", numbers.bases_mapped, "\t# ignores clipping"),
            ("bases mapped (cigar)", numbers.bases_in_cigar, "\t# more accurate"),
            ("bases trimmed", 0, ""),
            ("bases duplicated", numbers.bases_duplicate, ""),
            ("mismatches", numbers.mismatches, "\t# from NM fields"),
        ];
        rows.iter().for_each(|(name, value, note)| write_line(text, format_args!("SN\t{name}:\t{value}{note}")));
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f32 / whole as f32 };
        let error_rate = format_scientific(f64::from(ratio(numbers.mismatches, numbers.bases_in_cigar)));
        write_line(text, format_args!("SN\terror rate:\t{error_rate}\t# mismatches / bases mapped (cigar)"));
        write_line(text, format_args!("SN\taverage length:\t{}", numbers.bases.checked_div(self.reads()).unwrap_or(0)));
        for (name, bases, reads) in
            [("first", numbers.bases_first, numbers.first), ("last", numbers.bases_last, numbers.last)]
        {
            write_line(text, format_args!("SN\taverage {name} fragment length:\t{:.0}", ratio(bases, reads)));
        }
        write_line(text, format_args!("SN\tmaximum length:\t{}", self.longest[0]));
        write_line(text, format_args!("SN\tmaximum first fragment length:\t{}", self.longest[1]));
        write_line(text, format_args!("SN\tmaximum last fragment length:\t{}", self.longest[2]));
        let sum: u64 = cycles
            .qualities
            .iter()
            .flatten()
            .map(|counts| counts.iter().enumerate().map(|(quality, count)| quality as u64 * count).sum::<u64>())
            .sum();
        let quality = if numbers.bases == 0 { 0.0 } else { sum as f64 / numbers.bases as f64 };
        write_line(text, format_args!("SN\taverage quality:\t{quality:.1}"));
    }

    fn write_pairs(&self, text: &mut String, inserts: &InsertSizeSummary) {
        let pairs = |kind: usize| inserts.by_size.iter().map(|counts| counts[kind]).sum::<u64>();
        write_line(text, format_args!("SN\tinsert size average:\t{:.1}", inserts.mean));
        write_line(text, format_args!("SN\tinsert size standard deviation:\t{:.1}", inserts.standard_deviation));
        write_line(text, format_args!("SN\tinward oriented pairs:\t{}", pairs(0)));
        write_line(text, format_args!("SN\toutward oriented pairs:\t{}", pairs(1)));
        write_line(text, format_args!("SN\tpairs with other orientation:\t{}", pairs(2)));
        write_line(text, format_args!("SN\tpairs on different chromosomes:\t{}", self.numbers.other_contig / 2));
        let share = match self.reads() {
            0 => 0.0,
            reads => (100 * self.numbers.properly_paired) as f32 / reads as f32,
        };
        write_line(text, format_args!("SN\tpercentage of properly paired reads (%):\t{share:.1}"));
    }

    fn insert_size_summary(&self) -> InsertSizeSummary {
        let size_counts = |size: u64| [0, 1, 2].map(|kind| self.insert_sizes[kind].get(size) / 2);
        let by_size: Vec<[u64; 3]> = (0..=u64::from(MAX_INSERT_BASES)).map(size_counts).collect();
        let all: u64 = by_size.iter().flatten().sum();
        let (mut printed_sizes, mut bulk, mut mean, mut pairs) = (0, 0.0, 0.0, all);
        for (size, counts) in by_size.iter().enumerate() {
            let count: u64 = counts.iter().sum();
            if count > 0 {
                printed_sizes = size + 1;
            }
            bulk += count as f64;
            mean += (size as u64 * count) as f64;
            if bulk / all as f64 > f64::from(MAIN_BULK_FRACTION) {
                printed_sizes = size + 1;
                pairs = bulk as u64;
                break;
            }
        }
        let pairs = pairs.max(1) as f64;
        mean /= pairs;
        let spread = |(size, counts): (usize, &[u64; 3])| {
            let distance = size as f64 - mean;
            counts.iter().sum::<u64>() as f64 * distance * distance / pairs
        };
        // `fold` is used because `sum` returns -0.0 for an empty iterator.
        let variance =
            by_size.iter().enumerate().take(printed_sizes).skip(1).map(spread).fold(0.0, |sum, one| sum + one);
        InsertSizeSummary { by_size, printed_sizes, mean, standard_deviation: variance.sqrt() }
    }

    fn write_qualities(&self, text: &mut String, cycles: &CycleCounts) {
        let best = cycles.qualities.iter().flatten().filter_map(|counts| counts.iter().rposition(|count| *count > 0));
        // samtools prints one column more than needed, up to 256 columns.
        let columns = (best.max().unwrap_or(0) + 2).min(256);
        for (end, (title, key)) in [("First", "FFQ"), ("Last", "LFQ")].into_iter().enumerate() {
            write_line(
                text,
                format_args!("# {title} Fragment Qualities. Use `grep ^{key} | cut -f 2-` to extract this part."),
            );
            *text += "# Columns correspond to qualities and rows to cycles. First column is the cycle number.\n";
            for cycle in 0..self.longest[end + 1] as usize {
                let _ = write!(text, "{key}\t{}", cycle + 1);
                let counts = cycles.qualities[end].get(cycle).unwrap_or(&NO_QUALITIES);
                counts[..columns].iter().for_each(|count| {
                    let _ = write!(text, "\t{count}");
                });
                text.push('\n');
            }
        }
    }

    fn write_gc(&self, text: &mut String) {
        for (end, (title, key)) in [("first", "GCF"), ("last", "GCL")].into_iter().enumerate() {
            write_line(
                text,
                format_args!("# GC Content of {title} fragments. Use `grep ^{key} | cut -f 2-` to extract this part."),
            );
            for (percent, reads) in self.gc_content(end) {
                write_line(text, format_args!("{key}\t{percent:.2}\t{reads}"));
            }
        }
    }

    fn write_lengths(&self, text: &mut String) {
        for (at, (title, key)) in
            [("", "RL"), (" - first fragments", "FRL"), (" - last fragments", "LRL")].into_iter().enumerate()
        {
            write_line(
                text,
                format_args!(
                    "# Read lengths{title}. Use `grep ^{key} | cut -f 2-` to extract this part. The columns are: read length, count"
                ),
            );
            for (length, count) in self.lengths[at].iter() {
                write_line(text, format_args!("{key}\t{length}\t{count}"));
            }
        }
    }

    fn write_indels(&self, text: &mut String) {
        *text += "# Indel distribution. Use `grep ^ID | cut -f 2-` to extract this part. The columns are: length, number of insertions, number of deletions\n";
        let [insertions, deletions] = &self.indels;
        for length in occurring_values(&[insertions, deletions]) {
            write_line(text, format_args!("ID\t{length}\t{}\t{}", insertions.get(length), deletions.get(length)));
        }
        *text += "# Indels per cycle. Use `grep ^IC | cut -f 2-` to extract this part. The columns are: cycle, number of insertions (fwd), .. (rev) , number of deletions (fwd), .. (rev)\n";
        let [[first_insertions, first_deletions], [last_insertions, last_deletions]] = &self.indel_cycles;
        let columns = [first_insertions, last_insertions, first_deletions, last_deletions];
        for cycle in occurring_values(&columns) {
            let [a, b, c, d] = columns.map(|column| column.get(cycle));
            write_line(text, format_args!("IC\t{}\t{a}\t{b}\t{c}\t{d}", cycle + 1));
        }
    }
}

/// Returns the values that occur in at least one of the histograms, in ascending order.
fn occurring_values(histograms: &[&Histogram]) -> Vec<u64> {
    let mut all = Histogram::default();
    histograms.iter().for_each(|histogram| all.merge(histogram));
    all.iter().map(|(value, _)| value).collect()
}

fn write_base_cycles(text: &mut String, cycles: &CycleCounts) {
    let length = cycles.bases.iter().flatten().map(Vec::len).max().unwrap_or(0);
    *text += "# ACGT content per cycle. Use `grep ^GCC | cut -f 2-` to extract this part. The columns are: cycle; A,C,G,T base counts as a percentage of all A/C/G/T bases [%]; and N and O counts as a percentage of all A/C/G/T bases [%]\n";
    for cycle in 0..length {
        let (first, last) = (base_counts(cycles, 0, cycle), base_counts(cycles, 1, cycle));
        let both: [u64; 6] = std::array::from_fn(|at| first[at] + last[at]);
        write_cycle(text, "GCC", cycle, &both, 6);
    }
    *text += "# ACGT content per cycle, read oriented. Use `grep ^GCT | cut -f 2-` to extract this part. The columns are: cycle; A,C,G,T base counts as a percentage of all A/C/G/T bases [%]\n";
    for cycle in 0..length {
        let (first, last) = (cycles.sequenced_base_counts(0, cycle), cycles.sequenced_base_counts(1, cycle));
        let [a, c, g, t]: [u64; 4] = std::array::from_fn(|at| first[at] + last[at]);
        write_cycle(text, "GCT", cycle, &[a, c, g, t, 0, 0], 4);
    }
    for (end, (title, key)) in [("first", 'F'), ("last", 'L')].into_iter().enumerate() {
        write_line(
            text,
            format_args!(
                "# ACGT content per cycle for {title} fragments. Use `grep ^{key}BC | cut -f 2-` to extract this part. The columns are: cycle; A,C,G,T base counts as a percentage of all A/C/G/T bases [%]; and N and O counts as a percentage of all A/C/G/T bases [%]"
            ),
        );
        let mut sums = [0; 6];
        for cycle in 0..length {
            let counts = base_counts(cycles, end, cycle);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            write_cycle(text, &format!("{key}BC"), cycle, &counts, 6);
        }
        write_line(
            text,
            format_args!(
                "# ACGT raw counters for {title} fragments. Use `grep ^{key}TC | cut -f 2-` to extract this part. The columns are: A,C,G,T,N base counters"
            ),
        );
        let [a, c, g, t, n, _] = sums;
        write_line(text, format_args!("{key}TC\t{a}\t{c}\t{g}\t{t}\t{n}"));
    }
}

/// Returns the number of A, C, G, T, N and other base codes in a cycle.
fn base_counts(cycles: &CycleCounts, end: usize, cycle: usize) -> [u64; 6] {
    let counts = cycles.stored_base_counts(end, cycle);
    let known = [counts[1], counts[2], counts[4], counts[8], counts[15]];
    let [a, c, g, t, n] = known;
    [a, c, g, t, n, counts.iter().sum::<u64>() - known.iter().sum::<u64>()]
}

fn write_cycle(text: &mut String, key: &str, cycle: usize, counts: &[u64; 6], columns: usize) {
    let bases: u64 = counts[..4].iter().sum();
    if bases == 0 {
        return;
    }
    let _ = write!(text, "{key}\t{}", cycle + 1);
    for count in &counts[..columns] {
        let _ = write!(text, "\t{:.2}", 100.0 * *count as f64 / bases as f64);
    }
    text.push('\n');
}

fn write_depths(text: &mut String, depths: &Histogram) {
    *text += "# Coverage distribution. Use `grep ^COV | cut -f 2-` to extract this part.\n";
    for (depth, positions) in depths.iter().filter(|(depth, _)| (1..=MAX_DEPTH).contains(depth)) {
        write_line(text, format_args!("COV\t[{depth}-{depth}]\t{depth}\t{positions}"));
    }
    let beyond: u64 = depths.iter().filter(|(depth, _)| *depth > MAX_DEPTH).map(|(_, positions)| positions).sum();
    if beyond > 0 {
        write_line(text, format_args!("COV\t[{MAX_DEPTH}<]\t{MAX_DEPTH}\t{beyond}"));
    }
}

fn write_line(text: &mut String, content: std::fmt::Arguments) {
    let _ = text.write_fmt(content);
    text.push('\n');
}

/// Formats a number like `%e` in C.
fn format_scientific(value: f64) -> String {
    let text = format!("{value:.6e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_have_a_sign_and_two_digits() {
        assert_eq!(format_scientific(0.0), "0.000000e+00");
        assert_eq!(format_scientific(0.004_857_41), "4.857410e-03");
        assert_eq!(format_scientific(123.0), "1.230000e+02");
    }
}
