//! Variant callers. Input: aligned reads and a region. Output: VCF text.
//!
//! A caller is one program, or several joined by pipes. It is started once for each region and sees only the padded region
//! of the genome. This module does not interpret its records or decide which of them count.

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

/// The inputs and resources of one start of a caller.
#[derive(Clone, Copy, Debug)]
pub struct CallerInvocation<'a> {
    /// Path of the reference, FASTA, with its `.fai` beside it.
    pub reference: &'a Path,
    /// Paths of aligned reads, BAM or CRAM, or of GVCFs, each with its index beside it: one file, or several samples on the
    /// same contigs.
    pub reads: &'a [PathBuf],
    /// Reads of the matched normal, if `reads` are of a tumour.
    pub normal_reads: Option<NormalReads<'a>>,
    /// Padded intervals, ascending and disjoint; at least one. All are on one contig unless the caller takes region lists.
    pub regions: &'a [Region],
    /// Ploidy of the contig there; `None`: the caller's default.
    pub ploidy: Option<u8>,
    /// A private directory of this region.
    pub directory: &'a Path,
    /// Path of the VCF to write, plain or compressed.
    pub output: &'a Path,
    /// Threads of the caller, at least 1.
    pub threads: usize,
    /// Memory limit, bytes.
    pub memory_bytes: u64,
}

/// Reads of the matched normal of a tumour.
#[derive(Clone, Copy, Debug)]
pub struct NormalReads<'a> {
    /// Path of a BAM or CRAM, with its index beside it.
    pub reads: &'a Path,
    /// Its only sample.
    pub sample: &'a str,
}

/// The properties of a caller that calling by region depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Bases that it needs on either side of a region, so that its calls there equal those of one run over everything.
    pub padding_bases: u32,
    /// Default memory of one process, bytes.
    pub memory_bytes: u64,
    /// True if numbers in its records may depend on the region grid.
    pub depends_on_grid: bool,
    /// True if it also writes reference blocks. They end where the shown intervals end, so no padding is shown.
    pub writes_reference_blocks: bool,
    /// True if it needs a sequence dictionary (`REF.dict`) beside the reference.
    pub needs_dictionary: bool,
    /// True if the caller reads a reference that is compressed with bgzip.
    pub reads_bgzf_reference: bool,
    /// True if it reads GVCFs instead of reads.
    pub takes_gvcfs: bool,
    /// True if it calls a tumour with a matched normal.
    pub takes_tumor_normal_pairs: bool,
    /// True if one process of it accepts several intervals, also on several contigs.
    pub takes_region_lists: bool,
    /// True if its records of a region depend only on the header and the reads there, so that it may be started while the
    /// rest of the file is not written yet. False for unknown programs: they may estimate depth or insert sizes from the
    /// whole file.
    pub depends_on_region_only: bool,
}

impl Capabilities {
    /// The capabilities of a caller about which nothing else is known.
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
    };
}

/// An installed variant caller.
pub trait Caller: Send + Sync {
    /// Returns its name: the option value, or the template's program.
    fn name(&self) -> &str;

    /// Returns its version; empty if it reports none.
    fn version(&self) -> &str;

    /// Returns the command line for headers: the options that change records, without files and regions.
    fn command_line(&self) -> String;

    /// Returns its capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Starts the processes that must finish before the caller starts on a region; most callers have none.
    ///
    /// # Errors
    /// As for [`Caller::start`].
    fn prepare(&self, _work: &CallerInvocation) -> Result<Option<ProcessPipeline>, EngineError> {
        Ok(None)
    }

    /// Starts the caller on a region.
    ///
    /// # Errors
    /// [`EngineError::Io`] if it does not start; [`EngineError::Arguments`] for an unsupported ploidy.
    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError>;
}

/// Splits the option text of a caller into words.
///
/// # Errors
/// [`EngineError::Arguments`] for an unclosed quote, or for one of `refused`, with the alternative.
fn split_caller_options(caller: &str, text: &str, refused: &[&[(&str, &str)]]) -> Result<Vec<String>, EngineError> {
    let wrong = |message| EngineError::Arguments { message };
    let words = crate::command_template::split_shell_words(text)
        .ok_or_else(|| wrong(format!("the options of {caller} {text:?} have a quote that is not closed")))?;
    for word in &words {
        let is = |option: &str| match option.strip_prefix("--") {
            Some(_) => word.split('=').next() == Some(option),
            None => word == option || (!word.starts_with("--") && option.len() == 2 && word.starts_with(option)),
        };
        if let Some((option, instead)) = refused.iter().copied().flatten().find(|(option, _)| is(option)) {
            return Err(wrong(format!("the option {option} of {caller} cannot be passed on: {instead}")));
        }
    }
    Ok(words)
}

/// Creates the file that receives the program's stdout.
fn create_output_file(work: &CallerInvocation) -> Result<std::fs::File, EngineError> {
    std::fs::File::create(work.output).map_err(|source| EngineError::Io {
        program: work.output.to_owned(),
        action: "create",
        source,
    })
}
