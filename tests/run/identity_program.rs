//! `cargo xtask identity` on a small genome: no record differs, and an interrupted run resumes.

use std::path::Path;
use std::process::{Command, Output};

use godwit_tests::{binary, needs, scratch};

/// Runs two rounds of one seed in `work`.
fn run_identity(work: &Path) -> (Output, String) {
    let program = scratch::profile_directory().join("godwit-identity");
    assert!(program.is_file(), "{} does not exist: build godwit-identity with this profile", program.display());
    let mut command = Command::new(program);
    command.args([
        "--pairs",
        "1500",
        "--genome",
        "0.5",
        "--seed",
        "2",
        "--rounds",
        "2",
        "--nodes",
        "2",
        "--threads",
        "2",
    ]);
    command.arg("--godwit").arg(binary::path()).arg("--work").arg(work);
    command.arg("--results").arg(work.join("results.tsv")).arg("--page").arg(work.join("page.md"));
    let output = command.output().expect("it can be started");
    let text = [&output.stdout[..], &output.stderr].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn rounds_of_a_seed_have_the_records_of_bwa_and_an_interrupted_round_is_finished_later() {
    needs!("bwa", "samtools");
    let work = scratch::directory("identity");
    let (output, text) = run_identity(&work);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("\n2 rounds, ") && text.contains(" 0 differ, 0 failed, 0 rounds left"), "{text}");
    let results = std::fs::read_to_string(work.join("results.tsv")).expect("the first run wrote it");
    assert!(results.lines().any(|line| line.contains("\tbwa-mem3")), "no round has bwa-mem3: {results}");
    assert!(results.lines().any(|line| line.contains(" worker")), "no round has a cluster run: {results}");

    let (_, text) = run_identity(&work);
    assert!(text.starts_with("0 rounds, 0 comparisons"), "{text}");

    // Truncate the last line, as if the program had been killed.
    std::fs::write(work.join("results.tsv"), &results[..results.len() - 20]).expect("the directory can be written to");
    let (output, text) = run_identity(&work);
    assert!(output.status.success() && text.contains("\n1 rounds, 1 comparisons"), "{text}");
    let page = std::fs::read_to_string(work.join("page.md")).expect("each run writes it");
    assert_eq!(page.lines().filter(|line| line.starts_with("| 0.5 Mb | 2 |")).count(), 2, "{page}");
}
