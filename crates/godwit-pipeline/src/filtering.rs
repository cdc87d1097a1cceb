//! What is done with joint variants: GATK's recalibration, or its hard filters where there is too little to learn from.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_engines::gatk::{MEMORY_BYTES, Toolkit};
use godwit_engines::variant_filter::{self as gatk, FilterWork, HARD_FILTERS, Kind, Resource};
use godwit_engines::{Chain, EngineError};
use godwit_formats::bgzf;
use godwit_formats::vcf_lines::Reader;
use godwit_formats::with_causes;
use serde::Serialize;

use crate::call::{
    ScannedReference, check_output, complete, contents, index_of, report_path, stage_json, stage_manifest,
};
use crate::error::PipelineError;
use crate::fingerprint::FingerprintKey;
use crate::journal::Fact;
use crate::observer::{Event, Observer, seconds};
use crate::run_report::{InputFile, OutputFile, check_distinct};
use crate::scratch::{ScratchDirectory, unique};
use crate::staging::{Staged, StagedFile};

/// SNPs, and other variants, below which recalibration has too little to learn from. GATK's documentation asks for a whole
/// genome or thirty exomes; VariantRecalibrator itself wants a thousand bad variants.
const ENOUGH: [u64; 2] = [10_000, 2_000];

/// What to filter and how.
#[derive(Clone, Debug)]
pub struct FilterOptions {
    /// The reference.
    pub reference: PathBuf,
    /// A bgzipped VCF of HaplotypeCaller or GenotypeGVCFs, with its index.
    pub variants: PathBuf,
    /// The VCF to write.
    pub out: PathBuf,
    /// Known SNPs to learn from.
    pub snp_resources: Vec<Resource>,
    /// Known indels to learn from.
    pub indel_resources: Vec<Resource>,
    /// Memory of GATK; 4 GiB where `None`.
    pub gatk_memory_bytes: Option<u64>,
    /// Do nothing where the output is there and is of the same input.
    pub resume: bool,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The reference, where it was read before.
    pub scanned: Option<Arc<ScannedReference>>,
}

/// The report of a `filter`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FilterReport {
    /// Version of godwit.
    pub godwit: String,
    /// The verb.
    pub verb: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// Version of GATK.
    pub gatk_version: String,
    /// How the variants were judged, and why so.
    pub how: String,
    /// Files read.
    pub inputs: Vec<InputFile>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
    /// Records written: all that were read.
    pub records: u64,
    /// SNPs among them.
    pub snps: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// The outputs were there already; nothing ran.
    #[serde(skip)]
    pub already_complete: bool,
}

/// Writes variants with their filters and returns the report, which is also in `OUT.run.json`.
///
/// # Errors
/// [`PipelineError`]; the output has no name then.
pub fn filter(
    options: &FilterOptions,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Result<FilterReport, PipelineError> {
    let started = Instant::now();
    let toolkit = Toolkit::find()?;
    let inputs = inputs(options)?;
    check_output(&options.out)?;
    ScannedReference::of_reads(&options.reference, options.scanned.as_ref(), std::iter::empty())?
        .prepare(&options.reference, true)?;
    let corrupt = |problem| PipelineError::Corrupt { path: options.variants.clone(), problem };
    let counts = Counts::of(&options.variants).map_err(corrupt)?;
    let method = counts.method(options);
    let learns = method.learns();
    let how = method.to_string();
    let facts = facts(options, &toolkit, method)?;
    // Outputs of another input are made anew.
    if let Ok(Some(manifest)) = complete(&options.out, options.resume, &facts) {
        return Ok(FilterReport { how, records: manifest.records, already_complete: true, ..FilterReport::default() });
    }
    observer.event(&Event::Stage { name: if learns { "recalibrating variants" } else { "filtering variants" } });
    let scratch = options.out.with_file_name(format!(".godwit-filter-{}", unique()));
    let scratch = ScratchDirectory::create(&scratch).map_err(PipelineError::file("create", &scratch))?;
    let report = FilterReport {
        godwit: env!("CARGO_PKG_VERSION").into(),
        verb: "filter",
        command: options.command.clone(),
        gatk_version: toolkit.version().to_owned(),
        how,
        inputs,
        records: counts.records,
        snps: counts.snps,
        ..FilterReport::default()
    };
    let job = Filtering { options, toolkit, learns, counts, facts, cancelled, started };
    job.run(scratch.path(), report)
}

fn inputs(options: &FilterOptions) -> Result<Vec<InputFile>, PipelineError> {
    let mut inputs = vec![InputFile::of("the reference", &options.reference)?];
    inputs.push(InputFile::of("the variants", &options.variants)?);
    index_of(&options.variants, &["tbi", "csi"], "tabix -p vcf")?;
    // One file may be of both kinds.
    let mut resources: Vec<&Path> =
        options.snp_resources.iter().chain(&options.indel_resources).map(|resource| &*resource.path).collect();
    resources.sort_unstable();
    resources.dedup();
    for resource in resources {
        inputs.push(InputFile::of("the resource", resource)?);
        index_of(resource, &["tbi", "csi", "idx"], "tabix -p vcf")?;
    }
    check_distinct(&inputs, std::slice::from_ref(&options.out))?;
    Ok(inputs)
}

fn facts(options: &FilterOptions, toolkit: &Toolkit, method: FilterMethod) -> Result<Vec<Fact>, PipelineError> {
    let resources = |resources: &[Resource]| -> Result<String, PipelineError> {
        let tags: Vec<&str> = resources.iter().map(|resource| resource.tags.as_str()).collect();
        let files = contents(resources.iter().map(|resource| (&*resource.path, u64::MAX)))?;
        Ok(format!("{}: {files}", tags.join("; ")))
    };
    let filters = HARD_FILTERS.map(|(name, expression)| format!("{name}: {expression}")).join("; ");
    let facts = [
        (FingerprintKey::GatkVersion, toolkit.version().to_owned()),
        (FingerprintKey::Variants, contents([(&*options.variants, u64::MAX)].into_iter())?),
        (FingerprintKey::SnpResource, resources(&options.snp_resources)?),
        (FingerprintKey::IndelResource, resources(&options.indel_resources)?),
        (FingerprintKey::HardFilters, filters),
        (FingerprintKey::FiltersUsed, method.fingerprint_text()),
    ];
    Ok(facts.into_iter().map(|(key, value)| key.fact(value)).collect())
}

/// Records of a VCF.
#[derive(Clone, Copy, Default)]
struct Counts {
    records: u64,
    snps: u64,
}

impl Counts {
    /// Reads a VCF to its end, every line of it checked.
    fn of(path: &Path) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| with_causes(error);
        let input = bgzf::Reader::open(path, 1).map_err(|error| text(&error))?;
        let mut reader = Reader::new(BufReader::new(input)).map_err(|error| text(&error))?;
        let mut counts = Self::default();
        while let Some(record) = reader.next_record().map_err(|error| text(&error))? {
            let mut alleles = record.line.split(|byte| *byte == b'\t').skip(3);
            let (reference, others) = (alleles.next().unwrap_or_default(), alleles.next().unwrap_or_default());
            let snp = reference.len() == 1 && others.split(|byte| *byte == b',').all(|allele| allele.len() == 1);
            counts.records += 1;
            counts.snps += u64::from(snp);
        }
        Ok(counts)
    }

    /// Chooses the method for them.
    fn method(self, options: &FilterOptions) -> FilterMethod {
        let (snps, others) = (self.snps, self.records - self.snps);
        match (options.snp_resources.is_empty(), options.indel_resources.is_empty()) {
            (true, true) => FilterMethod::HardFilters(HardFilterReason::NoResources),
            (true, _) | (_, true) => FilterMethod::HardFilters(HardFilterReason::OneResourceKind),
            _ if snps < ENOUGH[0] || others < ENOUGH[1] => {
                FilterMethod::HardFilters(HardFilterReason::TooFewVariants { snps, others })
            }
            _ => FilterMethod::Recalibration { snps, others },
        }
    }
}

/// The method by which variants are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterMethod {
    /// GATK's recalibration, which learns from so many variants.
    Recalibration { snps: u64, others: u64 },
    /// GATK's hard filters.
    HardFilters(HardFilterReason),
}

/// A reason not to use recalibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HardFilterReason {
    NoResources,
    /// There are resources of SNPs or of indels, not of both.
    OneResourceKind,
    TooFewVariants {
        snps: u64,
        others: u64,
    },
}

impl FilterMethod {
    fn learns(self) -> bool {
        matches!(self, Self::Recalibration { .. })
    }

    /// Writes the text that fingerprints contain, which is that of earlier versions. It is independent of the sentence for users.
    fn fingerprint_text(self) -> String {
        let why = match self {
            Self::Recalibration { snps, others } => {
                return format!("GATK's variant recalibration, from {snps} SNPs and {others} other variants");
            }
            Self::HardFilters(HardFilterReason::NoResources) => "there are no resources to learn from".to_owned(),
            Self::HardFilters(HardFilterReason::OneResourceKind) => {
                "there are resources for one of SNPs and indels only".to_owned()
            }
            Self::HardFilters(HardFilterReason::TooFewVariants { snps, others }) => format!(
                "{snps} SNPs and {others} other variants are too few to learn from, which takes {} and {}",
                ENOUGH[0], ENOUGH[1]
            ),
        };
        format!("GATK's hard filters, not variant recalibration: {why}")
    }
}

impl std::fmt::Display for FilterMethod {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match self {
            Self::Recalibration { snps, others } => {
                return write!(formatter, "GATK's variant recalibration, from {snps} SNPs and {others} other variants");
            }
            Self::HardFilters(HardFilterReason::NoResources) => "there are no resources to learn from".to_owned(),
            Self::HardFilters(HardFilterReason::OneResourceKind) => {
                "there are resources for one of SNPs and indels only".to_owned()
            }
            Self::HardFilters(HardFilterReason::TooFewVariants { snps, others }) => format!(
                "{snps} SNPs and {others} other variants are too few to learn from, which takes {} and {}",
                ENOUGH[0], ENOUGH[1]
            ),
        };
        write!(formatter, "GATK's hard filters, not variant recalibration: {why}")
    }
}

/// What is to be done, once it is known to make sense.
struct Filtering<'f> {
    options: &'f FilterOptions,
    toolkit: Toolkit,
    learns: bool,
    counts: Counts,
    facts: Vec<Fact>,
    cancelled: &'f AtomicBool,
    started: Instant,
}

impl Filtering<'_> {
    fn run(&self, scratch: &Path, mut report: FilterReport) -> Result<FilterReport, PipelineError> {
        let out = &self.options.out;
        let scratch = scratch.canonicalize().map_err(PipelineError::file("use", scratch))?;
        let aside = scratch.join("filtered.vcf.gz");
        let chain = self.judge(&scratch, &aside)?;
        let wrong = |problem: String| PipelineError::from(chain.wrong_output(format!("what it wrote: {problem}")));
        let (records, taken) = (Counts::of(&aside).map_err(wrong)?.records, self.counts.records);
        if records != taken {
            return Err(wrong(format!("{records} of {taken} records came through")));
        }
        let index = |vcf: &Path| PathBuf::from(format!("{}.tbi", vcf.display()));
        let mut staged = Staged::default();
        copy(&aside, out, &mut staged).map_err(PipelineError::file("write", out))?;
        let name = index(out);
        copy(&index(&aside), &name, &mut staged).map_err(PipelineError::file("write", &name))?;
        stage_manifest("filter", out, records, &self.facts, &mut staged)?;
        report.outputs = OutputFile::of(&staged);
        report.seconds = seconds(self.started.elapsed());
        stage_json(&mut staged, &report_path(out), &report)?;
        staged.publish().map_err(|(path, source)| PipelineError::File { action: "name", path, source })?;
        Ok(report)
    }

    /// Has GATK write the variants with their filters; returns the program that did, which has ended.
    fn judge(&self, scratch: &Path, out: &Path) -> Result<Chain, PipelineError> {
        let Self { options, toolkit, .. } = self;
        let memory_bytes = options.gatk_memory_bytes.unwrap_or(MEMORY_BYTES);
        let work = FilterWork { reference: &options.reference, directory: scratch, memory_bytes };
        if !self.learns {
            return self.finished(gatk::hard(toolkit, &work, &options.variants, out));
        }
        let kinds = [(Kind::Indel, &options.indel_resources), (Kind::Snp, &options.snp_resources)];
        for (kind, resources) in kinds {
            self.finished(gatk::learn(toolkit, &work, kind, &options.variants, resources))?;
        }
        let between = scratch.join("indels.vcf.gz");
        self.finished(gatk::apply(toolkit, &work, Kind::Indel, &options.variants, &between))?;
        self.finished(gatk::apply(toolkit, &work, Kind::Snp, &between, out))
    }

    fn finished(&self, started: Result<Chain, EngineError>) -> Result<Chain, PipelineError> {
        let stop = || self.cancelled.load(Ordering::Relaxed);
        let chain = started?;
        chain.wait(stop).map_err(|error| if stop() { PipelineError::Interrupted } else { error.into() })?;
        Ok(chain)
    }
}

fn copy(from: &Path, to: &Path, staged: &mut Staged) -> io::Result<()> {
    let file = StagedFile::create(to)?;
    io::copy(&mut File::open(from)?, &mut file.file())?;
    file.file().sync_all()?;
    staged.add(file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_in_fingerprints_have_the_bytes_of_earlier_versions() {
        let hard = "GATK's hard filters, not variant recalibration: ";
        for (method, text) in [
            (
                FilterMethod::Recalibration { snps: 12_000, others: 3_000 },
                "GATK's variant recalibration, from 12000 SNPs and 3000 other variants".to_owned(),
            ),
            (
                FilterMethod::HardFilters(HardFilterReason::NoResources),
                format!("{hard}there are no resources to learn from"),
            ),
            (
                FilterMethod::HardFilters(HardFilterReason::OneResourceKind),
                format!("{hard}there are resources for one of SNPs and indels only"),
            ),
            (
                FilterMethod::HardFilters(HardFilterReason::TooFewVariants { snps: 5, others: 6 }),
                format!("{hard}5 SNPs and 6 other variants are too few to learn from, which takes 10000 and 2000"),
            ),
        ] {
            assert_eq!(method.fingerprint_text(), text);
        }
    }
}
