//! `godwit call --on`: any number of workers write the same bytes as one process, also if a worker is lost.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, GodwitOutput, GodwitProcess, godwit};
use godwit_tests::processes::{send_signal, wait_for_children, wait_until_exited};
use godwit_tests::slurm::{self, SlurmCluster};
use godwit_tests::ssh_server::{self, SshServer};
use godwit_tests::tool::run_checked;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, needs_gatk, needs_host_namespaces, needs_slurm, scratch, skip};
use serde_json::Value;

use super::call_failures::{OUTPUT_FILES, wrapped_bcftools_path};
use super::cluster::wait_for_event;
use super::variant_calling::{AlignedSample, vcf_records};

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_ENGINE: i32 = 5;
const EXIT_REMOTE: i32 = 6;
const EXIT_INTERRUPTED: i32 = 130;

/// Returns a call with one caller in each process, so that the workers share the regions.
fn call(out: &Path) -> GodwitCommand {
    AlignedSample::cached().call(&out.join("a.vcf.gz")).args(["--threads", "1", "--json"])
}

fn on_workers(command: GodwitCommand, nodes: usize) -> GodwitCommand {
    command.args(["--on", "local", "--nodes", &nodes.to_string()])
}

fn report(out: &Path) -> Value {
    let text = fs::read_to_string(out.join("a.vcf.gz.run.json")).expect("it is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Checks that only the output files of a run exist, and that files without times equal those of another run.
#[track_caller]
fn assert_same(one: &Path, many: &Path, run: &GodwitOutput) {
    assert!(run.status.success(), "{}", run.describe());
    assert_eq!(scratch::entry_names(many), OUTPUT_FILES, "{}", run.describe());
    for name in OUTPUT_FILES.iter().filter(|name| !name.ends_with("run.json")) {
        let [expected, found] = [one, many].map(|out| fs::read(out.join(name)).expect("it is there"));
        assert!(found == expected, "{name} differs: {} and {}\n{}", one.display(), many.display(), run.describe());
    }
}

/// Runs a call in one process and returns its output.
fn by_one_process(command: impl Fn(&Path) -> GodwitCommand) -> PathBuf {
    let out = scratch::directory("call-one");
    command(&out).run_ok();
    assert!(!vcf_records(&out.join("a.vcf.gz")).is_empty(), "nothing was called, so nothing is shown");
    out
}

/// Runs a call in one process and with each of these numbers of workers, and compares the outputs.
fn assert_workers_write_the_same(counts: &[usize], command: impl Fn(&Path) -> GodwitCommand) {
    let one = by_one_process(&command);
    for nodes in counts {
        let many = scratch::directory("call-many");
        let run = on_workers(command(&many), *nodes).run();
        assert_same(&one, &many, &run);
        let report = report(&many);
        let told = report["nodes"].as_array().expect("a list");
        let names: BTreeSet<&str> = told.iter().filter_map(|node| node["name"].as_str()).collect();
        assert_eq!(names.len(), *nodes, "{told:?}");
        let regions = report["regions"].as_array().expect("a list");
        let called: u64 = told.iter().filter_map(|node| node["regions"].as_u64()).sum();
        assert_eq!(called as usize, regions.len(), "{told:?}");
        assert!(regions.iter().all(|region| names.contains(region["node"].as_str().expect("a name"))));
        assert_eq!(report["lost_nodes"], 0, "{report}");
    }
}

#[test]
fn bcftools_on_any_number_of_workers_writes_the_bytes_of_one_process() {
    needs!("bcftools", "bgzip");
    assert_workers_write_the_same(&[1, 3], call);
}

#[test]
fn freebayes_on_any_number_of_workers_writes_the_bytes_of_one_process() {
    needs!("freebayes", "bgzip");
    assert_workers_write_the_same(&[1, 3], |out| call(out).args(["--caller", "freebayes"]));
}

#[test]
fn haplotype_caller_on_two_workers_writes_the_bytes_of_one_process() {
    needs!("bgzip");
    needs_gatk!();
    assert_workers_write_the_same(&[2], |out| {
        // Two regions, because each start of Java takes seconds.
        let call = AlignedSample::cached().call_with_grid("30K", &out.join("a.vcf.gz")).with_gatk();
        call.args([
            "--threads",
            "1",
            "--caller",
            "gatk",
            "--caller-memory",
            "1G",
            "--memory",
            "1G",
            "--regions",
            "chr1",
        ])
    });
}

#[test]
fn options_that_change_records_change_them_on_workers_too() {
    needs!("bcftools", "bgzip");
    let directory = scratch::directory("call-options");
    let bed = directory.join("a.bed");
    fs::write(&bed, "chr1\t100\t9000\nchr1\t30000\t41000\nchrX\t10\t19000\n").expect("scratch can be written to");
    let table = directory.join("ploidy.txt");
    fs::write(&table, "chrX 1 6000 M 1\n* * * M 2\n* * * F 2\n").expect("scratch can be written to");
    assert_workers_write_the_same(&[3], |out| {
        let cram = AlignedSample::cached().output.join("s.cram");
        let call = AlignedSample::cached().call_file(&cram, &out.join("a.vcf.gz")).args([
            "--threads",
            "2",
            "--caller-threads",
            "2",
        ]);
        let call = call.args(["--caller-args", "-q 20 -a FORMAT/AD | -m", "--padding", "700", "--sex", "M"]);
        call.arg("--regions").arg(&bed).arg("--ploidy").arg(&table)
    });
}

/// A script that runs bcftools. At each start it creates a file in its directory.
struct ScriptedCaller {
    path: PathBuf,
}

impl ScriptedCaller {
    /// Writes a script that runs `before` first, in its own directory, where `$region` is the first interval of the
    /// region (as `chr1-0-8000`) and `$starts` is the number of starts on it, including this one.
    fn new(before: &str) -> Self {
        let path = scratch::directory("call-script").join("call.sh");
        let text = format!(
            "set -euo pipefail\nhere=$(dirname \"$0\")\nregion=$(head -1 \"$3\" | tr '\\t' '-')\n\
             mktemp \"$here/$region.XXXXXX.seen\" >/dev/null\nstarts=$(ls \"$here\"/\"$region\".*.seen | wc -l)\n\
             (cd \"$here\"; {before}\n)\n\
             bcftools mpileup -Ou -f \"$1\" -R \"$3\" \"$2\" | bcftools call -mv -o \"$4\"\n"
        );
        fs::write(&path, text).expect("scratch can be written to");
        Self { path }
    }

    /// Writes a script in which three callers continue, and all others wait until the test creates the gate file.
    fn with_gate() -> Self {
        let taken: String = (0..3).map(|number| format!("mkdir taken.{number} 2>/dev/null || ")).collect();
        Self::new(&format!("{taken}until [ -e go ]; do sleep 0.02; done"))
    }

    fn open_gate(&self) {
        fs::write(self.path.with_file_name("go"), "").expect("scratch can be written to");
    }

    fn call(&self, out: &Path) -> GodwitCommand {
        let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", self.path.display());
        call(out).args(["--caller", &template])
    }

    /// Counts the starts of the caller on regions whose name begins with `region`.
    fn start_count(&self, region: &str) -> usize {
        let names = scratch::entry_names(self.path.parent().expect("it lies in a directory"));
        names.iter().filter(|name| name.starts_with(region) && name.ends_with(".seen")).count()
    }

    /// Waits until callers were started `starts` times.
    fn wait_for_starts(&self, starts: usize) {
        wait_until(&format!("{starts} callers to be started"), || self.start_count("") >= starts);
    }

    /// Removes all output files of earlier runs.
    fn remove_outputs(&self) {
        let here = self.path.parent().expect("it lies in a directory");
        for name in scratch::entry_names(here).iter().filter(|name| *name != "call.sh") {
            let path = here.join(name);
            let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
            removed.expect("it can be removed");
        }
    }

    /// Returns the output of a run of the script in one process.
    fn by_one_process(&self) -> PathBuf {
        self.open_gate();
        let out = by_one_process(|out| self.call(out));
        self.remove_outputs();
        out
    }
}

fn start_cluster_run(script: &ScriptedCaller, out: &Path, nodes: usize, words: &[&str]) -> GodwitProcess {
    on_workers(script.call(out), nodes).args(words).spawn()
}

#[test]
fn losing_a_worker_loses_only_what_it_was_calling() {
    needs!("bcftools", "bgzip", "bash");
    let script = ScriptedCaller::with_gate();
    let one = script.by_one_process();
    for how in [libc::SIGKILL, libc::SIGSTOP] {
        let out = scratch::directory("call-lost");
        let run = start_cluster_run(&script, &out, 3, &[]);
        let nodes = wait_for_children(run.process_id(), "node", 3);
        script.wait_for_starts(3 + 3);
        send_signal(nodes[1], how);
        script.open_gate();
        let run = run.wait_with_output();
        assert_same(&one, &out, &run);
        let report = report(&out);
        // A stopped worker (SIGSTOP) is not always lost: other workers may finish its region before the timeout.
        assert!(report["lost_nodes"] == 1 || how == libc::SIGSTOP, "{}", run.describe());
        let regions = report["regions"].as_array().expect("a list");
        let again = regions.iter().filter(|region| region["attempts"].as_u64() > Some(1)).count();
        // On a busy machine, a region that takes a second may also be assigned to an idle worker, so it may be called
        // twice.
        let slow = regions.iter().filter(|region| region["seconds"].as_f64() > Some(0.5)).count();
        assert!((1..=2 + slow).contains(&again), "a node calls one region at a time: {regions:?}\n{}", run.describe());
        wait_until_exited(&[nodes[1]]);
        script.remove_outputs();
    }
}

#[test]
fn a_killed_head_is_resumed_with_other_numbers_of_workers_and_with_none() {
    needs!("bcftools", "bgzip", "bash");
    let script = ScriptedCaller::with_gate();
    let one = script.by_one_process();
    let regions = report(&one)["regions"].as_array().expect("a list").len();
    for (how, next) in [(libc::SIGKILL, 3), (libc::SIGKILL, 0), (libc::SIGINT, 1)] {
        let out = scratch::directory("call-headless");
        let command = |nodes: usize| match nodes {
            0 => script.call(&out),
            nodes => on_workers(script.call(&out), nodes),
        };
        let run = command(2).spawn();
        let nodes = wait_for_children(run.process_id(), "node", 2);
        script.wait_for_starts(3 + 2);
        send_signal(run.process_id(), how);
        let stopped = run.wait_with_output();
        if how == libc::SIGINT {
            stopped.assert_rejected(&[EXIT_INTERRUPTED], &["--resume"]);
        }
        assert!(!out.join("a.vcf.gz").exists());
        wait_until_exited(&nodes);
        let called = |run: &GodwitOutput| run.stderr.matches("{\"event\":\"called\"").count();
        assert_eq!(called(&stopped), 3, "{}", stopped.describe());
        script.open_gate();
        let resumed = command(next).arg("--resume").run();
        assert_same(&one, &out, &resumed);
        assert_eq!(called(&resumed), regions - 3, "{}", resumed.describe());
        assert!(resumed.stderr.contains("{\"event\":\"call_resumed\",\"regions\":3}"), "{}", resumed.describe());
        assert_eq!(report(&out)["resumed_regions"], 3);
        let complete = command(2).arg("--resume").run_ok();
        assert!(complete.stderr.contains("already complete"), "{}", complete.describe());
        script.remove_outputs();
    }
}

#[test]
fn workers_resume_the_checkpoint_of_one_process_to_the_same_bytes() {
    needs!("bcftools", "bgzip", "bash");
    let script = ScriptedCaller::with_gate();
    let one = script.by_one_process();
    let out = scratch::directory("call-continued");
    let run = script.call(&out).spawn();
    script.wait_for_starts(3 + 1);
    send_signal(run.process_id(), libc::SIGKILL);
    run.wait_with_output();
    script.open_gate();
    let resumed = start_cluster_run(&script, &out, 2, &["--resume"]).wait_with_output();
    assert_same(&one, &out, &resumed);
    assert_eq!(report(&out)["resumed_regions"], 3);
}

/// Returns the name of the worker after the given words in the output of a run.
fn worker_name_after(text: &str, words: &str) -> String {
    let behind = text.split_once(words).unwrap_or_else(|| panic!("{words:?} is not in {text}")).1;
    behind.split([':', ' ']).filter(|word| word.parse::<u32>().is_ok()).take(1).collect()
}

#[test]
fn a_caller_that_fails_on_one_region_is_retried_on_another_worker_and_named() {
    needs!("bcftools", "bgzip", "bash");
    // The caller fails in one region, after both workers have started.
    let script = ScriptedCaller::new(
        "touch node.$PPID; if [ $region = chrX-13000-20000 ]; then until [ $(ls node.* | wc -l) -gt 1 ]; do sleep 0.02; done; \
         echo 'the sky fell' >&2; exit 7; fi",
    );
    let out = scratch::directory("call-failing");
    let failed = start_cluster_run(&script, &out, 2, &[]).wait_with_output();
    let said = ["chrX:14001-20000", "2 times", "call.sh", "exited with status 7", "the sky fell", "last time on"];
    failed.assert_rejected(&[EXIT_ENGINE], &said);
    assert!(failed.stderr.contains("--resume"), "{}", failed.describe());
    let nodes = ["failed on ", "the last time on "].map(|words| worker_name_after(&failed.stderr, words));
    assert!(!nodes[0].is_empty() && nodes[0] != nodes[1], "both on {}\n{}", nodes[0], failed.describe());
    assert!(scratch::entry_names(&out).iter().all(|name| name.starts_with('.')), "{:?}", scratch::entry_names(&out));
    assert_eq!(script.start_count("chrX-13000"), 2);
    // Repair the caller. The resumed run calls only the remaining regions.
    let text = fs::read_to_string(&script.path).expect("it was written").replace("exit 7", "true");
    fs::write(&script.path, text).expect("scratch can be written to");
    start_cluster_run(&script, &out, 2, &["--resume"]).wait_with_output();
    assert!(vcf_records(&out.join("a.vcf.gz")) == AlignedSample::cached().bcftools_records("", "-mv"));
}

#[test]
fn one_worker_retries_what_failed_on_it_and_one_failure_of_a_caller_is_tolerated() {
    needs!("bcftools", "bgzip", "bash");
    let script = ScriptedCaller::new("[ $region != chrX-13000-20000 ] || [ $starts -ne 1 ] || kill -9 $$");
    let out = scratch::directory("call-forgiven");
    let run = start_cluster_run(&script, &out, 1, &[]).wait_with_output();
    assert!(run.status.success() && run.stderr.contains("is retried"), "{}", run.describe());
    assert!(vcf_records(&out.join("a.vcf.gz")) == AlignedSample::cached().bcftools_records("", "-mv"));
}

#[test]
fn a_slow_region_is_also_assigned_to_an_idle_worker() {
    needs!("bcftools", "bgzip", "bash");
    let script = ScriptedCaller::new("[ $region != chr1-0-8000 ] || [ $starts -ne 1 ] || sleep 1000");
    let out = scratch::directory("call-straggler");
    // The head must stop the first caller, which would otherwise run longer than the test waits.
    let run = start_cluster_run(&script, &out, 2, &[]);
    wait_until_exited(&[run.process_id()]);
    let run = run.wait_with_output();
    assert!(run.status.success(), "{}", run.describe());
    assert!(vcf_records(&out.join("a.vcf.gz")) == AlignedSample::cached().bcftools_records("", "-mv"));
    assert_eq!(script.start_count("chr1-0-8000"), 2);
    assert_eq!(report(&out)["regions"][0]["attempts"], 2);
    assert_eq!(report(&out)["lost_nodes"], 0);
}

#[test]
fn without_any_worker_the_run_fails_and_its_checkpoint_is_kept() {
    needs!("bcftools", "bgzip", "bash");
    let script = ScriptedCaller::with_gate();
    let one = script.by_one_process();
    let out = scratch::directory("call-alone");
    let run = start_cluster_run(&script, &out, 2, &[]);
    let nodes = wait_for_children(run.process_id(), "node", 2);
    script.wait_for_starts(3 + 2);
    nodes.into_iter().for_each(|node| send_signal(node, libc::SIGKILL));
    let failed = run.wait_with_output();
    failed.assert_rejected(&[EXIT_REMOTE], &["no worker is left"]);
    assert!(failed.stderr.contains("--resume"), "{}", failed.describe());
    assert!(!out.join("a.vcf.gz").exists());
    script.open_gate();
    let resumed = start_cluster_run(&script, &out, 2, &["--resume"]).wait_with_output();
    assert_same(&one, &out, &resumed);
}

/// Returns a PATH with a `bcftools` that executes `text` if a worker requests its version.
fn bcftools_on_workers(text: &str) -> String {
    let is_node = "tr '\\0' ' ' </proc/$PPID/cmdline | grep -q ' node --meeting '";
    wrapped_bcftools_path("--version", &format!("if {is_node}; then\n{text}\nfi"))
}

#[test]
fn workers_with_another_version_of_the_caller_are_rejected_by_name() {
    needs!("bcftools", "bgzip", "bash");
    let out = scratch::directory("call-version");
    let path = bcftools_on_workers("echo 'bcftools 1.99'; exit 0");
    let run = on_workers(call(&out), 2).env("PATH", &path).run();
    run.assert_rejected(
        &[EXIT_REMOTE],
        &["no worker is left", "process ", "version of the caller", "bcftools 1.99", "on the head"],
    );
    assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
    // The head also rejects a worker whose caller prints no version.
    let run = on_workers(call(&out), 2).env("PATH", bcftools_on_workers("exit 1")).run();
    run.assert_rejected(&[EXIT_REMOTE], &["no worker is left", "process ", "bcftools 1.13 or later"]);
    assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
}

#[test]
fn a_run_continues_without_a_rejected_worker() {
    needs!("bcftools", "bgzip", "bash");
    let one = by_one_process(call);
    let out = scratch::directory("call-stray");
    let go = scratch::directory("call-go").join("go");
    let waiting = wrapped_bcftools_path("mpileup", &format!("until [ -e {} ]; do sleep 0.02; done", go.display()));
    let run = on_workers(call(&out), 1).env("PATH", waiting).spawn();
    let nodes = wait_for_children(run.process_id(), "node", 1);
    wait_for_children(nodes[0], "mpileup", 1);
    let meeting = out.join(".a.vcf.gz.godwit-run/nodes");
    let stray = godwit().args(["node", "--meeting"]).arg(&meeting);
    let stray = stray.env("PATH", bcftools_on_workers("echo 'bcftools 1.99'; exit 0")).run();
    stray.assert_rejected(&[EXIT_REMOTE], &["the head rejected this worker", "bcftools 1.99"]);
    fs::write(go, "").expect("scratch can be written to");
    let run = run.wait_with_output();
    assert_same(&one, &out, &run);
    for words in [": the version of the caller", "bcftools 1.99", "install the same version on all hosts"] {
        assert!(run.stderr.contains(words), "{words}\n{}", run.describe());
    }
}

#[test]
fn workers_that_see_other_reads_are_rejected_by_name() {
    needs!("bcftools", "bash");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("call-other");
    let bam = directory.join("s.bam");
    fs::copy(aligned.bam(), &bam).expect("it can be copied");
    for (changed, what) in [("s.bam", "the reads"), ("s.bam.bai", "the index of the reads")] {
        fs::copy(aligned.bam(), &bam).expect("it can be copied");
        fs::copy(aligned.output.join("s.bam.bai"), directory.join("s.bam.bai")).expect("it can be copied");
        let text = match changed {
            // Add a second end-of-file block, so that the bytes of the BAM differ but not its records.
            "s.bam" => format!("tail -c 28 {0} >{0}.end; cat {0}.end >>{0}", bam.display()),
            // Remove the count of unplaced reads from the index, which is optional.
            _ => format!("truncate -s -8 {}.bai", bam.display()),
        };
        let out = scratch::directory("call-other-out");
        let run = aligned.call_file(&bam, &out.join("a.vcf.gz")).args(["--on", "local", "--nodes", "1"]);
        let run = run.env("PATH", bcftools_on_workers(&text)).run();
        run.assert_rejected(&[EXIT_REMOTE], &["no worker is left", "process ", &format!("{what}: "), "on the head"]);
        assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
    }
}

#[test]
fn scratch_space_of_workers_is_left_empty() {
    needs!("bcftools", "bgzip");
    let (out, temp) = (scratch::directory("call-temp"), scratch::directory("temp"));
    on_workers(call(&out), 2).arg("--temp").arg(&temp).run_ok();
    assert_eq!(scratch::entry_names(&temp), [] as [&str; 0]);
    assert_eq!(scratch::entry_names(&out), OUTPUT_FILES);
}

#[test]
fn callers_end_with_their_worker() {
    needs!("bash");
    let out = scratch::directory("call-orphans");
    let template = "bash -c 'exec sleep 4321' {bam} {region}";
    let run = on_workers(call(&out), 1).args(["--caller", template]).spawn();
    let nodes = wait_for_children(run.process_id(), "node", 1);
    let callers = wait_for_children(nodes[0], "4321", 1);
    send_signal(nodes[0], libc::SIGKILL);
    run.wait_with_output().assert_rejected(&[EXIT_REMOTE], &["no worker is left"]);
    wait_until_exited(&callers);
}

#[test]
fn hosts_by_ssh_call_the_bytes_of_one_process() {
    needs!("bcftools", "bgzip");
    if !ssh_server::is_installed() {
        skip!("missing-tool", "openssh-server is not installed");
    }
    let (server, one, out) = (SshServer::start(), by_one_process(call), scratch::directory("call-ssh"));
    let hosts = server.directory().join("hosts");
    fs::write(&hosts, "near\nfar\n").expect("it can be written");
    let ssh = format!("-F{}", server.client_configuration().display());
    let run = call(&out).args(["--on", "ssh", "--nodes", "2", "--interface", "127.0.0.1", "--ssh-option", &ssh]);
    assert_same(&one, &out, &run.arg("--hosts").arg(&hosts).run());
    assert_eq!(report(&out)["nodes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_job_of_slurm_is_shown_and_nothing_else_is() {
    needs!("bcftools");
    let out = scratch::directory("call-dry");
    let slurm = ["--on", "slurm", "--nodes", "4", "--slurm-partition", "long", "--dry-run"];
    let shown = call(&out).args(slurm).run_ok().stdout;
    for words in ["#SBATCH --nodes=4", "--partition=long", "godwit-a.vcf.gz", "--on allocation", "a.vcf.gz.slurm"] {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    assert!(!shown.contains("--dry-run"), "{shown}");
    call(&out).args(["--on", "local", "--dry-run"]).run().assert_rejected(&[EXIT_USAGE], &["--dry-run", "--on slurm"]);
    call(&out).arg("--dry-run").run().assert_rejected(&[EXIT_USAGE], &["--on"]);
    call(&out).args(["--nodes", "2"]).run().assert_rejected(&[EXIT_USAGE], &["--on"]);
    assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
}

fn call_as_slurm_job(call: GodwitCommand, cluster: &SlurmCluster, nodes: usize) -> GodwitCommand {
    let slurm = ["--on", "slurm", "--nodes", &nodes.to_string(), "--slurm-memory", "300M"];
    call.args(slurm).env("SLURM_CONF", cluster.slurm_conf())
}

/// Checks the same as [`assert_same`] for a SLURM job, whose script and logs remain.
#[track_caller]
fn assert_same_from_slurm_job(one: &Path, out: &Path, run: &GodwitOutput) {
    let logs = out.join("a.vcf.gz.slurm/logs");
    let said: Vec<String> =
        (0..8).filter_map(|node| fs::read_to_string(logs.join(format!("node-{node}.err"))).ok()).collect();
    assert!(run.status.success(), "{}\n{said:#?}", run.describe());
    assert!(out.join("a.vcf.gz.slurm/script.sh").is_file());
    fs::remove_dir_all(out.join("a.vcf.gz.slurm")).expect("it can be removed");
    assert_same(one, out, run);
}

#[test]
fn a_slurm_job_of_four_workers_calls_the_bytes_of_one_process() {
    needs!("bcftools", "bgzip");
    needs_slurm!();
    let one = by_one_process(call);
    let out = scratch::directory("call-slurm");
    let run = call_as_slurm_job(call(&out), slurm::shared_cluster(), 4).run();
    assert_same_from_slurm_job(&one, &out, &run);
    assert_eq!(report(&out)["nodes"].as_array().map(Vec::len), Some(4), "{}", report(&out));
}

#[test]
fn a_job_that_calls_goes_on_after_its_time_limit() {
    needs!("bcftools", "bgzip", "bash");
    needs_slurm!();
    let (cluster, script) = (slurm::shared_cluster(), ScriptedCaller::with_gate());
    let one = script.by_one_process();
    let out = scratch::directory("call-slurm-limit");
    let run = call_as_slurm_job(script.call(&out), cluster, 2).spawn();
    script.wait_for_starts(3 + 2);
    let job = out.join("a.vcf.gz.slurm");
    let handle = fs::read_to_string(job.join("handle.json")).expect("it was submitted");
    let handle: Value = serde_json::from_str(&handle).expect("it is JSON");
    let id = handle["id"].as_str().expect("a handle has one");
    // Send the signal that SLURM sends with `--signal=B:TERM@SECONDS` before the time limit.
    run_checked(cluster.command("scancel").args(["--batch", "--signal=TERM", id]));
    let log = || fs::read_to_string(job.join("job.log")).unwrap_or_default();
    wait_until("the job to be queued again", || log().contains("queueing again"));
    script.open_gate();
    let run = run.wait_with_output();
    assert!(job.join("attempts/1").is_dir(), "{}", run.describe());
    let resumed = report(&out)["resumed_regions"].as_u64();
    assert_same_from_slurm_job(&one, &out, &run);
    assert_eq!(resumed, Some(3));
}

#[test]
fn two_calls_do_not_share_an_output() {
    needs!("bcftools", "bgzip", "bash");
    let script = ScriptedCaller::with_gate();
    let out = scratch::directory("call-shared");
    let first = start_cluster_run(&script, &out, 2, &[]);
    script.wait_for_starts(3 + 2);
    for nodes in [1, 2] {
        on_workers(script.call(&out), nodes).run().assert_rejected(&[EXIT_MACHINE], &["another godwit"]);
    }
    script.open_gate();
    assert!(first.wait_with_output().status.success());
}

#[test]
fn power_loss_of_the_head_of_a_slurm_job_that_calls_starts_it_again() {
    needs!("bcftools", "bgzip", "bash");
    needs_slurm!();
    let cluster = SlurmCluster::start(2);
    needs_host_namespaces!(cluster);
    let script = ScriptedCaller::with_gate();
    let one = script.by_one_process();
    let out = scratch::directory("call-slurm-head");
    let run = call_as_slurm_job(script.call(&out), &cluster, 2).spawn();
    script.wait_for_starts(3 + 2);
    wait_for_event(&out.join("a.vcf.gz.slurm/logs/node-0.err"), "called", 1, &run);
    cluster.inject_fault("kill", "gw1");
    cluster.inject_fault("start", "gw1");
    script.open_gate();
    let run = run.wait_with_output();
    assert!(out.join("a.vcf.gz.slurm/attempts/1").is_dir(), "{}", run.describe());
    let resumed = report(&out)["resumed_regions"].as_u64();
    assert_same_from_slurm_job(&one, &out, &run);
    assert!(resumed > Some(0), "nothing was gone on with");
}
