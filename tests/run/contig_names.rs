//! A genome whose contigs have the names of HLA genes, and one named like a range of another, from reads to variants:
//! compared with bwa, samtools, bcftools and freebayes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

use super::variant_calling::vcf_records;

/// The names of the contigs and their numbers of bases.
const CONTIGS: [(&str, usize); 4] =
    [("chr1", 6_000), ("chr1:100-200", 4_000), ("HLA-A*01:01:01:01", 5_000), ("HLA-DRB1*15:01:01:01", 3_000)];

/// A reference, and the output directory of `align` with variants.
struct NamedContigSample {
    reference: PathBuf,
    output: PathBuf,
}

impl NamedContigSample {
    fn cached() -> &'static Self {
        static SAMPLE: OnceLock<NamedContigSample> = OnceLock::new();
        SAMPLE.get_or_init(|| {
            let directory = scratch::directory("contig-names-run");
            let (reference, output) = (directory.join("ref.fa"), directory.join("out"));
            let mut random = Random::new(17);
            let mut fasta = String::new();
            for (name, bases) in CONTIGS {
                let letters = String::from_utf8(random.bases(bases)).expect("bases are letters");
                fasta += &format!(">{name} of a test\n{letters}\n");
            }
            fs::write(&reference, fasta).expect("scratch can be written to");
            godwit().arg("index").arg(&reference).run_ok();
            let prefix = directory.join("reads");
            let simulate = godwit().arg("simulate").arg("--reference").arg(&reference);
            simulate.args(["--pairs", "2500", "--seed", "3", "--out"]).arg(&prefix).run_ok();
            let reads = [1, 2].map(|mate| format!("{}_L001_R{mate}.fastq", prefix.display()));
            let align = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads").args(reads);
            let align = align.args(["--sample", "s", "--format", "bam,cram,parquet", "--partitions", "4", "--call"]);
            align.arg("--out").arg(&output).run_ok();
            Self { reference, output }
        })
    }

    fn bam(&self) -> PathBuf {
        self.output.join("s.bam")
    }

    fn call(&self, out: &Path) -> GodwitCommand {
        let command = godwit().arg("call").arg("--reference").arg(&self.reference).arg("--reads").arg(self.bam());
        command.arg("--out").arg(out).args(["--grid-size", "1K"])
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch has a plain name")
}

fn tool_output(tool: &str, words: &[&str]) -> String {
    String::from_utf8(Tool::require(tool).run(words).stdout).expect("it prints text")
}

#[test]
fn contigs_named_like_hla_genes_go_all_the_way_from_reads_to_variants() {
    needs!("bwa", "samtools", "bcftools", "bgzip");
    let sample = NamedContigSample::cached();
    let listed = tool_output("samtools", &["idxstats", path_text(&sample.bam())]);
    for (name, bases) in CONTIGS {
        assert!(listed.contains(&format!("{name}\t{bases}\t")), "{listed}");
        let of_contig = format!("{{{name}}}");
        let count = tool_output("samtools", &["view", "-c", path_text(&sample.bam()), &of_contig]);
        assert_ne!(count, "0\n", "{name}");
        for file in ["s.bam", "s.parquet"] {
            let sql = format!("SELECT count(*) FROM reads('{file}') WHERE region('{of_contig}')");
            let told =
                godwit().arg("query").arg(sql).arg("--data").arg(&sample.output).args(["--format", "tsv"]).run_ok();
            assert_eq!(told.stdout.lines().nth(1), Some(count.trim_end()), "{file} {name}");
        }
        let cram = tool_output(
            "samtools",
            &["view", "-c", "-T", path_text(&sample.reference), path_text(&sample.output.join("s.cram")), &of_contig],
        );
        assert_eq!(cram, count, "{name}");
    }
    assert_eq!(
        tool_output("samtools", &["flagstat", path_text(&sample.bam())]),
        fs::read_to_string(sample.output.join("s.flagstat.txt")).expect("it is there")
    );
    // Shuffle the records and mark duplicates again: the result must be the same.
    let directory = scratch::directory("contig-names-markdup");
    let (shuffled, again) = (directory.join("x.sam"), directory.join("again.bam"));
    tool_output("samtools", &["view", "-h", "-o", path_text(&shuffled), path_text(&sample.bam())]);
    godwit().args(["markdup", path_text(&shuffled), "--out", path_text(&again)]).run_ok();
    assert!(
        tool_output("samtools", &["view", path_text(&again)])
            == tool_output("samtools", &["view", path_text(&sample.bam())])
    );
    let verified = godwit().arg("verify").arg(&sample.output).run_ok();
    assert!(verified.stdout.contains("s.vcf.gz"), "{}", verified.describe());
}

#[test]
fn every_caller_is_shown_contigs_named_like_hla_genes() {
    needs!("bwa", "samtools", "bcftools", "bgzip", "bash");
    let sample = NamedContigSample::cached();
    let directory = scratch::directory("contig-names-call");
    let (reference, bam) = (path_text(&sample.reference).to_owned(), path_text(&sample.bam()).to_owned());
    let script = format!("set -o pipefail; bcftools mpileup -Ou -f {reference} {bam} | bcftools call -mv");
    let said = run_checked(Tool::require("bash").command().args(["-c", &script])).stdout;
    let expected: Vec<u8> =
        said.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")).flatten().copied().collect();
    let of_contig = |name: &str| {
        expected.split(|byte| *byte == b'\n').filter(|line| line.starts_with(format!("{name}\t").as_bytes())).count()
    };
    assert!(CONTIGS.iter().all(|(name, _)| of_contig(name) > 0), "each contig has variants");
    let out = directory.join("a.vcf.gz");
    sample.call(&out).run_ok();
    assert!(vcf_records(&out) == expected, "called by region");
    assert!(vcf_records(&sample.output.join("s.vcf.gz")) == expected, "called while the BAM was written");
    let hla = directory.join("hla.vcf.gz");
    sample.call(&hla).args(["--regions", "HLA-A*01:01:01:01:1-2500,{chr1:100-200}"]).run_ok();
    let found = String::from_utf8(vcf_records(&hla)).expect("VCF is text");
    let within = |line: &&str| {
        let mut fields = line.split('\t');
        let (contig, position) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        contig == "chr1:100-200"
            || (contig == "HLA-A*01:01:01:01" && position.parse::<u32>().is_ok_and(|position| position <= 2500))
    };
    let expected_text = String::from_utf8(expected.clone()).expect("VCF is text");
    let expected_lines: Vec<&str> = expected_text.lines().filter(within).collect();
    assert_eq!(found.lines().collect::<Vec<_>>(), expected_lines);
    sample.call(&hla).args(["--regions", "chr1:100-200"]).run().assert_rejected(&[2], &["ambiguous", "{chr1}:100-200"]);
    let template = "bash -c \"bcftools mpileup -Ou -f {reference} -R {bed} {bam} | bcftools call -mv\"";
    let by_template = directory.join("t.vcf.gz");
    sample.call(&by_template).args(["--caller", template]).run_ok();
    assert!(vcf_records(&by_template) == expected, "called by a template");
}

#[test]
fn freebayes_finds_the_same_sites_on_contigs_named_like_hla_genes() {
    needs!("bwa", "samtools", "freebayes", "bgzip");
    let sample = NamedContigSample::cached();
    let out = scratch::directory("contig-names-freebayes").join("f.vcf.gz");
    sample.call(&out).args(["--caller", "freebayes"]).run_ok();
    let sites = |text: &str| -> Vec<String> {
        let records = text.lines().filter(|line| !line.starts_with('#'));
        records.map(|line| line.split('\t').take(5).collect::<Vec<_>>().join(" ")).collect()
    };
    let found = sites(&String::from_utf8(vcf_records(&out)).expect("VCF is text"));
    let expected = sites(&tool_output("freebayes", &["-f", path_text(&sample.reference), path_text(&sample.bam())]));
    assert_eq!(found, expected);
}
