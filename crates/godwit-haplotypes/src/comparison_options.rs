//! Options of a comparison, with the defaults of vcfeval.

use std::path::PathBuf;

/// Maximum number of paths that a search stores, like `max-paths` of vcfeval.
pub const MAX_PATHS: usize = 50_000;
/// Maximum number of steps of a search since only one path was left, as vcfeval's `max-iterations`.
pub const MAX_ITERATIONS: u64 = 10_000_000;
/// Maximum number of bases of an allele, as vcfeval's `--Xmax-length`.
pub const MAX_ALLELE_BASES: usize = 1000;
/// Distance in bases of a local match, as vcfeval's `--Xloose-match-distance`.
pub const LOCAL_MATCH_BASES: i32 = 30;

/// Minimum number of records that are compared at once: about 10 MB of variants and states.
const SEGMENT_RECORDS: usize = 1 << 15;

/// Inputs and options of a comparison by haplotypes.
#[derive(Clone, Debug)]
pub struct HaplotypeOptions {
    /// VCF of the call set to compare.
    pub calls: PathBuf,
    /// VCF of the truth set, in vcfeval's words the baseline.
    pub truth: PathBuf,
    /// FASTA file of the reference.
    pub reference: PathBuf,
    /// BED file of confident regions: variants outside of them take part in the search, but do not count.
    pub confident: Option<PathBuf>,
    /// Target regions, as a BED file or a list such as `chr1:1000-2000,chrX`. Records outside of these regions are not
    /// read.
    pub regions: Option<String>,
    /// File of the names and BED files of strata, for counts by stratum, as hap.py's `--stratification`.
    pub stratification: Option<PathBuf>,
    /// Sample of the call set; `None` if the file has a single sample.
    pub calls_sample: SampleChoice,
    /// Sample of the truth set; `None` if the file has a single sample.
    pub truth_sample: SampleChoice,
    /// True to compare also records that failed a filter.
    pub all_records: bool,
    /// True to ignore genotypes: variants match if they share an alternate allele.
    pub squash_ploidy: bool,
    /// True to accept variants that overlap in bases which equal the reference.
    pub ref_overlap: bool,
    /// Score of a call, by which the tables of the ROC are sorted; `None` for no tables.
    pub score: Option<ScoreField>,
    /// True to sort scores ascending, so that low scores are good scores.
    pub ascending_scores: bool,
    /// Subsets of variants with a table each, besides all variants.
    pub subsets: Vec<Subset>,
    /// The files that the comparison writes.
    pub output: OutputMode,
    /// Limits and rules of the search.
    pub rules: SearchRules,
    /// Number of threads. Contigs are compared concurrently; the output does not depend on the number.
    pub threads: usize,
}

impl HaplotypeOptions {
    /// Returns the default options for two call sets and their reference.
    pub fn new(calls: PathBuf, truth: PathBuf, reference: PathBuf) -> Self {
        Self {
            calls,
            truth,
            reference,
            confident: None,
            regions: None,
            stratification: None,
            calls_sample: SampleChoice::Only,
            truth_sample: SampleChoice::Only,
            all_records: false,
            squash_ploidy: false,
            ref_overlap: false,
            score: Some(ScoreField::Format("GQ".to_owned())),
            ascending_scores: false,
            subsets: vec![Subset::Snp, Subset::NonSnp],
            output: OutputMode::Split,
            rules: SearchRules::default(),
            threads: 1,
        }
    }

    /// Returns whether a second search compares the alleles of variants whose genotypes do not match.
    pub(crate) fn has_allele_pass(&self) -> bool {
        !self.squash_ploidy && self.rules.allele_pass.unwrap_or(self.output != OutputMode::Split)
    }
}

/// The sample of a VCF file that a comparison uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SampleChoice {
    /// The only sample of the file.
    #[default]
    Only,
    /// The sample with this name.
    Name(String),
    /// The sample with this name if the file has several samples; otherwise the single sample of the file.
    Preferred(String),
    /// No sample: every alternate allele of a record may be present on every haplotype.
    AllAlternates,
}

impl SampleChoice {
    /// Returns the choice that a name on the command line stands for; `ALT` is [`SampleChoice::AllAlternates`].
    pub fn from_name(name: &str) -> Self {
        if name == "ALT" { Self::AllAlternates } else { Self::Name(name.to_owned()) }
    }
}

/// The field of a call that contains its score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScoreField {
    /// The QUAL column.
    Quality,
    /// An INFO field.
    Info(String),
    /// A FORMAT field of the sample.
    Format(String),
}

impl ScoreField {
    /// Parses `QUAL`, `INFO.NAME`, `FORMAT.NAME`, or the name of a FORMAT field. `None` for another prefix.
    pub fn parse(text: &str) -> Option<Self> {
        let separator = if text.contains('.') { '.' } else { '=' };
        match text.split_once(separator) {
            Some((kind, name)) => match kind.to_ascii_uppercase().as_str() {
                "INFO" => Some(Self::Info(name.to_owned())),
                "FORMAT" => Some(Self::Format(name.to_owned())),
                "QUAL" => Some(Self::Quality),
                _ => None,
            },
            None if text == "QUAL" => Some(Self::Quality),
            None => Some(Self::Format(text.to_owned())),
        }
    }

    /// Returns the label of the score in the tables.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Quality => "QUAL".to_owned(),
            Self::Info(name) => format!("{name} (INFO)"),
            Self::Format(name) => format!("{name} (FORMAT)"),
        }
    }
}

/// A subset of the variants that has its own ROC table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subset {
    /// Substitutions of one base.
    Snp,
    /// All other variants.
    NonSnp,
    /// Substitutions of several bases.
    Mnp,
    /// Insertions, deletions, and both together.
    Indel,
    /// Homozygous genotypes.
    Homozygous,
    /// Heterozygous genotypes.
    Heterozygous,
}

/// The files that a comparison writes, as vcfeval's `--output-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// True and false calls, and found and missed variants of the truth, in a file each.
    Split,
    /// The records of both files with the verdict in INFO.
    Annotate,
    /// One file with a sample for each side.
    Combine,
    /// The intermediate form of the GA4GH benchmarking tools.
    Ga4gh,
    /// Tables only.
    RocOnly,
}

/// The orientations of a phased genotype that the search tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PhaseRule {
    /// Both orientations, as if the genotype were unphased.
    #[default]
    Ignore,
    /// Only the orientation as written.
    Obey,
    /// Only the reversed orientation.
    Invert,
}

/// Preference between two paths that explain the same haplotypes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The path with more variants, counted over calls and truth.
    #[default]
    MostVariants,
    /// Most calls, then fewest variants of the truth.
    MostCallsFewestTruth,
}

/// Limits and rules of the search for the best path. The defaults are those of vcfeval.
#[derive(Clone, Debug)]
pub struct SearchRules {
    /// Maximum number of paths in play.
    pub max_paths: usize,
    /// Maximum number of steps since the last position with only one path.
    pub max_iterations: u64,
    /// Maximum number of bases of an allele; a record with a longer one is not used.
    pub max_allele_bases: usize,
    /// Number of haplotypes of a genotype: 1 to 4.
    pub ploidy: usize,
    /// Phase of the genotypes of the call set.
    pub calls_phase: PhaseRule,
    /// Phase of the genotypes of the truth set.
    pub truth_phase: PhaseRule,
    /// Preference between equal paths.
    pub preference: Preference,
    /// True to discard paths on which variants of the same file cancel each other.
    pub drops_no_ops: bool,
    /// True to represent a missing allele by a special base, which equals no other base.
    pub explicit_unknown_alleles: bool,
    /// True to search for allele matches with one haplotype, false to search with two.
    pub haploid_allele_matching: bool,
    /// True to match alleles after genotypes; `None` to do so in all modes but [`OutputMode::Split`].
    pub allele_pass: Option<bool>,
    /// Distance in bases of a local match; `None` to report none.
    pub local_match_bases: Option<i32>,
    /// Minimum number of records that are compared at once. It bounds memory, and changes no result.
    pub segment_records: usize,
}

impl Default for SearchRules {
    fn default() -> Self {
        Self {
            max_paths: MAX_PATHS,
            max_iterations: MAX_ITERATIONS,
            max_allele_bases: MAX_ALLELE_BASES,
            ploidy: 2,
            calls_phase: PhaseRule::Ignore,
            truth_phase: PhaseRule::Ignore,
            preference: Preference::MostVariants,
            drops_no_ops: true,
            explicit_unknown_alleles: false,
            haploid_allele_matching: true,
            allele_pass: None,
            local_match_bases: Some(LOCAL_MATCH_BASES),
            segment_records: SEGMENT_RECORDS,
        }
    }
}
