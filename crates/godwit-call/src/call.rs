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
use godwit_files::{AtomicSet, check_available, parent_directory};
use godwit_io::crypt4gh::PublicKey;
use godwit_model::ErrorKind;
use godwit_model::PloidyTable;
use godwit_pipeline::encryption::encrypt_files;
use godwit_pipeline::fingerprint::FingerprintKey;
use godwit_pipeline::job_directory::check_fingerprint;
use godwit_pipeline::job_report::{InputFile, Stage, check_distinct_files};
use godwit_pipeline::manifest::{self, Manifest, checksummed_entry};
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::scanned_reference::ScannedReference;
use godwit_pipeline::scratch::create_private_directory;
use godwit_pipeline::{FingerprintEntry, JobOptions, PipelineError};

use call_inputs::CallInputs;
pub use call_inputs::find_index;
pub use call_worker::run_call_worker;
use caller_slots::{CallerBudget, CallerSlots};
pub use checkpoint::is_call_running;
use checkpoint::{CallDirectoryState, CallJobDirectory, RegionCheckpoint};
pub use cluster_messages::CallTask;
pub use concurrent_calling::{ConcurrentCalling, StopCallingGuard, check_caller};
pub(crate) use fingerprint::sizes_and_checksums;
pub use recalibrate::{RecalibrateOptions, RecalibrationEngine, RecalibrationReport, recalibrate};
use region_calling::{LocalCalling, RegionCaller};
use region_plan::PlannedRegion;
pub use report::{CallReport, CallWorkerReport, GridReport, RegionReport};
use stall::RegionPace;
pub use stall::{RegionStall, StallOutcome, StallRule};
use targets::Targets;
pub use targets::region_files;
use vcf_assembly::VcfAssembly;
pub(crate) use vcf_assembly::add_json_file;

/// Command-line option for the memory of one caller process.
const CALLER_MEMORY: &str = "--caller-memory";

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
    /// Length of a region, bases.
    pub window_bases: u32,
    /// Bases before and after a region that the caller also reads; `None` for the caller's default.
    pub padding_bases: Option<u32>,
    /// Threads of all callers together.
    pub threads: usize,
    /// Threads of each caller.
    pub caller_threads: usize,
    /// Memory of all callers together, bytes; `None` for half of the host's memory.
    pub memory_bytes: Option<u64>,
    /// Memory of each caller, bytes; `None` for the usual memory of the caller.
    pub caller_memory_bytes: Option<u64>,
    /// When a caller stalls in a region, and how far the region is then cut.
    pub stall_rule: StallRule,
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
    pub fn from_job(job: &JobOptions, reference: &Path, reads: Vec<PathBuf>, out: &Path, window_bases: u32) -> Self {
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
            window_bases,
            padding_bases: None,
            threads: job.threads,
            caller_threads: 1,
            memory_bytes: None,
            caller_memory_bytes: None,
            stall_rule: StallRule::default(),
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
    let caller = options.caller.find_caller(&options.caller_args)?;
    let caller_slots = CallerSlots::new(
        &CallerBudget::from_options(options),
        caller.capabilities().memory_bytes,
        (caller.name(), CALLER_MEMORY),
    )?;
    observer.event(&Event::Stage { name: "checking reads and reference" });
    let reads = CallInputs::open(&options.reads, options.normal.as_deref(), &options.godwit_program, &*caller)?;
    let inputs = inspect_inputs(options, &reads)?;
    let reference =
        ScannedReference::scan_for_headers(&options.reference, options.scanned_reference.as_ref(), reads.headers())?;
    let targets = Targets::read(&options.regions, reads.genome())?;
    if let Some(targets) = &targets {
        targets.warn_clipped(observer);
    }
    let regions =
        region_plan::plan_regions(options, &caller.capabilities(), &reads.grid_input(), &reference, targets.as_ref())?;
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

fn manifest_path(out: &Path) -> PathBuf {
    PathBuf::from(format!("{}{}", out.display(), manifest::MANIFEST_SUFFIX))
}

/// Returns the path of the report of a job that writes one file.
pub fn report_path(out: &Path) -> PathBuf {
    PathBuf::from(format!("{}.run.json", out.display()))
}

/// Checks, before hours of work, that the output and its sidecar files can be created under their final names.
///
/// # Errors
/// [`PipelineError::File`] if a directory has one of these names, or another process writes the file.
pub(crate) fn check_output_available(out: &Path) -> Result<(), PipelineError> {
    for suffix in ["", ".tbi", ".csi", ".bai", ".run.json", manifest::MANIFEST_SUFFIX] {
        let path = PathBuf::from(format!("{}{suffix}", out.display()));
        check_available(&path).map_err(PipelineError::file("write", &path))?;
    }
    Ok(())
}

/// Returns the manifest if `resume` is true and all outputs of the same command already exist.
pub(crate) fn complete_manifest(
    out: &Path,
    resume: bool,
    fingerprint: &[FingerprintEntry],
) -> Result<Option<Manifest>, PipelineError> {
    if !resume || CallJobDirectory::path_of(out).join("journal").exists() {
        return Ok(None);
    }
    let path = manifest_path(out);
    let manifest = match Manifest::read(&path) {
        Ok(manifest) => manifest,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(PipelineError::file("read", path)(error)),
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let Some(manifest) = manifest.filter(|manifest| manifest.is_complete(directory)) else { return Ok(None) };
    check_fingerprint(directory, &manifest.fingerprint, fingerprint)?;
    Ok(Some(manifest))
}

/// The state in which an earlier process left the job.
enum CallResumeState {
    /// An unfinished job, with the checkpoints of finished regions.
    Unfinished(Box<CallJobDirectory>),
    /// A complete job, whose outputs exist.
    Complete {
        /// Number of records in the output.
        records: u64,
    },
}

/// Options that decide which checkpoints are used.
#[derive(Clone, Copy)]
struct ResumeOptions {
    /// True to use the checkpoints of a stopped job.
    resume: bool,
    /// Number of regions that this process has called itself or has already reported as resumed.
    own_regions: usize,
}

/// Creates the directories of an output and of scratch files.
fn create_directories(out: &Path, temp: Option<&Path>) -> Result<(), PipelineError> {
    let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    for directory in directory.into_iter().chain(temp) {
        create_private_directory(directory).map_err(PipelineError::file("create", directory))?;
    }
    Ok(())
}

/// Creates the directories of an output and of scratch files, opens the job directory and reports its checkpoints.
fn open_call_directory(
    out: &Path,
    temp: Option<&Path>,
    ResumeOptions { resume, own_regions }: ResumeOptions,
    facts: &[FingerprintEntry],
    observer: &dyn Observer,
) -> Result<CallResumeState, PipelineError> {
    create_directories(out, temp)?;
    if let Some(Manifest { records, .. }) = complete_manifest(out, resume, facts)? {
        return Ok(CallResumeState::Complete { records });
    }
    let job_directory = match CallJobDirectory::open(out, facts, resume)? {
        CallDirectoryState::Open(run) => run,
        CallDirectoryState::Complete => {
            let lost = PipelineError::CountMismatch { items: "files", expected: 1, actual: 0 };
            return complete_manifest(out, resume, facts)?
                .map_or(Err(lost), |done| Ok(CallResumeState::Complete { records: done.records }));
        }
    };
    if !resume {
        warn_dropped_regions(&job_directory, "--resume keeps them", observer);
    }
    let before = job_directory.finished_regions.len().saturating_sub(own_regions);
    if before > 0 {
        observer.event(&Event::CallResumed { regions: before });
    }
    Ok(CallResumeState::Unfinished(job_directory))
}

/// Warns that regions of an earlier process are dropped, and why.
fn warn_dropped_regions(job_directory: &CallJobDirectory, why: &str, observer: &dyn Observer) {
    if job_directory.dropped_regions > 0 {
        let message = format!("{} called regions of a stopped job are removed; {why}", job_directory.dropped_regions);
        observer.event(&Event::Warning { message });
    }
}

/// Removes the job directory after success, after an internal error, or without checkpoints. Otherwise reports its path
/// to the user.
fn close_call_directory<R>(
    outcome: Result<R, PipelineError>,
    job_directory: CallJobDirectory,
    out: &Path,
    observer: &dyn Observer,
) -> Result<R, PipelineError> {
    let path = CallJobDirectory::path_of(out);
    match outcome {
        Err(error) if error.kind() != ErrorKind::Bug && job_directory.has_checkpoints() => match error {
            PipelineError::Interrupted => Err(PipelineError::InterruptedResumable { job_directory: path }),
            error => {
                let message =
                    format!("the checkpoints are in {}: add --resume to the same command to resume", path.display());
                observer.event(&Event::Warning { message });
                Err(error)
            }
        },
        outcome => {
            job_directory.remove();
            outcome
        }
    }
}

/// Writes the manifest of the files in `staged` and adds it to them. `records` is the number of records in the output.
pub(crate) fn add_manifest(
    verb: &str,
    out: &Path,
    records: u64,
    fingerprint: &[FingerprintEntry],
    staged: &mut AtomicSet,
) -> Result<(), PipelineError> {
    let mut files = Vec::new();
    for file in staged.files() {
        let mut entry = checksummed_entry(file).map_err(PipelineError::file("read", file.path()))?;
        entry.records = (file.path() == out).then_some(records);
        files.push(entry);
    }
    let manifest = Manifest {
        godwit: env!("CARGO_PKG_VERSION").into(),
        verb: verb.into(),
        fingerprint: fingerprint.to_vec(),
        records,
        files,
        ..Manifest::default()
    };
    add_json_file(staged, &manifest_path(out), &manifest)
}

/// Writes the report, and renames all files to their final names.
fn publish_outputs(
    job_directory: &CallJobDirectory,
    out: &Path,
    mut staged: AtomicSet,
    report: &impl serde::Serialize,
) -> Result<(), PipelineError> {
    add_json_file(&mut staged, &report_path(out), report)?;
    job_directory.record_publish(&mut staged).map_err(PipelineError::file("write the journal of", out))?;
    staged.publish().map_err(|(path, source)| PipelineError::File { action: "name", path, source })
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
            Some(spread) => cluster_head::call_on_workers(&self, spread, job_directory)?,
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
            pace: &RegionPace::new(options.stall_rule, padding_bases),
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
        let fact = |key: FingerprintKey<'_>| {
            self.fingerprint.iter().find(|fact| key.is_of(fact)).map_or("", |fact| &fact.value)
        };
        if let Some(name) = &options.ploidy_name {
            command += &format!(" --ploidy {name}");
        }
        if let Some(sex) = &options.sex {
            command += &format!(" --sex {sex}");
        }
        if !options.regions.is_empty() {
            command += &format!(" --regions {}", fact(FingerprintKey::Regions));
        }
        if caller.capabilities().depends_on_grid {
            command +=
                &format!(" --grid-size {} --padding {}", fact(FingerprintKey::GridSize), fact(FingerprintKey::Padding));
        }
        let stalls = checkpoints.iter().flat_map(|checkpoint| &checkpoint.effort.stalls);
        let set_apart = stalls
            .filter(|stall| stall.outcome == StallOutcome::SetApart)
            .map(|stall| format!("##godwit_callSetApart={}", stall.region));
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
