//! Runs over nodes that lost their head: the same bytes, and next to nothing aligned twice.

use std::fs;
use std::path::Path;

use godwit_tests::binary::{Finished, Godwit, godwit};
use godwit_tests::processes::{signal, wait_for_children, wait_until_gone};
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::nodes::{align, align_on_nodes, assert_same, by_one_process, sample, wait_until_said};

const USAGE: i32 = 2;
const MACHINE: i32 = 4;
const INTERRUPTED: i32 = 130;
const NODES: usize = 4;
/// Blocks that the nodes may have had in flight when their head was lost: three of each, and one that was just being told of.
const IN_FLIGHT: u64 = 4 * NODES as u64;

/// A run whose head was sent a signal when it said `event` for the `count`th time. Returns how often it had said `aligned`.
pub(super) fn stopped(run: Godwit, out: &Path, how: i32, event: &str, count: usize) -> (Finished, u64) {
    let said = out.with_extension("said");
    let stderr = fs::File::create(&said).expect("a file can be made");
    let run = run.stderr(stderr).start();
    let nodes = wait_for_children(run.process_id(), "node", 1);
    wait_until_said(&said, event, count, &run);
    signal(run.process_id(), how);
    let finished = run.finish();
    wait_until_gone(&nodes);
    let said = fs::read_to_string(&said).expect("it was written");
    (finished, said.matches("{\"event\":\"aligned\"").count() as u64)
}

pub(super) fn exchange(out: &Path) -> Value {
    let report = fs::read_to_string(out.join("run.json")).expect("it is there");
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    report["exchange"].clone()
}

pub(super) fn number(exchange: &Value, name: &str) -> u64 {
    exchange[name].as_u64().unwrap_or_else(|| panic!("no {name} in {exchange}"))
}

/// Parts that were made for an earlier head.
fn resumed_partitions(out: &Path) -> u64 {
    let report = fs::read_to_string(out.join("run.json")).expect("it is there");
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    number(&report["resumed"], "partitions")
}

/// Goes on, and checks that only what was in flight is aligned again.
fn goes_on(expected: &Path, out: &Path, run: Godwit, aligned_before: u64) -> Value {
    let run = run.arg("--resume").run();
    assert_same(expected, out, &run);
    let exchange = exchange(out);
    let (blocks, kept) = (number(&exchange, "blocks"), number(&exchange, "kept_blocks"));
    // Those given to a second node because the first one took long are apart.
    let alignments = number(&exchange, "alignments") - number(&exchange, "stragglers");
    assert!(kept + 1 >= aligned_before, "{aligned_before} were aligned\n{exchange}\n{}", run.report());
    assert!(alignments <= blocks - kept, "{exchange}\n{}", run.report());
    assert!(aligned_before + alignments <= blocks + IN_FLIGHT, "{exchange}");
    exchange
}

#[test]
fn a_head_that_is_killed_at_any_stage_is_gone_on_from() {
    needs!("bwa");
    let expected = by_one_process();
    let blocks = number(
        &{
            let out = scratch::directory("counted");
            align_on_nodes(&out, NODES).succeeds();
            exchange(&out)
        },
        "blocks",
    );
    // While aligning, early and late; while the last slices go from node to node; while writing.
    let moments = [
        ("aligned", 2),
        ("aligned", blocks as usize / 2),
        ("aligned", blocks as usize),
        ("written", 1),
        ("written", 6),
    ];
    let (mut stops, mut kept_parts) = (0, 0);
    for (event, count) in moments {
        let out = scratch::directory("head-killed");
        let (finished, aligned) = stopped(align_on_nodes(&out, NODES), &out, libc::SIGKILL, event, count);
        if finished.status.success() {
            // It was over sooner than it could be killed.
            continue;
        }
        let names = scratch::names(&out);
        assert!(!names.contains(&"sample.bam".to_owned()), "{names:?}");
        let exchange = goes_on(&expected, &out, align_on_nodes(&out, NODES), aligned);
        let parts = resumed_partitions(&out);
        println!("killed after {count} {event}: {parts} parts were there; {exchange}");
        kept_parts += parts;
        stops += 1;
    }
    assert!(stops >= 3, "only {stops} heads were killed in time");
    assert!(kept_parts > 0, "all parts of the file were made again");
}

#[test]
fn an_interrupted_head_says_how_to_go_on_and_its_nodes_keep_what_they_have() {
    needs!("bwa");
    let expected = by_one_process();
    let scratch_space = scratch::directory("scratch-space");
    let temp = ["--temp", scratch_space.to_str().expect("it is UTF-8")];
    let out = scratch::directory("interrupted");
    let run = align_on_nodes(&out, NODES).args(temp);
    let (finished, aligned) = stopped(run, &out, libc::SIGTERM, "aligned", 8);
    assert_eq!(finished.status.code(), Some(INTERRUPTED), "{}", finished.report());
    assert!(aligned >= 8);
    let left: Vec<String> = scratch::names(&scratch_space);
    assert!(left.iter().any(|name| name.ends_with(".slices")), "{left:?}");
    goes_on(&expected, &out, align_on_nodes(&out, NODES).args(temp), aligned);
    assert_eq!(scratch::names(&scratch_space), Vec::<String>::new(), "scratch space is empty at the end");
}

#[test]
fn two_heads_do_not_share_a_run_and_one_process_does_not_go_on_with_it() {
    needs!("bwa");
    let out = scratch::directory("two-heads");
    let first = align_on_nodes(&out, 2).start();
    wait_for_children(first.process_id(), "node", 2);
    align_on_nodes(&out, 2).arg("--resume").run().refuses(&[MACHINE], &["another godwit"]);
    assert!(first.finish().status.success());
    let again = align_on_nodes(&out, 2).args(["--progress", "plain", "--resume"]).succeeds();
    assert!(again.stderr.contains("already complete"), "{}", again.report());

    let out = scratch::directory("other-place");
    stopped(align_on_nodes(&out, 2), &out, libc::SIGKILL, "aligned", 4);
    align(&out).arg("--resume").run().refuses(&[USAGE], &["spread over nodes", "--on"]);
    align_on_nodes(&out, 2).args(["--partitions", "5", "--resume"]).run().refuses(&[USAGE], &["--partitions"]);
    // Without --resume it starts over, and what nodes kept is not taken for the new run's.
    let run = align_on_nodes(&out, 2).succeeds();
    assert_eq!(number(&exchange(&out), "kept_blocks"), 0, "{}", run.report());
}

#[test]
fn other_numbers_of_nodes_go_on_with_what_there_is() {
    needs!("bwa");
    let expected = by_one_process();
    for nodes in [1, 2, 6] {
        let out = scratch::directory("other-nodes");
        let (_, aligned) = stopped(align_on_nodes(&out, NODES), &out, libc::SIGKILL, "aligned", 12);
        let run = align_on_nodes(&out, nodes).arg("--resume").run();
        assert_same(&expected, &out, &run);
        let exchange = exchange(&out);
        let kept = number(&exchange, "kept_blocks");
        println!("{nodes} nodes instead of {NODES}: {kept} of {aligned} blocks were there");
        // What more nodes left is taken over by fewer.
        assert!(kept + 1 >= aligned, "{exchange}");
    }
}

#[test]
fn what_was_damaged_meanwhile_is_aligned_again() {
    needs!("bwa");
    let expected = by_one_process();
    let out = scratch::directory("damaged");
    stopped(align_on_nodes(&out, 2), &out, libc::SIGKILL, "aligned", 10);
    let kept = out.join(".godwit/nodes");
    let name = scratch::names(&kept).into_iter().find(|name| name.ends_with(".slices")).expect("nodes kept slices");
    for node in scratch::names(&kept.join(&name)) {
        let path = kept.join(&name).join(node).join("slices");
        let mut bytes = fs::read(&path).expect("it can be read");
        let middle = bytes.len() / 2;
        bytes[middle..middle + 100].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(&path, bytes).expect("it can be written");
    }
    let run = align_on_nodes(&out, 2).arg("--resume").run();
    assert_same(&expected, &out, &run);
}

/// A run whose reads come through standard input.
pub(super) fn align_stdin(out: &Path, reads: &Path) -> Godwit {
    let sample = sample();
    let run = godwit().arg("align").arg("--reference").arg(sample.indexed_by_godwit()).args(["--reads", "-"]);
    let run =
        run.args(["--sample", "sample", "--block-bases", "50000", "--threads", "1", "--partitions", "12", "--out"]);
    run.arg(out).stdin(fs::File::open(reads).expect("it can be read"))
}

#[test]
fn reads_of_a_pipe_are_there_again_when_all_nodes_that_had_them_are_lost() {
    needs!("bwa");
    let sample = sample();
    let reads = &sample.lanes[0].reads[0];
    let [one, many] = ["stdin-one", "stdin-many"].map(scratch::directory);
    align_stdin(&one, reads).succeeds();
    let said = many.with_extension("said");
    let stderr = fs::File::create(&said).expect("a file can be made");
    let run = align_stdin(&many, reads).args(["--on", "local", "--nodes", "3", "--json"]).stderr(stderr).start();
    let nodes = wait_for_children(run.process_id(), "node", 3);
    wait_until_said(&said, "aligned", 4, &run);
    nodes[..2].iter().for_each(|node| signal(*node, libc::SIGKILL));
    let run = run.finish();
    assert!(run.status.success(), "{}", fs::read_to_string(&said).unwrap_or_default());
    for name in ["sample.bam", "sample.bam.bai", "sample.duplicates.txt"] {
        assert!(fs::read(one.join(name)).ok() == fs::read(many.join(name)).ok(), "{name}");
    }
}
