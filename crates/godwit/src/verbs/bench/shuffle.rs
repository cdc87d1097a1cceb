//! `godwit bench shuffle`: measures an all-to-all shuffle over Flight. Each worker fetches a slice of data from every
//! other worker concurrently.
//!
//! All workers start each step of a round together: connect, generate the data, transfer, and verify the checksums. In
//! a last step, the workers transfer the slices again and verify each slice while further slices arrive. The extra time
//! of this step over verification alone is the communication time that overlapping does not hide.

mod shuffle_worker;
mod slice_transfer;
mod worker_pool;

use godwit_cli::cli::{BenchShuffleArgs, TableFormat};
use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use serde_json::{Value, json};

use self::shuffle_worker::{ShuffleCommand, ShuffleSession, StepTiming};
use self::worker_pool::{WorkerPool, WorkerProcesses};
use super::{new_runtime, parse_address, report_stage, serve_until_stopped};
use slice_transfer::{MAX_MESSAGE_BYTES, SliceSource, transport_options};

/// Names of the steps of a round. Their times are also reported as fractions of the sum of all four.
const STAGES: [&str; 4] = ["make", "connect", "transfer", "verify"];

/// Measures and prints the results; with `--listen`, serves slices until it is stopped; with `--node`, runs as a
/// worker.
pub fn run(args: &BenchShuffleArgs) -> Result<(), Failure> {
    if let Some(index) = args.node {
        return shuffle_worker::run(index);
    }
    if let Some(address) = &args.listen {
        let address = parse_address(address)?;
        // The seed makes each server generate different data.
        let slices = SliceSource::new(std::process::id());
        return new_runtime()?.block_on(serve_until_stopped(
            &address,
            slices,
            transport_options(),
            args.until_stdin_closes,
        ));
    }
    let results = measure(args)?;
    match args.format {
        TableFormat::Json => super::super::print(&format!("{:#}\n", Value::from(results))),
        TableFormat::Table => super::super::print(&table(&results)),
    }
}

fn measure(args: &BenchShuffleArgs) -> Result<Vec<Value>, Failure> {
    // If remote peers are given, this process is one more worker.
    let here = [args.peers.len() as u32 + 1];
    let counts = if args.peers.is_empty() { &args.nodes[..] } else { &here };
    for address in &args.peers {
        parse_address(address)?;
    }
    for nodes in counts {
        for bytes in &args.bytes {
            check_limits(args, *nodes, *bytes)?;
        }
    }
    let mut results = Vec::new();
    for nodes in counts {
        let mut workers = if args.peers.is_empty() {
            WorkerPool::Processes(WorkerProcesses::start(*nodes)?)
        } else {
            WorkerPool::ThisProcess {
                session: Box::new(ShuffleSession::new(0)),
                runtime: new_runtime()?,
                peers: args.peers.clone(),
            }
        };
        for bytes in &args.bytes {
            report_stage(args.json, &format!("{nodes} nodes, {bytes} bytes each"));
            let slice_bytes = bytes / u64::from(*nodes);
            let plan =
                ShufflePlan { worker_count: *nodes, peers: &args.peers, slice_bytes, message_bytes: args.message };
            let rounds: Result<Vec<RoundResult>, Failure> =
                (0..args.rounds).map(|_| plan.run_round(&mut workers)).collect();
            results.push(plan.result_json(*bytes, &rounds?));
        }
    }
    Ok(results)
}

/// Rejects measurements that are impossible, for example because the memory is too small.
fn check_limits(args: &BenchShuffleArgs, nodes: u32, bytes: u64) -> Result<(), Failure> {
    if args.message > MAX_MESSAGE_BYTES {
        let message =
            format!("--message {} is too large; a message has at most {MAX_MESSAGE_BYTES} bytes", args.message);
        return Err(Failure::new(ErrorKind::Usage, message));
    }
    if bytes < nodes.into() {
        let message = format!("--bytes {bytes} is less than one byte for each of {nodes} workers; use a larger value");
        return Err(Failure::new(ErrorKind::Usage, message));
    }
    // Every local worker stores a slice for each worker including itself, and the slices that it receives from the
    // others.
    let needed = if args.peers.is_empty() { bytes.saturating_mul(2 * u64::from(nodes) - 1) } else { bytes };
    match godwit_pipeline::host_resources::free_memory_bytes() {
        Some(free) if needed > free => Err(Failure::new(
            ErrorKind::Machine,
            format!(
                "{nodes} workers with {bytes} bytes each need {needed} bytes of memory, but {free} are free; reduce \
                 --bytes or --nodes"
            ),
        )),
        _ => Ok(()),
    }
}

/// Parameters of a shuffle.
struct ShufflePlan<'a> {
    worker_count: u32,
    /// Addresses of the remote peers; empty if all workers are local processes.
    peers: &'a [String],
    slice_bytes: u64,
    message_bytes: u64,
}

/// The timings of all workers in one step.
struct StepResult {
    worker_timings: Vec<StepTiming>,
    cpu_seconds: f64,
}

impl StepResult {
    fn slowest_seconds(&self) -> f64 {
        self.worker_timings.iter().map(|done| done.seconds).fold(0.0, f64::max)
    }
}

/// The results of one round: the steps of [`STAGES`], and the step in which transfer and verification overlap.
struct RoundResult {
    stages: [StepResult; 4],
    overlap: StepResult,
}

impl RoundResult {
    fn transfer(&self) -> &StepResult {
        &self.stages[2]
    }

    /// Returns the time in seconds that the transfer adds to the verification if both overlap.
    fn exposed_seconds(&self) -> f64 {
        (self.overlap.slowest_seconds() - self.stages[3].slowest_seconds()).max(0.0)
    }
}

impl ShufflePlan<'_> {
    fn run_round(&self, workers: &mut WorkerPool) -> Result<RoundResult, Failure> {
        let Self { worker_count, peers, slice_bytes, message_bytes } = *self;
        let mut step = |order: Option<ShuffleCommand>| -> Result<StepResult, Failure> {
            let before = workers.cpu_seconds();
            let worker_timings = match order {
                None => workers.connect(),
                Some(order) => workers.run_step(&order),
            }?;
            Ok(StepResult { worker_timings, cpu_seconds: workers.cpu_seconds() - before })
        };
        let connect = step(None)?;
        // Remote peers generate one slice on request, and send the same slice to every receiver.
        let ask_peers = !peers.is_empty();
        let takers = if ask_peers { 1 } else { worker_count };
        let make = step(Some(ShuffleCommand::Make { takers, slice_bytes, ask_peers }))?;
        let transfer = step(Some(ShuffleCommand::Transfer { slice_bytes, message_bytes }))?;
        let verify = step(Some(ShuffleCommand::Verify))?;
        let overlap = step(Some(ShuffleCommand::Overlap { slice_bytes, message_bytes }))?;
        Ok(RoundResult { stages: [make, connect, transfer, verify], overlap })
    }

    /// Returns the result of one measurement as JSON: medians over the rounds; in each round, the time of the slowest
    /// worker.
    fn result_json(&self, bytes: u64, rounds: &[RoundResult]) -> Value {
        let fetched = self.slice_bytes * u64::from(self.worker_count - 1);
        let measured = rounds[0].transfer().worker_timings.len();
        let over = |value: &dyn Fn(&RoundResult) -> f64| sorted(rounds.iter().map(value));
        let seconds: Vec<f64> =
            (0..4).map(|stage| median(&over(&|round| round.stages[stage].slowest_seconds()))).collect();
        let all: f64 = seconds.iter().sum();
        let stages = STAGES.iter().enumerate().map(|(stage, name)| {
            let cpu = median(&over(&|round| round.stages[stage].cpu_seconds));
            let stage_json = json!({ "seconds": seconds[stage], "share": seconds[stage] / all, "cpu_seconds": cpu });
            ((*name).to_owned(), stage_json)
        });
        let transfers = over(&|round| round.transfer().slowest_seconds());
        // A single worker does not fetch any data, so its rate is `None`.
        let rate = |bytes: u64, seconds: f64| (bytes > 0).then(|| bytes as f64 / 1e6 / seconds);
        let by_node: Vec<Option<f64>> = (0..measured)
            .map(|node| rate(fetched, median(&over(&|round| round.transfer().worker_timings[node].seconds))))
            .collect();
        let gigabytes = (fetched * measured as u64) as f64 / 1e9;
        let overlapped = median(&over(&|round| round.overlap.slowest_seconds()));
        json!({
            "nodes": self.worker_count,
            "peers": self.peers,
            "bytes_per_node": bytes,
            "message_bytes": self.message_bytes,
            "fetched_bytes_per_node": rounds.iter().flat_map(|round| &round.transfer().worker_timings).map(|done| done.fetched_bytes).min(),
            "rounds": rounds.len(),
            "stages": serde_json::Map::from_iter(stages),
            "transfer_s_fastest": transfers[0],
            "transfer_s_slowest": transfers[transfers.len() - 1],
            "mb_per_s_per_node": rate(fetched, seconds[2]),
            "mb_per_s": rate(fetched * measured as u64, seconds[2]),
            "mb_per_s_by_node": by_node,
            // CPU time of the transfer, summed over all local workers; that of remote peers is unknown.
            "cpu_s_per_gb": (fetched > 0).then(|| median(&over(&|round| round.transfer().cpu_seconds)) / gigabytes),
            "overlapped_s": overlapped,
            "exposed_s": median(&over(&RoundResult::exposed_seconds)),
            "exposed_share": median(&over(&|round| round.exposed_seconds() / round.overlap.slowest_seconds())),
        })
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

fn table(results: &[Value]) -> String {
    let mut text = "nodes  MB/node  message B  fetched MB  transfer s  MB/s/node  MB/s all  CPU s/GB    make  connect  transfer  verify  exposed\n".to_owned();
    for result in results {
        let number = |value: &Value, digits: usize| match value.as_f64() {
            Some(number) => format!("{number:.digits$}"),
            None => "-".into(),
        };
        let megabytes = |key: &str| format!("{:.1}", result[key].as_f64().unwrap_or_default() / 1e6);
        let percent = |value: &Value| format!("{:.0}%", 100.0 * value.as_f64().unwrap_or_default());
        let share = |stage: &str| percent(&result["stages"][stage]["share"]);
        text += &format!(
            "{:>5} {:>8} {:>10} {:>11} {:>11} {:>10} {:>9} {:>9} {:>7} {:>8} {:>9} {:>7} {:>8}\n",
            number(&result["nodes"], 0),
            megabytes("bytes_per_node"),
            number(&result["message_bytes"], 0),
            megabytes("fetched_bytes_per_node"),
            number(&result["stages"]["transfer"]["seconds"], 3),
            number(&result["mb_per_s_per_node"], 0),
            number(&result["mb_per_s"], 0),
            number(&result["cpu_s_per_gb"], 2),
            share("make"),
            share("connect"),
            share("transfer"),
            share("verify"),
            percent(&result["exposed_share"]),
        );
    }
    text
}
