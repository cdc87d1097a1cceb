//! Files that an earlier process left in the output directory: data of a job that is not resumed.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::DATA_FILES;
use crate::journal::AlignJournalEntry;

/// Removes the data files and the unfinished outputs of a job that is not resumed.
pub(super) fn remove_leftovers(out: &Path, entries: &[AlignJournalEntry]) {
    for entry in entries {
        let AlignJournalEntry::Start { temporary_names, data_directory, .. } = entry else { continue };
        remove_temporary_files(out, temporary_names);
        if let Some(bytes) = data_directory {
            let data = PathBuf::from(OsString::from_vec(bytes.clone()));
            DATA_FILES.iter().for_each(|name| drop(fs::remove_file(data.join(name))));
            let _ = fs::remove_dir(data);
        }
    }
}

pub(super) fn remove_temporary_files(out: &Path, names: &[String]) {
    for path in names.iter().map(|name| out.join(name)) {
        // The file does not exist if the job ended before it wrote any output. Ignore the error.
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}
