//! The costs of a sample's steps, derived from measured hours.

/// A step of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadStep {
    /// Its name.
    pub name: String,
    /// Hours of computing, independent of storage.
    pub compute_hours: f64,
    /// Data moved to or from storage, in hours of the whole network of one storage server.
    pub volume_hours: f64,
    /// Largest fraction of a storage server's network that one sample uses.
    pub max_rate: f64,
}

/// The steps of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The steps, in order.
    pub steps: Vec<WorkloadStep>,
    /// Spread of the samples: the slowest computes for `1 + variation` times the mean hours, the fastest for `1 - variation`.
    pub variation: f64,
}

/// Measured hours of concurrent samples, all on one storage server.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Number of samples.
    pub samples: usize,
    /// Hours of each step, mean over the samples.
    pub step_hours: Vec<f64>,
    /// Genomes per day, where they were published.
    pub genomes_per_day: Option<f64>,
}

impl Measurement {
    fn total_hours(&self) -> f64 {
        self.step_hours.iter().sum()
    }
}

/// A smaller relative difference between few samples and many is not attributed to storage.
const MIN_RELATIVE_SLOWDOWN: f64 = 0.1;

impl Workload {
    /// Fits a workload to the hours of some columns, in rising numbers of samples; at least two.
    ///
    /// A step that takes as long for many samples as for few only computes. Of the others, hours beyond some number of samples
    /// grow with it, because they share one storage server: the slope between the last two columns is what one sample moves,
    /// the rest is computing, and the excess of the first column is the largest rate at which one sample alone moves data.
    pub fn from_measurements(names: &[&str], columns: &[Measurement]) -> Self {
        let [first, .., few, many] = columns else { panic!("three columns are needed") };
        let steps = names.iter().enumerate().map(|(at, name)| {
            let name = (*name).to_owned();
            let (alone, few_hours, many_hours) = (first.step_hours[at], few.step_hours[at], many.step_hours[at]);
            if many_hours < alone * (1.0 + MIN_RELATIVE_SLOWDOWN) {
                let compute_hours =
                    columns.iter().map(|column| column.step_hours[at]).sum::<f64>() / columns.len() as f64;
                return WorkloadStep { name, compute_hours, volume_hours: 0.0, max_rate: 1.0 };
            }
            let slope = (many_hours - few_hours) / (many.samples - few.samples) as f64;
            let compute = (many_hours - slope * many.samples as f64).max(0.0);
            let volume_hours = (many_hours - compute) / many.samples as f64;
            let moving = alone - compute;
            let max_rate = if moving > volume_hours { volume_hours / moving } else { 1.0 };
            WorkloadStep { name, compute_hours: compute, volume_hours, max_rate }
        });
        Self { steps: steps.collect(), variation: estimate_variation(columns) }
    }

    /// Returns the hours of a sample without any sharing.
    pub fn unshared_hours(&self) -> f64 {
        self.steps.iter().map(|step| step.compute_hours + step.volume_hours / step.max_rate).sum()
    }
}

/// Estimates the variation: genomes per day are counted to the end of the slowest sample, hours are the mean.
fn estimate_variation(columns: &[Measurement]) -> f64 {
    /// Genomes per day of fewer samples are too coarse.
    const MIN_SAMPLES: usize = 30;
    let slowest = columns.iter().filter(|column| column.samples >= MIN_SAMPLES).filter_map(|column| {
        let hours = column.samples as f64 * 24.0 / column.genomes_per_day?;
        Some(hours / column.total_hours() - 1.0)
    });
    let slowest: Vec<f64> = slowest.collect();
    if slowest.is_empty() { 0.0 } else { (slowest.iter().sum::<f64>() / slowest.len() as f64).max(0.0) }
}

/// Returns the published experiment: BWA-GATK on 10x human genomes, 11 cores a sample, 3 samples a host, storage of 3
/// servers of which all clients used one (K. Yoon, "Understanding the Role of Dell EMC Isilon SmartConnect in Genomics
/// Workloads", 2016, table 3). Only the columns of 3, 30 and 90 samples: the others are used to test the prediction.
pub fn published_workload() -> Workload {
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
    let column = |samples, genomes, hours: [f64; 9]| Measurement {
        samples,
        step_hours: hours.to_vec(),
        genomes_per_day: Some(genomes),
    };
    let columns = [
        column(3, 6.0, [3.48, 0.46, 0.19, 2.22, 1.17, 4.13, 0.02, 0.58, 0.02]),
        column(30, 53.0, [3.64, 0.79, 0.19, 2.24, 1.19, 4.39, 0.02, 0.53, 0.02]),
        column(90, 129.0, [4.94, 2.52, 0.18, 2.26, 1.16, 4.31, 0.02, 0.57, 0.02]),
    ];
    Workload::from_measurements(&NAMES, &columns)
}
