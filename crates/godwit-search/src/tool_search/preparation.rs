//! Preparation before pieces are searched: choices and files that are made once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_process::TemporaryItem;

use super::{SearchTool, ToolSearch, alias, failure_kind};
use crate::SearchError;
use crate::command_line::SearchCommand;
use crate::worker_protocol::FailureKind;

/// Maximum number of lines of a tool's output that are kept.
const MAX_TAIL_LINES: usize = 5;
/// DIAMOND's messages about its algorithm, and the option for each.
const ALGORITHM_MESSAGES: [(&str, &str); 2] = [("Algorithm: Double-indexed", "0"), ("Algorithm: Query-indexed", "1")];

/// The scratch files of a search. Dropping it removes them.
pub struct SearchScratch {
    /// Directory of the scratch files of local workers, which killed workers leave behind.
    scratch: Option<TemporaryItem<tempfile::TempDir>>,
    _target_database: Option<TemporaryItem<tempfile::TempDir>>,
}

impl SearchScratch {
    /// Determines which algorithm DIAMOND would choose for all queries, and has MMseqs2 make a database of a target that is
    /// not one: each piece alone would choose otherwise, or make it again. For aliases, the database is cut into ranges.
    ///
    /// # Errors
    /// [`SearchError`]: no such tool, or a database or options that it rejects.
    pub fn prepare(
        command: &mut SearchCommand,
        query: &Path,
        scratch: &Path,
        pieces: usize,
    ) -> Result<Self, SearchError> {
        let Some(bulk) = &mut command.tool_search else { return Ok(Self { scratch: None, _target_database: None }) };
        let own = TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-search-").tempdir_in(scratch));
        let scratch = Some(own.map_err(|source| scratch_error(scratch.to_owned(), source))?);
        let (program, _) = bulk.find_program_version()?;
        let name = command.program.name();
        match bulk.tool {
            SearchTool::Diamond => {
                let has_option = |option: &str| bulk.arguments.iter().any(|word| word == option);
                if !has_option("--algo") && !has_option("--swipe") {
                    let algorithm = query_diamond_algorithm(bulk, &program, query, name)?;
                    bulk.arguments.extend(["--algo".to_owned(), algorithm.to_owned()]);
                }
                Ok(Self { scratch, _target_database: None })
            }
            SearchTool::Blast => {
                alias::cut_database(bulk, &program, pieces, name)?;
                Ok(Self { scratch, _target_database: None })
            }
            SearchTool::Mmseqs => Ok(Self { scratch, _target_database: create_target_database(bulk, &program, name)? }),
        }
    }

    /// Returns the directory of the search, if it has one.
    pub fn directory(&self) -> Option<&Path> {
        self.scratch.as_ref().map(|directory| directory.path())
    }
}

/// Starts DIAMOND with all queries and stops it after its message about the algorithm, which depends on them and on the machine.
fn query_diamond_algorithm(
    bulk: &ToolSearch,
    program: &Path,
    query: &Path,
    name: &'static str,
) -> Result<&'static str, SearchError> {
    let unwanted = TemporaryItem::create(tempfile::NamedTempFile::new)
        .map_err(|source| scratch_error(std::env::temp_dir(), source))?;
    let mut words = bulk.run_arguments(query, unwanted.path(), Path::new(""));
    words.retain(|word| word != "--quiet");
    let mut command = Command::new(program);
    command.args(words).arg("--verbose").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    godwit_process::set_parent_death_signal(&mut command);
    let wrong = |source| SearchError::File { action: "start", path: program.to_owned(), source };
    let mut child = command.spawn().map_err(wrong)?;
    let mut said = Vec::new();
    let mut found = None;
    for line in BufReader::new(child.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok) {
        found = ALGORITHM_MESSAGES.iter().find(|(words, _)| line.starts_with(words)).map(|(_, option)| *option);
        if found.is_some() {
            break;
        }
        said.push(line);
    }
    // It may have exited already.
    let _ = child.kill();
    let _ = child.wait();
    found.ok_or_else(|| tool_error(name, &said.join("\n")))
}

/// Creates the database of a target, beside the tool's other scratch files.
fn create_target_database(
    bulk: &mut ToolSearch,
    program: &Path,
    name: &'static str,
) -> Result<Option<TemporaryItem<tempfile::TempDir>>, SearchError> {
    let is_there = |path: &Path| path.metadata().is_ok();
    if !is_there(&bulk.database) {
        return Err(SearchError::Database { message: format!("there is no {}", bulk.database.display()) });
    }
    let scratch = bulk.scratch_directory.clone().unwrap_or_default();
    let made = std::fs::create_dir_all(&scratch).and_then(|()| std::fs::canonicalize(&scratch));
    let scratch = made.map_err(|source| scratch_error(scratch.clone(), source))?;
    if bulk.database_files(&bulk.database).iter().any(|path| path.extension().is_some_and(|ending| ending == "dbtype"))
    {
        return Ok(None);
    }
    let directory = TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-target-").tempdir_in(&scratch));
    let directory = directory.map_err(|source| scratch_error(scratch, source))?;
    let place = directory.path().join("target");
    let mut make = Command::new(program);
    make.arg("createdb").arg(&bulk.database).arg(&place).args([
        "--shuffle",
        if bulk.query_stride > 1 { "1" } else { "0" },
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
        let message = output_tail(&said);
        // The input of this step is the target.
        let kind = match failure_kind(&message) {
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

/// Returns the end of a tool's output on one line.
pub(super) fn output_tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let kept = &lines[lines.len().saturating_sub(MAX_TAIL_LINES)..];
    if kept.is_empty() { "it said nothing".to_owned() } else { kept.join(" | ") }
}

pub(super) fn tool_error(program: &'static str, said: &str) -> SearchError {
    let message = output_tail(said);
    failure_kind(&message).error(program, message)
}
