//! `godwit call --on`: the bytes of one process from any number of nodes, whoever is lost on the way.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{Finished, Godwit, Running, godwit};
use godwit_tests::patience::wait_until;
use godwit_tests::processes::{signal, wait_for_children, wait_until_gone};
use godwit_tests::slurm::{self, Cluster};
use godwit_tests::ssh_server::{self, SshServer};
use godwit_tests::tool::succeed;
use godwit_tests::{gatk, needs, needs_gatk, needs_slurm, scratch, skip};
use serde_json::Value;

use super::call::{Aligned, records};
use super::call_failures::{BESIDE, spoiled_bcftools};
use super::nodes::wait_until_said;

const USAGE: i32 = 2;
const MACHINE: i32 = 4;
const ENGINE: i32 = 5;
const REMOTE: i32 = 6;
const INTERRUPTED: i32 = 130;

/// One worker in each process, so that it is the nodes who share the work.
fn call(out: &Path) -> Godwit {
    Aligned::get().call(&out.join("a.vcf.gz")).args(["--threads", "1", "--json"])
}

fn on_nodes(command: Godwit, nodes: usize) -> Godwit {
    command.args(["--on", "local", "--nodes", &nodes.to_string()])
}

fn report(out: &Path) -> Value {
    let text = fs::read_to_string(out.join("a.vcf.gz.run.json")).expect("it is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Everything that a run left is there, and nothing else; what tells no times is that of another one.
#[track_caller]
fn assert_same(one: &Path, many: &Path, run: &Finished) {
    assert!(run.status.success(), "{}", run.report());
    assert_eq!(scratch::names(many), BESIDE, "{}", run.report());
    for name in BESIDE.iter().filter(|name| !name.ends_with("run.json")) {
        let [expected, found] = [one, many].map(|out| fs::read(out.join(name)).expect("it is there"));
        assert!(found == expected, "{name} differs: {} and {}\n{}", one.display(), many.display(), run.report());
    }
}

/// What one process makes of a command.
fn by_one_process(command: impl Fn(&Path) -> Godwit) -> PathBuf {
    let out = scratch::directory("call-one");
    command(&out).succeeds();
    assert!(!records(&out.join("a.vcf.gz")).is_empty(), "nothing was called, so nothing is shown");
    out
}

/// Runs a command by one process and over these numbers of nodes, and compares.
fn assert_nodes_do_the_same(counts: &[usize], command: impl Fn(&Path) -> Godwit) {
    let one = by_one_process(&command);
    for nodes in counts {
        let many = scratch::directory("call-many");
        let run = on_nodes(command(&many), *nodes).run();
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
fn bcftools_on_any_number_of_nodes_writes_the_bytes_of_one_process() {
    needs!("bcftools", "bgzip");
    assert_nodes_do_the_same(&[1, 2, 4], call);
}

#[test]
fn freebayes_on_any_number_of_nodes_writes_the_bytes_of_one_process() {
    needs!("freebayes", "bgzip");
    assert_nodes_do_the_same(&[1, 2, 4], |out| call(out).args(["--caller", "freebayes"]));
}

#[test]
fn haplotype_caller_on_two_nodes_writes_the_bytes_of_one_process() {
    needs!("bgzip");
    needs_gatk!();
    assert_nodes_do_the_same(&[2], |out| {
        let call = Aligned::get().call_by("30K", &out.join("a.vcf.gz")).env("GODWIT_GATK", gatk::jars());
        call.args(["--threads", "1", "--caller", "gatk", "--caller-memory", "1G", "--memory", "1G"])
    });
}

#[test]
fn options_that_change_records_change_them_on_nodes_too() {
    needs!("bcftools", "bgzip");
    let directory = scratch::directory("call-options");
    let bed = directory.join("a.bed");
    fs::write(&bed, "chr1\t100\t9000\nchr1\t30000\t41000\nchrX\t10\t19000\n").expect("scratch can be written to");
    let table = directory.join("ploidy.txt");
    fs::write(&table, "chrX 1 6000 M 1\n* * * M 2\n* * * F 2\n").expect("scratch can be written to");
    assert_nodes_do_the_same(&[3], |out| {
        let cram = Aligned::get().run.join("s.cram");
        let call =
            Aligned::get().call_on(&cram, &out.join("a.vcf.gz")).args(["--threads", "2", "--caller-threads", "2"]);
        let call = call.args(["--caller-args", "-q 20 -a FORMAT/AD | -m", "--padding", "700", "--sex", "M"]);
        call.arg("--regions").arg(&bed).arg("--ploidy").arg(&table)
    });
}

/// bcftools by a script, which leaves a file for each start beside itself.
struct Script {
    path: PathBuf,
}

impl Script {
    /// Runs `before` first, in its own directory, where the first stretch of the region is `$region` (as `chr1-0-8000`) and
    /// `$starts` says how often that was started, this time included.
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

    /// Three callers go through, all others wait until they are let go.
    fn gate() -> Self {
        let taken: String = (0..3).map(|number| format!("mkdir taken.{number} 2>/dev/null || ")).collect();
        Self::new(&format!("{taken}until [ -e go ]; do sleep 0.02; done"))
    }

    fn let_go(&self) {
        fs::write(self.path.with_file_name("go"), "").expect("scratch can be written to");
    }

    fn call(&self, out: &Path) -> Godwit {
        let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", self.path.display());
        call(out).args(["--caller", &template])
    }

    /// How often the caller was started, on regions whose name begins so.
    fn starts(&self, region: &str) -> usize {
        let names = scratch::names(self.path.parent().expect("it lies in a directory"));
        names.iter().filter(|name| name.starts_with(region) && name.ends_with(".seen")).count()
    }

    /// Waits until callers were started so often.
    fn wait_for(&self, starts: usize) {
        wait_until(&format!("{starts} callers to be started"), || self.starts("") >= starts);
    }

    /// Removes all that its runs left.
    fn reset(&self) {
        let here = self.path.parent().expect("it lies in a directory");
        for name in scratch::names(here).iter().filter(|name| *name != "call.sh") {
            let path = here.join(name);
            let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
            removed.expect("it can be removed");
        }
    }

    /// What one process makes of it.
    fn by_one_process(&self) -> PathBuf {
        self.let_go();
        let out = by_one_process(|out| self.call(out));
        self.reset();
        out
    }
}

fn start_over_nodes(script: &Script, out: &Path, nodes: usize, words: &[&str]) -> Running {
    on_nodes(script.call(out), nodes).args(words).start()
}

#[test]
fn losing_a_node_loses_only_what_it_was_calling() {
    needs!("bcftools", "bgzip", "bash");
    let script = Script::gate();
    let one = script.by_one_process();
    for how in [libc::SIGKILL, libc::SIGSTOP] {
        let out = scratch::directory("call-lost");
        let run = start_over_nodes(&script, &out, 3, &[]);
        let nodes = wait_for_children(run.process_id(), "node", 3);
        script.wait_for(3 + 3);
        signal(nodes[1], how);
        script.let_go();
        let run = run.finish();
        assert_same(&one, &out, &run);
        let report = report(&out);
        // Others may be done with the region of a silent one before it counts as lost.
        assert!(report["lost_nodes"] == 1 || how == libc::SIGSTOP, "{}", run.report());
        let regions = report["regions"].as_array().expect("a list");
        let again = regions.iter().filter(|region| region["attempts"].as_u64() > Some(1)).count();
        // Those that take a second on a busy machine may be given to an idle node too.
        let slow = regions.iter().filter(|region| region["seconds"].as_f64() > Some(0.5)).count();
        assert!((1..=2 + slow).contains(&again), "a node calls one region at a time: {regions:?}\n{}", run.report());
        wait_until_gone(&[nodes[1]]);
        script.reset();
    }
}

#[test]
fn a_killed_head_is_gone_on_with_by_other_numbers_of_nodes_and_by_none() {
    needs!("bcftools", "bgzip", "bash");
    let script = Script::gate();
    let one = script.by_one_process();
    let regions = report(&one)["regions"].as_array().expect("a list").len();
    for (how, next) in [(libc::SIGKILL, 3), (libc::SIGKILL, 0), (libc::SIGINT, 1)] {
        let out = scratch::directory("call-headless");
        let command = |nodes: usize| match nodes {
            0 => script.call(&out),
            nodes => on_nodes(script.call(&out), nodes),
        };
        let run = command(2).start();
        let nodes = wait_for_children(run.process_id(), "node", 2);
        script.wait_for(3 + 2);
        signal(run.process_id(), how);
        let stopped = run.finish();
        if how == libc::SIGINT {
            stopped.refuses(&[INTERRUPTED], &["--resume"]);
        }
        assert!(!out.join("a.vcf.gz").exists());
        wait_until_gone(&nodes);
        let called = |run: &Finished| run.stderr.matches("{\"event\":\"called\"").count();
        assert_eq!(called(&stopped), 3, "{}", stopped.report());
        script.let_go();
        let resumed = command(next).arg("--resume").run();
        assert_same(&one, &out, &resumed);
        assert_eq!(called(&resumed), regions - 3, "{}", resumed.report());
        assert!(resumed.stderr.contains("{\"event\":\"call_resumed\",\"regions\":3}"), "{}", resumed.report());
        assert_eq!(report(&out)["resumed_regions"], 3);
        let complete = command(2).arg("--resume").succeeds();
        assert!(complete.stderr.contains("already complete"), "{}", complete.report());
        script.reset();
    }
}

#[test]
fn nodes_go_on_with_what_one_process_left_to_the_same_bytes() {
    needs!("bcftools", "bgzip", "bash");
    let script = Script::gate();
    let one = script.by_one_process();
    let out = scratch::directory("call-continued");
    let run = script.call(&out).start();
    script.wait_for(3 + 1);
    signal(run.process_id(), libc::SIGKILL);
    run.finish();
    script.let_go();
    let resumed = start_over_nodes(&script, &out, 2, &["--resume"]).finish();
    assert_same(&one, &out, &resumed);
    assert_eq!(report(&out)["resumed_regions"], 3);
}

/// The name of a node in what a run said, behind some words.
fn node_behind(text: &str, words: &str) -> String {
    let behind = text.split_once(words).unwrap_or_else(|| panic!("{words:?} is not in {text}")).1;
    behind.split([':', ' ']).filter(|word| word.parse::<u32>().is_ok()).take(1).collect()
}

#[test]
fn a_caller_that_fails_on_one_region_is_tried_on_another_node_and_named() {
    needs!("bcftools", "bgzip", "bash");
    // It fails when the other node is there too.
    let script = Script::new(
        "touch node.$PPID; if [ $region = chrX-13000-20000 ]; then until [ $(ls node.* | wc -l) -gt 1 ]; do sleep 0.02; done; \
         echo 'the sky fell' >&2; exit 7; fi",
    );
    let out = scratch::directory("call-failing");
    let failed = start_over_nodes(&script, &out, 2, &[]).finish();
    let said = ["chrX:14001-20000", "2 times", "call.sh", "exited with status 7", "the sky fell", "last time on"];
    failed.refuses(&[ENGINE], &said);
    assert!(failed.stderr.contains("--resume"), "{}", failed.report());
    let nodes = ["failed on ", "the last time on "].map(|words| node_behind(&failed.stderr, words));
    assert!(!nodes[0].is_empty() && nodes[0] != nodes[1], "both on {}\n{}", nodes[0], failed.report());
    assert!(scratch::names(&out).iter().all(|name| name.starts_with('.')), "{:?}", scratch::names(&out));
    assert_eq!(script.starts("chrX-13000"), 2);
    // Mended, it goes on with what is left.
    let text = fs::read_to_string(&script.path).expect("it was written").replace("exit 7", "true");
    fs::write(&script.path, text).expect("scratch can be written to");
    start_over_nodes(&script, &out, 2, &["--resume"]).finish();
    assert!(records(&out.join("a.vcf.gz")) == Aligned::get().bcftools("", "-mv"));
}

#[test]
fn one_node_tries_again_what_failed_on_it_and_a_caller_that_fails_once_is_forgiven() {
    needs!("bcftools", "bgzip", "bash");
    let script = Script::new("[ $region != chrX-13000-20000 ] || [ $starts -ne 1 ] || kill -9 $$");
    let out = scratch::directory("call-forgiven");
    let run = start_over_nodes(&script, &out, 1, &[]).finish();
    assert!(run.status.success() && run.stderr.contains("tried again"), "{}", run.report());
    assert!(records(&out.join("a.vcf.gz")) == Aligned::get().bcftools("", "-mv"));
}

#[test]
fn a_region_that_takes_long_is_given_to_an_idle_node_too() {
    needs!("bcftools", "bgzip", "bash");
    let script = Script::new("[ $region != chr1-0-8000 ] || [ $starts -ne 1 ] || sleep 1000");
    let out = scratch::directory("call-straggler");
    // The first caller would outlast the longest that is waited for here.
    let run = start_over_nodes(&script, &out, 2, &[]);
    wait_until_gone(&[run.process_id()]);
    let run = run.finish();
    assert!(run.status.success(), "{}", run.report());
    assert!(records(&out.join("a.vcf.gz")) == Aligned::get().bcftools("", "-mv"));
    assert_eq!(script.starts("chr1-0-8000"), 2);
    assert_eq!(report(&out)["regions"][0]["attempts"], 2);
    assert_eq!(report(&out)["lost_nodes"], 0);
}

#[test]
fn without_any_node_the_run_ends_with_an_error_and_what_was_done_is_kept() {
    needs!("bcftools", "bgzip", "bash");
    let script = Script::gate();
    let one = script.by_one_process();
    let out = scratch::directory("call-alone");
    let run = start_over_nodes(&script, &out, 2, &[]);
    let nodes = wait_for_children(run.process_id(), "node", 2);
    script.wait_for(3 + 2);
    nodes.into_iter().for_each(|node| signal(node, libc::SIGKILL));
    let failed = run.finish();
    failed.refuses(&[REMOTE], &["no node is left"]);
    assert!(failed.stderr.contains("--resume"), "{}", failed.report());
    assert!(!out.join("a.vcf.gz").exists());
    script.let_go();
    let resumed = start_over_nodes(&script, &out, 2, &["--resume"]).finish();
    assert_same(&one, &out, &resumed);
}

/// bcftools that does something else where a node asks for its version.
fn bcftools_on_nodes(text: &str) -> String {
    let is_node = "tr '\\0' ' ' </proc/$PPID/cmdline | grep -q ' node --meeting '";
    spoiled_bcftools("--version", &format!("if {is_node}; then\n{text}\nfi"))
}

#[test]
fn nodes_with_another_version_of_the_caller_are_refused_by_name() {
    needs!("bcftools", "bgzip", "bash");
    let out = scratch::directory("call-version");
    let path = bcftools_on_nodes("echo 'bcftools 1.99'; exit 0");
    let run = on_nodes(call(&out), 2).env("PATH", &path).run();
    run.refuses(&[REMOTE], &["no node is left", "process ", "version of the caller", "bcftools 1.99", "on the head"]);
    assert_eq!(scratch::names(&out), [] as [&str; 0]);
    // Nor are those of use that have none.
    let run = on_nodes(call(&out), 2).env("PATH", bcftools_on_nodes("exit 1")).run();
    run.refuses(&[REMOTE], &["no node is left", "process ", "bcftools 1.13 or later"]);
    assert_eq!(scratch::names(&out), [] as [&str; 0]);
}

#[test]
fn a_run_goes_on_without_a_node_that_was_refused() {
    needs!("bcftools", "bgzip", "bash");
    let one = by_one_process(call);
    let out = scratch::directory("call-stray");
    let go = scratch::directory("call-go").join("go");
    let waiting = spoiled_bcftools("mpileup", &format!("until [ -e {} ]; do sleep 0.02; done", go.display()));
    let run = on_nodes(call(&out), 1).env("PATH", waiting).start();
    let nodes = wait_for_children(run.process_id(), "node", 1);
    wait_for_children(nodes[0], "mpileup", 1);
    let meeting = out.join(".a.vcf.gz.godwit-run/nodes");
    let stray = godwit().args(["node", "--meeting"]).arg(&meeting);
    let stray = stray.env("PATH", bcftools_on_nodes("echo 'bcftools 1.99'; exit 0")).run();
    stray.refuses(&[REMOTE], &["does not take this node", "bcftools 1.99"]);
    fs::write(go, "").expect("scratch can be written to");
    let run = run.finish();
    assert_same(&one, &out, &run);
    for words in ["was refused: the version of the caller", "bcftools 1.99", "install one version everywhere"] {
        assert!(run.stderr.contains(words), "{words}\n{}", run.report());
    }
}

#[test]
fn nodes_that_see_other_reads_are_refused_by_name() {
    needs!("bcftools", "bash");
    let aligned = Aligned::get();
    let directory = scratch::directory("call-other");
    let bam = directory.join("s.bam");
    fs::copy(aligned.bam(), &bam).expect("it can be copied");
    for (changed, what) in [("s.bam", "the reads"), ("s.bam.bai", "the index of the reads")] {
        fs::copy(aligned.bam(), &bam).expect("it can be copied");
        fs::copy(aligned.run.join("s.bam.bai"), directory.join("s.bam.bai")).expect("it can be copied");
        let text = match changed {
            // An empty block before the one that ends the file.
            "s.bam" => format!("tail -c 28 {0} >{0}.end; cat {0}.end >>{0}", bam.display()),
            // Counts of unplaced reads, which nobody needs.
            _ => format!("truncate -s -8 {}.bai", bam.display()),
        };
        let out = scratch::directory("call-other-out");
        let run = aligned.call_on(&bam, &out.join("a.vcf.gz")).args(["--on", "local", "--nodes", "1"]);
        let run = run.env("PATH", bcftools_on_nodes(&text)).run();
        run.refuses(&[REMOTE], &["no node is left", "process ", &format!("{what}: "), "on the head"]);
        assert_eq!(scratch::names(&out), [] as [&str; 0]);
    }
}

#[test]
fn scratch_space_of_nodes_is_left_empty() {
    needs!("bcftools", "bgzip");
    let (out, temp) = (scratch::directory("call-temp"), scratch::directory("temp"));
    on_nodes(call(&out), 2).arg("--temp").arg(&temp).succeeds();
    assert_eq!(scratch::names(&temp), [] as [&str; 0]);
    assert_eq!(scratch::names(&out), BESIDE);
}

#[test]
fn callers_end_with_their_node() {
    needs!("bash");
    let out = scratch::directory("call-orphans");
    let template = "bash -c 'exec sleep 4321' {bam} {region}";
    let run = on_nodes(call(&out), 1).args(["--caller", template]).start();
    let nodes = wait_for_children(run.process_id(), "node", 1);
    let callers = wait_for_children(nodes[0], "4321", 1);
    signal(nodes[0], libc::SIGKILL);
    run.finish().refuses(&[REMOTE], &["no node is left"]);
    wait_until_gone(&callers);
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
    let shown = call(&out).args(slurm).succeeds().stdout;
    for words in ["#SBATCH --nodes=4", "--partition=long", "godwit-a.vcf.gz", "--on allocation", "a.vcf.gz.slurm"] {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    assert!(!shown.contains("--dry-run"), "{shown}");
    call(&out).args(["--on", "local", "--dry-run"]).run().refuses(&[USAGE], &["--dry-run", "--on slurm"]);
    call(&out).arg("--dry-run").run().refuses(&[USAGE], &["--on"]);
    call(&out).args(["--nodes", "2"]).run().refuses(&[USAGE], &["--on"]);
    assert_eq!(scratch::names(&out), [] as [&str; 0]);
}

fn call_on_slurm(call: Godwit, cluster: &Cluster, nodes: usize) -> Godwit {
    let slurm = ["--on", "slurm", "--nodes", &nodes.to_string(), "--slurm-memory", "300M"];
    call.args(slurm).env("SLURM_CONF", cluster.configuration())
}

/// As [`assert_same`], for a job, whose script and logs stay.
#[track_caller]
fn assert_same_by_slurm(one: &Path, out: &Path, run: &Finished) {
    let logs = out.join("a.vcf.gz.slurm/logs");
    let said: Vec<String> =
        (0..8).filter_map(|node| fs::read_to_string(logs.join(format!("node-{node}.err"))).ok()).collect();
    assert!(run.status.success(), "{}\n{said:#?}", run.report());
    assert!(out.join("a.vcf.gz.slurm/script.sh").is_file());
    fs::remove_dir_all(out.join("a.vcf.gz.slurm")).expect("it can be removed");
    assert_same(one, out, run);
}

#[test]
fn a_slurm_job_of_four_nodes_calls_the_bytes_of_one_process() {
    needs!("bcftools", "bgzip");
    needs_slurm!();
    let one = by_one_process(call);
    let out = scratch::directory("call-slurm");
    let run = call_on_slurm(call(&out), slurm::shared(), 4).run();
    assert_same_by_slurm(&one, &out, &run);
    assert_eq!(report(&out)["nodes"].as_array().map(Vec::len), Some(4), "{}", report(&out));
}

#[test]
fn a_job_that_calls_goes_on_after_its_time_limit() {
    needs!("bcftools", "bgzip", "bash");
    needs_slurm!();
    let (cluster, script) = (slurm::shared(), Script::gate());
    let one = script.by_one_process();
    let out = scratch::directory("call-slurm-limit");
    let run = call_on_slurm(script.call(&out), cluster, 2).start();
    script.wait_for(3 + 2);
    let job = out.join("a.vcf.gz.slurm");
    let handle = fs::read_to_string(job.join("handle.json")).expect("it was submitted");
    let handle: Value = serde_json::from_str(&handle).expect("it is JSON");
    let id = handle["id"].as_str().expect("a handle has one");
    // What `--signal=B:TERM@SECONDS` does when it is time.
    succeed(cluster.command("scancel").args(["--batch", "--signal=TERM", id]));
    let log = || fs::read_to_string(job.join("job.log")).unwrap_or_default();
    wait_until("the job to be queued again", || log().contains("queueing again"));
    script.let_go();
    let run = run.finish();
    assert!(job.join("attempts/1").is_dir(), "{}", run.report());
    let resumed = report(&out)["resumed_regions"].as_u64();
    assert_same_by_slurm(&one, &out, &run);
    assert_eq!(resumed, Some(3));
}

#[test]
fn two_calls_do_not_share_an_output() {
    needs!("bcftools", "bgzip", "bash");
    let script = Script::gate();
    let out = scratch::directory("call-shared");
    let first = start_over_nodes(&script, &out, 2, &[]);
    script.wait_for(3 + 2);
    for nodes in [1, 2] {
        on_nodes(script.call(&out), nodes).run().refuses(&[MACHINE], &["another godwit"]);
    }
    script.let_go();
    assert!(first.finish().status.success());
}

#[test]
fn power_loss_of_the_head_of_a_slurm_job_that_calls_starts_it_again() {
    needs!("bcftools", "bgzip", "bash");
    needs_slurm!();
    let cluster = Cluster::start(2);
    if !cluster.has_own_nodes() {
        return;
    }
    let script = Script::gate();
    let one = script.by_one_process();
    let out = scratch::directory("call-slurm-head");
    let run = call_on_slurm(script.call(&out), &cluster, 2).start();
    script.wait_for(3 + 2);
    wait_until_said(&out.join("a.vcf.gz.slurm/logs/node-0.err"), "called", 1, &run);
    cluster.strike("kill", "gw1");
    cluster.strike("start", "gw1");
    script.let_go();
    let run = run.finish();
    assert!(out.join("a.vcf.gz.slurm/attempts/1").is_dir(), "{}", run.report());
    let resumed = report(&out)["resumed_regions"].as_u64();
    assert_same_by_slurm(&one, &out, &run);
    assert!(resumed > Some(0), "nothing was gone on with");
}
