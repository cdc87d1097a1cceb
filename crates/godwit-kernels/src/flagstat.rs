//! Counts by FLAG, printed as `samtools flagstat` 1.16 prints them.

use std::fmt;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

/// Counts of records that passed (index 0) and failed (index 1) the vendor's quality checks.
type PassFailCounts = [u64; 2];

/// The counts of `samtools flagstat`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flagstat {
    total: PassFailCounts,
    primary: PassFailCounts,
    secondary: PassFailCounts,
    supplementary: PassFailCounts,
    duplicates: PassFailCounts,
    primary_duplicates: PassFailCounts,
    mapped: PassFailCounts,
    primary_mapped: PassFailCounts,
    paired: PassFailCounts,
    read1: PassFailCounts,
    read2: PassFailCounts,
    properly_paired: PassFailCounts,
    both_mapped: PassFailCounts,
    singletons: PassFailCounts,
    other_contig: PassFailCounts,
    other_contig_mapq5: PassFailCounts,
}

impl Flagstat {
    /// Counts a record whose FLAG is `flag`, which may differ from the packed one in the duplicate bit.
    pub fn add(&mut self, record: RawRecord, flag: u16) {
        let is = |bits: u16| u64::from(flag & bits != 0);
        let class = is(flags::QC_FAIL) as usize;
        let mapped = 1 - is(flags::UNMAPPED);
        self.total[class] += 1;
        self.mapped[class] += mapped;
        self.duplicates[class] += is(flags::DUPLICATE);
        if flag & flags::SECONDARY != 0 {
            self.secondary[class] += 1;
            return;
        }
        if flag & flags::SUPPLEMENTARY != 0 {
            self.supplementary[class] += 1;
            return;
        }
        self.primary[class] += 1;
        self.primary_mapped[class] += mapped;
        self.primary_duplicates[class] += is(flags::DUPLICATE);
        if flag & flags::PAIRED == 0 {
            return;
        }
        self.paired[class] += 1;
        self.read1[class] += is(flags::FIRST);
        self.read2[class] += is(flags::LAST);
        self.properly_paired[class] += is(flags::PROPER_PAIR) & mapped;
        self.singletons[class] += is(flags::MATE_UNMAPPED) & mapped;
        if flag & (flags::UNMAPPED | flags::MATE_UNMAPPED) == 0 {
            self.both_mapped[class] += 1;
            if record.contig() != record.mate_contig() {
                self.other_contig[class] += 1;
                self.other_contig_mapq5[class] += u64::from(record.mapping_quality() >= 5);
            }
        }
    }

    /// Adds the counts of another part of the file.
    pub fn merge(&mut self, other: &Self) {
        let mut mine = self.counts_mut();
        for (mine, theirs) in mine.iter_mut().zip(other.clone().counts_mut()) {
            mine[0] += theirs[0];
            mine[1] += theirs[1];
        }
    }

    fn counts_mut(&mut self) -> [&mut PassFailCounts; 16] {
        [
            &mut self.total,
            &mut self.primary,
            &mut self.secondary,
            &mut self.supplementary,
            &mut self.duplicates,
            &mut self.primary_duplicates,
            &mut self.mapped,
            &mut self.primary_mapped,
            &mut self.paired,
            &mut self.read1,
            &mut self.read2,
            &mut self.properly_paired,
            &mut self.both_mapped,
            &mut self.singletons,
            &mut self.other_contig,
            &mut self.other_contig_mapq5,
        ]
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.total[0] + self.total[1]
    }

    /// Returns the number of records marked as duplicates.
    pub fn duplicates(&self) -> u64 {
        self.duplicates[0] + self.duplicates[1]
    }
}

/// Formats a count as a percentage of another one; `N/A` if the other one is 0.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "N/A".into() } else { format!("{:.2}%", f64::from(part as f32 / whole as f32) * 100.0) }
}

impl fmt::Display for Flagstat {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let mut line = |counts: &PassFailCounts, text: &str, of: Option<&PassFailCounts>| {
            write!(out, "{} + {} {text}", counts[0], counts[1])?;
            match of {
                Some(whole) => {
                    writeln!(out, " ({} : {})", percent(counts[0], whole[0]), percent(counts[1], whole[1]))
                }
                None => writeln!(out),
            }
        };
        line(&self.total, "in total (QC-passed reads + QC-failed reads)", None)?;
        line(&self.primary, "primary", None)?;
        line(&self.secondary, "secondary", None)?;
        line(&self.supplementary, "supplementary", None)?;
        line(&self.duplicates, "duplicates", None)?;
        line(&self.primary_duplicates, "primary duplicates", None)?;
        line(&self.mapped, "mapped", Some(&self.total))?;
        line(&self.primary_mapped, "primary mapped", Some(&self.primary))?;
        line(&self.paired, "paired in sequencing", None)?;
        line(&self.read1, "read1", None)?;
        line(&self.read2, "read2", None)?;
        line(&self.properly_paired, "properly paired", Some(&self.paired))?;
        line(&self.both_mapped, "with itself and mate mapped", None)?;
        line(&self.singletons, "singletons", Some(&self.paired))?;
        line(&self.other_contig, "with mate mapped to a different chr", None)?;
        line(&self.other_contig_mapq5, "with mate mapped to a different chr (mapQ>=5)", None)
    }
}
