//! GATK HaplotypeCaller: VCF, or GVCF with `-ERC GVCF`.
//!
//! Where active regions begin depends on where it starts, so some numbers of records depend on the
//! grid; sites and genotypes do not, given some bases on either side. A GVCF has a record for every stretch,
//! which ends where the region does, so nothing is shown beyond it then, as those who scatter GATK do.

use std::ffi::OsStr;
use std::process::Command;

use super::region::Told;
use super::{Caller, Habits, RegionWork, words};
use crate::gatk::{PROGRAM, Toolkit};
use crate::{Chain, EngineError};

const SET_HERE: &str = "it is set by godwit call";
/// What no tool of GATK takes from the user.
pub(super) const REFUSED: [(&str, &str); 15] = [
    ("-O", SET_HERE),
    ("--output", SET_HERE),
    ("-R", SET_HERE),
    ("--reference", SET_HERE),
    ("-L", "use --regions"),
    ("--intervals", "use --regions"),
    ("-XL", "use --regions"),
    ("--exclude-intervals", "use --regions"),
    ("-ip", "use --padding"),
    ("--interval-padding", "use --padding"),
    ("-ixp", "use --padding"),
    ("--interval-exclusion-padding", "use --padding"),
    ("--tmp-dir", "use --temp"),
    ("--create-output-variant-index", SET_HERE),
    ("--java-options", "use --caller-memory for its heap"),
];
/// And what none takes that calls from reads.
pub(super) const REFUSED_WITH_READS: [(&str, &str); 7] = [
    ("-I", SET_HERE),
    ("--input", SET_HERE),
    ("-bamout", "it would be written by every region"),
    ("--bam-output", "it would be written by every region"),
    ("-ploidy", "use --ploidy"),
    ("--sample-ploidy", "use --ploidy"),
    ("--native-pair-hmm-threads", "use --caller-threads"),
];

/// GATK, found, with its options.
#[derive(Clone, Debug)]
pub struct Gatk {
    toolkit: Toolkit,
    arguments: Vec<String>,
    blocks: bool,
}

impl Gatk {
    /// Finds GATK and Java and reads options of HaplotypeCaller.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find(arguments: &str) -> Result<Self, EngineError> {
        let arguments = words("HaplotypeCaller", arguments, &[&REFUSED, &REFUSED_WITH_READS])?;
        let blocks = arguments.iter().any(|word| {
            let value = word.rsplit('=').next().unwrap_or(word);
            matches!(value, "GVCF" | "BP_RESOLUTION")
        });
        Ok(Self { toolkit: Toolkit::find()?, arguments, blocks })
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

    fn habits(&self) -> Habits {
        let padding_bases = if self.blocks { 0 } else { Habits::USUAL.padding_bases };
        Habits { padding_bases, blocks: self.blocks, region_alone: true, ..Toolkit::HABITS }
    }

    fn start(&self, work: &RegionWork) -> Result<Chain, EngineError> {
        if self.blocks && work.reads.len() > 1 {
            let message = "a GVCF is of one sample: call each by itself, then all of them with --gvcfs".to_owned();
            return Err(EngineError::Arguments { message });
        }
        let mut command = self.toolkit.command("HaplotypeCaller", work.memory_bytes, work.directory);
        command.args(work.reads.iter().flat_map(|input| [OsStr::new("-I"), input.as_os_str()]));
        tell(&mut command, work)?;
        if let Some(ploidy) = work.ploidy {
            command.args(["--sample-ploidy", &ploidy.to_string()]);
        }
        command.args(["--native-pair-hmm-threads", &work.threads.to_string()]);
        command.args(&self.arguments).arg("-O").arg(work.output);
        self.toolkit.start(command)
    }
}

/// Says reference and region, and that nobody needs an index of what is written.
pub(super) fn tell(command: &mut Command, work: &RegionWork) -> Result<(), EngineError> {
    command.arg("-R").arg(work.reference);
    match work.told()? {
        Told::Words(region) => command.args(["-L", &region.title()]),
        Told::Bed(path) => command.arg("-L").arg(path),
    };
    command.args(["--create-output-variant-index", "false"]);
    Ok(())
}
