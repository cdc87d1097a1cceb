//! `COPY (SELECT ..) TO 'FILE'`: files of records, compared with samtools and bcftools.

use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch, skip};

use super::http_client::path_text;
use crate::run::formats::aligned_sample;
use crate::run::picard::shared_data_directory;

/// A VCF with values of every type, missing values, and values that do not fit their header lines.
const VARIANTS: &str = "##fileformat=VCFv4.2\n\
    ##FILTER=<ID=q10,Description=\"low\">\n\
    ##FILTER=<ID=s50,Description=\"few\">\n\
    ##INFO=<ID=DP,Number=1,Type=Integer,Description=\"depth\">\n\
    ##INFO=<ID=AF,Number=A,Type=Float,Description=\"frequency\">\n\
    ##INFO=<ID=DB,Number=0,Type=Flag,Description=\"known\">\n\
    ##INFO=<ID=ANN,Number=.,Type=String,Description=\"annotation\">\n\
    ##INFO=<ID=END,Number=1,Type=Integer,Description=\"end\">\n\
    ##FORMAT=<ID=GT,Number=1,Type=String,Description=\"genotype\">\n\
    ##FORMAT=<ID=DP,Number=1,Type=Integer,Description=\"depth\">\n\
    ##FORMAT=<ID=AD,Number=R,Type=Integer,Description=\"depths\">\n\
    ##FORMAT=<ID=GL,Number=G,Type=Float,Description=\"likelihoods\">\n\
    ##FORMAT=<ID=FT,Number=1,Type=String,Description=\"filter\">\n\
    ##contig=<ID=chr1,length=1000000>\n\
    ##contig=<ID=chr2,length=600000>\n\
    #CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tone\ttwo\n\
    chr1\t100\trs1;rs2\tA\tC,G\t50.5\tPASS\tDP=31;AF=0.5,0.25;DB\tGT:DP:AD:GL:FT\t0|1:300:3,4,5:-1.5,-2,-3:ok\t./.:.:.:.:.\n\
    chr1\t200\t.\tACGT\tA\t.\tq10;s50\tDP=70000;ANN=x,y\tGT:AD\t1/2:128,.,3\t1:-120,0,127\n\
    chr1\t300\t.\tN\t<DEL>\t0.001\t.\tEND=5000\tGT\t0/0\t.\n\
    chr1\t301\t.\tT\t.\t7\tPASS\t.\tGT:DP\t0/1:-121\t0|0:32768\n\
    chr2\t5\tlong_identifier_with_many_letters\tA\tT\t1e+06\tPASS\tAF=.;DB\tGL\t-0.1,.,3\t.\n";

fn copy(data: &Path, select: &str, target: &Path) -> GodwitOutput {
    let sql = format!("COPY ({select}) TO '{}'", target.display());
    godwit().arg("query").arg(sql).arg("--data").arg(data).run()
}

/// Runs a statement that has to succeed, and returns the number of records that it reports.
fn copied_records(data: &Path, select: &str, target: &Path) -> u64 {
    let output = copy(data, select, target);
    assert!(output.status.success(), "{}", output.describe());
    let words: Vec<&str> = output.stdout.split(' ').collect();
    words.get(1).and_then(|count| count.replace(',', "").parse().ok()).unwrap_or_else(|| panic!("{}", output.stdout))
}

fn tool(name: &str, words: &[&str]) -> String {
    String::from_utf8(Tool::require(name).run(words).stdout).expect("it prints text")
}

/// Returns the records of a VCF or BCF file as bcftools prints them, with sorted INFO keys and FORMAT keys.
fn sorted_info(path: &Path) -> Vec<String> {
    let text = tool("bcftools", &["view", "-H", path_text(path)]);
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let mut info: Vec<&str> = fields[7].split(';').filter(|entry| !entry.ends_with("=.")).collect();
        info.sort_unstable();
        let keys: Vec<&str> = fields.get(8).map(|keys| keys.split(':').collect()).unwrap_or_default();
        let samples = fields.iter().skip(9).map(|sample| {
            let mut values: Vec<String> =
                keys.iter().zip(sample.split(':')).map(|(key, value)| format!("{key}={value}")).collect();
            values.sort_unstable();
            values.join(":")
        });
        let samples = samples.collect::<Vec<_>>().join("\t");
        format!("{}\t{}\t{samples}", fields[..7].join("\t"), info.join(";"))
    };
    text.lines().map(line).collect()
}

/// Writes [`VARIANTS`] as BGZF with an index; returns its directory.
fn variants_directory(name: &str) -> PathBuf {
    let directory = scratch::directory(name);
    let (plain, compressed) = (directory.join("plain.txt"), directory.join("in.vcf.gz"));
    std::fs::write(&plain, VARIANTS).expect("it can be written");
    tool("bcftools", &["view", "-Oz", "-o", path_text(&compressed), path_text(&plain)]);
    tool("bcftools", &["index", "-t", path_text(&compressed)]);
    directory
}

#[test]
fn a_bam_comes_back_as_it_was() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let (bam, copied) = (out.join("sample.bam"), scratch::directory("copy-bam").join("copied.bam"));
    let records = copied_records(&out, "SELECT * FROM reads('sample.bam')", &copied);
    let (source, target) = (path_text(&bam), path_text(&copied));
    assert_eq!(records.to_string(), tool("samtools", &["view", "-c", source]).trim());
    assert!(tool("samtools", &["view", source]) == tool("samtools", &["view", target]), "records differ");
    let header = |path: &str| {
        let text = tool("samtools", &["view", "-H", "--no-PG", path]);
        let lines = text.lines().filter(|line| !line.contains("CL:godwit query"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(header(source), header(target));
    tool("samtools", &["quickcheck", target]);
    assert_eq!(tool("samtools", &["idxstats", source]), tool("samtools", &["idxstats", target]));
    let region = "chr1:1000-20000";
    assert_eq!(tool("samtools", &["view", source, region]), tool("samtools", &["view", target, region]));
    godwit().arg("verify").arg(&copied).run_ok();
    let manifest = std::fs::read_to_string(copied.with_file_name("copied.bam.manifest.json")).expect("it is there");
    let duplicates = tool("samtools", &["view", "-c", "-f", "1024", source]);
    assert!(duplicates.trim() != "0", "the sample has duplicates");
    assert!(manifest.contains(&format!("\"duplicates\": {},", duplicates.trim())), "{duplicates} {manifest}");
    // A copy of the copy, and of Parquet, which another reader reads.
    let again = copied.with_file_name("again.bam");
    copied_records(&out, "SELECT * FROM reads('sample.parquet')", &again);
    assert!(tool("samtools", &["view", source]) == tool("samtools", &["view", path_text(&again)]), "Parquet differs");
}

#[test]
fn conditions_select_the_records_that_samtools_selects() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let bam = out.join("sample.bam");
    let directory = scratch::directory("copy-conditions");
    for (at, (condition, words)) in [
        ("mapping_quality >= 30", &["-e", "mapq >= 30"][..]),
        ("NOT is_duplicate() AND \"tag_NM\" > 0", &["-e", "!flag.dup && [NM] > 0"]),
        ("length(bases) > 50 AND cigar LIKE '%S%'", &["-e", "qlen > 50 && cigar =~ \"S\""]),
        ("is_unmapped()", &["-f", "4"]),
    ]
    .into_iter()
    .enumerate()
    {
        let target = directory.join(format!("{at}.bam"));
        copied_records(&out, &format!("SELECT * FROM reads('sample.bam') WHERE {condition}"), &target);
        let expected = tool("samtools", &[&["view"], words, &[path_text(&bam)]].concat());
        assert!(!expected.is_empty() && expected == tool("samtools", &["view", path_text(&target)]), "{condition}");
    }
    let target = directory.join("region.bam");
    copied_records(&out, "SELECT * FROM reads('sample.bam') WHERE region('chr1:1000-20000')", &target);
    let expected = tool("samtools", &["view", path_text(&bam), "chr1:1000-20000"]);
    assert!(!expected.is_empty() && expected == tool("samtools", &["view", path_text(&target)]));
}

#[test]
fn rows_that_are_no_records_are_refused_and_leave_no_file() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = scratch::directory("copy-refused");
    let bam = directory.join("x.bam");
    for (select, words) in [
        ("SELECT * EXCEPT (cigar) FROM reads('sample.bam')", &["column cigar is missing"][..]),
        ("SELECT *, 1 AS extra FROM reads('sample.bam')", &["column extra"]),
        ("SELECT * FROM reads('sample.bam') ORDER BY position DESC", &["SO:coordinate", "ORDER BY contig_id"]),
        ("SELECT * FROM (VALUES (1)) t", &["--header-from"]),
        ("SELECT * REPLACE (position + 1000000000 AS position) FROM reads('sample.bam')", &["position"]),
    ] {
        copy(&out, select, &bam).assert_rejected(&[2], words);
    }
    let words = ["query", "COPY (SELECT 1) TO 'x.bam'", "--out", "y"];
    godwit().args(words).current_dir(&directory).run().assert_rejected(&[2], &["--out"]);
    let words = ["query", "SELECT 1", "--header-from", "x"];
    godwit().args(words).current_dir(&directory).run().assert_rejected(&[2], &["--header-from"]);
    assert_eq!(scratch::entry_names(&directory), Vec::<String>::new());
}

#[test]
fn names_are_in_the_order_that_the_header_states() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = scratch::directory("copy-names");
    let (bam, by_name) = (out.join("sample.bam"), directory.join("names.bam"));
    tool("samtools", &["sort", "-n", "-o", path_text(&by_name), path_text(&bam)]);
    let target = directory.join("out.bam");
    copied_records(&directory, "SELECT * FROM reads('names.bam')", &target);
    assert!(tool("samtools", &["view", path_text(&by_name)]) == tool("samtools", &["view", path_text(&target)]));
    assert!(!target.with_added_extension("bai").exists(), "only coordinates are indexed");
    let select = "SELECT * FROM reads('names.bam') ORDER BY position";
    copy(&directory, select, &directory.join("wrong.bam")).assert_rejected(&[2], &["SO:queryname"]);
}

#[test]
fn vcf_and_bcf_come_back_as_they_were() {
    needs!("bcftools");
    let directory = variants_directory("copy-variants");
    let source = directory.join("in.vcf.gz");
    // A key without a value is the same as an absent key.
    let records = |path: &Path| tool("bcftools", &["view", "-H", path_text(path)]).replace("AF=.;", "");
    for (name, index) in [("out.vcf.gz", "tbi"), ("out.bcf", "csi")] {
        let target = directory.join(name);
        assert_eq!(copied_records(&directory, "SELECT * FROM variants('in.vcf.gz')", &target), 5);
        assert_eq!(records(&source), records(&target), "{name}");
        assert!(target.with_added_extension(index).exists());
        for region in ["chr1:4000-4100", "chr2", "chr1:100-200"] {
            let found =
                |path: &Path| tool("bcftools", &["view", "-H", "-r", region, path_text(path)]).replace("AF=.;", "");
            assert_eq!(found(&source), found(&target), "{name} {region}");
        }
        let (counted, expected) = (
            tool("bcftools", &["index", "-n", path_text(&target)]),
            tool("bcftools", &["index", "-n", path_text(&source)]),
        );
        assert_eq!(counted, expected);
        godwit().arg("verify").arg(&target).run_ok();
        let filtered = directory.join(format!("filtered.{name}"));
        let condition = "quality > 5 AND contig = 'chr1'";
        copied_records(&directory, &format!("SELECT * FROM variants('{name}') WHERE {condition}"), &filtered);
        let expected = tool("bcftools", &["view", "-H", "-i", "QUAL > 5 && CHROM = \"chr1\"", path_text(&source)]);
        assert_eq!(expected, records(&filtered), "{name}");
    }
    let select = "SELECT * EXCEPT (\"info_DP\") FROM variants('in.vcf.gz')";
    copy(&directory, select, &directory.join("x.bcf")).assert_rejected(&[2], &["column info_DP is missing"]);
    let select = "SELECT * FROM variants('in.vcf.gz') ORDER BY position DESC";
    copy(&directory, select, &directory.join("x.vcf.gz")).assert_rejected(&[2], &["ORDER BY contig_id"]);
}

#[test]
fn called_variants_come_back_as_they_were() {
    needs!("bwa", "samtools", "bcftools");
    let (sample, out) = aligned_sample();
    let directory = scratch::directory("copy-calls");
    let (calls, bam) = (directory.join("calls.vcf.gz"), out.join("sample.bam"));
    let reference = sample.godwit_indexed_reference();
    let words = ["call", "--reference", path_text(reference), "--reads", path_text(&bam), "--out", path_text(&calls)];
    godwit().args(words).run_ok();
    let expected = sorted_info(&calls);
    assert!(!expected.is_empty());
    for name in ["copied.bcf", "copied.vcf.gz"] {
        let target = directory.join(name);
        copied_records(&directory, "SELECT * FROM variants('calls.vcf.gz')", &target);
        assert_eq!(sorted_info(&target), expected, "{name}");
    }
}

#[test]
fn real_reads_and_variants_come_back_as_they_were() {
    needs!("samtools", "bcftools");
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let (human, directory) = (data.join("human"), scratch::directory("copy-real"));
    let (bam, copied) = (human.join("NA12878_S1.chr20.10_10p1mb.bam"), directory.join("copied.bam"));
    copied_records(&human, "SELECT * FROM \"NA12878_S1.chr20.10_10p1mb.bam\"", &copied);
    assert!(tool("samtools", &["view", path_text(&bam)]) == tool("samtools", &["view", path_text(&copied)]));
    let vcf = "test_nist.b37_chr20_100kbp_at_10mb.vcf.gz";
    let (select, target) = (format!("SELECT * FROM \"{vcf}\""), directory.join("copied.vcf.gz"));
    copied_records(&human, &select, &target);
    assert_eq!(sorted_info(&target), sorted_info(&human.join(vcf)));
    // The header of this file calls a field of words an integer. bcftools drops such words; godwit drops nothing.
    copy(&human, &select, &directory.join("copied.bcf")).assert_rejected(&[2], &["datasetsmissingcall", "IonExome"]);
}

#[test]
fn bed_and_parquet_files_are_written_with_a_manifest() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = scratch::directory("copy-tables");
    std::fs::write(directory.join("in.bed"), "a\t5\t9\tone\t960\t+\na\t7\t19\ttwo\t.\t-\n").expect("it can be written");
    let bed = directory.join("out.bed");
    let select = "SELECT contig, position, end_position, name, score, strand FROM \"in.bed\" ORDER BY position";
    assert_eq!(copied_records(&directory, select, &bed), 2);
    assert_eq!(std::fs::read_to_string(&bed).expect("it is there"), "a\t5\t9\tone\t960\t+\na\t7\t19\ttwo\t.\t-\n");
    godwit().arg("verify").arg(&bed).run_ok();
    copy(&directory, "SELECT contig, position FROM \"in.bed\"", &bed).assert_rejected(&[2], &["end_position"]);
    // All columns of reads are reads again, with their header.
    let parquet = directory.join("reads.parquet");
    copied_records(&out, "SELECT * FROM reads('sample.bam') WHERE mapping_quality > 20", &parquet);
    let bam = directory.join("reads.bam");
    let count = copied_records(&directory, "SELECT * FROM reads('reads.parquet')", &bam);
    assert_eq!(count.to_string(), tool("samtools", &["view", "-c", path_text(&bam)]).trim());
}

#[test]
fn a_server_sends_the_rows_and_the_client_writes_the_file() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let served = DataServer::start(&out, &[]);
    let directory = scratch::directory("copy-remote");
    let target = directory.join("remote.bam");
    let sql = format!("COPY (SELECT * FROM reads('sample.bam')) TO '{}'", target.display());
    let url = format!("grpc+tcp://{}", served.address);
    godwit().args(["query", &sql, "--at", &url]).run_ok();
    let source = out.join("sample.bam");
    assert!(tool("samtools", &["view", path_text(&source)]) == tool("samtools", &["view", path_text(&target)]));
}
