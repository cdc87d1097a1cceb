//! Sources of reads: interleaved FASTQ, SAM and BAM of reads, pipes, stdin, and fastp before the aligner.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::processes::{send_signal, wait_until_exited, wait_until_idle};
use godwit_tests::reference_pipeline::{AlignOptions, Lane, run_reference_pipeline};
use godwit_tests::sam::{self, SamText};
use godwit_tests::sample::Sample;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{metrics, needs, needs_picard, scratch};

const BLOCK_BASES: &str = "50000";

fn options() -> AlignOptions {
    AlignOptions { block_bases: 50_000, ..AlignOptions::default() }
}

/// Returns a command line without its reads.
fn align(out: &Path) -> GodwitCommand {
    let sample = Sample::two_lanes();
    let command = godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference()).arg("--out").arg(out);
    command.args(["--sample", "sample", "--block-bases", BLOCK_BASES, "--threads", "2"])
}

/// Compares the output of godwit with the reference pipeline on these lanes.
fn assert_same_as_reference(lanes: &[Lane], options: &AlignOptions, out: &Path) {
    let expected = run_reference_pipeline(&Sample::two_lanes().reference, lanes, options);
    sam::assert_same(&expected.bam, &out.join("sample.bam"));
    metrics::assert_same(&expected.metrics.expect("duplicates were marked"), &out.join("sample.duplicates.txt"));
}

/// Returns the records of a FASTQ text, four lines each.
fn records(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).expect("the sample was written as text");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.chunks(4).map(<[String]>::to_vec).collect()
}

/// Writes the second lane, which is plain text, as one interleaved file.
pub(super) fn interleaved_fastq(directory: &Path) -> PathBuf {
    let lane = &Sample::two_lanes().lanes[1];
    let mates = records(&lane.reads[0]).into_iter().zip(records(&lane.reads[1]));
    let text: Vec<String> = mates.flat_map(|(one, two)| [one, two].concat()).collect();
    let path = directory.join("both.fastq");
    std::fs::write(&path, text.join("\n") + "\n").expect("the scratch directory can be written to");
    path
}

/// Writes the reads of the lanes as one unaligned BAM with the read groups of the lanes, and a barcode for each pair.
pub(super) fn unaligned_bam(directory: &Path, lanes: &[Lane], format: &str) -> PathBuf {
    let mut text = String::from("@HD\tVN:1.6\tSO:unsorted\n@CO\tmade for a test\n");
    text += &lanes.iter().map(|lane| lane.read_group.replace("\\t", "\t") + "\n").collect::<String>();
    for lane in lanes {
        let id = lane.read_group.split("ID:").nth(1).and_then(|rest| rest.split('\\').next()).expect("it has an ID");
        let mates = records(&lane.reads[0]).into_iter().zip(records(&lane.reads[1]));
        for (pair, (one, two)) in mates.enumerate() {
            let name = one[0][1..].split(' ').next().unwrap_or_default().trim_end_matches("/1").to_owned();
            let line = |flag: u16, read: &[String]| {
                let tags = format!("RG:Z:{id}\tRX:Z:ACG-T{}\tXN:i:{pair}", "ACGT".as_bytes()[pair % 4] as char);
                format!("{name}\t{flag}\t*\t0\t0\t*\t*\t0\t0\t{}\t{}\t{tags}\n", read[1], read[3])
            };
            // Write read 2 before read 1 in some pairs, because both orders are valid.
            let (first, second) = (line(77, &one), line(141, &two));
            text += &if pair % 3 == 0 { second + &first } else { first + &second };
        }
    }
    let plain = directory.join("reads.sam");
    std::fs::write(&plain, text).expect("the scratch directory can be written to");
    if format == "sam" {
        return plain;
    }
    let packed = directory.join(format!("reads.{format}"));
    let kind = format!("--output-fmt={format}");
    let words = ["view", "--no-PG", kind.as_str(), "-o"].map(std::ffi::OsStr::new);
    Tool::require("samtools").run(words.into_iter().chain([packed.as_os_str(), plain.as_os_str()]));
    packed
}

/// Returns two plain-text lanes with different read groups: the second lane of the sample, and a lane made of its
/// reads.
fn two_lanes() -> Vec<Lane> {
    let lane = Sample::two_lanes().lanes[1].clone();
    let directory = scratch::directory("third-lane");
    let reads = [0, 1].map(|mate| {
        let path = directory.join(format!("R{mate}.fastq"));
        let half = records(&lane.reads[mate]).into_iter().step_by(2);
        let renamed = half.flat_map(|mut record| {
            record[0].insert(1, 'h');
            record
        });
        let text: Vec<String> = renamed.collect();
        std::fs::write(&path, text.join("\n") + "\n").expect("the scratch directory can be written to");
        path
    });
    let other = Lane { reads: reads.to_vec(), read_group: "@RG\\tID:half\\tSM:sample\\tLB:libH".to_owned() };
    vec![lane, other]
}

#[test]
fn interleaved_reads_come_out_as_those_of_two_files() {
    needs!("bwa");
    needs_picard!();
    let lane = &Sample::two_lanes().lanes[1];
    let directory = scratch::directory("interleaved");
    let path = interleaved_fastq(&directory);
    let words = ["--interleaved", "--read-group", &lane.read_group];
    let out = directory.join("file");
    align(&out).args(words).arg("--reads").arg(&path).run_ok();
    assert_same_as_reference(std::slice::from_ref(lane), &options(), &out);
    let piped = directory.join("stdin");
    let mut cat = Command::new("cat").arg(&path).stdout(Stdio::piped()).spawn().expect("cat can be started");
    let stdin = cat.stdout.take().expect("it is piped");
    align(&piped).args(words).args(["--reads", "-"]).stdin(stdin).run_ok();
    cat.wait().expect("cat ends");
    let redirected = directory.join("redirected");
    let stdin = File::open(&path).expect("it was written");
    align(&redirected).args(words).args(["--reads", "-"]).stdin(stdin).run_ok();
    for other in [piped, redirected] {
        let same = std::fs::read(out.join("sample.bam")).ok() == std::fs::read(other.join("sample.bam")).ok();
        assert!(same, "{} has other bytes", other.display());
    }
    // The same file as single reads is another job.
    let single = align(&out).args(["--read-group", &lane.read_group, "--resume", "--reads"]).arg(&path);
    single.run().assert_rejected(&[2], &["file 1 of lane 1 was", "interleaved", "--resume"]);
}

#[test]
fn interleaved_reads_out_of_step_are_refused() {
    needs!("bwa");
    let directory = scratch::directory("out-of-step");
    let path = interleaved_fastq(&directory);
    let mut lines: Vec<String> =
        std::fs::read_to_string(&path).expect("it was written").lines().map(str::to_owned).collect();
    lines.drain(40..44);
    for (name, lines, words) in
        [("middle.fastq", &lines[..], "record 12 (line 45)"), ("end.fastq", &lines[..36], "no mate")]
    {
        let path = directory.join(name);
        std::fs::write(&path, lines.join("\n") + "\n").expect("the scratch directory can be written to");
        let finished = align(&directory.join("out")).arg("--interleaved").arg("--reads").arg(&path).run();
        finished.assert_rejected(&[3], &[name, words]);
    }
}

#[test]
fn a_pipe_of_each_mate_is_read_as_the_files_are() {
    needs!("bwa");
    needs_picard!();
    let lane = &Sample::two_lanes().lanes[0];
    let out = scratch::directory("pipes");
    let script = format!(
        "exec {:?} align --reference {:?} --out {:?} --sample sample --block-bases {BLOCK_BASES} --read-group '{}' \
         --reads <(cat {:?}) <(zcat {:?})",
        godwit_tests::binary::path(),
        Sample::two_lanes().godwit_indexed_reference(),
        out,
        lane.read_group,
        lane.reads[0],
        lane.reads[1]
    );
    run_checked(Command::new("bash").arg("-c").arg(script));
    assert_same_as_reference(std::slice::from_ref(lane), &options(), &out);
}

#[test]
fn unaligned_sam_bam_and_cram_give_what_samtools_fastq_and_bwa_give() {
    needs!("bwa");
    needs!("samtools");
    needs_picard!();
    let directory = scratch::directory("unaligned");
    let lanes = two_lanes();
    // Extract the FASTQ files of each read group with samtools, as input for bwa.
    let fastq: Vec<Lane> = lanes
        .iter()
        .enumerate()
        .map(|(number, lane)| {
            let bam = unaligned_bam(&scratch::directory("one-group"), std::slice::from_ref(lane), "bam");
            let reads = [1, 2].map(|mate| directory.join(format!("{number}_{mate}.fastq")));
            let words = ["fastq", "-0", "/dev/null", "-1"].map(std::ffi::OsStr::new).into_iter();
            let words = words.chain([reads[0].as_os_str(), "-2".as_ref(), reads[1].as_os_str(), bam.as_os_str()]);
            Tool::require("samtools").run(words);
            Lane { reads: reads.to_vec(), read_group: lane.read_group.clone() }
        })
        .collect();
    for format in ["bam", "sam", "cram"] {
        let out = directory.join(format);
        align(&out).arg("--reads").arg(unaligned_bam(&directory, &lanes, format)).run_ok();
        assert_same_as_reference(&fastq, &options(), &out);
    }
    let out = directory.join("stdin");
    let one = unaligned_bam(&scratch::directory("one-group"), &lanes[..1], "bam");
    let mut cat = Command::new("cat").arg(one).stdout(Stdio::piped()).spawn().expect("cat can be started");
    align(&out).args(["--reads", "-"]).stdin(cat.stdout.take().expect("it is piped")).run_ok();
    cat.wait().expect("cat ends");
    assert_same_as_reference(&fastq[..1], &options(), &out);
}

#[test]
fn tags_that_are_kept_are_those_of_samtools_fastq_and_bwa_with_comments() {
    needs!("bwa");
    needs!("samtools");
    needs_picard!();
    let directory = scratch::directory("kept-tags");
    let lanes = [Sample::two_lanes().lanes[1].clone()];
    let bam = unaligned_bam(&directory, &lanes, "bam");
    let reads = [1, 2].map(|mate| directory.join(format!("{mate}.fastq")));
    let words = ["fastq", "-T", "XN,RX", "-0", "/dev/null", "-1"].map(std::ffi::OsStr::new).into_iter();
    Tool::require("samtools").run(words.chain([
        reads[0].as_os_str(),
        "-2".as_ref(),
        reads[1].as_os_str(),
        bam.as_os_str(),
    ]));
    let lane = Lane { reads: reads.to_vec(), read_group: lanes[0].read_group.clone() };
    let out = directory.join("out");
    align(&out).arg("--reads").arg(&bam).args(["--keep-tags", "XN,RX"]).run_ok();
    assert_same_as_reference(&[lane], &AlignOptions { aligner_args: vec!["-C".into()], ..options() }, &out);
    assert!(SamText::read(&out.join("sample.bam")).records.iter().all(|record| record.contains("\tRX:Z:ACG-T")));
}

#[test]
fn aligned_reads_grouped_by_name_are_turned_back_as_samtools_does() {
    needs!("bwa");
    needs!("samtools");
    needs_picard!();
    let directory = scratch::directory("realigned");
    let lane = &Sample::two_lanes().lanes[1];
    let expected = run_reference_pipeline(&Sample::two_lanes().reference, std::slice::from_ref(lane), &options());
    let grouped = directory.join("grouped.bam");
    let words = ["collate", "--no-PG", "-o"].map(std::ffi::OsStr::new).into_iter();
    Tool::require("samtools").run(words.chain([grouped.as_os_str(), expected.bam.as_os_str()]));
    let reads = [1, 2].map(|mate| directory.join(format!("{mate}.fastq")));
    let words = ["fastq", "-0", "/dev/null", "-1"].map(std::ffi::OsStr::new).into_iter();
    let words = words.chain([reads[0].as_os_str(), "-2".as_ref(), reads[1].as_os_str(), grouped.as_os_str()]);
    Tool::require("samtools").run(words);
    // Write CRAM with differences from an external reference, and CRAM with an embedded reference.
    let as_cram = |name: &str, kind: &str| {
        let (cram, sample) = (directory.join(name), Sample::two_lanes());
        let words = ["view", "--no-PG", "-O", kind, "-T"].map(std::ffi::OsStr::new).into_iter();
        let words = words.chain([sample.reference.as_os_str(), "-o".as_ref(), cram.as_os_str(), grouped.as_os_str()]);
        Tool::require("samtools").run(words);
        cram
    };
    let crams = [as_cram("grouped.cram", "cram"), as_cram("whole.cram", "cram,no_ref=1")];
    let fastq = [Lane { reads: reads.to_vec(), read_group: lane.read_group.clone() }];
    for (number, grouped) in [&grouped, &crams[0], &crams[1]].into_iter().enumerate() {
        let out = directory.join(format!("out-{number}"));
        align(&out).arg("--reads").arg(grouped).run_ok();
        assert_same_as_reference(&fastq, &options(), &out);
    }
    // In a file sorted by coordinate, mates are not adjacent, so it must be rejected.
    let finished = align(&directory.join("sorted")).arg("--reads").arg(&expected.bam).run();
    finished.assert_rejected(&[3], &["record ", "samtools collate"]);
}

#[test]
fn inputs_that_make_no_sense_are_refused_with_a_way_out() {
    needs!("bwa");
    needs!("samtools");
    let directory = scratch::directory("no-sense");
    let lane = &Sample::two_lanes().lanes[1];
    let bam = unaligned_bam(&directory, std::slice::from_ref(lane), "bam");
    let cram = unaligned_bam(&directory, std::slice::from_ref(lane), "cram");
    let out = directory.join("out");
    let run =
        |words: &[&dyn AsRef<std::ffi::OsStr>]| words.iter().fold(align(&out), |command, word| command.arg(word)).run();
    run(&[&"--reads", &cram, &lane.reads[1]]).assert_rejected(&[2], &["reads.cram", "give it without a second file"]);
    let whole = std::fs::read(&cram).expect("samtools wrote it");
    std::fs::write(&cram, &whole[..whole.len() - 40]).expect("it can be written to");
    run(&[&"--reads", &cram]).assert_rejected(&[3], &["reads.cram", "truncated"]);
    run(&[&"--reads", &bam, &lane.reads[1]]).assert_rejected(&[2], &["reads.bam", "give it without a second file"]);
    run(&[&"--reads", &lane.reads[0], &lane.reads[1], &"--interleaved"]).assert_rejected(&[2], &["--interleaved"]);
    run(&[&"--reads", &"-", &"-"]).assert_rejected(&[2], &["/dev/stdin"]);
    run(&[&"--reads", &"-", &"--reads", &"/dev/fd/0"]).assert_rejected(&[2], &["same"]);
    run(&[&"--reads", &lane.reads[0], &"--keep-tags", &"RX"]).assert_rejected(&[2], &["--keep-tags"]);
    run(&[&"--reads", &bam, &"--trim", &"fastp"]).assert_rejected(&[2, 4], &[]);
}

#[test]
fn a_bam_of_reads_cut_at_a_block_edge_is_refused() {
    needs!("bwa");
    needs!("samtools");
    let directory = scratch::directory("cut");
    let bam = unaligned_bam(&directory, &Sample::two_lanes().lanes[1..2], "bam");
    let bytes = std::fs::read(&bam).expect("samtools wrote it");
    let cut = directory.join("cut.bam");
    std::fs::write(&cut, &bytes[..bytes.len() - 28]).expect("the scratch directory can be written to");
    align(&directory.join("out")).arg("--reads").arg(&cut).run().assert_rejected(&[3], &["cut.bam", "truncated"]);
}

#[test]
fn missing_qualities_are_those_of_samtools_fastq_and_reads_without_bases_are_kept() {
    needs!("bwa", "samtools");
    let directory = scratch::directory("missing-qualities");
    let reads = records(&Sample::two_lanes().lanes[1].reads[0]);
    let line = |name: &str, bases: &str| format!("{name}\t4\t*\t0\t0\t*\t*\t0\t0\t{bases}\t*\n");
    let mut text: String = reads[..20].iter().enumerate().map(|(at, read)| line(&format!("r{at}"), &read[1])).collect();
    let view = |bam: &Path| {
        let printed = Tool::require("samtools").run(["view".as_ref(), bam.as_os_str()]).stdout;
        let mut lines: Vec<String> =
            String::from_utf8(printed).expect("samtools prints text").lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let aligned = |path: &Path| {
        let out = directory.join("out").join(path.file_name().expect("it is a file"));
        align(&out).args(["--read-group", "@RG\\tID:x\\tSM:sample", "--reads"]).arg(path).run_ok();
        view(&out.join("sample.bam"))
    };
    let (plain, fastq) = (directory.join("reads.sam"), directory.join("reads.fastq"));
    std::fs::write(&plain, format!("@HD\tVN:1.6\tSO:unsorted\n{text}"))
        .expect("the scratch directory can be written to");
    let printed = Tool::require("samtools").run(["fastq".as_ref(), plain.as_os_str()]).stdout;
    std::fs::write(&fastq, printed).expect("the scratch directory can be written to");
    let expected = aligned(&fastq);
    assert_eq!(aligned(&plain), expected);
    // samtools drops this read, and godwit keeps it.
    text += &line("none", "*");
    let empty = directory.join("empty.sam");
    std::fs::write(&empty, format!("@HD\tVN:1.6\tSO:unsorted\n{text}"))
        .expect("the scratch directory can be written to");
    let (kept, others): (Vec<String>, Vec<String>) =
        aligned(&empty).into_iter().partition(|line| line.starts_with("none\t"));
    assert_eq!(others, expected);
    assert!(kept.len() == 1 && kept[0].contains("\t*\t*\t"), "{kept:?}");
}

#[test]
fn markdup_reads_sam_and_bam_from_stdin() {
    needs!("samtools");
    let directory = scratch::directory("markdup-stdin");
    let (text, packed) = (directory.join("in.sam"), directory.join("in.bam"));
    std::fs::write(&text, godwit_tests::sam_fuzzer::generate_sam(5).to_text())
        .expect("the scratch directory can be written to");
    Tool::require("samtools").run(["view".as_ref(), "-bo".as_ref(), packed.as_os_str(), text.as_os_str()]);
    let marked = |name: &str, input: &str, stdin: Stdio| {
        let out = directory.join(name);
        godwit().args(["markdup", input, "--out"]).arg(&out).stdin(stdin).run_ok();
        std::fs::read(out).expect("it was written")
    };
    for (name, path) in [("sam", &text), ("bam", &packed)] {
        let from_file = marked(&format!("{name}.bam.bam"), &path.to_string_lossy(), Stdio::null());
        let mut cat = Command::new("cat").arg(path).stdout(Stdio::piped()).spawn().expect("cat can be started");
        let pipe = cat.stdout.take().expect("it is piped");
        assert!(marked(&format!("{name}.pipe.bam"), "-", pipe.into()) == from_file, "{name} through a pipe");
        cat.wait().expect("cat ends");
        let file = File::open(path).expect("it was written");
        assert!(marked(&format!("{name}.stdin.bam"), "-", file.into()) == from_file, "{name} on stdin");
    }
}

#[test]
fn a_run_that_waits_for_stdin_ends_when_told_to() {
    needs!("bwa");
    let directory = scratch::directory("waiting");
    let lane = &Sample::two_lanes().lanes[1];
    let text = std::fs::read(&lane.reads[0]).expect("the sample was written");
    let ways: [(&[u8], GodwitCommand); 3] = [
        (b"", align(&directory.join("a")).args(["--reads", "-"])),
        // Write enough text for the first chunk, so that the aligner is running while it waits for more input.
        (&text.repeat(1 + (3 << 20) / text.len()), align(&directory.join("b")).args(["--reads", "-"])),
        (b"", godwit().args(["markdup", "-", "--out"]).arg(directory.join("c.bam"))),
    ];
    for (sent, command) in ways {
        let mut source = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat starts");
        let mut kept = source.stdin.take().expect("it is piped");
        let running = command.stdin(source.stdout.take().expect("it is piped")).spawn();
        std::io::Write::write_all(&mut kept, sent).expect("godwit takes it");
        wait_until_idle(running.process_id());
        send_signal(running.process_id(), libc::SIGINT);
        // Keep the pipe of the input open until the job has exited.
        wait_until_exited(&[running.process_id()]);
        let finished = running.wait_with_output();
        assert_eq!(finished.status.code(), Some(130), "{}", finished.describe());
        drop(kept);
        source.wait().expect("cat ends");
    }
}
