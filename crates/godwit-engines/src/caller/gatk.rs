//! GATK HaplotypeCaller: VCF, or GVCF with `-ERC GVCF`.
//!
//! Active regions depend on the start position, so some numbers of records depend on the grid; with some padding on either
//! side, sites and genotypes do not. A GVCF has a record for every reference block, which ends at the region's end, so no
//! padding is shown then, as usual in scattered runs of GATK.

use std::ffi::OsStr;
use std::process::Command;

use super::region_argument::RegionArgument;
use super::{Caller, CallerInvocation, Capabilities, split_caller_options};
use crate::gatk::{GatkToolkit, PROGRAM};
use crate::{EngineError, ProcessPipeline};

const SET_BY_GODWIT: &str = "it is set by godwit call";
/// Options that the user cannot pass to any tool of GATK.
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
    ("--java-options", "use --caller-memory for its heap"),
];
/// Options that the user cannot pass to a tool that calls from reads.
pub(super) const REFUSED_READ_OPTIONS: [(&str, &str); 7] = [
    ("-I", SET_BY_GODWIT),
    ("--input", SET_BY_GODWIT),
    ("-bamout", "it would be written by every region"),
    ("--bam-output", "it would be written by every region"),
    ("-ploidy", "use --ploidy"),
    ("--sample-ploidy", "use --ploidy"),
    ("--native-pair-hmm-threads", "use --caller-threads"),
];

/// An installed GATK with options of HaplotypeCaller.
#[derive(Clone, Debug)]
pub struct Gatk {
    toolkit: GatkToolkit,
    arguments: Vec<String>,
    writes_reference_blocks: bool,
}

impl Gatk {
    /// Finds GATK and Java and parses options of HaplotypeCaller.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
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
            ..GatkToolkit::CAPABILITIES
        }
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        if self.writes_reference_blocks && work.reads.len() > 1 {
            let message = "a GVCF is of one sample: call each by itself, then all of them with --gvcfs".to_owned();
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

/// Adds reference, region and output, and disables the index of the output.
pub(super) fn add_region_arguments(command: &mut Command, work: &CallerInvocation) -> Result<(), EngineError> {
    command.arg("-R").arg(work.reference);
    match work.region_argument()? {
        RegionArgument::Text(region) => command.args(["-L", &region.title()]),
        RegionArgument::Bed(path) => command.arg("-L").arg(path),
    };
    command.args(["--create-output-variant-index", "false"]);
    Ok(())
}
