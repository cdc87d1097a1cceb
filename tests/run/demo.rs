//! `godwit demo`: its output agrees with the truth set and with the tools that it replaces.

use godwit_tests::binary::godwit;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

/// Returns the value that follows a label in the printed table.
fn labelled_value<'t>(table: &'t str, label: &str) -> &'t str {
    let line = table.lines().find_map(|line| line.strip_prefix(label));
    line.unwrap_or_else(|| panic!("no {label:?} in\n{table}")).trim()
}

#[test]
fn the_demo_finds_the_variants_it_made_and_differs_from_no_tool() {
    needs!("bash", "bwa", "samtools", "bcftools");
    // The directory name contains a space, which the demo must quote in the commands that it prints.
    let out = scratch::directory("a demo");
    let run = godwit().arg("demo").arg("--out").arg(&out).run_ok();
    let table = &run.stdout;
    assert_eq!(labelled_value(table, "records that differ from bwa mem | samtools sort"), "0", "{table}");
    let shares = |label: &str| -> Vec<f64> {
        labelled_value(table, label).split(", ").map(|share| share.parse().expect("a share is a number")).collect()
    };
    let [recall, precision, f1] = shares("SNPs: recall, precision, F1")[..] else { panic!("three shares: {table}") };
    println!("{table}");
    // Some variants are in repeats with identical copies, where no caller can find them.
    assert!(f1 >= 0.98, "{table}");
    assert!(shares("  of those in unique sequence")[2] >= 0.99, "{table}");
    assert!((f1 - 2.0 * recall * precision / (recall + precision)).abs() < 1e-3, "{table}");
    // The table of the demo contains the same numbers as `godwit compare`, which compares haplotypes.
    let compared = godwit().arg("compare").args([out.join("demo.vcf.gz"), out.join("truth.vcf")]);
    let compared = compared.arg("--reference").arg(out.join("reference.fa")).arg("--json").run_ok().stdout;
    let compared: serde_json::Value = serde_json::from_str(&compared).expect("it prints JSON");
    assert_eq!(compared["match"], "haplotypes", "{compared}");
    for (kind, label) in [("snps", "SNPs: recall, precision, F1"), ("indels", "indels: recall, precision, F1")] {
        let rates =
            ["recall", "precision", "f1"].map(|rate| compared[kind][rate].as_f64().expect("a rate is a number"));
        assert_eq!(labelled_value(table, label), rates.map(|rate| format!("{rate:.4}")).join(", "), "{table}");
    }
    for name in ["demo.bam", "demo.vcf.gz", "demo.vcf.gz.tbi", "truth.vcf", "unique.bed", "report.html"] {
        assert!(out.join(name).is_file(), "{name} is not there");
    }
    let (_, next) = table.split_once("Try next:\n").unwrap_or_else(|| panic!("no next commands in\n{table}"));
    let next: Vec<&str> = next.lines().map(str::trim).collect();
    assert!(next.len() == 3 && next[2].contains(" serve --root "), "{next:?}");
    for command in &next[..2] {
        run_checked(Tool::require("bash").command().args(["-euc", command]).current_dir(&out));
    }
}

#[test]
fn without_arguments_godwit_prints_examples() {
    let run = godwit().run();
    run.assert_rejected(&[2], &["no verb was given", "godwit --help"]);
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("\nExamples:\n  godwit demo\n") && run.stderr.lines().count() < 25, "{}", run.stderr);
}
