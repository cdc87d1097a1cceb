//! Chores of the workspace, run as `cargo xtask CHORE`: a tool for developers of godwit, which is not shipped.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

mod cargo;
mod release;
mod test_run;
mod tidy;

const USAGE: &str = "usage: cargo xtask CHORE

chores:
  tidy                 check rules that the compiler does not: allowed dependencies of crates, lengths of functions and
                       files, manifests, forbidden words and file names, links and indexes of pages
  test [ARG..]         run all tests, continue after failures, and print the counts at the end; the arguments go to
                       cargo test
  release [ARG..]      check versions and licenses, and build what is shipped; --help lists the options
  docs                 write docs/reference/cli.md and cli-*.md from the built program
  sim [--seed N] [--seeds COUNT]
                       simulate cluster runs and copies with faults; each seed is one simulation
  identity [--pairs N] [--genome MB] [--seed S] [--rounds N] [ARG..]
                       compare every record of every exact aligner with bwa's, in rounds drawn from a seed; the same command
                       resumes; --help lists all options
  chaos [RUNS [SEED]]  inject faults into the hosts of runs on a real SLURM cluster, at moments drawn from a seed
  search [ROUND..]     compare all programs and formats of BLAST+ on real data with one pass; rounds 1 to 7, which all
                       run by default, combine ranges and workers
  conformance          build Arrow's integration programs in Go and run its scenarios for Flight against them
  scanners             check the server with h2spec, SSLyze and testssl.sh
  bench [NAME [ARG..]] run bench/scenarios/NAME.py with the arguments; without a name, list them";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(&workspace_root()),
        ["test", rest @ ..] => test_run::run(&workspace_root(), rest),
        ["release", rest @ ..] => release::run(&workspace_root(), rest),
        ["docs"] => write_docs(&workspace_root()),
        ["sim", rest @ ..] => run_simulations(rest),
        ["identity", rest @ ..] => run_identity(rest),
        ["chaos", rest @ ..] => run_chaos_tests(rest),
        ["search", rest @ ..] => run_search_matrix(rest),
        ["conformance"] => run_conformance_tests(&workspace_root()),
        ["scanners"] => run_ignored_tests("serve::security_scanners", &[], "a scanner found something; see above"),
        ["bench", arguments @ ..] => run_benchmark(&workspace_root(), arguments),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        other => {
            eprintln!("xtask: there is no chore `{}`\n\n{USAGE}", other.join(" "));
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root of the workspace this program was built in.
fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Builds the program and writes its own reference of the command line, an index and a page for each group of verbs.
fn write_docs(root: &Path) -> Result<()> {
    // The features of the workspace: with another set, everything would be built once more.
    let mut build = cargo::command();
    build.args(["build", "--quiet", "--profile", "ci", "--workspace", "--bin", "godwit"]);
    let status = build.current_dir(root).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo build ended with {status}");
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = root.join("docs/reference");
    let mut man = Command::new(target.join("ci/godwit"));
    let output = man.args(["man", "--markdown", "--out"]).arg(&folder).output().context("cannot start godwit")?;
    if !output.status.success() {
        bail!("godwit man ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    println!("wrote {}", folder.join("cli*.md").display());
    Ok(())
}

/// Runs the simulations, built with the profile of the tests, so that the tests have built them already. They are a
/// separate program, so that the other chores do not wait for their dependencies.
fn run_simulations(arguments: &[&str]) -> Result<()> {
    let run = ["run", "--quiet", "--profile", "ci", "--package", "godwit-sim", "--"];
    let status = cargo::command().args(run).args(arguments).status().context("cannot start cargo")?;
    if status.success() { Ok(()) } else { bail!("some simulations failed") }
}

/// Compares the built `godwit` with bwa. Does not build `godwit`: a run of several nights compares one build.
fn run_identity(arguments: &[&str]) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = ["run", "--quiet", "--profile", "ci", "--package", "godwit-identity", "--"];
    let status = Command::new(cargo).args(run).args(arguments).status().context("cannot start cargo")?;
    if status.success() { Ok(()) } else { bail!("records differ, or the comparison failed; see above") }
}

/// Runs tests that take minutes, of which CI runs a subset.
fn run_chaos_tests(arguments: &[&str]) -> Result<()> {
    let given: Vec<_> = ["GODWIT_CHAOS_RUNS", "GODWIT_CHAOS_SEED"].into_iter().zip(arguments.iter().copied()).collect();
    run_ignored_tests("_moments_change", &given, "a run failed or its output differs; the seed is printed above")
}

/// Runs tests that take hours, of which CI runs a subset on generated data.
fn run_search_matrix(arguments: &[&str]) -> Result<()> {
    let rounds = arguments.join(",");
    let given = (!rounds.is_empty()).then_some(("GODWIT_MATRIX_ROUNDS", rounds.as_str()));
    run_ignored_tests(
        "search::program_matrix",
        given.as_slice(),
        "the output of a search differs from that of one pass; see above",
    )
}

/// Runs tests that are ignored otherwise, with environment variables for them.
fn run_ignored_tests(filter: &str, variables: &[(&str, &str)], failure: &'static str) -> Result<()> {
    let words = ["test", "--quiet", "--profile", "ci", "--workspace", "--test", "e2e"];
    let mut command = cargo::command();
    command.args(words).args(["--", "--ignored", "--nocapture", filter]).envs(variables.iter().copied());
    let status = command.status().context("cannot start cargo")?;
    if status.success() { Ok(()) } else { bail!(failure) }
}

/// Installs the Go programs and runs the tests that need them: with these, the tests `conformance` of the data plane and
/// `serve::grpc` skip nothing.
fn run_conformance_tests(root: &Path) -> Result<()> {
    for script in ["tests/tools/arrow-go/fetch.sh", "tests/tools/grpc/fetch.sh"].map(|script| root.join(script)) {
        let status = Command::new(&script).status().with_context(|| format!("cannot start {}", script.display()))?;
        if !status.success() {
            bail!("{} ended with {status}", script.display());
        }
    }
    let run = |words: &[&str]| -> Result<()> {
        let status = cargo::command().args(words).current_dir(root).status().context("cannot start cargo")?;
        if status.success() { Ok(()) } else { bail!("{} failed; see above", words.join(" ")) }
    };
    run(&["test", "--quiet", "--profile", "ci", "--workspace", "--test", "conformance"])?;
    run(&["build", "--quiet", "--profile", "ci", "--workspace", "--bin", "godwit"])?;
    run(&["test", "--quiet", "--profile", "ci", "--workspace", "--test", "e2e", "serve::grpc"])
}

/// Runs a benchmark by its name, or lists the names; the Python package in `bench/` is itself a program.
fn run_benchmark(root: &Path, arguments: &[&str]) -> Result<()> {
    let status =
        Command::new("python3").arg(root.join("bench")).args(arguments).status().context("cannot start python3")?;
    if !status.success() {
        bail!("the benchmark ended with {status}");
    }
    Ok(())
}
