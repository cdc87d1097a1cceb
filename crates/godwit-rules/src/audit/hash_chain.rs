//! The hash chain of the lines.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde_json::Value;

use crate::error::AuditError;

/// The chain before the first line.
const CHAIN_SEED: &[u8] = b"godwit audit 1";
/// The text before the chain of a line.
const CHAIN_FIELD: &str = ",\"chain\":\"";
/// The end of a line.
const LINE_END: &str = "\"}";
/// The call in a line that closes a torn one.
pub(super) const TORN_CALL: &str = "torn";
/// The field in that line with the hash of the torn one.
pub(super) const TORN_HASH_FIELD: &str = "blake3";
/// Longest accepted line, bytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// The state of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HashChain(blake3::Hash);

impl HashChain {
    pub(super) fn start() -> Self {
        Self(blake3::hash(CHAIN_SEED))
    }

    pub(super) fn hex(&self) -> String {
        self.0.to_hex().to_string()
    }

    fn next_hash(&self, line: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.0.as_bytes());
        hasher.update(line.as_bytes());
        Self(hasher.finalize())
    }

    /// Appends a line, and returns it as it is written. `fields` is a JSON object.
    pub(super) fn append_line(&mut self, fields: &str) -> String {
        let body = fields.strip_suffix('}').unwrap_or(fields);
        *self = self.next_hash(body);
        format!("{body}{CHAIN_FIELD}{}{LINE_END}\n", self.hex())
    }

    /// Verifies a line without its line feed; returns false where it does not continue the chain.
    pub(super) fn verify_line(&mut self, line: &[u8]) -> bool {
        let Some((body, hex)) = std::str::from_utf8(line).ok().and_then(|line| line.rsplit_once(CHAIN_FIELD)) else {
            return false;
        };
        let next = self.next_hash(body);
        let fits = hex.strip_suffix(LINE_END).is_some_and(|hex| hex == next.hex());
        if fits {
            *self = next;
        }
        fits
    }
}

/// The summary of a valid log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSummary {
    /// Lines, including torn ones.
    pub lines: u64,
    /// Torn lines.
    pub torn_lines: u64,
    /// The chain of the last line, which can be noted and expected later.
    pub chain: String,
    /// 1-based number of the line with the expected chain.
    pub expected_line: Option<u64>,
}

/// The state of a log that was read from its beginning.
pub(super) struct AuditScan {
    pub(super) chain: HashChain,
    pub(super) summary: AuditSummary,
    /// Bytes behind the last line feed.
    pub(super) unterminated: Vec<u8>,
    /// 1-based number of a torn line that the next line has not closed yet.
    pub(super) open_torn_line: Option<u64>,
}

/// Verifies that each line continues the chain; `expected` is a chain that one of them must have.
///
/// # Errors
/// [`AuditError::Broken`] with the first invalid line; [`AuditError::File`] where the file cannot be read.
pub fn verify_audit(path: &Path, expected: Option<&str>) -> Result<AuditSummary, AuditError> {
    let broken = |line, problem: &str| AuditError::Broken { path: path.to_owned(), line, problem: problem.to_owned() };
    let walked = scan_audit(path, expected)?;
    let lines = walked.summary.lines;
    // A server that was stopped within a line closes it at its next start.
    if let Some(line) = walked.open_torn_line {
        return Err(broken(line, "it is not the line that belongs here"));
    }
    if !walked.unterminated.is_empty() {
        return Err(broken(lines + 1, "it has no end; a server that goes on with this file marks it as cut short"));
    }
    if expected.is_some() && walked.summary.expected_line.is_none() {
        return Err(broken(
            lines,
            "it is the last, and no line has the chain that was asked for: lines are missing, or were written anew",
        ));
    }
    Ok(walked.summary)
}

pub(super) fn scan_audit(path: &Path, expected: Option<&str>) -> Result<AuditScan, AuditError> {
    let failed = |source| AuditError::File { action: "read", path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(failed)?);
    let chain = HashChain::start();
    let expected_line = expected.filter(|hex| **hex == chain.hex()).map(|_| 0);
    let summary = AuditSummary { lines: 0, torn_lines: 0, chain: chain.hex(), expected_line };
    let mut walked = AuditScan { chain, summary, unterminated: Vec::new(), open_torn_line: None };
    let mut torn: Option<blake3::Hash> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        reader.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line).map_err(failed)?;
        if line.pop_if(|last| *last == b'\n').is_none() {
            walked.unterminated = line;
            return Ok(walked);
        }
        walked.summary.lines += 1;
        let number = walked.summary.lines;
        let is_next = walked.chain.verify_line(&line);
        let closes = torn.is_some_and(|hash| is_next && closes_torn_line(&line, hash));
        if torn.is_some() && !closes || !is_next && walked.open_torn_line.is_some() {
            let line = walked.open_torn_line.unwrap_or(number);
            let problem = "it is not the line that belongs here".to_owned();
            return Err(AuditError::Broken { path: path.to_owned(), line, problem });
        }
        match is_next {
            true => {
                (torn, walked.open_torn_line) = (None, None);
                walked.summary.torn_lines += u64::from(closes);
                walked.summary.chain = walked.chain.hex();
                if expected == Some(walked.summary.chain.as_str()) {
                    walked.summary.expected_line = Some(number);
                }
            }
            false => (torn, walked.open_torn_line) = (Some(blake3::hash(&line)), Some(number)),
        }
    }
}

/// Reports whether a line closes the torn line before it.
fn closes_torn_line(line: &[u8], torn: blake3::Hash) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_slice(line) else { return false };
    fields.get("call").and_then(Value::as_str) == Some(TORN_CALL)
        && fields.get(TORN_HASH_FIELD).and_then(Value::as_str) == Some(torn.to_hex().as_str())
}
