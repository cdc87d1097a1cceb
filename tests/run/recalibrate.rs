//! `godwit recalibrate` and `godwit align --recalibrate`: table and qualities equal those of a single run of GATK over the
//! whole genome.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::fault_injection::{Fault, count_file_changes, inject_fault};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{gatk, needs, needs_gatk, scratch, skip};

use super::joint_calling::Cohort;
use super::picard::shared_data_directory;
use super::real_data::{chromosome_20, na12878_reads};

/// Writes half of the variants of a sample, in the form of a variant database.
pub fn write_known_sites(cohort: &Cohort, directory: &Path) -> PathBuf {
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
    command.arg("--reads").arg(cohort.directory.join("ada"))
}

/// Returns a command that can start GATK.
fn recalibrate_with_gatk(cohort: &Cohort, known: &Path, out: &Path) -> GodwitCommand {
    recalibrate(cohort, known, out).with_gatk()
}

/// Runs GATK over a file with the reads of the cohort, and returns its table and its BAM.
fn run_gatk(cohort: &Cohort, bam: &Path, known: &Path, directory: &Path) -> [PathBuf; 2] {
    cohort.make_dictionary();
    run_gatk_on(&cohort.reference, bam, known, directory)
}

/// Runs BaseRecalibrator and ApplyBQSR of GATK over a whole file, and returns its table and its BAM. The reference has a
/// dictionary.
fn run_gatk_on(reference: &Path, bam: &Path, known: &Path, directory: &Path) -> [PathBuf; 2] {
    let (table, whole) = (directory.join("whole.table"), directory.join("whole.bam"));
    let mut command = gatk::gatk_command("BaseRecalibrator");
    command.arg("-R").arg(reference).arg("-I").arg(bam).arg("--known-sites").arg(known);
    run_checked(command.arg("-O").arg(&table));
    let mut command = gatk::gatk_command("ApplyBQSR");
    command.arg("-R").arg(reference).arg("-I").arg(bam).arg("-bqsr").arg(&table);
    run_checked(command.arg("-O").arg(&whole));
    [table, whole]
}

fn view(bam: &Path) -> Vec<u8> {
    Tool::require("samtools").run(["view".as_ref(), bam.as_os_str()]).stdout
}

/// Returns the records of a BAM with sorted tags: GATK sorts them.
fn records_with_sorted_tags(bam: &Path) -> Vec<String> {
    let sorted = |line: &str| {
        let mut fields: Vec<&str> = line.split('\t').collect();
        fields[11..].sort_unstable();
        fields.join("\t")
    };
    String::from_utf8(view(bam)).expect("SAM is text").lines().map(sorted).collect()
}

#[track_caller]
fn assert_same_table(found: &Path, expected: &Path) {
    let tables = [found, expected].map(|path| fs::read_to_string(path).expect("a table"));
    assert!(tables[0].contains("RecalTable2") && tables[0] == tables[1], "the tables differ");
}

#[test]
fn table_and_qualities_are_those_of_one_run_of_gatk() {
    needs!("samtools", "bgzip", "tabix");
    needs_gatk!();
    let cohort = Cohort::cached();
    let directory = scratch::directory("recalibrated");
    let known = write_known_sites(cohort, &directory);
    let [bam, ..] = cohort.bams();
    let [table, whole] = run_gatk(cohort, &bam, &known, &directory);
    let expected = records_with_sorted_tags(&whole);
    assert!(expected != records_with_sorted_tags(&bam), "recalibration changed nothing, so nothing is shown");
    let count = |bam: &Path| {
        let region = ["view".as_ref(), "-c".as_ref(), bam.as_os_str(), "chr1:9000-31000".as_ref()];
        Tool::require("samtools").run(region).stdout
    };
    for words in [
        &["--threads", "1"][..],
        &["--threads", "2", "--slice-records", "700"],
        &["--threads", "4", "--slice-records", "3000"],
        &["--engine", "gatk", "--slice-records", "5000", "--threads", "2", "--memory", "2G"],
    ] {
        let out = scratch::directory("recalibrated").join("ada.bam");
        recalibrate_with_gatk(cohort, &known, &out).args(words).run_ok();
        assert_same_table(&out.with_extension("recal.table"), &table);
        assert!(records_with_sorted_tags(&out) == expected, "the records differ with {words:?}");
        Tool::require("samtools").run(["quickcheck".as_ref(), out.as_os_str()]);
        assert_eq!(count(&out), count(&whole), "the index finds other records");
        let verified = godwit().arg("verify").arg(&out).run_ok();
        assert!(verified.stdout.contains("records"), "{}", verified.describe());
    }
    assert_invalid_options_rejected(cohort, &known, &directory);
}

#[test]
fn an_alignment_recalibrates_as_gatk_does_afterwards() {
    needs!("samtools", "bgzip", "tabix");
    needs_gatk!();
    let cohort = Cohort::cached();
    let directory = scratch::directory("align-recalibrated");
    let known = write_known_sites(cohort, &directory);
    let [bam, ..] = cohort.bams();
    let [table, whole] = run_gatk(cohort, &bam, &known, &directory);
    let expected = records_with_sorted_tags(&whole);
    for words in [
        &["--threads", "1", "--partitions", "3"][..],
        &["--threads", "2"],
        &["--threads", "4", "--partitions", "40", "--metrics", "off"],
        &["--on", "local", "--nodes", "1"],
        &["--on", "local", "--nodes", "2", "--partitions", "9"],
        &["--on", "local", "--nodes", "4"],
    ] {
        let out = scratch::directory("align-recalibrated");
        align(cohort, &known, &out).args(words).run_ok();
        assert_same_table(&out.join("ada.recal.table"), &table);
        assert!(records_with_sorted_tags(&out.join("ada.bam")) == expected, "the records differ with {words:?}");
        godwit().arg("verify").arg(&out).run_ok();
    }
}

/// Returns the command line that aligns the reads of the first sample and recalibrates their qualities.
fn align(cohort: &Cohort, known: &Path, out: &Path) -> GodwitCommand {
    let reads = [1, 2].map(|mate| cohort.directory.join(format!("ada-reads_L001_R{mate}.fastq")));
    let command = godwit().arg("align").arg("--reference").arg(&cohort.reference).arg("--reads").args(reads);
    let command = command.args(["--sample", "ada", "--read-group", "@RG\\tID:ada\\tSM:ada\\tLB:ada\\tPL:ILLUMINA"]);
    command.arg("--recalibrate").arg(known).arg("--out").arg(out)
}

#[test]
fn an_alignment_gives_the_bytes_of_recalibration_afterwards() {
    needs!("samtools", "bgzip", "tabix");
    let cohort = Cohort::cached();
    let directory = scratch::directory("align-and-afterwards");
    let known = write_known_sites(cohort, &directory);
    for words in [&[][..], &["--static-quantized-quals", "10,20,30", "--emit-original-quals"]] {
        let (out, after) = (scratch::directory("in-the-pass"), scratch::directory("afterwards").join("ada.bam"));
        align(cohort, &known, &out).args(words).run_ok();
        recalibrate(cohort, &known, &after).args(words).run_ok();
        assert_same_table(&out.join("ada.recal.table"), &after.with_extension("recal.table"));
        assert!(view(&out.join("ada.bam")) == view(&after), "the records differ with {words:?}");
    }
    let out = scratch::directory("refused");
    let without = godwit().arg("align").arg("--reference").arg(&cohort.reference).arg("--reads").arg(&known);
    let without = without.args(["--sample", "s", "--emit-original-quals", "--out"]).arg(&out);
    without.run().assert_rejected(&[2], &["--recalibrate"]);
    align(cohort, &directory.join("none.vcf.gz"), &out).run().assert_rejected(&[4], &["none.vcf.gz"]);
}

#[test]
fn na12878_is_recalibrated_as_by_gatk() {
    needs!("samtools", "bgzip", "tabix", "bash", "gzip");
    needs_gatk!();
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let directory = scratch::directory("na12878-recalibrated");
    let reference = chromosome_20(&data);
    // The known sites name the length of the whole contig, which GATK rejects.
    let known = directory.join("known.vcf.gz");
    let script = "set -o pipefail; gzip -cd \"$0\" | grep -v '^##contig' | bgzip >\"$1\" && tabix -p vcf \"$1\" && \
                  samtools dict \"$2\" -o \"${2%.fa}.dict\"";
    let sites = data.join("human/test_nist.b37_chr20_100kbp_at_10mb.vcf.gz");
    run_checked(Tool::require("bash").command().args(["-c", script]).arg(&sites).arg(&known).arg(reference));
    let align = |out: &Path| {
        let reads = na12878_reads(&data);
        let command = godwit().arg("align").arg("--reference").arg(reference).arg("--reads").args(reads);
        let group = "@RG\\tID:1\\tSM:NA12878\\tLB:one\\tPL:ILLUMINA";
        command.args(["--sample", "ada", "--metrics", "off", "--read-group", group, "--out"]).arg(out)
    };
    let (marked, out) = (directory.join("marked"), directory.join("out"));
    align(&marked).run_ok();
    align(&out).arg("--recalibrate").arg(&known).run_ok();
    let [table, whole] = run_gatk_on(reference, &marked.join("ada.bam"), &known, &directory);
    assert_same_table(&out.join("ada.recal.table"), &table);
    let expected = records_with_sorted_tags(&whole);
    assert!(expected.len() > 50_000 && expected != records_with_sorted_tags(&marked.join("ada.bam")));
    assert!(records_with_sorted_tags(&out.join("ada.bam")) == expected, "the records differ");
}

#[test]
fn a_killed_alignment_that_recalibrates_resumes_with_the_same_bytes() {
    needs!("bgzip", "tabix", "cc");
    let cohort = Cohort::cached();
    let directory = scratch::directory("killed-in-the-pass");
    let known = write_known_sites(cohort, &directory);
    let run = |out: &Path| {
        align(cohort, &known, out).args(["--threads", "1", "--partitions", "4", "--block-bases", "200000"])
    };
    let expected = directory.join("whole");
    let changes = count_file_changes(run(&expected), &expected);
    // From the first blocks to the renames at the end.
    for quarter in 1..=4 {
        let (out, at) = (scratch::directory("killed"), changes * quarter / 4);
        let killed = inject_fault(run(&out), &out, Fault::Kill, at).run();
        assert!(killed.status.code().is_none(), "at {at} of {changes}: {}", killed.describe());
        run(&out).arg("--resume").run_ok();
        for name in ["ada.bam", "ada.bam.bai", "ada.recal.table", "ada.manifest.json"] {
            let [found, whole] =
                [&out, &expected].map(|directory| fs::read(directory.join(name)).expect("it was written"));
            assert!(found == whole, "{name} differs after a kill at {at} of {changes}");
        }
    }
}

#[test]
fn a_stopped_recalibration_resumes() {
    needs!("samtools", "bgzip", "tabix");
    let cohort = Cohort::cached();
    let directory = scratch::directory("stopped-own");
    let known = write_known_sites(cohort, &directory);
    let expected = directory.join("whole.bam");
    recalibrate(cohort, &known, &expected).run_ok();
    let out = directory.join("ada.bam");
    let words = ["--slice-records", "1000", "--threads", "1", "--json"];
    // The checkpoints of a few slices fit the limit.
    let stopped = recalibrate(cohort, &known, &out).args(words).limit_file_size(1 << 20).run();
    assert!(!stopped.status.success() && !out.exists(), "{}", stopped.describe());
    let counted = stopped.stderr.matches("\"event\":\"recalibrated\"").count();
    assert!(counted >= 1, "{}", stopped.describe());
    let resumed = recalibrate(cohort, &known, &out).args(words).arg("--resume").run_ok();
    assert!(resumed.stderr.contains("\"event\":\"call_resumed\""), "{}", resumed.describe());
    assert_same_table(&out.with_extension("recal.table"), &expected.with_extension("recal.table"));
    assert!(view(&out) == view(&expected), "the records differ");
}

#[test]
#[ignore = "half a minute of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored recalibrate::"]
fn records_that_gatk_drops_are_an_error_that_names_the_own_engine() {
    needs!("samtools", "bgzip", "tabix");
    needs_gatk!();
    let cohort = Cohort::cached();
    let directory = scratch::directory("dropped");
    let known = write_known_sites(cohort, &directory);
    let [bam, ..] = cohort.bams();
    let text =
        String::from_utf8(Tool::require("samtools").run(["view".as_ref(), "-h".as_ref(), bam.as_os_str()]).stdout);
    let text = text.expect("SAM is text");
    let group = text.lines().find(|line| !line.starts_with('@')).expect("it has records");
    let group = group.split('\t').find(|field| field.starts_with("RG:Z:")).expect("it has a read group");
    let (sam, reads) = (directory.join("one.sam"), directory.join("one.bam"));
    fs::write(&sam, text.replacen(&format!("\t{group}"), "", 1)).expect("scratch can be written to");
    let write = ["view", "--write-index", "-o"].map(std::ffi::OsStr::new);
    Tool::require("samtools").run(
        write
            .into_iter()
            .chain([std::ffi::OsStr::new(&format!("{0}##idx##{0}.bai", reads.display())), sam.as_os_str()]),
    );
    let run = || godwit().arg("recalibrate").arg("--reference").arg(&cohort.reference).arg("--known-sites").arg(&known);
    let run = || run().arg("--reads").arg(&reads).arg("--out").arg(directory.join("out.bam"));
    run().with_gatk().args(["--engine", "gatk"]).run().assert_rejected(&[5], &["records; GATK drops", "--engine own"]);
    run().run_ok();
}

/// Checks options that are rejected before any work starts.
fn assert_invalid_options_rejected(cohort: &Cohort, known: &Path, directory: &Path) {
    let out = directory.join("refused.bam");
    let refused = |words: &[&str], known: &Path, code: i32, named: &[&str]| {
        recalibrate_with_gatk(cohort, known, &out).args(words).run().assert_rejected(&[code], named);
        assert!(!out.exists());
    };
    refused(&[], &directory.join("none.vcf.gz"), 4, &["none.vcf.gz"]);
    let bare = directory.join("bare.vcf.gz");
    fs::copy(known, &bare).expect("it can be copied");
    refused(&["--engine", "gatk"], &bare, 4, &["bare.vcf.gz.tbi is missing", "tabix"]);
    refused(&["--engine", "gatk", "--memory", "100M"], known, 2, &["--gatk-memory"]);
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
    let words = ["--engine", "gatk", "--slice-records", "5000", "--threads", "1", "--json"];
    let stopped = recalibrate_with_gatk(cohort, &known, &out).args(words).env("JAVA_HOME", &home).run();
    stopped.assert_rejected(&[5], &["recalibrating records 1 to", "failed 2 times", "no qualities today"]);
    assert!(!out.exists());
    let counted = stopped.stderr.matches("\"event\":\"recalibrated\"").count();
    assert!(counted >= 2, "{}", stopped.describe());
    let own = ["--slice-records", "5000", "--threads", "1", "--resume"];
    recalibrate(cohort, &known, &out).args(own).run().assert_rejected(&[2], &["the version of GATK was"]);
    let resumed = recalibrate_with_gatk(cohort, &known, &out).args(words).arg("--resume").run_ok();
    let going_on = format!("{{\"event\":\"call_resumed\",\"regions\":{counted}}}");
    assert!(resumed.stderr.contains(&going_on), "{}", resumed.describe());
    let again = recalibrate_with_gatk(cohort, &known, &out).args(words).arg("--resume").run_ok();
    assert!(again.stderr.contains("already complete"), "{}", again.describe());
    let names = scratch::entry_names(&directory);
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
}
