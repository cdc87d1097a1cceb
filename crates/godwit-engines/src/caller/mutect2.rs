//! The variant caller GATK Mutect2, which calls somatic variants of a tumour, optionally with a matched normal.
//!
//! The output is not filtered, because FilterMutectCalls needs the records of all regions at once.

use std::ffi::OsStr;

use super::gatk_arguments::{GATK_CAPABILITIES, REFUSED_GATK_OPTIONS, REFUSED_READ_OPTIONS, add_region_arguments};
use super::{Caller, CallerInvocation, Capabilities, split_caller_options};
use crate::gatk::GatkToolkit;
use crate::refused_options::RefusedOption;
use crate::{EngineError, ProcessPipeline};

/// Value of the option `--caller` that selects this caller.
pub const NAME: &str = "mutect2";
/// Options that godwit sets from [`CallerInvocation`], besides those that it also sets for HaplotypeCaller.
const REFUSED_MUTECT2_OPTIONS: [RefusedOption; 2] = [("-normal", "use --normal"), ("--normal-sample", "use --normal")];

/// An installed GATK with the options of the user for Mutect2.
#[derive(Clone, Debug)]
pub struct Mutect2 {
    toolkit: GatkToolkit,
    arguments: Vec<String>,
}

impl Mutect2 {
    /// Finds GATK and Java and parses the options of the user for Mutect2.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], and [`EngineError::Arguments`] for a rejected
    /// option.
    pub fn find_installed(arguments: &str) -> Result<Self, EngineError> {
        let arguments = split_caller_options(
            "Mutect2",
            arguments,
            &[&REFUSED_GATK_OPTIONS, &REFUSED_READ_OPTIONS, &REFUSED_MUTECT2_OPTIONS],
        )?;
        Ok(Self { toolkit: GatkToolkit::find_installed()?, arguments })
    }
}

impl Caller for Mutect2 {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        self.toolkit.version()
    }

    fn command_line(&self) -> String {
        [&["gatk".to_owned(), "Mutect2".to_owned()], &self.arguments[..]].concat().join(" ")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { takes_tumor_normal_pairs: true, ..GATK_CAPABILITIES }
    }

    fn check_ploidy(&self, _ploidy: u8) -> Result<(), EngineError> {
        let message = "Mutect2 does not support --ploidy: tumours have no fixed ploidy; omit it".to_owned();
        Err(EngineError::Arguments { message })
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        let mut command = self.toolkit.tool_command("Mutect2", work.memory_bytes, work.directory);
        command.args(work.reads.iter().flat_map(|input| [OsStr::new("-I"), input.as_os_str()]));
        if let Some(normal) = work.normal_reads {
            command.arg("-I").arg(normal.reads).args(["-normal", normal.sample]);
        }
        add_region_arguments(&mut command, work)?;
        command.args(["--native-pair-hmm-threads", &work.threads.to_string()]);
        command.args(&self.arguments).arg("-O").arg(work.output);
        self.toolkit.start_tool(command)
    }
}
