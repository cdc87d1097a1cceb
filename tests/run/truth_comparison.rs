//! Call sets against truth sets, record by record: known counts, counts made with bcftools, and real calls.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch, skip};
use serde_json::Value;

use super::picard::shared_data_directory;

/// 60 bases: a repeat of A at 11-18, of AC at 24-33 (1-based), and no other repeats.
const CONTIG_1: &str = "GATTCGCTGCAAAAAAAAGTCTGACACACACACATGGCTAGCTTACGTAGGATCCTGACCG";
const CONTIG_2: &str = "TTGACCTGAAGTCCATGCATCGGATTACAGCTAACGTGCATGCCTAGTCAAGCTTGCAGT";

/// A directory with a reference and files of variants on it.
struct Case {
    directory: PathBuf,
}

impl Case {
    fn new() -> Self {
        let directory = scratch::directory("compare");
        std::fs::write(directory.join("ref.fa"), format!(">c1\n{CONTIG_1}\n>c2\n{CONTIG_2}\n"))
            .expect("it can be written");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes records given as `CONTIG POS REF ALT GT [FILTER]`, separated by blanks.
    fn vcf(&self, name: &str, records: &[&str]) -> PathBuf {
        let mut text = String::from(
            "##fileformat=VCFv4.2\n##FILTER=<ID=low,Description=\"x\">\n##FORMAT=<ID=GT,Number=1,Type=String,Description=\"x\">\n",
        );
        let lines: Vec<Vec<&str>> = records.iter().map(|record| record.split(' ').collect()).collect();
        let mut contigs: Vec<&str> = lines.iter().map(|line| line[0]).collect();
        contigs.dedup();
        contigs.iter().for_each(|contig| writeln!(text, "##contig=<ID={contig}>").expect("text grows"));
        text += "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n";
        for line in lines {
            let filter = line.get(5).unwrap_or(&"PASS");
            writeln!(text, "{}\t{}\t.\t{}\t{}\t.\t{filter}\t.\tGT\t{}", line[0], line[1], line[2], line[3], line[4])
                .expect("text grows");
        }
        let path = self.path(name);
        std::fs::write(&path, text).expect("it can be written");
        path
    }

    fn compare(&self, calls: &Path, truth: &Path) -> GodwitCommand {
        let run = godwit().arg("compare").arg(calls).arg(truth).args(["--match", "records"]);
        run.arg("--reference").arg(self.path("ref.fa"))
    }
}

fn run_to_json(run: GodwitCommand) -> Value {
    let stdout = run.arg("--json").run_ok().stdout;
    serde_json::from_str(&stdout).expect("it prints JSON")
}

/// Returns the counts of found, wrong-genotype, missed and false alleles.
fn class_counts(class: &Value) -> [u64; 4] {
    ["found", "other_genotype", "missed", "false"].map(|name| class[name].as_u64().expect(name))
}

/// Compares calls with the truth, and returns the counts of SNPs and of indels.
fn compare_counts(calls: &[&str], truth: &[&str]) -> ([u64; 4], [u64; 4]) {
    let case = Case::new();
    let (calls, truth) = (case.vcf("calls.vcf", calls), case.vcf("truth.vcf", truth));
    let found = run_to_json(case.compare(&calls, &truth));
    (class_counts(&found["calls"]["snps"]), class_counts(&found["calls"]["indels"]))
}

const NO_COUNTS: [u64; 4] = [0; 4];

#[test]
fn genotypes_count() {
    needs!("bcftools");
    let truth = ["c1 2 A G 0/1", "c1 4 T C 1/1", "c1 6 G A 0/1", "c1 20 T A 1|0"];
    assert_eq!(compare_counts(&truth, &truth), ([4, 0, 0, 0], NO_COUNTS));
    let calls = ["c1 2 A G 1/1", "c1 4 T C 0/1", "c1 6 G A 1|0", "c1 22 T G 0/1"];
    assert_eq!(compare_counts(&calls, &truth), ([1, 2, 1, 1], NO_COUNTS));
    // Records without called alleles: a missing genotype, or only reference alleles.
    assert_eq!(compare_counts(&["c1 2 A G ./.", "c1 4 T C 0/0", "c1 6 G A ."], &truth), ([0, 0, 4, 0], NO_COUNTS));
    // A genotype with a missing allele does not match. A haploid genotype of the alternate allele equals a homozygous
    // diploid one.
    assert_eq!(compare_counts(&["c1 2 A G ./1", "c1 4 T C 1"], &truth), ([2, 0, 2, 0], NO_COUNTS));
    assert_eq!(compare_counts(&["c1 2 A G 1"], &truth), ([0, 1, 3, 0], NO_COUNTS));
}

#[test]
fn indels_in_repeats_are_the_same_wherever_they_stand() {
    needs!("bcftools");
    let left = ["c1 10 CA C 0/1", "c1 23 GACAC G 1/1", "c1 10 C CAA 0/1"];
    let elsewhere = ["c1 12 AA A 0/1", "c1 28 ACACA A 1/1", "c1 18 A AAA 0/1"];
    // The same variants at other positions match, because bcftools left-aligns both files.
    assert_eq!(compare_counts(&elsewhere, &left), (NO_COUNTS, [3, 0, 0, 0]));
    // The same variants with redundant bases, and at another position.
    assert_eq!(
        compare_counts(&["c1 9 GCAAA GCAA 0/1", "c1 23 GACAC G 1/1", "c1 17 AAG AAAAG 0/1"], &left),
        (NO_COUNTS, [3, 0, 0, 0])
    );
    // Without --reference, the variants are not left-aligned and do not match.
    let case = Case::new();
    let (calls, truth) = (case.vcf("calls.vcf", &elsewhere), case.vcf("truth.vcf", &left));
    let run = godwit().arg("compare").arg(&calls).arg(&truth);
    let found = run_to_json(run);
    assert_eq!(class_counts(&found["calls"]["indels"]), [0, 0, 3, 3]);
    assert_eq!(found["left_aligned"], false);
    assert!(godwit().arg("compare").arg(&calls).arg(&truth).run_ok().stdout.contains("--reference"));
}

#[test]
fn alleles_of_one_record_count_by_themselves() {
    needs!("bcftools");
    let truth = ["c1 2 A C,G 1/2", "c1 10 CA C,CAA 1|2"];
    let split = ["c1 2 A C 0/1", "c1 2 A G 0/1", "c1 10 C CA 0/1", "c1 10 CA C 0/1"];
    assert_eq!(compare_counts(&split, &truth), ([2, 0, 0, 0], [2, 0, 0, 0]));
    // Calls with one of two true alleles, once with the wrong genotype. Alleles of a record that are in no genotype do
    // not count.
    assert_eq!(compare_counts(&["c1 2 A C,T 1/1", "c1 10 CA C,CAAAA 0/1"], &truth), ([0, 1, 1, 0], [1, 0, 1, 0]));
    assert_eq!(compare_counts(&["c1 2 A *,G 1/2"], &["c1 2 A G 0/1"]), ([1, 0, 0, 0], NO_COUNTS));
}

#[test]
fn changes_of_several_bases_are_taken_apart() {
    needs!("bcftools");
    let apart = ["c1 4 T A 0/1", "c1 5 C G 0/1"];
    assert_eq!(compare_counts(&["c1 4 TC AG 0/1"], &apart), ([2, 0, 0, 0], NO_COUNTS));
    assert_eq!(compare_counts(&apart, &["c1 4 TC AG 0/1"]), ([2, 0, 0, 0], NO_COUNTS));
    // Both alternate alleles of a record contain the same change, so it counts as homozygous.
    assert_eq!(compare_counts(&["c1 4 TC AC,AG 1/2"], &["c1 4 T A 1/1", "c1 5 C G 0/1"]), ([2, 0, 0, 0], NO_COUNTS));
    // One record contains a substitution and an insertion after it.
    assert_eq!(compare_counts(&["c1 5 CG TGC 0/1"], &["c1 5 C T 0/1", "c1 6 G GC 0/1"]), ([1, 0, 0, 0], [1, 0, 0, 0]));
    // Both files have the same haplotype, but the comparison by records does not match them. The summary reports such
    // cases.
    let case = Case::new();
    let calls = case.vcf("calls.vcf", &["c1 19 GTC G 0/1", "c1 22 T A 0/1"]);
    let truth = case.vcf("truth.vcf", &["c1 20 T A 0/1", "c1 20 TCT T 0/1"]);
    let table = case.compare(&calls, &truth).run_ok().stdout;
    assert!(table.contains("possibly the same haplotype in another representation"), "{table}");
}

#[test]
fn what_is_left_out_is_told() {
    needs!("bcftools");
    let case = Case::new();
    let calls =
        ["c1 2 A G 0/1", "c1 2 A G 0/1", "c1 4 T C 0/1 low", "c1 6 G <DEL> 0/1", "c1 9 G N 0/1", "c1 20 T A ./."];
    let calls = case.vcf("calls.vcf", &calls);
    let truth = case.vcf("truth.vcf", &["c1 2 A G 0/1", "c1 4 T C 0/1"]);
    let found = run_to_json(case.compare(&calls, &truth));
    assert_eq!(class_counts(&found["calls"]["snps"]), [1, 0, 1, 0]);
    let left: Vec<u64> = ["records", "filtered", "without_genotype", "not_in_bases", "repeated"]
        .map(|name| found["calls"][name].as_u64().expect(name))
        .to_vec();
    assert_eq!(left, [6, 1, 1, 2, 1]);
    let all = run_to_json(case.compare(&calls, &truth).arg("--all-records"));
    assert_eq!(class_counts(&all["calls"]["snps"]), [2, 0, 0, 0]);
    let table = case.compare(&calls, &truth).run_ok().stdout;
    assert!(
        table.contains("excluded: 1 failed a filter, 1 without a genotype, 2 alleles not in bases, 1 alleles twice"),
        "{table}"
    );
}

#[test]
fn rates_are_those_of_the_counts() {
    needs!("bcftools");
    let case = Case::new();
    let calls = case.vcf("calls.vcf", &["c1 2 A G 0/1", "c1 4 T C 0/1", "c1 6 G A 1/1", "c1 20 T A 0/1"]);
    let truth =
        case.vcf("truth.vcf", &["c1 2 A G 0/1", "c1 4 T C 0/1", "c1 6 G A 0/1", "c1 7 C A 0/1", "c1 22 T A 0/1"]);
    let found = run_to_json(case.compare(&calls, &truth));
    let rates = |class: &Value| ["recall", "precision", "f1"].map(|name| class[name].as_f64());
    assert_eq!(rates(&found["calls"]["snps"]), [Some(0.4), Some(0.5), Some(4.0 / 9.0)]);
    assert_eq!(rates(&found["calls"]["indels"]), [None; 3]);
    let ignoring = run_to_json(case.compare(&calls, &truth).arg("--ignore-genotypes"));
    assert_eq!(rates(&ignoring["calls"]["snps"])[..2], [Some(0.6), Some(0.75)]);
    let table = case.compare(&calls, &truth).run_ok().stdout;
    let row = table.lines().find(|line| line.starts_with("SNPs")).expect("a row");
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        "SNPs calls.vcf 5 2 1 2 1 0.4000 0.5000 0.4444".split(' ').collect::<Vec<_>>()
    );
}

#[test]
fn contigs_may_come_in_any_order() {
    needs!("bcftools");
    let truth = ["c1 2 A G 0/1", "c2 3 G T 0/1", "c2 10 A C 1/1"];
    assert_eq!(compare_counts(&["c2 3 G T 0/1", "c2 10 A C 1/1", "c1 2 A G 0/1"], &truth), ([3, 0, 0, 0], NO_COUNTS));
    // Without --confident, all calls at other positions are false positives.
    assert_eq!(compare_counts(&truth, &["c1 2 A G 0/1"]), ([1, 0, 0, 2], NO_COUNTS));
}

#[test]
fn only_what_lies_in_a_confident_region_counts() {
    needs!("bcftools");
    let case = Case::new();
    let calls = case
        .vcf("calls.vcf", &["c1 2 A G 0/1", "c1 12 AA A 0/1", "c1 20 T A 0/1", "c1 28 ACACA A 1/1", "c2 3 G T 0/1"]);
    let truth = case
        .vcf("truth.vcf", &["c1 2 A G 0/1", "c1 10 CA C 0/1", "c1 22 T A 0/1", "c1 23 GACAC G 1/1", "c2 3 G T 0/1"]);
    let judged = |bed: &str| {
        std::fs::write(case.path("a.bed"), bed).expect("it can be written");
        let found = run_to_json(case.compare(&calls, &truth).arg("--confident").arg(case.path("a.bed")));
        (
            class_counts(&found["calls"]["snps"]),
            class_counts(&found["calls"]["indels"]),
            found["confident_bases"].as_u64(),
        )
    };
    // Confident regions are 0-based and half-open. A variant is inside by its position after left alignment, and an
    // indel only if all its bases are inside.
    assert_eq!(judged("c1\t1\t2\n"), ([1, 0, 0, 0], NO_COUNTS, Some(1)));
    assert_eq!(judged("c1\t2\t22\n"), ([0, 0, 1, 1], [1, 0, 0, 0], Some(20)));
    assert_eq!(judged("c1\t2\t20\nc1\t22\t27\n"), ([0, 0, 0, 1], [2, 0, 0, 0], Some(23)));
    assert_eq!(judged("c1\t22\t25\nc1\t25\t27\nc1\t23\t24\n"), (NO_COUNTS, [1, 0, 0, 0], Some(5)));
    std::fs::write(case.path("a.bed"), "c1\t40\t50\n").expect("it can be written");
    let run = case.compare(&calls, &truth).arg("--confident").arg(case.path("a.bed"));
    run.run().assert_rejected(&[3], &["a.bed", "neither", "variant in the regions"]);
}

#[test]
fn a_baseline_shows_what_was_gained_and_lost() {
    needs!("bcftools");
    let case = Case::new();
    let truth =
        case.vcf("truth.vcf", &["c1 2 A G 0/1", "c1 4 T C 0/1", "c1 6 G A 0/1", "c1 10 CA C 0/1", "c2 3 G T 1/1"]);
    let whole =
        case.vcf("whole.vcf", &["c1 2 A G 0/1", "c1 4 T C 0/1", "c1 12 AA A 0/1", "c1 22 T A 0/1", "c2 3 G T 0/1"]);
    let cut = case.vcf(
        "cut.vcf",
        &["c1 2 A G 0/1", "c1 4 T C 1/1", "c1 6 G A 0/1", "c1 7 C A 0/1", "c1 23 GAC G 0/1", "c2 3 G T 1/1"],
    );
    let run = || case.compare(&cut, &truth).arg("--baseline").arg(&whole);
    let found = run_to_json(run());
    let names = ["true_gained", "true_lost", "false_gained", "false_lost"];
    let changes = |class: &str| names.map(|name| found["changes"][class][name].as_u64().expect(name));
    // True positives gained at c1:6 and c2:3, lost at c1:4 (genotype). False positives gained at c1:4 and c1:7, lost at
    // c1:22 and c2:3.
    assert_eq!(changes("snps"), [2, 1, 2, 2]);
    assert_eq!(changes("indels"), [0, 1, 1, 0]);
    assert_eq!(changes("all"), [2, 2, 3, 2]);
    assert_eq!(class_counts(&found["baseline"]["all"]), [3, 1, 1, 1]);
    let table = run().run_ok().stdout;
    assert!(table.contains("cut.vcf against whole.vcf:\n"), "{table}");
    let row = table.lines().rfind(|line| line.starts_with("all")).expect("a row");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["all", "2", "2", "3", "2"]);
}

#[test]
fn files_that_do_not_go_together_are_refused() {
    needs!("bcftools");
    let case = Case::new();
    let truth = case.vcf("truth.vcf", &["c1 2 A G 0/1"]);
    let prefixed = case.vcf("prefixed.vcf", &["chrc1 2 A G 0/1"]);
    let strange = case.vcf("strange.vcf", &["x 2 A G 0/1"]);
    let wrong_base = case.vcf("wrong.vcf", &["c1 2 C G 0/1"]);
    let allele = case.vcf("allele.vcf", &["c1 2 A G 0/2"]);
    let compare = |calls: &Path| case.compare(calls, &truth).run();
    compare(&prefixed).assert_rejected(&[3], &["prefixed.vcf", "truth.vcf", "\"chrc1\"", "\"c1\"", "--rename-chrs"]);
    compare(&strange).assert_rejected(&[3], &["strange.vcf", "same genome"]);
    compare(&wrong_base).assert_rejected(&[3], &["wrong.vcf", "ref.fa", "c1:2"]);
    compare(&allele).assert_rejected(&[3], &["allele.vcf", "line 6", "allele 2"]);
    compare(&case.path("none.vcf")).assert_rejected(&[4], &["none.vcf"]);
    compare(&case.path("ref.fa")).assert_rejected(&[3], &["ref.fa", "not VCF"]);
    std::fs::write(case.path("b.bed"), "chrc1\t0\t50\n").expect("it can be written");
    let run = case.compare(&truth, &truth).arg("--confident").arg(case.path("b.bed")).run();
    run.assert_rejected(&[3], &["b.bed", "\"chrc1\"", "--rename-chrs"]);
    std::fs::write(case.path("b.bed"), "c1\t5\n").expect("it can be written");
    case.compare(&truth, &truth)
        .arg("--confident")
        .arg(case.path("b.bed"))
        .run()
        .assert_rejected(&[3], &["b.bed", "line 1"]);
    std::fs::write(case.path("short.fa"), format!(">c2\n{CONTIG_2}\n")).expect("it can be written");
    let run = godwit().arg("compare").args([&truth, &truth]).args(["--match", "records"]);
    let run = run.arg("--reference").arg(case.path("short.fa")).run();
    run.assert_rejected(&[3], &["short.fa", "truth.vcf", "\"c1\""]);
    case.compare(&truth, &truth)
        .env("GODWIT_BCFTOOLS", "/nonexistent")
        .run()
        .assert_rejected(&[4], &["bcftools", "GODWIT_BCFTOOLS"]);
    let text = std::fs::read_to_string(&truth).expect("it can be read");
    let two = case.path("two.vcf");
    std::fs::write(&two, text.replace("\ts\n", "\ts\tother\n").replace("\t0/1\n", "\t0/0\t0/1\n"))
        .expect("it can be written");
    compare(&two).assert_rejected(&[2], &["two.vcf", "s, other", "--sample"]);
    assert_eq!(
        class_counts(&run_to_json(case.compare(&two, &truth).args(["--sample", "other"]))["calls"]["snps"]),
        [1, 0, 0, 0]
    );
    case.compare(&two, &truth).args(["--sample", "third"]).run().assert_rejected(&[2], &["--sample"]);
    let sites = case.path("sites.vcf");
    std::fs::write(&sites, text.replace("\tFORMAT\ts\n", "\n").replace("\tGT\t0/1\n", "\n"))
        .expect("it can be written");
    compare(&sites).assert_rejected(&[3], &["sites.vcf", "--ignore-genotypes"]);
    let ignoring = run_to_json(case.compare(&sites, &truth).arg("--ignore-genotypes"));
    assert_eq!(class_counts(&ignoring["calls"]["snps"]), [1, 0, 0, 0]);
}

#[test]
fn nothing_is_left_beside_the_reference_or_in_the_scratch_directory() {
    needs!("bcftools");
    let case = Case::new();
    let truth = case.vcf("truth.vcf", &["c1 2 A G 0/1"]);
    std::fs::create_dir(case.path("temp")).expect("it can be made");
    case.compare(&truth, &truth).arg("--temp").arg(case.path("temp")).run_ok();
    assert_eq!(scratch::entry_names(&case.directory), ["ref.fa", "temp", "truth.vcf"]);
    assert!(scratch::entry_names(&case.path("temp")).is_empty());
}

#[test]
fn a_bcftools_that_goes_wrong_is_named() {
    needs!("bcftools");
    let case = Case::new();
    let truth = case.vcf("truth.vcf", &["c1 2 A G 0/1", "c1 10 CA C 0/1"]);
    let with = |script: &str| {
        let path = case.path("bcftools");
        let version = "[ \"$1\" = --version ] && echo 'bcftools 1.16' && exit 0";
        scratch::write_executable(&path, &format!("#!/bin/sh\n{version}\n{script}\n"));
        case.compare(&truth, &truth).env("GODWIT_BCFTOOLS", &path).run()
    };
    with("echo no luck >&2; exit 7").assert_rejected(&[5], &["bcftools", "status 7", "no luck", "norm"]);
    with("kill -9 $$").assert_rejected(&[5], &["signal 9"]);
    with("cat >/dev/null; head -c 20000 /dev/zero").assert_rejected(&[5], &["not VCF"]);
    with("bcftools norm -a - | grep -v 10")
        .assert_rejected(&[5], &["1 of 2 input sites", "are missing in the output of bcftools norm"]);
    with("bcftools norm -a - | sed s/c1/c2/").assert_rejected(&[5], &["not one of the input sites"]);
    let old = case.path("old");
    scratch::write_executable(&old, "#!/bin/sh\necho 'bcftools 1.9'\n");
    case.compare(&truth, &truth).env("GODWIT_BCFTOOLS", &old).run().assert_rejected(&[4], &["1.12 or later", "1.9"]);
}

/// A generator of variants on a reference full of short repeats, and of a second set that represents most of them
/// differently.
struct VariantGenerator {
    bases: Vec<u8>,
    random: Random,
}

impl VariantGenerator {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut bases = Vec::new();
        while bases.len() < 20_000 {
            let unit: Vec<u8> = (0..1 + random.below(3)).map(|_| b"ACGT"[random.below(4)]).collect();
            let times = if random.below(3) == 0 { 3 + random.below(6) } else { 1 };
            (0..times).for_each(|_| bases.extend(&unit));
        }
        Self { bases, random }
    }

    fn other_base(&mut self, base: u8) -> u8 {
        loop {
            let drawn = b"ACGT"[self.random.below(4)];
            if drawn != base {
                return drawn;
            }
        }
    }

    /// Draws an alternate allele at a position: the bases it replaces and its own.
    fn random_allele(&mut self, at: usize) -> (Vec<u8>, Vec<u8>) {
        let first = self.bases[at];
        match self.random.below(5) {
            0 | 1 => (vec![first], vec![self.other_base(first)]),
            2 => {
                let length = 1 + self.random.below(4);
                (self.bases[at..=at + length].to_vec(), vec![first])
            }
            3 => {
                let length = 1 + self.random.below(4);
                (vec![first], self.bases[at..=at + length].to_vec())
            }
            _ => {
                let second = self.bases[at + 1];
                (vec![first, second], vec![self.other_base(first), self.other_base(second)])
            }
        }
    }

    /// Returns the same allele with additional bases before and after it.
    fn pad_allele(
        &mut self,
        at: usize,
        (mut reference, mut alternate): (Vec<u8>, Vec<u8>),
    ) -> (usize, Vec<u8>, Vec<u8>) {
        let (before, after) = (self.random.below(3), self.random.below(3));
        let end = at + reference.len();
        for allele in [&mut reference, &mut alternate] {
            allele.splice(0..0, self.bases[at - before..at].iter().copied());
            allele.extend_from_slice(&self.bases[end..end + after]);
        }
        (at - before, reference, alternate)
    }
}

/// Returns the normalization of a file by bcftools: `contig position ref alt` with the number of copies.
fn normalized_by_bcftools(vcf: &Path, reference: &Path, directory: &Path) -> BTreeMap<String, u64> {
    let apart = directory.join("apart.vcf");
    let bcftools = Tool::require("bcftools");
    run_checked(bcftools.command().args(["norm", "-m", "-any", "-o"]).arg(&apart).arg(vcf));
    let alone = directory.join("alone.vcf");
    run_checked(bcftools.command().args(["norm", "-a", "-f"]).arg(reference).arg("-o").arg(&alone).arg(&apart));
    let text =
        run_checked(bcftools.command().args(["query", "-f", "%CHROM %POS %REF %ALT[ %GT]\\n"]).arg(&alone)).stdout;
    let mut copies = BTreeMap::new();
    for line in String::from_utf8(text).expect("it is text").lines() {
        let (key, genotype) = line.rsplit_once(' ').expect("it has fields");
        let ones = genotype.matches('1').count() as u64;
        if ones > 0 {
            *copies.entry(key.to_owned()).or_default() += ones;
        }
    }
    copies
}

#[test]
fn counts_are_those_of_bcftools_norm_on_the_files_themselves() {
    needs!("bcftools");
    for seed in 0..3 {
        let mut drawn = VariantGenerator::new(seed);
        let directory = scratch::directory("compare-drawn");
        let reference = directory.join("ref.fa");
        let bases = String::from_utf8(drawn.bases.clone()).expect("bases are text");
        std::fs::write(&reference, format!(">c1\n{bases}\n")).expect("it can be written");
        let header = "##fileformat=VCFv4.2\n##contig=<ID=c1>\n##FORMAT=<ID=GT,Number=1,Type=String,Description=\"x\">\n\
            #CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n";
        let mut texts = [header.to_owned(), header.to_owned()];
        for at in (40..19_900).step_by(37) {
            let allele = drawn.random_allele(at);
            let genotype = ["0/1", "1/1", "1|0", "0|1"][drawn.random.below(4)];
            for text in &mut texts {
                let (at, reference, alternate) = drawn.pad_allele(at, allele.clone());
                let shown = |bases: &[u8]| String::from_utf8_lossy(bases).into_owned();
                let genotype = if drawn.random.below(12) == 0 { "1/1" } else { genotype };
                let other = drawn.random.below(10) == 0 && alternate.len() == 1 && reference.len() == 1;
                let (alternate, genotype) = match other {
                    true => (format!("{},{}", shown(&alternate), char::from(drawn.other_base(alternate[0]))), "1/2"),
                    false => (shown(&alternate), genotype),
                };
                if drawn.random.below(15) > 0 && !alternate.split(',').any(|allele| allele == shown(&reference)) {
                    writeln!(text, "c1\t{}\t.\t{}\t{alternate}\t.\t.\t.\tGT\t{genotype}", at + 1, shown(&reference))
                        .expect("text grows");
                }
            }
        }
        let [calls, truth] = ["calls.vcf", "truth.vcf"].map(|name| directory.join(name));
        std::fs::write(&calls, &texts[0]).expect("it can be written");
        std::fs::write(&truth, &texts[1]).expect("it can be written");
        let [called, known] = [&calls, &truth].map(|path| normalized_by_bcftools(path, &reference, &directory));
        let mut expected = [[0; 4]; 2];
        for key in called.keys().chain(known.keys().filter(|key| !called.contains_key(*key))) {
            let fields: Vec<&str> = key.split(' ').collect();
            let class = usize::from(fields[2].len() != 1 || fields[3].len() != 1);
            let which = match (called.get(key), known.get(key)) {
                (Some(a), Some(b)) => usize::from(a != b),
                (None, _) => 2,
                (_, None) => 3,
            };
            expected[class][which] += 1;
        }
        let run = godwit().arg("compare").args([&calls, &truth]).args(["--match", "records"]);
        let run = run.arg("--reference").arg(&reference);
        let found = run_to_json(run);
        assert_eq!(
            [class_counts(&found["calls"]["snps"]), class_counts(&found["calls"]["indels"])],
            expected,
            "seed {seed}"
        );
        assert!(expected.iter().flatten().all(|count| *count > 5), "seed {seed}: {expected:?}");
    }
}

#[test]
fn na12878_called_by_bcftools_finds_all_of_giab_in_its_regions() {
    needs!("bcftools", "gzip");
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let data = data.join("human");
    let directory = scratch::directory("compare-giab");
    let reference = directory.join("chr20.fa");
    let text =
        run_checked(Tool::require("gzip").command().arg("-cd").arg(data.join("ucsc.hg19.chr20.unittest.fasta.gz")))
            .stdout;
    std::fs::write(&reference, text).expect("it can be written");
    let (piled, calls) = (directory.join("piled.bcf"), directory.join("calls.vcf.gz"));
    let bcftools = Tool::require("bcftools");
    let bam = data.join("NA12878_S1.chr20.10_10p1mb.bam");
    run_checked(
        bcftools
            .command()
            .args(["mpileup", "-Ou", "-r", "chr20:10000000-10100000", "-f"])
            .arg(&reference)
            .arg("-o")
            .arg(&piled)
            .arg(bam),
    );
    run_checked(bcftools.command().args(["call", "-mv", "-Oz", "-o"]).arg(&calls).arg(&piled));
    let (truth, regions) = ("test_nist.b37_chr20_100kbp_at_10mb.vcf.gz", "test_nist.b37_chr20_100kbp_at_10mb.bed");
    let run = || {
        let run = godwit().arg("compare").arg(&calls).arg(data.join(truth)).args(["--match", "records"]);
        run.arg("--reference").arg(&reference).arg("--confident").arg(data.join(regions))
    };
    let alleles = run_to_json(run().arg("--ignore-genotypes"));
    assert_eq!(class_counts(&alleles["calls"]["all"]), [49, 0, 0, 0]);
    // Two of the four indels are heterozygous in the calls but homozygous in the truth.
    let found = run_to_json(run());
    assert_eq!(
        (class_counts(&found["calls"]["snps"]), class_counts(&found["calls"]["indels"])),
        ([45, 0, 0, 0], [2, 2, 0, 0])
    );
    assert_eq!(found["confident_bases"], 8999);
    // Regions whose contig names lack `chr` do not match the contigs of the calls.
    let other = data.join("test_giab.b37_chr20_100kbp_at_10mb.bed");
    let run = godwit().arg("compare").arg(&calls).arg(data.join(truth)).arg("--confident").arg(other).run();
    run.assert_rejected(&[3], &["\"20\"", "\"chr20\"", "--rename-chrs"]);
}
