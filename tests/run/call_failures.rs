//! `godwit call` when something goes wrong: bad input, callers that fail, and whatever stops a run in the middle.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{Finished, Godwit};
use godwit_tests::faults::{Fault, count_changes, with_fault};
use godwit_tests::processes::{signal, wait_for_children, wait_until_gone};
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

use super::call::{Aligned, records};

const USAGE: i32 = 2;
const INPUT: i32 = 3;
const MACHINE: i32 = 4;
const ENGINE: i32 = 5;
const INTERRUPTED: i32 = 130;
/// Moments of the sweep for each fault.
const SLICE: u64 = 4;

/// What a finished call leaves beside its VCF.
pub(super) const BESIDE: [&str; 4] = ["a.vcf.gz", "a.vcf.gz.manifest.json", "a.vcf.gz.run.json", "a.vcf.gz.tbi"];

fn count(finished: &Finished, event: &str) -> usize {
    finished.stderr.matches(&format!("{{\"event\":\"{event}\"")).count()
}

/// One worker, so that there is one region at a time; callers' own files elsewhere, so that only godwit's changes count.
fn call(out: &Path, temp: &Path) -> Godwit {
    Aligned::get().call(&out.join("a.vcf.gz")).args(["--threads", "1", "--json", "--temp"]).arg(temp)
}

/// What an undisturbed run writes, and in how many regions.
fn undisturbed() -> (Vec<u8>, usize) {
    let (out, temp) = (scratch::directory("undisturbed"), scratch::directory("temp"));
    let finished = call(&out, &temp).succeeds();
    assert_eq!(scratch::names(&out), BESIDE);
    assert_eq!(scratch::names(&temp), [] as [&str; 0]);
    (fs::read(out.join("a.vcf.gz")).expect("it was written"), count(&finished, "called"))
}

#[test]
fn a_run_stopped_at_any_of_some_changes_to_files_goes_on() {
    needs!("bcftools", "cc");
    let (expected, regions) = undisturbed();
    let temp = scratch::directory("temp");
    let all = {
        let out = scratch::directory("counted");
        count_changes(call(&out, &temp), &out)
    };
    for (fault, first) in [(Fault::Kill, 1), (Fault::Error, 2), (Fault::FullDisk, 3)] {
        for at in (first..=all).step_by((all / SLICE).max(1) as usize) {
            let out = scratch::directory("stopped");
            let stopped = with_fault(call(&out, &temp), &out, fault, at).run();
            if fault == Fault::Kill {
                assert!(stopped.status.code().is_none(), "{fault:?} at {at}: {}", stopped.report());
            } else if !stopped.status.success() {
                stopped.refuses(&[MACHINE], &[]);
            }
            if let Ok(found) = fs::read(out.join("a.vcf.gz")) {
                assert!(found == expected, "{fault:?} at {at}: the VCF is there, but is not whole");
            }
            let resumed = call(&out, &temp).arg("--resume").run();
            assert!(resumed.status.success(), "{fault:?} at {at}: {}\nthen {}", stopped.report(), resumed.report());
            assert!(fs::read(out.join("a.vcf.gz")).expect("it was written") == expected, "{fault:?} at {at}");
            assert_eq!(scratch::names(&out), BESIDE, "{fault:?} at {at}");
            let done = count(&stopped, "called") + count(&resumed, "called");
            assert!(done <= regions + 1, "{fault:?} at {at}: {done} of {regions} called\n{}", resumed.report());
        }
    }
}

#[test]
fn ctrl_c_keeps_finished_regions_for_resume() {
    needs!("bcftools", "bash");
    let (expected, regions) = undisturbed();
    let (out, temp) = (scratch::directory("interrupted"), scratch::directory("temp"));
    // The third region does not end before it is stopped.
    let slow = "cd \"$(dirname \"$0\")\"; [ -e hurry ] || [ \"$(ls *.seen | wc -l)\" -lt 3 ] || exec sleep 1000";
    let script = script(&out, slow);
    let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
    let run = |words: &[&str]| call(&out, &temp).args(["--caller", &template]).args(words);
    let running = run(&[]).start();
    wait_for_children(running.process_id(), "1000", 1);
    signal(running.process_id(), libc::SIGINT);
    let stopped = running.finish();
    stopped.refuses(&[INTERRUPTED], &["--resume"]);
    assert_eq!(count(&stopped, "called"), 2, "{}", stopped.report());
    assert!(!out.join("a.vcf.gz").exists());
    assert_eq!(scratch::names(&temp), [] as [&str; 0]);
    fs::write(script.with_file_name("hurry"), "").expect("scratch can be written to");
    let other = run(&["--resume", "--padding", "500"]).run();
    other.refuses(&[USAGE], &["cannot resume", "--padding was 1000 and is 500 now"]);
    let resumed = run(&["--resume"]).succeeds();
    assert_eq!(count(&resumed, "called"), regions - 2, "{}", resumed.report());
    assert!(resumed.stderr.contains("{\"event\":\"call_resumed\",\"regions\":2}"), "{}", resumed.report());
    let lines = |text: &[u8]| {
        let path = scratch::directory("lines").join("a.vcf.gz");
        fs::write(&path, text).expect("scratch can be written to");
        records(&path)
    };
    assert!(lines(&fs::read(out.join("a.vcf.gz")).expect("it was written")) == lines(&expected));
    let again = run(&["--resume"]).succeeds();
    assert!(again.stderr.contains("already complete"), "{}", again.report());
}

/// A caller for templates: bcftools, after `before`. It leaves a file for each start beside itself.
fn script(out: &Path, before: &str) -> PathBuf {
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
    let aligned = Aligned::get();
    let out = scratch::directory("failing");
    let script = script(&out, "if grep -q '^chrX.13000' \"$3\"; then echo 'the sky fell' >&2; exit 7; fi");
    let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
    let run = || aligned.call(&out.join("a.vcf.gz")).args(["--threads", "2", "--caller", &template]);
    let failed = run().run();
    failed.refuses(&[ENGINE], &["chrX:14001-20000", "2 times", "call.sh", "exited with status 7", "the sky fell"]);
    assert!(failed.stderr.contains("tried again"), "{}", failed.report());
    assert!(failed.stderr.contains("--resume"), "{}", failed.report());
    assert!(scratch::names(&out).iter().all(|name| name.starts_with('.')), "{:?}", scratch::names(&out));
    let starts = scratch::names(script.parent().expect("it lies in a directory"));
    assert_eq!(starts.iter().filter(|name| name.starts_with("chrX-13000")).count(), 2, "{starts:?}");
    // Mended, it goes on with what is left.
    let text = fs::read_to_string(&script).expect("it was written").replace("exit 7", "true");
    fs::write(&script, text).expect("scratch can be written to");
    run().arg("--resume").succeeds();
    assert!(records(&out.join("a.vcf.gz")) == aligned.bcftools("", "-mv"));
    let starts = scratch::names(script.parent().expect("it lies in a directory")).len() - 1;
    assert!(starts <= 14 + 2, "{starts} starts for a dozen regions");
}

#[test]
fn a_caller_that_fails_once_is_forgiven() {
    needs!("bcftools", "bash", "bgzip");
    let aligned = Aligned::get();
    let out = scratch::directory("forgiven");
    let script = script(&out, "[ \"$(ls \"$(dirname \"$0\")\"/*.seen | wc -l)\" -ne 2 ] || kill -9 $$");
    let template = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
    let run = aligned.call(&out.join("a.vcf.gz")).args(["--threads", "1", "--caller", &template]).succeeds();
    assert!(run.stderr.contains("tried again") && run.stderr.contains("signal 9"), "{}", run.report());
    assert!(records(&out.join("a.vcf.gz")) == aligned.bcftools("", "-mv"));
}

/// A directory with a program `bcftools` that runs `text` where `words` is its first word, and the real one otherwise.
pub(super) fn spoiled_bcftools(word: &str, text: &str) -> String {
    let real = succeed(Tool::need("bash").command().args(["-c", "command -v bcftools"])).stdout;
    let real = String::from_utf8_lossy(&real).trim().to_owned();
    let directory = scratch::directory("spoiled");
    let program = directory.join("bcftools");
    let script = format!("#!/bin/bash\nreal={real}\nif [ \"$1\" = {word} ]; then\n{text}\nfi\nexec $real \"$@\"\n");
    scratch::program(&program, &script);
    format!("{}:{}", directory.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn either_half_of_bcftools_may_fail_and_is_named() {
    needs!("bcftools", "bash");
    let aligned = Aligned::get();
    for (word, text, said) in [
        // Half of the pileup, whole as BCF, and then nothing: what follows sees a good end.
        (
            "mpileup",
            "$real \"$@\" | $real view -Ou -r chr1:1-2000 2>/dev/null; echo out of pile >&2; exit 9",
            "status 9",
        ),
        ("mpileup", "$real \"$@\" | head -c 3000; kill -9 $$", "signal 9"),
        ("call", "head -c 100 >/dev/null; echo no call >&2; exit 8", "status 8"),
        ("call", "$real \"$@\" | head -c -50; exit 0", "cut short"),
        ("call", "cat >/dev/null; exit 0", "empty"),
        ("call", "cat >/dev/null; echo hello; exit 0", "no VCF"),
    ] {
        let out = scratch::directory("halves").join("a.vcf.gz");
        let run = aligned.call(&out).env("PATH", spoiled_bcftools(word, text)).run();
        run.refuses(&[ENGINE], &["calling chr", word, said]);
        assert!(!out.exists());
    }
}

#[test]
fn callers_die_with_godwit() {
    needs!("bash");
    let out = scratch::directory("orphans");
    let template = "bash -c 'exec sleep 1234' {bam} {region}";
    let run = Aligned::get().call(&out.join("a.vcf.gz")).args(["--caller", template, "--threads", "2"]).start();
    let children = wait_for_children(run.process_id(), "1234", 2);
    signal(run.process_id(), libc::SIGKILL);
    run.finish();
    wait_until_gone(&children);
}

#[test]
fn input_that_cannot_be_called_is_refused() {
    needs!("bcftools", "samtools");
    let aligned = Aligned::get();
    let directory = scratch::directory("refused");
    let bam = directory.join("s.bam");
    let out = directory.join("a.vcf.gz");
    let refused = |reads: &Path, code: i32, words: &[&str]| {
        aligned.call_on(reads, &out).run().refuses(&[code], words);
        let left = scratch::names(&directory);
        assert!(!left.iter().any(|name| name.contains("a.vcf.gz")), "{left:?}");
    };
    refused(&bam, MACHINE, &["s.bam is missing"]);
    fs::copy(aligned.bam(), &bam).expect("it can be copied");
    refused(&bam, MACHINE, &["s.bam.bai is missing", "samtools index"]);
    fs::write(directory.join("s.bam.bai"), b"BAI\x01").expect("scratch can be written to");
    refused(&bam, INPUT, &["s.bam.bai", "samtools index"]);
    fs::copy(aligned.run.join("s.bam.bai"), directory.join("s.bam.bai")).expect("it can be copied");
    let whole = fs::read(&bam).expect("it was copied");
    fs::write(&bam, &whole[..whole.len() - 28]).expect("scratch can be written to");
    refused(&bam, INPUT, &["s.bam", "cut short"]);
    fs::write(&bam, &whole).expect("scratch can be written to");
    aligned.call_on(&bam, &directory.join("b.vcf.gz")).succeeds();
    refused(&aligned.reference, USAGE, &["neither BAM nor CRAM"]);
    refused(&directory, MACHINE, &["finished run"]);
}

#[test]
fn another_reference_is_refused_before_anything_is_called() {
    needs!("bcftools");
    let aligned = Aligned::get();
    let directory = scratch::directory("other-reference");
    let reference = directory.join("ref.fa");
    let text = fs::read_to_string(&aligned.reference).expect("it is text");
    let refused = |text: &str, words: &[&str]| {
        let _ = fs::remove_file(directory.join("ref.fa.fai"));
        fs::write(&reference, text).expect("scratch can be written to");
        let command = godwit_tests::binary::godwit().arg("call").arg("--reference").arg(&reference).arg("--reads");
        let run = command.arg(&aligned.run).arg("--out").arg(directory.join("a.vcf.gz")).run();
        run.refuses(&[INPUT], words);
        assert!(!directory.join("a.vcf.gz").exists());
    };
    refused(&format!("{}AAA\n", text.trim_end()), &["chrM has 5000 bases", "5003"]);
    refused(&text.replace(">chrX", ">chrQ"), &["chrX", "does not have"]);
    refused(&text[..text.find(">chrM").expect("it is the last")], &["chrM", "does not have"]);
    fs::write(directory.join("ref.fa.fai"), "chr1\t5\t6\t5\t6\n").expect("scratch can be written to");
    fs::write(&reference, &text).expect("scratch can be written to");
    let command = godwit_tests::binary::godwit().arg("call").arg("--reference").arg(&reference).arg("--reads");
    let run = command.arg(&aligned.run).arg("--out").arg(directory.join("a.vcf.gz")).run();
    run.refuses(&[INPUT], &["ref.fa.fai", "not the index"]);
}

#[test]
fn reads_without_any_record_give_a_vcf_without_any() {
    needs!("bcftools", "samtools", "bgzip");
    let aligned = Aligned::get();
    let directory = scratch::directory("empty");
    let bam = directory.join("e.bam");
    let (text, path) = (aligned.bam(), bam.as_os_str());
    Tool::need("samtools").run([
        "view".as_ref(),
        "-b".as_ref(),
        "-e".as_ref(),
        "0".as_ref(),
        "-o".as_ref(),
        path,
        text.as_os_str(),
    ]);
    Tool::need("samtools").run(["index".as_ref(), path]);
    let out = directory.join("a.vcf.gz");
    aligned.call_on(&bam, &out).succeeds();
    assert!(records(&out).is_empty());
    let header = Tool::need("bcftools").run(["view".as_ref(), "-h".as_ref(), out.as_os_str()]).stdout;
    assert!(String::from_utf8_lossy(&header).contains("#CHROM"));
    Tool::need("bcftools").run(["view".as_ref(), "-r".as_ref(), "chr1:1-100".as_ref(), out.as_os_str()]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    needs!("bcftools");
    let aligned = Aligned::get();
    let out = scratch::directory("nonsense").join("a.vcf.gz");
    for (words, code, named) in [
        (&["--caller", "octopus"][..], USAGE, "octopus"),
        (&["--caller", "no-such-caller {bam} {region}"], MACHINE, "no-such-caller"),
        (&["--caller", "bash {bam}"], USAGE, "{region}"),
        (&["--caller-args", "-r chr1"], USAGE, "--regions"),
        (&["--caller", "freebayes", "--caller-args", "--gvcf"], USAGE, "--gvcf"),
        (&["--memory", "100M"], USAGE, "--caller-memory"),
        (&["--sex", "M"], USAGE, "--ploidy"),
    ] {
        aligned.call(&out).args(words).run().refuses(&[code], &[named]);
    }
    aligned.call_by("10", &out).run().refuses(&[USAGE], &["1K"]);
    aligned.call(&out.with_extension("bcf")).run().refuses(&[USAGE], &[".vcf.gz"]);
    let gatk = aligned.call(&out).args(["--caller", "gatk"]).env("GODWIT_GATK", "/nowhere/gatk").run();
    gatk.refuses(&[MACHINE], &["/nowhere/gatk", "install GATK"]);
    aligned.call(&out).env("PATH", "/nowhere").run().refuses(&[MACHINE], &["bcftools", "install"]);
}
