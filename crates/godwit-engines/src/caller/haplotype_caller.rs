//! The variant caller GATK HaplotypeCaller, which writes VCF, or GVCF with `-ERC GVCF`.
//!
//! The active regions of HaplotypeCaller depend on its start position, so some numbers in the records depend on the
//! region borders. With padding on either side of a region, sites and genotypes do not. A GVCF also contains reference
//! blocks, which end at the end of the region. For GVCF output, regions are therefore not padded, as is usual in
//! scattered runs of GATK.

use std::ffi::OsStr;

use super::gatk_arguments::{GATK_CAPABILITIES, REFUSED_GATK_OPTIONS, REFUSED_READ_OPTIONS, add_region_arguments};
use super::{Caller, CallerInvocation, Capabilities, split_caller_options};
use crate::gatk::{GatkToolkit, PROGRAM};
use crate::{EngineError, ProcessPipeline};

/// An installed GATK with the options of the user for HaplotypeCaller.
#[derive(Clone, Debug)]
pub struct HaplotypeCaller {
    toolkit: GatkToolkit,
    arguments: Vec<String>,
    writes_reference_blocks: bool,
}

impl HaplotypeCaller {
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

impl Caller for HaplotypeCaller {
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
        let padding_bases = if self.writes_reference_blocks { 0 } else { GATK_CAPABILITIES.padding_bases };
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
