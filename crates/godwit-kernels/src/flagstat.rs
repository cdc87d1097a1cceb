//! Record counts by FLAG, in the output format of `samtools flagstat` 1.16.

use std::fmt;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

/// Number of records that passed (index 0) and that failed (index 1) the vendor's quality checks.
type PassFailCounts = [u64; 2];

/// The counts that `samtools flagstat` prints.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::flagstat::Flagstat;
///
/// # let words = [
/// #     0, 999, 4681 << 16 | 60 << 8 | 4, 99 << 16 | 1, 8, 0, 1_291, 300, i32::from_le_bytes(*b"r01\0"),
/// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
/// # ];
/// # let bytes = words.map(i32::to_le_bytes).concat();
/// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
/// // `record` is a mapped record; here it is counted with three FLAGs.
/// let mut counts = Flagstat::default();
/// for flag in [99, 147, 4] {
///     counts.add(record, flag);
/// }
/// let text = counts.to_string();
/// assert!(text.starts_with("3 + 0 in total (QC-passed reads + QC-failed reads)\n"));
/// assert!(text.contains("2 + 0 mapped (66.67% : N/A)\n"));
/// # Ok(())
/// # }
/// ```
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
    /// Counts a record. `flag` replaces the FLAG in the packed record; the two may differ in the duplicate bit.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::flagstat::Flagstat;
    /// use godwit_model::flags;
    ///
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 99 << 16 | 1, 8, 0, 1_291, 300, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// let mut counts = Flagstat::default();
    /// counts.add(record, record.flag());
    /// counts.add(record, record.flag() | flags::DUPLICATE);
    /// assert_eq!((counts.records(), counts.duplicates()), (2, 1));
    /// # Ok(())
    /// # }
    /// ```
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

    /// Adds the counts of other records of the same file.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::flagstat::Flagstat;
    ///
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 99 << 16 | 1, 8, 0, 1_291, 300, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// let (mut first, mut second) = (Flagstat::default(), Flagstat::default());
    /// first.add(record, 99);
    /// second.add(record, 147);
    /// first.merge(&second);
    /// assert_eq!(first.records(), 2);
    /// # Ok(())
    /// # }
    /// ```
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

    /// Returns the number of all counted records.
    pub fn records(&self) -> u64 {
        self.total[0] + self.total[1]
    }

    /// Returns the number of records marked as duplicates.
    pub fn duplicates(&self) -> u64 {
        self.duplicates[0] + self.duplicates[1]
    }
}

/// Formats `part` as a percentage of `whole`; returns `N/A` if `whole` is 0.
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
