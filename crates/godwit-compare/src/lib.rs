//! Compares variant call sets with a truth set: counts found, missed and false alleles.
//!
//! Input: VCF files with one sample, or with a sample that the user names. Output: counts for SNPs and indels
//! ([`Comparison`]). The unit of comparison is one alternate allele: its position, its reference and alternate bases,
//! and its number of copies in the genotype. Before the comparison, `bcftools norm` splits compound changes and
//! left-aligns indels. Two representations of a haplotype that still differ count as missed and as false; see
//! `docs/guide/compare.md`. [`compare_by_haplotypes`] compares the haplotypes instead.

mod accuracy;
mod accuracy_page;
mod by_haplotypes;
mod call_set;
mod confident_regions;
mod indexed_reference;
mod normalize;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_pipeline::PipelineError;
use serde::Serialize;

pub use accuracy::{Accuracy, BaselineChanges, PerVariantType};
pub use by_haplotypes::compare_by_haplotypes;
use call_set::CallSet;
pub use call_set::VcfRecordCounts;
use confident_regions::ConfidentRegions;
use indexed_reference::IndexedReference;

/// Inputs and options of a comparison.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// VCF of the call set to compare.
    pub calls: PathBuf,
    /// VCF of the truth set.
    pub truth: PathBuf,
    /// VCF of another call set. The comparison counts the alleles that the first call set gained and lost against it.
    pub baseline: Option<PathBuf>,
    /// BED file of confident regions: only alleles in one of these regions count.
    pub confident: Option<PathBuf>,
    /// FASTA file of the reference, on which indels are left-aligned; `None` to skip left-alignment.
    pub reference: Option<PathBuf>,
    /// Name of the sample to compare, for files with several samples.
    pub sample: Option<String>,
    /// True to compare also records that failed a filter.
    pub all_records: bool,
    /// True to ignore genotypes; files without samples are then accepted.
    pub ignore_genotypes: bool,
    /// Directory of temporary files; `None` for the temporary directory of the system.
    pub temp: Option<PathBuf>,
    /// Number of threads for decompression.
    pub threads: usize,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Accuracy of the call set.
    pub calls: CallSetAccuracy,
    /// Accuracy of the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<CallSetAccuracy>,
    /// Differences between the call set and the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<PerVariantType<BaselineChanges>>,
    /// File of the truth set, and counts of its records.
    pub truth: ComparedFile,
    /// True if genotypes were not compared.
    pub genotypes_ignored: bool,
    /// True if a reference was given, so that indels were left-aligned.
    pub left_aligned: bool,
    /// Number of bases in the confident regions; overlaps count once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confident_bases: Option<u64>,
    /// Version of bcftools.
    pub bcftools: String,
}

/// A file, and counts of its records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedFile {
    /// Path of the file.
    pub file: PathBuf,
    /// Name of the sample that was compared; `None` if the file has no samples.
    pub sample: Option<String>,
    /// Counts of the records in the file.
    #[serde(flatten)]
    pub records: VcfRecordCounts,
}

/// A call set with its accuracy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallSetAccuracy {
    /// File of the call set, and counts of its records.
    #[serde(flatten)]
    pub source: ComparedFile,
    /// Accuracy of the call set against the truth set.
    #[serde(flatten)]
    pub accuracy: PerVariantType<Accuracy>,
}

/// Numbers for contig names, shared by all files of a comparison.
#[derive(Debug, Default)]
struct ContigNames {
    names: Vec<String>,
    by_name: HashMap<String, u32>,
}

impl ContigNames {
    fn id(&mut self, name: &str) -> u32 {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), id);
        id
    }

    fn name(&self, id: u32) -> &str {
        &self.names[id as usize]
    }
}

/// Compares one or two call sets with a truth set.
///
/// # Errors
/// [`PipelineError::Vcf`], [`PipelineError::Bed`] or [`PipelineError::Fasta`] for an invalid input file;
/// [`PipelineError::Incomparable`] if the files have different contigs or nothing is left to compare;
/// [`PipelineError::Options`] for a sample that does not exist; [`PipelineError::Engine`] for an error of bcftools.
pub fn compare(options: &CompareOptions, cancelled: &AtomicBool) -> Result<Comparison, PipelineError> {
    let mut contigs = ContigNames::default();
    let mut read = |path: &Path| CallSet::read(path, options, &mut contigs, cancelled);
    let truth = read(&options.truth)?;
    let calls = read(&options.calls)?;
    let baseline = options.baseline.as_deref().map(read).transpose()?;
    for set in [Some(&calls), baseline.as_ref()].into_iter().flatten() {
        check_contigs(set, &truth, &contigs)?;
    }
    let regions = match &options.confident {
        Some(path) => Some(ConfidentRegions::read(path, &mut contigs)?),
        None => None,
    };
    if let Some(regions) = &regions {
        regions.check_contigs(&truth, &contigs)?;
    }
    let reference = match &options.reference {
        Some(path) => Some(IndexedReference::open(path, options.temp.as_deref(), cancelled)?),
        None => None,
    };
    let mut versions = Vec::new();
    let mut normalized = |set: CallSet| {
        let (mut set, version) = normalize::normalize(set, &contigs, reference.as_ref(), cancelled)?;
        versions.push(version);
        if let Some(regions) = &regions {
            set.retain(|allele| regions.contains(allele));
        }
        Ok::<_, PipelineError>(set)
    };
    let (truth, calls) = (normalized(truth)?, normalized(calls)?);
    let baseline = baseline.map(&mut normalized).transpose()?;
    if let Some(path) = options.confident.as_ref().filter(|_| truth.is_empty() && calls.is_empty()) {
        let problem = format!("neither {} nor {}", options.calls.display(), options.truth.display());
        let problem =
            format!("{problem} has a variant in the regions of {}; are they of the same genome?", path.display());
        return Err(PipelineError::Incomparable { problem });
    }
    let changes = baseline.as_ref().map(|baseline| accuracy::count_changes(&calls, baseline, &truth));
    let judged =
        |set: CallSet| CallSetAccuracy { accuracy: accuracy::count_accuracy(&set, &truth), source: set.into_source() };
    Ok(Comparison {
        calls: judged(calls),
        baseline: baseline.map(judged),
        changes,
        truth: truth.into_source(),
        genotypes_ignored: options.ignore_genotypes,
        left_aligned: reference.is_some(),
        confident_bases: regions.map(|regions| regions.bases()),
        bcftools: versions.pop().unwrap_or_default(),
    })
}

/// Rejects a call set that has no contig in common with the truth set.
fn check_contigs(calls: &CallSet, truth: &CallSet, contigs: &ContigNames) -> Result<(), PipelineError> {
    let (found, expected) = (calls.contigs(), truth.contigs());
    if found.is_empty() || expected.is_empty() || found.iter().any(|contig| expected.contains(contig)) {
        return Ok(());
    }
    let names = |ids: &[u32]| ids.iter().map(|id| contigs.name(*id).to_owned()).collect::<Vec<_>>();
    Err(no_contig_in_common(calls.path(), &names(&found), truth.path(), &names(&expected)))
}

fn no_contig_in_common(path: &Path, names: &[String], other: &Path, expected: &[String]) -> PipelineError {
    let first = |names: &[String]| names.first().map_or_else(String::new, |name| format!("{name:?}"));
    let prefixed = |a: &str, b: &str| a.strip_prefix("chr") == Some(b) || (a == "chrM" && b == "MT");
    let by_prefix =
        names.iter().any(|name| expected.iter().any(|other| prefixed(name, other) || prefixed(other, name)));
    let remedy = match by_prefix {
        true => {
            "only one of them has names with \"chr\": rename the contigs of one file, as with `bcftools annotate \
             --rename-chrs`"
        }
        false => "are they of the same genome?",
    };
    let problem = format!(
        "{} and {} have no contig in common: the first has {}, the second has {}; {remedy}",
        path.display(),
        other.display(),
        first(names),
        first(expected)
    );
    PipelineError::Incomparable { problem }
}
