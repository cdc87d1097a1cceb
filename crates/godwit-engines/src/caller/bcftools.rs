//! `bcftools mpileup | bcftools call`.
//!
//! Each position is judged by the reads that cover it. What a read says there may depend on positions before, within its
//! own span (mpileup realigns a read where it first meets an insertion or deletion in the pileup), so a region needs the
//! length of a read before it, and records are then those of one run over everything.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::region::Told;
use super::{Caller, Habits, RegionWork, output_file, words};
use crate::aligner::foreign::version_of;
use crate::locate::locate;
use crate::normalizer::bcftools::PROGRAM_VARIABLE;
use crate::{Chain, EngineError, Link, is_at_least};

/// Name of the program.
pub const PROGRAM: &str = "bcftools";
/// How to install it.
pub const REMEDY: &str =
    "install bcftools 1.13 or later (Debian and Ubuntu: apt-get install bcftools; bioconda: bcftools)";
/// Since then mpileup realigns where it needs to, and not everywhere.
const OLDEST: [u32; 2] = [1, 13];
/// What `call` does where nothing else is said: variants only, by the multiallelic caller.
const CALL: [&str; 1] = ["-mv"];
/// What it can count to.
const MAX_PLOIDY: u8 = 2;

const SET_HERE: &str = "it is set by godwit call";
const BLOCKS: &str = "its blocks without variants would end where regions do";
/// What neither command takes from the user.
const REFUSED: [(&str, &str); 15] = [
    ("-o", SET_HERE),
    ("--output", SET_HERE),
    ("-O", SET_HERE),
    ("--output-type", SET_HERE),
    ("--threads", "regions are called at the same time instead"),
    ("-r", "use --regions"),
    ("--regions", "use --regions of godwit call"),
    ("-R", "use --regions"),
    ("--regions-file", "use --regions of godwit call"),
    ("-t", "use --regions"),
    ("--targets", "use --regions of godwit call"),
    ("-T", "use --regions"),
    ("--targets-file", "use --regions of godwit call"),
    ("-g", BLOCKS),
    ("--gvcf", BLOCKS),
];
const REFUSED_MPILEUP: [(&str, &str); 5] = [
    ("-b", SET_HERE),
    ("--bam-list", SET_HERE),
    ("-f", SET_HERE),
    ("--fasta-ref", SET_HERE),
    ("--no-reference", SET_HERE),
];
const REFUSED_CALL: [(&str, &str); 2] =
    [("--ploidy", "use --ploidy of godwit call"), ("--ploidy-file", "use --ploidy of godwit call")];

/// bcftools, found, with its options.
#[derive(Clone, Debug)]
pub struct Bcftools {
    program: PathBuf,
    version: String,
    mpileup: Vec<String>,
    call: Vec<String>,
}

impl Bcftools {
    /// Finds the program and reads options: those of `mpileup`, and behind a `|` those of `call`, as in
    /// `-q 20 -a AD | -mv -A`.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find(arguments: &str) -> Result<Self, EngineError> {
        let (mpileup, call) = match arguments.split_once('|') {
            Some((mpileup, call)) => (mpileup, Some(call)),
            None => (arguments, None),
        };
        let mpileup = words("bcftools mpileup", mpileup, &[&REFUSED, &REFUSED_MPILEUP])?;
        let call = match call {
            Some(call) => words("bcftools call", call, &[&REFUSED, &REFUSED_CALL])?,
            None => CALL.map(str::to_owned).into(),
        };
        let program = locate(PROGRAM, PROGRAM_VARIABLE)?;
        let version = version_of(&program).unwrap_or_default();
        if !is_at_least(&version, OLDEST) {
            let expected = format!("{}.{} or later", OLDEST[0], OLDEST[1]);
            return Err(EngineError::VersionMismatch { program, component: PROGRAM, expected, found: version });
        }
        Ok(Self { program, version, mpileup, call })
    }
}

impl Caller for Bcftools {
    fn name(&self) -> &str {
        PROGRAM
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn command_line(&self) -> String {
        let joined = |name: &str, words: &[String]| [&["bcftools".into(), name.to_owned()], words].concat().join(" ");
        format!("{} | {}", joined("mpileup", &self.mpileup), joined("call", &self.call))
    }

    fn habits(&self) -> Habits {
        Habits { memory_bytes: 512 << 20, depends_on_grid: false, region_alone: true, ..Habits::USUAL }
    }

    fn start(&self, work: &RegionWork) -> Result<Chain, EngineError> {
        let mut mpileup = Command::new(&self.program);
        mpileup.args(["mpileup", "-Ou", "-f"]).arg(work.reference);
        match work.told()? {
            Told::Words(region) => mpileup.args(["-r", &region.title()]),
            Told::Bed(path) => mpileup.arg("-R").arg(path),
        };
        mpileup.args(&self.mpileup).args(work.reads);
        let mut call = Command::new(&self.program);
        call.args(["call", "-Ov"]);
        if let Some(ploidy) = work.ploidy {
            if !(1..=MAX_PLOIDY).contains(&ploidy) {
                let message = format!("bcftools calls one or two copies, not {ploidy}; use --caller freebayes or gatk");
                return Err(EngineError::Arguments { message });
            }
            call.args(["--ploidy", &ploidy.to_string()]);
        }
        call.args(&self.call);
        let link = |command| Link { program: self.program.clone(), version: self.version.clone(), command };
        Chain::start(vec![link(mpileup), link(call)], Stdio::from(output_file(work)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_the_users_are_refused() {
        for line in ["-r chr1:1-2", "-fx.fa", "-g 5", "-q 20 | -mv --ploidy 1", "| -mvOz -Oz", "--threads=3", "-a 'AD"]
        {
            assert!(matches!(Bcftools::find(line), Err(EngineError::Arguments { .. })), "{line}");
        }
    }
    #[test]
    fn built_in_ploidies_are_those_of_the_program() {
        use godwit_model::PloidyTable;
        for name in ["1", "2", "X", "Y", "GRCh37", "GRCh38"] {
            let Ok(said) = Command::new(PROGRAM).args(["call", "--ploidy", &format!("{name}?")]).output() else {
                eprintln!("bcftools is not installed: nothing to compare with");
                return;
            };
            let text = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
            assert_eq!(PloidyTable::named(name), Some(PloidyTable::parse(&text).unwrap()), "{name}");
        }
    }
}
