//! Which files of a listing are copied: globs, and what is included and excluded.

use std::collections::HashSet;

use godwit_model::Pattern;

use crate::error::TransferError;
use crate::manifest::{Entry, EntryFailure};

/// What is copied of what there is.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

fn pattern(text: &str) -> Result<Pattern, TransferError> {
    Pattern::of_paths(text).map_err(|error| TransferError::refused(error.to_string()))
}

impl Selection {
    /// Files that fit one of `include`, where there are any, and none of `exclude`. A pattern with `/` is for paths, one without
    /// for names. What is below an excluded directory is excluded.
    ///
    /// # Errors
    /// [`TransferError::Refused`] for what is no pattern.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, TransferError> {
        let patterns = |texts: &[String]| texts.iter().map(|text| pattern(text)).collect::<Result<Vec<_>, _>>();
        Ok(Self { include: patterns(include)?, exclude: patterns(exclude)? })
    }

    /// Leaves of what is not copied what is selected, or may hold what is selected.
    pub(crate) fn apply_to_failures(&self, failures: &mut Vec<EntryFailure>) {
        failures.retain(|failure| {
            // It is not known what is in a directory that cannot be read.
            let is_special = matches!(failure.why, TransferError::Unsupported { .. });
            let is_included = !is_special || self.include.is_empty() || fits_any(&self.include, &failure.path);
            is_included && !ancestors(&failure.path).any(|path| fits_any(&self.exclude, path))
        });
    }

    /// Leaves of a listing what is selected. Directories that hold nothing selected are left out where something is included by name.
    pub fn apply(&self, entries: &mut Vec<Entry>) {
        if !self.exclude.is_empty() {
            entries.retain(|entry| !ancestors(&entry.path).any(|path| fits_any(&self.exclude, path)));
        }
        if !self.include.is_empty() {
            entries.retain(|entry| entry.directory || fits_any(&self.include, &entry.path));
            let files = entries.iter().filter(|entry| !entry.directory);
            let needed: HashSet<String> = files.flat_map(|file| ancestors(&file.path)).map(str::to_owned).collect();
            entries.retain(|entry| !entry.directory || entry.path.is_empty() || needed.contains(&entry.path));
        }
    }
}

/// A path and all directories that it is in.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(move |end| &path[..end]).filter(|path| !path.is_empty())
}

fn fits_any(patterns: &[Pattern], path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    patterns.iter().any(|pattern| {
        let text = if pattern.as_str().contains('/') { path } else { name };
        pattern.matches(text)
    })
}

/// A path with wildcards, as the directory to list and the pattern for what is in it; `None` where it has none.
///
/// # Errors
/// [`TransferError::Refused`] for what is no pattern.
pub(crate) fn split_glob(path: &str) -> Result<Option<(String, Pattern)>, TransferError> {
    let parts: Vec<&str> = path.split('/').collect();
    let Some(first) = parts.iter().position(|part| part.contains(['*', '?', '['])) else { return Ok(None) };
    Ok(Some((parts[..first].join("/"), pattern(&parts[first..].join("/"))?)))
}

/// The part of an entry's path that a pattern fits, where it fits the entry or a directory that it is in.
pub(crate) fn fitting<'p>(pattern: &Pattern, path: &'p str) -> Option<&'p str> {
    ancestors(path).find(|path| pattern.matches(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry {
            path: path.trim_end_matches('/').to_owned(),
            directory: path.is_empty() || path.ends_with('/'),
            size_bytes: 0,
            mode: 0o644,
            modified_s: 0,
            modified_ns: 0,
            version: 0,
            link: None,
        }
    }

    fn selected(include: &[&str], exclude: &[&str]) -> Vec<String> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let paths = ["", "a.bam", "a.bam.bai", "logs/", "logs/x.txt", "s/", "s/b.bam", "s/tmp/", "s/tmp/c.bam"];
        let mut entries = paths.map(entry).to_vec();
        Selection::new(&texts(include), &texts(exclude)).unwrap().apply(&mut entries);
        entries.into_iter().map(|entry| entry.path).collect()
    }

    #[test]
    fn names_and_paths_select() {
        assert_eq!(selected(&["*.bam"], &[]), ["", "a.bam", "s", "s/b.bam", "s/tmp", "s/tmp/c.bam"]);
        assert_eq!(selected(&["*.bam"], &["tmp"]), ["", "a.bam", "s", "s/b.bam"]);
        assert_eq!(selected(&[], &["s/*"]), ["", "a.bam", "a.bam.bai", "logs", "logs/x.txt", "s"]);
        assert_eq!(selected(&["s/**/*.bam"], &[]), ["", "s", "s/b.bam", "s/tmp", "s/tmp/c.bam"]);
        assert!(Selection::new(&["[".to_owned()], &[]).is_err());
    }

    #[test]
    fn a_path_with_wildcards_is_a_directory_and_a_pattern() {
        let (directory, pattern) = split_glob("runs/2026*/*.bam").unwrap().unwrap();
        assert_eq!((directory.as_str(), pattern.as_str()), ("runs", "2026*/*.bam"));
        assert_eq!(fitting(&pattern, "2026-01/a.bam"), Some("2026-01/a.bam"));
        assert_eq!(fitting(&pattern, "2026-01/a.bam/b"), Some("2026-01/a.bam"));
        assert_eq!(fitting(&pattern, "2025/a.bam"), None);
        assert!(split_glob("a/b").unwrap().is_none());
    }
}
