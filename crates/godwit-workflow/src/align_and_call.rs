//! Alignment and variant calling in one job: calling starts while the BAM is written.
//!
//! The VCF is identical to that of [`call`](godwit_call::call()) on the output of [`align`](godwit_align::align()); regions are only
//! called earlier. The BAM is published before the VCF is complete, and also if calling fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_align::{AlignOptions, align_with_tail};
use godwit_call::{
    CallOptions, CallReport, ConcurrentCalling, StopCallingGuard, call_remaining, check_caller, region_files,
    report_path,
};
use godwit_cluster::ClusterOptions;
use godwit_engines::aligner::BlockDependence;
use godwit_files::write_atomically;
use godwit_pipeline::PipelineError;
use godwit_pipeline::job_report::{InputFile, JobReport, check_distinct_files};
use godwit_pipeline::observer::Observer;
use godwit_pipeline::reduce::{BamTail, Format};
use godwit_pipeline::report_page;
use serde_json::Value;

/// The result of alignment and calling.
pub struct AlignAndCallReport {
    /// Report of the alignment.
    pub alignment: JobReport,
    /// Report of calling.
    pub calling: CallReport,
    /// Path of the VCF.
    pub vcf: PathBuf,
}

/// A finished alignment, and the variant calling that is left.
pub(crate) struct AlignmentOutcome {
    pub(crate) report: JobReport,
    /// Calling of the regions that were not called while the BAM was written.
    pub(crate) remaining_calling: RemainingCalling,
}

/// The variant calling that is left after the alignment is complete.
pub(crate) struct RemainingCalling {
    options: CallOptions,
    /// Number of regions that were called while the BAM was written.
    regions_called_while_writing: usize,
}

/// Aligns like [`align`](godwit_align::align()), and calls variants into `OUT/SAMPLE.vcf.gz` (`.g.vcf.gz` if the caller writes
/// GVCF). The paths of reads, reference and output in `calling` are replaced by those of the alignment. In one process,
/// a region is called as soon as all of its reads are in the BAM. In a cluster run, calling starts when the BAM is
/// complete. `aligned` receives the report when the alignment is complete.
///
/// # Errors
/// [`PipelineError`] if alignment or calling fails. If only calling fails, the files of the alignment are already
/// published.
pub fn align_and_call(
    options: &AlignOptions,
    calling: &CallOptions,
    cluster: Option<&ClusterOptions>,
    aligned: impl FnOnce(&JobReport),
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<AlignAndCallReport, PipelineError> {
    let AlignmentOutcome { report, remaining_calling } =
        align_with_calling(options, calling, cluster, observer, cancelled)?;
    aligned(&report);
    let calling = remaining_calling.call(cluster, observer, cancelled)?;
    add_calling_report(&options.out, remaining_calling.vcf_path())?;
    Ok(AlignAndCallReport { alignment: report, calling, vcf: remaining_calling.options.out })
}

/// Checks the options of calling, the reference and the regions, before an alignment starts. Writes no files.
///
/// # Errors
/// [`PipelineError`] for unusable options, reference or regions.
pub fn check_calling(options: &AlignOptions, calling: &CallOptions) -> Result<(), PipelineError> {
    check_caller(&calling_options(options, calling)?).map(drop)
}

/// Returns the options for calling from the output of an alignment.
///
/// # Errors
/// [`PipelineError::Options`] for a caller that does not read BAM or CRAM, or for a VCF path that is also an input;
/// [`PipelineError`] for an input that cannot be inspected.
fn calling_options(options: &AlignOptions, calling: &CallOptions) -> Result<CallOptions, PipelineError> {
    let (reads, out) = calling_paths(options, calling)?;
    let (reads, reference) = (vec![reads], options.reference.clone());
    let calling = CallOptions { reference, reads, out, resume: options.resume, ..calling.clone() };
    let files = options.lanes.iter().flatten().chain([&options.reference]).map(PathBuf::as_path);
    let files = files.chain(region_files(&calling.regions));
    let inputs = files.map(|path| InputFile::inspect("the input", path)).collect::<Result<Vec<_>, _>>()?;
    check_distinct_files(&inputs, std::slice::from_ref(&calling.out))?;
    Ok(calling)
}

/// Returns the path of the BAM or CRAM from which variants are called, and the path of the VCF.
fn calling_paths(options: &AlignOptions, calling: &CallOptions) -> Result<(PathBuf, PathBuf), PipelineError> {
    let format = [Format::Bam, Format::Cram].into_iter().find(|format| options.formats.contains(format));
    let Some(format) = format else {
        let problem = "variants are called from BAM or CRAM: add one of them to --format, or omit --call".to_owned();
        return Err(PipelineError::Options { problem });
    };
    let caller = calling.caller.find_caller(&calling.caller_args)?;
    let beside = |ending: &str| options.out.join(format!("{}.{ending}", options.sample));
    let capabilities = caller.capabilities();
    if capabilities.takes_gvcfs {
        let problem = format!("{} reads GVCFs, not BAM or CRAM; use another caller", caller.name());
        return Err(PipelineError::Options { problem });
    }
    let vcf = if capabilities.writes_reference_blocks { "g.vcf.gz" } else { "vcf.gz" };
    Ok((beside(format.extension()), beside(vcf)))
}

/// Aligns, and meanwhile calls each region as soon as all of its reads are in the BAM.
///
/// # Errors
/// [`PipelineError`] of the alignment, and for options of calling that cannot be used.
pub(crate) fn align_with_calling(
    options: &AlignOptions,
    calling: &CallOptions,
    cluster: Option<&ClusterOptions>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<AlignmentOutcome, PipelineError> {
    let mut calling = calling_options(options, calling)?;
    // If the aligner may keep state from read to read, a resumed job aligns all blocks again. Their records may then
    // differ from those that were called.
    let same_again = options.aligner.block_dependence() == BlockDependence::Independent;
    let in_one_process = cluster.is_none() && options.formats.contains(&Format::Bam);
    let live = ConcurrentCalling::open(&calling, same_again, observer, cancelled)?;
    // Keep the scanned reference for the remaining calling, which would otherwise scan the file again.
    let scanned = live.as_ref().map(|live| live.reference().clone());
    let (report, regions_called_while_writing) = match live {
        None => (align_with_tail(options, cluster, None, observer, cancelled)?, 0),
        Some(live) if !in_one_process => {
            live.close();
            (align_with_tail(options, cluster, None, observer, cancelled)?, 0)
        }
        Some(live) => {
            let report = std::thread::scope(|scope| {
                let _end = StopCallingGuard(&live);
                for _ in 0..live.caller_slots() {
                    scope.spawn(|| live.call_regions());
                }
                let bam_tail: &dyn BamTail = &live;
                align_with_tail(options, cluster, Some(bam_tail), observer, cancelled)
            });
            let called = live.close();
            (report?, called)
        }
    };
    calling.resume |= regions_called_while_writing > 0;
    calling.scanned_reference = calling.scanned_reference.or(scanned);
    Ok(AlignmentOutcome {
        report,
        remaining_calling: RemainingCalling { options: calling, regions_called_while_writing },
    })
}

impl RemainingCalling {
    /// Calls the remaining regions, and writes the VCF.
    ///
    /// # Errors
    /// The errors of [`call`](godwit_call::call()).
    pub(crate) fn call(
        &self,
        cluster: Option<&ClusterOptions>,
        observer: &dyn Observer,
        cancelled: &AtomicBool,
    ) -> Result<CallReport, PipelineError> {
        call_remaining(&self.options, self.regions_called_while_writing, cluster, observer, cancelled)
    }

    /// Returns the path of the VCF.
    pub(crate) fn vcf_path(&self) -> &Path {
        &self.options.out
    }
}

/// Adds the report of calling to `run.json` and `report.html` of the alignment, which are already published.
///
/// # Errors
/// [`PipelineError::File`] if a report cannot be read or written.
pub(crate) fn add_calling_report(directory: &Path, vcf: &Path) -> Result<(), PipelineError> {
    let json = |path: &Path| -> Result<Value, PipelineError> {
        let text = std::fs::read(path).map_err(PipelineError::file("read", path))?;
        serde_json::from_slice(&text).map_err(|error| PipelineError::file("read", path)(error.into()))
    };
    let (path, page) = (directory.join("run.json"), directory.join("report.html"));
    let (mut report, called) = (json(&path)?, json(&report_path(vcf))?);
    if let Ok(html) = std::fs::read_to_string(&page)
        && let Some(html) = report_page::add_calling_section(&html, &called)
    {
        write_atomically(&page, html.as_bytes()).map_err(PipelineError::file("write", &page))?;
    }
    if let Some(fields) = report.as_object_mut() {
        fields.insert("calling".to_owned(), called);
    }
    let text = serde_json::to_vec_pretty(&report).map_err(std::io::Error::other);
    text.and_then(|text| write_atomically(&path, &text)).map_err(PipelineError::file("write", &path))
}
