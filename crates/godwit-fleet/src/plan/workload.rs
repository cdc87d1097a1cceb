//! What the steps of a sample cost, from hours that were measured.

/// A step of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Hours that it computes, which no storage changes.
    pub compute: f64,
    /// What it moves to or from storage, in hours of the whole network of one storage node.
    pub volume: f64,
    /// Most of a storage node's network that one sample takes.
    pub cap: f64,
}

/// What a sample goes through.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// In their order.
    pub steps: Vec<Step>,
    /// How far samples differ: the slowest computes for `1 + spread` times the hours of the mean, the fastest for `1 - spread`.
    pub spread: f64,
}

/// Hours of a run of some samples at the same time, all on one storage node.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// How many.
    pub samples: usize,
    /// Hours of each step, mean over the samples.
    pub hours: Vec<f64>,
    /// Genomes per day, where they were told.
    pub genomes_per_day: Option<f64>,
}

impl Column {
    fn total(&self) -> f64 {
        self.hours.iter().sum()
    }
}

/// Less of a difference than this between few samples and many is not the storage's doing.
const NO_DIFFERENCE: f64 = 0.1;

impl Workload {
    /// What explains the hours of some columns, in rising numbers of samples; at least two.
    ///
    /// A step that takes as long for many samples as for few computes. Of the others, hours beyond some number of samples grow
    /// with it, because they share one storage node: the slope between the last two columns is what one sample moves, the rest is
    /// computing, and what the first column has beyond that is how fast one sample moves things when nobody is in its way.
    pub fn fit(names: &[&str], columns: &[Column]) -> Self {
        let [first, .., few, many] = columns else { panic!("three columns are needed") };
        let steps = names.iter().enumerate().map(|(at, name)| {
            let name = (*name).to_owned();
            let (alone, few_hours, many_hours) = (first.hours[at], few.hours[at], many.hours[at]);
            if many_hours < alone * (1.0 + NO_DIFFERENCE) {
                let compute = columns.iter().map(|column| column.hours[at]).sum::<f64>() / columns.len() as f64;
                return Step { name, compute, volume: 0.0, cap: 1.0 };
            }
            let slope = (many_hours - few_hours) / (many.samples - few.samples) as f64;
            let compute = (many_hours - slope * many.samples as f64).max(0.0);
            let volume = (many_hours - compute) / many.samples as f64;
            let moving = alone - compute;
            let cap = if moving > volume { volume / moving } else { 1.0 };
            Step { name, compute, volume, cap }
        });
        Self { steps: steps.collect(), spread: spread(columns) }
    }

    /// Hours of a sample that has everything to itself.
    pub fn alone(&self) -> f64 {
        self.steps.iter().map(|step| step.compute + step.volume / step.cap).sum()
    }
}

/// Genomes per day are counted to the end of the slowest sample, hours are the mean: what is between them.
fn spread(columns: &[Column]) -> f64 {
    /// Fewer samples tell their genomes per day too coarsely.
    const ENOUGH: usize = 30;
    let slowest = columns.iter().filter(|column| column.samples >= ENOUGH).filter_map(|column| {
        let hours = column.samples as f64 * 24.0 / column.genomes_per_day?;
        Some(hours / column.total() - 1.0)
    });
    let slowest: Vec<f64> = slowest.collect();
    if slowest.is_empty() { 0.0 } else { (slowest.iter().sum::<f64>() / slowest.len() as f64).max(0.0) }
}

/// The published experiment: BWA-GATK on 10x human genomes, 11 cores a sample, 3 samples a node, storage of 3 nodes of which all
/// clients used one (K. Yoon, "Understanding the Role of Dell EMC Isilon SmartConnect in Genomics Workloads", 2016, table 3).
/// Only the columns of 3, 30 and 90 samples: the others are there to be predicted.
pub fn published() -> Workload {
    const NAMES: [&str; 9] = [
        "aligning and sorting",
        "mark/remove duplicates",
        "realigning targets",
        "realign around indels",
        "base recalibration",
        "HaplotypeCaller",
        "GenotypeGVCFs",
        "variant recalibration",
        "apply recalibration",
    ];
    let column =
        |samples, genomes, hours: [f64; 9]| Column { samples, hours: hours.to_vec(), genomes_per_day: Some(genomes) };
    let columns = [
        column(3, 6.0, [3.48, 0.46, 0.19, 2.22, 1.17, 4.13, 0.02, 0.58, 0.02]),
        column(30, 53.0, [3.64, 0.79, 0.19, 2.24, 1.19, 4.39, 0.02, 0.53, 0.02]),
        column(90, 129.0, [4.94, 2.52, 0.18, 2.26, 1.16, 4.31, 0.02, 0.57, 0.02]),
    ];
    Workload::fit(&NAMES, &columns)
}
