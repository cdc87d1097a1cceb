//! Rules on language: words for people, first words of documentation, names of types and files.
//!
//! In: sources and Markdown pages. Out: one line per finding. It reads whole-line comments, not literals.

use std::collections::{BTreeMap, BTreeSet};

use super::SourceFile;
use super::scanner::blank_comments_and_literals;

/// Words for people. Software has names: client, server, worker, process, thread.
const PERSON_WORDS: [&str; 10] =
    ["who", "whoever", "whom", "nobody", "somebody", "anybody", "everybody", "someone", "anyone", "everyone"];
/// Nouns for people. A line with one of them may use the words above.
const PEOPLE: [&str; 9] =
    ["user", "users", "operator", "operators", "people", "administrator", "reader", "readers", "those"];
/// First words that describe an item by a question.
const QUESTION_WORDS: [&str; 8] = ["What", "Who", "Where", "How", "Whether", "When", "Which", "Why"];
/// Percentage of documented items that may begin with such a word.
const MAX_QUESTION_PERCENT: usize = 2;
/// Metaphors. A type is named by a noun of the field.
const BANNED_TYPES: [&str; 14] = [
    "Aside", "Climb", "Crew", "Gate", "Gift", "Habits", "Manner", "News", "Place", "Seat", "Shelf", "Sight", "Stretch",
    "Trip",
];
/// Participles without a regular ending. `Read`, `Run` and `Set` are nouns of the field.
const IRREGULAR_PARTICIPLES: [&str; 37] = [
    "Begun", "Bound", "Broken", "Brought", "Built", "Caught", "Chosen", "Come", "Done", "Drawn", "Fed", "Found",
    "Given", "Gone", "Grown", "Held", "Hidden", "Kept", "Known", "Left", "Lost", "Made", "Met", "Paid", "Ran", "Seen",
    "Sent", "Shown", "Shut", "Sought", "Spent", "Stolen", "Taken", "Thought", "Told", "Worn", "Written",
];
/// Nouns that have the ending of a participle.
const NOUNS_LIKE_PARTICIPLES: [&str; 18] = [
    "Calling", "Coding", "Encoding", "Feed", "Finding", "Grouping", "Handling", "Listing", "Mapping", "Naming", "Need",
    "Ordering", "Seed", "Setting", "Spacing", "Speed", "String", "Timing",
];
/// Types that are named by a participle for a reason: name, reason.
const PARTICIPLE_EXCEPTIONS: [(&str, &str); 1] = [("Interrupted", "a public exception of the Python package")];
/// Crates in which one file name may occur.
const MAX_CRATES_OF_FILE_NAME: usize = 3;
/// File names with a meaning of their own in every crate.
const CONVENTIONAL_FILE_NAMES: [&str; 5] = ["build.rs", "error.rs", "lib.rs", "main.rs", "tests.rs"];

/// Crates that other programs use, and the examples that their documentation has together, at least.
const LIBRARY_CRATES: [&str; 13] = [
    "model",
    "io",
    "formats",
    "columnar",
    "kernels",
    "dataset",
    "auth",
    "flight",
    "delta",
    "transfer",
    "transfer-session",
    "query",
    "sql",
];
const MIN_EXAMPLES: usize = 150;

/// Counts of the documentation of all crates.
#[derive(Debug, PartialEq, Eq)]
pub struct DocumentationCounts {
    pub documented_items: usize,
    /// Places of the items that begin with a question word.
    pub questions: Vec<String>,
    /// Examples of the library crates that `cargo test --doc` compiles.
    pub examples: usize,
}

/// Returns the findings in sources and Markdown pages.
pub fn check_language(sources: &[SourceFile], pages: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in sources {
        let comments = file.text.lines().enumerate().filter_map(|(at, line)| Some((at, comment(&file.path, line)?)));
        findings.extend(check_prose(&file.path, comments));
    }
    for page in pages {
        let text = blank_code(&page.text);
        findings.extend(check_prose(&page.path, text.lines().enumerate()));
    }
    let crates: Vec<&SourceFile> = sources.iter().filter(|file| is_crate_source(&file.path)).collect();
    findings.extend(sources.iter().flat_map(check_type_names));
    findings.extend(check_file_names(&crates));
    findings
}

fn is_crate_source(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs")
}

/// Returns the text of a line that is a comment.
fn comment<'l>(path: &str, line: &'l str) -> Option<&'l str> {
    let line = line.trim_start();
    if path.ends_with(".py") || path.ends_with(".sh") {
        return line.strip_prefix('#');
    }
    line.strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']))
}

/// Blanks fenced blocks and code spans of a Markdown page; lines stay.
fn blank_code(page: &str) -> String {
    let mut is_fenced = false;
    let blank = |line: &str| {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            return String::new();
        }
        if is_fenced { String::new() } else { line.split('`').step_by(2).collect::<Vec<_>>().join(" ") }
    };
    page.lines().map(blank).collect::<Vec<_>>().join("\n")
}

fn check_prose<'l>(path: &str, lines: impl Iterator<Item = (usize, &'l str)>) -> Vec<String> {
    let mut findings = Vec::new();
    for (at, line) in lines {
        let words: Vec<String> = words(line).map(str::to_lowercase).collect();
        if let Some(word) = words.iter().find(|word| PERSON_WORDS.contains(&word.as_str()))
            && !words.iter().any(|word| PEOPLE.contains(&word.as_str()))
        {
            findings
                .push(format!("{path}:{}: {word:?} for software; name the client, server, worker or process", at + 1));
        }
        if words.iter().enumerate().any(|(at, _)| is_denial(&words, at)) {
            findings.push(format!("{path}:{}: \"is no\"; write \"is not a\"", at + 1));
        }
    }
    findings
}

/// Returns the findings in the description of a crate. `path` and `manifest`: the manifest of the crate.
pub fn check_description(path: &str, manifest: &str) -> Vec<String> {
    let lines = manifest.lines().enumerate();
    let description: Vec<_> = lines.filter_map(|(at, line)| Some((at, line.strip_prefix("description = ")?))).collect();
    let mut findings = check_prose(path, description.iter().copied());
    let question = |(_, text): &&(usize, &str)| words(text).next().is_some_and(|word| QUESTION_WORDS.contains(&word));
    let questions = description.iter().filter(question);
    findings.extend(questions.map(|(at, _)| format!("{path}:{}: begin the description with a noun", at + 1)));
    findings
}

/// Reports whether the words at that place deny without an article. Statements of existence and "no longer" need none.
fn is_denial(words: &[String], at: usize) -> bool {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let is_existence = at > 0 && word(at - 1) == "there";
    ["is", "are", "was"].contains(&word(at))
        && word(at + 1) == "no"
        && !["longer", "more"].contains(&word(at + 2))
        && !is_existence
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn check_type_names(file: &SourceFile) -> Vec<String> {
    let mut findings = Vec::new();
    for (line, name) in type_names(file) {
        let place = format!("{}:{line}: type {name}", file.path);
        if BANNED_TYPES.contains(&name.as_str()) {
            findings.push(format!("{place}: use a noun of the field"));
        } else if is_participle(last_word(&name)) && !PARTICIPLE_EXCEPTIONS.iter().any(|(known, _)| *known == name) {
            findings.push(format!("{place} is named by a participle; name what it holds, with a noun of the field"));
        }
    }
    findings
}

/// Returns the types that a source file defines, each with its 1-based line. In languages other than Rust, a definition
/// starts its line.
fn type_names(file: &SourceFile) -> Vec<(usize, String)> {
    let is_rust = file.path.ends_with(".rs");
    // The raw name `r#type` is not the keyword.
    let text = if is_rust { blank_comments_and_literals(&file.text).replace("r#", "r_") } else { file.text.clone() };
    let keywords = if is_rust { &["struct", "enum", "trait", "type", "union"][..] } else { &["class", "struct"][..] };
    let mut names = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words: Vec<&str> = words(line).collect();
        let pairs = words.windows(2).take(if is_rust { usize::MAX } else { 1 });
        let defined = pairs.filter(|pair| keywords.contains(&pair[0]) && pair[1].starts_with(char::is_uppercase));
        names.extend(defined.map(|pair| (at + 1, pair[1].to_owned())));
    }
    names
}

/// Returns the last word of a name in camel case.
fn last_word(name: &str) -> &str {
    name.rfind(char::is_uppercase).map_or(name, |start| &name[start..])
}

/// Reports whether a word with a capital is a participle, and not one of the nouns with such an ending.
fn is_participle(word: &str) -> bool {
    let has_ending = word.len() > 4 && (word.ends_with("ed") || word.ends_with("ing"));
    IRREGULAR_PARTICIPLES.contains(&word) || (has_ending && !NOUNS_LIKE_PARTICIPLES.contains(&word))
}

/// Counts documented items and examples in the sources of the crates.
pub fn count_documentation(sources: &[SourceFile]) -> DocumentationCounts {
    let mut counts = DocumentationCounts { documented_items: 0, questions: Vec::new(), examples: 0 };
    for file in sources.iter().filter(|file| is_crate_source(&file.path)) {
        let is_library = LIBRARY_CRATES.iter().any(|name| file.path.starts_with(&format!("crates/godwit-{name}/")));
        let (mut is_inside, mut is_fenced) = (false, false);
        for (at, line) in file.text.lines().enumerate() {
            let line = line.trim_start();
            let text = line.strip_prefix("///");
            if let Some(text) = text.filter(|_| !is_inside) {
                counts.documented_items += 1;
                if words(text).next().is_some_and(|word| QUESTION_WORDS.contains(&word)) {
                    counts.questions.push(format!("{}:{}", file.path, at + 1));
                }
            }
            is_inside = text.is_some();
            if let Some(language) = text.or(line.strip_prefix("//!")).and_then(|text| text.trim().strip_prefix("```")) {
                is_fenced = !is_fenced;
                counts.examples +=
                    usize::from(is_fenced && is_library && ["", "no_run", "should_panic"].contains(&language));
            }
        }
    }
    counts
}

/// Returns the findings in the counts of the documentation.
pub fn check_documentation(counts: &DocumentationCounts) -> Vec<String> {
    let DocumentationCounts { documented_items, questions, examples } = counts;
    let mut findings = Vec::new();
    if questions.len() * 100 > documented_items * MAX_QUESTION_PERCENT {
        findings.push(format!(
            "{} of {documented_items} documented items begin with a question word, {MAX_QUESTION_PERCENT} % may; among them {}",
            questions.len(),
            questions.iter().take(20).cloned().collect::<Vec<_>>().join(", ")
        ));
    }
    if *examples < MIN_EXAMPLES {
        findings.push(format!("{examples} examples in {LIBRARY_CRATES:?}, at least {MIN_EXAMPLES} are required"));
    }
    findings
}

fn check_file_names(files: &[&SourceFile]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        let mut parts = file.path.split('/');
        if let (Some(owner), Some(name)) = (parts.nth(1), parts.next_back()) {
            crates.entry(name).or_default().insert(owner);
        }
    }
    let too_many = crates
        .into_iter()
        .filter(|(name, owners)| owners.len() > MAX_CRATES_OF_FILE_NAME && !CONVENTIONAL_FILE_NAMES.contains(name));
    too_many
        .map(|(name, owners)| format!("{name} is in {} crates: name each file by its content", owners.len()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn findings(text: &str) -> Vec<String> {
        check_language(&[source("crates/a/src/x.rs", text)], &[])
    }

    #[test]
    fn software_is_not_a_person() {
        assert_eq!(findings("// Returns the lease to whoever asks.\n").len(), 1);
        assert_eq!(findings("// Users who rely on it.\nlet who = \"nobody\";\n"), Vec::<String>::new());
        let page = source("docs/a.md", "The one who asks.\n```\nwho\n```\nThe column `who`.\n");
        assert_eq!(check_language(&[], &[page]).len(), 1);
    }

    #[test]
    fn descriptions_of_crates_begin_with_a_noun_and_name_software() {
        let findings = |text: &str| check_description("a.toml", &format!("[package]\ndescription = \"{text}\"\n"));
        assert_eq!(findings("Access rules for rows"), [""; 0]);
        assert_eq!(findings("What all jobs share"), ["a.toml:2: begin the description with a noun"]);
        assert_eq!(findings("The log of who reads").len(), 1);
    }

    #[test]
    fn denials_have_an_article() {
        assert_eq!(findings("// It is no BAM.\n").len(), 1);
        assert_eq!(findings("// If there is no BAM, it is no longer a run.\n"), Vec::<String>::new());
    }

    #[test]
    fn types_are_nouns_of_the_field() {
        assert_eq!(findings("pub struct Gift {\n}\n// struct Seat\n").len(), 1);
    }

    #[test]
    fn no_type_is_named_by_a_participle() {
        for name in ["Given", "Opened", "Watched", "Known", "BlocksWritten", "Sending"] {
            assert_eq!(findings(&format!("pub(crate) struct {name}<'a>(&'a str);\n")).len(), 1, "{name}");
            assert_eq!(findings(&format!("type {name} = u8;\n")).len(), 1, "{name}");
            let class = source("python/tests/a.py", &format!("class {name}:\n    pass  # class Given\n"));
            assert_eq!(check_language(&[class], &[]).len(), 1, "{name}");
        }
        for name in ["SortedRun", "Bed", "AlignerFeed", "VariantCalling", "Setting", "ReadSet", "ReadRun", "F64"] {
            assert_eq!(findings(&format!("enum {name} {{ Given, Opened }}\n")), Vec::<String>::new(), "{name}");
        }
        assert_eq!(findings("fn f(r#type: Opened) {} // struct Told\n"), Vec::<String>::new());
    }

    #[test]
    fn items_questions_and_examples_are_counted() {
        let text = "/// A lease.\n/// Who has it.\n///\n/// ```\n/// f();\n/// ```\nstruct A;\n/// What is left.\n/// ```text\n/// x\n/// ```\nstruct B;\n";
        let counts =
            count_documentation(&[source("crates/godwit-model/src/x.rs", text), source("crates/a/src/x.rs", text)]);
        let questions = ["crates/godwit-model/src/x.rs:8", "crates/a/src/x.rs:8"].map(str::to_owned).to_vec();
        assert_eq!(counts, DocumentationCounts { documented_items: 4, questions, examples: 1 });
        assert_eq!(check_documentation(&counts).len(), 2);
        let good = DocumentationCounts { documented_items: 100, examples: MIN_EXAMPLES, ..counts };
        assert_eq!(check_documentation(&good), Vec::<String>::new());
    }

    #[test]
    fn a_file_name_is_in_three_crates_at_most() {
        let files = |name: &str| ["a", "b", "c", "d"].map(|owner| source(&format!("crates/{owner}/src/{name}"), ""));
        assert_eq!(check_language(&files("plan.rs"), &[]).len(), 1);
        assert_eq!(check_language(&files("error.rs"), &[]), Vec::<String>::new());
        assert_eq!(check_language(&files("plan.rs")[1..], &[]), Vec::<String>::new());
    }
}
