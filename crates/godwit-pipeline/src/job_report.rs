//! The job report `run.json`: programs, inputs, stages, times and outputs of a job.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use godwit_files::{AtomicSet, is_same_file};
use serde::Serialize;

use crate::error::PipelineError;
use crate::key_numbers::KeyNumbers;
use crate::manifest::{Manifest, Segment};
use crate::observer::rounded_seconds;
use crate::python_step::PythonStep;
use crate::reduce::UnpublishedOutputs;

/// The report of a job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobReport {
    /// Version of godwit.
    pub godwit: String,
    /// Name and version of each other program that the job used, for example the aligner.
    pub engines: Vec<(String, String)>,
    /// The aligner; `None` if the job did not align.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aligner: Option<AlignerReport>,
    /// The subcommand of godwit, for example `align`.
    pub verb: String,
    /// The command line of the job.
    pub command: Vec<String>,
    /// Start time, UTC, as in `2026-11-21T02:34:16Z`.
    #[serde(rename = "started")]
    pub started_at: String,
    /// Number of threads.
    pub threads: usize,
    /// Files that the job read.
    pub inputs: Vec<InputFile>,
    /// Files that the job wrote.
    pub outputs: Vec<OutputFile>,
    /// Wall time and size of each stage of the job.
    pub stages: Vec<Stage>,
    /// Number of records in the output.
    pub records: u64,
    /// Number of duplicate records, whether written or removed.
    pub duplicates: u64,
    /// Number of duplicate records that were removed.
    #[serde(rename = "removed")]
    pub removed_duplicates: u64,
    /// The result of the Python step; `None` if the job had no Python step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "step")]
    pub python_step: Option<PythonStepReport>,
    /// The most requested metrics; `None` if no metrics were collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "numbers")]
    pub key_numbers: Option<KeyNumbers>,
    /// Byte ranges of the BAM with their checksums. They contain the whole file except the header and the 28 bytes of
    /// the end-of-file marker.
    pub segments: Vec<Segment>,
    /// Wall time of the job, seconds.
    pub seconds: f64,
    /// Number of blocks and partitions that an earlier, stopped process finished.
    #[serde(rename = "resumed")]
    pub resumed_work: ResumedWork,
    /// Network traffic between workers; `None` for a job in one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<ExchangeReport>,
    /// True if complete outputs existed already, so that nothing was computed.
    #[serde(skip)]
    pub already_complete: bool,
}

/// The result of a Python step.
#[derive(Clone, Debug, Serialize)]
pub struct PythonStepReport {
    /// The Python function, as `MODULE:FUNCTION`.
    pub function: String,
    /// Number of records that the function dropped.
    #[serde(rename = "dropped")]
    pub dropped_records: u64,
}

/// Work of an earlier process that this process reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResumedWork {
    /// Number of blocks that the earlier process aligned.
    pub blocks: usize,
    /// Number of partitions that the earlier process wrote.
    pub partitions: usize,
}

/// The aligner that a job used, and its index.
#[derive(Clone, Debug, Serialize)]
pub struct AlignerReport {
    /// The value of `--aligner`: the name of an aligner, or a command template with placeholders.
    pub choice: String,
    /// Name of the aligner program.
    pub name: String,
    /// Version of the aligner; empty if the program reports none.
    pub version: String,
    /// The reason why `--aligner auto` selected this aligner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Path prefix of the index files.
    pub index: PathBuf,
    /// Dependence of the records on the ends of blocks: `across blocks` (independent) or `single stream only`
    /// (dependent).
    pub identity: &'static str,
}

/// An input file.
#[derive(Clone, Debug, Serialize)]
pub struct InputFile {
    /// Path as given on the command line.
    pub path: PathBuf,
    /// Size, bytes; `None` for a pipe.
    pub bytes: Option<u64>,
    /// BLAKE3 of the file as it is on disk (compressed), hexadecimal; `None` if the job did not read the whole file.
    pub blake3: Option<String>,
    /// Offset at which decompression and parsing began, bytes; `None`: at the start. A resumed job reads the bytes
    /// before this offset only to compare their checksum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "read_from")]
    pub read_from_offset: Option<u64>,
}

/// An output file.
#[derive(Clone, Debug, Serialize)]
pub struct OutputFile {
    /// File name, relative to the directory of the report.
    pub name: String,
    /// Size, bytes.
    pub bytes: u64,
}

impl OutputFile {
    /// Returns the entries of output files that are not yet published.
    pub fn from_files(staged: &AtomicSet) -> Vec<Self> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        staged.sizes().map(|(path, bytes)| Self { name: name(path), bytes }).collect()
    }
}

/// A stage of a job. Stages overlap: for example, blocks are aligned while later reads are still being read.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Name of the stage, for people.
    pub name: &'static str,
    /// Wall time of the stage, seconds.
    pub seconds: f64,
    /// Number of reads or records that the stage processed.
    pub rows: u64,
    /// Bytes that the stage read, spilled or wrote.
    pub bytes: u64,
}

impl InputFile {
    /// Returns the path and size of an input file.
    ///
    /// # Errors
    /// [`PipelineError::Missing`] if the file does not exist, and [`PipelineError::File`] if its metadata cannot be
    /// read.
    pub fn inspect(description: &'static str, path: &Path) -> Result<Self, PipelineError> {
        let found = std::fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                PipelineError::Missing { description, path: path.to_owned(), remedy: "check the path".into() }
            }
            _ => PipelineError::File { action: "read", path: path.to_owned(), source },
        })?;
        Ok(Self {
            path: path.to_owned(),
            bytes: found.is_file().then_some(found.len()),
            blake3: None,
            read_from_offset: None,
        })
    }
}

impl JobReport {
    /// Creates the report of a job that starts. `engine`: name and version of the main program.
    pub fn new(verb: &str, command: &[String], engine: (&str, &str)) -> Self {
        let engines = if engine.0.is_empty() { Vec::new() } else { vec![(engine.0.into(), engine.1.into())] };
        Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            engines,
            verb: verb.into(),
            command: command.to_vec(),
            started_at: format_utc(SystemTime::now()),
            ..Self::default()
        }
    }

    /// Sets the aligner.
    pub fn with_aligner(mut self, aligner: AlignerReport) -> Self {
        self.aligner = Some(aligner);
        self
    }

    /// Sets the number of threads, the reused work of an earlier process, and the start time, which is `elapsed` before
    /// now.
    pub fn with_resumed_work(mut self, threads: usize, resumed: ResumedWork, elapsed: Duration) -> Self {
        self.threads = threads;
        self.resumed_work = resumed;
        self.started_at = format_utc(SystemTime::now() - elapsed);
        self
    }

    /// Sets the network traffic between workers.
    pub fn with_exchange(mut self, exchange: Option<ExchangeReport>) -> Self {
        self.exchange = exchange;
        self
    }

    /// Creates the report of a job whose complete outputs existed already.
    pub fn from_manifest(manifest: &Manifest) -> Self {
        Self {
            godwit: manifest.godwit.clone(),
            verb: manifest.verb.clone(),
            records: manifest.records,
            duplicates: manifest.duplicates,
            removed_duplicates: manifest.removed_duplicates,
            already_complete: true,
            ..Self::default()
        }
    }

    /// Adds another program, if the job used it (`version` is not `None`).
    pub fn with_program(mut self, name: &str, version: Option<&str>) -> Self {
        self.engines.extend(version.map(|version| (name.to_owned(), version.to_owned())));
        self
    }

    /// Adds the result of a Python step, if the job has one, and Python as a program of the job.
    pub fn with_python_step(mut self, step: Option<&PythonStep>, dropped_records: u64) -> Self {
        self.python_step = step.map(|step| PythonStepReport { function: step.function().to_owned(), dropped_records });
        self.with_program("python", step.map(PythonStep::version))
    }

    /// Sets the input files.
    pub fn with_inputs(mut self, inputs: Vec<InputFile>) -> Self {
        self.inputs = inputs;
        self
    }

    /// Sets the stages. Their times are rounded to milliseconds.
    pub fn with_stages(mut self, mut stages: Vec<Stage>) -> Self {
        stages.iter_mut().for_each(|stage| stage.seconds = (stage.seconds * 1000.0).round() / 1000.0);
        self.stages = stages;
        self
    }

    /// Sets the outputs, the record counts and the wall time.
    pub fn with_outputs(mut self, reduced: &UnpublishedOutputs, elapsed: Duration) -> Self {
        let sized = |(path, bytes): (&Path, u64)| OutputFile {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            bytes,
        };
        self.outputs = reduced.files.sizes().map(sized).collect();
        self.records = reduced.records;
        self.duplicates = reduced.duplicates;
        self.removed_duplicates = reduced.removed_duplicates;
        self.segments = reduced.segments.clone();
        self.key_numbers = reduced.qc.as_ref().map(|qc| KeyNumbers::new(qc, reduced.duplicate_metrics.as_ref()));
        self.seconds = rounded_seconds(elapsed);
        self
    }
}

/// Statistics of a cluster run: workers, assignments of blocks, and the data that workers and the head exchanged.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExchangeReport {
    /// Names of the workers of the run.
    #[serde(rename = "nodes")]
    pub workers: Vec<String>,
    /// The aligner of each worker, with its version.
    pub aligners: BTreeMap<String, String>,
    /// Names and versions of the aligners of all workers, without repetition.
    #[serde(skip)]
    pub distinct_aligners: BTreeSet<(String, String)>,
    /// Workers that were lost during the run.
    #[serde(rename = "lost_nodes")]
    pub lost_workers: usize,
    /// Number of assignments of blocks to workers, including repeated assignments of the same block.
    pub alignments: u64,
    /// Number of those assignments that gave a block to a second worker because the first worker was slow.
    pub stragglers: u64,
    /// Number of blocks that were aligned, each counted once.
    pub blocks: u64,
    /// Number of blocks that did not need to be aligned again, because workers held all slices of these blocks from an
    /// earlier head.
    #[serde(rename = "kept_blocks")]
    pub resumed_blocks: u64,
    /// Bytes of slices that workers fetched from each other.
    pub fetched_bytes: u64,
    /// Time that workers spent fetching slices, seconds, summed over all workers.
    pub fetching_seconds: f64,
    /// Bytes that the head received from workers: duplicate signatures, tables of slices, and reports about parts of
    /// the output.
    pub head_bytes: u64,
    /// Time from the last aligned block until every slice was at the worker that owns its shard, seconds. Earlier
    /// transfers ran while workers aligned.
    pub exposed_seconds: f64,
}

impl ExchangeReport {
    /// Returns names and versions of all aligners of the workers, each once.
    pub fn distinct_aligners(&self) -> Vec<(String, String)> {
        self.distinct_aligners.iter().cloned().collect()
    }
}

/// Formats a time as ISO 8601 in UTC, to the second.
pub fn format_utc(moment: SystemTime) -> String {
    DateTime::<Utc>::from(moment).to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Rejects a job that would read a file or pipe twice, or overwrite one of its inputs.
///
/// # Errors
/// [`PipelineError::Options`] if two of the paths are the same file.
pub fn check_distinct_files(inputs: &[InputFile], outputs: &[PathBuf]) -> Result<(), PipelineError> {
    // Pipes are checked too, because two readers of one pipe would each get only some of the bytes. Devices such as
    // /dev/null may be named twice.
    let is_device = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_char_device());
    let identity = |path: &Path| {
        let found = std::fs::metadata(path).ok().filter(|found| !found.is_dir() && !is_device(path))?;
        Some((found.dev(), found.ino()))
    };
    let mut seen: HashMap<(u64, u64), &Path> = HashMap::new();
    for path in inputs.iter().map(|input| input.path.as_path()) {
        let Some(file) = identity(path) else { continue };
        if let Some(other) = seen.insert(file, path) {
            let kind = if path.is_file() { "file" } else { "pipe" };
            let problem =
                format!("{} and {} are the same {kind}; give different names", other.display(), path.display());
            return Err(PipelineError::Options { problem });
        }
    }
    check_inputs_remain(inputs.iter().map(|input| input.path.as_path()), outputs)
}

/// Rejects a job that would overwrite one of its inputs, also through a symbolic or hard link.
///
/// # Errors
/// [`PipelineError::Options`] if an output is the same file as an input.
pub fn check_inputs_remain<'p>(
    inputs: impl IntoIterator<Item = &'p Path>,
    outputs: &[PathBuf],
) -> Result<(), PipelineError> {
    match inputs.into_iter().find(|input| outputs.iter().any(|output| is_same_file(input, output))) {
        Some(input) => Err(PipelineError::Options {
            problem: format!("the output would replace the input {}; choose another name", input.display()),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_date_writes_them() {
        // Expected values are from `date -u -d @N +%FT%TZ`, coreutils 9.1.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(format_utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
