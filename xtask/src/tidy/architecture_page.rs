//! Compares the tables in docs/architecture.md with the rules that tidy enforces, so that neither changes alone.
//!
//! In: the page. Out: one line per row that differs. Purposes of crates are for readers, and are not compared.

use std::collections::{BTreeMap, BTreeSet};

use super::SourceFile;
use super::manifest_rules::{ALLOWED_DEPENDENCIES, SOLE_DEPENDENTS};

const PAGE: &str = "docs/architecture.md";
/// Header of the table of crates: name, purpose, crates that it may use.
const CRATE_HEADER: &str = "| crate | purpose | may use |";
/// Header of the table of libraries that one crate may use.
const LIBRARY_HEADER: &str = "| library | only user |";
/// Crates that test and build the others. The page describes the others.
const UNLISTED_CRATES: [&str; 2] = ["godwit-tests", "xtask"];

/// Returns the findings in the page of the architecture, which is one of `pages`.
pub fn check_architecture(pages: &[SourceFile]) -> Vec<String> {
    match pages.iter().find(|page| page.path == PAGE) {
        Some(page) => compare_tables(&page.text, ALLOWED_DEPENDENCIES, SOLE_DEPENDENTS),
        None => vec![format!("{PAGE}: the page is missing; it contains the tables of crates and libraries")],
    }
}

fn compare_tables(page: &str, dependencies: &[(&str, &[&str])], libraries: &[(&str, &str)]) -> Vec<String> {
    let enforced = dependencies
        .iter()
        .filter(|(name, _)| !UNLISTED_CRATES.contains(name))
        .map(|(name, allowed)| ((*name).to_owned(), joined(allowed.iter().map(|name| short_name(name)).collect())))
        .collect();
    let mut findings = differences(&crates_of_page(page), &enforced);
    let enforced = libraries.iter().map(|(library, user)| ((*library).to_owned(), (*user).to_owned())).collect();
    let listed = table_rows(page, LIBRARY_HEADER)
        .into_iter()
        .filter_map(|cells| Some(((*cells.first()?).to_owned(), (*cells.get(1)?).to_owned())))
        .collect();
    findings.extend(differences(&listed, &enforced));
    findings
}

/// Returns for each crate in the table of the page the crates that it may use. "all but a, b" is resolved.
fn crates_of_page(page: &str) -> BTreeMap<String, String> {
    let rows = table_rows(page, CRATE_HEADER);
    let names: Vec<&str> = rows.iter().filter_map(|cells| cells.first().copied()).collect();
    let listed = rows.iter().filter_map(|cells| {
        let (name, words) = (*cells.first()?, *cells.get(2)?);
        let allowed: BTreeSet<&str> = if words == "none" {
            BTreeSet::new()
        } else if let Some(excluded) = words.strip_prefix("all but ") {
            let excluded: Vec<&str> = excluded.split(", ").collect();
            let others = names.iter().filter(|other| **other != name).map(|other| short_name(other));
            others.filter(|other| !excluded.contains(other)).collect()
        } else {
            words.split(", ").collect()
        };
        Some((name.to_owned(), joined(allowed)))
    });
    listed.collect()
}

/// Returns the cells of each row of the table that begins with a header, without spaces and code marks.
fn table_rows<'p>(page: &'p str, header: &str) -> Vec<Vec<&'p str>> {
    let rows = page.lines().skip_while(|line| *line != header).skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()).collect()
}

fn short_name(name: &str) -> &str {
    name.strip_prefix("godwit-").unwrap_or(name)
}

fn joined(names: BTreeSet<&str>) -> String {
    if names.is_empty() { "none".to_owned() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

/// Returns a finding for each key whose values differ between the page and tidy.
fn differences(listed: &BTreeMap<String, String>, enforced: &BTreeMap<String, String>) -> Vec<String> {
    let keys: BTreeSet<&String> = listed.keys().chain(enforced.keys()).collect();
    let finding = |key: &String| match (listed.get(key), enforced.get(key)) {
        (Some(listed), Some(enforced)) if listed == enforced => None,
        (Some(listed), Some(enforced)) => {
            Some(format!("{PAGE}: `{key}`: the table has {listed}, tidy enforces {enforced}; make both equal"))
        }
        (None, Some(enforced)) => Some(format!("{PAGE}: `{key}` is missing in the table; tidy enforces {enforced}")),
        _ => Some(format!("{PAGE}: `{key}` is in the table, and tidy has no rule for it; remove or add it")),
    };
    keys.into_iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &[(&str, &[&str])] = &[
        ("godwit-model", &[]),
        ("godwit-formats", &["godwit-model"]),
        ("godwit-mem", &["godwit-formats", "godwit-model"]),
        ("godwit", &["godwit-model", "godwit-formats"]),
        ("xtask", &[]),
    ];
    const LIBRARIES: &[(&str, &str)] = &[("clap", "godwit")];
    const GOOD_PAGE: &str = "# Page\n\n| crate | purpose | may use |\n|---|---|---|\n\
        | `godwit-model` | data | none |\n| `godwit-formats` | files, of `a` and b | model |\n\
        | `godwit-mem` | x | model, formats |\n| `godwit` | program | all but mem |\n\n\
        | library | only user |\n|---|---|\n| `clap` | `godwit` |\n\ntext | text\n";

    fn count(page: &str) -> usize {
        compare_tables(page, DEPENDENCIES, LIBRARIES).len()
    }

    #[test]
    fn equal_tables_have_no_finding() {
        assert_eq!(compare_tables(GOOD_PAGE, DEPENDENCIES, LIBRARIES), Vec::<String>::new());
    }

    #[test]
    fn every_row_that_differs_is_a_finding() {
        assert_eq!(count(&GOOD_PAGE.replace("| model, formats |", "| model |")), 1);
        assert_eq!(count(&GOOD_PAGE.replace("| data | none |", "| data | formats |")), 1);
        assert_eq!(count(&GOOD_PAGE.replace("all but mem", "all but mem, formats")), 1);
        assert_eq!(count(&GOOD_PAGE.replace("| `clap` | `godwit` |", "| `clap` | `godwit-mem` |")), 1);
    }

    #[test]
    fn missing_and_additional_rows_are_findings() {
        assert_eq!(count(&GOOD_PAGE.replace("| `godwit-model` | data | none |\n", "")), 2, "`all but` changes too");
        assert_eq!(count(&GOOD_PAGE.replace("| `clap` | `godwit` |\n", "| `clap` | `godwit` |\n| `b` | `c` |\n")), 1);
        assert_eq!(count(""), 5);
    }

    #[test]
    fn a_repository_without_the_page_is_a_finding() {
        assert_eq!(check_architecture(&[]).len(), 1);
    }
}
