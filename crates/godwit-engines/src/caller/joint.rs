//! GATK's joint genotyping: GVCFs of many samples in, the variants of all of them out.
//!
//! A region of all GVCFs is gathered by GenomicsDBImport into a database of the region's own, and judged by GenotypeGVCFs.
//! What it says of a site depends on the samples' records there, and on deletions that begin before it and reach over it,
//! so a region needs as many bases before it as the longest deletion has.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::gatk::{REFUSED, tell};
use super::{Caller, Habits, RegionWork, words};
use crate::gatk::Toolkit;
use crate::{Chain, EngineError};

/// The word for it.
pub const NAME: &str = "gatk-joint";
/// GVCFs that are open at a time.
const BATCH: &str = "50";
/// The database, within the region's directory.
const DATABASE: &str = "genomicsdb";

const SET_HERE: &str = "it is set by godwit call";
const REFUSED_TOO: [(&str, &str); 3] =
    [("-V", "use --gvcfs"), ("--variant", "use --gvcfs"), ("--only-output-calls-starting-in-intervals", SET_HERE)];

/// GATK, found, with options of GenotypeGVCFs.
#[derive(Clone, Debug)]
pub struct JointGatk {
    toolkit: Toolkit,
    arguments: Vec<String>,
}

impl JointGatk {
    /// Finds GATK and Java and reads options of GenotypeGVCFs.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find(arguments: &str) -> Result<Self, EngineError> {
        let arguments = words("GenotypeGVCFs", arguments, &[&REFUSED, &REFUSED_TOO])?;
        Ok(Self { toolkit: Toolkit::find()?, arguments })
    }

    fn database(work: &RegionWork) -> PathBuf {
        work.directory.join(DATABASE)
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

    fn habits(&self) -> Habits {
        Habits { gvcfs: true, ..Toolkit::HABITS }
    }

    fn prepare(&self, work: &RegionWork) -> Result<Option<Chain>, EngineError> {
        if work.ploidy.is_some() {
            let message = "the GVCFs say how many copies there are; leave --ploidy out".to_owned();
            return Err(EngineError::Arguments { message });
        }
        let mut command = self.toolkit.command("GenomicsDBImport", work.memory_bytes, work.directory);
        command.args(work.reads.iter().flat_map(|input| [OsStr::new("-V"), input.as_os_str()]));
        tell(&mut command, work)?;
        // One database for all stretches, not one each.
        command.args(["--merge-input-intervals", "true"]);
        command.args(["--batch-size", BATCH, "--genomicsdb-workspace-path"]).arg(Self::database(work));
        self.toolkit.start(command).map(Some)
    }

    fn start(&self, work: &RegionWork) -> Result<Chain, EngineError> {
        let mut command = self.toolkit.command("GenotypeGVCFs", work.memory_bytes, work.directory);
        command.arg("-V").arg(format!("gendb://{}", Self::database(work).display()));
        tell(&mut command, work)?;
        command.args(&self.arguments).arg("-O").arg(work.output);
        self.toolkit.start(command)
    }
}
