//! GATK's recalibration of base qualities, on reads that lie in a file of their own.
//!
//! What BaseRecalibrator counts of a read depends on that read, the reference and the known sites, and on no other read;
//! its counts are whole numbers, which [`TableSum`] adds up. ApplyBQSR looks at one read at a time. So slices of a file in
//! which every read is once give the table, and the reads, of the whole.

mod tables;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::gatk::Toolkit;
use crate::{Chain, EngineError};

pub use tables::TableSum;

/// Reads to count or to change.
#[derive(Clone, Copy, Debug)]
pub struct SliceWork<'a> {
    /// The reference, with its `.fai` and `.dict` beside it.
    pub reference: &'a Path,
    /// A BAM; it needs no index.
    pub reads: &'a Path,
    /// A private directory for scratch files.
    pub directory: &'a Path,
    /// Memory the process may take, bytes.
    pub memory_bytes: u64,
}

/// Starts BaseRecalibrator. `known_sites`: VCFs with their indexes, whose sites are not counted.
///
/// # Errors
/// [`EngineError::Io`].
pub fn count(toolkit: &Toolkit, work: &SliceWork, known_sites: &[PathBuf], out: &Path) -> Result<Chain, EngineError> {
    let mut command = toolkit.command("BaseRecalibrator", work.memory_bytes, work.directory);
    command.arg("-R").arg(work.reference).arg("-I").arg(work.reads);
    command.args(known_sites.iter().flat_map(|sites| [OsStr::new("--known-sites"), sites.as_os_str()]));
    command.arg("-O").arg(out);
    toolkit.start(command)
}

/// Starts GatherBQSRReports on a table of [`TableSum`]: it quantizes the qualities.
///
/// # Errors
/// [`EngineError::Io`].
pub fn quantize(
    toolkit: &Toolkit,
    merged: &Path,
    directory: &Path,
    memory_bytes: u64,
    out: &Path,
) -> Result<Chain, EngineError> {
    let mut command = toolkit.command("GatherBQSRReports", memory_bytes, directory);
    command.arg("-I").arg(merged).arg("-O").arg(out);
    toolkit.start(command)
}

/// Starts ApplyBQSR by a gathered table.
///
/// # Errors
/// [`EngineError::Io`].
pub fn apply(toolkit: &Toolkit, work: &SliceWork, table: &Path, out: &Path) -> Result<Chain, EngineError> {
    let mut command = toolkit.command("ApplyBQSR", work.memory_bytes, work.directory);
    command.arg("-R").arg(work.reference).arg("-I").arg(work.reads).arg("-bqsr").arg(table);
    command.args(["--create-output-bam-index", "false", "-O"]).arg(out);
    toolkit.start(command)
}
