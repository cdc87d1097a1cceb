//! The hash chain of the lines in the audit log.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde_json::Value;

use crate::error::AuditError;

/// The text whose hash is the chain before the first line.
const CHAIN_SEED: &[u8] = b"godwit audit 1";
/// The text between the other fields of a line and its chain.
const CHAIN_FIELD: &str = ",\"chain\":\"";
/// The text after the chain, at the end of a line.
const LINE_END: &str = "\"}";
/// Value of the field `call` in the line that follows a torn line.
pub(super) const TORN_CALL: &str = "torn";
/// Name of the field that contains the hash of a torn line, in the line that follows it.
pub(super) const TORN_HASH_FIELD: &str = "blake3";
/// Maximum length of a line, bytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// The chain of the last line that was added or verified.
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

    /// Adds a line to the chain and returns the line as it is written to the file. `fields`: JSON object with the other
    /// fields.
    pub(super) fn append_line(&mut self, fields: &str) -> String {
        let body = fields.strip_suffix('}').unwrap_or(fields);
        *self = self.next_hash(body);
        format!("{body}{CHAIN_FIELD}{}{LINE_END}\n", self.hex())
    }

    /// Verifies the chain in a line, which is passed without its line feed. If the chain is wrong, returns false and
    /// leaves the state unchanged.
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

/// The summary of an audit log that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSummary {
    /// Number of lines, including torn lines.
    pub lines: u64,
    /// Number of torn lines.
    pub torn_lines: u64,
    /// Chain of the last line. It can be noted and passed to a later verification as the expected chain.
    pub chain: String,
    /// 1-based number of the line with the expected chain; `None` if no chain was expected or no line has it.
    pub expected_line: Option<u64>,
}

/// The result of reading an audit log from its beginning.
pub(super) struct AuditScan {
    pub(super) chain: HashChain,
    pub(super) summary: AuditSummary,
    /// Bytes after the last line feed.
    pub(super) unterminated: Vec<u8>,
    /// 1-based number of the last line if it is torn and no following line records that.
    pub(super) open_torn_line: Option<u64>,
}

/// Verifies the chains of all lines in an audit log. If `expected` is set, one of the lines must have this chain.
///
/// # Errors
/// [`AuditError::Broken`] with the number of the first invalid line; [`AuditError::File`] if the file cannot be read.
pub fn verify_audit(path: &Path, expected: Option<&str>) -> Result<AuditSummary, AuditError> {
    let broken = |line, problem: &str| AuditError::Broken { path: path.to_owned(), line, problem: problem.to_owned() };
    let walked = scan_audit(path, expected)?;
    let lines = walked.summary.lines;
    // After a stop in the middle of a line, the next start of the server marks the torn line. This incomplete line has
    // no such mark yet.
    if let Some(line) = walked.open_torn_line {
        return Err(broken(line, "the line does not continue the hash chain"));
    }
    if !walked.unterminated.is_empty() {
        return Err(broken(
            lines + 1,
            "the line is incomplete; the next server that appends to this file marks it as torn",
        ));
    }
    if expected.is_some() && walked.summary.expected_line.is_none() {
        return Err(broken(
            lines,
            "it is the last line, and no line has the expected chain hash: lines are missing, or were rewritten",
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
            let problem = "the line does not continue the hash chain".to_owned();
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

/// Returns whether a line records the torn line before it, whose hash is `torn`.
fn closes_torn_line(line: &[u8], torn: blake3::Hash) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_slice(line) else { return false };
    fields.get("call").and_then(Value::as_str) == Some(TORN_CALL)
        && fields.get(TORN_HASH_FIELD).and_then(Value::as_str) == Some(torn.to_hex().as_str())
}
