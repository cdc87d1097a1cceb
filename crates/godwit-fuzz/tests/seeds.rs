//! Runs every target on its seeds and on inputs made of them: no panic, no hang, at most one gigabyte.
//!
//! `GODWIT_FUZZ_INPUTS` sets the number of inputs of each target; `GODWIT_FUZZ_FROM` the number of the first. A failure
//! reports the number of its input.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use godwit_fuzz::{Mutator, TARGETS, run_target};

/// Default number of inputs for each target: about half a second.
const INPUTS_PER_TARGET: u64 = 600;
/// An input of a few kilobytes that takes longer counts as a hang.
const INPUT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum peak memory of the whole process.
const MAX_MEMORY_KIB: u64 = 1 << 20;

fn number_from_environment(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn read_seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a seed can be read")).collect()
}

fn check_target(target: &str) {
    let seeds = read_seeds(target);
    assert!(!seeds.is_empty(), "{target} has no seeds");
    for seed in &seeds {
        run_target(target, seed);
    }
    let from = number_from_environment("GODWIT_FUZZ_FROM", 0);
    for at in from..from + number_from_environment("GODWIT_FUZZ_INPUTS", INPUTS_PER_TARGET) {
        let input = Mutator::new(at).next_input(&seeds);
        let started = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| run_target(target, &input)));
        assert!(result.is_ok(), "{target}: input {at} panics: {}", input.escape_ascii());
        assert!(started.elapsed() < INPUT_TIMEOUT, "{target}: input {at} takes {:?}", started.elapsed());
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells the peak");
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    assert!(peak.is_some_and(|peak| peak < MAX_MEMORY_KIB), "{target}: the peak is {peak:?} KiB");
}

macro_rules! each_target {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            check_target(stringify!($name));
        })+

        #[test]
        fn no_target_is_left_out() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($name)),+]);
        }
    };
}

each_target!(fastq fastq_packed unaligned sam bam bam_file fasta pipe cram index reference_index manifest journal vcf bed bbi chain vcf_lines arrow csv packed nfs);
