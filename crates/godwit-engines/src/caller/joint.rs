//! Joint genotyping with GATK: the input is the GVCF files of many samples, the output the variants of all samples.
//!
//! GenomicsDBImport stores one region of all GVCFs in a database for this region, and GenotypeGVCFs reads this
//! database. Calls at a site depend on the samples' records at that site and on earlier deletions that span the site.
//! The padding before a region must therefore be as long as the longest deletion.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use super::gatk_arguments::{GATK_CAPABILITIES, REFUSED_GATK_OPTIONS, add_region_arguments};
use super::{Caller, CallerInvocation, Capabilities, split_caller_options};
use crate::gatk::GatkToolkit;
use crate::refused_options::{RefusedOption, SET_BY_GODWIT};
use crate::{EngineError, ProcessPipeline, is_version_at_least};

/// Value of the option `--caller` that selects this caller.
pub const NAME: &str = "gatk-joint";
/// Maximum number of GVCF files that GenomicsDBImport opens at a time.
const IMPORT_BATCH_SIZE: &str = "50";
/// Environment variable that makes GenomicsDB work without file locks.
const LOCKING_VARIABLE: &str = "TILEDB_DISABLE_FILE_LOCKING";
/// Major and minor version of GATK from which both tools certainly have the option for shared file systems.
const SHARED_FILE_SYSTEMS_VERSION: [u32; 2] = [4, 2];
/// Name of the GenomicsDB workspace in the private directory of the region.
const DATABASE_DIRECTORY: &str = "genomicsdb";

/// Options that the user cannot pass to GenotypeGVCFs, besides those of all GATK tools, each with the alternative.
const REFUSED_JOINT_OPTIONS: [RefusedOption; 3] =
    [("-V", "use --gvcfs"), ("--variant", "use --gvcfs"), ("--only-output-calls-starting-in-intervals", SET_BY_GODWIT)];

/// An installed GATK with the options of the user for GenotypeGVCFs.
#[derive(Clone, Debug)]
pub struct JointGatk {
    toolkit: GatkToolkit,
    arguments: Vec<String>,
}

impl JointGatk {
    /// Finds GATK and Java and parses the options of the user for GenotypeGVCFs.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], and [`EngineError::Arguments`] for a rejected
    /// option.
    pub fn find_installed(arguments: &str) -> Result<Self, EngineError> {
        let arguments =
            split_caller_options("GenotypeGVCFs", arguments, &[&REFUSED_GATK_OPTIONS, &REFUSED_JOINT_OPTIONS])?;
        Ok(Self { toolkit: GatkToolkit::find_installed()?, arguments })
    }

    /// Returns the start of a command line for a tool that uses the database. Only this tool uses it, so it needs no file
    /// locks, which fail on some network file systems.
    fn database_command(&self, tool: &str, work: &CallerInvocation) -> Command {
        let mut command = self.toolkit.tool_command(tool, work.memory_bytes, work.directory);
        command.env(LOCKING_VARIABLE, "1");
        if is_version_at_least(self.toolkit.version(), SHARED_FILE_SYSTEMS_VERSION) {
            command.args(["--genomicsdb-shared-posixfs-optimizations", "true"]);
        }
        command
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
        Capabilities { takes_gvcfs: true, needs_local_scratch: true, ..GATK_CAPABILITIES }
    }

    fn check_ploidy(&self, _ploidy: u8) -> Result<(), EngineError> {
        let message = "the GVCFs define the ploidy of their samples; omit --ploidy".to_owned();
        Err(EngineError::Arguments { message })
    }

    fn prepare(&self, work: &CallerInvocation) -> Result<Option<ProcessPipeline>, EngineError> {
        let mut command = self.database_command("GenomicsDBImport", work);
        command.args(work.reads.iter().flat_map(|input| [OsStr::new("-V"), input.as_os_str()]));
        add_region_arguments(&mut command, work)?;
        // Create one database for all intervals instead of one database per interval.
        command.args(["--merge-input-intervals", "true"]);
        command.args(["--batch-size", IMPORT_BATCH_SIZE, "--genomicsdb-workspace-path"]).arg(Self::database_path(work));
        self.toolkit.start_tool(command).map(Some)
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        let mut command = self.database_command("GenotypeGVCFs", work);
        command.arg("-V").arg(format!("gendb://{}", Self::database_path(work).display()));
        add_region_arguments(&mut command, work)?;
        command.args(&self.arguments).arg("-O").arg(work.output);
        self.toolkit.start_tool(command)
    }
}
