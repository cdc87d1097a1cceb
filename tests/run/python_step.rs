//! `align --step`: the records that a function keeps are those that samtools would keep, as the bytes that were aligned,
//! on any host; errors name the partition.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use godwit_tests::binary::{GodwitCommand, GodwitOutput, godwit};
use godwit_tests::duplicate_options::{MarkingOptions, TaggingPolicy};
use godwit_tests::processes::{send_signal, wait_until_exited};
use godwit_tests::reference_pipeline::{AlignOptions, DuplicateHandling};
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::Tool;
use godwit_tests::wait::wait_for;
use godwit_tests::{needs, scratch};

use super::bwa_identity;
use super::cluster_options::assert_same_files;
use super::formats::{assert_same_lines, pyarrow_python, to_lines};

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_ENGINE: i32 = 5;
const EXIT_REMOTE: i32 = 6;
const EXIT_INTERRUPTED: i32 = 130;

fn sample() -> Arc<Sample> {
    let lanes = vec![1_200, 700];
    Sample::cached(&SampleSpec { seed: 41, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

fn options() -> AlignOptions {
    AlignOptions { block_bases: 60_000, ..AlignOptions::default() }
}

/// Creates a directory with `steps.py`, in which commands run.
fn directory() -> PathBuf {
    let directory = scratch::directory("steps");
    fs::write(directory.join("steps.py"), include_str!("../tools/columns/steps.py")).expect("it can be written");
    directory
}

/// Returns the path of the Python that has pyarrow.
fn python_path() -> String {
    let python = pyarrow_python().expect("tools/python-packages.sh made it").command();
    python.get_program().to_string_lossy().into_owned()
}

fn align_with(options: &AlignOptions, out: &Path) -> GodwitCommand {
    let words = ["--threads", "2", "--partitions", "7"];
    bwa_identity::align(&sample(), options, out).args(words).env("PYTHONDONTWRITEBYTECODE", "1")
}

/// Returns a run with a step, in the directory of its module.
fn align_with_step(function: &str, directory: &Path, out: &Path) -> GodwitCommand {
    let words = ["--step", function, "--python", &python_path()];
    align_with(&options(), out).args(words).current_dir(directory)
}

/// Returns the output of a run without a step.
fn align_without_step() -> PathBuf {
    static OUTPUT: OnceLock<PathBuf> = OnceLock::new();
    let run = OUTPUT.get_or_init(|| {
        let out = scratch::directory("no-step");
        align_with(&options(), &out).run_ok();
        out
    });
    run.clone()
}

fn samtools(words: &[&str], file: &Path) -> String {
    let words = words.iter().map(AsRef::as_ref).chain([file.as_os_str()]);
    String::from_utf8(Tool::require("samtools").run(words).stdout).expect("samtools prints text")
}

fn records(file: &Path) -> Vec<String> {
    to_lines(&samtools(&["view"], file))
}

fn read_text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn dropped_rows(out: &Path) -> serde_json::Value {
    let report: serde_json::Value = serde_json::from_str(&read_text(&out.join("run.json"))).expect("it is JSON");
    report["step"]["dropped"].clone()
}

/// Checks that index, counts and statistics describe the records of the file.
fn assert_outputs_describe_records(out: &Path) {
    let bam = out.join("sample.bam");
    samtools(&["quickcheck", "-v"], &bam);
    assert_eq!(read_text(&out.join("sample.flagstat.txt")), samtools(&["flagstat"], &bam));
    assert_eq!(read_text(&out.join("sample.idxstats.txt")), samtools(&["idxstats"], &bam));
    let of_region = |words: &[&str]| {
        let mut command = Tool::require("samtools").command();
        let command = command.arg("view").args(words).arg(&bam);
        let shown = godwit_tests::tool::run_checked(command.arg("chr1:5000-30000")).stdout;
        String::from_utf8(shown).expect("samtools prints text")
    };
    let all = records(&bam);
    let expected = all.iter().filter(|line| {
        let field = |at: usize| line.split('\t').nth(at).unwrap_or_default();
        let position: u64 = field(3).parse().unwrap_or_default();
        field(2) == "chr1" && (5_000..=30_000).contains(&position)
    });
    let starting = |line: &&str| {
        let position: u64 = line.split('\t').nth(3).and_then(|text| text.parse().ok()).unwrap_or_default();
        position >= 5_000
    };
    assert_eq!(of_region(&[]).lines().filter(starting).count(), expected.count());
    let verified = godwit().arg("verify").arg(out).run_ok();
    assert!(verified.status.success());
}

#[test]
fn a_step_that_changes_nothing_changes_nothing() {
    needs!("bwa", "samtools", "python3");
    let plain = align_without_step();
    for function in ["same", "rebuilt", "keeps_tables", "noisy"] {
        let out = scratch::directory("step-same");
        align_with_step(&format!("steps:{function}"), &directory(), &out).run_ok();
        assert_same_lines(&records(&out.join("sample.bam")), &records(&plain.join("sample.bam")), function);
        for name in ["flagstat", "idxstats", "duplicates", "insert_size", "alignment_summary", "mosdepth.summary"] {
            let name = format!("sample.{name}.txt");
            let without_command = |text: String| text.replace(&format!(" --step steps:{function}"), "");
            assert_eq!(
                without_command(read_text(&out.join(&name))),
                read_text(&plain.join(&name)),
                "{function}: {name}"
            );
        }
        assert_eq!(dropped_rows(&out), 0);
        assert!(!out.join("sample.step").exists());
        let header = samtools(&["view", "-H", "--no-PG"], &out.join("sample.bam"));
        assert!(header.contains(&format!(" --step steps:{function}\n")), "{header}");
    }
}

#[test]
fn rows_that_come_back_unchanged_are_the_bytes_that_were_aligned_in_every_format() {
    needs!("bwa", "python3");
    // Write two modules of the same name whose functions have different effects.
    let [kept, made] = [("kept", "same"), ("made", "rebuilt")].map(|(name, function)| {
        let directory = directory();
        fs::write(directory.join("one.py"), format!("from steps import {function} as step\n"))
            .expect("it can be written");
        let out = scratch::directory(name);
        let tagging = MarkingOptions { tagging: TaggingPolicy::All, ..MarkingOptions::default() };
        let words = ["--format", "bam,cram,parquet,arrow", "--step", "one:step", "--python", &python_path()];
        let run = align_with(&AlignOptions { marking: tagging, ..options() }, &out);
        run.args(words).current_dir(&directory).run_ok();
        // The manifest contains a checksum of the module.
        fs::remove_file(out.join("sample.manifest.json")).expect("it is there");
        out
    });
    assert_same_files(&kept, &made);
}

#[test]
fn a_filter_keeps_what_samtools_keeps_however_it_is_written() {
    needs!("bwa", "samtools", "python3");
    let plain = align_without_step();
    let all = records(&plain.join("sample.bam"));
    let expected = to_lines(&samtools(&["view", "-q", "30"], &plain.join("sample.bam")));
    assert!(expected.len() > 1_000 && expected.len() < all.len(), "{} of {}", expected.len(), all.len());
    let functions = ["mask", "two_columns", "table", "polars_table", "polars_mask", "pandas_table", "pandas_mask"];
    for function in functions {
        let out = scratch::directory("step-filter");
        align_with_step(&format!("steps:{function}"), &directory(), &out).run_ok();
        assert_same_lines(&records(&out.join("sample.bam")), &expected, function);
        assert_outputs_describe_records(&out);
        assert_eq!(dropped_rows(&out), all.len() - expected.len(), "{function}");
        // Duplicates are marked before the Python step, so their metrics do not depend on it.
        let marked = |out: &Path| {
            let text = read_text(&out.join("sample.duplicates.txt"));
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(marked(&out), marked(&plain));
    }
}

#[test]
fn changed_rows_become_other_records() {
    needs!("bwa", "samtools", "python3");
    let out = scratch::directory("step-changed");
    align_with_step("steps:changed", &directory(), &out).run_ok();
    let expected = records(&align_without_step().join("sample.bam")).into_iter().map(|line| {
        let mut fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let quality: u8 = fields[4].parse().expect("MAPQ is a number");
        fields[4] = (quality / 2).to_string();
        fields.retain(|field| !field.starts_with("MD:Z:"));
        let (place, tag) = (fields[3].clone(), format!("XS:i:{}", fields[3]));
        assert!(!place.is_empty());
        match fields.iter().skip(11).position(|field| field.starts_with("XS:i:")) {
            Some(at) => fields[11 + at] = tag,
            None => fields.push(tag),
        }
        fields.join("\t")
    });
    assert_same_lines(&records(&out.join("sample.bam")), &expected.collect::<Vec<_>>(), "changed");
    assert_outputs_describe_records(&out);
}

#[test]
fn duplicates_that_are_left_out_never_come_to_a_step() {
    needs!("bwa", "samtools", "python3");
    let options = AlignOptions { duplicates: DuplicateHandling::Remove, ..options() };
    let [without, with] = ["removed", "removed-and-stepped"].map(scratch::directory);
    align_with(&options, &without).run_ok();
    let words = ["--step", "steps:table", "--python", &python_path()];
    align_with(&options, &with).args(words).current_dir(&directory()).run_ok();
    let expected = to_lines(&samtools(&["view", "-q", "30"], &without.join("sample.bam")));
    assert_same_lines(&records(&with.join("sample.bam")), &expected, "removed");
}

#[test]
fn files_of_a_step_appear_beside_the_others_when_the_run_is_whole() {
    needs!("bwa", "samtools", "python3");
    let (directory, out) = (directory(), scratch::directory("step-files"));
    align_with_step("steps:counted", &directory, &out).run_ok();
    let names = scratch::entry_names(&out.join("sample.step"));
    let expected: Vec<String> = (0..names.len()).map(|part| format!("part-{part:05}.qc.csv")).collect();
    assert!(names.len() >= 7 && names == expected, "{names:?}");
    let told: Vec<String> = names.iter().map(|name| read_text(&out.join("sample.step").join(name))).collect();
    let number = |line: &str, back: usize| -> usize {
        let field = line.trim_end().rsplit(',').nth(back).unwrap_or_default();
        field.parse().unwrap_or_else(|_| panic!("{line}"))
    };
    assert!(told[0].starts_with(&format!("sample,0,{},('chr1', 0),", names.len())), "{}", told[0]);
    let last = told.last().expect("there are some");
    assert!(last.contains(",None,None,"), "{last}");
    let rows: usize = told.iter().map(|line| number(line, 1)).sum();
    let kept: usize = told.iter().map(|line| number(line, 0)).sum();
    assert_eq!(
        (rows, kept),
        (records(&align_without_step().join("sample.bam")).len(), records(&out.join("sample.bam")).len())
    );
    assert_outputs_describe_records(&out);
    // A second run with the same --out replaces all outputs. A failed run changes none of them.
    align_with_step("steps:counted", &directory, &out).run_ok();
    align_with_step("steps:kills_itself", &directory, &out).run().assert_rejected(&[EXIT_ENGINE], &["signal 9"]);
    assert_eq!(scratch::entry_names(&out.join("sample.step")), names);
    let stray = scratch::directory("step-stray");
    align_with_step("steps:writes_stray_file", &directory, &stray)
        .run()
        .assert_rejected(&[EXIT_ENGINE], &["mine.txt", "partition.path"]);
    assert!(!stray.join("sample.step").exists() && !stray.join("sample.bam").exists());
}

#[test]
fn what_is_wrong_with_a_function_is_told_with_its_partition() {
    needs!("bwa", "python3");
    let directory = directory();
    for (function, words) in [
        ("raising", &["KeyError", "no such column", "steps.py, line"][..]),
        ("exits_python", &["SystemExit"]),
        ("kills_itself", &["signal 9"]),
        ("returns_none", &["returned nothing", "mask"]),
        ("without_column", &["cigar"]),
        ("with_extra_column", &["column more"]),
        ("as_text", &["mapping_quality", "string", "uint8"]),
        ("too_large", &["mapping_quality", "300"]),
        ("doubled", &["rows", "not added"]),
        ("reversed_rows", &["order"]),
        ("moved", &["outside of the partition"]),
        ("short_mask", &["mask of"]),
        ("no_mask", &["uint8", "bool"]),
        ("returns_some_columns", &["some columns"]),
    ] {
        let out = scratch::directory("step-wrong");
        let run = align_with_step(&format!("steps:{function}"), &directory, &out).run();
        run.assert_rejected(&[EXIT_ENGINE], &[&["--step steps:", function, "partition ", "chr"], words].concat());
        let left = scratch::entry_names(&out);
        assert!(left.iter().all(|name| name.starts_with('.')), "{function} left {left:?}");
    }
}

#[test]
fn a_step_that_cannot_be_called_is_refused_before_anything_is_aligned() {
    needs!("bwa", "python3");
    let directory = directory();
    fs::write(directory.join("broken.py"), "import steps\nsteps.nothing_here\n").expect("it can be written");
    fs::write(directory.join("needy.py"), "import no_such_library\n").expect("it can be written");
    let refused = |run: GodwitOutput, code: i32, words: &[&str]| {
        run.assert_rejected(&[code], words);
        assert!(!run.stderr.contains("\"aligned\""), "{}", run.describe());
    };
    for (function, code, words) in [
        ("no_such_module:keep", EXIT_MACHINE, &["no module no_such_module", "PYTHONPATH"][..]),
        ("steps.deeper:keep", EXIT_MACHINE, &["steps.deeper"]),
        ("steps:no_such_function", EXIT_USAGE, &["no_such_function", "steps.py"]),
        ("steps:no_function", EXIT_USAGE, &["no_function", "is no function"]),
        ("steps:takes_nothing", EXIT_USAGE, &["takes_nothing", "table"]),
        ("steps:unknown_column", EXIT_USAGE, &["nonsense", "alignments.md"]),
        ("broken:keep", EXIT_ENGINE, &["broken", "AttributeError", "line 2"]),
        ("needy:keep", EXIT_ENGINE, &["needy", "no_such_library"]),
        ("steps", EXIT_USAGE, &["MODULE:FUNCTION"]),
        ("steps:a b", EXIT_USAGE, &["MODULE:FUNCTION"]),
    ] {
        for words_of_run in [&["--json"][..], &["--json", "--dry-run"]] {
            let out = scratch::directory("step-refused");
            let run = align_with_step(function, &directory, &out).args(words_of_run).run();
            refused(run, code, words);
            assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
        }
    }
    let bare = directory.join("bare-python");
    scratch::write_executable(&bare, &format!("#!/bin/sh\nexec {} -I -S \"$@\"\n", python_path()));
    for (python, words) in
        [(&*bare, &["pyarrow", "--python"][..]), (Path::new("no-such-python"), &["no-such-python", "--python"])]
    {
        let out = scratch::directory("step-python");
        let run = align_with(&options(), &out).args(["--step", "steps:same", "--python"]).arg(python);
        refused(run.current_dir(&directory).run(), EXIT_MACHINE, words);
    }
    let options =
        AlignOptions { marking: MarkingOptions { tag_set_members: true, ..MarkingOptions::default() }, ..options() };
    let run = align_with(&options, &scratch::directory("step-sets")).args(["--step", "steps:same"]).run();
    refused(run, EXIT_USAGE, &["--tag-duplicate-set-members", "--step"]);
}

#[test]
fn workers_write_the_files_that_one_process_writes() {
    needs!("bwa", "python3");
    let directory = directory();
    for (function, formats) in [("counted", "bam"), ("changed", "bam,parquet")] {
        let step = format!("steps:{function}");
        let [one, many] = ["one", "many"].map(scratch::directory);
        align_with_step(&step, &directory, &one).args(["--format", formats]).run_ok();
        let nodes = ["--format", formats, "--on", "local", "--nodes", "3"];
        align_with_step(&step, &directory, &many).args(nodes).run_ok();
        assert_same_files(&one, &many);
        assert_eq!(dropped_rows(&one), dropped_rows(&many));
    }
}

#[test]
fn partitions_of_any_size_and_any_number_of_threads_give_the_same_records() {
    needs!("bwa", "samtools", "python3");
    let directory = directory();
    let expected = to_lines(&samtools(&["view", "-q", "30"], &align_without_step().join("sample.bam")));
    for (partitions, threads) in [("1", "1"), ("40", "4")] {
        let out = scratch::directory("step-partitions");
        let run =
            bwa_identity::align(&sample(), &options(), &out).args(["--step", "steps:mask", "--python", &python_path()]);
        run.args(["--partitions", partitions, "--threads", threads]).current_dir(&directory).run_ok();
        assert_same_lines(&records(&out.join("sample.bam")), &expected, partitions);
    }
}

#[test]
fn a_function_that_fails_on_a_worker_fails_the_run_as_in_one_process() {
    needs!("bwa", "python3");
    let directory = directory();
    let on_nodes = |function: &str, out: &Path| {
        align_with_step(function, &directory, out).args(["--on", "local", "--nodes", "2"]).run()
    };
    let out = scratch::directory("step-node-fails");
    on_nodes("steps:raising", &out).assert_rejected(&[EXIT_ENGINE], &["steps:raising", "partition ", "KeyError"]);
    // The module can be imported on the host that starts the run, but not on the workers.
    let text = "import os\nif 'GODWIT_NODE' in os.environ:\n    raise ModuleNotFoundError('it is not here', name='near')\n\n\n\
                def keep(table):\n    return table\n";
    fs::write(directory.join("near.py"), text).expect("it can be written");
    let out = scratch::directory("step-node-lacks");
    on_nodes("near:keep", &out).assert_rejected(&[EXIT_REMOTE], &["no worker is left", "there is no module near"]);
}

#[test]
fn a_run_goes_on_with_the_same_step_only() {
    needs!("bwa", "samtools", "python3");
    let (directory, out) = (directory(), scratch::directory("step-resume"));
    let flag = directory.join("flag");
    let run = |words: &[&str]| {
        let run = align_with_step("steps:failing_once", &directory, &out).args(["--json"]).args(words);
        run.env("GODWIT_TEST_FLAG", &flag).run()
    };
    fs::write(&flag, "").expect("it can be written");
    run(&[]).assert_rejected(&[EXIT_ENGINE], &["partition 2 (", "the flag is up"]);
    align_with_step("steps:mask", &directory, &out).arg("--resume").run().assert_rejected(&[EXIT_USAGE], &["--step"]);
    let module = read_text(&directory.join("steps.py"));
    fs::write(directory.join("steps.py"), format!("{module}\n# another one\n")).expect("it can be written");
    run(&["--resume"]).assert_rejected(&[EXIT_USAGE], &["the module of --step"]);
    fs::write(directory.join("steps.py"), module).expect("it can be written");
    fs::remove_file(&flag).expect("it is there");
    let resumed = run(&["--resume"]);
    assert!(resumed.status.success(), "{}", resumed.describe());
    assert!(!resumed.stderr.contains("{\"event\":\"aligned\""), "{}", resumed.describe());
    let expected = to_lines(&samtools(&["view", "-q", "30"], &align_without_step().join("sample.bam")));
    assert_same_lines(&records(&out.join("sample.bam")), &expected, "resumed");
    assert!(run(&["--resume"]).stderr.contains("already complete"));
}

#[test]
fn an_interrupted_run_takes_the_function_along() {
    needs!("bwa", "python3");
    let (directory, out) = (directory(), scratch::directory("step-interrupted"));
    let told = directory.join("pid");
    let run = align_with_step("steps:sleeping", &directory, &out).env("GODWIT_TEST_PID", &told).spawn();
    let number = || fs::read_to_string(&told).ok()?.parse::<u32>().ok();
    let function = wait_for("the function", number);
    send_signal(run.process_id(), 2);
    run.wait_with_output().assert_rejected(&[EXIT_INTERRUPTED], &["interrupted", "--resume"]);
    wait_until_exited(&[function]);
}

#[test]
fn tables_too_large_for_their_memory_go_through_scratch_space() {
    needs!("bwa", "python3");
    let lanes = vec![11_000, 6_000];
    let spec = SampleSpec { seed: 3, lanes, paired: true, alternate: false, comments: TitleComments::Illumina };
    let (sample, directory) = (Sample::cached(&spec), directory());
    let [large, small] = [("8G", "memory"), ("66M", "scratch")].map(|(memory, place)| {
        let out = scratch::directory("step-memory");
        let options = AlignOptions { block_bases: 300_000, ..AlignOptions::default() };
        let words =
            ["--partitions", "1", "--threads", "1", "--memory", memory, "--step", "steps:report_location", "--python"];
        bwa_identity::align(&sample, &options, &out).args(words).arg(python_path()).current_dir(&directory).run_ok();
        assert_eq!(read_text(&out.join("sample.step/part-00000.where.txt")), place);
        out
    });
    let bams = [large, small].map(|out| fs::read(out.join("sample.bam")).expect("it is there"));
    assert!(bams[0] == bams[1], "memory changes the file");
}
