//! `godwit filter`: GATK's filters of variants.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{gatk, needs, needs_gatk, scratch};

use super::variant_calling::{assert_same_text, record_lines, vcf_records};

const GENOME_BASES: usize = 2_000_000;
const SNP_COUNT: usize = 14_000;
const INDEL_COUNT: usize = 5_000;

/// A cohort's joint variants, as if called: most of them true, with typical annotations, others artefacts.
struct Cohort {
    reference: PathBuf,
    joint: PathBuf,
    /// Known variants: the VCF of SNPs and that of indels.
    resource_vcfs: [PathBuf; 2],
}

/// Returns an approximately normal number, the sum of twelve uniform ones.
fn random_normal(random: &mut Random, mean: f64, width: f64) -> f64 {
    let sum: usize = (0..12).map(|_| random.below(1_000)).sum();
    mean + width * (sum as f64 / 1_000.0 - 6.0)
}

fn compress_vcf(path: &Path) -> PathBuf {
    Tool::require("bgzip").run(["-f".as_ref(), path.as_os_str()]);
    let path = PathBuf::from(format!("{}.gz", path.display()));
    Tool::require("tabix").run(["-f".as_ref(), "-p".as_ref(), "vcf".as_ref(), path.as_os_str()]);
    path
}

impl Cohort {
    fn new(directory: &Path, snps: usize, indels: usize) -> Self {
        let mut random = Random::new(21);
        let reference = directory.join("ref.fa");
        let bases = random.bases(GENOME_BASES);
        let lines: Vec<&[u8]> = bases.chunks(70).collect();
        fs::write(&reference, [b">chr1\n", &lines.join(&b'\n')[..], b"\n"].concat())
            .expect("scratch can be written to");
        Tool::require("samtools").run(["faidx".as_ref(), reference.as_os_str()]);
        let dictionary = directory.join("ref.dict");
        Tool::require("samtools").run(["dict".as_ref(), reference.as_os_str(), "-o".as_ref(), dictionary.as_os_str()]);
        let head = format!("##fileformat=VCFv4.2\n##contig=<ID=chr1,length={GENOME_BASES}>\n");
        let infos = ["QD", "MQRankSum", "ReadPosRankSum", "FS", "MQ", "SOR"]
            .map(|name| format!("##INFO=<ID={name},Number=1,Type=Float,Description=\"made\">\n"));
        let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
        let mut joint = head.clone() + &infos.concat();
        joint += "##INFO=<ID=DP,Number=1,Type=Integer,Description=\"made\">\n##FORMAT=<ID=GT,Number=1,Type=String,Description=\"made\">\n";
        joint += &format!("{columns}\tFORMAT\tada\tben\tcleo\n");
        let mut known = [0, 1].map(|_| format!("{head}{columns}\n"));
        let count = snps + indels;
        for number in 0..count {
            let at = (number + 1) * (GENOME_BASES / (count + 2));
            let is_snp = random.below(count) < snps;
            let (one, next) = (char::from(bases[at]), char::from(bases[at + 1]));
            let other = if one == 'A' { 'C' } else { 'A' };
            let alleles = if is_snp { format!("{one}\t{other}") } else { format!("{one}{next}\t{one}") };
            let good = random.below(100) < 85;
            let mut of = |good_at: (f64, f64), bad_at: (f64, f64)| {
                let (mean, width) = if good { good_at } else { bad_at };
                random_normal(&mut random, mean, width)
            };
            let (qd, mapping) = (of((22.0, 4.0), (6.0, 4.0)).abs(), of((59.0, 0.8), (45.0, 5.0)).min(60.0));
            let (map_rank, place_rank) = (of((0.0, 0.4), (-3.0, 1.5)), of((0.2, 0.6), (-2.0, 1.5)));
            let (strand, odds) = (of((2.0, 2.0), (25.0, 12.0)).abs(), of((0.9, 0.3), (3.5, 1.0)).abs());
            let depth = of((90.0, 9.0), (130.0, 40.0)).abs() as u32;
            let site = format!("chr1\t{}\t.\t{alleles}", at + 1);
            writeln!(
                joint,
                "{site}\t{:.2}\t.\tDP={depth};FS={strand:.3};MQ={mapping:.2};MQRankSum={map_rank:.3};QD={qd:.2};\
                 ReadPosRankSum={place_rank:.3};SOR={odds:.3}\tGT\t0/1\t0/0\t1/1",
                qd * 40.0
            )
            .expect("text takes everything");
            if good && random.below(3) == 0 {
                known[usize::from(!is_snp)] += &format!("{site}\t.\t.\t.\n");
            }
        }
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).expect("scratch can be written to");
            compress_vcf(&path)
        };
        let joint = write("joint.vcf", &joint);
        let resource_vcfs = [write("snps.vcf", &known[0]), write("indels.vcf", &known[1])];
        Self { reference, joint, resource_vcfs }
    }

    fn filter(&self, out: &Path) -> GodwitCommand {
        let filter = godwit().arg("filter").arg("--reference").arg(&self.reference).arg("--variants").arg(&self.joint);
        filter.arg("--out").arg(out).args(["--gatk-memory", "2G"]).with_gatk()
    }

    fn resources(&self) -> [String; 4] {
        let [snps, indels] = self.resource_vcfs.each_ref().map(|path| path.display().to_string());
        [
            "--snp-resource".into(),
            format!("{RESOURCE_TAGS}:{snps}"),
            "--indel-resource".into(),
            format!("{RESOURCE_TAGS}:{indels}"),
        ]
    }
}

const RESOURCE_TAGS: &str = "known,known=false,training=true,truth=true,prior=15.0";

#[test]
#[ignore = "a minute of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored variant_filter::"]
fn a_large_cohort_is_recalibrated_as_by_gatk_alone() {
    needs!("bgzip", "tabix", "samtools");
    needs_gatk!();
    let directory = scratch::directory("vqsr");
    let cohort = Cohort::new(&directory, SNP_COUNT, INDEL_COUNT);
    let out = directory.join("out.vcf.gz");
    let run = cohort.filter(&out).args(cohort.resources()).run_ok();
    assert!(run.stderr.contains("filtered by GATK's variant recalibration"), "{}", run.describe());
    let modes: [(&str, &str, &[&str], &PathBuf); 2] = [
        ("INDEL", "4", &["FS", "ReadPosRankSum", "MQRankSum", "QD", "SOR", "DP"], &cohort.resource_vcfs[1]),
        ("SNP", "6", &["QD", "MQRankSum", "ReadPosRankSum", "FS", "MQ", "SOR", "DP"], &cohort.resource_vcfs[0]),
    ];
    let mut variants = cohort.joint.clone();
    for (mode, gaussians, annotations, known) in modes {
        let (recal, tranches) = (directory.join(format!("{mode}.vcf")), directory.join(format!("{mode}.tranches")));
        let mut command = gatk::gatk_command("VariantRecalibrator");
        command.arg("-R").arg(&cohort.reference).arg("-V").arg(&cohort.joint).args(["-mode", mode]);
        command.args(["--max-gaussians", gaussians, "--trust-all-polymorphic", &format!("--resource:{RESOURCE_TAGS}")]);
        command.arg(known).args(annotations.iter().flat_map(|annotation| ["-an", annotation]));
        let tranche = ["100.0", "99.95", "99.9", "99.7", "99.0", "97.0", "90.0"];
        command.args(tranche.iter().flat_map(|tranche| ["-tranche", tranche]));
        run_checked(command.arg("-O").arg(&recal).arg("--tranches-file").arg(&tranches));
        let next = directory.join(format!("{mode}.applied.vcf.gz"));
        let mut command = gatk::gatk_command("ApplyVQSR");
        command.arg("-R").arg(&cohort.reference).arg("-V").arg(&variants).args(["-mode", mode]);
        command.args(["--truth-sensitivity-filter-level", "99.7", "--recal-file"]).arg(&recal);
        run_checked(command.arg("--tranches-file").arg(&tranches).arg("-O").arg(&next));
        variants = next;
    }
    let (found, expected) = (vcf_records(&out), vcf_records(&variants));
    assert_same_text(&found, &expected);
    let text = String::from_utf8_lossy(&found).into_owned();
    let (passed, failed) = (text.matches("\tPASS\t").count(), text.matches("VQSRTranche").count());
    assert!(passed > 10_000 && failed > 1_000, "{passed} passed, {failed} failed: nothing was told apart");
    godwit().arg("verify").arg(&out).run_ok();
}

#[test]
fn few_variants_are_held_to_hard_filters_and_that_is_said() {
    needs!("bgzip", "tabix", "samtools");
    needs_gatk!();
    let directory = scratch::directory("hard");
    let cohort = Cohort::new(&directory, 300, 100);
    let out = directory.join("out.vcf.gz");
    let run = cohort.filter(&out).args(cohort.resources()).run_ok();
    assert!(run.stderr.contains("too few to train the model, which requires 10000 and 2000"), "{}", run.describe());
    // Compute the expected filters of each record from the thresholds.
    let found = vcf_records(&out);
    let original = vcf_records(&cohort.joint);
    let judged = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let value = |name: &str| -> f64 {
            let info = fields[7].split(';').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            info.expect("it was written").parse().expect("a number")
        };
        let (snp, quality) = (fields[3].len() == 1, fields[5].parse::<f64>().expect("a number"));
        let mut failed = vec![];
        let mut hold = |fails: bool, name: &'static str| failed.extend(fails.then_some(name));
        hold(value("QD") < 2.0, "QD2");
        hold(quality < 30.0, "QUAL30");
        hold(snp && value("SOR") > 3.0, "SOR3");
        hold(snp && value("FS") > 60.0, "FS60");
        hold(snp && value("MQ") < 40.0, "MQ40");
        hold(snp && value("MQRankSum") < -12.5, "MQRankSum-12.5");
        hold(snp && value("ReadPosRankSum") < -8.0, "ReadPosRankSum-8");
        hold(!snp && value("FS") > 200.0, "FS200");
        hold(!snp && value("ReadPosRankSum") < -20.0, "ReadPosRankSum-20");
        failed.sort_unstable();
        if failed.is_empty() { "PASS".to_owned() } else { failed.join(";") }
    };
    let (found, original) =
        (String::from_utf8_lossy(&found).into_owned(), String::from_utf8_lossy(&original).into_owned());
    assert_eq!(found.lines().count(), original.lines().count());
    let mut failed = 0;
    for (line, before) in found.lines().zip(original.lines()) {
        let mut filter: Vec<&str> = line.split('\t').nth(6).expect("a filter").split(';').collect();
        filter.sort_unstable();
        assert_eq!(filter.join(";"), judged(before), "{line}");
        failed += usize::from(filter != ["PASS"]);
    }
    assert!(failed > 20, "only {failed} failed, so nothing is shown");
    let again = cohort.filter(&out).args(cohort.resources()).arg("--resume").run_ok();
    assert!(again.stderr.contains("already complete"), "{}", again.describe());
    assert!(record_lines(found.as_bytes()).len() == found.len());
    let wrong = cohort.filter(&out).args(["--snp-resource", "hapmap.vcf.gz"]).run();
    wrong.assert_rejected(&[2], &["hapmap,known=false"]);
}
