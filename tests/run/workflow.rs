//! `godwit run`: many samples of a sheet from FASTQ to variants.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, GodwitOutput, godwit};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{gatk, needs, needs_gatk, scratch};
use serde_json::Value;

use super::joint_calling::Cohort;
use super::recalibrate::write_known_sites;
use super::variant_calling::{assert_same_text, record_lines, vcf_records};

const EXIT_INPUT: i32 = 3;

fn read_file(cohort: &Cohort, sample: &str, mate: u8) -> PathBuf {
    cohort.directory.join(format!("{sample}-reads_L001_R{mate}.fastq"))
}

/// Writes a sheet of two samples, the first of which has two lanes.
fn write_sheet(cohort: &Cohort, directory: &Path) -> PathBuf {
    let ada = [1, 2].map(|mate| {
        let text = fs::read_to_string(read_file(cohort, "ada", mate)).expect("the cohort has reads");
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let half = lines.len() / 8 * 4;
        [&lines[..half], &lines[half..]].map(|part| part.concat())
    });
    for (mate, lanes) in ada.iter().enumerate() {
        for (lane, text) in lanes.iter().enumerate() {
            let path = directory.join(format!("ada_{}_{}.fastq", lane + 1, mate + 1));
            fs::write(path, text).expect("scratch can be written to");
        }
    }
    let sheet = directory.join("sheet.csv");
    let [one, two] = [1, 2].map(|mate| read_file(cohort, "ben", mate));
    let text = format!(
        "sample,fastq_1,fastq_2,lane,library\nada,ada_1_1.fastq,ada_1_2.fastq,L1,lib\nben,{},{},,\nada,ada_2_1.fastq,ada_2_2.fastq,L2,lib\n",
        one.display(),
        two.display()
    );
    fs::write(&sheet, text).expect("scratch can be written to");
    sheet
}

fn run(cohort: &Cohort, sheet: &Path, out: &Path) -> GodwitCommand {
    run_with_metrics(cohort, sheet, out, "off")
}

fn run_with_metrics(cohort: &Cohort, sheet: &Path, out: &Path, metrics: &str) -> GodwitCommand {
    let run = godwit().arg("run").arg("--reference").arg(&cohort.reference).arg("--samples").arg(sheet);
    run.args(["--grid-size", "30K", "--metrics", metrics, "--out"]).arg(out)
}

fn report(out: &Path) -> Value {
    let text = fs::read_to_string(out.join("run.json")).expect("the report was written");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Returns the names of the steps in a report, and whether an earlier start had finished them.
fn step_names(list: &Value) -> Vec<(String, bool)> {
    let steps = list.as_array().expect("a list").iter();
    let step = |step: &Value| {
        assert!(step["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{step} took no time");
        (step["step"].as_str().expect("a name").to_owned(), step["done_before"].as_bool().expect("a flag"))
    };
    steps.map(step).collect()
}

fn call_without_workflow(cohort: &Cohort, bam: &Path) -> Vec<u8> {
    let script = "set -o pipefail; bcftools mpileup -Ou -f \"$0\" \"$1\" | bcftools call -mv";
    let mut command = Tool::require("bash").command();
    record_lines(&run_checked(command.args(["-c", script]).arg(&cohort.reference).arg(bam)).stdout)
}

#[test]
fn every_sample_of_a_sheet_is_aligned_and_called() {
    needs!("bcftools", "bgzip", "bash", "samtools", "python3");
    let cohort = Cohort::cached();
    let directory = scratch::directory("run");
    let (sheet, out) = (write_sheet(cohort, &directory), directory.join("out"));
    run_with_metrics(cohort, &sheet, &out, "on").run_ok();
    for sample in ["ada", "ben"] {
        let bam = out.join(sample).join(format!("{sample}.bam"));
        let vcf = out.join(sample).join(format!("{sample}.vcf.gz"));
        assert_same_text(&vcf_records(&vcf), &call_without_workflow(cohort, &bam));
        for file in [&bam, &vcf] {
            godwit().arg("verify").arg(file).run_ok();
        }
    }
    let bam = out.join("ada/ada.bam");
    let header = Tool::require("samtools").run(["view".as_ref(), "-H".as_ref(), bam.as_os_str()]).stdout;
    let header = String::from_utf8_lossy(&header).into_owned();
    for lane in ["L1", "L2"] {
        assert!(header.contains(&format!("@RG\tID:ada.{lane}\tSM:ada\tLB:lib\tPL:ILLUMINA\n")), "{header}");
    }
    let report = report(&out);
    let names: Vec<_> = report["samples"].as_array().expect("a list").iter().map(|sample| &sample["sample"]).collect();
    assert_eq!(names, ["ada", "ben"]);
    for sample in report["samples"].as_array().expect("a list") {
        assert_eq!(step_names(&sample["steps"]), [("align".to_owned(), false), ("call".to_owned(), false)]);
    }
    let seconds = report["seconds"].as_f64().expect("a number");
    let per_day = report["genomes_per_day"].as_f64().expect("a number");
    assert!((per_day * seconds / 86_400.0 - 2.0).abs() < 0.01, "{report}");
    let page = fs::read_to_string(out.join("report.html")).expect("the page was written");
    assert!(page.contains("ada") && page.contains("Genomes per day") && page.contains("Hours by step"), "{page}");
    assert!(!page.contains("<script") && page.contains("cohort.html"), "{page}");
    let cohort_page = fs::read_to_string(out.join("cohort.html")).expect("the page was written");
    for name in names {
        let name = name.as_str().expect("a name");
        assert!(cohort_page.contains(&format!("<tr><th scope=\"row\">{name}</th><td>")), "{cohort_page}");
    }
    assert!(cohort_page.contains("Median insert, bp") && !cohort_page.contains("GC dropout"), "{cohort_page}");
    assert_script_is_allowed(&cohort_page);
}

/// Checks that the content security policy of a page allows its script.
fn assert_script_is_allowed(page: &str) {
    let between = |start: &str, end: &str| {
        let (_, rest) = page.split_once(start).expect("the page has it");
        rest.split_once(end).expect("the page has its end").0.to_owned()
    };
    let path = scratch::directory("page-script").join("page.js");
    fs::write(&path, between("<script>", "</script>")).expect("scratch can be written to");
    let program = "import base64, hashlib, sys; \
        print(base64.b64encode(hashlib.sha256(open(sys.argv[1], 'rb').read()).digest()).decode())";
    let sum = Tool::require("python3").run(["-c".as_ref(), program.as_ref(), path.as_os_str()]).stdout;
    assert_eq!(between("'sha256-", "'"), String::from_utf8_lossy(&sum).trim());
}

#[test]
fn a_sample_that_fails_does_not_keep_the_others_from_being_done() {
    needs!("bcftools", "bgzip", "bash");
    let cohort = Cohort::cached();
    let directory = scratch::directory("failing");
    let (sheet, out) = (write_sheet(cohort, &directory), directory.join("out"));
    let broken = directory.join("ada_2_2.fastq");
    let whole = fs::read_to_string(&broken).expect("it was written");
    fs::write(&broken, format!("{whole}@cut\nACGT\n")).expect("scratch can be written to");
    let failed = run(cohort, &sheet, &out).run();
    failed.assert_rejected(&[EXIT_INPUT], &["1 of 2 samples failed", "ada", "ada_2_2.fastq", "--resume"]);
    let told = report(&out);
    assert!(told["samples"][0]["error"].as_str().is_some_and(|error| error.contains("ada_2_2.fastq")), "{told}");
    assert!(told["samples"][1]["error"].is_null() && out.join("ben/ben.vcf.gz").is_file(), "{told}");
    assert!(!out.join("ada/ada.bam").exists());
    fs::write(&broken, &whole).expect("scratch can be written to");
    run(cohort, &sheet, &out).arg("--resume").run_ok();
    let told = report(&out);
    assert_eq!(step_names(&told["samples"][0]["steps"]), [("align".to_owned(), false), ("call".to_owned(), false)]);
    assert_eq!(step_names(&told["samples"][1]["steps"]), [("align".to_owned(), true), ("call".to_owned(), true)]);
    let bam = out.join("ada/ada.bam");
    assert_same_text(&vcf_records(&out.join("ada/ada.vcf.gz")), &call_without_workflow(cohort, &bam));
}

#[test]
fn a_sample_whose_reads_are_missing_is_told_at_the_start_and_the_others_are_done() {
    needs!("bcftools", "bgzip", "bash");
    let cohort = Cohort::cached();
    let directory = scratch::directory("missing-reads");
    let (sheet, out) = (write_sheet(cohort, &directory), directory.join("out"));
    fs::remove_file(directory.join("ada_2_2.fastq")).expect("it was written");
    let failed = run(cohort, &sheet, &out).run();
    failed.assert_rejected(&[4], &["1 of 2 samples failed", "ada", "ada_2_2.fastq", "--resume"]);
    let first = failed.stderr.lines().next().unwrap_or_default();
    assert!(first.contains("ada will fail") && first.contains("line 4, column fastq_2"), "{}", failed.describe());
    let told = report(&out);
    assert!(told["samples"][1]["error"].is_null() && out.join("ben/ben.vcf.gz").is_file(), "{told}");
}

#[test]
fn sheets_and_options_that_make_no_sense_are_refused_before_anything_is_done() {
    needs!("bcftools");
    let cohort = Cohort::cached();
    let directory = scratch::directory("sheets");
    let (path, out) = (directory.join("sheet.csv"), directory.join("out"));
    let refused = |finished: GodwitOutput, code: i32, words: &[&str]| {
        finished.assert_rejected(&[code], words);
        assert!(!out.exists());
    };
    refused(run(cohort, &path, &out).run(), 4, &["sheet.csv is missing"]);
    fs::write(&path, "sample,fastq_1,fastq_2\nada,none_1.fq,none_2.fq\n").expect("scratch can be written to");
    refused(
        run(cohort, &path, &out).run(),
        EXIT_INPUT,
        &["sheet.csv, line 2, column fastq_1", "none_1.fq does not exist"],
    );
    fs::write(&path, "sample,fastq\n").expect("scratch can be written to");
    refused(run(cohort, &path, &out).run(), EXIT_INPUT, &["sheet.csv, line 1, column 2", "fastq_1"]);
    let sheet = write_sheet(cohort, &directory);
    refused(run(cohort, &sheet, &out).args(["--known-sites", "a.vcf.gz"]).run(), 2, &["--workflow gatk"]);
    for caller in ["freebayes", "bcftools"] {
        let words = ["--workflow", "gatk", "--caller", caller];
        refused(run(cohort, &sheet, &out).args(words).run(), 2, &["HaplotypeCaller"]);
    }
}

/// Returns contig, position and filter of the records that `tool` writes when it holds SNPs, or all others, to the
/// filters that GATK's documentation has for them.
fn expected_filters(cohort: &Cohort, joint: &Path, directory: &Path, snps: bool) -> Vec<String> {
    let filters: &[(&str, &str)] = match snps {
        true => &[
            ("QD2", "QD < 2.0"),
            ("QUAL30", "QUAL < 30.0"),
            ("SOR3", "SOR > 3.0"),
            ("FS60", "FS > 60.0"),
            ("MQ40", "MQ < 40.0"),
            ("MQRankSum-12.5", "MQRankSum < -12.5"),
            ("ReadPosRankSum-8", "ReadPosRankSum < -8.0"),
        ],
        false => &[
            ("QD2", "QD < 2.0"),
            ("QUAL30", "QUAL < 30.0"),
            ("FS200", "FS > 200.0"),
            ("ReadPosRankSum-20", "ReadPosRankSum < -20.0"),
        ],
    };
    let (selected, filtered) = (directory.join("selected.vcf"), directory.join("filtered.vcf"));
    let choice = if snps { "--select-type-to-include" } else { "--select-type-to-exclude" };
    let mut command = gatk::gatk_command("SelectVariants");
    run_checked(command.arg("-V").arg(joint).args([choice, "SNP"]).arg("-O").arg(&selected));
    let mut command = gatk::gatk_command("VariantFiltration");
    command.arg("-R").arg(&cohort.reference).arg("-V").arg(&selected).arg("-O").arg(&filtered);
    command.args(filters.iter().flat_map(|(name, expression)| ["-filter", expression, "--filter-name", name]));
    run_checked(&mut command);
    filters_of(&record_lines(&fs::read(&filtered).expect("GATK wrote it")))
}

fn filters_of(records: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(records);
    let filter = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        format!("{} {} {} {} {}", fields[0], fields[1], fields[3], fields[4], fields[6])
    };
    text.lines().map(filter).collect()
}

#[test]
#[ignore = "two minutes of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored workflow::"]
fn the_workflow_of_gatk_ends_in_filtered_joint_variants() {
    needs!("bcftools", "bgzip", "bash", "samtools", "tabix");
    needs_gatk!();
    let cohort = Cohort::cached();
    let directory = scratch::directory("best-practices");
    let (sheet, out) = (write_sheet(cohort, &directory), directory.join("out"));
    let known = write_known_sites(cohort, &directory);
    let gatk = || {
        let run = run(cohort, &sheet, &out).args(["--workflow", "gatk", "--caller-memory", "1G", "--known-sites"]);
        run.arg(&known).with_gatk()
    };
    let first = gatk().run_ok();
    let how = "GATK's hard filters, not variant recalibration: no resources are given to train the model";
    assert!(first.stderr.contains(&format!("variants were filtered by {how}")), "{}", first.describe());
    let told = report(&out);
    for sample in told["samples"].as_array().expect("a list") {
        let names: Vec<String> = step_names(&sample["steps"]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["align", "recalibrate", "call"]);
    }
    let cohort_steps: Vec<String> = step_names(&told["cohort"]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(cohort_steps, ["genotype", "filter"]);
    assert_eq!(told["filters"], how);
    let (joint, filtered) = (out.join("joint.vcf.gz"), out.join("joint.filtered.vcf.gz"));
    for file in [&joint, &filtered] {
        godwit().arg("verify").arg(file).run_ok();
    }
    let mut expected = expected_filters(cohort, &joint, &directory, true);
    expected.extend(expected_filters(cohort, &joint, &directory, false));
    expected.sort();
    let mut found = filters_of(&vcf_records(&filtered));
    found.sort();
    assert!(expected.len() > 100, "{} records", expected.len());
    assert_eq!(found, expected);
    // All steps are finished, so another start runs no step.
    let again = gatk().arg("--resume").run_ok();
    let told = report(&out);
    let all =
        told["samples"].as_array().expect("a list").iter().map(|sample| &sample["steps"]).chain([&told["cohort"]]);
    assert!(all.flat_map(step_names).all(|(_, done_before)| done_before), "{}", again.describe());
}

#[test]
#[ignore = "half a minute of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored workflow::"]
fn what_the_workflow_of_gatk_leaves_out_it_says() {
    needs!("samtools", "bgzip");
    needs_gatk!();
    let cohort = Cohort::cached();
    let directory = scratch::directory("left-out");
    let (sheet, out) = (directory.join("one.csv"), directory.join("out"));
    let [one, two] = [1, 2].map(|mate| read_file(cohort, "ben", mate));
    fs::write(&sheet, format!("sample,fastq_1,fastq_2\nben,{},{}\n", one.display(), two.display()))
        .expect("scratch can be written to");
    let run = run(cohort, &sheet, &out).args(["--workflow", "gatk", "--caller-memory", "1G"]);
    let run = run.with_gatk().run_ok();
    assert!(run.stderr.contains("recalibration is skipped"), "{}", run.describe());
    let told = report(&out);
    assert!(told["left_out"][0].as_str().is_some_and(|note| note.contains("--known-sites")), "{told}");
    assert!(fs::read_to_string(out.join("report.html")).expect("a page").contains("is skipped"));
}
