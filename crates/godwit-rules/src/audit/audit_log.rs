//! The writer of the audit log. A thread writes the records, so that records of concurrent accesses share one disk
//! write.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use godwit_dataset::{AccessLog, AccessLogFuture, AccessRecord, DatasetError};
use godwit_files::{JournalFile, parent_directory, sync_directory};
use serde::Serialize;
use tokio::sync::oneshot;

use super::hash_chain::{HashChain, TORN_CALL, scan_audit};
use crate::error::AuditError;

/// Maximum number of records in one disk write.
const MAX_WRITE_RECORDS: usize = 1024;

/// The fields of a line in the audit log, without the field `chain`.
#[derive(Serialize)]
struct AuditLine<'a> {
    /// Time of the record in the format of RFC 3339, in UTC.
    time: String,
    #[serde(rename = "who")]
    principal: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "granted")]
    scope: Option<&'a str>,
    call: &'a str,
    #[serde(rename = "what")]
    resource: &'a str,
    rules: Vec<AppliedRule<'a>>,
    rows: u64,
    bytes: u64,
    outcome: &'a str,
}

#[derive(Serialize)]
struct AppliedRule<'a> {
    #[serde(rename = "of")]
    dataset: &'a str,
    rule: &'a str,
}

/// The fields of the line after a torn line. They contain the length and the hash of the torn line.
#[derive(Serialize)]
struct TornLine {
    time: String,
    call: &'static str,
    bytes: usize,
    blake3: String,
}

/// The channel that tells the caller whether its record is on disk; `None` if the caller does not wait.
type Acknowledgement = Option<oneshot::Sender<Result<(), String>>>;

/// An audit log in a file that only this process writes. Dropping it writes all accepted records and unlocks the file.
#[derive(Debug)]
pub struct AuditLog {
    /// Channel to the writing thread; `None` only while the log is dropped.
    records: Option<Sender<(AccessRecord, Acknowledgement)>>,
    /// Handle of the writing thread; `None` only while the log is dropped.
    writer: Option<JoinHandle<()>>,
}

impl AuditLog {
    /// Opens or creates the log file. If the last line is torn, appends a line that records this.
    ///
    /// # Errors
    /// [`AuditError::Locked`] if another process writes to the file; [`AuditError::Broken`] if a line was changed after
    /// it was written; [`AuditError::File`].
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let failed = |source| AuditError::File { action: "write", path: path.to_owned(), source };
        let file = JournalFile::open(path).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => AuditError::Locked { path: path.to_owned() },
            _ => failed(error),
        })?;
        let walked = scan_audit(path, None)?;
        if let Some(line) = walked.open_torn_line {
            let problem = "its last line does not continue the hash chain; keep the file, and start the server with a \
                           new file"
                .to_owned();
            return Err(AuditError::Broken { path: path.to_owned(), line, problem });
        }
        let mut book = AuditFile { file, chain: walked.chain };
        book.close_torn_line(&walked.unterminated).map_err(failed)?;
        // Sync the directory as well, so that a new file survives a crash.
        sync_directory(parent_directory(path)).map_err(failed)?;
        let (sender, receiver) = channel();
        let started = std::thread::Builder::new().name("audit".to_owned()).spawn(move || book.run(&receiver));
        let writer = started.map_err(failed)?;
        Ok(Self { records: Some(sender), writer: Some(writer) })
    }

    fn enqueue(&self, access: AccessRecord, waiting: Acknowledgement) -> bool {
        self.records.as_ref().is_some_and(|sender| sender.send((access, waiting)).is_ok())
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.records = None;
        // Ignore a panic of the writing thread: callers that waited for records have received an error.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

impl AccessLog for AuditLog {
    fn record(&self, access: AccessRecord) -> AccessLogFuture<'_> {
        let (sender, receiver) = oneshot::channel();
        let is_sent = self.enqueue(access, Some(sender));
        Box::pin(async move {
            let cannot = |problem: String| {
                let text =
                    format!("the server cannot write its audit log ({problem}) and sends no data without a log record");
                DatasetError::Local(text.into())
            };
            if !is_sent {
                return Err(cannot("the audit log is closed".to_owned()));
            }
            receiver.await.unwrap_or_else(|_| Err("the audit log is closed".to_owned())).map_err(cannot)
        })
    }

    fn record_in_background(&self, access: AccessRecord) {
        // If the log is closed, ignore it here: callers that wait for their records receive this error.
        self.enqueue(access, None);
    }
}

/// The log file, and the state of its hash chain.
struct AuditFile {
    file: JournalFile,
    chain: HashChain,
}

impl AuditFile {
    /// Ends the torn line `rest`, the bytes after the last line feed, and appends a line that records it.
    fn close_torn_line(&mut self, rest: &[u8]) -> std::io::Result<()> {
        if rest.is_empty() {
            return Ok(());
        }
        // A line that only lacks its line feed is valid; append the line feed.
        if self.chain.verify_line(rest) {
            return self.file.append_durably(b"\n");
        }
        let line = TornLine {
            time: format_rfc_3339(SystemTime::now()),
            call: TORN_CALL,
            bytes: rest.len(),
            blake3: blake3::hash(rest).to_hex().to_string(),
        };
        let line = self.chain.append_line(&serde_json::to_string(&line)?);
        self.file.append_durably(format!("\n{line}").as_bytes())
    }

    /// Writes records until all senders have been dropped.
    fn run(mut self, accesses: &Receiver<(AccessRecord, Acknowledgement)>) {
        while let Ok(first) = accesses.recv() {
            let together: Vec<_> = [first].into_iter().chain(accesses.try_iter().take(MAX_WRITE_RECORDS - 1)).collect();
            let result = self.write_records(together.iter().map(|(access, _)| access));
            let result = result.map_err(|error| format!("{}: {error}", self.file.path().display()));
            for (_, waiting) in together {
                // Ignore the error: the caller may have stopped waiting.
                let _ = waiting.map(|waiting| waiting.send(result.clone()));
            }
        }
    }

    /// Writes one line for each record. If the write fails, removes all lines of this write.
    fn write_records<'a>(&mut self, accesses: impl Iterator<Item = &'a AccessRecord>) -> std::io::Result<()> {
        let (before, mut text) = (self.chain.clone(), String::new());
        for access in accesses {
            text += &self.chain.append_line(&serde_json::to_string(&audit_line(access))?);
        }
        // A failed append leaves no lines, so the next line follows the last complete one.
        self.file.append_durably(text.as_bytes()).inspect_err(|_| self.chain = before)
    }
}

fn audit_line(access: &AccessRecord) -> AuditLine<'_> {
    AuditLine {
        time: format_rfc_3339(SystemTime::now()),
        principal: &access.principal,
        scope: access.scope.as_deref(),
        call: &access.call,
        resource: &access.resource,
        rules: access
            .datasets
            .iter()
            .map(|touched| AppliedRule { dataset: &touched.dataset, rule: &touched.rule })
            .collect(),
        rows: access.rows,
        bytes: access.bytes,
        outcome: &access.outcome,
    }
}

/// Formats a time as RFC 3339 in UTC, to the millisecond.
fn format_rfc_3339(moment: SystemTime) -> String {
    DateTime::<Utc>::from(moment).to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests;
