//! Searches with an installed tool. DIAMOND or MMseqs2 runs once for each piece of the queries, and the outputs are
//! merged into the output of a single run over all queries. An installed BLAST+ runs once for each range of the
//! database instead (`alias`).
//!
//! What DIAMOND and MMseqs2 write for a query depends only on the database and the options. This module handles three
//! exceptions: the order of queries, DIAMOND's choice of its algorithm, and the header. Options that make the results
//! of a query depend on other queries are rejected. A worker is a process of godwit that uses the protocol of
//! `godwit-blast` and starts the tool.

mod alias;
mod preparation;
mod query_file;
mod tool_worker;

use std::path::{Path, PathBuf};

use godwit_engines::EngineError;
use godwit_engines::searcher::{blast, diamond as diamond_program, mmseqs as mmseqs_program};
use serde::{Deserialize, Serialize};

use crate::database_files::files_with_stem;
use crate::worker_protocol::FailureKind;

pub(crate) use alias::{DEFAULT_MAX_SUBJECTS, RangeTables, merge_tables};
pub use preparation::SearchScratch;
pub use tool_worker::serve_tool_worker;

/// An installed search tool that workers start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchTool {
    /// DIAMOND (`diamond`); each run searches a piece of the queries.
    Diamond,
    /// MMseqs2 (`mmseqs`); each run searches a piece of the queries.
    Mmseqs,
    /// A program of BLAST+; each run searches all queries in a range of the database.
    Blast,
}

impl SearchTool {
    fn find_program_version(self, mode: &str) -> Result<(PathBuf, String), EngineError> {
        match self {
            Self::Diamond => diamond_program::find_program_version(),
            Self::Mmseqs => mmseqs_program::find_program_version(),
            Self::Blast => blast::find_program_version(mode),
        }
    }

    /// Returns the name of the tool for messages and reports.
    pub fn display_name(self) -> &'static str {
        match self {
            Self::Diamond => "DIAMOND",
            Self::Mmseqs => "MMseqs2",
            Self::Blast => "BLAST over aliases",
        }
    }
}

/// The kind of header that the tool writes before the results. The merged output contains the header only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReportHeader {
    /// No header.
    None,
    /// One line with the names of the columns.
    Line,
    /// SAM header lines, which start with `@`; the `@PG` line contains the command line.
    Sam,
    /// The lines before the first line that starts with `Query=`.
    Pairwise,
}

/// A search with an installed tool, from the parsed command line. The head sends it to the workers as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSearch {
    /// The tool that workers start.
    pub tool: SearchTool,
    /// The subcommand of DIAMOND or MMseqs2, such as `easy-search`; for BLAST+, the name of the program.
    pub mode: String,
    /// Options for the tool, without those for queries, output, threads and verbosity.
    pub(crate) arguments: Vec<String>,
    /// Path of the database that the tool searches.
    pub(crate) database: PathBuf,
    /// Database as on the command line. For MMseqs2 it may be a FASTA file, while `database` is created from it.
    #[serde(rename = "named")]
    pub(crate) database_argument: PathBuf,
    /// Directory for scratch files from the command line of MMseqs2; `None` for the other tools.
    #[serde(rename = "scratch")]
    pub(crate) scratch_directory: Option<PathBuf>,
    /// The command line as the user typed it.
    #[serde(rename = "line")]
    pub(crate) command_line: String,
    #[serde(rename = "heading")]
    pub(crate) header: ReportHeader,
    /// Order of queries in the output: MMseqs2 sorts them by 0-based number modulo this value, then by number. 1 keeps
    /// the order.
    #[serde(rename = "stride")]
    pub(crate) query_stride: usize,
    /// Number of threads of each run of the tool.
    pub threads: usize,
    /// The method to search ranges of the database and merge their tables; `None` if pieces of the queries are searched
    /// instead.
    #[serde(rename = "tables")]
    pub(crate) range_tables: Option<RangeTables>,
}

impl ToolSearch {
    /// Creates a search with the tool, the subcommand and the command line set, and default values in the other fields.
    pub(crate) fn from_words(tool: SearchTool, mode: &str, words: &[String]) -> Self {
        Self {
            tool,
            mode: mode.to_owned(),
            arguments: Vec::new(),
            database: PathBuf::new(),
            database_argument: PathBuf::new(),
            scratch_directory: None,
            command_line: words.join(" "),
            header: ReportHeader::None,
            query_stride: 1,
            threads: 1,
            range_tables: None,
        }
    }

    /// Finds the installed program of the tool, and returns its path and version.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`] if the program is not installed.
    pub fn find_program_version(&self) -> Result<(PathBuf, String), EngineError> {
        self.tool.find_program_version(&self.mode)
    }

    /// Returns the words of the command that must not change when the search is resumed.
    pub(crate) fn identity_words(&self) -> Vec<String> {
        let order = Some(self.query_stride).filter(|stride| *stride > 1).map(|stride| format!("order by {stride}"));
        let tables = self.range_tables.iter().map(RangeTables::description);
        std::iter::once(self.mode.clone()).chain(self.arguments.iter().cloned()).chain(order).chain(tables).collect()
    }

    /// Returns the command-line arguments for one run of the tool over the file `queries`.
    fn run_arguments(&self, queries: &Path, out: &Path, scratch: &Path) -> Vec<std::ffi::OsString> {
        let mut words: Vec<std::ffi::OsString> = vec![self.mode.clone().into()];
        match self.tool {
            SearchTool::Diamond => {
                words.extend(["--query".into(), queries.into(), "--out".into(), out.into(), "--quiet".into()]);
            }
            SearchTool::Blast => return words,
            SearchTool::Mmseqs => {
                words.extend([queries.into(), self.database.clone().into(), out.into(), scratch.into()])
            }
        }
        words.extend(self.arguments.iter().map(Into::into));
        words.extend(["--threads".into(), self.threads.to_string().into()]);
        words
    }

    /// Returns those existing files of the database at path `named` that have a known extension.
    pub(crate) fn database_files(&self, named: &Path) -> Vec<PathBuf> {
        let endings: &[&str] = match self.tool {
            SearchTool::Diamond => &["", ".dmnd"],
            SearchTool::Blast => return files_with_stem(named),
            SearchTool::Mmseqs => &["", ".index", ".dbtype", "_h", "_h.index"],
        };
        let with = |ending: &&str| {
            let mut path = named.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        let files: Vec<PathBuf> = endings.iter().map(with).filter(|path| path.is_file()).collect();
        // DIAMOND also searches databases of BLAST+.
        if files.is_empty() && self.tool == SearchTool::Diamond { files_with_stem(named) } else { files }
    }
}

/// Returns the kind of a tool's failure according to its message, because the exit status of DIAMOND, MMseqs2 and
/// BLAST+ is the same for all failures. Only this function interprets messages of tools.
fn failure_kind(said: &str) -> FailureKind {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&[
        "nvalid option",
        "nrecognized parameter",
        "nvalid parameter",
        "issing parameter",
        "nvalid value",
        "Argument \"",
    ]) {
        FailureKind::Usage
    } else if has(&[
        "database file",
        "Database",
        "target database",
        ".dmnd",
        "opening the database",
        "Error opening file",
    ]) {
        FailureKind::Database
    } else if has(&["input file format", "nvalid character", "is invalid", "query"]) {
        FailureKind::Input
    } else {
        FailureKind::Engine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_tools_are_classified_by_their_messages() {
        for (said, kind) in [
            ("Error: Invalid option: --evalu", FailureKind::Usage),
            ("Unrecognized parameter \"--foo\"", FailureKind::Usage),
            ("Error: Database was built with an older version of DIAMOND", FailureKind::Database),
            ("Error opening file nr.dmnd: No such file or directory", FailureKind::Database),
            ("Error: Error detecting input file format", FailureKind::Input),
            ("Killed for another reason", FailureKind::Engine),
        ] {
            assert_eq!(failure_kind(said), kind, "{said}");
        }
    }
}
