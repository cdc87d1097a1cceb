//! The manifest beside the outputs: names, sizes and checksums of all written files.
//!
//! `NAME.manifest.json` names files relative to itself, so that it stays valid when all of them are moved together. It
//! detects what a file alone cannot show: a BAM cut between two blocks, with its end mark appended, is a valid BAM.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::atomic_files::{AtomicDirectory, AtomicFile, is_relative_descendant};
use crate::journal::FingerprintEntry;
use crate::reduce::{Segment, UnpublishedOutputs};

/// Suffix of the name of a manifest.
pub const MANIFEST_SUFFIX: &str = ".manifest.json";
/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The files of one job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of godwit that wrote the files.
    pub godwit: String,
    /// The verb.
    pub verb: String,
    /// The values that decided the content of the files.
    #[serde(rename = "identity")]
    pub fingerprint: Vec<FingerprintEntry>,
    /// Records written.
    pub records: u64,
    /// Records that are duplicates, written or left out.
    pub duplicates: u64,
    /// Duplicates left out.
    #[serde(rename = "removed")]
    pub removed_duplicates: u64,
    /// Every file except the manifest and the report of the job.
    pub files: Vec<ManifestFile>,
}

/// A file of a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Path relative to the manifest.
    pub name: String,
    /// Size, bytes.
    pub bytes: u64,
    /// BLAKE3 of the file, hexadecimal; `None` for a file with segments, which have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// Number of records, where it holds any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Byte ranges that together are the whole file, in order. Each can be checked, decompressed and counted by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
}

impl Manifest {
    /// Makes the manifest of a job's files before they are published.
    ///
    /// # Errors
    /// The I/O error of the file system, with the path of its file.
    pub fn from_outputs(
        verb: &str,
        identity: &[FingerprintEntry],
        reduced: &UnpublishedOutputs,
        bam: &Path,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let describe = |file: &AtomicFile| {
            let described = if file.path() == bam { segmented_entry(file, reduced) } else { checksummed_entry(file) };
            described.map_err(|error| (file.path().to_owned(), error))
        };
        let mut files: Vec<ManifestFile> = reduced.files.files().iter().map(describe).collect::<Result<_, _>>()?;
        for directory in reduced.files.directories() {
            files.extend(directory_entries(directory).map_err(|error| (directory.path().to_owned(), error))?);
        }
        Ok(Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: verb.into(),
            fingerprint: identity.to_vec(),
            records: reduced.records,
            duplicates: reduced.duplicates,
            removed_duplicates: reduced.removed_duplicates,
            files,
        })
    }

    /// Reads a manifest. Returns `None` if the file is not a manifest, or names files outside of its directory.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let manifest: Option<Self> = serde_json::from_slice(&std::fs::read(path)?).ok();
        Ok(manifest.filter(|manifest| manifest.files.iter().all(|file| is_relative_descendant(&file.name))))
    }

    /// Returns the entry of a file.
    pub fn entry(&self, name: &str) -> Option<&ManifestFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Reports whether every file exists with its size, relative to `directory`.
    pub fn is_complete(&self, directory: &Path) -> bool {
        let there = |file: &ManifestFile| {
            std::fs::metadata(directory.join(&file.name))
                .is_ok_and(|found| found.is_file() && found.len() == file.bytes)
        };
        self.files.iter().all(there)
    }
}

fn file_name(file: &AtomicFile) -> String {
    file.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the entries of the files of a directory, in the order of their names.
fn directory_entries(directory: &AtomicDirectory) -> io::Result<Vec<ManifestFile>> {
    let name = directory.path().file_name().unwrap_or_default().to_string_lossy();
    let mut files = Vec::new();
    for path in directory.files()? {
        let file = std::fs::File::open(&path)?;
        let bytes = file.metadata()?.len();
        let blake3 = Some(range_checksum(&file, 0, bytes)?);
        let name = format!("{name}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        files.push(ManifestFile { name, bytes, blake3, records: None, segments: Vec::new() });
    }
    Ok(files)
}

/// Returns the entry of a file that is hashed as a whole.
///
/// # Errors
/// The I/O error of the file system.
pub fn checksummed_entry(file: &AtomicFile) -> io::Result<ManifestFile> {
    let bytes = file.file().metadata()?.len();
    let blake3 = Some(range_checksum(file.file(), 0, bytes)?);
    Ok(ManifestFile { name: file_name(file), bytes, blake3, records: None, segments: Vec::new() })
}

/// Returns the entry of the BAM. Its partitions are hashed during compression; header and end mark are hashed here.
fn segmented_entry(file: &AtomicFile, reduced: &UnpublishedOutputs) -> io::Result<ManifestFile> {
    let bytes = file.file().metadata()?.len();
    let (mut segments, mut at) = (Vec::new(), 0);
    let fill = |segments: &mut Vec<Segment>, from: u64, until: u64| -> io::Result<()> {
        if from < until {
            let blake3 = range_checksum(file.file(), from, until - from)?;
            segments.push(Segment { offset: from, bytes: until - from, records: 0, blake3 });
        }
        Ok(())
    };
    for segment in reduced.segments.iter().filter(|segment| segment.bytes > 0) {
        fill(&mut segments, at, segment.offset)?;
        at = segment.offset + segment.bytes;
        segments.push(segment.clone());
    }
    fill(&mut segments, at, bytes)?;
    Ok(ManifestFile { name: file_name(file), bytes, blake3: None, records: Some(reduced.records), segments })
}

/// Returns the BLAKE3 of a byte range of a file, hexadecimal.
///
/// # Errors
/// The I/O error of the file system; [`io::ErrorKind::UnexpectedEof`] if the file is too short.
pub fn range_checksum(file: &std::fs::File, offset: u64, bytes: u64) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; READ_BYTES.min(bytes as usize)];
    let mut done = 0;
    while done < bytes {
        let chunk = &mut buffer[..READ_BYTES.min((bytes - done) as usize)];
        file.read_exact_at(chunk, offset + done)?;
        hasher.update(chunk);
        done += chunk.len() as u64;
    }
    Ok(hasher.finalize().to_hex().to_string())
}
