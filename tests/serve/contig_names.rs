//! Contigs whose names have colons, asterisks, commas and equals signs, as those of the HLA genes in GRCh38, and one that
//! is named like a range of another: their regions are those of samtools, in every form of a request.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::http_client::path_text;
use super::regions::samtools;
use crate::run::formats::{assert_same_lines, run_python, to_lines};

/// The names of the contigs and their numbers of bases.
const CONTIGS: [(&str, i64); 7] = [
    ("chr1", 1000),
    ("chr1:100-200", 900),
    ("HLA-A*01:01:01:01", 3503),
    ("HLA-A*24:02:01:02L", 3500),
    ("b=c,d", 1000),
    ("1", 1000),
    ("200", 1000),
];
/// Names that are not those of contigs.
const UNKNOWN_CONTIGS: [&str; 4] = ["chr2", "HLA-A*01:01:01", "chr1:100", "b=c"];

/// Returns a directory with reads on all of these contigs, as BAM, SAM and Parquet.
pub(super) fn data_directory() -> &'static Path {
    static DATA_DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DATA_DIRECTORY.get_or_init(|| {
        let directory = scratch::directory("contig-names");
        let mut random = Random::new(41);
        let mut sam = "@HD\tVN:1.6\tSO:coordinate\n".to_owned();
        for (name, bases) in CONTIGS {
            sam += &format!("@SQ\tSN:{name}\tLN:{bases}\n");
        }
        for (name, bases) in CONTIGS {
            let mut positions: Vec<i64> = (0..40).map(|_| random.between(1, bases - 40)).collect();
            positions.sort_unstable();
            for (number, position) in positions.into_iter().enumerate() {
                let letters = String::from_utf8(random.bases(30)).expect("bases are letters");
                sam += &format!("{name}-{number}\t0\t{name}\t{position}\t60\t30M\t*\t0\t0\t{letters}\t*\n");
            }
        }
        fs::write(directory.join("odd.sam"), sam).expect("it can be written");
        let bam = directory.join("odd.bam");
        Tool::require("samtools").run(["view", "-b", "-o", path_text(&bam), path_text(&directory.join("odd.sam"))]);
        Tool::require("samtools").run(["index", path_text(&bam)]);
        let parquet = directory.join("odd.parquet");
        godwit().args(["markdup", path_text(&bam), "--out", path_text(&parquet)]).run_ok();
        directory
    })
}

fn run_query(sql: &str) -> GodwitOutput {
    godwit().arg("query").arg(sql).arg("--data").arg(data_directory()).args(["--format", "tsv", "--threads", "1"]).run()
}

fn read_names(sql: &str) -> Vec<String> {
    let asked = run_query(sql);
    assert!(asked.status.success(), "{sql}: {}", asked.describe());
    to_lines(&asked.stdout).split_off(1)
}

/// Returns the names of the reads of a region; `None` where samtools rejects it.
fn expected_read_names(region: &str) -> Option<Vec<String>> {
    let said = Tool::require("samtools")
        .command()
        .args(["view", path_text(&data_directory().join("odd.bam")), region])
        .output();
    let said = said.expect("samtools can be started");
    if String::from_utf8_lossy(&said.stderr).contains("invalid region or unknown reference") {
        return None;
    }
    let rows = String::from_utf8(said.stdout).expect("samtools prints text");
    Some(rows.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect())
}

/// Draws regions of existing and missing contigs, in all forms of a region string.
fn random_regions(count: usize) -> Vec<String> {
    let mut random = Random::new(43);
    let mut regions = ["chr1:100-200", "{chr1:100-200}", "{chr1}:100-200", "HLA-A*01:01:01:01", "{chr1", "{chr1}5", ""]
        .map(str::to_owned)
        .to_vec();
    while regions.len() < count {
        let name = match random.below(5) {
            0 => *random.pick(&UNKNOWN_CONTIGS),
            _ => random.pick(&CONTIGS).0,
        };
        let (first, last) = (random.between(1, 1100), random.between(1, 1100));
        let range = match random.below(7) {
            0 => String::new(),
            1 => format!(":{first}"),
            2 => format!(":{first}-"),
            3 => format!(":-{last}"),
            4 => format!(":1,{first:03}-9,{last:03}"),
            5 => ":x".to_owned(),
            _ => format!(":{first}-{last}"),
        };
        regions.push(if random.below(3) == 0 { format!("{{{name}}}{range}") } else { format!("{name}{range}") });
    }
    regions
}

#[test]
fn region_strings_are_read_as_samtools_reads_them() {
    needs!("samtools");
    data_directory();
    let (mut taken, mut refused) = (0, 0);
    for region in random_regions(70) {
        let sql = format!("SELECT name FROM reads('odd.bam') WHERE region('{region}')");
        match expected_read_names(&region) {
            Some(expected) => {
                assert_same_lines(&read_names(&sql), &expected, &region);
                taken += 1;
            }
            None => {
                run_query(&sql).assert_rejected(&[2], &[]);
                refused += 1;
            }
        }
    }
    assert!(taken > 20 && refused > 10, "{taken} {refused}");
    let told = run_query("SELECT name FROM reads('odd.bam') WHERE region('chr1:100-200')");
    told.assert_rejected(&[2], &["ambiguous", "{chr1:100-200}", "{chr1}:100-200"]);
}

#[test]
fn statements_find_the_contigs_of_the_tables_that_a_region_is_about() {
    needs!("samtools");
    let region = "HLA-A*01:01:01:01";
    let expected = expected_read_names(region).expect("samtools knows it");
    let condition = format!("WHERE region('{region}')");
    for from in [
        "\"odd.bam\"",
        "reads('odd.sam')",
        "reads('odd.parquet')",
        "reads('o*d.bam')",
        "(SELECT contig, position, end_position, name FROM reads('odd.bam') LIMIT 1000)",
        "(SELECT name, contig, position, end_position FROM reads('odd.bam') UNION ALL \
          SELECT name, contig, position, end_position FROM reads('odd.sam') WHERE contig = '1')",
    ] {
        let mut found = read_names(&format!("SELECT name FROM {from} {condition} ORDER BY position"));
        let mut expected = expected.clone();
        found.sort_unstable();
        expected.sort_unstable();
        assert_same_lines(&found, &expected, from);
    }
    let joined = format!(
        "SELECT x.name FROM reads('odd.bam') x JOIN reads('odd.sam') y ON x.name = y.name \
         WHERE region(y.contig, '{{{region}}}:1-500') ORDER BY x.position"
    );
    let of_range = samtools(&data_directory().join("odd.bam"), &[&format!("{region}:1-500")]);
    assert_eq!(read_names(&joined).len(), of_range.len());
    let depth =
        read_names(&format!("SELECT sum(depth * (end_position - position)) FROM coverage('odd.bam', '{region}')"));
    assert_eq!(depth, [(expected.len() * 30).to_string()]);
    for (from, word) in [("reads('odd.bam')", "chr9"), ("coverage('odd.bam', 'chr9:1-5')", "chr9")] {
        run_query(&format!("SELECT * FROM {from} WHERE region('chr9:1-5')")).assert_rejected(&[2], &[word]);
    }
}

#[test]
fn contigs_of_text_files_are_found_by_their_whole_names() {
    let directory = scratch::directory("contig-names-text");
    fs::write(directory.join("a.fa"), ">HLA-A*01:01:01:01 x\nACGTACGT\n>chr1\nACGT\n").expect("it can be written");
    fs::write(directory.join("a.bed"), "HLA-A*01:01:01:01\t3\t5\nchr1\t0\t2\n").expect("it can be written");
    fs::write(
        directory.join("a.vcf"),
        "##fileformat=VCFv4.2\n##contig=<ID=HLA-A*01:01:01:01,length=8>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n\
         HLA-A*01:01:01:01\t4\t.\tA\tC\t.\t.\t.\nchr1\t1\t.\tA\tC\t.\t.\t.\n",
    )
    .expect("it can be written");
    for table in ["a.fa", "a.bed", "a.vcf"] {
        for (region, rows) in [
            ("HLA-A*01:01:01:01", "1"),
            ("HLA-A*01:01:01:01:4-4", "1"),
            ("{HLA-A*01:01:01:01}:6-7", if table == "a.fa" { "1" } else { "0" }),
            ("chr1:1-1", "1"),
        ] {
            let sql = format!("SELECT count(*) FROM \"{table}\" WHERE region('{region}')");
            let asked = godwit().arg("query").arg(sql).arg("--data").arg(&directory).args(["--format", "tsv"]).run_ok();
            assert_eq!(to_lines(&asked.stdout)[1], rows, "{table} {region}");
        }
    }
}

#[test]
fn regions_of_missing_contigs_are_rejected_with_the_name_of_another_scheme() {
    needs!("samtools", "bcftools");
    let directory = scratch::directory("contig-names-missing");
    let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    let record = "chr20\t4\t.\tA\tC\t.\t.\t.\n";
    let contigs = "##contig=<ID=chr20,length=90>\n##contig=<ID=chrM,length=90>\n";
    let variants = |name: &str, contigs: &str, format: &str, index: &str| {
        let text = directory.join("text");
        fs::write(&text, format!("##fileformat=VCFv4.2\n{contigs}{columns}{record}")).expect("it can be written");
        let file = directory.join(name);
        // bcftools would add the missing lines of contigs to the header.
        match format {
            "bgzf" => fs::write(&file, Tool::require("bgzip").run(["-c", path_text(&text)]).stdout)
                .expect("it can be written"),
            format => drop(Tool::require("bcftools").run(["view", format, "-o", path_text(&file), path_text(&text)])),
        }
        Tool::require("bcftools").run(["index", index, path_text(&file)]);
    };
    variants("a.vcf.gz", contigs, "bgzf", "-t");
    variants("a.bcf", contigs, "-Ob", "-c");
    variants("bare.vcf.gz", "", "bgzf", "-t");
    let sam = "@SQ\tSN:chr20\tLN:90\n@SQ\tSN:chrM\tLN:90\nr\t0\tchr20\t4\t60\t4M\t*\t0\t0\tACGT\t*\n";
    fs::write(directory.join("a.sam"), sam).expect("it can be written");
    let query =
        |sql: &str| godwit().arg("query").arg(sql).arg("--data").arg(&directory).args(["--format", "tsv"]).run();
    for (from, region, words) in [
        ("variants('a.vcf.gz')", "20:1-9", &["no contig \"20\"", "did you mean chr20?"][..]),
        ("variants('a.bcf')", "MT", &["no contig \"MT\"", "did you mean chrM?"]),
        ("genotypes('a.vcf.gz')", "20:1-9", &["no contig \"20\""]),
        ("reads('a.sam')", "20:1-9", &["no contig \"20\"", "did you mean chr20?"]),
    ] {
        query(&format!("SELECT count(*) FROM {from} WHERE region('{region}')")).assert_rejected(&[2], words);
    }
    let served = DataServer::start(&directory, &[]);
    let command = "{\"dataset\":\"a.vcf.gz\",\"regions\":[\"20:1-9\"]}";
    let told = run_python("flight_clients.py", Path::new("-"), &[&served.address, "fetch_error", command]);
    assert!(told.contains("did you mean chr20?"), "{told}");
    // The contig without variants is in the header, and a file without lines of contigs does not list it.
    for (from, region, rows) in [
        ("a.vcf.gz", "chr20:4", "1"),
        ("a.vcf.gz", "chrM", "0"),
        ("a.bcf", "chrM", "0"),
        ("bare.vcf.gz", "chr20", "1"),
        ("bare.vcf.gz", "chrM", "0"),
    ] {
        let told = query(&format!("SELECT count(*) FROM variants('{from}') WHERE region('{region}')"));
        assert_eq!(
            to_lines(&told.stdout).last().map(String::as_str),
            Some(rows),
            "{from} {region}: {}",
            told.describe()
        );
    }
}

#[test]
fn regions_of_missing_contigs_are_rejected_without_an_index_too() {
    needs!("samtools", "bcftools");
    let directory = scratch::directory("contig-names-unindexed");
    let header = "##fileformat=VCFv4.2\n##contig=<ID=chr20,length=90>\n##contig=<ID=chrM,length=90>\n";
    let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    let record = |contig: &str| format!("{contig}\t4\t.\tA\tC\t.\t.\t.\n");
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).expect("it can be written");
    write("a.vcf", format!("{header}{columns}{}", record("chr20")).as_bytes());
    write("unlisted.vcf", format!("{header}{columns}{}{}", record("chr20"), record("chr9")).as_bytes());
    write("bare.vcf", format!("##fileformat=VCFv4.2\n{columns}{}", record("chr20")).as_bytes());
    let path = |name: &str| path_text(&directory.join(name)).to_owned();
    write("a.vcf.gz", &Tool::require("bgzip").run(["-c", &path("a.vcf")]).stdout);
    for (format, name) in [("-Ob", "a.bcf"), ("-Ou", "plain.bcf")] {
        Tool::require("bcftools").run(["view", format, "-o", &path(name), &path("a.vcf")]);
    }
    write("a.sam", b"@SQ\tSN:chr20\tLN:90\n@SQ\tSN:chrM\tLN:90\nr\t0\tchr20\t4\t60\t4M\t*\t0\t0\tACGT\t*\n");
    Tool::require("samtools").run(["view", "-b", "-o", &path("a.bam"), &path("a.sam")]);
    write("a.fa", b">chr20\nACGTACGT\n>chrM\nAC\n");
    write("a.bed", b"chr20\t3\t5\n");
    write("a.gff", b"chr20\t.\tgene\t4\t5\t.\t+\t.\tID=x\n");
    let count = |table: &str, region: &str| {
        let sql = format!("SELECT count(*) FROM \"{table}\" WHERE region('{region}')");
        godwit().arg("query").arg(sql).arg("--data").arg(&directory).args(["--format", "tsv"]).run()
    };
    for table in ["a.vcf", "unlisted.vcf", "a.vcf.gz", "a.bcf", "plain.bcf", "a.bam", "a.fa"] {
        for region in ["20", "20:1-9", "{20}:1-9"] {
            count(table, region).assert_rejected(&[2], &["no contig \"20\""]);
        }
    }
    for table in ["a.vcf", "a.bcf", "a.bam"] {
        count(table, "MT:1-9").assert_rejected(&[2], &["no contig \"MT\"", "did you mean chrM?"]);
    }
    // A contig without rows, one that only a record names, and files whose format lists no contigs.
    for (table, region, rows) in [
        ("a.vcf", "chrM", "0"),
        ("plain.bcf", "chrM:1-9", "0"),
        ("a.fa", "chrM", "1"),
        ("unlisted.vcf", "chr9:1-9", "1"),
        ("unlisted.vcf", "chr20:1-9", "1"),
        ("bare.vcf", "20:1-9", "0"),
        ("a.bed", "20:1-9", "0"),
        ("a.gff", "20:1-9", "0"),
    ] {
        let told = count(table, region);
        assert!(told.status.success(), "{table} {region}: {}", told.describe());
        assert_eq!(to_lines(&told.stdout).last().map(String::as_str), Some(rows), "{table} {region}");
    }
}

#[test]
fn servers_read_regions_as_samtools_does() {
    needs!("samtools", "python3");
    let served = DataServer::start(data_directory(), &[]);
    let fetched = |region: &str, how: &str| {
        let command = format!("{{\"dataset\":\"odd.bam\",\"regions\":[\"{region}\"],\"parts\":1}}");
        to_lines(&run_python("flight_clients.py", Path::new("-"), &[&served.address, how, &command])).join(" ")
    };
    for region in
        ["HLA-A*01:01:01:01", "HLA-A*01:01:01:01:1-1,000", "{chr1:100-200}:100-300", "{chr1}:100-200", "b=c,d"]
    {
        let rows = expected_read_names(region).expect("samtools knows it").len();
        assert!(fetched(region, "fetch_dataset").starts_with(&format!("{rows} ")), "{region}");
        let sql = format!("SELECT count(*) AS n FROM reads('odd.bam') WHERE region('{region}')");
        let at = format!("grpc+tcp://{}", served.address);
        let told = godwit().args(["query", &sql, "--at", &at, "--format", "tsv"]).run_ok().stdout;
        assert_eq!(to_lines(&told)[1], rows.to_string(), "{region}");
    }
    let told = fetched("chr1:100-200", "fetch_error");
    assert!(told.contains("ambiguous") && told.contains("{chr1}:100-200"), "{told}");
    let told = fetched("chr9:1-2", "fetch_error");
    assert!(told.contains("no contig") && told.contains("chr9"), "{told}");
    for (name, range, region) in [
        ("HLA-A*01:01:01:01", "", "HLA-A*01:01:01:01"),
        ("HLA-A*01:01:01:01", "&start=9&end=300", "{HLA-A*01:01:01:01}:10-300"),
        ("chr1:100-200", "&start=9&end=300", "{chr1:100-200}:10-300"),
    ] {
        let url = format!("http://{}/reads/odd.bam?format=BAM&referenceName={name}{range}", served.address);
        let found = samtools(Path::new(&url), &[]);
        let found: Vec<String> =
            found.iter().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect();
        let expected = expected_read_names(region).expect("samtools knows it");
        assert!(expected.iter().all(|name| found.contains(name)), "{region}: {found:?}");
        assert!(found.iter().all(|read| read.starts_with(&format!("{name}-"))), "{region}: {found:?}");
    }
}
