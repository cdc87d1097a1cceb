//! The manifest beside the outputs: what was written, how long each file is, and checksums of all its bytes.
//!
//! `NAME.manifest.json` names files relative to itself, so that it stays true when all of them are moved together. What
//! cannot be seen in a file alone is in it: a BAM cut between two blocks, with its end mark put back, is a valid BAM.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::journal::Fact;
use crate::reduce::{Reduced, Segment};
use crate::staging::{StagedDirectory, StagedFile, is_within};

/// What a manifest's name ends in.
pub const SUFFIX: &str = ".manifest.json";
/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The files of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of godwit that wrote the files.
    pub godwit: String,
    /// The verb.
    pub verb: String,
    /// What decided the content of the files.
    pub identity: Vec<Fact>,
    /// Records written.
    pub records: u64,
    /// Records that are duplicates, written or left out.
    pub duplicates: u64,
    /// Duplicates left out.
    pub removed: u64,
    /// Every file but this one and the report of the run.
    pub files: Vec<ManifestFile>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Path relative to the manifest.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// BLAKE3 of all of it, hexadecimal; a file with segments has those of its segments instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// Records in it, where it holds any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Stretches that together are the whole file, in order. Each can be checked, decompressed and counted by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
}

impl Manifest {
    /// The manifest of a job's files, before they have their names.
    ///
    /// # Errors
    /// What the file system reports, for the file that it names.
    pub fn of(verb: &str, identity: &[Fact], reduced: &Reduced, bam: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let describe = |file: &StagedFile| {
            let described = if file.path() == bam { segmented(file, reduced) } else { whole(file) };
            described.map_err(|error| (file.path().to_owned(), error))
        };
        let mut files: Vec<ManifestFile> = reduced.staged.files().iter().map(describe).collect::<Result<_, _>>()?;
        for directory in reduced.staged.directories() {
            files.extend(within(directory).map_err(|error| (directory.path().to_owned(), error))?);
        }
        Ok(Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: verb.into(),
            identity: identity.to_vec(),
            records: reduced.records,
            duplicates: reduced.duplicates,
            removed: reduced.removed,
            files,
        })
    }

    /// Reads a manifest; `None` where the file is none, or names files that do not lie beside or below it.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let manifest: Option<Self> = serde_json::from_slice(&std::fs::read(path)?).ok();
        Ok(manifest.filter(|manifest| manifest.files.iter().all(|file| is_within(&file.name))))
    }

    /// The entry of a file.
    pub fn file(&self, name: &str) -> Option<&ManifestFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Whether every file is there with its size, beside a manifest in `directory`.
    pub fn is_complete(&self, directory: &Path) -> bool {
        let there = |file: &ManifestFile| {
            std::fs::metadata(directory.join(&file.name))
                .is_ok_and(|found| found.is_file() && found.len() == file.bytes)
        };
        self.files.iter().all(there)
    }
}

fn name_of(file: &StagedFile) -> String {
    file.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The files of a directory, in the order of their names.
fn within(directory: &StagedDirectory) -> io::Result<Vec<ManifestFile>> {
    let name = directory.path().file_name().unwrap_or_default().to_string_lossy();
    let mut files = Vec::new();
    for path in directory.files()? {
        let file = std::fs::File::open(&path)?;
        let bytes = file.metadata()?.len();
        let blake3 = Some(checksum(&file, 0, bytes)?);
        let name = format!("{name}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        files.push(ManifestFile { name, bytes, blake3, records: None, segments: Vec::new() });
    }
    Ok(files)
}

/// A file that is checked as a whole.
///
/// # Errors
/// What the file system reports.
pub fn whole(file: &StagedFile) -> io::Result<ManifestFile> {
    let bytes = file.file().metadata()?.len();
    let blake3 = Some(checksum(file.file(), 0, bytes)?);
    Ok(ManifestFile { name: name_of(file), bytes, blake3, records: None, segments: Vec::new() })
}

/// The BAM: its partitions were hashed as they were compressed; its header and its end mark are hashed here.
fn segmented(file: &StagedFile, reduced: &Reduced) -> io::Result<ManifestFile> {
    let bytes = file.file().metadata()?.len();
    let (mut segments, mut at) = (Vec::new(), 0);
    let fill = |segments: &mut Vec<Segment>, from: u64, until: u64| -> io::Result<()> {
        if from < until {
            let blake3 = checksum(file.file(), from, until - from)?;
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
    Ok(ManifestFile { name: name_of(file), bytes, blake3: None, records: Some(reduced.records), segments })
}

/// BLAKE3 of a stretch of a file, hexadecimal.
///
/// # Errors
/// What the file system reports; a file that ends early is [`io::ErrorKind::UnexpectedEof`].
pub fn checksum(file: &std::fs::File, offset: u64, bytes: u64) -> io::Result<String> {
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
