//! The files of BLAST databases.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use godwit_files::parent_directory;

/// Extensions of the files of a BLAST database (versions 4 and 5) behind the letter for proteins or nucleotides, `p` or
/// `n`, as BLAST+ 2.17 writes them.
const DATABASE_EXTENSIONS: [&str; 19] =
    ["hr", "in", "sq", "al", "db", "os", "ot", "tf", "to", "js", "og", "nd", "ni", "sd", "si", "pd", "pi", "hd", "hi"];

/// Returns the files of a BLAST database, which is below the working directory or a directory of `BLASTDB`.
pub(crate) fn blast_database_files(name: &str) -> Vec<PathBuf> {
    let search_path = env::var_os("BLASTDB");
    let directories = std::iter::once(PathBuf::new()).chain(search_path.iter().flat_map(env::split_paths));
    directories.flat_map(|directory| files_with_stem(&directory.join(name))).collect()
}

/// Returns the files beside `stem` whose name is `STEM.EXTENSION` or `STEM.VOLUME.EXTENSION`, with the number of a volume
/// and an extension of BLAST databases, in the order of their names.
pub(crate) fn files_with_stem(stem: &Path) -> Vec<PathBuf> {
    let base = stem.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = fs::read_dir(parent_directory(stem)).into_iter().flatten().flatten();
    let is_part = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let behind = name.strip_prefix(&*base).and_then(|rest| rest.strip_prefix('.'));
        behind.is_some_and(|rest| match rest.split_once('.') {
            Some((volume, extension)) => {
                volume.bytes().all(|digit| digit.is_ascii_digit()) && is_database_extension(extension)
            }
            None => is_database_extension(rest),
        })
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_part(path)).collect();
    files.sort();
    files
}

fn is_database_extension(extension: &str) -> bool {
    let rest = extension.strip_prefix('p').or_else(|| extension.strip_prefix('n'));
    rest.is_some_and(|rest| DATABASE_EXTENSIONS.contains(&rest))
}
