//! Unusual values that the SAM specification or samtools accepts: `markdup` and `query` return them as samtools does.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::godwit;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

/// Returns the output of `samtools view` on a file with these arguments.
fn samtools_view(path: &Path, words: &[&str]) -> String {
    let printed = run_checked(Tool::require("samtools").command().arg("view").arg(path).args(words)).stdout;
    String::from_utf8(printed).expect("samtools prints text")
}

/// Sorts `input` with samtools and with godwit, and compares the records. Then counts all records, and those of a
/// region, by SQL.
fn assert_same_as_samtools(input: &Path, region: Option<(&str, &str)>) {
    let (theirs, ours) = (input.with_extension("samtools.bam"), input.with_extension("godwit.bam"));
    run_checked(Tool::require("samtools").command().args(["sort", "--no-PG", "-o"]).arg(&theirs).arg(input));
    let markdup = godwit().arg("markdup").arg(input).args(["--duplicates", "none", "--out"]).arg(&ours);
    markdup.run_ok();
    assert_eq!(samtools_view(&ours, &[]), samtools_view(&theirs, &[]), "{}", input.display());
    godwit().arg("verify").arg(&ours).run_ok();
    let directory = input.parent().expect("it is in a directory");
    let sql = |from: &Path, condition: &str| {
        let name = from.file_name().expect("it has a name").to_string_lossy().into_owned();
        let statement = format!("SELECT count(*), min(mate_position) FROM \"{name}\"{condition}");
        let query = godwit().args(["query", &statement, "--format", "csv", "--data"]).arg(directory).run_ok();
        let row = query.stdout.lines().nth(1).expect("a row follows the names").to_owned();
        let (count, mate) = row.split_once(',').expect("there are two columns");
        assert!(mate.is_empty() || mate.parse::<i64>().is_ok_and(|mate| mate >= -1), "{row}");
        count.parse::<usize>().expect("a count is a number")
    };
    let all = samtools_view(&theirs, &[]).lines().count();
    assert_eq!((sql(input, ""), sql(&ours, "")), (all, all), "{}", input.display());
    if let Some((samtools, condition)) = region {
        let found = samtools_view(&ours, &[samtools]).lines().count();
        assert!(found > 0, "the region has reads");
        assert_eq!(sql(&ours, condition), found, "{}", input.display());
    }
}

fn write_file(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, bytes).expect("the scratch directory can be written to");
    path
}

#[test]
fn signs_leading_zeros_and_hexadecimal_flags_in_sam_are_read() {
    needs!("samtools");
    let directory = scratch::directory("odd-numbers");
    let zeros = "0".repeat(60);
    let text = format!(
        "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\n\
         r1\t0x63\tc\t+10\t060\t4M\t=\t0200\t+194\tACGT\tIIII\tX0:i:{zeros}7\tX1:f:+.5e1\tX2:B:c,+1,{zeros}2\n\
         r1\t147\tc\t{zeros}200\t60\t4M\t=\t10\t-194\tACGT\tIIII\tX3:d:1.25\t_0:i:5\n\
         r2\t4\t*\t0\t0\t*\t*\t0\t0\t*\t*\n"
    );
    let input = write_file(&directory, "numbers.sam", text.as_bytes());
    assert_same_as_samtools(&input, Some(("c:100-300", " WHERE region('c:100-300')")));
}

#[test]
fn the_last_base_of_the_longest_contig_is_read_indexed_and_found() {
    needs!("samtools");
    let directory = scratch::directory("last-base");
    let text = "@HD\tVN:1.6\n@SQ\tSN:c\tLN:2147483647\n\
        r1\t0\tc\t2147483647\t60\t1M\t*\t0\t0\tA\tI\n\
        r2\t16\tc\t2147483647\t60\t1M2S\t*\t0\t0\tACG\tIII\n\
        r3\t0\tc\t2147483640\t60\t8M\t*\t0\t0\tACGTACGT\tIIIIIIII\n";
    let input = write_file(&directory, "last.sam", text.as_bytes());
    let region = "c:2147483647-2147483647";
    assert_same_as_samtools(&input, Some((region, &format!(" WHERE region('{region}')"))));
    for duplicates in ["mark", "remove"] {
        let out = directory.join(format!("{duplicates}.bam"));
        let markdup = godwit().arg("markdup").arg(&input).args(["--duplicates", duplicates, "--out"]).arg(&out);
        markdup.run_ok();
        assert_eq!(samtools_view(&out, &[region]).lines().count(), 3);
    }
}

/// The fields of a BAM record that a case changes.
struct BamFields {
    contig: i32,
    position: i32,
    bin: u16,
    flag: u16,
    mate_contig: i32,
    mate_position: i32,
    template_length: i32,
    name: &'static [u8],
    cigar: &'static [u32],
    bases: usize,
    quality: u8,
    tags: &'static [u8],
}

const DEFAULT_FIELDS: BamFields = BamFields {
    contig: 0,
    position: 63,
    bin: 4681,
    flag: 1,
    mate_contig: -1,
    mate_position: -1,
    template_length: 0,
    name: b"r\0",
    cigar: &[4 << 4],
    bases: 4,
    quality: 40,
    tags: b"",
};

impl BamFields {
    /// Returns the encoded record. SAMv1 §4.2.
    fn record(&self) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(self.contig.to_le_bytes());
        record.extend(self.position.to_le_bytes());
        record.extend([self.name.len() as u8, 60]);
        record.extend(self.bin.to_le_bytes());
        record.extend((self.cigar.len() as u16).to_le_bytes());
        record.extend(self.flag.to_le_bytes());
        record.extend((self.bases as u32).to_le_bytes());
        for field in [self.mate_contig, self.mate_position, self.template_length] {
            record.extend(field.to_le_bytes());
        }
        record.extend(self.name);
        self.cigar.iter().for_each(|op| record.extend(op.to_le_bytes()));
        record.extend(vec![0x12; self.bases.div_ceil(2)]);
        record.extend(vec![self.quality; self.bases]);
        record.extend(self.tags);
        [&(record.len() as u32).to_le_bytes()[..], &record].concat()
    }
}

#[test]
fn odd_fields_of_bam_are_passed_on_as_samtools_passes_them_on() {
    needs!("samtools", "bgzip");
    let directory = scratch::directory("odd-fields");
    let text = "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\n";
    let cases = [
        ("mate_far_below", BamFields { flag: 99, mate_position: -155_264_057, ..DEFAULT_FIELDS }),
        ("mate_below", BamFields { flag: 99, mate_position: -2, ..DEFAULT_FIELDS }),
        ("mate_below_on_contig", BamFields { mate_contig: 0, mate_position: -7, ..DEFAULT_FIELDS }),
        ("mate_without_contig", BamFields { mate_position: 9, ..DEFAULT_FIELDS }),
        ("mate_without_position", BamFields { mate_contig: 0, ..DEFAULT_FIELDS }),
        ("position_without_contig", BamFields { contig: -1, flag: 4, ..DEFAULT_FIELDS }),
        ("mapped_without_contig", BamFields { contig: -1, ..DEFAULT_FIELDS }),
        ("mapped_without_position", BamFields { position: -1, ..DEFAULT_FIELDS }),
        ("wrong_bin", BamFields { bin: 0xffff, ..DEFAULT_FIELDS }),
        ("shortest_template", BamFields { template_length: i32::MIN, ..DEFAULT_FIELDS }),
        ("longest_template", BamFields { template_length: i32::MAX, ..DEFAULT_FIELDS }),
        ("star", BamFields { name: b"*\0", ..DEFAULT_FIELDS }),
        ("no_name", BamFields { name: b"\0", ..DEFAULT_FIELDS }),
        ("empty_operations", BamFields { cigar: &[0, 4 << 4, 2], ..DEFAULT_FIELDS }),
        ("only_clips", BamFields { cigar: &[4 << 4 | 4], ..DEFAULT_FIELDS }),
        ("no_cigar", BamFields { cigar: &[], ..DEFAULT_FIELDS }),
        ("no_bases", BamFields { bases: 0, ..DEFAULT_FIELDS }),
        ("no_qualities", BamFields { quality: 0xff, ..DEFAULT_FIELDS }),
        ("unmapped_with_cigar", BamFields { flag: 5, ..DEFAULT_FIELDS }),
        ("every_flag", BamFields { flag: 0xffff, ..DEFAULT_FIELDS }),
        (
            "short_cg",
            BamFields { cigar: &[4 << 4 | 4, 4 << 4 | 3], tags: b"CGBI\x01\0\0\0\x40\0\0\0", ..DEFAULT_FIELDS },
        ),
        (
            "long_cg",
            BamFields {
                cigar: &[4 << 4 | 4, 4 << 4 | 3],
                tags: b"CGBI\x02\0\0\0\x20\0\0\0\x27\0\0\0",
                ..DEFAULT_FIELDS
            },
        ),
        ("placeholder_alone", BamFields { cigar: &[4 << 4 | 4, 4 << 4 | 3], ..DEFAULT_FIELDS }),
        ("double", BamFields { tags: b"X0d\0\0\0\0\0\0\x0a\x40", ..DEFAULT_FIELDS }),
        ("odd_tags", BamFields { tags: b"__C\x05XXC\x05XXC\x06RGC\x05X1Z\0X2H123\0", ..DEFAULT_FIELDS }),
        ("beyond_contig", BamFields { position: 998, ..DEFAULT_FIELDS }),
    ];
    for (name, fields) in cases {
        let mut raw = b"BAM\x01".to_vec();
        raw.extend((text.len() as u32).to_le_bytes());
        raw.extend(text.as_bytes());
        raw.extend(b"\x01\0\0\0\x02\0\0\0c\0\xe8\x03\0\0");
        raw.extend(fields.record());
        raw.extend(BamFields { position: 70, name: b"last\0", ..DEFAULT_FIELDS }.record());
        let plain = write_file(&directory, &format!("{name}.raw"), &raw);
        let packed = run_checked(Tool::require("bgzip").command().arg("-c").arg(&plain)).stdout;
        let input = write_file(&directory, &format!("{name}.bam"), &packed);
        assert_same_as_samtools(&input, Some(("c:71-100", " WHERE region('c:71-100')")));
    }
}

#[test]
fn headers_that_samtools_reads_are_read() {
    needs!("samtools");
    let directory = scratch::directory("odd-headers");
    let record = "r\t0\tc\t10\t60\t4M\t*\t0\t0\tACGT\tIIII\n";
    for (name, header) in [
        ("no-hd", "@SQ\tSN:c\tLN:1000\n"),
        ("hd-last", "@SQ\tSN:c\tLN:1000\n@HD\tVN:1.6\n"),
        ("zeros", "@HD\tVN:1.6\n@SQ\tSN:c\tLN:0001000\n"),
        ("aliases", "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\tAN:one,two\tTP:circular\tDS:\u{fc}\n"),
        ("programs", "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\n@PG\tID:a\tPP:b\n@PG\tID:b\tPP:a\n@PG\tID:x\tPP:missing\n"),
        ("comments", "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\n@CO\n@CO\t\n@CO\tone\ttwo\n"),
        ("dos", "@HD\tVN:1.6\r\n@SQ\tSN:c\tLN:1000\r\n"),
    ] {
        let input = write_file(&directory, &format!("{name}.sam"), format!("{header}{record}").as_bytes());
        assert_same_as_samtools(&input, Some(("c:5-15", " WHERE region('c:5-15')")));
    }
}

#[test]
fn inputs_without_records_give_outputs_without_records_and_empty_files_are_named() {
    needs!("samtools", "bgzip");
    let directory = scratch::directory("without-records");
    let header = "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\n";
    let sam = write_file(&directory, "header.sam", header.as_bytes());
    let bam = directory.join("header.bam");
    run_checked(Tool::require("samtools").command().args(["view", "-b", "-o"]).arg(&bam).arg(&sam));
    for input in [&sam, &bam] {
        let out = input.with_extension("out.bam");
        godwit().arg("markdup").arg(input).arg("--out").arg(&out).run_ok();
        godwit().arg("verify").arg(&out).run_ok();
        assert_eq!(samtools_view(&out, &[]), "");
        let (parquet, name) = (input.with_extension("parquet"), input.file_name().expect("it has a name"));
        godwit().arg("markdup").arg(input).arg("--out").arg(&parquet).run_ok();
        let sql = format!("SELECT count(*) FROM \"{}\"", name.display());
        let query = godwit().args(["query", &sql, "--format", "csv", "--data"]).arg(&directory).run_ok();
        assert_eq!(query.stdout.lines().nth(1), Some("0"), "{}", query.describe());
    }
    let eof = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0";
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (name, content) in [("zero.bam", &b""[..]), ("eof.bam", eof), ("gzip.sam.gz", &gzip)] {
        let input = write_file(&directory, name, content);
        let finished = godwit().arg("markdup").arg(&input).arg("--out").arg(directory.join("o.bam")).run();
        finished.assert_rejected(&[3], &[name, "is empty"]);
    }
    let null = godwit().args(["markdup", "/dev/null", "--out"]).arg(directory.join("o.bam")).run();
    null.assert_rejected(&[3], &["/dev/null", "is empty"]);
}
