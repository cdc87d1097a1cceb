//! Base quality score recalibration of a BAM in slices. The output is the BAM that a single run over the whole file would
//! write.
//!
//! The file is divided into [slices](bam_slicer) of consecutive records. It is not divided by regions of the genome: a
//! read across the border of two regions would be counted twice. The first pass counts the qualities in each slice, and
//! the counts are added. The second pass changes the qualities of each slice by the counts of all, and the slices are
//! joined. An [engine](SliceEngine) counts and changes: godwit itself, or GATK.

mod bam_slicer;
mod gatk_engine;
mod own_engine;
mod report;
mod slice_pass;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use godwit_files::{AtomicFile, AtomicSet};
use godwit_formats::binning_index::{IndexBuilder, IndexFormat};
use godwit_io::bgzf;
use godwit_pipeline::fingerprint::FingerprintKey;
use godwit_pipeline::job_report::{InputFile, Stage, check_distinct_files};
use godwit_pipeline::observer::{Event, Observer, rounded_seconds};
use godwit_pipeline::reduce::read_recalibration_groups;
use godwit_pipeline::scanned_reference::ScannedReference;
use godwit_pipeline::{FingerprintEntry, PipelineError};
use godwit_recalibrate::{QualityOptions, RecalibrationCounts, Recalibrator};

use super::call_inputs::{AlignedReads, find_index};
use super::checkpoint::{CallJobDirectory, RegionCheckpoint};
use super::fingerprint::{FILE_PREFIX_BYTES, sizes_and_checksums};
use super::job_outputs::{
    CallResumeState, ResumeOptions, add_manifest, check_output_available, close_call_directory, open_call_directory,
    publish_outputs,
};
use bam_slicer::{BamPart, encode_header};
use gatk_engine::GatkEngine;
use own_engine::OwnEngine;
pub use report::RecalibrationReport;
use slice_pass::Pass;

/// The engine that counts and changes base qualities. Both engines give the same table and the same qualities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecalibrationEngine {
    /// godwit itself.
    #[default]
    Own,
    /// BaseRecalibrator and ApplyBQSR of GATK.
    Gatk,
}

/// Inputs, output and options of a recalibration.
#[derive(Clone, Debug)]
pub struct RecalibrateOptions {
    /// File of the reference sequence.
    pub reference: PathBuf,
    /// BAM with its index, or the output directory of `align`.
    pub reads: PathBuf,
    /// VCFs of known variants, at least one; GATK needs their indexes. Mismatches at these variants do not count as
    /// sequencing errors.
    pub known_sites: Vec<PathBuf>,
    /// Path of the BAM to write.
    pub out: PathBuf,
    /// The engine that counts and changes qualities.
    pub engine: RecalibrationEngine,
    /// Options that change the new qualities.
    pub quality: QualityOptions,
    /// Approximate number of records of a slice; `None` for the default of the engine.
    pub slice_records: Option<u64>,
    /// Number of threads; each of them processes one slice at a time.
    pub threads: usize,
    /// Memory of all GATK processes together, bytes; `None` for half of the host's memory.
    pub memory_bytes: Option<u64>,
    /// Memory of each GATK process, bytes; `None` for 4 GiB.
    pub gatk_memory_bytes: Option<u64>,
    /// Directory of scratch files; `None` for the job directory beside the output.
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
    let gatk = match options.engine {
        RecalibrationEngine::Own => None,
        RecalibrationEngine::Gatk => Some(GatkEngine::new(options)?),
    };
    observer.event(&Event::Stage { name: "checking reads and reference" });
    let reads = AlignedReads::open(&options.reads, &options.godwit_program)?;
    let inputs = inspect_inputs(options, &reads)?;
    let header = std::iter::once((&*reads.path, &reads.header));
    let reference = ScannedReference::scan_for_headers(&options.reference, options.scanned_reference.as_ref(), header)?;
    reference.write_indexes(&options.reference, options.engine == RecalibrationEngine::Gatk)?;
    check_output_available(&options.out)?;
    let slice_records = options.slice_records.unwrap_or(match options.engine {
        RecalibrationEngine::Own => own_engine::SLICE_RECORDS,
        RecalibrationEngine::Gatk => gatk_engine::SLICE_RECORDS,
    });
    let fingerprint = recalibrate_fingerprint(options, gatk.as_ref(), slice_records, &reads, &reference)?;
    let resume_options = ResumeOptions { resume: options.resume, own_regions: 0 };
    let job_directory =
        match open_call_directory(&options.out, options.temp.as_deref(), resume_options, &fingerprint, observer)? {
            CallResumeState::Unfinished(run) => *run,
            CallResumeState::Complete { records } => {
                return Ok(RecalibrationReport { records, already_complete: true, ..RecalibrationReport::default() });
            }
        };
    let engine = match gatk {
        Some(gatk) => SliceEngine::Gatk(gatk),
        None => SliceEngine::Own(OwnEngine::new(options, &reads)?),
    };
    let job = RecalibrateJob {
        options,
        engine,
        slice_records,
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
        if options.engine == RecalibrationEngine::Gatk {
            inputs.push(InputFile::inspect("the index", &find_index(sites, &["tbi", "csi", "idx"], "tabix -p vcf")?)?);
        }
    }
    check_distinct_files(&inputs, std::slice::from_ref(&options.out))?;
    Ok(inputs)
}

fn recalibrate_fingerprint(
    options: &RecalibrateOptions,
    gatk: Option<&GatkEngine>,
    slice_records: u64,
    reads: &AlignedReads,
    reference: &ScannedReference,
) -> Result<Vec<FingerprintEntry>, PipelineError> {
    let known = options.known_sites.iter().map(|sites| (&**sites, u64::MAX));
    let quality = serde_json::to_string(&options.quality).map_err(|error| PipelineError::Options {
        problem: format!("the options of recalibration cannot be stored: {error}"),
    })?;
    let gatk = gatk.map_or("none", GatkEngine::version);
    let entries = [
        (FingerprintKey::GodwitVersion, env!("CARGO_PKG_VERSION").to_owned()),
        (FingerprintKey::GatkVersion, gatk.to_owned()),
        (FingerprintKey::Reference, reference.checksum.clone()),
        (FingerprintKey::Reads, sizes_and_checksums([(&*reads.path, FILE_PREFIX_BYTES)].into_iter())?),
        (FingerprintKey::ReadsIndex, sizes_and_checksums([(&*reads.index, u64::MAX)].into_iter())?),
        (FingerprintKey::KnownSites, sizes_and_checksums(known)?),
        (FingerprintKey::RecalibrationOptions, quality),
        (FingerprintKey::SliceRecords, slice_records.to_string()),
    ];
    Ok(entries.into_iter().map(|(key, value)| key.entry(value)).collect())
}

/// The engine of a job, ready to process slices.
enum SliceEngine {
    Own(OwnEngine),
    Gatk(GatkEngine),
}

impl SliceEngine {
    /// Returns the name of the engine in headers.
    fn label(&self) -> String {
        match self {
            Self::Own(_) => "godwit recalibrate".to_owned(),
            Self::Gatk(gatk) => format!("godwit recalibrate with GATK {}", gatk.version()),
        }
    }
}

/// The counts of the whole file, for the second pass.
struct WholeTable {
    /// Path of the report, for GATK.
    path: PathBuf,
    /// Estimates of the qualities, for godwit itself.
    recalibrator: Recalibrator,
}

/// A recalibration job whose options have been checked.
struct RecalibrateJob<'r> {
    options: &'r RecalibrateOptions,
    engine: SliceEngine,
    slice_records: u64,
    reads: AlignedReads,
    inputs: Vec<InputFile>,
    fingerprint: Vec<FingerprintEntry>,
    job_directory: &'r CallJobDirectory,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    started_at: Instant,
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
        let counted = self.run_pass(Pass::Count, scratch)?;
        let table = self.merge_tables(&counted, scratch.join("recal.table"))?;
        let gathered = Instant::now();
        self.observer.event(&Event::Stage { name: "changing qualities" });
        let changed = self.run_pass(Pass::Change(&table), scratch)?;
        let changed_at = Instant::now();
        self.observer.event(&Event::Stage { name: "writing" });
        let mut staged = AtomicSet::default();
        let records = self.assemble_bam(&changed, &mut staged)?;
        let table_path = table_path(&self.options.out);
        std::fs::read(&table.path)
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

    /// Adds up the reports of all slices, and writes the report of the whole file to `path`.
    fn merge_tables(&self, counted: &[RegionCheckpoint], path: PathBuf) -> Result<WholeTable, PipelineError> {
        let mut counts = RecalibrationCounts::default();
        for kept in counted {
            let report =
                self.job_directory.read_range(kept.lines).map_err(self.output_error("read the checkpoint for"))?;
            counts.add_report(&String::from_utf8_lossy(&report)).map_err(|error| PipelineError::CallerOutput {
                region: "a slice of the reads".to_owned(),
                problem: format!("is not a valid recalibration table: {error}"),
            })?;
        }
        std::fs::write(&path, counts.to_report()).map_err(PipelineError::file("write", &path))?;
        let contigs = self.reads.genome.contigs().iter().map(|contig| contig.length);
        let groups = read_recalibration_groups(&self.reads.header)?;
        let recalibrator = Recalibrator::new(&counts, &groups, contigs.collect(), self.options.quality.clone());
        Ok(WholeTable { path, recalibrator })
    }

    /// Joins the recalibrated slices into the output BAM and writes its index. Returns the number of records.
    fn assemble_bam(&self, changed: &[RegionCheckpoint], staged: &mut AtomicSet) -> Result<u64, PipelineError> {
        let out = &self.options.out;
        let mut header = self.reads.header.clone();
        let command = self.engine.label();
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
