//! Base quality recalibration of a BAM in slices. The output is the BAM that a single GATK process for the whole file
//! would write.
//!
//! The file is divided into [slices](bam_slicer) of consecutive records. It is not divided by regions of the genome: a
//! read across the border of two regions would be counted twice. GATK BaseRecalibrator counts the qualities in each
//! slice, and the counts are added. ApplyBQSR changes the qualities of each slice by the merged table, and the slices
//! are joined.

mod bam_slicer;
mod report;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use godwit_engines::gatk::{DEFAULT_MEMORY_BYTES, GatkToolkit, PROGRAM};
use godwit_engines::recalibrator::{self, RecalibrationInvocation, RecalibrationTables};
use godwit_engines::{EngineError, ProcessPipeline};
use godwit_files::{AtomicFile, AtomicSet};
use godwit_formats::binning_index::{IndexBuilder, IndexFormat};
use godwit_io::bgzf;
use godwit_pipeline::FingerprintEntry;
use godwit_pipeline::PipelineError;
use godwit_pipeline::fingerprint::FingerprintKey;
use godwit_pipeline::job_report::{InputFile, Stage, check_distinct_files};
use godwit_pipeline::observer::{Event, Observer, rounded_seconds};
use godwit_pipeline::scanned_reference::ScannedReference;

use super::call_inputs::{AlignedReads, find_index};
use super::checkpoint::{CallJobDirectory, RegionAttempts, RegionCheckpoint};
use super::fingerprint::{FILE_PREFIX_BYTES, sizes_and_checksums};
use super::item_threads::ItemThreads;
use super::region_calling::RegionCalls;
use super::retry::{AttemptResult, WorkLabel, run_with_retry};
use super::{
    CallResumeState, CallerBudget, CallerSlots, ResumeOptions, add_manifest, check_output_available,
    close_call_directory, open_call_directory, publish_outputs,
};
use bam_slicer::{BamPart, BamSlice, BamSlicer, encode_header};
pub use report::RecalibrationReport;

/// Default number of records in a slice, which one GATK process processes.
pub const SLICE_RECORDS: u64 = 500_000;
/// The two passes over each slice: the first counts base qualities, the second changes them.
const COUNT_PASS: u8 = 1;
const APPLY_PASS: u8 = 2;

/// Inputs, output and options of a recalibration.
#[derive(Clone, Debug)]
pub struct RecalibrateOptions {
    /// File of the reference sequence.
    pub reference: PathBuf,
    /// BAM with its index, or the output directory of `align`.
    pub reads: PathBuf,
    /// VCFs of known variants with their indexes, at least one. Mismatches at these variants do not count as sequencing
    /// errors.
    pub known_sites: Vec<PathBuf>,
    /// Path of the BAM to write.
    pub out: PathBuf,
    /// Approximate number of records of a slice.
    pub slice_records: u64,
    /// Number of threads; each of them runs one GATK process at a time.
    pub threads: usize,
    /// Memory of all GATK processes together, bytes; `None` for half of the host's memory.
    pub memory_bytes: Option<u64>,
    /// Memory of each GATK process, bytes; `None` for 4 GiB.
    pub gatk_memory_bytes: Option<u64>,
    /// Directory of slices and GATK's scratch files; `None` for the job directory beside the output.
    pub temp: Option<PathBuf>,
    /// True to resume a stopped job.
    pub resume: bool,
    /// Path of the godwit program.
    pub godwit_program: PathBuf,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The scanned reference, if an earlier step has scanned the file.
    pub scanned_reference: Option<Arc<ScannedReference>>,
}

/// Recalibrates base qualities and returns the report, which is also in `OUT.run.json`. The recalibration table is
/// beside the output, with the extension `.recal.table` instead of `.bam`.
///
/// # Errors
/// [`PipelineError`] if a step fails; no output file has its final name then.
pub fn recalibrate(
    options: &RecalibrateOptions,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Result<RecalibrationReport, PipelineError> {
    let started_at = Instant::now();
    let toolkit = GatkToolkit::find_installed()?;
    let budget = CallerBudget {
        threads: options.threads,
        threads_per_caller: 1,
        memory_bytes: options.memory_bytes,
        memory_per_caller_bytes: options.gatk_memory_bytes,
        host_processes: 1,
    };
    let gatk_slots = CallerSlots::new(&budget, DEFAULT_MEMORY_BYTES, (PROGRAM, "--gatk-memory"))?;
    observer.event(&Event::Stage { name: "checking reads and reference" });
    let reads = AlignedReads::open(&options.reads, &options.godwit_program)?;
    let inputs = inspect_inputs(options, &reads)?;
    let header = std::iter::once((&*reads.path, &reads.header));
    let reference = ScannedReference::scan_for_headers(&options.reference, options.scanned_reference.as_ref(), header)?;
    reference.write_indexes(&options.reference, true)?;
    check_output_available(&options.out)?;
    let fingerprint = recalibrate_fingerprint(options, &toolkit, &reads, &reference)?;
    let resume_options = ResumeOptions { resume: options.resume, own_regions: 0 };
    let job_directory =
        match open_call_directory(&options.out, options.temp.as_deref(), resume_options, &fingerprint, observer)? {
            CallResumeState::Unfinished(run) => *run,
            CallResumeState::Complete { records } => {
                return Ok(RecalibrationReport { records, already_complete: true, ..RecalibrationReport::default() });
            }
        };
    let job = RecalibrateJob {
        options,
        toolkit,
        gatk_slots,
        reads,
        inputs,
        fingerprint,
        job_directory: &job_directory,
        observer,
        cancelled,
        started_at,
    };
    let outcome = job.run();
    close_call_directory(outcome, job_directory, &options.out, observer)
}

fn inspect_inputs(options: &RecalibrateOptions, reads: &AlignedReads) -> Result<Vec<InputFile>, PipelineError> {
    if reads.index.extension().is_some_and(|extension| extension == "crai") {
        let path = reads.path.display();
        let problem =
            format!("{path} is CRAM; recalibrate reads BAM, as `align --format bam` or `samtools view -b` writes it");
        return Err(PipelineError::Options { problem });
    }
    let mut inputs = vec![
        InputFile::inspect("the reference", &options.reference)?,
        InputFile::inspect("the file of reads", &reads.path)?,
    ];
    for sites in &options.known_sites {
        inputs.push(InputFile::inspect("the known sites", sites)?);
        inputs.push(InputFile::inspect("the index", &find_index(sites, &["tbi", "csi", "idx"], "tabix -p vcf")?)?);
    }
    check_distinct_files(&inputs, std::slice::from_ref(&options.out))?;
    Ok(inputs)
}

fn recalibrate_fingerprint(
    options: &RecalibrateOptions,
    toolkit: &GatkToolkit,
    reads: &AlignedReads,
    reference: &ScannedReference,
) -> Result<Vec<FingerprintEntry>, PipelineError> {
    let known = options.known_sites.iter().map(|sites| (&**sites, u64::MAX));
    let entries = [
        (FingerprintKey::GodwitVersion, env!("CARGO_PKG_VERSION").to_owned()),
        (FingerprintKey::GatkVersion, toolkit.version().to_owned()),
        (FingerprintKey::Reference, reference.checksum.clone()),
        (FingerprintKey::Reads, sizes_and_checksums([(&*reads.path, FILE_PREFIX_BYTES)].into_iter())?),
        (FingerprintKey::ReadsIndex, sizes_and_checksums([(&*reads.index, u64::MAX)].into_iter())?),
        (FingerprintKey::KnownSites, sizes_and_checksums(known)?),
        (FingerprintKey::SliceRecords, options.slice_records.to_string()),
    ];
    Ok(entries.into_iter().map(|(key, value)| key.fact(value)).collect())
}

/// A recalibration job whose options have been checked.
struct RecalibrateJob<'r> {
    options: &'r RecalibrateOptions,
    toolkit: GatkToolkit,
    gatk_slots: CallerSlots,
    reads: AlignedReads,
    inputs: Vec<InputFile>,
    fingerprint: Vec<FingerprintEntry>,
    job_directory: &'r CallJobDirectory,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    started_at: Instant,
}

/// A pass over all slices that is in progress.
struct SlicePass<'j> {
    job: &'j RecalibrateJob<'j>,
    pass: u8,
    scratch: &'j Path,
    slicer: Mutex<BamSlicer>,
    checkpoints: Mutex<Vec<RegionCheckpoint>>,
    finished_slices: AtomicUsize,
    finished_records: AtomicU64,
    threads: ItemThreads<'j>,
}

impl RecalibrateJob<'_> {
    fn run(&self) -> Result<RecalibrationReport, PipelineError> {
        let options = self.options;
        let planned = Instant::now();
        let scratch = self
            .job_directory
            .create_scratch_directory(options.temp.as_deref())
            .map_err(self.output_error("create scratch files for"))?;
        self.run_passes(scratch.path(), planned)
    }

    fn output_error(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> PipelineError {
        PipelineError::file(action, &self.options.out)
    }

    fn run_passes(&self, scratch: &Path, planned: Instant) -> Result<RecalibrationReport, PipelineError> {
        self.observer.event(&Event::Stage { name: "counting qualities" });
        let count = |slice: &RecalibrationInvocation, out: &Path| {
            recalibrator::start_base_recalibrator(&self.toolkit, slice, &self.options.known_sites, out)
        };
        let counted = self.run_pass(COUNT_PASS, scratch, |slice, directory, stop| {
            let out = directory.join("recal.table");
            self.wait_for_output(count(slice, &out)?, stop, &out)?;
            let table = std::fs::read(&out).map_err(|source| io_engine_error(&out, source))?;
            Ok(table)
        })?;
        let table = scratch.join("recal.table");
        self.merge_tables(scratch, &counted, &table)?;
        let gathered = Instant::now();
        self.observer.event(&Event::Stage { name: "changing qualities" });
        let genome = &self.reads.genome;
        let changed = self.run_pass(APPLY_PASS, scratch, |slice, directory, stop| {
            let out = directory.join("changed.bam");
            let chain = recalibrator::start_apply_bqsr(&self.toolkit, slice, &table, &out)?;
            chain.wait(stop)?;
            let part =
                BamPart::from_bam(&out, genome).map_err(|error| chain.output_error(format!("its output: {error}")))?;
            part.to_bytes().map_err(|source| io_engine_error(&out, source))
        })?;
        let changed_at = Instant::now();
        self.observer.event(&Event::Stage { name: "writing" });
        let mut staged = AtomicSet::default();
        let records = self.assemble_bam(&changed, &mut staged)?;
        let table_path = table_path(&self.options.out);
        std::fs::read(&table)
            .and_then(|bytes| staged.write_file(&table_path, &bytes))
            .map_err(PipelineError::file("write", &table_path))?;
        let stage = |name, from: Instant, until: Instant, rows| Stage {
            name,
            seconds: rounded_seconds(until - from),
            rows,
            bytes: 0,
        };
        let slices = changed.len() as u64;
        let stages = vec![
            stage("check", self.started_at, planned, 0),
            stage("count", planned, gathered, slices),
            stage("change", gathered, changed_at, slices),
            stage("write", changed_at, Instant::now(), records),
        ];
        add_manifest("recalibrate", &self.options.out, records, &self.fingerprint, &mut staged)?;
        let report = RecalibrationReport::new(self, stages, changed.len(), records, &staged);
        publish_outputs(self.job_directory, &self.options.out, staged, &report)?;
        Ok(report)
    }

    /// Runs a pass over all slices on several threads. Returns the checkpoints in the order of the slices in the file.
    fn run_pass(
        &self,
        pass: u8,
        scratch: &Path,
        work: impl Fn(&RecalibrationInvocation, &Path, &dyn Fn() -> bool) -> Result<Vec<u8>, EngineError> + Sync,
    ) -> Result<Vec<RegionCheckpoint>, PipelineError> {
        let slicer = BamSlicer::open(&self.reads.path, self.gatk_slots.count, self.options.slice_records)?;
        let step = SlicePass {
            job: self,
            pass,
            scratch,
            slicer: Mutex::new(slicer),
            checkpoints: Mutex::default(),
            finished_slices: AtomicUsize::new(0),
            finished_records: AtomicU64::new(0),
            threads: ItemThreads::new(self.cancelled),
        };
        let outcome = step.threads.run(self.gatk_slots.count, |thread| step.process_next_slice(thread, &work));
        (0..self.gatk_slots.count).for_each(|thread| drop(std::fs::remove_file(step.slice_path(thread))));
        outcome?;
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        Ok(step.checkpoints.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until a program ends, and verifies that it has written the file `out`.
    fn wait_for_output(&self, chain: ProcessPipeline, stop: &dyn Fn() -> bool, out: &Path) -> Result<(), EngineError> {
        chain.wait(stop)?;
        match out.is_file() {
            true => Ok(()),
            false => Err(chain.output_error("it exited without an error, but wrote no output".to_owned())),
        }
    }

    /// Adds up the recalibration tables of all slices, and writes the merged table to `out`.
    fn merge_tables(&self, scratch: &Path, counted: &[RegionCheckpoint], out: &Path) -> Result<(), PipelineError> {
        let wrong = |problem: String| PipelineError::CallerOutput {
            region: "the slices of the reads".to_owned(),
            problem: format!("is invalid: the recalibration tables cannot be added up: {problem}"),
        };
        let mut sum = RecalibrationTables::default();
        for kept in counted {
            let table =
                self.job_directory.read_range(kept.lines).map_err(self.output_error("read the checkpoint for"))?;
            sum.add_report(&String::from_utf8_lossy(&table)).map_err(wrong)?;
        }
        let whole = sum.to_report().map_err(wrong)?;
        let directory = scratch.join("gather");
        let stop = || self.cancelled.load(Ordering::Relaxed);
        let named = WorkLabel { action: "adding up", item: "the tables of all slices" };
        let gathered = run_with_retry(named, &directory, self.observer, &stop, || {
            let merged = directory.join("merged.table");
            std::fs::write(&merged, &whole).map_err(|source| io_engine_error(&merged, source))?;
            let memory = self.gatk_slots.memory_per_caller_bytes;
            self.wait_for_output(
                recalibrator::start_gather_reports(&self.toolkit, &merged, &directory, memory, out)?,
                &stop,
                out,
            )
        })?;
        let AttemptResult { value: (), .. } = gathered;
        Ok(())
    }

    /// Joins the recalibrated slices into the output BAM and writes its index. Returns the number of records.
    fn assemble_bam(&self, changed: &[RegionCheckpoint], staged: &mut AtomicSet) -> Result<u64, PipelineError> {
        let out = &self.options.out;
        let mut header = self.reads.header.clone();
        let command = format!("godwit recalibrate with GATK {}", self.toolkit.version());
        header.add_program("godwit-recalibrate", &[("VN", env!("CARGO_PKG_VERSION")), ("CL", &command)]);
        let mut head = bgzf::Writer::new(Vec::new(), bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        let bytes = encode_header(out, &header)?;
        let head = head.write_bytes(&bytes).and_then(|()| head.finish_blocks());
        let (head, mut offset) = head.map_err(self.output_error("write"))?;
        let bam = AtomicFile::create(out).map_err(self.output_error("write"))?;
        let mut file = bam.file();
        file.write_all(&head).map_err(self.output_error("write"))?;
        let (mut parts, mut records, mut expected) = (Vec::new(), 0, 0);
        for kept in changed {
            let bytes = self.job_directory.read_range(kept.lines).map_err(PipelineError::file("read", out))?;
            let part = BamPart::from_bytes(&bytes).map_err(self.output_error("read the checkpoint for"))?;
            (records, expected) = (records + part.records, expected + kept.records);
            file.write_all(part.blocks).map_err(self.output_error("write"))?;
            parts.push((part.index, offset));
            offset += part.blocks.len() as u64;
        }
        if records != expected {
            return Err(PipelineError::CountMismatch { items: "records", expected, actual: records });
        }
        file.write_all(&bgzf::EOF_BLOCK).and_then(|()| staged.add(bam)).map_err(self.output_error("write"))?;
        let genome = &self.reads.genome;
        let format = IndexFormat::for_genome(genome);
        let index_path = PathBuf::from(format!("{}.{}", out.display(), format.extension()));
        let unsorted = |error: godwit_formats::binning_index::IndexError| PipelineError::Corrupt {
            path: self.reads.path.clone(),
            problem: error.to_string(),
        };
        let mut bytes = Vec::new();
        let whole = IndexBuilder::merge(parts).map_err(unsorted)?;
        whole
            .write(format, genome, &mut bytes)
            .and_then(|()| staged.write_file(&index_path, &bytes))
            .map_err(PipelineError::file("write", &index_path))?;
        Ok(records)
    }
}

/// Returns the path of the recalibration table of an output.
fn table_path(out: &Path) -> PathBuf {
    out.with_extension("recal.table")
}

fn io_engine_error(path: &Path, source: std::io::Error) -> EngineError {
    EngineError::Io { program: path.to_owned(), action: "use", source }
}

impl SlicePass<'_> {
    /// Returns the path of the file with the reads of the current slice of a thread.
    fn slice_path(&self, thread: usize) -> PathBuf {
        self.scratch.join(format!("slice-{thread}.bam"))
    }

    /// Returns the index of the checkpoint of a slice in this pass.
    fn checkpoint_index(&self, slice: usize) -> usize {
        slice * usize::from(APPLY_PASS) + usize::from(self.pass - COUNT_PASS)
    }

    /// Processes the next slice, or takes its checkpoint. Returns false if no slice is left. An error contains the index
    /// of the slice.
    fn process_next_slice(
        &self,
        thread: usize,
        work: &(impl Fn(&RecalibrationInvocation, &Path, &dyn Fn() -> bool) -> Result<Vec<u8>, EngineError> + Sync),
    ) -> Result<bool, (usize, PipelineError)> {
        let reads = self.slice_path(thread);
        let finished = |index: usize| self.job.job_directory.finished_regions.get(&self.checkpoint_index(index));
        let next = {
            let mut slicer = self.slicer.lock().unwrap_or_else(PoisonError::into_inner);
            slicer.next_slice(|index| finished(index).is_none().then_some(&*reads))
        };
        // If reading the input failed, errors of earlier slices take precedence.
        let Some(slice) = next.map_err(|error| (usize::MAX, error))? else { return Ok(false) };
        let kept = match finished(slice.index) {
            Some(kept) => kept.clone(),
            None => self.process_slice(slice, &reads, work).map_err(|error| (slice.index, error))?,
        };
        self.record_slice(slice, kept);
        Ok(true)
    }

    fn process_slice(
        &self,
        slice: BamSlice,
        reads: &Path,
        work: &(impl Fn(&RecalibrationInvocation, &Path, &dyn Fn() -> bool) -> Result<Vec<u8>, EngineError> + Sync),
    ) -> Result<RegionCheckpoint, PipelineError> {
        let job = self.job;
        let directory = self.scratch.join(slice.index.to_string());
        let stop = || self.threads.should_stop();
        let slice_work = RecalibrationInvocation {
            reference: &job.options.reference,
            reads,
            directory: &directory,
            memory_bytes: job.gatk_slots.memory_per_caller_bytes,
        };
        let named = WorkLabel { action: "recalibrating", item: &slice.label() };
        let attempt = || work(&slice_work, &directory, &stop);
        let AttemptResult { value: left, seconds, attempts } =
            run_with_retry(named, &directory, job.observer, &stop, attempt)?;
        let done = RegionCalls { header: Vec::new(), lines: left, records: slice.records, seconds };
        let kept = job.job_directory.save_region(
            self.checkpoint_index(slice.index),
            done,
            RegionAttempts { attempts, worker: None },
        );
        kept.map_err(PipelineError::file("store the checkpoint in", self.scratch))
    }

    fn record_slice(&self, slice: BamSlice, kept: RegionCheckpoint) {
        let records = self.finished_records.fetch_add(slice.records, Ordering::Relaxed) + slice.records;
        let slices = self.finished_slices.fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= slice.index {
            all.resize_with(slice.index + 1, RegionCheckpoint::default);
        }
        all[slice.index] = kept;
        self.job.observer.event(&Event::Recalibrated { pass: self.pass, slices, records });
    }
}
