//! Interval joins against bedtools, and depths against samtools, on data drawn from seeds.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use godwit_tests::binary::run_query;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::query_rows::rows;
use super::regions::random_regions;
use crate::run::formats::{aligned_sample, assert_same_lines, to_lines};

fn sort_lines(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_unstable();
    lines
}

fn bedtools(directory: &Path, words: &[&str]) -> Vec<String> {
    let mut command = Tool::require("bedtools").command();
    let output = command.args(words).current_dir(directory).output().expect("bedtools can be started");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    sort_lines(to_lines(&String::from_utf8(output.stdout).expect("bedtools prints text")))
}

/// Writes named intervals, sorted as bedtools requires: many short ones, some that contain others, some equal, none on
/// one contig.
fn write_random_bed(path: &Path, seed: u64, count: usize, contigs: &[&str]) {
    let mut random = Random::new(seed);
    let mut intervals: Vec<(String, i64, i64)> = Vec::new();
    while intervals.len() < count {
        let contig = *random.pick(contigs);
        let start = random.between(0, 60_000);
        let length = *random.pick(&[1, 5, 60, 60, 300, 20_000]);
        intervals.push((contig.to_owned(), start, start + random.between(1, length)));
        if random.chance(0.1) {
            intervals.extend(intervals.last().cloned());
        }
    }
    intervals.sort_unstable();
    let mut text = String::new();
    for (at, (contig, start, end)) in intervals.iter().enumerate() {
        let strand = if at % 3 == 0 { '-' } else { '+' };
        writeln!(text, "{contig}\t{start}\t{end}\tn{at}\t{}\t{strand}", at % 50).expect("memory takes it");
    }
    fs::write(path, text).expect("it can be written");
}

fn two_tables(label: &str, seed: u64) -> std::path::PathBuf {
    let directory = scratch::directory(label);
    write_random_bed(&directory.join("a.bed"), seed, 700, &["chr1", "chr2", "chrA"]);
    write_random_bed(&directory.join("b.bed"), seed + 1, 900, &["chr1", "chr2", "chrB"]);
    directory
}

/// The overlap of intervals of two tables, in the form that users write.
const OVERLAP_CONDITION: &str =
    "ON a.contig = b.contig AND a.position < b.end_position AND b.position < a.end_position";
const COLUMNS_OF_A: &str = "a.contig, a.position, a.end_position, a.name";

#[test]
fn rows_that_overlap_are_those_of_bedtools() {
    needs!("bedtools");
    for seed in [7201, 7301] {
        let directory = two_tables("joins", seed);
        let ask = |sql: &str| sort_lines(rows(&directory, sql));
        let intersect = |words: &[&str]| {
            let told = bedtools(&directory, &[&["intersect", "-a", "a.bed", "-b", "b.bed"], words].concat());
            let fields = |line: &String, kept: &[usize]| {
                let fields: Vec<&str> = line.split('\t').collect();
                kept.iter().filter_map(|at| fields.get(*at)).copied().collect::<Vec<_>>().join("\t")
            };
            sort_lines(told.iter().map(|line| fields(line, &[0, 1, 2, 3, 6, 7, 8, 9])).collect())
        };
        let short = |lines: Vec<String>| -> Vec<String> {
            sort_lines(lines.iter().map(|line| line.split('\t').take(4).collect::<Vec<_>>().join("\t")).collect())
        };
        let pairs = intersect(&["-wa", "-wb"]);
        assert!(pairs.len() > 5000, "{}", pairs.len());
        let of_both = "contig, position, end_position, name, contig_2, position_2, end_position_2, name_2";
        assert_same_lines(&ask(&format!("SELECT {of_both} FROM overlaps('a.bed', 'b.bed')")), &pairs, "overlaps");
        let of_b = "b.contig, b.position, b.end_position, b.name";
        let written = format!("SELECT {COLUMNS_OF_A}, {of_b} FROM a JOIN b {OVERLAP_CONDITION}");
        assert_same_lines(&ask(&written), &pairs, "as it is written");
        // Conditions with closed interval ends, in any order, and with additions.
        let closed = "ON b.contig = a.contig AND b.end_position - 1 >= a.position AND a.end_position > b.position";
        assert_same_lines(&ask(&format!("SELECT {COLUMNS_OF_A}, {of_b} FROM a JOIN b {closed}")), &pairs, "closed");
        let further =
            format!("SELECT {COLUMNS_OF_A}, {of_b} FROM a JOIN b {OVERLAP_CONDITION} AND a.strand = b.strand");
        assert_same_lines(&ask(&further), &intersect(&["-wa", "-wb", "-s"]), "of one strand");
        let some = format!("SELECT {COLUMNS_OF_A}, {of_b} FROM a JOIN b {OVERLAP_CONDITION} AND a.score < b.score");
        let lesser = bedtools(&directory, &["intersect", "-wa", "-wb", "-a", "a.bed", "-b", "b.bed"]);
        let lesser = lesser.iter().filter(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            fields[4].parse::<i32>().expect("a number") < fields[10].parse::<i32>().expect("a number")
        });
        assert_eq!(ask(&some).len(), lesser.count());
        let met =
            format!("SELECT {COLUMNS_OF_A} FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {})", &OVERLAP_CONDITION[3..]);
        assert_same_lines(&ask(&met), &short(intersect(&["-u"])), "EXISTS");
        let lone = format!(
            "SELECT {COLUMNS_OF_A} FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {})",
            &OVERLAP_CONDITION[3..]
        );
        let expected = short(intersect(&["-v"]));
        assert!(!expected.is_empty());
        assert_same_lines(&ask(&lone), &expected, "NOT EXISTS");
        let left = format!(
            "SELECT {COLUMNS_OF_A}, coalesce(b.contig, '.'), coalesce(b.position, -1), coalesce(b.end_position, -1), \
             coalesce(b.name, '.') FROM a LEFT JOIN b {OVERLAP_CONDITION}"
        );
        assert_same_lines(&ask(&left), &intersect(&["-loj"]), "LEFT JOIN");
    }
}

#[test]
fn the_nearest_rows_are_those_of_bedtools() {
    needs!("bedtools");
    let directory = scratch::directory("nearest");
    write_random_bed(&directory.join("a.bed"), 7401, 500, &["chr1", "chr2", "chrA"]);
    write_random_bed(&directory.join("b.bed"), 7402, 60, &["chr1", "chr2", "chrB"]);
    let sql = "SELECT contig, position, end_position, name, coalesce(name_2, '.'), coalesce(distance, -1) \
        FROM nearest('a.bed', 'b.bed')";
    let told = bedtools(&directory, &["closest", "-d", "-a", "a.bed", "-b", "b.bed"]);
    let fields = |line: &String| {
        let fields: Vec<&str> = line.split('\t').collect();
        [&fields[..4], &[fields[9], fields[12]]].concat().join("\t")
    };
    let expected = sort_lines(told.iter().map(fields).collect());
    assert_same_lines(&sort_lines(rows(&directory, sql)), &expected, "nearest");
    let far = "SELECT count(*) FROM nearest('a.bed', 'b.bed') WHERE distance > 1000";
    let is_far =
        |line: &&String| line.rsplit('\t').next().and_then(|far| far.parse::<i64>().ok()).is_some_and(|far| far > 1000);
    assert_eq!(rows(&directory, far), [expected.iter().filter(is_far).count().to_string()]);
}

#[test]
fn joins_of_places_are_planned_as_such_and_held_to_their_memory() {
    let directory = two_tables("join-plans", 7501);
    let plan = |sql: &str| rows(&directory, &format!("EXPLAIN {sql}")).join("\n");
    for sql in [
        format!("SELECT count(*) FROM a JOIN b {OVERLAP_CONDITION}"),
        format!("SELECT count(*) FROM a, b WHERE {}", &OVERLAP_CONDITION[3..]),
        format!("SELECT a.name FROM a LEFT JOIN b {OVERLAP_CONDITION}"),
        format!("SELECT a.name FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {})", &OVERLAP_CONDITION[3..]),
        "SELECT count(*) FROM overlaps('a.bed', 'b.bed')".to_owned(),
    ] {
        let plan = plan(&sql);
        assert!(plan.contains("IntervalJoinExec") && !plan.contains("HashJoinExec"), "{sql}\n{plan}");
    }
    // The smaller table is the build side, in either order.
    fs::write(directory.join("few.bed"), "chr1\t5\t100\n").expect("it can be written");
    for sql in ["SELECT * FROM overlaps('a.bed', 'few.bed')", "SELECT * FROM overlaps('few.bed', 'a.bed')"] {
        let plan = plan(sql);
        let held = plan.split("IntervalJoinExec").nth(1).and_then(|plan| plan.split("DatasetExec: ").nth(1));
        assert!(held.is_some_and(|held| held.starts_with("few.bed")), "{sql}\n{plan}");
    }
    // A condition on one bound only is not an interval join.
    let other = plan("SELECT count(*) FROM a JOIN b ON a.contig = b.contig AND a.position < b.end_position");
    assert!(other.contains("HashJoinExec"), "{other}");
    // All 20,000 intervals overlap, so the join returns 400 million pairs. The server must not store them.
    let all: String = (0..20_000).map(|at| format!("chr1\t{at}\t{}\n", 100_000 + at)).collect();
    fs::write(directory.join("all.bed"), all).expect("it can be written");
    let first = "SELECT position, position_2 FROM overlaps('all.bed', 'all.bed') LIMIT 5";
    assert_eq!(rows(&directory, first).len(), 5);
    run_query(&directory, first, &["--memory", "1M"]).assert_rejected(&[2, 3, 4], &["memory"]);
    for (sql, word) in [
        ("SELECT * FROM overlaps('a.bed')", "two tables"),
        ("SELECT * FROM overlaps('a.bed', 'missing.bed')", "missing.bed"),
        ("SELECT * FROM nearest('a.bed', 7)", "single quotes"),
    ] {
        run_query(&directory, sql, &[]).assert_rejected(&[2], &[word]);
    }
    fs::write(directory.join("t.csv"), "a,b\n1,2\n").expect("it can be written");
    run_query(&directory, "SELECT * FROM nearest('a.bed', 't.csv')", &[]).assert_rejected(&[2], &["t.csv", "contig"]);
}

/// Returns depths of single bases, from intervals.
fn depth_per_base(rows: &[String]) -> Vec<String> {
    let mut bases = Vec::new();
    let mut last = (String::new(), 0);
    for row in rows {
        let fields: Vec<&str> = row.split('\t').collect();
        let number = |at: usize| fields[at].parse::<i64>().expect("a number");
        assert!(number(1) < number(2) && (fields[0] != last.0 || number(1) >= last.1), "{row}");
        last = (fields[0].to_owned(), number(2));
        bases.extend((number(1)..number(2)).map(|base| format!("{}\t{}\t{}", fields[0], base + 1, fields[3])));
    }
    bases
}

#[test]
fn depths_are_those_of_samtools() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let depth = |words: &[&str]| {
        let words = ["depth"].iter().chain(words).map(|word| std::ffi::OsStr::new(*word).to_owned());
        let output = Tool::require("samtools").run(words.chain([out.join("sample.bam").into_os_string()]));
        // samtools lists bases that are covered only by deletions or skips with a depth of zero; remove these lines.
        let mut listed = to_lines(&String::from_utf8(output.stdout).expect("samtools prints text"));
        listed.retain(|line| !line.ends_with("\t0"));
        listed
    };
    let columns = "SELECT contig, position, end_position, depth FROM";
    let whole = depth(&[]);
    assert!(whole.len() > 100_000, "{}", whole.len());
    for name in ["sample.bam", "sample.parquet", "sample.arrow"] {
        let found = depth_per_base(&rows(&out, &format!("{columns} coverage('{name}')")));
        assert_same_lines(&found, &whole, name);
    }
    for region in random_regions(7601, 14) {
        let expected = depth(&["-r", &region]);
        let found = depth_per_base(&rows(&out, &format!("{columns} coverage('sample.bam', '{region}')")));
        assert_same_lines(&found, &expected, &region);
    }
    // A condition on positions selects whole intervals and does not clip them.
    let all = rows(&out, &format!("{columns} coverage('sample.bam')"));
    let within = |row: &&String| {
        let fields: Vec<&str> = row.split('\t').collect();
        let number = |at: usize| fields[at].parse::<i64>().expect("a number");
        fields[0] == "chr2" && number(1) < 22_000 && number(2) > 19_999
    };
    let expected: Vec<String> = all.iter().filter(within).cloned().collect();
    let sql = format!("{columns} coverage('sample.bam') WHERE region('chr2:20000-22000')");
    assert_same_lines(&rows(&out, &sql), &expected, "condition");
    let mean = rows(&out, "SELECT sum(depth * (end_position - position)) FROM coverage('sample.bam')");
    let sum: i64 = whole
        .iter()
        .map(|line| line.rsplit('\t').next().and_then(|depth| depth.parse::<i64>().ok()).expect("a number"))
        .sum();
    assert_eq!(mean, [sum.to_string()]);
}

#[test]
fn depth_wants_reads_that_are_sorted() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = scratch::directory("unsorted-depth");
    let (unsorted, bam) = (directory.join("u.sam"), out.join("sample.bam"));
    Tool::require("samtools").run([
        "sort".as_ref(),
        "-n".as_ref(),
        "-O".as_ref(),
        "sam".as_ref(),
        "-o".as_ref(),
        unsorted.as_os_str(),
        bam.as_os_str(),
    ]);
    run_query(&directory, "SELECT * FROM coverage('u.sam')", &[]).assert_rejected(&[2], &["u.sam", "samtools sort"]);
    let lying = fs::read_to_string(&unsorted).expect("it is there").replace("SO:queryname", "SO:coordinate");
    fs::write(&unsorted, lying).expect("it can be written");
    run_query(&directory, "SELECT * FROM coverage('u.sam')", &[]).assert_rejected(&[3], &["u.sam", "not sorted"]);
    run_query(&out, "SELECT * FROM coverage('sample.bam', 'chr1:5-2')", &[]).assert_rejected(&[2], &["chr1:5-2"]);
}

#[test]
fn depths_of_a_bam_with_an_index_need_no_order_in_its_header() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = scratch::directory("depth-without-order");
    let bam = |name: &str| directory.join(name).to_str().expect("scratch paths are text").to_owned();
    let text =
        Tool::require("samtools").run(["view", "-h", out.join("sample.bam").to_str().expect("it is text")]).stdout;
    let text = String::from_utf8(text).expect("samtools prints text");
    let (order, rest) = text.split_once('\n').expect("it has lines");
    assert!(order.starts_with("@HD"), "{order}");
    fs::write(directory.join("s.sam"), rest).expect("it can be written");
    Tool::require("samtools").run(["view", "-b", "--no-PG", "-o", &bam("s.bam"), &bam("s.sam")]);
    fs::copy(directory.join("s.bam"), directory.join("bare.bam")).expect("it can be copied");
    Tool::require("samtools").run(["index", &bam("s.bam")]);
    for function in ["coverage", "pileup", "mismatches"] {
        let ask =
            |directory: &Path, name: &str| rows(directory, &format!("SELECT * FROM {function}('{name}', 'chr2')"));
        assert_same_lines(&ask(&directory, "s.bam"), &ask(&out, "sample.bam"), function);
        run_query(&directory, &format!("SELECT * FROM {function}('bare.bam')"), &[])
            .assert_rejected(&[2], &["the header of bare.bam does not have SO:coordinate", "samtools index"]);
    }
    let windows =
        |directory: &Path, name: &str| rows(directory, &format!("SELECT * FROM coverage_windows('{name}', 5000)"));
    assert_same_lines(&windows(&directory, "s.bam"), &windows(&out, "sample.bam"), "coverage_windows");
}

#[test]
fn reads_are_joined_with_places() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    // Contig names are dictionary-encoded in reads and plain strings in BED; the join must support both.
    let beside = scratch::directory("reads-and-places");
    for name in ["sample.bam", "sample.bam.bai"] {
        fs::copy(out.join(name), beside.join(name)).expect("it can be copied");
    }
    fs::write(beside.join("t.bed"), "chr1\t1000\t2000\tone\nchr2\t20000\t20001\ttwo\n").expect("it can be written");
    let count = |region: &str| {
        let output = Tool::require("samtools").run([
            "view".as_ref(),
            "-c".as_ref(),
            out.join("sample.bam").as_os_str(),
            region.as_ref(),
        ]);
        String::from_utf8(output.stdout).expect("samtools prints text").trim().to_owned()
    };
    let expected = [format!("one\t{}", count("chr1:1001-2000")), format!("two\t{}", count("chr2:20001-20001"))];
    let counted = "SELECT name_2, count(*) FROM overlaps('sample.bam', 't.bed') GROUP BY name_2 ORDER BY name_2";
    assert_eq!(rows(&beside, counted), expected);
    let nearest = "SELECT name_2, count(*) FROM nearest('sample.bam', 't.bed') WHERE distance = 0 GROUP BY name_2 ORDER BY name_2";
    assert_eq!(rows(&beside, nearest), expected);
}

#[test]
fn counts_and_bounds_of_footers_are_used() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let plan = |sql: &str| rows(&out, &format!("EXPLAIN {sql}")).join("\n");
    for name in ["sample.bam", "sample.parquet", "sample.arrow"] {
        let plan = plan(&format!("SELECT count(*) FROM \"{name}\""));
        assert!(plan.contains("PlaceholderRowExec") && !plan.contains("DatasetExec"), "{name}\n{plan}");
    }
    let sql = "EXPLAIN ANALYZE SELECT count(name) FROM \"sample.parquet\" WHERE contig = 'nowhere'";
    let told = rows(&out, sql).join("\n");
    assert!(told.contains("row_groups_pruned_statistics") || told.contains("files_ranges_pruned_statistics"), "{told}");
}
