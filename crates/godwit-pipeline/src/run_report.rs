//! `run.json`: what ran, on what, how long, and what came out.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::error::PipelineError;
use crate::observer::seconds;
use crate::reduce::Reduced;
use crate::staging::Staged;

/// The report of a job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunReport {
    /// Version of godwit.
    pub godwit: String,
    /// Name and version of each outside program.
    pub engines: Vec<(String, String)>,
    /// The verb.
    pub verb: String,
    /// The command line.
    pub command: Vec<String>,
    /// Files read.
    pub inputs: Vec<InputFile>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
    /// What took how long.
    pub stages: Vec<Stage>,
    /// Records written.
    pub records: u64,
    /// Records that are duplicates, written or left out.
    pub duplicates: u64,
    /// Duplicates left out.
    pub removed: u64,
    /// Stretches of the BAM with their checksums; between them lies only its header, behind them the 28 bytes of its end
    /// mark.
    pub segments: Vec<crate::reduce::Segment>,
    /// Wall time, seconds.
    pub seconds: f64,
}

/// A file that was read.
#[derive(Clone, Debug, Serialize)]
pub struct InputFile {
    /// Path as given.
    pub path: PathBuf,
    /// Size; `None` for a pipe.
    pub bytes: Option<u64>,
}

/// A file that was written.
#[derive(Clone, Debug, Serialize)]
pub struct OutputFile {
    /// Name within the directory of the report.
    pub name: String,
    /// Size.
    pub bytes: u64,
}

/// Part of a job. Stages overlap: reading goes on while blocks are aligned.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// A few words.
    pub name: &'static str,
    /// Wall time.
    pub seconds: f64,
    /// Reads or records.
    pub rows: u64,
    /// Bytes read, spilled or written.
    pub bytes: u64,
}

impl InputFile {
    /// An input that is there.
    ///
    /// # Errors
    /// [`PipelineError::Missing`], and [`PipelineError::File`] for what cannot be looked at.
    pub fn of(what: &'static str, path: &Path) -> Result<Self, PipelineError> {
        let found = std::fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                PipelineError::Missing { what, path: path.to_owned(), remedy: "check the path".into() }
            }
            _ => PipelineError::File { action: "read", path: path.to_owned(), source },
        })?;
        Ok(Self { path: path.to_owned(), bytes: found.is_file().then_some(found.len()) })
    }
}

impl RunReport {
    /// The report of a job that starts.
    pub fn new(verb: &str, command: &[String], engine: (&str, &str)) -> Self {
        let engines = if engine.0.is_empty() { Vec::new() } else { vec![(engine.0.into(), engine.1.into())] };
        Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            engines,
            verb: verb.into(),
            command: command.to_vec(),
            ..Self::default()
        }
    }

    /// With the files it read.
    pub fn inputs(mut self, inputs: Vec<InputFile>) -> Self {
        self.inputs = inputs;
        self
    }

    /// With its stages.
    pub fn stages(mut self, mut stages: Vec<Stage>) -> Self {
        stages.iter_mut().for_each(|stage| stage.seconds = (stage.seconds * 1000.0).round() / 1000.0);
        self.stages = stages;
        self
    }

    /// With what it wrote.
    pub fn reduced(mut self, reduced: &Reduced, elapsed: Duration) -> Self {
        let sized = |(path, bytes): (&Path, u64)| OutputFile {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            bytes,
        };
        self.outputs = reduced.staged.sizes().map(sized).collect();
        self.records = reduced.records;
        self.duplicates = reduced.duplicates;
        self.removed = reduced.removed;
        self.segments = reduced.segments.clone();
        self.seconds = seconds(elapsed);
        self
    }

    /// Writes the report beside the other outputs and gives all of them their names.
    ///
    /// # Errors
    /// [`PipelineError::File`]; none of the outputs has its name then.
    pub fn publish(&self, path: &Path, mut staged: Staged) -> Result<(), PipelineError> {
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other);
        text.and_then(|text| staged.write(path, &text)).map_err(PipelineError::file("write", path))?;
        staged.publish().map_err(|(path, source)| PipelineError::File { action: "name", path, source })
    }
}

/// Refuses a run that would read one file twice, or write over what it reads.
///
/// # Errors
/// [`PipelineError::Options`].
pub fn check_distinct(inputs: &[InputFile], outputs: &[PathBuf]) -> Result<(), PipelineError> {
    let identity = |path: &Path| {
        let found = std::fs::metadata(path).ok().filter(|found| found.is_file())?;
        Some((found.dev(), found.ino()))
    };
    let mut seen: HashMap<(u64, u64), &Path> = HashMap::new();
    for path in inputs.iter().map(|input| input.path.as_path()) {
        let Some(file) = identity(path) else { continue };
        if let Some(other) = seen.insert(file, path) {
            let problem = format!("{} and {} are the same file", other.display(), path.display());
            return Err(PipelineError::Options { problem });
        }
    }
    match outputs.iter().find_map(|output| seen.get(&identity(output)?)) {
        Some(input) => Err(PipelineError::Options {
            problem: format!("the output would replace the input {}; choose another name", input.display()),
        }),
        None => Ok(()),
    }
}
