//! The identity of a search, which must not change if the search is resumed. It consists of the command, the queries,
//! and the sizes and modification times of the files of the database.

use std::fs::File;
use std::path::{Path, PathBuf};

use godwit_files::FileStamp;

use super::SAM_FORMAT;
use crate::search_checkpoint::SearchIdentity;
use crate::{SearchError, SearchOptions, ToolSearch};

/// Extensions of the files of a BLAST database volume that contain sequences, headers and their index.
const VOLUME_EXTENSIONS: [&str; 6] = [".pin", ".psq", ".phr", ".nin", ".nsq", ".nhr"];

/// Returns the identity of a search.
pub(super) fn search_identity(
    options: &SearchOptions,
    query: &Path,
    engine: &str,
    volumes: &[(PathBuf, FileStamp)],
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
    let named =
        |bulk: &ToolSearch| bulk.database_files(&bulk.database_argument).into_iter().filter_map(with_stamp).collect();
    let files = command.tool_search.as_ref().map_or_else(|| volumes.to_vec(), named);
    // 0 if the time is before 1970
    let nanoseconds = |stamp: FileStamp| {
        u128::try_from(stamp.modified_s).map_or(0, |seconds| seconds * 1_000_000_000 + stamp.modified_ns as u128)
    };
    Ok(SearchIdentity {
        godwit_version: env!("CARGO_PKG_VERSION").to_owned(),
        engine: engine.to_owned(),
        options: std::iter::once(command.program.name().to_owned()).chain(words).collect(),
        queries_checksum: hasher.finalize().to_hex().to_string(),
        database_files: files.into_iter().map(|(path, stamp)| (path, stamp.bytes, nanoseconds(stamp))).collect(),
        has_hits_table: options.hits_path.is_some(),
    })
}

/// Returns the existing files that contain the subjects, with their stamps: the FASTA file `subjects`, or the files of
/// the database volumes. An entry of `volumes` is a path without extension, or the path of a file.
pub(super) fn subject_file_stamps(subjects: Option<&Path>, volumes: &[String]) -> Vec<(PathBuf, FileStamp)> {
    if let Some(path) = subjects {
        return with_stamp(path.to_owned()).into_iter().collect();
    }
    let endings = || VOLUME_EXTENSIONS.into_iter().chain([""]);
    let paths =
        volumes.iter().flat_map(|volume| endings().map(move |ending| PathBuf::from(format!("{volume}{ending}"))));
    paths.filter_map(with_stamp).collect()
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
