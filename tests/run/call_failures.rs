//! Failures of `godwit call`: invalid input, failing callers, and faults that stop a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::fault_injection::{Fault, count_file_changes, inject_fault};
use godwit_tests::processes::{send_signal, wait_for_children, wait_until_exited};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

use super::variant_calling::{AlignedSample, vcf_records};

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;
const EXIT_ENGINE: i32 = 5;
const EXIT_INTERRUPTED: i32 = 130;
/// The number of fault positions of the sweep for each fault.
const SWEEP_POINTS_PER_FAULT: u64 = 4;

/// The files of a finished call.
pub(super) const OUTPUT_FILES: [&str; 4] = ["a.vcf.gz", "a.vcf.gz.manifest.json", "a.vcf.gz.run.json", "a.vcf.gz.tbi"];

/// Returns a call of seven regions with a single caller, so that they run one after the other. The files of the caller are in another
/// directory, so that only changes by godwit are counted.
fn call(out: &Path, temp: &Path) -> GodwitCommand {
    let call = AlignedSample::cached().call_with_grid("15K", &out.join("a.vcf.gz"));
    call.args(["--threads", "1", "--json", "--temp"]).arg(temp)
}

/// Returns the output of a baseline run, and its number of regions. It runs once for all tests.
fn baseline_run() -> &'static (Vec<u8>, usize) {
    static BASELINE: OnceLock<(Vec<u8>, usize)> = OnceLock::new();
    BASELINE.get_or_init(|| {
        let (out, temp) = (scratch::directory("undisturbed"), scratch::directory("temp"));
        let finished = call(&out, &temp).run_ok();
        assert_eq!(scratch::entry_names(&out), OUTPUT_FILES);
        assert_eq!(scratch::entry_names(&temp), [] as [&str; 0]);
        (fs::read(out.join("a.vcf.gz")).expect("it was written"), finished.count_events("called"))
    })
}

#[test]
fn a_run_stopped_at_any_of_some_changes_to_files_goes_on() {
    needs!("bcftools", "cc");
    let (expected, regions) = baseline_run();
    let temp = scratch::directory("temp");
    let all = {
        let out = scratch::directory("counted");
        count_file_changes(call(&out, &temp), &out)
    };
    for (fault, first) in [(Fault::Kill, 1), (Fault::Error, 2), (Fault::FullDisk, 3)] {
        for at in (first..=all).step_by((all / SWEEP_POINTS_PER_FAULT).max(1) as usize) {
            let out = scratch::directory("stopped");
            let stopped = inject_fault(call(&out, &temp), &out, fault, at).run();
            if fault == Fault::Kill {
                assert!(stopped.status.code().is_none(), "{fault:?} at {at}: {}", stopped.describe());
            } else if !stopped.status.success() {
                stopped.assert_rejected(&[EXIT_MACHINE], &[]);
            }
            if let Ok(found) = fs::read(out.join("a.vcf.gz")) {
                assert!(found == *expected, "{fault:?} at {at}: the VCF is there, but is not whole");
            }
            let resumed = call(&out, &temp).arg("--resume").run();
            assert!(resumed.status.success(), "{fault:?} at {at}: {}\nthen {}", stopped.describe(), resumed.describe());
            assert!(fs::read(out.join("a.vcf.gz")).expect("it was written") == *expected, "{fault:?} at {at}");
            assert_eq!(scratch::entry_names(&out), OUTPUT_FILES, "{fault:?} at {at}");
            let done = stopped.count_events("called") + resumed.count_events("called");
            assert!(done <= *regions + 1, "{fault:?} at {at}: {done} of {regions} called\n{}", resumed.describe());
        }
    }
}

#[test]
fn ctrl_c_keeps_finished_regions_for_resume() {
    needs!("bcftools", "bash");
    let (expected, regions) = baseline_run();
    let (out, temp) = (scratch::directory("interrupted"), scratch::directory("temp"));
    // The caller of the third region sleeps until the test stops it.
    let slow = "cd \"$(dirname \"$0\")\"; [ -e hurry ] || [ \"$(ls *.seen | wc -l)\" -lt 3 ] || exec sleep 1000";
    let script = script_caller(&out, slow);
    let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
    let run = |words: &[&str]| call(&out, &temp).args(["--caller", &template]).args(words);
    let running = run(&[]).spawn();
    wait_for_children(running.process_id(), "1000", 1);
    send_signal(running.process_id(), libc::SIGINT);
    let stopped = running.wait_with_output();
    stopped.assert_rejected(&[EXIT_INTERRUPTED], &["--resume"]);
    assert_eq!(stopped.count_events("called"), 2, "{}", stopped.describe());
    assert!(!out.join("a.vcf.gz").exists());
    assert_eq!(scratch::entry_names(&temp), [] as [&str; 0]);
    fs::write(script.with_file_name("hurry"), "").expect("scratch can be written to");
    let other = run(&["--resume", "--padding", "500"]).run();
    other.assert_rejected(&[EXIT_USAGE], &["cannot resume", "--padding was 1000 in the stopped job, but is 500 now"]);
    let resumed = run(&["--resume"]).run_ok();
    assert_eq!(resumed.count_events("called"), regions - 2, "{}", resumed.describe());
    assert!(resumed.stderr.contains("{\"event\":\"call_resumed\",\"regions\":2}"), "{}", resumed.describe());
    let lines = |text: &[u8]| {
        let path = scratch::directory("lines").join("a.vcf.gz");
        fs::write(&path, text).expect("scratch can be written to");
        vcf_records(&path)
    };
    assert!(lines(&fs::read(out.join("a.vcf.gz")).expect("it was written")) == lines(expected));
    let again = run(&["--resume"]).run_ok();
    assert!(again.stderr.contains("already complete"), "{}", again.describe());
}

/// Writes a script for `--caller` that executes `before` and then bcftools. At each start it creates a file in its
/// directory.
fn script_caller(out: &Path, before: &str) -> PathBuf {
    let directory = scratch::directory("script");
    let script = directory.join("call.sh");
    let text = format!(
        "set -euo pipefail\nmktemp \"$(dirname \"$0\")/$(head -1 \"$3\" | tr '\\t' '-').XXXXXX.seen\" >/dev/null\n{before}\n\
         bcftools mpileup -Ou -f \"$1\" -R \"$3\" \"$2\" | bcftools call -mv -o \"$4\"\n"
    );
    assert!(out.is_dir());
    fs::write(&script, text).expect("scratch can be written to");
    script
}

#[test]
fn a_caller_that_fails_on_one_region_is_named_and_leaves_no_vcf() {
    needs!("bcftools", "bash", "bgzip");
    let aligned = AlignedSample::cached();
    let out = scratch::directory("failing");
    let script = script_caller(&out, "if grep -q '^chrX.13000' \"$3\"; then echo 'the sky fell' >&2; exit 7; fi");
    let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
    let run = || aligned.call(&out.join("a.vcf.gz")).args(["--threads", "2", "--caller", &template]);
    let failed = run().run();
    failed.assert_rejected(
        &[EXIT_ENGINE],
        &["chrX:14001-20000", "2 times", "call.sh", "exited with status 7", "the sky fell"],
    );
    assert!(failed.stderr.contains("is retried"), "{}", failed.describe());
    assert!(failed.stderr.contains("--resume"), "{}", failed.describe());
    assert!(scratch::entry_names(&out).iter().all(|name| name.starts_with('.')), "{:?}", scratch::entry_names(&out));
    let starts = scratch::entry_names(script.parent().expect("it lies in a directory"));
    assert_eq!(starts.iter().filter(|name| name.starts_with("chrX-13000")).count(), 2, "{starts:?}");
    // Repair the caller. The resumed run calls only the remaining regions.
    let text = fs::read_to_string(&script).expect("it was written").replace("exit 7", "true");
    fs::write(&script, text).expect("scratch can be written to");
    run().arg("--resume").run_ok();
    assert!(vcf_records(&out.join("a.vcf.gz")) == aligned.bcftools_records("", "-mv"));
    let starts = scratch::entry_names(script.parent().expect("it lies in a directory")).len() - 1;
    assert!(starts <= 14 + 2, "{starts} starts for a dozen regions");
}

#[test]
fn a_caller_that_fails_once_is_forgiven() {
    needs!("bcftools", "bash", "bgzip");
    let aligned = AlignedSample::cached();
    let out = scratch::directory("forgiven");
    let script = script_caller(&out, "[ \"$(ls \"$(dirname \"$0\")\"/*.seen | wc -l)\" -ne 2 ] || kill -9 $$");
    let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
    let run = aligned.call(&out.join("a.vcf.gz")).args(["--threads", "1", "--caller", &template]).run_ok();
    assert!(run.stderr.contains("is retried") && run.stderr.contains("signal 9"), "{}", run.describe());
    assert!(vcf_records(&out.join("a.vcf.gz")) == aligned.bcftools_records("", "-mv"));
}

/// Returns a PATH with a `bcftools` that executes `text` if its first argument is `word`, and otherwise runs the real
/// bcftools.
pub(super) fn wrapped_bcftools_path(word: &str, text: &str) -> String {
    let real = run_checked(Tool::require("bash").command().args(["-c", "command -v bcftools"])).stdout;
    let real = String::from_utf8_lossy(&real).trim().to_owned();
    let directory = scratch::directory("spoiled");
    let program = directory.join("bcftools");
    let script = format!("#!/bin/bash\nreal={real}\nif [ \"$1\" = {word} ]; then\n{text}\nfi\nexec $real \"$@\"\n");
    scratch::write_executable(&program, &script);
    format!("{}:{}", directory.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn either_half_of_bcftools_may_fail_and_is_named() {
    needs!("bcftools", "bash");
    let aligned = AlignedSample::cached();
    for (word, text, said) in [
        // `mpileup` writes the first half of its output as valid BCF and then fails, so the next process reads a
        // regular end of file.
        (
            "mpileup",
            "$real \"$@\" | $real view -Ou -r chr1:1-2000 2>/dev/null; echo out of pile >&2; exit 9",
            "status 9",
        ),
        ("mpileup", "$real \"$@\" | head -c 3000; kill -9 $$", "signal 9"),
        ("call", "head -c 100 >/dev/null; echo no call >&2; exit 8", "status 8"),
        ("call", "$real \"$@\" | head -c -50; exit 0", "truncated"),
        ("call", "cat >/dev/null; exit 0", "empty"),
        ("call", "cat >/dev/null; echo hello; exit 0", "not VCF"),
    ] {
        let out = scratch::directory("halves").join("a.vcf.gz");
        let run = aligned.call(&out).env("PATH", wrapped_bcftools_path(word, text)).run();
        run.assert_rejected(&[EXIT_ENGINE], &["calling chr", word, said]);
        assert!(!out.exists());
    }
}

/// Copies the reads of the sample, with their index, and flips a bit at the offset that `place` returns for the bytes
/// of the file.
fn damaged_copy(name: &str, index: &str, place: impl Fn(&[u8]) -> usize) -> PathBuf {
    let aligned = AlignedSample::cached();
    let path = scratch::directory("damaged").join(name);
    let mut bytes = scratch::read(&aligned.output.join(name));
    let at = place(&bytes);
    bytes[at] ^= 0x10;
    fs::write(&path, bytes).expect("scratch can be written to");
    fs::copy(aligned.output.join(index), path.with_file_name(index)).expect("it can be copied");
    path
}

#[test]
fn damaged_reads_are_refused_whatever_the_status_of_the_caller_is() {
    needs!("bcftools");
    let in_fourth_block = |bytes: &[u8]| {
        let next = |start: usize| start + usize::from(u16::from_le_bytes([bytes[start + 16], bytes[start + 17]])) + 1;
        next(next(next(0))) + 100
    };
    let bam = damaged_copy("s.bam", "s.bam.bai", in_fourth_block);
    let cram = damaged_copy("s.cram", "s.cram.crai", |bytes| bytes.len() / 2);
    // bcftools exits with status 0 before 1.21, and later with another one.
    let codes = [EXIT_INPUT, EXIT_ENGINE];
    for (reads, printed) in [(&bam, "[E::bgzf"), (&cram, "[E::cram")] {
        let name = reads.file_name().and_then(|name| name.to_str()).expect("it is text");
        for words in [&["--on", "local", "--nodes", "1"][..], &[]] {
            let out = scratch::directory("damaged-out");
            let run = AlignedSample::cached().call_file(reads, &out.join("a.vcf.gz")).args(words).run();
            run.assert_rejected(&codes, &["calling chr", name, printed]);
            let left = scratch::entry_names(&out);
            assert!(left.iter().all(|name| name.starts_with('.')), "{left:?}");
        }
    }
}

#[test]
fn a_caller_that_reports_an_unreadable_input_has_failed() {
    needs!("bcftools", "bash", "bgzip");
    let aligned = AlignedSample::cached();
    let damage = "echo '[E::bgzf_uncompress] CRC32 checksum mismatch' >&2";
    let call = |out: &Path, text: &str| {
        let path = wrapped_bcftools_path("mpileup", text);
        aligned.call(&out.join("a.vcf.gz")).args(["--threads", "1"]).env("PATH", path).run()
    };
    let out = scratch::directory("unreadable");
    call(&out, damage).assert_rejected(
        &[EXIT_INPUT],
        &["calling chr", "s.bam", "[E::bgzf_uncompress] CRC32", "status 0", "`godwit verify ", "`samtools index "],
    );
    assert!(scratch::entry_names(&out).iter().all(|name| name.starts_with('.')));
    // The second attempt reads everything, as after a short failure of a network file system.
    let out = scratch::directory("readable");
    let marker = scratch::directory("once").join("started");
    let run = call(&out, &format!("[ -e {0} ] || {damage}; touch {0}", marker.display()));
    assert!(run.status.success() && run.stderr.contains("is retried"), "{}", run.describe());
    assert!(vcf_records(&out.join("a.vcf.gz")) == aligned.bcftools_records("", "-mv"));
}

#[test]
fn an_index_of_another_file_is_refused() {
    needs!("bcftools", "samtools");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("other-index");
    let (bam, out) = (directory.join("s.bam"), directory.join("a.vcf.gz"));
    let samtools = Tool::require("samtools");
    // The same records, in blocks at other offsets.
    samtools.run(["view".as_ref(), "-b".as_ref(), "-o".as_ref(), bam.as_os_str(), aligned.bam().as_os_str()]);
    samtools.run(["index".as_ref(), bam.as_os_str()]);
    aligned.call_file(&bam, &directory.join("b.vcf.gz")).run_ok();
    let refused = |reads: &Path, index: &str| {
        let run = aligned.call_file(reads, &out).run();
        run.assert_rejected(&[EXIT_INPUT], &[index, "not the index of", "samtools index"]);
        assert!(!out.exists());
    };
    // bcftools uses the first of these two, although the second one is right.
    let csi = directory.join("s.bam.csi");
    samtools.run(["index".as_ref(), "-c".as_ref(), aligned.bam().as_os_str(), csi.as_os_str()]);
    refused(&bam, "s.bam.csi");
    fs::remove_file(csi).expect("it was written");
    fs::copy(aligned.output.join("s.bam.bai"), directory.join("s.bam.bai")).expect("it can be copied");
    refused(&bam, "s.bam.bai");
    let cram = directory.join("s.cram");
    fs::copy(aligned.output.join("s.cram"), &cram).expect("it can be copied");
    fs::write(directory.join("s.cram.crai"), "0\t1\t50000\t999999999\t188\t1000\n").expect("scratch can be written to");
    refused(&cram, "s.cram.crai");
}

#[test]
fn callers_die_with_godwit() {
    needs!("bash");
    let out = scratch::directory("orphans");
    let template = "bash -c 'exec sleep 1234' {bam} {region}";
    let run =
        AlignedSample::cached().call(&out.join("a.vcf.gz")).args(["--caller", template, "--threads", "2"]).spawn();
    let children = wait_for_children(run.process_id(), "1234", 2);
    send_signal(run.process_id(), libc::SIGKILL);
    run.wait_with_output();
    wait_until_exited(&children);
}

#[test]
fn input_that_cannot_be_called_is_refused() {
    needs!("bcftools", "samtools");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("refused");
    let bam = directory.join("s.bam");
    let out = directory.join("a.vcf.gz");
    let refused = |reads: &Path, code: i32, words: &[&str]| {
        aligned.call_file(reads, &out).run().assert_rejected(&[code], words);
        let left = scratch::entry_names(&directory);
        assert!(!left.iter().any(|name| name.contains("a.vcf.gz")), "{left:?}");
    };
    refused(&bam, EXIT_MACHINE, &["s.bam is missing"]);
    fs::copy(aligned.bam(), &bam).expect("it can be copied");
    refused(&bam, EXIT_MACHINE, &["s.bam.bai is missing", "samtools index"]);
    fs::write(directory.join("s.bam.bai"), b"BAI\x01").expect("scratch can be written to");
    refused(&bam, EXIT_INPUT, &["s.bam.bai", "samtools index"]);
    fs::copy(aligned.output.join("s.bam.bai"), directory.join("s.bam.bai")).expect("it can be copied");
    let whole = fs::read(&bam).expect("it was copied");
    fs::write(&bam, &whole[..whole.len() - 28]).expect("scratch can be written to");
    refused(&bam, EXIT_INPUT, &["s.bam", "truncated"]);
    fs::write(&bam, &whole).expect("scratch can be written to");
    aligned.call_file(&bam, &directory.join("b.vcf.gz")).run_ok();
    refused(&aligned.reference, EXIT_USAGE, &["neither BAM nor CRAM"]);
    refused(&directory, EXIT_MACHINE, &["finished job"]);
}

#[test]
fn another_reference_is_refused_before_anything_is_called() {
    needs!("bcftools");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("other-reference");
    let reference = directory.join("ref.fa");
    let text = fs::read_to_string(&aligned.reference).expect("it is text");
    let refused = |text: &str, words: &[&str]| {
        let _ = fs::remove_file(directory.join("ref.fa.fai"));
        fs::write(&reference, text).expect("scratch can be written to");
        let command = godwit_tests::binary::godwit().arg("call").arg("--reference").arg(&reference).arg("--reads");
        let run = command.arg(&aligned.output).arg("--out").arg(directory.join("a.vcf.gz")).run();
        run.assert_rejected(&[EXIT_INPUT], words);
        assert!(!directory.join("a.vcf.gz").exists());
    };
    refused(&format!("{}AAA\n", text.trim_end()), &["chrM has 5000 bases", "5003"]);
    refused(&text.replace(">chrX", ">chrQ"), &["chrX", "not in the reference"]);
    refused(&text[..text.find(">chrM").expect("it is the last")], &["chrM", "not in the reference"]);
    fs::write(directory.join("ref.fa.fai"), "chr1\t5\t6\t5\t6\n").expect("scratch can be written to");
    fs::write(&reference, &text).expect("scratch can be written to");
    let command = godwit_tests::binary::godwit().arg("call").arg("--reference").arg(&reference).arg("--reads");
    let run = command.arg(&aligned.output).arg("--out").arg(directory.join("a.vcf.gz")).run();
    run.assert_rejected(&[EXIT_INPUT], &["ref.fa.fai", "the index of another file"]);
}

#[test]
fn reads_without_any_record_give_a_vcf_without_any() {
    needs!("bcftools", "samtools", "bgzip");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("empty");
    let bam = directory.join("e.bam");
    let (text, path) = (aligned.bam(), bam.as_os_str());
    Tool::require("samtools").run([
        "view".as_ref(),
        "-b".as_ref(),
        "-e".as_ref(),
        "0".as_ref(),
        "-o".as_ref(),
        path,
        text.as_os_str(),
    ]);
    Tool::require("samtools").run(["index".as_ref(), path]);
    let out = directory.join("a.vcf.gz");
    aligned.call_file(&bam, &out).run_ok();
    assert!(vcf_records(&out).is_empty());
    let header = Tool::require("bcftools").run(["view".as_ref(), "-h".as_ref(), out.as_os_str()]).stdout;
    assert!(String::from_utf8_lossy(&header).contains("#CHROM"));
    Tool::require("bcftools").run(["view".as_ref(), "-r".as_ref(), "chr1:1-100".as_ref(), out.as_os_str()]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    needs!("bcftools");
    let aligned = AlignedSample::cached();
    let out = scratch::directory("nonsense").join("a.vcf.gz");
    for (words, code, named) in [
        (&["--caller", "no-such-caller"][..], EXIT_USAGE, "gatk-joint"),
        (&["--caller", "no-such-caller {bam} {region}"], EXIT_MACHINE, "no-such-caller"),
        (&["--caller", "bash {bam}"], EXIT_USAGE, "{region}"),
        (&["--caller-args", "-r chr1"], EXIT_USAGE, "--regions"),
        (&["--caller", "freebayes", "--caller-args", "--gvcf"], EXIT_USAGE, "--gvcf"),
        (&["--memory", "100M"], EXIT_USAGE, "--caller-memory"),
        (&["--sex", "M"], EXIT_USAGE, "--ploidy"),
    ] {
        aligned.call(&out).args(words).run().assert_rejected(&[code], &[named]);
    }
    for caller in ["bcftools", "gatk"] {
        let genotyping =
            godwit().arg("call").arg("--reference").arg(&aligned.reference).args(["--gvcfs", "a.g.vcf.gz"]);
        let genotyping = genotyping.args(["--caller", caller, "--out"]).arg(&out).run();
        genotyping.assert_rejected(&[EXIT_USAGE], &["--caller gatk-joint"]);
    }
    aligned.call_with_grid("10", &out).run().assert_rejected(&[EXIT_USAGE], &["1K"]);
    aligned.call(&out.with_extension("bcf")).run().assert_rejected(&[EXIT_USAGE], &[".vcf.gz"]);
    let gatk = aligned.call(&out).args(["--caller", "gatk"]).env("GODWIT_GATK", "/nowhere/gatk").run();
    gatk.assert_rejected(&[EXIT_MACHINE], &["/nowhere/gatk", "install GATK"]);
    aligned.call(&out).env("PATH", "/nowhere").run().assert_rejected(&[EXIT_MACHINE], &["bcftools", "install"]);
}

#[test]
fn a_region_in_which_the_caller_stalls_is_cut_and_its_shortest_piece_is_set_apart() {
    needs!("bcftools", "bash", "bgzip");
    let aligned = AlignedSample::cached();
    let out = scratch::directory("stalling");
    // The caller never finishes a region with position 3501 of chrX.
    let stall = "awk '$1 == \"chrX\" && $2 <= 3500 && $3 > 3500 { found = 1 } END { exit !found }' \"$3\" && exec sleep 1000 || true";
    let run = |name: &str, before: &str, words: &[&str]| {
        let script = script_caller(&out, before);
        let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
        let call = aligned.call(&out.join(name)).args(["--threads", "2", "--padding", "0", "--caller", &template]);
        call.args(words).run_ok()
    };
    let rule = ["--stall-after", "12s"];
    let expected = run("whole.vcf.gz", "", &rule);
    assert!(!expected.stderr.contains("stalled"), "{}", expected.describe());
    run("off.vcf.gz", "", &[]);
    let everywhere =
        format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script_caller(&out, "exec sleep 1000").display());
    let words = ["--regions", "chrX:3001-4000", "--stall-after", "1s", "--caller", &everywhere];
    let nothing = aligned.call(&out.join("nothing.vcf.gz")).args(words).run();
    nothing.assert_rejected(&[EXIT_ENGINE], &["chrX:3001-4000", "the caller stalled", "longer time"]);
    let read = |name: &str| fs::read(out.join(name)).expect("it was written");
    let records = |name: &str| vcf_records(&out.join(name));
    assert!(records("whole.vcf.gz") == records("off.vcf.gz"), "the rule changes what does not stall");
    let found = run("cut.vcf.gz", stall, &rule);
    assert!(found.stderr.contains("started again on each half of the region"), "{}", found.describe());
    assert!(
        found.stderr.contains("1 region without records, because the caller stalled: chrX:"),
        "{}",
        found.describe()
    );
    let report: serde_json::Value = serde_json::from_slice(&read("cut.vcf.gz.run.json")).expect("it is JSON");
    let stalls = report["regions"].as_array().into_iter().flatten().flat_map(|region| region["stalls"].as_array());
    let stalls: Vec<_> = stalls.flatten().collect();
    let outcomes: Vec<_> = stalls.iter().filter_map(|stall| stall["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["cut", "cut", "set_apart"], "{report}");
    let region = stalls[2]["region"].as_str().expect("it is named").to_owned();
    let header =
        run_checked(Tool::require("bcftools").command().args(["view", "-h"]).arg(out.join("cut.vcf.gz"))).stdout;
    assert!(String::from_utf8_lossy(&header).contains(&format!("##godwit_callSetApart={region}\n")));
    // All records outside of the piece are those of the whole regions.
    let sites = |name: &str| -> Vec<(String, u32)> {
        let text = String::from_utf8(vcf_records(&out.join(name))).expect("VCF is text");
        let site = |line: &str| {
            let mut columns = line.split('\t');
            Some((columns.next()?.to_owned(), columns.next()?.parse().ok()?))
        };
        text.lines().filter_map(site).collect()
    };
    let (first, last) = region.trim_start_matches("chrX:").split_once('-').expect("it is an interval");
    let [first, last] = [first, last].map(|number| number.replace(',', "").parse::<u32>().expect("it is a position"));
    assert!((1000..2000).contains(&(last + 1 - first)) && (first..=last).contains(&3501), "{region}");
    let is_inside = |site: &(String, u32)| site.0 == "chrX" && (first..=last).contains(&site.1);
    let (whole, cut) = (sites("whole.vcf.gz"), sites("cut.vcf.gz"));
    assert_eq!(cut, whole.into_iter().filter(|site| !is_inside(site)).collect::<Vec<_>>());
}
