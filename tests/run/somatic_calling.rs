//! Somatic calling of a tumour with its matched normal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{gatk, needs, needs_gatk, scratch};

use super::variant_calling::{
    assert_same_for_worker_counts, assert_same_text, genotypes, record_lines, vcf_records, write_reference,
};

/// Reads of a person's healthy tissue, and of a tumour with variants of its own in half of its cells.
struct TumorNormalPair {
    reference: PathBuf,
    normal: PathBuf,
    tumor: PathBuf,
}

impl TumorNormalPair {
    fn cached() -> &'static Self {
        static PAIR: OnceLock<TumorNormalPair> = OnceLock::new();
        PAIR.get_or_init(|| {
            let directory = scratch::directory("pair");
            let reference = directory.join("ref.fa");
            write_reference(&reference);
            godwit().arg("index").arg(&reference).run_ok();
            // Tumour and normal have the same genome. In half of the tumour reads, one base in 1,500 is changed.
            let changed = directory.join("changed.fa");
            let text = fs::read_to_string(&reference).expect("it was written");
            let mut random = Random::new(4);
            let mut change = |line: &str| {
                let mut bases = line.as_bytes().to_vec();
                if !line.starts_with('>') && random.below(20) == 0 {
                    bases[0] = if bases[0] == b'A' { b'G' } else { b'A' };
                }
                String::from_utf8(bases).expect("letters") + "\n"
            };
            fs::write(&changed, text.lines().map(&mut change).collect::<String>()).expect("scratch can be written to");
            let reads = |of: &Path, name: &str, pairs: &str, seed: &str| {
                let prefix = directory.join(name);
                let simulate = godwit().arg("simulate").arg("--reference").arg(of).arg("--out").arg(&prefix);
                simulate.args(["--pairs", pairs, "--seed", seed]).run_ok();
                [1, 2].map(|mate| PathBuf::from(format!("{}_L001_R{mate}.fastq", prefix.display())))
            };
            let normal = reads(&reference, "normal", "6000", "9");
            let (healthy, ill) = (reads(&reference, "healthy", "4000", "9"), reads(&changed, "ill", "4000", "9"));
            let align = |sample: &str, lanes: &[[PathBuf; 2]]| {
                let mut align = godwit().arg("align").arg("--reference").arg(&reference);
                for (number, lane) in lanes.iter().enumerate() {
                    let group = format!("@RG\\tID:{sample}.{number}\\tSM:{sample}\\tLB:{sample}{number}\\tPL:ILLUMINA");
                    align = align.arg("--reads").args(lane).args(["--read-group", &group]);
                }
                let out = directory.join(sample);
                align.args(["--sample", sample, "--metrics", "off", "--out"]).arg(&out).run_ok();
                out.join(format!("{sample}.bam"))
            };
            let (normal, tumor) = (align("healthy", &[normal]), align("tumor", &[healthy, ill]));
            Self { reference, normal, tumor }
        })
    }

    fn call(&self, out: &Path) -> GodwitCommand {
        let call = godwit().arg("call").arg("--reference").arg(&self.reference).arg("--reads").arg(&self.tumor);
        call.arg("--normal").arg(&self.normal).arg("--out").arg(out)
    }
}

#[test]
#[ignore = "a minute of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored somatic_calling::"]
fn mutect2_gives_the_sites_and_genotypes_of_one_run() {
    needs!("bgzip", "bcftools");
    needs_gatk!();
    let pair = TumorNormalPair::cached();
    let directory = scratch::directory("mutect2");
    let call = |out: &Path| {
        let call = pair.call(out).with_gatk().args(["--grid-size", "20K"]);
        call.args(["--caller", "mutect2", "--caller-memory", "1G", "--memory", "4G"])
    };
    let (out, again) = (directory.join("a.vcf.gz"), directory.join("b.vcf.gz"));
    call(&out).args(["--threads", "2"]).run_ok();
    call(&again).args(["--threads", "1"]).run_ok();
    assert!(fs::read(&out).expect("it is") == fs::read(&again).expect("it is"), "workers change the file");
    let whole = directory.join("whole.vcf");
    let mut command = gatk::gatk_command("Mutect2");
    command.arg("-R").arg(&pair.reference).arg("-I").arg(&pair.tumor).arg("-I").arg(&pair.normal);
    run_checked(command.args(["-normal", "healthy", "-O"]).arg(&whole));
    let expected = genotypes(&record_lines(&fs::read(&whole).expect("GATK wrote it")));
    assert!(expected.len() > 20, "{} records", expected.len());
    assert_eq!(genotypes(&vcf_records(&out)), expected);
}

#[test]
fn templates_see_tumour_and_normal() {
    needs!("bcftools", "bgzip", "bash");
    let pair = TumorNormalPair::cached();
    let script = "bash -c 'set -o pipefail; bcftools mpileup -Ou -f $1 -R $2 $3 $4 | bcftools call -mv' call {reference} {bed} \
                  {tumor} {normal}";
    let out = assert_same_for_worker_counts(|out| pair.call(out).args(["--grid-size", "10K", "--caller", script]));
    let plain = "set -o pipefail; bcftools mpileup -Ou -f \"$0\" \"$@\" | bcftools call -mv";
    let mut command = Tool::require("bash").command();
    let command = command.args(["-c", plain]).arg(&pair.reference).arg(&pair.tumor).arg(&pair.normal);
    assert_same_text(&vcf_records(&out), &record_lines(&run_checked(command).stdout));
    let refused = |call: GodwitCommand, words: &[&str]| call.run().assert_rejected(&[2], words);
    refused(pair.call(&out), &["bcftools does not call a tumour", "mutect2", "{normal}"]);
    let alone = godwit().arg("call").arg("--reference").arg(&pair.reference).arg("--reads").arg(&pair.tumor);
    refused(alone.arg("--out").arg(&out).args(["--caller", script]), &["--normal"]);
    let twice = godwit().arg("call").arg("--reference").arg(&pair.reference).arg("--reads").arg(&pair.normal);
    let twice = twice.arg("--normal").arg(&pair.normal).arg("--out").arg(&out);
    refused(twice.args(["--caller", script]), &["given twice"]);
}
