//! The costs of the steps of a sample, derived from measured hours.

/// The cost of one step of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadStep {
    /// Name of the step.
    pub name: String,
    /// Hours of computation, which do not depend on storage.
    pub compute_hours: f64,
    /// Volume moved to or from storage, in hours of the whole network of one storage server.
    pub volume_hours: f64,
    /// Maximum fraction of a storage server's network that one sample uses.
    pub max_rate: f64,
}

/// The costs of all steps of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The steps, in the order in which they run.
    pub steps: Vec<WorkloadStep>,
    /// Relative spread of compute time between samples: the slowest sample computes for `1 + variation` times the mean
    /// hours, the fastest for `1 - variation`.
    pub variation: f64,
}

/// Measured hours of samples that ran at the same time and used one storage server.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Number of samples that ran at the same time.
    pub samples: usize,
    /// Duration of each step in hours, as the mean over the samples.
    pub step_hours: Vec<f64>,
    /// Genomes per day, if they were published.
    pub genomes_per_day: Option<f64>,
}

impl Measurement {
    fn total_hours(&self) -> f64 {
        self.step_hours.iter().sum()
    }
}

/// Minimum relative increase from few samples to many that is attributed to storage. A smaller increase counts as
/// noise.
const MIN_RELATIVE_SLOWDOWN: f64 = 0.1;

impl Workload {
    /// Fits a workload to measurements with increasing numbers of samples. At least three measurements are required.
    ///
    /// A step that takes as long for many samples as for few only computes. The hours of all other steps grow with the
    /// number of samples, because the samples share one storage server. The slope between the last two measurements is
    /// the volume that one sample moves. The rest of the hours is computation. In the first measurement, storage is not
    /// the bottleneck, so it shows the maximum rate at which one sample moves its volume.
    pub fn from_measurements(names: &[&str], columns: &[Measurement]) -> Self {
        let [first, .., few, many] = columns else { panic!("the table must have three columns") };
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

    /// Returns the hours of a sample that shares storage with no other sample.
    pub fn unshared_hours(&self) -> f64 {
        self.steps.iter().map(|step| step.compute_hours + step.volume_hours / step.max_rate).sum()
    }
}

/// Estimates the variation: published genomes per day depend on the end of the slowest sample, while published hours
/// are means.
fn estimate_variation(columns: &[Measurement]) -> f64 {
    /// Minimum number of samples of a measurement. For fewer samples, genomes per day are too imprecise.
    const MIN_SAMPLES: usize = 30;
    let slowest = columns.iter().filter(|column| column.samples >= MIN_SAMPLES).filter_map(|column| {
        let hours = column.samples as f64 * 24.0 / column.genomes_per_day?;
        Some(hours / column.total_hours() - 1.0)
    });
    let slowest: Vec<f64> = slowest.collect();
    if slowest.is_empty() { 0.0 } else { (slowest.iter().sum::<f64>() / slowest.len() as f64).max(0.0) }
}

/// Returns the workload of a published experiment: BWA-GATK on human genomes of 10x coverage, with 11 cores per sample
/// and 3 samples per host. Its storage had 3 servers, of which all clients used one (K. Yoon, "Understanding the Role
/// of Dell EMC Isilon SmartConnect in Genomics Workloads", 2016, table 3). The fit uses only the columns with 3, 30 and
/// 90 samples; the tests predict the other columns.
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
