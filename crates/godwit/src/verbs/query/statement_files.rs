//! The files that an SQL statement reads, none of which its output may replace.

use std::path::{Path, PathBuf};

use godwit_cli::cli::QueryArgs;
use godwit_cli::failure::Failure;
use godwit_dataset::DatasetKind;
use godwit_formats::binning_index::index_paths;
use godwit_model::GlobPattern;
use godwit_query::find_dataset;

use super::DirectoryDatasets;
use crate::verbs::decrypted_files::INDEX_EXTENSIONS;
use crate::verbs::output_check::{NamedInput, check_output, reference_files};

impl DirectoryDatasets<'_> {
    /// Rejects an output that is a file of one of the datasets that a statement reads, or of its index. `tables` are the
    /// names in the statement that may be datasets.
    pub(in crate::verbs) fn check_output(&self, option: &str, out: &Path, tables: &[String]) -> Result<(), Failure> {
        // Datasets are opened to find their names, which takes time, and most outputs do not exist.
        if !out.exists() {
            return Ok(());
        }
        let names = tables.iter().flat_map(|table| self.dataset_names(table));
        let files: Vec<NamedInput> = names.flat_map(|name| dataset_files(self.directory.join(name))).collect();
        check_output(option, out, &files)
    }

    /// Returns the names of the datasets that a table of a statement stands for: one, or those that match a pattern.
    /// Tables that are not datasets, such as common table expressions, have no names.
    fn dataset_names(&self, table: &str) -> Vec<String> {
        if !table.contains(['*', '?']) {
            let found = find_dataset(&*self.catalog, table).ok();
            return found.and_then(|(name, _)| self.catalog.canonical_name(&name).ok()).into_iter().collect();
        }
        let pattern = GlobPattern::for_dataset_names(table);
        let mut names = self.catalog.names().unwrap_or_default();
        // Only the functions `reads` and `variants` accept patterns; they ignore datasets of other kinds.
        names.retain(|name| {
            let is_read = |kind| matches!(kind, DatasetKind::Reads | DatasetKind::Variants);
            pattern.matches(name) && self.catalog.open(name).is_ok_and(|dataset| is_read(dataset.kind()))
        });
        names
    }
}

/// Returns the files of a dataset: the file at `path` and its possible indexes, or the files in the directory at `path`.
fn dataset_files(path: PathBuf) -> Vec<NamedInput> {
    if let Ok(entries) = std::fs::read_dir(&path) {
        return entries.filter_map(|entry| Some(("the dataset", entry.ok()?.path()))).collect();
    }
    let indexes = index_paths(&path, &INDEX_EXTENSIONS);
    let mut files: Vec<NamedInput> = indexes.map(|index| ("the index of the dataset", index)).collect();
    files.push(("the dataset", path));
    files
}

/// Returns the files that options of `godwit query` name.
pub(super) fn option_files(args: &QueryArgs) -> Vec<NamedInput> {
    let named = [("--parameters-from", &args.parameters_from), ("--policy", &args.policy)];
    let named = named.into_iter().filter_map(|(option, path)| Some((option, path.clone()?)));
    let keys = args.keys.c4gh_key.iter().map(|path| ("--c4gh-key", path.clone()));
    let references = args.reference.iter().flat_map(|reference| reference_files(reference));
    named.chain(keys).chain(references).collect()
}
