//! Datasets in a bucket of an independent S3 server: the rows of the same files in a directory, by ranges, and clear
//! errors.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::random::Random;
use godwit_tests::s3::{S3Server, SECRET_ACCESS_KEY, server_path, unused_address};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch, skip};

use super::regions::{SAM_FIELDS, samtools, without_qualities};
use crate::run::formats::{aligned_sample, assert_same_lines, run_python, to_lines};

/// The number of reads of a BAM file of some megabytes.
const READ_COUNT: usize = 30_000;

fn run_query(data: &str, sql: &str, settings: &[(&str, &str)]) -> GodwitOutput {
    let mut asked = godwit().arg("query").arg(sql).args(["--data", data, "--format", "csv", "--threads", "1"]);
    for (name, value) in settings {
        asked = asked.env(name, value);
    }
    asked.run()
}

fn rows(data: &str, sql: &str, settings: &[(&str, &str)]) -> Vec<String> {
    let asked = run_query(data, sql, settings);
    assert!(asked.status.success(), "{sql}: {}", asked.describe());
    assert!(!asked.stderr.contains(SECRET_ACCESS_KEY) && !asked.stdout.contains(SECRET_ACCESS_KEY));
    to_lines(&asked.stdout).split_off(1)
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// Returns a directory with a dataset of every kind that can be read from buckets.
pub(super) fn datasets_of_every_kind() -> std::path::PathBuf {
    let directory = scratch::directory("objects-kinds");
    let (_, out) = aligned_sample();
    let bam = out.join("sample.bam");
    let below = directory.join("deep/er one");
    fs::create_dir_all(&below).expect("it can be made");
    for name in ["sample.bam", "sample.bam.bai"] {
        fs::copy(out.join(name), below.join(name)).expect("it can be copied");
    }
    Tool::require("samtools").run(["view", "-h", "-o", path_text(&directory.join("s.sam")), path_text(&bam)]);
    for name in ["sample.parquet", "sample.arrow"] {
        let parts = directory.join(name);
        fs::create_dir_all(&parts).expect("it can be made");
        for part in scratch::entry_names(&out.join(name)).iter().filter(|part| !part.starts_with('.')) {
            fs::copy(out.join(name).join(part), parts.join(part)).expect("it can be copied");
        }
    }
    let part =
        scratch::entry_names(&directory.join("sample.parquet")).into_iter().find(|name| name.ends_with(".parquet"));
    let part = directory.join("sample.parquet").join(part.expect("it has parts"));
    fs::copy(part, directory.join("one & only.parquet")).expect("it can be copied");
    let mut vcf = "##fileformat=VCFv4.3\n##FILTER=<ID=PASS,Description=\"All\">\n##INFO=<ID=DP,Number=1,Type=Integer,Description=\"Depth\">\n"
        .to_owned();
    vcf += "##contig=<ID=chr1,length=150000>\n##contig=<ID=chr2,length=80000>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    for contig in ["chr1", "chr2"] {
        for place in 1..2000 {
            let _ = writeln!(vcf, "{contig}\t{}\t.\tA\tC\t50\tPASS\tDP={}", place * 37, place % 91);
        }
    }
    let plain = directory.join("v.vcf");
    fs::write(&plain, vcf).expect("it can be written");
    let bcftools = Tool::require("bcftools");
    for (kind, name) in [("-Oz", "z.vcf.gz"), ("-Ob", "b.bcf")] {
        let packed = directory.join(name);
        bcftools.run(["view", kind, "-o", path_text(&packed), path_text(&plain)]);
        bcftools.run(["index", if kind == "-Oz" { "-t" } else { "-c" }, path_text(&packed)]);
    }
    for (name, content) in [
        ("t.csv", "n,x,name\n1,2.5,a\n2,,b\n"),
        ("t.tsv", "n\tname\n7\ta\n8\tb\n"),
        ("p.bed", "chr1\t10\t20\tone\nchr1\t30\t40\ttwo\n"),
        ("g.gff", "##gff-version 3\nchr1\tme\tgene\t1\t9\t.\t+\t.\tID=g1\n"),
        ("r.fa", ">chr1\nACGTACGTAC\n>chr2\nGGG\n"),
        ("q.fastq", "@a\nACG\n+\nIII\n@b c\nTT\n+\nJJ\n"),
    ] {
        fs::write(directory.join(name), content).expect("it can be written");
    }
    directory
}

#[test]
fn rows_of_a_bucket_are_those_of_a_directory() {
    needs!("bwa", "samtools", "bcftools", "curl", "python3");
    if !server_path().exists() {
        skip!("s3-server", "no {}; tests/tools/s3/fetch.sh makes it", server_path().display());
    }
    let directory = datasets_of_every_kind();
    let s3 = S3Server::start("objects-server");
    s3.make_bucket("genomes");
    s3.upload_directory(&directory, "genomes/some where");
    // These two objects must not become datasets: one is hidden, and the other is outside of the prefix.
    s3.upload(&directory.join("t.csv"), "genomes/some where/.hidden/t.csv");
    s3.upload(&directory.join("t.csv"), "genomes/some where else/other.csv");
    let (here, there, settings) = (path_text(&directory), "s3://genomes/some where", s3.environment());
    for sql in [
        "SELECT count(*), sum(position), min(name) FROM reads('deep/er one/sample.bam')",
        "SELECT count(*), sum(position), min(name) FROM reads('s.sam') WHERE region('chr2:1-9000')",
        "SELECT count(*), sum(position), max(bases) FROM \"sample.parquet\"",
        "SELECT count(*), sum(position), max(name) FROM \"sample.parquet\" WHERE position BETWEEN 5000 AND 9000",
        "SELECT count(*), sum(position), min(cigar) FROM \"one & only.parquet\"",
        "SELECT count(*), sum(position), min(cigar) FROM \"sample.arrow\"",
        "SELECT * FROM \"z.vcf.gz\" WHERE region('chr2:3000-5000')",
        "SELECT * FROM \"b.bcf\" WHERE region('chr1:3000-5000')",
        "SELECT count(*), sum(\"info_DP\") FROM \"v.vcf\"",
        "SELECT * FROM \"t.csv\"",
        "SELECT * FROM \"t.tsv\"",
        "SELECT * FROM \"p.bed\" WHERE region('chr1:15-16')",
        "SELECT * FROM \"g.gff\"",
        "SELECT * FROM \"r.fa\"",
        "SELECT name, bases FROM \"q.fastq\"",
    ] {
        let expected = rows(here, sql, &[]);
        assert!(!expected.is_empty() && expected[0] != "0,,", "{sql}");
        assert_same_lines(&rows(there, sql, &settings), &expected, sql);
    }
    let served =
        [DataServer::start(&directory, &[]), DataServer::start_with(Path::new(there), "127.0.0.1:0", &[], &settings)];
    assert!(served[1].ready_line.contains(" of s3://genomes/some where at "), "{}", served[1].ready_line);
    let [here, there] = [&served[0], &served[1]]
        .map(|served| to_lines(&run_python("flight_clients.py", Path::new("-"), &[&served.address, "list_datasets"])));
    assert!(there.len() == 14, "{there:?}");
    assert_eq!(here, there);
    for command in [
        r#"{"dataset":"deep/er one/sample.bam","parts":3}"#,
        r#"{"dataset":"deep/er one/sample.bam","regions":["chr1:100-20000"],"columns":["flags"]}"#,
        r#"{"dataset":"sample.parquet","parts":2}"#,
        r#"{"dataset":"one & only.parquet","columns":["position","tag_NM"]}"#,
        r#"{"dataset":"sample.arrow"}"#,
        r#"{"dataset":"b.bcf","regions":["chr1:3000-5000"]}"#,
        r#"{"dataset":"t.csv"}"#,
    ] {
        let words = [served[0].address.as_str(), "assert_same_on_servers", &served[1].address, command];
        let rows = to_lines(&run_python("flight_clients.py", Path::new("-"), &words));
        assert_ne!(rows, ["0"], "{command}");
    }
}

#[test]
fn a_region_is_fetched_by_ranges_of_what_it_needs() {
    needs!("samtools", "curl");
    if !server_path().exists() {
        skip!("s3-server", "no {}; tests/tools/s3/fetch.sh makes it", server_path().display());
    }
    let directory = scratch::directory("objects-ranges");
    let (sam, bam) = (directory.join("big.sam"), directory.join("big.bam"));
    let mut random = Random::new(7201);
    let mut lines = "@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:chr1\tLN:150000\n".to_owned();
    for read in 0..READ_COUNT {
        let letters =
            |random: &mut Random, from: &[u8]| -> String { (0..100).map(|_| char::from(*random.pick(from))).collect() };
        let bases = letters(&mut random, b"ACGT");
        let qualities = letters(&mut random, b"!#%+5:;<=>?@ABCDEFGHI");
        let _ = writeln!(lines, "r{read}\t0\tchr1\t{}\t60\t100M\t*\t0\t0\t{bases}\t{qualities}", 1 + read * 4);
    }
    fs::write(&sam, lines).expect("it can be written");
    Tool::require("samtools").run(["view", "-b", "-o", path_text(&bam), path_text(&sam)]);
    Tool::require("samtools").run(["index", path_text(&bam)]);
    let s3 = S3Server::start("objects-ranges-server");
    s3.make_bucket("bucket");
    s3.upload(&bam, "bucket/big.bam");
    s3.upload(&directory.join("big.bam.bai"), "bucket/big.bam.bai");
    let whole = fs::metadata(&bam).expect("it is there").len();
    assert!(whole > 2 << 20, "{whole}");
    let settings = s3.environment();
    let (endpoint, count) = s3.counting_proxy();
    for region in ["chr1:60000-60100", "chr1:119000-119001"] {
        let sql = format!("SELECT {SAM_FIELDS} FROM reads('big.bam') WHERE region('{region}')");
        let mut asked =
            godwit().arg("query").arg(&sql).args(["--data", "s3://bucket", "--format", "tsv", "--threads", "1"]);
        for (name, value) in settings {
            asked = asked.env(name, value);
        }
        let asked = asked.env("AWS_ENDPOINT_URL", &endpoint);
        count.store(0, Ordering::SeqCst);
        let found = rows_without_qualities(&asked.run_ok());
        let expected: Vec<String> = samtools(&bam, &[region]).iter().map(|line| without_qualities(line)).collect();
        assert!(expected.len() > 20, "{region}");
        assert_same_lines(&found, &expected, region);
        let bytes = count.load(Ordering::SeqCst);
        assert!(bytes > 0 && bytes < whole / 4, "{region}: {bytes} of {whole}");
    }
    let counted = rows("s3://bucket", "SELECT count(*) FROM reads('big.bam')", &settings);
    assert_eq!(counted, [READ_COUNT.to_string()]);
}

fn rows_without_qualities(finished: &GodwitOutput) -> Vec<String> {
    to_lines(&finished.stdout).split_off(1).iter().map(|line| without_qualities(line)).collect()
}

#[test]
fn an_object_that_takes_the_place_of_another_is_noticed() {
    needs!("bwa", "samtools", "curl", "python3");
    if !server_path().exists() {
        skip!("s3-server", "no {}; tests/tools/s3/fetch.sh makes it", server_path().display());
    }
    let (_, out) = aligned_sample();
    let directory = scratch::directory("objects-changed");
    let (bam, less) = (out.join("sample.bam"), directory.join("less.bam"));
    Tool::require("samtools").run(["view", "-b", "-F", "16", "-o", path_text(&less), path_text(&bam)]);
    let s3 = S3Server::start("objects-changed-server");
    s3.make_bucket("bucket");
    s3.upload(&bam, "bucket/x.bam");
    let served = DataServer::start_with(Path::new("s3://bucket"), "127.0.0.1:0", &[], &s3.environment());
    let count = |file: &Path| samtools(file, &[]).len().to_string();
    let words = [served.address.as_str(), "fetch_before_and_after_change", "{\"dataset\":\"x.bam\"}"];
    let marks = [directory.join("asked"), directory.join("changed")];
    let words: Vec<&str> = words.into_iter().chain(marks.iter().map(|mark| path_text(mark))).collect();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| to_lines(&run_python("flight_clients.py", Path::new("-"), &words)));
        godwit_tests::wait::wait_until("the client has its ticket", || marks[0].exists() || client.is_finished());
        s3.upload(&less, "bucket/x.bam");
        fs::write(&marks[1], "").expect("it can be written");
        let told = client.join().expect("the client ends");
        assert_eq!(told[0], count(&bam));
        assert!(told[1].contains("has changed since the request was planned"), "{told:?}");
        assert_eq!(told[2], count(&less));
        assert_ne!(told[0], told[2]);
    });
}

#[test]
fn what_keeps_a_bucket_from_being_read_is_said_and_no_secret_with_it() {
    needs!("curl");
    if !server_path().exists() {
        skip!("s3-server", "no {}; tests/tools/s3/fetch.sh makes it", server_path().display());
    }
    let directory = scratch::directory("objects-refused");
    let table = directory.join("t.csv");
    fs::write(&table, "n\n1\n2\n").expect("it can be written");
    let s3 = S3Server::start("objects-refused-server");
    s3.make_bucket("bucket");
    s3.make_bucket("open");
    s3.upload(&table, "bucket/t.csv");
    s3.upload(&table, "open/t.csv");
    fs::write(directory.join("c.cram"), "CRAM").expect("it can be written");
    s3.upload(&directory.join("c.cram"), "bucket/c.cram");
    s3.make_public("open");
    let settings = s3.environment();
    let with = |name: &'static str, value: &str| -> Vec<(&str, String)> {
        let others =
            settings.iter().filter(|(found, _)| *found != name).map(|(name, value)| (*name, (*value).to_owned()));
        others.chain([(name, value.to_owned())]).collect()
    };
    let anonymous = || {
        let mut settings = with("AWS_ACCESS_KEY_ID", "");
        settings.retain(|(name, _)| *name != "AWS_SECRET_ACCESS_KEY");
        settings.push(("AWS_SECRET_ACCESS_KEY", String::new()));
        settings
    };
    let nobody = format!("http://{}", unused_address());
    let sql = "SELECT sum(n) FROM \"t.csv\"";
    let as_is = || with("AWS_REGION", "us-east-1");
    for (data, sql, settings, code, said) in [
        ("s3://none-such", sql, as_is(), 6, "there is no bucket \"none-such\""),
        ("s3://bucket", sql, with("AWS_SECRET_ACCESS_KEY", "another-secret"), 6, "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket", sql, anonymous(), 6, "set AWS_ACCESS_KEY_ID"),
        ("s3://bucket", sql, with("AWS_ENDPOINT_URL", &nobody), 6, "cannot reach the object store"),
        ("s3://bucket", sql, with("AWS_ALLOW_HTTP", ""), 4, "AWS_ALLOW_HTTP=true"),
        ("s3://bucket", sql, with("AWS_ENDPOINT_URL", "127.0.0.1:1"), 4, "AWS_ENDPOINT_URL"),
        ("s3://bucket", sql, with("AWS_SECRET_ACCESS_KEY", ""), 4, "AWS_ environment variables"),
        ("s3://", sql, as_is(), 2, "write s3://BUCKET"),
        ("s3://bucket/../c", sql, as_is(), 2, "write s3://BUCKET"),
        ("s3://bucket", "SELECT * FROM \"nothing.csv\"", as_is(), 2, "nothing.csv"),
        ("s3://bucket/t.csv/more", sql, as_is(), 2, "t.csv"),
        ("s3://bucket", "SELECT * FROM reads('c.cram')", as_is(), 2, "CRAM"),
    ] {
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let asked = run_query(data, sql, &settings);
        asked.assert_rejected(&[code], &[said]);
        for secret in [SECRET_ACCESS_KEY, "another-secret"] {
            assert!(!asked.stderr.contains(secret), "{}", asked.describe());
        }
    }
    let open: Vec<(&str, String)> = anonymous();
    let open: Vec<(&str, &str)> = open.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(rows("s3://open", sql, &open), ["3"]);
    let mut writable = godwit().args(["serve", "--root", "s3://bucket", "--listen", "127.0.0.1:0", "--writable"]);
    for (name, value) in settings {
        writable = writable.env(name, value);
    }
    writable.run().assert_rejected(&[2], &["read-only", "--writable"]);
    let served = DataServer::start_with(Path::new("s3://bucket"), "127.0.0.1:0", &[], &settings);
    // All users of the machine can read the command line of a statement process, so it must not contain the secret.
    let listed = run_checked(Command::new("ps").args(["-eo", "args"]));
    assert!(!String::from_utf8_lossy(&listed.stdout).contains(SECRET_ACCESS_KEY), "{}", served.ready_line);
}
