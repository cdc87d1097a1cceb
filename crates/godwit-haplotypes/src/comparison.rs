//! The comparison of two files: reads contigs, compares them concurrently, and writes the outputs of their segments in
//! the order of the reference.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use godwit_formats::fasta::FaiRecord;
use godwit_model::RegionError;

use crate::alleles::Template;
use crate::comparison_options::{HaplotypeOptions, SampleChoice, ScoreField, Subset};
use crate::contig_records::ContigRecords;
use crate::error::HaplotypeError;
use crate::evaluation::{Contig, ContigSummary, EvaluationError, EvaluationRules};
use crate::output::{SegmentOutput, compare_contig};
use crate::output_files::OutputFiles;
use crate::reference_file::Reference;
use crate::regions::Regions;
use crate::report::{HaplotypeComparison, ReportBuilder};
use crate::search::{CALLS, SearchError, TRUTH};
use crate::stratification::Stratification;
use crate::vcf_source::{OutOfOrder, VcfSource};

/// Size of the contigs in memory above which no further contig is read. The six largest chromosomes of a human genome fit,
/// with 400,000 short records each on either side.
const MAX_HELD_BYTES: usize = 640 << 20;
/// Subsets of variants that only the report counts, in addition to the subsets with a ROC table.
const REPORT_SUBSETS: [Subset; 4] = [Subset::Snp, Subset::NonSnp, Subset::Indel, Subset::Mnp];

/// Compares a call set with a truth set. Writes the files of the output mode into `directory`, which must exist;
/// `None` to write no files.
///
/// # Errors
/// [`HaplotypeError`] if a file cannot be read or is invalid, or an output file cannot be written.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::atomic::AtomicBool;
///
/// use godwit_haplotypes::{HaplotypeOptions, compare_haplotypes};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = |name: &str| directory.path().join(name);
/// std::fs::write(path("ref.fa"), ">c1\nGATTACAGGGTC\n")?;
/// let header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n";
/// // The same haplotype: two substitutions, or one of two bases.
/// std::fs::write(path("truth.vcf"), format!("{header}c1\t4\t.\tTA\tGC\t.\t.\t.\tGT\t0/1\n"))?;
/// let calls = "c1\t4\t.\tT\tG\t.\t.\t.\tGT\t0/1\nc1\t5\t.\tA\tC\t.\t.\t.\tGT\t0/1\n";
/// std::fs::write(path("calls.vcf"), format!("{header}{calls}"))?;
///
/// let options = HaplotypeOptions::new(path("calls.vcf"), path("truth.vcf"), path("ref.fa"));
/// let comparison = compare_haplotypes(&options, None, &AtomicBool::new(false))?;
/// assert_eq!((comparison.all.found, comparison.all.true_calls, comparison.all.false_calls), (1, 2, 0));
/// # Ok(())
/// # }
/// ```
pub fn compare_haplotypes(
    options: &HaplotypeOptions,
    directory: Option<&Path>,
    cancelled: &AtomicBool,
) -> Result<HaplotypeComparison, HaplotypeError> {
    if !(1..=4).contains(&options.rules.ploidy) {
        return Err(HaplotypeError::Options { problem: "the ploidy must be 1 to 4".to_owned() });
    }
    let reference = Reference::open(&options.reference)?;
    let regions = options.regions.as_deref().map(|text| read_regions(text, &reference)).transpose()?;
    let confident = options.confident.as_deref().map(Regions::read_bed).transpose()?;
    if let (Some(confident), Some(path)) = (&confident, &options.confident) {
        check_regions(confident, &path.display().to_string(), &reference)?;
    }
    let stratification = options.stratification.as_deref().map(Stratification::read).transpose()?.unwrap_or_default();
    if let Some(path) = &options.stratification {
        let has_region = |name: &str| stratification.has_contig(name);
        check_contig_names(has_region, &path.display().to_string(), &reference)?;
    }
    let comparison = Comparison { options, reference, regions, confident, stratification, directory, cancelled };
    match comparison.run(false)? {
        Ok(report) => Ok(report),
        // The contigs of a file are not in the order of the reference, so read both files into memory.
        Err(OutOfOrder) => {
            let incomparable = |problem| HaplotypeError::Incomparable { problem };
            if let Some(path) = [&options.calls, &options.truth].into_iter().find(|path| !path.is_file()) {
                let problem = "is a pipe, and its contigs are not in the order of the reference; write it to a file";
                return Err(incomparable(format!("{} {problem}", path.display())));
            }
            let found = comparison.run(true)?;
            found.map_err(|OutOfOrder| incomparable("the contigs of the files have no common order".to_owned()))
        }
    }
}

/// Reads the target regions: a BED file, or regions as text. Rejects a region that starts after the end of its contig.
fn read_regions(text: &str, reference: &Reference) -> Result<Regions, HaplotypeError> {
    let path = Path::new(text);
    let lengths: HashMap<&str, u64> =
        reference.contigs().iter().map(|contig| (contig.name.as_str(), contig.bases)).collect();
    let contig_bases = |name: &str| lengths.get(name).copied();
    let regions = match path.exists() {
        true => Regions::read_target_bed(path, contig_bases)?,
        false => Regions::parse(text, contig_bases).map_err(|error| HaplotypeError::Options {
            problem: match error {
                RegionError::AfterContigEnd { .. } => format!("--regions: {error}"),
                _ => format!("--regions {text} is not a region ({error}), and no file has this name"),
            },
        })?,
    };
    check_regions(&regions, text, reference)?;
    Ok(regions)
}

fn check_regions(regions: &Regions, name: &str, reference: &Reference) -> Result<(), HaplotypeError> {
    check_contig_names(|contig| regions.has_contig(contig), name, reference)
}

/// Rejects regions of which none is on a contig of the reference.
fn check_contig_names(
    has_region: impl Fn(&str) -> bool,
    name: &str,
    reference: &Reference,
) -> Result<(), HaplotypeError> {
    if reference.contigs().iter().any(|contig| has_region(&contig.name)) {
        return Ok(());
    }
    let problem = format!("{name} has no region on a contig of the reference; are they of the same genome?");
    Err(HaplotypeError::Incomparable { problem })
}

struct Comparison<'c> {
    options: &'c HaplotypeOptions,
    reference: Reference,
    regions: Option<Regions>,
    confident: Option<Regions>,
    stratification: Stratification,
    directory: Option<&'c Path>,
    cancelled: &'c AtomicBool,
}

/// A contig that waits for its comparison, and a part of its result.
type Job = (usize, Contig);
type JobResult = (usize, Result<ContigPart, HaplotypeError>);

/// A part of the result of a contig.
pub(crate) enum ContigPart {
    /// The outputs of the next segment.
    Segment(SegmentOutput),
    /// The end of the contig, with its size in memory.
    End { summary: ContigSummary, bytes: usize },
}

impl Comparison<'_> {
    /// Compares the files. If `holds_all` is true, first reads both files into memory.
    fn run(&self, holds_all: bool) -> Result<Result<HaplotypeComparison, OutOfOrder>, HaplotypeError> {
        let paths = [&self.options.calls, &self.options.truth];
        let open = |path: &Path| VcfSource::open(path, self.regions.as_ref(), self.options.threads.div_ceil(2));
        let mut sources = [open(paths[CALLS])?, open(paths[TRUTH])?];
        let choices: [&SampleChoice; 2] = [&self.options.calls_sample, &self.options.truth_sample];
        let sample = |side: usize| sources[side].header.sample_index(choices[side], paths[side]);
        let samples = [sample(CALLS)?, sample(TRUTH)?];
        if self.options.stratification.is_some() && samples.contains(&None) {
            let problem = "counts by stratum require genotypes; do not name ALT as a sample".to_owned();
            return Err(HaplotypeError::Options { problem });
        }
        if holds_all {
            sources.iter_mut().try_for_each(VcfSource::hold_all)?;
        }
        let (score, subsets, written_subsets) = self.tables(samples);
        let rules = EvaluationRules {
            options: self.options,
            samples,
            score,
            subsets: &subsets,
            confident: self.confident.as_ref(),
            stratification: &self.stratification,
            cancelled: self.cancelled,
        };
        let headers = [&sources[CALLS].header, &sources[TRUTH].header];
        let mut files = OutputFiles::create(self.directory, self.options, headers, self.reference.contigs())?;
        let mut report = ReportBuilder::new(&rules, written_subsets);
        let found = self.compare_contigs(&mut sources, &rules, &mut |contig: &FaiRecord, part: ContigPart| {
            match part {
                ContigPart::Segment(output) => {
                    files.append(contig, &output)?;
                    report.add(&output);
                }
                ContigPart::End { summary, .. } => report.end_contig(&contig.name, summary),
            }
            Ok(())
        })?;
        if found.is_err() {
            return Ok(Err(OutOfOrder));
        }
        self.check_contigs(&sources)?;
        report.set_unknown_contigs(sources.each_ref().map(VcfSource::unknown_contig_records));
        let (report, texts) = report.finish(&rules);
        files.finish(&texts)?;
        Ok(Ok(report))
    }

    /// Returns the score of the tables, their subsets, and the number of subsets with a table in a file.
    fn tables(&self, samples: [Option<usize>; 2]) -> (Option<&ScoreField>, Vec<Subset>, usize) {
        let needs_sample = |score: &&ScoreField| matches!(score, ScoreField::Format(_));
        let score = self.options.score.as_ref();
        let score = score.filter(|score| samples[CALLS].is_some() || !needs_sample(score));
        if samples.contains(&None) {
            return (score, Vec::new(), 0);
        }
        let written = &self.options.subsets;
        let others = REPORT_SUBSETS.into_iter().filter(|subset| !written.contains(subset));
        (score, written.iter().copied().chain(others).collect(), written.len())
    }

    /// Compares all contigs, and calls `collect` with the results in the order of the reference.
    fn compare_contigs(
        &self,
        sources: &mut [VcfSource; 2],
        rules: &EvaluationRules,
        collect: &mut Collect,
    ) -> Result<Result<(), OutOfOrder>, HaplotypeError> {
        let (job_sender, job_receiver) = unbounded::<Job>();
        let (result_sender, result_receiver) = unbounded::<JobResult>();
        let jobs = &job_receiver;
        // Move the sender into the closure: it is dropped when the closure returns early, and the worker threads then
        // end.
        thread::scope(move |scope| {
            for _ in 0..self.options.threads.max(1) {
                let results = result_sender.clone();
                let work = move || self.work(jobs, &results, rules);
                thread::Builder::new()
                    .name("godwit-compare".to_owned())
                    .spawn_scoped(scope, work)
                    .map_err(|source| HaplotypeError::Thread { source })?;
            }
            drop(result_sender);
            let mut collector = Collector {
                contigs: self.reference.contigs(),
                results: result_receiver,
                waiting: BTreeMap::new(),
                next: 0,
                pending: 0,
                held_bytes: 0,
            };
            let found = self.read_contigs(sources, &job_sender, &mut collector, collect);
            drop(job_sender);
            let found = found?;
            if found.is_ok() {
                collector.drain(0, collect)?;
            }
            Ok(found)
        })
    }

    /// Reads contigs and sends them to the workers.
    fn read_contigs(
        &self,
        sources: &mut [VcfSource; 2],
        jobs: &Sender<Job>,
        collector: &mut Collector,
        collect: &mut Collect,
    ) -> Result<Result<(), OutOfOrder>, HaplotypeError> {
        let contigs = self.reference.contigs();
        let numbers = contigs.iter().enumerate().map(|(number, contig)| (contig.name.clone(), number));
        let order: HashMap<String, usize> = numbers.collect();
        for (number, contig) in contigs.iter().enumerate() {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(HaplotypeError::Cancelled);
            }
            let mut records = Vec::with_capacity(2);
            for source in sources.iter_mut() {
                match source.take(&contig.name, &order)? {
                    Ok(found) => records.push(found),
                    Err(OutOfOrder) => return Ok(Err(OutOfOrder)),
                }
            }
            let (Some(truth), Some(calls)) = (records.pop(), records.pop()) else { continue };
            if calls.len() + truth.len() == 0 {
                collector.skip(number);
                continue;
            }
            let bytes = held_bytes(&[&calls, &truth], contig);
            collector.drain(MAX_HELD_BYTES.saturating_sub(bytes), collect)?;
            collector.pending += 1;
            collector.held_bytes += bytes;
            let contig = Contig { name: contig.name.clone(), template: Template::default(), records: [calls, truth] };
            // Drop the sender, because the worker threads end only after that.
            let _ = jobs.send((number, contig));
        }
        for source in sources.iter_mut() {
            if let Err(OutOfOrder) = source.finish(&order)? {
                return Ok(Err(OutOfOrder));
            }
        }
        Ok(Ok(()))
    }

    /// The loop of a worker thread: compares contigs until the channel is closed.
    fn work(&self, jobs: &Receiver<Job>, results: &Sender<JobResult>, rules: &EvaluationRules) {
        for (number, mut contig) in jobs {
            let bytes = held_bytes(&contig.records.each_ref(), &self.reference.contigs()[number]);
            let end = self.reference.read_template(number).and_then(|template| {
                contig.template = template;
                // Ignore the error: without a receiver, the comparison has failed.
                let mut send = |output| drop(results.send((number, Ok(ContigPart::Segment(output)))));
                let summary = compare_contig(&contig, rules, self.directory.is_some(), &mut send);
                let summary = summary.map_err(|error| self.evaluation_error(&contig.name, error))?;
                Ok(ContigPart::End { summary, bytes })
            });
            drop(contig);
            if results.send((number, end)).is_err() {
                return;
            }
        }
    }

    fn evaluation_error(&self, contig: &str, error: EvaluationError) -> HaplotypeError {
        match error {
            EvaluationError::Record { side, pos_1based, problem } => {
                let path = if side == CALLS { &self.options.calls } else { &self.options.truth };
                let (path, position) = (path.clone(), format!("{contig}:{pos_1based}"));
                HaplotypeError::Record { path, position, problem: problem.to_owned() }
            }
            EvaluationError::Search(SearchError::Cancelled) => HaplotypeError::Cancelled,
            EvaluationError::Search(SearchError::NoPath | SearchError::NotInSync) => {
                HaplotypeError::NoPath { contig: contig.to_owned() }
            }
        }
    }

    /// Rejects files that have no contig in common with each other or with the reference.
    fn check_contigs(&self, sources: &[VcfSource; 2]) -> Result<(), HaplotypeError> {
        let all = |source: &VcfSource| {
            let declared = source.header.contigs().map(str::to_owned);
            declared.chain(source.seen_contigs().iter().cloned()).collect::<Vec<_>>()
        };
        let (calls, truth) = (all(&sources[CALLS]), all(&sources[TRUTH]));
        let is_disjoint = !calls.is_empty() && !truth.is_empty() && !calls.iter().any(|name| truth.contains(name));
        if is_disjoint {
            let is_prefixed = |name: &String| truth.iter().any(|other| differ_by_prefix(name, other));
            let remedy = match calls.iter().any(is_prefixed) {
                true => "rename those of one file, as with `bcftools annotate --rename-chrs`",
                false => "are they of the same genome?",
            };
            let [calls, truth] = [&self.options.calls, &self.options.truth];
            let problem = format!("{} and {} have no contig in common; {remedy}", calls.display(), truth.display());
            return Err(HaplotypeError::Incomparable { problem });
        }
        let seen = || sources.iter().flat_map(|source| source.seen_contigs());
        let is_known = |name: &&String| self.reference.contigs().iter().any(|contig| contig.name == **name);
        if let Some(name) = seen().next().filter(|_| !seen().any(|name| is_known(&name))) {
            let reference = self.options.reference.display();
            let problem = format!(
                "{reference} has none of the contigs of the files, for example {name:?}; give the reference of the \
                 files"
            );
            return Err(HaplotypeError::Incomparable { problem });
        }
        Ok(())
    }
}

/// Returns the approximate size of a contig in memory: the text of its records, as much again for outputs that wait, and
/// half a byte for each base.
fn held_bytes(records: &[&ContigRecords; 2], contig: &FaiRecord) -> usize {
    let bytes = |records: &&ContigRecords| 2 * records.text_bytes() + records.len() * size_of::<(usize, u32)>();
    records.iter().map(bytes).sum::<usize>() + contig.bases as usize / 2
}

/// Returns whether two names of contigs differ in the prefix `chr` only.
fn differ_by_prefix(a: &str, b: &str) -> bool {
    a.strip_prefix("chr") == Some(b) || b.strip_prefix("chr") == Some(a)
}

/// A collector that holds the results of contigs until the results of all earlier contigs are written.
struct Collector<'c> {
    contigs: &'c [FaiRecord],
    results: Receiver<JobResult>,
    /// Results by contig.
    waiting: BTreeMap<usize, WaitingContig>,
    next: usize,
    /// Contigs that were sent to the workers and have not ended yet.
    pending: usize,
    /// Size of the contigs that were sent to the workers and are not collected yet.
    held_bytes: usize,
}

/// The parts of a contig that are not written yet.
#[derive(Default)]
struct WaitingContig {
    parts: Vec<ContigPart>,
    is_complete: bool,
}

/// Receives the parts of the results in order.
type Collect<'f> = dyn FnMut(&FaiRecord, ContigPart) -> Result<(), HaplotypeError> + 'f;

impl Collector<'_> {
    /// Registers a contig without records.
    fn skip(&mut self, number: usize) {
        self.waiting.insert(number, WaitingContig { parts: Vec::new(), is_complete: true });
    }

    /// Receives results and writes them in order until the held results have at most `max_bytes` bytes; 0 means all
    /// results.
    fn drain(&mut self, max_bytes: usize, collect: &mut Collect) -> Result<(), HaplotypeError> {
        while self.pending > 0 && (self.held_bytes > max_bytes || max_bytes == 0) {
            let Ok((number, part)) = self.results.recv() else { break };
            let part = part?;
            let contig = self.waiting.entry(number).or_default();
            contig.is_complete = matches!(part, ContigPart::End { .. });
            self.pending -= usize::from(contig.is_complete);
            contig.parts.push(part);
            self.collect_next(collect)?;
        }
        self.collect_next(collect)
    }

    fn collect_next(&mut self, collect: &mut Collect) -> Result<(), HaplotypeError> {
        while let Some(contig) = self.waiting.get_mut(&self.next) {
            for part in contig.parts.drain(..) {
                if let ContigPart::End { bytes, .. } = part {
                    self.held_bytes -= bytes;
                }
                collect(&self.contigs[self.next], part)?;
            }
            if !contig.is_complete {
                break;
            }
            self.waiting.remove(&self.next);
            self.next += 1;
        }
        Ok(())
    }
}
