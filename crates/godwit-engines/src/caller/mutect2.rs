//! GATK Mutect2: somatic variants of a tumour, beside the normal tissue of the same person where there is some.
//!
//! What it writes is what it found, unfiltered: FilterMutectCalls looks at a whole run.

use std::ffi::OsStr;

use super::gatk::{REFUSED, REFUSED_WITH_READS, tell};
use super::{Caller, Habits, RegionWork, words};
use crate::gatk::Toolkit;
use crate::{Chain, EngineError};

/// The word for it.
pub const NAME: &str = "mutect2";
/// What it is told by [`RegionWork`], beyond what HaplotypeCaller is.
const REFUSED_TOO: [(&str, &str); 2] = [("-normal", "use --normal"), ("--normal-sample", "use --normal")];

/// GATK, found, with options of Mutect2.
#[derive(Clone, Debug)]
pub struct Mutect2 {
    toolkit: Toolkit,
    arguments: Vec<String>,
}

impl Mutect2 {
    /// Finds GATK and Java and reads options of Mutect2.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find(arguments: &str) -> Result<Self, EngineError> {
        let arguments = words("Mutect2", arguments, &[&REFUSED, &REFUSED_WITH_READS, &REFUSED_TOO])?;
        Ok(Self { toolkit: Toolkit::find()?, arguments })
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

    fn habits(&self) -> Habits {
        Habits { pairs: true, ..Toolkit::HABITS }
    }

    fn start(&self, work: &RegionWork) -> Result<Chain, EngineError> {
        if work.ploidy.is_some() {
            let message = "Mutect2 takes no ploidy: tumours have any; leave --ploidy out".to_owned();
            return Err(EngineError::Arguments { message });
        }
        let mut command = self.toolkit.command("Mutect2", work.memory_bytes, work.directory);
        command.args(work.reads.iter().flat_map(|input| [OsStr::new("-I"), input.as_os_str()]));
        if let Some(normal) = work.normal {
            command.arg("-I").arg(normal.reads).args(["-normal", normal.sample]);
        }
        tell(&mut command, work)?;
        command.args(["--native-pair-hmm-threads", &work.threads.to_string()]);
        command.args(&self.arguments).arg("-O").arg(work.output);
        self.toolkit.start(command)
    }
}
