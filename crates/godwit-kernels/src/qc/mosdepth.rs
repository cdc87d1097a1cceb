//! Coverage as mosdepth 0.3.3 prints it: the summary and the cumulative distribution, two decimals each.

use std::fmt::Write;

use godwit_model::Contig;

use super::histogram::Histogram;

/// Greater depths count as ten less than this.
const MAX_DEPTH: u64 = 400_000;
/// Depths beyond this that no position has are left out of the distribution.
const ALWAYS_LISTED: u64 = 300;
/// Smaller shares are left out of the distribution.
const LEAST_SHARE: f64 = 8e-5;

/// Depth of one contig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContigDepth {
    /// Its name.
    pub name: String,
    /// Its length, bases.
    pub length: u64,
    /// Positions by depth; `None` where no record lies.
    pub positions: Option<Histogram>,
}

/// Depth of all contigs, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mosdepth {
    /// The contigs.
    pub contigs: Vec<ContigDepth>,
}

impl ContigDepth {
    pub(super) fn new(contig: &Contig, positions: Option<Histogram>) -> Self {
        Self { name: contig.name.clone(), length: u64::from(contig.length), positions }
    }

    /// Mean depth.
    pub fn mean(&self) -> f64 {
        self.positions.as_ref().map_or(0.0, Histogram::sum_as_float) / self.length.max(1) as f64
    }
}

impl Histogram {
    fn sum_as_float(&self) -> f64 {
        self.sum() as f64
    }
}

impl Mosdepth {
    /// Positions by depth of the contigs that have records.
    pub fn total(&self) -> Histogram {
        let mut total = Histogram::default();
        self.contigs.iter().filter_map(|contig| contig.positions.as_ref()).for_each(|one| total.merge(one));
        total
    }

    /// Mean depth over the whole genome, contigs without records too.
    pub fn mean(&self) -> f64 {
        let length: u64 = self.contigs.iter().map(|contig| contig.length).sum();
        self.total().sum() as f64 / length.max(1) as f64
    }

    /// Share of the whole genome covered at least so deep, 0 to 1.
    pub fn share_at_least(&self, depth: u64) -> f64 {
        let length: u64 = self.contigs.iter().map(|contig| contig.length).sum();
        let covered: u64 =
            self.total().iter().filter(|(found, _)| *found >= depth.max(1)).map(|(_, positions)| positions).sum();
        covered as f64 / length.max(1) as f64
    }

    /// `NAME.mosdepth.summary.txt`.
    pub fn summary(&self) -> String {
        let mut text = String::from("chrom\tlength\tbases\tmean\tmin\tmax\n");
        let mut row = |name: &str, positions: &Histogram| {
            let (length, bases) = (positions.count(), positions.sum());
            let mean = bases as f64 / length.max(1) as f64;
            let _ = writeln!(text, "{name}\t{length}\t{bases}\t{mean:.2}\t{}\t{}", positions.min(), positions.max());
        };
        for contig in &self.contigs {
            if let Some(positions) = &contig.positions {
                row(&contig.name, positions);
            }
        }
        row("total", &self.total());
        text
    }

    /// `NAME.mosdepth.global.dist.txt`: the share of positions with at least each depth.
    pub fn distribution(&self) -> String {
        let mut text = String::new();
        for contig in &self.contigs {
            if let Some(positions) = &contig.positions {
                write_distribution(&mut text, &contig.name, positions);
            }
        }
        write_distribution(&mut text, "total", &self.total());
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
        if share >= LEAST_SHARE {
            let _ = writeln!(text, "{name}\t{depth}\t{share:.2}");
        }
    };
    let deep = capped.iter().rev().take_while(|(depth, _)| *depth > ALWAYS_LISTED);
    deep.for_each(|(depth, count)| list(depth, count));
    if total > 0.0 {
        (0..=capped.max().min(ALWAYS_LISTED)).rev().for_each(|depth| list(depth, capped.get(depth)));
    }
}
