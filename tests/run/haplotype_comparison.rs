//! `godwit compare --match haplotypes`: options, files, and messages. The verdicts have golden cases of their own in
//! `crates/godwit-haplotypes/tests`.

use std::path::PathBuf;
use std::process::Command;

use godwit_tests::binary::{self, GodwitCommand, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::{needs, scratch, skip};
use serde_json::Value;

use super::picard::shared_data_directory;
use super::report::html_error;

/// 61 bases: a repeat of A at 11-18, of AC at 24-33 (1-based), and no other repeats.
const BASES: &str = "GATTCGCTGCAAAAAAAAGTCTGACACACACACATGGCTAGCTTACGTAGGATCCTGACCG";

const HEADER: &str = "##fileformat=VCFv4.2\n##contig=<ID=c1>\n##FORMAT=<ID=GT,Number=1,Type=String,Description=\"x\">\n\
                      #CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT";

/// A directory with a reference, calls and a truth set.
struct Case {
    directory: PathBuf,
}

impl Case {
    /// Writes records given as `POS REF ALT QUAL GT`, separated by blanks; a record has a GT for each sample.
    fn new(samples: &str, calls: &[&str], truth: &[&str]) -> Self {
        let case = Self { directory: scratch::directory("haplotypes") };
        case.write("ref.fa", &format!(">c1\n{BASES}\n"));
        for (name, samples, records) in [("calls.vcf", samples, calls), ("truth.vcf", "t", truth)] {
            let mut text = format!("{HEADER}\t{}\n", samples.replace(' ', "\t"));
            for record in records {
                let columns: Vec<&str> = record.split(' ').collect();
                let (position, bases, quality) = (columns[0], columns[1..3].join("\t"), columns[3]);
                text += &format!("c1\t{position}\t.\t{bases}\t{quality}\t.\t.\tGT\t{}\n", columns[4..].join("\t"));
            }
            case.write(name, &text);
        }
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("it can be written");
    }

    fn compare(&self) -> GodwitCommand {
        let run = godwit().arg("compare").arg(self.path("calls.vcf")).arg(self.path("truth.vcf"));
        run.arg("--reference").arg(self.path("ref.fa"))
    }
}

fn run_to_json(run: GodwitCommand) -> Value {
    serde_json::from_str(&run.arg("--json").run_ok().stdout).expect("it prints JSON")
}

/// Returns found and missed variants of the truth, and true and false calls.
fn counts(found: &Value) -> [u64; 4] {
    ["found", "missed", "true", "false"].map(|name| found[name].as_u64().expect(name))
}

/// Calls with one true substitution of two bases, a false substitution, and a deletion at another position.
fn example() -> Case {
    let calls = ["4 TC AG 60 0/1", "12 AA A 50 0/1", "40 A G 10 0/1"];
    Case::new("s", &calls, &["4 T A . 0/1", "5 C G . 0/1", "10 CA C . 0/1"])
}

#[test]
fn haplotypes_are_compared_by_default() {
    let case = example();
    let found = run_to_json(case.compare().args(["--score", "QUAL"]));
    assert_eq!((found["match"].as_str(), counts(&found["all"])), (Some("haplotypes"), [3, 0, 2, 1]));
    assert_eq!(counts(&found["indels"]), [1, 0, 1, 0]);
    assert_eq!(found["summary"][0]["threshold"], 50.0);
    let table = case.compare().args(["--score", "QUAL"]).run_ok().stdout;
    for text in ["SNPs", "indels", "MNPs", "all", "best F1 at a score of 50.000", "3 records, 3 compared"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    // Without a reference, `compare` compares records instead of haplotypes.
    let run = godwit().arg("compare").arg(case.path("calls.vcf")).arg(case.path("truth.vcf"));
    run.args(["--match", "haplotypes"]).run().assert_rejected(&[2], &["--reference", "--match records"]);
}

#[test]
fn records_on_contigs_that_the_reference_does_not_have_are_counted() {
    let case = example();
    for (name, contig, place) in [("calls.vcf", "decoy", "after"), ("truth.vcf", "a0", "before")] {
        let text = std::fs::read_to_string(case.path(name)).expect("it was written");
        let record = format!("{contig}\t7\t.\tA\tC\t.\t.\t.\tGT\t0/1\n");
        let text = match place {
            "after" => text + &record,
            _ => text.replacen("c1\t", &format!("{record}c1\t"), 1),
        };
        case.write(name, &text);
    }
    let found = run_to_json(case.compare());
    assert_eq!(counts(&found["all"]), [3, 0, 2, 1]);
    for side in ["calls", "truth"] {
        assert_eq!((&found[side]["records"], &found[side]["unknown_contigs"]), (&3.into(), &1.into()), "{found}");
    }
    let table = case.compare().run_ok().stdout;
    assert!(table.contains("3 records, 3 compared; 1 more on contigs that the reference does not have"), "{table}");
}

#[test]
fn the_files_of_the_verdicts_appear_together() {
    let case = example();
    let out = case.path("verdicts");
    case.compare().arg("--out").arg(&out).run_ok();
    let mut names: Vec<String> = std::fs::read_dir(&out)
        .expect("it is there")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let expected = [
        "fn.vcf.gz",
        "fn.vcf.gz.tbi",
        "fp.vcf.gz",
        "fp.vcf.gz.tbi",
        "non_snp_roc.tsv.gz",
        "phasing.txt",
        "report.html",
        "snp_roc.tsv.gz",
        "summary.csv",
        "summary.txt",
        "tp-baseline.vcf.gz",
        "tp-baseline.vcf.gz.tbi",
        "tp.vcf.gz",
        "tp.vcf.gz.tbi",
        "weighted_roc.tsv.gz",
    ];
    assert_eq!(names, expected);
    case.compare().arg("--out").arg(&out).run().assert_rejected(&[2], &["verdicts", "has files"]);
    let joined = case.path("joined");
    case.compare().args(["--output-mode", "ga4gh", "--out"]).arg(&joined).run_ok();
    assert!(joined.join("output.vcf.gz.tbi").is_file() && !joined.join("summary.txt").exists());
    // A failed comparison must not leave an output directory.
    case.write("calls.vcf", &format!("{HEADER}\ts\nc1\t4\t.\tT\tA\t.\t.\t.\tGT\t0/7\n"));
    let failed = case.path("failed");
    case.compare().arg("--out").arg(&failed).run().assert_rejected(&[3], &["calls.vcf", "c1:4", "allele number"]);
    assert!(!failed.exists());
}

#[test]
fn samples_and_regions_are_selected() {
    let case = Case::new("a b", &["4 T A . 0/1 0/0", "40 A G . 0/0 0/1"], &["4 T A . 0/1"]);
    case.compare().run().assert_rejected(&[2], &["calls.vcf", "several samples", "a, b"]);
    assert_eq!(counts(&run_to_json(case.compare().args(["--sample", "a"]))["all"]), [1, 0, 1, 0]);
    assert_eq!(counts(&run_to_json(case.compare().args(["--sample", "b,t"]))["all"]), [0, 1, 0, 1]);
    let run = case.compare().args(["--sample", "a", "--regions", "c1:30-50"]);
    assert_eq!(counts(&run_to_json(run)["all"]), [0, 0, 0, 0]);
    // Commas of a number are ignored, as in samtools, so `50,60` is 5060.
    for (regions, region) in [("c1:62-70", "c1:62-70"), ("c1:50,60", "c1:5060-"), ("c1:1-9,c1:70", "c1:70-")] {
        let run = case.compare().args(["--sample", "a", "--regions", regions]).run();
        run.assert_rejected(&[2], &[region, "starts after the end of contig c1", "61 bases"]);
    }
    case.write("beyond.bed", "c1\t0\t10\nc1\t61\t62\n");
    let run = case.compare().args(["--sample", "a", "--regions"]).arg(case.path("beyond.bed")).run();
    run.assert_rejected(&[3], &["beyond.bed, line 2", "starts after the end of contig c1"]);
    case.write("a.bed", "c1\t0\t10\n");
    let run = case.compare().args(["--sample", "b", "--confident"]).arg(case.path("a.bed"));
    assert_eq!(counts(&run_to_json(run)["all"]), [0, 1, 0, 0]);
}

#[test]
fn counts_by_stratum_are_in_the_table_in_json_and_in_a_file() {
    let case = example();
    case.write("repeat.bed", "c1\t10\t18\n");
    case.write("strata.tsv", "repeat\trepeat.bed\n");
    let run = || case.compare().arg("--stratification").arg(case.path("strata.tsv"));
    let out = case.path("strata");
    let found = run_to_json(run().arg("--out").arg(&out));
    assert_eq!((found["strata"][0]["name"].as_str(), found["strata"][1]["name"].as_str()), (Some("*"), Some("repeat")));
    assert_eq!(counts(&found["strata"][0]["snps"]), counts(&found["snps"]));
    assert_eq!(counts(&found["strata"][1]["indels"]), [1, 0, 1, 0]);
    let rows = std::fs::read_to_string(out.join("summary.csv")).expect("it is written");
    assert!(rows.starts_with("Type,Subtype,Subset,Filter,Genotype,METRIC.Recall,METRIC.Precision"), "{rows}");
    assert!(rows.contains("INDEL,*,repeat,PASS,*,1.000000,1.000000,0.000000,1.000000,,,1,1,0,1,1,0,0\n"), "{rows}");
    let table = run().run_ok().stdout;
    assert!(table.contains("stratum") && table.contains("repeat"), "{table}");
    run().args(["--match", "records"]).run().assert_rejected(&[2], &["--stratification"]);
    case.write("strata.tsv", "repeat repeat.bed\n");
    run().run().assert_rejected(&[3], &["strata.tsv, line 1", "two columns"]);
}

#[test]
fn the_table_of_publications_is_printed_and_in_the_report_page() {
    let case = example();
    let out = case.path("page");
    let printed = case.compare().args(["--score", "QUAL", "--out"]).arg(&out).run_ok().stdout;
    let table = "\n\
        Variant type  Truth total  True positives  False negatives  False positives    Recall  Precision  F1-Score\n\
        INDEL                   1               1                0                0  1.000000   1.000000  1.000000\n\
        SNP                     2               2                0                1  1.000000   0.000000  0.000000\n";
    assert!(printed.ends_with(table), "{printed}");
    let page = std::fs::read_to_string(out.join("report.html")).expect("it is written");
    assert_eq!(html_error(&page), None);
    for part in
        ["F1-Score</th>", "<th scope=\"row\">INDEL</th><td>1</td>", "ROC</h3>", "Precision and recall", "NON_SNP"]
    {
        assert_eq!(page.contains(part), part != "NON_SNP", "{part}");
    }
    for fetch in ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(fetch), "the page has {fetch}");
    }
    // Without scores there are no curves. Names of files cannot become HTML.
    let name = "<script>calls.vcf";
    std::fs::copy(case.path("calls.vcf"), case.path(name)).expect("it can be copied");
    let run = godwit().arg("compare").arg(case.path(name)).arg(case.path("truth.vcf")).arg("--reference");
    let out = case.path("page-2");
    run.arg(case.path("ref.fa")).args(["--sample", "ALT", "--out"]).arg(&out).run_ok();
    let page = std::fs::read_to_string(out.join("report.html")).expect("it is written");
    assert_eq!(html_error(&page), None);
    assert!(!page.contains("<svg") && !page.contains("<script") && page.contains("&lt;script&gt;calls.vcf"), "{page}");
}

#[test]
fn the_curves_of_the_scores_are_in_json() {
    let found = run_to_json(example().compare().args(["--score", "QUAL"]));
    let subsets: Vec<&str> =
        found["roc"].as_array().expect("a list").iter().flat_map(|c| c["subset"].as_str()).collect();
    assert_eq!(subsets, ["ALL", "SNP", "NON_SNP"]);
    let points = found["roc"][0]["points"].as_array().expect("a list");
    let shown: Vec<String> = points.iter().map(|p| format!("{} {} {}", p["score"], p["found"], p["false"])).collect();
    assert_eq!(shown, ["60.0 2.0 0.0", "50.0 3.0 0.0", "10.0 3.0 1.0"]);
}

#[test]
fn calls_are_read_from_an_output_directory_and_from_a_server() {
    needs!("bgzip");
    let case = example();
    let [directory, expected] = ["job", "here"].map(|name| case.path(name));
    std::fs::create_dir(&directory).expect("it can be created");
    let compressed = Command::new("bgzip").arg("-c").arg(case.path("calls.vcf")).output().expect("bgzip runs").stdout;
    std::fs::write(directory.join("s.vcf.gz"), &compressed).expect("it can be written");
    std::fs::write(directory.join("s.g.vcf.gz"), "not read").expect("it can be written");
    case.compare().arg("--out").arg(&expected).run_ok();
    let served = DataServer::start(&case.directory, &[]);
    let url = |name: &str| format!("grpc+tcp://{}/{name}", served.address);
    let inputs = [
        (directory.to_string_lossy().into_owned(), case.path("truth.vcf").to_string_lossy().into_owned()),
        (url("job/s.vcf.gz"), url("truth.vcf")),
    ];
    for (number, (calls, truth)) in inputs.iter().enumerate() {
        let out = case.path(&format!("out-{number}"));
        let run = godwit().args(["compare", calls, truth, "--reference"]).arg(case.path("ref.fa"));
        run.arg("--temp").arg(&case.directory).arg("--out").arg(&out).run_ok();
        for name in ["tp.vcf.gz", "fp.vcf.gz", "summary.csv", "weighted_roc.tsv.gz"] {
            let read = |directory: &PathBuf| std::fs::read(directory.join(name)).expect(name);
            assert!(read(&out) == read(&expected), "{name} of {calls}");
        }
    }
    // The downloads are removed.
    assert!(scratch::entry_names(&case.directory).iter().all(|name| !name.starts_with("godwit-compare-")));
    std::fs::write(directory.join("other.vcf.gz"), &compressed).expect("it can be written");
    let run = |calls: &str| godwit().args(["compare", calls]).arg(case.path("truth.vcf")).arg("--reference");
    let rejected = |calls: &str| run(calls).arg(case.path("ref.fa")).run();
    rejected(&inputs[0].0).assert_rejected(&[2], &["several VCF files", "other.vcf.gz, s.vcf.gz"]);
    rejected(&url("")).assert_rejected(&[2], &["does not name a file"]);
    rejected(&url("none.vcf.gz")).assert_rejected(&[2, 3, 4, 6], &["none.vcf.gz"]);
    rejected(&case.directory.to_string_lossy()).assert_rejected(&[2], &["no file whose name ends in .vcf.gz"]);
}

/// The script that counts differing verdicts is beside the golden cases, with a table that maps the options of vcfeval to
/// those of godwit. The table does not skip the two options that select another threshold for the summary.
#[test]
fn the_program_has_no_differing_verdict_in_the_golden_cases() {
    needs!("python3");
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let tree = data.join("vcfeval");
    let quoted = format!("'{}'", binary::path().display());
    let compared = "compare {calls} {baseline} --reference {reference} --out {out} {options}";
    let mut check = Command::new("python3");
    check.arg(tree.join("check.py")).args(["--command", &format!("{quoted} {compared}"), "--jobs", "2"]);
    let options = scratch::directory("vcfeval-options").join("options.tsv");
    let table = std::fs::read_to_string(tree.join("options.tsv")).expect("it can be read");
    std::fs::write(&options, format!("{table}^--at-.*$\tSKIP\n")).expect("it can be written");
    let found = check.arg("--translate").arg(&options).output().expect("python3 runs");
    let printed = String::from_utf8_lossy(&found.stdout);
    let last = printed.lines().last().unwrap_or_default();
    assert!(found.status.success(), "{printed}{}", String::from_utf8_lossy(&found.stderr));
    assert!(last.contains("0 differ; of ") && last.contains(" 0 verdicts and 0 records differ; 0 tables"), "{last}");
}

#[test]
fn options_of_the_other_comparison_are_rejected() {
    let case = example();
    let run = || case.compare();
    run().args(["--match", "records", "--squash-ploidy"]).run().assert_rejected(&[2], &["--squash-ploidy"]);
    run().args(["--match", "haplotypes", "--ignore-genotypes"]).run().assert_rejected(&[2], &["--match records"]);
    run().args(["--output-mode", "combine"]).run().assert_rejected(&[2], &["--out"]);
    run().args(["--score", "X.Y"]).run().assert_rejected(&[2], &["--score X.Y", "INFO.NAME"]);
}
