use std::path::Path;

use super::*;

fn root() -> Command {
    use clap::CommandFactory;
    crate::cli::Cli::command()
}

fn load(text: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("godwit.toml");
    std::fs::write(&path, text).unwrap();
    Config::load(&root(), Some(&path), false).map_err(|failure| {
        assert_eq!(failure.kind, ErrorKind::Usage);
        failure.message.replace(&format!("{}/", directory.path().display()), "")
    })
}

fn value(config: &Config, verb: &str, name: &str) -> Option<String> {
    config.find_setting(verb, name).map(|(_, setting)| setting.values[0].to_string_lossy().into_owned())
}

#[test]
fn a_table_of_a_verb_wins_over_the_whole_file() {
    let config = load("threads = 3\nmemory = '4G'\n[markdup]\nthreads = 0x5\n").unwrap();
    assert_eq!(value(&config, "align", "threads").as_deref(), Some("3"));
    assert_eq!(value(&config, "markdup", "threads").as_deref(), Some("5"));
    assert_eq!(value(&config, "align", "memory").as_deref(), Some("4G"));
    assert_eq!(value(&config, "align", "partitions"), None);
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_the_nearest_that_is_right() {
    for (text, expected) in [
        ("\nthreds = 3\n", "godwit.toml, line 2: there is no option threds; did you mean threads?"),
        ("[algin]\n", "godwit.toml, line 1: there is no verb algin with options; did you mean align?"),
        ("[markdup]\naligner = 'bwa'\n", "godwit.toml, line 2: there is no option aligner of godwit markdup"),
        ("threads = 'many'\n", "godwit.toml, line 1: threads cannot be \"many\": invalid digit found in string"),
        ("threads = 0\n", "godwit.toml, line 1: threads cannot be \"0\": 0 is not in 1..=1024"),
        ("progress = 'plan'\n", "progress cannot be \"plan\": it is one of auto, plain, none; did you mean plain?"),
        ("quiet = 'yes'\n", "godwit.toml, line 1: quiet must be true or false, without quotes"),
        ("threads = true\n", "godwit.toml, line 1: threads must have a value other than true or false"),
        ("threads = [1, 2]\n", "godwit.toml, line 1: threads must have a single value, not a list"),
        ("memory = '8X'\n", "memory cannot be \"8X\": X is not a unit of size"),
        ("metrics = 'RnaSeq'\n", "metrics cannot be \"RnaSeq\": not a metric of godwit"),
        ("format = 'cram'\n", "only some verbs accept this value: set it in the section of such a verb"),
        ("[align]\nformat = []\n", "godwit.toml, line 2: format is an empty list; remove it, or list a value"),
        (
            "sample = 's'\n",
            "godwit.toml, line 1: sample cannot be set in a configuration file; pass it on the command line",
        ),
        ("a = \n", "godwit.toml, line 1: not TOML: "),
    ] {
        let error = load(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn paths_of_a_file_start_at_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    std::fs::write(&path, "temp = 'scratch'\nreference = '/data/ref.fa'\n").unwrap();
    let config = Config::load(&root(), Some(&path), false).unwrap();
    assert_eq!(value(&config, "align", "temp"), Some(directory.path().join("scratch").display().to_string()));
    assert_eq!(value(&config, "align", "reference").as_deref(), Some("/data/ref.fa"));
}

#[test]
fn options_that_exclude_each_other_cannot_stand_in_one_source() {
    let mut root = root();
    root.build();
    let align = root.find_subcommand("align").unwrap();
    let config = load("strict = true\nlenient = true\n").unwrap();
    let error = config.effective_settings(align, &[]).unwrap_err().message;
    assert!(error.contains("lenient cannot be combined with strict"), "{error}");
    // `--strict` on the command line has precedence, so the conflicting option of the file is ignored.
    let config = load("lenient = true\n").unwrap();
    assert!(config.effective_settings(align, &["strict"]).unwrap().is_empty());
    assert_eq!(config.effective_settings(align, &[]).unwrap().len(), 1);
}

#[test]
fn every_option_has_variables_of_its_own_and_none_is_taken() {
    let root = root();
    let mut seen = BTreeMap::new();
    for (variable, verb, arg) in environment::option_variables(&root) {
        assert!(!environment::non_option_variables().contains(&variable.as_str()), "{variable}");
        let option = (verb.map(str::to_owned), arg.get_long().map(str::to_owned));
        let other = seen.insert(variable.clone(), option.clone());
        assert!(other.is_none_or(|other| other == option), "{variable} is two options");
    }
    assert!(seen.contains_key("GODWIT_THREADS") && seen.contains_key("GODWIT_MARKDUP_OPTICAL_DISTANCE"));
}

#[test]
fn a_shown_configuration_can_be_read_and_shows_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    std::fs::write(&path, "threads = 3\nquiet = true\n[align]\nformat = ['bam']\naligner-args = '-M'\n").unwrap();
    let show = |path: &Path| as_toml(&Config::load(&root(), Some(path), false).unwrap(), &root()).unwrap();
    let strip = |text: String| -> Vec<String> {
        text.lines()
            .filter_map(|line| Some(line.split(" # ").next()?.trim_end()))
            .filter(|l| !l.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    let first = show(&path);
    assert!(first.lines().any(|line| line.starts_with("threads = 3 ") && line.ends_with("line 1")), "{first}");
    let again = directory.path().join("again.toml");
    std::fs::write(&again, &first).unwrap();
    assert_eq!(strip(show(&again)), strip(first));
}

#[test]
fn settings_of_a_file_become_arguments_of_the_command_line() {
    let config = load(
        "barcode-tag = 'RX'\nduplex-umi = true\nquiet = false\n[align]\nformat = ['bam', 'cram']\naligner-args = '-M'\n",
    );
    let config = config.unwrap();
    let given = ["godwit", "align", "--reference", "r", "--reads", "a", "--sample", "s", "--out", "o"];
    let matches = root().try_get_matches_from(given).unwrap();
    let words = config.arguments(&root(), "align", matches.subcommand_matches("align").unwrap()).unwrap();
    assert_eq!(words, ["--aligner-args=-M", "--format=bam,cram", "--barcode-tag=RX", "--duplex-umi"]);
    assert!(root().try_get_matches_from(given.iter().map(OsString::from).chain(words)).is_ok());
}
