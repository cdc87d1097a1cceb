//! Arguments and capabilities that all callers in GATK share: HaplotypeCaller, Mutect2 and GenotypeGVCFs.

use std::process::Command;

use super::region_argument::RegionArgument;
use super::{CallerInvocation, Capabilities, DEFAULT_PADDING_BASES};
use crate::EngineError;
use crate::gatk::DEFAULT_MEMORY_BYTES;
use crate::refused_options::{RefusedOption, SET_BY_GODWIT};

/// Options that the user cannot pass to any GATK tool, each with the reason or the alternative.
pub(super) const REFUSED_GATK_OPTIONS: [RefusedOption; 15] = [
    ("-O", SET_BY_GODWIT),
    ("--output", SET_BY_GODWIT),
    ("-R", SET_BY_GODWIT),
    ("--reference", SET_BY_GODWIT),
    ("-L", "use --regions"),
    ("--intervals", "use --regions"),
    ("-XL", "use --regions"),
    ("--exclude-intervals", "use --regions"),
    ("-ip", "use --padding"),
    ("--interval-padding", "use --padding"),
    ("-ixp", "use --padding"),
    ("--interval-exclusion-padding", "use --padding"),
    ("--tmp-dir", "use --temp"),
    ("--create-output-variant-index", SET_BY_GODWIT),
    ("--java-options", "set the heap with --caller-memory"),
];
/// Options that the user cannot pass to a GATK tool that calls variants from reads, each with the reason or the
/// alternative.
pub(super) const REFUSED_READ_OPTIONS: [RefusedOption; 7] = [
    ("-I", SET_BY_GODWIT),
    ("--input", SET_BY_GODWIT),
    ("-bamout", "the process of every region would write this file"),
    ("--bam-output", "the process of every region would write this file"),
    ("-ploidy", "use --ploidy"),
    ("--sample-ploidy", "use --ploidy"),
    ("--native-pair-hmm-threads", "use --caller-threads"),
];

/// The capabilities that all callers in GATK share.
pub(super) const GATK_CAPABILITIES: Capabilities = Capabilities {
    padding_bases: DEFAULT_PADDING_BASES,
    memory_bytes: DEFAULT_MEMORY_BYTES,
    depends_on_grid: true,
    writes_reference_blocks: false,
    needs_dictionary: true,
    reads_bgzf_reference: true,
    takes_gvcfs: false,
    takes_tumor_normal_pairs: false,
    takes_region_lists: true,
    depends_on_region_only: false,
    needs_local_scratch: false,
};

/// Adds the options for the reference, the region and the output file, and the option that disables the output index.
pub(super) fn add_region_arguments(command: &mut Command, work: &CallerInvocation) -> Result<(), EngineError> {
    command.arg("-R").arg(work.reference);
    match work.region_argument()? {
        RegionArgument::Text(region) => command.args(["-L", &region.title()]),
        RegionArgument::Bed(path) => command.arg("-L").arg(path),
    };
    command.args(["--create-output-variant-index", "false"]);
    Ok(())
}
