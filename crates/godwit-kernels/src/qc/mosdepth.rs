//! Coverage in the output format of mosdepth 0.3.3: the summary and the cumulative distribution, with two decimals.

use std::fmt::Write;

use godwit_model::Contig;

use super::histogram::Histogram;

/// Maximum depth in the distribution. As in mosdepth, a higher depth counts as [`MAX_DEPTH`] - 10.
const MAX_DEPTH: u64 = 400_000;
/// Depth up to which every depth is listed in the distribution. A higher depth is listed only if a position has this
/// depth.
const MAX_ALWAYS_LISTED_DEPTH: u64 = 300;
/// Minimum cumulative fraction of positions for a depth to be listed in the distribution.
const MIN_LISTED_FRACTION: f64 = 8e-5;

/// The depth of coverage of one contig.
///
/// # Examples
///
/// ```
/// use godwit_kernels::qc::{ContigDepth, Histogram};
///
/// let mut depths = Histogram::default();
/// depths.add_times(0, 40);
/// depths.add_times(2, 60);
/// let contig = ContigDepth { name: "chrM".to_owned(), length: 100, positions_by_depth: Some(depths) };
/// assert_eq!(contig.mean(), 1.2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContigDepth {
    /// Name of the contig.
    pub name: String,
    /// Length of the contig, bases.
    pub length: u64,
    /// Number of positions for each depth; `None` if the contig has no records.
    pub positions_by_depth: Option<Histogram>,
}

/// The depth of coverage of all contigs, in the order of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MosdepthReport {
    /// Depth of each contig.
    pub contigs: Vec<ContigDepth>,
}

impl ContigDepth {
    pub(super) fn new(contig: &Contig, positions_by_depth: Option<Histogram>) -> Self {
        Self { name: contig.name.clone(), length: u64::from(contig.length), positions_by_depth }
    }

    /// Returns the mean depth of the contig.
    pub fn mean(&self) -> f64 {
        self.positions_by_depth.as_ref().map_or(0.0, Histogram::sum_as_float) / self.length.max(1) as f64
    }
}

impl Histogram {
    fn sum_as_float(&self) -> f64 {
        self.sum() as f64
    }
}

impl MosdepthReport {
    /// Returns the number of positions for each depth, summed over the contigs that have records.
    pub fn total_positions_by_depth(&self) -> Histogram {
        let mut total = Histogram::default();
        self.contigs.iter().filter_map(|contig| contig.positions_by_depth.as_ref()).for_each(|one| total.merge(one));
        total
    }

    /// Returns the mean depth of the whole genome, including contigs without records.
    pub fn mean(&self) -> f64 {
        let length: u64 = self.contigs.iter().map(|contig| contig.length).sum();
        self.total_positions_by_depth().sum() as f64 / length.max(1) as f64
    }

    /// Returns the fraction of the whole genome with at least this depth, 0 to 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::{ContigDepth, Histogram, MosdepthReport};
    ///
    /// let mut depths = Histogram::default();
    /// depths.add_times(0, 40);
    /// depths.add_times(2, 60);
    /// let contig = ContigDepth { name: "chrM".to_owned(), length: 100, positions_by_depth: Some(depths) };
    /// let report = MosdepthReport { contigs: vec![contig] };
    /// assert_eq!(report.fraction_at_least(1), 0.6);
    /// assert_eq!(report.fraction_at_least(3), 0.0);
    /// ```
    pub fn fraction_at_least(&self, depth: u64) -> f64 {
        let length: u64 = self.contigs.iter().map(|contig| contig.length).sum();
        let covered: u64 = self
            .total_positions_by_depth()
            .iter()
            .filter(|(found, _)| *found >= depth.max(1))
            .map(|(_, positions)| positions)
            .sum();
        covered as f64 / length.max(1) as f64
    }

    /// Returns the text of `NAME.mosdepth.summary.txt`.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::{ContigDepth, Histogram, MosdepthReport};
    ///
    /// let mut depths = Histogram::default();
    /// depths.add_times(0, 40);
    /// depths.add_times(2, 60);
    /// let contig = ContigDepth { name: "chrM".to_owned(), length: 100, positions_by_depth: Some(depths) };
    /// let report = MosdepthReport { contigs: vec![contig] };
    /// let header = "chrom\tlength\tbases\tmean\tmin\tmax\n";
    /// let rows = "chrM\t100\t120\t1.20\t0\t2\ntotal\t100\t120\t1.20\t0\t2\n";
    /// assert_eq!(report.summary(), header.to_owned() + rows);
    /// ```
    pub fn summary(&self) -> String {
        let mut text = String::from("chrom\tlength\tbases\tmean\tmin\tmax\n");
        let mut row = |name: &str, positions: &Histogram| {
            let (length, bases) = (positions.count(), positions.sum());
            let mean = bases as f64 / length.max(1) as f64;
            let _ = writeln!(text, "{name}\t{length}\t{bases}\t{mean:.2}\t{}\t{}", positions.min(), positions.max());
        };
        for contig in &self.contigs {
            if let Some(positions) = &contig.positions_by_depth {
                row(&contig.name, positions);
            }
        }
        row("total", &self.total_positions_by_depth());
        text
    }

    /// Returns the text of `NAME.mosdepth.global.dist.txt`: for each depth, the fraction of positions with at least
    /// this depth.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::{ContigDepth, Histogram, MosdepthReport};
    ///
    /// let mut depths = Histogram::default();
    /// depths.add_times(0, 40);
    /// depths.add_times(2, 60);
    /// let contig = ContigDepth { name: "chrM".to_owned(), length: 100, positions_by_depth: Some(depths) };
    /// let report = MosdepthReport { contigs: vec![contig] };
    /// let lines = |name: &str| format!("{name}\t2\t0.60\n{name}\t1\t0.60\n{name}\t0\t1.00\n");
    /// assert_eq!(report.distribution(), lines("chrM") + &lines("total"));
    /// ```
    pub fn distribution(&self) -> String {
        let mut text = String::new();
        for contig in &self.contigs {
            if let Some(positions) = &contig.positions_by_depth {
                write_distribution(&mut text, &contig.name, positions);
            }
        }
        write_distribution(&mut text, "total", &self.total_positions_by_depth());
        text
    }
}

fn write_distribution(text: &mut String, name: &str, positions: &Histogram) {
    let total = positions.count() as f64;
    let mut capped = Histogram::default();
    for (depth, count) in positions.iter() {
        capped.add_times(if depth > MAX_DEPTH { MAX_DEPTH - 10 } else { depth }, count);
    }
    let mut share = 0.0;
    let mut list = |depth: u64, count: u64| {
        share += count as f64 / total;
        if share >= MIN_LISTED_FRACTION {
            let _ = writeln!(text, "{name}\t{depth}\t{share:.2}");
        }
    };
    let beyond_always_listed = capped.iter().rev().take_while(|(depth, _)| *depth > MAX_ALWAYS_LISTED_DEPTH);
    beyond_always_listed.for_each(|(depth, count)| list(depth, count));
    if total > 0.0 {
        (0..=capped.max().min(MAX_ALWAYS_LISTED_DEPTH)).rev().for_each(|depth| list(depth, capped.get(depth)));
    }
}
