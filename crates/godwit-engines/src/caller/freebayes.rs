//! The variant caller freebayes.
//!
//! freebayes joins neighbouring variants into one record and carries state from site to site, so some numbers depend on
//! its start position. With padding on either side of a region, sites and genotypes do not depend on it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::region_argument::RegionArgument;
use super::{Caller, CallerInvocation, Capabilities, DEFAULT_PADDING_BASES, create_output_file, split_caller_options};
use crate::program_lookup::{find_program, query_program_version};
use crate::refused_options::{RefusedOption, SET_BY_GODWIT};
use crate::{EngineError, PipelineCommand, ProcessPipeline, check_version};

/// Name of the program.
pub const PROGRAM: &str = "freebayes";
/// Instructions for installing freebayes.
pub const REMEDY: &str =
    "install freebayes 1.3 or later (Debian and Ubuntu: apt-get install freebayes; bioconda: freebayes)";
/// The oldest supported version, as major and minor version: since 1.3, freebayes reads CRAM and has the current syntax
/// of regions.
const MIN_VERSION: [u32; 2] = [1, 3];

/// Options that the user cannot pass, each with the reason or the alternative.
const REFUSED_OPTIONS: [RefusedOption; 20] = [
    ("-b", SET_BY_GODWIT),
    ("--bam", SET_BY_GODWIT),
    ("-L", SET_BY_GODWIT),
    ("--bam-list", SET_BY_GODWIT),
    ("-c", SET_BY_GODWIT),
    ("--stdin", SET_BY_GODWIT),
    ("-f", SET_BY_GODWIT),
    ("--fasta-reference", SET_BY_GODWIT),
    ("-v", SET_BY_GODWIT),
    ("--vcf", SET_BY_GODWIT),
    ("-r", "use --regions"),
    ("--region", "use --regions"),
    ("-t", "use --regions"),
    ("--targets", "use --regions"),
    ("-p", "use --ploidy"),
    ("--ploidy", "use --ploidy of godwit call"),
    ("--gvcf", "its reference blocks would end at the borders of regions"),
    ("--trace", SET_BY_GODWIT),
    ("--failed-alleles", SET_BY_GODWIT),
    ("--cnv-map", "use --ploidy"),
];

/// An installed freebayes with the options of the user.
#[derive(Clone, Debug)]
pub struct Freebayes {
    program: PathBuf,
    version: String,
    arguments: Vec<String>,
}

impl Freebayes {
    /// Finds freebayes and parses the options of the user.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], and [`EngineError::Arguments`] for a rejected
    /// option.
    pub fn find_installed(arguments: &str) -> Result<Self, EngineError> {
        let arguments = split_caller_options(PROGRAM, arguments, &[&REFUSED_OPTIONS])?;
        let program = find_program(PROGRAM, REMEDY)?;
        let version = query_program_version(&program, &["--version"]).unwrap_or_default();
        check_version(&program, PROGRAM, &version, MIN_VERSION)?;
        Ok(Self { program, version, arguments })
    }
}

impl Caller for Freebayes {
    fn name(&self) -> &str {
        PROGRAM
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn command_line(&self) -> String {
        [&[PROGRAM.to_owned()], &self.arguments[..]].concat().join(" ")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            padding_bases: DEFAULT_PADDING_BASES,
            memory_bytes: 1 << 30,
            depends_on_grid: true,
            writes_reference_blocks: false,
            needs_dictionary: false,
            // freebayes 1.3.6 rejects a compressed reference, but only after it has started, so godwit checks this before.
            reads_bgzf_reference: false,
            takes_gvcfs: false,
            takes_tumor_normal_pairs: false,
            takes_region_lists: true,
            depends_on_region_only: false,
            needs_local_scratch: false,
        }
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        let mut command = Command::new(&self.program);
        command.arg("-f").arg(work.reference);
        match work.region_argument()? {
            // `-r` of freebayes is 0-based and half-open, as BED.
            RegionArgument::Text(region) => {
                command.args(["-r", &format!("{}:{}-{}", region.contig, region.start, region.end)])
            }
            RegionArgument::Bed(path) => command.arg("-t").arg(path),
        };
        if let Some(ploidy) = work.ploidy {
            command.args(["-p", &ploidy.to_string()]);
        }
        command.args(&self.arguments).args(work.reads);
        let link = PipelineCommand { program: self.program.clone(), version: self.version.clone(), command };
        ProcessPipeline::start(vec![link], Stdio::from(create_output_file(work)?))
    }
}
