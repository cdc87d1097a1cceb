//! Variant callers: each receives aligned reads and a genomic region and returns VCF text.
//!
//! A caller consists of one program, or of several programs joined by pipes. godwit starts it once per region, and it
//! receives only the padded region of the genome. This module does not interpret the VCF records or remove those in the
//! padding.

pub mod bcftools;
mod choice;
pub mod freebayes;
mod gatk;
pub mod joint;
pub mod mutect2;
mod region_argument;
pub mod template;

use std::path::{Path, PathBuf};

use godwit_model::Region;

use crate::{EngineError, ProcessPipeline};

pub use choice::CallerChoice;

/// The inputs and limits for one start of a caller.
#[derive(Clone, Copy, Debug)]
pub struct CallerInvocation<'a> {
    /// Path of the reference, a FASTA file with its `.fai` index beside it.
    pub reference: &'a Path,
    /// Paths of BAM or CRAM files with aligned reads, or of GVCF files, each with its index beside it. Several files
    /// contain different samples on the same contigs.
    pub reads: &'a [PathBuf],
    /// Reads of the matched normal, if `reads` contains the reads of a tumour.
    pub normal_reads: Option<NormalReads<'a>>,
    /// Padded intervals, sorted and disjoint, at least one. All are on one contig unless
    /// [`Capabilities::takes_region_lists`] is true.
    pub regions: &'a [Region],
    /// Ploidy of the contig in this region; `None` for the default of the caller.
    pub ploidy: Option<u8>,
    /// Path of a private directory for this region.
    pub directory: &'a Path,
    /// Path of the VCF file to write, plain or compressed.
    pub output: &'a Path,
    /// Number of threads of the caller, at least 1.
    pub threads: usize,
    /// Memory limit of the caller, bytes.
    pub memory_bytes: u64,
}

/// The reads of the matched normal of a tumour.
#[derive(Clone, Copy, Debug)]
pub struct NormalReads<'a> {
    /// Path of a BAM or CRAM file, with its index beside it.
    pub reads: &'a Path,
    /// Name of the only sample in this file.
    pub sample: &'a str,
}

/// The properties of a caller that matter for calling region by region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Number of bases that the caller must receive on either side of a region, so that its calls in the region equal
    /// those of a single run over the whole genome.
    pub padding_bases: u32,
    /// Default memory limit of one process of the caller, bytes.
    pub memory_bytes: u64,
    /// True if numbers in the VCF records may depend on the borders between regions.
    pub depends_on_grid: bool,
    /// True if the caller also writes reference blocks. They end at the ends of the intervals that it receives, so
    /// these are not padded.
    pub writes_reference_blocks: bool,
    /// True if the caller needs a sequence dictionary (`REF.dict`) beside the reference.
    pub needs_dictionary: bool,
    /// True if the caller can read a reference that is compressed with bgzip.
    pub reads_bgzf_reference: bool,
    /// True if the input of the caller is GVCF files instead of aligned reads.
    pub takes_gvcfs: bool,
    /// True if the caller can compare a tumour with a matched normal.
    pub takes_tumor_normal_pairs: bool,
    /// True if one process of the caller accepts several intervals, also on different contigs.
    pub takes_region_lists: bool,
    /// True if the records of a region depend only on the header of the input file and the reads in that region. Such a
    /// caller may start while the rest of the file is not written yet. False for unknown programs, because they may
    /// estimate depth or insert sizes from the whole file.
    pub depends_on_region_only: bool,
    /// True if the caller writes a database that is slow on network file systems, or depends on their locks.
    pub needs_local_scratch: bool,
}

impl Capabilities {
    /// The capabilities of a caller about which godwit knows nothing.
    pub(crate) const DEFAULT: Self = Self {
        padding_bases: 1000,
        memory_bytes: 4 << 30,
        depends_on_grid: true,
        writes_reference_blocks: false,
        needs_dictionary: false,
        reads_bgzf_reference: true,
        takes_gvcfs: false,
        takes_tumor_normal_pairs: false,
        takes_region_lists: true,
        depends_on_region_only: false,
        needs_local_scratch: false,
    };
}

/// An installed variant caller.
pub trait Caller: Send + Sync {
    /// Returns the name of the caller: the value of `--caller`, or the program name of a template.
    fn name(&self) -> &str;

    /// Returns the version of the caller; empty if the program does not print one.
    fn version(&self) -> &str;

    /// Returns the command line that the VCF header contains: the options that change records, without files and
    /// regions.
    fn command_line(&self) -> String;

    /// Returns the properties of the caller that matter for calling region by region.
    fn capabilities(&self) -> Capabilities;

    /// Starts the processes that must finish before the caller can start on a region. Most callers do not need any.
    ///
    /// # Errors
    /// The errors of [`Caller::start`].
    fn prepare(&self, _work: &CallerInvocation) -> Result<Option<ProcessPipeline>, EngineError> {
        Ok(None)
    }

    /// Starts the caller on the region of `work`.
    ///
    /// # Errors
    /// [`EngineError::Io`] if a program does not start; [`EngineError::Arguments`] if the caller does not support the
    /// ploidy.
    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError>;
}

/// Splits `text`, the options that the user passes to a caller, into words.
///
/// # Errors
/// [`EngineError::Arguments`] for an unclosed quote, or for an option in `refused`; the message contains the
/// alternative.
fn split_caller_options(caller: &str, text: &str, refused: &[&[(&str, &str)]]) -> Result<Vec<String>, EngineError> {
    let wrong = |message| EngineError::Arguments { message };
    let words =
        shlex::split(text).ok_or_else(|| wrong(format!("the options of {caller} {text:?} have an unclosed quote")))?;
    for word in &words {
        let is = |option: &str| match option.strip_prefix("--") {
            Some(_) => word.split('=').next() == Some(option),
            None => word == option || (!word.starts_with("--") && option.len() == 2 && word.starts_with(option)),
        };
        if let Some((option, instead)) = refused.iter().copied().flatten().find(|(option, _)| is(option)) {
            return Err(wrong(format!("godwit does not accept the option {option} of {caller}: {instead}")));
        }
    }
    Ok(words)
}

/// Creates the output file of `work`, which receives the stdout of the program.
fn create_output_file(work: &CallerInvocation) -> Result<std::fs::File, EngineError> {
    std::fs::File::create(work.output).map_err(|source| EngineError::Io {
        program: work.output.to_owned(),
        action: "create",
        source,
    })
}
