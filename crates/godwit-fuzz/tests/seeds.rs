//! Every target over its seeds and over inputs made of them: no panic, no hang, no more than a gigabyte.
//!
//! `GODWIT_FUZZ_INPUTS` sets how many inputs each target gets; `GODWIT_FUZZ_FROM` the number of the first. A failure says
//! which one it was.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use godwit_fuzz::{Mutator, TARGETS, run};

/// Inputs for each target, where nothing else is said: a second or two.
const INPUTS: u64 = 1500;
/// An input of a few kilobytes that takes longer is as good as a hang.
const PATIENCE: Duration = Duration::from_secs(10);
/// Peak of the whole process.
const MAX_KIB: u64 = 1 << 20;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a seed can be read")).collect()
}

fn check(target: &str) {
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "{target} has no seeds");
    for seed in &seeds {
        run(target, seed);
    }
    let from = number("GODWIT_FUZZ_FROM", 0);
    for at in from..from + number("GODWIT_FUZZ_INPUTS", INPUTS) {
        let input = Mutator::new(at).input(&seeds);
        let started = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| run(target, &input)));
        assert!(result.is_ok(), "{target}: input {at} panics: {}", input.escape_ascii());
        assert!(started.elapsed() < PATIENCE, "{target}: input {at} takes {:?}", started.elapsed());
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells the peak");
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    assert!(peak.is_some_and(|peak| peak < MAX_KIB), "{target}: the peak is {peak:?} KiB");
}

macro_rules! each_target {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })+

        #[test]
        fn no_target_is_left_out() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($name)),+]);
        }
    };
}

each_target!(fastq fastq_packed unaligned sam bam bam_file fasta pipe cram index reference_index manifest journal vcf bed vcf_lines arrow csv);
