//! Calling variants by region: aligned reads in, one bgzipped VCF with its index out, the same at any number of workers.
//!
//! The genome is cut by a [fixed grid](godwit_model::region_grid); a caller is started on each region, the most expensive
//! first; of what it writes those records count that start in the region; they are put together in the order of the
//! genome. A finished region is kept, so that another process can go on.

mod attempts;
mod identity;
mod kept;
mod live;
pub(crate) mod node;
mod output;
mod plan;
mod reads;
mod recalibrate;
mod reference;
mod report;
mod spread;
mod targets;
mod work;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use godwit_engines::caller::{Caller, CallerChoice};
use godwit_formats::crypt4gh::PublicKey;
use godwit_model::PloidyTable;
use serde::{Deserialize, Serialize};

use crate::error::{Blame, PipelineError};
use crate::fingerprint::FingerprintKey;
use crate::job::JobOptions;
use crate::journal::Fact;
use crate::machine;
use crate::manifest::{self, Manifest, whole};
use crate::observer::{Event, Observer};
use crate::run_directory::compare;
use crate::run_report::{InputFile, Stage, check_distinct};
use crate::scratch::create_private_directory;
use crate::spread::Spread;
use crate::staging::{Staged, check_available};

pub(crate) use identity::contents;
pub use kept::is_call_busy;
use kept::{CallRun, KeptRegion, Opened};
pub(crate) use live::{EndOfWriting, LiveCalling, check as check_caller};
pub(crate) use node::CallWork;
use output::Assembly;
pub(crate) use output::stage_json;
use plan::PlannedRegion;
use reads::CallInputs;
pub(crate) use reads::index_of;
pub use recalibrate::{RecalibrateOptions, RecalibrationReport, SLICE_RECORDS, recalibrate};
pub use reference::ScannedReference;
pub(crate) use reference::write_gzi;
pub use report::{CallReport, CalledRegionReport, CallingNode, Cutting};
use targets::Targets;
pub(crate) use targets::files as region_files;
use work::{Calling, RegionCaller};

/// The option that says how much memory one caller takes.
const CALLER_MEMORY: &str = "--caller-memory";

/// What to call and how.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// The reference.
    pub reference: PathBuf,
    /// BAM or CRAM with its index, or the output directory of `align`, of each sample; they are called together. GVCFs with
    /// their indexes for a caller that takes those.
    pub reads: Vec<PathBuf>,
    /// Reads of the normal beside a tumour, which `reads` then are of.
    pub normal: Option<PathBuf>,
    /// The VCF, ending in `.vcf.gz`.
    pub out: PathBuf,
    /// Who may read the VCF, which has `.c4gh` behind its name then; it is not encrypted where there is nobody.
    pub recipients: Vec<PublicKey>,
    /// The caller.
    pub caller: CallerChoice,
    /// Options of a named caller that change records.
    pub caller_args: String,
    /// BED files and region strings of what is to be called; everything where there are none.
    pub regions: Vec<OsString>,
    /// Copies of each contig, and what users know the table by; the caller's own idea where `None`.
    pub ploidy: Option<PloidyTable>,
    /// Name or path of that table.
    pub ploidy_name: Option<String>,
    /// Sex of the sample, as the table of ploidies has it.
    pub sex: Option<String>,
    /// Bases of a region.
    pub window_bases: u32,
    /// Bases shown to the caller on either side; what it needs where `None`.
    pub padding_bases: Option<u32>,
    /// Threads, of all callers together.
    pub threads: usize,
    /// Threads of each caller.
    pub caller_threads: usize,
    /// Memory, of all callers together; half the machine's where `None`.
    pub memory_bytes: Option<u64>,
    /// Memory of each caller; what it usually takes where `None`.
    pub caller_memory_bytes: Option<u64>,
    /// Where callers put scratch files; beside the output where `None`.
    pub temp: Option<PathBuf>,
    /// Go on with a run that was stopped.
    pub resume: bool,
    /// The godwit program, which decodes CRAM in a process of its own.
    pub program: PathBuf,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The reference, where it was read before.
    pub scanned: Option<Arc<ScannedReference>>,
}

impl CallOptions {
    /// To call all of these reads with bcftools, as a job is told that goes before it; what else there is to say is left to the
    /// caller.
    pub fn after(job: &JobOptions, reference: &Path, reads: Vec<PathBuf>, out: &Path, window_bases: u32) -> Self {
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
            temp: job.temp.clone(),
            resume: false,
            program: job.program.clone(),
            command: job.command.clone(),
            scanned: None,
        }
    }
}

/// Calls variants and returns the report, which is also in `OUT.run.json`. With `spread` other processes call.
///
/// # Errors
/// [`PipelineError`]; no output has its name then.
pub fn call(
    options: &CallOptions,
    spread: Option<&Spread>,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Result<CallReport, PipelineError> {
    call_rest(options, 0, spread, observer, cancelled)
}

/// As [`call`], where that many regions were called by this process while the reads were being written.
pub(crate) fn call_rest(
    options: &CallOptions,
    called_live: usize,
    spread: Option<&Spread>,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Result<CallReport, PipelineError> {
    let started = Instant::now();
    let caller = options.caller.find(&options.caller_args)?;
    let workers = Workers::new(&Budget::of(options), caller.habits().memory_bytes, (caller.name(), CALLER_MEMORY))?;
    observer.event(&Event::Stage { name: "checking reads and reference" });
    let reads = CallInputs::open(&options.reads, options.normal.as_deref(), &options.program, &*caller)?;
    let inputs = inputs(options, &reads)?;
    let reference = ScannedReference::of_reads(&options.reference, options.scanned.as_ref(), reads.headers())?;
    let targets = Targets::read(&options.regions, reads.genome())?;
    if let Some(targets) = &targets {
        targets.warn(observer);
    }
    let regions = plan::regions(options, &caller.habits(), &reads.to_plan(), &reference, targets.as_ref())?;
    reference.check_for(&options.reference, &*caller)?;
    check_output(&options.out)?;
    reference.prepare(&options.reference, caller.habits().needs_dictionary)?;
    let mut facts = identity::facts(options, &*caller, &reference, targets.as_ref());
    facts.extend(identity::of_reads(&reads)?);
    // What else there is, was told when the first of them was called.
    let own = if called_live > 0 { usize::MAX } else { 0 };
    let whose = Whose { resume: options.resume, own };
    let run = match open(&options.out, options.temp.as_deref(), whose, &facts, observer)? {
        Found::Work(run) => *run,
        Found::Complete { records } => {
            return Ok(CallReport { records, already_complete: true, ..CallReport::default() });
        }
    };
    let resumed = run.finished.len().saturating_sub(called_live);
    let caller = &*caller;
    let job = CallJob {
        options,
        spread,
        caller,
        workers,
        reads,
        inputs,
        regions,
        facts,
        resumed,
        called_live,
        observer,
        cancelled,
        started,
    };
    let outcome = job.run(&run);
    close(outcome, run, &options.out, observer)
}

/// Threads and memory of all programs of a process together, and of each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Budget {
    threads: usize,
    threads_each: usize,
    /// Half the machine's where `None`.
    memory_bytes: Option<u64>,
    /// What it usually takes where `None`.
    memory_each: Option<u64>,
    /// Processes that share the machine.
    shared_by: u32,
}

impl Budget {
    fn of(options: &CallOptions) -> Self {
        Self {
            threads: options.threads,
            threads_each: options.caller_threads,
            memory_bytes: options.memory_bytes,
            memory_each: options.caller_memory_bytes,
            shared_by: 1,
        }
    }
}

/// How many programs run at a time.
#[derive(Clone, Copy)]
struct Workers {
    count: usize,
    memory_per_caller: u64,
}

impl Workers {
    /// `usual_bytes`: memory of one program where the budget does not say; then what it is called, and the option that says
    /// how much one takes.
    fn new(budget: &Budget, usual_bytes: u64, (name, option): (&str, &str)) -> Result<Self, PipelineError> {
        let memory_each = budget.memory_each.unwrap_or(usual_bytes);
        let by_threads = (budget.threads / budget.threads_each.max(1)).max(1);
        let memory = match budget.memory_bytes {
            Some(bytes) if bytes < memory_each => {
                let least = memory_each.div_ceil(1 << 20);
                let problem =
                    format!("--memory is less than one {name} takes; give at least {least}M, or set {option}");
                return Err(PipelineError::Options { problem });
            }
            Some(bytes) => bytes,
            // One runs in any case: whether it fits is known only when it has tried.
            None => machine::memory_bytes().unwrap_or(u64::MAX) / 2 / u64::from(budget.shared_by.max(1)),
        };
        let by_memory = usize::try_from(memory / memory_each.max(1)).unwrap_or(usize::MAX).max(1);
        Ok(Self { count: by_threads.min(by_memory), memory_per_caller: memory_each })
    }
}

fn inputs(options: &CallOptions, reads: &CallInputs) -> Result<Vec<InputFile>, PipelineError> {
    let mut inputs = vec![InputFile::of("the reference", &options.reference)?];
    for file in &reads.files {
        inputs.push(InputFile::of("the reads", &file.path)?);
        inputs.push(InputFile::of("the index", &file.index)?);
    }
    for bed in targets::files(&options.regions) {
        inputs.push(InputFile::of("the regions", bed)?);
    }
    check_distinct(&inputs, std::slice::from_ref(&options.out))?;
    Ok(inputs)
}

fn manifest_path(out: &Path) -> PathBuf {
    PathBuf::from(format!("{}{}", out.display(), manifest::SUFFIX))
}

/// Where the report of a job lies that writes one file.
pub(crate) fn report_path(out: &Path) -> PathBuf {
    PathBuf::from(format!("{}.run.json", out.display()))
}

/// Checks that the names of an output and of the files beside it can be given, before hours of work.
///
/// # Errors
/// [`PipelineError::File`] where a directory has one of these names, or another run writes it.
pub(crate) fn check_output(out: &Path) -> Result<(), PipelineError> {
    for suffix in ["", ".tbi", ".csi", ".bai", ".run.json", manifest::SUFFIX] {
        let path = PathBuf::from(format!("{}{suffix}", out.display()));
        check_available(&path).map_err(PipelineError::file("write", &path))?;
    }
    Ok(())
}

/// The manifest of outputs that are all there and are those of this command, where a run is to be gone on with.
pub(crate) fn complete(out: &Path, resume: bool, facts: &[Fact]) -> Result<Option<Manifest>, PipelineError> {
    if !resume || CallRun::path_of(out).join("journal").exists() {
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
    compare(directory, &manifest.identity, facts)?;
    Ok(Some(manifest))
}

/// What an earlier process left.
enum Found {
    /// Work, perhaps all of it.
    Work(Box<CallRun>),
    /// None: the outputs are there.
    Complete {
        /// Records in them.
        records: u64,
    },
}

/// Whose work is gone on with.
#[derive(Clone, Copy)]
struct Whose {
    /// That of a run that was stopped.
    resume: bool,
    /// Pieces that this process did itself, or told of.
    own: usize,
}

/// Makes the directories of an output and of scratch files.
fn make_directories(out: &Path, temp: Option<&Path>) -> Result<(), PipelineError> {
    let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    for directory in directory.into_iter().chain(temp) {
        create_private_directory(directory).map_err(PipelineError::file("create", directory))?;
    }
    Ok(())
}

/// Makes the directories of an output and of scratch files, finds out what there is to do, and says what an earlier run left.
fn open(
    out: &Path,
    temp: Option<&Path>,
    Whose { resume, own }: Whose,
    facts: &[Fact],
    observer: &dyn Observer,
) -> Result<Found, PipelineError> {
    make_directories(out, temp)?;
    if let Some(Manifest { records, .. }) = complete(out, resume, facts)? {
        return Ok(Found::Complete { records });
    }
    let run = match CallRun::open(out, facts, resume)? {
        Opened::Run(run) => run,
        Opened::Complete => {
            let lost = PipelineError::Lost { what: "files", taken: 1, written: 0 };
            return complete(out, resume, facts)?
                .map_or(Err(lost), |done| Ok(Found::Complete { records: done.records }));
        }
    };
    if !resume {
        tell_dropped(&run, "with --resume they would have been kept", observer);
    }
    let before = run.finished.len().saturating_sub(own);
    if before > 0 {
        observer.event(&Event::CallResumed { regions: before });
    }
    Ok(Found::Work(run))
}

/// Says that regions of an earlier process are not gone on with, and why.
fn tell_dropped(run: &CallRun, why: &str, observer: &dyn Observer) {
    if run.dropped > 0 {
        let message = format!("{} called regions of a run that was stopped are dropped; {why}", run.dropped);
        observer.event(&Event::Warning { message });
    }
}

/// Removes the directory of a run that is whole, or that left nothing; keeps all others and says so.
fn close<R>(
    outcome: Result<R, PipelineError>,
    run: CallRun,
    out: &Path,
    observer: &dyn Observer,
) -> Result<R, PipelineError> {
    let path = CallRun::path_of(out);
    match outcome {
        Err(error) if error.blame() != Blame::Bug && run.has_work() => match error {
            PipelineError::Interrupted => Err(PipelineError::Paused { run: path }),
            error => {
                let message =
                    format!("what was done is kept in {}: add --resume to the same command to go on", path.display());
                observer.event(&Event::Warning { message });
                Err(error)
            }
        },
        outcome => {
            run.remove();
            outcome
        }
    }
}

/// Writes the manifest of files that are whole. `records`: those of the output itself.
pub(crate) fn stage_manifest(
    verb: &str,
    out: &Path,
    records: u64,
    facts: &[Fact],
    staged: &mut Staged,
) -> Result<(), PipelineError> {
    let mut files = Vec::new();
    for file in staged.files() {
        let mut entry = whole(file).map_err(PipelineError::file("read", file.path()))?;
        entry.records = (file.path() == out).then_some(records);
        files.push(entry);
    }
    let manifest = Manifest {
        godwit: env!("CARGO_PKG_VERSION").into(),
        verb: verb.into(),
        identity: facts.to_vec(),
        records,
        files,
        ..Manifest::default()
    };
    stage_json(staged, &manifest_path(out), &manifest)
}

/// Writes the report, and gives all files their names.
fn publish(run: &CallRun, out: &Path, mut staged: Staged, report: &impl serde::Serialize) -> Result<(), PipelineError> {
    stage_json(&mut staged, &report_path(out), report)?;
    run.publishing(&mut staged).map_err(PipelineError::file("write the journal of", out))?;
    staged.publish().map_err(|(path, source)| PipelineError::File { action: "name", path, source })
}

/// What is to be done, once it is known to make sense.
struct CallJob<'r> {
    options: &'r CallOptions,
    spread: Option<&'r Spread<'r>>,
    caller: &'r dyn Caller,
    workers: Workers,
    reads: CallInputs,
    inputs: Vec<InputFile>,
    regions: Vec<PlannedRegion>,
    facts: Vec<Fact>,
    /// Regions that an earlier process had called.
    resumed: usize,
    /// Regions that were called while the reads were being written.
    called_live: usize,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    started: Instant,
}

/// What came of all regions, and who called them.
struct Called {
    kept: Vec<KeptRegion>,
    /// Callers that ran at a time, at most.
    workers: usize,
    /// Names of the nodes that were part of it, where there were any.
    nodes: Vec<String>,
    /// How many were lost on the way.
    lost_nodes: Option<usize>,
}

impl CallJob<'_> {
    fn run(self, run: &CallRun) -> Result<CallReport, PipelineError> {
        let options = self.options;
        let planned = Instant::now();
        self.observer.event(&Event::Stage { name: "calling" });
        let called = match self.spread {
            Some(spread) => spread::call_on_nodes(&self, spread, run)?,
            None => self.call_here(run)?,
        };
        let written = Instant::now();
        self.observer.event(&Event::Stage { name: "writing" });
        let mut staged = Staged::default();
        let provenance = self.provenance();
        let (out, genome, regions) = (&options.out, self.reads.genome(), &self.regions);
        let assembly = Assembly { out, genome, regions, kept: &called.kept, run, provenance };
        let records = assembly.write(&mut staged)?;
        let taken = called.kept.iter().map(|region| region.records).sum();
        if records != taken {
            return Err(PipelineError::Lost { what: "records", taken, written: records });
        }
        let seconds = |from: Instant, until: Instant| (until - from).as_secs_f64();
        let bytes = staged.sizes().map(|(_, bytes)| bytes).sum();
        let stages = vec![
            Stage { name: "check", seconds: seconds(self.started, planned), rows: 0, bytes: 0 },
            Stage { name: "call", seconds: seconds(planned, written), rows: regions.len() as u64, bytes: 0 },
            Stage { name: "write", seconds: written.elapsed().as_secs_f64(), rows: records, bytes },
        ];
        self.spread.map_or(Ok(()), Spread::check_current)?;
        self.publish(run, staged, records, &called, stages)
    }

    /// Calls all regions in this process.
    fn call_here(&self, run: &CallRun) -> Result<Called, PipelineError> {
        let Self { options, workers, .. } = self;
        let scratch = run.scratch(options.temp.as_deref());
        let scratch = scratch.map_err(PipelineError::file("create", CallRun::path_of(&options.out)))?;
        let reads = self.reads.paths();
        let on = RegionCaller {
            caller: self.caller,
            reference: &options.reference,
            reads: &reads,
            normal: self.reads.normal(),
            genome: self.reads.genome(),
            threads_per_caller: options.caller_threads,
            memory_per_caller: workers.memory_per_caller,
        };
        let (regions, observer, cancelled) = (&self.regions, self.observer, self.cancelled);
        let calling = Calling { on, regions, run, scratch: scratch.path(), observer, cancelled };
        let kept = calling.work(&plan::order(regions), workers.count)?;
        Ok(Called { kept, workers: workers.count, nodes: Vec::new(), lost_nodes: None })
    }

    /// How the records came to be: what changes them, and nothing else, so that equal records are equal files.
    fn provenance(&self) -> Vec<String> {
        let Self { options, caller, .. } = self;
        let mut command = format!("call --caller '{}'", caller.command_line());
        let fact =
            |key: FingerprintKey<'_>| self.facts.iter().find(|fact| key.is_of(fact)).map_or("", |fact| &fact.value);
        if let Some(name) = &options.ploidy_name {
            command += &format!(" --ploidy {name}");
        }
        if let Some(sex) = &options.sex {
            command += &format!(" --sex {sex}");
        }
        if !options.regions.is_empty() {
            command += &format!(" --regions {}", fact(FingerprintKey::Regions));
        }
        if caller.habits().depends_on_grid {
            command +=
                &format!(" --grid-size {} --padding {}", fact(FingerprintKey::GridSize), fact(FingerprintKey::Padding));
        }
        vec![
            format!("##godwit_callVersion={}", env!("CARGO_PKG_VERSION")),
            format!("##godwit_callCaller={} {}", caller.name(), caller.version()).trim_end().to_owned(),
            format!("##godwit_callCommand={command}"),
        ]
    }

    fn publish(
        &self,
        run: &CallRun,
        mut staged: Staged,
        records: u64,
        called: &Called,
        stages: Vec<Stage>,
    ) -> Result<CallReport, PipelineError> {
        let out = &self.options.out;
        staged.encrypt(std::slice::from_ref(out), &self.options.recipients)?;
        stage_manifest("call", out, records, &self.facts, &mut staged)?;
        let report = CallReport::new(self, called, records, stages, &staged);
        publish(run, out, staged, &report)?;
        Ok(report)
    }
}
