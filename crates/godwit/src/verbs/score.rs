//! `godwit score`: scores the rows of a file or of an SQL statement with a scoring service.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use godwit_cli::cli::ScoreArgs;
use godwit_cli::failure::Failure;
use godwit_files::parent_directory;
use godwit_flight::{FlightError, TransportOptions};
use godwit_model::ErrorKind;
use godwit_process::TemporaryItem;
use godwit_query::{
    ModelDescription, ModelName, RowFormat, Rows, ScoreError, ScoredRows, StatementParameters, statement_tables,
    without_traceback,
};

use super::credentials::{connect_with, server_failure};
use super::output_check::{NamedInput, check_output, reference_files};
use super::query::{DirectoryDatasets, run_until_cancelled};
use super::row_output::{OutputRows, write_rows};
use super::{input_path, scratch_directory};

/// Time without data after which the client sends an HTTP/2 ping to the service. The service may be silent for long
/// while a large model computes. Servers with gRPC's C++ library close the connection if pings are more frequent than
/// every five minutes (`grpc.http2.min_ping_interval_without_data_ms`).
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(310);
/// First bytes of each supported file format, and the extension for the copy of stdin.
const FILE_SIGNATURES: [(&[u8], &str); 5] = [
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    // Arrow IPC stream: the continuation marker of its first message (Arrow Columnar Format 1.5, "Encapsulated message
    // format").
    (&[0xFF; 4], "arrow"),
    (b"##fileformat=VCF", "vcf"),
    (&[0x1F, 0x8B], "vcf.gz"),
];

/// Scores the rows and writes them with the scores.
pub fn run(args: &ScoreArgs) -> Result<(), Failure> {
    let format = output_format(args)?;
    if let Some(out) = &args.out {
        let mut inputs: Vec<NamedInput> = args.input.iter().map(|path| ("IN", input_path(path))).collect();
        inputs.extend(args.reference.iter().flat_map(|reference| reference_files(reference)));
        check_output("--out", out, &inputs)?;
    }
    // This copy of stdin must exist until all rows are written.
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

/// Returns the output format that `--format` or the extension of `--out` selects.
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
            let problem = "the extension of the output selects no format; use .parquet, .arrow, .csv, .tsv or .json, \
                           or --format";
            Err(Failure::new(ErrorKind::Usage, format!("--out {}: {problem}", path.display())))
        }
    }
}

async fn query_statement(args: &ScoreArgs) -> Result<Rows, Failure> {
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let threads = args.common.thread_count();
    let datasets = DirectoryDatasets::open(directory, args.reference.as_deref(), &args.common, threads)?;
    let sql = args.sql.as_deref().unwrap_or_default();
    if let Some(out) = &args.out {
        datasets.check_output("--out", out, &statement_tables(sql))?;
    }
    datasets.query(sql, &StatementParameters::default()).await
}

/// Returns the rows of a file in the order of the file, with only the columns that are sent to the service or written.
async fn query_file(
    args: &ScoreArgs,
    path: &Path,
    model: &ModelDescription,
    columns: Option<&[String]>,
) -> Result<Rows, Failure> {
    let named = path.file_name().and_then(|name| name.to_str());
    let Some(name) = named.filter(|_| path.exists()) else {
        return Err(Failure::new(ErrorKind::Machine, format!("there is no file {}", path.display())));
    };
    let directory = parent_directory(path);
    // Use one thread, because several threads would not preserve the order of the rows.
    let datasets = DirectoryDatasets::open(directory, args.reference.as_deref(), &args.common, 1)?;
    let all = select_rows(&datasets, "*", name).await?;
    let Some(kept) = columns else { return Ok(all) };
    let schema = all.schema().clone();
    let features = model.feature_indices(&schema)?;
    let wanted: BTreeSet<usize> = features.into_iter().chain(model.passthrough_indices(&schema, Some(kept))?).collect();
    let wanted: Vec<String> = wanted.into_iter().map(|at| quote_identifier(schema.field(at).name())).collect();
    drop(all);
    select_rows(&datasets, &wanted.join(", "), name).await
}

async fn select_rows(datasets: &DirectoryDatasets<'_>, columns: &str, table: &str) -> Result<Rows, Failure> {
    let sql = format!("SELECT {columns} FROM {}", quote_identifier(table));
    datasets.query(&sql, &StatementParameters::default()).await
}

/// Returns a name as a quoted SQL identifier.
fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A temporary copy of stdin, because readers of tables need random access. Dropping this value removes the file.
struct StdinFile {
    _directory: TemporaryItem<tempfile::TempDir>,
    path: PathBuf,
}

impl StdinFile {
    fn from_stdin(scratch: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            let problem =
                format!("cannot store stdin in {}: {error}; choose another directory with --temp", scratch.display());
            Failure::new(ErrorKind::Machine, problem)
        };
        let directory = TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-score-").tempdir_in(scratch));
        let directory = directory.map_err(failed)?;
        let mut stdin = std::io::stdin().lock();
        let mut start = Vec::new();
        stdin.by_ref().take(16).read_to_end(&mut start).map_err(failed)?;
        let Some((_, ending)) = FILE_SIGNATURES.iter().find(|(beginning, _)| start.starts_with(beginning)) else {
            let problem =
                "stdin is neither Parquet nor Arrow nor VCF; `godwit query ... --format arrow` converts other formats";
            return Err(Failure::new(ErrorKind::Input, problem.to_owned()));
        };
        let path = directory.path().join(format!("stdin.{ending}"));
        let mut file = std::fs::File::create(&path).map_err(failed)?;
        file.write_all(&start).map_err(failed)?;
        std::io::copy(&mut stdin, &mut file).map_err(failed)?;
        Ok(Self { _directory: directory, path })
    }
}

/// Converts an error about a model to a failure; an unknown model counts as wrong usage.
fn model_failure(error: ScoreError) -> Failure {
    let ScoreError::Flight(error) = error else { return error.into() };
    let message_text = match &error {
        FlightError::Status { peer, status } => Some(format!("{peer}: {}", without_traceback(status))),
        _ => None,
    };
    let failure = server_failure(error);
    match message_text {
        Some(message) => Failure::new(failure.kind, message),
        None => failure,
    }
}
