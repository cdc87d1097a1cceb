//! Variant callers: each receives aligned reads and a genomic region and returns VCF text.
//!
//! A caller consists of one program, or of several programs joined by pipes. godwit starts it once per region, and it
//! receives only the padded region of the genome. This module does not interpret the VCF records or remove those in the
//! padding.

pub mod bcftools;
mod choice;
pub mod freebayes;
mod gatk_arguments;
mod haplotype_caller;
pub mod joint;
pub mod mutect2;
mod region_argument;
pub mod template;

use std::path::{Path, PathBuf};

use godwit_model::Region;

use crate::refused_options::{RefusedOption, find_refused};
use crate::{EngineError, ProcessPipeline};

pub use choice::CallerChoice;

/// Default number of bases on either side of a region that a caller also reads, because its records depend on reads
/// nearby. Exceeds the length of short reads, and the 100 bases that HaplotypeCaller reads beyond an active region.
const DEFAULT_PADDING_BASES: u32 = 1000;
/// Maximum number of bases that a caller with [`Capabilities::depends_on_region_only`] may read beyond the intervals of
/// its invocation. godwit starts such a caller when the file of reads is complete up to there. HaplotypeCaller reads 100.
pub const MAX_LOOKAHEAD_BASES: u32 = 10_000;

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
    /// Padded intervals, 0-based and half-open, sorted and disjoint, at least one. All are on one contig unless
    /// [`Capabilities::takes_region_lists`] is true. [`Region::title`] returns the 1-based, closed form
    /// (`chr1:1-1000`), which most callers accept.
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
    /// caller may start while the rest of the file is not written yet, so it must not read more than
    /// [`MAX_LOOKAHEAD_BASES`] beyond its intervals. False for unknown programs, because they may estimate depth or
    /// insert sizes from the whole file.
    pub depends_on_region_only: bool,
    /// True if the caller writes a database that is slow on network file systems, or depends on their locks.
    pub needs_local_scratch: bool,
}

impl Capabilities {
    /// The capabilities of callers given as a command line, about which godwit knows nothing.
    ///
    /// `depends_on_grid` and `depends_on_region_only` are cautious: the header names the grid, and the caller starts when
    /// the reads are complete. The other values are optimistic, because a cautious value would exclude programs that
    /// work. Most programs report it if such a value is wrong. Only a padding that is too small, and reference blocks
    /// that are padded, change records silently; `--padding` is the remedy for both.
    pub(crate) const OF_COMMAND_LINES: Self = Self {
        // Optimistic: it suffices for short reads.
        padding_bases: DEFAULT_PADDING_BASES,
        memory_bytes: 4 << 30,
        depends_on_grid: true,
        // Optimistic: few programs write them, and those need `--padding 0`.
        writes_reference_blocks: false,
        // Optimistic: a program that needs a dictionary reports that it is missing.
        needs_dictionary: false,
        // Optimistic: a program that cannot read a compressed reference reports it.
        reads_bgzf_reference: true,
        takes_gvcfs: false,
        // The placeholder `normal` sets this value.
        takes_tumor_normal_pairs: false,
        // Optimistic: the placeholder `bed` is a file of several lines. The placeholder `region` unsets this value.
        takes_region_lists: true,
        depends_on_region_only: false,
        // Optimistic: the user sets `--temp`.
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

    /// Checks that the caller supports `ploidy`, which is at least 1. godwit calls this function for every region that
    /// has a ploidy, before it starts a program, so [`Caller::start`] may rely on it.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] if the caller does not support this ploidy, or does not accept `--ploidy` at all; the
    /// message contains the alternative.
    fn check_ploidy(&self, _ploidy: u8) -> Result<(), EngineError> {
        Ok(())
    }

    /// Starts the processes that must finish before the caller can start on a region. Most callers do not need any.
    ///
    /// # Errors
    /// The errors of [`Caller::start`].
    fn prepare(&self, _work: &CallerInvocation) -> Result<Option<ProcessPipeline>, EngineError> {
        Ok(None)
    }

    /// Starts the caller on the region of `work`.
    ///
    /// godwit merges the VCF headers of all regions. Header lines that differ between runs, such as command lines, dates
    /// and temporary paths, must match [`is_volatile`], because godwit removes those lines. A caller that writes others
    /// needs a further suffix there; otherwise the header of the output changes from run to run.
    ///
    /// [`is_volatile`]: godwit_formats::vcf::lines::is_volatile
    ///
    /// # Errors
    /// [`EngineError::Io`] if a program does not start; [`EngineError::Arguments`] if the caller does not support these
    /// inputs, such as several files of reads.
    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError>;
}

/// Splits `text`, the options that the user passes to a caller, into words.
///
/// # Errors
/// [`EngineError::Arguments`] for an unclosed quote, or for an option in `refused`; the message contains the
/// alternative.
fn split_caller_options(caller: &str, text: &str, refused: &[&[RefusedOption]]) -> Result<Vec<String>, EngineError> {
    let wrong = |message| EngineError::Arguments { message };
    let words =
        shlex::split(text).ok_or_else(|| wrong(format!("the options of {caller} {text:?} have an unclosed quote")))?;
    for word in &words {
        if let Some((option, instead)) = find_refused(word, refused) {
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
