//! Base quality recalibration in slices: a BAM in, the BAM that one run of GATK over everything would write out.
//!
//! The file is cut into [slices](slices) of records, not of the genome: a read that reaches over the border of two
//! regions would be shown to both, and be counted twice. BaseRecalibrator counts each slice, the counts are added
//! up, ApplyBQSR changes each slice by the table of all, and the slices are put together again.

mod report;
mod slices;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use godwit_engines::gatk::{MEMORY_BYTES, PROGRAM, Toolkit};
use godwit_engines::recalibrator::{self, SliceWork, TableSum};
use godwit_engines::{Chain, EngineError};
use godwit_formats::bgzf;
use godwit_formats::index::{IndexBuilder, IndexFormat};

use super::attempts::{Attempted, FirstFailure, Named, attempted};
use super::identity::{HEAD_BYTES, contents};
use super::kept::{CallRun, Effort, KeptRegion};
use super::reads::{AlignedReads, index_of};
use super::reference::ScannedReference;
use super::work::CalledRegion;
use super::{Budget, Found, Whose, Workers, check_output, close, open, publish, stage_manifest};
use crate::error::PipelineError;
use crate::fingerprint::FingerprintKey;
use crate::journal::Fact;
use crate::observer::{Event, Observer, seconds};
use crate::run_report::{InputFile, Stage, check_distinct};
use crate::staging::{Staged, StagedFile};

pub use report::RecalibrationReport;
use slices::{Part, Slice, Slicer, encoded};

/// Records that one GATK takes at a time, where nothing else is said.
pub const SLICE_RECORDS: u64 = 500_000;
/// Steps that a slice goes through.
const COUNT: u8 = 1;
const CHANGE: u8 = 2;

/// What to recalibrate and how.
#[derive(Clone, Debug)]
pub struct RecalibrateOptions {
    /// The reference.
    pub reference: PathBuf,
    /// BAM with its index, or the output directory of `align`.
    pub reads: PathBuf,
    /// VCFs of known variants with their indexes, at least one: bases there do not count as errors.
    pub known_sites: Vec<PathBuf>,
    /// The BAM to write.
    pub out: PathBuf,
    /// Records of a slice, about.
    pub slice_records: u64,
    /// Threads; one GATK for each.
    pub threads: usize,
    /// Memory of all GATKs together; half the machine's where `None`.
    pub memory_bytes: Option<u64>,
    /// Memory of each GATK; 4 GiB where `None`.
    pub gatk_memory_bytes: Option<u64>,
    /// Where slices and GATK's scratch files go; beside the output where `None`.
    pub temp: Option<PathBuf>,
    /// Go on with a run that was stopped.
    pub resume: bool,
    /// The godwit program.
    pub program: PathBuf,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The reference, where it was read before.
    pub scanned: Option<Arc<ScannedReference>>,
}

/// Recalibrates and returns the report, which is also in `OUT.run.json`. The table is in `OUT.recal.table`.
///
/// # Errors
/// [`PipelineError`]; no output has its name then.
pub fn recalibrate(
    options: &RecalibrateOptions,
    observer: &dyn Observer,
    cancelled: &AtomicBool,
) -> Result<RecalibrationReport, PipelineError> {
    let started = Instant::now();
    let toolkit = Toolkit::find()?;
    let budget = Budget {
        threads: options.threads,
        threads_each: 1,
        memory_bytes: options.memory_bytes,
        memory_each: options.gatk_memory_bytes,
        shared_by: 1,
    };
    let workers = Workers::new(&budget, MEMORY_BYTES, (PROGRAM, "--gatk-memory"))?;
    observer.event(&Event::Stage { name: "checking reads and reference" });
    let reads = AlignedReads::open(&options.reads, &options.program)?;
    let inputs = inputs(options, &reads)?;
    let header = std::iter::once((&*reads.path, &reads.header));
    let reference = ScannedReference::of_reads(&options.reference, options.scanned.as_ref(), header)?;
    reference.prepare(&options.reference, true)?;
    check_output(&options.out)?;
    let facts = facts(options, &toolkit, &reads, &reference)?;
    let whose = Whose { resume: options.resume, own: 0 };
    let run = match open(&options.out, options.temp.as_deref(), whose, &facts, observer)? {
        Found::Work(run) => *run,
        Found::Complete { records } => {
            return Ok(RecalibrationReport { records, already_complete: true, ..RecalibrationReport::default() });
        }
    };
    let job = Job { options, toolkit, workers, reads, inputs, facts, run: &run, observer, cancelled, started };
    let outcome = job.run();
    close(outcome, run, &options.out, observer)
}

fn inputs(options: &RecalibrateOptions, reads: &AlignedReads) -> Result<Vec<InputFile>, PipelineError> {
    if reads.index.extension().is_some_and(|extension| extension == "crai") {
        let path = reads.path.display();
        let problem =
            format!("{path} is CRAM; recalibrate takes a BAM, as `align --format bam` or `samtools view -b` writes it");
        return Err(PipelineError::Options { problem });
    }
    let mut inputs =
        vec![InputFile::of("the reference", &options.reference)?, InputFile::of("the reads", &reads.path)?];
    for sites in &options.known_sites {
        inputs.push(InputFile::of("the known sites", sites)?);
        inputs.push(InputFile::of("the index", &index_of(sites, &["tbi", "csi", "idx"], "tabix -p vcf")?)?);
    }
    check_distinct(&inputs, std::slice::from_ref(&options.out))?;
    Ok(inputs)
}

fn facts(
    options: &RecalibrateOptions,
    toolkit: &Toolkit,
    reads: &AlignedReads,
    reference: &ScannedReference,
) -> Result<Vec<Fact>, PipelineError> {
    let known = options.known_sites.iter().map(|sites| (&**sites, u64::MAX));
    let facts = [
        (FingerprintKey::GodwitVersion, env!("CARGO_PKG_VERSION").to_owned()),
        (FingerprintKey::GatkVersion, toolkit.version().to_owned()),
        (FingerprintKey::Reference, reference.checksum.clone()),
        (FingerprintKey::Reads, contents([(&*reads.path, HEAD_BYTES)].into_iter())?),
        (FingerprintKey::ReadsIndex, contents([(&*reads.index, u64::MAX)].into_iter())?),
        (FingerprintKey::KnownSites, contents(known)?),
        (FingerprintKey::SliceRecords, options.slice_records.to_string()),
    ];
    Ok(facts.into_iter().map(|(key, value)| key.fact(value)).collect())
}

/// What is to be done, once it is known to make sense.
struct Job<'r> {
    options: &'r RecalibrateOptions,
    toolkit: Toolkit,
    workers: Workers,
    reads: AlignedReads,
    inputs: Vec<InputFile>,
    facts: Vec<Fact>,
    run: &'r CallRun,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    started: Instant,
}

/// One step of all slices, under way.
struct Step<'j> {
    job: &'j Job<'j>,
    step: u8,
    scratch: &'j Path,
    slicer: Mutex<Slicer>,
    kept: Mutex<Vec<KeptRegion>>,
    slices: AtomicUsize,
    records: AtomicU64,
    failure: FirstFailure,
}

impl Job<'_> {
    fn run(&self) -> Result<RecalibrationReport, PipelineError> {
        let options = self.options;
        let planned = Instant::now();
        let scratch = self.run.scratch(options.temp.as_deref()).map_err(self.failed("create scratch files for"))?;
        self.steps(scratch.path(), planned)
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> PipelineError {
        PipelineError::file(action, &self.options.out)
    }

    fn steps(&self, scratch: &Path, planned: Instant) -> Result<RecalibrationReport, PipelineError> {
        self.observer.event(&Event::Stage { name: "counting qualities" });
        let count =
            |slice: &SliceWork, out: &Path| recalibrator::count(&self.toolkit, slice, &self.options.known_sites, out);
        let counted = self.step(COUNT, scratch, |slice, directory, stop| {
            let out = directory.join("recal.table");
            self.finished(count(slice, &out)?, stop, &out)?;
            let table = std::fs::read(&out).map_err(|source| unreadable(&out, source))?;
            Ok(table)
        })?;
        let table = scratch.join("recal.table");
        self.gather(scratch, &counted, &table)?;
        let gathered = Instant::now();
        self.observer.event(&Event::Stage { name: "changing qualities" });
        let genome = &self.reads.genome;
        let changed = self.step(CHANGE, scratch, |slice, directory, stop| {
            let out = directory.join("changed.bam");
            let chain = recalibrator::apply(&self.toolkit, slice, &table, &out)?;
            chain.wait(stop)?;
            let part = Part::of(&out, genome).map_err(|error| chain.wrong_output(format!("what it wrote: {error}")))?;
            part.to_bytes().map_err(|source| unreadable(&out, source))
        })?;
        let changed_at = Instant::now();
        self.observer.event(&Event::Stage { name: "writing" });
        let mut staged = Staged::default();
        let records = self.assemble(&changed, &mut staged)?;
        let table_path = table_path(&self.options.out);
        std::fs::read(&table)
            .and_then(|bytes| staged.write(&table_path, &bytes))
            .map_err(PipelineError::file("write", &table_path))?;
        let stage =
            |name, from: Instant, until: Instant, rows| Stage { name, seconds: seconds(until - from), rows, bytes: 0 };
        let slices = changed.len() as u64;
        let stages = vec![
            stage("check", self.started, planned, 0),
            stage("count", planned, gathered, slices),
            stage("change", gathered, changed_at, slices),
            stage("write", changed_at, Instant::now(), records),
        ];
        stage_manifest("recalibrate", &self.options.out, records, &self.facts, &mut staged)?;
        let report = RecalibrationReport::new(self, stages, changed.len(), records, &staged);
        publish(self.run, &self.options.out, staged, &report)?;
        Ok(report)
    }

    /// Has every slice go through a step, many at a time; returns what they left, in the order of the file.
    fn step(
        &self,
        step: u8,
        scratch: &Path,
        work: impl Fn(&SliceWork, &Path, &dyn Fn() -> bool) -> Result<Vec<u8>, EngineError> + Sync,
    ) -> Result<Vec<KeptRegion>, PipelineError> {
        let slicer = Slicer::open(&self.reads.path, self.workers.count, self.options.slice_records)?;
        let step = Step {
            job: self,
            step,
            scratch,
            slicer: Mutex::new(slicer),
            kept: Mutex::default(),
            slices: AtomicUsize::new(0),
            records: AtomicU64::new(0),
            failure: FirstFailure::default(),
        };
        let (shared, work) = (&step, &work);
        std::thread::scope(|scope| {
            let spawn = |worker| scope.spawn(move || shared.work(worker, work));
            let started: Vec<_> = (0..self.workers.count).map(spawn).collect();
            for worker in started {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        step.failure.into_result()?;
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        Ok(step.kept.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a program that is to leave a file.
    fn finished(&self, chain: Chain, stop: &dyn Fn() -> bool, out: &Path) -> Result<(), EngineError> {
        chain.wait(stop)?;
        match out.is_file() {
            true => Ok(()),
            false => Err(chain.wrong_output("it ended well, but wrote nothing".to_owned())),
        }
    }

    /// Adds the tables of all slices up.
    fn gather(&self, scratch: &Path, counted: &[KeptRegion], out: &Path) -> Result<(), PipelineError> {
        let wrong = |problem: String| PipelineError::Called {
            region: "slices of the reads".to_owned(),
            problem: format!("cannot be added up: {problem}"),
        };
        let mut sum = TableSum::default();
        for kept in counted {
            let table = self.run.read(kept.lines).map_err(self.failed("read what is kept for"))?;
            sum.add(&String::from_utf8_lossy(&table)).map_err(wrong)?;
        }
        let whole = sum.report().map_err(wrong)?;
        let directory = scratch.join("gather");
        let stop = || self.cancelled.load(Ordering::Relaxed);
        let named = Named { doing: "adding up", piece: "the tables of all slices" };
        let gathered = attempted(named, &directory, self.observer, &stop, || {
            let merged = directory.join("merged.table");
            std::fs::write(&merged, &whole).map_err(|source| unreadable(&merged, source))?;
            let memory = self.workers.memory_per_caller;
            self.finished(recalibrator::quantize(&self.toolkit, &merged, &directory, memory, out)?, &stop, out)
        })?;
        let Attempted { value: (), .. } = gathered;
        Ok(())
    }

    /// Puts the parts together; returns the number of records.
    fn assemble(&self, changed: &[KeptRegion], staged: &mut Staged) -> Result<u64, PipelineError> {
        let out = &self.options.out;
        let mut header = self.reads.header.clone();
        let command = format!("godwit recalibrate with GATK {}", self.toolkit.version());
        header.add_program("godwit-recalibrate", &[("VN", env!("CARGO_PKG_VERSION")), ("CL", &command)]);
        let mut head = bgzf::Writer::new(Vec::new(), bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        let bytes = encoded(out, &header)?;
        let head = head.write_bytes(&bytes).and_then(|()| head.finish_blocks());
        let (head, mut offset) = head.map_err(self.failed("write"))?;
        let bam = StagedFile::create(out).map_err(self.failed("write"))?;
        let mut file = bam.file();
        file.write_all(&head).map_err(self.failed("write"))?;
        let (mut parts, mut records, mut taken) = (Vec::new(), 0, 0);
        for kept in changed {
            let bytes = self.run.read(kept.lines).map_err(PipelineError::file("read", out))?;
            let part = Part::from_bytes(&bytes).map_err(self.failed("read what is kept for"))?;
            (records, taken) = (records + part.records, taken + kept.records);
            file.write_all(part.blocks).map_err(self.failed("write"))?;
            parts.push((part.index, offset));
            offset += part.blocks.len() as u64;
        }
        if records != taken {
            return Err(PipelineError::Lost { what: "records", taken, written: records });
        }
        file.write_all(&bgzf::EOF_BLOCK).and_then(|()| bam.file().sync_all()).map_err(self.failed("write"))?;
        staged.add(bam);
        let genome = &self.reads.genome;
        let format = IndexFormat::for_genome(genome);
        let index_path = PathBuf::from(format!("{}.{}", out.display(), format.extension()));
        let unsorted = |error: godwit_formats::index::IndexError| PipelineError::Corrupt {
            path: self.reads.path.clone(),
            problem: error.to_string(),
        };
        let mut bytes = Vec::new();
        let whole = IndexBuilder::merge(parts).map_err(unsorted)?;
        whole
            .write(format, genome, &mut bytes)
            .and_then(|()| staged.write(&index_path, &bytes))
            .map_err(PipelineError::file("write", &index_path))?;
        Ok(records)
    }
}

/// Where the table of an output goes.
fn table_path(out: &Path) -> PathBuf {
    out.with_extension("recal.table")
}

fn unreadable(path: &Path, source: std::io::Error) -> EngineError {
    EngineError::Io { program: path.to_owned(), action: "use", source }
}

impl Step<'_> {
    fn stop(&self) -> bool {
        self.failure.is_set() || self.job.cancelled.load(Ordering::Relaxed)
    }

    /// Where what a slice left by this step is kept.
    fn place(&self, slice: usize) -> usize {
        slice * usize::from(CHANGE) + usize::from(self.step - COUNT)
    }

    /// Takes slices as long as there are any.
    fn work(
        &self,
        worker: usize,
        work: &(impl Fn(&SliceWork, &Path, &dyn Fn() -> bool) -> Result<Vec<u8>, EngineError> + Sync),
    ) {
        let reads = self.scratch.join(format!("slice-{worker}.bam"));
        while !self.stop() {
            let finished = |index: usize| self.job.run.finished.get(&self.place(index));
            let next = {
                let mut slicer = self.slicer.lock().unwrap_or_else(PoisonError::into_inner);
                slicer.next(|index| finished(index).is_none().then_some(&*reads))
            };
            let outcome = match next {
                Ok(None) => break,
                Ok(Some(slice)) => match finished(slice.index) {
                    Some(kept) => Ok((slice, kept.clone())),
                    None => {
                        self.slice(slice, &reads, work).map(|kept| (slice, kept)).map_err(|error| (slice.index, error))
                    }
                },
                // What is wrong with the file comes before what is behind it.
                Err(error) => Err((usize::MAX, error)),
            };
            match outcome {
                Ok((slice, kept)) => self.done(slice, kept),
                Err((index, error)) => self.failure.take(index, error),
            }
        }
        let _ = std::fs::remove_file(&reads);
    }

    fn slice(
        &self,
        slice: Slice,
        reads: &Path,
        work: &(impl Fn(&SliceWork, &Path, &dyn Fn() -> bool) -> Result<Vec<u8>, EngineError> + Sync),
    ) -> Result<KeptRegion, PipelineError> {
        let job = self.job;
        let directory = self.scratch.join(slice.index.to_string());
        let stop = || self.stop();
        let slice_work = SliceWork {
            reference: &job.options.reference,
            reads,
            directory: &directory,
            memory_bytes: job.workers.memory_per_caller,
        };
        let named = Named { doing: "recalibrating", piece: &slice.name() };
        let attempt = || work(&slice_work, &directory, &stop);
        let Attempted { value: left, seconds, attempts } = attempted(named, &directory, job.observer, &stop, attempt)?;
        let done = CalledRegion { header: Vec::new(), lines: left, records: slice.records, seconds };
        let kept = job.run.keep(self.place(slice.index), done, Effort { attempts, node: None });
        kept.map_err(PipelineError::file("keep what was done in", self.scratch))
    }

    fn done(&self, slice: Slice, kept: KeptRegion) {
        let records = self.records.fetch_add(slice.records, Ordering::Relaxed) + slice.records;
        let slices = self.slices.fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= slice.index {
            all.resize_with(slice.index + 1, KeptRegion::default);
        }
        all[slice.index] = kept;
        self.job.observer.event(&Event::Recalibrated { step: self.step, slices, records });
    }
}
