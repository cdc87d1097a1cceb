//! Resuming cluster runs after the head was lost: the output has the same bytes, and only the blocks in flight are
//! aligned again.

use std::fs;
use std::path::Path;

use godwit_tests::binary::{GodwitCommand, GodwitOutput, godwit};
use godwit_tests::processes::{send_signal, wait_for_children, wait_until_exited};
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::cluster::{align, align_on_workers, assert_same, by_one_process, sample, stop_at_event};

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_INTERRUPTED: i32 = 130;
const WORKERS: usize = 4;
/// Blocks that the workers may have had in flight when their head was lost: three of each, and one that was being
/// reported.
const MAX_BLOCKS_IN_FLIGHT: u64 = 4 * WORKERS as u64;

/// Runs a command and sends its head a signal at the `count`th `event`. Returns the output and the number of `aligned`
/// events.
pub(super) fn stop_head_at_event(
    run: GodwitCommand,
    out: &Path,
    how: i32,
    event: &str,
    count: usize,
) -> (GodwitOutput, u64) {
    let said = out.with_extension("said");
    let stderr = fs::File::create(&said).expect("a file can be made");
    let run = run.stderr(stderr).spawn();
    let nodes = wait_for_children(run.process_id(), "node", 1);
    stop_at_event(&said, event, count, &run);
    send_signal(run.process_id(), how);
    send_signal(run.process_id(), libc::SIGCONT);
    let finished = run.wait_with_output();
    wait_until_exited(&nodes);
    let said = fs::read_to_string(&said).expect("it was written");
    (finished, said.matches("{\"event\":\"aligned\"").count() as u64)
}

pub(super) fn exchange_report(out: &Path) -> Value {
    let report = fs::read_to_string(out.join("run.json")).expect("it is there");
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    report["exchange"].clone()
}

pub(super) fn number_field(exchange: &Value, name: &str) -> u64 {
    exchange[name].as_u64().unwrap_or_else(|| panic!("no {name} in {exchange}"))
}

/// Returns the number of partitions that workers had built before the head was restarted.
fn resumed_partitions(out: &Path) -> u64 {
    let report = fs::read_to_string(out.join("run.json")).expect("it is there");
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    number_field(&report["resumed"], "partitions")
}

/// Resumes a run, and checks that only what was in flight is aligned again.
fn assert_resumes(expected: &Path, out: &Path, run: GodwitCommand, aligned_before: u64) -> Value {
    let run = run.arg("--resume").run();
    assert_same(expected, out, &run);
    let exchange = exchange_report(out);
    let (blocks, kept) = (number_field(&exchange, "blocks"), number_field(&exchange, "kept_blocks"));
    // Subtract the blocks that were aligned twice because their first worker was slow.
    let alignments = number_field(&exchange, "alignments") - number_field(&exchange, "stragglers");
    assert!(kept + 1 >= aligned_before, "{aligned_before} were aligned\n{exchange}\n{}", run.describe());
    assert!(alignments <= blocks - kept, "{exchange}\n{}", run.describe());
    assert!(aligned_before + alignments <= blocks + MAX_BLOCKS_IN_FLIGHT, "{exchange}");
    exchange
}

#[test]
fn a_head_that_is_killed_at_any_stage_is_gone_on_from() {
    needs!("bwa");
    let expected = by_one_process();
    let blocks = number_field(
        &{
            let out = scratch::directory("counted");
            align_on_workers(&out, WORKERS).run_ok();
            exchange_report(&out)
        },
        "blocks",
    );
    // Kill the head early and late in the alignment, while workers exchange the last slices, and while the output is
    // written.
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
        let (finished, aligned) =
            stop_head_at_event(align_on_workers(&out, WORKERS), &out, libc::SIGKILL, event, count);
        if finished.status.success() {
            // The run ended before the test could kill it, so this attempt does not count.
            continue;
        }
        let names = scratch::entry_names(&out);
        assert!(!names.contains(&"sample.bam".to_owned()), "{names:?}");
        let exchange = assert_resumes(&expected, &out, align_on_workers(&out, WORKERS), aligned);
        let parts = resumed_partitions(&out);
        println!("killed after {count} {event}: {parts} parts were there; {exchange}");
        kept_parts += parts;
        stops += 1;
    }
    assert!(stops >= 3, "only {stops} heads were killed in time");
    assert!(kept_parts > 0, "all parts of the file were made again");
}

#[test]
fn an_interrupted_head_reports_how_to_resume_and_its_workers_keep_their_checkpoints() {
    needs!("bwa");
    let expected = by_one_process();
    let scratch_space = scratch::directory("scratch-space");
    let temp = ["--temp", scratch_space.to_str().expect("it is UTF-8")];
    let out = scratch::directory("interrupted");
    let run = align_on_workers(&out, WORKERS).args(temp);
    let (finished, aligned) = stop_head_at_event(run, &out, libc::SIGTERM, "aligned", 8);
    assert_eq!(finished.status.code(), Some(EXIT_INTERRUPTED), "{}", finished.describe());
    assert!(aligned >= 8);
    let left: Vec<String> = scratch::entry_names(&scratch_space);
    assert!(left.iter().any(|name| name.ends_with(".slices")), "{left:?}");
    assert_resumes(&expected, &out, align_on_workers(&out, WORKERS).args(temp), aligned);
    assert_eq!(scratch::entry_names(&scratch_space), Vec::<String>::new(), "scratch space is empty at the end");
}

#[test]
fn two_heads_do_not_share_a_run_and_one_process_does_not_go_on_with_it() {
    needs!("bwa");
    let out = scratch::directory("two-heads");
    let first = align_on_workers(&out, 2).spawn();
    wait_for_children(first.process_id(), "node", 2);
    align_on_workers(&out, 2).arg("--resume").run().assert_rejected(&[EXIT_MACHINE], &["another godwit"]);
    assert!(first.wait_with_output().status.success());
    let again = align_on_workers(&out, 2).args(["--progress", "plain", "--resume"]).run_ok();
    assert!(again.stderr.contains("already complete"), "{}", again.describe());

    let out = scratch::directory("other-place");
    stop_head_at_event(align_on_workers(&out, 2), &out, libc::SIGKILL, "aligned", 4);
    align(&out).arg("--resume").run().assert_rejected(&[EXIT_USAGE], &["was a cluster run", "--on"]);
    align_on_workers(&out, 2)
        .args(["--partitions", "5", "--resume"])
        .run()
        .assert_rejected(&[EXIT_USAGE], &["--partitions"]);
    // Without --resume, the run starts from the beginning and does not use the slices of the earlier run.
    let run = align_on_workers(&out, 2).run_ok();
    assert_eq!(number_field(&exchange_report(&out), "kept_blocks"), 0, "{}", run.describe());
}

#[test]
fn other_numbers_of_workers_resume_from_the_checkpoints() {
    needs!("bwa");
    let expected = by_one_process();
    for nodes in [1, 2, 6] {
        let out = scratch::directory("other-nodes");
        let (_, aligned) = stop_head_at_event(align_on_workers(&out, WORKERS), &out, libc::SIGKILL, "aligned", 12);
        let run = align_on_workers(&out, nodes).arg("--resume").run();
        assert_same(&expected, &out, &run);
        let exchange = exchange_report(&out);
        let kept = number_field(&exchange, "kept_blocks");
        println!("{nodes} nodes instead of {WORKERS}: {kept} of {aligned} blocks were there");
        // A resumed run with fewer workers keeps the slices of all earlier workers.
        assert!(kept + 1 >= aligned, "{exchange}");
    }
}

#[test]
fn what_was_damaged_meanwhile_is_aligned_again() {
    needs!("bwa");
    let expected = by_one_process();
    let out = scratch::directory("damaged");
    stop_head_at_event(align_on_workers(&out, 2), &out, libc::SIGKILL, "aligned", 10);
    let kept = out.join(".godwit/nodes");
    let name =
        scratch::entry_names(&kept).into_iter().find(|name| name.ends_with(".slices")).expect("nodes kept slices");
    for node in scratch::entry_names(&kept.join(&name)) {
        let path = kept.join(&name).join(node).join("slices");
        let mut bytes = fs::read(&path).expect("it can be read");
        let middle = bytes.len() / 2;
        bytes[middle..middle + 100].iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(&path, bytes).expect("it can be written");
    }
    let run = align_on_workers(&out, 2).arg("--resume").run();
    assert_same(&expected, &out, &run);
}

/// Returns a cluster run that reads from standard input.
pub(super) fn align_stdin(out: &Path, reads: &Path) -> GodwitCommand {
    let sample = sample();
    let run = godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference()).args(["--reads", "-"]);
    let run =
        run.args(["--sample", "sample", "--block-bases", "50000", "--threads", "1", "--partitions", "12", "--out"]);
    run.arg(out).stdin(fs::File::open(reads).expect("it can be read"))
}

#[test]
fn reads_from_a_pipe_are_sent_again_when_all_workers_that_had_them_are_lost() {
    needs!("bwa");
    let sample = sample();
    let reads = &sample.lanes[0].reads[0];
    let [one, many] = ["stdin-one", "stdin-many"].map(scratch::directory);
    align_stdin(&one, reads).run_ok();
    let said = many.with_extension("said");
    let stderr = fs::File::create(&said).expect("a file can be made");
    let run = align_stdin(&many, reads).args(["--on", "local", "--nodes", "3", "--json"]).stderr(stderr).spawn();
    let nodes = wait_for_children(run.process_id(), "node", 3);
    stop_at_event(&said, "aligned", 4, &run);
    nodes[..2].iter().for_each(|node| send_signal(*node, libc::SIGKILL));
    send_signal(run.process_id(), libc::SIGCONT);
    let run = run.wait_with_output();
    assert!(run.status.success(), "{}", fs::read_to_string(&said).unwrap_or_default());
    for name in ["sample.bam", "sample.bam.bai", "sample.duplicates.txt"] {
        assert!(fs::read(one.join(name)).ok() == fs::read(many.join(name)).ok(), "{name}");
    }
}
