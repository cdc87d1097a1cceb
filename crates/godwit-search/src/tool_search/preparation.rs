//! Preparation of a search with an installed tool: choices and files that all pieces share and that are made once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_process::TemporaryItem;

use super::{SearchTool, ToolSearch, alias, failure_kind};
use crate::SearchError;
use crate::worker_protocol::FailureKind;

/// Maximum number of lines from the end of a tool's output in an error message.
const MAX_TAIL_LINES: usize = 5;
/// DIAMOND's messages about the algorithm that it has chosen, and the value of `--algo` that selects the same
/// algorithm.
const ALGORITHM_MESSAGES: [(&str, &str); 2] = [("Algorithm: Double-indexed", "0"), ("Algorithm: Query-indexed", "1")];

/// The scratch files of a search. Dropping this value removes the files.
pub struct SearchScratch {
    /// Parent of the scratch directories of local workers, which a killed worker does not remove itself.
    scratch: Option<TemporaryItem<tempfile::TempDir>>,
    _target_database: Option<TemporaryItem<tempfile::TempDir>>,
}

impl SearchScratch {
    /// Prepares the search of the command of `program`, such as `diamond`, for `pieces` pieces. DIAMOND: determines the
    /// algorithm that it would choose for all queries, because it might choose another one for a piece. MMseqs2:
    /// converts a FASTA target to a database once, not once for each piece. BLAST+ with alias files: cuts the database
    /// into ranges.
    ///
    /// # Errors
    /// [`SearchError`] if the tool is not installed, or rejects the database or the options.
    pub fn prepare(
        tool_search: Option<&mut ToolSearch>,
        program: &'static str,
        query: &Path,
        scratch: &Path,
        pieces: usize,
    ) -> Result<Self, SearchError> {
        let Some(bulk) = tool_search else { return Ok(Self { scratch: None, _target_database: None }) };
        let own = TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-search-").tempdir_in(scratch));
        let scratch = Some(own.map_err(|source| scratch_error(scratch.to_owned(), source))?);
        let (executable, _) = bulk.find_program_version()?;
        match bulk.tool {
            SearchTool::Diamond => {
                let has_option = |option: &str| bulk.arguments.iter().any(|word| word == option);
                if !has_option("--algo") && !has_option("--swipe") {
                    let algorithm = query_diamond_algorithm(bulk, &executable, query, program)?;
                    bulk.arguments.extend(["--algo".to_owned(), algorithm.to_owned()]);
                }
                Ok(Self { scratch, _target_database: None })
            }
            SearchTool::Blast => {
                alias::cut_database(bulk, &executable, pieces, program)?;
                Ok(Self { scratch, _target_database: None })
            }
            SearchTool::Mmseqs => {
                Ok(Self { scratch, _target_database: create_target_database(bulk, &executable, program)? })
            }
        }
    }

    /// Returns the scratch directory of the search; `None` if the search does not run an installed tool.
    pub fn directory(&self) -> Option<&Path> {
        self.scratch.as_ref().map(|directory| directory.path())
    }
}

/// Returns the algorithm (value of `--algo`) that DIAMOND chooses for all queries on this machine. To find it, starts
/// DIAMOND with all queries and kills the process when it has printed the message about the algorithm.
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
    let mut output_text = Vec::new();
    let mut found = None;
    for line in BufReader::new(child.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok) {
        found = ALGORITHM_MESSAGES.iter().find(|(words, _)| line.starts_with(words)).map(|(_, option)| *option);
        if found.is_some() {
            break;
        }
        output_text.push(line);
    }
    // Ignore the error: the process may have exited already.
    let _ = child.kill();
    let _ = child.wait();
    found.ok_or_else(|| tool_error(name, &output_text.join("\n")))
}

/// Creates an MMseqs2 database of the target in the tool's scratch directory; returns `None` if the target is a
/// database already.
fn create_target_database(
    bulk: &mut ToolSearch,
    program: &Path,
    name: &'static str,
) -> Result<Option<TemporaryItem<tempfile::TempDir>>, SearchError> {
    let is_there = |path: &Path| path.metadata().is_ok();
    if !is_there(&bulk.database) {
        return Err(SearchError::Database { message: format!("{} does not exist", bulk.database.display()) });
    }
    let scratch = bulk.scratch_directory.clone().unwrap_or_default();
    let made = godwit_files::create_directories(&scratch).and_then(|()| std::fs::canonicalize(&scratch));
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
        let output_text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let message = output_tail(&output_text);
        // `mmseqs createdb` reads only the target, so a failure that is not about options is about the database.
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

/// Returns the last lines of a tool's output, joined into one line.
pub(super) fn output_tail(output_text: &str) -> String {
    let lines: Vec<&str> = output_text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let kept = &lines[lines.len().saturating_sub(MAX_TAIL_LINES)..];
    if kept.is_empty() { "no output".to_owned() } else { kept.join(" | ") }
}

pub(super) fn tool_error(program: &'static str, output_text: &str) -> SearchError {
    let message = output_tail(output_text);
    failure_kind(&message).error(program, message)
}
