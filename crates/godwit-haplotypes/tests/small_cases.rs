//! Small comparisons whose verdicts follow from the haplotypes, and what must not change them.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use godwit_formats::binning_index::RegionIndex;
use godwit_haplotypes::{
    HaplotypeComparison, HaplotypeError, HaplotypeOptions, OutputMode, SampleChoice, ScoreField, compare_haplotypes,
};
use godwit_io::bgzf::open_text;
use proptest::prelude::*;
use tempfile::TempDir;

/// 60 bases: a repeat of A at 11-18, of AC at 24-33 (1-based), and no other repeats.
const BASES: &str = "GATTCGCTGCAAAAAAAAGTCTGACACACACACATGGCTAGCTTACGTAGGATCCTGACCG";

/// Two call sets on a reference.
struct Case {
    directory: TempDir,
}

impl Case {
    /// Writes records given as `CONTIG POS REF ALT GT [FILTER]`, separated by blanks.
    fn new(bases: &str, calls: &[&str], truth: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be created");
        let case = Self { directory };
        fs::write(case.path("ref.fa"), format!(">c1\n{bases}\n>c2\n{bases}\n")).expect("it can be written");
        fs::write(case.path("calls.vcf"), vcf_text(calls)).expect("it can be written");
        fs::write(case.path("truth.vcf"), vcf_text(truth)).expect("it can be written");
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn options(&self) -> HaplotypeOptions {
        HaplotypeOptions::new(self.path("calls.vcf"), self.path("truth.vcf"), self.path("ref.fa"))
    }

    fn compare(&self, options: &HaplotypeOptions) -> Result<HaplotypeComparison, HaplotypeError> {
        compare_haplotypes(options, None, &AtomicBool::new(false))
    }

    /// Compares with an output mode, and returns the records of a file.
    fn records(&self, output: OutputMode, name: &str) -> Vec<String> {
        let out = tempfile::tempdir().expect("a directory can be created");
        let options = HaplotypeOptions { output, ..self.options() };
        compare_haplotypes(&options, Some(out.path()), &AtomicBool::new(false)).expect("the files can be compared");
        let mut text = String::new();
        let mut file = open_text(&out.path().join(name), 1).expect("the file is there");
        file.read_to_string(&mut text).expect("the file can be read");
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }
}

fn vcf_text(records: &[&str]) -> String {
    let mut text = String::from("##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n");
    for record in records {
        let columns: Vec<&str> = record.split(' ').collect();
        let filter = columns.get(5).unwrap_or(&"PASS");
        let (contig, position, reference) = (columns[0], columns[1], columns[2]);
        let (alternate, genotype) = (columns[3], columns[4]);
        text += &format!("{contig}\t{position}\t.\t{reference}\t{alternate}\t50\t{filter}\t.\tGT\t{genotype}\n");
    }
    text
}

/// Returns found and missed variants of the truth, and true and false calls.
fn counts(comparison: &HaplotypeComparison) -> [u64; 4] {
    let all = &comparison.all;
    [all.found, all.missed, all.true_calls, all.false_calls]
}

fn compare(calls: &[&str], truth: &[&str]) -> [u64; 4] {
    let case = Case::new(BASES, calls, truth);
    counts(&case.compare(&case.options()).expect("the files can be compared"))
}

#[test]
fn the_same_haplotype_in_another_representation_matches() {
    // A deletion and an adjacent substitution, which the truth represents as a deletion at another position and another
    // substitution.
    assert_eq!(compare(&["c1 19 GTC G 0/1", "c1 22 T A 0/1"], &["c1 20 T A 0/1", "c1 20 TCT T 0/1"]), [2, 0, 2, 0]);
    assert_eq!(compare(&["c1 4 TC AG 0/1"], &["c1 4 T A 0/1", "c1 5 C G 0/1"]), [2, 0, 1, 0]);
    // Indels in repeats at another position, and with redundant bases.
    assert_eq!(compare(&["c1 12 AA A 0/1"], &["c1 10 CA C 0/1"]), [1, 0, 1, 0]);
    assert_eq!(compare(&["c1 9 GCAAA GCAA 1/1"], &["c1 10 CA C 1/1"]), [1, 0, 1, 0]);
    // Two alternate alleles in one record of the calls, and in two records of the truth.
    assert_eq!(compare(&["c1 2 A C,G 1/2"], &["c1 2 A C 0/1", "c1 2 A G 0/1"]), [0, 2, 0, 1]);
}

#[test]
fn every_vcf_file_has_an_index() {
    let records = ["c1 2 A G 0/1", "c1 12 AA A 0/1", "c2 6 G T 1/1"];
    let case = Case::new(BASES, &records, &records);
    for (output, name) in [(OutputMode::Split, "tp.vcf.gz"), (OutputMode::Ga4gh, "output.vcf.gz")] {
        let out = tempfile::tempdir().unwrap();
        let options = HaplotypeOptions { output, ..case.options() };
        compare_haplotypes(&options, Some(out.path()), &AtomicBool::new(false)).unwrap();
        let index = RegionIndex::read(&out.path().join(format!("{name}.tbi"))).unwrap();
        assert_eq!(index.contig_names().unwrap(), ["c1", "c2"], "{name}");
        assert_eq!((index.chunks(0, 0, 60).len(), index.chunks(1, 0, 60).len()), (1, 1), "{name}");
    }
    // godwit writes an empty index beside an output file without records.
    let out = tempfile::tempdir().unwrap();
    compare_haplotypes(&case.options(), Some(out.path()), &AtomicBool::new(false)).unwrap();
    assert!(RegionIndex::read(&out.path().join("fp.vcf.gz.tbi")).unwrap().contig_names().unwrap().is_empty());
}

#[test]
fn variants_are_counted_by_stratum() {
    // The calls are: a SNP with the wrong genotype, a true SNP, a true deletion in the repeat of A, and a false SNP far
    // from other variants.
    let calls = ["c1 2 A G 1/1", "c1 6 G T 0/1", "c1 12 AA A 0/1", "c1 59 C A 0/1"];
    let truth = ["c1 2 A G 0/1", "c1 6 G T 0/1", "c1 10 CA C 0/1", "c2 2 A G 0/1"];
    let case = Case::new(BASES, &calls, &truth);
    fs::write(case.path("repeat.bed"), "c1\t10\t18\n").unwrap();
    fs::write(case.path("start.bed"), "c1\t0\t5\nc2\t1\t2\n").unwrap();
    fs::write(case.path("strata.tsv"), "repeat\trepeat.bed\nstart\tstart.bed\n").unwrap();
    let stratification = Some(case.path("strata.tsv"));
    let options = HaplotypeOptions { output: OutputMode::Ga4gh, stratification, ..case.options() };
    let out = tempfile::tempdir().unwrap();
    let found = compare_haplotypes(&options, Some(out.path()), &AtomicBool::new(false)).unwrap();
    let names: Vec<&str> = found.strata.iter().map(|stratum| stratum.name.as_str()).collect();
    assert_eq!(names, ["*", "repeat", "start"]);
    assert_eq!((Some(found.strata[0].snps.counts), Some(found.strata[0].indels.counts)), (found.snps, found.indels));
    let text = fs::read_to_string(out.path().join("summary.csv")).unwrap();
    let rows: Vec<&str> = text.lines().skip(1).collect();
    let expected = [
        "SNP,*,*,PASS,*,0.333333,0.333333,0.000000,0.333333,1,0,3,1,2,3,1,2,0",
        "SNP,*,repeat,PASS,*,,,,,0,0,0,0,0,0,0,0,0",
        "SNP,*,start,PASS,*,0.000000,0.000000,0.000000,0.000000,1,0,2,0,2,1,0,1,0",
        "INDEL,*,*,PASS,*,1.000000,1.000000,0.000000,1.000000,0,0,1,1,0,1,1,0,0",
        "INDEL,*,repeat,PASS,*,1.000000,1.000000,0.000000,1.000000,0,0,1,1,0,1,1,0,0",
        "INDEL,*,start,PASS,*,,,,,0,0,0,0,0,0,0,0,0",
    ];
    assert_eq!(rows, expected);
    // Without the comparison of alleles, false calls are not classified.
    let options = HaplotypeOptions { output: OutputMode::Split, ..options };
    let found = case.compare(&options).unwrap();
    assert_eq!((found.strata[0].snps.false_genotypes, found.strata[0].snps.false_alleles), (None, None));
    let all_alternates = HaplotypeOptions { calls_sample: SampleChoice::AllAlternates, ..options.clone() };
    assert!(matches!(case.compare(&all_alternates), Err(HaplotypeError::Options { .. })));
    fs::write(case.path("start.bed"), "chr1\t0\t5\n").unwrap();
    fs::write(case.path("strata.tsv"), "start\tstart.bed\n").unwrap();
    assert!(matches!(case.compare(&options), Err(HaplotypeError::Incomparable { .. })));
    fs::write(case.path("strata.tsv"), "start start.bed\n").unwrap();
    assert!(matches!(case.compare(&options), Err(HaplotypeError::StratificationLine { line: 1, .. })));
}

#[test]
fn genotypes_count_unless_they_are_ignored() {
    let (calls, truth) = (["c1 2 A G 1/1"], ["c1 2 A G 0/1"]);
    assert_eq!(compare(&calls, &truth), [0, 1, 0, 1]);
    let case = Case::new(BASES, &calls, &truth);
    let options = HaplotypeOptions { squash_ploidy: true, ..case.options() };
    assert_eq!(counts(&case.compare(&options).unwrap()), [1, 0, 1, 0]);
    // The phase of a genotype does not matter, and a haploid alternate genotype equals a homozygous diploid one.
    assert_eq!(compare(&["c1 2 A G 1|0", "c1 6 G T 1"], &["c1 2 A G 0/1", "c1 6 G T 1/1"]), [2, 0, 2, 0]);
}

#[test]
fn records_that_are_not_used_do_not_count() {
    let truth = ["c1 2 A G 0/1"];
    let unused = [
        "c1 2 A G 0/1",
        "c1 4 T <DEL> 0/1",
        "c1 5 C C]c1:40] 0/1",
        "c1 6 G T 0/1 low",
        "c1 7 C * 0/1",
        "c1 8 T A ./.",
        "c1 9 G C 0/0",
    ];
    assert_eq!(compare(&unused, &truth), [1, 0, 1, 0]);
    let case = Case::new(BASES, &unused, &truth);
    let options = HaplotypeOptions { all_records: true, ..case.options() };
    assert_eq!(counts(&case.compare(&options).unwrap()), [1, 0, 1, 1]);
    let skipped = case.compare(&case.options()).unwrap().calls;
    assert_eq!((skipped.records, skipped.compared, skipped.skipped), (7, 1, 0));
    // Records with a problem are counted: behind the end of the contig, another ploidy, and letters that are not bases.
    let problems = ["c1 3 T R 0/1", "c1 4 T A 0/1/1", "c1 60 GAAA G 0/1"];
    let case = Case::new(BASES, &problems, &truth);
    assert_eq!(case.compare(&case.options()).unwrap().calls.skipped, 3);
}

#[test]
fn only_variants_in_confident_regions_count() {
    let calls = ["c1 2 A G 0/1", "c1 40 A G 0/1", "c2 2 A G 0/1"];
    let truth = ["c1 2 A G 0/1", "c1 45 A G 0/1"];
    let case = Case::new(BASES, &calls, &truth);
    fs::write(case.path("confident.bed"), "c1\t0\t10\n").unwrap();
    let options = HaplotypeOptions { confident: Some(case.path("confident.bed")), ..case.options() };
    let found = case.compare(&options).unwrap();
    assert_eq!(counts(&found), [1, 0, 1, 0]);
    assert_eq!((found.calls.outside, found.truth.outside, found.confident_bases), (2, 1, Some(10)));
    let options = HaplotypeOptions { regions: Some("c1:30-50".to_owned()), ..case.options() };
    assert_eq!(counts(&case.compare(&options).unwrap()), [0, 1, 0, 1]);
}

#[test]
fn verdicts_are_written_with_the_records() {
    let calls = ["c1 4 TC AG 0/1", "c1 40 A G 0/1", "c1 45 A T 1/1"];
    let truth = ["c1 4 T A 0/1", "c1 5 C G 0/1", "c1 45 A T 0/1"];
    let case = Case::new(BASES, &calls, &truth);
    let positions = |name: &str| {
        let records = case.records(OutputMode::Split, name);
        records.iter().map(|record| record.split('\t').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(positions("tp.vcf.gz"), ["4"]);
    assert_eq!(positions("tp-baseline.vcf.gz"), ["4", "5"]);
    assert_eq!(positions("fp.vcf.gz"), ["40", "45"]);
    assert_eq!(positions("fn.vcf.gz"), ["45"]);
    let annotated = case.records(OutputMode::Annotate, "calls.vcf.gz");
    assert!(annotated[0].contains("CALL_WEIGHT=2.00;CALL=TP"), "{annotated:?}");
    assert!(annotated[2].contains("CALL=FP_CA"), "{annotated:?}");
    let joined = case.records(OutputMode::Ga4gh, "output.vcf.gz");
    let last = joined.last().unwrap();
    assert!(last.contains("GT:BD:BK") && last.ends_with("0/1:FN:am\t1/1:FP:am"), "{last}");
}

#[test]
fn contigs_may_have_another_order_than_the_reference() {
    let (calls, truth) = (["c2 2 A G 0/1", "c1 4 T A 0/1"], ["c1 4 T A 0/1", "c2 2 A G 0/1"]);
    assert_eq!(compare(&calls, &truth), [2, 0, 2, 0]);
    let case = Case::new(BASES, &calls, &truth);
    let positions = case.records(OutputMode::Split, "tp.vcf.gz");
    assert!(positions[0].starts_with("c1\t4") && positions[1].starts_with("c2\t2"), "{positions:?}");
}

#[test]
fn files_that_cannot_be_compared_are_named() {
    let rejected = |calls: &[&str], truth: &[&str], expected: &[&str]| {
        let case = Case::new(BASES, calls, truth);
        let error = case.compare(&case.options()).unwrap_err().to_string();
        assert!(expected.iter().all(|text| error.contains(text)), "{error}");
    };
    let truth = ["c1 2 A G 0/1"];
    rejected(&["c1 4 T A 0/1", "c1 2 A G 0/1"], &truth, &["calls.vcf", "line 4", "sort the file"]);
    rejected(
        &["c1 4 T A 0/1", "c2 2 A G 0/1", "c1 5 C G 0/1"],
        &truth,
        &["calls.vcf", "records of other contigs lie between"],
    );
    rejected(&["chr1 2 A G 0/1"], &truth, &["calls.vcf", "truth.vcf", "no contig in common"]);
    rejected(&["x1 2 A G 0/1"], &["x1 2 A G 0/1"], &["ref.fa", "x1"]);
    rejected(&["c1 2 A G 0/2"], &truth, &["calls.vcf", "c1:2", "allele number"]);
    rejected(&["c1 2 A A 0/1"], &truth, &["calls.vcf", "c1:2", "equals REF"]);
    let case = Case::new(BASES, &truth, &truth);
    let options = HaplotypeOptions { calls_sample: SampleChoice::Name("other".to_owned()), ..case.options() };
    let error = case.compare(&options).unwrap_err().to_string();
    assert!(error.contains("no sample \"other\"") && error.contains("its samples: s"), "{error}");
}

#[test]
fn an_interval_with_too_many_paths_is_reported_and_its_variants_do_not_count() {
    let calls: Vec<String> = (11..18).map(|position| format!("c1 {position} AA A 0/1")).collect();
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let case = Case::new(BASES, &calls, &["c1 2 A G 0/1", "c1 10 CA C 0/1"]);
    let mut options = case.options();
    options.rules.max_paths = 3;
    let found = case.compare(&options).unwrap();
    assert!(!found.too_complex.is_empty() && found.calls.too_complex > 0, "{found:?}");
    assert_eq!(found.too_complex[0].contig, "c1");
}

#[test]
fn records_with_another_reference_are_compared_and_counted() {
    let case = Case::new(BASES, &["c1 2 C G 0/1", "c1 6 N T 0/1", "c1 12 aa A 0/1"], &["c1 2 A G 0/1"]);
    let found = case.compare(&case.options()).unwrap();
    assert_eq!((found.calls.compared, found.calls.other_reference, found.truth.other_reference), (3, 1, 0));
}

#[test]
fn records_that_overlap_exclude_each_other_unless_the_overlap_is_reference() {
    // A deletion and a substitution of a deleted base are not on one haplotype; an insertion after the same base may be.
    let (calls, truth) = (["c1 20 TCT T 0/1", "c1 21 C G 0/1"], ["c1 20 TCT T 0/1"]);
    assert_eq!(compare(&calls, &truth), [1, 0, 1, 1]);
    let calls = ["c1 40 A AG 0/1", "c1 40 AG A 0/1"];
    let case = Case::new(BASES, &calls, &calls);
    let options = HaplotypeOptions { ref_overlap: true, ..case.options() };
    assert_eq!(counts(&case.compare(&options).unwrap()), [2, 0, 2, 0]);
}

#[test]
fn a_hundred_thousand_records_in_a_hundred_bases_are_too_complex() {
    let bases = "ACGT".repeat(50);
    let alternates = ["AC", "AG", "AT", "ACC", "AGG", "C", "G", "T"];
    let call = |number: usize| {
        let (position, kind) = (number / 1000 + 50, number % alternates.len());
        let reference = &bases[position - 1..position];
        let alternate = if alternates[kind] == reference { "A" } else { alternates[kind] };
        format!("c1 {position} {reference} {alternate} 0/1")
    };
    let calls: Vec<String> = (0..100_000).map(call).collect();
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let case = Case::new(&bases, &calls, &["c1 2 C G 0/1", "c1 60 T G 0/1"]);
    let found = case.compare(&case.options()).unwrap();
    assert!(!found.too_complex.is_empty() && found.calls.too_complex > 90_000, "{:?}", found.calls);
    assert_eq!(found.calls.records, 100_000);
}

#[test]
fn the_score_selects_the_best_threshold() {
    let case = Case::new(BASES, &["c1 2 A G 0/1", "c1 40 A G 0/1"], &["c1 2 A G 0/1"]);
    let text = fs::read_to_string(case.path("calls.vcf")).unwrap().replacen("\t50\t", "\t90\t", 1);
    fs::write(case.path("calls.vcf"), text).unwrap();
    let options = HaplotypeOptions { score: Some(ScoreField::Quality), ..case.options() };
    let summary = case.compare(&options).unwrap().summary;
    assert_eq!((summary[0].threshold, summary[0].false_positives), (Some(90.0), 0));
    assert_eq!((summary[1].threshold, summary[1].false_positives), (None, 1));
}

/// A variant with space around it, and the forms in which it is written.
#[derive(Clone, Debug)]
struct Site {
    is_called: bool,
    is_true: bool,
    is_homozygous: bool,
    /// 0 for a substitution, 1 for an insertion, 2 for a deletion.
    kind: u8,
    bases: Vec<u8>,
    /// Number of bases of padding before and after, by form.
    padding: [(usize, usize); 2],
}

/// Distance between two sites, so that the padding of one does not reach the next.
const SITE_BASES: usize = 24;

fn site() -> impl Strategy<Value = Site> {
    let padding = || (0_usize..4, 0_usize..4);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let bases = proptest::collection::vec(0_u8..4, 1..4);
    (flags, 0_u8..3, bases, padding(), padding()).prop_map(|(flags, kind, bases, first, second)| Site {
        is_called: flags.0,
        is_true: flags.1,
        is_homozygous: flags.2,
        kind,
        bases,
        padding: [first, second],
    })
}

impl Site {
    /// Returns the record of the variant at a 0-based position of the reference, in one of its forms.
    fn record(&self, reference: &[u8], position: usize, form: usize) -> String {
        let count = self.bases.len();
        let bases: Vec<u8> = self.bases.iter().map(|base| b"ACGT"[usize::from(*base)]).collect();
        let before = &reference[..position];
        let (replaced, alternate) = match self.kind {
            0 => {
                let other =
                    b"CGTA"[b"ACGT".iter().position(|base| *base == reference[position]).expect("it is a base")];
                (vec![reference[position]], vec![other])
            }
            1 => (vec![reference[position]], [&reference[position..=position], &bases[..]].concat()),
            _ => (reference[position..=position + count].to_vec(), vec![reference[position]]),
        };
        let (left, right) = self.padding[form];
        let left = &before[position - left..];
        let right = &reference[position + replaced.len()..][..right];
        let text = |middle: &[u8]| String::from_utf8([left, middle, right].concat()).expect("bases are text");
        let genotype = if self.is_homozygous { "1/1" } else { "0/1" };
        format!("c1 {} {} {} {genotype}", position - left.len() + 1, text(&replaced), text(&alternate))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_form_in_which_one_side_is_written_changes_no_total(
        bases in proptest::collection::vec(0_u8..4, 12 * SITE_BASES + 40),
        sites in proptest::collection::vec(site(), 12),
    ) {
        let reference: Vec<u8> = bases.iter().map(|base| b"ACGT"[usize::from(*base)]).collect();
        let records = |is_used: &dyn Fn(&Site) -> bool, form: usize| {
            let used = sites.iter().enumerate().filter(|(_, site)| is_used(site));
            used.map(|(index, site)| site.record(&reference, 20 + index * SITE_BASES, form)).collect::<Vec<_>>()
        };
        let text = String::from_utf8(reference.clone()).unwrap();
        let mut totals = Vec::new();
        for (calls, truth) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (calls, truth) = (records(&|site| site.is_called, calls), records(&|site| site.is_true, truth));
            let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
            let truth: Vec<&str> = truth.iter().map(String::as_str).collect();
            let case = Case::new(&text, &calls, &truth);
            totals.push(counts(&case.compare(&case.options()).unwrap()));
        }
        let shared = sites.iter().filter(|site| site.is_called && site.is_true).count() as u64;
        prop_assert!(totals[0][0] >= shared && totals[0][2] >= shared, "{:?}", totals);
        prop_assert!(totals.iter().all(|other| *other == totals[0]), "{:?}", totals);
    }
}
