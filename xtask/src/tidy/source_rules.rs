//! Rules on source files: the length of files and functions, and forbidden words and file names.

use std::collections::BTreeMap;

use super::SourceFile;
use super::scanner;

/// The maximum length of a function, in lines: it fits a screen.
const MAX_FUNCTION_LINES: usize = 70;
/// The maximum length of a file, in lines: it can be read in one sitting. Tests do not count.
const MAX_FILE_LINES: usize = 600;

/// The maximum length of a crate, in lines: a newcomer can learn it in a few days. Tests do not count.
const MAX_CRATE_LINES: usize = 12_000;

/// Functions that may be longer: file, function, reason.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];
/// Files that may be longer: file, reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Macros that mean unfinished work, in Rust code.
const FORBIDDEN_MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
/// Notes that belong in an issue, anywhere in a file. Spelled in halves so that this file passes.
const FORBIDDEN_NOTES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
/// File names that do not describe the content.
const MEANINGLESS_FILE_NAMES: [&str; 7] = ["utils", "helpers", "common", "misc", "manager", "handler", "impl"];

/// Returns all findings on these files.
pub fn check_sources(files: &[SourceFile]) -> Vec<String> {
    let mut findings: Vec<String> = files.iter().flat_map(check_file).collect();
    findings.extend(stale_exceptions(files));
    findings.extend(check_crate_lengths(files));
    findings
}

/// Returns a finding for each crate that is too long.
fn check_crate_lengths(files: &[SourceFile]) -> Vec<String> {
    let mut lines_by_crate = BTreeMap::<&str, usize>::new();
    for SourceFile { path, text } in files {
        let in_crate = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        if let Some((name, _)) = in_crate.filter(|_| path.ends_with(".rs") && !is_test_file(path)) {
            let blanked = scanner::blank_comments_and_literals(text);
            *lines_by_crate.entry(name).or_default() += text.lines().count() - scanner::test_module_lines(&blanked);
        }
    }
    let too_long = lines_by_crate.into_iter().filter(|(_, lines)| *lines > MAX_CRATE_LINES);
    let describe = |(name, lines)| {
        format!("crates/{name}: {lines} lines without tests, the limit is {MAX_CRATE_LINES}; divide it by purpose")
    };
    too_long.map(describe).collect()
}

fn check_file(file: &SourceFile) -> Vec<String> {
    let SourceFile { path, text } = file;
    let mut findings = check_name(path);
    for (index, line) in text.lines().enumerate() {
        for note in FORBIDDEN_NOTES.iter().filter(|note| line.contains(**note)) {
            findings.push(format!("{path}:{}: {note} in a source file; finish it or open an issue", index + 1));
        }
    }
    let rust = path.ends_with(".rs");
    let blanked = if rust { scanner::blank_comments_and_literals(text) } else { String::new() };
    for (index, line) in blanked.lines().enumerate() {
        for word in FORBIDDEN_MACROS.iter().filter(|word| line.contains(**word)) {
            findings.push(format!("{path}:{}: {word} in code; implement it", index + 1));
        }
    }
    for function in scanner::functions(&blanked) {
        let excepted = LONG_FUNCTIONS.iter().any(|(file, name, _)| file == path && *name == function.name);
        if function.body_lines > MAX_FUNCTION_LINES && !excepted {
            findings.push(format!(
                "{path}:{}: function {} has {} lines, the limit is {MAX_FUNCTION_LINES}; split it into its steps",
                function.line, function.name, function.body_lines
            ));
        }
    }
    let lines = text.lines().count() - scanner::test_module_lines(&blanked);
    if lines > MAX_FILE_LINES && !is_test_file(path) && !LONG_FILES.iter().any(|(file, _)| file == path) {
        findings
            .push(format!("{path}: {lines} lines without tests, the limit is {MAX_FILE_LINES}; split it by purpose"));
    }
    findings
}

fn check_name(path: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if path.ends_with("/mod.rs") {
        findings.push(format!("{path}: module x is x.rs beside the folder x/, never mod.rs; move it"));
    }
    for part in path.split('/') {
        let stem = part.split('.').next().unwrap_or(part);
        if MEANINGLESS_FILE_NAMES.contains(&stem) {
            findings
                .push(format!("{path}: the name `{stem}` does not describe the content; rename it after its purpose"));
        }
    }
    findings
}

/// Reports whether a path is a test file, whose length is not limited.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests")
}

/// Finds exceptions that are no longer needed.
fn stale_exceptions(files: &[SourceFile]) -> Vec<String> {
    let gone = |path: &str| !files.iter().any(|file| file.path == path);
    let listed = LONG_FUNCTIONS.iter().map(|(path, ..)| path).chain(LONG_FILES.iter().map(|(path, _)| path));
    listed
        .filter(|path| gone(path))
        .map(|path| format!("{path}: tidy has an exception for this file, which does not exist; remove the exception"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check_file(&SourceFile { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_crate_has_at_most_12_000_lines() {
        let file = |number: usize| SourceFile {
            path: format!("crates/godwit-x/src/part_{number}.rs"),
            text: "// a line\n".repeat(600),
        };
        let files: Vec<SourceFile> = (0..21).map(file).collect();
        assert!(check_crate_lengths(&files[..20]).is_empty());
        assert_eq!(
            check_crate_lengths(&files),
            ["crates/godwit-x: 12600 lines without tests, the limit is 12000; divide it by purpose"]
        );
    }

    #[test]
    fn a_function_of_seventy_lines_passes_and_one_more_does_not() {
        let function = |lines| format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines));
        assert_eq!(findings("crates/a/src/a.rs", &function(70)), [""; 0]);
        let found = findings("crates/a/src/a.rs", &function(71));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/a.rs:1: function long has 71 lines"), "{found:?}");
    }

    #[test]
    fn a_file_of_six_hundred_lines_passes_and_tests_do_not_count() {
        let file = |lines| "const A: u8 = 1;\n".repeat(lines);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", file(300));
        assert_eq!(findings("crates/a/src/a.rs", &(file(600) + &tests)), [""; 0]);
        assert_eq!(findings("crates/a/src/a.rs", &(file(601) + &tests)).len(), 1);
        assert_eq!(findings("bench/long.py", &"pass\n".repeat(601)).len(), 1);
        for path in ["crates/a/src/a/tests.rs", "crates/a/tests/all.rs", "tests/run/all.rs"] {
            assert_eq!(findings(path, &file(601)), [""; 0]);
        }
    }

    #[test]
    fn unfinished_work_is_found_in_code_and_notes_in_comments() {
        assert_eq!(findings("crates/a/src/a.rs", "fn a() { todo!() }\n").len(), 1);
        assert_eq!(findings("crates/a/src/a.rs", "const A: &str = \"todo!\"; // todo! is forbidden\n"), [""; 0]);
        assert_eq!(findings("tools/a.sh", &format!("# {}: later\n", FORBIDDEN_NOTES[0])).len(), 1);
    }

    #[test]
    fn names_that_say_nothing_are_refused() {
        assert_eq!(findings("crates/a/src/b/mod.rs", "").len(), 1);
        assert_eq!(findings("crates/a/src/utils.rs", "").len(), 1);
        assert_eq!(findings("crates/a/src/misc/b.rs", "").len(), 1);
        assert_eq!(findings("crates/a/src/misconduct.rs", ""), [""; 0]);
    }
}
