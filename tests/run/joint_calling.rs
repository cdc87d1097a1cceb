//! Joint calling of several samples: the records equal those of a single joint run over the whole genome.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{gatk, needs, needs_gatk, scratch};

use super::variant_calling::{
    assert_same_for_worker_counts, assert_same_text, genotypes, record_lines, vcf_records, write_reference,
};

const SAMPLES: [&str; 3] = ["ada", "ben", "cleo"];

/// Three samples, aligned to one reference.
pub struct Cohort {
    pub directory: PathBuf,
    pub reference: PathBuf,
}

impl Cohort {
    /// Returns the cohort, with a depth of about 15 for each sample. It is created once for all tests.
    pub fn cached() -> &'static Self {
        static COHORT: OnceLock<Cohort> = OnceLock::new();
        COHORT.get_or_init(|| {
            let directory = scratch::directory("cohort");
            let reference = directory.join("ref.fa");
            write_reference(&reference);
            godwit().arg("index").arg(&reference).run_ok();
            for (seed, sample) in SAMPLES.iter().enumerate() {
                let prefix = directory.join(format!("{sample}-reads"));
                let simulate = godwit().arg("simulate").arg("--reference").arg(&reference).arg("--out").arg(&prefix);
                simulate.args(["--pairs", "4000", "--seed", &seed.to_string()]).run_ok();
                let align = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads");
                let reads = [1, 2].map(|mate| format!("{}_L001_R{mate}.fastq", prefix.display()));
                // freebayes distinguishes samples by the ID of the read group, GATK requires a platform.
                let group = format!("@RG\\tID:{sample}\\tSM:{sample}\\tLB:{sample}\\tPL:ILLUMINA");
                let align = align.args(reads).args(["--sample", sample, "--read-group", &group]);
                let align = align.args(["--metrics", "off", "--out"]);
                align.arg(directory.join(sample)).run_ok();
            }
            Self { directory, reference }
        })
    }

    pub(super) fn bams(&self) -> [PathBuf; 3] {
        SAMPLES.map(|sample| self.directory.join(sample).join(format!("{sample}.bam")))
    }

    /// Returns `godwit call` of all samples.
    fn call(&self, grid: &str, out: &Path) -> GodwitCommand {
        let call = godwit().arg("call").arg("--reference").arg(&self.reference).arg("--reads");
        let call = call.args(SAMPLES.map(|sample| self.directory.join(sample)));
        call.arg("--out").arg(out).args(["--grid-size", grid])
    }

    fn genotype(&self, grid: &str, gvcfs: &[PathBuf], out: &Path) -> GodwitCommand {
        let call = godwit().arg("call").arg("--reference").arg(&self.reference).arg("--gvcfs").args(gvcfs);
        let call = call.arg("--out").arg(out).args(["--grid-size", grid, "--caller-memory", "1G"]);
        call.with_gatk()
    }

    /// Returns the GVCF of each sample from a single run of GATK. They are created once for all tests.
    fn gvcfs(&self) -> &'static [PathBuf; 3] {
        static GVCFS: OnceLock<[PathBuf; 3]> = OnceLock::new();
        GVCFS.get_or_init(|| {
            self.make_dictionary();
            let directory = scratch::directory("gvcfs");
            SAMPLES.map(|sample| {
                let out = directory.join(format!("{sample}.g.vcf.gz"));
                let bam = self.directory.join(sample).join(format!("{sample}.bam"));
                gatk::haplotype_caller(&self.reference, &bam, &out, &["-ERC", "GVCF"]);
                out
            })
        })
    }

    pub fn make_dictionary(&self) {
        let dictionary = self.reference.with_extension("dict");
        if !dictionary.exists() {
            let words = ["dict".as_ref(), self.reference.as_os_str(), "-o".as_ref(), dictionary.as_os_str()];
            Tool::require("samtools").run(words);
        }
    }
}

#[test]
fn bcftools_gives_the_records_of_one_joint_run_at_any_grid() {
    needs!("bcftools", "bgzip", "bash");
    let cohort = Cohort::cached();
    let mut command = Tool::require("bash").command();
    let script = "set -o pipefail; bcftools mpileup -Ou -f \"$0\" \"$@\" | bcftools call -mv";
    let expected = run_checked(command.args(["-c", script]).arg(&cohort.reference).args(cohort.bams())).stdout;
    let expected = record_lines(&expected);
    let samples = |line: &[u8]| line.split(|byte| *byte == b'\t').count();
    assert!(expected.split(|byte| *byte == b'\n').next().map(samples) == Some(9 + SAMPLES.len()));
    for grid in ["2K", "10K", "1M"] {
        let out = assert_same_for_worker_counts(|out| cohort.call(grid, out));
        assert_same_text(&vcf_records(&out), &expected);
        godwit().arg("verify").arg(&out).run_ok();
    }
    let template = "bash -c 'set -o pipefail; bcftools mpileup -Ou -f $1 -R $2 -b $3 | bcftools call -mv' call {reference} \
                    {bed} {bams}";
    let out = scratch::directory("template").join("a.vcf.gz");
    cohort.call("10K", &out).args(["--caller", template]).run_ok();
    assert_same_text(&vcf_records(&out), &expected);
    let refused = cohort.call("10K", &out).args(["--caller", "freebayes -f {reference} -t {bed} {bam}"]).run();
    refused.assert_rejected(&[2], &["{bams}"]);
}

#[test]
fn freebayes_gives_the_sites_and_genotypes_of_one_joint_run() {
    needs!("freebayes", "bgzip");
    let cohort = Cohort::cached();
    let mut command = Tool::require("freebayes").command();
    let whole = run_checked(command.arg("-f").arg(&cohort.reference).args(cohort.bams())).stdout;
    let out = assert_same_for_worker_counts(|out| cohort.call("7K", out).args(["--caller", "freebayes"]));
    let (found, expected) = (genotypes(&vcf_records(&out)), genotypes(&record_lines(&whole)));
    assert!(expected.len() > 50, "{} records", expected.len());
    assert_eq!(found, expected);
}

#[test]
fn samples_that_do_not_go_together_are_refused() {
    needs!("bcftools", "samtools");
    let cohort = Cohort::cached();
    let [ada, ben, _] = cohort.bams();
    let directory = scratch::directory("apart");
    let out = directory.join("a.vcf.gz");
    let call = |reads: &[&Path]| {
        let call = godwit().arg("call").arg("--reference").arg(&cohort.reference).arg("--reads").args(reads);
        call.arg("--out").arg(&out).run()
    };
    call(&[&ada, &ben, &ada]).assert_rejected(&[2], &["ada.bam is given twice"]);
    // The same sample at another path.
    let copy = directory.join("copy.bam");
    fs::copy(&ada, &copy).expect("it can be copied");
    fs::copy(ada.with_extension("bam.bai"), directory.join("copy.bam.bai")).expect("it can be copied");
    call(&[&ada, &ben, &copy]).assert_rejected(&[2], &["the sample ada is in", "ada.bam", "copy.bam"]);
    let other = directory.join("other.bam");
    let script = "samtools view -h \"$0\" | awk '$1 == \"@SQ\" && $2 == \"SN:chrM\" { next } $3 != \"chrM\" && $7 != \"chrM\"' | \
                  samtools view -b -o \"$1\" && samtools index \"$1\"";
    run_checked(Tool::require("bash").command().args(["-c", script]).arg(&ben).arg(&other));
    call(&[&ada, &other])
        .assert_rejected(&[3], &["other.bam", "contig 3 is none here", "chrM of 5000 bases", "ada.bam"]);
    assert!(!out.exists());
}

#[test]
fn gvcfs_are_genotyped_as_in_one_run_of_gatk() {
    needs!("bgzip", "bcftools", "samtools");
    needs_gatk!();
    let cohort = Cohort::cached();
    let gvcfs = cohort.gvcfs();
    let directory = scratch::directory("genotyped");
    let out = directory.join("joint.vcf.gz");
    let genotype = |out: &Path| cohort.genotype("30K", gvcfs, out);
    genotype(&out).args(["--threads", "2", "--memory", "2G"]).run_ok();
    let (together, whole) = (directory.join("together.g.vcf"), directory.join("whole.vcf"));
    let mut command = gatk::gatk_command("CombineGVCFs");
    command.arg("-R").arg(&cohort.reference).arg("-O").arg(&together);
    command.args(gvcfs.iter().flat_map(|gvcf| ["-V".as_ref(), gvcf.as_os_str()]));
    run_checked(&mut command);
    let mut command = gatk::gatk_command("GenotypeGVCFs");
    run_checked(command.arg("-R").arg(&cohort.reference).arg("-V").arg(&together).arg("-O").arg(&whole));
    let expected = genotypes(&record_lines(&fs::read(&whole).expect("GATK wrote it")));
    assert!(expected.len() > 150, "{} records", expected.len());
    assert_eq!(genotypes(&vcf_records(&out)), expected);
    godwit().arg("verify").arg(&out).run_ok();
    // Two regions for two workers, because each start of Java takes seconds.
    let spread = directory.join("spread.vcf.gz");
    let workers = ["--threads", "1", "--memory", "1G", "--on", "local", "--nodes", "2", "--regions", "chrX,chrM"];
    genotype(&spread).args(workers).run_ok();
    let records = vcf_records(&out);
    let is_called = |line: &&[u8]| line.starts_with(b"chrX\t") || line.starts_with(b"chrM\t");
    let expected: Vec<u8> =
        records.split_inclusive(|byte| *byte == b'\n').filter(is_called).flatten().copied().collect();
    assert_same_text(&vcf_records(&spread), &expected);
}

#[test]
fn the_database_needs_no_locks_of_files() {
    needs!("bcftools", "samtools", "bash");
    needs_gatk!();
    let cohort = Cohort::cached();
    let directory = scratch::directory("locks");
    let log = directory.join("log");
    // A Java that records its command lines.
    let home = directory.join("java");
    fs::create_dir_all(home.join("bin")).expect("scratch can be written to");
    let java = Tool::require("java").command().get_program().to_owned();
    let text = "#!/bin/bash\nprintf '%s %s\\n' \"$TILEDB_DISABLE_FILE_LOCKING\" \"$*\" >>";
    let script = format!("{text} {}\nexec {} \"$@\"\n", log.display(), Path::new(&java).display());
    scratch::write_executable(&home.join("bin/java"), &script);
    let out = directory.join("joint.vcf.gz");
    cohort.genotype("1M", cohort.gvcfs(), &out).args(["--regions", "chrM"]).env("JAVA_HOME", &home).run_ok();
    let log = fs::read_to_string(&log).expect("Java was started");
    for tool in ["GenomicsDBImport", "GenotypeGVCFs"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(tool)).collect();
        let is_lockless =
            |line: &&str| line.starts_with("1 ") && line.contains("--genomicsdb-shared-posixfs-optimizations true");
        assert!(!lines.is_empty() && lines.iter().all(is_lockless), "{log}");
        // This file system is not a network file system, so the database is in the job directory.
        assert!(lines.iter().all(|line| line.contains(".joint.vcf.gz.godwit-run/scratch/")), "{log}");
    }
}

#[test]
fn what_is_no_gvcf_is_not_genotyped() {
    needs!("bcftools", "bgzip", "samtools");
    needs_gatk!();
    let cohort = Cohort::cached();
    let directory = scratch::directory("no-gvcf");
    let plain = directory.join("plain.vcf.gz");
    cohort.call("1M", &plain).run_ok();
    let out = directory.join("out.vcf.gz");
    let refused = |gvcfs: &[PathBuf], code: i32, words: &[&str]| {
        cohort.genotype("1M", gvcfs, &out).run().assert_rejected(&[code], words);
        assert!(!out.exists());
    };
    refused(&[plain], 3, &["plain.vcf.gz", "not a GVCF", "-ERC GVCF"]);
    refused(&[directory.join("none.g.vcf.gz")], 4, &["none.g.vcf.gz is missing"]);
    refused(std::slice::from_ref(&cohort.reference), 3, &["ref.fa"]);
    let gvcf = &cohort.gvcfs()[0];
    refused(&[gvcf.clone(), gvcf.clone()], 2, &["given twice"]);
    let bare = directory.join("bare.g.vcf.gz");
    fs::copy(gvcf, &bare).expect("it can be copied");
    refused(&[bare], 4, &["bare.g.vcf.gz.tbi is missing", "tabix"]);
    let mixed = cohort.call("1M", &out).args(["--caller", "gatk-joint"]).run();
    mixed.assert_rejected(&[2], &["--gvcfs"]);
    let blocks =
        cohort.call("1M", &out).args(["--caller", "gatk", "--caller-args", "-ERC GVCF", "--caller-memory", "1G"]);
    blocks.with_gatk().run().assert_rejected(&[2], &["one sample"]);
}
