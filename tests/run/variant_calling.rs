//! `godwit call`: with any grid and number of callers, the records equal those of a single run of the caller over the
//! whole genome.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{gatk, needs, needs_gatk, scratch, skip};
use parking_lot::Mutex;

use super::picard::shared_data_directory;
use super::real_data::{aligned_na12878, chromosome_20};

/// Contigs of the sample's genome. The first has an interval of N in the middle.
pub(super) const CONTIGS: [(&str, usize); 3] = [("chr1", 50_000), ("chrX", 20_000), ("chrM", 5_000)];
const WORKER_COUNTS: [&str; 2] = ["1", "4"];

/// An aligned sample: a reference, and the output directory of `align`.
pub(super) struct AlignedSample {
    pub(super) reference: PathBuf,
    pub(super) output: PathBuf,
}

impl AlignedSample {
    /// Returns an aligned sample of a diploid genome with known variants and a depth of about 30. It is created once
    /// for all tests.
    pub(super) fn cached() -> &'static Self {
        static ALIGNED: OnceLock<AlignedSample> = OnceLock::new();
        ALIGNED.get_or_init(|| {
            let directory = scratch::directory("calling");
            let (reference, output) = (directory.join("ref.fa"), directory.join("out"));
            write_reference(&reference);
            godwit().arg("index").arg(&reference).run_ok();
            let prefix = directory.join("reads");
            let simulate = godwit().arg("simulate").arg("--reference").arg(&reference);
            simulate.args(["--pairs", "8000", "--seed", "3", "--out"]).arg(&prefix).run_ok();
            let reads = [1, 2].map(|mate| format!("{}_L001_R{mate}.fastq", prefix.display()));
            let align = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads").args(reads);
            align.args(["--sample", "s", "--format", "bam,cram", "--metrics", "off", "--out"]).arg(&output).run_ok();
            Self { reference, output }
        })
    }

    pub(super) fn bam(&self) -> PathBuf {
        self.output.join("s.bam")
    }

    /// Returns `godwit call` on the alignment, with a grid that cuts it into about twelve regions.
    pub(super) fn call(&self, out: &Path) -> GodwitCommand {
        self.call_file(&self.output, out)
    }

    /// Returns `godwit call` with a grid of that size.
    pub(super) fn call_with_grid(&self, grid: &str, out: &Path) -> GodwitCommand {
        let command = godwit().arg("call").arg("--reference").arg(&self.reference).arg("--reads").arg(&self.output);
        command.arg("--out").arg(out).args(["--grid-size", grid])
    }

    pub(super) fn call_file(&self, reads: &Path, out: &Path) -> GodwitCommand {
        let command = godwit().arg("call").arg("--reference").arg(&self.reference).arg("--reads").arg(reads);
        command.arg("--out").arg(out).args(["--grid-size", "7K"])
    }

    /// Returns the records that `bcftools mpileup | bcftools call` writes for the whole genome. Each command line runs
    /// once for all tests.
    pub(super) fn bcftools_records(&self, mpileup: &str, call: &str) -> Vec<u8> {
        static RECORDS: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
        let (reference, bam) = (self.reference.display(), self.bam());
        let script = format!(
            "set -o pipefail; bcftools mpileup -Ou -f {reference} {mpileup} {} | bcftools call {call}",
            bam.display()
        );
        let mut records = RECORDS.lock();
        let whole = || record_lines(&run_checked(Tool::require("bash").command().args(["-c", &script])).stdout);
        records.entry(script.clone()).or_insert_with(whole).clone()
    }
}

/// Writes the reference genome that the samples of these tests share.
pub(super) fn write_reference(path: &Path) {
    let mut random = Random::new(5);
    let mut text = String::new();
    for (name, count) in CONTIGS {
        let mut bases = random.bases(count);
        if name == "chr1" {
            bases[22_000..25_000].fill(b'N');
        }
        let lines: Vec<&[u8]> = bases.chunks(70).collect();
        text += &format!(">{name}\n{}\n", String::from_utf8_lossy(&lines.join(&b'\n')));
    }
    fs::write(path, text).expect("the scratch directory can be written to");
}

/// Returns the lines of records in the text of a VCF.
pub(super) fn record_lines(text: &[u8]) -> Vec<u8> {
    text.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")).flatten().copied().collect()
}

/// Returns the lines of records in a bgzipped VCF, decompressed by bgzip.
pub fn vcf_records(vcf: &Path) -> Vec<u8> {
    record_lines(&Tool::require("bgzip").run(["-dc".as_ref(), vcf.as_os_str()]).stdout)
}

/// Returns contig, position, alleles and genotype of every sample of each record.
pub(super) fn genotypes(records: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(records);
    let genotype = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let genotypes: Vec<&str> = fields[9..].iter().map(|sample| sample.split(':').next().unwrap_or("")).collect();
        format!("{} {} {} {} {}", fields[0], fields[1], fields[3], fields[4], genotypes.join(" "))
    };
    text.lines().map(genotype).collect()
}

#[track_caller]
pub fn assert_same_text(found: &[u8], expected: &[u8]) {
    assert!(!expected.is_empty(), "nothing was called, so nothing is shown");
    let (found, expected) = (String::from_utf8_lossy(found), String::from_utf8_lossy(expected));
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "record {number}");
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// Calls with 1 and 4 callers at a time, requires equal files, and returns one.
pub(super) fn assert_same_for_worker_counts(call: impl Fn(&Path) -> GodwitCommand) -> PathBuf {
    let directory = scratch::directory("workers");
    let files = WORKER_COUNTS.map(|workers| {
        let out = directory.join(format!("{workers}.vcf.gz"));
        call(&out).args(["--threads", workers]).run_ok();
        out
    });
    for ending in ["", ".tbi"] {
        let bytes =
            files.each_ref().map(|file| fs::read(format!("{}{ending}", file.display())).expect("it was written"));
        assert!(bytes.iter().all(|other| *other == bytes[0]), "workers change {}{ending}", files[0].display());
    }
    files[0].clone()
}

#[test]
fn bcftools_gives_the_records_of_one_run_at_any_grid() {
    needs!("bcftools", "bgzip", "bash");
    let aligned = AlignedSample::cached();
    let expected = aligned.bcftools_records("", "-mv");
    let mut whole = None;
    for grid in ["2K", "10K", "1M"] {
        let out = assert_same_for_worker_counts(|out| aligned.call_with_grid(grid, out));
        assert_same_text(&vcf_records(&out), &expected);
        let bytes = fs::read(&out).expect("it was written");
        assert!(*whole.get_or_insert(bytes.clone()) == bytes, "the grid changes the file");
        let count = expected.iter().filter(|byte| **byte == b'\n').count();
        let verified = godwit().arg("verify").arg(&out).run_ok();
        assert!(verified.stdout.contains(&format!("{count} records")), "{}", verified.describe());
    }
    assert!(whole.is_some());
}

#[test]
fn options_of_mpileup_and_call_reach_them() {
    needs!("bcftools", "bgzip", "bash");
    let aligned = AlignedSample::cached();
    let out = scratch::directory("options").join("a.vcf.gz");
    aligned.call(&out).args(["--caller-args", "-q 30 -a FORMAT/AD,FORMAT/DP | -m -A"]).run_ok();
    assert_same_text(&vcf_records(&out), &aligned.bcftools_records("-q 30 -a FORMAT/AD,FORMAT/DP", "-m -A"));
    // Request a record for each position, so that the test covers all borders of regions.
    let header = String::from_utf8_lossy(
        &Tool::require("bcftools").run(["view".as_ref(), "-h".as_ref(), out.as_os_str()]).stdout,
    )
    .into_owned();
    assert!(header.contains(
        "##godwit_callCommand=call --caller 'bcftools mpileup -q 30 -a FORMAT/AD,FORMAT/DP | bcftools call -m -A'\n"
    ));
    assert!(!header.contains("##bcftoolsCommand") && !header.contains("##bcftools_callCommand"), "{header}");
    assert!(header.contains("##contig=<ID=chrX,length=20000>") && header.contains("##bcftoolsVersion="), "{header}");
}

#[test]
fn the_index_finds_what_tabix_finds() {
    needs!("bcftools", "bgzip", "tabix");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("tabix");
    let (ours, theirs) = (directory.join("ours.vcf.gz"), directory.join("theirs.vcf.gz"));
    aligned.call(&ours).args(["--caller-args", "| -m"]).run_ok();
    fs::copy(&ours, &theirs).expect("it can be copied");
    Tool::require("tabix").run(["-p".as_ref(), "vcf".as_ref(), theirs.as_os_str()]);
    let mut random = Random::new(1);
    for (name, bases) in CONTIGS {
        for _ in 0..15 {
            let start = random.below(bases) + 1;
            let region = format!("{name}:{start}-{}", start + random.below(3_000));
            let found =
                [&ours, &theirs].map(|vcf| Tool::require("tabix").run([vcf.as_os_str(), region.as_ref()]).stdout);
            assert!(found[0] == found[1], "{region}");
        }
    }
    let names = [&ours, &theirs].map(|vcf| Tool::require("tabix").run(["-l".as_ref(), vcf.as_os_str()]).stdout);
    assert_eq!(names[0], names[1]);
}

#[test]
fn freebayes_gives_the_sites_and_genotypes_of_one_run() {
    needs!("freebayes", "bgzip");
    let aligned = AlignedSample::cached();
    let mut command = Tool::require("freebayes").command();
    let whole = run_checked(command.arg("-f").arg(&aligned.reference).arg(aligned.bam())).stdout;
    let out = assert_same_for_worker_counts(|out| aligned.call(out).args(["--caller", "freebayes"]));
    let (found, expected) = (genotypes(&vcf_records(&out)), genotypes(&record_lines(&whole)));
    assert!(expected.len() > 50, "{} records", expected.len());
    assert_eq!(found, expected);
}

#[test]
fn haplotype_caller_gives_the_sites_and_genotypes_of_one_run() {
    needs!("bgzip", "bcftools");
    needs_gatk!();
    let aligned = AlignedSample::cached();
    for (name, words) in [("vcf", &[][..]), ("gvcf", &["-ERC", "GVCF"])] {
        let call = |out: &Path| {
            // Use a coarse grid, because each start of Java takes seconds.
            let call = aligned.call_with_grid("30K", out).with_gatk();
            call.args(["--caller", "gatk", "--caller-memory", "1G", "--caller-args", &words.join(" ")])
        };
        // This call creates the sequence dictionary of the reference, which the single run over the whole genome also
        // needs.
        let out = scratch::directory("gatk").join(format!("{name}.vcf.gz"));
        call(&out).args(["--threads", "2", "--memory", "2G"]).run_ok();
        let whole = out.with_file_name(format!("{name}.whole.vcf"));
        gatk::haplotype_caller(&aligned.reference, &aligned.bam(), &whole, words);
        let variants = |found: Vec<String>| {
            found.into_iter().filter(|line| line.split(' ').nth(3) != Some("<NON_REF>")).collect::<Vec<_>>()
        };
        let found = variants(genotypes(&vcf_records(&out)));
        let expected = variants(genotypes(&record_lines(&fs::read(&whole).expect("GATK wrote it"))));
        assert!(expected.len() > 50, "{} records", expected.len());
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_template_runs_a_real_caller() {
    needs!("bcftools", "bgzip", "bash", "freebayes");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("template");
    let script = directory.join("call.sh");
    let text = "set -euo pipefail\nbcftools mpileup -Ou -f \"$1\" -R \"$3\" \"$2\" | bcftools call -mv -Oz -o \"$4\"\n";
    fs::write(&script, text).expect("scratch can be written to");
    let script = format!("bash {} {{reference}} {{bam}} {{bed}} {{out}}", script.display());
    let out = assert_same_for_worker_counts(|out| aligned.call(out).args(["--caller", &script]));
    assert_same_text(&vcf_records(&out), &aligned.bcftools_records("", "-mv"));
    // Test a caller that writes the VCF to stdout.
    let out = directory.join("printed.vcf.gz");
    let printing = "freebayes -f {reference} -t {bed} -p {ploidy} {bam}";
    aligned.call(&out).args(["--caller", printing]).run_ok();
    let named = directory.join("named.vcf.gz");
    aligned.call(&named).args(["--caller", "freebayes"]).run_ok();
    assert_eq!(genotypes(&vcf_records(&out)), genotypes(&vcf_records(&named)));
}

#[test]
fn bam_and_cram_from_elsewhere_are_called_like_a_run() {
    needs!("bcftools", "bgzip", "bash");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("elsewhere");
    let expected = aligned.bcftools_records("", "-mv");
    for name in ["s.bam", "s.cram"] {
        let out = directory.join(format!("{name}.vcf.gz"));
        aligned.call_file(&aligned.output.join(name), &out).run_ok();
        assert_same_text(&vcf_records(&out), &expected);
    }
}

#[test]
fn regions_give_the_records_that_start_in_them() {
    needs!("bcftools", "bgzip", "bash");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("regions");
    let mut random = Random::new(8);
    let mut targets: Vec<(&str, usize, usize)> = Vec::new();
    for (name, bases) in CONTIGS {
        for _ in 0..bases / 1_000 {
            let start = random.below(bases);
            targets.push((name, start, (start + random.below(700)).min(bases)));
        }
    }
    let bed: String = targets.iter().map(|(name, start, end)| format!("{name}\t{start}\t{end}\n")).collect();
    fs::write(directory.join("a.bed"), format!("#made here\n{bed}")).expect("scratch can be written to");
    let whole = aligned.bcftools_records("", "-m");
    let within = |line: &&[u8]| {
        let text = String::from_utf8_lossy(line);
        let mut fields = text.split('\t');
        let (name, pos) = (fields.next().expect("a contig"), fields.next().expect("a position"));
        let position = pos.parse::<usize>().expect("a number") - 1;
        targets.iter().any(|(contig, start, end)| *contig == name && (*start..*end).contains(&position))
    };
    let expected: Vec<u8> = whole.split_inclusive(|byte| *byte == b'\n').filter(within).flatten().copied().collect();
    let out = directory.join("a.vcf.gz");
    let call = aligned.call_with_grid("2K", &out).arg("--regions").arg(directory.join("a.bed"));
    call.args(["--caller-args", "| -m"]).run_ok();
    assert_same_text(&vcf_records(&out), &expected);
    for (bed, word) in [
        ("chrM\t0\t1\nchr9\t1\t2\n", "line 2: there is no contig \"chr9\""),
        ("chr1\t5\n", "line 1"),
        ("chr1\t9\t3\n", "line 1"),
        ("chr1\t50000\t50001\n", "line 1: chr1:50001-50001 starts after the end of contig chr1"),
    ] {
        fs::write(directory.join("b.bed"), bed).expect("scratch can be written to");
        let refused = aligned.call(&out).arg("--regions").arg(directory.join("b.bed")).run();
        refused.assert_rejected(&[3], &["b.bed", word]);
    }
}

#[test]
fn regions_are_strings_or_files_and_ends_beyond_contigs_are_clipped() {
    needs!("bcftools", "bgzip", "bash");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("region-strings");
    let out = directory.join("a.vcf.gz");
    let whole = String::from_utf8(aligned.bcftools_records("", "-mv")).expect("VCF is text");
    let within = |contig: &str, first: u64, last: u64| -> Vec<String> {
        let is_within = |line: &&str| {
            let mut fields = line.split('\t');
            let (name, position) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            name == contig && position.parse().is_ok_and(|position| (first..=last).contains(&position))
        };
        whole.lines().filter(is_within).map(str::to_owned).collect()
    };
    let called = |regions: &[&str]| -> (Vec<String>, String) {
        let call = regions.iter().fold(aligned.call(&out), |call, region| call.args(["--regions", region]));
        let said = call.run_ok().stderr;
        let found = String::from_utf8(vcf_records(&out)).expect("VCF is text");
        (found.lines().map(str::to_owned).collect(), said)
    };
    let expected = [within("chr1", 1000, 9000), within("chrM", 1, 5000)].concat();
    assert!(expected.len() > 3);
    for regions in [&["chr1:1000-9000,chrM"][..], &["chr1:1,000-9,000", "chrM"]] {
        let (found, said) = called(regions);
        assert_eq!(found, expected, "{regions:?}");
        assert!(!said.contains("clipped"), "{said}");
    }
    let bed = directory.join("over.bed");
    fs::write(&bed, "chrX\t15000\t99999\nchr1\t40000\t4294967295\n").expect("scratch can be written to");
    let (found, said) = called(&[bed.to_str().expect("scratch has a plain name")]);
    assert_eq!(found, [within("chr1", 40_001, 50_000), within("chrX", 15_001, 20_000)].concat());
    assert!(said.contains("clipped") && said.contains("line 1 of") && said.contains("over.bed"), "{said}");
    let refused = |region: &str| aligned.call(&out).args(["--regions", region]).run();
    refused("chr9:1-100").assert_rejected(&[2], &["--regions", "no contig \"chr9\""]);
    refused("chr1:50001-50002").assert_rejected(&[2], &["--regions", "starts after the end of contig chr1", "50000"]);
    refused("nowhere.bed").assert_rejected(&[4], &["nowhere.bed", "neither a file nor a region"]);
}

#[test]
fn ploidy_is_that_of_bcftools_for_every_caller() {
    needs!("bcftools", "bgzip", "bash", "freebayes");
    let aligned = AlignedSample::cached();
    let directory = scratch::directory("ploidy");
    let table = directory.join("ploidy.txt");
    let text = "chrX 1 6000 M 1\nchrX 9001 20000 M 1\nchrM 1 5000 M 1\nchrM 1 5000 F 1\n* * * M 2\n* * * F 2\n";
    fs::write(&table, text).expect("scratch can be written to");
    let call = |caller: &str, sex: &str| {
        let out = directory.join(format!("{caller}.{sex}.vcf.gz"));
        aligned.call(&out).args(["--caller", caller, "--sex", sex, "--ploidy"]).arg(&table).run_ok();
        vcf_records(&out)
    };
    for sex in ["M", "F"] {
        // A file of its own: records of a command line are kept.
        let sexes = directory.join(format!("sexes.{sex}.txt"));
        fs::write(&sexes, format!("s\t{sex}\n")).expect("scratch can be written to");
        let words = format!("-mv --ploidy-file {} -S {}", table.display(), sexes.display());
        assert_same_text(&call("bcftools", sex), &aligned.bcftools_records("", &words));
    }
    let haploid = |records: &[u8]| {
        let is_haploid = |line: &String| !line.rsplit(' ').next().unwrap_or_default().contains('/');
        let (haploid, diploid): (Vec<String>, Vec<String>) = genotypes(records).into_iter().partition(is_haploid);
        let place = |line: &String| -> (String, usize) {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].to_owned(), words[1].parse().expect("a position"))
        };
        (haploid.iter().map(place).collect::<Vec<_>>(), diploid.iter().map(place).collect::<Vec<_>>())
    };
    let (one, two) = haploid(&call("freebayes", "M"));
    let has_one = |(name, pos): &(String, usize)| name == "chrM" || name == "chrX" && !(6001..=9000).contains(pos);
    assert!(one.len() > 10 && one.iter().all(has_one), "{one:?}");
    assert!(two.len() > 10 && !two.iter().any(has_one), "{two:?}");
    let refused = |words: &[&str], code: i32, word: &str| {
        let out = directory.join("refused.vcf.gz");
        aligned.call(&out).args(words).run().assert_rejected(&[code], &[word]);
        assert!(!out.exists());
    };
    refused(&["--ploidy", "GRCh38", "--sex", "male"], 2, "F and M");
    refused(&["--ploidy", "GRCh39"], 4, "GRCh38");
    fs::write(&table, "chrX 1 2\n").expect("scratch can be written to");
    refused(&["--ploidy", table.to_str().expect("UTF-8")], 3, "line 1");
    fs::write(&table, "chr1 1 50000 * 4\n").expect("scratch can be written to");
    refused(&["--ploidy", table.to_str().expect("UTF-8")], 2, "not 4");
}

#[test]
fn places_deeper_than_mpileup_looks_are_the_same_at_any_grid_once_it_looks_deep_enough() {
    needs!("bcftools", "bgzip", "bash");
    let directory = scratch::directory("deep");
    let (reference, output) = (directory.join("ref.fa"), directory.join("out"));
    let bases = Random::new(6).bases(5_000);
    fs::write(&reference, [b">c\n", &bases[..], b"\n"].concat()).expect("scratch can be written to");
    godwit().arg("index").arg(&reference).run_ok();
    let simulate = godwit().arg("simulate").arg("--reference").arg(&reference).args(["--pairs", "8000", "--out"]);
    simulate.arg(directory.join("x")).run_ok();
    let reads = [1, 2].map(|mate| directory.join(format!("x_L001_R{mate}.fastq")));
    let align = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads").args(reads);
    align.args(["--sample", "s", "--metrics", "off", "--out"]).arg(&output).run_ok();
    let deep = AlignedSample { reference, output };
    // The depth is about 400 reads, more than the default limit of 250 in mpileup.
    let out = directory.join("a.vcf.gz");
    deep.call_with_grid("1K", &out).args(["--caller-args", "-d 100000 | -m"]).run_ok();
    assert_same_text(&vcf_records(&out), &deep.bcftools_records("-d 100000", "-m"));
}

/// Returns position, alleles and copies of each variant in the confident regions, left-aligned and decomposed.
fn confident_variants(vcf: &Path, reference: &Path, confident: &Path) -> Vec<String> {
    let script = "set -o pipefail; bcftools norm -f \"$1\" -m-any -a \"$2\" 2>/dev/null | bcftools view -T \"$3\" | \
                  bcftools query -i 'GT=\"alt\"' -f '%POS %REF %ALT [%GT]\\n'";
    let mut command = Tool::require("bash").command();
    command.args(["-c", script, "bash"]).args([reference, vcf, confident]);
    let text = String::from_utf8_lossy(&run_checked(&mut command).stdout).into_owned();
    let copies = |line: &str| {
        let (variant, genotype) = line.rsplit_once(' ').expect("four words");
        format!("{variant} x{}", genotype.matches('1').count())
    };
    let mut variants: Vec<String> = text.lines().map(copies).collect();
    variants.sort();
    variants.dedup();
    variants
}

#[test]
fn na12878_from_fastq_gives_all_variants_and_no_false_one() {
    needs!("bcftools", "bgzip", "tabix", "bash", "gzip", "freebayes");
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let directory = scratch::directory("na12878");
    let unpacked =
        |name: &str| run_checked(Tool::require("gzip").command().arg("-cd").arg(data.join("human").join(name))).stdout;
    let reference = chromosome_20(&data);
    let truth = directory.join("truth.vcf");
    let text = String::from_utf8(unpacked("test_nist.b37_chr20_100kbp_at_10mb.vcf.gz")).expect("it is text");
    let renamed = |line: &str| match line.strip_prefix("20\t") {
        Some(rest) => format!("chr20\t{rest}\n"),
        None => format!("{}\n", line.replace("##contig=<ID=20,", "##contig=<ID=chr20,")),
    };
    fs::write(&truth, text.lines().map(renamed).collect::<String>()).expect("scratch can be written to");
    let confident = data.join("human/test_nist.b37_chr20_100kbp_at_10mb.bed");
    let expected = confident_variants(&truth, reference, &confident);
    assert_eq!(expected.len(), 49);
    let run = aligned_na12878(&data);
    let mut command = Tool::require("bash").command();
    let script = "set -o pipefail; bcftools mpileup -Ou -f \"$1\" \"$2\" | bcftools call -mv";
    let whole = run_checked(command.args(["-c", script, "bash"]).arg(reference).arg(run.join("NA12878.bam"))).stdout;
    for (caller, grid) in [("bcftools", "2K"), ("bcftools", "10K"), ("bcftools", "1M"), ("freebayes", "20K")] {
        let out = directory.join(format!("{caller}.{grid}.vcf.gz"));
        let call =
            godwit().arg("call").arg("--reference").arg(reference).arg("--reads").arg(run).arg("--out").arg(&out);
        // All reads are within 0.1 Mb. Restrict calling to this interval, because a fine grid over the whole contig
        // would start the caller thousands of times without reads.
        fs::write(directory.join("a.bed"), "chr20\t9990000\t10110000\n").expect("scratch can be written to");
        let call = call.args(["--caller", caller, "--grid-size", grid, "--regions"]).arg(directory.join("a.bed"));
        call.run_ok();
        assert_eq!(confident_variants(&out, reference, &confident), expected, "{caller} {grid}");
        if caller == "bcftools" {
            assert_same_text(&vcf_records(&out), &record_lines(&whole));
        }
    }
}
