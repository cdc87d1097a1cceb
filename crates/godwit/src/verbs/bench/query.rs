//! `godwit bench query`: measures the latency and throughput of SQL statements on a server, as its clients see them.

mod statement_timing;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use godwit_cli::cli::{BenchQueryArgs, TableFormat};
use godwit_cli::failure::{Failure, print, print_json};
use serde_json::{Value, json};

use self::statement_timing::{StatementTiming, run_statements};
use super::super::credentials::{connect, server_failure};
use super::{ServerProcess, current_program, new_runtime, report_stage};
use crate::text_table::align_columns;

/// Runs the measurement, with a server of its own if `--data` is given, and prints the results.
pub fn run(args: &BenchQueryArgs) -> Result<(), Failure> {
    let own = args.data.as_deref().map(start_server).transpose()?;
    let url = args.at.as_deref().or(own.as_ref().map(ServerProcess::url)).unwrap_or_default();
    let results = new_runtime()?.block_on(measure(args, url))?;
    match args.format {
        TableFormat::Json => print_json(&results),
        TableFormat::Table => print(&table(&results)),
    }
}

/// Starts `godwit serve` for the datasets below a directory.
fn start_server(root: &Path) -> Result<ServerProcess, Failure> {
    let mut command = Command::new(current_program()?);
    command.arg("serve").arg("--root").arg(root);
    command.args(["--listen", "127.0.0.1:0", "--until-stdin-closes", "--no-config"]);
    ServerProcess::start(command)
}

async fn measure(args: &BenchQueryArgs, url: &str) -> Result<Vec<Value>, Failure> {
    let most = args.clients.iter().copied().max().unwrap_or(1);
    let mut clients = Vec::new();
    for _ in 0..most {
        clients.push(connect(url, &args.access).await?);
    }
    let mut results = Vec::new();
    for sql in &args.statements {
        for count in &args.clients {
            report_stage(args.json, &format!("clients: {count}, {sql}"));
            let clients = &clients[..*count as usize];
            // Run each statement once before the measurement, so that the server has opened files and started
            // processes.
            run_statements(clients, sql, 1).await.map_err(server_failure)?;
            let (answers, duration) = run_statements(clients, sql, args.rounds).await.map_err(server_failure)?;
            results.push(result_json(sql, *count, answers, duration));
        }
    }
    Ok(results)
}

/// Returns the result for one statement and number of clients as JSON. Times are in milliseconds.
fn result_json(sql: &str, clients: u32, mut answers: Vec<StatementTiming>, duration: Duration) -> Value {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let share =
        |answers: &[StatementTiming], share: f64| answers[((answers.len() - 1) as f64 * share).round() as usize];
    let bytes: u64 = answers.iter().map(|answer| answer.transfer.bytes).sum();
    answers.sort_by_key(|answer| answer.time_to_first_batch);
    let first = share(&answers, 0.5).time_to_first_batch;
    answers.sort_by_key(|answer| answer.transfer.duration);
    let whole = |at| ms(share(&answers, at).transfer.duration);
    json!({
        "statement": sql,
        "clients": clients,
        "answers": answers.len(),
        "rows": share(&answers, 0.5).transfer.rows,
        "bytes": share(&answers, 0.5).transfer.bytes,
        "answers_per_s": answers.len() as f64 / duration.as_secs_f64(),
        "mb_per_s": bytes as f64 / 1e6 / duration.as_secs_f64(),
        "first_rows_ms": ms(first),
        "median_ms": whole(0.5),
        "p95_ms": whole(0.95),
        "slowest_ms": whole(1.0),
    })
}

fn table(results: &[Value]) -> String {
    let heads = ["statement", "clients", "rows", "responses/s", "MB/s", "first ms", "median", "p95", "slowest"];
    let mut rows = vec![heads.map(str::to_owned)];
    for result in results {
        let number = |key: &str, places: usize| format!("{:.places$}", result[key].as_f64().unwrap_or_default());
        rows.push([
            shorten(result["statement"].as_str().unwrap_or_default()),
            number("clients", 0),
            number("rows", 0),
            number("answers_per_s", 1),
            number("mb_per_s", 1),
            number("first_rows_ms", 2),
            number("median_ms", 2),
            number("p95_ms", 2),
            number("slowest_ms", 2),
        ]);
    }
    align_columns(&rows, 1)
}

/// Shortens a statement so that it fits into a line of the table.
fn shorten(sql: &str) -> String {
    const MAX_CHARACTERS: usize = 48;
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MAX_CHARACTERS {
        return line;
    }
    line.chars().take(MAX_CHARACTERS - 2).chain("..".chars()).collect()
}
