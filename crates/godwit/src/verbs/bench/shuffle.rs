//! `godwit bench shuffle`: every node fetches its slice from every other at once, as published for shuffles over Arrow Flight.
//!
//! Each round makes the data, connects, transfers and verifies, a step after the other, all nodes beginning each together; then it transfers
//! again and verifies what came while more comes. What that takes longer than verifying alone is communication that work
//! does not hide.

mod crew;
mod node;

use godwit_flight::measure::shuffle::{MESSAGE_LIMIT_BYTES, Slices, tuning};
use serde_json::{Value, json};

use self::crew::{Crew, Processes};
use self::node::{Done, Order, Session};
use super::{parse_address, serve, tell_stage, threads};
use crate::cli::{BenchShuffleArgs, TableFormat};
use crate::failure::{Exit, Failure};

/// Steps of a round whose times are told as shares of one another.
const STAGES: [&str; 4] = ["make", "connect", "transfer", "verify"];

/// Measures, or serves until it is stopped.
pub fn run(args: &BenchShuffleArgs) -> Result<(), Failure> {
    if let Some(index) = args.node {
        return node::run(index);
    }
    if let Some(address) = &args.listen {
        let address = parse_address(address)?;
        // Each server has bytes of its own.
        let slices = Slices::of(std::process::id());
        return threads()?.block_on(serve(&address, slices, tuning(), args.until_stdin_closes));
    }
    let results = measure(args)?;
    match args.format {
        TableFormat::Json => super::super::print(&format!("{:#}\n", Value::from(results))),
        TableFormat::Table => super::super::print(&table(&results)),
    }
}

fn measure(args: &BenchShuffleArgs) -> Result<Vec<Value>, Failure> {
    // With peers this process is a node too.
    let here = [args.peers.len() as u32 + 1];
    let counts = if args.peers.is_empty() { &args.nodes[..] } else { &here };
    for address in &args.peers {
        parse_address(address)?;
    }
    for nodes in counts {
        for bytes in &args.bytes {
            check(args, *nodes, *bytes)?;
        }
    }
    let mut results = Vec::new();
    for nodes in counts {
        let mut crew = if args.peers.is_empty() {
            Crew::Processes(Processes::start(*nodes)?)
        } else {
            Crew::Here { session: Box::new(Session::new(0)), runtime: threads()?, peers: args.peers.clone() }
        };
        for bytes in &args.bytes {
            tell_stage(args.json, &format!("{nodes} nodes, {bytes} bytes each"));
            let slice_bytes = bytes / u64::from(*nodes);
            let plan = Plan { nodes: *nodes, peers: &args.peers, slice_bytes, message_bytes: args.message };
            let rounds: Result<Vec<Round>, Failure> = (0..args.rounds).map(|_| plan.round(&mut crew)).collect();
            results.push(plan.told(*bytes, &rounds?));
        }
    }
    Ok(results)
}

/// Refuses what cannot be measured before anything is started.
fn check(args: &BenchShuffleArgs, nodes: u32, bytes: u64) -> Result<(), Failure> {
    if args.message > MESSAGE_LIMIT_BYTES {
        let message =
            format!("--message {} is too large; a message has at most {MESSAGE_LIMIT_BYTES} bytes", args.message);
        return Err(Failure::new(Exit::Usage, message));
    }
    if bytes < nodes.into() {
        let message =
            format!("--bytes {bytes} leaves nothing for some of {nodes} nodes; give at least a byte for each");
        return Err(Failure::new(Exit::Usage, message));
    }
    // Every node of this machine holds what it gives, its own slice among it, and what it gets from others.
    let needed = if args.peers.is_empty() { bytes.saturating_mul(2 * u64::from(nodes) - 1) } else { bytes };
    match godwit_pipeline::machine::free_memory_bytes() {
        Some(free) if needed > free => Err(Failure::new(
            Exit::Machine,
            format!(
                "{nodes} nodes of {bytes} bytes need {needed} bytes of memory and {free} are free; give less to --bytes or --nodes"
            ),
        )),
        _ => Ok(()),
    }
}

/// What is shuffled.
struct Plan<'a> {
    nodes: u32,
    /// Where the others are, if they are no processes of ours.
    peers: &'a [String],
    slice_bytes: u64,
    message_bytes: u64,
}

/// A step that all nodes have done.
struct Step {
    nodes: Vec<Done>,
    cpu_seconds: f64,
}

impl Step {
    fn slowest(&self) -> f64 {
        self.nodes.iter().map(|done| done.seconds).fold(0.0, f64::max)
    }
}

/// The steps of [`STAGES`], and the transfer that hides behind verifying.
struct Round {
    stages: [Step; 4],
    overlap: Step,
}

impl Round {
    fn transfer(&self) -> &Step {
        &self.stages[2]
    }

    /// Time that the transfer adds to verifying though both run at once.
    fn exposed(&self) -> f64 {
        (self.overlap.slowest() - self.stages[3].slowest()).max(0.0)
    }
}

impl Plan<'_> {
    fn round(&self, crew: &mut Crew) -> Result<Round, Failure> {
        let Self { nodes, peers, slice_bytes, message_bytes } = *self;
        let mut step = |order: Option<Order>| -> Result<Step, Failure> {
            let before = crew.cpu_seconds();
            let nodes = match order {
                None => crew.connect(),
                Some(order) => crew.all(&order),
            }?;
            Ok(Step { nodes, cpu_seconds: crew.cpu_seconds() - before })
        };
        let connect = step(None)?;
        // Peers elsewhere serve whoever asks the same slice, and make it when they are asked.
        let ask_peers = !peers.is_empty();
        let takers = if ask_peers { 1 } else { nodes };
        let make = step(Some(Order::Make { takers, slice_bytes, ask_peers }))?;
        let transfer = step(Some(Order::Transfer { slice_bytes, message_bytes }))?;
        let verify = step(Some(Order::Verify))?;
        let overlap = step(Some(Order::Overlap { slice_bytes, message_bytes }))?;
        Ok(Round { stages: [make, connect, transfer, verify], overlap })
    }

    /// One result: medians over rounds of what the slowest node took.
    fn told(&self, bytes: u64, rounds: &[Round]) -> Value {
        let fetched = self.slice_bytes * u64::from(self.nodes - 1);
        let measured = rounds[0].transfer().nodes.len();
        let over = |value: &dyn Fn(&Round) -> f64| sorted(rounds.iter().map(value));
        let seconds: Vec<f64> = (0..4).map(|stage| median(&over(&|round| round.stages[stage].slowest()))).collect();
        let all: f64 = seconds.iter().sum();
        let stages = STAGES.iter().enumerate().map(|(stage, name)| {
            let cpu = median(&over(&|round| round.stages[stage].cpu_seconds));
            let told = json!({ "seconds": seconds[stage], "share": seconds[stage] / all, "cpu_seconds": cpu });
            ((*name).to_owned(), told)
        });
        let transfers = over(&|round| round.transfer().slowest());
        // A node alone fetches nothing, so it has no rate.
        let rate = |bytes: u64, seconds: f64| (bytes > 0).then(|| bytes as f64 / 1e6 / seconds);
        let by_node: Vec<Option<f64>> = (0..measured)
            .map(|node| rate(fetched, median(&over(&|round| round.transfer().nodes[node].seconds))))
            .collect();
        let gigabytes = (fetched * measured as u64) as f64 / 1e9;
        let overlapped = median(&over(&|round| round.overlap.slowest()));
        json!({
            "nodes": self.nodes,
            "peers": self.peers,
            "bytes_per_node": bytes,
            "message_bytes": self.message_bytes,
            "fetched_bytes_per_node": rounds.iter().flat_map(|round| &round.transfer().nodes).map(|done| done.fetched_bytes).min(),
            "rounds": rounds.len(),
            "stages": serde_json::Map::from_iter(stages),
            "transfer_s_fastest": transfers[0],
            "transfer_s_slowest": transfers[transfers.len() - 1],
            "mb_per_s_per_node": rate(fetched, seconds[2]),
            "mb_per_s": rate(fetched * measured as u64, seconds[2]),
            "mb_per_s_by_node": by_node,
            // Of the transfer: all nodes, or this one where the others are peers elsewhere.
            "cpu_s_per_gb": (fetched > 0).then(|| median(&over(&|round| round.transfer().cpu_seconds)) / gigabytes),
            "overlapped_s": overlapped,
            "exposed_s": median(&over(&Round::exposed)),
            "exposed_share": median(&over(&|round| round.exposed() / round.overlap.slowest())),
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
