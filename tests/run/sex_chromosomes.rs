//! `godwit run --ploidy`: every sample of a sheet is called with the ploidy of its sex.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{gatk, needs, needs_gatk, scratch};

use super::variant_calling::{assert_same_text, genotypes, record_lines, vcf_records};

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const CONTIGS: [(&str, usize); 3] = [("chr1", 20_000), ("chrX", 15_000), ("chrY", 9_000)];
/// The bases at the start of chrX that are diploid in both sexes.
const PAR_BASES: usize = 4_000;
/// Samples and their sexes in the sheet; the last has none.
const SAMPLE_SEXES: [(&str, &str); 3] = [("adam", "M"), ("eve", "F"), ("kim", "")];

/// The option of a grid that divides each contig into several regions.
const GRID_ARG: &str = "--grid-size=6K";

/// Reads of three people, and their ploidy table.
struct SexedSamples {
    reference: PathBuf,
    sheet: PathBuf,
    ploidy_table: PathBuf,
}

impl SexedSamples {
    /// Returns the samples, with a depth of about 25. They are created once for all tests. Samples without chrY have
    /// some wrongly mapped reads on it.
    fn cached() -> &'static Self {
        static SEXED_SAMPLES: OnceLock<SexedSamples> = OnceLock::new();
        SEXED_SAMPLES.get_or_init(|| {
            let directory = scratch::directory("people");
            let [reference, sheet, ploidy_table] =
                ["ref.fa", "sheet.csv", "ploidy.txt"].map(|name| directory.join(name));
            let mut random = Random::new(11);
            let contig = |(name, bases): (&str, usize)| {
                let bases = random.bases(bases);
                format!(">{name}\n{}\n", String::from_utf8(bases).expect("bases are ASCII"))
            };
            fs::write(&reference, CONTIGS.map(contig).concat()).expect("scratch can be written to");
            godwit().arg("index").arg(&reference).run_ok();
            let mut lines = "sample,sex,fastq_1,fastq_2,lane\n".to_owned();
            for (seed, (sample, sex)) in SAMPLE_SEXES.iter().enumerate() {
                let simulate = godwit().arg("simulate").arg("--reference").arg(&reference).args(["--pairs", "3600"]);
                let simulate = simulate.args(["--lanes", "2", "--seed", &seed.to_string(), "--out"]);
                simulate.arg(directory.join(sample)).run_ok();
                for lane in 1..=2 {
                    lines +=
                        &format!("{sample},{sex},{sample}_L00{lane}_R1.fastq,{sample}_L00{lane}_R2.fastq,{lane}\n");
                }
            }
            fs::write(&sheet, lines).expect("scratch can be written to");
            let x = format!("chrX {} {} M 1", PAR_BASES + 1, CONTIGS[1].1);
            let text = format!("{x}\nchrY 1 9000 M 1\nchrY 1 9000 F 0\n* * * M 2\n* * * F 2\n");
            fs::write(&ploidy_table, text).expect("scratch can be written to");
            Self { reference, sheet, ploidy_table }
        })
    }

    fn run(&self, sheet: &Path, out: &Path, words: &[&str]) -> GodwitCommand {
        let run = godwit().arg("run").arg("--reference").arg(&self.reference).arg("--samples").arg(sheet);
        run.args(["--metrics", "off"]).args(words).arg("--out").arg(out)
    }

    fn run_with_ploidy(&self, sheet: &Path, out: &Path, words: &[&str]) -> GodwitCommand {
        self.run(sheet, out, words).arg("--ploidy").arg(&self.ploidy_table)
    }

    /// Writes a changed copy of the sheet beside it, because its paths are relative.
    fn changed_sheet(&self, name: &str, change: impl Fn(String) -> String) -> PathBuf {
        let text = fs::read_to_string(&self.sheet).expect("it was written");
        let (path, changed) = (self.sheet.with_file_name(name), change(text.clone()));
        assert_ne!(changed, text);
        fs::write(&path, changed).expect("scratch can be written to");
        path
    }
}

/// Returns the ploidy at a position (1-based) of a sample of that sex.
fn expected_ploidy(sex: &str, contig: &str, pos_1based: usize) -> u8 {
    match (contig, sex) {
        ("chrX", "M") if pos_1based > PAR_BASES => 1,
        ("chrY", "F") => 0,
        // Without --sex, the highest ploidy of all sexes applies.
        ("chrY", _) => 1,
        _ => 2,
    }
}

fn contig_and_position(record: &str) -> (&str, usize) {
    let mut words = record.split_ascii_whitespace();
    let contig = words.next().expect("a contig");
    (contig, words.next().and_then(|word| word.parse().ok()).expect("a position"))
}

/// Selects from the records of a run with a single ploidy the positions at which the sample has this ploidy.
fn records_with_ploidy(wanted: u8, sex: &str, records: Vec<String>) -> Vec<String> {
    let fits = |record: &String| {
        let (contig, pos_1based) = contig_and_position(record);
        expected_ploidy(sex, contig, pos_1based) == wanted
    };
    records.into_iter().filter(fits).collect()
}

/// Sorts records in the order of the genome: contigs of the tests are in the order of their names.
fn sort_by_position(mut records: Vec<String>) -> Vec<String> {
    records.sort_by(|one, other| contig_and_position(one).cmp(&contig_and_position(other)));
    records
}

fn sample_file(out: &Path, sample: &str, ending: &str) -> PathBuf {
    out.join(sample).join(format!("{sample}.{ending}"))
}

/// Checks that every genotype (the last field of a record) has the ploidy of its position, and that each ploidy occurs.
#[track_caller]
fn assert_ploidy(sex: &str, records: &[String]) {
    let mut seen = [0; 3];
    for record in records {
        let (contig, pos_1based) = contig_and_position(record);
        let genotype = record.rsplit(' ').next().unwrap_or_default();
        let alleles = genotype.split(['/', '|']).count();
        assert_eq!(alleles, usize::from(expected_ploidy(sex, contig, pos_1based)), "{record}");
        seen[alleles] += 1;
    }
    assert!(seen[2] > 10 && (seen[1] > 3 || sex == "F"), "{sex}: {seen:?}");
}

#[test]
fn men_and_women_of_one_sheet_are_called_as_bcftools_calls_each() {
    needs!("bcftools", "bgzip", "bash");
    let people = SexedSamples::cached();
    let out = scratch::directory("sexes").join("out");
    people.run_with_ploidy(&people.sheet, &out, &[GRID_ARG]).run_ok();
    for (sample, sex) in SAMPLE_SEXES {
        let vcf = sample_file(&out, sample, "vcf.gz");
        let found = vcf_records(&vcf);
        assert_ploidy(sex, &genotypes(&found));
        // Without a sex, godwit uses the highest ploidy of all sexes. bcftools has no such option, so define it in a
        // ploidy table.
        let table = match sex {
            "" => "chrY 1 9000 K 1\n* * * K 2\n".to_owned(),
            _ => fs::read_to_string(&people.ploidy_table).expect("it was written"),
        };
        let [own_table, sexes] = ["ploidy.txt", "sexes.txt"].map(|name| out.join(sample).join(name));
        fs::write(&own_table, table).expect("scratch can be written to");
        fs::write(&sexes, format!("{sample}\t{}\n", if sex.is_empty() { "K" } else { sex })).expect("scratch");
        let script =
            "set -o pipefail; bcftools mpileup -Ou -f \"$0\" \"$1\" | bcftools call -mv --ploidy-file \"$2\" -S \"$3\"";
        let mut command = Tool::require("bash").command();
        command.args(["-c", script]).args([&people.reference, &sample_file(&out, sample, "bam"), &own_table, &sexes]);
        let expected = String::from_utf8(record_lines(&run_checked(&mut command).stdout)).expect("it is text");
        // At ploidy 0, bcftools writes records without a genotype, and godwit writes no records.
        let has_any = |line: &&str| {
            let (contig, pos_1based) = contig_and_position(line);
            expected_ploidy(sex, contig, pos_1based) > 0
        };
        let expected: String = expected.split_inclusive('\n').filter(has_any).collect();
        assert_same_text(&found, expected.as_bytes());
        let header = String::from_utf8(Tool::require("bgzip").run(["-dc".as_ref(), vcf.as_os_str()]).stdout);
        let told = header.expect("it is text").contains(&format!(" --sex {sex}\n"));
        assert_eq!(told, !sex.is_empty(), "{sample}");
        godwit().arg("verify").arg(&vcf).run_ok();
    }
}

#[test]
fn freebayes_and_command_lines_are_told_the_copies_of_each_sample() {
    needs!("freebayes", "bgzip");
    let people = SexedSamples::cached();
    for caller in ["freebayes", "freebayes -f {reference} -t {bed} -p {ploidy} {bam}"] {
        let out = scratch::directory("sexes").join("out");
        people.run_with_ploidy(&people.sheet, &out, &[GRID_ARG, "--caller", caller]).run_ok();
        for (sample, sex) in SAMPLE_SEXES {
            let of_copies = |wanted: u8| {
                let mut command = Tool::require("freebayes").command();
                let command = command.arg("-f").arg(&people.reference).args(["-p", &wanted.to_string()]);
                let whole = run_checked(command.arg(sample_file(&out, sample, "bam"))).stdout;
                records_with_ploidy(wanted, sex, genotypes(&record_lines(&whole)))
            };
            let found = genotypes(&vcf_records(&sample_file(&out, sample, "vcf.gz")));
            assert_ploidy(sex, &found);
            assert_eq!(found, sort_by_position([of_copies(1), of_copies(2)].concat()), "{sample} by {caller}");
        }
    }
}

#[test]
fn a_sheet_with_another_sex_is_no_run_to_go_on_with() {
    needs!("bcftools", "bgzip");
    let people = SexedSamples::cached();
    let out = scratch::directory("sexes").join("out");
    let run = |sheet: &Path| people.run_with_ploidy(sheet, &out, &[]);
    run(&people.sheet).run_ok();
    let vcf = sample_file(&out, "eve", "vcf.gz");
    let before = fs::read(&vcf).expect("it was written");
    let other = people.changed_sheet("other.csv", |text| text.replace("eve,F", "eve,M"));
    let refused = run(&other).arg("--resume").run();
    refused.assert_rejected(
        &[EXIT_USAGE],
        &["1 of 3 samples failed", "eve", "--sex was F in the stopped job, but is M now"],
    );
    // A sample sheet in which the sexes are empty must be rejected as well.
    let bare = people.changed_sheet("bare.csv", |text| text.replace(",F,", ",,").replace(",M,", ",,"));
    people
        .run(&bare, &out, &["--resume"])
        .run()
        .assert_rejected(&[EXIT_USAGE], &["3 of 3 samples failed", "--ploidy was"]);
    assert!(fs::read(&vcf).ok().as_ref() == Some(&before), "the calls of eve are others");
    let again = run(&people.sheet).arg("--resume").run_ok();
    assert!(fs::read(&vcf).ok() == Some(before), "{}", again.describe());
    run(&other).run_ok();
    assert!(genotypes(&vcf_records(&vcf)).iter().any(|record| record.starts_with("chrY")));
}

#[test]
fn sexes_that_make_no_sense_are_refused_by_line_and_column_before_anything_is_done() {
    needs!("bcftools");
    let people = SexedSamples::cached();
    let out = scratch::directory("sexes").join("out");
    let refused = |sheet: &Path, words: &[&str], code: i32, named: &[&str]| {
        people.run(sheet, &out, words).run().assert_rejected(&[code], named);
        assert!(!out.exists());
    };
    let table = people.ploidy_table.to_str().expect("scratch has a plain name");
    refused(&people.sheet, &[], EXIT_INPUT, &["sheet.csv, line 2, column sex", "M has no effect without --ploidy"]);
    let female = people.changed_sheet("female.csv", |text| text.replacen("eve,F", "eve,female", 1));
    refused(&female, &["--ploidy", table], EXIT_INPUT, &["line 4, column sex", "sex female", "F and M"]);
    let both = people.changed_sheet("both.csv", |text| text.replacen("eve,F", "eve,M", 1));
    refused(
        &both,
        &["--ploidy", table],
        EXIT_INPUT,
        &["line 5, column sex", "eve has the sex M in line 4", "the sex F in this line"],
    );
    refused(&people.sheet, &["--ploidy", "GRCh39"], 4, &["GRCh39", "GRCh38"]);
    refused(&people.sheet, &["--ploidy", people.reference.to_str().expect("plain")], EXIT_INPUT, &["ref.fa", "line 1"]);
}

/// Calls the GVCF of a sample by HaplotypeCaller, one run for each interval of equal ploidy.
fn expected_gvcf(people: &SexedSamples, bam: &Path, sex: &str, directory: &Path) -> PathBuf {
    let x = [format!("chrX:1-{PAR_BASES}"), format!("chrX:{}-{}", PAR_BASES + 1, CONTIGS[1].1)];
    let stretches = [("chr1".to_owned(), 1), (x[0].clone(), 1), (x[1].clone(), PAR_BASES + 1), ("chrY".to_owned(), 1)];
    let mut pieces = Vec::new();
    for (at, (stretch, first)) in stretches.iter().enumerate() {
        let copies = expected_ploidy(sex, stretch.split(':').next().unwrap_or_default(), *first);
        if copies > 0 {
            let piece = directory.join(format!("{at}.g.vcf.gz"));
            let words = ["-ERC", "GVCF", "-L", stretch, "--sample-ploidy", &copies.to_string()];
            gatk::haplotype_caller(&people.reference, bam, &piece, &words);
            pieces.push(piece);
        }
    }
    let out = directory.join("all.g.vcf.gz");
    run_checked(Tool::require("bcftools").command().args(["concat", "-Oz", "-o"]).arg(&out).args(&pieces));
    run_checked(Tool::require("tabix").command().arg(&out));
    out
}

/// Returns the records with alleles in place of their numbers: GenomicsDB and CombineGVCFs list the alleles of a site in
/// different orders.
fn with_allele_sequences(records: &[String]) -> Vec<String> {
    let spell = |record: &String| {
        let words: Vec<&str> = record.split(' ').collect();
        let alleles: Vec<&str> = [words[2]].into_iter().chain(words[3].split(',')).collect();
        let genotype = |text: &&str| {
            let numbers = text.split(['/', '|']);
            let mut called: Vec<&str> =
                numbers.map(|number| number.parse().map_or(number, |number: usize| alleles[number])).collect();
            called.sort_unstable();
            called.join("/")
        };
        let mut alternates = alleles[1..].to_vec();
        alternates.sort_unstable();
        let genotypes: Vec<String> = words[4..].iter().map(genotype).collect();
        format!("{} {} {} {} {}", words[0], words[1], words[2], alternates.join(","), genotypes.join(" "))
    };
    records.iter().map(spell).collect()
}

#[test]
#[ignore = "a few minutes of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored sex_chromosomes::"]
fn the_workflow_of_gatk_keeps_the_copies_of_each_sample_up_to_joint_genotypes() {
    needs!("samtools", "bcftools", "bgzip", "tabix");
    needs_gatk!();
    let people = SexedSamples::cached();
    let directory = scratch::directory("sexes-gatk");
    let out = directory.join("out");
    let run = people.run_with_ploidy(&people.sheet, &out, &["--workflow", "gatk", "--caller-memory", "1G"]);
    run.with_gatk().run_ok();
    let mut gvcfs = Vec::new();
    for (sample, sex) in SAMPLE_SEXES {
        let by_hand = scratch::directory("by-hand");
        let gvcf = expected_gvcf(people, &sample_file(&out, sample, "bam"), sex, &by_hand);
        let variants = |gvcf: &Path| {
            let all = genotypes(&vcf_records(gvcf));
            all.into_iter().filter(|record| record.split(' ').nth(3) != Some("<NON_REF>")).collect::<Vec<_>>()
        };
        let found = variants(&sample_file(&out, sample, "g.vcf.gz"));
        assert_ploidy(sex, &found);
        assert_eq!(found, variants(&gvcf), "{sample}");
        gvcfs.push(gvcf);
    }
    let (together, whole) = (directory.join("together.g.vcf"), directory.join("whole.vcf"));
    let mut command = gatk::gatk_command("CombineGVCFs");
    command.arg("-R").arg(&people.reference).arg("-O").arg(&together);
    run_checked(command.args(gvcfs.iter().flat_map(|gvcf| ["-V".as_ref(), gvcf.as_os_str()])));
    let mut command = gatk::gatk_command("GenotypeGVCFs");
    run_checked(command.arg("-R").arg(&people.reference).arg("-V").arg(&together).arg("-O").arg(&whole));
    let expected = genotypes(&record_lines(&fs::read(&whole).expect("GATK wrote it")));
    let found = genotypes(&vcf_records(&out.join("joint.vcf.gz")));
    assert!(expected.len() > 60, "{} records", expected.len());
    assert_eq!(with_allele_sequences(&found), with_allele_sequences(&expected));
    for (column, (_, sex)) in SAMPLE_SEXES.iter().enumerate() {
        for record in &found {
            let (contig, pos_1based) = contig_and_position(record);
            let genotype = record.split(' ').nth(4 + column).expect("a genotype of each");
            let alleles = genotype.split(['/', '|']).count();
            // GATK writes `./.` for a sample without reads at a position, whatever its ploidy is.
            let fits = alleles == usize::from(expected_ploidy(sex, contig, pos_1based)) || genotype.starts_with('.');
            assert!(fits, "{record}");
        }
    }
}
