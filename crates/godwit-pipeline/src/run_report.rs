//! `run.json`: what ran, on what, how long, and what came out.

use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::align::ExchangeReport;
use crate::error::PipelineError;
use crate::journal::Fact;
use crate::key_numbers::KeyNumbers;
use crate::manifest::{self, Manifest};
use crate::observer::seconds;
use crate::reduce::{Format, Outputs, Reduced};
use crate::report_page::ReportPage;
use crate::run_directory::RunDirectory;
use crate::staging::Staged;
use crate::step::Step;

/// The report of a job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunReport {
    /// Version of godwit.
    pub godwit: String,
    /// Name and version of each outside program.
    pub engines: Vec<(String, String)>,
    /// The aligner; `None` where nothing was aligned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aligner: Option<AlignerReport>,
    /// The verb.
    pub verb: String,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, UTC, as in `2026-11-21T02:34:16Z`.
    pub started: String,
    /// Threads.
    pub threads: usize,
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
    /// What a step did, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepReport>,
    /// The numbers people ask for first; only with metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<KeyNumbers>,
    /// Stretches of the BAM with their checksums; between them lies only its header, behind them the 28 bytes of its end
    /// mark.
    pub segments: Vec<crate::reduce::Segment>,
    /// Wall time, seconds.
    pub seconds: f64,
    /// What an earlier, stopped process had finished.
    pub resumed: ResumedWork,
    /// What went between nodes; `None` where one process did it all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<ExchangeReport>,
    /// The outputs were there already; nothing ran.
    #[serde(skip)]
    pub already_complete: bool,
}

/// What a function between marking and writing did.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// `MODULE:FUNCTION`.
    pub function: String,
    /// Records that it left out.
    pub dropped: u64,
}

/// Work that was not done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResumedWork {
    /// Blocks that were aligned before.
    pub blocks: usize,
    /// Partitions that were written before.
    pub partitions: usize,
}

/// How reads were aligned.
#[derive(Clone, Debug, Serialize)]
pub struct AlignerReport {
    /// As `--aligner` took it: a name, or a command line with open places.
    pub choice: String,
    /// The program.
    pub name: String,
    /// Its version; empty where it tells none.
    pub version: String,
    /// The reason of `auto` for the aligner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Path its index files' names begin with.
    pub index: PathBuf,
    /// Whether records depend on where the reads are cut: `across blocks` or `single stream only`.
    pub identity: &'static str,
}

/// A file that was read.
#[derive(Clone, Debug, Serialize)]
pub struct InputFile {
    /// Path as given.
    pub path: PathBuf,
    /// Size; `None` for a pipe.
    pub bytes: Option<u64>,
    /// BLAKE3 of its bytes as they are on disk, hexadecimal, where all of it was read.
    pub blake3: Option<String>,
    /// Byte from which on it was decompressed and parsed, where a run that was gone on with did not begin at its start.
    /// What lies before was only compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_from: Option<u64>,
}

/// A file that was written.
#[derive(Clone, Debug, Serialize)]
pub struct OutputFile {
    /// Name within the directory of the report.
    pub name: String,
    /// Size.
    pub bytes: u64,
}

impl OutputFile {
    /// Files that wait for their names.
    pub(crate) fn of(staged: &Staged) -> Vec<Self> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        staged.sizes().map(|(path, bytes)| Self { name: name(path), bytes }).collect()
    }
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
        Ok(Self { path: path.to_owned(), bytes: found.is_file().then_some(found.len()), blake3: None, read_from: None })
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
            started: utc(SystemTime::now()),
            ..Self::default()
        }
    }

    /// With how reads were aligned.
    pub fn aligner(mut self, aligner: AlignerReport) -> Self {
        self.aligner = Some(aligner);
        self
    }

    /// On that many threads, after the work of an earlier process.
    pub fn ran(mut self, threads: usize, resumed: ResumedWork, elapsed: Duration) -> Self {
        self.threads = threads;
        self.resumed = resumed;
        self.started = utc(SystemTime::now() - elapsed);
        self
    }

    /// With what went between nodes.
    pub fn exchanged(mut self, exchange: Option<ExchangeReport>) -> Self {
        self.exchange = exchange;
        self
    }

    /// The report of a run whose outputs were there already.
    pub fn of_complete(manifest: &Manifest) -> Self {
        Self {
            godwit: manifest.godwit.clone(),
            verb: manifest.verb.clone(),
            records: manifest.records,
            duplicates: manifest.duplicates,
            removed: manifest.removed,
            already_complete: true,
            ..Self::default()
        }
    }

    /// With a further engine, where it was used.
    pub fn engine(mut self, name: &str, version: Option<&str>) -> Self {
        self.engines.extend(version.map(|version| (name.to_owned(), version.to_owned())));
        self
    }

    /// With what a step did, where there was one: its Python is an engine of the run.
    pub fn stepped(mut self, step: Option<&Step>, dropped: u64) -> Self {
        self.step = step.map(|step| StepReport { function: step.function().to_owned(), dropped });
        self.engine("python", step.map(Step::version))
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
        self.numbers = reduced.qc.as_ref().map(|qc| KeyNumbers::new(qc, reduced.duplication.as_ref()));
        self.seconds = seconds(elapsed);
        self
    }

    /// Writes the page (with metrics), the manifest and the report beside the other outputs and gives all of them their
    /// names.
    ///
    /// # Errors
    /// [`PipelineError::File`]; none of the outputs has its name then.
    pub fn publish(mut self, mut reduced: Reduced, publication: &Publication) -> Result<Self, PipelineError> {
        let Publication { outputs, json, page, identity, run, .. } = publication;
        // The page and the report tell times, so they are not in the manifest, which equal runs have in common.
        let manifest = Manifest::of(&self.verb, identity, &reduced, &outputs.path(Format::Bam))
            .map_err(|(path, source)| PipelineError::File { action: "read", path, source })?;
        if let Some(html) = self.page(&reduced, publication) {
            reduced.staged.write(page, html.as_bytes()).map_err(PipelineError::file("write", page))?;
            let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.outputs.push(OutputFile { name, bytes: html.len() as u64 });
        }
        let staged = &mut reduced.staged;
        let manifest_path = outputs.beside(manifest::SUFFIX);
        for (path, text) in
            [(&manifest_path, serde_json::to_vec_pretty(&manifest)), (json, serde_json::to_vec_pretty(&self))]
        {
            let text = text.map_err(std::io::Error::other);
            text.and_then(|text| staged.write(path, &text)).map_err(PipelineError::file("write", path))?;
        }
        // Directories cannot be rolled forward; a run stopped between their names writes again what it has aligned.
        if let Some(run) = run
            && staged.directories().is_empty()
        {
            run.publishing(staged).map_err(PipelineError::file("write the journal of", json))?;
        }
        reduced.staged.publish().map_err(|(path, source)| PipelineError::File { action: "name", path, source })?;
        Ok(self)
    }

    /// The page, where there are metrics.
    fn page(&self, reduced: &Reduced, publication: &Publication) -> Option<String> {
        let (qc, numbers) = (reduced.qc.as_ref()?, self.numbers.as_ref()?);
        let reference = publication.reference.map(|path| path.to_string_lossy());
        let page = ReportPage {
            sample: &publication.sample,
            reference: reference.as_deref(),
            run: self,
            numbers,
            qc,
            duplication: reduced.duplication.as_ref(),
        };
        Some(page.to_html())
    }
}

/// Where a report goes and what it is called.
pub struct Publication<'p> {
    /// The other outputs.
    pub outputs: &'p Outputs,
    /// `run.json`.
    pub json: PathBuf,
    /// The page.
    pub page: PathBuf,
    /// The sample, or the name of the file.
    pub sample: String,
    /// The reference, where one was given.
    pub reference: Option<&'p Path>,
    /// What decides the content of the outputs.
    pub identity: &'p [Fact],
    /// The run directory, where there is one.
    pub run: Option<&'p RunDirectory>,
}

/// A moment as ISO 8601 writes it, to the second.
pub(crate) fn utc(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (mut days, of_day) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

/// Refuses a run that would read one file or pipe twice, or write over what it reads.
///
/// # Errors
/// [`PipelineError::Options`].
pub fn check_distinct(inputs: &[InputFile], outputs: &[PathBuf]) -> Result<(), PipelineError> {
    // Pipes too: what is read under two names is missing from both. /dev/null, named as such, is as empty the second time.
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
            let problem = format!("{} and {} are the same {kind}", other.display(), path.display());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_date_tells_them() {
        // `date -u -d @N +%FT%TZ`, coreutils 9.1.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
