//! `godwit plan`: predicts, by simulation, how long a facility takes to process a cohort of samples, and its
//! bottleneck.

use std::path::Path;

use godwit_cli::ValueEnum as _;
use godwit_cli::cli::{BalancePolicy, PlanArgs};
use godwit_cli::failure::Failure;
use godwit_fleet::cohort_simulation::{
    Facility, SimulationResult, SingleServerBalancer, StorageBalancer, Workload, WorkloadStep, published_workload,
    simulate,
};
use godwit_flight::pool::{BalancingPolicy, LoadBalancer};
use godwit_model::ErrorKind;
use serde::{Deserialize, Serialize};

use super::{print, print_json};
use crate::text_table::align_columns;

/// Fraction of the duration of a sample: if samples wait longer for storage, storage counts as the bottleneck.
const BOTTLENECK_SHARE: f64 = 0.05;
const SECONDS_PER_HOUR: f64 = 3600.0;
const BITS_PER_BYTE: f64 = 8.0;

/// The prediction, in the form that `--json` prints.
#[derive(Serialize)]
struct CohortPlan {
    samples: u32,
    nodes: u32,
    storage_nodes: u32,
    balance: String,
    /// Source of the step durations: the path of a run.json, or the name of a published pipeline.
    from: String,
    /// Duration of each step in hours, mean over the samples.
    steps: Vec<StepHours>,
    /// Hours from the start of a sample's first step to the end of its last step, mean over the samples.
    total_hours: f64,
    /// Hours that a sample would take if no other sample used the storage.
    alone_hours: f64,
    /// Hours that a sample waits for a free compute host, mean over the samples.
    queued_hours: f64,
    /// Hours of the joint steps, which process all samples together at the end.
    cohort_hours: f64,
    /// Hours from the start of the first sample to the end of the joint steps.
    makespan_hours: f64,
    /// Samples per day: `samples * 24 / makespan_hours`.
    genomes_per_day: f64,
    bottleneck: String,
    /// Smallest number of storage servers for which storage is not the bottleneck, with balanced streams; `None` if no
    /// number is enough.
    storage_nodes_needed: Option<u32>,
}

#[derive(Serialize)]
struct StepHours {
    step: String,
    hours: f64,
}

/// Simulates the cohort on the facility, and prints the prediction.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let (workload, cohort) = match &args.from {
        None => (published_workload(), 0.0),
        Some(path) => read_measured_workload(path, args)?,
    };
    let plan = predict(args, &workload, cohort);
    if args.json {
        return print_json(&plan);
    }
    print(&plan_table(&plan))
}

fn predict(args: &PlanArgs, workload: &Workload, cohort: f64) -> CohortPlan {
    let outcome = simulate_facility(args, workload, (args.storage_nodes, args.balance));
    let makespan = outcome.makespan_hours + cohort;
    let source = args.from.as_ref().map_or_else(
        || "the published BWA-GATK pipeline, 10x human genomes (columns of 3, 30 and 90 samples)".to_owned(),
        |path| path.display().to_string(),
    );
    CohortPlan {
        samples: args.samples,
        nodes: args.nodes,
        storage_nodes: args.storage_nodes,
        balance: args.balance.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
        from: source,
        steps: workload
            .steps
            .iter()
            .zip(&outcome.step_hours)
            .map(|(step, hours)| StepHours { step: step.name.clone(), hours: *hours })
            .collect(),
        total_hours: outcome.total_hours(),
        alone_hours: workload.unshared_hours(),
        queued_hours: outcome.queued_hours,
        cohort_hours: cohort,
        makespan_hours: makespan,
        genomes_per_day: f64::from(args.samples) * 24.0 / makespan,
        bottleneck: bottleneck(args, workload, &outcome),
        storage_nodes_needed: storage_nodes_needed(args, workload),
    }
}

fn simulate_facility(
    args: &PlanArgs,
    workload: &Workload,
    (storage_nodes, balance): (u32, BalancePolicy),
) -> SimulationResult {
    let facility = Facility {
        compute_hosts: args.nodes as usize,
        samples_per_host: args.per_node as usize,
        storage_servers: storage_nodes as usize,
        disk_network_ratio: args.disk_share,
    };
    let policy = match balance {
        BalancePolicy::None => return simulate(args.samples as usize, workload, &facility, &mut SingleServerBalancer),
        BalancePolicy::RoundRobin => BalancingPolicy::RoundRobin,
        BalancePolicy::Connections => BalancingPolicy::Connections,
    };
    let mut pool = PoolBalancer(LoadBalancer::new(policy, facility.storage_servers, 0));
    simulate(args.samples as usize, workload, &facility, &mut pool)
}

/// The load balancer that pools of servers use, for the simulation; all members are always healthy.
struct PoolBalancer(LoadBalancer);

impl StorageBalancer for PoolBalancer {
    fn assign_server(&mut self) -> usize {
        self.0.open_stream().expect("no node of a plan is lost")
    }

    fn release_server(&mut self, node: usize) {
        self.0.close_stream(node);
    }
}

/// Returns the fraction of a sample's duration that it spends waiting for storage which other samples use.
fn storage_share(outcome: &SimulationResult, workload: &Workload) -> f64 {
    1.0 - workload.unshared_hours() / outcome.total_hours()
}

fn bottleneck(args: &PlanArgs, workload: &Workload, outcome: &SimulationResult) -> String {
    let lost = storage_share(outcome, workload);
    if lost > BOTTLENECK_SHARE {
        let percent = lost * 100.0;
        return match (outcome.storage_wait.network_hours > outcome.storage_wait.disk_hours, args.balance) {
            (true, BalancePolicy::None) if args.storage_nodes > 1 => format!(
                "the network of the only storage server in use: {percent:.0} % of a sample's hours; the other {} are \
                 idle",
                args.storage_nodes - 1
            ),
            (true, _) => format!("the network of the storage servers: {percent:.0} % of a sample's hours"),
            (false, _) => format!("the disks of the storage servers: {percent:.0} % of a sample's hours"),
        };
    }
    if outcome.queued_hours > 0.0 {
        return format!("compute hosts: a sample waits {:.1} hours for a slot", outcome.queued_hours);
    }
    let longest = workload.steps.iter().zip(&outcome.step_hours).max_by(|a, b| a.1.total_cmp(b.1));
    format!("none; the longest step is {}", longest.map_or("none", |(step, _)| &step.name))
}

/// Returns the smallest number of storage servers for which storage is not the bottleneck; `None` if 10,000 are not
/// enough.
fn storage_nodes_needed(args: &PlanArgs, workload: &Workload) -> Option<u32> {
    const MAX_STORAGE_NODES: u32 = 10_000;
    let balance = match args.balance {
        BalancePolicy::None => BalancePolicy::RoundRobin,
        balance => balance,
    };
    let enough =
        |nodes: u32| storage_share(&simulate_facility(args, workload, (nodes, balance)), workload) <= BOTTLENECK_SHARE;
    let mut most = 1;
    while !enough(most) {
        most = if most < MAX_STORAGE_NODES { (most * 2).min(MAX_STORAGE_NODES) } else { return None };
    }
    let (mut least, mut most) = (most / 2 + 1, most);
    while least < most {
        let middle = least + (most - least) / 2;
        (least, most) = if enough(middle) { (least, middle) } else { (middle + 1, most) };
    }
    Some(most)
}

/// The fields of a run.json that the prediction needs. Files of `godwit run` and `godwit align` have different fields.
#[derive(Deserialize)]
struct JobReport {
    /// In a run.json of `godwit run`: the samples.
    #[serde(default)]
    samples: Vec<SampleReport>,
    /// In a run.json of `godwit run`: the joint steps of all samples.
    #[serde(default)]
    cohort: Vec<StepReport>,
    /// In a run.json of `godwit align`: the name of the verb, `align`.
    #[serde(default)]
    verb: String,
    /// In a run.json of `godwit align`: the duration in seconds.
    #[serde(default)]
    seconds: f64,
}

#[derive(Deserialize)]
struct SampleReport {
    #[serde(default)]
    steps: Vec<StepReport>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
struct StepReport {
    step: String,
    seconds: f64,
    /// Total size of the files that the step read and wrote, bytes.
    #[serde(default)]
    file_bytes: u64,
}

/// Reads the durations of the steps from the run.json of a run on one host. Returns the workload of a sample, and the
/// hours of the joint steps, scaled to the number and size of the planned samples.
fn read_measured_workload(path: &Path, args: &PlanArgs) -> Result<(Workload, f64), Failure> {
    let bad = |what: String| Failure::new(ErrorKind::Input, format!("{}: {what}", path.display()));
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display())))?;
    let report: JobReport =
        serde_json::from_slice(&bytes).map_err(|error| bad(format!("not a run.json of godwit: {error}")))?;
    if report.verb == "align" {
        let step = StepReport { step: "align".into(), seconds: report.seconds, file_bytes: 0 };
        return Ok((
            mean_workload(&[&[step]], args).ok_or_else(|| bad("the report contains no duration of a step".into()))?,
            0.0,
        ));
    }
    let done = report.samples.iter().filter(|sample| sample.error.is_none()).map(|sample| &*sample.steps);
    let done: Vec<&[StepReport]> = done.collect();
    let workload = mean_workload(&done, args).ok_or_else(|| bad("the report contains no finished sample".into()))?;
    let cohort: f64 = report.cohort.iter().map(|step| step.seconds).sum();
    let cohort_hours = cohort * args.scale / SECONDS_PER_HOUR;
    Ok((workload, cohort_hours / done.len() as f64 * f64::from(args.samples)))
}

/// Returns the mean duration and file volume of each step over all samples, which have the same steps, for a sample that is
/// larger by the factor of `--scale`; `None` without samples.
fn mean_workload(samples: &[&[StepReport]], args: &PlanArgs) -> Option<Workload> {
    let rate = args.storage_rate as f64 / BITS_PER_BYTE * SECONDS_PER_HOUR;
    let first = samples.first()?;
    let steps = first.iter().map(|StepReport { step: name, .. }| {
        let of_step = samples.iter().flat_map(|steps| steps.iter()).filter(|step| step.step == *name);
        let (mut seconds, mut bytes) = (0.0, 0.0);
        for step in of_step {
            seconds += step.seconds * args.scale;
            bytes += step.file_bytes as f64 * args.scale;
        }
        let hours = seconds / SECONDS_PER_HOUR / samples.len() as f64;
        let volume_hours = bytes / samples.len() as f64 / rate;
        // The measured hours include the transfer of files. Subtract this time, because the simulation adds it again.
        let max_rate = if volume_hours > hours { volume_hours / hours.max(f64::MIN_POSITIVE) } else { 1.0 };
        WorkloadStep { name: name.clone(), compute_hours: (hours - volume_hours).max(0.0), volume_hours, max_rate }
    });
    let workload = Workload { steps: steps.collect(), variation: 0.0 };
    (workload.unshared_hours() > 0.0).then_some(workload)
}

fn plan_table(plan: &CohortPlan) -> String {
    let mut rows = vec![["step", "hours"].map(str::to_owned)];
    rows.extend(plan.steps.iter().map(|step| [step.step.clone(), format_hours(step.hours)]));
    if plan.cohort_hours > 0.0 {
        rows.push(["joint steps of all samples".into(), format_hours(plan.cohort_hours)]);
    }
    rows.push(["total per sample".into(), format_hours(plan.total_hours)]);
    rows.push(["total without contention".into(), format_hours(plan.alone_hours)]);
    rows.push(["waiting for a compute host".into(), format_hours(plan.queued_hours)]);
    rows.push(["whole cohort".into(), format_hours(plan.makespan_hours)]);
    let needed = match plan.storage_nodes_needed {
        Some(1) => "1 storage server is enough".to_owned(),
        Some(nodes) => format!("{nodes} storage servers are enough with balanced streams"),
        None => "no number of storage servers is enough".to_owned(),
    };
    format!(
        "{}\ngenomes per day: {:.0} ({} samples x 24 / {} hours)\nbottleneck: {}\n{needed}\nsource of step costs: {}\n",
        align_columns(&rows, 1),
        plan.genomes_per_day,
        plan.samples,
        format_hours(plan.makespan_hours),
        plan.bottleneck,
        plan.from
    )
}

fn format_hours(hours: f64) -> String {
    if hours < 0.01 && hours > 0.0 { format!("{hours:.5}") } else { format!("{hours:.2}") }
}
