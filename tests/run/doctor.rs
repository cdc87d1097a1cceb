//! `godwit doctor`: its findings, and the exit code when something is missing.

use std::fs;

use godwit_tests::binary::godwit;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, scratch};
use serde_json::Value;

const EXIT_MACHINE: i32 = 4;

fn findings(stdout: &str) -> Vec<Value> {
    let told: Value = serde_json::from_str(stdout).expect("it is JSON");
    told["findings"].as_array().expect("findings are a list").clone()
}

fn finding_about<'f>(findings: &'f [Value], what: &str) -> &'f Value {
    let found = findings.iter().find(|finding| finding["what"] == what);
    found.unwrap_or_else(|| panic!("nothing about {what}"))
}

#[test]
fn a_machine_that_can_align_is_healthy() {
    needs!("bwa");
    let lanes = vec![400];
    let sample = Sample::cached(&SampleSpec {
        seed: 12,
        lanes,
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    });
    let out = scratch::directory("doctor");
    let words = ["doctor", "--bandwidth", "100G", "--rtt", "100", "--json", "--reference"];
    let finished = godwit().args(words).arg(sample.godwit_indexed_reference()).arg("--temp").arg(&out).run_ok();
    let findings = findings(&finished.stdout);
    for (what, state) in [("godwit-bwa", "fine"), ("bwa index", "fine"), ("scratch", "fine"), ("tcp_rmem", "warning")] {
        assert_eq!(finding_about(&findings, what)["state"], state, "{}", finding_about(&findings, what));
    }
    assert!(finding_about(&findings, "godwit-bwa")["found"].as_str().is_some_and(|found| found.contains("bwa 0.7.17")));
    let feeder = finding_about(&findings, "one gzip lane")["found"].as_str().unwrap_or_default();
    let rate = feeder.split(' ').find_map(|word| word.parse::<u64>().ok());
    assert!(rate.is_some_and(|pairs_per_s| pairs_per_s > 1000), "{feeder}");
    let advice = finding_about(&findings, "tcp_wmem")["remedy"].as_str().unwrap_or_default().to_owned();
    assert!(advice.contains("sysctl -w net.ipv4.tcp_wmem="), "{advice}");
    let table = godwit().arg("doctor").run_ok().stdout;
    assert!(
        table.starts_with("engines\n") && table.lines().any(|line| line.starts_with("  ok  godwit-bwa ")),
        "{table}"
    );
    assert!(table.lines().all(|line| line.chars().count() <= 96 || !line.contains(' ')), "{table}");
}

#[test]
fn what_is_essential_and_missing_is_exit_code_4_with_its_remedy() {
    let finished = godwit().env("GODWIT_BWA", "/no/godwit-bwa").args(["doctor", "--json"]).run();
    finished.assert_rejected(&[EXIT_MACHINE], &["godwit-bwa", "GODWIT_BWA"]);
    assert_eq!(finding_about(&findings(&finished.stdout), "godwit-bwa")["state"], "missing");
    let directory = scratch::directory("doctor");
    let reference = directory.join("ref.fa");
    fs::write(&reference, ">a\nACGT\n").expect("a file can be written");
    let finished = godwit().arg("doctor").arg("--reference").arg(&reference).run();
    finished.assert_rejected(&[EXIT_MACHINE], &["ref.fa", &format!("run `godwit index {}`", reference.display())]);
    // The index of any aligner is sufficient for doctor, so remove a file of bwa's index.
    godwit().arg("index").arg(&reference).run_ok();
    fs::remove_file(reference.with_added_extension("bwt")).expect("the index was made");
    let finished = godwit().arg("doctor").arg("--json").arg("--reference").arg(&reference).run_ok();
    let findings = findings(&finished.stdout);
    assert_eq!(finding_about(&findings, "bwa index")["state"], "warning");
    assert_eq!(finding_about(&findings, "bwa-mem3 index")["state"], "fine");
    let file = directory.join("ref.fa/below");
    godwit().arg("doctor").arg("--out").arg(&file).run().assert_rejected(&[EXIT_MACHINE], &["is not writable"]);
}

#[test]
fn doctor_lists_every_program_that_godwit_can_use() {
    needs!("minimap2", "fastp", "bowtie2", "bwa", "samtools", "diamond", "mmseqs");
    let finished = godwit().args(["doctor", "--json"]).run_ok();
    let told = findings(&finished.stdout);
    for (what, version) in [
        ("godwit-bwa-mem3", "bwa-mem3 0.15.0"),
        ("godwit-sql", env!("CARGO_PKG_VERSION")),
        ("--aligner auto", "bwa-mem3"),
        ("minimap2", "2."),
        ("fastp", "0."),
        ("bowtie2", "2."),
        ("diamond", "2."),
        ("mmseqs", ""),
    ] {
        let found = finding_about(&told, what);
        assert!(
            found["state"] == "fine" && found["found"].as_str().is_some_and(|text| text.contains(version)),
            "{found}"
        );
    }
    let empty = scratch::directory("no-programs");
    let finished = godwit().env("PATH", &empty).args(["doctor", "--json"]).run_ok();
    let told = findings(&finished.stdout);
    for what in ["minimap2", "fastp", "bowtie2", "strobealign", "diamond", "mmseqs"] {
        let remedy = finding_about(&told, what)["remedy"].as_str().unwrap_or_default().to_owned();
        assert!(finding_about(&told, what)["state"] == "note" && remedy.starts_with("install "), "{what}: {remedy}");
    }
    let old = empty.join("fastp");
    scratch::write_executable(&old, "#!/bin/sh\necho fastp 0.20.1 >&2\n");
    let finished = godwit().env("GODWIT_FASTP", &old).args(["doctor", "--json"]).run_ok();
    assert_eq!(finding_about(&findings(&finished.stdout), "fastp")["state"], "warning");
}
