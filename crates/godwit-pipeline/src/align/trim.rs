//! Trimming on the way in: files through fastp, and what comes out into blocks.
//!
//! fastp takes damaged FASTQ for whole without a word: it drops a truncated last record and does not look at bases or
//! qualities. So the files are read here as strictly as without it, beside it, and both have to count the same reads.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use godwit_engines::ChildHandle;
use godwit_engines::trimmer::fastp::{self, Fastp, FastpOptions};
use godwit_formats::bgzf;
use godwit_formats::fastq::{FastqError, LaneEvent, LaneInput, LaneOptions, LaneReader};
use godwit_formats::sam::ReadError;

use super::AlignOptions;
use super::lanes::{OpenLane, ReadsOptions};
use crate::error::PipelineError;
use crate::staging::{Staged, StagedFile};

/// How long a fastp whose output makes no sense may take to tell why by its end.
const PATIENCE: Duration = Duration::from_secs(1);

/// A lane being trimmed. Dropping it stops everything.
pub(super) struct Trimming {
    child: Arc<ChildHandle>,
    stop: Arc<AtomicBool>,
    /// Counts the reads of the files.
    check: Option<JoinHandle<Result<u64, FastqError>>>,
    json: Option<StagedFile>,
    html: Option<StagedFile>,
}

/// Refuses words for fastp that cannot be passed on, and a fastp that is missing or too old. Returns its version where
/// reads are trimmed.
///
/// # Errors
/// [`PipelineError::Options`], [`PipelineError::Trimmer`].
pub(super) fn checked_version(reads: &ReadsOptions) -> Result<Option<String>, PipelineError> {
    let Some(arguments) = &reads.trim else { return Ok(None) };
    if let Some(word) = fastp::check_arguments(arguments) {
        let problem = format!("--trim-args may not have {word}: where reads come from and go to is godwit's to say");
        return Err(PipelineError::Options { problem });
    }
    fastp::version(None).map(Some).map_err(PipelineError::Trimmer)
}

impl Trimming {
    /// Starts fastp on the files of a lane.
    pub(super) fn start(
        files: &[PathBuf],
        interleaved: bool,
        number: usize,
        arguments: &[String],
        options: &AlignOptions,
        lane_options: &LaneOptions,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<OpenLane, PipelineError> {
        let report = |extension: &str| {
            let lane = if options.lanes.len() > 1 { format!(".L{}", number + 1) } else { String::new() };
            let path = options.out.join(format!("{}{lane}.fastp.{extension}", options.sample));
            StagedFile::create(&path).map_err(PipelineError::file("write", path))
        };
        let (json, html) = (report("json")?, report("html")?);
        let Fastp { outputs, child } = FastpOptions {
            program: None,
            files: files.to_vec(),
            interleaved,
            threads: options.job.threads,
            arguments: arguments.to_vec(),
            json: json.aside().to_owned(),
            html: html.aside().to_owned(),
        }
        .start()
        .map_err(PipelineError::Trimmer)?;
        let (child, stop) = (Arc::new(child), Arc::new(AtomicBool::new(false)));
        let inputs = read_outputs(files, outputs, cancelled)?;
        let reader = LaneReader::new(inputs, lane_options);
        let check = start_check(files, interleaved, lane_options, &child, &stop)?;
        let trimming = Self { child, stop, check: Some(check), json: Some(json), html: Some(html) };
        Ok(OpenLane { reader, trimming: Some(trimming), start: None })
    }

    /// After the last read was fed, or feeding failed: what went wrong first, or the reports in `staged`.
    pub(super) fn finish(mut self, fed: Result<(), PipelineError>, reports: &mut Staged) -> Result<(), PipelineError> {
        let ended = match &fed {
            Ok(()) => self.child.wait(),
            Err(_) => self.child.end_within(PATIENCE),
        };
        if fed.is_err() && ended.is_ok() {
            // Neither fastp nor, so far, the files are to blame: nobody waits for the rest of them.
            self.stop.store(true, Ordering::Relaxed);
        }
        let checked =
            self.check.take().map(|check| check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let reads = checked.transpose()?.unwrap_or_default();
        ended.map_err(PipelineError::Trimmer)?;
        fed?;
        let (Some(json), Some(html)) = (self.json.take(), self.html.take()) else { return Ok(()) };
        let seen = reads_seen(json.aside()).map_err(PipelineError::file("read", json.path()))?;
        if seen != reads {
            return Err(PipelineError::Untrimmed { reads, seen });
        }
        for report in [json, html] {
            report.file().sync_all().map_err(PipelineError::file("write", report.path()))?;
            reports.add(report);
        }
        Ok(())
    }
}

impl Drop for Trimming {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.child.kill();
    }
}

/// The pipes of fastp as a lane.
fn read_outputs(
    files: &[PathBuf],
    outputs: Vec<File>,
    cancelled: &Arc<AtomicBool>,
) -> Result<LaneInput, PipelineError> {
    let mut inputs = Vec::new();
    for (mate, output) in outputs.into_iter().enumerate() {
        let source = files.get(mate).or(files.last()).map(PathBuf::as_path).unwrap_or(Path::new("the lane"));
        let name = PathBuf::from(format!("what fastp made of {}", source.display()));
        let opened = bgzf::Reader::from_file(&name, output, 1);
        let mut input = opened.map_err(|error| PipelineError::alignments(&name, ReadError::from(error).into()))?;
        input.cancel_with(Arc::clone(cancelled));
        inputs.push(input);
    }
    match (inputs.pop(), inputs.pop()) {
        (Some(second), Some(first)) => Ok(LaneInput::Pair(first, second)),
        (Some(single), None) => Ok(LaneInput::Single(single)),
        (None, _) => Err(FastqError::FileCount { count: 0 }.into()),
    }
}

/// Reads the files on a thread of its own, strictly, and counts their reads. What is wrong with them ends fastp.
fn start_check(
    files: &[PathBuf],
    interleaved: bool,
    options: &LaneOptions,
    child: &Arc<ChildHandle>,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<Result<u64, FastqError>>, PipelineError> {
    let mut reader = match files {
        [file] if interleaved => {
            let opened = bgzf::Reader::open_any(file, 1, options.lenient);
            let input = opened.map_err(|error| PipelineError::alignments(file, ReadError::from(error).into()))?;
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

/// Reads that fastp took, by its own report.
fn reads_seen(json: &Path) -> std::io::Result<u64> {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json)?).map_err(std::io::Error::other)?;
    let reads = report.pointer("/summary/before_filtering/total_reads").and_then(serde_json::Value::as_u64);
    reads.ok_or_else(|| std::io::Error::other("it does not say how many reads fastp took"))
}
