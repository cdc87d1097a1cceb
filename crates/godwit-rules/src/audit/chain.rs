//! How lines hang together.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde_json::Value;

use crate::error::AuditError;

/// What goes before the first line.
const START: &[u8] = b"godwit audit 1";
/// What goes before the chain of a line.
const CHAIN: &str = ",\"chain\":\"";
/// What ends a line.
const END: &str = "\"}";
/// What is called where a line closes one that was cut short.
pub(super) const TORN: &str = "torn";
/// The field that tells that line by its hash.
pub(super) const TORN_HASH: &str = "blake3";
/// The longest line that is read.
const LINE_BYTES: usize = 1 << 20;

/// Where a record of accesses stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain(blake3::Hash);

impl Chain {
    pub(super) fn start() -> Self {
        Self(blake3::hash(START))
    }

    pub(super) fn hex(&self) -> String {
        self.0.to_hex().to_string()
    }

    fn behind(&self, line: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.0.as_bytes());
        hasher.update(line.as_bytes());
        Self(hasher.finalize())
    }

    /// Adds a line, and gives it as it is written. `fields` is an object of JSON.
    pub(super) fn add(&mut self, fields: &str) -> String {
        let body = fields.strip_suffix('}').unwrap_or(fields);
        *self = self.behind(body);
        format!("{body}{CHAIN}{}{END}\n", self.hex())
    }

    /// Goes past a line without its end; false where it is not the next one.
    pub(super) fn pass(&mut self, line: &[u8]) -> bool {
        let Some((body, hex)) = std::str::from_utf8(line).ok().and_then(|line| line.rsplit_once(CHAIN)) else {
            return false;
        };
        let next = self.behind(body);
        let fits = hex.strip_suffix(END).is_some_and(|hex| hex == next.hex());
        if fits {
            *self = next;
        }
        fits
    }
}

/// A record that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Lines, those that were cut short included.
    pub lines: u64,
    /// Lines that were cut short.
    pub torn: u64,
    /// The chain of the last line; who notes it can ask for it later.
    pub chain: String,
    /// The line whose chain was asked for, counted from 1.
    pub found: Option<u64>,
}

/// What is known of a record, read from its beginning.
pub(super) struct Walked {
    pub(super) chain: Chain,
    pub(super) verified: Verified,
    /// What stands behind the last whole line, if it has no end.
    pub(super) rest: Vec<u8>,
    /// A line that was cut short, and that none behind it closes yet: its number.
    pub(super) open: Option<u64>,
}

/// Checks that each line of a record is what the lines before it say; `expected` is a chain that one of them has to have.
///
/// # Errors
/// [`AuditError::Broken`] with the first line that is not, [`AuditError::File`].
pub fn verify(path: &Path, expected: Option<&str>) -> Result<Verified, AuditError> {
    let broken = |line, problem: &str| AuditError::Broken { path: path.to_owned(), line, problem: problem.to_owned() };
    let walked = walk(path, expected)?;
    let lines = walked.verified.lines;
    // A server that was stopped in the middle of a line closes it when it starts again.
    if let Some(line) = walked.open {
        return Err(broken(line, "it is not the line that belongs here"));
    }
    if !walked.rest.is_empty() {
        return Err(broken(lines + 1, "it has no end; a server that goes on with this file marks it as cut short"));
    }
    if expected.is_some() && walked.verified.found.is_none() {
        return Err(broken(
            lines,
            "it is the last, and no line has the chain that was asked for: lines are missing, or were written anew",
        ));
    }
    Ok(walked.verified)
}

pub(super) fn walk(path: &Path, expected: Option<&str>) -> Result<Walked, AuditError> {
    let failed = |source| AuditError::File { doing: "read", path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(failed)?);
    let chain = Chain::start();
    let found = expected.filter(|hex| **hex == chain.hex()).map(|_| 0);
    let verified = Verified { lines: 0, torn: 0, chain: chain.hex(), found };
    let mut walked = Walked { chain, verified, rest: Vec::new(), open: None };
    let mut torn: Option<blake3::Hash> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        reader.by_ref().take(LINE_BYTES as u64 + 1).read_until(b'\n', &mut line).map_err(failed)?;
        if line.pop_if(|last| *last == b'\n').is_none() {
            walked.rest = line;
            return Ok(walked);
        }
        walked.verified.lines += 1;
        let number = walked.verified.lines;
        let is_next = walked.chain.pass(&line);
        let closes = torn.is_some_and(|hash| is_next && is_about(&line, hash));
        if torn.is_some() && !closes || !is_next && walked.open.is_some() {
            let line = walked.open.unwrap_or(number);
            let problem = "it is not the line that belongs here".to_owned();
            return Err(AuditError::Broken { path: path.to_owned(), line, problem });
        }
        match is_next {
            true => {
                (torn, walked.open) = (None, None);
                walked.verified.torn += u64::from(closes);
                walked.verified.chain = walked.chain.hex();
                if expected == Some(walked.verified.chain.as_str()) {
                    walked.verified.found = Some(number);
                }
            }
            false => (torn, walked.open) = (Some(blake3::hash(&line)), Some(number)),
        }
    }
}

/// Whether a line says that the one before it was cut short.
fn is_about(line: &[u8], torn: blake3::Hash) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_slice(line) else { return false };
    fields.get("call").and_then(Value::as_str) == Some(TORN)
        && fields.get(TORN_HASH).and_then(Value::as_str) == Some(torn.to_hex().as_str())
}
