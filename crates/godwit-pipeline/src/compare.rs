//! Call sets against a truth set: what was found, what was missed, what is false.
//!
//! Flows in: VCF files of one sample each, or one named. Flows out: counts for SNPs and indels ([`Comparison`]). What is
//! compared is one alternate allele at a time: place, reference and alternate bases after `bcftools norm` has taken compound changes apart
//! and moved indels to the left, and how many copies of it the genotype has. A haplotype written in a way that this does
//! not make the same counts as missed and as false; see `docs/guide/compare.md`.

mod call_set;
mod normalize;
mod reference;
mod regions;
mod tally;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::Serialize;

pub use call_set::Records;
pub use tally::{Accuracy, Changes, Classes};

use crate::error::PipelineError;
use call_set::CallSet;
use reference::IndexedReference;
use regions::Regions;

/// What to compare, and how.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// The call set to judge.
    pub calls: PathBuf,
    /// The truth.
    pub truth: PathBuf,
    /// Another call set, to tell what the first one gained and lost against it.
    pub baseline: Option<PathBuf>,
    /// BED: only what lies in one of its regions counts.
    pub confident: Option<PathBuf>,
    /// FASTA: indels are moved to the left on it.
    pub reference: Option<PathBuf>,
    /// The sample in files that have several.
    pub sample: Option<String>,
    /// Compare records that a filter failed, too.
    pub all_records: bool,
    /// An allele is found whatever its genotype; files may have no samples.
    pub ignore_genotypes: bool,
    /// Directory for files of a moment; `None`: the system's.
    pub temp: Option<PathBuf>,
    /// Threads that decompress.
    pub threads: usize,
}

/// The outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The call set.
    pub calls: Judged,
    /// The other call set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Judged>,
    /// What the first has and the other has not, and the other way round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Classes<Changes>>,
    /// The truth.
    pub truth: Source,
    /// Whether any genotype was right.
    pub genotypes_ignored: bool,
    /// Whether indels were moved to the left: a reference was given.
    pub left_aligned: bool,
    /// Bases of the confident regions, overlaps once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confident_bases: Option<u64>,
    /// Version of bcftools.
    pub bcftools: String,
}

/// A file and what was read of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// The sample; `None` where the file has none.
    pub sample: Option<String>,
    /// Records by what became of them.
    #[serde(flatten)]
    pub records: Records,
}

/// A call set with its counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The file.
    #[serde(flatten)]
    pub source: Source,
    /// What is right and wrong.
    #[serde(flatten)]
    pub accuracy: Classes<Accuracy>,
}

/// Names of contigs, shared by all files of a comparison.
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
/// [`PipelineError::Vcf`], [`PipelineError::Bed`], [`PipelineError::Fasta`]; [`PipelineError::Incomparable`] where the files speak of different
/// contigs or nothing is left to compare; [`PipelineError::Options`] for a sample that is not there;
/// [`PipelineError::Engine`] from bcftools.
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
        Some(path) => Some(Regions::read(path, &mut contigs)?),
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
            set.keep(|allele| regions.contain(allele));
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
    let changes = baseline.as_ref().map(|baseline| tally::changes(&calls, baseline, &truth));
    let judged = |set: CallSet| Judged { accuracy: tally::accuracy(&set, &truth), source: set.into_source() };
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

/// Refuses files that have not one contig in common.
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
        true => "the names differ in \"chr\": rename those of one file, as with `bcftools annotate --rename-chrs`",
        false => "are they of the same genome?",
    };
    let problem = format!(
        "{} and {} have no contig in common: one is about {}, the other about {}; {remedy}",
        path.display(),
        other.display(),
        first(names),
        first(expected)
    );
    PipelineError::Incomparable { problem }
}
