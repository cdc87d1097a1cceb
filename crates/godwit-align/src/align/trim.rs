//! Trimming of FASTQ files by fastp, before reads become blocks.
//!
//! fastp accepts damaged FASTQ silently: it drops a truncated last record and checks neither bases nor qualities. So
//! this module also reads the files itself, as strictly as without trimming, and compares the counts of reads.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use godwit_engines::ChildHandle;
use godwit_engines::trimmer::fastp::{self, FastpOptions, FastpProcess};
use godwit_files::{AtomicFile, AtomicSet};
use godwit_formats::fastq::{FastqError, LaneEvent, LaneInput, LaneOptions, LaneReader};
use godwit_formats::sam::SamReadError;
use godwit_io::bgzf;
use godwit_pipeline::PipelineError;

use super::lanes::{OpenLane, ReadsOptions};

/// Maximum time to wait until fastp exits after its output could not be processed; its own error then explains the
/// failure.
const FASTP_EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A running fastp for one lane, and the thread that checks its input files. Dropping this value stops both.
pub(super) struct LaneTrimmer {
    child: Arc<ChildHandle>,
    stop: Arc<AtomicBool>,
    /// Thread that reads the input files strictly and counts their reads.
    read_counter: Option<JoinHandle<Result<u64, FastqError>>>,
    json: Option<AtomicFile>,
    html: Option<AtomicFile>,
}

/// Rejects arguments that godwit cannot pass to fastp, and a fastp that is missing or too old. Returns the version of
/// fastp; `None` if reads are not trimmed.
///
/// # Errors
/// [`PipelineError::Options`] for the arguments, [`PipelineError::Trimmer`] for a missing or old fastp.
pub(super) fn check_fastp(reads: &ReadsOptions) -> Result<Option<String>, PipelineError> {
    let Some(arguments) = &reads.trim else { return Ok(None) };
    if let Some(word) = fastp::first_refused_argument(arguments) {
        let problem = format!("--trim-args cannot contain {word}: godwit sets the inputs and outputs of fastp");
        return Err(PipelineError::Options { problem });
    }
    fastp::query_version(None).map(Some).map_err(PipelineError::Trimmer)
}

impl LaneTrimmer {
    /// Starts fastp on the files of a lane. `reports`: the path of its reports without the extension.
    pub(super) fn start(
        files: &[PathBuf],
        interleaved: bool,
        reports: &Path,
        arguments: &[String],
        threads: usize,
        lane_options: &LaneOptions,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<OpenLane, PipelineError> {
        let report = |extension: &str| {
            let path = PathBuf::from(format!("{}.{extension}", reports.display()));
            AtomicFile::create(&path).map_err(PipelineError::file("write", path))
        };
        let (json, html) = (report("json")?, report("html")?);
        let FastpProcess { outputs, child } = FastpOptions {
            program: None,
            files: files.to_vec(),
            interleaved,
            threads,
            arguments: arguments.to_vec(),
            json_report: json.temporary_path().to_owned(),
            html_report: html.temporary_path().to_owned(),
        }
        .start()
        .map_err(PipelineError::Trimmer)?;
        let (child, stop) = (Arc::new(child), Arc::new(AtomicBool::new(false)));
        let inputs = open_fastp_outputs(files, outputs, cancelled)?;
        let reader = LaneReader::new(inputs, lane_options);
        let check = start_read_counter(files, interleaved, lane_options, &child, &stop)?;
        let trimming = Self { child, stop, read_counter: Some(check), json: Some(json), html: Some(html) };
        Ok(OpenLane { reader, trimmer: Some(trimming), start: None })
    }

    /// Waits until fastp and the read counter have ended, after the last read or after a failure in `fed`. Returns the
    /// first failure, or adds fastp's report files to `reports`. A failure of the receiver of the reads is returned at
    /// once: it ends fastp with a broken pipe, so fastp's own error would hide it.
    pub(super) fn finish(
        mut self,
        fed: Result<(), PipelineError>,
        reports: &mut AtomicSet,
    ) -> Result<(), PipelineError> {
        if fed.as_ref().is_err_and(|error| !matches!(error, PipelineError::Fastq(_))) {
            return fed;
        }
        let ended = match &fed {
            Ok(()) => self.child.wait(),
            Err(_) => self.child.wait_or_kill(FASTP_EXIT_TIMEOUT),
        };
        if fed.is_err() && ended.is_ok() {
            // fastp succeeded and no defect in its input files is known, so the failure has another cause, and the
            // check can stop.
            self.stop.store(true, Ordering::Relaxed);
        }
        let checked =
            self.read_counter.take().map(|check| check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let reads = checked.transpose()?.unwrap_or_default();
        ended.map_err(PipelineError::Trimmer)?;
        fed?;
        let (Some(json), Some(html)) = (self.json.take(), self.html.take()) else { return Ok(()) };
        let trimmed_reads =
            fastp_read_count(json.temporary_path()).map_err(PipelineError::file("read", json.path()))?;
        if trimmed_reads != reads {
            return Err(PipelineError::TrimmedReadCount { reads, trimmed_reads });
        }
        for report in [json, html] {
            let failed = PipelineError::file("write", report.path().to_owned());
            reports.add(report).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for LaneTrimmer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.child.kill();
    }
}

/// Opens the output pipes of fastp as a lane.
fn open_fastp_outputs(
    files: &[PathBuf],
    outputs: Vec<File>,
    cancelled: &Arc<AtomicBool>,
) -> Result<LaneInput, PipelineError> {
    let mut inputs = Vec::new();
    for (mate, output) in outputs.into_iter().enumerate() {
        let source = files.get(mate).or(files.last()).map(PathBuf::as_path).unwrap_or(Path::new("the lane"));
        let name = PathBuf::from(format!("the output of fastp for {}", source.display()));
        let opened = bgzf::Reader::from_file(&name, output, 1);
        let mut input = opened.map_err(|error| PipelineError::alignments(&name, SamReadError::from(error).into()))?;
        input.set_cancel_flag(Arc::clone(cancelled));
        inputs.push(input);
    }
    match (inputs.pop(), inputs.pop()) {
        (Some(second), Some(first)) => Ok(LaneInput::Pair(first, second)),
        (Some(single), None) => Ok(LaneInput::Single(single)),
        (None, _) => Err(FastqError::FileCount { count: 0 }.into()),
    }
}

/// Starts a thread that reads the input files strictly and counts their reads. If it finds a defect, it kills fastp.
fn start_read_counter(
    files: &[PathBuf],
    interleaved: bool,
    options: &LaneOptions,
    child: &Arc<ChildHandle>,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<Result<u64, FastqError>>, PipelineError> {
    let mut reader = match files {
        [file] if interleaved => {
            let opened = bgzf::Reader::open_any(file, 1, options.lenient);
            let input = opened.map_err(|error| PipelineError::alignments(file, SamReadError::from(error).into()))?;
            LaneReader::new(LaneInput::Interleaved(input), options)
        }
        files => LaneReader::open(files, options)?,
    };
    let (child, stop) = (Arc::clone(child), Arc::clone(stop));
    let count = move || {
        let mut reads = 0;
        while !stop.load(Ordering::Relaxed) {
            match reader.next() {
                Ok(Some(LaneEvent::Reads(batch))) => reads += batch.num_rows() as u64,
                Ok(Some(LaneEvent::BlockEnd { .. })) => {}
                Ok(None) => break,
                Err(error) => {
                    child.kill();
                    return Err(error);
                }
            }
        }
        Ok(reads)
    };
    let started = std::thread::Builder::new().name("fastq-check".into()).spawn(count);
    started.map_err(|source| {
        let file = files.first().cloned().unwrap_or_default();
        FastqError::Thread { file, source }.into()
    })
}

/// Returns the number of reads that fastp read, from its own report.
fn fastp_read_count(json: &Path) -> std::io::Result<u64> {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json)?).map_err(std::io::Error::other)?;
    let reads = report.pointer("/summary/before_filtering/total_reads").and_then(serde_json::Value::as_u64);
    reads.ok_or_else(|| std::io::Error::other("it does not contain the number of reads that fastp read"))
}
