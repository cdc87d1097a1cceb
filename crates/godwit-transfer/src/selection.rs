//! Selection of files of a listing by glob patterns that include or exclude them.

use std::collections::HashSet;

use godwit_model::GlobPattern;

use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure};

/// Glob patterns that select files of a listing.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    include: Vec<GlobPattern>,
    exclude: Vec<GlobPattern>,
}

fn parse_pattern(text: &str) -> Result<GlobPattern, TransferError> {
    GlobPattern::for_file_paths(text).map_err(|error| TransferError::rejected(error.to_string()))
}

impl Selection {
    /// Selects files that match none of the globs in `exclude` and, unless `include` is empty, at least one of the
    /// globs in `include`. A glob that contains `/` is compared with the path of a file, any other with its name.
    /// Everything below an excluded directory is excluded.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if a glob is invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_transfer::TransferError;
    /// use godwit_transfer::selection::Selection;
    ///
    /// assert!(Selection::new(&["*.bam".to_owned()], &["tmp".to_owned()]).is_ok());
    /// let unclosed = Selection::new(&["lane[1-4.bam".to_owned()], &[]);
    /// assert!(matches!(unclosed, Err(TransferError::Rejected { .. })));
    /// ```
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, TransferError> {
        let patterns = |texts: &[String]| texts.iter().map(|text| parse_pattern(text)).collect::<Result<Vec<_>, _>>();
        Ok(Self { include: patterns(include)?, exclude: patterns(exclude)? })
    }

    /// Retains the failures of entries that are selected, and of directories that may contain selected entries.
    pub(crate) fn apply_to_failures(&self, failures: &mut Vec<EntryFailure>) {
        failures.retain(|failure| {
            // The contents of an unreadable directory are unknown and may match `include`, so its failure is always
            // kept.
            let is_special = matches!(failure.error, TransferError::Unsupported { .. });
            let is_included = !is_special || self.include.is_empty() || matches_any(&self.include, &failure.path);
            is_included && !ancestors(&failure.path).any(|path| matches_any(&self.exclude, path))
        });
    }

    /// Retains the selected entries. If there are globs in `include`, directories without selected files are removed.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_transfer::LinkPolicy;
    /// use godwit_transfer::file_listing::list_entries;
    /// use godwit_transfer::selection::Selection;
    ///
    /// let directory = tempfile::tempdir()?;
    /// for name in ["a.bam", "a.bam.bai", "b.bam", "run.log"] {
    ///     std::fs::write(directory.path().join(name), "")?;
    /// }
    /// let mut entries = list_entries(directory.path(), LinkPolicy::Follow)?.entries;
    /// Selection::new(&["*.bam".to_owned()], &["b.*".to_owned()])?.apply(&mut entries);
    /// let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
    /// // The empty path is the directory itself.
    /// assert_eq!(paths, ["", "a.bam"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn apply(&self, entries: &mut Vec<Entry>) {
        if !self.exclude.is_empty() {
            entries.retain(|entry| !ancestors(&entry.path).any(|path| matches_any(&self.exclude, path)));
        }
        if !self.include.is_empty() {
            entries.retain(|entry| entry.is_directory || matches_any(&self.include, &entry.path));
            let files = entries.iter().filter(|entry| !entry.is_directory);
            let needed: HashSet<String> = files.flat_map(|file| ancestors(&file.path)).map(str::to_owned).collect();
            entries.retain(|entry| !entry.is_directory || entry.path.is_empty() || needed.contains(&entry.path));
        }
    }
}

/// Returns the path of each parent directory, from the top, and then the path itself.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(move |end| &path[..end]).filter(|path| !path.is_empty())
}

fn matches_any(patterns: &[GlobPattern], path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    patterns.iter().any(|pattern| {
        let text = if pattern.as_str().contains('/') { path } else { name };
        pattern.matches(text)
    })
}

/// Splits a path that contains wildcards into the directory to list and a glob for the entries below it. Returns `None`
/// if there are no wildcards.
///
/// # Errors
/// [`TransferError::Rejected`] if the glob is invalid.
pub(crate) fn split_glob(path: &str) -> Result<Option<(String, GlobPattern)>, TransferError> {
    let parts: Vec<&str> = path.split('/').collect();
    let Some(first) = parts.iter().position(|part| part.contains(['*', '?', '['])) else { return Ok(None) };
    Ok(Some((parts[..first].join("/"), parse_pattern(&parts[first..].join("/"))?)))
}

/// Returns the shortest prefix of a path that matches a glob: a parent directory, or the whole path.
pub(crate) fn matching_prefix<'p>(pattern: &GlobPattern, path: &'p str) -> Option<&'p str> {
    ancestors(path).find(|path| pattern.matches(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry {
            path: path.trim_end_matches('/').to_owned(),
            is_directory: path.is_empty() || path.ends_with('/'),
            size_bytes: 0,
            mode: 0o644,
            modified_s: 0,
            modified_ns: 0,
            version: 0,
            link_target: None,
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
        assert_eq!(matching_prefix(&pattern, "2026-01/a.bam"), Some("2026-01/a.bam"));
        assert_eq!(matching_prefix(&pattern, "2026-01/a.bam/b"), Some("2026-01/a.bam"));
        assert_eq!(matching_prefix(&pattern, "2025/a.bam"), None);
        assert!(split_glob("a/b").unwrap().is_none());
    }
}
