//! The variant caller bcftools, run as `bcftools mpileup | bcftools call`.
//!
//! Calls at a position depend on the reads that cover it. Their alignments in the pileup may depend on earlier
//! positions of the same read, because mpileup realigns a read at its first insertion or deletion. With a padding of
//! one read length before a region, the records equal those of a single run over the whole genome.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::region_argument::RegionArgument;
use super::{Caller, CallerInvocation, Capabilities, DEFAULT_PADDING_BASES, create_output_file, split_caller_options};
use crate::bcftools::{PROGRAM, find_program};
use crate::program_lookup::query_program_version;
use crate::refused_options::{RefusedOption, SET_BY_GODWIT};
use crate::{EngineError, PipelineCommand, ProcessPipeline, check_version};

/// The oldest supported version, as major and minor version: since 1.13, mpileup realigns reads only at positions that
/// need it.
const MIN_VERSION: [u32; 2] = [1, 13];
/// Default options of `bcftools call`: write only variants, with the multiallelic caller.
const DEFAULT_CALL_ARGUMENTS: [&str; 1] = ["-mv"];
/// The highest ploidy that bcftools supports.
const MAX_PLOIDY: u8 = 2;

const GVCF_REFUSAL_REASON: &str = "its reference blocks would end at the borders of regions";
/// Options that the user can pass neither to `mpileup` nor to `call`, each with the reason or the alternative.
const REFUSED_OPTIONS: [RefusedOption; 15] = [
    ("-o", SET_BY_GODWIT),
    ("--output", SET_BY_GODWIT),
    ("-O", SET_BY_GODWIT),
    ("--output-type", SET_BY_GODWIT),
    ("--threads", "godwit calls regions in parallel instead"),
    ("-r", "use --regions"),
    ("--regions", "use --regions of godwit call"),
    ("-R", "use --regions"),
    ("--regions-file", "use --regions of godwit call"),
    ("-t", "use --regions"),
    ("--targets", "use --regions of godwit call"),
    ("-T", "use --regions"),
    ("--targets-file", "use --regions of godwit call"),
    ("-g", GVCF_REFUSAL_REASON),
    ("--gvcf", GVCF_REFUSAL_REASON),
];
const REFUSED_MPILEUP_OPTIONS: [RefusedOption; 5] = [
    ("-b", SET_BY_GODWIT),
    ("--bam-list", SET_BY_GODWIT),
    ("-f", SET_BY_GODWIT),
    ("--fasta-ref", SET_BY_GODWIT),
    ("--no-reference", SET_BY_GODWIT),
];
const REFUSED_CALL_OPTIONS: [RefusedOption; 2] =
    [("--ploidy", "use --ploidy of godwit call"), ("--ploidy-file", "use --ploidy of godwit call")];

/// An installed bcftools with the options of the user.
#[derive(Clone, Debug)]
pub struct Bcftools {
    program: PathBuf,
    version: String,
    mpileup_arguments: Vec<String>,
    call_arguments: Vec<String>,
}

impl Bcftools {
    /// Finds bcftools and parses the options of the user: those of `mpileup` and, after a `|`, those of `call`.
    /// Example: `-q 20 -a AD | -mv -A`.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], [`EngineError::VersionMismatch`], and [`EngineError::Arguments`] for a rejected
    /// option.
    pub fn find_installed(arguments: &str) -> Result<Self, EngineError> {
        let (mpileup, call) = match arguments.split_once('|') {
            Some((mpileup, call)) => (mpileup, Some(call)),
            None => (arguments, None),
        };
        let mpileup_arguments =
            split_caller_options("bcftools mpileup", mpileup, &[&REFUSED_OPTIONS, &REFUSED_MPILEUP_OPTIONS])?;
        let call_arguments = match call {
            Some(call) => split_caller_options("bcftools call", call, &[&REFUSED_OPTIONS, &REFUSED_CALL_OPTIONS])?,
            None => DEFAULT_CALL_ARGUMENTS.map(str::to_owned).into(),
        };
        let program = find_program()?;
        let version = query_program_version(&program, &["--version"]).unwrap_or_default();
        check_version(&program, PROGRAM, &version, MIN_VERSION)?;
        Ok(Self { program, version, mpileup_arguments, call_arguments })
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
        format!("{} | {}", joined("mpileup", &self.mpileup_arguments), joined("call", &self.call_arguments))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            padding_bases: DEFAULT_PADDING_BASES,
            memory_bytes: 512 << 20,
            // One number depends on the grid: bcftools 1.16 does not compute INFO/BQBZ for an indel, and writes that of
            // the last earlier position with a mismatch, or 0 if there was none since it started (observed). GT, PL,
            // QUAL and all other fields do not depend on the grid, so the header need not name it.
            depends_on_grid: false,
            writes_reference_blocks: false,
            needs_dictionary: false,
            reads_bgzf_reference: true,
            takes_gvcfs: false,
            takes_tumor_normal_pairs: false,
            takes_region_lists: true,
            depends_on_region_only: true,
            needs_local_scratch: false,
        }
    }

    fn check_ploidy(&self, ploidy: u8) -> Result<(), EngineError> {
        if ploidy <= MAX_PLOIDY {
            return Ok(());
        }
        let message = format!("bcftools supports ploidy 1 and 2, not {ploidy}; use --caller freebayes or gatk");
        Err(EngineError::Arguments { message })
    }

    fn start(&self, work: &CallerInvocation) -> Result<ProcessPipeline, EngineError> {
        let mut mpileup = Command::new(&self.program);
        mpileup.args(["mpileup", "-Ou", "-f"]).arg(work.reference);
        match work.region_argument()? {
            RegionArgument::Text(region) => mpileup.args(["-r", &region.title()]),
            RegionArgument::Bed(path) => mpileup.arg("-R").arg(path),
        };
        mpileup.args(&self.mpileup_arguments).args(work.reads);
        let mut call = Command::new(&self.program);
        call.args(["call", "-Ov"]);
        if let Some(ploidy) = work.ploidy {
            call.args(["--ploidy", &ploidy.to_string()]);
        }
        call.args(&self.call_arguments);
        let link = |command| PipelineCommand { program: self.program.clone(), version: self.version.clone(), command };
        ProcessPipeline::start(vec![link(mpileup), link(call)], Stdio::from(create_output_file(work)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_the_users_are_refused() {
        for line in ["-r chr1:1-2", "-fx.fa", "-g 5", "-q 20 | -mv --ploidy 1", "| -mvOz -Oz", "--threads=3", "-a 'AD"]
        {
            assert!(matches!(Bcftools::find_installed(line), Err(EngineError::Arguments { .. })), "{line}");
        }
    }
    #[test]
    fn built_in_ploidies_are_those_of_the_program() {
        use godwit_model::PloidyTable;
        godwit_tests::needs!("bcftools");
        for name in ["1", "2", "X", "Y", "GRCh37", "GRCh38"] {
            let said = Command::new(PROGRAM).args(["call", "--ploidy", &format!("{name}?")]).output().unwrap();
            let text = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
            assert_eq!(PloidyTable::built_in(name), Some(PloidyTable::parse(&text).unwrap()), "{name}");
        }
    }
}
