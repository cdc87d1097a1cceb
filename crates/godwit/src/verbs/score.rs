//! `godwit score`: scores rows of a file or of a statement with a service.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use godwit_flight::{FlightError, TransportOptions};
use godwit_process::TemporaryItem;
use godwit_query::{
    ModelDescription, ModelName, QueryEngine, RowFormat, Rows, ScoreError, ScoredRows, without_traceback,
};

use super::credentials::{connect_with, server_failure};
use super::query::{open_engine, run_until_cancelled};
use super::row_output::{OutputRows, write_rows};
use super::scratch_directory;
use crate::cli::ScoreArgs;
use crate::failure::{Exit, Failure};

/// Time without traffic before a service is pinged. Servers on gRPC's C++ library treat pings more often than every five
/// minutes as an attack, and close the connection (`grpc.http2.min_ping_interval_without_data_ms`); a large model may be
/// slow.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(310);
/// Magic bytes of files, and their extensions.
const FILE_SIGNATURES: [(&[u8], &str); 5] = [
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    // An IPC stream: continuation marker of a message (Arrow Columnar Format 1.5, "Encapsulated message format").
    (&[0xFF; 4], "arrow"),
    (b"##fileformat=VCF", "vcf"),
    (&[0x1F, 0x8B], "vcf.gz"),
];

/// Scores rows and writes them.
pub fn run(args: &ScoreArgs) -> Result<(), Failure> {
    let format = output_format(args)?;
    // Kept until all rows are written.
    let spooled = match args.input.as_deref() {
        Some(path) if path.as_os_str() == "-" => Some(StdinFile::from_stdin(&scratch_directory(&args.common))?),
        _ => None,
    };
    let input = spooled.as_ref().map(|spooled| spooled.path.as_path()).or(args.input.as_deref());
    run_until_cancelled(&args.common, score_rows(args, input, format))
}

async fn score_rows(args: &ScoreArgs, input: Option<&Path>, format: RowFormat) -> Result<(), Failure> {
    let name = ModelName::parse(&args.model);
    let tuning = TransportOptions { keep_alive_interval: KEEP_ALIVE_INTERVAL, ..TransportOptions::default() };
    let client = connect_with(&args.at, &args.access, tuning).await?;
    let model = ModelDescription::fetch(&client, &args.at, &name).await.map_err(model_failure)?;
    let columns = if args.scores_only { Some(&[][..]) } else { args.columns.as_deref() };
    let rows = match input {
        Some(path) => query_file(args, path, &model, columns).await?,
        None => query_statement(args).await?,
    };
    let scored = ScoredRows::score(&client, &name, &model, rows, columns).await?;
    write_rows(OutputRows::Scored(Box::new(scored)), format, args.out.as_deref()).await
}

/// Returns the output format, by `--format` or the extension of the file.
fn output_format(args: &ScoreArgs) -> Result<RowFormat, Failure> {
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

async fn query_statement(args: &ScoreArgs) -> Result<Rows, Failure> {
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let engine = open_engine(directory, args.reference.as_deref(), &args.common, args.common.thread_count(), None)?;
    Ok(engine.query(args.sql.as_deref().unwrap_or_default()).await?)
}

/// Queries the rows of a file in their order, with the columns that are sent or written.
async fn query_file(
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
    // Several threads would not keep the order of rows.
    let engine = open_engine(directory, args.reference.as_deref(), &args.common, 1, None)?;
    let all = select_rows(&engine, "*", name).await?;
    let Some(kept) = columns else { return Ok(all) };
    let schema = all.schema().clone();
    let features = model.feature_indices(&schema)?;
    let wanted: BTreeSet<usize> = features.into_iter().chain(model.passthrough_indices(&schema, Some(kept))?).collect();
    let wanted: Vec<String> = wanted.into_iter().map(|at| quote_identifier(schema.field(at).name())).collect();
    drop(all);
    select_rows(&engine, &wanted.join(", "), name).await
}

async fn select_rows(engine: &QueryEngine, columns: &str, table: &str) -> Result<Rows, Failure> {
    Ok(engine.query(&format!("SELECT {columns} FROM {}", quote_identifier(table))).await?)
}

/// Quotes an SQL identifier.
fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A file with the content of stdin, because table readers need random access. Dropping it removes the file.
struct StdinFile {
    _directory: TemporaryItem<tempfile::TempDir>,
    path: PathBuf,
}

impl StdinFile {
    fn from_stdin(scratch: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            let problem =
                format!("cannot keep stdin in {}: {error}; name another directory with --temp", scratch.display());
            Failure::new(Exit::Machine, problem)
        };
        let directory = TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-score-").tempdir_in(scratch));
        let directory = directory.map_err(failed)?;
        let mut stdin = std::io::stdin().lock();
        let mut start = Vec::new();
        stdin.by_ref().take(16).read_to_end(&mut start).map_err(failed)?;
        let Some((_, ending)) = FILE_SIGNATURES.iter().find(|(beginning, _)| start.starts_with(beginning)) else {
            let problem = "stdin is neither Parquet nor Arrow nor VCF; `godwit query ... --format arrow` writes what is read here";
            return Err(Failure::new(Exit::Input, problem.to_owned()));
        };
        let path = directory.path().join(format!("stdin.{ending}"));
        let mut file = std::fs::File::create(&path).map_err(failed)?;
        file.write_all(&start).map_err(failed)?;
        std::io::copy(&mut stdin, &mut file).map_err(failed)?;
        Ok(Self { _directory: directory, path })
    }
}

/// Converts an error about a model: an unknown model is wrong usage.
fn model_failure(error: ScoreError) -> Failure {
    let ScoreError::Flight(error) = error else { return error.into() };
    let message_text = match &error {
        FlightError::Status { peer, status } => Some(format!("{peer}: {}", without_traceback(status))),
        _ => None,
    };
    let failure = server_failure(error);
    match message_text {
        Some(message) => Failure::new(failure.exit, message),
        None => failure,
    }
}

impl From<ScoreError> for Failure {
    fn from(error: ScoreError) -> Self {
        let exit = match error {
            ScoreError::NotAScoringService { .. } | ScoreError::InvalidResponse { .. } => Exit::Remote,
            ScoreError::ColumnNotFound { .. } | ScoreError::ColumnConflict { .. } => Exit::Usage,
            ScoreError::MissingFeatures { .. } | ScoreError::RowsRejected { .. } => Exit::Input,
            ScoreError::Query(error) => return error.into(),
            ScoreError::Flight(error) => return error.into(),
        };
        Self::new(exit, godwit_formats::message_with_causes(&error))
    }
}
