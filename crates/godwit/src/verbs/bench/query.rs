//! `godwit bench query`: what a server makes of statements, as its clients see it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use godwit_flight::measure::{Answered, ask};
use serde_json::{Value, json};

use super::super::access::{connected, of_server};
use super::{OwnServer, program, tell_stage, threads};
use crate::cli::{BenchQueryArgs, TableFormat};
use crate::failure::{Failure, print, print_json};
use crate::table::aligned;

/// Measures.
pub fn run(args: &BenchQueryArgs) -> Result<(), Failure> {
    let own = args.data.as_deref().map(served).transpose()?;
    let url = args.at.as_deref().or(own.as_ref().map(OwnServer::url)).unwrap_or_default();
    let results = threads()?.block_on(measure(args, url))?;
    match args.format {
        TableFormat::Json => print_json(&results),
        TableFormat::Table => print(&table(&results)),
    }
}

/// A `godwit serve` of a directory.
fn served(root: &Path) -> Result<OwnServer, Failure> {
    let mut command = Command::new(program()?);
    command.arg("serve").arg("--root").arg(root);
    command.args(["--listen", "127.0.0.1:0", "--until-stdin-closes", "--no-config"]);
    OwnServer::start(command)
}

async fn measure(args: &BenchQueryArgs, url: &str) -> Result<Vec<Value>, Failure> {
    let most = args.clients.iter().copied().max().unwrap_or(1);
    let mut clients = Vec::new();
    for _ in 0..most {
        clients.push(connected(url, &args.access).await?);
    }
    let mut results = Vec::new();
    for sql in &args.statements {
        for count in &args.clients {
            tell_stage(args.json, &format!("clients: {count}, {sql}"));
            let clients = &clients[..*count as usize];
            // Files are opened and processes started that are there from then on.
            ask(clients, sql, 1).await.map_err(of_server)?;
            let (answers, duration) = ask(clients, sql, args.rounds).await.map_err(of_server)?;
            results.push(told(sql, *count, answers, duration));
        }
    }
    Ok(results)
}

/// One line of the results. Times are in milliseconds.
fn told(sql: &str, clients: u32, mut answers: Vec<Answered>, duration: Duration) -> Value {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let share = |answers: &[Answered], share: f64| answers[((answers.len() - 1) as f64 * share).round() as usize];
    let bytes: u64 = answers.iter().map(|answer| answer.transferred.bytes).sum();
    answers.sort_by_key(|answer| answer.first);
    let first = share(&answers, 0.5).first;
    answers.sort_by_key(|answer| answer.transferred.duration);
    let whole = |at| ms(share(&answers, at).transferred.duration);
    json!({
        "statement": sql,
        "clients": clients,
        "answers": answers.len(),
        "rows": share(&answers, 0.5).transferred.rows,
        "bytes": share(&answers, 0.5).transferred.bytes,
        "answers_per_s": answers.len() as f64 / duration.as_secs_f64(),
        "mb_per_s": bytes as f64 / 1e6 / duration.as_secs_f64(),
        "first_rows_ms": ms(first),
        "median_ms": whole(0.5),
        "p95_ms": whole(0.95),
        "slowest_ms": whole(1.0),
    })
}

fn table(results: &[Value]) -> String {
    let heads = ["statement", "clients", "rows", "answers/s", "MB/s", "first ms", "median", "p95", "slowest"];
    let mut rows = vec![heads.map(str::to_owned)];
    for result in results {
        let number = |key: &str, places: usize| format!("{:.places$}", result[key].as_f64().unwrap_or_default());
        rows.push([
            shortened(result["statement"].as_str().unwrap_or_default()),
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
    aligned(&rows, 1)
}

/// A statement as it fits into a line.
fn shortened(sql: &str) -> String {
    const CHARACTERS: usize = 48;
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= CHARACTERS {
        return line;
    }
    line.chars().take(CHARACTERS - 2).chain("..".chars()).collect()
}
