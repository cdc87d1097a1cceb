//! Filtering of joint variant calls (`godwit filter`): GATK's variant recalibration, or GATK's hard filters if there
//! are too few variants to train on.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_engines::gatk::{DEFAULT_MEMORY_BYTES, GatkToolkit};
use godwit_engines::variant_filter::{self as gatk, FilterInvocation, HARD_FILTERS, TrainingResource, VariantKind};
use godwit_engines::{EngineError, ProcessPipeline};
use godwit_files::{AtomicFile, AtomicSet};
use godwit_formats::vcf::lines::Reader;
use godwit_io::bgzf;
use godwit_model::message_with_causes;
use godwit_pipeline::FingerprintEntry;
use godwit_pipeline::PipelineError;
use godwit_pipeline::fingerprint::FingerprintKey;
use godwit_pipeline::job_report::{InputFile, OutputFile, check_distinct_files};
use godwit_pipeline::observer::{Event, Observer, rounded_seconds};
use godwit_pipeline::scanned_reference::ScannedReference;
use godwit_pipeline::scratch::{ScratchDirectory, unique_name};
use serde::Serialize;

use crate::call::{
    add_json_file, add_manifest, check_output_available, complete_manifest, find_index, report_path,
    sizes_and_checksums,
};

/// Minimum numbers of SNPs and of other variants for GATK's recalibration. For training, GATK's documentation
/// recommends at least one whole genome or 30 exomes. VariantRecalibrator itself fails with fewer than 1,000 bad
/// variants.
const MIN_TRAINING_VARIANTS: [u64; 2] = [10_000, 2_000];

/// Options of [`filter`].
#[derive(Clone, Debug)]
pub struct FilterOptions {
    /// Path of the reference.
    pub reference: PathBuf,
    /// Path of a bgzipped VCF that HaplotypeCaller or GenotypeGVCFs wrote. Its index must be in the same directory.
    pub variants: PathBuf,
    /// Path of the VCF to write.
    pub out: PathBuf,
    /// Known SNPs on which GATK's recalibration trains.
    pub snp_resources: Vec<TrainingResource>,
    /// Known indels on which GATK's recalibration trains.
    pub indel_resources: Vec<TrainingResource>,
    /// Memory limit of GATK, bytes; `None`: 4 GiB.
    pub gatk_memory_bytes: Option<u64>,
    /// True to do nothing if `out` exists and was made from the same input.
    pub resume: bool,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The scanned reference, if an earlier step of this process scanned it.
    pub scanned_reference: Option<Arc<ScannedReference>>,
}

/// The report of a `godwit filter` job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FilterReport {
    /// Version of godwit.
    pub godwit: String,
    /// The subcommand of godwit, `filter`.
    pub verb: &'static str,
    /// The command line of the job.
    pub command: Vec<String>,
    /// Version of GATK.
    pub gatk_version: String,
    /// The filter method, with the reason for it.
    #[serde(rename = "how")]
    pub method: String,
    /// Files that the job read.
    pub inputs: Vec<InputFile>,
    /// Files that the job wrote.
    pub outputs: Vec<OutputFile>,
    /// Number of VCF records, which is the same in input and output.
    pub records: u64,
    /// Number of SNPs among the records.
    pub snps: u64,
    /// Wall time of the job, seconds.
    pub seconds: f64,
    /// True if complete outputs existed already, so that GATK was not started.
    #[serde(skip)]
    pub already_complete: bool,
}

/// Writes the variants with a FILTER value to `options.out` and returns the report, which is also written to
/// `OUT.run.json`.
///
/// # Errors
/// A [`PipelineError`], in which case no output is published.
pub fn filter(
    options: &FilterOptions,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Result<FilterReport, PipelineError> {
    let started_at = Instant::now();
    let toolkit = GatkToolkit::find_installed()?;
    let inputs = inspect_inputs(options)?;
    check_output_available(&options.out)?;
    ScannedReference::scan_for_headers(&options.reference, options.scanned_reference.as_ref(), std::iter::empty())?
        .write_indexes(&options.reference, true)?;
    let corrupt = |problem| PipelineError::Corrupt { path: options.variants.clone(), problem };
    let counts = VariantCounts::read_vcf(&options.variants).map_err(corrupt)?;
    let method = counts.method(options);
    let recalibrates = method.learns();
    let how = method.to_string();
    let fingerprint = filter_fingerprint(options, &toolkit, method)?;
    // Outputs that were made from another input, or with other options, are overwritten.
    if let Ok(Some(manifest)) = complete_manifest(&options.out, options.resume, &fingerprint) {
        return Ok(FilterReport {
            method: how,
            records: manifest.records,
            already_complete: true,
            ..FilterReport::default()
        });
    }
    observer.event(&Event::Stage { name: if recalibrates { "recalibrating variants" } else { "filtering variants" } });
    let scratch = options.out.with_file_name(format!(".godwit-filter-{}", unique_name()));
    let scratch = ScratchDirectory::create(&scratch).map_err(PipelineError::file("create", &scratch))?;
    let report = FilterReport {
        godwit: env!("CARGO_PKG_VERSION").into(),
        verb: "filter",
        command: options.command.clone(),
        gatk_version: toolkit.version().to_owned(),
        method: how,
        inputs,
        records: counts.records,
        snps: counts.snps,
        ..FilterReport::default()
    };
    let job = FilterJob { options, toolkit, recalibrates, counts, fingerprint, cancelled, started_at };
    job.run(scratch.path(), report)
}

fn inspect_inputs(options: &FilterOptions) -> Result<Vec<InputFile>, PipelineError> {
    let mut inputs = vec![InputFile::inspect("the reference", &options.reference)?];
    inputs.push(InputFile::inspect("the variants", &options.variants)?);
    find_index(&options.variants, &["tbi", "csi"], "tabix -p vcf")?;
    // The same file may be a training resource for SNPs and for indels.
    let mut resources: Vec<&Path> =
        options.snp_resources.iter().chain(&options.indel_resources).map(|resource| &*resource.path).collect();
    resources.sort_unstable();
    resources.dedup();
    for resource in resources {
        inputs.push(InputFile::inspect("the resource", resource)?);
        find_index(resource, &["tbi", "csi", "idx"], "tabix -p vcf")?;
    }
    check_distinct_files(&inputs, std::slice::from_ref(&options.out))?;
    Ok(inputs)
}

fn filter_fingerprint(
    options: &FilterOptions,
    toolkit: &GatkToolkit,
    method: FilterMethod,
) -> Result<Vec<FingerprintEntry>, PipelineError> {
    let resources = |resources: &[TrainingResource]| -> Result<String, PipelineError> {
        let tags: Vec<&str> = resources.iter().map(|resource| resource.tags.as_str()).collect();
        let files = sizes_and_checksums(resources.iter().map(|resource| (&*resource.path, u64::MAX)))?;
        Ok(format!("{}: {files}", tags.join("; ")))
    };
    let filters = HARD_FILTERS.map(|(name, expression)| format!("{name}: {expression}")).join("; ");
    let entries = [
        (FingerprintKey::GatkVersion, toolkit.version().to_owned()),
        (FingerprintKey::Variants, sizes_and_checksums([(&*options.variants, u64::MAX)].into_iter())?),
        (FingerprintKey::SnpResource, resources(&options.snp_resources)?),
        (FingerprintKey::IndelResource, resources(&options.indel_resources)?),
        (FingerprintKey::HardFilters, filters),
        (FingerprintKey::FiltersUsed, method.fingerprint_text()),
    ];
    Ok(entries.into_iter().map(|(key, value)| key.entry(value)).collect())
}

/// Numbers of records in a VCF.
#[derive(Clone, Copy, Default)]
struct VariantCounts {
    records: u64,
    snps: u64,
}

impl VariantCounts {
    /// Counts the records of a VCF. Checks every line up to the end of the file.
    fn read_vcf(path: &Path) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| message_with_causes(error);
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

    /// Selects the filter method for these numbers of variants and the given training resources.
    fn method(self, options: &FilterOptions) -> FilterMethod {
        let (snps, others) = (self.snps, self.records - self.snps);
        match (options.snp_resources.is_empty(), options.indel_resources.is_empty()) {
            (true, true) => FilterMethod::HardFilters(HardFilterReason::NoResources),
            (true, _) | (_, true) => FilterMethod::HardFilters(HardFilterReason::OneResourceKind),
            _ if snps < MIN_TRAINING_VARIANTS[0] || others < MIN_TRAINING_VARIANTS[1] => {
                FilterMethod::HardFilters(HardFilterReason::TooFewVariants { snps, others })
            }
            _ => FilterMethod::Recalibration { snps, others },
        }
    }
}

/// The method by which variants are filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterMethod {
    /// GATK's variant recalibration, with the numbers of SNPs and of other variants on which it trains.
    Recalibration { snps: u64, others: u64 },
    /// GATK's hard filters.
    HardFilters(HardFilterReason),
}

/// The reason why hard filters are used instead of recalibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HardFilterReason {
    NoResources,
    /// Training resources are given for SNPs only or for indels only.
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

    /// Returns the text for fingerprints. It must stay as earlier versions wrote it, while the `Display` text for users
    /// may change.
    fn fingerprint_text(self) -> String {
        let why = match self {
            Self::Recalibration { snps, others } => {
                return format!("GATK's variant recalibration, from {snps} SNPs and {others} other variants");
            }
            Self::HardFilters(HardFilterReason::NoResources) => "no resources are given to train the model".to_owned(),
            Self::HardFilters(HardFilterReason::OneResourceKind) => {
                "resources are given only for SNPs or only for indels".to_owned()
            }
            Self::HardFilters(HardFilterReason::TooFewVariants { snps, others }) => format!(
                "{snps} SNPs and {others} other variants are too few to train the model, which requires {} and {}",
                MIN_TRAINING_VARIANTS[0], MIN_TRAINING_VARIANTS[1]
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
            Self::HardFilters(HardFilterReason::NoResources) => "no resources are given to train the model".to_owned(),
            Self::HardFilters(HardFilterReason::OneResourceKind) => {
                "resources are given only for SNPs or only for indels".to_owned()
            }
            Self::HardFilters(HardFilterReason::TooFewVariants { snps, others }) => format!(
                "{snps} SNPs and {others} other variants are too few to train the model, which requires {} and {}",
                MIN_TRAINING_VARIANTS[0], MIN_TRAINING_VARIANTS[1]
            ),
        };
        write!(formatter, "GATK's hard filters, not variant recalibration: {why}")
    }
}

/// A filter job whose inputs are checked.
struct FilterJob<'f> {
    options: &'f FilterOptions,
    toolkit: GatkToolkit,
    recalibrates: bool,
    counts: VariantCounts,
    fingerprint: Vec<FingerprintEntry>,
    cancelled: &'f AtomicBool,
    started_at: Instant,
}

impl FilterJob<'_> {
    fn run(&self, scratch: &Path, mut report: FilterReport) -> Result<FilterReport, PipelineError> {
        let out = &self.options.out;
        let scratch = scratch.canonicalize().map_err(PipelineError::file("use", scratch))?;
        let filtered = scratch.join("filtered.vcf.gz");
        let chain = self.run_gatk(&scratch, &filtered)?;
        let wrong = |problem: String| PipelineError::from(chain.output_error(format!("its output: {problem}")));
        let (records, taken) = (VariantCounts::read_vcf(&filtered).map_err(wrong)?.records, self.counts.records);
        if records != taken {
            return Err(wrong(format!("{records} of {taken} records were written")));
        }
        let index = |vcf: &Path| PathBuf::from(format!("{}.tbi", vcf.display()));
        let mut staged = AtomicSet::default();
        copy_to_output(&filtered, out, &mut staged).map_err(PipelineError::file("write", out))?;
        let name = index(out);
        copy_to_output(&index(&filtered), &name, &mut staged).map_err(PipelineError::file("write", &name))?;
        add_manifest("filter", out, records, &self.fingerprint, &mut staged)?;
        report.outputs = OutputFile::from_files(&staged);
        report.seconds = rounded_seconds(self.started_at.elapsed());
        add_json_file(&mut staged, &report_path(out), &report)?;
        staged.publish().map_err(|(path, source)| PipelineError::File { action: "publish", path, source })?;
        Ok(report)
    }

    /// Runs GATK, which writes the filtered variants to `out`. Returns the last GATK process after it has ended.
    fn run_gatk(&self, scratch: &Path, out: &Path) -> Result<ProcessPipeline, PipelineError> {
        let Self { options, toolkit, .. } = self;
        let memory_bytes = options.gatk_memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES);
        let work = FilterInvocation { reference: &options.reference, directory: scratch, memory_bytes };
        if !self.recalibrates {
            return self.wait_for_chain(gatk::start_hard_filtering(toolkit, &work, &options.variants, out));
        }
        let kinds = [(VariantKind::Indel, &options.indel_resources), (VariantKind::Snp, &options.snp_resources)];
        for (kind, resources) in kinds {
            self.wait_for_chain(gatk::start_variant_recalibrator(toolkit, &work, kind, &options.variants, resources))?;
        }
        let between = scratch.join("indels.vcf.gz");
        self.wait_for_chain(gatk::start_apply_vqsr(toolkit, &work, VariantKind::Indel, &options.variants, &between))?;
        self.wait_for_chain(gatk::start_apply_vqsr(toolkit, &work, VariantKind::Snp, &between, out))
    }

    fn wait_for_chain(&self, started: Result<ProcessPipeline, EngineError>) -> Result<ProcessPipeline, PipelineError> {
        let stop = || self.cancelled.load(Ordering::Relaxed);
        let chain = started?;
        chain.wait(stop).map_err(|error| if stop() { PipelineError::Interrupted } else { error.into() })?;
        Ok(chain)
    }
}

fn copy_to_output(from: &Path, to: &Path, staged: &mut AtomicSet) -> io::Result<()> {
    let file = AtomicFile::create(to)?;
    io::copy(&mut File::open(from)?, &mut file.file())?;
    staged.add(file)
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
                format!("{hard}no resources are given to train the model"),
            ),
            (
                FilterMethod::HardFilters(HardFilterReason::OneResourceKind),
                format!("{hard}resources are given only for SNPs or only for indels"),
            ),
            (
                FilterMethod::HardFilters(HardFilterReason::TooFewVariants { snps: 5, others: 6 }),
                format!(
                    "{hard}5 SNPs and 6 other variants are too few to train the model, which requires 10000 and 2000"
                ),
            ),
        ] {
            assert_eq!(method.fingerprint_text(), text);
        }
    }
}
