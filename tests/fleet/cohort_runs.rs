//! `godwit run --on`: samples of a sheet on hosts, with failing samples and failing hosts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::processes::{find_processes, send_signal};
use godwit_tests::slurm;
use godwit_tests::ssh_server::{self, SshServer};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::{wait_for, wait_until};
use godwit_tests::{needs, needs_slurm, scratch, skip};
use serde_json::Value;

use super::server_pool::path_text;
use crate::run::formats::python_with;
use crate::run::joint_calling::Cohort;
use crate::run::variant_calling::{assert_same_text, vcf_records};

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_INTERRUPTED: i32 = 130;
/// The host names in the configuration of the test server.
const HOSTS_FILE: &str = "near\nfar\n";

/// Writes a sample sheet with `samples` samples. Each sample has different reads: a few hundred pairs from one sample
/// of the cohort.
pub(super) fn write_sheet(directory: &Path, samples: usize) -> PathBuf {
    let cohort = Cohort::cached();
    let mut sheet = "sample,fastq_1,fastq_2\n".to_owned();
    for sample in 0..samples {
        for mate in [1, 2] {
            let all = cohort.directory.join(format!("{}-reads_L001_R{mate}.fastq", ["ada", "ben", "cleo"][sample % 3]));
            let all = fs::read_to_string(all).expect("the cohort has reads");
            let some: String = all.split_inclusive('\n').skip(sample * 400 * 4).take(400 * 4).collect();
            fs::write(directory.join(format!("s{sample}_{mate}.fq")), some).expect("it can be written");
        }
        sheet += &format!("s{sample},s{sample}_1.fq,s{sample}_2.fq\n");
    }
    let path = directory.join("sheet.csv");
    fs::write(&path, sheet).expect("it can be written");
    path
}

pub(super) fn run_samples(sheet: &Path, out: &Path) -> GodwitCommand {
    let run = godwit().arg("run").arg("--reference").arg(&Cohort::cached().reference).arg("--samples").arg(sheet);
    run.args(["--grid-size", "30K", "--metrics", "off", "--threads", "1", "--out"]).arg(out)
}

pub(super) fn report(out: &Path) -> Value {
    let text = fs::read_to_string(out.join("run.json")).expect("the report was written");
    serde_json::from_str(&text).expect("it is JSON")
}

pub(super) fn samples(report: &Value) -> &Vec<Value> {
    report["samples"].as_array().expect("a list")
}

/// Checks that the variants of each sample equal those of a run in one process.
pub(super) fn assert_same_variants(one: &Path, many: &Path, samples: usize) {
    for sample in 0..samples {
        let [expected, found] = [one, many].map(|out| vcf_records(&out.join(format!("s{sample}/s{sample}.vcf.gz"))));
        assert_same_text(&found, &expected);
    }
}

#[test]
fn one_sample_that_cannot_be_read_stops_no_other_and_the_rest_is_done_later() {
    needs!("bcftools", "bgzip");
    let directory = scratch::directory("fleet-cohort");
    let (sheet, out, alone) = (write_sheet(&directory, 6), directory.join("out"), directory.join("alone"));
    run_samples(&sheet, &alone).run_ok();
    let broken = directory.join("s2_2.fq");
    let whole = fs::read_to_string(&broken).expect("it was written");
    fs::write(&broken, format!("{whole}@cut\nACGT\n")).expect("it can be written");
    let on_nodes = || run_samples(&sheet, &out).args(["--on", "local", "--nodes", "3"]);
    let failed = on_nodes().run();
    failed.assert_rejected(&[EXIT_INPUT], &["1 of 6 samples failed", "s2", "s2_2.fq", "--resume"]);
    let told = report(&out);
    for (number, sample) in samples(&told).iter().enumerate() {
        let failed = sample["error"].as_str().is_some_and(|error| error.contains("s2_2.fq"));
        assert_eq!((failed, sample["error"].is_null()), (number == 2, number != 2), "{told}");
        // Damaged reads fail on every host, so this sample is tried twice.
        assert_eq!(sample["tries"].as_array().map_or(0, Vec::len), usize::from(number == 2), "{told}");
    }
    let nodes: std::collections::BTreeSet<&str> =
        samples(&told).iter().filter_map(|sample| sample["node"].as_str()).collect();
    assert_eq!(nodes.len(), 3, "{told}");
    let (per_day, wall) =
        (told["genomes_per_day"].as_f64().expect("told"), told["wall_seconds"].as_f64().expect("told"));
    assert!((per_day * wall / 86_400.0 - 5.0).abs() < 0.01, "{told}");
    fs::write(&broken, whole).expect("it can be written");
    on_nodes().arg("--resume").run_ok();
    let told = report(&out);
    for (number, sample) in samples(&told).iter().enumerate() {
        let steps = sample["steps"].as_array().expect("a list");
        assert_eq!(steps.len(), 2, "{told}");
        assert!(steps.iter().all(|step| step["done_before"] == (number != 2)), "{told}");
    }
    assert_same_variants(&alone, &out, 6);
    let page = fs::read_to_string(out.join("report.html")).expect("the page was written");
    assert!(page.contains("host 2") && page.contains("wall_seconds"), "{page}");
}

#[test]
fn a_sample_whose_process_is_killed_is_tried_again() {
    needs!("bcftools", "bgzip");
    let directory = scratch::directory("fleet-killed");
    let (sheet, out, alone) = (write_sheet(&directory, 3), directory.join("out"), directory.join("alone"));
    run_samples(&sheet, &alone).run_ok();
    let running = run_samples(&sheet, &out).args(["--on", "local", "--nodes", "2", "--json"]).spawn();
    let words = ["--one-sample", "s1", path_text(&out)];
    wait_until("the second sample is worked on", || !find_processes(&words, &[]).is_empty());
    for process in find_processes(&words, &[]) {
        send_signal(process, libc::SIGKILL);
    }
    let done = running.wait_with_output();
    assert!(done.status.success(), "{}", done.describe());
    let told = report(&out);
    let tries = samples(&told)[1]["tries"].as_array().expect("it failed once");
    assert!(tries.len() == 1 && tries[0]["cause"].as_str().is_some_and(|cause| cause.contains("9")), "{told}");
    assert!(done.stderr.contains("is retried"), "{}", done.stderr);
    assert_same_variants(&alone, &out, 3);
}

#[test]
fn a_run_that_is_interrupted_leaves_no_process_behind_and_goes_on_later() {
    needs!("bcftools", "bgzip");
    let directory = scratch::directory("fleet-interrupted");
    let (sheet, out) = (write_sheet(&directory, 4), directory.join("out"));
    let on_nodes = || run_samples(&sheet, &out).args(["--on", "local", "--nodes", "2"]);
    let running = on_nodes().spawn();
    let of_run = || find_processes(&["--one-sample", path_text(&out)], &[]);
    wait_until("samples are worked on", || !of_run().is_empty());
    send_signal(running.process_id(), libc::SIGTERM);
    assert_eq!(running.wait_with_output().status.code(), Some(EXIT_INTERRUPTED));
    wait_until("nothing of it runs", || of_run().is_empty());
    on_nodes().arg("--resume").run_ok();
    assert!(samples(&report(&out)).iter().all(|sample| sample["error"].is_null()));
}

#[test]
fn sheets_are_refused_before_anything_is_started_with_all_that_is_wrong() {
    needs!("bcftools");
    let directory = scratch::directory("fleet-sheet");
    let (path, out) = (directory.join("sheet.csv"), directory.join("out"));
    fs::write(directory.join("a.fq"), "").expect("it can be written");
    let text = "sample,fastq_1,reference\na,a.fq,\nb,none.fq,\nc,a.fq,\nd,also-none.fq,other.fa\n";
    fs::write(&path, text).expect("it can be written");
    let refused = run_samples(&path, &out).args(["--on", "local", "--nodes", "2"]).run();
    let wrong =
        ["line 3, column fastq_1", "none.fq does not exist", "line 4", "is also in line 2", "line 5, column reference"];
    refused.assert_rejected(&[EXIT_INPUT], &wrong);
    assert!(!out.exists());
    let sheet = write_sheet(&directory, 1);
    run_samples(&sheet, &out).args(["--on", "slurm", "--no-wait"]).run().assert_rejected(&[EXIT_USAGE], &["--no-wait"]);
    run_samples(&sheet, &out).args(["--per-node", "2"]).run().assert_rejected(&[EXIT_USAGE], &["--on"]);
}

/// Requests a path from the dashboard with this `Host` header, and returns the response.
fn fetch_dashboard(address: &str, path: &str, host: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("it listens");
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers with text");
    answer
}

#[test]
fn a_run_is_shown_as_a_page_while_it_is_under_way() {
    needs!("bcftools", "bgzip");
    let directory = scratch::directory("fleet-dashboard");
    let (sheet, out, said) = (write_sheet(&directory, 3), directory.join("out"), directory.join("said"));
    let run = run_samples(&sheet, &out).args(["--on", "local", "--nodes", "2", "--dashboard", "0"]);
    let running = run.stderr(fs::File::create(&said).expect("it can be made")).spawn();
    let address = wait_for("the address", || {
        let said = fs::read_to_string(&said).ok()?;
        Some(said.split_once("dashboard of this run is at http://")?.1.split_once("/\n")?.0.to_owned())
    });
    let shown = fetch_dashboard(&address, "/", &address);
    assert!(shown.starts_with("HTTP/1.1 200") && shown.contains("new EventSource(\"events\")"), "{shown}");
    assert!(!shown.contains("http://") && !shown.contains("https://"), "it needs nothing from elsewhere: {shown}");
    assert!(fetch_dashboard(&address, "/", "evil.example").starts_with("HTTP/1.1 403"));
    assert!(fetch_dashboard(&address, "/none", &address).starts_with("HTTP/1.1 404"));
    // Read the events of the dashboard until the run has ended.
    let events = fetch_dashboard(&address, "/events", &address);
    assert!(running.wait_with_output().status.success(), "{}", fs::read_to_string(&said).unwrap_or_default());
    let states: Vec<Value> = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|state| serde_json::from_str(state).expect("it is JSON"))
        .collect();
    let last = states.last().expect("the state is sent");
    assert_eq!((&last["over"], &last["done"], &last["failed"]), (&Value::Bool(true), &3.into(), &0.into()), "{last}");
    // The dashboard must show the same time for each step as the report.
    assert_eq!(last["steps"], serde_json::json!(["align", "call"]), "{last}");
    // Each event has only the samples that changed.
    let changes = states.iter().flat_map(|state| state["samples"].as_array().expect("samples"));
    let shown: BTreeMap<&str, &Value> =
        changes.map(|sample| (sample["sample"].as_str().expect("a name"), sample)).collect();
    let report = report(&out);
    assert_eq!(shown.len(), samples(&report).len());
    for told in samples(&report) {
        let shown = shown[told["sample"].as_str().expect("a name")];
        for step in told["steps"].as_array().expect("steps") {
            let name = step["step"].as_str().expect("a name");
            assert_eq!(shown["seconds"][name], step["seconds"], "{shown} {told}");
        }
    }
}

#[test]
fn the_page_of_a_run_shows_it_in_a_browser_to_its_end() {
    needs!("bcftools", "bgzip", "python3");
    let Some(program) = ["chromium", "chromium-browser"].into_iter().find_map(Tool::find) else {
        skip!("browser", "Chromium is not installed");
    };
    let directory = scratch::directory("fleet-browser");
    let (sheet, out, said) = (write_sheet(&directory, 4), directory.join("out"), directory.join("said"));
    let broken = directory.join("s2_2.fq");
    let whole = fs::read_to_string(&broken).expect("it was written");
    fs::write(&broken, format!("{whole}@cut\nACGT\n")).expect("it can be written");
    // The reads of the first sample come through a pipe, which is filled only after the browser has connected.
    let (first, pipe) = (directory.join("s0_1.fq"), directory.join("s0_1.pipe"));
    fs::rename(&first, directory.join("kept")).expect("it was written");
    run_checked(std::process::Command::new("mkfifo").arg(&pipe));
    fs::rename(&pipe, &first).expect("it was made");
    let run = run_samples(&sheet, &out).args(["--on", "local", "--nodes", "2", "--dashboard", "0"]);
    let running = run.stderr(fs::File::create(&said).expect("it can be made")).spawn();
    let address = wait_for("the address", || {
        let said = fs::read_to_string(&said).ok()?;
        Some(said.split_once("dashboard of this run is at http://")?.1.split_once("/\n")?.0.to_owned())
    });
    let mut browser = python_with("browser").expect("tools/python-packages.sh made it").command();
    browser.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/browser/page.py"));
    browser.arg(program.command().get_program()).args([&format!("http://{address}/"), path_text(&directory), "run"]);
    let mut looking = browser.stdout(std::process::Stdio::piped()).spawn().expect("it can be started");
    let mut told = std::io::BufReader::new(looking.stdout.take().expect("it is piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut told, &mut line).expect("it says what it sees");
    assert_eq!(line, "under way\n");
    fs::write(&first, fs::read(directory.join("kept")).expect("it was kept")).expect("a process reads it");
    let mut seen = String::new();
    told.read_to_string(&mut seen).expect("it is text");
    assert!(looking.wait().expect("it can be waited for").success(), "{seen}");
    let (done, told) = (running.wait_with_output(), fs::read_to_string(&said).expect("it was made"));
    assert!(done.status.code() == Some(EXIT_INPUT) && told.contains("1 of 4 samples failed"), "{told}");
    let seen: Vec<&str> = seen.lines().collect();
    assert_eq!(seen[..5], ["3 1 0 0", "s0 done", "s1 done", "s2 failed", "s3 done"], "{seen:?}");
    assert_eq!(seen[5..7], ["Sample|State|Host|align, h|call, h", "All steps done True"], "{seen:?}");
    assert!(seen[7].starts_with("True 1 s2 failed:") && seen[8..] == ["0 pixels too wide"], "{seen:?}");
}

#[test]
fn samples_are_worked_on_where_ssh_reaches() {
    needs!("bcftools", "bgzip");
    if !ssh_server::is_installed() {
        skip!("missing-tool", "openssh-server is not installed");
    }
    let server = SshServer::start();
    let directory = scratch::directory("fleet-ssh");
    let (sheet, out, hosts) = (write_sheet(&directory, 2), directory.join("out"), directory.join("hosts"));
    fs::write(&hosts, HOSTS_FILE).expect("it can be written");
    let options = [format!("-F{}", server.client_configuration().display())];
    let run = run_samples(&sheet, &out).args([
        "--on",
        "ssh",
        "--nodes",
        "2",
        "--hosts",
        path_text(&hosts),
        "--ssh-option",
        &options[0],
    ]);
    run.run_ok();
    let told = report(&out);
    assert!(samples(&told).iter().all(|sample| sample["error"].is_null()), "{told}");
    assert_eq!(told["nodes"], 2, "{told}");
}

#[test]
fn samples_are_jobs_of_slurm() {
    needs!("bcftools", "bgzip");
    needs_slurm!();
    let cluster = slurm::shared_cluster();
    let directory = scratch::directory("fleet-slurm");
    let (sheet, out) = (write_sheet(&directory, 3), directory.join("out"));
    let run = run_samples(&sheet, &out).args(["--on", "slurm", "--nodes", "2", "--slurm-memory", "300M"]);
    run.env("SLURM_CONF", cluster.slurm_conf()).run_ok();
    let told = report(&out);
    assert!(samples(&told).len() == 3 && samples(&told).iter().all(|sample| sample["error"].is_null()), "{told}");
}
