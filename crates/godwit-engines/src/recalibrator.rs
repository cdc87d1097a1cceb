//! Base quality score recalibration (BQSR) with GATK, on reads in a separate BAM file.
//!
//! The counts that BaseRecalibrator makes for a read depend only on that read, the reference and the known sites. The
//! counts are whole numbers, which can be added. ApplyBQSR processes each read independently. So if every read is in
//! exactly one of several files, godwit obtains the same table and the same reads as from one file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::gatk::GatkToolkit;
use crate::{EngineError, ProcessPipeline};

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
    /// Additional command-line arguments of the tool.
    pub arguments: &'a [String],
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
    command.args(work.arguments).arg("-O").arg(out);
    toolkit.start_tool(command)
}

/// Starts ApplyBQSR with the report `table`.
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
    command.args(work.arguments).args(["--create-output-bam-index", "false", "-O"]).arg(out);
    toolkit.start_tool(command)
}
