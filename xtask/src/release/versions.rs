//! The version of a release: every file that contains it, and the section of the changelog.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{output_text, run_command};

/// The files that contain the version, each with the text before it and after it. Manifests of crates inherit it, and the wheel reads it
/// from the first of these files.
const VERSION_PLACES: [(&str, &str, &str); 3] = [
    ("Cargo.toml", "[workspace.package]\nversion = \"", "\""),
    ("packaging/bioconda/meta.yaml", "{% set version = \"", "\""),
    ("README.md", "\n## Status\n\nVersion ", ", "),
];

/// Returns the version, after checking that all files have the same one and that the changelog begins with it.
///
/// # Errors
/// When they differ, or when the section has no date although `unreleased` is false.
pub(super) fn check(root: &Path, unreleased: bool) -> Result<String> {
    let mut version = String::new();
    for (file, before, after) in VERSION_PLACES {
        let found = read(root, file)?;
        let (_, found, _) = split_at_version(&found, before, after)
            .with_context(|| format!("{file} has no version after {before:?}"))?;
        if version.is_empty() {
            version = found.to_owned();
        }
        if found != version {
            bail!(
                "{file} has version {found}, but {} has {version}; use cargo xtask release --cut",
                VERSION_PLACES[0].0
            );
        }
    }
    let changelog = read(root, "CHANGELOG.md")?;
    if !unreleased {
        check_changelog(&changelog, &version)?;
    }
    Ok(version)
}

/// Checks that the first section of the changelog is of the version and has a date.
fn check_changelog(changelog: &str, version: &str) -> Result<()> {
    let section = first_section(changelog).context("CHANGELOG.md has no section")?;
    let date = section.strip_prefix(version).and_then(|rest| rest.strip_prefix(" (")?.strip_suffix(')'));
    let is_date = |date: &str| date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if !date.is_some_and(is_date) {
        bail!(
            "CHANGELOG.md begins with the section {section:?}, but the version is {version}; cut a version or use --unreleased"
        );
    }
    Ok(())
}

/// Writes a new version to all files, and closes the first section of the changelog with the date of today.
///
/// # Errors
/// When the changelog does not begin with `VERSION (unreleased)`, or a file cannot be written.
pub(super) fn cut(root: &Path, version: &str) -> Result<()> {
    if version.split('.').count() != 3 || !version.split('.').all(|part| part.parse::<u32>().is_ok()) {
        bail!("{version} is not a version such as 0.2.0");
    }
    let changelog = read(root, "CHANGELOG.md")?;
    let section = first_section(&changelog).context("CHANGELOG.md has no section")?;
    if section != format!("{version} (unreleased)") {
        bail!("CHANGELOG.md begins with the section {section:?}, not with \"{version} (unreleased)\"");
    }
    let today = output_text(Command::new("date").args(["-u", "+%F"]))?;
    let cut = changelog.replacen(&format!("## {section}\n"), &format!("## {version} ({today})\n"), 1);
    write(root, "CHANGELOG.md", &cut)?;
    for (file, before, after) in VERSION_PLACES {
        let text = read(root, file)?;
        let (start, _, end) = split_at_version(&text, before, after)
            .with_context(|| format!("{file} has no version after {before:?}"))?;
        write(root, file, &format!("{start}{version}{end}"))?;
    }
    run_command(crate::cargo::command().current_dir(root).args(["update", "--workspace", "--offline"]))?;
    println!("release: version {version} of {today}; run ./check, commit, and tag the commit v{version}");
    Ok(())
}

/// Returns the title of the first section of second level.
fn first_section(changelog: &str) -> Option<&str> {
    changelog.lines().find_map(|line| line.strip_prefix("## "))
}

/// Splits a text into the part up to the version, the version, and the rest.
fn split_at_version<'a>(text: &'a str, before: &str, after: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let start = text.find(before)? + before.len();
    let end = start + text[start..].find(after)?;
    Some((&text[..start], &text[start..end], &text[end..]))
}

fn read(root: &Path, file: &str) -> Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}

fn write(root: &Path, file: &str, text: &str) -> Result<()> {
    fs::write(root.join(file), text).with_context(|| format!("cannot write {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_the_repository_have_one_version() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(check(root, true).unwrap(), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn a_changelog_without_a_dated_section_of_the_version_is_refused() {
        let changelog = |title: &str| format!("# Changelog\n\n## {title}\n\n## 0.1.0 (2026-11-25)\n");
        check_changelog(&changelog("0.2.0 (2026-12-01)"), "0.2.0").unwrap();
        for (title, version) in [("0.2.0 (unreleased)", "0.2.0"), ("0.2.0 (2026-12-01)", "0.1.0"), ("0.2.0", "0.2.0")] {
            check_changelog(&changelog(title), version).unwrap_err();
        }
    }

    #[test]
    fn a_version_is_split_from_the_text_around_it() {
        assert_eq!(split_at_version("a = \"1.2\"\nb", "a = \"", "\""), Some(("a = \"", "1.2", "\"\nb")));
        assert_eq!(split_at_version("a = 1", "a = \"", "\""), None);
    }
}
