//! Searches over nodes: the bytes of one pass, whoever is lost on the way.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::Finished;
use godwit_tests::patience::wait_until;
use godwit_tests::processes::{signal, wait_for_children, wait_until_gone};
use godwit_tests::slurm;
use godwit_tests::ssh_server::{self, SshServer};
use godwit_tests::{needs, needs_slurm, scratch, skip};

use super::data::data;

const USAGE: i32 = 2;
const REMOTE: i32 = 6;
/// It takes seconds: nodes are lost on the way.
const LONG: &str = "tblastx -db genes -query some.fa -outfmt 6 -evalue 1e-10";
const SHORT: &str = "blastp -db proteins -query far.fa -outfmt 0 -evalue 1e-5";

/// A directory for one output, and where it and its summary go.
fn places(name: &str) -> (PathBuf, PathBuf, PathBuf) {
    let directory = scratch::directory(name);
    (directory.clone(), directory.join("hits"), directory.join("summary.json"))
}

fn summary(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).expect("it wrote its summary")).expect("JSON")
}

/// The output is that of one pass, and nothing but it and these is left beside it.
#[track_caller]
fn assert_same(command: &str, directory: &Path, run: &Finished, beside: &[&str]) {
    assert!(run.status.success(), "{}", run.report());
    let found = fs::read(directory.join("hits")).expect("it wrote its output");
    assert!(found == data().one_pass(command), "{command}: the output is another\n{}", run.report());
    let mut names = scratch::names(directory);
    names.retain(|name| name != "hits" && name != "summary.json");
    assert_eq!(names, beside, "{}", run.report());
}

#[test]
fn any_number_of_nodes_writes_the_bytes_of_one_pass() {
    needs!("makeblastdb");
    for (nodes, more, command) in [
        (1, "", SHORT),
        (2, "--fragments 7", SHORT),
        (3, "--workers 2 --fragments 64", SHORT),
        (2, "", "blastn -db genes -query near.fa -outfmt 17"),
        (2, "--fragments 3", "blastp -db proteins -query long.fa -outfmt 5 -max_target_seqs 5"),
        // Batches enough for each worker to have its own.
        (2, "", "blastp -db second -query proteins.fa -outfmt 7 -evalue 1e-30"),
    ] {
        let (directory, out, told) = places("search-nodes");
        let options = format!("--on local --nodes {nodes} --threads 1 {more} --summary {}", told.display());
        let run = data().search(&options, command, &out).run();
        match command.ends_with("17") {
            // The header of SAM has the command line, and in it the path of the output.
            true => assert!(run.status.success(), "{}", run.report()),
            false => assert_same(command, &directory, &run, &[]),
        }
        assert_eq!(summary(&told)["nodes"].as_u64(), Some(nodes), "{}", summary(&told));
    }
}

#[test]
fn a_node_that_is_killed_loses_nothing() {
    needs!("makeblastdb");
    let (directory, out, told) = places("search-killed");
    let options = format!("--on local --nodes 2 --threads 1 --fragments 16 --summary {}", told.display());
    let run = data().search(&options, LONG, &out).start();
    let nodes = wait_for_children(run.process_id(), "node", 2);
    let workers = wait_for_children(nodes[0], "tblastx", 1);
    let is_begun = |name: &String| name == ".hits.godwit-search";
    wait_until("the search to begin", || scratch::names(&directory).iter().any(is_begun));
    signal(nodes[0], libc::SIGKILL);
    wait_until_gone(&workers);
    assert_same(LONG, &directory, &run.finish(), &[]);
    let summary = summary(&told);
    assert_eq!((summary["nodes"].as_u64(), summary["lost_nodes"].as_u64()), (Some(2), Some(1)), "{summary}");
    assert!(summary["restarts"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn without_any_node_left_a_search_ends_and_leaves_what_can_be_resumed() {
    needs!("makeblastdb");
    let (directory, out, _) = places("search-alone");
    let run = data().search("--on local --nodes 1 --threads 1", LONG, &out).start();
    let nodes = wait_for_children(run.process_id(), "node", 1);
    let workers = wait_for_children(nodes[0], "tblastx", 1);
    signal(nodes[0], libc::SIGKILL);
    run.finish().refuses(&[REMOTE], &["no node is left"]);
    wait_until_gone(&workers);
    let mut left = scratch::names(&directory);
    left.retain(|name| name != ".hits.godwit-search");
    assert_eq!(left, [] as [&str; 0]);
}

#[test]
fn what_no_node_can_search_is_said_as_on_one_machine() {
    needs!("makeblastdb");
    let (directory, out, _) = places("search-refused-nodes");
    for (command, code, said) in [
        ("blastp -db no_such_database -query far.fa", 3, "no_such_database"),
        ("blastp -db proteins -query far.fa -evalue x", USAGE, "evalue"),
        ("blastp -db proteins", USAGE, "-query FILE"),
    ] {
        let run = data().search("--on local --nodes 2 --threads 1", command, &out).run();
        run.refuses(&[code], &[said]);
        assert_eq!(scratch::names(&directory), [] as [&str; 0], "{command}");
    }
    data().search("--on local --dry-run", SHORT, &out).run().refuses(&[USAGE], &["--dry-run", "--on slurm"]);
}

#[test]
fn hosts_by_ssh_search_the_bytes_of_one_pass() {
    needs!("makeblastdb");
    if !ssh_server::is_installed() {
        skip!("missing-tool", "openssh-server is not installed");
    }
    let (server, (directory, out, told)) = (SshServer::start(), places("search-ssh"));
    let hosts = server.directory().join("hosts");
    fs::write(&hosts, "near\nfar\n").expect("it can be written");
    let ssh = format!("-F{}", server.client_configuration().display());
    let options = format!(
        "--on ssh --nodes 2 --threads 1 --interface 127.0.0.1 --ssh-option {ssh} --hosts {} --summary {}",
        hosts.display(),
        told.display()
    );
    assert_same(SHORT, &directory, &data().search(&options, SHORT, &out).run(), &[]);
    assert_eq!(summary(&told)["nodes"].as_u64(), Some(2));
}

#[test]
fn a_slurm_job_of_three_nodes_searches_the_bytes_of_one_pass() {
    needs!("makeblastdb");
    needs_slurm!();
    let (directory, out, told) = places("search-slurm");
    let options =
        format!("--on slurm --nodes 3 --threads 1 --slurm-memory 300M --fragments 9 --summary {}", told.display());
    let dry = data().search(&format!("{options} --dry-run"), SHORT, &out).succeeds().stdout;
    for words in ["#SBATCH --nodes=3", "godwit-hits", "--on allocation", "--no-config -- blastp", "hits.slurm"] {
        assert!(dry.contains(words), "{words} is not in {dry}");
    }
    let search = data().search(&options, SHORT, &out);
    let run = search.env("SLURM_CONF", slurm::shared().configuration()).run();
    assert_same(SHORT, &directory, &run, &["hits.slurm"]);
    assert_eq!(summary(&told)["nodes"].as_u64(), Some(3), "{}", summary(&told));
}
