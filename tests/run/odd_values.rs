//! Values that the SAM specification or samtools accepts, however odd, come through `markdup` and `query` as samtools has them.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::godwit;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

/// What `samtools view` prints of a file with these words.
fn view(path: &Path, words: &[&str]) -> String {
    let printed = succeed(Tool::need("samtools").command().arg("view").arg(path).args(words)).stdout;
    String::from_utf8(printed).expect("samtools prints text")
}

/// Sorts `input` with samtools and with godwit, and compares the records; then counts them by SQL, all and by `region`.
fn assert_as_samtools(input: &Path, region: Option<(&str, &str)>) {
    let (theirs, ours) = (input.with_extension("samtools.bam"), input.with_extension("godwit.bam"));
    succeed(Tool::need("samtools").command().args(["sort", "--no-PG", "-o"]).arg(&theirs).arg(input));
    let markdup = godwit().arg("markdup").arg(input).args(["--duplicates", "none", "--out"]).arg(&ours);
    markdup.succeeds();
    assert_eq!(view(&ours, &[]), view(&theirs, &[]), "{}", input.display());
    godwit().arg("verify").arg(&ours).succeeds();
    let directory = input.parent().expect("it is in a directory");
    let sql = |from: &Path, condition: &str| {
        let name = from.file_name().expect("it has a name").to_string_lossy().into_owned();
        let statement = format!("SELECT count(*), min(mate_position) FROM \"{name}\"{condition}");
        let query = godwit().args(["query", &statement, "--format", "csv", "--data"]).arg(directory).succeeds();
        let row = query.stdout.lines().nth(1).expect("a row follows the names").to_owned();
        let (count, mate) = row.split_once(',').expect("there are two columns");
        assert!(mate.is_empty() || mate.parse::<i64>().is_ok_and(|mate| mate >= -1), "{row}");
        count.parse::<usize>().expect("a count is a number")
    };
    let all = view(&theirs, &[]).lines().count();
    assert_eq!((sql(input, ""), sql(&ours, "")), (all, all), "{}", input.display());
    if let Some((samtools, condition)) = region {
        let found = view(&ours, &[samtools]).lines().count();
        assert!(found > 0, "the region has reads");
        assert_eq!(sql(&ours, condition), found, "{}", input.display());
    }
}

fn written(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
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
    let input = written(&directory, "numbers.sam", text.as_bytes());
    assert_as_samtools(&input, Some(("c:100-300", " WHERE region('c:100-300')")));
}

#[test]
fn the_last_base_of_the_longest_contig_is_read_indexed_and_found() {
    needs!("samtools");
    let directory = scratch::directory("last-base");
    let text = "@HD\tVN:1.6\n@SQ\tSN:c\tLN:2147483647\n\
        r1\t0\tc\t2147483647\t60\t1M\t*\t0\t0\tA\tI\n\
        r2\t16\tc\t2147483647\t60\t1M2S\t*\t0\t0\tACG\tIII\n\
        r3\t0\tc\t2147483640\t60\t8M\t*\t0\t0\tACGTACGT\tIIIIIIII\n";
    let input = written(&directory, "last.sam", text.as_bytes());
    let region = "c:2147483647-2147483647";
    assert_as_samtools(&input, Some((region, &format!(" WHERE region('{region}')"))));
    for duplicates in ["mark", "remove"] {
        let out = directory.join(format!("{duplicates}.bam"));
        let markdup = godwit().arg("markdup").arg(&input).args(["--duplicates", duplicates, "--out"]).arg(&out);
        markdup.succeeds();
        assert_eq!(view(&out, &[region]).lines().count(), 3);
    }
}

/// Fields of a BAM record that a case changes.
struct Fields {
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

const PLAIN: Fields = Fields {
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

impl Fields {
    /// SAMv1 §4.2.
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
        ("mate_far_below", Fields { flag: 99, mate_position: -155_264_057, ..PLAIN }),
        ("mate_below", Fields { flag: 99, mate_position: -2, ..PLAIN }),
        ("mate_below_on_contig", Fields { mate_contig: 0, mate_position: -7, ..PLAIN }),
        ("mate_without_contig", Fields { mate_position: 9, ..PLAIN }),
        ("mate_without_position", Fields { mate_contig: 0, ..PLAIN }),
        ("position_without_contig", Fields { contig: -1, flag: 4, ..PLAIN }),
        ("mapped_without_contig", Fields { contig: -1, ..PLAIN }),
        ("mapped_without_position", Fields { position: -1, ..PLAIN }),
        ("wrong_bin", Fields { bin: 0xffff, ..PLAIN }),
        ("shortest_template", Fields { template_length: i32::MIN, ..PLAIN }),
        ("longest_template", Fields { template_length: i32::MAX, ..PLAIN }),
        ("star", Fields { name: b"*\0", ..PLAIN }),
        ("no_name", Fields { name: b"\0", ..PLAIN }),
        ("empty_operations", Fields { cigar: &[0, 4 << 4, 2], ..PLAIN }),
        ("only_clips", Fields { cigar: &[4 << 4 | 4], ..PLAIN }),
        ("no_cigar", Fields { cigar: &[], ..PLAIN }),
        ("no_bases", Fields { bases: 0, ..PLAIN }),
        ("no_qualities", Fields { quality: 0xff, ..PLAIN }),
        ("unmapped_with_cigar", Fields { flag: 5, ..PLAIN }),
        ("every_flag", Fields { flag: 0xffff, ..PLAIN }),
        ("short_cg", Fields { cigar: &[4 << 4 | 4, 4 << 4 | 3], tags: b"CGBI\x01\0\0\0\x40\0\0\0", ..PLAIN }),
        ("long_cg", Fields { cigar: &[4 << 4 | 4, 4 << 4 | 3], tags: b"CGBI\x02\0\0\0\x20\0\0\0\x27\0\0\0", ..PLAIN }),
        ("placeholder_alone", Fields { cigar: &[4 << 4 | 4, 4 << 4 | 3], ..PLAIN }),
        ("double", Fields { tags: b"X0d\0\0\0\0\0\0\x0a\x40", ..PLAIN }),
        ("odd_tags", Fields { tags: b"__C\x05XXC\x05XXC\x06RGC\x05X1Z\0X2H123\0", ..PLAIN }),
        ("beyond_contig", Fields { position: 998, ..PLAIN }),
    ];
    for (name, fields) in cases {
        let mut raw = b"BAM\x01".to_vec();
        raw.extend((text.len() as u32).to_le_bytes());
        raw.extend(text.as_bytes());
        raw.extend(b"\x01\0\0\0\x02\0\0\0c\0\xe8\x03\0\0");
        raw.extend(fields.record());
        raw.extend(Fields { position: 70, name: b"last\0", ..PLAIN }.record());
        let plain = written(&directory, &format!("{name}.raw"), &raw);
        let packed = succeed(Tool::need("bgzip").command().arg("-c").arg(&plain)).stdout;
        let input = written(&directory, &format!("{name}.bam"), &packed);
        assert_as_samtools(&input, Some(("c:71-100", " WHERE region('c:71-100')")));
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
        let input = written(&directory, &format!("{name}.sam"), format!("{header}{record}").as_bytes());
        assert_as_samtools(&input, Some(("c:5-15", " WHERE region('c:5-15')")));
    }
}

#[test]
fn inputs_without_records_give_outputs_without_records_and_empty_files_are_named() {
    needs!("samtools", "bgzip");
    let directory = scratch::directory("without-records");
    let header = "@HD\tVN:1.6\n@SQ\tSN:c\tLN:1000\n";
    let sam = written(&directory, "header.sam", header.as_bytes());
    let bam = directory.join("header.bam");
    succeed(Tool::need("samtools").command().args(["view", "-b", "-o"]).arg(&bam).arg(&sam));
    for input in [&sam, &bam] {
        let out = input.with_extension("out.bam");
        godwit().arg("markdup").arg(input).arg("--out").arg(&out).succeeds();
        godwit().arg("verify").arg(&out).succeeds();
        assert_eq!(view(&out, &[]), "");
        let (parquet, name) = (input.with_extension("parquet"), input.file_name().expect("it has a name"));
        godwit().arg("markdup").arg(input).arg("--out").arg(&parquet).succeeds();
        let sql = format!("SELECT count(*) FROM \"{}\"", name.display());
        let query = godwit().args(["query", &sql, "--format", "csv", "--data"]).arg(&directory).succeeds();
        assert_eq!(query.stdout.lines().nth(1), Some("0"), "{}", query.report());
    }
    let eof = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0";
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (name, content) in [("zero.bam", &b""[..]), ("eof.bam", eof), ("gzip.sam.gz", &gzip)] {
        let input = written(&directory, name, content);
        let finished = godwit().arg("markdup").arg(&input).arg("--out").arg(directory.join("o.bam")).run();
        finished.refuses(&[3], &[name, "is empty"]);
    }
    let null = godwit().args(["markdup", "/dev/null", "--out"]).arg(directory.join("o.bam")).run();
    null.refuses(&[3], &["/dev/null", "is empty"]);
}
