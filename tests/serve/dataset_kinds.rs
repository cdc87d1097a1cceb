//! Datasets of each kind, queried with SQL and fetched over Arrow Flight: the rows equal those of the standard programs
//! for the format.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use godwit_tests::binary::run_query;
use godwit_tests::data_server::DataServer;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::regions::{SAM_FIELDS, random_regions, samtools, without_qualities};
use crate::run::formats::{aligned_sample, assert_same_lines, run_python, to_lines};

fn rows(data: &Path, sql: &str, words: &[&str]) -> Vec<String> {
    let asked = run_query(data, sql, &[&["--format", "tsv", "--threads", "1"], words].concat());
    assert!(asked.status.success(), "{sql}: {}", asked.describe());
    to_lines(&asked.stdout).split_off(1)
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

fn write_gzip_copy(path: &Path) {
    let bytes = fs::read(path).expect("it is there");
    let file =
        File::create(path.with_extension(format!("{}.gz", path_text(Path::new(path.extension().unwrap_or_default())))));
    let mut packer = flate2::write::GzEncoder::new(file.expect("it can be made"), flate2::Compression::fast());
    packer.write_all(&bytes).and_then(|()| packer.finish().map(drop)).expect("it can be written");
}

/// Returns the numbers of rows and parts of a dataset that a server sends over Flight, and its columns.
fn fetch_summary(served: &DataServer, dataset: &str) -> String {
    let command = format!("{{\"dataset\":\"{dataset}\"}}");
    to_lines(&run_python("flight_clients.py", Path::new("-"), &[&served.address, "fetch_dataset", &command])).join(";")
}

#[test]
fn sam_and_cram_have_the_rows_of_bam() {
    needs!("bwa", "samtools", "python3");
    let (sample, out) = aligned_sample();
    let directory = scratch::directory("kinds-reads");
    let (bam, sam, cram) = (out.join("sample.bam"), directory.join("s.sam"), directory.join("c.cram"));
    Tool::require("samtools").run(["view", "-h", "-o", path_text(&sam), path_text(&bam)]);
    write_gzip_copy(&sam);
    fs::copy(out.join("sample.cram"), &cram).expect("it can be copied");
    let reference = sample.godwit_indexed_reference();
    let words = ["--reference", path_text(reference)];
    let expected: Vec<String> = samtools(&bam, &[]).iter().map(|line| without_qualities(line)).collect();
    for name in ["s.sam", "s.sam.gz", "c.cram"] {
        let found = rows(&directory, &format!("SELECT {SAM_FIELDS} FROM reads('{name}')"), &words);
        assert_same_lines(&found.iter().map(|line| without_qualities(line)).collect::<Vec<_>>(), &expected, name);
        for region in random_regions(7101, 6) {
            let expected: Vec<String> = samtools(&bam, &[&region]).iter().map(|line| without_qualities(line)).collect();
            let sql = format!("SELECT {SAM_FIELDS} FROM reads('{name}') WHERE region('{region}')");
            let found: Vec<String> =
                rows(&directory, &sql, &words).iter().map(|line| without_qualities(line)).collect();
            assert_same_lines(&found, &expected, &format!("{name} {region}"));
        }
    }
    let served = DataServer::start(&directory, &words);
    for name in ["s.sam", "s.sam.gz", "c.cram"] {
        assert!(
            fetch_summary(&served, name).starts_with(&format!("{} 1 name,flags,contig,", expected.len())),
            "{name}"
        );
    }
    let sam_bytes = fs::read(&sam).expect("it is there");
    // Truncate the file within the name of a read, because a line that is truncated within its tags may look complete.
    let line = sam_bytes[..sam_bytes.len() / 2].iter().rposition(|byte| *byte == b'\n').expect("it has lines");
    fs::write(&sam, &sam_bytes[..line + 4]).expect("it can be written");
    run_query(&directory, "SELECT count(position) FROM reads('s.sam')", &[]).assert_rejected(&[3], &["s.sam", "line"]);
    let cram_bytes = fs::read(&cram).expect("it is there");
    fs::write(&cram, &cram_bytes[..cram_bytes.len() / 2]).expect("it can be written");
    run_query(&directory, "SELECT count(position) FROM reads('c.cram')", &words).assert_rejected(&[3], &["c.cram"]);
}

#[test]
fn reads_and_contigs_are_those_of_their_files() {
    needs!("bwa", "samtools", "python3");
    let (sample, _) = aligned_sample();
    let directory = scratch::directory("kinds-text");
    let mut random = Random::new(7102);
    let mut fastq = String::new();
    let mut expected = Vec::new();
    for read in 0..3000 {
        let bases = String::from_utf8(random.bases(1 + read % 300)).expect("bases are letters");
        let comment = if read % 3 == 0 { format!(" 1:N:0:{read}") } else { String::new() };
        fastq += &format!("@r{read}{comment}\n{bases}\n+\n{}\n", "5".repeat(bases.len()));
        expected.push(format!("r{read}\t{}\t{bases}\t{}", comment.trim_start(), bases.len()));
    }
    let path = directory.join("r.fastq");
    fs::write(&path, &fastq).expect("it can be written");
    write_gzip_copy(&path);
    for name in ["r.fastq", "r.fastq.gz"] {
        let sql = format!("SELECT name, comment, bases, octet_length(CAST(qualities AS VARCHAR)) FROM \"{name}\"");
        assert_same_lines(&rows(&directory, &sql, &[]), &expected, name);
    }
    let fasta = directory.join("ref.fa");
    fs::copy(sample.godwit_indexed_reference(), &fasta).expect("it can be copied");
    write_gzip_copy(&fasta);
    let samtools = Tool::require("samtools");
    samtools.run(["faidx", path_text(&fasta)]);
    for name in ["ref.fa", "ref.fa.gz"] {
        for contig in ["chr1", "tiny"] {
            let told = samtools.run(["faidx", "-n", "0", path_text(&fasta), contig]).stdout;
            let expected = String::from_utf8(told).expect("samtools prints text").lines().skip(1).collect::<String>();
            let sql = format!("SELECT position, bases FROM \"{name}\" WHERE contig = '{contig}'");
            let found = rows(&directory, &sql, &[]);
            let mut whole = String::new();
            for row in &found {
                let (position, bases) = row.split_once('\t').expect("there are two columns");
                assert_eq!(position, whole.len().to_string(), "{name} {contig}");
                whole += bases;
            }
            assert!(whole == expected, "{name} {contig}");
        }
    }
    let served = DataServer::start(&directory, &[]);
    for name in ["r.fastq", "r.fastq.gz"] {
        assert_eq!(fetch_summary(&served, name), "3000 1 name,comment,bases,qualities");
    }
    fs::write(&path, &fastq[..fastq.len() - 20]).expect("it can be written");
    run_query(&directory, "SELECT count(bases) FROM \"r.fastq\"", &[]).assert_rejected(&[3], &["r.fastq"]);
    let gz = directory.join("r.fastq.gz");
    let bytes = fs::read(&gz).expect("it is there");
    fs::write(&gz, &bytes[..bytes.len() / 2]).expect("it can be written");
    run_query(&directory, "SELECT count(bases) FROM \"r.fastq.gz\"", &[]).assert_rejected(&[3], &["r.fastq.gz"]);
    fs::write(&fasta, "ACGT\n>chr1\nACGT\n").expect("it can be written");
    run_query(&directory, "SELECT count(bases) FROM \"ref.fa\"", &[]).assert_rejected(&[3], &["ref.fa"]);
}

#[test]
fn places_are_those_of_their_lines() {
    needs!("python3");
    let directory = scratch::directory("kinds-places");
    let bed = "chr1\t5\t10\ta\t7\t+\nchr1\t8\t20\tb\t0\t-\nchr2\t0\t1\tc\t1\t+\n";
    fs::write(directory.join("a.bed"), bed).expect("it can be written");
    write_gzip_copy(&directory.join("a.bed"));
    let expected = to_lines(bed);
    for name in ["a.bed", "a.bed.gz"] {
        let sql = format!("SELECT contig, position, end_position, name, CAST(score AS INT), strand FROM \"{name}\"");
        assert_same_lines(&rows(&directory, &sql, &[]), &expected, name);
        let within = format!("SELECT name FROM \"{name}\" WHERE region('chr1:9-9')");
        assert_eq!(rows(&directory, &within, &[]), ["a", "b"]);
    }
    let gff = "##gff-version 3\nchr1\tx\tgene\t6\t10\t.\t+\t.\tID=a\nchr2\ty\texon\t1\t1\t0.5\t-\t2\tID=b;Parent=a\n";
    for (name, text) in [("a.gff", gff), ("a.gff3", gff), ("a.gtf", "chr1\tx\tgene\t6\t10\t.\t+\t.\tgene_id \"a\";\n")]
    {
        fs::write(directory.join(name), text).expect("it can be written");
        let sql = format!(
            "SELECT contig, source, type, position + 1, end_position, coalesce(CAST(score AS STRING), '.'), strand, \
             coalesce(CAST(phase AS STRING), '.'), attributes FROM \"{name}\""
        );
        let expected: Vec<String> = to_lines(text).into_iter().filter(|line| !line.starts_with('#')).collect();
        let unquoted =
            |line: &String| line.replace("\"\"", "\"").replace("\t\"gene_id", "\tgene_id").replace(";\"", ";");
        assert_same_lines(&rows(&directory, &sql, &[]).iter().map(unquoted).collect::<Vec<_>>(), &expected, name);
    }
    let served = DataServer::start(&directory, &[]);
    assert!(fetch_summary(&served, "a.gff").starts_with("2 1 contig,source,type,position,"));
    fs::write(directory.join("bad.bed"), "chr1\t1\t2\nchr1\tx\t2\n").expect("it can be written");
    run_query(&directory, "SELECT * FROM \"bad.bed\"", &[]).assert_rejected(&[3], &["bad.bed", "line 2"]);
    fs::write(directory.join("bad.gtf"), "chr1\tx\tgene\n").expect("it can be written");
    run_query(&directory, "SELECT * FROM \"bad.gtf\"", &[]).assert_rejected(&[3], &["bad.gtf", "line 1"]);
}

fn json_objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

/// Removes keys that are null: godwit leaves them out.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other,
    }
}

#[test]
fn arrow_and_csv_have_the_rows_that_others_read() {
    needs!("python3");
    let directory = scratch::directory("kinds-tables");
    run_python("tables.py", &directory, &["make"]);
    let names = ["plain.arrow", "zstd.arrow", "stream.arrows", "lz4.feather", "flat.csv", "flat.tsv"];
    for name in names {
        let expected = json_objects(&run_python("tables.py", &directory, &["rows", name]));
        let asked = run_query(&directory, &format!("SELECT * FROM \"{name}\" ORDER BY row"), &["--format", "json"]);
        assert!(asked.status.success(), "{name}: {}", asked.describe());
        let found = json_objects(&asked.stdout);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.into_iter().zip(expected) {
            assert_eq!(without_nulls(found), without_nulls(expected), "{name}");
        }
        let sum = rows(&directory, &format!("SELECT sum(small), count(text) FROM \"{name}\" WHERE row < 2500"), &[]);
        let of_plain = rows(&directory, "SELECT sum(small), count(nullif(text, '')) FROM plain WHERE row < 2500", &[]);
        if name.starts_with("flat") {
            assert_eq!(sum, of_plain, "{name}");
        }
    }
    let served = DataServer::start(&directory, &[]);
    for name in names {
        let columns = if name.starts_with("flat") { "row,small,share,truth,text,day" } else { "row,small,wide,share," };
        let told = fetch_summary(&served, name);
        assert!(told.starts_with(&format!("5000 1 {columns}")), "{name}: {told}");
    }
}

#[test]
fn damaged_tables_are_told_by_name_and_place() {
    needs!("python3");
    let directory = scratch::directory("kinds-damaged");
    run_python("tables.py", &directory, &["make"]);
    let mut random = Random::new(7103);
    for name in ["plain.arrow", "zstd.arrow", "stream.arrows", "lz4.feather"] {
        let path = directory.join(name);
        let whole = fs::read(&path).expect("it is there");
        for kept in [0, 5, whole.len() / 3, whole.len() - 1] {
            fs::write(&path, &whole[..kept]).expect("it can be written");
            run_query(&directory, &format!("SELECT count(text) FROM \"{name}\""), &[]).assert_rejected(&[3], &[name]);
        }
        for _ in 0..6 {
            let mut damaged = whole.clone();
            for _ in 0..20 {
                let at = random.below(damaged.len());
                damaged[at] = random.next_u64() as u8;
            }
            fs::write(&path, &damaged).expect("it can be written");
            // The damaged byte may be part of a number, where the damage cannot be detected, so accept a changed result
            // as well.
            let asked = run_query(&directory, &format!("SELECT count(*), max(text), max(word) FROM \"{name}\""), &[]);
            assert!(matches!(asked.status.code(), Some(0 | 3)), "{name}: {}", asked.describe());
        }
    }
    let csv = directory.join("flat.csv");
    let whole = fs::read_to_string(&csv).expect("it is there");
    fs::write(&csv, format!("{whole}5000,x,1,true,a,b\n")).expect("it can be written");
    run_query(&directory, "SELECT sum(small) FROM \"flat.csv\"", &[])
        .assert_rejected(&[3], &["flat.csv", "line 5002", "\"x\"", "\"small\""]);
    fs::write(&csv, format!("{whole}5000,1,1\n")).expect("it can be written");
    run_query(&directory, "SELECT sum(small) FROM \"flat.csv\"", &[]).assert_rejected(&[3], &["flat.csv", "line 5002"]);
    fs::write(&csv, "").expect("it can be written");
    run_query(&directory, "SELECT * FROM \"flat.csv\"", &[]).assert_rejected(&[3], &["flat.csv"]);
}

/// Writes a VCF with samples and fields of all types.
fn write_vcf(directory: &Path) -> PathBuf {
    let mut random = Random::new(7104);
    let mut text = "##fileformat=VCFv4.2\n##FILTER=<ID=q10,Description=\"x\">\n##FILTER=<ID=s50,Description=\"x, y\">\n\
        ##INFO=<ID=DP,Number=1,Type=Integer,Description=\"x\">\n##INFO=<ID=AF,Number=A,Type=Float,Description=\"x\">\n\
        ##INFO=<ID=DB,Number=0,Type=Flag,Description=\"x\">\n##INFO=<ID=ANN,Number=.,Type=String,Description=\"x\">\n\
        ##INFO=<ID=END,Number=1,Type=Integer,Description=\"x\">\n##contig=<ID=chr1,length=100000>\n##contig=<ID=chr2>\n\
        ##FORMAT=<ID=GT,Number=1,Type=String,Description=\"x\">\n##FORMAT=<ID=AD,Number=R,Type=Integer,Description=\"x\">\n\
        ##FORMAT=<ID=GL,Number=G,Type=Float,Description=\"x\">\n##FORMAT=<ID=FT,Number=1,Type=String,Description=\"x\">\n\
        #CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tone\ttwo\tthree\n"
        .to_owned();
    for contig in ["chr1", "chr2"] {
        let mut position = 0;
        for record in 0..400 {
            position += random.between(1, 200);
            let alternates = *random.pick(&["C", "C,AT", ".", "<DEL>", "G,<NON_REF>"]);
            let info = match record % 5 {
                0 => ".".to_owned(),
                1 => format!("DP={};DB", random.between(-5, 100_000)),
                2 => format!("AF=0.5,.;ANN=a|b,c;DP={}", random.between(0, 200)),
                3 => format!("END={};DP=.", position + random.between(0, 900)),
                _ => "ANN=x".to_owned(),
            };
            let mut sample = || match random.below(4) {
                0 => "0/1:3,4:-1.5,0,-2.25:PASS".to_owned(),
                1 => format!("1|1:{},70000:.:q10", random.below(300)),
                2 => "./.:.:.:.".to_owned(),
                _ => "0:1,2:-0.125:x".to_owned(),
            };
            let samples = [sample(), sample(), sample()].join("\t");
            let (id, quality) = (["rs1;rs2", "."][record % 2], ["12.5", ".", "3000"][record % 3]);
            let filter = ["PASS", ".", "q10;s50", "q10"][record % 4];
            text += &format!(
                "{contig}\t{position}\t{id}\tA\t{alternates}\t{quality}\t{filter}\t{info}\tGT:AD:GL:FT\t{samples}\n"
            );
        }
    }
    let path = directory.join("v.vcf");
    fs::write(&path, text).expect("it can be written");
    path
}

#[test]
fn bcf_has_the_columns_of_vcf_and_the_regions_of_bcftools() {
    needs!("bcftools", "python3");
    let directory = scratch::directory("kinds-bcf");
    let made = write_vcf(&directory);
    let bcftools = Tool::require("bcftools");
    let (bcf, vcf) = (directory.join("b.bcf"), directory.join("back.vcf"));
    bcftools.run(["view", "--no-version", "-Ob", "-o", path_text(&bcf), path_text(&made)]);
    bcftools.run(["view", "--no-version", "-Ov", "-o", path_text(&vcf), path_text(&bcf)]);
    fs::copy(&bcf, directory.join("alone.bcf")).expect("it can be copied");
    // Test uncompressed BCF too, which bcftools writes to pipes.
    let mut unpacked = Vec::new();
    let packed = File::open(&bcf).expect("it is there");
    flate2::read::MultiGzDecoder::new(packed).read_to_end(&mut unpacked).expect("it is gzip");
    fs::write(directory.join("plain.bcf"), unpacked).expect("it can be written");
    bcftools.run(["index", path_text(&bcf)]);
    let all = |name: &str| {
        let asked = run_query(
            &directory,
            &format!("SELECT * FROM variants('{name}')"),
            &["--format", "json", "--threads", "1"],
        );
        assert!(asked.status.success(), "{name}: {}", asked.describe());
        to_lines(&asked.stdout)
    };
    let expected = all("back.vcf");
    assert_eq!(expected.len(), 800);
    for name in ["b.bcf", "alone.bcf", "plain.bcf"] {
        assert_same_lines(&all(name), &expected, name);
    }
    assert_eq!(rows(&directory, "SELECT count(*) FROM variants('b.bcf')", &[]), ["800"]);
    let mut random = Random::new(7105);
    for _ in 0..25 {
        let first = random.between(1, 45_000);
        let region = format!("{}:{first}-{}", random.pick(&["chr1", "chr2"]), first + random.between(0, 3000));
        let told = bcftools.run(["query", "-f", "%CHROM\t%POS\t%REF\n", "-r", &region, path_text(&bcf)]).stdout;
        let expected = to_lines(&String::from_utf8(told).expect("bcftools prints text"));
        for name in ["b.bcf", "alone.bcf"] {
            let sql =
                format!("SELECT contig, position + 1, reference FROM variants('{name}') WHERE region('{region}')");
            assert_same_lines(&rows(&directory, &sql, &[]), &expected, &format!("{name} {region}"));
        }
    }
    let served = DataServer::start(&directory, &[]);
    assert!(fetch_summary(&served, "b.bcf").starts_with("800 1 contig,contig_id,position,"));
    let whole = fs::read(&bcf).expect("it is there");
    fs::remove_file(directory.join("b.bcf.csi")).expect("it is there");
    for kept in [whole.len() / 2, whole.len() - 28] {
        fs::write(&bcf, &whole[..kept]).expect("it can be written");
        run_query(&directory, "SELECT count(position) FROM variants('b.bcf')", &[]).assert_rejected(&[3], &["b.bcf"]);
    }
    let plain = directory.join("plain.bcf");
    let whole = fs::read(&plain).expect("it is there");
    for _ in 0..20 {
        let mut damaged = whole.clone();
        let at = 2000 + random.below(damaged.len() - 2000);
        damaged[at] ^= 0x55;
        fs::write(&plain, &damaged).expect("it can be written");
        let asked = run_query(&directory, "SELECT count(*), max(info_DP) FROM variants('plain.bcf')", &[]);
        assert!(matches!(asked.status.code(), Some(0 | 3)), "{at}: {}", asked.describe());
    }
    fs::write(&plain, &whole[..whole.len() - 3]).expect("it can be written");
    run_query(&directory, "SELECT count(position) FROM variants('plain.bcf')", &[])
        .assert_rejected(&[3], &["plain.bcf", "ends within"]);
}

#[test]
fn attributes_of_gff_and_gtf_are_maps() {
    let directory = scratch::directory("attributes");
    let line = |attributes: &str| format!("chr1\tx\tgene\t101\t200\t.\t+\t.\t{attributes}\n");
    fs::write(directory.join("a.gff3"), line("ID=g1;Name=a%20b") + &line(".") + &line("ID=g2"))
        .expect("it can be written");
    fs::write(directory.join("b.gtf"), line("gene_id \"g1\"; tag \"x\"; tag \"y\";")).expect("it can be written");
    let rows = |sql: &str| {
        let words = ["--format", "tsv", "--threads", "1"];
        let asked = run_query(&directory, sql, &words);
        assert!(asked.status.success(), "{sql}: {}", asked.describe());
        to_lines(&asked.stdout).split_off(1)
    };
    let names = "SELECT gff_attributes(attributes)['ID'], coalesce(gff_attributes(attributes)['Name'], '-') FROM a";
    assert_eq!(rows(names), ["g1\ta b", "\t-", "g2\t-"]);
    let gtf =
        "SELECT gff_attributes(attributes)['tag'], array_to_string(map_keys(gff_attributes(attributes)), ' ') FROM b";
    assert_eq!(rows(gtf), ["x,y\tgene_id tag"]);
    let count = "SELECT count(*) FROM a WHERE gff_attributes(attributes)['ID'] LIKE 'g%'";
    assert_eq!(rows(count), ["2"]);
}

#[test]
fn bigwig_and_bigbed_have_the_rows_of_the_text_in_them() {
    let directory = scratch::directory("kinds-bbi");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/bbi");
    let copy = |from: &str, to: &str| fs::copy(golden.join(from), directory.join(to)).expect("it can be copied");
    copy("signal.bw", "signal.bw");
    copy("features.bb", "features.bb");
    copy("signal.bw", "misnamed.bed");
    copy("features.bb.expected.tsv", "features.bed");
    let signal = fs::read_to_string(golden.join("signal.bw.expected.tsv")).expect("it is there");
    fs::write(directory.join("signal.tsv"), format!("contig\tposition\tend_position\tvalue\n{signal}"))
        .expect("it can be written");
    let values = "contig, position, end_position, CAST(value AS FLOAT)";
    for (name, text, columns) in [
        ("signal.bw", "signal.tsv", values),
        ("misnamed.bed", "signal.tsv", values),
        ("features.bb", "features.bed", "*"),
    ] {
        for condition in ["true", "contig = 'chr1' AND position < 9000 AND end_position > 2000", "contig > 'chr10'"] {
            let sql = |table: &str| format!("SELECT {columns} FROM \"{table}\" WHERE {condition}");
            assert_same_lines(&rows(&directory, &sql(name), &[]), &rows(&directory, &sql(text), &[]), name);
        }
    }
    let region = "FROM \"signal.bw\" WHERE region('chr1:2001-9000')";
    let expected = "FROM \"signal.tsv\" WHERE contig = 'chr1' AND position < 9000 AND end_position > 2000";
    for columns in ["position", "count(*), sum(end_position)"] {
        let [found, expected] =
            [region, expected].map(|from| rows(&directory, &format!("SELECT {columns} {from}"), &[]));
        assert_eq!(found, expected);
    }
    let plan = run_query(&directory, &format!("EXPLAIN SELECT max(value) {region}"), &["--threads", "3"]);
    assert!(plan.stdout.contains("parts=3") && plan.stdout.contains("chr1:2001-9000"), "{}", plan.stdout);
    run_query(&directory, "SELECT value FROM \"signal.bw\" WHERE region('chr9:1-5')", &[])
        .assert_rejected(&[2, 3], &["chr9"]);
    let whole = fs::read(directory.join("signal.bw")).expect("it is there");
    for (kept, expected) in
        [(0, "is not a bigWig"), (40, "truncated"), (20_000, "truncated"), (whole.len() / 2, "truncated")]
    {
        fs::write(directory.join("signal.bw"), &whole[..kept]).expect("it can be written");
        run_query(&directory, "SELECT count(value) FROM \"signal.bw\"", &[])
            .assert_rejected(&[3], &["signal.bw", expected]);
    }
}
