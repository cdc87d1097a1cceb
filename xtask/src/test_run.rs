//! `cargo xtask test`: runs every test of the workspace, and prints one line at the end that counts them.
//!
//! Reads the output of `cargo test` while it forwards it. It interprets only the closing lines of libtest, the names of
//! failed tests, and the lines `SKIPPED: ID: DETAIL` of `godwit_tests::skip!`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::num::NonZero;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Runs `cargo test --workspace` with the profile of `./check`; `arguments` go to cargo, and through it to the tests.
///
/// # Errors
/// A test that failed, a test program that ended without a result, or a build that failed.
pub fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let started = Instant::now();
    let (output, input) = io::pipe().context("cannot make a pipe")?;
    let mut command = crate::cargo::command();
    command.args(["test", "--profile", "ci", "--workspace", "--no-fail-fast"]).args(arguments).current_dir(root);
    // Most of its time a test waits: for a process to start, for a time limit, for SLURM.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        command.env("RUST_TEST_THREADS", (3 * processors).to_string());
    }
    // Java programs of the tests run for seconds: the optimizing compiler would take more time than it saves.
    command.env("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1");
    command.stdout(input.try_clone().context("cannot make a pipe")?).stderr(input);
    let mut child = command.spawn().context("cannot start cargo")?;
    // The command keeps copies of the pipe's write end; unless they are closed, the read end does not reach its end.
    drop(command);

    let mut tally = TestCounts::default();
    let mut stdout = io::stdout().lock();
    let mut line = Vec::new();
    let mut output = BufReader::new(output);
    while output.read_until(b'\n', &mut line).context("cannot read what cargo prints")? > 0 {
        stdout.write_all(&line).context("cannot write")?;
        tally.add_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = child.wait().context("cannot wait for cargo")?;
    for name in &tally.failed_names {
        println!("failed: {name}");
    }
    println!("check: {tally}, in {} s", started.elapsed().as_secs());
    if status.success() { Ok(()) } else { bail!("cargo test ended with {status}; see above") }
}

/// Counts of tests over all test programs of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestCounts {
    /// The number of tests that libtest counts as passed, including those that skipped themselves.
    passed: u64,
    failed: u64,
    /// The number of tests marked `#[ignore]`, which run by name only.
    ignored: u64,
    /// The number of skipped tests by the id of the reason.
    skipped: BTreeMap<String, u64>,
    failed_names: Vec<String>,
}

impl TestCounts {
    fn add_line(&mut self, line: &str) {
        let line = line.trim_end();
        // With one test thread the line begins with the name of the test.
        if let Some((_, skip)) = line.split_once("SKIPPED: ")
            && let Some((id, _)) = skip.split_once(": ")
        {
            *self.skipped.entry(id.to_owned()).or_default() += 1;
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            let count = |what: &str| -> u64 {
                let words: Vec<_> = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
                let found = words.windows(2).find(|pair| pair[1] == what);
                found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
            };
            self.passed += count("passed");
            self.failed += count("failed");
            self.ignored += count("ignored");
        } else if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failed_names.push(name.to_owned());
        }
    }
}

/// `1463 passed, 0 failed, 3 skipped (2 shared-data, 1 browser), 92 ignored`; a skipped test does not count as passed.
impl fmt::Display for TestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped: u64 = self.skipped.values().sum();
        write!(f, "{} passed, {} failed, {skipped} skipped", self.passed.saturating_sub(skipped), self.failed)?;
        if skipped > 0 {
            let reasons: Vec<_> = self.skipped.iter().map(|(id, count)| format!("{count} {id}")).collect();
            write!(f, " ({})", reasons.join(", "))?;
        }
        write!(f, ", {} ignored", self.ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_tests(output: &str) -> TestCounts {
        let mut tally = TestCounts::default();
        output.lines().for_each(|line| tally.add_line(line));
        tally
    }

    #[test]
    fn results_of_all_test_programs_are_added_up() {
        let counted = count_tests(
            "running 3 tests\n\
             test a ... ok\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test b::c ... FAILED\n\
             test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s\n",
        );
        assert_eq!(counted.to_string(), "6 passed, 1 failed, 0 skipped, 1 ignored");
        assert_eq!(counted.failed_names, ["b::c"]);
    }

    #[test]
    fn a_skipped_test_is_counted_by_its_reason_and_not_as_passed() {
        let counted = count_tests(
            "SKIPPED: shared-data: no shared/data beside the repository\n\
             SKIPPED: shared-data: no real proteins beside the repository\n\
             test d ... SKIPPED: browser: Chromium is not installed\n\
             test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!(counted.to_string(), "2 passed, 0 failed, 3 skipped (1 browser, 2 shared-data), 0 ignored");
    }
}
