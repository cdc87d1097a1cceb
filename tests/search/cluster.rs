//! Searches on a cluster write the same bytes as a single run, also if a worker is lost.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::processes::{send_signal, wait_for_children, wait_until_exited};
use godwit_tests::slurm;
use godwit_tests::ssh_server::{self, SshServer};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, needs_slurm, scratch, skip};

use super::test_databases::databases;

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_REMOTE: i32 = 6;
/// A search of several seconds, during which workers are lost.
const SLOW_COMMAND: &str = "tblastx -db genes -query some.fa -outfmt 6 -evalue 1e-10";
const QUICK_COMMAND: &str = "blastp -db proteins -query far.fa -outfmt 0 -evalue 1e-5";

/// Returns a directory for one output, and the paths of the output and its summary.
fn output_paths(name: &str) -> (PathBuf, PathBuf, PathBuf) {
    let directory = scratch::directory(name);
    (directory.clone(), directory.join("hits"), directory.join("summary.json"))
}

fn read_summary(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).expect("it wrote its summary")).expect("JSON")
}

/// Checks that the output equals that of a single run, and that the directory contains only the output and the files
/// named in `beside`.
#[track_caller]
fn assert_same(command: &str, directory: &Path, run: &GodwitOutput, beside: &[&str]) {
    assert!(run.status.success(), "{}", run.describe());
    let found = fs::read(directory.join("hits")).expect("it wrote its output");
    assert!(found == databases().expected_output(command), "{command}: the output is another\n{}", run.describe());
    let mut names = scratch::entry_names(directory);
    names.retain(|name| name != "hits" && name != "summary.json");
    assert_eq!(names, beside, "{}", run.describe());
}

#[test]
fn any_number_of_workers_writes_the_bytes_of_one_pass() {
    needs!("makeblastdb");
    for (nodes, more, command) in [
        (1, "", QUICK_COMMAND),
        (2, "--fragments 7", QUICK_COMMAND),
        (3, "--workers 2 --fragments 64", QUICK_COMMAND),
        (2, "", "blastn -db genes -query near.fa -outfmt 17"),
        (2, "--fragments 3", "blastp -db proteins -query long.fa -outfmt 5 -max_target_seqs 5"),
        // This search has so many queries that each worker gets its own batches.
        (2, "", "blastp -db few -query many.fa -outfmt 7 -evalue 1e-30"),
    ] {
        let (directory, out, told) = output_paths("search-nodes");
        let options = format!("--on local --nodes {nodes} --threads 1 {more} --summary {}", told.display());
        let run = databases().search(&options, command, &out).run();
        match command.ends_with("17") {
            // Do not compare SAM outputs, whose header contains the command line with the path of the output.
            true => assert!(run.status.success(), "{}", run.describe()),
            false => assert_same(command, &directory, &run, &[]),
        }
        assert_eq!(read_summary(&told)["nodes"].as_u64(), Some(nodes), "{}", read_summary(&told));
    }
}

#[test]
fn a_worker_that_is_killed_loses_nothing() {
    needs!("makeblastdb");
    let (directory, out, told) = output_paths("search-killed");
    let options = format!("--on local --nodes 2 --threads 1 --fragments 16 --summary {}", told.display());
    let run = databases().search(&options, SLOW_COMMAND, &out).spawn();
    let nodes = wait_for_children(run.process_id(), "node", 2);
    let workers = wait_for_children(nodes[0], "tblastx", 1);
    let is_begun = |name: &String| name == ".hits.godwit-search";
    wait_until("the search to begin", || scratch::entry_names(&directory).iter().any(is_begun));
    send_signal(nodes[0], libc::SIGKILL);
    wait_until_exited(&workers);
    assert_same(SLOW_COMMAND, &directory, &run.wait_with_output(), &[]);
    let summary = read_summary(&told);
    assert_eq!((summary["nodes"].as_u64(), summary["lost_nodes"].as_u64()), (Some(2), Some(1)), "{summary}");
    assert!(summary["restarts"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn without_any_worker_left_a_search_fails_and_can_be_resumed() {
    needs!("makeblastdb");
    let (directory, out, _) = output_paths("search-alone");
    let run = databases().search("--on local --nodes 1 --threads 1", SLOW_COMMAND, &out).spawn();
    let nodes = wait_for_children(run.process_id(), "node", 1);
    let workers = wait_for_children(nodes[0], "tblastx", 1);
    send_signal(nodes[0], libc::SIGKILL);
    run.wait_with_output().assert_rejected(&[EXIT_REMOTE], &["no worker is left"]);
    wait_until_exited(&workers);
    let mut left = scratch::entry_names(&directory);
    left.retain(|name| name != ".hits.godwit-search");
    assert_eq!(left, [] as [&str; 0]);
}

#[test]
fn what_no_worker_can_search_is_reported_as_in_one_process() {
    needs!("makeblastdb");
    let (directory, out, _) = output_paths("search-refused-nodes");
    for (command, code, said) in [
        ("blastp -db no_such_database -query far.fa", 3, "no_such_database"),
        ("blastp -db proteins -query far.fa -evalue x", EXIT_USAGE, "evalue"),
        ("blastp -db proteins", EXIT_USAGE, "-query FILE"),
    ] {
        let run = databases().search("--on local --nodes 2 --threads 1", command, &out).run();
        run.assert_rejected(&[code], &[said]);
        assert_eq!(scratch::entry_names(&directory), [] as [&str; 0], "{command}");
    }
    databases()
        .search("--on local --dry-run", QUICK_COMMAND, &out)
        .run()
        .assert_rejected(&[EXIT_USAGE], &["--dry-run", "--on slurm"]);
}

#[test]
fn what_cannot_be_searched_is_rejected_before_a_job_is_submitted_as_in_one_process() {
    needs!("makeblastdb");
    needs_slurm!();
    let (directory, out, _) = output_paths("search-refused-job");
    let file = directory.join("file");
    fs::write(&file, "").expect("scratch can be written");
    let below_file = file.join("hits.tsv");
    fs::write(directory.join("damaged.pal"), "TITLE damaged\nDBLIST no_such_volume\n").expect("scratch can be written");
    let damaged = format!("blastp -db {} -query far.fa", directory.join("damaged").display());
    let summary = format!("--summary {}", below_file.display());
    for (options, command, out, code, said) in [
        ("", damaged.as_str(), &out, 3, "no_such_volume"),
        ("", "blastp -db proteins -query no_such_query.fa", &out, EXIT_MACHINE, "no_such_query.fa"),
        ("", "blastp -db proteins -query proteins.pin", &out, 3, "is not FASTA"),
        ("", "blastp -db proteins -query far.fa -evalue x", &out, EXIT_USAGE, "evalue"),
        ("", "blastp -subject no_such_subject.fa -query far.fa", &out, EXIT_MACHINE, "no_such_subject.fa"),
        ("", QUICK_COMMAND, &directory, EXIT_MACHINE, "a directory has this name"),
        ("", QUICK_COMMAND, &below_file, EXIT_MACHINE, "file/hits.tsv"),
        (&summary, QUICK_COMMAND, &out, EXIT_MACHINE, "file/hits.tsv"),
    ] {
        let here = databases().search(options, command, out).run();
        here.assert_rejected(&[code], &[said]);
        for dry_run in ["", "--dry-run"] {
            let options = format!("{options} --on slurm --nodes 2 {dry_run}");
            let search = databases().search(&options, command, out);
            let job = search.env("SLURM_CONF", slurm::shared_cluster().slurm_conf()).run();
            job.assert_rejected(&[code], &[said]);
            assert_eq!(job.stderr, here.stderr, "{command}");
        }
        assert_eq!(scratch::entry_names(&directory), ["damaged.pal", "file"], "{command}: nothing is submitted");
    }
}

#[test]
fn a_database_that_only_the_hosts_of_a_job_may_have_is_a_warning() {
    needs!("makeblastdb");
    needs_slurm!();
    let (directory, out, _) = output_paths("search-absent-database");
    let search = godwit().current_dir(&databases().directory).args(["search", "--on", "slurm", "--dry-run", "--"]);
    let search = search.args(["blastp", "-db", "no_such_database", "-query", "far.fa", "-out"]).arg(&out);
    let shown = search.env("SLURM_CONF", slurm::shared_cluster().slurm_conf()).run_ok();
    assert!(shown.stdout.contains("#SBATCH --nodes=1"), "{}", shown.describe());
    for words in ["is not found on this host", "no_such_database"] {
        assert!(shown.stderr.contains(words), "{words} is not in {}", shown.describe());
    }
    assert_eq!(scratch::entry_names(&directory), [] as [&str; 0], "nothing is submitted");
}

#[test]
fn hosts_by_ssh_search_the_bytes_of_one_pass() {
    needs!("makeblastdb");
    if !ssh_server::is_installed() {
        skip!("missing-tool", "openssh-server is not installed");
    }
    let (server, (directory, out, told)) = (SshServer::start(), output_paths("search-ssh"));
    let hosts = server.directory().join("hosts");
    fs::write(&hosts, "near\nfar\n").expect("it can be written");
    let ssh = format!("-F{}", server.client_configuration().display());
    let options = format!(
        "--on ssh --nodes 2 --threads 1 --interface 127.0.0.1 --ssh-option {ssh} --hosts {} --summary {}",
        hosts.display(),
        told.display()
    );
    assert_same(QUICK_COMMAND, &directory, &databases().search(&options, QUICK_COMMAND, &out).run(), &[]);
    assert_eq!(read_summary(&told)["nodes"].as_u64(), Some(2));
}

#[test]
fn a_slurm_job_of_three_workers_searches_the_bytes_of_one_pass() {
    needs!("makeblastdb");
    needs_slurm!();
    let (directory, out, told) = output_paths("search-slurm");
    let options =
        format!("--on slurm --nodes 3 --threads 1 --slurm-memory 300M --fragments 9 --summary {}", told.display());
    let dry = databases().search(&format!("{options} --dry-run"), QUICK_COMMAND, &out).run_ok().stdout;
    for words in ["#SBATCH --nodes=3", "godwit-hits", "--on allocation", "--no-config -- blastp", "hits.slurm"] {
        assert!(dry.contains(words), "{words} is not in {dry}");
    }
    let search = databases().search(&options, QUICK_COMMAND, &out);
    let run = search.env("SLURM_CONF", slurm::shared_cluster().slurm_conf()).run();
    assert_same(QUICK_COMMAND, &directory, &run, &["hits.slurm"]);
    assert_eq!(read_summary(&told)["nodes"].as_u64(), Some(3), "{}", read_summary(&told));
}
