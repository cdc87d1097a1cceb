//! The manifest of a job: names, sizes and checksums of all output files, in a JSON file in the same directory.
//!
//! `NAME.manifest.json` contains paths relative to itself, so that it stays valid if all files are moved together. It
//! detects damage that a reader of a single file cannot detect: a BAM that was cut between two BGZF blocks and given an
//! end-of-file marker is a valid BAM.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use godwit_files::{AtomicDirectory, AtomicFile, is_relative_descendant};
use serde::{Deserialize, Serialize};

use crate::journal::FingerprintEntry;

/// Suffix of the file name of a manifest.
pub const MANIFEST_SUFFIX: &str = ".manifest.json";
/// Size of the buffer with which files are read, bytes.
const READ_BYTES: usize = 1 << 20;

/// The manifest of one job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of godwit that wrote the files.
    pub godwit: String,
    /// The subcommand of godwit, for example `align`.
    pub verb: String,
    /// The values on which the content of the files depends.
    #[serde(rename = "identity")]
    pub fingerprint: Vec<FingerprintEntry>,
    /// Number of records in the output.
    pub records: u64,
    /// Number of duplicate records, whether written or removed.
    pub duplicates: u64,
    /// Number of duplicate records that were removed.
    #[serde(rename = "removed")]
    pub removed_duplicates: u64,
    /// All output files except the manifest itself and the report of the job.
    pub files: Vec<ManifestFile>,
}

/// A byte range of the BAM that was compressed independently. Segments can be verified in parallel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Offset in the BAM, bytes.
    pub offset: u64,
    /// Size of the segment, bytes.
    pub bytes: u64,
    /// Number of records in the segment.
    pub records: u64,
    /// BLAKE3 of the compressed bytes, hexadecimal.
    pub blake3: String,
}

/// The entry of a file in a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Path relative to the directory of the manifest.
    pub name: String,
    /// Size, bytes.
    pub bytes: u64,
    /// BLAKE3 of the file, hexadecimal; `None` for a file with segments, each of which has a checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// Number of records in the file; `None` for a file without records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Consecutive byte ranges that together are the whole file. Each segment can be verified, decompressed and counted
    /// separately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
}

impl Manifest {
    /// Reads a manifest. Returns `None` if the file is not a manifest, or if it contains a path outside its directory.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let manifest: Option<Self> = serde_json::from_slice(&std::fs::read(path)?).ok();
        Ok(manifest.filter(|manifest| manifest.files.iter().all(|file| is_relative_descendant(&file.name))))
    }

    /// Returns the entry of the file with this name.
    pub fn entry(&self, name: &str) -> Option<&ManifestFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Reports whether every file of the manifest exists in `directory` with the recorded size.
    pub fn is_complete(&self, directory: &Path) -> bool {
        let there = |file: &ManifestFile| {
            std::fs::metadata(directory.join(&file.name))
                .is_ok_and(|found| found.is_file() && found.len() == file.bytes)
        };
        self.files.iter().all(there)
    }
}

/// Returns the paths of the manifests in a directory, sorted by name.
///
/// # Errors
/// The I/O error of the file system.
pub fn manifests_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.ends_with(MANIFEST_SUFFIX.as_bytes()) && !name.starts_with(b".") {
            manifests.push(entry.path());
        }
    }
    manifests.sort();
    Ok(manifests)
}

fn file_name(file: &AtomicFile) -> String {
    file.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the entries of all files in an output directory, sorted by name.
///
/// # Errors
/// The I/O error of the file system.
pub(crate) fn directory_entries(directory: &AtomicDirectory) -> io::Result<Vec<ManifestFile>> {
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

/// Returns the entry of a file, with one checksum for the whole file.
///
/// # Errors
/// The I/O error of the file system.
pub fn checksummed_entry(file: &AtomicFile) -> io::Result<ManifestFile> {
    let bytes = file.file().metadata()?.len();
    let blake3 = Some(range_checksum(file.file(), 0, bytes)?);
    Ok(ManifestFile { name: file_name(file), bytes, blake3, records: None, segments: Vec::new() })
}

/// Returns the entry of the BAM with `records` records. The checksums of its partitions, `known_segments`, were computed
/// during compression; those of the header and of the end-of-file marker are computed here.
///
/// # Errors
/// The I/O error of the file system.
pub(crate) fn segmented_entry(file: &AtomicFile, known_segments: &[Segment], records: u64) -> io::Result<ManifestFile> {
    let bytes = file.file().metadata()?.len();
    let (mut segments, mut at) = (Vec::new(), 0);
    let fill = |segments: &mut Vec<Segment>, from: u64, until: u64| -> io::Result<()> {
        if from < until {
            let blake3 = range_checksum(file.file(), from, until - from)?;
            segments.push(Segment { offset: from, bytes: until - from, records: 0, blake3 });
        }
        Ok(())
    };
    for segment in known_segments.iter().filter(|segment| segment.bytes > 0) {
        fill(&mut segments, at, segment.offset)?;
        at = segment.offset + segment.bytes;
        segments.push(segment.clone());
    }
    fill(&mut segments, at, bytes)?;
    Ok(ManifestFile { name: file_name(file), bytes, blake3: None, records: Some(records), segments })
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
