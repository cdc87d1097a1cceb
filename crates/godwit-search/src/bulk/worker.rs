//! A worker for tools that search pieces of the queries: a process of godwit's own that speaks as `godwit-blast` does.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_process::Temporary;

use super::prepare::last_words;
use super::queries::Queries;
use super::{BulkSearch, Heading, alias, kind_of};
use crate::protocol::{FailureKind, Fields, HEAD_BYTES, Request, read_frame};

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// Ticks of a second in `/proc` (proc(5): `_SC_CLK_TCK`, which is 100 wherever Linux runs this).
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes of what a tool said that are looked at.
const SAID_BYTES: u64 = 64 << 10;

/// Why a worker ends.
enum End {
    /// It was told to, or nobody is there any more.
    Dismissed,
    /// The request cannot be done by any worker: the kind of the failure and the reason.
    Failed(FailureKind, String),
    /// The tool was killed, or this machine is in trouble: another worker may do better.
    Broken(String),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(FailureKind::Engine, error.to_string())
    }
}

/// Answers over standard output what is asked over standard input, until the last question. Returns whether all went well.
pub fn serve(bulk: &BulkSearch, query: &Path) -> bool {
    let mut worker = Worker { bulk, query, state: None };
    match worker.listen() {
        End::Dismissed => true,
        End::Failed(kind, message) => {
            // Whoever asked may be gone.
            let _ = answer(&Request::new(b'X').u8(kind.letter()).text(message.as_bytes()));
            false
        }
        End::Broken(message) => {
            eprintln!("{message}");
            false
        }
    }
}

fn answer(frame: &Request) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&frame.frame()).and_then(|()| stdout.flush())
}

struct Worker<'a> {
    bulk: &'a BulkSearch,
    query: &'a Path,
    state: Option<State>,
}

/// What there is after the greeting.
struct State {
    program: PathBuf,
    queries: Queries,
    scratch: Temporary<tempfile::TempDir>,
}

impl Worker<'_> {
    fn listen(&mut self) -> End {
        let mut stdin = std::io::stdin().lock();
        while let Some(frame) = read_frame(&mut stdin) {
            let (kind, body) = (frame[0], &frame[HEAD_BYTES..]);
            if kind == b'Q' {
                return End::Dismissed;
            }
            let answered = self.answer(kind, &mut Fields::new(body)).and_then(|reply| Ok(answer(&reply)?));
            if let Err(end) = answered {
                return end;
            }
        }
        End::Dismissed
    }

    fn answer(&mut self, kind: u8, from: &mut Fields<'_>) -> Result<Request, End> {
        let nonsense = || End::Broken(format!("the frame {:?} makes no sense here", char::from(kind)));
        match (kind, &self.state) {
            (b'I', _) => self.open(from),
            // Nothing is in front of the first piece or behind the last that a piece does not have.
            (b'P' | b'Z', Some(_)) => Ok(Request::new(kind)),
            (b'A', Some(state)) => self.search(state, from.u64().ok_or_else(nonsense)?),
            (b'W', Some(state)) => write(state, from),
            (b'S', Some(_)) => {
                let (own, tools) = cpu_seconds()?;
                let seconds = [tools, 0.0, 0.0, own + tools].map(f64::to_bits);
                let frame = seconds.into_iter().fold(Request::new(b'S'), Request::u64);
                Ok(frame.u64(0).u64(0).u64(0))
            }
            _ => Err(nonsense()),
        }
    }

    fn open(&mut self, from: &mut Fields<'_>) -> Result<Request, End> {
        let greeting = from.u32().zip(from.u64()).zip(from.text());
        let ((pieces, _), scratch) = greeting.ok_or_else(|| End::Broken("the greeting cannot be read".into()))?;
        let scratch = PathBuf::from(String::from_utf8_lossy(&scratch).into_owned());
        let (program, _) = self.bulk.find().map_err(|error| End::Failed(FailureKind::Engine, error.to_string()))?;
        let queries = Queries::open(self.query, self.bulk.stride, pieces as usize);
        let wrong =
            |error: std::io::Error| End::Failed(FailureKind::Input, format!("{}: {error}", self.query.display()));
        let queries = queries.map_err(wrong)?;
        std::fs::create_dir_all(&scratch)?;
        let scratch = Temporary::create(|| tempfile::Builder::new().prefix("godwit-pieces-").tempdir_in(scratch))?;
        let files = self.bulk.database_files(&self.bulk.database);
        let bytes: u64 = files.iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum();
        let frame = files.iter().fold(Request::new(b'I').u32(files.len() as u32), |frame, path| {
            frame.text(path.as_os_str().as_encoded_bytes())
        });
        // One range, which is as long as the database, so that workers that see others are found out.
        let frame = frame.u8(u8::from(queries.is_empty())).u8(0).u32(0).u32(2).u32(0).u64(bytes).u32(1).u64(0);
        self.state = Some(State { program, queries, scratch });
        Ok(frame)
    }

    /// How many queries there are in a piece, and whether it is the last. Where pieces are ranges, all queries are in each, and no count
    /// of them is needed.
    fn piece(&self, state: &State, piece: u64) -> Option<(u32, bool)> {
        match &self.bulk.tables {
            None => state.queries.piece(piece as usize),
            Some(tables) => (piece < tables.ranges.len() as u64).then(|| (1, piece + 1 == tables.ranges.len() as u64)),
        }
    }

    fn search(&self, state: &State, piece: u64) -> Result<Request, End> {
        let Some((queries, last)) = self.piece(state, piece) else {
            return Ok(Request::new(b'A').u64(piece).u32(0).u8(1).u64(0).u32(0).text(b"").text(b""));
        };
        let place = |name: &str| state.scratch.path().join(format!("{name}-{piece}"));
        let (input, output, scratch, log) = (place("queries"), place("found"), place("scratch"), place("said"));
        if self.bulk.tables.is_some() {
            let range = place("range");
            for mut command in alias::commands(self.bulk, &state.program, self.query, piece as usize, &range)? {
                self.run(&mut command, &log)?;
            }
            alias::rows_with_keys(self.bulk, &range, &output)?;
            for ending in ["asn", "rows"] {
                std::fs::remove_file(range.with_extension(ending))?;
            }
        } else {
            state.queries.write(piece as usize, &input)?;
            let mut command = Command::new(&state.program);
            command.args(self.bulk.words(&input, &output, &scratch));
            self.run(&mut command, &log)?;
            std::fs::remove_file(&input)?;
            // What it has left of its own.
            let _ = std::fs::remove_dir_all(&scratch);
        }
        let bytes = self.without_heading(&output, piece == 0)?;
        let frame = Request::new(b'A').u64(piece).u32(queries).u8(u8::from(last)).u64(bytes);
        Ok(frame.u32(checksum(&output)?).text(b"").text(b""))
    }

    /// Runs a tool to its end, what it says going to a file.
    fn run(&self, command: &mut Command, log: &Path) -> Result<(), End> {
        let said = File::create(log)?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        godwit_process::die_with_parent(command);
        let status = command.status()?;
        if status.success() {
            return Ok(std::fs::remove_file(log)?);
        }
        let mut log = File::open(log)?;
        let bytes = log.metadata()?.len();
        log.seek(SeekFrom::Start(bytes.saturating_sub(SAID_BYTES)))?;
        let mut said = Vec::new();
        log.take(SAID_BYTES).read_to_end(&mut said)?;
        let words = last_words(&String::from_utf8_lossy(&said));
        let message = format!("{} ended over some queries: {status}; it said: {words}", self.bulk.tool.title());
        Err(match status.code() {
            Some(_) => End::Failed(kind_of(&words), message),
            None => End::Broken(message),
        })
    }

    /// Leaves the heading to the first piece, and returns what is left.
    fn without_heading(&self, path: &Path, is_first: bool) -> std::io::Result<u64> {
        let is_kept = match self.bulk.heading {
            Heading::Sam => false,
            Heading::None => true,
            Heading::Line | Heading::Pairwise => is_first,
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
            let is_heading = match self.bulk.heading {
                Heading::Sam => line.starts_with(b"@"),
                Heading::Pairwise => !line.starts_with(b"Query=") && !line.is_empty(),
                Heading::Line | Heading::None => true,
            };
            if is_heading && is_first {
                to.write_all(&self.with_own_line(&line))?;
            }
            if !is_heading {
                to.write_all(&line)?;
            }
            if !is_heading || self.bulk.heading == Heading::Line {
                break;
            }
        }
        std::io::copy(&mut from, &mut to)?;
        std::fs::rename(&shorter, path)?;
        Ok(path.metadata()?.len())
    }

    /// A line of SAM's header, with the command line of the whole search.
    fn with_own_line(&self, line: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(line);
        match text.split_once("\tCL:").filter(|_| text.starts_with("@PG")) {
            Some((before, _)) => format!("{before}\tCL:{}\n", self.bulk.line).into_bytes(),
            None => line.to_vec(),
        }
    }
}

/// Writes reports to their places, as far as they have pages to themselves: on network file systems two machines that write one page
/// undo each other's work. What is left is answered.
fn write(state: &State, from: &mut Fields<'_>) -> Result<Request, End> {
    let nonsense = || End::Broken("places for reports cannot be read".into());
    let path = PathBuf::from(String::from_utf8_lossy(&from.text().ok_or_else(nonsense)?).into_owned());
    let page = from.u64().ok_or_else(nonsense)?.max(1);
    let to = File::options().write(true).open(&path)?;
    let mut edges = Vec::new();
    while !from.is_empty() {
        let (piece, offset) = from.u64().zip(from.u64()).ok_or_else(nonsense)?;
        let report = state.scratch.path().join(format!("found-{piece}"));
        copy(&File::open(&report)?, &to, offset, page, &mut edges)?;
        std::fs::remove_file(&report)?;
    }
    if page > 1 {
        to.sync_all()?;
    }
    let frame = Request::new(b'W').u32(edges.len() as u32);
    Ok(edges.into_iter().fold(frame, |frame, (offset, bytes)| frame.u64(offset).text(&bytes)))
}

/// Copies a file to a place in another, but for what shares a page with others, which is added to `edges`.
fn copy(from: &File, to: &File, offset: u64, page: u64, edges: &mut Vec<(u64, Vec<u8>)>) -> std::io::Result<()> {
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

/// As gzip has it.
fn checksum(path: &Path) -> std::io::Result<u32> {
    let mut file = File::open(path)?;
    let (mut sum, mut piece) = (libdeflater::Crc::new(), vec![0; COPY_BYTES]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(sum.sum()),
            bytes => sum.update(&piece[..bytes]),
        }
    }
}

/// CPU seconds of this process, and of the children that it has waited for (proc(5): fields 14 to 17 of `stat`).
fn cpu_seconds() -> std::io::Result<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may have spaces.
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
            copy(&File::open(&from).expect("it is there"), &file, offset, page, &mut edges).expect("it can be copied");
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
