//! `godwit markdup` against samtools sort and Picard MarkDuplicates 3.4.0: flags, all other fields, metrics values.

use std::path::{Path, PathBuf};
use std::time::Instant;

use godwit_tests::binary::godwit;
use godwit_tests::duplicate_options::{MarkingOptions, TaggingPolicy, group_by_name};
use godwit_tests::metrics::{self, MetricsFile};
use godwit_tests::picard::{PicardError, PicardOptions, sort_and_mark};
use godwit_tests::sam::{self, SamText};
use godwit_tests::shrink::shrink_failing_case;
use godwit_tests::tool::Tool;
use godwit_tests::{needs_picard, picard_cases, sam_fuzzer, scratch, skip};

/// The outcome of comparing godwit and Picard on a file.
#[derive(Debug)]
enum ComparisonResult {
    Same,
    Rejected(PicardError),
    Different(Vec<String>),
}

/// Runs godwit and Picard on `input` and compares their outputs.
fn compare_with_picard(input: &Path, directory: &Path, options: &PicardOptions, words: &[&str]) -> ComparisonResult {
    let (marked, metrics_file) = match sort_and_mark(input, directory, "sam", options) {
        Ok(files) => files,
        Err(refusal) => return ComparisonResult::Rejected(refusal),
    };
    let found = directory.join("found.bam");
    let finished = godwit()
        .arg("markdup")
        .arg(input)
        .arg("--out")
        .arg(&found)
        .args(["--optical-distance", &options.optical_distance.to_string()])
        .args(["--duplicates", duplicates_argument(options)])
        .args(options.marking.godwit_args())
        .args(words)
        .run();
    if !finished.status.success() {
        return ComparisonResult::Different(vec![finished.describe()]);
    }
    let mut list = sam::differences(&SamText::read(&marked), &SamText::read(&found));
    let found_metrics = directory.join("found.duplicates.txt");
    list.extend(metrics::differences(&MetricsFile::read(&metrics_file), &MetricsFile::read(&found_metrics)));
    if list.is_empty() { ComparisonResult::Same } else { ComparisonResult::Different(list) }
}

fn duplicates_argument(options: &PicardOptions) -> &'static str {
    match options {
        PicardOptions { remove: true, .. } => "remove",
        PicardOptions { marking: MarkingOptions { remove_sequencing_duplicates: true, .. }, .. } => "remove-optical",
        _ => "mark",
    }
}

fn compare_text_with_picard(case: &SamText, directory: &Path, options: &PicardOptions) -> ComparisonResult {
    let input = directory.join("input.sam");
    let text = if options.marking.query_grouped { group_by_name(case).to_text() } else { case.to_text() };
    std::fs::write(&input, text).expect("the scratch directory can be written to");
    compare_with_picard(&input, directory, options, &["--threads", "1"])
}

fn env_number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")))
}

/// A function of a seed that returns a file and the options for it.
type CaseGenerator = fn(u64) -> (SamText, PicardOptions);

/// Compares `GODWIT_FUZZ_FILES` files (150 by default) from `GODWIT_FUZZ_SEED` (1) on, until `GODWIT_FUZZ_FAILURES` (5)
/// differ.
fn fuzz_against_picard(draw: CaseGenerator) {
    let (files, first) = (env_number("GODWIT_FUZZ_FILES", 150), env_number("GODWIT_FUZZ_SEED", 1));
    let most_failures = env_number("GODWIT_FUZZ_FAILURES", 5);
    let directory = scratch::directory("fuzz");
    let (mut refused, mut failures, started) = (Vec::new(), Vec::new(), Instant::now());
    for seed in first..first + files {
        let (case, options) = draw(seed);
        match compare_text_with_picard(&case, &directory, &options) {
            ComparisonResult::Same => {}
            ComparisonResult::Rejected(refusal) => refused.push(format!("seed {seed}: {}", refusal.0)),
            ComparisonResult::Different(list) => {
                failures.push(shrink_and_describe(seed, &case, &list, &directory, &options));
                if failures.len() as u64 >= most_failures {
                    break;
                }
            }
        }
    }
    println!("seeds {first}..{}: {} refused by Picard, {:?}", first + files, refused.len(), started.elapsed());
    assert!(failures.is_empty(), "{} files differ from Picard:\n{}", failures.len(), failures.join("\n"));
    assert!(refused.len() as u64 <= files / 50 + 1, "Picard refused too many files:\n{}", refused.join("\n"));
}

#[test]
fn fuzzed_files_come_out_as_picard_marks_them() {
    needs_picard!();
    fuzz_against_picard(|seed| {
        // For every third seed, use another optical distance than the default.
        let optical_distance = if seed % 3 == 0 { 2500 } else { 100 };
        (
            sam_fuzzer::generate_sam(seed),
            PicardOptions { optical_distance, remove: seed % 10 == 7, ..PicardOptions::default() },
        )
    });
}

#[test]
fn fuzzed_files_come_out_as_picard_marks_them_with_any_of_its_options() {
    needs_picard!();
    fuzz_against_picard(|seed| {
        let (mut marking, remove) = (MarkingOptions::from_seed(seed), seed % 10 == 7);
        // Do not combine both options: Picard then also removes optical duplicates that it does not mark as duplicates,
        // and godwit has no such policy.
        marking.remove_sequencing_duplicates &= !remove;
        let optical_distance = if seed % 3 == 0 { 2500 } else { 100 };
        let case = marking.sam_with_barcodes(&sam_fuzzer::generate_sam(seed), seed);
        (case, PicardOptions { optical_distance, remove, marking })
    });
}

/// Picard's result on these files is partly random, so only godwit's exit codes and messages are checked.
#[test]
fn files_with_contradicting_mates_are_marked_or_refused_but_never_break_godwit() {
    let directory = scratch::directory("contradictions");
    let (input, out) = (directory.join("input.sam"), directory.join("found.bam"));
    let mut marked = 0;
    for seed in 1..=50 {
        std::fs::write(&input, sam_fuzzer::generate_contradictory_sam(seed).to_text())
            .expect("scratch can be written to");
        let finished = godwit().arg("markdup").arg(&input).arg("--out").arg(&out).args(["--threads", "1"]).run();
        if finished.status.success() {
            marked += 1;
        } else {
            finished.assert_rejected(&[3], &["name"]);
        }
    }
    assert!(marked >= 25, "godwit refused {} of 50 files", 50 - marked);
}

/// Reduces a failing file, stores the result, and returns a text with its path.
fn shrink_and_describe(
    seed: u64,
    case: &SamText,
    list: &[String],
    directory: &Path,
    options: &PicardOptions,
) -> String {
    let fails =
        |case: &SamText| matches!(compare_text_with_picard(case, directory, options), ComparisonResult::Different(_));
    let small = shrink_failing_case(case, 200, fails);
    let kept = scratch::failure_directory().join(format!("fuzz-{seed}.sam"));
    std::fs::write(&kept, small.to_text()).expect("the target directory can be written to");
    format!(
        "seed {seed} ({:?}, {options:?}):\n  {}\n  smallest failing part, {} records: {}",
        sam_fuzzer::profile_of_seed(seed),
        list.join("\n  "),
        small.records.len(),
        kept.display()
    )
}

#[test]
fn picards_unit_cases_come_out_as_picard_expects() {
    needs_picard!();
    let directory = scratch::directory("picard-cases");
    let mut failures = Vec::new();
    let cases = picard_cases::picard_cases();
    assert!(cases.len() >= 50, "only {} cases", cases.len());
    for case in cases {
        let mut list = match compare_text_with_picard(&case.sam, &directory, &PicardOptions::default()) {
            ComparisonResult::Same => Vec::new(),
            ComparisonResult::Rejected(refusal) => vec![refusal.0],
            ComparisonResult::Different(list) => list,
        };
        if list.is_empty() {
            // godwit's metrics are those of Picard.
            let metrics = MetricsFile::read(&directory.join("expected.duplicates.txt"));
            let optical = metrics.column_sum("READ_PAIR_OPTICAL_DUPLICATES");
            if optical != case.optical_pairs {
                list.push(format!("{} optical pairs expected, {optical} found", case.optical_pairs));
            }
        }
        let found = directory.join("found.bam");
        if found.exists() {
            list.extend(picard_cases::wrong_duplicate_flags(&SamText::read(&found)));
            std::fs::remove_file(&found).expect("our own file can be removed");
        }
        if !list.is_empty() {
            failures.push(format!("{}:\n  {}", case.name, list.join("\n  ")));
        }
    }
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

/// Returns sets of marking options, in which each pair of options occurs. The fuzzed files have all combinations.
fn marking_option_sets() -> [MarkingOptions; 3] {
    let tags = MarkingOptions { tagging: TaggingPolicy::All, tag_set_members: true, ..MarkingOptions::default() };
    let removing = MarkingOptions { remove_sequencing_duplicates: true, ..MarkingOptions::default() };
    [
        MarkingOptions { query_grouped: true, ..tags.clone() },
        MarkingOptions { remove_sequencing_duplicates: true, ..tags },
        MarkingOptions { tagging: TaggingPolicy::OpticalOnly, query_grouped: true, ..removing },
    ]
}

#[test]
fn picards_unit_cases_come_out_as_picard_marks_them_with_further_options() {
    needs_picard!();
    let directory = scratch::directory("picard-cases");
    let mut failures = Vec::new();
    for case in picard_cases::picard_cases() {
        for marking in marking_option_sets() {
            let options = PicardOptions { marking, ..PicardOptions::default() };
            match compare_text_with_picard(&case.sam, &directory, &options) {
                ComparisonResult::Same => {}
                ComparisonResult::Rejected(refusal) => {
                    failures.push(format!("{} {options:?}: {}", case.name, refusal.0))
                }
                ComparisonResult::Different(list) => {
                    failures.push(format!("{} {options:?}:\n  {}", case.name, list.join("\n  ")))
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_template_named_twice_makes_picard_miss_those_that_follow() {
    needs_picard!();
    let directory = scratch::directory("behind");
    let reads = [("a", 100, 'I'), ("b", 200, 'I'), ("c", 100, '5'), ("c", 200, '5'), ("d", 100, '5'), ("e", 100, '5')];
    let further = [("f", 700, '5'), ("g", 100, '5')];
    let record = |(name, position, quality): &(&str, i64, char)| {
        format!("{name}\t0\tc\t{position}\t60\t4M\t*\t0\t0\tACGT\t{}\tRG:Z:a", quality.to_string().repeat(4))
    };
    let case = SamText {
        header: ["@HD\tVN:1.6", "@SQ\tSN:c\tLN:9000", "@RG\tID:a\tSM:s"].map(str::to_owned).to_vec(),
        records: reads.iter().chain(&further).map(record).collect(),
    };
    let marking = MarkingOptions { query_grouped: true, ..MarkingOptions::default() };
    match compare_text_with_picard(&case, &directory, &PicardOptions { marking, ..PicardOptions::default() }) {
        ComparisonResult::Same => {}
        verdict => panic!("{verdict:?}"),
    }
    let marked = SamText::read(&directory.join("found.bam"));
    let duplicates = marked.records.iter().filter(|record| sam::flag(record) & sam::DUPLICATE_FLAG != 0).count();
    assert_eq!(duplicates, 3, "{:?}", marked.records);
}

#[test]
fn picards_own_test_files_come_out_as_picard_marks_them() {
    needs_picard!();
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let files = picard_files(&data.join("markdup"));
    let (mut judged, mut failures) = (0, Vec::new());
    for file in &files {
        let directory = scratch::directory("picard-files");
        let input = without_reference(file, &directory);
        match compare_with_picard(&input, &directory, &PicardOptions::default(), &[]) {
            ComparisonResult::Same => judged += 1,
            ComparisonResult::Rejected(refusal) => println!("Picard refuses {}: {}", file.display(), refusal.0),
            ComparisonResult::Different(list) => failures.push(format!("{}:\n  {}", file.display(), list.join("\n  "))),
        }
    }
    assert!(failures.is_empty(), "{} files differ from Picard:\n{}", failures.len(), failures.join("\n"));
    assert!(judged >= 20, "Picard accepted only {judged} of {} files", files.len());
}

#[test]
fn threads_memory_and_order_of_records_do_not_change_a_marked_file() {
    needs_picard!();
    let directory = scratch::directory("markdup-order");
    let mut case = sam_fuzzer::generate_sam(1);
    for seed in 2..200 {
        // Concatenate many small files with equal headers to one large file. A prefix makes the names of each file
        // unique.
        let other = sam_fuzzer::generate_sam(seed);
        if other.header == case.header {
            case.records.extend(other.records.iter().map(|record| format!("s{seed}{record}")));
        }
    }
    let input = directory.join("input.sam");
    std::fs::write(&input, case.to_text()).expect("the scratch directory can be written to");
    let run = |number: usize, words: &[&str]| {
        let out = directory.join(number.to_string()).join("out.bam");
        std::fs::create_dir(out.parent().expect("joined above")).expect("the scratch directory can be written to");
        (godwit().arg("markdup").arg(&input).arg("--out").arg(&out).args(words).run(), out)
    };
    let (refusal, _) = run(0, &["--threads", "2", "--memory", "1M"]);
    refusal.assert_rejected(&[2], &["--memory", "the minimum is "]);
    let (_, after) = refusal.stderr.split_once("the minimum is ").expect("checked above");
    let minimum: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
    let ways = [["1", "8G"], ["4", "8G"], ["2", minimum.as_str()]];
    let outputs: Vec<Vec<u8>> = (1..)
        .zip(ways)
        .map(|(number, [threads, memory])| {
            let (finished, out) = run(number, &["--threads", threads, "--memory", memory]);
            assert!(finished.status.success(), "{}", finished.describe());
            std::fs::read(&out).expect("godwit has written its output")
        })
        .collect();
    assert!(outputs.iter().all(|bytes| *bytes == outputs[0]), "the bytes of the BAM depend on threads or memory");
}

/// Returns the file itself, or a CRAM file as BAM. The references of Picard's CRAM files are not available, so bases are
/// left out: duplicate marking does not read them.
pub(super) fn without_reference(file: &Path, directory: &Path) -> PathBuf {
    if file.extension().is_none_or(|extension| extension != "cram") {
        return file.to_path_buf();
    }
    let converted = directory.join("converted.bam");
    let words = ["view", "--no-PG", "-b", "--input-fmt-option", "required_fields=0x19ff"];
    let words = words.iter().chain(&["--input-fmt-option", "decode_md=0", "-o"]).map(AsRef::as_ref);
    Tool::require("samtools").run(words.chain([converted.as_os_str(), file.as_os_str()]));
    converted
}

/// Returns the directory of real data: `GODWIT_SHARED_DATA`, or `shared/data` beside the repository.
pub fn shared_data_directory() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let path = std::env::var_os("GODWIT_SHARED_DATA").map_or_else(beside, PathBuf::from);
    path.is_dir().then_some(path)
}

/// Returns all SAM and CRAM files below `directory`, by name.
pub(super) fn picard_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())).flatten() {
            let path = entry.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() => open.push(path),
                Some("sam" | "cram") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}
