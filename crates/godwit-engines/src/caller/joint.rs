//! GATK's joint genotyping. Input: GVCFs of many samples. Output: the variants of all samples.
//!
//! GenomicsDBImport collects a region of all GVCFs in a database of this region, and GenotypeGVCFs calls from it. Calls at a
//! site depend on the samples' records there, and on earlier deletions that reach over it, so the padding before a region
//! must be as long as the longest deletion.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::gatk::{REFUSED_GATK_OPTIONS, add_region_arguments};
use super::{Caller, CallerInvocation, Capabilities, split_caller_options};
use crate::gatk::GatkToolkit;
use crate::{EngineError, ProcessPipeline};

/// Value of `--caller`.
pub const NAME: &str = "gatk-joint";
/// Maximum number of GVCFs that are open at a time.
const IMPORT_BATCH_SIZE: &str = "50";
/// Name of the database in the region's directory.
const DATABASE_DIRECTORY: &str = "genomicsdb";

const SET_BY_GODWIT: &str = "it is set by godwit call";
const REFUSED_JOINT_OPTIONS: [(&str, &str); 3] =
    [("-V", "use --gvcfs"), ("--variant", "use --gvcfs"), ("--only-output-calls-starting-in-intervals", SET_BY_GODWIT)];

/// An installed GATK with options of GenotypeGVCFs.
#[derive(Clone, Debug)]
pub struct JointGatk {
    toolkit: GatkToolkit,
    arguments: Vec<String>,
}

impl JointGatk {
    /// Finds GATK and Java and parses options of GenotypeGVCFs.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find_installed(arguments: &str) -> Result<Self, EngineError> {
        let arguments =
            split_caller_options("GenotypeGVCFs", arguments, &[&REFUSED_GATK_OPTIONS, &REFUSED_JOINT_OPTIONS])?;
        Ok(Self { toolkit: GatkToolkit::find_installed()?, arguments })
    }

    fn database_path(work: &CallerInvocation) -> PathBuf {
        work.directory.join(DATABASE_DIRECTORY)
    }
}

impl Caller for JointGatk {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        self.toolkit.version()
    }

    fn command_line(&self) -> String {
        let words = ["gatk GenomicsDBImport | gatk GenotypeGVCFs".to_owned()];
        [&words, &self.arguments[..]].concat().join(" ")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { takes_gvcfs: true, ..GatkToolkit::CAPABILITIES }
    }

    fn prepare(&self, work: &CallerInvocation) -> Result<Option<ProcessPipeline>, EngineError> {
        if work.ploidy.is_some() {
            let message = "the GVCFs say how many copies there are; leave --ploidy out".to_owned();
            return Err(EngineError::Arguments { message });
        }
        let mut command = self.toolkit.tool_command("GenomicsDBImport", work.memory_bytes, work.directory);
        command.args(work.reads.iter().flat_map(|input| [OsStr::new("-V"), input.as_os_str()]));
        add_region_arguments(&mut command, work)?;
        // One database for all intervals, not one for each.
        command.args(["--merge-input-intervals", "true"]);
        command.args(["--batch-size", IMPORT_BATCH_SIZE, "--genomicsdb-workspace-path"]).arg(Self::database_path(work));
        self.toolkit.start_tool(command).map(Some)
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        let mut command = self.toolkit.tool_command("GenotypeGVCFs", work.memory_bytes, work.directory);
        command.arg("-V").arg(format!("gendb://{}", Self::database_path(work).display()));
        add_region_arguments(&mut command, work)?;
        command.args(&self.arguments).arg("-O").arg(work.output);
        self.toolkit.start_tool(command)
    }
}
