//! What decides the bytes of a run's outputs, so that a run is only gone on with by its like: versions, options that
//! change records, the index and the reads, known by content and never by date.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};

use super::AlignOptions;
use super::engine::FoundEngine;
use super::header::{LaneGroups, command_line};
use crate::error::PipelineError;
use crate::fingerprint::FingerprintKey;
use crate::journal::Fact;
use crate::manifest::checksum;
use crate::step::Step;

/// Bytes at the start of a file of reads that tell it from others before any of it is aligned. Every block that was
/// aligned is compared by all its reads when they are read again.
const HEAD_BYTES: u64 = 1 << 20;

/// The facts of a run.
///
/// # Errors
/// [`PipelineError::File`] for a file that cannot be read.
pub(super) fn facts(
    options: &AlignOptions,
    groups: &LaneGroups,
    trimmer: Option<&str>,
    step: Option<&Step>,
    engine: &FoundEngine,
) -> Result<Vec<Fact>, PipelineError> {
    let mut facts = Vec::new();
    let mut state = |key: FingerprintKey<'_>, value: String| facts.push(key.fact(value));
    state(FingerprintKey::GodwitVersion, env!("CARGO_PKG_VERSION").to_owned());
    let (aligner, version) = engine.records(options);
    state(FingerprintKey::AlignerVersion(aligner), version.to_owned());
    state(FingerprintKey::Command, command_line(options));
    state(FingerprintKey::FastpVersion, trimmer.unwrap_or("none").to_owned());
    state(FingerprintKey::Sample, options.sample.clone());
    state(FingerprintKey::Partitions, options.job.partitions.to_string());
    let formats: Vec<&str> = options.formats.iter().map(|format| format.extension()).collect();
    state(FingerprintKey::Format, formats.join(","));
    let recipients: Vec<String> = options.job.recipients.iter().map(|key| key.text()).collect();
    state(FingerprintKey::Recipients, recipients.join(","));
    state(FingerprintKey::ReadGroups, groups.lines().join(" | ").replace('\t', "\\t"));
    state(FingerprintKey::AlignerIndex, index(engine, options)?);
    for (lane, files) in options.lanes.iter().enumerate() {
        for (index, path) in files.iter().enumerate() {
            let key = FingerprintKey::ReadsFile { lane, file: index };
            state(key, head(path).map_err(PipelineError::file("read", path))?);
        }
    }
    facts.extend(step.map(Step::fact));
    Ok(facts)
}

/// BLAKE3 of the index: the content of what it is made of, the size of what follows from that.
fn index(engine: &FoundEngine, options: &AlignOptions) -> Result<String, PipelineError> {
    let mut hasher = blake3::Hasher::new();
    for (path, by_size) in engine.index_files(options) {
        let described = describe(&path, by_size).map_err(PipelineError::file("read", &path))?;
        hasher.update(path.extension().unwrap_or_default().as_bytes());
        hasher.update(described.as_bytes());
    }
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}

fn describe(path: &Path, by_size: bool) -> io::Result<String> {
    match File::open(path) {
        Ok(file) => {
            let bytes = file.metadata()?.len();
            if by_size { Ok(bytes.to_string()) } else { checksum(&file, 0, bytes) }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok("none".to_owned()),
        Err(error) => Err(error),
    }
}

/// Size and start of a file. A pipe can be read only once, so it is known by its blocks alone.
fn head(path: &Path) -> io::Result<String> {
    if !path.is_file() {
        return Ok("a pipe".to_owned());
    }
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let start = checksum(&file, 0, bytes.min(HEAD_BYTES))?;
    Ok(format!("{bytes} bytes that start as {}", &start[..16]))
}

/// BLAKE3 of the reads of a block, batch by batch.
#[derive(Default)]
pub(super) struct ReadsHasher(blake3::Hasher);

impl ReadsHasher {
    /// Takes a batch of `schema::reads`.
    pub(super) fn update(&mut self, batch: &RecordBatch) {
        for column in batch.columns() {
            let column = column.as_binary::<i32>();
            self.0.update(column.value_data());
            self.0.update(bytemuck::cast_slice(column.value_offsets()));
            self.0.update(&(column.null_count() as u64).to_le_bytes());
        }
    }

    /// The hash of the block, hexadecimal; the next block starts anew.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.0).finalize().to_hex().to_string()
    }
}
