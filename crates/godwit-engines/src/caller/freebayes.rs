//! freebayes.
//!
//! It joins neighbouring variants into one record and carries numbers along from site to site, so some of them depend on
//! where it starts; sites and genotypes do not, given some bases on either side.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::region::Told;
use super::{Caller, Habits, RegionWork, output_file, words};
use crate::aligner::foreign::{find_program, version_of};
use crate::{Chain, EngineError, Link, is_at_least};

/// Name of the program.
pub const PROGRAM: &str = "freebayes";
/// How to install it.
pub const REMEDY: &str =
    "install freebayes 1.3 or later (Debian and Ubuntu: apt-get install freebayes; bioconda: freebayes)";
/// Since then it reads CRAM and names regions as it does now.
const OLDEST: [u32; 2] = [1, 3];

const SET_HERE: &str = "it is set by godwit call";
const REFUSED: [(&str, &str); 20] = [
    ("-b", SET_HERE),
    ("--bam", SET_HERE),
    ("-L", SET_HERE),
    ("--bam-list", SET_HERE),
    ("-c", SET_HERE),
    ("--stdin", SET_HERE),
    ("-f", SET_HERE),
    ("--fasta-reference", SET_HERE),
    ("-v", SET_HERE),
    ("--vcf", SET_HERE),
    ("-r", "use --regions"),
    ("--region", "use --regions"),
    ("-t", "use --regions"),
    ("--targets", "use --regions"),
    ("-p", "use --ploidy"),
    ("--ploidy", "use --ploidy of godwit call"),
    ("--gvcf", "its blocks without variants would end where regions do"),
    ("--trace", SET_HERE),
    ("--failed-alleles", SET_HERE),
    ("--cnv-map", "use --ploidy"),
];

/// freebayes, found, with its options.
#[derive(Clone, Debug)]
pub struct Freebayes {
    program: PathBuf,
    version: String,
    arguments: Vec<String>,
}

impl Freebayes {
    /// Finds the program and reads its options.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::VersionMismatch`], [`EngineError::Arguments`].
    pub fn find(arguments: &str) -> Result<Self, EngineError> {
        let arguments = words(PROGRAM, arguments, &[&REFUSED])?;
        let program = find_program(PROGRAM, REMEDY)?;
        let version = version_of(&program).unwrap_or_default();
        if !is_at_least(&version, OLDEST) {
            let expected = format!("{}.{} or later", OLDEST[0], OLDEST[1]);
            return Err(EngineError::VersionMismatch { program, component: PROGRAM, expected, found: version });
        }
        Ok(Self { program, version, arguments })
    }
}

impl Caller for Freebayes {
    fn name(&self) -> &str {
        PROGRAM
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn command_line(&self) -> String {
        [&[PROGRAM.to_owned()], &self.arguments[..]].concat().join(" ")
    }

    fn habits(&self) -> Habits {
        // 1.3.6 tells that the reference is compressed only when it has started.
        Habits { memory_bytes: 1 << 30, reads_bgzf_reference: false, ..Habits::USUAL }
    }

    fn start(&self, work: &RegionWork) -> Result<Chain, EngineError> {
        let mut command = Command::new(&self.program);
        command.arg("-f").arg(work.reference);
        match work.told()? {
            Told::Words(region) => command.args(["-r", &format!("{}:{}-{}", region.contig, region.start, region.end)]),
            Told::Bed(path) => command.arg("-t").arg(path),
        };
        if let Some(ploidy) = work.ploidy {
            command.args(["-p", &ploidy.to_string()]);
        }
        command.args(&self.arguments).args(work.reads);
        let link = Link { program: self.program.clone(), version: self.version.clone(), command };
        Chain::start(vec![link], Stdio::from(output_file(work)?))
    }
}
