//! Workers support every option of one process: all files of a cluster run are, byte for byte, those of one process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use godwit_tests::binary::{GodwitCommand, GodwitProcess, godwit};
use godwit_tests::duplicate_options::{MarkingOptions, TaggingPolicy};
use godwit_tests::processes::{send_signal, wait_for_children};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sam::SamText;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, scratch};

use super::cluster::stop_at_event;
use super::cluster_resume::{exchange_report, number_field, stop_head_at_event};
use super::{aligners, bwa_identity, inputs};

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
/// Arguments with which a run has more blocks than workers and more partitions than shards.
const COMMON_ARGS: [&str; 4] = ["--threads", "1", "--partitions", "9"];

/// Returns a sample of two lanes of some blocks each, with barcodes as comments.
fn sample() -> Arc<Sample> {
    let lanes = vec![1_200, 700];
    Sample::cached(&SampleSpec { seed: 11, lanes, paired: true, alternate: false, comments: TitleComments::Tags })
}

fn align(marking: MarkingOptions, out: &Path) -> GodwitCommand {
    let aligner_args = vec!["-C".to_owned()];
    let options = AlignOptions { block_bases: 40_000, marking, aligner_args, ..AlignOptions::default() };
    bwa_identity::align(&sample(), &options, out).args(COMMON_ARGS)
}

#[test]
fn a_cluster_run_rejects_a_path_that_is_not_utf_8_with_advice() {
    needs!("bwa");
    use std::os::unix::ffi::OsStrExt;
    let out = scratch::directory("not-utf-8").join(std::ffi::OsStr::from_bytes(b"out\xff"));
    align(MarkingOptions::default(), &out).run_ok();
    let over = out.with_file_name(std::ffi::OsStr::from_bytes(b"over\xff"));
    let run = align(MarkingOptions::default(), &over).args(["--on", "local", "--nodes", "2"]).run();
    run.assert_rejected(&[EXIT_USAGE], &["UTF-8", "rename"]);
    assert_eq!(scratch::entry_names(&over), [] as [&str; 0]);
}

/// Returns every file of a run by its path, except those that contain times.
fn files(out: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![out.to_owned()];
    while let Some(directory) = directories.pop() {
        for name in scratch::entry_names(&directory) {
            let path = directory.join(&name);
            match path.is_dir() {
                true => directories.push(path),
                false if ["run.json", "report.html"].contains(&name.as_str()) => {}
                false => drop(files.insert(
                    path.strip_prefix(out).expect("it is below").to_owned(),
                    fs::read(&path).expect("it can be read"),
                )),
            }
        }
    }
    files
}

pub(super) fn assert_same_files(one: &Path, many: &Path) {
    let (expected, found) = (files(one), files(many));
    assert!(expected.contains_key(Path::new("sample.duplicates.txt")), "{} is empty", one.display());
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&expected), names(&found));
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{} differs: {} and {}", name.display(), one.display(), many.display());
    }
}

fn on_workers(command: GodwitCommand, nodes: usize) -> GodwitCommand {
    command.args(["--on", "local", "--nodes", &nodes.to_string()])
}

/// Runs a command in one process and in a cluster run, and compares the outputs. Returns the output directory of the
/// cluster run.
fn assert_workers_write_the_same(nodes: usize, command: impl Fn(&Path) -> GodwitCommand) -> PathBuf {
    let [one, many] = ["option-one", "option-many"].map(scratch::directory);
    command(&one).run_ok();
    on_workers(command(&many), nodes).run_ok();
    assert_same_files(&one, &many);
    many
}

#[test]
fn duplicates_by_barcode_and_template_and_the_tags_of_their_sets() {
    needs!("bwa");
    let sets = MarkingOptions { tag_set_members: true, tagging: TaggingPolicy::All, ..MarkingOptions::default() };
    let barcodes = MarkingOptions {
        barcode: Some("RX"),
        molecular_identifier: Some("MI"),
        tag_set_members: true,
        ..MarkingOptions::default()
    };
    let own =
        MarkingOptions { read_one_barcode: Some("RX"), read_two_barcode: Some("RX"), ..MarkingOptions::default() };
    let query = MarkingOptions {
        query_grouped: true,
        remove_sequencing_duplicates: true,
        tagging: TaggingPolicy::OpticalOnly,
        ..sets.clone()
    };
    let all = MarkingOptions { query_grouped: true, duplex_umi: true, ..barcodes.clone() };
    let mut told = Vec::new();
    for (marking, tags) in [
        (sets, &["\tDI:i:", "\tDS:i:3", "\tDT:Z:LB"][..]),
        (barcodes, &["\tDI:i:", "\tMI:Z:"]),
        (own, &[]),
        (query, &["\tDI:i:"]),
        (all, &["\tDI:i:", "\tMI:Z:"]),
    ] {
        let out = assert_workers_write_the_same(3, |out| align(marking.clone(), out));
        let text = SamText::read(&out.join("sample.bam")).to_text();
        assert!(tags.iter().all(|tag| text.contains(tag)), "{marking:?} left no {tags:?}");
        told.push(fs::read(out.join("sample.duplicates.txt")).expect("it is there"));
    }
    assert!(told.windows(2).all(|two| two[0] != two[1]), "some options changed nothing: this sample proves nothing");
}

#[test]
fn a_killed_head_is_gone_on_from_with_barcodes_and_whole_templates() {
    needs!("bwa");
    let barcodes = MarkingOptions {
        barcode: Some("RX"),
        molecular_identifier: Some("MI"),
        tag_set_members: true,
        ..MarkingOptions::default()
    };
    let query = MarkingOptions {
        query_grouped: true,
        tag_set_members: true,
        tagging: TaggingPolicy::All,
        ..MarkingOptions::default()
    };
    let both = MarkingOptions { query_grouped: true, duplex_umi: true, ..barcodes.clone() };
    let mut stops = 0;
    for (marking, count) in [(barcodes, 5), (query, 8), (both, 11)] {
        let [one, many] = ["kept-one", "kept-many"].map(scratch::directory);
        align(marking.clone(), &one).run_ok();
        let command = || on_workers(align(marking.clone(), &many), 3).arg("--json");
        let (finished, aligned) = stop_head_at_event(command(), &many, libc::SIGKILL, "aligned", count);
        if finished.status.success() {
            // The run ended before the test could kill it, so this attempt does not count.
            continue;
        }
        stops += 1;
        command().arg("--resume").run_ok();
        assert_same_files(&one, &many);
        let exchange = exchange_report(&many);
        assert!(number_field(&exchange, "kept_blocks") + 1 >= aligned, "{aligned} were aligned: {exchange}");
    }
    assert!(stops >= 2, "only {stops} heads were killed in time");
}

#[test]
fn a_barcode_that_is_none_is_refused_as_by_one_process() {
    needs!("bwa");
    let marking = MarkingOptions { barcode: Some("YQ"), ..MarkingOptions::default() };
    for nodes in [0, 2] {
        let out = scratch::directory("wrong-barcode");
        let command = align(marking.clone(), &out);
        let run = if nodes > 0 { on_workers(command, nodes) } else { command }.run();
        run.assert_rejected(&[EXIT_INPUT], &["tag YQ of the read", "it is not text"]);
    }
}

/// Starts a run and kills workers after the `count`th `event`. Returns how many workers the run reports as lost; it may
/// end before the kill.
fn kill_workers_after_event(
    command: GodwitCommand,
    nodes: usize,
    lost: usize,
    (event, count): (&str, usize),
    out: &Path,
) -> u64 {
    let said = out.with_extension("said");
    let stderr = fs::File::create(&said).expect("a file can be made");
    let run: GodwitProcess = on_workers(command, nodes).arg("--json").stderr(stderr).spawn();
    let processes = wait_for_children(run.process_id(), "node", nodes);
    stop_at_event(&said, event, count, &run);
    processes[..lost].iter().for_each(|node| send_signal(*node, libc::SIGKILL));
    send_signal(run.process_id(), libc::SIGCONT);
    let run = run.wait_with_output();
    assert!(run.status.success(), "{}\n{}", run.describe(), fs::read_to_string(&said).unwrap_or_default());
    let report = fs::read_to_string(out.join("run.json")).expect("it is there");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    report["exchange"]["lost_nodes"].as_u64().expect("it is a number")
}

#[test]
fn every_format_is_the_same_also_when_a_worker_is_lost() {
    needs!("bwa");
    let marking = MarkingOptions { tag_set_members: true, barcode: Some("RX"), ..MarkingOptions::default() };
    let command = |formats: &str, out: &Path| align(marking.clone(), out).args(["--format", formats]);
    assert_workers_write_the_same(2, |out| command("cram", out));
    let all = "bam,cram,parquet,arrow";
    let one = scratch::directory("formats-one");
    command(all, &one).run_ok();
    for (moment, is_early) in [(("aligned", 3), true), (("written", 2), false)] {
        let many = scratch::directory("formats-lost");
        let lost = kill_workers_after_event(command(all, &many), 3, 1, moment, &many);
        assert!(lost == 1 || !is_early, "the run was over too soon: nothing was tested");
        assert_same_files(&one, &many);
    }
}

#[test]
fn other_aligners_run_on_workers_too() {
    needs!("bwa", "minimap2");
    let spec = aligners::spec();
    for (aligner, arguments) in [("bwa-mem3", "-Y"), ("minimap2", "--MD -N 5")] {
        let sample = aligners::sample_with_index(&spec, aligner, "");
        let aligner_args = arguments.split_whitespace().map(str::to_owned).collect();
        let options = AlignOptions { block_bases: 50_000, aligner_args, ..AlignOptions::default() };
        let command =
            |out: &Path| bwa_identity::align(&sample, &options, out).args(COMMON_ARGS).args(["--aligner", aligner]);
        let one = scratch::directory("aligner-one");
        command(&one).run_ok();
        let many = scratch::directory("aligner-many");
        on_workers(command(&many), 2).run_ok();
        assert_same_files(&one, &many);
        let many = scratch::directory("aligner-lost");
        assert_eq!(kill_workers_after_event(command(&many), 3, 1, ("aligned", 2), &many), 1);
        assert_same_files(&one, &many);
    }
}

/// A script in place of bwa-mem3 that works only for the head and for workers with an even number.
const EVEN_WORKER_SCRIPT: &str =
    "#!/bin/sh\ncase \"$GODWIT_NODE\" in *[13579]) exit 1;; esac\nexec \"PROGRAM\" \"$@\"\n";

#[test]
fn workers_with_bwa_and_workers_with_bwa_mem3_write_the_bytes_of_one_process() {
    let sample = aligners::sample_with_index(&aligners::spec(), "bwa-mem3", "");
    let options = AlignOptions { block_bases: 20_000, ..AlignOptions::default() };
    let directory = scratch::directory("mixed-programs");
    let program = directory.join("godwit-bwa-mem3");
    let real = scratch::profile_directory().join("godwit-bwa-mem3");
    scratch::write_executable(&program, &EVEN_WORKER_SCRIPT.replace("PROGRAM", &real.display().to_string()));
    let command = |out: &Path| bwa_identity::align(&sample, &options, out).args(COMMON_ARGS);
    let one = scratch::directory("mixed-one");
    command(&one).args(["--aligner", "bwa"]).run_ok();
    let many = scratch::directory("mixed-many");
    on_workers(command(&many).env("GODWIT_BWA_MEM3", &program), 4).run_ok();
    assert_same_files(&one, &many);
    let report = std::fs::read_to_string(many.join("run.json")).expect("a run leaves a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    let aligners = report["exchange"]["aligners"].as_object().expect("each worker has an aligner");
    let with = |text: &str| aligners.values().filter(|aligner| *aligner == text).count();
    assert_eq!((with("bwa 0.7.17"), with("bwa-mem3 0.15.0")), (2, 2), "{aligners:?}");
    assert_eq!((&report["aligner"]["name"], &report["aligner"]["choice"]), (&"bwa, bwa-mem3".into(), &"auto".into()));
}

/// Returns an `align` command line without `--reads`.
fn align_reads(out: &Path) -> GodwitCommand {
    let sample = Sample::two_lanes();
    let command = godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference()).arg("--out").arg(out);
    command.args(["--sample", "sample"]).args(COMMON_ARGS)
}

#[test]
fn workers_receive_reads_from_every_kind_of_input() {
    needs!("bwa", "samtools", "fastp");
    let sample = Sample::two_lanes();
    let directory = scratch::directory("unaligned");
    let lanes = [sample.lanes[1].clone()];
    let [bam, cram] = ["bam", "cram"].map(|format| inputs::unaligned_bam(&directory, &lanes, format));
    let words = ["--keep-tags", "XN,RX", "--barcode-tag", "RX", "--tag-duplicate-set-members"];
    let blocks = ["--block-bases", "40000"];
    assert_workers_write_the_same(2, |out| align_reads(out).args(blocks).arg("--reads").arg(&bam).args(words));
    assert_workers_write_the_same(2, |out| align_reads(out).args(blocks).arg("--reads").arg(&cram));
    let trimmed = |out: &Path| {
        let command = align_reads(out).args(blocks).arg("--reads").args(&sample.lanes[1].reads);
        command.args(["--trim", "fastp", "--trim-args", "--cut_tail --cut_mean_quality 28 --length_required 60"])
    };
    let [one, many] = ["trim-one", "trim-many"].map(scratch::directory);
    trimmed(&one).run_ok();
    on_workers(trimmed(&many), 2).run_ok();
    for directory in [&one, &many] {
        // Exclude the reports of fastp, which contain the paths of its files, and the manifest, which contains their
        // checksums.
        let names = scratch::entry_names(directory).into_iter();
        let telling: Vec<String> = names.filter(|name| name.contains("fastp") || name.contains("manifest")).collect();
        assert_eq!(telling.len(), 3, "{telling:?}");
        telling.iter().for_each(|name| fs::remove_file(directory.join(name)).expect("it is there"));
    }
    assert_same_files(&one, &many);
}

#[test]
fn reads_from_a_pipe_survive_the_loss_of_both_workers_that_hold_their_records() {
    needs!("bwa");
    let path = inputs::interleaved_fastq(&scratch::directory("piped"));
    // Use small blocks, so that some blocks are finished when the workers are killed.
    let words = ["--block-bases", "8000", "--interleaved", "--reads", "-"];
    let read = |out: &Path| {
        let mut cat = Command::new("cat").arg(&path).stdout(Stdio::piped()).spawn().expect("cat can be started");
        let reads = cat.stdout.take().expect("it is piped");
        (align_reads(out).args(words).stdin(reads), cat)
    };
    let [one, many] = ["pipe-one", "pipe-many"].map(scratch::directory);
    let (command, mut cat) = read(&one);
    command.run_ok();
    cat.wait().expect("cat ends");
    // Kill two of three workers, so that both copies of some slices are lost.
    let (command, mut cat) = read(&many);
    assert_eq!(kill_workers_after_event(command, 3, 2, ("aligned", 8), &many), 2);
    cat.wait().expect("cat ends");
    assert_same_files(&one, &many);
}
