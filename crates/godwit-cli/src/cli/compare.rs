//! Options of `godwit compare`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{AccessArgs, CommonArgs, KeyArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct CompareArgs {
    /// Call set to evaluate: VCF (plain, gzip or BGZF), an output directory with one, or grpc+tls://HOST:PORT/PATH
    #[arg(value_name = "CALLS.vcf.gz")]
    pub calls: PathBuf,
    /// Truth set, likewise
    #[arg(value_name = "TRUTH.vcf.gz")]
    pub truth: PathBuf,
    /// Compare haplotypes as RTG vcfeval does, or normalized records; records if --reference is missing
    #[arg(long = "match", value_enum, value_name = "UNIT")]
    pub match_unit: Option<MatchUnitName>,
    /// Count only variants in these regions, BED
    #[arg(long, value_name = "BED", help_heading = THIS_RUN_HEADING)]
    pub confident: Option<PathBuf>,
    /// The reference, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    /// Read only records in these regions: BED, or a region such as chr20:1000-2000
    #[arg(long, value_name = "BED|REGION", help_heading = THIS_RUN_HEADING)]
    pub regions: Option<String>,
    /// Count by type and stratum too: a file of two columns separated by a tab, names and BED files
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN_HEADING)]
    pub stratification: Option<PathBuf>,
    /// Another call set: evaluate it too, and report what CALLS gained and lost against it; compares records
    #[arg(long, value_name = "OTHER.vcf.gz", help_heading = THIS_RUN_HEADING)]
    pub baseline: Option<PathBuf>,
    /// Sample to compare in files with several, or a sample for each file; ALT for all alternate alleles
    #[arg(long, value_name = "CALLS[,TRUTH]", help_heading = THIS_RUN_HEADING)]
    pub sample: Option<String>,
    /// Count an allele as found whatever its genotype; files may have no samples; compares records
    #[arg(long)]
    pub ignore_genotypes: bool,
    /// Ignore genotypes: one shared alternate allele is a match
    #[arg(long)]
    pub squash_ploidy: bool,
    /// Accept variants that overlap in bases which equal the reference
    #[arg(long)]
    pub ref_overlap: bool,
    /// Score of the calls, for the ROC tables: QUAL, INFO.NAME, or the name of a FORMAT field [default: GQ]
    #[arg(long, value_name = "FIELD", help_heading = THIS_RUN_HEADING)]
    pub score: Option<String>,
    /// Form of the VCF files in --out
    #[arg(long, value_enum, value_name = "FORM", requires = "out", help_heading = THIS_RUN_HEADING)]
    pub output_mode: Option<OutputModeName>,
    /// New directory for VCF files with the verdicts, the ROC tables, the summary and a report page
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub out: Option<PathBuf>,
    /// Also compare records that failed a filter
    #[arg(long)]
    pub all_records: bool,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MatchUnitName {
    /// Haplotypes, with the verdicts of RTG vcfeval
    Haplotypes,
    /// Records, after normalization with bcftools
    Records,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputModeName {
    /// True and false calls, and found and missed variants of the truth, in a file each
    Split,
    /// Both files, with the verdict in INFO
    Annotate,
    /// One file with a sample for each side
    Combine,
    /// The intermediate form of the GA4GH benchmarking tools
    Ga4gh,
}

impl CompareArgs {
    /// Returns whether records are compared: by request, or because only that comparison has a given option.
    pub fn compares_records(&self) -> bool {
        match self.match_unit {
            Some(unit) => unit == MatchUnitName::Records,
            None => self.reference.is_none() || self.baseline.is_some() || self.ignore_genotypes,
        }
    }

    /// Returns an option that the comparison does not have.
    pub fn unsupported_option(&self) -> Option<&'static str> {
        let options = match self.compares_records() {
            true => vec![
                (self.regions.is_some(), "--regions"),
                (self.stratification.is_some(), "--stratification"),
                (self.squash_ploidy, "--squash-ploidy"),
                (self.ref_overlap, "--ref-overlap"),
                (self.score.is_some(), "--score"),
                (self.output_mode.is_some(), "--output-mode"),
                (self.out.is_some(), "--out"),
            ],
            false => vec![(self.baseline.is_some(), "--baseline"), (self.ignore_genotypes, "--ignore-genotypes")],
        };
        options.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}
