//! Counts of the mapped and unmapped records of each contig, as `samtools idxstats` prints them.

use godwit_model::Genome;
use serde::{Deserialize, Serialize};

/// A table of the number of mapped and unmapped records of each contig.
///
/// # Examples
///
/// ```
/// use godwit_formats::binning_index::ContigCounts;
/// use godwit_model::{Contig, Genome};
/// let genome = Genome::new(vec![Contig { name: "a".into(), length: 1000, alternate: false }])?;
/// let mut counts = ContigCounts::default();
/// counts.count_record(0, true);
/// counts.count_record(-1, false);
/// assert_eq!(counts.to_idxstats(&genome), "a\t1000\t1\t0\n*\t0\t0\t1\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContigCounts {
    /// Number of mapped and of unmapped records of each contig, up to the last contig that has records.
    contigs: Vec<[u64; 2]>,
    #[serde(rename = "without_contig")]
    unplaced_records: u64,
}

impl ContigCounts {
    /// Counts a record, given its contig index (-1 if it has no contig) and whether it is mapped (FLAG 0x4 unset).
    pub fn count_record(&mut self, contig: i32, mapped: bool) {
        let Ok(contig) = usize::try_from(contig) else {
            self.unplaced_records += 1;
            return;
        };
        if contig >= self.contigs.len() {
            self.contigs.resize(contig + 1, [0; 2]);
        }
        self.contigs[contig][usize::from(!mapped)] += 1;
    }

    /// Adds the record counts of another part of the file.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::binning_index::ContigCounts;
    /// use godwit_model::{Contig, Genome};
    ///
    /// let contig = Contig { name: "chr1".to_owned(), length: 1000, alternate: false };
    /// let genome = Genome::new(vec![contig])?;
    /// let (mut counts, mut other) = (ContigCounts::default(), ContigCounts::default());
    /// counts.count_record(0, true);
    /// other.count_record(0, true);
    /// other.count_record(0, false);
    /// counts.merge(&other);
    /// assert_eq!(counts.to_idxstats(&genome), "chr1\t1000\t2\t1\n*\t0\t0\t0\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(&mut self, other: &Self) {
        self.contigs.resize(self.contigs.len().max(other.contigs.len()), [0; 2]);
        for (mine, theirs) in self.contigs.iter_mut().zip(&other.contigs) {
            mine[0] += theirs[0];
            mine[1] += theirs[1];
        }
        self.unplaced_records += other.unplaced_records;
    }

    /// Returns the same text as `samtools idxstats` prints.
    pub fn to_idxstats(&self, genome: &Genome) -> String {
        let mut text = String::new();
        for (index, contig) in genome.contigs().iter().enumerate() {
            let [mapped, unmapped] = self.contigs.get(index).copied().unwrap_or_default();
            text.push_str(&format!("{}\t{}\t{mapped}\t{unmapped}\n", contig.name, contig.length));
        }
        text.push_str(&format!("*\t0\t0\t{}\n", self.unplaced_records));
        text
    }
}
