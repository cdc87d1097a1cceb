//! Many samples from FASTQ to variants: the jobs of this crate one after the other, for each sample of a sheet. Samples are worked on one
//! after the other here, or several at a time on nodes ([`SampleNodes`]).
//!
//! A sample's files lie in a directory of its own, as the jobs write them. A sample that fails does not keep the others
//! from being done; what is done of the cohort needs all of them. Each job can be gone on with, and so can the whole.

mod fetch;
mod nodes;
mod report;
mod sheet;
mod storage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use godwit_engines::aligner::AlignerChoice;
use godwit_engines::caller::CallerChoice;
use godwit_engines::gatk::Toolkit;
use godwit_engines::variant_filter::Resource;
use godwit_formats::with_causes;
use godwit_model::PloidyTable;

use crate::align::{AlignOptions, ReadsOptions, align};
use crate::align_and_call::{align_first, tell};
use crate::call::{
    CallOptions, RecalibrateOptions, SLICE_RECORDS, ScannedReference, call, index_of, recalibrate, report_path,
};
use crate::error::{Blame, PipelineError};
use crate::filtering::{FilterOptions, filter};
use crate::job::JobOptions;
use crate::machine;
use crate::observer::{ALL_SAMPLES, Event, Observer, SampleState, WorkflowStep};
use crate::reduce::Format;
use crate::run_report::{RunReport, utc};
use crate::scratch::create_private_directory;
use crate::staging::check_available;

pub use fetch::{FetchReads, PRIVATE};
pub use nodes::{JobEnd, SampleJob, SampleNodes, run_sample};
pub use report::{SampleOutcome, StepHours, StepTime, Try, WorkflowReport};
pub use sheet::sample_name_problem;
use sheet::{SheetSample, read_sheet};
pub use storage::{StorageMoment, StorageNode, WatchStorage};

/// Options of HaplotypeCaller for what is genotyped together later.
const GVCF: &str = "-ERC GVCF";

/// What is done with each sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workflow {
    /// Aligned, then called.
    #[default]
    Default,
    /// As the Broad Institute's best practices for germline short variants.
    Gatk,
}

impl Workflow {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Gatk => "gatk",
        }
    }

    /// The text in what a finished sample is recognised by. Files on disk hold it: it is independent of the names of variants.
    fn fingerprint_text(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::Gatk => "Gatk",
        }
    }
}

/// What to run on which samples.
#[derive(Clone, Debug)]
pub struct WorkflowOptions {
    /// The reference, with the aligner's index beside it.
    pub reference: PathBuf,
    /// The sheet of samples.
    pub sheet: PathBuf,
    /// Output directory; made where it is missing.
    pub out: PathBuf,
    /// What is done.
    pub workflow: Workflow,
    /// What `align` is told; its memory is that of godwit itself.
    pub job: JobOptions,
    /// Bases per block of the aligner.
    pub block_bases: u64,
    /// The aligner.
    pub aligner: AlignerChoice,
    /// The caller of the default workflow.
    pub caller: CallerChoice,
    /// Options of that caller that change records.
    pub caller_args: String,
    /// Copies of each contig, from which each sample's sex in the sheet chooses; the caller's own idea where `None`.
    pub ploidy: Option<PloidyTable>,
    /// Name or path of that table.
    pub ploidy_name: Option<String>,
    /// VCFs of known variants, for recalibration.
    pub known_sites: Vec<PathBuf>,
    /// Known SNPs that recalibration of variants learns from.
    pub snp_resources: Vec<Resource>,
    /// Known indels that it learns from.
    pub indel_resources: Vec<Resource>,
    /// Bases of a region.
    pub window_bases: u32,
    /// Memory of each caller, and of each GATK; what it usually takes where `None`.
    pub caller_memory_bytes: Option<u64>,
    /// Go on with a run that was stopped.
    pub resume: bool,
    /// Who brings reads that the sheet names by addresses, and takes away what is to be stored.
    pub fetch: Option<Arc<dyn FetchReads>>,
    /// A directory on a server that what is written is copied to, sample by sample.
    pub store: Option<String>,
    /// Who looks after the storage that is read from and stored to.
    pub storage: Option<Arc<dyn WatchStorage>>,
}

/// Runs a workflow and returns its report, which is also in `OUT/run.json`, and for people in `OUT/report.html`.
///
/// # Errors
/// [`PipelineError::Samples`] where some samples failed: what could be done is done then, and the report is written.
/// [`PipelineError`] for what keeps all samples from being done.
pub fn run_workflow(
    options: &WorkflowOptions,
    nodes: Option<&dyn SampleNodes>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<WorkflowReport, PipelineError> {
    let started = Instant::now();
    let samples = samples_of(options)?;
    for (sample, missing) in samples.iter().filter_map(|sample| Some((&sample.name, sample.missing.as_ref()?))) {
        let message = format!("the sample {sample} will fail: {missing}; the other samples are run");
        observer.event(&Event::Warning { message });
    }
    let mut run = WorkflowRun::new(options, &samples, observer, cancelled)?;
    run.all(nodes)?;
    run.report.finish(nodes.map(|nodes| (nodes.nodes(), nodes.each())), started.elapsed());
    run.report.storage = options.storage.as_ref().map(|storage| storage.moments()).unwrap_or_default();
    run.report.write(&options.out, &options.reference)?;
    let stored = run.store_cohort();
    let WorkflowRun { report, blame, .. } = run;
    match blame {
        None => stored.map(|()| report),
        // What failed first is told last.
        Some(_) if matches!(stored, Err(PipelineError::Interrupted)) => Err(PipelineError::Interrupted),
        Some(blame) => Err(PipelineError::Samples { failed: report.failures(), of: samples.len(), blame }),
    }
}

/// The samples, where they and the options are such that they can be begun with.
fn samples_of(options: &WorkflowOptions) -> Result<Vec<SheetSample>, PipelineError> {
    let samples = read_sheet(&options.sheet, options.ploidy.as_ref(), &options.reference)?;
    fetch::check_addresses(options, &samples)?;
    check(options)?;
    create_private_directory(&options.out).map_err(PipelineError::file("create", &options.out))?;
    machine::check_writable(&options.out).map_err(PipelineError::file("create files in", &options.out))?;
    for name in ["run.json", "report.html"] {
        let path = options.out.join(name);
        check_available(&path).map_err(PipelineError::file("write", &path))?;
    }
    Ok(samples)
}

/// A failure and its causes, in one line.
fn in_one_line(error: &PipelineError) -> String {
    with_causes(error).replace('\n', " | ")
}

/// What can be known to go wrong for every sample.
fn check(options: &WorkflowOptions) -> Result<(), PipelineError> {
    let refused = |problem: &str| Err(PipelineError::Options { problem: problem.to_owned() });
    match options.workflow {
        Workflow::Default if !options.known_sites.is_empty() => {
            return refused("--known-sites are for recalibration, which is part of --workflow gatk");
        }
        Workflow::Default if !(options.snp_resources.is_empty() && options.indel_resources.is_empty()) => {
            return refused("resources are for variant recalibration, which is part of --workflow gatk");
        }
        Workflow::Default => drop(options.caller.find(&options.caller_args)?),
        Workflow::Gatk if !matches!(options.caller, CallerChoice::Bcftools | CallerChoice::Gatk) => {
            return refused("--workflow gatk calls by HaplotypeCaller; --caller is for --workflow default");
        }
        Workflow::Gatk if !options.caller_args.trim().is_empty() => {
            return refused(
                "--workflow gatk has its own options of HaplotypeCaller; --caller-args is for --workflow default",
            );
        }
        Workflow::Gatk => drop(Toolkit::find()?),
    }
    let mut names = [("--reference", &options.reference), ("--out", &options.out)].into_iter();
    if let Some((option, path)) = names.find(|(_, path)| fetch::is_address(path)) {
        let (path, copy) = (path.display(), "godwit copy");
        let problem = match option {
            "--out" => {
                format!("{option} {path}: what is written lies here; --store takes it to a server when it is whole")
            }
            _ => format!("{option} {path}: it has to lie here, with its index; `{copy}` fetches it"),
        };
        return refused(&problem);
    }
    let resources = options.snp_resources.iter().chain(&options.indel_resources).map(|resource| &resource.path);
    for variants in options.known_sites.iter().chain(resources) {
        index_of(variants, &["tbi", "csi", "idx"], "tabix -p vcf")?;
    }
    if !options.reference.is_file() {
        let (path, remedy) = (options.reference.clone(), "check its path".to_owned());
        return Err(PipelineError::Missing { what: "the reference", path, remedy });
    }
    Ok(())
}

/// A run under way.
struct WorkflowRun<'w> {
    options: &'w WorkflowOptions,
    scanned: Arc<ScannedReference>,
    samples: &'w [SheetSample],
    observer: &'w dyn Observer,
    cancelled: &'w Arc<AtomicBool>,
    report: WorkflowReport,
    /// Of the first failure.
    blame: Option<Blame>,
}

/// What a job says of itself.
struct JobDone {
    records: u64,
    already_complete: bool,
    /// Files that it read and wrote, the reference apart.
    files: Vec<PathBuf>,
}

impl<'w> WorkflowRun<'w> {
    fn new(
        options: &'w WorkflowOptions,
        samples: &'w [SheetSample],
        observer: &'w dyn Observer,
        cancelled: &'w Arc<AtomicBool>,
    ) -> Result<Self, PipelineError> {
        let report = WorkflowReport {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: "run",
            command: options.job.command.clone(),
            started: utc(SystemTime::now()),
            workflow: options.workflow.name(),
            threads: options.job.threads,
            ..WorkflowReport::default()
        };
        // Once for all steps of all samples.
        let scanned = Arc::new(ScannedReference::scan(&options.reference)?);
        if options.workflow == Workflow::Default {
            scanned.check_for(&options.reference, &*options.caller.find(&options.caller_args)?)?;
        }
        Ok(Self { options, scanned, samples, observer, cancelled, report, blame: None })
    }

    fn all(&mut self, nodes: Option<&dyn SampleNodes>) -> Result<(), PipelineError> {
        if let Some(nodes) = nodes {
            self.samples_on(nodes)?;
        }
        let here = if nodes.is_none() { self.samples } else { &[] };
        for sample in here {
            let mut outcome = SampleOutcome::of(sample);
            let done = self.sample_fetched(sample, &mut outcome);
            outcome.error = self.failed((&sample.name, &sample.name), done)?;
            if outcome.error.is_none() {
                self.tell(&sample.name, SampleState::Done, None);
            }
            self.report.samples.push(outcome);
        }
        if self.options.workflow == Workflow::Gatk {
            if self.options.known_sites.is_empty() {
                self.leave_out("base quality recalibration is left out: no --known-sites were given");
            }
            if self.blame.is_some() {
                self.leave_out("joint genotyping is left out: it needs every sample");
                return Ok(());
            }
            let mut steps = Vec::new();
            let mut filters = None;
            let done = self.cohort(&mut steps, &mut filters);
            self.report.filters = filters;
            self.report.cohort = steps;
            self.report.cohort_error = self.failed((ALL_SAMPLES, "the cohort"), done)?;
            if self.report.cohort_error.is_none() {
                self.tell(ALL_SAMPLES, SampleState::Done, None);
            }
        }
        Ok(())
    }

    /// The message of a failure, which is told and does not end the run; one that does, as an interruption, is returned. `words`: what
    /// the message calls the sample.
    fn failed(
        &mut self,
        (sample, words): (&str, &str),
        done: Result<(), PipelineError>,
    ) -> Result<Option<String>, PipelineError> {
        let Err(error) = done else { return Ok(None) };
        if matches!(error.blame(), Blame::Interrupted | Blame::Bug) {
            return Err(error);
        }
        let message = in_one_line(&error);
        self.observer.event(&Event::Warning { message: format!("{words} failed: {message}") });
        self.tell(sample, SampleState::Failed, None);
        self.blame.get_or_insert(error.blame());
        Ok(Some(message))
    }

    fn leave_out(&mut self, message: &str) {
        self.observer.event(&Event::Warning { message: message.to_owned() });
        self.report.left_out.push(message.to_owned());
    }

    /// Does one step, timed. `report`: where the job's own report lies, which tells how long it took where it was done before.
    fn step(
        &self,
        of: &str,
        step: WorkflowStep,
        report: &Path,
        steps: &mut Vec<StepTime>,
        job: impl FnOnce() -> Result<JobDone, PipelineError>,
    ) -> Result<(), PipelineError> {
        self.observer.event(&Event::Step { sample: of.to_owned(), step });
        let started = Instant::now();
        let JobDone { records, already_complete, files } = job()?;
        let seconds = match already_complete {
            true => report::seconds_in(report).unwrap_or(0.0),
            false => crate::observer::seconds(started.elapsed()),
        };
        // Pipes have no size, and what was removed since has none either.
        let file_bytes = files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
        let done = StepTime { step, seconds, records, file_bytes, done_before: already_complete };
        self.tell_step(of, &done);
        steps.push(done);
        Ok(())
    }

    fn tell_step(&self, of: &str, done: &StepTime) {
        self.observer.event(&Event::StepDone { sample: of.to_owned(), step: done.step, seconds: done.seconds });
    }

    fn directory(&self, sample: &SheetSample) -> PathBuf {
        self.options.out.join(&sample.name)
    }

    fn sample(&self, sample: &SheetSample, steps: &mut Vec<StepTime>) -> Result<(), PipelineError> {
        let (options, name, directory) = (self.options, &sample.name, self.directory(sample));
        let (align_report, align_options) = (directory.join("run.json"), self.align_options(sample));
        if options.known_sites.is_empty() {
            return self.align_and_call(sample, (&align_options, self.aligned_files(sample)), steps);
        }
        self.step(name, WorkflowStep::Align, &align_report, steps, || {
            let report = align(&align_options, None, self.observer, self.cancelled)?;
            let files = self.aligned_files(sample);
            Ok(JobDone { records: report.records, already_complete: report.already_complete, files })
        })?;
        let out = directory.join(format!("{name}.recal.bam"));
        let aligned = self.aligned(sample);
        let recalibration = self.recalibrate_options(aligned.clone(), out.clone());
        self.step(name, WorkflowStep::Recalibrate, &report_path(&out), steps, || {
            let report = recalibrate(&recalibration, self.observer, self.cancelled)?;
            // It is read twice: to learn from and to change.
            let files = vec![aligned.clone(), aligned, out.clone()];
            Ok(JobDone { records: report.records, already_complete: report.already_complete, files })
        })?;
        let calling = self.call_options(vec![out], (CallerChoice::Gatk, GVCF), &self.gvcf(sample));
        self.call(name, WorkflowStep::Call, &self.with_ploidy(calling, sample), steps)
    }

    /// Aligns a sample, and calls from what is aligned.
    fn align_and_call(
        &self,
        sample: &SheetSample,
        (align, files): (&AlignOptions, Vec<PathBuf>),
        steps: &mut Vec<StepTime>,
    ) -> Result<(), PipelineError> {
        let (options, of) = (self.options, &*sample.name);
        let caller = match options.workflow {
            Workflow::Default => (options.caller.clone(), &*options.caller_args),
            Workflow::Gatk => (CallerChoice::Gatk, GVCF),
        };
        // What is read and written is known to the alignment.
        let calling = self.with_ploidy(self.call_options(Vec::new(), caller, Path::new("")), sample);
        let mut rest = None;
        self.step(of, WorkflowStep::Align, &align.out.join("run.json"), steps, || {
            let aligned = align_first(align, &calling, None, self.observer, self.cancelled)?;
            rest = Some(aligned.rest);
            let RunReport { records, already_complete, .. } = aligned.report;
            Ok(JobDone { records, already_complete, files })
        })?;
        let Some(rest) = rest else { return Ok(()) };
        self.step(of, WorkflowStep::Call, &report_path(rest.out()), steps, || {
            let report = rest.call(None, self.observer, self.cancelled)?;
            tell(&align.out, rest.out())?;
            let files = vec![self.aligned(sample), rest.out().to_owned()];
            Ok(JobDone { records: report.records, already_complete: report.already_complete, files })
        })
    }

    fn aligned(&self, sample: &SheetSample) -> PathBuf {
        self.directory(sample).join(format!("{}.bam", sample.name))
    }

    /// What aligning a sample reads and writes.
    fn aligned_files(&self, sample: &SheetSample) -> Vec<PathBuf> {
        let reads = sample.lanes.iter().flat_map(|lane| lane.files.iter().cloned());
        reads.chain([self.aligned(sample)]).collect()
    }

    fn gvcf(&self, sample: &SheetSample) -> PathBuf {
        self.directory(sample).join(format!("{}.g.vcf.gz", sample.name))
    }

    fn cohort(&self, steps: &mut Vec<StepTime>, filters: &mut Option<String>) -> Result<(), PipelineError> {
        let options = self.options;
        let joint = options.out.join("joint.vcf.gz");
        let gvcfs = self.samples.iter().map(|sample| self.gvcf(sample)).collect();
        // How many copies each sample has, its GVCF says.
        let genotyping = self.call_options(gvcfs, (CallerChoice::GatkJoint, ""), &joint);
        self.call(ALL_SAMPLES, WorkflowStep::Genotype, &genotyping, steps)?;
        let out = options.out.join("joint.filtered.vcf.gz");
        let filtering = FilterOptions {
            reference: options.reference.clone(),
            variants: joint,
            out,
            snp_resources: options.snp_resources.clone(),
            indel_resources: options.indel_resources.clone(),
            gatk_memory_bytes: options.caller_memory_bytes,
            resume: options.resume,
            command: options.job.command.clone(),
            scanned: Some(self.scanned.clone()),
        };
        self.step(ALL_SAMPLES, WorkflowStep::Filter, &report_path(&filtering.out), steps, || {
            let report = filter(&filtering, self.observer, self.cancelled)?;
            *filters = Some(report.how);
            let files = vec![filtering.variants.clone(), filtering.out.clone()];
            Ok(JobDone { records: report.records, already_complete: report.already_complete, files })
        })
    }

    fn call(
        &self,
        of: &str,
        step: WorkflowStep,
        options: &CallOptions,
        steps: &mut Vec<StepTime>,
    ) -> Result<(), PipelineError> {
        self.step(of, step, &report_path(&options.out), steps, || {
            let report = call(options, None, self.observer, self.cancelled)?;
            let files = options.reads.iter().chain([&options.out]).cloned().collect();
            Ok(JobDone { records: report.records, already_complete: report.already_complete, files })
        })
    }

    fn call_options(&self, reads: Vec<PathBuf>, (caller, args): (CallerChoice, &str), out: &Path) -> CallOptions {
        let WorkflowOptions { job, reference, window_bases, caller_memory_bytes, resume, .. } = self.options;
        CallOptions {
            caller,
            caller_args: args.to_owned(),
            caller_memory_bytes: *caller_memory_bytes,
            resume: *resume,
            scanned: Some(self.scanned.clone()),
            ..CallOptions::after(job, reference, reads, out, *window_bases)
        }
    }

    /// The same for one sample, with as many copies of each contig as it has.
    fn with_ploidy(&self, calling: CallOptions, sample: &SheetSample) -> CallOptions {
        let WorkflowOptions { ploidy, ploidy_name, .. } = self.options;
        CallOptions { ploidy: ploidy.clone(), ploidy_name: ploidy_name.clone(), sex: sample.sex.clone(), ..calling }
    }

    fn align_options(&self, sample: &SheetSample) -> AlignOptions {
        let options = self.options;
        AlignOptions {
            reference: options.reference.clone(),
            lanes: sample.lanes.iter().map(|lane| lane.files.clone()).collect(),
            reads: ReadsOptions::default(),
            read_groups: sample.lanes.iter().map(|lane| lane.read_group.clone()).collect(),
            sample: sample.name.clone(),
            out: self.directory(sample),
            formats: vec![Format::Bam],
            job: options.job.clone(),
            block_bases: options.block_bases,
            aligner: options.aligner.clone(),
            aligner_args: Vec::new(),
            lenient: false,
            resume: options.resume,
        }
    }

    fn recalibrate_options(&self, reads: PathBuf, out: PathBuf) -> RecalibrateOptions {
        let options = self.options;
        RecalibrateOptions {
            reference: options.reference.clone(),
            reads,
            known_sites: options.known_sites.clone(),
            out,
            slice_records: SLICE_RECORDS,
            threads: options.job.threads,
            memory_bytes: None,
            gatk_memory_bytes: options.caller_memory_bytes,
            temp: options.job.temp.clone(),
            resume: options.resume,
            program: options.job.program.clone(),
            command: options.job.command.clone(),
            scanned: Some(self.scanned.clone()),
        }
    }
}
