//! Checks of a remote server, as a client sees it: reachability, authentication, version, and round-trip time.

use std::time::{Duration, Instant};

use godwit_cli::cli::AccessArgs;
use godwit_cli::failure::Failure;
use godwit_flight::{Client, Code, FlightError, SERVER_STATUS};
use godwit_model::{ErrorKind, message_with_causes};
use serde::Deserialize;

use super::{Area, Finding, FindingState};
use crate::verbs::credentials::connect;

/// Number of requests to the server; the time of the fastest response counts as the round-trip time.
const PROBE_COUNT: u32 = 5;

/// Response of the server to the action `Status`. Fields that servers of other versions do not send have default
/// values.
#[derive(Deserialize)]
struct ServerStatus {
    version: String,
    #[serde(default)]
    uptime_s: u64,
    #[serde(default)]
    open_streams: u64,
    #[serde(default)]
    writable: bool,
    #[serde(default)]
    sql: bool,
    #[serde(rename = "caller")]
    principal: Option<String>,
}

/// Checks the server at a URL. Returns the findings, and the round-trip time in milliseconds if the server responds.
///
/// # Errors
/// A failure if the URL or the credentials are invalid. An unreachable server is not an error but a finding.
pub fn server(url: &str, access: &AccessArgs) -> Result<(Vec<Finding>, Option<f64>), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot start threads: {error}")))?;
    runtime.block_on(async {
        let client = match connect(url, access).await {
            Ok(client) => client,
            Err(failure) if failure.kind == ErrorKind::Remote => {
                return Ok((vec![unreachable_finding(url, failure.single_line())], None));
            }
            Err(failure) => return Err(failure),
        };
        match query_status(&client).await {
            Err(problem) => Ok((vec![unreachable_finding(url, problem)], None)),
            Ok((told, nearest)) => {
                let rtt_ms = nearest.as_secs_f64() * 1e3;
                Ok((server_findings(url, told.as_ref(), rtt_ms), Some(rtt_ms)))
            }
        }
    })
}

/// Returns the status of the server, and the time of its fastest response. The status is `None` if the server is not
/// godwit.
async fn query_status(client: &Client) -> Result<(Option<ServerStatus>, Duration), String> {
    let mut nearest = Duration::MAX;
    let mut status = None;
    for _ in 0..PROBE_COUNT {
        let started = Instant::now();
        let answer = client.do_action(SERVER_STATUS, "").await;
        nearest = nearest.min(started.elapsed());
        let messages = match answer {
            Ok(messages) => messages,
            Err(FlightError::Status { status, .. }) if status.code() == Code::Unimplemented => Vec::new(),
            Err(error) => return Err(message_with_causes(&error)),
        };
        status = messages.first().and_then(|message| serde_json::from_slice(message).ok());
    }
    Ok((status, nearest))
}

fn unreachable_finding(url: &str, problem: String) -> Finding {
    let remedy = "check the address, --token-file, --ca and --client-cert, and on the server, that `godwit serve` runs";
    Finding::new(Area::Server, url, FindingState::Missing, problem).with_remedy(remedy)
}

fn server_findings(url: &str, status: Option<&ServerStatus>, rtt_ms: f64) -> Vec<Finding> {
    let way = if url.starts_with("grpc+tls") { "with TLS" } else { "without TLS" };
    let reached = format!("responds, {way}; round-trip time {rtt_ms:.1} ms");
    let mut findings = vec![Finding::new(Area::Server, url, FindingState::Fine, reached)];
    let Some(status) = status else {
        let found = "the server does not report its version: it is an older godwit or another Flight server";
        findings.push(Finding::new(Area::Server, "program", FindingState::Note, found));
        return findings;
    };
    let has = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    let found = format!(
        "godwit {}, up for {} s, {} open streams, {}, {}",
        status.version.escape_debug(),
        status.uptime_s,
        status.open_streams,
        has(status.sql, "SQL", "no SQL"),
        has(status.writable, "accepts datasets", "read only")
    );
    let own = env!("CARGO_PKG_VERSION");
    let program = Finding::new(Area::Server, "program", FindingState::Fine, found);
    findings.push(if status.version == own {
        program
    } else {
        let remedy = format!("this is godwit {own}: install the same version at both ends");
        Finding { state: FindingState::Warning, ..program }.with_remedy(remedy)
    });
    if let Some(caller) = &status.principal {
        let found = match caller.as_str() {
            "" => "authentication is not required".to_owned(),
            name => name.escape_debug().to_string(),
        };
        findings.push(Finding::new(Area::Server, "authenticated as", FindingState::Fine, found));
    }
    findings
}
