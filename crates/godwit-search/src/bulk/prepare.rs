//! What is found out or made once, before pieces are searched.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_process::Temporary;

use super::{BulkSearch, Tool, alias, kind_of};
use crate::SearchError;
use crate::command_line::SearchCommand;
use crate::protocol::FailureKind;

/// Lines of what a tool says that are kept.
const LAST_WORDS: usize = 5;
/// What DIAMOND says of its choice, and the option for it.
const ALGORITHMS: [(&str, &str); 2] = [("Algorithm: Double-indexed", "0"), ("Algorithm: Query-indexed", "1")];

/// Scratch files of a search. Dropping it removes them.
pub struct Prepared {
    /// Where workers of this machine have theirs, which one that is killed leaves.
    scratch: Option<Temporary<tempfile::TempDir>>,
    _target: Option<Temporary<tempfile::TempDir>>,
}

impl Prepared {
    /// Has DIAMOND say which algorithm it would choose for all queries, and MMseqs2 make a database of a target that is none: each piece
    /// by itself would choose otherwise, or make it again. A database for aliases is cut into so many ranges.
    ///
    /// # Errors
    /// [`SearchError`]: no such tool, or a database or options that it does not take.
    pub fn new(command: &mut SearchCommand, query: &Path, scratch: &Path, pieces: usize) -> Result<Self, SearchError> {
        let Some(bulk) = &mut command.bulk else { return Ok(Self { scratch: None, _target: None }) };
        let own = Temporary::create(|| tempfile::Builder::new().prefix("godwit-search-").tempdir_in(scratch));
        let scratch = Some(own.map_err(|source| scratch_error(scratch.to_owned(), source))?);
        let (program, _) = bulk.find()?;
        let name = command.program.name();
        match bulk.tool {
            Tool::Diamond => {
                let is_said = |option: &str| bulk.arguments.iter().any(|word| word == option);
                if !is_said("--algo") && !is_said("--swipe") {
                    let algorithm = algorithm(bulk, &program, query, name)?;
                    bulk.arguments.extend(["--algo".to_owned(), algorithm.to_owned()]);
                }
                Ok(Self { scratch, _target: None })
            }
            Tool::Blast => {
                alias::cut(bulk, &program, pieces, name)?;
                Ok(Self { scratch, _target: None })
            }
            Tool::Mmseqs => Ok(Self { scratch, _target: target(bulk, &program, name)? }),
        }
    }

    /// A directory of its own for the search, where it has one.
    pub fn scratch(&self) -> Option<&Path> {
        self.scratch.as_ref().map(|directory| directory.path())
    }
}

/// Which algorithm DIAMOND chooses depends on all queries, and on the machine: it is started over them, and ended when it has said so.
fn algorithm(bulk: &BulkSearch, program: &Path, query: &Path, name: &'static str) -> Result<&'static str, SearchError> {
    let unwanted = Temporary::create(tempfile::NamedTempFile::new)
        .map_err(|source| scratch_error(std::env::temp_dir(), source))?;
    let mut words = bulk.words(query, unwanted.path(), Path::new(""));
    words.retain(|word| word != "--quiet");
    let mut started = Command::new(program);
    started.args(words).arg("--verbose").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    godwit_process::die_with_parent(&mut started);
    let wrong = |source| SearchError::File { action: "start", path: program.to_owned(), source };
    let mut child = started.spawn().map_err(wrong)?;
    let mut said = Vec::new();
    let mut found = None;
    for line in BufReader::new(child.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok) {
        found = ALGORITHMS.iter().find(|(words, _)| line.starts_with(words)).map(|(_, option)| *option);
        if found.is_some() {
            break;
        }
        said.push(line);
    }
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
    found.ok_or_else(|| failed(name, &said.join("\n")))
}

/// The database of a target, beside the tool's other scratch files.
fn target(
    bulk: &mut BulkSearch,
    program: &Path,
    name: &'static str,
) -> Result<Option<Temporary<tempfile::TempDir>>, SearchError> {
    let is_there = |path: &Path| path.metadata().is_ok();
    if !is_there(&bulk.database) {
        return Err(SearchError::Database { message: format!("there is no {}", bulk.database.display()) });
    }
    let scratch = bulk.scratch.clone().unwrap_or_default();
    let made = std::fs::create_dir_all(&scratch).and_then(|()| std::fs::canonicalize(&scratch));
    let scratch = made.map_err(|source| scratch_error(scratch.clone(), source))?;
    if bulk.database_files(&bulk.database).iter().any(|path| path.extension().is_some_and(|ending| ending == "dbtype"))
    {
        return Ok(None);
    }
    let directory = Temporary::create(|| tempfile::Builder::new().prefix("godwit-target-").tempdir_in(&scratch));
    let directory = directory.map_err(|source| scratch_error(scratch, source))?;
    let place = directory.path().join("target");
    let mut make = Command::new(program);
    make.arg("createdb").arg(&bulk.database).arg(&place).args([
        "--shuffle",
        if bulk.stride > 1 { "1" } else { "0" },
        "-v",
        "1",
    ]);
    if let Some(at) = bulk.arguments.iter().position(|word| word == "--dbtype") {
        make.args(bulk.arguments.iter().skip(at).take(2));
    }
    let output = make.stdin(Stdio::null()).output();
    let output = output.map_err(|source| SearchError::File { action: "start", path: program.to_owned(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let message = last_words(&said);
        // The input of this step is the target.
        let kind = match kind_of(&message) {
            FailureKind::Usage => FailureKind::Usage,
            FailureKind::Input | FailureKind::Database | FailureKind::Engine => FailureKind::Database,
        };
        return Err(kind.error(name, message));
    }
    bulk.database = place;
    Ok(Some(directory))
}

pub(super) fn scratch_error(path: PathBuf, source: std::io::Error) -> SearchError {
    SearchError::File { action: "write", path, source }
}

/// The end of what a tool said, on one line.
pub(super) fn last_words(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let kept = &lines[lines.len().saturating_sub(LAST_WORDS)..];
    if kept.is_empty() { "it said nothing".to_owned() } else { kept.join(" | ") }
}

pub(super) fn failed(program: &'static str, said: &str) -> SearchError {
    let message = last_words(said);
    kind_of(&message).error(program, message)
}
