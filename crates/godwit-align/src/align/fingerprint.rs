//! The fingerprint of an alignment: versions, options that change records, the index and the reads, which determine the
//! bytes of the outputs. A job is resumed only with an equal fingerprint. Files are identified by content, never by
//! date.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use godwit_pipeline::fingerprint::FingerprintKey;
use godwit_pipeline::manifest::range_checksum;
use godwit_pipeline::python_step::PythonStep;
use godwit_pipeline::{FingerprintEntry, PipelineError};

use super::AlignOptions;
use super::aligner::InstalledAligner;
use super::header::{LaneReadGroups, command_line};

/// Bytes at the start of a file of reads whose checksum identifies the file. When a job resumes, each block that was
/// already aligned is also compared by the checksum of all its reads.
const FILE_PREFIX_BYTES: u64 = 1 << 20;

/// Returns the fingerprint of an alignment.
///
/// # Errors
/// [`PipelineError::File`] for a file that cannot be read.
pub(super) fn align_fingerprint(
    options: &AlignOptions,
    groups: &LaneReadGroups,
    trimmer: Option<&str>,
    step: Option<&PythonStep>,
    engine: &InstalledAligner,
) -> Result<Vec<FingerprintEntry>, PipelineError> {
    let mut fingerprint = Vec::new();
    let mut state = |key: FingerprintKey<'_>, value: String| fingerprint.push(key.entry(value));
    state(FingerprintKey::GodwitVersion, env!("CARGO_PKG_VERSION").to_owned());
    let (aligner, version) = engine.emulated_program(options);
    state(FingerprintKey::AlignerVersion(aligner), version.to_owned());
    state(FingerprintKey::Command, command_line(options));
    state(FingerprintKey::FastpVersion, trimmer.unwrap_or("none").to_owned());
    state(FingerprintKey::Sample, options.sample.clone());
    state(FingerprintKey::Partitions, options.job.partitions.to_string());
    let formats: Vec<&str> = options.formats.iter().map(|format| format.extension()).collect();
    state(FingerprintKey::Format, formats.join(","));
    let recipients: Vec<String> = options.job.recipients.iter().map(|key| key.to_hex()).collect();
    state(FingerprintKey::Recipients, recipients.join(","));
    state(FingerprintKey::ReadGroups, groups.read_group_lines().join(" | ").replace('\t', "\\t"));
    state(FingerprintKey::AlignerIndex, index_checksum(engine, options)?);
    for (lane, files) in options.lanes.iter().enumerate() {
        for (index, path) in files.iter().enumerate() {
            let key = FingerprintKey::ReadsFile { lane, file: index };
            let described = describe_file_prefix(path).map_err(PipelineError::file("read", path))?;
            let interleaved = if options.reads.interleaved { ", interleaved" } else { "" };
            state(key, described + interleaved);
        }
    }
    if let Some(recalibration) = &options.job.recalibration {
        let describe = |path: &PathBuf| file_size_or_checksum(path, false).map_err(PipelineError::file("read", path));
        let sites = recalibration.known_sites.iter().map(describe).collect::<Result<Vec<_>, _>>()?;
        fingerprint.push(FingerprintKey::KnownSites.entry(sites.join("; ")));
    }
    if let Some(request) = &options.job.picard_metrics {
        fingerprint.push(FingerprintKey::PicardMetrics.entry(request.fingerprint_text()?));
    }
    fingerprint.extend(step.map(PythonStep::fingerprint_entry));
    Ok(fingerprint)
}

/// Returns a BLAKE3 checksum that identifies the index. A file of the index contributes its content or only its size,
/// as [`InstalledAligner::index_files`] specifies.
fn index_checksum(engine: &InstalledAligner, options: &AlignOptions) -> Result<String, PipelineError> {
    let mut hasher = blake3::Hasher::new();
    for (path, by_size) in engine.index_files(options) {
        let described = file_size_or_checksum(&path, by_size).map_err(PipelineError::file("read", &path))?;
        hasher.update(path.extension().unwrap_or_default().as_bytes());
        hasher.update(described.as_bytes());
    }
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}

fn file_size_or_checksum(path: &Path, by_size: bool) -> io::Result<String> {
    match File::open(path) {
        Ok(file) => {
            let bytes = file.metadata()?.len();
            if by_size { Ok(bytes.to_string()) } else { range_checksum(&file, 0, bytes) }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok("none".to_owned()),
        Err(error) => Err(error),
    }
}

/// Returns a text with the size of a file and the checksum of its first bytes. A pipe can be read only once, so all
/// pipes have the same text, and only checksums of blocks identify their reads.
fn describe_file_prefix(path: &Path) -> io::Result<String> {
    if !path.is_file() {
        return Ok("a pipe".to_owned());
    }
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let start = range_checksum(&file, 0, bytes.min(FILE_PREFIX_BYTES))?;
    Ok(format!("{bytes} bytes that start as {}", &start[..16]))
}

/// An incremental BLAKE3 hasher of the reads of one block.
#[derive(Default)]
pub(super) struct ReadsHasher(blake3::Hasher);

impl ReadsHasher {
    /// Adds a record batch with the schema `schema::pipe_reads`.
    pub(super) fn update(&mut self, batch: &RecordBatch) {
        for column in batch.columns() {
            let column = column.as_binary::<i32>();
            self.0.update(column.value_data());
            self.0.update(bytemuck::cast_slice(column.value_offsets()));
            self.0.update(&(column.null_count() as u64).to_le_bytes());
        }
    }

    /// Returns the hash of the block, hexadecimal; the next block starts a new hash.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.0).finalize().to_hex().to_string()
    }
}
