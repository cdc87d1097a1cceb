//! `godwit score`: rows of a file or of a statement, scored by a service.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use godwit_flight::{FlightError, Tuning};
use godwit_process::Temporary;
use godwit_query::{Engine, ModelDescription, ModelName, RowFormat, Rows, ScoreError, ScoredRows, without_traceback};

use super::access::{connected_with, of_server};
use super::query::{engine_over, until_cancelled};
use super::rows::{Answer, write_rows};
use super::scratch_of;
use crate::cli::ScoreArgs;
use crate::failure::{Exit, Failure};

/// How long a service may be silent before it is asked for a sign of life. Those on gRPC's C++ library take being asked more often than
/// every five minutes as an attack, and end the connection (`grpc.http2.min_ping_interval_without_data_ms`); a large model may take
/// its time for a batch.
const SILENCE: Duration = Duration::from_secs(310);
/// Beginnings of files, and what their names end with.
const BEGINNINGS: [(&[u8], &str); 5] = [
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    // An IPC stream: the mark of a message (Arrow Columnar Format 1.5, "Encapsulated message format").
    (&[0xFF; 4], "arrow"),
    (b"##fileformat=VCF", "vcf"),
    (&[0x1F, 0x8B], "vcf.gz"),
];

/// Has rows scored and writes them.
pub fn run(args: &ScoreArgs) -> Result<(), Failure> {
    let format = format_of(args)?;
    // Lives until all is written.
    let spooled = match args.input.as_deref() {
        Some(path) if path.as_os_str() == "-" => Some(Spooled::stdin(&scratch_of(&args.common))?),
        _ => None,
    };
    let input = spooled.as_ref().map(|spooled| spooled.file.as_path()).or(args.input.as_deref());
    until_cancelled(&args.common, score(args, input, format))
}

async fn score(args: &ScoreArgs, input: Option<&Path>, format: RowFormat) -> Result<(), Failure> {
    let name = ModelName::parse(&args.model);
    let tuning = Tuning { keep_alive_interval: SILENCE, ..Tuning::default() };
    let client = connected_with(&args.at, &args.access, tuning).await?;
    let model = ModelDescription::ask(&client, &args.at, &name).await.map_err(of_model)?;
    let columns = if args.scores_only { Some(&[][..]) } else { args.columns.as_deref() };
    let rows = match input {
        Some(path) => of_file(args, path, &model, columns).await?,
        None => of_statement(args).await?,
    };
    let scored = ScoredRows::ask(&client, &name, &model, rows, columns).await?;
    write_rows(Answer::Scored(Box::new(scored)), format, args.out.as_deref()).await
}

/// What is written: as `--format` says, or the ending of the file.
fn format_of(args: &ScoreArgs) -> Result<RowFormat, Failure> {
    if let Some(format) = args.format {
        return Ok(format.into());
    }
    let Some(path) = &args.out else { return Ok(RowFormat::Table) };
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("parquet") => Ok(RowFormat::Parquet),
        Some("arrow" | "arrows") => Ok(RowFormat::Arrow),
        Some("csv") => Ok(RowFormat::Csv),
        Some("tsv") => Ok(RowFormat::Tsv),
        Some("json" | "jsonl" | "ndjson") => Ok(RowFormat::Json),
        _ => {
            let problem =
                "its ending says no format: .parquet, .arrow, .csv, .tsv and .json do; or name it with --format";
            Err(Failure::new(Exit::Usage, format!("--out {}: {problem}", path.display())))
        }
    }
}

async fn of_statement(args: &ScoreArgs) -> Result<Rows, Failure> {
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let engine = engine_over(directory, args.reference.as_deref(), &args.common, args.common.thread_count(), None)?;
    Ok(engine.query(args.sql.as_deref().unwrap_or_default()).await?)
}

/// Rows of a file in their order, with those columns that are sent or kept.
async fn of_file(
    args: &ScoreArgs,
    path: &Path,
    model: &ModelDescription,
    columns: Option<&[String]>,
) -> Result<Rows, Failure> {
    let named = path.file_name().and_then(|name| name.to_str());
    let Some(name) = named.filter(|_| path.exists()) else {
        return Err(Failure::new(Exit::Machine, format!("there is no file {}", path.display())));
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Several threads would give rows as they come.
    let engine = engine_over(directory, args.reference.as_deref(), &args.common, 1, None)?;
    let all = rows_of(&engine, "*", name).await?;
    let Some(kept) = columns else { return Ok(all) };
    let schema = all.schema().clone();
    let features = model.features_in(&schema)?;
    let wanted: BTreeSet<usize> = features.into_iter().chain(model.kept_in(&schema, Some(kept))?).collect();
    let wanted: Vec<String> = wanted.into_iter().map(|at| quoted(schema.field(at).name())).collect();
    drop(all);
    rows_of(&engine, &wanted.join(", "), name).await
}

async fn rows_of(engine: &Engine, columns: &str, table: &str) -> Result<Rows, Failure> {
    Ok(engine.query(&format!("SELECT {columns} FROM {}", quoted(table))).await?)
}

/// A name as SQL has it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What came over stdin, in a file that ends with it: readers of tables go back and forth.
struct Spooled {
    _directory: Temporary<tempfile::TempDir>,
    file: PathBuf,
}

impl Spooled {
    fn stdin(scratch: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            let problem =
                format!("cannot keep stdin in {}: {error}; name another directory with --temp", scratch.display());
            Failure::new(Exit::Machine, problem)
        };
        let directory = Temporary::create(|| tempfile::Builder::new().prefix("godwit-score-").tempdir_in(scratch));
        let directory = directory.map_err(failed)?;
        let mut stdin = std::io::stdin().lock();
        let mut start = Vec::new();
        stdin.by_ref().take(16).read_to_end(&mut start).map_err(failed)?;
        let Some((_, ending)) = BEGINNINGS.iter().find(|(beginning, _)| start.starts_with(beginning)) else {
            let problem = "stdin is neither Parquet nor Arrow nor VCF; `godwit query ... --format arrow` writes what is read here";
            return Err(Failure::new(Exit::Input, problem.to_owned()));
        };
        let path = directory.path().join(format!("stdin.{ending}"));
        let mut file = std::fs::File::create(&path).map_err(failed)?;
        file.write_all(&start).map_err(failed)?;
        std::io::copy(&mut stdin, &mut file).map_err(failed)?;
        Ok(Self { _directory: directory, file: path })
    }
}

/// What is said of a model that is not there is wrong usage.
fn of_model(error: ScoreError) -> Failure {
    let ScoreError::Flight(error) = error else { return error.into() };
    let said = match &error {
        FlightError::Status { peer, status } => Some(format!("{peer}: {}", without_traceback(status))),
        _ => None,
    };
    let failure = of_server(error);
    match said {
        Some(message) => Failure::new(failure.exit, message),
        None => failure,
    }
}

impl From<ScoreError> for Failure {
    fn from(error: ScoreError) -> Self {
        let exit = match error {
            ScoreError::NoService { .. } | ScoreError::Answer { .. } => Exit::Remote,
            ScoreError::NoColumn { .. } | ScoreError::Taken { .. } => Exit::Usage,
            ScoreError::Features { .. } | ScoreError::Refused { .. } => Exit::Input,
            ScoreError::Query(error) => return error.into(),
            ScoreError::Flight(error) => return error.into(),
        };
        Self::new(exit, godwit_formats::with_causes(&error))
    }
}
