//! The fingerprint of a `call` job: the inputs and options that determine the called records. A job is resumed only
//! with an equal fingerprint.

use std::path::Path;

use godwit_engines::caller::Caller;
use godwit_io::crypt4gh::PublicKey;
use godwit_pipeline::FingerprintEntry;
use godwit_pipeline::PipelineError;
use godwit_pipeline::fingerprint::{FingerprintKey, regions_text};
use godwit_pipeline::manifest::range_checksum;
use godwit_pipeline::scanned_reference::ScannedReference;

use super::call_inputs::CallInputs;
use super::targets::Targets;
use super::{CallOptions, region_plan};

/// Bytes at the start of a file of reads whose checksum identifies the file; the whole file is too large to be read
/// twice. The fingerprint also contains the checksum of the index, which describes every block of the file.
pub(super) const FILE_PREFIX_BYTES: u64 = 1 << 20;

fn fingerprint_entry((key, value): (FingerprintKey<'_>, String)) -> FingerprintEntry {
    key.entry(value)
}

/// Returns those entries of the fingerprint that are not about the reads.
pub(super) fn call_fingerprint(
    options: &CallOptions,
    caller: &dyn Caller,
    reference: &ScannedReference,
    targets: Option<&Targets>,
) -> Vec<FingerprintEntry> {
    let short = |text: &str| blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
    let grid = region_plan::grid_options(options, &caller.capabilities());
    let table = options.ploidy.as_ref().map(|table| short(&table.fingerprint_text()));
    let facts = [
        (FingerprintKey::Regions, targets.map_or("none".to_owned(), |targets| short(&regions_text(&targets.regions)))),
        (FingerprintKey::Ploidy, table.unwrap_or("none".to_owned())),
        (FingerprintKey::Sex, options.sex.clone().unwrap_or("none".to_owned())),
        (FingerprintKey::GridSize, grid.max_region_bases.to_string()),
        (FingerprintKey::Padding, grid.padding_bases.to_string()),
    ];
    let version = (FingerprintKey::GodwitVersion, env!("CARGO_PKG_VERSION").to_owned());
    let readers: Vec<String> = options.recipients.iter().map(PublicKey::to_hex).collect();
    // Without encryption, the entry about recipients is omitted, as in earlier versions of godwit.
    let readers =
        (!readers.is_empty()).then(|| fingerprint_entry((FingerprintKey::Recipients, short(&readers.join(" ")))));
    [fingerprint_entry(version)]
        .into_iter()
        .chain(worker_fingerprint(caller, reference))
        .chain(facts.map(fingerprint_entry))
        .chain(readers)
        .collect()
}

/// Returns the entries that each worker determines on its own host: caller and reference, but not the reads.
pub(super) fn worker_fingerprint(caller: &dyn Caller, reference: &ScannedReference) -> Vec<FingerprintEntry> {
    let entries = [
        (FingerprintKey::CallerVersion, format!("{} {}", caller.name(), caller.version())),
        (FingerprintKey::Command, caller.command_line()),
        (FingerprintKey::Reference, reference.checksum.clone()),
    ];
    entries.map(fingerprint_entry).to_vec()
}

/// Returns the fingerprint of the reads, by the content of their files.
///
/// # Errors
/// [`PipelineError::File`] for a file that cannot be read.
pub(super) fn reads_fingerprint(reads: &CallInputs) -> Result<Vec<FingerprintEntry>, PipelineError> {
    let files = || reads.files.iter().map(|file| (&*file.path, &*file.index));
    files_fingerprint(files(), reads.normal().map_or("none", |normal| normal.sample))
}

/// Returns the fingerprint of files of reads and their indexes, by content, with the name of the normal sample.
///
/// # Errors
/// [`PipelineError::File`] for a file that cannot be read.
pub(super) fn files_fingerprint<'p>(
    files: impl Iterator<Item = (&'p Path, &'p Path)> + Clone,
    normal: &str,
) -> Result<Vec<FingerprintEntry>, PipelineError> {
    let entries = [
        (FingerprintKey::Reads, sizes_and_checksums(files.clone().map(|(reads, _)| (reads, FILE_PREFIX_BYTES)))?),
        (FingerprintKey::Normal, normal.to_owned()),
        (FingerprintKey::ReadsIndex, sizes_and_checksums(files.map(|(_, index)| (index, u64::MAX)))?),
    ];
    Ok(entries.map(fingerprint_entry).to_vec())
}

/// Returns whether a fingerprint entry is about the reads.
pub(super) fn is_about_reads(fact: &FingerprintEntry) -> bool {
    [FingerprintKey::Reads, FingerprintKey::Normal, FingerprintKey::ReadsIndex].iter().any(|key| key.is_of(fact))
}

/// Returns the fingerprint of reads that are still being aligned. `identity` identifies the inputs that decide their
/// records.
pub(super) fn unwritten_reads_fingerprint(identity: &str) -> Vec<FingerprintEntry> {
    vec![fingerprint_entry((FingerprintKey::Reads, format!("those of the alignment {identity}")))]
}

/// Returns a text with the size of each file and the checksum of its first bytes, as many as are given for the file.
pub(crate) fn sizes_and_checksums<'p>(files: impl Iterator<Item = (&'p Path, u64)>) -> Result<String, PipelineError> {
    let content = |(path, most): (&Path, u64)| {
        let read = std::fs::File::open(path).and_then(|file| {
            let bytes = file.metadata()?.len();
            Ok(format!("{bytes} bytes, {}", &range_checksum(&file, 0, bytes.min(most))?[..16]))
        });
        read.map_err(PipelineError::file("read", path))
    };
    Ok(files.map(content).collect::<Result<Vec<_>, _>>()?.join("; "))
}
