//! Variant callers: aligned reads and a region in, the text of a VCF out.
//!
//! A caller is a program, or several that read from each other. It is started once for each region and sees no more of
//! the genome than it is shown. What its records mean, and which of them count, is not decided here.

pub mod bcftools;
mod choice;
pub mod freebayes;
mod gatk;
pub mod joint;
pub mod mutect2;
mod region;
pub mod template;

use std::path::{Path, PathBuf};

use godwit_model::Region;

use crate::{Chain, EngineError};

pub use choice::CallerChoice;

/// What a caller is to look at.
#[derive(Clone, Copy, Debug)]
pub struct RegionWork<'a> {
    /// The reference, FASTA, with its `.fai` beside it.
    pub reference: &'a Path,
    /// Aligned reads, BAM or CRAM, or GVCFs, each with its index beside it: one file, or those of several samples on the
    /// same contigs.
    pub reads: &'a [PathBuf],
    /// The healthy tissue beside a tumour, which `reads` then are of.
    pub normal: Option<Normal<'a>>,
    /// Stretches of one contig, ascending, apart from each other; at least one.
    pub stretches: &'a [Region],
    /// Copies of the contig there; `None`: whatever the caller takes for granted.
    pub ploidy: Option<u8>,
    /// A private directory that is this region's alone.
    pub directory: &'a Path,
    /// Where the VCF goes, plain or compressed.
    pub output: &'a Path,
    /// Threads of the caller, at least 1.
    pub threads: usize,
    /// Memory it may take, bytes.
    pub memory_bytes: u64,
}

/// Reads of healthy tissue.
#[derive(Clone, Copy, Debug)]
pub struct Normal<'a> {
    /// BAM or CRAM, with its index beside it.
    pub reads: &'a Path,
    /// The one sample that it is of.
    pub sample: &'a str,
}

/// What calling by region has to know of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Bases it has to see on either side of a region, so that what it finds there is what it would find in one run.
    pub padding_bases: u32,
    /// Memory of one process, bytes, where nothing else is said.
    pub memory_bytes: u64,
    /// Whether numbers in its records may depend on where the genome is cut.
    pub depends_on_grid: bool,
    /// It writes a record for every stretch without variants too. Such records end where they are told to, so nothing is
    /// shown beyond that.
    pub blocks: bool,
    /// Whether it needs a sequence dictionary (`REF.dict`) beside the reference.
    pub needs_dictionary: bool,
    /// True if the caller reads a reference that is compressed with bgzip.
    pub reads_bgzf_reference: bool,
    /// Whether it takes GVCFs, not reads.
    pub gvcfs: bool,
    /// Whether it calls a tumour beside a normal.
    pub pairs: bool,
    /// Whether one process of it can be told several stretches, on several contigs too.
    pub lists: bool,
    /// Whether what it writes of a region depends on nothing of the file but the header and the reads there, so that it may be
    /// started while the rest of the file is not written yet. Of a program that is not known this cannot be said: it may
    /// estimate depth or insert sizes from all of the file.
    pub region_alone: bool,
}

impl Habits {
    /// What holds for a caller of which nothing more is known.
    pub(crate) const USUAL: Self = Self {
        padding_bases: 1000,
        memory_bytes: 4 << 30,
        depends_on_grid: true,
        blocks: false,
        needs_dictionary: false,
        reads_bgzf_reference: true,
        gvcfs: false,
        pairs: false,
        lists: true,
        region_alone: false,
    };
}

/// A caller that was found.
pub trait Caller: Send + Sync {
    /// Its name: the word for it, or the template's program.
    fn name(&self) -> &str;

    /// Its version; empty where it tells none.
    fn version(&self) -> &str;

    /// The command line as a header shows it: what changes records, without files and regions.
    fn command_line(&self) -> String;

    /// How it is to be treated.
    fn habits(&self) -> Habits;

    /// Starts what has to end before the caller is started on a region; most callers need nothing.
    ///
    /// # Errors
    /// As for [`Caller::start`].
    fn prepare(&self, _work: &RegionWork) -> Result<Option<Chain>, EngineError> {
        Ok(None)
    }

    /// Starts it on a region.
    ///
    /// # Errors
    /// [`EngineError::Io`]; [`EngineError::Arguments`] for a ploidy that it cannot do.
    fn start(&self, work: &RegionWork) -> Result<Chain, EngineError>;
}

/// Words of an option that names further options of a caller.
///
/// # Errors
/// [`EngineError::Arguments`] for an open quote, or for one of `refused`, with what to use instead.
fn words(caller: &str, text: &str, refused: &[&[(&str, &str)]]) -> Result<Vec<String>, EngineError> {
    let wrong = |message| EngineError::Arguments { message };
    let words = crate::words::split(text)
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

/// The program's file, opened for what it prints.
fn output_file(work: &RegionWork) -> Result<std::fs::File, EngineError> {
    std::fs::File::create(work.output).map_err(|source| EngineError::Io {
        program: work.output.to_owned(),
        action: "create",
        source,
    })
}
