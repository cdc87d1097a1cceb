//! `godwit-sim [--seed N] [--seeds COUNT]`: runs of simulated worlds, one line for each that fails.

use std::process::ExitCode;

use godwit_sim::{Scenario, run};

const USAGE: &str = "usage: godwit-sim [--seed FIRST] [--seeds COUNT]";

fn main() -> ExitCode {
    let (mut first, mut count) = (0, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|text| text.parse::<u64>().ok());
        match (word.as_str(), number) {
            ("--seed", Some(seed)) => {
                first = seed;
                count = count.or(Some(1));
            }
            ("--seeds", Some(seeds)) => count = Some(seeds),
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
                println!("{problem}\n  again: cargo xtask sim --seed {seed}");
            }
        }
    }
    println!("{count} worlds, {failures} failed");
    ExitCode::from(u8::from(failures > 0))
}
