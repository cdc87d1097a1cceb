//! From reads to variants in one job: alignment, and calling that begins while the BAM is written.
//!
//! The VCF is that of [`call`](crate::call()) on the files of [`align`](crate::align()), byte for byte; only when its regions are called
//! differs. The BAM has its name before the VCF is whole, and whether or not it ever is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_engines::aligner::Identity;
use serde_json::Value;

use crate::align::{AlignOptions, align_followed};
use crate::call::{
    CallOptions, CallReport, EndOfWriting, LiveCalling, call_rest, check_caller, region_files, report_path,
};
use crate::error::PipelineError;
use crate::observer::Observer;
use crate::reduce::{Follower, Format};
use crate::report_page;
use crate::run_report::{InputFile, RunReport, check_distinct};
use crate::spread::Spread;
use crate::staging::write_whole;

/// What came of both halves.
pub struct AlignedAndCalled {
    /// Of the alignment.
    pub aligned: RunReport,
    /// Of calling.
    pub called: CallReport,
    /// What was called.
    pub vcf: PathBuf,
}

/// An alignment that is done, and what is to be called from it.
pub(crate) struct Aligned {
    pub(crate) report: RunReport,
    /// What is left of calling.
    pub(crate) rest: RestOfCalling,
}

/// Calling of an alignment that is done.
pub(crate) struct RestOfCalling {
    options: CallOptions,
    /// Regions that were called while the BAM was written.
    called_live: usize,
}

/// Aligns as [`align`](crate::align()) does, and calls variants into `OUT/SAMPLE.vcf.gz` (`.g.vcf.gz` where the caller writes GVCF).
/// Of `calling` that says how; reads and output are those of the alignment. In one process a region is called as soon as all of
/// its reads are in the BAM; over nodes, calling begins when the BAM is whole. `aligned` is told of the alignment when that is
/// done.
///
/// # Errors
/// [`PipelineError`]; where it is from calling, what was aligned has its names.
pub fn align_and_call(
    options: &AlignOptions,
    calling: &CallOptions,
    spread: Option<&Spread>,
    aligned: impl FnOnce(&RunReport),
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<AlignedAndCalled, PipelineError> {
    let Aligned { report, rest } = align_first(options, calling, spread, observer, cancelled)?;
    aligned(&report);
    let called = rest.call(spread, observer, cancelled)?;
    tell(&options.out, rest.out())?;
    Ok(AlignedAndCalled { aligned: report, called, vcf: rest.options.out })
}

/// Checks options of calling, with the reference and the regions, before an alignment. Writes nothing.
///
/// # Errors
/// [`PipelineError`].
pub fn check_calling(options: &AlignOptions, calling: &CallOptions) -> Result<(), PipelineError> {
    check_caller(&of_alignment(options, calling)?).map(drop)
}

/// Returns the options for calling from the output of an alignment.
///
/// # Errors
/// [`PipelineError::Options`] for a caller that does not read this output, [`PipelineError`] for an output that is an input.
fn of_alignment(options: &AlignOptions, calling: &CallOptions) -> Result<CallOptions, PipelineError> {
    let (reads, out) = files(options, calling)?;
    let (reads, reference) = (vec![reads], options.reference.clone());
    let calling = CallOptions { reference, reads, out, resume: options.resume, ..calling.clone() };
    let files = options.lanes.iter().flatten().chain([&options.reference]).map(PathBuf::as_path);
    let files = files.chain(region_files(&calling.regions));
    let inputs = files.map(|path| InputFile::of("the input", path)).collect::<Result<Vec<_>, _>>()?;
    check_distinct(&inputs, std::slice::from_ref(&calling.out))?;
    Ok(calling)
}

/// The reads that are called, and the VCF.
fn files(options: &AlignOptions, calling: &CallOptions) -> Result<(PathBuf, PathBuf), PipelineError> {
    let format = [Format::Bam, Format::Cram].into_iter().find(|format| options.formats.contains(format));
    let Some(format) = format else {
        let problem =
            "variants are called from BAM or CRAM: add one of them to --format, or leave out --call".to_owned();
        return Err(PipelineError::Options { problem });
    };
    let caller = calling.caller.find(&calling.caller_args)?;
    let beside = |ending: &str| options.out.join(format!("{}.{ending}", options.sample));
    let habits = caller.habits();
    if habits.gvcfs {
        let problem = format!("{} takes GVCFs, not what is aligned; name another caller", caller.name());
        return Err(PipelineError::Options { problem });
    }
    let vcf = if habits.blocks { "g.vcf.gz" } else { "vcf.gz" };
    Ok((beside(format.extension()), beside(vcf)))
}

/// Aligns, and calls meanwhile what can be called.
///
/// # Errors
/// [`PipelineError`] of the alignment, and for options of calling that cannot be used.
pub(crate) fn align_first(
    options: &AlignOptions,
    calling: &CallOptions,
    spread: Option<&Spread>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<Aligned, PipelineError> {
    let mut calling = of_alignment(options, calling)?;
    // Blocks of other aligners are aligned again, and nothing is known of whether that gives the same.
    let same_again = options.aligner.identity() == Identity::AcrossBlocks;
    let in_one_process = spread.is_none() && options.formats.contains(&Format::Bam);
    let live = LiveCalling::open(&calling, same_again, observer, cancelled)?;
    // Whoever calls later need not read it again.
    let scanned = live.as_ref().map(|live| live.reference().clone());
    let (report, called_live) = match live {
        None => (align_followed(options, spread, None, observer, cancelled)?, 0),
        Some(live) if !in_one_process => {
            live.close();
            (align_followed(options, spread, None, observer, cancelled)?, 0)
        }
        Some(live) => {
            let report = std::thread::scope(|scope| {
                let _end = EndOfWriting(&live);
                for _ in 0..live.workers() {
                    scope.spawn(|| live.work());
                }
                let follower: &dyn Follower = &live;
                align_followed(options, spread, Some(follower), observer, cancelled)
            });
            let called = live.close();
            (report?, called)
        }
    };
    calling.resume |= called_live > 0;
    calling.scanned = calling.scanned.or(scanned);
    Ok(Aligned { report, rest: RestOfCalling { options: calling, called_live } })
}

impl RestOfCalling {
    /// Calls what is left, and writes the VCF.
    ///
    /// # Errors
    /// Those of [`call`](crate::call()).
    pub(crate) fn call(
        &self,
        spread: Option<&Spread>,
        observer: &dyn Observer,
        cancelled: &AtomicBool,
    ) -> Result<CallReport, PipelineError> {
        call_rest(&self.options, self.called_live, spread, observer, cancelled)
    }

    /// The VCF.
    pub(crate) fn out(&self) -> &Path {
        &self.options.out
    }
}

/// Adds what calling says of itself to the report and the page of the alignment, which had their names before.
///
/// # Errors
/// [`PipelineError::File`].
pub(crate) fn tell(directory: &Path, vcf: &Path) -> Result<(), PipelineError> {
    let json = |path: &Path| -> Result<Value, PipelineError> {
        let text = std::fs::read(path).map_err(PipelineError::file("read", path))?;
        serde_json::from_slice(&text).map_err(|error| PipelineError::file("read", path)(error.into()))
    };
    let (path, page) = (directory.join("run.json"), directory.join("report.html"));
    let (mut report, called) = (json(&path)?, json(&report_path(vcf))?);
    if let Ok(html) = std::fs::read_to_string(&page)
        && let Some(html) = report_page::with_calling(&html, &called)
    {
        write_whole(&page, html.as_bytes()).map_err(PipelineError::file("write", &page))?;
    }
    if let Some(fields) = report.as_object_mut() {
        fields.insert("calling".to_owned(), called);
    }
    let text = serde_json::to_vec_pretty(&report).map_err(std::io::Error::other);
    text.and_then(|text| write_whole(&path, &text)).map_err(PipelineError::file("write", &path))
}
