//! `godwit plan`: how long a cohort takes on a facility, and what is short.

use std::path::Path;

use clap::ValueEnum as _;
use godwit_fleet::plan::{Balancer, Facility, OneForAll, Outcome, Step, Workload, published, simulate};
use godwit_flight::pool::{Picker, Policy};
use serde::{Deserialize, Serialize};

use super::{print, print_json};
use crate::cli::{BalancePolicy, PlanArgs};
use crate::failure::{Exit, Failure};
use crate::table::aligned;

/// More of a sample's hours than this go to waiting for storage: it is what is short.
const SHORT: f64 = 0.05;
const SECONDS_PER_HOUR: f64 = 3600.0;
const BITS_PER_BYTE: f64 = 8.0;

/// What is predicted, as printed with `--json`.
#[derive(Serialize)]
struct Plan {
    samples: u32,
    nodes: u32,
    storage_nodes: u32,
    balance: String,
    /// What steps cost is from here.
    from: String,
    /// Mean over the samples.
    steps: Vec<StepHours>,
    /// Hours of a sample from its first step to its last, mean.
    total_hours: f64,
    /// The same of a sample that has the storage to itself.
    alone_hours: f64,
    /// Hours that a sample waits for a place on a compute node, mean.
    queued_hours: f64,
    /// Hours of steps that all samples go through together, after the last of them.
    cohort_hours: f64,
    /// Hours from the first start to the last end.
    makespan_hours: f64,
    /// samples * 24 / makespan_hours.
    genomes_per_day: f64,
    bottleneck: String,
    /// The fewest storage nodes with which balanced streams cost a sample at most a twentieth of its hours.
    storage_nodes_needed: Option<u32>,
}

#[derive(Serialize)]
struct StepHours {
    step: String,
    hours: f64,
}

/// Predicts and prints.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let (workload, cohort) = match &args.from {
        None => (published(), 0.0),
        Some(path) => measured(path, args)?,
    };
    let plan = predict(args, &workload, cohort);
    if args.json {
        return print_json(&plan);
    }
    print(&table(&plan))
}

fn predict(args: &PlanArgs, workload: &Workload, cohort: f64) -> Plan {
    let outcome = outcome(args, workload, (args.storage_nodes, args.balance));
    let makespan = outcome.makespan + cohort;
    let source = args.from.as_ref().map_or_else(
        || "the published BWA-GATK pipeline, 10x human genomes (columns of 3, 30 and 90 samples)".to_owned(),
        |path| path.display().to_string(),
    );
    Plan {
        samples: args.samples,
        nodes: args.nodes,
        storage_nodes: args.storage_nodes,
        balance: args.balance.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
        from: source,
        steps: workload
            .steps
            .iter()
            .zip(&outcome.hours)
            .map(|(step, hours)| StepHours { step: step.name.clone(), hours: *hours })
            .collect(),
        total_hours: outcome.total(),
        alone_hours: workload.alone(),
        queued_hours: outcome.queued,
        cohort_hours: cohort,
        makespan_hours: makespan,
        genomes_per_day: f64::from(args.samples) * 24.0 / makespan,
        bottleneck: bottleneck(args, workload, &outcome),
        storage_nodes_needed: storage_nodes_needed(args, workload),
    }
}

fn outcome(args: &PlanArgs, workload: &Workload, (storage_nodes, balance): (u32, BalancePolicy)) -> Outcome {
    let facility = Facility {
        nodes: args.nodes as usize,
        samples_per_node: args.per_node as usize,
        storage_nodes: storage_nodes as usize,
        disk_share: args.disk_share,
    };
    let policy = match balance {
        BalancePolicy::None => return simulate(args.samples as usize, workload, &facility, &mut OneForAll),
        BalancePolicy::RoundRobin => Policy::RoundRobin,
        BalancePolicy::Connections => Policy::Connections,
    };
    let mut pool = Pool(Picker::new(policy, facility.storage_nodes, 0));
    simulate(args.samples as usize, workload, &facility, &mut pool)
}

/// The pool's own way to choose; all nodes are healthy.
struct Pool(Picker);

impl Balancer for Pool {
    fn grant(&mut self) -> usize {
        self.0.pick().expect("no node of a plan is lost")
    }

    fn ended(&mut self, node: usize) {
        self.0.ended(node);
    }
}

/// The share of a sample's hours that storage costs it.
fn storage_share(outcome: &Outcome, workload: &Workload) -> f64 {
    1.0 - workload.alone() / outcome.total()
}

fn bottleneck(args: &PlanArgs, workload: &Workload, outcome: &Outcome) -> String {
    let lost = storage_share(outcome, workload);
    if lost > SHORT {
        let percent = lost * 100.0;
        return match (outcome.waited.network > outcome.waited.disks, args.balance) {
            (true, BalancePolicy::None) if args.storage_nodes > 1 => format!(
                "the network of the one storage node that all use: {percent:.0} % of a sample's hours; the other {} are idle",
                args.storage_nodes - 1
            ),
            (true, _) => format!("the network of the storage nodes: {percent:.0} % of a sample's hours"),
            (false, _) => format!("the disks of the storage nodes: {percent:.0} % of a sample's hours"),
        };
    }
    if outcome.queued > 0.0 {
        return format!("compute nodes: a sample waits {:.1} hours for a place", outcome.queued);
    }
    let longest = workload.steps.iter().zip(&outcome.hours).max_by(|a, b| a.1.total_cmp(b.1));
    format!("nothing is waited for; the longest step is {}", longest.map_or("none", |(step, _)| &step.name))
}

/// The fewest storage nodes that are not short; `None` where ten thousand are.
fn storage_nodes_needed(args: &PlanArgs, workload: &Workload) -> Option<u32> {
    const MOST: u32 = 10_000;
    let balance = match args.balance {
        BalancePolicy::None => BalancePolicy::RoundRobin,
        balance => balance,
    };
    let enough = |nodes: u32| storage_share(&outcome(args, workload, (nodes, balance)), workload) <= SHORT;
    let mut most = 1;
    while !enough(most) {
        most = if most < MOST { (most * 2).min(MOST) } else { return None };
    }
    let (mut least, mut most) = (most / 2 + 1, most);
    while least < most {
        let middle = least + (most - least) / 2;
        (least, most) = if enough(middle) { (least, middle) } else { (middle + 1, most) };
    }
    Some(most)
}

/// What is read of a run.json.
#[derive(Deserialize)]
struct Report {
    /// `godwit run`: its samples.
    #[serde(default)]
    samples: Vec<SampleReport>,
    /// Its steps for all samples.
    #[serde(default)]
    cohort: Vec<StepReport>,
    /// `godwit align`: the verb,
    #[serde(default)]
    verb: String,
    /// and how long it took.
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
    /// Bytes of the files it read and wrote.
    #[serde(default)]
    file_bytes: u64,
}

/// What steps cost, from a run of one machine, and the hours of what all samples of the plan go through together.
fn measured(path: &Path, args: &PlanArgs) -> Result<(Workload, f64), Failure> {
    let bad = |what: String| Failure::new(Exit::Input, format!("{}: {what}", path.display()));
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", path.display())))?;
    let report: Report =
        serde_json::from_slice(&bytes).map_err(|error| bad(format!("not a run.json of godwit: {error}")))?;
    if report.verb == "align" {
        let step = StepReport { step: "align".into(), seconds: report.seconds, file_bytes: 0 };
        return Ok((
            workload_of(&[&[step]], args).ok_or_else(|| bad("it says of no step how long it took".into()))?,
            0.0,
        ));
    }
    let done = report.samples.iter().filter(|sample| sample.error.is_none()).map(|sample| &*sample.steps);
    let done: Vec<&[StepReport]> = done.collect();
    let workload = workload_of(&done, args).ok_or_else(|| bad("no sample of it was finished".into()))?;
    let cohort: f64 = report.cohort.iter().map(|step| step.seconds).sum();
    Ok((workload, cohort / SECONDS_PER_HOUR / done.len() as f64 * f64::from(args.samples)))
}

/// Means over samples of each step, which all have the same; `None` where there is nothing.
fn workload_of(samples: &[&[StepReport]], args: &PlanArgs) -> Option<Workload> {
    let rate = args.storage_rate as f64 / BITS_PER_BYTE * SECONDS_PER_HOUR;
    let first = samples.first()?;
    let steps = first.iter().map(|StepReport { step: name, .. }| {
        let of_step = samples.iter().flat_map(|steps| steps.iter()).filter(|step| step.step == *name);
        let (mut seconds, mut bytes) = (0.0, 0.0);
        for step in of_step {
            seconds += step.seconds;
            bytes += step.file_bytes as f64;
        }
        let hours = seconds / SECONDS_PER_HOUR / samples.len() as f64;
        let volume = bytes / samples.len() as f64 / rate;
        // Hours were measured with files moving: what they moved alone is within them.
        let cap = if volume > hours { volume / hours.max(f64::MIN_POSITIVE) } else { 1.0 };
        Step { name: name.clone(), compute: (hours - volume).max(0.0), volume, cap }
    });
    let workload = Workload { steps: steps.collect(), spread: 0.0 };
    (workload.alone() > 0.0).then_some(workload)
}

fn table(plan: &Plan) -> String {
    let mut rows = vec![["step", "hours"].map(str::to_owned)];
    rows.extend(plan.steps.iter().map(|step| [step.step.clone(), hours(step.hours)]));
    if plan.cohort_hours > 0.0 {
        rows.push(["all samples together".into(), hours(plan.cohort_hours)]);
    }
    rows.push(["total of a sample".into(), hours(plan.total_hours)]);
    rows.push(["the same alone".into(), hours(plan.alone_hours)]);
    rows.push(["waiting for a compute node".into(), hours(plan.queued_hours)]);
    rows.push(["whole cohort".into(), hours(plan.makespan_hours)]);
    let needed = match plan.storage_nodes_needed {
        Some(1) => "1 storage node is enough".to_owned(),
        Some(nodes) => format!("{nodes} storage nodes are enough where streams are balanced"),
        None => "no number of storage nodes is enough".to_owned(),
    };
    format!(
        "{}\ngenomes per day: {:.0} ({} samples x 24 / {} hours)\nbottleneck: {}\n{needed}\ncosts of steps: {}\n",
        aligned(&rows, 1),
        plan.genomes_per_day,
        plan.samples,
        hours(plan.makespan_hours),
        plan.bottleneck,
        plan.from
    )
}

fn hours(hours: f64) -> String {
    if hours < 0.01 && hours > 0.0 { format!("{hours:.5}") } else { format!("{hours:.2}") }
}
