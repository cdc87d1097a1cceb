//! Files with the file extension of another format: their content decides the format.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::contig_names::data_directory;
use super::http_client::path_text;
use super::regions::samtools;
use crate::run::formats::to_lines;

/// Writes a file of each format under a name with another format's extension.
fn write_misnamed(directory: &Path) {
    let at = |name: &str| directory.join(name);
    let bam = data_directory().join("odd.bam");
    let copy = |from: &str, to: &str| fs::copy(data_directory().join(from), at(to)).expect("it can be copied");
    copy("odd.bam", "named.cram");
    copy("odd.bam.bai", "named.cram.bai");
    copy("odd.bam", "reads.csv");
    copy("odd.bam", "reads.parquet");
    copy("odd.sam", "sam.bam");
    for name in ["parquet.arrow", "parquet.csv"] {
        let query = godwit().args(["query", "SELECT * FROM reads('odd.bam')", "--format", "parquet", "--data"]);
        let finished = query.arg(data_directory()).arg("--out").arg(at(name)).run();
        assert!(finished.status.success(), "{}", finished.describe());
    }
    let cram = at("cram.bam");
    Tool::require("samtools").run([
        "view",
        "-C",
        "--output-fmt-option",
        "no_ref=1",
        "-o",
        path_text(&cram),
        path_text(&bam),
    ]);
    let vcf = "##fileformat=VCFv4.2\n##contig=<ID=c,length=100>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\nc\t5\t.\tA\tC\t.\t.\t.\n";
    fs::write(at("plain.vcf.gz"), vcf).expect("it can be written");
    fs::write(at("vcf.bam"), vcf).expect("it can be written");
    Tool::require("bcftools").run(["view", "-Ob", "-o", path_text(&at("bcf.vcf")), path_text(&at("plain.vcf.gz"))]);
    Tool::require("bcftools").run(["view", "-Oz", "-o", path_text(&at("gz.bcf")), path_text(&at("plain.vcf.gz"))]);
    let fastq = b"@a\nACGT\n+\nIIII\n@b\nACGT\n+\nIIII\n";
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(fastq).expect("memory takes everything");
    fs::write(at("packed.fq"), packer.finish().expect("memory takes everything")).expect("it can be written");
    fs::write(at("reads.fa"), fastq).expect("it can be written");
    fs::write(at("bases.fq"), ">a\nACGT\n>b\nACGT\n").expect("it can be written");
    // A BED file with twelve columns, of which the second is a number, must not be detected as SAM.
    fs::write(at("twelve.bed"), "c\t0\t9\tn\t0\t+\t0\t9\t0\t1\t9,\t0,\n").expect("it can be written");
}

#[test]
fn files_are_what_they_hold_whatever_their_names_end_with() {
    needs!("samtools", "bcftools");
    let directory = scratch::directory("misnamed");
    write_misnamed(&directory);
    let bam = data_directory().join("odd.bam");
    let reads = samtools(&bam, &[]).len().to_string();
    let counted = |table: &str, condition: &str| {
        let sql = format!("SELECT count(*) FROM {table} {condition}");
        let asked = godwit().arg("query").arg(&sql).arg("--data").arg(&directory).args(["--format", "tsv"]).run();
        assert!(asked.status.success(), "{sql}: {}", asked.describe());
        to_lines(&asked.stdout)[1].clone()
    };
    for name in ["named.cram", "cram.bam", "sam.bam", "reads.csv", "reads.parquet"] {
        assert_eq!(counted(&format!("reads('{name}')"), ""), reads, "{name}");
        let of_region = samtools(&bam, &["{chr1}:100-300"]).len().to_string();
        assert_eq!(counted(&format!("reads('{name}')"), "WHERE region('{chr1}:100-300')"), of_region, "{name}");
    }
    // Results of a statement are tables, even if they contain the columns of reads.
    for name in ["parquet.arrow", "parquet.csv"] {
        assert_eq!(counted(&format!("\"{name}\""), ""), reads, "{name}");
    }
    for name in ["plain.vcf.gz", "bcf.vcf", "gz.bcf", "vcf.bam"] {
        assert_eq!(counted(&format!("variants('{name}')"), "WHERE position = 4"), "1", "{name}");
    }
    for (name, condition) in [
        ("packed.fq", "WHERE name = 'a'"),
        ("reads.fa", "WHERE name = 'a'"),
        ("bases.fq", "WHERE contig = 'a'"),
        ("twelve.bed", "WHERE strand = '+'"),
    ] {
        assert_eq!(counted(&format!("\"{name}\""), condition), "1", "{name}");
    }
    // The server finds the index of the misnamed file, also after the file was replaced.
    let served = DataServer::start(&directory, &[]);
    let url = format!("http://{}/reads/named.cram?format=BAM&referenceName=HLA-A*01:01:01:01", served.address);
    let found = samtools(Path::new(&url), &[]).len();
    assert!(found >= samtools(&bam, &["{HLA-A*01:01:01:01}"]).len() && found < reads.parse().expect("a number"));
    let ask = |sql: &str| {
        let place = format!("grpc+tcp://{}", served.address);
        to_lines(&godwit().args(["query", sql, "--at", &place, "--format", "tsv"]).run_ok().stdout)[1].clone()
    };
    assert_eq!(ask("SELECT count(*) FROM \"sam.bam\""), reads);
    fs::copy(directory.join("bcf.vcf"), directory.join("new")).expect("it can be copied");
    fs::rename(directory.join("new"), directory.join("sam.bam")).expect("it can be renamed");
    assert_eq!(ask("SELECT count(*) FROM \"sam.bam\""), "1");
}
