//! The one who writes: a thread, so that accesses that end together share a write.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use godwit_flight::{AccessLog, Accessed, Pending, Status};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use tokio::sync::oneshot;

use super::chain::{Chain, TORN, walk};
use crate::error::AuditError;

/// Accesses that are written at a time, at most.
const AT_A_TIME: usize = 1024;

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    /// RFC 3339, in UTC.
    time: String,
    who: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    granted: Option<&'a str>,
    call: &'a str,
    what: &'a str,
    rules: Vec<Rule<'a>>,
    rows: u64,
    bytes: u64,
    outcome: &'a str,
}

#[derive(Serialize)]
struct Rule<'a> {
    of: &'a str,
    rule: &'a str,
}

/// A line that closes one that was cut short.
#[derive(Serialize)]
struct Torn {
    time: String,
    call: &'static str,
    bytes: usize,
    blake3: String,
}

/// Who waits for a line.
type Waiting = Option<oneshot::Sender<Result<(), String>>>;

/// A record of accesses in a file, which this process alone writes. When it is dropped, all that it was given is written and the file is free.
#[derive(Debug)]
pub struct Audit {
    /// Taken when it is dropped.
    sender: Option<Sender<(Accessed, Waiting)>>,
    /// The thread that writes, until it is dropped.
    writer: Option<JoinHandle<()>>,
}

impl Audit {
    /// Goes on with a file, or begins it. A line that was cut short by a stop is closed.
    ///
    /// # Errors
    /// [`AuditError`]: also where the file was changed since it was written.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let failed = |source| AuditError::File { doing: "write", path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| AuditError::Busy { path: path.to_owned() })?;
        let walked = walk(path, None)?;
        if let Some(line) = walked.open {
            let problem = "it is not the line that belongs here; keep the file, and begin another".to_owned();
            return Err(AuditError::Broken { path: path.to_owned(), line, problem });
        }
        let mut book = Book { file, path: path.to_owned(), chain: walked.chain, written: 0 };
        book.close(&walked.rest).map_err(failed)?;
        book.written = book.file.seek(SeekFrom::End(0)).map_err(failed)?;
        // The file itself has to be found again, too.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        let (sender, receiver) = channel();
        let started = std::thread::Builder::new().name("audit".to_owned()).spawn(move || book.keep(&receiver));
        let writer = started.map_err(failed)?;
        Ok(Self { sender: Some(sender), writer: Some(writer) })
    }

    fn send(&self, access: Accessed, waiting: Waiting) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.send((access, waiting)).is_ok())
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.sender = None;
        // A thread that panicked has told so.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

impl AccessLog for Audit {
    fn record(&self, access: Accessed) -> Pending<'_, ()> {
        let (told, kept) = oneshot::channel();
        let is_sent = self.send(access, Some(told));
        Box::pin(async move {
            let cannot = |problem: String| {
                Status::unavailable(format!(
                    "accesses cannot be recorded, and without that nothing is served: {problem}"
                ))
            };
            if !is_sent {
                return Err(cannot("the record is closed".to_owned()));
            }
            kept.await.unwrap_or_else(|_| Err("the record is closed".to_owned())).map_err(cannot)
        })
    }

    fn note(&self, access: Accessed) {
        // A record that is closed has told so to everybody who waits.
        self.send(access, None);
    }
}

/// The file, and where it stands.
struct Book {
    file: File,
    path: PathBuf,
    chain: Chain,
    /// Bytes that are whole lines.
    written: u64,
}

impl Book {
    /// Ends what stands behind the last whole line.
    fn close(&mut self, rest: &[u8]) -> std::io::Result<()> {
        if rest.is_empty() {
            return Ok(());
        }
        // A line that lacks nothing but its end is whole.
        if self.chain.pass(rest) {
            self.file.write_all(b"\n")?;
            return self.file.sync_data();
        }
        let line = Torn { time: now(), call: TORN, bytes: rest.len(), blake3: blake3::hash(rest).to_hex().to_string() };
        let line = self.chain.add(&serde_json::to_string(&line)?);
        self.file.write_all(format!("\n{line}").as_bytes())?;
        self.file.sync_data()
    }

    /// Writes what comes until nobody is left who sends.
    fn keep(mut self, accesses: &Receiver<(Accessed, Waiting)>) {
        while let Ok(first) = accesses.recv() {
            let together: Vec<_> = [first].into_iter().chain(accesses.try_iter().take(AT_A_TIME - 1)).collect();
            let kept = self.write(together.iter().map(|(access, _)| access));
            let kept = kept.map_err(|error| format!("{}: {error}", self.path.display()));
            for (_, waiting) in together {
                // Who does not wait any more has gone.
                let _ = waiting.map(|waiting| waiting.send(kept.clone()));
            }
        }
    }

    /// Writes lines, all or none of them.
    fn write<'a>(&mut self, accesses: impl Iterator<Item = &'a Accessed>) -> std::io::Result<()> {
        let (before, mut text) = (self.chain.clone(), String::new());
        for access in accesses {
            text += &self.chain.add(&serde_json::to_string(&line_of(access))?);
        }
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        match &written {
            Ok(()) => self.written += text.len() as u64,
            Err(_) => {
                // What did not fit is taken back, so that the next line follows the last whole one.
                self.chain = before;
                let _ = self.file.set_len(self.written);
            }
        }
        written
    }
}

fn line_of(access: &Accessed) -> Line<'_> {
    Line {
        time: now(),
        who: &access.who,
        granted: access.granted.as_deref(),
        call: &access.call,
        what: &access.what,
        rules: access.touched.iter().map(|touched| Rule { of: &touched.dataset, rule: &touched.rule }).collect(),
        rows: access.rows,
        bytes: access.bytes,
        outcome: &access.outcome,
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc_3339(since.as_secs(), since.subsec_millis())
}

/// A time in UTC, by the days of the Gregorian calendar (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", 2013).
fn rfc_3339(unix_s: u64, millis: u32) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests;
