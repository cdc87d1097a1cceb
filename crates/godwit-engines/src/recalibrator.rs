//! Base quality score recalibration (BQSR) with GATK, on reads in a separate BAM file.
//!
//! The counts that BaseRecalibrator makes for a read depend only on that read, the reference and the known sites. The
//! counts are whole numbers, and [`RecalibrationTables`] adds them. ApplyBQSR processes each read independently. So if
//! every read is in exactly one of several files, godwit obtains the same table and the same reads as from one file.

mod recalibration_tables;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::gatk::GatkToolkit;
use crate::{EngineError, ProcessPipeline};

pub use recalibration_tables::RecalibrationTables;

/// The inputs and limits for one start of a BQSR tool.
#[derive(Clone, Copy, Debug)]
pub struct RecalibrationInvocation<'a> {
    /// Path of the reference, with its `.fai` and `.dict` beside it.
    pub reference: &'a Path,
    /// Path of a BAM file with the reads; it does not need an index.
    pub reads: &'a Path,
    /// Path of a private directory for temporary files.
    pub directory: &'a Path,
    /// Memory limit of the GATK process, bytes.
    pub memory_bytes: u64,
}

/// Starts BaseRecalibrator. `known_sites`: paths of VCF files with their indexes; bases at these sites are not counted.
///
/// # Errors
/// [`EngineError::Io`] if Java does not start.
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

/// Starts GatherBQSRReports on a report of [`RecalibrationTables`], to add the table of quantized qualities.
///
/// # Errors
/// [`EngineError::Io`] if Java does not start.
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

/// Starts ApplyBQSR with a report that GatherBQSRReports wrote.
///
/// # Errors
/// [`EngineError::Io`] if Java does not start.
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
