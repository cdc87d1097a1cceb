//! The variant caller GATK HaplotypeCaller, which writes VCF, or GVCF with `-ERC GVCF`.
//!
//! The active regions of HaplotypeCaller depend on its start position, so some numbers in the records depend on the
//! region borders. With padding on either side of a region, sites and genotypes do not. A GVCF also contains reference
//! blocks, which end at the end of the region. For GVCF output, regions are therefore not padded, as is usual in
//! scattered runs of GATK.

use std::ffi::OsStr;
use std::process::Command;

use super::region_argument::RegionArgument;
use super::{Caller, CallerInvocation, Capabilities, split_caller_options};
use crate::gatk::{DEFAULT_MEMORY_BYTES, GatkToolkit, PROGRAM};
use crate::{EngineError, ProcessPipeline};

const SET_BY_GODWIT: &str = "godwit call sets it";
/// Options that the user cannot pass to any GATK tool, each with the reason or the alternative.
pub(super) const REFUSED_GATK_OPTIONS: [(&str, &str); 15] = [
    ("-O", SET_BY_GODWIT),
    ("--output", SET_BY_GODWIT),
    ("-R", SET_BY_GODWIT),
    ("--reference", SET_BY_GODWIT),
    ("-L", "use --regions"),
    ("--intervals", "use --regions"),
    ("-XL", "use --regions"),
    ("--exclude-intervals", "use --regions"),
    ("-ip", "use --padding"),
    ("--interval-padding", "use --padding"),
    ("-ixp", "use --padding"),
    ("--interval-exclusion-padding", "use --padding"),
    ("--tmp-dir", "use --temp"),
    ("--create-output-variant-index", SET_BY_GODWIT),
    ("--java-options", "set the heap with --caller-memory"),
];
/// Options that the user cannot pass to a GATK tool that calls variants from reads, each with the reason or the
/// alternative.
pub(super) const REFUSED_READ_OPTIONS: [(&str, &str); 7] = [
    ("-I", SET_BY_GODWIT),
    ("--input", SET_BY_GODWIT),
    ("-bamout", "the process of every region would write this file"),
    ("--bam-output", "the process of every region would write this file"),
    ("-ploidy", "use --ploidy"),
    ("--sample-ploidy", "use --ploidy"),
    ("--native-pair-hmm-threads", "use --caller-threads"),
];

/// The capabilities that all callers in GATK share.
pub(super) const GATK_CAPABILITIES: Capabilities =
    Capabilities { memory_bytes: DEFAULT_MEMORY_BYTES, needs_dictionary: true, ..Capabilities::DEFAULT };

/// An installed GATK with the options of the user for HaplotypeCaller.
#[derive(Clone, Debug)]
pub struct Gatk {
    toolkit: GatkToolkit,
    arguments: Vec<String>,
    writes_reference_blocks: bool,
}

impl Gatk {
    /// Finds GATK and Java and parses the options of the user for HaplotypeCaller.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], and [`EngineError::Arguments`] for a rejected
    /// option.
    pub fn find_installed(arguments: &str) -> Result<Self, EngineError> {
        let arguments =
            split_caller_options("HaplotypeCaller", arguments, &[&REFUSED_GATK_OPTIONS, &REFUSED_READ_OPTIONS])?;
        let writes_reference_blocks = arguments.iter().any(|word| {
            let value = word.rsplit('=').next().unwrap_or(word);
            matches!(value, "GVCF" | "BP_RESOLUTION")
        });
        Ok(Self { toolkit: GatkToolkit::find_installed()?, arguments, writes_reference_blocks })
    }
}

impl Caller for Gatk {
    fn name(&self) -> &str {
        PROGRAM
    }

    fn version(&self) -> &str {
        self.toolkit.version()
    }

    fn command_line(&self) -> String {
        [&["gatk".to_owned(), "HaplotypeCaller".to_owned()], &self.arguments[..]].concat().join(" ")
    }

    fn capabilities(&self) -> Capabilities {
        let padding_bases = if self.writes_reference_blocks { 0 } else { Capabilities::DEFAULT.padding_bases };
        Capabilities {
            padding_bases,
            writes_reference_blocks: self.writes_reference_blocks,
            depends_on_region_only: true,
            ..GATK_CAPABILITIES
        }
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        if self.writes_reference_blocks && work.reads.len() > 1 {
            let message =
                "a GVCF has one sample: call each sample separately, then genotype all of them with --gvcfs".to_owned();
            return Err(EngineError::Arguments { message });
        }
        let mut command = self.toolkit.tool_command("HaplotypeCaller", work.memory_bytes, work.directory);
        command.args(work.reads.iter().flat_map(|input| [OsStr::new("-I"), input.as_os_str()]));
        add_region_arguments(&mut command, work)?;
        if let Some(ploidy) = work.ploidy {
            command.args(["--sample-ploidy", &ploidy.to_string()]);
        }
        command.args(["--native-pair-hmm-threads", &work.threads.to_string()]);
        command.args(&self.arguments).arg("-O").arg(work.output);
        self.toolkit.start_tool(command)
    }
}

/// Adds the options for the reference, the region and the output file, and the option that disables the output index.
pub(super) fn add_region_arguments(command: &mut Command, work: &CallerInvocation) -> Result<(), EngineError> {
    command.arg("-R").arg(work.reference);
    match work.region_argument()? {
        RegionArgument::Text(region) => command.args(["-L", &region.title()]),
        RegionArgument::Bed(path) => command.arg("-L").arg(path),
    };
    command.args(["--create-output-variant-index", "false"]);
    Ok(())
}
