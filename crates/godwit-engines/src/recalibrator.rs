//! GATK's recalibration of base qualities, on reads in a file of their own.
//!
//! The counts of BaseRecalibrator for a read depend on that read, the reference and the known sites, and on no other read;
//! they are whole numbers, which [`RecalibrationTables`] adds up. ApplyBQSR processes one read at a time. So parts of a file
//! that contain every read once yield the table, and the reads, of the whole file.

mod recalibration_tables;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::gatk::GatkToolkit;
use crate::{EngineError, ProcessPipeline};

pub use recalibration_tables::RecalibrationTables;

/// Reads to count or to recalibrate.
#[derive(Clone, Copy, Debug)]
pub struct RecalibrationInvocation<'a> {
    /// Path of the reference, with its `.fai` and `.dict` beside it.
    pub reference: &'a Path,
    /// Path of a BAM; it needs no index.
    pub reads: &'a Path,
    /// A private directory for scratch files.
    pub directory: &'a Path,
    /// Memory limit of the process, bytes.
    pub memory_bytes: u64,
}

/// Starts BaseRecalibrator. `known_sites`: VCFs with their indexes, whose sites are not counted.
///
/// # Errors
/// [`EngineError::Io`] if it does not start.
pub fn start_base_recalibrator(
    toolkit: &GatkToolkit,
    work: &RecalibrationInvocation,
    known_sites: &[PathBuf],
    out: &Path,
) -> Result<ProcessPipeline, EngineError> {
    let mut command = toolkit.tool_command("BaseRecalibrator", work.memory_bytes, work.directory);
    command.arg("-R").arg(work.reference).arg("-I").arg(work.reads);
    command.args(known_sites.iter().flat_map(|sites| [OsStr::new("--known-sites"), sites.as_os_str()]));
    command.arg("-O").arg(out);
    toolkit.start_tool(command)
}

/// Starts GatherBQSRReports on a table of [`RecalibrationTables`]: it quantizes the qualities.
///
/// # Errors
/// [`EngineError::Io`] if it does not start.
pub fn start_gather_reports(
    toolkit: &GatkToolkit,
    merged: &Path,
    directory: &Path,
    memory_bytes: u64,
    out: &Path,
) -> Result<ProcessPipeline, EngineError> {
    let mut command = toolkit.tool_command("GatherBQSRReports", memory_bytes, directory);
    command.arg("-I").arg(merged).arg("-O").arg(out);
    toolkit.start_tool(command)
}

/// Starts ApplyBQSR with a gathered table.
///
/// # Errors
/// [`EngineError::Io`] if it does not start.
pub fn start_apply_bqsr(
    toolkit: &GatkToolkit,
    work: &RecalibrationInvocation,
    table: &Path,
    out: &Path,
) -> Result<ProcessPipeline, EngineError> {
    let mut command = toolkit.tool_command("ApplyBQSR", work.memory_bytes, work.directory);
    command.arg("-R").arg(work.reference).arg("-I").arg(work.reads).arg("-bqsr").arg(table);
    command.args(["--create-output-bam-index", "false", "-O"]).arg(out);
    toolkit.start_tool(command)
}
