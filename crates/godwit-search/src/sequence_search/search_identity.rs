//! The identity of a search, which must not change if the search is resumed. It consists of the command, the queries,
//! and the sizes and modification times of the files of the database.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use godwit_files::FileStamp;

use super::SAM_FORMAT;
use crate::search_checkpoint::SearchIdentity;
use crate::{SearchCommand, SearchError, SearchOptions};

/// Extensions of the files of a BLAST database volume that contain sequences, headers and their index.
const VOLUME_EXTENSIONS: [&str; 6] = [".pin", ".psq", ".phr", ".nin", ".nsq", ".nhr"];

/// Returns the identity of a search.
pub(super) fn search_identity(
    options: &SearchOptions,
    query: &Path,
    engine: &str,
    files: &[(PathBuf, FileStamp)],
) -> Result<SearchIdentity, SearchError> {
    let command = &options.command;
    let mut hasher = blake3::Hasher::new();
    let read = File::open(query).and_then(|mut file| std::io::copy(&mut file, &mut hasher));
    read.map_err(|source| SearchError::File { action: "read", path: query.to_owned(), source })?;
    let words = match &command.tool_search {
        Some(bulk) => bulk.identity_words(),
        // The SAM header contains the whole command line, so every word of it changes the output.
        None if command.format == SAM_FORMAT => command.words[1..].to_vec(),
        None => command.arguments.clone(),
    };
    // 0 if the time is before 1970
    let nanoseconds = |stamp: FileStamp| {
        u128::try_from(stamp.modified_s).map_or(0, |seconds| seconds * 1_000_000_000 + stamp.modified_ns as u128)
    };
    Ok(SearchIdentity {
        godwit_version: env!("CARGO_PKG_VERSION").to_owned(),
        engine: engine.to_owned(),
        options: std::iter::once(command.program.name().to_owned()).chain(words).collect(),
        queries_checksum: hasher.finalize().to_hex().to_string(),
        database_files: files.iter().map(|(path, stamp)| (path.clone(), stamp.bytes, nanoseconds(*stamp))).collect(),
        has_hits_table: options.hits_path.is_some(),
    })
}

/// Returns the existing files with subjects, with their stamps: subjects, files of the database and its aliases, and
/// lists of sequences. An entry of `volumes` is a path without extension, or the path of a file. Those of an installed
/// tool are ignored, because they may be scratch files that were made from the files on the command line.
pub(super) fn database_file_stamps(command: &SearchCommand, volumes: &[String]) -> Vec<(PathBuf, FileStamp)> {
    let volumes = if command.tool_search.is_some() { &[] } else { volumes };
    let endings = || VOLUME_EXTENSIONS.into_iter().chain([""]);
    let paths =
        volumes.iter().flat_map(|volume| endings().map(move |ending| PathBuf::from(format!("{volume}{ending}"))));
    let named = command.input_files().into_iter().filter(|(option, _)| *option != command.query_option());
    let paths: BTreeSet<PathBuf> = paths.chain(named.map(|(_, path)| path)).collect();
    paths.into_iter().filter_map(with_stamp).collect()
}

fn with_stamp(path: PathBuf) -> Option<(PathBuf, FileStamp)> {
    let stamp = FileStamp::read(&path).ok()?;
    Some((path, stamp))
}

pub(super) fn first_changed_file(volumes: &[(PathBuf, FileStamp)]) -> Option<PathBuf> {
    let is_unchanged =
        |path: &PathBuf, stamp: &FileStamp| FileStamp::read(path).is_ok_and(|now| now.has_same_size_and_time(stamp));
    let changed = volumes.iter().find(|(path, stamp)| !is_unchanged(path, stamp));
    changed.map(|(path, _)| path.clone())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lists_and_aliases_have_stamps_and_queries_have_none() {
        let directory = tempfile::tempdir().expect("scratch");
        let at = |name: &str| directory.path().join(name);
        for name in ["q.fa", "db.pal", "ids", "volume.psq", "volume.log"] {
            fs::write(at(name), "").expect("scratch can be written");
        }
        let path = |name: &str| at(name).display().to_string();
        let words = ["-query", &path("q.fa"), "-db", &path("db"), "-seqidlist", &path("ids")].map(str::to_owned);
        let words: Vec<String> = std::iter::once("blastp".to_owned()).chain(words).collect();
        let command = SearchCommand::parse(&words).expect("it is valid");
        let stamps = database_file_stamps(&command, &[path("volume")]);
        let paths: Vec<PathBuf> = stamps.into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["db.pal", "ids", "volume.psq"].map(at));
        let words = ["blastp", "-query", &path("q.fa"), "-subject", &path("q.fa")].map(str::to_owned);
        let command = SearchCommand::parse(&words).expect("it is valid");
        assert_eq!(database_file_stamps(&command, &[]).len(), 1);
    }
}
