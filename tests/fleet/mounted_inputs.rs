//! `godwit run` with a reference and known sites in a pool: each job mounts them for the programs that it starts, the loss of
//! pool members changes nothing, and no mount outlives its job.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::{self, GodwitCommand, GodwitOutput, GodwitProcess, godwit, godwit_at};
use godwit_tests::data_server::DataServer;
use godwit_tests::processes::{find_processes, is_running, send_signal};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::{wait_for, wait_until};
use godwit_tests::{needs, needs_gatk, needs_slurm, scratch, slurm};

use super::cohort_runs::{report, samples, write_sheet};
use super::mounted_files::needs_mounts;
use super::server_pool::{ServerPool, path_text};
use crate::run::joint_calling::Cohort;
use crate::run::recalibrate::write_known_sites;
use crate::run::variant_calling::assert_same_text;

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_REMOTE: i32 = 6;
const EXIT_INTERRUPTED: i32 = 130;

/// Copies the reference of the cohort with its indexes to a directory; returns the path of the copy.
fn copy_reference(directory: &Path) -> PathBuf {
    let cohort = Cohort::cached();
    cohort.make_dictionary();
    for name in scratch::entry_names(&cohort.directory).iter().filter(|name| name.starts_with("ref.")) {
        fs::copy(cohort.directory.join(name), directory.join(name)).expect("it can be copied");
    }
    directory.join("ref.fa")
}

/// Inputs of a run below the root of a pool, and the same inputs as local files.
struct Inputs {
    pool: ServerPool,
    sample_count: usize,
}

/// A way to name the inputs.
#[derive(Clone, Copy)]
enum Naming {
    Paths,
    Addresses,
}

impl Inputs {
    fn create(label: &str, sample_count: usize) -> Self {
        let pool = ServerPool::start(label, "connections", 2, &[]);
        let data = pool.root.join("data");
        fs::create_dir(&data).expect("it can be made");
        copy_reference(&data);
        write_known_sites(Cohort::cached(), &data);
        let sheet = fs::read_to_string(write_sheet(&data, sample_count)).expect("it was written");
        let sheet: Vec<String> =
            sheet.lines().map(|line| line.replace(",s", ",godwit+pool://storage/data/s")).collect();
        let sheet = sheet.iter().enumerate().map(|(number, line)| match number {
            0 => format!("{line},reference\n"),
            _ => format!("{line},godwit+pool://storage/data/ref.fa\n"),
        });
        fs::write(pool.client_directory.join("sheet.csv"), sheet.collect::<String>()).expect("it can be written");
        Self { pool, sample_count }
    }

    /// Returns the path of the directory with the scratch files of runs on addresses.
    fn scratch(&self) -> PathBuf {
        self.pool.client_directory.join("scratch")
    }

    /// Returns the command of a run of the default workflow.
    fn run(&self, naming: Naming, out: &Path) -> GodwitCommand {
        let root = &self.pool.root;
        let run = match naming {
            Naming::Paths => {
                let run = godwit().arg("run").arg("--reference").arg(root.join("data/ref.fa"));
                run.arg("--samples").arg(root.join("data/sheet.csv"))
            }
            Naming::Addresses => {
                let run = self.pool.command(&["run", "--reference", &ServerPool::url("data/ref.fa"), "--wait", "1m"]);
                run.arg("--temp").arg(self.scratch()).arg("--samples").arg(self.pool.client_directory.join("sheet.csv"))
            }
        };
        run.args(["--grid-size", "30K", "--metrics", "off", "--threads", "1", "--out"]).arg(out)
    }

    /// Returns the command of a run of the GATK workflow.
    fn run_gatk(&self, naming: Naming, out: &Path) -> GodwitCommand {
        let known = match naming {
            Naming::Paths => path_text(&self.pool.root.join("data/known.vcf.gz")).to_owned(),
            Naming::Addresses => ServerPool::url("data/known.vcf.gz"),
        };
        let run = self.run(naming, out).args(["--workflow", "gatk", "--caller-memory", "1G", "--known-sites", &known]);
        run.with_gatk()
    }

    /// Kills the members in turn and starts them again, until the run ends. Returns its output, and the number of members that
    /// were killed after the first mount.
    fn kill_members_during(&mut self, running: GodwitProcess) -> (GodwitOutput, usize) {
        let (scratch, process) = (self.scratch(), running.process_id());
        wait_until("the inputs are mounted", || !is_running(process) || !mounts_below(&scratch).is_empty());
        let mut losses = 0;
        while is_running(process) {
            let member = losses % 2;
            self.pool.members[member] = None;
            losses += 1;
            self.pool.wait_until_health_is(&[member != 0, member != 1]);
            self.pool.start_member(member);
            self.pool.wait_until_health_is(&[true; 2]);
        }
        (running.wait_with_output(), losses)
    }

    /// Checks that nothing of the mounts is left, and that the outputs of two runs are the same.
    fn assert_same_outputs(&self, expected: &Path, found: &Path, files: &[&str]) {
        assert_eq!(mounts_below(&self.scratch()), [] as [String; 0]);
        assert_eq!(scratch::entry_names(&self.scratch()), [] as [&str; 0]);
        for sample in 0..self.sample_count {
            for file in files {
                let name = format!("s{sample}/s{sample}.{file}");
                assert_same_file(&expected.join(&name), &found.join(&name));
            }
        }
    }
}

/// Checks that two files have the same bytes, or for VCF the same records and the same header apart from its paths.
fn assert_same_file(expected: &Path, found: &Path) {
    if !path_text(found).ends_with(".vcf.gz") {
        assert!(scratch::read(expected) == scratch::read(found), "{} differs", found.display());
        return;
    }
    let [expected, found] = [expected, found].map(|vcf| {
        let text = Tool::require("bgzip").run(["-dc".as_ref(), vcf.as_os_str()]).stdout;
        let text = String::from_utf8(text).expect("it is text");
        // GATK writes its arguments, which contain the paths of its outputs, and the time.
        let has_paths = |line: &&str| line.starts_with("##reference=") || line.starts_with("##GATKCommandLine=");
        let lines = text.split_inclusive('\n').filter(|line| !has_paths(line));
        lines.collect::<String>().into_bytes()
    });
    assert_same_text(&found, &expected);
}

/// Returns the mount points below a directory.
fn mounts_below(directory: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").expect("it can be read");
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    points.filter(|point| Path::new(point).starts_with(directory)).map(str::to_owned).collect()
}

#[test]
fn programs_of_a_run_read_the_reference_from_a_pool_whose_members_are_killed() {
    needs!("bcftools", "bgzip", "python3", "samtools");
    needs_mounts!();
    let mut inputs = Inputs::create("inputs-pool", 3);
    let [expected, out] = ["expected", "out"].map(|name| inputs.pool.client_directory.join(name));
    inputs.run(Naming::Paths, &expected).run_ok();
    let running = inputs.run(Naming::Addresses, &out).args(["--on", "local", "--nodes", "2"]).spawn();
    let (ended, losses) = inputs.kill_members_during(running);
    assert!(ended.status.success() && losses > 0, "{losses} losses, {}", ended.describe());
    inputs.assert_same_outputs(&expected, &out, &["bam", "vcf.gz"]);
    let told = report(&out);
    assert!(samples(&told).iter().all(|sample| sample["tries"].is_null()), "{told}");
    // Another run has other mount points, and repeats nothing.
    let resumed = inputs.run(Naming::Addresses, &out).arg("--resume").run_ok();
    let told = report(&out);
    let steps = samples(&told).iter().flat_map(|sample| sample["steps"].as_array().expect("a list"));
    assert!(steps.into_iter().all(|step| step["done_before"] == true), "{told} {}", resumed.describe());
}

#[test]
#[ignore = "three minutes of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored mounted_inputs::"]
fn the_workflow_of_gatk_reads_from_a_pool_whose_members_are_killed() {
    needs!("bcftools", "bgzip", "python3", "samtools", "tabix");
    needs_gatk!();
    needs_mounts!();
    let mut inputs = Inputs::create("inputs-gatk", 2);
    let [expected, out] = ["expected", "out"].map(|name| inputs.pool.client_directory.join(name));
    inputs.run_gatk(Naming::Paths, &expected).run_ok();
    let running = inputs.run_gatk(Naming::Addresses, &out).args(["--on", "local", "--nodes", "2"]).spawn();
    let (ended, losses) = inputs.kill_members_during(running);
    assert!(ended.status.success() && losses > 0, "{losses} losses, {}", ended.describe());
    inputs.assert_same_outputs(&expected, &out, &["bam", "recal.bam", "g.vcf.gz"]);
    for name in ["joint.vcf.gz", "joint.filtered.vcf.gz"] {
        assert_same_file(&expected.join(name), &out.join(name));
    }
    let told = report(&out);
    assert!(samples(&told).iter().all(|sample| sample["tries"].is_null()), "{told}");
}

#[test]
fn each_job_of_slurm_mounts_the_inputs_for_itself() {
    needs!("bcftools", "bgzip", "samtools");
    needs_slurm!();
    needs_mounts!();
    let cluster = slurm::shared_cluster();
    let directory = scratch::directory("inputs-slurm");
    let [root, scratch, expected, out] = ["root", "scratch", "expected", "out"].map(|name| directory.join(name));
    fs::create_dir(&root).expect("it can be made");
    let (reference, sheet) = (copy_reference(&root), write_sheet(&directory, 2));
    let server = DataServer::start_at(&root, &format!("{}:0", cluster.gateway_address()), &["--insecure"]);
    let run = |reference: &str, out: &Path| {
        let run = godwit().args(["run", "--reference", reference, "--samples"]).arg(&sheet).arg("--out").arg(out);
        run.args(["--grid-size", "30K", "--metrics", "off", "--threads", "1", "--temp"]).arg(&scratch)
    };
    run(path_text(&reference), &expected).run_ok();
    // Local inputs are not mounted.
    assert!(!scratch.exists() || scratch::entry_names(&scratch).is_empty());
    let jobs = run(&format!("grpc+tcp://{}/ref.fa", server.address), &out).args(["--on", "slurm", "--nodes", "2"]);
    jobs.args(["--slurm-memory", "1G"]).env("SLURM_CONF", cluster.slurm_conf()).run_ok();
    for name in ["s0/s0.bam", "s0/s0.vcf.gz", "s1/s1.bam", "s1/s1.vcf.gz"] {
        assert_same_file(&expected.join(name), &out.join(name));
    }
    assert_eq!(scratch::entry_names(&scratch), [] as [&str; 0]);
}

/// A run that has mounted the reference and waits for reads from a pipe.
struct WaitingRun {
    process: GodwitProcess,
    scratch: PathBuf,
    mount_point: String,
    out: PathBuf,
    _server: DataServer,
}

impl WaitingRun {
    fn start(label: &str) -> Self {
        let directory = scratch::directory(label);
        let [root, scratch, out] = ["root", "scratch", "out"].map(|name| directory.join(name));
        fs::create_dir(&root).expect("it can be made");
        copy_reference(&root);
        let reads = directory.join("s.fq");
        run_checked(Command::new("mkfifo").arg(&reads));
        let server = DataServer::start(&root, &[]);
        let process = Self::command(&directory, &server, &out).spawn();
        let mount_point = wait_for("the mount", || mounts_below(&scratch).pop());
        wait_until("the run reads", || !find_processes(&["mount-guard", "--detached", &mount_point], &[]).is_empty());
        Self { process, scratch, mount_point, out, _server: server }
    }

    fn command(directory: &Path, server: &DataServer, out: &Path) -> GodwitCommand {
        let sheet = directory.join("sheet.csv");
        fs::write(&sheet, "sample,fastq_1\ns,s.fq\n").expect("it can be written");
        let reference = format!("grpc+tcp://{}/ref.fa", server.address);
        let run = godwit().args(["run", "--reference", &reference, "--threads", "1", "--samples"]).arg(sheet);
        run.arg("--temp").arg(directory.join("scratch")).arg("--out").arg(out)
    }

    fn wait_until_unmounted(&self) {
        wait_until("the files are unmounted", || mounts_below(&self.scratch).is_empty());
        wait_until("the processes of the mount end", || find_processes(&[&self.mount_point], &[]).is_empty());
    }
}

#[test]
fn a_run_that_is_interrupted_or_killed_leaves_no_mount_behind() {
    needs!("bcftools", "bgzip", "samtools", "mkfifo");
    needs_mounts!();
    for (label, signals) in [("inputs-term", &[libc::SIGTERM][..]), ("inputs-twice", &[libc::SIGTERM; 2])] {
        let run = WaitingRun::start(label);
        signals.iter().for_each(|signal| send_signal(run.process.process_id(), *signal));
        run.wait_until_unmounted();
        assert_eq!(run.process.wait_with_output().status.code(), Some(EXIT_INTERRUPTED));
    }
    let run = WaitingRun::start("inputs-kill");
    send_signal(run.process.process_id(), libc::SIGKILL);
    run.wait_until_unmounted();
    assert!(fs::read_dir(&run.mount_point).expect("it is a directory again").next().is_none());
}

#[test]
fn a_mount_whose_processes_are_all_killed_is_replaced_by_that_of_the_next_run() {
    needs!("bcftools", "bgzip", "samtools", "mkfifo");
    needs_mounts!();
    let run = WaitingRun::start("inputs-dead");
    // The guard is killed first, so that no process unmounts the files.
    for process in find_processes(&["mount-guard", &run.mount_point], &[]) {
        send_signal(process, libc::SIGKILL);
    }
    send_signal(run.process.process_id(), libc::SIGKILL);
    wait_until("the mount is dead", || fs::metadata(&run.mount_point).is_err());
    let directory = run.scratch.parent().expect("it has one");
    let reads: String =
        (0..50).map(|read| format!("@r{read}\n{}\n+\n{}\n", "ACGTTGCA".repeat(9), "F".repeat(72))).collect();
    fs::remove_file(directory.join("s.fq")).expect("it was made");
    fs::write(directory.join("s.fq"), reads).expect("it can be written");
    WaitingRun::command(directory, &run._server, &run.out).run_ok();
    assert_eq!(mounts_below(&run.scratch), [] as [String; 0]);
    assert_eq!(scratch::entry_names(&run.scratch), [] as [&str; 0]);
}

#[test]
fn inputs_that_cannot_be_mounted_are_reported_at_the_start() {
    needs!("bcftools", "bgzip", "samtools");
    let directory = scratch::directory("inputs-errors");
    let [root, scratch, out] = ["root", "scratch", "out"].map(|name| directory.join(name));
    fs::create_dir(&root).expect("it can be made");
    fs::copy(&Cohort::cached().reference, root.join("ref.fa")).expect("it can be copied");
    let sheet = write_sheet(&directory, 1);
    let server = DataServer::start(&root, &[]);
    let url = |path: &str| format!("grpc+tcp://{}/{path}", server.address);
    let run = |program: GodwitCommand, reference: &str| {
        let run = program.args(["run", "--reference", reference, "--wait", "1s", "--samples"]).arg(&sheet);
        run.arg("--temp").arg(&scratch).arg("--out").arg(&out).run()
    };
    run(godwit(), "http://h/ref.fa").assert_rejected(&[EXIT_USAGE], &["the scheme http is not supported"]);
    for path in ["", "../ref.fa", "a/../ref.fa"] {
        run(godwit(), &url(path)).assert_rejected(&[EXIT_USAGE], &["does not name a file"]);
    }
    run(godwit(), "grpc+tcp://127.0.0.1:1/ref.fa").assert_rejected(&[EXIT_REMOTE], &["127.0.0.1:1"]);
    let unshare = Tool::find("unshare");
    let user = |tool: &Tool| tool.command().args(["--user", "true"]).output().is_ok_and(|done| done.status.success());
    // In a new user namespace, this process may not mount.
    if unshare.is_some_and(|tool| user(&tool)) {
        let unprivileged = godwit_at(Path::new("unshare")).arg("--user").arg(binary::path());
        run(unprivileged, &url("ref.fa"))
            .assert_rejected(&[EXIT_MACHINE], &["cannot mount", "ref.fa", "`godwit copy`"]);
    }
    needs_mounts!();
    run(godwit(), &url("none.fa")).assert_rejected(&[EXIT_MACHINE], &["none.fa", "missing"]);
    // An index cannot be made in the mount.
    run(godwit(), &url("ref.fa")).assert_rejected(&[EXIT_MACHINE], &["ref.fa.fai is missing", "`samtools faidx`"]);
    assert_eq!(mounts_below(&scratch), [] as [String; 0]);
    assert_eq!(scratch::entry_names(&scratch), [] as [&str; 0]);
}
