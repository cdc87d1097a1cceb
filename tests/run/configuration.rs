//! Options from files and the environment: precedence, rejected values, and their effect on a run.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::sam::SamText;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, scratch, skip};
use serde_json::Value;

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;

/// A home directory with a user file and a working directory with a project file.
struct ConfigDirectories {
    home: PathBuf,
    project: PathBuf,
}

impl ConfigDirectories {
    fn new(user_file: &str, project_file: &str) -> Self {
        let directory = scratch::directory("configuration");
        let (home, project) = (directory.join("home"), directory.join("project"));
        fs::create_dir_all(home.join("godwit")).expect("a directory can be made");
        fs::create_dir(&project).expect("a directory can be made");
        fs::write(home.join("godwit/config.toml"), user_file).expect("a file can be written");
        fs::write(project.join("godwit.toml"), project_file).expect("a file can be written");
        Self { home, project }
    }

    fn godwit(&self) -> GodwitCommand {
        godwit().env("XDG_CONFIG_HOME", &self.home).current_dir(&self.project)
    }

    /// Returns value and source of an option of `godwit align`.
    fn option_value_and_source(&self, command: GodwitCommand, option: &str) -> (Value, Value) {
        let shown = command.args(["config", "show", "--json"]).run_ok().stdout;
        let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
        let options = shown["options"].as_array().expect("options are a list");
        let found = options.iter().find(|entry| entry["verb"] == "align" && entry["option"] == option);
        let found = found.unwrap_or_else(|| panic!("{option} is not shown: {shown}"));
        (found["value"].clone(), found["source"].clone())
    }
}

#[test]
fn environment_beats_project_beats_user_beats_default() {
    let place =
        ConfigDirectories::new("threads = 5\nmemory = '3G'\npartitions = 9\n", "\nthreads = 4\nmemory = '2G'\n");
    let (value, source) = place.option_value_and_source(place.godwit().env("GODWIT_THREADS", "3"), "threads");
    assert_eq!((value, &source["variable"]), (3.into(), &"GODWIT_THREADS".into()));
    let verbs = place.godwit().env("GODWIT_THREADS", "3").env("GODWIT_ALIGN_THREADS", "2");
    assert_eq!(place.option_value_and_source(verbs, "threads").0, 2);
    let (value, source) = place.option_value_and_source(place.godwit(), "memory");
    assert_eq!((value, &source["kind"], &source["line"]), ("2G".into(), &"project file".into(), &3.into()));
    let (value, source) = place.option_value_and_source(place.godwit(), "partitions");
    assert_eq!((value, &source["kind"]), (9.into(), &"user file".into()));
    let (value, source) = place.option_value_and_source(place.godwit(), "optical-distance");
    assert_eq!((value, &source["kind"]), (100.into(), &"default".into()));
    let (value, source) = place.option_value_and_source(place.godwit().arg("--no-config"), "threads");
    assert_eq!((value, &source["kind"]), (Value::Null, &"default".into()));
    let given = place.home.join("given.toml");
    fs::write(&given, "partitions = 7\n").expect("a file can be written");
    for command in [place.godwit().arg("--config").arg(&given), place.godwit().env("GODWIT_CONFIG", &given)] {
        assert_eq!(place.option_value_and_source(command, "partitions").0, 7);
    }
    let alone = place.godwit().arg("--config").arg(&given);
    assert_eq!(place.option_value_and_source(alone, "memory").0, Value::Null, "a given file stands alone");
}

#[test]
fn a_run_obeys_its_configuration_and_the_command_line_wins() {
    needs!("bwa", "samtools");
    let lanes = vec![400];
    let sample = Sample::cached(&SampleSpec {
        seed: 12,
        lanes,
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    });
    let reference = sample.godwit_indexed_reference();
    let project = format!(
        "reference = '{}'\noptical-distance = 2500\nquiet = true\n[align]\naligner-args = '-M'\nduplicates = 'remove'\n",
        reference.display()
    );
    let place = ConfigDirectories::new("", &project);
    let run = |words: &[&str], out: &str| {
        let command = place.godwit().env("GODWIT_BLOCK_BASES", "30000").arg("align").arg("--reads");
        let command = command.args(&sample.lanes[0].reads).args(["--sample", "s", "--out", out]).args(words);
        let finished = command.run_ok();
        let header = SamText::read(&place.project.join(out).join("s.bam")).to_text();
        let report = fs::read_to_string(place.project.join(out).join("run.json")).expect("a report was written");
        (finished, header, serde_json::from_str::<Value>(&report).expect("it is JSON"))
    };
    let (finished, text, report) = run(&[], "one");
    assert_eq!(finished.stderr, "", "quiet = true");
    let expected = "godwit align --aligner bwa --block-bases 30000 --duplicates remove --optical-distance 2500 \
                    --aligner-args '-M'";
    assert!(text.contains(expected), "{}", text.lines().take(12).collect::<Vec<_>>().join("\n"));
    let command: Vec<&str> = report["command"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let reference = format!("--reference={}", reference.display());
    for word in [&reference[..], "--block-bases=30000", "--duplicates=remove", "--aligner-args=-M", "--quiet"] {
        assert!(command.contains(&word), "{word}: {command:?}");
    }
    let (finished, text, _) = run(&["--optical-distance", "7", "--log", "info"], "two");
    assert!(text.contains("--optical-distance 7"), "{}", finished.describe());
}

#[test]
fn a_wrong_file_ends_every_run_with_its_line() {
    for (project, words) in [
        ("threads = 4\nmemroy = '2G'\n", &["godwit.toml, line 2", "memroy", "did you mean memory?"][..]),
        (
            "[align]\nduplicates = 'marc'\n",
            &["godwit.toml, line 2", "marc", "it is one of mark, remove", "did you mean mark?"],
        ),
        ("out = 'x'\n", &["line 1", "pass it on the command line"]),
        ("threads = \n", &["line 1", "TOML"]),
        ("strict = true\nlenient = true\n", &["lenient cannot be combined with strict"]),
    ] {
        let place = ConfigDirectories::new("", project);
        place.godwit().args(["config", "show"]).run().assert_rejected(&[EXIT_USAGE], words);
        let command = place.godwit().args(["align", "--reference", "r", "--reads", "a", "--sample", "s", "--out", "o"]);
        command.run().assert_rejected(&[EXIT_USAGE], words);
        // Help and completions work even if the configuration file is invalid.
        place.godwit().args(["align", "--help"]).run_ok();
        place.godwit().args(["completions", "bash"]).run_ok();
    }
}

#[test]
fn a_wrong_variable_is_named_and_other_variables_are_no_options() {
    let place = ConfigDirectories::new("", "");
    let command = place.godwit().env("GODWIT_THREADS", "many").args(["config", "show"]);
    command.run().assert_rejected(&[EXIT_USAGE], &["GODWIT_THREADS", "many"]);
    let shown = place.godwit().env("GODWIT_THREDS", "3").env("GODWIT_BWA", "/x").env("GODWIT_BWA_MEM3", "/x");
    let shown = shown.args(["config", "show"]).run_ok().stdout;
    assert!(shown.contains("GODWIT_THREDS is not an option and is ignored; did you mean GODWIT_THREADS?"), "{shown}");
    assert!(!shown.contains("GODWIT_BWA"), "{shown}");
}

#[test]
fn the_command_line_sets_aside_what_it_excludes() {
    // The `+` line of a record has another title than its `@` line: --lenient accepts such a file, and --strict rejects
    // it.
    needs!("bwa");
    let lanes = vec![400];
    let sample = Sample::cached(&SampleSpec {
        seed: 12,
        lanes,
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    });
    let place = ConfigDirectories::new("", "lenient = true\n");
    fs::write(place.project.join("r.fq"), "@a\nACGTACGTACGT\n+b\nIIIIIIIIIIII\n").expect("a file can be written");
    let run = |words: &[&str]| {
        let command = place.godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference());
        command.args(["--reads", "r.fq", "--sample", "s", "--out", "out"]).args(words).run()
    };
    let lenient = run(&[]);
    assert!(lenient.status.success(), "{}", lenient.describe());
    run(&["--strict"]).assert_rejected(&[3], &["r.fq"]);
}

#[test]
fn what_an_option_of_the_command_line_requires_may_stand_in_a_file() {
    needs!("bwa");
    let lanes = vec![400];
    let sample = Sample::cached(&SampleSpec {
        seed: 12,
        lanes,
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    });
    let place = ConfigDirectories::new("", "barcode-tag = 'RX'\n");
    let run = |words: &[&str]| {
        let command = place.godwit().args(["align", "--dry-run", "--duplex-umi"]).args(words);
        let command = command.arg("--reference").arg(sample.godwit_indexed_reference()).arg("--reads");
        command.args(&sample.lanes[0].reads).args(["--sample", "s", "--out", "out"]).run()
    };
    let finished = run(&[]);
    assert!(finished.status.success(), "{}", finished.describe());
    run(&["--no-config"]).assert_rejected(&[EXIT_USAGE], &["--barcode-tag"]);
}

#[test]
fn a_project_file_of_another_user_is_refused_unless_it_is_named() {
    let place = ConfigDirectories::new("", "threads = 4\n");
    let file = place.project.join("godwit.toml");
    if std::os::unix::fs::chown(&file, Some(65_534), None).is_err() {
        skip!("needs-root", "cannot give {} away", file.display());
    }
    place.godwit().args(["config", "show"]).run().assert_rejected(&[EXIT_MACHINE], &["another user", "--no-config"]);
    assert_eq!(
        place.option_value_and_source(place.godwit().arg("--config").arg(Path::new("godwit.toml")), "threads").0,
        4
    );
}

#[test]
fn what_is_mistyped_gets_the_nearest_that_is_right() {
    godwit()
        .args(["align", "--thread", "2"])
        .run()
        .assert_rejected(&[EXIT_USAGE], &["--thread", "similar", "--threads"]);
    godwit().args(["alin"]).run().assert_rejected(&[EXIT_USAGE], &["alin", "align"]);
    godwit().args(["align", "--duplicates", "marc"]).run().assert_rejected(&[EXIT_USAGE], &["marc", "similar", "mark"]);
}
