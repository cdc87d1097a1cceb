//! A worker that runs an installed tool for each piece of a search: a process of godwit that uses the protocol of
//! `godwit-blast`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_process::TemporaryItem;

use super::preparation::output_tail;
use super::query_file::QueryFile;
use super::{ReportHeader, ToolSearch, alias, failure_kind};
use crate::worker_protocol::{FRAME_HEADER_BYTES, FailureKind, FieldReader, ProtocolFrame, read_frame_bytes};

/// Size in bytes of the buffer for copying files.
const COPY_BYTES: usize = 1 << 20;
/// Clock ticks per second, the unit of CPU times in `/proc` (`_SC_CLK_TCK`, which is 100 on all supported Linux
/// systems).
const TICKS_PER_SECOND: f64 = 100.0;
/// Maximum number of bytes that are read from the end of a failed tool's output, for the error message.
const LOG_TAIL_BYTES: u64 = 64 << 10;

/// The reason why a worker stops.
enum StopReason {
    /// The head requested the worker to stop, or closed its standard input.
    Requested,
    /// The request failed, and would fail on any other worker too: the kind of the failure, and the message.
    Failed(FailureKind, String),
    /// The tool was killed, or a frame is invalid; the request may succeed on another worker. Contains the message.
    WorkerLost(String),
}

impl From<std::io::Error> for StopReason {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(FailureKind::Engine, error.to_string())
    }
}

/// Reads requests from standard input and writes the responses to standard output until the head requests the end.
/// Returns true if all requests succeeded.
pub fn serve_tool_worker(bulk: &ToolSearch, query: &Path) -> bool {
    let mut worker = ToolWorker { bulk, query, state: None };
    match worker.serve_requests() {
        StopReason::Requested => true,
        StopReason::Failed(kind, message) => {
            // Ignore the error: the head, which reads the response, may have exited.
            let _ = send_response(&ProtocolFrame::new(b'X').with_u8(kind.letter()).with_text(message.as_bytes()));
            false
        }
        StopReason::WorkerLost(message) => {
            eprintln!("{message}");
            false
        }
    }
}

fn send_response(frame: &ProtocolFrame) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&frame.to_bytes()).and_then(|()| stdout.flush())
}

struct ToolWorker<'a> {
    bulk: &'a ToolSearch,
    query: &'a Path,
    state: Option<WorkerState>,
}

/// The state of a worker after the init request.
struct WorkerState {
    program: PathBuf,
    queries: QueryFile,
    scratch: TemporaryItem<tempfile::TempDir>,
}

impl ToolWorker<'_> {
    fn serve_requests(&mut self) -> StopReason {
        let mut stdin = std::io::stdin().lock();
        while let Some(frame) = read_frame_bytes(&mut stdin) {
            let (kind, body) = (frame[0], &frame[FRAME_HEADER_BYTES..]);
            if kind == b'Q' {
                return StopReason::Requested;
            }
            let outcome =
                self.handle_request(kind, &mut FieldReader::new(body)).and_then(|reply| Ok(send_response(&reply)?));
            if let Err(end) = outcome {
                return end;
            }
        }
        StopReason::Requested
    }

    fn handle_request(&mut self, kind: u8, from: &mut FieldReader<'_>) -> Result<ProtocolFrame, StopReason> {
        let nonsense = || {
            StopReason::WorkerLost(format!(
                "the frame {:?} is unexpected at this point of the protocol",
                char::from(kind)
            ))
        };
        match (kind, &self.state) {
            (b'I', _) => self.handle_init(from),
            // The text before and after the reports is empty, because the reports contain the whole output of the tool.
            (b'P' | b'Z', Some(_)) => Ok(ProtocolFrame::new(kind)),
            (b'A', Some(state)) => self.search_piece(state, from.read_u64().ok_or_else(nonsense)?),
            (b'W', Some(state)) => write_reports(state, from),
            (b'S', Some(_)) => {
                let (own, tools) = read_cpu_seconds()?;
                let seconds = [tools, 0.0, 0.0, own + tools].map(f64::to_bits);
                let frame = seconds.into_iter().fold(ProtocolFrame::new(b'S'), ProtocolFrame::with_u64);
                Ok(frame.with_u64(0).with_u64(0).with_u64(0))
            }
            _ => Err(nonsense()),
        }
    }

    fn handle_init(&mut self, from: &mut FieldReader<'_>) -> Result<ProtocolFrame, StopReason> {
        // Skip the maximum size of a range and the memory for reports, which are not used.
        let greeting = from.read_u32().zip(from.read_u64()).zip(from.read_u64()).zip(from.read_text());
        let (((pieces, _), _), scratch) =
            greeting.ok_or_else(|| StopReason::WorkerLost("the init request cannot be parsed".into()))?;
        let scratch = PathBuf::from(String::from_utf8_lossy(&scratch).into_owned());
        let (program, _) = self
            .bulk
            .find_program_version()
            .map_err(|error| StopReason::Failed(FailureKind::Engine, error.to_string()))?;
        let queries = QueryFile::open(self.query, self.bulk.query_stride, pieces as usize);
        let wrong = |error: std::io::Error| {
            StopReason::Failed(FailureKind::Input, format!("{}: {error}", self.query.display()))
        };
        let queries = queries.map_err(wrong)?;
        std::fs::create_dir_all(&scratch)?;
        let scratch = TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-pieces-").tempdir_in(scratch))?;
        let files = self.bulk.database_files(&self.bulk.database);
        let bytes: u64 = files.iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum();
        let frame = files.iter().fold(ProtocolFrame::new(b'I').with_u32(files.len() as u32), |frame, path| {
            frame.with_text(path.as_os_str().as_encoded_bytes())
        });
        // The response has one range with the size of the database, by which the head detects a worker with another
        // database.
        let frame = frame
            .with_u8(u8::from(queries.is_empty()))
            .with_u8(0)
            .with_u32(0)
            .with_u32(pieces)
            .with_u32(2)
            .with_u32(0)
            .with_u64(bytes)
            .with_u32(1)
            .with_u64(0);
        self.state = Some(WorkerState { program, queries, scratch });
        Ok(frame)
    }

    /// Returns the number of queries of a piece, and true for the last piece; `None` if the piece does not exist. If
    /// pieces are ranges of the database, the number is always 1, because it is not used.
    fn piece_size(&self, state: &WorkerState, piece: u64) -> Option<(u32, bool)> {
        match &self.bulk.range_tables {
            None => state.queries.piece_size(piece as usize),
            Some(tables) => (piece < tables.ranges.len() as u64).then(|| (1, piece + 1 == tables.ranges.len() as u64)),
        }
    }

    fn search_piece(&self, state: &WorkerState, piece: u64) -> Result<ProtocolFrame, StopReason> {
        let Some((queries, last)) = self.piece_size(state, piece) else {
            return Ok(ProtocolFrame::new(b'A')
                .with_u64(piece)
                .with_u32(0)
                .with_u8(1)
                .with_u64(0)
                .with_u32(0)
                .with_text(b"")
                .with_text(b""));
        };
        let place = |name: &str| state.scratch.path().join(format!("{name}-{piece}"));
        let (input, output, scratch, log) = (place("queries"), place("found"), place("scratch"), place("said"));
        if self.bulk.range_tables.is_some() {
            let range = place("range");
            for mut command in alias::range_commands(self.bulk, &state.program, self.query, piece as usize, &range)? {
                self.run_tool(&mut command, &log)?;
            }
            alias::write_keyed_rows(self.bulk, &range, &output)?;
            for ending in ["asn", "rows"] {
                std::fs::remove_file(range.with_extension(ending))?;
            }
        } else {
            state.queries.write_piece(piece as usize, &input)?;
            let mut command = Command::new(&state.program);
            command.args(self.bulk.run_arguments(&input, &output, &scratch));
            self.run_tool(&mut command, &log)?;
            std::fs::remove_file(&input)?;
            // Remove scratch files that the tool may have left behind.
            let _ = std::fs::remove_dir_all(&scratch);
        }
        let bytes = self.strip_header(&output, piece == 0)?;
        let frame = ProtocolFrame::new(b'A').with_u64(piece).with_u32(queries).with_u8(u8::from(last)).with_u64(bytes);
        Ok(frame.with_u32(file_crc32(&output)?).with_text(b"").with_text(b""))
    }

    /// Runs a tool until it exits, with its standard output and stderr in the file `log`.
    fn run_tool(&self, command: &mut Command, log: &Path) -> Result<(), StopReason> {
        let log_file = File::create(log)?;
        command.stdin(Stdio::null()).stdout(log_file.try_clone()?).stderr(log_file);
        godwit_process::set_parent_death_signal(command);
        let status = command.status()?;
        if status.success() {
            return Ok(std::fs::remove_file(log)?);
        }
        let mut log = File::open(log)?;
        let bytes = log.metadata()?.len();
        log.seek(SeekFrom::Start(bytes.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut log_tail = Vec::new();
        log.take(LOG_TAIL_BYTES).read_to_end(&mut log_tail)?;
        let words = output_tail(&String::from_utf8_lossy(&log_tail));
        let message = format!(
            "{} exited before it had searched all queries: {status}; its output ends with: {words}",
            self.bulk.tool.display_name()
        );
        Err(match status.code() {
            Some(_) => StopReason::Failed(failure_kind(&words), message),
            None => StopReason::WorkerLost(message),
        })
    }

    /// Removes the header from the output of a piece, except for the first piece. Returns the remaining size in bytes.
    /// The SAM header of the first piece remains with the command line of the whole search.
    fn strip_header(&self, path: &Path, is_first: bool) -> std::io::Result<u64> {
        let is_kept = match self.bulk.header {
            ReportHeader::Sam => false,
            ReportHeader::None => true,
            ReportHeader::Line | ReportHeader::Pairwise => is_first,
        };
        if is_kept {
            return Ok(path.metadata()?.len());
        }
        let mut from = BufReader::with_capacity(COPY_BYTES, File::open(path)?);
        let shorter = path.with_extension("body");
        let mut to = File::create(&shorter)?;
        let mut line = Vec::new();
        loop {
            line.clear();
            from.read_until(b'\n', &mut line)?;
            let is_heading = match self.bulk.header {
                ReportHeader::Sam => line.starts_with(b"@"),
                ReportHeader::Pairwise => !line.starts_with(b"Query=") && !line.is_empty(),
                ReportHeader::Line | ReportHeader::None => true,
            };
            if is_heading && is_first {
                to.write_all(&self.replace_command_line(&line))?;
            }
            if !is_heading {
                to.write_all(&line)?;
            }
            if !is_heading || self.bulk.header == ReportHeader::Line {
                break;
            }
        }
        std::io::copy(&mut from, &mut to)?;
        std::fs::rename(&shorter, path)?;
        Ok(path.metadata()?.len())
    }

    /// Returns a header line; in the `@PG` line of SAM, the command line of the tool is replaced by that of the whole
    /// search.
    fn replace_command_line(&self, line: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(line);
        match text.split_once("\tCL:").filter(|_| text.starts_with("@PG")) {
            Some((before, _)) => format!("{before}\tCL:{}\n", self.bulk.command_line).into_bytes(),
            None => line.to_vec(),
        }
    }
}

/// Writes those pages of the output file that reports of this worker fill completely. The response contains the
/// remaining bytes, which the head writes: on a network file system, two hosts that write to the same page overwrite
/// each other's bytes.
fn write_reports(state: &WorkerState, from: &mut FieldReader<'_>) -> Result<ProtocolFrame, StopReason> {
    let nonsense = || StopReason::WorkerLost("the offsets of reports cannot be parsed".into());
    let path = PathBuf::from(String::from_utf8_lossy(&from.read_text().ok_or_else(nonsense)?).into_owned());
    let page = from.read_u64().ok_or_else(nonsense)?.max(1);
    let to = File::options().write(true).open(&path)?;
    let mut edges = Vec::new();
    while !from.is_empty() {
        let (piece, offset) = from.read_u64().zip(from.read_u64()).ok_or_else(nonsense)?;
        let report = state.scratch.path().join(format!("found-{piece}"));
        copy_whole_pages(&File::open(&report)?, &to, offset, page, &mut edges)?;
        std::fs::remove_file(&report)?;
    }
    if page > 1 {
        to.sync_all()?;
    }
    let frame = ProtocolFrame::new(b'W').with_u32(edges.len() as u32);
    Ok(edges.into_iter().fold(frame, |frame, (offset, bytes)| frame.with_u64(offset).with_text(&bytes)))
}

/// Copies the file `from` to an offset of the file `to`. Bytes on pages that `from` fills only partly are not written;
/// they are added to `edges` with their offsets.
fn copy_whole_pages(
    from: &File,
    to: &File,
    offset: u64,
    page: u64,
    edges: &mut Vec<(u64, Vec<u8>)>,
) -> std::io::Result<()> {
    let end = offset + from.metadata()?.len();
    let first = offset.next_multiple_of(page).min(end);
    let last = (end / page * page).max(first);
    let read = |start: u64, bytes: u64| {
        let mut found = vec![0; bytes as usize];
        from.read_exact_at(&mut found, start - offset).map(|()| found)
    };
    for (start, stop) in [(offset, first), (last, end)] {
        if stop > start {
            edges.push((start, read(start, stop - start)?));
        }
    }
    for start in (first..last).step_by(COPY_BYTES) {
        to.write_all_at(&read(start, (last - start).min(COPY_BYTES as u64))?, start)?;
    }
    Ok(())
}

/// Returns the CRC-32 (as in gzip) of a file.
fn file_crc32(path: &Path) -> std::io::Result<u32> {
    let mut file = File::open(path)?;
    let (mut sum, mut piece) = (libdeflater::Crc::new(), vec![0; COPY_BYTES]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(sum.sum()),
            bytes => sum.update(&piece[..bytes]),
        }
    }
}

/// Returns the CPU seconds of this process, and those of its exited child processes (fields 14 to 17 of
/// `/proc/self/stat`).
fn read_cpu_seconds() -> std::io::Result<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Split after the last parenthesis, because the process name in parentheses may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let ticks: Vec<f64> = fields.take(4).filter_map(|field| field.parse().ok()).collect();
    let seconds = |of: &[f64]| of.iter().sum::<f64>() / TICKS_PER_SECOND;
    Ok(ticks.split_at_checked(2).map_or((0.0, 0.0), |(own, children)| (seconds(own), seconds(children))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_written_and_what_shares_one_is_left_over() {
        let directory = tempfile::tempdir().expect("scratch");
        let bytes: Vec<u8> = (0..=255).cycle().take(3_000).collect();
        for (offset, page) in [(0, 1), (17, 1), (17, 64), (64, 64), (100, 4096), (5_000, 4096), (3, 1000)] {
            let (from, to) = (directory.path().join("from"), directory.path().join("to"));
            std::fs::write(&from, &bytes).expect("scratch can be written");
            std::fs::write(&to, vec![9; 9_000]).expect("scratch can be written");
            let file = File::options().write(true).open(&to).expect("it is there");
            let mut edges = Vec::new();
            copy_whole_pages(&File::open(&from).expect("it is there"), &file, offset, page, &mut edges)
                .expect("it can be copied");
            let written = std::fs::read(&to).expect("it is there");
            let is_whole = |start: u64| start >= offset && start + page <= offset + 3_000;
            for start in (0..9_000_u64).step_by(page as usize) {
                let is_written = written[start as usize..(start + page).min(9_000) as usize]
                    != vec![9; page.min(9_000 - start) as usize];
                assert!(!is_written || is_whole(start), "page {start} of {page}, from {offset}");
            }
            for (start, bytes) in &edges {
                file.write_all_at(bytes, *start).expect("it can be written");
            }
            let written = std::fs::read(&to).expect("it is there");
            assert!(written[offset as usize..][..3_000] == bytes, "{offset} {page}");
        }
    }
}
