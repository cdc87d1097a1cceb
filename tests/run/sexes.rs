//! `godwit run --ploidy`: every sample of a sheet is called with the copies of its own sex.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{Godwit, godwit};
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{gatk, needs, needs_gatk, scratch};

use super::call::{assert_same_text, genotypes, records, records_of};

const USAGE: i32 = 2;
const INPUT: i32 = 3;
const CONTIGS: [(&str, usize); 3] = [("chr1", 20_000), ("chrX", 15_000), ("chrY", 9_000)];
/// Bases at the start of chrX that both sexes have twice.
const SHARED_BASES: usize = 4_000;
/// Samples and the sexes that the sheet has for them; the last has none.
const SAMPLES: [(&str, &str); 3] = [("adam", "M"), ("eve", "F"), ("kim", "")];

/// Cuts each contig.
const GRID: &str = "--grid-size=6K";

/// Reads of three people, and what says how many copies each has.
struct People {
    reference: PathBuf,
    sheet: PathBuf,
    table: PathBuf,
}

impl People {
    /// About 25 reads over each base, made once. Of whom there should be no reads of chrY there are: reads go astray.
    fn get() -> &'static Self {
        static PEOPLE: OnceLock<People> = OnceLock::new();
        PEOPLE.get_or_init(|| {
            let directory = scratch::directory("people");
            let [reference, sheet, table] = ["ref.fa", "sheet.csv", "ploidy.txt"].map(|name| directory.join(name));
            let mut random = Random::new(11);
            let contig = |(name, bases): (&str, usize)| {
                let bases = random.bases(bases);
                format!(">{name}\n{}\n", String::from_utf8(bases).expect("bases are ASCII"))
            };
            fs::write(&reference, CONTIGS.map(contig).concat()).expect("scratch can be written to");
            godwit().arg("index").arg(&reference).succeeds();
            let mut lines = "sample,sex,fastq_1,fastq_2,lane\n".to_owned();
            for (seed, (sample, sex)) in SAMPLES.iter().enumerate() {
                let simulate = godwit().arg("simulate").arg("--reference").arg(&reference).args(["--pairs", "3600"]);
                let simulate = simulate.args(["--lanes", "2", "--seed", &seed.to_string(), "--out"]);
                simulate.arg(directory.join(sample)).succeeds();
                for lane in 1..=2 {
                    lines +=
                        &format!("{sample},{sex},{sample}_L00{lane}_R1.fastq,{sample}_L00{lane}_R2.fastq,{lane}\n");
                }
            }
            fs::write(&sheet, lines).expect("scratch can be written to");
            let x = format!("chrX {} {} M 1", SHARED_BASES + 1, CONTIGS[1].1);
            let text = format!("{x}\nchrY 1 9000 M 1\nchrY 1 9000 F 0\n* * * M 2\n* * * F 2\n");
            fs::write(&table, text).expect("scratch can be written to");
            Self { reference, sheet, table }
        })
    }

    fn run(&self, sheet: &Path, out: &Path, words: &[&str]) -> Godwit {
        let run = godwit().arg("run").arg("--reference").arg(&self.reference).arg("--samples").arg(sheet);
        run.args(["--metrics", "off"]).args(words).arg("--out").arg(out)
    }

    fn run_with_ploidy(&self, sheet: &Path, out: &Path, words: &[&str]) -> Godwit {
        self.run(sheet, out, words).arg("--ploidy").arg(&self.table)
    }

    /// The sheet with its text changed, beside it, because its paths are relative.
    fn changed(&self, name: &str, change: impl Fn(String) -> String) -> PathBuf {
        let text = fs::read_to_string(&self.sheet).expect("it was written");
        let (path, changed) = (self.sheet.with_file_name(name), change(text.clone()));
        assert_ne!(changed, text);
        fs::write(&path, changed).expect("scratch can be written to");
        path
    }
}

/// Copies of a place (1-based) that a sample of that sex has.
fn copies(sex: &str, contig: &str, pos_1based: usize) -> u8 {
    match (contig, sex) {
        ("chrX", "M") if pos_1based > SHARED_BASES => 1,
        ("chrY", "F") => 0,
        // Without a sex the most that any has.
        ("chrY", _) => 1,
        _ => 2,
    }
}

fn place(record: &str) -> (&str, usize) {
    let mut words = record.split_ascii_whitespace();
    let contig = words.next().expect("a contig");
    (contig, words.next().and_then(|word| word.parse().ok()).expect("a position"))
}

/// Those of the records, which a caller made with that many copies everywhere, that lie where a sample has as many.
fn where_it_has(wanted: u8, sex: &str, records: Vec<String>) -> Vec<String> {
    let fits = |record: &String| {
        let (contig, pos_1based) = place(record);
        copies(sex, contig, pos_1based) == wanted
    };
    records.into_iter().filter(fits).collect()
}

/// In the order of the genome: contigs of the tests are in the order of their names.
fn in_order(mut records: Vec<String>) -> Vec<String> {
    records.sort_by(|one, other| place(one).cmp(&place(other)));
    records
}

fn file_of(out: &Path, sample: &str, ending: &str) -> PathBuf {
    out.join(sample).join(format!("{sample}.{ending}"))
}

/// Every genotype (the last word of a record) has the copies of its place, and there are such of each number.
#[track_caller]
fn assert_copies(sex: &str, records: &[String]) {
    let mut seen = [0; 3];
    for record in records {
        let (contig, pos_1based) = place(record);
        let genotype = record.rsplit(' ').next().unwrap_or_default();
        let alleles = genotype.split(['/', '|']).count();
        assert_eq!(alleles, usize::from(copies(sex, contig, pos_1based)), "{record}");
        seen[alleles] += 1;
    }
    assert!(seen[2] > 10 && (seen[1] > 3 || sex == "F"), "{sex}: {seen:?}");
}

#[test]
fn men_and_women_of_one_sheet_are_called_as_bcftools_calls_each() {
    needs!("bcftools", "bgzip", "bash");
    let people = People::get();
    let out = scratch::directory("sexes").join("out");
    people.run_with_ploidy(&people.sheet, &out, &[GRID]).succeeds();
    for (sample, sex) in SAMPLES {
        let vcf = file_of(&out, sample, "vcf.gz");
        let found = records(&vcf);
        assert_copies(sex, &genotypes(&found));
        // bcftools has no word for the most copies of any sex: a table says it.
        let table = match sex {
            "" => "chrY 1 9000 K 1\n* * * K 2\n".to_owned(),
            _ => fs::read_to_string(&people.table).expect("it was written"),
        };
        let [own_table, sexes] = ["ploidy.txt", "sexes.txt"].map(|name| out.join(sample).join(name));
        fs::write(&own_table, table).expect("scratch can be written to");
        fs::write(&sexes, format!("{sample}\t{}\n", if sex.is_empty() { "K" } else { sex })).expect("scratch");
        let script =
            "set -o pipefail; bcftools mpileup -Ou -f \"$0\" \"$1\" | bcftools call -mv --ploidy-file \"$2\" -S \"$3\"";
        let mut command = Tool::need("bash").command();
        command.args(["-c", script]).args([&people.reference, &file_of(&out, sample, "bam"), &own_table, &sexes]);
        let expected = String::from_utf8(records_of(&succeed(&mut command).stdout)).expect("it is text");
        // Where there is no copy, bcftools writes records without a genotype; godwit calls nothing.
        let has_any = |line: &&str| {
            let (contig, pos_1based) = place(line);
            copies(sex, contig, pos_1based) > 0
        };
        let expected: String = expected.split_inclusive('\n').filter(has_any).collect();
        assert_same_text(&found, expected.as_bytes());
        let header = String::from_utf8(Tool::need("bgzip").run(["-dc".as_ref(), vcf.as_os_str()]).stdout);
        let told = header.expect("it is text").contains(&format!(" --sex {sex}\n"));
        assert_eq!(told, !sex.is_empty(), "{sample}");
        godwit().arg("verify").arg(&vcf).succeeds();
    }
}

#[test]
fn freebayes_and_command_lines_are_told_the_copies_of_each_sample() {
    needs!("freebayes", "bgzip");
    let people = People::get();
    for caller in ["freebayes", "freebayes -f {reference} -t {bed} -p {ploidy} {bam}"] {
        let out = scratch::directory("sexes").join("out");
        people.run_with_ploidy(&people.sheet, &out, &[GRID, "--caller", caller]).succeeds();
        for (sample, sex) in SAMPLES {
            let of_copies = |wanted: u8| {
                let mut command = Tool::need("freebayes").command();
                let command = command.arg("-f").arg(&people.reference).args(["-p", &wanted.to_string()]);
                let whole = succeed(command.arg(file_of(&out, sample, "bam"))).stdout;
                where_it_has(wanted, sex, genotypes(&records_of(&whole)))
            };
            let found = genotypes(&records(&file_of(&out, sample, "vcf.gz")));
            assert_copies(sex, &found);
            assert_eq!(found, in_order([of_copies(1), of_copies(2)].concat()), "{sample} by {caller}");
        }
    }
}

#[test]
fn a_sheet_with_another_sex_is_no_run_to_go_on_with() {
    needs!("bcftools", "bgzip");
    let people = People::get();
    let out = scratch::directory("sexes").join("out");
    let run = |sheet: &Path| people.run_with_ploidy(sheet, &out, &[]);
    run(&people.sheet).succeeds();
    let vcf = file_of(&out, "eve", "vcf.gz");
    let before = fs::read(&vcf).expect("it was written");
    let other = people.changed("other.csv", |text| text.replace("eve,F", "eve,M"));
    let refused = run(&other).arg("--resume").run();
    refused.refuses(&[USAGE], &["1 of 3 samples failed", "eve", "--sex was F and is M now"]);
    // Nor is one without the table.
    let bare = people.changed("bare.csv", |text| text.replace(",F,", ",,").replace(",M,", ",,"));
    people.run(&bare, &out, &["--resume"]).run().refuses(&[USAGE], &["3 of 3 samples failed", "--ploidy was"]);
    assert!(fs::read(&vcf).ok().as_ref() == Some(&before), "the calls of eve are others");
    let again = run(&people.sheet).arg("--resume").succeeds();
    assert!(fs::read(&vcf).ok() == Some(before), "{}", again.report());
    run(&other).succeeds();
    assert!(genotypes(&records(&vcf)).iter().any(|record| record.starts_with("chrY")));
}

#[test]
fn sexes_that_make_no_sense_are_refused_by_line_and_column_before_anything_is_done() {
    needs!("bcftools");
    let people = People::get();
    let out = scratch::directory("sexes").join("out");
    let refused = |sheet: &Path, words: &[&str], code: i32, named: &[&str]| {
        people.run(sheet, &out, words).run().refuses(&[code], named);
        assert!(!out.exists());
    };
    let table = people.table.to_str().expect("scratch has a plain name");
    refused(&people.sheet, &[], INPUT, &["sheet.csv, line 2, column sex", "M says nothing without --ploidy"]);
    let female = people.changed("female.csv", |text| text.replacen("eve,F", "eve,female", 1));
    refused(&female, &["--ploidy", table], INPUT, &["line 4, column sex", "sex female", "F and M"]);
    let both = people.changed("both.csv", |text| text.replacen("eve,F", "eve,M", 1));
    refused(&both, &["--ploidy", table], INPUT, &["line 5, column sex", "eve has the sex M in line 4", "F here"]);
    refused(&people.sheet, &["--ploidy", "GRCh39"], 4, &["GRCh39", "GRCh38"]);
    refused(&people.sheet, &["--ploidy", people.reference.to_str().expect("plain")], INPUT, &["ref.fa", "line 1"]);
}

/// The GVCF of a sample by HaplotypeCaller, once for each stretch with its own copies.
fn gvcf_by_hand(people: &People, bam: &Path, sex: &str, directory: &Path) -> PathBuf {
    let x = [format!("chrX:1-{SHARED_BASES}"), format!("chrX:{}-{}", SHARED_BASES + 1, CONTIGS[1].1)];
    let stretches =
        [("chr1".to_owned(), 1), (x[0].clone(), 1), (x[1].clone(), SHARED_BASES + 1), ("chrY".to_owned(), 1)];
    let mut pieces = Vec::new();
    for (at, (stretch, first)) in stretches.iter().enumerate() {
        let copies = copies(sex, stretch.split(':').next().unwrap_or_default(), *first);
        if copies > 0 {
            let piece = directory.join(format!("{at}.g.vcf.gz"));
            let words = ["-ERC", "GVCF", "-L", stretch, "--sample-ploidy", &copies.to_string()];
            gatk::haplotype_caller(&people.reference, bam, &piece, &words);
            pieces.push(piece);
        }
    }
    let out = directory.join("all.g.vcf.gz");
    succeed(Tool::need("bcftools").command().args(["concat", "-Oz", "-o"]).arg(&out).args(&pieces));
    succeed(Tool::need("tabix").command().arg(&out));
    out
}

/// The same records with alleles in place of their numbers: GenomicsDB and CombineGVCFs list those of a site in different orders.
fn spelled(records: &[String]) -> Vec<String> {
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
#[ignore = "a few minutes of GATK; cargo test --profile ci -p godwit-tests --test e2e -- --ignored sexes::"]
fn the_workflow_of_gatk_keeps_the_copies_of_each_sample_up_to_joint_genotypes() {
    needs!("samtools", "bcftools", "bgzip", "tabix");
    needs_gatk!();
    let people = People::get();
    let directory = scratch::directory("sexes-gatk");
    let out = directory.join("out");
    let run = people.run_with_ploidy(&people.sheet, &out, &["--workflow", "gatk", "--caller-memory", "1G"]);
    run.env("GODWIT_GATK", gatk::jars()).succeeds();
    let mut gvcfs = Vec::new();
    for (sample, sex) in SAMPLES {
        let by_hand = scratch::directory("by-hand");
        let gvcf = gvcf_by_hand(people, &file_of(&out, sample, "bam"), sex, &by_hand);
        let variants = |gvcf: &Path| {
            let all = genotypes(&records(gvcf));
            all.into_iter().filter(|record| record.split(' ').nth(3) != Some("<NON_REF>")).collect::<Vec<_>>()
        };
        let found = variants(&file_of(&out, sample, "g.vcf.gz"));
        assert_copies(sex, &found);
        assert_eq!(found, variants(&gvcf), "{sample}");
        gvcfs.push(gvcf);
    }
    let (together, whole) = (directory.join("together.g.vcf"), directory.join("whole.vcf"));
    let mut command = gatk::tool("CombineGVCFs");
    command.arg("-R").arg(&people.reference).arg("-O").arg(&together);
    succeed(command.args(gvcfs.iter().flat_map(|gvcf| ["-V".as_ref(), gvcf.as_os_str()])));
    let mut command = gatk::tool("GenotypeGVCFs");
    succeed(command.arg("-R").arg(&people.reference).arg("-V").arg(&together).arg("-O").arg(&whole));
    let expected = genotypes(&records_of(&fs::read(&whole).expect("GATK wrote it")));
    let found = genotypes(&records(&out.join("joint.vcf.gz")));
    assert!(expected.len() > 60, "{} records", expected.len());
    assert_eq!(spelled(&found), spelled(&expected));
    for (column, (_, sex)) in SAMPLES.iter().enumerate() {
        for record in &found {
            let (contig, pos_1based) = place(record);
            let genotype = record.split(' ').nth(4 + column).expect("a genotype of each");
            let alleles = genotype.split(['/', '|']).count();
            // Of whom there is nothing at a place, GATK writes ./. whatever the copies.
            let fits = alleles == usize::from(copies(sex, contig, pos_1based)) || genotype.starts_with('.');
            assert!(fits, "{record}");
        }
    }
}
