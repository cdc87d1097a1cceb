//! A server as its clients meet it: whether it is found, lets us in, what it is, and how far away.

use std::time::{Duration, Instant};

use godwit_flight::Client;
use godwit_formats::with_causes;
use serde::Deserialize;

use super::{Area, Finding, State};
use crate::cli::AccessArgs;
use crate::failure::{Exit, Failure};
use crate::verbs::access::connected;

/// How often it is asked; the quickest answer tells the round-trip time.
const QUESTIONS: u32 = 5;

/// What a data node says of itself; what other versions leave out is left out here.
#[derive(Deserialize)]
struct Told {
    version: String,
    #[serde(default)]
    uptime_s: u64,
    #[serde(default)]
    open_streams: u64,
    #[serde(default)]
    writable: bool,
    #[serde(default)]
    sql: bool,
    caller: Option<String>,
}

/// What is found at a URL, and the round-trip time in milliseconds where it answers.
///
/// # Errors
/// Wrong usage only: a URL of no server, a token file that holds none.
pub fn server(url: &str, access: &AccessArgs) -> Result<(Vec<Finding>, Option<f64>), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))?;
    runtime.block_on(async {
        let client = match connected(url, access).await {
            Ok(client) => client,
            Err(failure) if failure.exit == Exit::Remote => return Ok((vec![unreachable(url, failure.line())], None)),
            Err(failure) => return Err(failure),
        };
        match asked(&client).await {
            Err(problem) => Ok((vec![unreachable(url, problem)], None)),
            Ok((told, nearest)) => {
                let rtt_ms = nearest.as_secs_f64() * 1e3;
                Ok((findings(url, told.as_ref(), rtt_ms), Some(rtt_ms)))
            }
        }
    })
}

/// What it says of itself (nothing where it is another kind of server), and how long the quickest answer took.
async fn asked(client: &Client) -> Result<(Option<Told>, Duration), String> {
    let mut nearest = Duration::MAX;
    let mut told = None;
    for _ in 0..QUESTIONS {
        let started = Instant::now();
        let answer = client.act("Status", "").await;
        nearest = nearest.min(started.elapsed());
        let messages = match answer {
            Ok(messages) => messages,
            Err(godwit_flight::FlightError::Status { status, .. })
                if status.code() == godwit_flight::Code::Unimplemented =>
            {
                Vec::new()
            }
            Err(error) => return Err(with_causes(&error)),
        };
        told = messages.first().and_then(|message| serde_json::from_slice(message).ok());
    }
    Ok((told, nearest))
}

fn unreachable(url: &str, problem: String) -> Finding {
    let remedy = "check the address, --token-file, --ca and --client-cert, and on the server, that `godwit serve` runs";
    Finding::new(Area::Server, url, State::Missing, problem).remedy(remedy)
}

fn findings(url: &str, told: Option<&Told>, rtt_ms: f64) -> Vec<Finding> {
    let way = if url.starts_with("grpc+tls") { "with TLS" } else { "without TLS" };
    let reached = format!("answers, {way}; {rtt_ms:.1} ms for a question and its answer");
    let mut findings = vec![Finding::new(Area::Server, url, State::Fine, reached)];
    let Some(told) = told else {
        let found = "does not say what it is: another kind of Flight server, or an older godwit";
        findings.push(Finding::new(Area::Server, "program", State::Note, found));
        return findings;
    };
    let has = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    let found = format!(
        "godwit {}, up for {} s, {} open streams, {}, {}",
        told.version.escape_debug(),
        told.uptime_s,
        told.open_streams,
        has(told.sql, "SQL", "no SQL"),
        has(told.writable, "takes datasets", "read only")
    );
    let own = env!("CARGO_PKG_VERSION");
    let program = Finding::new(Area::Server, "program", State::Fine, found);
    findings.push(if told.version == own {
        program
    } else {
        let remedy = format!("this is godwit {own}: install the same version at both ends");
        Finding { state: State::Warning, ..program }.remedy(remedy)
    });
    if let Some(caller) = &told.caller {
        let found = match caller.as_str() {
            "" => "nobody is asked who they are".to_owned(),
            name => name.escape_debug().to_string(),
        };
        findings.push(Finding::new(Area::Server, "who asks", State::Fine, found));
    }
    findings
}
