//! Which part of its input a resumed run reads: it starts at the last recorded block start before the first unfinished
//! block.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::processes::{send_signal, wait_for_children, wait_until_exited};
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::cluster::stop_at_event;
use super::resume::OUTPUTS;

const EXIT_USAGE: i32 = 2;

/// Returns a sample of two lanes of some blocks each, the first so long that plain text and BGZF have access points in
/// it.
fn sample() -> Arc<Sample> {
    let lanes = vec![9_000, 2_500];
    Sample::cached(&SampleSpec { seed: 41, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

fn decompressed_text(path: &Path) -> Vec<u8> {
    let (bytes, mut text) = (fs::read(path).expect("the sample is there"), Vec::new());
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    MultiGzDecoder::new(&bytes[..]).read_to_end(&mut text).expect("the sample is whole");
    text
}

/// The files of the sample compressed by a tool: two for each lane.
struct CompressedReads(Vec<[PathBuf; 2]>);

impl CompressedReads {
    fn compressed_by(extension: &str, compressed: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let directory = scratch::directory("reads");
        let file = |lane: usize, mate: usize| {
            let path = directory.join(format!("L{lane}_R{mate}.{extension}"));
            fs::write(&path, compressed(&decompressed_text(&sample().lanes[lane].reads[mate])))
                .expect("it can be written");
            path
        };
        Self((0..2).map(|lane| [0, 1].map(|mate| file(lane, mate))).collect())
    }

    fn uncompressed() -> Self {
        Self::compressed_by("fq", <[u8]>::to_vec)
    }

    fn gzip(level: u32) -> Self {
        Self::compressed_by("fq.gz", |text| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
            encoder.write_all(text).expect("memory takes all bytes");
            encoder.finish().expect("memory takes all bytes")
        })
    }

    fn compressed_by_tool(tool: &str, words: &[&str]) -> Self {
        let directory = scratch::directory("compressed");
        Self::compressed_by("fq.gz", |text| {
            let path = directory.join("text");
            fs::write(&path, text).expect("it can be written");
            let output = Tool::require(tool).command().args(words).arg(&path).output().expect("it runs");
            assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        })
    }

    fn align(&self, out: &Path) -> GodwitCommand {
        let command = godwit().arg("align").arg("--reference").arg(sample().godwit_indexed_reference());
        let command = self.0.iter().zip(&sample().lanes).fold(command, |command, (files, lane)| {
            command.arg("--reads").args(files).arg("--read-group").arg(&lane.read_group)
        });
        let words = ["--sample", "sample", "--block-bases", "250000", "--threads", "1", "--partitions", "4", "--json"];
        command.args(words).arg("--out").arg(out)
    }
}

/// Kills a run after it has reported `aligned` blocks as aligned.
fn kill_after_blocks(run: GodwitCommand, out: &Path, aligned: usize, nodes: bool) {
    let said = out.with_extension("said");
    let stderr = fs::File::create(&said).expect("a file can be made");
    let run = run.stderr(stderr).spawn();
    let others = if nodes { wait_for_children(run.process_id(), "node", 1) } else { Vec::new() };
    stop_at_event(&said, "aligned", aligned, &run);
    send_signal(run.process_id(), libc::SIGKILL);
    let finished = run.wait_with_output();
    assert!(finished.status.code().is_none(), "it was over before it could be killed\n{}", finished.describe());
    wait_until_exited(&others);
}

fn report(out: &Path) -> Value {
    let text = fs::read_to_string(out.join("run.json")).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Returns the offset in bytes from which each file of reads was read, and its size.
fn input_offsets(out: &Path) -> Vec<(Option<u64>, u64)> {
    let report = report(out);
    let inputs = report["inputs"].as_array().expect("there are inputs").iter().skip(1);
    inputs.map(|input| (input["read_from"].as_u64(), input["bytes"].as_u64().expect("files have a size"))).collect()
}

fn assert_same(expected: &Path, out: &Path) {
    for name in OUTPUTS {
        assert!(fs::read(expected.join(name)).expect("it is") == fs::read(out.join(name)).expect("it is"), "{name}");
    }
    let inputs = |out| report(out)["inputs"].as_array().expect("there are inputs").clone();
    for (expected, found) in inputs(expected).iter().zip(&inputs(out)) {
        assert_eq!(expected["blake3"], found["blake3"], "the checksum is of the whole file");
    }
}

#[test]
fn reading_goes_on_where_a_block_starts_however_the_files_are_compressed() {
    needs!("bwa", "bgzip", "gzip");
    let shapes = [
        ("plain", CompressedReads::uncompressed()),
        ("gzip -6", CompressedReads::compressed_by_tool("gzip", &["-6", "-c"])),
        ("gzip -1", CompressedReads::compressed_by_tool("gzip", &["-1", "-c"])),
        ("zlib-rs -9", CompressedReads::gzip(9)),
        ("bgzip", CompressedReads::compressed_by_tool("bgzip", &["-c"])),
    ];
    let whole = scratch::directory("whole");
    shapes[0].1.align(&whole).run_ok();
    for (shape, reads) in &shapes {
        let own = scratch::directory("own-whole");
        let first = reads.align(&own).run_ok();
        let blocks = first.stderr.matches("{\"event\":\"aligned\"").count();
        assert!(input_offsets(&own).iter().all(|(from, _)| from.is_none()), "{shape}");
        // Kill the run in the first lane, and in the second lane, after the first lane is finished.
        for aligned in [blocks * 6 / 10, blocks - 1] {
            let out = scratch::directory("killed");
            kill_after_blocks(reads.align(&out), &out, aligned, false);
            let resumed = reads.align(&out).arg("--resume").run_ok();
            let again = resumed.stderr.matches("{\"event\":\"aligned\"").count();
            assert!(again <= blocks - aligned + 1, "{shape}: {again} of {blocks} blocks were aligned again");
            assert_eq!(fs::read(own.join("sample.bam")).ok(), fs::read(whole.join("sample.bam")).ok(), "{shape}");
            assert_same(&own, &out);
            for (from, bytes) in &input_offsets(&out)[..2] {
                let from = from.unwrap_or_else(|| panic!("{shape}: read from the start after {aligned} of {blocks}"));
                assert!(from * 4 > *bytes, "{shape}: from {from} of {bytes} after {aligned} of {blocks}");
            }
        }
    }
}

#[test]
fn a_later_head_goes_on_reading_where_a_block_starts() {
    needs!("bwa", "gzip");
    let reads = CompressedReads::compressed_by_tool("gzip", &["-6", "-c"]);
    let whole = scratch::directory("whole");
    reads.align(&whole).run_ok();
    let on_nodes = |out: &Path| reads.align(out).args(["--on", "local", "--nodes", "2"]);
    let out = scratch::directory("head-killed");
    kill_after_blocks(on_nodes(&out), &out, 9, true);
    on_nodes(&out).arg("--resume").run_ok();
    assert_same(&whole, &out);
    assert!(input_offsets(&out)[0].0.is_some() && input_offsets(&out)[1].0.is_some(), "{}", report(&out));
}

#[test]
fn what_changed_before_a_start_is_noticed_and_compared_block_by_block() {
    needs!("bwa", "bgzip");
    let whole = scratch::directory("whole");
    let stored = CompressedReads::compressed_by_tool("bgzip", &["-l", "0", "-c"]);
    stored.align(&whole).run_ok();
    let blocks = report(&whole)["resumed"]["blocks"].as_u64();
    assert_eq!(blocks, Some(0));
    // Change the file after the bytes that identify it, and before the offset at which a resumed run continues to read.
    let behind = 1_200_000;
    for (what, reads) in [("time of a BGZF block", stored), ("base", CompressedReads::uncompressed())] {
        let out = scratch::directory("killed");
        kill_after_blocks(reads.align(&out), &out, 7, false);
        let path = &reads.0[0][0];
        let mut bytes = fs::read(path).expect("it is there");
        let changes_reads = what == "base";
        let at = match changes_reads {
            true => {
                let plus = behind + bytes[behind..].windows(3).position(|bytes| bytes == b"\n+\n").expect("a record");
                plus - 1
            }
            false => {
                4 + behind + bytes[behind..].windows(4).position(|bytes| bytes == [0x1f, 0x8b, 8, 4]).expect("a block")
            }
        };
        bytes[at] = if changes_reads && bytes[at] == b'A' { b'C' } else { b'A' };
        fs::write(path, bytes).expect("it can be written");
        let resumed = reads.align(&out).arg("--resume").run();
        if changes_reads {
            resumed.assert_rejected(&[EXIT_USAGE], &["cannot resume", "reads in block", "of lane 1"]);
            continue;
        }
        assert!(resumed.status.success(), "{}", resumed.describe());
        assert!(fs::read(whole.join("sample.bam")).ok() == fs::read(out.join("sample.bam")).ok());
        assert_eq!(input_offsets(&out)[0].0, None, "its blocks were compared from the first on");
    }
}

#[test]
fn damage_at_the_end_is_found_by_a_run_that_goes_on() {
    needs!("bwa", "gzip");
    let reads = CompressedReads::compressed_by_tool("gzip", &["-6", "-c"]);
    let path = &reads.0[0][0];
    let mut bytes = fs::read(path).expect("it is there");
    let crc = bytes.len() - 8;
    bytes[crc] ^= 1;
    fs::write(path, bytes).expect("it can be written");
    let out = scratch::directory("damaged");
    let first = reads.align(&out).run();
    let said = "is damaged near byte";
    first.assert_rejected(&[3], &[said, "incorrect data check"]);
    let line = |stderr: &str| {
        let line = stderr.lines().find(|line| line.contains(said))?;
        line.split_once(",\"seconds\"").map(|(message, _)| message.to_owned())
    };
    let again = reads.align(&out).arg("--resume").run();
    again.assert_rejected(&[3], &[said]);
    assert!(line(&again.stderr).is_some());
    assert_eq!(line(&again.stderr), line(&first.stderr), "the same record and byte");
}

#[test]
fn windows_that_were_lost_or_damaged_cost_time_and_nothing_else() {
    needs!("bwa", "gzip");
    let reads = CompressedReads::compressed_by_tool("gzip", &["-6", "-c"]);
    let whole = scratch::directory("whole");
    reads.align(&whole).run_ok();
    for lost in [true, false] {
        let out = scratch::directory("killed");
        kill_after_blocks(reads.align(&out), &out, 7, false);
        let windows = out.join(".godwit/windows");
        let bytes = fs::read(&windows).expect("it is there");
        assert!(!bytes.is_empty());
        fs::write(&windows, if lost { Vec::new() } else { vec![b'A'; bytes.len()] }).expect("it can be written");
        reads.align(&out).arg("--resume").run_ok();
        assert_same(&whole, &out);
        assert_eq!(input_offsets(&out)[0].0, None);
    }
}
