//! What decides the records that are called, so that a run is only gone on with by its like.

use std::path::Path;

use godwit_engines::caller::Caller;
use godwit_formats::crypt4gh::PublicKey;

use super::reads::CallInputs;
use super::reference::ScannedReference;
use super::targets::Targets;
use super::{CallOptions, plan};
use crate::error::PipelineError;
use crate::fingerprint::{FingerprintKey, regions_text};
use crate::journal::Fact;
use crate::manifest::checksum;

/// Bytes at the start of a file of reads that tell it from others. All of it is too much to read twice; what its index says
/// of every block of it counts too.
pub(super) const HEAD_BYTES: u64 = 1 << 20;

fn named((key, value): (FingerprintKey<'_>, String)) -> Fact {
    key.fact(value)
}

/// What decides them beside the reads.
pub(super) fn facts(
    options: &CallOptions,
    caller: &dyn Caller,
    reference: &ScannedReference,
    targets: Option<&Targets>,
) -> Vec<Fact> {
    let short = |text: &str| blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
    let grid = plan::grid_options(options, &caller.habits());
    let table = options.ploidy.as_ref().map(|table| short(&table.fingerprint_text()));
    let facts = [
        (FingerprintKey::Regions, targets.map_or("none".to_owned(), |targets| short(&regions_text(&targets.regions)))),
        (FingerprintKey::Ploidy, table.unwrap_or("none".to_owned())),
        (FingerprintKey::Sex, options.sex.clone().unwrap_or("none".to_owned())),
        (FingerprintKey::GridSize, grid.window_bases.to_string()),
        (FingerprintKey::Padding, grid.padding_bases.to_string()),
    ];
    let version = (FingerprintKey::GodwitVersion, env!("CARGO_PKG_VERSION").to_owned());
    let readers: Vec<String> = options.recipients.iter().map(PublicKey::text).collect();
    // Nobody is named where nothing is encrypted, as in earlier runs.
    let readers = (!readers.is_empty()).then(|| named((FingerprintKey::Recipients, short(&readers.join(" ")))));
    [named(version)].into_iter().chain(of_machine(caller, reference)).chain(facts.map(named)).chain(readers).collect()
}

/// Those of them that every machine sees for itself, beside the reads.
pub(super) fn of_machine(caller: &dyn Caller, reference: &ScannedReference) -> Vec<Fact> {
    let facts = [
        (FingerprintKey::CallerVersion, format!("{} {}", caller.name(), caller.version())),
        (FingerprintKey::Command, caller.command_line()),
        (FingerprintKey::Reference, reference.checksum.clone()),
    ];
    facts.map(named).to_vec()
}

/// The reads, by what is in their files.
///
/// # Errors
/// [`PipelineError::File`].
pub(super) fn of_reads(reads: &CallInputs) -> Result<Vec<Fact>, PipelineError> {
    let files = || reads.files.iter().map(|file| (&*file.path, &*file.index));
    of_files(files(), reads.normal().map_or("none", |normal| normal.sample))
}

/// Files of reads with their indexes, by what is in them, and the sample that is the normal.
///
/// # Errors
/// [`PipelineError::File`].
pub(super) fn of_files<'p>(
    files: impl Iterator<Item = (&'p Path, &'p Path)> + Clone,
    normal: &str,
) -> Result<Vec<Fact>, PipelineError> {
    let facts = [
        (FingerprintKey::Reads, contents(files.clone().map(|(reads, _)| (reads, HEAD_BYTES)))?),
        (FingerprintKey::Normal, normal.to_owned()),
        (FingerprintKey::ReadsIndex, contents(files.map(|(_, index)| (index, u64::MAX)))?),
    ];
    Ok(facts.map(named).to_vec())
}

/// Whether a fact is about the reads.
pub(super) fn is_of_reads(fact: &Fact) -> bool {
    [FingerprintKey::Reads, FingerprintKey::Normal, FingerprintKey::ReadsIndex].iter().any(|key| key.is_of(fact))
}

/// Reads that are not in a file yet, by what decides them.
pub(super) fn of_unwritten_reads(identity: &str) -> Vec<Fact> {
    vec![named((FingerprintKey::Reads, format!("those of the alignment {identity}")))]
}

/// Sizes of files, and checksums of as many bytes of each as are named with it.
pub(crate) fn contents<'p>(files: impl Iterator<Item = (&'p Path, u64)>) -> Result<String, PipelineError> {
    let content = |(path, most): (&Path, u64)| {
        let read = std::fs::File::open(path).and_then(|file| {
            let bytes = file.metadata()?.len();
            Ok(format!("{bytes} bytes, {}", &checksum(&file, 0, bytes.min(most))?[..16]))
        });
        read.map_err(PipelineError::file("read", path))
    };
    Ok(files.map(content).collect::<Result<Vec<_>, _>>()?.join("; "))
}
