//! Workflows for many samples, from FASTQ to variants. For each sample of a sample sheet, the jobs of this crate run in
//! sequence. Samples are processed one after the other in this process, or in parallel on several hosts
//! ([`SampleHosts`]).
//!
//! Each sample has a directory, to which its jobs write. If a sample fails, the other samples are still processed, but
//! the steps of the cohort, such as joint genotyping, are skipped. Each job can be resumed, and so can the whole
//! workflow.

mod cohort_page;
mod remote_files;
mod report;
mod sample_hosts;
mod sample_sheet;
mod storage_monitor;
mod workflow_page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use godwit_align::{AlignOptions, ReadsOptions, align};
use godwit_call::{
    CallOptions, FilterOptions, RecalibrateOptions, RecalibrationEngine, call, filter, find_index, recalibrate,
    report_path,
};
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::caller::CallerChoice;
use godwit_engines::gatk::GatkToolkit;
use godwit_engines::variant_filter::TrainingResource;
use godwit_files::check_available;
use godwit_model::ErrorKind;
use godwit_model::{PloidyTable, message_with_causes};
use godwit_pipeline::job_report::{JobReport, check_inputs_remain, format_utc};
use godwit_pipeline::observer::{ALL_SAMPLES, Event, Observer, SampleState, WorkflowStep};
use godwit_pipeline::reduce::Format;
use godwit_pipeline::scanned_reference::ScannedReference;
use godwit_pipeline::scratch::create_private_directory;
use godwit_pipeline::{JobOptions, PipelineError, host_resources};
use godwit_recalibrate::QualityOptions;

use crate::align_and_call::{add_calling_report, align_with_calling};
pub use remote_files::{PRIVATE_FILE_PATTERN, RemoteFiles};
pub use report::{FailedAttempt, SampleOutcome, StepHours, StepTime, WorkflowReport};
pub use sample_hosts::{JobExit, SampleHosts, SampleJob, run_sample};
pub use sample_sheet::sample_name_problem;
use sample_sheet::{SheetSample, read_sample_sheet};
pub use storage_monitor::{StorageMonitor, StoragePoolMember, StorageSnapshot};

/// Options with which HaplotypeCaller writes a GVCF for joint genotyping.
const GVCF_ARGUMENTS: &str = "-ERC GVCF";
/// Name of the VCF of all samples in the output directory, for the workflow with joint genotyping.
const JOINT_VCF: &str = "joint.vcf.gz";
/// Name of the filtered VCF of all samples in the output directory.
const FILTERED_VCF: &str = "joint.filtered.vcf.gz";

/// The sequence of steps for each sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workflow {
    /// Alignment, followed by variant calling.
    #[default]
    Default,
    /// The GATK best practices of the Broad Institute for germline short variants.
    Gatk,
}

impl Workflow {
    /// Returns the name of the workflow on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Gatk => "gatk",
        }
    }

    /// Returns the text in fingerprints of samples. Because files on disk contain this text, it must stay as earlier
    /// versions wrote it.
    fn fingerprint_text(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::Gatk => "Gatk",
        }
    }
}

/// Options of a workflow.
#[derive(Clone, Debug)]
pub struct WorkflowOptions {
    /// Path of the reference, with the index of the aligner in the same directory.
    pub reference: PathBuf,
    /// Path of the sample sheet.
    pub sample_sheet: PathBuf,
    /// Output directory. It is created if it does not exist.
    pub out: PathBuf,
    /// The workflow, which determines the steps for each sample.
    pub workflow: Workflow,
    /// Options of the `align` jobs. Their memory limit applies to the godwit process only.
    pub job: JobOptions,
    /// Number of bases per block for the aligner.
    pub block_bases: u64,
    /// The aligner for all samples.
    pub aligner: AlignerChoice,
    /// The variant caller of the default workflow; `None`: the default caller. The workflow `gatk` accepts only its own
    /// caller here.
    pub caller: Option<CallerChoice>,
    /// Options of the variant caller that change records.
    pub caller_args: String,
    /// Number of copies of each contig, selected by the sex of each sample in the sheet; `None`: the defaults of the
    /// caller.
    pub ploidy: Option<PloidyTable>,
    /// Name or path of the ploidy table.
    pub ploidy_name: Option<String>,
    /// VCFs of known variants, for base quality recalibration.
    pub known_sites: Vec<PathBuf>,
    /// Known SNPs on which variant recalibration trains.
    pub snp_resources: Vec<TrainingResource>,
    /// Known indels on which variant recalibration trains.
    pub indel_resources: Vec<TrainingResource>,
    /// Maximum number of target bases of a calling region, not counting assembly gaps.
    pub max_region_bases: u32,
    /// Memory limit of each caller process and of each GATK process, bytes; `None`: the default of the program.
    pub caller_memory_bytes: Option<u64>,
    /// True to resume a stopped workflow.
    pub resume: bool,
    /// Client that downloads reads whose address is in the sheet, and uploads outputs; `None`: transfers are not
    /// supported.
    pub remote_files: Option<Arc<dyn RemoteFiles>>,
    /// Address of a directory on a server to which the outputs of each sample are uploaded; `None`: no upload.
    pub store_address: Option<String>,
    /// Addresses of the inputs that are mounted, by their paths on this host. They are the names of these inputs in the
    /// sheet and in checkpoints, because every host mounts them at a path of its own.
    pub input_addresses: BTreeMap<PathBuf, String>,
    /// Monitor of the storage from which reads are downloaded and to which outputs are uploaded; `None`: no monitoring.
    pub storage_monitor: Option<Arc<dyn StorageMonitor>>,
}

impl WorkflowOptions {
    /// Returns the variant caller of the default workflow.
    fn default_workflow_caller(&self) -> CallerChoice {
        self.caller.clone().unwrap_or_default()
    }

    /// Returns the name of an input that does not depend on the host: its address if it is mounted, and otherwise its path.
    fn input_name<'p>(&'p self, path: &'p Path) -> &'p Path {
        self.input_addresses.get(path).map_or(path, Path::new)
    }
}

/// Runs a workflow and returns its report. The report is also written to `OUT/run.json` and, as a page for people, to
/// `OUT/report.html`.
///
/// # Errors
/// [`PipelineError::Samples`] if at least one sample failed. All other samples are then finished, and the report is
/// written. Another [`PipelineError`] if the workflow as a whole cannot run.
pub fn run_workflow(
    options: &WorkflowOptions,
    nodes: Option<&dyn SampleHosts>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<WorkflowReport, PipelineError> {
    let started = Instant::now();
    let samples = read_samples(options)?;
    for (sample, missing) in samples.iter().filter_map(|sample| Some((&sample.name, sample.missing_file.as_ref()?))) {
        let message = format!("sample {sample} will fail: {missing}; the other samples will run");
        observer.event(&Event::Warning { message });
    }
    let mut run = WorkflowJob::new(options, &samples, observer, cancelled)?;
    run.run_all_samples(nodes)?;
    run.report.compute_totals(nodes.map(|nodes| (nodes.host_count(), nodes.samples_per_host())), started.elapsed());
    run.report.storage = options.storage_monitor.as_ref().map(|storage| storage.snapshots()).unwrap_or_default();
    run.report.write(&options.out, &options.reference)?;
    let stored = run.store_cohort();
    let WorkflowJob { report, first_error_kind, .. } = run;
    match first_error_kind {
        None => stored.map(|()| report),
        // The failure of a sample takes precedence over an error of uploading, except for an interruption.
        Some(_) if matches!(stored, Err(PipelineError::Interrupted)) => Err(PipelineError::Interrupted),
        Some(kind) => Err(PipelineError::Samples { failed: report.failures(), total: samples.len(), kind }),
    }
}

/// Reads the sample sheet, and checks the options and the output directory.
fn read_samples(options: &WorkflowOptions) -> Result<Vec<SheetSample>, PipelineError> {
    let reference = options.input_name(&options.reference);
    let samples = read_sample_sheet(&options.sample_sheet, options.ploidy.as_ref(), reference)?;
    remote_files::check_addresses(options, &samples)?;
    check_options(options)?;
    check_replaced_inputs(options)?;
    create_private_directory(&options.out).map_err(PipelineError::file("create", &options.out))?;
    host_resources::check_writable(&options.out).map_err(PipelineError::file("create files in", &options.out))?;
    for name in ["run.json", "report.html", "cohort.html"] {
        let path = options.out.join(name);
        check_available(&path).map_err(PipelineError::file("write", &path))?;
    }
    Ok(samples)
}

/// Rejects an input of the whole workflow that has the name of an output, for example known sites from an earlier run.
fn check_replaced_inputs(options: &WorkflowOptions) -> Result<(), PipelineError> {
    let resources = options.snp_resources.iter().chain(&options.indel_resources).map(|resource| &*resource.path);
    let known_sites = options.known_sites.iter().map(PathBuf::as_path);
    let inputs = [options.sample_sheet.as_path(), &options.reference].into_iter().chain(known_sites).chain(resources);
    let names = ["run.json", "report.html", "cohort.html", JOINT_VCF, FILTERED_VCF];
    check_inputs_remain(inputs, &names.map(|name| options.out.join(name)))
}

/// Returns the message of an error and the messages of its causes, in one line.
fn one_line_message(error: &PipelineError) -> String {
    message_with_causes(error).replace('\n', " | ")
}

/// Checks the options for errors that would affect every sample.
fn check_options(options: &WorkflowOptions) -> Result<(), PipelineError> {
    let refused = |problem: &str| Err(PipelineError::Options { problem: problem.to_owned() });
    match options.workflow {
        Workflow::Default if !options.known_sites.is_empty() => {
            return refused("--known-sites requires --workflow gatk, which recalibrates base qualities");
        }
        Workflow::Default if !(options.snp_resources.is_empty() && options.indel_resources.is_empty()) => {
            return refused("options for resources require --workflow gatk, which recalibrates variants");
        }
        Workflow::Default => drop(options.default_workflow_caller().find_caller(&options.caller_args)?),
        Workflow::Gatk if !matches!(options.caller, None | Some(CallerChoice::Gatk)) => {
            return refused(
                "--workflow gatk always calls with HaplotypeCaller: omit --caller, or use --workflow default",
            );
        }
        Workflow::Gatk if !options.caller_args.trim().is_empty() => {
            return refused(
                "--caller-args cannot be used with --workflow gatk, which sets the options of HaplotypeCaller; omit it, or use \
                 --workflow default",
            );
        }
        Workflow::Gatk => drop(GatkToolkit::find_installed()?),
    }
    if remote_files::is_address(&options.out) {
        let out = options.out.display();
        return refused(&format!(
            "--out {out} must be a local directory; --store uploads complete outputs to a server"
        ));
    }
    let resources = options.snp_resources.iter().chain(&options.indel_resources).map(|resource| &resource.path);
    for variants in options.known_sites.iter().chain(resources) {
        find_index(variants, &["tbi", "csi", "idx"], "tabix -p vcf")?;
    }
    if !options.reference.is_file() {
        let (path, remedy) = (options.reference.clone(), "check its path".to_owned());
        return Err(PipelineError::Missing { description: "the reference", path, remedy });
    }
    Ok(())
}

/// A workflow that is running in this process.
struct WorkflowJob<'w> {
    options: &'w WorkflowOptions,
    scanned_reference: Arc<ScannedReference>,
    samples: &'w [SheetSample],
    observer: &'w dyn Observer,
    cancelled: &'w Arc<AtomicBool>,
    report: WorkflowReport,
    /// Kind of the first error of a sample.
    first_error_kind: Option<ErrorKind>,
}

/// The result of one step of a workflow.
struct StepSummary {
    records: u64,
    already_complete: bool,
    /// Files that the step read and wrote, without the reference.
    files: Vec<PathBuf>,
}

impl<'w> WorkflowJob<'w> {
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
            started_at: format_utc(SystemTime::now()),
            workflow: options.workflow.name(),
            threads: options.job.threads,
            ..WorkflowReport::default()
        };
        // Keep the scanned reference for the steps of all samples, so that the file is scanned once.
        let scanned_reference = Arc::new(ScannedReference::scan(&options.reference)?);
        if options.workflow == Workflow::Default {
            let caller = options.default_workflow_caller().find_caller(&options.caller_args)?;
            scanned_reference.check_caller_support(&options.reference, &*caller)?;
        }
        Ok(Self { options, scanned_reference, samples, observer, cancelled, report, first_error_kind: None })
    }

    fn run_all_samples(&mut self, nodes: Option<&dyn SampleHosts>) -> Result<(), PipelineError> {
        if let Some(nodes) = nodes {
            self.run_on_hosts(nodes)?;
        }
        let here = if nodes.is_none() { self.samples } else { &[] };
        for sample in here {
            let mut outcome = SampleOutcome::new(sample);
            let done = self.run_sample(sample, &mut outcome);
            outcome.error = self.record_failure((&sample.name, &sample.name), done)?;
            if outcome.error.is_none() {
                self.report_sample_state(&sample.name, SampleState::Done, None);
            }
            self.report.samples.push(outcome);
        }
        if self.options.workflow == Workflow::Gatk {
            if self.options.known_sites.is_empty() {
                self.record_skipped_step("base quality recalibration is skipped, because --known-sites is not given");
            }
            if self.first_error_kind.is_some() {
                self.record_skipped_step("joint genotyping is skipped, because some samples failed");
                return Ok(());
            }
            let mut steps = Vec::new();
            let mut filters = None;
            let done = self.run_cohort_steps(&mut steps, &mut filters);
            self.report.filter_method = filters;
            self.report.cohort = steps;
            self.report.cohort_error = self.record_failure((ALL_SAMPLES, "the cohort steps"), done)?;
            if self.report.cohort_error.is_none() {
                self.report_sample_state(ALL_SAMPLES, SampleState::Done, None);
            }
        }
        Ok(())
    }

    /// Reports the failure of a sample and returns its message. `words`: the name of the sample for the warning. An
    /// interruption or a bug ends the workflow and is returned as an error.
    fn record_failure(
        &mut self,
        (sample, words): (&str, &str),
        done: Result<(), PipelineError>,
    ) -> Result<Option<String>, PipelineError> {
        let Err(error) = done else { return Ok(None) };
        if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Bug) {
            return Err(error);
        }
        let message = one_line_message(&error);
        self.observer.event(&Event::Warning { message: format!("{words} failed: {message}") });
        self.report_sample_state(sample, SampleState::Failed, None);
        self.first_error_kind.get_or_insert(error.kind());
        Ok(Some(message))
    }

    fn record_skipped_step(&mut self, message: &str) {
        self.observer.event(&Event::Warning { message: message.to_owned() });
        self.report.skipped_steps.push(message.to_owned());
    }

    /// Runs a step and measures its time. `report`: path of the report of the job, from which the time is taken if an
    /// earlier process finished the job.
    fn run_step(
        &self,
        of: &str,
        step: WorkflowStep,
        report: &Path,
        steps: &mut Vec<StepTime>,
        job: impl FnOnce() -> Result<StepSummary, PipelineError>,
    ) -> Result<(), PipelineError> {
        self.observer.event(&Event::Step { sample: of.to_owned(), step });
        let started = Instant::now();
        let StepSummary { records, already_complete, files } = job()?;
        let seconds = match already_complete {
            true => report::read_seconds(report).unwrap_or(0.0),
            false => godwit_pipeline::observer::rounded_seconds(started.elapsed()),
        };
        // Count only files that exist and are not pipes.
        let file_bytes = files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
        let done = StepTime { step, seconds, records, file_bytes, is_resumed: already_complete };
        self.report_step(of, &done);
        steps.push(done);
        Ok(())
    }

    fn report_step(&self, of: &str, done: &StepTime) {
        self.observer.event(&Event::StepDone { sample: of.to_owned(), step: done.step, seconds: done.seconds });
    }

    fn sample_directory(&self, sample: &SheetSample) -> PathBuf {
        self.options.out.join(&sample.name)
    }

    fn run_sample_steps(&self, sample: &SheetSample, steps: &mut Vec<StepTime>) -> Result<(), PipelineError> {
        let (options, name, directory) = (self.options, &sample.name, self.sample_directory(sample));
        let (align_report, align_options) = (directory.join("run.json"), self.align_options(sample));
        if options.known_sites.is_empty() {
            return self.align_and_call(sample, (&align_options, self.alignment_files(sample)), steps);
        }
        self.run_step(name, WorkflowStep::Align, &align_report, steps, || {
            let report = align(&align_options, None, self.observer, self.cancelled)?;
            let files = self.alignment_files(sample);
            Ok(StepSummary { records: report.records, already_complete: report.already_complete, files })
        })?;
        let out = directory.join(format!("{name}.recal.bam"));
        let aligned = self.bam_path(sample);
        let recalibration = self.recalibrate_options(aligned.clone(), out.clone());
        self.run_step(name, WorkflowStep::Recalibrate, &report_path(&out), steps, || {
            let report = recalibrate(&recalibration, self.observer, self.cancelled)?;
            // The BAM is listed twice because it is read twice: first base qualities are counted, then changed.
            let files = vec![aligned.clone(), aligned, out.clone()];
            Ok(StepSummary { records: report.records, already_complete: report.already_complete, files })
        })?;
        let calling = self.call_options(vec![out], (CallerChoice::Gatk, GVCF_ARGUMENTS), &self.gvcf_path(sample));
        self.run_call_step(name, WorkflowStep::Call, &self.with_ploidy(calling, sample), steps)
    }

    /// Aligns a sample and calls its variants.
    fn align_and_call(
        &self,
        sample: &SheetSample,
        (align, files): (&AlignOptions, Vec<PathBuf>),
        steps: &mut Vec<StepTime>,
    ) -> Result<(), PipelineError> {
        let (options, of) = (self.options, &*sample.name);
        let caller = match options.workflow {
            Workflow::Default => (options.default_workflow_caller(), &*options.caller_args),
            Workflow::Gatk => (CallerChoice::Gatk, GVCF_ARGUMENTS),
        };
        // Leave the paths of reads and output empty; the alignment sets them.
        let calling = self.with_ploidy(self.call_options(Vec::new(), caller, Path::new("")), sample);
        let mut rest = None;
        self.run_step(of, WorkflowStep::Align, &align.out.join("run.json"), steps, || {
            let aligned = align_with_calling(align, &calling, None, self.observer, self.cancelled)?;
            rest = Some(aligned.remaining_calling);
            let JobReport { records, already_complete, .. } = aligned.report;
            Ok(StepSummary { records, already_complete, files })
        })?;
        let Some(rest) = rest else { return Ok(()) };
        self.run_step(of, WorkflowStep::Call, &report_path(rest.vcf_path()), steps, || {
            let report = rest.call(None, self.observer, self.cancelled)?;
            add_calling_report(&align.out, rest.vcf_path())?;
            let files = vec![self.bam_path(sample), rest.vcf_path().to_owned()];
            Ok(StepSummary { records: report.records, already_complete: report.already_complete, files })
        })
    }

    fn bam_path(&self, sample: &SheetSample) -> PathBuf {
        self.sample_directory(sample).join(format!("{}.bam", sample.name))
    }

    /// Returns the paths of the files that the alignment of a sample reads and writes.
    fn alignment_files(&self, sample: &SheetSample) -> Vec<PathBuf> {
        let reads = sample.lanes.iter().flat_map(|lane| lane.files.iter().cloned());
        reads.chain([self.bam_path(sample)]).collect()
    }

    fn gvcf_path(&self, sample: &SheetSample) -> PathBuf {
        self.sample_directory(sample).join(format!("{}.g.vcf.gz", sample.name))
    }

    fn run_cohort_steps(&self, steps: &mut Vec<StepTime>, filters: &mut Option<String>) -> Result<(), PipelineError> {
        let options = self.options;
        let joint = options.out.join(JOINT_VCF);
        let gvcfs = self.samples.iter().map(|sample| self.gvcf_path(sample)).collect();
        // Do not set the ploidy for joint genotyping, because the GVCF of each sample defines it.
        let genotyping = self.call_options(gvcfs, (CallerChoice::GatkJoint, ""), &joint);
        self.run_call_step(ALL_SAMPLES, WorkflowStep::Genotype, &genotyping, steps)?;
        let out = options.out.join(FILTERED_VCF);
        let filtering = FilterOptions {
            reference: options.reference.clone(),
            variants: joint,
            out,
            snp_resources: options.snp_resources.clone(),
            indel_resources: options.indel_resources.clone(),
            gatk_memory_bytes: options.caller_memory_bytes,
            resume: options.resume,
            command: options.job.command.clone(),
            scanned_reference: Some(self.scanned_reference.clone()),
        };
        self.run_step(ALL_SAMPLES, WorkflowStep::Filter, &report_path(&filtering.out), steps, || {
            let report = filter(&filtering, self.observer, self.cancelled)?;
            *filters = Some(report.method);
            let files = vec![filtering.variants.clone(), filtering.out.clone()];
            Ok(StepSummary { records: report.records, already_complete: report.already_complete, files })
        })
    }

    fn run_call_step(
        &self,
        of: &str,
        step: WorkflowStep,
        options: &CallOptions,
        steps: &mut Vec<StepTime>,
    ) -> Result<(), PipelineError> {
        self.run_step(of, step, &report_path(&options.out), steps, || {
            let report = call(options, None, self.observer, self.cancelled)?;
            let files = options.reads.iter().chain([&options.out]).cloned().collect();
            Ok(StepSummary { records: report.records, already_complete: report.already_complete, files })
        })
    }

    fn call_options(&self, reads: Vec<PathBuf>, (caller, args): (CallerChoice, &str), out: &Path) -> CallOptions {
        let WorkflowOptions { job, reference, max_region_bases, caller_memory_bytes, resume, .. } = self.options;
        CallOptions {
            caller,
            caller_args: args.to_owned(),
            caller_memory_bytes: *caller_memory_bytes,
            resume: *resume,
            scanned_reference: Some(self.scanned_reference.clone()),
            ..CallOptions::from_job(job, reference, reads, out, *max_region_bases)
        }
    }

    /// Adds the ploidy table and the sex of a sample to the options of calling.
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
            out: self.sample_directory(sample),
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
            engine: RecalibrationEngine::default(),
            quality: QualityOptions::default(),
            slice_records: None,
            threads: options.job.threads,
            memory_bytes: None,
            gatk_memory_bytes: options.caller_memory_bytes,
            temp: options.job.temp.clone(),
            resume: options.resume,
            godwit_program: options.job.godwit_program.clone(),
            command: options.job.command.clone(),
            scanned_reference: Some(self.scanned_reference.clone()),
        }
    }
}
