//! `godwit recalibrate`: its table and its qualities equal those of a single run of GATK over the whole genome.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{gatk, needs, needs_gatk, scratch};

use super::joint_calling::Cohort;

/// Writes half of the variants of a sample, in the form of a variant database.
pub(super) fn write_known_sites(cohort: &Cohort, directory: &Path) -> PathBuf {
    let truth = cohort.directory.join("ada-reads.truth.vcf");
    let text = fs::read_to_string(&truth).expect("the simulator wrote it");
    let mut number = 0;
    let half = text.lines().filter(|line| {
        number += usize::from(!line.starts_with('#'));
        line.starts_with('#') || number % 2 == 0
    });
    let known = directory.join("known.vcf");
    fs::write(&known, half.map(|line| format!("{line}\n")).collect::<String>()).expect("scratch can be written to");
    Tool::require("bgzip").run([&known]);
    let known = directory.join("known.vcf.gz");
    Tool::require("tabix").run(["-p".as_ref(), "vcf".as_ref(), known.as_os_str()]);
    known
}

fn recalibrate(cohort: &Cohort, known: &Path, out: &Path) -> GodwitCommand {
    let command = godwit().arg("recalibrate").arg("--reference").arg(&cohort.reference).arg("--known-sites").arg(known);
    let command = command.args(["--gatk-memory", "1G", "--out"]).arg(out);
    command.env("GODWIT_GATK", gatk::jar_directory()).arg("--reads").arg(cohort.directory.join("ada"))
}

#[test]
fn table_and_qualities_are_those_of_one_run_of_gatk() {
    needs!("samtools", "bgzip", "tabix");
    needs_gatk!();
    let cohort = Cohort::cached();
    cohort.make_dictionary();
    let directory = scratch::directory("recalibrated");
    let known = write_known_sites(cohort, &directory);
    let [bam, ..] = cohort.bams();
    let (table, whole) = (directory.join("whole.table"), directory.join("whole.bam"));
    let mut command = gatk::gatk_command("BaseRecalibrator");
    command.arg("-R").arg(&cohort.reference).arg("-I").arg(&bam).arg("--known-sites").arg(&known);
    run_checked(command.arg("-O").arg(&table));
    let mut command = gatk::gatk_command("ApplyBQSR");
    command.arg("-R").arg(&cohort.reference).arg("-I").arg(&bam).arg("-bqsr").arg(&table);
    run_checked(command.arg("-O").arg(&whole));
    let out = directory.join("ada.bam");
    let run = recalibrate(cohort, &known, &out).args(["--slice-records", "3000", "--threads", "2", "--memory", "2G"]);
    run.run_ok();

    let tables = [&table, &directory.join("ada.recal.table")].map(|path| fs::read_to_string(path).expect("a table"));
    assert!(tables[0].contains("RecalTable2") && tables[0] == tables[1], "the tables differ");
    let records = |bam: &Path| Tool::require("samtools").run(["view".as_ref(), bam.as_os_str()]).stdout;
    let (found, expected) = (records(&out), records(&whole));
    assert!(expected != records(&bam), "recalibration changed nothing, so nothing is shown");
    assert!(found == expected, "the records differ");
    Tool::require("samtools").run(["quickcheck".as_ref(), out.as_os_str()]);
    let count = |bam: &Path| {
        let region = ["view".as_ref(), "-c".as_ref(), bam.as_os_str(), "chr1:9000-31000".as_ref()];
        Tool::require("samtools").run(region).stdout
    };
    assert_eq!(count(&out), count(&whole), "the index finds other records");
    let verified = godwit().arg("verify").arg(&out).run_ok();
    assert!(verified.stdout.contains("records"), "{}", verified.describe());
    assert_invalid_options_rejected(cohort, &known, &directory);
}

/// Checks options that are rejected before GATK is started.
fn assert_invalid_options_rejected(cohort: &Cohort, known: &Path, directory: &Path) {
    let out = directory.join("refused.bam");
    let refused = |words: &[&str], known: &Path, code: i32, named: &[&str]| {
        recalibrate(cohort, known, &out).args(words).run().assert_rejected(&[code], named);
        assert!(!out.exists());
    };
    refused(&[], &directory.join("none.vcf.gz"), 4, &["none.vcf.gz"]);
    let bare = directory.join("bare.vcf.gz");
    fs::copy(known, &bare).expect("it can be copied");
    refused(&[], &bare, 4, &["bare.vcf.gz.tbi is missing", "tabix"]);
    refused(&["--memory", "100M"], known, 2, &["--gatk-memory"]);
    let command = godwit().arg("recalibrate").arg("--reference").arg(&cohort.reference).arg("--known-sites").arg(known);
    let command = command.args(["--out", "a.sam", "--reads"]).arg(&cohort.directory);
    command.run().assert_rejected(&[2], &[".bam"]);
}

#[test]
#[ignore = "a minute of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored recalibrate::"]
fn a_slice_that_fails_names_itself_and_resume_goes_on() {
    needs!("samtools", "bgzip", "tabix", "bash");
    needs_gatk!();
    let cohort = Cohort::cached();
    let directory = scratch::directory("stopped");
    let known = write_known_sites(cohort, &directory);
    let out = directory.join("ada.bam");
    // Install a `java` that is killed in the second step.
    let (home, java) = (directory.join("home"), Tool::require("bash").run(["-c", "command -v java"]).stdout);
    fs::create_dir_all(home.join("bin")).expect("scratch can be written to");
    let script = format!(
        "#!/bin/bash\n[[ \" $* \" != *\" ApplyBQSR \"* ]] || {{ echo no qualities today >&2; exit 3; }}\nexec {} \"$@\"\n",
        String::from_utf8_lossy(&java).trim()
    );
    let wrapper = home.join("bin/java");
    fs::write(&wrapper, script).expect("scratch can be written to");
    Tool::require("bash").run(["-c".as_ref(), "chmod +x \"$0\"".as_ref(), wrapper.as_os_str()]);
    let words = ["--slice-records", "5000", "--threads", "1", "--json"];
    let stopped = recalibrate(cohort, &known, &out).args(words).env("JAVA_HOME", &home).run();
    stopped.assert_rejected(&[5], &["recalibrating records 1 to", "failed 2 times", "no qualities today"]);
    assert!(!out.exists());
    let counted = stopped.stderr.matches("\"event\":\"recalibrated\"").count();
    assert!(counted >= 2, "{}", stopped.describe());
    let resumed = recalibrate(cohort, &known, &out).args(words).arg("--resume").run_ok();
    let going_on = format!("{{\"event\":\"call_resumed\",\"regions\":{counted}}}");
    assert!(resumed.stderr.contains(&going_on), "{}", resumed.describe());
    let again = recalibrate(cohort, &known, &out).args(words).arg("--resume").run_ok();
    assert!(again.stderr.contains("already complete"), "{}", again.describe());
    let names = scratch::entry_names(&directory);
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
}
