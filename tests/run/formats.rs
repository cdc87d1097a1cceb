//! CRAM, Parquet and Arrow in addition to BAM: the files are complete, contain the same records, have equivalent
//! indexes, and readers of other projects can read them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::fault_injection::{Fault, count_file_changes, inject_fault};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sam::SamText;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, sam_fuzzer, scratch};

use super::bwa_identity::align;

const ALL_FORMATS: &str = "bam,cram,parquet,arrow";
const TEST_REGIONS: [&str; 6] =
    ["chr1:1-500", "chr1:16300-16500", "chr1:60000-60700", "chr2:1-40000", "chr3:29900-30000", "chr1:1-1"];

fn options() -> AlignOptions {
    AlignOptions { block_bases: 100_000, ..AlignOptions::default() }
}

/// Returns a sample and its alignment in all formats, which all tests share.
pub fn aligned_sample() -> (Arc<Sample>, PathBuf) {
    static OUTPUT: OnceLock<PathBuf> = OnceLock::new();
    let spec = SampleSpec {
        seed: 17,
        lanes: vec![2500, 900],
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    };
    let sample = Sample::cached(&spec);
    let out = OUTPUT.get_or_init(|| {
        let out = scratch::directory("formats");
        align(&sample, &options(), &out)
            .args(["--threads", "2", "--partitions", "9", "--format", ALL_FORMATS])
            .run_ok();
        out
    });
    (sample, out.clone())
}

fn samtools(words: &[&str], file: &Path, more: &[&str]) -> String {
    let words = words.iter().map(AsRef::as_ref).chain([file.as_os_str()]).chain(more.iter().map(AsRef::as_ref));
    String::from_utf8(Tool::require("samtools").run(words).stdout).expect("samtools prints text")
}

/// Moves the tags last that CRAM does not keep in their position: RG has a data series of its own, and decoders generate
/// MD and NM again (CRAMv3 §10.5, §10.6).
fn move_regenerated_tags_last(text: &str) -> Vec<String> {
    let is_made = |field: &&str| ["MD:Z:", "NM:i:", "RG:Z:"].iter().any(|tag| field.starts_with(tag));
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let (mut made, kept): (Vec<&str>, Vec<&str>) = fields.into_iter().partition(is_made);
        made.sort_unstable();
        [kept, made].concat().join("\t")
    };
    text.lines().map(line).collect()
}

/// Compares lists of records. The message shows only the first that differ, because a long list is not readable.
pub fn assert_same_lines(found: &[String], expected: &[String], what: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{what}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

pub fn to_lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

pub fn pyarrow_python() -> Option<Tool> {
    python_with("columns")
}

/// Returns a Python with the packages of `tests/tools/NAME/requirements.txt`.
pub fn python_with(name: &str) -> Option<Tool> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let requirements = tests.join("tools").join(name).join("requirements.txt");
    let script = tests.join("../tools/python-packages.sh");
    let said = run_checked(std::process::Command::new(script).arg(name).arg(requirements)).stdout;
    Tool::find(String::from_utf8(said).expect("it prints a path").trim_end())
}

pub fn columns_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/columns").join(name)
}

pub fn run_python(name: &str, directory: &Path, words: &[&str]) -> String {
    let words = words.iter().map(AsRef::as_ref);
    let path = columns_script(name);
    let first = [path.as_os_str(), directory.as_os_str()];
    let output = pyarrow_python().expect("tools/python-packages.sh made it").run(first.into_iter().chain(words));
    String::from_utf8(output.stdout).expect("it prints text")
}

#[test]
fn the_cram_holds_what_the_bam_holds() {
    needs!("bwa", "samtools");
    let (sample, out) = aligned_sample();
    let (bam, cram) = (out.join("sample.bam"), out.join("sample.cram"));
    samtools(&["quickcheck", "-v"], &cram, &[]);
    let reference = sample.godwit_indexed_reference().to_str().expect("scratch paths are text").to_owned();
    let from_cram = samtools(&["view", "-T", &reference], &cram, &[]);
    let expected = samtools(&["view"], &bam, &[]);
    assert_same_lines(&move_regenerated_tags_last(&from_cram), &move_regenerated_tags_last(&expected), "CRAM");
    assert!(expected.lines().count() > 6000);
    // The header of the CRAM equals that of the BAM, except for the checksums of contigs that CRAM requires.
    let header = samtools(&["view", "-H", "--no-PG"], &cram, &[]);
    let without: Vec<&str> = header.lines().map(|line| line.split("\tM5:").next().unwrap_or_default()).collect();
    assert_eq!(without, samtools(&["view", "-H", "--no-PG"], &bam, &[]).lines().collect::<Vec<_>>());
    assert_eq!(header.matches("\tM5:").count(), header.matches("@SQ\t").count());
}

#[test]
fn the_index_of_the_cram_is_that_of_samtools() {
    needs!("bwa", "samtools");
    let (sample, out) = aligned_sample();
    let cram = out.join("sample.cram");
    let copy = scratch::directory("crai").join("copy.cram");
    std::fs::copy(&cram, &copy).expect("the output can be copied");
    samtools(&["index"], &copy, &[]);
    let entries = |cram: &Path| {
        let mut index = cram.as_os_str().to_owned();
        index.push(".crai");
        let mut text = String::new();
        let file = std::fs::File::open(index).expect("there is an index");
        std::io::Read::read_to_string(&mut flate2::read::MultiGzDecoder::new(file), &mut text).expect("it is gzip");
        text
    };
    assert_eq!(entries(&cram), entries(&copy));
    let reference = sample.godwit_indexed_reference().to_str().expect("scratch paths are text").to_owned();
    for region in TEST_REGIONS.into_iter().chain(["tiny", "*"]) {
        let count = |file: &Path| samtools(&["view", "-c", "-T", &reference], file, &[region]);
        assert_eq!(count(&cram), count(&out.join("sample.bam")), "{region}");
    }
}

#[test]
fn columns_read_back_are_the_sam_of_the_bam() {
    needs!("bwa", "samtools", "python3");
    let (_sample, out) = aligned_sample();
    let expected = samtools(&["view", "-h", "--no-PG"], &out.join("sample.bam"), &[]);
    for format in ["parquet", "arrow"] {
        let found = run_python("sam.py", &out.join(format!("sample.{format}")), &[]);
        assert_same_lines(&to_lines(&found), &to_lines(&expected), format);
    }
}

#[test]
fn columns_of_fuzzed_records_are_the_sam_of_their_bam() {
    needs!("samtools", "python3");
    let directory = scratch::directory("fuzzed-columns");
    for seed in 900..912 {
        let input = directory.join("input.sam");
        std::fs::write(&input, sam_fuzzer::generate_sam(seed).to_text())
            .expect("the scratch directory can be written to");
        let out = directory.join("found.bam");
        let command = godwit().arg("markdup").arg(&input).arg("--out").arg(&out).args(["--format", "parquet,arrow"]);
        command.args(["--partitions", "3"]).run_ok();
        let expected = samtools(&["view", "-h", "--no-PG"], &out, &[]);
        for format in ["parquet", "arrow"] {
            let found = run_python("sam.py", &directory.join(format!("found.{format}")), &[]);
            assert_same_lines(&to_lines(&found), &to_lines(&expected), &format!("seed {seed}, {format}"));
        }
    }
}

#[test]
fn pyarrow_polars_and_duckdb_count_what_samtools_counts_and_read_little() {
    needs!("bwa", "samtools", "python3");
    let (_sample, out) = aligned_sample();
    let found = run_python("regions.py", &out.join("sample.parquet"), &TEST_REGIONS);
    for (region, line) in TEST_REGIONS.iter().zip(found.lines()) {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("it prints numbers")).collect();
        let expected: u64 =
            samtools(&["view", "-c"], &out.join("sample.bam"), &[region]).trim().parse().expect("a count");
        assert_eq!(numbers[..3], [expected; 3], "{region}");
    }
    let first = found.lines().next().expect("a line for each region");
    let numbers: Vec<u64> = first.split(' ').map(|number| number.parse().expect("it prints numbers")).collect();
    // The region is in one of nine partitions. The reader must read only this partition and the footers of all files.
    assert!(numbers[3] * 2 < numbers[4], "{} of {} bytes were read", numbers[3], numbers[4]);
}

#[test]
fn bytes_depend_neither_on_threads_nor_on_the_other_formats() {
    needs!("bwa");
    let (sample, out) = aligned_sample();
    let other = scratch::directory("formats-again");
    for formats in ["bam", "parquet,cram", "arrow"] {
        let run = align(&sample, &options(), &other).args(["--partitions", "9", "--format", formats]);
        run.args(["--threads", if formats == "bam" { "1" } else { "3" }]).run_ok();
    }
    let mut compared = 0;
    for name in ["sample.bam", "sample.bam.bai", "sample.cram", "sample.cram.crai", "sample.parquet", "sample.arrow"] {
        let mut files = vec![PathBuf::from(name)];
        if out.join(name).is_dir() {
            let entries = std::fs::read_dir(out.join(name)).expect("it can be read");
            files = entries.map(|entry| Path::new(name).join(entry.expect("it can be read").file_name())).collect();
            assert_eq!(files.len(), std::fs::read_dir(other.join(name)).expect("it is there").count(), "{name}");
        }
        for file in files {
            let bytes = |directory: &Path| std::fs::read(directory.join(&file)).expect("a file can be read");
            assert!(bytes(&out) == bytes(&other), "{} differs", file.display());
            compared += 1;
        }
    }
    assert!(compared > 20, "only {compared} files were compared");
}

#[test]
fn statistics_are_there_whatever_the_format() {
    needs!("bwa");
    let (sample, out) = aligned_sample();
    let other = scratch::directory("parquet-only");
    align(&sample, &options(), &other).args(["--format", "parquet", "--partitions", "9"]).run_ok();
    for name in ["sample.flagstat.txt", "sample.idxstats.txt", "sample.duplicates.txt"] {
        let text = |directory: &Path| std::fs::read_to_string(directory.join(name)).expect("godwit wrote it");
        assert_eq!(text(&out), text(&other), "{name}");
    }
    assert!(!other.join("sample.bam").exists());
}

#[test]
fn marking_a_cram_is_marking_its_bam() {
    needs!("bwa", "samtools");
    let (sample, out) = aligned_sample();
    let directory = scratch::directory("markdup-cram");
    let reference = sample.godwit_indexed_reference();
    for input in ["bam", "cram"] {
        let command = godwit().arg("markdup").arg(out.join(format!("sample.{input}")));
        let command = command.arg("--out").arg(directory.join(format!("from-{input}.cram")));
        command.args(["--format", "bam", "--reference"]).arg(reference).run_ok();
    }
    let records = |name: &str| SamText::read(&directory.join(name)).to_text();
    let (from_bam, from_cram) = (records("from-bam.bam"), records("from-cram.bam"));
    let body = |text: &str| -> Vec<String> {
        move_regenerated_tags_last(text).into_iter().filter(|line| !line.starts_with('@')).collect()
    };
    assert_same_lines(&body(&from_cram), &body(&from_bam), "from CRAM and from BAM");
    samtools(&["quickcheck", "-v"], &directory.join("from-cram.cram"), &[]);
}

#[test]
fn a_reference_that_is_missing_or_another_is_named() {
    needs!("bwa");
    let (sample, out) = aligned_sample();
    let directory = scratch::directory("cram-reference");
    let cram = out.join("sample.cram");
    let text = std::fs::read_to_string(sample.godwit_indexed_reference()).expect("the reference is text");
    let other = directory.join("other.fa");
    let (title, bases) = text.split_once('\n').expect("a title and bases");
    let changed = if bases.starts_with('A') { 'C' } else { 'A' };
    std::fs::write(&other, format!("{title}\n{changed}{}", &bases[1..])).expect("it can be written");
    let renamed = directory.join("renamed.fa");
    std::fs::write(&renamed, text.replacen(">chr1", ">1", 1)).expect("it can be written");
    let markdup = |input: &Path, to: &str| {
        godwit().arg("markdup").arg(input).arg("--out").arg(directory.join(to)).env("REF_PATH", "").env("REF_CACHE", "")
    };
    markdup(&cram, "a.bam").run().assert_rejected(&[3], &["sample.cram", "--reference"]);
    markdup(&cram, "a.bam").arg("--reference").arg(&other).run().assert_rejected(&[3], &["chr1", "M5", "other.fa"]);
    let bam = out.join("sample.bam");
    markdup(&bam, "a.cram").run().assert_rejected(&[2], &["--reference"]);
    markdup(&bam, "a.cram")
        .arg("--reference")
        .arg(&renamed)
        .run()
        .assert_rejected(&[3], &["no contig chr1", "renamed.fa"]);
    markdup(&bam, "a.cram").arg("--reference").arg(directory.join("none.fa")).run().assert_rejected(&[4], &["none.fa"]);
    let whole = std::fs::read(&cram).expect("it can be read");
    let cut = directory.join("cut.cram");
    std::fs::write(&cut, &whole[..whole.len() - 38]).expect("it can be written");
    let reference = sample.godwit_indexed_reference();
    markdup(&cut, "a.bam").arg("--reference").arg(reference).run().assert_rejected(&[3], &["truncated"]);
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(&cut, &damaged).expect("it can be written");
    markdup(&cut, "a.bam").arg("--reference").arg(reference).run().assert_rejected(&[3], &["record", "cut.cram"]);
    markdup(&bam, "a.txt").run().assert_rejected(&[2], &[".parquet"]);
    let left = std::fs::read_dir(&directory).expect("it can be read");
    let mut left: Vec<_> = left.map(|entry| entry.expect("it can be read").file_name()).collect();
    left.sort();
    assert_eq!(left, ["cut.cram", "other.fa", "renamed.fa"], "only the test's own files are left");
}

/// Returns a small run with all formats that writes one partition at a time.
fn small_run(out: &Path) -> GodwitCommand {
    let lanes = vec![500, 300];
    let spec = SampleSpec { seed: 21, lanes, paired: true, alternate: false, comments: TitleComments::Illumina };
    let options = AlignOptions { block_bases: 30_000, ..AlignOptions::default() };
    let run = align(&Sample::cached(&spec), &options, out);
    run.args(["--threads", "1", "--partitions", "4", "--metrics", "off", "--format", ALL_FORMATS])
}

/// Returns every file below a directory with its content, except those that contain times.
fn file_contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(&next).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                pending.push(path);
            } else if !path.ends_with("run.json") && !path.ends_with("report.html") {
                let name = path.strip_prefix(directory).expect("it is below").to_owned();
                found.push((name, std::fs::read(&path).expect("it can be read")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_run_with_all_formats_goes_on_after_whatever_stopped_it() {
    needs!("bwa", "cc");
    let undisturbed = scratch::directory("all-formats");
    let all = count_file_changes(small_run(&undisturbed), &undisturbed);
    let expected = file_contents(&undisturbed);
    assert!(expected.iter().any(|(name, _)| name.starts_with("sample.parquet")));
    for (fault, first) in [(Fault::Kill, 1), (Fault::Error, 4), (Fault::FullDisk, 7)] {
        for at in (first..=all).step_by((all / 6).max(1) as usize) {
            let out = scratch::directory("all-formats-stopped");
            let stopped = inject_fault(small_run(&out), &out, fault, at).run();
            if fault != Fault::Kill && !stopped.status.success() {
                stopped.assert_rejected(&[4], &[]);
            }
            let resumed = small_run(&out).arg("--resume").run();
            assert!(resumed.status.success(), "{fault:?} at {at}: {}\nthen {}", stopped.describe(), resumed.describe());
            let (found, names) = (file_contents(&out), |found: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
                found.iter().map(|(name, _)| name.clone()).collect()
            });
            assert_eq!(names(&found), names(&expected), "{fault:?} at {at}");
            for ((name, found), (_, expected)) in found.iter().zip(&expected) {
                assert!(found == expected, "{fault:?} at {at}: {} differs", name.display());
            }
        }
    }
}

#[test]
fn what_a_killed_run_left_of_its_columns_goes_when_another_starts() {
    needs!("bwa", "cc");
    let out = scratch::directory("killed-columns");
    let all = count_file_changes(small_run(&out), &out);
    std::fs::remove_dir_all(&out).expect("it can be removed");
    std::fs::create_dir(&out).expect("it can be made");
    inject_fault(small_run(&out), &out, Fault::Kill, all * 8 / 10).run();
    let aside = out.join(".sample.parquet.godwit-part");
    assert!(aside.is_dir(), "the run was not killed while it wrote columns");
    let spec = SampleSpec {
        seed: 21,
        lanes: vec![500, 300],
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    };
    align(&Sample::cached(&spec), &options(), &out).args(["--threads", "1"]).run_ok();
    let left = std::fs::read_dir(&out).expect("it can be read");
    let hidden =
        left.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with('.')));
    assert_eq!(hidden.count(), 0, "something was left aside");
}
