//! `godwit-sim [--seed N] [--seeds COUNT]`: simulates cluster runs and copies, and prints a line for each that fails.
//! `godwit-sim --speed BLOCKS`: measures the scheduler's decisions on that many blocks, with 32 workers.
//! `godwit-sim --time < COSTS.json`: predicts the time of a run from [`ClusterCosts`], as JSON.

use std::process::ExitCode;

use godwit_model::BlockId;
use godwit_sim::{ClusterCosts, Scenario, predict_cluster_run, run, simulate_copy, time_ledger};

const USAGE: &str = "usage: godwit-sim [--seed FIRST] [--seeds COUNT] | --speed BLOCKS | --time < COSTS.json";
/// The number of workers of the speed measurement.
const WORKERS: u32 = 32;

fn main() -> ExitCode {
    let (mut first, mut count) = (0, None);
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if_eq("--time").is_some() {
        return print_cluster_timing();
    }
    while let Some(word) = words.next() {
        let number = words.next().and_then(|text| text.parse::<u64>().ok());
        match (word.as_str(), number) {
            ("--seed", Some(seed)) => {
                first = seed;
                count = count.or(Some(1));
            }
            ("--seeds", Some(seeds)) => count = Some(seeds),
            ("--speed", Some(blocks)) => {
                let blocks = blocks.clamp(1, u64::from(BlockId::MAX_BLOCKS)) as u32;
                let timings = time_ledger(blocks, WORKERS);
                let mean = timings.total_time.as_secs_f64() * 1e6 / f64::from(blocks);
                println!(
                    "{blocks} blocks, {WORKERS} workers: {mean:.1} us per block, {} events, longest event {:?}",
                    timings.events, timings.longest_event_time
                );
                return ExitCode::SUCCESS;
            }
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let count = count.unwrap_or(10_000);
    let mut failures = 0;
    for seed in first..first + count {
        match run(Scenario::of_seed(seed)) {
            Ok(outcome) if count == 1 => println!("{outcome:?}"),
            Ok(_) => {}
            Err(problem) => {
                failures += 1;
                println!("{problem}\n  reproduce it with: cargo xtask sim --seed {seed}");
            }
        }
        match simulate_copy(seed) {
            Ok(outcome) if count == 1 => println!("{outcome:?}"),
            Ok(_) => {}
            Err(problem) => {
                failures += 1;
                println!("{problem}\n  reproduce it with: cargo xtask sim --seed {seed}");
            }
        }
    }
    println!("{count} simulations, {failures} failed");
    ExitCode::from(u8::from(failures > 0))
}

/// Predicts the time of the run that is described on stdin, and prints the prediction.
fn print_cluster_timing() -> ExitCode {
    match serde_json::from_reader::<_, ClusterCosts>(std::io::stdin()) {
        Ok(costs) => {
            println!("{}", serde_json::json!(predict_cluster_run(&costs)));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("stdin: {error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
