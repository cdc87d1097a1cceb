//! Variant calling by region. The input is aligned reads; the output is one bgzipped VCF with its index, which does not
//! depend on the number of workers.
//!
//! A [fixed grid](godwit_model::region_grid) divides the genome into regions. One caller process runs per region, the
//! most expensive region first. Records that start in its region are joined in the order of the genome; others are
//! dropped. Each finished region has a checkpoint, so that another process can resume the job.

mod call_inputs;
mod call_worker;
mod caller_slots;
mod checkpoint;
mod cluster_head;
mod cluster_messages;
mod concurrent_calling;
mod fingerprint;
mod item_threads;
mod job_outputs;
mod local_scratch;
mod recalibrate;
mod region_calling;
mod region_plan;
mod report;
mod retry;
mod stall;
mod targets;
mod vcf_assembly;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use godwit_cluster::ClusterOptions;
use godwit_engines::caller::{Caller, CallerChoice};
use godwit_files::{AtomicSet, parent_directory};
use godwit_io::crypt4gh::PublicKey;
use godwit_model::PloidyTable;
use godwit_pipeline::encryption::encrypt_files;
use godwit_pipeline::fingerprint::FingerprintKey;
use godwit_pipeline::job_report::{InputFile, Stage, check_distinct_files};
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::scanned_reference::ScannedReference;
use godwit_pipeline::{FingerprintEntry, JobOptions, PipelineError};

use call_inputs::CallInputs;
pub use call_inputs::find_index;
pub use call_worker::run_call_worker;
use caller_slots::{CallerBudget, CallerSlots};
pub use checkpoint::is_call_running;
use checkpoint::{CallJobDirectory, RegionCheckpoint};
pub use cluster_messages::CallTask;
pub use concurrent_calling::{ConcurrentCalling, StopCallingGuard, check_caller};
pub(crate) use fingerprint::sizes_and_checksums;
pub use job_outputs::report_path;
use job_outputs::{CallResumeState, ResumeOptions, close_call_directory, open_call_directory, publish_outputs};
pub(crate) use job_outputs::{add_manifest, check_output_available, complete_manifest};
pub use recalibrate::{RecalibrateOptions, RecalibrationEngine, RecalibrationReport, recalibrate};
use region_calling::{LocalCalling, RegionCaller};
use region_plan::PlannedRegion;
pub use report::{CallReport, CallWorkerReport, GridReport, RegionReport};
pub use stall::{RegionStall, StallOutcome, StallRule};
use targets::Targets;
pub use targets::region_files;
use vcf_assembly::VcfAssembly;
pub(crate) use vcf_assembly::add_json_file;

/// Inputs, output and options of variant calling.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// File of the reference sequence.
    pub reference: PathBuf,
    /// Input of each sample: BAM or CRAM with its index, or the output directory of `align`; for some callers, a GVCF
    /// with its index. All samples are called together.
    pub reads: Vec<PathBuf>,
    /// Reads of the matched normal sample, if `reads` are those of a tumour.
    pub normal: Option<PathBuf>,
    /// Path of the VCF, which ends in `.vcf.gz`.
    pub out: PathBuf,
    /// Public keys of the people who may read the VCF. If there are any, the VCF is encrypted and its name ends in
    /// `.c4gh`.
    pub recipients: Vec<PublicKey>,
    /// The variant caller.
    pub caller: CallerChoice,
    /// Additional command-line options of the caller.
    pub caller_args: String,
    /// BED files and region strings to call; if empty, the whole genome.
    pub regions: Vec<OsString>,
    /// Ploidy of each contig; `None` for the caller's default.
    pub ploidy: Option<PloidyTable>,
    /// Name or path of the ploidy table, as the user gave it.
    pub ploidy_name: Option<String>,
    /// Sex of the sample, as named in the ploidy table.
    pub sex: Option<String>,
    /// Maximum number of target bases of a region, not counting assembly gaps.
    pub max_region_bases: u32,
    /// Bases before and after a region that the caller also reads; `None` for the caller's default.
    pub padding_bases: Option<u32>,
    /// Threads of all callers together.
    pub threads: usize,
    /// Threads of each caller.
    pub caller_threads: usize,
    /// Memory of all callers together, bytes; `None` for half of the host's memory.
    pub memory_bytes: Option<u64>,
    /// Memory of each caller, bytes; `None` for the default of the caller.
    pub caller_memory_bytes: Option<u64>,
    /// When a caller stalls in a region, and how far the region is then cut; `None` if it may take any time.
    pub stall_rule: Option<StallRule>,
    /// Directory of the callers' scratch files; `None` for the job directory beside the output.
    pub temp: Option<PathBuf>,
    /// True to resume a stopped job.
    pub resume: bool,
    /// The godwit program, which decodes CRAM in a process of its own.
    pub godwit_program: PathBuf,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The scanned reference, if an earlier step has scanned the file.
    pub scanned_reference: Option<Arc<ScannedReference>>,
}

impl CallOptions {
    /// Returns options to call `reads` with bcftools, with the threads, scratch directory and command line of the
    /// preceding job. All other options have their defaults.
    pub fn from_job(
        job: &JobOptions,
        reference: &Path,
        reads: Vec<PathBuf>,
        out: &Path,
        max_region_bases: u32,
    ) -> Self {
        Self {
            reference: reference.to_owned(),
            reads,
            normal: None,
            out: out.to_owned(),
            recipients: Vec::new(),
            caller: CallerChoice::Bcftools,
            caller_args: String::new(),
            regions: Vec::new(),
            ploidy: None,
            ploidy_name: None,
            sex: None,
            max_region_bases,
            padding_bases: None,
            threads: job.threads,
            caller_threads: 1,
            memory_bytes: None,
            caller_memory_bytes: None,
            stall_rule: None,
            temp: job.temp.clone(),
            resume: false,
            godwit_program: job.godwit_program.clone(),
            command: job.command.clone(),
            scanned_reference: None,
        }
    }
}

/// Calls variants and returns the report, which is also in `OUT.run.json`. With `cluster`, workers run the callers.
///
/// # Errors
/// [`PipelineError`] if a step fails; no output file has its final name then.
pub fn call(
    options: &CallOptions,
    cluster: Option<&ClusterOptions>,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Result<CallReport, PipelineError> {
    call_remaining(options, 0, cluster, observer, cancelled)
}

/// Calls like [`call`], after this process has called `regions_called_while_writing` regions while the BAM was written.
pub fn call_remaining(
    options: &CallOptions,
    regions_called_while_writing: usize,
    cluster: Option<&ClusterOptions>,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Result<CallReport, PipelineError> {
    let started_at = Instant::now();
    let (caller, caller_slots) = find_caller(options)?;
    observer.event(&Event::Stage { name: "checking reads and reference" });
    let reads = CallInputs::open(&options.reads, options.normal.as_deref(), &options.godwit_program, &*caller)?;
    let inputs = inspect_inputs(options, &reads)?;
    let reference =
        ScannedReference::scan_for_headers(&options.reference, options.scanned_reference.as_ref(), reads.headers())?;
    let targets = Targets::read(&options.regions, reads.genome())?;
    if let Some(targets) = &targets {
        targets.warn_clipped(observer);
    }
    let regions = region_plan::plan_regions(options, &*caller, &reads.grid_input(), &reference, targets.as_ref())?;
    reference.check_caller_support(&options.reference, &*caller)?;
    check_output_available(&options.out)?;
    reference.write_indexes(&options.reference, caller.capabilities().needs_dictionary)?;
    let mut fingerprint = fingerprint::call_fingerprint(options, &*caller, &reference, targets.as_ref());
    fingerprint.extend(fingerprint::reads_fingerprint(&reads)?);
    // If this process has called regions already, it reported resumed regions before the first of them.
    let own_regions = if regions_called_while_writing > 0 { usize::MAX } else { 0 };
    let resume_options = ResumeOptions { resume: options.resume, own_regions };
    let job_directory =
        match open_call_directory(&options.out, options.temp.as_deref(), resume_options, &fingerprint, observer)? {
            CallResumeState::Unfinished(run) => *run,
            CallResumeState::Complete { records } => {
                return Ok(CallReport { records, already_complete: true, ..CallReport::default() });
            }
        };
    let resumed_regions = job_directory.finished_regions.len().saturating_sub(regions_called_while_writing);
    let caller = &*caller;
    let job = CallJob {
        options,
        cluster,
        caller,
        caller_slots,
        reads,
        inputs,
        regions,
        fingerprint,
        resumed_regions,
        regions_called_while_writing,
        observer,
        cancelled,
        started_at,
    };
    let outcome = job.run(&job_directory);
    close_call_directory(outcome, job_directory, &options.out, observer)
}

/// Checks inputs, output and options of variant calling on other hosts, before its job is submitted. If this host lacks
/// the caller, which the other hosts may have, checks only whether the files exist. Writes no files.
///
/// # Errors
/// [`PipelineError`] with which the job itself would fail at its start.
pub fn check_call(options: &CallOptions) -> Result<(), PipelineError> {
    InputFile::inspect("the reference", &options.reference)?;
    for reads in options.reads.iter().chain(&options.normal) {
        InputFile::inspect("the file of reads", reads)?;
    }
    let (caller, _) = match find_caller(options) {
        Err(error) if error.is_missing_program() => return Ok(()),
        found => found?,
    };
    let reads = CallInputs::open(&options.reads, options.normal.as_deref(), &options.godwit_program, &*caller)?;
    inspect_inputs(options, &reads)?;
    let reference =
        ScannedReference::scan_for_headers(&options.reference, options.scanned_reference.as_ref(), reads.headers())?;
    let targets = Targets::read(&options.regions, reads.genome())?;
    region_plan::plan_regions(options, &*caller, &reads.grid_input(), &reference, targets.as_ref())?;
    reference.check_caller_support(&options.reference, &*caller)?;
    check_output_available(&options.out)
}

/// Finds the caller, and computes how many of its processes run at the same time.
fn find_caller(options: &CallOptions) -> Result<(Box<dyn Caller>, CallerSlots), PipelineError> {
    let caller = options.caller.find_caller(&options.caller_args)?;
    let caller_slots = CallerSlots::for_caller(&CallerBudget::from_options(options), &*caller)?;
    Ok((caller, caller_slots))
}

fn inspect_inputs(options: &CallOptions, reads: &CallInputs) -> Result<Vec<InputFile>, PipelineError> {
    let mut inputs = vec![InputFile::inspect("the reference", &options.reference)?];
    for file in &reads.files {
        inputs.push(InputFile::inspect("the file of reads", &file.path)?);
        inputs.push(InputFile::inspect("the index", &file.index)?);
    }
    for bed in targets::region_files(&options.regions) {
        inputs.push(InputFile::inspect("the regions", bed)?);
    }
    check_distinct_files(&inputs, std::slice::from_ref(&options.out))?;
    Ok(inputs)
}

/// A variant calling job whose options have been checked.
struct CallJob<'r> {
    options: &'r CallOptions,
    cluster: Option<&'r ClusterOptions<'r>>,
    caller: &'r dyn Caller,
    caller_slots: CallerSlots,
    reads: CallInputs,
    inputs: Vec<InputFile>,
    regions: Vec<PlannedRegion>,
    fingerprint: Vec<FingerprintEntry>,
    /// Number of regions that an earlier process had called.
    resumed_regions: usize,
    /// Number of regions that were called while the reads were being written.
    regions_called_while_writing: usize,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    started_at: Instant,
}

/// The checkpoints of all regions, and the workers that called them.
struct CalledRegions {
    checkpoints: Vec<RegionCheckpoint>,
    /// Maximum number of concurrent callers.
    concurrent_callers: usize,
    /// Names of the workers of a cluster run.
    worker_names: Vec<String>,
    /// Number of workers that were lost; `None` without a cluster run.
    lost_workers: Option<usize>,
}

impl CallJob<'_> {
    fn run(self, job_directory: &CallJobDirectory) -> Result<CallReport, PipelineError> {
        let options = self.options;
        let planned = Instant::now();
        self.observer.event(&Event::Stage { name: "calling" });
        let called = match self.cluster {
            Some(cluster) => cluster_head::call_on_workers(&self, cluster, job_directory)?,
            None => self.call_locally(job_directory)?,
        };
        let written = Instant::now();
        self.observer.event(&Event::Stage { name: "writing" });
        let mut staged = AtomicSet::default();
        let provenance = self.provenance(&called.checkpoints);
        let (out, genome, regions) = (&options.out, self.reads.genome(), &self.regions);
        let assembly =
            VcfAssembly { out, genome, regions, checkpoints: &called.checkpoints, job_directory, provenance };
        let records = assembly.write_vcf_and_index(&mut staged)?;
        let expected = called.checkpoints.iter().map(|region| region.records).sum();
        if records != expected {
            return Err(PipelineError::CountMismatch { items: "records", expected, actual: records });
        }
        let seconds = |from: Instant, until: Instant| (until - from).as_secs_f64();
        let bytes = staged.sizes().map(|(_, bytes)| bytes).sum();
        let stages = vec![
            Stage { name: "check", seconds: seconds(self.started_at, planned), rows: 0, bytes: 0 },
            Stage { name: "call", seconds: seconds(planned, written), rows: regions.len() as u64, bytes: 0 },
            Stage { name: "write", seconds: written.elapsed().as_secs_f64(), rows: records, bytes },
        ];
        self.cluster.map_or(Ok(()), ClusterOptions::check_current)?;
        self.publish(job_directory, staged, records, &called, stages)
    }

    /// Calls all regions without workers.
    fn call_locally(&self, job_directory: &CallJobDirectory) -> Result<CalledRegions, PipelineError> {
        let Self { options, caller_slots, .. } = self;
        let parent = parent_directory(&options.out);
        let temp = local_scratch::scratch_parent(options.temp.as_deref(), parent, &self.caller.capabilities());
        let scratch = job_directory.create_scratch_directory(temp.as_deref());
        let scratch = scratch.map_err(PipelineError::file("create", CallJobDirectory::path_of(&options.out)))?;
        let reads = self.reads.paths();
        let padding_bases = region_plan::grid_options(options, &self.caller.capabilities()).padding_bases;
        let region_caller = RegionCaller {
            caller: self.caller,
            reference: &options.reference,
            reads: &reads,
            normal: self.reads.normal(),
            genome: self.reads.genome(),
            threads_per_caller: options.caller_threads,
            memory_per_caller: caller_slots.memory_per_caller_bytes,
            stall_rule: options.stall_rule,
            padding_bases,
        };
        let (regions, observer, cancelled) = (&self.regions, self.observer, self.cancelled);
        let calling =
            LocalCalling { region_caller, regions, job_directory, scratch: scratch.path(), observer, cancelled };
        let checkpoints = calling.call_regions(&region_plan::order_by_cost(regions), caller_slots.count)?;
        Ok(CalledRegions {
            checkpoints,
            concurrent_callers: caller_slots.count,
            worker_names: Vec::new(),
            lost_workers: None,
        })
    }

    /// Returns VCF header lines with the origin of the records: only options that change records, so that equal records
    /// are equal files. The last lines name the regions that are set apart.
    fn provenance(&self, checkpoints: &[RegionCheckpoint]) -> Vec<String> {
        let Self { options, caller, .. } = self;
        let mut command = format!("call --caller '{}'", caller.command_line());
        let value = |key: FingerprintKey<'_>| {
            self.fingerprint.iter().find(|entry| key.is_of(entry)).map_or("", |entry| &entry.value)
        };
        if let Some(name) = &options.ploidy_name {
            command += &format!(" --ploidy {name}");
        }
        if let Some(sex) = &options.sex {
            command += &format!(" --sex {sex}");
        }
        if !options.regions.is_empty() {
            command += &format!(" --regions {}", value(FingerprintKey::Regions));
        }
        if caller.capabilities().depends_on_grid {
            command += &format!(
                " --grid-size {} --padding {}",
                value(FingerprintKey::GridSize),
                value(FingerprintKey::Padding)
            );
        }
        let stalls = checkpoints.iter().flat_map(|checkpoint| &checkpoint.effort.stalls);
        let set_apart =
            stalls.filter(|stall| stall.is_set_apart()).map(|stall| format!("##godwit_callSetApart={}", stall.region));
        [
            format!("##godwit_callVersion={}", env!("CARGO_PKG_VERSION")),
            format!("##godwit_callCaller={} {}", caller.name(), caller.version()).trim_end().to_owned(),
            format!("##godwit_callCommand={command}"),
        ]
        .into_iter()
        .chain(set_apart)
        .collect()
    }

    fn publish(
        &self,
        job_directory: &CallJobDirectory,
        mut staged: AtomicSet,
        records: u64,
        called: &CalledRegions,
        stages: Vec<Stage>,
    ) -> Result<CallReport, PipelineError> {
        let out = &self.options.out;
        encrypt_files(&mut staged, std::slice::from_ref(out), &self.options.recipients)?;
        add_manifest("call", out, records, &self.fingerprint, &mut staged)?;
        let report = CallReport::new(self, called, records, stages, &staged);
        publish_outputs(job_directory, out, staged, &report)?;
        Ok(report)
    }
}
